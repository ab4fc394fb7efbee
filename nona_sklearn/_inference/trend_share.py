"""How much a trend, or what it leaves, counts: by rows that are predicted without themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from .._data.sample import Embedded
from .._data.splits import Split
from ..attention import AverageHead, ClassHead, NONAHead
from ..attention.head import trust_radius_of
from ..attention.prediction import Offset
from ..losses import LogLoss, log
from .bank import NeighborBank
from .held_out import n_rows_for, predict_held_out, sample_weight_of

N_NUMBERS = 1001  # from 0 to 1, of which one is chosen
RADIUS_PAIRS = 2**22  # of rows and neighbours that are compared


@dataclass(frozen=True)
class Blend:
    """The numbers of an `Offset` that suit most tables, one of which is chosen by rows.

    It is the most probable one, given these rows, if it has a normal distribution beforehand.

    Parameters
    ----------
    name : str
        Which is chosen.
    deviation : float
        The standard deviation of this distribution.
    share, kept : float
        The numbers that suit most tables: the mean of the distribution is one of them.
    """

    name: str
    deviation: float
    share: float
    kept: float

    @property
    def prior(self) -> float:
        """The mean of the distribution before any rows are known."""
        return getattr(self, self.name)

    def start(self, values: Tensor) -> Offset:
        """The offset of a trend with these values at its rows, (n, n_outputs)."""
        return Offset(values, self.share, self.kept)


#: Beside networks that adjust their neighbours or predict classes, the share of the trend is
#: chosen; where networks have learned what the trend leaves, how much of the residuals is kept.
SHARE = Blend("share", 0.12, share=0.7, kept=0.2)
KEPT = Blend("kept", 0.25, share=1.0, kept=0.7)

#: The same where they are a trend themselves, beside which residuals count.
SHARE_IN_TREND = Blend("share", 0.12, share=0.7, kept=0.0)
#: The same where networks are the trend beside rows that are found elsewhere: what near rows
#: leave adds nothing to the predictions of most tables.
KEPT_BESIDE_NETWORKS = Blend("kept", 0.05, share=1.0, kept=0.2)
SHARE_OF_NETWORKS = Blend("share", 0.05, share=0.95, kept=0.2)


def fit_by_held_out(
    blend: Blend,
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
) -> NeighborBank:
    """Return a bank with the number of least loss, by the validation rows of the networks."""
    # What is kept of residuals has to be told by those that are without the row, too.
    leave_out = "itself" if blend is KEPT and bank.groups is None else "group"
    found = [
        predict_held_out(head, each, splits, leave_out) for each in _without_and_with(blend, bank)
    ]
    none, whole = (torch.cat([part.predictions for part in each]) for each in found)
    rows = np.concatenate([part.rows for part in found[0]])
    truth = torch.cat([part.truth for part in found[0]])
    weights = sample_weight_of(bank.neighbors.log_prior, rows)
    return _with_best(blend, head, bank, none, whole, truth, weights)


def fit_by_rows(
    blend: Blend,
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
    none, whole = (
        replace(evaluation, neighbors=each.neighbors).mean().reshape(shape)
        for each in _without_and_with(blend, bank)
    )
    return _with_best(blend, head, bank, none, whole, truth.reshape(shape), weights)


def fit_trust_radius(head: NONAHead | AverageHead, bank: NeighborBank) -> NeighborBank:
    """Return a bank whose trend is trusted as far as rows are from their nearest neighbour."""
    some = np.random.RandomState(0).permutation(len(bank))[: n_rows_for(len(bank), RADIUS_PAIRS)]
    fading = with_numbers(bank, trust_radius=0.0)  # of which Euclidean distances are known
    distances = fading.evaluate_rows(head, some).distances()
    return with_numbers(bank, trust_radius=trust_radius_of(distances))


def with_numbers(bank: NeighborBank, **numbers: Any) -> NeighborBank:
    """A bank whose trend has other numbers: see `Offset`."""
    neighbors = bank.neighbors
    assert neighbors.offset is not None
    offset = replace(neighbors.offset, **numbers)
    return replace(bank, neighbors=neighbors.with_offset(offset))


def _without_and_with(blend: Blend, bank: NeighborBank) -> tuple[NeighborBank, NeighborBank]:
    """Banks in whose predictions the number is 0 and 1."""
    return with_numbers(bank, **{blend.name: 0.0}), with_numbers(bank, **{blend.name: 1.0})


def _with_best(
    blend: Blend,
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    none: Tensor,
    whole: Tensor,
    truth: Tensor,
    sample_weight: Tensor | None,
) -> NeighborBank:
    """A bank with the most probable number, given the predictions of some rows.

    Predictions with 0 and 1 of it, and truth, are (q, n_outputs). The networks' best epochs were
    chosen by the same rows, which favours them.
    """
    counts = truth.new_ones(len(truth)) if sample_weight is None else sample_weight
    counts = counts * (counts.sum() / counts.square().sum())  # fewer rows, where weights differ
    (one_head, *_), *_ = head.split_by_head(bank.embeddings[:0], bank.embeddings)
    if isinstance(one_head, ClassHead):
        value = _by_log_loss(blend, one_head, bank, none, log(whole), truth, counts)
    else:
        value = _by_squared_error(blend, whole - none, truth - none, counts)
    return with_numbers(bank, **{blend.name: value})


def _by_squared_error(blend: Blend, difference: Tensor, lacking: Tensor, counts: Tensor) -> float:
    """The most probable number, where errors are normal, too, with unknown variances.

    The whole of it adds a difference to the predictions without it, which lack what is lacking,
    both (q, n_outputs). So that few rows are no strong evidence, there is a further one, whose
    squared error is the same for all numbers: the geometric mean of what the usual number leaves
    and of the least that it, 0 or 1 leave.
    """
    numbers = torch.linspace(0, 1, N_NUMBERS, dtype=torch.float64)
    total = counts.sum()
    squares, products, rest = (
        (counts @ each / total).cpu()
        for each in (difference.square(), difference * lacking, lacking.square())
    )

    def mean_square(number: Tensor) -> Tensor:
        return (number**2 * squares - 2 * number * products + rest).clamp_min(0.0)

    usual, *ends = mean_square(numbers.new_tensor([[blend.prior], [0.0], [1.0]]))
    further = usual.sqrt() * torch.minimum(usual, torch.minimum(*ends)).sqrt()
    varying = squares > 0
    errors = total.cpu() * mean_square(numbers[:, None]) + further  # (numbers, n_outputs)
    tiny = torch.finfo(errors.dtype).tiny
    relative = errors[:, varying].clamp_min(tiny).log().sum(dim=1)
    evidence = relative * (total.cpu() + 1) / 2
    loss = evidence + ((numbers - blend.prior) / blend.deviation).square() / 2
    return float(numbers[loss.argmin()])


def _by_log_loss(
    blend: Blend,
    head: ClassHead,
    bank: NeighborBank,
    of_networks: Tensor,
    log_of_trend: Tensor,
    truth: Tensor,
    counts: Tensor,
) -> float:
    """The most probable number for classes, whose log loss is a convex function of it."""
    offset = bank.neighbors.offset
    assert offset is not None
    log_loss = LogLoss(head.sizes, reduction="none")

    def loss(share: float) -> float:
        pooled = replace(offset, share=share).pool(of_networks, log_of_trend)
        of_rows = counts @ log_loss(head.normalized(pooled), truth).mean(dim=1)
        return float(of_rows) + ((share - blend.prior) / blend.deviation) ** 2 / 2

    return float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)
