"""Columns of an array or a DataFrame as plain values, and strings that are numbers or dates."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product, repeat
from numbers import Real
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import narwhals as nw
import numpy as np

from .._utils.storable import storable
from .._utils.tables import INEXACT, to_objects
from .._utils.validation import are_missing, object_array
from .row import Level, Row
from .row_values import row_values

SHOWN = 80  # characters of a value in a message
NUMPY_TIMES = np.datetime64, np.timedelta64
PLAIN_NUMBERS = float, int, np.floating, np.integer, np.bool_
SECOND, EPOCH = np.timedelta64(1, "s"), np.datetime64(0, "us")

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
    kind: str  # 'number', 'duration', 'category', 'text', 'date', 'empty', 'ignored'
    values: np.ndarray  # (n,)
    levels: tuple | None = None  # ordered levels of an ordered category
    time_zone: str | None = None  # of dates; None: they are naive
    texts: np.ndarray | None = None  # strings as given, None if missing; unset for a categorical
    form: Any = None  # form by which strings were read: NumberForm or DateForm

    @property
    def label(self) -> str:
        """Return the column's name in messages."""
        return f"column {self.name!r}"

    @property
    def holds_strings(self) -> bool:
        """Return whether the values are strings, which were not read as numbers or dates."""
        return self.kind == "category" and self.texts is not None

    @property
    def contents(self) -> str:
        """Return the kind of the values, in words."""
        given = next((value for value in self.values if value is not None), None)
        if self.kind in ("empty", "ignored") or (self.kind == "category" and given is None):
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


def seconds_of(dates: np.ndarray) -> np.ndarray:
    """Return dates as seconds since 1970; NaT becomes NaN."""
    return (dates - EPOCH) / SECOND


def durations_of(seconds: np.ndarray) -> np.ndarray:
    """Return seconds as timedelta64[us], which are dates if EPOCH is added."""
    return (seconds * 1e6).round().astype("timedelta64[us]")


def read_columns(
    X: Any, time_zones: Sequence[str | None] | None = None, ignored: Container[int] = ()
) -> Iterator[Column]:
    """Yield the columns of a validated table, with dates in the given time zones.

    Of ignored columns, given by number, no value is read.
    """
    columns: Iterable
    read: Callable[..., Column]
    if isinstance(X, Row):
        columns, read = zip(X.names, X.cells, strict=True), _read_cell
    elif isinstance(X, np.ndarray):
        columns, read = enumerate(X.T), _read_array
    else:
        frame = nw.from_native(X, eager_only=True)
        columns, read = ((values.name, values) for values in frame.iter_columns()), _read_series
    pairs = zip(columns, time_zones or repeat(None), strict=False)
    for j, ((name, values), zone) in enumerate(pairs):
        if j in ignored:
            yield Column(name, "ignored", np.full(len(X), np.nan))
            continue
        try:
            yield read(name, values, zone)
        except ArithmeticError as error:  # a date that the time zone lacks, or Decimal("sNaN")
            raise ValueError(f"column {name!r} holds a value out of range: {error!r}") from error


def read_values(name: str, values: Any, time_zone: str | None = None) -> Column:
    """Return an array (n,), or a Series of any library, as a column."""
    series = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        return _read_series(name, series, time_zone)
    array = row_values(name, values)
    return _read_array(
        name, array.astype(object) if array.dtype.kind in "US" else array, time_zone
    )


def _read_series(name: Any, series: nw.Series, time_zone: str | None) -> Column:
    series, unread_zone = _as_known(series)
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
        return _read_strings(name, to_objects(series), time_zone)
    if dtype in (nw.Categorical, nw.Enum):
        levels = None
        # pandas' ordered categories are an Enum in narwhals. A polars Enum has no order.
        if isinstance(dtype, nw.Enum) and series.implementation.is_pandas_like():
            levels = tuple(dtype.categories)
        return _read_categories(name, to_objects(series), levels)
    native = str(getattr(series.to_native(), "dtype", dtype))
    if dtype in (nw.Object, nw.Time) or native.startswith(("period", "interval")):
        return _read_array(name, to_objects(series), time_zone)
    remedy = "convert it, or drop it"
    if native.startswith("Sparse"):
        remedy = "make X dense (X.sparse.to_dense()) or one sparse matrix (X.sparse.to_coo())"
    raise TypeError(
        f"column {name!r} holds {native}, which is no number, category, date or duration: {remedy}"
    )


def _as_known(series: nw.Series) -> tuple[nw.Series, str | None]:
    """Return a pandas Series with a type that narwhals knows, and its time zone if it does not.

    Dates become UTC. Numbers get the native byte order: a file may have the opposite.
    """
    native = series.to_native()
    dtype = getattr(native, "dtype", None)
    zone = getattr(dtype, "tz", None)
    if series.dtype != nw.Unknown:
        return series, None
    if zone is not None:
        return nw.from_native(native.dt.tz_convert("UTC"), series_only=True), str(zone)
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        plain = np.float64 if dtype.kind == "f" else dtype.newbyteorder("=")
        return nw.from_native(native.astype(plain), series_only=True), None
    return series, None


def _read_array(name: Any, values: np.ndarray, time_zone: str | None) -> Column:
    """Return a column of an array (n,), whose Python objects must be of one kind."""
    if values.dtype.kind != "O":
        kind = {"M": "dates", "m": "durations"}.get(values.dtype.kind, "numbers")
        return READERS[kind](name, values)
    values = _as_objects(values)
    kinds = [*_first_of_each_kind(values)]
    if not kinds:
        return _empty_column(name, len(values))
    if kinds == ["Period"]:  # of pandas; its date is its start
        starts = [value and value.start_time.to_pydatetime() for value in values]
        return _read_array(name, object_array(starts), time_zone)
    if kinds == [OF_A_ZONE]:  # dates in the given time zone, else in their common zone or UTC
        keys = {getattr(value.tzinfo, "key", None) for value in values if value is not None}
        time_zone = time_zone or (keys.pop() if len(keys) == 1 else None) or "UTC"
        zone = datetime.UTC if time_zone == "UTC" else ZoneInfo(time_zone)
        local = [value and value.astimezone(zone).replace(tzinfo=None) for value in values]
        return _read_dates(name, np.array(local), time_zone)
    if kinds == ["strings"]:
        return _read_strings(name, values, time_zone)
    if len(kinds) == 1 and kinds[0] in READERS:
        return READERS[kinds[0]](name, values)
    return _read_categories(name, values)


def _read_cell(name: Any, cell: Any, time_zone: str | None) -> Column:
    """Return the cell of a row as a column."""
    if isinstance(cell, str):
        return _read_strings(name, object_array([cell]), time_zone)
    if isinstance(cell, Level):
        levels = _as_objects(object_array([cell.value]))
        return _empty_column(name, 1) if levels[0] is None else _read_categories(name, levels)
    if isinstance(cell, NUMPY_TIMES):
        return _read_array(name, np.array([cell]), time_zone)
    if isinstance(cell, PLAIN_NUMBERS):
        return _read_numbers(name, np.array([cell], np.float64))
    return _read_array(name, object_array([cell]), time_zone)


def _as_objects(values: np.ndarray) -> np.ndarray:
    """Return a copy of the values as Python objects, None where they are missing."""
    values = values.astype(object)
    values[are_missing(values)] = None
    return values


def _read_strings(name: Any, values: np.ndarray, time_zone: str | None) -> Column:
    """Return a column of dates if all strings are ISO dates, else a column of categories."""
    category = Column(name, "category", values, texts=values)
    if not all(text is None or ISO_DATE.fullmatch(text) for text in values):
        return category
    read = datetime.datetime.fromisoformat
    try:
        dates = object_array([text and read(text) for text in values])
        if len(_first_of_each_kind(dates)) != 1:  # only a part has a time zone
            return category
        return replace(_read_array(name, dates, time_zone), texts=values)
    except (ValueError, OverflowError):  # such as February 30, or a date that the time zone lacks
        return category


def _empty_column(name: Any, n_rows: int) -> Column:
    return Column(name, "empty", np.full(n_rows, np.nan))


def _read_numbers(name: Any, values: np.ndarray) -> Column:
    values = values.astype(np.float64)
    if len(values) and np.isfinite(values).all():
        return Column(name, "number", values)
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


#: Marks of gaps beside numbers, in lower case.
GAPS = {"", "-", "--", ".", "?", "na", "n/a", "#n/a", "<na>", "nan", "nat", "nil", "none", "null"}
UNIT = re.compile(r"[%$€£¥₹]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD")
#: The sign between groups of three digits, by the sign before the decimals.
SEPARATORS = {".": ",", ",": "."}
NUMBERS = {
    decimal: re.compile(
        rf"[+-]?(([1-9]\d{{0,2}}([{group}]\d{{3}})+|\d+)([{decimal}]\d*)?|[{decimal}]\d+)"
        r"(e[+-]?\d+)?",
        re.ASCII | re.IGNORECASE,
    )
    for decimal, group in SEPARATORS.items()
}
WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
LEADING_ZERO = re.compile(r"[+-]?0\d", re.ASCII)
#: A number whose point, before three digits at the end, may separate thousands.
MAYBE_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)

#: Whole numbers may be codes if they have at most MOST_CODES levels, and at least ROWS_OF_A_CODE
#: rows per level on average.
MOST_CODES, ROWS_OF_A_CODE = 20, 2
YEARS = range(1800, 2100)
MOST_DIGITS = 15  # float64 represents all whole numbers of up to 15 digits
#: A column has a form if this share of a sample of its strings matches.
NEARLY, N_TRIED = 0.9, 200

#: Formats of days and of clock times, for strptime. In a date with points, the day comes first.
DAY_FIRST, MONTH_FIRST = "%d/%m/%Y", "%m/%d/%Y"
DIGITS_OF_A_DAY = "%Y%m%d"
#: A day of eight digits. strptime also accepts fewer digits and distant centuries: numbers.
EIGHT_DIGITS = re.compile(r"(18|19|20)\d{6}(?!\d)", re.ASCII)
DAYS = [
    DIGITS_OF_A_DAY,
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%d.%m.%Y",
    DAY_FIRST,
    MONTH_FIRST,
    "%b %d, %Y",
    "%d %b %Y",
    "%B %d, %Y",
    "%d %B %Y",
]
CLOCKS = "", " %H:%M", " %H:%M:%S"


@storable
@dataclass(frozen=True)
class NumberForm:
    """Read numbers that have the same unit, or none, and the same decimal sign."""

    unit: str = ""
    decimal: str = "."

    kind, dtype = "number", "float64"
    gap = np.nan
    converter = "pandas.to_numeric"

    def __str__(self) -> str:
        parts = [repr(self.unit)] * bool(self.unit) + ["decimal commas"] * (self.decimal == ",")
        return f"numbers with {' and '.join(parts)}" if parts else "numbers"

    def read(self, text: str) -> float | None:
        """Return the number in a string, or None if the string does not have the form."""
        head, unit, tail = text.partition(self.unit) if self.unit else ("", "", text)
        head, tail = head.strip(), tail.strip()
        between_digits = head not in ("", "+", "-") and tail != ""
        number = head + tail
        if unit != self.unit or between_digits or not NUMBERS[self.decimal].fullmatch(number):
            return None
        plain = number.replace(SEPARATORS[self.decimal], "").replace(self.decimal, ".")
        value = float(plain)
        return value if np.isfinite(value) else None


@storable
@dataclass(frozen=True)
class DateForm:
    """Read dates of one strptime format."""

    format: str

    kind, dtype = "date", "datetime64[us]"
    gap = np.datetime64("NaT", "us")
    converter = "pandas.to_datetime"

    def __str__(self) -> str:
        return f"dates of the form {self.format}"

    def read(self, text: str) -> datetime.datetime | None:
        """Return the date in a string, or None if the string does not have the form."""
        if self.format.startswith(DIGITS_OF_A_DAY) and not EIGHT_DIGITS.match(text):
            return None
        try:
            return datetime.datetime.strptime(text, self.format)
        except ValueError:
            return None


Form = NumberForm | DateForm


def read_strings(column: Column) -> Column:
    """Return a column of strings as numbers or dates if all strings have one form.

    Codes, and dates whose day and month may be exchanged, stay strings.
    """
    if not column.holds_strings:
        return column
    forms = _forms_of(column)
    return column if not forms or _day_may_be_month(forms) else _read_by(forms[0], column)


def read_as(column: Column, fitted: Column) -> Column:
    """Return a column of strings, read by the form of the column in fit, or as ISO dates."""
    if not column.holds_strings:
        return column
    if fitted.form is not None:
        return _read_by(fitted.form, column)
    if fitted.kind != "date":
        return column
    given: Any = column.texts
    texts = object_array([None if _is_gap(text) else text for text in given])
    for text in texts:
        if text is not None and not ISO_DATE.fullmatch(text):
            raise _unlike_in_fit(column, "dates", text)
    return read_values(column.name, texts, fitted.time_zone)


def has_two_readings(column: Column) -> bool:
    """Return whether strings are dates whose day and month may be exchanged."""
    return _day_may_be_month(_forms_of(column))


def unreadable_in(column: Column) -> str | None:
    """Return the first string without a form in a column where nearly all strings have one.

    Return None for categories, which are codes or few levels that repeat.
    """
    given = _given(column)
    texts = list(dict.fromkeys(given))
    if not texts or _are_few(len(texts), len(given)):
        return None
    # A leading zero is a code's if all strings have one length; otherwise it is a number's error.
    of_one_length = len(set(map(len, texts))) == 1
    padded = set() if of_one_length else {text for text in texts if LEADING_ZERO.match(text)}
    sample = texts[:: math.ceil(len(texts) / N_TRIED)]
    for form in _possible_forms(sample):
        of_numbers = form.kind == "number"
        wrong = padded if of_numbers else set()
        matching = [text for text in sample if text not in wrong and form.read(text) is not None]
        if len(matching) >= NEARLY * len(sample) and not (of_numbers and _are_codes(matching)):
            return next((t for t in texts if t in wrong or form.read(t) is None), None)
    return None


def describe_reading(column: Column) -> str:
    """Return a description of how strings were read: the longest string, and a mark of gaps."""
    assert column.texts is not None
    pairs = [*zip(column.texts, column.values, strict=True)]
    given = [(text, value) for text, value in pairs if not _is_gap(text)]
    text, value = max(given, key=lambda pair: len(pair[0]))
    mark = next((text for text, _ in pairs if text is not None and _is_gap(text)), None)
    gaps = "" if mark is None else f", and {mark!r} as missing"
    thousands = ""
    if column.form.kind == "number" and column.form.decimal == ".":
        points = [t.replace(column.form.unit, "").strip() for t, _ in given if "." in t]
        if points and all(map(MAYBE_THOUSANDS.fullmatch, points)):
            thousands = " (remove points if they separate thousands)"
    return f"as {column.form}, such as {text!r:.{SHOWN}} as {value}{gaps}{thousands}"


def _forms_of(column: Column) -> list[Form]:
    """Return the forms that fit all strings of a column; codes have no form of numbers."""
    texts = _given(column)
    forms = [f for f in _possible_forms(texts) if all(f.read(t) is not None for t in texts)]
    if any(form.kind == "number" for form in forms) and _are_codes(texts):
        return [form for form in forms if form.kind != "number"]
    return forms


def _possible_forms(texts: Sequence[str]) -> list[Form]:
    """Return candidate forms of strings; numbers have the first unit in the strings, if any."""
    if not texts:
        return []
    unit = next(filter(None, map(UNIT.search, texts)), None)
    dates = [DateForm(day + clock) for clock, day in product(CLOCKS, DAYS)]
    return [*dates, *(NumberForm(unit[0] if unit else "", decimal) for decimal in SEPARATORS)]


def _day_may_be_month(forms: list[Form]) -> bool:
    """Return whether both the day before the month and the month before the day fit."""
    dates = [form.format for form in forms if isinstance(form, DateForm)]
    return sum(date.startswith((DAY_FIRST, MONTH_FIRST)) for date in dates) > 1


def _read_by(form: Form, column: Column) -> Column:
    """Return a column of strings as numbers or dates; raise if a string lacks the form."""
    texts: Any = column.texts
    values = [form.gap if _is_gap(text) else form.read(text.strip()) for text in texts]
    for text, value in zip(texts, values, strict=True):
        if value is None:
            raise _unlike_in_fit(column, f"{form} as strings", text)
    return replace(column, kind=form.kind, values=np.array(values, form.dtype), form=form)


def _unlike_in_fit(column: Column, held: str, text: str) -> ValueError:
    return ValueError(
        f"{column.label} held {held} in fit, and holds {text!r:.{SHOWN}} now: correct it, or "
        "replace it by None"
    )


def _given(column: Column) -> list[str]:
    """Return the stripped strings of a column of strings that are not gaps."""
    assert column.texts is not None
    return [text.strip() for text in column.texts if not _is_gap(text)]


def _is_gap(text: str | None) -> bool:
    return text is None or text.strip().lower() in GAPS


def _are_codes(texts: Sequence[str]) -> bool:
    """Return whether strings are codes rather than numbers.

    Strings are codes if one has a leading zero. Whole numbers are codes, too, if all are years, if
    they are few and repeat, or if one has more digits than float64.
    """
    if any(map(LEADING_ZERO.match, texts)):
        return True
    if not all(map(WHOLE.fullmatch, texts)):
        return False
    if any(len(text) > MOST_DIGITS for text in texts):
        return True
    levels = {int(float(text)) for text in texts}
    return _are_few(len(levels), len(texts)) or all(level in YEARS for level in levels)


def _are_few(n_levels: int, n_rows: int) -> bool:
    """Return whether levels are few, and repeat."""
    return n_levels <= MOST_CODES and ROWS_OF_A_CODE * n_levels <= n_rows
