"""Checks of parameters, with errors that name the parameter and its value."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_array
from torch import Tensor

from .arrays import as_tensor


def is_whole(value: Any, low: int, high: float = math.inf) -> bool:
    """Whether a value is an integer from low to high; True is none."""
    return isinstance(value, Integral) and value is not True and low <= int(value) <= high


def is_real(value: Any, low: float, high: float) -> bool:
    """Whether a value is a number from low to high; True and NaN are none."""
    number: Any = value  # compared as it is: an integer may be too large for a float
    return isinstance(value, Real) and not isinstance(value, bool) and bool(low <= number <= high)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    equal = value == value  # no bool for pandas' NA, nor for an array, which is not missing
    return (isinstance(equal, bool | np.bool_) and not equal) or type(value).__name__ == "NAType"


def are_missing(values: np.ndarray) -> np.ndarray:
    """Which entries of an array are missing."""
    # Not by a ufunc: of a comparison with NaN it may warn.
    return np.fromiter(map(is_missing, values.flat), bool, values.size).reshape(values.shape)


def unmasked(values: Any) -> Any:
    """Masked entries of an array as gaps: NaN, NaT or, among objects, None; all else as it is."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    gaps, plain = np.ma.getmaskarray(values), np.asarray(values)
    if gaps.any():
        numbers, dates = plain.dtype.kind in "biuf", plain.dtype.kind in "mM"
        plain = plain.astype(np.float64 if numbers else plain.dtype if dates else object)
        plain[gaps] = None
    return plain


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise a ValueError unless the value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {sorted(choices)}, got {value!r}")


def check_flag(name: str, value: object) -> None:
    """Raise a ValueError unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_integer(name: str, value: Any, low: int = 1, high: float = math.inf) -> int:
    """Make an int of a value; raise a ValueError unless it is an integer from low to high."""
    if not is_whole(value, low, high):
        at_least = "a positive integer" if low == 1 else f"an integer of at least {low}"
        wanted = at_least if high == math.inf else f"an integer from {low} to {high}"
        raise ValueError(f"{name} must be {wanted}, got {value!r:.100}")
    return int(value)


def check_n_neighbors(n_neighbors: Any, n_admitted: int) -> int:
    """Make an int of a number of neighbours, of which at most `n_admitted` exist."""
    return check_integer("n_neighbors", n_neighbors, 1, n_admitted)


def check_numbers(values: Any, name: str) -> Tensor:
    """Make a float64 tensor of one axis of one or more numbers."""
    given = np.atleast_1d(unmasked(values))
    if values is None or given.size == 0 or given.dtype.kind not in "iufO":
        raise ValueError(f"{name} must be a number or a list of them, got {values!r:.100}")
    numbers = check_array(given, ensure_2d=False, dtype=np.float64, order="C", input_name=name)
    if numbers.ndim != 1:
        raise ValueError(f"{name} must be a number or a list of them, got shape {numbers.shape}")
    return as_tensor(numbers)


def check_levels(quantiles: Any) -> Tensor:
    """Make a float64 tensor of one axis of one or more probabilities."""
    levels = check_numbers(quantiles, "quantiles")
    if not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"quantiles must be from 0 to 1, got {quantiles!r}")
    return levels


def check_fraction(name: str, value: Any) -> None:
    """Raise a ValueError unless the value is a number between 0 and 1, and neither of them."""
    if not is_real(value, 0, 1) or value in (0, 1):
        raise ValueError(f"{name} must be between 0 and 1, got {value!r:.100}")


def check_ids(ids: Any) -> np.ndarray:
    """Make an int64 array of one axis of one or more ids."""
    ids = np.atleast_1d(ids)
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise ValueError(f"ids must be integers, got {ids!r}")
    return ids.astype(np.int64)


def check_lengths(n_rows: int, n_targets: int) -> None:
    """Refuse targets of another number of rows."""
    if n_rows != n_targets:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: X has {n_rows}, y has {n_targets}"
        )


def check_all_known(name: str, unknown: list) -> None:
    """Refuse ids or names that are not in the bank, and name up to ten of them."""
    if unknown:
        raise ValueError(f"{name} must be in the bank, got unknown {unknown[:10]}")


def check_some_left(name: str, n_left: int, n_rows: int) -> None:
    """Refuse ids or names of all rows where these are to be removed."""
    if n_left == 0:
        raise ValueError(f"{name} must leave at least one row, got all {n_rows}")
