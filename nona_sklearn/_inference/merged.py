"""Quantiles of banks in parts: what each part says of a distribution, and how that adds up.

As :class:`~.distribution.Distribution`, which has all weights at hand. Here every sum is over a
part's rows, of weights that are shares of the whole bank's, and parts add.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from .distribution import Calibration, Empirical, Noise, Smoothed, noises_of, reaches_of
from .evaluation import Evaluation, WeightedValues

N_THRESHOLDS = 64  # at which the weight below is asked for at a time
PRECISION = 1e-9  # of quantiles without noise, as a share of the values' range


@dataclass(frozen=True)
class Moments:
    """What a part says of the means of its adjusted values, and where these lie."""

    means: Tensor  # (q, 2, c): with the weights, and with the weights to a power
    lowest: Tensor  # (q, c)
    highest: Tensor  # (q, c)
    extents: Tensor  # (2, k, c), of Question.extents

    def merge(self, other: Moments) -> Moments:
        """What both say together."""
        least, largest = torch.stack([self.extents, other.extents], dim=1)
        return Moments(
            self.means + other.means,
            torch.minimum(self.lowest, other.lowest),
            torch.maximum(self.highest, other.highest),
            torch.stack([least.amin(dim=0), largest.amax(dim=0)]),
        )


def moments(evaluation: Evaluation, power: float) -> Moments:
    """Sum a part's values."""

    def answer(_: slice, behind: WeightedValues) -> tuple[Tensor, ...]:
        values = behind.values.expand(len(behind), -1, -1)
        both = torch.stack([behind.weights(), behind.weights(power)], dim=1)
        return both @ values, values.amin(dim=1), values.amax(dim=1)

    means, lowest, highest = map(torch.cat, zip(*evaluation.behind(answer), strict=True))
    return Moments(means, lowest, highest, evaluation.extents())


def mass(
    evaluation: Evaluation, power: float, output: int, center: Tensor, noise: Noise
) -> Tensor:
    """Sum a part's weights around the points of an output's noise, (q, N_POINTS)."""

    def answer(queries: slice, behind: WeightedValues) -> Tensor:
        values = behind.values[..., output]
        return Smoothed(values, center[queries], noise, known).mass(behind.weights(power))

    known = noise.at_points().to(center)
    return torch.cat(evaluation.behind(answer))


def reached(evaluation: Evaluation, power: float, output: int, points: Tensor) -> Tensor:
    """Sum the weights of a part's values that do not exceed points (q, k)."""

    def answer(queries: slice, behind: WeightedValues) -> Tensor:
        law = Empirical(behind.values[..., output])
        return law.reached(behind.weights(power), points[queries])

    return torch.cat(evaluation.behind(answer))


@dataclass(frozen=True)
class MergedDistribution:
    """Predictive distributions of some queries, of which each part of a bank knows its share.

    Parameters
    ----------
    ask : callable
        Takes a function of a :class:`~.evaluation.Evaluation` and its other arguments; returns the
        result of each part.
    calibration : Calibration
        How weighted values become a distribution.
    """

    evaluate: Callable[..., list[Any]]
    calibration: Calibration

    def quantiles(self, levels: Tensor) -> Tensor:
        """Smallest values not exceeded with probabilities of at least `levels` (k,), (q, k, c).

        Without noise, at most PRECISION of the values' range above them.
        """
        said = reduce(Moments.merge, self.evaluate(moments, self.calibration.power))
        mean, powered = said.means.unbind(dim=1)
        noises = noises_of(self.calibration, reaches_of(said.extents))
        answers = [
            self._between(levels.to(mean), j, said.lowest[:, [j]], said.highest[:, [j]])
            if noise is None
            else self._around(levels.to(mean), j, mean[:, [j]], noise)
            for j, noise in enumerate(noises)
        ]
        return torch.stack(answers, dim=2) + (mean - powered)[:, None]

    def _around(self, levels: Tensor, output: int, center: Tensor, noise: Noise) -> Tensor:
        each = self.evaluate(mass, self.calibration.power, output, center, noise)
        law = Smoothed(center, center, noise, noise.at_points().to(center))
        return law.quantiles_of(reduce(torch.add, each), levels)

    def _between(self, levels: Tensor, output: int, low: Tensor, high: Tensor) -> Tensor:
        """Narrow the values (q, 1) between which the quantiles are."""
        width = PRECISION * (high - low)
        levels = levels.clamp_min(torch.finfo(levels.dtype).tiny)
        low, high = (end.expand(-1, len(levels)) for end in (low - width, high))
        steps = torch.linspace(0, 1, N_THRESHOLDS + 1).to(low)[1:]
        while (high - low > width).any():
            points = torch.lerp(low[..., None], high[..., None], steps)  # (q, k, N_THRESHOLDS)
            points[..., -1] = high
            each = self.evaluate(reached, self.calibration.power, output, points.flatten(1))
            sums = reduce(torch.add, each).reshape(points.shape)
            first = (sums < levels[:, None]).sum(dim=2, keepdim=True)
            first = first.clamp_max(N_THRESHOLDS - 1)  # all weights may sum to a little less
            before = torch.cat([low[..., None], points], dim=2)
            low, high = before.gather(2, first)[..., 0], points.gather(2, first)[..., 0]
        return high
