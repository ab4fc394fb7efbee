"""How often the rows behind predictions are named again, by other rows or by other networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit
from sklearn.utils import check_random_state

from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.explanation import Explanation
from .._network.network import NeighborNetwork, embed
from .._training.progress import with_progress
from .._trend.kernel import LeftOut
from .._trend.kernel_trend import mean_weights_for
from .._utils.frames import table
from .._utils.validation import check_fraction, check_integer
from ..embedding import WeightedFeatures
from .architectures import tell_rows_apart
from .explanations import explanation_of
from .queries import encoded_features, evaluate


def stability_table(
    estimator: Any,
    X: Any,
    n_refits: int,
    subsample: float,
    n_neighbors: int,
    random_state: Any,
) -> Any:
    """Table of the heaviest neighbours of queries, and how often each is among them again."""
    check_integer("n_refits", n_refits, 2)
    check_fraction("subsample", subsample)
    fitted, evaluation = evaluate(estimator, X)
    found = explanation_of(fitted, evaluation, X, n_neighbors).of_single_rows()
    if is_refitted(fitted):
        draws = _subsamples(fitted.bank_, n_refits, subsample, random_state)
        _check_enough(draws, n_neighbors, subsample, evaluation)
        others = _refits(fitted, evaluation, encoded_features(fitted, X), draws)
    else:
        others = _networks(fitted, evaluation)
    n_containing, n_named = (np.zeros(len(found.positions), dtype=int) for _ in range(2))
    for rows, other in others:
        n_containing += np.isin(found.positions, rows)
        if other is not None:
            n_named += _are_named(found, n_neighbors, rows, other)
    frequency = np.divide(
        n_named, n_containing, out=np.full(len(n_named), np.nan), where=n_containing > 0
    )
    return table(found.columns() | {"n_refits": n_containing, "selection_frequency": frequency})


def is_refitted(fitted: Any) -> bool:
    """Whether what says which rows are near can be fitted anew without training."""
    return isinstance(fitted.network_.embedding, WeightedFeatures)


def _subsamples(
    bank: NeighborBank, n_refits: int, subsample: float, random_state: Any
) -> list[np.ndarray]:
    """Positions of random rows of a bank, or of the rows of random groups, in random order.

    So it is a matter of chance which of equal rows is the first.
    """
    if bank.inputs is None:
        raise ValueError(
            "neighbor_stability needs the targets of fit, got those of set_neighbor_targets"
        )
    groups = None if bank.groups is None else bank.groups.cpu().numpy()
    n_drawn = int(subsample * bank.n_units)
    if n_drawn < 2:
        units = "rows" if groups is None else "groups"
        raise ValueError(
            f"subsample must leave at least 2 of the {bank.n_units} {units} of the bank, got "
            f"{subsample!r}"
        )
    splitter = ShuffleSplit if groups is None else GroupShuffleSplit
    random = check_random_state(random_state)
    splits = splitter(n_refits, train_size=n_drawn, random_state=random)
    draws = [rows for rows, _ in splits.split(np.arange(len(bank)), groups=groups)]
    return [random.permutation(rows) for rows in draws]


def _check_enough(
    draws: list[np.ndarray], n_neighbors: int, subsample: float, evaluation: Evaluation
) -> None:
    """Refuse a number of neighbours that leaves a refit no choice."""
    fewest = min(map(len, draws)) - (evaluation.exclusion is not None)
    if n_neighbors >= fewest:
        raise ValueError(
            f"n_neighbors must be less than the {fewest} rows from which a refit with "
            f"subsample={subsample!r} chooses, got {n_neighbors}"
        )


def _refits(
    fitted: Any, evaluation: Evaluation, encoded: torch.Tensor, draws: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, Evaluation | None]]:
    """Rows of the bank, and an evaluation that finds neighbours of the queries among them.

    These rows weigh the features. It is None where no feature says then which rows are near.
    """
    bank, head = fitted.bank_, fitted.network_.head
    y = fitted.targets_.encode(bank.targets.cpu()).reshape(len(bank), -1).double().numpy()
    groups, times = (
        None if each is None else each.cpu().numpy()
        for each in (bank.groups, bank.neighbors.times)
    )
    left_out, X = LeftOut(bank.row_weights, groups, times), bank.inputs.numpy()
    parts = ([rows] for rows in draws)  # of one refit each
    for (rows,) in with_progress(parts, len(draws), "refits") if fitted.verbose else parts:
        weights = mean_weights_for(X[rows], y[rows], left_out[rows])
        if not tell_rows_apart(weights, X[rows]):
            yield rows, None
            continue
        some = torch.as_tensor(rows, device=bank.ids.device)
        network = NeighborNetwork(WeightedFeatures(torch.from_numpy(weights)), head)
        network = network.to(some.device).freeze()
        neighbors = replace(
            bank.neighbors[some], embeddings=embed(network, bank.inputs[rows]), offset=None
        )
        exclusion = evaluation.exclusion and evaluation.exclusion.among(some)
        yield rows, Evaluation(head, neighbors, embed(network, encoded), exclusion)


def _networks(fitted: Any, evaluation: Evaluation) -> Iterator[tuple[np.ndarray, Evaluation]]:
    """All rows of the bank, and each network's own evaluation."""
    parts = evaluation.split_by_head
    if len(parts) < 2:
        raise ValueError(
            "neighbor_stability needs similarity='features' or, with a learned space, several "
            "networks (n_estimators) to compare; got one network of "
            f"{type(fitted).__name__}, which would have to be trained anew"
        )
    every = np.arange(len(fitted.bank_))
    for head, query, z in parts:
        neighbors = replace(evaluation.neighbors, embeddings=z, offset=None)
        yield every, Evaluation(head, neighbors, query, evaluation.exclusion)


def _are_named(found: Explanation, k: int, rows: np.ndarray, other: Evaluation) -> np.ndarray:
    """Whether another evaluation of some rows has each line's among its k heaviest, bool (m,)."""
    weights, places = (each.cpu().numpy() for each in other.heaviest(k)[:2])
    named = np.where(weights > 0, rows[places], -1)
    return (named[found.of_query] == found.positions[:, None]).any(axis=1)
