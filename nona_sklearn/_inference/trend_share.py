"""The share of a trend in predictions, by rows that training does not have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from .._data.embedded import Embedded
from .._data.splits import Split
from ..attention import AverageHead, NONAHead
from .bank import NeighborBank
from .held_out import predict_held_out, sample_weight_of

#: The share that suits most tables, and the number of rows whose evidence counts as much.
PRIOR_SHARE, PRIOR_ROWS = 0.7, 400


def fit_share_by_held_out(
    head: NONAHead | AverageHead, bank: NeighborBank, splits: list[Split]
) -> NeighborBank:
    """Return a bank with the trend's share, by the validation rows of the networks together.

    Without a trend it is the bank.
    """
    if bank.trend is None:
        return bank
    found = [predict_held_out(head, each, splits) for each in _alone(bank)]
    of_networks, of_trend = (torch.cat([part.predictions for part in each]) for each in found)
    rows = np.concatenate([part.rows for part in found[0]])
    truth = torch.cat([part.truth for part in found[0]])
    weights = sample_weight_of(bank.neighbors.log_prior, rows)
    share = _share(of_networks, of_trend, truth, bank.neighbors.spread, weights)
    return with_share(bank, share)


def fit_share_by_rows(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    queries: Embedded,
    truth: Tensor,
    sample_weight: Tensor | None = None,
) -> NeighborBank:
    """The same by rows that trained no network, and their targets."""
    if bank.trend is None:
        return bank
    found = bank.evaluate(head, queries).without_isolated(truth, sample_weight)
    evaluation, truth, weights = found
    shape = len(truth), bank.neighbors.columns.shape[1]
    of_networks, of_trend = (
        replace(evaluation, neighbors=each.neighbors).mean().reshape(shape)
        for each in _alone(bank)
    )
    truth = truth.reshape(shape)
    share = _share(of_networks, of_trend, truth, bank.neighbors.spread, weights)
    return with_share(bank, share)


def with_share(bank: NeighborBank, share: float) -> NeighborBank:
    """A bank in whose predictions the trend has another share."""
    neighbors = bank.neighbors
    assert neighbors.offset is not None
    offset = replace(neighbors.offset, share=share)
    return replace(bank, neighbors=replace(neighbors, offset=offset))


def _alone(bank: NeighborBank) -> tuple[NeighborBank, NeighborBank]:
    """Banks whose predictions are of the networks alone, and of the trend alone."""
    return with_share(bank, 0.0), with_share(bank, 1.0)


def _share(
    of_networks: Tensor,
    of_trend: Tensor,
    truth: Tensor,
    unit: Tensor,
    sample_weight: Tensor | None,
) -> float:
    """The share of least squares, drawn to PRIOR_SHARE as by PRIOR_ROWS rows.

    Predictions and truth are (q, n_outputs), each output has a `unit`, (n_outputs,).

    The networks' best epochs were chosen by the same rows, which favours them.
    """
    difference, lacking = (of_trend - of_networks) / unit, (truth - of_networks) / unit
    counts = truth.new_ones(len(truth)) if sample_weight is None else sample_weight
    squares = float(counts @ difference.square().sum(dim=1))
    if squares == 0:
        return PRIOR_SHARE
    found = float(counts @ (difference * lacking).sum(dim=1)) / squares
    share = (PRIOR_ROWS * PRIOR_SHARE + len(truth) * found) / (PRIOR_ROWS + len(truth))
    return min(max(share, 0.0), 1.0)
