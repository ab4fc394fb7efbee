"""Features that are numbers, of which each may have a function of its own."""

from __future__ import annotations

from torch import Tensor

MAX_WIDENED = 64  # features: more are an embedding as a rule, whose axes have no meaning


def real_valued(X: Tensor) -> list[int]:
    """Positions of the features of more than two values, among those of rows (n, n_features)."""
    return [j for j, column in enumerate(X.T) if len(column.unique()) > 2]
