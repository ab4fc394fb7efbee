"""Queries that are embedded once, for several methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Embedded:
    """Queries that were embedded before they are asked about.

    Parameters
    ----------
    embeddings : Tensor of shape (n_queries, d)
        Where they are.
    network : NeighborNetwork
        The network that put them there.
    labels : object ndarray of shape (n_queries,), optional
        What the index of their table called them.
    """

    embeddings: Tensor
    network: nn.Module
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.embeddings)
