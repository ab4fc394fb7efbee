"""A trend of classes: values of another trend, calibrated to logarithms of probabilities."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.linalg import block_diag
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from .._utils.chunks import spans_of
from .._utils.storable import storable
from .._utils.threads import cached_property, one_blas_thread
from .trend import Trend

INVERSE_PENALTY, MAX_ITER = 10.0, 1000  # of the logistic regression
SLOPES = 0.05, 3.0  # of the logarithms of a model's probabilities


class LogProbabilities(nn.Module):
    """``log softmax(values slopes + intercepts)`` of each output, in float64.

    (n, C) -> (n, C), where C are the classes of all outputs side by side.

    Parameters
    ----------
    slopes : Tensor of shape (C, C)
        The slope of each class's logit (columns) by each value (rows).
    intercepts : Tensor of shape (C,)
        The logits of values of 0.
    sizes : tuple of int
        Number of classes of each output.
    """

    slopes: Tensor
    intercepts: Tensor

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
class ClassTrend:
    """Logarithms of the probabilities of classes, as a function of the features.

    A trend of one-hot rows has a value for each class. A logistic regression on the values at the
    training rows, each of the function that is fitted to other rows, turns them into
    probabilities. The logarithms of a model's probabilities have one slope. The result at one of
    its own rows is of such a value, too.

    Parameters
    ----------
    trend : Trend
        The function whose values are calibrated.
    slopes : ndarray of shape (C, C)
        Slopes of the logits by the values; 0 between different outputs.
    intercepts : ndarray of shape (C,)
        The logits of values of 0.
    sizes : tuple of int
        Number of classes of each output.
    """

    trend: Trend
    slopes: np.ndarray
    intercepts: np.ndarray
    sizes: tuple[int, ...]

    leaves_out_single_rows: ClassVar[bool] = False  # votes have no residuals

    @classmethod
    def fit(
        cls, trend: Trend, ids: np.ndarray, X: Any, y: np.ndarray, weights: np.ndarray, sizes: Any
    ) -> ClassTrend:
        """Calibrate a function's left-out values at weighted one-hot rows `y`, (n, C)."""
        values = trend.of_rows(ids, X)
        calibrate = _scaled if trend.takes_table else _logistic
        each = [calibrate(values[:, own], y[:, own], weights) for own in spans_of(sizes)]
        slopes, intercepts = zip(*each, strict=True)
        return cls(trend, block_diag(*slopes), np.concatenate(intercepts), tuple(sizes))

    @property
    def takes_table(self) -> bool:
        """As the function."""
        return self.trend.takes_table

    def inputs_of(self, rows: Any) -> Any:
        """As the function."""
        return self.trend.inputs_of(rows)

    @property
    def is_data(self) -> bool:
        """As the function."""
        return self.trend.is_data

    @property
    def is_solved(self) -> bool:
        """As the function."""
        return self.trend.is_solved

    @cached_property
    def calibrated(self) -> LogProbabilities:
        """From values of the function to logarithms of probabilities."""
        slopes, intercepts = map(torch.from_numpy, (self.slopes, self.intercepts))
        return LogProbabilities(slopes, intercepts, self.sizes)

    @cached_property
    def function(self) -> nn.Module:
        """The function of a block of queries."""
        trend: Any = self.trend  # one whose values are a module's
        return nn.Sequential(trend.function, self.calibrated)

    def __call__(self, inputs: Any) -> Tensor:
        """Values at queries, (q, C) in float64, with gradients if they are encoded."""
        return self._of(self.trend(inputs))

    def from_earlier(self, inputs: Any, limits: Tensor) -> Tensor:
        """Values at queries, each of the function fitted to rows before a limit, (q,)."""
        return self._of(self.trend.from_earlier(inputs, limits))

    def of_rows(self, ids: np.ndarray, inputs: Any, limits: Tensor | None = None) -> np.ndarray:
        """Values at rows with these inputs, (len(ids), C), each fitted to other rows.

        With limits, (len(ids),), it is fitted to rows before the limit.
        """
        return self._of(torch.from_numpy(self.trend.of_rows(ids, inputs, limits))).numpy()

    def moved(self, ids: np.ndarray, inputs: Any) -> Tensor:
        """Values at rows if they had these features instead of theirs, (len(ids), C)."""
        return self._of(self.trend.moved(ids, inputs))

    def _of(self, values: Tensor) -> Tensor:
        return self.calibrated.to(values.device)(values)

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Refuse what predictions of classes do not need."""
        raise NotImplementedError("classes have no residuals")

    @property
    def has_shifts(self) -> bool:
        """Whether :meth:`shifts` are known."""
        return self.trend.has_shifts

    def shifts(self, removed: np.ndarray, X: Tensor) -> np.ndarray:
        """By how much values at queries change without each row, (q, len(removed), C).

        The calibration stays.
        """
        return self._calibrated_shifts(self.trend(X).cpu(), self.trend.shifts(removed, X))

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, X: Tensor, query: int | None = None
    ) -> np.ndarray:
        """The same of the values at rows, each fitted to other rows."""
        shifts = self.trend.shifts_of_rows(removed, ids, X, query)
        return self._calibrated_shifts(torch.from_numpy(self.trend.of_rows(ids, X)), shifts)

    def _calibrated_shifts(self, values: Tensor, shifts: np.ndarray) -> np.ndarray:
        """Changes of logarithms by those of values (q, C)."""
        calibrated, moved = self.calibrated.cpu(), values[:, None] + torch.from_numpy(shifts)
        found = calibrated(moved.flatten(0, 1)).reshape(moved.shape)
        return (found - calibrated(values)[:, None]).numpy()

    def with_rows(
        self, ids: np.ndarray, inputs: Any, rows: Any = None, groups: np.ndarray | None = None
    ) -> ClassTrend:
        """With further rows, to which neither the function nor the calibration is fitted."""
        return self._with(self.trend.with_rows(ids, inputs, rows, groups))

    def without(self, ids: np.ndarray) -> ClassTrend:
        """With fewer rows, and the same calibration.

        So the value of a kernel at a row that is removed is what it was while it was left out.
        """
        return self._with(self.trend.without(ids))

    def _with(self, trend: Trend) -> ClassTrend:
        return self if trend is self.trend else replace(self, trend=trend)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed from it."""
        return {field.name: vars(self)[field.name] for field in fields(self)}


def _scaled(
    values: np.ndarray, one_hot: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same slope for all classes, (c, c), with the least log loss, and intercepts of 0."""

    def loss(slope: float) -> float:
        return -float(weights @ (one_hot * log_softmax(slope * values, axis=1)).sum(axis=1))

    slope = minimize_scalar(loss, bounds=SLOPES, method="bounded").x
    return slope * np.eye(values.shape[1]), np.zeros(values.shape[1])


def _logistic(
    values: np.ndarray, one_hot: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Slopes (c, c) and intercepts (c,) of a logistic regression of an output's classes."""
    n_classes = one_hot.shape[1]
    if n_classes == 1:
        return np.zeros((1, 1)), np.zeros(1)
    regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=MAX_ITER)
    with one_blas_thread():
        regression.fit(values, one_hot.argmax(axis=1), weights)
    slopes, intercepts = regression.coef_, regression.intercept_
    if n_classes == 2:  # the logit of the second class alone
        slopes, intercepts = (np.concatenate([0 * each, each]) for each in (slopes, intercepts))
    return slopes.T, intercepts
