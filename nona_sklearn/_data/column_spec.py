"""Column specifications, which fit learns, and the encoders of levels, dates and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.model_selection import KFold
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

from .._utils.globe import EARTH_RADIUS
from .._utils.storable import storable
from .._utils.threads import cached_property, snapshot
from .._utils.validation import naming, object_array
from .columns import SHOWN, Column, read_as

N_FOLDS = 5
MOST_TARGETS = 16  # most outputs or classes, which become columns
RARE = "infrequent_sklearn"  # scikit-learn's name of the column of rare levels


def cross_fit(
    fit: Callable[[Any, np.ndarray], Callable[[Any], np.ndarray]], X: Any, targets: np.ndarray
) -> np.ndarray:
    """Return training rows, (n, n_encoded), encoded by functions fitted without their fold.

    ``fit(X, targets)``, with targets (n, n_targets), returns a function that encodes rows, ordered
    by target. The overall mean replaces the mean of the fitted folds, which is low where targets
    of the left-out fold are high.
    """
    # The folds are the same for every random_state, since different folds would only add noise.
    folds = KFold(min(N_FOLDS, len(targets)), shuffle=True, random_state=0)
    blocks, order = [], []
    for train, held_out in folds.split(targets):
        block = fit(X[train], targets[train])(X[held_out]).reshape(len(held_out), -1)
        shift = targets.mean(axis=0) - targets[train].mean(axis=0)
        blocks.append(block + np.repeat(shift, block.shape[1] // len(shift)))
        order.append(held_out)
    return np.concatenate(blocks)[np.argsort(np.concatenate(order))]


def columns_of_targets(encoded: np.ndarray) -> np.ndarray | None:
    """Return encoded targets, (n,) or (n, c), as columns (n, n_targets), or None if too many.

    Two classes become one column, the second class.
    """
    columns = encoded.reshape(len(encoded), -1).astype(np.float64)
    if columns.shape[1] == 2 and (columns.sum(axis=1) == 1).all():
        columns = columns[:, 1:]
    return None if columns.shape[1] > MOST_TARGETS else columns


class CodedLevels:
    """Look up rows that stand for the levels of categories."""

    levels_: Any  # the stored levels of the categories, lists in a list

    @property
    def rows_of_levels(self) -> list[np.ndarray]:
        """Return each category's rows (n_levels + 1, k); the last is of a level not stored."""
        raise NotImplementedError

    @cached_property
    def _lookups(self) -> list[tuple[dict[Any, int], np.ndarray]]:
        return [*zip(map(numbers_of, self.levels_), self.rows_of_levels, strict=True)]

    def look_up(self, levels: np.ndarray) -> list[np.ndarray]:
        """Return the rows (n, k) of each category's levels, given levels (n, n_categories)."""
        return [
            rows[[code_of.get(level, -1) for level in column]]
            for (code_of, rows), column in zip(self._lookups, levels.T, strict=True)
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lookups"}


@storable
class LevelEncoder(CodedLevels):
    """Encode a level of a category as its mean target, shrunk towards the overall mean.

    A level that has one training row, or that was not in fit, has the overall mean.
    """

    encoders_: list[TargetEncoder]  # (n_targets,), since scikit-learn's encoder takes one target

    def fit_transform(self, levels: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return cross-fitted levels (n, n_categories) as (n, n_targets * n_categories)."""
        self._fit(levels, targets)
        return cross_fit(lambda *rows: LevelEncoder()._fit(*rows), levels, targets)

    def _fit(self, levels: np.ndarray, targets: np.ndarray) -> Callable[[Any], np.ndarray]:
        encoder = TargetEncoder(target_type="continuous").set_output(transform="default")
        self.encoders_ = [clone(encoder).fit(levels, column) for column in targets.T]
        return self.transform

    @property
    def levels_(self) -> list[list[Any]]:
        """Return the stored levels of the categories."""
        return [levels.tolist() for levels in self.encoders_[0].categories_]

    def with_levels(self, levels: list[list[Any]]) -> LevelEncoder:
        """Return a copy with the given levels; a replaced level has the overall mean."""
        copied = LevelEncoder()
        copied.encoders_ = [snapshot(encoder) for encoder in self.encoders_]
        categories = list(map(object_array, levels))
        for encoder in copied.encoders_:
            changed = [a != b for a, b in zip(encoder.categories_, categories, strict=True)]
            encoder.encodings_ = [
                np.where(new, encoder.target_mean_, means)
                for new, means in zip(changed, encoder.encodings_, strict=True)
            ]
            encoder.categories_ = categories
        return copied

    @property
    def rows_of_levels(self) -> list[np.ndarray]:
        columns = ([np.append(m, e.target_mean_) for m in e.encodings_] for e in self.encoders_)
        return [np.stack(of_targets, axis=1) for of_targets in zip(*columns, strict=True)]

    def transform(self, levels: np.ndarray) -> np.ndarray:
        """Return rows, (n, n_targets * n_categories), encoded from all training rows."""
        return np.stack(self.look_up(levels), axis=2).reshape(len(levels), -1)

    def names(self, names: list[str]) -> list[str]:
        """Return the names of the encoded columns, given the names of the categories."""
        n_targets = len(self.encoders_)
        marks = ["target"] if n_targets == 1 else [f"target{i}" for i in range(n_targets)]
        return [f"{name}_{mark}" for mark in marks for name in names]


@storable
class FrequentLevels(CodedLevels):
    """One-hot encode frequent levels of categories; rare and unknown levels share one column.

    Rare levels are not stored, so that a file does not contain the name of a single row. Without
    rare levels, an unknown level has the column means: zeros, which no training row has in all
    columns, would make a network extrapolate.
    """

    levels_: list[list[Any]]  # frequent levels of the categories, in the order of the columns
    has_rare_: list[bool]  # (n_categories,), whether a category had rare levels
    #: Shares of the training rows with the frequent levels. None in an old file: a level that was
    #: not in fit is 0 in all columns.
    shares_: list[list[float]] | None = None

    def fit(
        self, levels: np.ndarray, max_categories: int, min_frequency: int | float
    ) -> FrequentLevels:
        """Store the frequent levels of training rows, (n, n_categories)."""
        encoder = OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=max_categories,
            min_frequency=min_frequency,
        ).fit(levels)
        rare = [() if rare is None else {*rare} for rare in encoder.infrequent_categories_]
        self.levels_ = [
            [level for level in categories.tolist() if level not in rare_levels]
            for categories, rare_levels in zip(encoder.categories_, rare, strict=True)
        ]
        self.has_rare_ = [len(rare_levels) > 0 for rare_levels in rare]
        columns = codes_of(self.levels_, levels).T
        self.shares_ = [
            [float(np.mean(codes == i)) for i in range(len(frequent))]
            for frequent, codes in zip(self.levels_, columns, strict=True)
        ]
        return self

    def with_levels(self, levels: list[list[Any]]) -> FrequentLevels:
        """Return a copy with the given levels."""
        copied = FrequentLevels()
        vars(copied).update(self.__getstate__() | {"levels_": levels})
        return copied

    @property
    def rows_of_levels(self) -> list[np.ndarray]:
        shares = self.shares_ or [[0.0] * len(frequent) for frequent in self.levels_]
        units = [np.eye(len(of_levels) + 1) for of_levels in shares]
        return [
            rows if has_rare else np.vstack([rows[:-1, :-1], of_levels])
            for rows, has_rare, of_levels in zip(units, self.has_rare_, shares, strict=True)
        ]

    def transform(self, levels: np.ndarray) -> np.ndarray:
        """Return encoded rows, (n, n_columns), of levels (n, n_categories)."""
        return np.hstack(self.look_up(levels))

    def names(self, names: list[str]) -> list[str]:
        """Return the names of the encoded columns, given the names of the categories."""
        return [
            _name_of_level(name, level)
            for name, frequent, has_rare in zip(names, self.levels_, self.has_rare_, strict=True)
            for level in [*frequent, *([RARE] if has_rare else [])]
        ]


@storable
def _name_of_level(name: str, level: Any) -> str:
    return f"{name}_missing" if level is None else f"{name}_{level}"


def numbers_of(levels: Iterable[Any]) -> dict[Any, int]:
    """Return the numbers of levels in their order."""
    return {level: i for i, level in enumerate(levels)}


def codes_of(levels: list[list[Any]], values: np.ndarray) -> np.ndarray:
    """Return codes of values (n, n_categories) in the categories' levels; -1 for no level."""
    codes = np.empty(values.shape, dtype=np.int32)
    for j, code_of in enumerate(map(numbers_of, levels)):
        codes[:, j] = [code_of.get(value, -1) for value in values[:, j]]
    return codes


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


# -- texts -------------------------------------------------------------------------------------

N_COMPONENTS = 30  # most components of sparse features, as in skrub's StringEncoder
#: Singular values below this share of the largest are rounding errors, enlarged by scaling.
LEAST_COMPONENT = 1e-6


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
            if issparse(features) and features.shape[1] > N_COMPONENTS:
                svd = TruncatedSVD(min(N_COMPONENTS, features.shape[0]), random_state=0)
                with np.errstate(all="ignore"):  # the shares of variance 0, of equal texts
                    svd.fit(features)
                sizes = svd.singular_values_
                svd.components_ = svd.components_[sizes >= LEAST_COMPONENT * sizes[0]]
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


# -- places ------------------------------------------------------------------------------------

RADIUS = EARTH_RADIUS / 1000  # kilometres
ROUNDED = 6  # decimals of kilometres: rounding errors of places on a line would become a feature
LEAST_COSINE = 0.5  # within 60 degrees of the centre, a map of two axes tells places apart


@storable
@dataclass(frozen=True, eq=False)
class Place:
    """Store how a column of latitudes or longitudes is encoded, together with the other one.

    Places of a region are kilometres east and north of their centre, as seen from above it.
    Places of more than that are points in space: the longitude has the axes x and y of the
    equator, the latitude the axis z of the poles.
    """

    pair: tuple[int, int]  # numbers of the columns of latitude and longitude
    parts: tuple[str, ...]  # names of the axes
    axes: np.ndarray  # (n_parts, 3)

    @classmethod
    def of_pair(cls, pair: tuple[int, int], vectors: np.ndarray) -> tuple[Place, Place]:
        """Return how latitudes and longitudes are encoded, from training places (n, 3)."""
        known = vectors[~np.isnan(vectors).any(axis=1)]
        center = known.sum(axis=0)
        if (known @ center > LEAST_COSINE * np.linalg.norm(center)).all() and center.any():
            longitude = np.arctan2(center[1], center[0])
            east = np.array([-np.sin(longitude), np.cos(longitude), 0.0])
            north = np.cross(center / np.linalg.norm(center), east)
            return cls(pair, ("north",), north[None]), cls(pair, ("east",), east[None])
        x, y, z = np.eye(3)
        return cls(pair, ("z",), z[None]), cls(pair, ("x", "y"), np.stack([x, y]))

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Return kilometres along the axes, (n, n_parts), of places (n, 3)."""
        return (RADIUS * vectors @ self.axes.T).round(ROUNDED)


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
    place: Place | None = None  # how latitudes or longitudes are encoded

    @classmethod
    def of(cls, column: Column, vectorizer: Any = None) -> ColumnSpec:
        """Return the specification of a training column; a column of texts has a vectoriser."""
        plain = replace(column, values=column.values[:0].copy(), texts=None)
        parts: tuple[str, ...] = ()
        encoder = None
        if column.kind == "date":
            given = column.values[~np.isnat(column.values)]  # an empty column is no date
            varying = [name for name, part in CALENDAR.items() if np.ptp(part(given)) > 1e-9]
            parts = tuple(varying) or ("days",)
        if column.kind == "text":
            with naming(f"text_features of {column.label}"):
                encoder = TextEncoder.fit(vectorizer, column.values.tolist())
        return cls(plain, column.contents, parts, encoder)

    @property
    def is_category(self) -> bool:
        """Return whether the column has levels."""
        return self.column.kind == "category"

    @property
    def level_encoder(self) -> str | None:
        """Return the name of the encoder of the levels, or None for no category."""
        if not self.is_category:
            return None
        return "levels" if self.by_targets else "categories"

    @property
    def is_ignored(self) -> bool:
        """Return whether the column is no feature."""
        return self.column.kind == "ignored"

    @property
    def is_text(self) -> bool:
        """Return whether a vectoriser encodes the column."""
        return self.text_features is not None

    @property
    def marks_gaps(self) -> bool:
        """Return whether gaps are filled and marked: not in categories, nor in texts."""
        return not (self.is_category or self.is_text or self.is_ignored)

    @property
    def is_number(self) -> bool:
        """Return whether the column has numbers: values, parts of dates, or ordered positions."""
        return self.marks_gaps or self.column.levels is not None

    def numbers(self, column: Column) -> np.ndarray:
        """Return a column's numbers, NaN where they are missing, (n, n_parts)."""
        column = self.as_in_fit(column)
        if "empty" in (column.kind, self.column.kind):
            return np.full((len(column.values), len(self.parts) or 1), np.nan)
        if self.parts:
            return np.stack([CALENDAR[part](column.values) for part in self.parts], axis=1)
        if self.column.levels is not None:
            rank = numbers_of(self.column.levels)
            return np.array([[rank.get(value, np.nan)] for value in column.values], dtype=float)
        return column.values[:, None]

    def categories(self, column: Column) -> np.ndarray:
        """Return the levels of a column of categories, None where they are missing, (n,)."""
        return self.as_in_fit(column).as_category().values

    def texts(self, column: Column) -> np.ndarray:
        """Return a column of texts as numbers, (n, n_outputs)."""
        assert self.text_features is not None
        column = self.as_in_fit(column)
        with naming(f"text_features of {column.label}"):
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
