"""What fit learned about a column, by which later columns are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._utils.storable import storable
from .calendar import CALENDAR, varying_parts
from .columns import Column
from .forms import read_as
from .text import TextEncoder


@storable
@dataclass(frozen=True)
class Feature:
    """A column of the training table. Later ones must have the same contents."""

    column: Column  # without its values
    holds: str  # its contents, in words
    parts: tuple[str, ...] = ()  # of dates, which parts of CALENDAR vary in the training rows
    text_features: TextEncoder | None = None
    by_targets: bool = False  # whether its levels become what the targets are on average

    @classmethod
    def of(cls, column: Column, vectorizer: Any = None) -> Feature:
        """Learn from a training column; of texts, by a vectoriser."""
        plain = replace(column, values=column.values[:0], texts=None)
        parts = varying_parts(column.values) if column.kind == "date" else ()
        encoder = None
        if column.kind == "text":
            with _of_text_features(column):
                encoder = TextEncoder.fit(vectorizer, column.values.tolist())
        return cls(plain, column.contents, parts, encoder)

    @property
    def is_category(self) -> bool:
        """Whether it has levels."""
        return self.column.kind == "category"

    @property
    def is_one_hot(self) -> bool:
        """Whether each of its frequent levels becomes a column."""
        return self.is_category and not self.by_targets

    @property
    def is_number(self) -> bool:
        """Whether it has numbers: its values, parts of dates, or positions in an order."""
        return self.marks_gaps or self.column.levels is not None

    @property
    def marks_gaps(self) -> bool:
        """Whether gaps are filled and marked: in a category they are a level, in a text empty."""
        return not self.is_category and not self.is_text

    @property
    def is_text(self) -> bool:
        """Whether a vectoriser makes numbers of it."""
        return self.text_features is not None

    def names(self, name: str) -> list[str]:
        """Names of its numbers, where the column is called `name`."""
        return [f"{name}_{part}" for part in self.parts] or [name]

    def names_of_texts(self, name: str) -> list[str]:
        """Names of what its texts become, where the column is called `name`."""
        assert self.text_features is not None
        return [f"{name}_{i}" for i in range(self.text_features.n_outputs or 0)]

    def categories(self, column: Column) -> np.ndarray:
        """The values of a column of categories, None where they are missing, (n,)."""
        return self.as_in_fit(column).as_category().values

    def numbers(self, column: Column) -> np.ndarray:
        """The column's numbers, NaN where they are missing, (n, n_parts)."""
        column = self.as_in_fit(column)
        if "empty" in (column.kind, self.column.kind):
            return np.full((len(column.values), len(self.parts) or 1), np.nan)
        if self.parts:
            return np.stack([CALENDAR[part](column.values) for part in self.parts], axis=1)
        if self.column.levels is not None:
            places = {level: place for place, level in enumerate(self.column.levels)}
            return np.array([[places.get(value, np.nan)] for value in column.values], dtype=float)
        return column.values[:, None]

    def texts(self, column: Column) -> np.ndarray:
        """What the texts of a column become, (n, n_outputs)."""
        assert self.text_features is not None
        column = self.as_in_fit(column)
        with _of_text_features(column):
            return self.text_features.encode(column.values.tolist())

    def as_in_fit(self, column: Column) -> Column:
        """The column with the contents that it had in fit; an error, if it has others."""
        column = read_as(column, self.column)
        if self.is_text:
            column = column.as_text()
        as_number = column.kind == "number" and self.holds == "numbers as categories"
        if as_number or (self.is_category and column.texts is not None):
            column = column.as_category()
        holds = column.contents
        if "nothing" not in (holds, self.holds) and holds != self.holds:
            raise ValueError(
                f"{column.label} held {self.holds} in fit, and holds {holds} now{column.example}"
            )
        return column


@contextmanager
def _of_text_features(column: Column) -> Iterator[None]:
    """Name the column in errors of its vectoriser."""
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"text_features of {column.label}: {error}") from error
