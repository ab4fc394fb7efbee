"""Related rows: whether they predict each other far better than other rows do.

Then the validation rows have too small an error, unless new rows have such relations in the bank,
too. It is compared with the error without as many rows that are not related, by networks that
were not trained on the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logit
from torch import Tensor

from .._data.row_values import weighted_quantiles
from .._data.sample import Embedded
from .._data.splits import Split
from .._utils.chunks import spans_of
from ..attention import AverageHead, ClassHead, NONAHead
from ..attention.head import prior_mean
from ..losses import log
from .bank import NeighborBank
from .distribution import Calibration, Distribution
from .evaluation import Evaluation
from .held_out import n_rows_for, sample_weight_of, split_networks
from .neighbors import Exclusion

WINDOW = 10  # places to each side, within which rows of an order are related
N_ROWS, LEAST_ROWS = 800, 60  # of validation, of all networks
LEVEL_ROWS = 400  # of these, for unknown levels: twice as many vary as much from fit to fit
EXACT = 1e-6  # of the variance of the targets: smaller errors are equal
PAIRS = 2**24  # of rows and neighbours that are compared at most
COVERAGE = 0.8  # by which the error of unknown levels is measured, which has no outliers then
DEVIATION = np.sqrt(3) / np.pi * logit((1 + COVERAGE) / 2)  # half of that interval, of variance 1
N_PARTS = 25  # of these rows, in their order, whose differences give the standard error
#: Rows are related if the mean squared error without them is larger by such a factor, and by so
#: many standard errors. Few rows, or few large errors, make the standard error of a factor of 100
#: large. Of 33 tables in the benchmarks that are no series, one is related, of wines, a quarter of
#: which are copies: 1.13 and 6.0 standard errors at least, of two splits. Of the others, the
#: largest factor is 1.21, with 3.3 standard errors; houses of one year had 1.10 and 4.4, from one
#: of four perturbed starts.
LEAST = ((1.1, 5.0), (2.0, 2.5))


@dataclass(frozen=True)
class Relation:
    """Which rows are related: those of the same label, or near to each other in an order.

    Parameters
    ----------
    labels : int ndarray of shape (n,), optional
        Rows with the same one are related.
    places : int ndarray of shape (n,), optional
        Places of the rows in an order.
    """

    labels: np.ndarray | None = None
    places: np.ndarray | None = None

    def shuffled(self) -> Relation:
        """As many related rows, at random."""
        shuffle = np.random.RandomState(0).permutation
        return Relation(*(None if a is None else shuffle(a) for a in (self.labels, self.places)))

    def exclusion(self, rows: np.ndarray, device: torch.device) -> Exclusion:
        """Exclude related rows, themselves among them, from the neighbours of some."""
        if self.labels is not None:
            labels = torch.from_numpy(self.labels).to(device)
            return Exclusion(labels[rows], labels)
        places = torch.as_tensor(self.places, dtype=torch.float64, device=device)
        return Exclusion(limits=places[rows] - WINDOW, times=places, ends=places[rows] + WINDOW)


def related_factor(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    relation: Relation,
    unrelated: Tensor | None = None,
) -> float | None:
    """By what factor the squared error of validation rows is larger without related rows.

    Parameters
    ----------
    head : NONAHead or AverageHead
        The trained heads.
    bank : NeighborBank
        All training rows.
    splits : list of Split
        Training and validation rows of each network.
    relation : Relation
        Which rows are related.
    unrelated : Tensor of shape (n, d), optional
        Embeddings of the bank's rows without what their features hold of related rows; None: they
        hold nothing.

    Returns
    -------
    float or None
        The factor; None, if it is within chance of 1, or there are too few rows.
    """
    without = _squared_errors(head, bank, splits, relation, unrelated)
    others = _squared_errors(head, bank, splits, relation.shuffled())
    if len(without) < LEAST_ROWS:
        return None
    parts = np.array([part.mean() for part in np.array_split(without - others, N_PARTS)])
    chance = parts.std(ddof=1) / np.sqrt(N_PARTS)
    factor = without.mean() / max(others.mean(), EXACT)
    is_real = any(factor >= least and parts.mean() >= errors * chance for least, errors in LEAST)
    return float(factor) if is_real else None


def judged_rows(bank: NeighborBank, splits: list[Split], n_rows: int) -> list[np.ndarray]:
    """Some validation rows of each network, ascending; any rows where there are none."""
    any_rows = np.random.RandomState(0).permutation(len(bank))
    each = [any_rows if split.valid is None else split.valid for split in splits]
    return [np.sort(rows[: n_rows // len(splits)]) for rows in each]


def shares_of_unknown(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    levels: np.ndarray,
    embed_unknown: Callable[[int, np.ndarray], Embedded],
) -> Tensor:
    """What predictions lack where a level of each category is unknown, (n_categories, n_outputs).

    Rows are predicted as if their level were unknown, without the rows that share it. A new level
    may be like any of them, so that each counts the same.

    Parameters
    ----------
    head, bank, splits
        As of :func:`related_factor`.
    levels : int ndarray of shape (n, n_categories)
        Levels of the bank's rows.
    embed_unknown : callable
        Takes the number of a category and those of rows, embeds these as if their levels were
        unknown.
    """
    judged = judged_rows(bank, splits, min(LEVEL_ROWS, n_rows_for(len(bank), PAIRS)))
    rows = np.unique(np.concatenate(judged))
    evaluation = bank.evaluate_rows(head, rows)
    shares = bank.neighbors.columns.new_zeros(levels.shape[1], bank.neighbors.columns.shape[1])
    for j, of_rows in enumerate(levels.T):
        if len(np.unique(of_rows)) < 2:
            continue
        unknown = embed_unknown(j, rows)
        offset = bank.trend_at(rows, unknown.inputs)
        query = replace(evaluation, query=unknown.embeddings, offset=offset)
        without = _without(query, Relation(labels=of_rows), rows)
        without, query, own = without.without_isolated(query, rows)
        if not len(own):
            continue
        number = np.unique(of_rows[own], return_inverse=True)[1]
        found = sample_weight_of(bank.neighbors.log_prior, own)
        counts = np.ones(len(own)) if found is None else found.cpu().numpy()
        weights = torch.from_numpy(counts / np.bincount(number, counts)[number])
        if isinstance(evaluation.one_head, ClassHead):
            shares[j] = _shares_of_frequencies(bank, own, without, weights)
        else:
            shares[j] = _shares_of_variance(bank, own, query, without, weights)
    return shares


def _shares_of_variance(
    bank: NeighborBank, rows: np.ndarray, query: Evaluation, without: Evaluation, weights: Tensor
) -> Tensor:
    """What the variance of each output lacks, as a share of that of the targets.

    Logistic distributions with so much more variance cover a share COVERAGE of the rows by their
    central intervals. The variance is that of a query of a new level, which has rows of all
    levels; the error is of others than its own.
    """
    errors = (bank.targets[rows] - without.mean()).reshape(len(rows), -1)
    std = Distribution(query, bank.calibration or Calibration()).unbounded_std()
    lacking = (errors.cpu().numpy() / DEVIATION) ** 2 - std.reshape(errors.shape) ** 2
    each = (weighted_quantiles(output, weights) for output in lacking.T)
    found = [max(float(np.quantile(q, COVERAGE, method="higher")), 0.0) for q in each]
    variance = bank.neighbors.variance
    return torch.where(variance > 0, variance.new_tensor(found) / variance, 0.0)


def _shares_of_frequencies(
    bank: NeighborBank, rows: np.ndarray, without: Evaluation, weights: Tensor
) -> Tensor:
    """The share of the frequencies that leaves the least log loss, of each output for its classes.

    The loss is a convex function of the share.
    """
    head, truth, probabilities = without.one_head, bank.targets[rows], without.mean()
    assert isinstance(head, ClassHead)
    frequencies = prior_mean(bank.neighbors.columns, bank.neighbors.log_prior)
    found: list[float] = []
    for place in spans_of(head.sizes):
        own, typical = (
            (truth * each)[:, place].sum(dim=1) for each in (probabilities, frequencies)
        )

        def loss(share: float, own: Tensor = own, typical: Tensor = typical) -> float:
            return -float(weights.to(own) @ log(own + share * (typical - own)))

        inside = minimize_scalar(loss, bounds=(0, 1), method="bounded").x
        share = min(0.0, 1.0, float(inside), key=loss)
        found += [share] * (place.stop - place.start)
    return frequencies.new_tensor(found)


def _without(evaluation: Evaluation, relation: Relation, rows: np.ndarray) -> Evaluation:
    """An evaluation of some rows of the bank without those related to them, nor later ones."""
    before = evaluation.exclusion
    exclusion = relation.exclusion(rows, evaluation.query.device)
    if before is not None and before.times is not None:
        exclusion = replace(exclusion, limits=before.limits, times=before.times)
    return replace(evaluation, exclusion=exclusion)


def _squared_errors(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    relation: Relation,
    embeddings: Tensor | None = None,
) -> np.ndarray:
    """Squared errors of some validation rows of each network without rows related to them."""
    found: list[np.ndarray] = []
    embeddings = bank.embeddings if embeddings is None else embeddings
    queries = [query for _, query, _ in head.split_by_head(embeddings, bank.embeddings)]
    alone = replace(bank, neighbors=replace(bank.neighbors, offset=None), trend=None)
    networks = split_networks(head, alone)  # a trend is of related rows, too
    judged = judged_rows(bank, splits, N_ROWS)
    for (own, own_bank), query, rows in zip(networks, queries, judged, strict=True):
        evaluation = _without(own_bank.evaluate_rows(own, rows), relation, rows)
        evaluation = replace(evaluation, query=query[rows])
        residual = (bank.targets[rows] - evaluation.mean()).reshape(len(rows), -1)
        found.append((residual / bank.neighbors.spread).square().mean(dim=1).cpu().numpy())
    return np.concatenate(found)
