"""All weights and adjusted values of a block of queries, averaged over the networks."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from .._utils.arrays import sparse_rows
from .._utils.threads import cached_property
from ..attention import ClassHead
from ..attention.functional import Excluded
from ..attention.prediction import Rows
from ..ranking import nearest_first


class WeightedRows:
    """Weights and adjusted values of a block of queries, in float64, averaged over networks.

    Columns are all rows of the bank, or those that any of the networks weighs: each query's own,
    ascending, and then some without a row and without weight.
    """

    def __init__(self, networks: list[Rows], excluded: Excluded = None):
        self.networks, self.excluded = networks, excluded
        self.n_rows = len(networks[0].targets)

    def __len__(self) -> int:
        return len(self.networks[0].query)

    @cached_property
    def _joined(self) -> tuple[Tensor, Tensor] | None:
        """Rows of the columns, (q, m), and each network's columns, side by side, (q, K k)."""
        each = [rows.positions for rows in self.networks if rows.positions is not None]
        if not each:
            return None
        positions = torch.cat(each, dim=1)
        ordered, order = positions.sort(dim=1)
        new = F.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
        column = new.cumsum(dim=1) - 1
        n_columns = int(column.amax()) + 1 if column.numel() else 0
        rows = positions.new_full((len(positions), n_columns), self.n_rows)
        return rows.scatter_(1, column, ordered), torch.zeros_like(order).scatter_(
            1, order, column
        )

    @property
    def positions(self) -> Tensor | None:
        """The columns' rows, (q, m), of one that has none the length of the bank; None: all."""
        return None if self._joined is None else self._joined[0]

    def align(self, each: list[Tensor]) -> Tensor:
        """What the networks have for their own columns, as (K, q, m) for the joined ones."""
        if self._joined is None:
            return torch.stack(each)
        rows, columns = self._joined
        shares = columns.split([values.shape[1] for values in each], dim=1)
        return torch.stack(
            [
                values.new_zeros(rows.shape).scatter_add_(1, own, values)
                for own, values in zip(shares, each, strict=True)
            ]
        )

    def mean(self) -> Tensor:
        """The mean of the networks' predictions, (q, c)."""
        return torch.stack([rows.mean() for rows in self.networks]).mean(dim=0)

    def plain_mean(self) -> Tensor:
        """The mean of the networks' weighted means of targets, not adjusted, (q, c)."""
        return torch.stack([rows.plain_mean() for rows in self.networks]).mean(dim=0)

    def step_sum(self) -> Tensor:
        """The mean of the networks' sums of steps, (q,)."""
        return torch.stack([rows.step_sum() for rows in self.networks]).mean(dim=0)

    def weights(self, power: float = 1.0) -> Tensor:
        """The mean of the networks' weights, each taken to a power, (q, m)."""
        if len(self.networks) == 1 and self._joined is None:
            return self.networks[0].shares(power)
        return self._of_networks(power).mean(dim=0)

    def _of_networks(self, power: float = 1.0) -> Tensor:
        return self.align([rows.shares(power) for rows in self.networks])

    @cached_property
    def values(self) -> Tensor:
        """Values of distributions, (q, m, n_outputs), or (1, n, n_outputs) if all have the same.

        They are the adjusted values with the residuals of a trend in full, whose spread is that
        of errors, less what that adds to their weighted mean.
        """
        rows, weights = self._every_row, self._of_networks()
        return self._with_residuals(self._mean_adjusted(rows, weights), rows, weights)

    def _with_residuals(self, values: Tensor, rows: slice | Tensor, weights: Tensor) -> Tensor:
        """Adjusted values of rows, with residuals in full, less what that adds to the mean."""
        if self.networks[0].offset is None:
            return values
        return values + self._residuals_not_kept(rows, weights) - self._mean_not_kept

    def _residuals_not_kept(self, rows: slice | Tensor, weights: Tensor) -> Tensor:
        """What adjusted values of rows would gain, averaged over networks by their weights."""
        each = zip(_shares(weights), self.networks, strict=True)
        parts = (share[..., None] * own.residuals_not_kept(rows) for share, own in each)
        return torch.stack([*parts]).sum(dim=0)

    @cached_property
    def _mean_not_kept(self) -> Tensor:
        """The weighted mean of this over all rows, (q, 1, n_outputs)."""
        added = self._residuals_not_kept(self._every_row, self._of_networks())
        return self.weights()[:, None] @ added

    @property
    def _every_row(self) -> slice | Tensor:
        """What selects the columns from tensors of the bank's rows."""
        return slice(None) if self.positions is None else self._rows

    @property
    def _rows(self) -> Tensor:
        """Rows with which to index the bank's tensors; any for a column without a row."""
        assert self.positions is not None
        return self.positions.clamp_max(max(self.n_rows - 1, 0))

    def _mean_adjusted(self, rows: slice | Tensor, weights: Tensor) -> Tensor:
        """Adjusted values of rows, averaged over networks by their weights (K, q, m).

        Where all weights are 0, it is a plain average.
        """
        values = self.networks[0].targets[rows]
        values = values if values.ndim == 3 else values[None]
        if not self.networks[0].moves_targets:
            return values
        moves = (network.adjusted(rows) - values for network in self.networks)
        # In this form, rounded shares leave values as they are where nothing moves them.
        shares = zip(_shares(weights), moves, strict=True)
        mean = values + sum(share[..., None] * move for share, move in shares)
        return self.networks[0].head.within_bounds(mean)  # beyond which it may be by rounding

    def heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) and adjusted values (q, k, n_outputs), heaviest first.

        Of equally heavy rows the first of the bank comes first. Of the candidates, those without
        weight come last, the nearest first; after them other rows, excluded ones at the end.
        """
        weights, positions, each = self._heaviest(k)
        values = self._mean_adjusted(positions, each)
        head = self.networks[0].head
        if head.bounds is None and not isinstance(head, ClassHead):  # whose values end
            values = self._with_residuals(values, positions, each)
        return weights, positions, values

    def network_shares(self, k: int) -> Tensor:
        """Each network's share of the weight of the k heaviest neighbours, (K, q, k)."""
        return _shares(self._heaviest(k)[2])

    def _heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) of k neighbours, and each network's weights (K, q, k)."""
        weights = self.weights()
        if self.positions is None:
            excluded = self.networks[0].excluded
            positions = nearest_first(weights, excluded, k)[:, :k]
            each = torch.stack([own.gather(1, positions) for own in self._of_networks()])
            return weights.gather(1, positions), positions, each
        weights = torch.where(self.positions < self.n_rows, weights, -1.0)
        nearest = torch.where(weights > 0, -1, self._places()).argsort(dim=1, stable=True)
        found, order = weights.gather(1, nearest).sort(dim=1, descending=True, stable=True)
        found, column = found[:, :k], nearest.gather(1, order[:, :k])
        positions = self.positions.gather(1, column)
        each = self._of_networks()
        each = each.gather(2, column.expand(len(each), -1, -1))
        if found.shape[1] < k or (found < 0).any():
            positions = self._with_further_rows(positions, found >= 0, k)
            missing = k - found.shape[1]
            found, each = F.pad(found, (0, missing)), F.pad(each, (0, missing))
        return found.clamp_min(0.0), positions, each

    def _places(self) -> Tensor:
        """The place of each column's row among the nearest, in the network where it is first."""
        assert self._joined is not None
        rows, columns = self._joined
        places = [torch.arange(own.weights.shape[1], device=rows.device) for own in self.networks]
        first = torch.full_like(rows, self.n_rows)
        return first.scatter_reduce_(1, columns, torch.cat(places).expand_as(columns), "amin")

    def _with_further_rows(self, positions: Tensor, found: Tensor, k: int) -> Tensor:
        """Rows (q, k): those found of some, then others, excluded ones last."""
        last = positions.new_zeros(len(positions), self.n_rows + 1)  # the last column is no row
        if self.excluded is not None:
            last[:, :-1][self.excluded] = 1
        last.scatter_(1, positions, torch.where(found, 2, 0).maximum(last.gather(1, positions)))
        last[:, -1] = 3
        others = last.argsort(dim=1, stable=True)
        n_found = found.sum(dim=1, keepdim=True)
        place = torch.arange(k, device=positions.device) - n_found
        filled = others.gather(1, place.clamp_min(0))
        return torch.where(place < 0, F.pad(positions, (0, k - positions.shape[1])), filled)

    def sparse(self, tolerance: float = 0.0) -> sparse.csr_array:
        """Weights above a tolerance, (q, n)."""
        weights = self.weights().cpu().numpy()
        rows = np.arange(self.n_rows) if self.positions is None else self.positions.cpu().numpy()
        return sparse_rows(weights, rows, weights > tolerance, self.n_rows)

    def by_row(self, values: Tensor) -> Tensor:
        """Something for each column, (q, m, c), for each of the bank's rows, (q, n, c)."""
        if self.positions is None:
            return values
        found = values.new_zeros(len(values), self.n_rows + 1, values.shape[2])
        places = self.positions[..., None].expand_as(values)
        return found.scatter_(1, places, values)[:, :-1]  # the last is of columns without a row

    def sum_by_row(self, values: Tensor) -> Tensor:
        """Sums over the queries of something for each column, (q, m), by the bank's rows, (n,)."""
        if self.positions is None:
            return values.sum(dim=0)
        sums = values.new_zeros(self.n_rows + 1)  # the last is of columns without a row
        return sums.index_add_(0, self.positions.flatten(), values.flatten())[:-1]


def _shares(weights: Tensor) -> Tensor:
    """Each network's share of the sum of weights (K, ...); of those that are all 0, equal ones."""
    total = weights.sum(dim=0)
    return torch.where(total > 0, weights / total, 1 / len(weights))
