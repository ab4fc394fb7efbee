"""The distribution behind a prediction: the neighbours' adjusted values, with their weights.

The values as they are, weighted as they are, have the prediction as their mean, but not the
spread of its error: a network learns weights for the mean alone. So a predictive distribution
takes the weights to a `power`, which sharpens or flattens them, moves what comes of it back to
the prediction, and adds `noise` of the shape that errors have on rows that were not trained on.
All are chosen after training, in :mod:`~nona_sklearn._inference.calibration`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from .._utils.storable import storable
from .._utils.threads import cached_property
from .evaluation import Evaluation

NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # shares of the error
N_POINTS = 256  # where a distribution with noise is looked at
N_ERRORS = 101  # quantiles that say what shape errors have
NORMAL = (0.0,)  # the shape of errors of which nothing is known


@storable
@dataclass(frozen=True)
class Calibration:
    """How weighted targets become a predictive distribution.

    Parameters
    ----------
    power : float, default=1.0
        Exponent of the weights: below 1, more rows count.
    noise : tuple of float, default=()
        Standard deviation of what is added to each output's values; none by default.
    errors : tuple of tuple of float, default=()
        The shape of the noise, for each output: quantiles of errors of deviation 1, at equally
        spaced levels. Normal by default.

    Examples
    --------
    >>> from nona_sklearn import Calibration
    >>> Calibration(power=0.5)
    Calibration(power=0.5, noise=())
    """

    power: float = 1.0
    noise: tuple[float, ...] = ()
    errors: tuple[tuple[float, ...], ...] = field(default=(), repr=False)


class Empirical:
    """Distributions of weighted values of one output, as they are.

    Every method takes weights of shape (q, n) that sum to 1, and returns (q, k).

    Parameters
    ----------
    values : Tensor of shape (q, n) or (1, n)
        The values that the weights are of, for each query or for all.
    """

    def __init__(self, values: Tensor):
        self.values = values

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        return self.values.sort(dim=1)

    def std(self, weights: Tensor) -> Tensor:
        """Standard deviations, k = 1."""
        return variance(weights, self.values).sqrt()

    def quantiles(self, weights: Tensor, levels: Tensor) -> Tensor:
        """Smallest values not exceeded with probabilities of at least `levels` (k,)."""
        tiny = torch.finfo(levels.dtype).tiny  # a quantile of level 0 has a weight
        levels = levels.clamp_min(tiny).expand(len(weights), -1).contiguous()
        places = torch.searchsorted(self._cumulated(weights), levels)
        return self._sorted[0].expand(len(weights), -1).gather(1, places)

    def cdf(self, weights: Tensor, points: Tensor) -> Tensor:
        """Probabilities not to exceed the points (q, k)."""
        return self._below(self._cumulated(weights), points)

    def reached(self, weights: Tensor, points: Tensor) -> Tensor:
        """Weights of values that do not exceed the points (q, k), whatever all sum to."""
        return self._below(self._sums(weights), points)

    def _below(self, cumulated: Tensor, points: Tensor) -> Tensor:
        values = self._sorted[0].expand(len(points), -1).contiguous()
        count = torch.searchsorted(values, points.contiguous(), right=True)
        return torch.where(count > 0, cumulated.gather(1, (count - 1).clamp_min(0)), 0.0)

    def _cumulated(self, weights: Tensor) -> Tensor:
        cumulated = self._sums(weights)
        return cumulated.div_(cumulated[:, -1:].clone())

    def _sums(self, weights: Tensor) -> Tensor:
        return weights.gather(1, self._sorted[1].expand_as(weights)).cumsum(dim=1)


class Noise:
    """Normal distributions of one width around the quantiles of some errors, all alike.

    It knows the distribution function of whatever it is added to at N_POINTS points, close
    together where the noise is and farther apart outside.

    Parameters
    ----------
    scale : float
        Its standard deviation.
    errors : sequence of float
        Quantiles of standardised errors.
    reach : float
        How far from their prediction values may be; those beyond count as if they were there.
    """

    def __init__(self, scale: float, errors: Sequence[float], reach: float):
        self.scale, self.reach = scale, reach
        quantiles = np.asarray(errors)
        spread = min(quantiles.std(), np.subtract(*np.quantile(quantiles, [0.75, 0.25])) / 1.34)
        # Silverman's rule of thumb; a distribution without errors is a normal one.
        self.width = 0.9 * spread * len(quantiles) ** -0.2 if spread > 0 else 1.0
        self.shrink = np.hypot(quantiles.std(), self.width)  # to a deviation of 1
        self.quantiles = quantiles
        self.end = np.arcsinh(10 + reach / scale)

    @cached_property
    def points(self) -> Tensor:
        """Distances from the prediction, ascending, (N_POINTS,)."""
        steps = torch.linspace(-self.end, self.end, N_POINTS, dtype=torch.float64)
        return self.scale * steps.sinh()

    def at_points(self, share: float = 1.0) -> Tensor:
        """Distribution function of each point plus a share of the noise, at the points.

        Of shape (N_POINTS, N_POINTS): a row for each point that the noise is added to.
        """
        difference = (self.points - self.points[:, None]).numpy() / self.scale
        if share == 0:
            return torch.from_numpy(np.where(difference < 0, 0.0, 1.0))
        return torch.from_numpy(np.interp(difference / share, *self._known))

    @cached_property
    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """Distances in units of the scale, and the distribution function there."""
        x = np.linspace(-10, 10, 2001)  # beyond, there is nothing
        places = (x[:, None] * self.shrink - self.quantiles) / self.width
        return x, ndtr(places).mean(axis=1)

    def draw(self, random: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        """Draw from it."""
        centers = random.choice(self.quantiles, size=shape)
        return self.scale * (centers + self.width * random.normal(size=shape)) / self.shrink


class Smoothed:
    """Distributions of weighted values of one output plus noise. As :class:`Empirical`.

    Parameters
    ----------
    values : Tensor of shape (q, n) or (1, n)
        The values that the weights are of, for each query or for all.
    center : Tensor of shape (q, 1)
        Where they are looked at most closely: the predictions.
    noise : Noise
        What is added.
    at_points : Tensor
        What :meth:`Noise.at_points` says of it.
    """

    def __init__(self, values: Tensor, center: Tensor, noise: Noise, at_points: Tensor):
        self.values, self.center, self.noise, self.at_points = values, center, noise, at_points
        self.points = noise.points.to(center)

    def std(self, weights: Tensor) -> Tensor:
        return (variance(weights, self.values) + self.noise.scale**2).sqrt()

    def quantiles(self, weights: Tensor, levels: Tensor) -> Tensor:
        return self.quantiles_of(self.mass(weights), levels)

    def quantiles_of(self, mass: Tensor, levels: Tensor) -> Tensor:
        """Quantiles of levels (k,) from what :meth:`mass` says, (q, k)."""
        cdf = mass @ self.at_points
        levels = levels.expand(len(cdf), -1).contiguous()
        after = torch.searchsorted(cdf, levels).clamp(1, cdf.shape[1] - 1)
        low, high = cdf.gather(1, after - 1), cdf.gather(1, after)
        share = ((levels - low) / (high - low)).nan_to_num(1.0).clamp(0, 1)
        return self.center + torch.lerp(self.points[after - 1], self.points[after], share)

    def cdf(self, weights: Tensor, points: Tensor) -> Tensor:
        return self.interpolated(self.reached(weights), points - self.center)

    def interpolated(self, reached: Tensor, places: Tensor) -> Tensor:
        """Probabilities at places (..., k), from those at the noise's points, (..., N_POINTS)."""
        after = torch.searchsorted(self.points, places.contiguous()).clamp(1, N_POINTS - 1)
        low, high = self.points[after - 1], self.points[after]
        share = ((places - low) / (high - low)).clamp(0, 1)
        after = after.expand(*reached.shape[:-1], -1)
        found = torch.lerp(reached.gather(-1, after - 1), reached.gather(-1, after), share)
        return found.clamp_(0, 1)  # sums of weights may round beyond

    def reached(self, weights: Tensor) -> Tensor:
        """Probabilities not to exceed the noise's points, (q, N_POINTS)."""
        return self.mass(weights) @ self.at_points

    def mass(self, weights: Tensor) -> Tensor:
        """Weights of the points, (q, N_POINTS): each value's, shared by its two neighbours."""
        before, share = self._places
        after = weights * share
        mass = weights.new_zeros(len(weights), len(self.points))
        mass.scatter_add_(1, before, weights - after)
        return mass.scatter_add_(1, before + 1, after)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        """The point before each value, and how far it is towards the next, (q, n) each."""
        place = (self.values - self.center).clamp_(-self.noise.reach, self.noise.reach)  # (q, n)
        step = 2 * self.noise.end / (len(self.points) - 1)
        before = ((place / self.noise.scale).asinh_() + self.noise.end).div_(step)
        before = before.long().clamp_(0, len(self.points) - 2)
        low = self.points[before]
        share = (place - low).div_(self.points[before + 1] - low)
        return before, share.clamp_(0, 1)


def reaches_of(extents: Tensor) -> list[float]:
    """How far from its prediction a value of each output may be, of :meth:`Question.extents`."""
    least, largest = extents
    return (largest - least).amax(dim=0).tolist()


def noises_of(calibration: Calibration, reaches: Sequence[float]) -> list[Noise | None]:
    """The noise that a calibration adds to each output, whose values are so far apart."""
    scales = calibration.noise or (0.0,) * len(reaches)
    errors = calibration.errors or (NORMAL,) * len(reaches)
    return [
        Noise(*noise) if noise[0] else None for noise in zip(scales, errors, reaches, strict=True)
    ]


def variance(weights: Tensor, values: Tensor) -> Tensor:
    """Variances (q, 1) of values (q, n) or (1, n) with weights (q, n)."""
    deviations = values - weighted_mean(weights, values)
    return weighted_mean(weights, deviations.square())


def weighted_mean(weights: Tensor, values: Tensor) -> Tensor:
    """Means (q, 1) of values (q, n) or (1, n) with weights (q, n)."""
    return (weights * values).sum(dim=1, keepdim=True)


class Distribution:
    """Predictive distributions of some queries.

    Every answer is an array of shape (q, k) or (q, k, n_outputs): a single output has no axis
    of its own.

    Parameters
    ----------
    question : Question
        The queries, and the neighbours whose adjusted values their targets are drawn from.
    calibration : Calibration
        How weighted values become a distribution.
    """

    def __init__(self, evaluation: Evaluation, calibration: Calibration):
        self.evaluation, self.power = evaluation, calibration.power
        extents = evaluation.extents()
        self.noises = noises_of(calibration, reaches_of(extents))
        self.at_points = [noise and noise.at_points().to(extents) for noise in self.noises]

    def std(self) -> np.ndarray:
        """Standard deviations, k = 1."""
        return self._describe(lambda law, weights, _: law.std(weights))

    def quantiles(self, levels: Tensor) -> np.ndarray:
        """Smallest values not exceeded with probabilities of at least `levels` (k,)."""
        return self._describe(
            lambda law, weights, shift: shift + law.quantiles(weights, levels.to(weights))
        )

    def cdf(self, points: Tensor) -> np.ndarray:
        """Probabilities not to exceed the points (k,)."""

        def reached(law, weights, shift):
            given = points.to(weights)
            # A quantile is a value plus the shift: rounded, it is not to lie below the value.
            rounding = 2 * torch.finfo(given.dtype).eps * torch.maximum(given.abs(), shift.abs())
            return law.cdf(weights, given - shift + torch.where(shift == 0, 0.0, rounding))

        return self._describe(reached)

    def sample(self, n_samples: int, random_state: np.random.RandomState) -> np.ndarray:
        """Draw values: (q, k) or (q, n_outputs, k). The outputs of a draw are of one neighbour."""
        shape = len(self.evaluation), n_samples
        uniform = torch.from_numpy(random_state.uniform(size=shape))
        noise = torch.stack(
            [
                torch.zeros(shape, dtype=torch.float64)
                if noise is None
                else torch.from_numpy(noise.draw(random_state, shape))
                for noise in self.noises
            ],
            dim=2,
        )

        def draw(queries, behind):
            weights, values = behind.weights(self.power), behind.values
            cumulated = weights.cumsum(dim=1)
            height = uniform[queries].to(cumulated) * cumulated[:, -1:]
            drawn = torch.searchsorted(cumulated, height, right=True)
            last = (weights > 0).cumsum(dim=1).argmax(dim=1, keepdim=True)  # rounding beyond it
            drawn = drawn.minimum(last)[..., None].expand(-1, -1, values.shape[2])
            shift = _means(behind.weights(), values) - _means(weights, values)
            drawn = values.expand(len(weights), -1, -1).gather(1, drawn)
            return (shift[:, None] + drawn + noise[queries].to(cumulated)).mT

        return self._join(self.evaluation.behind(draw), output_axis=1)

    def _describe(self, describe: Callable[..., Tensor]) -> np.ndarray:
        """Ask each output for (q, k), by its law, weights (q, n) and a shift (q, 1)."""

        def answer(_, behind):
            weights = behind.weights(self.power)
            means = _means(behind.weights(), behind.values)
            # Zero without calibration, so that values are targets to the last bit.
            shifts = means - _means(weights, behind.values)
            answers = []
            for j, (noise, at_points) in enumerate(zip(self.noises, self.at_points, strict=True)):
                values, mean = behind.values[..., j], means[:, [j]]
                law = (
                    Empirical(values)
                    if noise is None
                    else Smoothed(values, mean, noise, at_points)
                )
                answers.append(describe(law, weights, shifts[:, [j]]))
            return torch.stack(answers, dim=2)

        return self._join(self.evaluation.behind(answer), output_axis=2)

    def _join(self, blocks: list[Tensor], output_axis: int) -> np.ndarray:
        answers = torch.cat(blocks).cpu().numpy()
        single = self.evaluation.neighbors.values.ndim == 1
        return answers.squeeze(output_axis) if single else answers


def _means(weights: Tensor, values: Tensor) -> Tensor:
    """Means (q, c) of values (q, n, c) or (1, n, c) with weights (q, n)."""
    return torch.cat([weighted_mean(weights, column) for column in values.unbind(dim=2)], dim=1)
