"""The effect of levels of categories that training has not seen on predictions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._utils.storable import storable
from ..attention.head import prior_mean
from .neighbors import Neighbors


@storable
@dataclass(frozen=True)
class UnknownLevels:
    """How unknown levels widen distributions of numbers, or level probabilities of classes.

    An unknown level adds a share of the variance of the targets to a variance. Several add the sum
    of their shares, but no more than 1, or the largest of them. The frequency of a class has a
    share in its probability, and of several unknown levels the largest share counts: copies of a
    category tell the same.
    """

    shares: tuple[tuple[float, ...], ...]  # of a category for every output, or every class
    amounts: tuple[float, ...]  # variance of every output, or frequency of every class
    of_classes: bool

    @classmethod
    def from_shares(cls, shares: Tensor, neighbors: Neighbors, of_classes: bool) -> UnknownLevels:
        """Shares (n_categories, n_outputs) of the variance or frequencies of neighbours."""
        amounts = neighbors.variance
        if of_classes:
            amounts = prior_mean(neighbors.columns, neighbors.log_prior)
        return cls(tuple(map(tuple, shares.tolist())), tuple(amounts.tolist()), of_classes)

    def with_targets(self, neighbors: Neighbors) -> UnknownLevels:
        """The same shares of new targets; the mean share, if their number of outputs differs."""
        shares = torch.tensor(self.shares, dtype=torch.float64)
        n_outputs = neighbors.columns.shape[1]
        if len(self.amounts) != n_outputs:
            varied = torch.tensor(self.amounts) > 0
            mean = shares[:, varied].mean(dim=1, keepdim=True).nan_to_num(0.0)
            shares = mean.expand(-1, n_outputs)
        return UnknownLevels.from_shares(shares, neighbors, self.of_classes)

    def added(self, unknown: Tensor) -> Tensor:
        """The amounts for queries, (n_queries, n_outputs), by which levels are unknown."""
        shares = unknown.double()[..., None] * torch.tensor(self.shares, dtype=torch.float64)
        share = shares.amax(dim=1)
        if not self.of_classes:
            share = shares.sum(dim=1).minimum(share.clamp_min(1.0))
        return share * torch.tensor(self.amounts, dtype=torch.float64)
