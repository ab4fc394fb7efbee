import copy
import pickle

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from inner.data import Embedded, Split
from inner.inference import (
    GRID,
    NOISE_SHARES,
    NORMAL,
    Calibration,
    Discrete,
    Distribution,
    Evaluation,
    GridValues,
    NeighborBank,
    Neighbors,
    Noise,
    Noisy,
    Widened,
    _are_about_lowest,
    _miscoverage,
    averaged_out,
    calibrate_on_bank,
    calibrate_on_held_out,
    draw_levels,
    fit_calibration,
    held_out,
    ranks_of,
    residuals_apart,
    shape_of,
    shared_part,
    with_numbers,
)
from inner.inference import calibration as calibration_module
from inner.inference import evaluation as evaluation_module

from nona_sklearn import NONAHead, NONARegressor, SoftStep, SoftStepKNeighborsRegressor
from nona_sklearn.attention import AverageHead
from nona_sklearn.datasets import make_plane_regression


def nona(**params):
    params = {"max_iter": 5, "hidden_layer_sizes": (16,), "random_state": 0} | params
    return NONARegressor(**({"similarity": "l2"} | params))


@pytest.fixture(scope="module")
def reg(plane):
    return nona(n_estimators=2).fit(plane[0], plane[2])


@pytest.fixture(scope="module")
def raw(reg):
    """Without calibration, distributions are the weighted adjusted targets themselves."""
    reg = copy.deepcopy(reg)
    reg.calibration_ = Calibration()
    return reg


@pytest.fixture(scope="module")
def both(plane):
    X, X_test, y, _ = plane
    # Adjustments would be learned for each output by itself.
    reg = nona(n_estimators=1, adjust=False)
    return reg.fit(X, np.column_stack([y, -3 * y])), X_test


def tensors(*values):
    return [torch.tensor(value).double() for value in values]


# -- weighted targets ------------------------------------------------------------------------


def blur(weights, values, scale, errors=NORMAL, shares=(1.0,)):
    """The law of values (n,) or (q, n) with noise."""
    values = values.expand(len(weights), -1)
    center = (weights * values).sum(dim=1, keepdim=True)
    noise = Noise(scale, errors, shares)
    return Noisy(GridValues(values - center, scale), weights, center, noise)


def discrete(weights, values):
    return Discrete(values, weights, torch.zeros(len(weights), 1).double())


def test_on_paper():
    weights, targets, levels, points = tensors(
        [[0.5, 0.25, 0.25]],
        [[3.0, 1.0, 2.0]],
        [0.0, 0.25, 0.3, 0.5, 0.51, 1.0],
        [[0.9, 1.0, 2.5, 3.0]],
    )
    law = discrete(weights, targets)
    assert law.ppf(levels).tolist() == [[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]]
    assert law.cdf(points).tolist() == [[0.0, 0.25, 0.5, 1.0]]
    assert law.std().item() == pytest.approx(np.sqrt(0.6875))


UNIT = np.pi / np.sqrt(3)  # standard deviation of a logistic distribution of scale 1


def test_a_single_value_is_widened_to_a_logistic_distribution():
    """3 +- 2 log(9) are its 10 and 90 % quantiles if the variance is (2 UNIT)^2."""
    weights, values, added, levels = tensors(
        [[1.0]], [[3.0]], [[(2 * UNIT) ** 2]], [0.1, 0.5, 0.9]
    )
    law = Widened(discrete(weights, values), added)
    found = law.ppf(levels)
    expected = 3 + 2 * np.log(9) * np.array([[-1, 0, 1]])
    np.testing.assert_allclose(found, expected, rtol=0.02)  # whose farthest tails are cut
    assert law.std().item() == pytest.approx(2 * UNIT)
    np.testing.assert_allclose(law.cdf(found), [levels.tolist()], atol=1e-9)


@pytest.mark.parametrize("added", [1e-9, 1.0, 100.0])
def test_what_is_widened_has_the_variance_that_is_added(added):
    """Values 0, 1 and 5 have 14 / 3; quantiles of many levels have the sum."""
    weights, values, more = tensors([[1 / 3, 1 / 3, 1 / 3]], [[0.0, 1.0, 5.0]], [[added]])
    law = Widened(discrete(weights, values), more)
    assert law.std().item() == pytest.approx(np.sqrt(14 / 3 + added))
    levels = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    assert law.ppf(levels).var().item() == pytest.approx(14 / 3 + added, rel=0.01)
    within = law.std((-1.0, 4.0)).item()
    found = law.ppf(levels).clamp(-1, 4)
    assert within == pytest.approx(found.std().item(), rel=0.01)


def test_draws_are_widened_as_quantiles_are():
    """A value of levels 1/4 to 3/4 moves to the quantile of the level between."""
    weights, values, added, drawn, places = tensors(
        [[0.25, 0.5, 0.25]], [[0.0, 1.0, 5.0]], [[9.0]], [[1.0, 1.0, 5.0]], [[0.0, 0.5, 1 / 3]]
    )
    law = Widened(discrete(weights, values), added)
    (levels,) = tensors([0.25, 0.5, 0.75 + 0.25 / 3])
    expected = law.ppf(levels + 1e-12)
    np.testing.assert_allclose(law.widen(drawn, places), expected)


def test_a_value_without_weight_is_no_quantile():
    """Also at level 0, where no weight at all would do."""
    weights, values, levels = tensors([[0.0, 0.5, 0.5, 0.0]], [[1.0, 2.0, 3.0, 4.0]], [0.0, 1.0])
    assert discrete(weights, values).ppf(levels).tolist() == [[2.0, 3.0]]


def test_more_errors_have_narrower_kernels():
    """As 1 / n^(1/5), Silverman's rule: 32 times as many errors, half as wide."""
    few, many = (Noise(1.0, [-1.0, -1.0, 1.0, 1.0] * times) for times in (1, 32))
    assert many.width == pytest.approx(few.width / 2)


def test_each_query_may_have_values_of_its_own():
    weights, values, levels, points = tensors(
        [[0.5, 0.5], [0.5, 0.5]], [[1.0, 2.0], [9.0, 5.0]], [0.4, 0.9], [[1.5], [4.0]]
    )
    law = discrete(weights, values)
    assert law.ppf(levels).tolist() == [[1.0, 2.0], [5.0, 9.0]]
    assert law.cdf(points).tolist() == [[0.5], [0.0]]
    assert law.std().tolist() == [[0.5], [2.0]]


def test_noise_without_errors_is_normal():
    weights, targets, levels = tensors([[0.5, 0.5, 0.0]], [1.0, 1.0, 9.0], [0.1, 0.3, 0.5, 0.8])
    law, normal = blur(weights, targets, 2.0), scipy.stats.norm(1.0, 2.0)
    assert law.std().item() == pytest.approx(2.0)
    quantiles = law.ppf(levels)
    np.testing.assert_allclose(quantiles[0], normal.ppf(levels), atol=0.02)
    np.testing.assert_allclose(law.cdf(quantiles)[0], levels, atol=1e-9)


def test_noise_has_the_shape_of_the_errors():
    """Skewed errors give skewed noise, of the given deviation, on paper and drawn."""
    errors = np.random.default_rng(0).exponential(size=4000)
    shape = shape_of(errors)
    assert np.mean(shape) == pytest.approx(0, abs=0.02)
    weights, value, levels = tensors([[1.0]], [5.0], [0.05, 0.3, 0.5, 0.9])
    law = blur(weights, value, 3.0, shape)
    expected = 5 + 3 * (np.quantile(errors, levels) - errors.mean()) / errors.std()
    np.testing.assert_allclose(law.ppf(levels)[0], expected, atol=0.5)
    assert law.std().item() == 3
    draws = law.noise.draw(np.random.RandomState(0), (20000,))
    assert draws.mean() == pytest.approx(0, abs=0.1)
    assert draws.std() == pytest.approx(3, rel=0.03)
    np.testing.assert_allclose(np.quantile(5 + draws, levels), expected, atol=0.5)


def test_many_targets_at_points_keep_their_distribution():
    rng = np.random.default_rng(0)
    targets, weights = tensors(rng.lognormal(size=3000), rng.dirichlet(np.ones(3000), size=2))
    law, points = blur(weights, targets, 0.3), np.array([0.1, 1.0, 4.0])
    below = scipy.stats.norm.cdf((points - targets.numpy()[:, None]) / 0.3)
    ours = law.cdf(torch.tensor(points).expand(2, -1))
    np.testing.assert_allclose(ours, weights.numpy() @ below, atol=0.005)
    moments = law.on_grid.weigh(weights) @ (0.3 * GRID)  # a value is shared between two points
    np.testing.assert_allclose(moments, 0, atol=1e-9)


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_all_of_a_distribution_is_within_its_quantiles_of_0_and_1(value):
    """Also where a rare value is as far from the mean as values may be, next to an end."""
    values, weights, levels = tensors([[-value, value]], [[1e-4, 1 - 1e-4]], [0.0, 1.0])
    law = blur(weights, values, 1e-6)
    ends = law.ppf(levels)
    assert ends[0, 0] < -1
    assert ends[0, 1] > 1
    assert law.cdf(ends - 1e-9)[0, 0] == 0
    assert law.cdf(ends + 1e-9)[0, 1] == 1


samples = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        arrays(float, (3, n), elements=st.floats(0.01, 1)),
        arrays(float, n, elements=st.floats(-5, 5).map(lambda v: round(v, 2)), unique=True),
        arrays(float, 3, elements=st.floats(-2, 2)),
    )
)


@pytest.mark.slow
@given(samples)
def test_crps_is_its_definition(sample):
    """E|Y - y| - E|Y - Y'| / 2, by draws of the noise."""
    weights, targets, residual = sample
    weights = weights / weights.sum(axis=1, keepdims=True)
    truth = weights @ targets + residual
    weights_, targets_ = torch.tensor(weights), torch.tensor(targets)
    law = blur(weights_, targets_, 1.0, NORMAL, NOISE_SHARES)
    for noise in NOISE_SHARES:
        score = law.score(torch.tensor(truth)[:, None], noise)[0].sum()
        z = scipy.stats.norm.ppf((np.arange(60) + 0.5) / 60) * noise
        values, share = (targets[:, None] + z).ravel(), np.repeat(weights, 60, axis=1) / 60
        inner = np.einsum("qi,ij,qj->q", share, np.abs(values[:, None] - values), share) / 2
        outer = (share * np.abs(values - truth[:, None])).sum(axis=1)
        assert float(score) == pytest.approx((outer - inner).sum(), abs=0.15)


@given(samples, st.floats(0.01, 0.99))
def test_quantiles_are_numpy_s(sample, level):
    weights, targets, _ = sample
    weights = weights / weights.sum(axis=1, keepdims=True)
    law = discrete(torch.tensor(weights), torch.tensor(targets)[None])
    ours = law.ppf(torch.tensor([level]).double())[:, 0]
    # Where the level is a sum of weights to the last bit, rounding may give another result.
    allowed = [
        [np.quantile(targets, level + e, weights=w, method="inverted_cdf") for w in weights]
        for e in (-1e-9, 0, 1e-9)
    ]
    assert (ours.numpy() == allowed).any(axis=0).all()


# -- methods ---------------------------------------------------------------------------------


def test_without_calibration_it_is_the_weighted_targets(plane):
    X, X_test, y, _ = plane
    raw = nona(n_estimators=2, adjust=False).fit(X, y)
    raw.calibration_ = Calibration()
    weights = raw.neighbor_weights(X_test).toarray()
    levels = [0.1, 0.5, 0.93]
    expected = [np.quantile(y, levels, weights=w, method="inverted_cdf") for w in weights]
    np.testing.assert_array_equal(raw.predict_quantiles(X_test, levels), expected)
    values = np.array([y.min() - 1, np.median(y), y.max()])
    expected = weights @ (y[:, None] <= values)
    np.testing.assert_allclose(raw.predict_cdf(X_test, values), expected, atol=1e-6)
    mean, std = raw.predict(X_test, return_std=True)
    np.testing.assert_array_equal(mean, raw.predict(X_test))
    expected = np.sqrt(weights @ y**2 - (weights @ y) ** 2)
    np.testing.assert_allclose(std, expected, atol=1e-5)
    assert np.isin(raw.sample_y(X_test, 7), y).all()


def test_without_calibration_it_is_the_adjusted_targets(plane):
    X, X_test, y, _ = plane
    raw = nona(n_estimators=2, trend=None).fit(X, y)
    raw.calibration_ = Calibration()
    table = raw.explain(X_test)
    weights, adjusted = (
        table.pivot(index="query", columns="neighbor", values=name).fillna(absent).to_numpy()
        for name, absent in [("weight", 0.0), ("adjusted_target", 1e6)]
    )
    mean, std = raw.predict(X_test, return_std=True)
    np.testing.assert_allclose(
        std**2, (weights * (adjusted - mean[:, None]) ** 2).sum(axis=1), atol=1e-4
    )
    quantiles = raw.predict_quantiles(X_test, 0.3)
    near = {"rtol": 0, "atol": 1e-6}  # the table's weights are float32
    assert np.isclose(quantiles[:, None], adjusted, **near).any(axis=1).all()
    assert ((weights * (adjusted < quantiles[:, None] + 1e-6)).sum(axis=1) > 0.3 - 1e-5).all()
    assert ((weights * (adjusted < quantiles[:, None] - 1e-6)).sum(axis=1) < 0.3 + 1e-5).all()
    drawn = raw.sample_y(X_test, 5)
    assert np.isclose(drawn[:, :, None], adjusted[:, None], **near).any(axis=2).all()


@pytest.mark.parametrize("beside_noise", [False, True])
def test_distributions_have_the_residuals_of_a_trend_in_full(raw, plane, beside_noise):
    """Of an output of noise, too, whose predictions move towards the mean."""
    X, X_test, y, _ = plane
    if beside_noise:
        noise = np.random.default_rng(0).normal(size=len(y))
        raw = nona().fit(X, np.column_stack([y, noise]))
        raw.calibration_ = Calibration()
        for head in raw.network_.head.heads:
            head.credibility, head.mean_target = (1.0, 0.6), (0.0, 0.1)
    full = copy.copy(raw)
    full.bank_ = with_numbers(raw.bank_, kept=1.0)
    mean, std = raw.predict(X_test, return_std=True)
    of_full, expected = full.predict(X_test, return_std=True)
    np.testing.assert_allclose(std, expected, rtol=1e-9)
    levels = [0.1, 0.5, 0.9]
    np.testing.assert_allclose(
        raw.predict_quantiles(X_test, levels) - mean[:, None],
        full.predict_quantiles(X_test, levels) - of_full[:, None],
        atol=1e-9 * np.ptp(y),  # sums in float64
    )
    none = copy.copy(raw)
    none.bank_ = with_numbers(raw.bank_, kept=0.0)
    np.testing.assert_allclose(none.predict(X_test, return_std=True)[1], expected, rtol=1e-9)
    assert np.abs(none.predict(X_test) - of_full).max() > 0.01 * expected.max()


def test_calibration_keeps_the_mean(raw, reg, plane):
    X_test = plane[1]
    assert reg.calibration_ != raw.calibration_
    np.testing.assert_array_equal(reg.predict(X_test), raw.predict(X_test))
    levels = (np.arange(500) + 0.5) / 500
    for estimator in (raw, reg):
        means = estimator.predict_quantiles(X_test, levels).mean(axis=1)
        np.testing.assert_allclose(means, estimator.predict(X_test), atol=0.01)


@pytest.mark.slow
def test_calibration_changes_no_prediction(reg, joint, plane):
    """Not one bit, also where shrinkage would be fitted differently by the same rows."""
    _, X_test, _, y_test = plane
    reg = copy.deepcopy(reg)
    splits = [Split(np.setdiff1d(range(120), v), v) for v in reg.validation_indices_]
    for own, _, _ in reg.network_.head.split_by_head(*[reg.bank_.embeddings[:0]] * 2):
        own.credibility, own.mean_target = (0.3,), (5.0,)
    several, queries, truth = joint
    for each, X_new, y_new in ((reg, X_test, y_test), (several, queries, truth)):
        each = copy.deepcopy(each)
        before = each.predict(X_new), each.predict(None)
        for calibrate in (
            lambda each=each: each.calibrate(),
            lambda each=each, X_new=X_new, y_new=y_new: each.calibrate(X_new, y_new),
            lambda: calibrate_on_held_out(reg.network_.head, reg.bank_, splits),
        ):
            calibrate()
            np.testing.assert_array_equal(each.predict(X_new), before[0])
            np.testing.assert_array_equal(each.predict(None), before[1])


def test_a_shifted_value_is_not_above_itself(raw, plane):
    """Rounding of the shift does not lose the probability of the value that is a quantile."""
    shifted, levels = copy.deepcopy(raw), np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    shifted.calibration_ = Calibration(power=0.5)
    quantiles = shifted.predict_quantiles(plane[1], levels)
    for i, own in enumerate(quantiles):
        assert (shifted.predict_cdf(plane[1], own)[i] >= levels - 1e-6).all()


def test_noise_adds_up(raw, plane):
    before = raw.predict(plane[1], return_std=True)[1]
    raw.calibration_ = Calibration(noise=(2.0,))
    std = raw.predict(plane[1], return_std=True)[1]
    draws = raw.sample_y(plane[1], 2000)
    raw.calibration_ = Calibration()
    np.testing.assert_allclose(std, np.sqrt(before**2 + 4))
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.1)


def test_power_sharpens(raw, plane):
    stds = []
    for power in (0.25, 1.0, 64.0):
        raw.calibration_ = Calibration(power=power)
        stds.append(raw.predict(plane[1], return_std=True)[1].mean())
    raw.calibration_ = Calibration()
    assert stds[0] > stds[1] > stds[2]


@pytest.mark.parametrize("X", ["queries", None])
def test_cdf_inverts_quantiles_and_samples_follow_it(reg, plane, X):
    X = None if X is None else plane[1]
    levels = np.array([0.05, 0.3, 0.5, 0.8])
    quantiles = reg.predict_quantiles(X, levels)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    for j in range(len(quantiles[:5])):
        cdf = reg.predict_cdf(X, quantiles[j] + 1e-9)[j]
        np.testing.assert_allclose(cdf, levels, atol=2e-3)  # both interpolate
    draws = reg.sample_y(X, 4000)
    np.testing.assert_allclose(draws.mean(axis=1), reg.predict(X), atol=0.15 * np.std(plane[2]))
    below = (draws[:5] <= quantiles[:5, [2]]).mean(axis=1)
    expected = [reg.predict_cdf(X, quantiles[j, 2] + 1e-9)[j] for j in range(5)]
    np.testing.assert_allclose(below, expected, atol=0.04)


def test_leave_one_out_is_a_bank_without_the_row(reg, plane):
    X = plane[0]
    ours, our_std = reg.predict_quantiles(None, [0.1, 0.7]), reg.predict(None, return_std=True)[1]
    bank = reg.bank_
    for row in (0, 17, 119):
        reg.bank_ = bank.keep(np.setdiff1d(np.arange(120), row))
        np.testing.assert_allclose(
            reg.predict_quantiles(X[[row]], [0.1, 0.7])[0], ours[row], atol=1e-5
        )
        std = reg.predict(X[[row]], return_std=True)[1]
        np.testing.assert_allclose(std[0], our_std[row], atol=1e-5)
        reg.bank_ = bank


def test_several_outputs(both):
    reg, X_test = both
    quantiles = reg.predict_quantiles(X_test, [0.2, 0.8])
    assert quantiles.shape == (len(X_test), 2, 2)
    np.testing.assert_allclose(quantiles[:, :, 1], -3 * quantiles[:, ::-1, 0], rtol=0.1, atol=0.5)
    assert reg.predict_cdf(X_test, [0.0, 1.0, 2.0]).shape == (len(X_test), 3, 2)
    mean, std = reg.predict(X_test, return_std=True)
    np.testing.assert_allclose(std[:, 1], 3 * std[:, 0], rtol=1e-6)
    reg.calibration_ = Calibration(power=reg.calibration_.power)
    draws = reg.sample_y(X_test, 6)
    assert draws.shape == (len(X_test), 2, 6)
    centred = draws - mean[..., None]  # both outputs of a draw are of one row
    shift = centred[:, 1] + 3 * centred[:, 0]
    np.testing.assert_allclose(shift, np.broadcast_to(shift[:, :1], shift.shape), atol=1e-5)


# -- draws of several outputs ------------------------------------------------------------------


def joint_data(n_samples):
    """Two outputs with nearly the same noise, and one with its opposite."""
    rng = np.random.default_rng(0)
    X, e = rng.normal(size=(n_samples, 4)), rng.normal(size=n_samples)
    signal, own = np.sin(X[:, 0]) + X[:, 1], 0.1 * rng.normal(size=(2, n_samples))
    return X, np.column_stack([signal + e, signal + e + own[0], X[:, 2] - e + own[1]])


@pytest.fixture(
    scope="module",
    params=[{}, {"adjust": False}, "softstep"],
    ids=str,
)
def joint(request):
    """An estimator of three outputs, and other rows."""
    X, Y = joint_data(900)
    reg = (
        SoftStepKNeighborsRegressor(learn_feature_weights=False, max_iter=2, random_state=0)
        if request.param == "softstep"
        else nona(n_estimators=2, max_iter=8, **request.param)
    )
    return reg.fit(X[:600], Y[:600]), X[600:], Y[600:]


def coverage_of_draws(draws, truth):
    low, high = np.quantile(draws, [0.1, 0.9], axis=1)
    return ((low <= truth) & (truth <= high)).mean()


ADDED_UP = [(1, 1, 0), (2, 2, -1)]  # combinations in which the noise adds up
CANCELLED = [(1, -1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1)]  # and in which parts of it cancel out


@pytest.mark.parametrize("combinations", [ADDED_UP, CANCELLED], ids=["added up", "cancelled"])
def test_sums_and_differences_of_outputs_have_intervals(joint, combinations):
    """Independent noise would cover 0.62 of the first, and 0.99 of the others."""
    reg, X_test, Y_test = joint
    draws = reg.sample_y(X_test, 200)
    covered = [
        coverage_of_draws(np.einsum("o,qok->qk", weights, draws), Y_test @ weights)
        for weights in combinations
    ]
    assert 0.7 < np.mean(covered) < 0.95, covered


def test_draws_of_each_output_have_the_predicted_quantiles(joint):
    """With 4,000 draws, to about five standard errors of a level, 0.008."""
    reg, X_test, _ = joint
    draws, levels = reg.sample_y(X_test[:9], 4000), np.array([0.1, 0.5, 0.9])
    expected = reg.predict_quantiles(X_test[:9], levels).swapaxes(1, 2)
    below = (draws[:, :, None] <= expected[..., None]).mean(axis=3)
    np.testing.assert_allclose(below, np.broadcast_to(levels, below.shape), atol=0.04)


@pytest.mark.parametrize(
    "change",
    [
        lambda reg, X, Y: reg.calibrate(X, Y),
        lambda reg, X, Y: reg.calibrate(),
        lambda reg, X, Y: reg.set_neighbor_targets(reg.bank_.targets.numpy()),
        lambda reg, X, Y: reg.remove_neighbors(ids=range(100)),
        lambda reg, X, Y: pickle.loads(pickle.dumps(reg)),
    ],
    ids=["calibrate", "leave-one-out", "targets", "removal", "pickle"],
)
@pytest.mark.parametrize("joint", [{}], indirect=True)
def test_edits_keep_the_dependence_of_draws(joint, change):
    reg, X_test, Y_test = joint
    changed = change(copy.deepcopy(reg), X_test[:100], Y_test[:100])
    draws = changed.sample_y(X_test[100:], 100)
    apart = (draws[:, 0] - draws[:, 1]).std(axis=1).mean()
    assert apart < 0.35 * draws[:, 0].std(axis=1).mean()  # 1.4 if they were independent


def test_levels_of_draws_are_uniform_and_depend_as_errors_do():
    errors = torch.tensor([[3.0, -1.0], [1.0, 2.0], [2.0, 0.0]]).double()
    ranks = ranks_of(errors, None)
    assert ranks == ((0, 1, 2), (2, 1, 0))  # in the order of the first output
    drawn = draw_levels(ranks, np.random.RandomState(0), (20000,)).numpy()
    np.testing.assert_allclose((drawn < 0.2).mean(axis=0), 0.2, atol=0.02)
    np.testing.assert_array_equal((3 * drawn).astype(int).sum(axis=1), 2)


def test_ranks_count_by_weight():
    """Of two groups of rows with opposite errors, the heavy one decides."""
    errors = torch.randn(400, 1, generator=torch.Generator().manual_seed(0)).double()
    signs = torch.ones(400, 1).index_fill(0, torch.arange(200), -1.0)
    weights = torch.where(signs[:, 0] < 0, 0.01, 1.99).double()
    first, second = map(np.array, ranks_of(torch.cat([errors, signs * errors], dim=1), weights))
    assert np.corrcoef(first, second)[0, 1] > 0.95


def test_what_networks_do_not_share_leaves_the_dependence_of_errors():
    """Errors are alike in all outputs but for what averages out, or most of it, of 4 networks."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(4000, 1)) * [1.0, 2.0]
    own = rng.normal(size=(4, 4000, 2))
    one, average = torch.tensor(shared + own[0]), shared + own.mean(axis=0)
    differences = torch.tensor(own[0] - own[1])
    found = (one @ shared_part(one, differences, 4)).numpy()
    np.testing.assert_allclose(np.cov(found.T), np.cov(average.T), rtol=0.1, atol=0.1)
    nothing = torch.zeros_like(differences)
    np.testing.assert_allclose(shared_part(one, nothing, 4), np.eye(2), atol=1e-9)
    np.testing.assert_array_equal(shared_part(one, differences[:3], 4), np.eye(2))


def test_one_number_leaves_an_axis_out(reg, plane):
    X_test = plane[1]
    np.testing.assert_array_equal(
        reg.predict_quantiles(X_test, 0.5), reg.predict_quantiles(X_test, [0.5])[:, 0]
    )
    np.testing.assert_array_equal(reg.predict_cdf(X_test, 1), reg.predict_cdf(X_test, [1])[:, 0])


def test_blocks_do_not_change_distributions(reg, plane, monkeypatch):
    whole = reg.predict_quantiles(plane[1]), reg.predict_cdf(None, 0.5), reg.sample_y(None, 3)
    monkeypatch.setattr(evaluation_module, "BLOCK_PAIRS", 500)
    pairs = reg.bank_.evaluate(reg.network_.head).map_weighted_rows(
        lambda behind: behind.weights().numel()
    )
    assert len(pairs) > 1
    assert max(pairs) <= 500
    parts = reg.predict_quantiles(plane[1]), reg.predict_cdf(None, 0.5), reg.sample_y(None, 3)
    for ours, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_samples_are_seeded(reg, plane):
    X_test = plane[1]
    np.testing.assert_array_equal(reg.sample_y(X_test, 3), reg.sample_y(X_test, 3))
    assert (reg.sample_y(X_test, 3) != reg.sample_y(X_test, 3, random_state=1)).any()
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    reg.sample_y(X_test, 3)
    reg.calibrate()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r, X: r.predict_quantiles(X, 1.2), r"quantiles must be from 0 to 1, got 1\.2"),
        (lambda r, X: r.predict_quantiles(X, [[0.1]]), r"quantiles must be a number or a list"),
        (lambda r, X: r.predict_quantiles(X, "a"), r"quantiles must be a number.*got 'a'"),
        (lambda r, X: r.predict_quantiles(X, []), r"quantiles must be a number.*got \[\]"),
        (lambda r, X: r.predict_cdf(X, ["a"]), r"y must be a number.*got \['a'\]"),
        (lambda r, X: r.predict_cdf(X, np.nan), r"Input y contains NaN"),
        (lambda r, X: r.predict_cdf(X, [[1.0]]), r"y must be a number or a list"),
        (lambda r, X: r.sample_y(X, 0), r"n_samples must be a positive integer, got 0"),
        (lambda r, X: r.calibrate(X, np.ones((len(X), 2))), r"y must have the bank's shape"),
    ],
)
def test_bad_input(reg, plane, call, message):
    with pytest.raises(ValueError, match=message):
        call(reg, plane[1])


# -- calibration -----------------------------------------------------------------------------


def interval_coverage(reg, X, y, level):
    low, high = reg.predict_quantiles(X, [(1 - level) / 2, (1 + level) / 2]).T
    return ((low <= y) & (y <= high)).mean()


def spared(held_out, residuals):
    return averaged_out(residuals_apart(held_out, residuals)[1], None, len(held_out))


def test_what_an_average_spares_on_paper():
    """Residuals of rows 4 and 7 differ by 1 and 2: 1.5 ** 2 / 2, of which half averages out."""
    held_out = [np.array([1, 4, 7]), np.array([4, 7, 9])]
    residuals = [torch.tensor([[9.0], [1.0], [3.0]]), torch.tensor([[2.0], [5.0], [9.0]])]
    assert spared(held_out, residuals).tolist() == [0.5625]
    nothing_shared = [np.array([1, 2, 3]), np.array([4, 7, 9])]
    assert spared(nothing_shared, residuals).tolist() == [0.0]
    assert spared(held_out[:1], residuals[:1]).tolist() == [0.0]


@pytest.mark.parametrize("n_networks", [2, 5])
def test_what_an_average_spares_is_what_it_spares(n_networks):
    """Errors with a part that networks share, and one of each's own, of variance 1 and 4."""
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=4000), 2 * rng.normal(size=(n_networks, 4000))
    rows = np.arange(4000)
    residuals = [torch.tensor(shared + e)[:, None] for e in own]
    found = spared([rows] * n_networks, residuals).item()
    one, average = np.abs(shared + own[0]), np.abs(shared + own.mean(axis=0))
    assert found == pytest.approx(one.mean() ** 2 - average.mean() ** 2, rel=0.1)


def test_few_rows_with_long_tails_suffice_to_estimate_what_an_average_spares():
    """Rows of very different difficulty: the average of 5 spares 4/5 of one half of the error."""
    rng = np.random.default_rng(0)
    rows = [np.arange(start, start + 100) for start in range(0, 375, 75)]
    shared = [np.intersect1d(rows[k], rows[k + 1]) for k in range(4)]
    wrong = []
    for _ in range(50):
        size = rng.lognormal(size=400)
        errors = size * (rng.normal(size=400) + rng.normal(size=(5, 400)))
        residuals = [torch.tensor(errors[k, rows[k], None]) for k in range(5)]
        one = torch.cat(residuals).abs().numpy()  # how large the errors of one network are
        apart = [errors[k, both] - errors[k + 1, both] for k, both in enumerate(shared)]
        of_squares = 0.4 * (np.concatenate(apart) ** 2).mean() / (one**2).mean()
        ours = spared(rows, residuals).item() / one.mean() ** 2
        wrong.append([ours - 0.4, of_squares - 0.4])
    ours, of_squares = np.sqrt(np.square(wrong).mean(axis=0))
    assert ours < 0.7 * of_squares


def two_networks(values, held_out, monkeypatch, log_prior=None, chose_n_neighbors=False):
    """The residuals that two networks are calibrated on, and the rows, in order.

    The first network embeds all rows at one place, the second each next to its twin: 0 and 1,
    2 and 3, and so on. Without itself a row is predicted to be the mean of all others by the
    first, and what its twin is by the second.
    """
    monkeypatch.setattr(
        calibration_module, "fit_calibration", lambda _, residual, *others: residual
    )
    places = torch.stack([torch.zeros(len(values)), 1e3 * (torch.arange(len(values)) // 2)], 1)
    bank = NeighborBank(Neighbors(places, torch.tensor(values).double(), log_prior))
    head = AverageHead([NONAHead(), NONAHead()]).eval()
    rows = np.arange(len(values))
    splits = [Split(np.setdiff1d(rows, valid), np.array(valid)) for valid in held_out]
    return calibrate_on_held_out(head, bank, splits, chose_n_neighbors)[:, 0].numpy()


def test_a_held_out_row_is_judged_by_the_network_that_did_not_see_it(monkeypatch):
    """Rows 0 and 1 are 6 and 0, the others 5, 7, 4, 2: means of the others 18 / 5 and 24 / 5."""
    residual = two_networks([6.0, 0.0, 5.0, 7.0, 4.0, 2.0], [[1, 0], [4, 5]], monkeypatch)
    np.testing.assert_allclose(residual, [6 - 3.6, 0 - 4.8, 4 - 2, 2 - 4], atol=1e-5)


@pytest.mark.parametrize(
    ("values", "share", "errors"),
    [
        # In row 2 the networks differ by 4: 16 / 2 / 2 of the mean size squared, 6 ** 2.
        ([5.0, -5.0, 0.0, 4.0, 4.0, -8.0], 8 / 9, [6.0, -6.0, 0.0, 12.0]),
        # They differ by 30: more would average out than there is.
        ([5.0, -5.0, 0.0, 30.0, -15.0, -15.0], 1 / 2, [6.0, -6.0, 0.0, 0.0]),
    ],
)
def test_held_out_errors_shrink_by_what_the_average_spares(values, share, errors, monkeypatch):
    """Squared, to no less than a half, of two. Row 2, held out by both, counts once."""
    residual = two_networks(values, [[0, 1, 2], [2, 4]], monkeypatch)
    np.testing.assert_allclose(residual, np.sqrt(share) * np.array(errors), atol=1e-5)


def test_errors_of_rows_that_chose_the_number_of_neighbors_are_larger_if_the_rows_are_few(
    monkeypatch,
):
    values = np.random.default_rng(0).normal(size=200)
    factors = []
    for n_rows in (4, 40):
        held_out = [np.arange(n_rows), np.arange(n_rows, 2 * n_rows)]
        args = values, held_out, monkeypatch, None
        factor = two_networks(*args, chose_n_neighbors=True) / two_networks(*args)
        assert np.ptp(factor) < 1e-9  # the same for all rows
        factors.append(factor[0])
    assert factors[0] > factors[1] > 1


def test_held_out_errors_count_by_weight(monkeypatch):
    """As above, where row 2, which both networks held out, has 3 times the weight."""
    values, weights = np.array([5.0, -5.0, 0.0, 4.0, 1.0, -11.0]), np.array([1, 1, 3, 1, 1, 1])
    prior = torch.tensor(weights).log()
    residual = two_networks(values, [[0, 1, 2], [2, 4]], monkeypatch, prior)
    others = [np.average(np.delete(values, i), weights=np.delete(weights, i)) for i in range(3)]
    own = np.append(values[:3] - others, 1 + 11)
    differ = own[2] - (0 - 4)  # in row 2
    share = 1 - differ**2 / 2 / 2 / np.average(np.abs(own), weights=weights[[0, 1, 2, 4]]) ** 2
    assert 1 / 2 < share < 1
    np.testing.assert_allclose(residual, np.sqrt(share) * own, atol=1e-5)


def test_a_row_is_predicted_without_its_group():
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(4).repeat(3)
    places, values = (torch.randn(12, d, generator=generator) for d in (2, 1))
    bank = NeighborBank(Neighbors(places, values[:, 0].double()), groups=groups)
    head, rows = NONAHead().eval(), np.array([7, 2, 9])
    predictions = bank.evaluate_rows(head, rows).mean()
    for row, ours in zip(rows, predictions, strict=True):
        others = bank.keep(np.flatnonzero(groups != groups[row]))
        expected = others.evaluate(head, Embedded(places[[row]])).mean().item()
        assert ours.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("held_out", [False, True])
def test_the_noise_is_that_of_new_groups(held_out):
    """Rows of a group are all alike: without the others of it, the next groups err by about 1."""
    groups = torch.arange(60).repeat_interleave(3)
    values = torch.randn(60, generator=torch.Generator().manual_seed(0)).double()[groups]
    bank = NeighborBank(Neighbors(100.0 * groups[:, None], values), groups=groups)
    head, rows = NONAHead().eval(), np.arange(180)
    calibration = (
        calibrate_on_held_out(head, bank, [Split(rows[90:], rows[:90])])
        if held_out
        else calibrate_on_bank(head, bank)
    )
    assert 0.3 < calibration.noise[0] < 3  # of normal values; and 0 with the group


def test_the_long_tail_lies_where_that_of_the_errors_does():
    """All rows at one place: each is predicted to be the mean of the others."""
    values = np.random.default_rng(0).exponential(size=60)
    bank = NeighborBank(Neighbors(torch.zeros(60, 2), torch.tensor(values)))
    [errors] = calibrate_on_bank(NONAHead().eval(), bank).errors
    expected = values - (values.sum() - values) / 59
    np.testing.assert_allclose(errors, shape_of(expected), atol=1e-6)
    assert errors[-1] > -1.5 * errors[0]


def test_units_of_one_output_do_not_change_the_choice():
    """One whose neighbours are as far apart as the errors, and one that needs the noise."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.tensor([1.0, 0.01]).double()
    values = spread * torch.randn(30, 2, generator=generator).double()
    residual = torch.randn(80, 2, generator=generator).double()
    places = torch.zeros(30, 1)

    def choose(unit):
        units = torch.tensor([1.0, unit]).double()
        evaluation = Evaluation(
            NONAHead().eval(), Neighbors(places, units * values), torch.zeros(80, 1)
        )
        found = fit_calibration(evaluation, units * residual)
        return found.power, (np.array(found.noise) / units.numpy()).tolist()

    one = choose(1.0)
    assert choose(2.0**-10) == one  # a power of two rounds nothing
    assert choose(2.0**10) == one


def test_calibration_scores_some_rows_and_uses_the_errors_of_all(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    neighbors = Neighbors(torch.randn(60, 2, generator=generator), torch.arange(60.0))
    evaluation = Evaluation(NONAHead().eval(), neighbors, torch.randn(60, 2, generator=generator))
    residual = torch.randn(60, 1, generator=generator).double()
    n_queries, method = [], Evaluation.map_weighted_rows
    monkeypatch.setattr(
        Evaluation,
        "map_weighted_rows",
        lambda q, *a, **k: n_queries.append(len(q)) or method(q, *a, **k),
    )
    everything = fit_calibration(evaluation, residual)
    monkeypatch.setattr(calibration_module, "SCORE_PAIRS", 60 * 20)
    monkeypatch.setattr(held_out, "LEAST_ROWS", 5)
    some = fit_calibration(evaluation, residual)
    assert n_queries == [60, 20]
    assert some.errors == everything.errors
    assert some.ranks == ()  # of a single output
    scale = residual.square().mean().sqrt().item()
    shares = np.array([made.noise[0] / scale for made in (some, everything)])
    assert np.isin(shares.round(9), NOISE_SHARES).all()


@pytest.mark.parametrize("weight", [0.5, 1.5])
def test_scored_rows_of_one_weight_are_scored_as_without_weights(weight, monkeypatch):
    """Whatever the others weigh: one of each two rows with the same error is scored."""
    monkeypatch.setattr(calibration_module, "SCORE_PAIRS", 400 * 50)
    monkeypatch.setattr(held_out, "LEAST_ROWS", 5)
    evaluation, error = line(100, 1.0)
    error[1::2] = error[::2]
    scored, select = [], Evaluation.__getitem__
    monkeypatch.setattr(
        Evaluation, "__getitem__", lambda q, rows: scored.append(rows) or select(q, rows)
    )
    plain = fit_calibration(evaluation, error)
    assert (scored[0] // 2).tolist() == list(range(50))
    weights = torch.full((100,), 2 - weight).double()  # a mean of 1
    weights[scored[0]] = weight
    weighted = fit_calibration(evaluation, error, weights)
    assert weighted.power == plain.power
    # Sums of the same numbers, rounded in another order.
    np.testing.assert_allclose(weighted.noise, plain.noise, rtol=1e-9)
    np.testing.assert_allclose(weighted.errors, plain.errors, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_calibrated_on_new_rows_intervals_cover():
    """So many rows that 0.08 are at least five standard errors."""
    X, y = make_plane_regression(n_samples=5300, noise=0.5, random_state=0)
    reg = nona(max_iter=3).fit(X[:300], y[:300]).calibrate(X[300:2300], y[300:2300])
    for level in (0.5, 0.8, 0.9):
        assert abs(interval_coverage(reg, X[2300:], y[2300:], level) - level) < 0.08


@pytest.mark.slow
def test_calibration_finds_the_scale_of_the_noise():
    """A bank without noise, and queries with more and more: the spread follows."""
    X, y = make_plane_regression(n_samples=400, random_state=0)
    noise = np.random.default_rng(0).normal(size=200)
    reg = nona(max_iter=20).fit(X[:200], y[:200])
    stds = [
        reg.calibrate(X[200:], y[200:] + scale * noise).predict(X[200:], return_std=True)[1].mean()
        for scale in (0.0, 0.3, 1.0)
    ]
    assert stds[0] < stds[1] < stds[2]


def test_an_output_without_errors_does_not_count():
    """A constant is predicted without noise, which tells nothing of the noise of the rest."""
    X = np.random.RandomState(0).normal(size=(80, 2))
    y = X[:, 0] + np.random.RandomState(1).normal(size=80)
    knn = SoftStepKNeighborsRegressor(
        5, weighting="uniform", learn_feature_weights=False, trend=None, max_iter=1
    )
    alone = knn.fit(X, y).calibration_
    both = knn.fit(X, np.stack([np.ones(80), y], axis=1)).calibration_
    assert both.power == alone.power
    np.testing.assert_allclose(both.noise, (0, *alone.noise))
    assert alone.noise[0] > 0.1
    assert knn.fit(X, np.ones(80)).calibration_.noise == (0,)


def test_the_best_of_the_grid_is_chosen(reg, plane):
    """None has a lower CRPS on the same rows beyond one standard error, by its definition."""
    _, X_test, _, y_test = plane
    reg.calibrate(X_test, y_test)
    chosen = reg.calibration_

    def score(calibration):
        reg.calibration_ = calibration
        draws = reg.predict_quantiles(X_test, (np.arange(200) + 0.5) / 200)
        inner = np.abs(draws[:, :, None] - draws[:, None]).mean(axis=(1, 2)) / 2
        return np.abs(draws - y_test[:, None]).mean(axis=1) - inner

    best = score(chosen)
    for other in (
        Calibration(),
        Calibration(4 * chosen.power, chosen.noise),
        Calibration(chosen.power / 4, chosen.noise),
        Calibration(chosen.power, (2 * chosen.noise[0] + 0.5,)),
    ):
        excess = best - score(other)
        assert excess.mean() < excess.std() / np.sqrt(len(excess))
    reg.calibration_ = chosen


def test_a_score_is_as_low_if_it_differs_by_chance():
    """Of four rows: from the best, 0.1 more with a standard error of 0.45, of 0, and 1 more."""
    scores = torch.tensor([[1.0, 2.0, 1.1, 3.0], [1.0, 0.2, 1.1, 1.0]]).repeat(2, 1)[:, None]
    assert _are_about_lowest(scores).tolist() == [[True, True, False, False]]


def test_a_miss_of_a_wide_interval_counts_more_than_one_of_a_narrow():
    """In units of the variance of the coverage: 0.06 of 0.5 is less than 0.05 of 0.95.

    An interval of level p contains a share p of 100 rows, but for 6 or 5 rows that it misses.
    """
    level = (torch.arange(100).double() + 0.5) / 100
    narrow, wide = level.clone(), level.clone()
    narrow[(level > 0.44) & (level < 0.5)] = 0.501
    wide[(level > 0.9) & (level < 0.95)] = 0.951
    interval = torch.stack([narrow, wide, level], dim=1)[:, None, :, None]
    found = _miscoverage(interval, torch.ones(100).double())[0]
    expected = [0.06**2 / 0.25 / 10, 0.05**2 / 0.0475 / 10, 0.0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_held_out_rows_of_several_networks_keep_their_limits(monkeypatch):
    """Rows of both networks alternate; all rows are at one place, so that all earlier count."""
    monkeypatch.setattr(calibration_module, "fit_calibration", lambda evaluation, *_: evaluation)
    times = torch.arange(12.0).double()
    bank = NeighborBank(Neighbors(torch.zeros(12, 2), times.sin(), times=times))
    head, rows, limits = AverageHead([NONAHead(), NONAHead()]).eval(), np.arange(12), {}
    splits = []
    for valid in ([11, 4, 7], [9, 5, 10]):
        limits |= {row: row - 1.5 - row % 2 for row in valid}
        before = np.array([limits[row] for row in valid])
        splits.append(Split(np.setdiff1d(rows, valid), np.array(valid), before))
    found = calibrate_on_held_out(head, bank, splits).sparse_weights().toarray() > 0
    expected = [rows < limits[row] for row in sorted(limits)]
    np.testing.assert_array_equal(found, expected)


def line(n_queries, scale):
    """Queries on a line whose neighbours' values are their places, and errors of some scale."""
    rng = np.random.default_rng(0)
    places = torch.linspace(-8, 8, 400)[:, None]
    queries = torch.tensor(rng.uniform(-4, 4, size=(n_queries, 1))).float()
    neighbors = Neighbors(places, places[:, 0].double())
    error = torch.tensor(scale * rng.normal(size=(n_queries, 1)))
    return Evaluation(NONAHead().eval(), neighbors, queries), error


def coverage_of(calibration, evaluation, error, level):
    """Of the rows that a calibration is fitted to."""
    levels = torch.tensor([(1 - level) / 2, (1 + level) / 2]).double()
    low, high = Distribution(evaluation, calibration).quantiles(levels).T
    truth = (evaluation.mean() + error[:, 0]).numpy()
    return ((low <= truth) & (truth <= high)).mean()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.15, 0.5, 1.0, 3.0])
def test_errors_may_be_smaller_or_larger_than_the_neighbours_spread(scale):
    """At its own power, the neighbours' spread is 1.4."""
    evaluation, error = line(500, scale)
    calibration = fit_calibration(evaluation, error)
    for level in (0.5, 0.8, 0.9):
        assert coverage_of(calibration, evaluation, error, level) == pytest.approx(level, abs=0.05)


@pytest.mark.slow
def test_ties_of_scores_are_broken_by_the_coverage(monkeypatch):
    """Fewer and fewer candidates are as low: the more there are, the better the coverage."""
    evaluation, error = line(120, 1.0)
    error = error.abs().pow(1.5) * error.sign()  # of another shape than the neighbours' spread

    def miscoverage():
        calibration = fit_calibration(evaluation, error)
        levels = np.arange(10, 20) / 20
        covered = [coverage_of(calibration, evaluation, error, level) for level in levels]
        return (np.square(covered - levels) / (levels * (1 - levels))).mean()

    ours = miscoverage()
    monkeypatch.setattr(
        calibration_module, "_are_about_lowest", lambda scores: scores.mean(0) < torch.inf
    )
    assert miscoverage() <= ours
    monkeypatch.setattr(
        calibration_module,
        "_are_about_lowest",
        lambda scores: scores.mean(0) == scores.mean(0).min(),
    )
    assert ours <= miscoverage()


@pytest.mark.slow
def test_intervals_of_an_average_cover():
    """Within four standard errors, of the validation rows and of the queries."""
    X, y = make_plane_regression(n_samples=3000, noise=0.5, random_state=0)
    reg = nona(n_estimators=5, max_iter=10).fit(X[:400], y[:400])
    n_valid = len(np.unique(np.concatenate(reg.validation_indices_)))
    for level in (0.5, 0.8, 0.9):
        chance = np.sqrt(level * (1 - level) * (1 / n_valid + 1 / 2600))
        assert abs(interval_coverage(reg, X[400:], y[400:], level) - level) < 4 * chance


@pytest.mark.parametrize("on", ["rank", "similarity"])
def test_k_nearest_neighbours_have_distributions_too(plane, on):
    X, X_test, y, y_test = plane
    knn = SoftStepKNeighborsRegressor(softstep=SoftStep("s1", on=on), max_iter=5, random_state=0)
    knn.fit(X, y)
    assert 0.75 < interval_coverage(knn, X_test, y_test, 0.9) <= 1


@pytest.mark.slow
def test_degenerate_targets_have_a_distribution():
    X = np.arange(20.0)[:, None]
    reg = nona().fit(X, np.ones(20))
    assert np.allclose(reg.predict_quantiles(X), 1)
    assert np.allclose(reg.predict(X, return_std=True)[1], 0, atol=1e-6)
    assert reg.calibrate().calibration_.noise == (0.0,)
