"""What a trend can do, whatever function it is."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from torch import Tensor


class Trend(Protocol):
    """A function f of the features in units of the targets, with the rows of a bank.

    Of classes, it is the logarithm of their probabilities. Its value at one of its rows is that
    of a function which is fitted to other rows. Its inputs are encoded features, rows of a table,
    or both.
    """

    @property
    def takes_table(self) -> bool:
        """Whether its inputs have rows of the table as they were given.

        Otherwise they are encoded, and values have gradients with respect to them.
        """

    def inputs_of(self, rows: Any, /) -> Any:
        """Its inputs of rows that are in both forms, as queries have them."""

    @property
    def is_data(self) -> bool:
        """Whether it consists of numbers alone, which files and graphs hold."""

    @property
    def is_solved(self) -> bool:
        """Whether it is solved anew where rows are removed, and its values at others change.

        A bank keeps the inputs of all rows then, for these values.
        """

    @property
    def leaves_out_single_rows(self) -> bool:
        """Whether :meth:`residuals_without` one row is known."""

    def __call__(self, inputs: Any, /) -> Tensor:
        """Values at queries, (q, n_outputs), in float64."""

    def from_earlier(self, inputs: Any, /, limits: Tensor) -> Tensor:
        """Values at queries, each of a function fitted to rows before a limit, (q,)."""

    def of_rows(self, ids: np.ndarray, inputs: Any, /, limits: Tensor | None = None) -> np.ndarray:
        """Values at rows with these inputs, (len(ids), n_outputs), each fitted to other rows.

        With times and limits, (len(ids),), it is fitted to rows before the limit.
        """

    def moved(self, ids: np.ndarray, inputs: Any, /) -> Tensor:
        """Values at some of its rows if they had other features, (len(ids), n_outputs)."""

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Residuals of some of its rows without each query, too, (q, len(ids), n_outputs)."""

    @property
    def has_shifts(self) -> bool:
        """Whether it is known by how much values change without single rows."""

    def shifts(self, removed: np.ndarray, inputs: Any, /) -> np.ndarray:
        """By how much values at queries change without each row, (q, len(removed), n_outputs)."""

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, inputs: Any, /, query: int | None = None
    ) -> np.ndarray:
        """The same of the values at rows, (len(ids), len(removed), n_outputs).

        Each is fitted to other rows; without a `query`, too, as :meth:`residuals_without`.
        """

    def with_rows(
        self, ids: np.ndarray, inputs: Any, rows: Any, groups: np.ndarray | None, /
    ) -> Trend:
        """With further rows, as a bank stores them, and their groups if any.

        A function is not fitted to them.
        """

    def without(self, ids: np.ndarray) -> Trend:
        """With fewer rows."""


def values_at(trend: Trend, inputs: Any, limits: Tensor | None) -> Tensor:
    """Values at queries, (q, n_outputs), of earlier rows if they have limits."""
    return trend(inputs) if limits is None else trend.from_earlier(inputs, limits)
