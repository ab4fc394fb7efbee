"""Labelled neighbours, and pairs of query and neighbour that are excluded."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.splits import have_earlier
from .._utils.threads import cached_property
from ..attention import AverageHead, NONAHead
from ..attention.functional import Pairs, attenuation
from .index import Index, make_index


@dataclass(frozen=True, eq=False)
class Offset:
    """What a trend f makes of neighbours and of a prediction.

    A neighbour's target, as a network has adjusted it, becomes ``(1 - share) target + share
    (f(q) + kept (y_j - f(j)))``, and so does their weighted mean. Of classes, f is the logarithm
    of their probabilities, and their votes become ``votes^(1 - share) exp(f(q))^share``.

    Parameters
    ----------
    values : float64 Tensor of shape (n, n_outputs)
        The trend f(j) at the neighbours, each of other rows, in units of the targets; of classes
        a logarithm.
    share : float
        The trend's share of a prediction.
    kept : float
        The share of the neighbours' residuals in it. Classes have none.
    trust_radius : float, default=inf
        How far a query may be from its nearest neighbour before the trend's share fades.
    """

    values: Tensor
    share: float
    kept: float
    trust_radius: float = math.inf

    def __getitem__(self, rows: Tensor | slice) -> Offset:
        return replace(self, values=self.values[rows])

    @property
    def fades(self) -> bool:
        """Whether the trend's share depends on the query."""
        return self.trust_radius < math.inf

    def share_at(self, distance: Tensor) -> Tensor:
        """The trend's share at queries, by the distances of their nearest neighbours, (q, 1)."""
        return self.share * attenuation(distance, self.trust_radius)

    def mix(
        self,
        of_network: Tensor,
        residuals: Tensor,
        of_query: Tensor,
        share: Tensor | float,
        total: Tensor | float = 1.0,
    ) -> Tensor:
        """Adjusted targets or means of them, with residuals or means of these, and f(q).

        `total` is the sum of the weights: 1, or 0 without neighbours.
        """
        of_trend = total * of_query + self.kept * residuals
        return (1 - share) * of_network + share * of_trend

    def pool(self, votes: Tensor, of_query: Tensor) -> Tensor:
        """Votes for classes, multiplied by the trend's odds: a share of both logarithms."""
        return self.shifted(votes ** (1 - self.share), of_query)

    def shifted(self, pooled: Tensor, change: Tensor) -> Tensor:
        """Votes that are pooled with the trend, where it changes."""
        return pooled * (self.share * change).exp()


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
    times : float64 Tensor of shape (n,), optional
        Their times.
    offset : Offset, optional
        The trend at them; None: there is none, as in training.
    """

    embeddings: Tensor
    values: Tensor
    log_prior: Tensor | None = None
    adjustment_scale: Tensor | float | None = 1.0
    algorithm: Any = "auto"
    times: Tensor | None = None
    offset: Offset | None = None
    # What evaluations precompute from the embeddings.
    cache: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: Tensor | slice) -> Neighbors:
        """Select some of them."""
        prior = None if self.log_prior is None else self.log_prior[rows]
        times = None if self.times is None else self.times[rows]
        offset = None if self.offset is None else self.offset[rows]
        of_all = self.adjustment_scale, self.algorithm
        return Neighbors(self.embeddings[rows], self.values[rows], prior, *of_all, times, offset)

    def join(self, others: Neighbors) -> Neighbors:
        """Append others."""
        prior = None
        if self.log_prior is not None or others.log_prior is not None:
            prior = torch.cat([self._prior(), others._prior()])
        times = None
        if self.times is not None and others.times is not None:
            times = torch.cat([self.times, others.times])
        offset = None
        if self.offset is not None and others.offset is not None:
            values = torch.cat([self.offset.values, others.offset.values])
            offset = replace(self.offset, values=values)
        return Neighbors(
            torch.cat([self.embeddings, others.embeddings]),
            torch.cat([self.values, others.values]),
            prior,
            self.adjustment_scale,
            self.algorithm,
            times,
            offset,
        )

    def _prior(self) -> Tensor:
        return self.embeddings.new_zeros(len(self)) if self.log_prior is None else self.log_prior

    @property
    def columns(self) -> Tensor:
        """Values in float64, a column for each output, (n, n_outputs)."""
        values = self.values.double()
        return values[:, None] if values.ndim == 1 else values

    @property
    def residuals(self) -> Tensor:
        """Values minus the trend at the neighbours, (n, n_outputs)."""
        assert self.offset is not None
        return self.columns - self.offset.values

    @property
    def variance(self) -> Tensor:
        """Variance of each output's values, (n_outputs,)."""
        return self.columns.var(dim=0, correction=0)

    @property
    def spread(self) -> Tensor:
        """Standard deviation of each output's values, (n_outputs,); 1 if they are all equal."""
        variance = self.variance
        return torch.where(variance > 0, variance.sqrt(), 1.0)

    def searched_by(self, algorithm: Any) -> Neighbors:
        """The same neighbours, found by another algorithm; the cache stays valid."""
        if algorithm is self.algorithm:
            return self
        others = replace(self, algorithm=algorithm)
        vars(others)["cache"] = self.cache  # in which an index stays that is built later
        return others

    def with_offset(self, offset: Offset | None) -> Neighbors:
        """The same neighbours with another trend, or without one; the cache stays valid."""
        others = replace(self, offset=offset)
        vars(others)["cache"] = self.cache
        return others

    def without_offset(self) -> Neighbors:
        """The same neighbours without a trend."""
        return self.with_offset(None)

    def after(self, limits: Tensor | None) -> Exclusion | None:
        """Exclude, for queries with these limits (q,), all that are not earlier; None: nothing."""
        if self.times is None or limits is None or len(limits) == 0:
            return None
        if self.times.amax() < limits.amin():
            return None
        return Exclusion(limits=limits, times=self.times)

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

    def joint_index(self, head: NONAHead | AverageHead, similarity: str, algorithm: str) -> Index:
        """An index of the rows in all networks' spaces side by side."""
        key = "joint index", algorithm, similarity
        if key not in self.cache:
            rows = head.metric_part(self.embeddings)
            self.cache[key] = make_index(algorithm, similarity, rows)
        return self.cache[key]

    def graphs(self) -> list[np.ndarray] | None:
        """The graphs of the indexes as arrays of bytes, or None if there are none."""
        for key, indexes in self.cache.items():
            if key[:2] == ("indexes", "hnsw"):
                return [index.serialized() for index in indexes]
        return self.cache.get("graphs")

    def with_values(self, values: Tensor) -> Neighbors:
        """The same neighbours with other values, not adjusted; the cache stays valid."""
        others = replace(self, values=values, adjustment_scale=None, offset=None)
        others.cache.update(self.cache)
        return others


@dataclass(frozen=True, eq=False)
class Exclusion:
    """Excluded pairs of queries and neighbours.

    Parameters
    ----------
    queries, neighbors : int Tensor of shape (q,) and (n,), optional
        Labels: pairs with the same one are excluded. Row numbers or ids exclude each row from its
        own neighbours, but not its twins; groups exclude all rows of its group.
    limits, times : float64 Tensor of shape (q,) and (n,), optional
        A neighbour is excluded, too, unless its time is before the query's limit.
    ends : float64 Tensor of shape (q,), optional
        In training, a neighbour whose time is after this one is not excluded.
    """

    queries: Tensor | None = None
    neighbors: Tensor | None = None
    limits: Tensor | None = None
    times: Tensor | None = None
    ends: Tensor | None = None

    def __getitem__(self, rows: Tensor | np.ndarray | slice) -> Exclusion:
        """Select some of the queries."""
        queries, limits, ends = (
            None if each is None else each[rows] for each in (self.queries, self.limits, self.ends)
        )
        return replace(self, queries=queries, limits=limits, ends=ends)

    def among(self, rows: Tensor) -> Exclusion:
        """Select some of the neighbours."""
        neighbors, times = (
            None if each is None else each[rows] for each in (self.neighbors, self.times)
        )
        return replace(self, neighbors=neighbors, times=times)

    def of(self, queries: slice = slice(None)) -> Pairs | Tensor:
        """Positions of a block's excluded pairs or, where there are times, a mask (q, n)."""
        if self.limits is None or self.times is None:
            return self.pairs(queries)
        mask = self.times >= self.limits[queries, None]
        if self.ends is not None:
            mask &= self.times <= self.ends[queries, None]
        if self.queries is not None:
            mask[self.pairs(queries)] = True
        return mask

    def isolated(self) -> Tensor | None:
        """Which queries have no earlier neighbour, bool (q,); None without times.

        With `ends` there are later ones, too.
        """
        if self.limits is None or self.times is None or self.ends is not None:
            return None
        return ~have_earlier(self.limits, self.times, self.queries, self.neighbors)

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        assert self.neighbors is not None
        return self.neighbors.sort()

    def pairs(self, queries: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Positions (p,) of a block's queries and of neighbours with the same label.

        They are found without all pairs.
        """
        assert self.queries is not None
        labels, order = self._sorted
        wanted = self.queries[queries].contiguous()
        first = torch.searchsorted(labels, wanted)
        count = torch.searchsorted(labels, wanted, right=True) - first
        query = torch.arange(len(wanted), device=wanted.device).repeat_interleave(count)
        before = count.cumsum(0) - count  # pairs of previous queries
        rank = torch.arange(len(query), device=wanted.device) + (first - before)[query]
        return query, order[rank]
