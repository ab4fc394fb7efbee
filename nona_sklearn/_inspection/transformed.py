"""Predictions in the units of `y`, for an estimator that was fitted to transformed targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from .._data.targets import check_targets
from .._estimators.regression import NeighborRegressor, check_return_std
from .._utils.validation import check_levels, check_numbers

NODES = np.linspace(-5, 5, 101)  # normal scores of the quantiles in a quadrature
CHECKED = 65  # values at which a transformation is checked to be monotonic
LARGEST = 1e300  # stands for infinity, which no target reaches


@dataclass(frozen=True)
class TransformedTargets:
    """Predictions of a regressor in the units of the targets before their transformation.

    Its methods of prediction are those of the regressor.

    Parameters
    ----------
    estimator : NeighborRegressor
        Fitted.
    transformers : tuple of transformer
        The transformations of the targets, first to last.
    """

    estimator: NeighborRegressor
    transformers: tuple

    def forward(self, y: Any) -> np.ndarray:
        """Transform targets (n,) or (n, n_outputs), as for a fit."""
        y = check_targets(y)
        columns = self._forward(y.reshape(len(y), -1))
        lost = np.flatnonzero(~np.isfinite(columns).all(axis=1))
        if len(lost):
            raise ValueError(
                "y must be what the model's transformer takes, got "
                f"{y[lost[0]].tolist()!r} in row {lost[0]}"
            )
        return _without_single(columns)

    @np.errstate(all="ignore")  # the callers check the result
    def _forward(self, columns: np.ndarray) -> np.ndarray:
        for transformer in self.transformers:
            columns = np.asarray(transformer.transform(columns)).reshape(len(columns), -1)
        return columns

    def back(self, values: np.ndarray) -> np.ndarray:
        """Transform values of shape (..., n_outputs) back; a row with NaN becomes NaN."""
        rows = values.reshape(-1, values.shape[-1])
        known = np.isfinite(rows).all(axis=1)
        columns = rows[known]
        for transformer in reversed(self.transformers):
            undone = np.asarray(transformer.inverse_transform(columns))
            columns = undone.reshape(len(columns), -1)
        found = np.full((len(rows), columns.shape[1]), np.nan)
        found[known] = columns
        return found.reshape(*values.shape[:-1], -1)

    def decode(self, values: np.ndarray, n_axes: int = 1) -> np.ndarray:
        """Transform back an array of some axes and, of several outputs, one more for them."""
        return _without_single(self.back(values.reshape(*values.shape[:n_axes], -1)))

    def _is_increasing(self) -> np.ndarray:
        """Whether each output increases with the transformed one, bool (n_outputs,)."""
        columns = self.estimator.bank_.neighbors.columns.cpu().numpy()
        low, high = columns.min(axis=0), columns.max(axis=0)
        alone = np.eye(len(low), dtype=bool)  # in row j only output j is high
        lowest, changed = self.back(low[None]), self.back(np.where(alone, high, low))
        if changed.shape != alone.shape or not np.isclose(changed, lowest)[~alone].all():
            raise ValueError(
                "the distribution of a target that is transformed together with others is not "
                "known, only draws from it: use sample_y"
            )
        between = self.back(low + (high - low) * np.linspace(0, 1, CHECKED)[:, None])
        steps, increasing = np.diff(between, axis=0), (changed >= lowest)[alone]
        if not (np.where(increasing, steps, -steps) >= 0).all():
            raise ValueError(
                "the distribution of a target that rises and falls with the transformed target "
                "is not known, only draws from it: use sample_y"
            )
        return increasing

    def predict(self, X, return_std=False, quantiles=None):
        check_return_std(return_std, quantiles)
        if quantiles is not None:
            return self.predict_quantiles(X, quantiles)
        mean = self.decode(self.estimator.predict(X))
        return (mean, self._std(X)) if return_std else mean

    def _std(self, X) -> np.ndarray:
        """Standard deviations by quadrature, over quantiles at equally spaced normal scores."""
        quantiles = self.predict_quantiles(X, ndtr(NODES))
        weights = np.exp(-(NODES**2) / 2)
        mean = np.average(quantiles, axis=1, weights=weights, keepdims=True)
        return np.sqrt(np.average((quantiles - mean) ** 2, axis=1, weights=weights))

    def predict_quantiles(self, X, quantiles=(0.1, 0.5, 0.9)):
        levels, increasing = check_levels(quantiles).numpy(), self._is_increasing()
        both = self.estimator.predict_quantiles(X, np.concatenate([levels, 1 - levels]))
        both = self.back(both.reshape(*both.shape[:2], -1))
        up, down = np.split(both, 2, axis=1)
        values = _without_single(np.where(increasing, up, down))
        return values[:, 0] if np.ndim(quantiles) == 0 else values

    def predict_cdf(self, X, y):
        values, increasing = check_numbers(y, "y").numpy(), self._is_increasing()
        points = self._forward(np.repeat(values[:, None], len(increasing), axis=1))
        if np.isnan(points).any():
            raise ValueError(f"y must be what the target can be, got {y!r}")
        points = np.clip(points, -LARGEST, LARGEST)  # (k, n_outputs)
        # Of a decreasing one, the target is at most y where the transformed is at least the point.
        points = np.where(increasing, points, np.nextafter(points, -np.inf))
        cdf = self.estimator.predict_cdf(X, points.ravel())
        cdf = cdf.reshape(len(cdf), *points.shape, -1)
        cdf = np.einsum("qkjj->qkj", cdf)  # each output at its own points
        cdf = _without_single(np.where(increasing, cdf, 1 - cdf))
        return cdf[:, 0] if np.ndim(y) == 0 else cdf

    def sample_y(self, X, n_samples=1, random_state=0):
        drawn = self.estimator.sample_y(X, n_samples, random_state)  # (q, [n_outputs,] n_samples)
        return np.moveaxis(self.decode(np.moveaxis(drawn, -1, 1), 2), 1, -1)


def _without_single(values: np.ndarray) -> np.ndarray:
    """Leave the last axis out if it is of one output."""
    return values[..., 0] if values.shape[-1] == 1 else values
