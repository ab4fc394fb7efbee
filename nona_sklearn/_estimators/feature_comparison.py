"""Features of queries and neighbours side by side, and the features that differ most."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from .._data.columns import Column, plain_values, read_columns
from .._data.forms import read_as, read_strings
from .._data.names import are_row_numbers, free_name, index_of
from .._data.row_values import as_array
from .._data.sample import Embedded
from .._data.tables import is_frame, names_of_columns, select_columns
from .._inference.bank import NeighborBank
from .._inference.explanation import Explanation
from .._utils.validation import is_missing

N_NAMED_COLUMNS = 3  # named as differing most
UNEQUAL = 1.0  # difference of two categories, in units of a number's spread
ORDERED = "number", "duration", "date"  # kinds of columns with differences
N_LISTED = 5  # rows or columns in a message


@dataclass(frozen=True)
class ComparedColumn:
    """A column of a table, with values to show and values to compare."""

    name: str
    shown: np.ndarray  # as given
    read: Column  # as compared

    def __getitem__(self, rows: np.ndarray) -> ComparedColumn:
        """Return the column for selected rows."""
        return ComparedColumn(self.name, self.shown[rows], self.read[rows])

    @property
    def numbers(self) -> np.ndarray | None:
        """Values of an ordered column as float64, with NaN for gaps; None if it has no order."""
        if self.read.kind not in ORDERED:
            return None
        if self.read.kind != "date":
            return self.read.values
        moments = self.read.values.astype(np.int64).astype(np.float64)
        return np.where(np.isnat(self.read.values), np.nan, moments)

    @property
    def categories(self) -> np.ndarray:
        """Values of the column as objects, with None for gaps."""
        values = self.read.values.astype(object)
        if self.read.kind != "category":  # gaps of categories are None
            values[[is_missing(value) for value in values]] = None
        return values


def comparable(
    rows: ComparedColumn, queries: ComparedColumn
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return a column's values in two tables, and whether they are numbers in both."""
    row_values, query_values = rows.numbers, queries.numbers
    if row_values is not None and queries.read.kind == "empty":  # the kind of the rows holds
        return row_values, np.full(len(queries.shown), np.nan), True
    if row_values is None or query_values is None or rows.read.kind != queries.read.kind:
        return rows.categories, queries.categories, False
    return row_values, query_values, True


# -- tables ------------------------------------------------------------------------------------


def checked_table(parameter: str, X: Any) -> Any:
    """Return a frame or an array of two axes, or raise an error."""
    wanted = f"{parameter} must be a table where features are given"
    if parameter == "features":
        wanted = "features must be the table given to fit, which the bank does not store"
    if X is None:
        raise ValueError(f"{wanted}, got None")
    if isinstance(X, Embedded):
        raise ValueError(f"{wanted}, got embeddings")
    if issparse(X):
        raise TypeError(
            f"{parameter} must be dense where features are given, got a sparse matrix: explain a "
            "pipeline by its own X, such as texts in a column of a DataFrame, see unwrap"
        )
    if is_frame(X, parameter):
        return X
    try:
        array = as_array(X)
    except ValueError as error:  # rows of several lengths, or images of several sizes
        raise ValueError(f"{wanted}, got {X!r:.100}") from error
    if array.ndim != 2:
        what = f"{X!r:.100}" if array.ndim == 0 else f"shape {array.shape}"
        raise ValueError(f"{wanted}, of shape (n_samples, n_features), got {what}")
    return array.astype(object) if array.dtype.kind in "UST" else array


def as_ordered(X: Any, features: Any) -> Any:
    """Return the queries, with their columns in the order of the features."""
    if is_frame(X) and is_frame(features):
        names, query_names = names_of_columns(features), names_of_columns(X)
        if {*names} == {*query_names}:
            return select_columns(X, names)
        missing = [name for name in query_names if name not in names]
        unknown = [name for name in names if name not in query_names]
        lists = {"it lacks": missing, "not in X are": unknown}
        which = ", and ".join(f"{what} {_listed(names)}" for what, names in lists.items() if names)
        raise ValueError(f"features must have the columns of X: {which}")
    if X.shape[1] != features.shape[1]:
        raise ValueError(
            f"features must have the columns of X, {X.shape[1]}, got {features.shape[1]}"
        )
    return X


def rows_and_queries(
    bank: NeighborBank, X: Any, features: Any
) -> tuple[list[ComparedColumn], list[ComparedColumn]]:
    """Return the columns of the bank's rows, by position, and of the queries."""
    features = checked_table("features", features)
    positions = rows_of_bank(bank, features)
    if X is None:
        rows = [column[positions] for column in read_features(features)]
        return rows, rows
    return read_beside(features, positions, as_ordered(checked_table("X", X), features))


def read_beside(
    features: Any, positions: np.ndarray, X: Any
) -> tuple[list[ComparedColumn], list[ComparedColumn]]:
    """Return the columns of rows of a table, and of queries that are read in the same way."""
    rows = [column[positions] for column in read_features(features)]
    return rows, read_features(X, [row.read for row in rows])


def read_features(X: Any, like: list[Column] | None = None) -> list[ComparedColumn]:
    """Read the columns of a table, in the way of the columns `like` if they are given."""
    if like is None:
        columns = [read_strings(column) for column in read_columns(X)]
    else:
        read = read_columns(X, [column.time_zone for column in like])
        columns = [read_as(*pair) for pair in zip(read, like, strict=True)]
    named = is_frame(X)
    return [
        ComparedColumn(str(column.name) if named else f"x{column.name}", shown, column)
        for column, shown in zip(columns, plain_values(X), strict=True)
    ]


def rows_of_bank(bank: NeighborBank, features: Any) -> np.ndarray:
    """Return the positions of the bank's rows in a table, (n,), by their names or their ids."""
    ids, labels = bank.ids.cpu().numpy(), index_of(features)
    if bank.names is None or labels is None:
        return _rows_of_ids(ids, len(features), int(bank.next_id))
    names = bank.names.tolist()
    if ids.max() < len(labels) and labels[ids].tolist() == names:
        return ids
    positions = {label: i for i, label in enumerate(labels.tolist())}
    lacking = [name for name in names if name not in positions]
    if lacking and are_row_numbers(labels):
        return _rows_of_ids(ids, len(features), int(bank.next_id))
    if lacking:
        raise ValueError(
            f"features must have a row for each name in the bank, it lacks {_listed(lacking)}"
        )
    if len(positions) < len(labels):
        repeated = [label for i, label in enumerate(labels) if positions[label] != i]
        raise ValueError(
            "features must have the rows given to fit in their order, or a different name for "
            f"each row, got several rows called {_listed(repeated)}"
        )
    return np.array([positions[name] for name in names])


def _rows_of_ids(ids: np.ndarray, n_rows: int, n_given: int) -> np.ndarray:
    """Return the ids, which are positions in a table of all given rows, or raise an error."""
    if lacking := ids[ids >= n_rows].tolist():
        raise ValueError(
            "features must have the rows given to fit and then the added ones: it has "
            f"{n_rows} rows, and lacks those of the ids {_listed(lacking)}"
        )
    if n_rows > n_given:
        raise ValueError(
            "features must have the rows given to fit and then the added ones, "
            f"{n_given} in all, got {n_rows}"
        )
    return ids


def _listed(values: list) -> str:
    """Return the first values as text for a message."""
    shown = ", ".join(map(repr, values[:N_LISTED]))
    return shown if len(values) <= N_LISTED else f"{shown} and {len(values) - N_LISTED} more"


# -- lines -------------------------------------------------------------------------------------


def columns_beside(
    explanation: Explanation,
    rows: list[ComparedColumn],
    queries: list[ComparedColumn],
    taken: Collection[str],
) -> dict[str, np.ndarray]:
    """Return the column "differs" and the columns of the features, (m,).

    A feature is renamed if its name is `taken`.
    """
    shown: dict[str, np.ndarray] = {}
    for row, query in zip(rows, queries, strict=True):
        name = free_name(row.name, {*taken, "differs", *shown})
        shown[name] = _beside(explanation, row.shown, query.shown)
    pairs = zip(rows, queries, strict=True)
    largest = largest_differences([differences_of(explanation, *pair) for pair in pairs])
    combinations, of_row = np.unique(largest, axis=0, return_inverse=True)  # rows share texts
    names = [*shown, None]  # None stands for no column
    texts = [", ".join(name for j in columns if (name := names[j])) for columns in combinations]
    differs = np.full(len(explanation.positions), None, dtype=object)
    differs[explanation.of_rows] = np.array(texts, dtype=object)[of_row.ravel()]
    return {"differs": differs, **shown}


def _beside(explanation: Explanation, rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return a feature by line, (m,), of the row or the query, with gaps in summary lines."""
    kinds, n_lines = {rows.dtype.kind, queries.dtype.kind}, len(explanation.positions)
    if "f" in kinds <= {*"fiu"}:
        column = np.full(n_lines, np.nan)
    elif kinds in ({"M"}, {"m"}):
        column = np.full(n_lines, "NaT", np.result_type(rows, queries))
    else:  # float64 does not represent all integers
        column = np.full(n_lines, None, dtype=object)
    of_rows = explanation.of_rows
    column[of_rows] = rows[explanation.positions[of_rows]]
    column[explanation.first_lines] = queries
    return column


def differences_of(
    explanation: Explanation, rows: ComparedColumn, queries: ComparedColumn
) -> np.ndarray:
    """Return the differences of a feature between neighbours and queries, (m,).

    Differences of numbers are relative to their spread in the bank.
    """
    lines = explanation.of_rows
    row_values, query_values, are_numbers = comparable(rows, queries)
    neighbor = row_values[explanation.positions[lines]]
    query = query_values[explanation.of_query[lines]]
    if not are_numbers:
        return UNEQUAL * np.not_equal(neighbor, query, dtype=object).astype(bool)
    n_gaps = np.isnan(neighbor).astype(int) + np.isnan(query)
    spread = _spread(row_values[~np.isnan(row_values)])
    differences = abs(neighbor - query) / spread if spread else UNEQUAL * (neighbor != query)
    return np.select([n_gaps == 1, n_gaps == 2], [UNEQUAL, 0.0], differences)


def _spread(values: np.ndarray) -> float:
    """Return the interquartile range of numbers, or their standard deviation if that is 0."""
    if not len(values):
        return 0.0
    return np.subtract(*np.quantile(values, [0.75, 0.25])) or values.std()


def largest_differences(differences: list[np.ndarray]) -> np.ndarray:
    """Return the columns in which a row differs most from its query, (m, N_NAMED_COLUMNS).

    If a row differs in fewer columns, the number of columns fills the places.
    """
    by_column = np.stack(differences, axis=1)
    order = np.argsort(-by_column, axis=1, kind="stable")[:, :N_NAMED_COLUMNS]
    differs = np.take_along_axis(by_column, order, axis=1) > 0
    return np.where(differs, order, by_column.shape[1])
