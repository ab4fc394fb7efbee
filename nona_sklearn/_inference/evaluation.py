"""Evaluation of a head for queries and neighbours: predictions, weights, influence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .._utils.chunks import spans
from .._utils.threads import WORKERS, cached_property
from ..attention import AverageHead, NONAHead
from ..ranking import largest
from .neighbors import Exclusion, Neighbors
from .tiles import (
    CACHE_BYTES,
    BankStatistics,
    SimilarityComputer,
    Tiles,
    concatenate_tiles,
    make_tiles,
    mask_pairs_,
    similarity_computer,
    tile_shape,
)

LEAST_QUERY_BLOCK = 32  # fewer queries make a matrix product inefficient
WHOLE_ROW_PAIRS = 2**20  # pairs at a time where a query needs its weights for the whole bank
SELECTION_ROUNDS, LEAST_SHARE = 20, 0.01


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A head evaluated for some queries and neighbours.

    :meth:`attend` is the definition, with gradients and all pairs at once. The other methods
    stream over tiles, and evaluate the mean of the networks' weights.

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
    """

    head: NONAHead | AverageHead
    neighbors: Neighbors
    query: Tensor
    exclusion: Exclusion | None = None
    statistics: tuple[BankStatistics, ...] | None = None

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: Tensor | np.ndarray) -> Evaluation:
        """Select some of the queries."""
        exclusion = self.exclusion
        if exclusion is not None:
            exclusion = replace(exclusion, queries=exclusion.queries[rows])
        rows = torch.as_tensor(rows)
        statistics = self.statistics and tuple(each[rows] for each in self.statistics)
        return replace(self, query=self.query[rows], exclusion=exclusion, statistics=statistics)

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

    def sparse_weights(self, tolerance: float = 0.0) -> sparse.csr_array:
        """Weights (q, n) above a tolerance, in float64, normalised to sum to 1."""

        def compressed(_, networks):
            tiles = [
                sparse.csr_array(torch.threshold_(tile, tolerance, 0.0).cpu().numpy())
                for _, tile in _mean_weights(networks)
            ]
            return sparse.hstack(tiles, format="csr", dtype=np.float64)

        empty = sparse.csr_array((0, len(self.neighbors)))
        weights = sparse.vstack([empty, *self._map_blocks(compressed)], format="csr")
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) and adjusted values (q, k, n_outputs) of k neighbours.

        These are the heaviest, heaviest first.
        """
        columns = self.neighbors.columns

        def merge_heaviest(queries, networks):
            n_queries = queries.stop - queries.start
            weights = self.query.new_full((n_queries, k), -1.0)
            positions = torch.zeros_like(weights, dtype=torch.long)
            each = weights.new_zeros(len(networks), n_queries, k)
            for rows, tiles in _each_network(networks):
                mean = mask_pairs_(
                    _mean(tiles), networks[0].excluded(rows), -1.0
                )  # after weights of 0
                found, columns_found = largest(mean, min(k, mean.shape[1]))
                weights, best = torch.cat([weights, found], dim=1).topk(k, dim=1)
                found_rows = columns_found + rows.start
                positions = torch.cat([positions, found_rows], dim=1).gather(1, best)
                here = torch.stack([tile.gather(1, columns_found) for tile in tiles])
                each = torch.cat([each, here], dim=2).gather(2, best.expand(len(networks), -1, -1))
            values = _mean_adjusted(networks, positions, each)
            return torch.cat([weights[:, None], positions[:, None], values.mT], dim=1)

        empty = self.query.new_zeros(0, 2 + columns.shape[1], k)
        weights, positions, values = self._map_rows(merge_heaviest, empty).tensor_split(
            [1, 2], dim=1
        )
        return weights[:, 0], positions[:, 0].long(), values.mT

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

        def effective_size(_, networks):
            squares = [tile.double().square().sum(dim=1) for _, tile in _mean_weights(networks)]
            return sum(squares).reciprocal()

        return self._map_rows(effective_size, self.query.new_zeros(0))

    def support_sizes(self) -> Tensor:
        """Number of neighbours of positive weight, (q,)."""

        def count(_, networks):
            return sum((tile > 0).sum(dim=1) for _, tile in _mean_weights(networks))

        return self._map_rows(count, self.query.new_zeros(0)).long()

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
        values = self.neighbors.columns
        sums = self.neighbors.summands
        totals, adding = values.new_zeros(len(values), 3), Lock()

        def add_influence(queries, networks):
            means = [tiles.mean(sums) for tiles in networks]
            for rows, each in weights_of(networks):
                weight = sum(each).double().sum(dim=0) / len(networks)
                influence = torch.stack([weight, 0 * weight, 0 * weight], dim=1)
                changes = (
                    tiles.leave_one_out_changes(rows, weights, mean)
                    for tiles, weights, mean in zip(networks, each, means, strict=True)
                )
                for j, of_networks in enumerate(zip(*changes, strict=True)):
                    change = sum(of_networks) / len(networks)
                    residual = 0.0 if residuals is None else residuals[queries, j, None]
                    influence[:, 1] += change.square().sum(dim=0)
                    influence[:, 2] += (change * (change + 2 * residual)).sum(dim=0)
                with adding:
                    totals[rows] += influence

        whole_rows = not all(head.keeps_proportions for head, _, _ in self.split_by_head)
        weights_of = _whole_rows if whole_rows else _each_network
        self._map_blocks(add_influence, whole_rows)
        weight, change, error = totals.unbind(dim=1)
        return weight, change / len(self), error / len(self)

    def received_weights(self, importance: Tensor) -> Tensor:
        """Each neighbour's weight, (n,), summed over queries weighted by `importance` (q,)."""
        totals, adding = importance.new_zeros(len(self.neighbors)), Lock()

        def add_weights(queries, networks):
            for rows, tile in _mean_weights(networks):
                weights = importance[queries] @ tile.double()
                with adding:
                    totals[rows] += weights

        self._map_blocks(add_weights)
        return totals

    def representatives(self, n_rows: int) -> np.ndarray:
        """Positions of neighbours that together carry much of the queries' weights, (n_rows,).

        The objective is the sum over the queries of the square root of the weight of kept rows:
        the root gives diminishing returns for further rows of a query. It is maximised greedily,
        in SELECTION_ROUNDS rounds. Ties are broken at random.
        """
        shuffled = torch.from_numpy(np.random.RandomState(0).permutation(len(self.neighbors)))
        shuffled = shuffled.to(self.query.device)
        kept = torch.zeros(len(self.neighbors), dtype=torch.float64, device=self.query.device)
        for done in range(1, SELECTION_ROUNDS + 1):
            share = replace(self, neighbors=self.neighbors.with_values(kept)).plain_mean()
            gain = self.received_weights((share + LEAST_SHARE).rsqrt())
            gain.masked_fill_(kept > 0, -1.0)
            missing = n_rows * done // SELECTION_ROUNDS - int(kept.sum())
            kept[shuffled[gain[shuffled].topk(missing).indices]] = 1.0
        return kept.nonzero()[:, 0].cpu().numpy()

    def map_weighted_values(self, function: Callable[[slice, WeightedValues], Any]) -> list[Any]:
        """Apply a function to each block of queries: their slice, and their weighted values."""
        return self._map_blocks(
            lambda queries, networks: function(queries, WeightedValues(networks)), whole_rows=True
        )

    # -- blocks of queries -----------------------------------------------------------------

    def _map_blocks(
        self, function: Callable[[slice, list[Tiles]], Any], whole_rows: bool = False
    ) -> list[Any]:
        """Apply a function to each block of queries: their slice, and each network's tiles.

        Tiles are too small to share among threads, so on the CPU each thread has blocks of its
        own. With `whole_rows`, the function holds each query's weights for the whole bank at once,
        so that blocks must be small.
        """
        neighbors, parts = self.neighbors, self.split_by_head
        computers = self._similarity_computers(parts)
        n_threads = torch.get_num_threads() if self.query.device.type == "cpu" else 1
        single_thread = n_threads == 1

        inference = torch.is_inference_mode_enabled()  # of the caller's thread

        @torch.inference_mode(inference)
        @torch.no_grad()
        def apply(queries):
            excluded = None if self.exclusion is None else self.exclusion.pairs(queries)
            statistics = self.statistics or [BankStatistics()] * len(parts)
            networks = [
                make_tiles(
                    head,
                    query[queries],
                    replace(neighbors, embeddings=z),
                    computer,
                    excluded,
                    whole[queries],
                )
                for (head, query, z), computer, whole in zip(
                    parts, computers, statistics, strict=True
                )
            ]
            return function(queries, networks)

        most, _ = tile_shape(self.query.device, len(neighbors))
        size = min(most, max(LEAST_QUERY_BLOCK, math.ceil(len(self) / n_threads)))
        if whole_rows or any(head.needs_whole_rows for head, _, _ in parts):
            at_once = max(1, WHOLE_ROW_PAIRS // max(1, len(neighbors)))
            size, n_threads = min(size, at_once), min(n_threads, at_once)
        blocks = spans(len(self), size)
        if single_thread:
            return [apply(queries) for queries in blocks]
        return WORKERS.map(apply, blocks, n_threads)

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


class WeightedValues:
    """All weights and adjusted values of a block of queries, in float64."""

    def __init__(self, networks: list[Tiles]):
        self.networks = networks
        self.logits = [tiles.whole_logits() for tiles in networks]

    def __len__(self) -> int:
        return len(self.logits[0])

    def weights(self, power: float = 1.0) -> Tensor:
        """The mean of the networks' weights, each taken to a power, (q, n)."""
        return _mean(self._of_networks(power))

    def _of_networks(self, power: float = 1.0) -> list[Tensor]:
        pairs = zip(self.networks, self.logits, strict=True)
        return [tiles.normalized(logits, power) for tiles, logits in pairs]

    @cached_property
    def values(self) -> Tensor:
        """Adjusted values, (q, n, n_outputs), or (1, n, n_outputs) where nothing is adjusted."""
        values = self.networks[0].neighbors.columns[None]
        if not self.networks[0].adjusts:
            return values
        all_rows = slice(0, values.shape[1])
        return _mean_adjusted(self.networks, all_rows, torch.stack(self._of_networks()))


def _mean_adjusted(networks: list[Tiles], rows: slice | Tensor, weights: Tensor) -> Tensor:
    """Adjusted values of rows, (q, b, c), averaged over networks by their weights (K, q, b).

    Where all weights are 0, it is a plain average.
    """
    total = weights.sum(dim=0)
    share = torch.where(total > 0, weights / total, 1 / len(networks))
    values = networks[0].neighbors.columns[rows]
    return values + sum(  # so that rounded shares leave values unchanged if nothing is adjusted
        s[..., None] * (tiles.adjusted(rows) - values)
        for s, tiles in zip(share.double(), networks, strict=True)
    )


def _mean(each: list[Tensor]) -> Tensor:
    """The mean of the networks' tiles; a single one is returned as it is."""
    return sum(each[1:], each[0]).div_(len(each))


def _mean_weights(networks: list[Tiles]) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows of the bank, the networks' mean weights (q, b)), tile by tile."""
    for rows, each in _each_network(networks):
        yield rows, _mean(each)


def _each_network(networks: list[Tiles]) -> Iterator[tuple[slice, list[Tensor]]]:
    """Yield (rows of the bank, the weights (q, b) of each network), tile by tile."""
    for tiles in zip(*(part.weights() for part in networks), strict=True):
        yield tiles[0][0], [weights for _, weights in tiles]


def _whole_rows(networks: list[Tiles]) -> Iterator[tuple[slice, list[Tensor]]]:
    """:func:`_each_network` of all rows in one tile."""
    weights = [concatenate_tiles(part.weights()) for part in networks]
    yield slice(0, weights[0].shape[1]), weights
