"""Scaling of features before a learned embedding."""

import numpy as np
from sklearn.preprocessing import RobustScaler, StandardScaler

BOUND = 3.0  # no scaled value is farther out
ROUNDING = 10 * np.finfo(float).eps  # of numbers that are all meant to be the same


class SmoothClipScaler(RobustScaler):
    """Centre by the median, scale by the interquartile range, and bend outliers back smoothly.

    ``x / sqrt(1 + (x / 3)^2)`` leaves the bulk nearly as it is and bounds the rest by 3, so that
    no single row is far from all others (Holzmueller et al., "Better by Default", section 3).
    A column with equal quartiles, such as a rare category, is scaled by its standard deviation.
    The unit of a column does not matter, however small its numbers are.

    Parameters are those of :class:`sklearn.preprocessing.RobustScaler`.
    """

    def fit(self, X, y=None):
        """Learn each column's median and scale from `X`, shape (n_samples, n_features)."""
        super().fit(X)
        lower, upper = np.percentile(X, [25, 75], axis=0)
        # RobustScaler takes a spread for none by its size alone; we, beside the numbers' own.
        noise = ROUNDING * np.maximum(abs(lower), abs(upper))
        spread = upper - lower
        self.scale_ = np.where(spread > noise, spread, StandardScaler().fit(X).scale_)
        return self

    def transform(self, X):
        """Scale `X`, shape (n_samples, n_features), into (-3, 3)."""
        scaled = super().transform(X)
        return scaled / np.hypot(1, scaled / BOUND)
