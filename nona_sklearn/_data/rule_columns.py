"""Columns that rules of eligibility compare, as one matrix of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.storable import storable
from .._utils.tables import columns_at, is_frame, names_of_columns
from .._utils.validation import are_missing, object_array
from ..eligibility import ORDERED, Eligibility, Required
from .column_spec import codes_of
from .columns import (
    EPOCH,
    Column,
    durations_of,
    read_as,
    read_columns,
    read_strings,
    seconds_of,
)
from .row import Row
from .tables import as_dense

NO_ROWS = np.zeros(0, dtype=int)
N_LISTED = 20  # columns in a message


@storable
@dataclass(frozen=True)
class RuleColumns:
    """Read the columns of a table that rules compare, and number their values.

    Numbers stay, dates and durations are in seconds, and categories are numbered by their levels:
    ordered ones in their order, the remaining ones as they appear. A missing value is NaN, and so
    is a level that the order lacks; a category that no stored row has is -1.
    """

    columns: tuple[Column, ...]  # of no rows: name, kind, time zone and form
    levels: tuple[tuple, ...]  # of categories; of the remaining columns ()

    @classmethod
    def fit(cls, rule: Eligibility, X: Any) -> tuple[RuleColumns, Tensor]:
        """Return the columns of a rule in the table of fit, and their numbers, (n, n_columns)."""
        # Differences of dates are those of UTC: a local clock is changed twice a year.
        zones = ["UTC"] * len(rule.columns)
        read = [read_strings(column) for column in _select(rule.columns, X, zones)]
        for column in read:
            rule.check(column.name, _kind(column), column.values)
        empty = tuple(column[NO_ROWS] for column in read)
        return cls(empty, tuple(column.levels or () for column in read)).with_rows(read)

    @property
    def names(self) -> tuple[Any, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)

    def check(self, rule: Eligibility) -> None:
        """Raise a ValueError if a rule compares columns that are not stored."""
        missing = [column for column in rule.columns if column not in self.names]
        if missing:
            raise ValueError(
                f"eligibility must compare columns that fit has stored, {[*self.names]}, got "
                f"{missing}: give fit a rule that compares them"
            )
        for column in self.columns:
            if column.name in rule.columns:
                rule.check(column.name, _kind(column), column.values)

    def read(self, X: Any) -> list[Column]:
        """Return the columns of new rows, whose kinds must be those of fit."""
        time_zones = [column.time_zone for column in self.columns]
        pairs = zip(_select(self.names, X, time_zones), self.columns, strict=True)
        read = [read_as(column, fitted) for column, fitted in pairs]
        for column, fitted in zip(read, self.columns, strict=True):
            if "empty" not in (column.kind, fitted.kind) and column.kind != fitted.kind:
                raise ValueError(
                    f"{column.label} held values of kind {fitted.kind!r} in fit, and holds "
                    f"{column.contents} now{column.example}"
                )
        return read

    def with_rows(self, read: list[Column]) -> tuple[RuleColumns, Tensor]:
        """Return the columns with the levels of further rows to store, and these rows' numbers."""
        columns = self.with_levels(map(_categories, read))
        return columns, columns.number(read)

    def with_levels(self, levels: Iterable[Iterable]) -> RuleColumns:
        """Return the columns with further levels; numbers by the present ones stay valid."""
        parts = zip(self.columns, self.levels, levels, strict=True)
        joined = (
            known if column.levels else tuple(dict.fromkeys([*known, *further]))
            for column, known, further in parts
        )
        return replace(self, levels=tuple(joined))

    def number(self, read: list[Column]) -> Tensor:
        """Return the numbers of columns, float64 (n, n_columns)."""
        parts = zip(read, self.levels, self.columns, strict=True)
        numbers = [_numbers(*of_column) for of_column in parts]
        return torch.from_numpy(np.stack(numbers, axis=1))

    def of_rows(self, numbers: Tensor) -> tuple[RuleColumns, Tensor]:
        """Return the columns without levels that no row has, and the rows' numbers by these."""
        parts = zip(self.columns, self.levels, numbers.T, strict=True)
        levels = []
        for column, known, codes in parts:
            if known and not column.levels:  # an order is kept
                used = {*codes.tolist()}
                known = tuple(level for code, level in enumerate(known) if code in used)
            levels.append(known)
        columns = replace(self, levels=tuple(levels))
        return columns, columns.renumbered(numbers, self)

    def renumbered(self, numbers: Tensor, by: RuleColumns) -> Tensor:
        """Return numbers (n, n_columns) that are by other levels by these; -1: none of these."""
        if by.levels == self.levels:
            return numbers
        numbers = numbers.clone()
        for j, (own, given) in enumerate(zip(self.levels, by.levels, strict=True)):
            codes = codes_of([[*own]], object_array(given)[:, None])[:, 0]
            of_codes = torch.from_numpy(np.append(codes, -1)).to(numbers)  # the last is of -1
            if given:
                present = ~numbers[:, j].isnan()
                numbers[present, j] = of_codes[numbers[present, j].long()]
        return numbers


@storable
@dataclass(frozen=True)
class StoredRule:
    """Hold a rule, with the columns by which rows of a table are compared."""

    rule: Eligibility
    columns: RuleColumns

    def __call__(self, queries: Tensor, rows: Tensor, excluded: Tensor | None = None) -> Tensor:
        """Return which rows are admitted for queries, bool (q, n), given their numbers.

        `excluded` are pairs (q, n) that are excluded by every rule.
        """
        admitted = torch.from_numpy(self.rule(self._compare(queries, rows, excluded)))
        admitted = admitted.to(queries.device)
        return admitted if excluded is None else admitted & ~excluded

    def of_some(self, queries: Tensor, rows: Tensor, excluded: Tensor) -> Tensor:
        """Return which rows are admitted for queries that have rows of their own, bool (q, m).

        `rows` are numbers (q, m, n_columns), and `excluded` pairs (q, m). Where too few rows are
        admitted for a required number, none is, although further rows may be.
        """
        rule, least = self.rule, 0
        if isinstance(self.rule, Required):
            rule, least = self.rule.rule, self.rule.min_neighbors
        pairs = zip(queries.cpu().numpy()[:, None], rows.cpu().numpy(), strict=True)
        satisfied = [rule(ComparedRows(self.columns, *pair))[0] for pair in pairs]
        admitted = np.stack(satisfied) & ~excluded.cpu().numpy()
        admitted[np.count_nonzero(admitted, axis=1) < least] = False
        return torch.from_numpy(admitted).to(queries.device)

    def choose(
        self, queries: Tensor, rows: Tensor, excluded: Tensor | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of eligible rows, (q,), and the rules that hold for queries, (q,).

        None: these are too few by the last rule.
        """
        admitted, numbers = self.rule.choose(self._compare(queries, rows, excluded))
        if excluded is not None:
            admitted &= ~excluded.cpu().numpy()
        rules = object_array([*map(repr, self.rule.alternatives), None])  # -1: the last
        # Along an axis, NumPy would count in several times the time.
        counts = np.array([np.count_nonzero(row) for row in admitted], dtype=np.int64)
        return counts, rules[numbers]

    def _compare(self, queries: Tensor, rows: Tensor, excluded: Tensor | None) -> ComparedRows:
        without = None if excluded is None else excluded.cpu().numpy()
        return ComparedRows(self.columns, queries.cpu().numpy(), rows.cpu().numpy(), without)

    def read(self, X: Any) -> list[Column]:
        """Return the compared columns of new rows, which the rule must be able to compare."""
        read = self.columns.read(X)
        for column, fitted in zip(read, self.columns.columns, strict=True):
            # A query's strings are levels of the order that fit was given.
            kind = _kind(fitted if column.kind == "category" else column)
            self.rule.check(column.name, kind, column.values)
        return read

    def replaced_by(self, rule: Eligibility) -> StoredRule:
        """Return a different rule of the stored columns."""
        self.columns.check(rule)
        return replace(self, rule=rule)

    @property
    def in_training(self) -> StoredRule:
        """Return the rule by itself: a pool has too few rows for a required number of them."""
        return replace(self, rule=self.rule.rule) if isinstance(self.rule, Required) else self


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """Numbers of the columns of queries and of stored rows, as rules compare them."""

    columns: RuleColumns
    queries: np.ndarray  # (q, n_columns)
    rows: np.ndarray  # (n, n_columns)
    excluded: np.ndarray | None = None  # bool (q, n), by every rule

    def __getitem__(self, queries: np.ndarray) -> ComparedRows:
        """Return some of the queries."""
        excluded = None if self.excluded is None else self.excluded[queries]
        return replace(self, queries=self.queries[queries], excluded=excluded)

    def numbers(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return a column as float64, (q,) of the queries and (n,) of the rows."""
        j = self.columns.names.index(column)
        # Contiguous numbers are compared several times as fast.
        queries, rows = (np.ascontiguousarray(part[:, j]) for part in (self.queries, self.rows))
        return queries, rows

    def values(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return a column as given, (q,) of the queries and (n,) of the rows."""
        j = self.columns.names.index(column)
        kind, levels = self.columns.columns[j].kind, self.columns.levels[j]
        queries, rows = (_values(part, kind, levels) for part in self.numbers(column))
        return queries, rows


def _select(
    names: Iterable[Any], X: Any, time_zones: Sequence[str | None] | None = None
) -> list[Column]:
    """Return the named columns of a table, in this order, with dates in the given time zones."""
    X, names = as_dense(X), [*names]
    if isinstance(X, Row):
        given = X.names
    elif not is_frame(X):
        X = np.asarray(X)
        given = [*range(X.shape[1])]
    else:
        given = names_of_columns(X)
    for name in names:
        if name not in given:
            raise ValueError(
                f"eligibility must compare columns of X, such as {given[:N_LISTED]}, got {name!r}"
            )
    numbers = [given.index(name) for name in names]
    X = X.at(numbers) if isinstance(X, Row) else columns_at(X, numbers)
    read = read_columns(X, time_zones)
    return [replace(column, name=name) for name, column in zip(names, read, strict=True)]


def _categories(column: Column) -> list:
    """Return the categories of rows, of the remaining kinds of columns none."""
    if column.kind != "category":
        return []
    return [value for value in column.values.tolist() if value is not None]


def _kind(column: Column) -> str:
    """Return the kind of a column as rules tell them apart."""
    return ORDERED if column.levels else column.kind


def _numbers(column: Column, levels: tuple, fitted: Column) -> np.ndarray:
    """Return the values of a column as numbers, (n,)."""
    if column.kind == "category":
        codes = codes_of([[*levels]], column.values[:, None])[:, 0]
        missing = codes < 0 if fitted.levels else are_missing(column.values)
        return np.where(missing, np.nan, codes)
    return seconds_of(column.values) if column.kind == "date" else column.values


def _values(array: np.ndarray, kind: str, levels: tuple) -> np.ndarray:
    """Return the values (n,) of a column by their numbers; unknown categories are None."""
    if kind == "category":
        of_levels = np.array([*levels, None], dtype=object)
        return of_levels[np.nan_to_num(array, nan=-1.0).astype(int)]
    if kind in ("date", "duration"):
        return durations_of(array) + (EPOCH if kind == "date" else np.timedelta64(0, "us"))
    return array
