"""Categories of many levels, as what the targets are on average at each level."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from .._utils.storable import storable

MOST_TARGETS = 16  # outputs, or classes: more would be too many columns
N_FOLDS = 5


@storable
class LevelEncoder:
    """Each level of a category as the mean of the targets at it, shrunk to the overall mean.

    A training row has the mean of other rows, those of other folds: otherwise its own target
    would be among its features. It is relative to the mean of these folds, so that a level with
    one row has the overall mean, as do levels that were not in fit.

    Attributes
    ----------
    encoders_ : list of TargetEncoder
        One for each target: scikit-learn's takes one at a time.
    """

    encoders_: list[TargetEncoder]

    def fit_transform(self, levels: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Encode training rows, (n, n_categories), by targets (n, n_targets).

        Returns
        -------
        ndarray of shape (n, n_targets * n_categories)
            The categories side by side for the first target, then for the next.
        """
        self._fit(levels, targets)
        # The folds are the same for every random_state: others would only add chance.
        folds = KFold(min(N_FOLDS, len(levels)), shuffle=True, random_state=0)
        encoded = np.empty((len(levels), targets.shape[1] * levels.shape[1]))
        means, n_categories = targets.mean(axis=0), levels.shape[1]
        for others, rows in folds.split(levels):
            of_others = LevelEncoder()._fit(levels[others], targets[others])
            # The mean of the other folds is low where the row's own targets are high.
            shift = np.repeat(means - targets[others].mean(axis=0), n_categories)
            encoded[rows] = of_others.transform(levels[rows]) + shift
        return encoded

    def _fit(self, levels: np.ndarray, targets: np.ndarray) -> LevelEncoder:
        encoder = TargetEncoder(target_type="continuous").set_output(transform="default")
        self.encoders_ = [clone(encoder).fit(levels, column) for column in targets.T]
        return self

    def transform(self, levels: np.ndarray) -> np.ndarray:
        """Encode other rows, by all training rows."""
        return np.hstack([encoder.transform(levels) for encoder in self.encoders_])

    def names(self, names: list[str]) -> list[str]:
        """Names of the columns that categories with these names become."""
        n_targets = len(self.encoders_)
        marks = ["target"] if n_targets == 1 else [f"target{i}" for i in range(n_targets)]
        return [f"{name}_{mark}" for mark in marks for name in names]


def targets_for_levels(encoded: np.ndarray) -> np.ndarray | None:
    """Columns (n, n_targets) of encoded targets, (n,) or (n, c); None if they are too many.

    The second of two classes is what the first leaves.
    """
    columns = encoded.reshape(len(encoded), -1).astype(np.float64)
    if columns.shape[1] == 2 and (columns.sum(axis=1) == 1).all():
        columns = columns[:, 1:]
    return None if columns.shape[1] > MOST_TARGETS else columns
