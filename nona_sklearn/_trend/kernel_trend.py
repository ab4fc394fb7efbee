"""A trend by kernel ridge regression, with the rows that it is fitted to."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from scipy.linalg import lapack, solve_triangular
from threadpoolctl import threadpool_limits
from torch import Tensor

from .._utils.chunks import spans
from .._utils.storable import storable
from .._utils.threads import cached_property
from .kernel import CONSTANT, METRIC_ROWS, Kernel, LeftOut, choose_kernel

MAX_ROWS = 6000  # to which the function is fitted: more take too long
BLOCK_PAIRS = 2**21  # distances that are held at a time


@storable
@dataclass(frozen=True, eq=False)
class KernelTrend:
    """A function of the features in units of the targets, by kernel ridge regression.

    ``f(x) = center + unit sum_i a_i k(x, x_i)``, where k is a
    :class:`~nona_sklearn._trend.kernel.Kernel`. The value at one of its own rows is that of the
    function which is fitted to other rows.

    Parameters
    ----------
    ids : int ndarray of shape (n,)
        Ids of its rows, ascending.
    X : float32 ndarray of shape (n, n_features)
        Their encoded features.
    is_fitted : bool ndarray of shape (n,)
        The m rows that the function is fitted to.
    y : ndarray of shape (m, n_outputs)
        Their encoded targets.
    rows : LeftOut
        How much they count, and which are left out together.
    kernel : Kernel
        The kernel.
    center, unit : ndarray of shape (n_outputs,)
        What an encoded target of 0 is, and one unit of them.
    coefficients, errors : ndarray of shape (m, n_outputs)
        The coefficients a, and the errors of left-out rows, encoded.
    """

    ids: np.ndarray
    X: np.ndarray
    is_fitted: np.ndarray
    y: np.ndarray
    rows: LeftOut
    kernel: Kernel
    center: np.ndarray
    unit: np.ndarray
    coefficients: np.ndarray
    errors: np.ndarray

    @classmethod
    def fit(
        cls,
        ids: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        rows: LeftOut,
        center: np.ndarray,
        unit: np.ndarray,
    ) -> KernelTrend:
        """Choose a kernel by some of the rows, and fit the function to as many as MAX_ROWS.

        `y`, (n, n_outputs), and `rows` are of all n rows.
        """
        # The rows are the same for every random_state: others would only add chance.
        order = np.random.RandomState(0).permutation(len(X))
        some = order[:METRIC_ROWS]
        with threadpool_limits(1, user_api="blas"):  # whose sums depend on the number of threads
            kernel = choose_kernel(X[some].astype(float), y[some], rows[some])
        is_fitted = np.zeros(len(X), dtype=bool)
        is_fitted[order[:MAX_ROWS]] = True
        return cls._solved(ids, X, is_fitted, y[is_fitted], rows[is_fitted], kernel, center, unit)

    @classmethod
    def _solved(
        cls,
        ids: np.ndarray,
        X: np.ndarray,
        is_fitted: np.ndarray,
        y: np.ndarray,
        rows: LeftOut,
        kernel: Kernel,
        center: np.ndarray,
        unit: np.ndarray,
    ) -> KernelTrend:
        own = X[is_fitted].astype(float)
        with threadpool_limits(1, user_api="blas"):
            a, errors = rows.solve(kernel(own, own), y, kernel.ridge)
        return cls(ids, X, is_fitted, y, rows, kernel, center, unit, a, errors)

    @cached_property
    def function(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Weights of features, weighted rows, coefficients, slopes and constant, in float64.

        Features of weight 0 take part in the slopes alone.
        """
        X = torch.from_numpy(self.X[self.is_fitted].astype(float))
        weights = torch.from_numpy(self.kernel.weights)
        rows = (X * weights)[:, weights > 0]
        a = torch.from_numpy(self.coefficients * self.unit)
        constant = torch.from_numpy(self.center) + CONSTANT * a.sum(dim=0)
        return weights, rows, a, self.kernel.slope * X.T @ a, constant

    def __call__(self, X: Tensor) -> Tensor:
        """Values at queries (q, n_features), (q, n_outputs) in float64, with gradients."""
        weights, rows, a, slopes, constant = (each.to(X.device) for each in self.function)
        X = X.to(weights)
        weighted = (X * weights)[:, weights > 0]
        near = [
            (-torch.cdist(weighted[block], rows, p=1.0)).exp() @ a
            for block in spans(len(X), max(1, BLOCK_PAIRS // max(1, len(rows))))
        ]
        return torch.cat([a[:0], *near]) + X @ slopes + constant

    def from_earlier(self, X: Tensor, limits: Tensor) -> Tensor:
        """Values at queries, each of the function fitted to rows before a limit, (q,).

        For the Cholesky factor L of the matrix in the order of times, that of earlier rows is its
        upper left part, so that ``f(q) = sum_i (L^-1 k(q))_i (L^-1 y)_i`` over earlier rows.
        """
        times = self.rows.times
        if times is None or bool(limits.min() > times.max()):
            return self(X)
        order, own = times.argsort(kind="stable"), self.X[self.is_fitted].astype(float)
        before = times[order][:, None] < limits.cpu().numpy()
        with threadpool_limits(1, user_api="blas"):
            K = self.kernel(own[order], own[order])
            factor = self.rows[order].factor(K, self.kernel.ridge)
            half = solve_triangular(factor, self.y[order], lower=True)
            near = self.kernel(own[order], X.double().cpu().numpy())
            values = (before * solve_triangular(factor, near, lower=True)).T @ half
        return torch.from_numpy(self.center + self.unit * values).to(X.device)

    def of_rows(self, ids: np.ndarray) -> np.ndarray:
        """Values at some of its rows, each fitted to other rows, (len(ids), n_outputs)."""
        return self._at(ids, self.errors)

    def moves(self, ids: np.ndarray, X: Tensor) -> Tensor:
        """By how much values at some of its rows change with other features, (len(ids), c)."""
        residuals = self.kernel.ridge / self.rows.weights[:, None] * self.coefficients
        return self(X) - torch.from_numpy(self._at(ids, residuals)).to(X.device)

    def _at(self, ids: np.ndarray, residuals: np.ndarray) -> np.ndarray:
        """Values at some of its rows, (len(ids), n_outputs), from residuals of the fitted ones."""
        positions = np.searchsorted(self.ids, ids)
        values = np.empty((len(self.ids), len(self.unit)))
        values[self.is_fitted] = self.center + self.unit * (self.y - residuals)
        others = np.setdiff1d(positions, np.flatnonzero(self.is_fitted))
        values[others] = self(torch.from_numpy(self.X[others])).numpy()
        return values[positions]

    def residuals_without(self, queries: np.ndarray, ids: np.ndarray) -> Tensor:
        """Residuals of some of its rows without each query, too, (q, len(ids), n_outputs).

        `queries` are ids of its rows as well. For the inverse B of the matrix, the residual of row
        j without j and i is ``(B_ii a_j - B_ij a_i) / (B_ii B_jj - B_ij^2)``; that of a row
        without itself is ``a_j / B_jj``. NaN for rows that the function is not fitted to.
        """
        fitted = self.ids[self.is_fitted]
        is_query, is_row = np.isin(queries, fitted), np.isin(ids, fitted)
        i, j = (np.searchsorted(fitted, each) for each in (queries[is_query], ids[is_row]))
        with threadpool_limits(1, user_api="blas"):
            columns, _ = lapack.dpotrs(self._factor, np.eye(len(fitted))[:, i], lower=True)
        own, pairs = columns[i, np.arange(len(i))][:, None], columns[j].T  # B_ii, B_ij
        a, diagonal = self.coefficients, self._diagonal
        without = own[..., None] * a[j] - pairs[..., None] * a[i][:, None]
        scale = own * diagonal[j] - pairs**2
        found = np.full((len(queries), len(ids), a.shape[1]), np.nan)
        found[:, is_row] = a[j] / diagonal[j, None]
        with np.errstate(divide="ignore", invalid="ignore"):  # of a query and itself
            found[np.ix_(is_query, is_row)] = without / scale[..., None]
        return torch.from_numpy(self.unit * found)

    @property
    def leaves_out_single_rows(self) -> bool:
        """Whether a row is left out by itself: not with its group, nor with later rows."""
        return self.rows.groups is None and self.rows.times is None

    @cached_property
    def _factor(self) -> np.ndarray:
        X = self.X[self.is_fitted].astype(float)
        with threadpool_limits(1, user_api="blas"):
            return self.rows.factor(self.kernel(X, X), self.kernel.ridge)

    @cached_property
    def _diagonal(self) -> np.ndarray:
        """Diagonal of the inverse of the matrix, (m,)."""
        with threadpool_limits(1, user_api="blas"):
            inverse, _ = lapack.dtrtri(self._factor, lower=True)
        inverse = np.tril(inverse)
        return np.einsum("ij,ij->j", inverse, inverse)

    def with_rows(self, ids: np.ndarray, X: np.ndarray) -> KernelTrend:
        """With further rows, to which the function is not fitted."""
        return replace(
            self,
            ids=np.concatenate([self.ids, ids]),
            X=np.concatenate([self.X, X]),
            is_fitted=np.concatenate([self.is_fitted, np.zeros(len(ids), dtype=bool)]),
        )

    def without(self, ids: np.ndarray) -> KernelTrend:
        """With the same kernel, fitted anew to the rows that are left."""
        kept = ~np.isin(self.ids, ids)
        still = kept[self.is_fitted]
        return KernelTrend._solved(
            *(self.ids[kept], self.X[kept], self.is_fitted[kept], self.y[still]),
            *(self.rows[still], self.kernel, self.center, self.unit),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed from it."""
        return {field.name: vars(self)[field.name] for field in fields(self)}
