"""Categories of many levels, as what the targets are on average at each level."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone
from sklearn.preprocessing import TargetEncoder

from .._utils.storable import storable
from .cross_fitting import encode_by_others


@storable
class LevelEncoder:
    """Each level of a category as the mean of the targets at it, shrunk to the overall mean.

    A training row has the mean of other rows (:mod:`.cross_fitting`). A level with one row has the
    overall mean, as do levels that were not in fit.

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
        return encode_by_others(
            lambda *others: LevelEncoder()._fit(*others).transform, levels, targets
        )

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
