"""What a date becomes: numbers that place it in time, and on the circles of the calendar."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

DAY, YEAR = np.timedelta64(1, "D"), np.timedelta64(1, "Y")
MONDAY = np.datetime64("1970-01-05", "us")


def _year(moments: np.ndarray) -> np.ndarray:
    years = moments.astype("datetime64[Y]").astype(int) + 1970.0
    return np.where(np.isnat(moments), np.nan, years)


def _days(moments: np.ndarray) -> np.ndarray:
    return (moments - MONDAY) / DAY


def _position_in_year(moments: np.ndarray) -> np.ndarray:
    year = moments.astype("datetime64[Y]")
    first, last = year.astype(moments.dtype), (year + YEAR).astype(moments.dtype)
    return (moments - first) / (last - first)


TURN = 2 * np.pi
#: Parts of a date, NaN where it is missing: the year, the days passed, and the position in the
#: year, the week and the day, on circles, whose end is next to their beginning.
CALENDAR: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": _year,
    "days": _days,
    "year_sin": lambda t: np.sin(TURN * _position_in_year(t)),
    "year_cos": lambda t: np.cos(TURN * _position_in_year(t)),
    "week_sin": lambda t: np.sin(TURN * (_days(t) / 7)),
    "week_cos": lambda t: np.cos(TURN * (_days(t) / 7)),
    "day_sin": lambda t: np.sin(TURN * _days(t)),
    "day_cos": lambda t: np.cos(TURN * _days(t)),
}


def varying_parts(moments: np.ndarray) -> tuple[str, ...]:
    """Names of the parts in which dates differ; the days, if they are all the same."""
    given = moments[~np.isnat(moments)]
    varies = {name: np.ptp(part(given)) > 1e-9 for name, part in CALENDAR.items() if len(given)}
    return tuple(name for name in varies if varies[name]) or ("days",)
