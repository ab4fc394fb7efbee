"""An additive trend: a sum of functions of one feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.linear_model import Ridge, RidgeCV
from torch import Tensor, nn

from .._utils.precision import EXACT, exact, stored
from .._utils.storable import storable
from .._utils.threads import one_blas_thread
from .._utils.validation import MAX_WIDENED, as_tensor, real_valued
from .kernel_trend import LeftOut
from .trend import CrossFittedTrend, Part, parts_of

if TYPE_CHECKING:
    from .._data.sample import TableRows

MAX_BINS = 8  # of a feature, with equal numbers of rows; 16 bins follow noise
MAX_FITTED_ROWS = 2**13  # more rows take longer, and hardly change a sum of functions
MAX_CODES = 2**10  # columns of the regression: more would take longer than training
PENALTIES = np.logspace(-5, 2, 15)  # per row
LEAST_SCALE = 1e-30  # of a feature: float32 has no slope of a smaller scale


class AdditiveFunction(nn.Module):
    """Map (n, n_features) to (n, n_outputs) by a sum of one piecewise-linear function per feature.

    A function is constant beyond its bins, and linear without bins. The codes of a feature are the
    piecewise-linear encoding of Gorishniy et al., "On Embeddings for Numerical Features in Tabular
    Deep Learning" (2022), section 3.2.
    """

    columns: Tensor  # (c,), positions of the features with bins
    starts: Tensor  # (c, n_bins), of the bins
    widths: Tensor  # (c, n_bins), infinite where a feature has fewer bins
    slopes: Tensor  # (n_features, n_outputs), of the features without bins; 0 elsewhere
    rises: Tensor  # (c * n_bins, n_outputs), of the functions in the bins
    constant: Tensor  # (n_outputs,)

    def __init__(self, **buffers: Tensor):
        super().__init__()
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def sum(self, X: Tensor) -> Tensor:
        """Return the sum without the constant, (n, n_outputs), in the precision of the slopes."""
        X = X.to(self.slopes.dtype)
        return X @ self.slopes + codes(X, self.columns, self.starts, self.widths) @ self.rises

    def terms(self, X: Tensor, output: int) -> Tensor:
        """Return the values of the functions of one output, (n, n_features)."""
        X = X.to(self.slopes.dtype)
        through = codes(X, self.columns, self.starts, self.widths)
        rises = (through * self.rises[:, output]).unflatten(1, self.starts.shape)
        return (X * self.slopes[:, output]).index_add(1, self.columns, rises.sum(dim=2))

    def forward(self, X: Tensor) -> Tensor:
        return self.sum(X) + self.constant


def codes(X: Tensor, columns: Tensor, starts: Tensor, widths: Tensor) -> Tensor:
    """Return the part of every bin that is below the feature, from 0 to 1, (n, c * n_bins)."""
    through = (X.index_select(1, columns)[..., None] - starts) / widths
    return through.clamp(0.0, 1.0).flatten(1)


@storable
class AdditiveTrend(CrossFittedTrend):
    """Additive function in units of the targets, fitted by ridge regression.

    The penalty minimises the error of left-out rows. Features of more than two values have bins
    between their quantiles, unless more than 64 features do.
    """

    @classmethod
    def fit(
        cls,
        ids: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        rows: LeftOut,
        center: np.ndarray,
        unit: np.ndarray,
    ) -> Self | None:
        """Fit the function to at most MAX_FITTED_ROWS rows. Return None where it cannot be fitted.

        `y`, (n, n_outputs), are the targets minus `center`, divided by `unit`.
        """
        # Encoded targets of a row without weight may be infinite.
        some = np.flatnonzero(rows.weights > 0)
        if len(some) > MAX_FITTED_ROWS:
            some = np.sort(np.random.RandomState(0).choice(some, MAX_FITTED_ROWS, replace=False))
        some_rows, features = rows[some], torch.from_numpy(X)
        parts = list(parts_of(len(some), some_rows.groups, some_rows.times))
        design = _Design.from_features(features[some])
        if not 0 < design.n_columns <= MAX_CODES or not any(len(fitted) for fitted, _ in parts):
            return None
        solutions = _cross_fit(design(features[some]), y[some], some_rows, parts)
        parts = [(some[fitted], some[predicted]) for fitted, predicted in parts]
        parts.append((some, np.arange(len(X))))
        fits = []
        for (coefficients, constant), (_, predicted) in zip(solutions, parts, strict=True):
            function = design.function(coefficients * unit, center + constant * unit)
            fits.append((function, function(features[predicted]).numpy()))
        return cls.from_parts(ids, parts, fits, rows.times)

    @property
    def function(self) -> AdditiveFunction:
        """Return the function that is fitted to all rows."""
        return self.functions[-1]

    def evaluate(self, function: AdditiveFunction, rows: TableRows) -> Tensor:
        return function(rows.encoded.cpu()).to(rows.encoded.device)

    def __getstate__(self) -> dict[str, Any]:
        """Store tensors as arrays."""
        arrays = [{k: v.numpy() for k, v in f.named_buffers()} for f in self.functions]
        return vars(self) | {"functions": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        functions = tuple(
            AdditiveFunction(**{k: as_tensor(v) for k, v in arrays.items()})
            for arrays in state["functions"]
        )
        vars(self).update(state | {"functions": functions})


def additive_part(X: Tensor, values: np.ndarray, weights: np.ndarray) -> AdditiveFunction:
    """Return the additive function that is nearest to `values`, (n, n_outputs).

    `values` belong to a function at features `X`, (n, n_features); the mean of `weights`, (n,),
    is 1.
    """
    some = np.random.RandomState(0).permutation(len(X))[:MAX_FITTED_ROWS]
    X, values, rows = X[torch.from_numpy(some)].cpu(), values[some], LeftOut(weights[some])
    design = _Design.from_features(X)
    if not design.n_columns:
        nothing = np.zeros((0, values.shape[1]))
        return design.function(nothing, np.average(values, axis=0, weights=rows.weights))
    ((coefficients, constant),) = _cross_fit(design(X), values, rows, [])
    return design.function(coefficients, constant)


@dataclass(frozen=True)
class _Design:
    """Columns of the regression: features without bins, of deviation 1, and codes of the bins."""

    is_linear: Tensor  # (n_features,), whether a feature without bins varies
    scales: Tensor
    columns: Tensor
    starts: Tensor
    widths: Tensor

    @classmethod
    def from_features(cls, X: Tensor) -> _Design:
        """Choose the columns for features (n, n_features)."""
        curved = real_valued(X)
        curved = curved if len(curved) <= MAX_WIDENED else []
        starts = torch.zeros(len(curved), MAX_BINS)
        widths = torch.full_like(starts, torch.inf)
        levels = torch.linspace(0, 1, MAX_BINS + 1, dtype=EXACT)
        for i, j in enumerate(curved):
            # Edges are values of rows: no value may lie between two of the quantiles.
            edges = stored(exact(X[:, j]).quantile(levels, interpolation="lower")).unique()
            n_bins = len(edges) - 1
            starts[i, :n_bins], widths[i, :n_bins] = edges[:-1], edges.diff()
        columns = torch.tensor(curved, dtype=torch.long)
        scales = exact(X).std(dim=0, correction=0)
        is_linear = (scales > LEAST_SCALE).index_fill(0, columns, False)
        return cls(is_linear, scales[is_linear, None], columns, exact(starts), exact(widths))

    @property
    def n_columns(self) -> int:
        return len(self.scales) + self.starts.numel()

    def __call__(self, X: Tensor) -> np.ndarray:
        """Return the columns of the regression, (n, n_columns)."""
        X = exact(X)
        numbers = X[:, self.is_linear] / self.scales.T
        return torch.cat([numbers, codes(X, self.columns, self.starts, self.widths)], 1).numpy()

    def function(self, coefficients: np.ndarray, constant: np.ndarray) -> AdditiveFunction:
        """Return the function with coefficients (n_columns, n_outputs)."""
        of_numbers, rises = torch.from_numpy(coefficients).tensor_split([len(self.scales)])
        slopes = of_numbers.new_zeros(len(self.is_linear), of_numbers.shape[1])
        slopes[self.is_linear] = of_numbers / self.scales
        return AdditiveFunction(
            columns=self.columns,
            starts=self.starts,
            widths=self.widths,
            slopes=slopes,
            rises=rises,
            constant=torch.from_numpy(constant),
        )


@one_blas_thread()
def _cross_fit(
    X: np.ndarray, y: np.ndarray, rows: LeftOut, parts: Sequence[Part]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return coefficients and constants of a regression for every part, and last for all rows.

    The penalty is chosen by leaving out related rows together, or else single rows.
    """
    options: dict = {"alpha_per_target": y.shape[1] > 1}
    if rows.groups is not None or rows.times is not None:
        folds = [part for part in parts if len(part[0])]
        options = {"cv": folds, "scoring": "neg_mean_squared_error"}
    whole = RidgeCV(PENALTIES * len(X), **options).fit(X, y, rows.weights)

    def mean(some: Any) -> np.ndarray:
        return np.average(y[some], axis=0, weights=rows.weights[some])

    solutions = []
    for fitted, predicted in parts:
        if not len(fitted):
            solutions.append((np.zeros((X.shape[1], y.shape[1])), mean(predicted)))
            continue
        ridge = Ridge(whole.alpha_).fit(X[fitted], y[fitted], rows.weights[fitted])
        coefficients, constant = _coefficients(ridge, y)
        if rows.times is None:
            # The mean of the fitted rows is low where the targets of the left-out rows are high.
            constant = constant + mean(slice(None)) - mean(fitted)
        solutions.append((coefficients, constant))
    return [*solutions, _coefficients(whole, y)]


def _coefficients(ridge: Ridge | RidgeCV, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients, (n_columns, n_outputs), and constants, (n_outputs,)."""
    return ridge.coef_.reshape(y.shape[1], -1).T, np.reshape(ridge.intercept_, -1)
