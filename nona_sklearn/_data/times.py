"""Times of rows, which are neighbours of later rows only."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
from scipy.sparse import issparse
from torch import Tensor

from .._utils.precision import stored
from .._utils.storable import storable
from .._utils.tables import is_frame
from .._utils.validation import is_real, unmasked
from .columns import EPOCH, SECOND, durations_of, read_values, seconds_of
from .tables import as_dense, column_named

#: Shortest half-life, as a share of the time of all rows. Weights of shorter half-lives would be
#: beyond float32.
LEAST_HALF_LIFE = 0.001
LATEST_STEP = 8  # the time of the latest row is rounded to a multiple of 8 half-lives
MOST_HALF_LIVES = 10**6  # to a time that is added, so that float32 resolves 0.1 half-lives
KINDS = {"number": "numbers", "date": "dates", "duration": "durations"}


@storable
@dataclass(frozen=True)
class TimeKind:
    """Store the kind of times, and the half-life of weights."""

    #: 'number'; 'date', in seconds since 1970 in UTC; or 'duration', in seconds.
    kind: str
    column: str | None = None  # column of the table that holds the times, if any
    has_zone: bool = False  # whether dates have a time zone
    #: Difference in time at which the weight doubles, in units of the times.
    half_life: float = math.inf
    #: Time at which age does not change the weight. It is near the latest row, and rounded, so
    #: that it does not reveal the time of a removed row.
    latest: float = 0.0

    def fading(self, half_life: Any, times: np.ndarray) -> TimeKind:
        """Return the kind with a half-life, or unchanged for None, for rows at times (n,)."""
        if half_life is None:
            return self
        length = self.length("half_life", half_life, -math.inf)
        least = LEAST_HALF_LIFE * np.ptp(times)
        if length <= least:
            shown, remedy = f"{least:g}", ""
            if self.kind != "number":
                shown = f"{least:g} seconds ({timedelta(seconds=least)})"
                if not isinstance(half_life, timedelta | np.timedelta64):
                    remedy = (
                        ", which is read as seconds: pass a timedelta, such as "
                        "datetime.timedelta(days=30)"
                    )
            raise ValueError(
                f"half_life must be above {LEAST_HALF_LIFE} of the time from the first row to the "
                f"last, which is {shown}, got {half_life!r}{remedy}"
            )
        step = LATEST_STEP * length
        return replace(self, half_life=length, latest=float(np.round(times.max() / step) * step))

    def log_prior(self, times: Tensor) -> Tensor | None:
        """Return log weights (n,) by the age of rows at times (n,), or None without a half-life.

        The weights are independent of the query, since all neighbours age together.
        """
        if math.isinf(self.half_life):
            return None
        lives = (times - self.latest) / self.half_life
        if len(lives) and not lives.abs().amax() <= MOST_HALF_LIVES:
            raise ValueError(
                f"times must be within {MOST_HALF_LIVES:,} half-lives of those of fit, got one "
                f"that is {lives.abs().amax():,.0f} away"
            )
        return stored(lives * math.log(2))

    def restore(self, times: np.ndarray) -> np.ndarray:
        """Return seconds since 1970 as dates in UTC, and numbers and durations unchanged."""
        if self.kind != "date":
            return times
        return EPOCH + durations_of(times)

    def length(self, name: str, value: Any, least: float = 0.0) -> float:
        """Return a length of time of the parameter `name`, in units of the times."""
        number = value
        if isinstance(value, timedelta | np.timedelta64):
            duration = np.timedelta64(value)
            # The length of months and years differs.
            fixed = np.datetime_data(duration)[0] not in ("M", "Y", "generic")
            number = float(duration / SECOND) if fixed and self.kind != "number" else None
        if not is_real(number, least, sys.float_info.max):
            wanted = "a number" if self.kind == "number" else "a timedelta, or seconds,"
            limit = "" if math.isinf(least) else f" of at least {least:g}"
            raise ValueError(f"{name} must be {(wanted + limit).rstrip(',')}, got {value!r}")
        return float(number)


def read_times(times: Any, X: Any, n_rows: int) -> tuple[np.ndarray, TimeKind]:
    """Return times as float64 (n,), from an array or a named column of X, and their kind."""
    if isinstance(times, str):
        return _as_times(times, column_named("times", X, times), times)
    if issparse(times) or getattr(times, "dtype", None) in (np.complex64, np.complex128):
        raise ValueError(f"times must hold numbers, dates or durations, got {times!r:.100}")
    times = unmasked(times)
    shape = np.shape(times)
    if len(shape) == 2 and shape[1] == 1:
        times, shape = np.asarray(times)[:, 0], shape[:1]
    if shape != (n_rows,):
        raise ValueError(f"times must have shape ({n_rows},), got {shape}")
    return _as_times("times", times)


def read_new_times(time: TimeKind, times: Any, n_rows: int) -> np.ndarray:
    """Return times of new rows, (n_rows,); raise if their kind differs from fit."""
    values, now = read_times(times, None, n_rows)
    _check_same(time, now, "times")
    return values


def read_query_times(time: TimeKind, X: Any, feature_names: Sequence[Any]) -> np.ndarray:
    """Return the times of validated queries, (n_queries,), from the column of times."""
    column: Any = time.column
    if is_frame(X):
        values, now = read_times(column, X, 0)
    else:  # an array has the columns of fit in order
        array = np.asarray(as_dense(X))[:, [*feature_names].index(column)]
        values, now = _as_times("times", array)
    _check_same(time, now, f"the times in column {column!r}")
    return values


def _check_same(time: TimeKind, now: TimeKind, label: str) -> None:
    """Raise if the kind of times differs from fit."""
    if now.kind != time.kind:
        held, hold = KINDS[time.kind], KINDS[now.kind]
        raise ValueError(f"{label} held {held} in fit, and hold {hold} now")
    if now.has_zone != time.has_zone:
        had, have = ("a time zone" if t.has_zone else "no time zone" for t in (time, now))
        raise ValueError(f"{label} had {had} in fit, and have {have} now")


def _as_times(name: str, given: Any, of_table: str | None = None) -> tuple[np.ndarray, TimeKind]:
    column = read_values(name, given, "UTC")
    if column.kind not in KINDS and column.kind != "empty":
        raise ValueError(
            f"times must hold numbers, dates or durations, got {column.contents}{column.example}: "
            "convert them by pandas.to_datetime or pandas.to_numeric"
        )
    values = column.values
    missing = np.isnat(values) if column.kind == "date" else ~np.isfinite(values)
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(f"times must be finite, got {values[row]} in row {row}")
    if column.kind == "date":
        values = seconds_of(values)
    return values, TimeKind(column.kind, of_table, column.time_zone is not None)
