"""Calibration: how wide the distributions must be, learned on rows that were not trained on.

The power of the weights and the noise are chosen by the continuous ranked probability score
(CRPS), and among those that it cannot tell apart by the coverage of intervals. The score is so
flat that its minimum alone would leave coverage to chance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from .._data.sample_weight import apply_weights, normalize_mean, weighted_quantiles
from ..attention import AverageHead, NONAHead
from .bank import NeighborBank
from .distribution import (
    N_ERRORS,
    NOISES,
    Calibration,
    Noise,
    Smoothed,
    reaches_of,
    weighted_mean,
)
from .evaluation import Evaluation

POWERS = (1.0, 0.125, 0.25, 0.35, 0.5, 0.7, 1.4, 2.0, 4.0, 16.0)
LEVELS = torch.arange(10, 20).double() / 20  # of the central intervals whose coverage counts
# Errors take a prediction of each row, the score a look at each candidate of the grid.
ERROR_PAIRS, SCORE_PAIRS, LEAST_ROWS = 2**26, 2**21, 100  # a few tenths of a second


def fit_calibration(
    evaluation: Evaluation, residual: Tensor, sample_weight: Tensor | None = None
) -> Calibration:
    """Find the power and the noise with the best coverage, of those with about the lowest CRPS.

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
    columns = evaluation.neighbors.columns.T
    scales = _scales(residual, sample_weight, columns)
    errors = tuple(
        shape_of(weighted_quantiles(column, sample_weight)) for column in residual.T.cpu().numpy()
    )
    noises = [
        Noise(scale or 1.0, error, reach)
        for scale, error, reach in zip(
            scales, errors, reaches_of(evaluation.extents()), strict=True
        )
    ]
    at_points = [
        torch.cat([noise.at_points(s) for s in NOISES], 1).to(columns) for noise in noises
    ]
    n_scored = min(len(evaluation), _n_rows(len(evaluation.neighbors), SCORE_PAIRS))
    scored = torch.linspace(0, len(evaluation) - 1, n_scored).long()
    evaluation, residual = evaluation[scored], residual[scored]
    if sample_weight is not None:
        sample_weight = sample_weight[scored] / sample_weight[scored].mean()

    def score_block(queries, behind):
        laws = [
            Smoothed(values, weighted_mean(behind.weights(), values), noise, known)
            for values, noise, known in zip(
                behind.values.unbind(2), noises, at_points, strict=True
            )
        ]
        counts = None if sample_weight is None else sample_weight[queries]
        scores, covered = [], []
        for power in POWERS:
            weights, sums = behind.weights(power), 0.0
            for law, column in zip(laws, residual[queries].T, strict=True):
                # The truth moves rather than the distribution's mean.
                truth = weighted_mean(weights, law.values) - law.center + column[:, None]
                reached = law.reached(weights).unflatten(1, (len(NOISES), -1))
                sums += apply_weights(crps(law, reached, truth), counts) / law.noise.scale
                within = _level_of_interval(law, reached, truth) <= LEVELS.to(truth)[:, None, None]
                covered.append(apply_weights(within.to(truth), counts).sum(dim=1))
            scores.append(sums)
        return torch.stack(scores, dim=1), torch.stack(covered, dim=1)

    scores, covered = zip(*evaluation.behind(score_block), strict=True)
    coverage = (sum(covered) / len(evaluation)).unflatten(1, (len(POWERS), -1))
    miss = torch.where(_as_low(torch.cat(scores)), _miscoverage(coverage), torch.inf).cpu().numpy()
    power, noise = np.unravel_index(np.argmin(miss), miss.shape)
    return Calibration(POWERS[power], tuple(NOISES[noise] * scale for scale in scales), errors)


def _scales(residual: Tensor, sample_weight: Tensor | None, columns: Tensor) -> list[float]:
    """Root mean squared errors of each output, 0 where there is nothing but rounding."""
    scales = apply_weights(residual.square(), sample_weight).mean(dim=0).sqrt()
    rounding = 16 * torch.finfo(columns.dtype).eps * columns.abs().amax(dim=1)
    return torch.where(scales > rounding, scales, 0.0).tolist()


def _as_low(scores: Tensor) -> Tensor:
    """Which scores (q, powers, noises) are as low as the best ones, but for chance.

    They differ, on average, by no more than one standard error of the difference.
    """
    best = scores.mean(dim=0).argmin()
    excess = scores - scores.flatten(1)[:, best, None, None]
    return excess.mean(dim=0) <= excess.std(dim=0, correction=0) / len(scores) ** 0.5


def _miscoverage(coverage: Tensor) -> Tensor:
    """How far the coverage (levels, powers, outputs, noises) is off, (powers, noises).

    In units of chance: the variance of a coverage is in proportion to level * (1 - level).
    """
    levels = LEVELS.to(coverage)[:, None, None, None]
    return ((coverage - levels).square() / (levels * (1 - levels))).mean(dim=(0, 2))


def crps(law: Smoothed, reached: Tensor, truth: Tensor) -> Tensor:
    """Scores (q, NOISES) of distributions whose truth is so far from their center, (q, 1)."""
    missed = (truth <= law.points).to(reached)  # (q, points)
    return torch.trapezoid((reached - missed[:, None]).square(), law.points)


def _level_of_interval(law: Smoothed, reached: Tensor, truth: Tensor) -> Tensor:
    """Level of the narrowest central interval that the truth (q, 1) is in, (q, NOISES)."""
    return (2 * law.interpolated(reached, truth[:, None])[..., 0] - 1).abs()


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
    error = _mean_size(residual, sample_weight).square().clamp_min(1e-300)
    share = 1 - _averaged_out(held_out, residuals, log_prior) / error
    residual = residual * share.clamp(1 / len(networks), 1).sqrt()  # if nothing is shared, 1 / K
    return fit_calibration(ask_of_rows(head, bank, rows), residual, sample_weight)


def _averaged_out(
    held_out: list[np.ndarray], residuals: list[Tensor], log_prior: Tensor | None = None
) -> Tensor:
    """What an average of K networks spares of one network's error, squared, (c,).

    If v is the variance of what a network does not share with another, two differ by 2 v in the
    mean square, and the average of K keeps ``v / K``. Where all errors have the same shape, the
    same holds of mean absolute values, squared. They are used since the rows that two networks
    share are few, and in a mean square of few rows outliers decide.
    """
    shared, differences = [held_out[0][:0]], [residuals[0][:0]]
    for k in range(len(held_out) - 1):
        both, ours, theirs = np.intersect1d(held_out[k], held_out[k + 1], return_indices=True)
        shared.append(both)
        differences.append(residuals[k][ours] - residuals[k + 1][theirs])
    sample_weight = _sample_weight(log_prior, np.concatenate(shared))
    if sum(map(len, shared)) == 0:
        return torch.zeros_like(residuals[0][0])
    apart = _mean_size(torch.cat(differences), sample_weight)
    return apart.square() / 2 * (1 - 1 / len(held_out))


def _mean_size(errors: Tensor, sample_weight: Tensor | None) -> Tensor:
    return apply_weights(errors.abs(), sample_weight).mean(dim=0)


def calibrate_on_bank(head: NONAHead | AverageHead, bank: NeighborBank) -> Calibration:
    """Calibrate on the bank's own rows, each without itself, or without its group."""
    rows = np.random.RandomState(0).permutation(len(bank))[: _n_rows(len(bank), ERROR_PAIRS)]
    evaluation = ask_of_rows(head, bank, rows)
    residual = bank.targets[rows] - evaluation.mean()
    sample_weight = _sample_weight(bank.neighbors.log_prior, rows)
    return fit_calibration(evaluation, residual.reshape(len(rows), -1), sample_weight)


def ask_of_rows(head: NONAHead | AverageHead, bank: NeighborBank, rows: np.ndarray) -> Evaluation:
    """Ask about some of the bank's rows, each without itself or its group."""
    return bank.evaluate(head, leave_out="group")[rows]


def _sample_weight(log_prior: Tensor | None, rows: np.ndarray) -> Tensor | None:
    """How much some of the bank's rows count, with a mean of 1; None: all the same."""
    return None if log_prior is None else normalize_mean(log_prior[rows])


def one_by_one(
    head: NONAHead | AverageHead, bank: NeighborBank
) -> list[tuple[NONAHead, NeighborBank]]:
    """Take an average of networks apart: each one's head, and the bank as it sees it."""
    parts = head.split_by_head(bank.embeddings[:0], bank.embeddings)
    return [
        (own, replace(bank, neighbors=replace(bank.neighbors, embeddings=embeddings)))
        for own, _, embeddings in parts
    ]


def _n_rows(n_neighbors: int, n_pairs: int) -> int:
    """How many rows to ask about, so that there are so many pairs."""
    return max(LEAST_ROWS, n_pairs // n_neighbors)
