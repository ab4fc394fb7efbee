"""How much predictions depend on each column of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.table_encoder import TableEncoder
from .._data.tables import exchange_column
from .._data.training_data import TrainingData
from .._inference.evaluation import Evaluation
from .fitting import embed

#: Predictions in all, and least rows for a column: of more rows, the order hardly changes.
N_PREDICTIONS, LEAST_ROWS = 1024, 64
MOST_PREDICTIONS = 2**14


def measure_importances(estimator: Any, data: TrainingData) -> None:
    """Set ``feature_importances_`` of an estimator that was just fitted to a table."""
    vars(estimator).pop("feature_importances_", None)  # of an earlier fit
    if not isinstance(getattr(estimator, "features_", None), TableEncoder):
        return
    changes = _changes(estimator, data)
    estimator.feature_importances_ = changes / (changes.sum() or 1.0)


def _changes(estimator: Any, data: TrainingData) -> np.ndarray:
    """Mean squared change of predictions when a column is permuted, (n_features,)."""
    X: Any = data.sample.X
    bank, head = estimator.bank_, estimator.network_.head
    own, places = bank.evaluate(head).without_isolated(np.arange(len(bank)))
    n_columns, random = estimator.n_features_in_, np.random.RandomState(0)
    if not len(own):  # no row is earlier than another
        return np.zeros(n_columns)
    n_rows = max(N_PREDICTIONS // n_columns, min(LEAST_ROWS, MOST_PREDICTIONS // n_columns), 1)
    rows = random.permutation(len(places))[:n_rows]
    chosen, exclusion = places[rows], own[rows].exclusion
    encoded = X[torch.as_tensor(chosen)]
    source = torch.as_tensor(estimator.features_.source_)
    unit = estimator.targets_.unit.to(bank.embeddings.device)
    unit = torch.where(unit > 0, unit, torch.inf)  # a constant output does not change

    def predict(column: int, order: np.ndarray) -> Tensor:
        """Predictions with a column in another order."""
        permuted, those = encoded.clone(), source == column
        permuted[:, those] = encoded[order][:, those]
        inputs: Any = permuted
        if bank.trend is not None and bank.trend.takes_table:
            inputs = exchange_column(data.table, chosen, column, chosen[order])
        z, offset = embed(estimator.network_, permuted), bank.trend_at(chosen, inputs)
        return Evaluation(head, bank.neighbors, z, exclusion, offset=offset).mean() / unit

    before, changes = predict(0, np.arange(len(rows))), np.zeros(n_columns)
    for column in range(n_columns):
        after = predict(column, random.permutation(len(rows)))
        changes[column] = float((after - before).square().mean())
    return changes
