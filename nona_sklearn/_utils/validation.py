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
    """Return whether a value is an integer from low to high; True is not an integer."""
    return isinstance(value, Integral) and value is not True and low <= int(value) <= high


def is_real(value: Any, low: float, high: float) -> bool:
    """Return whether a value is a number from low to high; True and NaN are not numbers."""
    number: Any = value  # not converted, since an integer may be too large for a float
    return isinstance(value, Real) and not isinstance(value, bool) and bool(low <= number <= high)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    equal = value == value  # not a bool for pandas' NA, nor for an array, which is not missing
    return (isinstance(equal, bool | np.bool_) and not equal) or type(value).__name__ == "NAType"


def are_missing(values: np.ndarray) -> np.ndarray:
    """Return whether entries of an array are missing, bool of the same shape."""
    # A ufunc may warn about a comparison with NaN.
    return np.fromiter(map(is_missing, values.flat), bool, values.size).reshape(values.shape)


def unmasked(values: Any) -> Any:
    """Return an array with masked entries as NaN, NaT or None, or an unchanged value."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    gaps, plain = np.ma.getmaskarray(values), np.asarray(values)
    if gaps.any():
        numbers, dates = plain.dtype.kind in "biuf", plain.dtype.kind in "mM"
        plain = plain.astype(np.float64 if numbers else plain.dtype if dates else object)
        plain[gaps] = None
    return plain


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise a ValueError unless the value is in the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {sorted(choices)}, got {value!r}")


def check_flag(name: str, value: object) -> None:
    """Raise a ValueError unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_integer(name: str, value: Any, low: int = 1, high: float = math.inf) -> int:
    """Return a value as an int; raise a ValueError unless it is an integer from low to high."""
    if not is_whole(value, low, high):
        at_least = "a positive integer" if low == 1 else f"an integer of at least {low}"
        wanted = at_least if high == math.inf else f"an integer from {low} to {high}"
        raise ValueError(f"{name} must be {wanted}, got {value!r:.100}")
    return int(value)


def check_n_neighbors(n_neighbors: Any, n_admitted: int) -> int:
    """Return a number of neighbours as an int; raise unless it is from 1 to `n_admitted`."""
    return check_integer("n_neighbors", n_neighbors, 1, n_admitted)


def check_numbers(values: Any, name: str) -> Tensor:
    """Return one or more numbers as a float64 tensor (n,)."""
    given = np.atleast_1d(unmasked(values))
    if values is None or given.size == 0 or given.dtype.kind not in "iufO":
        raise ValueError(f"{name} must be a number or a list of them, got {values!r:.100}")
    numbers = check_array(given, ensure_2d=False, dtype=np.float64, order="C", input_name=name)
    if numbers.ndim != 1:
        raise ValueError(f"{name} must be a number or a list of them, got shape {numbers.shape}")
    return as_tensor(numbers)


def check_levels(quantiles: Any) -> Tensor:
    """Return one or more probabilities as a float64 tensor (n,)."""
    levels = check_numbers(quantiles, "quantiles")
    if not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"quantiles must be from 0 to 1, got {quantiles!r}")
    return levels


def check_fraction(name: str, value: Any) -> None:
    """Raise a ValueError unless the value is strictly between 0 and 1."""
    if not is_real(value, 0, 1) or value in (0, 1):
        raise ValueError(f"{name} must be between 0 and 1, got {value!r:.100}")


def check_ids(ids: Any) -> np.ndarray:
    """Return one or more ids as an int64 array (n,)."""
    ids = np.atleast_1d(ids)
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise ValueError(f"ids must be integers, got {ids!r}")
    return ids.astype(np.int64)


def check_lengths(n_rows: int, n_targets: int) -> None:
    """Raise if the number of targets differs from the number of rows."""
    if n_rows != n_targets:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: X has {n_rows}, y has {n_targets}"
        )


def check_all_known(name: str, unknown: list) -> None:
    """Raise an error that names up to ten unknown ids or names, if there are any."""
    if unknown:
        raise ValueError(f"{name} must be in the bank, got unknown {unknown[:10]}")


def check_some_left(name: str, n_left: int, n_rows: int) -> None:
    """Raise if a removal would leave no rows."""
    if n_left == 0:
        raise ValueError(f"{name} must leave at least one row, got all {n_rows}")
