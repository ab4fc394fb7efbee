"""Importances of columns, and stability of neighbours over refits or over networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit
from sklearn.utils import check_random_state
from torch import Tensor

from .._data.sample import TableRows
from .._data.table_encoder import TableEncoder
from .._inference.evaluation import Evaluation
from .._network.network import NeighborNetwork, embed
from .._training.progress import with_progress
from .._trend.kernel_trend import LeftOut, tell_rows_apart, weigh_features
from .._utils.precision import exact
from .._utils.random import plain_torch
from .._utils.tables import gather_cells
from .._utils.validation import check_fraction, check_integer, spans, table
from ..embedding import WeightedFeatures
from .queries import encoded_features, evaluate, explanation_of, fitted_snapshot

if TYPE_CHECKING:
    from .._data.training_data import TrainingData
    from .._inference.bank import NeighborBank

NAME = "feature_importances_"
N_PREDICTIONS = 1024  # in all, unless a column would get fewer than MIN_ROWS
MIN_ROWS = 64  # of a column: with more rows, the order hardly changes
MAX_PREDICTIONS = 2**14
MAX_ENTRIES = 2**22  # permuted at a time


class FeatureImportances:
    """The attribute `feature_importances_`, measured when it is read for the first time.

    If the bank does not keep the rows, fit sets the attribute on the estimator instead.
    """

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self
        fitted = fitted_snapshot(estimator)
        bank, of_bank = fitted.bank_, vars(fitted.bank_)
        if not _has_table(fitted):
            raise AttributeError(
                f"{NAME} are of the columns of a table: a wide sparse X and the rows of a "
                "feature_extractor have none"
            )
        if bank.inputs is None:
            raise AttributeError(
                f"{NAME} are measured with a trend, and this estimator has lost it by "
                "set_neighbor_targets, or is of a version that measured none"
            )
        if NAME not in of_bank:  # the bank is new
            with plain_torch():
                of_bank[NAME] = permutation_importances(fitted, bank.inputs)
        return of_bank[NAME].copy()


def measure_in_fit(estimator: Any, data: TrainingData) -> None:
    """Set `feature_importances_` of an estimator whose bank keeps no rows for its trend."""
    vars(estimator).pop(NAME, None)  # of an earlier fit
    bank = estimator.bank_
    lacks_rows = bank.inputs is None or bank.trend.takes_table
    if lacks_rows and _has_table(estimator):
        assert isinstance(data.sample.X, Tensor)
        vars(estimator)[NAME] = permutation_importances(estimator, data.sample.X, data.table)


def _has_table(estimator: Any) -> bool:
    """Return whether the estimator was fitted to the columns of a table."""
    return isinstance(getattr(estimator, "features_", None), TableEncoder)


def permutation_importances(estimator: Any, X: Tensor, table: Any = None) -> np.ndarray:
    """Return shares of the squared changes of predictions by permuted columns, (n_features,).

    `X` holds the bank's encoded rows, (n, n_encoded), and `table` the rows as given.
    """
    bank, head = estimator.bank_, estimator.network_.head
    evaluation, positions = bank.evaluate(head).without_isolated(np.arange(len(bank)))
    n_columns, random = estimator.n_features_in_, np.random.RandomState(0)
    changes = np.zeros(n_columns)
    if not len(evaluation):  # all times are equal
        return changes
    n_rows = max(N_PREDICTIONS // n_columns, min(MIN_ROWS, MAX_PREDICTIONS // n_columns), 1)
    queries = random.permutation(len(positions))[:n_rows]
    rows = positions[queries]
    encoded, source = X[torch.as_tensor(rows)], torch.as_tensor(estimator.features_.source_)
    unit = estimator.targets_.unit.to(bank.device)
    unit = torch.where(unit > 0, unit, torch.inf)  # a constant output does not change

    def predict(columns: np.ndarray, orders: np.ndarray) -> Tensor:
        """Predict with every column in its order, (n, n_rows) or (n, n_rows, c)."""
        n = len(columns)
        is_moved = torch.as_tensor(columns)[:, None, None] == source
        permuted = torch.where(is_moved, encoded[torch.as_tensor(orders)], encoded).flatten(0, 1)
        given = None
        if bank.trend is not None and bank.trend.takes_table:
            cells = np.tile(rows[:, None], (n, 1, n_columns))
            cells[np.arange(n), :, columns] = rows[orders]
            given = gather_cells(table, cells.reshape(-1, n_columns))
        offset = bank.trend_at(np.tile(rows, n), TableRows(permuted, given))
        z = embed(estimator.network_, permuted)
        exclusion = evaluation.exclusion[np.tile(queries, n)]
        moved = Evaluation(head, bank.neighbors, z, exclusion, query_trend=offset)
        return (moved.mean() / unit).unflatten(0, orders.shape)

    before = predict(np.zeros(1, int), np.arange(len(rows))[None])
    orders = np.array([random.permutation(len(rows)) for _ in range(n_columns)])
    for columns in spans(n_columns, max(1, MAX_ENTRIES // encoded.numel())):
        after = predict(np.arange(n_columns)[columns], orders[columns])
        changes[columns] = (after - before).square().flatten(1).mean(dim=1).cpu().numpy()
    return changes / (changes.sum() or 1.0)


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
    # Among the features, their weights determine the neighbours rather than trained networks.
    if isinstance(fitted.network_.embedding, WeightedFeatures):
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
    y = exact(fitted.targets_.encode(bank.targets.cpu()).reshape(len(bank), -1)).numpy()
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
        neighbors = replace(bank.neighbors[positions], rows=embeddings, offset=None)
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
        neighbors = replace(evaluation.neighbors, rows=embeddings, offset=None)
        alone = Evaluation(head, neighbors, query, evaluation.exclusion)
        yield np.arange(len(neighbors)), alone
