"""Attributions of classes: how much each column moves log odds."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from inner.data import ClassTargets
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nona_sklearn
from nona_sklearn import NONAClassifier, SoftStepKNeighborsClassifier, unwrap

QUICK = {"hidden_layer_sizes": (16,), "max_iter": 10, "n_estimators": 2, "random_state": 0}
EXACT = 1e-9  # of sums in float64


def make_loans(n_rows):
    """A raw table of loans with gaps, and whether they were paid back."""
    random = np.random.RandomState(0)
    X = pd.DataFrame(
        {
            "income": np.round(random.uniform(20, 120, n_rows)),
            "home": random.choice(["rent", "own"], n_rows),
            "age": random.choice([20.0, 40.0, np.nan], n_rows),
        },
        index=[f"loan {i}" for i in range(n_rows)],
    )
    score = X.income / 20 + 2 * (X.home == "own") + random.randn(n_rows) - 4
    return X, pd.Series(np.select([score < -1, score < 1.5], ["bad", "late"], "paid"), X.index)


TABLE, OUTCOME = make_loans(170)
X, NEW, THREE = TABLE[:150], TABLE[150:], OUTCOME[:150]
TWO = pd.Series(np.where(THREE == "bad", "bad", "good"), X.index)


def nona(**params):
    return NONAClassifier(**(QUICK | params))


@pytest.fixture(scope="module")
def two():
    return nona().fit(X, TWO)


@pytest.fixture(scope="module")
def three():
    return nona().fit(X, THREE)


def log_odds(p):
    """The definition, for probabilities (n, n_classes): one column for two classes."""
    logs = np.log(p)
    if p.shape[1] == 2:
        return logs[:, [1]] - logs[:, [0]]
    return logs - logs.mean(axis=1, keepdims=True)


def check_sums(clf, queries, rows=X, ends=("",), output=None):
    """Assert that parts are between the log odds of probabilities."""
    pairs = clf.attribute(queries, rows, n_neighbors=4)
    whole = clf.attribute(queries, of="predictions")
    at_queries, at_rows = clf.predict_proba(queries), clf.predict_proba(None)
    if output is not None:
        at_queries, at_rows = at_queries[output], at_rows[output]
    stored = rows.index if clf.bank_.names is None else pd.Index(clf.bank_.names)
    named = stored if queries is None else queries.index
    expected = pd.DataFrame(log_odds(at_queries), named)
    alone = pd.DataFrame(log_odds(at_rows), stored)
    for place, end in enumerate(ends):
        names = [f"{name}{end}" for name in rows]
        parts = pairs[["neighbor_log_odds" + end, *names, "interplay" + end, "other" + end]]
        last = pairs["query_log_odds" + end]
        np.testing.assert_allclose(parts.sum(axis=1), last, rtol=EXACT, atol=EXACT)
        np.testing.assert_allclose(last, expected[place].loc[pairs["query"]], atol=1e-6)
        np.testing.assert_allclose(parts.iloc[:, 0], alone[place].loc[pairs.neighbor], atol=1e-6)
        parts = whole[["mean" + end, *names, "interplay" + end]]
        last = whole["log_odds" + end]
        np.testing.assert_allclose(parts.sum(axis=1), last, rtol=EXACT, atol=EXACT)
        np.testing.assert_allclose(last, expected[place], atol=1e-6)
    return pairs


# -- the formula ----------------------------------------------------------------------------------


def test_log_odds_on_paper():
    targets = ClassTargets().fit(np.array([["a", 0], ["b", 1], ["b", 2]], dtype=object))
    logs = np.log([[0.25, 0.75, 1 / 7, 2 / 7, 4 / 7]])
    expected = [[np.log(3), -np.log(2), 0, np.log(2)]]
    np.testing.assert_allclose(targets.log_odds(logs), expected, atol=1e-12)
    assert targets.ends_of_log_odds(("u", "v")) == ["_u", "_v_0", "_v_1", "_v_2"]


# -- sums and amounts -----------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [NEW, None])
def test_parts_sum_to_the_log_odds_of_probabilities(two, three, queries):
    pairs = check_sums(two, queries)
    labels = TWO.loc[pairs.neighbor].tolist()
    assert pairs.target.tolist() == labels
    check_sums(three, queries, ends=("_bad", "_late", "_paid"))


def test_amounts_are_the_share_of_the_trend_in_the_log_odds(two):
    """By column b (a(query) - a(row)), and with interplay b (log F(query) - log F(row))."""
    found = two.attribute(NEW, X)
    trend, offset = two.bank_.trend, two.bank_.neighbors.offset
    inputs = two.embed(NEW).inputs
    at = X.index.get_indexer(found.neighbor), NEW.index.get_indexer(found["query"])

    def change(rows, queries):
        start, end = ((v[:, 1] - v[:, 0]).numpy() for v in (rows, queries))
        return offset.share * (end[at[1]] - start[at[0]])

    additive = [trend.additive_part(x) for x in (two.bank_.inputs, inputs.encoded)]
    columns = found[[*X]].sum(axis=1)
    np.testing.assert_allclose(columns, change(*additive), rtol=1e-6, atol=1e-6)
    whole = change(offset.values, trend(inputs))
    np.testing.assert_allclose(columns + found.interplay, whole, rtol=1e-6, atol=1e-6)
    assert abs(found.other).max() < 0.5  # of votes, which have few per cent


def test_the_amount_is_that_of_the_one_column_that_tells_the_classes_apart():
    """On paper, the odds are 9 where x0 is 1, else 1/9, whatever x1 is."""
    cells = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    rows = np.repeat(cells, 40, axis=0)
    y = np.tile(np.arange(40) % 10 == 0, 4) ^ (rows[:, 0] == 1)
    clf = nona(max_iter=30).fit(rows, y)
    parts = clf.attribute(cells, of="predictions")
    rise = parts.x0[2] - parts.x0[0]
    assert rise == pytest.approx(2 * np.log(9), rel=0.25)
    assert abs(parts.x1).max() < 0.05 * rise
    assert abs(parts.interplay).max() < 0.15 * rise


def test_a_difference_has_one_amount(two):
    found = two.attribute(X[:60], X)
    start, end = (X.home.loc[found[name]].to_numpy() for name in ("neighbor", "query"))
    up = found.home[(start == "rent") & (end == "own")]
    down = found.home[(start == "own") & (end == "rent")]
    assert min(len(up), len(down)) > 10
    np.testing.assert_allclose(up, up.iloc[0], rtol=EXACT)
    np.testing.assert_allclose(down, -up.iloc[0], rtol=EXACT)
    assert up.iloc[0] > 0.2
    assert (found.home[start == end] == 0).all()


def test_amounts_are_differences_of_effects(three):
    pairs = three.attribute(NEW, X, n_neighbors=3)
    of_query, of_row = (three.attribute(t, of="predictions").set_index("query") for t in (NEW, X))
    for name in ("income_bad", "home_late"):
        effects = of_query[name][pairs["query"]].to_numpy() - of_row[name][pairs.neighbor]
        np.testing.assert_allclose(pairs[name], effects, atol=EXACT)
    means = three.attribute(of="predictions")[[f"{name}_paid" for name in X]].mean()
    assert abs(means).max() < EXACT


def test_signs_on_a_real_table():
    """Larger and rougher nuclei are malignant, class 0."""
    table, y = load_breast_cancer(return_X_y=True, as_frame=True)
    table = table[["mean radius", "mean smoothness", "mean concave points"]]
    for labels, sign in ((y, -1), (1 - y, 1)):
        clf = nona(n_estimators=1).fit(table[:300], labels[:300])
        parts = clf.attribute(table[300:], of="predictions")
        for name in table:
            assert sign * np.corrcoef(parts[name], table[name][300:])[0, 1] > 0.7


# -- with everything else -------------------------------------------------------------------------


def test_several_outputs():
    both = pd.DataFrame({"kind": THREE, "good": TWO == "good"})
    clf = nona(max_iter=5).fit(X, both)
    found = check_sums(clf, NEW, ends=("_kind_bad", "_kind_late", "_kind_paid"), output=0)
    check_sums(clf, NEW, ends=("_good",), output=1)
    assert [*found][3:6] == ["target_kind", "target_good", "neighbor_log_odds_kind_bad"]
    assert found.target_kind.tolist() == THREE.loc[found.neighbor].tolist()


def test_groups_and_weights():
    clf = nona(max_iter=5).fit(
        X, TWO, sample_weight=1 + np.arange(150) % 3, groups=np.arange(150) // 3
    )
    check_sums(clf, NEW)
    check_sums(clf, None)
    parts, weights = clf.attribute(of="predictions"), 1 + np.arange(150) % 3
    assert abs(np.average(parts[[*X]], axis=0, weights=weights)).max() < 1e-6
    check_sums(nona(max_iter=5, class_weight="balanced").fit(X, THREE == "paid"), NEW)


def test_unknown_levels_are_other(two):
    boat = NEW[:5].assign(home="boat")
    found, known = check_sums(two, boat), check_sums(two, NEW[:5])
    assert abs(found.other).mean() > 2 * abs(known.other).mean()


def test_earlier_rows():
    clf = nona(max_iter=3, similarity="features").fit(X, TWO, times="income")
    found = check_sums(clf, NEW.assign(income=100.0))
    assert len(found) == 4 * len(NEW)
    assert len(clf.attribute(NEW.assign(income=1.0), X)) == 0


def test_added_and_removed_rows(two):
    clf = copy.deepcopy(two)
    clf.add_neighbors(NEW[:3], ["good"] * 3)
    clf.remove_neighbors(names=["loan 0", "loan 1"])
    rows = pd.concat([X, NEW[:3]])
    found = clf.attribute(NEW[3:], rows)
    parts = found[["neighbor_log_odds", *X, "interplay", "other"]].sum(axis=1)
    np.testing.assert_allclose(parts, found.query_log_odds, rtol=EXACT)
    own = clf.attribute(NEW[:1], rows, n_neighbors=1)
    assert own.neighbor.tolist() == [NEW.index[0]]
    assert (own[[*X]] == 0).all(axis=None)


def test_one_column_has_no_interplay():
    clf = nona(max_iter=3).fit(X[["income"]], TWO)
    found = clf.attribute(NEW[["income"]], X[["income"]])
    assert [*found][3:] == ["target", "neighbor_log_odds", "income", "other", "query_log_odds"]
    parts = found[["neighbor_log_odds", "income", "other"]].sum(axis=1)
    np.testing.assert_allclose(parts, found.query_log_odds, rtol=EXACT)


def test_files_have_the_same_amounts(three, tmp_path):
    nona_sklearn.save(three, tmp_path / "three.safetensors")
    again = nona_sklearn.load(tmp_path / "three.safetensors")
    for of in ("adjustments", "predictions"):
        found, expected = (each.attribute(NEW, X, of=of) for each in (again, three))
        pd.testing.assert_frame_equal(found, expected, rtol=1e-12)


def test_columns_inside_a_model_are_those_after_its_steps():
    numbers, new = (each[["income", "age"]].fillna(30) for each in (X, NEW))
    scaler = StandardScaler().set_output(transform="pandas")
    pipeline = make_pipeline(scaler, nona(max_iter=3)).fit(numbers, TWO)
    model = unwrap(FixedThresholdClassifier(pipeline, threshold=0.3, pos_label="good"))
    scaled = scaler.transform(numbers), scaler.transform(new)
    expected = pipeline[-1].attribute(scaled[1], scaled[0])
    pd.testing.assert_frame_equal(model.attribute(new, numbers), expected)
    expected = pipeline[-1].attribute(scaled[1], of="predictions")
    pd.testing.assert_frame_equal(model.attribute(new, of="predictions"), expected)


def test_the_estimator_stays_as_it_is(two):
    before = two.predict_proba(NEW)
    two.attribute(NEW, X)
    two.attribute(NEW, of="predictions")
    assert torch.is_grad_enabled()
    np.testing.assert_array_equal(two.predict_proba(NEW), before)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clf", "chosen"),
    [
        (NONAClassifier(**QUICK | {"max_iter": 2}, similarity="l2"), "l2"),
        (SoftStepKNeighborsClassifier(trend=None, max_iter=2, random_state=0), "log_l2"),
    ],
    ids=["embedding", "softstep"],
)
def test_other_similarities_have_no_amounts(clf, chosen):
    clf.fit(X, TWO)
    text = rf"needs similarity='features', .* got similarity_='{chosen}'"
    with pytest.raises(ValueError, match=f"of='adjustments' for classes {text}"):
        clf.attribute(NEW, X)
    with pytest.raises(ValueError, match=f"of='predictions' {text}"):
        clf.attribute(NEW, of="predictions")


def test_errors_name_what_is_missing(two):
    with pytest.raises(ValueError, match=r"features must be the table given to fit.*got None"):
        two.attribute(NEW)
    with pytest.raises(ValueError, match="features must have a row for each name in the bank"):
        two.attribute(NEW, X[5:])
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 150, got 0"):
        two.attribute(NEW, X, n_neighbors=0)
