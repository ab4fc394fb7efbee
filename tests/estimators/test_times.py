"""Times: rows of the future predict nothing."""

import copy
import datetime
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inner.data import N_BLOCKS, TimeKind, split_by_time
from inner.inference import MaskExclusion, Neighbors, TimeExclusion, make_index
from inner.training import DatasetPool
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, PredefinedSplit, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    Calibration,
    NeighborsDisplay,
    NONAClassifier,
    NONARegressor,
    ShardedNeighbors,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
    load,
    save,
    save_shards,
)
from nona_sklearn.similarity import SIMILARITIES

N, N_TIMES = 90, 30
QUICK = {"max_iter": 2, "n_estimators": 2, "hidden_layer_sizes": (8,), "random_state": 0}
OPTIONS = [
    {},
    {"n_neighbors": None},
    {"similarity": "cosine", "n_neighbors": 3},
    {"softstep": "s1", "n_neighbors": None},
    {"weighting": "entmax", "n_neighbors": None},
    {"adjust": False},
]


@pytest.fixture(scope="module")
def data():
    """Shuffled rows of 30 days, three of each."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(N, 3))
    times = np.repeat(np.arange(N_TIMES), 3)[rng.permutation(N)]
    return X, X[:, 0] + 0.1 * times + 0.1 * rng.normal(size=N), times


def regressor(data, **options):
    X, y, times = data
    return NONARegressor(**(QUICK | options)).fit(X, y, times=times)


@pytest.fixture(scope="module")
def fitted(data):
    return regressor(data)


def dates_of(times):
    return np.datetime64("2024-01-01") + times.astype("timedelta64[D]")


def answers(reg, classifies=False):
    """What the estimator gives for the bank's own rows, by name; a line for each row."""
    weights, ids = reg.heaviest_neighbors(None, 4)
    distances, nearest = reg.kneighbors(None, 4)
    sizes = reg.neighborhood().drop(columns="applicability")  # it compares with all rows
    found = {
        "predict": reg.predict(None),
        "weights": reg.neighbor_weights().toarray(),
        "heaviest": weights,
        "ids": ids,
        "distances": distances,
        "nearest": nearest,
    }
    found |= {name: sizes[name].to_numpy() for name in sizes if name != "query"}
    assert ("soft_n_neighbors" in found) == (reg.softstep is not None)
    if classifies:
        return found | {"proba": reg.predict_proba(None)}
    return found | {
        "quantiles": reg.predict_quantiles(None),
        "std": reg.predict(None, return_std=True)[1],
        "cdf": reg.predict_cdf(None, 1.0),
        "sample": reg.sample_y(None, 2),
    }


# -- no leak -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("attack", ["targets", "removal"])
def test_later_rows_change_nothing_earlier(data, options, attack):
    """Later targets are replaced, or later rows removed: what is earlier stays.

    Not one bit changes with targets. Without later rows, similarities are rounded otherwise, in
    float32, where all rows are compared by one product.
    """
    reg = regressor(data, **options)
    times = data[2]
    until = times <= N_TIMES // 2
    reg.set_neighbor_targets(reg.bank_.targets)  # whose adjustments would depend on the targets
    calibration = reg.calibration_
    before = answers(reg)
    if attack == "targets":
        reg.set_neighbor_targets(np.where(until, reg.bank_.targets, 1e9))
    else:
        reg.remove_neighbors(ids=np.flatnonzero(~until))
    reg.calibration_ = calibration
    after = answers(reg)
    kept = until if attack == "targets" else np.full(until.sum(), True)
    for name in before:
        was, now = before[name][until], after[name][kept]
        if attack == "removal" and name == "sample":
            continue  # other draws of fewer queries
        if attack == "removal" and name == "weights":
            assert not was[:, ~until].any()
            was = was[:, until]
        if attack == "targets":
            np.testing.assert_array_equal(now, was, err_msg=name)
        else:
            near = {"rtol": 1e-5, "atol": 1e-5 if name in ("quantiles", "cdf") else 0}
            np.testing.assert_allclose(now, was, err_msg=name, **near)
    if attack == "targets":
        assert (before["predict"][~until] != after["predict"][~until]).any()


def test_later_classes_change_nothing_earlier(data):
    X, y, times = data
    labels = np.digitize(y, [0.5, 2.0])
    clf = NONAClassifier(**QUICK).fit(X, labels, times=times)
    until = times <= N_TIMES // 2
    clf.set_neighbor_targets(labels)
    before = answers(clf, classifies=True)
    clf.set_neighbor_targets(np.where(until, labels, 0))
    after = answers(clf, classifies=True)
    for name in before:
        np.testing.assert_array_equal(after[name][until], before[name][until], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("later", [1e4, 1e9])
@pytest.mark.parametrize("softstep", [False, True])
def test_an_added_later_row_changes_no_distribution(data, fitted, later, softstep):
    """It is far from all other targets, at the place of the queries, and not one bit moves."""
    X, y, times = data
    if softstep:
        reg = SoftStepKNeighborsRegressor(learn_feature_weights=False, max_iter=1)
        reg.fit(X, y, times=times)
    else:
        reg = copy.deepcopy(fitted)
    bank = reg.bank_
    names = ("predict", "quantiles", "std", "cdf", "sample")
    before = answers(reg)
    # Its place was taken by a row that no query sees, so that sums have as many summands.
    reg.add_neighbors(X[:1], [0.0], times=[N_TIMES + 1])
    some = answers(reg)
    reg.bank_ = bank
    reg.add_neighbors(X[:1], [later], times=[N_TIMES + 1])
    after = answers(reg)
    for name in names:
        np.testing.assert_array_equal(after[name][:N], some[name][:N], err_msg=name)
        if name != "sample":
            np.testing.assert_allclose(after[name][:N], before[name], rtol=1e-5, atol=1e-5)


def test_a_row_without_weight_changes_no_quantile():
    """Whatever its target is."""
    X = np.arange(30.0)[:, None]
    y = np.sin(X[:, 0])
    knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    knn.fit(X, y).set_neighbor_targets(y)  # which are not adjusted
    calibration, levels = knn.calibration_, [0, 0.001, 0.5, 0.999, 1]
    before = knn.predict_quantiles(X[:20], levels), knn.predict_cdf(X[:20], [-2, 0.1])
    knn.set_neighbor_targets(np.where(X[:, 0] < 25, y, 1e9))
    knn.calibration_ = calibration
    after = knn.predict_quantiles(X[:20], levels), knn.predict_cdf(X[:20], [-2, 0.1])
    for now, was in zip(after, before, strict=True):
        np.testing.assert_array_equal(now, was)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_weights_are_of_earlier_rows(data, options):
    reg = regressor(data, **options)
    times = data[2]
    weights = reg.neighbor_weights().toarray()
    assert not weights[times[None] >= times[:, None]].any()
    np.testing.assert_allclose(weights.sum(axis=1), times > 0, atol=1e-6)
    explained = reg.explain()
    rows = explained[explained.neighbor.map(np.isreal)]
    assert (times[rows.neighbor.astype(int)] < times[rows["query"].astype(int)]).all()


def test_the_heaviest_of_all_rows_are_the_earlier_ones(data, fitted):
    """Also where they are fewer than asked for: no row of the same time takes a place."""
    times = data[2]
    weights, ids = fitted.heaviest_neighbors(None, N - 1)
    for row in range(N):
        own = ids[row] >= 0
        assert sorted(ids[row, own]) == np.flatnonzero(times < times[row]).tolist()
        assert not weights[row, ~own].any()


def test_predictions_from_earlier_rows_are_those_of_a_bank_of_earlier_rows(data, fitted):
    X, _, times = data
    own = fitted.predict(None)
    for moment in (1, 2, 11, N_TIMES - 1):
        now = times == moment
        past = pickle.loads(pickle.dumps(fitted))
        past.remove_neighbors(ids=np.flatnonzero(times >= moment))
        np.testing.assert_allclose(past.predict(X[now]), own[now], rtol=1e-6)


def test_influence_is_of_later_queries(data, fitted):
    times = data[2]
    influence = fitted.influence()
    last = times == N_TIMES - 1
    assert (influence.weight[last] == 0).all()
    assert np.isfinite(influence.drop(columns="neighbor")).all(axis=None)
    np.testing.assert_allclose(influence.weight.sum(), (times > 0).sum(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["first", "all"])
def test_groups_and_times(data, kind):
    """Neighbours are earlier and, in calibration, of other groups."""
    X, y, times = data
    groups = np.where(times < 3, 0, 1 + np.arange(N) % 5) if kind == "first" else np.arange(N) % 4
    reg = NONARegressor(**QUICK).fit(X, y, times=times, groups=groups)
    assert np.isfinite(reg.predict(X)).all()
    found = reg.bank_.evaluate(reg.network_.head, leave_out="group")
    weights = found.sparse_weights().toarray()
    assert not weights[(times[None] >= times[:, None]) | (groups[None] == groups[:, None])].any()
    isolated = weights.sum(axis=1) == 0
    expected = [not ((times < t) & (groups != g)).any() for t, g in zip(times, groups)]  # noqa: B905
    np.testing.assert_array_equal(isolated, expected)
    np.testing.assert_array_equal(found.exclusion.isolated().numpy(), expected)


# -- the first rows, that none is earlier than ---------------------------------------------------


def test_of_the_first_rows_nothing_is_known(data, fitted):
    _, y, times = data
    first = times == 0
    found = answers(fitted)
    for name in ("predict", "quantiles", "std", "cdf", "sample"):
        np.testing.assert_array_equal(np.isnan(found[name]).reshape(N, -1).any(axis=1), first)
    assert (found["ids"][first] == -1).all()
    assert (found["heaviest"][first] == 0).all()
    assert (found["nearest"][first] == -1).all()
    assert (found["effective_n_neighbors"][first] == 0).all()
    assert (found["n_nonzero_weights"][first] == 0).all()
    assert np.isinf(found["distance"][first]).all()
    assert not fitted.explain()["query"].isin(np.flatnonzero(first)).any()
    names = fitted.heaviest_neighbors(None, 4, return_names=True)[1]
    assert all(name is None for name in names[first].ravel())
    expected = NONARegressor.score(fitted, fitted.embed(data[0]), y)
    assert fitted.score(None, y) < expected  # which has each row among its neighbours


def test_scores_leave_the_first_rows_out(data, fitted):
    _, y, times = data
    known = times > 0
    prediction = fitted.predict(None)[known]
    r2 = 1 - np.sum((y[known] - prediction) ** 2) / np.sum((y[known] - y[known].mean()) ** 2)
    assert fitted.score(None, y) == pytest.approx(r2)
    double = np.where(np.arange(N) % 2, 2.0, 1.0)
    assert fitted.score(None, y, double) != pytest.approx(r2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(None, y[:5])


def test_first_classes_are_equally_probable(data):
    X, y, times = data
    labels = np.where(y > 1, "high", "low")
    clf = NONAClassifier(**QUICK).fit(X, labels, times=times)
    proba = clf.predict_proba(None)
    np.testing.assert_allclose(proba[times == 0], 0.5)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    known = times > 0
    assert clf.score(None, labels) == np.mean(clf.predict(None)[known] == labels[known])


# -- forms of times ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        lambda t: t.astype(float).tolist(),
        lambda t: t.reshape(-1, 1),
        lambda t: pd.Series(dates_of(t)),
        lambda t: pd.Series(dates_of(t)).dt.tz_localize("Europe/Berlin"),
        lambda t: pd.DatetimeIndex(dates_of(t)),
        lambda t: [datetime.date(2024, 1, 1) + datetime.timedelta(days=int(i)) for i in t],
        lambda t: dates_of(t).astype(str),
        lambda t: t.astype("timedelta64[D]"),
        lambda t: pd.Series(t, dtype="Int64"),
    ],
)
def test_forms_of_times_are_alike(data, fitted, form):
    X, y, times = data
    reg = NONARegressor(**QUICK).fit(X, y, times=form(times))
    # In seconds, the windows of training may round.
    np.testing.assert_allclose(reg.predict(None), fitted.predict(None), rtol=1e-3)


def test_the_order_across_a_change_of_the_clock():
    """The hour that comes twice in Berlin's autumn."""
    rng = np.random.RandomState(0)
    hours = pd.date_range("2024-10-26", periods=60, freq="h", tz="UTC").tz_convert("Europe/Berlin")
    reg = NONARegressor(**QUICK).fit(rng.normal(size=(60, 2)), rng.normal(size=60), times=hours)
    assert (np.diff(reg.bank_.neighbors.times) == 3600).all()


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (lambda t: t[:5], r"times must have shape \(90,\), got \(5,\)"),
        (lambda t: np.stack([t, t], axis=1), r"times must have shape \(90,\), got \(90, 2\)"),
        (lambda t: np.where(t == 4, np.nan, t), r"times must be finite, got nan in row \d+"),
        (lambda t: np.where(t == 4, np.inf, t), "column 'times' holds inf"),
        (
            lambda t: np.where(t == 4, np.datetime64("NaT", "us"), dates_of(t)),
            "finite, got NaT in row",
        ),
        (lambda t: np.full(N, "monday"), "times must hold numbers, dates or durations, got str"),
        (lambda t: np.full(N, None), "times must be finite, got nan in row 0"),
        (lambda t: "day", "times='day' needs X to be a DataFrame with such a column, got ndarray"),
        (lambda t: 5, r"times must have shape \(90,\), got \(\)"),
        (lambda t: t // 29, "times must hold at least 3 different ones, got 2"),
    ],
)
def test_bad_times_are_named_before_training(data, times, message, monkeypatch):
    X, y, given = data
    monkeypatch.setattr("inner.estimators.fitting.train_networks", None)
    with pytest.raises(ValueError, match=message):
        NONARegressor(**QUICK).fit(X, y, times=times(given))


def test_rows_without_weight_have_no_say(data):
    X, y, times = data
    weight = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)
    reg = NONARegressor(**QUICK).fit(X, y, times=times, sample_weight=weight)
    np.testing.assert_array_equal(reg.bank_.neighbors.times, times[weight > 0])


# -- a column of times -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(data):
    X, y, times = data
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(day=dates_of(times)), y, times


@pytest.fixture(scope="module")
def by_column(table):
    return NONARegressor(**QUICK).fit(table[0], table[1], times="day")


def test_queries_have_earlier_neighbors(table, by_column):
    frame, _, times = table
    weights = by_column.neighbor_weights(frame.iloc[::-1]).toarray()[::-1]
    assert not weights[times[None] >= times[:, None]].any()
    own = by_column.predict(None)
    np.testing.assert_allclose(by_column.predict(frame), own, rtol=1e-5)
    np.testing.assert_allclose(by_column.predict(by_column.embed(frame)), own, rtol=1e-5)
    older = frame.assign(day=frame.day - pd.Timedelta("100D"))
    assert np.isnan(by_column.predict(older)).all()
    newer = frame.assign(day=frame.day + pd.Timedelta("100D"))
    assert (by_column.neighborhood(newer)["n_nonzero_weights"] > 0).all()
    with pytest.raises(ValueError, match="an array does not tell which column is 'day'"):
        by_column.predict(frame.to_numpy())


def test_queries_of_the_last_day_have_no_neighbors_of_that_day(table, by_column):
    """Which no earlier query among them gives away."""
    frame, _, times = table
    last = times == N_TIMES - 1
    weights = by_column.neighbor_weights(frame[last]).toarray()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    assert not weights[:, last].any()


def test_a_column_that_is_not_there(table, by_column):
    frame, y, _ = table
    with pytest.raises(ValueError, match="times must name a column of X, got 'date'"):
        NONARegressor(**QUICK).fit(frame, y, times="date")
    with pytest.raises(ValueError, match="missing"):
        by_column.predict(frame.drop(columns="day"))
    with pytest.raises(ValueError, match="times must be finite, got NaT in row 2"):
        by_column.predict(frame.assign(day=frame.day.where(frame.index != 2)))


# -- splits and pools --------------------------------------------------------------------------


@pytest.mark.slow
@given(
    times=st.lists(st.integers(0, 60), min_size=3, max_size=120),
    n_networks=st.integers(1, 5),
    fraction=st.floats(0.01, 0.9),
    seed=st.integers(0, 9),
)
@settings(max_examples=60)
def test_validation_rows_are_blocks_of_time(times, n_networks, fraction, seed):
    times = np.array(times, dtype=float)
    if len(np.unique(times)) < 3:
        with pytest.raises(ValueError, match="at least 3 different ones"):
            split_by_time(times, n_networks, fraction, np.random.RandomState(seed))
        return
    splits = split_by_time(times, n_networks, fraction, np.random.RandomState(seed))
    assert len(splits) == n_networks
    for train, valid, limits in splits:
        assert sorted([*train, *valid]) == list(range(len(times)))
        assert not np.isin(times[valid], times[train]).any()
        assert (limits <= times[valid]).all()
        assert np.isin(limits, times).all()
        assert (times[train].min() < limits).all()  # there is something to predict from
        for start in np.unique(limits):  # a block has no training rows inside
            block = times[valid][limits == start]
            inside = (times[train] >= start) & (times[train] <= block.max())
            assert not inside.any()
        assert len(np.unique(limits)) <= N_BLOCKS


def test_the_first_block_validates_nothing():
    """Its later rows have earlier ones, but none that is before the block."""
    times = np.arange(3.0 * N_BLOCKS)
    for seed in range(5):
        for split in split_by_time(times, 3, 0.9, np.random.RandomState(seed)):
            assert (times[split.valid] >= 3).all()


def test_neighbors_in_training_are_farther_than_the_window():
    times = torch.arange(40.0, dtype=torch.float64)
    pool = DatasetPool(torch.zeros(40, 1), torch.zeros(40), 40, torch.Generator(), times=times)
    pool.window = 2.0
    excluded = pool.excluded_in_training(torch.tensor([5, 0]), slice(None)).of()
    assert excluded.nonzero()[:, 1].tolist() == [3, 4, 5, 6, 7, 0, 1, 2]


@pytest.mark.parametrize("pool", ["dataset", "batch", "memory"])
def test_each_pool_trains(data, pool):
    fraction = None if pool == "batch" else 0.15
    reg = regressor(
        data, validation_fraction=fraction, training=TrainingOptions(neighbor_pool=pool)
    )
    assert np.isfinite(reg.predict(data[0])).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Rows that are next to each other in X:UserWarning")
def test_calibration_is_of_earlier_rows(data):
    """Targets known from the same day only: intervals are as wide as the days are apart."""
    rng = np.random.RandomState(0)
    times = np.repeat(np.arange(60), 4)
    levels = rng.normal(size=60)[times]
    X = np.stack([levels, rng.normal(size=240)], axis=1)
    y = rng.normal(size=60)[times]
    widths = {}
    for name, options in {"times": {"times": times}, "random": {}}.items():
        reg = NONARegressor(n_estimators=2, max_iter=20, random_state=0).fit(X, y, **options)
        low, high = reg.predict_quantiles(rng.normal(size=(50, 2)), (0.1, 0.9)).T
        widths[name] = np.median(high - low)
    assert widths["times"] > 1.5 * widths["random"]
    assert widths["times"] > 1.5  # 2.56 of normal numbers


# -- the search --------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["l2", "log_l2", "l1", "dot", "cosine"])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_an_index_leaves_excluded_rows_out(similarity, k):
    rng = torch.Generator().manual_seed(0)
    rows, query = torch.randn(40, 8, generator=rng), torch.randn(7, 8, generator=rng)
    excluded = torch.rand(7, 40, generator=rng) < torch.linspace(0, 1, 7)[:, None]
    excluded[-1] = True
    found, positions = make_index("brute", similarity, rows).query(
        query, k, MaskExclusion(~excluded)
    )
    exact = SIMILARITIES[similarity](query.double(), rows.double())
    exact = exact.masked_fill(excluded, -torch.inf)
    for i in range(7):
        n_admitted = min(k, int((~excluded[i]).sum()))
        assert (found[i, n_admitted:] == -torch.inf).all()
        own = positions[i, :n_admitted]
        assert own.tolist() == exact[i].argsort(descending=True)[:n_admitted].tolist()
        np.testing.assert_allclose(found[i, :n_admitted], exact[i, own], rtol=1e-5, atol=1e-6)


def test_exclusion_of_selected_queries():
    times = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    exclusion = TimeExclusion(times, times)
    expected = torch.tensor([[True, False, False], [True, True, True], [True, False, True]])
    assert exclusion.of().equal(expected)
    assert exclusion[torch.tensor([2, 0])].of().equal(expected[[2, 0]])
    assert exclusion.of(slice(1, 2)).equal(expected[1:2])
    neighbors = Neighbors(torch.zeros(3, 1), torch.zeros(3), times=times)
    assert neighbors.after(times + 5) is None
    assert neighbors.after(None) is None


# -- streams -------------------------------------------------------------------------------------


def test_a_sliding_window(data):
    X, y, times = data
    early = times < 15
    reg = NONARegressor(**QUICK).fit(X[early], y[early], times=times[early])
    n_rows = early.sum()
    for moment in range(15, 20):
        now = times == moment
        ids = reg.add_neighbors(X[now], y[now], times=times[now], max_rows=n_rows)
        assert len(reg.bank_) == n_rows
        assert set(ids) <= set(reg.bank_.ids.tolist())
        assert reg.bank_.neighbors.times.min() == moment - 14
    reg.add_neighbors(X[:1], y[:1], times=[40.0], max_age=21)
    assert sorted(set(reg.bank_.neighbors.times.tolist())) == [19.0, 40.0]
    ids = reg.add_neighbors(X[:5], y[:5], times=np.arange(50, 55), max_rows=2)
    assert len(ids) == 5
    assert reg.bank_.ids.tolist() == ids[3:].tolist()
    reg.calibrate(n_latest=1)
    assert np.isfinite(reg.predict_quantiles(X)).all()


def test_an_age_is_a_timedelta(data):
    X, y, times = data
    reg = NONARegressor(**QUICK).fit(X, y, times=dates_of(times))
    for age in (pd.Timedelta("3D"), datetime.timedelta(days=3), np.timedelta64(3, "D"), 259200):
        other = pickle.loads(pickle.dumps(reg))
        other.add_neighbors(X[:1], y[:1], times=dates_of(np.array([30])), max_age=age)
        assert len(other.bank_) == 3 * 3 + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "times must be given, as they were in fit, got None"),
        ({"times": [1.0, np.nan]}, "times must be finite, got nan in row 1"),
        ({"times": [1.0]}, r"times must have shape \(2,\), got \(1,\)"),
        ({"times": ["2024-01-01"] * 2}, "times held numbers in fit, and hold dates now"),
        ({"times": [1, 2], "groups": [1, 2]}, "groups need an estimator .* fitted with groups"),
        ({"times": [1, 2], "max_rows": 0}, "max_rows must be a positive integer, got 0"),
        ({"times": [1, 2], "max_age": -1}, "max_age must be a number of at least 0, got -1"),
        ({"times": [1, 2], "max_age": "3D"}, "max_age must be a number of at least 0, got '3D'"),
    ],
)
def test_bad_additions_change_nothing(data, fitted, options, message):
    bank = fitted.bank_
    with pytest.raises(ValueError, match=message):
        fitted.add_neighbors(data[0][:2], data[1][:2], **options)
    assert fitted.bank_ is bank


def test_what_needs_times(data):
    X, y, _ = data
    reg = NONARegressor(**QUICK).fit(X, y)
    with pytest.raises(ValueError, match="times need an estimator that was fitted with times"):
        reg.add_neighbors(X[:2], y[:2], times=[1, 2])
    with pytest.raises(ValueError, match="max_rows needs an estimator that was fitted with times"):
        reg.add_neighbors(X[:2], y[:2], max_rows=5)
    with pytest.raises(ValueError, match="n_latest needs an estimator that was fitted with times"):
        reg.calibrate(n_latest=5)


def test_added_rows_are_in_groups(data):
    X, y, times = data
    groups = np.array(["a", "b", "c"])[np.arange(N) % 3]
    reg = NONARegressor(**QUICK).fit(X, y, times=times, groups=groups)
    reg.add_neighbors(X[:3], y[:3], times=[50, 51, 52], groups=["c", "d", "d"])
    reg.add_neighbors(X[:2], y[:2], times=[53, 54])
    numbers = reg.bank_.groups[-5:].tolist()
    assert reg.bank_.group_names[numbers].tolist() == ["c", "d", "d", None, None]
    assert numbers[3] != numbers[4]
    reg.remove_neighbors(ids=np.flatnonzero(groups == "a"))
    assert "a" not in reg.bank_.group_names.tolist()
    names = reg.bank_.group_names[reg.bank_.groups.numpy()].tolist()
    assert names == [*groups[groups != "a"].tolist(), "c", "d", "d", None, None]


@pytest.mark.slow
def test_calibration_follows_the_latest_rows(data):
    """Noise that starts late: intervals by the latest rows cover it."""
    X, _, times = data
    rng = np.random.RandomState(1)
    noise = rng.normal(size=N) * np.where(times < 20, 0.01, 3.0)
    y = X[:, 0] + noise
    calm = times < 20
    reg = NONARegressor(**(QUICK | {"max_iter": 20})).fit(X[calm], y[calm], times=times[calm])
    reg.add_neighbors(X[~calm], y[~calm], times=times[~calm])
    low, high = reg.predict_quantiles(X, (0.1, 0.9)).T
    again = pickle.loads(pickle.dumps(reg)).calibrate(X[~calm], y[~calm], times=times[~calm])
    for recalibrated in (reg.calibrate(n_latest=30), again):
        lower, higher = recalibrated.predict_quantiles(X, (0.1, 0.9)).T
        assert np.median(higher - lower) > 1.5 * np.median(high - low)
    last = reg.calibrate(X, y, times=times, n_latest=30).calibration_
    assert last.power == again.calibration_.power
    np.testing.assert_allclose(last.noise, again.calibration_.noise)
    np.testing.assert_allclose(last.errors, again.calibration_.errors)
    with pytest.raises(ValueError, match="times must be None with X=None"):
        reg.calibrate(times=times)


# -- files, shards, searches ---------------------------------------------------------------------


def test_files_keep_times(table, by_column, tmp_path):
    save(by_column, tmp_path / "reg.safetensors")
    for again in (load(tmp_path / "reg.safetensors"), pickle.loads(pickle.dumps(by_column))):
        np.testing.assert_array_equal(again.predict(None), by_column.predict(None))
        np.testing.assert_array_equal(again.predict(table[0]), by_column.predict(table[0]))


@pytest.mark.slow
def test_times_go_through_a_pipeline_and_a_search(data):
    X, y, times = data
    order = times.argsort(kind="stable")
    X, y, times = X[order], y[order], times[order]
    with config_context(enable_metadata_routing=True):
        reg = NONARegressor(**QUICK).set_fit_request(times=True)
        pipe = make_pipeline(StandardScaler(), reg)
        search = GridSearchCV(
            pipe, {"nonaregressor__embedding_dim": [2, 4]}, cv=TimeSeriesSplit(2)
        )
        search.fit(X, y, times=times)
        found = search.best_estimator_[-1]
    np.testing.assert_array_equal(found.bank_.neighbors.times, times)


@pytest.mark.parametrize("kind", [SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier])
def test_soft_step_estimators_take_times(data, kind):
    X, y, times = data
    labels = y if kind is SoftStepKNeighborsRegressor else np.digitize(y, [1.0])
    est = kind(max_iter=2, random_state=0).fit(X, labels, times=times)
    weights = est.neighbor_weights().toarray()
    assert not weights[times[None] >= times[:, None]].any()
    assert clone(est).fit(X, labels).bank_.time is None


def test_the_first_row_has_no_neighbors_to_draw(data, fitted):
    pytest.importorskip("matplotlib")
    first = int(data[2].argmin())
    with pytest.raises(ValueError, match="no row of the bank is earlier"):
        NeighborsDisplay.from_estimator(fitted, row=first)


def test_a_bank_of_one_moment(data, fitted):
    """None of its rows has an earlier one; later queries do."""
    X, y, times = data
    reg = pickle.loads(pickle.dumps(fitted))
    reg.remove_neighbors(ids=np.flatnonzero(times != 7)).calibrate()
    assert reg.calibration_ == Calibration()
    assert np.isnan(reg.predict(None)).all()
    assert np.isfinite(reg.predict_quantiles(X)).all()
    with pytest.raises(ValueError, match="neighbours that are earlier, or eligible, got none"):
        reg.calibrate(X[:3], y[:3], times=times[:3] * 0)


def test_shards_hold_no_names_of_groups(data, tmp_path):
    X, y, times = data
    groups = np.array(["a", "b", "c"])[np.arange(N) % 3]
    reg = NONARegressor(**QUICK).fit(X, y, times=times, groups=groups)
    save_shards(reg, tmp_path / "shards", 2)
    bank = ShardedNeighbors(tmp_path / "shards").estimator_.bank_
    assert bank.groups is None
    assert bank.group_names is None


def with_half_life(data, half_life, **options):
    X, y, times = data
    options = QUICK | {"n_estimators": 1, "n_neighbors": None} | options
    return NONARegressor(half_life=half_life, **options).fit(X, y, times=times)


@pytest.mark.parametrize("options", [{}, {"weighting": "gaussian"}, {"softstep": "s2"}])
def test_a_row_weighs_half_of_one_that_is_later_by_the_half_life(data, options):
    X, _, times = data
    even = with_half_life(data, None, **options).neighbor_weights(X[:7] + 0.1).toarray()
    faded = with_half_life(data, 10, **options).neighbor_weights(X[:7] + 0.1).toarray()
    expected = even * 2 ** (times / 10)
    np.testing.assert_allclose(
        faded, expected / expected.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-9
    )


@pytest.mark.slow
def test_a_half_life_multiplies_sample_weights(data):
    X, y, times = data
    reg = NONARegressor(**QUICK).fit(X, y, sample_weight=np.arange(1, 91), times=times)
    even = reg.bank_.neighbors.log_prior
    reg.set_params(half_life=5).fit(X, y, sample_weight=np.arange(1, 91), times=times)
    later = (torch.from_numpy(times) - times.max()) * np.log(2) / 5
    changes = reg.bank_.neighbors.log_prior - even - later.float()
    torch.testing.assert_close(changes, changes[:1].expand(N), rtol=0, atol=1e-5)


@pytest.mark.parametrize("weighting", ["softmax", "sigmoid", "entmax", "softplus"])
def test_added_rows_have_the_half_life_of_fit(data, weighting, tmp_path):
    X, y, _ = data
    reg = with_half_life(data, 5, weighting=weighting)
    reg.add_neighbors(X[:3], y[:3], times=[29.0, 34.0, 10_000.0])  # 2,000 half-lives later
    prior = reg.bank_.neighbors.log_prior[-3:] / np.log(2)
    np.testing.assert_allclose(prior - prior[0], [0, 1, (10_000 - 29) / 5], rtol=1e-5)
    np.testing.assert_allclose(reg.predict(X), y[2], atol=20)  # finite, near to the last row
    save(reg, tmp_path / "model.nona")
    again = load(tmp_path / "model.nona")
    again.add_neighbors(X[:1], y[:1], times=[39.0])
    priors = again.bank_.neighbors.log_prior[[-4, -1]] / np.log(2)
    assert priors.diff().item() == pytest.approx(2)


@pytest.mark.slow
def test_a_half_life_of_dates_is_a_timedelta(data):
    X, y, times = data
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(times, unit="D")
    reg = NONARegressor(half_life=datetime.timedelta(days=10), **QUICK).fit(X, y, times=dates)
    same = with_half_life(data, 10, n_estimators=2, n_neighbors="auto")
    np.testing.assert_allclose(reg.predict(X + 0.1), same.predict(X + 0.1), rtol=1e-4)


@pytest.mark.parametrize(
    ("half_life", "message"),
    [
        (0, "half_life must be above"),
        (0.01, "half_life must be above .* which is 0.029, got 0.01"),
        (-1, "half_life must be above .* which is 0.029, got -1"),
        (np.nan, "half_life must be a number"),
        ("auto", "The 'half_life' parameter of NONARegressor must be .* Got 'auto' instead"),
        (10**400, "half_life must be a number"),
        (np.timedelta64(5, "s"), "half_life must be a number"),
        (np.timedelta64("NaT", "s"), "half_life must be a number"),
        (datetime.timedelta(1), "half_life must be a number"),
    ],
)
def test_bad_half_lives_are_named_before_training(data, half_life, message):
    with pytest.raises(ValueError, match=message):
        with_half_life(data, half_life, max_iter=10**9)


def test_a_half_life_needs_times(data):
    with pytest.raises(ValueError, match="half_life needs times, got 3"):
        NONARegressor(half_life=3, max_iter=10**9).fit(*data[:2])


@pytest.mark.parametrize("kind", ["dates", "durations"])
@pytest.mark.parametrize("half_life", [3.0, datetime.timedelta(minutes=2)])
def test_a_half_life_of_dates_as_a_number_is_seconds(data, kind, half_life):
    """0.001 of 29 days are 41 minutes."""
    X, y, times = data
    moments = pd.to_timedelta(times, unit="D")
    if kind == "dates":
        moments = pd.Timestamp("2024-01-01") + moments
    with pytest.raises(ValueError, match=r"which is 2505\.6 seconds \(0:41:45.*, got") as error:
        NONARegressor(half_life=half_life, max_iter=10**9).fit(X, y, times=moments)
    remedy = (
        "got 3.0, which is read as seconds: pass a timedelta, such as datetime.timedelta(days="
    )
    assert (remedy in str(error.value)) == (half_life == 3.0)


def test_months_are_no_length_of_time(data):
    X, y, times = data
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(times, unit="D")
    with pytest.raises(ValueError, match="half_life must be a timedelta, or seconds, got"):
        NONARegressor(half_life=np.timedelta64(3, "M"), max_iter=10**9).fit(X, y, times=dates)


def test_half_lives_of_dates_have_one_limit(data):
    """The remedy has no number of the user's, which need not be a number of days."""
    X, y, times = data
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(times, unit="D")
    lengths = 0, -1, 0.5, datetime.timedelta(0), datetime.timedelta(-1), pd.Timedelta(-1, "D")
    for half_life in lengths:
        got = re.escape(f"which is 2505.6 seconds (0:41:45.600000), got {half_life!r}")
        remedy = "" if isinstance(half_life, datetime.timedelta) else r", .*\(days=30\)"
        with pytest.raises(ValueError, match=f"half_life must be above .* {got}{remedy}$"):
            NONARegressor(half_life=half_life, max_iter=10**9).fit(X, y, times=dates)


@pytest.mark.parametrize("times", [sparse.csr_array(np.eye(N)), np.arange(N) * 1j])
def test_what_is_no_time_is_named(data, times):
    with pytest.raises(ValueError, match="times must hold numbers, dates or durations, got"):
        NONARegressor(max_iter=10**9).fit(*data[:2], times=times)


def shops(n_days=40):
    """Shops of which one opened before all others: its first rows have no other as neighbour."""
    rng = np.random.RandomState(0)
    pairs = [(s, d) for s in range(5) for d in range(0 if s == 0 else 15, n_days)]
    groups, times = np.array(pairs).T
    X = rng.normal(size=(len(pairs), 2))
    return X, X[:, 0] + 0.3 * rng.normal(size=len(pairs)), times, groups


@pytest.mark.slow
def test_rows_without_neighbors_do_not_calibrate():
    X, y, times, groups = shops()
    reg = NONARegressor(**QUICK | {"n_estimators": 3}).fit(X, y, times=times, groups=groups)
    first = (groups == 0) & (times < 15)
    assert any(first[rows].any() for rows in reg.validation_indices_)
    assert reg.calibration_.noise[0] > 0.1  # of the deviation of the noise, 0.3
    assert all(np.isfinite(epoch["valid_loss"]) for epoch in reg.history_)


def test_a_group_that_is_first_cannot_validate_alone():
    X, y, times, groups = shops()
    fold = np.where((groups == 0) & (times < 15), 0, -1)
    splitter = PredefinedSplit(fold)
    with pytest.raises(ValueError, match="a validation row later than a training row, got none"):
        NONARegressor(validation_fraction=splitter, max_iter=10**9).fit(X, y, times=times)


def test_quantiles_of_unknown_rows_are_nan(data, fitted):
    reg = clone(fitted).fit(*data[:2], times=data[2])
    for calibration in (reg.calibration_, Calibration()):
        reg.calibration_ = calibration
        own = reg.predict_quantiles(None, [0.1, 0.9])
        np.testing.assert_array_equal(np.isnan(own[:, 0]), data[2] == 0)
        np.testing.assert_array_equal(np.isnan(own[:, 0]), np.isnan(reg.predict(None)))


def test_queries_without_any_earlier_row(table, by_column):
    X, y, _ = table
    first = X[X.day == X.day.min()]
    assert np.isnan(by_column.predict(first)).all()
    assert (by_column.explain(first).weight.dropna() == 0).all()
    assert (by_column.influence(first, y[X.day == X.day.min()]).weight == 0).all()


def test_a_score_leaves_out_queries_without_earlier_rows(table, by_column):
    X, y, _ = table
    later = X.day > X.day.min()
    score = by_column.score(X, y)
    assert score == pytest.approx(by_column.score(X[later], y[later]))
    weights = np.linspace(1, 2, len(y))
    expected = by_column.score(X[later], y[later], weights[later])
    assert by_column.score(X, y, weights) == pytest.approx(expected)


def test_lengths_and_half_lives_at_their_bounds():
    with pytest.raises(ValueError, match="half_life must be above"):
        TimeKind("number").fading(0, np.ones(5))  # all at one moment
    assert TimeKind("number").fading(0.05, 1e6 + np.arange(30.0)).half_life == 0.05
    assert TimeKind("duration").length("max_age", datetime.timedelta(days=1)) == 86400
    with pytest.raises(ValueError, match="a timedelta, or seconds"):
        TimeKind("date").length("max_age", "3D")


def test_a_half_life_is_relative_to_about_the_latest_row_of_weight(data):
    """Rounded to a multiple of 8 half-lives."""
    X, y, times = data
    times = times + 1000.0 * (times >= 20)
    reg = NONARegressor(half_life=10, **QUICK)
    reg.fit(X, y, times=times, sample_weight=(times < 20).astype(float))
    assert abs(reg.bank_.neighbors.log_prior.max()) <= 4 * np.log(2) + 1e-5


def test_what_a_half_life_is_relative_to_does_not_tell_the_latest_time():
    """Nor whether there was a later row, which may be removed."""
    latest = {TimeKind("number").fading(1.0, np.array([0.0, t])).latest for t in (77.0, 83.0)}
    assert latest == {80.0}


@pytest.mark.slow
def test_dates_with_and_without_a_time_zone_do_not_mix(data):
    X, y, times = data
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(times, unit="D")
    zoned = dates.tz_localize("Europe/Berlin")
    for first, second in ((dates, zoned), (zoned, dates)):
        reg = NONARegressor(**QUICK).fit(X, y, times=first)
        with pytest.raises(
            ValueError, match=r"times had (a|no) time zone in fit, and have (a|no)"
        ):
            reg.add_neighbors(X, y, times=second)
        reg.add_neighbors(X, y, times=first)


def test_times_beyond_all_half_lives_are_refused(data):
    reg = with_half_life(data, 5)
    before = len(reg.bank_)
    with pytest.raises(ValueError, match="times must be within 1,000,000 half-lives of those of"):
        reg.add_neighbors(data[0][:1], data[1][:1], times=[1e300])
    assert len(reg.bank_) == before


@pytest.mark.parametrize("seed", range(4))
def test_a_first_half_of_one_group_validates_nothing(data, seed):
    """The second half can be predicted by the first, which is predicted by nothing."""
    X, y, times = data
    halves = (times >= N_TIMES // 2).astype(int)
    reg = NONARegressor(**QUICK | {"random_state": seed}).fit(X, y, times=times, groups=halves)
    for rows in reg.validation_indices_:
        assert halves[rows].all()
    assert reg.calibration_.noise[0] > 0


def test_groups_that_are_never_earlier_cannot_validate(data):
    X, y, times = data
    pairs = np.minimum(times, 1)  # all but the rows of the first day are of one group
    with pytest.raises(ValueError, match="a row of another group is earlier than, got none"):
        split_by_time(np.arange(9.0), 1, 0.2, np.random.RandomState(0), np.zeros(9))
    reg = NONARegressor(**QUICK).fit(X, y, times=times, groups=pairs)
    assert reg.calibration_.noise[0] > 0


def test_a_short_half_life_calibrates(data):
    """Weights that span e^70 and more, to a power."""
    X, y, _ = data
    reg = with_half_life(data, 0.04, n_neighbors="auto")
    assert reg.calibration_.noise[0] > 0
    for power in (0.125, 16.0):
        reg.calibration_ = Calibration(power=power, noise=(0.3,))
        reg.add_neighbors(X[:2], y[:2], times=[500.0, 501.0])
        low, high = reg.predict_quantiles(X[:5], [0.1, 0.9]).T
        assert (high - low > 0.3).all()


def test_a_score_of_unknown_queries_is_refused(table, by_column):
    X, y, _ = table
    first = X.day == X.day.min()
    with pytest.raises(ValueError, match="score needs queries that an earlier, or eligible"):
        by_column.score(X[first], y[first])
