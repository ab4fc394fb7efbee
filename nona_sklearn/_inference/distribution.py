"""Predictive distributions: weighted values of the neighbours, plus noise.

For one output of one query, the neighbours have values v_i with weights w_i, and the prediction is
their mean m. The predictive distribution is that of

    Y = m + V - mean(V) + E,    P(V = v_i) proportional to w_i ** power,

with noise E of the shape of the errors on held-out rows. Y is then cut off at the bounds of the
targets, and rounded if they are whole. A network learns weights for the mean alone, so that their
own spread is not that of its error: `power` and the scale of E are chosen after training
(:mod:`.calibration`). Where a rule leaves few rows, their spread is too small, and their mean is
less certain: a variance is added (:meth:`Distribution.added`). Values hold the residuals of a
trend in full, of which a prediction keeps a part. Draws of several outputs depend on each other as
the errors do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from .._utils.precision import EXACT
from .._utils.storable import storable
from .._utils.threads import cached_property
from .._utils.validation import some_of
from .neighbors import MaskExclusion, RuleExclusion

if TYPE_CHECKING:
    from .evaluation import Evaluation
    from .weighted_rows import WeightedRows

Bounds = tuple[float, float] | tuple[Tensor, Tensor]

N_GRID = 256  # points at which a distribution with noise is evaluated
FARTHEST = 1e15  # such point, in deviations of the noise: it is not below the values' rounding
NOISE_REACH = 10.0  # of the noise, in its deviations
N_LEVELS = 400  # of quantiles whose deviation is that of a distribution
N_BISECTIONS = 40  # of the levels from 0 to 1
N_ERRORS = 101  # quantiles that describe the shape of errors
NORMAL = (0.0,)  # the shape of errors that are not given


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
    error : tuple of float, default=()
        Standard deviation of the errors on held-out rows, for each output, in the units of `y`.
    effective_n_neighbors : float, default=inf
        Number of neighbours in their predictions: ``1 / sum(weight ** 2)``, averaged.

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
    error: tuple[float, ...] = field(default=(), repr=False)
    effective_n_neighbors: float = field(default=math.inf, repr=False)


class Discrete:
    """Distributions of one output without noise, one for each of q queries.

    `values`, (q, n) or (1, n), are those of the neighbours, `weights`, (q, n), sum to 1, and the
    `shift`, (q, 1), is added to the values.
    """

    def __init__(self, values: Tensor, weights: Tensor, shift: Tensor):
        self.values, self.weights, self.shift = values, weights, shift

    def ppf(self, levels: Tensor) -> Tensor:
        """Smallest values not exceeded with probabilities of at least `levels`, (k,) or (q, k)."""
        tiny = torch.finfo(levels.dtype).tiny  # a quantile of level 0 has positive weight
        levels = levels.clamp_min(tiny).expand(self.weights.shape[0], -1).contiguous()
        ranks = torch.searchsorted(self._cumulated, levels).clamp_max(self.weights.shape[1] - 1)
        values = self._sorted[0].expand_as(self.weights).gather(1, ranks)
        no_neighbors = self._cumulated[:, -1:].isnan()
        return self.shift + torch.where(no_neighbors, torch.nan, values)

    def cdf(self, y: Tensor) -> Tensor:
        """Probabilities not to exceed y (q, k)."""
        # A quantile is a value plus the shift: rounded, it must not be below the value.
        rounding = 2 * torch.finfo(y.dtype).eps * torch.maximum(y.abs(), self.shift.abs())
        return self.cdf_of_values(y - self.shift + torch.where(self.shift == 0, 0.0, rounding))

    def cdf_of_values(self, values: Tensor) -> Tensor:
        """The same for values before the shift, (q, k)."""
        ordered = self._sorted[0].expand(values.shape[0], -1).contiguous()
        count = torch.searchsorted(ordered, values.contiguous(), right=True)
        return torch.where(count > 0, self._cumulated.gather(1, (count - 1).clamp_min(0)), 0.0)

    def std(self, bounds: Bounds | None = None) -> Tensor:
        """Standard deviations within the bounds, (q, 1)."""
        values = self.values if bounds is None else self.values.clamp(*self._shifted_back(bounds))
        return _variance(self.weights, values).sqrt()

    def _shifted_back(self, bounds: Bounds) -> tuple[Tensor, Tensor]:
        """Bounds of the values before the shift, (q, 1) each."""
        return bounds[0] - self.shift, bounds[1] - self.shift

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """Ascending values, and their order, (q, n) or (1, n)."""
        return self.values.sort(dim=1)

    @cached_property
    def _cumulated(self) -> Tensor:
        """Shares of the sorted values up to each in all weights, (q, n)."""
        sums = self.weights.gather(1, self._sorted[1].expand_as(self.weights)).cumsum(dim=1)
        return sums / sums[:, -1:]


#: The grid has steps of equal size in asinh(asinh(distance)): points are closest together near
#: the prediction.
GRID_END = math.asinh(math.asinh(FARTHEST))
GRID = torch.linspace(-GRID_END, GRID_END, N_GRID, dtype=EXACT).sinh().sinh()


class Noise:
    """A mixture of normal distributions of one width around the quantiles of some errors.

    `scale` is its standard deviation, `errors` are quantiles of standardised errors, and `shares`
    those of the noise that are added to the points of the grid.
    """

    def __init__(self, scale: float, errors: Sequence[float], shares: Sequence[float] = (1.0,)):
        self.scale, self.errors = scale, np.asarray(errors)
        spread = min(
            self.errors.std(), np.subtract(*np.quantile(self.errors, [0.75, 0.25])) / 1.34
        )
        # Silverman's rule of thumb; without errors, a normal distribution.
        self.width = 0.9 * spread * len(self.errors) ** -0.2 if spread > 0 else 1.0
        self.shrink = np.hypot(self.errors.std(), self.width)  # to a deviation of 1
        x = np.linspace(-NOISE_REACH, NOISE_REACH, 2001)
        cdf = ndtr((x[:, None] * self.shrink - self.errors) / self.width).mean(axis=1)
        difference = (GRID - GRID[:, None]).numpy()
        #: For each share, the distribution function at the points of the grid of each point plus
        #: this share of the noise: a row for each point that noise is added to.
        self.grid_cdfs = {
            share: torch.from_numpy(
                np.interp(difference / share, x, cdf, left=0.0, right=1.0)
                if share
                else np.where(difference < 0, 0.0, 1.0)
            )
            for share in shares
        }

    def draw(self, random: np.random.RandomState, shape: tuple[int, ...]) -> Tensor:
        """Draw samples."""
        centers = random.choice(self.errors, size=shape)
        drawn = centers + self.width * random.normal(size=shape)
        return torch.from_numpy(self.scale * drawn / self.shrink)


def noises_of(calibration: Calibration, n_outputs: int) -> list[Noise | None]:
    """The noise of every output; None: there is none."""
    scales = calibration.noise or (0.0,) * n_outputs
    errors = calibration.errors or (NORMAL,) * n_outputs
    pairs = zip(scales, errors, strict=True)
    return [_noise(scale, tuple(shape)) if scale else None for scale, shape in pairs]


@lru_cache(maxsize=16)  # of 0.5 MB: to make it takes longer than to predict a row
def _noise(scale: float, errors: tuple[float, ...]) -> Noise:
    return Noise(scale, errors)


class GridValues:
    """Values of one output, less the predictions, on the grid of a noise.

    The weight of a value is split between the points `before` and after it, so that the mean stays
    where it is. The grid depends on the scale of the noise alone: rows that a query may not see
    must not move it.
    """

    def __init__(self, values: Tensor, scale: float):
        self.values = values
        distance = (values / scale).clamp_(-FARTHEST, FARTHEST)
        steps = (distance.asinh().asinh_() + GRID_END).div_(2 * GRID_END / (N_GRID - 1))
        self.before = steps.long().clamp_(0, N_GRID - 2)
        grid = GRID.to(values)
        low = grid[self.before]
        self.share_after = (distance - low).div_(grid[self.before + 1] - low).clamp_(0, 1)

    def weigh(self, weights: Tensor) -> Tensor:
        """Weights of the points, (q, N_GRID), by those of the values, (q, n)."""
        after = weights * self.share_after
        grid_weights = weights.new_zeros(weights.shape[0], N_GRID)
        grid_weights.scatter_add_(1, self.before, weights - after)
        return grid_weights.scatter_add_(1, self.before + 1, after)

    @cached_property
    def used(self) -> slice:
        """Points that have weight for any query."""
        return slice(int(self.before.min()), int(self.before.max()) + 2)


class Noisy(Discrete):
    """Distributions of one output with noise: its values are less the predictions."""

    def __init__(self, on_grid: GridValues, weights: Tensor, shift: Tensor, noise: Noise):
        super().__init__(on_grid.values, weights, shift)
        self.on_grid, self.noise = on_grid, noise
        self._grid = noise.scale * GRID.to(weights)
        self._grid_weights = on_grid.weigh(weights)

    def ppf(self, levels: Tensor) -> Tensor:
        cdf = self._grid_cdf
        levels = levels.expand(cdf.shape[0], -1).contiguous()
        after = torch.searchsorted(cdf, levels).clamp(1, N_GRID - 1)
        low, high = cdf.gather(1, after - 1), cdf.gather(1, after)
        share = ((levels - low) / (high - low)).nan_to_num(1.0).clamp(0, 1)
        values = torch.lerp(self._grid[after - 1], self._grid[after], share)
        return self.shift + values.clamp(*self._support)

    def cdf_of_values(self, values: Tensor) -> Tensor:
        low, high = self._support
        inside = self._interpolate(self._grid_cdf, values)
        return torch.where(values < low, 0.0, torch.where(values < high, inside, 1.0))

    def std(self, bounds: Bounds | None = None) -> Tensor:
        if bounds is None:
            return (_variance(self.weights, self.values) + self.noise.scale**2).sqrt()
        points = self._grid.clamp(*self._shifted_back(bounds)).clamp(*self._support)
        low, high = points[:, :-1], points[:, 1:]
        share = self._grid_cdf.diff(dim=1)  # even in between
        mean = (share * (low + high)).sum(dim=1, keepdim=True) / 2
        low, high = low - mean, high - mean
        squares = share * (low.square() + low * high + high.square()) / 3
        return squares.sum(dim=1, keepdim=True).clamp_min(0.0).sqrt()

    def score(
        self, truth: Tensor, share: float, bounds: Bounds | None = None
    ) -> tuple[Tensor, Tensor]:
        """CRPS with a share of the noise, and how central the truth (q, 1) is, (q,) each.

        The latter is the level of the narrowest central interval that contains the truth.
        """
        used = self.on_grid.used
        cdf = self._grid_weights[:, used] @ self.noise.grid_cdfs[share].to(self.weights)[used]
        grid = self._grid if bounds is None else self._grid.clamp(*self._shifted_back(bounds))
        values = truth - self.shift
        crps = torch.trapezoid((cdf - (values <= grid).to(cdf)).square(), grid)
        return crps, (2 * self._interpolate(cdf, values)[:, 0] - 1).abs()

    def _interpolate(self, cdf: Tensor, values: Tensor) -> Tensor:
        """Probabilities at values (q, k) from those on the grid, (q, N_GRID)."""
        after = torch.searchsorted(self._grid, values.contiguous()).clamp(1, N_GRID - 1)
        low, high = self._grid[after - 1], self._grid[after]
        share = ((values - low) / (high - low)).clamp(0, 1)
        inside = torch.lerp(cdf.gather(1, after - 1), cdf.gather(1, after), share)
        return inside.clamp_(0, 1)  # sums of weights may round to more than 1

    @cached_property
    def _grid_cdf(self) -> Tensor:
        """Probabilities not to exceed the points of the grid, (q, N_GRID)."""
        return self._grid_weights @ self.noise.grid_cdfs[1.0].to(self.weights)

    @cached_property
    def _support(self) -> tuple[Tensor, Tensor]:
        """Least and largest value that has weight, (q, 1) each."""
        has_weight, reach = self._grid_weights > 0, NOISE_REACH * self.noise.scale
        low = torch.where(has_weight, self._grid, math.inf).amin(dim=1, keepdim=True)
        high = torch.where(has_weight, self._grid, -math.inf).amax(dim=1, keepdim=True)
        return low - reach, high + reach


class Widened:
    """Distributions to whose quantiles those of a logistic distribution are added.

    A quantile of level p is ``Q(p) + s log(p / (1 - p))``, with the s that adds a variance (q, 1).
    So values keep their order, and a single value becomes a range.
    """

    def __init__(self, distribution: Discrete, added: Tensor):
        self.distribution, self.added = distribution, added
        self.values, self.weights = distribution.values, distribution.weights
        self.shift = distribution.shift
        self._levels = middle_levels(self.weights)
        logits = self._levels.logit()
        # The root of ``s^2 var(logit) + 2 s cov(Q, logit) = added``; without variance it is 0.
        covariance = (distribution.ppf(self._levels) * logits).mean(dim=1, keepdim=True)
        square = logits.square().mean()
        self.scale = ((covariance.square() + added * square).sqrt() - covariance) / square

    def ppf(self, levels: Tensor) -> Tensor:
        return self.distribution.ppf(levels) + self._moves(levels)

    def cdf(self, y: Tensor) -> Tensor:
        """The largest level whose quantile is not above y (q, k), by bisection."""
        low, high = torch.zeros_like(y), torch.ones_like(y)
        for _ in range(N_BISECTIONS):
            level = (low + high) / 2
            is_reached = self.ppf(level) <= y
            low, high = torch.where(is_reached, level, low), torch.where(is_reached, high, level)
        level = torch.where(y < self.ppf(y.new_ones(1)), low, 1.0)
        return torch.where(self.added > 0, level, self.distribution.cdf(y))

    def std(self, bounds: Bounds | None = None) -> Tensor:
        narrow = self.distribution.std(bounds)
        if bounds is None:
            return (narrow.square() + self.added).sqrt()
        within = self.ppf(self._levels).clamp(*bounds)
        return torch.where(self.added > 0, within.std(dim=1, correction=0, keepdim=True), narrow)

    def widen(self, drawn: Tensor, shares: Tensor) -> Tensor:
        """Drawn values (q, k), before the shift, moved as their quantiles are.

        `shares`, from 0 to 1, are where draws are between the levels of one value.
        """
        below = self.distribution.cdf_of_values(drawn.nextafter(drawn.new_tensor(-math.inf)))
        levels = torch.lerp(below, self.distribution.cdf_of_values(drawn), shares)
        return drawn + self._moves(levels)

    def _moves(self, levels: Tensor) -> Tensor:
        """What is added to quantiles of some levels, (k,) or (q, k)."""
        least, most = self._levels[[0, -1]]  # beyond which it would be infinite
        return self.scale * levels.to(self.weights).clamp(least, most).logit()


def draw_levels(
    ranks: tuple[tuple[int, ...], ...], random: np.random.RandomState, shape: tuple[int, ...]
) -> Tensor:
    """Levels of each output's quantiles, (*shape, n_outputs), that depend as errors do.

    They are ranks of the errors on one row, and anywhere between two ranks, so that the levels of
    an output are uniform.
    """
    by_row = np.transpose(ranks)
    below = by_row[random.randint(len(by_row), size=shape)]
    return torch.from_numpy((below + random.uniform(size=below.shape)) / len(by_row))


def middle_levels(like: Tensor) -> Tensor:
    """Levels in the middle of N_LEVELS equal parts, (N_LEVELS,)."""
    return (torch.arange(N_LEVELS, dtype=like.dtype, device=like.device) + 0.5) / N_LEVELS


def weighted_mean(weights: Tensor, values: Tensor) -> Tensor:
    """Means (q, 1) of values (q, n) or (1, n) with weights (q, n)."""
    return (weights * values).sum(dim=1, keepdim=True)


def _variance(weights: Tensor, values: Tensor) -> Tensor:
    """Variances (q, 1) of values (q, n) or (1, n) with weights (q, n)."""
    deviations = values - weighted_mean(weights, values)
    return weighted_mean(weights, deviations.square())


def distribution_of(
    values: Tensor,
    weights: Tensor,
    powered: Tensor,
    noise: Noise | None,
    added: Tensor | None = None,
) -> Discrete | Widened:
    """Distributions of one output, by its values (q, n), weights and powered weights (q, n).

    `added` are variances (q, 1) that unknown levels add.
    """
    prediction = weighted_mean(weights, values)
    # Zero without calibration, so that values are exactly those of targets.
    shift = prediction - weighted_mean(powered, values)
    if noise is None:
        distribution = Discrete(values, powered, shift)
    else:
        on_grid = GridValues(values - prediction, noise.scale)
        distribution = Noisy(on_grid, powered, prediction + shift, noise)
    return distribution if added is None else Widened(distribution, added)


class Distribution:
    """Predictive distributions of the queries of an evaluation.

    Results are of shape (q, k) or (q, k, n_outputs): a single output has no axis of its own.
    """

    def __init__(self, evaluation: Evaluation, calibration: Calibration):
        self.evaluation, self.calibration = evaluation, calibration
        self.head = evaluation.one_head
        n_outputs = evaluation.neighbors.columns.shape[1]
        self.noises = noises_of(calibration, n_outputs)

    def of_outputs(self, rows: WeightedRows) -> Iterator[Discrete | Widened]:
        """Yield each output's distributions of the queries of some rows: they take much memory."""
        weights, powered = rows.weights(), rows.weights(self.calibration.power)
        added = self.added(weights, rows.queries)
        for j, noise in enumerate(self.noises):
            of_output = None if added is None else added[:, [j]]
            yield distribution_of(rows.values[..., j], weights, powered, noise, of_output)

    def added(self, weights: Tensor, queries: slice | Tensor) -> Tensor | None:
        """Variances that unknown levels and lack of rows add, (q, n_outputs); None: none.

        Of independent targets of variance s^2 with weights w, the weighted variance is
        ``(1 - S) s^2`` on average, with ``S = sum(w^2)``, and their mean has the variance S s^2:
        the error of a prediction is ``2 S s^2`` more than their variance tells. A calibration
        knows this at its own S. With a rule or a mask, S may be larger.
        """
        added, calibration = some_of(self.evaluation.added, queries), self.calibration
        is_restricted = isinstance(self.evaluation.exclusion, RuleExclusion | MaskExclusion)
        if not is_restricted or not calibration.error:
            return added
        usual = 1 / calibration.effective_n_neighbors
        lack = (weights.square().sum(dim=1, keepdim=True) - usual).clamp_min(0).nan_to_num()
        of_few = 2 * lack * weights.new_tensor(calibration.error).square()
        return of_few if added is None else added + of_few

    def std(self) -> np.ndarray:
        """Standard deviations, k = 1; of whole numbers those of many quantiles."""
        if self.head.whole:
            levels = middle_levels(self.evaluation.neighbors.columns)
            return self.quantiles(levels).std(axis=1, keepdims=True)
        return self._map(lambda output: output.std(self.head.bounds))

    def unbounded_std(self) -> np.ndarray:
        """Standard deviations without the bounds of the targets, k = 1."""
        return self._map(lambda output: output.std())

    def quantiles(self, levels: Tensor) -> np.ndarray:
        """Smallest values not exceeded with probabilities of at least `levels` (k,)."""
        return self._map(lambda output: self.head.possible(output.ppf(levels.to(output.weights))))

    def cdf(self, y: Tensor) -> np.ndarray:
        """Probabilities not to exceed y (k,)."""
        if self.head.whole:  # what is not exceeded is rounded to the next whole number below
            y = y.floor() + 0.5

        def cdf(output: Discrete | Widened) -> Tensor:
            points = y.to(output.weights).expand(len(output.weights), -1)
            if self.head.bounds is None:
                return output.cdf(points)
            low, high = self.head.bounds
            inside = torch.where(points >= high, 1.0, output.cdf(points))
            return torch.where(points < low, 0.0, inside)

        return self._map(cdf)

    def sample(self, n_samples: int, random_state: np.random.RandomState) -> np.ndarray:
        """Samples, (q, k) or (q, n_outputs, k)."""
        make = self._quantile_sampler if self.calibration.ranks else self._neighbor_sampler
        sample = make((len(self.evaluation), n_samples), random_state)
        samples = self._of_queries(lambda rows: map(self.head.possible, sample(rows)))
        return samples.swapaxes(1, 2) if samples.ndim == 3 else samples

    def _quantile_sampler(
        self, shape: tuple[int, int], random_state: np.random.RandomState
    ) -> Callable[[WeightedRows], Iterator[Tensor]]:
        """What draws quantiles of each output, at levels that depend as errors do."""
        levels = draw_levels(self.calibration.ranks, random_state, shape)

        def sample(rows: WeightedRows) -> Iterator[Tensor]:
            for j, output in enumerate(self.of_outputs(rows)):
                yield output.ppf(levels[rows.queries, :, j].to(output.weights))

        return sample

    def _neighbor_sampler(
        self, shape: tuple[int, int], random_state: np.random.RandomState
    ) -> Callable[[WeightedRows], Iterator[Tensor]]:
        """What draws values of one neighbour for all outputs, plus noise of each output."""
        uniform = torch.from_numpy(random_state.uniform(size=shape))
        shares = torch.from_numpy(random_state.uniform(size=(*shape, len(self.noises))))
        no_noise = torch.zeros(shape, dtype=EXACT)
        noises = [
            no_noise if noise is None else noise.draw(random_state, shape) for noise in self.noises
        ]

        def sample(rows: WeightedRows) -> Iterator[Tensor]:
            queries = rows.queries
            weights = rows.weights(self.calibration.power)
            cumulated = weights.cumsum(dim=1)
            height = uniform[queries].to(cumulated) * cumulated[:, -1:]
            chosen = torch.searchsorted(cumulated, height, right=True)
            last = (weights > 0).cumsum(dim=1).argmax(dim=1, keepdim=True)  # despite rounding
            for j, output in enumerate(self.of_outputs(rows)):
                drawn = output.values.expand_as(weights).gather(1, chosen.minimum(last))
                drawn = drawn + noises[j][queries].to(drawn)
                if isinstance(output, Widened):
                    drawn = output.widen(drawn, shares[queries, :, j].to(drawn))
                yield output.shift + drawn

        return sample

    def _map(self, describe: Callable[[Discrete | Widened], Tensor]) -> np.ndarray:
        """What describes (q, k) each output's distributions, for all queries."""
        return self._of_queries(lambda rows: map(describe, self.of_outputs(rows)))

    def _of_queries(self, describe: Callable[[WeightedRows], Iterable[Tensor]]) -> np.ndarray:
        """What describes (q, k) rows for each output, NaN for queries without neighbours."""

        def of_block(rows: WeightedRows) -> Tensor:
            return torch.stack([*describe(rows)], dim=2)

        blocks = self.evaluation.map_weighted_rows(of_block, precise=True)
        results = torch.cat(blocks).cpu().numpy()
        if (isolated := self.evaluation.isolated) is not None:
            results[isolated.cpu().numpy()] = np.nan
        single = self.evaluation.neighbors.values.ndim == 1
        return results.squeeze(2) if single else results
