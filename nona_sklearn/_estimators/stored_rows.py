"""Queries that are rows of the bank, whose own targets are then part of their predictions."""

from __future__ import annotations

import warnings
from numbers import Number
from typing import Any

import numpy as np

from .._data.sparse_encoder import SparseEncoder
from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.explanation import Explanation

ROUNDING = 1e-5  # of embeddings in float32, relative to their largest entry
CALLER_OF_EXPLAIN = 4  # the level of the stack


def stored_rows(
    fitted: Any, evaluation: Evaluation, found: Explanation, labels: np.ndarray | None
) -> np.ndarray:
    """Positions of the rows of the bank that queries are, (q,); -1: it is none.

    Such a row has the features of the query and, if the query has a name, its name: a row of
    another name is only equal. It is searched among the rows behind the prediction. Training rows
    of which an encoding is made of targets (:mod:`.levels`) differ there from queries: then
    the row that has the name and the largest weight is the query.
    """
    bank, positions = fitted.bank_, np.full(len(evaluation), -1)
    lines = np.flatnonzero(found.of_rows)
    same = _equal(evaluation, bank, found.of_query[lines], found.positions[lines])
    if labels is not None and _are_alike(labels, bank.names_of(slice(None)).tolist()):
        names = bank.names_of(found.positions[lines])
        own = labels[found.of_query[lines]]
        named = np.array([a == b for a, b in zip(names, own, strict=True)], dtype=bool)
        heaviest = np.isin(lines, found.first_lines)
        same = named & (same | heaviest if _is_cross_fitted(fitted) else same)
    lines = lines[same][::-1]  # the heaviest row is written last
    positions[found.of_query[lines]] = found.positions[lines]
    return positions


def _equal(
    evaluation: Evaluation, bank: NeighborBank, of_query: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Whether queries and rows of the bank are at the same place, bool (m,)."""
    parts = map(evaluation.head.metric_part, (evaluation.query, bank.embeddings))
    queries, stored = (z.detach().cpu().numpy() for z in parts)
    bound = ROUNDING * abs(queries).max(axis=1)
    same = np.ones(len(rows), dtype=bool)
    for column in range(queries.shape[1]):  # few pairs are left after the first ones
        left = np.flatnonzero(same)
        i, j = of_query[left], rows[left]
        same[left] = abs(queries[i, column] - stored[j, column]) <= bound[i]
    return same


def _are_alike(labels: np.ndarray, names: list) -> bool:
    """Whether labels of queries may be names of rows: not if only one of them counts rows."""
    own, theirs = ([isinstance(each, Number) for each in some] for some in (labels, names))
    return any(theirs) if all(own) else not all(theirs)


def _is_cross_fitted(fitted: Any) -> bool:
    """Whether an encoding of the features is made of targets."""
    features = getattr(fitted, "features_", None)
    return isinstance(features, SparseEncoder) or "levels" in getattr(features, "encoders_", ())


def warn_of_stored_rows(fitted: Any, found: Explanation, labels: np.ndarray | None) -> None:
    """Warn of queries, with these labels if they have any, that are rows of the bank."""
    assert found.own_rows is not None
    which = np.flatnonzero(found.own_rows >= 0)
    if not len(which):
        return
    first = int(which[0])
    name = fitted.bank_.names_of(slice(None)).tolist()[found.own_rows[first]]
    query = f"X[{first}]" if labels is None else repr(labels[first])
    more = f", and {len(which) - 1} further queries are like it" if len(which) > 1 else ""
    warnings.warn(
        f"{about_stored_row(query, name)}{more}. Without themselves, stored rows are predicted by "
        f"explain(None), and by row={name!r:.100} of a report or display.",
        stacklevel=CALLER_OF_EXPLAIN,
    )


def about_stored_row(query: str, name: Any) -> str:
    """What is to be known of a query, as a text calls it, that is the stored row of this name."""
    which = "is a stored row" if query == repr(name) else "has the features of the stored row"
    row = "" if query == repr(name) else f" {name!r:.100}"
    return f"{query:.100} {which}{row}, whose own target is part of the prediction"
