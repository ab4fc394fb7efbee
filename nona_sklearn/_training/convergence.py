"""Training that diverges ends in an error that names the parameters to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .._data.rows import Rows
from .._network.network import NeighborNetwork


def check_convergence(
    numbers: Iterable[Tensor],
    learning_rate_init: float,
    weight_decay: float,
    cause: Exception | None = None,
) -> None:
    """Raise a ValueError unless all numbers that training led to are finite."""
    if not all(each.isfinite().all() for each in numbers):
        raise ValueError(
            f"training diverged with learning_rate_init={learning_rate_init} and "
            f"weight_decay={weight_decay}: its loss is no longer finite; try smaller ones"
        ) from cause


def _learned_numbers(network: NeighborNetwork) -> Iterator[Tensor]:
    """Parameters, and what the head divides by, whose logarithm is one."""
    yield from network.parameters()
    temperature = torch.as_tensor(getattr(network.head, "temperature", 1.0))
    yield torch.stack([temperature, 1 / temperature])


def check_parameters(
    network: NeighborNetwork, learning_rate_init: float, weight_decay: float
) -> None:
    """Raise a ValueError unless all that a network has learned is finite."""
    check_convergence(_learned_numbers(network), learning_rate_init, weight_decay)


@contextmanager
def divergence_named(
    network: NeighborNetwork, X: Tensor | Rows, learning_rate_init: float, weight_decay: float
) -> Iterator[None]:
    """Raise the error of a training that diverged in place of any that its numbers lead to."""
    try:
        yield
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        embedded = [network.embed(X)] if isinstance(X, Tensor) else []
        numbers = [*_learned_numbers(network), *embedded]
        check_convergence(numbers, learning_rate_init, weight_decay, error)
        raise
