"""Scaling of features, and the check before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.storable import storable

LARGEST = 1e300  # a scaled value's size before clipping, so that no square is infinite
SMALLEST = 1e-150  # spread whose square float64 still holds
BOUND = 3.0  # of a clipped value's size
LEAST_BULK = 2.0**-900  # relative to the largest number, so that none becomes infinite

#: A column is skewed if more than this share of its rows, and more than this many, are outliers,
#: and if it has more distinct values than this.
SKEWED_SHARE, SKEWED_ROWS, SKEWED_VALUES = 0.05, 10, 10
QUANTILE_LEVELS = np.linspace(0, 1, 101)  # of the quantiles that describe a skewed column
LEAST_LEVEL = 0.005  # the least value has the normal score of this level


@storable
class SmoothClipScaler(RobustScaler):
    """Centre by the median, scale by the interquartile range, and clip outliers smoothly.

    ``x / sqrt(1 + (x / 3)^2)`` leaves the bulk nearly as it is and bounds the rest by 3, so that
    no single row is far from all others (Holzmueller et al., "Better by Default", section 3).
    A column with equal quartiles, such as a rare category, is scaled by its standard deviation.
    A skewed column, of which more than a twentieth is beyond the bound, first becomes normal
    scores: otherwise, these rows would all be about as far from the rest. Columns of few values,
    and columns with a quarter of the rows at an end, stay. The scaled values are independent of a
    column's unit, however small its numbers are.

    Parameters are those of :class:`sklearn.preprocessing.RobustScaler`.

    Attributes
    ----------
    skewed_ : ndarray of shape (n_skewed,)
        Numbers of the skewed columns.
    quantiles_ : ndarray of shape (101, n_skewed)
        Their quantiles. Each is the mean of two rows' values.
    scores_ : ndarray of shape (101, n_skewed)
        The normal score of each quantile. Equal quantiles have equal scores.
    """

    center_: np.ndarray
    scale_: np.ndarray
    # Without these, in a file of an earlier version, no column is skewed.
    skewed_: np.ndarray = np.empty(0, dtype=np.intp)
    quantiles_: np.ndarray = np.empty((len(QUANTILE_LEVELS), 0))
    scores_: np.ndarray = np.empty((len(QUANTILE_LEVELS), 0))

    def fit(self, X: np.ndarray, y: Any = None) -> SmoothClipScaler:
        """Learn each column's median and scale from `X`, shape (n_samples, n_features)."""
        # A power of two as the unit of a column rounds nothing. Otherwise it would depend on the
        # unit which columns are constant for scikit-learn, and which squares overflow.
        largest = abs(X).max(axis=0)
        bulk = abs(np.percentile(X, self.quantile_range, axis=0)).max(axis=0)
        unit = _next_power_of_two(np.where(bulk > LEAST_BULK * largest, bulk, largest))
        largest = _next_power_of_two(largest)
        super().fit(X / unit)
        lower, upper = np.percentile(X / unit, self.quantile_range, axis=0)
        deviation = StandardScaler().fit(X / largest).scale_ * (largest / unit)
        outliers = (abs(X / unit - self.center_) > BOUND * self.scale_).sum(axis=0)
        self.scale_ = np.where(upper > lower, self.scale_, deviation) * unit
        self.center_ = self.center_ * unit
        skewed = (upper > lower) & (outliers > max(SKEWED_ROWS, SKEWED_SHARE * len(X)))
        # The score of a quarter of the rows at an end, such as zeros among counts, would be far
        # from the next score.
        skewed &= (lower > X.min(axis=0) / unit) & (upper < X.max(axis=0) / unit)
        self._fit_scores(X, unit, np.flatnonzero(skewed))
        return self

    def _fit_scores(self, X: np.ndarray, unit: np.ndarray, skewed: np.ndarray) -> None:
        """Describe skewed columns of more than few values, and scale their normal scores."""
        many = [len(np.unique(column)) > SKEWED_VALUES for column in X[:, skewed].T]
        self.skewed_ = skewed = skewed[many]
        # Means of two rows: the scaler is stored, and must not hold the value of one row.
        ordered = np.sort(X[:, skewed] / unit[skewed], axis=0)
        quantiles = np.quantile(
            (ordered[:-1] + ordered[1:]) / 2, QUANTILE_LEVELS, axis=0, method="lower"
        )
        self.quantiles_ = quantiles * unit[self.skewed_]
        scores = [_normal_scores(column) for column in quantiles.T]
        self.scores_ = np.reshape(scores, (-1, len(QUANTILE_LEVELS))).T
        self.center_[self.skewed_] = 0.0
        self.scale_[self.skewed_] = np.subtract(*ndtri([0.75, 0.25]))

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Check and scale `X`, shape (n_samples, n_features), into (-3, 3)."""
        check_is_fitted(self)
        checked = validate_data(
            self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
        )
        return self.scale(checked)

    def scale(self, X: np.ndarray) -> np.ndarray:
        """Scale a checked array: for one row, the checks take as long as all the rest."""
        if len(self.skewed_):
            X = X.copy()
            for j, *line in zip(self.skewed_, self.quantiles_.T, self.scores_.T, strict=True):
                X[:, j] = np.interp(X[:, j], *line)
        with np.errstate(over="ignore"):
            scaled = (X - self.center_) / self.scale_
        scaled = scaled.clip(-LARGEST, LARGEST)
        return scaled / np.hypot(1, scaled / BOUND)


def _normal_scores(quantiles: np.ndarray) -> np.ndarray:
    """Return the score of each quantile at its level; equal ones are at their mean level."""
    _, which, counts = np.unique(quantiles, return_inverse=True, return_counts=True)
    levels = np.bincount(which, QUANTILE_LEVELS) / counts
    return ndtri(levels[which].clip(LEAST_LEVEL, 1 - LEAST_LEVEL))


def _next_power_of_two(numbers: np.ndarray) -> np.ndarray:
    """Return the next power of two above each number, or 1 for 0."""
    exponent = np.frexp(numbers)[1]
    return np.where(numbers > 0, np.ldexp(1.0, np.minimum(exponent, 1023)), 1.0)


def refuse_tiny_spread(columns: np.ndarray, name: Callable[[int], str]) -> None:
    """Raise if a column of (n, k) is not constant, but its variance would round to 0."""
    spread = np.ptp(columns, axis=0)
    tiny = ((spread > 0) & (spread < SMALLEST)).nonzero()[0]
    if len(tiny):
        raise ValueError(
            f"{name(tiny[0])} holds values that differ by {spread[tiny[0]]:g} at most, too little "
            f"to be squared: choose a unit in which they differ by more than {SMALLEST:g}"
        )
