"""Queries whose candidates are found in each shard, and evaluated together.

A function of a shard takes the query and the shard's bank, then its other arguments. joblib calls
it for one shard after another, or wherever its backend has workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import Any

import torch
from joblib import Parallel, delayed
from torch import Tensor

from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.neighbors import Exclusion, LeftOutQueries, Neighbors
from .._trend.trend import Trend
from ..attention import AverageHead, NONAHead
from ..attention.prediction import Candidates, compare_all
from .shard_folder import Entry


class ShardsLostError(Exception):
    """Some shards could not be read: `errors`, by their entries."""

    def __init__(self, errors: dict[Entry, Exception]):
        super().__init__(errors)
        self.errors = errors


@dataclass(frozen=True)
class Part:
    """Some rows of a bank, and those among them that can have weight for some queries.

    Parameters
    ----------
    neighbors : Neighbors
        The rows.
    ids : int Tensor of shape (n,)
        Their ids.
    candidates : tuple of Candidates
        Which of them can have weight, for each network.
    """

    neighbors: Neighbors
    ids: Tensor
    candidates: tuple[Candidates, ...]


@dataclass(frozen=True)
class ShardQuery:
    """Some queries of a bank in shards."""

    shards: tuple[Entry, ...]
    n_jobs: int | None  # shards that are read at a time
    head: NONAHead | AverageHead
    algorithm: Any  # by which nearest rows are found
    trend: Trend | None
    query: Tensor  # embeddings, (q, d)
    ids: Tensor | None = None  # of queries that are rows of the bank, and exclude themselves, (q,)
    limits: Tensor | None = None  # before which the queries' neighbours are, (q,)
    added: Tensor | None = None  # what unknown levels add, (q, n_outputs)
    offset: Tensor | None = None  # the trend at the queries, (q, n_outputs)

    def map(self, function: Callable, *arguments: Any) -> list[Any]:
        """Results of a function of each shard, or a ShardsLostError if some cannot be read."""
        evaluate: Callable = delayed(evaluate_shard)
        query = replace(self, trend=None)  # which is not needed to find rows
        results = Parallel(self.n_jobs)(
            evaluate(entry, query, function, *arguments) for entry in self.shards
        )
        pairs = zip(self.shards, results, strict=True)
        if lost := {entry: error for entry, error in pairs if isinstance(error, Exception)}:
            raise ShardsLostError(lost)
        return results

    def evaluate(self, n_neighbors: int = 1) -> Part:
        """The rows that can have weight, or are among so many nearest, in all shards."""
        n_rows = sum(entry.n_rows for entry in self.shards)
        parts = self.map(part_of, n_rows, n_neighbors)
        starts = [0, *accumulate(len(part.neighbors) for part in parts)]
        return Part(
            reduce(Neighbors.join, [part.neighbors for part in parts]),
            torch.cat([part.ids for part in parts]),
            tuple(
                Candidates.merge(each, starts)
                for each in zip(*(p.candidates for p in parts), strict=True)
            ),
        )

    def of(self, part: Part) -> Evaluation:
        """Evaluate the queries on the rows that can have weight."""
        later, left_out = part.neighbors.after(self.limits), None
        if self.ids is not None and self.trend is not None and self.trend.leaves_out_single_rows:
            left_out = LeftOutQueries(self.trend, part.neighbors, part.ids, self.ids)
        known = part.candidates, self.added, self.offset, left_out
        return Evaluation(self.head, part.neighbors, self.query, later, *known)


def evaluate_shard(entry: Entry, query: ShardQuery, function: Callable, *arguments: Any) -> Any:
    """The result of a function of a shard; or the error if it cannot be read."""
    try:
        bank = entry.open()
    except (OSError, ValueError) as error:
        return error
    return function(query, bank, *arguments)


def evaluation_of(query: ShardQuery, bank: NeighborBank) -> Evaluation:
    """Evaluate the queries on the rows of a shard."""
    neighbors, ids = bank.neighbors.searched_by(query.algorithm), bank.ids
    exclusion = neighbors.after(query.limits)
    if query.ids is not None:
        exclusion = Exclusion(query.ids, ids, query.limits, neighbors.times)
    return Evaluation(query.head, neighbors, query.query, exclusion, offset=query.offset)


def nearest_of(query: ShardQuery, bank: NeighborBank, k: int) -> tuple[Tensor, Tensor]:
    """Distances and ids (q, k) of the nearest rows of a shard; fewer, if it has fewer."""
    distances, positions = evaluation_of(query, bank).nearest(k)
    return distances, bank.ids[positions].masked_fill(positions < 0, -1)


def part_of(query: ShardQuery, bank: NeighborBank, n_rows: int, n_neighbors: int) -> Part:
    """The rows of a shard that can have weight in a bank of so many rows."""
    evaluation = evaluation_of(query, bank)
    neighbors, ids = evaluation.neighbors, bank.ids
    bounds = evaluation.bounds(n_rows)
    if bounds is None:
        light = _without_compared_columns(query.head, neighbors)
        excluded = None if evaluation.exclusion is None else evaluation.exclusion.of()
        parts = evaluation.split_by_head
        compared = tuple(compare_all(head, q, z, excluded, by_l2=True) for head, q, z in parts)
        return Part(light, ids, compared)
    found = evaluation.search([max(k, n_neighbors) + 1 for k in bounds]) or ()
    kept, positions = _renumber([each.positions for each in found], len(neighbors))
    candidates = [replace(each, positions=p) for each, p in zip(found, positions, strict=True)]
    return Part(neighbors[kept], ids[kept], tuple(candidates))


def _renumber(each: Sequence[Tensor | None], n_rows: int) -> tuple[Tensor, list[Tensor]]:
    """Rows that are at any of the positions, ascending, and the positions among them."""
    positions = [p for p in each if p is not None]
    rows, numbers = torch.cat([p.flatten() for p in positions]).unique(return_inverse=True)
    kept = rows[rows < n_rows]  # n_rows is no row, and becomes the number of rows kept
    sizes = [p.numel() for p in positions]
    numbered = zip(numbers.split(sizes), positions, strict=True)
    return kept, [n.view_as(p) for n, p in numbered]


def _without_compared_columns(head: NONAHead | AverageHead, neighbors: Neighbors) -> Neighbors:
    """Neighbours that are compared already: of their embeddings only adjustments are left."""
    parts = head.split_by_head(neighbors.embeddings[:0], neighbors.embeddings)
    if not all(own.weighting.one_by_one for own, _, _ in parts):
        return neighbors  # such a weighting may compare them with each other
    embeddings = torch.cat([own.adjustments(z) for own, _, z in parts], dim=1)
    return replace(neighbors, embeddings=embeddings)
