"""Predictive distributions: the neighbours' adjusted values, with their weights.

Residuals of a trend, of which a prediction keeps a part, are in the values in full.
Their mean is the prediction, but their spread is not that of its error: a network learns weights
for the mean alone. So a predictive distribution takes the weights to a `power`, which sharpens or
flattens them, shifts the result back to the prediction, and adds `noise` with the shape of the
errors on held-out rows. Both are chosen after training (:mod:`.calibration`). Of several outputs,
draws depend on each other as the errors do. Values that are then
beyond a bound of the targets are the bound, and those between whole ones, of counts, the nearest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from .._utils.storable import storable
from .._utils.threads import cached_property
from ..attention import NONAHead
from .evaluation import Evaluation
from .weighted_rows import WeightedRows

Limits = tuple[Tensor, Tensor]
Draw = Callable[[slice, WeightedRows], Tensor]  # samples of some queries, (q, n_outputs, k)

NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # shares of the error
N_POINTS = 256  # at which a distribution with noise is evaluated
FARTHEST = 1e15  # such point, in deviations of the noise: it is not below the values' rounding
REACH = 10.0  # of the noise, in its deviations
N_LEVELS = 400  # of quantiles whose deviation is that of a distribution
BISECTIONS = 40  # of the levels from 0 to 1
N_ERRORS = 101  # quantiles that describe the shape of errors
NORMAL = (0.0,)  # the shape of unknown errors


@storable
@dataclass(frozen=True)
class Calibration:
    """How weighted targets become a predictive distribution.

    Parameters
    ----------
    power : float, default=1.0
        Exponent of the weights; below 1, the distribution is that of more rows.
    noise : tuple of float, default=()
        Standard deviation of the noise that is added to the neighbours' targets, for each output,
        in the units of `y`; none by default.
    errors : tuple of tuple of float, default=()
        Shape of the noise, for each output: quantiles of errors of standard deviation 1, at
        equally spaced levels. Normal by default.
    ranks : tuple of tuple of int, default=()
        Dependence of several outputs, for each output: ranks of its errors on the same rows, from
        0. By default, draws have the dependence of the neighbours' targets.

    Examples
    --------
    >>> from nona_sklearn import Calibration, SoftStepKNeighborsRegressor
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> round(knn.fit(X, y).calibration_.noise[0])
    92

    Without noise, quantiles are targets of the neighbours:

    >>> knn.calibration_ = Calibration()
    >>> knn.predict_quantiles([[84]], [0.4, 0.6])
    array([[400., 450.]])
    """

    power: float = 1.0
    noise: tuple[float, ...] = ()
    errors: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    ranks: tuple[tuple[int, ...], ...] = field(default=(), repr=False)

    def _draw_levels(self, random: np.random.RandomState, shape: tuple[int, ...]) -> Tensor:
        """Levels of each output's quantiles, (*shape, n_outputs), that depend as errors do.

        They are ranks of the errors on one row, and anywhere between two ranks, so that those of
        an output are uniform.
        """
        ranks = np.transpose(self.ranks)
        below = ranks[random.randint(len(ranks), size=shape)]
        return torch.from_numpy((below + random.uniform(size=below.shape)) / len(ranks))


class Empirical:
    """Distributions of weighted values of one output, without noise.

    Methods take weights (q, n) that sum to 1 and return (q, k). Values are (q, n) or (1, n).
    `limits`, two of (q, 1), are the least and the largest value: those beyond are the limit.
    """

    def __init__(self, values: Tensor):
        self.values = values

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        return self.values.sort(dim=1)

    def std(self, weights: Tensor, limits: Limits | None = None) -> Tensor:
        """Standard deviations, k = 1."""
        values = self.values if limits is None else self.values.clamp(*limits)
        return variance(weights, values).sqrt()

    def quantiles(self, weights: Tensor, levels: Tensor) -> Tensor:
        """Smallest values not exceeded with probabilities of at least `levels` (k,)."""
        tiny = torch.finfo(levels.dtype).tiny  # a quantile of level 0 has positive weight
        levels = levels.clamp_min(tiny).expand(weights.shape[0], -1).contiguous()
        cumulated = self._cumulated(weights)
        ranks = torch.searchsorted(cumulated, levels).clamp_max(weights.shape[1] - 1)
        found = self._sorted[0].expand(weights.shape[0], -1).gather(1, ranks)
        return torch.where(cumulated[:, -1:].isnan(), torch.nan, found)  # without neighbours

    def cdf(self, weights: Tensor, points: Tensor) -> Tensor:
        """Probabilities not to exceed the points (q, k)."""
        return self._below(self._cumulated(weights), points)

    def _below(self, cumulated: Tensor, points: Tensor) -> Tensor:
        values = self._sorted[0].expand(len(points), -1).contiguous()
        count = torch.searchsorted(values, points.contiguous(), right=True)
        return torch.where(count > 0, cumulated.gather(1, (count - 1).clamp_min(0)), 0.0)

    def _cumulated(self, weights: Tensor) -> Tensor:
        cumulated = self._sums(weights)
        return cumulated.div_(cumulated[:, -1:].clone())

    def _sums(self, weights: Tensor) -> Tensor:
        return weights.gather(1, self._sorted[1].expand_as(weights)).cumsum(dim=1)


def _point(step: Tensor) -> Tensor:
    """The distance from a prediction of a number of steps, each larger than the one before."""
    return step.sinh().sinh()


END = math.asinh(math.asinh(FARTHEST))  # steps
POINTS = _point(torch.linspace(-END, END, N_POINTS, dtype=torch.float64))


class Noise:
    """A mixture of normal distributions of one width around the quantiles of some errors.

    `scale` is its standard deviation, `errors` are quantiles of standardised errors. Distribution
    functions of values with noise are evaluated at N_POINTS points, which are closest together
    near the prediction. They depend on the scale alone: what a query may not see must not move
    them.
    """

    def __init__(self, scale: float, errors: Sequence[float]):
        self.scale = scale
        quantiles = np.asarray(errors)
        spread = min(quantiles.std(), np.subtract(*np.quantile(quantiles, [0.75, 0.25])) / 1.34)
        # Silverman's rule of thumb; without errors, a normal distribution.
        self.width = 0.9 * spread * len(quantiles) ** -0.2 if spread > 0 else 1.0
        self.shrink = np.hypot(quantiles.std(), self.width)  # to a deviation of 1
        self.quantiles = quantiles

    @cached_property
    def points(self) -> Tensor:
        """Distances from the prediction, ascending, (N_POINTS,)."""
        return self.scale * POINTS

    def at_points(self, share: float = 1.0) -> Tensor:
        """Distribution functions, at the points, of each point plus a share of the noise.

        Of shape (N_POINTS, N_POINTS), a row for each point that noise is added to.
        """
        difference = (POINTS - POINTS[:, None]).numpy()
        if share == 0:
            return torch.from_numpy(np.where(difference < 0, 0.0, 1.0))
        x, cdf = self._cdf
        return torch.from_numpy(np.interp(difference / share, x, cdf, left=0.0, right=1.0))

    @cached_property
    def _cdf(self) -> tuple[np.ndarray, np.ndarray]:
        """Distances in units of the scale, and the distribution function there."""
        x = np.linspace(-REACH, REACH, 2001)
        standardized = (x[:, None] * self.shrink - self.quantiles) / self.width
        return x, ndtr(standardized).mean(axis=1)

    def draw(self, random: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        """Draw samples."""
        centers = random.choice(self.quantiles, size=shape)
        return self.scale * (centers + self.width * random.normal(size=shape)) / self.shrink


class Smoothed:
    """Distributions of weighted values of one output plus noise, as :class:`Empirical`.

    `center` (q, 1) are the predictions, `at_points` is the result of :meth:`Noise.at_points`.
    """

    def __init__(self, values: Tensor, center: Tensor, noise: Noise, at_points: Tensor):
        self.values, self.center, self.noise, self.at_points = values, center, noise, at_points
        self.points = noise.points.to(center)

    def std(self, weights: Tensor, limits: Limits | None = None) -> Tensor:
        if limits is None:
            return (variance(weights, self.values) + self.noise.scale**2).sqrt()
        mass = self.mass(weights)
        points = self.points_within(limits).clamp(*self.support(mass))
        low, high = points[:, :-1], points[:, 1:]
        share = (mass @ self.at_points).diff(dim=1)  # even in between
        mean = (share * (low + high)).sum(dim=1, keepdim=True) / 2
        low, high = low - mean, high - mean
        squares = share * (low.square() + low * high + high.square()) / 3
        return squares.sum(dim=1, keepdim=True).clamp_min(0.0).sqrt()

    def points_within(self, limits: Limits | None) -> Tensor:
        """Distances of the points from the center, those beyond a limit at it."""
        if limits is None:
            return self.points
        return self.points.clamp(*(limit - self.center for limit in limits))

    def support(self, mass: Tensor) -> Limits:
        """Least and largest distances from the center that have weight, (q, 1) each."""
        low = torch.where(mass > 0, self.points, math.inf).amin(dim=1, keepdim=True)
        high = torch.where(mass > 0, self.points, -math.inf).amax(dim=1, keepdim=True)
        reach = REACH * self.noise.scale
        return low - reach, high + reach

    def quantiles(self, weights: Tensor, levels: Tensor) -> Tensor:
        mass = self.mass(weights)
        cdf = mass @ self.at_points
        levels = levels.expand(cdf.shape[0], -1).contiguous()
        after = torch.searchsorted(cdf, levels).clamp(1, cdf.shape[1] - 1)
        low, high = cdf.gather(1, after - 1), cdf.gather(1, after)
        share = ((levels - low) / (high - low)).nan_to_num(1.0).clamp(0, 1)
        found = torch.lerp(self.points[after - 1], self.points[after], share)
        return self.center + found.clamp(*self.support(mass))

    def cdf(self, weights: Tensor, points: Tensor) -> Tensor:
        mass, distances = self.mass(weights), points - self.center
        found = self.interpolated(mass @ self.at_points, distances)
        low, high = self.support(mass)
        return torch.where(distances < low, 0.0, torch.where(distances < high, found, 1.0))

    def interpolated(self, reached: Tensor, distances: Tensor) -> Tensor:
        """Probabilities at distances (..., k) from those at the points, (..., N_POINTS)."""
        after = torch.searchsorted(self.points, distances.contiguous()).clamp(1, N_POINTS - 1)
        low, high = self.points[after - 1], self.points[after]
        share = ((distances - low) / (high - low)).clamp(0, 1)
        after = after.expand(*reached.shape[:-1], -1)
        found = torch.lerp(reached.gather(-1, after - 1), reached.gather(-1, after), share)
        return found.clamp_(0, 1)  # sums of weights may round to more than 1

    def reached(self, weights: Tensor) -> Tensor:
        """Probabilities not to exceed the noise's points, (q, N_POINTS)."""
        before, _ = self._positions
        some = slice(int(before.min()), int(before.max()) + 2)  # others have no mass
        return self.mass(weights)[:, some] @ self.at_points[some]

    def mass(self, weights: Tensor) -> Tensor:
        """Weights of the points, (q, N_POINTS): each value's is split between two points."""
        before, share = self._positions
        after = weights * share
        mass = weights.new_zeros(weights.shape[0], len(self.points))
        mass.scatter_add_(1, before, weights - after)
        return mass.scatter_add_(1, before + 1, after)

    @cached_property
    def _positions(self) -> tuple[Tensor, Tensor]:
        """The point before each value, and its relative distance to it, (q, n) each."""
        distance = (self.values - self.center) / self.noise.scale  # (q, n)
        distance.clamp_(-FARTHEST, FARTHEST)
        before = (distance.asinh().asinh_() + END).div_(2 * END / (N_POINTS - 1))
        before = before.long().clamp_(0, N_POINTS - 2)
        points = POINTS.to(distance)
        low = points[before]
        share = (distance - low).div_(points[before + 1] - low)
        return before, share.clamp_(0, 1)


class Widened:
    """Distributions as :class:`Empirical`, to whose quantiles those of a logistic one are added.

    A quantile of level p is ``Q(p) + s log(p / (1 - p))``, with the s that adds a variance (q, 1).
    So values keep their places, and a single value becomes a range.
    """

    def __init__(self, distribution: Empirical | Smoothed, added: Tensor):
        self.distribution, self.added = distribution, added

    def scale(self, weights: Tensor) -> Tensor:
        """The s of each query, (q, 1): the root of ``s^2 var(logit) + 2 s cov(Q, logit) = added``.

        Of a distribution without added variance it is 0.
        """
        levels = middle_levels(weights)
        logits = levels.logit()
        covariance = (self.distribution.quantiles(weights, levels) * logits).mean(1, keepdim=True)
        square = logits.square().mean()
        return ((covariance.square() + self.added * square).sqrt() - covariance) / square

    def std(self, weights: Tensor, limits: Limits | None = None) -> Tensor:
        narrow = self.distribution.std(weights, limits)
        if limits is None:
            return (narrow.square() + self.added).sqrt()
        within = self.quantiles(weights, middle_levels(weights)).clamp(*limits)
        return torch.where(self.added > 0, within.std(dim=1, correction=0, keepdim=True), narrow)

    def quantiles(self, weights: Tensor, levels: Tensor) -> Tensor:
        return self.distribution.quantiles(weights, levels) + self._moves(weights, levels)

    def cdf(self, weights: Tensor, points: Tensor) -> Tensor:
        """The largest level whose quantile is not above a point, by bisection."""
        low, high = torch.zeros_like(points), torch.ones_like(points)
        for _ in range(BISECTIONS):
            level = (low + high) / 2
            reached = self.quantiles(weights, level) <= points
            low, high = torch.where(reached, level, low), torch.where(reached, high, level)
        most = self.quantiles(weights, points.new_ones(1))
        found = torch.where(points < most, low, 1.0)
        return torch.where(self.added > 0, found, self.distribution.cdf(weights, points))

    def widen(self, weights: Tensor, drawn: Tensor, places: Tensor) -> Tensor:
        """Draws (q, k) from the distributions without added variance, moved as their quantiles.

        `places`, from 0 to 1, are where draws are between the levels of one value.
        """
        below = self.distribution.cdf(weights, drawn.nextafter(drawn.new_tensor(-math.inf)))
        levels = torch.lerp(below, self.distribution.cdf(weights, drawn), places)
        return drawn + self._moves(weights, levels)

    def _moves(self, weights: Tensor, levels: Tensor) -> Tensor:
        """What is added to quantiles of some levels, (k,) or (q, k)."""
        least, most = middle_levels(weights)[[0, -1]]  # beyond which it would be infinite
        return self.scale(weights) * levels.to(weights).clamp(least, most).logit()


def middle_levels(like: Tensor) -> Tensor:
    """Levels in the middle of N_LEVELS equal parts, (N_LEVELS,)."""
    return (torch.arange(N_LEVELS, dtype=like.dtype, device=like.device) + 0.5) / N_LEVELS


def output_noises(calibration: Calibration, n_outputs: int) -> list[Noise | None]:
    """The noise that a calibration adds to each output."""
    scales = calibration.noise or (0.0,) * n_outputs
    errors = calibration.errors or (NORMAL,) * n_outputs
    return [Noise(*pair) if pair[0] else None for pair in zip(scales, errors, strict=True)]


def limits_of(head: NONAHead, shift: Tensor) -> Limits | None:
    """The bounds of the targets less the shift (q, 1) of values; None if there are none."""
    return None if head.bounds is None else (head.bounds[0] - shift, head.bounds[1] - shift)


def variance(weights: Tensor, values: Tensor) -> Tensor:
    """Variances (q, 1) of values (q, n) or (1, n) with weights (q, n)."""
    deviations = values - weighted_mean(weights, values)
    return weighted_mean(weights, deviations.square())


def weighted_mean(weights: Tensor, values: Tensor) -> Tensor:
    """Means (q, 1) of values (q, n) or (1, n) with weights (q, n)."""
    return (weights * values).sum(dim=1, keepdim=True)


class Distribution:
    """Predictive distributions of the queries of an evaluation.

    Results are of shape (q, k) or (q, k, n_outputs): a single output has no axis of its own.
    """

    def __init__(self, evaluation: Evaluation, calibration: Calibration):
        self.evaluation, self.calibration = evaluation, calibration
        self.power = calibration.power
        columns = evaluation.neighbors.columns
        self.noises = output_noises(calibration, columns.shape[1])
        self.at_points = [
            None if noise is None else noise.at_points().to(columns) for noise in self.noises
        ]
        self.head = evaluation.one_head

    def std(self) -> np.ndarray:
        """Standard deviations, k = 1; of whole numbers those of many quantiles."""
        if self.head.whole:
            levels = middle_levels(self.evaluation.neighbors.columns)
            return self.quantiles(levels).std(axis=1, keepdims=True)
        return self._describe(
            lambda distribution, weights, shift: distribution.std(
                weights, limits_of(self.head, shift)
            )
        )

    def unbounded_std(self) -> np.ndarray:
        """Standard deviations without the bounds of the targets, k = 1."""
        return self._describe(lambda distribution, weights, _: distribution.std(weights))

    def quantiles(self, levels: Tensor) -> np.ndarray:
        """Smallest values not exceeded with probabilities of at least `levels` (k,)."""
        return self._join_blocks(lambda rows, added: self.quantiles_of(rows, added, levels))

    def quantiles_of(self, weighted: WeightedRows, added: Tensor | None, levels: Tensor) -> Tensor:
        """:meth:`quantiles` of the queries of some weighted rows, (q, k, n_outputs).

        Levels are (k,), or (q, k, n_outputs) if each query and output has its own.
        """
        of_outputs = iter(levels.unbind(2) if levels.ndim == 3 else [levels] * len(self.noises))
        return self._of_outputs(
            weighted,
            added,
            lambda distribution, weights, shift: self.head.possible(
                shift + distribution.quantiles(weights, next(of_outputs).to(weights))
            ),
        )

    def cdf(self, points: Tensor) -> np.ndarray:
        """Probabilities not to exceed the points (k,)."""

        def reached(distribution, weights, shift):
            given = points.to(weights)
            if self.head.whole:  # those that are not exceeded are rounded to the next one below
                given = given.floor() + 0.5
            # A quantile is a value plus the shift: rounded, it must not be below the value.
            rounding = 2 * torch.finfo(given.dtype).eps * torch.maximum(given.abs(), shift.abs())
            found = distribution.cdf(
                weights, given - shift + torch.where(shift == 0, 0.0, rounding)
            )
            if self.head.bounds is None:
                return found
            low, high = self.head.bounds
            return torch.where(given < low, 0.0, torch.where(given >= high, 1.0, found))

        return self._describe(reached)

    def sample(self, n_samples: int, random_state: np.random.RandomState) -> np.ndarray:
        """Samples, (q, k) or (q, n_outputs, k)."""
        draw = self._draw_quantiles if self.calibration.ranks else self._draw_neighbors
        drawn = draw((len(self.evaluation), n_samples), random_state)
        return self._join(self.evaluation.map_weighted_rows(drawn, precise=True), output_axis=1)

    def _draw_quantiles(self, shape: tuple[int, int], random_state: np.random.RandomState) -> Draw:
        """Quantiles of each output, at levels that depend on each other as errors do."""
        levels = self.calibration._draw_levels(random_state, shape)

        def draw(queries, weighted):
            return self.quantiles_of(weighted, self._added_to(queries), levels[queries]).mT

        return draw

    def _draw_neighbors(self, shape: tuple[int, int], random_state: np.random.RandomState) -> Draw:
        """Values of one neighbour for all outputs, plus noise of each."""
        uniform = torch.from_numpy(random_state.uniform(size=shape))
        places = torch.from_numpy(random_state.uniform(size=(*shape, len(self.noises))))
        noise = torch.stack(
            [
                torch.zeros(shape, dtype=torch.float64)
                if noise is None
                else torch.from_numpy(noise.draw(random_state, shape))
                for noise in self.noises
            ],
            dim=2,
        )

        def draw(queries, weighted):
            weights, values = weighted.weights(self.power), weighted.values
            cumulated = weights.cumsum(dim=1)
            height = uniform[queries].to(cumulated) * cumulated[:, -1:]
            drawn = torch.searchsorted(cumulated, height, right=True)
            last = (weights > 0).cumsum(dim=1).argmax(dim=1, keepdim=True)  # despite rounding
            drawn = drawn.minimum(last)[..., None].expand(-1, -1, values.shape[2])
            shift = _means(weighted.weights(), values) - _means(weights, values)
            drawn = values.expand(len(weights), -1, -1).gather(1, drawn)
            drawn = drawn + noise[queries].to(cumulated)
            if (added := self._added_to(queries)) is not None:
                parts = zip(drawn.unbind(2), places[queries].to(drawn).unbind(2), strict=True)
                drawn = self._of_outputs(
                    weighted, added, lambda own, weights, _: own.widen(weights, *next(parts))
                )
            drawn = shift[:, None] + drawn
            return self.head.possible(drawn).mT

        return draw

    def _describe(self, describe: Callable[..., Tensor]) -> np.ndarray:
        """Apply a function to each output's distribution, weights (q, n) and shift (q, 1)."""
        return self._join_blocks(lambda rows, added: self._of_outputs(rows, added, describe))

    def _of_outputs(
        self, weighted: WeightedRows, added: Tensor | None, describe: Callable[..., Tensor]
    ) -> Tensor:
        """:meth:`_describe` the queries of some weighted rows, (q, k, n_outputs)."""
        weights = weighted.weights(self.power)
        means = _means(weighted.weights(), weighted.values)
        # Zero without calibration, so that values are exactly those of targets.
        shifts = means - _means(weights, weighted.values)
        results = []
        for j, (noise, at_points) in enumerate(zip(self.noises, self.at_points, strict=True)):
            values, mean = weighted.values[..., j], means[:, [j]]
            distribution: Empirical | Smoothed = Empirical(values)
            if noise is not None and at_points is not None:
                distribution = Smoothed(values, mean, noise, at_points)
            widened = distribution if added is None else Widened(distribution, added[:, [j]])
            results.append(describe(widened, weights, shifts[:, [j]]))
        return torch.stack(results, dim=2)

    def _join_blocks(
        self, function: Callable[[WeightedRows, Tensor | None], Tensor]
    ) -> np.ndarray:
        """Join what a function returns for each block of weighted rows, (q, k, n_outputs).

        It takes the variances that are added to theirs, (q, n_outputs), too.
        """

        def of_block(queries: slice, weighted: WeightedRows) -> Tensor:
            return function(weighted, self._added_to(queries))

        blocks = self.evaluation.map_weighted_rows(of_block, precise=True)
        return self._join(blocks, output_axis=2)

    def _added_to(self, queries: slice) -> Tensor | None:
        """Variances that are added to those of some queries, (q, n_outputs); None: none are."""
        added = self.evaluation.added
        return None if added is None else added[queries]

    def _join(self, blocks: list[Tensor], output_axis: int) -> np.ndarray:
        results = torch.cat(blocks).cpu().numpy()
        if (isolated := self.evaluation.isolated) is not None:
            results[isolated.cpu().numpy()] = np.nan
        single = self.evaluation.neighbors.values.ndim == 1
        return results.squeeze(output_axis) if single else results


def _means(weights: Tensor, values: Tensor) -> Tensor:
    """Means (q, c) of values (q, n, c) or (1, n, c) with weights (q, n)."""
    return torch.cat([weighted_mean(weights, column) for column in values.unbind(dim=2)], dim=1)
