"""No network is worse on its validation rows than the mean of the training targets."""

import pickle

import numpy as np
import pytest
import torch
from inner.inference import Evaluation, Neighbors
from inner.training import LEAST_GAIN, RETRY_RATE, loop, loss_relative_to_mean, refinement
from sklearn.base import clone
from torch import nn

from nona_sklearn import NONAClassifier, NONAHead, NONARegressor, TrainingOptions, load, save
from nona_sklearn.attention.head import prior_mean
from nona_sklearn.losses import LogLoss

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = 2 * X[:, 0] + RNG.normal(size=60)  # what attempts are worth is set by hand
QUERIES = np.r_[X[:3], 10 * RNG.normal(size=(3, 3))]
QUICK = {"n_estimators": 1, "hidden_layer_sizes": (8,), "similarity": "l2", "random_state": 0}
QUICK |= {"training": TrainingOptions(n_iter_no_change=2)}
IN_VAIN = pytest.mark.filterwarnings("ignore:.*networks predict validation rows no better")


@pytest.fixture
def attempts(monkeypatch):
    """Set what the validation losses of attempts are, relative to the mean's; returns their rates.

    Of as many networks as there are lists, one after another.
    """
    rates = []

    def set_losses(*relative_losses):
        losses = iter(relative_losses)
        train_once = loop.train_once

        def train(network, train, valid, config, *args):
            if valid is not None:  # not to measure the time of an epoch
                rates.append(config.learning_rate_init)
            return train_once(network, train, valid, config, *args)

        monkeypatch.setattr(loop, "train_once", train)
        monkeypatch.setattr(refinement, "loss_relative_to_mean", lambda *args: next(losses))
        return rates

    return set_losses


def in_vain(estimator):
    return [epoch.get("in_vain", False) for epoch in estimator.history_ if "stopped" in epoch]


def equal_rows(head, values, log_prior=None):
    neighbors = Neighbors(torch.tensor([[0.0], [1.0], [5.0]]), values, log_prior)
    return Evaluation(head.eval(), neighbors, torch.tensor([[0.0], [5.0]]))


def relative_loss(evaluation, loss, truth):
    bank = evaluation.neighbors
    mean = prior_mean(bank.columns, bank.log_prior).expand(len(truth), -1)
    return loss_relative_to_mean(evaluation, loss, mean.reshape(truth.shape), truth)


def test_the_relative_loss_on_paper():
    """Each query is predicted by the row at its place; the mean of the targets is 4."""
    values, truth = torch.tensor([0.0, 3.0, 9.0]), torch.tensor([1.0, 7.0])
    evaluation = equal_rows(NONAHead(n_neighbors=1), values)
    found = relative_loss(evaluation, nn.MSELoss(), truth)
    assert found == pytest.approx((1 + 4) / (9 + 9))
    # With twice the weight for the first row, it is 3.
    evaluation = equal_rows(NONAHead(n_neighbors=1), values, torch.tensor([2.0, 1.0, 1.0]).log())
    found = relative_loss(evaluation, nn.MSELoss(), truth)
    assert found == pytest.approx((1 + 4) / (4 + 16))


def test_the_relative_loss_of_probabilities_and_several_outputs():
    head = NONAHead(n_neighbors=2)
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    truth = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    near = equal_rows(head, values).mean()
    expected = -(near[0, 0].log() + near[1, 1].log()) / -np.log(1 / 3 * 2 / 3)
    found = relative_loss(equal_rows(head, values), LogLoss(), truth)
    assert found == pytest.approx(float(expected))


def test_equal_targets_leave_nothing_to_predict():
    values, truth = torch.full((3,), 2.0), torch.tensor([2.0, 2.0])
    assert relative_loss(equal_rows(NONAHead(), values), nn.MSELoss(), truth) == 1
    reg = NONARegressor(**QUICK).fit(X, np.ones(60))
    assert in_vain(reg) == [False]


def test_a_training_in_vain_is_repeated_at_a_lower_rate(attempts):
    rates = attempts(1.5, 0.9)
    reg = clone(NONARegressor(**QUICK)).set_params(training__learning_rate_init=0.01).fit(X, Y)
    assert rates == [0.01, RETRY_RATE * 0.01]
    assert in_vain(reg) == [False]
    attempts(0.9)
    slow = clone(reg).set_params(training__learning_rate_init=RETRY_RATE * 0.01)
    expected = slow.fit(X, Y)
    np.testing.assert_array_equal(reg.predict(QUERIES), expected.predict(QUERIES))
    assert [e["valid_loss"] for e in reg.history_] == [e["valid_loss"] for e in expected.history_]


@pytest.mark.parametrize(
    ("params", "loss"),
    [({}, 1.0), ({}, 1 + 5e-5), ({"training__max_time": 1e-9}, 1.5), ({"warm_start": True}, 1.5)],
)
@IN_VAIN
def test_others_are_trained_once(params, loss, attempts):
    """A training that was short, or that will go on, is not repeated."""
    rates = attempts(loss)
    reg = clone(NONARegressor(**QUICK)).set_params(**params).fit(X, Y)
    assert len(rates) == 1
    assert in_vain(reg) == [loss > 1 + LEAST_GAIN]


@pytest.mark.filterwarnings("ignore:Maximum iterations")
def test_what_max_iter_ends_stays_as_it_is(attempts):
    rates = attempts(1.5)
    reg = NONARegressor(**QUICK, max_iter=1).fit(X, Y)
    assert len(rates) == 1
    assert in_vain(reg) == [False]
    assert np.ptp(reg.predict(QUERIES)) > 1e-3


@IN_VAIN
@pytest.mark.parametrize("weights", [None, RNG.uniform(0.5, 2, 60)], ids=["equal", "weights"])
def test_what_stays_in_vain_predicts_the_mean(weights, attempts):
    attempts(1.5, 1.2)
    reg = NONARegressor(**QUICK, trend=None).fit(X, Y, sample_weight=weights)
    assert in_vain(reg) == [True]
    mean = np.average(Y, weights=weights)
    # Embeddings are in float32, weights in float64.
    np.testing.assert_allclose(reg.predict(QUERIES), mean, rtol=1e-6)
    assert reg.n_neighbors_ is None
    reg.add_neighbors(X[:1], [1000.0])
    assert reg.predict(QUERIES).min() > 10


@IN_VAIN
def test_a_trend_keeps_its_share_beside_a_mean(attempts):
    """(1 - a) mean + a (f(q) + 0.2 sum_j (y_j - f(j)) / n)."""
    attempts(1.5, 1.2)
    reg = NONARegressor(**QUICK).fit(X, Y)
    offset, f = reg.bank_.neighbors.offset, reg.bank_.trend_of(reg.embed(QUERIES)).numpy()[:, 0]
    of_trend = f + 0.2 * (Y - offset.values.numpy()[:, 0]).mean()
    expected = (1 - offset.share) * Y.mean() + offset.share * of_trend
    np.testing.assert_allclose(reg.predict(QUERIES), expected, rtol=1e-6)


@IN_VAIN
def test_what_stays_in_vain_predicts_frequencies(attempts):
    attempts(1.5, 1.2)
    y = np.array(["a", "b", "b"])[RNG.integers(3, size=60)]
    clf = NONAClassifier(**QUICK, trend=None).fit(X, y)
    frequencies = [(y == c).mean() for c in clf.classes_]
    np.testing.assert_allclose(clf.predict_proba(QUERIES), np.tile(frequencies, (6, 1)), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
@IN_VAIN
def test_all_rows_are_behind_a_mean(attempts):
    attempts(1.5, 1.2)
    reg = NONARegressor(**QUICK, trend=None).fit(X, Y)
    weights = reg.neighbor_weights(QUERIES).toarray()
    np.testing.assert_allclose(weights, 1 / 60)
    others = reg.explain(QUERIES[:1], n_neighbors=5)
    assert others["weight"].sum() == pytest.approx(1)
    low, high = reg.predict_quantiles(QUERIES, [0.05, 0.95]).T
    assert (low < np.quantile(Y, 0.2)).all()
    assert (high > np.quantile(Y, 0.8)).all()


@IN_VAIN
def test_a_mean_is_stored(attempts, tmp_path):
    attempts(1.5, 1.2)
    reg = NONARegressor(**QUICK).fit(X, Y)
    save(reg, tmp_path / "model.nona")
    for copied in (pickle.loads(pickle.dumps(reg)), load(tmp_path / "model.nona")):
        np.testing.assert_array_equal(copied.predict(QUERIES), reg.predict(QUERIES))


@IN_VAIN
@pytest.mark.parametrize(
    "params",
    [
        {"n_neighbors": 5},
        {"algorithm": "kd_tree", "n_neighbors": 5},
        {"weighting": "sparse_softmax"},
        {"softstep": "s1"},
        {"warm_start": True},
    ],
    ids=str,
)
def test_parameters_that_limit_the_rows_are_kept(params, attempts):
    attempts(1.5, 1.2)
    reg = NONARegressor(**QUICK | params).fit(X, Y)
    assert in_vain(reg) == [True]
    assert np.ptp(reg.predict(QUERIES)) > 1e-3


@pytest.mark.slow
def test_fit_warns_if_most_networks_are_in_vain(attempts):
    several = QUICK | {"n_estimators": 3}
    attempts(1.5, 1.5, 1.5, 1.5, 0.5)
    message = "2 of 3 networks predict validation rows no better than the mean of y. All"
    with torch.no_grad(), pytest.warns(UserWarning, match=message):
        reg = NONARegressor(**several, trend=None).fit(X, Y)
    assert reg.n_estimators_ == 3
    assert np.ptp(reg.predict(QUERIES)) < 1e-6  # the third one, too
    attempts(1.5, 1.5, 1.5, 1.5, 1.5, 1.5)
    message = "3 of 3 networks .* frequencies of the classes. All predict it instead. X may"
    with pytest.warns(UserWarning, match=message):
        NONAClassifier(**several, trend=None).fit(X, Y > 0)
    attempts(1.5, 1.5)
    with pytest.warns(UserWarning, match="1 of 1 .* mean of y. X may hold little"):
        NONARegressor(**QUICK, n_neighbors=5).fit(X, Y)


def test_fit_warns_of_what_is_better_than_the_mean_by_chance_alone(attempts):
    several = QUICK | {"n_estimators": 3, "validation_fraction": 0.3}
    attempts(0.99, 0.99, 0.99)
    message = "The networks predict validation rows no better than the mean of y, within chance"
    with pytest.warns(UserWarning, match=message):
        reg = NONARegressor(**several).fit(X, np.random.default_rng(0).permutation(Y))
    assert np.ptp(reg.predict(QUERIES)) < 1e-6
    assert in_vain(reg) == [False] * 3


def test_beside_networks_in_vain_rows_alone_choose_the_share_of_a_trend(attempts):
    """That of most tables is one beside networks that predict."""
    attempts(1.5, 1.5)
    with pytest.warns(UserWarning, match="predict it instead. The share of the trend .* is 1.00"):
        reg = NONARegressor(**QUICK, trend="kernel").fit(X, X @ [1.0, 2.0, 3.0])
    new = np.random.default_rng(1).normal(size=(50, 3))
    assert np.corrcoef(reg.predict(new), new @ [1.0, 2.0, 3.0])[0, 1] > 0.99
    attempts(1.5, 1.5)
    valid = {"X_val": new, "y_val": new @ [-1.0, -2.0, -3.0]}
    with pytest.warns(UserWarning, match="predict it instead. The share"):
        reg = NONARegressor(**QUICK, trend="kernel").fit(X, X @ [1.0, 2.0, 3.0], **valid)
    assert reg.bank_.neighbors.offset.share == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_fit_does_not_warn_of_a_minority(attempts):
    attempts(1.5, 1.5, 0.5, 0.5)
    NONARegressor(**QUICK | {"n_estimators": 3}).fit(X, Y)


@pytest.mark.filterwarnings("ignore:y holds one class only")
@pytest.mark.parametrize("estimator", [NONARegressor, NONAClassifier])
def test_equal_targets_are_learned_in_a_few_epochs(estimator):
    est = estimator(n_estimators=2, random_state=0).fit(X, np.ones(len(X)))
    for i in range(2):  # the first epoch that is no better is the last one
        epochs = [epoch for epoch in est.history_ if epoch["estimator"] == i]
        assert "kept" in epochs[-2]
    np.testing.assert_allclose(est.predict(QUERIES), 1.0, rtol=1e-6)


def test_equal_rows_are_the_mean_whatever_their_validation_loss_is(attempts):
    attempts(0.5, 0.5)
    message = "2 of 2 networks predict validation rows no better than the mean of y. All"
    with pytest.warns(UserWarning, match=message):
        reg = NONARegressor(n_estimators=2, random_state=0).fit(np.zeros_like(X), Y)
    assert reg.n_iter_ < 10
    np.testing.assert_allclose(reg.predict(np.zeros((1, 3))), Y.mean(), rtol=1e-5)


@pytest.mark.filterwarnings("error")
def test_equal_targets_of_equal_rows_are_no_reason_to_warn():
    reg = NONARegressor(n_estimators=2, random_state=0).fit(np.zeros_like(X), np.ones(len(X)))
    assert in_vain(reg) == [False, False]


@pytest.mark.filterwarnings("error")
def test_half_of_the_networks_are_not_most(attempts):
    attempts(1.5, 1.5, 0.5)
    reg = NONARegressor(**QUICK | {"n_estimators": 2}).fit(X, Y)
    assert in_vain(reg) == [True, False]
    assert np.ptp(reg.predict(QUERIES)) > 1e-3  # the second one predicts


@IN_VAIN
def test_the_better_of_two_trainings_in_vain_is_kept(attempts):
    params = QUICK | {"n_neighbors": 5}  # which does not fall back
    attempts(1.2, 1.5)
    found = NONARegressor(**params).fit(X, Y)
    attempts(1.2)
    once = NONARegressor(**params, warm_start=True).fit(X, Y)
    np.testing.assert_array_equal(found.predict(QUERIES), once.predict(QUERIES))
