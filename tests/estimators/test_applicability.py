"""How usual the distance of a query is, beside those of stored rows from each other."""

import numpy as np
import pandas as pd
import pytest

from nona_sklearn import (
    NeighborsReport,
    NONAClassifier,
    ShardedNeighbors,
    SoftStepKNeighborsRegressor,
    save_shards,
)
from nona_sklearn.eligibility import same

AREAS = np.array([[50.0], [60.0], [80.0], [90.0], [120.0]])
PRICES = np.array([250.0, 300.0, 400.0, 450.0, 600.0])


def knn(n_neighbors=2):
    """Distances are those of the features as they are."""
    return SoftStepKNeighborsRegressor(
        n_neighbors, weighting="uniform", learn_feature_weights=False, trend=None, max_iter=1
    )


def applicability(estimator, X, **kwargs):
    return estimator.neighborhood(X, **kwargs)["applicability"].tolist()


def test_on_paper():
    """Rows are 10, 10, 10, 10 and 30 from their nearest, and queries 4, 10, 20, 30 and 80."""
    reg = knn().fit(AREAS, PRICES)
    queries = [[84], [70], [140], [150], [200]]
    expected = np.array([6, 6, 2, 2, 1]) / 6
    np.testing.assert_allclose(applicability(reg, queries), expected)
    np.testing.assert_allclose(applicability(reg, None), np.array([6, 6, 6, 6, 2]) / 6)
    assert applicability(knn(1).fit(AREAS, PRICES).remove_neighbors(ids=[1, 2, 3, 4]), [[9]]) == [
        1
    ]


def test_an_edit_changes_what_is_usual():
    reg = knn().fit(AREAS, PRICES)
    reg.add_neighbors([[121], [122]], [600, 600])  # nearest rows: 10, 10, 10, 10, 1, 1, 1
    np.testing.assert_allclose(applicability(reg, [[52], [127]]), [5 / 8, 5 / 8])
    reg.remove_neighbors(ids=[0, 1, 2, 3])  # 1, 1, 1
    np.testing.assert_allclose(applicability(reg, [[52]]), [1 / 4])


@pytest.mark.parametrize("n_rows", [200, 1200])  # all, and a sample
def test_it_is_a_p_value(n_rows):
    """Of queries that are like the rows, a share of p has an applicability up to p."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(n_rows, 3))
    reg = knn().fit(X, X[:, 0])
    found = np.array(applicability(reg, rng.normal(size=(1000, 3))))
    for level in (0.05, 0.2, 0.5, 0.8):
        assert abs(np.mean(found <= level) - level) < 0.05
    assert max(applicability(reg, X[:5] + 10)) < 0.01


def test_rows_are_compared_without_their_groups():
    """A patient's visits are alike, and a new patient is not like any of them."""
    rng = np.random.RandomState(0)
    patients = np.repeat(np.arange(60), 4)
    X = rng.normal(size=(60, 2))[patients] + 1e-3 * rng.normal(size=(240, 2))
    new = rng.normal(size=(200, 2))
    alone = knn().fit(X, X[:, 0])
    grouped = knn().fit(X, X[:, 0], groups=patients)
    assert np.mean(np.array(applicability(alone, new)) < 0.05) > 0.9
    assert np.mean(np.array(applicability(grouped, new)) < 0.05) < 0.15


def test_rows_are_compared_under_the_rule_of_the_queries():
    """Of one town, rows are 30, 30 and 40 apart, of the second 30 and 30."""
    X = pd.DataFrame({"area": AREAS[:, 0], "town": ["a", "b", "a", "b", "a"]})
    query = pd.DataFrame({"area": [100.0, 85.0], "town": ["b", "a"]})
    rule = same("town")
    reg = knn(1).fit(X[["area", "town"]], PRICES, eligibility=rule)
    distance = reg.neighborhood(None)["distance"].to_numpy()
    queried = reg.neighborhood(query)
    expected = [(1 + np.sum(distance >= d)) / 6 for d in queried["distance"]]
    np.testing.assert_allclose(queried["applicability"], expected)
    mask = np.zeros((2, 5), dtype=bool)
    mask[:, 0] = True  # all that the queries may see is far away
    masked = reg.neighborhood(query, eligibility=mask)
    expected = [(1 + np.sum(distance >= d)) / 6 for d in masked["distance"]]
    np.testing.assert_allclose(masked["applicability"], expected)


def test_queries_and_rows_without_an_earlier_row():
    """Rows 1 to 4 are 10, 20, 10 and 30 from an earlier one; no row is earlier than the first."""
    X = pd.DataFrame({"area": AREAS[:, 0], "day": range(5)})
    reg = knn(1).fit(X, PRICES, times="day")
    queries = pd.DataFrame({"area": [50.0, 95.0], "day": [0, 9]})
    table = reg.neighborhood(queries)
    own = reg.neighborhood(None)["distance"].to_numpy()
    assert np.isinf(own[0])
    assert table["applicability"][0] == pytest.approx(1 / 5)
    expected = (1 + np.sum(own[1:] >= table["distance"][1])) / 5
    assert table["applicability"][1] == pytest.approx(expected)


def test_shards_compare_all_rows(tmp_path):
    X = np.random.RandomState(0).normal(size=(60, 3))
    reg = knn().fit(X, X[:, 0])
    save_shards(reg, tmp_path / "bank", 3)
    sharded = ShardedNeighbors(tmp_path / "bank")
    assert applicability(sharded, X[:5] + 0.3) == applicability(reg, X[:5] + 0.3)


def test_a_report_says_that_a_query_is_unusual():
    X = pd.DataFrame(np.random.RandomState(0).normal(size=(60, 2)), columns=["a", "b"])
    clf = NONAClassifier(n_estimators=1, max_iter=2, random_state=0).fit(X, X["a"] > 0)
    far, near = X[:1] + 20, X[:1] + 1e-3
    assert applicability(clf, far) == [1 / 61]
    assert "An unusual case: 98%" in NeighborsReport(clf, far)._repr_html_()
    assert "A typical case: 100%" in NeighborsReport(clf, near)._repr_html_()
