"""Evaluation: what each tile of a bank says of a block of queries, and how tiles add up.

A tile is a block of queries by a block of the bank, small enough for the processor's cache, so
that memory does not grow with either. What a tile says is its :class:`Extremes`, the nearest and
the farthest similarity, and its :class:`Partial`, sums of weights relative to its largest logit.
Both merge in any order and grouping: tiles, threads and shards are the same thing. Whoever wants
the weights themselves walks over the tiles once more, knowing their sum.

The formulas are those of :mod:`~nona_sklearn.similarity`, :mod:`~nona_sklearn.softstep` and
:mod:`~nona_sklearn.attention`, in the fewest passes over the pairs and without gradients; tests
tie each to its definition. Of torch's functions we take only those that give an entry the same
digits wherever it lies: ``exp2``, ``sigmoid``, ``logit`` and ``pow`` round differently in a
SIMD register's body and in its tail.
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
from .._utils.settings import cached_property
from ..attention import ClassHead, NONAHead
from ..attention.functional import Pairs, adjusted_mean
from ..similarity import NEAR, SIMILARITIES, l2, log_l2, near_pairs
from ..softstep import EVALUATION_STEPS, SoftStep, equally_near
from ..weighting.base import LEAST_LOGIT, exp_below_
from .neighbors import Neighbors

#: Queries by rows of the bank in a tile, which fits a processor's cache: 4 MB in float32.
TILE = {"cpu": (2**7, 2**13), "cuda": (2**8, 2**16)}
KEPT_BYTES = 2**27  # of a bank's side of a product, all networks together, from call to call
ENTRIES_WITHOUT = 2**18  # pairs at a time where answers without a neighbour are found anew


Similarity = Callable[[Tensor, Tensor], Tensor]


def mask_pairs_(tile: Tensor, excluded: Pairs | None, value: float) -> Tensor:
    """Write a value into a tile (q, b) wherever two must not meet."""
    if excluded is not None:
        tile[excluded] = value
    return tile


@dataclass(frozen=True)
class Extremes:
    """The nearest and the farthest similarity of each query, (q, 1)."""

    nearest: Tensor
    farthest: Tensor

    @classmethod
    def of_tile(cls, similarity: Tensor, excluded: Pairs | None = None) -> Extremes:
        """Look at one tile, (q, b), which is overwritten. Of no admitted one: -inf and inf."""
        mask_pairs_(similarity, excluded, -math.inf)
        nearest = similarity.amax(dim=1, keepdim=True)
        mask_pairs_(similarity, excluded, math.inf)
        return cls(nearest, similarity.amin(dim=1, keepdim=True))

    def merge(self, other: Extremes) -> Extremes:
        """What both say together."""
        return Extremes(
            torch.maximum(self.nearest, other.nearest),
            torch.minimum(self.farthest, other.farthest),
        )


@dataclass(frozen=True)
class Partial:
    """Sums of weights, and of weighted values, relative to the largest logit.

    Parameters
    ----------
    peak : Tensor of shape (q, 1)
        The largest logit; the least finite number where nobody is admitted.
    sums : Tensor of shape (q, 1 + c)
        Sum of ``exp(logit - peak)``, and of its products with the c values, in float64.
    """

    peak: Tensor
    sums: Tensor

    @classmethod
    def of_weights(cls, peak: Tensor, weights: Tensor, values: Tensor) -> Partial:
        """Sum one tile, (q, b), of weights over the exponential of a peak (q, 1).

        `values` are of shape (1 + c, b), in float64, the first of them ones: :func:`with_ones`.
        """
        return cls(peak, (values @ weights.to(values).T).T)

    def merge(self, other: Partial) -> Partial:
        """What both say together."""
        peak = torch.maximum(self.peak, other.peak)
        ours, theirs = ((part.peak - peak).double().exp() for part in (self, other))
        return Partial(peak, self.sums * ours + other.sums * theirs)

    @property
    def total(self) -> Tensor:
        """Sum of the weights, (q, 1); not 0, so that who is alone has weights of 0."""
        return self.sums[:, :1].clamp_min(torch.finfo(torch.float32).tiny)

    @property
    def share(self) -> Tensor:
        """Sum of the weights after they are normalised, (q, 1): 1, or 0 of nobody."""
        return self.sums[:, :1] / self.total

    @property
    def mean(self) -> Tensor:
        """Weighted means of the values, (q, c)."""
        return self.sums[:, 1:] / self.total


@dataclass(frozen=True)
class Known:
    """What one network's head knows of some queries from a bank of which tiles are a part.

    Parameters
    ----------
    extremes : Extremes, optional
        The nearest and the farthest similarity.
    partial : Partial, optional
        The sums of weights and values.
    nearest : Tensor of shape (q, 1), optional
        Similarity l2 of the nearest neighbour, where adjustments fade with it.
    powered : Partial, optional
        The sum of the weights to a power, of logits relative to `partial`'s peak.
    """

    extremes: Extremes | None = None
    partial: Partial | None = None
    nearest: Tensor | None = None
    powered: Partial | None = None

    def __getitem__(self, queries: slice | Tensor) -> Known:
        """Select some of the queries."""
        return Known._of_each(lambda tensors: tensors[0][queries], [self])

    @classmethod
    def join(cls, blocks: Sequence[Known]) -> Known:
        """Put blocks of queries one behind the other."""
        return cls._of_each(torch.cat, blocks)

    @classmethod
    def _of_each(cls, make: Callable[[list[Tensor]], Tensor], several: Sequence[Known]) -> Known:
        """Make each tensor from those of several that know the same."""

        def made(parts: Sequence[Any]) -> Any:
            if parts[0] is None:
                return None
            if isinstance(parts[0], Tensor):
                return make(list(parts))
            return type(parts[0])(*map(made, _fields(parts)))

        fields: list[Any] = [made(parts) for parts in _fields(several)]
        return cls(*fields)

    def merge(self, other: Known) -> Known:
        """What both say together, of parts of one bank."""

        def both(mine: Any, their: Any) -> Any:
            if mine is None:
                return None
            return torch.maximum(mine, their) if isinstance(mine, Tensor) else mine.merge(their)

        fields: list[Any] = [both(mine, their) for mine, their in _fields([self, other])]
        return Known(*fields)

    def updated(self, more: Known) -> Known:
        """Add what was not known."""
        fields: list[Any] = [old if new is None else new for old, new in _fields([self, more])]
        return Known(*fields)


def _fields(several: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Each field of several dataclasses."""
    return zip(*(vars(each).values() for each in several), strict=True)


def relative_to_peak_(logits: Tensor, excluded: Pairs | None = None) -> tuple[Tensor, Tensor]:
    """Largest logits of a tile, (q, 1), and weights over their exponentials, in place."""
    peak = logits.amax(dim=1, keepdim=True)
    nobody = peak[:, 0] == -math.inf
    peak = peak.clamp_min_(torch.finfo(logits.dtype).min)
    weights = mask_pairs_(exp_below_(logits, peak), excluded, 0.0)
    if nobody.any():
        weights[nobody] = 0.0
    return peak, weights


# -- similarities of a bank's tiles ------------------------------------------------------------


class BufferPool:
    """Memory for one tile after another: new memory for each would cost as much as a product."""

    def __init__(self) -> None:
        self.kept: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}

    def of(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Give memory of a shape, of a tensor's dtype and device, with whatever is in it."""
        key = shape, like.dtype
        if key not in self.kept:
            self.kept[key] = like.new_empty(shape)
        return self.kept[key]


class Comparison:
    """Similarities between blocks of queries and one slice of a bank after another.

    Parameters
    ----------
    similarity : callable
        One of :mod:`~nona_sklearn.similarity`'s functions, or another of that kind.
    neighbors : Tensor of shape (n, d)
        Embeddings of all neighbours.
    """

    def __init__(self, similarity: Similarity, neighbors: Tensor):
        self.similarity, self.neighbors = similarity, neighbors

    def evaluate(self, query: Tensor) -> Similarities:
        """Prepare a block of queries (q, d)."""
        return Similarities(self.similarity, query, self.neighbors)


class Similarities:
    """Similarities of one block of queries to slices of the neighbours.

    What they return lasts until the next slice only, for its memory is used again.
    """

    def __init__(self, function: Similarity, query: Tensor, neighbors: Tensor):
        self.function, self.query, self.neighbors = function, query, neighbors
        self.room = BufferPool()

    def of(self, rows: slice) -> Tensor:
        """Similarities to some of the neighbours, (q, b)."""
        return self.function(self.query, self.neighbors[rows])

    def order(self, rows: slice) -> Tensor:
        """Stand-ins, (q, b), that order neighbours alike, where there are any at less cost."""
        return self.of(rows)

    def from_sort_keys(self, order: Tensor) -> Tensor:
        """Turn stand-ins into the similarities that they stand for."""
        return order


class EuclideanComparison(Comparison):
    """:class:`Comparison` of l2 and log_l2 in float32, by one matrix product in float64.

    The neighbours' side of the product is prepared once, and kept if it takes no more than
    `kept_bytes`.
    """

    def __init__(self, similarity: Similarity, neighbors: Tensor, kept_bytes: int = KEPT_BYTES):
        super().__init__(similarity, neighbors)
        # So that very long or short rows do not leave float32. A power of two rounds nothing.
        self.scale = _power_of_two(torch.stack(neighbors.aminmax()).abs().max().double())
        n, d = neighbors.shape
        self.kept: Tensor | None = None
        if 8 * n * (d + 2) <= kept_bytes:
            kept = neighbors.new_empty(n, d + 2, dtype=torch.float64)
            for rows in spans(n, TILE["cpu"][1]):  # in one piece, it would take thrice the memory
                kept[rows] = self._prepare(rows)
            self.kept = kept

    def evaluate(self, query: Tensor) -> EuclideanSimilarities:
        return EuclideanSimilarities(self, query)

    def side(self, rows: slice) -> Tensor:
        """The neighbours' side of the product, (b, d + 2)."""
        return self._prepare(rows) if self.kept is None else self.kept[rows]

    def _prepare(self, rows: slice) -> Tensor:
        # The whole formula as one product of longer rows: two passes over the pairs less.
        neighbors = self.neighbors[rows].double() / self.scale
        square = neighbors.square().sum(dim=1, keepdim=True)
        return torch.cat([neighbors, torch.ones_like(square), square], dim=1)


class EuclideanSimilarities(Similarities):
    """What :class:`EuclideanComparison` says of one block of queries."""

    def __init__(self, comparison: EuclideanComparison, query: Tensor):
        super().__init__(comparison.similarity, query, comparison.neighbors)
        self.comparison = comparison
        length = torch.linalg.vector_norm(query.double(), dim=1, keepdim=True)
        self.scale = torch.maximum(_power_of_two(length), comparison.scale)  # (q, 1)
        self.near = (NEAR * length / self.scale).square()
        query = query.double() / comparison.scale
        square = query.square().sum(dim=1, keepdim=True)
        left = torch.cat([-2 * query, square, torch.ones_like(square)], dim=1)
        self.left = left * (comparison.scale / self.scale).square()

    def of(self, rows: slice) -> Tensor:
        squares = self._squares(rows)
        squares = self.room.of(squares.shape, self.query).copy_(squares)
        return self._to_similarity_(self._recompute_near_pairs_(squares, rows))

    def order(self, rows: slice) -> Tensor:
        """Squared distances over the squared scale, in float64, negative."""
        return self._recompute_near_pairs_(self._squares(rows), rows).neg_()

    def from_sort_keys(self, order: Tensor) -> Tensor:
        return self._to_similarity_(-order.to(self.query.dtype))

    def _squares(self, rows: slice) -> Tensor:
        side = self.comparison.side(rows)
        out = self.room.of((len(self.left), len(side)), self.left)
        return torch.mm(self.left, side.T, out=out)

    def _recompute_near_pairs_(self, squares: Tensor, rows: slice) -> Tensor:
        """Find anew, from differences, what the product's rounding would decide."""
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


def compare(similarity: str, neighbors: Tensor, kept_bytes: int = KEPT_BYTES) -> Comparison:
    """Choose the quickest way to compare with these neighbours (n, d), by a registered name."""
    function = SIMILARITIES[similarity]
    if function in (l2, log_l2) and neighbors.dtype == torch.float32 and len(neighbors):
        return EuclideanComparison(function, neighbors, kept_bytes)
    return Comparison(function, neighbors)


def _power_of_two(length: Tensor) -> Tensor:
    """The next power of two, to the last bit."""
    length = length.clamp_min(torch.finfo(torch.float32).tiny)
    return length / torch.frexp(length).mantissa


# -- one head and one block of queries ---------------------------------------------------------


class Tiles:
    """The tiles of one network's head and one block of queries.

    Parameters
    ----------
    head : NONAHead
        Gives the weights.
    query : Tensor of shape (q, d)
        The queries, where this head looks.
    neighbors : Neighbors
        All of them, where this head looks.
    comparison : Comparison
        Of this head's similarity, with what it compares of their embeddings.
    excluded : tuple of two int Tensor, optional
        Positions of these queries, and of the neighbours that each must not meet.
    known : Known, optional
        What a larger bank says of the queries, of which these neighbours are a part.
    """

    def __init__(
        self,
        head: NONAHead,
        query: Tensor,
        neighbors: Neighbors,
        comparison: Comparison,
        excluded: Pairs | None = None,
        known: Known | None = None,
    ):
        self.head, self.query, self.neighbors = head, head.metric_part(query), neighbors
        self.similarities = comparison.evaluate(self.query)
        self._excluded = excluded
        self.temperature = float(head.temperature)
        self.unit = neighbors.unit if head.n_adjusted else None
        self._whole_query = query
        self._known = known or Known()
        if self._known.extremes is not None:
            self.extremes = self._known.extremes
        if self._known.nearest is not None:
            self.nearest = self._known.nearest

    @cached_property
    def spans(self) -> list[slice]:
        """Rows of the bank, tile by tile."""
        n_neighbors = len(self.neighbors)
        return spans(n_neighbors, tile_shape(self.query.device, n_neighbors)[1])

    def excluded(self, rows: slice) -> Pairs | None:
        """Positions in a tile of those that must not meet."""
        if self._excluded is None:
            return None
        query, neighbor = self._excluded
        inside = (neighbor >= rows.start) & (neighbor < rows.stop)
        return query[inside], neighbor[inside] - rows.start

    @cached_property
    def extremes(self) -> Extremes:
        """The nearest and the farthest neighbour of each query."""
        order = reduce(
            Extremes.merge,
            (
                Extremes.of_tile(self.similarities.order(rows), self.excluded(rows))
                for rows in self.spans
            ),
        )
        return Extremes(
            *(
                self.similarities.from_sort_keys(values).to(self.query)
                for values in (order.nearest, order.farthest)
            )
        )

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """Where the step's scale begins, and one over its span, (q, 1)."""
        nearest, farthest = self.extremes.nearest, self.extremes.farthest
        tied = equally_near(nearest, farthest)  # all nearest, x = 1, as in scale_similarity
        slope = (nearest - farthest).reciprocal().masked_fill(tied, 1.0)
        return farthest.masked_fill(tied, -math.inf), slope

    def logits(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield (rows of the bank, logarithms of their weights (q, b)), tile by tile.

        They are not normalised, are to be overwritten, and last until the next tile.
        """
        if self.head.needs_whole_rows:
            yield slice(0, len(self.neighbors)), self._whole_row_logits()
            return
        for rows in self.spans:
            logits = self._tile_logits(rows)
            if self.neighbors.log_prior is not None:
                logits = logits.add_(self.neighbors.log_prior[rows])
            yield rows, mask_pairs_(logits, self.excluded(rows), -math.inf)

    def relative(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield (rows of the bank, peaks (q, 1), weights (q, b) over their exponentials).

        Weights are to be overwritten, and last until the next tile.
        """
        head = self.head
        if head.needs_whole_rows or head.step is not None or self.neighbors.log_prior is not None:
            for rows, logits in self.logits():
                yield rows, *relative_to_peak_(logits, self.excluded(rows))
            return
        tops = []
        for rows in self.spans:  # without logarithms, which some weightings would take in vain
            excluded = self.excluded(rows)
            s = mask_pairs_(self._tempered(self.similarities.of(rows)), excluded, -math.inf)
            top = s.amax(dim=1, keepdim=True).clamp_min_(torch.finfo(s.dtype).min)
            tops.append(top)
            peak = head.weighting.logits(top, self._tempered_nearest)
            peak = peak.clamp_min(torch.finfo(s.dtype).min)
            weights = head.weighting.relative_(s, top, self._tempered_nearest)
            yield rows, peak, mask_pairs_(weights, excluded, 0.0)
        if head.similarity == "l2" and self._known.nearest is None:  # spares another look
            self.nearest = torch.cat(tops, dim=1).amax(dim=1, keepdim=True) * self.temperature

    def _tile_logits(self, rows: slice) -> Tensor:
        similarity = self.similarities.of(rows)
        log_step = None if self.head.step is None else self._log_step(self.head.step, similarity)
        logits = self.head.weighting.logits(self._tempered(similarity), self._tempered_nearest)
        return logits if log_step is None else log_step.add_(logits)

    def _tempered(self, similarity: Tensor) -> Tensor:
        """Similarities over the temperature, in their place."""
        return self.head.apply_nugget(similarity).mul_(1 / self.temperature)

    @cached_property
    def _tempered_nearest(self) -> Tensor | None:
        """Similarity of the nearest neighbour over the temperature, if a weighting needs it."""
        if not self.head.weighting.needs_nearest:
            return None
        return self.head.apply_nugget(self.extremes.nearest) / self.temperature

    @cached_property
    def _thresholds(self) -> tuple[Tensor, ...]:
        assert self.head.step is not None
        return self.head.step.thresholds(self.query)

    def _log_step(self, step: SoftStep, similarity: Tensor) -> Tensor:
        farthest, slope = self._scale
        return EVALUATION_STEPS[step.step](similarity - farthest, slope, *self._thresholds)

    def _whole_row_logits(self) -> Tensor:
        similarity, excluded = self.whole()
        log_prior = self.neighbors.log_prior
        neighbors = self.head.metric_part(self.neighbors.embeddings)
        return self.head.weigh(similarity, self.query, neighbors, excluded, log_prior).log_()

    def whole(self) -> tuple[Tensor, Tensor | None]:
        """Similarities to all neighbours, (q, n), and who must not meet."""
        # In one piece from the start: small ones kept between tiles would split the heap.
        similarity = self.query.new_empty(len(self.query), len(self.neighbors))
        for rows in self.spans:
            similarity[:, rows] = self.similarities.of(rows)
        if self._excluded is None:
            return similarity, None
        return similarity, mask_pairs_(torch.zeros_like(similarity).bool(), self._excluded, True)

    def step_sum(self) -> Tensor:
        """Sum of each query's steps over the bank, (q,): how many neighbours it learned."""
        assert self.head.step is not None
        similarity, excluded = self.whole()
        return self.head.step(similarity, self.query, excluded).double().exp().sum(dim=1)

    def partial(self, values: Tensor | None = None) -> Partial:
        """Sums over the whole bank.

        Of :func:`with_ones` of some values and, behind them, of the adjustments, if there are
        any; by default of the weights alone.
        """

        def summed(rows):
            if values is None:
                return self.query.new_ones(1, rows.stop - rows.start, dtype=torch.float64)
            return self._summed(values[:, rows], rows)

        return reduce(
            Partial.merge,
            (
                Partial.of_weights(peak, self._double(weights), summed(rows))
                for rows, peak, weights in self.relative()
            ),
        )

    def _double(self, weights: Tensor) -> Tensor:
        """Weights of a tile (q, b) in float64."""
        room = self.similarities.room.of(weights.shape, weights.new_empty(0).double())
        return room.copy_(weights)

    def _summed(self, values: Tensor, rows: slice = slice(None)) -> Tensor:
        """Some rows' values and, behind them, their adjustments, if there are any."""
        if not self.sums_adjustments:
            return values
        return torch.cat([values, self._adjustments(self.neighbors.embeddings, rows).T])

    def mean(self, values: Tensor) -> Tensor:
        """Weighted means of values, (q, c), given as :func:`with_ones` of them; adjusted."""
        partial = self._whole_partial(values)
        return self._answer(partial.mean, partial.share)

    def _whole_partial(self, values: Tensor | None = None) -> Partial:
        """:meth:`partial`, of the larger bank where that is known."""
        return self.partial(values) if self._known.partial is None else self._known.partial

    def known(self, values: Tensor) -> Known:
        """What these neighbours say to whoever merges it with what others say."""
        partial = self.partial(values)
        fades = self.adjusts and bool(self.head.trust_radius.isfinite())
        return Known(partial=partial, nearest=self.nearest if fades else None)

    def _answer(
        self, means: Tensor, share: Tensor | float, queries: Tensor | slice = slice(None)
    ) -> Tensor:
        """What weighted means of values and adjustments say of some queries, (q, c)."""
        if not self.adjusts:
            return means
        plain, expected = means.chunk(2, dim=1)
        return adjusted_mean(plain, expected, share, self.own[queries], self._fade[queries])

    def plain_mean(self, values: Tensor) -> Tensor:
        """Weighted means of values as they are, (q, c), given as :func:`with_ones` of them."""
        return self.partial(values).mean[:, : len(values) - 1]

    @property
    def sums_adjustments(self) -> bool:
        """Whether the neighbours' adjustments are averaged beside their values."""
        return self.adjusts

    def adjusted(self, rows: slice | Tensor) -> Tensor:
        """Some rows' values, as they count for each query: moved by ``g(q) - g(j)``, faded.

        Parameters
        ----------
        rows : slice or int Tensor of shape (q, b)
            The same b rows for all queries, or b for each.

        Returns
        -------
        Tensor of shape (q, b, c) or (1, b, c)
        """
        values = self.neighbors.columns[rows]
        if not self.adjusts:
            return values.reshape(-1, *values.shape[-2:])
        theirs = self._adjustments(self.neighbors.embeddings, rows)
        return values + self._fade[:, :, None] * (self.own[:, None] - theirs)

    def changes(self, rows: slice, weights: Tensor, mean: Tensor) -> Iterator[Tensor]:
        """By how much each output's answer changes if one of some rows leaves, (q, b) each.

        Parameters
        ----------
        rows : slice
            The b rows; all of them, where the others do not keep their proportions.
        weights : Tensor of shape (q, b)
            What they weigh.
        mean : Tensor of shape (q, c)
            The answer, from :meth:`mean`.
        """
        changes = self._proportional_changes(rows, weight_odds(weights), mean)
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
        """Answers to queries of which one neighbour leaves, (p, c), by the definition.

        `leaving`, (q, n), is True at p pairs. Who has no other neighbour keeps it.
        """
        values = self._summed(self.neighbors.summands)[1:]
        neighbors = self.head.metric_part(self.neighbors.embeddings)
        queries, rows = leaving.nonzero(as_tuple=True)
        answers = [values.new_zeros(0, self.neighbors.columns.shape[1])]
        for pairs in spans(len(queries), max(1, ENTRIES_WITHOUT // len(neighbors))):
            query, row = queries[pairs], rows[pairs, None]
            itself = torch.zeros_like(leaving[query]).scatter_(1, row, True)
            out = itself if excluded is None else itself | excluded[query]
            weights = self.head.weigh(
                similarity[query], self.query[query], neighbors, out, self.neighbors.log_prior
            )
            total = weights.double().sum(dim=1, keepdim=True)
            weights = torch.where(total > 0, weights / total, itself.double())
            answers.append(self._answer(weights @ values.T, 1.0, query))
        return torch.cat(answers)

    def _proportional_changes(self, rows: slice, share: Tensor, mean: Tensor) -> Iterator[Tensor]:
        """:meth:`changes` where the others take a row's `share`, (q, b), in proportion.

        That is its weight over the weight of all others.
        """
        adjusted = self.adjusted(rows)
        for j in range(adjusted.shape[2]):
            yield share * (mean[:, j, None] - adjusted[..., j])

    def _adjustments(self, embeddings: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        """What the network holds of some rows' values, (n, c), in their units."""
        assert self.unit is not None
        return self.unit * self.head.adjustments(embeddings)[rows].double()

    @cached_property
    def own(self) -> Tensor:
        """What the network holds of the queries' values, (q, c)."""
        return self._adjustments(self._whole_query)

    @property
    def adjusts(self) -> bool:
        """Whether values are moved."""
        return self.unit is not None

    @cached_property
    def _fade(self) -> Tensor:
        """How much of each query's shift is left, (q, 1)."""
        if not self.head.trust_radius.isfinite():
            return self.own.new_ones(len(self.own), 1)
        return self.head.attenuation(-self.nearest.double())

    @cached_property
    def nearest(self) -> Tensor:
        """Similarity l2 of the nearest neighbour, (q, 1)."""
        if self.head.similarity == "l2":
            return self.extremes.nearest
        compared = self.head.metric_part(self.neighbors.embeddings)
        nearest = [
            mask_pairs_(l2(self.query, compared[rows]), self.excluded(rows), -math.inf).amax(dim=1)
            for rows in self.spans
        ]
        return torch.stack(nearest, dim=1).amax(dim=1, keepdim=True)

    def weights(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield (rows of the bank, their weights (q, b)), tile by tile; 0 below what counts.

        They last until the next tile.
        """
        partial = self._whole_partial()
        for rows, peak, weights in self.relative():
            share = (peak - partial.peak).double().exp() / partial.total
            weights = torch.threshold_(weights, 2 * math.exp(LEAST_LOGIT), 0.0)
            yield rows, weights.mul_(share.to(weights.dtype))

    def whole_logits(self) -> Tensor:
        """Logarithms of all weights, (q, n), relative to the largest in the whole bank."""
        logits, whole = in_one_piece(self.logits()), self._known.partial
        return logits.sub_(logits.amax(dim=1, keepdim=True) if whole is None else whole.peak)

    def powered(self, logits: Tensor, power: float) -> Tensor:
        """Logarithms of weights to a power, (q, n), from :meth:`whole_logits`.

        What rows weigh beforehand is not taken to the power: a row of weight 2 stays two rows.
        """
        log_prior = self.neighbors.log_prior
        logits = logits * power
        return logits if log_prior is None or power == 1 else logits + (1 - power) * log_prior

    def normalized(self, logits: Tensor, power: float = 1.0) -> Tensor:
        """Weights to a power, (q, n) in float64, as shares of their sum in the whole bank."""
        whole = self._known_sum(power)
        logits = self.powered(logits, power)
        peak = logits.amax(dim=1, keepdim=True) if whole is None else whole.peak
        weights = _exp_(logits.sub_(peak)).double()
        return weights / (weights.sum(dim=1, keepdim=True) if whole is None else whole.total)

    def _known_sum(self, power: float) -> Partial | None:
        """Sum of weights to a power in the larger bank, of logits relative to the largest."""
        if power != 1 or self._known.partial is None:
            return self._known.powered
        return replace(self._known.partial, peak=torch.zeros_like(self._known.partial.peak))

    def known_powered(self, power: float) -> Known:
        """What these neighbours say of the sum of weights to a power."""
        logits = self.powered(self.whole_logits(), power)
        ones = logits.new_ones(1, logits.shape[1], dtype=torch.float64)
        return Known(powered=Partial.of_weights(*relative_to_peak_(logits), ones))


def in_one_piece(tiles: Iterable[tuple[slice, Tensor]]) -> Tensor:
    """Tiles (q, b) of all rows, one after another, as one tensor (q, n)."""
    return torch.cat([tile.clone() for _, tile in tiles], dim=1)  # each lasts until the next


class ClassTiles(Tiles):
    """:class:`Tiles` of a :class:`~nona_sklearn.attention.ClassHead`, whose values are one-hot."""

    head: ClassHead

    @property
    def sums_adjustments(self) -> bool:
        return False  # `h` is the query's alone

    @property
    def smoothing(self) -> Tensor | float:
        """Share of the classes' frequencies in each probability."""
        return self.head.share_of_prior(self.neighbors.unit)

    @cached_property
    def masses(self) -> Tensor:
        """Weight of each class, (q, C)."""
        return self._whole_partial(self.neighbors.summands).mean

    @cached_property
    def odds(self) -> Tensor:
        """How many times a neighbour of each class counts, (q, C)."""
        if not self.adjusts:
            return torch.ones_like(self.masses)
        return self.head.odds(self.own, self._fade)

    def mean(self, values: Tensor) -> Tensor:
        """Probabilities, (q, C)."""
        self.masses = self._whole_partial(values).mean
        return self._answer(self.masses, 1.0)

    def _answer(
        self, means: Tensor, share: Tensor | float, queries: Tensor | slice = slice(None)
    ) -> Tensor:
        return self.head.probabilities(means, self.smoothing, self.odds[queries])

    def adjusted(self, rows: slice | Tensor) -> Tensor:
        """What one weight of some rows adds to each probability, (q, b, C)."""
        total = self.head.totals(self.head.smoothed(self.masses, self.smoothing) * self.odds)
        scale = (1 - self.smoothing) * self.odds / total
        return self.neighbors.columns[rows] * scale[:, None]

    def _proportional_changes(self, rows: slice, share: Tensor, mean: Tensor) -> Iterator[Tensor]:
        columns, kept = self.neighbors.columns[rows], 1 - self.smoothing
        votes = self.head.smoothed(self.masses, self.smoothing) * self.odds
        of_rows = kept * self.masses * self.odds
        for output in spans_of(self.head.sizes):
            labels, cast, theirs = columns[:, output], votes[:, output], of_rows[:, output]
            own = kept * (self.odds[:, output] @ labels.T)  # (q, b), of each row by itself
            # A row leaves, and the others' weights grow by its share.
            left = cast.sum(dim=1, keepdim=True) + share * (theirs.sum(dim=1, keepdim=True) - own)
            for c in range(labels.shape[1]):
                still = cast[:, c, None] + share * (theirs[:, c, None] - own * labels[:, c])
                yield still / left - mean[:, output][:, c, None]


def weight_odds(weights: Tensor) -> Tensor:
    """Weight over the weight of all others, ``w / (1 - w)``."""
    # Nobody can say what a prediction would be without the only neighbour that it has.
    weights = weights.double().clamp_max(1 - torch.finfo(torch.float32).eps)
    return weights / (1 - weights)


def tiles_of(head: NONAHead, *arguments) -> Tiles:
    """Make the tiles of a head, whatever it answers."""
    return (ClassTiles if isinstance(head, ClassHead) else Tiles)(head, *arguments)


def _exp_(logits: Tensor) -> Tensor:
    """Weights, in place of their logits; zero below what counts."""
    weights = logits.clamp_min_(LEAST_LOGIT).exp_()
    return torch.threshold_(weights, 2 * math.exp(LEAST_LOGIT), 0.0)


def tile_shape(device: torch.device, n_neighbors: int) -> tuple[int, int]:
    """How many queries, and how many rows of the bank, are looked at together."""
    n_queries, width = TILE.get(device.type, TILE["cpu"])
    few = min(4, max(1, width // max(1, n_neighbors)))
    return n_queries * few, width  # more queries, if rows are few
