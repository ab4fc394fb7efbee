"""Values as people read them: numbers of one unit, shares, entries of a table."""

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
MOST_DECIMALS = 6  # beyond, with an exponent


@dataclass(frozen=True)
class Unit:
    """Numbers of one unit, with as many decimals as the largest needs for three digits.

    Without `decimals`, they are labels of classes.
    """

    decimals: int | None = None

    @classmethod
    def of(cls, values: Iterable[Any]) -> Unit:
        """Choose the decimals for some values; labels have none."""
        given = [abs(float(v)) for v in values if isinstance(v, Real)]
        largest = max((value for value in given if math.isfinite(value)), default=0.0)
        return cls(max(0, 2 - math.floor(math.log10(largest))) if largest else 0)

    def show(self, value: Any) -> str:
        """A number, a label or, of NaN, nothing."""
        if self.decimals is None or not isinstance(value, Real):
            return show(value)
        if math.isnan(value):
            return ""
        text = f"{value:,.{self.decimals}f}" if self.decimals <= MOST_DECIMALS else f"{value:.3g}"
        return text.replace("-", MINUS)

    def signed(self, value: float) -> str:
        """An amount that is added or taken away; empty, if it is 0 to these decimals."""
        few = self.decimals is not None and self.decimals <= MOST_DECIMALS
        text = f"{value:+,.{self.decimals}f}" if few else f"{value:+.3g}"
        text = text.replace("-", MINUS)
        return text if any(digit in text for digit in "123456789") else ""


def share(value: float) -> str:
    """A share, in percent."""
    return f"{value:.0%}" if value >= 0.095 or not value else f"{value:.1%}"


def signed_share(value: float) -> str:
    """A share that is added or taken away, in percent."""
    return f"{value:+.0%}".replace("-", MINUS)


def show(value: Any) -> str:
    """An entry of a table."""
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
