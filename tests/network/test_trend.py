"""An additive trend, and SoftStep k-NN whose neighbours it adjusts."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge, RidgeCV
from threadpoolctl import threadpool_limits

from nona_sklearn import SoftStepKNeighborsRegressor
from nona_sklearn._network.real_valued import MAX_WIDENED
from nona_sklearn._network.trend import (
    LEAST_ROWS,
    MAX_BINS,
    MAX_CODES,
    MAX_ROWS,
    N_FOLDS,
    PENALTIES,
    AdditiveTrend,
    fit_trend,
)

RNG = np.random.default_rng(0)
CURVED = RNG.uniform(-2, 2, size=(300, 2))
BINARY = RNG.integers(0, 2, size=(300, 1))
X = np.hstack([CURVED, BINARY])
Y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + 0.5 * X[:, 2]
NEW = np.hstack([RNG.uniform(-2, 2, size=(200, 2)), RNG.integers(0, 2, size=(200, 1))])


def fitted(X, y, **options):
    weights = {k: torch.tensor(v) for k, v in options.items()}
    return fit_trend(torch.tensor(X).float(), torch.tensor(y).float(), **weights)[0].double()


def values(trend, X):
    return trend(torch.tensor(X)).numpy()


def knn(**params):
    return SoftStepKNeighborsRegressor(**({"max_iter": 8, "random_state": 0} | params))


def test_the_trend_is_ridge_regression_on_piecewise_linear_codes():
    """scikit-learn's, on codes that NumPy interpolates."""
    levels = np.arange(MAX_BINS + 1)

    def codes(rows):
        columns = []
        for j in range(2):
            column = X[:, j].astype(np.float32).astype(float)
            edges = np.quantile(column, levels / MAX_BINS, method="lower")
            place = np.interp(rows[:, j], edges, levels)
            columns += [np.clip(place - k, 0, 1) for k in levels[:-1]]
        return np.stack([rows[:, 2] / X[:, 2].std(), *columns], axis=1)

    ridge = RidgeCV(PENALTIES * len(X)).fit(codes(X), Y)
    trend = fitted(X, Y)
    expected = ridge.predict(codes(NEW)) - ridge.intercept_
    np.testing.assert_allclose(values(trend, NEW)[:, 0], expected, rtol=0, atol=1e-4)  # of float32


def test_each_feature_has_a_function_of_its_own():
    trend = fitted(X, Y)
    rows = np.repeat(NEW[:20], 2, axis=0)
    rows[::2, 0], rows[1::2, 0] = -1.0, 1.5
    steps = values(trend, rows).reshape(20, 2)
    np.testing.assert_allclose(np.diff(steps), np.diff(steps)[0, 0] * np.ones((20, 1)), atol=1e-12)


def test_an_additive_function_is_found():
    found = values(fitted(X, Y), NEW)[:, 0]
    truth = np.sin(2 * NEW[:, 0]) + np.abs(NEW[:, 1]) + 0.5 * NEW[:, 2]
    assert np.std(found - truth) < 0.1 * np.std(truth)


def test_it_is_constant_beyond_the_bins():
    trend = fitted(X, Y)
    ends = np.array([X[:, 0].max(), 10, 1e9, X[:, 0].min(), -10, -1e9])
    found = values(trend, np.c_[ends, np.zeros((6, 2))])[:, 0]
    np.testing.assert_allclose(found[:3], found[0], atol=1e-6)  # the ends are float32
    np.testing.assert_allclose(found[3:], found[3], atol=1e-6)
    assert abs(found[0] - found[3]) > 0.5


def test_a_number_of_few_values_has_fewer_bins():
    """Its function rises between the values, and by nothing else."""
    rows = np.repeat([[-5.0], [-1.0], [2.0], [9.0]], 50, axis=0)
    trend = fitted(rows, np.repeat([0.0, 2.0, 1.0, 4.0], 50))
    found = values(trend, np.array([[-5.0], [-3.0], [-1.0], [0.0], [1.0], [2.0], [9.0]]))[:, 0]
    np.testing.assert_allclose(found - found[0], [0, 1, 2, 5 / 3, 4 / 3, 1, 4], atol=0.01)


@pytest.mark.parametrize("n_features", [MAX_WIDENED, MAX_WIDENED + 1])
def test_of_many_features_it_is_linear(n_features):
    rows = RNG.normal(size=(80, n_features))
    trend = fitted(rows, rows[:, 0])
    middle = values(trend, (rows[:40] + rows[40:]) / 2)
    ends = (values(trend, rows[:40]) + values(trend, rows[40:])) / 2
    assert np.allclose(middle, ends, atol=1e-6) == (n_features > MAX_WIDENED)


def test_rows_of_more_weight_count_more():
    rows = np.r_[BINARY, BINARY].astype(float)
    targets = np.r_[1.0 * BINARY[:, 0], 3.0 * BINARY[:, 0]]
    for weight, slope in ((1.0, 2.0), (1e6, 3.0)):
        weights = np.repeat([1.0, weight], 300)
        trend = fitted(rows, targets, sample_weight=weights)
        found = np.diff(values(trend, np.array([[0.0], [1.0]])), axis=0).item()
        assert found == pytest.approx(slope, rel=0.01)


def test_rows_without_weight_do_not_count():
    rows, targets = np.r_[X, X[:2]], np.r_[Y, np.inf, -np.inf]
    trend = fitted(rows, targets, sample_weight=np.r_[np.ones(300), 0, 0])
    np.testing.assert_array_equal(values(trend, NEW), values(fitted(X, Y), NEW))
    alone = fitted(X, Y, sample_weight=np.r_[1.0, np.zeros(299)])
    assert not values(alone, NEW).any()


def test_several_targets_have_trends_of_their_own():
    noise = RNG.normal(size=300)  # of another penalty
    both = values(fitted(X, np.stack([Y, noise], axis=1)), NEW)
    for j, targets in enumerate((Y, noise)):
        np.testing.assert_allclose(both[:, [j]], values(fitted(X, targets), NEW), atol=1e-4)


@pytest.mark.parametrize("rows", [np.ones((12, 3)), np.zeros((12, 1)), np.full((12, 2), 0.1)])
def test_constant_features_have_none(rows):
    assert not values(fitted(rows, np.arange(12.0)), RNG.normal(size=(5, rows.shape[1]))).any()


def test_threads_change_nothing():
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            found.append(values(fitted(X, Y), NEW))
    np.testing.assert_array_equal(*found)


# -- SoftStep k-NN -----------------------------------------------------------------------------


@pytest.mark.slow
def test_neighbors_are_adjusted_by_the_trend():
    """``sum_j w_j (y_j + g(q) - g(j))``, in units of the targets."""
    reg = knn().fit(X, 10 * Y)
    trend = reg.network_.embedding.trend
    assert isinstance(trend, AdditiveTrend)
    scaler = reg.scaler_
    g = reg.bank_.embeddings[:, -1].double().numpy()
    own = values(trend, scaler.transform(NEW))[:, 0]
    scale = np.std(10 * Y)
    adjusted = 10 * Y + scale * (own[:, None] - g)
    weights = reg.neighbor_weights(NEW).toarray()
    head = reg.network_.head
    head.shrinkage = 0.0
    head.trust_radius.fill_(torch.inf)
    expected = (weights * adjusted).sum(axis=1)
    np.testing.assert_allclose(reg.predict(NEW), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.slow
def test_the_trend_of_a_training_row_is_that_of_other_rows():
    """Ridge regressions on the other folds, less the means by which these differ."""
    rows = BINARY.astype(float)
    _, differences = fit_trend(torch.tensor(rows).float(), torch.tensor(Y).float())
    scale, order = rows.std(), np.random.RandomState(0).permutation(300)
    codes = rows / scale
    alpha = RidgeCV(PENALTIES * 300).fit(codes, Y).alpha_
    own = Ridge(alpha).fit(codes, Y)
    for part in np.array_split(order, N_FOLDS):
        others = np.setdiff1d(order, part)
        expected = Ridge(alpha).fit(codes[others], Y[others]).predict(codes[part])
        expected += Y.mean() - Y[others].mean() - own.predict(codes[part])
        np.testing.assert_allclose(differences[part, 0], expected, rtol=0, atol=1e-5)
    reg = knn(learn_feature_weights=False).fit(rows, Y)
    g = reg.network_.embed(torch.tensor(reg.scaler_.transform(rows)))[:, -1]
    found = (reg.bank_.embeddings[:, -1] - g) * reg.targets_.unit
    np.testing.assert_allclose(found, differences[:, 0], atol=1e-5 * np.ptp(Y))


@pytest.mark.slow
def test_its_own_target_does_not_move_a_training_row():
    """But through the penalty and the folds' means: not in proportion."""
    moved = Y.copy()
    moved[7] += 50
    before, after = (knn().fit(X, y) for y in (Y, moved))
    scales = (float(reg.targets_.unit) for reg in (before, after))
    g = [s * reg.bank_.embeddings[7, -1] for reg, s in zip((before, after), scales, strict=True)]
    in_sample = [
        fit_trend(torch.tensor(X).float(), torch.tensor(y).float())[0] for y in (Y, moved)
    ]
    rows = torch.tensor(X[7:8]).float()
    assert abs(float(g[1] - g[0])) < abs(float(in_sample[1](rows) - in_sample[0](rows)))


def test_intervals_cover_where_features_are_many():
    random = np.random.RandomState(0)
    rows = random.randn(460, 10)
    targets = rows.sum(axis=1) + 0.5 * random.randn(460)
    reg = SoftStepKNeighborsRegressor(random_state=0).fit(rows[:60], targets[:60])
    low, high = reg.predict_quantiles(rows[60:], (0.05, 0.95)).T
    assert np.mean((low <= targets[60:]) & (targets[60:] <= high)) > 0.7
    assert abs(reg.score(None, targets[:60]) - reg.score(rows[60:], targets[60:])) < 0.2


@pytest.mark.parametrize("relation", ["groups", "times"])
def test_related_rows_are_left_out_together(relation):
    """Features and targets that differ by group, or block of time, without any dependence."""
    random = np.random.RandomState(0)
    block = np.repeat(np.arange(25), 12)
    rows = random.randn(25, 6)[block] + 0.05 * random.randn(300, 6)
    targets = random.randn(25)[block]
    alone = values(fitted(rows, targets), rows).std()
    together = values(fitted(rows, targets, **{relation: block.astype(float)}), rows).std()
    assert together < 0.5 * alone


def test_one_group_has_no_trend():
    assert not values(fitted(X, Y, groups=np.zeros(300)), NEW).any()


def test_few_rows_have_no_trend():
    assert not values(fitted(X[: LEAST_ROWS - 1], Y[: LEAST_ROWS - 1]), NEW).any()
    assert values(fitted(X[:LEAST_ROWS], Y[:LEAST_ROWS]), NEW).any()


def test_many_columns_have_no_trend():
    rows = RNG.normal(size=(12, MAX_CODES + 1))
    assert not values(fitted(rows, rows[:, 0]), rows).any()


def test_of_many_rows_some_are_drawn_with_their_weights():
    """Slopes of the whole table, of which every second row differs."""
    n = 2 * MAX_ROWS + 2
    odd = np.arange(n) % 2
    rows = np.c_[RNG.integers(0, 2, n), odd].astype(float)
    targets = 2.0 * rows[:, 0] + 3.0 * odd + RNG.normal(size=n)
    weights = np.where(np.arange(n) < n // 2, 1.0, 1e-6)
    targets[n // 2 :] *= -1
    trend = fitted(rows, targets, sample_weight=weights)
    slopes = values(trend, np.array([[0, 0], [1, 0], [0, 1.0]]))[:, 0]
    np.testing.assert_allclose(slopes[1:] - slopes[0], [2, 3], atol=0.2)


def test_a_feature_of_three_values_has_bins():
    rows = RNG.integers(0, 3, size=(300, 1)).astype(float)
    found = values(fitted(rows, np.abs(rows[:, 0] - 1)), np.array([[0.0], [1.0], [2.0]]))[:, 0]
    np.testing.assert_allclose(found - found[1], [1, 0, 1], atol=0.05)


@pytest.mark.slow
def test_warm_start_fits_the_trend_anew():
    reg = knn(warm_start=True).fit(X, Y).fit(X, -Y)
    expected = knn().fit(X, -Y).network_.embedding.trend
    for name, buffer in reg.network_.embedding.trend.state_dict().items():
        np.testing.assert_array_equal(buffer, expected.state_dict()[name])
    binary = np.c_[X[:, 0] > 0, X[:, 1:]].astype(float)
    reg.fit(binary, Y)  # with fewer bins
    assert reg.score(binary, Y) > 0.5


@pytest.mark.slow
def test_a_trend_helps_where_there_is_one():
    truth = np.sin(2 * NEW[:, 0]) + np.abs(NEW[:, 1]) + 0.5 * NEW[:, 2]
    errors = [np.std(knn(adjust=a).fit(X, Y).predict(NEW) - truth) for a in (True, False)]
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.slow
def test_without_adjustment_predictions_are_within_the_targets():
    predictions = knn(adjust=False).fit(X, Y).predict(3 * NEW)
    assert Y.min() <= predictions.min()
    assert predictions.max() <= Y.max()


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "slope"), [(1.0, 2.0), (1e6, 3.0)])
def test_the_sample_weights_of_a_fit_are_those_of_its_trend(weight, slope):
    rows = np.r_[BINARY, BINARY].astype(float)
    targets = np.r_[1.0 * BINARY[:, 0], 3.0 * BINARY[:, 0]]
    reg = knn().fit(rows, targets, sample_weight=np.repeat([1.0, weight], 300))
    ends = reg.scaler_.transform([[0.0], [1.0]])
    rise = np.diff(values(reg.network_.embedding.trend, ends), axis=0).item()
    assert rise * reg.targets_.scaler.scale_[0] == pytest.approx(slope, rel=0.01)


def test_validation_rows_are_no_part_of_the_trend():
    reg = knn(early_stopping=True).fit(X, Y)
    (valid,) = reg.validation_indices_
    other = Y.copy()
    other[valid] += 100 * np.cos(np.arange(len(valid)))
    again = knn(early_stopping=True).fit(X, other)
    np.testing.assert_array_equal(again.validation_indices_[0], valid)
    rises = (each.network_.embedding.trend.rises for each in (reg, again))
    one, two = (each / each.abs().max() for each in rises)  # targets are scaled by all rows
    np.testing.assert_allclose(one, two, atol=1e-4)


def test_adjust_must_be_a_bool():
    with pytest.raises(ValueError, match=r"'adjust' parameter .* Got 'auto'"):
        knn(adjust="auto").fit(X, Y)
