"""What fit warns of before it trains: data that are valid, and may not be what is meant."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse

from .columns import Column, read_columns
from .tables import is_frame, names_of_columns, rows_of, select_columns

N_FIRST = 20  # rows that are compared of all columns, before all rows are of some
CALLER_OF_FIT = 5  # the level of the stack


def warn_of_copies(X: Any, y: np.ndarray) -> None:
    """Warn of a column of a validated table that holds the targets, (n,) or (n, n_outputs)."""
    if issparse(X) or not (isinstance(X, np.ndarray) or is_frame(X)):
        return
    outputs = [each for each in y.reshape(len(y), -1).T if (each != each[0]).any()]
    names = None if isinstance(X, np.ndarray) else names_of_columns(X)
    for j, column in enumerate(read_columns(rows_of(X, slice(0, N_FIRST)))):
        alike = [each for each in outputs if _are_equal(column, each[:N_FIRST])]
        if not alike:
            continue
        part = X[:, [j]] if names is None else select_columns(X, [names[j]])
        (whole,) = read_columns(part)
        if any(_are_equal(whole, each) for each in alike):
            warnings.warn(
                f"{column.label} of X equals y. Predictions from it are no predictions: drop the "
                "column, unless it is known before the targets are",
                UserWarning,
                stacklevel=CALLER_OF_FIT,
            )


def _are_equal(column: Column, y: np.ndarray) -> bool:
    if column.kind not in ("number", "category"):
        return False
    values = column.values if column.kind == "number" else column.values.astype(object)
    other = y.astype(np.float64 if column.kind == "number" and y.dtype.kind in "biuf" else object)
    return bool(np.all(values == other))


def warn_of_classes(classes: Sequence[np.ndarray]) -> None:
    """Warn of an output with one class, and of classes in another order than metrics take."""
    for number, labels in enumerate(classes):
        output = f" in output {number}" if len(classes) > 1 else ""
        if len(labels) == 1:
            warnings.warn(
                f"y holds one class only{output}, {labels.tolist()[0]!r:.80}: it is predicted for "
                "every row, with probability 1",
                UserWarning,
                stacklevel=CALLER_OF_FIT,
            )
        if (labels[1:] < labels[:-1]).any():
            warnings.warn(
                f"y is an ordered categorical{output}, so that classes_ and the columns of "
                f"predict_proba are in its order, {labels.tolist()!r:.200}. Metrics that take the "
                "columns of sorted classes, such as scikit-learn's 'neg_log_loss' and 'roc_auc', "
                "are wrong then: give them y.astype(str), in fit as well",
                UserWarning,
                stacklevel=CALLER_OF_FIT,
            )
