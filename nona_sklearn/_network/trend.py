"""An additive trend: a sum of functions, one of each feature, that predicts the targets."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from .real_valued import MAX_WIDENED, real_valued

MAX_BINS = 8  # of a feature, each with as many of the rows; 16 follow noise
MAX_ROWS = 2**14  # from which a trend is fitted
PENALTIES = np.logspace(-5, 2, 15)  # of each row


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
        through = (x[:, self.columns, None] - self.starts) / self.widths
        return through.clamp(0.0, 1.0).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.slopes + self.codes(x) @ self.rises


def fit_trend(X: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> AdditiveTrend:
    """Fit a trend by ridge regression, with the penalty of the least leave-one-out error.

    Parameters
    ----------
    X : Tensor of shape (n, n_features)
        Features of training rows. Those of more than two values have bins between their
        quantiles, unless there are more than 64.
    y : Tensor of shape (n,) or (n, n_outputs)
        Their targets.
    sample_weight : Tensor of shape (n,), optional
        How much each row counts; None: all alike.

    Returns
    -------
    AdditiveTrend
        Without an intercept, which differences do not have.
    """
    if sample_weight is not None:  # targets of a row without weight may be infinite in their unit
        counts = sample_weight > 0
        X, y, sample_weight = X[counts], y[counts], sample_weight[counts]
    some = torch.linspace(0, len(X) - 1, min(len(X), MAX_ROWS), dtype=torch.float64).long()
    X, y = X[some], y[some].reshape(len(some), -1).double()
    trend = AdditiveTrend(*_bins(X), X.shape[1], y.shape[1])
    linear = X.ne(X[:1]).any(dim=0).index_fill(0, trend.columns, False)
    if not (linear.any() or len(trend.columns)):
        return trend
    numbers = X[:, linear].double().numpy()
    scales = numbers.std(axis=0)
    codes = np.hstack([numbers / scales, trend.codes(X).numpy()])
    weights = None if sample_weight is None else sample_weight[some].double().numpy()
    ridge = RidgeCV(PENALTIES * len(X), alpha_per_target=y.shape[1] > 1)
    with (
        threadpool_limits(1, user_api="blas"),  # whose sums depend on the number of threads
        np.errstate(divide="ignore", invalid="ignore"),  # of two rows, one left out leaves one
    ):
        ridge.fit(codes, y.numpy(), weights)
    slopes, rises = np.split(ridge.coef_.reshape(y.shape[1], -1).T, [len(scales)])
    trend.slopes[linear] = torch.from_numpy(slopes / scales[:, None]).to(trend.slopes)
    trend.rises.copy_(torch.from_numpy(rises))
    return trend


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
