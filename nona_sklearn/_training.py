"""Training: a skorch net, the neighbours of each step, and batches sliced on the device.

skorch owns the loop, the history, early stopping, clipping and progress. What is ours is that
a batch is a tensor of row numbers: they say which rows are queries, and so which neighbours a
query must not meet.
"""

import math
from collections.abc import Iterator

import skorch
import torch
from skorch.callbacks import EarlyStopping, GradientNormClipping
from skorch.helper import predefined_split
from torch import Generator, Tensor, nn
from torch.utils.data import TensorDataset

from ._bank import NeighborBank
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
    X : Tensor of shape (n, n_features)
        Features of the training rows.
    size : int
        Number of rows to draw for each step; all rows, if there are fewer.
    generator : torch.Generator
        Source of the draws.
    """

    def __init__(self, X: Tensor, size: int, generator: Generator):
        self.X = X
        self.size = size
        self.generator = generator
        self.is_query = torch.zeros(len(X), dtype=torch.bool, device=X.device)
        self.drawn = len(X)  # rows of `order` that were drawn: all, so that it is shuffled first

    def draw(self, queries: Tensor) -> Tensor:
        """Draw rows that are not among `queries`, to make `size` rows with them.

        Draws walk through the shuffled rows and shuffle anew at their end, so that a step
        costs the same however many rows there are.
        """
        if self.drawn + self.size > len(self.X):
            order = torch.randperm(len(self.X), generator=self.generator)
            self.order, self.drawn = order.to(self.X.device), 0
        window = self.order[self.drawn : self.drawn + self.size]
        self.drawn += self.size
        self.is_query[queries] = True
        others = window[~self.is_query[window]]
        self.is_query[queries] = False
        return others[: max(self.size - len(queries), 0)]

    def embed(self, network: NeighborNetwork, queries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Embed a step's queries and neighbours, the first of which are the queries themselves.

        Parameters
        ----------
        network : NeighborNetwork
            The network in training.
        queries : int Tensor of shape (q,)
            Row numbers of the queries.

        Returns
        -------
        tuple of Tensor of shape (q, d), (n, d) and (n,)
            Embedded queries, embedded neighbours, and the row numbers of the neighbours.
        """
        neighbors = torch.cat([queries, self.draw(queries)])
        embeddings = network.embedding(self.X[neighbors])
        return embeddings[: len(queries)], embeddings, neighbors


class BatchPool(DatasetPool):
    """Neighbours of a step: the batch itself, as in the NONA paper."""

    def draw(self, queries):
        """Draw nothing."""
        return queries[:0]


class MemoryPool(DatasetPool):
    """Neighbours of a step: random rows' last known embeddings, without gradient.

    A row's embedding is refreshed when the row is a query, so a step costs one batch,
    whatever the pool's size: for embeddings that are costly to compute.
    """

    memory: Tensor | None = None  # (n, d)

    def embed(self, network, queries):
        if self.memory is None:
            self.memory = network.embed(self.X)
        neighbors = torch.cat([queries, self.draw(queries)])
        embeddings = network.embedding(self.X[queries])
        remembered = self.memory[neighbors]
        self.memory[queries] = embeddings.detach()
        return embeddings, remembered, neighbors


#: Every pool by the name that the estimators' parameter `neighbor_pool` accepts.
NEIGHBOR_POOLS = {"dataset": DatasetPool, "batch": BatchPool, "memory": MemoryPool}


class RowBatches:
    """Iterate over shuffled batches of ``(row numbers, targets)``.

    Tensors are sliced where they lie; skorch's default path takes every row out of the dataset
    by itself and collates them again. A single row left at the end joins the batch before it,
    since in a batch by itself it might have no neighbour.
    """

    def __init__(self, dataset: TensorDataset, batch_size: int, generator: Generator):
        self.y = dataset.tensors[1]
        self.batch_size = batch_size
        self.generator = generator

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.y), generator=self.generator).to(self.y.device)
        batches = list(order.split(self.batch_size))
        if len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [torch.cat(batches[-2:])]
        for rows in batches:
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
    targets : Tensor of shape (n,) or (n, n_outputs)
        Targets of the training rows.
    **kwargs
        Parameters of :class:`skorch.NeuralNet`.
    """

    def __init__(self, module, pool, targets, **kwargs):
        super().__init__(module, **kwargs)
        self.pool = pool
        self.targets = targets

    def infer(self, rows, **fit_params):
        query, neighbors, neighbor_rows = self.pool.embed(self.module_, rows)
        itself = torch.eye(len(query), len(neighbors), dtype=torch.bool, device=query.device)
        return self.module_.head(query, neighbors, self.targets[neighbor_rows], itself)

    def validation_step(self, batch, **fit_params):
        """Score the validation rows against the same `pool.size` training rows each time.

        As many as a training step sees: against the whole bank, validation would soon cost
        more than training does. The rows come shuffled.
        """
        X, y = batch
        size = self.pool.size
        bank = NeighborBank(self.module_.embed(self.pool.X[:size]), self.targets[:size])
        y_pred = predict_roughly(self.module_, bank, self.module_.embed(X))
        return {"loss": self.get_loss(y_pred, y, training=False), "y_pred": y_pred}


def train_network(
    network: NeighborNetwork,
    train: TensorDataset,
    valid: TensorDataset | None,
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
) -> tuple[NeighborNetwork, list[dict]]:
    """Train a network in place, and restore the weights of its best epoch.

    The best epoch is the one of the lowest validation loss or, without validation rows, of
    the lowest training loss. Parameters are those of the estimators.

    Parameters
    ----------
    network : NeighborNetwork
        The network, trained in place and moved to `device`.
    train, valid : TensorDataset of (n, n_features) and (n,) or (n, n_outputs)
        Features and standardised targets.
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
    X, y = (tensor.to(device) for tensor in train.tensors)
    generator = Generator().manual_seed(seed)
    batch_size = resolve_batch_size(batch_size, len(X))
    net = NONANet(
        network,
        pool=NEIGHBOR_POOLS[neighbor_pool](X, int(pool_size), generator),
        targets=y,
        criterion=nn.MSELoss,
        optimizer=torch.optim.AdamW,
        optimizer__fused=True,
        optimizer__lr=learning_rate_init,
        optimizer__weight_decay=weight_decay,
        # The head's few scalars have a meaning of their own; decay would pull them to it.
        optimizer__param_groups=[("head.*", {"weight_decay": 0.0})],
        max_epochs=max_iter,
        batch_size=batch_size,
        iterator_train=RowBatches,
        iterator_train__generator=generator,
        iterator_valid=WholeBatch,
        train_split=None if valid is None else predefined_split(_to(valid, device)),
        callbacks=[
            GradientNormClipping(MAX_GRADIENT_NORM),
            EarlyStopping(
                monitor="train_loss" if valid is None else "valid_loss",
                patience=n_iter_no_change,
                load_best=True,
            ),
        ],
        verbose=verbose,
        device=device,
    )
    net.fit(TensorDataset(X, y), None)
    network.zero_grad(set_to_none=True)
    if not all(weight.isfinite().all() for weight in network.parameters()):
        raise ValueError(
            f"training diverged with learning_rate_init={learning_rate_init}: "
            "its loss is no longer finite; try a smaller learning_rate_init"
        )
    if valid is not None and hasattr(network.head, "log_temperature"):
        refine_temperature(network, NeighborBank(network.embed(X), y), *_to(valid, device).tensors)
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


def _to(dataset: TensorDataset, device: torch.device) -> TensorDataset:
    return TensorDataset(*(tensor.to(device) for tensor in dataset.tensors))
