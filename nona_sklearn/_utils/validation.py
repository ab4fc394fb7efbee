"""Checks of parameters and of optional packages; conversions and spans of arrays.

Errors name the parameter and its value.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.utils import Bunch, _param_validation, check_array
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

    Table: TypeAlias = pd.DataFrame | Bunch


@contextmanager
def naming(subject: str) -> Iterator[None]:
    """Begin errors of the block, about a type or a value, with what they are about."""
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{subject}: {error}") from error


def lacks(feature: str, libraries: str, extra: str) -> str:
    """Return the error message of a feature without its libraries, with the remedy."""
    return (
        f"{feature} needs {libraries}: install the extra '{extra}', by "
        f'pip install ".[{extra}]" in a copy of the repository of nona_sklearn'
    )


def import_extra(feature: str, *modules: str, extra: str) -> Any:
    """Return the first of a feature's modules after importing all; an error names the extra."""
    try:
        first, *_ = [import_module(module) for module in modules]
    except ImportError as error:
        libraries = " and ".join(module.partition(".")[0] for module in modules)
        raise ImportError(lacks(feature, libraries, extra)) from error
    return first


def as_tensor(array: np.ndarray) -> Tensor:
    """Return a tensor that shares an array's memory, which may be read-only: never write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(array)


def object_array(values: Sequence[Any]) -> np.ndarray:
    """Return values as an array of objects, (n,), even if the values are sequences."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def sparse_rows(
    values: np.ndarray, columns: np.ndarray, kept: np.ndarray, n_columns: int
) -> csr_array:
    """Return the kept values (q, m) as a sparse array (q, n_columns), in their order.

    `columns` has shape (q, m) or (m,). Indices have 32 bits if possible, as most of scikit-learn
    requires.
    """
    starts = np.concatenate([[0], kept.sum(axis=1).cumsum()])
    columns = np.broadcast_to(columns, kept.shape)[kept]
    index = np.int32 if max(starts[-1], n_columns) < 2**31 else np.int64
    parts = values[kept], columns.astype(index), starts.astype(index)
    return csr_array(parts, shape=(len(kept), n_columns))


EMBED_BLOCK = 4096  # rows embedded at a time, to bound the memory of wide hidden layers


def spans_of(sizes: Sequence[int]) -> list[slice]:
    """Return consecutive slices of the given sizes."""
    return [slice(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]


def spans(n: int, size: int) -> list[slice]:
    """Return consecutive slices of at most `size` rows that cover n rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def in_blocks(function: Callable[[Any], Tensor], X: Any, size: int, axis: int = 0) -> Tensor:
    """Apply a function to blocks of `X`, of at most `size` rows, and write to one tensor.

    `axis` is that of the rows in the results. Many small results between large temporary arrays
    would scatter the heap, which then grows by a temporary array for each block.
    """
    first, *blocks = X.split(size)
    result = function(first)
    if not blocks:
        return result
    shape = (*result.shape[:axis], len(X), *result.shape[axis + 1 :])
    joined, start = result.new_empty(shape), len(first)
    joined.narrow(axis, 0, start).copy_(result)
    for block in blocks:
        joined.narrow(axis, start, len(block)).copy_(function(block))
        start += len(block)
    return joined


def some_of(part: Any, rows: Any) -> Any:
    """Some rows of what there may be."""
    return None if part is None else part[rows]


def table(columns: dict[str, np.ndarray]) -> Any:
    """Return named columns as a DataFrame or, without pandas, as a Bunch of arrays.

    Columns of objects are converted to a type, such as datetime64, unless they have gaps: integers
    with gaps would become floats, which do not represent all integers.
    """
    try:
        import pandas as pd
    except ImportError:
        return Bunch(**columns)
    frame = pd.DataFrame(columns)
    complete = {
        name: column.infer_objects()
        for name, column in frame.items()
        if column.dtype == object and column.notna().all()
    }
    return frame.assign(**complete) if complete else frame


MAX_WIDENED = 64  # most features; more are usually an embedding, whose axes have no meaning


def real_valued(X: Tensor) -> list[int]:
    """Return positions of the features of X, (n, n_features), with more than two values."""
    return [j for j, column in enumerate(X.T) if len(column.unique()) > 2]


class Interval(_param_validation.Interval):
    """A constraint of scikit-learn, to which True and False are not numbers."""

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool) and super().is_satisfied_by(val)


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
