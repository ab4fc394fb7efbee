"""Refinement after training: the temperature, against the whole bank."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ._inputs import Rows
from ._neighbors import Neighbors
from ._network import NeighborNetwork
from ._question import Question
from .attention import NONAHead

TEMPERATURE_MULTIPLES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
REFINE_ENTRIES = 2**27  # pairs that a choice of temperature weighs, for each candidate


@torch.no_grad()
def refine_temperature(
    network: NeighborNetwork,
    neighbors: Neighbors,
    X: Tensor | Rows,
    values: Tensor,
    loss: nn.Module,
) -> None:
    """Choose the multiple of the temperature that predicts validation rows best.

    It was learned on pools, whose rows lie farther apart than those of the whole bank. Of many
    rows, some tell enough; they come shuffled.

    Parameters
    ----------
    network : NeighborNetwork
        The trained network, whose temperature is changed.
    neighbors : Neighbors
        All training rows.
    X, values : (n, n_features) and (n,) or (n, n_outputs)
        The validation rows, and what they are worth.
    loss : Module
        What is best: the training's loss.
    """
    enough = max(1, REFINE_ENTRIES // len(neighbors))
    assert isinstance(network.head, NONAHead)  # of one network: they are not averaged yet
    temperature = network.head.log_temperature
    learned, values = temperature.clone(), values[:enough]
    question = Question(network.head, neighbors, network.embed(X[:enough]))
    losses = []
    for multiple in TEMPERATURE_MULTIPLES:
        temperature.copy_(learned + math.log(multiple))
        losses.append(loss(question.mean(), values.double()))
    best = TEMPERATURE_MULTIPLES[int(torch.stack(losses).argmin())]
    temperature.copy_(learned + math.log(best))
