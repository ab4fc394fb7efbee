"""Scaling of features, and the check before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.storable import storable

LARGEST = 1e300  # largest scaled value before clipping, so that no square is infinite
SMALLEST = 1e-150  # smallest spread whose square float64 holds
BOUND = 3.0  # bound of clipped values
LEAST_BULK = 2.0**-900  # least scale relative to the largest number, so that none is infinite

#: A column is skewed if more than SKEWED_SHARE of its rows and more than SKEWED_ROWS rows are
#: outliers, and if it has more than SKEWED_VALUES distinct values.
SKEWED_SHARE, SKEWED_ROWS, SKEWED_VALUES = 0.05, 10, 10
QUANTILE_LEVELS = np.linspace(0, 1, 101)  # levels of the stored quantiles of a skewed column
LEAST_LEVEL = 0.005  # the least value has the normal score of this level


@storable
class SmoothClipScaler(RobustScaler):
    """Centre by the median, scale by the interquartile range, and clip outliers smoothly.

    ``x / sqrt(1 + (x / 3)^2)`` leaves the bulk nearly unchanged and bounds outliers by 3, so that
    no row is far from the rest (Holzmueller et al., "Better by Default", section 3). The result is
    independent of the unit.
    """

    # A column with equal quartiles, such as a rare category, is scaled by its standard deviation.
    # A skewed column, with more than a twentieth of the rows beyond the bound, becomes normal
    # scores before clipping: otherwise, the outliers would have almost equal values. A column of
    # few values, or with a quarter of the rows at an end, does not become normal scores.

    center_: np.ndarray
    scale_: np.ndarray
    # The defaults are for files of earlier versions, in which no column is skewed.
    skewed_: np.ndarray = np.empty(0, dtype=np.intp)  # (n_skewed,), numbers of skewed columns
    # (101, n_skewed): quantiles, which are means of two rows' values, and their normal scores.
    quantiles_: np.ndarray = np.empty((len(QUANTILE_LEVELS), 0))
    scores_: np.ndarray = np.empty((len(QUANTILE_LEVELS), 0))

    def fit(self, X: np.ndarray, y: Any = None) -> SmoothClipScaler:
        """Learn medians, scales and skewed columns of `X`, (n_samples, n_features)."""
        # Dividing a column by a power of two is exact. Without the division, the unit would decide
        # which columns scikit-learn treats as constant, and which squares overflow.
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
        # If a quarter of the rows are at an end, such as zeros among counts, their score would be
        # far from the next score.
        skewed &= (lower > X.min(axis=0) / unit) & (upper < X.max(axis=0) / unit)
        self._fit_scores(X, unit, np.flatnonzero(skewed))
        return self

    def _fit_scores(self, X: np.ndarray, unit: np.ndarray, skewed: np.ndarray) -> None:
        """Store quantiles of skewed columns with enough values, and scale their normal scores."""
        many = [len(np.unique(column)) > SKEWED_VALUES for column in X[:, skewed].T]
        self.skewed_ = skewed = skewed[many]
        # A quantile is a mean of two rows, since the stored scaler must not hold one row's value.
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
        """Return `X`, (n_samples, n_features), checked and scaled to (-3, 3)."""
        check_is_fitted(self)
        checked = validate_data(
            self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
        )
        return self.scale(checked)

    def scale(self, X: np.ndarray) -> np.ndarray:
        """Return a checked array scaled; for one row, checks would double the time."""
        if len(self.skewed_):
            X = X.copy()
            for j, *line in zip(self.skewed_, self.quantiles_.T, self.scores_.T, strict=True):
                X[:, j] = np.interp(X[:, j], *line)
        with np.errstate(over="ignore"):
            scaled = (X - self.center_) / self.scale_
        scaled = scaled.clip(-LARGEST, LARGEST)
        return scaled / np.hypot(1, scaled / BOUND)


def _normal_scores(quantiles: np.ndarray) -> np.ndarray:
    """Return normal scores of quantiles; equal quantiles have the score of their mean level."""
    _, which, counts = np.unique(quantiles, return_inverse=True, return_counts=True)
    levels = np.bincount(which, QUANTILE_LEVELS) / counts
    return ndtri(levels[which].clip(LEAST_LEVEL, 1 - LEAST_LEVEL))


def _next_power_of_two(numbers: np.ndarray) -> np.ndarray:
    """Return the next powers of two above numbers, or 1 for 0."""
    exponent = np.frexp(numbers)[1]
    return np.where(numbers > 0, np.ldexp(1.0, np.minimum(exponent, 1023)), 1.0)


def refuse_tiny_spread(columns: np.ndarray, name: Callable[[int], str]) -> None:
    """Raise if a column of (n, k) is not constant but its variance rounds to 0."""
    spread = np.ptp(columns, axis=0)
    tiny = ((spread > 0) & (spread < SMALLEST)).nonzero()[0]
    if len(tiny):
        raise ValueError(
            f"{name(tiny[0])} holds values that differ by {spread[tiny[0]]:g} at most, too little "
            f"to be squared: choose a unit in which they differ by more than {SMALLEST:g}"
        )
