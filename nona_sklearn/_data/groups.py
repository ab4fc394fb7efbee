"""Groups of rows: their names, and the numbers by which they are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.validation import are_missing
from .row_values import row_values
from .sample_weight import RowSelection

Further = tuple[np.ndarray, np.ndarray]


def number_groups(groups: Any, selection: RowSelection) -> tuple[np.ndarray, Tensor]:
    """Names of the groups of the selected rows, sorted, and each row's number among them, (n,)."""
    names, numbers = _unique(check_groups(groups, selection.n_given)[selection.numbers])
    if len(names) < 2:
        raise ValueError(f"groups must hold at least 2 different ones, all rows are in {names[0]}")
    return names, torch.from_numpy(numbers)


def number_further(groups: np.ndarray | None, n_rows: int, known: np.ndarray) -> Further:
    """Names of all groups, known ones first, and the number of each of some further rows.

    Without groups, each row is one by itself, which has no name: None.
    """
    if groups is None:
        return np.append(known, np.full(n_rows, None)), len(known) + np.arange(n_rows)
    found, numbers = _unique(groups)
    places = {name: place for place, name in enumerate(known.tolist())}
    new = [name for name in found.tolist() if name not in places]
    places |= {name: len(known) + place for place, name in enumerate(new)}
    names = np.empty(len(known) + len(new), dtype=object)
    names[:] = [*known.tolist(), *new]
    return names, np.array([places[name] for name in found.tolist()], dtype=int)[numbers]


def check_groups(groups: Any, n_rows: int) -> np.ndarray:
    """Validate groups of some rows: an array, (n_rows,).

    Raises
    ------
    ValueError
        If they are of another number or shape, or if one is missing.
    """
    groups = row_values("groups", groups)
    if groups.ndim == 2 and groups.shape[1] == 1:
        groups = groups[:, 0]
    if groups.ndim != 1:
        raise ValueError(f"groups must have shape ({n_rows},), got {groups.shape}")
    if len(groups) != n_rows:
        raise ValueError(f"groups must have a value for each of {n_rows} rows, got {len(groups)}")
    missing = np.flatnonzero(are_missing(groups))
    if len(missing):
        row = missing[0]
        raise ValueError(f"groups must not be missing, got {groups[row]} in row {row}")
    return groups


def _unique(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    try:
        return np.unique(groups, return_inverse=True)
    except TypeError:  # they cannot be sorted
        kinds = ", ".join(sorted({type(group).__name__ for group in groups}))
        raise ValueError(f"groups must be of one kind, got {kinds}") from None
