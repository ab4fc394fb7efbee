"""Column specifications: fit learns them, and the columns of later tables are read with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from .._utils.storable import storable
from .columns import SHOWN, Column
from .forms import read_as

# -- dates -------------------------------------------------------------------------------------

DAY, YEAR = np.timedelta64(1, "D"), np.timedelta64(1, "Y")
MONDAY = np.datetime64("1970-01-05", "us")
TURN = 2 * np.pi


def _year(moments: np.ndarray) -> np.ndarray:
    years = moments.astype("datetime64[Y]").astype(int) + 1970.0
    return np.where(np.isnat(moments), np.nan, years)


def _days(moments: np.ndarray) -> np.ndarray:
    return (moments - MONDAY) / DAY


def _position_in_year(moments: np.ndarray) -> np.ndarray:
    year = moments.astype("datetime64[Y]")
    first, last = year.astype(moments.dtype), (year + YEAR).astype(moments.dtype)
    return (moments - first) / (last - first)


#: Functions that return the parts of dates, NaN for missing dates. Positions in the year, the week
#: and the day are on circles, so that the end is next to the beginning.
CALENDAR: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": _year,
    "days": _days,
    "year_sin": lambda t: np.sin(TURN * _position_in_year(t)),
    "year_cos": lambda t: np.cos(TURN * _position_in_year(t)),
    "week_sin": lambda t: np.sin(TURN * (_days(t) / 7)),
    "week_cos": lambda t: np.cos(TURN * (_days(t) / 7)),
    "day_sin": lambda t: np.sin(TURN * _days(t)),
    "day_cos": lambda t: np.cos(TURN * _days(t)),
}


def varying_parts(moments: np.ndarray) -> tuple[str, ...]:
    """Return the parts of :data:`CALENDAR` in which dates differ, or the days if none differs."""
    given = moments[~np.isnat(moments)]
    varies = {name: np.ptp(part(given)) > 1e-9 for name, part in CALENDAR.items() if len(given)}
    return tuple(name for name in varies if varies[name]) or ("days",)


# -- texts -------------------------------------------------------------------------------------

N_COMPONENTS = 30  # most components of sparse features, as in skrub's StringEncoder
#: Singular values below this share of the largest are rounding errors, enlarged by scaling.
LEAST_COMPONENT = 1e-6


def default_vectorizer() -> TfidfVectorizer:
    """Return the default vectoriser, TF-IDF of character n-grams."""
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4))


def check_vectorizer(vectorizer: Any, label: str) -> None:
    """Raise if the vectoriser of a column is neither a transformer nor a function."""
    is_transformer = hasattr(vectorizer, "fit") and hasattr(vectorizer, "transform")
    if isinstance(vectorizer, type) or not (is_transformer or callable(vectorizer)):
        raise TypeError(
            "text_features must have a transformer, such as TfidfVectorizer(), or a function of "
            f"a list of str for {label}, got {vectorizer!r:.80}"
        )


@storable
@dataclass(frozen=True, eq=False)
class TextEncoder:
    """Encode the texts of a column as numbers."""

    #: Fitted transformer, or function of a list of str that returns (n, d). None if all texts were
    #: missing in fit: texts become 0.
    vectorizer: Any
    svd: TruncatedSVD | None = None  # reduces sparse features
    n_outputs: int | None = None

    @classmethod
    def fit(cls, vectorizer: Any, texts: Sequence[str]) -> TextEncoder:
        """Return an encoder whose transformer, a copy, and SVD are fitted to texts."""
        if not any(map(str.strip, texts)):
            return cls(None, None, 1)
        svd = None
        if hasattr(vectorizer, "transform"):
            vectorizer = clone(vectorizer).fit(texts)
            features = vectorizer.transform(texts)
            svd = _fit_svd(features) if issparse(features) else None
        encoded = cls(vectorizer, svd).encode(texts[:1])  # a model may take long for all
        return cls(vectorizer, svd, encoded.shape[1])

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return texts as numbers (n, n_outputs); raise if the vectoriser's result is invalid."""
        vectorizer = self.vectorizer
        if vectorizer is None:
            return np.zeros((len(texts), 1))
        is_transformer = hasattr(vectorizer, "transform")
        output = vectorizer.transform(texts) if is_transformer else vectorizer(texts)
        if self.svd is not None:
            output = self.svd.transform(output)
        encoded = np.asarray(output.toarray() if issparse(output) else output, dtype=np.float64)
        n_outputs = self.n_outputs
        if n_outputs is None and encoded.ndim == 2:
            n_outputs = encoded.shape[1]
        if encoded.shape != (len(texts), n_outputs):
            wanted = f"({len(texts)}, {'d' if n_outputs is None else n_outputs})"
            raise ValueError(
                f"{vectorizer!r:.80} must return finite numbers of shape {wanted}, got an array "
                f"of shape {encoded.shape}"
            )
        if not np.isfinite(encoded).all():
            row, column = np.argwhere(~np.isfinite(encoded))[0]
            raise ValueError(
                f"{vectorizer!r:.80} must return finite numbers, got {encoded[row, column]} for "
                f"{texts[row]!r:.{SHOWN}}"
            )
        return encoded


def _fit_svd(features: Any) -> TruncatedSVD | None:
    """Return a TruncatedSVD without components at rounding level, or None if d is small."""
    n_rows, n_features = features.shape
    if n_features <= N_COMPONENTS:
        return None
    svd = TruncatedSVD(min(N_COMPONENTS, n_rows), random_state=0)
    with np.errstate(all="ignore"):  # equal texts have variance 0, whose shares are undefined
        svd.fit(features)
    sizes = svd.singular_values_
    svd.components_ = svd.components_[sizes >= LEAST_COMPONENT * sizes[0]]
    return svd


# -- columns -----------------------------------------------------------------------------------


@storable
@dataclass(frozen=True)
class ColumnSpec:
    """Store what fit learned about a column of the training table."""

    column: Column  # without its values
    holds: str  # the contents in words, which must be the same in later columns
    parts: tuple[str, ...] = ()  # parts of CALENDAR in which the dates of training rows vary
    text_features: TextEncoder | None = None
    by_targets: bool = False  # whether a level is encoded by the mean of the targets at it

    @classmethod
    def of(cls, column: Column, vectorizer: Any = None) -> ColumnSpec:
        """Return the specification of a training column; a column of texts has a vectoriser."""
        plain = replace(column, values=column.values[:0], texts=None)
        parts = varying_parts(column.values) if column.kind == "date" else ()
        encoder = None
        if column.kind == "text":
            with _naming_text_features(column):
                encoder = TextEncoder.fit(vectorizer, column.values.tolist())
        return cls(plain, column.contents, parts, encoder)

    @property
    def is_category(self) -> bool:
        """Return whether the column has levels."""
        return self.column.kind == "category"

    @property
    def is_one_hot(self) -> bool:
        """Return whether frequent levels are one-hot encoded."""
        return self.is_category and not self.by_targets

    @property
    def is_text(self) -> bool:
        """Return whether a vectoriser encodes the column."""
        return self.text_features is not None

    @property
    def marks_gaps(self) -> bool:
        """Return whether gaps are filled and marked: not in categories, nor in texts."""
        return not self.is_category and not self.is_text

    @property
    def is_number(self) -> bool:
        """Return whether the column has numbers: values, parts of dates, or ordered positions."""
        return self.marks_gaps or self.column.levels is not None

    def number_names(self, name: str) -> list[str]:
        """Return the names of the columns of :meth:`numbers`, for a column called `name`."""
        return [f"{name}_{part}" for part in self.parts] or [name]

    def text_names(self, name: str) -> list[str]:
        """Return the names of the columns of :meth:`texts`, for a column called `name`."""
        assert self.text_features is not None
        return [f"{name}_{i}" for i in range(self.text_features.n_outputs or 0)]

    def numbers(self, column: Column) -> np.ndarray:
        """Return a column's numbers, NaN where they are missing, (n, n_parts)."""
        column = self.as_in_fit(column)
        if "empty" in (column.kind, self.column.kind):
            return np.full((len(column.values), len(self.parts) or 1), np.nan)
        if self.parts:
            return np.stack([CALENDAR[part](column.values) for part in self.parts], axis=1)
        if self.column.levels is not None:
            rank = {level: i for i, level in enumerate(self.column.levels)}
            return np.array([[rank.get(value, np.nan)] for value in column.values], dtype=float)
        return column.values[:, None]

    def categories(self, column: Column) -> np.ndarray:
        """Return the levels of a column of categories, None where they are missing, (n,)."""
        return self.as_in_fit(column).as_category().values

    def texts(self, column: Column) -> np.ndarray:
        """Return a column of texts as numbers, (n, n_outputs)."""
        assert self.text_features is not None
        column = self.as_in_fit(column)
        with _naming_text_features(column):
            return self.text_features.encode(column.values.tolist())

    def as_in_fit(self, column: Column) -> Column:
        """Return a later column, read as in fit; raise if its contents differ from fit."""
        column = read_as(column, self.column)
        if self.is_text:
            column = column.as_text()
        has_number_levels = column.kind == "number" and self.holds == "numbers as categories"
        if has_number_levels or (self.is_category and column.texts is not None):
            column = column.as_category()
        holds = column.contents
        if "nothing" not in (holds, self.holds) and holds != self.holds:
            raise ValueError(
                f"{column.label} held {self.holds} in fit, and holds {holds} now{column.example}"
            )
        return column


@contextmanager
def _naming_text_features(column: Column) -> Iterator[None]:
    """Add the column's name to errors of its vectoriser."""
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"text_features of {column.label}: {error}") from error
