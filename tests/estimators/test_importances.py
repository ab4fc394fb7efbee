"""How much predictions depend on each column."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance

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
    alone = NONARegressor(**QUICK | {"early_stopping": False, "max_iter": 2})
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
