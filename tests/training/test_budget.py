"""Why training ends: nothing gets better, enough epochs, or enough time; and when that warns."""

import heapq
import math
import warnings
from types import SimpleNamespace
from unittest.mock import patch

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inner.data import Sample
from inner.estimators import fitting
from inner.network import NeighborNetwork
from inner.training import Budget, NONANet, Pace, loop, progress, refinement
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from skorch.callbacks import Callback

from nona_sklearn import (
    FeatureExtractor,
    NONAClassifier,
    NONAHead,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
)

SMALL = {"hidden_layer_sizes": (8,), "n_estimators": 2, "random_state": 0}
EACH = pytest.mark.parametrize(
    "estimator",
    [
        NONARegressor(**SMALL),
        NONAClassifier(**SMALL),
        SoftStepKNeighborsRegressor(random_state=0),
        SoftStepKNeighborsClassifier(random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
MOMENT, AGES = 1e-9, 1e9  # seconds


def nona(**params):
    return NONARegressor(**SMALL | {"max_iter": 4} | params)


def fit(estimator, plane, **params):
    X, _, y, _ = plane
    y = y > y.mean() if "Classifier" in type(estimator).__name__ else y
    return clone(estimator).set_params(**params).fit(X, y)


@pytest.fixture
def clock(monkeypatch):
    """A callback whose epochs are our clock: a second each, of all networks together."""

    class Clock(Callback):
        now = 0.0

        def on_epoch_end(self, net, **kwargs):
            Clock.now += 1.0

    for module in (loop, progress):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: Clock.now))
    monkeypatch.setattr(fitting, "pace_of", lambda *args: Pace(epoch=1e-9, refinement=0.0))
    return Clock


def reasons(fitted):
    """Number of epochs of each network, and why there are no more."""
    ends = [epoch for epoch in fitted.history_ if "stopped" in epoch]
    assert [end["estimator"] for end in ends] == list(range(len(fitted.validation_indices_)))
    assert sum(end["epoch"] for end in ends) == fitted.n_iter_  # each is its network's last
    return [(end["epoch"], end["stopped"]) for end in ends]


# -- shares -----------------------------------------------------------------------------------


def spans(budget, takes):
    """Begin, end and deadline of each network; `takes` is the part of its share that it needs.

    A worker that is free takes the next network, as joblib's do.
    """
    free = [0.0] * budget.n_workers
    for i, part in enumerate(takes):
        now = heapq.heappop(free)
        with patch.object(progress, "time", SimpleNamespace(time=lambda now=now: now)):
            deadline = budget.deadline(i)
        heapq.heappush(free, now + part * (deadline - now))
        yield now, now + part * (deadline - now), deadline


def test_shares_on_paper():
    """The first needs half of its share of a third; what it leaves is for the other two."""
    one_by_one = list(spans(Budget(12.0, 3, 1), [0.5, 1.0, 1.0]))
    assert one_by_one == [(0, 2, 4), (2, 7, 7), (7, 12, 12)]
    assert list(spans(Budget(12.0, 2, 2), [0.5, 1.0])) == [(0, 6, 12), (0, 12, 12)]
    # Three of five on a worker have a third each, two on the other a half.
    both = [(0, 4), (0, 6), (4, 8), (6, 12), (8, 12)]
    assert list(spans(Budget(12.0, 5, 2), [1.0] * 5)) == [(*span, span[1]) for span in both]


@given(st.integers(1, 8), st.integers(1, 9), st.data())
def test_networks_that_keep_to_their_shares_keep_to_the_budget(n_networks, n_workers, data):
    takes = data.draw(st.lists(st.floats(0, 1), min_size=n_networks, max_size=n_networks))
    least = 1 / math.ceil(n_networks / n_workers)  # of all the time, for each
    budget = Budget(1.0, n_networks, n_workers)
    for begin, end, deadline in spans(budget, takes):
        assert end <= 1 + 1e-9
        assert deadline - begin >= least - 1e-9


def test_no_budget_never_ends():
    assert Budget.from_now(None, 3, 2).deadline(1) == math.inf


@pytest.mark.parametrize(
    ("n_threads", "n_jobs", "extractor", "shares"),
    [
        (1, 1, None, [4, 6, 12]),
        (1, 2, None, [6, 12, 12]),
        (1, 2, torch.nn.Identity, [4, 6, 12]),
        (2, None, None, [12, 12, 12]),  # in turns: each is as far as the others
    ],
)
def test_networks_that_train_at_the_same_time_have_more_time(
    plane, monkeypatch, clock, n_threads, n_jobs, extractor, shares
):
    """As the deadlines of three networks show, in a fit for which time stands still."""
    seen, train_network = [], loop.train_network

    def spy(*args, budget, number, **kwargs):
        seen.append(budget.deadline(number))
        return train_network(*args, budget=budget, number=number, **kwargs)

    monkeypatch.setattr(loop, "train_network", spy)
    torch.set_num_threads(n_threads)
    options = TrainingOptions(max_time=12.0)
    reg = nona(feature_extractor=extractor, n_estimators=3, max_iter=1, training=options)
    with joblib.parallel_config("threading", n_jobs=n_jobs):
        fit(reg, plane)
    assert sorted(seen) == shares


# -- max_time ---------------------------------------------------------------------------------


@EACH
def test_a_tiny_budget_is_an_epoch_of_each_network(estimator, plane, monkeypatch):
    """That of max_iter=1, with all that follows training, if it is no worse than the mean."""
    monkeypatch.setattr(refinement, "loss_relative_to_mean", lambda *args: 1.0)
    short = fit(estimator, plane, training__max_time=MOMENT)
    one = fit(estimator, plane, max_iter=1)
    assert set(reasons(short)) == {(1, "max_time")}
    np.testing.assert_array_equal(short.predict(plane[1]), one.predict(plane[1]))
    assert hasattr(short, "bank_") == hasattr(one, "bank_")


@pytest.mark.slow
@EACH
def test_a_large_budget_changes_nothing(estimator, plane):
    limited, free = (fit(estimator, plane, max_iter=3, training__max_time=t) for t in (AGES, None))
    np.testing.assert_array_equal(limited.predict(plane[1]), free.predict(plane[1]))
    assert reasons(limited) == reasons(free)
    for one, other in zip(limited.history_, free.history_, strict=True):
        assert one | {"dur": 0} == other | {"dur": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("max_time", "epochs"),
    [(12, [4, 4, 4]), (7, [2, 2, 3]), (2.5, [1, 1, 1]), (0.1, [1, 1, 1])],
)
def test_networks_share_the_time(plane, clock, max_time, epochs):
    """A network that has no time for a further epoch leaves more to the others.

    An epoch takes a second. The users' callbacks see the last one, too.
    """
    options = TrainingOptions(max_time=max_time, callbacks=[clock()])
    reg = fit(nona(n_estimators=3, max_iter=9, training=options), plane)
    assert reasons(reg) == [(n, "max_time") for n in epochs]
    assert clock.now == sum(epochs)


@pytest.mark.parametrize(
    ("owner", "name"), [(fitting.TrainingData, "take"), (fitting, "_initial_networks")]
)
def test_preparation_takes_its_time_from_training(plane, clock, monkeypatch, owner, name):
    prepare = getattr(owner, name)

    def slowly(*args, **kwargs):
        clock.now += 4
        return prepare(*args, **kwargs)

    monkeypatch.setattr(owner, name, slowly)
    options = TrainingOptions(max_time=10, callbacks=[clock()])
    reg = fit(nona(n_estimators=1, max_iter=20, training=options), plane)
    assert reasons(reg) == [(6, "max_time")]


def test_time_is_left_to_embed_the_training_rows(plane, clock, monkeypatch):
    """As long as some of them take, for each of them."""
    monkeypatch.setattr(fitting, "TIMED_ROWS", 1)
    embed = fitting.embed

    def slowly(network, X):
        clock.now += len(X) / 50
        return embed(network, X)

    monkeypatch.setattr(fitting, "embed", slowly)
    n_rows = len(plane[0])
    options = TrainingOptions(max_time=n_rows / 50 + 5.1, callbacks=[clock()])
    reg = fit(nona(n_estimators=1, max_iter=20, training=options), plane)
    assert reasons(reg) == [(5, "max_time")]


def test_networks_of_short_time_on_paper():
    """So many that each has time for 20 epochs, on each worker, but at least one."""
    with patch.object(progress, "time", SimpleNamespace(time=lambda: 0.0)):
        budget = Budget(100.0)
        assert [budget.n_affordable(3, s, 1) for s in (0.1, 2.5, 2.6, 5.1, 1e9)] == [3, 2, 1, 1, 1]
        assert budget.n_affordable(5, 4.0, 3) == 3
        assert Budget(-1.0).n_affordable(5, 4.0, 3) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "n_networks"),
    [
        ({"training__max_time": 100, "trend": None}, 2),
        ({"training__max_time": 1}, 1),
        ({"training__max_time": 1e6}, 2),
        ({"training__max_time": 1e6, "trend": None}, 5),
        ({}, 2),
        ({"training__max_time": 1, "n_estimators": 3}, 3),
    ],
)
def test_of_short_time_there_are_fewer_networks(plane, clock, monkeypatch, params, n_networks):
    """Where an epoch takes two seconds, and parameters do not set their number."""
    monkeypatch.setattr(fitting, "pace_of", lambda *args: Pace(epoch=2.0, refinement=0.0))
    reg = fit(nona(max_iter=1), plane, **{"n_estimators": "auto"} | params)
    assert reg.n_estimators_ == n_networks


def test_the_pace_is_that_of_some_rows(plane, monkeypatch):
    """Of an epoch on some rows that takes a second; how many are tried is limited."""
    tried = []

    def train_once(network, train, valid, config, *args):
        tried.append((len(train), config.max_iter))
        return SimpleNamespace(history=[{"dur": 1.0}])

    monkeypatch.setattr(loop, "train_once", train_once)
    monkeypatch.setattr(loop, "TRIED_ROWS", 50)
    options = TrainingOptions(pool_size=20)
    config = nona(training=options)._architecture().config(1000)
    sample = Sample(torch.zeros(1000, 2), torch.zeros(1000))
    assert loop.measure_pace(None, sample, config) == (20.0, 40.0)
    monkeypatch.setattr(loop, "EPOCH_ROWS", 500)
    monkeypatch.setattr(loop, "FOLLOWING_ROWS", 100)
    assert loop.measure_pace(None, sample, config) == (10.0, 2.0)
    monkeypatch.setattr(loop, "CALIBRATING_ROWS", 400)  # in a given space
    given = SoftStepKNeighborsRegressor(training=options)._architecture().config(1000)
    assert loop.measure_pace(None, sample, given) == (10.0, 8.0)
    assert tried == [(50, 1)] * 3


@pytest.mark.parametrize(("n_threads", "callbacks"), [(3, None), (1, None), (3, [Callback()])])
def test_the_pace_is_that_of_as_many_threads_as_a_network_has(n_threads, callbacks, monkeypatch):
    """One of torch's, where networks train in threads; a callback may not be safe in these."""
    monkeypatch.setattr(loop, "measure_pace", lambda *args: torch.get_num_threads())
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        options = TrainingOptions(callbacks=callbacks)
        config = nona(training=options)._architecture().config(100)
        found = loop.pace_of(None, None, config, None)
        assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    assert found == (1 if callbacks is None else n_threads)


def test_time_is_left_for_what_follows_training(plane, clock, monkeypatch):
    """Of 20 seconds, 3 for each of two networks, and 3 after both; an epoch takes one."""
    monkeypatch.setattr(fitting, "pace_of", lambda *args: Pace(epoch=1.0, refinement=3.0))
    refine = loop.refine_on_bank

    def slowly(*args, **kwargs):
        clock.now += 3
        return refine(*args, **kwargs)

    monkeypatch.setattr(loop, "refine_on_bank", slowly)
    options = TrainingOptions(max_time=20, callbacks=[clock()])
    reg = fit(nona(n_estimators=2, max_iter=20, training=options), plane)
    assert reasons(reg) == [(5, "max_time"), (6, "max_time")]
    assert clock.now == 17


@pytest.mark.slow
def test_the_best_epoch_so_far_is_kept(plane, clock, monkeypatch):
    """As where max_iter ends training at the same epoch, though the last one is worse."""
    monkeypatch.setattr(refinement, "loss_relative_to_mean", lambda *args: 1.0)  # as of max_iter
    options = TrainingOptions(learning_rate_init=0.3, callbacks=[clock()])
    reg = nona(n_estimators=1, training=options)
    free = fit(reg, plane, max_iter=30, training__n_iter_no_change=30)
    n = next(epoch["epoch"] for epoch in free.history_ if not epoch["valid_loss_best"])
    clock.now = 0.0
    timed = fit(reg, plane, max_iter=50, training__max_time=n)
    counted = fit(reg, plane, max_iter=n)
    assert reasons(timed) == [(n, "max_time")]
    assert not timed.history_[-1]["valid_loss_best"]
    np.testing.assert_array_equal(timed.predict(plane[1]), counted.predict(plane[1]))


def train_until(deadline, clock):
    """The history of at most two epochs, each of two seconds, from 1 to 3 and from 3 to 5."""

    class TwoSeconds(Callback):
        def on_epoch_end(self, net, **kwargs):
            clock.now += 2.0

    clock.now = 1.0
    torch.manual_seed(0)
    X = torch.randn(40, 2)
    network = NeighborNetwork(torch.nn.Linear(2, 2), NONAHead(learn_temperature=True))
    options = TrainingOptions(callbacks=[TwoSeconds()])
    config = nona(max_iter=2, training=options)._architecture().config(40)
    budget = Budget(deadline)
    return loop.train_network(network, Sample(X, X[:, 0]), None, config, seed=0, budget=budget)[1]


@pytest.mark.parametrize(("deadline", "n_epochs"), [(5.0, 2), (4.9, 1), (0.0, 1)])
def test_no_epoch_begins_that_would_end_too_late(clock, deadline, n_epochs):
    history = train_until(deadline, clock)
    assert (len(history), history[-1]["stopped"]) == (n_epochs, "max_time")


def test_a_budget_may_be_of_any_type(plane):
    reg = fit(nona(), plane, training__max_time=np.float32(60))
    assert reasons(reg) == [(4, "max_iter")] * 2


@pytest.mark.parametrize("max_time", [0, -1.0, math.nan, math.inf, "long"])
def test_a_budget_is_a_positive_number(plane, max_time):
    with pytest.raises(ValueError, match="'max_time' parameter of TrainingOptions"):
        fit(nona(), plane, training__max_time=max_time)


def test_a_budget_holds_under_accelerate(plane):
    """What several processes do: test_extractor."""
    accelerate = pytest.importorskip("accelerate")
    for max_time, end in ((MOMENT, (1, "max_time")), (AGES, (4, "max_iter"))):
        extractor = FeatureExtractor(
            torch.nn.Identity, accelerator=lambda: accelerate.Accelerator(cpu=True)
        )
        reg = fit(nona(feature_extractor=extractor), plane, training__max_time=max_time)
        assert reasons(reg) == [end] * 2


# -- convergence ------------------------------------------------------------------------------


@EACH
def test_training_that_max_iter_ends_has_not_converged(estimator, plane):
    message = "max_iter=2.*converged yet.* a larger max_iter"
    with pytest.warns(ConvergenceWarning, match=message) as warned:
        fitted = fit(estimator, plane, max_iter=2)
    assert len(warned) == 1  # for all networks
    assert warned[0].filename == __file__  # where fit was called
    n_networks = len(reasons(fitted))
    assert f"by {n_networks} of {n_networks} networks" in str(warned[0].message)
    assert reasons(fitted) == [(2, "max_iter")] * n_networks


@pytest.mark.slow
def test_networks_that_had_enough_are_not_counted(plane):
    """Those of the shortest training have spent their patience in the last epoch, too."""
    reg = nona(max_iter=100, n_estimators=4, training=TrainingOptions(n_iter_no_change=2))
    lengths = [n for n, _ in reasons(fit(reg, plane))]
    n_cut = sum(length > min(lengths) for length in lengths)
    assert n_cut  # else all were as long, and this test would not distinguish them
    with pytest.warns(ConvergenceWarning, match=f"reached by {n_cut} of 4 networks"):
        cut = fit(reg, plane, max_iter=min(lengths))
    assert [reason for _, reason in reasons(cut)].count("max_iter") == n_cut


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"max_iter": 500, "training__n_iter_no_change": 1}, "no change"),
        (
            {"max_iter": 500, "training__n_iter_no_change": 1, "validation_fraction": None},
            "no change",
        ),
        ({"training__max_time": MOMENT}, "max_time"),
    ],
    ids=["patience", "patience of the training loss", "max_time"],
)
def test_early_stopping_and_max_time_do_not_warn(plane, params, reason):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = fit(nona(), plane, **params)
    assert {why for _, why in reasons(fitted)} == {reason}


@pytest.mark.slow
def test_a_warning_that_is_an_error_leaves_no_model(plane):
    reg = nona()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            reg.fit(plane[0], plane[2])
    assert set(vars(reg)) == set(reg.get_params())


@pytest.mark.parametrize(
    ("deadline", "one_is_late", "n_epochs"), [(math.inf, True, 1), (0.0, False, 2)]
)
def test_processes_end_together(clock, monkeypatch, deadline, one_is_late, n_epochs):
    """One whose clock is ahead goes on with the others, and one whose clock is behind ends."""
    monkeypatch.setattr(NONANet, "agree", lambda self, stop: one_is_late)
    history = train_until(deadline, clock)
    expected = "max_time" if one_is_late else "max_iter"
    assert (len(history), history[-1]["stopped"]) == (n_epochs, expected)
