"""What levels of categories that training has not seen do to predictions."""

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
    """What unknown levels add to the distributions of numbers, or to probabilities of classes.

    To a variance, each adds a share of the variance of the targets. Together they add the sum of
    their shares, but no more than 1, or the largest of them. In the probability of a class, its
    frequency has a share, of several unknown levels the largest: copies of a category tell the
    same.

    Parameters
    ----------
    shares : tuple of tuple of float
        Of each category, for each output; of classes for each class.
    amounts : tuple of float
        What the shares are of: the variance of each output, or the frequency of each class.
    of_classes : bool
        Whether the targets are classes.
    """

    shares: tuple[tuple[float, ...], ...]
    amounts: tuple[float, ...]
    of_classes: bool

    @classmethod
    def of(cls, shares: Tensor, neighbors: Neighbors, of_classes: bool) -> UnknownLevels:
        """Shares (n_categories, n_outputs) of what the targets of some neighbours have."""
        amounts = neighbors.variance
        if of_classes:
            amounts = prior_mean(neighbors.columns, neighbors.log_prior)
        return cls(tuple(map(tuple, shares.tolist())), tuple(amounts.tolist()), of_classes)

    def with_targets(self, neighbors: Neighbors) -> UnknownLevels:
        """The same shares of other targets; of other outputs, the mean share."""
        shares = torch.tensor(self.shares, dtype=torch.float64)
        n_outputs = neighbors.columns.shape[1]
        if len(self.amounts) != n_outputs:
            varied = torch.tensor(self.amounts) > 0
            mean = shares[:, varied].mean(dim=1, keepdim=True).nan_to_num(0.0)
            shares = mean.expand(-1, n_outputs)
        return UnknownLevels.of(shares, neighbors, self.of_classes)

    def added(self, unknown: Tensor) -> Tensor:
        """What queries have of it, (n_queries, n_outputs), by whether levels are unknown."""
        each = unknown.double()[..., None] * torch.tensor(self.shares, dtype=torch.float64)
        share = each.amax(dim=1)
        if not self.of_classes:
            share = each.sum(dim=1).minimum(share.clamp_min(1.0))
        return share * torch.tensor(self.amounts, dtype=torch.float64)
