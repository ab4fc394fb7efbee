"""``kneighbors``, as every caller of scikit-learn's neighbours expects it."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from sklearn.datasets import load_iris
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from sklearn.utils import check_array

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*networks predict validation rows no better")

RNG = np.random.RandomState(0)
X, QUERIES = RNG.normal(size=(60, 3)), RNG.normal(size=(7, 3))
Y = X[:, 0]
QUICK = {"max_iter": 2, "random_state": 0}
GIVEN_SPACE = {"weighting": "uniform", "learn_feature_weights": False, "trend": None}
ESTIMATORS = {
    "regressor": NONARegressor(n_estimators=1, **QUICK),
    "several networks": NONARegressor(n_estimators=3, adjust=True, **QUICK),
    "several networks, l1": NONARegressor(n_estimators=2, similarity="l1", **QUICK),
    "several networks, cosine": NONARegressor(n_estimators=2, similarity="cosine", **QUICK),
    "dot": NONARegressor(n_estimators=1, similarity="dot", **QUICK),
    "classifier": NONAClassifier(n_estimators=1, **QUICK),
    "given space": SoftStepKNeighborsRegressor(5, **GIVEN_SPACE),
    "trees": SoftStepKNeighborsRegressor(5, algorithm="kd_tree", **GIVEN_SPACE),
}


def in_given_space(X, y, k=3, **options):
    return SoftStepKNeighborsRegressor(k, **(GIVEN_SPACE | options)).fit(X, y)


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    estimator = ESTIMATORS[request.param]
    return estimator.fit(X, Y > 0 if request.param == "classifier" else Y)


@pytest.fixture(scope="module")
def given():
    return in_given_space(X, Y)


@pytest.fixture(scope="module")
def flowers():
    data, kinds = load_iris(return_X_y=True)
    options = {"weighting": "uniform", "learn_feature_weights": False, "smoothing": False}
    knn = SoftStepKNeighborsClassifier(10, max_iter=1, **options)
    return knn.fit(data, kinds), data, kinds


@pytest.mark.parametrize("queries", [QUERIES, None], ids=["queries", "None"])
@pytest.mark.parametrize("k", [4, 59])
def test_neighbours_are_those_of_scikit_learn_in_the_transformed_space(fitted, queries, k):
    nearest = NearestNeighbors(n_neighbors=k, metric=fitted.effective_metric_)
    nearest.fit(fitted.transform(X))
    transformed = None if queries is None else fitted.transform(queries)
    expected, rows = nearest.kneighbors(transformed)
    distances, ids = fitted.kneighbors(queries, k)
    np.testing.assert_allclose(distances, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ids, rows)
    assert (np.diff(distances, axis=1) >= 0).all()
    np.testing.assert_array_equal(fitted.kneighbors(queries, k, return_distance=False), ids)
    np.testing.assert_array_equal(fitted.neighborhood(queries)["distance"], distances[:, 0])


def test_predictions_in_the_given_space_are_means_over_the_neighbours():
    for similarity in ("l2", "l1", "cosine"):
        knn = in_given_space(X, Y, similarity=similarity)
        means = Y[knn.kneighbors(QUERIES, return_distance=False)].mean(axis=1)
        np.testing.assert_allclose(knn.predict(QUERIES), means, rtol=1e-5)


def test_the_default_number_is_that_of_the_estimator(given):
    assert given.kneighbors(QUERIES)[1].shape == (7, 3)
    assert given.kneighbors()[1].shape == (60, 3)
    learned = SoftStepKNeighborsRegressor(learn_feature_weights=False, max_iter=1).fit(X, Y)
    assert learned.kneighbors(QUERIES)[1].shape == (7, 5)


@pytest.mark.parametrize(
    ("X", "k", "message"),
    [
        (QUERIES, 61, "n_neighbors must be an integer from 1 to 60, got 61"),
        (None, 60, "n_neighbors must be an integer from 1 to 59, got 60"),
        (QUERIES, 0, "n_neighbors must be .*, got 0"),
        (QUERIES, 2.0, r"n_neighbors must be .*, got 2\.0"),
    ],
)
def test_bad_numbers(given, X, k, message):
    for method in (given.kneighbors, given.heaviest_neighbors):
        with pytest.raises(ValueError, match=message):
            method(X, k)


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree"])
def test_of_equally_near_rows_the_first_come_first(algorithm):
    X = np.repeat(np.arange(5.0), 4)[:, None]
    knn = in_given_space(X, X[:, 0], algorithm=algorithm)
    distances, ids = knn.kneighbors([[2.0], [0.0]], 6)
    assert ids[:, :4].tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    np.testing.assert_array_equal(distances[:, :4], 0)
    assert ids[0, 4:].tolist() == [4, 5]  # 1 and 3 are equally near to 2
    _, others = knn.kneighbors(None, 3)  # twins, but never the row itself
    assert others[:4].tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_ids_are_row_numbers_of_all_data_that_were_given():
    """As callers do, targets are indexed by them, whatever rows the bank has lost."""
    y = np.round(Y, 3)
    knn = in_given_space(X, y).remove_neighbors(ids=[0, 7, 31])
    knn.add_neighbors(QUERIES, np.zeros(7))
    every = np.r_[y, np.zeros(7)]
    _, ids = knn.kneighbors(QUERIES, 1)
    assert ids.ravel().tolist() == [*range(60, 67)]
    means = every[knn.kneighbors(X)[1]].mean(axis=1)
    np.testing.assert_allclose(knn.predict(X), means, atol=1e-6)
    graph = knn.neighbor_weights()
    assert graph.shape == (64, 64)
    np.testing.assert_allclose(graph @ knn.bank_.targets.numpy(), knn.predict(None), atol=1e-6)
    weights = np.ones(60)
    weights[::2] = 0
    weighted = SoftStepKNeighborsRegressor(3, **GIVEN_SPACE).fit(X, y, sample_weight=weights)
    assert (weighted.kneighbors(QUERIES)[1] % 2 == 1).all()


def test_rows_that_a_query_must_not_see_are_no_neighbours():
    times = np.arange(60) // 2
    reg = NONARegressor(n_estimators=1, **QUICK).fit(X, Y, times=times)
    distances, ids = reg.kneighbors(None, 4)
    seen = np.where(ids < 0, -1, times[ids])
    assert (seen < times[:, None]).all()
    assert np.isinf(distances[ids < 0]).all()
    assert np.isfinite(distances[ids >= 0]).all()
    assert (ids[:2] == -1).all()
    space = reg.transform(X)
    for i in (10, 59):
        earlier = np.flatnonzero(times < times[i])
        nearest = NearestNeighbors(n_neighbors=4).fit(space[earlier])
        assert ids[i].tolist() == earlier[nearest.kneighbors(space[[i]])[1][0]].tolist()
    np.testing.assert_array_equal(reg.neighborhood()["distance"], distances[:, 0])


def test_graphs_of_scikit_learn_are_those_of_the_space(flowers):
    knn, data, kinds = flowers
    graph = kneighbors_graph(knn.transform(data), 15, mode="distance")
    distances = knn.kneighbors(None, 15)[0]
    found = np.sort(graph.data.reshape(distances.shape), axis=1)
    np.testing.assert_allclose(found, distances, rtol=1e-4, atol=1e-5)
    weights = knn.neighbor_weights()
    check_array(weights, accept_sparse=True, accept_large_sparse=False)
    for links in (graph, weights):
        _, parts = connected_components(links)
        assert len({*parts[kinds == 0]}) == 1
        assert not {*parts[kinds == 0]} & {*parts[kinds > 0]}  # setosas are by themselves
