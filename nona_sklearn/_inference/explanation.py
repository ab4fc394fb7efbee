"""The rows behind a prediction, as a table of targets, adjusted targets and contributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch

from .._utils.frames import table
from .evaluation import Evaluation

OTHERS = "others"
NEGLIGIBLE = 1e-6  # weight of the others that is only rounding


@dataclass(frozen=True)
class Explanation:
    """The heaviest neighbours of some queries and, last for each query, all others together.

    Parameters
    ----------
    positions : int ndarray of shape (q, k)
        Positions of the neighbours in the bank, heaviest first.
    weights : ndarray of shape (q, k + 1)
        Their weights.
    targets, adjusted : ndarray of shape (q, k + 1, n_outputs)
        Their targets and adjusted targets. NaN for others without weight.
    contributions : ndarray of shape (q, k + 1, n_outputs)
        Their contributions to the prediction, which is the sum of them.
    names : ndarray of shape (q, k)
        Names of the neighbours.
    queries : ndarray of shape (q,)
        Names of the queries.
    others : str, default='others'
        Name of all others together.
    target_names : tuple of str, optional
        Names of the outputs.
    """

    positions: np.ndarray
    weights: np.ndarray
    targets: np.ndarray
    adjusted: np.ndarray
    contributions: np.ndarray
    _: KW_ONLY
    names: np.ndarray
    queries: np.ndarray
    others: str = OTHERS
    target_names: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        evaluation: Evaluation,
        k: int,
        *,
        names: np.ndarray | None = None,
        queries: np.ndarray | None = None,
        **labels: Any,
    ) -> Explanation:
        """Explain predictions by k neighbours each; `names` are those of all rows."""
        neighbors = evaluation.neighbors
        shape = len(evaluation), 1, neighbors.columns.shape[1]
        weights, positions, adjusted = evaluation.heaviest(k)
        targets = neighbors.columns[positions]
        plain = evaluation.plain_mean().reshape(shape)
        prediction = evaluation.mean().reshape(shape)

        left = 1 - weights.sum(dim=1, keepdim=True)  # (q, 1)
        left = torch.where(left > NEGLIGIBLE, left, 0.0)
        contributions = weights[..., None] * adjusted
        others = prediction - contributions.sum(dim=1, keepdim=True)
        others_target = plain - (weights[..., None] * targets).sum(dim=1, keepdim=True)
        target, moved = (
            torch.where(left[..., None] > 0, total / left[..., None], torch.nan)
            for total in (others_target, others)
        )
        pairs = [(weights, left), (targets, target), (adjusted, moved), (contributions, others)]
        where = positions.cpu().numpy()
        return cls(
            where,
            *(torch.cat(pair, dim=1).cpu().numpy() for pair in pairs),
            names=where if names is None else names[where],
            queries=np.arange(len(evaluation)) if queries is None else queries,
            **labels,
        )

    def in_units(self, inverse: Callable[[np.ndarray], np.ndarray]) -> Explanation:
        """Transform values of shape (..., n_outputs) to other units by `inverse`.

        Contributions remain weights times adjusted targets, and sum to the prediction.
        """
        adjusted = inverse(self.adjusted)
        contributions = self.weights[..., None] * adjusted
        named = contributions[:, :-1].sum(axis=1)
        contributions[:, -1] = inverse(self.contributions.sum(axis=1)) - named
        targets = inverse(self.targets)
        return replace(self, targets=targets, adjusted=adjusted, contributions=contributions)

    def columns(self) -> dict[str, np.ndarray]:
        """Columns query, neighbor and weight of a table, each (q * (k + 1),)."""
        n_queries, n_rows = self.weights.shape
        named = np.full((n_queries, n_rows), self.others, dtype=object)
        named[:, :-1] = self.names
        return {
            "query": np.repeat(self.queries, n_rows),
            "neighbor": named.ravel(),
            "weight": self.weights.ravel(),
        }

    def table(self) -> Any:
        """A DataFrame, or a Bunch without pandas, with a row for each query and neighbour.

        Its columns are query, neighbor, weight, target, adjusted_target and contribution. With
        several outputs the last three end in their names or numbers.
        """
        columns, n_outputs = self.columns(), self.targets.shape[2]
        outputs = self.target_names or range(n_outputs)
        ends = [""] if n_outputs == 1 else [f"_{output}" for output in outputs]
        for name, values in [
            ("target", self.targets),
            ("adjusted_target", self.adjusted),
            ("contribution", self.contributions),
        ]:
            for end, column in zip(ends, np.moveaxis(values, 2, 0), strict=True):
                columns[name + end] = column.ravel()
        return table(columns)
