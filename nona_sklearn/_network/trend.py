"""An additive trend: a sum of functions, one of each feature, that predicts the targets."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import GroupKFold, cross_val_predict
from torch import Tensor, nn

from .._utils.threads import one_blas_thread
from .real_valued import MAX_WIDENED, real_valued

MAX_BINS = 8  # of a feature, each with as many of the rows; 16 follow noise
LEAST_ROWS, MAX_ROWS = 10, 2**13  # from which a trend is fitted
MAX_CODES = 2**10  # more would take longer than training
PENALTIES = np.logspace(-5, 2, 15)  # of each row
N_FOLDS = 5
LEAST_SCALE = 1e-30  # of a feature: float32 has no slope of less

Folds = list[tuple[np.ndarray, np.ndarray]]  # rows to fit, and rows to predict


class AdditiveTrend(nn.Module):
    """A sum of piecewise-linear functions, one of each feature: (n, n_features) -> (n, n_outputs).

    Beyond the bins a function is constant; features without bins count linearly. The codes of a
    feature, how far it is through each of its bins, are the piecewise-linear encoding of
    Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning" (2022),
    section 3.2. It is fitted by :func:`fit_trend`, and not trained.

    Parameters
    ----------
    columns : int Tensor of shape (c,)
        Positions of the features with bins.
    starts, widths : Tensor of shape (c, n_bins)
        Where their bins start, and how wide they are; infinite where there is no further bin.
    n_features, n_outputs : int
        Numbers of features, and of targets.
    """

    def __init__(
        self, columns: Tensor, starts: Tensor, widths: Tensor, n_features: int, n_outputs: int
    ):
        super().__init__()
        self.columns: Tensor
        self.starts: Tensor
        self.widths: Tensor
        self.slopes: Tensor
        self.rises: Tensor
        self.register_buffer("columns", columns)
        self.register_buffer("starts", starts)
        self.register_buffer("widths", widths)
        self.register_buffer("slopes", torch.zeros(n_features, n_outputs))
        self.register_buffer("rises", torch.zeros(starts.numel(), n_outputs))

    def codes(self, x: Tensor) -> Tensor:
        """How far each feature is through each of its bins, from 0 to 1, (n, c * n_bins)."""
        through = (x.index_select(1, self.columns)[..., None] - self.starts) / self.widths
        return through.clamp(0.0, 1.0).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.slopes + self.codes(x) @ self.rises


class WithTrend(nn.Module):
    """An embedding, and beside it a trend: (n, n_features) -> (n, d + n_outputs).

    In a table of training rows, further columns, one of each output, are added to the trend.

    Parameters
    ----------
    embedding : Module
        Maps features to an embedding, (n, d).
    trend : AdditiveTrend
        Maps them to the trend.
    differences : Tensor of shape (n_train, n_outputs)
        Those further columns, as :func:`fit_trend` returns them.
    """

    def __init__(self, embedding: nn.Module, trend: AdditiveTrend, differences: Tensor):
        super().__init__()
        self.embedding, self.trend = embedding, trend
        self.n_features = len(trend.slopes)
        self._differences: Tensor | None = differences

    def take_differences(self) -> Tensor:
        """Return the further columns, which are no part of a network."""
        assert self._differences is not None
        differences, self._differences = self._differences, None
        return differences

    def forward(self, x: Tensor) -> Tensor:
        features, differences = x.tensor_split([self.n_features], dim=1)
        g = self.trend(features)
        if x.shape[1] > self.n_features:
            g = g + differences
        return torch.cat([self.embedding(features), g], dim=1)


def fit_trend(
    X: Tensor,
    y: Tensor,
    sample_weight: Tensor | None = None,
    groups: Tensor | None = None,
    times: Tensor | None = None,
) -> tuple[AdditiveTrend, Tensor]:
    """Fit a trend by ridge regression, with the penalty of the least cross-validation error.

    Parameters
    ----------
    X : Tensor of shape (n, n_features)
        Features of training rows. Those of more than two values have bins between their
        quantiles, unless there are more than 64.
    y : Tensor of shape (n,) or (n, n_outputs)
        Their targets.
    sample_weight : Tensor of shape (n,), optional
        How much each row counts; None: all alike.
    groups : Tensor of shape (n,), optional
        Rows of a group are left out together; None: each by itself.
    times : Tensor of shape (n,), optional
        Rows are left out in blocks of time.

    Returns
    -------
    trend : AdditiveTrend
        Without an intercept, which differences do not have.
    differences : Tensor of shape (n, n_outputs)
        For each training row, the trend that is fitted to the other folds, minus the trend: its
        own target is then no part of it.
    """
    n_rows, n_outputs = len(X), y[0].numel()
    # Targets of a row without weight may be infinite in their unit.
    rows = np.arange(n_rows) if sample_weight is None else np.flatnonzero(sample_weight > 0)
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.RandomState(0).choice(rows, MAX_ROWS, replace=False))
    X, y = X[rows], y[rows].reshape(len(rows), -1).double()
    trend = AdditiveTrend(*_bins(X), X.shape[1], n_outputs)
    differences = torch.zeros(n_rows, n_outputs)
    scales = X.double().std(dim=0, correction=0)
    linear = (scales > LEAST_SCALE).index_fill(0, trend.columns, False)
    numbers = X[:, linear].double() / scales[linear]
    codes = torch.cat([numbers, trend.codes(X).double()], dim=1).numpy()
    folds = _folds(len(rows), *(None if each is None else each[rows] for each in (groups, times)))
    if len(rows) < LEAST_ROWS or not folds or not 0 < codes.shape[1] <= MAX_CODES:
        return trend, differences
    weights = None if sample_weight is None else sample_weight[rows].double().numpy()
    related = groups is not None or times is not None
    with one_blas_thread():
        ridge, others = _cross_fit(codes, y.numpy(), weights, folds, related)
        own = ridge.predict(codes).reshape(others.shape)
    coefficients = torch.from_numpy(ridge.coef_.reshape(n_outputs, -1).T)
    slopes, rises = coefficients.split([numbers.shape[1], len(trend.rises)])
    trend.slopes[linear] = (slopes / scales[linear, None]).to(trend.slopes)
    trend.rises.copy_(rises)
    differences[rows] = torch.from_numpy(others - own).to(differences)
    return trend, differences


def _folds(n_rows: int, groups: Tensor | None, times: Tensor | None) -> Folds:
    """Rows to fit and rows to predict: of other groups, in other blocks of time, or others."""
    if groups is not None:
        n_folds = min(N_FOLDS, len(groups.unique()))
        if n_folds == 1:
            return []
        return list(GroupKFold(n_folds).split(groups, groups=groups.numpy()))
    # The folds are the same for every random_state: others would only add chance.
    order = np.random.RandomState(0).permutation(n_rows)
    if times is not None:
        order = times.argsort(stable=True).numpy()
    parts = np.array_split(order, min(N_FOLDS, n_rows))
    return [(np.setdiff1d(order, part), part) for part in parts]


def _cross_fit(
    codes: np.ndarray, y: np.ndarray, weights: np.ndarray | None, folds: Folds, related: bool
) -> tuple[RidgeCV, np.ndarray]:
    """Ridge regression, and what that of the other folds predicts, (n, c).

    Rows that are `related` are left out together where the penalty is chosen, others one by one,
    which takes one decomposition.
    """
    options: dict = {"alpha_per_target": y.shape[1] > 1}
    if related:
        options = {"cv": folds, "scoring": "neg_mean_squared_error"}
    ridge = RidgeCV(PENALTIES * len(codes), **options).fit(codes, y, weights)
    params = {} if weights is None else {"sample_weight": weights}
    found = cross_val_predict(Ridge(ridge.alpha_), codes, y, cv=folds, params=params)
    mean = np.average(y, axis=0, weights=weights)
    for others, rows in folds:
        # The mean of the other folds is low where the targets of these rows are high.
        of_others = None if weights is None else weights[others]
        found[rows] += mean - np.average(y[others], axis=0, weights=of_others)
    return ridge, found.reshape(y.shape)


def _bins(X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Columns with bins, with where each bin starts and its width, (c, MAX_BINS)."""
    curved = real_valued(X)
    curved = curved if len(curved) <= MAX_WIDENED else []
    starts = torch.zeros(len(curved), MAX_BINS)
    widths = torch.full_like(starts, torch.inf)
    levels = torch.linspace(0, 1, MAX_BINS + 1, dtype=torch.float64)
    for i, j in enumerate(curved):
        # Values of rows, between which there may be no others.
        edges = X[:, j].double().quantile(levels, interpolation="lower").float().unique()
        n_bins = len(edges) - 1
        starts[i, :n_bins], widths[i, :n_bins] = edges[:-1], edges.diff()
    return torch.tensor(curved, dtype=torch.long), starts, widths
