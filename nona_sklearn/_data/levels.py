"""Categories as numbers: a column for each frequent level, or the mean target of each level.

Mean targets are cross-fitted: a training row is encoded from the other folds. Otherwise its own
target would be among its features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

from .._utils.arrays import object_array
from .._utils.snapshots import snapshot
from .._utils.storable import storable

N_FOLDS = 5
MOST_TARGETS = 16  # outputs, or classes: more would be too many columns
RARE = "infrequent_sklearn"  # in the name of a column, as scikit-learn calls it


def cross_fit(
    fit: Callable[[Any, np.ndarray], Callable[[Any], np.ndarray]], X: Any, targets: np.ndarray
) -> np.ndarray:
    """Encode each training row by what is fitted to the other folds, (n, n_encoded).

    `fit` takes rows of `X` and of `targets`, (n, n_targets). It returns a function that encodes
    rows as columns of the first target, then as many of the next. Encodings are relative to the
    mean of the folds they come from, which is low where a row's own targets are high.
    """
    # The folds are the same for every random_state: other folds would only add chance.
    folds = KFold(min(N_FOLDS, len(targets)), shuffle=True, random_state=0)
    blocks, order = [], []
    for train, held_out in folds.split(targets):
        block = fit(X[train], targets[train])(X[held_out]).reshape(len(held_out), -1)
        shift = targets.mean(axis=0) - targets[train].mean(axis=0)
        blocks.append(block + np.repeat(shift, block.shape[1] // len(shift)))
        order.append(held_out)
    return np.concatenate(blocks)[np.argsort(np.concatenate(order))]


def columns_of_targets(encoded: np.ndarray) -> np.ndarray | None:
    """Return encoded targets, (n,) or (n, c), as columns to fit, (n, n_targets), unless too many.

    The second of two classes alone is fitted: the first is what it leaves.
    """
    columns = encoded.reshape(len(encoded), -1).astype(np.float64)
    if columns.shape[1] == 2 and (columns.sum(axis=1) == 1).all():
        columns = columns[:, 1:]
    return None if columns.shape[1] > MOST_TARGETS else columns


@storable
class LevelEncoder:
    """Each level of a category as the mean of the targets at it, shrunk to the overall mean.

    A level with one training row has the overall mean, as do levels that were not in fit.
    """

    encoders_: list[TargetEncoder]  # one for each target: scikit-learn's takes one at a time

    def fit_transform(self, levels: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Fit to training rows (n, n_categories), and encode them: (n, n_targets * n_categories).

        The categories are side by side for the first of the targets, (n, n_targets), then for the
        next.
        """
        self._fit(levels, targets)
        return cross_fit(lambda *train: LevelEncoder()._fit(*train).transform, levels, targets)

    def _fit(self, levels: np.ndarray, targets: np.ndarray) -> LevelEncoder:
        encoder = TargetEncoder(target_type="continuous").set_output(transform="default")
        self.encoders_ = [clone(encoder).fit(levels, column) for column in targets.T]
        return self

    @property
    def levels_(self) -> list[list[Any]]:
        """The levels of each category that are stored."""
        return [levels.tolist() for levels in self.encoders_[0].categories_]

    def with_levels(self, levels: list[list[Any]]) -> LevelEncoder:
        """Replace stored levels, and encode a replaced one by the overall mean."""
        copied = LevelEncoder()
        copied.encoders_ = [snapshot(encoder) for encoder in self.encoders_]
        for encoder in copied.encoders_:
            categories = list(map(object_array, levels))
            changed = [a != b for a, b in zip(encoder.categories_, categories, strict=True)]
            encoder.encodings_ = [
                np.where(new, encoder.target_mean_, means)
                for new, means in zip(changed, encoder.encodings_, strict=True)
            ]
            encoder.categories_ = categories
        return copied

    def transform(self, levels: np.ndarray) -> np.ndarray:
        """Encode new rows, by all training rows."""
        return np.hstack([encoder.transform(levels) for encoder in self.encoders_])

    def names(self, names: list[str]) -> list[str]:
        """Name the columns that categories with these names become."""
        n_targets = len(self.encoders_)
        marks = ["target"] if n_targets == 1 else [f"target{i}" for i in range(n_targets)]
        return [f"{name}_{mark}" for mark in marks for name in names]


@storable
class FrequentLevels:
    """Each frequent level of a category as a column of 0 and 1; rare levels share one.

    Rare levels are not stored, so that the name of a single row stays in no file. They share a
    column with levels that were not in fit. Without rare levels, a level that was not in fit has
    the mean of each column: no training row has 0 in all of them, so that a network would
    extrapolate.
    """

    levels_: list[list[Any]]  # the frequent levels of each category, in the order of their columns
    has_rare_: list[bool]  # whether each category had rare levels
    #: Share of the training rows that each of these levels has. None in a file without them: a
    #: level that was not in fit is 0 in all columns.
    shares_: list[list[float]] | None = None

    def fit(
        self, levels: np.ndarray, max_categories: int, min_frequency: int | float
    ) -> FrequentLevels:
        """Find the frequent levels of training rows, (n, n_categories)."""
        encoder = OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=max_categories,
            min_frequency=min_frequency,
        ).fit(levels)
        rare = [() if rare is None else {*rare} for rare in encoder.infrequent_categories_]
        self.levels_ = [
            [level for level in categories.tolist() if level not in rare_levels]
            for categories, rare_levels in zip(encoder.categories_, rare, strict=True)
        ]
        self.has_rare_ = [len(rare_levels) > 0 for rare_levels in rare]
        columns = codes_of(self.levels_, levels).T
        self.shares_ = [
            [float(np.mean(codes == i)) for i in range(len(frequent))]
            for frequent, codes in zip(self.levels_, columns, strict=True)
        ]
        return self

    def with_levels(self, levels: list[list[Any]]) -> FrequentLevels:
        """Replace stored levels."""
        copied = snapshot(self)
        copied.levels_ = levels
        return copied

    def transform(self, levels: np.ndarray) -> np.ndarray:
        """Encode rows, (n, n_categories) -> (n, n_columns)."""
        shares = self.shares_ or [[0.0] * len(frequent) for frequent in self.levels_]
        columns = codes_of(self.levels_, levels).T
        blocks = []
        for level_shares, has_rare, codes in zip(shares, self.has_rare_, columns, strict=True):
            n_levels = len(level_shares)
            # The last row is that of code -1, a level that is not stored.
            rows = np.eye(n_levels + 1)
            if not has_rare:
                rows = np.vstack([np.eye(n_levels), level_shares])
            blocks.append(rows[codes])
        return np.hstack(blocks)

    def names(self, names: list[str], name_of_level: Callable[[str, Any], str]) -> list[str]:
        """Name the columns that categories with these names become."""
        return [
            name_of_level(name, level)
            for name, frequent, has_rare in zip(names, self.levels_, self.has_rare_, strict=True)
            for level in [*frequent, *([RARE] if has_rare else [])]
        ]


def codes_of(levels: list[list[Any]], values: np.ndarray) -> np.ndarray:
    """Return codes of values (n, n_categories) among the levels of each category; -1 if none."""
    codes = np.empty(values.shape, dtype=np.int32)
    for j, category_levels in enumerate(levels):
        code_of = {level: i for i, level in enumerate(category_levels)}
        codes[:, j] = [code_of.get(value, -1) for value in values[:, j]]
    return codes
