"""Training of several networks, in turn, in threads or in processes, within a time limit."""

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
    """Return the number of networks for n rows, from 5 for few rows to 3, or 1 for a large table.

    Fits of few rows differ most and cost least. On a large table, more steps are better.
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
    """Return networks that are trained on their splits of a sample, with their histories.

    `valid` replaces validation rows of the splits. In one process, networks on a table train in as
    many threads as torch has, since the tensors of a step are too small to compute in parallel.
    """
    in_threads, n_workers = _workers(config, n_jobs)
    # Networks that take turns have the whole time.
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
        for network, _ in trained:  # a network that is not in vain is better by chance
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
    """Return one trained network and its history; its time starts now."""
    train, valid = sample[split.train], valid if split.valid is None else sample[split.valid]
    slot = Slot(budget.deadline(number), turns, progress, number)
    # Dropout in a feature extractor draws from torch's global generator.
    seeded = nullcontext() if config.extractor is None else local_seed(int(seed), config.device)
    with seeded:
        return train_network(network, train, valid, config, seed=int(seed), slot=slot)


def most_are_in_vain(history: list[dict]) -> bool:
    """Return whether the histories of most networks are no better than the mean target."""
    n_networks = sum("stopped" in epoch for epoch in history)
    return sum("in_vain" in epoch for epoch in history) > n_networks / 2


def _workers(config: TrainingConfig, n_jobs: int | None) -> tuple[bool, int]:
    """Return whether networks train in threads that take turns, and the number at a time.

    In one process, networks train one at a time with a feature extractor, which may draw from
    torch's global generator, with callbacks, which may be unsafe in threads, and with skorch's
    tables, whose rows would mix.
    """
    n_threads, n_workers = torch.get_num_threads(), effective_n_jobs(n_jobs)
    extracts = config.extractor is not None
    safe = not (extracts or config.callbacks or config.verbose > 1)
    if n_workers == 1 and n_threads > 1 and safe and config.device.type == "cpu":
        return True, n_threads
    uses_threads = getattr(get_active_backend()[0], "uses_threads", False)
    if n_workers > 1 and uses_threads and extracts:
        return False, 1  # a training holds the lock of torch's generator
    return False, n_workers


def count_at_a_time(config: TrainingConfig, n_jobs: int | None) -> int:
    """Return how many networks compute at a time."""
    return _workers(config, n_jobs)[1]


def pace_of(
    network: NeighborNetwork, sample: Sample, config: TrainingConfig, n_jobs: int | None
) -> Pace:
    """Return the pace of training with the number of threads that a network will have."""
    if not _workers(config, n_jobs)[0]:
        return measure_pace(network, sample, config)
    with lone_threads(1) as pool:
        return pool.submit(measure_pace, network, sample, config).result()


def train_in_threads(trainings: Sequence[Callable[..., T]], n_at_a_time: int) -> list[T]:
    """Return results of functions, called in threads where torch has a single thread.

    The argument ``turns`` limits computation to `n_at_a_time` calls. If a call fails or the user
    interrupts, ``turns`` has ended, and trainings end at their next batch.
    """
    turns = FairSemaphore(n_at_a_time)

    def call(training: Callable[..., T]) -> T:
        with turns:
            return training(turns=turns)

    with lone_threads(len(trainings)) as pool:
        calls: list[Future] = []
        try:
            for training in trainings:  # inside, since Ctrl-C has to end submitted trainings
                calls.append(pool.submit(call, training))
            pending = set(calls)
            while pending:  # an endless wait would ignore Ctrl-C on some systems
                done, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for completed in done:
                    completed.result()
        except BaseException:
            turns.ended = True
            raise
    return [completed.result() for completed in calls]


class CountedParallel(Parallel):
    """Run joblib's Parallel, and count trained networks in the progress line."""

    def __init__(self, n_jobs: int | None, progress: Progress):
        super().__init__(n_jobs)
        self.progress = progress

    def print_progress(self) -> None:
        super().print_progress()
        self.progress.count(self.n_completed_tasks)
