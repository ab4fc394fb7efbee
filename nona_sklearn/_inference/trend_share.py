"""How much a trend, or what it leaves, counts: by rows that are predicted without themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.embedded import Embedded
from .._data.splits import Split
from ..attention import AverageHead, NONAHead
from ..attention.head import trust_radius_of
from .bank import NeighborBank
from .held_out import evaluate_rows, n_rows_for, predict_held_out, sample_weight_of

RADIUS_PAIRS = 2**22  # of rows and neighbours that are compared


@dataclass(frozen=True)
class Blend:
    """A number of an `Offset` that is chosen: predictions are linear in it.

    Parameters
    ----------
    name : str
        Its name.
    prior : float
        The number that suits most tables.
    n_rows : int
        The number of rows whose evidence counts as much.
    """

    name: str
    prior: float
    n_rows: int

    def of(self, bank: NeighborBank, value: float) -> NeighborBank:
        """A bank in whose predictions it has another value."""
        return with_numbers(bank, **{self.name: value})


#: The share of a trend beside networks whose neighbours are adjusted, and the share of the
#: residuals that is kept where networks have learned what the trend leaves.
SHARE, KEPT = Blend("share", 0.7, 400), Blend("kept", 0.7, 100)


def fit_by_held_out(
    blend: Blend,
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    leave_out: str = "group",
) -> NeighborBank:
    """Return a bank with the number of least squares, by the validation rows of the networks.

    Without a trend it is the bank.
    """
    if bank.trend is None:
        return bank
    found = [
        predict_held_out(head, blend.of(bank, value), splits, leave_out) for value in (0.0, 1.0)
    ]
    none, whole = (torch.cat([part.predictions for part in each]) for each in found)
    rows = np.concatenate([part.rows for part in found[0]])
    truth = torch.cat([part.truth for part in found[0]])
    weights = sample_weight_of(bank.neighbors.log_prior, rows)
    value = _least_squares(blend, none, whole, truth, bank.neighbors.spread, weights)
    return blend.of(bank, value)


def fit_by_rows(
    blend: Blend,
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
    none, whole = (
        replace(evaluation, neighbors=blend.of(bank, value).neighbors).mean().reshape(shape)
        for value in (0.0, 1.0)
    )
    truth = truth.reshape(shape)
    return blend.of(
        bank, _least_squares(blend, none, whole, truth, bank.neighbors.spread, weights)
    )


def fit_trust_radius(head: NONAHead | AverageHead, bank: NeighborBank) -> NeighborBank:
    """Return a bank whose trend is trusted as far as rows are from their nearest neighbour.

    Without a trend it is the bank.
    """
    if bank.trend is None:
        return bank
    some = np.random.RandomState(0).permutation(len(bank))[: n_rows_for(len(bank), RADIUS_PAIRS)]
    distances = evaluate_rows(head, bank, some).distances()
    return with_numbers(bank, trust_radius=trust_radius_of(distances))


def with_numbers(bank: NeighborBank, **numbers: Any) -> NeighborBank:
    """A bank whose trend has other numbers: see `Offset`."""
    neighbors = bank.neighbors
    assert neighbors.offset is not None
    return replace(bank, neighbors=replace(neighbors, offset=replace(neighbors.offset, **numbers)))


def _least_squares(
    blend: Blend,
    none: Tensor,
    whole: Tensor,
    truth: Tensor,
    unit: Tensor,
    sample_weight: Tensor | None,
) -> float:
    """The number of least squares, drawn to the prior one.

    Predictions with 0 and 1 of it, and truth, are (q, n_outputs); each output has a `unit`,
    (n_outputs,).

    The networks' best epochs were chosen by the same rows, which favours them.
    """
    difference, lacking = (whole - none) / unit, (truth - none) / unit
    counts = truth.new_ones(len(truth)) if sample_weight is None else sample_weight
    squares = float(counts @ difference.square().sum(dim=1))
    if squares == 0:
        return blend.prior
    found = float(counts @ (difference * lacking).sum(dim=1)) / squares
    value = (blend.n_rows * blend.prior + len(truth) * found) / (blend.n_rows + len(truth))
    return min(max(value, 0.0), 1.0)
