"""Pools, which select and embed the neighbours in a training step.

A batch is a tensor of query indices, which exclude a query, or its group, from its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .._data.rows import Rows
from .._data.sample import Sample
from .._inference.evaluation import Evaluation
from .._inference.neighbors import Exclusion, Neighbors
from .._network.network import NeighborNetwork


@dataclass(eq=False)
class DatasetPool:
    """Take the batch and further random rows as neighbours, embedded anew with gradient."""

    X: Tensor | Rows  # the training rows, (n, n_features)
    values: Tensor  # values that predictions average, (n,) or (n, n_outputs)
    size: int  # number of neighbours in a step; all rows, if there are fewer
    generator: Generator
    groups: Tensor | None = None  # (n,), codes; a group has no neighbours in itself; None: rows
    log_prior: Tensor | None = None  # (n,), logarithms of prior weights; None: equal weights
    times: Tensor | None = None  # (n,)
    window: float = 0.0  # neighbours in training differ in time by more than this

    def __post_init__(self) -> None:
        n, device = len(self.X), self.values.device
        self.labels = torch.arange(n, device=device) if self.groups is None else self.groups
        self.is_query = torch.zeros(n, dtype=torch.bool, device=device)
        self.n_drawn = n  # number of drawn rows; n makes the first draw shuffle

    def evaluate(self, network: NeighborNetwork, queries: Tensor) -> Evaluation:
        """Return the evaluation of the network at queries (q,), given by index."""
        rows = torch.cat([queries, self.draw(queries)])
        query, embeddings = self.embed(network, queries, rows)
        neighbors = self._as_neighbors(embeddings.float(), rows)
        exclusion = self.excluded_in_training(queries, rows)
        return Evaluation(network.head, neighbors, query.float(), exclusion)

    def draw(self, queries: Tensor) -> Tensor:
        """Return drawn rows outside of `queries`, so that both have `size` rows together.

        Draws pass through the shuffled rows, and shuffle anew at the end, so that the cost of a
        step is independent of the number of rows.
        """
        if self.n_drawn + self.size > len(self.X):
            order = torch.randperm(len(self.X), generator=self.generator)
            self.order, self.n_drawn = order.to(self.values.device), 0
        drawn = self.order[self.n_drawn : self.n_drawn + self.size]
        self.n_drawn += self.size
        self.is_query[queries] = True
        beside = drawn[~self.is_query[drawn]]
        self.is_query[queries] = False
        return beside[: max(self.size - len(queries), 0)]

    def embed(
        self, network: NeighborNetwork, queries: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return embeddings of the queries, (q, d), and of all rows, (n, d), queries first."""
        embeddings = network.embedding(self.X[rows])
        return embeddings[: len(queries)], embeddings

    def _as_neighbors(self, embeddings: Tensor, rows: Tensor | slice) -> Neighbors:
        """Return embedded rows as neighbours, with values and prior weights."""
        prior = None if self.log_prior is None else self.log_prior[rows]
        return Neighbors(embeddings, self.values[rows], prior)

    def neighbors(self, network: NeighborNetwork) -> Neighbors:
        """Return the neighbours of validation rows, the first `size` of the shuffled rows.

        With all rows as neighbours, validation would soon cost more than training.
        """
        return self._as_neighbors(network.embed(self.X[: self.size]), slice(self.size))

    def excluded_in_training(self, queries: Tensor, rows: Tensor | slice) -> Exclusion:
        """Return the exclusion of a query's row or group, and of rows that are near in time."""
        labels = self.labels[queries], self.labels[rows]
        if self.times is None:
            return Exclusion(*labels)
        times = self.times[queries]
        return Exclusion(*labels, times - self.window, self.times[rows], times + self.window)

    def excluded_in_validation(self, valid: Sample, rows: slice) -> Exclusion | None:
        """Return the exclusion of groups and later rows for validation rows, or None."""
        if valid.times is None or self.times is None:  # validation takes whole groups
            return None
        if valid.groups is None or self.groups is None:
            return Exclusion(limits=valid.times, times=self.times[rows])
        return Exclusion(valid.groups, self.groups[rows], valid.times, self.times[rows])


class BatchPool(DatasetPool):
    """Take the batch as neighbours, as in the NONA paper."""

    def draw(self, queries: Tensor) -> Tensor:
        """Return no rows."""
        return queries[:0]


class MemoryPool(DatasetPool):
    """Take stored embeddings of random rows as neighbours, without gradient.

    A step embeds and stores the queries only, which suits expensive embeddings. Validation
    refreshes all stored embeddings.
    """

    memory: Tensor | None = None  # (n, d)

    def embed(
        self, network: NeighborNetwork, queries: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.memory is None:
            self.memory = network.embed(self.X)
        embeddings = network.embedding(self.X[queries])
        remembered = self.memory[rows]
        self.memory[queries] = embeddings.detach().to(self.memory.dtype)
        return embeddings, remembered

    def neighbors(self, network: NeighborNetwork) -> Neighbors:
        self.memory = network.embed(self.X)
        return self._as_neighbors(self.memory[: self.size], slice(self.size))


#: Pools by the names that the parameter `neighbor_pool` accepts.
NEIGHBOR_POOLS: dict[str, type[DatasetPool]] = {
    "dataset": DatasetPool,
    "batch": BatchPool,
    "memory": MemoryPool,
}
