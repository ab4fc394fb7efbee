"""How steady the rows behind a prediction are, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.sample import Embedded
from .._estimators.stability import is_refitted

SUBSAMPLE = 0.9  # of the rows, in each refit
AGAIN = 0.9  # of the refits that contain a row: it counts as named again
#: A row is steady that more refits name than not: stability selection bounds the rows that are
#: selected in error for such thresholds alone.
STEADY = 0.5


@dataclass(frozen=True)
class Stability:
    """How steady the rows behind a prediction are.

    Parameters
    ----------
    n_neighbors : int
        How many heaviest rows are compared.
    trials : str
        What they are compared in.
    n_containing : int ndarray of shape (n_rows,)
        The number of refits that contain each row shown.
    frequencies : ndarray of shape (n_rows,)
        The share of these that name it again.
    """

    n_neighbors: int
    trials: str
    n_containing: np.ndarray
    frequencies: np.ndarray

    @classmethod
    def of(cls, model: Any, query: Embedded, n_refits: int, n_neighbors: int) -> Stability:
        """Compare the heaviest rows of a query in refits or, in a learned space, networks."""
        found = model.neighbor_stability(
            query, n_refits=n_refits, subsample=SUBSAMPLE, n_neighbors=n_neighbors
        )
        n_containing = np.asarray(found["n_refits"])
        trials = f"{n_containing.max()} networks"
        if is_refitted(model.estimator):
            units = "rows" if model.estimator.bank_.groups is None else "groups"
            trials = f"{n_refits} refits, each to {SUBSAMPLE:.0%} of the {units}"
        frequencies = np.asarray(found["selection_frequency"])
        return cls(n_neighbors, trials, n_containing, frequencies)

    @property
    def is_steady(self) -> bool:
        """Whether at least half of the rows are steady."""
        return bool(np.mean(self.frequencies > STEADY) >= 0.5)

    @property
    def sentence(self) -> str:
        """How many rows are named again."""
        n_rows, most = len(self.frequencies), f"the {self.n_neighbors} heaviest"
        if n_rows == 1:
            again = "again the heaviest" if self.n_neighbors == 1 else f"again among {most}"
            if not self.is_steady:
                return (
                    f"The row is not steady: it is {again} in at most half of {self.trials}. "
                    "Another may stand in its place."
                )
            this = "this row is" if self.frequencies[0] >= AGAIN else "this row is not"
            return (
                f"In {self.trials}, {this} {again} in at least {AGAIN:.0%} of those that contain "
                "it."
            )
        if not self.is_steady:
            n_steady = np.sum(self.frequencies > STEADY)
            return (
                f"The rows are not steady: only {n_steady} of these {n_rows} are again among "
                f"{most} in most of {self.trials}. Others may stand in their place."
            )
        n_again = np.sum(self.frequencies >= AGAIN)
        return (
            f"In {self.trials}, {n_again} of these {n_rows} rows are again among {most} in at "
            f"least {AGAIN:.0%} of those that contain them."
        )

    def cells(self, n_shown: int) -> list[str]:
        """In how many refits each row is named again, in cells for so many lines."""
        n_named = np.nan_to_num(self.frequencies * self.n_containing).round().astype(int)
        cells = [f"{n} of {of}" for n, of in zip(n_named, self.n_containing, strict=True)]
        return cells + [""] * (n_shown - len(cells))
