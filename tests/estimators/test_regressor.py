import copy
import io
import itertools
import pickle
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from inner.data import ClassTargets, RegressionTargets, Sample
from inner.training import loop, train_network
from inner.trend import KernelTrend
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    MLPEmbedding,
    NONAClassifier,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
)
from nona_sklearn.embedding import FeatureWeights, PeriodicEmbedding
from nona_sklearn.weighting import Softmax, Uniform


def nona(*args, **kwargs):
    return NONARegressor(*args, **{"n_estimators": 1, "max_iter": 5, "random_state": 0, **kwargs})


def softstep_knn(**kwargs):
    return SoftStepKNeighborsRegressor(**{"max_iter": 5, "random_state": 0, **kwargs})


def plain(estimator):
    """The same, whose predictions are means of the targets as they are: ``weights @ y``."""
    names = estimator.get_params()
    params = {k: v for k, v in {"adjust": False, "trend": None}.items() if k in names}
    return clone(estimator).set_params(**params)


ESTIMATORS = [
    nona(n_estimators=3),
    nona(softstep=SoftStep("s1", "pointwise"), training=TrainingOptions(neighbor_pool="memory")),
    nona(numerical_embedding="periodic", hidden_layer_sizes=()),
    softstep_knn(),
    softstep_knn(n_neighbors=10, weighting="uniform"),
    softstep_knn(hidden_layer_sizes=(16,), softstep="s2"),
]
EACH = pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
BOTH = pytest.mark.parametrize("estimator", [nona(), softstep_knn()], ids=["nona", "softstep"])


# -- predictions are weighted means of training targets -----------------------------------


@EACH
def test_prediction_is_weights_times_targets(estimator, plane):
    X, X_test, y, _ = plane
    reg = plain(estimator).fit(X, y)
    for query, n in ((X_test, 30), (None, 120)):
        weights = reg.neighbor_weights(query)
        assert sparse.issparse(weights)
        assert weights.format == "csr"
        assert weights.shape == (n, 120)
        assert weights.min() >= 0
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
        # To float32's rounding: the two come from passes over the bank of their own.
        np.testing.assert_allclose(weights @ y, reg.predict(query), rtol=0, atol=3e-7)


@EACH
def test_prediction_is_weights_times_adjusted_targets(estimator, plane):
    X, X_test, y, _ = plane
    reg = clone(estimator).fit(X, y)
    for query, n_rows in ((X_test, 120), (None, 119)):
        table = reg.explain(query, n_rows)
        np.testing.assert_array_equal(table["target"], y[table["neighbor"]])
        dense = reg.neighbor_weights(query).toarray()
        assert len(table) == (dense > 0).sum()
        found = dense[table["query"], table["neighbor"]]
        np.testing.assert_allclose(table["weight"], found, rtol=1e-5)
        # As above, with weights of float32: 120 of them times numbers of about 1.
        sums = (table["weight"] * table["adjusted_target"]).groupby(table["query"]).sum()
        np.testing.assert_allclose(sums, reg.predict(query), rtol=0, atol=2e-6)
        adjusts = getattr(reg, "adjust", False) or reg.trend is not None
        assert table["adjusted_target"].equals(table["target"]) == (not adjusts)


@EACH
def test_heaviest_neighbors_have_the_largest_weights(estimator, plane):
    X, X_test, y, _ = plane
    reg = clone(estimator).fit(X, y)
    for query in (X_test, None):
        dense = reg.neighbor_weights(query).toarray()
        weights, indices = reg.heaviest_neighbors(query, n_neighbors=7)
        assert weights.shape == indices.shape == (len(dense), 7)
        heaviest = -np.sort(-dense, axis=1)[:, :7]  # normalised once more, in float64
        np.testing.assert_allclose(weights, heaviest, rtol=1e-6)
        np.testing.assert_array_equal(np.take_along_axis(dense, indices, axis=1), heaviest)


def test_heaviest_neighbors_of_a_training_row_never_hold_itself(plane):
    """Even where fewer rows have weight than n_neighbors."""
    X, _, y, _ = plane
    reg = softstep_knn(n_neighbors=3, weighting="uniform").fit(X, y)
    for n_neighbors in (10, 119):
        _, indices = reg.heaviest_neighbors(None, n_neighbors)
        assert (indices != np.arange(120)[:, None]).all()


@EACH
def test_leave_one_out_never_uses_the_row_itself(estimator, plane):
    X, _, y, _ = plane
    reg = clone(estimator).fit(X, y)
    assert (reg.neighbor_weights().diagonal() == 0).all()
    changed = y.copy()
    changed[5] += 1000
    before = reg.predict(None)
    neighbors = replace(reg.bank_.neighbors, values=torch.tensor(changed))
    reg.bank_ = replace(reg.bank_, neighbors=neighbors)
    assert reg.predict(None)[5] == before[5]
    assert reg.score(None, y) < 1


def test_leave_one_out_equals_a_bank_without_the_row(plane):
    """With a fixed network: the same as `LeaveOneOut`."""
    X, _, y, _ = plane
    reg = nona(softstep="s1").fit(X, y)
    ours = reg.predict(None)
    for row in (0, 17, 119):
        smaller = copy.copy(reg)
        smaller.bank_ = reg.bank_.keep(np.delete(np.arange(120), row))
        np.testing.assert_allclose(smaller.predict(X[[row]]), ours[[row]], rtol=1e-5)


@pytest.mark.parametrize("learn_feature_weights", [False, True])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_a_hard_step_on_ranks_is_k_nearest_neighbors(plane, k, learn_feature_weights):
    """In the given space; or of standardised features, since ranks have no gradient."""
    X, X_test, y, _ = plane
    reg = softstep_knn(
        weighting="uniform", learn_feature_weights=learn_feature_weights, trend=None
    ).fit(X, y)
    step = SoftStep("s1", on="rank").double()
    # Ranks are 1, 118/119, ..., 0: a threshold halfway between the k-th and the next one.
    threshold = torch.tensor((119 - k + 0.5) / 119, dtype=torch.float64)
    width, transition = torch.tensor([-20.0, -8.0], dtype=torch.float64)
    step.logits.data = torch.stack([torch.logit(threshold), width, transition])
    reg.network_.head.step = step
    space = StandardScaler().fit(X).transform if learn_feature_weights else np.asarray
    expected = KNeighborsRegressor(k).fit(space(X), y).predict(space(X_test))
    np.testing.assert_allclose(reg.predict(X_test), expected, rtol=1e-9)


@pytest.mark.parametrize("softstep", ["s1", "s2"])
def test_rows_that_are_all_alike_predict_their_mean(softstep):
    """Of those that have weight: of equally near rows, a number of neighbours takes the first."""
    X, y = np.ones((40, 2)), np.arange(40.0)
    reg = softstep_knn(trend=None, softstep=softstep, n_neighbors=None)
    reg.fit(X, y)
    k = 40 if softstep == "s2" else reg.neighborhood(X[:1])["n_nonzero_weights"][0]
    np.testing.assert_allclose(reg.predict(X[:1]), y[:k].mean(), rtol=1e-5)  # of float32


@pytest.mark.parametrize("softstep", ["s1", "s2"])
@pytest.mark.parametrize("k", [3, 5])
def test_a_capped_step_is_no_worse_than_k_nearest_neighbors(softstep, k):
    X, y = load_diabetes(return_X_y=True)
    reg = softstep_knn(n_neighbors=k, weighting="uniform", softstep=softstep, max_iter=50)
    knn = KNeighborsRegressor(k).fit(X[:300], y[:300])
    reg.fit(X[:300], y[:300])
    assert reg.score(X[300:], y[300:]) > knn.score(X[300:], y[300:]) - 0.03


@pytest.mark.parametrize("learn_feature_weights", [False, True])
def test_n_neighbors_caps_the_candidates(plane, learn_feature_weights):
    X, X_test, y, _ = plane
    options = {"learn_feature_weights": learn_feature_weights, "similarity": "log_l2"}
    reg = softstep_knn(n_neighbors=4, **options).fit(X, y)
    space = reg.transform if learn_feature_weights else np.asarray
    knn = KNeighborsRegressor(4).fit(space(X), y)
    nearest = knn.kneighbors(space(X_test), return_distance=False)
    for row, neighbors in zip(reg.neighbor_weights(X_test), nearest, strict=True):
        assert set(row.nonzero()[-1]) <= set(neighbors)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "threshold"), [("spiral", 0.85), ("checkerboard", 0.90)])
def test_learns_the_spiral_and_the_checkerboard(name, threshold):
    """One of the three splits of ``python -m benchmarks synthetic``, which states the claim."""
    from nona_sklearn.datasets import make_plane_regression

    X, y = make_plane_regression(name, random_state=0)
    reg = NONARegressor(n_estimators=1, max_iter=60, random_state=0).fit(X[:800], y[:800])
    assert reg.score(X[800:], y[800:]) > threshold


# -- data in, data out --------------------------------------------------------------------


@pytest.mark.slow
@BOTH
def test_multi_output(estimator, plane):
    X, X_test, y, _ = plane
    Y = np.column_stack([y, 100 - 10 * y])
    predictions = plain(estimator).fit(X, Y).predict(X_test)
    np.testing.assert_allclose(100 - 10 * predictions[:, 0], predictions[:, 1])
    predictions = clone(estimator).fit(X, Y).predict(X_test)
    assert predictions.shape == (30, 2)
    assert np.corrcoef(predictions.T)[0, 1] < -0.9  # each output is adjusted by itself
    assert clone(estimator).fit(X, y[:, None]).predict(X_test).shape == (30, 1)


@BOTH
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(estimator, plane, frame):
    X, X_test, y, _ = plane
    table = frame({"east": X[:, 0], "north": X[:, 1]})
    test = frame({"east": X_test[:, 0], "north": X_test[:, 1]})
    reg = clone(estimator).fit(table, y)
    assert list(reg.feature_names_in_) == ["east", "north"]
    expected = clone(estimator).fit(X, y).predict(X_test)
    np.testing.assert_array_equal(reg.predict(test), expected)
    np.testing.assert_array_equal(reg.predict(test[["north", "east"]]), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        reg.predict(test[["north"]])


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_set_output(plane, output):
    X, X_test, y, _ = plane
    reg = nona(n_estimators=1, embedding_dim=3, similarity="l2")
    reg.set_output(transform=output).fit(X, y)
    table = reg.transform(X_test)
    assert type(table).__module__.startswith(output)
    assert list(table.columns) == ["nonaregressor0", "nonaregressor1", "nonaregressor2"]
    assert list(reg.get_feature_names_out()) == list(table.columns)


@pytest.mark.slow
def test_transform_gives_what_the_bank_holds(plane):
    X, _, y, _ = plane
    for n in (1, 2):
        reg = nona(embedding_dim=3, n_estimators=n, similarity="l2")
        reg.fit(X, y)
        assert reg.bank_.embeddings.shape == (120, 4 * reg.n_estimators)  # and g of the target
        compared = reg.network_.head.metric_part(reg.bank_.embeddings)
        np.testing.assert_array_equal(reg.transform(X), compared)
        np.testing.assert_array_equal(clone(reg).fit_transform(X, y), reg.transform(X))
    alone = nona(embedding_dim=3, adjust=False).fit(X, y)
    np.testing.assert_array_equal(alone.transform(X), alone.bank_.embeddings)
    given = softstep_knn(learn_feature_weights=False).fit(X, y)
    np.testing.assert_allclose(given.transform(X), X - X.mean(axis=0), rtol=1e-6)
    given = softstep_knn(learn_feature_weights=False, similarity="cosine").fit(X, y)
    np.testing.assert_array_equal(given.transform(X), X.astype(np.float32))


@pytest.mark.parametrize("similarity", ["log_l2", "cosine"])
def test_feature_weights_scale_standardised_features(plane, similarity):
    X, X_test, y, _ = plane
    reg = softstep_knn(similarity=similarity).fit(X, y)
    weight = reg.network_.embedding.weight.numpy()
    assert weight.shape == (2,)
    assert (weight > 0).all()
    assert (np.abs(weight - 1) > 1e-3).all()  # learned
    scaler = StandardScaler(with_mean=similarity != "cosine").fit(X)
    for rows in (X, X_test):
        np.testing.assert_allclose(reg.transform(rows), scaler.transform(rows) * weight, rtol=1e-5)


@pytest.mark.slow
def test_raw_features_work(plane):
    """Units of the features and of the target do not matter."""
    X, X_test, y, y_test = plane
    # One epoch: training carries the inputs' rounding farther with each step.
    plain = nona(max_iter=1, validation_fraction=None).fit(X, y)
    raw = nona(max_iter=1, validation_fraction=None).fit(
        X * [1e-6, 1e9] + [1, 1e10], 1e7 * y - 1e9
    )
    ours = (raw.predict(X_test * [1e-6, 1e9] + [1, 1e10]) + 1e9) / 1e7
    np.testing.assert_allclose(ours, plain.predict(X_test), atol=0.01)
    trained = nona(max_iter=20).fit(X * [1e-6, 1e9] + [1, 1e10], 1e7 * y - 1e9)
    assert trained.score(X_test * [1e-6, 1e9] + [1, 1e10], 1e7 * y_test - 1e9) > 0.2


def split(n, groups, n_networks):
    values = torch.zeros(n)
    return RegressionTargets().split(values, groups, n_networks, 0.15, np.random.RandomState(0))


def test_networks_share_validation_rows_with_the_next_one_only():
    splits = split(100, None, 5)
    assert all(sorted([*train, *valid]) == list(range(100)) for train, valid, _ in splits)
    held_out = [set(valid) for _, valid, _ in splits]
    assert [len(valid) for valid in held_out] == [15] * 5
    for i, j in itertools.combinations(range(5), 2):
        assert len(held_out[i] & held_out[j]) == (3 if j == i + 1 else 0)


def test_groups_are_validation_together():
    groups = np.repeat(np.arange(20), 5)
    splits = split(100, groups, 4)  # of 3 groups each, of which there is no quarter to share
    for train, valid, _ in splits:
        assert sorted([*train, *valid]) == list(range(100))
        assert len(np.unique(groups[valid])) == 3
        assert not np.isin(groups[valid], groups[train]).any()
        assert np.any(np.diff(train) < 0)  # shuffled
    assert len(np.unique([groups[valid] for _, valid, _ in splits])) == 4 * 3


@pytest.mark.slow
@BOTH
def test_no_row_learns_from_its_group(estimator):
    """Twins of one group, with noise for targets: with a leak they would find each other."""
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(80, 2)), 2, axis=0), np.repeat(rng.normal(size=80), 2)
    groups = np.repeat([f"twins {i}" for i in range(80)], 2)
    leaky, clean = (
        min(
            epoch["train_loss"]
            for epoch in clone(estimator).set_params(max_iter=30).fit(X, y, groups=g).history_
        )
        for g in (None, groups)
    )
    assert leaky < 0.3
    assert clean > 0.6


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1] * 10, "groups must have a value for each of 120 rows, got 10"),
        ([1] * 120, "groups must hold at least 2 different ones, all rows are in 1$"),
        (np.ones((120, 2)), r"groups must have shape \(120,\), got \(120, 2\)"),
        (np.array([1, "a"] * 60, dtype=object), "groups must be of one kind, got int, str"),
        (
            [1, 2] * 60,
            "validation_fraction=0.15 of n_groups=2 leaves fewer than 2 training groups",
        ),
    ],
)
def test_bad_groups(plane, groups, message, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)
    with pytest.raises(ValueError, match=message):
        nona().fit(plane[0], plane[2], groups=groups)


@pytest.mark.parametrize("offset", [1e6, 1.7e9])
def test_the_given_space_may_be_far_from_the_origin(plane, offset):
    """For example timestamps: float32 alone would merge them all."""
    X, X_test, y, _ = plane
    near, far = (
        softstep_knn(learn_feature_weights=False).fit(X + shift, y) for shift in (0, offset)
    )
    np.testing.assert_allclose(far.predict(X_test + offset), near.predict(X_test), atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["softmax", "uniform"])
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_the_given_space_may_have_any_unit(plane, scale, weighting):
    X, X_test, y, _ = plane
    knn = softstep_knn(weighting=weighting, max_iter=30, learn_feature_weights=False)
    one, other = (clone(knn).fit(s * X, y) for s in (1, scale))
    np.testing.assert_allclose(other.predict(scale * X_test), one.predict(X_test), atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["softmax", "uniform"])
def test_feature_weights_need_no_units(plane, weighting):
    """Each feature may have its own, and be far from the origin."""
    X, X_test, y, _ = plane

    def elsewhere(X):
        return X * [1e-6, 1e9] + [1, 1e10]

    knn = softstep_knn(weighting=weighting, max_iter=30)
    near, far = clone(knn).fit(X, y), clone(knn).fit(elsewhere(X), y)
    np.testing.assert_allclose(far.predict(elsewhere(X_test)), near.predict(X_test), atol=0.01)


@pytest.mark.slow
def test_uninformative_features_count_less():
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(200, 4)) * [1, 1, 1, 100], np.ones(200)]
    y = np.sin(2 * X[:, 1])
    # A trend would take what there is to learn: the targets depend on one feature.
    reg = softstep_knn(max_iter=40, trend=None).fit(X[:150], y[:150])
    importances = reg.feature_weights_
    assert importances.shape == (5,)
    assert importances.sum() == pytest.approx(1)
    assert importances[1] > 0.8
    assert (importances[[0, 2, 3]] > 0).all()
    assert importances[4] == 0  # constant
    # Their share in the mean squared distance of two rows.
    variance = reg.transform(X[:150]).astype(float).var(axis=0)
    np.testing.assert_allclose(importances, variance / variance.sum(), rtol=1e-4)
    given = clone(reg).set_params(learn_feature_weights=False).fit(X[:150], y[:150])
    assert reg.score(X[150:], y[150:]) > given.score(X[150:], y[150:]) + 0.3


def test_importances_are_those_of_feature_weights(plane):
    X, _, y, _ = plane
    with pytest.raises(NotFittedError):
        softstep_knn().feature_weights_  # noqa: B018
    learned = {"hidden_layer_sizes": (), "similarity": "log_l2"}
    for params in ({"learn_feature_weights": False}, learned):
        reg = softstep_knn(**params).fit(X, y)
        with pytest.raises(AttributeError, match="needs a fit with similarity='features', or"):
            reg.feature_weights_  # noqa: B018
        assert not hasattr(reg, "feature_weights_")
    one_place = softstep_knn().fit(np.zeros((12, 2)), np.arange(12.0))
    assert one_place.feature_weights_.tolist() == [0, 0]  # all rows are the same


@pytest.mark.slow
def test_extreme_features_work(plane):
    X, X_test, y, _ = plane
    for scale in (1e-20, 1e20):
        assert np.isfinite(nona().fit(scale * X, y).predict(scale * X_test)).all()
    for scale in (1e-20, 1e18):
        for learned in (False, True):
            reg = softstep_knn(learn_feature_weights=learned).fit(scale * X, y)
            assert np.isfinite(reg.predict(scale * X_test)).all()


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_a_constant_target_is_predicted(estimator, plane, value):
    X, X_test, _, _ = plane
    reg = clone(estimator).fit(X, np.full(120, value))
    np.testing.assert_allclose(reg.predict(X_test), value, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*networks predict validation rows no better")
@EACH
def test_constant_and_duplicate_rows(estimator):
    X = np.zeros((12, 2))
    y = np.arange(12.0)
    reg = clone(estimator)
    if isinstance(reg, SoftStepKNeighborsRegressor):  # ranks would take some of the rows
        reg.set_params(softstep=SoftStep(reg.softstep))
    np.testing.assert_allclose(reg.fit(X, y).predict(X[:1]).item(), 5.5, atol=4.6)


@BOTH
@pytest.mark.parametrize("n", [2, 3, 4])
def test_two_rows_are_enough(estimator, n):
    X, y = np.arange(2.0 * n).reshape(n, 2), np.arange(float(n))
    fraction = 0.15 if n > 2 else None
    reg = plain(estimator).set_params(validation_fraction=fraction).fit(X, y)
    assert ((reg.predict(X) >= 0) & (reg.predict(X) <= n - 1)).all()
    if n == 2:  # each row has but the other
        np.testing.assert_allclose(reg.predict(None), [1.0, 0.0], atol=1e-12)
    reg = clone(estimator).set_params(validation_fraction=fraction).fit(X, y)
    for predictions in (reg.predict(X), reg.predict(None), *reg.predict(X, return_std=True)):
        assert np.isfinite(predictions).all()
        assert np.abs(predictions).max() < 2 * n


def test_the_estimator_owns_its_data(plane):
    """Changing the arrays after fit changes nothing."""
    X, X_test, y, _ = (a.astype(np.float32) for a in plane)
    X, y = X.copy(), y.astype(np.float64)
    for estimator in (nona(), softstep_knn()):
        reg = estimator.fit(X, y)
        before = reg.predict(X_test)
        X += 1.0
        y += 1.0
        np.testing.assert_array_equal(reg.predict(X_test), before)


@BOTH
def test_predictions_do_not_depend_on_the_other_queries(estimator, plane):
    X, X_test, y, _ = plane
    reg = clone(estimator).fit(X, y)
    one_by_one = np.concatenate([reg.predict(row[None]) for row in X_test])
    np.testing.assert_allclose(one_by_one, reg.predict(X_test), rtol=1e-7, atol=1e-9)


# -- bad input ----------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        ([[1.0, np.inf], [2, 3], [4, 5]], [1, 2, 3], ValueError, "column 1 holds inf"),
        ([[1.0], [2.0], [3.0]], [1, np.nan, 3], ValueError, "Input y contains NaN"),
        (
            np.inf * sparse.eye_array(3).tocsr(),
            [1, 2, 3],
            ValueError,
            "sparse X .* finite numbers",
        ),
        ([[1.0, 2.0]], [1], ValueError, "1 sample.* while a minimum of 2 is required"),
        (np.ones((3, 2, 2)), [1, 2, 3], ValueError, "Found array with dim 3"),
        ([1.0, 2.0, 3.0], [1, 2, 3], ValueError, "Expected 2D array, got 1D array"),
        ([[1.0], [2.0], [3.0]], [1, 2], ValueError, "inconsistent numbers of samples"),
        ([[1.0], [2.0], [3.0]], None, ValueError, "requires y to be passed"),
        (np.ones((3, 0)), [1, 2, 3], ValueError, r"Found array with 0 feature\(s\)"),
        ([[1.0], [2.0], [3.0]], [1e300, 2, 3e300], ValueError, "Input y contains .*too large"),
    ],
)
def test_bad_data(estimator, X, y, error, message, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)  # no training may start
    with pytest.raises(error, match=message):
        clone(estimator).fit(X, y)


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("similarity", "l3"),
        ("softstep", "s3"),
        ("embedding_dim", -1),
        ("max_iter", 0),
        ("validation_fraction", 1.0),
        ("hidden_layer_sizes", 3.5),
        ("random_state", "seed"),
    ],
)
def test_bad_parameters(estimator, name, value, plane, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)
    with pytest.raises(ValueError, match=f"The '{name}' parameter of .*Got {value!r} instead"):
        clone(estimator).set_params(**{name: value}).fit(plane[0], plane[2])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (nona(hidden_layer_sizes=(8, 0)), r"hidden_layer_sizes must be positive .* got \(8, 0\)"),
        (nona(device="meta"), r"torch can use here, of \['cpu'.*, got 'meta'"),
        (nona(device="gpu"), r"torch can use here, of \['cpu'.*, got 'gpu'"),
        (nona(similarity="euclidean"), "'l2' is the Euclidean distance"),
        (nona(weighting="distance"), "similarity='log_l2' makes weights of inverse distances"),
        (nona(similarity="l2", n_neighbors=2, n_estimators=3), "or set n_estimators=2"),
        (nona(device="meta:3:1"), "device must be .*, got 'meta:3:1'"),
        (nona(n_estimators=0), "The 'n_estimators' parameter .*Got 0 instead"),
        (nona(numerical_embedding="plr"), "The 'numerical_embedding' parameter .*Got 'plr'"),
        (nona(adjust="yes"), "The 'adjust' parameter .*Got 'yes' instead"),
        (
            softstep_knn(learn_feature_weights="no"),
            "The 'learn_feature_weights' parameter .*Got 'no' instead",
        ),
        (softstep_knn(n_neighbors=0), "The 'n_neighbors' parameter .*Got 0 instead"),
        (softstep_knn(softstep=None), "The 'softstep' parameter .*Got None instead"),
        (
            softstep_knn(hidden_layer_sizes=(), weighting="uniform"),
            r"hidden_layer_sizes must be None .* a step on ranks, got \(\)",
        ),
        (
            nona(validation_fraction=0.99),
            "validation_fraction=0.99 of n_samples=120 leaves fewer than 2 training rows",
        ),
    ],
)
def test_bad_parameter_combinations(estimator, message, plane, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)
    with pytest.raises(ValueError, match=message):
        estimator.fit(plane[0], plane[2])


@BOTH
def test_queries_before_fit_are_errors(estimator, plane):
    reg = clone(estimator)
    for evaluate in (
        reg.predict,
        reg.transform,
        reg.kneighbors,
        reg.neighbor_weights,
        reg.explain,
    ):
        with pytest.raises(NotFittedError):
            evaluate(plane[0])
    with pytest.raises(NotFittedError):
        reg.predict(None)


@BOTH
def test_invalid_queries_are_errors(estimator, plane):
    X, X_test, y, _ = plane
    reg = clone(estimator).fit(X, y)
    with pytest.raises(ValueError, match="column 0 holds inf, which is near nothing"):
        reg.predict(np.full((1, 2), np.inf))
    with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2 features"):
        reg.predict(X_test[:, :1])
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 120, got 121"):
        reg.heaviest_neighbors(X_test, 121)
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 119, got 120"):
        reg.heaviest_neighbors(None, 120)
    with pytest.raises(ValueError, match=r"n_neighbors must be .*, got 2\.5"):
        reg.heaviest_neighbors(X_test, 2.5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*networks predict validation rows no better")
def test_extreme_values_are_bent_back_or_refused(plane):
    X, X_test, y, _ = plane
    reg = nona().fit(np.r_[X, [[1e300, -1e300]]], np.r_[y, 0])
    assert np.isfinite(reg.predict(1e60 * X_test)).all()
    for learned in (False, True):
        reg = softstep_knn(learn_feature_weights=learned).fit(X, y)
        with pytest.raises(ValueError, match=r"too large for float32: [\d.e+]* in row \d"):
            reg.predict(1e60 * X_test)
    with pytest.raises(ValueError, match=r"value too large for float32: 1e\+300 in row 120"):
        softstep_knn().fit(np.r_[X, [[1e300, 0]]], np.r_[y, 0])


def test_a_single_value_out_of_range_is_refused(plane):
    X, X_test, y, _ = plane
    query = X_test.copy()
    query[7, 1] = 1e60
    for learned in (False, True):
        reg = softstep_knn(learn_feature_weights=learned).fit(X, y)
        with pytest.raises(ValueError, match=r"too large for float32: 1e\+60 in row 7"):
            reg.predict(query)


@pytest.mark.slow
def test_numbers_of_numpy_are_numbers_and_truth_values_are_none(plane):
    X, _, y, _ = plane
    for one in (np.int64(1), np.uint8(1)):
        assert len(nona(n_estimators=one).fit(X, y).validation_indices_) == 1
    with pytest.raises(ValueError, match=r"'n_estimators' parameter .* Got True instead"):
        nona(n_estimators=True).fit(X, y)


@BOTH
def test_a_failed_refit_leaves_the_earlier_model(estimator, plane, monkeypatch):
    X, X_test, y, _ = plane
    reg = clone(estimator).fit(X, y)
    before, state = reg.predict(X_test), set(vars(reg))
    with pytest.raises(ValueError, match="Input y contains NaN"):
        reg.fit(X[:, :1], np.full(120, np.nan))

    def crash(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(loop, "train_network", crash)
    with pytest.raises(RuntimeError, match="out of memory"):
        reg.fit(X[:, :1], y)
    assert reg.n_features_in_ == 2
    assert set(vars(reg)) == state
    np.testing.assert_array_equal(reg.predict(X_test), before)


def test_a_failed_first_fit_leaves_no_model(plane):
    reg = nona(training=TrainingOptions(learning_rate_init=1e30))
    with pytest.raises(ValueError, match="training diverged"):
        reg.fit(plane[0], plane[2])
    with pytest.raises(NotFittedError):
        reg.predict(plane[1])
    assert set(vars(reg)) == set(reg.get_params(deep=False))


# -- fitting ------------------------------------------------------------------------------


@EACH
def test_same_seed_same_result(estimator, plane):
    X, X_test, y, _ = plane
    first, second = (clone(estimator).fit(X, y).predict(X_test) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_fits_in_threads_repeat_themselves(plane):
    X, X_test, y, _ = plane
    reg = nona(hidden_layer_sizes=(100, 100), max_iter=2)
    expected, state = clone(reg).fit(X, y).predict(X_test), torch.get_rng_state()
    fits = joblib.Parallel(4, backend="threading")(
        joblib.delayed(lambda: clone(reg).fit(X, y).predict(X_test))() for _ in range(16)
    )
    assert torch.equal(torch.get_rng_state(), state)
    for predictions in fits:
        np.testing.assert_array_equal(predictions, expected)


def test_other_seed_other_result(plane):
    X, X_test, y, _ = plane
    assert not np.array_equal(
        nona(random_state=0).fit(X, y).predict(X_test),
        nona(random_state=1).fit(X, y).predict(X_test),
    )


@BOTH
def test_global_random_state_and_threads_are_left_alone(estimator, plane):
    X, X_test, y, _ = plane
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    expected = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    torch.set_num_threads(2)
    clone(estimator).fit(X, y).predict(X_test)
    assert torch.get_num_threads() == 2
    assert (torch.rand(1), np.random.rand()) == expected  # noqa: NPY002


@pytest.mark.slow
@BOTH
def test_silent_unless_verbose(estimator, plane, capsys):
    X, _, y, _ = plane
    clone(estimator).fit(X, y)
    assert capsys.readouterr() == ("", "")
    clone(estimator).set_params(verbose=2).fit(X, y)
    out, err = capsys.readouterr()
    assert "train_loss" in out
    assert len(out.splitlines()) >= 5
    assert err == ""


@pytest.mark.slow
def test_early_stopping_and_history(plane):
    X, _, y, _ = plane
    reg = nona(max_iter=500, training=TrainingOptions(n_iter_no_change=3)).fit(X, y)
    assert reg.n_iter_ == len(reg.history_) < 500
    assert "valid_loss" in reg.history_[0]
    reg = nona(validation_fraction=None).fit(X, y)
    assert "valid_loss" not in reg.history_[0]


def test_validation_rows_join_the_bank(plane):
    X, _, y, _ = plane
    reg = nona(validation_fraction=0.5).fit(X, y)
    np.testing.assert_array_equal(reg.bank_.targets, y)


@pytest.mark.slow
def test_warm_start_continues(plane):
    X, _, y, _ = plane
    reg = nona(trend=None, warm_start=True, validation_fraction=None, max_iter=20).fit(X, y)
    first = [epoch["train_loss"] for epoch in reg.history_]
    reg.fit(X, y)
    assert reg.history_[0]["train_loss"] < first[0]
    assert reg.history_[-1]["train_loss"] < first[-1]


def test_warm_start_needs_the_same_shape(plane):
    X, X_test, y, _ = plane
    reg = nona(warm_start=True).fit(X, y)
    before = reg.predict(X_test)
    with pytest.raises(ValueError, match="warm_start=True needs the number of features"):
        reg.fit(X[:, :1], y)
    np.testing.assert_array_equal(reg.predict(X_test), before)


@EACH
def test_predict_adds_no_attribute(estimator, plane):
    X, X_test, y, _ = plane
    reg = clone(estimator).fit(X, y)
    before = set(vars(reg))
    reg.predict(X_test)
    reg.heaviest_neighbors(X_test)
    assert set(vars(reg)) == before


# -- every parameter arrives ---------------------------------------------------------------


@BOTH
def test_training_parameters_arrive(estimator, plane, monkeypatch):
    X, _, y, _ = plane
    parameters = {"max_iter": 2, "verbose": 0}
    options = {
        "neighbor_pool": "memory",
        "pool_size": 33,
        "batch_size": 17,
        "learning_rate_init": 0.0123,
        "weight_decay": 0.0456,
        "n_iter_no_change": 7,
    }
    seen = {}
    train_network = loop.train_network

    def spy(network, train, valid, config, **kwargs):
        seen.update(vars(config), n_train=len(train), n_valid=len(valid))
        return train_network(network, train, valid, config, **kwargs)

    monkeypatch.setattr(loop, "train_network", spy)
    reg = clone(estimator).set_params(validation_fraction=0.3, **parameters)
    reg.set_params(training=TrainingOptions(**options)).fit(X, y)
    arrived = parameters | options
    assert {name: seen[name] for name in arrived} == arrived
    assert (seen["n_train"], seen["n_valid"]) == (84, 36)


@pytest.mark.slow
def test_network_parameters_arrive(plane):
    X, _, y, _ = plane
    network = (
        nona(
            n_estimators=1,
            hidden_layer_sizes=(9, 8),
            embedding_dim=7,
            similarity="cosine",
            softstep=SoftStep("s2", "pointwise"),
        )
        .fit(X, y)
        .network_
    )
    periodic, mlp = network.embedding
    assert type(periodic).__name__ == "PeriodicEmbedding"
    assert [layer.out_features for layer in mlp.layers[::2]] == [9, 8, 7 + 1]  # compared, and g
    assert {type(layer) for layer in mlp.layers[1::2]} == {torch.nn.ReLU}
    assert network.head.n_adjusted == 1
    assert (network.head.similarity, type(network.head.weighting)) == ("cosine", Softmax)
    assert "log_temperature" in dict(network.head.named_parameters())
    assert (network.head.step.step, network.head.step.params) == ("s2", "pointwise")

    reg = softstep_knn(
        n_neighbors=30,
        weighting="uniform",
        similarity="l1",
        softstep=SoftStep("s2", "pointwise", on="rank"),
        learn_feature_weights=False,
    ).fit(X, y)
    head, step = reg.network_.head, reg.network_.head.step
    assert isinstance(reg.network_.embedding, torch.nn.Identity)
    assert isinstance(reg.bank_.trend, KernelTrend)
    plain = softstep_knn(trend=None).fit(X, y)
    assert isinstance(plain.network_.embedding, FeatureWeights)
    assert plain.bank_.trend is None
    assert (head.similarity, type(head.weighting), head.n_neighbors) == ("l1", Uniform, 30)
    assert (step.step, step.params, step.on) == ("s2", "pointwise", "rank")


def test_paper_parameters_arrive(plane):
    X, _, y, _ = plane
    plain = nona(adjust=False, numerical_embedding=None, hidden_layer_sizes=(9,)).fit(X, y)
    assert plain.network_.embedding.shortcut is not None
    embedding = MLPEmbedding(2, 5, (9,), activation="tanh", batch_norm=True)
    step = SoftStep("s2", "pointwise")
    weighting = Softmax(learn_temperature=False)
    reg = nona(embedding, hidden_layer_sizes=None, softstep=step, weighting=weighting)
    network = reg.fit(X.astype(np.float32), y).network_
    layers = network.embedding.extractor
    assert isinstance(network.embedding.embedding, torch.nn.Identity)
    assert layers.shortcut is None
    kinds = [type(layer).__name__ for layer in layers.layers]
    assert kinds == ["Linear", "BatchNorm1d", "Tanh", "Linear"]
    assert network.head.step.linear.in_features == 5
    assert network.head.temperature == 1.0
    assert network.head.n_adjusted == 0


# -- several estimators ---------------------------------------------------------------------


@pytest.mark.slow
def test_the_prediction_is_the_mean_of_the_estimators(plane):
    X, X_test, y, _ = plane
    reg = nona(n_estimators=3, embedding_dim=5, similarity="l2").fit(X, y)
    queries = reg.embed(X_test)
    embeddings = queries.embeddings.split(6, dim=1)  # 5 compared, and g of the target
    banks = reg.bank_.embeddings.split(6, dim=1)
    neighbors = reg.bank_.neighbors
    each = [
        replace(reg.bank_, neighbors=replace(neighbors, rows=bank))
        .evaluate(head, replace(queries, embeddings=query))
        .mean()
        .numpy()
        for bank, head, query in zip(banks, reg.network_.head.heads, embeddings, strict=True)
    ]
    np.testing.assert_allclose(reg.predict(X_test), np.mean(each, axis=0), atol=1e-6)
    assert np.ptp(each, axis=0).max() > 1e-3


@pytest.mark.slow
def test_each_estimator_has_its_own_validation_rows(plane, monkeypatch):
    X, _, y, _ = plane
    seen = []

    def spy(network, train, valid, config, **kwargs):
        seen.append((train.y, valid.y))
        return train_network(network, train, valid, config, **kwargs)

    monkeypatch.setattr(loop, "train_network", spy)
    reg = nona(n_estimators=3).fit(X, y)
    assert len({tuple(valid.tolist()) for _, valid in seen}) == 3
    for train, valid in seen:
        assert len(train) + len(valid) == 120
    assert [epoch["estimator"] for epoch in reg.history_] == [0] * 5 + [1] * 5 + [2] * 5


@pytest.mark.first
@pytest.mark.slow
def test_parallel_estimators_change_nothing(plane):
    X, X_test, y, _ = plane
    one, two = (nona(n_estimators=2, n_jobs=n).fit(X, y).predict(X_test) for n in (None, 2))
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.slow
def test_binary_features_are_not_widened(plane):
    X, _, y, _ = plane
    X = np.c_[X, X[:, 0] > 0, np.ones(len(X))]
    periodic, mlp = nona(n_estimators=1, similarity="l2").fit(X, y).network_.embedding
    assert (periodic.widened.tolist(), periodic.passing.tolist()) == ([0, 1], [2, 3])
    assert mlp.layers[0].in_features == 2 * 8 + 2
    assert np.isfinite(nona().fit(X[:, 2:], y).predict(X[:, 2:])).all()  # nothing to widen


@pytest.mark.parametrize("step", ["s1", "s2"])
@pytest.mark.parametrize("on", ["similarity", "rank"])
def test_the_step_starts_at_the_tenth_neighbour(plane, step, on):
    """About that many rows get more than half of the largest weight before training."""
    X, _, y, _ = plane
    untrained = softstep_knn(
        softstep=SoftStep(step, on=on),
        weighting="uniform",
        n_neighbors=None,
        max_iter=1,
        training=TrainingOptions(learning_rate_init=1e-9),
    ).fit(X, y)
    weights = untrained.neighbor_weights(None).toarray()
    n_near = (weights > weights.max(axis=1, keepdims=True) / 2).sum(axis=1)
    assert 6 <= np.median(n_near) <= 14


def untrained_head(X, **params):
    """What training starts from in the given space."""
    knn = softstep_knn(learn_feature_weights=False, **params)
    knn.similarity_ = knn.similarity  # as fit chooses it
    targets = RegressionTargets().fit(X[:, 0])
    sample = Sample(torch.tensor(X).float(), targets.encode(targets.values(X[:, 0])))
    network = knn._architecture().build(sample, targets, None, slice(None))
    return network.requires_grad_(False).head


def start_distances(X):
    """Distances to each row's nearest and tenth neighbour, (n,) each."""
    distance = np.sort(np.linalg.norm(X[:, None] - X, axis=2), axis=1)
    return distance[:, 1], distance[:, 10]  # 0 is the row itself


def test_the_temperature_starts_at_the_tenth_neighbour(plane):
    """How much farther it is than the nearest: a difference of numbers rounded to float32."""
    X = 5 * plane[0][:119]  # an odd number has one median
    nearest, tenth = start_distances(X)
    temperature = float(untrained_head(X, similarity="l2").temperature)
    assert temperature == pytest.approx(np.median(tenth - nearest), rel=1e-4)


def test_the_nugget_starts_at_a_share_of_the_tenth_neighbour(plane):
    X = 5 * plane[0][:119]
    head = untrained_head(X, similarity="log_l2")
    expected = 0.3 * np.median(start_distances(X)[1])
    assert float(head.log_nugget.exp()) == pytest.approx(expected, rel=1e-4)
    assert float(head.temperature) == 1


@pytest.mark.slow
def test_rows_in_order_start_as_shuffled_ones_do():
    """Denser and denser towards the first: the first thousand are no sample of all."""
    X = np.sort(np.random.default_rng(0).exponential(size=(4000, 1)) ** 3, axis=0)
    shuffled = np.random.default_rng(1).permutation(X)
    sorted_, expected = (
        float(untrained_head(x, similarity="l2").temperature) for x in (X, shuffled)
    )
    assert 0.5 < sorted_ / expected < 2


@pytest.mark.parametrize(("hidden_layer_sizes", "average"), [(None, False), ((8,), True)])
def test_a_learned_embedding_is_averaged_and_a_given_space_is_not(
    plane, monkeypatch, hidden_layer_sizes, average
):
    seen = {}

    def spy(network, train, valid, config, **kwargs):
        seen.update(vars(config))
        return train_network(network, train, valid, config, **kwargs)

    monkeypatch.setattr(loop, "train_network", spy)
    softstep_knn(hidden_layer_sizes=hidden_layer_sizes, max_iter=1).fit(plane[0], plane[2])
    assert seen["average"] is average


# -- persistence --------------------------------------------------------------------------


def joblib_round_trip(reg):
    buffer = io.BytesIO()
    joblib.dump(reg, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


@pytest.mark.slow
@EACH
@pytest.mark.parametrize(
    "copied",
    [joblib_round_trip, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))],
    ids=["joblib", "deepcopy", "pickle"],
)
def test_round_trips_predict_the_same(estimator, plane, copied):
    X, X_test, y, _ = plane
    reg = clone(estimator).fit(X, y)
    again = copied(reg)
    np.testing.assert_array_equal(again.predict(X_test), reg.predict(X_test))
    np.testing.assert_array_equal(again.predict(None), reg.predict(None))
    assert again.history_ == reg.history_


@pytest.mark.slow
@pytest.mark.parametrize("trend", [None, "auto"])
def test_the_pickle_holds_bank_and_weights_and_little_else(trend):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 20)), rng.normal(size=4000)
    params = {"max_iter": 2, "hidden_layer_sizes": (50,), "embedding_dim": 4}
    reg = nona(n_estimators=2, trend=trend, similarity="l2", **params).fit(X, y)
    weights = sum(p.numel() * p.element_size() for p in reg.network_.parameters())
    bank = 4000 * (2 * (4 + 1) * 4 + 8)
    if trend is not None:  # features of the bank's rows, and what the trend has of its own
        bank += 4000 * (20 * 4 + 8) + 4000 * (8 + 20 * 4 + 4 * 8)
    assert len(pickle.dumps(reg)) < 1.1 * (bank + weights) + 10_000
    assert all(p.grad is None and not p.requires_grad for p in reg.network_.parameters())


@pytest.mark.parametrize("mmap_mode", ["r", "r+"])
def test_processes_share_a_mapped_bank(plane, tmp_path, mmap_mode):
    X, X_test, y, _ = plane
    reg = nona(n_neighbors=None).fit(X, y)
    joblib.dump(reg, tmp_path / "reg.joblib")
    one, other = (joblib.load(tmp_path / "reg.joblib", mmap_mode=mmap_mode) for _ in range(2))
    np.testing.assert_array_equal(one.predict(X_test), reg.predict(X_test))
    if mmap_mode == "r+":  # two loaded estimators, one file behind them
        offset = reg.bank_.neighbors.offset
        part = 1 - offset.share * (1 - offset.kept)  # of the targets, beside a trend
        shift = reg.predict(X_test) - part * reg.neighbor_weights(X_test) @ y
        one.bank_.targets[:] = 7.0
        # Weights of float32, summed in two ways.
        np.testing.assert_allclose(other.predict(X_test), part * 7.0 + shift, rtol=1e-6)


def is_plain(data):
    """Whether data hold no tensors, which have a device."""
    if isinstance(data, dict):
        return all(map(is_plain, data.values()))
    return data is None or isinstance(data, np.ndarray | str | int | float | tuple)


def test_a_pickle_holds_cpu_tensors_only(plane, monkeypatch):
    """Whatever device the model was fitted on: here, a simulated one."""
    X, X_test, y, _ = plane
    reg = nona().fit(X, y)
    expected = reg.predict(X_test)
    moved = []
    cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: moved.append(1) or cpu(self))
    state = reg.__getstate__()
    assert len(moved) == len(reg.network_.state_dict())
    assert is_plain(state["network_"])
    monkeypatch.undo()
    arrays = reg.bank_.__getstate__()["arrays"]
    assert all(isinstance(part, np.ndarray) for part in arrays.values())
    again = nona()
    again.__setstate__(state)
    np.testing.assert_array_equal(again.predict(X_test), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_on_a_gpu(plane):
    X, X_test, y, _ = plane
    reg = nona(max_iter=40).fit(X, y)
    assert reg.bank_.embeddings.device.type == "cuda"
    again = pickle.loads(pickle.dumps(reg))
    assert again.bank_.embeddings.device.type == "cpu"
    np.testing.assert_allclose(again.predict(X_test), reg.predict(X_test), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_columns", "choice", "widened"),
    [(64, "auto", True), (65, "auto", False), (65, "periodic", True), (2, None, False)],
)
def test_waves_widen_what_is_not_an_embedding(n_columns, choice, widened):
    X = np.random.default_rng(0).normal(size=(700, n_columns))
    X = np.c_[X, X[:, :1] > 0]  # a binary one is not counted
    reg = NONARegressor(numerical_embedding=choice, n_estimators=1, max_iter=1, similarity="l2")
    parts = reg.fit(X, X[:, 0]).network_.modules()
    assert any(isinstance(part, PeriodicEmbedding) for part in parts) == widened


def test_features_that_are_compared_as_they_are_have_no_layers(plane):
    X, _, y, _ = plane
    X = X.astype(np.float32)
    for params, message in (
        ({"feature_extractor": None}, "must not be None without a feature_extractor"),
        ({"adjust": True}, "adjust must be False with hidden_layer_sizes=None"),
    ):
        reg = nona(**{"feature_extractor": torch.nn.Linear(2, 3), **params})
        with pytest.raises(ValueError, match=message):
            reg.set_params(hidden_layer_sizes=None).fit(X, y)


@pytest.mark.slow
def test_targets_are_validated_once(plane, monkeypatch):
    """Of numbers and of classes, with weights of rows and of classes."""
    X, _, y, _ = plane
    calls = []
    for kind in (RegressionTargets, ClassTargets):

        def spy(*args, check=kind.check, **kwargs):
            calls.append(1)
            return check(*args, **kwargs)

        monkeypatch.setattr(kind, "check", spy)
    weights = np.r_[0.0, np.ones(len(y) - 1)]
    labels = (y > np.median(y)).astype(int)
    nona(max_iter=1).fit(X, y, sample_weight=weights)
    NONAClassifier(n_estimators=1, max_iter=1, class_weight="balanced").fit(X, labels)
    NONAClassifier(n_estimators=1, max_iter=1).fit(X, labels, sample_weight=weights)
    assert len(calls) == 3


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.15, None])
@pytest.mark.parametrize("kind", [NONARegressor, NONAClassifier])
def test_the_history_marks_the_epoch_whose_weights_are_kept(plane, kind, fraction):
    y = plane[2] if kind is NONARegressor else plane[2] > 0
    params = {"n_estimators": 2, "max_iter": 12, "random_state": 0}
    fitted = kind(validation_fraction=fraction, **params).fit(plane[0], y)
    loss = "train_loss" if fraction is None else "valid_loss"
    kept = [epoch for epoch in fitted.history_ if "kept" in epoch]
    assert [epoch["estimator"] for epoch in kept] == [0, 1]
    for best in kept:
        losses = [e[loss] for e in fitted.history_ if e["estimator"] == best["estimator"]]
        assert best[loss] == min(losses)
    assert fitted.best_loss_ == pytest.approx(np.mean([epoch[loss] for epoch in kept]))
    assert fitted.n_estimators_ == 2
