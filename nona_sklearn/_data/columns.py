"""Columns of an array or a DataFrame of any library, read as plain values."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import repeat
from numbers import Real
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import narwhals as nw
import numpy as np

from .._utils.arrays import object_array
from .._utils.storable import storable
from .._utils.validation import are_missing
from .row_values import row_values

SHOWN = 80  # characters of a value in a message
INEXACT = 2.0**53  # from this number, float64 does not represent all integers
SECOND = np.timedelta64(1, "s")

#: Types of Python objects in a column. Durations come first, since NumPy's are also integers.
KINDS: dict[str, Any] = {
    "strings": str,
    "durations": datetime.timedelta | np.timedelta64,
    "numbers": Real | Decimal | np.bool_,
    "dates": datetime.date | np.datetime64,  # a datetime is a date, too
}
OF_A_ZONE = "dates of a time zone"
#: A date in the extended format of ISO 8601, with an optional time. No category looks like it.
ISO_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
#: Descriptions of categories by the kind of their levels; pandas.cut returns intervals.
LEVEL_CONTENTS = {
    "strings": "strings",
    "numbers": "numbers as categories",
    "Interval": "intervals",
}


@storable
@dataclass(frozen=True)
class Column:
    """Hold the values of a column, and their kind.

    Numbers, booleans and durations (in seconds) are float64, categories objects, texts str, and
    dates datetime64[us] in local time. Missing values are NaN, None, "" and NaT.
    """

    name: Any  # a str or, in an array, the number of the column
    kind: str  # 'number', 'duration', 'category', 'text', 'date', 'empty'
    values: np.ndarray  # (n,)
    levels: tuple | None = None  # ordered levels of an ordered category
    time_zone: str | None = None  # of dates; None: they are naive
    texts: np.ndarray | None = None  # strings as given, None if missing; unset for a categorical
    form: Any = None  # form by which strings were read, see forms.py

    @property
    def label(self) -> str:
        """Return the column's name in messages."""
        return f"column {self.name!r}"

    @property
    def contents(self) -> str:
        """Return the kind of the values, in words."""
        given = next((value for value in self.values if value is not None), None)
        if self.kind == "empty" or (self.kind == "category" and given is None):
            return "nothing"
        if self.kind == "category":
            return LEVEL_CONTENTS[_kind_of(given)]
        if self.kind == "date":
            return "dates without a time zone" if self.time_zone is None else OF_A_ZONE
        return f"{self.kind}s"

    @property
    def example(self) -> str:
        """Return the first value that is not missing, as the end of a message, or ""."""
        given = [value for value in self.values.tolist() if value is not None and value == value]
        return f", such as {given[0]!r:.{SHOWN}}" if given else ""

    def __getitem__(self, rows: np.ndarray) -> Column:
        """Return the column with the given rows."""
        texts = None if self.texts is None else self.texts[rows]
        return replace(self, values=self.values[rows], texts=texts)

    def as_text(self) -> Column:
        """Return strings, or an empty column, as texts; return any other column unchanged."""
        if self.texts is None and self.contents not in ("strings", "nothing"):
            return self
        values = self.values if self.texts is None else self.texts
        texts = [value if isinstance(value, str) else "" for value in values]
        return Column(self.name, "text", np.array(texts, dtype=object))

    def as_category(self) -> Column:
        """Return strings, booleans and exact integers as categories."""
        if self.texts is not None:
            return Column(self.name, "category", self.texts)
        if self.kind in ("date", "duration"):
            raise TypeError(
                f"{self.label} holds {self.kind}s, which are no categories: convert them to "
                "strings first"
            )
        if self.kind == "number" and len(large := self.values[abs(self.values) >= INEXACT]):
            raise ValueError(
                f"{self.label} holds {large[0]:.0f} as a category, and float64 represents all "
                "integers below 2^53 only: convert them to strings first"
            )
        return replace(self, kind="category", values=_as_objects(self.values))


def read_columns(X: Any, time_zones: Sequence[str | None] | None = None) -> Iterator[Column]:
    """Yield the columns of a validated table, with dates in the given time zones."""
    in_array = isinstance(X, np.ndarray)
    columns: Iterable = X.T if in_array else nw.from_native(X, eager_only=True).iter_columns()
    zones = time_zones or repeat(None)
    for j, (values, zone) in enumerate(zip(columns, zones, strict=False)):
        name = j if in_array else values.name
        try:
            yield (_read_array if in_array else _read_series)(name, values, zone)
        except ArithmeticError as error:  # a date that the time zone lacks, or Decimal("sNaN")
            raise ValueError(f"column {name!r} holds a value out of range: {error!r}") from error


def read_values(name: str, values: Any, time_zone: str | None = None) -> Column:
    """Return an array (n,), or a Series of any library, as a column."""
    series = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        return _read_series(name, series, time_zone)
    array = row_values(name, values)
    if array.dtype.kind in "US":
        array = array.astype(object)
    return _read_array(name, array, time_zone)


def plain_values(X: Any) -> Iterator[np.ndarray]:
    """Yield the unconverted values of a validated table's columns; most gaps are None."""
    if isinstance(X, np.ndarray):
        yield from X.T
        return
    for series in nw.from_native(X, eager_only=True).iter_columns():
        dtype = series.dtype
        whole = dtype.is_integer() and not series.is_null().any()
        moments = isinstance(dtype, nw.Datetime) and dtype.time_zone is None
        arrays = whole or dtype.is_float() or moments or dtype == nw.Duration
        yield series.to_numpy() if arrays else _to_objects(series)


def _read_array(name: Any, values: np.ndarray, time_zone: str | None) -> Column:
    if values.dtype.kind == "O":
        return _read_objects(name, values, time_zone)
    kind = {"M": "dates", "m": "durations"}.get(values.dtype.kind, "numbers")
    return READERS[kind](name, values)


def _read_series(name: Any, series: nw.Series, time_zone: str | None) -> Column:
    series, unread_zone = _in_utc(_in_native_byte_order(series))
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return _read_numbers(name, series.cast(nw.Float64).to_numpy())
    if dtype == nw.Duration:
        return _read_durations(name, series.to_numpy())
    if series.is_null().all():
        return _empty_column(name, len(series))
    if dtype == nw.Date:
        return _read_dates(name, series.cast(nw.Datetime("us")).to_numpy())
    if isinstance(dtype, nw.Datetime):
        series_zone = unread_zone or dtype.time_zone
        if series_zone is None:
            return _read_dates(name, series.to_numpy())
        zone = time_zone or _common_zone(series_zone)
        local = series.dt.convert_time_zone(zone).dt.replace_time_zone(None)
        return _read_dates(name, local.to_numpy(), zone)
    if dtype == nw.String:
        return _read_strings(name, _to_objects(series), time_zone)
    if dtype in (nw.Categorical, nw.Enum):
        levels = None
        # pandas' ordered categories are an Enum in narwhals. A polars Enum has no order.
        if isinstance(dtype, nw.Enum) and series.implementation.is_pandas_like():
            levels = tuple(dtype.categories)
        return _read_categories(name, _to_objects(series), levels)
    native = str(getattr(series.to_native(), "dtype", dtype))
    if dtype in (nw.Object, nw.Time) or native.startswith(("period", "interval")):
        return _read_objects(name, _to_objects(series), time_zone)
    remedy = "convert it, or drop it"
    if native.startswith("Sparse"):
        remedy = "make X dense (X.sparse.to_dense()) or one sparse matrix (X.sparse.to_coo())"
    raise TypeError(
        f"column {name!r} holds {native}, which is no number, category, date or duration: {remedy}"
    )


def _in_utc(series: nw.Series) -> tuple[nw.Series, str | None]:
    """Return a pandas Series in UTC, and its zone's name, if narwhals cannot read the zone."""
    native = series.to_native()
    zone = getattr(getattr(native, "dtype", None), "tz", None)
    if series.dtype != nw.Unknown or zone is None:
        return series, None
    return nw.from_native(native.dt.tz_convert("UTC"), series_only=True), str(zone)


def _in_native_byte_order(series: nw.Series) -> nw.Series:
    """Return numbers of a pandas Series in native byte order: a file may have the opposite."""
    dtype = getattr(series.to_native(), "dtype", None)
    if series.dtype != nw.Unknown or not isinstance(dtype, np.dtype) or dtype.kind not in "iuf":
        return series
    plain = np.float64 if dtype.kind == "f" else dtype.newbyteorder("=")
    return nw.from_native(series.to_native().astype(plain), series_only=True)


def _to_objects(series: nw.Series) -> np.ndarray:
    """Return the values of a Series as Python objects, None where they are missing."""
    values = object_array(series.to_list())
    values[series.is_null().to_numpy()] = None
    return values


def _read_objects(name: Any, values: np.ndarray, time_zone: str | None) -> Column:
    """Return a column of Python objects, which must be of one kind."""
    values = _as_objects(values)
    kinds = [*_first_of_each_kind(values)]
    if kinds == ["Period"]:  # of pandas; its date is its start
        starts = [value and value.start_time.to_pydatetime() for value in values]
        return _read_objects(name, object_array(starts), time_zone)
    if kinds == [OF_A_ZONE]:
        return _read_zoned_dates(name, values, time_zone)
    if kinds == ["strings"]:
        return _read_strings(name, values, time_zone)
    if not kinds:
        return _empty_column(name, len(values))
    if len(kinds) == 1 and kinds[0] in READERS:
        return READERS[kinds[0]](name, values)
    return _read_categories(name, values)


def _as_objects(values: np.ndarray) -> np.ndarray:
    """Return a copy of the values as Python objects, None where they are missing."""
    values = values.astype(object)
    values[are_missing(values)] = None
    return values


def _read_strings(name: Any, values: np.ndarray, time_zone: str | None) -> Column:
    """Return a column of dates if all strings are dates, else a column of categories."""
    category = replace(_read_categories(name, values), texts=values)
    dates = _parse_iso_dates(values)
    if dates is None:
        return category
    try:
        return replace(_read_objects(name, dates, time_zone), texts=values)
    except OverflowError:  # a date that the time zone lacks
        return category


def _parse_iso_dates(texts: np.ndarray) -> np.ndarray | None:
    """Return strings as dates, or None if one is no date or only a part has a time zone."""
    if not all(text is None or ISO_DATE.fullmatch(text) for text in texts):
        return None
    read = datetime.datetime.fromisoformat
    try:
        dates = np.array([None if text is None else read(text) for text in texts], dtype=object)
    except ValueError:  # such as February 30
        return None
    return dates if len(_first_of_each_kind(dates)) == 1 else None


def _empty_column(name: Any, n_rows: int) -> Column:
    return Column(name, "empty", np.full(n_rows, np.nan))


def _read_numbers(name: Any, values: np.ndarray) -> Column:
    values = values.astype(np.float64)
    infinite = values[np.isinf(values)]
    if len(infinite):
        raise ValueError(
            f"column {name!r} holds {infinite[0]}, which is near nothing: replace it, by NaN "
            "where it stands for a missing value"
        )
    if np.isnan(values).all():  # empty columns of a file are all NaN
        return _empty_column(name, len(values))
    return Column(name, "number", values)


def _read_durations(name: Any, values: np.ndarray) -> Column:
    seconds = _read_numbers(name, values.astype("timedelta64[us]") / SECOND)
    return replace(seconds, kind="duration") if seconds.kind == "number" else seconds


def _read_dates(name: Any, values: np.ndarray, time_zone: str | None = None) -> Column:
    values = values.astype("datetime64[us]")
    if np.isnat(values).all():
        return _empty_column(name, len(values))
    return Column(name, "date", values, time_zone=time_zone)


READERS = {"numbers": _read_numbers, "durations": _read_durations, "dates": _read_dates}


def _read_categories(name: Any, values: np.ndarray, levels: tuple | None = None) -> Column:
    """Return a column of categories, whose kind must be in :data:`LEVEL_CONTENTS`."""
    examples = _first_of_each_kind(values)
    if len(examples) < 2 and examples.keys() <= LEVEL_CONTENTS.keys():
        return Column(name, "category", values, levels)
    strange = [value for kind, value in examples.items() if kind not in (*KINDS, OF_A_ZONE)]
    if strange or len(examples) == 1:
        value = next(iter(strange or examples.values()))
        remedy = "astype(str) makes it a category"
        if isinstance(value, datetime.time):
            remedy = f"pandas.to_timedelta(X[{name!r}].astype(str)) makes it a duration"
        raise TypeError(
            f"column {name!r}: argument must be a string or a number, got "
            f"{type(value).__name__} {value!r:.{SHOWN}}; {remedy}"
        )
    kinds = " and ".join(examples)
    shown = " and ".join(f"{value!r:.{SHOWN}}" for value in examples.values())
    raise TypeError(
        f"column {name!r} mixes {kinds}, such as {shown}: make all of one type, by astype(str), "
        "pandas.to_numeric or pandas.to_datetime"
    )


def _first_of_each_kind(values: np.ndarray) -> dict[str, Any]:
    """Return the first values of the kinds, by kind; missing values have no kind."""
    first: dict[Any, Any] = {}  # by type, which is faster to find than the kind
    for value in values:
        if value is not None:
            first.setdefault((type(value), getattr(value, "tzinfo", None) is None), value)
    examples: dict[str, Any] = {}
    for value in first.values():
        examples.setdefault(_kind_of(value), value)
    return examples


def _kind_of(value: Any) -> str:
    """Return the kind of an object in :data:`KINDS`, or else the name of its type."""
    kind = next((kind for kind, types in KINDS.items() if isinstance(value, types)), None)
    if kind is None:
        return type(value).__name__
    return OF_A_ZONE if getattr(value, "tzinfo", None) is not None else kind


def _common_zone(name: str) -> str:
    """Return a time zone that all libraries have: UTC for a fixed offset of pandas."""
    try:
        return ZoneInfo(name).key
    except ZoneInfoNotFoundError:
        return "UTC"


def _read_zoned_dates(name: Any, values: np.ndarray, time_zone: str | None) -> Column:
    """Return a column of dates in the given time zone, else in their common zone, else in UTC."""
    names = {getattr(value.tzinfo, "key", None) for value in values if value is not None}
    time_zone = time_zone or (names.pop() if len(names) == 1 else None) or "UTC"
    zone = datetime.UTC if time_zone == "UTC" else ZoneInfo(time_zone)
    local = [value and value.astimezone(zone).replace(tzinfo=None) for value in values]
    return _read_dates(name, np.array(local), time_zone)
