"""Queries that are embedded once, for several methods."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embedded queries, which methods take instead of `X`."""

    embeddings: Tensor  # (n_queries, d)
    network: nn.Module | None = None  # that embedded them
    labels: np.ndarray | None = None  # (n_queries,), their labels in the index of their table
    ids: Tensor | None = None  # (n_queries,), of rows of the bank, each predicted without itself
    times: Tensor | None = None  # (n_queries,), before which neighbours are
    added: Tensor | None = None  # (n_queries, n_outputs), variances that unknown levels add
    inputs: Tensor | None = None  # (n_queries, n_features), encoded, if there is a trend of them

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: np.ndarray) -> Embedded:
        """Select some of the queries."""
        names = "embeddings", "labels", "ids", "times", "added", "inputs"
        parts = {name: getattr(self, name) for name in names}
        return replace(self, **{k: part[rows] for k, part in parts.items() if part is not None})

    @classmethod
    def concatenate(cls, blocks: list[Embedded]) -> Embedded:
        """Join blocks of queries that have nothing but embeddings and inputs."""
        inputs = [block.inputs for block in blocks if block.inputs is not None]
        return cls(
            torch.cat([block.embeddings for block in blocks]),
            blocks[0].network,
            inputs=torch.cat(inputs) if inputs else None,
        )
