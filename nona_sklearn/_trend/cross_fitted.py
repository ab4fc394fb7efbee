"""Trends by functions that are fitted to parts of the rows, and predict others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils import _safe_indexing
from torch import Tensor

N_FOLDS = 5

Part = tuple[np.ndarray, np.ndarray]  # rows to fit, and rows to predict


@dataclass(frozen=True, eq=False)
class CrossFittedTrend:
    """A function of the features in units of the targets, which is fitted to all rows.

    The value at one of its rows is that of a function which is fitted to other folds, to other
    groups or to earlier rows. No function is fitted again where rows are removed.

    Parameters
    ----------
    ids : int ndarray of shape (n,)
        Ids of its rows, ascending.
    values : ndarray of shape (n, n_outputs)
        Its values at them, each from other rows.
    own : ndarray of shape (n, n_outputs)
        The values there of the function that is fitted to all rows.
    functions : tuple
        This function; with times, after those that are fitted to the earlier rows alone.
    ends : ndarray of shape (n_functions,)
        The latest time of the rows to which each is fitted, ascending; -inf of the first.
    times : ndarray of shape (n,), optional
        Times of its rows; -inf of those that are added.
    """

    ids: np.ndarray
    values: np.ndarray
    own: np.ndarray
    functions: tuple[Any, ...]
    ends: np.ndarray
    times: np.ndarray | None = None

    is_solved: ClassVar[bool] = False
    leaves_out_single_rows: ClassVar[bool] = False
    has_shifts: ClassVar[bool] = False

    @classmethod
    def joined(
        cls,
        ids: np.ndarray,
        parts: Sequence[Part],
        found: Sequence[tuple[Any, np.ndarray]],
        times: np.ndarray | None,
        **further: Any,
    ) -> Self:
        """Of what is fitted to each part, and its values at the rows to predict.

        The last part is of all rows. Rows of no other part have its values.
        """
        *others, (function, own) = found
        values = own.copy()
        for (_, predicted), (_, of_part) in zip(parts[:-1], others, strict=True):
            values[predicted] = of_part
        if times is None:
            return cls(ids, values, own, (function,), np.array([-np.inf]), **further)
        ends = np.array([times[fitted].max(initial=-np.inf) for fitted, _ in parts])
        functions = tuple(each for each, _ in found)
        return cls(ids, values, own, functions, ends, times, **further)

    def evaluate(self, function: Any, inputs: Any) -> Tensor:
        """Values of one of the functions, (n, n_outputs) in float64."""
        raise NotImplementedError

    def __call__(self, inputs: Any) -> Tensor:
        """Values at queries, (q, n_outputs) in float64."""
        return self.evaluate(self.functions[-1], inputs)

    def from_earlier(self, inputs: Any, limits: Tensor) -> Tensor:
        """Values at queries, each of the last function that is fitted to rows before its limit.

        Where there is none, it is the mean of the earliest rows.
        """
        chosen = np.searchsorted(self.ends, limits.cpu().numpy()).clip(1) - 1
        values = np.empty((len(chosen), self.values.shape[1]))
        for number in np.unique(chosen):
            rows = np.flatnonzero(chosen == number)
            some = inputs if len(rows) == len(chosen) else _safe_indexing(inputs, rows)
            values[rows] = self.evaluate(self.functions[number], some).cpu().numpy()
        return torch.from_numpy(values).to(limits.device)

    def of_rows(
        self, ids: np.ndarray, inputs: Any = None, limits: Tensor | None = None
    ) -> np.ndarray:
        """Values at some of its rows, each from other rows, (len(ids), n_outputs).

        They are stored. With times they are from earlier blocks, and no limits are as exact.
        """
        return self.values[np.searchsorted(self.ids, ids)]

    def moved(self, ids: np.ndarray, inputs: Any) -> Tensor:
        """Values at some of its rows if they had other features, (len(ids), n_outputs).

        They change as the function that is fitted to all rows does.
        """
        positions, found = np.searchsorted(self.ids, ids), self(inputs)
        return found + torch.from_numpy(self.values[positions] - self.own[positions]).to(found)

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Refuse what would need a fit for each row."""
        raise NotImplementedError("a cross-fitted function is not fitted again without each row")

    def shifts(self, removed: np.ndarray, inputs: Any) -> np.ndarray:
        """Refuse what would need a fit for each row."""
        raise NotImplementedError("a cross-fitted function is not fitted again without each row")

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, inputs: Any, query: int | None = None
    ) -> np.ndarray:
        """Refuse what would need a fit for each row."""
        raise NotImplementedError("a cross-fitted function is not fitted again without each row")

    def with_rows(
        self, ids: np.ndarray, inputs: Any, rows: Any = None, groups: np.ndarray | None = None
    ) -> Self:
        """With further rows, to which the function is not fitted."""
        values, times = self(inputs).cpu().numpy(), self.times
        return replace(
            self,
            ids=np.concatenate([self.ids, ids]),
            values=np.concatenate([self.values, values]),
            own=np.concatenate([self.own, values]),
            times=None if times is None else np.append(times, np.full(len(ids), -np.inf)),
        )

    def without(self, ids: np.ndarray) -> Self:
        """With fewer rows, and the same functions, which were fitted to those that are removed.

        No time of a row that is removed stays, unless all are, as beside shards.
        """
        kept, times, ends = ~np.isin(self.ids, ids), self.times, self.ends
        if times is not None:
            times = times[kept]
            if kept.any():
                ends = np.array([times[times <= end].max(initial=-np.inf) for end in ends])
        values, own = self.values[kept], self.own[kept]
        return replace(self, ids=self.ids[kept], values=values, own=own, ends=ends, times=times)


def parts_of(n_rows: int, groups: np.ndarray | None, times: np.ndarray | None) -> Iterator[Part]:
    """Rows to fit and rows to predict: of other folds, of other groups, or earlier and later ones.

    There are none to fit before the earliest block of times, nor beside a single group.
    """
    if times is not None:
        order = times.argsort(kind="stable")
        first = times[order[np.arange(N_FOLDS + 1) * n_rows // (N_FOLDS + 1)]]
        starts = np.unique(np.searchsorted(times[order], first))  # rows of one time stay together
        for start, end in pairwise([*starts, n_rows]):
            yield np.sort(order[:start]), order[start:end]
        return
    rows, units = np.arange(n_rows), n_rows if groups is None else len(np.unique(groups))
    if units == 1:
        yield rows[:0], rows
        return
    # The folds are the same for every random_state: others would only add chance.
    n_folds = min(N_FOLDS, units)
    folds = KFold(n_folds, shuffle=True, random_state=0) if groups is None else GroupKFold(n_folds)
    yield from folds.split(rows, groups=groups)
