"""Banks from tables in partitions: equal to the bank in memory, also after faults."""

import errno
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from clusters import two_workers
from inner.inference import network_trend
from inner.scaling import building
from sklearn.base import clone
from sklearn.linear_model import Ridge

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    ShardedNeighbors,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    fit_shards,
)
from nona_sklearn.eligibility import same

dd = pytest.importorskip("dask.dataframe")
datasets = pytest.importorskip("pyarrow.dataset")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

N, N_SAMPLE, N_PARTS = 400, 150, 4
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.standard_normal((N, 3)), columns=list("abc"))
TABLE["kind"] = RNG.choice(list("uvw"), N)
TABLE["price"] = TABLE.a + TABLE.b**2
TABLE["size"] = 2 * TABLE.c
TABLE["level"] = np.where(TABLE.price > 1, "high", "low")
TABLE["weight"] = RNG.integers(0, 3, N)
TABLE["day"] = RNG.permutation(N)  # later partitions have earlier rows
TABLE["patient"] = np.arange(N) // 2
FEATURES = ["a", "b", "c", "kind"]
NUMBERS = TABLE[["a", "b", "price"]]
QUICK = {"max_iter": 2, "random_state": 0}
ONE = {"n_estimators": 1, **QUICK}
#: Fitted fast: its space is given.
KNN = SoftStepKNeighborsRegressor(
    5, weighting="uniform", learn_feature_weights=False, trend=None, max_iter=1
)


def some_quick(names, *quick):
    """Parameters of a test, of which some are quick."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


def in_parts(table, n_parts=N_PARTS):
    return dd.from_pandas(table, npartitions=n_parts, sort=False)


def fit(folder, table=NUMBERS, estimator=KNN, **options):
    data = in_parts(table) if isinstance(table, pd.DataFrame) else table
    return fit_shards(estimator, data, folder, **{"y": "price", "n_training_rows": 100} | options)


@contextmanager
def noted(name):
    """Note the results of a function of the module."""
    function, results = getattr(building, name), []

    def noting(*args):
        results.append(function(*args))
        return results[-1]

    with patch.object(building, name, noting):
        yield results


# -- the bank ----------------------------------------------------------------------------------


def in_memory(estimator, table, rows, y, columns, **given):
    """Fit the sample in memory, and add the remaining rows; return ids by position."""
    weight = given.pop("sample_weight", None)
    kept = np.arange(len(table)) if weight is None else np.flatnonzero(table[weight])
    rest = np.setdiff1d(kept, rows)
    model = clone(estimator)

    def of(rows):
        part = table.iloc[rows].reset_index(drop=True)
        return part[columns], part[y], None if weight is None else part[weight]

    X, targets, weights = of(rows)
    model.fit(X, targets, sample_weight=weights, **given)
    model.add_neighbors(*of(rest))
    return model, np.concatenate([rows, rest])


CASES = {
    "features": (NONARegressor(n_estimators=2, **QUICK), "price", FEATURES, {}),
    "kernel": (NONARegressor(n_estimators=2, similarity="l2", **QUICK), "price", FEATURES, {}),
    "kernel, classes": (NONAClassifier(similarity="l2", **ONE), "level", FEATURES, {}),
    "outputs": (NONARegressor(trend="additive", **ONE), ["price", "size"], FEATURES, {}),
    "classes": (NONAClassifier(**ONE), "level", FEATURES, {}),
    "steps": (SoftStepKNeighborsRegressor(**QUICK), "price", FEATURES, {}),
    "steps, classes": (SoftStepKNeighborsClassifier(**QUICK), "level", FEATURES, {}),
    "weights": (NONARegressor(**ONE), "price", FEATURES, {"sample_weight": "weight"}),
    "times": (NONARegressor(**ONE), "price", [*FEATURES, "day"], {"times": "day"}),
    "groups": (NONARegressor(**ONE), "price", [*FEATURES, "patient"], {"groups": "patient"}),
    "graph": (NONARegressor(algorithm="hnsw", n_neighbors=9, **ONE), "price", ["a", "b"], {}),
    "rule": (NONARegressor(**ONE), "price", FEATURES, {"eligibility": same("kind")}),
    "in order": (KNN, "price", ["a", "b"], {}),
}


@pytest.mark.parametrize("name", some_quick(CASES, "features", "in order"))
def test_shards_hold_the_bank_to_which_the_remaining_rows_are_added(name, tmp_path, monkeypatch):
    """In memory, further rows are no sources of networks as a trend, either: here from 152."""
    monkeypatch.setattr(network_trend, "MOST_ROWS", N_SAMPLE + 1)
    estimator, y, columns, given = CASES[name]
    if estimator.algorithm == "hnsw":
        pytest.importorskip("faiss")
    table = TABLE[[*columns, *([y] if isinstance(y, str) else y)]]
    if "sample_weight" in given:
        table = table.assign(weight=TABLE.weight)
    with noted("draw_sample") as drawn:
        sharded = fit(tmp_path / "bank", table, estimator, y=y, n_training_rows=N_SAMPLE, **given)
    [(rows, _)] = drawn
    expected, ids = in_memory(estimator, table, rows, y, columns, **given)
    assert N_SAMPLE <= len(rows) <= N_SAMPLE + 1  # every class has a row
    assert len(sharded) == len(expected.bank_)
    queries = table[columns][:9].assign(a=lambda queries: queries.a + 0.1)
    method = "predict_proba" if "classes" in name else "predict"
    found, wanted = (getattr(each, method)(queries) for each in (sharded, expected))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    distances, near = sharded.kneighbors(queries, 3)
    expected_distances, positions = expected.kneighbors(queries, 3)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(near, np.where(positions < 0, -1, ids[positions]))
    valid = [rows for rows in sharded.estimator_.validation_indices_ if rows is not None]
    assert all(np.isin(numbers, rows).all() for numbers in valid)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kernel", "kernel, classes", "features", "classes"])
def test_a_row_of_the_sample_leaves_the_trend(name, tmp_path, monkeypatch):
    monkeypatch.setattr(network_trend, "MOST_ROWS", 60)
    monkeypatch.setattr(network_trend, "ROWS_A_SOURCE", 1)
    monkeypatch.setattr(network_trend, "MOST_SOURCES", 50)
    monkeypatch.setattr(network_trend, "LEAST_SOURCES", 25)
    estimator, y, columns, _ = CASES[name]
    table = TABLE[[*columns, y]]
    with noted("draw_sample") as drawn:
        sharded = fit(tmp_path / "bank", table, estimator, y=y)
    expected, ids = in_memory(estimator, table, drawn[0][0], y, columns)
    fitted = [3, 30, 60]
    expected.remove_neighbors(ids=fitted)
    sharded.remove_neighbors(ids=ids[fitted])
    method = "predict" if y == "price" else "predict_proba"
    before, after = (getattr(e, method)(table[columns][:9]) for e in (sharded, expected))
    np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-5)


def test_intervals_are_calibrated_by_rows_outside_the_sample_on_the_whole_bank(tmp_path):
    x = RNG.uniform(0, 1, 1500)
    table = pd.DataFrame({"a": x, "price": 100 * x + RNG.standard_normal(1500)})
    sharded = fit(tmp_path / "bank", table[:1200], n_training_rows=30)
    # The error of a mean of five rows. Of 30 rows, the five nearest are up to a tenth away, and
    # errors are several times larger.
    assert sharded.estimator_.calibration_.error[0] == pytest.approx(np.sqrt(1.2), rel=0.15)
    low, high = sharded.predict_quantiles(table[["a"]][1200:], [0.05, 0.95]).T
    covered = (low <= table.price[1200:]) & (table.price[1200:] <= high)
    assert 0.85 <= covered.mean() <= 0.95


def test_rows_arrive_afterwards(tmp_path):
    sharded = fit(tmp_path / "bank")
    more = NUMBERS[:50] + 0.01
    assert sharded.add_neighbors(more[["a", "b"]], more.price).tolist() == [*range(N, N + 50)]
    assert len(sharded.remove_neighbors(ids=[0, N])) == N + 48


# -- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", some_quick(["folder", "dataset", "Dask", "years"], "folder"))
def test_partitions_in_files(kind, tmp_path):
    """Row groups are partitions, files are in order of their numbers, an index is no column."""
    place = tmp_path / "table"
    place.mkdir()
    table = NUMBERS.assign(year=np.repeat([2019, 2020], N // 2))
    table.index = [f"row {i}" for i in range(N)]
    if kind == "years":  # folders state a column
        table.to_parquet(place, partition_cols=["year"])
    else:
        for i in range(12):  # part.10 is not after part.1
            rows = table[36 * i : 36 * (i + 1)]
            rows.to_parquet(place / f"part.{i}.parquet", row_group_size=25)
    data = place
    if kind == "dataset":
        data = datasets.dataset([place / f"part.{i}.parquet" for i in range(12)])
    elif kind == "Dask":
        data = dd.read_parquet(place)
    with noted("draw_sample") as drawn:
        found = fit(tmp_path / "bank", data)
    expected, ids = in_memory(KNN, table, drawn[0][0], "price", ["a", "b", "year"])
    assert [*found.estimator_.feature_names_in_] == ["a", "b", "year"]
    queries = table[["a", "b", "year"]][::7]
    near = ids[expected.kneighbors(queries)[1]]
    np.testing.assert_array_equal(found.kneighbors(queries)[1], near)


def test_partitions_may_be_empty_but_not_all(tmp_path):
    parts = [NUMBERS[:0], NUMBERS[:120], NUMBERS[:0], NUMBERS[120:]]
    sharded = fit(tmp_path / "bank", dd.from_map(lambda part: part, parts))
    assert len(sharded) == N
    assert sharded.kneighbors(NUMBERS[["a", "b"]], 1)[1][:, 0].tolist() == [*range(N)]
    with pytest.raises(ValueError, match="data must have at least 2 rows"):
        fit(tmp_path / "other", dd.from_map(lambda part: part, parts[:1]))
    assert not (tmp_path / "other").exists()


def test_every_class_has_a_row_in_the_sample(tmp_path):
    level = np.repeat("usual", N)
    level[[3, 350, 351]] = "rare", "rarer", "rarer"
    knn = SoftStepKNeighborsClassifier(learn_feature_weights=False, trend=None, max_iter=1)
    table = NUMBERS[["a", "b"]].assign(level=level)
    sharded = fit(tmp_path / "bank", table, knn, y="level", n_training_rows=20)
    assert sharded.estimator_.classes_.tolist() == ["rare", "rarer", "usual"]
    assert len(sharded) == N


def test_the_sample_is_stratified_by_targets(tmp_path):
    with noted("draw_sample") as drawn:
        fit(tmp_path / "bank", n_training_rows=40)
    rows = drawn[0][0]
    assert np.bincount(rows // 100).tolist() == [10] * 4  # of each partition
    ranks = NUMBERS.price[:100].rank()[rows[:10]].sort_values()
    assert (np.diff(ranks) == 10).all()


def test_categories_of_partitions_are_united(tmp_path):
    parts = [NUMBERS[:200].assign(kind=pd.Categorical(TABLE.kind[:200].replace("w", "u")))]
    parts += [NUMBERS[200:].assign(kind=pd.Categorical(TABLE.kind[200:].replace("u", "w")))]
    sharded = fit(tmp_path / "bank", dd.from_map(lambda part: part, parts))
    assert len(sharded) == N
    assert sharded.estimator_.features_.get_feature_names_out().tolist()[2:] == [
        "kind_u",
        "kind_v",
        "kind_w",
    ]


def test_levels_that_the_sample_lacks_are_reported(tmp_path):
    kind = TABLE.kind.where(~TABLE.index.isin([5, 6, 7]), "new")
    with (
        noted("draw_sample") as drawn,
        pytest.warns(
            UserWarning, match="column 'kind': (3|2|1) rows have levels that the 40 rows"
        ),
    ):
        fit(tmp_path / "bank", NUMBERS.assign(kind=kind), n_training_rows=40)
    assert "new" not in {*kind[drawn[0][0]]}


# -- bad input ------------------------------------------------------------------------------------


def parts_with(number, change):
    parts = [NUMBERS[100 * i : 100 * (i + 1)].copy() for i in range(4)]
    parts[number] = change(parts[number])
    return parts


WRONG_PARTS = {
    "missing target": (
        lambda p: p.assign(price=[np.nan, *p.price[1:]]),
        "column 'price'.*NaN.*row 0",
    ),
    "infinite target": (lambda p: p.assign(price=[np.inf, *p.price[1:]]), "'price'.*infinity"),
    "no target": (lambda p: p.drop(columns="price"), "'price'"),
    "no feature": (lambda p: p.drop(columns="b"), "'b'"),
    "texts": (lambda p: p.assign(b="x"), "'b' holds strings.*2, and numbers in partition 0"),
    "dates": (lambda p: p.assign(a=pd.Timestamp("2020-01-01")), "'a' holds dates"),
    "a further column": (lambda p: p.assign(c=1.0), "column 'c'"),
    "infinite feature": (
        lambda p: p.assign(b=p.b.where(p.index != 205, -np.inf)),
        "'b' holds infinity in row 5",
    ),
}


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("name", WRONG_PARTS)
def test_wrong_partitions_are_named_before_training(name, in_files, tmp_path):
    change, message = WRONG_PARTS[name]
    parts = parts_with(2, change)
    data = dd.from_map(lambda part: part, parts, meta=NUMBERS[:0])
    if in_files:
        data = tmp_path / "table"
        data.mkdir()
        for i, part in enumerate(parts):
            part.to_parquet(data / f"{i}.parquet")
    with (
        patch.object(SoftStepKNeighborsRegressor, "fit", side_effect=AssertionError("trained")),
        pytest.raises(
            ValueError, match=f"(?s)(partition 2.*{message}|{message}.*partition 2)|{message}.*"
        ),
    ):
        fit(tmp_path / "bank", data)
    assert not (tmp_path / "bank").exists()


def test_a_missing_label_is_named(tmp_path):
    level = TABLE.level.where(TABLE.index != 205)
    with pytest.raises(
        ValueError, match="partition 2: column 'level': a label is missing in row 5"
    ):
        fit(
            tmp_path / "bank",
            NUMBERS.assign(level=level),
            SoftStepKNeighborsClassifier(),
            y="level",
        )


def test_a_missing_time_is_named(tmp_path):
    day = TABLE.day.where(TABLE.index != 205)
    with pytest.raises(ValueError, match="partition 2: column 'day': a time is missing in row 5"):
        fit(tmp_path / "bank", NUMBERS.assign(day=day), times="day")


def test_a_file_that_is_not_whole_or_repeats_a_column_is_named(tmp_path):
    place, table = tmp_path / "table", pyarrow.table({"a": [1.0], "b": [2.0], "price": [3.0]})
    place.mkdir()
    for i in range(3):
        pyarrow.parquet.write_table(table, place / f"{i}.parquet")
    pyarrow.parquet.write_table(table.rename_columns(["a", "a", "price"]), place / "2.parquet")
    with pytest.raises(ValueError, match=r"(?s)partition 2: .*unique column names.*'a' 2 times"):
        fit(tmp_path / "bank", place)
    whole = (place / "1.parquet").read_bytes()
    (place / "1.parquet").write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"1\.parquet"):
        fit(tmp_path / "bank", place)
    assert not (tmp_path / "bank").exists()


WRONG = {
    "data must be a Dask DataFrame, .* got": {"table": 5},
    "y must name columns of data, got 'cost'": {"y": "cost"},
    "y must name columns of data, got array": {"y": NUMBERS.price.to_numpy()},
    "y must leave features": {"y": ["a", "b", "price"]},
    "data must have distinct columns, got 'a' twice": {
        "table": NUMBERS.set_axis([*"aa", "price"], axis=1)
    },
    "sample_weight must name columns of data, got 'w'": {"sample_weight": "w"},
    "times must name a feature of data, got 'day'": {"times": "day"},
    "groups must name a feature of data, got 'price'": {"groups": "price"},
    "n_training_rows must be an integer of at least 2, got 1": {"n_training_rows": 1},
    "feature_extractor must be None": {"estimator": NONARegressor(feature_extractor=dict)},
    "trend must be no model for shards": {"estimator": NONARegressor(trend=Ridge())},
    "estimator must be one of nona_sklearn": {"estimator": Ridge()},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(tmp_path / "bank", **WRONG[message])
    assert not (tmp_path / "bank").exists()


# -- faults ------------------------------------------------------------------------------------


def fail_at(number, error):
    """Return a function that writes shards, and fails in the middle of one."""
    write = building.write

    def failing(content, path):
        if path.name == f"shard-{number:05d}.safetensors":
            raise error
        return write(content, path)

    return patch.object(building, "write", failing)


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", some_quick(["full disk", "interrupt"], "full disk"))
def test_an_interrupted_run_is_resumed(name, tmp_path):
    error = FULL if name == "full disk" else KeyboardInterrupt()
    with fail_at(2, error), pytest.raises(type(error), match=r"partition 2.*No space|^$"):
        fit(tmp_path / "bank")
    names = {path.name for path in (tmp_path / "bank").iterdir()}
    assert {"shard-00000.safetensors", "shard-00001.safetensors", building.PLAN} <= names
    with pytest.raises(FileNotFoundError, match="call fit_shards again"):
        ShardedNeighbors(tmp_path / "bank")
    with (
        noted("embed_partition") as embedded,
        patch.object(SoftStepKNeighborsRegressor, "fit", side_effect=AssertionError("trained")),
    ):
        sharded = fit(tmp_path / "bank")
    assert [entry.path.name for entry in embedded] == [
        f"shard-{i:05d}.safetensors" for i in (2, 3)
    ]
    whole = fit(tmp_path / "other")
    X = NUMBERS[["a", "b"]]
    np.testing.assert_array_equal(sharded.predict(X), whole.predict(X))
    listed = ({p.name for p in (tmp_path / name).iterdir()} for name in ("bank", "other"))
    assert next(listed) == next(listed)


def damage(path):
    content = bytearray(path.read_bytes())
    content[8 + int.from_bytes(content[:8], "little")] ^= 1  # of the first number
    path.write_bytes(content)


DAMAGES = {
    "changed": damage,
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "another": lambda path: path.write_bytes(
        path.with_name("shard-00000.safetensors").read_bytes()
    ),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", some_quick(DAMAGES, "changed"))
def test_a_shard_that_is_not_whole_is_written_again(name, tmp_path):
    with fail_at(3, FULL), pytest.raises(OSError, match="partition 3"):
        fit(tmp_path / "bank")
    DAMAGES[name](tmp_path / "bank" / "shard-00001.safetensors")
    with noted("embed_partition") as embedded:
        sharded = fit(tmp_path / "bank")
    assert [entry.path.name for entry in embedded] == [
        f"shard-{i:05d}.safetensors" for i in (1, 3)
    ]
    assert sharded.kneighbors(NUMBERS[["a", "b"]], 1)[1][:, 0].tolist() == [*range(N)]


OTHERS = {
    "estimator": {"estimator": clone(KNN).set_params(n_neighbors=6)},
    "n_training_rows": {"n_training_rows": 99},
    "y": {"y": "b"},
    "number of rows": {"table": NUMBERS[:-1]},
}


@pytest.mark.parametrize("name", some_quick(OTHERS, "estimator"))
def test_different_arguments_do_not_resume(name, tmp_path):
    with fail_at(2, FULL), pytest.raises(OSError, match="partition 2"):
        fit(tmp_path / "bank")
    before = {path: path.read_bytes() for path in (tmp_path / "bank").iterdir()}
    with pytest.raises(ValueError, match=f"different arguments, and {name} differs"):
        fit(tmp_path / "bank", **OTHERS[name])
    assert {path: path.read_bytes() for path in (tmp_path / "bank").iterdir()} == before
    assert len(fit(tmp_path / "bank", estimator=clone(KNN).set_params(verbose=True))) == N


def test_a_failed_fit_leaves_no_folder(tmp_path):
    with (
        patch.object(SoftStepKNeighborsRegressor, "fit", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        fit(tmp_path / "bank")
    assert [*tmp_path.iterdir()] == []


def test_a_folder_with_anything_else_is_left_alone(tmp_path):
    fit(tmp_path / "bank")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "letter.txt").write_text("Dear")
    (tmp_path / "file").touch()
    for name, what in (("bank", "holds a bank"), ("files", "letter.txt"), ("file", "is a file")):
        with pytest.raises(FileExistsError, match=f"folder must be new.*{what}"):
            fit(tmp_path / name)
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["letter.txt"]
    (tmp_path / "empty").mkdir()
    assert len(fit(tmp_path / "empty")) == N


def test_a_second_writer_is_refused(tmp_path):
    (tmp_path / "bank").mkdir()
    with (
        building.lock_of(tmp_path / "bank"),
        pytest.raises(BlockingIOError, match="is written by another process"),
    ):
        fit(tmp_path / "bank")
    assert len(fit(tmp_path / "bank")) == N


def test_progress_is_shown_where_wanted(tmp_path, capsys):
    fit(tmp_path / "bank")
    assert capsys.readouterr().err == ""
    fit(tmp_path / "other", estimator=clone(KNN).set_params(verbose=True))
    shown = capsys.readouterr().err
    assert all(f"partitions {done}" in shown for done in ("counted", "sampled", "embedded"))


# -- workers -------------------------------------------------------------------------------------


EMBED = building.embed_partition


def die_once(frame, roles, fitted, part):
    """Write a shard; but kill the first process that writes the second one, in the middle."""
    mark = fitted.path.with_name("died")
    if part.file.name == "shard-00001.safetensors" and not mark.exists():
        mark.touch()
        half = part.file.with_name(f".{part.file.name}.{'0' * 32}")
        half.mkdir()
        (half / part.file.name).write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return EMBED(frame, roles, fitted, part)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_dies_is_replaced(tmp_path):
    with two_workers(), patch.object(building, "embed_partition", die_once):
        sharded = fit(tmp_path / "bank")
    assert (tmp_path / "died").exists()
    names = {path.name for path in (tmp_path / "bank").iterdir()}
    assert {name for name in names if name.startswith(".")} == set()
    whole = fit(tmp_path / "other")
    X = NUMBERS[["a", "b"]]
    np.testing.assert_allclose(sharded.predict(X), whole.predict(X), rtol=1e-6)
    np.testing.assert_array_equal(sharded.kneighbors(X)[1], whole.kneighbors(X)[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_error_of_a_worker_names_the_partition_and_the_rest_is_resumed(tmp_path):
    with noted("draw_sample") as drawn:
        whole = fit(tmp_path / "other")
    outside = np.setdiff1d(np.arange(200, 300), drawn[0][0])[0] - 200
    parts = parts_with(
        2, lambda part: part.assign(a=part.a.mask(np.arange(100) == outside, 1e300))
    )
    with two_workers(), noted("embed_partition") as here:
        with pytest.raises(ValueError, match=r"partition 2: .*too large for float32"):
            fit(tmp_path / "bank", dd.from_map(lambda part: part, parts))
        assert (tmp_path / "bank" / building.PLAN).exists()
        sharded = fit(tmp_path / "bank")
    assert here == []  # workers embed
    X = NUMBERS[["a", "b"]]
    np.testing.assert_allclose(sharded.predict(X), whole.predict(X), rtol=1e-6)


WRITER = """
import sys, time
from pathlib import Path
from unittest.mock import patch
sys.path.insert(0, {tests!r})
from scaling import test_fit_shards as tests
embed = tests.building.embed_partition

def slow(*args):
    Path({mark!r}).touch()
    time.sleep(0.5)
    return embed(*args)

with patch.object(tests.building, "embed_partition", slow):
    print(len(tests.fit(Path({folder!r}))))
"""


@pytest.mark.slow
def test_two_processes_do_not_write_one_folder(tmp_path):
    folder, mark = tmp_path / "bank", tmp_path / "writes"
    tests = str(Path(__file__).parents[1])
    script = WRITER.format(tests=tests, mark=str(mark), folder=str(folder))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as writer:
        while not mark.exists():
            assert writer.poll() is None
        with pytest.raises(BlockingIOError, match="is written by another process"):
            fit(folder)
        with pytest.raises(FileNotFoundError, match=r"there is no shards\.json"):
            ShardedNeighbors(folder)
        assert int(writer.communicate()[0]) == N
    assert len(ShardedNeighbors(folder)) == N


@pytest.mark.slow
def test_a_killed_process_is_resumed(tmp_path):
    folder, mark = tmp_path / "bank", tmp_path / "writes"
    tests = str(Path(__file__).parents[1])
    script = WRITER.format(tests=tests, mark=str(mark), folder=str(folder))
    with subprocess.Popen([sys.executable, "-c", script]) as writer:
        while not (folder / "shard-00001.safetensors").exists():
            assert writer.poll() is None
        writer.kill()
    with noted("embed_partition") as embedded:
        assert len(fit(folder)) == N
    assert 1 <= len(embedded) <= 2
