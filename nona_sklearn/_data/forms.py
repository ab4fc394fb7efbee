"""Forms in which people write numbers and dates as strings."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._utils.storable import storable
from .columns import ISO_DATE, SHOWN, Column, read_values

#: Marks of gaps beside numbers, in lower case.
GAPS = {"", "-", "--", ".", "?", "na", "n/a", "#n/a", "<na>", "nan", "nat", "nil", "none", "null"}
UNIT = re.compile(r"[%$€£¥₹]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD")
#: Signs before the decimals, and between groups of three digits.
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
DIGITS = re.compile(r"(18|19|20)\d{6}(?!\d)", re.ASCII)
#: Numbers that may be thousands: points, each before three digits at the end.
MAYBE_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
LEADING_ZERO = re.compile(r"[+-]?0\d", re.ASCII)
#: Of whole numbers that may be codes: no more levels, each in so many rows on average.
MOST_CODES, ROWS_OF_A_CODE = 20, 2
YEARS = range(1800, 2100)
#: A column is nearly all of one form, if so many of some of its strings have it.
NEARLY, N_TRIED = 0.9, 200
MOST_DIGITS = 15  # of which float64 represents all whole numbers

#: Forms of days, and of what may follow, for strptime. A day with points is before the month.
DAY_FIRST, MONTH_FIRST = "%d/%m/%Y", "%m/%d/%Y"
DIGITS_OF_A_DAY = "%Y%m%d"
DAYS = (
    *(DIGITS_OF_A_DAY, "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", DAY_FIRST, MONTH_FIRST),
    *("%b %d, %Y", "%d %b %Y", "%B %d, %Y", "%d %B %Y"),
)
CLOCKS = "", " %H:%M", " %H:%M:%S"


@storable
@dataclass(frozen=True)
class NumberForm:
    """Numbers that all have the same unit, or none, and the same decimal sign."""

    unit: str = ""
    decimal: str = "."

    kind, dtype = "number", "float64"
    gap = np.nan
    converter = "pandas.to_numeric"

    def __str__(self) -> str:
        parts = [repr(self.unit)] * bool(self.unit) + ["decimal commas"] * (self.decimal == ",")
        return f"numbers with {' and '.join(parts)}" if parts else "numbers"

    def read(self, text: str) -> float | None:
        """The number in a string; None, if it has another form."""
        head, unit, tail = text.partition(self.unit) if self.unit else ("", "", text)
        head, tail = head.strip(), tail.strip()
        between = head not in ("", "+", "-") and tail != ""
        if unit != self.unit or between or not NUMBERS[self.decimal].fullmatch(head + tail):
            return None
        digits = (head + tail).replace(SEPARATORS[self.decimal], "")
        number = float(digits.replace(self.decimal, "."))
        return number if np.isfinite(number) else None


@storable
@dataclass(frozen=True)
class DateForm:
    """Dates of one form, as for strptime."""

    format: str

    kind, dtype = "date", "datetime64[us]"
    gap = np.datetime64("NaT", "us")
    converter = "pandas.to_datetime"

    def __str__(self) -> str:
        return f"dates of the form {self.format}"

    def read(self, text: str) -> datetime.datetime | None:
        """The date in a string; None, if it has another form."""
        if self.format.startswith(DIGITS_OF_A_DAY) and not DIGITS.match(text):
            return None  # a number of other digits, or of another century
        try:
            return datetime.datetime.strptime(text, self.format)
        except ValueError:
            return None


Form = NumberForm | DateForm


def read_strings(column: Column) -> Column:
    """Read a column of strings as the numbers or dates that they all are, if all of one form.

    Others stay as they are, and so do codes, see :func:`_are_codes`, and dates whose day and month
    may be either.
    """
    forms = _forms_of(column)
    if column.texts is None or not forms or _are_either(forms):
        return column
    return _read_by(forms[0], column.texts, column)


def unreadable_in(column: Column) -> str | None:
    """The first string that is no number or date in a column where nearly all others are.

    None, if there is none: few levels that repeat, and codes, are categories.
    """
    if column.kind != "category" or column.texts is None:
        return None
    given = [text.strip() for text in column.texts if not _is_gap(text)]
    texts = list(dict.fromkeys(given))
    if not texts or _are_few(len(texts), len(given)):
        return None
    some = texts[:: math.ceil(len(texts) / N_TRIED)]
    of_one_length = len(set(map(len, texts))) == 1  # so are codes, whose zeros are no errors

    def has_form(text: str) -> bool:
        padded = form.kind == "number" and _is_padded(text) and not of_one_length
        return form.read(text) is not None and not padded

    for form in _forms_like(some):
        read = [text for text in some if has_form(text)]
        if len(read) >= NEARLY * len(some) and not (form.kind == "number" and _are_codes(read)):
            return next((text for text in texts if not has_form(text)), None)
    return None


def _is_padded(text: str) -> bool:
    return LEADING_ZERO.match(text) is not None


def has_two_readings(column: Column) -> bool:
    """Whether a column holds dates as strings in which day and month may be either."""
    return _are_either(_forms_of(column))


def _are_either(forms: list[Form]) -> bool:
    """Whether dates fit whose day is before the month, and such whose month is before the day."""
    dates = [form.format for form in forms if isinstance(form, DateForm)]
    return sum(date.startswith((DAY_FIRST, MONTH_FIRST)) for date in dates) > 1


def read_as(column: Column, other: Column) -> Column:
    """Read a column of strings as another column: by its form, or as dates of ISO 8601.

    Raises
    ------
    ValueError
        If a value has another form: it names column and value.
    """
    if column.kind != "category" or column.texts is None:
        return column
    if other.form is not None:
        return _read_by(other.form, column.texts, column)
    if other.kind != "date":
        return column
    texts = np.array([None if _is_gap(text) else text for text in column.texts], dtype=object)
    for text in texts:
        if text is not None and not ISO_DATE.fullmatch(text):
            raise _has_another_form(column, "dates", text)
    return read_values(column.name, texts, other.time_zone)


def _has_another_form(column: Column, form: Form | str, text: str) -> ValueError:
    return ValueError(
        f"{column.label} held {form} in fit, and holds {text!r:.{SHOWN}} now: correct it, or "
        "replace it by None"
    )


def _read_by(form: Form, texts: np.ndarray, column: Column) -> Column:
    values = [form.gap if _is_gap(text) else form.read(text.strip()) for text in texts]
    for text, value in zip(texts, values, strict=True):
        if value is None:
            raise _has_another_form(column, f"{form} as strings", text)
    return replace(column, kind=form.kind, values=np.array(values, form.dtype), form=form)


def _forms_of(column: Column) -> list[Form]:
    """The forms that all strings of a column have, without its gaps; of codes, no numbers."""
    if column.kind != "category" or column.texts is None:
        return []
    texts = [text.strip() for text in column.texts if not _is_gap(text)]
    forms = [form for form in _forms_like(texts) if all(form.read(t) is not None for t in texts)]
    of_codes = any(form.kind == "number" for form in forms) and _are_codes(texts)
    return [form for form in forms if not (of_codes and form.kind == "number")]


def _forms_like(texts: Sequence[str]) -> list[Form]:
    """The forms that strings may have: of numbers, with the unit of the first one that has one."""
    if not texts:
        return []
    unit = next(filter(None, map(UNIT.search, texts)), None)
    numbers = [NumberForm(unit[0] if unit else "", decimal) for decimal in SEPARATORS]
    return [*(DateForm(day + clock) for clock in CLOCKS for day in DAYS), *numbers]


def describe_reading(column: Column) -> str:
    """What the strings of a column were read as, in a message: the longest, and a mark of gaps."""
    assert column.texts is not None
    pairs = [*zip(column.texts, column.values, strict=True)]
    given = [(text, value) for text, value in pairs if not _is_gap(text)]
    text, value = max(given, key=lambda pair: len(pair[0]))
    mark = next((text for text, _ in pairs if text is not None and _is_gap(text)), None)
    gaps = "" if mark is None else f", and {mark!r} as missing"
    thousands = " (remove points if they separate thousands)" * _may_be_thousands(
        column.form, [text for text, _ in given]
    )
    return f"as {column.form}, such as {text!r:.{SHOWN}} as {value}{gaps}{thousands}"


def _may_be_thousands(form: Form, texts: list[str]) -> bool:
    """Whether there are points in numbers, and each is before three digits."""
    if not isinstance(form, NumberForm) or form.decimal != ".":
        return False
    points = [text.replace(form.unit, "").strip() for text in texts if "." in text]
    return bool(points) and all(map(MAYBE_THOUSANDS.fullmatch, points))


def _is_gap(text: str | None) -> bool:
    return text is None or text.strip().lower() in GAPS


def _are_codes(texts: Sequence[str]) -> bool:
    """Whether strings are names rather than numbers.

    They are if one has a leading zero, or if all are whole numbers that are years, or few that
    repeat, or one of which has more digits than float64.
    """
    if any(map(_is_padded, texts)):
        return True
    if not all(map(WHOLE.fullmatch, texts)):
        return False
    if any(len(text) > MOST_DIGITS for text in texts):
        return True
    levels = {int(float(text)) for text in texts}
    return _are_few(len(levels), len(texts)) or all(level in YEARS for level in levels)


def _are_few(n_levels: int, n_rows: int) -> bool:
    """Whether levels are few, and repeat."""
    return n_levels <= MOST_CODES and ROWS_OF_A_CODE * n_levels <= n_rows
