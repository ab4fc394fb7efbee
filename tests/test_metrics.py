"""Metrics."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, make_scorer

from nona_sklearn.metrics import ranked_probability_loss

ORDER = ["low", "mid", "high"]


def test_on_paper():
    """Of (0.2, 0.5, 0.3), the sums are 0.2 and 0.7; of the class mid, they are 0 and 1."""
    proba = [[0.2, 0.5, 0.3]]
    assert ranked_probability_loss(["mid"], proba, labels=ORDER) == pytest.approx(0.04 + 0.09)
    assert ranked_probability_loss(["low"], proba, labels=ORDER) == pytest.approx(0.64 + 0.09)
    both = ranked_probability_loss([1, 0], proba * 2, labels=[0, 1, 2], sample_weight=[1, 3])
    assert both == pytest.approx((0.13 + 3 * 0.73) / 4)


def test_of_two_classes_it_is_the_brier_score():
    y, p = [0, 1, 1, 0], np.array([0.1, 0.8, 0.4, 0.6])
    expected = brier_score_loss(y, p)
    assert ranked_probability_loss(y, p) == pytest.approx(expected)
    assert ranked_probability_loss(y, np.stack([1 - p, p], axis=1)) == pytest.approx(expected)


def test_it_is_proper():
    """Nothing has a smaller expected loss than the true probabilities."""
    rng = np.random.RandomState(0)
    true = rng.dirichlet(np.ones(4))

    def expected(proba):
        losses = [ranked_probability_loss([c], [proba], labels=range(4)) for c in range(4)]
        return true @ losses

    assert all(expected(true) < expected(rng.dirichlet(np.ones(4))) for _ in range(20))


@pytest.mark.parametrize(
    "y",
    [
        pd.Categorical(["mid", "low"], ORDER, ordered=True),
        pd.Series(pd.Categorical(["mid", "low"], ORDER, ordered=True)),
        pl.Series(["mid", "low"], dtype=pl.Enum(ORDER)),
    ],
)
def test_a_categorical_brings_its_order(y):
    """Even the categories that are not in it."""
    proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]
    expected = ranked_probability_loss([1, 0], proba, labels=[0, 1, 2])
    assert ranked_probability_loss(y, proba, labels=ORDER) == expected


@pytest.mark.parametrize("n_classes", [2, 3])
def test_as_a_scorer(n_classes):
    X = np.random.RandomState(0).normal(size=(60, 2))
    y = np.digitize(X[:, 0], np.arange(n_classes - 1))
    model = LogisticRegression().fit(X, y)
    scorer = make_scorer(
        ranked_probability_loss, response_method="predict_proba", greater_is_better=False
    )
    assert scorer(model, X, y) == -ranked_probability_loss(y, model.predict_proba(X))


@pytest.mark.parametrize(
    ("y", "proba", "labels", "message"),
    [
        (["low"], [[0.5, 0.5]], None, "labels must be given for labels without a sorted order"),
        (["bad"], [[0.5, 0.5]], ["low", "mid"], r"got \['low', 'mid'\] without 'bad'"),
        ([0, 1], [[0.5, 0.5, 0.0]] * 2, None, r"each of the labels \[0, 1\], got 3"),
        ([0, 1], [[0.5, 1.0], [0.5, 1.0]], None, "every row sums to 1"),
        ([0, 1], [[-0.5, 1.5], [0.5, 0.5]], None, "every row sums to 1"),
        ([0, 1], [[0.5, 0.5]], None, "inconsistent numbers of samples"),
        ([0, 1], [[np.nan, 0.5], [0.5, 0.5]], None, "y_proba contains NaN"),
    ],
)
def test_wrong_arguments(y, proba, labels, message):
    with pytest.raises(ValueError, match=message):
        ranked_probability_loss(y, proba, labels=labels)


def test_columns_in_sorted_order_are_put_in_the_order_of_categories():
    """As of scikit-learn's classifiers: "high", "low", "mid"."""
    y = pd.Categorical(["low", "high"], categories=["low", "mid", "high"], ordered=True)
    proba = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    loss = ranked_probability_loss(y, proba, labels=["high", "low", "mid"])
    assert loss == (0.5**2 + 0) / 2
    assert loss == ranked_probability_loss(y, proba[:, [1, 2, 0]], labels=["low", "mid", "high"])
    with pytest.raises(ValueError, match="labels must be given for labels without a sorted order"):
        ranked_probability_loss(y, proba)


def test_labels_may_not_repeat():
    with pytest.raises(ValueError, match=r"labels must hold each label once, got \[0, 1, 1\]"):
        ranked_probability_loss([0, 1], [[0.5, 0.25, 0.25]] * 2, labels=[0, 1, 1])
