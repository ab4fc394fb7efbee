"""Queries that are embedded once, for several methods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table in the forms of which a trend takes one or both."""

    encoded: Tensor  # (n_rows, n_features)
    given: Any = None  # the same rows of the table, if the trend needs them

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, rows: Any) -> TableRows:
        """Select some of the rows."""
        numbers = np.arange(len(self))[rows]
        given = None if self.given is None else _safe_indexing(self.given, numbers)
        return TableRows(self.encoded[rows], given)


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embedded queries, which methods take instead of `X`."""

    embeddings: Tensor  # (n_queries, d)
    network: nn.Module | None = None  # that embedded them
    labels: np.ndarray | None = None  # (n_queries,), their labels in the index of their table
    ids: Tensor | None = None  # (n_queries,), of rows of the bank, each predicted without itself
    times: Tensor | None = None  # (n_queries,), before which neighbours are
    added: Tensor | None = None  # (n_queries, n_outputs), what unknown levels add
    inputs: TableRows | None = None  # of a trend, if there is one

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: np.ndarray | slice) -> Embedded:
        """Select some of the queries."""
        names = "embeddings", "labels", "ids", "times", "added", "inputs"
        parts = {name: getattr(self, name) for name in names}
        return replace(self, **{n: part[rows] for n, part in parts.items() if part is not None})
