"""How much each column of a table has to do with an adjustment, or with a distance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing
from torch import Tensor

from .._data.names import ends_of_outputs, free_name, labels_of
from .._data.table_encoder import TableEncoder
from .._data.tables import gather_cells, labels_of_fit, read_again, stack_rows
from .._inference.attribution import exchange_in_turn, integrated_gradients
from .._inference.evaluation import Evaluation
from .._inference.explanation import Explanation
from .._inference.network_trend import NetworkTrend
from .._utils.frames import table
from .._utils.threads import cached_property
from ..embedding import WeightedFeatures
from .inputs import TableInput
from .queries import embedded, evaluate, explanation_of
from .side_by_side import checked_table, rows_of_bank

OTHER = "other"  # what no column moves: shrinkage, credibility, bounds, trends of other rows
INTERPLAY = "interplay"  # what columns move together, beside networks that are the trend


def adjustments_table(estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> Any:
    """Table of how each column moves a neighbour's target towards the query."""
    pairs = _Pairs.of(estimator, X, features, n_neighbors)
    pairs.check_adjusted()
    columns = pairs.found.columns()
    for output, end in enumerate(pairs.found.ends):
        targets, adjusted = pairs.found.targets[:, output], pairs.found.adjusted[:, output]
        moves, together = pairs.adjustments(output)
        rest = adjusted - targets - moves.sum(axis=1)
        columns[f"target{end}"] = targets
        _append(columns, [name + end for name in pairs.names], moves)
        if together is not None and len(pairs.names) > 1:
            _append(columns, [INTERPLAY + end], together[:, None])
            rest = rest - together
        _append(columns, [OTHER + end], rest[:, None])
        _append(columns, [f"adjusted_target{end}"], adjusted[:, None])
    return table(columns)


def distances_table(estimator: Any, X: Any, features: Any, n_neighbors: int | None) -> Any:
    """Table of the share of each column in the distance of a neighbour and a query."""
    pairs = _Pairs.of(estimator, X, features, n_neighbors)
    columns = pairs.found.columns()
    _append(columns, pairs.names, pairs.shares_of_distances())
    return table(columns)


def predictions_table(estimator: Any, X: Any) -> Any:
    """Table of what each column adds to predictions of numbers, beside their mean."""
    fitted, evaluation = evaluate(estimator, X)
    trend, bank = fitted.bank_.trend, fitted.bank_
    if not (isinstance(trend, NetworkTrend) and hasattr(fitted.features_, "source_")):
        raise ValueError(
            "attribute_predictions needs similarity='features', where predictions have an "
            f"additive part, got similarity_={getattr(fitted, 'similarity_', None)!r}"
        )
    inputs = bank.inputs if X is None else embedded(fitted, X).inputs
    function, weights = trend.additive_part, torch.from_numpy(trend.bank.row_weights)
    typical = (weights[:, None, None] * function.terms(bank.inputs.cpu())).mean(dim=0)
    parts = _by_column(fitted, function.terms(inputs.cpu()) - typical)
    means = (function.constant + typical.sum(dim=0)).numpy()
    predictions = evaluation.mean().reshape(len(evaluation), -1).cpu().numpy()
    labels = bank.names_of(slice(None)) if X is None else labels_of(X)
    columns = {"query": np.arange(len(predictions)) if labels is None else labels}
    names, ends = _column_names(fitted), ends_of_outputs(bank.target_names, predictions.shape[1])
    for output, end in enumerate(ends):
        own, whole = parts[..., output], predictions[:, output]
        rest = whole - means[output] - own.sum(axis=1)
        _append(columns, [f"mean{end}"], np.full((len(whole), 1), means[output]))
        _append(columns, [name + end for name in names], own)
        _append(columns, [INTERPLAY + end], rest[:, None])
        _append(columns, [f"prediction{end}"], whole[:, None])
    return table(columns)


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
                "attribute_adjustments needs adjusted neighbours: adjust must be True, or a trend "
                "given, and the targets those of fit, or in their unit"
            )

    def adjustments(self, output: int) -> tuple[np.ndarray, np.ndarray | None]:
        """How much each column moves an output's adjusted target, (p, n_columns).

        Beside networks that are the trend, also how much columns move it together, (p,).
        """
        sensitivity = self.evaluation.sensitivities()[self.found.of_query, ..., output]
        factors = self._network_shares()[..., None] * sensitivity
        of_networks, of_trend = factors[..., 0], factors[..., 1].sum(dim=1)
        trend, moves = self.fitted.bank_.trend, np.zeros((len(self.end), len(self.names)))
        if isinstance(trend, NetworkTrend):
            return self._prices(trend, of_trend, output)

        def of_g(x: Tensor, pairs: Tensor) -> Tensor:
            own = [head.adjustments(z)[:, output] for head, z in self._embed(x)]
            return (of_networks[pairs] * torch.stack(own, dim=1)).sum(dim=1)

        def of_f(x: Tensor, pairs: Tensor) -> Tensor:
            return of_trend[pairs] * trend(x)[:, output]

        if self._is_adjusted:
            moves += self._attribute(of_g)
        if trend is not None and trend.takes_table:
            moves += of_trend.cpu().numpy()[:, None] * self._moves_of_model[..., output]
        elif trend is not None:
            moves += self._attribute(of_f)
        return moves, None

    def _prices(
        self, trend: NetworkTrend, of_trend: Tensor, output: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What differences count in the additive part of a trend, and what it leaves.

        The same difference counts the same for each pair.
        """
        function = trend.additive_part
        start, end = (function.terms(x.cpu())[..., output] for x in (self.start, self.end))
        moves = _by_column(self.fitted, of_trend.cpu()[:, None] * (end - start))
        offset, at_rows = self.evaluation.offset, self.evaluation.neighbors.offset
        assert offset is not None
        assert at_rows is not None
        of_query, position = self.found.of_query, self.found.positions
        whole = offset[of_query, output] - at_rows.values[position, output]
        return moves, (of_trend * whole).cpu().numpy() - moves.sum(axis=1)

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
            return trend(gather_cells(both, cells)).numpy()

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
    encoded = TableInput(fitted).encode(_safe_indexing(X, own))[places[1:]]
    return encoded.to(fitted.bank_.embeddings.device, torch.float64)


def _append(columns: dict[str, np.ndarray], names: list[str], values: np.ndarray) -> None:
    """Append columns (m, c) to a table; a name is marked where another column has it."""
    for name, column in zip(names, values.T, strict=True):
        columns[free_name(name, columns)] = column
