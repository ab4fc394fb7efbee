"""Training of several networks: how many, in turn, in threads or in processes, within a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from joblib import delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from .._data.sample import Sample
from .._data.splits import Split
from .._network.network import NeighborNetwork
from .._utils.random import local_seed
from .._utils.threads import lone_threads
from .batches import LARGE
from .budget import Budget
from .callbacks import ReportEpochs
from .parallel import CountedParallel, train_in_threads
from .progress import Progress
from .trainer import Pace, TrainingConfig, measure_pace, train_network

Trained = list[tuple[NeighborNetwork, list[dict]]]


def count_networks(n: int) -> int:
    """Choose a number of networks: 5 for few rows, whose fits differ most and cost least, or 3.

    Of a large table it is 1: its time is better spent on the steps of one.
    """
    return 1 if n > LARGE else min(max(10_000 // n, 3), 5)


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
) -> Trained:
    """Train networks on rows of a sample, each on its own split: networks with their histories.

    `valid` are the validation rows of all, where the splits have none.
    In one process, networks on a table train at the same time, in as many threads as torch has:
    the tensors of a step are too small to share among torch's threads.
    """
    in_threads, n_workers = _workers(config, n_jobs)
    budget = budget.shared(len(networks), len(networks) if in_threads else n_workers)
    with Progress(budget, config.max_iter, _shows_progress(config)) as progress:
        trainings = []
        for i, (network, split, seed) in enumerate(zip(networks, splits, seeds, strict=True)):
            deadline, report = partial(budget.deadline, i), ReportEpochs(progress, i)
            trainings.append(
                partial(_train, network, split, seed, sample, valid, config, deadline, report)
            )
        if in_threads:
            trained = train_in_threads(
                lambda train, turns: train(turns=turns), trainings, n_workers
            )
        else:
            parallel = CountedParallel(n_jobs, progress)
            trained = parallel(delayed(train)() for train in trainings)
    if config.falls_back:
        _fall_back_together(trained)
    return trained


def _fall_back_together(trained: Trained) -> None:
    """Let all networks predict the mean if most do: the others are better by chance."""
    if most_are_in_vain([epoch for _, history in trained for epoch in history]):
        for network, _ in trained:
            network.predict_mean()


def most_are_in_vain(history: list[dict]) -> bool:
    """Whether most networks predict validation rows no better than the mean, by their epochs."""
    n_networks = sum("stopped" in epoch for epoch in history)
    return sum("in_vain" in epoch for epoch in history) > n_networks / 2


def _train(
    network: NeighborNetwork,
    split: Split,
    seed: int,
    sample: Sample,
    valid: Sample | None,
    config: TrainingConfig,
    deadline: Callable[[], float],
    report: ReportEpochs,
    turns: Any = None,
) -> tuple[NeighborNetwork, list[dict]]:
    train, valid = sample[split.train], valid if split.valid is None else sample[split.valid]
    # Dropout in a feature extractor draws from torch's global generator.
    seeded = nullcontext() if config.extractor is None else local_seed(int(seed), config.device)
    with seeded:
        return train_network(
            network,
            train,
            valid,
            config,
            seed=int(seed),
            deadline=deadline(),
            report=report,
            turns=turns,
        )


def _workers(config: TrainingConfig, n_jobs: int | None) -> tuple[bool, int]:
    """Whether networks train in threads that take turns, and how many train at a time."""
    n_threads, n_workers = torch.get_num_threads(), effective_n_jobs(n_jobs)
    if n_workers == 1 and n_threads > 1 and _trains_in_threads(config):
        return True, n_threads
    uses_threads = getattr(get_active_backend()[0], "uses_threads", False)
    if n_workers > 1 and uses_threads and config.extractor is not None:
        return False, 1  # each holds the lock of torch's generator
    return False, n_workers


def _trains_in_threads(config: TrainingConfig) -> bool:
    """Whether networks may train at the same time in one process.

    A feature extractor may draw from torch's global generator, and its tensors are large; a
    callback may not be safe in threads; the rows of skorch's tables would mix.
    """
    plain = config.extractor is None and not config.callbacks
    return config.device.type == "cpu" and config.verbose <= 1 and plain


def _shows_progress(config: TrainingConfig) -> bool:
    """Whether a line shows how far training is, in this process."""
    accelerator = None if config.extractor is None else config.extractor.accelerator
    return config.verbose == 1 and (accelerator is None or accelerator().is_main_process)
