"""Credibility: how far predictions may go from the mean, and that of a fit."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from inner.data import Embedded, Split
from inner.inference import (
    NeighborBank,
    Neighbors,
    ValidationRows,
    converged_networks,
    credibility_of,
    fit_credibility,
    outputs_by_chance,
    predict_held_out,
)

from nona_sklearn import NONAHead, NONARegressor, TrainingOptions, load, save

RNG = np.random.default_rng(0)
N = 200
X = RNG.normal(size=(N, 3))
NOISE = RNG.normal(size=N)
QUERIES = RNG.normal(size=(60, 3))
QUICK = {
    **{"n_estimators": 2, "validation_fraction": 0.3},  # 60 rows of each
    **{"hidden_layer_sizes": (8,), "random_state": 0, "similarity": "l2"},
    "training": TrainingOptions(n_iter_no_change=3),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*networks predict validation rows no better")


def tensors(*arrays):
    return [torch.tensor(np.reshape(each, (len(each), -1))) for each in arrays]


def heads(reg):
    return list(getattr(reg.network_.head, "heads", [reg.network_.head]))


# -- of predictions ------------------------------------------------------------------------


def test_the_credibility_on_paper():
    """Ranks from their mean are -1.5, -0.5, 0.5, 1.5, and those of the truth -1.5, 0.5, -0.5, 1.5.

    Squares sum to 5, products to 4, the slope is 0.8, and the errors are -0.3, 0.9, -0.9, 0.3.
    """
    predictions, truth = [1.0, 2.0, 4.0, 100.0], [-7.0, 3.0, 2.5, 4.0]
    variance = 2 * ((1.5 * 0.3) ** 2 + (0.5 * 0.9) ** 2) / 5**2
    (found,) = credibility_of(*tensors(predictions, truth))
    assert float(found) == pytest.approx(1 - 3**2 * variance / 0.8**2)


@pytest.mark.parametrize("function", [np.exp, np.cbrt, np.arctan])
def test_of_any_scale(function):
    """A few large targets do not decide."""
    predictions, truth = RNG.normal(size=(2, 50, 2))
    truth += predictions
    expected = credibility_of(*tensors(predictions, truth))
    found = credibility_of(*tensors(function(3 * predictions), function(3 * truth)))
    torch.testing.assert_close(found, expected)


def test_what_is_predicted_of_a_skewed_target_is_credible():
    """Predictions that are right but for a factor; of a fit, how right depends on the processor.

    Of the numbers themselves, whose slope a few large ones decide, it would be 0.83.
    """
    generator = np.random.default_rng(0)
    logarithm = 2.5 * generator.normal(size=250)
    found = credibility_of(
        *tensors(np.exp(logarithm), np.exp(logarithm + generator.normal(size=250)))
    )
    assert float(found) > 0.9


def test_weights_count_in_slope_and_error():
    """Ranks are from their weighted mean; one factor of all weights changes nothing."""
    predictions, truth = [1.0, 2.0, 4.0, 100.0], [-7.0, 3.0, 2.5, 4.0]
    counts = np.array([1.0, 3, 1, 3])
    x = np.arange(4) - np.average(np.arange(4), weights=counts)
    ranks = np.array([0, 2, 1, 3])
    y = ranks - np.average(ranks, weights=counts)
    squares = (counts * x**2).sum()
    slope = (counts * x * y).sum() / squares
    variance = ((counts * x * (y - slope * x)) ** 2).sum() / squares**2
    for scale in (1, 100):
        found = credibility_of(*tensors(predictions, truth), torch.tensor(scale * counts))
        assert float(found[0]) == pytest.approx(max(1 - 9 * variance / slope**2, 0))


def test_what_is_right_counts_whole_and_what_is_wrong_does_not():
    predictions = RNG.normal(size=(30, 1))
    for truth, expected in [(predictions, 1.0), (-predictions, 0.0), (NOISE[:30], 0.0)]:
        assert float(credibility_of(*tensors(predictions, truth))) == expected


def test_where_all_are_equal_there_is_nothing_to_limit():
    assert float(credibility_of(*tensors(np.zeros(5), NOISE[:5]))) == 1.0
    assert float(credibility_of(*tensors(NOISE[:5], np.ones(5)))) == 1.0


def test_it_grows_with_the_number_of_rows():
    generator = np.random.default_rng(1)
    found = []
    for n in (50, 500, 5000):
        predictions, noise = generator.normal(size=(2, n, 1))
        found.append(float(credibility_of(*tensors(predictions, predictions + 2 * noise))))
    assert 0 <= found[0] < found[1] < found[2] < 1


# -- of a fit ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clean_output_beside_noise():
    y = np.column_stack([3 * X[:, 0], NOISE])
    reg = NONARegressor(**QUICK).fit(X, y)
    for head in heads(reg):
        clean, noisy = head.credibility
        assert clean > 0.9
        assert noisy < 0.5
        np.testing.assert_allclose(head.mean_target, y.mean(axis=0))


@pytest.mark.slow
def test_without_credibility_predictions_are_the_mean_and_contributions_sum_to_it():
    reg = NONARegressor(**QUICK).fit(X, X[:, 0])
    before = reg.predict(QUERIES)
    for head in heads(reg):
        head.credibility = (0.25,)
    np.testing.assert_allclose(
        reg.predict(QUERIES), 0.25 * before + 0.75 * X[:, 0].mean(), atol=0.02
    )
    sums = reg.explain(QUERIES).groupby("query", sort=False)["contribution"].sum()
    np.testing.assert_allclose(sums, reg.predict(QUERIES), rtol=1e-6)
    for head in heads(reg):
        head.credibility = (0.0,)
    np.testing.assert_allclose(reg.predict(QUERIES), X[:, 0].mean(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "further",
    [
        {},
        {"sample_weight": RNG.uniform(0.5, 2, N)},
        {"X_val": QUERIES, "y_val": QUERIES[:, 0] + 0.3 * RNG.normal(size=60)},
        {"groups": np.arange(N) // 2},
        {"times": np.arange(N)},
    ],
    ids=["", "weights", "validation set", "groups", "times"],
)
def test_it_is_stored_and_has_the_units_of_targets(further, tmp_path):
    y = X[:, 0] + NOISE
    reg = NONARegressor(**QUICK).fit(X, y, **further)
    (credibility,) = {head.credibility for head in heads(reg)}
    assert 0 < credibility[0] < 1
    save(reg, tmp_path / "model.nona")
    for copied in load(tmp_path / "model.nona"), pickle.loads(pickle.dumps(reg)):
        np.testing.assert_array_equal(copied.predict(QUERIES), reg.predict(QUERIES))
    scaled = dict(further)
    if "y_val" in scaled:
        scaled["y_val"] = 64 * scaled["y_val"] + 1024
    other = NONARegressor(**QUICK).fit(X, 64 * y + 1024, **scaled)
    np.testing.assert_allclose(other.predict(QUERIES), 64 * reg.predict(QUERIES) + 1024, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "params", [{"adjust": False}, {"validation_fraction": None, "max_iter": 5}]
)
def test_without_adjustment_or_validation_rows_there_is_none(params):
    reg = NONARegressor(**QUICK | params).fit(X, NOISE)
    assert {head.credibility for head in heads(reg)} == {(1.0,)}


@pytest.fixture
def weighted():
    weights = np.where(np.arange(N) % 2, 0.1, 2.0)
    return NONARegressor(**QUICK).fit(X, X[:, 0] + NOISE, sample_weight=weights), weights


@pytest.mark.slow
def test_it_is_that_of_the_validation_rows_with_their_weights(weighted):
    reg, weights = weighted
    mean = np.average(X[:, 0] + NOISE, weights=weights)
    splits = [Split(np.arange(0), rows) for rows in reg.validation_indices_]
    for judged in ([0, 1], [0]):
        for head in heads(reg):
            head.credibility = (1.0,)
        found = [predict_held_out(reg.network_.head, reg.bank_, splits)[i] for i in judged]
        learned = reg.bank_.neighbors.columns
        fit_credibility(reg.network_.head, reg.bank_, splits, judged, learned)
        rows = np.concatenate([each.rows for each in found])
        expected = credibility_of(
            torch.cat([each.predictions for each in found]),
            torch.cat([each.truth for each in found]),
            torch.tensor(weights[rows]),
        )
        assert heads(reg)[0].credibility == pytest.approx(expected.tolist(), rel=1e-6)
        assert heads(reg)[0].mean_target == pytest.approx([mean])
        assert (heads(reg)[1].credibility == (1.0,)) == (judged == [0])


@pytest.mark.slow
@pytest.mark.parametrize("further", ["weights", "times"])
def test_it_is_that_of_a_validation_set(further):
    """With its weights; with times, each of its rows is predicted from earlier rows alone."""
    table, given = pd.DataFrame(X).add_prefix("x").assign(t=RNG.permutation(N)), {}
    if further == "weights":
        given["sample_weight_val"] = np.where(np.arange(80) % 2, 0.1, 2.0)
    else:
        given["times"] = "t"
    y = X[:, 0] + NOISE
    validation = table[120:], y[120:]
    names = dict(zip(("X_val", "y_val"), validation, strict=True))
    reg = NONARegressor(**QUICK).fit(table[:120], y[:120], **names, **given)
    (found,) = {head.credibility for head in heads(reg)}
    for head in heads(reg):
        head.credibility = (1.0,)
    predictions = reg.predict(validation[0])
    known = ~np.isnan(predictions)  # others have no earlier rows
    weights = given.get("sample_weight_val", np.ones(80))[known]
    expected = credibility_of(
        *tensors(predictions[known], validation[1][known]), torch.tensor(weights)
    )
    assert 0 < found[0] < 1
    assert found == pytest.approx(expected.tolist(), rel=1e-6)


def test_each_validation_row_has_its_own_limit():
    """They are shuffled in a split, and so are their limits in time."""
    times = RNG.permutation(N)
    reg = NONARegressor(**QUICK | {"n_estimators": 1}).fit(X, X[:, 0] + NOISE, times=times)
    rows = RNG.permutation(N)[:30]
    rows = rows[times[rows] > 20]
    limits = reg.bank_.neighbors.times.numpy()[rows] - RNG.integers(1, 20, len(rows))
    split = Split(np.arange(0), rows, limits)
    (found,) = predict_held_out(reg.network_.head, reg.bank_, [split])
    for row, limit in zip(rows, limits, strict=True):
        one = Split(np.arange(0), np.array([row]), np.array([limit]))
        (alone,) = predict_held_out(reg.network_.head, reg.bank_, [one])
        torch.testing.assert_close(found.predictions[found.rows == row], alone.predictions)


@pytest.mark.parametrize(("n_rows", "expected"), [(49, 1.0), (50, 0.0)])
def test_of_fewer_than_50_rows_all_predictions_stay_credible(n_rows, expected):
    """Even where they are the opposite of the truth."""
    head, values = NONAHead(n_adjusted=1).eval(), torch.tensor(NOISE)
    bank = NeighborBank(Neighbors(torch.tensor(X).float(), values))
    query = torch.tensor(QUERIES[:n_rows]).float()
    truth = -bank.evaluate(head, Embedded(query)).mean()
    rows = ValidationRows(Embedded(query), truth, None)
    fit_credibility(head, bank, rows, [0], values[:, None])
    assert head.credibility == (expected,)


@pytest.mark.parametrize("trend", [None, "kernel"])
def test_validation_rows_are_predicted_from_what_is_before_their_limits(trend):
    """Rows between its limit and a validation row are of its block, and are no neighbours."""
    times = RNG.permutation(N)
    reg = NONARegressor(**QUICK | {"n_estimators": 1}, max_iter=2, trend=trend)
    reg.fit(X, X[:, 0] + NOISE, times=times)
    rows = np.flatnonzero(times > N - 10)
    split = Split(np.arange(0), rows, np.full(len(rows), float(N // 2)))
    (found,) = predict_held_out(reg.network_.head, reg.bank_, [split])
    reg.remove_neighbors(ids=np.flatnonzero(times >= N // 2))
    expected = reg.predict(X[found.rows])
    np.testing.assert_allclose(found.predictions[:, 0], expected, rtol=1e-5)


def test_which_networks_are_judged():
    ended = {"stopped": "no change"}
    others = [ended | {"in_vain": True}, {"stopped": "max_iter"}, {"stopped": "max_time"}]
    history = [{}, ended, *others, {}, ended]
    assert converged_networks(history, has_trend=False) == [0, 4]
    assert converged_networks(history, has_trend=True) == [0, 1, 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "in_words"), [(None, "output 1"), (["clean", "noisy"], "noisy")], ids=["", "names"]
)
def test_a_warning_names_the_output_of_noise(names, in_words):
    y = np.column_stack([X[:, 0], (-1.0) ** np.arange(N)])
    message = (
        f"no better than the mean of y, within chance, for {in_words}. All predict it instead"
    )
    with pytest.warns(UserWarning, match=message):
        NONARegressor(**QUICK).fit(X, y if names is None else pd.DataFrame(y, columns=names))


@pytest.mark.slow
def test_which_outputs_are_the_mean():
    reg = NONARegressor(**QUICK).fit(X, np.column_stack([X[:, 0], NOISE]))
    one, other = heads(reg)
    for pair, expected in [
        ([(0.9, 0.1), (1.0,)], []),
        ([(0.9, 0.0), (0.9, 0.0)], [1]),
        ([(1.0,), (0.0, 0.0)], [0, 1]),
    ]:
        one.credibility, other.credibility = pair
        assert outputs_by_chance(reg.network_.head) == expected


@pytest.mark.filterwarnings("ignore:Maximum iterations")
def test_what_max_iter_ends_stays_as_it_is():
    reg = NONARegressor(**QUICK, max_iter=1).fit(X, NOISE)
    assert {head.credibility for head in heads(reg)} == {(1.0,)}


@pytest.mark.slow
def test_few_validation_rows_leave_it_at_one():
    """Even good predictions of 10 rows are within chance."""
    reg = NONARegressor(**QUICK | {"validation_fraction": 0.05}).fit(X, X[:, 0] + NOISE)
    assert {head.credibility for head in heads(reg)} == {(1.0,)}


@pytest.mark.slow
def test_recalibration_leaves_it():
    reg = NONARegressor(**QUICK).fit(X, X[:, 0] + NOISE)
    before = reg.predict(QUERIES)
    reg.calibrate(QUERIES, RNG.normal(size=60))
    np.testing.assert_array_equal(reg.predict(QUERIES), before)


@pytest.mark.slow
def test_noise_is_not_taken_for_a_trend():
    """Mean over tables of noise."""
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        features, y = rng.normal(size=(1200, 5)), rng.normal(size=1200)
        reg = NONARegressor(random_state=0, n_estimators=3, similarity="l2")
        reg.fit(features[:200], y[:200])
        with_it = reg.predict(features[200:])
        for head in heads(reg):
            head.credibility = (1.0,)
        without = reg.predict(features[200:])
        errors.append([np.mean((each - y[200:]) ** 2) for each in (with_it, without)])
    with_it, without = np.mean(errors, axis=0)
    assert with_it < without
