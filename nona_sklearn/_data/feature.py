"""What fit learned about a column, by which later columns are read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._utils.storable import storable
from .calendar import CALENDAR, varying_parts
from .columns import Column


@storable
@dataclass(frozen=True)
class Feature:
    """A column of the training table. Later ones must have the same contents."""

    column: Column  # without its values
    holds: str  # its contents, in words
    parts: tuple[str, ...] = ()  # of dates, which parts of CALENDAR vary in the training rows

    @classmethod
    def of(cls, column: Column) -> Feature:
        """Learn from a training column."""
        plain = replace(column, values=column.values[:0], texts=None)
        parts = varying_parts(column.values) if column.kind == "date" else ()
        return cls(plain, column.contents, parts)

    @property
    def is_category(self) -> bool:
        """Whether each of its levels becomes a column."""
        return self.column.kind == "category"

    @property
    def is_number(self) -> bool:
        """Whether it has numbers: its values, parts of dates, or positions in an order."""
        return not self.is_category or self.column.levels is not None

    def names(self, name: str) -> list[str]:
        """Names of its numbers, where the column is called `name`."""
        return [f"{name}_{part}" for part in self.parts] or [name]

    def categories(self, column: Column) -> np.ndarray:
        """The values of a column of categories, None where they are missing, (n,)."""
        return self._as_in_fit(column).as_category().values

    def numbers(self, column: Column) -> np.ndarray:
        """The column's numbers, NaN where they are missing, (n, n_parts)."""
        if "empty" in (column.kind, self.column.kind):
            return np.full((len(column.values), len(self.parts) or 1), np.nan)
        column = self._as_in_fit(column)
        if self.parts:
            return np.stack([CALENDAR[part](column.values) for part in self.parts], axis=1)
        if self.column.levels is not None:
            places = {level: place for place, level in enumerate(self.column.levels)}
            return np.array([[places.get(value, np.nan)] for value in column.values], dtype=float)
        return column.values[:, None]

    def _as_in_fit(self, column: Column) -> Column:
        """The column with the contents that it had in fit; an error, if it has others."""
        as_number = column.kind == "number" and self.holds == "numbers as categories"
        if as_number or (self.is_category and column.texts is not None):
            column = column.as_category()
        holds = column.contents
        if "nothing" not in (holds, self.holds) and holds != self.holds:
            raise ValueError(
                f"{column.label} held {self.holds} in fit, and holds {holds} now{column.example}"
            )
        return column
