"""Kernel ridge regression, whose predictions of left-out rows have a closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.spatial.distance import cdist

from .._utils.storable import storable
from .._utils.threads import cached_property

METRIC_ROWS = 1000  # by which features are weighted
CHOICE_ROWS = 600  # by which the ridge and the other variances are chosen
GRADIENT_ROWS = 300  # at which gradients are taken
N_ROUNDS = 3  # of weights of features, each from the gradients of the function before
LEAST_WEIGHT = 0.01  # of the largest: features of less do not count in distances
TOO_FAR = 1.15  # times the least error: further rounds are in vain
LENGTH = 2.0  # of the kernel, in median distances
RIDGES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
START_RIDGE = 1e-2
SLOPES = (0.0, 0.1, 1.0, 10.0, 100.0)  # variance of the linear part at the mean square of rows
SHARPNESS = 10  # of the peak: how many times shorter it is
PEAKS = (0.0, 0.1, 0.3, 1.0, 3.0)  # variance of the peak
CONSTANT = 10.0  # variance of the constant


@storable
@dataclass(frozen=True)
class Kernel:
    """A Laplace kernel of weighted features, with a peak, a linear one and a constant; the ridge.

    ``k(x, z) = exp(-d) + peak exp(-10 d) + slope x z + constant`` with ``d = |v (x - z)|_1``. The
    peak is what near rows alone have in common, such as a row and its twin.

    Parameters
    ----------
    weights : ndarray of shape (n_features,)
        Weights v of the features, in units of one over the kernel's length.
    slope : float
        Variance of the slopes, in units of the variance of the Laplace kernel.
    peak : float
        Variance of the peak, in the same unit.
    ridge : float
        Variance of the noise of a row of weight 1, in the same unit.
    mean_weights : ndarray of shape (n_features,), optional
        The mean weights of all rounds in which they were sought. They hardly depend on which of
        several rounds of about the same error is the best.
    """

    weights: np.ndarray
    slope: float = 0.0
    peak: float = 0.0
    ridge: float = START_RIDGE
    mean_weights: np.ndarray | None = None

    @classmethod
    def of_length(cls, X: np.ndarray, weights: np.ndarray) -> Kernel:
        """A kernel whose length is a multiple of the median distance of rows.

        Where most rows are equal, it is one of the mean distance.
        """
        Z = X * weights
        distances = cdist(Z[:CHOICE_ROWS], Z, "cityblock")
        length = LENGTH * (np.median(distances) or distances.mean())
        return cls(weights / max(length, np.finfo(float).tiny))

    def __call__(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Values for all pairs of two sets of rows, (n, m)."""
        return self.whole(self.laplace(X, Z), X, Z)

    def laplace(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """The Laplace kernel alone, (n, m)."""
        some = self.weights > 0
        A, B = (each[:, some] * self.weights[some] for each in (X, Z))
        return np.exp(-cdist(A, B, "cityblock"))

    def whole(self, laplace: np.ndarray, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """The sum of the kernels, (n, m), from the Laplace kernel."""
        return with_peak(laplace, self.peak) + self.slope * (X @ Z.T) + CONSTANT


def with_peak(laplace: Any, peak: float) -> Any:
    """Values of a Laplace kernel, an array or a tensor, with the peak."""
    return laplace + peak * laplace**SHARPNESS if peak else laplace


@dataclass(frozen=True)
class Inverse:
    """The inverse of ``K + D``, for a diagonal D, as ``own + sign half' half``.

    Parameters
    ----------
    own : ndarray of shape (n,)
        A diagonal.
    sign : float
        1 or -1.
    half : ndarray of shape (r, n)
        A factor.
    """

    own: np.ndarray
    sign: float
    half: np.ndarray

    @classmethod
    def of_matrix(cls, K: np.ndarray, D: np.ndarray) -> Inverse:
        """Of a whole matrix K, (n, n): ``half = L^-1`` for the Cholesky factor L."""
        half, _ = lapack.dtrtri(cholesky(K, D), lower=True, overwrite_c=True)
        return cls(np.zeros(len(D)), 1.0, np.tril(half))

    @classmethod
    def of_features(cls, F: np.ndarray, D: np.ndarray) -> Inverse:
        """Of ``K = F F'``, (n, r): for ``C C' = I + F' D^-1 F``, ``half = C^-1 F' D^-1``."""
        scaled = F / D[:, None]
        factor = cholesky(F.T @ scaled, np.ones(F.shape[1]))
        return cls(1 / D, -1.0, solve_triangular(factor, scaled.T, lower=True))

    def __matmul__(self, y: np.ndarray) -> np.ndarray:
        """Its product with vectors, (n, c)."""
        return self.own[:, None] * y + self.sign * (self.half.T @ (self.half @ y))

    @cached_property
    def diagonal(self) -> np.ndarray:
        """Its diagonal, (n,)."""
        return self.own + self.sign * np.einsum("ij,ij->j", self.half, self.half)

    def of(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Its entries of some rows and columns, (len(rows), len(columns))."""
        same = rows[:, None] == columns
        return same * self.own[rows, None] + self.sign * (
            self.half[:, rows].T @ self.half[:, columns]
        )


def cholesky(K: np.ndarray, D: np.ndarray) -> np.ndarray:
    """Cholesky factor of ``K + D`` for a diagonal D, (n, n); its upper triangle is arbitrary."""
    matrix = K.copy()
    matrix.flat[:: len(K) + 1] += D
    factor, failed = lapack.dpotrf(matrix, lower=True, overwrite_a=True)
    if failed:
        raise np.linalg.LinAlgError("the kernel is not positive definite")
    return factor


@storable
@dataclass(frozen=True)
class LeftOut:
    """How much each row counts, and from which rows it is predicted where it is left out.

    Parameters
    ----------
    weights : ndarray of shape (n,)
        How much each row counts.
    groups : ndarray of shape (n,), optional
        Rows of a group are left out together; None: each by itself.
    times : ndarray of shape (n,), optional
        A row is predicted from earlier ones, whatever its group; None: from all others.
    """

    weights: np.ndarray
    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    def __getitem__(self, rows: np.ndarray | slice) -> LeftOut:
        parts = (None if each is None else each[rows] for each in (self.groups, self.times))
        return LeftOut(self.weights[rows], *parts)

    def solve(self, K: np.ndarray, y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients of ``(K + ridge / weights) a = y``, (n, c), and errors of left-out rows."""
        if self.times is not None:
            return self._solve_in_order(K, y, ridge)
        inverse = Inverse.of_matrix(K, ridge / self.weights)
        a = inverse @ y
        return a, self.errors(inverse, a)

    def errors(self, inverse: Inverse, a: np.ndarray) -> np.ndarray:
        """Errors of rows without themselves, or their group G: ``inverse_GG^-1 a_G``, (n, c)."""
        if self.groups is None:
            return a / inverse.diagonal[:, None]
        errors = np.empty_like(a)
        for group in np.unique(self.groups):
            rows = np.flatnonzero(self.groups == group)
            errors[rows] = np.linalg.solve(inverse.of(rows, rows), a[rows])
        return errors

    def _solve_in_order(
        self, K: np.ndarray, y: np.ndarray, ridge: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same, where rows are predicted from earlier ones.

        For the Cholesky factor L of the matrix in the order of times, the errors of the rows G of
        one time are ``L_GG (L^-1 y)_G``.
        """
        assert self.times is not None
        order = self.times.argsort(kind="stable")
        factor = cholesky(K[np.ix_(order, order)], ridge / self.weights[order])
        half = solve_triangular(factor, y[order], lower=True)
        a, errors = np.empty_like(y), np.empty_like(y)
        a[order] = solve_triangular(factor, half, lower=True, trans="T")
        _, starts = np.unique(self.times[order], return_index=True)
        for rows in map(slice, starts, [*starts[1:], len(y)]):
            errors[order[rows]] = np.tril(factor[rows, rows]) @ half[rows]
        return a, errors

    def loss(self, errors: np.ndarray) -> float:
        """Geometric mean of the outputs' mean squared errors."""
        return float(np.exp(np.log(self.losses(errors)).mean()))

    def losses(self, errors: np.ndarray) -> np.ndarray:
        """Mean squared errors of the outputs, (n_outputs,), none of which is 0."""
        losses = np.average(np.square(errors), axis=0, weights=self.weights)
        return np.maximum(losses, np.finfo(float).tiny)


def choose_kernel(
    X: np.ndarray, y: np.ndarray, rows: LeftOut, peaks: Sequence[float] = PEAKS
) -> Kernel:
    """Weigh the features by gradients, then choose the ridge, the linear part and the peak.

    All choices are by the errors of left-out rows.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Features.
    y : ndarray of shape (n, n_outputs)
        Targets, standardised.
    rows : LeftOut
        How much each row counts, and which are left out together.
    peaks : sequence of float, default=PEAKS
        Variances of the peak to choose from.

    Returns
    -------
    Kernel
        The kernel of the least error.
    """
    kernel, some = weigh_features(X, y, rows), slice(CHOICE_ROWS)
    return _choose_variances(kernel, X[some], y[some], rows[some], peaks)


def weigh_features(X: np.ndarray, y: np.ndarray, rows: LeftOut) -> Kernel:
    """A kernel with weights of the features, and with the variances from which a choice starts.

    The weights are mean gradients of the function itself, in a few rounds, as in a recursive
    feature machine [1]_. Of the rounds, that of the least error is taken.

    References
    ----------
    .. [1] Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism for Feature Learning in Neural
       Networks and Backpropagation-Free Machine Learning Models", 2024, Science 383.
    """
    weights, found = np.ones(X.shape[1]), []
    while True:
        kernel = Kernel.of_length(X, weights)
        laplace = kernel.laplace(X, X)
        a, errors = rows.solve(kernel.whole(laplace, X, X), y, kernel.ridge)
        found.append((rows.loss(errors), kernel))
        if len(found) > N_ROUNDS or found[-1][0] > TOO_FAR * min(loss for loss, _ in found):
            break
        squares = _squared_gradients(kernel, laplace, X, a)
        if not squares.any():
            break
        weights = np.sqrt(squares / squares.max())
        weights[weights < LEAST_WEIGHT] = 0.0
    best = min(found, key=lambda each: each[0])[1]
    return replace(best, mean_weights=np.mean([kernel.weights for _, kernel in found], axis=0))


def _choose_variances(
    kernel: Kernel, X: np.ndarray, y: np.ndarray, rows: LeftOut, peaks: Sequence[float]
) -> Kernel:
    """The kernel with a ridge, slope and peak of low error, one chosen after the other.

    Of the slope, all candidates are tried: a little of the linear part may be worse than none, and
    much of it better.
    """
    laplace = kernel.laplace(X, X)
    mean_square = np.square(X).sum(axis=1).mean() or 1.0
    candidates: dict[str, Sequence[float]] = {
        "ridge": RIDGES,
        "slope": [slope / mean_square for slope in SLOPES],
        "peak": peaks,
    }

    @cache
    def loss(slope: float, peak: float, ridge: float) -> float:
        changed = replace(kernel, slope=slope, peak=peak, ridge=ridge)
        return rows.loss(rows.solve(changed.whole(laplace, X, X), y, ridge)[1])

    chosen: dict[str, Any] = {"slope": 0.0, "peak": 0.0, "ridge": kernel.ridge}

    def changed(name: str, value: float) -> float:
        return loss(**chosen | {name: value})

    for name in ("ridge", "slope", "peak", "ridge", "slope", "peak", "ridge"):
        values, loss_with = candidates[name], partial(changed, name)
        if name == "slope":
            chosen[name] = min(values, key=loss_with)
        else:
            chosen[name] = _climb(values, chosen[name], loss_with)
    return replace(kernel, **chosen)


def _climb(candidates: Sequence[float], start: float, loss: Callable[[float], float]) -> float:
    """The candidate from which neither neighbour has a lower loss."""
    i = candidates.index(start)
    for step in (1, -1):
        while 0 <= i + step < len(candidates) and loss(candidates[i + step]) < loss(candidates[i]):
            i += step
    return candidates[i]


def _squared_gradients(
    kernel: Kernel, laplace: np.ndarray, X: np.ndarray, a: np.ndarray
) -> np.ndarray:
    """Mean squared gradients of the Laplace part with respect to each feature, (n_features,)."""
    laplace = laplace[:GRADIENT_ROWS]
    squares = np.zeros(X.shape[1])
    for j in np.flatnonzero(kernel.weights):
        signs = np.sign(X[:GRADIENT_ROWS, j, None] - X[:, j])
        squares[j] = np.square((laplace * signs) @ a * kernel.weights[j]).sum(axis=1).mean()
    return squares
