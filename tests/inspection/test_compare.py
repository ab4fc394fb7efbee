import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, PredefinedSplit
from sklearn.pipeline import make_pipeline
from torch import nn

from nona_sklearn import (
    NONARegressor,
    Rows,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    compare_heads,
)
from nona_sklearn._estimators.dense import DenseHeadRegressor
from nona_sklearn._inspection.compare_heads import tune_knn
from nona_sklearn.weighting import SparseSoftmax


def regressor(**kwargs):
    settings = {"n_estimators": 1, "max_iter": 4, "random_state": 0}
    return NONARegressor(**{**settings, **kwargs})


@pytest.mark.slow
def test_columns_are_those_of_a_loop_over_the_heads(plane):
    X, _, y, _ = plane
    cv = KFold(2, shuffle=True, random_state=0)
    heads = ["nona", "adjusted", "dense"]
    scores = compare_heads(regressor(), X, y, cv=cv, scoring="r2", heads=heads)
    assert list(scores) == [name for head in heads for name in (head, f"{head} + k-NN")]
    for i, (train, test) in enumerate(cv.split(X)):
        for name, reg in [
            ("nona", regressor(adjust=False)),
            ("adjusted", regressor(adjust=True)),
            ("dense", DenseHeadRegressor(**regressor().get_params())),
        ]:
            reg.fit(X[train], y[train])
            np.testing.assert_allclose(scores[name][i], reg.score(X[test], y[test]))
            folds = np.full(len(train), -1)
            folds[reg.validation_indices_[0]] = 0
            knn = tune_knn(reg.transform(X[train]), y[train], PredefinedSplit(folds))
            np.testing.assert_allclose(
                scores[f"{name} + k-NN"][i], knn.score(reg.transform(X[test]), y[test]), atol=1e-5
            )


@pytest.mark.slow
@pytest.mark.parametrize("adjust", [True, False])
def test_all_heads_by_default_whether_the_estimator_adjusts_or_not(plane, adjust):
    X, _, y, _ = plane
    reg, other = (regressor(adjust=own, max_iter=1) for own in (adjust, not adjust))
    scores, expected = (compare_heads(each, X, y, cv=2) for each in (reg, other))
    names = ["dense", "nona", "adjusted"]
    assert list(scores) == [name for head in names for name in (head, f"{head} + k-NN")]
    for name in scores:
        np.testing.assert_array_equal(scores[name], expected[name])
    assert (scores["nona"] != scores["adjusted"]).all()
    assert reg.adjust == adjust


@pytest.mark.slow
def test_neighbours_are_weighed_as_in_the_estimator(plane):
    X, _, y, _ = plane
    split = [(np.arange(80), np.arange(80, 120))]
    nearest = regressor(weighting=SparseSoftmax(1))
    scores = compare_heads(nearest, X, y, heads=["dense", "nona"], cv=split, scoring="r2")
    own = regressor(weighting=SparseSoftmax(1), adjust=False).fit(X[:80], y[:80])
    assert scores["nona"] == own.score(X[80:], y[80:])
    assert np.isin(own.predict(X[80:]).astype(np.float32), y.astype(np.float32)).all()
    plain = compare_heads(regressor(), X, y, heads=["dense"], cv=split, scoring="r2")
    assert scores["dense"] == plain["dense"]  # it has no neighbours


@pytest.mark.slow
@pytest.mark.parametrize("head", ["dense", "nona", "adjusted"])
def test_every_head_learns(plane, head):
    X = plane[0]
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    reg = regressor(max_iter=40, n_estimators=2)
    cv = [(np.arange(100), np.arange(100, 120))]
    scores = compare_heads(reg, X, y, heads=[head], cv=cv, scoring="r2")
    assert scores[head] > 0.8
    assert scores[f"{head} + k-NN"] > 0.8


@pytest.mark.slow
def test_several_outputs(plane):
    X, X_test, _, _ = plane
    Y = np.column_stack([X[:, 0], 10 - 3 * X[:, 1]])  # a dense head learns no rings from 120 rows
    for cls in (DenseHeadRegressor, NONARegressor):
        reg = cls(n_estimators=2, max_iter=30, random_state=0).fit(X, Y)
        predictions = reg.predict(X_test)
        assert predictions.shape == (30, 2)
        assert np.corrcoef(predictions[:, 0], X_test[:, 0])[0, 1] > 0.95
        assert np.corrcoef(predictions[:, 1], X_test[:, 1])[0, 1] < -0.95


def test_constant_targets(plane):
    y = np.full(120, 7.0)
    reg = DenseHeadRegressor(n_estimators=1, max_iter=2, random_state=0).fit(plane[0], y)
    np.testing.assert_allclose(reg.predict(plane[1]), 7.0, atol=2)


@pytest.mark.slow
def test_rows_may_be_given():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2, 3)), rng.normal(size=40)
    reg = regressor(feature_extractor=nn.Flatten, max_iter=1)
    rows, array = (compare_heads(reg, data, y, heads=["nona"], cv=2) for data in (Rows(X), X))
    np.testing.assert_allclose(rows["nona"], array["nona"])


@pytest.mark.first
@pytest.mark.slow
def test_extractors_groups_and_parallel_runs():
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(40, 2, 3)), rng.normal(size=40), np.repeat(range(10), 4)
    reg = regressor(feature_extractor=nn.Flatten, max_iter=1)
    one, two = (
        compare_heads(reg, {"input": X}, y, groups=groups, cv=2, n_jobs=n_jobs)
        for n_jobs in (None, 2)
    )
    for name, values in one.items():
        np.testing.assert_allclose(two[name], values, rtol=1e-5)
        assert (values < 0).all()


@pytest.mark.slow
def test_without_validation_neighbours_are_tuned_by_cross_validation(plane):
    X, _, y, _ = plane
    scores = compare_heads(regressor(early_stopping=False), X, y, heads=["nona"], cv=2)
    assert np.isfinite(scores["nona + k-NN"]).all()


def test_neighbours_are_chosen_where_they_were_not_trained_on():
    """Of noisy copies, one neighbour is the best where there are copies, many are elsewhere."""
    rng = np.random.default_rng(0)
    X = np.linspace(0, 1, 120)[:, None]
    y = rng.normal(size=120)
    copies = np.r_[X, X[:80]], np.r_[y, y[:80]]
    seen = PredefinedSplit(np.r_[np.full(120, -1), np.zeros(80)])
    new = PredefinedSplit(np.r_[np.full(80, -1), np.zeros(40), np.full(80, -1)])
    assert tune_knn(*copies, seen).best_params_["n_neighbors"] == 1
    assert tune_knn(*copies, new).best_params_["n_neighbors"] >= 10


def test_knn_may_take_all_rows_that_the_smallest_fold_leaves():
    X, y = np.arange(20.0)[:, None], np.zeros(20)
    for left, expected in ((10, [1, 3, 5, 10]), (9, [1, 3, 5])):
        folds = PredefinedSplit(np.r_[np.full(left, -1), np.zeros(20 - left)])
        tried = tune_knn(X, y, folds).cv_results_["param_n_neighbors"]
        assert sorted({*tried}) == expected


@pytest.mark.parametrize(
    "estimator",
    [
        SoftStepKNeighborsRegressor(),
        SoftStepKNeighborsClassifier(),
        make_pipeline(NONARegressor()),
        Ridge(),
    ],
)
def test_estimators_that_cannot_change_their_head_are_refused(plane, estimator):
    with pytest.raises(TypeError, match=r"must be a NONARegressor or NONAClassifier, .* got "):
        compare_heads(estimator, plane[0], plane[2])


def test_unknown_heads_are_refused(plane):
    with pytest.raises(ValueError, match=r"heads must be one of \['adjusted', 'dense', 'nona'\]"):
        compare_heads(regressor(), plane[0], plane[2], heads=["hybrid"])


@pytest.mark.parametrize("missing", ["X", "y"])
def test_missing_data_is_named(plane, missing):
    data = {"X": plane[0], "y": plane[2], missing: None}
    with pytest.raises(ValueError, match=f"{missing} must be an array-like, got None"):
        compare_heads(NONARegressor(), **data)
