"""Refinement after training, for values that depend on the whole bank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from .._inference.evaluation import Evaluation
from .._utils.precision import exact
from ..attention.head import ClassHead, NONAHead, prior_mean
from ..losses import NEGLIGIBLE_LOSS

if TYPE_CHECKING:
    from .._data.sample import Sample
    from .._network.network import NeighborNetwork
    from .loop import TrainingConfig
    from .net import DatasetPool

REFINE_ENTRIES = 2**24  # query-neighbour pairs per candidate
ALONE_ENTRIES = 2**22  # the same for training rows as queries; few parameters need few pairs
LEAST_EVALUATED = 256  # queries, however many neighbours there are

#: Share of the best loss by which the loss of fewer neighbours may be higher, if one standard
#: error is less. On few validation rows, a standard error is too small as a tolerance.
TOLERANCE, TOLERANCE_OF_CLASSES = 0.05, 0.02
N_PARTS = 50  # parts of the rows, whose losses give the standard error
ROUNDING = 1e-12  # loss of equal targets, in units of the targets


def refine_on_bank(
    network: NeighborNetwork,
    pool: DatasetPool,
    train: Sample,
    valid: Sample | None,
    loss: nn.Module,
    config: TrainingConfig,
) -> float:
    """Refine the head, and return the validation loss relative to that of the mean target.

    Validation rows or, with `refine_on_training`, left-out training rows refine the head. The
    returned loss is 1 without validation rows.
    """
    head, candidates = network.head, config.n_neighbors
    assert isinstance(head, NONAHead)  # networks are not averaged yet
    by_training = config.refine_on_training and (len(train) > pool.size or len(candidates) > 0)
    refines = valid is not None or by_training
    if not (head.n_adjusted or refines):
        return 1.0
    some = slice(config.n_sources)
    evaluation, rows = evaluate_on_bank(network, pool, train, valid, some, pool.generator)
    if head.n_adjusted:
        head.fit_trust_radius(evaluation.distances())
    truth = rows.residuals, *rows.weights
    if refines:
        refine(evaluation, loss, *truth, n_neighbors=candidates, balanced=config.balanced)
    if valid is None:
        return 1.0
    mean = prior_mean(train.y.reshape(len(train), -1), train.log_prior).expand(len(rows), -1)
    of_mean = replace(rows, y=mean.reshape(rows.y.shape)).residuals
    return loss_relative_to_mean(evaluation, loss, of_mean, *truth)


def evaluate_on_bank(
    network: NeighborNetwork,
    pool: DatasetPool,
    train: Sample,
    valid: Sample | None,
    some: slice,
    generator: Generator,
) -> tuple[Evaluation, Sample]:
    """Return the evaluation of validation rows, or left-out training rows, on some training rows.

    The evaluated rows are returned as well. They are the first of the validation rows, which must
    be shuffled, or a random part of the training rows.
    """
    neighbors = pool.as_neighbors(network.embed(pool.X[some]), some)
    n_queries = how_many(len(neighbors), held_out=valid is not None)
    if valid is not None:
        valid = valid[:n_queries]
        exclusion = pool.excluded_in_validation(valid, some)
        return Evaluation(network.head, neighbors, network.embed(valid.X), exclusion), valid
    rows = torch.randperm(len(train), generator=generator)[:n_queries].to(pool.labels.device)
    itself = pool.excluded_in_training(rows, some)
    return Evaluation(network.head, neighbors, network.embed(pool.X[rows]), itself), train[rows]


def how_many(n_neighbors: int, held_out: bool) -> int:
    """Return the number of rows to evaluate, held out or in the bank."""
    return max(LEAST_EVALUATED, (REFINE_ENTRIES if held_out else ALONE_ENTRIES) // n_neighbors)


def refine(
    evaluation: Evaluation,
    loss: nn.Module,
    values: Tensor,
    *weights: Tensor,
    n_neighbors: Sequence[int] = (),
    balanced: bool = False,
) -> None:
    """Refine the head of an evaluation on all training rows, by the loss on rows with true values.

    The ascending candidates `n_neighbors` are compared first; the remaining refinements use the
    chosen number. `weights` are further arguments of the loss. If outputs are `balanced`, the
    errors of an output are divided by the errors before, since a geometric mean over the few rows
    of a part would be too small by chance.
    """
    head, bank = evaluation.head, evaluation.neighbors
    assert isinstance(head, NONAHead)  # networks are not averaged yet
    values = exact(values)
    unit: Tensor | float = 1.0
    if balanced:
        squares = (evaluation.mean() - values).square()
        if weights:
            squares = squares * weights[0][:, None]
        unit = (squares.mean(dim=0) + NEGLIGIBLE_LOSS).sqrt()  # also for exact outputs
    truth = values / unit, *weights
    candidates = [k for k in n_neighbors if k <= len(bank)]
    if candidates:
        head.n_neighbors = candidates[-1]  # so that the first search finds enough neighbours
    if head.shrinks:
        head.fit_mean_residual(bank.columns, bank.embeddings, bank.log_prior)
    parts = torch.arange(len(values), device=values.device).tensor_split(N_PARTS)

    def loss_of(means: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        return loss(means[rows] / unit, *(numbers[rows] for numbers in truth))

    def losses_of_parts(means: Tensor) -> Tensor:
        return torch.stack([loss_of(means, rows) for rows in parts if len(rows)])

    if candidates:
        fit_n_neighbors(head, candidates, evaluation.weigh, loss_of, losses_of_parts)
    with torch.no_grad():
        for set_to, values_to_try in head.refinements():
            refine_one(set_to, values_to_try, evaluation.mean, loss_of)


def refine_one(
    set_to: Callable[[Any], object],
    values: Sequence[Any] | Tensor,
    predict: Callable[[], Tensor],
    loss: Callable[[Tensor], Tensor],
) -> Any:
    """Set the value among candidates with which predictions have the lowest loss; return it."""
    losses = []
    for value in values:
        set_to(value)
        losses.append(loss(predict()))
    best = values[int(torch.stack(losses).argmin())]
    set_to(best)
    return best


@torch.no_grad()
def fit_n_neighbors(
    head: NONAHead,
    candidates: list[int],
    weigh: Callable[[], Callable[[], Tensor]],
    loss: Callable[[Tensor], Tensor],
    losses_of_parts: Callable[[Tensor], Tensor],
) -> None:
    """Set the smallest number of neighbours whose loss is within tolerance of the best.

    The tolerance is one standard error or, if greater, a small share of the best loss. The noise
    parameter is refined for every number. `weigh` is :meth:`Evaluation.weigh`; `loss` returns the
    loss of predictions, and `losses_of_parts` the losses of parts of the rows, (p,).
    """
    noise_refinements = list(head.noise_refinements())
    losses_by_number, noise = [], []
    for head.n_neighbors in candidates:
        mean = weigh()  # the noise does not change weights
        noise.append(
            [refine_one(set_to, tried, mean, loss) for set_to, tried in noise_refinements]
        )
        losses_by_number.append(losses_of_parts(mean()))
    losses = torch.stack(losses_by_number)  # (n_candidates, n_parts)
    excess = losses - losses[losses.mean(dim=1).argmin()]
    standard_error = excess.std(dim=1, correction=0) / math.sqrt(losses.shape[1])
    tolerance = TOLERANCE_OF_CLASSES if isinstance(head, ClassHead) else TOLERANCE
    allowed = standard_error.clamp_min(tolerance * losses.mean(dim=1).min())
    chosen = int((excess.mean(dim=1) <= allowed).int().argmax())
    head.n_neighbors = candidates[chosen]
    for (set_to, _), value in zip(noise_refinements, noise[chosen], strict=True):
        set_to(value)


def loss_relative_to_mean(
    evaluation: Evaluation, loss: nn.Module, mean: Tensor, values: Tensor, *weights: Tensor
) -> float:
    """Return a loss on rows with true values, relative to the loss of the mean training target.

    Return 1 if all targets are equal.
    """
    predictions = evaluation.mean()
    truth = values.to(predictions), *weights
    loss_of_mean = loss(mean.to(predictions), *truth)
    return float(loss(predictions, *truth) / loss_of_mean) if loss_of_mean > ROUNDING else 1.0
