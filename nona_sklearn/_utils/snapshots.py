"""Snapshots of objects for readers, and replacement in one step by writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from .threads import ForkSafeLock

Thing = TypeVar("Thing")

EDITING = ForkSafeLock()  # one change of a fitted estimator at a time; readers take no lock


def snapshot(thing: Thing) -> Thing:
    """Return a copy of an object with its present attributes, which threads may replace."""
    copied = object.__new__(type(thing))
    vars(copied).update(vars(thing))
    return copied


@contextmanager
def replaced_when_done(
    thing: Thing, lock: AbstractContextManager[Any] | None = None
) -> Iterator[Thing]:
    """Yield a copy, whose attributes replace the object's in one step unless the block fails.

    The replacement holds a lock.
    """
    before, twin = vars(snapshot(thing)), snapshot(thing)
    yield twin
    with lock or nullcontext():
        # Attributes that a thread sets on the object meanwhile are kept.
        new = {k: value for k, value in vars(twin).items() if before.get(k, twin) is not value}
        dropped = before.keys() - vars(twin).keys()
        kept = {k: value for k, value in vars(thing).items() if k not in dropped}
        thing.__dict__ = kept | new
