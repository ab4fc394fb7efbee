"""The parameter `algorithm`: how a query's nearest rows are found."""

import copy
import sys

import numpy as np
import pytest
from inner.estimators import fitting
from sklearn.base import BaseEstimator, clone
from sklearn.neighbors import KNeighborsTransformer

from nona_sklearn import (
    NONAClassifier,
    NONAHead,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
)

REGRESSORS = (NONARegressor, SoftStepKNeighborsRegressor)
ESTIMATORS = (*REGRESSORS, NONAClassifier, SoftStepKNeighborsClassifier)


def data(kind, n=60):
    random = np.random.RandomState(0)
    X = random.randn(n, 3)
    y = X[:, 0] + X[:, 1] ** 2
    return X, y if kind in REGRESSORS else (y > 1).astype(int)


def quick(kind, **parameters):
    return kind(max_iter=2, random_state=0, **parameters)


@pytest.fixture
def no_training(monkeypatch):
    """Training fails, so that an error that is raised came before it."""

    def train(*_):
        raise AssertionError("training began")

    monkeypatch.setattr("inner.estimators.fitting.train_networks", train)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    ("algorithm", "similarity"),
    [("kd_tree", "dot"), ("hnsw", "dot"), ("hnsw", "l1")],
)
def test_an_algorithm_that_cannot_do_the_similarity(kind, algorithm, similarity):
    with pytest.raises(ValueError, match=f"algorithm='{algorithm}' .*similarity='{similarity}'"):
        quick(kind, algorithm=algorithm, similarity=similarity).fit(*data(kind))


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("algorithm", ["kd_tree", "hnsw", KNeighborsTransformer()])
@pytest.mark.parametrize(
    ("kind", "parameters", "named"),
    [
        (NONARegressor, {"n_neighbors": None}, "n_neighbors=None, .*weighting='softmax'"),
        (NONARegressor, {"weighting": "preconditioned"}, "weighting='preconditioned'"),
        (NONAClassifier, {"softstep": "s1", "n_neighbors": 5}, "softstep='s1'"),
        (
            SoftStepKNeighborsRegressor,
            {"softstep": "s2", "n_neighbors": None},
            "n_neighbors=None, softstep='s2'",
        ),
        (
            SoftStepKNeighborsClassifier,
            {"softstep": SoftStep("s1"), "n_neighbors": 9},
            r"n_neighbors=9, softstep=SoftStep\('s1'",
        ),
    ],
)
def test_weights_that_do_not_end(kind, parameters, named, algorithm):
    with pytest.raises(ValueError, match=rf"(?s)algorithm='?{algorithm}.*{named}"):
        quick(kind, algorithm=algorithm, **parameters).fit(*data(kind))


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("algorithm", ["annoy", None, 3, object()])
def test_no_algorithm(kind, algorithm):
    with pytest.raises(ValueError, match="The 'algorithm' parameter"):
        quick(kind, algorithm=algorithm).fit(*data(kind))


@pytest.mark.usefixtures("no_training")
def test_a_class_is_no_transformer():
    with pytest.raises(TypeError, match=r"algorithm must be a name or .* transformer"):
        quick(NONARegressor, algorithm=KNeighborsTransformer).fit(*data(NONARegressor))


@pytest.mark.usefixtures("no_training")
def test_faiss_is_looked_for_before_training(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    kind = SoftStepKNeighborsRegressor
    with pytest.raises(ImportError, match="extra 'approximate'"):
        quick(kind, algorithm="hnsw").fit(*data(kind))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_parameters_of_a_transformer_are_the_estimators(kind):
    estimator = kind(algorithm=KNeighborsTransformer(n_neighbors=7))
    assert clone(estimator).get_params()["algorithm__n_neighbors"] == 7
    assert estimator.set_params(algorithm__n_neighbors=9).algorithm.n_neighbors == 9


# -- the same results, whichever way they are found ----------------------------------------------


def assert_same_results(ours, theirs, X):
    """To the rounding of float32, in which similarities are."""
    for queries in (X, None):
        methods = ["predict", "neighbor_weights"]
        methods += ["predict_proba" if hasattr(theirs, "classes_") else "predict_quantiles"]
        for method in methods:
            found, expected = (getattr(each, method)(queries) for each in (ours, theirs))
            if method == "neighbor_weights":
                found, expected = found.toarray(), expected.toarray()
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        sizes = (each.neighborhood(queries)["effective_n_neighbors"] for each in (ours, theirs))
        np.testing.assert_allclose(*sizes, rtol=1e-5, atol=1e-5)
        of_each = [each.explain(queries) for each in (ours, theirs)]
        np.testing.assert_array_equal(*(table["neighbor"] for table in of_each))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["kd_tree", KNeighborsTransformer(n_neighbors=40)])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_results_do_not_depend_on_an_exact_algorithm(kind, algorithm):
    X, y = data(kind)
    exact = quick(kind, n_neighbors=12, similarity="l2").fit(X, y)
    other = quick(kind, n_neighbors=12, similarity="l2", algorithm=algorithm).fit(X, y)
    assert_same_results(other, exact, X[:9] + 0.1)
    for estimator in (exact, other):
        estimator.add_neighbors(X[:3] + 1, y[:3])
        estimator.remove_neighbors(ids=[5, 6])
    assert_same_results(other, exact, X[:9] + 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_graph_of_few_rows_leads_to_all_of_the_nearest(kind):
    pytest.importorskip("faiss")
    X, y = data(kind)
    exact = quick(kind, n_neighbors=12, similarity="l2").fit(X, y)
    graph = quick(kind, n_neighbors=12, similarity="l2", algorithm="hnsw").fit(X, y)
    assert_same_results(graph, exact, X[:9] + 0.1)
    assert_same_results(copy.deepcopy(graph), exact, X[:9] + 0.1)


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree"])
def test_groups_of_any_size_are_left_out(algorithm):
    """Fit calibrates by rows without their groups: as many more rows are searched."""
    X, y = data(NONARegressor)
    groups = np.minimum(np.arange(60) // 4, 10)  # the last one has 20 rows
    reg = quick(NONARegressor, n_neighbors=6, algorithm=algorithm, validation_fraction=None)
    reg.fit(X, y, groups=groups)
    head, bank = reg.network_.head, reg.bank_
    weights = bank.evaluate(head, leave_out="group").sparse_weights().toarray()
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights[groups[:, None] == groups] == 0).all()
    assert ((weights > 0).sum(axis=1) <= 6).all()


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_a_graph_is_built_once_for_many_queries_and_edits(monkeypatch):
    faiss = pytest.importorskip("faiss")
    X, y = data(NONARegressor)
    build, built = faiss.IndexHNSWFlat, []
    monkeypatch.setattr(faiss, "IndexHNSWFlat", lambda *args: built.append(args) or build(*args))
    reg = quick(NONARegressor, n_neighbors=6, n_estimators=2, algorithm="hnsw").fit(X, y)
    for method in (reg.predict, reg.explain, reg.predict_quantiles):
        method(X[:3])
    assert len(built) == 2  # one for each network
    reg.set_neighbor_targets(-y)
    reg.predict(X[:3])
    assert len(built) == 2  # the same rows
    reg.remove_neighbors(ids=[0])
    reg.predict(X[:3])
    reg.add_neighbors(X[:2], y[:2])
    reg.predict(X[:3])
    assert len(built) == 2
    reg.remove_neighbors(ids=np.arange(1, 40))  # most of them
    reg.predict(X[:3])
    assert len(built) == 4


def test_a_transformer_of_too_few_neighbors_is_named_before_training(monkeypatch):
    X, y = data(NONARegressor)
    reg = quick(NONARegressor, n_neighbors=12, n_estimators=1)
    reg.set_params(algorithm=KNeighborsTransformer(n_neighbors=13)).fit(X, y)
    before = reg.predict(X[:3])
    monkeypatch.setattr(fitting, "train_networks", None)
    reg.set_params(algorithm=KNeighborsTransformer(n_neighbors=12))
    message = r"KNeighborsTransformer\(n_neighbors=12\) finds 13 neighbors .*, 14 are needed"
    with pytest.raises(ValueError, match=message):
        reg.fit(X, y)
    np.testing.assert_array_equal(reg.predict(X[:3]), before)


def test_auto_takes_as_many_neighbors_as_a_transformer_finds():
    X, y = np.random.default_rng(0).normal(size=(2, 120, 1))  # nothing to learn: many are best
    y = y[:, 0]
    reg = NONARegressor(n_estimators=1, max_iter=2, random_state=0)
    reg.set_params(algorithm=KNeighborsTransformer(n_neighbors=11)).fit(X, y)
    assert all(head.n_neighbors <= 10 for head in heads(reg))
    assert np.isfinite(reg.predict(None)).all()


def heads(estimator):
    """The heads of an estimator's networks."""
    return [each for each in estimator.network_.modules() if isinstance(each, NONAHead)]


class AllNeighbors(BaseEstimator):
    """A transformer whose number of neighbours is that of the rows, unless it is stated."""

    def __init__(self, n_neighbors=None):
        self.n_neighbors = n_neighbors

    def fit(self, X, y=None):
        n_neighbors = self.n_neighbors or len(X) - 1
        self.transformer_ = KNeighborsTransformer(n_neighbors=n_neighbors).fit(X)
        return self

    def transform(self, X):
        return self.transformer_.transform(X)


@pytest.mark.slow
@pytest.mark.parametrize("n_neighbors", [6, "auto"])
def test_a_transformer_that_states_no_number_of_neighbors(n_neighbors):
    X, y = data(NONARegressor)
    reg = quick(NONARegressor, n_neighbors=n_neighbors, n_estimators=1, similarity="l2")
    reg.fit(X, y)
    theirs = clone(reg).set_params(algorithm=AllNeighbors()).fit(X, y)
    np.testing.assert_allclose(theirs.predict(X), reg.predict(X), rtol=1e-12)
