"""similarity='features': rows are found among weighted features, and networks are their trend."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from inner.estimators import trained
from inner.inference import NetworkTrend, network_trend
from scipy.sparse import random as random_sparse
from scipy.spatial.distance import cdist
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsTransformer
from torch import nn

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
)
from nona_sklearn.datasets import load_ames

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=150)
LABELS = np.where(Y > 0.3, "high", "low")
NEW = RNG.normal(size=(20, 3))
QUICK = {"hidden_layer_sizes": (16,), "max_iter": 10, "n_estimators": 2, "random_state": 0}


def nona(**params):
    return NONARegressor(**(QUICK | params))


@pytest.fixture(scope="module")
def fitted():
    return nona().fit(X, Y)


@pytest.fixture(scope="module")
def clf():
    return NONAClassifier(**QUICK).fit(X, LABELS)


@pytest.fixture
def reg(fitted):
    return copy.deepcopy(fitted)


def triangular(distance, k):
    """The definition: from the query down to the k-th nearest row."""
    end = np.sort(distance, axis=1)[:, [k - 1]]
    weights = np.clip(end - distance, 0, None)
    return weights / weights.sum(axis=1, keepdims=True)


# -- which rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [3, "auto"])
def test_weights_fall_linearly_with_the_sum_of_weighted_differences(k):
    reg = nona(n_neighbors=k).fit(X, Y)
    distance = cdist(reg.transform(NEW), reg.transform(X), "cityblock")
    n_rows = 15 if k == "auto" else k
    expected = triangular(distance, n_rows + 1)
    np.testing.assert_allclose(reg.neighbor_weights(NEW).toarray(), expected, atol=1e-5)
    assert (reg.neighborhood(NEW)["n_nonzero_weights"] == n_rows).all()
    np.testing.assert_allclose(reg.kneighbors(NEW, 2)[0], np.sort(distance, 1)[:, :2], rtol=1e-5)
    assert reg.effective_metric_ == "manhattan"


@pytest.mark.parametrize("kind", [NONARegressor, NONAClassifier])
def test_another_seed_names_the_same_rows_by_the_same_weights(kind):
    y = Y if kind is NONARegressor else LABELS
    one, other = (kind(**QUICK | {"random_state": seed}).fit(X, y) for seed in (0, 1))
    np.testing.assert_array_equal(one.transform(NEW), other.transform(NEW))
    ours, theirs = (each.neighbor_weights(NEW).toarray() for each in (one, other))
    np.testing.assert_array_equal(ours, theirs)


def test_features_of_more_effect_weigh_more(fitted):
    """The third says nothing."""
    spread = np.ptp(fitted.transform(X), axis=0)
    assert spread[2] < spread[:2].min()


def test_twenty_rows_vote_on_a_class(clf):
    assert (clf.neighborhood(NEW)["n_nonzero_weights"] == 20).all()
    found = clf.explain(NEW)
    contributions = found.groupby("query")[["contribution_high", "contribution_low"]].sum()
    np.testing.assert_allclose(contributions, clf.predict_proba(NEW), atol=1e-6)


# -- predictions --------------------------------------------------------------------------------


def test_a_prediction_is_that_of_networks_with_a_share_of_the_residuals_of_rows(fitted):
    trend, offset = fitted.bank_.trend, fitted.bank_.neighbors.offset
    assert isinstance(trend, NetworkTrend)
    assert offset.share == 1
    network, bank = trained(fitted)
    G = bank.evaluate(network.head, trend._queries(fitted.embed(NEW).inputs)).mean().numpy()
    left_out = bank.evaluate(network.head).mean().numpy()
    expected = G + offset.kept * (fitted.neighbor_weights(NEW) @ (Y - left_out))
    np.testing.assert_allclose(fitted.predict(NEW), expected, rtol=1e-6)


def test_votes_are_multiplied_by_the_odds_of_the_networks(clf):
    share, smoothing = clf.bank_.neighbors.offset.share, float(clf.network_.head.smoothing)
    prior = np.array([(name == LABELS).mean() for name in clf.classes_])
    votes = clf.neighbor_weights(NEW) @ (LABELS[:, None] == clf.classes_)
    log_G = clf.bank_.trend(clf.embed(NEW).inputs).numpy()
    pooled = ((1 - smoothing) * votes + smoothing * prior) ** (1 - share) * np.exp(share * log_G)
    expected = pooled / pooled.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(NEW), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "name", "number"), [(NONARegressor, "kept", 0.2), (NONAClassifier, "share", 0.95)]
)
def test_without_validation_rows_the_blend_is_what_suits_most_tables(kind, name, number):
    """A fifth of residuals is kept, and votes on classes have a twentieth beside networks."""
    y = Y if kind is NONARegressor else LABELS
    offset = kind(validation_fraction=None, **QUICK).fit(X, y).bank_.neighbors.offset
    assert getattr(offset, name) == number


def test_predictions_end_at_the_bounds_and_the_values_of_the_trend_need_not():
    """Of a sum beyond the training rows."""
    y = (X[:, 0] - X[:, 0].min()) / np.ptp(X[:, 0])
    reg, far = nona(bounds="unit").fit(X, y), 2 * NEW
    G = reg.bank_.trend(reg.embed(far).inputs).numpy()
    assert G.min() < -0.02
    assert G.max() > 1.02
    predictions = reg.predict(far)
    assert predictions.min() >= 0
    assert predictions.max() <= 1


def test_leaving_a_row_out_is_removing_it(fitted):
    left_out = fitted.predict(None)
    for row in (0, 70, 149):
        reg = copy.deepcopy(fitted).remove_neighbors(ids=[row])
        assert reg.predict(X[[row]])[0] == pytest.approx(left_out[row], rel=1e-5)


def test_rows_that_are_added_are_of_the_networks_too(reg):
    """Nine equal rows move the prediction there most of the way, and leave again."""
    before = reg.predict(NEW)
    high = float(before[0]) + 5
    ids = reg.add_neighbors(np.repeat(NEW[:1], 9, axis=0), np.full(9, high))
    assert reg.predict(NEW[:1])[0] > before[0] + 1
    assert set(ids) <= set(reg.kneighbors(NEW[:1], 9, return_distance=False)[0])
    reg.remove_neighbors(ids=ids)
    np.testing.assert_allclose(reg.predict(NEW), before, rtol=1e-9)


@pytest.mark.parametrize("name", ["fitted", "clf"])
def test_values_at_added_rows_are_those_at_queries(name, request):
    """The networks predict a row without itself, and the others stay as they are."""
    before = request.getfixturevalue(name)
    after, target = copy.deepcopy(before), 9.0 if name == "fitted" else "high"
    (row,) = after.add_neighbors(NEW[:1], [target])
    expected = torch.cat(
        [before.bank_.trend.left_out, before.bank_.trend(before.embed(NEW[:1]).inputs)]
    )
    torch.testing.assert_close(after.bank_.trend.left_out, expected)
    torch.testing.assert_close(after.bank_.neighbors.offset.values, expected)
    assert row == 150
    assert expected[row].abs().max() > 0.01


def test_a_removed_row_leaves_the_values_at_the_others(reg):
    values = reg.bank_.neighbors.offset.values
    reg.remove_neighbors(ids=[3])
    without = np.delete(np.arange(150), 3)
    assert len(reg.bank_.trend.bank) == 149
    assert (reg.bank_.neighbors.offset.values[:] != values[without]).any()


def test_networks_predict_embedded_queries_once_in_a_bank(reg, monkeypatch):
    """For several answers about the same queries; an edit makes another bank."""
    predicted = []
    values_of = network_trend.values_of

    def counted(evaluation):
        predicted.append(len(evaluation))
        return values_of(evaluation)

    monkeypatch.setattr(network_trend, "values_of", counted)
    queries = reg.embed(NEW)
    predictions = reg.predict(queries)
    reg.predict_quantiles(queries, [0.5])
    reg.explain(queries)
    assert predicted == [20]
    reg.remove_neighbors(ids=[3])
    assert (reg.predict(queries) != predictions).any()
    assert predicted.count(20) == 2


def test_a_warm_start_goes_on_with_the_networks():
    reg = nona(max_iter=1, warm_start=True)
    with pytest.warns(UserWarning, match="max_iter"):
        reg.fit(X, Y)
    before = copy.deepcopy(trained(reg)[0].state_dict())
    with pytest.warns(UserWarning, match="max_iter"):
        reg.set_params(training__learning_rate_init=1e-9).fit(X, Y)
    for name, value in trained(reg)[0].embedding.state_dict().items():
        torch.testing.assert_close(value, before[f"embedding.{name}"], rtol=1e-3, atol=1e-3)


# -- explanations -------------------------------------------------------------------------------


def test_adjusted_targets_have_residuals_in_full_around_the_prediction(fitted):
    found = fitted.explain(NEW)
    means = (found.weight * found.adjusted_target).groupby(found["query"]).sum()
    np.testing.assert_allclose(means, fitted.predict(NEW), rtol=1e-6)
    residuals = Y - fitted.bank_.neighbors.offset.values.numpy()[:, 0]
    own = found[found["query"] == 0]
    apart = residuals[own.neighbor] - own.adjusted_target
    np.testing.assert_allclose(apart, apart.iloc[0], atol=1e-9)


def test_a_difference_has_one_price():
    """The same two values count the same for each pair, and the parts sum to the adjustment."""
    rows = pd.DataFrame({"area": np.round(X[:, 0], 1), "floor": (X[:, 1] > 0).astype(int)})
    rows["other"] = X[:, 2]
    reg = nona().fit(rows, Y)
    found = reg.attribute(rows[:60], rows)
    parts = found[["target", "area", "floor", "other", "interplay", "other'"]].sum(axis=1)
    np.testing.assert_allclose(parts, found.adjusted_target, rtol=1e-9)
    start, end = (rows["floor"].loc[found[name]].to_numpy() for name in ("neighbor", "query"))
    up = found["floor"][end > start]
    assert len(up) > 10
    np.testing.assert_allclose(up, up.iloc[0], rtol=1e-9)
    np.testing.assert_allclose(found["floor"][end < start], -up.iloc[0], rtol=1e-9)


def test_what_is_additive_has_no_interplay():
    """A network of no hidden layer beside a linear kernel is nearly a sum."""
    y = 3 * X[:, 0] - 2 * X[:, 1]
    found = nona(hidden_layer_sizes=(), max_iter=50).fit(X, y).attribute(NEW, X)
    size = abs(found[["x0", "x1"]]).sum(axis=1).median()
    assert found.interplay.abs().median() < 0.2 * size


def test_shares_of_a_distance_are_those_of_weighted_differences(fitted):
    found = fitted.attribute(NEW, X, n_neighbors=4, of="distances")
    query, rows = fitted.transform(NEW), fitted.transform(X)
    parts = abs(query[found["query"]] - rows[found.neighbor])
    expected = parts / parts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[["x0", "x1", "x2"]], expected, atol=1e-5)


# -- what 'auto' is, and bad parameters -----------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "chosen"),
    [
        ({}, "features"),
        ({"n_neighbors": 5}, "features"),
        ({"trend": "kernel", "algorithm": "kd_tree"}, "features"),
        ({"n_neighbors": None}, "l2"),
        ({"weighting": "sparsemax"}, "l2"),
        ({"softstep": "s1"}, "l2"),
        ({"trend": None}, "l2"),
        ({"trend": "additive"}, "l2"),
        ({"trend": Ridge()}, "features"),
        ({"trend": Ridge(), "softstep": "s1"}, "l2"),
        ({"trend": Ridge(), "adjust": False}, "l2"),
        ({"adjust": False}, "l2"),
        ({"algorithm": KNeighborsTransformer(n_neighbors=149)}, "l2"),
        ({"similarity": "cosine"}, "cosine"),
        ({"similarity": "features", "trend": None}, "features"),
        ({"similarity": "features", "trend": "additive"}, "features"),
        ({"similarity": "features", "weighting": "gaussian"}, "features"),
    ],
    ids=str,
)
def test_what_similarity_is_chosen(params, chosen):
    reg = nona(**{"max_iter": 2, "n_neighbors": "auto"} | params).fit(X, Y)
    assert reg.similarity_ == chosen
    assert np.isfinite(reg.predict(NEW)).all()
    assert isinstance(reg.bank_.trend, NetworkTrend) == (chosen == "features")


@pytest.mark.parametrize("trend", ["auto", Ridge()])
def test_tables_without_a_kernel_have_embeddings(trend):
    wide, reg = random_sparse(60, 400, 0.05, "csr", random_state=0), nona(max_iter=2, trend=trend)
    assert reg.fit(wide, Y[:60]).similarity_ == "l2"
    assert reg.fit(X, Y, times=np.arange(150)).similarity_ == "l2"
    assert reg.fit(X[:9], Y[:9]).similarity_ == "l2"


def test_constant_features_have_embeddings():
    with pytest.warns(UserWarning, match="little information"):
        assert nona().fit(np.ones_like(X), Y).similarity_ == "l2"


@pytest.mark.parametrize("trend", ["kernel", Ridge()])
def test_rows_most_of_which_are_equal_have_distances(trend):
    """The median distance, by which the kernel has its length, is 0."""
    rows = np.array([[1, 1]] * 5 + [[1, 0], [0, 1]])
    reg = nona(similarity="features", trend=trend).fit(rows, np.arange(7))
    assert reg.similarity_ == "features"
    assert 0.1 < np.ptp(reg.transform(rows), axis=0).max() < 10


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_neighbors": None}, "n_neighbors must be a number or 'auto' with similarity='feat"),
        (
            {"feature_extractor": nn.Identity(), "trend": None},
            "feature_extractor must be None with similarity='features', got Identity",
        ),
        ({"algorithm": "hnsw"}, "'hnsw' needs a similarity of .*, got similarity='l1'"),
        ({"n_neighbors": 151}, "n_neighbors must be at most the number of training rows, 150"),
    ],
)
def test_bad_parameters_are_refused_before_training(params, message):
    with pytest.raises(ValueError, match=message):
        nona(similarity="features", **params).fit(X, Y)


# -- with everything else -------------------------------------------------------------------------


@pytest.mark.parametrize("trend", ["kernel", None])
def test_groups_and_times(trend):
    """Values at rows are of other groups, and of earlier rows; the first is not predicted."""
    groups, times = np.arange(150) // 3, np.arange(150.0)
    reg = nona(similarity="features", trend=trend, max_iter=3).fit(X, Y, groups=groups)
    network, bank = trained(reg)
    of_others = bank.evaluate(network.head, leave_out="group").mean()
    torch.testing.assert_close(reg.bank_.neighbors.offset.values[:, 0], of_others)
    reg = nona(similarity="features", trend=trend, max_iter=3).fit(X, Y, times=times)
    left_out = reg.predict(None)
    assert np.isnan(left_out[0])
    assert np.isfinite(left_out[1:]).all()
    moved = copy.deepcopy(reg).set_neighbor_targets(np.r_[Y[:100], 99 + Y[100:]])
    np.testing.assert_array_equal(
        moved.neighbor_weights(None).toarray(), reg.neighbor_weights(None).toarray()
    )


def test_several_outputs_weights_and_a_validation_set():
    both, weights = np.c_[Y, -2 * Y], 1.0 + np.arange(150) % 2
    reg = nona(max_iter=5).fit(
        X[:120], both[:120], sample_weight=weights[:120], X_val=X[120:], y_val=both[120:]
    )
    found = reg.explain(NEW)
    for i in (0, 1):
        sums = found[f"contribution_{i}"].groupby(found["query"]).sum()
        np.testing.assert_allclose(sums, reg.predict(NEW)[:, i], rtol=1e-6)
    assert reg.calibration_.noise[0] > 0


# -- of whole predictions -------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [NEW, None])
def test_parts_of_predictions_are_functions_of_one_column(fitted, queries):
    found = fitted.attribute(queries, of="predictions")
    parts = found[["mean", "x0", "x1", "x2", "interplay"]].sum(axis=1)
    np.testing.assert_allclose(parts, found.prediction, rtol=1e-9)
    np.testing.assert_allclose(found.prediction, fitted.predict(queries), rtol=1e-9)
    rows = np.repeat(NEW[:1], 3, axis=0)
    rows[:, 0] = NEW[5:8, 0]
    moved = fitted.attribute(rows, of="predictions")
    np.testing.assert_allclose(moved[["x1", "x2"]], moved[["x1", "x2"]].iloc[[0, 0, 0]])
    expected = fitted.attribute(NEW[5:8], of="predictions").x0
    np.testing.assert_allclose(moved.x0, expected)
    assert abs(fitted.attribute(of="predictions")[["x0", "x1", "x2"]].mean()).max() < 1e-6


def test_a_price_is_the_difference_of_two_effects(fitted):
    pairs = fitted.attribute(NEW, X, n_neighbors=3)
    of_query, of_row = (fitted.attribute(rows, of="predictions") for rows in (NEW, X))
    effects = of_query.x0[pairs["query"]].to_numpy() - of_row.x0[pairs.neighbor].to_numpy()
    np.testing.assert_allclose(pairs.x0, effects, atol=1e-9)


def test_a_compressed_bank_has_the_same_parts(fitted):
    few = copy.deepcopy(fitted)
    few.compress(5)
    parts = ["mean", "x0", "x1", "x2"]
    before, after = (each.attribute(NEW, of="predictions")[parts] for each in (fitted, few))
    np.testing.assert_allclose(after, before, rtol=1e-9)


def test_parts_of_several_outputs_have_their_names():
    both = pd.DataFrame({"up": Y, "down": -Y})
    found = nona(max_iter=3).fit(X, both).attribute(NEW, of="predictions")
    assert [*found][6:11] == ["prediction_up", "mean_down", "x0_down", "x1_down", "x2_down"]


def test_the_additive_part_of_three_classes_is_that_of_their_log_odds():
    """Log odds that are a sum are found again; logarithms of their probabilities are no sum."""
    clf = NONAClassifier(**QUICK | {"max_iter": 3}).fit(X, np.digitize(Y, [-0.5, 0.7]))
    trend = clf.bank_.trend
    x0, x1, _ = trend.bank.inputs.double().T
    log_odds = torch.stack([x0 + x1, x0 - 2 * x1, x1 - 2 * x0], dim=1)
    known = replace(trend, left_out=log_odds.log_softmax(dim=1))
    parts = known.additive_part(trend.bank.inputs)
    torch.testing.assert_close(parts.sum(dim=1), torch.zeros(len(X)).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(parts, log_odds, atol=0.02, rtol=0)


@pytest.mark.parametrize("trend", ["additive", None])
def test_networks_beside_another_trend_have_parts_too(trend):
    reg = nona(similarity="features", trend=trend, max_iter=2).fit(X, Y)
    found = copy.deepcopy(reg).remove_neighbors(ids=[3]).attribute(NEW, of="predictions")
    parts = found[["mean", "x0", "x1", "x2", "interplay"]].sum(axis=1)
    np.testing.assert_allclose(parts, found.prediction, rtol=1e-9)
    assert abs(reg.attribute(NEW, X).x0).max() > 0


def test_embeddings_have_no_parts_of_predictions():
    reg = nona(similarity="l2", max_iter=2).fit(X, Y)
    with pytest.raises(ValueError, match=r"needs similarity='features', .* got similarity_='l2'"):
        reg.attribute(NEW, of="predictions")


# -- SoftStep k-NN ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def knn():
    return SoftStepKNeighborsRegressor(max_iter=10, random_state=0).fit(X, Y)


def test_a_learned_neighbourhood_is_the_trend_of_rows_among_the_features(knn):
    """G is what k-NN with learned weights predicts, and the rows are those of the kernel."""
    alone = SoftStepKNeighborsRegressor(similarity="log_l2", max_iter=10, random_state=0)
    alone.fit(X, Y)
    assert (knn.similarity_, alone.similarity_) == ("features", "log_l2")
    np.testing.assert_allclose(knn.bank_.trend.left_out[:, 0], alone.predict(None), rtol=1e-6)
    G, kept = alone.predict(NEW), knn.bank_.neighbors.offset.kept
    expected = G + kept * (knn.neighbor_weights(NEW) @ (Y - alone.predict(None)))
    np.testing.assert_allclose(knn.predict(NEW), expected, rtol=1e-6)
    distance = cdist(knn.transform(NEW), knn.transform(X), "cityblock")
    weights = knn.neighbor_weights(NEW).toarray()
    np.testing.assert_allclose(weights, triangular(distance, 16), atol=1e-5)


@pytest.mark.parametrize("kind", [SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier])
def test_rows_of_a_learned_neighbourhood_have_no_seed(kind):
    y = Y if kind is SoftStepKNeighborsRegressor else LABELS
    options = {"n_neighbors": 4, "max_iter": 3}
    one, other = (kind(**options, random_state=seed).fit(X, y) for seed in (0, 1))
    ours, theirs = (each.neighbor_weights(NEW).toarray() for each in (one, other))
    np.testing.assert_array_equal(ours, theirs)
    assert one.n_neighbors_ == 4
    assert (one.neighborhood(NEW)["n_nonzero_weights"] == 4).all()


def test_leaving_a_row_out_of_kept_residuals_is_nearly_removing_it(knn):
    """But for what the residuals at a neighbour's neighbours owe to the row."""
    left_out = knn.predict(None)
    gaps = []
    for row in range(0, 150, 10):
        reg = copy.deepcopy(knn).remove_neighbors(ids=[row])
        gaps.append(reg.predict(X[[row]])[0] - left_out[row])
    assert np.std(gaps) < 0.01 * np.std(Y - left_out)


def test_feature_weights_are_shares_of_the_mean_distance(knn):
    rows = knn.transform(X)
    differences = np.abs(rows[:, None] - rows).mean(axis=(0, 1))
    shares = differences / differences.sum()
    np.testing.assert_allclose(knn.feature_weights_, shares, rtol=1e-4)


@pytest.mark.parametrize(
    ("params", "chosen"),
    [
        ({}, "features"),
        ({"hidden_layer_sizes": (4,)}, "features"),
        ({"n_neighbors": 7, "similarity": "auto"}, "features"),
        ({"n_neighbors": None}, "log_l2"),
        ({"learn_feature_weights": False}, "log_l2"),
        ({"weighting": "uniform"}, "log_l2"),
        ({"softstep": "s2"}, "log_l2"),
        ({"softstep": SoftStep("s1")}, "log_l2"),
        ({"softstep": SoftStep("s1", "pointwise", on="rank")}, "log_l2"),
        ({"trend": "additive"}, "log_l2"),
        ({"trend": "additive", "similarity": "features"}, "features"),
        ({"softstep": "s2", "similarity": "features"}, "features"),
        ({"similarity": "l1"}, "l1"),
    ],
    ids=str,
)
def test_what_similarity_softstep_chooses(params, chosen):
    knn = SoftStepKNeighborsRegressor(max_iter=1, random_state=0).set_params(**params)
    assert knn.fit(X[:40], Y[:40]).similarity_ == chosen


def test_feature_weights_must_be_learnt_for_rows_among_the_features():
    knn = SoftStepKNeighborsRegressor(similarity="features", learn_feature_weights=False)
    message = "learn_feature_weights must be True with similarity='features', got False"
    with pytest.raises(ValueError, match=message):
        knn.fit(X, Y)


# -- the front page -----------------------------------------------------------------------------


@pytest.mark.first
@pytest.mark.slow
def test_the_house_of_the_front_page_has_the_same_sales_from_another_start():
    """As another processor trains: the sales and their weights, and amounts within the interval.

    Another seed changes more than the digits of a processor: 7 % of the interval at most.
    """
    X, y = load_ames(return_X_y=True)
    X, X_test, y, _ = train_test_split(X, y, random_state=0)
    house, found = X_test.loc[["house 1340"]], []
    for seed in (0, 1):
        reg = NONARegressor(n_neighbors=10, random_state=seed).fit(X, y)
        low, high = reg.predict_quantiles(house, [0.05, 0.95])[0]
        amounts = reg.attribute(house, X, n_neighbors=3)
        found.append((reg.predict(house)[0], high - low, amounts))
    (prediction, width, amounts), (other, other_width, others) = found
    assert amounts["neighbor"].tolist() == ["house 1237", "house 1764", "house 1695"]
    assert others["neighbor"].tolist() == amounts["neighbor"].tolist()
    np.testing.assert_allclose(others["weight"], amounts["weight"], rtol=1e-9)
    assert abs(prediction - other) < 0.15 * width
    assert 0.6 < width / other_width < 1.7
    parts = [name for name in amounts if name in X or name == "interplay"]
    assert (amounts[parts] - others[parts]).abs().max(axis=None) < 0.15 * width
