"""Errors without related rows: of copies, of neighbours in time, of rows with the same level.

If related rows are split between training and validation, the validation error is too small,
unless new rows also have relatives in the bank. The error without related rows is compared with
that without as many unrelated rows, by networks that were not trained on the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logit
from torch import Tensor

from .._data.row_values import weighted_quantiles
from .._utils.precision import EXACT
from .._utils.validation import spans_of
from ..attention.head import AverageHead, ClassHead, NONAHead, prior_mean
from ..losses import log
from .distribution import Calibration, Distribution
from .held_out import n_rows_for, sample_weight_of, split_networks
from .neighbors import LabelExclusion, RuleExclusion, TimeExclusion

if TYPE_CHECKING:
    from .._data.sample import Embedded
    from .._data.splits import Split
    from .bank import NeighborBank
    from .evaluation import Evaluation

WINDOW = 10  # positions to each side, within which rows of an order are related
N_RELATED_ROWS, LEAST_RELATED_ROWS = 800, 60  # validation rows of all networks
LEVEL_ROWS = 400  # for unknown levels: twice as many vary as much from fit to fit
NO_ERROR = 1e-6  # of the variance of the targets: smaller errors are equal
LEVEL_PAIRS = 2**24  # of rows and neighbours that are compared at most
COVERAGE = 0.8  # by which the error of unknown levels is measured, which has no outliers then
DEVIATION = np.sqrt(3) / np.pi * logit((1 + COVERAGE) / 2)  # half of that interval, of variance 1
N_PARTS = 25  # of the rows, in their order, whose differences give the standard error
#: Rows are related if the mean squared error without them is larger by such a factor, and by so
#: many standard errors. Few rows, or few large errors, make the standard error of a factor of 100
#: large. The benchmarks have 33 tables that are no series. One has related rows, of wines, a
#: quarter of which are copies: 1.13 and 6.0 standard errors at least, of two splits. The largest
#: factor elsewhere is 1.21, with 3.3 standard errors; houses of one year had 1.10 and 4.4, from
#: one of four perturbed starts.
LEAST_FACTORS = ((1.1, 5.0), (2.0, 2.5))


@dataclass(frozen=True)
class Relation:
    """Which rows are related: rows of the same label, or near to each other in an order."""

    labels: np.ndarray | None = None  # (n,)
    ranks: np.ndarray | None = None  # (n,), in the order

    def shuffled(self) -> Relation:
        """As many related rows, at random."""
        shuffle = np.random.RandomState(0).permutation
        labels = None if self.labels is None else shuffle(self.labels)
        return Relation(labels, None if self.ranks is None else shuffle(self.ranks))

    def exclude(self, evaluation: Evaluation, rows: np.ndarray) -> Evaluation:
        """An evaluation of rows of the bank without themselves, related rows and later rows."""
        device, exclusion, ruled = evaluation.query.device, evaluation.exclusion, None
        if isinstance(exclusion, RuleExclusion):
            ruled, exclusion = exclusion, exclusion.further
        if self.labels is None:  # there are no times
            ranks = torch.as_tensor(self.ranks, dtype=EXACT, device=device)
            exclusion = TimeExclusion(ranks[rows] - WINDOW, ranks, ranks[rows] + WINDOW)
        else:
            numbers = torch.from_numpy(self.labels).to(device)
            labels = LabelExclusion(numbers[rows], numbers)
            if isinstance(exclusion, TimeExclusion):
                exclusion = replace(exclusion, labels=labels)
            else:
                exclusion = labels
        if ruled is not None:
            exclusion = replace(ruled, further=exclusion)
        return replace(evaluation, exclusion=exclusion)


def related_factor(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    relation: Relation,
    unrelated: Tensor | None = None,
) -> float | None:
    """By what factor the squared error of validation rows is larger without related rows.

    None if it is within chance of 1, or there are too few rows. `unrelated`, (n, d), are
    embeddings of the bank's rows without the information of their features about related rows, if
    they have any.
    """
    without = _squared_errors(head, bank, splits, relation, unrelated)
    at_random = _squared_errors(head, bank, splits, relation.shuffled())
    if len(without) < LEAST_RELATED_ROWS:
        return None
    parts = np.array([part.mean() for part in np.array_split(without - at_random, N_PARTS)])
    chance = parts.std(ddof=1) / np.sqrt(N_PARTS)
    factor = without.mean() / max(at_random.mean(), NO_ERROR)
    is_real = any(
        factor >= least and parts.mean() >= errors * chance for least, errors in LEAST_FACTORS
    )
    return float(factor) if is_real else None


def _squared_errors(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    relation: Relation,
    embeddings: Tensor | None = None,
) -> np.ndarray:
    """Squared errors of some validation rows of all networks without related rows, (q,)."""
    errors = []
    embeddings = bank.embeddings if embeddings is None else embeddings
    queries = [query for _, query, _ in head.split_by_head(embeddings, bank.embeddings)]
    # A trend is fitted to related rows as well, and a rule may exclude these.
    alone = replace(bank, neighbors=replace(bank.neighbors, offset=None), trend=None, rule=None)
    networks = split_networks(head, alone)
    some_rows = validation_rows(bank, splits, N_RELATED_ROWS)
    for (network_head, network_bank), query, rows in zip(
        networks, queries, some_rows, strict=True
    ):
        evaluation = relation.exclude(network_bank.evaluate_rows(network_head, rows), rows)
        evaluation = replace(evaluation, query=query[rows])
        residual = (bank.targets[rows] - evaluation.mean()).reshape(len(rows), -1)
        errors.append((residual / bank.neighbors.spread).square().mean(dim=1).cpu().numpy())
    return np.concatenate(errors)


def validation_rows(bank: NeighborBank, splits: list[Split], n_rows: int) -> list[np.ndarray]:
    """Some validation rows of every network, ascending; any rows where there are none."""
    any_rows = np.random.RandomState(0).permutation(len(bank))
    rows = [any_rows if split.valid is None else split.valid for split in splits]
    return [np.sort(some[: n_rows // len(splits)]) for some in rows]


def rows_for_levels(bank: NeighborBank, splits: list[Split]) -> np.ndarray:
    """Positions of the rows by which unknown levels are measured, ascending."""
    n_rows = min(LEVEL_ROWS, n_rows_for(len(bank), LEVEL_PAIRS))
    return np.unique(np.concatenate(validation_rows(bank, splits, n_rows)))


def shares_of_unknown(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    rows: np.ndarray,
    levels: np.ndarray,
    unknown: list[Embedded | None],
) -> Tensor:
    """How much predictions lack where a level is unknown, (n_categories, n_outputs).

    For numbers, it is a share of the variance of the targets, for classes, the share of their
    frequencies that leaves the least log loss. The `rows` of the bank, (q,), are predicted as if
    their level were unknown, without the rows that share it. A new level may be like any of the
    `levels`, (n, n_categories), so that all levels count the same. `unknown` are the rows embedded
    without a category's level; None: the category has one level.
    """
    evaluation = bank.evaluate_rows(head, rows)
    shares = bank.neighbors.columns.new_zeros(levels.shape[1], bank.neighbors.columns.shape[1])
    for j, queries in enumerate(unknown):
        if queries is None:
            continue
        offset = bank.trend_at(rows, queries.inputs)
        query = replace(evaluation, query=queries.embeddings, query_trend=offset)
        without = Relation(labels=levels[:, j]).exclude(query, rows)
        query, without, positions = query.without_isolated(without, rows)
        without, query, positions = without.without_isolated(query, positions)
        if not len(positions):
            continue
        level = np.unique(levels[positions, j], return_inverse=True)[1]
        sample_weight = sample_weight_of(bank.neighbors.log_prior, positions)
        counts = np.ones(len(level)) if sample_weight is None else sample_weight.cpu().numpy()
        weights = torch.from_numpy(counts / np.bincount(level, counts)[level])
        if isinstance(evaluation.one_head, ClassHead):
            shares[j] = _shares_of_frequencies(bank, positions, without, weights)
        else:
            shares[j] = _shares_of_variance(bank, positions, query, without, weights)
    return shares


def _shares_of_variance(
    bank: NeighborBank, rows: np.ndarray, query: Evaluation, without: Evaluation, weights: Tensor
) -> Tensor:
    """How much the variance of each output lacks, as a share of that of the targets.

    Logistic distributions with so much more variance cover a share COVERAGE of the rows by their
    central intervals. The variance is that of a query of a new level, which has rows of all
    levels; the error is of rows of the remaining levels.
    """
    errors = (bank.targets[rows] - without.mean()).reshape(len(rows), -1)
    std = Distribution(query, bank.calibration or Calibration()).unbounded_std()
    lacking = (errors.cpu().numpy() / DEVIATION) ** 2 - std.reshape(errors.shape) ** 2
    quantiles = (weighted_quantiles(output, weights) for output in lacking.T)
    missing = [max(float(np.quantile(q, COVERAGE, method="higher")), 0.0) for q in quantiles]
    variance = bank.neighbors.variance
    return torch.where(variance > 0, variance.new_tensor(missing) / variance, 0.0)


def _shares_of_frequencies(
    bank: NeighborBank, rows: np.ndarray, without: Evaluation, weights: Tensor
) -> Tensor:
    """The share of the frequencies that leaves the least log loss, of each output for its classes.

    The loss is a convex function of the share.
    """
    head, truth, probabilities = without.one_head, bank.targets[rows], without.mean()
    assert isinstance(head, ClassHead)
    frequencies = prior_mean(bank.neighbors.columns, bank.neighbors.log_prior)
    shares: list[float] = []
    for output in spans_of(head.sizes):
        predicted = (truth * probabilities)[:, output].sum(dim=1)
        typical = (truth * frequencies)[:, output].sum(dim=1)

        def loss(share: float, predicted: Tensor = predicted, typical: Tensor = typical) -> float:
            mixed = predicted + share * (typical - predicted)
            return -float(weights.to(mixed) @ log(mixed))

        inside = minimize_scalar(loss, bounds=(0, 1), method="bounded").x
        share = min(0.0, 1.0, float(inside), key=loss)
        shares += [share] * (output.stop - output.start)
    return frequencies.new_tensor(shares)
