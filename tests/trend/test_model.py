"""A regressor as a trend: values of other folds, and what it is fitted to."""

import numpy as np
import pandas as pd
import pytest
import torch
from inner.data import TableRows
from inner.trend import ModelTrend, Numbers, check_model
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.cluster import KMeans
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

RNG = np.random.default_rng(0)
X = RNG.normal(size=(47, 3))
Y = np.c_[X @ [1.0, -2.0, 0.5] + 0.1 * RNG.normal(size=47), np.cos(X[:, 0])]
IDS = np.arange(0, 94, 2)
TIMES = np.repeat(np.arange(24.0), 2)[:47][::-1].copy()
GROUPS = RNG.integers(0, 7, size=47)


def fit(model=None, table=X, y=Y[:, :1], weights=None, groups=None, times=None, seed=0, **options):
    model = Ridge() if model is None else model
    given = IDS[: len(y)], table, y, weights, groups, times, seed
    return ModelTrend.fit(model, Numbers(y.shape[1]), *given, **options)


def given(rows):
    return TableRows(torch.zeros(len(rows), 0), rows)


def test_values_are_those_of_other_folds():
    folds = KFold(5, shuffle=True, random_state=0)
    expected = cross_val_predict(Ridge(), X, Y[:, 0], cv=folds)
    np.testing.assert_allclose(fit().of_rows(IDS)[:, 0], expected)
    np.testing.assert_allclose(fit().of_rows(IDS[[3, 1]])[:, 0], expected[[3, 1]])


def test_the_function_is_fitted_to_all_rows():
    expected = Ridge().fit(X, Y[:, 0]).predict(X[:5])
    np.testing.assert_allclose(fit()(given(X[:5])).numpy()[:, 0], expected)


def test_values_are_those_of_other_groups():
    expected = cross_val_predict(Ridge(), X, Y, groups=GROUPS, cv=GroupKFold(5))
    np.testing.assert_allclose(fit(y=Y, groups=GROUPS).of_rows(IDS), expected)


@pytest.mark.parametrize("rows", ["groups", "times"])
def test_a_single_group_or_time_has_the_mean(rows):
    found = fit(**{rows: np.zeros(47)}).of_rows(IDS)
    np.testing.assert_allclose(found, Y[:, :1].mean())


def test_values_are_those_of_earlier_blocks():
    """By the definition: of all rows before the block that a row is in."""
    found = fit(times=TIMES).of_rows(IDS)[:, 0]
    first = TIMES[np.argsort(TIMES)[np.arange(6) * 47 // 6]]  # times at which blocks start
    for i, time in enumerate(TIMES):
        start = first[first <= time].max()
        before = start > TIMES
        if before.any():
            expected = Ridge().fit(X[before], Y[before, 0]).predict(X[[i]])[0]
        else:
            expected = Y[first[1] > TIMES, 0].mean()
        assert found[i] == pytest.approx(expected)


def test_no_value_depends_on_later_targets():
    late = TIMES >= 12
    changed = np.where(late[:, None], 100.0, Y[:, :1])
    found, other = fit(times=TIMES).of_rows(IDS), fit(y=changed, times=TIMES).of_rows(IDS)
    np.testing.assert_array_equal(found[~late], other[~late])


def test_a_query_has_the_model_of_rows_before_its_limit():
    trend = fit(times=TIMES)
    limits = torch.tensor([-1.0, 0.0, 12.0, 23.0, 99.0])
    found = trend.from_earlier(given(X[:5]), limits).numpy()[:, 0]
    for i, limit in enumerate(limits.tolist()):
        (number,) = np.flatnonzero(trend.ends < limit)[-1:]
        expected = trend.functions[number].predict(X[[i]])[0]
        assert found[i] == pytest.approx(expected)
    assert (np.diff(trend.ends) > 0).all()
    assert trend.ends[-1] == TIMES.max()
    np.testing.assert_allclose(found[-1], trend(given(X[[4]])).item())


@pytest.mark.parametrize("nested", [False, True])
def test_weights_are_passed_as_they_are(nested):
    """Ridge regression's penalty depends on their unit."""
    weights = RNG.uniform(1, 9, size=47)
    model = make_pipeline(StandardScaler(), Ridge()) if nested else Ridge()
    name = "ridge__sample_weight" if nested else "sample_weight"
    expected = clone(model).fit(X, Y[:, 0], **{name: weights}).predict(X)
    np.testing.assert_allclose(fit(model, weights=weights)(given(X)).numpy()[:, 0], expected)


def test_a_model_without_weights_is_refused_where_rows_have_some():
    with pytest.raises(ValueError, match=r"trend must accept sample_weight .*got KNeighborsRegr"):
        fit(KNeighborsRegressor(), weights=np.arange(1.0, 48))
    fit(KNeighborsRegressor())


def test_a_model_around_another_passes_weights_on():
    weights = RNG.uniform(1, 9, size=47)
    expected = Ridge().fit(X, Y[:, 0], weights).predict(X)
    found = fit(TransformedTargetRegressor(Ridge()), weights=weights)(given(X)).numpy()[:, 0]
    np.testing.assert_allclose(found, expected)
    with pytest.raises(ValueError, match=r"trend cannot be fitted .*got TransformedTarget"):
        fit(TransformedTargetRegressor(KNeighborsRegressor()), weights=weights)


def test_the_model_is_not_changed():
    model = RandomForestRegressor(3)
    before = dict(model.get_params())
    fit(model)
    assert model.get_params() == before
    assert not hasattr(model, "estimators_")


class CopiesAList(RegressorMixin, BaseEstimator):
    """Has a list that scikit-learn's clone refuses, since the constructor copies it."""

    def __init__(self, columns):
        self.columns = [*columns]

    def fit(self, X, y):
        self.mean_ = X[:, self.columns].mean()
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


def test_a_constructor_may_copy_its_parameters():
    model = CopiesAList([0, 2])
    np.testing.assert_allclose(fit(model)(given(X[:1])), X[:, [0, 2]].mean())
    assert not hasattr(model, "mean_")


def test_a_seed_determines_it():
    model = make_pipeline(StandardScaler(), RandomForestRegressor(3))
    one, two, other = fit(model), fit(model), fit(model, seed=1)
    np.testing.assert_array_equal(one.values, two.values)
    assert not np.array_equal(one.values, other.values)


def test_its_own_random_state_stays():
    model = RandomForestRegressor(3, random_state=5)
    np.testing.assert_array_equal(fit(model).values, fit(model, seed=1).values)


@pytest.mark.slow
def test_processes_change_nothing():
    model = RandomForestRegressor(3)
    np.testing.assert_array_equal(fit(model).values, fit(model, n_jobs=2).values)


class NeedsNames(RegressorMixin, BaseEstimator):
    """Predicts a column of a table by its name, and nothing of an array."""

    def fit(self, X, y):
        assert X["kind"].dtype == "category"
        assert y.ndim == 1
        return self

    def predict(self, X):
        return X["size"].to_numpy()


def test_it_takes_the_table_as_it_is():
    table = pd.DataFrame({"size": X[:, 0], "kind": pd.Categorical(list("ab" * 23 + "a"))})
    found = fit(NeedsNames(), table=table)
    np.testing.assert_array_equal(found.of_rows(IDS)[:, 0], X[:, 0])
    np.testing.assert_array_equal(found(given(table[4:6])).numpy()[:, 0], X[4:6, 0])


def test_it_takes_sparse_rows():
    np.testing.assert_allclose(fit(table=csr_array(X)).values, fit().values, atol=1e-3)


def test_rows_are_added_and_removed():
    more = fit().with_rows(np.array([1000, 1001]), given(X[:2]))
    np.testing.assert_array_equal(more.of_rows(np.array([1001])), fit()(given(X[1:2])).numpy())
    fewer = more.without(np.array([0, 1000]))
    assert fewer.ids.tolist() == [*IDS[1:], 1001]
    np.testing.assert_array_equal(fewer.of_rows(IDS[1:]), fit().values[1:])
    np.testing.assert_array_equal(fewer(given(X)).numpy(), fit()(given(X)).numpy())


def test_values_move_as_the_function_does():
    function = Ridge().fit(X, Y[:, 0])
    expected = function.predict(X[:4] + 1) - function.predict(X[:4])
    found = fit()
    moved = found.moved(IDS[:4], given(X[:4] + 1)).numpy() - found.of_rows(IDS[:4])
    np.testing.assert_allclose(moved[:, 0], expected)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Ridge, r"trend must be an object, such as Ridge\(\), got the class"),
        (LogisticRegression(), r"trend must be .* a regressor .*, got LogisticRegression\(\)"),
        (KMeans(), r"got KMeans\(\)"),
        (FrozenEstimator(Ridge()), "trend must be fitted to parts of the rows, got FrozenEst"),
        (object(), "got <object"),
    ],
)
def test_what_is_no_regressor_is_refused(model, message):
    with pytest.raises(ValueError, match=message):
        check_model(model)


class Predicts(RegressorMixin, BaseEstimator):
    """Predicts what a function makes of the rows."""

    def __init__(self, function):
        self.function = function

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.function(X)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X: np.full(len(X), np.nan), r"trend must predict finite numbers .*, got Predicts"),
        (lambda X: np.full(len(X), np.inf), r"trend must predict finite numbers"),
        (
            lambda X: np.full(len(X), 1e160),
            r"trend must predict finite numbers of at most 1e\+150",
        ),
        (lambda X: np.zeros((len(X), 2)), r"trend must predict an array of shape \(.*, 1\)"),
        (lambda X: np.zeros(3), r"trend must predict an array of shape"),
        (lambda X: 1 / 0, r"trend cannot predict these rows, got Predicts.*division"),
    ],
)
def test_invalid_predictions_are_refused(function, message):
    with pytest.raises(ValueError, match=message):
        fit(Predicts(function))


def test_an_error_of_fit_is_told_with_its_cause():
    with pytest.raises(ValueError, match=r"trend cannot be fitted to 37 rows, got Ridge") as found:
        fit(Ridge(alpha=-1))
    assert "alpha" in str(found.value.__cause__)


def test_several_outputs():
    expected = LinearRegression().fit(X, Y).predict(X)
    np.testing.assert_allclose(fit(LinearRegression(), y=Y)(given(X)).numpy(), expected)
    with pytest.raises(ValueError, match=r"trend cannot be fitted .*SVR.*MultiOutputRegressor"):
        fit(SVR(), y=Y)
    assert fit(MultiOutputRegressor(SVR()), y=Y).values.shape == (47, 2)


def test_two_rows():
    found = fit(DummyRegressor(), X[:2], Y[:2, :1])
    np.testing.assert_allclose(found.values, Y[[1, 0], :1])
