"""Labelled neighbours, and pairs of query and neighbour that are excluded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.threads import cached_property
from ..attention import AverageHead, NONAHead
from .index import Index, make_index


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Labelled neighbours, as a pool passes them to a training step and a bank stores them.

    Parameters
    ----------
    embeddings : Tensor of shape (n, d)
        Their embeddings.
    values : Tensor of shape (n,) or (n, n_outputs)
        Their targets, of which weighted means are taken.
    log_prior : Tensor of shape (n,), optional
        Logarithm of their sample weights; None: all the same.
    adjustment_scale : Tensor of shape () or (n_outputs,), or None
        Factor of a head's adjustments g, in units of the values; 1 in training. None: g was
        learned for other values, and these are not adjusted.
    algorithm : str or transformer, default='auto'
        How the nearest of them are found, as the estimators' parameter.
    """

    embeddings: Tensor
    values: Tensor
    log_prior: Tensor | None = None
    adjustment_scale: Tensor | float | None = 1.0
    algorithm: Any = "auto"
    # What evaluations precompute from the embeddings.
    cache: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: Tensor | slice) -> Neighbors:
        """Select some of them."""
        prior = None if self.log_prior is None else self.log_prior[rows]
        of_all = self.adjustment_scale, self.algorithm
        return Neighbors(self.embeddings[rows], self.values[rows], prior, *of_all)

    def join(self, others: Neighbors) -> Neighbors:
        """Append others."""
        prior = None
        if self.log_prior is not None or others.log_prior is not None:
            prior = torch.cat([self._prior(), others._prior()])
        return Neighbors(
            torch.cat([self.embeddings, others.embeddings]),
            torch.cat([self.values, others.values]),
            prior,
            self.adjustment_scale,
            self.algorithm,
        )

    def _prior(self) -> Tensor:
        return self.embeddings.new_zeros(len(self)) if self.log_prior is None else self.log_prior

    @property
    def columns(self) -> Tensor:
        """Values in float64, a column for each output, (n, n_outputs)."""
        values = self.values.double()
        return values[:, None] if values.ndim == 1 else values

    def searched_by(self, algorithm: Any) -> Neighbors:
        """The same neighbours, found by another algorithm; the cache stays valid."""
        if algorithm is self.algorithm:
            return self
        others = replace(self, algorithm=algorithm)
        vars(others)["cache"] = self.cache  # in which an index stays that is built later
        return others

    def indexes(self, head: NONAHead | AverageHead) -> list[Index]:
        """An index for each of a head's networks, built when it is first needed."""
        parts = head.split_by_head(self.embeddings[:0], self.embeddings)
        algorithm = self.algorithm if isinstance(self.algorithm, str) else id(self.algorithm)
        key = "indexes", algorithm, *(own.similarity for own, _, _ in parts)
        if key not in self.cache:
            read = self.cache.pop("graphs", None) if algorithm == "hnsw" else None
            graphs = read or [None] * len(parts)
            self.cache[key] = [
                make_index(self.algorithm, own.similarity, own.metric_part(z), graph)
                for (own, _, z), graph in zip(parts, graphs, strict=True)
            ]
        return self.cache[key]

    def graphs(self) -> list[np.ndarray] | None:
        """The graphs of the indexes as arrays of bytes, or None if there are none."""
        for key, indexes in self.cache.items():
            if key[:2] == ("indexes", "hnsw"):
                return [index.serialized() for index in indexes]
        return self.cache.get("graphs")

    def with_values(self, values: Tensor) -> Neighbors:
        """The same neighbours with other values, not adjusted; the cache stays valid."""
        others = replace(self, values=values, adjustment_scale=None)
        others.cache.update(self.cache)
        return others


@dataclass(frozen=True, eq=False)
class Exclusion:
    """Excluded pairs: of queries (q,) and neighbours (n,) with the same integer label.

    Row numbers or ids as labels exclude each row from its own neighbours, but not its twins;
    groups exclude all rows of its group.
    """

    queries: Tensor
    neighbors: Tensor

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        return self.neighbors.sort()

    def pairs(self, queries: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Positions (p,) of a block's queries and of neighbours, found without all pairs."""
        labels, order = self._sorted
        wanted = self.queries[queries].contiguous()
        first = torch.searchsorted(labels, wanted)
        count = torch.searchsorted(labels, wanted, right=True) - first
        query = torch.arange(len(wanted), device=wanted.device).repeat_interleave(count)
        before = count.cumsum(0) - count  # pairs of previous queries
        rank = torch.arange(len(query), device=wanted.device) + (first - before)[query]
        return query, order[rank]
