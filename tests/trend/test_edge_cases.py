"""Where a trend cannot be, and what it is of few or equal rows."""

import numpy as np
import pytest
from torch import nn

from nona_sklearn import NONARegressor

X, Y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40.0)
QUICK = {"trend": "kernel", "n_estimators": 1, "max_iter": 2, "random_state": 0}


def test_it_needs_columns_of_a_table():
    reg = NONARegressor(nn.Linear(2, 3), hidden_layer_sizes=(4,), **QUICK)
    with pytest.raises(ValueError, match="trend must be None with a feature_extractor, got 'kern"):
        reg.fit(X.astype(np.float32), Y)


def test_a_constant_target_is_predicted():
    found = NONARegressor(**QUICK).fit(X, np.full(40, 3.0)).predict(X)
    np.testing.assert_allclose(found, 3.0)


def test_three_rows():
    reg = NONARegressor(**QUICK).fit(X[:3], Y[:3])
    assert np.isfinite(reg.predict(X)).all()


def test_rows_without_information_are_predicted_as_the_mean():
    rows = np.zeros((40, 2))
    with pytest.warns(UserWarning, match="X may hold little information"):
        reg = NONARegressor(**QUICK).fit(rows, Y)
    assert reg.predict(rows[:1]) == pytest.approx(Y.mean(), rel=0.05)
