"""The rows behind a prediction, as a table of targets, adjusted targets and contributions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._data.tables import ends_of_outputs
from ._inference.evaluation import Evaluation
from ._utils.tables import free_name

OTHERS, NETWORK, TREND = "others", "network", "trend"  # names of lines that are no single row
TRANSFORMATION, QUERY = "transformation", "query"
LINE_FIELDS = "of_query", "positions", "names", "weights", "targets", "adjusted", "contributions"
NEGLIGIBLE = 1e-6  # share of a prediction that is only rounding


@dataclass(frozen=True)
class Explanation:
    """What some predictions consist of, in lines: query by query, the heaviest neighbours first.

    After its neighbours, a query has a line for all remaining rows together, if they have any
    weight, and lines for the rest of its prediction, if there is any.

    Weights of a query sum to 1, contributions to its prediction. Targets are NaN in a line without
    weight.
    """

    of_query: np.ndarray  # (m,), number of the query of each line, ascending
    positions: np.ndarray  # (m,), of the neighbours in the bank; -1 of a line that is no row
    names: np.ndarray  # (m,), objects
    weights: np.ndarray  # (m,)
    targets: np.ndarray  # (m, n_outputs)
    adjusted: np.ndarray  # (m, n_outputs), the targets as they are adjusted
    contributions: np.ndarray  # (m, n_outputs)
    _: KW_ONLY
    queries: np.ndarray  # (q,), names of the queries
    taken: Collection[Hashable] = ()  # names of the bank's rows, which no additional line may have
    target_names: tuple[str, ...] | None = None
    stored_positions: np.ndarray | None = None  # (q,), of queries in the bank; -1 of new ones

    @classmethod
    def from_evaluation(
        cls,
        evaluation: Evaluation,
        k: int | None = None,
        *,
        votes: bool = False,
        names: np.ndarray | None = None,
        queries: np.ndarray | None = None,
        taken: Collection[Hashable] = (),
        target_names: tuple[str, ...] | None = None,
    ) -> Explanation:
        """Explain predictions by at most k neighbours each; None: by all that have weight.

        With `votes`, a neighbour contributes its weight to its class, the line "network" is the
        difference between the networks' prediction and all votes, and the line "trend" that
        between the prediction and the networks'. `names` are the names of all rows.
        """
        if k is None:
            k = max(evaluation.support_sizes().tolist(), default=1)
        weights, positions, adjusted = evaluation.heaviest(k)
        total = weights.sum(dim=1, keepdim=True)
        left = torch.where((total > 0) & (1 - total > NEGLIGIBLE), 1 - total, 0.0)
        # What is left by rounding to float32 belongs to the neighbours themselves.
        weights = torch.where(left > 0, weights, weights / total)
        targets = evaluation.neighbors.columns[positions]
        adjusted = targets if votes else adjusted
        listed = weights > 0
        of_query, rows = _array(listed.nonzero()[:, 0]), _array(positions[listed])
        explanation = cls(
            of_query,
            rows,
            (rows if names is None else names[rows]).astype(object),
            _array(weights[listed]),
            _array(targets[listed]),
            _array(adjusted[listed]),
            _array((weights[..., None] * adjusted)[listed]),
            queries=np.arange(len(evaluation)) if queries is None else queries,
            taken=taken,
            target_names=target_names,
        )
        explanation = explanation._with_others(evaluation, _array(left[:, 0]), votes)
        if not votes:
            return explanation
        if evaluation.offset is not None:
            networks = evaluation.without_trend()
            explanation = explanation._with_rest(NETWORK, _array(networks.mean()))
        name = NETWORK if evaluation.offset is None else TREND
        return explanation._with_rest(name, _array(evaluation.mean()))

    def _with_others(self, evaluation: Evaluation, left: np.ndarray, votes: bool) -> Explanation:
        """Add a line for all remaining rows of each query that leaves them some weight, (q,)."""
        queries = np.flatnonzero(left)
        if not len(queries):
            return self
        left = left[queries, None]
        plain = _array(evaluation[queries].plain_mean()).reshape(len(queries), -1)
        mean = plain if votes else _array(evaluation[queries].mean()).reshape(len(queries), -1)
        contributions = mean - self.totals(self.contributions)[queries]
        targets = plain - self.totals(self.weights[:, None] * self.targets)[queries]
        adjusted = evaluation.one_head.within_bounds(torch.from_numpy(contributions / left))
        return self._with_lines(
            OTHERS,
            queries,
            contributions,
            weights=left[:, 0],
            targets=targets / left,
            adjusted=adjusted.numpy(),
        )

    def _with_rest(
        self, name: str, predictions: np.ndarray, negligible: float | np.ndarray = NEGLIGIBLE
    ) -> Explanation:
        """Add a line for what is left of predictions (q, n_outputs), unless it is negligible."""
        rest = predictions - self.totals(self.contributions)
        queries = np.flatnonzero((abs(rest) > negligible).any(axis=1))
        return self._with_lines(name, queries, rest[queries])

    def of_single_rows(self) -> Explanation:
        """The same without the lines that are no single row."""
        return replace(self, **{name: getattr(self, name)[self.of_rows] for name in LINE_FIELDS})

    def in_units(self, inverse: Callable[[np.ndarray], np.ndarray]) -> Explanation:
        """Transform values of shape (m, n_outputs) to other units by `inverse`.

        Contributions remain weights times adjusted targets. The difference between the
        prediction, which is transformed as a whole, and their sum is a line "transformation".
        """
        adjusted = inverse(self.adjusted)
        contributions = self.weights[:, None] * adjusted
        targets = inverse(self.targets)
        made = replace(self, targets=targets, adjusted=adjusted, contributions=contributions)
        rounding = NEGLIGIBLE * made.totals(abs(contributions))
        predictions = inverse(self.totals(self.contributions))
        return made._with_rest(TRANSFORMATION, predictions, rounding)

    def with_queries(self) -> Explanation:
        """Add a first line for each query itself, which contributes nothing."""
        of_query = np.arange(len(self.queries))
        nothing = np.zeros((len(of_query), self.targets.shape[1]))
        return self._with_lines(QUERY, of_query, nothing, first=True)

    def _with_lines(
        self,
        name: str,
        of_query: np.ndarray,
        contributions: np.ndarray,
        *,
        first: bool = False,
        **values: np.ndarray,
    ) -> Explanation:
        """Add a line to some queries, before or after the lines that they have."""
        n_lines = len(of_query)
        gaps = np.full((n_lines, self.targets.shape[1]), np.nan)
        lines: dict[str, Any] = {
            "of_query": of_query,
            "positions": np.full(n_lines, -1),
            "names": np.full(n_lines, free_name(name, self.taken), dtype=object),
            "weights": np.zeros(n_lines),
            "targets": gaps,
            "adjusted": gaps,
            "contributions": contributions,
        } | values
        parts = [lines, vars(self)] if first else [vars(self), lines]
        order = np.argsort(np.concatenate([part["of_query"] for part in parts]), kind="stable")
        joined: dict[str, Any] = {
            field: np.concatenate([part[field] for part in parts])[order] for field in LINE_FIELDS
        }
        return replace(self, **joined)

    @property
    def of_rows(self) -> np.ndarray:
        """Which lines are single rows of the bank, bool (m,)."""
        return self.positions >= 0

    @property
    def first_lines(self) -> np.ndarray:
        """The first line of each query, int (q,)."""
        return np.searchsorted(self.of_query, np.arange(len(self.queries)))

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sum values (m, c) over the lines of each query, (q, c)."""
        sums = np.zeros((len(self.queries), values.shape[1]))
        np.add.at(sums, self.of_query, values)
        return sums

    def columns(self) -> dict[str, np.ndarray]:
        """Columns query, neighbor and weight of a table, (m,) each."""
        return {
            "query": self.queries[self.of_query],
            "neighbor": self.names,
            "weight": self.weights,
        }

    def target_columns(self) -> dict[str, np.ndarray]:
        """Columns target, adjusted_target and contribution of a table, (m,) each.

        With several outputs, they end in the outputs' names or numbers.
        """
        ends = ends_of_outputs(self.target_names, self.targets.shape[1])
        kinds = {
            "target": self.targets,
            "adjusted_target": self.adjusted,
            "contribution": self.contributions,
        }
        return {
            name + end: column
            for name, values in kinds.items()
            for end, column in zip(ends, values.T, strict=True)
        }


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().numpy()
