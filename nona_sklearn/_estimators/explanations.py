"""Explanations of predictions as tables: rows behind them, features beside, attributions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Number
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from torch import Tensor

from .._data.columns import Column, read_as, read_columns, read_strings
from .._data.row_values import as_array
from .._data.sample import Embedded, TableRows
from .._data.source import SparseEncoder, TableSource
from .._data.table_encoder import TableEncoder
from .._data.tables import ends_of_outputs, labels_of, labels_of_fit, read_again
from .._data.targets import ClassTargets
from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.network_trend import NetworkTrend, values_of
from .._utils.tables import (
    are_row_numbers,
    free_name,
    gather_cells,
    index_of,
    is_frame,
    names_of_columns,
    plain_values,
    select_columns,
    stack_rows,
)
from .._utils.validation import is_missing, spans, table
from ..embedding import WeightedFeatures
from ..explanation import Explanation
from .queries import encoded_features, evaluate, explanation_of, fitted_snapshot, query_names

ROUNDING = 1e-5  # of embeddings in float32, relative to their largest entry
CALLER_OF_EXPLAIN = 3  # the level of the stack
N_NAMED_COLUMNS = 3  # named as differing most
UNEQUAL = 1.0  # difference of two categories, in units of a number's spread
ORDERED = "number", "duration", "date"  # kinds of columns with differences
N_LISTED = 5  # rows or columns in a message
OTHER = "other"  # the part of no column: shrinkage, bounds, left-out trends
INTERPLAY = "interplay"  # the joint part of columns, with networks as the trend
N_STEPS = 32  # points on the line between two rows
ROWS_AT_ONCE = 2**13

#: Maps rows (m, d), and the positions (m,) of their pairs, to values (m,).
PairFunction = Callable[[Tensor, Tensor], Tensor]


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
        first, n_more = int(is_stored[0]), len(is_stored) - 1
        name = fitted.bank_.names_of(slice(None)).tolist()[positions[first]]
        query = f"X[{first}]" if labels is None else repr(labels[first])
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


# -- features of neighbours and queries ---------------------------------------------------------


@dataclass(frozen=True)
class ComparedColumn:
    """A column of a table, with values to show and values to compare."""

    name: str
    shown: np.ndarray  # as given
    read: Column  # as compared

    def __getitem__(self, rows: np.ndarray) -> ComparedColumn:
        """Return the column for selected rows."""
        return ComparedColumn(self.name, self.shown[rows], self.read[rows])

    @property
    def numbers(self) -> np.ndarray | None:
        """Values of an ordered column as float64, with NaN for gaps; None if it has no order."""
        if self.read.kind not in ORDERED:
            return None
        if self.read.kind != "date":
            return self.read.values
        moments = self.read.values.astype(np.int64).astype(np.float64)
        return np.where(np.isnat(self.read.values), np.nan, moments)

    @property
    def categories(self) -> np.ndarray:
        """Values of the column as objects, with None for gaps."""
        values = self.read.values.astype(object)
        if self.read.kind != "category":  # gaps of categories are None
            values[[is_missing(value) for value in values]] = None
        return values


def comparable(
    rows: ComparedColumn, queries: ComparedColumn
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return a column's values in two tables, and whether they are numbers in both."""
    row_values, query_values = rows.numbers, queries.numbers
    if row_values is not None and queries.read.kind == "empty":  # the kind of the rows holds
        return row_values, np.full(len(queries.shown), np.nan), True
    if row_values is None or query_values is None or rows.read.kind != queries.read.kind:
        return rows.categories, queries.categories, False
    return row_values, query_values, True


# -- tables of features -------------------------------------------------------------------------


def checked_table(parameter: str, X: Any) -> Any:
    """Return a frame or an array of two axes, or raise an error."""
    wanted = f"{parameter} must be a table where features are given"
    if parameter == "features":
        wanted = "features must be the table given to fit, which the bank does not store"
    if X is None:
        raise ValueError(f"{wanted}, got None")
    if isinstance(X, Embedded):
        raise ValueError(f"{wanted}, got embeddings")
    if issparse(X):
        raise TypeError(
            f"{parameter} must be dense where features are given, got a sparse matrix: explain a "
            "pipeline by its own X, such as texts in a column of a DataFrame, see unwrap"
        )
    if is_frame(X, parameter):
        return X
    try:
        array = as_array(X)
    except ValueError as error:  # rows of several lengths, or images of several sizes
        raise ValueError(f"{wanted}, got {X!r:.100}") from error
    if array.ndim != 2:
        what = f"{X!r:.100}" if array.ndim == 0 else f"shape {array.shape}"
        raise ValueError(f"{wanted}, of shape (n_samples, n_features), got {what}")
    return array.astype(object) if array.dtype.kind in "UST" else array


def as_ordered(X: Any, features: Any) -> Any:
    """Return the queries, with their columns in the order of the features."""
    if is_frame(X) and is_frame(features):
        names, query_names = names_of_columns(features), names_of_columns(X)
        if {*names} == {*query_names}:
            return select_columns(X, names)
        missing = [name for name in query_names if name not in names]
        unknown = [name for name in names if name not in query_names]
        lists = {"it lacks": missing, "not in X are": unknown}
        which = ", and ".join(f"{what} {_listed(names)}" for what, names in lists.items() if names)
        raise ValueError(f"features must have the columns of X: {which}")
    if X.shape[1] != features.shape[1]:
        raise ValueError(
            f"features must have the columns of X, {X.shape[1]}, got {features.shape[1]}"
        )
    return X


def rows_and_queries(
    bank: NeighborBank, X: Any, features: Any
) -> tuple[list[ComparedColumn], list[ComparedColumn]]:
    """Return the columns of the bank's rows, by position, and of the queries."""
    features = checked_table("features", features)
    positions = rows_of_bank(bank, features)
    if X is None:
        rows = [column[positions] for column in read_features(features)]
        return rows, rows
    return read_beside(features, positions, as_ordered(checked_table("X", X), features))


def read_beside(
    features: Any, positions: np.ndarray, X: Any
) -> tuple[list[ComparedColumn], list[ComparedColumn]]:
    """Return the columns of rows of a table, and of queries that are read in the same way."""
    rows = [column[positions] for column in read_features(features)]
    return rows, read_features(X, [row.read for row in rows])


def read_features(X: Any, like: list[Column] | None = None) -> list[ComparedColumn]:
    """Read the columns of a table, in the way of the columns `like` if they are given."""
    if like is None:
        columns = [read_strings(column) for column in read_columns(X)]
    else:
        read = read_columns(X, [column.time_zone for column in like])
        columns = [read_as(*pair) for pair in zip(read, like, strict=True)]
    named = is_frame(X)
    return [
        ComparedColumn(str(column.name) if named else f"x{column.name}", shown, column)
        for column, shown in zip(columns, plain_values(X), strict=True)
    ]


def rows_of_bank(bank: NeighborBank, features: Any) -> np.ndarray:
    """Return the positions of the bank's rows in a table, (n,), by their names or their ids."""
    ids, labels, n_rows = bank.ids.cpu().numpy(), index_of(features), len(features)
    if bank.names is not None and labels is not None:
        names = bank.names.tolist()
        if ids.max() < n_rows and labels[ids].tolist() == names:
            return ids
        positions = {label: i for i, label in enumerate(labels.tolist())}
        lacking = [name for name in names if name not in positions]
        if lacking and not are_row_numbers(labels):
            raise ValueError(
                f"features must have a row for each name in the bank, it lacks {_listed(lacking)}"
            )
        if not lacking and len(positions) < n_rows:
            repeated = [label for i, label in enumerate(labels) if positions[label] != i]
            raise ValueError(
                "features must have the rows given to fit in their order, or a different name "
                f"for each row, got several rows called {_listed(repeated)}"
            )
        if not lacking:
            return np.array([positions[name] for name in names])
    if lacking := ids[ids >= n_rows].tolist():  # ids are positions in a table of all given rows
        raise ValueError(
            "features must have the rows given to fit and then the added ones: it has "
            f"{n_rows} rows, and lacks those of the ids {_listed(lacking)}"
        )
    if n_rows > bank.next_id:
        raise ValueError(
            "features must have the rows given to fit and then the added ones, "
            f"{int(bank.next_id)} in all, got {n_rows}"
        )
    return ids


def _listed(values: list) -> str:
    """Return the first values as text for a message."""
    shown = ", ".join(map(repr, values[:N_LISTED]))
    return shown if len(values) <= N_LISTED else f"{shown} and {len(values) - N_LISTED} more"


# -- columns beside the lines of a table --------------------------------------------------------


def columns_beside(
    explanation: Explanation,
    rows: list[ComparedColumn],
    queries: list[ComparedColumn],
    taken: Collection[str],
) -> dict[str, np.ndarray]:
    """Return the column "differs" and the columns of the features, (m,), with names not taken."""
    shown: dict[str, np.ndarray] = {}
    for row, query in zip(rows, queries, strict=True):
        name = free_name(row.name, {*taken, "differs", *shown})
        shown[name] = _beside(explanation, row.shown, query.shown)
    pairs = zip(rows, queries, strict=True)
    largest = largest_differences([differences_of(explanation, *pair) for pair in pairs])
    combinations, of_row = np.unique(largest, axis=0, return_inverse=True)  # rows share texts
    names = [*shown, None]  # None stands for no column
    texts = [", ".join(name for j in columns if (name := names[j])) for columns in combinations]
    differs = np.full(len(explanation.positions), None, dtype=object)
    differs[explanation.of_rows] = np.array(texts, dtype=object)[of_row.ravel()]
    return {"differs": differs, **shown}


def _beside(explanation: Explanation, rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return a feature by line, (m,), of the row or the query, with gaps in summary lines."""
    kinds, n_lines = {rows.dtype.kind, queries.dtype.kind}, len(explanation.positions)
    if "f" in kinds <= {*"fiu"}:
        column = np.full(n_lines, np.nan)
    elif kinds in ({"M"}, {"m"}):
        column = np.full(n_lines, "NaT", np.result_type(rows, queries))
    else:  # float64 does not represent all integers
        column = np.full(n_lines, None, dtype=object)
    of_rows = explanation.of_rows
    column[of_rows] = rows[explanation.positions[of_rows]]
    column[explanation.first_lines] = queries
    return column


def differences_of(
    explanation: Explanation, rows: ComparedColumn, queries: ComparedColumn
) -> np.ndarray:
    """Return differences of a feature between neighbours and queries, (m,), in spreads."""
    lines = explanation.of_rows
    row_values, query_values, are_numbers = comparable(rows, queries)
    neighbor = row_values[explanation.positions[lines]]
    query = query_values[explanation.of_query[lines]]
    if not are_numbers:
        return UNEQUAL * np.not_equal(neighbor, query, dtype=object).astype(bool)
    n_gaps, known = np.isnan(neighbor).astype(int) + np.isnan(query), ~np.isnan(row_values)
    differences = UNEQUAL * (neighbor != query)
    if known.any():
        numbers = row_values[known]
        spread = np.subtract(*np.quantile(numbers, [0.75, 0.25])) or numbers.std()
        differences = abs(neighbor - query) / spread if spread else differences
    return np.select([n_gaps == 1, n_gaps == 2], [UNEQUAL, 0.0], differences)


def largest_differences(differences: list[np.ndarray]) -> np.ndarray:
    """Return the columns in which a row differs most from its query, (m, N_NAMED_COLUMNS).

    If a row differs in fewer columns, the number of columns fills the places.
    """
    by_column = np.stack(differences, axis=1)
    order = np.argsort(-by_column, axis=1, kind="stable")[:, :N_NAMED_COLUMNS]
    differs = np.take_along_axis(by_column, order, axis=1) > 0
    return np.where(differs, order, by_column.shape[1])


# -- attribution of the change of a function ---------------------------------------------------


def integrated_gradients(function: PairFunction, start: Tensor, end: Tensor) -> Tensor:
    """Return the integrated gradients of a function from `start` to `end`, (p, d).

    The midpoint rule's error is shared out, so that attributions sum to the change.
    """
    # Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017, equation 1: the mean
    # gradient along the line, times the difference.
    pairs = torch.arange(len(start), device=start.device)
    shares = (torch.arange(N_STEPS, dtype=start.dtype, device=start.device) + 0.5) / N_STEPS
    gradients = [start[:0]]
    for block in spans(len(start), ROWS_AT_ONCE // N_STEPS):
        with torch.enable_grad():
            points = torch.lerp(start[block, None], end[block, None], shares[None, :, None])
            points = points.flatten(0, 1).requires_grad_()
            values = function(points, pairs[block].repeat_interleave(N_STEPS))
            (gradient,) = torch.autograd.grad(values.sum(), points)
        gradients.append(gradient.unflatten(0, (-1, N_STEPS)).mean(dim=1))
    attributions = torch.cat(gradients) * (end - start)
    with torch.no_grad():
        change = function(end, pairs) - function(start, pairs)
    sizes = attributions.abs()
    total = sizes.sum(dim=1, keepdim=True)
    size_shares = torch.where(total > 0, sizes / total, 0.0)
    return attributions + size_shares * (change - attributions.sum(dim=1))[:, None]


def exchange_in_turn(values: Callable[[np.ndarray], np.ndarray], n_columns: int) -> np.ndarray:
    """Attribute the change of a function to columns without gradients, (p, n_columns, n_outputs).

    `values` takes a mask (n_columns,) of columns at their end, and returns (p, n_outputs).
    """
    # Columns change from start to end in their order and in the reverse, and a column has the mean
    # of its two changes. For two columns, the mean is the Shapley value.
    columns = np.arange(n_columns)
    upwards = np.stack([values(columns < k) for k in range(n_columns + 1)], axis=1)
    downwards = np.stack([values(columns >= k) for k in range(n_columns + 1)], axis=1)
    return (np.diff(upwards, axis=1) - np.diff(downwards, axis=1)) / 2


# -- tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Adjustments:
    """Parts that lead from a neighbour's to a query's value, one line per pair.

    Values are targets and adjusted targets, or log probabilities without the neighbour itself.
    """

    explanation: Explanation  # the pairs
    names: list[str]  # of the parts: columns, "interplay" if it is known, and "other"
    start: np.ndarray  # (p, n_outputs)
    end: np.ndarray  # (p, n_outputs)
    parts: np.ndarray  # (p, n_parts, n_outputs), with the sum end - start


def adjustments_of(estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> Adjustments:
    """Return the parts of the columns in the adjustments of neighbours to their queries."""
    fitted = fitted_snapshot(estimator)
    if is_classifier(fitted):
        _require_additive_trend("of='adjustments' for classes", fitted)
    pairs = _Pairs.from_queries(fitted, X, features, n_neighbors)
    if pairs.evaluation.neighbors.offset is None and not pairs.are_adjusted:
        raise ValueError(
            "of='adjustments' needs adjusted neighbours, by a trend (of 10 rows at least) or "
            "adjust=True of NONARegressor, and targets of fit, or in their unit"
        )
    start, end = pairs.explanation.targets, pairs.explanation.adjusted
    if is_classifier(fitted):
        start, end = pairs.log_probabilities()
    names, parts = _column_names(fitted), pairs.moves()
    rest_names = [OTHER] if parts.shape[1] == len(names) else [INTERPLAY, OTHER]
    rest = end - start - parts.sum(axis=1)
    return Adjustments(
        pairs.explanation,
        [*names, *(free_name(name, names) for name in rest_names)],
        start,
        end,
        np.concatenate([parts, rest[:, None]], axis=1),
    )


def adjustments_table(estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> Any:
    """Return the table of adjustments."""
    fitted = fitted_snapshot(estimator)
    moved = adjustments_of(fitted, X, features, n_neighbors)
    columns, first, last = moved.explanation.columns(), "target", "adjusted_target"
    if is_classifier(fitted):
        targets, first, last = fitted.targets_, "neighbor_log_odds", "query_log_odds"
        labels = targets.decode(torch.from_numpy(moved.explanation.targets))
        ends = ends_of_outputs(moved.explanation.target_names, len(targets.classes))
        by_output = labels.reshape(-1, len(ends)).T
        columns |= {f"target{end}": column for end, column in zip(ends, by_output, strict=True)}
    values = np.concatenate([moved.start[:, None], moved.parts, moved.end[:, None]], axis=1)
    return _table(fitted, columns, [first, *moved.names, last], values)


def distances_table(estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> Any:
    """Return the table of distances."""
    pairs = _Pairs.from_queries(estimator, X, features, n_neighbors)
    columns = pairs.explanation.columns()
    shares = zip(_column_names(pairs.fitted), pairs.shares_of_distances().T, strict=True)
    for name, column in shares:
        columns[free_name(name, columns)] = column
    return table(columns)


def predictions_table(
    estimator: Any, X: Any, features: Any = None, n_neighbors: int | None = None
) -> Any:
    """Return the table of predictions, which needs no `features`."""
    fitted = fitted_snapshot(estimator)
    trend = _require_additive_trend("of='predictions'", fitted)
    fitted, evaluation = evaluate(fitted, X)
    rows = trend.bank.inputs  # includes the rows that a compression has left out
    assert rows is not None
    typical = np.average(_terms(fitted, trend, rows), axis=0, weights=trend.bank.row_weights)
    mean = trend.additive_part.constant.numpy() + typical.sum(axis=0)
    terms = _terms(fitted, trend, encoded_features(fitted, X)) - typical
    parts = fitted.bank_.neighbors.offset.share * terms
    predictions = values_of(evaluation).cpu().numpy()
    rest = predictions - mean - parts.sum(axis=1)
    columns = {"query": query_names(fitted, X, len(predictions))}
    first = np.broadcast_to(mean, predictions.shape)
    values = [first[:, None], parts, rest[:, None], predictions[:, None]]
    last = "log_odds" if is_classifier(fitted) else "prediction"
    part_names = ["mean", *_column_names(fitted), INTERPLAY, last]
    return _table(fitted, columns, part_names, np.concatenate(values, axis=1))


def _table(
    fitted: Any, columns: dict[str, np.ndarray], names: list[str], values: np.ndarray
) -> Any:
    """Return a table of `columns` and parts (m, n_names, n_outputs), for classes as log odds."""
    target_names = fitted.bank_.target_names
    if is_classifier(fitted):
        ends = fitted.targets_.ends_of_log_odds(target_names)
        values = fitted.targets_.log_odds(values)
    else:
        ends = ends_of_outputs(target_names, values.shape[2])
    for output, end in enumerate(ends):
        for name, column in zip(names, values[..., output].T, strict=True):
            columns[free_name(name + end, columns)] = column
    return table(columns)


#: Functions that make the tables, by the value of `of`.
ATTRIBUTIONS = {
    "adjustments": adjustments_table,
    "distances": distances_table,
    "predictions": predictions_table,
}


# -- the additive part of a trend --------------------------------------------------------------


def additive_trend(fitted: Any) -> NetworkTrend | None:
    """Return the trend if its values have an additive part by column, else None."""
    trend = fitted.bank_.trend
    if trend is None or trend.networks is None or not hasattr(fitted.features_, "source_"):
        return None
    return trend


def _require_additive_trend(name: str, fitted: Any) -> NetworkTrend:
    """Return the trend with an additive part, or raise an error without one."""
    if (trend := additive_trend(fitted)) is not None:
        return trend
    similarity = getattr(fitted, "similarity_", fitted.similarity)
    raise ValueError(
        f"{name} needs similarity='features', where predictions have an additive part, got "
        f"similarity_={similarity!r}"
    )


def _terms(fitted: Any, trend: NetworkTrend, X: Tensor) -> np.ndarray:
    """Return the additive part of a trend by column, (n, n_columns, n_outputs)."""
    function = trend.additive_part
    outputs = range(len(function.constant))
    terms = [_by_column(fitted, function.terms(X.cpu(), output)) for output in outputs]
    return np.stack(terms, axis=2)


def _by_column(fitted: Any, parts: Tensor) -> np.ndarray:
    """Sum parts (n, n_features, ...) over the features of a column, (n, n_columns, ...)."""
    source = torch.as_tensor(fitted.features_.source_, device=parts.device)
    sums = parts.new_zeros(len(parts), fitted.n_features_in_, *parts.shape[2:])
    return sums.index_add_(1, source, parts).cpu().numpy()


def _column_names(fitted: Any) -> list[str]:
    """Return the names of the table's columns."""
    columns = [feature.column for feature in fitted.features_.features_]
    named = labels_of_fit(fitted) is not None
    return [str(column.name) if named else f"x{column.name}" for column in columns]


# -- pairs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a query and a neighbour that has weight."""

    fitted: Any
    evaluation: Evaluation  # of the queries
    explanation: Explanation  # one line per pair
    neighbor_table: tuple[Any, np.ndarray]  # the given table, and neighbours' positions in it (p,)
    query_table: tuple[Any, np.ndarray]  # the given table, and queries' positions in it (p,)
    start: Tensor  # neighbours as encoded for the networks, (p, d)
    end: Tensor  # queries as encoded for the networks, (p, d)

    @classmethod
    def from_queries(
        cls, estimator: Any, X: Any, features: Any, n_neighbors: int | None
    ) -> _Pairs:
        """Return the pairs of queries `X`, with the `features` of the bank's rows."""
        fitted, evaluation = evaluate(estimator, X)
        if not isinstance(getattr(fitted, "features_", None), TableEncoder):
            raise ValueError(
                "attributions need an estimator that was fitted to the columns of a table, not to "
                "a wide sparse matrix or with a feature_extractor"
            )
        features = checked_table("features", features)
        bank_rows = rows_of_bank(fitted.bank_, features)
        query_rows = bank_rows if X is None else np.arange(len(evaluation))
        rows = features if X is None else checked_table("X", X)
        explanation = explanation_of(fitted, evaluation, X, n_neighbors).of_single_rows()
        neighbor_table = features, bank_rows[explanation.positions]
        query_table = rows, query_rows[explanation.of_query]
        start, end = (_encode_rows(fitted, *some) for some in (neighbor_table, query_table))
        return cls(fitted, evaluation, explanation, neighbor_table, query_table, start, end)

    @property
    def are_adjusted(self) -> bool:
        """Whether networks move targets by their own estimates g."""
        scale = self.evaluation.neighbors.adjustment_scale
        return self.evaluation.one_head.n_adjusted > 0 and scale is not None

    def log_probabilities(self) -> tuple[np.ndarray, np.ndarray]:
        """Return log probabilities of neighbours, by leave-one-out, and queries, (p, C)."""
        positions, neighbor = np.unique(self.explanation.positions, return_inverse=True)
        head = self.fitted.network_.head
        alone = self.fitted.bank_.evaluate_rows(head, positions, leave_out="itself")
        start, end = values_of(alone).cpu().numpy(), values_of(self.evaluation).cpu().numpy()
        return start[neighbor], end[self.explanation.of_query]

    def moves(self) -> np.ndarray:
        """Return the part of each column in the adjustments, (p, n_columns, n_outputs).

        With networks as the trend, one more column is the joint part of several columns.
        """
        sensitivity = self.evaluation.sensitivities()[self.explanation.of_query]
        factors = self._network_shares()[..., None, None] * sensitivity  # (p, K, 2, n_outputs)
        network_factors, trend_factors = factors[:, :, 0], factors[:, :, 1].sum(dim=1)
        trend = self.fitted.bank_.trend
        if trend is not None and trend.networks is not None:
            return self._additive_moves(trend, trend_factors.cpu().numpy())

        def by_networks(output: int, x: Tensor, pairs: Tensor) -> Tensor:
            g = [head.adjustments(z)[:, output] for head, z in self._embed(x)]
            return (network_factors[pairs, :, output] * torch.stack(g, dim=1)).sum(dim=1)

        def by_trend(output: int, x: Tensor, pairs: Tensor) -> Tensor:
            return trend_factors[pairs, output] * trend(TableRows(x))[:, output]

        n_outputs = trend_factors.shape[1]
        moves = np.zeros((len(self.end), self.fitted.n_features_in_, n_outputs))
        for output in range(n_outputs):
            if self.are_adjusted:
                moves[..., output] += self._attribute(partial(by_networks, output))
            if trend is not None and not trend.takes_table:
                moves[..., output] += self._attribute(partial(by_trend, output))
        if trend is not None and trend.takes_table and len(self.end):
            moves += trend_factors.cpu().numpy()[:, None] * self._model_moves(trend)
        return moves

    def _additive_moves(self, trend: NetworkTrend, trend_factors: np.ndarray) -> np.ndarray:
        """Return the parts in the additive part of a trend, and the joint part of the columns."""
        start, end = (_terms(self.fitted, trend, x) for x in (self.start, self.end))
        moves = trend_factors[:, None] * (end - start)
        if moves.shape[1] == 1:
            return moves
        offset, at_rows = self.evaluation.offset, self.evaluation.neighbors.offset
        assert offset is not None
        assert at_rows is not None
        change = offset[self.explanation.of_query] - at_rows.values[self.explanation.positions]
        together = trend_factors * change.cpu().numpy() - moves.sum(axis=1)
        return np.concatenate([moves, together[:, None]], axis=1)

    def _model_moves(self, trend: Any) -> np.ndarray:
        """Return the parts in a trend that takes a table, (p, n_columns, n_outputs)."""
        both = stack_rows(
            *(
                _safe_indexing(read_again(self.fitted, X), rows)
                for X, rows in (self.neighbor_table, self.query_table)
            )
        )
        pairs = np.arange(len(self.end))

        def values(is_of_end: np.ndarray) -> np.ndarray:
            cells = gather_cells(both, pairs[:, None] + len(pairs) * is_of_end)
            return trend.of_table(cells).numpy()

        return exchange_in_turn(values, both.shape[1])

    def shares_of_distances(self) -> np.ndarray:
        """Return the share of each column in the squared distances, (p, n_columns).

        Shares are averaged over networks. The l1 distance of weighted features is not squared.
        """
        if isinstance(embedding := self.fitted.network_.embedding, WeightedFeatures):
            parts = torch.zeros_like(self.end)
            parts[:, embedding.columns] = (embedding(self.end) - embedding(self.start)).abs()
            totals = parts.sum(dim=1, keepdim=True)
            return _by_column(self.fitted, torch.where(totals > 0, parts / totals, 0.0))
        origins = [head.metric_part(z) for head, z in self._embed(self.start)]

        def squared_distances(x: Tensor, pairs: Tensor) -> Tensor:
            squares = [
                (head.metric_part(z) - origin[pairs]).square().sum(dim=1)
                for (head, z), origin in zip(self._embed(x), origins, strict=True)
            ]
            return torch.stack(squares, dim=1)

        totals = squared_distances(self.end, torch.arange(len(self.end)))
        factors = torch.where(totals > 0, self._network_shares() / totals, 0.0)
        return self._attribute(
            lambda x, pairs: (factors[pairs] * squared_distances(x, pairs)).sum(dim=1)
        )

    def _network_shares(self) -> Tensor:
        """Return the networks' shares of the weight of a pair, (p, K)."""
        of_query = self.explanation.of_query
        n_neighbors = int(np.bincount(of_query, minlength=1).max())
        ranks = np.arange(len(of_query)) - self.explanation.first_lines[of_query]
        return self.evaluation.network_shares(n_neighbors)[of_query, ranks]

    def _embed(self, x: Tensor) -> list[tuple[Any, Tensor]]:
        """Return pairs of a network's head and its embeddings of the rows."""
        network = self.fitted.network_
        z = network.embedding(x)
        return [(head, query) for head, query, _ in network.head.split_by_head(z, z)]

    def _attribute(self, function: PairFunction) -> np.ndarray:
        """Attribute a function's change from neighbour to query to columns, (p, n_columns)."""
        return _by_column(self.fitted, integrated_gradients(function, self.start, self.end))


def _encode_rows(fitted: Any, X: Any, rows: np.ndarray) -> Tensor:
    """Encode rows of a table for the networks. Rows may repeat."""
    distinct, numbers = np.unique(np.append(0, rows), return_inverse=True)  # never empty
    encoded = TableSource.of_fitted(fitted).encode(_safe_indexing(X, distinct))[numbers[1:]]
    return encoded.to(fitted.bank_.embeddings.device, torch.float64)
