"""Calibration: the widths of distributions, learned on held-out rows.

The power of the weights and the noise minimise the continuous ranked probability score (CRPS), and
among those with about the lowest score, the miscoverage of intervals: the score is so flat that
its minimum alone would leave coverage to chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from .._data.row_values import apply_weights, weighted_quantiles
from .._utils.precision import exact
from .distribution import N_ERRORS, Calibration, GridValues, Noise, Noisy, weighted_mean
from .held_out import (
    Unseen,
    ValidationRows,
    count_error_rows,
    n_rows_for,
    predict_held_out,
    sample_weight_of,
)

if TYPE_CHECKING:
    from .._data.sample import Embedded
    from ..attention.head import AverageHead, NONAHead
    from .bank import NeighborBank
    from .evaluation import Evaluation
    from .weighted_rows import WeightedRows

POWERS = (1.0, 0.125, 0.25, 0.35, 0.5, 0.7, 1.4, 2.0, 4.0, 16.0)
NOISE_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the error
INTERVAL_LEVELS = exact(torch.arange(10, 20)) / 20  # of the central intervals
SCORE_PAIRS = 2**21  # that are weighed for each candidate
#: Where n validation rows chose the number of neighbours, their mean squared error is too small:
#: that of new rows is about ``1 + OPTIMISM / n`` of it.
OPTIMISM = 5
MAX_JOINT_ROWS = 1000  # whose errors show how outputs depend on each other
SHARED_ROWS = 10  # rows for each output, with which networks show what they share of its errors


def fit_calibration(
    evaluation: Evaluation,
    residual: Tensor,
    sample_weight: Tensor | None = None,
    joint: Tensor | None = None,
) -> Calibration:
    """The power and the noise with the best coverage, of those with about the lowest CRPS.

    `residual` are the errors of the evaluated rows, truth minus prediction, (q, n_outputs), and
    `sample_weight` the weights of the rows, (q,), with a mean of 1. `joint` are errors that depend
    on each other as those of new rows, by default the residuals.
    """
    ranks: tuple[tuple[int, ...], ...] = ()
    if residual.shape[1] > 1:
        ranks = ranks_of(residual if joint is None else joint, sample_weight)
    columns = evaluation.neighbors.columns
    deviation = apply_weights(residual.square(), sample_weight).mean(dim=0).sqrt()
    rounding = 16 * torch.finfo(columns.dtype).eps * columns.abs().amax(dim=0)
    scales = torch.where(deviation > rounding, deviation, 0.0).tolist()
    errors = tuple(
        shape_of(weighted_quantiles(column, sample_weight)) for column in residual.T.cpu().numpy()
    )
    noises = {  # of the outputs that have errors: a constant one tells nothing of the rest
        output: Noise(scale, errors[output], NOISE_SHARES)
        for output, scale in enumerate(scales)
        if scale
    }
    n_scored = min(len(evaluation), n_rows_for(len(evaluation.neighbors), SCORE_PAIRS))
    scored = torch.linspace(0, len(evaluation) - 1, n_scored).long()
    evaluation, residual = evaluation[scored], residual[scored]
    counts = residual.new_ones(n_scored)
    if sample_weight is not None:
        counts = sample_weight[scored] / sample_weight[scored].mean()
    crps, interval, squares = _score_candidates(evaluation, residual, noises)
    miss = _miscoverage(interval, counts)
    miss = torch.where(_are_about_lowest(crps * counts[:, None, None]), miss, torch.inf)
    power, share = np.unravel_index(int(miss.argmin()), miss.shape)
    noise_scales = tuple(NOISE_SHARES[share] * scale for scale in scales)
    effective = 1 / float(squares.mean())
    return Calibration(POWERS[power], noise_scales, errors, ranks, tuple(scales), effective)


def _score_candidates(
    evaluation: Evaluation, residual: Tensor, noises: dict[int, Noise]
) -> tuple[Tensor, Tensor, Tensor]:
    """CRPS of each candidate, (q, powers, shares), how central the truth is, and sums of weights.

    The second are levels of the narrowest intervals that contain it, (q, powers, shares, outputs).
    The last are sums of squared weights, (q,).
    Distributions are those of the errors: of the target less the prediction.
    """
    bounds = evaluation.one_head.bounds

    def score_block(rows: WeightedRows) -> tuple[Tensor, Tensor, Tensor]:
        plain_weights, values = rows.weights(), rows.values.unbind(2)
        truth = residual[rows.queries]
        predictions = {j: weighted_mean(plain_weights, values[j]) for j in noises}
        on_grid = {
            j: GridValues(values[j] - predictions[j], noise.scale) for j, noise in noises.items()
        }
        shape = len(truth), len(POWERS), len(NOISE_SHARES)
        crps, interval = truth.new_zeros(shape), truth.new_zeros(*shape, truth.shape[1])
        for p, power in enumerate(POWERS):
            weights = rows.weights(power)
            for j, noise in noises.items():
                shift = -weighted_mean(weights, on_grid[j].values)
                distribution = Noisy(on_grid[j], weights, shift, noise)
                error_bounds = bounds and (bounds[0] - predictions[j], bounds[1] - predictions[j])
                for s, share in enumerate(NOISE_SHARES):
                    score, level = distribution.score(truth[:, [j]], share, error_bounds)
                    crps[:, p, s] += score / noise.scale
                    interval[:, p, s, j] = level
        return crps, interval, plain_weights.square().sum(dim=1)

    blocks = evaluation.map_weighted_rows(score_block, precise=True)
    crps, interval, squares = zip(*blocks, strict=True)
    return torch.cat(crps), torch.cat(interval), torch.cat(squares)


def _are_about_lowest(scores: Tensor) -> Tensor:
    """Which mean scores of (q, powers, shares) are within one standard error of the lowest."""
    best = scores.mean(dim=0).argmin()
    excess = scores - scores.flatten(1)[:, best, None, None]
    return excess.mean(dim=0) <= excess.std(dim=0, correction=0) / len(scores) ** 0.5


def _miscoverage(interval: Tensor, counts: Tensor) -> Tensor:
    """Mean squared error of the coverage, relative to its variance, (powers, shares).

    `interval` are the levels of the narrowest intervals that contain the truth,
    (q, powers, shares, outputs), and `counts` the weights of the rows, (q,).
    """
    error = torch.zeros_like(interval[0])
    for level in INTERVAL_LEVELS:
        covered = (interval <= level).to(counts).movedim(0, -1) @ counts / len(counts)
        error += (covered - level).square() / (level * (1 - level))
    return error.mean(dim=2) / len(INTERVAL_LEVELS)


def shape_of(errors: np.ndarray) -> tuple[float, ...]:
    """Quantiles of standardised errors, at equally spaced levels."""
    levels = (np.arange(N_ERRORS) + 0.5) / N_ERRORS
    centered = errors - errors.mean()
    return tuple(np.quantile(centered / (centered.std() or 1.0), levels).tolist())


def ranks_of(errors: Tensor, sample_weight: Tensor | None) -> tuple[tuple[int, ...], ...]:
    """Ranks of errors (q, n_outputs) on some rows, drawn in proportion to their weights.

    The rows are in the order of the first output's errors, so that ranks tell nothing of a single
    row.
    """
    weights = np.ones(len(errors)) if sample_weight is None else sample_weight.cpu().numpy()
    n_rows = min(len(errors), MAX_JOINT_ROWS)
    cumulated = weights.cumsum() / weights.sum()
    rows = cumulated.searchsorted((np.arange(n_rows) + 0.5) / n_rows).clip(max=len(errors) - 1)
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
    mean of 1. `chose_n_neighbors` is whether the rows chose the number of neighbours.
    """
    evaluation = bank.evaluate(head, queries)
    evaluation, truth, sample_weight = evaluation.without_isolated(truth, sample_weight)
    if len(truth) == 0:
        raise ValueError(
            "calibrate needs rows with neighbours that are earlier, or eligible, got none"
        )
    residual = (truth - evaluation.mean()).reshape(len(truth), -1)
    if chose_n_neighbors:
        residual = residual * math.sqrt(1 + OPTIMISM / len(residual))
    return fit_calibration(evaluation, residual, sample_weight)


def calibrate_on_bank(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    n_latest: int | None = None,
    rows: np.ndarray | None = None,
) -> Calibration:
    """Calibrate on the bank's own rows, each without itself or its group.

    With times, they are predicted from earlier rows, and only the latest may count. Without
    `rows`, positions in the bank, a sample of the rows counts.
    """
    if rows is None:
        rows = np.arange(len(bank))
        if n_latest is not None and bank.neighbors.times is not None:
            rows = bank.neighbors.times.cpu().numpy().argsort(kind="stable")[-n_latest:]
        rows = np.random.RandomState(0).permutation(rows)[: count_error_rows(bank)]
    evaluation, rows = bank.evaluate_rows(head, rows).without_isolated(rows)
    if len(rows) == 0:  # without a known error, the distribution of the targets
        return Calibration()
    residual = (bank.targets[rows] - evaluation.mean()).reshape(len(rows), -1)
    sample_weight = sample_weight_of(bank.neighbors.log_prior, rows)
    return fit_calibration(evaluation, residual, sample_weight)


def calibrate_on_held_out(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    unseen: Unseen,
    chose_n_neighbors: bool = False,
) -> Calibration:
    """Calibrate the average on validation rows, each predicted by a network not trained on it.

    A validation set that fit is given takes their place; without either, the bank's own rows do.
    A single network has larger errors than the average of all: the part that it does not share
    with the others averages out. Its size is estimated on rows that two networks did not train on.
    A row's group is left out with the row, since new groups are farther from the bank.
    """
    if isinstance(unseen, ValidationRows):
        return calibrate_on_rows(head, bank, *unseen, chose_n_neighbors)
    if bank.n_units < 2:  # no error is known: the distribution of the targets is used
        return Calibration()
    if unseen[0].valid is None:
        return calibrate_on_bank(head, bank)
    held_out = predict_held_out(head, bank, unseen)
    n_networks, log_prior = len(held_out), bank.neighbors.log_prior
    all_rows = np.concatenate([network.rows for network in held_out])
    rows, first = np.unique(all_rows, return_index=True)  # networks may share some
    if len(rows) == 0:  # without a known error, the distribution of the targets
        return Calibration()
    residuals = [network.truth - network.predictions for network in held_out]
    residual = torch.cat(residuals)[first]
    sample_weight = sample_weight_of(log_prior, rows)
    shared, differences = residuals_apart([network.rows for network in held_out], residuals)
    mean_size = apply_weights(residual.abs(), sample_weight).mean(dim=0)
    spared = averaged_out(differences, sample_weight_of(log_prior, shared), n_networks)
    share = 1 - spared / mean_size.square().clamp_min(1e-300)
    share = share.clamp(1 / n_networks, 1)  # 1 / K if nothing is shared
    if chose_n_neighbors:
        n_valid = float(np.mean([network.n_valid for network in held_out]))
        share = share * (1 + OPTIMISM / n_valid)
    joint = residual
    if residual.shape[1] > 1:
        joint = residual @ shared_part(residual, differences, n_networks)
    limits = [network.limits for network in held_out if network.limits is not None]
    before = np.concatenate(limits)[first] if limits else None
    evaluation = bank.evaluate_rows(head, rows, before)
    return fit_calibration(evaluation, residual * share.sqrt(), sample_weight, joint)


def residuals_apart(
    rows: Sequence[np.ndarray], residuals: Sequence[Tensor]
) -> tuple[np.ndarray, Tensor]:
    """Rows that a network and the next did not train on, (m,), and how their residuals differ."""
    shared, differences = [rows[0][:0]], [residuals[0][:0]]
    for (mine, of_mine), (following, of_following) in pairwise(zip(rows, residuals, strict=True)):
        both, here, there = np.intersect1d(mine, following, return_indices=True)
        shared.append(both)
        differences.append(of_mine[here] - of_following[there])
    return np.concatenate(shared), torch.cat(differences)


def averaged_out(differences: Tensor, sample_weight: Tensor | None, n_networks: int) -> Tensor:
    """By how much the average of K networks reduces the squared error of one, (n_outputs,).

    If v is the variance that a network does not share with another, the mean squared difference
    of two is 2 v, and the average of K keeps ``v / K``. If all errors have the same shape, the
    same holds for squared mean absolute values. They are used since two networks share few rows,
    and outliers would dominate a mean square.
    """
    if len(differences) == 0:
        return differences.new_zeros(differences.shape[1])
    mean_size = apply_weights(differences.abs(), sample_weight).mean(dim=0)
    return mean_size.square() / 2 * (1 - 1 / n_networks)


def shared_part(residual: Tensor, differences: Tensor, n_networks: int) -> Tensor:
    """What turns errors (q, c) of one network into errors that depend as the average's, (c, c).

    An error of a sum of outputs may be shared where that of each output is not. So the covariance
    matrix loses what averages out, as in :func:`averaged_out`, in the units in which it is 1.
    """
    n_outputs = residual.shape[1]
    if len(differences) < SHARED_ROWS * n_outputs:
        return torch.eye(n_outputs).to(residual)
    covariance = residual.mT @ residual / len(residual)
    apart = differences.mT @ differences / len(differences)
    sizes, directions = torch.linalg.eigh(covariance)
    is_resolved = sizes > sizes.amax() * n_outputs * torch.finfo(sizes.dtype).eps
    roots, directions = sizes[is_resolved].sqrt(), directions[:, is_resolved]
    whiten, restore = directions / roots, (directions * roots).mT
    spared = whiten.mT @ apart @ whiten / 2 * (1 - 1 / n_networks)
    shares, axes = torch.linalg.eigh(spared)
    kept = (1 - shares).clamp(1 / n_networks, 1).sqrt()
    return whiten @ (axes * kept) @ axes.mT @ restore
