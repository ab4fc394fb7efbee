"""Permutation importances of the columns of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.sample import TableRows
from .._data.table_encoder import TableEncoder
from .._data.tables import gather_cells
from .._data.training_data import TrainingData
from .._inference.evaluation import Evaluation
from .._network.network import embed
from .._utils.arrays import spans
from .._utils.random import plain_torch
from .queries import fitted_snapshot

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
    unit = estimator.targets_.unit.to(bank.embeddings.device)
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
        moved = Evaluation(head, bank.neighbors, z, exclusion, offset=offset)
        return (moved.mean() / unit).unflatten(0, orders.shape)

    before = predict(np.zeros(1, int), np.arange(len(rows))[None])
    orders = np.array([random.permutation(len(rows)) for _ in range(n_columns)])
    for columns in spans(n_columns, max(1, MAX_ENTRIES // encoded.numel())):
        after = predict(np.arange(n_columns)[columns], orders[columns])
        changes[columns] = (after - before).square().flatten(1).mean(dim=1).cpu().numpy()
    return changes / (changes.sum() or 1.0)
