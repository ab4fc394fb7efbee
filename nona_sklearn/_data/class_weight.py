"""Class weights: by how much a row counts more for its class."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor

from .._utils.validation import is_missing
from .class_targets import ClassTargets, label_columns

Factors = dict[Hashable, float]  # of the classes of an output


def find_factors(
    class_weight: Any, y: np.ndarray, weights: np.ndarray, names: Sequence[str] | None
) -> list[Factors]:
    """Factors of the weights of rows by their classes, for each output.

    Parameters
    ----------
    class_weight : dict, list of dict or 'balanced'
        As classifiers take it.
    y : ndarray of shape (n,) or (n, n_outputs)
        Labels.
    weights : ndarray of shape (n,)
        What the rows weigh without it.
    names : sequence of str, optional
        What the outputs are called.

    Raises
    ------
    ValueError
        If there is not a dict for each output, a weight is no finite number from 0 on, or one is
        for a label that `y` has not while some class has none.
    """
    columns = label_columns(y)
    if isinstance(class_weight, str):
        return [balancing(column, weights) for column in columns]
    dicts = _list_dicts(class_weight, len(columns))
    ends = [""]
    if len(columns) > 1:
        ends = [f" of output {name!r}" for name in names or range(len(columns))]
    return [
        _given(each, np.unique(labels), end)
        for each, labels, end in zip(dicts, columns, ends, strict=True)
    ]


def _list_dicts(class_weight: Any, n_outputs: int) -> list[Mapping]:
    """The weights of the classes of each output."""
    dicts = class_weight if n_outputs > 1 else [class_weight]
    mappings = isinstance(dicts, list) and all(isinstance(each, Mapping) for each in dicts)
    if not mappings or len(dicts) != n_outputs:
        wanted = f"a list of {n_outputs} dicts, one for each output" if n_outputs > 1 else "a dict"
        raise ValueError(
            f"class_weight must be None, 'balanced' as a whole or {wanted}, "
            f"got {class_weight!r:.100}"
        )
    return dicts


def balancing(labels: np.ndarray, weights: np.ndarray) -> Factors:
    """Factors of rows' weights (n,) by which the classes of an output weigh the same.

    scikit-learn's include rows of weight 0.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    # In units of the largest, so that no sum is beyond the range of numbers.
    weight = np.bincount(codes, weights / (weights.max() or 1.0), len(classes))
    mean = weight.sum() / max(1, np.count_nonzero(weight))
    factors = np.divide(mean, weight, out=np.zeros_like(weight), where=weight > 0)
    return dict(zip(classes, factors.tolist(), strict=True))


def _given(weights: Mapping, classes: np.ndarray, end: str) -> Factors:
    """Check the weights of the classes of an output; those without one count 1."""
    for label, weight in weights.items():
        if is_missing(label):
            raise ValueError(f"class_weight must be for classes, got a missing label{end}")
        if not (isinstance(weight, Real) and 0 <= float(weight) < np.inf):
            raise ValueError(
                "class_weight must be finite and not negative, got "
                f"{_python(weight)!r} for class {_python(label)!r}{end}"
            )
    factors = {label: float(weights.get(label, 1.0)) for label in classes}
    unknown = [label for label in weights if label not in factors]
    # As in scikit-learn, others than y's may have a weight where all of y's have one.
    if unknown and any(label not in weights for label in classes):
        raise ValueError(
            f"class_weight must be for the classes of y, {classes.tolist()!r:.200}, got "
            f"{_python(unknown[0])!r}{end}"
        )
    return factors


def _python(value: Any) -> Any:
    """A value of numpy's as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def weigh_classes(factors: list[Factors], y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Multiply weights of rows, (n,), by the factors of their classes.

    Raises
    ------
    ValueError
        As :func:`times`, or if fewer than two rows are left that count.
    """
    pairs = zip(factors, label_columns(y), strict=True)
    weighed = times(weights, [_look_up(*pair) for pair in pairs])
    n_left = np.count_nonzero(weighed)
    if n_left < 2 <= np.count_nonzero(weights):
        raise ValueError(
            f"class_weight must be above zero for at least 2 rows, got {n_left} of {len(y)}"
        )
    return weighed


def _look_up(factors: Factors, labels: np.ndarray) -> np.ndarray:
    """Factors of an output's rows, (n,)."""
    classes, codes = np.unique(labels, return_inverse=True)
    return np.array([factors[label] for label in classes])[codes]


def times(sample_weight: np.ndarray, each: Sequence[np.ndarray]) -> np.ndarray:
    """Multiply weights of rows by factors of their classes in each output, (n,).

    Raises
    ------
    ValueError
        If float64 does not hold a product: it is infinite, or 0 though its factors are not.
    """
    with np.errstate(all="ignore"):  # looked at
        factors = np.prod(each, axis=0)
        product = sample_weight * factors
    lost = (product == 0) != ((sample_weight == 0) | (factors == 0))
    wrong = np.flatnonzero(lost | ~np.isfinite(product))
    if len(wrong):
        row = wrong[0]
        raise ValueError(
            "sample_weight times class_weight must be a number that float64 holds, got "
            f"{sample_weight[row]:g} times {factors[row]:g} in row {row}"
        )
    return product


def weights_of_classes(factors: list[Factors] | None, classes: Sequence) -> list[np.ndarray]:
    """The factor of each class of each output, (n_classes,) each; 1 without class weights."""
    each = factors or [{}] * len(classes)
    return [
        np.array([of.get(label, 1.0) for label in labels])
        for of, labels in zip(each, classes, strict=True)
    ]


def weigh_values(
    factors: list[Factors], targets: ClassTargets, values: Tensor, weights: np.ndarray
) -> np.ndarray:
    """Multiply weights of rows, (n,), by the factors of their one-hot classes."""
    blocks = values.cpu().split(targets.sizes, dim=1)
    pairs = zip(blocks, weights_of_classes(factors, targets.classes), strict=True)
    return times(weights, [block.numpy() @ each for block, each in pairs])
