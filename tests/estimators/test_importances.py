"""How much predictions depend on each column."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from inner.estimators import stability as module
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance

import nona_sklearn
from nona_sklearn import NONAClassifier, NONARegressor

N = 300
QUICK = {"n_estimators": 1, "max_iter": 30, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    """Columns of different use, of which the target is a sum."""
    random = np.random.RandomState(0)
    X = pd.DataFrame(
        {
            "much": random.randn(N),
            "nothing": random.randn(N),
            "some": random.choice(["a", "b", "c"], N),
            "little": random.randn(N),
            "constant": 1.0,
        }
    )
    some = X["some"].map({"a": -1, "b": 0, "c": 1.5})
    return X, 3 * X["much"] + some + 0.4 * X["little"] + 0.1 * random.randn(N)


@pytest.fixture(scope="module")
def regressor(table):
    return NONARegressor(**QUICK).fit(*table)


@pytest.mark.slow
def test_they_are_shares_in_the_order_of_use(table, regressor):
    found = dict(zip(table[0].columns, regressor.feature_importances_, strict=True))
    assert sum(found.values()) == pytest.approx(1)
    assert found["much"] > found["some"] > found["little"] > found["nothing"]
    assert found["constant"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NONARegressor, NONAClassifier])
def test_they_rank_columns_as_permutations_of_other_rows_do(kind):
    random = np.random.RandomState(0)
    X = random.randn(600, 6)
    y = X @ [0, 0.3, 0.6, 1, 1.5, 2.5] + 0.2 * random.randn(600)
    y = y if kind is NONARegressor else (y > 0).astype(int)
    model = kind(**QUICK).fit(X[:400], y[:400])
    scoring = "r2" if kind is NONARegressor else "neg_log_loss"
    others = permutation_importance(model, X[400:], y[400:], scoring=scoring, random_state=0)
    ranks = spearmanr(model.feature_importances_, others.importances_mean)
    assert ranks.statistic >= 0.8


@pytest.mark.slow
def test_they_do_not_depend_on_the_targets_unit(table, regressor):
    X, y = table
    other = NONARegressor(**QUICK).fit(X, 1000 * y + 5)
    np.testing.assert_allclose(
        other.feature_importances_, regressor.feature_importances_, rtol=1e-3, atol=1e-6
    )


@pytest.mark.slow
def test_a_column_that_is_nothing_but_noise_changes_no_constant():
    X = np.random.RandomState(0).randn(60, 3)
    with pytest.warns(UserWarning, match="no better than the mean"):
        model = NONARegressor(**QUICK, trend=None).fit(X, np.random.RandomState(1).randn(60))
    assert model.feature_importances_.tolist() == [0, 0, 0]


@pytest.mark.slow
def test_columns_are_selected(table):
    X, y = table
    selected = SelectFromModel(NONARegressor(**QUICK), threshold=0.02).fit(X, y)
    assert selected.get_feature_names_out().tolist()[:2] == ["much", "some"]
    assert "nothing" not in selected.get_feature_names_out()


@pytest.mark.slow
def test_with_times_and_several_outputs(table):
    X, y = table
    times = np.arange(N)
    model = NONARegressor(**QUICK).fit(X, np.column_stack([y, -y]), times=times)
    found = dict(zip(X.columns, model.feature_importances_, strict=True))
    assert max(found, key=found.get) == "much"
    assert np.isfinite(model.feature_importances_).all()


def test_a_fit_without_a_table_has_none(table):
    X, y = table
    model = NONARegressor(**QUICK | {"max_iter": 1}).fit(X, y)
    assert hasattr(model, "feature_importances_")
    model.set_params(feature_extractor=torch.nn.Linear(1, 2))
    model.fit(X[["much"]].to_numpy(dtype=np.float32), y)
    assert not hasattr(model, "feature_importances_")


@pytest.mark.slow
def test_rows_of_one_time_and_constant_outputs(table):
    X, y = table
    alone = NONARegressor(**QUICK | {"validation_fraction": None, "max_iter": 2})
    assert alone.fit(X, y, times=np.zeros(N)).feature_importances_.tolist() == [0] * 5
    single = NONARegressor(**QUICK).fit(X, y).feature_importances_
    both = NONARegressor(**QUICK).fit(X, np.column_stack([y, np.ones(N)])).feature_importances_
    assert np.argsort(-both)[:2].tolist() == np.argsort(-single)[:2].tolist()


@pytest.mark.slow
def test_outputs_of_different_units_count_the_same(table):
    X, _ = table
    y = np.column_stack([1000 * X["much"], 0.001 * X["little"]])
    found = dict(
        zip(X.columns, NONARegressor(**QUICK).fit(X, y).feature_importances_, strict=True)
    )
    assert found["little"] > 0.2
    assert found["much"] > 0.2


def read(model):
    """What has been measured: where it is first read, and in fit."""
    return [vars(each).get(module.NAME) for each in (model.bank_, model)]


@pytest.fixture(scope="module")
def models(table):
    """Of a kernel, whose bank keeps encoded rows, and of networks alone."""
    X, y = table
    quick = QUICK | {"max_iter": 2}
    return {t: NONARegressor(trend=t, **quick).fit(X, y) for t in ("kernel", None)}


def copy_of(model):
    return pickle.loads(pickle.dumps(model))


def test_they_are_measured_where_they_are_first_read(models):
    model = copy_of(models["kernel"])
    assert read(model) == [None, None]
    found = model.feature_importances_
    assert found.shape == (5,)
    assert found.sum() == pytest.approx(1)
    np.testing.assert_array_equal(model.feature_importances_, found)
    assert read(copy_of(model)) == [None, None]
    np.testing.assert_array_equal(copy_of(model).feature_importances_, found)


def test_without_rows_in_the_bank_they_are_measured_in_fit(models):
    model = models[None]
    assert model.bank_.inputs is None
    found = read(model)[1]
    assert found.sum() == pytest.approx(1)
    assert model.feature_importances_ is found
    np.testing.assert_array_equal(copy_of(model).feature_importances_, found)


def test_they_are_the_changes_of_one_column_after_another(models, monkeypatch):
    """All columns are predicted in as few blocks as memory allows."""
    whole = models["kernel"].feature_importances_
    monkeypatch.setattr(module, "MAX_ENTRIES", 1)
    np.testing.assert_allclose(copy_of(models["kernel"]).feature_importances_, whole, rtol=1e-9)


def test_they_are_squared_changes_of_predictions():
    """Of all rows, each permuted in a table whose prediction is that of the other rows alone."""
    random = np.random.RandomState(0)
    X = random.randn(30, 2)
    y = X @ [3.0, 1.0]
    model = NONARegressor(**QUICK | {"max_iter": 2, "trend": None}).fit(X, y)
    draws = np.random.RandomState(0)
    chosen = draws.permutation(30)
    changes = np.zeros(2)
    for column in range(2):
        moved = X[chosen].copy()
        moved[:, column] = moved[draws.permutation(30), column]
        for row, i in zip(moved, chosen, strict=True):
            others = copy_of(model).remove_neighbors(ids=[i])
            changes[column] += np.square(np.diff(others.predict([row, X[i]]))[0])
    np.testing.assert_allclose(model.feature_importances_, changes / changes.sum(), rtol=1e-3)


def test_an_edit_makes_others(models, table):
    """They are of the present bank, read before the edit or not."""
    (X, y), model, late = table, copy_of(models["kernel"]), copy_of(models["kernel"])
    before = model.feature_importances_
    for each in (model, late):
        each.remove_neighbors(ids=range(100))
        each.add_neighbors(X[:50], y[:50] + 1)
    assert read(model) == [None, None]
    np.testing.assert_array_equal(model.feature_importances_, late.feature_importances_)
    assert abs(model.feature_importances_ - before).max() > 1e-6


def test_other_targets_have_none(models, table):
    model = copy_of(models["kernel"]).set_neighbor_targets(-table[1])
    assert not hasattr(model, "feature_importances_")
    with pytest.raises(AttributeError, match="set_neighbor_targets"):
        model.feature_importances_  # noqa: B018


def test_an_estimator_before_fit_has_none(models):
    for model in (NONARegressor(), NONAClassifier(), clone(models["kernel"]), clone(models[None])):
        assert not hasattr(model, "feature_importances_")
        with pytest.raises(NotFittedError):
            model.feature_importances_  # noqa: B018


def test_who_changes_them_changes_a_copy(models):
    model = models["kernel"]
    before = model.feature_importances_.copy()
    model.feature_importances_[:] = 0
    np.testing.assert_array_equal(model.feature_importances_, before)


@pytest.mark.parametrize("trend", ["kernel", None])
def test_files_lose_none(models, trend, tmp_path):
    """A file of a version that measured them in fit has them."""
    model = copy_of(models[trend])
    nona_sklearn.save(model, tmp_path / "now")
    found = nona_sklearn.load(tmp_path / "now").feature_importances_
    np.testing.assert_allclose(found, model.feature_importances_, rtol=1e-6)
    vars(model)[module.NAME] = np.arange(5.0)
    nona_sklearn.save(model, tmp_path / "then")
    then = nona_sklearn.load(tmp_path / "then")
    assert then.feature_importances_.tolist() == copy_of(model).feature_importances_.tolist()
    assert then.feature_importances_.tolist() == [0, 1, 2, 3, 4]


def test_another_fit_has_others(models, table):
    X, y = table
    model = copy_of(models[None])
    model.set_params(trend="kernel", max_iter=1).fit(X, y)
    assert read(model) == [None, None]
    assert model.feature_importances_.shape == (5,)


def test_threads_read_the_same(models):
    model = copy_of(models["kernel"])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: model.feature_importances_, range(8)))
    for each in found:
        np.testing.assert_array_equal(each, found[0])


def test_modes_of_torch_do_not_matter(models):
    whole = copy_of(models["kernel"])
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        found = whole.feature_importances_
    np.testing.assert_array_equal(found, copy_of(models["kernel"]).feature_importances_)
