"""Pools: which rows are the neighbours in a training step, and how they are embedded.

A batch is a tensor of the queries' indices, by which each query, or its group, is excluded from
its own neighbours.
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
    """Neighbours of a step: its batch and random rows beside it, embedded anew with gradient."""

    X: Tensor | Rows  # the training rows, (n, n_features)
    values: Tensor  # which predictions average, (n,) or (n, n_outputs)
    size: int  # number of neighbours in each step; all rows, if there are fewer
    generator: Generator
    groups: Tensor | None = None  # (n,), which are not each other's neighbours; None: single rows
    log_prior: Tensor | None = None  # (n,), logarithm of prior weights; None: equal ones
    times: Tensor | None = None  # (n,)
    window: float = 0.0  # a row's neighbours in training are farther from it in time

    def __post_init__(self) -> None:
        n, device = len(self.X), self.values.device
        self.labels = torch.arange(n, device=device) if self.groups is None else self.groups
        self.is_query = torch.zeros(n, dtype=torch.bool, device=device)
        self.n_drawn = n  # of the shuffled rows: all, so that the first draw shuffles

    def evaluate(self, network: NeighborNetwork, queries: Tensor) -> Evaluation:
        """Evaluate the network in training at a step's queries, (q,), given by their indices."""
        rows = torch.cat([queries, self.draw(queries)])
        query, embeddings = self.embed(network, queries, rows)
        neighbors = self._as_neighbors(embeddings.float(), rows)
        exclusion = self.excluded_in_training(queries, rows)
        return Evaluation(network.head, neighbors, query.float(), exclusion)

    def draw(self, queries: Tensor) -> Tensor:
        """Draw rows that are not among `queries`, to make `size` rows with them.

        Draws walk through the shuffled rows and shuffle anew at their end, so that the cost of a
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
        """Embed queries, (q, d), and all rows of a step, (n, d), of which they are the first."""
        embeddings = network.embedding(self.X[rows])
        return embeddings[: len(queries)], embeddings

    def _as_neighbors(self, embeddings: Tensor, rows: Tensor | slice) -> Neighbors:
        """Embedded rows as neighbours, with their values and prior weights."""
        prior = None if self.log_prior is None else self.log_prior[rows]
        return Neighbors(embeddings, self.values[rows], prior)

    def neighbors(self, network: NeighborNetwork) -> Neighbors:
        """The rows that validation is predicted from: the first `size`, since rows are shuffled.

        They are as many as in a training step: with all rows, validation would soon cost more
        than training does.
        """
        return self._as_neighbors(network.embed(self.X[: self.size]), slice(self.size))

    def excluded_in_training(self, queries: Tensor, rows: Tensor | slice) -> Exclusion:
        """Exclude each query itself, or its group, and what is near to it in time."""
        labels = self.labels[queries], self.labels[rows]
        if self.times is None:
            return Exclusion(*labels)
        times = self.times[queries]
        return Exclusion(*labels, times - self.window, self.times[rows], times + self.window)

    def excluded_in_validation(self, valid: Sample, rows: slice) -> Exclusion | None:
        """Exclude, for validation rows, their group and what is not earlier; None: nothing."""
        if valid.times is None or self.times is None:  # whole groups are set aside
            return None
        if valid.groups is None or self.groups is None:
            return Exclusion(limits=valid.times, times=self.times[rows])
        return Exclusion(valid.groups, self.groups[rows], valid.times, self.times[rows])


class BatchPool(DatasetPool):
    """Neighbours of a step: the batch itself, as in the NONA paper."""

    def draw(self, queries: Tensor) -> Tensor:
        """Draw nothing."""
        return queries[:0]


class MemoryPool(DatasetPool):
    """Neighbours of a step: the stored embeddings of random rows, without gradient.

    A row's embedding is refreshed when the row is a query, so that a step embeds one batch,
    whatever the pool's size: for expensive embeddings. Validation refreshes all of them.
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


#: Every pool by the name that the estimators' parameter `neighbor_pool` accepts.
NEIGHBOR_POOLS: dict[str, type[DatasetPool]] = {
    "dataset": DatasetPool,
    "batch": BatchPool,
    "memory": MemoryPool,
}
