"""Slices that cover rows in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

EMBED_BLOCK = 4096  # rows embedded at a time: bounds the memory of wide hidden layers


def spans_of(sizes: Sequence[int]) -> list[slice]:
    """Consecutive slices of the given sizes."""
    return [slice(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]


def spans(n: int, size: int) -> list[slice]:
    """Consecutive slices of at most `size` rows that cover n rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
