"""Networks as a trend of many rows: they predict from some of these, the sources."""

import copy
import pickle

import numpy as np
import pytest
import torch
from inner.data import Embedded
from inner.estimators import architectures
from inner.inference import NetworkTrend, network_trend
from inner.training import loop, refinement
from sklearn.base import clone
from sklearn.utils._testing import ignore_warnings

from nona_sklearn import NONAClassifier, NONARegressor, TrainingOptions, load, save

N, N_FIT, MOST, SOURCES = 130, 120, 60, 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = X[:, 0] + X[:, 1] ** 2 + 0.1 * RNG.normal(size=N)
GROUPS = RNG.integers(0, 40, N)
CASES = {
    "numbers": (NONARegressor, Y, {}),
    "classes": (NONAClassifier, Y > 0.5, {}),
    "groups": (NONARegressor, Y, {"groups": GROUPS}),
    "times": (NONARegressor, Y, {"times": np.arange(N)}),
}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """So few rows that there are many."""
    monkeypatch.setattr(network_trend, "MOST_ROWS", MOST)
    monkeypatch.setattr(network_trend, "ROWS_A_SOURCE", 1)
    monkeypatch.setattr(network_trend, "MOST_SOURCES", SOURCES)
    monkeypatch.setattr(network_trend, "SOURCES_OF_ALL", SOURCES)
    monkeypatch.setattr(network_trend, "LEAST_SOURCES", SOURCES // 2)


@pytest.fixture(params=CASES)
def fitted(request):
    return fit_case(request.param)


def fit_case(case, **settings):
    kind, y, given = CASES[case]
    settings |= {"n_estimators": 2, "max_iter": 3, "random_state": 0, "similarity": "features"}
    with ignore_warnings():
        estimator = kind(**settings).fit(
            X[:N_FIT], y[:N_FIT], **{name: part[:N_FIT] for name, part in given.items()}
        )
    return estimator, y, given


def trend_of(estimator):
    return estimator.bank_.trend


def assert_as_anew(trend):
    """The values are those of a trend that predicts all rows again."""
    anew = NetworkTrend.from_bank(trend.network, copy.deepcopy(trend.bank))
    values = trend.of_rows(trend.bank.ids.numpy(), None)
    np.testing.assert_array_equal(values, anew.left_out)


@pytest.mark.parametrize("case", CASES)
def test_values_are_predictions_from_the_sources_without_the_row_and_its_group(case):
    """The oracle: queries with the rows' embeddings, and a bank of the eligible sources alone."""
    estimator, _, given = fit_case(case, trend=None)
    trend = trend_of(estimator)
    bank, sources, head = trend.bank, trend.bank.sources, trend.network.head
    assert (len(bank), len(sources)) == (N_FIT, SOURCES)
    ids = sources.ids.numpy()
    for row in (0, 5, ids[3], ids[-1], N_FIT - 1):
        eligible = ids != row
        if "groups" in given:
            eligible &= GROUPS[ids] != GROUPS[row]
        if "times" in given:
            eligible &= ids < row
        if not eligible.any():
            continue
        few = copy.deepcopy(sources).in_order(np.flatnonzero(eligible))
        query = Embedded(bank.neighbors.rows[[row]], trend.network)
        [expected] = network_trend.values_of(few.evaluate(head, query))
        np.testing.assert_allclose(trend.left_out[row], expected, rtol=1e-6)


def test_new_rows_are_no_sources_and_leave_the_values(fitted):
    estimator, y, given = fitted
    before, more = trend_of(estimator), slice(N_FIT, N)
    estimator.add_neighbors(X[more], y[more], **{name: part[more] for name, part in given.items()})
    after = trend_of(estimator)
    assert len(after.bank) == N
    assert after.bank.sources is before.bank.sources
    np.testing.assert_array_equal(after.left_out[:N_FIT], before.left_out)
    np.testing.assert_array_equal(after.left_out[N_FIT:], estimator_values(after, more))


def estimator_values(trend, rows):
    """Values of rows that are no sources: those of queries with the same features and times."""
    evaluation = trend.bank.evaluate_rows(trend.network.head, np.arange(rows.start, rows.stop))
    return network_trend.values_of(evaluation)


def test_a_removed_row_leaves_the_values_of_no_row_unless_it_is_a_source(fitted):
    estimator = fitted[0]
    trend = trend_of(estimator)
    source = int(trend.bank.sources.ids[3])
    other = int(np.setdiff1d(trend.bank.ids, trend.bank.sources.ids)[3])
    with ignore_warnings():
        estimator.remove_neighbors(ids=other)
        assert len(trend_of(estimator).bank.sources) == SOURCES
        assert_as_anew(trend_of(estimator))
        estimator.remove_neighbors(ids=source)
    assert source not in trend_of(estimator).bank.sources.ids
    assert_as_anew(trend_of(estimator))


def test_networks_are_refined_beside_as_many_rows(monkeypatch):
    refined, evaluate = [], refinement.evaluate_on_bank

    def spy(*given):
        evaluation, rows = evaluate(*given)
        refined.append(len(evaluation.neighbors))
        return evaluation, rows

    monkeypatch.setattr(refinement, "evaluate_on_bank", spy)
    fit_case("numbers")
    assert refined == [SOURCES] * 2


def test_sources_are_random_rows(fitted):
    ids = trend_of(fitted[0]).bank.sources.ids
    assert ids.max() - ids.min() >= SOURCES
    assert (ids.diff() > 0).all()


def test_the_value_of_a_row_without_earlier_rows_is_its_target():
    estimator, y, _ = fit_case("times", trend=None)
    assert trend_of(estimator).left_out[0] == y[0]


def test_many_rows_begin_with_higher_frequencies(monkeypatch):
    """An epoch hardly changes them."""
    deviation = []
    for large in (N, MOST):
        monkeypatch.setattr(architectures, "LARGE", large)
        network = fit_case("numbers")[0].bank_.trend.network
        values = [w for name, w in network.named_parameters() if name.endswith("frequencies")]
        deviation.append(torch.cat([w.flatten() for w in values]).std())
    assert deviation[1] > 5 * deviation[0]


def test_sources_are_drawn_anew_where_one_by_one_most_have_left(fitted, monkeypatch):
    monkeypatch.setattr(network_trend, "MOST_CHANGED", 1)  # so that single rows are few
    estimator = fitted[0]
    sources = trend_of(estimator).bank.sources.ids.tolist()
    with ignore_warnings():
        for i, source in enumerate(sources[: SOURCES // 2 + 1]):
            estimator.remove_neighbors(ids=source)
            n_left = SOURCES - 1 - i
            expected = n_left if n_left >= SOURCES // 2 else SOURCES
            assert len(trend_of(estimator).bank.sources) == expected


def test_sources_are_drawn_anew_where_most_have_left(fitted):
    estimator = fitted[0]
    sources = trend_of(estimator).bank.sources.ids[: SOURCES // 2 + 1].tolist()
    with ignore_warnings():
        estimator.remove_neighbors(ids=sources)
    assert len(trend_of(estimator).bank.sources) == SOURCES
    assert_as_anew(trend_of(estimator))


@pytest.mark.parametrize("edited", [False, True])
def test_copies_and_files_have_the_same_sources(fitted, edited, tmp_path):
    estimator = fitted[0]
    if edited:
        estimator.remove_neighbors(ids=[1, 2])
    expected = estimator.predict(X[N_FIT:])
    save(estimator, tmp_path / "model.safetensors")
    copies = [pickle.loads(pickle.dumps(estimator)), load(tmp_path / "model.safetensors")]
    for again in copies:
        np.testing.assert_array_equal(again.predict(X[N_FIT:]), expected)
        np.testing.assert_array_equal(
            trend_of(again).bank.sources.ids, trend_of(estimator).bank.sources.ids
        )


@pytest.mark.parametrize("trend", [None, "kernel"])
def test_influence_is_what_leaving_a_row_out_does_to_the_networks(trend):
    """A kernel beside the networks is kept fixed for rows that are no sources."""
    estimator = fit_case("numbers", trend=trend)[0]
    query = X[[N_FIT]]
    influence = estimator.influence(query)
    sources = trend_of(estimator).bank.sources.ids.numpy()
    others = np.setdiff1d(np.flatnonzero(influence["weight"] > 0), sources)
    assert len(others)
    for row in (*sources[:3], *(others if trend is None else [])):
        without = copy.deepcopy(estimator).remove_neighbors(ids=row)
        [change] = without.predict(query) - estimator.predict(query)
        np.testing.assert_allclose(influence["change"][row], abs(change), rtol=1e-3, atol=1e-6)


@ignore_warnings()
def test_a_large_table_trains_for_a_fixed_number_of_epochs(monkeypatch):
    monkeypatch.setattr(architectures, "LARGE", 100)
    reg = NONARegressor(n_estimators=1, random_state=0, trend=None).fit(X, Y)
    assert [epoch["stopped"] for epoch in reg.history_ if "stopped" in epoch] == ["schedule"]
    assert reg.n_iter_ == 16
    constant = TrainingOptions(learning_rate="constant", n_iter_no_change=2)
    reg = NONARegressor(n_estimators=1, random_state=0, trend=None, training=constant).fit(X, Y)
    assert reg.history_[-1]["stopped"] == "no change"


@pytest.mark.parametrize("weighting", ["softmax", "sparsemax"])
def test_networks_that_weigh_all_rows_have_fewer_sources(weighting, monkeypatch):
    """Every row is compared with each of them; as by networks that predict the mean."""
    monkeypatch.setattr(network_trend, "SOURCES_OF_ALL", SOURCES // 2)
    monkeypatch.setattr(network_trend, "LEAST_SOURCES", 5)
    if weighting == "softmax":
        monkeypatch.setattr(loop, "most_are_in_vain", lambda history: True)
    settings = {"n_estimators": 1, "max_iter": 3, "random_state": 0, "weighting": weighting}
    with ignore_warnings():
        reg = NONARegressor(similarity="features", **settings).fit(X[:N_FIT], Y[:N_FIT])
        few = clone(reg).fit(X[:MOST], Y[:MOST])
    trend = trend_of(reg)
    assert len(trend.bank.sources) == SOURCES // 2
    assert_as_anew(trend)
    assert trend_of(few).bank.sources is None
