"""Refinement after training: what depends on the whole bank, which no training step has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .._inference.evaluation import Evaluation
from .._utils.chunks import spans
from ..attention import ClassHead, NONAHead
from ..attention.nearest import find_nearest
from ..similarity import SIMILARITIES

REFINE_ENTRIES = 2**24  # pairs that are weighed for each candidate
ALONE_ENTRIES = 2**22  # the same where training rows are the queries: few parameters need few
FIND_ENTRIES = 2**20  # pairs that are compared at a time: 8 MB

N_NEIGHBORS = (3, 5, 7, 10, 14, 20, 30, 50, 70, 100)  # tried after training
#: Share of the best loss by which that of fewer neighbours may be higher, if no less than chance:
#: of few validation rows, one standard error is too little to tell them apart.
TOLERANCE, TOLERANCE_OF_CLASSES = 0.035, 0.02
N_PARTS = 50  # of the rows, whose losses give the standard error
MOST_GATHERED = 256  # neighbours of a query whose embeddings are held at once


def fit_trust_radius(evaluation: Evaluation) -> None:
    """Set how far a query may be from its nearest neighbour before its adjustment is attenuated.

    `evaluation` is of one network's head, which is changed, on all training rows: of rows that it
    was not trained on, or of training rows, each without itself.
    """
    head_of(evaluation).fit_trust_radius(evaluation.distances())


def refine(
    evaluation: Evaluation,
    loss: nn.Module,
    values: Tensor,
    *weights: Tensor,
    choose_n_neighbors: bool = False,
) -> None:
    """Choose the refinements of a head by the training's loss on rows with these true values.

    `evaluation` is as for :func:`fit_trust_radius`; `weights` are further arguments of the loss.
    With `choose_n_neighbors`, that of the head is chosen first, and the others for it.
    """
    head, truth = head_of(evaluation), (values.double(), *weights)
    candidates = [k for k in N_NEIGHBORS if k <= len(evaluation.neighbors)]
    if choose_n_neighbors and candidates:
        head.n_neighbors = candidates[-1]
    if head.shrinks:
        head.fit_mean_residual(evaluation.neighbors.columns, evaluation.neighbors.embeddings)
    few = nearest_alone(evaluation)

    def whole_loss() -> Tensor:
        return loss(few.mean(), *truth)

    if choose_n_neighbors and candidates:
        parts = torch.arange(len(values), device=values.device).tensor_split(N_PARTS)

        def losses_of_parts() -> Tensor:
            means = few.mean()
            return torch.stack(
                [loss(means[rows], *(t[rows] for t in truth)) for rows in parts if len(rows)]
            )

        fit_n_neighbors(head, candidates, whole_loss, losses_of_parts)
    head.refine(whole_loss)


@torch.no_grad()
def fit_n_neighbors(
    head: NONAHead,
    candidates: list[int],
    loss: Callable[[], Tensor],
    losses_of_parts: Callable[[], Tensor],
) -> None:
    """Set the smallest number of neighbours whose loss is within chance of the best.

    `loss` returns the head's loss, `losses_of_parts` those of parts of the rows, (p,). Within
    chance is a mean excess of at most one standard error, or of a small share of the best loss,
    if that is more. Each number is tried with the shrinkage that suits it.
    """
    found = []
    for head.n_neighbors in candidates:
        head.refine_shrinkage(loss)
        found.append(losses_of_parts())
    each = torch.stack(found)  # (len(candidates), p)
    excess = each - each[each.mean(dim=1).argmin()]
    chance = excess.std(dim=1, correction=0) / math.sqrt(each.shape[1])
    tolerance = TOLERANCE_OF_CLASSES if isinstance(head, ClassHead) else TOLERANCE
    allowed = chance.clamp_min(tolerance * each.mean(dim=1).min())
    head.n_neighbors = candidates[int((excess.mean(dim=1) <= allowed).int().argmax())]
    head.refine_shrinkage(loss)


def nearest_alone(evaluation: Evaluation) -> Evaluation | NearestEvaluation:
    """Find the neighbours that can have weight once, if they are few: for many evaluations."""
    most = head_of(evaluation).most_weighed(len(evaluation.neighbors))
    if most is None or most > MOST_GATHERED:
        return evaluation
    return NearestEvaluation.of(evaluation, most)


@dataclass(frozen=True)
class NearestEvaluation:
    """An evaluation of one network's head on the nearest neighbours of each query.

    The head may change, but not so that farther ones have weight. Adjustments are not attenuated.
    """

    head: NONAHead
    n_neighbors: int  # of all
    query: Tensor  # (q, d)
    embeddings: Tensor  # (q, k, d)
    similarity: Tensor  # (q, k), nearest first
    excluded: Tensor  # bool (q, k)
    n_admitted: Tensor  # (q, 1)
    columns: Tensor  # of the neighbours, (q, k, c)
    log_prior: Tensor | None  # (q, k)

    shape: tuple[int, ...]  # of predictions

    @classmethod
    @torch.no_grad()
    def of(cls, evaluation: Evaluation, most: int) -> NearestEvaluation:
        """Find the `most` nearest neighbours of each query."""
        head, neighbors = head_of(evaluation), evaluation.neighbors
        n, query = len(neighbors), evaluation.query
        metric = head.metric_part(neighbors.embeddings)
        wide, function, parts = metric.double(), SIMILARITIES[head.similarity], []
        for rows in spans(len(query), max(1, FIND_ENTRIES // n)):
            pairs = None if evaluation.exclusion is None else evaluation.exclusion.pairs(rows)
            block = head.metric_part(query[rows]).double()
            found = find_nearest(function, block, wide, pairs, most)
            n_excluded = 0 if pairs is None else pairs[0].bincount(minlength=len(block))[:, None]
            n_admitted = block.new_full((len(block), 1), n, dtype=torch.long) - n_excluded
            parts.append((found.similarity.to(query), found.positions, found.excluded, n_admitted))
        similarity, positions, excluded, n_admitted = map(torch.cat, zip(*parts, strict=True))
        prior = neighbors.log_prior
        return cls(
            head=head,
            n_neighbors=n,
            query=query,
            embeddings=neighbors.embeddings[positions],
            similarity=similarity,
            excluded=excluded,
            n_admitted=n_admitted,
            columns=neighbors.columns[positions],
            log_prior=None if prior is None else prior[positions],
            shape=(len(query), *neighbors.values.shape[1:]),
        )

    def mean(self) -> Tensor:
        """Predictions, (q,) or (q, c), in float64."""
        head = self.head
        nearest = slice(head.most_weighed(self.n_neighbors))
        weights = head.weigh(
            self.similarity[:, nearest],
            head.metric_part(self.query),
            head.metric_part(self.embeddings)[:, nearest],
            self.excluded[:, nearest],
            None if self.log_prior is None else self.log_prior[:, nearest],
            self.n_admitted,
        ).double()
        means = torch.einsum("qk,qkc->qc", weights, self.columns[:, nearest])
        own = head.adjustments(self.query).double()
        if isinstance(head, ClassHead):
            odds = head.odds(own) if head.n_adjusted else 1.0
            return head.probabilities(means, head.smoothing, odds)
        if head.n_adjusted:
            theirs = head.adjustments(self.embeddings)[:, nearest].double()
            expected = torch.einsum("qk,qkc->qc", weights, theirs)
            means = head.adjusted_mean(means, expected, weights.sum(dim=1, keepdim=True), own, 1.0)
        return means.reshape(self.shape)


def head_of(evaluation: Evaluation) -> NONAHead:
    """The head of one network: they are not averaged yet."""
    assert isinstance(evaluation.head, NONAHead)
    return evaluation.head


def how_many(n_neighbors: int, held_out: bool) -> int:
    """How many rows to evaluate, held out or of the bank itself."""
    return max(1, (REFINE_ENTRIES if held_out else ALONE_ENTRIES) // n_neighbors)
