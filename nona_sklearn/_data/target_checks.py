"""Checks of targets, whose messages name row and output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets

from .._utils.validation import check_lengths
from .names import labels_of, target_names_of
from .row_values import row_numbers

OF_CLASSES = "y must hold numbers; NONAClassifier and SoftStepKNeighborsClassifier take classes"


OF_NUMBERS = "for numbers use NONARegressor or SoftStepKNeighborsRegressor"


LARGEST, SMALLEST = 1e150, 1e-150  # whose squares float64 still holds


def refuse_none(y: Any) -> None:
    """Refuse no targets at all."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")


def check_targets(y: Any, rows: np.ndarray | None = None, largest: float = np.inf) -> np.ndarray:
    """Validate numbers of shape (n,) or (n, n_outputs).

    Raises
    ------
    ValueError
        If one is NaN, infinite or beyond the `largest`: it names row and output of the first.
    """
    given = row_numbers("y", y)
    if given.ndim == 0:
        raise ValueError(f"y must hold a number for each row, got {given.tolist()!r:.80}")
    if given.dtype.kind in "mM":
        raise ValueError(f"y must hold numbers, got {given.dtype}")
    try:
        values = check_array(
            given,
            ensure_2d=False,
            dtype=np.float64,
            order="C",  # torch has no negative strides
            ensure_all_finite=False,
            input_name="y",
        )
    except (ValueError, TypeError) as error:
        if isinstance(error, ValueError) and "could not convert string" not in str(error):
            raise
        raise ValueError(f"{error}; {OF_CLASSES}") from error
    check_lengths(len(values) if rows is None else len(rows), len(values))
    columns = values.reshape(len(values), -1)
    wrong = ~(np.isfinite(columns) & (np.abs(columns) <= largest))
    if wrong.any():
        value = columns[wrong][0]
        raise ValueError(
            f"Input y contains {_fault(value, largest)}: {value:g} in {place_of(wrong, y, rows)}"
        )
    return values


def place_of(wrong: np.ndarray, y: Any, rows: np.ndarray | None = None) -> str:
    """Describe the place of the first wrong target by the names of its row and output.

    Parameters
    ----------
    wrong : bool ndarray of shape (n, n_outputs)
        Which targets are wrong.
    y : array-like of shape (n,) or (n, n_outputs)
        The targets as they were given: an index, and columns, have names.
    rows : int ndarray of shape (n,), optional
        What numbers the rows have; None: from 0.
    """
    row, output = np.argwhere(wrong)[0].tolist()
    labels, outputs = labels_of(y), target_names_of(y)
    number = row if rows is None else int(rows[row])
    place = f"row {number}"
    if labels is not None and not (isinstance(labels[row], Integral) and labels[row] == number):
        place += f" (index {labels[row]!r})"
    if outputs or wrong.shape[1] > 1:
        place += f" of output {outputs[output] if outputs else output!r}"
    return place


def _fault(value: float, largest: float) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "infinity"
    return f"a value too large to be squared, whose units must make it smaller than {largest:g}"


def refuse_tiny_spread(columns: np.ndarray, name: Callable[[int], str]) -> None:
    """Refuse columns (n, k) that are not constant, but whose variance would round to 0."""
    spread = np.ptp(columns, axis=0)
    tiny = ((spread > 0) & (spread < SMALLEST)).nonzero()[0]
    if len(tiny):
        raise ValueError(
            f"{name(tiny[0])} holds values that differ by {spread[tiny[0]]:g} at most, too little "
            f"to be squared: choose a unit in which they differ by more than {SMALLEST:g}"
        )


def refuse_other_labels(columns: Sequence[np.ndarray], y: Any, rows: np.ndarray | None) -> None:
    """Refuse what are no classes: numbers that are not whole, objects that are no labels."""
    wrong = np.stack([_is_other(column) for column in columns], axis=1)
    if wrong.any():
        label, place = first_of(wrong, columns), place_of(wrong, y, rows)
        column = columns[np.argwhere(wrong)[0, 1]]
        if column.dtype.kind == "f":
            raise ValueError(
                "Unknown label type: continuous. y must hold classes, got "
                f"{label!r} in {place}; {OF_NUMBERS}"
            )
        kinds = ", ".join(sorted({type(each).__name__ for each in column}))
        raise ValueError(
            "y must hold labels of one kind, strings, whole numbers or booleans, got "
            f"{kinds}: {label!r:.80} in {place}; y.astype(str) makes strings of them"
        )
    for column in columns:
        if not _of_bytes(column):  # which can be distinguished, though scikit-learn rejects them
            check_classification_targets(column)


def _is_other(labels: np.ndarray) -> np.ndarray:
    """Which of an output's labels, (n,), are no class."""
    if labels.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # beyond its range, and infinity
            return labels != labels.astype(np.int64)
    if labels.dtype == object and not _of_bytes(labels) and not _of_sequences(labels):
        return np.array([not isinstance(label, str) for label in labels], dtype=bool)
    return np.zeros(len(labels), dtype=bool)


def _of_bytes(labels: np.ndarray) -> bool:
    return all(isinstance(label, bytes) for label in labels)


def _of_sequences(labels: np.ndarray) -> bool:
    """Sets of labels in a form that scikit-learn once had, and has words for."""
    return all(isinstance(label, list | tuple) for label in labels)


def first_of(wrong: np.ndarray, columns: Sequence[np.ndarray]) -> Any:
    """The first wrong label as Python has it."""
    row, output = np.argwhere(wrong)[0]
    return columns[output][[row]].tolist()[0]
