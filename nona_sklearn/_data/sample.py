"""Rows as networks take them: samples to train on, and queries that are embedded once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing
from torch import Tensor, nn

from .row_values import normalize_mean
from .rows import Rows


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows that a network trains on, or is validated by."""

    X: Tensor | Rows  # (n, n_features)
    y: Tensor  # (n,) or (n, n_outputs), encoded targets
    log_prior: Tensor | None = None  # (n,), logarithms of sample weights; None: all are equal
    groups: Tensor | None = None  # (n,), codes; rows of a group are no neighbours in training
    times: Tensor | None = None  # (n,), float64; a row is a neighbour of later ones only
    offset: Tensor | None = None  # of the shape of y, a cross-fitted trend, encoded

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Sample:
        """Select some of the rows."""
        return replace(self, **{name: part[rows] for name, part in self._parts().items()})

    def to(self, device: torch.device) -> Sample:
        """Move the rows to a device."""
        return replace(self, **{name: part.to(device) for name, part in self._parts().items()})

    def _parts(self) -> dict[str, Any]:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def residuals(self) -> Tensor:
        """What a network learns: the targets, minus the trend if there is one."""
        return self.y if self.offset is None else self.y - self.offset

    @property
    def weights(self) -> list[Tensor]:
        """The weights of the rows in a mean over them, (n,), if they differ."""
        return [] if self.log_prior is None else [normalize_mean(self.log_prior).float()]


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table in the forms of which a trend takes one or both."""

    encoded: Tensor  # (n_rows, n_features)
    given: Any = None  # the same rows of the table, if the trend needs them

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, rows: Any) -> TableRows:
        """Select some of the rows."""
        if self.given is None:
            return TableRows(self.encoded[rows])
        given = _safe_indexing(self.given, np.arange(len(self))[rows])
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
