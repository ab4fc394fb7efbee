"""Quantiles and cumulative probabilities of classes that have an order."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    NONAClassifier,
    ShardedNeighbors,
    SoftStepKNeighborsClassifier,
    load,
    save,
    save_shards,
    unwrap,
)
from nona_sklearn.metrics import ranked_probability_loss

pytestmark = pytest.mark.filterwarnings("ignore:y is an ordered categorical")

ORDER = ["poor", "fair", "good", "best"]  # not that of the alphabet
X = np.arange(8.0)[:, None]
LABELS = ["poor", "fair", "poor", "fair", "good", "good", "best", "fair"]


def categorical(labels=LABELS):
    return pd.Categorical(labels, ORDER, ordered=True)


def votes(n_neighbors=4):
    """A classifier whose probabilities are shares of the nearest rows."""
    return SoftStepKNeighborsClassifier(
        n_neighbors,
        weighting="uniform",
        learn_feature_weights=False,
        smoothing=False,
        trend=None,
        max_iter=1,
        random_state=0,
    )


def test_quantiles_and_cumulative_probabilities_on_paper():
    """Rows 0 to 3 vote poor, fair, poor, fair, and rows 4 to 7 good, good, best, fair."""
    clf = votes().fit(X, categorical())
    queries = [[1.5], [5.5]]
    np.testing.assert_allclose(
        clf.predict_cdf(queries), [[0.5, 1, 1, 1], [0, 0.25, 0.75, 1]], atol=1e-12
    )
    np.testing.assert_allclose(clf.predict_cdf(queries, "good"), [1, 0.75])
    np.testing.assert_allclose(clf.predict_cdf(queries, ["good", "fair"])[1], [0.75, 0.25])
    found = clf.predict_quantiles(queries, [0, 0.2, 0.6, 0.9, 1])
    assert found.tolist() == [
        ["poor", "poor", "fair", "fair", "fair"],
        ["fair", "fair", "good", "best", "best"],
    ]
    assert clf.predict_quantiles(queries, 0.6).tolist() == ["fair", "good"]
    assert clf.predict_quantiles(queries).shape == (2, 3)


@pytest.mark.parametrize("make", [votes, lambda: NONAClassifier(n_estimators=1, max_iter=3)])
def test_they_follow_the_probabilities(make):
    clf = make().fit(X, categorical())
    for queries, rule in ((X + 0.3, None), (None, np.eye(8, dtype=bool)[::-1] | (X < 5))):
        cdf = clf.predict_cdf(queries, eligibility=rule)
        expected = clf.predict_proba(queries, eligibility=rule).cumsum(axis=1)
        np.testing.assert_allclose(cdf, expected, atol=1e-12)
        assert (cdf[:, -1] == 1).all()
        levels = np.linspace(0.03, 0.99, 7)
        of_levels = clf.predict_quantiles(queries, levels, eligibility=rule)
        ranks = pd.Categorical(of_levels.ravel(), ORDER).codes.reshape(of_levels.shape)
        assert (np.take_along_axis(cdf, ranks, axis=1) >= levels).all()
        below = np.take_along_axis(np.pad(cdf, ((0, 0), (1, 0))), ranks, axis=1)
        assert (below < levels).all()


def test_every_kind_of_order():
    of_categories = votes().fit(X, categorical())
    expected = of_categories.predict_quantiles(X, 0.6)
    enum = votes().fit(X, pl.Series(LABELS, dtype=pl.Enum(ORDER)))
    assert enum.predict_quantiles(X, 0.6).tolist() == expected.tolist()
    numbers = categorical().codes.astype(int)
    of_numbers = votes().fit(X, numbers)
    assert np.take(ORDER, of_numbers.predict_quantiles(X, 0.6)).tolist() == expected.tolist()
    np.testing.assert_array_equal(of_numbers.predict_cdf(X), of_categories.predict_cdf(X))
    assert votes().fit(X, numbers > 0).predict_cdf(X, False).shape == (8,)


def test_the_order_is_kept_with_the_model(tmp_path):
    clf = votes().fit(X, categorical())
    expected = clf.predict_quantiles(X, 0.5)
    save(clf, tmp_path / "clf.safetensors")
    for again in (load(tmp_path / "clf.safetensors"), pickle.loads(pickle.dumps(clf))):
        assert again.predict_quantiles(X, 0.5).tolist() == expected.tolist()
    save_shards(clf, tmp_path / "shards", 2)
    sharded = ShardedNeighbors(tmp_path / "shards")
    assert sharded.predict_quantiles(X, 0.5).tolist() == expected.tolist()
    np.testing.assert_allclose(sharded.predict_cdf(X, "fair"), clf.predict_cdf(X, "fair"))


def test_inside_a_pipeline():
    plain = make_pipeline(StandardScaler(), votes()).fit(X, categorical())
    alone = votes().fit(StandardScaler().fit_transform(X), categorical())
    table = pd.DataFrame(X, columns=["a"])
    named = make_pipeline(StandardScaler(), votes()).fit(table, categorical())
    at = pd.Series(["good", "fair"])  # its index is not that of the queries
    expected = alone.predict_cdf(StandardScaler().fit_transform(X), at)
    np.testing.assert_allclose(unwrap(plain).predict_cdf(X, at), expected)
    np.testing.assert_allclose(unwrap(named).predict_cdf(table[:2], at), expected[:2])
    assert unwrap(plain).predict_quantiles(X, 0.5).shape == (8,)
    binary = FixedThresholdClassifier(votes(), threshold=0.9).fit(X, np.arange(8) > 3)
    assert unwrap(binary).predict_quantiles([[4.0]], 0.5).tolist() == [True]


def test_what_has_no_order_is_refused():
    clf = votes().fit(X, LABELS)
    for method in (clf.predict_quantiles, clf.predict_cdf):
        with pytest.raises(
            ValueError, match=r"classes with an order.*'best', 'fair'.*pd\.Categorical"
        ):
            method(X)
    several = votes().fit(X, np.stack([np.arange(8) > 3, np.arange(8) > 5], axis=1))
    with pytest.raises(ValueError, match="of one output, got 2"):
        several.predict_cdf(X)
    ordered = votes().fit(X, categorical())
    with pytest.raises(ValueError, match="y must hold classes of fit, got 'bad'"):
        ordered.predict_cdf(X, ["good", "bad"])
    with pytest.raises(ValueError, match="quantiles must be from 0 to 1, got 2"):
        ordered.predict_quantiles(X, 2)


def test_the_median_has_the_least_expected_distance():
    """And the loss of a sure prediction is its distance."""
    rng = np.random.RandomState(0)
    features = rng.normal(size=(120, 2))
    grade = np.digitize(features[:, 0] + 0.5 * rng.normal(size=120), [-1, 0, 1])
    clf = votes(9).fit(features[:80], grade[:80])
    proba, labels = clf.predict_proba(features[80:]), clf.classes_
    expected = proba @ abs(labels[:, None] - labels)  # (q, predicted label)
    median = clf.predict_quantiles(features[80:], 0.5)
    rank = np.searchsorted(labels, median)
    np.testing.assert_allclose(expected[range(40), rank], expected.min(axis=1), atol=1e-9)
    sure = ranked_probability_loss(grade[80:], np.eye(4)[rank], labels=labels)
    assert sure == pytest.approx(abs(median - grade[80:]).mean())
