"""An additive trend, and SoftStep k-NN whose neighbours it adjusts."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from threadpoolctl import threadpool_limits

from nona_sklearn import SoftStepKNeighborsRegressor
from nona_sklearn._network.real_valued import MAX_WIDENED
from nona_sklearn._network.trend import MAX_BINS, PENALTIES, AdditiveTrend, fit_trend

RNG = np.random.default_rng(0)
CURVED = RNG.uniform(-2, 2, size=(300, 2))
BINARY = RNG.integers(0, 2, size=(300, 1))
X = np.hstack([CURVED, BINARY])
Y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + 0.5 * X[:, 2]
NEW = np.hstack([RNG.uniform(-2, 2, size=(200, 2)), RNG.integers(0, 2, size=(200, 1))])


def fitted(X, y, **options):
    weights = {k: torch.tensor(v) for k, v in options.items()}
    return fit_trend(torch.tensor(X).float(), torch.tensor(y).float(), **weights).double()


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


def test_neighbors_are_adjusted_by_the_trend():
    """``sum_j w_j (y_j + g(q) - g(j))``, in units of the targets."""
    reg = knn().fit(X, 10 * Y)
    trend = reg.network_.embedding.embeddings[1]
    assert isinstance(trend, AdditiveTrend)
    scaler = reg.scaler_
    g, own = (values(trend, scaler.transform(rows))[:, 0] for rows in (X, NEW))
    scale = np.std(10 * Y)
    adjusted = 10 * Y + scale * (own[:, None] - g)
    weights = reg.neighbor_weights(NEW).toarray()
    head = reg.network_.head
    head.shrinkage = 0.0
    head.trust_radius.fill_(torch.inf)
    expected = (weights * adjusted).sum(axis=1)
    np.testing.assert_allclose(reg.predict(NEW), expected, rtol=1e-5, atol=1e-4)


def test_a_trend_helps_where_there_is_one():
    truth = np.sin(2 * NEW[:, 0]) + np.abs(NEW[:, 1]) + 0.5 * NEW[:, 2]
    errors = [np.std(knn(adjust=a).fit(X, Y).predict(NEW) - truth) for a in (True, False)]
    assert errors[0] < 0.7 * errors[1]


def test_without_adjustment_predictions_are_within_the_targets():
    predictions = knn(adjust=False).fit(X, Y).predict(3 * NEW)
    assert Y.min() <= predictions.min()
    assert predictions.max() <= Y.max()


@pytest.mark.parametrize(("weight", "slope"), [(1.0, 2.0), (1e6, 3.0)])
def test_the_sample_weights_of_a_fit_are_those_of_its_trend(weight, slope):
    rows = np.r_[BINARY, BINARY].astype(float)
    targets = np.r_[1.0 * BINARY[:, 0], 3.0 * BINARY[:, 0]]
    reg = knn().fit(rows, targets, sample_weight=np.repeat([1.0, weight], 300))
    ends = reg.scaler_.transform([[0.0], [1.0]])
    rise = np.diff(values(reg.network_.embedding.embeddings[1], ends), axis=0).item()
    assert rise * reg.targets_.scaler.scale_[0] == pytest.approx(slope, rel=0.01)


def test_validation_rows_are_no_part_of_the_trend():
    reg = knn(early_stopping=True).fit(X, Y)
    (valid,) = reg.validation_indices_
    other = Y.copy()
    other[valid] += 100 * np.cos(np.arange(len(valid)))
    again = knn(early_stopping=True).fit(X, other)
    np.testing.assert_array_equal(again.validation_indices_[0], valid)
    rises = (each.network_.embedding.embeddings[1].rises for each in (reg, again))
    one, two = (each / each.abs().max() for each in rises)  # targets are scaled by all rows
    np.testing.assert_allclose(one, two, atol=1e-4)


def test_adjust_must_be_a_bool():
    with pytest.raises(ValueError, match=r"'adjust' parameter .* Got 'auto'"):
        knn(adjust="auto").fit(X, Y)
