"""Scaling of features before a learned embedding."""

import numpy as np
from sklearn.preprocessing import RobustScaler, StandardScaler

from .._utils.storable import storable

BOUND = 3.0  # no scaled value is farther out
LEAST_BULK = 2.0**-900  # of the largest number, so that none becomes infinite


@storable
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
        # In a unit of its own, which rounds nothing: what scikit-learn takes for a constant
        # otherwise depends on how large the numbers are, and so do squares that leave float64.
        largest = abs(X).max(axis=0)
        bulk = abs(np.percentile(X, [25, 75], axis=0)).max(axis=0)
        unit = _next_power_of_two(np.where(bulk > LEAST_BULK * largest, bulk, largest))
        largest = _next_power_of_two(largest)
        super().fit(X / unit)
        lower, upper = np.percentile(X / unit, [25, 75], axis=0)
        deviation = StandardScaler().fit(X / largest).scale_ * (largest / unit)
        self.scale_ = np.where(upper > lower, self.scale_, deviation) * unit
        self.center_ = self.center_ * unit
        return self

    def transform(self, X):
        """Scale `X`, shape (n_samples, n_features), into (-3, 3)."""
        scaled = super().transform(X)
        return scaled / np.hypot(1, scaled / BOUND)


def _next_power_of_two(numbers):
    """The next power of two above each number, 1 of 0."""
    exponent = np.frexp(numbers)[1]
    return np.where(numbers > 0, np.ldexp(1.0, np.minimum(exponent, 1023)), 1.0)
