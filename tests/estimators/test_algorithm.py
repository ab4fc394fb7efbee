"""The parameter `algorithm`: how a query's nearest rows are found."""

import builtins

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsTransformer

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
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

    monkeypatch.setattr("nona_sklearn._estimators.fitting.train_networks", train)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    ("algorithm", "similarity"),
    [("kd_tree", "dot"), ("ball_tree", "dot"), ("hnsw", "dot"), ("hnsw", "l1")],
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
        (SoftStepKNeighborsRegressor, {"softstep": "s2"}, "n_neighbors=None, softstep='s2'"),
        (
            SoftStepKNeighborsClassifier,
            {"softstep_on": "similarity", "n_neighbors": 9},
            "n_neighbors=9, .*softstep_on='similarity'",
        ),
    ],
)
def test_weights_that_do_not_end(kind, parameters, named, algorithm):
    if "n_neighbors" in parameters and "n_neighbors" not in kind().get_params():
        pytest.skip("until NONA has n_neighbors")
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
    imported = builtins.__import__

    def without_faiss(name, *arguments, **options):
        if name == "faiss":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_faiss)
    kind = SoftStepKNeighborsRegressor
    with pytest.raises(ImportError, match="extra 'approximate'"):
        quick(kind, algorithm="hnsw").fit(*data(kind))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_parameters_of_a_transformer_are_the_estimators(kind):
    estimator = kind(algorithm=KNeighborsTransformer(n_neighbors=7))
    assert clone(estimator).get_params()["algorithm__n_neighbors"] == 7
    assert estimator.set_params(algorithm__n_neighbors=9).algorithm.n_neighbors == 9
