"""Trends: functions of the features whose values at a training row come from the remaining rows.

:class:`Trend` is the interface that a bank uses. :class:`CrossFittedTrend` is fitted to parts of
the rows. :class:`ClassTrend` turns a trend of one-hot rows into log probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from scipy.linalg import block_diag
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold
from torch import Tensor, nn

from .._utils.storable import storable
from .._utils.threads import cached_property, one_blas_thread
from .._utils.validation import spans_of

if TYPE_CHECKING:
    from .._data.sample import TableRows

#: Number of folds of a cross-fitted function, as usual in cross-validation.
N_FOLDS = 5
INVERSE_PENALTY, MAX_ITER = 10.0, 1000  # of the logistic regression
#: Range of the factor of the logarithms of a model's probabilities.
MODEL_SLOPES = 0.05, 3.0

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
        """Return values at the rows of `ids` if they had new features, (len(ids), n_outputs).

        A value changes by the change of the function that is fitted to all rows.
        """
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

    @property
    def grows(self) -> bool:
        """Return whether values at further queries depend on rows that are added."""
        return False

    def fixed(self) -> Self:
        """Return the trend for which added rows matter no more."""
        return self

    def covering(self, ids: np.ndarray, rows: TableRows, neighbors: Any) -> Self:
        """Return a fixed trend that has values at some rows of a bank."""
        return self

    def without(self, ids: np.ndarray) -> Self:
        """Return the trend without the rows of `ids`."""
        raise NotImplementedError

    def renumbered(self, ids: np.ndarray) -> Self:
        """Return the trend whose row i has the id ``ids[i]``, ascending."""
        own: Any = self
        return replace(own, ids=ids[own.ids])


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
        positions, values = np.searchsorted(self.ids, ids), self(rows)
        apart = self.values[positions] - self.fitted_values[positions]
        return values + torch.from_numpy(apart).to(values)

    def with_rows(
        self,
        ids: np.ndarray,
        rows: TableRows,
        neighbors: Any = None,
        groups: np.ndarray | None = None,
    ) -> Self:
        values, times = self(rows).cpu().numpy(), self.times
        every = np.append(self.ids, ids)
        order = every.argsort(kind="stable")
        if times is not None:
            times = np.append(times, np.full(len(ids), -np.inf))[order]
        return replace(
            self,
            ids=every[order],
            values=np.concatenate([self.values, values])[order],
            fitted_values=np.concatenate([self.fitted_values, values])[order],
            times=times,
        )

    def without(self, ids: np.ndarray) -> Self:
        kept, times, ends = ~np.isin(self.ids, ids), self.times, self.ends
        if times is not None:
            times = times[kept]
            if kept.any():  # else, as for shards, the ends stay
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


class LogProbabilities(nn.Module):
    """Map (n, C) to ``log softmax(values slopes + intercepts)`` per output in float64, (n, C).

    C is the number of classes of all outputs together.
    """

    slopes: Tensor  # (C, C), of logits (columns) by values (rows)
    intercepts: Tensor  # (C,)

    def __init__(self, slopes: Tensor, intercepts: Tensor, sizes: tuple[int, ...]):
        super().__init__()
        self.register_buffer("slopes", slopes)
        self.register_buffer("intercepts", intercepts)
        self.sizes = sizes

    def forward(self, values: Tensor) -> Tensor:
        blocks = (values @ self.slopes + self.intercepts).split(self.sizes, dim=1)
        return torch.cat([logits.log_softmax(dim=1) for logits in blocks], dim=1)


@storable
@dataclass(frozen=True, eq=False)
class ClassTrend(Trend):
    """Logarithms of the probabilities of classes, as a function of the features.

    A trend of one-hot targets has one value per class. A logistic regression on the left-out
    values at the training rows turns them into probabilities. The logarithms of a model's
    probabilities are multiplied by a single slope.
    """

    trend: Trend  # the function whose values are calibrated
    slopes: np.ndarray  # (C, C), of the logits by the values; 0 between outputs
    intercepts: np.ndarray  # (C,)
    sizes: tuple[int, ...]  # number of classes per output

    @classmethod
    def fit(
        cls,
        trend: Trend,
        ids: np.ndarray,
        rows: TableRows,
        y: np.ndarray,
        weights: np.ndarray,
        sizes: Sequence[int],
    ) -> ClassTrend:
        """Calibrate a trend's left-out values to weighted one-hot targets `y`, (n, C)."""
        values = trend.of_rows(ids, rows)
        calibrate = _scale if trend.takes_table else _regress
        by_output = [calibrate(values[:, some], y[:, some], weights) for some in spans_of(sizes)]
        slopes, intercepts = zip(*by_output, strict=True)
        return cls(trend, block_diag(*slopes), np.concatenate(intercepts), tuple(sizes))

    @property
    def takes_table(self) -> bool:
        return self.trend.takes_table

    @property
    def is_solved(self) -> bool:
        return self.trend.is_solved

    @cached_property
    def calibrated(self) -> LogProbabilities:
        """Return the module that maps values of the function to logarithms of probabilities."""
        slopes, intercepts = map(torch.from_numpy, (self.slopes, self.intercepts))
        return LogProbabilities(slopes, intercepts, self.sizes)

    @cached_property
    def function(self) -> nn.Module:
        """Return the module that maps encoded features to logarithms of probabilities."""
        trend: Any = self.trend
        return nn.Sequential(trend.function, self.calibrated)

    def __call__(self, rows: TableRows) -> Tensor:
        return self._calibrate(self.trend(rows))

    def from_earlier(self, rows: TableRows, cutoff_times: Tensor) -> Tensor:
        return self._calibrate(self.trend.from_earlier(rows, cutoff_times))

    def of_rows(
        self, ids: np.ndarray, rows: TableRows | None, cutoff_times: Tensor | None = None
    ) -> np.ndarray:
        values = self.trend.of_rows(ids, rows, cutoff_times)
        return self._calibrate(torch.from_numpy(values)).numpy()

    def moved(self, ids: np.ndarray, rows: TableRows) -> Tensor:
        return self._calibrate(self.trend.moved(ids, rows))

    def _calibrate(self, values: Tensor) -> Tensor:
        return self.calibrated.to(values.device)(values)

    def shifts(self, removed: np.ndarray, rows: TableRows) -> np.ndarray:
        """Return changes of values at queries where one row is removed; the calibration stays."""
        return self._calibrate_shifts(self.trend(rows).cpu(), self.trend.shifts(removed, rows))

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, rows: TableRows, query: int | None = None
    ) -> np.ndarray:
        shifts = self.trend.shifts_of_rows(removed, ids, rows, query)
        return self._calibrate_shifts(torch.from_numpy(self.trend.of_rows(ids, rows)), shifts)

    def _calibrate_shifts(self, values: Tensor, shifts: np.ndarray) -> np.ndarray:
        """Return changes of the logarithms, (q, n, C), where values (q, C) shift by `shifts`."""
        calibrated, moved = self.calibrated.cpu(), values[:, None] + torch.from_numpy(shifts)
        logarithms = calibrated(moved.flatten(0, 1)).reshape(moved.shape)
        return (logarithms - calibrated(values)[:, None]).numpy()

    def with_rows(
        self,
        ids: np.ndarray,
        rows: TableRows,
        neighbors: Any = None,
        groups: np.ndarray | None = None,
    ) -> ClassTrend:
        trend = self.trend.with_rows(ids, rows, neighbors, groups)
        return self if trend is self.trend else replace(self, trend=trend)

    def without(self, ids: np.ndarray) -> ClassTrend:
        """Return the trend without the rows of `ids`, with the same calibration.

        The value at a removed row is therefore its left-out value.
        """
        trend = self.trend.without(ids)
        return self if trend is self.trend else replace(self, trend=trend)

    def renumbered(self, ids: np.ndarray) -> ClassTrend:
        return replace(self, trend=self.trend.renumbered(ids))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out attributes that are computed from the fields."""
        return {field.name: vars(self)[field.name] for field in fields(self)}


def _scale(
    values: np.ndarray, one_hot: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a common slope of all classes, (c, c), of least log loss, and intercepts of 0."""

    def loss(slope: float) -> float:
        return -float(weights @ (one_hot * log_softmax(slope * values, axis=1)).sum(axis=1))

    slope = minimize_scalar(loss, bounds=MODEL_SLOPES, method="bounded").x
    return slope * np.eye(values.shape[1]), np.zeros(values.shape[1])


def _regress(
    values: np.ndarray, one_hot: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return slopes (c, c) and intercepts (c,) of a logistic regression of one output."""
    n_classes = one_hot.shape[1]
    if n_classes == 1:
        return np.zeros((1, 1)), np.zeros(1)
    regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=MAX_ITER)
    with one_blas_thread():
        regression.fit(values, one_hot.argmax(axis=1), weights)
    slopes, intercepts = regression.coef_, regression.intercept_
    if n_classes == 2:  # the regression has only the logit of the second class
        slopes = np.concatenate([0 * slopes, slopes])
        intercepts = np.concatenate([0 * intercepts, intercepts])
    return slopes.T, intercepts
