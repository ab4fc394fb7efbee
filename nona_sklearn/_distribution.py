"""The distribution behind a prediction: the neighbours' targets, with their weights.

The targets as they are, weighted as they are, have the prediction as their mean, but not the
spread of its error: a network learns weights for the mean alone. So a predictive distribution
takes the weights to a `power`, which sharpens or flattens them, moves what comes of it back to
the prediction, and adds a normal `noise`. Both are chosen after training, by the continuous
ranked probability score (CRPS) of rows that were not trained on.
"""

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral

import numpy as np
import torch
from sklearn.utils import check_array, check_random_state
from torch import Tensor

from ._bank import NeighborBank
from ._stream import heads_of, map_blocks, whole_weights

POWERS = (1.0, 0.125, 0.25, 0.35, 0.5, 0.7, 1.4, 2.0, 4.0)
NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # shares of the error
CALIBRATION_PAIRS, LEAST_CALIBRATION_ROWS = 2**23, 100  # takes a second or so
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


class DistributionMixin:
    """What can be asked of the distribution behind a prediction."""

    def predict_quantiles(self, X=None, quantiles=(0.1, 0.5, 0.9)):
        """Quantiles of each query's predictive distribution.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).
        quantiles : float or array-like of shape (n_quantiles,), default=(0.1, 0.5, 0.9)
            Probabilities, from 0 to 1.

        Returns
        -------
        ndarray of shape (n_queries, n_quantiles) or (n_queries, n_quantiles, n_outputs)
            The smallest values that the target does not exceed with these probabilities. One
            number for `quantiles` leaves that axis out.

        Raises
        ------
        ValueError
            If `quantiles` are not from 0 to 1.
        """
        levels = _numbers(quantiles, "quantiles")
        if not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError(f"quantiles must be from 0 to 1, got {quantiles!r}")
        answer = self._describe(
            X, lambda behind, weights, shift: shift + behind.quantiles(weights, levels.to(weights))
        )
        return answer[:, 0] if np.ndim(quantiles) == 0 else answer

    def predict_cdf(self, X, y):
        """Probability that each query's target is at most `y`.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, each without itself (leave-one-out).
        y : float or array-like of shape (n_values,)
            Values of the target, the same for every query and output.

        Returns
        -------
        ndarray of shape (n_queries, n_values) or (n_queries, n_values, n_outputs)
            Probabilities. One number for `y` leaves that axis out.

        Raises
        ------
        ValueError
            If `y` holds NaN or infinity, or has more than one axis.
        """
        values = _numbers(y, "y")
        answer = self._describe(
            X, lambda behind, weights, shift: behind.cdf(weights, values.to(weights) - shift)
        )
        return answer[:, 0] if np.ndim(y) == 0 else answer

    def sample_y(self, X, n_samples=1, random_state=0):
        """Draw targets from each query's predictive distribution.

        The outputs of a draw come from one neighbour, and so depend on each other as they do
        in the bank.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, each without itself (leave-one-out).
        n_samples : int, default=1
            Number of draws for each query.
        random_state : int, RandomState instance or None, default=0
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_queries, n_samples) or (n_queries, n_outputs, n_samples)
            Draws, in the layout of scikit-learn's ``GaussianProcessRegressor.sample_y``.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer.
        """
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}")
        random_state = check_random_state(random_state)
        n_queries = len(self._query(X)[1])
        uniform = torch.from_numpy(random_state.uniform(size=(n_queries, n_samples)))
        shape = (n_queries, n_samples, *self.bank_.targets.shape[1:2])
        normal = torch.from_numpy(random_state.normal(size=shape)).reshape(*shape[:2], -1)

        def draw(queries, weights, targets, noise, shift):
            cumulated = weights.cumsum(dim=1)
            height = uniform[queries].to(cumulated) * cumulated[:, -1:]
            drawn = torch.searchsorted(cumulated, height, right=True)
            last = (weights > 0).cumsum(dim=1).argmax(dim=1, keepdim=True)  # rounding beyond it
            values = targets[drawn.minimum(last)] + noise * normal[queries].to(cumulated)
            return (shift[:, None] + values).transpose(1, 2)

        return self._map_distribution(X, draw, output_axis=1)

    def calibrate(self, X=None, y=None):
        """Choose anew how wide the predictive distributions are; predictions stay.

        Fit does so on its validation rows, each asked of the network that did not see it, or
        on leave-one-out distributions if there are none. Rows that fit did not see at all do
        it better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            Rows that are not in the bank. None: the bank's, each without itself.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            Their targets; unused without `X`.

        Returns
        -------
        self : object
            With `calibration_` set.
        """
        bank, query, leave_one_out = self._query(X)
        head = self.network_.head
        if leave_one_out:
            self.calibration_ = calibrate_on_bank(head, bank)
        else:
            residual = self._check_targets(y, len(query), bank) - bank.predict(head, query)
            residual = residual.reshape(len(query), -1)
            self.calibration_ = fit_calibration(head, bank, query, residual)
        return self

    def _predict_std(self, X):
        std = self._describe(X, lambda behind, weights, _: behind.std(weights))
        return std[:, 0]

    def _describe(self, X, describe):
        """Ask each output's targets: (q, k) each, joined to (q, k) or (q, k, n_outputs).

        `describe` takes the targets, their weights (q, n), and how far each query's
        distribution is to be moved, (q, 1).
        """
        prepared = []  # once for all blocks of queries

        def answer(_, weights, targets, noise, shift):
            if not prepared:
                outputs = zip(targets.T.contiguous(), noise, strict=True)
                prepared.extend(
                    [NoisyTargets(y, s) if s else SortedTargets(y) for y, s in outputs]
                )
            answers = [
                describe(behind, weights, shift[:, [j]].contiguous())
                for j, behind in zip(range(targets.shape[1]), prepared, strict=False)
            ]
            return torch.stack(answers, dim=2)

        return self._map_distribution(X, answer, output_axis=2)

    def _map_distribution(self, X, answer, output_axis):
        """Join what `answer` says of (queries, weights, targets, noise, shift).

        A value of a predictive distribution is a target plus noise plus `shift`. A single
        output has no axis of its own in the array returned.
        """
        bank, query, leave_one_out = self._query(X)
        head, calibration = self.network_.head, self.calibration_
        targets = bank.targets.double().reshape(len(bank), -1)
        noise = targets.new_tensor(calibration.noise or [0.0] * targets.shape[1])

        def answer_block(queries, members):
            plain, weights = whole_weights(members, (1.0, calibration.power))
            # Zero without calibration, so that values are targets to the last bit.
            shift = plain @ targets - weights @ targets
            return answer(queries, weights, targets, noise, shift)

        blocks = map_blocks(
            answer_block, head, query, bank.embeddings, leave_one_out, whole_rows=True
        )
        answers = torch.cat(blocks).cpu().numpy()
        return answers.squeeze(output_axis) if bank.targets.ndim == 1 else answers


def fit_calibration(head, bank, query, residual, leave_one_out=False) -> Calibration:
    """Find the power and the noise with the lowest CRPS.

    Parameters
    ----------
    head : NONAHead or AverageHead
        Gives the weights.
    bank : NeighborBank
        What is weighted.
    query : Tensor of shape (q, d)
        Embeddings of rows whose errors are known.
    residual : Tensor of shape (q, n_outputs)
        Truth minus prediction.
    leave_one_out : bool, default=False
        Whether the queries are the bank's first rows, each without itself.

    Returns
    -------
    Calibration
        The best of a grid.
    """
    targets = bank.targets.double().reshape(len(bank), -1)
    error = residual.square().mean(dim=0).sqrt()
    outputs = [
        NoisyTargets(y, e or 1.0)
        for y, e in zip(targets.T.contiguous(), error.tolist(), strict=True)
    ]

    def score_block(queries, members):
        scores = []
        for weights in whole_weights(members, POWERS):
            score = 0.0
            for behind, column in zip(outputs, residual[queries].T, strict=True):
                truth = weights @ behind.targets + column  # rather than move the weights' mean
                score = score + behind.crps(weights, truth) / behind.noise
            scores.append(score)
        return torch.stack(scores)

    blocks = map_blocks(score_block, head, query, bank.embeddings, leave_one_out, whole_rows=True)
    scores = sum(blocks).cpu().numpy()
    power, noise = np.unravel_index(scores.argmin(), scores.shape)
    return Calibration(POWERS[power], tuple((NOISES[noise] * error).tolist()))


def calibrate_on_held_out(head, bank: NeighborBank, splits) -> Calibration:
    """Calibrate on validation rows, each predicted by a network that did not train on it.

    One network errs more than the average of all does. By how much follows from how far their
    predictions lie apart: the average's squared error is the networks' mean squared error less
    their variance about it (Krogh and Vedelsby's decomposition).

    Parameters
    ----------
    head : NONAHead or AverageHead
        The trained heads.
    bank : NeighborBank
        All rows given to fit.
    splits : list of tuple (ndarray, ndarray or None)
        Training and validation rows of each network. Without validation, as
        :func:`calibrate_on_bank`.

    Returns
    -------
    Calibration
        For the distributions of all networks together.
    """
    if splits[0][1] is None:
        return calibrate_on_bank(head, bank)
    parts = heads_of(head, bank.embeddings, bank.embeddings)
    most = _n_calibration_rows(bank) // len(parts) + 1
    rows = np.concatenate([valid[:most] for _, valid in splits])
    residuals = []
    for (part, own, _), (train, valid) in zip(parts, splits, strict=True):
        valid, seen = valid[:most], NeighborBank(own[train], bank.targets[train])
        residuals.append(bank.targets[valid] - seen.predict(part, own[valid]))
    rows, first = np.unique(rows, return_index=True)  # networks may share a validation row
    residual = torch.cat(residuals).reshape(-1, _n_outputs(bank))[first]

    bank, query = _with_rows_first(bank, rows)
    means = torch.stack(
        [
            NeighborBank(own, bank.targets).predict(part, own[: len(rows)], leave_one_out=True)
            for part, own, _ in heads_of(head, bank.embeddings, bank.embeddings)
        ]
    ).reshape(len(parts), *residual.shape)
    apart = means.var(dim=0, correction=0).mean(dim=0)
    share = 1 - apart / residual.square().mean(dim=0).clamp_min(1e-300)
    residual = residual * share.clamp(0.25, 1).sqrt()
    return fit_calibration(head, bank, query, residual, leave_one_out=True)


def calibrate_on_bank(head, bank: NeighborBank) -> Calibration:
    """Calibrate on the bank's own rows, each without itself."""
    order = np.random.RandomState(0).permutation(len(bank))
    bank, query = _with_rows_first(bank, order[: _n_calibration_rows(bank)])
    residual = bank.targets[: len(query)] - bank.predict(head, query, leave_one_out=True)
    return fit_calibration(head, bank, query, residual.reshape(len(query), -1), leave_one_out=True)


def _n_calibration_rows(bank):
    return max(LEAST_CALIBRATION_ROWS, CALIBRATION_PAIRS // len(bank))


def _n_outputs(bank):
    return bank.targets[:1].numel()


def _with_rows_first(bank, rows):
    """Put some rows first: (the bank in that order, their embeddings)."""
    order = np.concatenate([rows, np.setdiff1d(np.arange(len(bank)), rows)])
    bank = NeighborBank(bank.embeddings[order], bank.targets[order])
    return bank, bank.embeddings[: len(rows)]


def _numbers(values, name) -> Tensor:
    """One or more numbers as a float64 tensor of one axis."""
    values = check_array(np.atleast_1d(values), ensure_2d=False, dtype=np.float64, input_name=name)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a number or a list of them, got shape {values.shape}")
    return torch.from_numpy(values)
