"""Calibration: the widths of distributions, learned on held-out rows.

The power of the weights and the noise minimise the continuous ranked probability score (CRPS), and
among those with about the lowest score, the miscoverage of intervals: the score is so flat that
its minimum alone would leave coverage to chance.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from .._data.row_values import apply_weights, weighted_quantiles
from .._data.sample import Embedded
from .._data.splits import Split
from ..attention import AverageHead, NONAHead
from .bank import NeighborBank
from .distribution import (
    N_ERRORS,
    NOISES,
    Calibration,
    Noise,
    Smoothed,
    limits_of,
    weighted_mean,
)
from .evaluation import Evaluation
from .held_out import ERROR_PAIRS, n_rows_for, predict_held_out, sample_weight_of

POWERS = (1.0, 0.125, 0.25, 0.35, 0.5, 0.7, 1.4, 2.0, 4.0, 16.0)
LEVELS = torch.arange(10, 20).double() / 20  # of the central intervals
SCORE_PAIRS = 2**21  # that are weighed for each candidate of the grid
#: Where n validation rows chose the number of neighbours, their mean squared error is too small:
#: that of new rows is about ``1 + OPTIMISM / n`` of it.
OPTIMISM = 5
JOINT_ROWS = 1000  # most of the rows whose errors show how outputs depend on each other
SHARED_ROWS = 10  # rows for each output, with which networks show what they share of its errors


def fit_calibration(
    evaluation: Evaluation,
    residual: Tensor,
    sample_weight: Tensor | None = None,
    joint: Tensor | None = None,
) -> Calibration:
    """Find the power and the noise with the best coverage, of those with about the lowest CRPS.

    Parameters
    ----------
    evaluation : Evaluation
        Of held-out rows.
    residual : Tensor of shape (q, n_outputs)
        Truth minus prediction.
    sample_weight : Tensor of shape (q,), optional
        Weights of the rows, with a mean of 1; None: all 1.
    joint : Tensor of shape (q, n_outputs), optional
        Errors that depend on each other as those of new rows; None: the residuals.
    """
    ranks = ranks_of(residual if joint is None else joint, sample_weight)
    columns = evaluation.neighbors.columns.T
    scales = _scales(residual, sample_weight, columns)
    errors = tuple(
        shape_of(weighted_quantiles(column, sample_weight)) for column in residual.T.cpu().numpy()
    )
    noises = [Noise(scale or 1.0, error) for scale, error in zip(scales, errors, strict=True)]
    at_points = [
        torch.cat([noise.at_points(s) for s in NOISES], 1).to(columns) for noise in noises
    ]
    n_scored = min(len(evaluation), n_rows_for(len(evaluation.neighbors), SCORE_PAIRS))
    scored = torch.linspace(0, len(evaluation) - 1, n_scored).long()
    evaluation, residual = evaluation[scored], residual[scored]
    head = evaluation.one_head
    if sample_weight is not None:
        sample_weight = sample_weight[scored] / sample_weight[scored].mean()

    def score_block(queries, weighted):
        arguments = zip(weighted.values.unbind(2), noises, at_points, strict=True)
        distributions = [
            Smoothed(values, weighted_mean(weighted.weights(), values), noise, matrix)
            for values, noise, matrix in arguments
        ]
        residuals = residual[queries].T[..., None]
        counts = None if sample_weight is None else sample_weight[queries]
        scores, covered = [], []
        for power in POWERS:
            weights, sums = weighted.weights(power), 0.0
            for distribution, column in zip(distributions, residuals, strict=True):
                score, within = _score(distribution, weights, column, head)
                sums += apply_weights(score, counts) / distribution.noise.scale
                covered.append(apply_weights(within, counts).sum(dim=1))
            scores.append(sums)
        return torch.stack(scores, dim=1), torch.stack(covered, dim=1)

    scores, covered = zip(*evaluation.map_weighted_rows(score_block, precise=True), strict=True)
    coverage = (sum(covered) / len(evaluation)).unflatten(1, (len(POWERS), -1))
    miss = torch.where(_as_low(torch.cat(scores)), _miscoverage(coverage), torch.inf).cpu().numpy()
    power, noise = np.unravel_index(np.argmin(miss), miss.shape)
    noise_scales = tuple(NOISES[noise] * scale for scale in scales)
    return Calibration(POWERS[power], noise_scales, errors, ranks)


def _scales(residual: Tensor, sample_weight: Tensor | None, columns: Tensor) -> list[float]:
    """Root mean squared error of each output, 0 if it is only rounding."""
    scales = apply_weights(residual.square(), sample_weight).mean(dim=0).sqrt()
    rounding = 16 * torch.finfo(columns.dtype).eps * columns.abs().amax(dim=1)
    return torch.where(scales > rounding, scales, 0.0).tolist()


def _as_low(scores: Tensor) -> Tensor:
    """Which mean scores of (q, powers, noises) are within one standard error of the lowest."""
    best = scores.mean(dim=0).argmin()
    excess = scores - scores.flatten(1)[:, best, None, None]
    return excess.mean(dim=0) <= excess.std(dim=0, correction=0) / len(scores) ** 0.5


def _miscoverage(coverage: Tensor) -> Tensor:
    """Squared error of the coverage (levels, powers, outputs, noises), (powers, noises).

    Relative to its variance, which is in proportion to level * (1 - level).
    """
    levels = LEVELS.to(coverage)[:, None, None, None]
    return ((coverage - levels).square() / (levels * (1 - levels))).mean(dim=(0, 2))


def _score(
    distribution: Smoothed, weights: Tensor, residual: Tensor, head: NONAHead
) -> tuple[Tensor, Tensor]:
    """CRPS (q, NOISES), and 1 where the truth is in an interval, (levels, q, NOISES)."""
    # The truth is shifted rather than the distribution's mean, and so are its bounds.
    shift = distribution.center - weighted_mean(weights, distribution.values)
    truth, points = residual - shift, distribution.points_within(limits_of(head, shift))
    reached = distribution.reached(weights).unflatten(1, (len(NOISES), -1))
    level = _level_of_interval(distribution, reached, truth)
    within = level <= LEVELS.to(truth)[:, None, None]
    return crps(points, reached, truth), within.to(truth)


def crps(points: Tensor, reached: Tensor, truth: Tensor) -> Tensor:
    """Scores (q, NOISES) of distributions for a truth (q, 1), both at distances from a center.

    `points`, (points,) or (q, points), end at the bounds of the truth.
    """
    missed = (truth <= points).to(reached)  # (q, points)
    return torch.trapezoid((reached - missed[:, None]).square(), points[..., None, :])


def _level_of_interval(distribution: Smoothed, reached: Tensor, truth: Tensor) -> Tensor:
    """Level of the narrowest central interval that contains the truth (q, 1), (q, NOISES)."""
    return (2 * distribution.interpolated(reached, truth[:, None])[..., 0] - 1).abs()


def shape_of(errors: np.ndarray) -> tuple[float, ...]:
    """Quantiles of standardised errors, at equally spaced levels."""
    levels = (np.arange(N_ERRORS) + 0.5) / N_ERRORS
    centered = errors - errors.mean()
    return tuple(np.quantile(centered / (centered.std() or 1.0), levels).tolist())


def ranks_of(errors: Tensor, sample_weight: Tensor | None) -> tuple[tuple[int, ...], ...]:
    """Ranks of errors (q, n_outputs) on some rows, drawn in proportion to their weights.

    The rows are in the order of the first output's errors, so that they are nobody's. A single
    output has none.
    """
    if errors.shape[1] == 1:
        return ()
    weights = np.ones(len(errors)) if sample_weight is None else sample_weight.cpu().numpy()
    n_rows = min(len(errors), JOINT_ROWS)
    reached = weights.cumsum() / weights.sum()
    rows = reached.searchsorted((np.arange(n_rows) + 0.5) / n_rows).clip(max=len(errors) - 1)
    ranks = rankdata(errors[rows].cpu().numpy(), method="ordinal", axis=0).astype(int) - 1
    return tuple(map(tuple, ranks[ranks[:, 0].argsort()].T.tolist()))


def calibrate_on_rows(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    queries: Embedded,
    truth: Tensor,
    sample_weight: Tensor | None = None,
    chose_n_neighbors: bool = False,
) -> Calibration:
    """Calibrate on rows that trained no network, with these targets (q,) or (q, n_outputs).

    With times, rows that no neighbour is earlier than do not count. `sample_weight`, (q,), has a
    mean of 1. For `chose_n_neighbors`, see :data:`OPTIMISM`.

    Raises
    ------
    ValueError
        If no row has earlier neighbours.
    """
    found = bank.evaluate(head, queries)
    evaluation, truth, sample_weight = found.without_isolated(truth, sample_weight)
    if len(truth) == 0:
        raise ValueError("calibrate needs rows that others of the bank are earlier than, got none")
    residual = (truth - evaluation.mean()).reshape(len(truth), -1)
    if chose_n_neighbors:
        residual = residual * math.sqrt(1 + OPTIMISM / len(residual))
    return fit_calibration(evaluation, residual, sample_weight)


def calibrate_on_held_out(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    chose_n_neighbors: bool = False,
) -> Calibration:
    """Calibrate the average on validation rows, each predicted by a network not trained on it.

    A single network has larger errors than the average of all: the part that it does not share
    with the others averages out. Its size is estimated on rows that two networks did not train on.

    Parameters
    ----------
    head : NONAHead or AverageHead
        The trained heads.
    bank : NeighborBank
        All training rows. A row's group, if it has one, is left out with the row, since new groups
        are farther from the bank.
    splits : list of Split
        Training and validation rows of each network.
    chose_n_neighbors : bool, default=False
        Whether these validation rows chose the number of neighbours, see :data:`OPTIMISM`.
    """
    held_out = predict_held_out(head, bank, splits)
    rows = [each.rows for each in held_out]
    residuals = [each.residuals for each in held_out]
    all_rows, first = np.unique(np.concatenate(rows), return_index=True)  # some are shared
    if len(all_rows) == 0:  # without a known error, the distribution of the targets
        return Calibration()
    residual, log_prior = torch.cat(residuals)[first], bank.neighbors.log_prior
    sample_weight = sample_weight_of(log_prior, all_rows)
    error = _mean_size(residual, sample_weight).square().clamp_min(1e-300)
    share = 1 - _averaged_out(rows, residuals, log_prior) / error
    share = share.clamp(1 / len(held_out), 1)  # 1 / K if nothing is shared
    if chose_n_neighbors:
        share = share * (1 + OPTIMISM / float(np.mean([each.n_valid for each in held_out])))
    joint = residual @ _shared_part(residual, residuals_apart(rows, residuals)[1], len(held_out))
    residual = residual * share.sqrt()
    limits = [each.limits for each in held_out if each.limits is not None]
    before = np.concatenate(limits)[first] if limits else None
    evaluation = bank.evaluate_rows(head, all_rows, before)
    return fit_calibration(evaluation, residual, sample_weight, joint)


def _averaged_out(
    held_out: list[np.ndarray], residuals: list[Tensor], log_prior: Tensor | None = None
) -> Tensor:
    """By how much the average of K networks reduces the squared error of one, (c,).

    If v is the variance that a network does not share with another, the mean squared difference
    of two is 2 v, and the average of K keeps ``v / K``. If all errors have the same shape, the
    same holds for squared mean absolute values. They are used since two networks share few rows,
    and outliers would dominate a mean square.
    """
    shared, differences = residuals_apart(held_out, residuals)
    if len(shared) == 0:
        return torch.zeros_like(residuals[0][0])
    apart = _mean_size(differences, sample_weight_of(log_prior, shared))
    return apart.square() / 2 * (1 - 1 / len(held_out))


def residuals_apart(
    held_out: list[np.ndarray], residuals: list[Tensor]
) -> tuple[np.ndarray, Tensor]:
    """Rows that a network and the next did not train on, and how their residuals differ."""
    shared, differences = [held_out[0][:0]], [residuals[0][:0]]
    for k in range(len(held_out) - 1):
        both, ours, theirs = np.intersect1d(held_out[k], held_out[k + 1], return_indices=True)
        shared.append(both)
        differences.append(residuals[k][ours] - residuals[k + 1][theirs])
    return np.concatenate(shared), torch.cat(differences)


def _shared_part(residual: Tensor, differences: Tensor, n_networks: int) -> Tensor:
    """What turns errors (q, c) of one network into errors that depend as the average's, (c, c).

    An error of a sum of outputs may be shared where that of each output is not. So the covariance
    matrix loses what averages out, as in :func:`_averaged_out`, in the units in which it is 1.
    """
    n_outputs = residual.shape[1]
    if n_outputs == 1 or len(differences) < SHARED_ROWS * n_outputs:
        return torch.eye(n_outputs).to(residual)
    covariance = residual.mT @ residual / len(residual)
    apart = differences.mT @ differences / len(differences)
    sizes, directions = torch.linalg.eigh(covariance)
    some = sizes > sizes.amax() * n_outputs * torch.finfo(sizes.dtype).eps
    roots, directions = sizes[some].sqrt(), directions[:, some]
    whiten, restore = directions / roots, (directions * roots).mT
    averaged_out = whiten.mT @ apart @ whiten / 2 * (1 - 1 / n_networks)
    shares, axes = torch.linalg.eigh(averaged_out)
    kept = (1 - shares).clamp(1 / n_networks, 1).sqrt()
    return whiten @ (axes * kept) @ axes.mT @ restore


def _mean_size(errors: Tensor, sample_weight: Tensor | None) -> Tensor:
    return apply_weights(errors.abs(), sample_weight).mean(dim=0)


def calibrate_on_bank(
    head: NONAHead | AverageHead, bank: NeighborBank, n_latest: int | None = None
) -> Calibration:
    """Calibrate on the bank's own rows, each without itself or its group.

    With times, they are predicted from earlier rows, and only the latest may count.
    """
    rows = np.arange(len(bank))
    if n_latest is not None and bank.neighbors.times is not None:
        rows = bank.neighbors.times.cpu().numpy().argsort(kind="stable")[-n_latest:]
    rows = np.random.RandomState(0).permutation(rows)[: n_rows_for(len(bank), ERROR_PAIRS)]
    evaluation, rows = bank.evaluate_rows(head, rows).without_isolated(rows)
    if len(rows) == 0:  # without a known error, the distribution of the targets
        return Calibration()
    residual = bank.targets[rows] - evaluation.mean()
    sample_weight = sample_weight_of(bank.neighbors.log_prior, rows)
    return fit_calibration(evaluation, residual.reshape(len(rows), -1), sample_weight)
