"""A table as one matrix of numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from .._utils.docs import Documented
from .._utils.snapshots import replaced_when_done
from .._utils.storable import storable, storable_estimator
from .columns import Column, read_columns
from .feature import Feature
from .names import free_name
from .tables import as_array, check_table


@storable_estimator
class TableEncoder(Documented, TransformerMixin, BaseEstimator):
    """Numbers, categories, gaps and dates of a table as one matrix of numbers.

    The estimators encode `X` with it before they scale it, and keep it as ``features_``.

    ==================================  ========================================================
    column                              becomes
    ==================================  ========================================================
    number, truth value, duration       itself (a duration in seconds)
    gaps in these, and in dates         the median, and a column that marks them if there were
                                        gaps in fit
    category                            a column for each level; rare levels share one with those
                                        that were not in fit
    a missing category                  a level
    ordered category                    a column for each level, and its position in the order
    date                                year, days passed, and sine and cosine of the position in
                                        the year, the week and the day, where they differ
    strings that are all dates          dates, if their format is that of ISO 8601, such as
                                        2025-01-31 or 2025-01-31T12:00, and they are not chosen
    ==================================  ========================================================

    Parameters
    ----------
    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Which columns are categories. 'from_dtype': those that hold strings, and a DataFrame's
        categoricals. Otherwise their names, their numbers, or a mask of bool of shape
        (n_features,). None: no column. Other columns of strings are an error.

    max_categories : int, default=64
        Largest number of columns that one category becomes.

    min_frequency : int or float, default=0.01
        Levels of fewer training rows than this, or than this share of them, share one column.
        Otherwise, two rows with the same rare level would be near for that alone.

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
        max_categories: int = 64,
        min_frequency: float = 0.01,
    ):
        self.categorical_features = categorical_features
        self.max_categories = max_categories
        self.min_frequency = min_frequency

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn the columns of a training table.

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

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn the columns of a training table, and encode it, as fit and transform do."""
        self._validate_params()
        with replaced_when_done(self) as fitted:
            return fitted._fit_transform(X)

    def _fit_transform(self, X: Any) -> np.ndarray:
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
        outputs = self._output_names(str(j) for j in range(len(columns)))
        self.source_ = np.array([int(name.partition("_")[0]) for name in outputs])
        self._warn_about_rare_levels(len(columns[0].values))
        return self._encode(blocks)

    def label_of(self, output: int) -> str:
        """Name in messages of the column that a column of the encoded matrix comes from."""
        return self.features_[self.source_[output]].column.label

    def _warn_about_rare_levels(self, n_rows: int) -> None:
        """Warn about columns without information: all of their levels are rare."""
        if "categories" not in self.encoders_ or isinstance(self.min_frequency, Integral):
            return  # a number of rows was chosen for this table
        encoder = self.encoders_["categories"]
        chosen = [feature.column for feature in self.features_ if feature.is_category]
        rare_levels = encoder.infrequent_categories_
        for column, levels, rare in zip(chosen, encoder.categories_, rare_levels, strict=True):
            if rare is not None and len(rare) == len(levels):
                warnings.warn(
                    f"{column.label} holds {len(levels)} categories in {n_rows} rows, none of "
                    "them often enough to learn from. If they are numbers or dates, convert them "
                    "(pandas.to_numeric, pandas.to_datetime), else drop it",
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
            Numbers, float64, without gaps.

        Raises
        ------
        ValueError
            If columns are missing or unknown, or their contents are not those in fit; if numbers
            are infinite.
        """
        check_is_fitted(self)
        return self.transform_validated(check_table(self, X, reset=False))

    def transform_validated(self, X: Any) -> np.ndarray:
        """Encode a table whose columns an estimator has validated, and warned about."""
        time_zones = [feature.column.time_zone for feature in self.features_]
        return self._encode(self._read(list(read_columns(X, time_zones))))

    def _read(self, columns: list[Column]) -> dict[str, np.ndarray]:
        """Make a matrix for each encoder of the columns' values."""
        n_rows = len(columns[0].values)
        numbers, first, categories = [np.empty((n_rows, 0))], [], [np.empty((n_rows, 0), object)]
        for feature, column in zip(self.features_, columns, strict=True):
            if feature.is_category:  # a gap is a level
                categories.append(feature.categories(column)[:, None])
            if feature.is_number:
                numbers.append(feature.numbers(column))
            if not feature.is_category:  # all parts of a date are missing at once
                first.append(numbers[-1][:, :1])
        return {
            "numbers": np.hstack(numbers),
            "gaps": np.hstack([numbers[0], *first]),
            "categories": np.hstack(categories),
        }

    def _encode(self, blocks: dict[str, np.ndarray]) -> np.ndarray:
        complete = not np.isnan(blocks["numbers"]).any()
        encoded = [  # for one row, a transformer's checks take as long as all the rest
            blocks[name] if name == "numbers" and complete else encoder.transform(blocks[name])
            for name, encoder in self.encoders_.items()
        ]
        return np.hstack(encoded).astype(np.float64, copy=False)

    def _output_names(self, names: Iterable[str]) -> list[str]:
        """Name each column of the output, beginning with the name of its source."""
        features = [*zip(names, self.features_, strict=True)]
        numbers = [each for each in features if each[1].is_number]
        outputs = [part for name, feature in numbers for part in feature.names(name)]
        if "gaps" in self.encoders_:
            others = [name for name, feature in features if not feature.is_category]
            outputs += [f"{others[i]}_missing" for i in self.encoders_["gaps"].features_]
        if "categories" in self.encoders_:
            one_hot = [name for name, feature in features if feature.is_category]
            outputs += [*self.encoders_["categories"].get_feature_names_out(one_hot)]
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


@storable
def _name_of_level(name: str, level: Any) -> str:
    return f"{name}_missing" if level is None else f"{name}_{level}"


def _choose_categories(columns: list[Column], chosen: Any) -> list[Column]:
    """Make categories of the columns that the user chose, and refuse other strings."""
    if isinstance(chosen, str):
        return columns
    numbers = _column_numbers(columns, chosen)
    for j, column in enumerate(columns):
        if column.kind == "category" and j not in numbers:
            raise ValueError(
                f"{column.label} holds strings{column.example}, and categorical_features="
                f"{chosen!r:.80} does not name it: name it, use 'from_dtype', or convert it"
            )
    return [column.as_category() if j in numbers else column for j, column in enumerate(columns)]


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
    by_name = {column.name: j for j, column in enumerate(columns)}
    numbers = set()
    for name in names.tolist():
        if name in by_name:
            numbers.add(by_name[name])
        elif isinstance(name, int) and -len(columns) <= name < len(columns):
            numbers.add(name % len(columns))
        else:
            raise ValueError(
                f"categorical_features must be columns of X, got {name!r}; X has "
                f"{[column.name for column in columns]!r:.300}"
            )
    return numbers
