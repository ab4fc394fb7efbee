"""How predictions change without single rows of the bank, exactly.

A row's weight goes to the others. Where the others keep their proportions, a network's prediction
m changes by ``w_j (m - t_j) / (1 - w_j)``; otherwise rows are weighed again without it. A trend
in closed form changes as well, at the query and at its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._data.sample import TableRows
from .._utils.precision import STORED
from .._utils.validation import some_of, spans, spans_of
from ..attention.functional import attenuation
from ..attention.prediction import CandidateRows, ClassRows
from ..weighting.base import normalize
from .shared_rows import SharedRows

if TYPE_CHECKING:
    from .._trend.trend import Trend
    from .weighted_rows import WeightedRows

NEGLIGIBLE = 1e-12  # weight: residuals of all rows of less do not change a prediction's digits
LEAVE_ONE_OUT_PAIRS = 2**18  # pairs at a time for which means without a neighbour are recomputed


@dataclass(frozen=True, eq=False)
class TrendShifts:
    """By how much a trend changes without each row of a bank, at queries and their neighbours.

    `queries` are ids of those that are rows of the bank as well.
    """

    trend: Trend  # fitted to rows of the bank
    ids: Tensor  # (n,), of the bank's rows
    inputs: SharedRows  # their features
    of_queries: TableRows
    queries: Tensor | None = None  # (q,)
    #: Changes of the values at rows that are the same for all queries, by their positions.
    _of_all_queries: dict[int, Tensor] = field(default_factory=dict, init=False)

    def __getitem__(self, rows: Tensor | slice) -> TrendShifts:
        queries = some_of(self.queries, rows)
        rows = rows.cpu() if isinstance(rows, Tensor) else rows
        return replace(self, of_queries=self.of_queries[rows], queries=queries)

    @property
    def at_queries(self) -> Tensor:
        """Changes of the values at the queries, (q, n, n_outputs)."""
        removed = self.ids.cpu().numpy()
        if self.queries is None:
            changes = self.trend.shifts(removed, self.of_queries)
        else:
            query_ids = self.queries.cpu().numpy()
            changes = self.trend.shifts_of_rows(removed, query_ids, self.of_queries)
        return torch.from_numpy(changes).to(self.ids.device)

    def at_rows(self, query: int, rows: Tensor) -> Tensor:
        """Changes of the values at rows, by their positions, for a query, (m, n, n_outputs)."""
        if self.queries is not None and self.trend.leaves_out_single_rows:
            return self._at(rows, int(self.queries[query]))
        missing = [row for row in rows.tolist() if row not in self._of_all_queries]
        if missing:
            changes = self._at(torch.tensor(missing), None)
            self._of_all_queries.update(zip(missing, changes, strict=True))
        return torch.stack([self._of_all_queries[row] for row in rows.tolist()])

    def _at(self, rows: Tensor, query_id: int | None) -> Tensor:
        removed, some = self.ids.cpu().numpy(), rows.cpu()
        features = TableRows(self.inputs[some])
        changes = self.trend.shifts_of_rows(removed, removed[some.numpy()], features, query_id)
        return torch.from_numpy(changes).to(self.ids.device)


def influence_of_block(
    rows: WeightedRows, shifts: TrendShifts | None, residuals: Tensor | None
) -> Tensor:
    """Sums over a block's queries, (3, n): weights, squared changes, changes of squared errors."""
    changed = error = torch.zeros(())
    if shifts is None:
        changes = changes_without(rows)
    else:
        changes = iter(changes_with(rows, shifts).unbind(dim=2))
    for j, change in enumerate(changes):
        residual = 0.0 if residuals is None else residuals[:, j, None]
        changed = changed + change.square()
        error = error + change * (change + 2 * residual)
    weights = rows.sum_by_row(rows.weights())
    if shifts is not None:
        return torch.stack([weights, changed.sum(dim=0), error.sum(dim=0)])
    return torch.stack([weights, rows.sum_by_row(changed), rows.sum_by_row(error)])


def changes_without(rows: WeightedRows) -> Iterator[Tensor]:
    """Yield the change of each output's prediction without the row of a column, (q, m).

    The trend is the same.
    """
    for of_networks in zip(*map(changes_of_network, rows.networks), strict=True):
        yield rows.align(list(of_networks)).mean(dim=0)


def changes_with(rows: WeightedRows, shifts: TrendShifts) -> Tensor:
    """Changes of predictions without each row of the bank, (q, n, c); the trend's by shifts."""
    networks = []
    for network in rows.networks:
        mean = network.mean()[:, None]
        changes = torch.stack([*changes_of_network(network)], dim=2)  # by the same trend
        changes = by_row(changes, network.positions, rows.n_rows)
        if isinstance(network, ClassRows):
            changes = shifted_classes(network, mean + changes, shifts) - mean
        else:
            changes = shifted(network, mean + changes, shifts) - mean
        if (excluded := rows.excluded) is not None:
            changes[excluded] = 0.0
        networks.append(changes)
    return torch.stack(networks).mean(dim=0)


def by_row(values: Tensor, positions: Tensor | None, n_rows: int) -> Tensor:
    """Values at positions (q, m), of shape (q, m, c), at all rows of the bank, (q, n, c)."""
    if positions is None:
        return values
    of_rows = values.new_zeros(len(values), n_rows + 1, values.shape[2])
    columns = positions[..., None].expand_as(values)
    return of_rows.scatter_(1, columns, values)[:, :-1]  # the last is no row


# -- of one network ----------------------------------------------------------------------------


def changes_of_network(rows: CandidateRows) -> Iterator[Tensor]:
    """Yield the change of each output's prediction without each candidate, (q, m).

    The trend is the same.
    """
    mean = rows.mean()
    # Without its only neighbour, a prediction is undefined.
    weights = rows.weights.clamp_max(1 - torch.finfo(STORED).eps)
    odds = weights / (1 - weights)
    if isinstance(rows, ClassRows):
        changes = proportional_changes_of_classes(rows, odds, mean)
    else:
        differences = mean[:, None] - rows.adjusted(rows.rows)  # (q, m, c)
        changes = (odds * difference for difference in differences.unbind(dim=2))
    if rows.head.keeps_proportions:
        yield from changes
        return
    leaving = rows.head.affects_other_weights(
        rows.weights, rows.candidates.similarity, rows.excluded
    )
    of_leaving = _means_without(rows, leaving) - mean[leaving.nonzero()[:, 0]]
    for change, of_output in zip(changes, of_leaving.T, strict=True):
        yield change.masked_scatter(leaving, of_output)


def proportional_changes_of_classes(
    rows: ClassRows, odds: Tensor, mean: Tensor
) -> Iterator[Tensor]:
    """Yield the changes of probabilities if other rows take a weight in proportion to theirs.

    `odds`, (q, m), are a row's weight over the weight of all others.
    """
    targets, kept = rows.targets[rows.rows], 1 - rows.smoothing
    targets = targets.reshape(-1, *targets.shape[-2:])  # (q, m, C), or (1, n, C)
    of_rows = kept * rows.masses * rows.odds

    def left(c: int) -> Tensor:
        """Votes for a class without each row: the others' weights grow by its share."""
        place = slice(None), c, None
        of_row = kept * rows.odds[place] * targets[..., c]
        still = rows.votes[place] + odds * (of_rows[place] - of_row)
        return rows.pooled(still.clamp_min(0.0), place)  # less than 0 by rounding

    for output in spans_of(rows.head.sizes):
        classes = range(output.start, output.stop)
        total = reduce(torch.add, map(left, classes))
        for c in classes:
            yield rows.mixed(left(c) / total, (slice(None), c, None)) - mean[:, c, None]


def _means_without(rows: CandidateRows, leaving: Tensor) -> Tensor:
    """Predictions without one candidate, (p, c), by the definition, for pairs of `leaving`."""
    queries, columns = leaving.nonzero(as_tuple=True)
    means = [rows.targets[:0]]
    for pairs in spans(len(queries), max(1, LEAVE_ONE_OUT_PAIRS // leaving.shape[1])):
        query, column = queries[pairs], columns[pairs, None]
        weights = _weights_without(rows, query, column)
        means.append(rows.mean_by(weights, query, _attenuation_without(rows, query, column)))
    return torch.cat(means)


def _attenuation_without(rows: CandidateRows, queries: Tensor, column: Tensor) -> Tensor | None:
    """Factor of the adjustments of queries (p,) without one candidate (p, 1), (p, 1).

    None where it stays, or where Euclidean distances are those of the nearest rows alone.
    """
    head, similarity = rows.head, rows.candidates.similarity
    fixed = rows.adjustment_scale is None or not head.trust_radius.isfinite()
    if fixed or rows.candidates.nearest is not None or similarity.shape[1] < 2:
        return None
    similarities, columns = similarity.topk(2, dim=1)
    second = replace(rows, candidates=replace(rows.candidates, similarity=similarities[:, 1:]))
    changed = attenuation(second.distance, head.trust_radius)[queries]
    return torch.where(column == columns[queries, :1], changed, rows.attenuation[queries])


def _weights_without(rows: CandidateRows, queries: Tensor, column: Tensor) -> Tensor:
    """Weights of queries (p,) without one candidate (p, 1), (p, m); the only one is kept."""
    if rows.head.keeps_proportions:
        weights = rows.weights[queries].scatter_(1, column, 0.0)
    else:
        weights = rows.weigh(queries, column)
    alone = torch.zeros_like(weights).scatter_(1, column, 1.0)
    return torch.where(weights.sum(dim=1, keepdim=True) > 0, normalize(weights), alone)


def shifted(rows: CandidateRows, predicted: Tensor, shifts: TrendShifts) -> Tensor:
    """Predictions without each row, (q, n, c), from those by the same trend, in place.

    The value of the trend changes at a query and at its neighbours.
    """
    assert rows.offset is not None
    kept, slopes, of_queries = rows.offset.kept, rows.sensitivity, shifts.at_queries
    every = torch.arange(len(rows.targets), device=predicted.device)
    for i in range(len(predicted)):
        query, weights = slice(i, i + 1), rows.weights[i]
        leaving = (weights > NEGLIGIBLE).nonzero()[:, 0]
        without = _weights_without(rows, torch.full_like(leaving, i), leaving[:, None])
        columns = (weights + without.sum(dim=0) > NEGLIGIBLE).nonzero()[:, 0]
        row_of = every if rows.positions is None else rows.positions[i]
        positions, left = row_of[columns], row_of[leaving]
        values = rows.adjust(rows.summands(positions[None], query), query)[0, :, None]
        moved = values + slopes[i, 1] * (of_queries[i] - kept * shifts.at_rows(i, positions))
        moved = rows.head.within_bounds(moved) - rows.head.within_bounds(values)  # (m, n, c)
        weights, without = weights[columns], without[:, columns]
        predicted[i] += torch.einsum("m,mnc->nc", weights, moved)
        predicted[i, left] += torch.einsum("lm,mlc->lc", without - weights, moved[:, left])
    return predicted


def shifted_classes(rows: ClassRows, predicted: Tensor, shifts: TrendShifts) -> Tensor:
    """Probabilities without each row, (q, n, C), from those by the same trend."""
    assert rows.offset is not None
    query = slice(None), None
    of_rows = predicted if rows.added is None else predicted - rows.added[query]
    # Less than 0 by rounding.
    votes = rows.offset.shifted(of_rows.clamp_min(0.0), shifts.at_queries)
    return rows.mixed(rows.head.normalized(votes.flatten(0, 1)).view_as(votes), query)
