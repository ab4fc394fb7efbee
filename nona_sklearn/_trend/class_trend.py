"""A trend of classes: values of a trend, calibrated to logarithms of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.linalg import block_diag
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from .._utils.arrays import spans_of
from .._utils.storable import storable
from .._utils.threads import cached_property, one_blas_thread
from .trend import Trend

if TYPE_CHECKING:
    from .._data.sample import TableRows

INVERSE_PENALTY, MAX_ITER = 10.0, 1000  # of the logistic regression
#: Range of the factor of the logarithms of a model's probabilities.
MODEL_SLOPES = 0.05, 3.0


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
        slopes, intercepts = [], []
        for output in spans_of(sizes):
            slope, intercept = calibrate(values[:, output], y[:, output], weights)
            slopes.append(slope)
            intercepts.append(intercept)
        return cls(trend, block_diag(*slopes), np.concatenate(intercepts), tuple(sizes))

    @property
    def takes_table(self) -> bool:
        """Return whether the function reads rows of the table as they were given."""
        return self.trend.takes_table

    @property
    def is_solved(self) -> bool:
        """Return whether the function is solved anew where rows are removed."""
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
        return self._calibrate(
            torch.from_numpy(self.trend.of_rows(ids, rows, cutoff_times))
        ).numpy()

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
