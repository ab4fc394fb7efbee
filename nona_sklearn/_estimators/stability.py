"""Stability of neighbours over refits to random rows, or over the networks of an average."""

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
from .._network.network import NeighborNetwork, embed
from .._training.progress import with_progress
from .._trend.kernel_trend import LeftOut, weigh_features
from .._utils.arrays import table
from .._utils.validation import check_fraction, check_integer
from ..embedding import WeightedFeatures
from .queries import encoded_features, evaluate, explanation_of
from .trends import tell_rows_apart


def stability_table(
    estimator: Any,
    X: Any,
    n_refits: int,
    subsample: float,
    n_neighbors: int,
    random_state: Any,
) -> Any:
    """Return the table of `neighbor_stability`."""
    check_integer("n_refits", n_refits, 2)
    check_fraction("subsample", subsample)
    fitted, evaluation = evaluate(estimator, X)
    explanation = explanation_of(fitted, evaluation, X, n_neighbors).of_single_rows()
    if is_refitted(fitted):
        draws = _subsamples(fitted.bank_, n_refits, subsample, random_state)
        n_rows = min(map(len, draws)) - (evaluation.exclusion is not None)
        if n_neighbors >= n_rows:
            raise ValueError(
                f"n_neighbors must be less than the {n_rows} rows from which a refit with "
                f"subsample={subsample!r} chooses, got {n_neighbors}"
            )
        trials = _refits(fitted, evaluation, encoded_features(fitted, X), draws)
    else:
        trials = _networks(fitted, evaluation)
    n_containing = np.zeros(len(explanation.positions), dtype=int)
    n_named = n_containing.copy()
    for rows, trial in trials:
        n_containing += np.isin(explanation.positions, rows)
        if trial is not None:
            weights, columns = (t.cpu().numpy() for t in trial.heaviest(n_neighbors)[:2])
            named = np.where(weights > 0, rows[columns], -1)[explanation.of_query]
            n_named += (named == explanation.positions[:, None]).any(axis=1)
    unknown = np.full(len(n_named), np.nan)
    frequency = np.divide(n_named, n_containing, out=unknown, where=n_containing > 0)
    counts = {"n_refits": n_containing, "selection_frequency": frequency}
    return table(explanation.columns() | counts)


def is_refitted(fitted: Any) -> bool:
    """Return whether feature weights, rather than trained networks, determine the neighbours."""
    return isinstance(fitted.network_.embedding, WeightedFeatures)


def _subsamples(
    bank: NeighborBank, n_refits: int, subsample: float, random_state: Any
) -> list[np.ndarray]:
    """Return positions of random rows of a bank, or of the rows of random groups.

    The order is random, so that equally near rows have equal chances.
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


def _refits(
    fitted: Any, evaluation: Evaluation, encoded: torch.Tensor, draws: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, Evaluation | None]]:
    """Yield the rows of a refit, and the evaluation of queries on a bank of these rows.

    The rows weight the features. The evaluation is None if the weights tell no rows apart.
    """
    bank, head = fitted.bank_, fitted.network_.head
    y = fitted.targets_.encode(bank.targets.cpu()).reshape(len(bank), -1).double().numpy()
    groups = None if bank.groups is None else bank.groups.cpu().numpy()
    times = None if bank.neighbors.times is None else bank.neighbors.times.cpu().numpy()
    left_out, X = LeftOut(bank.row_weights, groups, times), bank.inputs.numpy()
    parts = ([rows] for rows in draws)  # one list per refit
    for (rows,) in with_progress(parts, len(draws), "refits") if fitted.verbose else parts:
        weights = weigh_features(X[rows], y[rows], left_out[rows]).mean_weights
        assert weights is not None
        if not tell_rows_apart(weights, X[rows]):
            yield rows, None
            continue
        positions = torch.as_tensor(rows, device=bank.ids.device)
        network = NeighborNetwork(WeightedFeatures(torch.from_numpy(weights)), head)
        network = network.to(positions.device).freeze()
        embeddings = embed(network, bank.inputs[rows])
        neighbors = replace(bank.neighbors[positions], embeddings=embeddings, offset=None)
        exclusion = evaluation.exclusion and evaluation.exclusion.among(positions)
        yield rows, Evaluation(head, neighbors, embed(network, encoded), exclusion)


def _networks(fitted: Any, evaluation: Evaluation) -> Iterator[tuple[np.ndarray, Evaluation]]:
    """Yield all positions of the bank, and the evaluation of queries by a single network."""
    networks = evaluation.split_by_head
    if len(networks) < 2:
        raise ValueError(
            "neighbor_stability needs similarity='features' or, with a learned space, several "
            "networks (n_estimators) to compare; got one network of "
            f"{type(fitted).__name__}, which would have to be trained anew"
        )
    for head, query, embeddings in networks:
        neighbors = replace(evaluation.neighbors, embeddings=embeddings, offset=None)
        alone = Evaluation(head, neighbors, query, evaluation.exclusion)
        yield np.arange(len(neighbors)), alone
