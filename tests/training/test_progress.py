"""The line that shows the progress of a fit: its content, its process, and that it ends."""

import itertools
import math
import pickle
import re
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch
from inner.data import source
from inner.training import Budget, CountedParallel, Progress, progress
from skorch.callbacks import Callback
from tqdm import tqdm

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
)


def nona(**params):
    small = {"hidden_layer_sizes": (8,), "n_estimators": 2, "max_iter": 3, "random_state": 0}
    return NONARegressor(**small | {"verbose": 1} | params)


@pytest.fixture(autouse=True)
def every_state_is_written_and_every_line_ends(monkeypatch):
    """Tqdm leaves out what follows within a tenth of a second."""
    bars = []

    class Hasty(tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, mininterval=0, miniters=0, **kwargs)
            bars.append(self)

    monkeypatch.setattr(progress, "tqdm", Hasty)
    yield
    assert all(bar.disable for bar in bars)  # closed


class Spoil(Callback):
    """Let the last of six epochs be the worst: its network predicts the mean."""

    def on_batch_begin(self, net, training=True, **_):
        if len(net.history) == 6 and not training:
            net.module.predict_mean()


def states(text):
    """What the line showed, one state after another, without the time."""
    lines = [re.sub(r" \[.*\] *$", "", state.strip("\n")) for state in text.split("\r")]
    return [state for state, _ in itertools.groupby(filter(None, lines))]


def test_it_names_network_epoch_and_best_loss(plane, capsys):
    X, _, y, _ = plane
    reg = nona(max_iter=6, training=TrainingOptions(callbacks=[Spoil()])).fit(X, y)
    out, err = capsys.readouterr()
    expected = ["0 of 2 networks trained"]
    for i in range(2):
        losses = [epoch["valid_loss"] for epoch in reg.history_ if epoch["estimator"] == i]
        assert min(losses) < losses[-1]  # the last one is not the best
        for n in range(1, 7):
            best = f"best valid_loss {min(losses[:n]):.4g}"
            expected.append(f"network {i + 1} of 2, epoch {n}, {best}")
        expected.append(f"{i + 1} of 2 networks trained")
    assert states(err) == expected
    assert (out, err[-1]) == ("", "\n")
    assert err.count("\n") == 1


def test_without_validation_rows_it_names_the_training_loss(plane, capsys):
    knn = SoftStepKNeighborsRegressor(max_iter=2, verbose=True).fit(plane[0], plane[2])
    best = min(epoch["train_loss"] for epoch in knn.history_)
    assert f"network 1 of 1, epoch 2, best train_loss {best:.4g}" in capsys.readouterr().err


@pytest.mark.slow
def test_it_changes_nothing_and_is_not_kept(plane):
    X, X_test, y, _ = plane
    loud, quiet = nona().fit(X, y), nona(verbose=0).fit(X, y)
    np.testing.assert_array_equal(loud.predict(X_test), quiet.predict(X_test))
    assert set(vars(loud)) == set(vars(quiet))
    assert b"_progress" not in pickle.dumps(loud)


@pytest.mark.parametrize("verbose", [0, 1])
def test_many_predictions_show_how_many_are_done(plane, capsys, monkeypatch, verbose):
    X, X_test, y, _ = plane
    # A trend at the same query may differ in its last digit in another block.
    reg = nona(verbose=0, trend=None).fit(X, y).set_params(verbose=verbose)
    expected = reg.predict(X_test)
    assert capsys.readouterr().err == ""  # they are one block
    monkeypatch.setattr(source, "EMBED_BLOCK", size := 10)
    np.testing.assert_array_equal(reg.predict(X_test), expected)
    n, done = len(X_test), range(0, len(X_test) + size, size)
    shown = re.findall(r"predictions: .*? (\d+)/(\d+) ", capsys.readouterr().err)
    shown = [state for state, _ in itertools.groupby(shown)]  # the last one again at the end
    assert shown == [(str(min(i, n)), str(n)) for i in done if verbose]


def test_classes_show_them_too(plane, capsys, monkeypatch):
    X, X_test, y, _ = plane
    clf = NONAClassifier(hidden_layer_sizes=(8,), n_estimators=1, max_iter=3, random_state=0)
    clf.fit(X, y > y.mean())
    monkeypatch.setattr(source, "EMBED_BLOCK", 10)
    clf.set_params(verbose=1).predict(X_test)
    n = len(X_test)
    assert f"predictions: 100%|██████████| {n}/{n} " in capsys.readouterr().err


def test_bad_queries_show_nothing(plane, capsys, monkeypatch):
    X, X_test, y, _ = plane
    reg = nona(verbose=0).fit(X, y).set_params(verbose=1)
    monkeypatch.setattr(source, "EMBED_BLOCK", 10)
    with pytest.raises(ValueError, match="features"):
        reg.predict(X_test[:, :1])
    assert capsys.readouterr().err == ""


# -- how long ----------------------------------------------------------------------------------


def test_time_left_on_paper(monkeypatch):
    """Epochs that are left at most, each as long as those so far; no longer than the budget."""
    budget = Budget(math.inf, n_networks=3, n_workers=1)
    progress = Progress(budget, max_iter=10)
    bar = SimpleNamespace(format_dict={"elapsed": 60.0})
    assert progress._time_left(bar) == ""  # unknown
    progress.follow(0, 6, "")
    assert progress._time_left(bar) == "at most 04:00 left"  # 24 epochs of 10 seconds
    progress.end_of(0)
    assert progress._time_left(bar) == "at most 03:20 left"  # two networks
    progress.follow(2, 4, "")
    assert progress._time_left(bar) == "at most 01:36 left"  # 16 of 6 seconds
    monkeypatch.setattr(Budget, "left", lambda self: 61.0)
    assert progress._time_left(bar) == "at most 01:01 left"
    monkeypatch.setattr(Budget, "left", lambda self: -1.0)
    assert progress._time_left(bar) == ""
    assert Progress(budget, 10)._time_left(bar) == ""


# -- several at a time -------------------------------------------------------------------------


@pytest.mark.slow
def test_threads_write_one_line(plane, capsys):
    X, X_test, y, _ = plane
    with joblib.parallel_config("threading", n_jobs=2):
        reg = nona(n_estimators=4).fit(X, y)
    lines = states(capsys.readouterr().err)
    for i in range(4):
        epochs = [s for s in lines if s.startswith(f"network {i + 1} of 4")]
        assert [re.search(r"epoch (\d)", s)[1] for s in epochs] == ["1", "2", "3"]
    assert lines[-1] == "4 of 4 networks trained"
    alone = nona(n_estimators=4, verbose=0).fit(X, y)
    np.testing.assert_array_equal(reg.predict(X_test), alone.predict(X_test))


@pytest.mark.slow
def test_networks_that_train_in_turns_are_counted_at_the_end(plane, capsys):
    torch.set_num_threads(2)
    nona(max_iter=2).fit(plane[0], plane[2])
    lines = states(capsys.readouterr().err)
    assert lines[-1] == "2 of 2 networks trained"
    assert lines[-2].startswith("network ")


def test_a_copy_in_another_process_prints_nothing(capsys):
    with Progress(Budget.from_now(None, 1, 1), max_iter=3) as progress:
        before = capsys.readouterr().err
        assert before
        with pickle.loads(pickle.dumps(progress)) as copy:
            copy.follow(0, 1, "best train_loss 0.5")
            copy.end_of(0)
        assert capsys.readouterr().err == ""
        progress.follow(0, 1, "best train_loss 0.5")
        assert "epoch 1" in capsys.readouterr().err


def test_the_caller_counts_what_comes_back(capsys):
    """Whether or not any task reports how far it is."""
    tasks = [joblib.delayed(abs)(-i) for i in range(3)]
    with (
        Progress(Budget.from_now(None, 3, 2), max_iter=9) as progress,
        joblib.parallel_config("threading"),
    ):
        assert CountedParallel(2, progress)(tasks) == [0, 1, 2]
    lines = states(capsys.readouterr().err)
    assert lines == [s for i in range(4) if (s := f"{i} of 3 networks trained") in lines]
    assert lines[-1].startswith("3")


@pytest.mark.slow
def test_processes_come_back_one_by_one(plane, capfd):
    """Their budget is that of the fit; what they would print themselves is not shown."""
    X, X_test, y, _ = plane
    options = TrainingOptions(max_time=1e-9)
    alone = nona(training=options, verbose=0).fit(X, y)
    reg = nona(training=options, n_jobs=2).fit(X, y)
    lines = states(capfd.readouterr().err)
    assert lines[0] == "0 of 2 networks trained"
    assert lines[-1] == "2 of 2 networks trained"
    assert set(lines) <= {f"{i} of 2 networks trained" for i in range(3)}
    assert [epoch["stopped"] for epoch in reg.history_] == ["max_time"] * 2
    np.testing.assert_allclose(reg.predict(X_test), alone.predict(X_test), rtol=1e-5)


# -- its end -----------------------------------------------------------------------------------


class Fail(Callback):
    """Raise an error in the second epoch."""

    def __init__(self, error):
        self.error = error

    def on_epoch_begin(self, net, **kwargs):
        if len(net.history) == 2:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("out of memory")])
def test_a_fit_that_fails_ends_its_line(plane, capsys, error):
    """The fixture checks that it is closed."""
    with pytest.raises(type(error)):
        nona(training=TrainingOptions(callbacks=[Fail(error)])).fit(plane[0], plane[2])
    err = capsys.readouterr().err
    assert err.endswith("\n")
    assert states(err)[-1] == "0 of 2 networks trained"
