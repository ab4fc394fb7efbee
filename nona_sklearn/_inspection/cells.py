"""Rows whose cells are those of other rows: of the bank, and of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from .._data.tables import gather_cells, stack_rows
from .._estimators.feature_comparison import (
    ComparedColumn,
    as_ordered,
    checked_table,
    comparable,
    read_beside,
    rows_of_bank,
)


@dataclass(frozen=True)
class Cells:
    """Rows whose cells are those of other rows: a cell is the number of the row with its value.

    These are the rows of the bank, by their positions, and then the queries.

    Parameters
    ----------
    model : Unwrapped
        The fitted model.
    table : DataFrame or ndarray of shape (n + q, d)
        Rows of the bank, and queries.
    rows, queries : list of ComparedColumn
        Its columns, of the bank and of the queries.
    codes : int ndarray of shape (n + q, d)
        Equal values of a column have equal codes.
    numbers : list of ndarray or None
        The values of each column as numbers, (n + q,); None of columns without an order.
    """

    model: Any
    table: Any
    rows: list[ComparedColumn]
    queries: list[ComparedColumn]
    codes: np.ndarray
    numbers: list[np.ndarray | None]

    @classmethod
    def of(cls, model: Any, X: Any, features: Any) -> Cells:
        """Join the rows of the bank, with their features, and the queries."""
        X, features = checked_table("X", X), checked_table("features", features)
        places, X = rows_of_bank(model.estimator.bank_, features), as_ordered(X, features)
        rows, queries = read_beside(features, places, X)
        codes, numbers = [], []
        for pair in zip(rows, queries, strict=True):
            *values, ordered = comparable(*pair)
            joined = np.concatenate(values)
            codes.append(np.unique(joined, return_inverse=True)[1] if ordered else _code(joined))
            numbers.append(joined if ordered else None)
        table = stack_rows(_safe_indexing(features, places), X)
        return cls(model, table, rows, queries, np.stack(codes, axis=1), numbers)

    @property
    def n_rows(self) -> int:
        """Number of the bank's rows."""
        return len(self.rows[0].shown)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [feature.name for feature in self.rows]

    @property
    def columns(self) -> np.ndarray:
        """Numbers of the columns, (d,)."""
        return np.arange(len(self.rows))

    def row(self, number: int) -> np.ndarray:
        """The cells (d,) of a row of the bank, or of a query."""
        return np.full(len(self.rows), number)

    def differ(self, cells: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Numbers of the columns in which two rows (d,) differ."""
        columns = self.columns
        return np.flatnonzero(self.codes[cells, columns] != self.codes[others, columns])

    def make(self, cells: np.ndarray) -> Any:
        """A table of rows (m, d)."""
        return gather_cells(self.table, cells)

    def predict(self, cells: np.ndarray) -> Any:
        """The prediction for a row (d,)."""
        return self.model.predict(self.make(cells[None]))[0]

    def between(self, column: int, start: int, end: int, shares: np.ndarray) -> np.ndarray:
        """Cells of a column on the line between two others, for shares of the way, (s,).

        Each has the first of the bank's values that is so far along. Without an order, it is the
        end.
        """
        values = self.numbers[column]
        if values is None or np.isnan(values[[start, end]]).any():
            return np.full(len(shares), end)
        way = (values[: self.n_rows] - values[start]) / (values[end] - values[start])
        order = np.argsort(way)  # NaN comes last
        return order[np.searchsorted(way[order], np.minimum(shares, way[end]))]


def _code(values: np.ndarray) -> np.ndarray:
    """Number the values of a column without an order, (n,)."""
    numbered: dict[Any, int] = {}
    return np.array([numbered.setdefault(value, len(numbered)) for value in values])
