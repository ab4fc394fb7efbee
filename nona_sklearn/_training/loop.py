"""Training: a loop of epochs for one network, and the order of several networks.

skorch runs the steps, the history and the users' callbacks. This package evaluates a step
(:mod:`~nona_sklearn._training.net`), and decides when training ends. Networks train in turn, in
threads or in processes.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from skorch.callbacks import Callback, EarlyStopping, LRScheduler
from skorch.utils import noop
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import TensorDataset

from .._inference.held_out import CONVERGED
from .._network.network import NeighborNetwork
from .._utils.random import local_seed
from .._utils.threads import FairSemaphore, lone_threads
from ..losses import WeightedLoss
from .net import (
    LARGE,
    NEIGHBOR_POOLS,
    STEPS,
    AcceleratedNet,
    DatasetPool,
    NearBatches,
    NearPool,
    NONANet,
    QuietAdamW,
    RowBatches,
    WeightAverage,
    resolve_batch_size,
    whole_batch,
)
from .progress import ENDLESS, Budget, Progress
from .refinement import refine_on_bank

if TYPE_CHECKING:
    from .._data.rule_columns import StoredRule
    from .._data.sample import Sample
    from .._data.splits import Split
    from .._network.extractor import FeatureExtractor

LEAST_GAIN = 1e-4  # least relative or absolute gain of an epoch over the best
EPOCH_ROWS = 2**16  # most rows of an epoch, drawn anew
JUDGED_ROWS = 2**13  # most validation rows of an epoch; all rows refine the network
TRIED_ROWS = 2**12  # least rows of the short epoch that measures the pace
FOLLOWING_ROWS = 2**14  # refinement takes as long as an epoch on 2 n rows, or on so many
CALIBRATING_ROWS = 2**14  # the same in a given space, whose epochs are fast
RETRY_RATE = 0.15  # factor of the learning rate after a training in vain
T = TypeVar("T")
Trained = tuple[NeighborNetwork, list[dict]]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Configure the training of networks; some fields are parameters of the estimators."""

    neighbor_pool: str
    pool_size: int
    batch_size: int | str
    learning_rate_init: float
    weight_decay: float
    max_iter: int
    n_iter_no_change: int
    device: torch.device
    callbacks: Sequence = ()
    verbose: int = 0  # 1: a line of progress, 2: skorch's table
    # Loss of predictions and encoded targets. Weighted rows need reduction='none'. A balanced loss
    # is a geometric mean over outputs (`WeightedLoss`).
    loss: Callable[..., nn.Module] = nn.MSELoss
    balanced: bool = False
    extractor: FeatureExtractor | None = None  # under the embedding
    n_steps: int = STEPS  # approximate steps of an epoch on a table, with batch_size='auto'
    average: bool = False  # whether the running average of the weights is validated and kept
    window: float = 0.0  # difference in time within which rows are no neighbours in training
    rule: StoredRule | None = None  # of rows that may be neighbours; None: all may
    threshold_mode: str = "rel"  # whether LEAST_GAIN is relative, or 'abs'
    # A network that predicts its validation rows no better than the mean training target is
    # trained again, from its start, at a lower rate. If the second training is in vain, the
    # network may predict the mean.
    retries: bool = True
    falls_back: bool = False
    # Whether left-out training rows refine the network if there are no validation rows. A space
    # with few parameters does not memorise the rows.
    refine_on_training: bool = False
    n_neighbors: Sequence[int] = ()  # candidates for the refinement; empty: no change
    n_sources: int | None = None  # training rows to refine beside, the first ones; None: all
    # Epochs over which the learning rate decreases to 0 by half a cosine (Loshchilov and Hutter,
    # "SGDR", 2017), after which training ends; None: the rate is constant.
    n_scheduled: int | None = None

    @property
    def n_epochs(self) -> int:
        """Return the largest number of epochs."""
        return min(self.max_iter, self.n_scheduled or self.max_iter)

    def rows_of_epoch(self, n_rows: int) -> int:
        """Return the number of training rows in an epoch."""
        return n_rows if self.extractor is not None else min(n_rows, EPOCH_ROWS)


@dataclass(frozen=True)
class Slot:
    """Hold the deadline, the turns and the progress of one network's training."""

    deadline: float = math.inf  # by time.time; only the first epoch may end later
    turns: FairSemaphore | None = None  # turns with trainings in further threads
    progress: Progress | None = None
    number: int = 0  # number of the network in the progress


class Attempt(NamedTuple):
    """Hold a trained network, its history, and its validation loss relative to the mean's."""

    network: NeighborNetwork
    history: list[dict]
    relative_loss: float

    @property
    def in_vain(self) -> bool:
        """Return whether the mean training target predicts the validation rows better.

        A training of all `max_iter` epochs is never in vain.
        """
        return self.relative_loss > 1 + LEAST_GAIN and self.history[-1]["stopped"] != "max_iter"


def train_network(
    network: NeighborNetwork,
    train: Sample,
    valid: Sample | None,
    config: TrainingConfig,
    *,
    seed: int,
    budget: Budget = ENDLESS,
    number: int = 0,
    progress: Progress | None = None,
    turns: FairSemaphore | None = None,
) -> Trained:
    """Return the trained network, or a trained copy, with the history of its epochs.

    The network has a share of the budget, by its `number`, and its time starts now.

    The weights come from the epoch of the lowest validation loss or, without validation rows, of
    the lowest training loss. The history has a dict per epoch. The best epoch has ``kept``, True.
    The last epoch has ``stopped`` ('no change', 'schedule', 'max_iter' or 'max_time') and, if the
    network is no better than the mean training target, ``in_vain``, True. Raise a ValueError if
    training diverges. `seed` determines the order of batches and the draws of pools.
    """
    equal_rows = isinstance(train.X, Tensor) and not _varies(train.X)
    if equal_rows or not _varies(train.y):
        # Neighbours of equal rows already predict the mean, so there is nothing to learn.
        config = replace(config, n_iter_no_change=1, retries=False)
    untrained = copy.deepcopy(network) if config.retries else None
    slot = Slot(budget.deadline(number), turns, progress, number)
    # Dropout in a feature extractor draws from torch's global generator.
    with nullcontext() if config.extractor is None else local_seed(seed, config.device):
        best = train_once(network, train, valid, config, seed, slot)
        if untrained is not None and best.in_vain and best.history[-1]["stopped"] in CONVERGED:
            slower = replace(config, learning_rate_init=RETRY_RATE * config.learning_rate_init)
            again = train_once(untrained, train, valid, slower, seed, slot)
            best = min(best, again, key=lambda attempt: attempt.relative_loss)
    if best.in_vain or (equal_rows and valid is not None and _varies(valid.y)):
        best.history[-1]["in_vain"] = True
        if config.falls_back:
            best.network.predict_mean()
    return best.network, best.history


def _varies(values: Tensor) -> bool:
    """Return whether rows (n, ...) differ."""
    return not torch.equal(values[1:], values[:-1])


def train_once(
    network: NeighborNetwork,
    train: Sample,
    valid: Sample | None,
    config: TrainingConfig,
    seed: int,
    slot: Slot,
) -> Attempt:
    """Return a network, trained in place and refined, with the weights of its best epoch."""
    network.to(config.device).train()  # once, since validation restores the mode
    train = train.to(config.device)
    pool = NEIGHBOR_POOLS[config.neighbor_pool](
        X=train.X,
        values=train.residuals,
        size=int(config.pool_size),
        generator=Generator().manual_seed(seed),
        groups=train.groups,
        log_prior=train.log_prior,
        times=train.times,
        window=config.window,
        rule=config.rule,
        compared=train.compared,
    )
    if valid is not None:
        valid = valid.to(config.device)
        exclusion = pool.excluded_in_validation(valid, slice(None))
        isolated = None if exclusion is None else exclusion.isolated()
        if isolated is not None and isolated.any():  # rows without an earlier training row
            valid = None if isolated.all() else valid[~isolated]
    weighted = train.weights or (valid is not None and valid.weights)
    plain_loss = partial(WeightedLoss, config.loss) if weighted else config.loss
    loss = partial(WeightedLoss, config.loss, balanced=True) if config.balanced else plain_loss
    judged = None if valid is None else valid[:JUDGED_ROWS]
    net = _make_net(network, pool, train, judged, loss, config, slot)
    try:
        history = run_epochs(net, train, judged, config, slot)
        network.zero_grad(set_to_none=True)
        check_convergence(_learned(network), config)
        relative_loss = refine_on_bank(network, pool, train, valid, plain_loss().eval(), config)
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        embeddings = [network.embed(train.X)] if isinstance(train.X, Tensor) else []
        check_convergence([*_learned(network), *embeddings], config, error)
        raise
    return Attempt(network, history, relative_loss)


def _make_net(
    network: NeighborNetwork,
    pool: DatasetPool,
    train: Sample,
    valid: Sample | None,
    loss: Callable[..., nn.Module],
    config: TrainingConfig,
    slot: Slot,
) -> NONANet:
    """Return the initialised skorch net that computes the training steps."""
    extractor = config.extractor
    # The head has no weight decay, since 0 has a meaning for its scalars.
    param_groups: list[tuple[str, dict]] = [("head.*", {"weight_decay": 0.0})]
    if extractor is not None:
        param_groups.append(("embedding.extractor.*", {"lr": extractor.learning_rate}))
    make = partial(NONANet, device=config.device)
    if extractor is not None and extractor.accelerator is not None:
        accelerator = extractor.accelerator()
        make = partial(
            AcceleratedNet,
            accelerator=accelerator,
            callbacks__print_log__sink=accelerator.print if config.verbose > 1 else noop,
            iterator_train__process=accelerator.process_index,
            iterator_train__n_processes=accelerator.num_processes,
        )
    extracts = extractor is not None
    size = resolve_batch_size(config.batch_size, len(train), config.n_steps, extracts)
    n_rows, callbacks = config.rows_of_epoch(len(train)), copy.deepcopy(list(config.callbacks))
    if config.n_scheduled is not None:
        n_steps = config.n_epochs * math.ceil(n_rows / size)
        schedule = LRScheduler(CosineAnnealingLR, T_max=n_steps, step_every="batch")
        callbacks.append(schedule)
    batches: Callable[..., RowBatches] = RowBatches
    if isinstance(pool, NearPool):
        batches = partial(NearBatches, pool=pool, network=network)
    net = make(
        network,
        pool=pool,
        valid=valid,
        weights=train.weights,
        micro_batch_size=None if extractor is None else extractor.micro_batch_size,
        average=WeightAverage(network) if config.average else None,
        turns=slot.turns,
        criterion=loss,
        optimizer=QuietAdamW,
        optimizer__fused=True,
        optimizer__lr=config.learning_rate_init,
        optimizer__weight_decay=config.weight_decay,
        optimizer__param_groups=param_groups,
        batch_size=size,
        iterator_train=batches,
        iterator_train__generator=pool.generator,
        iterator_train__n_rows=n_rows,
        iterator_valid=whole_batch,
        callbacks=callbacks,
        verbose=config.verbose > 1,
    )
    return net.initialize()


def run_epochs(
    net: NONANet,
    train: Sample,
    valid: Sample | None,
    config: TrainingConfig,
    slot: Slot,
) -> list[dict]:
    """Return the history of the epochs, as :func:`train_network`, and restore the best weights."""
    network, average = net.module, net.average
    # For skorch, data sets of row numbers and targets are sufficient.
    train_rows, valid_rows = (
        None
        if part is None
        else TensorDataset(torch.arange(len(part), device=part.y.device), part.residuals)
        for part in (train, valid)
    )
    datasets = {"dataset_train": train_rows, "dataset_valid": valid_rows}
    batches = net.get_iterator(train_rows, training=True)
    validation = None if valid_rows is None else net.get_iterator(valid_rows, training=False)
    monitor = "train_loss" if valid is None else "valid_loss"
    threshold, n_misses, best_epoch, best_weights = math.inf, 0, 0, None
    stopped = "schedule" if config.n_epochs == config.n_scheduled else "max_iter"
    net.notify("on_train_begin", X=train_rows, y=None)
    for _ in range(config.n_epochs):
        began = time.time()
        net.notify("on_epoch_begin", **datasets)
        net.run_single_epoch(batches, True, prefix="train", step_fn=net.train_step)
        if average is not None:
            average.swap()  # validation, callbacks and the kept weights use the average
        net.run_single_epoch(validation, False, prefix="valid", step_fn=net.validation_step)
        net.notify("on_epoch_end", **datasets)  # the losses of the epoch enter the history
        epoch, loss = net.history[-1, "epoch"], net.history[-1, monitor]
        n_misses += 1
        if loss < threshold:
            gain = LEAST_GAIN * loss if config.threshold_mode == "rel" else LEAST_GAIN
            threshold, n_misses = loss - gain, 0
            best_epoch, best_weights = epoch, copy.deepcopy(network.state_dict())
        if average is not None:
            average.swap()
        if slot.progress is not None:
            best_loss = min(net.history[:, monitor])
            slot.progress.follow(slot.number, epoch, f"best {monitor} {best_loss:.4g}")
        if n_misses == config.n_iter_no_change:
            stopped = "no change"
            break
        if slot.turns is not None:
            slot.turns.yield_turn()
        now = time.time()
        if net.agree(now + (now - began) > slot.deadline):  # the next epoch takes as long
            stopped = "max_time"
            break
    if best_weights is not None:
        network.load_state_dict(best_weights)
    net.notify("on_train_end", X=train_rows, y=None)
    if slot.progress is not None:
        slot.progress.end_of(slot.number)
    history = [{k: v for k, v in record.items() if k != "batches"} for record in net.history]
    history[best_epoch - 1]["kept"] = True  # epochs count from 1; 0: the last one stays
    history[-1]["stopped"] = stopped
    return history


def _learned(network: NeighborNetwork) -> list[Tensor]:
    """Return the parameters, and the head's temperature with its inverse."""
    temperature = torch.as_tensor(getattr(network.head, "temperature", 1.0))
    return [*network.parameters(), torch.stack([temperature, 1 / temperature])]


def check_convergence(
    tensors: Iterable[Tensor], config: TrainingConfig, cause: Exception | None = None
) -> None:
    """Raise a ValueError if a tensor of the trained network is not finite."""
    if not all(tensor.isfinite().all() for tensor in tensors):
        raise ValueError(
            f"training diverged with learning_rate_init={config.learning_rate_init} and "
            f"weight_decay={config.weight_decay}: its loss is no longer finite; try smaller ones"
        ) from cause


def check_callbacks(callbacks: Sequence | None) -> Sequence:
    """Return the callbacks; raise if one is no skorch callback, or an EarlyStopping."""
    for callback in callbacks or ():
        named = callback[1] if isinstance(callback, tuple) and len(callback) == 2 else callback
        kind = named if isinstance(named, type) else type(named)
        if not issubclass(kind, Callback):
            raise ValueError(
                "callbacks must be skorch callbacks, or tuples of a name and one, got "
                f"{callback!r:.100}"
            )
        if issubclass(kind, EarlyStopping):
            raise ValueError(
                "callbacks must have no EarlyStopping, since training stops early by itself, got "
                f"{callback!r:.100}: set n_iter_no_change, or raise max_iter"
            )
    return callbacks or ()


class Pace(NamedTuple):
    """Hold the seconds that the training of a network takes."""

    epoch: float
    refinement: float  # after the epochs; the steps after all networks take as long


def measure_pace(network: NeighborNetwork, sample: Sample, config: TrainingConfig) -> Pace:
    """Return the pace on a table, measured in a short epoch, which changes the network."""
    n_rows = len(sample)
    rows = torch.linspace(0, n_rows - 1, min(n_rows, max(config.pool_size, TRIED_ROWS))).long()
    size = resolve_batch_size(config.batch_size, n_rows, config.n_steps)
    short = replace(config, batch_size=size, max_iter=1, n_neighbors=(), callbacks=(), verbose=0)
    trial = train_once(network, sample[rows], None, short, 0, Slot())
    seconds_per_row = trial.history[0]["dur"] / len(rows)
    n_following = (
        CALIBRATING_ROWS if config.refine_on_training else min(2 * n_rows, FOLLOWING_ROWS)
    )
    return Pace(
        epoch=seconds_per_row * config.rows_of_epoch(n_rows),
        refinement=seconds_per_row * n_following,
    )


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
    in_threads, n_workers = workers(config, n_jobs)
    # Networks that take turns have the whole time.
    n_together = len(networks) if in_threads else n_workers
    budget = replace(budget, n_networks=len(networks), n_workers=n_together)
    accelerator = None if config.extractor is None else config.extractor.accelerator
    shown = config.verbose == 1 and (accelerator is None or accelerator().is_main_process)
    with Progress(budget, config.n_epochs) if shown else nullcontext() as progress:
        trainings = (  # one by one, since parts of a sample are copies
            partial(
                train_network,
                network,
                sample[split.train],
                valid if split.valid is None else sample[split.valid],
                config,
                seed=int(seed),
                budget=budget,
                number=i,
                progress=progress,
            )
            for i, (network, split, seed) in enumerate(zip(networks, splits, seeds, strict=True))
        )
        if in_threads:
            trained = train_in_threads([*trainings], n_workers)
        else:
            parallel = Parallel(n_jobs) if progress is None else CountedParallel(n_jobs, progress)
            trained = parallel(delayed(training)() for training in trainings)
    if config.falls_back and most_are_in_vain([e for _, history in trained for e in history]):
        for network, _ in trained:  # a network that is not in vain is better by chance
            network.predict_mean()
    return trained


def most_are_in_vain(history: list[dict]) -> bool:
    """Return whether the histories of most networks are no better than the mean target."""
    n_networks = sum("stopped" in epoch for epoch in history)
    return sum("in_vain" in epoch for epoch in history) > n_networks / 2


def workers(config: TrainingConfig, n_jobs: int | None) -> tuple[bool, int]:
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


def pace_of(
    network: NeighborNetwork, sample: Sample, config: TrainingConfig, n_jobs: int | None
) -> Pace:
    """Return the pace of training with the number of threads that a network will have."""
    in_threads, _ = workers(config, n_jobs)
    if not in_threads:
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
