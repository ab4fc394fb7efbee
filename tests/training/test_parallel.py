"""Networks that train at the same time: the same results, in turns, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from inner.training import NONANet, loop, train_in_threads
from inner.utils import FairSemaphore, local_seed, threads
from sklearn.base import clone
from skorch.callbacks import Callback

from nona_sklearn import NONAClassifier, NONARegressor, TrainingOptions

SHORT = {"max_iter": 3, "hidden_layer_sizes": (8,), "random_state": 0}


def reach(condition):
    """Wait for what another thread does; a test's own limit ends what never comes."""
    while not condition():
        time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("n_estimators", [1, 3])
@pytest.mark.parametrize("kind", [NONARegressor, NONAClassifier])
def test_the_number_of_threads_changes_nothing(plane, kind, n_estimators):
    X, X_test, y, _ = plane
    y = y > y.mean() if kind is NONAClassifier else y
    predictions, histories = [], []
    for n_threads in (1, 2, 5):
        torch.set_num_threads(n_threads)
        model = kind(n_estimators=n_estimators, **SHORT).fit(X, y)
        torch.set_num_threads(1)
        predictions.append(model.predict(X_test))
        histories.append([epoch["valid_loss"] for epoch in model.history_])
    np.testing.assert_array_equal(predictions, predictions[:1] * 3)
    np.testing.assert_array_equal(histories, histories[:1] * 3)


@pytest.mark.slow
def test_threads_end_with_the_fit_and_others_keep_their_number(plane):
    X, _, y, _ = plane
    torch.set_num_threads(2)
    model = NONARegressor(n_estimators=3, **SHORT).fit(X, y)  # predictions keep threads of theirs
    before = set(threading.enumerate())
    model.fit(X, y)
    assert set(threading.enumerate()) == before
    assert torch.get_num_threads() == 2
    seen = []
    late = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    late.start()
    late.join()
    assert seen == [2]


@pytest.mark.slow
def test_a_failure_in_a_thread_is_raised_and_the_earlier_model_stays(plane):
    X, X_test, y, _ = plane
    torch.set_num_threads(2)
    model = NONARegressor(n_estimators=2, **SHORT).fit(X, y)
    before, prediction = vars(model).copy(), model.predict(X_test)
    with pytest.raises(ValueError, match="training diverged with learning_rate_init=1e\\+30"):
        model.set_params(training__learning_rate_init=1e30).fit(X, y)
    assert {**vars(model), "training": None} == before
    np.testing.assert_array_equal(model.predict(X_test), prediction)


@pytest.mark.slow
def test_ctrl_c_ends_all_threads(plane, monkeypatch, listening):
    """A terminal's signal reaches the main thread, which waits for the others."""
    X, X_test, y, _ = plane
    torch.set_num_threads(2)
    model = NONARegressor(n_estimators=3, **SHORT).fit(X, y)
    before, prediction = set(threading.enumerate()), model.predict(X_test)
    started = []

    class Interrupted(NONANet):
        def notify(self, method_name, **kwargs):
            if method_name == "on_epoch_begin":
                started.append(self)
                if len(started) == 2:
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                reach(lambda: self.turns.ended)
            super().notify(method_name, **kwargs)

    monkeypatch.setattr(loop, "NONANet", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(max_iter=10**6, training__n_iter_no_change=10**6).fit(X, y)
    assert set(threading.enumerate()) == before
    np.testing.assert_array_equal(model.predict(X_test), prediction)


class Interrupting(ThreadPoolExecutor):
    """A pool in which Ctrl-C arrives right after a call has been submitted."""

    after = {}

    def submit(self, function, *args, **kwargs):
        call = super().submit(function, *args, **kwargs)
        seen = self.after.get(function.__name__, 0) - 1
        self.after[function.__name__] = seen
        if seen == 0:
            signal.raise_signal(signal.SIGINT)
        return call


@pytest.mark.slow
@pytest.mark.parametrize("after", [{"call": 2}, {"compute_alone": 1}], ids=["turns", "threads"])
def test_ctrl_c_while_threads_start_ends_them(plane, monkeypatch, listening, after):
    X, _, y, _ = plane
    torch.set_num_threads(2)
    model = NONARegressor(n_estimators=3, **SHORT).fit(X, y)
    before = set(threading.enumerate())
    monkeypatch.setattr(threads, "ThreadPoolExecutor", Interrupting)
    monkeypatch.setattr(Interrupting, "after", after)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(max_iter=10**6, training__n_iter_no_change=10**6).fit(X, y)
    assert set(threading.enumerate()) == before
    assert torch.get_num_threads() == 2
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2


def test_no_more_than_n_work_at_a_time_and_the_longest_waiting_is_next():
    turns, order = FairSemaphore(1), []

    def wait_and_work(i):
        with turns:
            order.append(i)

    threads = [threading.Thread(target=wait_and_work, args=(i,)) for i in range(4)]
    with turns:
        for n, thread in enumerate(threads):
            thread.start()
            reach(lambda n=n: len(turns._waiting) == n + 1)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]


@pytest.mark.parametrize("n_at_a_time", [1, 2, 3])
def test_turns_are_shared_out(n_at_a_time):
    """Each of six works in ten turns, the first ones not before the last ones have begun."""
    working, most, begun = set(), 0, set()
    here = threading.Lock()

    def work(item, turns):
        nonlocal most
        for _ in range(10):
            with here:
                working.add(item)
                begun.add(item)
                most = max(most, len(working))
            time.sleep(0.001)
            with here:
                working.remove(item)
                behind = len(begun)
            turns.yield_turn()
        return behind

    found = train_in_threads([partial(work, i) for i in range(6)], n_at_a_time)
    assert most == n_at_a_time
    assert min(found) > 6 - n_at_a_time


def test_a_seed_holds_for_one_thread_at_a_time():
    """A second thread seeds the shared generator only when the first has drawn its numbers."""
    started, seeded, drawn = threading.Event(), threading.Event(), {}

    def draw():
        started.set()
        with local_seed(1):
            seeded.set()
            drawn[1] = torch.rand(4)

    thread = threading.Thread(target=draw)
    with local_seed(0):
        thread.start()
        started.wait()
        assert not seeded.wait(0.05)  # in which it would be seeded, if it could
        drawn[0] = torch.rand(4)
    thread.join()
    assert seeded.is_set()
    for seed in (0, 1):
        alone = torch.rand(4, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(drawn[seed], alone)


def test_results_are_in_the_order_of_the_items():
    def late(item, turns):
        time.sleep(0.01 * (3 - item))
        return item, torch.get_num_threads()

    torch.set_num_threads(3)
    assert train_in_threads([partial(late, i) for i in range(3)], 3) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.slow
def test_with_callbacks_one_network_after_another(plane):
    """They run in the thread that fits: what they draw on or write to need not bear others."""
    seen = []

    class Watch(Callback):
        def on_epoch_end(self, net, **kwargs):
            seen.append((threading.current_thread(), id(net)))

    torch.set_num_threads(2)
    NONARegressor(n_estimators=2, training=TrainingOptions(callbacks=[Watch()]), **SHORT).fit(
        plane[0], plane[2]
    )
    threads, nets = zip(*seen, strict=True)
    assert set(threads) == {threading.current_thread()}
    assert nets == (nets[0],) * 3 + (nets[3],) * 3


@pytest.mark.slow
def test_jobs_are_processes_and_no_threads(plane, monkeypatch):
    X, _, y, _ = plane
    torch.set_num_threads(2)
    threads = []
    monkeypatch.setattr(
        loop, "train_in_threads", lambda *a: threads.append(a) or train_in_threads(*a)
    )
    for n_jobs, expected in ((2, 0), (None, 1), (1, 2)):
        NONARegressor(n_estimators=2, n_jobs=n_jobs, **SHORT).fit(X, y)
        assert len(threads) == expected


@pytest.mark.slow
def test_a_budget_counts_from_the_same_moment_for_all(plane):
    """They train at the same time: each has all of it, and its first epoch in any case."""
    torch.set_num_threads(2)
    model = NONARegressor(n_estimators=3, **SHORT)
    spent = clone(model).set_params(training__max_time=1e-9).fit(plane[0], plane[2])
    assert [epoch["stopped"] for epoch in spent.history_] == ["max_time"] * 3
    ample = clone(model).set_params(training__max_time=1e9).fit(plane[0], plane[2])
    free = model.fit(plane[0], plane[2])
    np.testing.assert_array_equal(ample.predict(plane[1]), free.predict(plane[1]))


@pytest.mark.slow
def test_tables_of_epochs_do_not_mix(plane, capsys):
    torch.set_num_threads(2)
    NONARegressor(n_estimators=2, verbose=2, **SHORT).fit(plane[0], plane[2])
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.split()]
    assert [int(word) for word in rows if word.isdigit()] == [1, 2, 3, 1, 2, 3]


FIT = """
import hashlib, sys, warnings
import numpy as np, pandas as pd
from nona_sklearn import NONAClassifier, NONARegressor, SoftStepKNeighborsRegressor, TableEncoder

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
table = pd.DataFrame({
    "a": rng.normal(size=120),
    "level": rng.choice([f"level {i}" for i in range(9)], 120),
    "street": [f"street {i % 70}" for i in range(120)],
    "note": rng.choice(["a view", "the harbour", "noise"], 120),
})
y = table["a"] + (table["note"] == "noise")
encoder = TableEncoder(text_features=["note"])
params = {"max_iter": 1, "random_state": 0, "table_encoder": encoder}
networks = params | {"n_estimators": 2, "n_jobs": int(sys.argv[1])}
found = [
    NONARegressor(**networks).fit(table, y, groups=table["level"]).predict(table),
    NONAClassifier(**networks).fit(table, table["level"]).predict_proba(table),
    SoftStepKNeighborsRegressor(**params).fit(table, y).predict(table),
]
print(hashlib.sha256(b"".join(each.tobytes() for each in found)).hexdigest())
"""


@pytest.mark.slow
def test_neither_hashes_of_strings_nor_jobs_change_a_result():
    """Python's hash of a string, and so the order of a set, differs between processes."""
    found = [
        subprocess.run(
            [sys.executable, "-c", FIT, n_jobs],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, n_jobs in (("0", "1"), ("1", "2"))
    ]
    assert found[0] == found[1]
