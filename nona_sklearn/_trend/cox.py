"""Cox regression, whose log risks at a training row come from the remaining rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from .trend import parts_of

if TYPE_CHECKING:
    from .._data.durations import Durations

RIDGES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)


def partial_loss(log_risk: np.ndarray, rows: Durations) -> tuple[float, np.ndarray]:
    """Return the mean negative log partial likelihood, and its gradient by the log risks, (n,)."""
    log_risk = log_risk - log_risk.max()  # the loss depends on differences alone
    at_risk, hazard = rows.hazards(log_risk)
    events = rows.weight * rows.event
    expected = rows.weight * np.exp(log_risk) * hazard
    total = rows.weight.sum()
    return float(events @ (np.log(at_risk) - log_risk)) / total, (expected - events) / total


def fit_cox(X: np.ndarray, rows: Durations, ridge: float, *, positive: bool = False) -> np.ndarray:
    """Return coefficients of columns, (n_columns,), of least partial loss.

    The penalty is the ridge times the squared coefficients of standardised columns. `positive`
    admits no negative coefficients.
    """
    scale = X.std(axis=0)
    scaled = np.divide(X - X.mean(axis=0), scale, out=np.zeros_like(X), where=scale > 0)

    def loss(slopes: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = partial_loss(scaled @ slopes, rows)
        return value + ridge * slopes @ slopes, scaled.T @ gradient + 2 * ridge * slopes

    bounds = [(0.0, None)] * len(scale) if positive else None
    slopes = minimize(loss, np.zeros(len(scale)), jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.divide(slopes, scale, out=np.zeros_like(slopes), where=scale > 0)


def cross_fit_cox(
    X: np.ndarray, rows: Durations, groups: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients, and the log risks of rows, (n,), by fits to the remaining folds.

    The ridge is the one whose log risks have the least partial loss.
    """
    parts = list(parts_of(len(X), groups, None))

    def left_out(ridge: float) -> np.ndarray:
        log_risk = np.zeros(len(X))
        for fitted, predicted in parts:
            if rows.event[fitted].any():
                slopes = fit_cox(X[fitted], rows[fitted], ridge)
                log_risk[predicted] = (X[predicted] - X[fitted].mean(axis=0)) @ slopes
        return log_risk

    by_ridge = [left_out(ridge) for ridge in RIDGES]
    best = int(np.argmin([partial_loss(log_risk, rows)[0] for log_risk in by_ridge]))
    return fit_cox(X, rows, RIDGES[best]), by_ridge[best]
