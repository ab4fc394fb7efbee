"""How far predictions may go from the mean of the targets, by rows that training does not have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from .._data.sample import Embedded
from .._data.splits import Split
from ..attention import AverageHead, NONAHead
from ..attention.head import prior_mean
from .bank import NeighborBank
from .held_out import predict_held_out, sample_weight_of

#: Standard errors that are taken for chance: the best epochs were chosen by the same rows.
CHANCE = 3.0
LEAST_ROWS = 50  # of fewer validation rows, even good predictions are within chance


def limit_by_held_out(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    judged: list[int],
    learned: Tensor,
) -> None:
    """Set the credibility of some networks' heads, by the validation rows of these together.

    Of fewer than 50 rows, all predictions stay credible. `learned`, (n, n_outputs), are the
    targets of the bank as the networks learned them, whose mean takes the rest.
    """
    if not (judged and _adjusts(head, bank)):
        return
    held_out = [each for i, each in enumerate(predict_held_out(head, bank, splits)) if i in judged]
    rows = np.concatenate([each.rows for each in held_out])
    predictions = torch.cat([each.predictions for each in held_out])
    truth = torch.cat([each.truth for each in held_out])
    weights = sample_weight_of(bank.neighbors.log_prior, rows)
    _limit(head, bank, judged, learned, predictions, truth, weights)


def limit_by_rows(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    judged: list[int],
    learned: Tensor,
    queries: Embedded,
    truth: Tensor,
    sample_weight: Tensor | None = None,
) -> None:
    """The same by rows that trained no network, and their targets."""
    if not (judged and _adjusts(head, bank)):
        return
    found = bank.evaluate(head, queries)
    evaluation, truth, sample_weight = found.without_isolated(truth, sample_weight)
    shape = len(truth), bank.neighbors.columns.shape[1]
    predictions = evaluation.mean().reshape(shape)
    _limit(head, bank, judged, learned, predictions, truth.reshape(shape), sample_weight)


def _limit(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    judged: list[int],
    learned: Tensor,
    predictions: Tensor,
    truth: Tensor,
    sample_weight: Tensor | None,
) -> None:
    if len(truth) < LEAST_ROWS:
        return
    mean = prior_mean(learned, bank.neighbors.log_prior)
    credibility = credibility_of(predictions, truth, sample_weight)
    heads = head.split_by_head(bank.embeddings[:0], bank.embeddings[:0])
    for i in judged:
        own = heads[i][0]
        own.credibility, own.mean_target = tuple(credibility.tolist()), tuple(mean.tolist())


def _adjusts(head: NONAHead | AverageHead, bank: NeighborBank) -> bool:
    """Whether targets are adjusted: those of training rows alone are never drawn to the mean."""
    return bank.trend is not None or any(own.n_adjusted > 0 for own in _heads(head))


def _heads(head: NONAHead | AverageHead) -> Iterator[NONAHead]:
    return (own for own in head.modules() if isinstance(own, NONAHead))


def credibility_of(
    predictions: Tensor, truth: Tensor, sample_weight: Tensor | None = None
) -> Tensor:
    """Share of predictions that is beyond chance, (n_outputs,), from 0 to 1.

    A regression of the ranks of the truth on those of the predictions, both (q, n_outputs), has a
    slope b with a standard error s, which allows for unequal variances. The credibility is
    ``1 - (3 s / b)^2``, or 0 if that is negative: Stein's positive-part factor (Efron and Morris,
    "Stein's Estimation Rule and Its Competitors", 1973), for three standard errors. Of ranks,
    since a few large targets would leave the slope of the numbers to chance. 1 where all
    predictions, or all targets, are equal.
    """
    counts = truth.new_ones(len(truth), 1) if sample_weight is None else sample_weight[:, None]
    x, y = (_centered_ranks(each, counts) for each in (predictions, truth))
    squares = (counts * x.square()).sum(dim=0)
    slope = (counts * x * y).sum(dim=0) / squares
    variance = (counts * x * (y - slope * x)).square().sum(dim=0) / squares.square()
    credibility = (1 - CHANCE**2 * variance / slope.square()).clamp_min(0.0)
    differ = (squares > 0) & (y != 0).any(dim=0)
    return torch.where(differ, torch.where(slope > 0, credibility, 0.0), 1.0)


def _centered_ranks(values: Tensor, counts: Tensor) -> Tensor:
    """Ranks of each column's values (q, c), those of equal ones their mean, from their mean."""
    ranks = torch.from_numpy(rankdata(values.cpu().numpy(), axis=0)).to(values)
    return ranks - (counts * ranks).sum(dim=0) / counts.sum()


def outputs_by_chance(head: NONAHead | AverageHead) -> list[int]:
    """Numbers of the outputs that a network predicts as the mean of the targets."""
    return sorted({i for own in _heads(head) for i, c in enumerate(own.credibility) if c == 0})
