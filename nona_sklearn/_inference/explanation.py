"""The rows behind a prediction, as a table: what each says, adjusted, and how much it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch

from .._utils.frames import table
from .evaluation import Evaluation

OTHERS = "others"
NOTHING = 1e-6  # of the weight: what rounding leaves where all neighbours are named


@dataclass(frozen=True)
class Explanation:
    """The heaviest neighbours of some queries and, last of each query, all others together.

    Parameters
    ----------
    positions : int ndarray of shape (q, k)
        Where the neighbours are in the bank, heaviest first.
    weights : ndarray of shape (q, k + 1)
        What they weigh.
    targets, adjusted : ndarray of shape (q, k + 1, n_outputs)
        Their values, as they are and as they were moved for this query. NaN for others that
        weigh nothing.
    contributions : ndarray of shape (q, k + 1, n_outputs)
        Their share in the prediction, which is the sum of them.
    names : ndarray of shape (q, k)
        What the neighbours are called.
    queries : ndarray of shape (q,)
        What the queries are called.
    others : str, default='others'
        What all others together are called.
    target_names : tuple of str, optional
        What the outputs are called.
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
    def of(cls, evaluation: Evaluation, k: int) -> Explanation:
        """Ask for the k heaviest neighbours of each query; all rows go by their numbers."""
        neighbors = evaluation.neighbors
        shape = len(evaluation), 1, neighbors.columns.shape[1]
        weights, positions, adjusted = evaluation.heaviest(k)
        targets = neighbors.columns[positions]
        plain = evaluation.plain_mean().reshape(shape)
        prediction = evaluation.mean().reshape(shape)

        left = 1 - weights.sum(dim=1, keepdim=True)  # (q, 1)
        left = torch.where(left > NOTHING, left, 0.0)
        shares = weights[..., None]
        contributions = shares * adjusted
        others = prediction - contributions.sum(dim=1, keepdim=True)
        mean = plain - (shares * targets).sum(dim=1, keepdim=True)
        mean, moved = (
            torch.where(left[..., None] > 0, total / left[..., None], torch.nan)
            for total in (mean, others)
        )
        rows = [
            (weights, left),
            (targets, mean),
            (adjusted, moved),
            (contributions, others),
        ]
        where = positions.cpu().numpy()
        parts = (torch.cat(row, dim=1).cpu().numpy() for row in rows)
        return cls(where, *parts, names=where, queries=np.arange(len(evaluation)))

    def in_units(self, back: Callable[[np.ndarray], np.ndarray]) -> Explanation:
        """Say it in other units, to which `back` turns values of shape (..., n_outputs).

        Contributions are weights times adjusted targets, as before. The others' is the rest of
        the prediction.
        """
        adjusted = back(self.adjusted)
        contributions = self.weights[..., None] * adjusted
        named = contributions[:, :-1].sum(axis=1)
        contributions[:, -1] = back(self.contributions.sum(axis=1)) - named
        targets = back(self.targets)
        return replace(self, targets=targets, adjusted=adjusted, contributions=contributions)

    def columns(self) -> dict[str, np.ndarray]:
        """Name the rows of a table: columns query, neighbor, weight, each (q * (k + 1),)."""
        n_queries, n_rows = self.weights.shape
        named = np.full((n_queries, n_rows), self.others, dtype=object)
        named[:, :-1] = self.names
        return {
            "query": np.repeat(self.queries, n_rows),
            "neighbor": named.ravel(),
            "weight": self.weights.ravel(),
        }

    def table(self) -> Any:
        """A row for each query and neighbour.

        Returns
        -------
        DataFrame, or Bunch of arrays without pandas
            Columns query, neighbor, weight, target, adjusted_target, contribution. With several
            outputs the last three end in their names, or numbers.
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
