"""Forms of numbers and dates that are written as strings."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from .._utils.storable import storable
from .columns import ISO_DATE, SHOWN, Column, read_values

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
    forms = _forms_of(column)
    if column.texts is None or not forms or _day_may_be_month(forms):
        return column
    return _read_by(forms[0], column.texts, column)


def read_as(column: Column, fitted: Column) -> Column:
    """Return a column of strings, read by the form of the column in fit, or as ISO dates."""
    if column.kind != "category" or column.texts is None:
        return column
    if fitted.form is not None:
        return _read_by(fitted.form, column.texts, column)
    if fitted.kind != "date":
        return column
    texts = np.array([None if _is_gap(text) else text for text in column.texts], dtype=object)
    for text in texts:
        if text is not None and not ISO_DATE.fullmatch(text):
            raise _unlike_in_fit(column, "dates", text)
    return read_values(column.name, texts, fitted.time_zone)


def has_two_readings(column: Column) -> bool:
    """Return whether a column holds strings of dates whose day and month may be exchanged."""
    return _day_may_be_month(_forms_of(column))


def unreadable_in(column: Column) -> str | None:
    """Return the first string without a form in a column where nearly all strings have one.

    Return None for categories, which are codes or few levels that repeat.
    """
    if column.kind != "category" or column.texts is None:
        return None
    given = _given(column)
    texts = list(dict.fromkeys(given))
    if not texts or _are_few(len(texts), len(given)):
        return None
    of_one_length = len(set(map(len, texts))) == 1
    sample = texts[:: math.ceil(len(texts) / N_TRIED)]
    for form in _possible_forms(sample):
        matching = [text for text in sample if _matches(form, text, of_one_length)]
        are_codes = form.kind == "number" and _are_codes(matching)
        if len(matching) >= NEARLY * len(sample) and not are_codes:
            return next((t for t in texts if not _matches(form, t, of_one_length)), None)
    return None


def _matches(form: Form, text: str, of_one_length: bool) -> bool:
    """Return whether a string has a form.

    A leading zero is a code's if all strings have one length; otherwise it is a number's error.
    """
    is_padded = form.kind == "number" and not of_one_length and LEADING_ZERO.match(text)
    return form.read(text) is not None and not is_padded


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
    if column.kind != "category" or column.texts is None:
        return []
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


def _read_by(form: Form, texts: np.ndarray, column: Column) -> Column:
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
    """Return the stripped strings of a column that are not gaps."""
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
