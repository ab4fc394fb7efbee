"""Queries that are embedded once, for several methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embedded queries, which methods take instead of `X`.

    Parameters
    ----------
    embeddings : Tensor of shape (n_queries, d)
        Their embeddings.
    network : NeighborNetwork
        The network that embedded them.
    labels : object ndarray of shape (n_queries,), optional
        Their labels in the index of their table.
    """

    embeddings: Tensor
    network: nn.Module
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.embeddings)
