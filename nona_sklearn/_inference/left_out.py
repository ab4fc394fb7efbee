"""Queries that are rows of the bank, which are left out of the trend at their neighbours, too."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._trend.kernel_trend import KernelTrend
from .neighbors import Neighbors


@dataclass(frozen=True, eq=False)
class LeftOutQueries:
    """Rows of a bank as queries.

    Parameters
    ----------
    trend : KernelTrend
        The trend, which is fitted to them.
    neighbors : Neighbors
        The bank's rows.
    ids : int Tensor of shape (n,)
        Their ids.
    queries : int Tensor of shape (q,)
        Ids of the queries.
    """

    trend: KernelTrend
    neighbors: Neighbors
    ids: Tensor
    queries: Tensor

    def __getitem__(self, queries: Tensor | slice) -> LeftOutQueries:
        return replace(self, queries=self.queries[queries])

    def residuals(self, queries: slice) -> Tensor:
        """Residuals of the bank's rows from the trend without each query, (q, n, n_outputs)."""
        of_all = self.neighbors.residuals
        own = self.queries[queries].cpu().numpy()
        found = self.trend.residuals_without(own, self.ids.cpu().numpy()).to(of_all)
        found = torch.where(found.isnan(), of_all, found)
        # A query has no weight of its own, but a product with infinity would be NaN.
        itself = self.ids == self.queries[queries, None]
        return torch.where(itself[..., None], of_all, found)
