"""Survival analysis: curves of neighbours against Kaplan-Meier, risks, forms of `y`, errors."""

import html
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from inner.data import Durations
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from nona_sklearn import (
    NONARegressor,
    NONASurvivalAnalysis,
    SurvivalDisplay,
    SurvivalReport,
    export_onnx,
    load,
    save,
    save_shards,
)
from nona_sklearn.eligibility import any_row, same, within

# Kaplan-Meier by hand: of 5 rows 1 ends at 1, of 4 one at 2, where another is censored, and of
# the remaining 2 one at 3.
DURATIONS, EVENTS = np.array([2.0, 4.0, 1.0, 2.0, 3.0]), np.array([0, 0, 1, 1, 1])
SAME = np.zeros((5, 1))
CURVE, HAZARD = [1, 0.8, 0.6, 0.3, 0.3], [0, 1 / 5, 1 / 5 + 1 / 4, 1 / 5 + 1 / 4 + 1 / 2]


def quick(**params):
    return NONARegressor(n_estimators=1, max_iter=2, random_state=0, **params)


def equal_rows(**options):
    """Five rows that nothing tells apart, so that their weights and risks are equal."""
    regressor = quick(n_neighbors=None, validation_fraction=None, adjust=False, trend=None)
    return NONASurvivalAnalysis(regressor).fit(SAME, **options)


def pairs(duration, event):
    return np.stack([duration, event], axis=1)


def structured(duration, event):
    rows = [*zip(event, duration, strict=True)]
    return np.array(rows, [("died", bool), ("days", float)])


@pytest.fixture(scope="module")
def rows():
    """Rows whose hazard depends on the first of two features, in part censored."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    due, end = rng.exponential(np.exp(-2 * X[:, 0])), rng.exponential(2, size=160)
    return X, np.minimum(due, end), due <= end


@pytest.fixture(scope="module")
def fitted(rows):
    X, duration, event = rows
    return NONASurvivalAnalysis(quick()).fit(X[:120], pairs(duration, event)[:120])


def test_equal_rows_are_kaplan_meier():
    model = equal_rows(y=pairs(DURATIONS, EVENTS))
    assert model.coef_.tolist() == [0]
    assert model.unique_times_.tolist() == [1, 2, 3]
    curves = model.predict_survival_function([[0], [0]], times=[0.5, 1, 2.5, 3, 99])
    np.testing.assert_allclose(curves, [CURVE] * 2)
    hazards = model.predict_cumulative_hazard_function([[0]], times=[0.5, 1, 2, 3])
    np.testing.assert_allclose(hazards, [HAZARD])
    np.testing.assert_allclose(model.predict([[0]]), sum(HAZARD))
    assert model.predict_quantiles([[0]]).tolist() == [3]
    assert model.predict_quantiles([[0]], [0.1, 0.5, 0.9]).tolist() == [[1, 3, np.inf]]


def test_weights_count_as_rows():
    """Of weights 2, 1, 2 and 1, a third ends at 2, and 2 of the remaining 3 at 3."""
    model = equal_rows(y=pairs(DURATIONS, EVENTS), sample_weight=[1, 1, 0, 2, 2])
    assert model.durations_.tolist() == [2, 4, 2, 3]
    curve = model.predict_survival_function([[0]], times=[1, 2, 3])
    np.testing.assert_allclose(curve, [[1, 2 / 3, 2 / 3 / 3]])


def test_a_curve_is_of_the_neighbours():
    """Of the two nearest rows one ends at 1, and the last one is censored."""
    X = np.array([[0.0], [0.1], [0.2], [0.9], [1.0]])
    regressor = quick(n_neighbors=2, weighting="uniform", validation_fraction=None, trend=None)
    model = NONASurvivalAnalysis(regressor).fit(X, pairs([2, 2, 3, 1, 4], [1, 1, 1, 1, 0]))
    np.testing.assert_allclose(model.neighbor_weights([[0.96]]).toarray(), [[0, 0, 0, 0.5, 0.5]])
    table = model.explain([[0.96]], 2).sort_values("neighbor")
    assert table["duration"].tolist() == [1, 4]
    assert table["event"].tolist() == [True, False]
    query, other = table["risk_ratio"]
    factor = (1 - (1 / query) / (1 / query + 1 / other)) ** query
    curve = model.predict_survival_function([[0.96]], times=[0.9, 1, 2, 4])
    np.testing.assert_allclose(curve, [[1, factor, factor, factor]])


def risk_ratios(model, query):
    """The risk of a query over that of each row, 1 of rows without weight."""
    found, ratios = model.explain(query, len(model.events_)), np.ones(len(model.events_))
    ratios[found["neighbor"]] = found["risk_ratio"]
    return ratios


def test_factors_have_ratios_of_risks_as_exponents(fitted):
    """The formula of the notes, for one query, in a loop."""
    query = [[0.5, 0.0]]
    w = fitted.neighbor_weights(query).toarray()[0]
    ratio = risk_ratios(fitted, query)
    r, curve = 1 / ratio, 1.0
    order = np.lexsort([~fitted.events_, fitted.durations_])
    for position, i in enumerate(order[:60]):
        if fitted.events_[i]:
            later = order[position:]
            curve *= (1 - w[i] * r[i] / (w[later] @ r[later])) ** ratio[i]
    time = fitted.durations_[order[59]]
    np.testing.assert_allclose(fitted.predict_survival_function(query, time), [[curve]])


def test_risks_order_new_rows(rows, fitted):
    X, duration, event = rows
    assert fitted.score(X[120:], pairs(duration, event)[120:]) > 0.7
    curves = fitted.predict_survival_function(X[120:])
    assert ((curves >= 0) & (curves <= 1)).all()
    assert (np.diff(curves, axis=1) <= 0).all()
    low, high = fitted.predict_quantiles([[1.0, 0.0], [-1.0, 0.0]])
    assert low < high


def test_score_counts_pairs(fitted):
    """Of equal durations, the censored one is the later; equal risks count half."""
    X = [[2.0, 0.0], [2.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]
    assert fitted.score(X, pairs([1, 2, 3, 3], [1, 1, 1, 0])) == (0.5 + 1 + 1 + 1 + 1 + 0) / 6
    assert fitted.score(X, pairs([1, 2, 3, 3], [1, 1, 1, 0]), [0, 1, 2, 1]) == (2 + 1 + 0) / 5
    with pytest.raises(ValueError, match="an event before the end of a duration"):
        fitted.score(X, pairs([1, 2, 3, 4], [0, 0, 0, 1]))


def test_times_count_by_their_order(rows, fitted):
    X, duration, event = rows
    stretched = NONASurvivalAnalysis(quick()).fit(X[:120], pairs(duration**3, event)[:120])
    np.testing.assert_allclose(stretched.predict(X), fitted.predict(X), rtol=1e-9)
    np.testing.assert_allclose(
        stretched.predict_survival_function(X, [0.001, 1]),
        fitted.predict_survival_function(X, [0.1, 1]),
        atol=1e-9,
    )


def test_rows_of_the_bank_are_left_out(rows, fitted):
    X, duration, event = rows
    y = pairs(duration, event)[:120]
    assert (fitted.neighbor_weights().diagonal() == 0).all()
    curves = fitted.predict_survival_function(None)
    assert curves.shape == (120, len(fitted.unique_times_))
    risk = fitted.predict(None)
    assert 0.6 < fitted.score(None, y) < fitted.score(X[:120], y)
    assert risk.shape == (120,)


@pytest.mark.parametrize(
    "form",
    [
        structured,
        lambda t, e: pd.DataFrame({"days": t, "died": e.astype(bool)}),
        lambda t, e: pairs(t, e).tolist(),
        lambda t, e: structured(t, e)[["days", "died"]],
    ],
)
def test_forms_of_y(form):
    model = equal_rows(y=form(DURATIONS, EVENTS))
    assert model.durations_.tolist() == DURATIONS.tolist()
    assert model.events_.tolist() == EVENTS.astype(bool).tolist()


def changed(row, column, value):
    y = pairs(DURATIONS, EVENTS)
    y[row, column] = value
    return y


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y"),
        (DURATIONS, r"columns duration and event, got shape \(5,\)"),
        (changed(3, 0, -2), r"at least 0, got -2 in row 3 of output 0"),
        (changed(1, 0, np.nan), "contains NaN: nan in row 1"),
        (["a"] * 5, "could not convert string.*; y must hold durations and events as numbers$"),
        (changed(1, 0, np.inf), "contains infinity: inf in row 1"),
        (changed(4, 1, np.nan), "contains NaN: nan in row 4"),
        (changed(4, 1, 2), "events, of which 1 or True is an event.* got 2 in row 4"),
        (pairs(EVENTS, DURATIONS), "durations and then events.* got 2 in row 0"),
        (pairs(DURATIONS, 0 * EVENTS), "an event, got 5 rows, all of them censored"),
        (pairs(DURATIONS, EVENTS)[:4], "X has 5, y has 4"),
        (np.zeros(5, [("a", float), ("b", float)]), "two fields, one of which is boolean"),
        (np.zeros(5, [("a", bool)]), "two fields, one of which is boolean"),
        (pd.DataFrame({"days": [1, 2, -3, 4, 5], "died": 1}), "got -3 in row 2 of output 'days'"),
    ],
)
def test_bad_targets(y, message):
    with pytest.raises(ValueError, match=message):
        equal_rows(y=y)


def test_bad_parameters(fitted):
    with pytest.raises(ValueError, match=r"regressor must be a NONARegressor.* got StandardSc"):
        NONASurvivalAnalysis(StandardScaler()).fit(SAME, pairs(DURATIONS, EVENTS))
    with pytest.raises(ValueError, match="quantiles must be from 0 to 1, got 2"):
        fitted.predict_quantiles([[0, 0]], 2)
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 120, got 121"):
        fitted.explain([[0, 0]], 121)
    with pytest.raises(ValueError, match="times"):
        fitted.predict_survival_function([[0, 0]], [np.nan])


def test_tools_of_scikit_learn(rows):
    X, duration, event = rows
    y = structured(duration, event)
    model = NONASurvivalAnalysis(quick())
    assert clone(model).get_params()["regressor__max_iter"] == 2
    assert (cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=2) > 0.6).all()
    search = GridSearchCV(model, {"regressor__n_neighbors": [20]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.6


def test_tables_and_groups(rows):
    X, duration, event = rows
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"p{i}" for i in range(len(X))])
    frame["level"] = np.where(X[:, 0] > 0, "high", "low")
    y = pd.DataFrame({"days": duration, "died": event}, index=frame.index)
    model = NONASurvivalAnalysis(quick()).fit(frame, y, groups=np.arange(160) // 2)
    table = model.explain(frame[:2], 3)
    assert table["query"].tolist() == ["p0"] * 3 + ["p1"] * 3
    assert table["duration"].tolist() == y.loc[table["neighbor"], "days"].tolist()
    assert model.score(frame, y) > 0.7


def test_pickles_and_files(tmp_path, rows, fitted):
    X, *_ = rows
    expected = fitted.predict_survival_function(X)
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.predict_survival_function(X), expected)
    save(fitted, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_survival_function(X), expected)
    with pytest.raises((TypeError, ValueError), match="estimator must be"):
        export_onnx(fitted, tmp_path / "graph")
    with pytest.raises((TypeError, ValueError), match="estimator must be"):
        save_shards(fitted, tmp_path / "shards", 2)


def test_a_display_draws_curves_and_the_times_of_neighbors(fitted, rows):
    pytest.importorskip("matplotlib")
    X = rows[0][120:123]
    ax = Figure().subplots()
    display = SurvivalDisplay.from_estimator(fitted, X, n_neighbors=4, ax=ax)
    found = fitted.explain(X, 4)
    for i, line in enumerate(ax.lines):
        times, curve = line.get_data()
        np.testing.assert_array_equal(curve, fitted.predict_survival_function(X, times)[i])
        events, ends = (dots.get_offsets().data for dots in ax.collections[2 * i : 2 * i + 2])
        marked = np.concatenate([events[:, 0], ends[:, 0]])
        own = found[found["query"] == i]
        np.testing.assert_array_equal(np.sort(marked), np.sort(own["duration"]))
        assert len(events) == own["event"].sum()
    assert display.names == ["0", "1", "2"]
    with pytest.raises(ValueError, match="X must have at most 10 rows, got 11"):
        SurvivalDisplay.from_estimator(fitted, rows[0][:11], ax=ax)


def test_events_at_one_time_count_together(rows, fitted):
    """Of 20 equal rows 10 end at 1: the hazard of Nelson and Aalen is a half."""
    y = pairs([1, 2] * 10, [1, 0] * 10)
    regressor = quick(n_neighbors=None, validation_fraction=None, adjust=False, trend=None)
    model = NONASurvivalAnalysis(regressor).fit(np.zeros((20, 1)), y)
    np.testing.assert_allclose(model.predict_cumulative_hazard_function([[0]], [1]), [[0.5]])
    np.testing.assert_allclose(model.predict_survival_function([[0]], [1]), [[0.5]])

    X, duration, event = rows
    tied = NONASurvivalAnalysis(quick()).fit(X, pairs(np.ceil(duration), event))
    query = [[0.5, 0.0]]
    w = tied.neighbor_weights(query).toarray()[0]
    ratio = risk_ratios(tied, query)
    hazard, curve, times = 0.0, 1.0, tied.durations_
    for time in tied.unique_times_:
        risk, ends = w / ratio, (times == time) & tied.events_
        share = risk[ends].sum() / risk[times >= time].sum()
        mean_ratio = (risk * ratio)[ends].sum() / risk[ends].sum()
        hazard += share * mean_ratio
        curve *= (1 - min(share, 1)) ** mean_ratio
    last = tied.unique_times_[-1]
    np.testing.assert_allclose(tied.predict_cumulative_hazard_function(query, last), [[hazard]])
    found = tied.predict_survival_function(query, last)
    np.testing.assert_allclose(found, [[curve]], atol=1e-12)


def test_the_hazard_of_durations_shares_ties():
    rows = Durations(np.array([1.0, 1.0, 2.0]), np.array([True, True, True]), np.ones(3))
    at_risk, hazard = rows.hazards(np.zeros(3))
    assert at_risk.tolist() == [3, 3, 1]
    np.testing.assert_allclose(hazard, [2 / 3, 2 / 3, 5 / 3])


def test_risks_grow_with_the_feature_that_causes_them(fitted):
    assert fitted.feature_coef_[0] > 5 * abs(fitted.feature_coef_[1])
    assert fitted.coef_.max() > 0.1


def test_nested_parameters_make_the_regressor():
    model = NONASurvivalAnalysis().set_params(regressor__max_iter=3)
    assert model.regressor.get_params()["max_iter"] == 3
    model.set_params(regressor__n_estimators=1)
    assert model.regressor.get_params()["max_iter"] == 3


def test_neighbors_are_half_of_the_rows_of_positive_weight(rows):
    X, duration, event = rows
    weight = np.repeat([1.0, 0.0], [60, 100])
    model = NONASurvivalAnalysis(quick()).fit(X, pairs(duration, event), sample_weight=weight)
    assert model.regressor_.n_neighbors == 30


def test_features_are_those_of_the_regressor(fitted):
    assert fitted.n_features_in_ == 2
    assert not hasattr(fitted, "feature_names_in_")
    assert get_tags(fitted).target_tags.required


def test_an_edited_bank_is_refused(rows, fitted):
    model = pickle.loads(pickle.dumps(fitted))
    model.regressor_.remove_neighbors(ids=[0])
    with pytest.raises(ValueError, match="regressor_ must have the rows of fit, got an edited"):
        model.predict(rows[0][:2])


# -- rows that may be neighbours ---------------------------------------------------------------


def test_rules_choose_whose_durations_make_a_curve(rows):
    """Of a rule and of the mask of the same rows the curve is that of these rows alone."""
    X, duration, event = rows
    X = np.column_stack([X, np.arange(160) % 2])
    regressor = quick(adjust=False, trend=None)
    fits = {
        rule: NONASurvivalAnalysis(clone(regressor)).fit(
            X[:120], pairs(duration, event)[:120], eligibility=rule
        )
        for rule in (same(2), any_row(2))
    }
    new, times = X[120:124], [0.1, 0.5, 1, 2]
    for model, by_call in ((fits[same(2)], {}), (fits[any_row(2)], {"eligibility": same(2)})):
        weights = model.neighbor_weights(new, **by_call).toarray()
        assert ((weights > 0) <= (X[:120, 2] == new[:, [2]])).all()
        mask = {"eligibility": X[:120, 2] == new[:, [2]]}
        mask_of_first = {"eligibility": mask["eligibility"][:1]}
        for name in ("predict", "predict_cumulative_hazard_function", "predict_quantiles"):
            by_rule, by_mask = (getattr(model, name)(new, **given) for given in (by_call, mask))
            np.testing.assert_array_equal(by_rule, by_mask)
            assert np.isfinite(by_rule).all()
        curve = model.predict_survival_function(new, times, **by_call)
        np.testing.assert_array_equal(curve, model.predict_survival_function(new, times, **mask))
        assert (curve != model.predict_survival_function(new, times, eligibility=any_row(2))).any()
        found = model.explain(new[:1], 120, **by_call)
        again = model.explain(new[:1], 120, **mask_of_first)
        np.testing.assert_array_equal(found["risk_ratio"], again["risk_ratio"])
        assert len(found) == (weights[0] > 0).sum()
        assert (X[found["neighbor"].to_numpy(), 2] == new[0, 2]).all()
        display = SurvivalDisplay.from_estimator(model, new, n_neighbors=120, **by_call)
        assert (display.weights > 0).sum() == (weights > 0).sum()


@pytest.mark.filterwarnings("ignore:too few rows are eligible")
def test_queries_without_eligible_rows_have_no_curve(rows, fitted):
    X = rows[0]
    no_row = np.zeros((2, 120), dtype=bool)
    no_row[1] = True
    X = X[120:122]
    given = {"eligibility": no_row}
    for name in ("predict", "predict_quantiles", "predict_survival_function"):
        by_mask, by_all = getattr(fitted, name)(X, **given), getattr(fitted, name)(X)
        assert np.isnan(by_mask[0]).all()
        np.testing.assert_array_equal(by_mask[1], by_all[1])
    assert set(fitted.explain(X, 3, **given)["query"]) == {1}
    with pytest.raises(ValueError, match="the query has no neighbors"):
        SurvivalReport(fitted, X[:1], eligibility=no_row[:1])


def test_a_score_leaves_out_queries_without_eligible_rows(rows):
    X, duration, event = rows
    y = pairs(duration, event)
    with pytest.warns(UserWarning, match="too few rows are eligible for 1 of 120 .*, by within"):
        model = NONASurvivalAnalysis(quick()).fit(X[:120], y[:120], eligibility=within(0, 0.5))
    new, of_new = X[120:].copy(), y[120:]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "too few rows are eligible")
        expected = model.score(new[5:], of_new[5:])
        new[:5, 0] = 99
        assert model.score(new, of_new) == expected
    assert np.isfinite(model.log_risks_).all()


# -- a report ----------------------------------------------------------------------------------


def test_a_report_has_the_curve_and_the_rows_behind_it(rows):
    X, duration, event = rows
    names = [f"patient <{i}>" for i in range(160)]
    table = pd.DataFrame(X, columns=["dose", "b"], index=names)
    model = NONASurvivalAnalysis(quick()).fit(table[:120], pairs(duration, event)[:120])
    query = table[121:122]
    report = SurvivalReport(model, query, table[:120], n_neighbors=4, times=[0.25, 0.5])
    assert report.title == "Time until the event for patient <121>"
    text = report._repr_html_()
    assert "patient &lt;121&gt;" in text
    assert "<121>" not in text
    found = model.explain(query, 4)
    for name in found["neighbor"]:
        assert html.escape(name) in text
    assert text.count('class="event"') == found["event"].sum()
    assert text.count("<circle") == 4 - found["event"].sum()
    for p in model.predict_survival_function(query, [0.25, 0.5])[0]:
        assert f"{p:.1%}"[:2] in text
    [points] = re.findall('polyline points="([^"]*)"', text)
    steps = np.array([point.split(",") for point in points.split()], dtype=float)
    assert (np.diff(steps[:, 0]) >= 0).all()
    assert (np.diff(steps[:, 1]) >= 0).all()
    curve = model.predict_survival_function(query)[0]
    shown = np.array([float(x) for x in re.findall('<line x1="([0-9.]*)".*class="event"', text)])
    length = np.ptp(steps[:, 0]) / max(model.unique_times_[-1], found["duration"].max())
    np.testing.assert_allclose(
        shown, steps[0, 0] + length * found["duration"][found["event"]], rtol=0, atol=0.1
    )
    np.testing.assert_allclose(
        steps[1::2, 0][:-1], steps[0, 0] + length * model.unique_times_, rtol=0, atol=0.1
    )
    heights = 1 - (steps[:, 1] - steps[0, 1]) / 180
    np.testing.assert_allclose(heights[1::2], np.append(1, curve), rtol=0, atol=1e-3)


def test_a_report_of_wrong_arguments(rows, fitted):
    X = rows[0][120:]
    with pytest.raises(ValueError, match="X must be one row, got 40"):
        SurvivalReport(fitted, X)
    with pytest.raises(ValueError, match="n_neighbors must be a positive integer, got 0"):
        SurvivalReport(fitted, X[:1], n_neighbors=0)
    with pytest.raises(ValueError, match="times contains NaN"):
        SurvivalReport(fitted, X[:1], times=[np.nan])


def test_a_report_knows_nothing_beyond_the_last_duration(rows, fitted):
    """Of neighbours that were all censored early, the curve stays at 1."""
    X, duration, event = rows
    early = ~event[:120] & (duration[:120] < np.median(duration))
    last = duration[:120][early].max()
    mask = {"eligibility": early[None]}
    report = SurvivalReport(fitted, X[120:121], times=[last, last + 1], **mask)._repr_html_()
    assert "100%" in report
    assert "unknown" in report
    assert "Median: later than" in report
    assert "unknown" not in SurvivalReport(fitted, X[120:121], times=[last], **mask)._repr_html_()


def test_queries_without_eligible_rows_are_errors_of_pictures_and_scores(rows, fitted):
    X, duration, event = rows
    no_row = {"eligibility": np.zeros((1, 120), dtype=bool)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "too few rows are eligible")
        with pytest.raises(ValueError, match="X must have eligible rows, got 1 queries"):
            SurvivalDisplay.from_estimator(fitted, X[:1], **no_row)
        model = clone(fitted).fit(X[:120], pairs(duration, event)[:120], eligibility=within(0, 1))
        far = X[120:].copy()
        far[:, 0] = 99
        with pytest.raises(ValueError, match="X must have eligible rows, got 40 queries"):
            model.score(far, pairs(duration, event)[120:])
