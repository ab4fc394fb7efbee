"""The trend beside networks, and networks as the trend beside rows among weighted features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.class_targets import ClassTargets
from .._data.embedded import TableRows
from .._data.sample_weight import normalize_mean
from .._data.training_data import TrainingData
from .._inference.bank import NeighborBank
from .._inference.held_out import Blend
from .._inference.network_trend import NetworkTrend
from .._network.network import NeighborNetwork, embed
from .._trend.additive_trend import AdditiveTrend
from .._trend.class_trend import ClassTrend
from .._trend.kernel_trend import PEAKS, KernelTrend, LeftOut, weigh_features
from .._trend.model_trend import Classes, ModelTrend, Numbers
from .._trend.trend import Trend
from .._utils.validation import is_whole
from ..attention import NONAHead
from ..embedding import WeightedFeatures
from ..weighting import Triangular

#: Rows behind a prediction among the features, of numbers and of classes.
N_ROWS, N_ROWS_OF_CLASSES = 15, 20


def fit_trend(
    choice: Any, data: TrainingData, targets: Any, *, seed: int, n_jobs: int | None, verbose: int
) -> Trend | None:
    """Fit a trend by its name, or a model; None where the rows allow no additive trend.

    The `seed` is for parameters `random_state` of a model.
    """
    trend: Trend | None
    if isinstance(choice, str):
        trend = _fit_named(choice, data, targets)
    else:
        y = data.values.reshape(len(data), -1)
        classifies, prior, times = (
            isinstance(targets, ClassTargets),
            data.log_prior,
            data.sample.times,
        )
        trend = ModelTrend.fit(
            choice,
            Classes(targets.classes) if classifies else Numbers(y.shape[1]),
            np.asarray(data.selection.numbers),
            data.table,
            np.asarray(targets.decode(y) if classifies else y).reshape(len(data), -1),
            None if prior is None else data.selection.unit * prior.double().exp().numpy(),
            data.groups,
            None if times is None else times.numpy(),
            seed,
            n_jobs,
            verbose,
        )
    if trend is None or not isinstance(targets, ClassTargets):
        return trend
    return ClassTrend.fit(
        trend,
        np.asarray(data.selection.numbers),
        TableRows(_features(data)),
        data.values.numpy(),
        _rows(data).weights,
        targets.sizes,
    )


def additive_beside(trend: Trend | None, data: TrainingData, targets: Any) -> Trend | None:
    """The additive trend whose residuals networks learn: the trend itself, or one beside it.

    A trend that can follow single rows has residuals at near rows that contradict one another.
    """
    if trend is None or isinstance(trend, AdditiveTrend):
        return trend
    return _fit_named("additive", data, targets)


def _fit_named(name: str, data: TrainingData, targets: Any) -> Trend | None:
    """Fit the additive trend or the kernel to the encoded features."""
    y = _encoded_targets(data)
    center = targets.restore(torch.zeros(1, y.shape[1], dtype=torch.float64))[0]
    center, unit = (numbers.reshape(-1).double().numpy() for numbers in (center, targets.unit))
    ids, X, rows = np.asarray(data.selection.numbers), _features(data).numpy(), _rows(data)
    if name == "additive":
        return AdditiveTrend.fit(ids, X, y, rows, center, unit)
    # For one-hot rows, a kernel with a peak has a higher log loss on most tables.
    peaks = (0.0,) if isinstance(targets, ClassTargets) else PEAKS
    return KernelTrend.fit(ids, X, y, rows, center, unit, peaks)


def feature_weights(trend: Trend | None, data: TrainingData) -> Tensor | None:
    """Weights of the features among which neighbours are found, (n_features,).

    They are those of a kernel: of the trend, if it is one. None if they tell no rows apart.
    """
    of_targets, X = (
        trend.trend if isinstance(trend, ClassTrend) else trend,
        _features(data).numpy(),
    )
    if isinstance(of_targets, KernelTrend):
        kernel = of_targets.kernel
    else:
        kernel = weigh_features(X, _encoded_targets(data), _rows(data))
    assert kernel.mean_weights is not None  # of a kernel that is chosen
    return (
        torch.from_numpy(kernel.mean_weights) if tell_rows_apart(kernel.mean_weights, X) else None
    )


def tell_rows_apart(weights: np.ndarray, X: np.ndarray) -> bool:
    """Whether weighted features, (n_features,) and (n, n_features), show which rows are near."""
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
    """Take a network and its bank for the trend of a bank among weighted features.

    Rows are near by the sum of the absolute differences of their features, times the `weights`,
    (n_features,). Returns the network that weights the features, and the bank.
    """
    for module in network.head.modules():
        if isinstance(module, NONAHead):
            module.bounds = None  # adjusted targets end there, the values of the trend need not
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
        bank.neighbors, embeddings=embed(weighted, X), offset=blend.start(trend.left_out)
    )
    return weighted, replace(bank, neighbors=neighbors, trend=trend, inputs=X)


def in_units_of_targets(head: Any, targets: Any) -> None:
    """Set the bounds of a head, and its mean residual in units of the targets of the bank."""
    if (bounds := getattr(targets, "bounds", None)) is not None:
        head.bounds, head.whole = bounds, getattr(targets, "whole", False)
    if getattr(head, "shrinkage", 0):
        encoded = torch.tensor(head.mean_residual, dtype=torch.float64)
        center = targets.restore(torch.zeros_like(encoded)[None])[0]
        head.mean_residual = tuple((center + targets.unit * encoded).tolist())


def _features(data: TrainingData) -> Tensor:
    assert isinstance(data.sample.X, Tensor)  # only a table has a trend
    return data.sample.X


def _encoded_targets(data: TrainingData) -> np.ndarray:
    return data.sample.y.reshape(len(data), -1).double().numpy()


def _rows(data: TrainingData) -> LeftOut:
    """Weights of the rows, of mean 1, and which rows are left out together."""
    prior, groups, times = data.log_prior, data.sample.groups, data.sample.times
    return LeftOut(
        np.ones(len(data)) if prior is None else normalize_mean(prior).double().numpy(),
        None if groups is None else groups.numpy(),
        None if times is None else times.numpy(),
    )
