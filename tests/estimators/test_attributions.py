"""Attributions: how much each column moves a target, or keeps two rows apart."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inner.estimators import integrated_gradients
from scipy import sparse

from nona_sklearn import (
    MLPEmbedding,
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
)

PAIR = ["query", "neighbor", "weight"]


@pytest.fixture(scope="module")
def flats():
    """A raw table of 150 flats: their rents, and 5 more flats."""
    random = np.random.RandomState(0)
    X = pd.DataFrame(
        {
            "area": random.uniform(20, 120, 155),
            "district": pd.Categorical(random.choice(["north", "south", "west"], 155)),
            "built": pd.to_datetime("1990-01-01")
            + pd.to_timedelta(random.randint(9e3, size=155), "D"),
            "floor": random.choice([0.0, 1.0, np.nan], 155),
            "city": "Ulm",
        }
    )
    rent = 8 * X.area + 150 * (X.district == "west") + 20 * X.floor.fillna(2)
    return X[:150], (rent + 20 * random.randn(155))[:150], X[150:]


@pytest.fixture(scope="module")
def fitted(flats):
    X, y, _ = flats
    return NONARegressor(max_iter=8, n_estimators=2, random_state=0).fit(X, y)


@given(seed=st.integers(0, 2**16), width=st.integers(1, 5))
def test_attributions_sum_to_the_change_of_the_function(seed, width):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = MLPEmbedding(width, 1, (8,)).double()
        start, end = 3 * torch.randn(2, 4, width, dtype=torch.float64)
    end[:, 0] = start[:, 0]  # equal

    def function(x, _):
        return network(x)[:, 0]

    found = integrated_gradients(function, start, end)
    change = (function(end, None) - function(start, None)).detach()
    np.testing.assert_allclose(found.sum(dim=1), change if width > 1 else 0, atol=1e-12)
    assert (found[:, 0] == 0).all()
    assert not found.requires_grad


def test_the_change_of_a_product_is_shared_out_evenly():
    start, end = torch.zeros(2, 3), torch.tensor([[2.0, 3.0, 1.0], [1.0, 0.0, 5.0]])
    found = integrated_gradients(lambda x, _: x[:, 0] * x[:, 1] - x[:, 2], start, end)
    np.testing.assert_allclose(found, [[3, 3, -1], [0, 0, -5]], atol=1e-5)


def test_each_pair_has_a_function_of_its_own():
    start, end = torch.zeros(700, 1), torch.ones(700, 1)  # several blocks
    found = integrated_gradients(lambda x, pairs: x[:, 0] * pairs, start, end)
    np.testing.assert_allclose(found[:, 0], np.arange(700), rtol=1e-5)


@pytest.mark.slow
def test_lines_are_the_single_rows_of_explain(fitted, flats):
    X, _, queries = flats
    rows = fitted.explain(queries)
    rows = rows[rows.neighbor != "others"].reset_index(drop=True)
    columns = [*PAIR, "target", "adjusted_target"]
    found = fitted.attribute(queries, X)
    pd.testing.assert_frame_equal(found[columns], rows[columns], check_dtype=False)
    pd.testing.assert_frame_equal(
        fitted.attribute(queries, X, of="distances")[PAIR], rows[PAIR], check_dtype=False
    )


def test_columns_and_shrinkage_sum_to_the_adjustment(fitted, flats):
    X, _, queries = flats
    found = fitted.attribute(queries, X)
    parts = found.drop(columns=[*PAIR, "adjusted_target"]).sum(axis=1)
    np.testing.assert_allclose(parts, found.adjusted_target, rtol=1e-9)
    assert abs(found[["area", "district"]]).mean().min() > 1
    assert (found.city == 0).all()
    same = (
        X.district.loc[found.neighbor].to_numpy()
        == queries.district.loc[found["query"]].to_numpy()
    )
    assert (found.district[same] == 0).all()
    assert (found.district[~same] != 0).any()


def test_columns_move_a_target_by_the_difference_of_the_networks_predictions(flats):
    X, y, queries = flats
    params = {"max_iter": 8, "n_estimators": 1, "n_neighbors": 5, "random_state": 0}
    reg = NONARegressor(trend=None, **params).fit(X, y)
    head = reg.network_.head
    head.shrinkage, head.credibility, head.bounds = 0.0, (1.0,), None
    found = reg.attribute(queries, X)
    own = head.adjustments(reg.embed(queries).embeddings)[:, 0].double()
    theirs = head.adjustments(reg.bank_.embeddings)[:, 0].double()
    own, theirs = own.numpy()[found["query"] - 150], theirs.numpy()[found.neighbor]
    moves = float(reg.targets_.unit) * (own - theirs)
    scale = float(reg.targets_.unit)  # embeddings are stored in float32
    np.testing.assert_allclose(found.loc[:, "area":"city"].sum(axis=1), moves, atol=1e-5 * scale)
    np.testing.assert_allclose(found.other, 0, atol=1e-5 * scale)


def test_an_additive_trend_is_attributed_as_it_is_added(flats):
    random = np.random.RandomState(1)
    X = random.randint(2, size=(80, 3)).astype(float)
    y = X @ [1.0, 2.0, -4.0] + 0.1 * random.randn(80)
    knn = SoftStepKNeighborsRegressor(trend="additive", random_state=0).fit(X, y)
    found = knn.attribute(X[:6], X)
    slopes = knn.bank_.trend.function.slopes[:, 0].numpy() / knn.scaler_.scale_
    differences = X[found["query"].to_numpy()] - X[found.neighbor.to_numpy()]
    distance = knn.neighborhood(X[:6])["distance"]  # of rows of the bank: trusted
    assert (distance == 0).all()
    np.testing.assert_allclose(
        found[["x0", "x1", "x2"]], differences * slopes, rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier])
def test_shares_of_distances_are_those_of_weighted_features(estimator):
    random = np.random.RandomState(2)
    X = random.randn(60, 3)
    y = X[:, 0] > 0 if estimator is SoftStepKNeighborsClassifier else X[:, 0]
    knn = estimator(similarity="log_l2", random_state=0).fit(X, y)
    queries = np.vstack([X[:1], random.randn(4, 3)])
    found = knn.attribute(queries, X, of="distances")
    differences = queries[found["query"].to_numpy()] - X[found.neighbor.to_numpy()]
    squares = differences**2 * knn.feature_weights_ / X.var(axis=0)
    total = squares.sum(axis=1, keepdims=True)
    shares = np.divide(squares, total, where=total > 0, out=np.zeros_like(squares))
    np.testing.assert_allclose(found[["x0", "x1", "x2"]], shares, atol=1e-4)
    assert (total == 0).any()


@pytest.mark.slow
def test_shares_of_a_learned_distance_sum_to_one(fitted, flats):
    X, y, queries = flats
    found = fitted.attribute(queries, X, of="distances").drop(columns=PAIR)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-9)
    clf = NONAClassifier(max_iter=3, random_state=0).fit(X, y > y.median())
    found = clf.attribute(queries, X, of="distances").drop(columns=PAIR)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-9)


def test_rows_of_the_bank_are_attributed_without_themselves(fitted, flats):
    X, _, _ = flats
    found = fitted.attribute(None, X, n_neighbors=2)
    assert len(found) == 300
    assert (found["query"] != found.neighbor).all()
    np.testing.assert_array_equal(found["query"].unique(), X.index)


def test_added_rows_and_removed_rows(flats):
    X, y, queries = flats
    reg = NONARegressor(max_iter=3, n_estimators=1, random_state=0).fit(X, y)
    reg.add_neighbors(queries, np.full(5, 500.0))
    reg.remove_neighbors(ids=[0, 1])
    found = reg.attribute(queries, pd.concat([X, queries]), n_neighbors=1)
    own = found[found["query"] == found.neighbor]
    assert len(own)
    assert (own.loc[:, "area":"city"] == 0).all(axis=None)


def test_several_outputs(flats):
    X, y, queries = flats
    Y = pd.DataFrame({"rent": y, "sum": -y})
    reg = NONARegressor(max_iter=5, n_estimators=1, random_state=0).fit(X, Y)
    found = reg.attribute(queries, X)
    for name in Y:
        parts = found[[f"{c}_{name}" for c in ["target", *X, "interplay", "other"]]].sum(axis=1)
        np.testing.assert_allclose(parts, found[f"adjusted_target_{name}"], rtol=1e-9)


def test_columns_explain_all_of_what_several_networks_adjust(flats):
    """Each network by its share of the pair's weight, each output by its own adjustments."""
    X, y, queries = flats
    Y = np.column_stack([y, 1000 - X.area])
    params = {"max_iter": 2, "hidden_layer_sizes": (16,), "n_neighbors": 20}
    reg = NONARegressor(n_estimators=2, random_state=0, trend=None, **params).fit(X, Y)
    for head in reg.network_.head.heads:
        head.shrinkage, head.credibility, head.bounds = 0.0, (1.0, 1.0), None
    found = reg.attribute(queries, X)
    scale = 1e-5 * Y.std(axis=0)  # embeddings are stored in float32
    assert (abs(found[["other_0", "other_1"]]) < scale).all(axis=None)


def test_names_of_columns_that_are_taken(flats):
    X, y, queries = flats
    names = {"area": "weight", "district": "target", "floor": "other"}
    reg = NONARegressor(max_iter=2, n_estimators=1, random_state=0).fit(X.rename(columns=names), y)
    found = reg.attribute(queries.rename(columns=names), X.rename(columns=names))
    assert [*found][3:9] == ["target", "weight'", "target'", "built", "other'", "city"]
    assert [*found][9:] == ["interplay", "other", "adjusted_target"]


@pytest.mark.parametrize("ends", [[""], ["_0", "_1"]], ids=["number", "numbers"])
@pytest.mark.parametrize(
    ("of", "results"),
    [
        ("adjustments", ["target", "interplay", "other", "adjusted_target"]),
        ("predictions", ["mean", "interplay", "prediction"]),
    ],
)
def test_results_keep_their_names_whatever_features_are_called(of, results, ends):
    X = np.random.RandomState(0).randn(80, len(results))
    y = np.stack([X[:, 0] * X[:, 1] + X[:, k] for k in range(len(ends))], axis=1).squeeze()
    params = {"similarity": "features", "max_iter": 2, "n_estimators": 1, "random_state": 0}

    def attributions(names):
        table = pd.DataFrame(X, columns=names)
        reg = NONARegressor(**params).fit(table, y)
        return reg.attribute(table[:3] + 0.1, table, of=of)

    plain = [f"x{j}" for j in range(len(results))]
    renamed = {
        name + end: f"{result}{end}'"
        for name, result in zip(plain, results, strict=True)
        for end in ends
    }
    expected = attributions(plain).rename(columns=renamed)
    pd.testing.assert_frame_equal(attributions(results), expected)


def test_a_query_without_an_earlier_row_has_no_line(flats):
    X, y, queries = flats
    reg = NONARegressor(max_iter=2, n_estimators=1, random_state=0).fit(X, y, times="built")
    early = queries.assign(built=pd.Timestamp("1900-01-01"))
    assert len(reg.attribute(early, X)) == 0
    assert len(reg.attribute(early, X, of="distances")) == 0


def test_arrays(flats):
    random = np.random.RandomState(0)
    X = random.randn(50, 2)
    reg = NONARegressor(max_iter=2, n_estimators=1, random_state=0).fit(X, X[:, 0])
    assert {"x0", "x1"} < {*reg.attribute(X[:3] + 0.1, X)}


def test_errors_name_what_is_missing(fitted, flats):
    X, y, queries = flats
    with pytest.raises(ValueError, match=r"features must be the table given to fit.*got None"):
        fitted.attribute(queries)
    with pytest.raises(ValueError, match="features must have the rows given to fit"):
        fitted.attribute(queries, X[5:], of="distances")
    with pytest.raises(ValueError, match="X must be a table where features are given"):
        fitted.attribute(fitted.embed(queries), X)
    with pytest.raises(ValueError, match="district"):
        fitted.attribute(queries, X.drop(columns="district"))
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 150, got 0"):
        fitted.attribute(queries, X, n_neighbors=0, of="distances")
    plain = NONARegressor(adjust=False, max_iter=2, n_estimators=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="needs adjusted neighbours, by a trend"):
        plain.attribute(queries, X)
    wide = sparse.random(80, 400, 0.1, "csr", random_state=0)
    reg = NONARegressor(max_iter=2, n_estimators=1, random_state=0).fit(wide, np.arange(80.0))
    with pytest.raises(ValueError, match="not to a wide sparse matrix"):
        reg.attribute(wide[:2], wide.toarray(), of="distances")
    with pytest.raises(ValueError, match="not to a wide sparse matrix"):
        reg.attribute(wide[:2], of="predictions")


def test_the_estimator_stays_as_it_is(fitted, flats):
    X, _, queries = flats
    before = fitted.predict(queries)
    fitted.attribute(queries, X)
    fitted.attribute(queries, X, of="distances")
    assert all(p.grad is None for p in fitted.network_.parameters())
    assert torch.is_grad_enabled()
    np.testing.assert_array_equal(fitted.predict(queries), before)
