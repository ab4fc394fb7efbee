import copy
import pickle
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_no_attributes_set_in_init

from nona_sklearn import (
    ApproximateNeighborsRegressor,
    NONARegressor,
    SoftStepKNeighborsRegressor,
)
from nona_sklearn._targets import RegressionTargets
from nona_sklearn.weighting import WEIGHTINGS, Entmax, Preconditioned, SparseSoftmax


@pytest.fixture
def faiss():
    return pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    return X[:300], X[300:], X[:300, 0] + X[:300, 1] ** 2


@pytest.fixture(scope="module")
def fitted(data):
    X, _, y = data
    return NONARegressor(n_estimators=2, max_iter=5, random_state=0).fit(X, y)


def test_all_rows_as_candidates_are_exact(faiss, fitted, data):
    X, X_test, y = data
    fast = ApproximateNeighborsRegressor(FrozenEstimator(fitted), n_candidates=1000).fit(X, y)
    np.testing.assert_allclose(fast.predict(X_test), fitted.predict(X_test), atol=1e-5)
    comparison = fast.compare(X_test)
    assert comparison["recall"] == 1
    assert comparison["weight"] == pytest.approx(1)
    assert comparison["error"] < 1e-5
    assert fast.n_features_in_ == 4


@pytest.mark.parametrize("weighting", [name for name in WEIGHTINGS if name != "uniform"])
def test_all_rows_as_candidates_are_exact_however_they_weigh(faiss, data, weighting):
    X, X_test, y = data
    reg = NONARegressor(weighting=weighting, n_estimators=1, max_iter=2, random_state=0).fit(X, y)
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=300).fit(X, y)
    np.testing.assert_allclose(fast.predict(X_test), reg.predict(X_test), atol=1e-5)
    assert fast.compare(X_test)["recall"] == 1


@pytest.mark.parametrize("weighting", [SparseSoftmax(10), Entmax(2.0), Preconditioned(10)])
def test_candidates_that_are_more_than_count_are_exact(faiss, data, weighting):
    X, X_test, y = data
    reg = NONARegressor(weighting=weighting, n_estimators=1, max_iter=2, random_state=0).fit(X, y)
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=100).fit(X, y)
    np.testing.assert_allclose(fast.predict(X_test), reg.predict(X_test), atol=1e-5)
    assert fast.compare(X_test)["recall"] == 1


def test_shifts_of_far_queries_fade_as_they_do_exactly(faiss, fitted, data):
    """More than half of them are beyond a reach that we make shorter."""
    X, X_test, y = data
    reg = copy.deepcopy(fitted)
    _, question = reg._ask(X_test)
    medians = question.distances().median(dim=0).values
    for head, distance in zip(reg.network_.head.heads, medians, strict=True):
        head.reach.copy_(distance / 2)
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=1000).fit(X, y)
    np.testing.assert_allclose(fast.predict(X_test), reg.predict(X_test), atol=1e-5)
    assert np.abs(reg.predict(X_test) - fitted.predict(X_test)).max() > 1e-3
    assert fast.compare(X_test)["error"] < 1e-5


def test_compare_tells_what_few_candidates_lose(faiss, fitted, data):
    X, X_test, y = data
    fast = ApproximateNeighborsRegressor(FrozenEstimator(fitted), n_candidates=5).fit(X, y)
    comparison = fast.compare(X_test)
    weights, _ = fitted.kneighbors(X_test, 10)
    assert comparison["recall"] > 0.9
    assert 0 < comparison["weight"] <= weights.sum(axis=1).mean() + 0.01  # 5 rows a network
    difference = fast.predict(X_test) - fitted.predict(X_test)
    assert comparison["error"] == pytest.approx(np.sqrt(np.mean(difference**2)))
    assert comparison["error"] > 1e-3


def test_several_outputs_and_log_distances(faiss, data):
    X, X_test, y = data
    reg = NONARegressor(n_estimators=1, max_iter=3, similarity="log_l2", random_state=0)
    both = np.stack([y, -y], axis=1)
    fast = ApproximateNeighborsRegressor(reg, n_candidates=300).fit(X, both)
    np.testing.assert_allclose(fast.predict(X_test), fast.regressor_.predict(X_test), atol=1e-5)


def test_pickles_and_clones(faiss, fitted, data):
    X, X_test, y = data
    fast = ApproximateNeighborsRegressor(FrozenEstimator(fitted), n_candidates=20).fit(X, y)
    again = pickle.loads(pickle.dumps(fast))
    np.testing.assert_array_equal(again.predict(X_test), fast.predict(X_test))
    assert not hasattr(clone(fast), "regressor_")
    check_no_attributes_set_in_init("ApproximateNeighborsRegressor", fast)


@pytest.mark.parametrize(
    ("regressor", "message"),
    [
        (SoftStepKNeighborsRegressor(), "softstep='s1'"),
        (NONARegressor(similarity="dot"), "similarity='dot'"),
        (clone(NONARegressor(softstep="s2")), "softstep='s2'"),
    ],
)
def test_refuses_weights_that_are_no_function_of_distance(faiss, data, regressor, message):
    X, _, y = data
    with pytest.raises(ValueError, match=message):
        ApproximateNeighborsRegressor(regressor).fit(X, y)


def test_other_regressors_and_counts_are_refused(faiss, data):
    X, _, y = data
    with pytest.raises(ValueError, match="regressor must be a NONARegressor"):
        ApproximateNeighborsRegressor(pytest.importorskip("sklearn.dummy").DummyRegressor()).fit(
            X, y
        )
    with pytest.raises(ValueError, match="n_candidates"):
        ApproximateNeighborsRegressor(NONARegressor(), n_candidates=0).fit(X, y)


def test_says_what_to_install(monkeypatch, data):
    X, _, y = data
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"pip install nona_sklearn\[approximate\]"):
        ApproximateNeighborsRegressor(NONARegressor()).fit(X, y)


def test_the_index_follows_edits_of_the_bank(faiss, fitted, data):
    """All rows as candidates are exact, whatever has come and gone since the fit."""
    X, X_test, y = data
    reg = copy.deepcopy(fitted)
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=1000).fit(X, y)
    edits = [
        lambda: reg.set_neighbor_targets(-y),
        lambda: reg.remove_neighbors(np.arange(0, 300, 2)),
        lambda: reg.add_neighbors(X_test[:20], np.zeros(20)),
        lambda: reg.compress(30),
    ]
    for edit in edits:
        edit()
        np.testing.assert_allclose(fast.predict(X_test), reg.predict(X_test), atol=1e-5)
        assert fast.compare(X_test)["error"] < 1e-5


@pytest.mark.parametrize("asked", [False, True])
def test_a_removed_row_is_not_in_the_pickle(faiss, fitted, data, asked):
    X, X_test, y = data
    reg = copy.deepcopy(fitted)
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=50).fit(X, y)
    secret = reg.bank_.embeddings[17].numpy().tobytes()[:64]
    assert secret in pickle.dumps(fast)
    reg.remove_neighbors(17)
    if asked:
        fast.predict(X_test)
    pickled = pickle.dumps(fast)
    assert secret not in pickled
    again = pickle.loads(pickled)
    np.testing.assert_array_equal(again.predict(X_test), fast.predict(X_test))


def test_answers_are_decoded(faiss, data):
    """By the targets of the regressor, whatever they are."""

    class Logarithms(RegressionTargets):
        def values(self, y):
            return super().values(y).log()

        def decode(self, means):
            return np.exp(super().decode(means))

    class Prices(NONARegressor):
        __init__ = NONARegressor.__init__

        def _make_targets(self):
            return Logarithms()

    X, X_test, y = data
    reg = Prices(n_estimators=2, max_iter=2, random_state=0)
    fast = ApproximateNeighborsRegressor(reg, n_candidates=300).fit(X, np.exp(y))
    np.testing.assert_allclose(fast.predict(X_test), fast.regressor_.predict(X_test), rtol=1e-4)
    assert fast.compare(X_test)["error"] < 1e-3


def test_tags_say_what_it_takes():
    tags = get_tags(ApproximateNeighborsRegressor(NONARegressor()))
    assert tags.target_tags.multi_output
