"""Names of rows and targets, where the data have any."""

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
from .embedded import Embedded


@dataclass(frozen=True)
class Names:
    """Names of some rows, and of the outputs of their targets, if they have any."""

    rows: np.ndarray | None = None  # (n,), the labels of an index
    targets: tuple[str, ...] | None = None  # the name of a Series, or those of a frame's columns

    @classmethod
    def of(cls, X: Any, y: Any) -> Names:
        """Take names from data: those of rows from `X` or, if it has none, from `y`."""
        labels = labels_of(X)
        return cls(labels_of(y) if labels is None else labels, target_names_of(y))

    def __getitem__(self, rows: np.ndarray) -> Names:
        """Select some of the rows."""
        return Names(None if self.rows is None else self.rows[rows], self.targets)


def labels_of(X: Any) -> np.ndarray | None:
    """Labels of a table's rows in its index, (n,); None, if these are only row numbers."""
    if isinstance(X, Embedded):
        return X.labels
    labels = index_of(X)
    return None if labels is None or are_row_numbers(labels) else labels


def index_of(X: Any) -> np.ndarray | None:
    """The index of a table of pandas, (n,); None of all else."""
    if not hasattr(X, "iloc"):
        return None
    return np.fromiter(X.index, dtype=object, count=len(X.index))


def warn_of_other_order(stacklevel: int = 3, **given: Any) -> None:
    """Warn of what has the labels of others in another order, since all are paired by position.

    They are compared with the first that has labels: a table, embedded queries, or names.
    """
    first, own = "", None
    for name, each in given.items():
        if first and _have_one_index(given[first], each):
            continue
        if not (other := _labels_in(each)):
            continue
        if own is None:
            first, own = name, other
        if other == own or Counter(other) != Counter(own):
            continue
        row = next(i for i, (a, b) in enumerate(zip(other, own, strict=True)) if a != b)
        remedy = f"reindex {name} by the labels of {first}"
        if len({*own}) < len(own):
            remedy = "bring both into one order"
        elif hasattr(given[first], "iloc"):
            remedy = f"pass {name}.loc[{first}.index]"
        warnings.warn(
            f"{name} has the labels of {first} in another order, and rows are paired by position: "
            f"row {row} is {own[row]!r:.80} in {first} and {other[row]!r:.80} in {name}. If the "
            f"labels tell what belongs together, {remedy}; otherwise pass {name}.to_numpy()",
            UserWarning,
            stacklevel=stacklevel,
        )


def _have_one_index(rows: Any, others: Any) -> bool:
    """Whether the labels of two pandas objects are equal: of a million rows this takes no time."""
    own: Any = getattr(rows, "index", None)
    other: Any = getattr(others, "index", None)
    return hasattr(own, "equals") and hasattr(other, "equals") and own.equals(other)


def _labels_in(rows: Any) -> list | None:
    """Labels of rows, even if they only count them; None for those that are missing."""
    labels = index_of(rows)
    if isinstance(rows, Embedded | Names):
        labels = rows.labels if isinstance(rows, Embedded) else rows.rows
    return None if labels is None else [None if is_missing(each) else each for each in labels]


def are_row_numbers(labels: np.ndarray) -> bool:
    """Whether labels only count the rows."""
    return all(isinstance(label, Integral) and label == i for i, label in enumerate(labels))


def target_names_of(y: Any) -> tuple[str, ...] | None:
    """Names of a Series or a DataFrame's columns, as strings.

    None: they have none, or are numbered from 0 on, or a single one is no string.

    Raises
    ------
    ValueError
        If several columns have the same name.
    """
    columns = getattr(y, "columns", [getattr(y, "name", None)])
    names = tuple(columns) if isinstance(columns, Iterable) else ()
    if not all(isinstance(name, Hashable) for name in names):  # of a table of Arrow
        return None
    refuse_repeated(names, "y")
    if names and all(isinstance(name, str) and name for name in names):
        return names
    written = tuple(map(str, names))
    counts = written == _numbered(len(written))
    return None if counts or len({*written}) < 2 else written


def ends_of_outputs(names: Sequence[str] | None, n_outputs: int) -> list[str]:
    """Ends of the names of columns of each output: its name or number, of several."""
    return [""] if n_outputs == 1 else [f"_{output}" for output in names or range(n_outputs)]


def _numbered(n_outputs: int) -> tuple[str, ...]:
    """Names of columns that have none."""
    return tuple(map(str, range(n_outputs)))


def refuse_repeated(names: Sequence[Hashable], parameter: str) -> None:
    """Refuse columns of a parameter that share a name."""
    repeated = [name for name, n in Counter(names).items() if n > 1]
    if repeated:
        raise ValueError(
            f"{parameter} must have columns of different names, and several are called "
            f"{', '.join(map(repr, repeated)):.300}: rename them, or drop copies"
        )


def in_order_of(target_names: tuple[str, ...] | None, y: Any) -> Any:
    """Targets with their columns in the order of these names, where both have names.

    Columns without names are numbered.
    """
    own, n_columns = target_names_of(y), len(getattr(y, "columns", ()))
    names, wanted = own or _numbered(n_columns), target_names or _numbered(n_columns)
    if n_columns > 1 and {*names} == {*wanted}:
        return _safe_indexing(y, [names.index(name) for name in wanted], axis=1)
    if own is None or target_names is None or len(own) == 1:
        return y
    raise ValueError(f"y must have the columns {[*wanted]}, got {[*names]}")


def names_of_new(
    labels: np.ndarray | None, ids: np.ndarray, taken: Iterable[Hashable], numbered: bool
) -> np.ndarray:
    """Name rows that are added to others: by their labels, if they have any, else by their ids.

    If the others are `numbered`, an id is a name, rather than "added <id>", and a number is no
    label: it counts the rows of another table, and may be taken.

    Raises
    ------
    ValueError
        If a label is taken. Where others share names, these do not tell rows apart, and may be.
    """
    names: Iterable = ids.tolist()
    if labels is None and not numbered:
        others = {*taken}
        names = (free_name(f"added {number}", others) for number in ids)
    elif labels is not None:
        pairs = zip(labels, names, strict=True)
        names = [i if numbered and isinstance(label, Number) else label for label, i in pairs]
        _refuse_taken(names, [*taken])
    return np.fromiter(names, dtype=object, count=len(ids))


def _refuse_taken(names: Iterable[Hashable], taken: Collection[Hashable]) -> None:
    """Refuse a name that another row has, unless others share theirs."""
    known = {*taken}
    if len(known) < len(taken):
        return
    for row, name in enumerate(names):
        if name in known:
            others = "rows before it"
            remedy = "give each its own in the index, or leave out names by reset_index(drop=True)"
            if name in taken:
                others = "a row of the bank"
                remedy += f", or first replace that row, by remove_neighbors(names={name!r:.80})"
            raise ValueError(
                f"added rows must have other names than stored ones, and {name!r:.80} in row "
                f"{row} is the name of {others}: {remedy}"
            )
        known.add(name)


def free_name(name: str, taken: Collection[Hashable], mark: str = "'") -> str:
    """A name that is not taken yet: the mark is appended until it is free."""
    while name in taken:
        name += mark
    return name
