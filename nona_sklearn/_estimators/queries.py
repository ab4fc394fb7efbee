"""Queries of a fitted estimator: validated, embedded, and evaluated on its bank.

Each function reads a snapshot of the estimator: another thread may edit the bank, or end a fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import Tensor

from .._data.names import Names, in_order_of, labels_of, warn_of_other_order
from .._data.rows import Rows
from .._data.sample import Embedded, TableRows
from .._data.source import Source, TableSource
from .._data.tables import labels_of_fit, stack_rows
from .._data.times import read_new_times, read_query_times
from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.explanation import Explanation
from .._training.progress import with_progress
from .._utils.snapshots import snapshot
from .._utils.validation import check_n_neighbors, is_whole
from .fitting import embed_queries
from .stored_rows import stored_rows, warn_of_stored_rows

N_NEIGHBORS = 5  # of scikit-learn's, by default


def fitted_snapshot(estimator: Any) -> Any:
    """A snapshot of an estimator that must be fitted."""
    check_is_fitted(estimator)
    return snapshot(estimator)


def input_blocks(fitted: Any, X: Any) -> Iterator[tuple[Any, Tensor | Rows]]:
    """Validate queries: blocks of them as they are given, and as the network takes them."""
    return _fitted_input(fitted).blocks(X)


def _fitted_input(fitted: Any) -> Source:
    """The form of input that was fitted, whatever `feature_extractor` has been set to since."""
    if hasattr(fitted, "features_"):
        return TableSource.of_fitted(fitted)
    if fitted.feature_extractor is None:  # with its collate_fn
        raise ValueError(
            "feature_extractor must not be None for queries of an estimator fitted with one: fit "
            "it anew, got None"
        )
    return fitted._architecture().input()


def embedded(fitted: Any, X: Any) -> Embedded:
    """Validate and embed queries, unless they are embedded by this network."""
    if not isinstance(X, Embedded):
        return _join([embed_queries(fitted, *block) for block in input_blocks(fitted, X)])
    if X.network is not fitted.network_:
        raise ValueError("X must be embedded by this estimator as it is fitted now")
    return X


def encoded_features(fitted: Any, X: Any) -> Tensor:
    """Encoded features of queries, or of the bank's rows with ``X=None``, for a trend of them."""
    inputs = TableRows(fitted.bank_.inputs) if X is None else embedded(fitted, X).inputs
    assert inputs is not None
    return inputs.encoded


def _join(blocks: list[Embedded]) -> Embedded:
    """Join blocks of queries that have nothing but embeddings and inputs."""
    first, inputs = blocks[0], [block.inputs for block in blocks if block.inputs is not None]
    if len(blocks) == 1:
        return first
    return replace(
        first,
        embeddings=torch.cat([block.embeddings for block in blocks]),
        inputs=_join_rows(inputs) if inputs else None,
    )


def _join_rows(blocks: list[TableRows]) -> TableRows:
    given = [rows.given for rows in blocks if rows.given is not None]
    encoded = torch.cat([rows.encoded for rows in blocks])
    return TableRows(encoded, stack_rows(*given) if given else None)


def levels_of(fitted: Any, X: Any) -> np.ndarray | None:
    """Which level of each category rows have, (n, n_categories); None if that is not known."""
    return None if isinstance(X, Embedded) else _fitted_input(fitted).levels(X)


def query_blocks(fitted: Any, X: Any, with_added: bool) -> Iterator[Embedded]:
    """Validate and embed queries, in blocks, with their times and what unknown levels add, if any.

    `with_added` is for distributions alone: levels are read for it. Classes need it always.
    """
    times, added, start = None, None, 0
    for given, encoded in input_blocks(fitted, X):
        if start == 0:  # X is valid
            times = times_of(fitted, X)
            added = added_by_unknown(fitted, X) if with_added or is_classifier(fitted) else None
        rows = slice(start, start + len(encoded))
        yield replace(
            embed_queries(fitted, given, encoded),
            times=None if times is None else times[rows],
            added=None if added is None else added[rows],
        )
        start = rows.stop


def times_of(fitted: Any, X: Any) -> Tensor | None:
    """Times of queries, (n_queries,), if a column has them: only earlier rows are neighbours."""
    if isinstance(X, Embedded):
        return X.times
    time = fitted.bank_.time
    if time is None or time.column is None:
        return None
    times = read_query_times(time, X, labels_of_fit(fitted) or ())
    return torch.from_numpy(times).to(fitted.bank_.embeddings.device)


def added_by_unknown(fitted: Any, X: Any) -> Tensor | None:
    """What unknown levels add to distributions or probabilities, (n_queries, n_outputs), if any.

    Queries are valid.
    """
    if isinstance(X, Embedded):
        return X.added
    learned = fitted.bank_.unknown_levels
    unknown = None if learned is None else _fitted_input(fitted).unknown_levels(X)
    if learned is None or unknown is None or not unknown.any():
        return None
    return learned.added(torch.from_numpy(unknown)).to(fitted.bank_.embeddings.device)


def times_given(fitted: Any, X: Any, times: Any, n_rows: int) -> Tensor | None:
    """Times of rows, given or from their column; an error unless they are as in fit.

    Raises
    ------
    ValueError
        If they lack or are given otherwise than in fit.
    """
    time = fitted.bank_.time
    if time is None:
        if times is not None:
            raise ValueError("times need an estimator that was fitted with times")
        return None
    if time.column is not None:
        if times is not None and not (isinstance(times, str) and times == time.column):
            raise ValueError(
                f"times must be {time.column!r} or None, the column that was named in fit, got "
                f"{times!r:.100}"
            )
        return times_of(fitted, X)
    if times is None:
        raise ValueError("times must be given, as they were in fit, got None")
    found = torch.from_numpy(read_new_times(time, times, n_rows))
    return found.to(fitted.bank_.embeddings.device)


def evaluate(estimator: Any, X: Any, *, with_added: bool = False) -> tuple[Any, Evaluation]:
    """Evaluate queries on the bank; None: the bank's own rows, each without itself.

    What else a result depends on is to be read from the snapshot that comes with it. Distributions
    need what unknown levels add, too, as probabilities always do.
    """
    fitted = fitted_snapshot(estimator)
    bank, head = fitted.bank_, fitted.network_.head
    ids = X.ids if isinstance(X, Embedded) else None
    if (X is None or ids is not None) and len(bank) < 2:
        raise ValueError("X=None needs at least 2 rows in the bank, it has 1")
    queries = None if X is None else embedded(fitted, X)
    if ids is not None:
        rows = bank.positions(ids.cpu().numpy())
        return fitted, bank.evaluate_rows(head, rows, leave_out="itself")
    if queries is None:
        return fitted, bank.evaluate(head)
    added = added_by_unknown(fitted, X) if with_added or is_classifier(fitted) else None
    queries = replace(queries, times=times_of(fitted, X), added=added)
    return fitted, bank.evaluate(head, queries)


def evaluate_in_blocks(
    estimator: Any, X: Any, *, with_added: bool = False
) -> tuple[Any, Iterator[Evaluation]]:
    """Evaluate some queries at a time, so that memory does not grow with their number."""
    if X is None or isinstance(X, Embedded):
        fitted, evaluation = evaluate(estimator, X, with_added=with_added)
        return fitted, iter([evaluation])
    fitted = fitted_snapshot(estimator)
    bank, head = fitted.bank_, fitted.network_.head
    evaluations = (bank.evaluate(head, queries) for queries in query_blocks(fitted, X, with_added))
    return fitted, _with_progress(evaluations, X, fitted.verbose)


def _with_progress(
    evaluations: Iterator[Evaluation], X: Any, verbose: int
) -> Iterator[Evaluation]:
    """Show how many queries are done, of more than one block, if `verbose` is above 0."""
    first = next(evaluations)  # X is valid
    n_queries = _num_samples(X)
    evaluations, shown = chain([first], evaluations), verbose and len(first) < n_queries
    return with_progress(evaluations, n_queries, "predictions") if shown else evaluations


def heaviest(estimator: Any, X: Any, k: int) -> tuple[NeighborBank, np.ndarray, np.ndarray]:
    """Weights and positions (n_queries, k) of the heaviest neighbours in the bank.

    The position is -1 where fewer than k rows are earlier than the query.
    """
    bank, evaluation = _evaluate_for(estimator, X, k)
    weights, positions, _ = evaluation.with_nearest(k).heaviest(k)
    positions = evaluation.only_earlier(positions)
    return bank, weights.cpu().numpy(), positions.cpu().numpy()


def nearest(estimator: Any, X: Any, k: int | None) -> tuple[NeighborBank, np.ndarray, np.ndarray]:
    """Distances and positions (n_queries, k) of the nearest neighbours in the bank.

    The position is -1 where fewer than k rows are earlier than the query.
    """
    k = number_of_neighbors(estimator, k)
    bank, evaluation = _evaluate_for(estimator, X, k)
    distances, positions = evaluation.nearest(k)
    return bank, distances.cpu().numpy(), positions.cpu().numpy()


def number_of_neighbors(estimator: Any, k: int | None) -> int:
    """The number that is requested; None: that of the estimator, or 5 if that is no number."""
    if k is not None:
        return k
    return estimator.n_neighbors if is_whole(estimator.n_neighbors, 1) else N_NEIGHBORS


def _evaluate_for(estimator: Any, X: Any, k: int) -> tuple[NeighborBank, Evaluation]:
    """Evaluate queries, each of which can have `k` neighbours."""
    fitted, evaluation = evaluate(estimator, X)
    check_n_neighbors(k, len(fitted.bank_) - (X is None))
    return fitted.bank_, evaluation


def labels_at(bank: NeighborBank, positions: np.ndarray, names: bool) -> np.ndarray:
    """Ids of rows, or their names; -1 or None at a position of -1."""
    found = bank.names_of(positions) if names else bank.ids.cpu().numpy()[positions]
    if (missing := positions < 0).any():
        found = found.astype(object) if names else found
        found[missing] = None if names else -1
    return found


def explanation(estimator: Any, X: Any, n_neighbors: int | None = None) -> Explanation:
    """What predictions consist of: `n_neighbors` rows each, or all that have weight.

    Warns of queries that are rows of the bank.
    """
    fitted, evaluation = evaluate(estimator, X)
    found = explanation_of(fitted, evaluation, X, n_neighbors)
    if X is None or (isinstance(X, Embedded) and X.ids is not None):
        return found
    labels = labels_of(X)
    found = replace(found, own_rows=stored_rows(fitted, evaluation, found, labels))
    warn_of_stored_rows(fitted, found, labels)
    return found


def explanation_of(
    fitted: Any, evaluation: Evaluation, X: Any, n_neighbors: int | None
) -> Explanation:
    """What the predictions of an evaluation of queries `X` consist of."""
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


def known(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple:
    """What a score is of: with times, of those queries that rows of the bank are earlier than."""
    fitted = fitted_snapshot(estimator)
    bank, network = fitted.bank_, fitted.network_
    rows = Names(bank.names) if X is None else X
    warn_of_other_order(4, X=rows, y=y, sample_weight=sample_weight)
    y = in_order_of(bank.target_names, y)
    times = None if X is None or bank.time is None else times_of(fitted, X)
    if bank.time is None or (X is not None and times is None):
        return X, y, sample_weight
    if X is None:
        queries = Embedded(bank.embeddings, network, ids=bank.ids)
    else:
        queries = replace(embedded(fitted, X), times=times, added=added_by_unknown(fitted, X))
    check_consistent_length(queries, y, sample_weight)
    evaluation = bank.evaluate(network.head, None if X is None else queries)
    _, rows = evaluation.without_isolated(np.arange(len(queries)))
    if len(rows) == 0:
        raise ValueError("score needs queries that a row of the bank is earlier than, got none")
    weight = None if sample_weight is None else _safe_indexing(sample_weight, rows)
    return queries[rows], _safe_indexing(y, rows), weight
