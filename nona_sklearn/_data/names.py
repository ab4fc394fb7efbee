"""What rows and targets are called, as far as the data say."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any

import numpy as np

from .embedded import Embedded


@dataclass(frozen=True)
class Names:
    """What some rows, and the outputs of their targets, are called.

    Parameters
    ----------
    rows : object ndarray of shape (n,), optional
        Labels of an index; None: there is none but row numbers.
    targets : tuple of str, optional
        The name of a Series, or those of a DataFrame's columns; None: nobody says.
    """

    rows: np.ndarray | None = None
    targets: tuple[str, ...] | None = None

    @classmethod
    def of(cls, X: Any, y: Any) -> Names:
        """Take names from data: those of rows from `X` or, if it has none, from `y`."""
        labels = labels_of(X)
        return cls(labels_of(y) if labels is None else labels, target_names_of(y))

    def __getitem__(self, rows: np.ndarray) -> Names:
        """Select some of the rows."""
        return Names(None if self.rows is None else self.rows[rows], self.targets)


def labels_of(X: Any) -> np.ndarray | None:
    """What an index calls the rows of a table, (n,); None, if there is none but row numbers."""
    if isinstance(X, Embedded):
        return X.labels
    if not hasattr(X, "iloc"):
        return None
    labels = np.fromiter(X.index, dtype=object, count=len(X.index))
    numbered = all(isinstance(label, Integral) and label == i for i, label in enumerate(labels))
    return None if numbered else labels


def target_names_of(y: Any) -> tuple[str, ...] | None:
    """What a Series or a DataFrame calls its columns; None unless these are different strings."""
    columns = getattr(y, "columns", [getattr(y, "name", None)])
    names = tuple(columns) if isinstance(columns, Iterable) else ()
    strings = names and all(isinstance(name, str) and name for name in names)
    return names if strings and len({*names}) == len(names) else None


def names_of_new(
    labels: np.ndarray | None, ids: np.ndarray, taken: Iterable[Hashable], numbered: bool
) -> np.ndarray:
    """Say what rows are called that come to others.

    Parameters
    ----------
    labels : object ndarray of shape (n,), optional
        What the index of their table calls them.
    ids : int ndarray of shape (n,)
        Their numbers, which no other row has.
    taken : iterable
        What the others are called.
    numbered : bool
        Whether rows without a label go by their numbers, rather than as "added <number>". Then
        a number is no label: it counts the rows of another table, and may be taken.

    Returns
    -------
    object ndarray of shape (n,)
        Their names.
    """
    names: Iterable = ids.tolist()
    if labels is None and not numbered:
        others = {*taken}
        names = (free_name(f"added {number}", others) for number in ids)
    elif labels is not None:
        pairs = zip(labels, names, strict=True)
        names = (i if numbered and isinstance(label, Number) else label for label, i in pairs)
    return np.fromiter(names, dtype=object, count=len(ids))


def free_name(name: str, taken: Collection[Hashable], mark: str = "'") -> str:
    """A name that nobody bears yet, marked as often as it takes."""
    while name in taken:
        name += mark
    return name
