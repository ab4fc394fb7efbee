"""The rows behind a prediction, as a table: what each says, adjusted, and how much it counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import Bunch

from ._question import Question

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
    """

    positions: np.ndarray
    weights: np.ndarray
    targets: np.ndarray
    adjusted: np.ndarray
    contributions: np.ndarray

    @classmethod
    def of(cls, question: Question, k: int) -> Explanation:
        """Ask for the k heaviest neighbours of each query."""
        neighbors = question.neighbors
        shape = len(question), 1, neighbors.columns.shape[1]
        weights, positions, adjusted = question.heaviest(k)
        targets = neighbors.columns[positions]
        plain = replace(question, neighbors=replace(neighbors, unit=None)).mean().reshape(shape)
        prediction = question.mean().reshape(shape)

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
        return cls(positions.cpu().numpy(), *(torch.cat(row, 1).cpu().numpy() for row in rows))

    def table(self, queries: np.ndarray, neighbors: np.ndarray) -> Any:
        """A row for each query and neighbour.

        Parameters
        ----------
        queries : ndarray of shape (q,)
            What the queries are called.
        neighbors : ndarray of shape (q, k)
            What the neighbours are called.

        Returns
        -------
        DataFrame, or Bunch of arrays without pandas
            Columns query, neighbor, weight, target, adjusted_target, contribution.
        """
        n_queries, n_rows = self.weights.shape
        named = np.full((n_queries, n_rows), OTHERS, dtype=object)
        named[:, :-1] = neighbors
        columns = {
            "query": np.repeat(queries, n_rows),
            "neighbor": named.ravel(),
            "weight": self.weights.ravel(),
        }
        for name, values in [
            ("target", self.targets),
            ("adjusted_target", self.adjusted),
            ("contribution", self.contributions),
        ]:
            outputs = values.reshape(n_queries * n_rows, -1).T
            for j, column in enumerate(outputs):
                columns[name if len(outputs) == 1 else f"{name}_{j}"] = column
        try:
            import pandas as pd
        except ImportError:
            return Bunch(**columns)
        return pd.DataFrame(columns)
