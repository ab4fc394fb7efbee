import copy
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_no_attributes_set_in_init

from nona_sklearn import (
    ApproximateNeighborsRegressor,
    NONARegressor,
    SoftStepKNeighborsRegressor,
)
from nona_sklearn._data.regression_targets import RegressionTargets
from nona_sklearn._estimators.queries import evaluate
from nona_sklearn._scaling.index import build_graph, search_graph
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


def test_the_regressor_that_was_given_is_not_fitted(faiss, data):
    X, _, y = data
    given = NONARegressor(n_estimators=1, max_iter=1, random_state=0)
    ApproximateNeighborsRegressor(given).fit(X, y)
    assert not hasattr(given, "bank_")


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
    _, evaluation = evaluate(reg, X_test)
    medians = evaluation.distances().median(dim=0).values
    for head, distance in zip(reg.network_.head.heads, medians, strict=True):
        head.trust_radius.copy_(distance / 2)
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=1000).fit(X, y)
    np.testing.assert_allclose(fast.predict(X_test), reg.predict(X_test), atol=1e-5)
    assert np.abs(reg.predict(X_test) - fitted.predict(X_test)).max() > 1e-3
    assert fast.compare(X_test)["error"] < 1e-5


def test_compare_measures_what_few_candidates_lose(faiss, fitted, data):
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
def test_weights_that_are_no_function_of_distance_are_errors(faiss, data, regressor, message):
    X, _, y = data
    with pytest.raises(ValueError, match=message):
        ApproximateNeighborsRegressor(regressor).fit(X, y)


def test_other_regressors_and_counts_are_refused(faiss, data):
    X, _, y = data
    for other in (DummyRegressor(), BaggingRegressor(NONARegressor())):
        with pytest.raises(ValueError, match="regressor must be a NONARegressor, got"):
            ApproximateNeighborsRegressor(other).fit(X, y)
    for wrong in (0, True, 2.5):
        with pytest.raises(ValueError, match=f"(?i)n_candidates.* got {wrong}"):
            ApproximateNeighborsRegressor(NONARegressor(), n_candidates=wrong).fit(X, y)


def test_the_error_names_what_to_install(monkeypatch, data):
    X, _, y = data
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match="install nona_sklearn with the extra 'approximate'"):
        ApproximateNeighborsRegressor(NONARegressor()).fit(X, y)
    with pytest.raises(ValueError, match="n_candidates"):  # what is wrong anyway comes first
        ApproximateNeighborsRegressor(NONARegressor(), n_candidates=0).fit(X, y)


def test_the_index_follows_edits_of_the_bank(faiss, fitted, data):
    """All rows as candidates are exact, whatever has come and gone since the fit."""
    X, X_test, y = data
    reg = copy.deepcopy(fitted)
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=1000).fit(X, y)
    edits = [
        lambda: reg.set_neighbor_targets(-y),
        lambda: reg.remove_neighbors(ids=np.arange(0, 300, 2)),
        lambda: reg.add_neighbors(X_test[:20], np.zeros(20)),
        lambda: reg.compress(30),
    ]
    for edit in edits:
        edit()
        np.testing.assert_allclose(fast.predict(X_test), reg.predict(X_test), atol=1e-5)
        assert fast.compare(X_test)["error"] < 1e-5


@pytest.mark.parametrize("predict", [False, True])
def test_a_removed_row_is_not_in_the_pickle(faiss, fitted, data, predict):
    X, X_test, y = data
    reg = copy.deepcopy(fitted)
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=50).fit(X, y)
    secret = reg.bank_.embeddings[17].numpy().tobytes()[:64]
    assert secret in pickle.dumps(fast)
    reg.remove_neighbors(ids=17)
    if predict:
        fast.predict(X_test)
    pickled = pickle.dumps(fast)
    assert secret not in pickled
    again = pickle.loads(pickled)
    np.testing.assert_array_equal(again.predict(X_test), fast.predict(X_test))


def test_predictions_are_decoded(faiss, data):
    """By the targets of the regressor, whatever they are."""

    class Logarithms(RegressionTargets):
        def to_values(self, y):
            return super().to_values(y).log()

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


def test_tags_are_those_of_the_regressor():
    tags = get_tags(ApproximateNeighborsRegressor(NONARegressor()))
    assert tags.target_tags.multi_output
    assert tags.input_tags.allow_nan
    of_extractors = NONARegressor(torch.nn.Linear(4, 4))  # which takes no gaps
    for regressor in (of_extractors, FrozenEstimator(of_extractors)):
        assert not get_tags(ApproximateNeighborsRegressor(regressor)).input_tags.allow_nan


def test_a_table_is_known_by_its_names(faiss, data):
    X, X_test, y = data
    table, queries = (pd.DataFrame(rows, columns=[*"abcd"]) for rows in (X, X_test))
    reg = NONARegressor(n_estimators=1, max_iter=2, random_state=0)
    fast = ApproximateNeighborsRegressor(reg)
    assert not hasattr(fast, "feature_names_in_")
    assert [*fast.fit(table, y).feature_names_in_] == [*"abcd"]
    with pytest.raises(ValueError, match="feature names should match"):
        fast.predict(queries.rename(columns={"a": "e"}))
    assert not hasattr(fast.fit(X, y), "feature_names_in_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_and_groups_are_the_regressor_s(faiss, data):
    X, X_test, y = data
    reg = NONARegressor(n_estimators=1, max_iter=3, random_state=0)
    of_rows = {"groups": np.arange(300) // 3, "sample_weight": 1 + np.arange(300) % 4}
    for name in of_rows:
        passed = {name: of_rows[name]}
        fast = ApproximateNeighborsRegressor(reg, n_candidates=300).fit(X, y, **passed)
        expected = clone(reg).fit(X, y, **passed).predict(X_test)
        np.testing.assert_allclose(fast.predict(X_test), expected, atol=1e-5)
        assert np.abs(expected - clone(reg).fit(X, y).predict(X_test)).max() > 1e-3


def test_few_candidates_are_the_nearest_as_a_rule(faiss):
    """A search that keeps no more rows in sight than it is to find misses every sixth of them."""
    rng = np.random.default_rng(0)
    rows, query = (torch.from_numpy(rng.normal(size=(n, 32))).float() for n in (3000, 200))
    _, found = search_graph(build_graph(rows), query.numpy(), 8)
    nearest = torch.cdist(query, rows).topk(8, largest=False).indices.numpy()
    shares = [np.isin(places, true).mean() for places, true in zip(found, nearest, strict=True)]
    assert np.mean(shares) > 0.88


# -- graphs that lead nowhere ------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    """Rows of 27 kinds, of which a graph leads to few, and a regressor of them."""
    rng = np.random.RandomState(0)
    X = rng.randint(0, 3, (3000, 3)).astype(float)
    y = X.sum(axis=1) + 0.1 * rng.standard_normal(3000)
    reg = NONARegressor(n_estimators=1, max_iter=2, random_state=0).fit(X, y)
    return X, y, reg


def test_among_duplicates_all_candidates_are_found(faiss, crowd):
    X, y, reg = crowd
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=256).fit(X, y)
    _, index, query = fast._evaluate(X[:200])
    graph, queries = index.graphs[0], reg.network_.head.metric_part(query)
    graph.hnsw.efSearch = 512
    short = (graph.search(queries.numpy(), 256)[1] < 0).any(axis=1)
    assert 0 < short.sum() < 200  # or there is nothing to mend
    found = index.search(query, 256)
    rows, squares = found.rows[0], found.squares[0]
    assert all(len(row.unique()) == 256 and row.min() >= 0 for row in rows)
    bank = reg.network_.head.metric_part(reg.bank_.embeddings)
    nearest = torch.cdist(queries.double(), bank.double()).square().topk(256, largest=False).values
    # faiss may expand the square, whose rounding is that of the rows' own squared lengths.
    longest = torch.cat([queries, bank]).square().sum(dim=1).max().item()
    atol = 8 * torch.finfo(torch.float32).eps * longest
    torch.testing.assert_close(squares[short].double(), nearest[short], atol=atol, rtol=1e-5)


def test_all_of_many_duplicates_are_exact(faiss, crowd):
    X, y, reg = crowd
    fast = ApproximateNeighborsRegressor(FrozenEstimator(reg), n_candidates=3000).fit(X, y)
    np.testing.assert_allclose(fast.predict(X[:50]), reg.predict(X[:50]), atol=1e-5)
    comparison = fast.compare(X[:50])
    assert comparison["recall"] == 1
    assert comparison["weight"] == pytest.approx(1)


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_counts_of_numpy_are_counts(faiss, fitted, data, kind):
    X, X_test, y = data
    fast = ApproximateNeighborsRegressor(FrozenEstimator(fitted), n_candidates=20).fit(X, y)
    expected = fast.predict(X_test)
    fast.set_params(n_candidates=kind(20))
    np.testing.assert_array_equal(fast.fit(X, y).predict(X_test), expected)


# -- regressors that are fitted already --------------------------------------------------------


def test_a_frozen_regressor_is_the_one_that_predicts(faiss, fitted, data):
    """Itself, with its bank; also of a pickle of version 0.2.0, which held it frozen."""
    X, X_test, y = data
    twice = FrozenEstimator(FrozenEstimator(fitted))
    fast = ApproximateNeighborsRegressor(twice, n_candidates=20).fit(X, y)
    assert fast.regressor_ is fitted
    old = copy.copy(fast)
    old.regressor_ = FrozenEstimator(fitted)
    again = pickle.loads(pickle.dumps(old))
    assert type(again.regressor_) is NONARegressor
    np.testing.assert_array_equal(again.predict(X_test), fast.predict(X_test))


def test_a_frozen_regressor_must_be_fitted_to_these_columns(faiss, fitted, data):
    X, _, y = data
    fast = ApproximateNeighborsRegressor(FrozenEstimator(fitted))
    with pytest.raises(ValueError, match="X has 3 features, but NONARegressor is expecting 4"):
        fast.fit(X[:, :3], y)
    for name in ("sample_weight", "groups"):
        with pytest.raises(ValueError, match=f"{name} must be None for a FrozenEstimator"):
            fast.fit(X, y, **{name: np.ones(300)})
    with pytest.raises(NotFittedError, match="NONARegressor instance is not fitted"):
        ApproximateNeighborsRegressor(FrozenEstimator(NONARegressor())).fit(X, y)
    assert not hasattr(fast, "regressor_")
