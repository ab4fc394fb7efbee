"""Refinement after training: what depends on the whole bank, which no training step has."""

from __future__ import annotations

from torch import Tensor, nn

from .._inference.evaluation import Evaluation
from ..attention import NONAHead

REFINE_ENTRIES = 2**24  # pairs that are weighed for each candidate
ALONE_ENTRIES = 2**22  # the same where training rows are the queries: few parameters need few


def fit_trust_radius(evaluation: Evaluation) -> None:
    """Set how far a query may be from its nearest neighbour before its adjustment is attenuated.

    `evaluation` is of one network's head, which is changed, on all training rows: of rows that it
    was not trained on, or of training rows, each without itself.
    """
    head_of(evaluation).fit_trust_radius(evaluation.distances())


def refine(evaluation: Evaluation, loss: nn.Module, values: Tensor, *weights: Tensor) -> None:
    """Choose the refinements of a head by the training's loss on rows with these true values.

    `evaluation` is as for :func:`fit_trust_radius`; `weights` are further arguments of the loss.
    """
    head_of(evaluation).refine(lambda: loss(evaluation.mean(), values.double(), *weights))


def head_of(evaluation: Evaluation) -> NONAHead:
    """The head of one network: they are not averaged yet."""
    assert isinstance(evaluation.head, NONAHead)
    return evaluation.head


def how_many(n_neighbors: int, held_out: bool) -> int:
    """How many rows to evaluate, held out or of the bank itself."""
    return max(1, (REFINE_ENTRIES if held_out else ALONE_ENTRIES) // n_neighbors)
