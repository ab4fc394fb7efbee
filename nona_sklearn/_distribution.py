"""The distribution behind a prediction: the neighbours' targets, with their weights.

The targets as they are, weighted as they are, have the prediction as their mean, but not the
spread of its error: a network learns weights for the mean alone. So a predictive distribution
takes the weights to a `power`, which sharpens or flattens them, moves what comes of it back to
the prediction, and adds a normal `noise`. Both are chosen after training, in
:mod:`~nona_sklearn._calibration`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ._question import Question

NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # shares of the error
N_CELLS = 200  # that targets are sorted into where noise blurs them anyway


@dataclass(frozen=True)
class Calibration:
    """How weighted targets become a predictive distribution.

    Parameters
    ----------
    power : float, default=1.0
        Exponent of the weights: below 1, more rows count.
    noise : tuple of float, default=()
        Standard deviation of what is added to each output's targets; none by default.

    Examples
    --------
    >>> from nona_sklearn import Calibration
    >>> Calibration(power=0.5)
    Calibration(power=0.5, noise=())
    """

    power: float = 1.0
    noise: tuple[float, ...] = ()


class SortedTargets:
    """Targets of one output, whose weighted distributions are asked for.

    Every method takes weights of shape (q, n) that sum to 1, and returns (q, k).

    Parameters
    ----------
    targets : Tensor of shape (n,)
        The values that the weights are of.
    """

    def __init__(self, targets: Tensor):
        self.targets = targets
        self.values, self.order = targets.sort()

    def std(self, weights: Tensor) -> Tensor:
        """Standard deviations, k = 1."""
        return _variance(weights, self.targets).sqrt()

    def quantiles(self, weights: Tensor, levels: Tensor) -> Tensor:
        """Smallest values not exceeded with probabilities of at least `levels` (k,)."""
        tiny = torch.finfo(levels.dtype).tiny  # a quantile of level 0 has a weight
        levels = levels.clamp_min(tiny).expand(len(weights), -1).contiguous()
        return self.values[torch.searchsorted(self._cumulated(weights), levels)]

    def cdf(self, weights: Tensor, points: Tensor) -> Tensor:
        """Probabilities not to exceed the points (q, k)."""
        count = torch.searchsorted(self.values, points, right=True)
        reached = self._cumulated(weights).gather(1, (count - 1).clamp_min(0))
        return torch.where(count > 0, reached, 0.0)

    def _cumulated(self, weights):
        cumulated = weights.index_select(1, self.order).cumsum(dim=1)
        return cumulated.div_(cumulated[:, -1:].clone())


class NoisyTargets:
    """Targets with normal noise, in cells that are small beside it. As :class:`SortedTargets`.

    Parameters
    ----------
    targets : Tensor of shape (n,)
        The values that the weights are of.
    noise : float
        Standard deviation of the noise, or of the largest that will be asked for.
    """

    def __init__(self, targets: Tensor, noise: float):
        self.targets, self.noise = targets, float(noise)
        n_cells = min(N_CELLS, len(targets))
        ranks = torch.linspace(0, len(targets) - 1, n_cells).round().long().to(targets.device)
        cells = targets.sort().values[ranks]
        ends = cells[0] - 5 * self.noise, cells[-1] + 5 * self.noise
        even = torch.linspace(0, 1, N_CELLS).to(targets) * (ends[1] - ends[0]) + ends[0]
        self.points = torch.cat([cells, even]).sort().values  # where a CDF is looked at
        self.cell = torch.bucketize(targets, (cells[1:] + cells[:-1]) / 2)  # (n,)
        count = torch.zeros_like(cells).index_add_(0, self.cell, torch.ones_like(targets))
        total = torch.zeros_like(cells).index_add_(0, self.cell, targets)
        self.centers = torch.where(count > 0, total / count, cells)

    def std(self, weights: Tensor) -> Tensor:
        return (_variance(weights, self.targets) + self.noise**2).sqrt()

    def quantiles(self, weights: Tensor, levels: Tensor) -> Tensor:
        cdf = self._mass(weights) @ self._at_points
        levels = levels.expand(len(weights), -1).contiguous()
        after = torch.searchsorted(cdf, levels).clamp(1, cdf.shape[1] - 1)
        low, high = cdf.gather(1, after - 1), cdf.gather(1, after)
        share = ((levels - low) / (high - low)).nan_to_num(1.0).clamp(0, 1)
        return torch.lerp(self.points[after - 1], self.points[after], share)

    def cdf(self, weights: Tensor, points: Tensor) -> Tensor:
        below = self._normal_cdf(points[:, None], self.noise)  # (q, n_cells, k)
        return torch.einsum("qc,qck->qk", self._mass(weights), below)

    def crps(self, weights: Tensor, truth: Tensor) -> Tensor:
        """Sum over the queries, whose truth is of shape (q,), for each of NOISES."""
        reached = (truth[:, None] <= self.points).to(weights)
        misses = self._mass(weights) @ self._by_noise - reached  # (n_noises, q, n_points)
        return torch.trapezoid(misses.square_(), self.points).sum(dim=1)

    @cached_property
    def _at_points(self):
        """Distribution function of each cell at the points, (n_cells, n_points)."""
        return self._normal_cdf(self.points[None], self.noise)

    @cached_property
    def _by_noise(self):
        """Distribution functions of each cell at the points, (n_noises, n_cells, n_points)."""
        points = self.points[None]
        return torch.stack([self._normal_cdf(points, share * self.noise) for share in NOISES])

    def _mass(self, weights):
        """Weights of the cells, (q, n_cells)."""
        mass = weights.new_zeros(len(weights), len(self.centers))
        return mass.index_add_(1, self.cell, weights)

    def _normal_cdf(self, points, noise):
        """Probability that each cell's target plus noise is at most the points (..., 1, k)."""
        smallest = 1e-9 * (self.noise or 1.0)
        return torch.special.ndtr((points - self.centers[:, None]) / max(noise, smallest))


def _variance(weights: Tensor, targets: Tensor) -> Tensor:
    """Variances (q, 1) of targets (n,) with weights (q, n)."""
    deviations = targets - (weights @ targets)[:, None]  # (q, n)
    return (weights * deviations.square()).sum(dim=1, keepdim=True)


class Distribution:
    """Predictive distributions of some queries.

    Every answer is an array of shape (q, k) or (q, k, n_outputs): a single output has no axis
    of its own.

    Parameters
    ----------
    question : Question
        The queries, and the neighbours whose values their targets are drawn from.
    calibration : Calibration
        How weighted values become a distribution.
    """

    def __init__(self, question: Question, calibration: Calibration):
        self.question, self.power = question, calibration.power
        self.values = question.neighbors.columns
        self.noise = self.values.new_tensor(calibration.noise or [0.0] * self.values.shape[1])

    @cached_property
    def outputs(self) -> list[SortedTargets | NoisyTargets]:
        """The values of each output, prepared once for all blocks of queries."""
        columns = zip(self.values.T.contiguous(), self.noise, strict=True)
        return [NoisyTargets(y, noise) if noise else SortedTargets(y) for y, noise in columns]

    def std(self) -> np.ndarray:
        """Standard deviations, k = 1."""
        return self._describe(lambda behind, weights, _: behind.std(weights))

    def quantiles(self, levels: Tensor) -> np.ndarray:
        """Smallest values not exceeded with probabilities of at least `levels` (k,)."""
        return self._describe(
            lambda behind, weights, shift: shift + behind.quantiles(weights, levels.to(weights))
        )

    def cdf(self, points: Tensor) -> np.ndarray:
        """Probabilities not to exceed the points (k,)."""
        return self._describe(
            lambda behind, weights, shift: behind.cdf(weights, points.to(weights) - shift)
        )

    def sample(self, n_samples: int, random_state: np.random.RandomState) -> np.ndarray:
        """Draw values: (q, k) or (q, n_outputs, k). The outputs of a draw are of one neighbour."""
        shape = len(self.question), n_samples
        uniform = torch.from_numpy(random_state.uniform(size=shape))
        normal = torch.from_numpy(random_state.normal(size=(*shape, self.values.shape[1])))

        def draw(queries, weights, shift):
            cumulated = weights.cumsum(dim=1)
            height = uniform[queries].to(cumulated) * cumulated[:, -1:]
            drawn = torch.searchsorted(cumulated, height, right=True)
            last = (weights > 0).cumsum(dim=1).argmax(dim=1, keepdim=True)  # rounding beyond it
            values = self.values[drawn.minimum(last)]
            values = values + self.noise * normal[queries].to(cumulated)
            return (shift[:, None] + values).transpose(1, 2)

        return self._join(self._blocks(draw), output_axis=1)

    def _describe(self, describe: Callable[..., Tensor]) -> np.ndarray:
        """Ask each output for (q, k), by its values, their weights (q, n) and a shift (q, 1)."""

        def answer(_, weights, shift):
            answers = [
                describe(behind, weights, shift[:, [j]].contiguous())
                for j, behind in enumerate(self.outputs)
            ]
            return torch.stack(answers, dim=2)

        return self._join(self._blocks(answer), output_axis=2)

    def _blocks(self, answer: Callable[[slice, Tensor, Tensor], Tensor]) -> list[Tensor]:
        """Answer from weights (q, n), and from how far a distribution is to be moved, (q, c)."""

        def answer_block(queries: slice, each: Iterator[Tensor]) -> Tensor:
            plain, weights = each
            # Zero without calibration, so that values are targets to the last bit.
            return answer(queries, weights, plain @ self.values - weights @ self.values)

        return self.question.with_weights((1.0, self.power), answer_block)

    def _join(self, blocks: list[Tensor], output_axis: int) -> np.ndarray:
        answers = torch.cat(blocks).cpu().numpy()
        single = self.question.neighbors.values.ndim == 1
        return answers.squeeze(output_axis) if single else answers
