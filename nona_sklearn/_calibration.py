"""Calibration: how wide the distributions must be, learned on rows that were not trained on.

The power of the weights and the noise are chosen by the continuous ranked probability score
(CRPS).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ._bank import NeighborBank
from ._distribution import (
    N_ERRORS,
    NOISES,
    Blurred,
    Calibration,
    Noise,
    reaches_of,
    weighted_mean,
)
from ._question import Question
from ._sample_weight import evened, mean_one, weighed
from .attention import AverageHead, NONAHead

POWERS = (1.0, 0.125, 0.25, 0.35, 0.5, 0.7, 1.4, 2.0, 4.0)
# Errors take a prediction of each row, the score a look at each candidate of the grid.
ERROR_PAIRS, SCORE_PAIRS, LEAST_ROWS = 2**26, 2**21, 100  # a few tenths of a second


def fit_calibration(
    question: Question, residual: Tensor, sample_weight: Tensor | None = None
) -> Calibration:
    """Find the power and the noise with the lowest CRPS.

    Parameters
    ----------
    question : Question
        Rows whose errors are known.
    residual : Tensor of shape (q, n_outputs)
        Truth minus prediction.
    sample_weight : Tensor of shape (q,), optional
        How much the rows count, with a mean of 1; None: all the same.

    Returns
    -------
    Calibration
        The best of a grid.
    """
    columns = question.neighbors.columns.T
    scales = weighed(residual.square(), sample_weight).mean(dim=0).sqrt().tolist()
    errors = tuple(shape_of(evened(column, sample_weight)) for column in residual.T.cpu().numpy())
    noises = [
        Noise(scale or 1.0, error, reach)
        for scale, error, reach in zip(scales, errors, reaches_of(question.extents()), strict=True)
    ]
    at_points = [
        torch.cat([noise.at_points(s) for s in NOISES], 1).to(columns) for noise in noises
    ]
    n_scored = min(len(question), _n_rows(len(question.neighbors), SCORE_PAIRS))
    scored = torch.linspace(0, len(question) - 1, n_scored).long()
    question, residual = question[scored], residual[scored]
    sample_weight = None if sample_weight is None else sample_weight[scored]

    def score_block(queries, behind):
        laws = [
            Blurred(values, weighted_mean(behind.weights(), values), noise, known)
            for values, noise, known in zip(
                behind.values.unbind(2), noises, at_points, strict=True
            )
        ]
        scores = torch.zeros(len(POWERS), len(NOISES)).to(columns)
        counts = None if sample_weight is None else sample_weight[queries]
        for i, power in enumerate(POWERS):
            weights = behind.weights(power)
            for law, column in zip(laws, residual[queries].T, strict=True):
                # The truth moves rather than the distribution's mean.
                truth = weighted_mean(weights, law.values) - law.center + column[:, None]
                each = weighed(crps(law, weights, truth), counts)
                scores[i] += each.sum(dim=0) / law.noise.scale
        return scores

    scores = torch.stack(question.behind(score_block)).sum(dim=0).cpu().numpy()
    power, noise = np.unravel_index(np.argmin(scores), scores.shape)
    return Calibration(POWERS[power], tuple(NOISES[noise] * scale for scale in scales), errors)


def crps(law: Blurred, weights: Tensor, truth: Tensor) -> Tensor:
    """Scores (q, NOISES) of distributions whose truth is so far from their center, (q, 1)."""
    missed = (truth <= law.points).to(weights)  # (q, points)
    reached = law.reached(weights).unflatten(1, (len(NOISES), -1))
    return torch.trapezoid((reached - missed[:, None]).square_(), law.points)


def shape_of(errors: np.ndarray) -> tuple[float, ...]:
    """Quantiles of standardised errors, at equally spaced levels."""
    levels = (np.arange(N_ERRORS) + 0.5) / N_ERRORS
    centered = errors - errors.mean()
    return tuple(np.quantile(centered / (centered.std() or 1.0), levels).tolist())


def calibrate_on_held_out(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[tuple[np.ndarray, np.ndarray | None]],
) -> Calibration:
    """Calibrate on validation rows, each predicted by a network that did not train on it.

    One network errs more than the average of all does: by the part of its error that it does
    not share with the others, which averages out. How large that is follows from rows that two
    networks did not train on.

    Parameters
    ----------
    head : NONAHead or AverageHead
        The trained heads.
    bank : NeighborBank
        All rows given to fit. A row's group, if it has one, says nothing of how far new groups
        are from the bank, so it is left out with the row.
    splits : list of tuple (ndarray, ndarray or None)
        Training and validation rows of each network.

    Returns
    -------
    Calibration
        For the distributions of all networks together.
    """
    networks = one_by_one(head, bank)
    most = _n_rows(len(bank), ERROR_PAIRS) // len(networks) + 1
    held_out, residuals = [], []
    for (own_head, own_bank), (_, valid) in zip(networks, splits, strict=True):
        assert valid is not None  # where one network has validation rows, all have
        rows = np.sort(valid[:most])
        # Of the whole bank, as queries will be; each without itself.
        mean = ask_of_rows(own_head, own_bank, rows).mean()
        held_out.append(rows)
        residuals.append((bank.targets[rows] - mean).reshape(len(rows), -1))
    rows, first = np.unique(np.concatenate(held_out), return_index=True)  # rows may be shared
    residual, log_prior = torch.cat(residuals)[first], bank.neighbors.log_prior
    sample_weight = _sample_weight(log_prior, rows)
    error = weighed(residual.square(), sample_weight).mean(dim=0).clamp_min(1e-300)
    share = 1 - _averaged_out(held_out, residuals, log_prior) / error
    residual = residual * share.clamp(0.25, 1).sqrt()
    return fit_calibration(ask_of_rows(head, bank, rows), residual, sample_weight)


def _averaged_out(
    held_out: list[np.ndarray], residuals: list[Tensor], log_prior: Tensor | None = None
) -> Tensor:
    """What an average of K networks spares of one network's mean squared error, (c,).

    If v is the variance of what a network does not share with another, two differ by 2 v in the
    mean square, and the average of K keeps ``v / K``.
    """
    shared, differences = [held_out[0][:0]], [residuals[0][:0]]
    for k in range(len(held_out) - 1):
        both, ours, theirs = np.intersect1d(held_out[k], held_out[k + 1], return_indices=True)
        shared.append(both)
        differences.append(residuals[k][ours] - residuals[k + 1][theirs])
    sample_weight = _sample_weight(log_prior, np.concatenate(shared))
    squares = weighed(torch.cat(differences).square(), sample_weight)
    if len(squares) == 0:
        return squares.sum(dim=0)
    return squares.mean(dim=0) / 2 * (1 - 1 / len(held_out))


def calibrate_on_bank(head: NONAHead | AverageHead, bank: NeighborBank) -> Calibration:
    """Calibrate on the bank's own rows, each without itself, or without its group."""
    rows = np.random.RandomState(0).permutation(len(bank))[: _n_rows(len(bank), ERROR_PAIRS)]
    question = ask_of_rows(head, bank, rows)
    residual = bank.targets[rows] - question.mean()
    sample_weight = _sample_weight(bank.neighbors.log_prior, rows)
    return fit_calibration(question, residual.reshape(len(rows), -1), sample_weight)


def ask_of_rows(head: NONAHead | AverageHead, bank: NeighborBank, rows: np.ndarray) -> Question:
    """Ask about some of the bank's rows, each without itself or its group."""
    return bank.ask(head, leave_out="group")[rows]


def _sample_weight(log_prior: Tensor | None, rows: np.ndarray) -> Tensor | None:
    """How much some of the bank's rows count, with a mean of 1; None: all the same."""
    return None if log_prior is None else mean_one(log_prior[rows])


def one_by_one(
    head: NONAHead | AverageHead, bank: NeighborBank
) -> list[tuple[NONAHead, NeighborBank]]:
    """Take an average of networks apart: each one's head, and the bank as it sees it."""
    parts = head.parts(bank.embeddings[:0], bank.embeddings)
    return [
        (own, replace(bank, neighbors=replace(bank.neighbors, embeddings=embeddings)))
        for own, _, embeddings in parts
    ]


def _n_rows(n_neighbors: int, n_pairs: int) -> int:
    """How many rows to ask about, so that there are so many pairs."""
    return max(LEAST_ROWS, n_pairs // n_neighbors)
