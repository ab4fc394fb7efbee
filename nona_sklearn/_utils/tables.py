"""Rows, columns and names of arrays, sparse matrices and DataFrames of any library."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any

import narwhals as nw
import numpy as np
import torch
from scipy.sparse import issparse, vstack
from sklearn.base import clone
from torch import Tensor

from .validation import is_missing, object_array, spans

INEXACT = 2.0**53  # from this number, float64 does not represent all integers
COPIED = 2**20  # entries, 8 MB: scikit-learn's copies of a table take several times its memory


def fit_in_columns(estimator: Any, X: np.ndarray) -> tuple[list[slice], list[Any]]:
    """Fit clones of an estimator, which treats columns alone, to few columns of `X` at a time."""
    columns = spans(X.shape[1], max(1, COPIED // len(X)))
    return columns, [clone(estimator).fit(X[:, some]) for some in columns]


# -- labels of rows ------------------------------------------------------------------------------


def index_of(X: Any) -> np.ndarray | None:
    """Return the index of a pandas table, (n,), or None for any different object."""
    if not hasattr(X, "iloc"):
        return None
    return np.fromiter(X.index, dtype=object, count=len(X.index))


def counts_rows(X: Any) -> bool:
    """Return whether the index of a pandas table is a range that counts the rows."""
    index = getattr(X, "index", None)
    return all(getattr(index, name, None) == value for name, value in (("start", 0), ("step", 1)))


def are_row_numbers(labels: np.ndarray) -> bool:
    """Return whether labels only count the rows."""
    return all(isinstance(label, Integral) and label == i for i, label in enumerate(labels))


def warn_of_other_order(stacklevel: int = 3, **given: Any) -> None:
    """Warn if two arguments have the same labels in different orders, since position pairs rows.

    Arguments are compared with the first argument that has labels.
    """
    first = ""
    for name, argument in given.items():
        if not (hasattr(argument, "iloc") or getattr(argument, "row_labels", None) is not None):
            continue
        if not first:
            first = name
            continue
        equals = getattr(getattr(given[first], "index", None), "equals", None)
        if equals is not None and equals(getattr(argument, "index", None)):
            continue  # pandas compares indexes of many rows fast
        labels, expected = _labels_in(argument), _labels_in(given[first])
        if labels == expected or Counter(labels) != Counter(expected):
            continue
        pairs = enumerate(zip(labels, expected, strict=True))
        row = next(i for i, (label, wanted) in pairs if label != wanted)
        remedy = f"reindex {name} by the labels of {first}"
        if len({*expected}) < len(expected):
            remedy = "bring both into one order"
        elif hasattr(given[first], "iloc"):
            remedy = f"pass {name}.loc[{first}.index]"
        warnings.warn(
            f"{name} has the labels of {first} in another order, and rows are paired by position: "
            f"row {row} is {expected[row]!r:.80} in {first} and {labels[row]!r:.80} in {name}. If "
            f"the labels tell what belongs together, {remedy}; otherwise pass {name}.to_numpy()",
            UserWarning,
            stacklevel=stacklevel,
        )


def _labels_in(rows: Any) -> list:
    """Return labels of rows, including row numbers; a missing label is None."""
    labels = index_of(rows)
    if labels is None:  # of what is no table, such as embedded queries
        labels = rows.row_labels
    return [None if is_missing(label) else label for label in labels]


# -- columns -------------------------------------------------------------------------------------


def is_frame(X: Any, parameter: str = "X") -> bool:
    """Return whether narwhals reads X as a DataFrame; raise if X is a LazyFrame."""
    if isinstance(X, np.ndarray):  # the usual case, for which narwhals would be slow
        return False
    try:
        table = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = getattr(X, "column_names", X.columns)  # Arrow's columns are not names
        refuse_repeated([*names], parameter)
        raise
    if isinstance(table, nw.LazyFrame):
        kind = type(X).__name__
        raise TypeError(f"{parameter} must be a table in memory, got {kind}: collect it first")
    return isinstance(table, nw.DataFrame)


def refuse_repeated(names: Sequence[Hashable], parameter: str) -> None:
    """Raise if column names of a parameter repeat."""
    repeated = [name for name, n in Counter(names).items() if n > 1]
    if repeated:
        raise ValueError(
            f"{parameter} must have columns of different names, and several are called "
            f"{', '.join(map(repr, repeated)):.300}: rename them, or drop copies"
        )


def target_names_of(y: Any) -> tuple[str, ...] | None:
    """Return the name of a Series, or the column names of a DataFrame, as strings.

    Return None if there are no names, if names count from 0, or if a single name is not a string.
    """
    columns = getattr(y, "columns", [getattr(y, "name", None)])
    names = tuple(columns) if isinstance(columns, Iterable) else ()
    if not all(isinstance(name, Hashable) for name in names):  # columns of an Arrow table
        return None
    refuse_repeated(names, "y")
    if names and all(isinstance(name, str) and name for name in names):
        return names
    written = tuple(map(str, names))
    counts = written == numbers_as_names(len(written))
    return None if counts or len({*written}) < 2 else written


def numbers_as_names(n_outputs: int) -> tuple[str, ...]:
    """Return the numbers of unnamed columns as strings."""
    return tuple(map(str, range(n_outputs)))


def names_of_columns(X: Any) -> list:
    """Return the column names of a frame; a missing name is None, since NaN equals nothing."""
    frame = nw.from_native(X, eager_only=True)
    return [None if is_missing(name) else name for name in frame.columns]


def free_name(name: str, taken: Collection[Hashable], mark: str = "'") -> str:
    """Return the name, with the mark appended until the name is not taken."""
    while name in taken:
        name += mark
    return name


def plain_values(X: Any) -> Iterator[np.ndarray]:
    """Yield the unconverted values of a validated table's columns; most gaps are None."""
    if isinstance(X, np.ndarray):
        yield from X.T
        return
    for series in nw.from_native(X, eager_only=True).iter_columns():
        dtype = series.dtype
        whole = dtype.is_integer() and not series.is_null().any()
        moments = isinstance(dtype, nw.Datetime) and dtype.time_zone is None
        arrays = whole or dtype.is_float() or moments or dtype == nw.Duration
        yield series.to_numpy() if arrays else to_objects(series)


def to_objects(series: nw.Series) -> np.ndarray:
    """Return the values of a Series as Python objects, None where they are missing."""
    values = object_array(series.to_list())
    values[series.is_null().to_numpy()] = None
    return values


# -- rows and cells ------------------------------------------------------------------------------


def rows_of(X: Any, rows: slice) -> Any:
    """Return rows of a validated table."""
    if isinstance(X, np.ndarray) or issparse(X):
        return X[rows]
    return nw.from_native(X, eager_only=True)[rows].to_native()


def select_columns(X: Any, names: list) -> Any:
    """Return the named columns of a frame, in this order."""
    labels = names_of_columns(X)
    return columns_at(X, [labels.index(name) for name in names])


def columns_at(X: Any, numbers: list[int]) -> Any:
    """Return the columns of an array or a frame that have these numbers, in this order."""
    if isinstance(X, np.ndarray):
        return X[:, numbers]
    frame = nw.from_native(X, eager_only=True)
    if frame.implementation.is_polars():  # by numbers, a column named "" gets another name
        return frame[:, [frame.columns[j] for j in numbers]].to_native()
    return frame[:, numbers].to_native()


def without_columns(X: Any, numbers: Sequence[int]) -> Any:
    """Return a table without the columns that have these numbers."""
    kept = [j for j in range(X.shape[1]) if j not in numbers]
    return columns_at(X, kept) if len(numbers) else X


def stack_rows(*tables: Any) -> Any:
    """Return the joined rows of tables with the same columns, in the first table's order."""
    if isinstance(tables[0], Tensor):
        return torch.cat(tables)
    if issparse(tables[0]):
        return vstack(tables, format="csr")
    if isinstance(tables[0], np.ndarray):
        return np.concatenate(tables)
    frames = [nw.from_native(X, eager_only=True) for X in tables]
    # Columns of integers in one table and floats in another become floats.
    mixed = [name for name in frames[0].columns if len({f.schema[name] for f in frames}) > 1]
    numeric = [name for name in mixed if all(f.schema[name].is_numeric() for f in frames)]
    if numeric:
        frames = [
            frame.with_columns(*(frame.get_column(name).cast(nw.Float64) for name in numeric))
            for frame in frames
        ]
    return nw.concat(frames).to_native()


def gather_cells(X: Any, rows: np.ndarray) -> Any:
    """Return a table (m, d) with cells ``X[rows[i, j], j]`` of X, (n, d)."""
    if issparse(X):
        return type(X)(gather_cells(X.toarray(), rows))
    if isinstance(X, np.ndarray):
        return np.take_along_axis(X, rows, axis=0)
    together: dict[bytes, list[int]] = {}  # columns whose cells come from the same rows
    for j, chosen in enumerate(rows.T):
        together.setdefault(chosen.tobytes(), []).append(j)
    parts = []
    for chosen, numbers in together.items():
        columns = nw.from_native(columns_at(X, numbers), eager_only=True)
        cells = columns[np.frombuffer(chosen, rows.dtype).tolist()]
        parts.append(nw.maybe_reset_index(cells))
    order = np.argsort(np.concatenate([*together.values()])).tolist()
    return columns_at(nw.concat(parts, how="horizontal").to_native(), order)


def exchange_column(X: Any, rows: np.ndarray, column: int, donors: np.ndarray) -> Any:
    """Return rows (m,) of a table, with the cells of one column from the rows `donors`, (m,)."""
    cells = np.repeat(rows[:, None], X.shape[1], axis=1)
    cells[:, column] = donors
    return gather_cells(X, cells)
