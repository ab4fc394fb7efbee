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
from scipy.special import logit
from torch import Tensor

from .._data.embedded import Embedded
from .._data.sample_weight import weighted_quantiles
from .._data.splits import Split
from ..attention import AverageHead, NONAHead
from .bank import NeighborBank
from .distribution import Calibration, Distribution
from .evaluation import Evaluation
from .held_out import evaluate_rows, n_rows_for, split_networks
from .neighbors import Exclusion

WINDOW = 10  # places to each side, within which rows of an order are related
N_ROWS, LEAST_ROWS = 800, 60  # of validation, of all networks
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


def unknown_variances(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    splits: list[Split],
    levels: np.ndarray,
    embed_unknown: Callable[[int, np.ndarray], Embedded],
) -> tuple[tuple[float, ...], ...]:
    """What the variance of each output lacks where a level of each category is unknown.

    Logistic distributions with so much more variance cover a share COVERAGE of the rows by their
    central intervals. Rows are predicted as if their level were unknown, without the rows that
    share it. A new level may be like any of them, so that each counts the same. The variance is
    that of a query of a new level, which has rows of all levels.

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
    judged = judged_rows(bank, splits, min(N_ROWS, n_rows_for(len(bank), PAIRS)))
    rows, found = np.unique(np.concatenate(judged)), []
    evaluation, calibration = evaluate_rows(head, bank, rows), bank.calibration or Calibration()
    n_outputs, deviation = bank.neighbors.columns.shape[1], DEVIATION
    for j, of_rows in enumerate(levels.T):
        if len(np.unique(of_rows)) < 2:
            found.append((0.0,) * n_outputs)
            continue
        unknown = embed_unknown(j, rows)
        offset = bank.trend_at(rows, unknown.inputs)
        query = replace(evaluation, query=unknown.embeddings, offset=offset)
        without = _without(query, Relation(labels=of_rows), rows)
        errors = (bank.targets[rows] - without.mean()).reshape(len(rows), -1).cpu().numpy()
        some = np.isfinite(errors).all(axis=1)  # those that have neighbours
        if not some.any():
            found.append((0.0,) * n_outputs)
            continue
        std = Distribution(query, calibration).unbounded_std().reshape(errors.shape)
        lacking = ((errors / deviation) ** 2 - std**2)[some]
        own = np.unique(of_rows[rows[some]], return_inverse=True)[1]
        weights = torch.from_numpy(1 / np.bincount(own)[own])
        each = (weighted_quantiles(output, weights) for output in lacking.T)
        found.append(
            tuple(max(float(np.quantile(q, COVERAGE, method="higher")), 0.0) for q in each)
        )
    return tuple(found)


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
        evaluation = _without(evaluate_rows(own, own_bank, rows), relation, rows)
        evaluation = replace(evaluation, query=query[rows])
        residual = (bank.targets[rows] - evaluation.mean()).reshape(len(rows), -1)
        found.append((residual / bank.neighbors.spread).square().mean(dim=1).cpu().numpy())
    return np.concatenate(found)
