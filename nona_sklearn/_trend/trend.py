"""Trends: functions of the features whose values at a training row come from the remaining rows.

:class:`Trend` is what a bank asks of them; :class:`CrossFittedTrend` is fitted to parts of rows.
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

#: Parts of the rows that a cross-fitted function predicts, as usual in cross-validation.
N_FOLDS = 5

Part = tuple[np.ndarray, np.ndarray]  # rows to fit, and rows to predict


class Trend:
    """A function f of the features in units of the targets, with the rows of a bank.

    For classes it is the logarithm of their probabilities. Its value at one of its rows comes from
    a function that is fitted to the remaining rows.
    """

    @property
    def takes_table(self) -> bool:
        """Whether it reads rows of the table as they were given: it is a model of the user's.

        No file or graph holds one. Otherwise it reads encoded features, and has gradients.
        """
        return False

    @property
    def is_solved(self) -> bool:
        """Whether it is solved anew where rows are removed, which changes its values elsewhere.

        A bank keeps the encoded features of all rows for these values. Unless rows have times, the
        trend also has :meth:`shifts` and :meth:`shifts_of_rows`.
        """
        return False

    @property
    def leaves_out_single_rows(self) -> bool:
        """Whether it has :meth:`residuals_without`."""
        return False

    @property
    def networks(self) -> Any:
        """The network and the bank whose predictions it is; None: it is no trend of networks."""
        return None

    def __call__(self, rows: TableRows) -> Tensor:
        """Values at queries, (q, n_outputs) in float64."""
        raise NotImplementedError

    def from_earlier(self, rows: TableRows, cutoff_times: Tensor) -> Tensor:
        """Values at queries, each of a function fitted to rows before its cutoff time, (q,)."""
        raise NotImplementedError

    def of_rows(
        self, ids: np.ndarray, rows: TableRows | None, cutoff_times: Tensor | None = None
    ) -> np.ndarray:
        """Values at its rows, (len(ids), n_outputs), each of a function fitted to remaining rows.

        With cutoff times, (len(ids),), the function is fitted to rows before them. A trend that is
        solved reads the features of the rows.
        """
        raise NotImplementedError

    def moved(self, ids: np.ndarray, rows: TableRows) -> Tensor:
        """Values at its rows if they had these features, (len(ids), n_outputs)."""
        raise NotImplementedError

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Residuals of its rows without each query as well, (q, len(ids), n_outputs)."""
        raise NotImplementedError(f"{type(self).__name__} does not leave out single rows")

    def shifts(self, removed: np.ndarray, rows: TableRows) -> np.ndarray:
        """Changes of the values at queries without each row, (q, len(removed), n_outputs)."""
        raise NotImplementedError(f"{type(self).__name__} does not leave out single rows")

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, rows: TableRows, query: int | None = None
    ) -> np.ndarray:
        """Changes of the values at its rows, (len(ids), len(removed), n_outputs).

        With a `query`, an id, the values are those without this row as well.
        """
        raise NotImplementedError(f"{type(self).__name__} does not leave out single rows")

    def with_rows(
        self, ids: np.ndarray, rows: TableRows, neighbors: Any, groups: np.ndarray | None
    ) -> Self:
        """The trend with new rows of a bank and their groups. No function is fitted to them."""
        raise NotImplementedError

    def without(self, ids: np.ndarray) -> Self:
        """The trend without some rows."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CrossFittedTrend(Trend):
    """A function of the features in units of the targets, which is fitted to all rows.

    The value at one of its rows is that of a function which is fitted to the remaining folds, to
    the remaining groups or to earlier rows. No function is fitted again where rows are removed.
    """

    ids: np.ndarray  # (n,), ascending
    values: np.ndarray  # (n, n_outputs) at its rows, of functions that are fitted to parts of them
    fitted_values: np.ndarray  # (n, n_outputs), of the function that is fitted to all rows
    functions: tuple[Any, ...]  # this function; with times, after those fitted to earlier rows
    ends: np.ndarray  # (n_functions,), the latest time of the rows of a function; the first: -inf
    times: np.ndarray | None = None  # (n,), of its rows; -inf for added rows

    @classmethod
    def from_parts(
        cls,
        ids: np.ndarray,
        parts: Sequence[Part],
        fits: Sequence[tuple[Any, np.ndarray]],
        times: np.ndarray | None,
        **fields: Any,
    ) -> Self:
        """Join the functions that are fitted to parts, with their values at the rows to predict.

        The last part is all rows. A row that no part predicts has the values of the last function.
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
        """Values of one of the functions, (n, n_outputs) in float64."""
        raise NotImplementedError

    def __call__(self, rows: TableRows) -> Tensor:
        return self.evaluate(self.functions[-1], rows)

    def from_earlier(self, rows: TableRows, cutoff_times: Tensor) -> Tensor:
        """Values at queries, each of the last function of rows before its cutoff time.

        Where there is none, it is the mean of the earliest rows.
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
        # With times the stored values are of earlier blocks: no cutoff time is as exact.
        return self.values[np.searchsorted(self.ids, ids)]

    def moved(self, ids: np.ndarray, rows: TableRows) -> Tensor:
        """Values at its rows if they had these features, (len(ids), n_outputs).

        They change as the function that is fitted to all rows does.
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
        """The trend without some rows, and the same functions, which were fitted to these rows.

        No time of a removed row stays, unless all rows are removed, as beside shards.
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
    """Rows to fit and rows to predict: folds of rows or of groups, or earlier and later rows.

    There are none to fit before the earliest block of times, nor beside a single group.
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
