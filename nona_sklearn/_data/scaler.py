"""Scaling of features before a learned embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.storable import storable

LARGEST = 1e300  # so that no square root of its square is infinite
BOUND = 3.0  # of a scaled value's size
LEAST_BULK = 2.0**-900  # relative to the largest number, so that none becomes infinite

#: A column is skewed if more than this share of its rows, and more than this many, are outliers,
#: and if it has more values than these.
SKEWED_SHARE, SKEWED_ROWS, SKEWED_VALUES = 0.05, 10, 10
LEVELS = np.linspace(0, 1, 101)  # of the quantiles that describe a skewed column
LEAST_LEVEL = 0.005  # whose normal score stands for the least value


@storable
class SmoothClipScaler(RobustScaler):
    """Centre by the median, scale by the interquartile range, and clip outliers smoothly.

    ``x / sqrt(1 + (x / 3)^2)`` leaves the bulk nearly as it is and bounds the rest by 3, so that
    no single row is far from all others (Holzmueller et al., "Better by Default", section 3).
    A column with equal quartiles, such as a rare category, is scaled by its standard deviation.
    A skewed column, of which more than a twentieth is beyond the bound, first becomes normal
    scores: otherwise, those rows would all be about as far from the others. Columns of few values,
    and those with a quarter of the rows at an end, stay. The scaled values are independent of a
    column's unit, however small its numbers are.

    Parameters are those of :class:`sklearn.preprocessing.RobustScaler`.

    Attributes
    ----------
    skewed_ : ndarray of shape (n_skewed,)
        Numbers of the skewed columns.
    quantiles_, scores_ : ndarray of shape (101, n_skewed)
        Their quantiles, each the mean of two rows' values, and the normal score of each. Those of
        equal quantiles are equal.
    """

    center_: np.ndarray
    scale_: np.ndarray
    # Of a file without them, no column is skewed.
    skewed_: np.ndarray = np.empty(0, dtype=np.intp)
    quantiles_: np.ndarray = np.empty((len(LEVELS), 0))
    scores_: np.ndarray = np.empty((len(LEVELS), 0))

    def fit(self, X: np.ndarray, y: Any = None) -> SmoothClipScaler:
        """Learn each column's median and scale from `X`, shape (n_samples, n_features)."""
        # Each column in a unit that is a power of two, which rounds nothing. Otherwise, which
        # columns are constant for scikit-learn, and which squares overflow, depends on the unit.
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
        # A quarter at an end, such as zeros among counts: their score would be far from the next.
        skewed &= (lower > X.min(axis=0) / unit) & (upper < X.max(axis=0) / unit)
        self._fit_scores(X, unit, np.flatnonzero(skewed))
        return self

    def _fit_scores(self, X: np.ndarray, unit: np.ndarray, skewed: np.ndarray) -> None:
        """Describe skewed columns, but those of few values, and scale their normal scores."""
        many = [len(np.unique(column)) > SKEWED_VALUES for column in X[:, skewed].T]
        self.skewed_ = skewed = skewed[many]
        # Means of two rows: a scaler, which is stored, shall not hold the value of one.
        ordered = np.sort(X[:, skewed] / unit[skewed], axis=0)
        quantiles = np.quantile((ordered[:-1] + ordered[1:]) / 2, LEVELS, axis=0, method="lower")
        self.quantiles_ = quantiles * unit[self.skewed_]
        scores = [_normal_scores(column) for column in quantiles.T]
        self.scores_ = np.reshape(scores, (-1, len(LEVELS))).T
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
    """Score of each quantile at its level, or of equal ones at the mean of their levels."""
    _, which, counts = np.unique(quantiles, return_inverse=True, return_counts=True)
    levels = np.bincount(which, LEVELS) / counts
    return ndtri(levels[which].clip(LEAST_LEVEL, 1 - LEAST_LEVEL))


def _next_power_of_two(numbers: np.ndarray) -> np.ndarray:
    """The next power of two above each number, 1 for 0."""
    exponent = np.frexp(numbers)[1]
    return np.where(numbers > 0, np.ldexp(1.0, np.minimum(exponent, 1023)), 1.0)
