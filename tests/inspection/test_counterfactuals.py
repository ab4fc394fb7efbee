"""Counterfactuals: small changes of a query that lead to another outcome."""

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from inner.inspection import (
    AllowedChanges,
    Outcome,
    RowMixer,
    _Search,
)
from sklearn.compose import make_column_transformer
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from nona_sklearn import NONAClassifier, NONARegressor, counterfactuals

COLUMNS = ["income", "debt", "home", "since"]


@pytest.fixture(scope="module")
def loans():
    """A raw table of 200 loans, those repaid, their amounts, and 8 more loans."""
    random = np.random.RandomState(0)
    X = pd.DataFrame(
        {
            "income": random.randint(10, 90, 208) * 1.0,
            "debt": random.randint(0, 40, 208),
            "home": random.choice(["rent", "own", "other"], 208),
            "since": pd.to_datetime("2000-01-01")
            + pd.to_timedelta(random.randint(4000, size=208), "D"),
        },
        index=[f"loan {i}" for i in range(208)],
    )
    X.loc[X.index[::9], "income"] = np.nan
    worth = X.income.fillna(30) - X.debt + 15 * (X.home == "own")
    repaid = np.where(worth > 35, "yes", "no")
    return X[:200], repaid[:200], worth[:200], X[200:]


@pytest.fixture(scope="module")
def classifier(loans):
    X, repaid, _, _ = loans
    return NONAClassifier(n_estimators=1, max_iter=30, random_state=0).fit(X, repaid)


@pytest.fixture(scope="module")
def regressor(loans):
    X, _, worth, _ = loans
    return NONARegressor(n_estimators=1, max_iter=30, random_state=0).fit(X, worth)


def changes(found):
    """Each counterfactual as a table of one row, beside its query's and the row behind it."""
    queries = {line["query"]: line for _, line in found.iterrows() if line["row"] == "query"}
    for i in np.flatnonzero(found["row"] == "counterfactual"):
        yield queries[found.loc[i, "query"]], found.loc[i], found.loc[i + 1]


def changed_columns(found):
    """What each counterfactual changes, after a check that other lines name no column."""
    counterfactual = found["row"] == "counterfactual"
    assert (found.loc[~counterfactual, "changed"] == "").all()
    return [*found.loc[counterfactual, "changed"]]


def as_table(line, X):
    return pd.DataFrame([line[X.columns]]).astype(X.dtypes.to_dict())


@pytest.mark.slow
def test_a_counterfactual_has_another_class_and_lies_between_the_query_and_a_real_row(
    loans, classifier
):
    X, repaid, _, queries = loans
    found = counterfactuals(classifier, queries, X, n_counterfactuals=2)
    assert found["query"].unique().tolist() == queries.index.tolist()
    pairs = [*changes(found)]
    assert len(pairs) > len(queries)  # two of most
    for query, changed, row in pairs:
        assert row["target"] == repaid[X.index.get_loc(row["row"])] != query["prediction"]
        pd.testing.assert_series_equal(
            row[COLUMNS], X.loc[row["row"]], check_names=False, check_dtype=False
        )
        assert classifier.predict(as_table(changed, X))[0] == changed["prediction"]
        assert changed["prediction"] != query["prediction"]
        for name in COLUMNS:
            named = name in changed["changed"].split(", ")
            same = changed[name] == query[name] or pd.isna([changed[name], query[name]]).all()
            assert named != same
            if named:
                low, high = sorted([query[name], row[name]]) if name != "home" else ("", "~")
                if not pd.isna([query[name], row[name]]).any():
                    assert low <= changed[name] <= high
                assert (X[name] == changed[name]).any() or pd.isna(changed[name])


def on_the_line(start, end, share, values):
    """The first of a column's values that is so far along from one value to another."""
    if isinstance(end, str) or pd.isna([start, end]).any():
        return end
    way = (values.dropna() - start) / (end - start)
    return values[way[way >= min(share, 1)].idxmin()]


@pytest.mark.slow
def test_each_change_is_needed_and_goes_no_further_than_needed(loans, classifier):
    X, _, _, queries = loans
    for query, changed, row in changes(counterfactuals(classifier, queries, X)):
        names = changed["changed"].split(", ")
        whole = as_table(query, X)
        for name in names:
            whole[name] = as_table(row, X)[name].array
        assert classifier.predict(whole)[0] == changed["prediction"]
        for name in names:
            less = whole.assign(**{name: as_table(query, X)[name].array})
            assert classifier.predict(less)[0] == query["prediction"]
        for step in range(1, 33):
            part = {n: [on_the_line(query[n], row[n], step / 32, X[n])] for n in names}
            nearer = as_table(query, X).assign(**part)
            if classifier.predict(nearer)[0] == changed["prediction"]:
                break
        pd.testing.assert_frame_equal(
            nearer.reset_index(drop=True),
            as_table(changed, X).reset_index(drop=True),
            check_dtype=False,
        )


@pytest.mark.slow
def test_fixed_columns_stay(loans, classifier):
    X, _, _, queries = loans
    fixed = counterfactuals(classifier, queries, X, fixed=["income", 1])
    pairs = [*changes(fixed)]
    assert pairs
    for query, changed, _ in pairs:
        assert changed["debt"] == query["debt"]
        assert changed["income"] == query["income"] or pd.isna(query["income"])
        assert {*changed["changed"].split(", ")} <= {"home", "since"}


@pytest.mark.slow
def test_columns_change_in_one_direction_and_within_limits(loans, regressor):
    """Without a limit some change the other way, so that each case tells."""
    X, _, _, queries = loans
    threshold = regressor.predict(queries).max() + 5
    free = counterfactuals(regressor, queries, X, at_least=threshold, n_counterfactuals=3)
    rises = [now["income"] < then["income"] for now, then, _ in changes(free)]
    assert any(rises)
    options = {"decrease": "income", "increase": ["since"], "limits": {"debt": (5, 20)}}
    found = counterfactuals(regressor, queries, X, at_least=threshold, **options)
    assert (found["row"] == "counterfactual").any()
    for now, then, _ in changes(found):
        assert then["prediction"] >= threshold
        assert then["income"] <= now["income"] or pd.isna(now["income"])
        assert then["since"] >= now["since"]
        assert then["debt"] == now["debt"] or 5 <= then["debt"] <= 20


@pytest.mark.parametrize("wanted", [{"increase": ["income"]}, {"limits": {"debt": (5, 20)}}])
def test_a_gap_of_a_query_is_one_of_numbers(loans, regressor, wanted):
    """Although the query's column has no number that shows it."""
    X, _, _, queries = loans
    query = queries.iloc[[0]].assign(income=np.nan, debt=np.nan)
    threshold = regressor.predict(query)[0] + 2
    found = counterfactuals(regressor, query, X, at_least=threshold, **wanted)
    (pair,) = [(now, then) for now, then, _ in changes(found)]
    assert pair[1]["prediction"] >= threshold
    if "increase" in wanted:
        assert pd.isna(pair[1]["income"])
    else:
        assert pd.isna(pair[1]["debt"]) or 5 <= pair[1]["debt"] <= 20


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sign"), [("at_least", 1), ("at_most", -1)])
def test_a_threshold_is_reached(loans, regressor, name, sign):
    X, _, worth, queries = loans
    value = (
        regressor.predict(queries).max() + 5 if sign > 0 else regressor.predict(queries).min() - 5
    )
    found = counterfactuals(regressor, queries, X, **{name: value})
    pairs = [*changes(found)]
    assert pairs
    for query, changed, row in pairs:
        assert sign * (query["prediction"] - value) < 0
        assert sign * (changed["prediction"] - value) >= 0
        assert sign * (row["target"] - value) >= 0
        assert row["target"] == worth[row["row"]]


@pytest.mark.slow
def test_the_rows_are_the_nearest_with_the_outcome(loans, classifier):
    X, repaid, _, queries = loans
    for query, _, row in changes(counterfactuals(classifier, queries, X)):
        order = classifier.heaviest_neighbors(as_table(query, X), len(X))[1][0]
        others = order[repaid[order] != query["prediction"]]
        suffice = classifier.predict(X.iloc[others]) != query["prediction"]
        assert row["row"] == X.index[others[suffice][0]]  # the first whose own values suffice


@pytest.mark.slow
def test_models_around_an_estimator(loans):
    X, repaid, _, queries = loans
    columns = make_column_transformer(
        (StandardScaler(), ["debt"]), (OneHotEncoder(), ["home"]), remainder="drop"
    )
    inner = NONAClassifier(n_estimators=1, max_iter=20, random_state=0)
    model = make_pipeline(columns, inner).fit(X, repaid)
    found = counterfactuals(model, queries, X)
    assert {*changed_columns(found)} <= {"debt", "home", "debt, home"}
    for query, changed, _ in changes(found):
        assert model.predict(as_table(changed, X))[0] != query["prediction"]
    cautious = FixedThresholdClassifier(
        NONAClassifier(n_estimators=1, max_iter=20, random_state=0), threshold=0.9, pos_label="yes"
    ).fit(X, repaid)
    no = queries[cautious.predict(queries) == "no"]
    for _, changed, _ in changes(counterfactuals(cautious, no, X, y="yes")):
        assert cautious.predict(as_table(changed, X))[0] == "yes"


@pytest.mark.slow
def test_other_tables(loans, classifier):
    X, repaid, _, queries = loans
    numbers = X[["income", "debt"]].fillna(30).to_numpy()
    clf = NONAClassifier(n_estimators=1, max_iter=20, random_state=0).fit(
        numbers[:150], repaid[:150]
    )
    found = counterfactuals(clf, numbers[150:155], numbers[:150])
    assert [*found.columns[-2:]] == ["x0", "x1"]
    assert {*changed_columns(found)} <= {"x0", "x1", "x0, x1"}
    table, more = pl.from_pandas(X), pl.from_pandas(queries)
    clf = NONAClassifier(n_estimators=1, max_iter=20, random_state=0).fit(table, repaid)
    found = counterfactuals(clf, more.with_columns(pl.col("debt").cast(float)), table)
    for query, changed, _ in changes(found):
        assert changed["prediction"] != query["prediction"]


@pytest.mark.slow
def test_frames_of_other_libraries_and_names(loans):
    X, repaid, _, queries = loans
    clf = NONAClassifier(n_estimators=1, max_iter=20, random_state=0)
    table, more = pl.from_pandas(X), pl.from_pandas(queries)
    found = counterfactuals(clf.fit(table, repaid), more, table, fixed="debt")
    for query, changed, _ in changes(found):
        assert changed["prediction"] != query["prediction"]
        assert changed["debt"] == query["debt"]
    for names in (range(4), pd.MultiIndex.from_product([["a", "b"], ["c", "d"]])):
        table, more = X.set_axis(names, axis=1), queries.set_axis(names, axis=1)
        found = counterfactuals(clf.fit(table, repaid), more, table, fixed=[1])
        columns = [*found.columns[5:]]
        assert columns == [str(name) for name in names]
        for query, changed, _ in changes(found):
            assert changed["prediction"] != query["prediction"]
            assert changed[columns[1]] == query[columns[1]]


@pytest.mark.slow
def test_all_rows_with_the_outcome_are_tried():
    """The nearest rows' values do not lead to it, those of farther rows do."""
    random = np.random.RandomState(0)
    X = random.uniform(-1, 1, (300, 2))
    y = 100.0 * (X[:, 0] > 0.5) + 10 * X[:, 1]
    reg = NONARegressor(n_estimators=1, max_iter=40, random_state=0).fit(X, y)
    queries = np.column_stack([np.full(5, -0.8), np.linspace(-0.9, 0.9, 5)])
    at_least = 60
    found = counterfactuals(reg, queries, X, at_least=at_least)
    for i, query in enumerate(queries):
        copies = np.column_stack([X[y >= at_least, 0], np.full((y >= at_least).sum(), query[1])])
        possible = (reg.predict(copies) >= at_least).any()
        assert possible
        assert "counterfactual" in found.loc[found["query"] == i, "row"].to_list()


@pytest.mark.slow
def test_several_counterfactuals_differ(loans, classifier):
    X, _, _, queries = loans
    found = counterfactuals(classifier, queries[:2], X, n_counterfactuals=12)
    lines = found.loc[found["row"] == "counterfactual", ["query", *COLUMNS]]
    assert not lines.duplicated().any()
    counts = lines["query"].value_counts()
    assert counts.between(2, 12).all()


@pytest.mark.slow
def test_the_column_of_times_stays(loans):
    X, _, worth, queries = loans
    reg = NONARegressor(n_estimators=1, max_iter=20, random_state=0).fit(X, worth, times="since")
    late = queries.assign(since=pd.Timestamp("2020-01-01"))
    found = counterfactuals(reg, late, X, at_least=reg.predict(late).max() + 1)
    assert changed_columns(found)
    assert not any("since" in names for names in changed_columns(found))
    with pytest.raises(ValueError, match="fixed must leave a column that may change"):
        counterfactuals(reg, late, X, at_least=1000, fixed=["income", "debt", "home"])


def free(mixer):
    """All changes are allowed in three columns."""
    return AllowedChanges(mixer, np.arange(3), frozenset(), frozenset(), {})


def test_of_several_columns_that_suffice_the_one_that_leads_furthest_changes():
    """A prediction of 2 a + 3 b + c, of which 1 is enough."""
    X = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])

    class Sum:
        def scores(self, answers, rows):
            scores = rows @ [2.0, 3.0, 1.0]
            return scores, scores >= 1

    mixer = SimpleNamespace(
        answers=None,
        numbers=[None] * 3,
        make=lambda rows: X[rows, np.arange(3)],
        differing=lambda one, other: np.flatnonzero(one != other),
    )
    query, row = np.full(3, 1), np.full(3, 0)
    search = _Search(mixer, Sum(), query, free(mixer))
    assert search._changed_towards(row).tolist() == [1, 0, 1]


def search_among(scores_of):
    """Find the cells that change towards a row, 1 in each column, from a query of zeros."""
    X = np.array([[1, 1, 1], [0, 0, 0]])
    mixer = SimpleNamespace(
        answers=None,
        numbers=[None] * 3,
        make=lambda rows: X[rows, np.arange(3)],
        differing=lambda one, other: np.flatnonzero(one != other),
        between=lambda column, start, end, shares: np.full(len(shares), end),
    )
    outcome = SimpleNamespace(scores=lambda answers, rows: scores_of(*rows.T))
    search = _Search(mixer, outcome, np.full(3, 1), free(mixer))
    [(row, changed)] = search.towards([np.array([0])])
    assert row == 0
    return X[changed, np.arange(3)].tolist()


def test_a_change_that_later_ones_make_needless_is_taken_back():
    """The first column leads furthest, but the other two suffice."""
    assert search_among(lambda a, b, c: (3 * a + 2 * b + c, (b & c) == 1)) == [0, 1, 1]


def test_a_change_that_suffices_comes_before_one_that_leads_further():
    """Of three classes, the wanted ones may have more probability without being predicted."""
    assert search_among(lambda a, b, c: (2 * a + b, (b == 1) & (a + c != 1))) == [0, 1, 0]


def test_a_query_may_have_the_name_of_a_row_if_its_features_differ(loans, classifier):
    X, _, _, queries = loans
    named = queries[:1].set_axis(["loan 7"])
    found, expected = (counterfactuals(classifier, each, X) for each in (named, queries[:1]))
    pd.testing.assert_frame_equal(found.drop(columns="query"), expected.drop(columns="query"))


def test_values_are_those_of_rows_of_the_bank_and_not_of_other_queries():
    """The second query has a value between the first and the row."""
    features, queries = np.array([[0.0], [10.0]]), np.array([[0.0], [5.0]])
    mixer = RowMixer(
        answers=None,
        table=None,
        compared=[SimpleNamespace(rows=features[:, 0])],
        codes=np.array([[0], [2], [0], [1]]),
        numbers=[np.concatenate([features, queries])[:, 0]],
    )
    assert mixer.between(0, 2, 1, np.array([0.25, 1.0])).tolist() == [1, 1]


@pytest.fixture(scope="module")
def sums():
    """A table of whole numbers and a regressor of their sum, 2 a + b."""
    random = np.random.RandomState(0)
    X = pd.DataFrame({"a": random.randint(0, 9, 120), "b": random.randint(0, 9, 120)})
    reg = NONARegressor(n_estimators=1, max_iter=2, random_state=0)
    return X, reg.fit(X, 2.0 * X["a"] + X["b"])


@pytest.mark.parametrize(
    ("outcome", "direction", "sign"), [("at_most", "increase", 1), ("at_least", "decrease", -1)]
)
def test_a_column_does_not_change_in_the_forbidden_direction(sums, outcome, direction, sign):
    """Without the limit it changes that way; with it the other column leads to the outcome."""
    X, reg = sums
    queries = pd.DataFrame({"a": [4, 3, 5], "b": [4, 4, 4]}, index=["x", "y", "z"])
    predictions = reg.predict(queries)
    threshold = predictions.min() - 2.5 if sign > 0 else predictions.max() + 2.5
    free = counterfactuals(reg, queries, X, **{outcome: threshold})
    assert any(sign * (then["a"] - now["a"]) < 0 for now, then, _ in changes(free))
    found = counterfactuals(
        reg, queries, X, **{outcome: threshold, direction: "a"}, n_counterfactuals=3
    )
    pairs = [*changes(found)]
    assert pairs
    for now, then, _ in pairs:
        assert sign * (then["a"] - now["a"]) >= 0
        assert sign * (threshold - then["prediction"]) >= 0


@pytest.mark.parametrize(
    ("outcome", "limits", "end"), [("at_least", (8, None), 8), ("at_most", (None, 0), 0)]
)
def test_a_row_exactly_at_the_limit_shows_the_way(sums, outcome, limits, end):
    """No row is beyond it."""
    X, reg = sums
    query = pd.DataFrame({"a": [4], "b": [4]}, index=["x"])
    threshold = 16.0 if outcome == "at_least" else 8.0
    options = {outcome: threshold, "limits": {"a": limits}, "fixed": "b"}
    ((_, changed, row),) = changes(counterfactuals(reg, query, X, **options))
    assert changed["a"] == row["a"] == end


def test_rows_that_are_not_earlier_show_no_way(loans):
    """Also where fewer earlier rows than are asked for have the outcome."""
    X, _, worth, queries = loans
    reg = NONARegressor(n_estimators=1, max_iter=2, random_state=0).fit(X, worth, times="since")
    days = X["since"].sort_values()
    early = queries[:3].assign(since=days.iloc[40] + pd.Timedelta("1h"))
    at_least = reg.predict(early).max() + 1
    assert 0 < (worth[X["since"] <= days.iloc[40]] >= at_least).sum() < 40
    found = counterfactuals(reg, early, X, at_least=at_least)
    assert (found["row"] == "query").sum() == 3
    for _, _, row in changes(found):
        assert row["since"] <= days.iloc[40]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"fixed": ["colour"]},
            "fixed must be names or numbers of columns of features, got 'colour'",
        ),
        ({"fixed": 7}, "fixed must be names or numbers of columns of features, got 7"),
        ({"fixed": COLUMNS}, "fixed must leave a column that may change, got all 4"),
        (
            {"increase": "home"},
            "increase must name columns of numbers or dates, got 'home', a col",
        ),
        ({"decrease": ["area"]}, "decrease must be names or numbers of columns .*, got 'area'"),
        ({"increase": "debt", "decrease": ["debt"]}, "increase and decrease .* 'debt' in both"),
        ({"fixed": "debt", "limits": {"debt": (0, 9)}}, "fixed and limits .* 'debt' in both"),
        ({"limits": {"debt": (9, 0)}}, "limits of 'debt' must be numbers, the first no larger"),
        ({"limits": {"debt": 9}}, "limits of 'debt' must be a pair of the least and the large"),
        ({"limits": {"debt": (0, "many")}}, "limits of 'debt' must be numbers, .*'many'"),
        (
            {"limits": {"since": (0, 9)}},
            "limits must name columns of numbers, got 'since', .*dates",
        ),
        ({"limits": ["debt"]}, "limits must be a dict of columns and pairs, got \\['debt'\\]"),
        (
            {"fixed": ["income", "home", "since"], "limits": {"debt": (900, None)}},
            "must allow a change to a value of a row of the bank, got none for query 'loan 200'",
        ),
        ({"y": "maybe"}, "y must be one of the classes of fit, got 'maybe'"),
        ({"at_least": 3}, "at_least needs a regressor, got 3"),
        ({"n_counterfactuals": 0}, "n_counterfactuals must be a positive integer, got 0"),
    ],
)
def test_bad_parameters(loans, classifier, options, message):
    X, _, _, queries = loans
    with pytest.raises(ValueError, match=message):
        counterfactuals(classifier, queries, X, **options)


def test_bad_thresholds(loans, regressor):
    X, _, worth, queries = loans
    for options, message in [
        ({}, "exactly one of at_least and at_most must be given, got neither"),
        ({"at_least": 1, "at_most": 2}, "got both"),
        ({"at_least": "high"}, "at_least must be a finite number, got 'high'"),
        ({"at_most": -np.inf}, "at_most must be a finite number, got -inf"),
        ({"y": 3, "at_least": 1}, "y needs a classifier, got 3"),
        ({"at_least": -1000}, "at_least must be beyond the predictions of X, got -1000"),
        ({"at_least": worth.max() + 1}, "the bank must have a row with a target of at least"),
    ]:
        with pytest.raises(ValueError, match=message):
            counterfactuals(regressor, queries, X, **options)
    both = NONARegressor(n_estimators=1, max_iter=2, random_state=0)
    both.fit(X, np.column_stack([worth, worth]))
    with pytest.raises(ValueError, match="a model of one output, got several"):
        counterfactuals(both, queries, X, at_least=1)


def test_a_row_of_the_bank_is_no_query(loans, classifier):
    X = loans[0]
    with pytest.raises(ValueError, match="not in the bank, got 'loan 7'"):
        counterfactuals(classifier, X[7:8], X)
    counterfactuals(classifier, X[7:8].rename(index={"loan 7": "its twin"}), X)
    table = X[["debt", "home"]].reset_index(drop=True)
    clf = NONAClassifier(n_estimators=1, max_iter=5, random_state=0).fit(table, loans[1])
    with pytest.raises(ValueError, match="not in the bank, got 7"):
        counterfactuals(clf, table[7:8], table)


def test_no_row_of_the_other_class(loans, classifier):
    X, repaid, _, queries = loans
    alone = deepcopy(classifier).remove_neighbors(ids=np.flatnonzero(repaid == "yes"))
    no = queries[alone.predict(queries) == "no"]
    with pytest.raises(ValueError, match="the bank must have a row with the class 'yes'"):
        counterfactuals(alone, no, X, y="yes")


def test_a_prediction_at_the_threshold_has_reached_it(loans, regressor):
    X, _, _, queries = loans
    (prediction,) = regressor.predict(queries[:1])
    for name in ("at_least", "at_most"):
        with pytest.raises(ValueError, match=f"{name} must be beyond the predictions"):
            counterfactuals(regressor, queries[:1], X, **{name: float(prediction)})
    for name in ("at_least", "at_most"):
        assert Outcome(name, 3.0).holds(np.array([3.0]))[0]
    assert Outcome("at_least", 3.0).holds(np.array([2.9, 3.1])).tolist() == [False, True]
    assert Outcome("at_most", 3.0).holds(np.array([2.9, 3.1])).tolist() == [True, False]
