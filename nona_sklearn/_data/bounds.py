"""Bounds of targets: what the parameter means, and which targets it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._utils.validation import is_real
from .target_checks import place_of

NAMED = {"positive": (0.0, math.inf), "count": (0.0, math.inf), "unit": (0.0, 1.0)}

Bounds = tuple[float, float]


def bounds_of(parameter: Any) -> Bounds | None:
    """The least and the largest target that a parameter `bounds` allows; None: any.

    Raises
    ------
    ValueError
        If it is neither None, a name, nor a pair of numbers or None, the first one less.
    """
    ends = NAMED.get(parameter) if isinstance(parameter, str) else parameter
    if ends is None and parameter is None:
        return None
    if isinstance(ends, tuple | list) and len(ends) == 2:
        low, high = (
            default if end is None else end
            for end, default in zip(ends, (-math.inf, math.inf), strict=True)
        )
        if all(is_real(end, -math.inf, math.inf) for end in (low, high)) and low < high:
            return None if (low, high) == (-math.inf, math.inf) else (float(low), float(high))
    raise ValueError(
        f"bounds must be {', '.join(map(repr, NAMED))}, None or a pair (low, high) of numbers or "
        f"None, the first one less, got {parameter!r:.100}"
    )


def are_whole(parameter: Any) -> bool:
    """Whether a parameter `bounds` is of targets that are whole numbers."""
    return parameter == "count"


def refuse_fractions(values: np.ndarray, y: Any, rows: np.ndarray | None = None) -> None:
    """Refuse targets (n,) or (n, n_outputs) that are no whole numbers.

    `y` and `rows` are as for :func:`~.target_checks.place_of`.
    """
    columns = values.reshape(len(values), -1)
    wrong = columns != np.floor(columns)
    if wrong.any():
        value, place = columns[wrong][0], place_of(wrong, y, rows)
        raise ValueError(f"y must hold whole numbers with bounds='count', got {value} in {place}")


def refuse_outside(
    bounds: Bounds, values: np.ndarray, y: Any, rows: np.ndarray | None = None
) -> None:
    """Refuse targets (n,) or (n, n_outputs) beyond the bounds.

    `y` and `rows` are as for :func:`~.target_checks.place_of`.
    """
    low, high = bounds
    columns = values.reshape(len(values), -1)
    wrong = (columns < low) | (columns > high)
    if wrong.any():
        value, place = columns[wrong][0], place_of(wrong, y, rows)
        raise ValueError(f"y must be within bounds=({low:g}, {high:g}), got {value:g} in {place}")
