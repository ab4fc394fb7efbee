"""Refinement after training: what depends on the whole bank, which no training step has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .._data.row_values import apply_weights
from .._inference.evaluation import Evaluation
from ..attention import ClassHead, NONAHead
from ..attention.head import refine_one
from ..losses import NEGLIGIBLE_LOSS

REFINE_ENTRIES = 2**24  # pairs that are weighed for each candidate
ALONE_ENTRIES = 2**22  # the same where training rows are the queries: few parameters need few

#: Share of the best loss by which that of fewer neighbours may be higher, if no less than chance:
#: of few validation rows, one standard error is too little to tell them apart.
TOLERANCE, TOLERANCE_OF_CLASSES = 0.05, 0.02
N_PARTS = 50  # of the rows, whose losses give the standard error
ROUNDING = 1e-12  # a loss of equal targets, in their units


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
    n_neighbors: Sequence[int] = (),
    balanced: bool = False,
) -> None:
    """Choose the refinements of a head by the training's loss on rows with these true values.

    `evaluation` is as for :func:`fit_trust_radius`; `weights` are further arguments of the loss.
    Of the numbers `n_neighbors`, ascending, that of the head is chosen first, and the others for
    it. If outputs are `balanced`, errors of each are in units of what they are before: a geometric
    mean over the few rows of a part would be too little by chance.
    """
    values = values.double()
    unit = root_mean_squares(evaluation.mean() - values, *weights) if balanced else 1.0
    head, truth = head_of(evaluation), (values / unit, *weights)
    bank = evaluation.neighbors
    candidates = [k for k in n_neighbors if k <= len(bank)]
    if candidates:
        head.n_neighbors = candidates[-1]  # so that a first search finds enough for all
    if head.shrinks:
        head.fit_mean_residual(bank.columns, bank.embeddings, bank.log_prior)

    def whole_loss(means: Tensor) -> Tensor:
        return loss(means / unit, *truth)

    if candidates:
        parts = torch.arange(len(values), device=values.device).tensor_split(N_PARTS)

        def losses_of_parts(means: Tensor) -> Tensor:
            means = means / unit
            return torch.stack(
                [loss(means[rows], *(t[rows] for t in truth)) for rows in parts if len(rows)]
            )

        fit_n_neighbors(head, candidates, evaluation.weigh, whole_loss, losses_of_parts)
    head.refine(lambda: whole_loss(evaluation.mean()))


def loss_relative_to_mean(
    evaluation: Evaluation, loss: nn.Module, mean: Tensor, values: Tensor, *weights: Tensor
) -> float:
    """A loss on rows with these true values, relative to that of the mean of the training targets.

    1 if all targets are equal, so that there is nothing to predict.
    """
    found = evaluation.mean()
    truth = values.to(found), *weights
    of_mean = loss(mean.to(found), *truth)
    return float(loss(found, *truth) / of_mean) if of_mean > ROUNDING else 1.0


def root_mean_squares(errors: Tensor, weights: Tensor | None = None) -> Tensor:
    """Of each output's errors, (n_outputs,), in units of a deviation; exact ones are not 0."""
    squares = apply_weights(errors.square(), weights)
    return (squares.mean(dim=0) + NEGLIGIBLE_LOSS).sqrt()


@torch.no_grad()
def fit_n_neighbors(
    head: NONAHead,
    candidates: list[int],
    weigh: Callable[[], Callable[[], Tensor]],
    loss: Callable[[Tensor], Tensor],
    losses_of_parts: Callable[[Tensor], Tensor],
) -> None:
    """Set the smallest number of neighbours whose loss is within chance of the best.

    `weigh` is :meth:`Evaluation.weigh`; of predictions, `loss` returns the loss, and
    `losses_of_parts` those of parts of the rows, (p,). Within chance is a mean excess of at most
    one standard error, or of a small share of the best loss, if that is more. Each number is tried
    with the shrinkage or smoothing that suits it.
    """
    of_noise, found = list(head.noise_refinements()), []

    def refine_noise() -> Tensor:
        mean = weigh()  # noise changes no weights
        for set_to, values in of_noise:
            refine_one(set_to, values, lambda: loss(mean()))
        return mean()

    for head.n_neighbors in candidates:
        found.append(losses_of_parts(refine_noise()))
    each = torch.stack(found)  # (len(candidates), p)
    excess = each - each[each.mean(dim=1).argmin()]
    chance = excess.std(dim=1, correction=0) / math.sqrt(each.shape[1])
    tolerance = TOLERANCE_OF_CLASSES if isinstance(head, ClassHead) else TOLERANCE
    allowed = chance.clamp_min(tolerance * each.mean(dim=1).min())
    head.n_neighbors = candidates[int((excess.mean(dim=1) <= allowed).int().argmax())]
    refine_noise()


def head_of(evaluation: Evaluation) -> NONAHead:
    """The head of one network: they are not averaged yet."""
    assert isinstance(evaluation.head, NONAHead)
    return evaluation.head


def how_many(n_neighbors: int, held_out: bool) -> int:
    """How many rows to evaluate, held out or of the bank itself."""
    return max(1, (REFINE_ENTRIES if held_out else ALONE_ENTRIES) // n_neighbors)
