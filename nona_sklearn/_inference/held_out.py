"""Rows that a network was not trained on, and what they decide about predictions.

They are the validation rows of a network, as queries of all rows of the bank, or a validation set
that fit is given. They decide how much a trend counts, and how far predictions are drawn to the
mean of the targets; calibration and unknown levels use them as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import rankdata
from torch import Tensor

from .._data.row_values import normalize_mean
from .._data.splits import Split
from .._utils.precision import EXACT
from .._utils.threads import cached_property
from ..attention.head import (
    AverageHead,
    ClassHead,
    NONAHead,
    heads_of,
    prior_mean,
    trust_radius_of,
)
from ..losses import LogLoss, log

if TYPE_CHECKING:
    from .._data.sample import Embedded
    from .bank import NeighborBank
    from .evaluation import Evaluation

LEAST_ROWS = 100  # evaluated, however many neighbours there are
ERROR_PAIRS, LEAST_ERROR_ROWS = 2**26, 500  # a few tenths of a second for most tables
N_NUMBERS = 1001  # from 0 to 1, of which one is chosen
RADIUS_PAIRS = 2**22  # of rows and neighbours that are compared for a trust radius
#: Standard errors that are taken for chance: the best epochs were chosen by the same rows.
CHANCE = 3.0
CONVERGED = "no change", "schedule"  # reasons to stop of a training that came to its end
LEAST_CREDIBILITY_ROWS = 50  # of fewer rows, even good predictions are within chance


# -- predictions -----------------------------------------------------------------------------


class ValidationRows(NamedTuple):
    """A validation set, which trained no network."""

    queries: Embedded
    truth: Tensor  # (q,) or (q, n_outputs)
    sample_weight: Tensor | None  # (q,), of mean 1


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that a network was not trained on, as queries of all rows of the bank."""

    evaluation: Evaluation
    truth: Tensor  # (q, n_outputs)
    rows: np.ndarray  # (q,), positions in the bank, or in a validation set, ascending
    limits: np.ndarray | None  # (q,), times before which neighbours are
    n_valid: int  # number of all validation rows: if they are many, some are taken
    sample_weight: Tensor | None = None  # (q,), of a validation set, of mean 1

    @cached_property
    def predictions(self) -> Tensor:
        """The predictions of the network, (q, n_outputs)."""
        return self.evaluation.mean().reshape(self.truth.shape)

    def predictions_with(self, **numbers: Any) -> Tensor:
        """The same beside a trend with these numbers: see `Offset`."""
        candidates = self.evaluation.search()
        neighbors = self.evaluation.neighbors.with_numbers(**numbers)
        evaluation = replace(self.evaluation, neighbors=neighbors, candidates=candidates)
        return evaluation.mean().reshape(self.truth.shape)


Unseen = list[Split] | ValidationRows


def predict_held_out(
    head: NONAHead | AverageHead, bank: NeighborBank, unseen: Unseen, leave_out: str = "group"
) -> list[HeldOut]:
    """Predict rows that trained no network, or the validation rows of every network.

    A network predicts its validation rows from all remaining rows of the bank. Where networks are
    the trend, its value at these rows is the prediction of the same network.
    """
    if isinstance(unseen, ValidationRows):
        evaluation, truth, weights = bank.evaluate(head, unseen.queries).without_isolated(
            unseen.truth, unseen.sample_weight
        )
        truth = truth.reshape(len(truth), bank.neighbors.columns.shape[1])
        return [HeldOut(evaluation, truth, np.arange(len(truth)), None, len(truth), weights)]
    result = []
    if bank.trend is not None and bank.trend.networks is not None:
        network, inner_bank = bank.trend.networks
        for of_trend in predict_held_out(network.head, inner_bank, unseen, leave_out):
            evaluation = bank.evaluate_rows(head, of_trend.rows, of_trend.limits, leave_out)
            offset = of_trend.predictions
            offset = log(offset) if isinstance(head, ClassHead) else offset
            evaluation, rows, truth, limits = replace(
                evaluation, query_trend=offset
            ).without_isolated(of_trend.rows, of_trend.truth, of_trend.limits)
            kept = replace(of_trend, evaluation=evaluation, rows=rows, truth=truth, limits=limits)
            result.append(kept)
        return result
    networks = split_networks(head, bank)
    n_rows = count_error_rows(bank) // len(networks) + 1
    for (network_head, network_bank), (_, valid, limits) in zip(networks, unseen, strict=True):
        assert valid is not None  # either all networks have validation rows or none
        order = valid[:n_rows].argsort()
        rows, before = valid[order], None if limits is None else limits[order]
        evaluation = network_bank.evaluate_rows(network_head, rows, before, leave_out)
        evaluation, rows, before = evaluation.without_isolated(rows, before)
        truth = bank.targets[rows].reshape(len(rows), bank.neighbors.columns.shape[1])
        result.append(HeldOut(evaluation, truth, rows, before, len(valid)))
    return result


def sample_weight_of(log_prior: Tensor | None, rows: np.ndarray) -> Tensor | None:
    """Weights of some of the bank's rows, with a mean of 1; None: all 1."""
    return None if log_prior is None else normalize_mean(log_prior[rows])


def split_networks(
    head: NONAHead | AverageHead, bank: NeighborBank
) -> list[tuple[NONAHead, NeighborBank]]:
    """The head of every network, and the bank in its space, where few queries build no graph."""
    neighbors = replace(bank.neighbors, algorithm="auto")
    return [
        (
            network_head,
            replace(bank, neighbors=replace(neighbors, rows=embeddings)).with_sources(
                bank.sources
            ),
        )
        for network_head, _, embeddings in head.split_by_head(bank.embeddings[:0], bank.embeddings)
    ]


def count_error_rows(bank: NeighborBank) -> int:
    """Return the number of rows whose errors tell the share of a trend, and calibrate."""
    return max(LEAST_ERROR_ROWS, n_rows_for(len(bank), ERROR_PAIRS))


def n_rows_for(n_neighbors: int, n_pairs: int) -> int:
    """Number of rows to evaluate for about `n_pairs` pairs."""
    return max(LEAST_ROWS, n_pairs // n_neighbors)


def _weights_of(held_out: list[HeldOut], bank: NeighborBank, unseen: Unseen) -> Tensor | None:
    """Weights of the rows of all networks, with a mean of 1; None: all 1."""
    if isinstance(unseen, ValidationRows):
        return held_out[0].sample_weight
    rows = np.concatenate([part.rows for part in held_out])
    return sample_weight_of(bank.neighbors.log_prior, rows)


# -- the share of a trend ----------------------------------------------------------------------


@dataclass(frozen=True)
class Blend:
    """The numbers of an `Offset` that suit most tables, one of which is chosen by rows.

    The number is the most probable one, given these rows, if it has a normal distribution
    beforehand.
    """

    name: str  # of the number that is chosen
    deviation: float  # the standard deviation of this distribution
    share: float
    kept: float
    #: Whether the networks have learned what the trend leaves. Its share then fades far from the
    #: bank, and rows of the bank choose the number where there are no validation rows.
    is_learned: bool = False

    @property
    def prior(self) -> float:
        """The mean of the distribution before any rows are known."""
        return getattr(self, self.name)


#: Beside networks that adjust their neighbours or predict classes, the share of the trend is
#: chosen; where networks have learned what the trend leaves, how much of the residuals is kept.
SHARE = Blend("share", 0.12, share=0.7, kept=0.2)
KEPT = Blend("kept", 0.25, share=1.0, kept=0.7, is_learned=True)
#: Where these networks are a trend themselves, residuals count beside them alone.
SHARE_IN_TREND = Blend("share", 0.12, share=0.7, kept=0.0)
#: Networks as the trend beside rows that are found among the features: what near rows leave adds
#: nothing to the predictions of most tables.
KEPT_BESIDE_NETWORKS = Blend("kept", 0.05, share=1.0, kept=0.2)
SHARE_OF_NETWORKS = Blend("share", 0.05, share=0.95, kept=0.2)


def fit_share(
    blend: Blend, head: NONAHead | AverageHead, bank: NeighborBank, unseen: Unseen
) -> NeighborBank:
    """Return a bank with the number of least loss on rows that the networks did not train on.

    Without any, rows of the bank choose what is kept of residuals, each predicted without itself.
    """
    if blend.is_learned and bank.n_units >= 2:
        bank = fit_trust_radius(head, bank)
    if isinstance(unseen, list):
        if blend.is_learned and unseen[0].valid is None:
            rows = np.random.RandomState(0).permutation(len(bank))  # some are taken of many
            unseen = [Split(rows, rows)]
        if bank.n_units < 2 or unseen[0].valid is None:
            return bank
    # Learned residuals have to be told by rows that are without the row as well.
    leave_out = "itself" if blend.is_learned and bank.groups is None else "group"
    held_out = predict_held_out(head, bank, unseen, leave_out)
    none, whole = (
        torch.cat([part.predictions_with(**{blend.name: number}) for part in held_out])
        for number in (0.0, 1.0)
    )
    truth = torch.cat([part.truth for part in held_out])
    weights = _weights_of(held_out, bank, unseen)
    # The networks' best epochs were chosen by the same rows, which favours them.
    counts = truth.new_ones(len(truth)) if weights is None else weights
    counts = counts * (counts.sum() / counts.square().sum())  # fewer rows, where weights differ
    one_head = heads_of(head)[0]
    if isinstance(one_head, ClassHead):
        number = _share_by_log_loss(blend, one_head, bank, none, log(whole), truth, counts)
    else:
        number = _number_by_squared_error(blend, whole - none, truth - none, counts)
    return with_numbers(bank, **{blend.name: number})


def fit_trust_radius(head: NONAHead | AverageHead, bank: NeighborBank) -> NeighborBank:
    """Return a bank whose trend is trusted as far as rows are from their nearest neighbour."""
    some = np.random.RandomState(0).permutation(len(bank))[: n_rows_for(len(bank), RADIUS_PAIRS)]
    fading = with_numbers(bank, trust_radius=0.0)  # so that Euclidean distances are computed
    distances = fading.evaluate_rows(head, some).distances()
    return with_numbers(bank, trust_radius=trust_radius_of(distances))


def with_numbers(bank: NeighborBank, **numbers: Any) -> NeighborBank:
    """A bank whose trend has these numbers: see `Offset`."""
    sources = None if bank.sources is None else with_numbers(bank.sources, **numbers)
    return replace(bank, neighbors=bank.neighbors.with_numbers(**numbers), sources=sources)


def _number_by_squared_error(
    blend: Blend, difference: Tensor, lacking: Tensor, counts: Tensor
) -> float:
    """The most probable number, where errors are normal, too, with unknown variances.

    A number of 1 adds the `difference` to the predictions with 0, which lack what is `lacking`,
    both (q, n_outputs). So that few rows are no strong evidence, there is one row more, whose
    squared error is the same for all numbers: the geometric mean of what the usual number leaves
    and of the least that it, 0 or 1 leave.
    """
    numbers = torch.linspace(0, 1, N_NUMBERS, dtype=EXACT)
    total = counts.sum()
    squares, products, rest = (
        (counts @ column / total).cpu()
        for column in (difference.square(), difference * lacking, lacking.square())
    )

    def mean_square(number: Tensor) -> Tensor:
        return (number**2 * squares - 2 * number * products + rest).clamp_min(0.0)

    usual, *extremes = mean_square(numbers.new_tensor([[blend.prior], [0.0], [1.0]]))
    one_more = usual.sqrt() * torch.minimum(usual, torch.minimum(*extremes)).sqrt()
    varying = squares > 0
    errors = total.cpu() * mean_square(numbers[:, None]) + one_more  # (numbers, n_outputs)
    tiny = torch.finfo(errors.dtype).tiny
    relative = errors[:, varying].clamp_min(tiny).log().sum(dim=1)
    evidence = relative * (total.cpu() + 1) / 2
    loss = evidence + ((numbers - blend.prior) / blend.deviation).square() / 2
    return float(numbers[loss.argmin()])


def _share_by_log_loss(
    blend: Blend,
    head: ClassHead,
    bank: NeighborBank,
    votes: Tensor,
    log_of_trend: Tensor,
    truth: Tensor,
    counts: Tensor,
) -> float:
    """The most probable number for classes, whose log loss is a convex function of it."""
    offset = bank.neighbors.offset
    assert offset is not None
    log_loss = LogLoss(head.sizes, reduction="none")

    def loss(share: float) -> float:
        pooled = replace(offset, share=share).pool(votes, log_of_trend)
        of_rows = counts @ log_loss(head.normalized(pooled), truth).mean(dim=1)
        return float(of_rows) + ((share - blend.prior) / blend.deviation) ** 2 / 2

    return float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)


# -- credibility -------------------------------------------------------------------------------


def fit_credibility(
    head: NONAHead | AverageHead,
    bank: NeighborBank,
    unseen: Unseen,
    networks: list[int],
    learned: Tensor,
) -> None:
    """Set how far the heads of some networks may predict from the mean of the targets.

    The rows that these networks did not train on decide together. With fewer than 50 rows, no
    prediction shrinks. `learned`, (n, n_outputs), are the targets of the bank as the networks
    learned them, whose mean takes the rest. Means of training targets that are not adjusted never
    shrink.
    """
    heads = heads_of(head)
    if not networks or (bank.trend is None and not any(one.n_adjusted > 0 for one in heads)):
        return
    if isinstance(unseen, list) and (bank.n_units < 2 or unseen[0].valid is None):
        return
    held_out = predict_held_out(head, bank, unseen)
    if isinstance(unseen, list):
        held_out = [held_out[i] for i in networks]
    truth = torch.cat([part.truth for part in held_out])
    if len(truth) < LEAST_CREDIBILITY_ROWS:
        return
    predictions = torch.cat([part.predictions for part in held_out])
    credibility = credibility_of(predictions, truth, _weights_of(held_out, bank, unseen))
    mean = prior_mean(learned, bank.neighbors.log_prior)
    for i in networks:
        heads[i].credibility = tuple(credibility.tolist())
        heads[i].mean_target = tuple(mean.tolist())


def converged_networks(history: list[dict], has_trend: bool) -> list[int]:
    """Positions of the networks that were trained to the end, and predict more than the mean."""
    last = [epoch for epoch in history if "stopped" in epoch]
    return [
        i
        for i, epoch in enumerate(last)
        if epoch["stopped"] in CONVERGED and (has_trend or "in_vain" not in epoch)
    ]


def credibility_of(
    predictions: Tensor, truth: Tensor, sample_weight: Tensor | None = None
) -> Tensor:
    """Share of predictions that is beyond chance, (n_outputs,), from 0 to 1.

    A regression of the ranks of the truth on those of the predictions, both (q, n_outputs), has a
    slope b with a standard error s, which allows for unequal variances. The credibility is
    ``1 - (3 s / b)^2``, or 0 if that is negative: Stein's positive-part factor (Efron and Morris,
    "Stein's Estimation Rule and Its Competitors", 1973), for three standard errors. Ranks are
    compared, since a few large targets would leave the slope of the numbers to chance. The
    credibility is 1 where all predictions, or all targets, are equal.
    """
    counts = truth.new_ones(len(truth), 1) if sample_weight is None else sample_weight[:, None]
    x = _centered_ranks(predictions, counts)
    y = _centered_ranks(truth, counts)
    squares = (counts * x.square()).sum(dim=0)
    slope = (counts * x * y).sum(dim=0) / squares
    variance = (counts * x * (y - slope * x)).square().sum(dim=0) / squares.square()
    credibility = (1 - CHANCE**2 * variance / slope.square()).clamp_min(0.0)
    differ = (squares > 0) & (y != 0).any(dim=0)
    return torch.where(differ, torch.where(slope > 0, credibility, 0.0), 1.0)


def _centered_ranks(values: Tensor, counts: Tensor) -> Tensor:
    """Ranks of the values (q, c) in their column, minus their mean; equal values share a rank."""
    ranks = torch.from_numpy(rankdata(values.cpu().numpy(), axis=0)).to(values)
    return ranks - (counts * ranks).sum(dim=0) / counts.sum()


def outputs_by_chance(head: NONAHead | AverageHead) -> list[int]:
    """Positions of the outputs that a network predicts as the mean of the targets."""
    return sorted({i for one in heads_of(head) for i, c in enumerate(one.credibility) if c == 0})
