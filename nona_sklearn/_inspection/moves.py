"""What a counterfactual may change: which columns, in which direction, and how far."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._utils.validation import is_real, is_whole
from .cells import Cells


@dataclass(frozen=True)
class Moves:
    """The changes that are allowed.

    Parameters
    ----------
    cells : Cells
        Those of the bank's rows and of the queries.
    free : int ndarray of shape (n_free,)
        Numbers of the columns that may change, ascending.
    rising, falling : frozenset of int
        Numbers of columns whose values may not fall, or not rise.
    limits : dict of int to (float, float)
        The least and the largest value that a column may change to, by its number.
    """

    cells: Cells
    free: np.ndarray
    rising: frozenset[int] = frozenset()
    falling: frozenset[int] = frozenset()
    limits: Mapping[int, tuple[float, float]] | None = None

    @classmethod
    def of(
        cls,
        cells: Cells,
        fixed: Any = (),
        increase: Any = (),
        decrease: Any = (),
        limits: Any = None,
    ) -> Moves:
        """Check the parameters of :func:`counterfactuals` with these names."""
        held, rising, falling = (
            [_number_of(cells, name, column) for column in listed(given)]
            for name, given in (("fixed", fixed), ("increase", increase), ("decrease", decrease))
        )
        time = cells.model.estimator.bank_.time
        if time is not None and time.column is not None:
            held.append(_names(cells).index(time.column))
        for name, columns in (("increase", rising), ("decrease", falling)):
            for j in columns:
                _check_ordered(cells, name, j)
        given = {} if limits is None else limits
        if not isinstance(given, Mapping):
            raise ValueError(f"limits must be a dict of columns and pairs, got {limits!r:.100}")
        ranges = {}
        for column, pair in given.items():
            j = _number_of(cells, "limits", column)
            _check_ordered(cells, "limits", j, dates=False)
            ranges[j] = _range(pair, cells.names[j])
        parts = {"fixed": held, "increase": rising, "decrease": falling, "limits": [*ranges]}
        for one, other in (
            *(("fixed", name) for name in ("increase", "decrease", "limits")),
            ("increase", "decrease"),
        ):
            if both := sorted({*parts[one]} & {*parts[other]}):
                raise ValueError(
                    f"{one} and {other} must name different columns, got {cells.names[both[0]]!r} "
                    "in both"
                )
        if not len(free := np.setdiff1d(cells.columns, held)):
            raise ValueError(
                f"fixed must leave a column that may change, got all {len(cells.columns)}"
            )
        return cls(cells, free, frozenset(rising), frozenset(falling), ranges)

    def towards(self, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The query (d,) with those cells of rows (m,) that it may change to, (m, d)."""
        ends = np.repeat(query[None], len(rows), axis=0)
        for j in self.free:
            allowed = self.allowed(int(j), query, rows)
            ends[allowed, j] = rows[allowed]
        return ends

    def allowed(self, j: int, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Which rows have a value of a column that the query may change to, bool (m,)."""
        low, high = (self.limits or {}).get(j, (-np.inf, np.inf))
        numbers = self.cells.numbers[j]
        if numbers is None or not (
            j in self.rising or j in self.falling or j in (self.limits or {})
        ):
            return np.ones(len(rows), dtype=bool)
        own = numbers[query[j]]  # a gap may not change in one direction
        low = np.maximum(low, own) if j in self.rising else low
        high = np.minimum(high, own) if j in self.falling else high
        return (numbers[rows] >= low) & (numbers[rows] <= high)

    def check_movable(self, query: np.ndarray, called: Any) -> None:
        """Refuse a query of which no column may have another value of a row of the bank."""
        if not (self.rising or self.falling or self.limits):
            return
        rows = np.arange(self.cells.n_rows)
        for j in self.free:
            codes = self.cells.codes[:, j]
            if (codes[rows[self.allowed(int(j), query, rows)]] != codes[query[j]]).any():
                return
        names = ", ".join(map(repr, (self.cells.names[j] for j in self.free)))
        raise ValueError(
            "increase, decrease and limits must allow a change to a value of a row of the bank, "
            f"got none for query {called!r:.100} in {names}"
        )


def listed(given: Any) -> list:
    """One column, or a list of them."""
    return [given] if isinstance(given, str) or not np.iterable(given) else list(given)


def _names(cells: Cells) -> list:
    return [feature.read.name for feature in cells.rows]  # numbers, in an array


def _number_of(cells: Cells, parameter: str, name: Any) -> int:
    """The number of a column that a parameter names."""
    names = _names(cells)
    if isinstance(name, Hashable) and name in names:
        return names.index(name)
    if is_whole(name, 0, len(names) - 1):
        return int(name)
    raise ValueError(
        f"{parameter} must be names or numbers of columns of features, got {name!r:.100}"
    )


def _check_ordered(cells: Cells, parameter: str, j: int, dates: bool = True) -> None:
    """Refuse a column without an order, or of dates."""
    kind = cells.rows[j].read.kind
    if cells.numbers[j] is None or (kind == "date" and not dates):
        of_what = "numbers or dates" if dates else "numbers"
        raise ValueError(
            f"{parameter} must name columns of {of_what}, got {cells.names[j]!r}, a column of "
            f"{'dates' if kind == 'date' else 'categories'}"
        )


def _range(pair: Any, name: Any) -> tuple[float, float]:
    """The least and the largest value of a column; None: there is no such limit."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(
            f"limits of {name!r} must be a pair of the least and the largest value, got "
            f"{pair!r:.100}"
        )
    low, high = (-np.inf if pair[0] is None else pair[0], np.inf if pair[1] is None else pair[1])
    if not (is_real(low, -np.inf, np.inf) and is_real(high, -np.inf, np.inf) and low <= high):
        raise ValueError(
            f"limits of {name!r} must be numbers, the first no larger than the second, got "
            f"{pair!r:.100}"
        )
    return float(low), float(high)
