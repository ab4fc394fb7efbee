"""Refinement after training: what depends on the whole bank, which training does not see."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .._inference.evaluation import Evaluation
from ..attention import ClassHead, NONAHead

TEMPERATURE_MULTIPLES = (1.0, 0.6, 0.7, 0.8, 0.9, 1.1)
# Of classes: a network that tells them apart in training is too sure of itself.
CLASS_TEMPERATURE_MULTIPLES = (*TEMPERATURE_MULTIPLES, 1.3, 1.6, 2.0, 2.5, 3.0)
STEP_MULTIPLES = (1.0, 0.7, 0.5, 0.35, 0.25)
SMOOTHING_MULTIPLES = (1.0, 0.3, 3.0, 10.0, 30.0)  # of its odds
REACH = 2.0  # at 1, the few farthest of the test rows lost what trends gain
REFINE_ENTRIES = 2**24  # pairs that a choice weighs, for each candidate
ALONE_ENTRIES = 2**22  # the same where training rows are asked about: few parameters need few


@torch.no_grad()
def fit_trust_radius(evaluation: Evaluation) -> None:
    """Note how far from its nearest neighbour a query may be until its adjustment fades.

    REACH times as far as any row that we ask about: beyond, the adjustment is an extrapolation.

    Parameters
    ----------
    question : Question
        Rows that the head was not trained on, or each without itself, asked of all training
        rows. Its head is changed.
    """
    head, distance = evaluation.head, evaluation.distances()
    assert isinstance(head, NONAHead)  # of one network: they are not averaged yet
    head.reach.fill_(REACH * distance[distance.isfinite()].max())


@torch.no_grad()
def refine(evaluation: Evaluation, loss: nn.Module, values: Tensor, *weights: Tensor) -> None:
    """Choose the multiples of step and temperature that answer a question best.

    Both were learned on pools, whose rows lie farther apart than those of the whole bank: a
    share of a pool that a step keeps is too many of them, a temperature too high.

    Parameters
    ----------
    question : Question
        As for :func:`fit_trust_radius`. Its head is changed.
    loss : Module
        What is best: the training's loss.
    values : Tensor of shape (q,) or (q, n_outputs)
        What the rows are worth.
    *weights : Tensor of shape (q,)
        What else the loss takes: how much the rows count, where they differ.
    """
    head = evaluation.head
    assert isinstance(head, NONAHead)

    def score() -> Tensor:
        return loss(evaluation.mean(), values.double(), *weights)

    if head.step is not None:
        narrowing = head.step.narrowing
        _choose(narrowing, narrowing * _numbers(STEP_MULTIPLES).to(narrowing), score)
    if hasattr(head, "log_temperature"):
        of_classes = isinstance(head, ClassHead)
        multiples = CLASS_TEMPERATURE_MULTIPLES if of_classes else TEMPERATURE_MULTIPLES
        learned = head.log_temperature
        _choose(learned, learned + _numbers(multiples).log().to(learned), score)
    if isinstance(head, ClassHead) and hasattr(head, "logit_smoothing"):
        smoothing = head.logit_smoothing
        _choose(smoothing, smoothing + _numbers(SMOOTHING_MULTIPLES).log().to(smoothing), score)


def _numbers(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _choose(parameter: Tensor, candidates: Tensor, score: Callable) -> None:
    """Set a parameter to the candidate of the lowest score."""
    scores = []
    for candidate in candidates:
        parameter.fill_(candidate)
        scores.append(score())
    parameter.fill_(candidates[int(torch.stack(scores).argmin())])


def how_many(n_neighbors: int, held_out: bool) -> int:
    """How many rows to ask about, held out or of the bank itself."""
    return max(1, (REFINE_ENTRIES if held_out else ALONE_ENTRIES) // n_neighbors)
