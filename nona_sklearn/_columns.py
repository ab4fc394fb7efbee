"""The columns of a table: what each holds, and its values as plain arrays.

Frames of any library that narwhals reads, and arrays, become the same few kinds of column.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np

SHOWN = 80  # characters of a value in a message


@dataclass(frozen=True)
class Column:
    """One column: what it holds, and its values.

    Parameters
    ----------
    name : str or int
        Its name or, in an array, its number.
    kind : {'number', 'category', 'date', 'empty'}
        What it holds. Truth values and durations, in seconds, are numbers.
    values : ndarray of shape (n,)
        Numbers as float64, NaN where there are gaps; categories as objects, None where there
        are gaps; dates as datetime64[us], by the clock of their time zone.
    levels : tuple, optional
        The categories in their order, where they have one; else None.
    time_zone : str, optional
        Of dates that have one.
    """

    name: Any
    kind: str
    values: np.ndarray
    levels: tuple | None = None
    time_zone: str | None = None

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"column {self.name!r}"

    def as_category(self) -> Column:
        """The same values as categories.

        Raises
        ------
        TypeError
            If it holds dates, or values of several types.
        """
        if self.kind == "date":
            raise TypeError(
                f"{self.label} holds dates, which are no categories: convert them to strings first"
            )
        values = self.values.astype(object)
        missing = np.array([value is None or value != value for value in values], dtype=bool)
        values[missing] = None
        return replace(self, kind="category", values=values)


def is_frame(X: Any) -> bool:
    """Whether X is a table with typed columns: a DataFrame of any library that narwhals reads."""
    return isinstance(nw.from_native(X, eager_only=True, pass_through=True), nw.DataFrame)


def read_columns(X: Any, time_zones: Sequence[str | None] | None = None) -> Iterator[Column]:
    """Read the columns of a frame or of an array, one by one.

    Parameters
    ----------
    X : DataFrame, or ndarray of shape (n, n_features)
        The table.
    time_zones : sequence of str or None, optional
        By which clock to read the dates of each column that have a time zone. None: their own.

    Raises
    ------
    TypeError
        If a column holds what is neither numbers, categories, dates nor durations.
    ValueError
        If several columns of a frame have one name.
    """
    if isinstance(X, np.ndarray):
        for j, values in enumerate(X.T):
            yield _of_objects(j, values) if values.dtype == object else _of_numbers(j, values)
        return
    frame = nw.from_native(X, eager_only=True)
    for j, series in enumerate(frame.iter_columns()):
        yield _of_series(frame.columns[j], series, time_zones and time_zones[j])


def _of_numbers(name: Any, values: np.ndarray) -> Column:
    return Column(name, "number", values.astype(np.float64))


def _of_series(name: Any, series: nw.Series, time_zone: str | None) -> Column:
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return _of_numbers(name, series.cast(nw.Float64).to_numpy())
    if dtype == nw.Duration:
        seconds = series.dt.total_microseconds().cast(nw.Float64).to_numpy() / 1e6
        return _of_numbers(name, np.where(series.is_null().to_numpy(), np.nan, seconds))
    if series.is_null().all():
        return Column(name, "empty", np.full(len(series), np.nan))
    if dtype in (nw.Date, nw.Datetime):
        return _of_dates(name, series, time_zone)
    if dtype in (nw.Categorical, nw.Enum, nw.String):
        return _of_categories(name, series)
    if dtype == nw.Object:
        values = np.empty(len(series), dtype=object)
        values[:] = series.to_list()
        values[series.is_null().to_numpy()] = None
        return _of_objects(name, values)
    native = getattr(series.to_native(), "dtype", dtype)
    raise TypeError(
        f"column {name!r} holds {native}, which is no number, category, date or duration: "
        "convert it, or drop it"
    )


def _of_dates(name: Any, series: nw.Series, time_zone: str | None) -> Column:
    if series.dtype == nw.Date:
        series = series.cast(nw.Datetime("us"))
    zone = getattr(series.dtype, "time_zone", None)
    if zone is not None:
        zone = time_zone or zone
        series = series.dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return Column(name, "date", series.to_numpy().astype("datetime64[us]"), time_zone=zone)


def _of_categories(name: Any, series: nw.Series) -> Column:
    values = np.empty(len(series), dtype=object)
    values[:] = series.to_list()
    values[series.is_null().to_numpy()] = None
    levels = None
    # pandas says whether categories are ordered; polars' Enum only lists them.
    if series.dtype == nw.Enum and series.implementation.is_pandas_like():
        levels = tuple(series.dtype.categories)
    return _one_type(Column(name, "category", values, levels))


def _of_objects(name: Any, values: np.ndarray) -> Column:
    """What Python's objects are, if they are all of one kind."""
    values = values.copy()
    values[[_is_missing(value) for value in values]] = None
    given = [value for value in values if value is not None]
    if not given:
        return Column(name, "empty", np.full(len(values), np.nan))
    if all(isinstance(value, Real | Decimal | np.bool_) for value in given):
        return Column(name, "number", values.astype(np.float64))
    if all(isinstance(value, datetime.date) for value in given):  # a datetime is a date, too
        return Column(
            name, "date", np.array([_naive(value) for value in values], "datetime64[us]")
        )
    if all(isinstance(value, datetime.timedelta) for value in given):
        seconds = [np.nan if value is None else value.total_seconds() for value in values]
        return Column(name, "number", np.array(seconds))
    return _one_type(Column(name, "category", values))


def _one_type(column: Column) -> Column:
    """Refuse categories of several types, and of such as have no order."""
    by_type = {}
    for value in column.values:
        if value is not None:
            by_type.setdefault(
                "number" if isinstance(value, Real) else type(value).__name__, value
            )
    if not set(by_type) <= {"str", "number"}:
        kind, value = next((k, v) for k, v in by_type.items() if k not in ("str", "number"))
        raise TypeError(
            f"{column.label}: argument must be a string or a number, got {kind} {value!r:.{SHOWN}}"
        )
    if len(by_type) > 1:
        shown = " and ".join(f"{value!r:.{SHOWN}}" for value in by_type.values())
        raise TypeError(
            f"{column.label} mixes strings and numbers, such as {shown}: make all of one type, by "
            "astype(str) or pandas.to_numeric(errors='coerce')"
        )
    return column


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA, which does not say if it equals itself."""
    if value is None:
        return True
    equal = value == value  # an array or the like is given, whatever it holds
    return (isinstance(equal, bool | np.bool_) and not equal) or type(value).__name__ == "NAType"


def _naive(value: Any) -> Any:
    if getattr(value, "tzinfo", None) is None:
        return value
    return value.astimezone(datetime.UTC).replace(tzinfo=None)
