"""The rows of the bank that can have weight for a query: the nearest ones, or all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..attention.functional import Pairs
from ..similarity import l2
from .index import Index, TiledIndex
from .similarities import Similarities

Excluded = Pairs | Tensor | None  # positions of pairs, or a mask (q, n)
MOST_SEARCHED = 0.1  # of the rows, in place of excluded ones


@dataclass(frozen=True)
class Candidates:
    """The rows of the bank that can have weight for some queries, in one network's space.

    Parameters
    ----------
    similarity : Tensor of shape (q, m)
        Similarities; -inf of an excluded row, and where there is no row.
    positions : int Tensor of shape (q, m), optional
        The rows of each query, nearest first, equally near ones in the order of the bank; where
        there is none, the length of the bank. None: all rows, in the order of the bank.
    n_admitted : int Tensor of shape (q, 1), optional
        The number of all admitted rows of each query, if not all are candidates.
    nearest : Tensor of shape (q, 1), optional
        Similarity l2 of the nearest row, where it is no function of the similarities.
    """

    similarity: Tensor
    positions: Tensor | None = None
    n_admitted: Tensor | None = None
    nearest: Tensor | None = None

    def __getitem__(self, queries: slice | Tensor) -> Candidates:
        """Select some of the queries."""
        return self._map(lambda tensor: tensor[queries])

    def first(self, k: int) -> Candidates:
        """The k nearest of them."""
        assert self.positions is not None
        return replace(self, similarity=self.similarity[:, :k], positions=self.positions[:, :k])

    @classmethod
    def concatenate(cls, blocks: list[Candidates]) -> Candidates:
        """Concatenate blocks of queries."""
        if len(blocks) == 1:
            return blocks[0]
        names = [name for name, tensor in vars(blocks[0]).items() if tensor is not None]
        return cls(**{name: torch.cat([getattr(b, name) for b in blocks]) for name in names})

    def _map(self, function: Callable[[Tensor], Tensor]) -> Candidates:
        given = {name: tensor for name, tensor in vars(self).items() if tensor is not None}
        return Candidates(**{name: function(tensor) for name, tensor in given.items()})


def merge(parts: Sequence[Candidates], starts: Sequence[int]) -> Candidates:
    """Candidates of a bank in parts, whose first rows are at these positions; last, its length."""
    nearest = None
    if parts[0].nearest is not None:
        nearest = torch.stack([p.nearest for p in parts if p.nearest is not None]).amax(dim=0)
    similarity = torch.cat([part.similarity for part in parts], dim=1)
    if parts[0].positions is None:
        return Candidates(similarity, nearest=nearest)
    each = [part.positions for part in parts if part.positions is not None]
    positions = torch.cat([p + first for p, first in zip(each, starts[:-1], strict=True)], dim=1)
    positions = positions.masked_fill(similarity == -math.inf, starts[-1])
    # Each part's are in order, so that a stable order breaks ties by row.
    similarity, order = similarity.sort(dim=1, descending=True, stable=True)
    admitted = [part.n_admitted for part in parts if part.n_admitted is not None]
    n_admitted = torch.stack(admitted).sum(dim=0)
    return Candidates(similarity, positions.gather(1, order), n_admitted, nearest)


def compare_all(similarities: Similarities, tiles: list[slice], excluded: Excluded) -> Candidates:
    """All rows of the bank as candidates."""
    query, n_rows = similarities.query, tiles[-1].stop
    # Allocated at once: small pieces kept between tiles would fragment the heap.
    similarity = query.new_empty(len(query), n_rows)
    for rows in tiles:
        similarity[:, rows] = similarities.compute(rows)
    if excluded is not None:
        similarity[excluded] = -math.inf
    return Candidates(similarity)


def find_nearest(index: Index, query: Tensor, excluded: Excluded, k: int) -> Candidates:
    """Find the k nearest admitted rows of each query by an index.

    As many more rows are searched as pairs exclude for any query; but of many, an index that
    compares all rows leaves out the excluded ones itself.
    """
    n_rows, most = len(index), 0
    if excluded is not None and not isinstance(excluded, Tensor) and len(query):
        n_excluded = torch.bincount(excluded[0], minlength=len(query))
        most = int(n_excluded.max())
        if most > MOST_SEARCHED * n_rows and isinstance(index, TiledIndex):
            pairs, excluded = excluded, query.new_zeros(len(query), n_rows, dtype=torch.bool)
            excluded[pairs] = True
    if isinstance(excluded, Tensor):
        similarity, positions = index.query(query, k, excluded)
        positions = positions.masked_fill(similarity == -math.inf, n_rows)
        return Candidates(similarity, positions, (~excluded).sum(dim=1, keepdim=True))
    n_admitted = torch.full((len(query), 1), n_rows, device=query.device)
    if most:
        n_admitted = n_rows - n_excluded[:, None]
    similarity, positions = index.query(query, k + most)
    if excluded is not None:
        numbers = n_rows * torch.arange(len(query), device=query.device)
        left_out = torch.isin(numbers[:, None] + positions, numbers[excluded[0]] + excluded[1])
        similarity = similarity.masked_fill(left_out, -math.inf)
        similarity, order = similarity.sort(dim=1, descending=True, stable=True)
        positions = positions.gather(1, order).masked_fill(similarity == -math.inf, n_rows)
    return Candidates(similarity[:, :k], positions[:, :k], n_admitted)


def nearest_by_l2(
    query: Tensor, neighbors: Tensor, tiles: list[slice], excluded: Excluded
) -> Tensor:
    """Similarity l2 of the nearest of the neighbours (n, d), (q, 1)."""
    nearest = query.new_full((len(query), 1), -math.inf)
    for rows in tiles:
        tile = l2(query, neighbors[rows])
        if excluded is not None:
            tile[inside(excluded, rows)] = -math.inf
        nearest = torch.maximum(nearest, tile.amax(dim=1, keepdim=True))
    return nearest


def inside(excluded: Pairs | Tensor, rows: slice) -> Pairs | Tensor:
    """The excluded pairs of a tile: positions in it, or a mask."""
    if isinstance(excluded, Tensor):
        return excluded[:, rows]
    query, neighbor = excluded
    here = (neighbor >= rows.start) & (neighbor < rows.stop)
    return query[here], neighbor[here] - rows.start
