"""Queries that each shard evaluates by itself, and statistics of the shards that merge.

A function of a shard takes the query and the shard, then its other arguments. joblib calls it for
one shard after another, or wherever its backend has workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from joblib import Parallel, delayed
from torch import Tensor

from .._inference.evaluation import Evaluation
from .._inference.neighbors import Exclusion, Neighbors
from .._inference.tiles import BankStatistics
from ..attention import AverageHead, NONAHead
from .index import Candidates
from .shard_folder import Entry, Shard


class ShardsLostError(Exception):
    """Some shards could not be read: `errors`, by their entries."""

    def __init__(self, errors: dict[Entry, Exception]):
        super().__init__(errors)
        self.errors = errors


@dataclass
class ShardQuery:
    """Some queries, and what is known of all shards together so far."""

    shards: tuple[Entry, ...]
    n_jobs: int | None  # shards that are read at a time
    head: NONAHead | AverageHead
    no_rows: Neighbors  # an empty bank
    query: Tensor  # embeddings, (q, d)
    ids: Tensor | None = None  # of queries that are rows of the bank, and exclude themselves, (q,)
    known: tuple[BankStatistics, ...] | None = None  # for each network

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

    def evaluate(self, function: Callable, *arguments: Any) -> list[Any]:
        """Results of a function of an :class:`Evaluation` of each shard's rows."""
        return self.map(of_rows, function, *arguments)

    def learn(self, function: Callable, *arguments: Any) -> None:
        """Merge statistics of all shards' rows, and add them to what is known."""
        each_network = zip(*self.evaluate(function, *arguments), strict=True)
        more = [reduce(BankStatistics.merge, each) for each in each_network]
        old = self.known or [BankStatistics()] * len(more)
        self.known = tuple(known.combine(new) for known, new in zip(old, more, strict=True))

    def learn_weights(self) -> None:
        """Learn what the weights depend on, and their sums."""
        if self._of_known().needs_extremes:
            self.learn(Evaluation.extremes)
        self.learn(Evaluation.partial_sums)

    def mean(self) -> Tensor:
        """Weighted means over all shards, (q,) or (q, c)."""
        return self._of_known().mean()

    def of(self, shard: Shard) -> Evaluation:
        """Evaluate the queries on a shard's rows, by weights in the whole bank."""
        exclusion = None if self.ids is None else Exclusion(self.ids, shard.bank.ids)
        return Evaluation(self.head, shard.bank.neighbors, self.query, exclusion, self.known)

    def _of_known(self) -> Evaluation:
        return Evaluation(self.head, self.no_rows, self.query, statistics=self.known)


def evaluate_shard(entry: Entry, query: ShardQuery, function: Callable, *arguments: Any) -> Any:
    """The result of a function of a shard; or the error if it cannot be read."""
    try:
        shard = entry.open()
    except (OSError, ValueError) as error:
        return error
    return function(query, shard, *arguments)


def of_rows(query: ShardQuery, shard: Shard, function: Callable, *arguments: Any) -> Any:
    """The result of a function of an :class:`Evaluation`."""
    return function(query.of(shard), *arguments)


def heaviest(query: ShardQuery, shard: Shard, k: int) -> tuple[Tensor, Tensor]:
    """Weights and ids of a shard's k heaviest rows."""
    weights, places, _ = query.of(shard).heaviest(k)
    return weights, shard.bank.ids[places]


def candidates(query: ShardQuery, shard: Shard, k: int) -> Candidates:
    """The k rows of a shard that are nearest, by its index."""
    return shard.index(query.head).search(query.query, k).compact()
