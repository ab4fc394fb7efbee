"""Columns that rules of eligibility compare, as one matrix of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from .._utils.storable import storable
from ..eligibility import Eligibility
from .columns import SECOND, Column, read_as, read_columns, read_strings
from .tables import as_dense, columns_at, is_frame, names_of_columns

EPOCH = np.datetime64(0, "us")


@storable
@dataclass(frozen=True)
class RuleColumns:
    """Read the columns of a table that rules compare, and number their values.

    Numbers stay, dates and durations are in seconds, and categories are numbered by their levels.
    A missing value is NaN, and a category that no stored row has is -1.
    """

    columns: tuple[Column, ...]  # of no rows: name, kind, time zone and form
    levels: tuple[tuple, ...]  # of categories; of the remaining columns ()

    @classmethod
    def fit(cls, rule: Eligibility, X: Any) -> RuleColumns:
        """Return the columns of a rule in the table of fit, without levels."""
        read = [read_strings(column) for column in _select("eligibility", rule.columns, X)]
        for column in read:
            rule.check(column.name, column.kind, column.values)
        return cls(tuple(column[:0] for column in read), ((),) * len(read))

    @property
    def names(self) -> tuple[Any, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)

    def check(self, rule: Eligibility) -> None:
        """Raise a ValueError if a rule compares a column that is not stored."""
        missing = [column for column in rule.columns if column not in self.names]
        if missing:
            raise ValueError(
                f"eligibility must compare columns that fit has stored, {[*self.names]}, got "
                f"{missing}: pass fit a rule with these columns"
            )
        for column in self.columns:
            if column.name in rule.columns:
                rule.check(column.name, column.kind, column.values)

    def read(self, X: Any) -> list[Column]:
        """Return the columns of rows or queries, whose kinds must be those of fit."""
        read = [
            read_as(column, fitted)
            for column, fitted in zip(
                _select("eligibility", self.names, X), self.columns, strict=True
            )
        ]
        for column, fitted in zip(read, self.columns, strict=True):
            if "empty" not in (column.kind, fitted.kind) and column.kind != fitted.kind:
                raise ValueError(
                    f"{column.label} held values of kind {fitted.kind!r} in fit, and holds "
                    f"{column.contents} now{column.example}"
                )
        return read

    def with_levels(self, read: list[Column]) -> RuleColumns:
        """Return the columns with the levels of further rows."""
        pairs = zip(self.levels, read, strict=True)
        return replace(
            self,
            levels=tuple(
                tuple(dict.fromkeys([*levels, *_given(column)]))
                if _is_category(column)
                else levels
                for levels, column in pairs
            ),
        )

    def encode(self, read: list[Column]) -> Tensor:
        """Return the numbers of columns, float64 (n, n_columns)."""
        numbers = [_numbers(*pair) for pair in zip(read, self.levels, strict=True)]
        return torch.from_numpy(np.stack(numbers, axis=1))

    def decode(self, column: Any, numbers: Tensor) -> np.ndarray:
        """Return the values (n,) of a column by their numbers."""
        j = self.names.index(column)
        kind, values = self.columns[j].kind, numbers.cpu().numpy()
        if kind == "category":
            levels = np.array([*self.levels[j], None], dtype=object)
            return levels[np.nan_to_num(values, nan=-1.0).astype(int)]
        if kind in ("date", "duration"):
            seconds = np.round(values * 1e6).astype("timedelta64[us]")
            return EPOCH + seconds if kind == "date" else seconds
        return values


def _select(parameter: str, names: Iterable[Any], X: Any) -> Iterator[Column]:
    """Yield the named columns of a table, in this order."""
    X = as_dense(X)
    framed = is_frame(X)
    if not framed and not isinstance(X, np.ndarray):
        X = np.asarray(X)
    given = names_of_columns(X) if framed else [*range(X.shape[1])]
    names = [*names]
    for name in names:
        if name not in given:
            raise ValueError(f"{parameter} must compare columns of X, got {name!r}")
    numbers = [given.index(name) for name in names]
    for name, column in zip(names, read_columns(columns_at(X, numbers)), strict=True):
        yield replace(column, name=name)


def _is_category(column: Column) -> bool:
    return column.kind in ("category", "text")


def _given(column: Column) -> list:
    """Return the values that are not missing, as Python objects."""
    return [value for value in column.values.tolist() if value is not None]


def _numbers(column: Column, levels: tuple) -> np.ndarray:
    """Return a column's values as float64 (n,)."""
    if _is_category(column):
        codes: dict[Any, float] = {level: float(i) for i, level in enumerate(levels)}
        codes[None] = np.nan
        return np.array([codes.get(value, -1.0) for value in column.values.tolist()])
    if column.kind == "date":
        seconds = (column.values - EPOCH) / SECOND
        return np.where(np.isnat(column.values), np.nan, seconds)
    return column.values
