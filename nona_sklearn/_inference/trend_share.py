"""The share of a trend in predictions, by rows that training does not have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from .._data.embedded import Embedded
from .._data.splits import Split
from .._trend.class_trend import ClassTrend
from .._trend.trend import Trend
from ..attention import AverageHead, ClassHead, NONAHead
from ..losses import LogLoss, log
from .bank import NeighborBank
from .held_out import predict_held_out, sample_weight_of
from .neighbors import KEPT, Offset

#: The share that suits most tables, and the number of rows whose evidence counts as much.
SHARE_OF_NUMBERS, SHARE_OF_CLASSES, PRIOR_ROWS = 0.7, 0.6, 400


def start_offset(trend: Trend, ids: np.ndarray, device: torch.device) -> Offset:
    """The offset of a trend at its rows, with the share that suits most tables."""
    values = torch.from_numpy(trend.of_rows(ids)).to(device)
    if isinstance(trend, ClassTrend):
        return Offset(values, SHARE_OF_CLASSES, kept=0.0)
    return Offset(values, SHARE_OF_NUMBERS, KEPT)


def fit_share_by_held_out(
    head: NONAHead | AverageHead, bank: NeighborBank, splits: list[Split]
) -> NeighborBank:
    """Return a bank with the trend's share, by the validation rows of the networks together."""
    found = [predict_held_out(head, each, splits) for each in _alone(bank)]
    of_networks, of_trend = (torch.cat([part.predictions for part in each]) for each in found)
    rows = np.concatenate([part.rows for part in found[0]])
    truth = torch.cat([part.truth for part in found[0]])
    weights = sample_weight_of(bank.neighbors.log_prior, rows)
    return _with_best_share(head, bank, of_networks, of_trend, truth, weights)


def fit_share_by_rows(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    queries: Embedded,
    truth: Tensor,
    sample_weight: Tensor | None = None,
) -> NeighborBank:
    """The same by rows that trained no network, and their targets."""
    found = bank.evaluate(head, queries).without_isolated(truth, sample_weight)
    evaluation, truth, weights = found
    shape = len(truth), bank.neighbors.columns.shape[1]
    of_networks, of_trend = (
        replace(evaluation, neighbors=each.neighbors).mean().reshape(shape)
        for each in _alone(bank)
    )
    return _with_best_share(head, bank, of_networks, of_trend, truth.reshape(shape), weights)


def with_share(bank: NeighborBank, share: float) -> NeighborBank:
    """A bank in whose predictions the trend has another share."""
    neighbors = bank.neighbors
    assert neighbors.offset is not None
    offset = replace(neighbors.offset, share=share)
    return replace(bank, neighbors=replace(neighbors, offset=offset))


def _alone(bank: NeighborBank) -> tuple[NeighborBank, NeighborBank]:
    """Banks whose predictions are of the networks alone, and of the trend alone."""
    return with_share(bank, 0.0), with_share(bank, 1.0)


def _with_best_share(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    of_networks: Tensor,
    of_trend: Tensor,
    truth: Tensor,
    sample_weight: Tensor | None,
) -> NeighborBank:
    """A bank with the share of the least loss for some rows, drawn as by PRIOR_ROWS others.

    Predictions and truth are (q, n_outputs). The networks' best epochs were chosen by the same
    rows, which favours them.
    """
    counts = truth.new_ones(len(truth)) if sample_weight is None else sample_weight
    if isinstance(bank.trend, ClassTrend):
        prior = SHARE_OF_CLASSES
        found = _least_log_loss(head, bank, of_networks, log(of_trend), truth, counts)
    else:
        prior, unit = SHARE_OF_NUMBERS, bank.neighbors.spread
        difference, lacking = (of_trend - of_networks) / unit, (truth - of_networks) / unit
        squares = float(counts @ difference.square().sum(dim=1))
        products = float(counts @ (difference * lacking).sum(dim=1))
        found = products / squares if squares else prior
    share = (PRIOR_ROWS * prior + len(truth) * found) / (PRIOR_ROWS + len(truth))
    return with_share(bank, min(max(share, 0.0), 1.0))


def _least_log_loss(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    of_networks: Tensor,
    log_of_trend: Tensor,
    truth: Tensor,
    counts: Tensor,
) -> float:
    """The share of least log loss, which is a convex function of it."""
    (of_classes, *_), *_ = head.split_by_head(bank.embeddings[:0], bank.embeddings)
    offset = bank.neighbors.offset
    assert isinstance(of_classes, ClassHead)
    assert offset is not None
    log_loss = LogLoss(of_classes.sizes, reduction="none")

    def loss(share: float) -> float:
        pooled = replace(offset, share=share).pool(of_networks, log_of_trend)
        return float(counts @ log_loss(of_classes.normalized(pooled), truth).mean(dim=1))

    found = minimize_scalar(loss, bounds=(0, 1), method="bounded")
    return float(found.x)
