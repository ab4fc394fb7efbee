"""Training of one network: a short loop over skorch, and what is refined after it.

skorch owns the loop, the history, early stopping, clipping and progress. Ours is what a step
evaluates: its pool (:mod:`~nona_sklearn._training.pools`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from skorch.callbacks import Callback, EarlyStopping, GradientNormClipping
from skorch.helper import predefined_split
from torch import Generator, Tensor, nn

from .._data.sample import Sample
from .._inference.evaluation import Evaluation
from .._inference.neighbors import Neighbors
from .._network.extractor import FeatureExtractor
from .._network.network import NeighborNetwork
from ..attention.head import prior_mean
from ..losses import WeightedLoss
from .batches import (
    STEPS,
    AdaptiveAccumulation,
    RowBatches,
    WholeBatch,
    numbered,
    resolve_batch_size,
)
from .callbacks import Deadline, ReportEpochs, WeightAveraging
from .convergence import check_parameters, divergence_named
from .net import AcceleratedNet, NONANet
from .optimizer import QuietAdamW
from .pools import NEIGHBOR_POOLS, DatasetPool
from .refinement import fit_trust_radius, how_many, loss_relative_to_mean, refine

MAX_GRADIENT_NORM = 1.0
LEAST_GAIN = 1e-4  # of an epoch that is better than the best
EPOCH_ROWS = 2**16  # of more rows, an epoch takes as many, drawn anew
JUDGED_ROWS = 2**13  # of more validation rows, the first judge an epoch; all refine the network
TRIED_ROWS = 2**12  # that show how long an epoch takes
FOLLOWING_ROWS = 2**14  # what follows an epoch takes as long as two on all rows, or on so many
CALIBRATING_ROWS = 2**14  # in a given space, whose epochs are fast, as long as one on so many
RETRY_RATE = 0.15  # of the learning rate, after a training in vain


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How networks are trained. Parameters of the same name are those of the estimators.

    Parameters
    ----------
    loss : callable, default=MSELoss
        Makes the loss of predictions and encoded targets. It takes ``reduction='none'`` if the
        sample weights differ.
    balanced : bool, default=False
        Whether the mean of the outputs' losses is geometric (:class:`~..losses.WeightedLoss`).
    extractor : FeatureExtractor, optional
        The feature extractor under the embedding, with its training parameters.
    n_steps : int, default=4
        About how many steps an epoch has with ``batch_size='auto'``, on a table.
    average : bool, default=False
        Whether epochs are judged and kept by the running average of the steps' weights.
    refine_on_training : bool, default=False
        Whether, without validation rows, training rows, each without itself, refine what
        depends on the whole bank: a space with few parameters does not memorise them.
    n_neighbors : sequence of int, default=()
        Numbers of neighbours of which the head's is chosen after training; none: it stays.
    window : float, default=0.0
        How near in time rows are no neighbours in training.
    max_accumulation : int, default=1
        Largest number of batches in a step (:class:`~.batches.AdaptiveAccumulation`). More than
        1 needs a loss with a method `n_ignored`. The steps of an epoch are
        ``train_batch_count`` in the history.
    retries : bool, default=True
        Whether a network that predicts its validation rows no better than the mean of the
        training targets is trained once more, from its start, at a lower learning rate.
    falls_back : bool, default=False
        Whether it predicts this mean if that is in vain, too.
    threshold_mode : {'rel', 'abs'}, default='rel'
        Whether an epoch is better if the loss falls by 0.0001 of itself, or by 0.0001.
    verbose : int, default=0
        1: a line of progress, 2: skorch's table.
    """

    neighbor_pool: str
    pool_size: int
    batch_size: int | str
    learning_rate_init: float
    weight_decay: float
    max_iter: int
    n_iter_no_change: int
    device: torch.device
    loss: Callable[..., nn.Module] = nn.MSELoss
    balanced: bool = False
    extractor: FeatureExtractor | None = None
    n_steps: int = STEPS
    average: bool = False
    refine_on_training: bool = False
    n_neighbors: Sequence[int] = ()
    window: float = 0.0
    max_accumulation: int = 1
    retries: bool = True
    falls_back: bool = False
    threshold_mode: str = "rel"
    callbacks: Sequence = ()
    verbose: int = 0

    def rows_of_epoch(self, n_rows: int) -> int:
        """How many of the training rows an epoch takes."""
        return n_rows if self.extractor is not None else min(n_rows, EPOCH_ROWS)


class Pace(NamedTuple):
    """Seconds that the training of a network takes."""

    epoch: float
    refinement: float  # after the epochs; what follows all networks takes as long


def measure_pace(network: NeighborNetwork, sample: Sample, config: TrainingConfig) -> Pace:
    """How long training on a table takes, by a short epoch on rows from all of it.

    The network is trained by that.
    """
    n_rows = len(sample)
    some = torch.linspace(0, n_rows - 1, min(n_rows, max(config.pool_size, TRIED_ROWS))).long()
    size = resolve_batch_size(config.batch_size, n_rows, config.n_steps)
    short = replace(config, batch_size=size, max_iter=1, n_neighbors=(), callbacks=(), verbose=0)
    trial = _train_once(network, sample[some], None, short, 0, math.inf, None, None)
    of_row = trial.history[0]["dur"] / len(some)
    of_bank = config.refine_on_training
    n_following = CALIBRATING_ROWS if of_bank else min(2 * n_rows, FOLLOWING_ROWS)
    return Pace(of_row * config.rows_of_epoch(n_rows), of_row * n_following)


def train_network(
    network: NeighborNetwork,
    train: Sample,
    valid: Sample | None,
    config: TrainingConfig,
    *,
    seed: int,
    deadline: float = math.inf,
    report: ReportEpochs | None = None,
    turns: Callback | None = None,
) -> tuple[NeighborNetwork, list[dict]]:
    """Train a network, and restore the weights of its best epoch.

    The best epoch is the one of the lowest validation loss or, without validation rows, of
    the lowest training loss. If even then the validation loss is above that of the mean of the
    training targets, and `max_iter` did not end the training, see `retries` and `falls_back` of
    the configuration.

    Parameters
    ----------
    network : NeighborNetwork
        The network, which changes, and is moved to the device.
    train, valid : Sample
        Training rows, and validation rows if there are any.
    config : TrainingConfig
        How it is trained.
    seed : int
        Seed of the batches' order and of the pools' draws.
    deadline : float, default=inf
        No epoch but the first begins that would end later, by :func:`time.time`, if it took as
        long as the one before.
    report, turns : Callback, optional
        Reports progress; takes turns with trainings in other threads.

    Returns
    -------
    network : NeighborNetwork
        The trained network: the given one, or a copy.
    history : list of dict
        skorch's history, a dict for each epoch, without its per-batch records. The last one has
        ``stopped``, why there are no more: 'no change', 'max_iter' or 'max_time'; the one
        whose weights were restored ``kept``, True. If the network is no better than the mean,
        the last one has ``in_vain``, True.

    Raises
    ------
    ValueError
        If training diverges, so that a weight is not finite.
    KeyboardInterrupt
        If the user interrupts it.
    """

    def attempt(network: NeighborNetwork, config: TrainingConfig) -> Attempt:
        return _train_once(network, train, valid, config, seed, deadline, report, turns)

    # Neighbours predict their mean already: nothing is to be learned.
    alike = isinstance(train.X, Tensor) and not _varies(train.X)
    if alike or not _varies(train.y):
        config = replace(config, n_iter_no_change=1, retries=False)
    untrained = copy.deepcopy(network) if config.retries else None
    best = attempt(network, config)
    if best.in_vain and best.stopped == "no change" and untrained is not None:
        rate = RETRY_RATE * config.learning_rate_init
        again = attempt(untrained, replace(config, learning_rate_init=rate))
        best = min(best, again, key=lambda each: each.relative_loss)
    if best.in_vain or (alike and valid is not None and _varies(valid.y)):
        best.history[-1]["in_vain"] = True
        if config.falls_back:
            best.network.predict_mean()
    return best.network, best.history


def _varies(values: Tensor) -> bool:
    """Whether rows differ, (n, ...)."""
    return not torch.equal(values[1:], values[:-1])


class Attempt(NamedTuple):
    """A trained network with its history, and its validation loss relative to the mean's."""

    network: NeighborNetwork
    history: list[dict]
    relative_loss: float

    @property
    def stopped(self) -> str:
        """Why there are no more epochs."""
        return self.history[-1]["stopped"]

    @property
    def in_vain(self) -> bool:
        """Whether the mean of the training targets predicts the validation rows better.

        A training of all `max_iter` epochs is as long as it was meant to be.
        """
        return self.relative_loss > 1 + LEAST_GAIN and self.stopped != "max_iter"


def _train_once(
    network: NeighborNetwork,
    train: Sample,
    valid: Sample | None,
    config: TrainingConfig,
    seed: int,
    deadline: float,
    report: ReportEpochs | None,
    turns: Callback | None,
) -> Attempt:
    """Train a network in place, restore the weights of its best epoch, and refine it."""
    train = train.to(config.device)
    valid = None if valid is None else valid.to(config.device)
    generator = Generator().manual_seed(seed)
    pool = NEIGHBOR_POOLS[config.neighbor_pool](
        *(train.X, train.residuals, int(config.pool_size), generator),
        *(train.groups, train.log_prior, train.times, config.window),
    )
    if valid is not None:
        valid = _with_neighbors(valid, pool)
    judged = None if valid is None else valid[:JUDGED_ROWS]
    weighted = train.weights or (valid is not None and valid.weights)
    plain = partial(WeightedLoss, config.loss) if weighted else config.loss
    loss = partial(WeightedLoss, config.loss, balanced=True) if config.balanced else plain
    callbacks = _callbacks(config, valid is not None, report, turns, deadline)
    net_class, options = _net_options(config, len(train))
    net = net_class(
        network,
        pool=pool,
        valid=judged,
        weights=train.weights,
        weights_valid=[] if judged is None else judged.weights,
        criterion=loss,
        iterator_train__generator=generator,
        train_split=None if judged is None else predefined_split(numbered(judged.residuals)),
        callbacks=callbacks,
        **options,
    )
    network.train()  # once: validation puts it back
    with divergence_named(network, train.X, config.learning_rate_init, config.weight_decay):
        net.fit(numbered(train.residuals), None)
        if net.interrupted_ is not None:
            raise net.interrupted_
        network.zero_grad(set_to_none=True)
        check_parameters(network, config.learning_rate_init, config.weight_decay)
        relative_loss = _refine(network, pool, train, valid, config, plain, generator)
    history = [{k: v for k, v in epoch.items() if k != "batches"} for epoch in net.history]
    stopping = next(c for _, c in net.callbacks_ if isinstance(c, EarlyStopping))
    history[stopping.best_epoch_ - 1]["kept"] = True  # epochs count from 1
    history[-1]["stopped"] = net.stopped_
    return Attempt(network, history, relative_loss)


def _with_neighbors(valid: Sample, pool: DatasetPool) -> Sample | None:
    """Leave out validation rows that no training row is earlier than; None: all of them."""
    exclusion = pool.excluded_in_validation(valid, slice(None))
    isolated = None if exclusion is None else exclusion.isolated()
    if isolated is None or not isolated.any():
        return valid
    return None if isolated.all() else valid[~isolated]


def _callbacks(
    config: TrainingConfig,
    validates: bool,
    report: Callback | None,
    turns: Callback | None,
    deadline: float,
) -> list:
    """List the callbacks in the order in which they are called at the end of an epoch."""
    stopping = EarlyStopping(
        monitor="valid_loss" if validates else "train_loss",
        patience=config.n_iter_no_change,
        load_best=True,
        threshold=LEAST_GAIN,
        threshold_mode=config.threshold_mode,
    )
    return [
        *([WeightAveraging()] if config.average else []),
        GradientNormClipping(MAX_GRADIENT_NORM),
        *([] if report is None else [report]),
        stopping,
        *copy.deepcopy(list(config.callbacks)),
        *([] if turns is None else [turns]),
        Deadline(deadline),  # the others see the last epoch, too
    ]


def _net_options(config: TrainingConfig, n_rows: int) -> tuple[type[NONANet], dict]:
    """Choose the net, and its parameters that depend on the configuration alone."""
    extractor = config.extractor
    batch_size = resolve_batch_size(
        config.batch_size, n_rows, config.n_steps, extractor is not None
    )
    # The head's few scalars have a meaning of their own; decay would pull them to it.
    param_groups: list[tuple[str, dict]] = [("head.*", {"weight_decay": 0.0})]
    options: dict[str, Any] = {
        "optimizer": QuietAdamW,
        "optimizer__fused": True,
        "optimizer__lr": config.learning_rate_init,
        "optimizer__weight_decay": config.weight_decay,
        "optimizer__param_groups": param_groups,
        "max_epochs": config.max_iter,
        "batch_size": batch_size,
        "iterator_train": RowBatches,
        "iterator_train__n_rows": config.rows_of_epoch(n_rows),
        "iterator_valid": WholeBatch,
        "verbose": config.verbose > 1,
        "device": config.device,
    }
    net_class, n_processes = NONANet, 1
    if extractor is not None:
        param_groups.append(("embedding.extractor.*", {"lr": extractor.learning_rate}))
        options["micro_batch_size"] = extractor.micro_batch_size
        if extractor.accelerator is not None:
            accelerator = extractor.accelerator()
            net_class, n_processes = AcceleratedNet, accelerator.num_processes
            options |= {
                "device": None,
                "accelerator": accelerator,
                "callbacks__print_log__sink": accelerator.print
                if config.verbose > 1
                else _print_nothing,
                "iterator_train__process": accelerator.process_index,
                "iterator_train__n_processes": n_processes,
            }
    if config.max_accumulation > 1:
        accumulation = AdaptiveAccumulation(config.max_accumulation)
        # A step's batches are as large as without: they go through the network one by one.
        share = math.ceil(batch_size / n_processes)
        options |= {"accumulation": accumulation, "iterator_train__accumulation": accumulation}
        options["micro_batch_size"] = min(options.get("micro_batch_size") or share, share)
    return net_class, options


def _refine(
    network: NeighborNetwork,
    pool: DatasetPool,
    train: Sample,
    valid: Sample | None,
    config: TrainingConfig,
    loss: Callable[..., nn.Module],
    generator: Generator,
) -> float:
    """Fit what depends on the whole bank, by validation rows or else by training rows.

    Returns the loss of validation rows relative to that of the mean of the training targets; 1
    without validation rows.
    """
    refined = valid is not None or (
        config.refine_on_training and (len(train) > config.pool_size or config.n_neighbors)
    )
    if not (network.head.n_adjusted or refined):
        return 1.0
    evaluation, rows = _evaluate_whole_bank(network, pool, train, valid, generator)
    truth = rows.residuals, *rows.weights
    if network.head.n_adjusted:
        fit_trust_radius(evaluation)
    if refined:
        refine(
            evaluation,
            loss().eval(),
            *truth,
            n_neighbors=config.n_neighbors,
            balanced=config.balanced,
        )
    if valid is None:
        return 1.0
    mean = prior_mean(train.y.reshape(len(train), -1), train.log_prior).expand(len(rows), -1)
    of_mean = replace(rows, y=mean.reshape(rows.y.shape)).residuals
    return loss_relative_to_mean(evaluation, loss().eval(), of_mean, *truth)


def _evaluate_whole_bank(
    network: NeighborNetwork,
    pool: DatasetPool,
    train: Sample,
    valid: Sample | None,
    generator: Generator,
) -> tuple[Evaluation, Sample]:
    """Evaluate some validation rows, or training rows without themselves, on all training rows.

    Validation rows come shuffled. Returns these rows as well.
    """
    neighbors = Neighbors(network.embed(pool.X), pool.values, pool.log_prior)
    n_queries = how_many(len(neighbors), held_out=valid is not None)
    if valid is not None:
        valid = valid[:n_queries]
        exclusion = pool.excluded_in_validation(valid, slice(None))
        return Evaluation(network.head, neighbors, network.embed(valid.X), exclusion), valid
    some = torch.randperm(len(neighbors), generator=generator)[:n_queries]
    some = some.to(pool.labels.device)
    itself = pool.excluded_in_training(some, slice(None))
    evaluation = Evaluation(network.head, neighbors, neighbors.embeddings[some], itself)
    return evaluation, train[some]


def check_callbacks(callbacks: Sequence | None) -> Sequence:
    """Refuse what skorch could not call, before it trains."""
    for callback in callbacks or ():
        named = callback[1] if isinstance(callback, tuple) and len(callback) == 2 else callback
        kind = named if isinstance(named, type) else type(named)
        if not issubclass(kind, Callback):
            raise ValueError(
                "callbacks must be skorch callbacks, or tuples of a name and one, got "
                f"{callback!r:.100}"
            )
    return callbacks or ()


def _print_nothing(*args, **kwargs):
    pass
