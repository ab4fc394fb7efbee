"""Training: a skorch net, the neighbours of each step, and batches sliced on the device.

skorch owns the loop, the history, early stopping, clipping and progress. What is ours is that
a batch is a tensor of row numbers: they say which rows are queries, and so which neighbours a
query must not meet.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence

import skorch
import torch
from skorch.callbacks import EarlyStopping, GradientNormClipping
from skorch.helper import predefined_split
from skorch.hf import AccelerateMixin
from torch import Generator, Tensor, nn
from torch.utils.data import TensorDataset

from ._bank import NeighborBank
from ._inputs import Rows
from ._network import NeighborNetwork

MAX_GRADIENT_NORM = 1.0
TEMPERATURE_MULTIPLES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
BLOCK_ENTRIES = 2**19  # query-neighbour pairs that validation weighs at a time: 2 MB
REFINE_ENTRIES = 2**27  # pairs that a choice of temperature weighs, for each candidate
MIN_BATCH, MAX_BATCH = 32, 256  # bounds of batch_size='auto'


class DatasetPool:
    """Neighbours of a step: its batch and random other rows, embedded anew with gradient.

    Parameters
    ----------
    X : Tensor of shape (n, n_features), or Rows
        The training rows.
    y : Tensor of shape (n,) or (n, n_outputs)
        Their targets.
    size : int
        Number of rows to draw for each step; all rows, if there are fewer.
    generator : torch.Generator
        Source of the draws.
    groups : int Tensor of shape (n,), optional
        Rows of a group are not each other's neighbours. None: each row by itself.
    """

    def __init__(
        self,
        X: Tensor | Rows,
        y: Tensor,
        size: int,
        generator: Generator,
        groups: Tensor | None = None,
    ):
        self.X = X
        self.y = y
        self.size = size
        self.generator = generator
        self.groups = groups
        self.is_query = torch.zeros(len(X), dtype=torch.bool, device=y.device)
        self.drawn = len(X)  # rows of `order` that were drawn: all, so that it is shuffled first

    def draw(self, queries: Tensor) -> Tensor:
        """Draw rows that are not among `queries`, to make `size` rows with them.

        Draws walk through the shuffled rows and shuffle anew at their end, so that a step
        costs the same however many rows there are.
        """
        if self.drawn + self.size > len(self.X):
            order = torch.randperm(len(self.X), generator=self.generator)
            self.order, self.drawn = order.to(self.y.device), 0
        window = self.order[self.drawn : self.drawn + self.size]
        self.drawn += self.size
        self.is_query[queries] = True
        others = window[~self.is_query[window]]
        self.is_query[queries] = False
        return others[: max(self.size - len(queries), 0)]

    def embed(self, network: NeighborNetwork, queries: Tensor) -> tuple[Tensor, ...]:
        """Embed a step's queries and neighbours, the first of which are the queries themselves.

        Parameters
        ----------
        network : NeighborNetwork
            The network in training.
        queries : int Tensor of shape (q,)
            Row numbers of the queries.

        Returns
        -------
        tuple of Tensor of shape (q, d), (n, d), (n,) or (n, n_outputs), and (q, n)
            Embedded queries, embedded neighbours, the neighbours' targets, and where a query
            would meet itself or its group.
        """
        rows = torch.cat([queries, self.draw(queries)])
        embeddings = network.embedding(self.X[rows])
        return embeddings[: len(queries)], embeddings, self.y[rows], self.excluded(queries, rows)

    def excluded(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Mark each query, or its group, among neighbours that begin with the queries, (q, n)."""
        if self.groups is not None:
            return self.groups[queries, None] == self.groups[rows]
        return torch.eye(len(queries), len(rows), dtype=torch.bool, device=self.y.device)

    def bank(self, network: NeighborNetwork) -> NeighborBank:
        """The rows that validation is predicted from: the same `size` each time, shuffled.

        As many as a training step sees: against all rows, validation would soon cost more than
        training does.
        """
        return NeighborBank(network.embed(self.X[: self.size]), self.y[: self.size])


class BatchPool(DatasetPool):
    """Neighbours of a step: the batch itself, as in the NONA paper."""

    def draw(self, queries):
        """Draw nothing."""
        return queries[:0]


class MemoryPool(DatasetPool):
    """Neighbours of a step: random rows' last known embeddings, without gradient.

    A row's embedding is refreshed when the row is a query, so a step costs one batch,
    whatever the pool's size: for embeddings that are costly to compute. Validation refreshes
    all of them.
    """

    memory: Tensor | None = None  # (n, d)

    def embed(self, network, queries):
        if self.memory is None:
            self.memory = network.embed(self.X)
        rows = torch.cat([queries, self.draw(queries)])
        embeddings = network.embedding(self.X[queries])
        remembered = self.memory[rows]
        self.memory[queries] = embeddings.detach().to(self.memory.dtype)
        return embeddings, remembered, self.y[rows], self.excluded(queries, rows)

    def bank(self, network):
        self.memory = network.embed(self.X)
        return NeighborBank(self.memory[: self.size], self.y[: self.size])


#: Every pool by the name that the estimators' parameter `neighbor_pool` accepts.
NEIGHBOR_POOLS = {"dataset": DatasetPool, "batch": BatchPool, "memory": MemoryPool}


class RowBatches:
    """Iterate over shuffled batches of ``(row numbers, targets)``.

    Tensors are sliced where they lie; skorch's default path takes every row out of the dataset
    by itself and collates them again. A single row left at the end joins the batch before it,
    since in a batch by itself it might have no neighbour. Of several processes, each takes an
    equal share of every batch; what is left over has its turn in another epoch.
    """

    def __init__(
        self,
        dataset: TensorDataset,
        batch_size: int,
        generator: Generator,
        process: int = 0,
        n_processes: int = 1,
    ):
        self.y = dataset.tensors[1]
        self.batch_size = batch_size
        self.generator = generator
        self.process = process
        self.n_processes = n_processes

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.y), generator=self.generator).to(self.y.device)
        batches = list(order.split(self.batch_size))
        if len(batches) > 1 and len(batches[-1]) < max(2, self.n_processes):
            batches[-2:] = [torch.cat(batches[-2:])]
        for batch in batches:
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
    micro_batch_size : int, optional
        Most queries to take through the network at a time: gradients of a batch add up.
    **kwargs
        Parameters of :class:`skorch.NeuralNet`.
    """

    def __init__(self, module, pool, X_valid=None, micro_batch_size=None, **kwargs):
        super().__init__(module, **kwargs)
        self.pool = pool
        self.X_valid = X_valid
        self.micro_batch_size = micro_batch_size

    def infer(self, rows, **fit_params):
        return self.module_(rows, self.pool)

    def train_step_single(self, batch, **fit_params):
        """Add up the gradients of a batch's parts, each weighing as many rows as it has."""
        self._set_training(True)
        rows, y = batch
        n_parts = math.ceil(len(rows) / (self.micro_batch_size or len(rows)))
        parts = []
        for part, truth in zip(rows.tensor_split(n_parts), y.tensor_split(n_parts), strict=True):
            y_pred = self.infer(part)
            loss = self.get_loss(y_pred, truth, training=True) * (len(part) / len(rows))
            self.backward(loss)
            parts.append((loss.detach(), y_pred.detach()))
        losses, predictions = zip(*parts, strict=True)
        return {"loss": sum(losses), "y_pred": torch.cat(predictions)}

    def backward(self, loss):
        """Add a loss's gradients to those of the parameters."""
        loss.backward()

    def validation_step(self, batch, **fit_params):
        """Score the validation rows against the pool's bank."""
        y = batch[1]
        network = self.network
        y_pred = predict_roughly(network, self.pool.bank(network), network.embed(self.X_valid))
        return {"loss": self.get_loss(y_pred, y, training=False), "y_pred": y_pred}

    @property
    def network(self):
        """The network itself, without what may be wrapped around it."""
        return self.module_


class AcceleratedNet(AccelerateMixin, NONANet):
    """The same on the devices of an :class:`accelerate.Accelerator`.

    Each process takes its share of every batch, and draws the same further neighbours.
    """

    def initialize_criterion(self):
        """Take the function: skorch would wrap a module without weights, and fail."""
        self.criterion_ = nn.functional.mse_loss
        return self

    def train_step_single(self, batch, **fit_params):
        step = NONANet.train_step_single(self, batch, **fit_params)
        # The same on all processes, so that all of them stop at the same epoch.
        return step | {"loss": self.accelerator.reduce(step["loss"], reduction="mean")}

    def backward(self, loss):
        self.accelerator.backward(loss)

    @property
    def network(self):
        return self.accelerator.unwrap_model(self.module_)


def train_network(
    network: NeighborNetwork,
    train: tuple[Tensor | Rows, Tensor],
    valid: tuple[Tensor | Rows, Tensor] | None,
    groups: Tensor | None = None,
    *,
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
    extractor_learning_rate: float | None = None,
    micro_batch_size: int | None = None,
    callbacks: Sequence = (),
    accelerator: Callable | None = None,
) -> tuple[NeighborNetwork, list[dict]]:
    """Train a network in place, and restore the weights of its best epoch.

    The best epoch is the one of the lowest validation loss or, without validation rows, of
    the lowest training loss. Parameters are those of the estimators.

    Parameters
    ----------
    network : NeighborNetwork
        The network, trained in place and moved to `device`.
    train, valid : tuple of (n, n_features) and (n,) or (n, n_outputs)
        Features, or Rows, and standardised targets.
    groups : int Tensor of shape (n,), optional
        Groups of the training rows.
    seed : int
        Seed of the batches' order and of the pools' draws.

    Returns
    -------
    network : NeighborNetwork
        The network given: a copy of it, if this function runs in another process.
    history : list of dict
        skorch's history, a dict for each epoch, without its per-batch records.

    Raises
    ------
    ValueError
        If training diverges, so that a weight is not finite.
    """
    X, y = (rows.to(device) for rows in train)
    groups = None if groups is None else groups.to(device)
    X_valid, y_valid = (None, None) if valid is None else (rows.to(device) for rows in valid)
    generator = Generator().manual_seed(seed)
    net_class, options = NONANet, {"device": device}
    if accelerator is not None:
        accelerator = accelerator()
        options = {
            "device": None,
            "accelerator": accelerator,
            "callbacks__print_log__sink": accelerator.print if verbose else _print_nothing,
            "iterator_train__process": accelerator.process_index,
            "iterator_train__n_processes": accelerator.num_processes,
        }
        net_class = AcceleratedNet
    # The head's few scalars have a meaning of their own; decay would pull them to it.
    param_groups = [("head.*", {"weight_decay": 0.0})]
    if extractor_learning_rate is not None:
        param_groups.append(("embedding.extractor.*", {"lr": extractor_learning_rate}))
    net = net_class(
        network,
        pool=NEIGHBOR_POOLS[neighbor_pool](X, y, int(pool_size), generator, groups),
        X_valid=X_valid,
        micro_batch_size=micro_batch_size,
        criterion=nn.MSELoss,
        optimizer=torch.optim.AdamW,
        optimizer__fused=True,
        optimizer__lr=learning_rate_init,
        optimizer__weight_decay=weight_decay,
        optimizer__param_groups=param_groups,
        max_epochs=max_iter,
        batch_size=resolve_batch_size(batch_size, len(X)),
        iterator_train=RowBatches,
        iterator_train__generator=generator,
        iterator_valid=WholeBatch,
        train_split=None if valid is None else predefined_split(_numbered(y_valid)),
        callbacks=[
            GradientNormClipping(MAX_GRADIENT_NORM),
            EarlyStopping(
                monitor="train_loss" if valid is None else "valid_loss",
                patience=n_iter_no_change,
                load_best=True,
            ),
            *copy.deepcopy(list(callbacks)),
        ],
        verbose=verbose,
        **options,
    )
    net.fit(_numbered(y), None)
    network.zero_grad(set_to_none=True)
    if not all(weight.isfinite().all() for weight in network.parameters()):
        raise ValueError(
            f"training diverged with learning_rate_init={learning_rate_init}: "
            "its loss is no longer finite; try a smaller learning_rate_init"
        )
    if valid is not None and hasattr(network.head, "log_temperature"):
        refine_temperature(network, NeighborBank(network.embed(X), y), X_valid, y_valid)
    history = [{k: v for k, v in epoch.items() if k != "batches"} for epoch in net.history]
    return network, history


@torch.no_grad()
def predict_roughly(network: NeighborNetwork, bank: NeighborBank, query: Tensor) -> Tensor:
    """Predict embedded queries as the bank does, but fast, to training's precision."""
    network.head.train()
    blocks = query.split(max(1, BLOCK_ENTRIES // len(bank)))
    return torch.cat([network.head(block, bank.embeddings, bank.targets) for block in blocks])


@torch.no_grad()
def refine_temperature(network: NeighborNetwork, bank: NeighborBank, X: Tensor, y: Tensor) -> None:
    """Choose the multiple of the temperature that predicts validation rows best.

    It was learned on pools, whose rows lie farther apart than those of the whole bank. Of many
    rows, some tell enough; they come shuffled.
    """
    enough = max(1, REFINE_ENTRIES // len(bank))
    learned, query, y = network.head.log_temperature.clone(), network.embed(X[:enough]), y[:enough]
    losses = []
    for multiple in TEMPERATURE_MULTIPLES:
        network.head.log_temperature.copy_(learned + math.log(multiple))
        losses.append((bank.predict(network.head, query) - y).square().mean())
    best = TEMPERATURE_MULTIPLES[int(torch.stack(losses).argmin())]
    network.head.log_temperature.copy_(learned + math.log(best))


def resolve_n_estimators(n_estimators: int | str, n: int) -> int:
    """Turn 'auto' into 5 networks for few rows, whose fits differ most and cost least, or 3."""
    if n_estimators != "auto":
        return int(n_estimators)
    return min(max(10_000 // n, 3), 5)


def resolve_batch_size(batch_size: int | str, n: int) -> int:
    """Turn 'auto' into the power of two that makes about 16 steps an epoch, within bounds."""
    if batch_size != "auto":
        return int(batch_size)
    return min(max(2 ** round(math.log2(n / 16)), MIN_BATCH), MAX_BATCH)


def _print_nothing(*args, **kwargs):
    pass


def _numbered(y: Tensor) -> TensorDataset:
    """All that skorch sees of a data set: row numbers, and targets."""
    return TensorDataset(torch.arange(len(y), device=y.device), y)
