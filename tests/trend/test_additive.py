"""The additive trend, and SoftStep k-NN whose neighbours it adjusts."""

import copy

import numpy as np
import pytest
import torch
from inner.data import TableRows
from inner.estimators import LEAST_TREND_ROWS
from inner.inference import with_numbers
from inner.trend import (
    MAX_BINS,
    MAX_CODES,
    MAX_FITTED_ROWS,
    N_FOLDS,
    PENALTIES,
    AdditiveTrend,
    LeftOut,
)
from inner.utils import MAX_WIDENED
from sklearn.linear_model import Ridge, RidgeCV
from threadpoolctl import threadpool_limits

from nona_sklearn import SoftStepKNeighborsRegressor
from nona_sklearn.attention.head import TRUST_FACTOR

RNG = np.random.default_rng(0)
CURVED = RNG.uniform(-2, 2, size=(300, 2))
BINARY = RNG.integers(0, 2, size=(300, 1))
X = np.hstack([CURVED, BINARY])
Y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + 0.5 * X[:, 2]
NEW = np.hstack([RNG.uniform(-2, 2, size=(200, 2)), RNG.integers(0, 2, size=(200, 1))])


def fitted(X, y, sample_weight=None, groups=None, times=None):
    """Fitted to the encoded targets themselves: of center 0 and unit 1."""
    targets = np.asarray(y, dtype=float).reshape(len(y), -1)
    n_outputs = targets.shape[1]
    weights = np.ones(len(y)) if sample_weight is None else sample_weight
    rows = LeftOut(weights, groups, times)
    given = np.arange(len(y)), np.asarray(X, dtype=np.float32), targets, rows
    return AdditiveTrend.fit(*given, np.zeros(n_outputs), np.ones(n_outputs))


def values(trend, X):
    return trend(TableRows(torch.tensor(X))).numpy()


def knn(**params):
    return SoftStepKNeighborsRegressor(
        **({"trend": "additive", "max_iter": 8, "random_state": 0} | params)
    )


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
    expected = ridge.predict(codes(NEW))
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
    ignored = trend.of_rows(np.array([300, 301]))  # by the function of all others
    np.testing.assert_array_equal(ignored, values(trend, rows[300:].astype(np.float32)))


def test_several_targets_have_trends_of_their_own():
    noise = RNG.normal(size=300)  # of another penalty
    both = values(fitted(X, np.stack([Y, noise], axis=1)), NEW)
    for j, targets in enumerate((Y, noise)):
        np.testing.assert_allclose(both[:, [j]], values(fitted(X, targets), NEW), atol=1e-4)


@pytest.mark.parametrize("rows", [np.ones((12, 3)), np.zeros((12, 1)), np.full((12, 2), 0.1)])
def test_constant_features_have_none(rows):
    assert fitted(rows, np.arange(12.0)) is None


def test_threads_change_nothing():
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            found.append(values(fitted(X, Y), NEW))
    np.testing.assert_array_equal(*found)


# -- SoftStep k-NN -----------------------------------------------------------------------------


def test_neighbors_are_adjusted_by_the_trend():
    """``f(q) + kept sum_j w_j (y_j - f(j))``, and f is the trend of the encoded features."""
    reg = knn().fit(X, 10 * Y)
    trend, offset = reg.bank_.trend, reg.bank_.neighbors.offset
    assert isinstance(trend, AdditiveTrend)
    assert offset.share == 1
    own = values(trend, reg.scaler_.transform(NEW).astype(np.float32))[:, 0]
    near = reg.network_.head.metric_part(reg.bank_.embeddings)
    residuals = 10 * Y - offset.values[:, 0].numpy()
    expected = own + offset.kept * (reg.neighbor_weights(NEW) @ residuals)
    assert reg.kneighbors(NEW, 1)[0].max() < offset.trust_radius
    assert near.shape[1] == reg.bank_.embeddings.shape[1]  # the trend is no part of it
    np.testing.assert_allclose(reg.predict(NEW), expected, rtol=1e-9)


def test_far_from_all_rows_the_trend_fades():
    """What is left is the mean of the neighbours' targets."""
    reg = knn().fit(X, Y)
    far = np.array([[1e4, 1e4, 1.0]])
    plain = reg.neighbor_weights(far) @ Y
    np.testing.assert_allclose(reg.predict(far), plain, rtol=0, atol=1e-3)


def test_the_trend_of_a_training_row_is_that_of_other_rows():
    """Ridge regressions on the other folds, less the means by which these differ."""
    rows = BINARY.astype(float)
    trend = fitted(rows, Y)
    scale, order = rows.std(), np.random.RandomState(0).permutation(300)
    codes = rows / scale
    alpha = RidgeCV(PENALTIES * 300).fit(codes, Y).alpha_
    for part in np.array_split(order, N_FOLDS):
        others = np.setdiff1d(order, part)
        expected = Ridge(alpha).fit(codes[others], Y[others]).predict(codes[part])
        expected += Y.mean() - Y[others].mean()
        np.testing.assert_allclose(trend.of_rows(part)[:, 0], expected, rtol=0, atol=1e-6)
    reg = knn(learn_feature_weights=False).fit(rows, Y)
    found = reg.bank_.neighbors.offset.values[:, 0]
    np.testing.assert_allclose(found, trend.values[:, 0], rtol=0, atol=1e-5 * np.ptp(Y))


def test_its_own_target_does_not_move_a_training_row():
    """But through the penalty and the folds' means: not in proportion."""
    moved = Y.copy()
    moved[7] += 50
    trends = [fitted(X, y) for y in (Y, moved)]
    before, after = (trend.of_rows(np.array([7])) for trend in trends)
    in_sample = [values(trend, X[7:8]) for trend in trends]
    assert abs(after - before) < abs(in_sample[1] - in_sample[0])


def test_values_of_times_are_those_of_earlier_rows():
    times = np.random.RandomState(0).permutation(300).astype(float)
    trend, changed = (fitted(X, y, times=times) for y in (Y, Y + 9.0 * (times > 200)))
    early = np.flatnonzero(times <= 200)
    kept = trend.of_rows(early) - changed.of_rows(early)  # the penalty is that of all rows
    assert abs(kept).max() < 0.1
    limits = torch.tensor([60.0, 250.0, np.inf])
    found = trend.from_earlier(TableRows(torch.tensor(X[:3]).float()), limits)
    same = changed.from_earlier(TableRows(torch.tensor(X[:3]).float()), limits)
    assert abs(found - same)[0] < 0.1
    assert abs(found - same)[2] > 1
    np.testing.assert_allclose(found[2], values(trend, X[2:3].astype(np.float32))[0])


def test_rows_that_are_removed_or_added_change_no_other_value():
    trend = fitted(X, Y)
    left = trend.without(np.arange(100))
    np.testing.assert_array_equal(left.of_rows(np.arange(100, 300)), trend.values[100:])
    rows = TableRows(torch.tensor(NEW[:2]).float())
    more = left.with_rows(np.array([300, 301]), rows)
    np.testing.assert_array_equal(more.of_rows(np.array([299, 301]))[0], trend.values[299])
    np.testing.assert_array_equal(more.of_rows(np.array([300, 301])), trend(rows))
    for each in (left, more):
        np.testing.assert_array_equal(values(each, NEW), values(trend, NEW))
    np.testing.assert_array_equal(more.moved(np.array([300, 301]), rows), more(rows))


def test_the_residuals_that_are_kept_depend_on_what_they_tell():
    """Noise of the targets, and a bump that no sum of functions has."""
    random = np.random.RandomState(0)
    rows = random.uniform(-2, 2, (600, 2))
    bump = np.exp(-4 * (rows**2).sum(axis=1))
    kept = []
    for targets in (rows[:, 0] + random.randn(600), rows[:, 0] + 9 * bump):
        reg = knn().fit(rows, targets)
        kept.append(reg.bank_.neighbors.offset.kept)
    assert kept[0] < 0.4
    assert kept[1] > 0.8


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
    assert fitted(X, Y, groups=np.zeros(300)) is None


@pytest.mark.parametrize("trend", ["additive", "kernel", Ridge()])
def test_few_rows_have_no_trend(trend):
    """Predictions are then means of targets."""
    few = LEAST_TREND_ROWS - 1
    reg = knn(trend=trend).fit(X[:few], Y[:few])
    assert reg.bank_.trend is None
    np.testing.assert_allclose(reg.predict(NEW), reg.neighbor_weights(NEW) @ Y[:few])
    more = knn(trend=trend).fit(X[: few + 1], Y[: few + 1])
    assert more.bank_.trend is not None


def test_many_columns_have_no_trend():
    rows = RNG.normal(size=(12, MAX_CODES + 1))
    assert fitted(rows, rows[:, 0]) is None


def test_of_many_rows_some_are_drawn_with_their_weights():
    """Slopes of the whole table, of which every second row differs."""
    n = 2 * MAX_FITTED_ROWS + 2
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
    expected = knn().fit(X, -Y).bank_.trend
    np.testing.assert_array_equal(reg.bank_.trend.values, expected.values)
    binary = np.c_[X[:, 0] > 0, X[:, 1:]].astype(float)
    reg.fit(binary, Y)  # with fewer bins
    assert reg.score(binary, Y) > 0.5


@pytest.mark.slow
def test_a_trend_helps_where_there_is_one():
    truth = np.sin(2 * NEW[:, 0]) + np.abs(NEW[:, 1]) + 0.5 * NEW[:, 2]
    trends = "additive", "kernel", None
    errors = [np.std(knn(trend=t).fit(X, Y).predict(NEW) - truth) for t in trends]
    assert max(errors[:2]) < 0.7 * errors[2]


@pytest.mark.slow
def test_without_a_trend_predictions_are_within_the_targets():
    predictions = knn(trend=None).fit(X, Y).predict(3 * NEW)
    assert Y.min() <= predictions.min()
    assert predictions.max() <= Y.max()


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "slope"), [(1.0, 2.0), (1e6, 3.0)])
def test_the_sample_weights_of_a_fit_are_those_of_its_trend(weight, slope):
    rows = np.r_[BINARY, BINARY].astype(float)
    targets = np.r_[1.0 * BINARY[:, 0], 3.0 * BINARY[:, 0]]
    reg = knn().fit(rows, targets, sample_weight=np.repeat([1.0, weight], 300))
    ends = reg.scaler_.transform([[0.0], [1.0]])
    rise = np.diff(values(reg.bank_.trend, ends), axis=0).item()
    assert rise == pytest.approx(slope, rel=0.01)


def test_validation_rows_choose_what_is_kept():
    """Those that are set aside, or a set that is given."""
    random = np.random.RandomState(0)
    noise = random.randn(300)
    for set_aside in ({}, {"X_val": NEW, "y_val": random.randn(200)}):
        reg = knn(validation_fraction=0.15).fit(X, Y + 3 * noise, **set_aside)
        assert reg.bank_.neighbors.offset.kept < 0.7


@pytest.mark.parametrize("similarity", ["log_l2", "cosine"])
def test_it_fades_by_euclidean_distances_under_any_similarity(similarity):
    reg = knn(similarity=similarity).fit(X[:50], Y[:50])
    distances = torch.cdist(reg.bank_.embeddings.double(), reg.bank_.embeddings.double())
    nearest = distances.fill_diagonal_(torch.inf).amin(dim=1)
    radius = reg.bank_.neighbors.offset.trust_radius
    assert radius == pytest.approx(TRUST_FACTOR * nearest.max().item(), rel=1e-4)


@pytest.mark.parametrize("set_aside", [0.15, None])
def test_what_is_kept_of_residuals_is_that_of_leave_one_out(set_aside):
    """The kernel leaves the row out of its neighbours' residuals, too, as predictions do."""
    rows, targets = X[:200], Y[:200] + np.random.RandomState(0).randn(200)
    options = {"trend": "kernel", "similarity": "log_l2"}
    reg = knn(validation_fraction=set_aside, **options).fit(rows, targets)
    (valid,) = reg.validation_indices_ if set_aside else [np.arange(200)]
    found = []
    for kept in (0.0, 1.0):
        changed = copy.deepcopy(reg)
        changed.bank_ = with_numbers(reg.bank_, kept=kept)
        found.append(changed.predict(None)[valid])
    none, whole = found
    kept = np.linspace(0, 1, 1001)
    errors = targets[valid] - none - kept[:, None] * (whole - none)
    squares = np.square(errors).sum(axis=1)
    usual, least = squares[700] / len(valid), squares[[0, 700, 1000]].min() / len(valid)
    evidence = (len(valid) + 1) * np.log(squares + np.sqrt(usual * least))  # and a further row
    improbable = evidence + ((kept - 0.7) / 0.25) ** 2
    expected = kept[improbable.argmin()]
    assert reg.bank_.neighbors.offset.kept == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("trend", ["additive", "kernel", Ridge()])
def test_a_model_of_linear_targets_is_not_in_vain(trend):
    """Neighbours have nothing to add there, but predictions are far better than the mean."""
    reg = knn(trend=trend, validation_fraction=0.15, max_iter=50).fit(X, X @ [1.0, 2.0, 3.0])
    assert "in_vain" not in reg.history_[-1]
    assert reg.score(NEW, NEW @ [1.0, 2.0, 3.0]) > 0.95


@pytest.mark.parametrize("trend", ["adjusted", True, Ridge])
def test_a_trend_must_be_a_name_or_a_regressor(trend):
    with pytest.raises(ValueError, match="trend"):
        knn(trend=trend).fit(X, Y)
