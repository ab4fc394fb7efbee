"""Rows of a block of queries with their weights, averaged over the networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from .._utils.threads import cached_property
from .._utils.validation import sparse_rows
from ..attention.head import ClassHead
from ..ranking import nearest_first

if TYPE_CHECKING:
    from ..attention.functional import Excluded
    from ..attention.prediction import CandidateRows
    from .neighbors import Exclusion


class WeightedRows:
    """Weights and adjusted targets of a block of queries, in float64, averaged over networks.

    Columns are all rows of the bank, or the rows that a network weighs: ascending for each query,
    and then some without a row and without weight. `queries` are those of an evaluation that
    these are, `exclusion` is of its pairs with rows of the bank.
    """

    def __init__(
        self, networks: list[CandidateRows], queries: slice, exclusion: Exclusion | None = None
    ):
        self.networks, self.queries, self.exclusion = networks, queries, exclusion
        self.n_rows = networks[0].targets.shape[0]

    def __len__(self) -> int:
        return len(self.networks[0])

    @property
    def excluded(self) -> Excluded:
        """Their excluded pairs with all rows of the bank, which few answers need."""
        return None if self.exclusion is None else self.exclusion.of(self.queries)

    # -- means -----------------------------------------------------------------------------

    def mean(self) -> Tensor:
        """The mean of the networks' predictions, (q, c)."""
        return torch.stack([rows.mean() for rows in self.networks]).mean(dim=0)

    def plain_mean(self) -> Tensor:
        """The mean of the networks' weighted means of targets, not adjusted, (q, c)."""
        return torch.stack([rows.plain_mean() for rows in self.networks]).mean(dim=0)

    # -- columns ---------------------------------------------------------------------------

    @cached_property
    def _joined(self) -> tuple[Tensor, Tensor] | None:
        """Positions of the columns, (q, m), and the column of each candidate, (q, K k)."""
        parts = [rows.positions for rows in self.networks if rows.positions is not None]
        if not parts:
            return None
        candidates, order = torch.cat(parts, dim=1).sort(dim=1)
        is_new = F.pad(candidates[:, 1:] != candidates[:, :-1], (1, 0), value=True)
        column = is_new.cumsum(dim=1) - 1
        n_columns = int(column.amax()) + 1 if column.numel() else 0
        positions = candidates.new_full((len(candidates), n_columns), self.n_rows)
        positions.scatter_(1, column, candidates)
        return positions, torch.zeros_like(order).scatter_(1, order, column)

    @property
    def positions(self) -> Tensor | None:
        """Bank position of each column, (q, m); `n_rows` marks an empty one. None: all rows."""
        return None if self._joined is None else self._joined[0]

    @property
    def _rows(self) -> slice | Tensor:
        """What selects the columns from tensors of the bank's rows; any row for an empty one."""
        if self.positions is None:
            return slice(None)
        return self.positions.clamp_max(max(self.n_rows - 1, 0))

    def align(self, values: list[Tensor]) -> Tensor:
        """Values of each network's candidates at the columns, (K, q, m); 0 elsewhere."""
        if self._joined is None:
            return torch.stack(values)
        positions, columns = self._joined
        columns_of_networks = columns.split([part.shape[1] for part in values], dim=1)
        aligned = [
            part.new_zeros(positions.shape).scatter_add_(1, column, part)
            for column, part in zip(columns_of_networks, values, strict=True)
        ]
        return torch.stack(aligned)

    def sum_by_row(self, values: Tensor) -> Tensor:
        """Sums over the queries of values of the columns, (q, m), by the bank's rows, (n,)."""
        if self.positions is None:
            return values.sum(dim=0)
        sums = values.new_zeros(self.n_rows + 1)  # the last is of empty columns
        return sums.index_add_(0, self.positions.flatten(), values.flatten())[:-1]

    # -- weights ---------------------------------------------------------------------------

    def weights(self, power: float = 1.0) -> Tensor:
        """The mean of the networks' weights, each taken to a power, (q, m)."""
        if len(self.networks) == 1 and self._joined is None:
            return self.networks[0].shares(power)
        return self.network_weights(power).mean(dim=0)

    def network_weights(self, power: float = 1.0) -> Tensor:
        """Each network's weights, taken to a power, (K, q, m)."""
        return self.align([rows.shares(power) for rows in self.networks])

    def sparse(self, tolerance: float = 0.0) -> sparse.csr_array:
        """Weights above a tolerance, (q, n)."""
        weights, positions = self.weights().cpu().numpy(), np.arange(self.n_rows)
        if self.positions is not None:
            positions = self.positions.cpu().numpy()
        return sparse_rows(weights, positions, weights > tolerance, self.n_rows)

    # -- adjusted targets ------------------------------------------------------------------

    @cached_property
    def values(self) -> Tensor:
        """Values of distributions, (q, m, n_outputs), or (1, n, n_outputs) if all have the same.

        They are the adjusted targets with the residuals of a trend in full, whose spread is that
        of errors, less what that adds to their weighted mean.
        """
        return self._adjusted(self._rows, self.network_weights(), in_full=True)

    def _adjusted(self, rows: slice | Tensor, weights: Tensor, in_full: bool) -> Tensor:
        """Adjusted targets of rows, averaged over networks by their weights (K, q, m).

        Where all weights are 0, it is a plain average.
        """
        first = self.networks[0]
        targets = first.targets[rows]
        targets = targets if targets.ndim == 3 else targets[None]
        if not first.adjusts:
            return targets
        # In this form, rounded shares leave targets as they are where nothing moves them.
        moved: Tensor | float = 0.0
        for share, network in zip(_shares(weights), self.networks, strict=True):
            moved = moved + share[..., None] * (network.adjusted(rows) - targets)
        mean = first.head.within_bounds(targets + moved)  # beyond which it may be by rounding
        if not in_full or first.offset is None:
            return mean
        return mean + self._not_kept(rows, weights) - self._mean_not_kept

    def _not_kept(self, rows: slice | Tensor, weights: Tensor) -> Tensor:
        """What residuals in full add to adjusted targets of rows, averaged over networks."""
        shares = zip(_shares(weights), self.networks, strict=True)
        parts = [share[..., None] * network.residuals_not_kept(rows) for share, network in shares]
        return torch.stack(parts).sum(dim=0)

    @cached_property
    def _mean_not_kept(self) -> Tensor:
        """The weighted mean of this over all rows, (q, 1, n_outputs)."""
        return self.weights()[:, None] @ self._not_kept(self._rows, self.network_weights())

    # -- the heaviest ----------------------------------------------------------------------

    def heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) and adjusted targets (q, k, n_outputs), heaviest first.

        Of equally heavy rows the first of the bank comes first. Candidates without weight come
        last, the nearest first; after them other rows, excluded ones at the end.
        """
        weights, positions, network_weights = self._heaviest(k)
        head = self.networks[0].head
        ends = head.bounds is not None or isinstance(head, ClassHead)  # beyond which no value is
        return weights, positions, self._adjusted(positions, network_weights, in_full=not ends)

    def network_shares(self, k: int) -> Tensor:
        """Each network's share of the weight of the k heaviest neighbours, (K, q, k)."""
        return _shares(self._heaviest(k)[2])

    def _heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) of k neighbours, and each network's weights (K, q, k)."""
        weights, network_weights = self.weights(), self.network_weights()
        n_networks = len(network_weights)
        if self.positions is None:
            positions = nearest_first(weights, self.networks[0].excluded, k)[:, :k]
            network_weights = network_weights.gather(2, positions.expand(n_networks, -1, -1))
            return weights.gather(1, positions), positions, network_weights
        weights = torch.where(self.positions < self.n_rows, weights, -1.0)
        nearest = torch.where(weights > 0, -1, self._ranks()).argsort(dim=1, stable=True)
        heaviest, order = weights.gather(1, nearest).sort(dim=1, descending=True, stable=True)
        heaviest, column = heaviest[:, :k], nearest.gather(1, order[:, :k])
        positions = self.positions.gather(1, column)
        network_weights = network_weights.gather(2, column.expand(n_networks, -1, -1))
        if heaviest.shape[1] < k or (heaviest < 0).any():
            positions = self._with_rows_beyond(positions, heaviest >= 0, k)
            missing = k - heaviest.shape[1]
            heaviest = F.pad(heaviest, (0, missing))
            network_weights = F.pad(network_weights, (0, missing))
        return heaviest.clamp_min(0.0), positions, network_weights

    def _ranks(self) -> Tensor:
        """The best rank of each column's row among the nearest of a network, (q, m)."""
        assert self._joined is not None
        positions, columns = self._joined
        ranks = [
            torch.arange(rows.weights.shape[1], device=positions.device) for rows in self.networks
        ]
        best = torch.full_like(positions, self.n_rows)
        return best.scatter_reduce_(1, columns, torch.cat(ranks).expand_as(columns), "amin")

    def _with_rows_beyond(self, positions: Tensor, is_row: Tensor, k: int) -> Tensor:
        """Positions (q, k): those of candidates, then other rows, excluded ones last."""
        # In the order in which rows are taken: 0, 1 if excluded, 2 if they are candidates.
        order = positions.new_zeros(len(positions), self.n_rows + 1)  # the last is no row
        if (excluded := self.excluded) is not None:
            order[:, :-1][excluded] = 1
        of_candidates = torch.where(is_row, 2, 0).maximum(order.gather(1, positions))
        order.scatter_(1, positions, of_candidates)
        order[:, -1] = 3
        beyond = order.argsort(dim=1, stable=True)
        rank = torch.arange(k, device=positions.device) - is_row.sum(dim=1, keepdim=True)
        filled = beyond.gather(1, rank.clamp_min(0))
        return torch.where(rank < 0, F.pad(positions, (0, k - positions.shape[1])), filled)


def _shares(weights: Tensor) -> Tensor:
    """Each network's share of the sum of weights (K, ...); of those that are all 0, equal ones."""
    total = weights.sum(dim=0)
    return torch.where(total > 0, weights / total, 1 / len(weights))
