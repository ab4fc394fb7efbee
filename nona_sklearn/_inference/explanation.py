"""The rows behind a prediction, as a table of targets, adjusted targets and contributions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.names import ends_of_outputs, free_name
from .evaluation import Evaluation

OTHERS, NETWORK, TREND = "others", "network", "trend"
TRANSFORMATION, QUERY = "transformation", "query"
LINES = "of_query", "positions", "names", "weights", "targets", "adjusted", "contributions"
NEGLIGIBLE = 1e-6  # share of a prediction that is only rounding


@dataclass(frozen=True)
class Explanation:
    """What some predictions consist of, in lines: query by query, the heaviest neighbours first.

    After its neighbours, a query has a line for all others together, if they have any weight,
    and lines for the rest of its prediction, if there is any.

    Parameters
    ----------
    of_query : int ndarray of shape (m,)
        Number of the query of each line, ascending.
    positions : int ndarray of shape (m,)
        Positions of the neighbours in the bank; -1 for a line that is no single row.
    names : object ndarray of shape (m,)
        Names of the neighbours.
    weights : ndarray of shape (m,)
        Their weights; those of a query sum to 1.
    targets, adjusted : ndarray of shape (m, n_outputs)
        Their targets and adjusted targets; NaN in a line without weight.
    contributions : ndarray of shape (m, n_outputs)
        Their contributions; those of a query sum to its prediction.
    queries : ndarray of shape (q,)
        Names of the queries.
    taken : collection, default=()
        Names of the bank's rows, which no other line may have.
    target_names : tuple of str, optional
        Names of the outputs.
    own_rows : int ndarray of shape (q,), optional
        Positions of the rows of the bank that the queries are; -1: it is none.
    """

    of_query: np.ndarray
    positions: np.ndarray
    names: np.ndarray
    weights: np.ndarray
    targets: np.ndarray
    adjusted: np.ndarray
    contributions: np.ndarray
    _: KW_ONLY
    queries: np.ndarray
    taken: Collection[Hashable] = ()
    target_names: tuple[str, ...] | None = None
    own_rows: np.ndarray | None = None

    @classmethod
    def of(
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

        With `votes`, a neighbour contributes its weight to its own class, the line "network" is
        the difference between the networks' prediction and all votes, and the line "trend" that
        between the prediction and the networks'. `names` are those of all rows.
        """
        if k is None:
            k = max(evaluation.support_sizes().tolist(), default=1)
        weights, positions, adjusted = evaluation.heaviest(k)
        weights, left = _share_out(weights)
        targets = evaluation.neighbors.columns[positions]
        adjusted = targets if votes else adjusted
        listed = weights > 0
        of_query, where = _array(listed.nonzero()[:, 0]), _array(positions[listed])
        found = cls(
            of_query,
            where,
            (where if names is None else names[where]).astype(object),
            _array(weights[listed]),
            _array(targets[listed]),
            _array(adjusted[listed]),
            _array((weights[..., None] * adjusted)[listed]),
            queries=np.arange(len(evaluation)) if queries is None else queries,
            taken=taken,
            target_names=target_names,
        )._with_others(evaluation, _array(left), votes)
        return found._with_rest(evaluation) if votes else found

    def _with_others(self, evaluation: Evaluation, left: np.ndarray, votes: bool) -> Explanation:
        """Add a line for all others of each query that leaves them some weight, (q,)."""
        some = np.flatnonzero(left)
        if not len(some):
            return self
        left = left[some, None]
        plain = _array(evaluation[some].plain_mean()).reshape(len(some), -1)
        whole = plain if votes else _array(evaluation[some].mean()).reshape(len(some), -1)
        rest = whole - self.totals(self.contributions)[some]
        targets = plain - self.totals(self.weights[:, None] * self.targets)[some]
        adjusted = evaluation.one_head.within_bounds(torch.from_numpy(rest / left))
        return self._with_lines(
            *(OTHERS, some, rest),
            weights=left[:, 0],
            targets=targets / left,
            adjusted=adjusted.numpy(),
        )

    def _with_rest(self, evaluation: Evaluation) -> Explanation:
        """Add lines for what the probabilities of each query hold beside its votes."""
        found, steps = self, {NETWORK: evaluation}
        if evaluation.offset is not None:
            steps = {NETWORK: evaluation.without_trend(), TREND: evaluation}
        for name, each in steps.items():
            added = _array(each.mean()) - found.totals(found.contributions)
            some = np.flatnonzero((abs(added) > NEGLIGIBLE).any(axis=1))
            found = found._with_lines(name, some, added[some])
        return found

    def of_single_rows(self) -> Explanation:
        """The same without the lines that are no single row."""
        kept = self.of_rows
        return replace(self, **{name: getattr(self, name)[kept] for name in LINES})

    def in_units(self, inverse: Callable[[np.ndarray], np.ndarray]) -> Explanation:
        """Transform values of shape (m, n_outputs) to other units by `inverse`.

        Contributions remain weights times adjusted targets. The difference between the
        prediction, which is transformed as a whole, and their sum is a line "transformation".
        """
        adjusted = inverse(self.adjusted)
        found = replace(
            self,
            targets=inverse(self.targets),
            adjusted=adjusted,
            contributions=self.weights[:, None] * adjusted,
        )
        prediction = inverse(self.totals(self.contributions))
        rest = prediction - found.totals(found.contributions)
        rounding = NEGLIGIBLE * found.totals(abs(found.contributions))
        some = np.flatnonzero((abs(rest) > rounding).any(axis=1))
        return found._with_lines(TRANSFORMATION, some, rest[some])

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
        """Add a line to some queries, after their others or before them."""
        n_lines = len(of_query)
        names = np.full(n_lines, free_name(name, self.taken), dtype=object)
        unknown = np.full((n_lines, self.targets.shape[1]), np.nan)
        more: dict[str, Any] = {
            "of_query": of_query,
            "positions": np.full(n_lines, -1),
            "names": names,
            "weights": np.zeros(n_lines),
            "targets": unknown,
            "adjusted": unknown,
            "contributions": contributions,
        } | values
        parts = [more, vars(self)] if first else [vars(self), more]
        order = np.argsort(np.concatenate([each["of_query"] for each in parts]), kind="stable")
        joined: dict[str, Any] = {
            name: np.concatenate([each[name] for each in parts])[order] for name in LINES
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

    @property
    def ends(self) -> list[str]:
        """Ends of the names of columns of each output: its name or number, of several."""
        return ends_of_outputs(self.target_names, self.targets.shape[1])

    def target_columns(self) -> dict[str, np.ndarray]:
        """Columns target, adjusted_target and contribution of a table, (m,) each.

        With several outputs, they end in the outputs' names or numbers.
        """
        named = [
            ("target", self.targets),
            ("adjusted_target", self.adjusted),
            ("contribution", self.contributions),
        ]
        return {
            name + end: column
            for name, values in named
            for end, column in zip(self.ends, values.T, strict=True)
        }


def _share_out(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (q, k), and what they leave to all others, (q,); without others, they sum to 1."""
    total = weights.sum(dim=1, keepdim=True)
    left = torch.where((total > 0) & (1 - total > NEGLIGIBLE), 1 - total, 0.0)
    # What is left by rounding to float32 belongs to the neighbours themselves.
    return torch.where(left > 0, weights, weights / total), left[:, 0]


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().numpy()
