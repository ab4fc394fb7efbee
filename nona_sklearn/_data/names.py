"""Names of rows and outputs, from the index, the columns or the name of the data."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from .._utils.validation import is_missing
from .row_values import refuse_repeated
from .sample import Embedded


@dataclass(frozen=True)
class Names:
    """Hold the names of rows, and of the outputs of their targets."""

    rows: np.ndarray | None = None  # (n,), the labels of an index
    targets: tuple[str, ...] | None = None  # the name of a Series, or the columns of a DataFrame

    @classmethod
    def of(cls, X: Any, y: Any) -> Names:
        """Return the names in the data; row names come from `X`, or from `y` if `X` has none."""
        labels = labels_of(X)
        return cls(labels_of(y) if labels is None else labels, target_names_of(y))

    def __getitem__(self, rows: np.ndarray) -> Names:
        """Return the names of the given rows."""
        return Names(None if self.rows is None else self.rows[rows], self.targets)


# -- rows --------------------------------------------------------------------------------------


def index_of(X: Any) -> np.ndarray | None:
    """Return the index of a pandas table, (n,), or None for any different object."""
    if not hasattr(X, "iloc"):
        return None
    return np.fromiter(X.index, dtype=object, count=len(X.index))


def labels_of(X: Any) -> np.ndarray | None:
    """Return the labels of a table's index, (n,), or None if the labels only count rows."""
    if isinstance(X, Embedded):
        return X.labels
    labels = index_of(X)
    return None if labels is None or are_row_numbers(labels) else labels


def are_row_numbers(labels: np.ndarray) -> bool:
    """Return whether labels only count the rows."""
    return all(isinstance(label, Integral) and label == i for i, label in enumerate(labels))


def warn_of_other_order(stacklevel: int = 3, **given: Any) -> None:
    """Warn if two arguments have the same labels in different orders, since position pairs rows.

    Arguments are compared with the first argument that has labels.
    """
    first, expected = "", None
    for name, argument in given.items():
        if first and _have_one_index(given[first], argument):
            continue
        labels = _labels_in(argument)
        if not labels:
            continue
        if expected is None:
            first, expected = name, labels
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


def _have_one_index(first: Any, second: Any) -> bool:
    """Return whether two pandas objects have equal indexes, which is fast for many rows."""
    first_index: Any = getattr(first, "index", None)
    second_index: Any = getattr(second, "index", None)
    comparable = hasattr(first_index, "equals") and hasattr(second_index, "equals")
    return comparable and first_index.equals(second_index)


def _labels_in(rows: Any) -> list | None:
    """Return labels of rows, including row numbers; a missing label is None."""
    labels = index_of(rows)
    if isinstance(rows, Embedded | Names):
        labels = rows.labels if isinstance(rows, Embedded) else rows.rows
    return None if labels is None else [None if is_missing(label) else label for label in labels]


def names_of_new(
    labels: np.ndarray | None, ids: np.ndarray, taken: Iterable[Hashable], numbered: bool
) -> np.ndarray:
    """Return names of rows that are added to a bank, (n,): labels, or else ids.

    In a `numbered` bank, names are ids, and numeric labels are ignored, since they count rows. New
    names may repeat only if stored names do.
    """
    names: Iterable = ids.tolist()
    if labels is None and not numbered:
        stored = {*taken}
        names = (free_name(f"added {row_id}", stored) for row_id in ids)
    elif labels is not None:
        pairs = zip(labels, names, strict=True)
        names = [i if numbered and isinstance(label, Number) else label for label, i in pairs]
        _refuse_taken(names, [*taken])
    return np.fromiter(names, dtype=object, count=len(ids))


def _refuse_taken(names: Iterable[Hashable], taken: Collection[Hashable]) -> None:
    """Raise if a name is taken or repeats, unless stored rows already share names."""
    seen = {*taken}
    if len(seen) < len(taken):
        return
    for row, name in enumerate(names):
        if name in seen:
            owner = "rows before it"
            remedy = "give each its own in the index, or leave out names by reset_index(drop=True)"
            if name in taken:
                owner = "a row of the bank"
                remedy += f", or first replace that row, by remove_neighbors(names={name!r:.80})"
            raise ValueError(
                f"added rows must have other names than stored ones, and {name!r:.80} in row "
                f"{row} is the name of {owner}: {remedy}"
            )
        seen.add(name)


def free_name(name: str, taken: Collection[Hashable], mark: str = "'") -> str:
    """Return the name, with the mark appended until the name is not taken."""
    while name in taken:
        name += mark
    return name


# -- outputs -----------------------------------------------------------------------------------


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
    counts = written == _numbered(len(written))
    return None if counts or len({*written}) < 2 else written


def in_order_of(target_names: tuple[str, ...] | None, y: Any) -> Any:
    """Return targets with columns in the order of the names; unnamed columns are numbered."""
    y_names = target_names_of(y)
    n_columns = len(getattr(y, "columns", ()))
    names = y_names or _numbered(n_columns)
    expected = target_names or _numbered(n_columns)
    if n_columns > 1 and {*names} == {*expected}:
        return _safe_indexing(y, [names.index(name) for name in expected], axis=1)
    if y_names is None or target_names is None or len(y_names) == 1:
        return y
    raise ValueError(f"y must have the columns {[*expected]}, got {[*names]}")


def ends_of_outputs(names: Sequence[str] | None, n_outputs: int) -> list[str]:
    """Return the suffixes of the outputs' columns: empty for one output, else the names."""
    return [""] if n_outputs == 1 else [f"_{output}" for output in names or range(n_outputs)]


def _numbered(n_outputs: int) -> tuple[str, ...]:
    """Return the numbers of unnamed columns as strings."""
    return tuple(map(str, range(n_outputs)))
