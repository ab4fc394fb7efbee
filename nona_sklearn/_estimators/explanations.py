"""Explanations of predictions as tables: rows behind them, features beside, attributions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from torch import Tensor

from .._data.sample import Embedded, TableRows
from .._data.source import SparseEncoder, TableSource
from .._data.table_encoder import TableEncoder
from .._data.tables import ends_of_outputs, labels_of, labels_of_fit, read_again
from .._inference.network_trend import NetworkTrend, values_of
from .._utils.precision import EXACT
from .._utils.tables import free_name, gather_cells, stack_rows
from .._utils.validation import spans, table
from ..embedding import WeightedFeatures
from ..explanation import (
    ComparedColumn,
    Explanation,
    about_stored_row,
    checked_table,
    compare_columns,
    largest_differences,
    rows_of_bank,
)
from .queries import (
    as_row,
    as_table,
    encoded_features,
    evaluate,
    explanation_of,
    fitted_snapshot,
    query_names,
    with_rows,
)

if TYPE_CHECKING:
    from .._data.targets import ClassTargets
    from .._inference.evaluation import Evaluation

ROUNDING = 1e-5  # of embeddings in float32, relative to their largest entry
CALLER_OF_EXPLAIN = 3  # the level of the stack


OTHER = "other"  # the part of no column: shrinkage, bounds, left-out trends
INTERPLAY = "interplay"  # the joint part of columns, with networks as the trend
N_STEPS = 32  # points on the line between two rows
ROWS_AT_ONCE = 2**13

#: Maps rows (m, d), and the positions (m,) of their pairs, to values (m,).
PairFunction = Callable[[Tensor, Tensor], Tensor]


def explain(
    estimator: Any, X: Any, n_neighbors: int | None = None, eligibility: Any = None
) -> Explanation:
    """Return the explanation of predictions by `n_neighbors` rows, or by all rows with weight.

    Warn if queries are rows of the bank.
    """
    X = as_row(estimator, X)
    fitted, evaluation = evaluate(estimator, X, eligibility=eligibility)
    evaluation = with_rows(evaluation, query_names(fitted, X, len(evaluation)))
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
    compared = None if features is None else compare_columns(fitted, as_table(fitted, X), features)
    if compared is not None:
        explanation = explanation.with_queries()
    columns = explanation.columns()
    if is_classifier(fitted):
        columns |= _class_columns(explanation, fitted.targets_)
    else:
        columns |= explanation.target_columns()
    if explanation.metres is not None:
        columns["metres"] = explanation.metres
    if compared is not None:
        columns |= columns_beside(explanation, compared, columns)
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


def _stored_positions(
    fitted: Any, evaluation: Evaluation, explanation: Explanation, labels: np.ndarray | None
) -> np.ndarray:
    """Return the positions of queries in the bank, (q,), and -1 for queries that are new.

    A stored row is behind the prediction and has the query's features and, if any, its name.
    """
    # With an encoding made of targets (`cross_fit`), training rows and queries differ.
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
        if not len(pairs):
            break
        i, j = of_query[pairs], rows[pairs]
        are_equal[pairs] = abs(queries[i, column] - stored[j, column]) <= rounding[i]
    return are_equal


def _may_be_names(labels: np.ndarray, names: np.ndarray) -> bool:
    """Return whether labels may be names of rows: not if only labels or only names are numbers."""
    of_numbers = all(isinstance(label, Number) for label in labels)
    if names.dtype.kind == "i":  # ids
        return of_numbers
    return any(isinstance(name, Number) == of_numbers for name in names)


# -- columns beside the lines of a table --------------------------------------------------------


def columns_beside(
    explanation: Explanation, compared: list[ComparedColumn], taken: Collection[str]
) -> dict[str, np.ndarray]:
    """Return the column "differs" and the columns of the features, (m,), with names not taken."""
    shown: dict[str, np.ndarray] = {}
    for column in compared:
        name = free_name(column.name, {*taken, "differs", *shown})
        shown[name] = _beside(explanation, column.rows, column.queries)
    largest = largest_differences(explanation, compared)
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


def adjustments_of(
    estimator: Any, X: Any, features: Any, n_neighbors: int | None, eligibility: Any = None
) -> Adjustments:
    """Return the parts of the columns in the adjustments of neighbours to their queries."""
    fitted = fitted_snapshot(estimator)
    if is_classifier(fitted):
        _require_additive_trend("of='adjustments' for classes", fitted)
    pairs = _Pairs.from_queries(fitted, X, features, n_neighbors, eligibility)
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
        [*(free_name(name, rest_names) for name in names), *rest_names],
        start,
        end,
        np.concatenate([parts, rest[:, None]], axis=1),
    )


def adjustments_table(
    estimator: Any, X: Any, features: Any, n_neighbors: int | None, eligibility: Any = None
) -> Any:
    """Return the table of adjustments."""
    fitted = fitted_snapshot(estimator)
    moved = adjustments_of(fitted, X, features, n_neighbors, eligibility)
    columns, first, last = moved.explanation.columns(), "target", "adjusted_target"
    if is_classifier(fitted):
        targets, first, last = fitted.targets_, "neighbor_log_odds", "query_log_odds"
        labels = targets.decode(torch.from_numpy(moved.explanation.targets))
        ends = ends_of_outputs(moved.explanation.target_names, len(targets.classes))
        by_output = labels.reshape(-1, len(ends)).T
        columns |= {f"target{end}": column for end, column in zip(ends, by_output, strict=True)}
    values = np.concatenate([moved.start[:, None], moved.parts, moved.end[:, None]], axis=1)
    names = [*_column_names(fitted), *moved.names[fitted.n_features_in_ :], last]
    return _table(fitted, columns, first, names, values)


def distances_table(
    estimator: Any, X: Any, features: Any, n_neighbors: int | None, eligibility: Any = None
) -> Any:
    """Return the table of distances."""
    pairs = _Pairs.from_queries(estimator, X, features, n_neighbors, eligibility)
    columns = pairs.explanation.columns()
    shares = zip(_column_names(pairs.fitted), pairs.shares_of_distances().T, strict=True)
    for name, column in shares:
        columns[free_name(name, columns)] = column
    return table(columns)


def predictions_table(
    estimator: Any,
    X: Any,
    features: Any = None,
    n_neighbors: int | None = None,
    eligibility: Any = None,
) -> Any:
    """Return the table of predictions, which needs no `features`."""
    fitted = fitted_snapshot(estimator)
    trend = _require_additive_trend("of='predictions'", fitted)
    fitted, evaluation = evaluate(fitted, X, eligibility=eligibility)
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
    names = [*_column_names(fitted), INTERPLAY, last]
    return _table(fitted, columns, "mean", names, np.concatenate(values, axis=1))


def _table(
    fitted: Any, columns: dict[str, np.ndarray], first: str, names: list[str], values: np.ndarray
) -> Any:
    """Return a table of `columns` and parts (m, 1 + n_names, n_outputs), for classes as log odds.

    The `names` after the `first` begin with the features, which are renamed where a name of the
    results is theirs.
    """
    target_names = fitted.bank_.target_names
    if is_classifier(fitted):
        ends = fitted.targets_.ends_of_log_odds(target_names)
        values = fitted.targets_.log_odds(values)
    else:
        ends = ends_of_outputs(target_names, values.shape[2])
    n_features = fitted.n_features_in_
    features, results = names[:n_features], names[n_features:]
    taken = {*columns, *(name + end for name in (first, *results) for end in ends)}
    for output, end in enumerate(ends):
        start, *parts = values[..., output].T
        columns[first + end] = start
        for name, part in zip(features, parts, strict=False):
            columns[free_name(name + end, {*taken, *columns})] = part
        for name, part in zip(results, parts[n_features:], strict=True):
            columns[name + end] = part
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


def _require_columns(fitted: Any) -> None:
    """Raise an error if the features are no columns of a table."""
    if not isinstance(getattr(fitted, "features_", None), TableEncoder):
        raise ValueError(
            "attributions need an estimator that was fitted to the columns of a table, not to "
            "a wide sparse matrix or with a feature_extractor"
        )


def _require_additive_trend(name: str, fitted: Any) -> NetworkTrend:
    """Return the trend with an additive part, or raise an error without one."""
    _require_columns(fitted)
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
        cls, estimator: Any, X: Any, features: Any, n_neighbors: int | None, eligibility: Any
    ) -> _Pairs:
        """Return the pairs of queries `X`, with the `features` of the bank's rows."""
        fitted, evaluation = evaluate(estimator, X, eligibility=eligibility)
        _require_columns(fitted)
        features = checked_table("features", features)
        bank_rows = rows_of_bank(fitted.bank_, features)
        query_rows = bank_rows if X is None else np.arange(len(evaluation))
        rows = features if X is None else checked_table("X", as_table(fitted, X))
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
        offset, at_rows = self.evaluation.query_trend, self.evaluation.neighbors.offset
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
    return encoded.to(fitted.bank_.device, EXACT)
