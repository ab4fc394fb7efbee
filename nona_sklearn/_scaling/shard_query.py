"""Queries that each shard evaluates by itself, and results of the shards that merge.

A function of a shard takes the query and the shard's bank, then its other arguments. joblib calls
it for one shard after another, or wherever its backend has workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any

import torch
from joblib import Parallel, delayed
from torch import Tensor

from .._inference.bank import NeighborBank
from .._inference.distribution import (
    Calibration,
    Distribution,
    MergedDistribution,
    merged_extents,
)
from .._inference.evaluation import Evaluation
from .._inference.nearest import Candidates
from .._inference.neighbors import Exclusion, Neighbors
from .._inference.tiles import BankStatistics
from .._utils.threads import cached_property
from ..attention import AverageHead, NONAHead
from .shard_folder import Entry


class ShardsLostError(Exception):
    """Some shards could not be read: `errors`, by their entries."""

    def __init__(self, errors: dict[Entry, Exception]):
        super().__init__(errors)
        self.errors = errors


@dataclass
class ShardQuery:
    """Some queries of all shards together."""

    shards: tuple[Entry, ...]
    n_jobs: int | None  # shards that are read at a time
    head: NONAHead | AverageHead
    no_rows: Neighbors  # an empty bank
    query: Tensor  # embeddings, (q, d)
    ids: Tensor | None = None  # of queries that are rows of the bank, and exclude themselves, (q,)

    def map(self, function: Callable, *arguments: Any) -> list[Any]:
        """Results of a function of each shard, or a ShardsLostError if some cannot be read."""
        evaluate: Callable = delayed(evaluate_shard)
        results = Parallel(self.n_jobs)(
            evaluate(entry, self, function, *arguments) for entry in self.shards
        )
        pairs = zip(self.shards, results, strict=True)
        if lost := {entry: error for entry, error in pairs if isinstance(error, Exception)}:
            raise ShardsLostError(lost)
        return results

    @property
    def n_rows(self) -> int:
        """Number of rows of all shards."""
        return sum(entry.n_rows for entry in self.shards)

    def of(self, neighbors: Neighbors, ids: Tensor, **options: Any) -> Evaluation:
        """Evaluate the queries on some of the rows."""
        exclusion = None if self.ids is None else Exclusion(self.ids, ids)
        return Evaluation(
            self.head, neighbors, self.query, exclusion, n_rows=self.n_rows, **options
        )


def evaluate_shard(entry: Entry, query: ShardQuery, function: Callable, *arguments: Any) -> Any:
    """The result of a function of a shard; or the error if it cannot be read."""
    try:
        bank = entry.open()
    except (OSError, ValueError) as error:
        return error
    return function(query, bank, *arguments)


# -- weights of all rows -------------------------------------------------------------------------


@dataclass
class StreamedQuery(ShardQuery):
    """Where all rows have weight: what is known of all shards together so far."""

    known: tuple[BankStatistics, ...] | None = None  # for each network

    def evaluate(self, function: Callable, *arguments: Any) -> list[Any]:
        """Results of a function of an :class:`Evaluation` of each shard's rows."""
        return self.map(of_rows, function, *arguments)

    def learn(self, function: Callable, *arguments: Any) -> None:
        """Merge statistics of all shards' rows, and add them to what is known."""
        each_network = zip(*self.evaluate(function, *arguments), strict=True)
        more = [reduce(BankStatistics.merge, each) for each in each_network]
        old = self.known or [BankStatistics()] * len(more)
        self.known = tuple(known.combine(new) for known, new in zip(old, more, strict=True))

    def learn_weights(self) -> StreamedQuery:
        """Learn what the weights depend on, and their sums."""
        if self._of_known().needs_extremes:
            self.learn(Evaluation.extremes)
        self.learn(Evaluation.partial_sums)
        return self

    def mean(self) -> Tensor:
        """Weighted means over all shards, (q,) or (q, c)."""
        return self._of_known().mean()

    def heaviest(self, k: int) -> tuple[Tensor, Tensor]:
        """Weights and ids of the k heaviest rows."""
        each = self.map(heaviest, k)
        weights, ids = (torch.cat(parts, dim=1) for parts in zip(*each, strict=True))
        weights, places = weights.topk(k, dim=1)
        return weights, ids.gather(1, places)

    def quantiles(self, calibration: Calibration, levels: Tensor) -> Tensor:
        """Quantiles of the predictive distributions, (q, k, c)."""
        if calibration.power != 1:
            self.learn(Evaluation.powered_sums, calibration.power)
        return MergedDistribution(self.evaluate, calibration).quantiles(levels)

    def _of_known(self) -> Evaluation:
        return Evaluation(self.head, self.no_rows, self.query, statistics=self.known)


def of_rows(query: StreamedQuery, bank: NeighborBank, function: Callable, *arguments: Any) -> Any:
    """The result of a function of an :class:`Evaluation`, by weights in the whole bank."""
    evaluation = query.of(bank.neighbors, bank.ids, statistics=query.known)
    return function(evaluation, *arguments)


def heaviest(query: StreamedQuery, bank: NeighborBank, k: int) -> tuple[Tensor, Tensor]:
    """Weights and ids of a shard's k heaviest rows."""
    weights, places, _ = of_rows(query, bank, Evaluation.heaviest, k)
    return weights, bank.ids[places]


# -- weights that end ----------------------------------------------------------------------------


@dataclass
class NearestQuery(ShardQuery):
    """Where weights end after the nearest rows: the shards find them, and they are weighed once.

    `least` rows are found at least.
    """

    least: int = 0

    @cached_property
    def found(self) -> Found:
        """The nearest rows of all shards, in the order of their ids."""
        return Found.join(self.map(find, self.least))

    @cached_property
    def evaluation(self) -> Evaluation:
        """An evaluation of the nearest rows, by the weights that they have in the whole bank."""
        found, statistics = self.found, None
        if found.distances is not None:
            nearest = -found.distances.to(self.query.dtype)
            statistics = tuple(BankStatistics(nearest=each[:, None]) for each in nearest.T)
        return self.of(
            found.neighbors, found.ids, statistics=statistics, candidates=found.candidates
        )

    def mean(self) -> Tensor:
        """Weighted means over all shards, (q,) or (q, c)."""
        return self.evaluation.mean()

    def heaviest(self, k: int) -> tuple[Tensor, Tensor]:
        """Weights and ids of the k heaviest rows."""
        weights, places, _ = self.evaluation.heaviest(k)
        return weights, self.found.ids[places]

    def quantiles(self, calibration: Calibration, levels: Tensor) -> Tensor:
        """Quantiles of the predictive distributions, (q, k, c)."""
        law = Distribution(self.evaluation, calibration, self.found.extents)
        return torch.from_numpy(law.quantiles(levels)).reshape(len(self.query), len(levels), -1)


@dataclass(frozen=True)
class Found:
    """The nearest rows of a shard, or of all, for some queries.

    Parameters
    ----------
    neighbors : Neighbors
        The rows that are near any of the queries.
    ids : int Tensor of shape (n,)
        Their ids.
    candidates : tuple of Candidates
        Which of them are the nearest of each query, for each network.
    extents : Tensor of shape (2, k, n_outputs)
        `Evaluation.extents` of all rows.
    distances : Tensor of shape (q, K) or None
        Euclidean distances to the nearest of all rows for each network; None where adjustments do
        not depend on them, or they are those of the nearest candidates.
    """

    neighbors: Neighbors
    ids: Tensor
    candidates: tuple[Candidates, ...]
    extents: Tensor
    distances: Tensor | None

    @classmethod
    def join(cls, shards: list[Found]) -> Found:
        """Join those of all shards."""
        neighbors = reduce(Neighbors.join, (each.neighbors for each in shards))
        ends = list(accumulate(len(each.neighbors) for each in shards))
        candidates = [
            Candidates.join(list(each), [0, *ends[:-1]], len(neighbors))
            for each in zip(*(each.candidates for each in shards), strict=True)
        ]
        distances = [each.distances for each in shards if each.distances is not None]
        return cls(
            neighbors,
            torch.cat([each.ids for each in shards]),
            tuple(candidates),
            merged_extents([each.extents for each in shards]),
            reduce(torch.minimum, distances) if distances else None,
        )


def find(query: NearestQuery, bank: NeighborBank, least: int) -> Found:
    """The nearest rows of a shard."""
    neighbors = bank.neighbors.searched_by(query.no_rows.algorithm)
    evaluation = query.of(neighbors, bank.ids)
    candidates = evaluation.nearest_rows(least)
    rows = torch.cat([each.positions.flatten() for each in candidates]).unique()
    rows = rows[rows < len(bank)]
    apart = any(h.n_adjusted and h.similarity != "l2" for h, _, _ in evaluation.split_by_head)
    return Found(
        neighbors[rows],
        bank.ids[rows],
        tuple(each.among(rows) for each in candidates),
        evaluation.extents(),
        evaluation.distances() if apart else None,
    )
