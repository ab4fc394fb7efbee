"""Explanations of predictions, as objects and as tables; queries that are rows of the bank."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from numbers import Number
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from .._data.classes import ClassTargets
from .._data.names import labels_of
from .._data.sample import Embedded
from .._data.sparse_encoder import SparseEncoder
from .._inference.evaluation import Evaluation
from .._inference.explanation import Explanation
from .._utils.arrays import table
from .feature_comparison import columns_beside, rows_and_queries
from .queries import evaluate, explanation_of

ROUNDING = 1e-5  # of embeddings in float32, relative to their largest entry
CALLER_OF_EXPLAIN = 3  # the level of the stack


def explain(estimator: Any, X: Any, n_neighbors: int | None = None) -> Explanation:
    """Return the explanation of predictions by `n_neighbors` rows, or by all rows with weight.

    Warn if queries are rows of the bank.
    """
    fitted, evaluation = evaluate(estimator, X)
    explanation = explanation_of(fitted, evaluation, X, n_neighbors)
    if X is None or (isinstance(X, Embedded) and X.ids is not None):
        return explanation
    labels = labels_of(X)
    positions = _stored_positions(fitted, evaluation, explanation, labels)
    is_stored = np.flatnonzero(positions >= 0)
    if len(is_stored):
        first = int(is_stored[0])
        name = fitted.bank_.names_of(slice(None)).tolist()[positions[first]]
        query, n_more = (
            f"X[{first}]" if labels is None else repr(labels[first]),
            len(is_stored) - 1,
        )
        more = f", and {n_more} further queries are like it" if n_more else ""
        warnings.warn(
            f"{about_stored_row(query, name)}{more}. Without themselves, stored rows are "
            f"predicted by explain(None), and by row={name!r:.100} of a report or display.",
            stacklevel=CALLER_OF_EXPLAIN,
        )
    return replace(explanation, stored_positions=positions)


def explanation_table(fitted: Any, explanation: Explanation, X: Any, features: Any) -> Any:
    """Return the table of an explanation of queries `X`, with the features if they are given."""
    compared = None if features is None else rows_and_queries(fitted.bank_, X, features)
    if compared is not None:
        explanation = explanation.with_queries()
    columns = explanation.columns()
    if is_classifier(fitted):
        columns |= _class_columns(explanation, fitted.targets_)
    else:
        columns |= explanation.target_columns()
    if compared is not None:
        columns |= columns_beside(explanation, *compared, columns)
    return table(columns)


def _class_columns(explanation: Explanation, targets: ClassTargets) -> dict[str, np.ndarray]:
    """Return columns of the neighbours' classes and contributions to the classes, (m,)."""
    outputs = explanation.target_names or range(len(targets.classes))
    columns = {}
    for output, classes, place in zip(outputs, targets.classes, targets.class_slices, strict=True):
        labels = classes[explanation.targets[:, place].argmax(axis=1)].astype(object)
        labels[~explanation.of_rows] = None
        columns[f"target_{output}" if targets.several else "target"] = labels
    names = class_names(outputs, targets.classes) if targets.several else targets.classes[0]
    parts = zip(names, explanation.contributions.T, strict=True)
    return columns | {f"contribution_{name}": column for name, column in parts}


def class_names(outputs: Iterable, classes: Iterable) -> list[str]:
    """Return the names "<output>_<class>" of the classes of all outputs.

    If two names are equal ("a" and "b_x", "a_b" and "x"), all outputs are in quotes.
    """
    pairs = [
        (output, label)
        for output, labels in zip(outputs, classes, strict=True)
        for label in labels
    ]
    names = [f"{output}_{label}" for output, label in pairs]
    if len({*names}) < len(names):
        names = [f"{output!r}_{label}" for output, label in pairs]
    return names


# -- queries that are rows of the bank ---------------------------------------------------------


def about_stored_row(query: str, name: Any) -> str:
    """Return the sentence that tells readers that a query is the stored row `name`."""
    which = "is a stored row" if query == repr(name) else "has the features of the stored row"
    row = "" if query == repr(name) else f" {name!r:.100}"
    return f"{query:.100} {which}{row}, whose own target is part of the prediction"


def _stored_positions(
    fitted: Any, evaluation: Evaluation, explanation: Explanation, labels: np.ndarray | None
) -> np.ndarray:
    """Return the positions of queries in the bank, (q,), and -1 for queries that are new.

    A stored row is behind the prediction and has the query's features and, if any, its name.
    """
    # With an encoding made of targets (:mod:`.cross_fitting`), training rows and queries differ.
    # The row that has the name and the largest weight is then the query.
    bank, lines = fitted.bank_, np.flatnonzero(explanation.of_rows)
    of_query, rows = explanation.of_query[lines], explanation.positions[lines]
    is_query = _are_equal(evaluation, of_query, rows)
    if labels is not None and _may_be_names(labels, bank.names_of(slice(None))):
        names = zip(bank.names_of(rows), labels[of_query], strict=True)
        has_name = np.array([name == label for name, label in names], dtype=bool)
        features = getattr(fitted, "features_", None)
        if isinstance(features, SparseEncoder) or "levels" in getattr(features, "encoders_", ()):
            is_query |= np.isin(lines, explanation.first_lines)  # made of targets
        is_query &= has_name
    positions = np.full(len(evaluation), -1)
    positions[of_query[is_query][::-1]] = rows[is_query][::-1]  # the heaviest is written last
    return positions


def _are_equal(evaluation: Evaluation, of_query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return whether queries and rows of the bank have equal embeddings, bool (m,)."""
    embeddings = evaluation.query, evaluation.neighbors.embeddings
    queries, stored = (evaluation.head.metric_part(z).detach().cpu().numpy() for z in embeddings)
    rounding = ROUNDING * abs(queries).max(axis=1)
    are_equal = np.ones(len(rows), dtype=bool)
    for column in range(queries.shape[1]):  # few pairs are left after two columns
        pairs = np.flatnonzero(are_equal)
        i, j = of_query[pairs], rows[pairs]
        are_equal[pairs] = abs(queries[i, column] - stored[j, column]) <= rounding[i]
    return are_equal


def _may_be_names(labels: np.ndarray, names: np.ndarray) -> bool:
    """Return whether labels may be names of rows: not if only labels or only names are numbers."""
    are_numbers = [isinstance(name, Number) for name in names.tolist()]
    if all(isinstance(label, Number) for label in labels):
        return any(are_numbers)
    return not all(are_numbers)
