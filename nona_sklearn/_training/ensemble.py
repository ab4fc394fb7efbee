"""Training of several networks: how many, in turn, in threads or in processes, within a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from .._data.sample import Sample
from .._data.splits import Split
from .._network.network import NeighborNetwork
from .._utils.random import local_seed
from .._utils.threads import FairSemaphore, lone_threads
from .loop import Pace, Slot, TrainingConfig, measure_pace, train_network
from .net import LARGE
from .progress import Budget, Progress

T = TypeVar("T")
Trained = tuple[NeighborNetwork, list[dict]]


def count_networks(n: int) -> int:
    """Choose a number of networks: 5 for few rows, whose fits differ most and cost least, or 3.

    Of a large table it is 1: its time is better spent on the steps of one.
    """
    return 1 if n > LARGE else min(max(10_000 // n, 3), 5)


def train_networks(
    networks: Sequence[NeighborNetwork],
    sample: Sample,
    splits: Sequence[Split],
    seeds: Sequence[int],
    config: TrainingConfig,
    budget: Budget,
    n_jobs: int | None = None,
    *,
    valid: Sample | None = None,
) -> list[Trained]:
    """Train networks on rows of a sample, each on its own split: networks with their histories.

    `valid` are the validation rows of all, where the splits have none.
    In one process, networks on a table train at the same time, in as many threads as torch has:
    the tensors of a step are too small to share among torch's threads.
    """
    in_threads, n_workers = _workers(config, n_jobs)
    # Networks that take turns all have the whole time.
    n_together = len(networks) if in_threads else n_workers
    budget = replace(budget, n_networks=len(networks), n_workers=n_together)
    accelerator = None if config.extractor is None else config.extractor.accelerator
    shown = config.verbose == 1 and (accelerator is None or accelerator().is_main_process)
    with Progress(budget, config.max_iter) if shown else nullcontext() as progress:
        trainings = [
            partial(_train, *training, sample, valid, config, budget, progress)
            for training in zip(range(len(networks)), networks, splits, seeds, strict=True)
        ]
        if in_threads:
            trained = train_in_threads(trainings, n_workers)
        else:
            parallel = Parallel(n_jobs) if progress is None else CountedParallel(n_jobs, progress)
            trained = parallel(delayed(training)() for training in trainings)
    if config.falls_back and most_are_in_vain([e for _, history in trained for e in history]):
        for network, _ in trained:  # those that are not in vain are better by chance
            network.predict_mean()
    return trained


def _train(
    number: int,
    network: NeighborNetwork,
    split: Split,
    seed: int,
    sample: Sample,
    valid: Sample | None,
    config: TrainingConfig,
    budget: Budget,
    progress: Progress | None,
    turns: FairSemaphore | None = None,
) -> Trained:
    """Train one of the networks, from now on: the network and its history."""
    train, valid = sample[split.train], valid if split.valid is None else sample[split.valid]
    slot = Slot(budget.deadline(number), turns, progress, number)
    # Dropout in a feature extractor draws from torch's global generator.
    seeded = nullcontext() if config.extractor is None else local_seed(int(seed), config.device)
    with seeded:
        return train_network(network, train, valid, config, seed=int(seed), slot=slot)


def most_are_in_vain(history: list[dict]) -> bool:
    """Whether most networks predict validation rows no better than the mean, by their epochs."""
    n_networks = sum("stopped" in epoch for epoch in history)
    return sum("in_vain" in epoch for epoch in history) > n_networks / 2


def _workers(config: TrainingConfig, n_jobs: int | None) -> tuple[bool, int]:
    """Whether networks train in threads that take turns, and how many train at a time.

    They do not train at the same time in one process if it could change results: a feature
    extractor may draw from torch's global generator, and its tensors are large; a callback may
    not be safe in threads; the rows of skorch's tables would mix.
    """
    n_threads, n_workers = torch.get_num_threads(), effective_n_jobs(n_jobs)
    extracts = config.extractor is not None
    safe = not (extracts or config.callbacks or config.verbose > 1)
    if n_workers == 1 and n_threads > 1 and safe and config.device.type == "cpu":
        return True, n_threads
    uses_threads = getattr(get_active_backend()[0], "uses_threads", False)
    if n_workers > 1 and uses_threads and extracts:
        return False, 1  # each holds the lock of torch's generator
    return False, n_workers


def count_at_a_time(config: TrainingConfig, n_jobs: int | None) -> int:
    """How many networks compute at a time."""
    return _workers(config, n_jobs)[1]


def pace_of(
    network: NeighborNetwork, sample: Sample, config: TrainingConfig, n_jobs: int | None
) -> Pace:
    """Measure the pace of training in as many threads as a network will have."""
    if not _workers(config, n_jobs)[0]:
        return measure_pace(network, sample, config)
    with lone_threads(1) as pool:
        return pool.submit(measure_pace, network, sample, config).result()


def train_in_threads(trainings: Sequence[Callable[..., T]], n_at_a_time: int) -> list[T]:
    """Call functions in threads in each of which torch has one, and return their results.

    Each takes ``turns``, by which `n_at_a_time` of them compute at a time. If a call fails, or the
    user interrupts, `turns` has ended, and so trainings end at their next batch.
    """
    turns = FairSemaphore(n_at_a_time)

    def call(training: Callable[..., T]) -> T:
        with turns:
            return training(turns=turns)

    with lone_threads(len(trainings)) as pool:
        calls: list[Future] = []
        try:
            for training in trainings:  # inside, since Ctrl-C here has to end those submitted
                calls.append(pool.submit(call, training))
            pending = set(calls)
            while pending:  # no wait is endless: on some systems Ctrl-C does not end it
                done, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for completed in done:
                    completed.result()
        except BaseException:
            turns.ended = True
            raise
    return [completed.result() for completed in calls]


class CountedParallel(Parallel):
    """joblib's Parallel, which also shows in the progress line how many networks are trained."""

    def __init__(self, n_jobs: int | None, progress: Progress):
        super().__init__(n_jobs)
        self.progress = progress

    def print_progress(self) -> None:
        super().print_progress()
        self.progress.count(self.n_completed_tasks)
