"""Trends beside networks, and networks as the trend of rows among weighted features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.classes import ClassTargets
from .._data.row_values import normalize_mean
from .._data.sample import TableRows
from .._data.training_data import TrainingData
from .._inference.bank import NeighborBank
from .._inference.held_out import Blend
from .._inference.neighbors import Offset
from .._inference.network_trend import NetworkTrend
from .._network.network import NeighborNetwork, embed
from .._trend.additive_trend import AdditiveTrend
from .._trend.class_trend import ClassTrend
from .._trend.kernel_trend import PEAKS, KernelTrend, LeftOut, weigh_features
from .._trend.model_trend import Classes, ModelTrend, Numbers
from .._trend.trend import Trend
from .._utils.validation import is_whole
from ..attention.head import NONAHead
from ..embedding import WeightedFeatures
from ..weighting import Triangular

#: Rows behind a prediction among the features, for numbers and for classes.
N_ROWS, N_ROWS_OF_CLASSES = 15, 20


def fit_trend(
    choice: Any, data: TrainingData, targets: Any, *, seed: int, n_jobs: int | None, verbose: int
) -> Trend | None:
    """Return a fitted trend, by its name or from a model, or None if it cannot be fitted.

    The `seed` sets the `random_state` of a model.
    """
    ids, weights = np.asarray(data.selection.indices), data.log_prior
    trend: Trend | None
    if isinstance(choice, str):
        trend = _fit_named(choice, data, targets)
    else:
        y: Any = data.values.reshape(len(data), -1)
        answers: Numbers | Classes = Numbers(y.shape[1])
        if isinstance(targets, ClassTargets):
            y, answers = targets.decode(y), Classes(targets.classes)
        times = data.sample.times
        trend = ModelTrend.fit(
            choice,
            answers,
            ids,
            data.table,
            np.asarray(y).reshape(len(data), -1),
            None if weights is None else data.selection.unit * weights.double().exp().numpy(),
            data.groups,
            None if times is None else times.numpy(),
            seed,
            n_jobs,
            verbose,
        )
    if trend is None or not isinstance(targets, ClassTargets):
        return trend
    X, _, left_out = _encoded(data)
    rows, y = TableRows(torch.from_numpy(X)), data.values.numpy()
    return ClassTrend.fit(trend, ids, rows, y, left_out.weights, targets.sizes)


def additive_beside(trend: Trend | None, data: TrainingData, targets: Any) -> Trend | None:
    """Return the additive trend whose residuals the networks learn, or None.

    Residuals of a more flexible trend contradict one another at near rows.
    """
    if trend is None or isinstance(trend, AdditiveTrend):
        return trend
    return _fit_named("additive", data, targets)


def _fit_named(name: str, data: TrainingData, targets: Any) -> Trend | None:
    """Return the additive trend or the kernel, fitted to the encoded features."""
    X, y, rows = _encoded(data)
    center = targets.restore(torch.zeros(1, y.shape[1], dtype=torch.float64))[0]
    center, unit = (numbers.reshape(-1).double().numpy() for numbers in (center, targets.unit))
    ids = np.asarray(data.selection.indices)
    if name == "additive":
        return AdditiveTrend.fit(ids, X, y, rows, center, unit)
    # For one-hot rows, a kernel with a peak has a higher log loss on most tables.
    peaks = (0.0,) if isinstance(targets, ClassTargets) else PEAKS
    return KernelTrend.fit(ids, X, y, rows, center, unit, peaks)


def _encoded(data: TrainingData) -> tuple[np.ndarray, np.ndarray, LeftOut]:
    """Return features (n, n_features), targets (n, n_outputs), and related rows with weights."""
    sample, prior = data.sample, data.log_prior
    assert isinstance(sample.X, Tensor)  # only a table has a trend
    rows = LeftOut(
        np.ones(len(data)) if prior is None else normalize_mean(prior).double().numpy(),
        None if sample.groups is None else sample.groups.numpy(),
        None if sample.times is None else sample.times.numpy(),
    )
    return sample.X.numpy(), sample.y.reshape(len(data), -1).double().numpy(), rows


def feature_weights(trend: Trend | None, data: TrainingData) -> Tensor | None:
    """Return a kernel's weights of the features, (n_features,), for the search of neighbours.

    The result is None if the weights tell no rows apart.
    """
    of_targets = trend.trend if isinstance(trend, ClassTrend) else trend
    X, y, rows = _encoded(data)
    if isinstance(of_targets, KernelTrend):
        weights = of_targets.kernel.mean_weights
    else:
        weights = weigh_features(X, y, rows).mean_weights
    assert weights is not None  # the kernel is fitted
    return torch.from_numpy(weights) if tell_rows_apart(weights, X) else None


def tell_rows_apart(weights: np.ndarray, X: np.ndarray) -> bool:
    """Return whether weighted features, (n, n_features), differ between rows."""
    largest_distance = (weights * np.ptp(X, axis=0)).sum()
    return 0 < largest_distance < np.finfo(np.float32).max


def find_among_features(
    network: NeighborNetwork,
    bank: NeighborBank,
    X: Tensor,
    weights: Tensor,
    targets: Any,
    n_neighbors: Any,
    blend: Blend,
) -> tuple[NeighborNetwork, NeighborBank]:
    """Return the network that weights the features, and a bank in their l1 distance.

    The given network and bank become the trend. The `weights` have shape (n_features,).
    """
    for module in network.head.modules():
        if isinstance(module, NONAHead):
            module.bounds = None  # bounds hold for adjusted targets, not for the trend
    inner_bank = replace(bank, names=None, numbered=True, target_names=None, levels=None, inputs=X)
    trend = NetworkTrend.from_bank(network, inner_bank)
    if is_whole(n_neighbors, 1):
        k = int(n_neighbors)
    else:
        k = N_ROWS_OF_CLASSES if isinstance(targets, ClassTargets) else N_ROWS
    head = targets.make_head("l1", None, Triangular(k + 1))
    in_units_of_targets(head, targets)
    device = bank.embeddings.device
    weighted = NeighborNetwork(WeightedFeatures(weights), head).to(device).freeze()
    neighbors = replace(
        bank.neighbors,
        embeddings=embed(weighted, X),
        offset=Offset(trend.left_out, blend.share, blend.kept),
    )
    return weighted, replace(bank, neighbors=neighbors, trend=trend, inputs=X)


def in_units_of_targets(head: Any, targets: Any) -> None:
    """Set the bounds of a head, and convert its mean residual to the units of the targets."""
    if (bounds := getattr(targets, "bounds", None)) is not None:
        head.bounds, head.whole = bounds, getattr(targets, "whole", False)
    if getattr(head, "shrinkage", 0):
        encoded = torch.tensor(head.mean_residual, dtype=torch.float64)
        center = targets.restore(torch.zeros_like(encoded)[None])[0]
        head.mean_residual = tuple((center + targets.unit * encoded).tolist())
