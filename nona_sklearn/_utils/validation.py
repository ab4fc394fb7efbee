"""Clear errors for parameters, and what stays as it was after one."""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.utils import check_array
from torch import Tensor

Thing = TypeVar("Thing")


def is_whole(value: Any, low: int, high: float = float("inf")) -> bool:
    """Whether a value is an integer from low to high; True is none."""
    return isinstance(value, Integral) and value is not True and low <= int(value) <= high


def is_real(value: Any, low: float, high: float) -> bool:
    """Whether a value is a number from low to high; True and NaN are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) <= high


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
    """Raise a ValueError that names the parameter and its value unless it is a choice."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {sorted(choices)}, got {value!r}")


def check_flag(name: str, value: object) -> None:
    """Raise a ValueError that names the parameter and its value unless it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def snapshot(thing: Thing) -> Thing:
    """Copy an object without its attributes' values, which both share.

    The copy keeps them when another thread replaces those of the object.
    """
    copied = object.__new__(type(thing))
    vars(copied).update(vars(thing))
    return copied


@contextmanager
def replaced_when_done(
    thing: Thing, lock: AbstractContextManager[Any] | None = None
) -> Iterator[Thing]:
    """Work on a copy, whose attributes replace the object's in one step unless the block fails.

    Until then the object stays as it was, in other threads too.

    Parameters
    ----------
    thing : object
        What the copy is of.
    lock : context manager, optional
        Held during the replacement.
    """
    before, twin = vars(snapshot(thing)), snapshot(thing)
    yield twin
    with lock or nullcontext():
        # What other threads set on the object meanwhile stays.
        new = {k: value for k, value in vars(twin).items() if before.get(k, twin) is not value}
        dropped = before.keys() - vars(twin).keys()
        kept = {k: value for k, value in vars(thing).items() if k not in dropped}
        thing.__dict__ = kept | new


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA, which does not say if it equals itself."""
    if value is None:
        return True
    equal = value == value  # an array or the like is given, whatever it holds
    return (isinstance(equal, bool | np.bool_) and not equal) or type(value).__name__ == "NAType"


def check_levels(quantiles) -> Tensor:
    """One or more probabilities as a float64 tensor of one axis."""
    levels = check_numbers(quantiles, "quantiles")
    if not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"quantiles must be from 0 to 1, got {quantiles!r}")
    return levels


def check_numbers(values, name) -> Tensor:
    """One or more numbers as a float64 tensor of one axis."""
    given = np.atleast_1d(unmasked(values))
    if given.size == 0 or given.dtype.kind not in "biufO":
        raise ValueError(f"{name} must be a number or a list of them, got {values!r:.100}")
    values = check_array(given, ensure_2d=False, dtype=np.float64, order="C", input_name=name)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a number or a list of them, got shape {values.shape}")
    return torch.from_numpy(values)


def check_n_neighbors(n_neighbors, n_admitted):
    """Refuse a number of neighbours that there are not."""
    if not is_whole(n_neighbors, 1, n_admitted):
        raise ValueError(
            f"n_neighbors must be an integer from 1 to {n_admitted}, got {n_neighbors!r}"
        )


def check_ids(ids):
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
