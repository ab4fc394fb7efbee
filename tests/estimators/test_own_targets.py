"""Targets of a subclass of RegressionTargets: checked, averaged and decoded by its methods."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes

from nona_sklearn import NONARegressor
from nona_sklearn.targets import RegressionTargets


class Prices(RegressionTargets):
    """Positive numbers, averaged geometrically."""

    loss = torch.nn.HuberLoss

    def to_values(self, y):
        y = super().to_values(y)
        if not (y > 0).all():
            raise ValueError(f"y must be positive, got {y.min()}")
        return y.log()

    def decode(self, means):
        return np.exp(super().decode(means))


class PriceRegressor(NONARegressor):
    __init__ = NONARegressor.__init__

    def _make_targets(self):
        return Prices()


def test_targets_of_a_subclass_are_averaged_and_decoded_by_it():
    X, y = load_diabetes(return_X_y=True)
    reg = PriceRegressor(adjust=False, n_estimators=1, max_iter=3, random_state=0).fit(X, y)
    weights = reg.neighbor_weights(X[:5])
    np.testing.assert_allclose(np.exp(weights @ np.log(y)), reg.predict(X[:5]), rtol=1e-5)
    with pytest.raises(ValueError, match=r"y must be positive, got -346\.0"):
        reg.fit(X, -y)
