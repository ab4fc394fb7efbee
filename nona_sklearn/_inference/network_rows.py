"""One network's weights for a block of queries, and what they make of the rows' values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._utils.chunks import spans, spans_of
from .._utils.threads import cached_property
from ..attention import ClassHead, NONAHead
from .left_out import LeftOutQueries, TrendShifts
from .nearest import Candidates, Excluded
from .neighbors import Neighbors

NEGLIGIBLE = 1e-12  # weight: residuals of all rows of less do not change a prediction's digits
LEAVE_ONE_OUT_PAIRS = 2**18  # pairs at a time for which means without a neighbour are recomputed


class NetworkRows:
    """The rows behind a block of queries' predictions by one network.

    Parameters
    ----------
    head : NONAHead
        The network's head.
    query : Tensor of shape (q, d)
        Embeddings of the queries in its space.
    neighbors : Neighbors
        The bank's rows in its space.
    candidates : Candidates
        The rows that can have weight: m for each query.
    excluded_pairs : Pairs or bool Tensor of shape (q, n), optional
        Queries, and rows of the bank that are excluded for them.
    offset : Tensor of shape (q, n_outputs), optional
        The trend at the queries, if the neighbours have one.
    left_out : LeftOutQueries, optional
        The queries, if the residuals of the trend are those without each of them.
    added : Tensor of shape (q, n_outputs), optional
        What unknown levels add to the queries' probabilities.
    """

    def __init__(
        self,
        head: NONAHead,
        query: Tensor,
        neighbors: Neighbors,
        candidates: Candidates,
        excluded_pairs: Excluded = None,
        offset: Tensor | None = None,
        left_out: LeftOutQueries | None = None,
        added: Tensor | None = None,
    ):
        self.excluded_pairs, self.offset, self.left_out = excluded_pairs, offset, left_out
        self.added = added
        self.head, self.neighbors, self.candidates = head, neighbors, candidates
        self.query = head.metric_part(query)
        self.adjustment_scale = neighbors.adjustment_scale if head.n_adjusted else None
        self._query_embeddings = query

    # -- weights ---------------------------------------------------------------------------

    @property
    def positions(self) -> Tensor | None:
        """The candidates' rows, (q, m); None: all rows."""
        return self.candidates.positions

    @cached_property
    def rows(self) -> Tensor | slice:
        """What selects the candidates from tensors of the bank's rows: (q, m), or all."""
        if self.positions is None:
            return slice(None)
        return self.positions.clamp_max(max(len(self.neighbors) - 1, 0))

    @cached_property
    def excluded(self) -> Tensor:
        """Candidates that are excluded, or no rows, (q, m)."""
        return self.candidates.similarity == -math.inf

    @cached_property
    def any_excluded(self) -> bool:
        """Whether any candidate is excluded, or there is none: without a tensor of all."""
        similarity = self.candidates.similarity
        return similarity.numel() == 0 or bool(similarity.amin() == -math.inf)

    def weigh(
        self, queries: Tensor | slice = slice(None), leaving: Tensor | None = None
    ) -> Tensor:
        """Weights (q, m) in float64 that sum to 1, without one candidate (q, 1) if it is given."""
        similarity, excluded = self.candidates.similarity[queries], None
        n_columns, most = similarity.shape[1], self.head.n_neighbors
        n_admitted = self.candidates.n_admitted
        if n_admitted is not None:
            n_admitted = n_admitted[queries] - int(leaving is not None)
        rows = self.rows if isinstance(self.rows, slice) else self.rows[queries]
        if self.any_excluded or leaving is not None:
            excluded = self.excluded[queries]
            if leaving is not None:
                excluded = excluded.scatter(1, leaving, True)
            similarity = similarity.masked_fill(excluded, 0.0)  # no NaN
        if not isinstance(rows, slice) and leaving is None and most is not None:
            # Nearest first, so that the others need not be ranked to have no weight.
            similarity, rows = similarity[:, :most], rows[:, :most]
            excluded = None if excluded is None else excluded[:, :most]
        log_prior = self.neighbors.log_prior
        weights = self.head.weigh(
            similarity,
            self.query[queries],
            self._compared(rows),
            excluded,
            None if log_prior is None else log_prior[rows].to(similarity),
            n_admitted,
        ).double()
        weights /= _or_one(weights.sum(dim=1, keepdim=True))  # in place: a copy takes as long
        n_without = n_columns - weights.shape[1]
        return F.pad(weights, (0, n_without)) if n_without else weights

    def _compared(self, rows: Tensor | slice) -> Tensor:
        """Compared columns of rows, for a weighting that may compare them with each other."""
        if self.head.weighting.one_by_one:
            return self.query
        return self.head.metric_part(self.neighbors.embeddings)[rows]

    @cached_property
    def weights(self) -> Tensor:
        """Weights of the candidates, (q, m); each row's sum is 1, or 0 without neighbours."""
        return self.weigh()

    def shares(self, power: float = 1.0) -> Tensor:
        """Weights to a power, (q, m), as shares of their sum.

        The prior is not taken to the power: a row of weight 2 stays two rows.
        """
        if power == 1:
            return self.weights
        if self.neighbors.log_prior is None:
            weights = self.weights**power
        else:  # as logarithms: priors may be of any size
            priors = self.neighbors.log_prior[self.rows].double()
            logits = power * self.weights.double().log() + (1 - power) * priors
            most = logits.amax(dim=1, keepdim=True)
            weights = (logits - torch.where(most.isfinite(), most, 0.0)).exp()
        return weights / _or_one(weights.sum(dim=1, keepdim=True))

    def step_sum(self) -> Tensor:
        """Sum of each query's steps over all rows, (q,): its learned number of neighbours."""
        assert self.head.step is not None
        given = self.candidates.similarity.masked_fill(self.excluded, 0.0), self.query
        return self.head.step(*given, self.excluded).double().exp().sum(dim=1)

    # -- means -----------------------------------------------------------------------------

    def mean(self) -> Tensor:
        """Adjusted weighted means of the values, (q, c)."""
        if self.adjusts and self.head.bounds is not None:
            return self._mean_by(self.weights)
        return self._prediction(self._mean_summands)

    @cached_property
    def _mean_summands(self) -> Tensor:
        return _average(self.weights, self._summands(self.rows))

    def _mean_by(
        self,
        weights: Tensor,
        queries: Tensor | slice = slice(None),
        attenuation: Tensor | None = None,
    ) -> Tensor:
        """Predictions of some queries by other weights of their candidates."""
        rows = self.rows if isinstance(self.rows, slice) else self.rows[queries]
        if self.adjusts and self.head.bounds is not None:  # not a function of sums
            return _average(weights, self.adjusted(rows, queries))
        means = _average(weights, self._summands(rows, queries))
        return self._prediction(means, queries, attenuation)

    def plain_mean(self) -> Tensor:
        """Weighted means of the values, (q, c), not adjusted."""
        return _average(self.weights, self.neighbors.columns[self.rows])

    def _summands(self, rows: Tensor | slice, queries: Tensor | slice = slice(None)) -> Tensor:
        """What is needed of rows to adjust their values, or means of it to adjust their mean.

        (..., c'): the values, then g and the residuals of the trend, if there are any.
        """
        values = self.neighbors.columns[rows]
        if not self.adjusts:
            return values
        parts = [values]
        if self.adjustment_scale is not None:
            parts.append(self._adjustments(self.neighbors.embeddings, rows))
        if self.left_out is not None:
            residuals = self.left_out.residuals[queries]
            if not isinstance(rows, slice):
                residuals = residuals.take_along_dim(rows[..., None], dim=1)
            parts = [*(part.expand(*residuals.shape[:-1], -1) for part in parts), residuals]
        elif self.neighbors.offset is not None:
            parts.append(values - self.neighbors.offset.values[rows])
        return torch.cat(parts, dim=-1)

    def _prediction(
        self,
        means: Tensor,
        queries: Tensor | slice = slice(None),
        attenuation: Tensor | None = None,
    ) -> Tensor:
        """Predictions (q, c) from means of the summands, by weights whose sum is 1 or 0."""
        total: Tensor | float = 1.0
        if self.any_excluded:
            total = (~self.excluded[queries]).any(dim=1, keepdim=True).double()
        return self._adjust(means, queries, total, attenuation)

    # -- adjusted values -------------------------------------------------------------------

    @property
    def adjusts(self) -> bool:
        """Whether values are adjusted."""
        return self.adjustment_scale is not None or self.neighbors.offset is not None

    @property
    def moves_values(self) -> bool:
        """Whether :meth:`adjusted` values are others than the neighbours' own."""
        return self.adjusts

    def adjusted(self, rows: Tensor | slice, queries: Tensor | slice = slice(None)) -> Tensor:
        """Adjusted values of rows (q, b), or of all, for some queries, (q, b, c)."""
        summands = self._summands(rows, queries)
        summands = summands if summands.ndim == 3 else summands[None]
        adjusted = self._adjust(summands, queries)
        return self.head.within_bounds(adjusted) if self.adjusts else adjusted

    def residuals_not_kept(self, rows: Tensor | slice) -> Tensor:
        """What adjusted values of rows (q, b), or of all, would gain by residuals in full."""
        offset = self.neighbors.offset
        assert offset is not None
        residuals = self._summands(rows)[..., -self.neighbors.columns.shape[1] :]
        of_trend = self.sensitivity[:, 1, None]  # (q, 1, c)
        return (1 - offset.kept) * of_trend * residuals

    def _adjust(
        self,
        summands: Tensor,
        queries: Tensor | slice,
        total: Tensor | float = 1.0,
        attenuation: Tensor | None = None,
    ) -> Tensor:
        """Move values (q, b, c'), or means (q, c'), from the neighbours to some queries.

        An attenuation, (q, 1), may take the place of theirs.
        """
        if not self.adjusts:
            return summands
        axes = (slice(None), None)[: summands.ndim - 1]  # of the queries, before the outputs
        values, *others = summands.split(self.neighbors.columns.shape[1], dim=-1)
        adjusted = values
        if self.adjustment_scale is not None:
            own = self.query_adjustments[queries]
            if attenuation is None:
                attenuation = self.attenuation[queries]
            adjusted = self.head.adjusted_mean(
                values, others[0], total, own[axes], attenuation[axes]
            )
        if self.neighbors.offset is not None:
            assert self.offset is not None
            of_query, share = self.offset[queries][axes], self.trend_share[queries][axes]
            adjusted = self.neighbors.offset.mix(adjusted, others[-1], of_query, share, total)
        return self.head.credible(adjusted, total)

    def _adjustments(self, embeddings: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Adjustments g of rows, (..., c), in units of the values."""
        assert self.adjustment_scale is not None
        return self.adjustment_scale * self.head.adjustments(embeddings)[rows].double()

    @cached_property
    def query_adjustments(self) -> Tensor:
        """Adjustments g of the queries, (q, c)."""
        return self._adjustments(self._query_embeddings)

    @cached_property
    def attenuation(self) -> Tensor:
        """Factor of each query's adjustments, (q, 1), less than 1 far from the bank."""
        if not self.head.trust_radius.isfinite():
            return self.query_adjustments.new_ones(len(self.query_adjustments), 1)
        return self.head.attenuation(self.distance)

    @cached_property
    def trend_share(self) -> Tensor:
        """The trend's share in each query's prediction, (q, 1); 0 without one."""
        offset = self.neighbors.offset
        if offset is not None and offset.fades:
            return offset.share_at(self.distance)
        share = 0.0 if offset is None else offset.share
        return self.neighbors.columns.new_full((self.query.shape[0], 1), share)

    @property
    def sensitivity(self) -> Tensor:
        """By how much adjusted values change with the query's g, and with f, (q, 2, c)."""
        share = self.trend_share.expand(-1, self.neighbors.columns.shape[1])
        of_network = torch.zeros_like(share)
        if self.adjustment_scale is not None:
            of_network = (1 - share) * self.attenuation * self.adjustment_scale
        return share.new_tensor(self.head.credibility) * torch.stack([of_network, share], dim=1)

    @cached_property
    def distance(self) -> Tensor:
        """Euclidean distance to the nearest row, (q, 1); infinite without one."""
        return distance_of(self.head, self.candidates)

    # -- without a row ---------------------------------------------------------------------

    def changes_with(self, shifts: TrendShifts) -> Tensor:
        """Changes of predictions without each row, whose trend changes by shifts, (q, n, c)."""
        mean, n_rows = self.mean()[:, None], len(self.neighbors)
        changes = torch.stack(list(self.changes()), dim=2)  # by the same trend
        if self.positions is not None:
            of_all = changes.new_zeros(len(changes), n_rows + 1, changes.shape[2])
            places = self.positions[..., None].expand_as(changes)
            changes = of_all.scatter_(1, places, changes)[:, :-1]
        changes = self._shifted(mean + changes, shifts) - mean
        if self.excluded_pairs is not None:
            changes[self.excluded_pairs] = 0.0
        return changes

    def _shifted(self, predicted: Tensor, shifts: TrendShifts) -> Tensor:
        """Predictions without each row, (q, n, c), from those by the same trend, in place.

        The value of the trend changes at a query and at its neighbours.
        """
        assert self.neighbors.offset is not None
        kept, slopes, of_queries = self.neighbors.offset.kept, self.sensitivity, shifts.at_queries
        every = torch.arange(len(self.neighbors), device=predicted.device)
        for i in range(len(predicted)):
            query, weights = slice(i, i + 1), self.weights[i]
            leaving = (weights > NEGLIGIBLE).nonzero()[:, 0]
            without = self._weights_without(torch.full_like(leaving, i), leaving[:, None])
            columns = (weights + without.sum(dim=0) > NEGLIGIBLE).nonzero()[:, 0]
            row_of = every if self.positions is None else self.positions[i]
            rows, left = row_of[columns], row_of[leaving]
            values = self._adjust(self._summands(rows[None], query), query)[0, :, None]
            moved = values + slopes[i, 1] * (of_queries[i] - kept * shifts.at_rows(i, rows))
            moved = self.head.within_bounds(moved) - self.head.within_bounds(values)  # (m, n, c)
            weights, without = weights[columns], without[:, columns]
            predicted[i] += torch.einsum("m,mnc->nc", weights, moved)
            predicted[i, left] += torch.einsum("lm,mlc->lc", without - weights, moved[:, left])
        return predicted

    def changes(self) -> Iterator[Tensor]:
        """Yield the change of each output's prediction without each candidate, (q, m).

        The trend is the same.
        """
        mean = self.mean()
        changes = self._proportional_changes(weight_odds(self.weights), mean)
        if self.head.keeps_proportions:
            yield from changes
            return
        leaving = self.head.affects_other_weights(
            self.weights, self.candidates.similarity, self.excluded
        )
        found = self._means_without(leaving) - mean[leaving.nonzero()[:, 0]]
        for change, of_output in zip(changes, found.T, strict=True):
            yield change.masked_scatter(leaving, of_output)

    def _means_without(self, leaving: Tensor) -> Tensor:
        """Predictions without one candidate, (p, c), by the definition, for pairs of `leaving`."""
        queries, columns = leaving.nonzero(as_tuple=True)
        means = [self.neighbors.columns[:0]]
        for pairs in spans(len(queries), max(1, LEAVE_ONE_OUT_PAIRS // leaving.shape[1])):
            of_pairs = queries[pairs], columns[pairs, None]
            weights = self._weights_without(*of_pairs)
            without = self._attenuation_without(*of_pairs)
            means.append(self._mean_by(weights, queries[pairs], without))
        return torch.cat(means)

    def _attenuation_without(self, queries: Tensor, column: Tensor) -> Tensor | None:
        """Factor of the adjustments of queries (p,) without one candidate (p, 1), (p, 1).

        None where it stays, or where Euclidean distances are those of the nearest rows alone.
        """
        similarity = self.candidates.similarity
        fixed = self.adjustment_scale is None or not self.head.trust_radius.isfinite()
        if fixed or self.candidates.nearest is not None or similarity.shape[1] < 2:
            return None
        (_, second), (nearest, _) = (each.unbind(1) for each in similarity.topk(2, dim=1))
        distance = distance_of(self.head, replace(self.candidates, similarity=second[:, None]))
        changed = self.head.attenuation(distance)[queries]
        return torch.where(column == nearest[queries, None], changed, self.attenuation[queries])

    def _weights_without(self, queries: Tensor, column: Tensor) -> Tensor:
        """Weights of queries (p,) without one candidate (p, 1), (p, m); the only one is kept."""
        if self.head.keeps_proportions:
            weights = self.weights[queries].scatter_(1, column, 0.0)
        else:
            weights = self.weigh(queries, column)
        total = weights.sum(dim=1, keepdim=True)
        alone = torch.zeros_like(weights).scatter_(1, column, 1.0)
        return torch.where(total > 0, weights / _or_one(total), alone)

    def _proportional_changes(self, share: Tensor, mean: Tensor) -> Iterator[Tensor]:
        """:meth:`changes` if others take a row's weight in proportion to theirs.

        `share` (q, m) is its weight over the weight of all others.
        """
        adjusted = self.adjusted(self.rows)
        for j in range(adjusted.shape[2]):
            yield share * (mean[:, j, None] - adjusted[..., j])


class NetworkClassRows(NetworkRows):
    """:class:`NetworkRows` of a :class:`~nona_sklearn.attention.ClassHead`: values are one-hot."""

    head: ClassHead

    @property
    def smoothing(self) -> Tensor | float:
        """Share of the classes' frequencies in each probability."""
        return self.head.share_of_prior(self.neighbors.adjustment_scale)

    def _summands(self, rows: Tensor | slice, queries: Tensor | slice = slice(None)) -> Tensor:
        return self.neighbors.columns[rows]  # `h` depends on the query alone

    @cached_property
    def masses(self) -> Tensor:
        """Weight of each class, (q, C)."""
        return self.plain_mean()

    @cached_property
    def odds(self) -> Tensor:
        """Factor of the weight of each class, (q, C)."""
        if self.adjustment_scale is None:
            return torch.ones_like(self.masses)
        return self.head.odds(self.query_adjustments, self.attenuation)

    @cached_property
    def votes(self) -> Tensor:
        """Votes for each class, (q, C)."""
        return self.head.votes(self.masses, self.smoothing, self.odds)

    def _pooled(self, votes: Tensor, place: Any = slice(None)) -> Tensor:
        """Votes pooled with the trend, if there is one: with what `place` selects of it."""
        if self.neighbors.offset is None:
            return votes
        assert self.offset is not None
        return self.neighbors.offset.pool(votes, self.offset[place])

    def _prediction(
        self,
        means: Tensor,
        queries: Tensor | slice = slice(None),
        attenuation: Tensor | None = None,
    ) -> Tensor:
        """Probabilities, (q, C)."""
        odds = self.odds[queries]
        if attenuation is not None:
            odds = self.head.odds(self.query_adjustments[queries], attenuation)
        votes = self.head.votes(means, self.smoothing, odds)
        return self._mixed(self.head.normalized(self._pooled(votes, queries)), queries)

    @cached_property
    def kept(self) -> Tensor:
        """Share of each probability that unknown levels leave to the rows, (q, C)."""
        if self.added is None:
            return torch.ones_like(self.masses)
        return 1 - self.head.totals(self.added)

    def _mixed(self, probabilities: Tensor, place: Any) -> Tensor:
        """Probabilities with what unknown levels add: with what `place` selects of it."""
        if self.added is None:
            return probabilities
        return self.added[place] + self.kept[place] * probabilities

    def _shifted(self, predicted: Tensor, shifts: TrendShifts) -> Tensor:
        assert self.neighbors.offset is not None
        place = slice(None), None
        own = predicted if self.added is None else predicted - self.added[place]
        # Less than 0 by rounding.
        votes = self.neighbors.offset.shifted(own.clamp_min(0.0), shifts.at_queries)
        return self._mixed(self.head.normalized(votes.flatten(0, 1)).view_as(votes), place)

    @property
    def moves_values(self) -> bool:
        return True

    def adjusted(self, rows: Tensor | slice, queries: Tensor | slice = slice(None)) -> Tensor:
        """What a unit of weight of some rows adds to each probability, (q, b, C)."""
        pooled = self._pooled(self.votes)
        factor = torch.where(self.votes > 0, pooled / self.votes, 1.0)
        scale = (1 - self.smoothing) * self.odds * factor / self.head.totals(pooled)
        return self.neighbors.columns[rows] * (self.kept * scale)[queries, None]

    def _proportional_changes(self, share: Tensor, mean: Tensor) -> Iterator[Tensor]:
        columns, kept = self.neighbors.columns[self.rows], 1 - self.smoothing
        columns = columns.reshape(-1, *columns.shape[-2:])  # (q, m, C), or (1, n, C)
        of_rows = kept * self.masses * self.odds

        def left(c: int) -> Tensor:
            """Votes for a class without each row: the others' weights grow by its share."""
            place = slice(None), c, None
            own = kept * self.odds[place] * columns[..., c]
            still = self.votes[place] + share * (of_rows[place] - own)
            return self._pooled(still.clamp_min(0.0), place)  # less than 0 by rounding

        for output in spans_of(self.head.sizes):
            classes = range(output.start, output.stop)
            total = reduce(torch.add, map(left, classes))
            for c in classes:
                yield self._mixed(left(c) / total, (slice(None), c, None)) - mean[:, c, None]


def _average(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted means (q, c) of each query's values (q, m, c), or of all values (m, c)."""
    if values.ndim == 2:
        # A product's last digit may depend on where memory begins, which a mapped file shifts.
        return weights @ values.clone()
    return (weights[:, None] @ values)[:, 0]


def distance_of(head: NONAHead, candidates: Candidates) -> Tensor:
    """Euclidean distance to the nearest candidate, (q, 1) in float64."""
    if candidates.nearest is not None:
        return -candidates.nearest.double()
    nearest = candidates.similarity.amax(dim=1, keepdim=True).double()
    return (-nearest).exp() if head.similarity == "log_l2" else -nearest


def weight_odds(weights: Tensor) -> Tensor:
    """Weight over the weight of all others, ``w / (1 - w)``."""
    # Without its only neighbour, a prediction is undefined.
    weights = weights.clamp_max(1 - torch.finfo(torch.float32).eps)
    return weights / (1 - weights)


def _or_one(total: Tensor) -> Tensor:
    """A divisor: sums of weights, or 1 for those that are 0."""
    return torch.where(total > 0, total, 1.0)
