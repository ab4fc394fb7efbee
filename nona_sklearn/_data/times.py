"""Times of rows: when the target of each was not known yet."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from .._utils.storable import storable
from .._utils.validation import is_real, unmasked
from .columns import SECOND, Column, read_values
from .tables import as_dense, column_named, is_frame

#: Shortest half-life, of the time of all rows: with a shorter one, weights are beyond float32.
LEAST_HALF_LIFE = 0.001
LATEST_STEP = 8  # half-lives, of which the time of the latest row is rounded to a multiple
MOST_HALF_LIVES = 10**6  # of a time added later: float32 resolves a tenth of one by then
KINDS = {"number": "numbers", "date": "dates", "duration": "durations"}


@storable
@dataclass(frozen=True)
class TimeKind:
    """What times are.

    Parameters
    ----------
    kind : {'number', 'date', 'duration'}
        Numbers; dates, as seconds since 1970 in UTC; or durations, in seconds.
    column : str, optional
        The column of the table that holds them.
    has_zone : bool, default=False
        Whether dates have a time zone.
    half_life : float, default=inf
        By how much later another row weighs twice as much, in units of the times.
    latest : float, default=0.0
        Time at which a row's weight is not changed by its age: near the latest row, and rounded,
        so that it is not the time of a row that may be removed.
    """

    kind: str
    column: str | None = None
    has_zone: bool = False
    half_life: float = math.inf
    latest: float = 0.0

    def fading(self, half_life: Any, times: np.ndarray) -> TimeKind:
        """The same with a half-life of the rows of some times, (n,), as the parameter of fit.

        Raises
        ------
        ValueError
            If it is not None, or a length of time that is long enough.
        """
        if half_life is None:
            return self
        found, least = self.length("half_life", half_life), LEAST_HALF_LIFE * np.ptp(times)
        if found <= least:
            shown, remedy = f"{least:g}", ""
            if self.kind != "number":
                shown = f"{least:g} seconds ({timedelta(seconds=least)})"
                if not isinstance(half_life, timedelta | np.timedelta64):
                    remedy = (
                        f", which is read as seconds: pass a timedelta, such as "
                        f"datetime.timedelta(days={half_life!r})"
                    )
            raise ValueError(
                f"half_life must be above {LEAST_HALF_LIFE} of the time from the first row to the "
                f"last, which is {shown}, got {half_life!r}{remedy}"
            )
        step = LATEST_STEP * found
        return replace(self, half_life=found, latest=float(np.round(times.max() / step) * step))

    def log_prior(self, times: Tensor) -> Tensor | None:
        """Logarithms of what rows of some times, (n,), weigh by their age; None: they are equal.

        A row weighs half of what another does that is later by the half-life. This does not depend
        on the query, since all of its neighbours age together.
        """
        if math.isinf(self.half_life):
            return None
        lives = (times - self.latest) / self.half_life
        if len(lives) and not lives.abs().amax() <= MOST_HALF_LIVES:
            raise ValueError(
                f"times must be within {MOST_HALF_LIVES:,} half-lives of those of fit, got one "
                f"that is {lives.abs().amax():,.0f} away"
            )
        return (lives * math.log(2)).float()

    def restore(self, times: np.ndarray) -> np.ndarray:
        """Turn seconds since 1970 into dates, in UTC; numbers and durations stay as they are."""
        if self.kind != "date":
            return times
        return np.datetime64(0, "us") + (times * 1e6).round().astype("timedelta64[us]")

    def length(self, name: str, value: Any) -> float:
        """A length of time, in units of the times: a number, or a duration of dates.

        Raises
        ------
        ValueError
            If it is neither, or negative.
        """
        number = value
        if isinstance(value, timedelta | np.timedelta64):
            number = None if self.kind == "number" else _in_seconds(value)
        if not is_real(number, 0, sys.float_info.max):
            wanted = "a number" if self.kind == "number" else "a timedelta, or seconds,"
            raise ValueError(f"{name} must be {wanted} of at least 0, got {value!r}")
        return float(number)


def have_earlier(
    limits: Tensor,
    times: Tensor,
    labels: Tensor | None = None,
    labels_of_times: Tensor | None = None,
) -> Tensor:
    """Which rows have another one whose time is before their limit, bool (q,).

    Parameters
    ----------
    limits : Tensor of shape (q,)
        Their limits.
    times : Tensor of shape (n,)
        Times of the others.
    labels, labels_of_times : int Tensor of shape (q,) and (n,), optional
        Others with the same label do not count.
    """
    first = times.argmin()
    earliest = times[first].expand_as(limits)
    if labels is not None and labels_of_times is not None:
        others = times[labels_of_times != labels_of_times[first]]
        following = others.amin() if len(others) else times.new_tensor(math.inf)
        earliest = torch.where(labels == labels_of_times[first], following, earliest)
    return limits > earliest


def _in_seconds(duration: timedelta | np.timedelta64) -> float | None:
    """Seconds of a duration; None of months and years, whose length differs."""
    duration = np.timedelta64(duration)
    if np.datetime_data(duration)[0] in ("M", "Y", "generic"):
        return None
    return float(duration / SECOND)


def read_times(times: Any, X: Any, n_rows: int) -> tuple[np.ndarray, TimeKind]:
    """Read times, (n,) in float64, from an array or from the column of a table that is named.

    Raises
    ------
    ValueError
        If they are not numbers, dates or durations, one for each row, or if one is missing.
    """
    if isinstance(times, str):
        return _as_times(_column_of(X, times), times)
    if issparse(times) or getattr(times, "dtype", None) in (np.complex64, np.complex128):
        raise ValueError(f"times must hold numbers, dates or durations, got {times!r:.100}")
    times, shape = unmasked(times), np.shape(times)
    if len(shape) == 2 and shape[1] == 1:
        times, shape = np.asarray(times)[:, 0], shape[:1]
    if shape != (n_rows,):
        raise ValueError(f"times must have shape ({n_rows},), got {shape}")
    return _as_times(read_values("times", times, "UTC"))


def read_further_times(time: TimeKind, times: Any, n_rows: int) -> np.ndarray:
    """Read times of further rows, which must be of the same kind as those of fit."""
    found, now = read_times(times, None, n_rows)
    _check_same(time, now, "times")
    return found


def read_query_times(time: TimeKind, X: Any, feature_names: Any) -> np.ndarray:
    """Read the times of validated queries from their column."""
    if not is_frame(X):  # its columns are those of fit, in their order
        values = np.asarray(as_dense(X))[:, [*feature_names].index(time.column)]
        found, now = _as_times(read_values("times", values, "UTC"))
    else:
        found, now = _as_times(_column_of(X, str(time.column)))
    _check_same(time, now, f"the times in column {time.column!r}")
    return found


def _check_same(time: TimeKind, now: TimeKind, label: str) -> None:
    """Refuse times of another kind than those of fit."""
    if now.kind != time.kind:
        held, hold = KINDS[time.kind], KINDS[now.kind]
        raise ValueError(f"{label} held {held} in fit, and hold {hold} now")
    if now.has_zone != time.has_zone:
        held, hold = ("a time zone" if each.has_zone else "no time zone" for each in (time, now))
        raise ValueError(f"{label} had {held} in fit, and have {hold} now")


def _column_of(X: Any, name: str) -> Column:
    """Read a column of a frame."""
    return read_values(name, column_named("times", X, name), "UTC")


def _as_times(column: Column, name: str | None = None) -> tuple[np.ndarray, TimeKind]:
    if column.kind not in KINDS and column.kind != "empty":
        raise ValueError(
            f"times must hold numbers, dates or durations, got {column.contents}{column.example}: "
            "convert them by pandas.to_datetime or pandas.to_numeric"
        )
    missing = np.isnat(column.values) if column.kind == "date" else ~np.isfinite(column.values)
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(f"times must be finite, got {column.values[row]} in row {row}")
    values = column.values
    if column.kind == "date":
        values = (values - np.datetime64(0, "us")) / SECOND
    return values, TimeKind(column.kind, name, column.time_zone is not None)
