"""Encoders of categories: one-hot columns of frequent levels, or mean targets of levels.

Mean targets are cross-fitted: a training row is encoded from folds without the row. Otherwise its
target would leak into its features.
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
MOST_TARGETS = 16  # most outputs or classes, which become columns
RARE = "infrequent_sklearn"  # scikit-learn's name of the column of rare levels


def cross_fit(
    fit: Callable[[Any, np.ndarray], Callable[[Any], np.ndarray]], X: Any, targets: np.ndarray
) -> np.ndarray:
    """Return training rows, (n, n_encoded), encoded by functions fitted without their fold.

    ``fit(X, targets)``, with targets (n, n_targets), returns a function that encodes rows, ordered
    by target. The overall mean replaces the mean of the fitted folds, which is low where targets
    of the left-out fold are high.
    """
    # The folds are the same for every random_state, since different folds would only add noise.
    folds = KFold(min(N_FOLDS, len(targets)), shuffle=True, random_state=0)
    blocks, order = [], []
    for train, held_out in folds.split(targets):
        block = fit(X[train], targets[train])(X[held_out]).reshape(len(held_out), -1)
        shift = targets.mean(axis=0) - targets[train].mean(axis=0)
        blocks.append(block + np.repeat(shift, block.shape[1] // len(shift)))
        order.append(held_out)
    return np.concatenate(blocks)[np.argsort(np.concatenate(order))]


def columns_of_targets(encoded: np.ndarray) -> np.ndarray | None:
    """Return encoded targets, (n,) or (n, c), as columns (n, n_targets), or None if too many.

    Two classes become one column, the second class.
    """
    columns = encoded.reshape(len(encoded), -1).astype(np.float64)
    if columns.shape[1] == 2 and (columns.sum(axis=1) == 1).all():
        columns = columns[:, 1:]
    return None if columns.shape[1] > MOST_TARGETS else columns


@storable
class LevelEncoder:
    """Encode a level of a category as its mean target, shrunk towards the overall mean.

    A level that has one training row, or that was not in fit, has the overall mean.
    """

    encoders_: list[TargetEncoder]  # (n_targets,), since scikit-learn's encoder takes one target

    def fit_transform(self, levels: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return cross-fitted training rows, (n, n_targets * n_categories), ordered by target.

        `levels` has shape (n, n_categories), `targets` (n, n_targets).
        """
        self._fit(levels, targets)
        return cross_fit(lambda *train: LevelEncoder()._fit(*train).transform, levels, targets)

    def _fit(self, levels: np.ndarray, targets: np.ndarray) -> LevelEncoder:
        encoder = TargetEncoder(target_type="continuous").set_output(transform="default")
        self.encoders_ = [clone(encoder).fit(levels, column) for column in targets.T]
        return self

    @property
    def levels_(self) -> list[list[Any]]:
        """Return the stored levels of the categories."""
        return [levels.tolist() for levels in self.encoders_[0].categories_]

    def with_levels(self, levels: list[list[Any]]) -> LevelEncoder:
        """Return a copy with the given levels; a replaced level has the overall mean."""
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
        """Return new rows, (n, n_targets * n_categories), encoded from all training rows."""
        return np.hstack([encoder.transform(levels) for encoder in self.encoders_])

    def names(self, names: list[str]) -> list[str]:
        """Return the names of the encoded columns, given the names of the categories."""
        n_targets = len(self.encoders_)
        marks = ["target"] if n_targets == 1 else [f"target{i}" for i in range(n_targets)]
        return [f"{name}_{mark}" for mark in marks for name in names]


@storable
class FrequentLevels:
    """One-hot encode frequent levels of categories; rare and unknown levels share one column.

    Rare levels are not stored, so that a file does not contain the name of a single row. Without
    rare levels, an unknown level has the column means: zeros, which no training row has in all
    columns, would make a network extrapolate.
    """

    levels_: list[list[Any]]  # frequent levels of the categories, in the order of the columns
    has_rare_: list[bool]  # (n_categories,), whether a category had rare levels
    #: Shares of the training rows with the frequent levels. None in an old file: a level that was
    #: not in fit is 0 in all columns.
    shares_: list[list[float]] | None = None

    def fit(
        self, levels: np.ndarray, max_categories: int, min_frequency: int | float
    ) -> FrequentLevels:
        """Store the frequent levels of training rows, (n, n_categories)."""
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
        """Return a copy with the given levels."""
        copied = snapshot(self)
        copied.levels_ = levels
        return copied

    def transform(self, levels: np.ndarray) -> np.ndarray:
        """Return encoded rows, (n, n_columns), of levels (n, n_categories)."""
        shares = self.shares_ or [[0.0] * len(frequent) for frequent in self.levels_]
        columns = codes_of(self.levels_, levels).T
        blocks = []
        for level_shares, has_rare, codes in zip(shares, self.has_rare_, columns, strict=True):
            n_levels = len(level_shares)
            # The last row encodes code -1, a level that is not stored.
            rows = np.eye(n_levels + 1)
            if not has_rare:
                rows = np.vstack([np.eye(n_levels), level_shares])
            blocks.append(rows[codes])
        return np.hstack(blocks)

    def names(self, names: list[str], name_of_level: Callable[[str, Any], str]) -> list[str]:
        """Return the names of the encoded columns, given the names of the categories."""
        return [
            name_of_level(name, level)
            for name, frequent, has_rare in zip(names, self.levels_, self.has_rare_, strict=True)
            for level in [*frequent, *([RARE] if has_rare else [])]
        ]


def codes_of(levels: list[list[Any]], values: np.ndarray) -> np.ndarray:
    """Return codes of values (n, n_categories) in the categories' levels; -1 for no level."""
    codes = np.empty(values.shape, dtype=np.int32)
    for j, category_levels in enumerate(levels):
        code_of = {level: i for i, level in enumerate(category_levels)}
        codes[:, j] = [code_of.get(value, -1) for value in values[:, j]]
    return codes
