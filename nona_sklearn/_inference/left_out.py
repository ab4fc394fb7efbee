"""The trend without rows of the bank: without queries that are rows, and without each row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._data.embedded import TableRows
from .._trend.trend import Trend
from .._utils.threads import cached_property
from .neighbors import Neighbors


@dataclass(frozen=True, eq=False)
class LeftOutQueries:
    """Rows of a bank as queries.

    Parameters
    ----------
    trend : Trend
        The trend, which is fitted to them.
    neighbors : Neighbors
        The bank's rows.
    ids : int Tensor of shape (n,)
        Their ids.
    queries : int Tensor of shape (q,)
        Ids of the queries.
    """

    trend: Trend
    neighbors: Neighbors
    ids: Tensor
    queries: Tensor

    def __getitem__(self, queries: Tensor | slice) -> LeftOutQueries:
        return replace(self, queries=self.queries[queries])

    @cached_property
    def residuals(self) -> Tensor:
        """Residuals of the bank's rows from the trend without each query, (q, n, n_outputs)."""
        of_all = self.neighbors.residuals
        parts = (each.cpu().numpy() for each in (self.queries, self.ids, of_all))
        return torch.from_numpy(self.trend.residuals_without(*parts)).to(of_all)


@dataclass(frozen=True, eq=False)
class TrendShifts:
    """By how much a trend changes without each row of a bank, at queries and their neighbours.

    Parameters
    ----------
    trend : Trend
        The trend, which is fitted to rows of the bank.
    ids : int Tensor of shape (n,)
        Ids of the bank's rows.
    inputs : TableRows
        Their features.
    of_queries : TableRows
        Features of the queries.
    queries : int Tensor of shape (q,), optional
        Their ids, if they are rows of the bank as well.
    """

    trend: Trend
    ids: Tensor
    inputs: TableRows
    of_queries: TableRows
    queries: Tensor | None = None

    def __getitem__(self, rows: Tensor | slice) -> TrendShifts:
        queries = None if self.queries is None else self.queries[rows]
        rows = rows.cpu() if isinstance(rows, Tensor) else rows
        return replace(self, of_queries=self.of_queries[rows], queries=queries)

    @property
    def at_queries(self) -> Tensor:
        """Changes of the values at the queries, (q, n, n_outputs)."""
        removed = self.ids.cpu().numpy()
        if self.queries is None:
            found = self.trend.shifts(removed, self.of_queries)
        else:
            own = self.queries.cpu().numpy()
            found = self.trend.shifts_of_rows(removed, own, self.of_queries)
        return torch.from_numpy(found).to(self.ids.device)

    def at_rows(self, query: int, rows: Tensor) -> Tensor:
        """Changes of the values at rows, by their positions, for a query, (m, n, n_outputs)."""
        if self.queries is not None and self.trend.leaves_out_single_rows:
            return self._at(rows, int(self.queries[query]))
        missing = [row for row in rows.tolist() if row not in self._known]
        if missing:
            found = self._at(torch.tensor(missing), None)
            self._known.update(zip(missing, found, strict=True))
        return torch.stack([self._known[row] for row in rows.tolist()])

    @cached_property
    def _known(self) -> dict[int, Tensor]:
        """Changes of the values at rows that are the same for all queries, by their positions."""
        return {}

    def _at(self, rows: Tensor, own: int | None) -> Tensor:
        removed, some = self.ids.cpu().numpy(), rows.cpu()
        found = self.trend.shifts_of_rows(removed, removed[some.numpy()], self.inputs[some], own)
        return torch.from_numpy(found).to(self.ids.device)
