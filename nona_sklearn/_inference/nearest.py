"""The nearest rows of each query: where weights end after few rows, no others matter.

:class:`NearestTiles` has the methods of :class:`~.tiles.Tiles` for the rows that a search found,
each query's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .._utils.threads import cached_property
from ..attention.functional import Pairs
from ..ranking import nearest_first
from .tiles import ClassTiles, Partial, Similarities, Tiles, mask_pairs_


@dataclass(frozen=True)
class Candidates:
    """The nearest admitted rows of each query in a network's space: nearest first, ties by row.

    Parameters
    ----------
    positions : int Tensor of shape (q, k)
        Rows of the bank; its length where a query has fewer admitted rows.
    similarity : Tensor of shape (q, k)
        Their similarities; -inf there.
    n_admitted : int Tensor of shape (q, 1)
        The number of all admitted rows of each query.
    """

    positions: Tensor
    similarity: Tensor
    n_admitted: Tensor

    def __getitem__(self, queries: slice | Tensor) -> Candidates:
        """Select some of the queries."""
        selected = self.positions[queries], self.similarity[queries], self.n_admitted[queries]
        return Candidates(*selected)

    def first(self, k: int) -> Candidates:
        """The k nearest of them."""
        return Candidates(self.positions[:, :k], self.similarity[:, :k], self.n_admitted)

    @classmethod
    def concatenate(cls, blocks: list[Candidates]) -> Candidates:
        """Concatenate blocks of queries."""
        fields = ("positions", "similarity", "n_admitted")
        return cls(*(torch.cat([getattr(each, name) for each in blocks]) for name in fields))


def find_nearest(
    similarities: Similarities,
    spans: list[slice],
    k: int,
    excluded: Callable[[slice], Pairs | None],
    n_admitted: Tensor,
) -> Candidates:
    """Find the k nearest of the bank's rows in one pass over its tiles."""
    queries, n_rows = similarities.query, spans[-1].stop if spans else 0
    similarity = queries.new_empty(len(queries), 0)
    positions = torch.empty_like(similarity, dtype=torch.long)
    for rows in spans:
        tile = mask_pairs_(similarities.compute(rows), excluded(rows), -math.inf)
        order = nearest_first(tile, None, k)[:, :k]
        # Rows of earlier tiles come first, so that a stable order breaks ties by row.
        similarity = torch.cat([similarity, tile.gather(1, order)], dim=1)
        positions = torch.cat([positions, order + rows.start], dim=1)
        order = nearest_first(similarity, None, k)[:, :k]
        similarity, positions = similarity.gather(1, order), positions.gather(1, order)
    positions = positions.masked_fill(similarity == -math.inf, n_rows)
    return Candidates(positions, similarity, n_admitted)


class NearestTiles(Tiles):
    """One network's head and a block of queries, each with the rows that a search found.

    One more row is searched than can have weight: it takes the place of a row that leaves.
    """

    def __init__(self, *arguments, candidates: Candidates):
        super().__init__(*arguments)
        self.candidates = candidates

    @property
    def positions(self) -> Tensor:
        """Rows that were found, (q, m); the length of the bank where there is none."""
        return self.candidates.positions

    @cached_property
    def _rows(self) -> Tensor:
        """Positions with which tensors of the bank's rows are indexed, (q, m)."""
        return self.positions.clamp_max(max(len(self.neighbors) - 1, 0))

    def _weigh(
        self, queries: Tensor | slice = slice(None), leaving: Tensor | None = None
    ) -> Tensor:
        """Weights (q, m) in float64, each row's sum 1, without one of the rows (q, 1) if given."""
        found = self.candidates[queries]
        excluded, n_admitted = found.similarity == -math.inf, found.n_admitted
        if leaving is not None:
            excluded, n_admitted = excluded.scatter(1, leaving, True), n_admitted - 1
        rows, log_prior = self._rows[queries], self.neighbors.log_prior
        weights = self.head.weigh(
            found.similarity.masked_fill(excluded, 0.0),  # with which no sum is NaN
            self.query[queries],
            self._compared(rows),
            excluded,
            None if log_prior is None else log_prior[rows],
            n_admitted,
        ).double()
        total = weights.sum(dim=1, keepdim=True)
        return weights / torch.where(total > 0, total, 1.0)

    def _compared(self, rows: Tensor) -> Tensor:
        """Compared columns of rows (q, m), if the weighting depends on them, (q, m, d)."""
        if self.head.weighting.one_by_one:
            return self.query
        return self.head.metric_part(self.neighbors.embeddings)[rows]

    @cached_property
    def weights(self) -> Tensor:
        """Weights of the rows that were found, (q, m) in float64."""
        return self._weigh()

    def shares(self, power: float = 1.0) -> Tensor:
        if power == 1:
            return self.weights
        weights = self.weights**power
        if self.neighbors.log_prior is not None:  # which is not taken to the power
            weights = weights * ((1 - power) * self.neighbors.log_prior[self._rows]).exp()
        total = weights.sum(dim=1, keepdim=True)
        return weights / torch.where(total > 0, total, 1.0)

    def partial(self, values: Tensor | None = None) -> Partial:
        if values is None:
            values = self.neighbors.summands[:1]
        sums = [torch.einsum("qm,cqm->qc", self.weights, values[:, self._rows])]
        if self.sums_adjustments:
            theirs = self._adjustments(self.neighbors.embeddings, self._rows)
            sums.append(torch.einsum("qm,qmc->qc", self.weights, theirs))
        return Partial(self.query.new_zeros(len(self.query), 1), torch.cat(sums, dim=1))

    @cached_property
    def nearest(self) -> Tensor:
        if self.head.similarity != "l2":
            return self._nearest_by_l2()
        return self.candidates.similarity[:, :1]

    def adjusted_values(self) -> Tensor:
        return self.adjusted(self._rows)

    def changes(self, mean: Tensor) -> Iterator[Tensor]:
        leaving = self.weights > 0
        queries, column = leaving.nonzero(as_tuple=True)
        weights = self._weigh(queries, column[:, None])
        alone = weights.sum(dim=1) == 0
        weights[alone, column[alone]] = 1.0  # a query's only neighbour is kept
        rows = self._rows[queries]
        values = self.neighbors.columns[rows]
        if self.sums_adjustments:
            theirs = self._adjustments(self.neighbors.embeddings, rows)
            values = torch.cat([values, theirs], dim=2)
        means = torch.einsum("pm,pmc->pc", weights, values)
        change = self._prediction(means, 1.0, queries) - mean[queries]
        for of_output in change.T:
            yield torch.zeros_like(self.weights).masked_scatter(leaving, of_output)


class NearestClassTiles(NearestTiles, ClassTiles):
    """:class:`NearestTiles` of a :class:`~nona_sklearn.attention.ClassHead`."""
