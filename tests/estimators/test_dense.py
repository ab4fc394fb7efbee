import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes

from nona_sklearn import EmbeddingDisplay, NONARegressor
from nona_sklearn._estimators.dense import DenseHead, DenseHeadRegressor


def test_a_dense_head_on_paper():
    """A linear layer after a ReLU: 2 max(0, -3) + 5 max(0, 1) + 0.5 = 5.5."""
    head = DenseHead(2, None)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[2.0, 5.0]]))
        head.linear.bias.fill_(0.5)
    assert head(torch.tensor([[-3.0, 1.0]])).tolist() == [5.5]


@pytest.mark.slow
def test_learns_and_repeats_itself():
    X, y = load_diabetes(return_X_y=True)
    before = torch.get_rng_state()
    first, second = (DenseHeadRegressor(random_state=0).fit(X[:300], y[:300]) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert first.score(X[300:], y[300:]) > 0.3


def test_the_dense_head_has_no_method_that_needs_neighbours():
    """None of its methods fails for lack of a bank."""
    assert not issubclass(DenseHeadRegressor, NONARegressor)
    methods = {name for name in dir(DenseHeadRegressor) if not name.startswith("_")}
    needs_a_bank = {
        "kneighbors",
        "neighbor_weights",
        "explain",
        "influence",
        "add_neighbors",
        "calibrate",
    }
    assert needs_a_bank <= set(dir(NONARegressor))
    assert not methods & needs_a_bank
    assert {"fit", "predict", "score", "transform", "embed"} <= methods
    assert DenseHeadRegressor().get_params() == NONARegressor().get_params()


def test_the_space_of_a_rival_can_be_drawn(plane):
    X, X_test, y, y_test = plane
    pytest.importorskip("matplotlib").use("agg")
    rival = DenseHeadRegressor(n_estimators=1, max_iter=2, random_state=0).fit(X, y)
    display = EmbeddingDisplay.from_estimator(rival, X_test, y_test)
    assert display.embedding.shape == (30, 2)
