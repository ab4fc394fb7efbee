"""Clear errors for parameters."""

from collections.abc import Collection
from numbers import Integral
from typing import Any


def is_whole(value: Any, low: int, high: float = float("inf")) -> bool:
    """Whether a value is an integer from low to high; True is none."""
    return isinstance(value, Integral) and value is not True and low <= int(value) <= high


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise a ValueError that names the parameter and its value unless it is a choice."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {sorted(choices)}, got {value!r}")
