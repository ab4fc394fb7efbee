"""How many rows a prediction may have: given, or chosen after training."""

import pickle
from unittest import mock

import numpy as np
import pytest
import torch
from inner.estimators import (
    N_NEIGHBORS,
    START_N_NEIGHBORS,
    START_N_NEIGHBORS_OF_CLASSES,
)
from inner.training import loop
from sklearn.datasets import load_iris

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    load,
    save,
)
from nona_sklearn.weighting import Entmax, SparseSoftmax

EACH = pytest.mark.parametrize(
    "kind",
    [NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier],
)
OF_NONA = pytest.mark.parametrize("kind", [NONARegressor, NONAClassifier])
OF_SOFTSTEP = pytest.mark.parametrize(
    "kind", [SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier]
)


def make(kind, **params):
    """Make an estimator that is fitted in tenths of a second."""
    params = {"max_iter": 4, "random_state": 0} | params
    if kind in (NONARegressor, NONAClassifier):
        networks = {"hidden_layer_sizes": (16,), "n_estimators": 2, "similarity": "l2"}
        params = networks | params
    return kind(**params)


def data(kind, n_rows=150, n_outputs=None):
    """Features, and a target with noise or classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    shape = (n_rows,) if n_outputs is None else (n_rows, n_outputs)
    y = X[:, :1].reshape(n_rows, *[1] * (len(shape) - 1)) + 0.5 * rng.normal(size=shape)
    return X, (y > 0).astype(int) if "Classifier" in kind.__name__ else y


def heads(estimator):
    """Heads of all networks."""
    head = estimator.network_.head
    return list(getattr(head, "heads", [head]))


def predictions(estimator, X):
    """Predictions, or probabilities."""
    return getattr(estimator, "predict_proba", estimator.predict)(X)


# -- bad input --------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_neighbors": 0}, "'n_neighbors' .* Got 0"),
        ({"n_neighbors": "all"}, "'n_neighbors' .* Got 'all'"),
        ({"n_neighbors": 2.5}, "'n_neighbors' .* Got 2.5"),
        ({"n_neighbors": 21}, "n_neighbors .* number of training rows, 20, got 21"),
        (
            {"n_neighbors": 3, "weighting": "sparse_softmax"},
            "n_neighbors .* with weighting='sparse_softmax'.* 16, got 3",
        ),
        (
            {"n_neighbors": 3, "weighting": SparseSoftmax(5)},
            r"n_neighbors .* with weighting=SparseSoftmax\(n_neighbors=5\).* 5, got 3",
        ),
        ({"n_neighbors": 3, "weighting": "preconditioned"}, "'preconditioned'.* 32, got 3"),
    ],
)
def test_bad_numbers_are_named_before_training(kind, params, message):
    X, y = data(kind, n_rows=20)
    with (
        mock.patch.object(loop, "train_network", side_effect=AssertionError),
        pytest.raises(ValueError, match=message),
    ):
        make(kind, **params).fit(X, y)


@OF_NONA
def test_more_networks_than_neighbours_are_refused(kind):
    with pytest.raises(ValueError, match=r"n_neighbors .* n_estimators=3.* got 2"):
        make(kind, n_neighbors=2, n_estimators=3).fit(*data(kind))


# -- a given number ---------------------------------------------------------------------------


@OF_NONA
def test_networks_share_the_number(kind):
    X, y = data(kind)
    estimator = make(kind, n_neighbors=np.int64(8), n_estimators=3).fit(X, y)
    assert [head.n_neighbors for head in heads(estimator)] == [3, 3, 2]
    assert estimator.n_neighbors_ == 8
    assert estimator.neighborhood(X[:50])["n_nonzero_weights"].max() <= 8


@OF_NONA
def test_there_are_no_more_networks_than_neighbours(kind):
    estimator = make(kind, n_neighbors=2, n_estimators="auto").fit(*data(kind))
    assert estimator.n_estimators_ == 2
    assert [head.n_neighbors for head in heads(estimator)] == [1, 1]


@OF_SOFTSTEP
def test_softstep_is_capped_at_the_number(kind):
    X, y = data(kind)
    for step in ("s1", "s2"):
        knn = make(kind, n_neighbors=4, softstep=step).fit(X, y)
        assert knn.n_neighbors_ <= 4
        assert knn.neighborhood(X[:50])["n_nonzero_weights"].max() <= 4


@pytest.mark.slow
@OF_NONA
@pytest.mark.parametrize("weighting", ["entmax", "sparsemax", "softpick"])
def test_weightings_that_end_may_be_capped_further(kind, weighting):
    X, y = data(kind)
    estimator = make(kind, n_neighbors=6, weighting=weighting).fit(X, y)
    assert estimator.neighborhood(X[:50])["n_nonzero_weights"].max() <= 6


def test_all_rows_may_have_weight():
    X, y = data(NONARegressor, n_rows=30)
    assert make(NONARegressor, n_neighbors=30).fit(X, y).n_neighbors_ == 30
    assert make(NONARegressor, n_neighbors=None).fit(X, y).n_neighbors_ is None


# -- a chosen number --------------------------------------------------------------------------


@OF_NONA
def test_auto_chooses_a_number_for_each_network(kind):
    X, y = data(kind)
    estimator = make(kind, n_neighbors="auto").fit(X, y)
    chosen = [head.n_neighbors for head in heads(estimator)]
    assert set(chosen) <= set(N_NEIGHBORS)
    assert estimator.n_neighbors_ == min(sum(chosen), len(X))
    assert estimator.neighborhood(X[:50])["n_nonzero_weights"].max() <= sum(chosen)


@OF_NONA
def test_auto_without_validation_rows_is_the_number_of_training(kind):
    X, y = data(kind, n_outputs=2)
    estimator = make(kind, n_neighbors="auto", validation_fraction=None).fit(X, y)
    start = START_N_NEIGHBORS if kind is NONARegressor else START_N_NEIGHBORS_OF_CLASSES
    assert [head.n_neighbors for head in heads(estimator)] == [start, start]


@pytest.mark.parametrize(("n_networks", "least"), [(1, 10), (2, 5), (3, 5), (5, 3)])
def test_auto_is_at_least_ten_of_all_networks_together(n_networks, least):
    assert min(NONARegressor()._architecture().candidates(n_networks, 1000)) == least


@EACH
def test_auto_is_at_most_all_rows(kind):
    X, y = data(kind, n_rows=6)
    estimator = make(kind, n_neighbors="auto", validation_fraction=None).fit(X, y)
    assert estimator.n_neighbors_ <= 6
    assert np.isfinite(predictions(estimator, X)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "params",
    [
        *({"weighting": name} for name in ("entmax", "sparsemax", "softpick")),
        *({"weighting": name} for name in ("sparse_softmax", "preconditioned")),
        {"softstep": "s1"},
        {"softstep": SoftStep("s1", "pointwise")},
    ],
)
def test_auto_leaves_weights_that_end_by_themselves(params):
    X, y = data(NONARegressor)
    as_they_are = make(NONARegressor, n_neighbors=None, **params).fit(X, y)
    auto = make(NONARegressor, n_neighbors="auto", **params).fit(X, y)
    np.testing.assert_array_equal(auto.predict(X), as_they_are.predict(X))


@pytest.mark.slow
@pytest.mark.parametrize("params", [{"weighting": Entmax(1.0)}, {"softstep": "s2"}])
def test_auto_caps_weights_that_do_not_end(params):
    reg = make(NONARegressor, n_neighbors="auto", **params).fit(*data(NONARegressor))
    assert all(head.n_neighbors in N_NEIGHBORS for head in heads(reg))


@OF_SOFTSTEP
def test_auto_caps_the_step_that_does_not_end(kind):
    X, y = data(kind)
    assert make(kind, n_neighbors="auto", softstep="s2").fit(X, y).n_neighbors_ in N_NEIGHBORS
    s1 = make(kind, n_neighbors="auto", softstep="s1").fit(X, y)
    assert s1.network_.head.n_neighbors is None
    assert s1.neighborhood(X)["n_nonzero_weights"].max() <= s1.n_neighbors_ <= len(X)


# -- with everything else ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=["given", "chosen"])
def reg(request):
    X, y = data(NONARegressor, n_outputs=2)
    k = {"given": 9, "chosen": "auto"}[request.param]
    fitted = make(NONARegressor, n_neighbors=k).fit(X, y)
    for head, shrinkage in zip(heads(fitted), (0.3, 0.1), strict=True):
        head.shrinkage = shrinkage  # which small data may not choose
    return fitted


def test_leaving_a_row_out_is_removing_it(reg):
    X, _ = data(NONARegressor, n_outputs=2)
    without = pickle.loads(pickle.dumps(reg))
    without.remove_neighbors(ids=[5])
    np.testing.assert_allclose(reg.predict(None)[5], without.predict(X[5:6])[0], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_contributions_sum_to_predictions(reg):
    X, _ = data(NONARegressor, n_outputs=2)
    table = reg.explain(X[:4], 30)
    for j in range(2):
        sums = table.groupby("query", sort=False)[f"contribution_{j}"].sum()
        np.testing.assert_allclose(sums, reg.predict(X[:4])[:, j], rtol=1e-6)


def test_a_definition_of_predictions(reg):
    """With shrinkage: sum_j w_j (y_j + g(q) - g(j) - s (y_j - g(j) - mean residual)).

    A share a of it is the trend's, f(q) + 0.2 sum_j w_j (y_j - f(j)). Of that a share, the
    credibility; the rest is the mean.
    """
    X, y = data(NONARegressor, n_outputs=2)
    z, expected = torch.from_numpy(reg.embed(X).embeddings.numpy()), 0
    offset, f = reg.bank_.neighbors.offset, reg.bank_.trend_of(reg.embed(X)).numpy()
    unit = reg.bank_.neighbors.adjustment_scale.numpy()
    parts = reg.network_.head.split_by_head(z, reg.bank_.embeddings)
    for head, own, theirs in parts:
        weights = head.neighbor_weights(own, theirs).double().numpy()
        g_own, g = (unit * head.adjustments(each).double().numpy() for each in (own, theirs))
        residuals = y - g
        shrunk = head.shrinkage * (residuals - np.array(head.mean_residual))
        share, mean = np.array(head.credibility), np.array(head.mean_target)
        own_mean = weights @ (residuals - shrunk) + g_own
        of_trend = f + 0.2 * weights @ (y - offset.values.numpy())
        own_mean = (1 - offset.share) * own_mean + offset.share * of_trend
        expected = expected + (share * own_mean + (1 - share) * mean) / len(parts)
    np.testing.assert_allclose(reg.predict(X), expected, rtol=1e-5, atol=1e-5)


def test_files_keep_numbers_and_shrinkage(reg, tmp_path):
    X, _ = data(NONARegressor, n_outputs=2)
    save(reg, tmp_path / "reg.nona")
    for copy in (load(tmp_path / "reg.nona"), pickle.loads(pickle.dumps(reg))):
        assert copy.n_neighbors == reg.n_neighbors
        assert copy.n_neighbors_ == reg.n_neighbors_
        assert [head.shrinkage for head in heads(copy)] == [0.3, 0.1]
        np.testing.assert_array_equal(copy.predict(X), reg.predict(X))


@pytest.mark.slow
@pytest.mark.parametrize("n_outputs", [None, 2])
def test_predictions_follow_the_units_of_targets(n_outputs):
    """Of heads that shrink residuals as well, whose mean has the units of the targets."""
    X, y = data(NONARegressor, n_outputs=n_outputs)
    reg = make(NONARegressor, n_neighbors=6, max_iter=30).fit(X, y)
    assert any(head.shrinkage > 0 for head in heads(reg))
    scaled = make(NONARegressor, n_neighbors=6, max_iter=30).fit(X, 64 * y + 1024)
    assert [h.shrinkage for h in heads(scaled)] == [h.shrinkage for h in heads(reg)]
    expected = 64 * reg.predict(X) + 1024
    np.testing.assert_allclose(scaled.predict(X), expected, rtol=1e-4)


@pytest.mark.slow
@EACH
def test_a_warm_start_may_change_the_number(kind):
    X, y = data(kind)
    estimator = make(kind, warm_start=True).fit(X, y)
    for k in ("auto", 8, None):
        estimator.set_params(n_neighbors=k).fit(X, y)
        assert k is None or estimator.n_neighbors_ is not None
        assert np.isfinite(predictions(estimator, X)).all()


@pytest.mark.slow
@EACH
def test_sample_weights_and_groups(kind):
    """A group has one side of the split; rows of weight 0 are none of the training rows."""
    X, y = data(kind)
    weight = np.random.default_rng(1).random(len(X)) * (np.arange(len(X)) >= 50)
    groups = np.arange(len(X)) // 5
    for k in ("auto", 8):
        estimator = make(kind, n_neighbors=k, softstep="s2") if "Soft" in kind.__name__ else None
        estimator = estimator or make(kind, n_neighbors=k)
        estimator.fit(X, y, sample_weight=weight, groups=groups)
        assert estimator.neighborhood(X)["n_nonzero_weights"].max() <= estimator.n_neighbors_
    with pytest.raises(ValueError, match="number of training rows, 100, got 101"):
        make(kind, n_neighbors=101).fit(X, y, sample_weight=weight)


@pytest.mark.slow
def test_classes_of_few_votes_are_probabilities():
    X, y = load_iris(return_X_y=True)
    for k in (2, "auto"):
        clf = make(NONAClassifier, n_neighbors=k).fit(X, y)
        probabilities = clf.predict_proba(X)
        assert (probabilities > 0).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)


@EACH
def test_a_step_on_similarities_bounds_the_rows_as_well(kind):
    X, y = data(kind)
    estimator = make(kind, n_neighbors=8, softstep="s2").fit(X, y)
    assert estimator.n_neighbors_ == 8
    assert estimator.neighborhood(X)["n_nonzero_weights"].max() <= 8
