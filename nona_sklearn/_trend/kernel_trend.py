"""A trend by kernel ridge regression, with the rows that it is fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.linalg import solve_triangular
from torch import Tensor, nn

from .._utils.chunks import spans
from .._utils.storable import storable
from .._utils.threads import cached_property, one_blas_thread
from .kernel import (
    CONSTANT,
    METRIC_ROWS,
    PEAKS,
    Inverse,
    Kernel,
    LeftOut,
    cholesky,
    choose_kernel,
    weigh_features,
    with_peak,
)

EXACT_ROWS = 3000  # with a coefficient each; of more rows, the landmarks alone have one
N_LANDMARKS = 1000
MAX_ROWS, MAX_TIMED_ROWS = 10_000, 6000  # to which the function is fitted: more take too long
JITTER = 1e-6  # of the kernel at landmarks, of which two may be equal
BLOCK_PAIRS = 2**21  # distances that are held at a time


class KernelFunction(nn.Module):
    """``constant + x slopes + sum_i a_i (exp(-d_i) + peak exp(-10 d_i))``, in float64.

    The distances are ``d_i = |v (x - x_i)|_1``.

    (n, n_features) -> (n, n_outputs). Features of weight 0 take part in the slopes alone.

    Parameters
    ----------
    X : Tensor of shape (m, n_features)
        The rows with a coefficient.
    a : Tensor of shape (m, n_outputs)
        Their coefficients.
    center : Tensor of shape (n_outputs,)
        What is added to the sum of kernels.
    kernel : Kernel
        The kernel.
    """

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
        distance = torch.cdist(X[:, self.columns] * self.weights, self.rows, p=1.0)
        return with_peak((-distance).exp(), self.peak) @ self.a + X @ self.slopes + self.constant


@storable
@dataclass(frozen=True, eq=False)
class KernelTrend:
    """A function of the features in units of the targets, by kernel ridge regression.

    ``f(x) = center + unit sum_i c_i k(x, x_i)``, where k is a
    :class:`~nona_sklearn._trend.kernel.Kernel` and i are its landmarks: all rows that it is fitted
    to, or some of them if these are many (Nyström's approximation [1]_). The value at one of these
    rows is that of the function which is fitted to the others.

    Parameters
    ----------
    ids : int ndarray of shape (n,)
        Ids of the rows that it is fitted to, ascending.
    X : float32 ndarray of shape (n, n_features)
        Their encoded features.
    y : ndarray of shape (n, n_outputs)
        Their encoded targets.
    rows : LeftOut
        How much they count, and which are left out together.
    kernel : Kernel
        The kernel.
    center, unit : ndarray of shape (n_outputs,)
        What an encoded target of 0 is, and one unit of them.
    duals, errors : ndarray of shape (n, n_outputs)
        ``(K + D)^-1 y``, where D is the ridge over the weights, and the errors of left-out rows,
        encoded.
    coefficients : ndarray of shape (m, n_outputs)
        The coefficients c of the landmarks.

    References
    ----------
    .. [1] Williams and Seeger, "Using the Nyström Method to Speed Up Kernel Machines", 2000, NIPS.
    """

    ids: np.ndarray
    X: np.ndarray
    y: np.ndarray
    rows: LeftOut
    kernel: Kernel
    center: np.ndarray
    unit: np.ndarray
    duals: np.ndarray
    errors: np.ndarray
    coefficients: np.ndarray

    takes_table: ClassVar[bool] = False
    is_data: ClassVar[bool] = True
    is_solved: ClassVar[bool] = True

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
        """Choose a kernel by some of the rows, and fit the function to as many as MAX_ROWS.

        The arrays and `rows` are of all of them.
        """
        kernel = kernel_for(X, y, rows, peaks)
        most = MAX_ROWS if rows.times is None else MAX_TIMED_ROWS
        fitted = np.sort(_in_random_order(len(X))[:most])
        of_rows = ids[fitted], X[fitted], y[fitted], rows[fitted]
        return cls._solved(*of_rows, kernel, center, unit)

    @classmethod
    def _solved(
        cls,
        ids: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        rows: LeftOut,
        kernel: Kernel,
        center: np.ndarray,
        unit: np.ndarray,
    ) -> KernelTrend:
        own = X.astype(float)
        with one_blas_thread():
            if _is_exact(rows):
                duals, errors = rows.solve(kernel(own, own), y, kernel.ridge)
                coefficients = duals
            else:
                F, factor = _features(own, kernel)
                inverse = Inverse.of_features(F, kernel.ridge / rows.weights)
                duals = inverse @ y
                errors = rows.errors(inverse, duals)
                coefficients = solve_triangular(factor, F.T @ duals, lower=True, trans="T")
        of_rows = ids, X, y, rows
        # In the order of memory that files have, on which last digits of products depend.
        solution = map(np.ascontiguousarray, (duals, errors, coefficients))
        return cls(*of_rows, kernel, center, unit, *solution)

    def inputs_of(self, rows: Any) -> Tensor:
        """The encoded features."""
        return rows.encoded

    @cached_property
    def function(self) -> KernelFunction:
        """The function of a block of queries."""
        X = torch.from_numpy(self._rows_with_coefficients)
        a, center = torch.from_numpy(self.coefficients * self.unit), torch.from_numpy(self.center)
        return KernelFunction(X, a, center, self.kernel)

    def __call__(self, X: Tensor) -> Tensor:
        """Values at queries (q, n_features), (q, n_outputs) in float64, with gradients."""
        function = self.function.to(X.device)
        blocks = spans(len(X), max(1, BLOCK_PAIRS // max(1, len(function.a))))
        return torch.cat([function.a[:0], *(function(X[block]) for block in blocks)])

    def from_earlier(self, X: Tensor, limits: Tensor) -> Tensor:
        """Values at queries, each of the function fitted to rows before a limit, (q,).

        For the Cholesky factor L of the matrix in the order of times, that of earlier rows is its
        upper left part, so that ``f(q) = sum_i (L^-1 k(q))_i (L^-1 y)_i`` over earlier rows.
        """
        times = self.rows.times
        if times is None or bool((limits > times.max()).all()):
            return self(X)
        order, own = times.argsort(kind="stable"), self.X.astype(float)
        before = times[order][:, None] < limits.cpu().numpy()
        with one_blas_thread():
            K = self.kernel(own[order], own[order])
            factor = cholesky(K, self.kernel.ridge / self.rows.weights[order])
            half = solve_triangular(factor, self.y[order], lower=True)
            near = self.kernel(own[order], X.double().cpu().numpy())
            values = (before * solve_triangular(factor, near, lower=True)).T @ half
        return torch.from_numpy(self.center + self.unit * values).to(X.device)

    def of_rows(self, ids: np.ndarray, X: Tensor, limits: Tensor | None = None) -> np.ndarray:
        """Values at rows with these features, (len(ids), n_outputs), each fitted to other rows.

        With limits, (len(ids),), it is fitted to rows before the limit.
        """
        if limits is not None:
            return self.from_earlier(X, limits.cpu()).numpy()
        own, among = self._places(ids)
        values = np.empty((len(ids), len(self.unit)))
        values[among] = self.center + self.unit * (self.y - self.errors)[own]
        values[~among] = self(X[torch.from_numpy(~among)]).numpy()
        return values

    def moved(self, ids: np.ndarray, X: Tensor) -> Tensor:
        """Values at rows if they had these features instead of theirs, (len(ids), n_outputs).

        They change as the function that is fitted to all rows does.
        """
        own, among = self._places(ids)
        residuals = self.kernel.ridge / self.rows.weights[:, None] * self.duals
        apart = np.zeros((len(ids), len(self.unit)))
        apart[among] = (self.unit * (residuals - self.errors))[own]
        return self(X) + torch.from_numpy(apart).to(X.device)

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where those of the rows are that it is fitted to, and which these are, bool."""
        among = np.isin(ids, self.ids)
        return np.searchsorted(self.ids, ids[among]), among

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Residuals of some rows without each query, too, (q, len(ids), n_outputs).

        `queries` are ids as well; `residuals`, (len(ids), n_outputs), are those of the rows
        without themselves. For the inverse B of the matrix, the residual of row j without j
        and i is ``(a_j - r a_i) / (B_jj - r B_ij)`` with ``r = B_ij / B_ii``. Residuals of a query
        itself, and of rows that the function is not fitted to, stay.
        """
        (i, is_query), (j, is_row) = map(self._places, (queries, ids))
        with one_blas_thread():  # other threads wait for the inverse, and find it
            inverse = self._inverse
            pairs, diagonal = inverse.of(i, j), inverse.diagonal[j]  # B_ij, B_jj
            ratios = pairs / inverse.diagonal[i][:, None]  # products of both may underflow
        differ, a = i[:, None] != j, self.unit * self.duals
        without = a[j] - ratios[..., None] * a[i][:, None]
        scale = np.where(differ, diagonal - ratios * pairs, 1.0)
        found = np.repeat(residuals[None], len(queries), axis=0)
        block = np.ix_(is_query, is_row)
        found[block] = np.where(differ[..., None], without / scale[..., None], found[block])
        return found

    @property
    def has_shifts(self) -> bool:
        """Whether :meth:`shifts` are known: unless rows are predicted from earlier ones."""
        return self.rows.times is None

    def shifts(self, removed: np.ndarray, X: Tensor) -> np.ndarray:
        """By how much values at queries change without each row, (q, len(removed), n_outputs).

        `removed` are ids. For the inverse B of the matrix, the value at q changes by
        ``-(B k(q))_j a_j / B_jj`` without row j. Landmarks are kept.
        """
        Z = self._rows_with_coefficients
        with one_blas_thread():
            weights = self.kernel(X.double().cpu().numpy(), Z) @ self._smoother
            weights = weights / self._inverse.diagonal
        return self._of_ids(removed, -weights[..., None] * (self.unit * self.duals))

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, X: Tensor, query: int | None = None
    ) -> np.ndarray:
        """The same of the values at rows, each fitted to other rows; without a `query`, too.

        Rows with these features have these `ids`; `query` is the id of another row, where rows
        are left out by themselves.
        """
        own, among = self._places(ids)
        found = np.empty((len(ids), len(removed), len(self.unit)))
        if not among.all():
            found[~among] = self.shifts(removed, X[torch.from_numpy(~among)])
        entries, a, diagonal = self._entries(own), self.duals, self._inverse.diagonal
        if query is not None and (place := self._places(np.array([query]))[0]).size:
            of_query = self._entries(place)[0]
            weights = of_query / of_query[place]
            entries = entries - entries[:, place] * weights
            a, diagonal = a - weights[:, None] * a[place], diagonal - weights * of_query
            diagonal[place] = np.inf  # the query stays
        if self.rows.groups is None:
            left_out = _shifts_left_out(entries[:, None], own[:, None], a, diagonal)[:, 0]
        else:
            left_out, groups = np.empty((len(own), *a.shape)), self.rows.groups
            for group in np.unique(groups[own]):
                members, some = np.flatnonzero(groups == group), groups[own] == group
                each = _shifts_left_out(self._entries(members)[None], members[None], a, diagonal)
                left_out[some] = each[0, np.searchsorted(members, own[some])]
        found[among] = self._of_ids(removed, self.unit * left_out)
        return found

    def _of_ids(self, ids: np.ndarray, of_rows: np.ndarray) -> np.ndarray:
        """What there is of each of its rows, (..., n, n_outputs), for these ids; 0 of others."""
        own, among = self._places(ids)
        found = np.zeros((*of_rows.shape[:-2], len(ids), of_rows.shape[-1]))
        found[..., among, :] = of_rows[..., own, :]
        return found

    def _entries(self, rows: np.ndarray) -> np.ndarray:
        """Entries of the inverse, (len(rows), n)."""
        if _is_exact(self.rows):
            return self._smoother[rows]
        return self._inverse.of(rows, np.arange(len(self.ids)))

    @property
    def leaves_out_single_rows(self) -> bool:
        """Whether a row is left out by itself: not with its group, nor with later rows."""
        return self.rows.groups is None and self.rows.times is None

    @cached_property
    def _inverse(self) -> Inverse:
        X, D = self.X.astype(float), self.kernel.ridge / self.rows.weights
        with one_blas_thread():
            if _is_exact(self.rows):
                return Inverse.of_matrix(self.kernel(X, X), D)
            return Inverse.of_features(_features(X, self.kernel)[0], D)

    @property
    def _rows_with_coefficients(self) -> np.ndarray:
        X = self.X.astype(float)
        return X if _is_exact(self.rows) else X[_landmarks(len(X))]

    @cached_property
    def _smoother(self) -> np.ndarray:
        """What makes the coefficients of targets, (m, n): of all rows, the inverse itself."""
        inverse = self._inverse
        with one_blas_thread():
            if _is_exact(self.rows):
                every = np.arange(len(self.ids))
                return inverse.of(every, every)
            F, factor = _features(self.X.astype(float), self.kernel)
            return solve_triangular(factor, (inverse @ F).T, lower=True, trans="T")

    def with_rows(
        self, ids: np.ndarray, X: Tensor, rows: Any = None, groups: np.ndarray | None = None
    ) -> KernelTrend:
        """The same: the function is not fitted to further rows."""
        return self

    def without(self, ids: np.ndarray) -> KernelTrend:
        """With the same kernel, fitted anew to the rows that are left."""
        kept = ~np.isin(self.ids, ids)
        if kept.all():
            return self
        of_rows = self.ids[kept], self.X[kept], self.y[kept], self.rows[kept]
        return KernelTrend._solved(*of_rows, self.kernel, self.center, self.unit)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed from it."""
        return {field.name: vars(self)[field.name] for field in fields(self)}


def kernel_for(
    X: np.ndarray, y: np.ndarray, rows: LeftOut, peaks: Sequence[float] = PEAKS
) -> Kernel:
    """Choose a kernel for rows (n, n_features) and encoded targets, by some of them."""
    some = _in_random_order(len(X))[:METRIC_ROWS]
    with one_blas_thread():
        return choose_kernel(X[some].astype(float), y[some], rows[some], peaks)


def mean_weights_for(X: np.ndarray, y: np.ndarray, rows: LeftOut) -> np.ndarray:
    """The mean weights of the features in this kernel, (n_features,): no choice of variances."""
    some = _in_random_order(len(X))[:METRIC_ROWS]
    with one_blas_thread():
        weights = weigh_features(X[some].astype(float), y[some], rows[some]).mean_weights
    assert weights is not None
    return weights


def _in_random_order(n_rows: int) -> np.ndarray:
    """Row numbers, in an order that is the same for every random_state: others add chance."""
    return np.random.RandomState(0).permutation(n_rows)


def _shifts_left_out(
    entries: np.ndarray, left_out: np.ndarray, a: np.ndarray, diagonal: np.ndarray
) -> np.ndarray:
    """By how much left-out values change without each row, too, (m, s, n, n_outputs).

    Each of the m sets S of rows, (m, s), is left out together; `entries`, (m, s, n), are theirs
    of the inverse B. Without S, ``a - B_:S e`` takes the place of the dual coefficients a, with
    the errors ``e = B_SS^-1 a_S``, and ``B - B_:S B_SS^-1 B_S:`` that of the inverse. Values
    do not change without a row of S itself.
    """
    own = np.take_along_axis(entries, left_out[:, None], axis=2)
    weights, errors = np.linalg.solve(own, entries), np.linalg.solve(own, a[left_out])
    duals = a - entries.swapaxes(1, 2) @ errors
    diagonal = diagonal - (entries * weights).sum(axis=1)
    np.put_along_axis(diagonal, left_out, np.inf, axis=1)
    return weights[..., None] * (duals / diagonal[..., None])[:, None]


def _is_exact(rows: LeftOut) -> bool:
    """Whether each of the rows has a coefficient: values of earlier rows need that."""
    return len(rows.weights) <= EXACT_ROWS or rows.times is not None


def _landmarks(n_rows: int) -> np.ndarray:
    """Positions of the landmarks among so many rows."""
    return _in_random_order(n_rows)[:N_LANDMARKS]


def _features(X: np.ndarray, kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
    """Features F (n, m) with ``F F'`` near the kernel, ``F = k(X, Z) L^-T``, and L (m, m).

    L is the Cholesky factor of the kernel at the landmarks Z.
    """
    Z = X[_landmarks(len(X))]
    factor = cholesky(kernel(Z, Z), np.full(len(Z), JITTER))
    return solve_triangular(factor, kernel(Z, X), lower=True).T, factor
