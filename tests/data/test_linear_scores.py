"""Scores of a linear model: of other rows in training, near zero where nothing is linear."""

import numpy as np
import pytest
from inner.data import ALPHAS, DEVIATION, N_FOLDS, LinearScores, cross_fit
from scipy.sparse import csr_array
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict

RNG = np.random.default_rng(0)
X = csr_array(RNG.normal(size=(200, 30)) * (RNG.random((200, 30)) < 0.3))
LENGTH = np.sqrt(np.mean(X.power(2).sum(axis=1)))
LINEAR = X @ RNG.normal(size=30) + RNG.normal(size=200) + 50
NOISE = RNG.normal(size=200)
TOLERANCE = 1e-3  # of the solver for sparse matrices, whose own is 1e-4


@pytest.fixture(scope="module")
def by_alpha():
    """Predictions of training rows from other folds, with each regularisation, dense."""
    folds = KFold(N_FOLDS, shuffle=True, random_state=0)
    return {
        alpha: cross_val_predict(Ridge(alpha), X.toarray() / LENGTH, LINEAR, cv=folds)
        for alpha in ALPHAS
    }


@pytest.fixture(scope="module")
def best(by_alpha):
    return min(by_alpha, key=lambda alpha: np.square(by_alpha[alpha] - LINEAR).sum())


def test_other_rows_have_the_predictions_of_ridge_regression(best):
    scores = LinearScores()
    scores.fit_transform(X, np.column_stack([LINEAR, NOISE]))
    new = csr_array(RNG.normal(size=(5, 30)))
    expected = Ridge(best).fit(X.toarray() / LENGTH, LINEAR).predict(new.toarray() / LENGTH)
    expected = DEVIATION * (expected - LINEAR.mean()) / LINEAR.std()
    np.testing.assert_allclose(scores.transform(new)[:, 0], expected, atol=DEVIATION * TOLERANCE)


def test_each_target_has_a_regularisation_of_its_own():
    alone, beside = LinearScores(), LinearScores()
    alone.fit_transform(X, LINEAR[:, None])
    beside.fit_transform(X, np.column_stack([NOISE, LINEAR]))
    np.testing.assert_allclose(
        beside.transform(X)[:, 1], alone.transform(X)[:, 0], atol=DEVIATION * TOLERANCE
    )


def test_training_rows_have_the_predictions_of_other_folds(best, by_alpha):
    found = LinearScores().fit_transform(X, LINEAR[:, None])[:, 0]
    for others, rows in KFold(N_FOLDS, shuffle=True, random_state=0).split(LINEAR):
        shift = LINEAR.mean() - LINEAR[others].mean()
        expected = DEVIATION * (by_alpha[best][rows] + shift - LINEAR.mean()) / LINEAR.std()
        np.testing.assert_allclose(found[rows], expected, atol=DEVIATION * TOLERANCE)


def test_a_linear_target_is_found_and_noise_is_not():
    targets = np.column_stack([LINEAR, NOISE])
    scores = LinearScores().fit_transform(X, targets)
    assert np.corrcoef(scores[:, 0], LINEAR)[0, 1] > 0.7
    assert scores[:, 0].std() > DEVIATION / 2
    assert scores[:, 1].std() < DEVIATION / 10


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_units_do_not_matter(unit):
    expected = LinearScores().fit_transform(X, LINEAR[:, None])
    found = LinearScores().fit_transform(X / unit, unit * LINEAR[:, None])
    np.testing.assert_allclose(found, expected, atol=DEVIATION * TOLERANCE)


def test_constants_have_no_scores():
    for features, y in (X, np.full((200, 1), 7.0)), (csr_array((200, 30)), LINEAR[:, None]):
        scores = LinearScores()
        np.testing.assert_allclose(scores.fit_transform(features, y), 0, atol=1e-12)
        np.testing.assert_allclose(scores.transform(features), 0, atol=1e-12)


def test_of_two_rows_each_is_predicted_by_the_other():
    assert LinearScores().fit_transform(X[:2], LINEAR[:2, None]).shape == (2, 1)


def test_each_column_of_a_target_is_relative_to_the_mean_of_the_target():
    """Of means of other folds, the mean of all is left: two columns for each of two targets."""
    targets = np.column_stack([NOISE, 100 + LINEAR])

    def fit(_, others):
        means = others.mean(axis=0).repeat(2)
        return lambda rows: np.tile(means, (rows.shape[0], 1))

    found = cross_fit(fit, X, targets)
    expected = np.broadcast_to(targets.mean(axis=0).repeat(2), (200, 4))
    np.testing.assert_allclose(found, expected)
