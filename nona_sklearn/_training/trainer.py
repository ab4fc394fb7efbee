"""Training: a skorch net, and batches of row numbers sliced on the device.

skorch owns the loop, the history, early stopping, clipping and progress. Ours is what a step
asks its pool (:mod:`~nona_sklearn._training.pools`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import skorch
import torch
from skorch.callbacks import Callback, EarlyStopping, GradientNormClipping
from skorch.helper import predefined_split
from skorch.hf import AccelerateMixin
from torch import Generator, Tensor, nn
from torch.utils.data import TensorDataset

from .._data.rows import Rows
from .._data.sample_weight import normalize_mean
from .._inference.evaluation import Evaluation
from .._inference.neighbors import Exclusion, Neighbors
from .._network.network import NeighborNetwork
from ..attention import NONAHead
from ..losses import WeightedLoss
from .callbacks import Deadline, ReportEpochs, WeightAveraging
from .optimizer import QuietAdamW
from .pools import NEIGHBOR_POOLS, DatasetPool
from .refinement import fit_trust_radius, how_many, refine

MAX_GRADIENT_NORM = 1.0
LEAST_GAIN = 1e-4  # of an epoch that is better than the best
BLOCK_ENTRIES = 2**19  # query-neighbour pairs that validation weighs at a time: 2 MB

# Of batch_size='auto': steps an epoch, and the largest batch. Those of a feature extractor, whose
# rows are costly, are more and smaller.
STEPS, MAX_BATCH = 8, 512
EXTRACTOR_STEPS, MAX_EXTRACTOR_BATCH = 16, 256
MIN_BATCH = 32
EPOCH_ROWS = 2**15  # of more rows, an epoch takes as many, drawn anew


class AdaptiveAccumulation:
    """How many batches the next step takes: more, the fewer rows of the last one taught anything.

    So many that about one batch of their rows has a loss above 0, but one more than last time at
    most: AS-Speed, of the paper on :class:`~nona_sklearn.losses.ASSoftmaxLoss`.

    Parameters
    ----------
    most : int
        Never more than these.
    """

    def __init__(self, most: int):
        self.most = most
        self.n_batches = 1

    def follow(self, n_rows: int, n_ignored: float) -> None:
        """See how many rows of a step the loss ignored."""
        wanted = round(n_rows / max(1, n_rows - n_ignored))
        self.n_batches = min(wanted, self.n_batches + 1, self.most)


class RowBatches:
    """Iterate over shuffled batches of ``(row numbers, targets)``.

    Tensors are sliced where they lie; skorch's default path takes every row out of the dataset
    by itself and collates them again. A single row left at the end joins the batch before it,
    since in a batch by itself it might have no neighbour. Of several processes, each takes an
    equal share of every batch; what is left over has its turn in another epoch. So have all rows
    beyond `n_rows`, if that is given: of a large table, training is judged more often than once a
    pass. A pace says how many batches are joined for the next step; an epoch's last step takes
    those that are left.
    """

    def __init__(
        self,
        dataset: TensorDataset,
        batch_size: int,
        generator: Generator,
        process: int = 0,
        n_processes: int = 1,
        pace: AdaptiveAccumulation | None = None,
        n_rows: int | None = None,
    ):
        self.y = dataset.tensors[1]
        self.n_rows = n_rows
        self.batch_size = batch_size
        self.generator = generator
        self.process = process
        self.n_processes = n_processes
        self.pace = pace

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.y), generator=self.generator).to(self.y.device)
        batches = list(order[: self.n_rows].split(self.batch_size))
        if len(batches) > 1 and len(batches[-1]) < max(2, self.n_processes):
            batches[-2:] = [torch.cat(batches[-2:])]
        while batches:
            n_batches = 1 if self.pace is None else self.pace.n_batches
            batch = torch.cat(batches[:n_batches])
            del batches[:n_batches]
            share = len(batch) // self.n_processes * self.n_processes
            rows = batch[self.process : share : self.n_processes]
            yield rows, self.y[rows]


class WholeBatch:
    """Iterate over the validation rows at once: the bank streams them."""

    def __init__(self, dataset: TensorDataset, batch_size: int):
        self.tensors = dataset.tensors

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        yield self.tensors


class NONANet(skorch.NeuralNet):
    """A skorch net that predicts each training row from its pool, never from itself.

    Parameters
    ----------
    module : NeighborNetwork
        The network to train, in place.
    pool : DatasetPool, BatchPool or MemoryPool
        Chooses and embeds a step's neighbours.
    X_valid : Tensor of shape (n_valid, n_features), or Rows, optional
        The validation rows.
    weights, weights_valid : sequence of Tensor of shape (n,) and (n_valid,), default=()
        What else the loss takes of training and validation rows: how much they count, where
        they differ.
    micro_batch_size : int, optional
        Most queries to take through the network at a time: gradients of a batch add up. One
        more where that spares a single row, which might have no neighbour.
    pace : Pace, optional
        What to tell how many rows of a step the loss ignored, as its `n_ignored` counts them.
    **kwargs
        Parameters of :class:`skorch.NeuralNet`.
    """

    def __init__(
        self,
        module,
        pool,
        X_valid=None,
        weights=(),
        weights_valid=(),
        micro_batch_size=None,
        pace=None,
        **kwargs,
    ):
        super().__init__(module, **kwargs)
        self.pool = pool
        self.X_valid = X_valid
        self.weights = weights
        self.weights_valid = weights_valid
        self.micro_batch_size = micro_batch_size
        self.pace = pace

    def fit_loop(self, X, y=None, **kwargs):
        """Note why training ends, and an interruption, which skorch takes for the wish to end."""
        self.stopped_, self.interrupted_ = "max_iter", None
        self.learnable_ = list(super().get_all_learnable_params())
        try:
            return super().fit_loop(X, y, **kwargs)
        except KeyboardInterrupt as interrupt:  # a callback's way to end the loop, too
            self.stopped_ = next(filter(None, (why_stopped(c) for _, c in self.callbacks_)), None)
            if self.stopped_ is None:
                self.interrupted_ = interrupt
            raise

    def get_all_learnable_params(self):
        """List the parameters, which do not change in training: each step asks for them."""
        return getattr(self, "learnable_", None) or super().get_all_learnable_params()

    def infer(self, rows, **fit_params):
        return self.module_(rows, self.pool)

    def train_step_single(self, batch, **fit_params):
        """Add up the gradients of a batch's parts, each weighing as many rows as it has."""
        rows, y = batch
        n_parts = count_parts(len(rows), self.micro_batch_size)
        parts = []
        for part, truth in zip(rows.tensor_split(n_parts), y.tensor_split(n_parts), strict=True):
            y_pred = self.infer(part)
            loss = self.get_loss(y_pred, truth, part, training=True) * (len(part) / len(rows))
            if not loss.requires_grad:
                raise ValueError(
                    "nothing to learn: the loss does not depend on the network. With adjust=False "
                    "and no step, the weighting must have a gradient"
                )
            self.backward(loss)
            parts.append((loss.detach(), y_pred.detach()))
        losses, predictions = zip(*parts, strict=True)
        y_pred = torch.cat(predictions)
        if self.pace is not None:
            self.pace.follow(len(rows), self.count_ignored(y_pred, y))
        return {"loss": sum(losses), "y_pred": y_pred}

    def get_loss(self, y_pred, y_true, X=None, training=False):
        """Compare predictions of rows, whose numbers are `X`, with their targets."""
        weights = self.weights if training else self.weights_valid
        self.loss.train(training)
        return self.criterion_(y_pred, y_true, *(weight[X] for weight in weights))

    def backward(self, loss):
        """Add a loss's gradients to those of the parameters."""
        loss.backward()

    def count_ignored(self, y_pred, y_true):
        """Count the rows of a step that the loss ignores."""
        return self.loss.n_ignored(y_pred, y_true).item()

    def validation_step(self, batch, **fit_params):
        """Score the validation rows against the pool's."""
        rows, y = batch
        network = self.network
        neighbors = self.pool.neighbors(network)
        y_pred = predict_roughly(network, neighbors, network.embed(self.X_valid))
        return {"loss": self.get_loss(y_pred, y, rows, training=False), "y_pred": y_pred}

    def agree(self, stop):
        """Whether to stop: what other processes that train the same network do, too."""
        return stop

    @property
    def network(self):
        """The network itself, without what may be wrapped around it."""
        return self.module_

    @property
    def loss(self):
        """The loss's module."""
        return self.criterion_


class AcceleratedNet(AccelerateMixin, NONANet):
    """The same on the devices of an :class:`accelerate.Accelerator`.

    Each process takes its share of every batch, and draws the same further neighbours.
    """

    def initialize_criterion(self):
        """Take the module's method: skorch would wrap a module without weights, and fail."""
        self.criterion_ = self.criterion().__call__
        return self

    def train_step_single(self, batch, **fit_params):
        step = NONANet.train_step_single(self, batch, **fit_params)
        # The same on all processes, so that all of them stop at the same epoch.
        return step | {"loss": self.accelerator.reduce(step["loss"], reduction="mean")}

    def backward(self, loss):
        self.accelerator.backward(loss)

    def count_ignored(self, y_pred, y_true):
        """Count them as if each process had as many: all of them take the same next step."""
        n_ignored = self.loss.n_ignored(y_pred, y_true).float()
        return self.accelerator.reduce(n_ignored, reduction="mean").item()

    def agree(self, stop):
        """Whether any of the processes would: one that went on alone would wait for ever."""
        votes = torch.tensor(float(stop), device=self.accelerator.device)
        return self.accelerator.reduce(votes, reduction="sum").item() > 0

    @property
    def network(self):
        return self.accelerator.unwrap_model(self.module_)

    @property
    def loss(self):
        return self.criterion_.__self__


def why_stopped(callback: Callback) -> str | None:
    """Say why a callback has ended training; None if it has not."""
    if isinstance(callback, EarlyStopping) and callback.misses_ == callback.patience:
        return "no change"
    if isinstance(callback, Deadline) and callback.passed_:
        return "max_time"
    return None


def check_convergence(
    numbers: Iterable[Tensor],
    learning_rate_init: float,
    weight_decay: float,
    cause: Exception | None = None,
) -> None:
    """Raise a ValueError unless all numbers that training led to are finite."""
    if not all(each.isfinite().all() for each in numbers):
        raise ValueError(
            f"training diverged with learning_rate_init={learning_rate_init} and "
            f"weight_decay={weight_decay}: its loss is no longer finite; try smaller ones"
        ) from cause


def _learned_numbers(network: NeighborNetwork) -> Iterator[Tensor]:
    """Parameters, and what the head divides by, whose logarithm is one."""
    yield from network.parameters()
    temperature = torch.as_tensor(getattr(network.head, "temperature", 1.0))
    yield torch.stack([temperature, 1 / temperature])


@contextmanager
def _divergence_named(
    network: NeighborNetwork, X: Tensor | Rows, learning_rate_init: float, weight_decay: float
) -> Iterator[None]:
    """Raise the error of a training that diverged in place of any that its numbers lead to."""
    try:
        yield
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        embedded = [network.embed(X)] if isinstance(X, Tensor) else []
        numbers = [*_learned_numbers(network), *embedded]
        check_convergence(numbers, learning_rate_init, weight_decay, error)
        raise


def train_network(
    network: NeighborNetwork,
    train: tuple[Tensor | Rows, *tuple[Tensor, ...]],
    valid: tuple[Tensor | Rows, *tuple[Tensor, ...]] | None,
    groups: Tensor | None = None,
    *,
    loss: type[nn.Module] = nn.MSELoss,
    neighbor_pool: str,
    pool_size: int,
    batch_size: int | str,
    learning_rate_init: float,
    weight_decay: float,
    max_iter: int,
    n_iter_no_change: int,
    verbose: int,
    seed: int,
    device: torch.device,
    deadline: float = math.inf,
    report: ReportEpochs | None = None,
    extractor_learning_rate: float | None = None,
    micro_batch_size: int | None = None,
    callbacks: Sequence = (),
    accelerator: Callable | None = None,
    refine_on_training: bool = False,
    average: bool = False,
    max_accumulation: int = 1,
    threshold_mode: str = "rel",
    turns: Callback | None = None,
) -> tuple[NeighborNetwork, list[dict]]:
    """Train a network in place, and restore the weights of its best epoch.

    The best epoch is the one of the lowest validation loss or, without validation rows, of
    the lowest training loss. Parameters are those of the estimators.

    Parameters
    ----------
    network : NeighborNetwork
        The network, trained in place and moved to `device`.
    train, valid : tuple of (n, n_features) and (n,) or (n, n_outputs), and perhaps of (n,)
        Features, or Rows, and encoded targets; and, of rows that count differently, the
        logarithms of what they weigh.
    groups : int Tensor of shape (n,), optional
        Groups of the training rows.
    loss : type of Module, default=MSELoss
        What to minimise, of predictions and encoded targets. It takes ``reduction='none'`` if
        rows count differently.
    seed : int
        Seed of the batches' order and of the pools' draws.
    deadline : float, default=inf
        When training should end, as :func:`time.time` tells it: the first epoch that ends later
        is the last one.
    report : ReportEpochs, optional
        Says how far training is. `verbose` is what skorch prints.
    refine_on_training : bool, default=False
        Whether training rows, each without itself, say what fits the whole bank where there
        are no validation rows: a space with few parameters does not know them by heart.
    average : bool, default=False
        Whether epochs are judged and kept by the running average of the steps' weights.
    max_accumulation : int, default=1
        Most batches whose gradients a step adds up, while few of their rows teach anything
        (:class:`AdaptiveAccumulation`): a larger number than 1 needs a loss with a method
        `n_ignored`. How many steps an epoch took is ``train_batch_count`` in the history.

    threshold_mode : {'rel', 'abs'}, default='rel'
        Whether an epoch counts as better if the loss falls by a ten thousandth of itself, or by
        a ten thousandth.
    turns : Callback, optional
        Takes turns with other trainings (:mod:`~nona_sklearn._training.parallel`).

    Returns
    -------
    network : NeighborNetwork
        The network given: a copy of it, if this function runs in another process.
    history : list of dict
        skorch's history, a dict for each epoch, without its per-batch records. The last one has
        ``stopped``, why there are no more: 'no change', 'max_iter' or 'max_time'; the one
        whose weights were restored ``kept``, True.

    Raises
    ------
    ValueError
        If training diverges, so that a weight is not finite.
    KeyboardInterrupt
        If the user interrupts it.
    """
    X, X_valid = train[0].to(device), None if valid is None else valid[0].to(device)
    y, *prior = (part.to(device) for part in train[1:])
    weights = [normalize_mean(each).float() for each in prior]
    truth_valid: list[Tensor] = []
    if valid is not None:
        y_valid, *prior_valid = (part.to(device) for part in valid[1:])
        truth_valid = [y_valid, *(normalize_mean(each).float() for each in prior_valid)]
    generator = Generator().manual_seed(seed)
    groups = None if groups is None else groups.to(device)
    pool = NEIGHBOR_POOLS[neighbor_pool](X, y, int(pool_size), generator, groups, *prior)
    criterion = partial(WeightedLoss, loss) if weights else loss
    net_class, options = _net_options(accelerator, verbose, device)
    extracts = extractor_learning_rate is not None
    batch_size = resolve_batch_size(batch_size, len(X), extracts)
    if max_accumulation > 1:
        options["pace"] = options["iterator_train__pace"] = AdaptiveAccumulation(max_accumulation)
        # A step's batches are as large as without: they go through the network one by one.
        share = math.ceil(batch_size / options.get("iterator_train__n_processes", 1))
        micro_batch_size = min(micro_batch_size or share, share)
    # The head's few scalars have a meaning of their own; decay would pull them to it.
    param_groups: list[tuple[str, dict]] = [("head.*", {"weight_decay": 0.0})]
    if extractor_learning_rate is not None:
        param_groups.append(("embedding.extractor.*", {"lr": extractor_learning_rate}))
    net = net_class(
        network,
        pool=pool,
        X_valid=X_valid,
        weights=weights,
        weights_valid=truth_valid[1:],
        micro_batch_size=micro_batch_size,
        criterion=criterion,
        optimizer=QuietAdamW,
        optimizer__fused=True,
        optimizer__lr=learning_rate_init,
        optimizer__weight_decay=weight_decay,
        optimizer__param_groups=param_groups,
        max_epochs=max_iter,
        batch_size=batch_size,
        iterator_train=RowBatches,
        iterator_train__generator=generator,
        iterator_train__n_rows=None if extracts else EPOCH_ROWS,
        iterator_valid=WholeBatch,
        train_split=predefined_split(_numbered(truth_valid[0])) if truth_valid else None,
        callbacks=[
            *([WeightAveraging()] if average else []),
            GradientNormClipping(MAX_GRADIENT_NORM),
            *([] if report is None else [report]),
            EarlyStopping(
                monitor="train_loss" if valid is None else "valid_loss",
                patience=n_iter_no_change,
                load_best=True,
                threshold=LEAST_GAIN,
                threshold_mode=threshold_mode,
            ),
            *copy.deepcopy(list(callbacks)),
            *([turns] if turns is not None else []),
            Deadline(deadline),  # behind all others, which see the last epoch, too
        ],
        verbose=verbose,
        **options,
    )
    network.train()  # once: validation puts it back
    with _divergence_named(network, X, learning_rate_init, weight_decay):
        net.fit(_numbered(y), None)
        if net.interrupted_ is not None:
            raise net.interrupted_
        network.zero_grad(set_to_none=True)
        check_convergence(_learned_numbers(network), learning_rate_init, weight_decay)
        if isinstance(network.head, NONAHead):
            refined = X_valid is not None or (refine_on_training and len(X) > pool_size)
            if network.head.n_adjusted or refined:
                evaluation, *truth = _ask_whole_bank(
                    *(network, pool, [y, *weights], X_valid, truth_valid, generator)
                )
            if network.head.n_adjusted:
                fit_trust_radius(evaluation)
            if refined:
                refine(evaluation, criterion().eval(), *truth)
    history = [{k: v for k, v in epoch.items() if k != "batches"} for epoch in net.history]
    stopping = next(c for _, c in net.callbacks_ if isinstance(c, EarlyStopping))
    history[stopping.best_epoch_ - 1]["kept"] = True  # epochs count from 1
    history[-1]["stopped"] = net.stopped_
    return network, history


def _ask_whole_bank(
    network: NeighborNetwork,
    pool: DatasetPool,
    truth: Sequence[Tensor],
    X_valid: Tensor | Rows | None,
    truth_valid: Sequence[Tensor],
    generator: Generator,
) -> tuple[Evaluation, *tuple[Tensor, ...]]:
    """Ask all training rows about some validation rows, or about their own, without themselves.

    Validation rows come shuffled. Returns the question, and what the loss takes of its rows:
    targets, and how much they count.
    """
    neighbors = Neighbors(network.embed(pool.X), pool.values, pool.log_prior)
    n_queries = how_many(len(neighbors), held_out=X_valid is not None)
    if X_valid is not None:
        query = network.embed(X_valid[:n_queries])
        some_valid = (each[:n_queries] for each in truth_valid)
        return Evaluation(network.head, neighbors, query), *some_valid
    some = torch.randperm(len(neighbors), generator=generator)[:n_queries]
    some = some.to(pool.labels.device)
    itself = Exclusion(pool.labels[some], pool.labels)
    evaluation = Evaluation(network.head, neighbors, neighbors.embeddings[some], itself)
    return evaluation, *(each[some] for each in truth)


def _net_options(
    accelerator: Callable | None, verbose: int, device: torch.device
) -> tuple[type[NONANet], dict]:
    """Which net trains, and what it needs to know of its devices."""
    if accelerator is None:
        return NONANet, {"device": device}
    made = accelerator()
    return AcceleratedNet, {
        "device": None,
        "accelerator": made,
        "callbacks__print_log__sink": made.print if verbose else _print_nothing,
        "iterator_train__process": made.process_index,
        "iterator_train__n_processes": made.num_processes,
    }


@torch.no_grad()
def predict_roughly(network: NeighborNetwork, neighbors: Neighbors, query: Tensor) -> Tensor:
    """Predict embedded queries, at once and to training's precision: fast."""
    network.head.train()
    blocks = query.split(max(1, BLOCK_ENTRIES // len(neighbors)))
    return torch.cat([Evaluation(network.head, neighbors, block).attend() for block in blocks])


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


def count_parts(n_rows: int, micro_batch_size: int | None) -> int:
    """Into how many parts a batch is taken, none of a single row unless all are asked to be."""
    if micro_batch_size is None:
        return 1
    n_parts = math.ceil(n_rows / micro_batch_size)
    return n_parts if micro_batch_size == 1 else max(1, min(n_parts, n_rows // 2))


def count_networks(n: int) -> int:
    """How many networks: 5 for few rows, whose fits differ most and cost least, or 3."""
    return min(max(10_000 // n, 3), 5)


def resolve_batch_size(batch_size: int | str, n: int, extracts: bool = False) -> int:
    """Turn 'auto' into the power of two that makes about so many steps an epoch, within bounds."""
    if batch_size != "auto":
        return int(batch_size)
    steps, largest = (EXTRACTOR_STEPS, MAX_EXTRACTOR_BATCH) if extracts else (STEPS, MAX_BATCH)
    return min(max(2 ** round(math.log2(n / steps)), MIN_BATCH), largest)


def _print_nothing(*args, **kwargs):
    pass


def _numbered(y: Tensor) -> TensorDataset:
    """All that skorch sees of a data set: row numbers, and targets."""
    return TensorDataset(torch.arange(len(y), device=y.device), y)
