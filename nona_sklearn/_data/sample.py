"""Rows in the form of a network's input: training samples and embedded queries."""

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
    """Hold training or validation rows of a network."""

    X: Tensor | Rows  # (n, n_features)
    y: Tensor  # (n,) or (n, n_outputs), encoded targets
    log_prior: Tensor | None = None  # (n,), logarithms of sample weights; None: all are equal
    groups: Tensor | None = None  # (n,), codes; rows of a group are no neighbours in training
    times: Tensor | None = None  # (n,), float64; a row is a neighbour of later rows only
    offset: Tensor | None = None  # shape of y, an encoded, cross-fitted trend

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Sample:
        """Return the sample of the given rows."""
        return replace(self, **{name: part[rows] for name, part in self._parts().items()})

    def to(self, device: torch.device) -> Sample:
        """Return the sample on a device."""
        return replace(self, **{name: part.to(device) for name, part in self._parts().items()})

    def _parts(self) -> dict[str, Any]:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def residuals(self) -> Tensor:
        """Return the targets minus the trend, or the targets without a trend."""
        return self.y if self.offset is None else self.y - self.offset

    @property
    def weights(self) -> list[Tensor]:
        """Return the rows' weights (n,) in a list, which is empty if they are equal."""
        return [] if self.log_prior is None else [normalize_mean(self.log_prior).float()]


@dataclass(frozen=True, eq=False)
class TableRows:
    """Hold rows of a table as encoded features and, if the trend needs them, as given."""

    encoded: Tensor  # (n_rows, n_features)
    given: Any = None  # the same rows of the table as given

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, rows: Any) -> TableRows:
        """Return the given rows."""
        if self.given is None:
            return TableRows(self.encoded[rows])
        given = _safe_indexing(self.given, np.arange(len(self))[rows])
        return TableRows(self.encoded[rows], given)


@dataclass(frozen=True, eq=False)
class Embedded:
    """Hold embedded queries, which methods accept in place of `X`."""

    embeddings: Tensor  # (n_queries, d)
    network: nn.Module | None = None  # the network that embedded the queries
    labels: np.ndarray | None = None  # (n_queries,), index labels of the queries' table
    ids: Tensor | None = None  # (n_queries,), ids if queries are bank rows, left out
    times: Tensor | None = None  # (n_queries,); neighbours are earlier
    added: Tensor | None = None  # (n_queries, n_outputs), effect of unknown levels
    inputs: TableRows | None = None  # inputs of the trend, if there is one

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: np.ndarray | slice) -> Embedded:
        """Return the given queries."""
        names = "embeddings", "labels", "ids", "times", "added", "inputs"
        parts = {name: getattr(self, name) for name in names}
        return replace(self, **{n: part[rows] for n, part in parts.items() if part is not None})
