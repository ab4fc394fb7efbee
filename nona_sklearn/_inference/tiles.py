"""Tiles: the statistics of a block of queries by a block of the bank, and how they merge.

A tile fits the processor's cache, so that memory grows neither with the queries nor with the
bank. Its :class:`Extremes` are the nearest and the farthest similarity, its :class:`Partial` holds
sums of weights relative to the largest logit. Both merge in any order and grouping: tiles, threads
and shards are treated alike. The weights themselves take a second pass, after that of the sums.

The formulas are those of :mod:`~nona_sklearn.similarity`, :mod:`~nona_sklearn.softstep` and
:mod:`~nona_sklearn.attention`, in the fewest passes over the pairs and without gradients; tests
compare each with its definition. Only functions of torch are used that round an entry alike at
every position: ``exp2``, ``sigmoid``, ``logit`` and ``pow`` round differently in the body and in
the tail of a SIMD register.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from .._utils.chunks import spans, spans_of
from .._utils.threads import cached_property
from ..attention import ClassHead, NONAHead
from ..attention.functional import Pairs, adjusted_mean
from ..similarity import NEAR, SIMILARITIES, l2, log_l2, near_pairs
from ..softstep import EVALUATION_STEPS, SoftStep, equally_near
from ..weighting.base import LEAST_LOGIT, exp_below_
from .neighbors import Neighbors

#: Queries by rows of the bank in a tile: 4 MB in float32.
TILE = {"cpu": (2**7, 2**13), "cuda": (2**8, 2**16)}
CACHE_BYTES = 2**27  # for the bank's side of the product, of all networks together
LEAVE_ONE_OUT_PAIRS = 2**18  # pairs at a time for which means without a neighbour are recomputed

Similarity = Callable[[Tensor, Tensor], Tensor]


def mask_pairs_(tile: Tensor, excluded: Pairs | None, value: float) -> Tensor:
    """Write a value into a tile (q, b) at the excluded pairs."""
    if excluded is not None:
        tile[excluded] = value
    return tile


@dataclass(frozen=True)
class Extremes:
    """The nearest and the farthest similarity of each query, (q, 1)."""

    nearest: Tensor
    farthest: Tensor

    @classmethod
    def from_tile(cls, similarity: Tensor, excluded: Pairs | None = None) -> Extremes:
        """Extremes of a tile, (q, b), which is overwritten; -inf and inf if all are excluded."""
        mask_pairs_(similarity, excluded, -math.inf)
        nearest = similarity.amax(dim=1, keepdim=True)
        mask_pairs_(similarity, excluded, math.inf)
        return cls(nearest, similarity.amin(dim=1, keepdim=True))

    def merge(self, other: Extremes) -> Extremes:
        """Merge with those of another tile."""
        return Extremes(
            torch.maximum(self.nearest, other.nearest),
            torch.minimum(self.farthest, other.farthest),
        )


@dataclass(frozen=True)
class Partial:
    """Sums of weights ``exp(logit - peak)``, and of their products with c values, in float64."""

    peak: Tensor  # (q, 1), the largest logit; the least finite number where all are excluded
    sums: Tensor  # (q, 1 + c)

    @classmethod
    def from_weights(cls, peak: Tensor, weights: Tensor, values: Tensor) -> Partial:
        """Sum a tile of weights (q, b) relative to a peak; `values` (1 + c, b): with_ones."""
        return cls(peak, (values @ weights.to(values).T).T)

    def merge(self, other: Partial) -> Partial:
        """Merge with those of another tile."""
        peak = torch.maximum(self.peak, other.peak)
        ours, theirs = ((part.peak - peak).double().exp() for part in (self, other))
        return Partial(peak, self.sums * ours + other.sums * theirs)

    @property
    def total(self) -> Tensor:
        """Sum of the weights, (q, 1), not 0: without neighbours, weights are 0."""
        return self.sums[:, :1].clamp_min(torch.finfo(torch.float32).tiny)

    @property
    def share(self) -> Tensor:
        """Sum of the normalised weights, (q, 1): 1, or 0 without neighbours."""
        return self.sums[:, :1] / self.total

    @property
    def mean(self) -> Tensor:
        """Weighted means of the values, (q, c)."""
        return self.sums[:, 1:] / self.total


@dataclass(frozen=True)
class BankStatistics:
    """Statistics of a bank, for one network's head and some queries; None: not computed."""

    extremes: Extremes | None = None
    partial: Partial | None = None
    nearest: Tensor | None = None  # similarity l2 of the nearest, where adjustments fade with it
    powered: Partial | None = None  # of weights to a power, logits relative to `partial`'s peak

    def __getitem__(self, queries: slice | Tensor) -> BankStatistics:
        """Select some of the queries."""
        return BankStatistics._map(lambda tensors: tensors[0][queries], [self])

    @classmethod
    def concatenate(cls, blocks: Sequence[BankStatistics]) -> BankStatistics:
        """Concatenate blocks of queries."""
        return cls._map(torch.cat, blocks)

    @classmethod
    def _map(
        cls, function: Callable[[list[Tensor]], Tensor], several: Sequence[BankStatistics]
    ) -> BankStatistics:
        """Apply a function to each tensor of several statistics with the same fields."""

        def mapped(field: Sequence[Any]) -> Any:
            if field[0] is None:
                return None
            if isinstance(field[0], Tensor):
                return function(list(field))
            return type(field[0])(*map(mapped, _fields(field)))

        return cls(*map(mapped, _fields(several)))

    def merge(self, other: BankStatistics) -> BankStatistics:
        """Merge the statistics of two disjoint parts of a bank."""

        def merged(mine: Any, their: Any) -> Any:
            if mine is None:
                return None
            return torch.maximum(mine, their) if isinstance(mine, Tensor) else mine.merge(their)

        return BankStatistics(*(merged(*field) for field in _fields([self, other])))

    def combine(self, more: BankStatistics) -> BankStatistics:
        """Add statistics of the same bank that were not computed before."""
        fields = _fields([self, more])
        return BankStatistics(*(old if new is None else new for old, new in fields))


def _fields(several: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Each field of several dataclasses."""
    return zip(*(vars(each).values() for each in several), strict=True)


def relative_to_peak_(logits: Tensor, excluded: Pairs | None = None) -> tuple[Tensor, Tensor]:
    """Largest logits of a tile, (q, 1), and weights relative to their exponentials, in place."""
    peak = logits.amax(dim=1, keepdim=True)
    without_neighbors = peak[:, 0] == -math.inf
    peak = peak.clamp_min_(torch.finfo(logits.dtype).min)
    weights = mask_pairs_(exp_below_(logits, peak), excluded, 0.0)
    if without_neighbors.any():
        weights[without_neighbors] = 0.0
    return peak, weights


# -- similarities of a bank's tiles ------------------------------------------------------------


class BufferPool:
    """Memory reused from tile to tile: to allocate it would take as long as a product."""

    def __init__(self) -> None:
        self.cache: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}

    def get(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Uninitialised memory of a shape, of a tensor's dtype and device."""
        key = shape, like.dtype
        if key not in self.cache:
            self.cache[key] = like.new_empty(shape)
        return self.cache[key]


class SimilarityComputer:
    """Similarities of queries to all neighbours (n, d), by a function of their embeddings."""

    def __init__(self, similarity: Similarity, neighbors: Tensor):
        self.similarity, self.neighbors = similarity, neighbors

    def bind(self, query: Tensor) -> Similarities:
        """Bind a block of queries (q, d)."""
        return Similarities(self.similarity, query, self.neighbors)


class Similarities:
    """Similarities of one block of queries to slices of the neighbours.

    A result is valid until the next slice, which reuses its memory.
    """

    def __init__(self, function: Similarity, query: Tensor, neighbors: Tensor):
        self.function, self.query, self.neighbors = function, query, neighbors
        self.buffers = BufferPool()

    def compute(self, rows: slice) -> Tensor:
        """Similarities to some of the neighbours, (q, b)."""
        return self.function(self.query, self.neighbors[rows])

    def sort_keys(self, rows: slice) -> Tensor:
        """Keys (q, b) that sort neighbours as similarities do, at less cost if possible."""
        return self.compute(rows)

    def from_sort_keys(self, keys: Tensor) -> Tensor:
        """Turn sort keys into similarities."""
        return keys


class EuclideanComputer(SimilarityComputer):
    """:class:`SimilarityComputer` of l2 and log_l2 in float32, by one matrix product in float64.

    The neighbours' side of the product is computed once, if it takes at most `cache_bytes`.
    """

    def __init__(self, similarity: Similarity, neighbors: Tensor, cache_bytes: int = CACHE_BYTES):
        super().__init__(similarity, neighbors)
        # Keeps very long or short rows in float32's range. A power of two rounds nothing.
        self.scale = _power_of_two(torch.stack(neighbors.aminmax()).abs().max().double())
        n, d = neighbors.shape
        self.cache: Tensor | None = None
        if 8 * n * (d + 2) <= cache_bytes:
            cache = neighbors.new_empty(n, d + 2, dtype=torch.float64)
            for rows in spans(n, TILE["cpu"][1]):  # at once, it would take three times the memory
                cache[rows] = self._prepare(rows)
            self.cache = cache

    def bind(self, query: Tensor) -> EuclideanSimilarities:
        return EuclideanSimilarities(self, query)

    def side(self, rows: slice) -> Tensor:
        """The neighbours' side of the product, (b, d + 2)."""
        return self._prepare(rows) if self.cache is None else self.cache[rows]

    def _prepare(self, rows: slice) -> Tensor:
        # The whole formula as one product of longer rows saves two passes over the pairs.
        neighbors = self.neighbors[rows].double() / self.scale
        square = neighbors.square().sum(dim=1, keepdim=True)
        return torch.cat([neighbors, torch.ones_like(square), square], dim=1)


class EuclideanSimilarities(Similarities):
    """:class:`Similarities` of :class:`EuclideanComputer`."""

    def __init__(self, computer: EuclideanComputer, query: Tensor):
        super().__init__(computer.similarity, query, computer.neighbors)
        self.computer = computer
        length = torch.linalg.vector_norm(query.double(), dim=1, keepdim=True)
        self.scale = torch.maximum(_power_of_two(length), computer.scale)  # (q, 1)
        self.near = (NEAR * length / self.scale).square()
        query = query.double() / computer.scale
        square = query.square().sum(dim=1, keepdim=True)
        left = torch.cat([-2 * query, square, torch.ones_like(square)], dim=1)
        self.left = left * (computer.scale / self.scale).square()

    def compute(self, rows: slice) -> Tensor:
        squares = self._squares(rows)
        squares = self.buffers.get(squares.shape, self.query).copy_(squares)
        return self._to_similarity_(self._recompute_near_pairs_(squares, rows))

    def sort_keys(self, rows: slice) -> Tensor:
        """Negative squared distances over the squared scale, in float64."""
        return self._recompute_near_pairs_(self._squares(rows), rows).neg_()

    def from_sort_keys(self, keys: Tensor) -> Tensor:
        return self._to_similarity_(-keys.to(self.query.dtype))

    def _squares(self, rows: slice) -> Tensor:
        side = self.computer.side(rows)
        out = self.buffers.get((len(self.left), len(side)), self.left)
        return torch.mm(self.left, side.T, out=out)

    def _recompute_near_pairs_(self, squares: Tensor, rows: slice) -> Tensor:
        """Recompute from differences the distances that the product's rounding would decide."""
        for i, j in near_pairs(squares, self.near):
            difference = self.query[i].double() - self.neighbors[rows][j].double()
            distance = torch.linalg.vector_norm(difference, dim=1) / self.scale[i, 0]
            squares[i, j] = distance.square().to(squares.dtype)
        return squares

    def _to_similarity_(self, squares: Tensor) -> Tensor:
        distance = squares.clamp_min_(0).sqrt_()
        if self.function is l2:
            return distance.mul_(-self.scale.to(distance.dtype))
        distance.mul_(self.scale.to(distance.dtype))
        return distance.clamp_min_(torch.finfo(distance.dtype).tiny).log_().neg_()


def similarity_computer(
    similarity: str, neighbors: Tensor, cache_bytes: int = CACHE_BYTES
) -> SimilarityComputer:
    """The fastest computer of a registered similarity to these neighbours (n, d)."""
    function = SIMILARITIES[similarity]
    if function in (l2, log_l2) and neighbors.dtype == torch.float32 and len(neighbors):
        return EuclideanComputer(function, neighbors, cache_bytes)
    return SimilarityComputer(function, neighbors)


def _power_of_two(length: Tensor) -> Tensor:
    """The next power of two, to the last bit."""
    length = length.clamp_min(torch.finfo(torch.float32).tiny)
    return length / torch.frexp(length).mantissa


# -- one head and one block of queries ---------------------------------------------------------


class Tiles:
    """The tiles of one network's head and one block of queries.

    Queries (q, d) and neighbours are in the head's space, and the similarity computer is that of
    its metric part. `statistics` are those of a larger bank, of which the neighbours are a part.
    """

    def __init__(
        self,
        head: NONAHead,
        query: Tensor,
        neighbors: Neighbors,
        computer: SimilarityComputer,
        excluded: Pairs | None = None,
        statistics: BankStatistics | None = None,
    ):
        self.head, self.query, self.neighbors = head, head.metric_part(query), neighbors
        self.similarities = computer.bind(self.query)
        self._excluded = excluded
        self.temperature = float(head.temperature)
        self.adjustment_scale = neighbors.adjustment_scale if head.n_adjusted else None
        self._query_embeddings = query
        self._statistics = statistics or BankStatistics()
        if self._statistics.extremes is not None:
            self.extremes = self._statistics.extremes
        if self._statistics.nearest is not None:
            self.nearest = self._statistics.nearest

    @cached_property
    def spans(self) -> list[slice]:
        """Rows of the bank, tile by tile."""
        n_neighbors = len(self.neighbors)
        return spans(n_neighbors, tile_shape(self.query.device, n_neighbors)[1])

    def excluded(self, rows: slice) -> Pairs | None:
        """Positions in a tile of its excluded pairs."""
        if self._excluded is None:
            return None
        query, neighbor = self._excluded
        inside = (neighbor >= rows.start) & (neighbor < rows.stop)
        return query[inside], neighbor[inside] - rows.start

    @cached_property
    def extremes(self) -> Extremes:
        """The nearest and the farthest similarity of each query."""
        keys = reduce(
            Extremes.merge,
            (
                Extremes.from_tile(self.similarities.sort_keys(rows), self.excluded(rows))
                for rows in self.spans
            ),
        )
        return Extremes(
            *(
                self.similarities.from_sort_keys(values).to(self.query)
                for values in (keys.nearest, keys.farthest)
            )
        )

    @cached_property
    def _step_scale(self) -> tuple[Tensor, Tensor]:
        """Start of the step's scale, and one over its length, (q, 1)."""
        nearest, farthest = self.extremes.nearest, self.extremes.farthest
        tied = equally_near(nearest, farthest)  # all nearest, x = 1, as in scale_similarity
        slope = (nearest - farthest).reciprocal().masked_fill(tied, 1.0)
        return farthest.masked_fill(tied, -math.inf), slope

    def logits(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield (rows of the bank, logarithms of their weights (q, b)), tile by tile.

        They are not normalised, may be overwritten, and are valid until the next tile.
        """
        if self.head.needs_whole_rows:
            yield slice(0, len(self.neighbors)), self._whole_row_logits()
            return
        for rows in self.spans:
            logits = self._tile_logits(rows)
            if self.neighbors.log_prior is not None:
                logits = logits.add_(self.neighbors.log_prior[rows])
            yield rows, mask_pairs_(logits, self.excluded(rows), -math.inf)

    def relative_weights(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield (rows of the bank, peaks (q, 1), weights (q, b) relative to their exponentials).

        Weights may be overwritten, and are valid until the next tile.
        """
        head = self.head
        if head.needs_whole_rows or head.step is not None or self.neighbors.log_prior is not None:
            for rows, logits in self.logits():
                yield rows, *relative_to_peak_(logits, self.excluded(rows))
            return
        tops = []
        for rows in self.spans:  # without logarithms, which some weightings do not need
            excluded = self.excluded(rows)
            s = mask_pairs_(self._scaled(self.similarities.compute(rows)), excluded, -math.inf)
            top = s.amax(dim=1, keepdim=True).clamp_min_(torch.finfo(s.dtype).min)
            tops.append(top)
            peak = head.weighting.logits(top, self._scaled_nearest)
            peak = peak.clamp_min(torch.finfo(s.dtype).min)
            weights = head.weighting.relative_(s, top, self._scaled_nearest)
            yield rows, peak, mask_pairs_(weights, excluded, 0.0)
        if head.similarity == "l2" and self._statistics.nearest is None:  # saves another pass
            self.nearest = torch.cat(tops, dim=1).amax(dim=1, keepdim=True) * self.temperature

    def _tile_logits(self, rows: slice) -> Tensor:
        similarity = self.similarities.compute(rows)
        log_step = None if self.head.step is None else self._log_step(self.head.step, similarity)
        logits = self.head.weighting.logits(self._scaled(similarity), self._scaled_nearest)
        return logits if log_step is None else log_step.add_(logits)

    def _scaled(self, similarity: Tensor) -> Tensor:
        """Similarities over the temperature, in place."""
        return self.head.apply_nugget(similarity).mul_(1 / self.temperature)

    @cached_property
    def _scaled_nearest(self) -> Tensor | None:
        """Similarity of the nearest neighbour over the temperature, if a weighting needs it."""
        if not self.head.weighting.needs_nearest:
            return None
        return self.head.apply_nugget(self.extremes.nearest) / self.temperature

    @cached_property
    def _thresholds(self) -> tuple[Tensor, ...]:
        assert self.head.step is not None
        return self.head.step.thresholds(self.query)

    def _log_step(self, step: SoftStep, similarity: Tensor) -> Tensor:
        farthest, slope = self._step_scale
        return EVALUATION_STEPS[step.step](similarity - farthest, slope, *self._thresholds)

    def _whole_row_logits(self) -> Tensor:
        similarity, excluded = self.whole()
        log_prior = self.neighbors.log_prior
        neighbors = self.head.metric_part(self.neighbors.embeddings)
        return self.head.weigh(similarity, self.query, neighbors, excluded, log_prior).log_()

    def whole(self) -> tuple[Tensor, Tensor | None]:
        """Similarities to all neighbours, (q, n), and a mask of excluded pairs."""
        # Allocated at once: small pieces kept between tiles would fragment the heap.
        similarity = self.query.new_empty(len(self.query), len(self.neighbors))
        for rows in self.spans:
            similarity[:, rows] = self.similarities.compute(rows)
        if self._excluded is None:
            return similarity, None
        return similarity, mask_pairs_(torch.zeros_like(similarity).bool(), self._excluded, True)

    def step_sum(self) -> Tensor:
        """Sum of each query's steps over the bank, (q,): its learned number of neighbours."""
        assert self.head.step is not None
        similarity, excluded = self.whole()
        return self.head.step(similarity, self.query, excluded).double().exp().sum(dim=1)

    def partial(self, values: Tensor | None = None) -> Partial:
        """Sums over all tiles, of values (as :func:`with_ones`) and then of any adjustments.

        By default of the weights alone.
        """

        def summands(rows):
            if values is None:
                return self.query.new_ones(1, rows.stop - rows.start, dtype=torch.float64)
            return self._with_adjustments(values[:, rows], rows)

        return reduce(
            Partial.merge,
            (
                Partial.from_weights(peak, self._to_float64(weights), summands(rows))
                for rows, peak, weights in self.relative_weights()
            ),
        )

    def _to_float64(self, weights: Tensor) -> Tensor:
        """Weights of a tile (q, b) in float64."""
        buffer = self.similarities.buffers.get(weights.shape, weights.new_empty(0).double())
        return buffer.copy_(weights)

    def _with_adjustments(self, values: Tensor, rows: slice = slice(None)) -> Tensor:
        """Some rows' values and then their adjustments, if there are any."""
        if not self.sums_adjustments:
            return values
        return torch.cat([values, self._adjustments(self.neighbors.embeddings, rows).T])

    def mean(self, values: Tensor) -> Tensor:
        """Adjusted weighted means of values, (q, c), passed as :func:`with_ones`."""
        partial = self._whole_partial(values)
        return self._prediction(partial.mean, partial.share)

    def _whole_partial(self, values: Tensor | None = None) -> Partial:
        """:meth:`partial`, of the larger bank if there is one."""
        whole = self._statistics.partial
        return self.partial(values) if whole is None else whole

    def partial_sums(self, values: Tensor) -> BankStatistics:
        """Statistics to be merged with those of other neighbours."""
        partial = self.partial(values)
        fades = self.adjusts and bool(self.head.trust_radius.isfinite())
        return BankStatistics(partial=partial, nearest=self.nearest if fades else None)

    def _prediction(
        self, means: Tensor, share: Tensor | float, queries: Tensor | slice = slice(None)
    ) -> Tensor:
        """Predictions (q, c) from weighted means of values and adjustments."""
        if not self.adjusts:
            return means
        plain, expected = means.chunk(2, dim=1)
        own, attenuation = self.query_adjustments[queries], self._attenuation[queries]
        return adjusted_mean(plain, expected, share, own, attenuation)

    def plain_mean(self, values: Tensor) -> Tensor:
        """Weighted means of values, (q, c), not adjusted, passed as :func:`with_ones`."""
        return self.partial(values).mean[:, : len(values) - 1]

    @property
    def sums_adjustments(self) -> bool:
        """Whether the neighbours' adjustments are averaged beside their values."""
        return self.adjusts

    def adjusted(self, rows: slice | Tensor) -> Tensor:
        """Adjusted values of rows, (q, b, c), or (1, b, c) if nothing is adjusted.

        `rows` are a slice, the same for all queries, or positions of shape (q, b).
        """
        values = self.neighbors.columns[rows]
        if not self.adjusts:
            return values.reshape(-1, *values.shape[-2:])
        theirs = self._adjustments(self.neighbors.embeddings, rows)
        return values + self._attenuation[:, :, None] * (self.query_adjustments[:, None] - theirs)

    def changes(self, mean: Tensor) -> Iterator[Tensor]:
        """Yield the change of each output's prediction `mean` (q, c) without each row, (q, m)."""
        weights = self.shares()
        changes = self._proportional_changes(weight_odds(weights), mean)
        if self.head.keeps_proportions:
            yield from changes
            return
        similarity, excluded = self.whole()
        affects_other_weights = self.head.affects_other_weights(weights, similarity, excluded)
        found = self._leave_one_out_means(affects_other_weights, similarity, excluded)
        found = found - mean[affects_other_weights.nonzero()[:, 0]]
        for change, of_output in zip(changes, found.T, strict=True):
            yield change.masked_scatter(affects_other_weights, of_output)

    def _leave_one_out_means(
        self, leaving: Tensor, similarity: Tensor, excluded: Tensor | None
    ) -> Tensor:
        """Predictions without one neighbour, (p, c), by the definition, for p pairs of `leaving`.

        A query's only neighbour is kept.
        """
        values = self._with_adjustments(self.neighbors.summands)[1:]
        neighbors = self.head.metric_part(self.neighbors.embeddings)
        queries, rows = leaving.nonzero(as_tuple=True)
        means = [values.new_zeros(0, self.neighbors.columns.shape[1])]
        for pairs in spans(len(queries), max(1, LEAVE_ONE_OUT_PAIRS // len(neighbors))):
            query, row = queries[pairs], rows[pairs, None]
            itself = torch.zeros_like(leaving[query]).scatter_(1, row, True)
            out = itself if excluded is None else itself | excluded[query]
            weights = self.head.weigh(
                similarity[query], self.query[query], neighbors, out, self.neighbors.log_prior
            )
            total = weights.double().sum(dim=1, keepdim=True)
            weights = torch.where(total > 0, weights / total, itself.double())
            means.append(self._prediction(weights @ values.T, 1.0, query))
        return torch.cat(means)

    def _proportional_changes(self, share: Tensor, mean: Tensor) -> Iterator[Tensor]:
        """:meth:`changes` if others take a row's weight in proportion to theirs.

        `share` (q, n) is its weight over the weight of all others.
        """
        adjusted = self.adjusted_values()
        for j in range(adjusted.shape[2]):
            yield share * (mean[:, j, None] - adjusted[..., j])

    def _adjustments(self, embeddings: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        """Adjustments g of some rows, (n, c), in units of the values."""
        assert self.adjustment_scale is not None
        return self.adjustment_scale * self.head.adjustments(embeddings)[rows].double()

    @cached_property
    def query_adjustments(self) -> Tensor:
        """Adjustments g of the queries, (q, c)."""
        return self._adjustments(self._query_embeddings)

    @property
    def adjusts(self) -> bool:
        """Whether values are adjusted."""
        return self.adjustment_scale is not None

    @property
    def moves_values(self) -> bool:
        """Whether :meth:`adjusted` values are others than the neighbours' own."""
        return self.adjusts

    @cached_property
    def _attenuation(self) -> Tensor:
        """Factor of each query's adjustments, (q, 1), less than 1 far from the bank."""
        if not self.head.trust_radius.isfinite():
            return self.query_adjustments.new_ones(len(self.query_adjustments), 1)
        return self.head.attenuation(-self.nearest.double())

    @cached_property
    def nearest(self) -> Tensor:
        """Similarity l2 of the nearest neighbour, (q, 1)."""
        if self.head.similarity == "l2":
            return self.extremes.nearest
        return self._nearest_by_l2()

    def _nearest_by_l2(self) -> Tensor:
        metric = self.head.metric_part(self.neighbors.embeddings)
        nearest = [
            mask_pairs_(l2(self.query, metric[rows]), self.excluded(rows), -math.inf).amax(dim=1)
            for rows in self.spans
        ]
        return torch.stack(nearest, dim=1).amax(dim=1, keepdim=True)

    # -- all rows of the bank at once --------------------------------------------------------

    @property
    def positions(self) -> Tensor | None:
        """Rows of the columns of what follows, (q, m); None: all rows of the bank."""
        return None

    def shares(self, power: float = 1.0) -> Tensor:
        """Weights to a power, (q, m) in float64, as shares of their sum in the whole bank."""
        return self.normalized(self._logits, power)

    @cached_property
    def _logits(self) -> Tensor:
        return self.whole_logits()

    def adjusted_values(self) -> Tensor:
        """Adjusted values, (q, m, c), or (1, m, c) if nothing is adjusted."""
        return self.adjusted(slice(0, len(self.neighbors)))

    def whole_logits(self) -> Tensor:
        """Logarithms of all weights, (q, n), relative to the largest in the whole bank."""
        logits, whole = concatenate_tiles(self.logits()), self._statistics.partial
        return logits.sub_(logits.amax(dim=1, keepdim=True) if whole is None else whole.peak)

    def powered(self, logits: Tensor, power: float) -> Tensor:
        """Logarithms of weights to a power, (q, n), from :meth:`whole_logits`.

        The prior is not taken to the power: a row of weight 2 stays two rows.
        """
        log_prior = self.neighbors.log_prior
        logits = logits * power
        return logits if log_prior is None or power == 1 else logits + (1 - power) * log_prior

    def normalized(self, logits: Tensor, power: float = 1.0) -> Tensor:
        """Weights to a power, (q, n) in float64, as shares of their sum in the whole bank."""
        whole = self._whole_sum(power)
        logits = self.powered(logits, power)
        peak = logits.amax(dim=1, keepdim=True) if whole is None else whole.peak
        weights = _exp_(logits.sub_(peak)).double()
        return weights / (weights.sum(dim=1, keepdim=True) if whole is None else whole.total)

    def _whole_sum(self, power: float) -> Partial | None:
        """Sum of weights to a power in the larger bank, of logits relative to the largest."""
        if power != 1 or self._statistics.partial is None:
            return self._statistics.powered
        partial = self._statistics.partial
        return replace(partial, peak=torch.zeros_like(partial.peak))

    def powered_sums(self, power: float) -> BankStatistics:
        """Sums of weights to a power, to be merged with those of other neighbours."""
        logits = self.powered(self.whole_logits(), power)
        ones = logits.new_ones(1, logits.shape[1], dtype=torch.float64)
        return BankStatistics(powered=Partial.from_weights(*relative_to_peak_(logits), ones))


def concatenate_tiles(tiles: Iterable[tuple[slice, Tensor]]) -> Tensor:
    """Tiles (q, b) of all rows as one tensor (q, n)."""
    return torch.cat([tile.clone() for _, tile in tiles], dim=1)  # the next overwrites each


class ClassTiles(Tiles):
    """:class:`Tiles` of a :class:`~nona_sklearn.attention.ClassHead`, whose values are one-hot."""

    head: ClassHead

    @property
    def sums_adjustments(self) -> bool:
        return False  # `h` depends on the query alone

    @property
    def moves_values(self) -> bool:
        return True

    @property
    def smoothing(self) -> Tensor | float:
        """Share of the classes' frequencies in each probability."""
        return self.head.share_of_prior(self.neighbors.adjustment_scale)

    @cached_property
    def masses(self) -> Tensor:
        """Weight of each class, (q, C)."""
        return self._whole_partial(self.neighbors.summands).mean

    @cached_property
    def odds(self) -> Tensor:
        """Factor of the weight of each class, (q, C)."""
        if not self.adjusts:
            return torch.ones_like(self.masses)
        return self.head.odds(self.query_adjustments, self._attenuation)

    def mean(self, values: Tensor) -> Tensor:
        """Probabilities, (q, C)."""
        self.masses = self._whole_partial(values).mean
        return self._prediction(self.masses, 1.0)

    def _prediction(
        self, means: Tensor, share: Tensor | float, queries: Tensor | slice = slice(None)
    ) -> Tensor:
        return self.head.probabilities(means, self.smoothing, self.odds[queries])

    def adjusted(self, rows: slice | Tensor) -> Tensor:
        """What a unit of weight of some rows adds to each probability, (q, b, C)."""
        total = self.head.totals(self.head.smoothed(self.masses, self.smoothing) * self.odds)
        scale = (1 - self.smoothing) * self.odds / total
        return self.neighbors.columns[rows] * scale[:, None]

    def _proportional_changes(self, share: Tensor, mean: Tensor) -> Iterator[Tensor]:
        columns, kept = self.neighbors.columns, 1 - self.smoothing
        votes = self.head.smoothed(self.masses, self.smoothing) * self.odds
        of_rows = kept * self.masses * self.odds
        for output in spans_of(self.head.sizes):
            labels, cast, theirs = columns[:, output], votes[:, output], of_rows[:, output]
            own = kept * (self.odds[:, output] @ labels.T)  # (q, b), of each row by itself
            # Without the row, the others' weights grow by its share.
            left = cast.sum(dim=1, keepdim=True) + share * (theirs.sum(dim=1, keepdim=True) - own)
            for c in range(labels.shape[1]):
                still = cast[:, c, None] + share * (theirs[:, c, None] - own * labels[:, c])
                yield still / left - mean[:, output][:, c, None]


def weight_odds(weights: Tensor) -> Tensor:
    """Weight over the weight of all others, ``w / (1 - w)``."""
    # Without its only neighbour, a prediction is undefined.
    weights = weights.double().clamp_max(1 - torch.finfo(torch.float32).eps)
    return weights / (1 - weights)


def _exp_(logits: Tensor) -> Tensor:
    """Weights, in place of their logits; 0 if negligible."""
    weights = logits.clamp_min_(LEAST_LOGIT).exp_()
    return torch.threshold_(weights, 2 * math.exp(LEAST_LOGIT), 0.0)


def tile_shape(device: torch.device, n_neighbors: int) -> tuple[int, int]:
    """Numbers of queries and of rows of the bank in a tile: more queries if rows are few."""
    n_queries, width = TILE.get(device.type, TILE["cpu"])
    few = min(4, max(1, width // max(1, n_neighbors)))
    return n_queries * few, width
