"""How much each column of a table has to do with an adjustment, or with a distance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing
from torch import Tensor

from .._data.names import ends_of_outputs, free_name, labels_of
from .._data.sample import TableRows
from .._data.source import TableSource
from .._data.table_encoder import TableEncoder
from .._data.tables import gather_cells, labels_of_fit, read_again, stack_rows
from .._inference.attribution import exchange_in_turn, integrated_gradients
from .._inference.evaluation import Evaluation
from .._inference.explanation import Explanation
from .._inference.network_trend import NetworkTrend, values_of
from .._utils.arrays import table
from .._utils.threads import cached_property
from ..embedding import WeightedFeatures
from .queries import encoded_features, evaluate, explanation_of, fitted_snapshot
from .side_by_side import checked_table, rows_of_bank

OTHER = "other"  # what no column moves: shrinkage, credibility, bounds, trends of other rows
INTERPLAY = "interplay"  # what columns move together, beside networks that are the trend


@dataclass(frozen=True)
class Adjustments:
    """What leads from neighbours to the query, in parts; a line for each pair.

    Of numbers, it is from the target to the adjusted target. Of classes, amounts are of logarithms
    of probabilities, whose differences count: from the prediction of the neighbour without itself
    to that of the query.

    Parameters
    ----------
    found : Explanation
        The pairs.
    names : list of str
        Names of the parts: of the table's columns, then "interplay", if it is known, and "other".
    start, end : ndarray of shape (p, n_outputs)
        From where, and to where.
    parts : ndarray of shape (p, n_parts, n_outputs)
        What lies between them.
    """

    found: Explanation
    names: list[str]
    start: np.ndarray
    end: np.ndarray
    parts: np.ndarray


def adjustments_of(estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> Adjustments:
    """How each column moves neighbours towards their queries."""
    fitted = fitted_snapshot(estimator)
    if is_classifier(fitted):
        _check_additive("attribute_adjustments of classes", fitted)
    pairs = _Pairs.of(fitted, X, features, n_neighbors)
    pairs.check_adjusted()
    (start, end), parts = pairs.ends_of_moves(), pairs.moves()
    names, further = pairs.names, [INTERPLAY][: parts.shape[1] - len(pairs.names)]
    names += [free_name(name, pairs.names) for name in [*further, OTHER]]
    rest = end - start - parts.sum(axis=1)
    parts = np.concatenate([parts, rest[:, None]], axis=1)
    return Adjustments(pairs.found, names, start, end, parts)


def adjustments_table(estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> Any:
    """Table of how each column moves a neighbour's target, or its odds, towards the query."""
    fitted = fitted_snapshot(estimator)
    moved = adjustments_of(fitted, X, features, n_neighbors)
    found, first, last = moved.found, "target", "adjusted_target"
    columns = found.columns()
    if is_classifier(fitted):
        targets, first, last = fitted.targets_, "neighbor_log_odds", "query_log_odds"
        labels = targets.decode(torch.from_numpy(found.targets))
        ends = ends_of_outputs(found.target_names, len(targets.classes))
        _append(columns, [f"target{end}" for end in ends], labels.reshape(-1, len(ends)))
    values = np.concatenate([moved.start[:, None], moved.parts, moved.end[:, None]], axis=1)
    _append_outputs(columns, fitted, [first, *moved.names, last], values)
    return table(columns)


def distances_table(estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> Any:
    """Table of the share of each column in the distance of a neighbour and a query."""
    pairs = _Pairs.of(estimator, X, features, n_neighbors)
    columns = pairs.found.columns()
    _append(columns, pairs.names, pairs.shares_of_distances())
    return table(columns)


def predictions_table(estimator: Any, X: Any) -> Any:
    """Table of what each column adds to predictions, or to their log odds, beside the mean."""
    fitted = fitted_snapshot(estimator)
    trend = _check_additive("attribute_predictions", fitted)
    fitted, evaluation = evaluate(fitted, X)
    bank = fitted.bank_
    rows = trend.bank.inputs  # those of the bank, or more of a compressed one
    assert rows is not None
    terms, weights = _terms(fitted, trend, rows), trend.bank.row_weights
    typical = np.average(terms, axis=0, weights=weights)
    mean = trend.additive_part.constant.numpy() + typical.sum(axis=0)
    own = bank.neighbors.offset.share * (
        _terms(fitted, trend, encoded_features(fitted, X)) - typical
    )
    whole = values_of(evaluation).cpu().numpy()
    rest = whole - mean - own.sum(axis=1)
    labels = bank.names_of(slice(None)) if X is None else labels_of(X)
    columns = {"query": np.arange(len(whole)) if labels is None else labels}
    first = np.broadcast_to(mean, whole.shape)[:, None]
    values = np.concatenate([first, own, rest[:, None], whole[:, None]], axis=1)
    last = "log_odds" if is_classifier(fitted) else "prediction"
    names = ["mean", *_column_names(fitted), INTERPLAY, last]
    _append_outputs(columns, fitted, names, values)
    return table(columns)


def additive_trend(fitted: Any) -> NetworkTrend | None:
    """The trend whose values have an additive part by column, if there is one."""
    trend = fitted.bank_.trend
    if trend is None or trend.networks is None or not hasattr(fitted.features_, "source_"):
        return None
    return trend


def _check_additive(name: str, fitted: Any) -> NetworkTrend:
    """The trend that has an additive part; an error without it."""
    if (trend := additive_trend(fitted)) is not None:
        return trend
    chosen = getattr(fitted, "similarity_", fitted.similarity)
    raise ValueError(
        f"{name} needs similarity='features', where predictions have an additive part, got "
        f"similarity_={chosen!r}"
    )


def _terms(fitted: Any, trend: NetworkTrend, X: Tensor) -> np.ndarray:
    """The additive part of a trend by column, (n, n_columns, n_outputs)."""
    function = trend.additive_part
    each = (function.terms(X.cpu(), output) for output in range(len(function.constant)))
    return np.stack([_by_column(fitted, terms) for terms in each], axis=2)


def _column_names(fitted: Any) -> list[str]:
    """Names of the table's columns."""
    columns = [feature.column for feature in fitted.features_.features_]
    named = labels_of_fit(fitted) is not None
    return [str(column.name) if named else f"x{column.name}" for column in columns]


def _by_column(fitted: Any, parts: Tensor) -> np.ndarray:
    """Sums (n, n_columns, ...) of parts (n, n_features, ...) over each column's features."""
    source = torch.as_tensor(fitted.features_.source_, device=parts.device)
    sums = parts.new_zeros(len(parts), fitted.n_features_in_, *parts.shape[2:])
    return sums.index_add_(1, source, parts).cpu().numpy()


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a query and a neighbour of weight, in the form that networks take.

    Parameters
    ----------
    fitted : NeighborEstimator
        The fitted estimator.
    evaluation : Evaluation
        Of the queries.
    found : Explanation
        The pairs, a line for each.
    start, end : Tensor of shape (p, d)
        The neighbours, and the queries.
    ends : tuple of (table, int ndarray of shape (p,))
        Tables with them as they were given, and their rows in it.
    """

    fitted: Any
    evaluation: Evaluation
    found: Explanation
    start: Tensor
    end: Tensor
    ends: tuple[tuple[Any, np.ndarray], tuple[Any, np.ndarray]]

    @classmethod
    def of(cls, estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> _Pairs:
        """The pairs of queries `X`, with the features of the bank's rows."""
        fitted, evaluation = evaluate(estimator, X)
        if not isinstance(getattr(fitted, "features_", None), TableEncoder):
            raise ValueError(
                "attributions need an estimator that was fitted to the columns of a table, not to "
                "a wide sparse matrix or with a feature_extractor"
            )
        features = checked_table("features", features)
        places = rows_of_bank(fitted.bank_, features)
        queries = places if X is None else np.arange(len(evaluation))
        rows = features if X is None else checked_table("X", X)
        found = explanation_of(fitted, evaluation, X, n_neighbors).of_single_rows()
        ends = (features, places[found.positions]), (rows, queries[found.of_query])
        start, end = (_encode_some(fitted, *some) for some in ends)
        return cls(fitted, evaluation, found, start, end, ends)

    @property
    def names(self) -> list[str]:
        """Names of the table's columns."""
        return _column_names(self.fitted)

    @property
    def _is_adjusted(self) -> bool:
        """Whether networks move targets by their own estimates g."""
        scale = self.evaluation.neighbors.adjustment_scale
        return self.evaluation.one_head.n_adjusted > 0 and scale is not None

    def check_adjusted(self) -> None:
        """Refuse estimators whose neighbours are not adjusted."""
        if self.evaluation.neighbors.offset is None and not self._is_adjusted:
            raise ValueError(
                "attribute_adjustments needs adjusted neighbours, by a trend (of 10 rows at "
                "least) or adjust=True of NONARegressor, and targets of fit, or in their unit"
            )

    def ends_of_moves(self) -> tuple[np.ndarray, np.ndarray]:
        """From where neighbours are moved, and to where, (p, n_outputs) each.

        Of classes, these are logarithms of probabilities.
        """
        found, bank = self.found, self.fitted.bank_
        if not is_classifier(self.fitted):
            return found.targets, found.adjusted
        rows, places = np.unique(found.positions, return_inverse=True)
        alone = bank.evaluate_rows(self.fitted.network_.head, rows, leave_out="itself")
        start, end = (values_of(each).cpu().numpy() for each in (alone, self.evaluation))
        return start[places], end[found.of_query]

    def moves(self) -> np.ndarray:
        """How much each column moves neighbours, (p, n_columns, n_outputs).

        Beside networks that are the trend, a further part is what columns move together.
        """
        sensitivity = self.evaluation.sensitivities()[self.found.of_query]  # (p, K, 2, n_outputs)
        factors = self._network_shares()[..., None, None] * sensitivity
        of_networks, of_trend = factors[:, :, 0], factors[:, :, 1].sum(dim=1)
        trend = self.fitted.bank_.trend
        if trend is not None and trend.networks is not None:
            return self._prices(trend, of_trend.cpu().numpy())
        each = (
            self._moves_of(output, of_networks[..., output], of_trend[:, output])
            for output in range(of_trend.shape[1])
        )
        return np.stack([*each], axis=2)

    def _moves_of(self, output: int, of_networks: Tensor, of_trend: Tensor) -> np.ndarray:
        """How much each column moves an output, (p, n_columns), by factors of g and of f."""
        trend, moves = self.fitted.bank_.trend, np.zeros((len(self.end), len(self.names)))

        def of_g(x: Tensor, pairs: Tensor) -> Tensor:
            own = [head.adjustments(z)[:, output] for head, z in self._embed(x)]
            return (of_networks[pairs] * torch.stack(own, dim=1)).sum(dim=1)

        def of_f(x: Tensor, pairs: Tensor) -> Tensor:
            return of_trend[pairs] * trend(TableRows(x))[:, output]

        if self._is_adjusted:
            moves += self._attribute(of_g)
        if trend is not None and trend.takes_table:
            moves += of_trend.cpu().numpy()[:, None] * self._moves_of_model[..., output]
        elif trend is not None:
            moves += self._attribute(of_f)
        return moves

    def _prices(self, trend: NetworkTrend, of_trend: np.ndarray) -> np.ndarray:
        """What differences count in the additive part of a trend, and what several leave of it.

        The same difference counts the same for each pair.
        """
        start, end = (_terms(self.fitted, trend, x) for x in (self.start, self.end))
        moves = of_trend[:, None] * (end - start)
        if len(self.names) == 1:
            return moves
        offset, at_rows = self.evaluation.offset, self.evaluation.neighbors.offset
        assert offset is not None
        assert at_rows is not None
        whole = offset[self.found.of_query] - at_rows.values[self.found.positions]
        together = of_trend * whole.cpu().numpy() - moves.sum(axis=1)
        return np.concatenate([moves, together[:, None]], axis=1)

    @cached_property
    def _moves_of_model(self) -> np.ndarray:
        """How much each column moves a trend that takes a table, (p, n_columns, n_outputs)."""
        if not len(self.end):
            return np.zeros((0, self.fitted.n_features_in_, self.found.targets.shape[1]))
        tables = [_safe_indexing(read_again(self.fitted, X), rows) for X, rows in self.ends]
        both, trend = stack_rows(*tables), self.fitted.bank_.trend
        numbers = np.arange(len(self.end))

        def values(is_of_end: np.ndarray) -> np.ndarray:
            cells = numbers[:, None] + len(numbers) * is_of_end
            return trend.of_table(gather_cells(both, cells)).numpy()

        return exchange_in_turn(values, both.shape[1])

    def shares_of_distances(self) -> np.ndarray:
        """Share of each column in the squared distances, (p, n_columns), mean over networks.

        A sum of absolute differences is shared as it is.
        """
        if isinstance(embedding := self.fitted.network_.embedding, WeightedFeatures):
            parts = torch.zeros_like(self.end)
            parts[:, embedding.columns] = (embedding(self.end) - embedding(self.start)).abs()
            totals = parts.sum(dim=1, keepdim=True)
            return _by_column(self.fitted, torch.where(totals > 0, parts / totals, 0.0))
        origins = [head.metric_part(z) for head, z in self._embed(self.start)]

        def squares(x: Tensor, pairs: Tensor) -> Tensor:
            each = [
                (head.metric_part(z) - origin[pairs]).square().sum(dim=1)
                for (head, z), origin in zip(self._embed(x), origins, strict=True)
            ]
            return torch.stack(each, dim=1)

        totals = squares(self.end, torch.arange(len(self.end)))
        factors = torch.where(totals > 0, self._network_shares() / totals, 0.0)
        return self._attribute(lambda x, pairs: (factors[pairs] * squares(x, pairs)).sum(dim=1))

    def _network_shares(self) -> Tensor:
        """Each network's share of the weight of a pair, (p, K)."""
        of_query = self.found.of_query
        most = int(np.bincount(of_query, minlength=1).max())
        ranks = np.arange(len(of_query)) - self.found.first_lines[of_query]
        return self.evaluation.network_shares(most)[of_query, ranks]

    def _embed(self, x: Tensor) -> list[tuple[Any, Tensor]]:
        """Each network's head, with the embeddings of rows."""
        network = self.fitted.network_
        z = network.embedding(x)
        return [(head, own) for head, own, _ in network.head.split_by_head(z, z)]

    def _attribute(self, function: Callable[[Tensor, Tensor], Tensor]) -> np.ndarray:
        """Attribute a function's change from neighbour to query to columns, (p, n_columns)."""
        return _by_column(self.fitted, integrated_gradients(function, self.start, self.end))


def _encode_some(fitted: Any, X: Any, rows: np.ndarray) -> Tensor:
    """Encode rows of a table, which may repeat, for the networks."""
    own, places = np.unique(np.append(0, rows), return_inverse=True)  # one at least
    encoded = TableSource.of_fitted(fitted).encode(_safe_indexing(X, own))[places[1:]]
    return encoded.to(fitted.bank_.embeddings.device, torch.float64)


def _append_outputs(
    columns: dict[str, np.ndarray], fitted: Any, names: list[str], values: np.ndarray
) -> None:
    """Append parts (m, n_names, n_outputs) to a table, by output; of classes as log odds."""
    target_names = fitted.bank_.target_names
    if is_classifier(fitted):
        ends = fitted.targets_.ends_of_log_odds(target_names)
        values = fitted.targets_.log_odds(values)
    else:
        ends = ends_of_outputs(target_names, values.shape[2])
    for output, end in enumerate(ends):
        _append(columns, [name + end for name in names], values[..., output])


def _append(columns: dict[str, np.ndarray], names: list[str], values: np.ndarray) -> None:
    """Append columns (m, c) to a table; a name is marked where another column has it."""
    for name, column in zip(names, values.T, strict=True):
        columns[free_name(name, columns)] = column
