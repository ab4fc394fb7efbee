"""Categories as numbers: a column for each frequent level, or mean targets of many levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

from .._utils.arrays import object_array
from .._utils.snapshots import snapshot
from .._utils.storable import storable
from .cross_fitting import encode_by_others

RARE = "infrequent_sklearn"  # in the name of a column, as scikit-learn calls it


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

    @property
    def levels_(self) -> list[list[Any]]:
        """The levels of each category that are stored."""
        return [own.tolist() for own in self.encoders_[0].categories_]

    def with_levels(self, levels: list[list[Any]]) -> LevelEncoder:
        """The same with other levels in the places of stored ones, and the overall mean there."""
        copied = LevelEncoder()
        copied.encoders_ = [snapshot(encoder) for encoder in self.encoders_]
        for encoder in copied.encoders_:
            categories = [object_array(own) for own in levels]
            changed = [a != b for a, b in zip(encoder.categories_, categories, strict=True)]
            encoder.encodings_ = [
                np.where(new, encoder.target_mean_, means)
                for new, means in zip(changed, encoder.encodings_, strict=True)
            ]
            encoder.categories_ = categories
        return copied

    def transform(self, levels: np.ndarray) -> np.ndarray:
        """Encode other rows, by all training rows."""
        return np.hstack([encoder.transform(levels) for encoder in self.encoders_])

    def names(self, names: list[str]) -> list[str]:
        """Names of the columns that categories with these names become."""
        n_targets = len(self.encoders_)
        marks = ["target"] if n_targets == 1 else [f"target{i}" for i in range(n_targets)]
        return [f"{name}_{mark}" for mark in marks for name in names]


@storable
class FrequentLevels:
    """Each frequent level of a category as a column of 0 and 1; all others share one.

    Rare levels are not stored, so that the name of a single row stays in no file. They share a
    column with levels that were not in fit. Without rare levels, these have the mean of each
    column: no training row has 0 in all of them, so that a network would extrapolate.

    Attributes
    ----------
    levels_ : list of list
        The frequent levels of each category, in the order of their columns.
    has_rare_ : list of bool
        Whether each category had rare levels.
    shares_ : list of list of float or None
        Share of the training rows that each of these levels has. None in a file without them: a
        level that was not in fit is 0 in all columns.
    """

    levels_: list[list[Any]]
    has_rare_: list[bool]
    shares_: list[list[float]] | None = None

    def fit(
        self, levels: np.ndarray, max_categories: int, min_frequency: int | float
    ) -> FrequentLevels:
        """Find the frequent levels of training rows, (n, n_categories)."""
        limits = {"max_categories": max_categories, "min_frequency": min_frequency}
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", **limits).fit(levels)
        rare = [() if own is None else {*own} for own in encoder.infrequent_categories_]
        self.levels_ = [
            [level for level in own.tolist() if level not in others]
            for own, others in zip(encoder.categories_, rare, strict=True)
        ]
        self.has_rare_ = [len(others) > 0 for others in rare]
        self.shares_ = [
            [float(np.mean(codes == i)) for i in range(len(own))]
            for own, codes in zip(self.levels_, codes_of(self.levels_, levels).T, strict=True)
        ]
        return self

    def with_levels(self, levels: list[list[Any]]) -> FrequentLevels:
        """The same with other levels in the places of those that are stored."""
        copied = snapshot(self)
        copied.levels_ = levels
        return copied

    def transform(self, levels: np.ndarray) -> np.ndarray:
        """Encode rows, (n, n_categories) -> (n, n_columns)."""
        shares = self.shares_ or [[0.0] * len(own) for own in self.levels_]
        blocks = []
        for own, has_rare, codes in zip(
            shares, self.has_rare_, codes_of(self.levels_, levels).T, strict=True
        ):
            # -1, of others, is the last row.
            rows = np.eye(len(own) + 1) if has_rare else np.vstack([np.eye(len(own)), own])
            blocks.append(rows[codes])
        return np.hstack(blocks)

    def names(self, names: list[str], name_of_level: Callable[[str, Any], str]) -> list[str]:
        """Names of the columns that categories with these names become."""
        return [
            name_of_level(name, level)
            for name, own, has_rare in zip(names, self.levels_, self.has_rare_, strict=True)
            for level in [*own, *([RARE] if has_rare else [])]
        ]


def codes_of(levels: list[list[Any]], values: np.ndarray) -> np.ndarray:
    """Number the values of categories (n, n_categories) by their levels; -1 for others."""
    codes = np.empty(values.shape, dtype=np.int32)
    for j, own in enumerate(levels):
        numbers = {level: i for i, level in enumerate(own)}
        codes[:, j] = [numbers.get(value, -1) for value in values[:, j]]
    return codes
