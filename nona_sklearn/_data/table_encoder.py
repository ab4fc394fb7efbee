"""A table as one matrix of numbers, and what each of its columns is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import (
    _check_feature_names_in,
    check_is_fitted,
    validate_data,
)

from .._utils.docs import Documented
from .._utils.storable import storable, storable_estimator
from .._utils.validation import replaced_when_done, unmasked
from .columns import LEVELS, OF_A_ZONE, Column, is_frame, kind_of, read_columns
from .names import free_name

DAY, YEAR = np.timedelta64(1, "D"), np.timedelta64(1, "Y")
MONDAY = np.datetime64("1970-01-05", "us")


# -- dates ---------------------------------------------------------------------------------


def _year(moments: np.ndarray) -> np.ndarray:
    years = moments.astype("datetime64[Y]").astype(int) + 1970.0
    return np.where(np.isnat(moments), np.nan, years)


def _days(moments: np.ndarray) -> np.ndarray:
    return (moments - MONDAY) / DAY


def _position_in_year(moments: np.ndarray) -> np.ndarray:
    year = moments.astype("datetime64[Y]")
    first, last = year.astype(moments.dtype), (year + YEAR).astype(moments.dtype)
    return (moments - first) / (last - first)


def _sine(position: np.ndarray) -> np.ndarray:
    return np.sin(2 * np.pi * position)


def _cosine(position: np.ndarray) -> np.ndarray:
    return np.cos(2 * np.pi * position)


#: What a date becomes, NaN where it is missing: the year, the days passed, and where it lies in
#: the year, the week and the day, on circles on which the end meets the beginning.
CALENDAR: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": _year,
    "days": _days,
    "year_sin": lambda t: _sine(_position_in_year(t)),
    "year_cos": lambda t: _cosine(_position_in_year(t)),
    "week_sin": lambda t: _sine(_days(t) / 7),
    "week_cos": lambda t: _cosine(_days(t) / 7),
    "day_sin": lambda t: _sine(_days(t)),
    "day_cos": lambda t: _cosine(_days(t)),
}


# -- one column ------------------------------------------------------------------------------


@storable
@dataclass(frozen=True)
class Feature:
    """What fit found a column to be. It reads later ones of that name alike, or refuses them.

    Parameters
    ----------
    column : Column
        The column, without its values.
    holds : str
        What it holds, in words.
    parts : tuple of str
        Which of :data:`CALENDAR` differ in the training rows, of a date.
    """

    column: Column
    holds: str
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, column: Column) -> Feature:
        """Look at a training column."""
        parts: tuple[str, ...] = ()
        if column.kind == "date":
            found = {name: part(column.values) for name, part in CALENDAR.items()}
            parts = tuple(name for name, values in found.items() if _differ(values)) or ("days",)
        plain = replace(column, values=column.values[:0], texts=None)
        return cls(plain, _describe(column), parts)

    @property
    def is_category(self) -> bool:
        """Whether each of its levels is a column."""
        return self.column.kind == "category"

    @property
    def is_number(self) -> bool:
        """Whether it is a number, several, or a place in an order."""
        return not self.is_category or self.column.levels is not None

    def names(self, name: str) -> list[str]:
        """Names of its numbers, where the column is called `name`."""
        return [f"{name}_{part}" for part in self.parts] or [name]

    def categories(self, column: Column) -> np.ndarray:
        """The values of a column of categories, None where there are gaps, (n,)."""
        return self._as_in_fit(column).as_category().values

    def numbers(self, column: Column) -> np.ndarray:
        """The values as numbers or places in the order, NaN where there are gaps, (n, n_parts)."""
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
        """The column as one that holds what it held in fit, or an error."""
        as_number = column.kind == "number" and self.holds == "numbers as categories"
        if as_number or (self.is_category and column.texts is not None):
            column = column.as_category()
        holds = _describe(column)
        if "nothing" not in (holds, self.holds) and holds != self.holds:
            raise ValueError(
                f"{column.label} held {self.holds} in fit, and holds {holds} now{_example(column)}"
            )
        return column


def _describe(column: Column) -> str:
    """Say in words what a column holds."""
    given = next((value for value in column.values if value is not None), None)
    if column.kind == "empty" or (column.kind == "category" and given is None):
        return "nothing"
    if column.kind == "category":
        return LEVELS[kind_of(given)]
    if column.kind == "date":
        return "dates without a time zone" if column.time_zone is None else OF_A_ZONE
    return "durations" if column.kind == "duration" else "numbers"


def _example(column: Column) -> str:
    given = [value for value in column.values.tolist() if value is not None and value == value]
    return f", such as {given[0]!r:.80}" if given else ""


def _differ(values: np.ndarray) -> bool:
    given = values[~np.isnan(values)]
    return len(given) > 0 and bool(np.ptp(given) > 1e-9)


# -- the table ---------------------------------------------------------------------------------


@storable_estimator
class TableEncoder(Documented, TransformerMixin, BaseEstimator):
    """Numbers, categories, gaps and dates of a table as one matrix of numbers.

    The estimators encode `X` with it before they scale it, and keep it as ``features_``.

    ==================================  ========================================================
    column                              becomes
    ==================================  ========================================================
    number, truth value, duration       itself (a duration in seconds)
    gaps in these, and in dates         the median, and a column that marks them if fit saw gaps
    category                            a column for each level; rare ones share one, and so do
                                        levels that fit did not see
    a missing category                  a level
    ordered category                    a column for each level, and its place in the order
    date                                year, days passed, and sine and cosine of its place in
                                        the year, the week and the day, where they differ
    strings that are all dates          dates, if they are written as ISO 8601 has them, such as
                                        2025-01-31 or 2025-01-31T12:00, and are not chosen
    ==================================  ========================================================

    Parameters
    ----------
    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Which columns are categories. 'from_dtype': those that hold strings, and a DataFrame's
        categoricals. Otherwise their names, their numbers, or a mask of bool of shape
        (n_features,). None: no column. All are refused that hold strings and are not among them.

    max_categories : int, default=64
        Most columns that one category becomes.

    min_frequency : int or float, default=0.01
        Levels of fewer training rows than this, or than this share of them, share one column:
        two rows that have a rare level in common would else be near for that alone.

    Attributes
    ----------
    features_ : list of Feature
        What each column was found to be.

    source_ : ndarray of shape (n_features_out,)
        Number of the column that each column of the output comes from.

    n_features_in_ : int
        Number of columns seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if they are all strings.

    Examples
    --------
    >>> import pandas as pd
    >>> from nona_sklearn import TableEncoder
    >>> houses = pd.DataFrame({"area": [90, None, 120], "garage": ["yes", "no", "yes"]})
    >>> TableEncoder(min_frequency=1).set_output(transform="pandas").fit_transform(houses)
        area  area_missing  garage_no  garage_yes
    0   90.0           0.0        0.0         1.0
    1  105.0           1.0        1.0         0.0
    2  120.0           0.0        0.0         1.0
    """

    _parameter_constraints: dict = {
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
        "max_categories": [Interval(Integral, 1, None, closed="left")],
        "min_frequency": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
    }

    def __init__(
        self, categorical_features="from_dtype", *, max_categories=64, min_frequency=0.01
    ):
        self.categorical_features = categorical_features
        self.max_categories = max_categories
        self.min_frequency = min_frequency

    def fit(self, X, y=None):
        """Look at the columns of a training table.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            The table.
        y : ignored
            For pipelines.

        Returns
        -------
        self : object
            The fitted encoder.

        Raises
        ------
        TypeError
            If a column holds what is neither numbers, categories, dates nor durations, if
            `categorical_features` names dates, or `X` is a LazyFrame.
        ValueError
            If `categorical_features` names no column, or a column holds infinity.
        """
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X, y=None):
        """Look at a training table, and encode it: see :meth:`fit` and :meth:`transform`."""
        self._validate_params()
        with replaced_when_done(self) as fitted:
            return fitted._fit_transform(X)

    def _fit_transform(self, X):
        X = check_table(self, X, reset=True)
        columns = _choose_categories(list(read_columns(X)), self.categorical_features)
        self.features_ = [Feature.of(column) for column in columns]
        blocks = self._read(columns)
        encoders = {
            "numbers": SimpleImputer(strategy="median", keep_empty_features=True),
            "gaps": MissingIndicator(error_on_new=False),
            "categories": OneHotEncoder(
                max_categories=self.max_categories,
                min_frequency=self.min_frequency,
                handle_unknown="infrequent_if_exist",
                feature_name_combiner=_name_of_level,
                sparse_output=False,
            ),
        }
        self.encoders_ = {
            name: encoder.set_output(transform="default").fit(blocks[name])
            for name, encoder in encoders.items()
            if blocks[name].shape[1] > 0
        }
        if "gaps" in self.encoders_ and len(self.encoders_["gaps"].features_) == 0:
            del self.encoders_["gaps"]
        self.source_ = np.array([j for j, _ in self._outputs()])
        self._warn_of_rare_levels_only(len(columns[0].values))
        return self._encode(blocks)

    def label_of(self, output: int) -> str:
        """Name the column that a column of the encoded matrix comes from, as messages do."""
        return self.features_[self.source_[output]].column.label

    def _warn_of_rare_levels_only(self, n_rows: int) -> None:
        """Say which columns tell nothing, since each of their levels is a rare one."""
        if "categories" not in self.encoders_ or isinstance(self.min_frequency, Integral):
            return  # who counts rows knows them
        encoder = self.encoders_["categories"]
        chosen = [feature.column for feature in self.features_ if feature.is_category]
        found = zip(chosen, encoder.categories_, encoder.infrequent_categories_, strict=True)
        for column, levels, rare in found:
            if rare is not None and len(rare) == len(levels):
                warnings.warn(
                    f"{column.label} holds {len(levels)} categories in {n_rows} rows, none of "
                    "them often enough to learn from. If they are numbers or dates, convert them "
                    "(pandas.to_numeric, pandas.to_datetime), else drop it",
                    stacklevel=2,
                )

    def transform(self, X):
        """Encode rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            A table with the columns of the training table; in a DataFrame, in any order.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Numbers, float64, without gaps.

        Raises
        ------
        ValueError
            If columns are missing, are more, or hold something else than they did in fit; if
            numbers are infinite.
        """
        check_is_fitted(self)
        return self._transform(check_table(self, X, reset=False))

    def _transform(self, X):
        """Encode a table that is validated: its owner need not warn of its names again."""
        time_zones = [feature.column.time_zone for feature in self.features_]
        return self._encode(self._read(list(read_columns(X, time_zones))))

    def _read(self, columns: list[Column]) -> dict[str, np.ndarray]:
        """Values of the columns: a matrix for each encoder."""
        n_rows = len(columns[0].values)
        numbers, first, categories = [np.empty((n_rows, 0))], [], [np.empty((n_rows, 0), object)]
        for feature, column in zip(self.features_, columns, strict=True):
            if feature.is_category:
                categories.append(feature.categories(column)[:, None])
            if feature.is_number:
                numbers.append(feature.numbers(column))
            if not feature.is_category:  # a gap in one is a level
                first.append(numbers[-1][:, :1])  # of a date all parts are missing at once
        return {
            "numbers": np.hstack(numbers),
            "gaps": np.hstack([numbers[0], *first]),
            "categories": np.hstack(categories),
        }

    def _encode(self, blocks: dict[str, np.ndarray]) -> np.ndarray:
        complete = not np.isnan(blocks["numbers"]).any()
        encoded = [  # a transformer takes as long to check one row as all else does
            blocks[name] if name == "numbers" and complete else encoder.transform(blocks[name])
            for name, encoder in self.encoders_.items()
        ]
        return np.hstack(encoded).astype(np.float64, copy=False)

    def _outputs(self, names=None) -> list[tuple[int, str]]:
        """List each column of the output: the number of the one it comes from, and its name."""
        names = [str(j) for j in range(len(self.features_))] if names is None else names
        one_hot = [j for j, feature in enumerate(self.features_) if feature.is_category]
        others = [j for j, feature in enumerate(self.features_) if not feature.is_category]
        outputs = [
            (j, part)
            for j, feature in enumerate(self.features_)
            if feature.is_number
            for part in feature.names(names[j])
        ]
        if "gaps" in self.encoders_:
            missing = self.encoders_["gaps"].features_
            outputs += [(others[i], f"{names[others[i]]}_missing") for i in missing]
        if "categories" in self.encoders_:
            encoder = self.encoders_["categories"]
            levels = encoder.get_feature_names_out([names[j] for j in one_hot])
            rare = encoder.infrequent_categories_
            counts = [
                len(known) if few is None else len(known) - len(few) + 1
                for known, few in zip(encoder.categories_, rare, strict=True)
            ]
            outputs += list(zip(np.repeat(one_hot, counts).tolist(), levels, strict=True))
        return outputs

    def get_feature_names_out(self, input_features=None):
        """Names of the columns of the output.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns of the input, where fit did not see any.

        Returns
        -------
        ndarray of str of shape (n_features_out,)
            The name of a column, followed by the level, the part of a date or "missing".
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        found: dict[str, None] = {}  # in their order
        for _, name in self._outputs(names):  # a level may be called "missing"
            found[free_name(name, found, mark="_")] = None
        return np.array([*found], dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


@storable
def _name_of_level(name: str, level: Any) -> str:
    return f"{name}_missing" if level is None else f"{name}_{level}"


def check_table(estimator, X, *, reset: bool, ensure_min_samples: int = 1):
    """Validate a table: a frame with the columns of fit in their order, or an array.

    Parameters
    ----------
    estimator : BaseEstimator
        It remembers, or is asked for, the columns' names and number.
    X : DataFrame or array-like of shape (n_samples, n_features)
        The table.
    reset : bool
        Whether this is fit.
    ensure_min_samples : int, default=1
        Fewest rows.
    """
    if issparse(X):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required: use X.toarray(), or "
            "sparse_output=False in a OneHotEncoder and the like"
        )
    if not is_frame(X):
        X = _as_array(X)
        numbers = X.dtype.kind not in "OUSTmM"
        return validate_data(
            estimator,
            X.astype(object) if X.dtype.kind in "UST" else X,
            reset=reset,
            dtype=np.float64 if numbers else None,
            ensure_all_finite=False,  # the column is named where it is read
            ensure_min_samples=ensure_min_samples,
        )
    frame = nw.from_native(X, eager_only=True)
    seen = getattr(estimator, "feature_names_in_", ())
    if not reset and set(seen) == set(frame.columns):
        X = frame.select(list(seen)).to_native()
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    least = (ensure_min_samples, 1)
    for what, n, minimum in zip(("sample", "feature"), frame.shape, least, strict=True):
        if n < minimum:
            raise ValueError(
                f"Found a table with {n} {what}(s) (shape={frame.shape}) while a minimum of "
                f"{minimum} is required by {type(estimator).__name__}."
            )
    return X


def rows_of(X, rows: slice):
    """Select some rows of a table that is validated."""
    if isinstance(X, np.ndarray):
        return X[rows]
    return nw.from_native(X, eager_only=True)[rows].to_native()


def _as_array(X) -> np.ndarray:
    X = unmasked(X)
    if hasattr(X, "__array__") or hasattr(X, "__array_interface__"):
        return np.asarray(X)
    array = np.asarray(X)  # numbers beside strings became strings
    return np.asarray(X, dtype=object) if array.dtype.kind in "US" else array


def _choose_categories(columns: list[Column], chosen) -> list[Column]:
    """Turn the columns that the user says are categories into such, and refuse other strings."""
    if isinstance(chosen, str):
        return columns
    numbers = _column_numbers(columns, chosen)
    for j, column in enumerate(columns):
        if column.kind == "category" and j not in numbers:
            raise ValueError(
                f"{column.label} holds strings{_example(column)}, and categorical_features="
                f"{chosen!r:.80} does not name it: name it, use 'from_dtype', or convert it"
            )
    return [column.as_category() if j in numbers else column for j, column in enumerate(columns)]


def _column_numbers(columns: list[Column], chosen) -> set[int]:
    """Numbers of the columns that `categorical_features` names, counts, or marks."""
    names = _as_array([] if chosen is None else chosen)
    if names.ndim != 1:
        raise ValueError(f"categorical_features must be a list of columns, got {chosen!r:.80}")
    if names.dtype.kind == "b":
        if len(names) != len(columns):
            raise ValueError(
                f"categorical_features must mark each of {len(columns)} columns, got a mask of "
                f"shape {names.shape}"
            )
        return set(np.flatnonzero(names).tolist())
    places = {column.name: j for j, column in enumerate(columns)}
    found = set()
    for name in names.tolist():
        if name in places:
            found.add(places[name])
        elif isinstance(name, int) and -len(columns) <= name < len(columns):
            found.add(name % len(columns))
        else:
            raise ValueError(
                f"categorical_features must be columns of X, got {name!r}; X has "
                f"{[column.name for column in columns]!r:.300}"
            )
    return found
