"""Classifiers that pool the votes of rows with the probabilities of a model."""

import copy
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from inner.data import TableRows
from inner.inference import with_numbers
from inner.trend import LEAST_PROBABILITY, Classes, ModelTrend, _scale
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from nona_sklearn import (
    NONAClassifier,
    SoftStepKNeighborsClassifier,
    TableEncoder,
    export_onnx,
    save,
    save_shards,
)

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "size": RNG.normal(size=120),
        "age": RNG.normal(size=120),
        "kind": pd.Categorical(RNG.choice(["flat", "house", "villa"], size=120)),
    }
)
SCORE = 3 * TABLE["size"] - TABLE["age"] + TABLE["kind"].cat.codes + RNG.normal(size=120)
Y = np.array(["low", "middle", "high"])[np.digitize(SCORE, [0, 2])]  # not in their order
X, QUERIES, NUMBERS = TABLE[:90], TABLE[90:], ["size", "age"]
KINDS = NONAClassifier, SoftStepKNeighborsClassifier
SMALL = {"max_iter": 6, "random_state": 0, "similarity": "l2"}


def as_rows(table):
    return TableRows(torch.zeros(len(table), 0), table)


def piped():
    return make_pipeline(TableEncoder(), LogisticRegression())


def nona(trend=None, kind=NONAClassifier, **params):
    settings = {"n_estimators": 1, "hidden_layer_sizes": (8,)} if kind is NONAClassifier else {}
    trend = piped() if trend is None else trend
    return kind(**(settings | SMALL | {"trend": trend} | params))


def fit(model, X=X, y=Y[:90], **parts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of training that has not converged
        return model.fit(X, y, **parts)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    return fit(nona(kind=request.param))


def shared(model, share):
    other = copy.deepcopy(model)
    other.bank_ = with_numbers(other.bank_, share=share)
    return other


def own_model(model):
    """The function of the bank, before its calibration."""
    return model.bank_.trend.trend


# -- probabilities -------------------------------------------------------------------------


def test_a_share_of_1_is_the_model_with_a_temperature(fitted):
    """Of all rows; that of the left-out rows with the least log loss."""
    slope = fitted.bank_.trend.slopes[0, 0]
    powers = piped().fit(X, Y[:90]).predict_proba(QUERIES).clip(LEAST_PROBABILITY) ** slope
    expected = powers / powers.sum(axis=1, keepdims=True)
    found = shared(fitted, 1.0).predict_proba(QUERIES)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    folds = KFold(5, shuffle=True, random_state=0)
    left_out = cross_val_predict(piped(), X, Y[:90], cv=folds, method="predict_proba")
    slopes = np.linspace(0.5, 3, 251)
    losses = []
    for each in slopes:
        powers = left_out.clip(LEAST_PROBABILITY) ** each
        losses.append(log_loss(Y[:90], powers / powers.sum(axis=1, keepdims=True)))
    assert slope == pytest.approx(slopes[np.argmin(losses)], abs=0.01)


def test_values_at_rows_are_those_of_other_folds(fitted):
    folds = KFold(5, shuffle=True, random_state=0)
    expected = cross_val_predict(piped(), X, Y[:90], cv=folds, method="predict_proba")
    found = np.exp(own_model(fitted).of_rows(np.arange(90)))
    np.testing.assert_allclose(found, expected.clip(LEAST_PROBABILITY))


def test_probabilities_are_those_of_the_rows_pooled_with_the_model(fitted):
    share = fitted.bank_.neighbors.offset.share
    rows, model = (shared(fitted, each).predict_proba(QUERIES) for each in (0.0, 1.0))
    expected = rows ** (1 - share) * model**share
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(QUERIES), expected, atol=1e-12)


class Knows(ClassifierMixin, BaseEstimator):
    """Predicts the sign of a column with a certainty, rightly or wrongly."""

    def __init__(self, right=0.99):
        self.right = right

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        p = np.where(X[:, 0] > 0, self.right, 1 - self.right)
        return np.stack([1 - p, p], axis=1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_is_that_of_what_the_model_knows(kind):
    rows = RNG.normal(size=(800, 8))
    sign = rows[:, 0] > 0
    labels = np.where(RNG.uniform(size=800) < 0.02, ~sign, sign)
    params = {"kind": kind, "validation_fraction": 0.5, "max_iter": 1}
    knows, chance = (fit(nona(Knows(right), **params), rows, labels) for right in (0.98, 0.5))
    shares = [each.bank_.neighbors.offset.share for each in (knows, chance)]
    assert shares[0] > 0.75 > shares[1]
    assert log_loss(labels, shared(knows, 1.0).predict_proba(rows)) < 0.12


@pytest.mark.parametrize("labels", ["bool", "ordered"])
def test_columns_are_the_classes_of_the_estimator(labels):
    """Whatever the order of the model's."""
    y = pd.Series(Y[:90], index=X.index)
    y = y == "high" if labels == "bool" else y.astype("category")
    if labels == "ordered":
        y = y.cat.set_categories(["low", "middle", "high"], ordered=True)
    model = shared(fit(nona(), y=y), 1.0)
    found = dict(zip(model.classes_.tolist(), model.predict_proba(QUERIES).T, strict=True))
    alone = piped().fit(X, np.asarray(y))
    for label, expected in zip(
        alone.classes_.tolist(), alone.predict_proba(QUERIES).T, strict=True
    ):
        assert np.corrcoef(found[label], expected)[0, 1] > 0.95


# -- folds without some classes ------------------------------------------------------------


def trend_of(model, y, **parts):
    """A model of one output, cross-fitted."""
    options = {"weights": None, "groups": None, "times": None, "seed": 0} | parts
    table, ids, classes = TABLE[NUMBERS][: len(y)], np.arange(len(y)), [np.unique(y)]
    return ModelTrend.fit(model, Classes(classes), ids, table, y[:, None], **options)


def test_a_class_that_a_fold_lacks_is_rare_there():
    y = np.where(np.arange(60) == 7, "a", np.where(np.arange(60) == 11, "z", Y[:60]))
    found = np.exp(trend_of(LogisticRegression(), y).of_rows(np.arange(60)))
    classes = np.unique(y).tolist()
    assert found[7, classes.index("a")] == pytest.approx(LEAST_PROBABILITY)
    assert found[11, classes.index("z")] == pytest.approx(LEAST_PROBABILITY)


def test_a_fold_with_one_class_is_nearly_certain_and_an_empty_one_has_frequencies():
    """The earliest block has nothing before it, the second one class."""
    times, y = np.arange(60.0), np.where(np.arange(60) < 14, "a", Y[:60])
    found = np.exp(trend_of(LogisticRegression(), y, times=times).of_rows(np.arange(60)))
    np.testing.assert_allclose(found[:20, 0], 1.0)
    np.testing.assert_allclose(found[:20, 1:], LEAST_PROBABILITY)
    alone = LogisticRegression().fit(TABLE[NUMBERS][:50], y[:50])
    expected = alone.predict_proba(TABLE[NUMBERS][50:60]).clip(LEAST_PROBABILITY)
    np.testing.assert_allclose(found[50:], expected)


# -- rows ----------------------------------------------------------------------------------


def test_contributions_sum_to_probabilities(fitted):
    table = fitted.explain(QUERIES)
    sums = [
        each.filter(like="contribution").sum() for _, each in table.groupby("query", sort=False)
    ]
    np.testing.assert_allclose(sums, fitted.predict_proba(QUERIES), atol=1e-6)
    assert "trend" in {*table["neighbor"]}


def test_influence_and_importances_have_the_model(fitted):
    assert np.isfinite(fitted.influence(QUERIES)["change"]).all()
    if hasattr(fitted, "feature_importances_"):
        assert fitted.feature_importances_.argmax() == 0


def test_edits_keep_the_model(fitted):
    model = copy.deepcopy(fitted)
    model.remove_neighbors(ids=[3, 50])
    kept = np.setdiff1d(np.arange(90), [3, 50])
    before = fitted.bank_.neighbors.offset.values[kept]
    torch.testing.assert_close(model.bank_.neighbors.offset.values, before)
    assert not np.isin([3, 50], own_model(model).ids).any()
    model.add_neighbors(QUERIES, Y[90:])
    expected = fitted.bank_.trend(as_rows(QUERIES))
    torch.testing.assert_close(model.bank_.neighbors.offset.values[88:], expected)
    model.compress(20)
    torch.testing.assert_close(model.bank_.trend(as_rows(QUERIES)), expected)


# -- what the model is fitted to -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["sample_weight", "class_weight"])
def test_weights_are_those_of_rows_and_classes(kind):
    weights, params = RNG.uniform(1, 9, size=90), {}
    if kind == "class_weight":
        params, weights = {"class_weight": {"low": 5.0}}, np.where(Y[:90] == "low", 5.0, 1.0)
    parts = {} if params else {"sample_weight": weights}
    model = fit(nona(LogisticRegression(), **params), X[NUMBERS], **parts)
    expected = LogisticRegression().fit(X[NUMBERS], Y[:90], weights)
    np.testing.assert_allclose(model.trend_.coef_, expected.coef_, rtol=1e-4)
    with pytest.raises(
        ValueError, match=r"trend must accept sample_weight .*or classes have, got"
    ):
        fit(nona(KNeighborsClassifier(), **params), X[NUMBERS], **parts)


@pytest.mark.parametrize("estimator", KINDS)
@pytest.mark.parametrize("kind", ["groups", "times", "column of times", "validation"])
def test_relations_of_rows_and_several_outputs(estimator, kind):
    y, table, queries = np.c_[Y, TABLE["age"] > 0].astype(object), X, QUERIES
    parts = {"groups": {"groups": RNG.integers(0, 20, size=90)}, "times": {"times": np.arange(90)}}
    parts = parts.get(kind, {})
    if kind == "column of times":
        table, queries = X.assign(day=np.arange(90.0)), QUERIES.assign(day=np.linspace(20, 99, 30))
        parts = {"times": "day"}
    if kind == "validation":
        parts = {"X_val": QUERIES, "y_val": y[90:], "add_validation": True}
    trend = make_pipeline(TableEncoder(), DecisionTreeClassifier(min_samples_leaf=5))
    model = fit(nona(trend, estimator), table, y[:90], **parts)
    for each, n_classes in zip(model.predict_proba(queries), (3, 2), strict=True):
        assert each.shape == (30, n_classes)
        np.testing.assert_allclose(each.sum(axis=1), 1)
    model.predict_proba(None)


def test_a_model_of_one_output_is_wrapped():
    y = np.c_[Y == "low", TABLE["age"] > 0].astype(int)[:90]
    boosted = HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype")
    with pytest.raises(ValueError, match=r"trend cannot be fitted .*in a MultiOutputClassifier"):
        fit(nona(boosted), y=y)
    model = shared(fit(nona(MultiOutputClassifier(boosted)), y=y), 1.0)
    slopes = np.diag(model.bank_.trend.slopes)
    assert slopes[0] == slopes[1] != slopes[2] == slopes[3]
    found = np.hstack([each[:, 1:] for each in model.predict_proba(QUERIES)])
    own = np.hstack([each[:, 1:] for each in model.trend_.predict_proba(QUERIES)])
    assert ((found > 0.5) == (own > 0.5)).all()


def test_one_class_is_certain():
    with pytest.warns(UserWarning, match="y holds one class only"):
        model = nona().fit(X[:20], np.ones(20, dtype=int))
    np.testing.assert_array_equal(model.predict_proba(QUERIES), np.ones((30, 1)))


# -- copies and files ----------------------------------------------------------------------


def test_the_fitted_model_is_an_attribute(fitted):
    expected = piped().fit(X, Y[:90]).predict_proba(QUERIES)
    for model in (fitted, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_allclose(model.trend_.predict_proba(QUERIES), expected)
        found = model.predict_proba(QUERIES)
        np.testing.assert_array_equal(found, fitted.predict_proba(QUERIES))
        assert model.trend_ is own_model(model).functions[-1]
    assert not hasattr(fitted.trend, "classes_")


def test_files_of_numbers_refuse_it(fitted, tmp_path):
    message = r"trend must be no model for {}, got Pipeline"
    with pytest.raises(TypeError, match=message.format("a file without code")):
        save(fitted, tmp_path / "model.nona")
    with pytest.raises(TypeError, match=message.format("an ONNX graph")):
        export_onnx(fitted, tmp_path / "model.onnx")
    with pytest.raises(TypeError, match="trend must be no model for shards"):
        save_shards(fitted, tmp_path / "shards", 2)
    other = copy.deepcopy(fitted).set_neighbor_targets(Y[:90])  # which have no trend
    with pytest.raises(TypeError, match=message.format("a file without code")):
        save(other, tmp_path / "model.nona")
    assert not [*tmp_path.iterdir()]


def test_its_parameters_are_searched():
    model = nona(LogisticRegression(), max_iter=1)
    search = fit(GridSearchCV(model, {"trend__C": [0.01, 0.1]}, cv=2), X[NUMBERS])
    assert search.best_params_["trend__C"] == search.best_estimator_.trend_.C
    assert model.trend.C == 1.0


# -- what cannot be ------------------------------------------------------------------------


class Predicts(Knows):
    """Predicts what a function makes of the rows."""

    def __init__(self, function):
        self.function = function

    def predict_proba(self, X):
        return self.function(X)


class OtherLabels(Knows):
    """Renames its labels."""

    def fit(self, X, y):
        self.classes_ = np.arange(len(np.unique(y)))
        return self


def test_a_row_of_weight_2_is_two_rows_in_the_temperature():
    random = np.random.default_rng(0)
    values, one_hot = random.normal(size=(60, 3)), np.eye(3)[random.integers(0, 3, size=60)]
    one_hot[:30] = values[:30].argmax(axis=1)[:, None] == np.arange(3)
    weights = np.r_[np.full(30, 2.0), np.ones(30)]
    twice = np.r_[np.arange(30), np.arange(60)]
    slopes, _ = _scale(values, one_hot, weights)
    repeated, _ = _scale(values[twice], one_hot[twice], np.ones(90))
    np.testing.assert_allclose(slopes, repeated, rtol=1e-4)  # by a search
    assert slopes[0, 0] > 1.05 * _scale(values, one_hot, np.ones(60))[0][0, 0]


class Unnamed(ClassifierMixin, BaseEstimator):
    """Does not say which classes its probabilities are of."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))

    def predict_proba(self, X):
        return np.full((len(X), 3), 1 / 3)


KIND = "trend must be a name, None or a classifier of scikit-learn's interface, got "


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("trend", "error"),
    [
        (Ridge(), KIND + re.escape("Ridge()")),
        (LogisticRegression, "trend must be an object, such as LogisticRegression"),
        (Perceptron(), r"trend must have predict_proba, got Perceptron\(\)"),
        (make_pipeline(Perceptron()), "trend must have predict_proba, got Pipeline"),
        (FrozenEstimator(LogisticRegression()), "trend must be fitted to parts of the rows"),
        ("kernle", "'trend' parameter .* Got 'kernle'"),
        (LogisticRegression(C=-1.0), "trend cannot be fitted to 72 rows, got LogisticRegression"),
        (Predicts(lambda X: np.full((len(X), 3), np.nan)), "trend must predict finite numbers"),
        (
            Predicts(lambda X: np.ones((len(X), 2))),
            r"trend must predict an array of shape \(18, 3",
        ),
        (Predicts(lambda X: -np.ones((len(X), 3))), "trend must predict probabilities, got Pred"),
        (Predicts(lambda X: np.zeros((len(X), 3))), "trend must predict probabilities"),
        (Unnamed(), r"trend must have classes_ once it is fitted, got Unnamed"),
        (Predicts(lambda X: [X, X]), "trend must predict the probabilities of 1 outputs"),
        (Predicts(lambda X: 1 / 0), "trend cannot predict these rows, got Predicts.*division"),
        (OtherLabels(), r"trend must have labels of y as its classes_, .* with \[0, 1, 2\]"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_errors_name_the_trend_before_networks_are_trained(kind, trend, error, monkeypatch):
    def fail(*_, **__):
        raise AssertionError

    monkeypatch.setattr("inner.estimators.fitting.train_networks", fail)
    with pytest.raises(ValueError, match=error):
        nona(trend, kind).fit(X[NUMBERS].to_numpy(), Y[:90])


def test_it_needs_columns_of_a_table():
    model = nona(LogisticRegression(), feature_extractor=nn.Linear(2, 3))
    with pytest.raises(ValueError, match="trend must be None with a feature_extractor, got Logi"):
        model.fit(X[NUMBERS].to_numpy(np.float32), Y[:90])
