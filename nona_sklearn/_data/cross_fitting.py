"""Features that are made of targets: training rows have those of other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

N_FOLDS = 5
MOST_TARGETS = 16  # outputs, or classes: more would be too many columns


def encode_by_others(
    fit: Callable[[Any, np.ndarray], Callable[[Any], np.ndarray]], X: Any, targets: np.ndarray
) -> np.ndarray:
    """Encode each training row by what is fitted to the rows of the other folds.

    Otherwise its own target would be among its features. Encodings are relative to the mean of
    these folds, which is low where the row's own targets are high.

    Parameters
    ----------
    fit : callable
        Takes rows of `X` and their targets, returns a function that encodes other rows: columns
        of the first target, then of the next, as many of each.
    X : array or sparse matrix of shape (n, n_features)
        Training rows.
    targets : ndarray of shape (n, n_targets)
        Their targets.

    Returns
    -------
    ndarray of shape (n, n_encoded)
        The training rows.
    """
    # The folds are the same for every random_state: others would only add chance.
    folds = KFold(min(N_FOLDS, len(targets)), shuffle=True, random_state=0)
    blocks, order = [], []
    for others, rows in folds.split(targets):
        block = fit(X[others], targets[others])(X[rows]).reshape(len(rows), -1)
        shift = targets.mean(axis=0) - targets[others].mean(axis=0)
        blocks.append(block + np.repeat(shift, block.shape[1] // len(shift)))
        order.append(rows)
    return np.concatenate(blocks)[np.argsort(np.concatenate(order))]


def columns_of_targets(encoded: np.ndarray) -> np.ndarray | None:
    """Columns (n, n_targets) of encoded targets, (n,) or (n, c); None if they are too many.

    The second of two classes is what the first leaves.
    """
    columns = encoded.reshape(len(encoded), -1).astype(np.float64)
    if columns.shape[1] == 2 and (columns.sum(axis=1) == 1).all():
        columns = columns[:, 1:]
    return None if columns.shape[1] > MOST_TARGETS else columns
