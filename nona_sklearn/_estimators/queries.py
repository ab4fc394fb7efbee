"""Queries of a fitted estimator: validated, embedded, and evaluated on its bank.

Each function reads a snapshot of the estimator: another thread may edit the bank, or end a fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._data.embedded import Embedded
from .._data.names import labels_of
from .._data.rows import Rows
from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.explanation import Explanation
from .._utils.snapshots import snapshot
from .._utils.validation import check_n_neighbors
from .fitting import embed_queries
from .inputs import RowsInput, TableInput


def fitted_snapshot(estimator: Any) -> Any:
    """A snapshot of an estimator that must be fitted."""
    check_is_fitted(estimator)
    return snapshot(estimator)


def selectable(estimator: Any, X: Any) -> Any:
    """Give features the form whose rows the estimator selects."""
    return estimator._architecture().input().accept(X, None)[0]


def stored_embeddings(fitted: Any) -> Tensor:
    """Embeddings of the training rows, (n, d), with a bank or with a dense head."""
    stored = fitted.bank_ if hasattr(fitted, "bank_") else fitted.neighbors_
    return stored.embeddings


def input_blocks(fitted: Any, X: Any) -> Iterator[Tensor | Rows]:
    """Validate queries: blocks of the input of the network."""
    return _fitted_input(fitted).blocks(X)


def _fitted_input(fitted: Any) -> TableInput | RowsInput:
    """The form of input that was fitted, whatever `feature_extractor` has been set to since."""
    if hasattr(fitted, "features_"):
        return TableInput(fitted)
    if fitted.feature_extractor is None:  # with its collate_fn
        raise ValueError(
            "feature_extractor must not be None for queries of an estimator fitted with one: fit "
            "it anew, got None"
        )
    return fitted._architecture().input()


def embedded(fitted: Any, X: Any) -> Tensor:
    """Validate and embed queries, (n_queries, d), unless they are embedded by this network."""
    if not isinstance(X, Embedded):
        blocks = input_blocks(fitted, X)
        return torch.cat([embed_queries(fitted.network_, block) for block in blocks])
    if X.network is not fitted.network_:
        raise ValueError("X must be embedded by this estimator as it is fitted now")
    return X.embeddings


def evaluate(estimator: Any, X: Any) -> tuple[Any, Evaluation]:
    """Evaluate queries on the bank; None: the bank's own rows, each without itself.

    What else a result depends on is to be read from the snapshot that comes with it.
    """
    fitted = fitted_snapshot(estimator)
    bank, head = fitted.bank_, fitted.network_.head
    ids = X.ids if isinstance(X, Embedded) else None
    if (X is None or ids is not None) and len(bank) < 2:
        raise ValueError("X=None needs at least 2 rows in the bank, it has 1")
    query = None if X is None else embedded(fitted, X)
    if ids is not None:
        return fitted, bank.evaluate(head)[bank.positions(ids.cpu().numpy())]
    return fitted, bank.evaluate(head, query)


def evaluate_in_blocks(estimator: Any, X: Any) -> tuple[Any, Iterator[Evaluation]]:
    """Evaluate some queries at a time, so that memory does not grow with their number."""
    if X is None or isinstance(X, Embedded):
        fitted, evaluation = evaluate(estimator, X)
        return fitted, iter([evaluation])
    fitted = fitted_snapshot(estimator)
    bank, network = fitted.bank_, fitted.network_
    blocks = input_blocks(fitted, X)
    return fitted, (bank.evaluate(network.head, embed_queries(network, each)) for each in blocks)


def heaviest(estimator: Any, X: Any, k: int) -> tuple[NeighborBank, np.ndarray, np.ndarray]:
    """Weights and positions (n_queries, k) of the heaviest neighbours in the bank."""
    fitted, evaluation = evaluate(estimator, X)
    check_n_neighbors(k, len(fitted.bank_) - (X is None))
    weights, positions, _ = evaluation.with_nearest(k).heaviest(k)
    return fitted.bank_, weights.cpu().numpy(), positions.cpu().numpy()


def explanation(estimator: Any, X: Any, n_neighbors: int | None = None) -> Explanation:
    """What predictions consist of: `n_neighbors` rows each, or all that have weight."""
    fitted, evaluation = evaluate(estimator, X)
    bank = fitted.bank_
    if n_neighbors is not None:
        check_n_neighbors(n_neighbors, len(bank) - (evaluation.exclusion is not None))
    names = bank.names_of(slice(None))
    return Explanation.of(
        evaluation,
        n_neighbors,
        votes=is_classifier(fitted),
        names=names,
        queries=names if X is None else labels_of(X),
        taken=set() if bank.names is None else {*bank.names},
        target_names=bank.target_names,
    )


def own_row(fitted: Any, row: Any) -> Embedded:
    """A row of the bank as a query that is left out of its own neighbours, by its name."""
    bank = fitted.bank_
    names = bank.names_of(slice(None)).tolist()
    found = [i for i, name in enumerate(names) if isinstance(row, Hashable) and name == row]
    if len(found) != 1:
        how_many = f"the name of {len(found)} rows" if found else "which names no row"
        raise ValueError(
            f"row must be the name of one row of the bank, or its id if rows have no names, got "
            f"{row!r:.100}, {how_many}"
        )
    return Embedded(
        bank.embeddings[found], fitted.network_, bank.names_of(np.array(found)), bank.ids[found]
    )


def refuse_targets_alone(X, y):
    """Refuse targets of rows that are not given: those of the bank are known."""
    if X is None and y is not None:
        raise ValueError("y must be None with X=None: the targets of the bank's rows are known")
