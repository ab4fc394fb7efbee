"""Pools: who the neighbours of a training step are, and how they are embedded.

A batch is a tensor of row numbers: they say which rows are queries, and so which neighbours a
query must not meet.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from .._data.rows import Rows
from .._inference.evaluation import Evaluation
from .._inference.neighbors import Exclusion, Neighbors
from .._network.network import NeighborNetwork


class DatasetPool:
    """Neighbours of a step: its batch and random other rows, embedded anew with gradient.

    Parameters
    ----------
    X : Tensor of shape (n, n_features), or Rows
        The training rows.
    values : Tensor of shape (n,) or (n, n_outputs)
        What they bring.
    size : int
        Number of rows to draw for each step; all rows, if there are fewer.
    generator : torch.Generator
        Source of the draws.
    groups : int Tensor of shape (n,), optional
        Rows of a group are not each other's neighbours. None: each row by itself.
    log_prior : Tensor of shape (n,), optional
        Logarithm of what each row weighs beforehand; None: all the same.
    """

    def __init__(
        self,
        X: Tensor | Rows,
        values: Tensor,
        size: int,
        generator: Generator,
        groups: Tensor | None = None,
        log_prior: Tensor | None = None,
    ):
        self.X = X
        self.values = values
        self.log_prior = log_prior
        self.size = size
        self.generator = generator
        device = values.device
        self.labels = torch.arange(len(X), device=device) if groups is None else groups
        self.is_query = torch.zeros(len(X), dtype=torch.bool, device=device)
        self.drawn = len(X)  # rows of `order` that were drawn: all, so that it is shuffled first

    def draw(self, queries: Tensor) -> Tensor:
        """Draw rows that are not among `queries`, to make `size` rows with them.

        Draws walk through the shuffled rows and shuffle anew at their end, so that a step
        costs the same however many rows there are.
        """
        if self.drawn + self.size > len(self.X):
            order = torch.randperm(len(self.X), generator=self.generator)
            self.order, self.drawn = order.to(self.values.device), 0
        window = self.order[self.drawn : self.drawn + self.size]
        self.drawn += self.size
        self.is_query[queries] = True
        others = window[~self.is_query[window]]
        self.is_query[queries] = False
        return others[: max(self.size - len(queries), 0)]

    def evaluate(self, network: NeighborNetwork, queries: Tensor) -> Evaluation:
        """Ask the network about a step's queries, which are the first of their neighbours.

        Parameters
        ----------
        network : NeighborNetwork
            The network in training.
        queries : int Tensor of shape (q,)
            Row numbers of the queries. None meets itself or its group.
        """
        rows = torch.cat([queries, self.draw(queries)])
        embeddings = network.embedding(self.X[rows])
        return self._question(network, embeddings[: len(queries)], embeddings, queries, rows)

    def _question(
        self,
        network: NeighborNetwork,
        query: Tensor,
        embeddings: Tensor,
        queries: Tensor,
        rows: Tensor,
    ) -> Evaluation:
        """Ask about embedded queries among embedded rows."""
        neighbors = self._bring(embeddings.float(), rows)
        exclusion = Exclusion(self.labels[queries], self.labels[rows])
        return Evaluation(network.head, neighbors, query.float(), exclusion)

    def _bring(self, embeddings: Tensor, rows: Tensor | slice) -> Neighbors:
        """Give embedded rows what they bring."""
        prior = None if self.log_prior is None else self.log_prior[rows]
        return Neighbors(embeddings, self.values[rows], prior)

    def neighbors(self, network: NeighborNetwork) -> Neighbors:
        """The rows that validation is predicted from: the same `size` each time, shuffled.

        As many as a training step sees: against all rows, validation would soon cost more than
        training does.
        """
        return self._bring(network.embed(self.X[: self.size]), slice(self.size))


class BatchPool(DatasetPool):
    """Neighbours of a step: the batch itself, as in the NONA paper."""

    def draw(self, queries: Tensor) -> Tensor:
        """Draw nothing."""
        return queries[:0]


class MemoryPool(DatasetPool):
    """Neighbours of a step: random rows' last known embeddings, without gradient.

    A row's embedding is refreshed when the row is a query, so a step costs one batch,
    whatever the pool's size: for embeddings that are costly to compute. Validation refreshes
    all of them.
    """

    memory: Tensor | None = None  # (n, d)

    def evaluate(self, network: NeighborNetwork, queries: Tensor) -> Evaluation:
        if self.memory is None:
            self.memory = network.embed(self.X)
        rows = torch.cat([queries, self.draw(queries)])
        embeddings = network.embedding(self.X[queries])
        remembered = self.memory[rows]
        self.memory[queries] = embeddings.detach().to(self.memory.dtype)
        return self._question(network, embeddings, remembered, queries, rows)

    def neighbors(self, network: NeighborNetwork) -> Neighbors:
        self.memory = network.embed(self.X)
        return self._bring(self.memory[: self.size], slice(self.size))


#: Every pool by the name that the estimators' parameter `neighbor_pool` accepts.
NEIGHBOR_POOLS: dict[str, type[DatasetPool]] = {
    "dataset": DatasetPool,
    "batch": BatchPool,
    "memory": MemoryPool,
}
