"""Formatted values of pages: numbers of one unit, shares, entries of a table; and words."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from .._utils.validation import is_missing

MINUS = "\N{MINUS SIGN}"
MOST_DECIMALS = 6  # numbers with more decimals have an exponent
DIGITS = 6  # of a feature, and of the largest amount
LEAST_DECIMALS = 2  # of a feature that is not whole
SEPARATED = 10_000  # larger numbers have separated thousands; years are smaller
LARGEST_LOG = 700.0  # its exponential is finite
LEAST_SHARE = 0.0005  # the smallest share that is not written as 0


#: Texts of tables and pictures. Reports and the explorer's program fill in the values.
WORDS = {
    "beside": "The query and the rows behind its prediction",
    "adjusted": "adjusted to the query",
    "contribution": "contribution",
    "one_row": "One row makes up {share} of the prediction.",
    "some_rows": "These {n} rows make up {share} of the prediction.",
    "marked": " Yellow: the largest differences of each row.",
    "differs": " (differs)",
    "adds": "Their targets have a weighted mean of {mean}; the adjustment adds {amount}.",
    "takes": "Their targets have a weighted mean of {mean}; the adjustment takes {amount} away.",
    "dots": "Dots: {target}. Larger dots have more weight.",
    "rings": " Rings: adjusted to the query.",
    "line": " Line: the prediction, in its interval.",
    "dashed": " Dashed: the true value.",
    "further": "{n} further columns",
}


@dataclass(frozen=True)
class Unit:
    """The decimals of given and of computed numbers of one unit."""

    decimals: int | None = None  # of given numbers. None: the values are labels of classes
    place: int | None = None  # the decimals to which computed numbers are rounded; -2: to hundreds

    @classmethod
    def of(cls, values: Iterable[Any], width: float = 0.0) -> Unit:
        """Choose decimals so that the largest value has at least three digits.

        Computed numbers have three digits of an interval's width, if it is known.
        """
        given = [abs(float(v)) for v in values if isinstance(v, Real)]
        largest = max((value for value in given if math.isfinite(value)), default=0.0)
        if not largest:
            return cls(0, 0)
        power = math.floor(math.log10(largest))
        decimals = max(0, 2 - power)
        if not 0 < width < math.inf:
            return cls(decimals, decimals)
        place = min(2 - math.floor(math.log10(width)), DIGITS - 1 - power)
        return cls(max(decimals, place), place)

    def show(self, value: Any) -> str:
        """Return the text of a given number or a label. It is empty for NaN."""
        return _written(value, self.decimals)

    def rounded(self, value: Any) -> str:
        """Return the text of a computed number or a label. It is empty for NaN."""
        return _written(value, self.place)

    def signed(self, value: float) -> str:
        """Return the text of a computed amount with its sign. It is empty if rounded to 0."""
        text = _written(value, self.place, "+")
        return text if any(digit in text for digit in "123456789") else ""


def _written(value: Any, place: int | None, sign: str = "") -> str:
    """Return the text of a number with `place` decimals, or of a label. It is empty for NaN."""
    if place is None or not isinstance(value, Real):
        return show(value)
    if math.isnan(value):
        return ""
    if place > MOST_DECIMALS:
        text = f"{value:{sign}.3g}"
    else:  # z: -0 is written as 0
        text = f"{round(float(value), place):{sign}z,.{max(place, 0)}f}"
    return text.replace("-", MINUS)


def share(value: float) -> str:
    """Return the text of a share in per cent."""
    if 0 < value < LEAST_SHARE:
        return "<0.1%"
    return f"{value:.0%}" if value >= 0.095 or not value else f"{value:.1%}"


def signed_share(value: float) -> str:
    """Return the text of a share in per cent with its sign. It is empty if rounded to 0."""
    text = f"{value:+.0%}".replace("-", MINUS)
    return "" if text[1:] == "0%" else text


def odds(logarithm: float) -> str:
    """Return the text of odds, given their logarithm."""
    value = math.exp(min(logarithm, LARGEST_LOG))
    if 0.1 <= value < SEPARATED * 100:
        return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
    return f"{value:.2g}".replace("-", MINUS)


def factor(logarithm: float) -> str:
    """Return the text of a factor of odds, given its logarithm. It is empty if rounded to 1."""
    text = odds(logarithm)
    return "" if text == "1.00" else f"×{text}"


def show_value(value: Any) -> str:
    """Return the text of a feature. Large numbers have separated thousands."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or is_missing(value):
        return show(value)
    number = float(value)
    if not math.isfinite(number) or abs(number) >= 1e15:
        return show(value)
    whole = number == round(number)
    place = 0 if whole else math.floor(math.log10(abs(number)))
    decimals = 0 if whole else max(LEAST_DECIMALS, DIGITS - 1 - place)
    if decimals > 2 * MOST_DECIMALS:
        text = f"{number:.{DIGITS - 1}g}"
    else:
        text = f"{number:{',' if abs(number) >= SEPARATED else ''}.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if decimals else text
    return text.replace("-", MINUS)


def show(value: Any) -> str:
    """Return the text of an entry of a table."""
    if is_missing(value):
        return "missing"
    if isinstance(value, float | np.floating):
        number = float(value)
        return f"{number:.10g}" if abs(number) < 1e6 or number % 1 else f"{number:,.0f}"
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[s]").item()
    if isinstance(value, np.timedelta64):
        value = value.astype("timedelta64[us]").item()
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ").removesuffix(" 00:00:00")
    return str(value)


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text. An ellipsis replaces a longer end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
