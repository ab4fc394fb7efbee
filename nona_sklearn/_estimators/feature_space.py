"""Neighbours among the features, beside networks whose predictions are their trend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from sklearn.base import is_classifier

from .._data.training_data import TrainingData
from .._inference.network_trend import NetworkTrend
from .._inference.trend_share import KEPT_BESIDE_NETWORKS, SHARE_OF_NETWORKS, Blend
from .._network.network import NeighborNetwork, embed
from .._utils.validation import is_whole
from ..attention import NONAHead
from ..embedding import WeightedFeatures
from ..weighting import Triangular
from .fitting import in_units_of_targets

N_ROWS, N_ROWS_OF_CLASSES = 15, 20  # behind a prediction


def blend_of(estimator: Any) -> Blend:
    """How much the networks count beside the rows."""
    return SHARE_OF_NETWORKS if is_classifier(estimator) else KEPT_BESIDE_NETWORKS


def find_among_features(fitted: Any, data: TrainingData, weights: torch.Tensor) -> None:
    """Take the networks and the bank of a fit for the trend of a bank among weighted features.

    Rows are near by the sum of the absolute differences of their features, times the `weights`,
    (n_features,).
    """
    bank, targets, X = fitted.bank_, fitted.targets_, data.sample.X
    for own in fitted.network_.head.modules():
        if isinstance(own, NONAHead):
            own.bounds = None  # adjusted targets end there, the values of the trend need not
    alone = replace(bank, names=None, numbered=True, target_names=None, levels=None, inputs=X)
    trend = NetworkTrend.of(fitted.network_, alone)
    few = N_ROWS_OF_CLASSES if is_classifier(fitted) else N_ROWS
    k = fitted.n_neighbors if is_whole(fitted.n_neighbors, 1) else few
    head = targets.make_head("l1", None, Triangular(k + 1))
    in_units_of_targets(head, targets)
    device = bank.embeddings.device
    network = NeighborNetwork(WeightedFeatures(weights), head).to(device).freeze()
    neighbors = replace(
        bank.neighbors,
        embeddings=embed(network, X),
        offset=blend_of(fitted).start(trend.left_out),
    )
    fitted.network_ = network
    fitted.bank_ = replace(bank, neighbors=neighbors, trend=trend, inputs=X)
