"""Trends: functions of the features whose values at a training row come from the remaining rows.

:class:`Trend` is the interface that a bank uses. :class:`CrossFittedTrend` is fitted to parts of
the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.model_selection import GroupKFold, KFold
from torch import Tensor

if TYPE_CHECKING:
    from .._data.sample import TableRows

#: Number of folds of a cross-fitted function, as usual in cross-validation.
N_FOLDS = 5

Part = tuple[np.ndarray, np.ndarray]  # rows to fit, and rows to predict


class Trend:
    """A function of the features in units of the targets, with the rows of a bank.

    For classes, the values are logarithms of probabilities. The value at a row of the trend comes
    from a function that is fitted to the remaining rows.
    """

    @property
    def takes_table(self) -> bool:
        """Return whether the trend is a model of the user, which reads rows of the table.

        Files and graphs cannot hold such a model. A trend of encoded features has gradients.
        """
        return False

    @property
    def is_solved(self) -> bool:
        """Return whether the trend is solved anew where rows are removed.

        The bank then stores the encoded features of all rows. Unless rows have times, the trend
        also has :meth:`shifts` and :meth:`shifts_of_rows`.
        """
        return False

    @property
    def leaves_out_single_rows(self) -> bool:
        """Return whether the trend has :meth:`residuals_without`."""
        return False

    @property
    def networks(self) -> Any:
        """Return the networks and the bank whose predictions are the trend, or None."""
        return None

    def __call__(self, rows: TableRows) -> Tensor:
        """Return values at queries, (q, n_outputs) in float64."""
        raise NotImplementedError

    def from_earlier(self, rows: TableRows, cutoff_times: Tensor) -> Tensor:
        """Return values at queries, (q, n_outputs), fitted to rows before cutoff times (q,)."""
        raise NotImplementedError

    def of_rows(
        self, ids: np.ndarray, rows: TableRows | None, cutoff_times: Tensor | None = None
    ) -> np.ndarray:
        """Return values at rows, (len(ids), n_outputs), fitted to the remaining rows.

        With cutoff times, (len(ids),), the function is fitted to earlier rows. A trend that is
        solved reads the features of the rows.
        """
        raise NotImplementedError

    def moved(self, ids: np.ndarray, rows: TableRows) -> Tensor:
        """Return values at the rows of `ids` if they had new features, (len(ids), n_outputs)."""
        raise NotImplementedError

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Return left-out residuals of rows where a query is removed, (q, len(ids), n_outputs)."""
        raise NotImplementedError(f"{type(self).__name__} does not leave out single rows")

    def shifts(self, removed: np.ndarray, rows: TableRows) -> np.ndarray:
        """Return changes of values at queries without a row, (q, len(removed), n_outputs)."""
        raise NotImplementedError(f"{type(self).__name__} does not leave out single rows")

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, rows: TableRows, query: int | None = None
    ) -> np.ndarray:
        """Return changes of left-out values at rows, (len(ids), len(removed), n_outputs).

        A `query`, an id, is left out as well.
        """
        raise NotImplementedError(f"{type(self).__name__} does not leave out single rows")

    def with_rows(
        self, ids: np.ndarray, rows: TableRows, neighbors: Any, groups: np.ndarray | None
    ) -> Self:
        """Return the trend with new rows of a bank, to which no function is fitted."""
        raise NotImplementedError

    def without(self, ids: np.ndarray) -> Self:
        """Return the trend without the rows of `ids`."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CrossFittedTrend(Trend):
    """A function of the features in units of the targets that is fitted to all rows.

    The value at a row of the trend comes from a function that is fitted to the remaining folds, to
    the remaining groups or to earlier rows. Functions stay where rows are removed.
    """

    ids: np.ndarray  # (n,), ascending
    values: np.ndarray  # (n, n_outputs) at the rows, of functions that are fitted to parts
    fitted_values: np.ndarray  # (n, n_outputs), of the function that is fitted to all rows
    functions: tuple[Any, ...]  # one, or with times one per part; the last is fitted to all rows
    ends: np.ndarray  # (n_functions,), latest time of a function's rows; the first is -inf
    times: np.ndarray | None = None  # (n,), of the rows; -inf for added rows

    @classmethod
    def from_parts(
        cls,
        ids: np.ndarray,
        parts: Sequence[Part],
        fits: Sequence[tuple[Any, np.ndarray]],
        times: np.ndarray | None,
        **fields: Any,
    ) -> Self:
        """Join functions that are fitted to parts, with values at the rows to predict.

        The last part holds all rows, and its function gives the values of rows that no part
        predicts.
        """
        function, fitted_values = fits[-1]
        values = fitted_values.copy()
        for (_, predicted), (_, predictions) in zip(parts[:-1], fits[:-1], strict=True):
            values[predicted] = predictions
        if times is None:
            return cls(ids, values, fitted_values, (function,), np.array([-np.inf]), **fields)
        ends = np.array([times[fitted].max(initial=-np.inf) for fitted, _ in parts])
        functions = tuple(f for f, _ in fits)
        return cls(ids, values, fitted_values, functions, ends, times, **fields)

    def evaluate(self, function: Any, rows: TableRows) -> Tensor:
        """Return values of a function, (n, n_outputs) in float64."""
        raise NotImplementedError

    def __call__(self, rows: TableRows) -> Tensor:
        return self.evaluate(self.functions[-1], rows)

    def from_earlier(self, rows: TableRows, cutoff_times: Tensor) -> Tensor:
        """Return values at queries of the last function before the cutoff times (q,).

        Before the first function, the value is the mean of the earliest rows.
        """
        chosen = np.searchsorted(self.ends, cutoff_times.cpu().numpy()).clip(1) - 1
        values = np.empty((len(chosen), self.values.shape[1]))
        for i in np.unique(chosen):
            queries = np.flatnonzero(chosen == i)
            some = rows if len(queries) == len(chosen) else rows[queries]
            values[queries] = self.evaluate(self.functions[i], some).cpu().numpy()
        return torch.from_numpy(values).to(cutoff_times.device)

    def of_rows(
        self, ids: np.ndarray, rows: TableRows | None = None, cutoff_times: Tensor | None = None
    ) -> np.ndarray:
        # With times, stored values come from earlier blocks: cutoff times are not needed.
        return self.values[np.searchsorted(self.ids, ids)]

    def moved(self, ids: np.ndarray, rows: TableRows) -> Tensor:
        """Return values at the rows of `ids` if they had new features, (len(ids), n_outputs).

        A value changes by the change of the function that is fitted to all rows.
        """
        positions, values = np.searchsorted(self.ids, ids), self(rows)
        return values + torch.from_numpy(
            self.values[positions] - self.fitted_values[positions]
        ).to(values)

    def with_rows(
        self,
        ids: np.ndarray,
        rows: TableRows,
        neighbors: Any = None,
        groups: np.ndarray | None = None,
    ) -> Self:
        values, times = self(rows).cpu().numpy(), self.times
        return replace(
            self,
            ids=np.concatenate([self.ids, ids]),
            values=np.concatenate([self.values, values]),
            fitted_values=np.concatenate([self.fitted_values, values]),
            times=None if times is None else np.append(times, np.full(len(ids), -np.inf)),
        )

    def without(self, ids: np.ndarray) -> Self:
        """Return the trend without the rows of `ids`, with the same functions.

        Times of removed rows are dropped, unless all rows are removed, as for shards.
        """
        kept, times, ends = ~np.isin(self.ids, ids), self.times, self.ends
        if times is not None:
            times = times[kept]
            if kept.any():
                ends = np.array([times[times <= end].max(initial=-np.inf) for end in ends])
        return replace(
            self,
            ids=self.ids[kept],
            values=self.values[kept],
            fitted_values=self.fitted_values[kept],
            ends=ends,
            times=times,
        )


def parts_of(n_rows: int, groups: np.ndarray | None, times: np.ndarray | None) -> Iterator[Part]:
    """Yield rows to fit and rows to predict, by folds of rows or groups, or by blocks of times.

    The rows to fit are empty before the earliest block of times, and for a single group.
    """
    if times is not None:
        order = times.argsort(kind="stable")
        first = times[order[np.arange(N_FOLDS + 1) * n_rows // (N_FOLDS + 1)]]
        starts = np.unique(np.searchsorted(times[order], first))  # rows of one time stay together
        for start, end in pairwise([*starts, n_rows]):
            yield np.sort(order[:start]), order[start:end]
        return
    rows, n_units = np.arange(n_rows), n_rows if groups is None else len(np.unique(groups))
    if n_units == 1:
        yield rows[:0], rows
        return
    # The folds are the same for every random_state, which would only add chance.
    n_folds = min(N_FOLDS, n_units)
    folds = KFold(n_folds, shuffle=True, random_state=0) if groups is None else GroupKFold(n_folds)
    yield from folds.split(rows, groups=groups)
