"""The trend without queries that are rows of the bank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

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
