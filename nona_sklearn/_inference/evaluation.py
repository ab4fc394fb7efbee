"""Evaluation of a head for queries and neighbours: predictions, weights, influence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .._utils.chunks import spans
from .._utils.threads import WORKERS
from ..attention import AverageHead, ClassHead, NONAHead
from .nearest import Candidates, NearestClassTiles, NearestTiles, find_nearest
from .neighbors import Exclusion, Neighbors
from .tiles import (
    CACHE_BYTES,
    BankStatistics,
    ClassTiles,
    SimilarityComputer,
    Tiles,
    similarity_computer,
    tile_shape,
)
from .weighted_rows import WeightedRows

LEAST_QUERY_BLOCK = 32  # fewer queries make a matrix product inefficient
WHOLE_ROW_PAIRS = 2**20  # weights at a time where all of a query are needed
SELECTION_ROUNDS, LEAST_SHARE = 20, 0.01


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A head evaluated for some queries and neighbours.

    :meth:`attend` is the definition, with gradients and all pairs at once. The other methods
    evaluate the mean of the networks' weights: of the nearest rows, which are searched once, where
    weights end after some number of them, and else of all rows, tile by tile.

    Parameters
    ----------
    head : NONAHead or AverageHead
        Computes the weights.
    neighbors : Neighbors
        The labelled rows.
    query : Tensor of shape (q, d)
        Embeddings of the queries.
    exclusion : Exclusion, optional
        The excluded pairs; None: no pair is excluded.
    statistics : tuple of BankStatistics, optional
        Of a larger bank, of which the neighbours are a part, for each network.
    candidates : tuple of Candidates, optional
        The nearest rows for each network, if they are known already.
    """

    head: NONAHead | AverageHead
    neighbors: Neighbors
    query: Tensor
    exclusion: Exclusion | None = None
    statistics: tuple[BankStatistics, ...] | None = None
    candidates: tuple[Candidates, ...] | None = None

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: Tensor | np.ndarray) -> Evaluation:
        """Select some of the queries."""
        exclusion = self.exclusion
        if exclusion is not None:
            exclusion = replace(exclusion, queries=exclusion.queries[rows])
        rows = torch.as_tensor(rows)
        statistics = self.statistics and tuple(each[rows] for each in self.statistics)
        candidates = self.candidates and tuple(each[rows] for each in self.candidates)
        return Evaluation(
            *(self.head, self.neighbors, self.query[rows]), exclusion, statistics, candidates
        )

    # -- at once, with gradients -----------------------------------------------------------

    def attend(self) -> Tensor:
        """Weighted means of the neighbours' values, (q,) or (q, n_outputs), by definition."""
        neighbors = self.neighbors
        excluded = None if self.exclusion is None else self.exclusion.pairs()
        adjustment_scale = neighbors.adjustment_scale
        if isinstance(adjustment_scale, Tensor):
            adjustment_scale = adjustment_scale.to(self.query.dtype)
        return self.head(
            self.query,
            neighbors.embeddings,
            neighbors.values.to(self.query.dtype),
            excluded,
            neighbors.log_prior,
            adjustment_scale,
        )

    # -- tile by tile ----------------------------------------------------------------------

    def mean(self) -> Tensor:
        """Predictions, (q,) or (q, c), in float64."""
        values = self.neighbors.summands
        return self._average(lambda tiles: tiles.mean(values))

    @property
    def needs_extremes(self) -> bool:
        """Whether a weight depends on the nearest and the farthest of all neighbours."""
        return any(
            head.step is not None or head.weighting.needs_nearest
            for head, _, _ in self.split_by_head
        )

    @property
    def split_by_head(self) -> list[tuple[NONAHead, Tensor, Tensor]]:
        """Each network's head, with the queries and the neighbours in its space."""
        return self.head.split_by_head(self.query, self.neighbors.embeddings)

    def extremes(self) -> tuple[BankStatistics, ...]:
        """The nearest and the farthest similarities, for each network."""
        return self._statistics(lambda tiles: BankStatistics(tiles.extremes))

    def partial_sums(self) -> tuple[BankStatistics, ...]:
        """Statistics to be merged with those of other neighbours, for each network."""
        values = self.neighbors.summands
        return self._statistics(lambda tiles: tiles.partial_sums(values))

    def powered_sums(self, power: float) -> tuple[BankStatistics, ...]:
        """Sums of weights to a power, to be merged as well, for each network."""
        return self._statistics(lambda tiles: tiles.powered_sums(power), whole_rows=True)

    def _statistics(
        self, function: Callable[[Tiles], BankStatistics], whole_rows: bool = False
    ) -> tuple[BankStatistics, ...]:
        blocks = self._map_blocks(lambda _, networks: list(map(function, networks)), whole_rows)
        return tuple(map(BankStatistics.concatenate, zip(*blocks, strict=True)))

    def plain_mean(self) -> Tensor:
        """Weighted means of the values, (q,) or (q, c), not adjusted, in float64."""
        values = self.neighbors.summands
        return self._average(lambda tiles: tiles.plain_mean(values))

    def _average(self, function: Callable[[Tiles], Tensor]) -> Tensor:
        """The mean of a function of each network's tiles, in the shape of the values."""

        def average(_, networks):
            return torch.stack(list(map(function, networks))).mean(dim=0)

        shape = len(self), *self.neighbors.values.shape[1:]
        return self._map_rows(average, self.neighbors.columns[:0]).reshape(shape)

    # -- all weights of a query ------------------------------------------------------------

    def map_weighted_rows(self, function: Callable[[slice, WeightedRows], Any]) -> list[Any]:
        """Apply a function to each block of queries: their slice, and their weighted rows."""
        return self._map_blocks(
            lambda queries, networks: function(queries, WeightedRows(networks)), whole_rows=True
        )

    def sparse_weights(self, tolerance: float = 0.0) -> sparse.csr_array:
        """Weights (q, n) above a tolerance, in float64, normalised to sum to 1."""
        blocks = self.map_weighted_rows(lambda _, rows: rows.sparse(tolerance))
        empty = sparse.csr_array((0, len(self.neighbors)))
        weights = sparse.vstack([empty, *blocks], format="csr")
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) and adjusted values (q, k, n_outputs) of k neighbours.

        These are the heaviest, heaviest first.
        """
        n_outputs = self.neighbors.columns.shape[1]
        parts = [torch.empty(0, k), torch.empty(0, k, dtype=torch.long)]
        empty = (*parts, torch.empty(0, k, n_outputs).double())
        blocks = self.map_weighted_rows(lambda _, rows: rows.heaviest(k))
        device = self.query.device
        weights, positions, values = (
            torch.cat([first.to(device), *others])
            for first, *others in zip(empty, *blocks, strict=True)
        )
        return weights, positions, values

    def extents(self) -> Tensor:
        """Least and largest values, (2, k, n_outputs): of the values, and minus each network's g.

        The adjusted values of a network span at most the largest of these ranges, whatever the
        attenuation.
        """
        values, scale = self.neighbors.columns, self.neighbors.adjustment_scale
        each = [values]
        if scale is not None:
            each += [
                values - scale * head.adjustments(z).double()
                for head, _, z in self.split_by_head
                if head.n_adjusted
            ]
        return torch.stack([torch.stack([v.amin(dim=0), v.amax(dim=0)]) for v in each], dim=1)

    def effective_sizes(self) -> Tensor:
        """One over the sum of squared weights, (q,)."""
        return self._each_query(lambda weights: weights.square().sum(dim=1).reciprocal())

    def support_sizes(self) -> Tensor:
        """Number of neighbours of positive weight, (q,)."""
        return self._each_query(lambda weights: (weights > 0).sum(dim=1)).long()

    def _each_query(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function (q,) of all weights of each query, (q, m), in float64."""
        blocks = self.map_weighted_rows(lambda _, rows: function(rows.weights()).double())
        return torch.cat([self.query.new_zeros(0).double(), *blocks])

    def distances(self) -> Tensor:
        """Euclidean distances to the nearest neighbour in each network's space, (q, K)."""

        def nearest(_, networks):
            return torch.cat([-tiles.nearest for tiles in networks], dim=1).double()

        return self._map_rows(nearest, self.query.new_zeros(0, len(self.split_by_head)))

    def step_sums(self) -> Tensor:
        """Each query's steps, summed over the neighbours, (q,); every head has a step."""

        def step_sum(_, networks):
            return torch.stack([tiles.step_sum() for tiles in networks]).mean(dim=0)

        return self._map_rows(step_sum, self.query.new_zeros(0), whole_rows=True)

    def influence(self, residuals: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The influence of each neighbour on the predictions.

        If the others would share the weight of neighbour j in proportion to theirs, a network's
        prediction m changes by ``w_j (m - y_j) / (1 - w_j)`` without it, where y_j is adjusted.
        Otherwise it is evaluated without each neighbour that could change it more.

        Returns three tensors (n,): the sum of its weights over the queries; the mean over the
        queries and sum over the outputs of the squared change of a prediction without it; the
        same for the change of the squared error, given `residuals` (q, n_outputs), predictions
        minus truth (without them, the second again).
        """
        totals, adding = self.neighbors.columns.new_zeros(3, len(self.neighbors)), Lock()
        sums = self.neighbors.summands

        def add_influence(queries, rows):
            changed = error = 0.0
            for j, change in enumerate(rows.changes(sums)):
                residual = 0.0 if residuals is None else residuals[queries, j, None]
                changed = changed + change.square()
                error = error + change * (change + 2 * residual)
            influence = [rows.sum_by_row(each) for each in (rows.weights(), changed, error)]
            with adding:
                totals.add_(torch.stack(influence))

        self.map_weighted_rows(add_influence)
        weight, change, error = totals
        return weight, change / len(self), error / len(self)

    def representatives(self, n_rows: int) -> np.ndarray:
        """Positions of neighbours that together carry much of the queries' weights, (n_rows,).

        The objective is the sum over the queries of the square root of the weight of kept rows:
        the root gives diminishing returns for further rows of a query. It is maximised greedily,
        in SELECTION_ROUNDS rounds. Ties are broken at random.
        """
        weights = self.sparse_weights()
        shuffled = np.random.RandomState(0).permutation(len(self.neighbors))
        kept = np.zeros(len(self.neighbors), dtype=bool)
        for done in range(1, SELECTION_ROUNDS + 1):
            gain = weights.T @ (weights @ kept + LEAST_SHARE) ** -0.5
            gain[kept] = -1.0
            n_missing = n_rows * done // SELECTION_ROUNDS - kept.sum()
            first = np.argsort(-gain[shuffled], kind="stable")[:n_missing]
            kept[shuffled[first]] = True
        return np.flatnonzero(kept)

    # -- blocks of queries -----------------------------------------------------------------

    def _map_blocks(
        self, function: Callable[[slice, list[Tiles]], Any], whole_rows: bool = False
    ) -> list[Any]:
        """Apply a function to each block of queries: their slice, and each network's tiles.

        With `whole_rows`, the function holds all weights of each query at once, so that blocks
        must be small.
        """
        parts, found = self.split_by_head, self._search()
        computers = self._similarity_computers(parts)

        def apply(queries):
            excluded = None if self.exclusion is None else self.exclusion.pairs(queries)
            statistics = self.statistics or [BankStatistics()] * len(parts)
            networks = []
            for i, (head, query, z) in enumerate(parts):
                neighbors = replace(self.neighbors, embeddings=z)
                given = query[queries], neighbors, computers[i], excluded, statistics[i][queries]
                nearest = None if found is None else found[i][queries]
                networks.append(_tiles(head, *given, candidates=nearest))
            return function(queries, networks)

        n_columns = len(self.neighbors)
        if found is not None:
            n_columns = sum(each.positions.shape[1] for each in found)
        elif any(head.needs_whole_rows for head, _, _ in parts):
            whole_rows = True
        return self._map_queries(apply, WHOLE_ROW_PAIRS if whole_rows else math.inf, n_columns)

    def _map_queries(
        self, function: Callable[[slice], Any], most_pairs: float, n_columns: int
    ) -> list[Any]:
        """Apply a function to blocks of queries of at most so many pairs, of `n_columns` each.

        Tiles are too small to share among threads, so on the CPU each thread has blocks of its
        own.
        """
        n_threads = torch.get_num_threads() if self.query.device.type == "cpu" else 1
        most, _ = tile_shape(self.query.device, n_columns)
        size = min(most, max(LEAST_QUERY_BLOCK, math.ceil(len(self) / n_threads)))
        if most_pairs < math.inf:
            at_once = max(1, int(most_pairs) // max(1, n_columns))
            size, n_threads = min(size, at_once), min(n_threads, at_once)
        inference = torch.is_inference_mode_enabled()  # of the caller's thread

        @torch.inference_mode(inference)
        @torch.no_grad()
        def apply(queries):
            return function(queries)

        blocks = spans(len(self), size)
        if n_threads == 1 and torch.get_num_threads() == 1:
            return [apply(queries) for queries in blocks]
        return WORKERS.map(apply, blocks, n_threads)

    def _search(self) -> tuple[Candidates, ...] | None:
        """The nearest rows for each network, found once; None where weights do not end."""
        n_rows, parts = len(self.neighbors), self.split_by_head
        bounds = [head.most_weighed(n_rows) for head, _, _ in parts]
        if None in bounds or self.statistics is not None:
            return None
        # And one to take the place of another.
        wanted = [min(k + 1, n_rows) for k in bounds if k is not None]
        found = self.candidates
        if found is None or any(
            each.positions.shape[1] < k for each, k in zip(found, wanted, strict=True)
        ):
            found = self._find_nearest(parts, wanted)
            vars(self)["candidates"] = found  # for the next question
        return tuple(each.first(k) for each, k in zip(found, wanted, strict=True))

    def _find_nearest(self, parts, wanted: list[int]) -> tuple[Candidates, ...]:
        computers, n_rows = self._similarity_computers(parts), len(self.neighbors)

        def find(queries):
            excluded, n_excluded = None, 0
            if self.exclusion is not None:
                excluded = self.exclusion.pairs(queries)
                n_excluded = torch.bincount(excluded[0], minlength=queries.stop - queries.start)
            n_admitted = n_rows - torch.zeros_like(self.query[queries, 0]).long() - n_excluded
            found = []
            for (head, query, z), computer, k in zip(parts, computers, wanted, strict=True):
                neighbors = replace(self.neighbors, embeddings=z)
                tiles = Tiles(head, query[queries], neighbors, computer, excluded)
                given = tiles.similarities, tiles.spans, k, tiles.excluded, n_admitted[:, None]
                found.append(find_nearest(*given))
            return found

        blocks = self._map_queries(find, math.inf, n_rows)
        return tuple(Candidates.concatenate(list(each)) for each in zip(*blocks, strict=True))

    def _similarity_computers(
        self, parts: list[tuple[NONAHead, Tensor, Tensor]]
    ) -> list[SimilarityComputer]:
        """Each network's similarity computer, cached with the neighbours."""
        similarities = tuple(head.similarity for head, _, _ in parts)
        cache = self.neighbors.cache
        if similarities not in cache:
            cache_bytes = CACHE_BYTES // len(parts)
            cache[similarities] = [
                similarity_computer(head.similarity, head.metric_part(embeddings), cache_bytes)
                for head, _, embeddings in parts
            ]
        return cache[similarities]

    def _map_rows(self, function: Callable, empty: Tensor, whole_rows: bool = False) -> Tensor:
        """:meth:`_map_blocks` with float64 rows concatenated, `empty` if there are no queries."""
        return torch.cat([empty.double(), *self._map_blocks(function, whole_rows)])


def _tiles(head: NONAHead, *arguments: Any, candidates: Candidates | None) -> Tiles:
    """The tiles of a head of numbers or of classes, of all rows or of those that were found."""
    of_classes = isinstance(head, ClassHead)
    if candidates is None:
        return (ClassTiles if of_classes else Tiles)(head, *arguments)
    nearest = NearestClassTiles if of_classes else NearestTiles
    return nearest(head, *arguments, candidates=candidates)
