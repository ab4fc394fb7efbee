"""Banks in shards: folders, files and processes, also after one of them is killed."""

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Timer
from unittest.mock import patch

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from clusters import two_workers
from inner.data import source
from inner.persistence import file as file_module
from inner.scaling import sharded as sharded_module
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsTransformer

from nona_sklearn import (
    NONARegressor,
    ShardedNeighbors,
    SoftStep,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    save_shards,
)

SCALING = Path(__file__).parents[2] / "docs" / "scaling.md"
QUICK = {"max_iter": 2, "random_state": 0}
POINTWISE = SoftStep("s2", "pointwise")
ON_RANKS = SoftStep("s1", on="rank")
ONE = {"n_estimators": 1, **QUICK}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 4))
Y = X[:, 0] + X[:, 1] ** 2
QUERIES = np.vstack([X[:5] + 0.1, X[:3], 1e3 * X[:3]])
KIND = np.where(Y > 0.5, "high", "low")


def shards(estimator, tmp_path, n_shards=4, **params):
    save_shards(estimator, tmp_path / "bank", n_shards)
    return ShardedNeighbors(tmp_path / "bank", **params)


def lose(estimator, rows):
    """Leave out rows of a lost shard: a trend, which the estimator's file has, stays as it was."""
    rows = estimator.bank_.positions(np.array(rows))
    kept = np.delete(np.arange(len(estimator.bank_)), rows)
    estimator.bank_ = estimator.bank_.in_order(kept)


def assert_same(ours, expected):
    """To rounding: similarities and weights are of float32."""
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


# -- searches --------------------------------------------------------------------------


def test_graphs_of_shards_are_read_not_built(tmp_path):
    faiss = pytest.importorskip("faiss")
    fitted = NONARegressor(n_neighbors=9, algorithm="hnsw", **ONE).fit(X, Y)
    sharded = shards(fitted, tmp_path)
    with patch.object(faiss, "IndexHNSWFlat", side_effect=AssertionError("built anew")):
        assert_same(sharded.predict(QUERIES), fitted.predict(QUERIES))


def test_each_shard_is_read_once_for_weights_that_end(tmp_path, monkeypatch):
    fitted = NONARegressor(n_neighbors=9, **ONE).fit(X, Y)
    sharded, n_read = shards(fitted, tmp_path), []
    read = sharded_module.search_shard
    monkeypatch.setattr(
        sharded_module, "search_shard", lambda *args: n_read.append(args[0]) or read(*args)
    )
    for method in (sharded.predict, sharded.predict_quantiles, sharded.heaviest_neighbors):
        method(QUERIES)
        assert len(n_read) == 4
        n_read.clear()


@pytest.mark.slow
@pytest.mark.parametrize("n_shards", [1, 7, 150])
def test_the_number_of_shards_does_not_matter(n_shards, tmp_path):
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path, n_shards)
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
    weights, ids = estimator.heaviest_neighbors(QUERIES[:5], 9)
    found = sharded.heaviest_neighbors(QUERIES[:5], 9)[1]
    np.testing.assert_array_equal(found[weights > 0], ids[weights > 0])
    assert all(len({*row}) == 9 for row in found)  # of those without weight any


def test_blocks_of_queries_do_not_matter(tmp_path, monkeypatch):
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path)
    whole = sharded.predict(None)
    monkeypatch.setattr(sharded_module, "QUERY_BLOCK", 10)
    np.testing.assert_allclose(sharded.predict(None), whole, rtol=0, atol=1e-12)


# -- edits -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("open_rows", "n_files"), [(0, 5), (4096, 3)])
def test_edits_are_those_of_the_whole_bank(open_rows, n_files, tmp_path, monkeypatch):
    monkeypatch.setattr(sharded_module, "OPEN_ROWS", open_rows)
    table = pd.DataFrame(X, columns=list("abcd"), index=[f"row {i}" for i in range(150)])
    estimator = NONARegressor(**ONE).fit(table[:100], Y[:100], groups=np.arange(100) // 2)
    sharded = shards(estimator, tmp_path)
    for each in (estimator, sharded):
        assert each.add_neighbors(table[100:], Y[100:]).tolist() == list(range(100, 150))
        each.remove_neighbors(ids=[3, 99, 120])
        each.remove_neighbors(ids=range(25, 50))  # a whole shard
        assert each.add_neighbors(table[:2].add_prefix("again ", axis=0), Y[:2]).tolist() == [
            150,
            151,
        ]
    assert len(sharded) == len(estimator.bank_) == 124
    for one in (sharded, ShardedNeighbors(tmp_path / "bank")):
        assert_same(one.predict(table), estimator.predict(table))
        weights = (e.heaviest_neighbors(table[:9])[0] for e in (one, estimator))
        assert_same(*weights)
    own = sharded_module.Folder.read(tmp_path / "bank").estimator_file
    listed = {own, "shards.json", sharded_module.LOCK}
    files = {path.name for path in (tmp_path / "bank").iterdir()} - listed
    assert len(files) == n_files  # forgotten rows are in no file


def test_a_reopened_folder_gives_no_id_twice(tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    other = ShardedNeighbors(tmp_path / "bank")  # opened before the edits
    assert sharded.add_neighbors(X[:5], Y[:5]).tolist() == [150, 151, 152, 153, 154]
    sharded.remove_neighbors(ids=[154])
    assert other.add_neighbors(X[:1], Y[:1]).tolist() == [155]
    again = ShardedNeighbors(tmp_path / "bank")
    assert again.add_neighbors(X[:1], Y[:1]).tolist() == [156]
    assert len(again.remove_neighbors(ids=[150])) == len(other) == 155


EDITS = {
    "remove": lambda sharded: sharded.remove_neighbors(ids=[1]),
    "remove a shard": lambda sharded: sharded.remove_neighbors(ids=range(38)),
    "add": lambda sharded: sharded.add_neighbors(X[:1], Y[:1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("open_rows", [0, 4096])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("moment", ["shard", "written shard", "manifest"])
def test_an_interrupted_edit_leaves_the_shards_as_they_were(
    edit, open_rows, error, moment, tmp_path, monkeypatch
):
    monkeypatch.setattr(sharded_module, "OPEN_ROWS", open_rows)
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    before, files = sharded.predict(QUERIES), {*(tmp_path / "bank").iterdir()}
    real = sharded_module.write

    def interrupt(*arguments, **params):
        if moment == "written shard":
            real(*arguments, **params)
        raise error

    with monkeypatch.context() as patched:
        if moment == "manifest":
            patched.setattr(sharded_module.Folder, "write", interrupt)
        else:
            patched.setattr(sharded_module, "write", interrupt)
        if (edit, moment) == ("remove a shard", "shard"):
            patched.setattr(sharded_module.Folder, "write", interrupt)  # no shard is written
        with suppress(error):
            EDITS[edit](sharded)
            pytest.skip("a whole shard is removed without writing another")
    again = ShardedNeighbors(tmp_path / "bank")
    assert len(again) == len(sharded) == 150
    assert {*(tmp_path / "bank").iterdir()} == files | {tmp_path / "bank" / sharded_module.LOCK}
    np.testing.assert_array_equal(sharded.predict(QUERIES), before)
    np.testing.assert_array_equal(again.predict(QUERIES), before)
    EDITS[edit](again)  # nothing is in its way
    assert len(sharded) == {"remove": 149, "remove a shard": 112, "add": 151}[edit]


EDITOR = """
import sys
import numpy as np
from nona_sklearn import ShardedNeighbors

sharded = ShardedNeighbors(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i in range(8):
    ids = sharded.add_neighbors(np.full((2, 4), i / 8), np.ones(2))
    sharded.remove_neighbors(ids=ids[0])
"""


@pytest.mark.slow
def test_edits_of_several_processes_wait_for_each_other(tmp_path):
    shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    folder = tmp_path / "bank"
    command = [sys.executable, "-c", EDITOR, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    editors = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]
    for editor in editors:
        assert editor.stdout.readline() == "ready\n"
    for editor in editors:  # at the same time
        editor.stdin.write("go\n")
        editor.stdin.flush()
    for editor in editors:
        _, errors = editor.communicate(timeout=100)
        assert editor.returncode == 0, errors
    assert len(ShardedNeighbors(folder)) == 150 + 2 * 8
    assert sharded_module.Folder.read(folder).next_id == 150 + 2 * 8 * 2


def test_an_edit_of_a_folder_that_is_gone_leaves_nothing(tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    shutil.rmtree(tmp_path / "bank")
    with pytest.raises(FileNotFoundError, match="folder must be one that save_shards wrote"):
        sharded.add_neighbors(X[:1], Y[:1])
    assert not list(tmp_path.iterdir())


def test_files_of_a_killed_edit_are_deleted_by_the_next(tmp_path):
    sharded = shards(NONARegressor(similarity="l2", **ONE).fit(X, Y), tmp_path)
    folder = tmp_path / "bank"
    beside = f".shard-00004.safetensors.{'0a' * 16}", f".shards.json.{'b1' * 16}"
    for name in ("shard-00004.safetensors", "shard-00099.safetensors", *beside):
        (folder / name).write_text("half a shard")
    (folder / ".tmpA1b2C3").write_text("of safetensors, as version 0.2.0 left it")
    writing = folder / f".shard-00004.safetensors.{'c2' * 16}"
    writing.mkdir()
    (writing / ".tmpXyZ123").write_text("half a shard")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "notes.txt").write_text("mine")
    (folder / f".shards.json.{'d3' * 16}").symlink_to(elsewhere)
    mine = [
        "shard-mine.safetensors",
        ".hidden",
        "notes.txt",
        ".tmpA1b2C34",
        "shard-٠٠٠٠٧.safetensors",
    ]
    for name in mine:
        (folder / name).write_text("mine")
    sharded.add_neighbors(X[:1], Y[:1])
    assert len(sharded) == 151
    left = {path.name for path in folder.iterdir()}
    listed = {entry.path.name for entry in sharded_module.Folder.read(folder).shards}
    assert left == listed | {"estimator.safetensors", "shards.json", sharded_module.LOCK, *mine}
    assert (elsewhere / "notes.txt").read_text() == "mine"


KILLED = """
import resource, signal, sys
import numpy as np
from nona_sklearn import ShardedNeighbors

sharded = ShardedNeighbors(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the signal that ends a process
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
sharded.add_neighbors(np.ones((2, 4)), np.ones(2))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
def test_nothing_of_a_killed_edit_is_left_after_the_next(tmp_path):
    """It would hold rows that are to be forgotten."""
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    folder = tmp_path / "bank"
    before = {*folder.iterdir(), folder / sharded_module.LOCK}
    done = subprocess.run([sys.executable, "-c", KILLED, folder])
    assert done.returncode < 0  # by a signal, amid the writing
    assert {*folder.iterdir()} > before
    assert len(sharded) == 150
    sharded.remove_neighbors(ids=0)
    listed = {entry.path for entry in sharded_module.Folder.read(folder).shards}
    estimator = sharded_module.Folder.read(folder).estimator_file  # with the trend without the row
    others = [estimator, sharded_module.MANIFEST, sharded_module.LOCK]
    assert {*folder.iterdir()} == listed | {folder / name for name in others}


@pytest.mark.parametrize("leads_to", ["a file", "a folder", "nothing"])
def test_an_edit_does_not_write_through_a_link(leads_to, tmp_path):
    """A folder from others may hold links to any file of the user's."""
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path)
    next_one, victim = tmp_path / "bank" / "shard-00004.safetensors", tmp_path / "mine"
    if leads_to == "a file":
        victim.write_text("mine")
        victim.chmod(0o755)
    if leads_to == "a folder":
        victim.mkdir()
    next_one.symlink_to(victim)
    for each in (sharded, estimator):
        each.add_neighbors(X[:2], Y[:2])
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
    assert next_one.is_file()
    assert not next_one.is_symlink()
    assert next_one.stat().st_mode & 0o111 == 0
    assert os.path.lexists(victim) == (leads_to != "nothing")
    assert leads_to != "a file" or victim.read_text() == "mine"
    assert leads_to != "a folder" or not list(victim.iterdir())


@pytest.mark.parametrize("name", ["shard-00003.safetensors", "shards.json"])
def test_an_edit_replaces_a_link_that_it_has_read(name, tmp_path):
    """What lies elsewhere may serve another folder."""
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path)
    link, elsewhere = tmp_path / "bank" / name, tmp_path / "elsewhere"
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    for each in (sharded, estimator):
        each.add_neighbors(X[:2], Y[:2])
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
    assert not link.is_symlink()
    assert elsewhere.read_bytes() == before


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    victim = tmp_path / "mine"
    victim.write_text("mine")
    (tmp_path / "bank" / sharded_module.LOCK).symlink_to(victim)
    for edit in EDITS.values():
        with pytest.raises(ValueError, match=r"edits\.lock must be a file of the folder's own"):
            edit(sharded)
    assert victim.read_text() == "mine"
    assert len(sharded) == 150


def test_folders_of_a_shard_s_name_stay(tmp_path):
    sharded = shards(NONARegressor(similarity="l2", **ONE).fit(X, Y), tmp_path)
    folder = tmp_path / "bank"
    for number in (7, 5):
        (folder / f"shard-{number:05d}.safetensors").mkdir()
    assert sharded.add_neighbors(X[:1], Y[:1]).tolist() == [150]
    before = {*folder.iterdir()}
    with pytest.raises(OSError, match=r"shard-00005\.safetensors could not be written: "):
        sharded.add_neighbors(X[:1], Y[:1])
    assert {*folder.iterdir()} == before
    assert len(sharded) == 151


@pytest.mark.parametrize("n_rows", [37, 38])
def test_a_shard_takes_rows_until_it_is_full(n_rows, tmp_path, monkeypatch):
    """The last of four shards of 150 rows has 37."""
    assert f"up to {sharded_module.OPEN_ROWS:,} rows" in SCALING.read_text()
    monkeypatch.setattr(sharded_module, "OPEN_ROWS", n_rows)
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    sharded.add_neighbors(X[:3], Y[:3])
    sizes = [entry.n_rows for entry in sharded_module.Folder.read(tmp_path / "bank").shards]
    assert sizes == [38, 38, 37, *([37, 3] if n_rows == 37 else [40])]


def test_a_new_folder_is_whole_or_not_there(tmp_path, monkeypatch):
    estimator = NONARegressor(**ONE).fit(X, Y)
    folder = tmp_path / "bank"
    estimator.note_ = print
    with pytest.raises(TypeError, match=r"a file cannot hold this estimator.*note_"):
        save_shards(estimator, folder, 2)
    del estimator.note_

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for what in ("write", "Folder.put", "Folder.write"):
        with monkeypatch.context() as patched:
            patched.setattr(f"inner.scaling.sharded.{what}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                save_shards(estimator, folder, 2)
        assert not list(tmp_path.iterdir())
    save_shards(estimator, folder, 2)
    assert len(ShardedNeighbors(folder)) == len(estimator.bank_) == 150


# -- queries during an edit ---------------------------------------------------------------------


def at_call(number, happens):
    """Evaluate a shard; at one of the calls something happens first."""
    calls = []

    def evaluate(*arguments):
        calls.append(1)
        if len(calls) == number:
            happens()
        return SEARCH_SHARD(*arguments)

    return evaluate


@pytest.mark.slow
@pytest.mark.parametrize("queries", [QUERIES, None], ids=["queries", "leave-one-out"])
@pytest.mark.parametrize("allow_partial", [False, True])
@pytest.mark.parametrize("number", [1, 2, 4, 5, 9, 12])
def test_a_prediction_is_of_the_bank_at_one_moment(
    number, allow_partial, queries, tmp_path, monkeypatch
):
    monkeypatch.setattr(sharded_module, "QUERY_BLOCK", 5)
    monkeypatch.setattr(source, "EMBED_BLOCK", 5)
    estimator = NONARegressor(n_neighbors=9, softstep=ON_RANKS, **ONE).fit(X[:60], Y[:60])
    sharded = shards(estimator, tmp_path, allow_partial=allow_partial)
    editor = ShardedNeighbors(tmp_path / "bank")
    estimator.remove_neighbors(ids=[3, 20, 50])
    edit = partial(editor.remove_neighbors, ids=[3, 20, 50])
    monkeypatch.setattr(sharded_module, "search_shard", at_call(number, edit))
    assert_same(sharded.predict(queries), estimator.predict(queries))
    assert sharded.missing_shards_ == []
    assert len(sharded) == 57


@pytest.mark.parametrize("number", [1, 3])
def test_rows_that_are_read_all_at_once_are_of_one_moment(number, tmp_path, monkeypatch):
    estimator = NONARegressor(n_neighbors=None, **ONE).fit(X[:60], Y[:60])
    sharded, calls = shards(estimator, tmp_path), []
    editor, read = ShardedNeighbors(tmp_path / "bank"), sharded_module.Entry.open

    def edit_and_read(entry):
        calls.append(1)
        if len(calls) == number:
            editor.remove_neighbors(ids=[3, 20, 50])
        return read(entry)

    monkeypatch.setattr(sharded_module.Entry, "open", edit_and_read)
    found = sharded.predict(QUERIES)
    assert_same(found, estimator.remove_neighbors(ids=[3, 20, 50]).predict(QUERIES))
    assert sharded.missing_shards_ == []


@pytest.mark.parametrize("number", [1, 6])
def test_the_trend_of_a_prediction_is_of_the_same_moment(number, tmp_path, monkeypatch):
    monkeypatch.setattr(sharded_module, "QUERY_BLOCK", 5)
    estimator = NONARegressor(trend="kernel", **ONE).fit(X[:60], Y[:60])
    sharded = shards(estimator, tmp_path)
    edit = partial(ShardedNeighbors(tmp_path / "bank").remove_neighbors, ids=[3, 20, 50])
    monkeypatch.setattr(sharded_module, "search_shard", at_call(number, edit))
    found = sharded.predict(QUERIES)
    assert_same(found, estimator.remove_neighbors(ids=[3, 20, 50]).predict(QUERIES))


@pytest.mark.parametrize("queries", [np.repeat(QUERIES, 3, axis=0), None], ids=["given", "own"])
@pytest.mark.parametrize("number", [2, 6, 14])
def test_a_shard_that_is_lost_midway_is_in_no_part_of_a_prediction(
    number, queries, tmp_path, monkeypatch
):
    monkeypatch.setattr(sharded_module, "QUERY_BLOCK", 5)
    monkeypatch.setattr(source, "EMBED_BLOCK", 5)
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path, 3, allow_partial=True)
    lost = tmp_path / "bank" / "shard-00001.safetensors"
    monkeypatch.setattr(sharded_module, "search_shard", at_call(number, lost.unlink))
    lose(estimator, range(50, 100))
    assert_same(sharded.predict(queries), estimator.predict(queries))
    assert sharded.missing_shards_ == [lost.name]


def test_a_shard_that_is_deleted_while_it_is_opened_is_lost(tmp_path, monkeypatch):
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path, 3, allow_partial=True)
    lost = tmp_path / "bank" / "shard-00001.safetensors"
    opens = file_module.safetensors.safe_open

    def safe_open(path, **params):
        if path == lost:
            lost.unlink(missing_ok=True)
            torch.UntypedStorage.from_file(str(path), False, 8)  # its error, of the file's end
        return opens(path, **params)

    monkeypatch.setattr(file_module.safetensors, "safe_open", safe_open)
    lose(estimator, range(50, 100))
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
    assert sharded.missing_shards_ == [lost.name]


# -- faults ------------------------------------------------------------------------------------


def test_a_missing_shard_is_named_or_done_without(tmp_path):
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path, 3)
    (tmp_path / "bank" / "shard-00001.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"shard-00001\.safetensors is missing from"):
        sharded.predict(QUERIES)
    partial = ShardedNeighbors(tmp_path / "bank", allow_partial=True)
    predictions = partial.predict(QUERIES)
    assert partial.missing_shards_ == ["shard-00001.safetensors"]
    lose(estimator, range(50, 100))
    assert_same(predictions, estimator.predict(QUERIES))
    # Leave-one-out is of the rows that are left, whichever shard is lost.
    assert_same(partial.predict(None), estimator.predict(None))
    assert partial.missing_shards_ == ["shard-00001.safetensors"]
    weights, ids = partial.heaviest_neighbors(QUERIES, 100)
    assert_same(weights.sum(axis=1), 1)
    assert np.setdiff1d(ids, estimator.bank_.ids.numpy()).size == 0
    for queries, most in ((QUERIES, 100), (None, 99)):
        with pytest.raises(ValueError, match=f"n_neighbors must be an integer from 1 to {most}"):
            partial.heaviest_neighbors(queries, most + 1)
    (tmp_path / "bank" / "shard-00000.safetensors").unlink()
    lose(estimator, range(50))
    assert_same(partial.predict(None), estimator.predict(None))
    assert partial.missing_shards_ == ["shard-00000.safetensors", "shard-00001.safetensors"]
    (tmp_path / "bank" / "shard-00002.safetensors").unlink()
    for queries in (QUERIES, None):
        with pytest.raises(FileNotFoundError, match="is missing from"):
            partial.predict(queries)


def test_a_shard_that_comes_back_is_queried_again(tmp_path):
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path, 3, allow_partial=True)
    path = tmp_path / "bank" / "shard-00001.safetensors"
    path.rename(tmp_path / "away")
    sharded.predict(QUERIES)
    assert sharded.missing_shards_ == [path.name]
    (tmp_path / "away").rename(path)
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
    assert sharded.missing_shards_ == []


def test_rows_join_another_shard_if_the_last_is_lost(tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path, 3, allow_partial=True)
    (tmp_path / "bank" / "shard-00002.safetensors").unlink()
    assert sharded.add_neighbors(X[:1] + 50, [99.0]).tolist() == [150]
    assert sharded.heaviest_neighbors(X[:1] + 50, 1)[1] == 150


def test_a_damaged_shard_is_named_or_done_without(tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path, 3)
    path = tmp_path / "bank" / "shard-00002.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"shard-00002\.safetensors is damaged"):
        sharded.heaviest_neighbors(QUERIES)
    sharded.allow_partial = True
    assert sharded.heaviest_neighbors(QUERIES)[1].max() < 100
    assert sharded.missing_shards_ == ["shard-00002.safetensors"]


def test_bad_arguments_are_refused(tmp_path):
    folder = tmp_path / "bank"
    for other in (TableEncoder(), 3):
        with pytest.raises(TypeError, match="estimator must be one of nona_sklearn with a bank"):
            save_shards(other, folder, 2)
    with pytest.raises(ValueError, match="is not fitted"):
        save_shards(NONARegressor(), folder, 2)
    estimator = NONARegressor(**ONE).fit(X, Y)
    for n in (0, 151, 2.5, None, True):
        with pytest.raises(
            ValueError, match="n_shards must be an integer from 1 to the bank's 150"
        ):
            save_shards(estimator, folder, n)
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises(OSError, match="folder must be new, got"):
        save_shards(estimator, folder, 2)
    with pytest.raises(FileNotFoundError, match=r"there is no shards\.json in"):
        ShardedNeighbors(folder)
    assert len(estimator.bank_) == 150


def test_a_process_keeps_the_shards_that_it_queried_last(tmp_path, monkeypatch):
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path)
    paths = sorted((tmp_path / "bank").glob("shard-*"))
    monkeypatch.setattr(sharded_module, "CACHE", sharded_module.ShardCache())
    monkeypatch.setattr(sharded_module, "MAPPED_BYTES", 2 * max(p.stat().st_size for p in paths))
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
    assert [entry.path for entry, _ in sharded_module.CACHE.mapped] == paths[-2:]
    monkeypatch.setattr(sharded_module, "MAPPED_BYTES", 1)
    sharded.predict(QUERIES)
    assert [entry.path for entry, _ in sharded_module.CACHE.mapped] == paths[-1:]


def test_a_file_is_verified_once_and_again_when_it_has_changed(tmp_path, monkeypatch):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    monkeypatch.setattr(sharded_module, "CACHE", sharded_module.ShardCache())
    monkeypatch.setattr(sharded_module, "MAPPED_BYTES", 1)  # each is mapped anew
    verified = []
    real = file_module._checksum
    monkeypatch.setattr(file_module, "_checksum", lambda *of: (verified.append(1), real(*of))[1])
    sharded.predict(QUERIES)
    sharded.predict(QUERIES)
    assert len(verified) == 4
    path = tmp_path / "bank" / "shard-00003.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    os.utime(path, (1, 1))
    with pytest.raises(ValueError, match=r"shard-00003\.safetensors is damaged: its checksum"):
        sharded.predict(QUERIES)


def test_the_cache_of_a_process_is_bounded(tmp_path, monkeypatch):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path, 5)
    monkeypatch.setattr(sharded_module, "CACHE", sharded_module.ShardCache())
    monkeypatch.setattr(sharded_module, "VERIFIED", 3)
    sharded.predict(QUERIES)
    names = [entry.path.name for entry, _ in sharded_module.CACHE.verified]
    assert names == [f"shard-{i:05d}.safetensors" for i in (2, 3, 4)]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks beside threads
def test_a_forked_process_predicts_although_another_thread_was_reading(tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    expected, context = sharded.predict(QUERIES), multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def predict():
        signal.alarm(60)  # rather than wait for ever
        sender.send(sharded.predict(QUERIES))

    with ThreadPoolExecutor(1) as pool:  # another thread is reading while we fork
        held, done = Event(), Event()

        def read():
            with sharded_module.CACHE.lock.held():
                held.set()
                done.wait(100)

        reading = pool.submit(read)
        assert held.wait(10)
        child = context.Process(target=predict)
        child.start()
        try:
            child.join(90)
            assert child.exitcode == 0
        finally:
            done.set()
        reading.result()
    np.testing.assert_array_equal(receiver.recv(), expected)


@pytest.mark.parametrize("other", ["another shard", "the estimator", "another bank's"])
def test_another_file_is_no_shard(other, tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    sharded.predict(QUERIES)
    folder = tmp_path / "bank"
    if other == "another bank's":
        shards(NONARegressor(**ONE).fit(X, Y**2), tmp_path / "other")
    source = {
        "another shard": folder / "shard-00001.safetensors",
        "the estimator": folder / "estimator.safetensors",
        "another bank's": tmp_path / "other" / "bank" / "shard-00002.safetensors",
    }[other]
    shutil.copy(source, folder / "shard-00002.safetensors")
    with pytest.raises(ValueError, match=r"shard-00002\.safetensors is damaged: it is another"):
        sharded.predict(QUERIES)
    sharded.allow_partial = True
    sharded.predict(QUERIES)
    assert sharded.missing_shards_ == ["shard-00002.safetensors"]
    if other != "the estimator":
        shutil.copy(source, folder / "estimator.safetensors")
        with pytest.raises(ValueError, match=r"estimator\.safetensors is damaged: it is another"):
            ShardedNeighbors(folder)


def damaged_manifests():
    """Ways to damage a manifest's content; the checksum is left, or made to fit."""

    def change(**params):
        return lambda content: content | params

    def change_first(**params):
        def changed(content):
            first, *rest = content["shards"]
            return content | {"shards": [first | params, *rest]}

        return changed

    accidents = {
        "no shards": change(shards=[]),
        "one left out": lambda content: content | {"shards": content["shards"][1:]},
        "one twice": lambda content: content | {"shards": content["shards"] * 2},
        "n_rows": change_first(n_rows=3),
        "last": change_first(last=3),
        "next_id": change(next_id=3),
        "next_number": change(next_number=0),
    }
    forgeries = {
        "no shards, forged": change(shards=[]),
        "a path": change_first(path="/etc/passwd"),
        "a path up": change_first(path="../bank/shard-00000.safetensors"),
        "a null": change_first(path="shard\0"),
        "other digits": change_first(path="shard-٠٠٠٠٠.safetensors"),
        "many digits": change_first(path=f"shard-{'0' * 4000}.safetensors"),
        **{f"sha256 {of!r}": change_first(sha256=of) for of in (None, [], "", "0" * 63, {"a": 1})},
        **{f"estimator {of!r}": change(estimator=of) for of in (None, [], "", "G" * 64, 3)},
        "a list": lambda content: [content],
        "more": change(more=1),
        "not shards": change(shards=3),
        **{f"n_rows {n!r}": change_first(n_rows=n) for n in ("x", -75, 0, 1.5, True, None, 99)},
        "one twice, forged": lambda content: content | {"shards": content["shards"] * 2},
        "the other way round": lambda content: content | {"shards": content["shards"][::-1]},
        "no first": change_first(first=None),
        "first after last": change_first(first=30, last=20),
        "a negative first": change_first(first=-1),
        "ids of the next": change_first(last=60),
        "no last": change_first(last="37"),
        **{f"next_id {n!r}": change(next_id=n) for n in ("x", -1, 149, 2**70, None)},
        **{f"next_number {n!r}": change(next_number=n) for n in ("../../x", -1, 0, 3, None)},
    }
    return [
        *(pytest.param(each, False, id=name) for name, each in accidents.items()),
        *(pytest.param(each, True, id=name) for name, each in forgeries.items()),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "forged"), damaged_manifests())
def test_a_changed_manifest_is_damaged_and_nothing_is_deleted(damage, forged, tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    folder = tmp_path / "bank"
    content = json.loads((folder / "shards.json").read_text())
    checksum = content.pop("sha256")
    changed = damage(content)
    if forged and isinstance(changed, dict):
        checksum = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    if isinstance(changed, dict):
        changed["sha256"] = checksum
    (folder / "shards.json").write_text(json.dumps(changed))
    files = sorted(folder.iterdir())
    for evaluate in (
        lambda: ShardedNeighbors(folder),
        lambda: sharded.predict(QUERIES),
        lambda: sharded.add_neighbors(X[:1], Y[:1]),
        lambda: sharded.remove_neighbors(ids=[60]),
    ):
        with pytest.raises(ValueError, match=r"shards\.json is damaged"):
            evaluate()
    assert sorted(folder.iterdir()) == files


def forge_manifest(folder, **params):
    """Change entries of the manifest, or of its first shard, with a checksum that fits."""
    content = json.loads((folder / "shards.json").read_text())
    del content["sha256"]
    for name, value in params.items():
        (content if name in content else content["shards"][0])[name] = value
    checksum = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (folder / "shards.json").write_text(json.dumps(content | {"sha256": checksum}))


@pytest.mark.parametrize(
    "first", [{"n_rows": 37}, {"first": 0, "last": 36, "n_rows": 37}], ids=str
)
def test_a_shard_of_other_rows_than_are_listed_is_damaged(first, tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    forge_manifest(tmp_path / "bank", **first)
    with pytest.raises(ValueError, match=r"shard-00000\.safetensors is damaged: it holds other"):
        sharded.predict(QUERIES)


@pytest.mark.parametrize("held", [3, {"bank": 3, "graphs": None}, {"graphs": None}], ids=str)
def test_a_file_of_something_else_is_no_shard(held, tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    path = tmp_path / "bank" / "shard-00000.safetensors"
    forge_manifest(tmp_path / "bank", sha256=file_module.write(held, path))
    with pytest.raises(
        ValueError, match=r"shard-00000\.safetensors is damaged: it holds no shard"
    ):
        sharded.predict(QUERIES)


WITHOUT_A_BANK = NONARegressor()
WITHOUT_A_BANK.bank_ = 3


@pytest.mark.parametrize("held", [3, NONARegressor(), TableEncoder(), WITHOUT_A_BANK], ids=str)
def test_a_file_of_something_else_is_no_estimator(held, tmp_path):
    shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    path = tmp_path / "bank" / "estimator.safetensors"
    forge_manifest(tmp_path / "bank", estimator=file_module.write(held, path))
    with pytest.raises(ValueError, match=r"estimator\.safetensors is damaged: it holds no fitted"):
        ShardedNeighbors(tmp_path / "bank")


@pytest.mark.parametrize("edit", ["add", "remove"])
@pytest.mark.parametrize(("name", "most"), [("next_id", 2**62), ("next_number", 2**62)])
def test_an_edit_writes_no_manifest_that_could_not_be_read(name, most, edit, tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    folder = tmp_path / "bank"
    forge_manifest(folder, **{name: most})
    before = {*folder.iterdir(), folder / sharded_module.LOCK}
    if (name, edit) == ("next_id", "remove"):
        EDITS[edit](sharded)
        assert len(sharded) == 149
        return
    with pytest.raises(ValueError, match=rf"shards\.json cannot be written: .*{name} must be"):
        EDITS[edit](sharded)
    assert {*folder.iterdir()} == before
    assert len(ShardedNeighbors(folder)) == len(ShardedNeighbors(folder).predict(None)) == 150


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize(
    "name", ["shards.json", "estimator.safetensors", "shard-00001.safetensors"]
)
def test_a_pipe_is_no_file_of_a_folder(name, tmp_path):
    """To open it would take for ever."""
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    (tmp_path / "bank" / name).unlink()
    os.mkfifo(tmp_path / "bank" / name)
    with pytest.raises(FileNotFoundError):
        ShardedNeighbors(tmp_path / "bank").predict(QUERIES)
    if name != "estimator.safetensors":
        with pytest.raises(FileNotFoundError):
            sharded.predict(QUERIES)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"sha256": 3}', "[" * 100_000, ""])
def test_a_damaged_manifest_is_named(text, tmp_path):
    sharded = shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    (tmp_path / "bank" / "shards.json").write_text(text)
    with pytest.raises(ValueError, match=r"shards\.json is damaged"):
        ShardedNeighbors(tmp_path / "bank")
    with pytest.raises(ValueError, match=r"shards\.json is damaged"):
        sharded.predict(QUERIES)


def test_bad_parameters_are_named(tmp_path, monkeypatch):
    shards(NONARegressor(**ONE).fit(X, Y), tmp_path)
    folder = tmp_path / "bank"
    for wrong in (None, 3, [1], b"x"):
        with pytest.raises(TypeError, match="folder must be a str or path-like, got"):
            ShardedNeighbors(wrong)
        with pytest.raises(TypeError, match="folder must be a str or path-like, got"):
            save_shards(NONARegressor(), wrong, 2)
    for wrong in ("", "a\0b"):
        with pytest.raises(ValueError, match="folder must name a place on disk, got"):
            ShardedNeighbors(wrong)
    for wrong in ("a", 0, 1.5, True):
        with pytest.raises(ValueError, match="n_jobs must be None or an integer other than 0"):
            ShardedNeighbors(folder, n_jobs=wrong)
    for wrong in ("no", 1, None):
        with pytest.raises(ValueError, match="allow_partial must be True or False, got"):
            ShardedNeighbors(folder, allow_partial=wrong)
    with pytest.raises(FileNotFoundError, match=r"there is no shards\.json in"):
        ShardedNeighbors(folder / "shards.json")
    with pytest.raises(TypeError, match="load was passed callbacks"):
        ShardedNeighbors(folder, callbacks=[])
    monkeypatch.chdir(tmp_path)
    relative = ShardedNeighbors("bank")
    monkeypatch.chdir("/")
    assert len(relative.predict(QUERIES)) == len(QUERIES)


# -- workers -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", ["auto", "kd_tree", "hnsw", KNeighborsTransformer(n_neighbors=60)]
)
def test_processes_evaluate_shards(algorithm, tmp_path):
    if algorithm == "hnsw":
        pytest.importorskip("faiss")
    params = {} if algorithm == "auto" else {"n_neighbors": 9, "algorithm": algorithm}
    estimator = NONARegressor(n_estimators=2, **params, **QUICK).fit(X, Y)
    external = {} if isinstance(algorithm, str) else {"algorithm": clone(algorithm)}
    sharded = shards(estimator, tmp_path, n_jobs=2, **external)
    for queries in (QUERIES, None):
        assert_same(sharded.predict(queries), estimator.predict(queries))
    for each in (sharded, estimator):
        ids = each.add_neighbors(QUERIES[-2:], [50.0, 60.0])
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
    for each in (sharded, estimator):
        each.remove_neighbors(ids=[*ids, 3])
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))


def die_once(entry, *arguments):
    """Evaluate a shard; but kill the first process that evaluates it."""
    mark = entry.path.with_suffix(".died")
    if entry.path.name == "shard-00001.safetensors" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return SEARCH_SHARD(entry, *arguments)


SEARCH_SHARD = sharded_module.search_shard


@pytest.fixture
def cluster():
    """Two Dask workers, which look for a lost scheduler for a while."""
    with two_workers(**{"distributed.comm.timeouts.connect": "10s"}) as client:
        yield client


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_workers_predict_and_one_that_dies_costs_a_retry(cluster, tmp_path, monkeypatch):
    estimator = NONARegressor(n_estimators=2, **QUICK).fit(X, Y)
    sharded = shards(estimator, tmp_path)
    with joblib.parallel_config("dask"):
        assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
        assert_same(
            sharded.heaviest_neighbors(QUERIES)[0], estimator.heaviest_neighbors(QUERIES)[0]
        )
    monkeypatch.setattr(sharded_module, "search_shard", die_once)
    with joblib.parallel_config("dask"):
        assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))
    assert list((tmp_path / "bank").glob("*.died"))


def wait(*args):
    """Evaluate a shard, but late."""
    time.sleep(3)
    return SEARCH_SHARD(*args)


@pytest.mark.usefixtures("unperturbed")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_search_fits_its_candidates_on_dask_workers(cluster):
    grid = {"training__learning_rate_init": [0.003, 0.03]}
    search = GridSearchCV(NONARegressor(**ONE), grid, cv=2)
    expected = clone(search).fit(X, Y).cv_results_["mean_test_score"]
    with joblib.parallel_config("dask"):
        scores = search.fit(X, Y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_lost_scheduler_is_an_error_and_the_next_prediction_is_right(
    cluster, tmp_path, monkeypatch
):
    estimator = NONARegressor(**ONE).fit(X, Y)
    sharded = shards(estimator, tmp_path)
    scheduler, loop = cluster.cluster.scheduler, cluster.loop
    with monkeypatch.context() as patched, joblib.parallel_config("dask"):
        patched.setattr(sharded_module, "search_shard", wait)
        timer = Timer(1, loop.add_callback, [scheduler.close])
        timer.start()
        with pytest.raises(CancelledError, match="scheduler"):
            sharded.predict(QUERIES)
        timer.join()
    assert_same(sharded.predict(QUERIES), estimator.predict(QUERIES))


@pytest.mark.parametrize("n_shards", [1, 2, 4])
def test_neighborhoods_of_steps_on_ranks_are_those_of_the_whole_bank(n_shards, tmp_path):
    """A step on ranks counts rows without weight, which a search does not return."""
    X = np.random.RandomState(0).randn(60, 3)
    knn = SoftStepKNeighborsRegressor(similarity="log_l2", max_iter=2, random_state=0)
    knn.fit(X, X[:, 0])
    save_shards(knn, tmp_path / "bank", n_shards)
    expected = knn.neighborhood(X[:4] + 0.1)["soft_n_neighbors"]
    found = ShardedNeighbors(tmp_path / "bank").neighborhood(X[:4] + 0.1)["soft_n_neighbors"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)  # embeddings are float32
