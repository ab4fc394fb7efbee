import numpy as np
import torch
from sklearn.datasets import load_diabetes

from nona_sklearn._heads import DenseHeadRegressor


def test_learns_and_repeats_itself():
    X, y = load_diabetes(return_X_y=True)
    before = torch.get_rng_state()
    first, second = (DenseHeadRegressor(random_state=0).fit(X[:300], y[:300]) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert first.score(X[300:], y[300:]) > 0.3
