"""What networks in files of earlier versions have."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._trend.additive_trend import AdditiveFunction


class WithTrend(nn.Module):
    """An embedding, and beside it an additive trend: (n, n_features) -> (n, d + n_outputs).

    In these files, the trend of SoftStep k-NN is g, in units of the encoded targets. Today it is a
    field of the bank.
    """

    embedding: nn.Module
    trend: AdditiveFunction

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.embedding(x), self.trend.sum(x)], dim=1)
