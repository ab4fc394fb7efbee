"""All weights and adjusted values of a block of queries, averaged over the networks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from .._utils.threads import cached_property
from ..ranking import largest
from .tiles import Tiles


class WeightedRows:
    """Weights and adjusted values of a block of queries, in float64, averaged over networks.

    Columns are all rows of the bank, or those that any of the networks weighs: each query's own,
    ascending, and then some without a row and without weight.
    """

    def __init__(self, networks: list[Tiles]):
        self.networks = networks
        self.n_rows = len(networks[0].neighbors)

    def __len__(self) -> int:
        return len(self.networks[0].query)

    @cached_property
    def _joined(self) -> tuple[Tensor, Tensor] | None:
        """Rows of the columns, (q, m), and each network's columns, side by side, (q, K k)."""
        each = [tiles.positions for tiles in self.networks]
        if each[0] is None:
            return None
        positions = torch.cat([p for p in each if p is not None], dim=1)
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

    def _align(self, each: list[Tensor]) -> Tensor:
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

    def weights(self, power: float = 1.0) -> Tensor:
        """The mean of the networks' weights, each taken to a power, (q, m)."""
        if len(self.networks) == 1 and self._joined is None:
            return self.networks[0].shares(power)
        return self._of_networks(power).mean(dim=0)

    def _of_networks(self, power: float = 1.0) -> Tensor:
        return self._align([tiles.shares(power) for tiles in self.networks])

    @cached_property
    def values(self) -> Tensor:
        """Adjusted values, (q, m, n_outputs), or (1, n, n_outputs) if all rows have the same."""
        if self.positions is None:
            return self._mean_adjusted(slice(0, self.n_rows), self._of_networks())
        return self._mean_adjusted(self._rows, self._of_networks())

    @property
    def _rows(self) -> Tensor:
        """Rows with which to index the bank's tensors; any for a column without a row."""
        assert self.positions is not None
        return self.positions.clamp_max(max(self.n_rows - 1, 0))

    def _mean_adjusted(self, rows: slice | Tensor, weights: Tensor) -> Tensor:
        """Adjusted values of rows, averaged over networks by their weights (K, q, m).

        Where all weights are 0, it is a plain average.
        """
        values = self.networks[0].neighbors.columns[rows]
        values = values.reshape(-1, *values.shape[-2:])
        if not self.networks[0].moves_values:
            return values
        total = weights.sum(dim=0)
        share = torch.where(total > 0, weights / total, 1 / len(self.networks))
        moves = (tiles.adjusted(rows) - values for tiles in self.networks)
        # In this form, rounded shares leave values as they are where nothing moves them.
        return values + sum(s[..., None] * move for s, move in zip(share, moves, strict=True))

    def heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) and adjusted values (q, k, n_outputs), heaviest first.

        Rows without weight come last, and then excluded ones, of weight -1.
        """
        weights = self.weights()
        if self.positions is None:
            return self._heaviest_of_all(weights, k)
        admitted = self.positions < self.n_rows
        weights = torch.where(admitted, weights, -1.0)
        found, column = largest(weights, min(k, weights.shape[1]))
        positions = self.positions.gather(1, column)
        if k > positions.shape[1] or (found < 0).any():
            found, positions = self._with_rows_without_weight(found, positions, k)
        mine = (self._rows[:, None] == positions[:, :, None]) & admitted[:, None]  # (q, k, m)
        each = torch.einsum("qkm,nqm->nqk", mine.double(), self._of_networks())
        return found, positions, self._mean_adjusted(positions, each)

    def _heaviest_of_all(self, weights: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        excluded = self.networks[0].excluded(slice(0, self.n_rows))
        if excluded is not None:
            weights = weights.clone()
            weights[excluded] = -1.0
        found, positions = largest(weights, min(k, self.n_rows))
        of_networks = torch.stack([each.gather(1, positions) for each in self._of_networks()])
        values = self._mean_adjusted(positions, of_networks)
        missing = k - found.shape[1]  # of a shard with fewer rows
        found, positions = F.pad(found, (0, missing), value=-1.0), F.pad(positions, (0, missing))
        return found, positions, F.pad(values, (0, 0, 0, missing))

    def _with_rows_without_weight(
        self, found: Tensor, positions: Tensor, k: int
    ) -> tuple[Tensor, Tensor]:
        """Fill up to k rows, with admitted ones first."""
        excluded = self.networks[0].excluded(slice(0, self.n_rows))
        rank = found.new_zeros(len(found), self.n_rows + 1)  # the last column is no row
        if excluded is not None:
            rank[excluded] = 1.0
        rank.scatter_(1, positions, torch.where(found >= 0, -2.0, 2.0).to(rank))
        rank[:, -1] = 3.0
        rest = rank.argsort(dim=1, stable=True)[:, :k]
        n_found = (found >= 0).sum(dim=1, keepdim=True)
        place = torch.arange(k, device=found.device)
        others = rest.gather(1, place.expand(len(found), -1))
        # The rows that were found are the first of `rest`, in the order of their numbers.
        padded = F.pad(positions, (0, max(0, k - positions.shape[1])))[:, :k]
        weights = F.pad(found, (0, max(0, k - found.shape[1])))[:, :k]
        is_found = place < n_found
        return torch.where(is_found, weights, 0.0), torch.where(is_found, padded, others)

    def sparse(self, tolerance: float = 0.0) -> sparse.csr_array:
        """Weights above a tolerance, (q, n)."""
        weights = self.weights().cpu().numpy()
        kept = weights > tolerance
        ends = np.concatenate([[0], kept.sum(axis=1).cumsum()])
        rows = (
            np.nonzero(kept)[1] if self.positions is None else self.positions.cpu().numpy()[kept]
        )
        return sparse.csr_array((weights[kept], rows, ends), (len(weights), self.n_rows))

    def changes(self, summands: Tensor) -> Iterator[Tensor]:
        """Yield the change of each output's prediction without the row of a column, (q, m).

        `summands` are the neighbours' values, :func:`~.neighbors.with_ones`.
        """
        each = [tiles.changes(tiles.mean(summands)) for tiles in self.networks]
        for of_networks in zip(*each, strict=True):
            yield self._align(list(of_networks)).mean(dim=0)

    def sum_by_row(self, values: Tensor) -> Tensor:
        """Sums over the queries of something for each column, (q, m), by the bank's rows, (n,)."""
        if self.positions is None:
            return values.sum(dim=0)
        sums = values.new_zeros(self.n_rows + 1)  # the last is of columns without a row
        return sums.index_add_(0, self.positions.flatten(), values.flatten())[:-1]
