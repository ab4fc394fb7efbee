"""What a weighting must satisfy, tried on a few similarities before any training."""

import math

import torch
from torch import Tensor

from .base import Between, Weighting

FAR = -1e4  # a similarity without weight here is beyond the end of a weighting
TOLERANCE = 1e-4  # of sums of weights, and of logarithms


@torch.no_grad()
def check_weighting(weighting: Weighting, given: str | Weighting) -> None:
    """Refuse what gives no weights, and set ``needs_nearest`` if weights end at a distance.

    `given` is the user's parameter, for the message.
    """
    name = f"weighting={given!r}"
    distances = torch.tensor([[0.1, 0.5, 1.0, 4.0], [20.0, 2.0, 3.0, 2.5]])
    s, between = -distances, _between(distances)
    if weighting.one_by_one:
        _check_one_by_one(weighting, s, name)
    _check_tensor(weighting.weigh(s, None, between), s, name)
    _check_weights(weighting, distances, name)
    excluded = torch.tensor([[True, False, False, True], [True] * 4])
    log_measure = torch.zeros_like(s).masked_fill(excluded, -math.inf)
    weights = weighting.weigh(s, log_measure, between)
    if not (weights[excluded] == 0).all() or not _are_shares(weights).all():
        raise ValueError(
            f"{name} must give nothing to neighbours of log_measure=-inf, and the others what "
            f"sums to 1, got {weights.tolist()} of {log_measure.tolist()}"
        )
    _check_weights(weighting, torch.tensor([[0.0, 2.0, 100.0, -FAR]]), name)  # an equal row
    _check_weights(weighting, torch.tensor([[1.0]]), name)  # a single neighbour


def _check_one_by_one(weighting: Weighting, s: Tensor, name: str) -> None:
    nearest = s.amax(dim=1, keepdim=True)
    logits = weighting.log_weight(s, nearest)
    _check_tensor(logits, s, name)
    far = weighting.log_weight(torch.full_like(s, FAR), torch.full_like(nearest, FAR))
    if (far == -math.inf).any():
        weighting.needs_nearest = True  # which gets all weight where all are beyond the end
    some = weighting.log_weight(s[:, 1:], nearest)
    if not torch.allclose(some, logits[:, 1:], TOLERANCE, TOLERANCE, equal_nan=True):
        raise ValueError(
            f"{name} must look at one neighbour at a time; a subclass of Weighting that overrides "
            "weigh may look at all"
        )


def _check_weights(weighting: Weighting, distances: Tensor, name: str) -> None:
    weights = weighting.weigh(-distances, None, _between(distances))
    fine = _are_shares(weights)
    if len(distances) > 1:  # near and far: some have weight
        fine &= (weights > 0).any()
    if not fine.all():
        row = int(fine.long().argmin())
        raise ValueError(
            f"{name} must give weights that are not negative and sum to 1, "
            f"got {weights[row].tolist()} of {(-distances)[row].tolist()}"
        )


def _between(distances: Tensor) -> Between:
    """Similarities of neighbours on a line, at these distances (q, n), to each other."""

    def between(positions: Tensor) -> Tensor:
        z = distances.gather(1, positions)
        return -(z[:, :, None] - z[:, None]).abs()

    return between


def _check_tensor(result: Tensor, s: Tensor, name: str) -> None:
    got = result.dtype if isinstance(result, Tensor) else type(result).__name__
    if got != s.dtype:
        what = f"a tensor of the similarities' type, got {got} of {s.dtype}"
        raise ValueError(f"{name} must give {what}")
    if result.shape != s.shape:
        what = f"the similarities' shape, got {tuple(result.shape)} of {tuple(s.shape)}"
        raise ValueError(f"{name} must give weights of {what}")


def _are_shares(weights: Tensor) -> Tensor:
    """Whether each row's weights sum to 1, or are 0 where all are beyond the end, (q,)."""
    sums = weights.sum(dim=1)
    return (weights >= 0).all(dim=1) & (((sums - 1).abs() <= TOLERANCE) | (sums == 0))
