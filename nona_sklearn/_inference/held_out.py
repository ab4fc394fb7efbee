"""Rows of the bank, predicted without themselves, by networks that were not trained on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from .._data.row_values import normalize_mean
from .._data.splits import Split
from ..attention import AverageHead, ClassHead, NONAHead
from ..losses import log
from .bank import NeighborBank
from .network_trend import NetworkTrend

ERROR_PAIRS, LEAST_ROWS = 2**26, 100  # a few tenths of a second


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a network makes of its validation rows, from all others of the bank.

    Parameters
    ----------
    rows : int ndarray of shape (q,)
        Their numbers, ascending.
    truth, predictions : Tensor of shape (q, n_outputs)
        Their targets, and the predictions.
    limits : ndarray of shape (q,), optional
        Neighbours are before these.
    n_valid : int
        Number of all validation rows: of many, some are taken.
    """

    rows: np.ndarray
    truth: Tensor
    predictions: Tensor
    limits: np.ndarray | None
    n_valid: int

    @property
    def residuals(self) -> Tensor:
        """The truth minus the predictions, (q, n_outputs)."""
        return self.truth - self.predictions


def predict_held_out(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    leave_out: str = "group",
) -> list[HeldOut]:
    """Predict each network's validation rows, if there are any, as queries of the whole bank.

    Where networks are the trend, its value at these rows is the prediction of this network.
    """
    if isinstance(trend := bank.trend, NetworkTrend):
        of_trend = predict_held_out(trend.network.head, trend.bank, splits, leave_out)
        return [_beside(head, bank, each, leave_out) for each in of_trend]
    networks = split_networks(head, bank)
    n_most = n_rows_for(len(bank), ERROR_PAIRS) // len(networks) + 1
    found = []
    for (own_head, own_bank), (_, valid, limits) in zip(networks, splits, strict=True):
        assert valid is not None  # either all networks have validation rows or none
        order = valid[:n_most].argsort()
        rows, before = valid[order], None if limits is None else limits[order]
        evaluation = own_bank.evaluate_rows(own_head, rows, before, leave_out)
        evaluation, rows, before = evaluation.without_isolated(rows, before)
        shape = len(rows), bank.neighbors.columns.shape[1]
        truth, predictions = bank.targets[rows], evaluation.mean()
        found.append(
            HeldOut(rows, truth.reshape(shape), predictions.reshape(shape), before, len(valid))
        )
    return found


def _beside(
    head: NONAHead | AverageHead, bank: NeighborBank, of_trend: HeldOut, leave_out: str
) -> HeldOut:
    """Predictions of the same rows with their neighbours in the bank."""
    offset = of_trend.predictions
    if isinstance(head, ClassHead):
        offset = log(offset)
    evaluation = bank.evaluate_rows(head, of_trend.rows, of_trend.limits, leave_out)
    predictions = replace(evaluation, offset=offset).mean().reshape(of_trend.truth.shape)
    return replace(of_trend, predictions=predictions)


def sample_weight_of(log_prior: Tensor | None, rows: np.ndarray) -> Tensor | None:
    """Weights of some of the bank's rows, with a mean of 1; None: all 1."""
    return None if log_prior is None else normalize_mean(log_prior[rows])


def split_networks(
    head: NONAHead | AverageHead, bank: NeighborBank
) -> list[tuple[NONAHead, NeighborBank]]:
    """Each network's head, and the bank in its space, of which few queries build no graph."""
    neighbors = replace(bank.neighbors, algorithm="auto")
    return [
        (own, replace(bank, neighbors=replace(neighbors, embeddings=embeddings)))
        for own, _, embeddings in head.split_by_head(bank.embeddings[:0], bank.embeddings)
    ]


def n_rows_for(n_neighbors: int, n_pairs: int) -> int:
    """Number of rows to evaluate for about `n_pairs` pairs."""
    return max(LEAST_ROWS, n_pairs // n_neighbors)
