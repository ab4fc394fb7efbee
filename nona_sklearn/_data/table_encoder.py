"""A table as one matrix of numbers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from .._utils.docs import Documented
from .._utils.snapshots import replaced_when_done, snapshot
from .._utils.storable import storable, storable_estimator
from .._utils.validation import is_whole
from .columns import SHOWN, Column, read_columns
from .feature import Feature
from .forms import describe_reading, has_two_readings, read_strings, unreadable_in
from .levels import FrequentLevels, LevelEncoder, codes_of
from .names import free_name
from .row_values import as_array
from .tables import as_dense, check_table, names_of_columns, select_columns
from .text import check_vectorizer, default_vectorizer

MOST_NAMED = 5  # columns in a warning
#: Of more categories than a few, the largest share of rows whose category no other row has.
FEW, MOST_ALONE = 20, 0.5
FORGOTTEN = "forgotten level {}"  # in the place of a level that no row has any more


@storable_estimator()
class TableEncoder(Documented, TransformerMixin, BaseEstimator):
    """Encode numbers, categories, missing values and dates of a table as a matrix of numbers.

    The estimators encode `X` with it before scaling, and store it as ``features_``.

    ==================================  ========================================================
    column                              encoding
    ==================================  ========================================================
    number, boolean, duration           itself (a duration in seconds)
    missing values in these and dates   the median, and an indicator column if values were missing
                                        in fit
    category                            a column for each level; rare levels share one with those
                                        that were not in fit. Without rare levels, these have the
                                        mean of each column, the share of its level
    category of more than               within an estimator, the mean target of each level (of
    `max_categories` levels             training rows, that of other rows), except with groups or
                                        times; else as above
    a missing category                  a level
    ordered category                    a column for each level, and its position in the order
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
    text (`text_features`)              the result of a vectoriser, reduced to 30 columns if it
                                        is sparse; a missing value is an empty text
    ==================================  ========================================================

    Parameters
    ----------
    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Which columns are categories. 'from_dtype': columns of strings, and a DataFrame's
        categoricals. Otherwise their names, their numbers, or a boolean mask of shape
        (n_features,). None: no column. Other columns of strings are an error.

    text_features : str, int, list, dict or None, default=None
        Columns of texts, by name or number. A dict gives for each a transformer of scikit-learn
        for a list of str, such as ``TfidfVectorizer()``, which fit copies, or a function
        from a list of str to an array of shape (n, d), such as an embedding model. Sparse
        results are reduced by :class:`~sklearn.decomposition.TruncatedSVD` to 30 columns at most.
        The default vectoriser is TF-IDF of n-grams of 3 and 4 characters. None: no column.

    max_categories : int, default=64
        Largest number of columns that a category is encoded as. Within an estimator, a category
        of more levels is encoded by the mean target of each level.

    min_frequency : int or float, default=0.01
        Levels of fewer training rows than this, or than this share of them, share one column.
        Otherwise, two rows with the same rare level would be near for that reason alone.

    Attributes
    ----------
    features_ : list of Feature
        What fit learned about each column.

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
        "text_features": [str, Integral, dict, "array-like", None],
        "max_categories": [Interval(Integral, 1, None, closed="left")],
        "min_frequency": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
    }

    def __init__(
        self,
        categorical_features: Any = "from_dtype",
        *,
        text_features: Any = None,
        max_categories: int = 64,
        min_frequency: float = 0.01,
    ):
        self.categorical_features = categorical_features
        self.text_features = text_features
        self.max_categories = max_categories
        self.min_frequency = min_frequency

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
            If a column holds anything but numbers, categories, dates or durations, if
            `categorical_features` names dates, if `text_features` names columns of other than
            strings, or if `X` is a LazyFrame.
        ValueError
            If `categorical_features` or `text_features` names no column, both name the same one,
            or a column holds infinity.

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
        """Learn the columns of a training table, and encode it.

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
            As :meth:`fit`.

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
            return fitted.fit_transform_by(X, None)

    def fit_transform_by(self, X: Any, targets: np.ndarray | None) -> np.ndarray:
        """Learn the columns of a training table, and encode it, many levels by targets (n, c)."""
        X = check_table(self, X, reset=True)
        columns = list(read_columns(X))
        vectorizers = _choose_vectorizers(columns, self.text_features)
        columns = [
            column.as_text() if j in vectorizers else read_strings(column)
            for j, column in enumerate(columns)
        ]
        columns = _choose_categories(columns, self.categorical_features)
        _warn_about_strings(columns)
        self.features_ = [
            Feature.of(column, vectorizers.get(j)) for j, column in enumerate(columns)
        ]
        if targets is not None:
            self._mark_many_levels(columns)
        blocks = self._read(columns)
        encoders = {
            "numbers": SimpleImputer(strategy="median", keep_empty_features=True),
            "gaps": MissingIndicator(error_on_new=False),
        }
        self.encoders_: dict[str, Any] = {
            name: encoder.set_output(transform="default").fit(blocks[name])
            for name, encoder in encoders.items()
            if blocks[name].shape[1] > 0
        }
        if blocks["categories"].shape[1] > 0:
            limits = self.max_categories, self.min_frequency
            self.encoders_["categories"] = FrequentLevels().fit(blocks["categories"], *limits)
        of_levels = None
        if blocks["levels"].shape[1] > 0:
            assert targets is not None
            self.encoders_["levels"] = LevelEncoder()
            of_levels = self.encoders_["levels"].fit_transform(blocks["levels"], targets)
        if "gaps" in self.encoders_ and len(self.encoders_["gaps"].features_) == 0:
            del self.encoders_["gaps"]
        outputs = self._output_names(str(j) for j in range(len(columns)))
        self.source_ = np.array([int(name.partition("_")[0]) for name in outputs])
        self._warn_about_rare_levels(columns)
        return self._encode(blocks, of_levels)

    def _mark_many_levels(self, columns: list[Column]) -> None:
        """Mark categories of more levels than may be columns; those that never repeat stay."""
        for j, column in enumerate(columns):
            n_levels = len(set(column.values)) if column.kind == "category" else 0
            if self.max_categories < n_levels < len(column.values):
                self.features_[j] = replace(self.features_[j], by_targets=True)

    def label_of(self, output: int) -> str:
        """Name in messages of the column that a column of the encoded matrix comes from."""
        return self.features_[self.source_[output]].column.label

    def _warn_about_rare_levels(self, columns: list[Column]) -> None:
        """Warn about columns whose levels are all rare, or of which most rows have their own."""
        if isinstance(self.min_frequency, Integral):
            return  # a number of rows was chosen for this table
        for feature, column in zip(self.features_, columns, strict=True):
            if not feature.is_category:
                continue
            n_rows, counts = len(column.values), np.array([*Counter(column.values).values()])
            rare = feature.is_one_hot and counts.max() < self.min_frequency * n_rows
            alone = len(counts) > FEW and np.count_nonzero(counts == 1) > MOST_ALONE * n_rows
            if rare or alone:
                often = "none of them often enough" if rare else "most of them once, too rarely"
                warnings.warn(
                    f"{column.label} holds {len(counts)} categories in {n_rows} rows, {often} to "
                    "learn from. If they are texts, name the column in text_features; if numbers "
                    "or dates, convert them (pandas.to_numeric, pandas.to_datetime); else drop "
                    "it, or encode it first with other limits, by TableEncoder("
                    "min_frequency=..., max_categories=...)",
                    stacklevel=2,
                )

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
            If columns are missing or unknown, if their kinds are not those in fit, or if numbers
            are infinite.

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
        return self.transform_validated(check_table(self, X, reset=False))

    def transform_validated(self, X: Any) -> np.ndarray:
        """Encode a table whose columns an estimator has validated, and warned about."""
        return self.transform_columns(self.read_validated(X))

    def read_validated(self, X: Any) -> list[Column]:
        """Read the columns of a validated table, dates in the time zones of fit."""
        time_zones = [feature.column.time_zone for feature in self.features_]
        return list(read_columns(as_dense(X), time_zones))

    def transform_columns(self, columns: list[Column]) -> np.ndarray:
        """Encode the columns of other rows."""
        return self._encode(self._read(columns))

    # -- levels that are stored -------------------------------------------------------------

    @property
    def categories(self) -> list[int]:
        """Numbers of the columns of categories whose levels are known by row."""
        if not isinstance(self.encoders_.get("categories"), FrequentLevels | None):
            return []  # of a file of version 0.2.0
        return [j for j, feature in enumerate(self.features_) if feature.is_category]

    @property
    def category_names(self) -> list[Any]:
        """Names of the columns of categories whose levels are known by row."""
        return [self.features_[j].column.name for j in self.categories]

    def _stored(self) -> list[tuple[int, str, list[Any]]]:
        """The column of each category, by its number, its encoder and the levels in this."""
        one_hot = {j: self.features_[j].is_one_hot for j in self.categories}
        names = {j: "categories" if each else "levels" for j, each in one_hot.items()}
        levels = {name: iter(self.encoders_[name].levels_) for name in {*names.values()}}
        return [(j, name, next(levels[name])) for j, name in names.items()]

    def stored_levels(self) -> list[list[Any]]:
        """The levels of each category that are stored, in some place."""
        return [list(self.features_[j].column.levels or own) for j, _, own in self._stored()]

    def level_codes(self, X: Any) -> np.ndarray | None:
        """Which stored level each row has, int32 (n, n_categories); -1: none. Or None."""
        values = self._read_categories(X)
        return None if values is None else codes_of(self.stored_levels(), values)

    def unknown_levels(self, X: Any) -> np.ndarray | None:
        """Which categories of rows have a level of which fit learned nothing, bool; or None.

        Of shape (n, n_categories): rare levels are among them.
        """
        values = self._read_categories(X)
        if values is None:
            return None
        unknown = [self.are_unknown(j, values[:, i]) for i, j in enumerate(self.categories)]
        return np.stack(unknown, axis=1)

    def are_unknown(self, j: int, values: np.ndarray) -> np.ndarray:
        """The same for levels (n,) of the category in column j."""
        own = next(levels for i, _, levels in self._stored() if i == j)
        return codes_of([own], values[:, None])[:, 0] < 0

    def _read_categories(self, X: Any) -> np.ndarray | None:
        """The levels of rows, (n, n_categories); None, if they are not known by row."""
        chosen = self.categories
        if not chosen:
            return None
        features = [self.features_[j] for j in chosen]
        zones = [feature.column.time_zone for feature in features]
        X = as_dense(X)
        names = None if isinstance(X, np.ndarray) else names_of_columns(X)
        part = X[:, chosen] if names is None else select_columns(X, [names[j] for j in chosen])
        columns = [
            feature.categories(column)
            for feature, column in zip(features, read_columns(part, zones), strict=True)
        ]
        return np.stack(columns, axis=1)

    def without_levels(self, gone: list[set[int]]) -> TableEncoder:
        """The same without the strings of some levels, by their codes, of each category.

        Their columns remain, and later rows with such a level are as with one that was not in
        fit.
        """
        copied = snapshot(self)
        copied.features_, copied.encoders_ = [*self.features_], dict(self.encoders_)
        left: dict[str, list[list[Any]]] = {}  # of each encoder
        for (j, name, own), levels, codes in zip(
            self._stored(), self.stored_levels(), gone, strict=True
        ):
            forgotten = {levels[code]: FORGOTTEN.format(code) for code in codes}
            left.setdefault(name, []).append([forgotten.get(level, level) for level in own])
            feature = self.features_[j]
            if feature.column.levels is not None:
                order = tuple(forgotten.get(level, level) for level in feature.column.levels)
                column = replace(feature.column, levels=order)
                copied.features_[j] = replace(feature, column=column)
        for name, each in left.items():
            copied.encoders_[name] = self.encoders_[name].with_levels(each)
        return copied

    def _read(self, columns: list[Column]) -> dict[str, np.ndarray]:
        """Make a matrix for each encoder of the columns' values."""
        n_rows = len(columns[0].values)
        numbers, first, categories = [np.empty((n_rows, 0))], [], [np.empty((n_rows, 0), object)]
        texts, levels = [numbers[0]], [categories[0]]
        for feature, column in zip(self.features_, columns, strict=True):
            if feature.is_category:  # a gap is a level
                chosen = categories if feature.is_one_hot else levels
                chosen.append(feature.categories(column)[:, None])
            if feature.is_number:
                numbers.append(feature.numbers(column))
            if feature.is_text:
                texts.append(feature.texts(column))
            if feature.marks_gaps:  # all parts of a date are missing at once
                first.append(numbers[-1][:, :1])
        return {
            "numbers": np.hstack(numbers),
            "gaps": np.hstack([numbers[0], *first]),
            "categories": np.hstack(categories),
            "levels": np.hstack(levels),
            "texts": np.hstack(texts),
        }

    def _encode(
        self, blocks: dict[str, np.ndarray], of_levels: np.ndarray | None = None
    ) -> np.ndarray:
        """Join what the blocks become; `of_levels`, if the levels' of training rows are known."""
        complete = not np.isnan(blocks["numbers"]).any()
        known = {"numbers": blocks["numbers"]} if complete else {}
        known |= {} if of_levels is None else {"levels": of_levels}
        encoded = [  # for one row, a transformer's checks take as long as all the rest
            known[name] if name in known else encoder.transform(blocks[name])
            for name, encoder in self.encoders_.items()
        ]
        return np.hstack([*encoded, blocks["texts"]]).astype(np.float64, copy=False)

    def _output_names(self, names: Iterable[str]) -> list[str]:
        """Name each column of the output, beginning with the name of its source."""
        features = [*zip(names, self.features_, strict=True)]
        numbers = [each for each in features if each[1].is_number]
        outputs = [part for name, feature in numbers for part in feature.names(name)]
        if "gaps" in self.encoders_:
            others = [name for name, feature in features if feature.marks_gaps]
            outputs += [f"{others[i]}_missing" for i in self.encoders_["gaps"].features_]
        if "categories" in self.encoders_:
            one_hot = [name for name, feature in features if feature.is_one_hot]
            outputs += self.encoders_["categories"].names(one_hot, _name_of_level)
        if "levels" in self.encoders_:
            many = [name for name, feature in features if feature.by_targets]
            outputs += self.encoders_["levels"].names(many)
        texts = [each for each in features if each[1].is_text]
        outputs += [part for name, feature in texts for part in feature.names_of_texts(name)]
        return outputs

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of the output.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns of the input, if they had none in fit.

        Returns
        -------
        ndarray of str of shape (n_features_out,)
            The name of a column, followed by the level, the part of a date or "missing".

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
        unique: dict[str, None] = {}  # in their order
        for name in self._output_names(names):  # a level may be called "missing"
            unique[free_name(name, unique, mark="_")] = None
        return np.array([*unique], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _warn_about_strings(columns: list[Column]) -> None:
    """Warn about columns of strings that were read, might have been, or have two readings.

    Once about each of the three; never about columns that the user chose as categories.
    """
    either = [column for column in columns if has_two_readings(column)]
    if either:
        warnings.warn(
            f"Day and month may be either in dates as strings, which stay categories: "
            f"{_listed([f'{column.label}{column.example}' for column in either])}. Convert them "
            "by pandas.to_datetime(..., dayfirst=True) or dayfirst=False",
            stacklevel=2,
        )
    unreadable = [(column, unreadable_in(column)) for column in columns]
    if found := [f"{each.label} holds {text!r:.{SHOWN}}" for each, text in unreadable if text]:
        warnings.warn(
            "Columns stay categories where nearly all strings are numbers or dates: "
            f"{_listed(found)}. Correct such values or replace them by None, or name a column in "
            "categorical_features to keep it a category",
            stacklevel=2,
        )
    if read := [column for column in columns if column.form is not None]:
        converters = " or ".join(dict.fromkeys(column.form.converter for column in read))
        warnings.warn(
            "Strings were read: "
            f"{_listed([f'{column.label} {describe_reading(column)}' for column in read])}. "
            f"Convert them beforehand ({converters}) to choose how, or name a column in "
            "categorical_features to keep it a category",
            stacklevel=2,
        )


def _listed(parts: list[str]) -> str:
    """Descriptions of columns in a message, the first ones of many."""
    n_more = len(parts) - MOST_NAMED
    return "; ".join(parts[:MOST_NAMED]) + (f"; and {n_more} more columns" if n_more > 0 else "")


@storable
def _name_of_level(name: str, level: Any) -> str:
    return f"{name}_missing" if level is None else f"{name}_{level}"


def _choose_categories(columns: list[Column], chosen: Any) -> list[Column]:
    """Make categories of the columns that the user chose, and refuse other strings."""
    if isinstance(chosen, str):
        return columns
    numbers = _column_numbers(columns, chosen)
    for j, column in enumerate(columns):
        if column.kind == "text" and j in numbers:
            raise ValueError(
                f"{column.label} must be in categorical_features or in text_features, not in both"
            )
        if column.kind == "category" and j not in numbers:
            raise ValueError(
                f"{column.label} holds strings{column.example}, and categorical_features="
                f"{chosen!r:.80} does not name it: name it, use 'from_dtype', or convert it"
            )
    return [column.as_category() if j in numbers else column for j, column in enumerate(columns)]


def _choose_vectorizers(columns: list[Column], chosen: Any) -> dict[int, Any]:
    """The vectoriser of each column that `text_features` names, by its number."""
    if chosen is None:
        return {}
    names = [chosen] if isinstance(chosen, str | Integral) else list(chosen)
    if any(isinstance(name, bool | np.bool_) for name in names):
        raise ValueError(f"text_features must name columns, got a mask: {chosen!r:.80}")
    numbers = [_number_of(columns, name, "text_features") for name in names]
    given = chosen.values() if isinstance(chosen, dict) else [default_vectorizer() for _ in names]
    vectorizers = dict(zip(numbers, given, strict=True))
    for j, vectorizer in vectorizers.items():
        check_vectorizer(vectorizer, columns[j].label)
        if columns[j].as_text().kind != "text":
            raise TypeError(
                f"text_features must name columns of strings, and {columns[j].label} holds "
                f"{columns[j].contents}{columns[j].example}: astype(str) makes strings of them"
            )
    return vectorizers


def _column_numbers(columns: list[Column], chosen: Any) -> set[int]:
    """Numbers of the columns that `categorical_features` lists by name or number, or marks."""
    names = as_array([] if chosen is None else chosen)
    if names.ndim != 1:
        raise ValueError(f"categorical_features must be a list of columns, got {chosen!r:.80}")
    if names.dtype.kind == "b":
        if len(names) != len(columns):
            raise ValueError(
                f"categorical_features must mark each of {len(columns)} columns, got a mask of "
                f"shape {names.shape}"
            )
        return set(np.flatnonzero(names).tolist())
    return {_number_of(columns, name, "categorical_features") for name in names.tolist()}


def _number_of(columns: list[Column], name: Any, parameter: str) -> int:
    """Number of the column that a parameter names by its name or number."""
    for j, column in enumerate(columns):
        if column.name == name:
            return j
    if is_whole(name, -len(columns), len(columns) - 1):
        return int(name) % len(columns)
    raise ValueError(
        f"{parameter} must be columns of X, got {name!r}; X has "
        f"{[column.name for column in columns]!r:.300}"
    )
