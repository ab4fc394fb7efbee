"""Graphs that other programs run predict as the estimators do."""

import logging

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.frozen import FrozenEstimator
from torch import nn

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    export_onnx,
)
from nona_sklearn.similarity import SIMILARITIES, l2

X, Y = load_diabetes(return_X_y=True)
X, QUERIES, Y = X[:80], X[80:100], Y[:80]
QUICK = {"n_estimators": 1, "max_iter": 2, "random_state": 0}
SOFT = {"max_iter": 2, "random_state": 0, "softstep_on": "similarity"}
WEIGHTINGS = ("softmax", "gaussian", "sigmoid", "softplus", "softpick", "uniform")
STEPS = (None, ("s1", "global"), ("s1", "pointwise"), ("s2", "global"), ("s2", "pointwise"))


def exported(estimator, tmp_path, **params):
    """An estimator's graph: a function of queries that returns its outputs."""
    path = tmp_path / "model.onnx"
    export_onnx(estimator, path, overwrite=True, **params)
    session = onnxruntime.InferenceSession(path)
    return lambda X: session.run(None, {"X": X})


def assert_agrees(estimator, tmp_path, *queries, k=5, unsure=0.0):
    """`unsure`: by how much rounding may move the logarithm of a weight."""
    run = exported(estimator, tmp_path, n_neighbors=k)
    for X in queries:
        assert_outputs_agree(estimator, X, run(X), k, unsure)


def assert_outputs_agree(estimator, X, outputs, k, unsure):
    predictions, weights, neighbors = outputs
    if hasattr(estimator, "classes_"):
        probabilities = estimator.predict_proba(X)
        several = isinstance(probabilities, list)
        expected = np.hstack(probabilities) if several else probabilities
    else:
        expected = estimator.predict(X)
    assert predictions.shape == expected.shape
    # Embeddings and similarities are rounded to float32, by both in another order.
    about = 1e-5 + 2 * unsure * np.ptp(expected)
    np.testing.assert_allclose(predictions, expected, rtol=1e-5, atol=about)
    atol = 1e-5 + 2 * unsure
    table = estimator.neighbor_weights(X).toarray()
    np.testing.assert_allclose(weights, -np.sort(-table)[:, :k], rtol=0, atol=atol)
    places = np.searchsorted(estimator.bank_.ids.numpy(), neighbors)
    np.testing.assert_allclose(np.take_along_axis(table, places, 1), weights, rtol=0, atol=atol)


def rounding(estimator, X):
    """What float32 similarities err by, times the steepest slope of a weight's logarithm."""
    head = estimator.network_.head
    similarity = SIMILARITIES[estimator.similarity]
    neighbors = head.metric_part(estimator.bank_.embeddings)
    query = torch.as_tensor(estimator.transform(X))
    exact = head.scale(similarity(query.double(), neighbors.double()))
    error = (head.scale(similarity(query, neighbors)) - exact).abs().max()
    # exp(-s^2 / 2) falls by s; softpick's nearest is at least a tenth nearer than where it ends
    slope = {"gaussian": exact.abs().max(), "softpick": 10}.get(estimator.weighting, 1)
    if head.step is not None:  # it rises within a tenth of the range of a query's similarities
        slope = slope + 10 / (exact.amax(dim=1) - exact.amin(dim=1)).min()
    return float(slope * error)


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (NONAClassifier(**QUICK), Y > 100),
        *(
            pytest.param(estimator, y, marks=pytest.mark.slow)  # five seconds each
            for estimator, y in [
                (NONARegressor(n_estimators=2, max_iter=2, random_state=0), Y),
                (NONAClassifier(**QUICK), np.stack([Y > 100, Y // 100], axis=1).astype(int)),
                (SoftStepKNeighborsRegressor(**SOFT), Y),
                (NONARegressor(**QUICK), np.stack([Y, -Y], axis=1)),
                (NONARegressor(adjust=False, **QUICK), Y),
                (SoftStepKNeighborsClassifier(**SOFT), Y > 100),
            ]
        ),
    ],
    ids=["classes", "average", "several", "soft", "outputs", "as in the papers", "soft classes"],
)
def test_each_estimator_agrees(estimator, y, tmp_path):
    estimator = clone(estimator).fit(X, y, sample_weight=1 + np.arange(80) % 3)
    assert_agrees(estimator, tmp_path, QUERIES[:1], QUERIES)


ON_RANKS = {"step": "s1", "on": "rank"}


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (NONARegressor(n_neighbors=7, **QUICK), Y),
        *(
            pytest.param(estimator, y, marks=pytest.mark.slow)
            for estimator, y in [
                (NONARegressor(n_neighbors=7, n_estimators=2, max_iter=2, random_state=0), Y),
                (SoftStepKNeighborsRegressor(max_iter=2, random_state=0), Y),
                (SoftStepKNeighborsRegressor(8, **SOFT), Y),
                (NONAClassifier(n_neighbors=12, **QUICK), Y > 100),
                (NONARegressor(weighting="sparse_softmax", similarity="cosine", **QUICK), Y),
                (NONARegressor(n_neighbors=5, softstep=ON_RANKS, **QUICK), Y),
                (NONARegressor(n_neighbors=80, weighting="softpick", **QUICK), Y),
                (NONARegressor(n_neighbors=9, softstep="s2", **QUICK), Y),
                (SoftStepKNeighborsClassifier(9, softstep="s2", max_iter=2), Y > 100),
            ]
        ),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_weights_that_end_agree(estimator, y, tmp_path):
    estimator = clone(estimator).fit(X, y, sample_weight=1 + np.arange(80) % 3)
    assert_agrees(estimator, tmp_path, QUERIES[:1], QUERIES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [NONARegressor(n_neighbors=3, **QUICK), SoftStepKNeighborsRegressor(5, max_iter=2)],
    ids=lambda thing: type(thing).__name__,
)
def test_of_equally_near_rows_the_first_have_weight(estimator, tmp_path):
    rows = np.tile(X[:20], (4, 1))
    estimator = clone(estimator).fit(rows, Y)
    assert_agrees(estimator, tmp_path, X[:20], k=3)


@pytest.mark.slow
@pytest.mark.parametrize("n_estimators", [1, 2])
def test_edited_banks_and_far_and_known_rows_agree(n_estimators, tmp_path):
    estimator = NONARegressor(n_estimators=n_estimators, max_iter=2, random_state=0).fit(X, Y)
    estimator.add_neighbors(QUERIES[:5], Y[:5])
    estimator.remove_neighbors(ids=range(0, 40, 2))
    assert_agrees(estimator, tmp_path, np.vstack([QUERIES, 1e6 * QUERIES, X[:3]]))
    estimator.set_neighbor_targets(np.arange(65.0))
    assert_agrees(estimator, tmp_path, QUERIES)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e154, 1e155])  # below and above what a scaled number may be
def test_numbers_of_any_size_agree(size, tmp_path):
    estimator = NONARegressor(**QUICK).fit(X, Y)
    assert_agrees(estimator, tmp_path, size * np.sign(QUERIES))


def test_skewed_columns_agree(tmp_path):
    """Beyond the seen values, too, and at the quantiles, some of which are equal."""
    skewed = np.exp(100 * X[:, [0, 2]])
    skewed[:15] = skewed.min(axis=0)
    table = np.c_[skewed, X[:, 3:]]
    reg = NONARegressor(**QUICK).fit(table, Y)
    assert reg.scaler_.skewed_.tolist() == [0, 1]
    queries = np.r_[table[:5], -table[:5], 1e6 * table[:5]]
    queries[:5, :2] = reg.scaler_.quantiles_[[0, 5, 30, 60, 100]]
    assert_agrees(reg, tmp_path, queries)


def test_bounds_are_kept(tmp_path):
    bounds = float(np.quantile(Y, 0.4)), float(np.quantile(Y, 0.6))
    narrow = NONARegressor(bounds=bounds, **QUICK).fit(X, Y.clip(*bounds))
    assert_agrees(narrow, tmp_path, QUERIES)
    wide = NONARegressor(**QUICK).fit(X, Y.clip(*bounds))
    assert abs(wide.predict(QUERIES) - narrow.predict(QUERIES)).max() > 1  # they have an effect


def test_an_export_changes_nothing(tmp_path):
    estimator = NONARegressor(**QUICK).fit(X, Y)
    before, level = estimator.predict(QUERIES), logging.getLogger("torch.onnx").level
    dtypes = [each.dtype for each in estimator.network_.state_dict().values()]
    export_onnx(estimator, tmp_path / "model.onnx")
    np.testing.assert_array_equal(estimator.predict(QUERIES), before)
    assert [each.dtype for each in estimator.network_.state_dict().values()] == dtypes
    assert logging.getLogger("torch.onnx").level == level


@pytest.mark.slow
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_everything_that_streams_agrees(similarity, step, weighting, tmp_path):
    if weighting == "gaussian" and similarity not in ("l2", "l1"):
        pytest.skip("gaussian is of distances")
    if weighting == "uniform" and step is None:
        pytest.skip("uniform weighs nothing without a step")
    name, of = step or (None, "global")
    estimator = NONARegressor(
        similarity=similarity,
        softstep=name and {"step": name, "params": of},
        weighting=weighting,
        **QUICK,
    )
    estimator.fit(X, Y)
    queries = np.vstack([QUERIES, 1e6 * QUERIES])
    assert_agrees(estimator, tmp_path, queries, unsure=rounding(estimator, queries))


@pytest.mark.slow
def test_a_similarity_of_ones_own_agrees(tmp_path, monkeypatch):
    """Made of the package's, or of torch's distances."""

    def mixed(query, neighbors):
        return -(l2(query, neighbors) ** 2) - torch.cdist(query, neighbors, p=3.0)

    monkeypatch.setitem(SIMILARITIES, "mixed", mixed)
    estimator = NONARegressor(similarity="mixed", **QUICK).fit(X, Y)
    assert_agrees(estimator, tmp_path, QUERIES, unsure=rounding(estimator, QUERIES))


def test_a_raw_table_goes_in_as_the_estimator_encodes_it(tmp_path):
    table = pd.DataFrame(X).add_prefix("x").assign(kind=np.where(Y > 100, "a", "b"))
    estimator = NONARegressor(**QUICK).fit(table, Y)
    predictions, *_ = exported(estimator, tmp_path)(estimator.features_.transform(table))
    np.testing.assert_allclose(predictions, estimator.predict(table), rtol=1e-5)


class Extractor(nn.Linear):
    """A module of one's own."""


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        *(
            (
                SoftStepKNeighborsRegressor(None, max_iter=2, **step),
                "softstep_on must be 'similarity' .* got 'rank'",
            )
            for step in ({"softstep": "s2"}, {"softstep_params": "pointwise"})
        ),
        *(
            (NONARegressor(weighting=name, **QUICK), f"weighting must look at one .* got '{name}'")
            for name in ("sparsemax", "entmax", "preconditioned")
        ),
    ],
    ids=str,
)
def test_what_cannot_be_exported_is_named(estimator, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_onnx(clone(estimator).fit(X, Y), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_bad_arguments_are_refused(tmp_path):
    path = tmp_path / "model.onnx"
    for other in (TableEncoder(), FrozenEstimator(NONARegressor()), 3):
        with pytest.raises(TypeError, match="estimator must be one of nona_sklearn with a bank"):
            export_onnx(other, path)
    with pytest.raises(ValueError, match="is not fitted"):
        export_onnx(NONARegressor(), path)
    estimator = NONARegressor(**QUICK).fit(X, Y)
    for k in (0, 81, 2.5, None):
        with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 80, got"):
            export_onnx(estimator, path, n_neighbors=k)
    of_extractor = NONARegressor(Extractor(10, 4), **QUICK).fit(X.astype("f"), Y)
    for other in (None, 3):
        with pytest.raises(TypeError, match=f"path must be a str or path-like, got {other}"):
            export_onnx(estimator, other)
    with pytest.raises(ValueError, match="overwrite must be True or False, got 'yes'"):
        export_onnx(estimator, path, overwrite="yes")
    with pytest.raises(ValueError, match="feature_extractor must be None for an ONNX graph"):
        export_onnx(of_extractor, path)
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="path must be new"):
        export_onnx(estimator, path)
    assert path.read_text() == "mine"
