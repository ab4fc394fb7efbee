"""Bounds of targets: what is beyond them is refused in targets, and is the bound in answers."""

import copy
import warnings

import numpy as np
import pytest
import torch
from inner.estimators import evaluate
from inner.inference import NORMAL, Discrete, GridValues, Noise, Noisy

import nona_sklearn
from nona_sklearn import (
    NONAHead,
    NONARegressor,
    ShardedNeighbors,
    SoftStepKNeighborsRegressor,
    save_shards,
)
from nona_sklearn.attention.functional import attenuation
from nona_sklearn.targets import RegressionTargets

RNG = np.random.RandomState(0)
X = RNG.normal(size=(120, 3))
Y = (0.5 + 0.4 * X[:, 0] + 0.2 * RNG.normal(size=120)).clip(0, 1)
QUERIES = 2.5 * RNG.normal(size=(40, 3))
QUICK = {"max_iter": 8, "random_state": 0}


def nona(**params):
    networks = {"n_estimators": 2, "hidden_layer_sizes": (16,), "similarity": "l2"}
    return NONARegressor(**(networks | QUICK | params))


#: Weights of few rows, of all, and such that depend on the others.
WAYS = ({}, {"n_neighbors": None}, {"weighting": "entmax"}, {"softstep": "s1"})


@pytest.fixture(scope="module", params=WAYS, ids=str)
def reg(request):
    return nona(bounds="unit", **request.param).fit(X, Y)


@pytest.fixture(scope="module")
def unit():
    return nona(bounds="unit").fit(X, Y)


def assert_inside(values):
    assert values.min() >= 0
    assert values.max() <= 1


# -- answers ----------------------------------------------------------------------------------


def test_on_paper():
    """Adjusted targets are 10 + 5 - 3 = 12 and 20 + 5 - 9 = 16; of the latter 14 is left."""
    head = NONAHead(n_adjusted=1).eval()
    query, neighbors = torch.tensor([[0.0, 5.0]]), torch.tensor([[1.0, 3.0], [-1.0, 9.0]])
    targets = torch.tensor([10.0, 20.0])
    assert head(query, neighbors, targets).item() == 14
    head.bounds = (0.0, 14.0)
    assert head(query, neighbors, targets).item() == 13
    excluded = torch.tensor([0]), torch.tensor([1])
    assert head(query, neighbors, targets, excluded).item() == 12


@pytest.mark.slow
def test_predictions_would_be_beyond_the_bounds_without_them():
    predictions = nona().fit(X, Y).predict(QUERIES)
    assert predictions.min() < 0
    assert predictions.max() > 1


@pytest.mark.slow
def test_answers_are_inside(reg):
    mean, std = reg.predict(QUERIES, return_std=True)
    assert_inside(mean)
    assert_inside(reg.predict(None))
    assert_inside(reg.sample_y(QUERIES, 50))
    assert_inside(reg.predict_quantiles(QUERIES, [0, 0.01, 0.5, 0.99, 1]))
    assert (std <= 0.5).all()  # the largest of numbers from 0 to 1
    table = reg.explain(QUERIES, n_neighbors=3)
    assert_inside(table["adjusted_target"])
    sums = table.groupby("query")["contribution"].sum()
    np.testing.assert_allclose(sums, mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("params", WAYS, ids=str)
def test_the_mean_is_the_definition_s(params):
    """Of networks alone, which the definition has; with a trend see the next test."""
    reg = nona(bounds="unit", trend=None, **params).fit(X, Y)
    _, evaluation = evaluate(reg, QUERIES)
    np.testing.assert_allclose(evaluation.attend(), reg.predict(QUERIES), rtol=0, atol=1e-5)


def test_bounds_hold_for_each_target_that_a_trend_adjusts(reg):
    """sum_j w_j clip((1 - a) (y_j + g(q) - g(j)) + a (f(q) + 0.2 (y_j - f(j))))."""
    z, bank = reg.embed(QUERIES).embeddings, reg.bank_
    unit, offset = float(bank.neighbors.adjustment_scale), bank.neighbors.offset
    f, residuals = bank.trend_of(reg.embed(QUERIES)).numpy(), Y - offset.values.numpy()[:, 0]
    parts, expected = reg.network_.head.split_by_head(z, bank.embeddings), 0
    for head, own, theirs in parts:
        weights = head.neighbor_weights(own, theirs).double().numpy()
        weights /= weights.sum(axis=1, keepdims=True)
        g_own, g = (unit * head.adjustments(each).double().numpy() for each in (own, theirs))
        near = torch.cdist(head.metric_part(own), head.metric_part(theirs)).amin(1, True)
        trusted = attenuation(near.double(), head.trust_radius).numpy()
        shrunk = head.shrinkage * (Y - g[:, 0] - np.array(head.mean_residual or 0))
        adjusted = Y + trusted * (g_own - g.T - shrunk)
        of_trend = f + 0.2 * residuals
        adjusted = (1 - offset.share) * adjusted + offset.share * of_trend
        expected = expected + (weights * adjusted.clip(0, 1)).sum(axis=1) / len(parts)
    np.testing.assert_allclose(reg.predict(QUERIES), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_changes_are_those_of_removing_the_row(unit):
    query = QUERIES[:1]
    changes = unit.influence(query)["change"].to_numpy()
    for row in unit.heaviest_neighbors(query, 2)[1][0]:
        without = copy.copy(unit).remove_neighbors(ids=row)
        change = abs(without.predict(query) - unit.predict(query))
        assert changes[row] == pytest.approx(change[0], rel=1e-4)


def test_bounds_hold_the_rest_of_the_probability(unit):
    reached = unit.predict_cdf(QUERIES, [-1e-9, 0.0, 0.5, 1 - 1e-9, 1.0])
    assert (reached[:, 0] == 0).all()
    assert (reached[:, -1] == 1).all()
    draws = unit.sample_y(QUERIES, 4000)
    assert reached[:, 1].max() > 0.2
    assert reached[:, 3].min() < 0.8
    for column, point in [(1, 0.0), (2, 0.5), (3, 1 - 1e-9)]:
        np.testing.assert_allclose(reached[:, column], (draws <= point).mean(axis=1), atol=0.04)


@pytest.mark.parametrize("calibrated", [True, False])
def test_the_deviation_is_that_of_the_draws(unit, calibrated):
    reg = copy.copy(unit)
    reg.calibration_ = nona_sklearn.Calibration(0.5, (0.1,) if calibrated else ())
    _, std = reg.predict(QUERIES, return_std=True)
    draws = reg.sample_y(QUERIES, 4000).std(axis=1)
    np.testing.assert_allclose(std, draws, rtol=0.08, atol=2e-3)


def test_distributions_with_bounds_on_paper():
    values, weights = torch.tensor([[-1.0, 0.5, 3.0]]).double(), torch.full((1, 3), 1 / 3).double()
    expected = np.std([0, 0.5, 1])
    law = Discrete(values, weights, torch.zeros(1, 1).double())
    assert law.std((0, 1)).item() == pytest.approx(expected)
    noise, center = Noise(1e-3, NORMAL), torch.full((1, 1), 0.5).double()
    noisy = Noisy(GridValues(values - center, noise.scale), weights, center, noise)
    assert noisy.std((0, 1)).item() == pytest.approx(expected, abs=0.01)


def test_the_score_is_of_the_distribution_within_the_bounds():
    """Half of a standard normal distribution is at the bound 0: the CRPS of its draws."""
    zero, noise = torch.zeros(1, 1).double(), Noise(1.0, NORMAL)
    law = Noisy(GridValues(zero, noise.scale), zero + 1, zero, noise)
    found = law.score(zero + 0.3, 1.0, (0, np.inf))[0].item()
    draws = RNG.normal(size=4000).clip(0)
    apart = abs(draws[:, None] - draws).mean() / 2
    assert found == pytest.approx(abs(draws - 0.3).mean() - apart, abs=0.02)


@pytest.mark.slow
def test_wide_bounds_change_nothing():
    plain, wide = nona(), nona(bounds=(-1e6, 1e6))
    ours, theirs = (each.fit(X, Y).predict(QUERIES) for each in (wide, plain))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize("bounds", [(None, None), [-np.inf, None], (-np.inf, np.inf)])
def test_two_infinite_bounds_are_none(bounds):
    assert nona(bounds=bounds, max_iter=1).fit(X, Y).network_.head.heads[0].bounds is None


@pytest.mark.slow
def test_one_bound_of_several_outputs():
    reg = nona(bounds="positive").fit(X, np.stack([Y, 1 - Y], axis=1))
    assert reg.predict(QUERIES).min() >= 0
    draws = reg.sample_y(QUERIES, 20)
    assert (draws.min(axis=(0, 2)) == 0).all()
    assert (draws.max(axis=(0, 2)) > 1).all()


@pytest.mark.parametrize("adjusts", [False, True])
def test_rows_that_are_not_adjusted_stay(unit, adjusts):
    reg = SoftStepKNeighborsRegressor(bounds=(0, 1), trend=None, **QUICK).fit(X, Y)
    assert_inside(reg.sample_y(QUERIES, 50))
    if adjusts:
        reg = copy.copy(unit).set_neighbor_targets(Y[::-1])
    targets = reg.explain(QUERIES)
    np.testing.assert_array_equal(targets["target"], targets["adjusted_target"])


# -- files ------------------------------------------------------------------------------------


def test_files_and_shards_keep_them(unit, tmp_path):
    nona_sklearn.save(unit, tmp_path / "model.safetensors")
    loaded = nona_sklearn.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(QUERIES), unit.predict(QUERIES))
    save_shards(unit, tmp_path / "shards", 3)
    sharded = ShardedNeighbors(tmp_path / "shards")
    np.testing.assert_allclose(sharded.predict(QUERIES), unit.predict(QUERIES), atol=1e-6)
    assert_inside(sharded.predict_quantiles(QUERIES, [0, 1]))
    for each in loaded, sharded:
        with pytest.raises(ValueError, match="got 2 in row 0"):
            each.add_neighbors(X[:1], [2.0])


def test_targets_of_earlier_versions_have_none():
    earlier = RegressionTargets.__new__(RegressionTargets)
    assert earlier.check([2.5]) == [2.5]


# -- whole numbers ----------------------------------------------------------------------------

COUNTS = np.random.RandomState(1).poisson(np.exp(0.5 + 0.7 * X[:, 0]))


@pytest.fixture(scope="module", params=[{}, {"n_neighbors": None}, {"adjust": False}], ids=str)
def counts(request):
    return nona(bounds="count", max_iter=20, **request.param).fit(X, COUNTS)


@pytest.mark.slow
def test_quantiles_and_draws_of_counts_are_whole_and_predictions_are_means(counts):
    levels = np.linspace(0, 1, 21)
    for values in counts.predict_quantiles(QUERIES, levels), counts.sample_y(QUERIES, 50):
        np.testing.assert_array_equal(values, np.floor(values))
        assert values.min() >= 0
    predictions = counts.predict(QUERIES)
    assert predictions.min() >= 0
    assert (predictions != np.floor(predictions)).any()
    draws, high = counts.sample_y(QUERIES, 4000).mean(axis=1), predictions > 3
    np.testing.assert_allclose(draws[high], predictions[high], atol=0.2)  # nothing is clipped


def test_quantiles_of_counts_are_the_inverse_of_their_distribution(counts):
    """The least number that is not exceeded with at least the probability, by the definition."""
    numbers = np.arange(200)
    reached = counts.predict_cdf(QUERIES, numbers)
    assert (np.diff(reached, axis=1) >= 0).all()
    for level in (0.05, 0.3, 0.5, 0.9):
        quantiles = counts.predict_quantiles(QUERIES, level).astype(int)
        np.testing.assert_array_equal(quantiles, (reached >= level - 1e-9).argmax(axis=1))


def test_the_distribution_of_counts_is_that_of_the_draws(counts):
    draws = counts.sample_y(QUERIES, 4000)
    points = np.array([-0.5, 0.0, 0.9, 1.0, 3.0])
    reached = counts.predict_cdf(QUERIES, points)
    expected = (draws[:, :, None] <= points).mean(axis=1)
    np.testing.assert_allclose(reached, expected, atol=0.04)
    assert (reached[:, 0] == 0).all()
    np.testing.assert_array_equal(reached[:, 1], reached[:, 2])  # nothing is in between
    std = counts.predict(QUERIES, return_std=True)[1]
    np.testing.assert_allclose(std, draws.std(axis=1), rtol=0.08, atol=0.05)


def test_without_calibration_the_values_are_those_of_neighbours():
    reg = nona(bounds="count", adjust=False, n_estimators=1, n_neighbors=2).fit(X, COUNTS)
    reg.calibration_ = nona_sklearn.Calibration()
    low, high = reg.predict_quantiles(QUERIES, [1e-9, 1]).T
    weights, rows = reg.heaviest_neighbors(QUERIES, 2)
    behind = np.sort(COUNTS[rows], axis=1)
    both = weights.min(axis=1) > 1e-6  # far from all but one, it has all the weight
    assert both.any()
    np.testing.assert_array_equal(behind[both], np.stack([low, high], axis=1)[both])


def test_deviations_within_bounds_are_those_of_the_quantiles():
    """Also where distributions are narrower than the weighted targets (`power`)."""
    y = np.exp(X[:, 0]).clip(0.0, 3.0)
    reg = nona(bounds=(0.0, 3.0), n_estimators=1).fit(X, y)
    levels = (np.arange(1000) + 0.5) / 1000
    for noise in ((), (0.5,)):
        reg.calibration_ = nona_sklearn.Calibration(power=0.3, noise=noise)
        std = reg.predict(QUERIES, return_std=True)[1]
        quantiles = reg.predict_quantiles(QUERIES, levels)
        np.testing.assert_allclose(std, quantiles.std(axis=1), rtol=0.01, atol=1e-3)


def test_the_deviation_of_two_counts_is_half_their_difference():
    """Each row is there twice: both are equally near."""
    params = {"bounds": "count", "adjust": False, "n_estimators": 1, "n_neighbors": 2}
    twice = np.r_[COUNTS, COUNTS[::-1]]
    with warnings.catch_warnings(action="ignore"):  # equal rows
        reg = nona(**params).fit(np.r_[X, X], twice)
    reg.calibration_ = nona_sklearn.Calibration()
    differences = np.ptp(twice[reg.heaviest_neighbors(QUERIES, 2)[1]], axis=1)
    assert differences.any()
    std = reg.predict(QUERIES, return_std=True)[1]
    np.testing.assert_allclose(std, differences / 2, rtol=1e-9)


def test_counts_after_loading_and_in_shards(counts, tmp_path):
    nona_sklearn.save(counts, tmp_path / "reg.nona")
    loaded = nona_sklearn.load(tmp_path / "reg.nona")
    save_shards(counts, tmp_path / "shards", 3)
    for each in loaded, ShardedNeighbors(tmp_path / "shards"):
        np.testing.assert_array_equal(
            each.predict_quantiles(QUERIES, [0.1, 0.9]),
            counts.predict_quantiles(QUERIES, [0.1, 0.9]),
        )
        with pytest.raises(
            ValueError, match=r"whole numbers with bounds='count', got 0\.5 in row 0"
        ):
            each.add_neighbors(X[:1], [0.5])


def test_fractions_are_no_counts(monkeypatch):
    monkeypatch.setattr("inner.estimators.fitting.train_networks", None)
    y = COUNTS.astype(float)
    y[5] = 2.5
    with pytest.raises(ValueError, match=r"whole numbers with bounds='count', got 2.5 in row 5$"):
        nona(bounds="count").fit(X, y)
    y[3] = -1
    with pytest.raises(ValueError, match=r"bounds=\(0, inf\), got -1 in row 3$"):
        nona(bounds="count").fit(X, y)


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds", [(1, 0), (0, 0), (0,), (0, 1, 2), ("0", 1), (np.nan, 1), (True, 2), [], "counts"]
)
def test_bad_bounds(bounds):
    with pytest.raises(ValueError, match="bounds"):
        nona(bounds=bounds).fit(X, Y)


def test_targets_beyond_are_named_before_training(monkeypatch):
    monkeypatch.setattr("inner.estimators.fitting.train_networks", None)
    y = Y.copy()
    y[[7, 9]] = -0.25, 3
    with pytest.raises(ValueError, match=r"bounds=\(0, 1\), got -0.25 in row 7$"):
        nona(bounds="unit").fit(X, y)
    with pytest.raises(ValueError, match=r"got 3 in row 1 of output 1$"):
        nona(bounds=(None, 2.5)).fit(X[8:], np.stack([Y[8:], y[8:]], axis=1))
    with pytest.raises(ValueError, match=r"got -0\.25 in row 7"):
        nona(bounds="unit").fit(X, Y, X_val=X, y_val=y)


def test_later_targets_beyond_are_named(unit):
    before = unit.bank_
    y = np.full(len(X), 0.5)
    y[4] = 1.5
    for refused in (
        lambda: unit.add_neighbors(X, y),
        lambda: unit.set_neighbor_targets(y),
        lambda: unit.calibrate(X, y),
    ):
        with pytest.raises(ValueError, match=r"bounds=\(0, 1\), got 1.5 in row 4"):
            refused()
    assert unit.bank_ is before
