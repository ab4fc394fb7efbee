"""What a file may hold: classes and functions register themselves here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable)

CLASSES: dict[str, type] = {}
ESTIMATORS: list[type] = []  # of these, what a file is of
FUNCTIONS: dict[str, Callable] = {}


def name_of(thing: Any) -> str:
    """Name a class or function by its library, so that it may move within it."""
    return f"{thing.__module__.split('.')[0]}.{thing.__qualname__}"


def storable(thing: T) -> T:
    """Register a class whose state a file may hold, or a function that it may name."""
    if isinstance(thing, type):
        CLASSES[name_of(thing)] = thing
    else:
        FUNCTIONS[name_of(thing)] = thing
    return thing


def storable_estimator(kind: T) -> T:
    """Register an estimator, with parameters, that is written into a file of its own."""
    ESTIMATORS.append(storable(kind))  # type: ignore[arg-type]
    return kind
