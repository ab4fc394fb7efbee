"""Features of queries and of their neighbours, side by side, and the columns that differ most."""

from __future__ import annotations

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
from .._utils.arrays import table
from .._utils.validation import is_missing

MOST_NAMED = 3  # columns in which a row differs most from the query
UNEQUAL = 1.0  # difference of two categories, in units of a number's spread
ORDERED = "number", "duration", "date"  # kinds of columns with differences
SHOWN = 5  # rows or columns in a message


def explanation_table(fitted: Any, found: Explanation, X: Any, features: Any) -> Any:
    """Table of an explanation of queries `X`, beside the features if they are given.

    These are the table of the rows given to fit, and of added ones if it is longer. Each query is
    then a first line, and "differs" a column that names the features that differ most.
    """
    if features is None:
        return table(fitted._explained(found))
    rows, queries = rows_and_queries(fitted.bank_, X, features)
    found = found.with_queries()
    columns = fitted._explained(found)
    shown: dict[str, np.ndarray] = {}
    differences = []
    for row, query in zip(rows, queries, strict=True):
        name = free_name(row.name, {*columns, "differs", *shown})
        shown[name] = _beside(found, row.shown, query.shown)
        differences.append(differences_of(found, row, query))
    return table(columns | {"differs": _name_largest(found, differences, [*shown])} | shown)


def rows_and_queries(
    bank: NeighborBank, X: Any, features: Any
) -> tuple[list[Feature], list[Feature]]:
    """The features of the bank's rows, by position, and those of the queries."""
    features = checked_table("features", features)
    places = rows_of_bank(bank, features)
    if X is None:
        rows = [feature[places] for feature in read_features(features)]
        return rows, rows
    return read_beside(features, places, as_ordered(checked_table("X", X), features))


def read_beside(features: Any, places: np.ndarray, X: Any) -> tuple[list[Feature], list[Feature]]:
    """Read some rows of a table, and queries with the same columns as these were read."""
    rows = [feature[places] for feature in read_features(features)]
    return rows, read_features(X, [row.read for row in rows])


@dataclass(frozen=True)
class Feature:
    """A column of a table: its values as they are given, and as they are compared."""

    name: str
    shown: np.ndarray
    read: Column

    def __getitem__(self, rows: np.ndarray) -> Feature:
        """Select some of the rows."""
        return Feature(self.name, self.shown[rows], self.read[rows])

    @property
    def numbers(self) -> np.ndarray | None:
        """Values of an ordered column as float64, NaN for gaps; None of other columns."""
        if self.read.kind not in ORDERED:
            return None
        if self.read.kind != "date":
            return self.read.values
        moments = self.read.values.astype(np.int64).astype(np.float64)
        return np.where(np.isnat(self.read.values), np.nan, moments)

    @property
    def categories(self) -> np.ndarray:
        """Values of any column as objects, None for gaps."""
        values = self.read.values.astype(object)
        if self.read.kind != "category":  # where gaps are None already
            values[[is_missing(value) for value in values]] = None
        return values


def comparable(rows: Feature, queries: Feature) -> tuple[np.ndarray, np.ndarray, bool]:
    """Values of a column in two tables, and whether they are numbers: both have an order then."""
    values, own = rows.numbers, queries.numbers
    if values is not None and queries.read.kind == "empty":  # gaps alone are of the rows' kind
        return values, np.full(len(queries.shown), np.nan), True
    if values is None or own is None or rows.read.kind != queries.read.kind:
        return rows.categories, queries.categories, False
    return values, own, True


# -- tables ------------------------------------------------------------------------------------


def checked_table(parameter: str, X: Any) -> Any:
    """A frame, or an array of two axes."""
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
    """The queries, with their columns in the order of the features."""
    if is_frame(X) and is_frame(features):
        names, own = names_of_columns(features), names_of_columns(X)
        if {*names} == {*own}:
            return select_columns(X, names)
        missing = [name for name in own if name not in names]
        strange = [name for name in names if name not in own]
        found = {"it lacks": missing, "not in X are": strange}
        which = ", and ".join(f"{what} {_some(each)}" for what, each in found.items() if each)
        raise ValueError(f"features must have the columns of X: {which}")
    if X.shape[1] != features.shape[1]:
        raise ValueError(
            f"features must have the columns of X, {X.shape[1]}, got {features.shape[1]}"
        )
    return X


def read_features(X: Any, like: list[Column] | None = None) -> list[Feature]:
    """Read the columns of a table; as those of another table were read, if it is given."""
    named = is_frame(X)
    if like is None:
        columns = [read_strings(column) for column in read_columns(X)]
    else:
        read = read_columns(X, [column.time_zone for column in like])
        columns = [read_as(*pair) for pair in zip(read, like, strict=True)]
    return [
        Feature(str(column.name) if named else f"x{column.name}", shown, column)
        for column, shown in zip(columns, plain_values(X), strict=True)
    ]


def rows_of_bank(bank: NeighborBank, features: Any) -> np.ndarray:
    """Positions of the bank's rows in a table, (n,): by their names if both have any, or ids."""
    ids, labels = bank.ids.cpu().numpy(), index_of(features)
    if bank.names is None or labels is None:
        return _rows_of_ids(ids, len(features), int(bank.next_id))
    names = bank.names.tolist()
    if ids.max() < len(labels) and labels[ids].tolist() == names:
        return ids
    places = {label: i for i, label in enumerate(labels.tolist())}
    lacking = [name for name in names if name not in places]
    if lacking and are_row_numbers(labels):
        return _rows_of_ids(ids, len(features), int(bank.next_id))
    if lacking:
        raise ValueError(
            f"features must have a row for each name in the bank, it lacks {_some(lacking)}"
        )
    if len(places) < len(labels):
        repeated = [label for i, label in enumerate(labels) if places[label] != i]
        raise ValueError(
            "features must have the rows given to fit in their order, or a different name for "
            f"each row, got several rows called {_some(repeated)}"
        )
    return np.array([places[name] for name in names])


def _rows_of_ids(ids: np.ndarray, n_rows: int, n_given: int) -> np.ndarray:
    """The ids, each the number of a row that is there, of a table of the rows that were given."""
    if lacking := ids[ids >= n_rows].tolist():
        raise ValueError(
            "features must have the rows given to fit and then the added ones: it has "
            f"{n_rows} rows, and lacks those of the ids {_some(lacking)}"
        )
    if n_rows > n_given:
        raise ValueError(
            "features must have the rows given to fit and then the added ones, "
            f"{n_given} in all, got {n_rows}"
        )
    return ids


def _some(values: list) -> str:
    """The first of some values, in a message."""
    shown = ", ".join(map(repr, values[:SHOWN]))
    return shown if len(values) <= SHOWN else f"{shown} and {len(values) - SHOWN} more"


# -- lines -------------------------------------------------------------------------------------


def _beside(found: Explanation, rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """A feature in each line, (m,): of the row or of the query, a gap in other lines."""
    kinds, n_lines = {rows.dtype.kind, queries.dtype.kind}, len(found.positions)
    if "f" in kinds <= {*"fiu"}:
        column = np.full(n_lines, np.nan)
    elif kinds in ({"M"}, {"m"}):
        column = np.full(n_lines, "NaT", np.result_type(rows, queries))
    else:  # integers, too: float64 does not represent all of them
        column = np.full(n_lines, None, dtype=object)
    column[found.of_rows] = rows[found.positions[found.of_rows]]
    column[found.first_lines] = queries
    return column


def differences_of(found: Explanation, rows: Feature, queries: Feature) -> np.ndarray:
    """Differences of a feature between each row and its query, (number of rows,).

    Those of numbers are relative to their spread in the bank. Unequal categories, or a gap and a
    value, differ by `UNEQUAL`.
    """
    lines = found.of_rows
    values, own, ordered = comparable(rows, queries)
    theirs, own = values[found.positions[lines]], own[found.of_query[lines]]
    if not ordered:
        return UNEQUAL * np.not_equal(theirs, own, dtype=object).astype(bool)
    gaps = np.isnan(theirs).astype(int) + np.isnan(own)
    spread = _spread(values[~np.isnan(values)])
    differences = abs(theirs - own) / spread if spread else UNEQUAL * (theirs != own)
    return np.select([gaps == 1, gaps == 2], [UNEQUAL, 0.0], differences)


def _spread(values: np.ndarray) -> float:
    """Interquartile range of numbers, or their standard deviation where that is 0."""
    if not len(values):
        return 0.0
    return np.subtract(*np.quantile(values, [0.75, 0.25])) or values.std()


def largest_differences(differences: list[np.ndarray]) -> np.ndarray:
    """Columns in which each row differs most from its query, (number of rows, 3).

    The number of columns stands for none, if a row differs in fewer.
    """
    each = np.stack(differences, axis=1)
    order = np.argsort(-each, axis=1, kind="stable")[:, :MOST_NAMED]
    return np.where(np.take_along_axis(each, order, axis=1) > 0, order, each.shape[1])


def _name_largest(
    found: Explanation, differences: list[np.ndarray], names: list[str]
) -> np.ndarray:
    """Names of the features in which each row differs most from its query, (m,)."""
    largest, nothing = largest_differences(differences), len(names)
    kinds, kind_of_row = np.unique(largest, axis=0, return_inverse=True)  # many rows share a text
    texts = [", ".join(names[j] for j in kind if j != nothing) for kind in kinds]
    column = np.full(len(found.positions), None, dtype=object)
    column[found.of_rows] = np.array(texts, dtype=object)[kind_of_row.ravel()]
    return column
