"""Estimators whose predictions a trend is a part of."""

import copy
import pickle
from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inner.data import TableRows
from inner.inference import SHARE, _number_by_squared_error, with_numbers
from inner.utils import one_blas_thread, threads
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from nona_sklearn import NONAClassifier, NONARegressor, load, save

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=150)


def labels_of(y):
    return np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.7])]


LABELS = labels_of(Y)
TARGETS = {NONARegressor: Y, NONAClassifier: LABELS}
NEW = RNG.normal(size=(20, 3))
DAYS = np.sort(RNG.uniform(0, 100, size=150))
#: Neighbours of embeddings, beside which the trend is; for those among features, see
#: test_feature_space.py.
SMALL = {"similarity": "l2", "hidden_layer_sizes": (16,), "max_iter": 10, "random_state": 0}


def nona(kind=NONARegressor, **params):
    return kind(**({"trend": "kernel", "n_estimators": 2} | SMALL | params))


def answer(model, queries):
    return getattr(model, "predict_proba", model.predict)(queries)


EACH = pytest.mark.parametrize("kind", TARGETS)


@pytest.fixture(scope="module")
def fitted():
    return nona().fit(X, Y)


@pytest.fixture(scope="module", params=TARGETS)
def either(request):
    """A regressor, or a classifier."""
    return nona(request.param).fit(X, TARGETS[request.param])


def offset_of(model):
    return model.bank_.neighbors.offset


def encoded(model, rows):
    return model.embed(rows).inputs


def test_a_prediction_is_the_networks_and_the_trend_with_residuals_of_neighbours(fitted):
    """(1 - a) NONA(q) + a (f(q) + 0.2 sum_j w_j (y_j - f(j))), where f(j) is of other rows."""
    offset, trend = offset_of(fitted), fitted.bank_.trend
    alone = copy.deepcopy(fitted)
    alone.bank_ = type(fitted.bank_)(
        type(fitted.bank_.neighbors)(
            fitted.bank_.embeddings,
            fitted.bank_.targets,
            adjustment_scale=fitted.bank_.neighbors.adjustment_scale,
        )
    )
    residuals = Y - trend.of_rows(np.arange(150), TableRows(fitted.bank_.inputs))[:, 0]
    of_trend = trend(encoded(fitted, NEW)).numpy()[:, 0]
    of_trend = of_trend + 0.2 * fitted.neighbor_weights(NEW) @ residuals
    expected = (1 - offset.share) * alone.predict(NEW) + offset.share * of_trend
    np.testing.assert_allclose(fitted.predict(NEW), expected, rtol=1e-6)


def test_a_trend_of_nona_may_be_additive(tmp_path):
    model = nona(trend="additive").fit(X, Y)
    offset, values = offset_of(model), offset_of(model).values.numpy()[:, 0]
    weighted = model.neighbor_weights(NEW) @ (Y - values)
    expected = model.bank_.trend(encoded(model, NEW)).numpy()[:, 0] + 0.2 * weighted
    save(model, tmp_path / "model.nona")
    whole = load(tmp_path / "model.nona")
    whole.bank_ = with_numbers(whole.bank_, share=1.0)
    np.testing.assert_allclose(whole.predict(NEW), expected, rtol=1e-6)
    whole.bank_ = with_numbers(whole.bank_, share=0.0)
    mixed = (1 - offset.share) * whole.predict(NEW) + offset.share * expected
    np.testing.assert_allclose(model.predict(NEW), mixed, rtol=1e-6)
    assert model.trend_ == "additive"


def test_the_values_of_the_trend_at_rows_are_of_other_rows(fitted):
    found = offset_of(fitted).values.numpy()[:, 0]
    left = fitted.bank_.trend.without(np.array([4]))
    np.testing.assert_allclose(found[4], left(encoded(fitted, X[4:5])).item(), rtol=1e-6)


def test_contributions_sum_to_predictions(fitted):
    table = fitted.explain(NEW)
    sums = table.groupby("query", sort=False)["contribution"].sum()
    np.testing.assert_allclose(sums, fitted.predict(NEW), rtol=1e-6)


def test_amounts_of_columns_sum_to_adjustments(fitted):
    table = fitted.attribute(NEW[:3], features=X, n_neighbors=3)
    moved = table["adjusted_target"] - table["target"]
    np.testing.assert_allclose(table[["x0", "x1", "x2", "other"]].sum(axis=1), moved, rtol=1e-6)
    # What columns do not explain is what is left out of the neighbours' residuals.
    residuals = Y - fitted.bank_.trend(encoded(fitted, X)).numpy()[:, 0]
    assert np.abs(table["other"]).max() < np.abs(residuals).max()


def test_quantiles_surround_predictions(fitted):
    low, high = fitted.predict_quantiles(NEW, (0.05, 0.95)).T
    inside = (low < fitted.predict(NEW)) & (fitted.predict(NEW) < high)
    assert inside.all()


def test_the_unit_of_targets_is_that_of_the_trend():
    in_cents = nona().fit(X, 100 * Y + 7)
    np.testing.assert_allclose(in_cents.predict(NEW), 100 * nona().fit(X, Y).predict(NEW) + 7)


# -- edits and files, of regressors and of classifiers ---------------------------------------


def test_a_removed_row_leaves_the_trend(either):
    """The calibration of classes stays."""
    model = copy.deepcopy(either).remove_neighbors(ids=[3, 50])
    trend = model.bank_.trend
    solved = trend
    if isinstance(model, NONAClassifier):
        solved = trend.trend
        np.testing.assert_array_equal(trend.slopes, either.bank_.trend.slopes)
    assert not np.isin([3, 50], solved.ids).any()
    assert len(solved.y) == 148
    np.testing.assert_allclose(
        offset_of(model).values[:].numpy(),
        trend.of_rows(model.bank_.ids.numpy(), TableRows(model.bank_.inputs)),
    )
    assert not np.array_equal(answer(model, NEW), answer(either, NEW))


def test_an_added_row_has_the_value_of_the_trend(either):
    model = copy.deepcopy(either)
    model.add_neighbors(NEW, TARGETS[type(model)][:20])
    expected = either.bank_.trend(encoded(either, NEW))
    np.testing.assert_allclose(offset_of(model).values[-20:].numpy(), expected.numpy())
    model.remove_neighbors(ids=np.arange(150, 170))
    np.testing.assert_allclose(answer(model, NEW), answer(either, NEW), rtol=1e-9)


def test_a_compressed_bank_has_the_same_trend(either):
    model = copy.deepcopy(either).compress(30)
    at = encoded(either, NEW)
    np.testing.assert_array_equal(model.bank_.trend(at).numpy(), either.bank_.trend(at).numpy())
    assert len(offset_of(model).values) == 30


def test_other_targets_have_no_trend(either):
    y = np.arange(150.0) if isinstance(either, NONARegressor) else LABELS[::-1]
    model = copy.deepcopy(either).set_neighbor_targets(y)
    expected = model.neighbor_weights(NEW) @ model.bank_.targets.numpy()
    np.testing.assert_allclose(answer(model, NEW), expected, rtol=1e-6, atol=1e-6)


def test_files_and_pickles_keep_the_trend(either, tmp_path):
    save(either, tmp_path / "model.nona")
    for model in (load(tmp_path / "model.nona"), pickle.loads(pickle.dumps(either))):
        np.testing.assert_array_equal(answer(model, NEW), answer(either, NEW))
        model.remove_neighbors(ids=[0])
        again = copy.deepcopy(either).remove_neighbors(ids=[0])
        np.testing.assert_array_equal(answer(model, NEW), answer(again, NEW))


@EACH
def test_a_warm_start_fits_the_trend_anew(kind):
    other = -Y if kind is NONARegressor else labels_of(-Y)
    model = nona(kind, warm_start=True).fit(X, TARGETS[kind])
    model.fit(X, other)
    fresh = nona(kind).fit(X, other)
    at = encoded(fresh, NEW)
    np.testing.assert_allclose(model.bank_.trend(at).numpy(), fresh.bank_.trend(at).numpy())


@EACH
def test_the_trend_of_past_queries_is_of_rows_before_them(kind):
    """Later targets change nothing."""
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(day=DAYS)
    model = nona(kind).fit(table, TARGETS[kind], times="day")
    past, late = table.iloc[60:63], model.bank_.ids.numpy()[DAYS[70] < DAYS]
    found = answer(model, past)
    model.remove_neighbors(ids=late)
    np.testing.assert_allclose(answer(model, past), found, rtol=1e-6)


@pytest.mark.parametrize("n_neighbors", ["auto", None])
@pytest.mark.parametrize("weighted", [False, True])
@EACH
def test_leaving_a_row_out_is_removing_it(kind, n_neighbors, weighted):
    """The neighbours' residuals, too, are of a function that was not fitted to the row."""
    weight = 1 + np.arange(150) % 3 if weighted else None
    y = np.c_[Y, -(Y**2)] if kind is NONARegressor else LABELS
    model = nona(kind, n_neighbors=n_neighbors).fit(X, y, sample_weight=weight)
    left_out = answer(model, None)
    for i in (0, 70):
        without = copy.deepcopy(model).remove_neighbors(ids=[i])
        np.testing.assert_allclose(answer(without, X[[i]])[0], left_out[i], rtol=1e-5, atol=1e-6)


# -- further properties of regressors ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["rows", "groups", "times"])
def test_several_outputs_and_relations_of_rows(kind):
    parts = {"groups": RNG.integers(0, 30, size=150)} if kind == "groups" else {}
    parts |= {"times": DAYS} if kind == "times" else {}
    model = nona().fit(X, np.stack([Y, -2 * Y], axis=1), **parts)
    assert model.predict(NEW).shape == (20, 2)
    assert offset_of(model).values.shape == (150, 2)


def test_queries_embedded_before_an_edit_have_the_trend_after_it(fitted):
    model = copy.deepcopy(fitted)
    queries = model.embed(NEW)
    model.remove_neighbors(ids=np.arange(20))
    np.testing.assert_array_equal(model.predict(queries), model.predict(NEW))


def test_the_share_is_near_that_of_most_tables_for_few_rows(fitted):
    assert 0.5 < offset_of(fitted).share < 0.9


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_the_share_is_that_of_the_outputs_of_which_a_trend_says_something(seed, unit):
    difference, lacking = torch.randn(
        2, 40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    counts = torch.ones(40, dtype=torch.float64)
    share = _number_by_squared_error(SHARE, difference, lacking, counts)
    noise = torch.ones(40, 3, dtype=torch.float64)
    beside = torch.cat([difference, 0 * noise], 1), torch.cat([lacking, noise], 1)
    assert _number_by_squared_error(SHARE, *beside, counts) == pytest.approx(share)
    units = torch.tensor([1.0, unit])
    assert _number_by_squared_error(
        SHARE, difference * units, lacking * units, counts
    ) == pytest.approx(share, rel=1e-6)


def test_a_useless_trend_has_a_small_share(monkeypatch):
    """Where it predicts noise, 600 validation rows leave little of it."""
    from inner.trend import kernel_trend

    many = RNG.normal(size=(1200, 2))
    y = np.sin(3 * many[:, 0])
    solved = kernel_trend.KernelTrend.solve.__func__

    def noise(cls, *args):
        found = solved(cls, *args)
        random = np.random.default_rng(1).normal(size=found.errors.shape)
        return replace(found, errors=random * 3)

    monkeypatch.setattr(kernel_trend.KernelTrend, "solve", classmethod(noise))
    model = nona(n_estimators=1, validation_fraction=0.5).fit(many, y)
    assert offset_of(model).share < 0.35


def test_light_validation_rows_are_little_evidence():
    """All but one of 600 have nearly no weight; one moves the share by half a deviation."""
    random = np.random.default_rng(3)
    many = random.normal(size=(600, 3))
    y_val = many[:, 0] + random.normal(size=600)
    clear = np.abs(Y).argmax()  # one that the network predicts better than the mean
    many[0], y_val[0] = X[clear], Y[clear]
    validation = {"X_val": many, "y_val": y_val, "add_validation": False}
    weights = np.r_[1.0, np.full(599, 1e-9)]
    light = nona(n_estimators=1).fit(X, Y, **validation, sample_weight_val=weights)
    heavy = nona(n_estimators=1).fit(X, Y, **validation)
    assert abs(offset_of(light).share - 0.7) < 0.12 / 2
    assert offset_of(heavy).share < 0.6


def test_it_is_a_parameter():
    assert clone(nona()).get_params()["trend"] == "kernel"
    with pytest.raises(ValueError, match="trend"):
        nona(trend="linear").fit(X, Y)


def test_nothing_of_a_removed_row_is_in_the_file(tmp_path):
    """Neither its encoded features nor its target, which the trend holds of the others."""
    model = nona().fit(X, Y)
    row, trend = 17, model.bank_.trend
    parts = [trend.X[row].tobytes(), trend.y[row].tobytes(), np.float64(Y[row]).tobytes()]
    save(model, tmp_path / "before")
    before = (tmp_path / "before").read_bytes()
    assert all(part in before for part in parts)
    save(model.remove_neighbors(ids=[row]), tmp_path / "after")
    after = (tmp_path / "after").read_bytes()
    assert not any(part in after for part in parts)


def blas_threads():
    """The number of each library that was loaded when threads were first limited."""
    libraries = threads._controller().info()
    return [each["num_threads"] for each in libraries if each["user_api"] == "blas"]


def test_the_number_of_blas_threads_is_restored_by_the_last_of_several():
    """It is the process's: the second to enter would restore what the first has set."""
    entered = Event()

    def compute():
        with one_blas_thread():
            entered.set()

    second = Thread(target=compute)
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            second.start()
            assert not entered.wait(0.2)
            assert {*blas_threads()} == {1}
        second.join()
        assert entered.is_set()
        assert blas_threads() == before


def test_leave_one_out_does_not_depend_on_the_number_of_threads(fitted):
    expected, n_threads = fitted.predict(None), torch.get_num_threads()
    try:
        torch.set_num_threads(n_threads + 3)
        found = fitted.predict(None)
    finally:
        torch.set_num_threads(n_threads)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_weights_of_left_out_rows_need_no_solution(fitted, monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(type(fitted.bank_.trend), "residuals_without", fail)
    assert fitted.neighbor_weights(None).shape == (150, 150)


def test_beside_a_trend_two_networks_wait_for_three_epochs():
    model = nona(n_estimators="auto", max_iter=200).fit(X, Y)
    assert model.n_estimators_ == 2
    for network in range(2):
        epochs = [epoch for epoch in model.history_ if epoch["estimator"] == network]
        (kept,) = (epoch["epoch"] for epoch in epochs if "kept" in epoch)
        assert epochs[-1]["stopped"] == "no change"
        assert epochs[-1]["epoch"] - kept == 3
