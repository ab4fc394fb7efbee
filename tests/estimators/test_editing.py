import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inner.estimators import edit
from inner.inference import NetworkTrend, neighbors

from nona_sklearn import NONAClassifier, NONARegressor, SoftStep, SoftStepKNeighborsRegressor
from nona_sklearn.datasets import make_plane_regression


@pytest.fixture
def reg(plane):
    X, _, y, _ = plane
    params = {"max_iter": 3, "hidden_layer_sizes": (16,), "random_state": 0, "n_estimators": 2}
    return NONARegressor(**params).fit(X[:80], y[:80])


@pytest.mark.slow
def test_added_rows_are_neighbours_like_the_others(reg, plane):
    X, X_test, y, _ = plane
    assert reg.add_neighbors(X[80:], y[80:]).tolist() == list(range(80, 120))
    np.testing.assert_array_equal(reg.bank_.embeddings, reg.embed(X).embeddings)
    compared = reg.network_.head.metric_part(reg.bank_.embeddings)
    np.testing.assert_array_equal(compared, reg.transform(X))
    np.testing.assert_array_equal(reg.bank_.targets, y)
    sums = reg.explain(X_test, 120).groupby("query")["contribution"].sum()
    np.testing.assert_allclose(sums, reg.predict(X_test), atol=1e-6)
    weights = reg.neighbor_weights(X_test)
    reg.set_neighbor_targets(y)  # from now on as they are
    np.testing.assert_allclose(weights @ y, reg.predict(X_test), atol=1e-6)


def test_a_removed_row_is_one_that_was_never_there(reg, plane):
    X, X_test, y, _ = plane
    other = copy.deepcopy(reg)
    reg.add_neighbors(X[80:], y[80:])
    reg.remove_neighbors(ids=np.arange(80, 120))
    np.testing.assert_array_equal(reg.predict(X_test), other.predict(X_test))
    expected = other.predict(None)[[3]]
    np.testing.assert_allclose(reg.remove_neighbors(ids=3).predict(X[[3]]), expected, atol=1e-6)


def test_names_stay_and_are_given_once(reg, plane):
    X, _, y, _ = plane
    reg.remove_neighbors(ids=[0, 79])
    assert reg.add_neighbors(X[80:82], y[80:82]).tolist() == [80, 81]
    reg.remove_neighbors(ids=[81])
    assert reg.add_neighbors(X[82:83], y[82:83]).tolist() == [82]
    names = reg.heaviest_neighbors(X, 80)[1]
    assert (np.sort(names, axis=1) == [*range(1, 79), 80, 82]).all()
    sharp = [reg.embed(X[[i]]).embeddings for i in (5, 82)]
    for embedding, name in zip(sharp, (5, 82), strict=True):
        position = reg.bank_.positions(np.array([name]))
        np.testing.assert_array_equal(reg.bank_.embeddings[position], embedding)
        np.testing.assert_array_equal(reg.bank_.targets[position], y[[name]])
    again = pickle.loads(pickle.dumps(reg))
    np.testing.assert_array_equal(
        again.heaviest_neighbors(X, 5)[1], reg.heaviest_neighbors(X, 5)[1]
    )
    assert again.add_neighbors(X[83:84], y[83:84]).tolist() == [83]


def test_an_edit_beside_endless_fits_ends(plane):
    knn = SoftStepKNeighborsRegressor(learn_feature_weights=False, max_iter=1)
    knn.fit(plane[0], plane[2])
    bank, n_fits = knn.bank_, []

    def prepare(_):
        n_fits.append(1)
        knn.network_ = copy.deepcopy(knn.network_)  # as another thread's fit does
        return lambda bank: bank.keep(np.arange(3))

    with pytest.raises(RuntimeError, match=r"not edited: in .* attempts, other threads fitted"):
        edit(knn, prepare)
    assert 2 < len(n_fits) < 100
    assert knn.bank_ is bank


def test_nothing_of_a_removed_row_is_left(reg):
    embedding, target = reg.bank_.embeddings[7].numpy().tobytes(), reg.bank_.targets[7].numpy()
    assert embedding in pickle.dumps(reg)
    assert target.tobytes() in pickle.dumps(reg)
    reg.remove_neighbors(ids=7)
    assert embedding not in pickle.dumps(reg)
    assert target.tobytes() not in pickle.dumps(reg)
    assert len(reg.bank_.embeddings.untyped_storage()) == reg.bank_.embeddings.nbytes


# -- memory that banks share -----------------------------------------------------------------

SPACES = {
    "networks": lambda: NONARegressor(similarity="l2", n_estimators=2, **TINY),
    "features": lambda: NONARegressor(similarity="features", n_estimators=2, **TINY),
    "additive": lambda: NONARegressor(similarity="features", trend="additive", **TINY),
    "classes": lambda: NONAClassifier(n_estimators=1, **TINY),
    "cosine": lambda: NONARegressor(similarity="cosine", n_estimators=1, n_neighbors=5, **TINY),
    "all rows": lambda: NONARegressor(n_neighbors=None, trend=None, n_estimators=1, **TINY),
    "given space": lambda: SoftStepKNeighborsRegressor(similarity="l1", max_iter=2),
}
TINY = {"max_iter": 2, "random_state": 0, "hidden_layer_sizes": (8,)}


@cache
def fitted(space):
    X, y = make_plane_regression("rings", 150, random_state=0)
    estimator = SPACES[space]()
    y = np.round(y) > 0 if isinstance(estimator, NONAClassifier) else y
    return estimator.fit(X[:60], y[:60]), X, y


def answers(estimator, queries):
    yield getattr(estimator, "predict_proba", estimator.predict)(queries)
    yield from estimator.kneighbors(queries, 3)
    yield estimator.predict(None)


def assert_as_read_again(estimator, queries):
    """A pickle holds the rows alone, and an estimator that reads it builds what it searches."""
    again = pickle.loads(pickle.dumps(estimator))
    for found, expected in zip(answers(estimator, queries), answers(again, queries), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=4)
@given(edits=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=1, max_size=5))
def test_edits_lead_to_the_bank_that_its_pickle_holds(space, edits):
    """Rows come, leave, or leave but for a few; an edit of a copy does not change the first."""
    before, X, y = fitted(space)
    estimator, expected = copy.copy(before), [*answers(before, X[140:])]
    for kind, seed in edits:
        random = np.random.default_rng(seed)
        ids = random.permutation(estimator.bank_.ids.numpy())
        if kind < 6:
            rows = random.integers(150, size=kind)
            if kind:
                estimator.add_neighbors(X[rows], y[rows])
        else:
            most = len(ids) - 5
            n_removed = most if kind == 9 else min(most, 1 + 3 * (kind - 6))
            estimator.remove_neighbors(ids=ids[:n_removed])
        if seed % 3:  # several edits before the next prediction
            assert_as_read_again(estimator, X[140:])
    assert_as_read_again(estimator, X[140:])
    for found, of_before in zip(answers(before, X[140:]), expected, strict=True):
        np.testing.assert_array_equal(found, of_before)


@pytest.mark.parametrize("space", ["networks", "features"])
def test_a_thread_reads_the_bank_before_edits(space):
    estimator, X, y = fitted(space)
    estimator, reader = copy.copy(estimator), copy.copy(estimator)
    expected, done = reader.predict(X[100:]), []

    def write():
        for i in range(25):
            (added,) = estimator.add_neighbors(X[[i]], y[[i]])
            estimator.predict(X[:2])
            estimator.remove_neighbors(ids=[added, i])
        done.append(True)

    def read(_):
        while not done:
            np.testing.assert_array_equal(reader.predict(X[100:]), expected)

    with ThreadPoolExecutor(3) as pool:
        reads = pool.map(read, range(2))
        pool.submit(write).result()
        list(reads)
    assert len(estimator.bank_) == 35
    assert_as_read_again(estimator, X[100:])


def test_two_estimators_add_to_the_bank_that_they_share():
    """Only one of them writes behind the rows that both have."""
    estimator, X, y = fitted("networks")
    estimator = copy.copy(estimator)
    estimator.add_neighbors(X[60:61], y[60:61])
    estimator.predict(X[:1])
    other = copy.copy(estimator)
    estimator.add_neighbors(X[61:63], y[61:63])
    other.add_neighbors(X[63:64], y[63:64])
    for each, rows in (estimator, [60, 61, 62]), (other, [60, 63]):
        embedded = each.embed(X[rows]).embeddings
        np.testing.assert_array_equal(each.bank_.embeddings[60:], embedded)
        assert_as_read_again(each, X[60:70])


@pytest.mark.parametrize("edit", ["add", "remove"])
def test_an_interrupted_edit_changes_nothing(edit, monkeypatch):
    """Also where memory behind the rows is written already."""
    estimator, X, y = fitted("networks")
    estimator = copy.copy(estimator)
    estimator.add_neighbors(X[60:61], y[60:61])
    bank, before = estimator.bank_, estimator.predict(X[60:70])

    def interrupt(*_):
        raise KeyboardInterrupt

    def change():
        if edit == "add":
            estimator.add_neighbors(X[61:65], y[61:65])
        else:
            estimator.remove_neighbors(ids=[3, 60])

    with monkeypatch.context() as patched:
        patched.setattr(neighbors.Cache, "after_edits", interrupt)
        with pytest.raises(KeyboardInterrupt):
            change()
    assert estimator.bank_ is bank
    np.testing.assert_array_equal(estimator.predict(X[60:70]), before)
    change()
    assert len(estimator.bank_) == (65 if edit == "add" else 59)
    assert_as_read_again(estimator, X[60:70])


def test_few_rows_are_predicted_anew_where_a_row_leaves(monkeypatch):
    """A trend of networks is that of the remaining rows, also where rows have joined before."""
    estimator, X, y = fitted("features")
    estimator, n_predicted = copy.copy(estimator), []
    predict = NetworkTrend._left_out

    def count(trend, positions):
        n_predicted.append(len(positions))
        return predict(trend, positions)

    more = np.random.default_rng(0).normal(size=(400, 2))
    estimator.add_neighbors(more, more[:, 0])
    estimator.remove_neighbors(ids=100)  # all rows, since most have joined
    monkeypatch.setattr(NetworkTrend, "_left_out", count)
    estimator.add_neighbors(X[60:62], y[60:62])
    estimator.remove_neighbors(ids=[101, 461])
    assert n_predicted[0] == 2
    assert len(n_predicted) == 2
    assert 0 < n_predicted[1] < 150
    trend = estimator.bank_.trend
    anew = NetworkTrend.from_bank(trend.network, copy.deepcopy(trend.bank))
    for name in ("left_out", "reach"):
        np.testing.assert_array_equal(getattr(trend, name), getattr(anew, name))


@pytest.mark.slow
def test_another_target_on_the_same_neighbours(reg, plane):
    X_test = plane[1]
    weights = reg.neighbor_weights(X_test)
    both = np.random.default_rng(0).normal(size=(80, 2))
    reg.set_neighbor_targets(both)
    np.testing.assert_allclose(reg.predict(X_test), weights @ both, atol=1e-6)
    assert reg.predict_quantiles(X_test).shape == (len(X_test), 3, 2)
    both[:] = 0  # the caller may do with it what they like
    assert reg.predict(X_test).any()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda r, X, y: r.remove_neighbors(ids=[3, 500, -1]), r"got unknown \[-1, 500\]"),
        (
            lambda r, X, y: r.remove_neighbors(ids=np.arange(80)),
            r"leave at least one row, got all 80",
        ),
        (lambda r, X, y: r.remove_neighbors(ids=[0.5]), r"ids must be integers"),
        (lambda r, X, y: r.add_neighbors(X[:, :1], y), r"features"),
        (lambda r, X, y: r.add_neighbors(X, y[:3]), r"inconsistent numbers of samples"),
        (lambda r, X, y: r.add_neighbors(X, np.c_[y, y]), r"y must have the bank's shape"),
        (lambda r, X, y: r.add_neighbors(X, np.full(120, np.nan)), r"y contains NaN"),
        (lambda r, X, y: r.set_neighbor_targets(y), r"the bank's 80 rows, got shape \(120,\)"),
        (lambda r, X, y: r.compress(81), r"n_neighbors must be an integer from 1 to 80, got 81"),
    ],
)
def test_a_bad_edit_changes_nothing(reg, plane, edit, message):
    X, X_test, y, _ = plane
    before = reg.predict(X_test)
    with pytest.raises(ValueError, match=message):
        edit(reg, X, y)
    np.testing.assert_array_equal(reg.predict(X_test), before)


def test_an_emptied_bank_has_no_leave_one_out(reg):
    reg.remove_neighbors(ids=np.arange(1, 80))
    query = np.zeros((2, 2))
    adjusted = reg.explain(query)["adjusted_target"]  # of the only row
    np.testing.assert_allclose(reg.predict(query), adjusted)
    with pytest.raises(ValueError, match="needs at least 2 rows in the bank, it has 1"):
        reg.predict(None)
    reg.set_neighbor_targets(reg.bank_.targets)
    assert reg.predict(query).tolist() == [float(reg.bank_.targets)] * 2


@pytest.mark.slow
def test_readers_and_writers_at_once(reg, plane):
    """Each read is of one whole bank: rows and targets of a prediction belong together."""
    X, X_test, _, _ = plane
    reg.set_neighbor_targets(np.zeros(80))

    def write(i):
        (name,) = reg.add_neighbors(X[[i]], [0.0])
        reg.remove_neighbors(ids=name)

    def read(_):
        weights, names = reg.heaviest_neighbors(X_test, 4)
        return reg.predict(X_test).any() or not np.isfinite(weights).all() or (names < 0).any()

    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write, i) for i in range(30)]
        wrong = list(pool.map(read, range(30)))
        assert [w.result() for w in writes] == [None] * 30
    assert not any(wrong)
    assert reg.bank_.ids.tolist() == list(range(80))
    assert int(reg.bank_.next_id) == 110


# -- which rows matter -----------------------------------------------------------------------


@pytest.mark.parametrize("trend", ["auto", None])
@pytest.mark.parametrize("X", ["queries", None])
def test_influence_is_what_leaving_a_row_out_does(reg, plane, X, trend):
    """Of rows of the bank, residuals of neighbours among features stay those beside the query."""
    _, X_test, _, y_test = plane
    reg.set_params(trend=trend, similarity="auto" if X else "l2")
    reg.fit(plane[0][:80], plane[2][:80])
    X, y = (None, None) if X is None else (X_test, y_test)
    truth = reg.bank_.targets.numpy() if X is None else y
    found, before = reg.influence(X, y), reg.predict(X)
    np.testing.assert_allclose(found.weight, reg.neighbor_weights(X).sum(axis=0), atol=1e-5)
    for name in (0, 33):
        queries = np.arange(len(before)) if X is not None else np.delete(np.arange(80), name)
        smaller = copy.deepcopy(reg).remove_neighbors(ids=name)
        change = smaller.predict(X) - before[queries]
        n = len(before)  # a row is not among its own queries: it changes nothing there
        np.testing.assert_allclose(found.change[name], np.sqrt((change**2).sum() / n), rtol=1e-4)
        error = (smaller.predict(X) - truth[queries]) ** 2 - (before - truth)[queries] ** 2
        np.testing.assert_allclose(found.error[name], error.sum() / n, rtol=1e-3, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["s1", "s2"])
def test_influence_with_a_step_on_ranks_is_of_one_row_less(plane, step):
    """The step is of ranks over the number of rows, which a row that leaves changes as well."""
    X, X_test, y, _ = plane
    params = {"n_neighbors": 12, "softstep": step, "random_state": 0}
    reg = SoftStepKNeighborsRegressor(max_iter=3, trend="additive", **params).fit(X[:40], y[:40])
    for query in X_test[:5, None]:
        found, before = reg.influence(query), reg.predict(query)
        weighed = reg.neighbor_weights(query).indices
        assert len(weighed) > 2
        for name in weighed:
            smaller = copy.deepcopy(reg).remove_neighbors(ids=name)
            change = abs(smaller.predict(query) - before).item()
            np.testing.assert_allclose(found.change[name], change, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_influence_of_several_outputs_adds_up(reg, plane):
    X_test = plane[1]
    y = reg.bank_.targets.numpy()
    one = reg.set_neighbor_targets(y).influence(X_test)
    assert "error" not in one
    two = reg.set_neighbor_targets(np.column_stack([y, 2 * y])).influence(X_test)
    np.testing.assert_allclose(two.change, np.sqrt(5) * one.change, rtol=1e-6)
    np.testing.assert_allclose(two.weight, one.weight)


@pytest.mark.parametrize("trend", ["auto", None])
def test_influence_of_several_adjusted_outputs_adds_up(plane, trend):
    X, X_test, y, _ = plane
    params = {"n_estimators": 2, "max_iter": 2, "hidden_layer_sizes": (16,), "random_state": 0}
    reg = NONARegressor(trend=trend, **params).fit(X[:80], np.column_stack([y, -3 * y**2])[:80])
    found, before = reg.influence(X_test), reg.predict(X_test)
    for name in (5, 61):
        smaller = copy.deepcopy(reg).remove_neighbors(ids=name)
        change = ((smaller.predict(X_test) - before) ** 2).sum(axis=1).mean()
        np.testing.assert_allclose(found.change[name], np.sqrt(change), rtol=1e-4)


def test_a_lonely_neighbour_has_finite_influence(plane):
    knn = SoftStepKNeighborsRegressor(n_neighbors=1, max_iter=1).fit(plane[0], plane[2])
    assert np.isfinite(knn.influence().change).all()


def test_compression_keeps_rows_that_carry_the_weight_together(reg, plane):
    """More of the queries' weight, by the root's measure, than random rows carry."""
    weights = reg.neighbor_weights(plane[1]).toarray()

    def carried(ids):
        return np.sqrt(weights[:, ids].sum(axis=1)).sum()

    kept = reg.compress(20, plane[1]).bank_.ids.numpy()
    assert len(kept) == 20
    assert (np.diff(kept) > 0).all()
    rng = np.random.default_rng(0)
    assert carried(kept) > max(carried(rng.choice(80, 20, replace=False)) for _ in range(50))


def test_compression_drops_copies_first():
    X = np.r_[np.zeros((30, 1)), np.full((30, 1), 5.0), [[10.0]]]
    reg = SoftStepKNeighborsRegressor(
        similarity="l2", max_iter=1, random_state=0, softstep=SoftStep("s1", on="similarity")
    ).fit(X, X[:, 0])
    reg.compress(20).compress(3)
    assert set(reg.bank_.targets.tolist()) == {0.0, 5.0, 10.0}


# -- sizes and distances ---------------------------------------------------------------------


def test_effective_number_of_neighbours(reg, plane):
    X_test = plane[1]
    weights = reg.neighbor_weights(X_test).toarray()
    expected = 1 / (weights**2).sum(axis=1)
    np.testing.assert_allclose(
        reg.neighborhood(X_test)["effective_n_neighbors"], expected, rtol=1e-4
    )
    assert (reg.neighborhood()["effective_n_neighbors"] >= 1 - 1e-6).all()


@pytest.mark.parametrize("on", ["rank", "similarity"])
def test_soft_k_is_the_sum_of_the_step(plane, on):
    """With uniform weights a neighbour's weight is its step over their sum; the first has 1."""
    X, X_test, y, _ = plane
    knn = SoftStepKNeighborsRegressor(
        weighting="uniform", max_iter=3, random_state=0, softstep=SoftStep("s1", on=on)
    ).fit(X, y)
    for queries in (X_test, None):
        heaviest = knn.heaviest_neighbors(queries, 1)[0][:, 0]
        np.testing.assert_allclose(
            knn.neighborhood(queries)["soft_n_neighbors"], 1 / heaviest, rtol=1e-4
        )


def test_no_step_no_soft_k(reg):
    assert "soft_n_neighbors" not in reg.neighborhood()


def test_distance_reveals_outliers(reg, plane):
    X = plane[0][:80]
    np.testing.assert_allclose(reg.neighborhood(X)["distance"], 0, atol=1e-3)
    usual = np.quantile(reg.neighborhood()["distance"], 0.99)
    assert reg.neighborhood([[50.0, -50.0]])["distance"][0] > usual > 0


def test_tolerance_drops_light_neighbours(reg, plane):
    X_test = plane[1]
    exact, sparse = reg.neighbor_weights(X_test), reg.neighbor_weights(X_test, tolerance=0.1)
    assert sparse.nnz < exact.nnz
    np.testing.assert_allclose(sparse.sum(axis=1), 1)
    dropped = np.where(exact.toarray() > 0.1, exact.toarray(), 0)
    dropped /= dropped.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(sparse.toarray(), dropped, atol=1e-6)
    with pytest.raises(ValueError, match=r"tolerance=0\.999 leaves a query without neighbours"):
        reg.neighbor_weights(X_test, tolerance=0.999)
    with pytest.raises(ValueError, match=r"tolerance must not be negative, got -1"):
        reg.neighbor_weights(X_test, tolerance=-1)
