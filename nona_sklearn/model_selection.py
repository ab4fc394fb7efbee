"""Splitters of rows for scikit-learn's cross-validation and searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator, GroupKFold
from sklearn.neighbors import KDTree
from sklearn.utils import check_random_state

from ._data.columns import read_columns
from ._data.table_encoder import read_pair
from ._data.tables import as_dense
from ._utils.globe import block_centers, blocks_of, chord
from ._utils.tables import is_frame
from ._utils.validation import check_integer, is_real

__all__ = ["SpatialKFold"]


class SpatialKFold(BaseCrossValidator):
    """Split rows by spatial blocks, so that scores are those of new places.

    K-means divides the places into compact blocks, and a fold tests some of the blocks. Training
    rows within the buffer of a test row are left out. Where near rows are alike, random folds
    promise more than new places will get.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    places : tuple of two str or int, default=("latitude", "longitude")
        Columns of `X` with the latitude and the longitude in degrees, by name or number. Rows
        without a place are one block.
    n_blocks : int, default=20
        Number of blocks, at least `n_splits`. Blocks should be about as large as the regions
        without rows in which predictions are needed: the error grows with the distance.
    buffer : float, default=0.0
        Distance in metres from a test row within which rows do not train.
    random_state : int, RandomState instance or None, default=None
        Seed of the blocks and of their order.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from nona_sklearn.model_selection import SpatialKFold
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(rng.uniform((40, 5), (50, 15), (200, 2)), columns=["lat", "lon"])
    >>> folds = SpatialKFold(3, places=("lat", "lon"), buffer=50_000, random_state=0)
    >>> [(len(train), len(test)) for train, test in folds.split(X)]
    [(123, 71), (124, 71), (136, 58)]
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        places: Any = ("latitude", "longitude"),
        n_blocks: int = 20,
        buffer: float = 0.0,
        random_state: Any = None,
    ):
        self.n_splits = n_splits
        self.places = places
        self.n_blocks = n_blocks
        self.buffer = buffer
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups : ignored
            For scikit-learn.

        Returns
        -------
        int
            `n_splits`.
        """
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the training and test rows of each fold.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Table with the columns `places`.
        y, groups : ignored
            For scikit-learn.

        Yields
        ------
        train : ndarray of shape (n_train,)
            Row numbers of the training rows.
        test : ndarray of shape (n_test,)
            Row numbers of the test rows.

        Raises
        ------
        ValueError
            If a parameter is invalid, if `X` lacks a column, if degrees are out of range, if
            places are in fewer blocks than folds, or if the buffer leaves no training row.
        """
        check_integer("n_splits", self.n_splits, 2)
        check_integer("n_blocks", self.n_blocks, self.n_splits)
        if not is_real(self.buffer, 0, np.inf):
            raise ValueError(f"buffer must be metres of at least 0, got {self.buffer!r}")
        X = as_dense(X)
        columns = [*read_columns(X if is_frame(X) else np.asarray(X))]
        _, vectors = read_pair(columns, self.places)
        random_state = check_random_state(self.random_state)
        centers = block_centers(vectors, self.n_blocks, random_state)
        blocks = blocks_of(vectors, centers)
        if (n_blocks := len(np.unique(blocks))) < self.n_splits:
            raise ValueError(
                f"places must be in at least n_splits={self.n_splits} blocks, got {n_blocks}"
            )
        folds = GroupKFold(self.n_splits, shuffle=True, random_state=random_state)
        for train, test in folds.split(vectors, groups=blocks):
            train = train[~_are_near(vectors[train], vectors[test], self.buffer)]
            if not len(train):
                raise ValueError(f"buffer={self.buffer} leaves no training row in a fold")
            yield train, test


def _are_near(places: np.ndarray, centers: np.ndarray, metres: float) -> np.ndarray:
    """Return which places (n, 3) are within a distance of one of the centres (m, 3), bool (n,)."""
    near = np.zeros(len(places), dtype=bool)
    known = ~np.isnan(places).any(axis=1)
    centers = centers[~np.isnan(centers).any(axis=1)]
    if metres > 0 and known.any() and len(centers):
        near[known] = KDTree(centers).query(places[known])[0][:, 0] <= chord(metres)
    return near
