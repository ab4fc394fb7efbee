"""Targets to check: those that chance does not explain."""

import numpy as np
import pytest
from inner.inspection import surprising_labels, surprising_numbers


@pytest.mark.parametrize("noise", ["normal", "laplace"])
@pytest.mark.parametrize("seed", range(3))
def test_clean_numbers_have_hardly_any(noise, seed):
    distances = abs(getattr(np.random.default_rng(seed), noise)(size=20_000))
    found = surprising_numbers(distances)
    assert len(found.rows) <= 10
    assert found.by_chance <= 0.1 * max(1, len(found.rows)) + 1e-9


@pytest.mark.parametrize("share", [0.005, 0.05])
def test_planted_errors_are_found(share):
    random = np.random.default_rng(0)
    distances = abs(random.normal(size=2000))
    wrong = random.choice(2000, int(2000 * share), replace=False)
    distances[wrong] = random.uniform(8, 20, len(wrong))
    distances[5] = np.nan
    found = surprising_numbers(distances)
    assert np.isin(wrong[wrong != 5], found.rows).mean() > 0.9
    assert np.isin(found.rows, wrong).mean() > 0.9
    assert (np.diff(distances[found.rows]) <= 0).all()  # the most surprising first


def test_exact_predictions_have_no_tail():
    assert len(surprising_numbers(np.zeros(50)).rows) == 0
    assert surprising_numbers(np.array([0.0] * 40 + [9.0])).rows.tolist() == [40]
    assert len(surprising_numbers(np.full(9, np.nan)).rows) == 0


def test_labels_that_are_much_less_probable_than_the_predicted():
    probabilities = np.array([[0.991, 0.009], [0.6, 0.4], [0.999, 0.001], [0.5, 0.5]])
    odds = np.array([110.1, 1.5, 999.0, np.nan])  # of the second class; one is not known
    found = surprising_labels(odds, probabilities)
    assert found.rows.tolist() == [2, 0]
    assert found.by_chance == pytest.approx(0.01)
    assert found.without(np.array([False, False, True, False])).rows.tolist() == [0]
