"""Encoder of a table as a matrix of numbers."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils._param_validation import RealNotInt, StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from .._utils.docs import Documented
from .._utils.globe import read_places
from .._utils.storable import storable_estimator
from .._utils.tables import free_name, is_frame, names_of_columns
from .._utils.threads import replaced_when_done
from .._utils.validation import Interval, is_whole
from .column_spec import ColumnSpec, Place
from .columns import (
    SHOWN,
    Column,
    describe_reading,
    has_two_readings,
    read_columns,
    read_strings,
    unreadable_in,
)
from .row_values import as_array
from .table_encoding import TableEncoding
from .tables import check_table

MOST_NAMED = 5  # columns in a warning
#: Warn about a column of more than FEW categories if more than this share of its rows has a
#: category that no other row has.
FEW, MOST_ALONE = 20, 0.5


@storable_estimator()
class TableEncoder(Documented, TransformerMixin, BaseEstimator):
    """Encode numbers, categories, missing values and dates of a table as a matrix of numbers.

    The estimators encode `X` with a table encoder before scaling, and store the encoder as
    ``features_``.

    ==================================  ========================================================
    column                              encoding
    ==================================  ========================================================
    number, boolean, duration           the value (of a duration, in seconds)
    missing number, duration or date    the median, and an indicator column if values were missing
                                        in fit
    category                            a column for every level; rare levels share one column with
                                        levels that were not in fit. Without rare levels, a level
                                        that was not in fit has the column means, the shares of the
                                        levels
    category of more than               within an estimator, the mean target of the level
    `max_categories` levels             (cross-fitted for training rows), except with groups or
                                        times; otherwise as above
    a missing category                  a level
    ordered category                    a column for every level, and the position in the order
    date                                year, days passed, and sine and cosine of the position in
                                        the year, the week and the day, where they differ
    strings that are all numbers        numbers, with a warning: 25.3, -4e3, 1,234.50, 12%, $3.20,
                                        12 EUR or, if no other reading fits, 3,20. Strings such
                                        as "", NA or ? are missing values. Codes stay categories:
                                        one has a leading zero, or all are whole numbers that are
                                        years, few that repeat, or too long
    strings that are all dates          dates: without a warning in ISO 8601, such as 2025-01-31
                                        or 2025-01-31T12:00; with a warning in one other form,
                                        such as 31.01.2025, 20250131, Jan 31, 2025 or, if one day
                                        is above 12, 01/31/2025, optionally with a time
    latitude and longitude (`places`)   kilometres north and east of the centre of all rows, from
                                        above; if rows are farther than 60 degrees from it, points
                                        in space, with the poles on the axis z. The 180th meridian
                                        and the poles are places as any other
    text (`text_features`)              the result of a vectoriser, reduced to 30 columns if it
                                        is sparse; a missing value is an empty text
    ==================================  ========================================================

    Parameters
    ----------
    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Columns that are categories. With 'from_dtype', these are the columns of strings and the
        categorical columns of a DataFrame. An array-like contains names, numbers or a boolean mask
        of shape (n_features,). If None, no column is a category. An array-like or None raises an
        error for the remaining columns of strings.

    text_features : str, int, list, dict or None, default=None
        Columns of texts, by name or number. A dict maps columns to vectorisers: a vectoriser is
        a scikit-learn transformer for a list of str, such as ``TfidfVectorizer()``, which fit
        copies, or a function from a list of str to an array of shape (n, d), such as an embedding
        model. Sparse results are reduced by :class:`~sklearn.decomposition.TruncatedSVD` to 30
        columns at most. The default vectoriser is TF-IDF of n-grams of 3 and 4 characters. If
        None, no column is a text.

    max_categories : int, default=64
        Largest number of columns of an encoded category. Within an estimator, a category of more
        levels is encoded by the mean targets of the levels.

    min_frequency : int or float, default=0.01
        Least number, or share, of training rows of a level. Rarer levels share one column, since
        two rows with the same rare level would otherwise be near for that reason alone.

    ignored_features : str, int, list or None, default=None
        Columns that are no features, by name or number, such as the hospital of a patient: they
        change no distance and no prediction, and rules of eligibility can compare them. If None,
        all columns are features.

    places : tuple of two str or int, default=None
        Columns of the latitude and the longitude in degrees, by name or number. Within an
        estimator, spatial blocks of rows are then validated together: early stopping, intervals
        and the trend suit places that are not in the training table. Rows given `groups` are
        validated by these. If None, coordinates are numbers as any other.

    Attributes
    ----------
    features_ : list of ColumnSpec
        Specifications of the columns that fit learned.

    source_ : ndarray of shape (n_features_out,)
        Numbers of the input columns from which the output columns come.

    n_features_in_ : int
        Number of columns seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns seen during fit, if all names are strings.

    Notes
    -----
    A subclass with its own `fit`, `fit_transform` or `transform` is used before an estimator, in
    a pipeline. As `table_encoder` it raises an error, since the estimators read each column once
    and do not call these methods.

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
        "text_features": [str, Integral, dict, "array-like", None],
        "max_categories": [Interval(Integral, 1, None, closed="left")],
        "min_frequency": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "ignored_features": [str, Integral, "array-like", None],
        "places": ["array-like", None],
    }
    block_centers_: np.ndarray  # (n_blocks, 3), which an estimator sets

    def __init__(
        self,
        categorical_features: Any = "from_dtype",
        *,
        text_features: Any = None,
        max_categories: int = 64,
        min_frequency: float = 0.01,
        ignored_features: Any = None,
        places: Any = None,
    ):
        self.categorical_features = categorical_features
        self.text_features = text_features
        self.max_categories = max_categories
        self.min_frequency = min_frequency
        self.ignored_features = ignored_features
        self.places = places

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn the columns of a training table.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            The table.
        y : ignored
            For pipelines. Only the estimators encode levels by their targets.

        Returns
        -------
        self : object
            The fitted encoder.

        Raises
        ------
        TypeError
            If a column holds values that are not numbers, categories, dates or durations, if
            `categorical_features` names dates, if `text_features` names columns that do not
            hold strings, or if `X` is a LazyFrame.
        ValueError
            If `categorical_features`, `text_features`, `ignored_features` or `places` names no
            column, if two of them name the same column, if all columns are ignored, if a latitude
            is beyond 90 degrees or a longitude beyond 360, or if a column holds infinity.

        Examples
        --------
        >>> import pandas as pd
        >>> from nona_sklearn import TableEncoder
        >>> houses = pd.DataFrame({"area": [90, 60, 120], "garage": ["yes", "no", "yes"]})
        >>> TableEncoder(min_frequency=1).fit(houses).source_
        array([0, 1, 1])
        """
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn the columns of a training table, and encode the table.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            The table.
        y : ignored
            For pipelines. Only the estimators encode levels by their targets.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Numbers, float64, without missing values.

        Raises
        ------
        TypeError, ValueError
            As raised by :meth:`fit`.

        Examples
        --------
        >>> import pandas as pd
        >>> from nona_sklearn import TableEncoder
        >>> houses = pd.DataFrame({"area": [90, 60, 120], "garage": ["yes", "no", "yes"]})
        >>> TableEncoder(min_frequency=1).fit_transform(houses)
        array([[ 90.,   0.,   1.],
               [ 60.,   1.,   0.],
               [120.,   0.,   1.]])
        """
        self._validate_params()
        with replaced_when_done(self) as fitted:
            return fit_encoder(fitted, X)

    def transform(self, X: Any) -> np.ndarray:
        """Encode rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            A table with the columns of the training table; in a DataFrame, in any order.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Numbers, float64, without missing values.

        Raises
        ------
        ValueError
            If columns are missing or unknown, if the kinds of columns differ from fit, or if
            numbers are infinite.

        Examples
        --------
        A level that was not in fit has the shares of the levels in fit:

        >>> import pandas as pd
        >>> from nona_sklearn import TableEncoder
        >>> houses = pd.DataFrame({"area": [90, 60, 120], "garage": ["yes", "no", "yes"]})
        >>> encoder = TableEncoder(min_frequency=1).fit(houses)
        >>> encoder.transform(pd.DataFrame({"area": [75, None], "garage": ["no", "two"]}))
        array([[75.        ,  1.        ,  0.        ],
               [90.        ,  0.33333333,  0.66666667]])
        """
        check_is_fitted(self)
        encoding = TableEncoding.of(self)
        return encoding.transform(check_table(self, X, reset=False, contents=encoding.contents))

    # -- names of the output ----------------------------------------------------------------

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of the output.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns of the input, if the columns had no names in fit.

        Returns
        -------
        ndarray of str of shape (n_features_out,)
            Names of input columns, followed by the level, the part of a date or "missing".

        Examples
        --------
        >>> import pandas as pd
        >>> from nona_sklearn import TableEncoder
        >>> houses = pd.DataFrame({"area": [90, 60, 120], "garage": ["yes", "no", "yes"]})
        >>> TableEncoder(min_frequency=1).fit(houses).get_feature_names_out()
        array(['area', 'garage_no', 'garage_yes'], dtype=object)
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        unique: dict[str, None] = {}  # an ordered set
        for name in TableEncoding.of(self).output_names(names):  # a level may be called "missing"
            unique[free_name(name, unique, mark="_")] = None
        return np.array([*unique], dtype=object)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A pickle of an earlier version has neither.
        super().__setstate__({"places": None, "ignored_features": None} | state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def fit_encoder(encoder: TableEncoder, X: Any, targets: np.ndarray | None = None) -> np.ndarray:
    """Fit an encoder to a training table, and return the encoded table.

    Targets (n, c) encode categories of many levels.
    """
    X = check_table(encoder, X, reset=True)
    names = names_of_columns(X) if is_frame(X) else [*range(X.shape[1])]
    ignored = _choose_ignored(names, encoder.ignored_features)
    columns = list(read_columns(X, ignored=ignored))
    vectorizers = _choose_vectorizers(columns, encoder.text_features)
    columns = [
        column.as_text() if j in vectorizers else read_strings(column)
        for j, column in enumerate(columns)
    ]
    columns = _choose_categories(columns, encoder.categorical_features)
    _warn_about_strings(columns)
    specs = [ColumnSpec.of(column, vectorizers.get(j)) for j, column in enumerate(columns)]
    if targets is not None:  # encode categories of many levels by them, unless none repeats
        for j, column in enumerate(columns):
            n_levels = len(set(column.values)) if column.kind == "category" else 0
            if encoder.max_categories < n_levels < len(column.values):
                specs[j] = replace(specs[j], by_targets=True)
    if encoder.places is not None:
        pair, vectors = read_pair(columns, encoder.places)
        for j, place in zip(pair, Place.of_pair(pair, vectors), strict=True):
            specs[j] = replace(specs[j], place=place)
    encoding, encoded = TableEncoding.fit(
        specs, columns, encoder.max_categories, encoder.min_frequency, targets
    )
    encoder.features_, encoder.encoders_ = encoding.specs, encoding.encoders
    encoder.source_ = encoding.source
    _warn_about_rare_levels(encoder, columns)
    return encoded


def _warn_about_rare_levels(encoder: TableEncoder, columns: list[Column]) -> None:
    """Warn about columns whose levels are all rare or mostly occur once."""
    if isinstance(encoder.min_frequency, Integral):
        return  # a number of rows was chosen for this table
    for spec, column in zip(encoder.features_, columns, strict=True):
        if not spec.is_category:
            continue
        n_rows = len(column.values)
        counts = np.array([*Counter(column.values).values()])
        rare = not spec.by_targets and counts.max() < encoder.min_frequency * n_rows
        alone = len(counts) > FEW and np.count_nonzero(counts == 1) > MOST_ALONE * n_rows
        if rare or alone:
            often = "none of them often enough" if rare else "most of them once, too rarely"
            warnings.warn(
                f"{column.label} holds {len(counts)} categories in {n_rows} rows, {often} to "
                "learn from. If they are texts, name the column in text_features; if numbers "
                "or dates, convert them (pandas.to_numeric, pandas.to_datetime); else drop "
                "it, or set other limits: TableEncoder(min_frequency=..., "
                "max_categories=...)",
                stacklevel=2,
            )


def _warn_about_strings(columns: list[Column]) -> None:
    """Warn once about all columns of strings that were converted, or might have been.

    Columns that the user chose as categories are excluded.
    """
    strings = [column for column in columns if column.holds_strings]
    ambiguous = [column for column in strings if has_two_readings(column)]
    if ambiguous:
        warnings.warn(
            f"Day and month may be either in dates as strings, which stay categories: "
            f"{_listed([f'{column.label}{column.example}' for column in ambiguous])}. Convert "
            "them by pandas.to_datetime(..., dayfirst=True) or dayfirst=False",
            stacklevel=2,
        )
    pairs = [(column, unreadable_in(column)) for column in strings]
    unreadable = [f"{column.label} holds {text!r:.{SHOWN}}" for column, text in pairs if text]
    if unreadable:
        warnings.warn(
            "Columns stay categories where nearly all strings are numbers or dates: "
            f"{_listed(unreadable)}. Correct such values or replace them by None, or name a "
            "column in categorical_features to keep it a category",
            stacklevel=2,
        )
    read = [column for column in columns if column.form is not None]
    if read:
        converters = " or ".join(dict.fromkeys(column.form.converter for column in read))
        warnings.warn(
            "Strings were read: "
            f"{_listed([f'{column.label} {describe_reading(column)}' for column in read])}. "
            f"Convert them beforehand ({converters}) to choose how, or name a column in "
            "categorical_features to keep it a category",
            stacklevel=2,
        )


def _listed(parts: list[str]) -> str:
    """Return the joined descriptions of the first columns, and the number of further columns."""
    n_more = len(parts) - MOST_NAMED
    return "; ".join(parts[:MOST_NAMED]) + (f"; and {n_more} more columns" if n_more > 0 else "")


def _choose_ignored(names: list, chosen: Any) -> set[int]:
    """Return the numbers of the columns that are no features."""
    parameter = "ignored_features"
    numbers = {_number_of(names, name, parameter) for name in _names_in(chosen, parameter)}
    if len(numbers) == len(names):
        raise ValueError(f"{parameter} must leave a feature, got all columns: {names!r:.300}")
    return numbers


def _names_in(chosen: Any, parameter: str) -> list:
    """Return the names or numbers of columns in a parameter."""
    if chosen is None:
        return []
    names = [chosen] if isinstance(chosen, str | Integral) else list(chosen)
    if any(isinstance(name, bool | np.bool_) for name in names):
        raise ValueError(f"{parameter} must name columns, got a mask: {chosen!r:.80}")
    return names


def _choose_categories(columns: list[Column], chosen: Any) -> list[Column]:
    """Return columns with the chosen categories; raise if a column of strings is not chosen."""
    if isinstance(chosen, str):
        return columns
    names = as_array([] if chosen is None else chosen)
    if names.ndim != 1:
        raise ValueError(f"categorical_features must be a list of columns, got {chosen!r:.80}")
    if names.dtype.kind != "b":
        labels = [column.name for column in columns]
        numbers = {_number_of(labels, name, "categorical_features") for name in names.tolist()}
    elif len(names) == len(columns):
        numbers = set(np.flatnonzero(names).tolist())
    else:
        raise ValueError(
            f"categorical_features must mark each of {len(columns)} columns, got a mask of "
            f"shape {names.shape}"
        )
    for j, column in enumerate(columns):
        if column.kind in ("text", "ignored") and j in numbers:
            raise ValueError(
                f"{column.label} must be in categorical_features or in {column.kind}_features, "
                "not in both"
            )
        if column.kind == "category" and j not in numbers:
            raise ValueError(
                f"{column.label} holds strings{column.example}, and categorical_features="
                f"{chosen!r:.80} does not name it: name it, use 'from_dtype', or convert it"
            )
    return [column.as_category() if j in numbers else column for j, column in enumerate(columns)]


def _choose_vectorizers(columns: list[Column], chosen: Any) -> dict[int, Any]:
    """Return the vectorisers of `text_features`, by the number of the column."""
    names = [column.name for column in columns]
    numbers = [
        _number_of(names, name, "text_features") for name in _names_in(chosen, "text_features")
    ]
    vectorizers = {j: TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4)) for j in numbers}
    if isinstance(chosen, dict):
        vectorizers = dict(zip(numbers, chosen.values(), strict=True))
    for j, vectorizer in vectorizers.items():
        is_transformer = hasattr(vectorizer, "fit") and hasattr(vectorizer, "transform")
        if isinstance(vectorizer, type) or not (is_transformer or callable(vectorizer)):
            raise TypeError(
                "text_features must have a transformer, such as TfidfVectorizer(), or a function "
                f"of a list of str for {columns[j].label}, got {vectorizer!r:.80}"
            )
        if columns[j].kind == "ignored":
            raise ValueError(
                f"{columns[j].label} must be in text_features or in ignored_features, not in both"
            )
        if columns[j].as_text().kind != "text":
            raise TypeError(
                f"text_features must name columns of strings, and {columns[j].label} holds "
                f"{columns[j].contents}{columns[j].example}: astype(str) makes strings of them"
            )
    return vectorizers


def read_pair(columns: list[Column], places: Any) -> tuple[tuple[int, int], np.ndarray]:
    """Return the numbers of the columns of `places`, and the places as vectors (n, 3)."""
    names = [*places] if isinstance(places, tuple | list | np.ndarray) else []
    labels = [column.name for column in columns]
    pair = [_number_of(labels, name, "places") for name in names]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise ValueError(
            f"places must name a column of latitudes and one of longitudes, got {places!r:.80}"
        )
    latitude, longitude = (columns[j] for j in pair)
    for column in (latitude, longitude):
        if column.kind == "ignored":
            raise ValueError(
                f"{column.label} must be in places or in ignored_features, not in both"
            )
        if column.kind not in ("number", "empty"):
            raise ValueError(
                f"places must name columns of numbers, in degrees, and {column.label} holds "
                f"{column.contents}{column.example}"
            )
    vectors = read_places((latitude.name, longitude.name), (latitude.values, longitude.values))
    return (pair[0], pair[1]), vectors


def _number_of(names: list, name: Any, parameter: str) -> int:
    """Return the number of the column that a parameter refers to by name or number."""
    if name in names:
        return names.index(name)
    if is_whole(name, -len(names), len(names) - 1):
        return int(name) % len(names)
    raise ValueError(f"{parameter} must be columns of X, got {name!r}; X has {names!r:.300}")
