"""Slices that cover rows, some at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def spans_of(sizes: Sequence[int]) -> list[slice]:
    """Slices of these sizes, one behind the other."""
    ends = list(accumulate(sizes))
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def spans(n: int, size: int) -> list[slice]:
    """Slices of at most `size` that cover n rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


EMBED_BLOCK = 4096  # rows embedded at a time: bounds the memory of wide hidden layers
