"""Levels of categories that only removed rows had."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from .._data.table_encoder import TableEncoder
from .._inference.bank import NeighborBank
from .._utils.snapshots import EDITING


def forget_levels(estimator: Any, before: NeighborBank) -> None:
    """Remove a level from the estimator's encoder if all its rows in the bank `before` have left.

    A level without rows in the bank `before`, such as after a compression, stays.
    """
    with EDITING.held():
        bank = estimator.bank_
        if before.levels is None or bank.levels is None or not hasattr(estimator, "features_"):
            return
        removed = torch.isin(before.ids.cpu(), bank.ids.cpu(), invert=True)
        encoder = estimator.features_
        estimator.features_ = without_levels(encoder, [before.levels[removed]], [bank.levels])


def without_levels(encoder: Any, removed: Iterable[Tensor], left: Iterable[Tensor]) -> Any:
    """Return the encoder without the levels that removed rows have, but no rows that are left.

    `removed` and `left` hold the levels of rows by bank, (n, n_categories).
    """
    if not isinstance(encoder, TableEncoder):
        return encoder
    gone = _distinct_levels(removed)
    if any(gone):
        gone = [a - b for a, b in zip(gone, _distinct_levels(left), strict=True)]
    return encoder.without_levels(gone) if any(gone) else encoder


def _distinct_levels(banks: Iterable[Tensor]) -> list[set[int]]:
    """Return the codes of the levels in all banks, one set per category."""
    columns = [[set(column.unique().tolist()) - {-1} for column in codes.T] for codes in banks]
    return [set().union(*category) for category in zip(*columns, strict=True)]
