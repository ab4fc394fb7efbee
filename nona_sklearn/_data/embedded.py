"""Queries that are embedded once, for several methods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embedded queries, which methods take instead of `X`."""

    embeddings: Tensor  # (n_queries, d)
    network: nn.Module | None = None  # that embedded them
    labels: np.ndarray | None = None  # (n_queries,), their labels in the index of their table
    ids: Tensor | None = None  # (n_queries,), of rows of the bank, each predicted without itself
    times: Tensor | None = None  # (n_queries,), before which neighbours are
    added: Tensor | None = None  # (n_queries, n_outputs), what unknown levels add
    inputs: Any = None  # of a trend, if there is one: encoded features, or rows of the table

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: np.ndarray) -> Embedded:
        """Select some of the queries."""
        names = "embeddings", "labels", "ids", "times", "added"
        parts = {name: getattr(self, name) for name in names}
        some = {name: part[rows] for name, part in parts.items() if part is not None}
        inputs = None if self.inputs is None else _safe_indexing(self.inputs, rows)
        return replace(self, **some, inputs=inputs)
