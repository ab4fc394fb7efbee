"""A bank in memory, in a mapped file or in shards: the same answers, edits and errors."""

import copy
import pickle
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from inner.scaling import sharded
from scipy import sparse
from sklearn.base import clone
from sklearn.neighbors import KNeighborsTransformer

from nona_sklearn import (
    Calibration,
    NONAClassifier,
    NONARegressor,
    ShardedNeighbors,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    load,
    save,
    save_shards,
)
from nona_sklearn.eligibility import Eligibility, differs, same, within
from nona_sklearn.weighting import SparseSoftmax

# Stored rows are explained on purpose, and some queries have no eligible row.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* whose own target"),
    pytest.mark.filterwarnings("ignore:too few rows are eligible"),
    pytest.mark.filterwarnings("ignore:score leaves out"),
]

N = 150
QUICK = {"max_iter": 2, "random_state": 0}
ONE = {"n_estimators": 1, **QUICK}
TWO = {"n_estimators": 2, **QUICK}
ON_RANKS = SoftStep("s1", on="rank")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 4))
Y = X[:, 0] + X[:, 1] ** 2
BOTH = np.stack([Y, -Y], axis=1)
QUERIES = np.vstack([X[:5] + 0.1, X[:3], 1e3 * X[:3]])
KIND = np.where(Y > 0.5, "high", "low")
KINDS = np.stack([KIND, KIND[::-1]], axis=1)
TABLE = pd.DataFrame(X, [f"row {i}" for i in range(N)], list("abcd")).assign(
    kind=np.array(["x", "y", "z"])[np.arange(N) % 3]
)
TABLE_QUERIES = TABLE[:30].add_prefix("query ", axis=0).assign(a=lambda table: table.a + 0.1)
DAY = pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.permutation(N) // 3, unit="D")
DATED = TABLE.assign(day=DAY)
SPARSE = sparse.csr_array(RNG.random((N, 12)) * (RNG.random((N, 12)) < 0.4))
WIDE = sparse.csr_array(RNG.random((N, 600)) * (RNG.random((N, 600)) < 0.05))
WEIGHTS = {"sample_weight": 1 + np.arange(N) % 3}


@dataclass
class Case:
    """An estimator, the rows that it is fitted to, and queries."""

    estimator: Any
    y: Any = field(default_factory=lambda: Y)
    X: Any = field(default_factory=lambda: X)
    queries: Any = field(default_factory=lambda: QUERIES)
    options: dict = field(default_factory=lambda: WEIGHTS)

    def fit(self, n_rows=N):
        options = {
            name: value if isinstance(value, str | Eligibility) else value[:n_rows]
            for name, value in self.options.items()
        }
        return clone(self.estimator).fit(self.X[:n_rows], self.y[:n_rows], **options)


def of_table(estimator, y=Y, rows=TABLE, **options):
    queries = TABLE_QUERIES.assign(day=DAY[:30]) if "day" in rows else TABLE_QUERIES
    return Case(estimator, y, rows, queries, options)


CASES = {
    "networks": Case(NONARegressor(**TWO)),
    "classes": Case(NONAClassifier(**TWO), KIND),
    "step": Case(SoftStepKNeighborsRegressor(softstep=SoftStep("s1"), **QUICK)),
    "kernel, classes": Case(NONAClassifier(trend="kernel", **ONE), KIND),
    "sparse": Case(NONARegressor(**ONE), X=SPARSE, queries=SPARSE[:9].tocoo()),
    "features of a table": of_table(NONARegressor(**QUICK)),
    "table, times": of_table(NONARegressor(**TWO), rows=DATED, times="day"),
    "table, rule": of_table(
        NONARegressor(**ONE), eligibility=same("kind") & within("a", 1.0), **WEIGHTS
    ),
}
SLOW = {
    **{
        name: Case(NONARegressor(weighting=name, **ONE))
        for name in ("gaussian", "sigmoid", "softplus", "softpick")
    },
    "outputs": Case(NONARegressor(**ONE), BOTH),
    "log_l2": Case(NONARegressor(softstep="s1", similarity="log_l2", **ONE)),
    "dot": Case(NONARegressor(softstep=SoftStep("s2", "pointwise"), similarity="dot", **ONE)),
    "classes, outputs": Case(NONAClassifier(**ONE), KINDS),
    "step, classes": Case(SoftStepKNeighborsClassifier(softstep=SoftStep("s1"), **QUICK), KIND),
    "kernel": Case(NONARegressor(trend="kernel", **TWO), BOTH),
    "kernel, all weigh": Case(NONARegressor(trend="kernel", n_neighbors=None, **ONE)),
    "kernel, ranks": Case(SoftStepKNeighborsRegressor(trend="kernel", **QUICK)),
    "wide": Case(NONARegressor(**ONE), X=WIDE, queries=WIDE[:9].tocoo()),
    "table, groups": of_table(NONARegressor(**ONE), groups=np.arange(N) // 3),
    "table, classes": of_table(NONAClassifier(**TWO), KIND),
    "table, times, all weigh": of_table(
        NONARegressor(n_neighbors=None, **TWO), rows=DATED, times="day"
    ),
    "table, l2": of_table(NONARegressor(n_neighbors=9, similarity="l2", **TWO)),
    "table, l1": of_table(NONARegressor(n_neighbors=8, similarity="l1", softstep=ON_RANKS, **ONE)),
    "table, all weigh": of_table(NONARegressor(n_neighbors=None, **ONE)),
    "table, additive": of_table(SoftStepKNeighborsRegressor(trend="additive", **QUICK), BOTH),
    "table, soft classes": of_table(SoftStepKNeighborsClassifier(trend="additive", **QUICK), KIND),
    "not adjusted": Case(NONARegressor(adjust=False, softstep="s1", similarity="dot", **ONE)),
    "sparse_softmax": Case(NONARegressor(weighting="sparse_softmax", **TWO)),
    "l1": Case(SoftStepKNeighborsRegressor(similarity="l1", **QUICK)),
    "entmax": Case(NONARegressor(weighting="entmax", **ONE)),
    "kernel, single": Case(NONARegressor(trend="kernel", **TWO)),
    "9 neighbors": Case(NONARegressor(n_neighbors=9, **TWO)),
    "5 neighbors": Case(NONARegressor(n_neighbors=5, **ONE), BOTH),
    "more than a shard": Case(NONARegressor(n_neighbors=60, similarity="cosine", **ONE)),
    "7 weights": Case(
        NONARegressor(adjust=False, similarity="dot", weighting=SparseSoftmax(7), **ONE)
    ),
    "8 on ranks": Case(NONARegressor(n_neighbors=8, similarity="l1", softstep=ON_RANKS, **ONE)),
    "ranks": Case(SoftStepKNeighborsRegressor(**QUICK)),
    "uniform": Case(SoftStepKNeighborsRegressor(12, weighting="uniform", **QUICK)),
    "20, classes": Case(NONAClassifier(n_neighbors=20, **TWO), KIND),
    "6, classes": Case(NONAClassifier(n_neighbors=6, **ONE), KINDS),
    "12, classes": Case(SoftStepKNeighborsClassifier(n_neighbors=12, **QUICK), KIND),
}
CALLS = {
    "predict": lambda e, X, _: e.predict(X),
    "predict, return_std": lambda e, X, _: e.predict(X, return_std=True),
    "predict_quantiles": lambda e, X, _: e.predict_quantiles(X),
    "predict_quantiles, quantiles": lambda e, X, _: e.predict_quantiles(X, [0.1, 0.5]),
    "predict_cdf": lambda e, X, _: e.predict_cdf(X, [0.0, 1.0]),
    "sample_y": lambda e, X, _: e.sample_y(X, 3),
    "predict_proba": lambda e, X, _: e.predict_proba(X),
    "predict_log_proba": lambda e, X, _: e.predict_log_proba(X),
    "score": lambda e, X, case: e.score(X, case.y if X is None else case.y[: X.shape[0]]),
    "kneighbors": lambda e, X, _: e.kneighbors(X),
    "kneighbors, ids": lambda e, X, _: e.kneighbors(X, 40, return_distance=False),
    "kneighbors, names": lambda e, X, _: e.kneighbors(X, 3, return_names=True),
    "heaviest_neighbors": lambda e, X, _: e.heaviest_neighbors(X, 3, return_names=True),
    **{
        f"heaviest_neighbors, {k}": lambda e, X, _, k=k: e.heaviest_neighbors(X, k)
        for k in (1, 7, N - 1)
    },
    "neighbor_weights": lambda e, X, _: e.neighbor_weights(X).toarray(),
    "neighborhood": lambda e, X, _: e.neighborhood(X),
    "explain": lambda e, X, _: e.explain(X),
    "explain, n_neighbors": lambda e, X, _: e.explain(X, 4),
    "explain, features": lambda e, X, case: e.explain(X, n_neighbors=2, features=case.X),
    "attribute": lambda e, X, case: e.attribute(X, case.X, n_neighbors=3),
    "attribute, distances": lambda e, X, case: e.attribute(
        X, case.X, of="distances", n_neighbors=3
    ),
    "attribute, predictions": lambda e, X, _: e.attribute(X, of="predictions"),
    "influence": lambda e, X, case: e.influence(X[:4], case.y[:4]),
    "transform": lambda e, X, _: e.transform(X),
    "embed": lambda e, X, _: e.predict(e.embed(X)),
}


#: Calls that take long, or features of a table.
OF_TABLES = "attribute", "explain, features", "influence"
ON_DASK = "networks", "classes", "table, l1", "table, times", "table, rule"


@cache
def fitted(name):
    return (CASES | SLOW)[name].fit()


@cache
def expected_answers(name):
    """What the fitted estimator answers: (call, whether of queries) to a result or an error."""
    case, estimator = (CASES | SLOW)[name], fitted(name)
    calls = [call for call in CALLS if "table" in name or not call.startswith(OF_TABLES)]
    return {
        (call, given): answer(call, estimator, case, given) for call in calls for given in (1, 0)
    }


def answer(call, estimator, case, given):
    try:
        return CALLS[call](estimator, case.queries if given else None, case)
    except (AttributeError, TypeError, ValueError) as error:
        return error


@pytest.fixture(scope="module")
def dask():
    """Dask in this process."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0"
    ) as client:
        yield client


BANKS = pytest.mark.parametrize("bank", ["memory", "file", "shards"])
BANKS_IN_FILES = pytest.mark.parametrize("bank", ["file", "shards"])


def opened(bank, estimator, folder, n_shards=3, **external):
    """Return the estimator as it comes back: from a pickle, a file, or a folder of shards."""
    if bank == "memory":
        return pickle.loads(pickle.dumps(estimator))
    if bank == "file":
        save(estimator, folder / "model.safetensors", overwrite=True)
        return load(folder / "model.safetensors", **external)
    if not isinstance(estimator, ShardedNeighbors):
        save_shards(estimator, folder / "shards", n_shards)
    return ShardedNeighbors(folder / "shards", **external)


def held(bank, estimator, folder):
    """Return all bytes in which the estimator is kept."""
    if bank == "memory":
        return pickle.dumps(estimator)
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def columns_of(result):
    """The arrays of a result, whether it is one, several, or a table."""
    if isinstance(result, pd.DataFrame):
        return [result[name].to_numpy() for name in result]
    if isinstance(result, tuple | list):
        return [column for part in result for column in columns_of(part)]
    return [np.asarray(result)]


def assert_same(found, expected, bank="shards", message=""):
    """To the last bit; of shards to rounding: similarities and weights are of float32."""
    for column, wanted in zip(columns_of(found), columns_of(expected), strict=True):
        if wanted.dtype.kind != "f":
            assert list(map(str, column.ravel())) == list(map(str, wanted.ravel())), message
        elif bank != "shards":
            np.testing.assert_array_equal(column, wanted, message)
        else:
            scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
            np.testing.assert_allclose(column, wanted, 1e-6, 1e-6 * scale, err_msg=message)


def assert_same_rows(found, expected, message=""):
    """Of rows that weigh alike any may come first, every row once."""
    assert_same(found[0], expected[0], message=message)
    np.testing.assert_array_equal(found[1] < 0, expected[1] < 0)  # no earlier rows
    assert all(len({*row[row >= 0]}) == (row >= 0).sum() for row in found[1]), message
    drops = np.diff(expected[0], axis=1, append=0) < -1e-5
    for row, place in zip(*np.nonzero(drops), strict=True):
        assert {*found[1][row, : place + 1]} == {*expected[1][row, : place + 1]}


@BANKS_IN_FILES
@pytest.mark.parametrize(
    "name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_answers_and_errors(name, bank, tmp_path, monkeypatch, request):
    """With names of rows and a column of categories in tables."""
    if "table" in name:
        monkeypatch.setattr(sharded, "QUERY_BLOCK", 30)
        monkeypatch.setattr(sharded, "DISTANCE_BLOCK", 30)
    workers = nullcontext()
    if bank == "shards" and name in ON_DASK:
        request.getfixturevalue("dask")
        workers = joblib.parallel_config("dask")
    case, n_equal = (CASES | SLOW)[name], 0
    one = opened(bank, fitted(name), tmp_path)
    for (call, given), expected in expected_answers(name).items():
        with workers:
            found = answer(call, one, case, given)
        if isinstance(expected, Exception):
            assert type(found) is type(expected), call
        elif call == "neighborhood" and bank == "shards" and "groups" in name:
            # Shards keep no groups, so that stored rows are compared with those of their own.
            parts = (each.drop(columns="applicability") for each in (found, expected))
            assert_same(*parts, bank, (call, given))
        elif call.startswith("heaviest_neighbors, "):
            assert_same_rows(found, expected, (call, given))
        else:
            assert_same(found, expected, bank, (call, given))
        n_equal += not isinstance(expected, Exception)
    assert n_equal >= 20


@pytest.mark.slow
@BANKS_IN_FILES
@pytest.mark.parametrize(
    "name",
    [
        *("networks", "outputs", "not adjusted", "step", "sparse_softmax", "l1", "entmax"),
        "kernel, single",
    ],
)
@pytest.mark.parametrize("power", [None, 1.0, 0.5])
def test_quantiles(name, power, bank, tmp_path):
    """Levels that differ by the rounding of float32 weights may have quantiles farther apart."""
    estimator = copy.copy(fitted(name))
    if power is not None:  # without noise; None is as it was chosen, with noise
        estimator.bank_ = replace(estimator.bank_, calibration=Calibration(power))
    one, rounding = opened(bank, estimator, tmp_path), 64 * np.finfo(np.float32).eps
    # At 0 and 1 weights of 1e-17 count, at 0.5 where two networks have one neighbour each.
    levels = np.array([0.01, 0.1, 0.47, 0.77, 0.99])
    for queries, quantiles in ((QUERIES, levels), (None, levels), (QUERIES, 0.47)):
        found = one.predict_quantiles(queries, quantiles)
        low, high = (
            estimator.predict_quantiles(queries, quantiles + sign * rounding) for sign in (-1, 1)
        )
        assert_same(found, np.clip(found, low, high))


@BANKS_IN_FILES
def test_equally_near_rows_are_taken_in_the_order_of_their_ids(bank, tmp_path):
    twins = np.tile(X[:30], (5, 1))
    estimator = NONARegressor(n_neighbors=3, **ONE).fit(twins, Y)
    one = opened(bank, estimator, tmp_path, 5)
    assert_same(one.predict(X[:30]), estimator.predict(X[:30]))
    ids = np.sort(one.heaviest_neighbors(X[:30], 3)[1], axis=1)
    np.testing.assert_array_equal(ids, np.arange(30)[:, None] + [0, 30, 60])


@BANKS_IN_FILES
def test_quantiles_of_0_and_1_lie_among_the_values(bank, tmp_path):
    estimator = NONARegressor(adjust=False, **ONE).fit(X, Y)
    estimator.bank_ = replace(estimator.bank_, calibration=Calibration(1.0))
    found = opened(bank, estimator, tmp_path).predict_quantiles(QUERIES, [0, 1 - 1e-16, 1])
    assert (np.diff(found, axis=1) >= 0).all()
    assert ((Y.min() - 1e-8 <= found) & (found <= Y.max())).all()


@BANKS_IN_FILES
@pytest.mark.parametrize(
    "rule", [differs("kind"), within("a", 0.3), within("a", 0.1).at_least(4)], ids=repr
)
def test_a_rule_of_a_call(rule, bank, tmp_path):
    """A required number of rows is counted in all shards."""
    estimator = fitted("table, rule")
    one = opened(bank, estimator, tmp_path)
    for queries in (TABLE_QUERIES, None):
        for call in ("predict", "kneighbors", "heaviest_neighbors"):
            arguments = () if call == "predict" else (9,)
            expected = getattr(estimator, call)(queries, *arguments, eligibility=rule)
            found = getattr(one, call)(queries, *arguments, eligibility=rule)
            assert_same(found, expected, bank, call)
    if bank == "shards":
        with pytest.raises(
            TypeError, match=r"eligibility must be a rule .*: shards take no mask, got arr"
        ):
            one.predict(TABLE_QUERIES, eligibility=np.ones((30, N), dtype=bool))


@BANKS_IN_FILES
def test_influences_of_rows_on_each_other(bank, tmp_path):
    estimator = NONARegressor(similarity="l2", **TWO).fit(X[:20], Y[:20])
    one = opened(bank, estimator, tmp_path)
    assert_same(one.influence(), estimator.influence(), bank)


# -- edits -------------------------------------------------------------------------------------

EDITED = {
    "table, groups": of_table(NONARegressor(**ONE), groups=np.arange(N) // 2),
    "table, times": of_table(NONARegressor(**ONE), rows=DATED, times="day"),
    "table, rule": of_table(NONARegressor(**ONE), eligibility=same("kind")),
    "class weights": Case(NONAClassifier(class_weight="balanced", **ONE), KIND, options={}),
    "kernel": Case(NONARegressor(trend="kernel", **ONE), options={}),
    "kernel, classes": Case(NONAClassifier(trend="kernel", **ONE), KIND, options={}),
    "additive": Case(SoftStepKNeighborsRegressor(trend="additive", **QUICK), options={}),
    "kernel, soft classes": Case(
        SoftStepKNeighborsClassifier(trend="kernel", **QUICK), KIND, options={}
    ),
    **{
        name: Case(NONARegressor(n_neighbors=9, algorithm=algorithm, **TWO), options={})
        for name, algorithm in {
            "kd_tree": "kd_tree",
            "hnsw": "hnsw",
            "transformer": KNeighborsTransformer(n_neighbors=60),
        }.items()
    },
}


def predictions(estimator, queries):
    return getattr(estimator, "predict_proba", estimator.predict)(queries)


@BANKS_IN_FILES
@pytest.mark.parametrize(
    ("name", "removed"),
    [
        *((name, [3, 99]) for name in EDITED),
        *((name, [120]) for name, case in EDITED.items() if case.estimator.trend == "kernel"),
        ("additive", [120]),
        pytest.param("table, groups", range(25, 50), marks=pytest.mark.slow),  # a shard
    ],
    ids=str,
)
def test_edits(name, removed, bank, tmp_path):
    """A kernel is fitted anew without rows that it was fitted to. No file keeps a removed row."""
    if name == "hnsw":
        pytest.importorskip("faiss")
    case, estimator = EDITED[name], EDITED[name].fit(100)
    external = {"algorithm": clone(case.estimator.algorithm)} if name == "transformer" else {}
    one = opened(bank, estimator, tmp_path, **external)
    assert_same(predictions(one, case.queries), predictions(estimator, case.queries), bank)
    before, names = predictions(one, case.queries), [7, 110]
    again = case.X[:2]
    if isinstance(case.X, pd.DataFrame):
        names, again = [f"row {i}" for i in names], again.add_prefix("again ", axis=0)
    gone = case.X[list(removed)] if names[0] == 7 else case.X.iloc[list(removed)]
    rows = estimator.embed(gone).embeddings.numpy()
    encoded = estimator.features_.transform(gone).astype(np.float32)
    for each in (estimator, one):
        assert each.add_neighbors(case.X[100:], case.y[100:]).tolist() == [*range(100, N)]
        each.remove_neighbors(ids=removed)
        each.remove_neighbors(names=names)
        assert each.add_neighbors(again, case.y[:2]).tolist() == [N, N + 1]
    assert len(getattr(one, "bank_", one)) == len(estimator.bank_) == N - len(removed)
    for each in (one, opened(bank, one, tmp_path, **external)):
        for queries in (case.queries, None):
            assert_same(predictions(each, queries), predictions(estimator, queries), bank)
            rows_found, expected = (e.heaviest_neighbors(queries, 9) for e in (each, estimator))
            assert_same_rows(rows_found, expected)
    assert not np.array_equal(predictions(one, case.queries), before)
    content = held(bank, one, tmp_path)
    assert not any(row.tobytes() in content for row in [*rows, *encoded])


@BANKS_IN_FILES
@pytest.mark.parametrize("row", [0, 49, 50, 149])  # first and last of shards
def test_each_row_can_be_forgotten(row, bank, tmp_path):
    estimator = NONARegressor(**ONE).fit(X, Y)
    one = opened(bank, estimator, tmp_path)
    assert_same(
        one.remove_neighbors(ids=row).predict(X[row][None]),
        estimator.remove_neighbors(ids=row).predict(X[row][None]),
    )


OF_MEMORY = {
    "set_neighbor_targets": lambda e: e.set_neighbor_targets(np.arange(float(N))),
    "compress": lambda e: e.compress(30),
    "calibrate": lambda e: e.calibrate(QUERIES[:8], Y[:8]),
    "neighbor_stability": lambda e: e.neighbor_stability(QUERIES[:3]),
}


@BANKS
@pytest.mark.parametrize("method", OF_MEMORY)
def test_what_needs_all_rows_in_memory(method, bank, tmp_path):
    estimator = NONARegressor(**ONE).fit(X, Y)
    one, call = opened(bank, estimator, tmp_path), OF_MEMORY[method]
    if bank == "shards":
        match = f"ShardedNeighbors has no {method}: of the estimator, it has predict, "
        with pytest.raises(AttributeError, match=match):
            call(one)
        return
    found, expected = call(one), call(estimator)
    if method == "neighbor_stability":
        assert_same(found, expected, bank)
    assert_same(one.predict_quantiles(QUERIES), estimator.predict_quantiles(QUERIES), bank)
    np.testing.assert_array_equal(one.bank_.ids, estimator.bank_.ids)


# -- errors ------------------------------------------------------------------------------------

REFUSED = [
    (lambda e: e.remove_neighbors(ids=[1, 150, 999]), r"ids must be in .*unknown \[150, 999\]"),
    (lambda e: e.remove_neighbors(ids=range(N)), "ids must leave at least one row, got all 150"),
    (lambda e: e.remove_neighbors(ids=["a"]), "ids must be integers"),
    (lambda e: e.remove_neighbors(names=[1, "x"]), r"names must be in the bank, .*\['x'\]"),
    (lambda e: e.remove_neighbors(names=range(N)), "names must leave at least one row, got all"),
    (lambda e: e.remove_neighbors(names=[[1]]), r"names must be labels of an index, got \[1\]"),
    (lambda e: e.remove_neighbors(), "exactly one of ids and names must be given"),
    (lambda e: e.remove_neighbors(ids=1, names=1), "exactly one of ids and names must be given"),
    (lambda e: e.add_neighbors(X[:, :3], Y), "has 3 features"),
    (lambda e: e.add_neighbors(X[:3], Y[:2]), "inconsistent numbers of samples"),
    (lambda e: e.predict_quantiles(QUERIES, 1.5), r"quantiles must be from 0 to 1, got 1\.5"),
    *(
        (
            lambda e, k=k: e.heaviest_neighbors(QUERIES, k),
            "n_neighbors must be an integer from 1 to 150, got",
        )
        for k in (0, 151, None)
    ),
    (
        lambda e: e.heaviest_neighbors(None, 150),
        "n_neighbors must be an integer from 1 to 149",
    ),
]


@BANKS
def test_what_is_refused_changes_nothing(bank, tmp_path):
    one = opened(bank, NONARegressor(**ONE).fit(X, Y), tmp_path)
    before = one.predict(QUERIES)
    for call, match in REFUSED:
        with pytest.raises(ValueError, match=match):
            call(one)
    np.testing.assert_array_equal(one.predict(QUERIES), before)
    assert one.add_neighbors(X[:1], Y[:1]).tolist() == [N]


@BANKS
@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [1, 2])
@pytest.mark.parametrize("name", ["networks", "classes"])
def test_leave_one_out_needs_another_row(name, n_rows, bank, tmp_path):
    estimator = copy.deepcopy(fitted(name)).remove_neighbors(ids=range(N - n_rows))
    one = opened(bank, estimator, tmp_path, n_rows)
    for method in ("predict", "kneighbors", "heaviest_neighbors"):
        evaluate = getattr(one, method)
        if n_rows == 2:
            evaluate(None, *([] if method == "predict" else [1]))
            continue
        with pytest.raises(ValueError, match="X=None needs at least 2 rows in the bank"):
            evaluate(None)


@BANKS
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "other"),
    [
        ("networks", "predict_proba", "predict_quantiles"),
        ("classes", "sample_y", "predict_proba"),
    ],
)
def test_what_the_estimator_does_not_do_is_refused(name, method, other, bank, tmp_path):
    one = opened(bank, fitted(name), tmp_path)
    assert hasattr(one, other)
    assert not hasattr(one, method)
    kind = type(fitted(name)).__name__
    with pytest.raises(AttributeError, match=f"{kind}.* has no .*{method}"):
        getattr(one, method)(QUERIES)
