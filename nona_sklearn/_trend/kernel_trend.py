"""A trend by kernel ridge regression, whose predictions of left-out rows have a closed form.

The file defines the kernel, the inverse of its matrix, how rows are left out, the choice of a
kernel, the function, and the trend, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.linalg import lapack, solve_triangular
from scipy.spatial.distance import cdist
from torch import Tensor, nn

from .._utils.precision import exact
from .._utils.storable import storable
from .._utils.threads import cached_property, one_blas_thread
from .._utils.validation import in_blocks
from .trend import Trend

if TYPE_CHECKING:
    from .._data.sample import TableRows

METRIC_ROWS = 1000  # that determine feature weights: more rows hardly change the weights
CHOICE_ROWS = 600  # that determine the ridge and the variances
GRADIENT_ROWS = 300  # at which gradients are taken
N_ROUNDS = 3  # of feature weights, computed from the gradients of the previous function
LEAST_WEIGHT = 0.01  # relative to the largest: features below it do not count in distances
TOO_FAR = 1.15  # times the least error: rounds stop, as they no longer help
LENGTH = 2.0  # of the kernel, in median distances
RIDGES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
START_RIDGE = 1e-2
SLOPES = (0.0, 0.1, 1.0, 10.0, 100.0)  # variance of the linear part at the mean square of rows
PEAKS = (0.0, 0.1, 0.3, 1.0, 3.0)  # variance of the peak
CONSTANT = 10.0  # variance of the constant

EXACT_ROWS = 3000  # with a coefficient for every row; beyond, only landmarks have one
N_LANDMARKS = 1000
#: Rows are taken out in closed form up to so many at a time, while so large a share is left of the
#: rows with which the matrix was inverted; so large a share of the landmarks stays.
MOST_TAKEN_OUT, LEAST_LEFT = 64, 0.875
#: Most rows to which the function is fitted: more take too long.
MAX_KERNEL_ROWS, MAX_TIMED_KERNEL_ROWS = 10_000, 6000
JITTER = 1e-6  # added to the kernel at landmarks, since two may be equal
BLOCK_PAIRS = 2**17  # distances that are held at a time: more leave the cache of a processor


@storable
@dataclass(frozen=True)
class Kernel:
    """A Laplace kernel of weighted features plus a peak, a linear part and a constant; the ridge.

    The kernel is ``k(x, z) = exp(-d) + peak exp(-10 d) + slope x z + constant`` with
    ``d = |v (x - z)|_1``. The peak is the covariance that only near rows share, such as a row and
    its twin. Variances are relative to the variance of the Laplace kernel.
    """

    weights: np.ndarray  # v, (n_features,), in units of one over the kernel's length
    slope: float = 0.0  # variance of the slopes
    peak: float = 0.0  # variance of the peak
    ridge: float = START_RIDGE  # variance of the noise of a row of weight 1
    #: Mean weights over all rounds, (n_features,). The mean hardly depends on which round is the
    #: best among rounds of about the same error.
    mean_weights: np.ndarray | None = None

    def __call__(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return the kernel of rows X (n, n_features) and Z (m, n_features), (n, m)."""
        return self.add_parts(self.laplace(X, Z), X, Z)

    def laplace(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return the Laplace kernel alone, (n, m)."""
        some = self.weights > 0
        weights = self.weights[some]
        return np.exp(-cdist(X[:, some] * weights, Z[:, some] * weights, "cityblock"))

    def add_parts(self, laplace: np.ndarray, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return the sum of all parts, (n, m), given the Laplace kernel."""
        return with_peak(laplace, self.peak) + self.slope * (X @ Z.T) + CONSTANT


def with_peak(laplace: Any, peak: float) -> Any:
    """Return a Laplace kernel, an array or a tensor, plus the peak: its tenth power."""
    if not peak:
        return laplace
    square = laplace * laplace  # products take a quarter of the time of a power
    return laplace + peak * (square * (square * square) ** 2)


@dataclass(frozen=True)
class Inverse:
    """The inverse B of ``K + D``, for a diagonal D, as ``diag(shift) + sign half' P half``.

    P is the identity at first. To take out a row or a landmark subtracts or adds a product
    ``b b'``, which `P = I + V diag(signs) V'` collects, so that `half` is never changed.
    """

    shift: np.ndarray  # (n,)
    sign: float  # 1 or -1
    half: np.ndarray  # (r, n_columns), of the rows and of those that were taken out
    columns: np.ndarray  # (n,), of the rows
    diagonal: np.ndarray  # (n,)
    V: np.ndarray  # (r, t)
    signs: np.ndarray  # (t,)
    #: (m, r): the coefficients of the landmarks are ``to_landmarks P half y``. None: of every row.
    to_landmarks: np.ndarray | None = None

    @classmethod
    def from_half(
        cls, shift: np.ndarray, sign: float, half: np.ndarray, to_landmarks: np.ndarray | None
    ) -> Inverse:
        """Return the inverse of all rows, (n,) and (r, n)."""
        diagonal = shift + sign * np.einsum("ij,ij->j", half, half)
        every, none = np.arange(len(shift)), np.empty((len(half), 0))
        return cls(shift, sign, half, every, diagonal, none, np.empty(0), to_landmarks)

    @classmethod
    def from_matrix(cls, K: np.ndarray, D: np.ndarray) -> Inverse:
        """Invert ``K + D`` of a matrix K, (n, n): ``half = L^-1`` for the Cholesky factor L."""
        half, _ = lapack.dtrtri(cholesky(K, D), lower=True, overwrite_c=True)
        return cls.from_half(np.zeros(len(D)), 1.0, np.tril(half), None)

    @classmethod
    def from_features(cls, F: np.ndarray, D: np.ndarray, factor: np.ndarray) -> Inverse:
        """Invert ``F F' + D``, F (n, r): ``half = C^-1 F' D^-1`` for ``C C' = I + F' D^-1 F``.

        `factor` is the Cholesky factor L of the kernel at the landmarks, with ``F L' = k(X, Z)``.
        """
        scaled = F / D[:, None]
        C = cholesky(F.T @ scaled, np.ones(F.shape[1]))
        of_landmarks, _ = lapack.dtrtri(factor, lower=True)
        to_landmarks = solve_triangular(C, np.tril(of_landmarks), lower=True).T
        half = solve_triangular(C, scaled.T, lower=True)
        return cls.from_half(1 / D, -1.0, half, np.ascontiguousarray(to_landmarks))

    def _times_P(self, h: np.ndarray) -> np.ndarray:
        """Return the product of P with vectors (r,) or (r, c)."""
        return h + self.V @ (self.signs * (self.V.T @ h).T).T

    def __matmul__(self, y: np.ndarray) -> np.ndarray:
        """Return the product with vectors (n, c)."""
        half = self._half()
        return self.shift[:, None] * y + self.sign * (half.T @ self._times_P(half @ y))

    def _half(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the columns of some rows of `half`, (r, len(rows))."""
        columns = self.columns[rows]
        return self.half if len(columns) == self.half.shape[1] else self.half[:, columns]

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the entries in rows and columns, (len(rows), len(columns))."""
        same = rows[:, None] == columns
        return same * self.shift[rows, None] + self.sign * (
            self._half(rows).T @ self._times_P(self._half(columns))
        )

    def smoother(self) -> np.ndarray:
        """Return the matrix from targets to the coefficients, (m, n)."""
        if self.to_landmarks is None:
            every = np.arange(len(self.shift))
            return self.entries(every, every)
        return self.to_landmarks @ self._times_P(self._half())

    def length(self, h: np.ndarray) -> float:
        """Return ``h' P h``."""
        return h @ self._times_P(h)

    def changed(
        self, h: np.ndarray, square: float, sign: float
    ) -> tuple[Inverse, np.ndarray, np.ndarray]:
        """Return the inverse plus ``sign b b'``, b (n,) and v (r,), with ``b = half' v``.

        v is ``P h`` over the root of a `square`.
        """
        v = self._times_P(h) / np.sqrt(square)
        b = (v @ self.half)[self.columns]
        V, signs = np.column_stack([self.V, v]), np.append(self.signs, self.sign * sign)
        diagonal = self.diagonal + sign * np.square(b)
        return replace(self, V=V, signs=signs, diagonal=diagonal), b, v

    def some(self, kept: np.ndarray, landmarks: np.ndarray) -> Inverse:
        """Return the inverse of some rows and landmarks, once the remaining are taken out."""
        of_landmarks = self.to_landmarks
        if of_landmarks is not None and not landmarks.all():
            of_landmarks = of_landmarks[landmarks]
        return replace(
            self,
            shift=self.shift[kept],
            columns=self.columns[kept],
            diagonal=self.diagonal[kept],
            to_landmarks=of_landmarks,
        )


def cholesky(K: np.ndarray, D: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor of ``K + D``, (n, n), with an arbitrary upper triangle."""
    matrix = K.copy()
    matrix.flat[:: len(K) + 1] += D
    factor, failed = lapack.dpotrf(matrix, lower=True, overwrite_a=True)
    if failed:
        raise np.linalg.LinAlgError("the kernel is not positive definite")
    return factor


@storable
@dataclass(frozen=True)
class LeftOut:
    """Weights of the rows, and the rows that are left out together with a row."""

    weights: np.ndarray  # (n,)
    groups: np.ndarray | None = None  # (n,), left out together; None: rows are left out one by one
    times: np.ndarray | None = None  # (n,): a row is predicted from earlier rows of any group

    def __getitem__(self, rows: np.ndarray | slice) -> LeftOut:
        groups = None if self.groups is None else self.groups[rows]
        times = None if self.times is None else self.times[rows]
        return LeftOut(self.weights[rows], groups, times)

    def solve(self, K: np.ndarray, y: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
        """Return a, (n, c), with ``(K + ridge / weights) a = y``, and errors of left-out rows."""
        if self.times is not None:
            return self._solve_in_order(K, y, ridge)
        inverse = Inverse.from_matrix(K, ridge / self.weights)
        a = inverse @ y
        return a, self.errors(inverse, a)

    def errors(self, inverse: Inverse, a: np.ndarray) -> np.ndarray:
        """Return errors of rows left out with their group G, ``inverse_GG^-1 a_G``, (n, c)."""
        if self.groups is None:
            return a / inverse.diagonal[:, None]
        errors = np.empty_like(a)
        for group in np.unique(self.groups):
            rows = np.flatnonzero(self.groups == group)
            errors[rows] = np.linalg.solve(inverse.entries(rows, rows), a[rows])
        return errors

    def _solve_in_order(
        self, K: np.ndarray, y: np.ndarray, ridge: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients and errors where rows are predicted from earlier rows.

        The errors of the rows G of one time are ``L_GG (L^-1 y)_G``, for the Cholesky factor L of
        the matrix in the order of times.
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
        """Return the geometric mean of the outputs' mean squared errors."""
        losses = np.average(np.square(errors), axis=0, weights=self.weights)
        return float(np.exp(np.log(losses.clip(np.finfo(float).tiny)).mean()))


@one_blas_thread()
def choose_kernel(
    X: np.ndarray, y: np.ndarray, rows: LeftOut, peaks: Sequence[float] = PEAKS
) -> Kernel:
    """Weight features (n, n_features), then choose ridge, slope and peak in turn.

    The choices minimise the errors of left-out rows for encoded targets `y`, (n, n_outputs). All
    slopes are tried, since the loss may have several minima.
    """
    kernel = weigh_features(X, y, rows)
    some = _in_random_order(len(X))[:CHOICE_ROWS]
    X, y, rows = X[some].astype(float), y[some], rows[some]
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
        return rows.loss(rows.solve(changed.add_parts(laplace, X, X), y, ridge)[1])

    chosen: dict[str, Any] = {"slope": 0.0, "peak": 0.0, "ridge": kernel.ridge}

    def loss_with(name: str, value: float) -> float:
        return loss(**chosen | {name: value})

    for name in ("ridge", "slope", "peak", "ridge", "slope", "peak", "ridge"):
        if name == "slope":
            chosen[name] = min(candidates[name], key=partial(loss_with, name))
        else:
            chosen[name] = _climb(candidates[name], chosen[name], partial(loss_with, name))
    return replace(kernel, **chosen)


def _climb(candidates: Sequence[float], start: float, loss: Callable[[float], float]) -> float:
    """Return a candidate whose two neighbours have no lower loss."""
    i = candidates.index(start)
    for step in (1, -1):
        while 0 <= i + step < len(candidates) and loss(candidates[i + step]) < loss(candidates[i]):
            i += step
    return candidates[i]


@one_blas_thread()
def tell_rows_apart(weights: np.ndarray, X: np.ndarray) -> bool:
    """Return whether weighted features, (n, n_features), differ between rows."""
    largest_distance = (weights * np.ptp(X, axis=0)).sum()
    return 0 < largest_distance < np.finfo(np.float32).max


def weigh_features(X: np.ndarray, y: np.ndarray, rows: LeftOut) -> Kernel:
    """Return a kernel with feature weights, and with initial variances.

    A few rounds set the weights to mean gradients of the function, as in a recursive feature
    machine [1]_. The round of least error is returned.

    References
    ----------
    .. [1] Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism for Feature Learning in Neural
       Networks and Backpropagation-Free Machine Learning Models", 2024, Science 383.
    """
    some = _in_random_order(len(X))[:METRIC_ROWS]
    X, y, rows = X[some].astype(float), y[some], rows[some]
    weights = np.ones(X.shape[1])
    losses: list[float] = []
    kernels: list[Kernel] = []
    while True:
        Z = X * weights
        distances = cdist(Z[:CHOICE_ROWS], Z, "cityblock")
        length = LENGTH * (np.median(distances) or distances.mean())  # most rows may be equal
        kernel = Kernel(weights / max(length, np.finfo(float).tiny))
        laplace = kernel.laplace(X, X)
        a, errors = rows.solve(kernel.add_parts(laplace, X, X), y, kernel.ridge)
        losses.append(rows.loss(errors))
        kernels.append(kernel)
        if len(losses) > N_ROUNDS or losses[-1] > TOO_FAR * min(losses):
            break
        squares = _squared_gradients(kernel, laplace, X, a)
        if not squares.any():
            break
        weights = np.sqrt(squares / squares.max())
        weights[weights < LEAST_WEIGHT] = 0.0
    mean_weights = np.mean([kernel.weights for kernel in kernels], axis=0)
    return replace(kernels[int(np.argmin(losses))], mean_weights=mean_weights)


def _squared_gradients(
    kernel: Kernel, laplace: np.ndarray, X: np.ndarray, a: np.ndarray
) -> np.ndarray:
    """Return mean squared gradients of the Laplace part by the features, (n_features,)."""
    laplace = laplace[:GRADIENT_ROWS]
    squares = np.zeros(X.shape[1])
    for j in np.flatnonzero(kernel.weights):
        signs = np.sign(X[:GRADIENT_ROWS, j, None] - X[:, j])
        squares[j] = np.square((laplace * signs) @ a * kernel.weights[j]).sum(axis=1).mean()
    return squares


def _in_random_order(n_rows: int) -> np.ndarray:
    """Return a permutation of the rows that is the same for every random_state."""
    return np.random.RandomState(0).permutation(n_rows)


class KernelFunction(nn.Module):
    """Map (n, n_features) to (n, n_outputs) in float64 by the fitted function.

    The function is ``constant + x slopes + sum_i a_i (exp(-d_i) + peak exp(-10 d_i))`` with
    distances ``d_i = |v (x - x_i)|_1`` to m rows. Features of weight 0 only enter the slopes.
    """

    edited = "rows", "a", "slopes", "constant"  # buffers that change where rows are removed
    columns: Tensor
    weights: Tensor
    rows: Tensor
    a: Tensor
    slopes: Tensor
    constant: Tensor

    def __init__(self, X: Tensor, a: Tensor, center: Tensor, kernel: Kernel):
        super().__init__()
        self.peak = kernel.peak
        weights = torch.from_numpy(kernel.weights)
        columns = weights.nonzero()[:, 0]
        self.register_buffer("columns", columns)
        self.register_buffer("weights", weights[columns])
        self.register_buffer("rows", X[:, columns] * weights[columns])
        self.register_buffer("a", a)
        self.register_buffer("slopes", kernel.slope * X.T @ a)
        self.register_buffer("constant", center + CONSTANT * a.sum(dim=0))

    def forward(self, X: Tensor) -> Tensor:
        X = X.to(self.a.dtype)
        return self.near(X) @ self.a + X @ self.slopes + self.constant

    def near(self, X: Tensor) -> Tensor:
        """Return the kernel without its linear part and its constant, (n, m)."""
        distance = torch.cdist(X[:, self.columns] * self.weights, self.rows, p=1.0)
        return with_peak(distance.neg().exp_(), self.peak)

    def row_by_row(self, X: Tensor) -> Tensor:
        """Return the values, (n, n_outputs), whose last digits depend on no further row."""
        X = X.to(self.a.dtype)
        parts = [(self.near(X), self.a), (X, self.slopes)]
        sums = (
            np.stack([(of_rows.cpu().numpy() * column).sum(axis=1) for column in columns], axis=1)
            for of_rows, columns in ((part, by.T.cpu().numpy()) for part, by in parts)
        )
        return torch.from_numpy(sum(sums) + self.constant.cpu().numpy())


@storable
@dataclass(frozen=True, eq=False)
class KernelTrend(Trend):
    """A function of the features in units of the targets, by kernel ridge regression.

    The function is ``f(x) = center + unit sum_i c_i k(x, x_i)`` with landmarks i. The landmarks
    are all fitted rows, or a sample of many rows (Nyström's approximation [1]_). The value at a
    fitted row comes from the function that is fitted to the remaining rows.

    References
    ----------
    .. [1] Williams and Seeger, "Using the Nyström Method to Speed Up Kernel Machines", 2000, NIPS.
    """

    ids: np.ndarray  # (n,), ids of the fitted rows, ascending
    X: np.ndarray  # (n, n_features), encoded features of the rows in float32
    y: np.ndarray  # (n, n_outputs), encoded targets of the rows
    rows: LeftOut  # weights, groups and times of the rows
    kernel: Kernel
    center: np.ndarray  # (n_outputs,), of encoded targets
    unit: np.ndarray  # (n_outputs,), of encoded targets
    duals: np.ndarray  # (n, n_outputs): ``(K + D)^-1 y``, where D is the ridge over the weights
    errors: np.ndarray  # (n, n_outputs), of left-out rows, encoded
    coefficients: np.ndarray  # (m, n_outputs), of the landmarks
    #: (m,), positions of the landmarks. None: all rows or, in files of earlier versions, a sample.
    landmarks: np.ndarray | None = None

    is_solved = True

    @classmethod
    def fit(
        cls,
        ids: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        rows: LeftOut,
        center: np.ndarray,
        unit: np.ndarray,
        peaks: Sequence[float] = PEAKS,
    ) -> KernelTrend:
        """Choose a kernel on a sample of the rows, and fit at most MAX_KERNEL_ROWS rows."""
        kernel = choose_kernel(X, y, rows, peaks)
        n_fitted = MAX_KERNEL_ROWS if rows.times is None else MAX_TIMED_KERNEL_ROWS
        some = np.sort(_in_random_order(len(X))[:n_fitted])
        return cls.solve(ids[some], X[some], y[some], rows[some], kernel, center, unit)

    @classmethod
    @one_blas_thread()
    def solve(
        cls,
        ids: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        rows: LeftOut,
        kernel: Kernel,
        center: np.ndarray,
        unit: np.ndarray,
        landmarks: np.ndarray | None = None,
    ) -> KernelTrend:
        """Fit the function to all rows with a given kernel.

        By default, the landmarks of many rows are a random sample.
        """
        Z = X.astype(float)
        if _is_exact(rows):
            duals, errors = rows.solve(kernel(Z, Z), y, kernel.ridge)
            coefficients, landmarks = duals, None
        else:
            if landmarks is None:
                landmarks = _in_random_order(len(X))[:N_LANDMARKS]
            inverse = _invert_nystrom(Z, landmarks, rows, kernel)
            duals = inverse @ y
            errors = rows.errors(inverse, duals)
            coefficients = inverse.to_landmarks @ (inverse.half @ y)
        # Files have this memory order, and the last digits of products depend on the order.
        duals, errors, coefficients = (
            np.ascontiguousarray(part) for part in (duals, errors, coefficients)
        )
        fitted = ids, X, y, rows, kernel, center, unit
        return cls(*fitted, duals, errors, coefficients, landmarks)

    @cached_property
    def function(self) -> KernelFunction:
        """Return the module that maps encoded features to values."""
        X = torch.from_numpy(self._rows_with_coefficients)
        a, center = torch.from_numpy(self.coefficients * self.unit), torch.from_numpy(self.center)
        return KernelFunction(X, a, center, self.kernel)

    def __call__(self, rows: TableRows) -> Tensor:
        """Return values at queries, (q, n_outputs) in float64, with gradients."""
        return self._in_blocks(KernelFunction.__call__, rows)

    def _in_blocks(
        self, compute: Callable[[KernelFunction, Tensor], Tensor], rows: TableRows
    ) -> Tensor:
        """Apply a method of the function, on the device of some rows, to blocks of these."""
        X, function = rows.encoded, self.function
        if function.a.device != X.device:
            function.to(X.device)
        size = max(1, BLOCK_PAIRS // max(1, len(function.a)))
        return in_blocks(partial(compute, function), X, size)

    def from_earlier(self, rows: TableRows, cutoff_times: Tensor) -> Tensor:
        """Return values at queries, (q, n_outputs), fitted to rows before cutoff times (q,).

        The value is ``f(q) = sum_i (L^-1 k(q))_i (L^-1 y)_i`` over earlier rows i, where L is the
        Cholesky factor in the order of times, whose upper left part belongs to the earlier rows.
        """
        times = self.rows.times
        if times is None or bool((cutoff_times > times.max()).all()):
            return self(rows)
        order, X = times.argsort(kind="stable"), rows.encoded
        Z = self.X[order].astype(float)
        before = times[order][:, None] < cutoff_times.cpu().numpy()
        with one_blas_thread():
            K = self.kernel(Z, Z)
            factor = cholesky(K, self.kernel.ridge / self.rows.weights[order])
            half = solve_triangular(factor, self.y[order], lower=True)
            near = self.kernel(Z, exact(X).cpu().numpy())
            values = (before * solve_triangular(factor, near, lower=True)).T @ half
        return torch.from_numpy(self.center + self.unit * values).to(X.device)

    def of_rows(
        self, ids: np.ndarray, rows: TableRows | None, cutoff_times: Tensor | None = None
    ) -> np.ndarray:
        assert rows is not None
        if cutoff_times is not None:
            return self.from_earlier(rows, cutoff_times.cpu()).numpy()
        positions, is_fitted = self._positions(ids)
        values = np.empty((len(ids), len(self.unit)))
        values[is_fitted] = self.center + self.unit * (self.y - self.errors)[positions]
        if not is_fitted.all():
            new = self._in_blocks(KernelFunction.row_by_row, rows[~is_fitted])
            values[~is_fitted] = new.cpu().numpy()
        return values

    def moved(self, ids: np.ndarray, rows: TableRows) -> Tensor:
        positions, is_fitted = self._positions(ids)
        residuals = self.kernel.ridge / self.rows.weights[:, None] * self.duals
        apart = np.zeros((len(ids), len(self.unit)))
        apart[is_fitted] = (self.unit * (residuals - self.errors))[positions]
        values = self(rows)
        return values + torch.from_numpy(apart).to(values.device)

    def _positions(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions of the ids among the fitted rows, and whether an id is fitted."""
        is_fitted = np.isin(ids, self.ids)
        return np.searchsorted(self.ids, ids[is_fitted]), is_fitted

    @property
    def leaves_out_single_rows(self) -> bool:
        return self.rows.groups is None and self.rows.times is None

    @one_blas_thread()
    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        # The residual of row j without rows i and j is ``(a_j - r a_i) / (B_jj - r B_ij)`` with
        # ``r = B_ij / B_ii``, for the inverse B of the matrix. Residuals of the query and of rows
        # that are not fitted stay.
        (i, is_query), (j, is_row) = map(self._positions, (queries, ids))
        inverse = self._inverse  # threads wait until a thread has computed it
        pairs, diagonal = inverse.entries(i, j), inverse.diagonal[j]  # B_ij, B_jj
        ratios = pairs / inverse.diagonal[i][:, None]  # products of both may underflow
        differ, a = i[:, None] != j, self.unit * self.duals
        without = a[j] - ratios[..., None] * a[i][:, None]
        scale = np.where(differ, diagonal - ratios * pairs, 1.0)
        result = np.repeat(residuals[None], len(queries), axis=0)
        block = np.ix_(is_query, is_row)
        result[block] = np.where(differ[..., None], without / scale[..., None], result[block])
        return result

    @one_blas_thread()
    def shifts(self, removed: np.ndarray, rows: TableRows) -> np.ndarray:
        # Without row j, the value at q changes by ``-(B k(q))_j a_j / B_jj``, for the inverse B of
        # the matrix. The landmarks stay.
        Z = self._rows_with_coefficients
        weights = self.kernel(exact(rows.encoded).cpu().numpy(), Z) @ self._smoother
        weights = weights / self._inverse.diagonal
        return self._of_ids(removed, -weights[..., None] * (self.unit * self.duals))

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, rows: TableRows, query: int | None = None
    ) -> np.ndarray:
        # A query is left out where rows are left out one by one.
        positions, is_fitted = self._positions(ids)
        changes = np.empty((len(ids), len(removed), len(self.unit)))
        if not is_fitted.all():
            changes[~is_fitted] = self.shifts(removed, rows[~is_fitted])
        entries, a, diagonal = self._entries(positions), self.duals, self._inverse.diagonal
        if query is not None and (place := self._positions(np.array([query]))[0]).size:
            of_query = self._entries(place)[0]
            weights = of_query / of_query[place]
            entries = entries - entries[:, place] * weights
            a, diagonal = a - weights[:, None] * a[place], diagonal - weights * of_query
            diagonal[place] = np.inf  # the query stays
        groups = self.rows.groups
        if groups is None:
            sets = positions[:, None]
            left_out = _shifts_left_out(entries[:, None], sets, a, diagonal)[:, 0]
        else:
            left_out = np.empty((len(positions), *a.shape))
            for group in np.unique(groups[positions]):
                members, some = np.flatnonzero(groups == group), groups[positions] == group
                block = _shifts_left_out(self._entries(members)[None], members[None], a, diagonal)
                left_out[some] = block[0, np.searchsorted(members, positions[some])]
        changes[is_fitted] = self._of_ids(removed, self.unit * left_out)
        return changes

    def _of_ids(self, ids: np.ndarray, of_rows: np.ndarray) -> np.ndarray:
        """Select numbers of rows, (..., n, n_outputs), by ids; 0 for ids that are not fitted."""
        positions, is_fitted = self._positions(ids)
        numbers = np.zeros((*of_rows.shape[:-2], len(ids), of_rows.shape[-1]))
        numbers[..., is_fitted, :] = of_rows[..., positions, :]
        return numbers

    def _entries(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of the inverse, (len(rows), n)."""
        if _is_exact(self.rows):
            return self._smoother[rows]
        return self._inverse.entries(rows, np.arange(len(self.ids)))

    @cached_property
    @one_blas_thread()
    def _inverse(self) -> Inverse:
        X, landmarks = self.X.astype(float), self._landmarks
        if landmarks is None:
            return Inverse.from_matrix(self.kernel(X, X), self.kernel.ridge / self.rows.weights)
        return _invert_nystrom(X, landmarks, self.rows, self.kernel)

    @cached_property
    def _inverse_for_edits(self) -> Inverse:
        """Return the inverse, which edits have changed: its last digits depend on these.

        What is no edit uses the inverse of the stored fields alone.
        """
        return self._inverse

    @property
    def _landmarks(self) -> np.ndarray | None:
        """Return positions of the landmarks; None: all rows."""
        if self.landmarks is not None or _is_exact(self.rows):
            return self.landmarks
        return _in_random_order(len(self.X))[:N_LANDMARKS]

    @property
    def _rows_with_coefficients(self) -> np.ndarray:
        return (self.X if self._landmarks is None else self.X[self._landmarks]).astype(float)

    @cached_property
    @one_blas_thread()
    def _smoother(self) -> np.ndarray:
        """Return the matrix from targets to coefficients, (m, n)."""
        return self._inverse.smoother()

    def with_rows(
        self,
        ids: np.ndarray,
        rows: TableRows,
        neighbors: Any = None,
        groups: np.ndarray | None = None,
    ) -> KernelTrend:
        return self  # it only stores fitted rows

    def without(self, ids: np.ndarray) -> KernelTrend:
        """Return a trend with the same kernel that is fitted to the remaining rows.

        Of the landmarks, the remaining ones stay, while they are many. A few rows are taken out
        in closed form.
        """
        kept = ~np.isin(self.ids, ids)
        if kept.all():
            return self
        landmarks, numbers = self._landmarks, kept.cumsum() - 1
        rows, taken_out = self.rows[kept], np.flatnonzero(~kept)
        if landmarks is not None:
            landmarks = numbers[landmarks[kept[landmarks]]]
            if _is_exact(rows) or len(landmarks) < LEAST_LEFT * N_LANDMARKS:
                landmarks = None
        some = (
            self.ids[kept],
            self.X[kept],
            self.y[kept],
            rows,
            self.kernel,
            self.center,
            self.unit,
        )
        follows = rows.times is None and (landmarks is None) == (self._landmarks is None)
        if not follows or len(taken_out) > MOST_TAKEN_OUT or self._has_few_left(rows):
            return KernelTrend.solve(*some, landmarks)
        inverse, duals, coefficients = self._take_out(taken_out)
        left = KernelTrend(*some, duals, rows.errors(inverse, duals), coefficients, landmarks)
        vars(left)["_inverse_for_edits"] = inverse
        return left

    def _has_few_left(self, rows: LeftOut) -> bool:
        """Return whether few rows are left of those with which the matrix was inverted."""
        return len(rows.weights) < LEAST_LEFT * self._inverse_for_edits.half.shape[1]

    @one_blas_thread()
    def _take_out(self, rows: np.ndarray) -> tuple[Inverse, np.ndarray, np.ndarray]:
        """Return inverse, duals and coefficients without the rows at some positions.

        Without row i, the inverse B becomes ``B - B_:i B_i: / B_ii``, and the duals a become
        ``a - B_:i a_i / B_ii``. A landmark with the direction u in the features is a feature
        ``g = F u``, without which B becomes ``B + B g g' B / (1 - g' B g)``.
        """
        inverse, duals = self._inverse_for_edits, self.duals
        coefficients = self.coefficients
        kept, y = np.ones(len(duals), dtype=bool), self.y.copy()
        stay = np.ones(len(coefficients), dtype=bool)  # of the landmarks
        for i in rows:
            square = inverse.diagonal[i]
            step = -duals[i] / np.sqrt(square)
            inverse, b, v = inverse.changed(inverse.half[:, inverse.columns[i]], square, -1.0)
            duals, kept[i], y[i] = duals + inverse.sign * b[:, None] * step, False, 0.0
            if inverse.to_landmarks is None:
                coefficients = duals
                stay[i] = False
                continue
            coefficients = coefficients + inverse.to_landmarks @ v[:, None] * step
            for landmark in np.flatnonzero(self._landmarks == i):
                h = inverse.to_landmarks[landmark]
                inverse, b, v = inverse.changed(h, inverse.length(h), 1.0)
                step = np.where(kept, b, 0.0) @ y
                duals = duals + b[:, None] * step
                coefficients = coefficients - inverse.to_landmarks @ v[:, None] * step
                stay[landmark] = False
        return inverse.some(kept, stay), duals[kept], coefficients[stay]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out attributes that are computed from the fields."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _shifts_left_out(
    entries: np.ndarray, left_out: np.ndarray, a: np.ndarray, diagonal: np.ndarray
) -> np.ndarray:
    """Return changes of left-out values where a row is removed as well, (m, s, n, n_outputs).

    `left_out`, (m, s), holds m sets S of rows that are left out together, and `entries`,
    (m, s, n), the rows S of the inverse B. Without S, the dual coefficients are ``a - B_:S e``
    with errors ``e = B_SS^-1 a_S``, and the inverse is ``B - B_:S B_SS^-1 B_S:``.
    """
    within = np.take_along_axis(entries, left_out[:, None], axis=2)
    weights = np.linalg.solve(within, entries)
    errors = np.linalg.solve(within, a[left_out])
    duals = a - entries.swapaxes(1, 2) @ errors
    diagonal = diagonal - (entries * weights).sum(axis=1)
    np.put_along_axis(diagonal, left_out, np.inf, axis=1)
    return weights[..., None] * (duals / diagonal[..., None])[:, None]


def _is_exact(rows: LeftOut) -> bool:
    """Return whether every row has a coefficient, as values of earlier rows require."""
    return len(rows.weights) <= EXACT_ROWS or rows.times is not None


def _invert_nystrom(
    X: np.ndarray, landmarks: np.ndarray, rows: LeftOut, kernel: Kernel
) -> Inverse:
    """Return the inverse by features ``F = k(X, Z) L^-T``, (n, m), with ``F F'`` near the kernel.

    L is the Cholesky factor of the kernel at the landmarks Z.
    """
    Z = X[landmarks]
    factor = cholesky(kernel(Z, Z), np.full(len(Z), JITTER))
    F = solve_triangular(factor, kernel(Z, X), lower=True).T
    return Inverse.from_features(F, kernel.ridge / rows.weights, factor)
