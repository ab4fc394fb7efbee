"""Faults that were found in use: interruptions, threads, forks, settings around a fit."""

import copy
import math
import multiprocessing
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from inner.data import Embedded
from inner.estimators import fitting
from inner.inference import Evaluation, NeighborBank, Neighbors, fit_calibration
from inner.training import loop
from inner.utils import (
    EDITING,
    WORKERS,
    cached_property,
    replaced_when_done,
    snapshot,
)
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GroupShuffleSplit, cross_val_score
from skorch.callbacks import Callback, EarlyStopping

from nona_sklearn import (
    Calibration,
    FeatureExtractor,
    NeighborsDisplay,
    NONAClassifier,
    NONAHead,
    NONARegressor,
    ShardedNeighbors,
    SoftStep,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
    save_shards,
)
from nona_sklearn.weighting import WEIGHTINGS


def nona(**kwargs):
    return NONARegressor(**{"n_estimators": 1, "max_iter": 3, "random_state": 0, **kwargs})


def softstep_knn(**kwargs):
    return SoftStepKNeighborsRegressor(**{"max_iter": 3, "random_state": 0, **kwargs})


BOTH = pytest.mark.parametrize("estimator", [nona(), softstep_knn()], ids=["nona", "softstep"])


# -- not a number ------------------------------------------------------------------------------


@pytest.mark.slow
def test_pointwise_steps_at_the_end_of_their_range_predict():
    """B - a rounds to 0 in float32."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    order = np.random.default_rng(1).permutation(442)
    train, test = order[:350], order[350:]
    reg = softstep_knn(softstep=SoftStep("s1", "pointwise"), random_state=1, max_iter=40)
    reg.fit(X[train], y[train])
    assert np.isfinite(reg.predict(X[test])).all()


LOGITS = st.sampled_from([-1000.0, -17.0, -16.0, -15.0, 0.0, 15.0, 16.0, 17.0, 1000.0])


@pytest.mark.slow
@given(
    step=st.sampled_from(["s1", "s2"]),
    similarity=st.sampled_from(["l2", "log_l2", "cosine"]),
    weighting=st.sampled_from(sorted(WEIGHTINGS)),
    logits=st.tuples(LOGITS, LOGITS, LOGITS),
    narrowing=st.sampled_from([1.0, 0.125]),
    scale=st.sampled_from([0.0, 1e-20, 1.0, 1e10]),
)
@example(
    step="s1",
    similarity="l2",
    weighting="uniform",
    logits=(17.0, 0.0, 0.0),
    narrowing=0.125,
    scale=1.0,
)
def test_streamed_weights_are_numbers_at_both_ends(
    step, similarity, weighting, logits, narrowing, scale
):
    """And sum to 1, and are those of the definition where it is not at the edge of a step."""
    if WEIGHTINGS[weighting]().of_distances:
        similarity = "l2"
    head = NONAHead(similarity, SoftStep(step), weighting).eval()
    head.step.logits.data = torch.tensor(logits[: len(head.step.logits)])
    head.step.narrowing.fill_(narrowing)
    z = scale * torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    bank = NeighborBank(Neighbors(z, torch.arange(30.0)))
    for evaluation in (bank.evaluate(head), bank.evaluate(head, Embedded(z[:5] + scale))):
        mean = evaluation.mean()
        assert ((mean >= -1e-6) & (mean <= 29 + 1e-6)).all()
        weights_of_all = evaluation.sparse_weights().toarray()
        np.testing.assert_allclose(weights_of_all.sum(axis=1), 1)
        np.testing.assert_allclose(weights_of_all @ np.arange(30.0), mean, atol=1e-4)


# -- duplicates --------------------------------------------------------------------------------


def test_a_query_between_two_equal_rows_is_their_mean():
    B = np.random.default_rng(0).normal(size=(20, 20))
    X, y = np.r_[B, B], np.r_[np.zeros(20), np.ones(20)]
    reg = softstep_knn(trend=None).fit(X, y)  # twins have trends of different rows
    with torch.no_grad():
        reg.network_.head.log_nugget.fill_(-math.inf)  # nothing but the twins counts
    np.testing.assert_allclose(reg.predict(B), 0.5, atol=1e-6)
    for row in range(20):
        np.testing.assert_allclose(reg.predict(B[[row]]), 0.5, atol=1e-6)


@pytest.mark.parametrize("n_neighbors", [None, 20])
def test_of_equally_heavy_rows_the_first_are_listed_first(n_neighbors):
    B = np.random.default_rng(0).normal(size=(8, 5))
    X, y = np.tile(B, (40, 1)), np.zeros(320)
    reg = nona(n_estimators=1, n_neighbors=n_neighbors).fit(X, y)
    _, rows = reg.heaviest_neighbors(B, 20)
    np.testing.assert_array_equal(rows, np.arange(8)[:, None] + 8 * np.arange(20))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"similarity": "l2", "softstep": SoftStep("s1")},
        pytest.param({"similarity": "l2", "softstep": SoftStep("s2")}, marks=pytest.mark.slow),
        {"similarity": "l2", "softstep": SoftStep("s1"), "weighting": "uniform"},
    ],
    ids=str,
)
def test_duplicates_do_not_depend_on_the_other_queries(params):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6))[rng.integers(0, 100, 1000)]
    y = 10 * rng.normal(size=1000)
    reg = softstep_knn(**params).fit(X, y)
    queries = X[:40]
    one_by_one = np.concatenate([reg.predict(row[None]) for row in queries])
    # A float32 weight may differ in its last digit, and there are a thousand of them.
    np.testing.assert_allclose(reg.predict(queries), one_by_one, rtol=0, atol=1e-4)


@pytest.mark.parametrize("step", ["s1", "s2"])
@pytest.mark.parametrize("n", [7, 300, 2500])
@pytest.mark.parametrize("distance", [0.0, 1.0, 1e6])
def test_a_bank_of_one_place_is_averaged(step, n, distance):
    """A query is as far from each: no row is rejected by the rounding of a distance."""
    place = torch.randn(1, 5, generator=torch.Generator().manual_seed(0))
    head = NONAHead(step=SoftStep(step), weighting="uniform").eval()
    bank = NeighborBank(Neighbors(place.repeat(n, 1), torch.arange(float(n))))
    for query in (place + distance, (place + distance).repeat(3, 1)):
        mean = bank.evaluate(head, Embedded(query)).mean()
        torch.testing.assert_close(mean, torch.full_like(mean, (n - 1) / 2))


# -- interruptions -----------------------------------------------------------------------------


class CtrlC(Callback):
    """What a terminal does in the second epoch."""

    def on_epoch_begin(self, net, **kwargs):
        if len(net.history) == 2:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_raised_and_the_earlier_model_stays(plane, listening):
    X, X_test, y, _ = plane
    reg = nona().fit(X, y)
    before, state = reg.predict(X_test), vars(reg).copy()
    reg.set_params(training__callbacks=[CtrlC()], random_state=1)
    with pytest.raises(KeyboardInterrupt):
        reg.fit(X, -y)
    assert {**vars(reg), **state} == vars(reg) | state
    np.testing.assert_array_equal(reg.predict(X_test), before)
    fresh = nona(training=TrainingOptions(callbacks=[CtrlC()]))
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    assert set(vars(fresh)) == set(fresh.get_params(deep=False))


@BOTH
def test_ctrl_c_ends_cross_validation(estimator, plane, monkeypatch, listening):
    def interrupt(*args, **kwargs):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop.RowBatches, "__iter__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(clone(estimator), plane[0], plane[2], cv=2)


def test_early_stopping_is_no_interruption(plane):
    """Nor is it reported as one."""
    reg = nona(max_iter=500, training=TrainingOptions(n_iter_no_change=2))
    reg.fit(plane[0], plane[2])
    assert reg.n_iter_ < 500


# -- one read, one snapshot --------------------------------------------------------------------


def edit_once(reg, X, y):
    """Let another thread add a row before the next call."""
    done = []

    def edit():
        if not done:
            done.append(True)
            thread = threading.Thread(target=reg.add_neighbors, args=(X[:1], y[:1]))
            thread.start()
            thread.join()

    return edit


@pytest.mark.slow
@pytest.mark.parametrize("method_name", ["mean", "map_weighted_rows"])
@pytest.mark.parametrize(
    "evaluate",
    [
        lambda reg: np.column_stack(reg.predict(None, return_std=True)),
        lambda reg: reg.sample_y(None, 2),
        lambda reg: reg.predict_quantiles(None),
        lambda reg: reg.influence().weight,
        lambda reg: reg.explain(None)["contribution"],
    ],
    ids=["return_std", "sample_y", "quantiles", "influence", "explain"],
)
def test_an_edit_between_two_steps_of_a_query_is_not_in_it(
    plane, monkeypatch, method_name, evaluate
):
    X, _, y, _ = plane
    reg = nona().fit(X, y)
    expected = evaluate(copy.deepcopy(reg))
    edit, method = edit_once(reg, X, y), getattr(Evaluation, method_name)

    def edited(self, *args, **kwargs):
        edit()
        return method(self, *args, **kwargs)

    monkeypatch.setattr(Evaluation, method_name, edited)
    np.testing.assert_array_equal(evaluate(reg), expected)


@pytest.mark.parametrize(
    "edit",
    [
        lambda reg, X, y: reg.set_neighbor_targets(-y),
        lambda reg, X, y: reg.add_neighbors(X[:2], y[:2]),
        lambda reg, X, y: reg.calibrate(X[:20], y[:20]),
    ],
    ids=["set_neighbor_targets", "add_neighbors", "calibrate"],
)
def test_an_edit_puts_one_thing_in_place(plane, monkeypatch, edit):
    """A read between two assignments would combine the new bank with the old calibration."""
    X, _, y, _ = plane
    reg, assigned = nona().fit(X, y), []

    def spy(self, name, value):
        assigned.append(name)
        object.__setattr__(self, name, value)

    monkeypatch.setattr(NONARegressor, "__setattr__", spy, raising=False)
    edit(reg, X, y)
    assert assigned == ["bank_"]


def test_queries_are_embedded_once(plane, monkeypatch):
    X, X_test, y, _ = plane
    reg = nona().fit(X, y)
    calls, embed = [], reg.network_.embed
    monkeypatch.setattr(reg.network_, "embed", lambda X: calls.append(1) or embed(X))
    reg.sample_y(X_test)
    reg.predict(X_test, return_std=True)
    assert len(calls) == 2


class Meanwhile:
    """An array whose first conversion lasts until another thread has called a function."""

    def __init__(self, values, function, *args):
        self.values, self.function, self.args, self.n_calls = values, function, args, 0

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        if self.n_calls == 0:
            self.n_calls = 1
            thread = threading.Thread(target=self.function, args=self.args)
            thread.start()
            thread.join()
        return np.asarray(self.values, dtype)


READ = {
    "predict": lambda reg, X: reg.predict(X),
    "return_std": lambda reg, X: np.stack(reg.predict(X, return_std=True)),
    "predict_quantiles": lambda reg, X: reg.predict_quantiles(X),
    "predict_cdf": lambda reg, X: reg.predict_cdf(X, 0.0),
    "sample_y": lambda reg, X: reg.sample_y(X),
    "transform": lambda reg, X: reg.transform(X),
    "embed": lambda reg, X: reg.embed(X).embeddings.numpy(),
    "explain": lambda reg, X: reg.explain(X)["contribution"],
    "kneighbors": lambda reg, X: reg.kneighbors(X)[1],
    "heaviest_neighbors": lambda reg, X: reg.heaviest_neighbors(X)[1],
    "neighborhood": lambda reg, X: reg.neighborhood(X)["distance"],
    "influence": lambda reg, X: reg.influence(X)["change"],
    "neighbor_weights": lambda reg, X: reg.neighbor_weights(X).toarray(),
}


@pytest.mark.slow
@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_a_result_is_of_one_fit(plane, read):
    X, X_test, y, _ = plane
    reg = nona().fit(X, y)
    expected = read(reg, X_test)
    queries = Meanwhile(X_test, reg.fit, 5 * X[:50], 100 - y[:50])
    np.testing.assert_array_equal(read(reg, queries), expected)
    assert queries.n_calls == 1
    assert not np.array_equal(read(reg, X_test), expected)


@pytest.mark.parametrize("read", ["predict", "predict_proba"])
def test_classes_are_of_one_fit(plane, read):
    X, X_test, y, _ = plane
    clf = NONAClassifier(n_estimators=1, max_iter=3, random_state=0).fit(X, y > 0)
    expected = getattr(clf, read)(X_test)
    queries = Meanwhile(X_test, clf.fit, X, np.digitize(y, [-1, 0, 1]))
    np.testing.assert_array_equal(getattr(clf, read)(queries), expected)
    assert queries.n_calls == 1


def test_a_picture_is_of_one_fit(plane):
    X, X_test, y, _ = plane
    reg = nona().fit(X, y)
    expected = NeighborsDisplay.from_estimator(reg, X_test[:1])
    queries = Meanwhile(X_test[:1], reg.fit, 5 * X[:50], 100 - y[:50])
    found = NeighborsDisplay.from_estimator(reg, queries)
    assert queries.n_calls == 1
    assert found.prediction == expected.prediction
    np.testing.assert_array_equal(found.adjusted_targets, expected.adjusted_targets)
    plt.close("all")


EDITS = {
    "add_neighbors": lambda reg, X, y: reg.add_neighbors(X, y),
    "calibrate": lambda reg, X, y: reg.calibrate(X, y),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["X", "y"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_is_of_the_fit_that_has_ended(plane, edit, what):
    """Rows that the earlier network embedded would stay in the new bank."""
    X, X_test, y, y_test = plane
    new = 5 * X[:50], 100 - y[:50]
    expected = nona().fit(*new)
    edit(expected, X_test, y_test)
    reg = nona().fit(X, y)
    slow = Meanwhile({"X": X_test, "y": y_test}[what], reg.fit, *new)
    edit(reg, *((slow, y_test) if what == "X" else (X_test, slow)))
    assert slow.n_calls == 1
    torch.testing.assert_close(reg.bank_.embeddings, expected.bank_.embeddings, rtol=0, atol=0)
    assert reg.calibration_ == expected.calibration_


def test_targets_of_an_earlier_fit_are_not_set(plane):
    X, _, y, _ = plane
    reg = nona().fit(X, y)
    with pytest.raises(ValueError, match="y must have the bank's 50 rows"):
        reg.set_neighbor_targets(Meanwhile(y, reg.fit, X[:50], y[:50]))
    assert len(reg.bank_) == 50


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda y: np.c_[y, y], r"y must have the bank's shape \(n, 2\)"),
        (lambda y: pd.DataFrame({"a": y}), r"y must have the bank's shape \(n, 1\)"),
    ],
    ids=["two outputs", "a name"],
)
def test_targets_set_meanwhile_are_those_that_added_ones_must_fit(plane, other, message):
    X, X_test, y, y_test = plane
    reg = nona().fit(X, y)
    targets = Meanwhile(y_test, reg.set_neighbor_targets, other(y))
    with pytest.raises(ValueError, match=message):
        reg.add_neighbors(X_test, targets)
    assert len(reg.bank_) == len(y)


@pytest.mark.slow
def test_a_fit_does_not_end_during_an_edit(plane):
    X, _, y, _ = plane
    reg = nona().fit(X, y)
    before = vars(reg).copy()
    with EDITING.held():
        thread = threading.Thread(target=reg.fit, args=(X[:50], y[:50]))
        thread.start()
        thread.join(2)  # many times as long as it trains
        assert thread.is_alive()
        assert vars(reg) == before
    thread.join()
    assert len(reg.bank_) == 50


def test_all_attributes_are_replaced_in_one_step():
    class Thing:
        def __init__(self):
            vars(self).update(dict.fromkeys("abcdefgh", 0))

    thing, stop, seen = Thing(), threading.Event(), set()

    def read():
        while not stop.is_set():
            seen.add(len({*vars(snapshot(thing)).values()}))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=read)
    thread.start()
    try:
        for i in range(2000):
            with replaced_when_done(thing) as twin:
                vars(twin).update(dict.fromkeys("abcdefgh", i))
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert seen == {1}


def test_edits_at_once_are_all_in_the_bank(plane):
    X, X_test, y, y_test = plane
    reg = nona().fit(X, y)
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda i: reg.add_neighbors(X_test[[i]], y_test[[i]]), range(30)))
    assert sorted(np.concatenate(ids)) == list(range(120, 150))
    for i, (row,) in enumerate(ids):
        assert reg.bank_.targets[row] == y_test[i]


# -- threads and processes ---------------------------------------------------------------------


@pytest.mark.slow
def test_predictions_leave_what_new_threads_start_with(plane):
    """Also where several threads predict at once, and after workers have started anew."""
    X, X_test, y, _ = plane
    torch.set_num_threads(3)
    reg = nona().fit(X, y)
    WORKERS._forget()
    reg.predict(X_test)

    def predict(_):
        reg.predict(X_test)
        return torch.get_num_threads()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(predict, range(40))) == {3}
    assert torch.get_num_threads() == 3
    for _ in range(5):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 3


def test_workers_compute_on_one_thread_each():
    torch.set_num_threads(2)
    assert WORKERS.map(lambda i: (i, torch.get_num_threads()), range(5), 2) == [
        (i, 1) for i in range(5)
    ]


FORKS = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system does not fork")


def in_a_child(function):
    """What a function returns in a forked process, which waits for no thread of its parent."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put(function()), daemon=True)
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        pytest.fail("the child waits for what only a thread of its parent could do")
    return results.get(timeout=10)


@contextmanager
def in_a_thread(wait):
    """Let another thread call a function, which sets one event and waits for another."""
    waiting, release = threading.Event(), threading.Event()
    thread = threading.Thread(target=wait, args=(waiting, release))
    thread.start()
    waiting.wait(60)
    try:
        yield
    finally:
        release.set()
        thread.join()


@pytest.mark.slow
@FORKS
def test_a_forked_process_edits_although_another_thread_held_the_lock(plane):
    X, _, y, _ = plane
    reg = nona().fit(X, y)

    def hold(waiting, release):
        with EDITING.held():
            waiting.set()
            release.wait(60)

    def edit():
        reg.add_neighbors(X[:1], y[:1])
        reg.predict(X)
        return len(reg.bank_)

    with in_a_thread(hold):
        assert in_a_child(edit) == 121


@FORKS
def test_a_forked_process_predicts_after_torchs_threads_have_worked(plane):
    """OpenMP's threads are not copied: a child that waited for them would wait for ever."""
    X, X_test, y, _ = plane
    reg = nona().fit(X, y)
    torch.set_num_threads(2)
    expected = reg.predict(X_test)
    torch.rand(2**10, 2**8).double().sin().sum()  # by both threads
    np.testing.assert_array_equal(in_a_child(lambda: reg.predict(X_test)), expected)


@FORKS
def test_a_forked_process_computes_what_another_thread_was_computing():
    """In Python 3.11, the property of functools has one lock for the whole class."""

    class Slow:
        def __init__(self, waiting, release):
            self.waiting, self.release = waiting, release

        @cached_property
        def value(self):
            self.waiting.set()
            self.release.wait(60)
            return 7

    with in_a_thread(lambda *events: Slow(*events).value):
        free = threading.Event()
        free.set()
        assert in_a_child(lambda: Slow(free, free).value) == 7


def test_a_property_is_computed_once_for_each_object():
    class Counted:
        calls = 0

        @cached_property
        def value(self):
            """What it is."""
            Counted.calls += 1
            return object()

    first, second = Counted(), Counted()
    assert first.value is first.value
    assert first.value is not second.value
    assert Counted.calls == 2
    assert Counted.value.__doc__ == "What it is."


# -- what is set around a fit ------------------------------------------------------------------


@pytest.fixture
def default_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.slow
@BOTH
def test_the_default_type_does_not_matter(estimator, plane, request):
    X, X_test, y, _ = plane
    expected = clone(estimator).fit(X, y).predict(X_test)
    request.getfixturevalue("default_float64")
    np.testing.assert_array_equal(clone(estimator).fit(X, y).predict(X_test), expected)
    assert torch.get_default_dtype() == torch.float64


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(
    "surroundings",
    [
        lambda: torch.autocast("cpu", torch.bfloat16),
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.device("meta"),
    ],
    ids=["autocast", "inference_mode", "no_grad", "device"],
)
def test_what_is_set_around_a_fit_does_not_matter(estimator, plane, surroundings):
    X, X_test, y, _ = plane
    expected = clone(estimator).fit(X, y).predict(X_test)
    with surroundings():
        reg = clone(estimator).fit(X, y)
    np.testing.assert_array_equal(reg.predict(X_test), expected)
    np.testing.assert_allclose(reg.fit(X, y).predict(X_test), expected)


# -- calibration and groups --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("validation_fraction", [None, 0.15])
def test_intervals_cover_new_groups(validation_fraction):
    """Rows of a group share most of their error: each alone would find its mates."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(120), 5)
    place, effect = rng.normal(size=(120, 3)), rng.normal(size=120)
    X = place[groups] + 0.01 * rng.normal(size=(600, 3))
    y = X[:, 0] + effect[groups] + 0.1 * rng.normal(size=600)
    [(train, test)] = GroupShuffleSplit(1, test_size=0.4, random_state=0).split(X, y, groups)
    reg = softstep_knn(max_iter=15, validation_fraction=validation_fraction)
    reg.fit(X[train], y[train], groups=groups[train])
    low, high = reg.predict_quantiles(X[test], [0.05, 0.95]).T
    covered = (low <= y[test]) & (y[test] <= high)
    # 48 new groups: a share of .9 of them has a standard error of .043.
    assert covered.mean() > 0.9 - 3 * 0.043


def test_each_added_row_is_a_group_by_itself(plane):
    X, X_test, y, y_test = plane
    reg = nona(n_neighbors=None).fit(X, y, groups=np.arange(120) // 4)
    reg.add_neighbors(X_test[:3], y_test[:3])
    groups = reg.bank_.groups.numpy()
    np.testing.assert_array_equal(groups[:120], np.arange(120) // 4)
    assert len({*groups[120:]} - {*groups[:120]}) == 3
    assert reg.bank_.n_units == 33
    # The neighbours of each are all other rows where a row's group is left out.
    weights = reg.bank_.evaluate_rows(reg.network_.head, np.arange(119, 123)).sparse_weights()
    np.testing.assert_array_equal(weights.toarray()[1:, 116:] == 0, np.eye(3, 7, 4) == 1)


def test_calibration_leaves_out_the_group(plane):
    X, _, y, _ = plane
    groups = np.arange(120) // 4
    reg = nona(n_estimators=2, n_neighbors=None).fit(X, y, groups=groups)
    rows = np.array([7, 50, 119])
    weights = reg.bank_.evaluate_rows(reg.network_.head, rows).sparse_weights().toarray()
    assert (weights[groups[rows][:, None] == groups] == 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert reg.neighbor_weights(None).toarray()[7, 6] > 0  # predictions leave out the row alone


def test_calibration_on_the_bank_does_not_depend_on_the_order_of_its_rows(plane):
    X, _, y, _ = plane
    reg = nona(validation_fraction=None).fit(X, y)
    before, bank = reg.calibration_, reg.bank_
    order = np.random.default_rng(0).permutation(len(y))
    reg.bank_ = bank.in_order(order)
    after = reg.calibrate().calibration_
    assert after.power == before.power
    np.testing.assert_allclose(after.noise, before.noise, rtol=1e-6)


def test_calibration_pairs_each_validation_row_with_its_own_error(plane):
    """One network: the errors are those of its validation rows, each without itself.

    A trend at the neighbours is without the row in predictions of it alone.
    """
    X, _, y, _ = plane
    # The validation rows do not choose the number of neighbours.
    reg = nona(n_neighbors=10, trend=None).fit(X, y)
    [valid], bank, head = reg.validation_indices_, reg.bank_, reg.network_.head
    rows = np.sort(valid)
    residual = torch.from_numpy((y - reg.predict(None))[rows])
    expected = fit_calibration(bank.evaluate_rows(head, rows), residual[:, None])
    assert reg.calibration_.power == expected.power
    np.testing.assert_allclose(reg.calibration_.noise, expected.noise, rtol=1e-5)


def test_calibration_without_other_rows_is_an_error(plane):
    X, _, y, _ = plane
    one_row = nona().fit(X, y).remove_neighbors(ids=np.arange(1, 120))
    one_group = (
        nona().fit(X, y, groups=np.arange(120) // 30).remove_neighbors(ids=np.arange(30, 120))
    )
    for reg in (one_row, one_group):
        with pytest.raises(ValueError, match="at least 2 rows, or groups, in the bank, it has 1"):
            reg.calibrate()
        reg.set_neighbor_targets(np.full(len(reg.bank_), 3.0))
        assert reg.calibration_ == Calibration()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_queries_in_inference_mode(plane, n_threads):
    X, X_test, y, y_test = plane
    reg = nona().fit(X, y)
    expected = reg.influence(X_test, y_test).change
    torch.set_num_threads(n_threads)
    with torch.inference_mode():
        np.testing.assert_allclose(reg.influence(X_test, y_test).change, expected)
        reg.add_neighbors(X_test, y_test)
        reg.compress(20)
    assert np.isfinite(reg.predict(X_test)).all()


# -- training that diverges --------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"weighting": "preconditioned", "training": TrainingOptions(learning_rate_init=1e3)},
        {"training": TrainingOptions(learning_rate_init=1e3)},
        {"training": TrainingOptions(weight_decay=1e30)},
        {
            "validation_fraction": None,
            "adjust": False,
            "training": TrainingOptions(learning_rate_init=1e5),
        },
    ],
    ids=str,
)
def test_a_network_that_diverges_names_the_rate(plane, params):
    with pytest.raises(ValueError, match="training diverged with learning_rate_init="):
        nona(max_iter=10, **params).fit(plane[0], plane[2])


@pytest.mark.parametrize("on", ["rank", "similarity"])
@pytest.mark.parametrize("rate", [1e3, 1e30])
def test_a_neighbourhood_that_diverges_names_the_rate(plane, on, rate):
    """All parameters may be finite where the temperature, whose logarithm is learned, is not."""
    reg = softstep_knn(
        max_iter=10,
        softstep=SoftStep("s1", on=on),
        training=TrainingOptions(learning_rate_init=rate),
    )
    with pytest.raises(ValueError, match="training diverged with learning_rate_init=1"):
        reg.fit(plane[0], plane[2])


def test_predictions_that_are_no_numbers_mean_that_training_diverged():
    """The parameters are finite, and the thresholds that they lead to are not."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 3))
    y = X[:, 0] + rng.normal(size=150)
    reg = softstep_knn(
        softstep=SoftStep("s1"),
        trend=None,
        hidden_layer_sizes=(8,),
        training=TrainingOptions(learning_rate_init=0.1, weight_decay=1e8),
    )
    with pytest.raises(ValueError, match=r"training diverged with learning_rate_init=0\.1"):
        reg.fit(X, y)


def test_embeddings_that_are_no_numbers_mean_that_training_diverged(plane, monkeypatch):
    """Also those of rows that no other row depends on."""
    embed = fitting.embed

    def embed_one_infinitely_far(network, X):
        embeddings = embed(network, X)
        embeddings[-1] = torch.inf
        return embeddings

    monkeypatch.setattr(fitting, "embed", embed_one_infinitely_far)
    with pytest.raises(ValueError, match="training diverged"):
        nona().fit(plane[0], plane[2])


def test_distances_that_overflow_mean_that_training_diverged(plane, monkeypatch):
    embed = fitting.embed

    def embed_far(network, X):
        return 3e38 * embed(network, X).sign()

    monkeypatch.setattr(fitting, "embed", embed_far)
    with pytest.raises(ValueError, match="training diverged"):
        softstep_knn(softstep=SoftStep("s1")).fit(plane[0], plane[2])


# -- distributions -----------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.35, 16.0])
def test_distributions_hold_all_values_of_a_poor_network(plane, power):
    """Adjusted values may lie much farther apart than the targets."""
    X, X_test, y, _ = plane
    reg = nona().fit(X, y)
    reg.calibration_ = replace(reg.calibration_, power=power)
    bank = reg.bank_
    wild = bank.embeddings.clone()
    wild[:, -1] *= 1e3  # what the network holds of each row's target
    reg.bank_ = replace(bank, neighbors=replace(bank.neighbors, rows=wild))
    ends = reg.predict_cdf(X_test, [-1e12, 1e12])
    np.testing.assert_allclose(ends, [[0.0, 1.0]] * len(X_test), atol=1e-9)
    levels = np.array([0.001, 0.01, 0.5, 0.99, 0.999])
    quantiles = reg.predict_quantiles(X_test, levels)
    assert (np.diff(quantiles) >= 0).all()
    for query, values in zip(X_test[:, None], quantiles, strict=True):
        # Where the distribution ends, several levels have one quantile, and the function jumps
        # there, or where rounding has put it.
        rounding = 1e-9 * np.ptp(values)
        assert (reg.predict_cdf(query, values + rounding)[0] >= levels - 1e-6).all()
        assert (reg.predict_cdf(query, values - rounding)[0] <= levels + 1e-6).all()
    drawn = reg.sample_y(X_test[:1], 20_000)[0]
    scale = np.ptp(quantiles[0])
    np.testing.assert_allclose(np.quantile(drawn, 0.01), quantiles[0, 1], atol=0.1 * scale)


def test_distributions_hold_all_values_of_networks_that_disagree(plane):
    """By what one network alone predicts of a query, values leave the range of all others."""
    X, X_test, y, _ = plane
    reg = nona(n_estimators=2).fit(X, y)
    query = reg.embed(X_test)
    query.embeddings[:, -1] += 1e6  # what the second network predicts of each query
    ends = reg.predict_cdf(query, [-1e12, 1e12])
    np.testing.assert_allclose(ends, [[0.0, 1.0]] * len(X_test), atol=1e-9)


@pytest.mark.parametrize("value", [7.3, 1e9])
def test_added_targets_are_all_of_the_distribution(plane, value):
    """What is left of a constant's errors is rounding, and no noise for other values."""
    X, X_test, y, _ = plane
    reg = nona().fit(X, np.full(len(y), value))
    reg.add_neighbors(X_test[:3], 1e5 * value * np.ones(3))
    ends = reg.predict_cdf(X_test, [-1e18, 1e18])
    np.testing.assert_allclose(ends, [[0.0, 1.0]] * len(X_test), rtol=0, atol=1e-12)


def test_quantiles_without_noise_are_reached(plane):
    """Values that the shift of the mean moves, rounded, are not to lie below themselves."""
    X, X_test, y, _ = plane
    reg = nona(adjust=False).fit(X, y)
    reg.calibration_ = Calibration(power=0.35)
    levels = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    for i, quantiles in enumerate(reg.predict_quantiles(X_test, levels)):
        reached = reg.predict_cdf(X_test[[i]], quantiles)[0]
        assert (reached >= levels - 1e-9).all()


@pytest.mark.parametrize("level", [1.0, 1e9])
def test_a_constant_target_is_all_of_the_distribution(plane, level):
    X, X_test, y, _ = plane
    weights = np.random.default_rng(0).uniform(0.1, 2, len(y))
    reg = nona().fit(X, np.full(len(y), level), sample_weight=weights)
    ends = reg.predict_cdf(X_test, [-1e12, 1e12])
    np.testing.assert_allclose(ends, [[0.0, 1.0]] * len(X_test), rtol=0, atol=1e-12)
    assert ends.max() <= 1
    np.testing.assert_allclose(reg.predict_quantiles(X_test), level, rtol=1e-9)


# -- too small ---------------------------------------------------------------------------------


@BOTH
def test_targets_too_small_to_be_squared_are_refused(plane, estimator):
    X, X_test, y, _ = plane
    with pytest.raises(ValueError, match=r"output 1 of y holds values that differ by .*e-200"):
        clone(estimator).fit(X, np.c_[y, 1e-200 * y])
    with pytest.raises(ValueError, match=r"^y holds values that differ by .*e-15\d"):
        clone(estimator).fit(X, 1e-155 * y)
    small = clone(estimator).fit(X, 1e-140 * y).predict(X_test)
    expected = clone(estimator).fit(X, y).predict(X_test)
    np.testing.assert_allclose(1e140 * small, expected, rtol=1e-3, atol=1e-3)


def test_features_too_small_to_be_squared_are_refused_by_name(plane):
    X, _, y, _ = plane
    table = pd.DataFrame({"mass": 1e-200 * X[:, 0], "area": X[:, 1]})
    with pytest.raises(ValueError, match=r"column 'mass' holds values that differ by .*e-200"):
        softstep_knn().fit(table, y)
    assert nona().fit(table, y).n_features_in_ == 2  # which finds a unit for each column


# -- far away ----------------------------------------------------------------------------------


def test_a_query_of_shards_whose_distances_overflow_is_refused(plane, tmp_path):
    X, _, y, _ = plane
    reg = softstep_knn(softstep=SoftStep("s1")).fit(X, y)
    with torch.no_grad():
        reg.network_.embedding.log_weight.fill_(np.log(1e30))
    save_shards(reg, tmp_path / "shards", 2)
    with pytest.raises(ValueError, match="overflow"):
        ShardedNeighbors(tmp_path / "shards").predict([[1e9, 1e9]])


@pytest.mark.parametrize("similarity", ["l2", "log_l2", "l1"])
@pytest.mark.parametrize("on", ["rank", "similarity"])
@pytest.mark.parametrize("learned", [False, True])
def test_a_query_whose_distances_overflow_is_refused(plane, similarity, on, learned):
    X, _, y, _ = plane
    step = SoftStep("s1", on=on)
    reg = softstep_knn(similarity=similarity, softstep=step, learn_feature_weights=learned)
    reg.fit(X, 100 + y)
    assert 90 < reg.predict([[1e36, 1e36]])[0] < 110
    for far in (5e37, 1e38, 3e38):
        with pytest.raises(ValueError, match="too large for float32"):
            reg.predict([[far, far]])


def test_a_value_out_of_range_is_named_by_its_row_in_the_table(plane):
    X, _, y, _ = plane
    queries = np.zeros((4500, 2))  # more than are embedded at a time
    queries[4321] = 1e38
    with pytest.raises(ValueError, match=r"1e\+38 in row 4321"):
        softstep_knn().fit(X, y).predict(queries)


def test_an_embedding_whose_distances_overflow_is_refused(plane):
    X, _, y, _ = plane
    reg = softstep_knn(similarity="log_l2").fit(X, y)
    with torch.no_grad():
        reg.network_.embedding.log_weight.fill_(np.log(1e30))
    with pytest.raises(ValueError, match=r"embeddings with entries of .* overflow"):
        reg.predict([[1e9, 1e9]])
    with pytest.raises(ValueError, match="overflow"):
        reg.heaviest_neighbors([[1e9, 1e9]])


@pytest.mark.parametrize("far", [1e6, 1e12, 1e18])
def test_weights_of_a_very_far_query_sum_to_1(plane, far):
    X, _, y, _ = plane
    reg = softstep_knn(similarity="l2", softstep=SoftStep("s1")).fit(X, y)
    query = np.array([[far, -far]])
    weights, ids = reg.heaviest_neighbors(query, 120)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(weights[0] @ y[ids[0]], reg.predict(query)[0], atol=1e-5)
    np.testing.assert_allclose(reg.influence(query).weight.sum(), 1, rtol=1e-5)


# -- smaller -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_warm_start_goes_on_with_the_networks_that_there_are():
    X = np.random.default_rng(0).normal(size=(2600, 2))
    reg = NONARegressor(
        warm_start=True,
        max_iter=1,
        hidden_layer_sizes=(),
        numerical_embedding=None,
        trend=None,
        random_state=0,
        training=TrainingOptions(pool_size=100),
    )
    reg.fit(X[:100], X[:100, 0]).fit(X, X[:, 0])
    assert len(reg.network_.head.heads) == 5


def test_no_part_of_a_batch_is_without_neighbours(plane):
    """A batch of 5 in parts of 2 once left a row that predicted 0 and taught nothing."""
    X, _, y, _ = plane
    seen, evaluate = [], loop.NEIGHBOR_POOLS["batch"].evaluate

    class Spy(loop.NEIGHBOR_POOLS["batch"]):
        def evaluate(self, network, queries):
            seen.append(len(queries))
            return evaluate(self, network, queries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(loop.NEIGHBOR_POOLS, "batch", Spy)
        extractor = FeatureExtractor(torch.nn.Identity, micro_batch_size=2)
        options = TrainingOptions(neighbor_pool="batch", batch_size=5)
        reg = nona(feature_extractor=extractor, training=options, max_iter=1)
        reg.fit(X.astype(np.float32), y)
    assert min(seen) == 2


@pytest.mark.slow
def test_batch_norm_has_more_than_one_row_to_normalise_over(plane):
    X, _, y, _ = plane
    X = X.astype(np.float32)
    normalized = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4))
    extractor = FeatureExtractor(normalized, micro_batch_size=2)
    reg = nona(feature_extractor=extractor, training=TrainingOptions(batch_size=5)).fit(X, y)
    assert np.isfinite(reg.predict(X)).all()


@BOTH
def test_targets_beyond_a_square_are_named(estimator, plane):
    with pytest.raises(ValueError, match=r"Input y contains a value too large .*e\+299 in row 0"):
        clone(estimator).fit(plane[0], plane[2] * 1e300)
    for unit in (1e-150, 1e100):
        y = plane[2] * unit
        assert np.isfinite(clone(estimator).fit(plane[0], y).predict(plane[1])).all()


def test_tolerance_is_a_number(plane):
    reg = nona().fit(plane[0], plane[2])
    with pytest.raises(ValueError, match="tolerance must not be negative, got nan"):
        reg.neighbor_weights(plane[1], tolerance=np.nan)


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, np.datetime64("NaT", "s")], ids=str)
def test_missing_groups_are_named(plane, missing):
    names = pd.Series([missing, *map(str, range(119))], dtype=object)
    with pytest.raises(ValueError, match=r"groups must not be missing, got .* in row 0"):
        nona().fit(plane[0], plane[2], groups=names)
    with pytest.raises(ValueError, match="groups must not be missing, got nan in row 0"):
        nona().fit(plane[0], plane[2], groups=pd.Series([np.nan, *range(119)]))


@pytest.mark.parametrize("callbacks", [["x"], [("name", 3)], [Callback(), object]])
def test_invalid_callbacks_are_named(plane, callbacks):
    with pytest.raises(ValueError, match=r"callbacks must be skorch callbacks, .* got"):
        nona(training=TrainingOptions(callbacks=callbacks)).fit(plane[0], plane[2])


@pytest.mark.parametrize("stopping", [EarlyStopping, EarlyStopping(), ("stop", EarlyStopping())])
def test_early_stopping_is_no_callback(plane, stopping):
    """It would end the fit as Ctrl-C does."""
    with pytest.raises(ValueError, match=r"callbacks must have no EarlyStopping.* n_iter_no"):
        nona(training=TrainingOptions(callbacks=[stopping])).fit(plane[0], plane[2])


@pytest.mark.slow
def test_the_start_does_not_depend_on_the_order_of_the_rows():
    """The first 1,024 rows of a sorted table are all of one corner."""
    X = np.linspace(0, 1, 2100)[:, None] ** 8
    reg = softstep_knn(
        similarity="l2",
        softstep=SoftStep("s1"),
        max_iter=1,
        training=TrainingOptions(learning_rate_init=1e-9, pool_size=64, batch_size=2100),
    )
    in_order, shuffled = (
        clone(reg).fit(X[order], X[order, 0]).network_.head.temperature.item()
        for order in (np.arange(2100), np.random.default_rng(0).permutation(2100))
    )
    assert 0.5 < in_order / shuffled < 2


# -- which arguments fit and queries accept and reject -------------------------------------------


def test_weights_by_position_are_no_groups(plane):
    """scikit-learn's third argument is sample_weight; ours were groups, which went unnoticed."""
    X, _, y, _ = plane
    with pytest.raises(TypeError, match="takes 3 positional arguments but 4 were given"):
        nona().fit(X, y, np.ones(120))


def test_numbers_by_position_are_neither_ids_nor_names(fitted):
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        fitted.remove_neighbors([0])
    assert len(fitted.bank_) == 120


@BOTH
def test_targets_may_be_read_backwards(plane, estimator):
    """Torch has no negative strides."""
    X, X_test, y, y_test = plane
    expected = clone(estimator).fit(X[::-1], y[::-1].copy())
    found = clone(estimator).fit(X[::-1], y[::-1])
    np.testing.assert_array_equal(found.predict(X_test), expected.predict(X_test))
    levels = np.array([0.1, 0.5, 0.9])
    np.testing.assert_array_equal(
        found.predict_quantiles(X_test, levels[::-1]),
        found.predict_quantiles(X_test, levels)[:, ::-1],
    )
    found.add_neighbors(X_test[::-1], y_test[::-1])
    assert found.bank_.targets[-1] == y_test[0]


def test_predictions_during_a_refit_are_of_the_earlier_fit(plane):
    X, X_test, y, _ = plane
    predictions = []

    class PredictDuringFit(Callback):
        def on_epoch_end(self, net, **kwargs):
            predictions.append(reg.predict(X_test))
            reg.noted_ = len(predictions)
            reg.set_params(random_state=7)

    reg = nona().fit(pd.DataFrame(X, columns=["a", "b"]), y)
    X_test = pd.DataFrame(X_test, columns=["a", "b"])
    expected = reg.predict(X_test)
    far = np.c_[1e3 * X, X]  # other columns, and another scale
    reg.set_params(training__callbacks=[PredictDuringFit()]).fit(far, -y)
    assert len(predictions) == reg.noted_ == 3
    assert reg.random_state == 7
    assert not hasattr(reg, "feature_names_in_")
    for prediction in predictions:
        np.testing.assert_array_equal(prediction, expected)
    assert reg.n_features_in_ == 4
    with pytest.raises(ValueError, match="expecting 4 features"):
        reg.predict(X_test.to_numpy())


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [-300, -90, 60])
@BOTH
def test_the_unit_of_a_feature_does_not_matter(plane, estimator, exponent):
    """A power of two changes no digit; particles weigh 1e-27 kg."""
    X, X_test, y, _ = plane
    expected = clone(estimator).fit(X, y).predict(X_test)
    scale = 2.0**exponent
    found = clone(estimator).fit(scale * X, y).predict(scale * X_test)
    np.testing.assert_array_equal(found, expected)


def test_one_hidden_layer_may_be_a_number(plane):
    X, X_test, y, _ = plane
    one, several = (nona(hidden_layer_sizes=size).fit(X, y) for size in (8, (8,)))
    np.testing.assert_array_equal(one.predict(X_test), several.predict(X_test))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r, X: r.predict(X, return_std="no"), "return_std must be True or False, got 'no'"),
        (lambda r, X: r.predict(X, [0.1, 0.9]), r"return_std must be True or False, got \[0\.1"),
        (lambda r, X: r.explain(X, features=True), "the table given to fit, .*, got True"),
        (
            lambda r, X: r.explain(X, features=[X, X[:1]]),
            "features must be the table given to fit",
        ),
        (lambda r, X: r.attribute(X, of="distances"), "features must be the table .*, got None"),
        (lambda r, X: r.attribute(X), "features must be the table .*, got None"),
        (lambda r, X: r.kneighbors(X, return_distance="no"), "return_distance must be True or"),
        (
            lambda r, X: r.heaviest_neighbors(X, return_names=1),
            "return_names must be True or False, got 1",
        ),
        (lambda r, X: r.influence(None, X[:, 0]), "y must be None with X=None"),
        (lambda r, X: r.calibrate(None, X[:, 0]), "y must be None with X=None"),
        (lambda r, X: setattr(r, "calibration_", "wide"), "must be a Calibration, got 'wide'"),
        (lambda r, X: clone(r).set_params(n_jobs=0).fit(X, X[:, 0]), "'n_jobs' .* Got 0 instead"),
        (lambda r, X: r.predict_quantiles(X, None), "quantiles must be a number .*, got None"),
        (lambda r, X: r.predict_quantiles(X, True), "quantiles must be a number .*, got True"),
        (lambda r, X: r.predict_quantiles(X, [True]), r"quantiles must be .*, got \[True\]"),
        (lambda r, X: r.predict_cdf(X, None), "y must be a number .*, got None"),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused_by_name(fitted, plane, call, message):
    with pytest.raises(ValueError, match=message):
        call(fitted, plane[1])


@pytest.fixture(scope="module")
def fitted(plane):
    return nona().fit(plane[0], plane[2])


def test_banks_and_embedded_rows_can_be_compared(fitted, plane):
    bank = fitted.bank_
    assert bank == bank
    assert bank.neighbors != copy.deepcopy(bank).neighbors
    assert bank != copy.deepcopy(bank)  # as objects are: tensors have no single comparison
    assert fitted.embed(plane[1]) != fitted.embed(plane[1])


def test_added_targets_are_found_by_the_names_of_their_columns(plane):
    X, X_test, y, _ = plane
    targets = pd.DataFrame({"a": y, "b": -y})
    reg = nona().fit(X, targets)
    added = pd.DataFrame({"b": [2.0], "a": [1.0]})
    reg.add_neighbors(X_test[:1], added)
    assert reg.bank_.targets[-1].tolist() == [1.0, 2.0]
    with pytest.raises(
        ValueError, match=r"y must have the columns \['a', 'b'\], got \['b', 'c'\]"
    ):
        reg.add_neighbors(X_test[:1], added.rename(columns={"a": "c"}))
    assert len(reg.bank_) == 121


@pytest.mark.parametrize("sizes", [[8, True], [8, "8"], [8, 2.5], [0]])
def test_sizes_of_layers_are_whole_numbers(plane, sizes):
    with pytest.raises(ValueError, match="hidden_layer_sizes must be positive integers, got"):
        nona(hidden_layer_sizes=sizes).fit(plane[0], plane[2])


def test_a_tolerance_above_all_weights_is_an_error(fitted, plane):
    with pytest.raises(ValueError, match="tolerance=2 leaves a query without neighbours"):
        fitted.neighbor_weights(plane[1], tolerance=2)


@pytest.mark.parametrize("sizes", [((8,), (9,)), ((8, 8), (8,)), ((8,), (8, 8))])
def test_the_error_of_a_warm_start_names_the_changed_shape(plane, sizes):
    before, now = sizes
    reg = nona(warm_start=True, hidden_layer_sizes=before).fit(plane[0], plane[2])
    with pytest.raises(
        ValueError, match=r"'.*' was (\(.*\)|missing), and is (\(.*\)|missing) now"
    ):
        reg.set_params(hidden_layer_sizes=now).fit(plane[0], plane[2])
    wide = nona(warm_start=True).fit(plane[0], plane[2])
    with pytest.raises(ValueError, match=r"was \(2, 8, 1\), and is \(1, 8, 1\) now"):
        wide.fit(plane[0][:, :1], plane[2])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"softstep": "s1"}, r"softstep as in the earlier fit: 'head\.step\.logits' was missing"),
        ({"similarity": "cosine"}, r"'similarity' was \['l2'\], and is \['cosine'\] now"),
        ({"weighting": "gaussian"}, r"'weighting' was \['Softmax\(\)'\], and is \['Gaussian\(\)"),
    ],
)
def test_parameters_that_a_warm_start_needs_unchanged(plane, changed, message):
    reg = nona(warm_start=True).fit(plane[0], plane[2])
    with pytest.raises(ValueError, match=message):
        reg.set_params(**changed).fit(plane[0], plane[2])


@pytest.mark.parametrize("params", ["global", "pointwise"])
def test_a_warm_start_needs_a_step_on_the_same_scale(plane, params):
    reg = nona(warm_start=True, softstep=SoftStep("s1", params)).fit(plane[0], plane[2])
    reg.fit(plane[0], plane[2])
    with pytest.raises(ValueError, match=r"'step' was .*, and is \[.*on='rank'.*\] now"):
        reg.set_params(softstep__on="rank").fit(plane[0], plane[2])


@BOTH
@pytest.mark.parametrize("step", ["s3", {"step": "s1"}, SoftStep])
def test_what_is_no_step_is_named(plane, estimator, step):
    with pytest.raises(ValueError, match=r"The 'softstep' parameter of .* must be a str among"):
        clone(estimator).set_params(softstep=step).fit(plane[0], plane[2])


def test_columns_of_one_name_are_those_of_x(plane):
    X = pd.DataFrame(plane[0], columns=["a", "a"])
    with pytest.raises(ValueError, match="X must have columns of different names"):
        nona().fit(X, plane[2])
