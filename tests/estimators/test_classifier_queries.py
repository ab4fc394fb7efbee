"""The methods of the regressors, tested for classifiers: oracles are the same, step by step."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from inner.data import ClassTargets, find_factors, weigh_classes
from inner.estimators import class_names, evaluate
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_digits, make_blobs
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import compute_class_weight, compute_sample_weight
from torch import nn
from torch.utils.data import Dataset

from nona_sklearn import (
    ASSoftmax,
    EmbeddingDisplay,
    FeatureExtractor,
    IntervalDisplay,
    NeighborsDisplay,
    NONAClassifier,
    SoftStepKNeighborsClassifier,
    StepDisplay,
    TrainingOptions,
    unwrap,
)

pd = pytest.importorskip("pandas")

N, Q = 48, 7
KINDS = np.array(["cat", "dog", "fox"])
NAMES = [f"animal {i}" for i in range(N + Q)]
CLOSE = 1e-5  # embeddings are float32, the sums of weights are not


def nona(**params):
    params = {"n_estimators": 1, "max_iter": 2, "hidden_layer_sizes": (8,), **params}
    return NONAClassifier(random_state=0, **params)


def knn(**params):
    return SoftStepKNeighborsClassifier(**{"max_iter": 2, "random_state": 0, **params})


@pytest.fixture(scope="module")
def animals():
    """Rows and queries with names, and labels of three overlapping kinds."""
    X, y = make_blobs(N + Q, centers=3, cluster_std=4.0, random_state=0)
    X = pd.DataFrame(X, NAMES, ["weight", "tail"])
    kind = pd.Series(KINDS[y], NAMES, name="kind")
    return X[:N], kind[:N], X[N:], kind[N:]


def both(y, X):
    """Two outputs: the kind, and whether the tail is long."""
    return pd.DataFrame({"kind": y, "long": np.where(X["tail"] > 2, "yes", "no")}, X.index)


MODELS = {
    "adjusted": nona(n_estimators=2),
    "networks": nona(n_estimators=2, trend=None),
    "plain": nona(n_estimators=2, adjust=False),
    "step": nona(n_estimators=2, softstep="s1"),
    "knn": knn(),
    "plain knn": knn(smoothing=False, n_neighbors=8, trend=None),
    "outputs": nona(n_estimators=2),
    "knn outputs": knn(),
}
PLAIN = ["plain", "plain knn"]
WITHOUT_STEP = ["adjusted", "networks", "plain", "outputs"]


@pytest.fixture(scope="module")
def all_fitted(animals):
    X, y, *_ = animals
    return {
        name: clone(model).fit(X, both(y, X) if "outputs" in name else y)
        for name, model in MODELS.items()
    }


@pytest.fixture(params=MODELS)
def fitted(all_fitted, request):
    return all_fitted[request.param]


def side_by_side(model, X):
    """Probabilities of all outputs, (q, C)."""
    probabilities = model.predict_proba(X)
    return np.hstack(probabilities) if isinstance(probabilities, list) else probabilities


def truth_of(model, X, y):
    """Labels as the model was fitted to them."""
    return both(y, X) if isinstance(model.classes_, list) else y


def one_hot(model, y):
    return model.targets_.values(y).numpy()


# -- explanations -------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 4, N - 1, None])
@pytest.mark.parametrize("own", [False, True])
def test_contributions_sum_to_probabilities(fitted, animals, k, own):
    X, y, X_test, _ = animals
    queries = None if own else X_test
    table = fitted.explain(queries, k)
    added = table.filter(like="contribution")
    lines = added.groupby(table["query"], sort=False)
    assert [*lines.groups] == (NAMES[:N] if own else NAMES[N:])
    # Without "network", the last digits are those of weights in float32.
    np.testing.assert_allclose(lines.sum(), side_by_side(fitted, queries), atol=CLOSE)
    named = table["neighbor"].isin(NAMES)
    labels = truth_of(fitted, X, y).loc[table["neighbor"][named].tolist()].to_numpy()
    targets = table[named].filter(like="target").to_numpy()
    np.testing.assert_array_equal(targets, labels.reshape(targets.shape))
    votes = one_hot(fitted, labels) * table["weight"][named].to_numpy()[:, None]
    np.testing.assert_array_equal(added[named], votes)
    n_named = named.groupby(table["query"], sort=False).sum()
    most = N if k is None else k
    counts = fitted.neighborhood(queries)["n_nonzero_weights"]
    np.testing.assert_array_equal(n_named, counts.clip(upper=most))


@pytest.mark.parametrize("k", [2, None])
def test_the_network_and_the_trend_are_what_the_votes_lack(fitted, animals, k):
    """The rows that are listed, and "others", make the plain vote."""
    X, y, X_test, _ = animals
    table = fitted.explain(X_test, k)
    lines = ["network"] if fitted.bank_.trend is None else ["network", "trend"]
    added, of_lines = table.filter(like="contribution"), table["neighbor"].isin(lines)
    votes = fitted.neighbor_weights(X_test) @ one_hot(fitted, truth_of(fitted, X, y))
    by_query = added[~of_lines].groupby(table["query"], sort=False).sum()
    np.testing.assert_allclose(by_query, votes, atol=CLOSE)
    difference = side_by_side(fitted, X_test) - votes
    if abs(difference).max() < CLOSE:
        assert not of_lines.any()
        return
    for _, names in table["neighbor"].groupby(table["query"], sort=False):
        assert names.tolist()[-len(lines) :] == lines
    by_query = added[of_lines].groupby(table["query"], sort=False).sum()
    np.testing.assert_allclose(by_query, difference, atol=CLOSE)
    assert (table["weight"][of_lines] == 0).all()
    assert table["weight"].groupby(table["query"]).sum().to_numpy() == pytest.approx(1)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_models_are_their_votes(all_fitted, animals, name):
    model, (_, y, X_test, _) = all_fitted[name], animals
    assert {*model.explain(X_test)["neighbor"]} <= {*NAMES}
    for queries in (X_test, None):
        votes = model.neighbor_weights(queries) @ one_hot(model, y)
        np.testing.assert_allclose(model.predict_proba(queries), votes, atol=CLOSE)
    model = all_fitted["adjusted"]
    edited = copy.deepcopy(model).set_neighbor_targets(y)  # the network adds nothing to others
    assert "network" in {*model.explain(X_test)["neighbor"]}
    assert "network" not in {*edited.explain(X_test)["neighbor"]}


def test_columns_are_named_after_outputs_and_classes(all_fitted, animals):
    one, two = (all_fitted[name].explain(animals[2], 1) for name in ("adjusted", "outputs"))
    kinds = [f"contribution_{kind}" for kind in KINDS]
    assert list(one.columns) == ["query", "neighbor", "weight", "target", *kinds]
    assert list(two.columns)[3:] == [
        "target_kind",
        "target_long",
        *(f"contribution_kind_{kind}" for kind in KINDS),
        "contribution_long_no",
        "contribution_long_yes",
    ]
    assert all_fitted["adjusted"].target_names_ == ("kind",)
    assert one["neighbor"].tolist()[:3] == [one["neighbor"][0], "others", "network"]
    assert one["target"].isna().tolist()[:3] == [False, True, True]


LETTERS = st.text("a_'\"\\", min_size=1, max_size=4)  # out of which names that collide are made


@given(st.dictionaries(LETTERS, st.sets(LETTERS, min_size=1, max_size=3), min_size=1, max_size=3))
@example({"a": {"b_x"}, "a_b": {"x"}})
def test_no_two_columns_have_one_name(classes):
    names = class_names(classes, classes.values())
    pairs = [(output, label) for output, labels in classes.items() for label in labels]
    assert len({*names}) == len(pairs)
    plain = [f"{output}_{label}" for output, label in pairs]
    assert names == plain or len({*plain}) < len(plain)


def test_similar_names_of_outputs_and_classes_are_distinguished(animals):
    X, y, X_test, _ = animals
    labels = both(y, X).replace({"no": "t", "yes": "u_t"})
    model = nona(max_iter=1).fit(
        X, labels.set_axis(["kind", "kind_u"], axis=1).replace("fox", "u_t")
    )
    table = model.explain(X_test, 3)
    added = [name for name in table if name.startswith("contribution")]
    assert added == [
        "contribution_'kind'_cat",
        "contribution_'kind'_dog",
        "contribution_'kind'_u_t",
        "contribution_'kind_u'_t",
        "contribution_'kind_u'_u_t",
    ]
    sums = table.groupby("query", sort=False)[added].sum()
    np.testing.assert_allclose(sums, side_by_side(model, X_test), atol=1e-12)


def test_labels_keep_their_own_values(animals):
    """Whole numbers that no float holds, although the others have no label."""
    X, y, X_test, _ = animals
    labels = 2**53 + 1 + 2 * (y == "fox").astype(int)
    table = nona(max_iter=1).fit(X, labels).explain(X_test, 4)
    named = table["neighbor"].isin(NAMES)
    rows = table[named]
    assert rows["target"].tolist() == labels[rows["neighbor"]].tolist()
    assert table["target"][~named].isna().all()


# -- what a row does ----------------------------------------------------------------------------


def without(model, names):
    return copy.deepcopy(model).remove_neighbors(names=names)


def test_leave_one_out_is_a_bank_without_the_row(fitted, animals):
    X = animals[0]
    found = side_by_side(fitted, None)
    for i in (0, 5, N - 1):
        expected = side_by_side(without(fitted, NAMES[i]), X[i : i + 1])
        np.testing.assert_allclose(found[i : i + 1], expected, atol=CLOSE)


def left_out(model, rows):
    """Rows are removed; a trend, which compression keeps, stays as it was."""
    other = without(model, [NAMES[i] for i in np.atleast_1d(rows)])
    if model.bank_.trend is not None:
        other.bank_ = model.bank_.in_order(np.delete(np.arange(N), rows))
    return other


@pytest.mark.parametrize("name", WITHOUT_STEP)
@pytest.mark.parametrize("own", [False, True])
def test_influence_is_removing_and_predicting_again(all_fitted, animals, name, own):
    model, (X, y, X_test, truth) = all_fitted[name], animals
    table = model.influence() if own else model.influence(X_test, truth_of(model, X_test, truth))
    assert table["neighbor"].tolist() == NAMES[:N]
    queries, labels = (X, y) if own else (X_test, truth)
    true = one_hot(model, truth_of(model, queries, labels))
    before = side_by_side(model, None if own else X_test)
    if own:
        for j in (3, 20):  # the others' predictions, each without itself and without this one
            rest = without(model, [NAMES[j]])
            kept = np.delete(np.arange(N), j)
            change = np.zeros_like(before)
            change[kept] = side_by_side(rest, None) - before[kept]
            check_influence(table.iloc[j], before, change, true)
    else:
        for j in (3, 20):
            change = side_by_side(without(model, [NAMES[j]]), X_test) - before
            check_influence(table.iloc[j], before, change, true)


def check_influence(row, before, change, true):
    squared = np.square(change).sum(axis=1).mean()
    error = (np.square(before + change - true) - np.square(before - true)).sum(axis=1).mean()
    assert row["change"] == pytest.approx(np.sqrt(squared), abs=1e-4)
    assert row["error"] == pytest.approx(error, abs=1e-4)


def test_without_labels_there_is_no_error(all_fitted, animals):
    table = all_fitted["knn"].influence(animals[2])
    assert list(table.columns) == ["neighbor", "id", "weight", "change"]
    assert table["weight"].sum() == pytest.approx(Q, rel=1e-4)


# -- edits --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_rows_come_and_go(fitted, animals):
    X, _, X_test, truth = animals
    model = copy.deepcopy(fitted)
    before = side_by_side(model, X_test)
    ids = model.add_neighbors(X_test, truth_of(model, X_test, truth))
    assert (ids == np.arange(N, N + Q)).all()
    assert (side_by_side(model, X_test) != before).any(axis=1).all()
    assert {*model.explain(X_test)["neighbor"]} - {"network", "trend"} <= {*NAMES}
    model.remove_neighbors(ids=ids)
    np.testing.assert_allclose(side_by_side(model, X_test), before, atol=1e-12)
    model.compress(20, X)
    kept = model.bank_.ids.numpy()
    assert len({*kept}) == 20
    left = left_out(fitted, np.setdiff1d(np.arange(N), kept))
    np.testing.assert_array_equal(side_by_side(model, X_test), side_by_side(left, X_test))


def test_other_labels_leave_nothing_but_votes(fitted, animals):
    """The odds and the frequencies were of others."""
    X, y, X_test, _ = animals
    turned = truth_of(fitted, X, y.iloc[::-1].set_axis(y.index))
    model = copy.deepcopy(fitted).set_neighbor_targets(turned)
    for queries in (X_test, None):
        votes = fitted.neighbor_weights(queries) @ one_hot(fitted, turned)
        np.testing.assert_allclose(side_by_side(model, queries), votes, atol=CLOSE)
        definition = evaluate(model, queries)[1].attend().numpy()
        np.testing.assert_allclose(definition, votes, atol=1e-4)
    table = model.influence(X_test)
    change = side_by_side(without(model, NAMES[3]), X_test) - side_by_side(model, X_test)
    if model.softstep is None:
        assert table["change"][3] == pytest.approx(
            np.sqrt(np.square(change).sum(axis=1).mean()), abs=1e-4
        )


@pytest.mark.parametrize("name", ["adjusted", "outputs", "knn"])
def test_labels_that_fit_did_not_see_change_nothing(all_fitted, animals, name):
    X, y, X_test, truth = animals
    model = copy.deepcopy(all_fitted[name])
    before, bank = side_by_side(model, X_test), model.bank_
    wrong = truth.copy()
    wrong.iloc[2] = "elk"
    several = name == "outputs"
    for edit in (
        lambda: model.add_neighbors(X_test, both(wrong, X_test) if several else wrong),
        lambda: model.set_neighbor_targets(
            both(y, X).replace("fox", "elk") if several else y.replace("fox", "elk")
        ),
    ):
        wrong_one = r"classes of fit, got 'elk' in row \d+ \(index 'animal \d+'\) of output 'kind'"
        with pytest.raises(ValueError, match=wrong_one + "; fit anew"):
            edit()
    with pytest.raises(ValueError, match=r"y must have \d outputs as in fit, got 3"):
        model.add_neighbors(X_test, np.tile(truth.to_numpy()[:, None], 3))
    with pytest.raises(ValueError, match="y must hold a label for each row, got 'fox'"):
        model.add_neighbors(X_test, "fox")
    with pytest.raises(ValueError, match="X has 7, y has 6"):
        model.add_neighbors(X_test, truth_of(model, X_test, truth)[:6])
    assert model.bank_ is bank
    np.testing.assert_array_equal(side_by_side(model, X_test), before)


def test_the_error_for_a_bank_of_other_rows_names_the_shape(all_fitted, animals):
    X, y, *_ = animals
    for name, shape in (("knn", r"\(9,\)"), ("outputs", r"\(9, 2\)")):
        model = all_fitted[name]
        with pytest.raises(ValueError, match=f"the bank's 48 rows, got shape {shape}"):
            model.set_neighbor_targets(truth_of(model, X, y)[:9])


# -- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [nona, knn])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"cat": 2, "dog": 1, "fox": 1}])
def test_weight_zero_is_absent(animals, make, class_weight):
    """With its class, which no other row has; and it has no influence on what is balanced."""
    X, y, X_test, _ = animals
    weight = np.ones(N)
    weight[-10:] = 0
    labels = y.copy()
    labels.iloc[-10:] = "fox"
    if not isinstance(class_weight, dict):
        labels.iloc[-1] = "elk"
    model = make(class_weight=class_weight).fit(X, labels, sample_weight=weight)
    expected = make(class_weight=class_weight).fit(X[:-10], y[:-10])
    assert model.classes_.tolist() == KINDS.tolist()
    np.testing.assert_allclose(
        model.predict_proba(X_test), expected.predict_proba(X_test), atol=CLOSE
    )


def balanced(y, given):
    """Weights of rows with classes that weigh the same."""
    labels = ClassTargets().check(y)
    return weigh_classes(find_factors("balanced", labels, given, None), labels, given)


def test_balanced_classes_weigh_the_same_whatever_the_rows_weigh(animals):
    X, y, *_ = animals
    given = np.random.RandomState(0).uniform(0.5, 3, N)
    weight = balanced(y, given)
    np.testing.assert_allclose([weight[y == kind].sum() for kind in KINDS], given.sum() / 3)
    of_long = balanced(both(y, X)["long"], given)
    np.testing.assert_allclose(balanced(both(y, X), given), weight * of_long / given)
    np.testing.assert_allclose(
        balanced(y, np.ones(N)), compute_sample_weight("balanced", y)
    )  # scikit-learn's, where all rows count alike


def test_a_class_without_weight_is_not_among_those_that_are_balanced(animals):
    X, y, *_ = animals
    absent = (y == "fox").to_numpy()
    model = nona(class_weight="balanced").fit(X, y, sample_weight=np.where(absent, 0.0, 1.0))
    expected = compute_class_weight("balanced", classes=model.classes_, y=y[~absent])
    np.testing.assert_allclose(model.class_weight_, expected)


def factors_of(class_weight, column):
    """By how much rows of each class count more, as scikit-learn has it."""
    classes = np.unique(column)
    if class_weight == "balanced":
        factors = compute_class_weight("balanced", classes=classes, y=column)
    else:
        factors = [class_weight.get(label, 1.0) for label in classes]
    return dict(zip(classes, factors, strict=True))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("adjusted", {"cat": 5, "fox": 0.2}),
        ("adjusted", "balanced"),
        ("knn", {"cat": 5, "fox": 0.2}),
        ("knn", "balanced"),
        ("outputs", [{"cat": 5, "fox": 0.2}, {"no": 3}]),
        ("outputs", "balanced"),
    ],
    ids=str,
)
def test_added_rows_count_by_their_class(animals, name, given):
    """As rows of fit do: class weights and weights of rows have the same effect."""
    X, y, X_test, truth = animals
    labels, more = both(y, X).to_numpy(), both(truth, X_test).to_numpy()
    if name != "outputs":
        labels, more = labels[:, :1], more[:, :1]
    each = given if isinstance(given, list) else [given] * labels.shape[1]
    factors = [factors_of(*pair) for pair in zip(each, labels.T, strict=True)]

    def weigh(rows):
        found = [
            [of[label] for label in column] for of, column in zip(factors, rows.T, strict=True)
        ]
        return np.prod(found, axis=0)

    weight, added, own = weigh(labels), weigh(more), np.linspace(0.5, 2, Q)
    if name != "outputs":
        labels, more = labels[:, 0], more[:, 0]
    by_row = clone(MODELS[name]).fit(X, labels, sample_weight=weight)
    by_class = clone(MODELS[name]).set_params(class_weight=given).fit(X, labels)
    found = by_class.class_weight_ if name == "outputs" else [by_class.class_weight_]
    for ours, of in zip(found, factors, strict=True):
        np.testing.assert_allclose(ours, [*of.values()])
    by_class.set_params(class_weight=None)  # what fit found holds
    by_class.add_neighbors(X_test, more, sample_weight=own)
    by_row.add_neighbors(X_test, more, sample_weight=own * added)
    for queries in (X_test, None):
        expected = side_by_side(by_row, queries)
        np.testing.assert_allclose(side_by_side(by_class, queries), expected, atol=CLOSE)


def test_without_class_weights_they_are_ones(all_fitted):
    assert all_fitted["knn"].class_weight_.tolist() == [1, 1, 1]
    assert [each.tolist() for each in all_fitted["outputs"].class_weight_] == [[1, 1, 1], [1, 1]]


def test_a_new_fit_replaces_class_weights(animals):
    X, y, X_test, truth = animals
    model = knn(class_weight={"cat": 9}).fit(X, y)
    model.set_params(class_weight=None).fit(X, y).add_neighbors(X_test, truth)
    expected = knn().fit(X, y)
    expected.add_neighbors(X_test, truth)
    np.testing.assert_array_equal(model.predict_proba(X_test), expected.predict_proba(X_test))


def test_classes_balanced_whatever_the_unit_of_weights(animals):
    """Sums of such weights are infinite."""
    X, y, X_test, _ = animals
    plain, huge = (
        knn(class_weight="balanced").fit(X, y, sample_weight=np.full(N, unit))
        for unit in (1.0, 1e307)
    )
    np.testing.assert_allclose(huge.class_weight_, plain.class_weight_)
    np.testing.assert_allclose(huge.predict_proba(X_test), plain.predict_proba(X_test), atol=CLOSE)


def test_class_weights_of_a_dataset_with_labels():
    """`y` is None then."""

    class Blobs(Dataset):
        def __len__(self):
            return 30

        def __getitem__(self, i):
            return torch.tensor([float(i % 3), i / 30]), "abc"[i % 3]

    made = [
        nona(feature_extractor=nn.Linear(2, 4), class_weight=weight, max_iter=1)
        for weight in ({"a": 3}, None)
    ]
    y = np.array(list("abc") * 10)
    torch.manual_seed(0)
    weighed = copy.deepcopy(made[0]).fit(Blobs(), None)
    by_row = copy.deepcopy(made[0]).set_params(class_weight=None)
    by_row.fit(Blobs(), None, sample_weight=np.where(y == "a", 3.0, 1.0))
    np.testing.assert_array_equal(weighed.predict_proba(None), by_row.predict_proba(None))


@pytest.mark.parametrize(
    ("class_weight", "weight", "message"),
    [
        ({"cat": 2, "cow": 1}, None, r"for the classes of y, \['cat', 'dog', 'fox'\], got 'cow'$"),
        (
            {"cat": -1},
            None,
            "must be finite and not negative, got -1 for class 'cat'$",
        ),
        ({"cat": "2"}, None, "class_weight must be finite .*, got '2' for class 'cat'$"),
        ({"cat": None}, None, "class_weight must be finite .*, got None for class 'cat'$"),
        ({"cat": np.nan}, None, "class_weight must be finite .*, got nan for class 'cat'$"),
        ([{"cat": 2}], None, r"None, 'balanced' as a whole or a dict, got \[{'cat': 2}\]"),
        (
            dict.fromkeys(KINDS.tolist(), 0),
            None,
            "class_weight must be above zero for .*, got 0 of 48",
        ),
        (
            dict.fromkeys(KINDS.tolist(), 1e200),
            1e200,
            r"must be a number .*, got 1e\+200 times 1e\+200 in",
        ),
        (
            dict.fromkeys(KINDS.tolist(), 1e-200),
            1e-200,
            r"must be .*, got 1e-200 times 1e-200 in row 0",
        ),
    ],
    ids=str,
)
def test_wrong_class_weights_are_named(animals, class_weight, weight, message):
    X, y, *_ = animals
    model = knn(class_weight=class_weight)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sample_weight=weight)
    assert vars(model) == vars(clone(model))


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        (
            {"cat": 2},
            "'balanced' as a whole or a list of 2 dicts, one for each output, got {'cat'",
        ),
        ([{"cat": 2}], "a list of 2 dicts, one for each output, got"),
        (["balanced", {}], "'balanced' as a whole or a list of 2 dicts, .*got .'balanced', {}"),
        (
            [{}, {"yes": 1, "maybe": 2}],
            r"classes of y, \['no', 'yes'\], got 'maybe' of output 'long'",
        ),
        ([{"fox": np.inf}, {}], "got inf for class 'fox' of output 'kind'"),
    ],
    ids=str,
)
def test_wrong_class_weights_of_several_outputs_are_named(animals, class_weight, message):
    X, y, *_ = animals
    with pytest.raises(ValueError, match=f"class_weight must be .*{message}"):
        knn(class_weight=class_weight).fit(X, both(y, X))


def test_a_class_weight_may_be_for_a_class_that_a_fold_lacks(animals):
    X, y, X_test, _ = animals
    weights = {"cat": 2, "dog": 1, "fox": 1}
    more = knn(class_weight={**weights, "elk": 7}).fit(X, y)
    np.testing.assert_array_equal(
        more.predict_proba(X_test), knn(class_weight=weights).fit(X, y).predict_proba(X_test)
    )


def test_the_error_for_a_wrong_number_of_labels_does_not_depend_on_class_weights(animals):
    X, y, *_ = animals
    for weight in (None, np.ones(N)):
        with pytest.raises(ValueError, match="numbers of samples: X has 48, y has 47"):
            knn(class_weight="balanced").fit(X, y[:-1], sample_weight=weight)


@pytest.mark.parametrize("name", ["networks", "plain"])  # others count rows, whatever they weigh
def test_a_row_of_weight_two_is_two_rows(all_fitted, animals, name):
    _, _, X_test, truth = animals
    heavy, twice = (copy.deepcopy(all_fitted[name]) for _ in range(2))
    for head in [*heavy.network_.head.modules(), *twice.network_.head.modules()]:
        head.n_neighbors = None  # of which two rows would take two places
    labels = truth_of(heavy, X_test, truth)
    heavy.add_neighbors(X_test[:1], labels[:1], sample_weight=[2.0])
    for name_of_row in ("one", "another"):
        twice.add_neighbors(X_test[:1].set_axis([name_of_row]), labels[:1])
    np.testing.assert_allclose(
        side_by_side(heavy, X_test), side_by_side(twice, X_test), atol=CLOSE
    )


# -- pickles, groups, images, raw tables --------------------------------------------------------


def test_pickles_predict_the_same(fitted, animals):
    X_test = animals[2]
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(side_by_side(again, X_test), side_by_side(fitted, X_test))
    assert again.explain(X_test).equals(fitted.explain(X_test))
    assert again.influence().equals(fitted.influence())
    np.testing.assert_array_equal(again.predict(None), fitted.predict(None))


@pytest.mark.parametrize("make", [nona, knn])
def test_groups_stay_together(animals, make):
    """Copies of a row in its group teach nothing; the same copies apart give the row away."""
    X, _, X_test, _ = animals
    rng = np.random.RandomState(0)
    X = pd.concat([X[:16]] * 3)
    y = np.tile(rng.permutation(np.repeat(["a", "b"], 8)), 3)  # known to copies only
    groups = np.tile(np.arange(16), 3)
    model = make().fit(X, y, groups=groups)
    valid = np.isin(np.arange(48), model.validation_indices_[0])
    for group in range(16):
        assert len({*valid[groups == group]}) == 1
    alone = make(max_iter=5).fit(X, y)
    together = make(max_iter=5).fit(X, y, groups=groups)
    of_groups, of_rows = (
        min(epoch["valid_loss"] for epoch in each.history_) for each in (together, alone)
    )
    assert of_groups > of_rows
    assert together.predict_proba(X_test).shape == (Q, 2)


def test_images():
    """A small convolutional network, fine-tuned under the head: rows add up to probabilities."""
    images, digits = load_digits(n_class=4, return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype(np.float32) / 16
    extractor = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 2), nn.ReLU(), nn.Flatten()
    )
    model = NONAClassifier(
        FeatureExtractor(extractor, learning_rate=3e-3),
        max_iter=4,
        random_state=0,
        training=TrainingOptions(batch_size=32),
    ).fit(images[:300], digits[:300])
    assert model.score(images[300:400], digits[300:400]) > 0.8
    query = images[300:303]
    votes = model.neighbor_weights(query) @ np.eye(4)[digits[:300]]
    np.testing.assert_allclose(model.predict_proba(query), votes, atol=CLOSE)  # adjust='auto'
    table = model.explain(model.embed(query), 3)
    added = table.filter(like="contribution").groupby(table["query"]).sum()
    np.testing.assert_allclose(added, model.predict_proba(query), atol=CLOSE)
    assert model.transform(query).shape == (3, 32)


def test_raw_tables_keep_their_methods(animals):
    """Categories and gaps, in a pipeline that passes tables on."""
    X, y, X_test, truth = (part.copy() for part in animals)
    for table in (X, X_test):
        table["sound"] = np.where(np.arange(len(table)) % 5 == 0, None, "loud")
        table.iloc[1, 0] = np.nan
    X_test["sound"] = "never heard"
    passed = FunctionTransformer(lambda table: table[["tail", "sound", "weight"]])
    for model in (nona(), knn()):
        ours = unwrap(make_pipeline(passed, model).fit(X, y))
        table = ours.explain(X_test, 2)
        added = table.groupby("query", sort=False)[[f"contribution_{kind}" for kind in KINDS]]
        np.testing.assert_allclose(added.sum(), ours.predict_proba(X_test), atol=1e-12)
        assert ours.add_neighbors(X_test, truth).tolist() == list(range(N, N + Q))
        assert ours.estimator.bank_.names_of(slice(None)).tolist() == NAMES


# -- inside a model -----------------------------------------------------------------------------


def nestings():
    grid = {"embedding_dim": [4]}
    return {
        "itself": nona(),
        "pipeline": make_pipeline(StandardScaler().set_output(transform="pandas"), nona()),
        "search": GridSearchCV(nona(), grid, cv=2),
        "pipelines": make_pipeline(StandardScaler(), make_pipeline("passthrough", knn())),
        "everything": make_pipeline(
            StandardScaler(),
            GridSearchCV(make_pipeline(nona()), {"nonaclassifier__embedding_dim": [4]}, cv=2),
        ),
        "frozen": FrozenEstimator(nona()),
    }


@pytest.mark.parametrize("nesting", nestings())
def test_predictions_are_those_of_the_model(animals, nesting):
    X, y, X_test, truth = animals
    model = nestings()[nesting]
    if nesting == "frozen":
        model = FrozenEstimator(model.estimator.fit(X, y))
    model.fit(X, y)
    ours = unwrap(model)
    expected = model.predict_proba(X_test)
    np.testing.assert_array_equal(ours.predict_proba(X_test), expected)
    np.testing.assert_array_equal(ours.predict_log_proba(X_test), np.log(expected))
    np.testing.assert_array_equal(ours.predict(X_test), model.predict(X_test))
    assert ours.score(X_test, truth) == model.score(X_test, truth)
    assert ours.classes_.tolist() == KINDS.tolist()
    assert ours.target_names_ == ("kind",)
    table = ours.explain(X_test, 3)
    sums = table.filter(like="contribution").groupby(table["query"], sort=False).sum()
    assert sums.index.tolist() == NAMES[N:]
    np.testing.assert_allclose(sums, expected, atol=1e-12)
    inner = ours.estimator
    scaled = X_test
    for step in ours.steps:
        scaled = step.transform(scaled)
    np.testing.assert_array_equal(
        ours.heaviest_neighbors(X_test)[1], inner.heaviest_neighbors(scaled)[1]
    )
    weights = ours.neighbor_weights(X_test).toarray()
    np.testing.assert_array_equal(weights, inner.neighbor_weights(scaled).toarray())
    np.testing.assert_array_equal(
        ours.influence(X_test, truth)["error"], inner.influence(scaled, truth)["error"]
    )
    np.testing.assert_array_equal(ours.predict_proba(None), inner.predict_proba(None))
    model = copy.deepcopy(model)  # an edit is one of the model
    before, ours = model.predict_proba(X_test), unwrap(model)
    ids = ours.add_neighbors(X_test, truth)
    assert (model.predict_proba(X_test) != before).any()
    assert ours.remove_neighbors(ids=ids) is ours
    np.testing.assert_allclose(model.predict_proba(X_test), before, atol=1e-12)


def thresholds():
    return {
        "fixed": FixedThresholdClassifier(nona(), threshold=0.8, pos_label="dog"),
        "tuned": TunedThresholdClassifierCV(nona(), cv=2, scoring="balanced_accuracy"),
        "in a pipeline": make_pipeline(
            StandardScaler(), FixedThresholdClassifier(nona(), threshold=0.65)
        ),
        "around a pipeline": FixedThresholdClassifier(
            make_pipeline(StandardScaler(), knn()), threshold=0.9
        ),
        "twice": FixedThresholdClassifier(
            FixedThresholdClassifier(nona(), threshold=0.1), threshold=0.9
        ),
    }


@pytest.mark.parametrize("name", thresholds())
def test_a_threshold_determines_the_predictions(animals, name):
    X, y, X_test, truth = animals
    y, truth = (labels.replace("fox", "dog") for labels in (y, truth))
    model = thresholds()[name]
    with pytest.raises(NotFittedError):
        unwrap(model)
    ours = unwrap(model.fit(X, y))
    expected = model.predict(X)
    np.testing.assert_array_equal(ours.predict(X), expected)
    np.testing.assert_array_equal(ours.predict(ours.embed(X)), expected)
    assert ours.score(X_test, truth) == model.score(X_test, truth)
    np.testing.assert_array_equal(ours.predict_proba(X_test), model.predict_proba(X_test))
    if name != "tuned":  # these go where the most probable class does not
        assert (expected != ours.estimator.classes_[ours.predict_proba(X).argmax(axis=1)]).any()
    table = ours.explain(X_test, 3)
    sums = table.groupby("query", sort=False)[["contribution_cat", "contribution_dog"]].sum()
    np.testing.assert_allclose(sums, model.predict_proba(X_test), atol=1e-12)
    assert (
        NeighborsDisplay.from_estimator(model, X_test[:1], ax=Figure().subplots()).prediction
        == model.predict(X_test[:1])[0]
    )
    ours.add_neighbors(X_test, truth)  # of the model's own bank
    np.testing.assert_array_equal(unwrap(model).predict_proba(X), model.predict_proba(X))
    assert len(unwrap(model).estimator.bank_) == N + Q
    without_itself = ours.predict_proba(None)
    assert ours.predict(None).shape == (N + Q,) == without_itself[:, 0].shape


def test_a_threshold_around_what_is_fitted(animals):
    X, y, X_test, _ = animals
    clf = nona().fit(X, y == "cat")
    fixed = FixedThresholdClassifier(clf, threshold=0.1)
    np.testing.assert_array_equal(unwrap(fixed).predict(X_test), fixed.predict(X_test))
    assert unwrap(fixed).estimator is clf
    with pytest.raises(NotFittedError):  # its threshold is unknown
        unwrap(TunedThresholdClassifierCV(clf, cv="prefit", refit=False))


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (CalibratedClassifierCV(nona(max_iter=1), cv=2), "calibrated_classifiers_[0].estimator"),
        (
            CalibratedClassifierCV(nona(max_iter=1), cv=2, ensemble=False),
            "calibrated_classifiers_[0].estimator",
        ),
        (OneVsRestClassifier(nona(max_iter=1)), "estimators_[0]"),
        (BaggingClassifier(nona(max_iter=1), 2), "estimators_[0]"),
    ],
    ids=["calibrated", "calibrated at once", "one versus rest", "bagging"],
)
def test_the_error_for_models_with_other_predictions_names_the_estimators(animals, model, where):
    X, y, X_test, _ = animals
    X, X_test = X.to_numpy(), X_test.to_numpy()
    model.fit(X, y.to_numpy())
    for whole in (model, make_pipeline("passthrough", model)):
        with pytest.raises(
            TypeError, match=f"changes the predictions .* its {re.escape(where)}; got"
        ):
            unwrap(whole)
    part = eval(f"model.{where}")  # as in the message
    np.testing.assert_array_equal(unwrap(part).predict_proba(X_test), part.predict_proba(X_test))


def test_what_only_numbers_have_is_absent(all_fitted):
    for model in (all_fitted["adjusted"], unwrap(all_fitted["adjusted"])):
        for method in ("sample_y", "calibrate"):
            with pytest.raises(AttributeError, match=f"no (attribute ')?{method}"):
                getattr(model, method)
        with pytest.raises(TypeError, match="unexpected keyword argument 'return_std'"):
            model.predict(None, return_std=True)


def test_transformed_labels_are_refused(animals):
    X, y, *_ = animals
    model = TransformedTargetRegressor(nona()).fit(X, (y == "cat").astype(int))
    with pytest.raises(TypeError, match="must leave a classifier's labels as they are, got Trans"):
        unwrap(model)


# -- pictures -----------------------------------------------------------------------------------


@pytest.fixture
def ax():
    return Figure().subplots()


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_bar_for_each_neighbour(all_fitted, animals, ax):
    model, query = all_fitted["adjusted"], animals[2][:1]
    display = NeighborsDisplay.from_estimator(model, query, "fox", n_neighbors=6, ax=ax)
    table = model.explain(query, 6)
    added = table.filter(like="contribution")[table["neighbor"] == "network"].to_numpy()[0]
    table = table[:6]
    np.testing.assert_array_equal(display.weights, table["weight"])
    assert display.added["network"] == dict(zip(KINDS, added, strict=True))
    assert display.names.tolist() == table["neighbor"].tolist()
    assert display.targets.tolist() == table["target"].tolist()
    assert display.prediction == model.predict(query)[0]
    rows, gains, losses = ax.containers[:3]
    np.testing.assert_array_equal([bar.get_width() for bar in rows], table["weight"])
    np.testing.assert_array_equal([bar.get_width() for bar in gains], added.clip(min=0))
    np.testing.assert_array_equal([bar.get_width() for bar in losses], added.clip(max=0))
    for bars, end in ((gains, added[added > 0].sum()), (losses, added[added < 0].sum())):
        ends = [bar.get_x() + bar.get_width() for bar in bars]
        assert max(ends, key=abs) == pytest.approx(end)  # side by side
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    assert labels == [*display.names, "network", "trend"]
    probabilities = dict(zip(KINDS, model.predict_proba(query)[0], strict=True))
    first, *_ = legend_of(ax)
    assert first.startswith(f"{display.prediction}: {max(probabilities.values()):.0%}, predicted")
    assert [text for text in legend_of(ax) if text.endswith("true")] == [
        text for text in legend_of(ax) if text.startswith("fox")
    ]
    assert ax.get_legend().get_title().get_text() == "kind"
    colors = {
        text.split(":")[0]: to_hex(handle.get_facecolor())
        for text, handle in zip(legend_of(ax), ax.get_legend().legend_handles, strict=True)
    }
    for bar, label in zip(rows, display.targets, strict=True):
        assert to_hex(bar.get_facecolor()) == colors[label]


def test_a_true_class_is_one_that_fit_saw(all_fitted, animals, ax):
    for wrong in ("elk", 1, animals[3][:1], ["fox"]):
        with pytest.raises(ValueError, match=r"y_true must be one of the classes of fit, got "):
            NeighborsDisplay.from_estimator(all_fitted["knn"], animals[2][:1], wrong, ax=ax)


@pytest.mark.parametrize("output", [1, "long"])
def test_one_of_several_outputs_is_drawn(all_fitted, animals, ax, output):
    model, query = all_fitted["outputs"], animals[2][:1]
    display = NeighborsDisplay.from_estimator(
        model, query, "no", output=output, n_neighbors=10, ax=ax
    )
    table = model.explain(query, 10)
    added = table.filter(like="contribution_long")[table["neighbor"] == "network"]
    assert [*display.added["network"].values()] == added.to_numpy()[0].tolist()
    table = table[~table["neighbor"].isin(["network", "trend", "others"])]
    assert display.targets.tolist() == table["target_long"].tolist()
    assert display.prediction == model.predict(query)[0, 1]
    assert list(display.probabilities) == ["no", "yes"]
    assert list(display.probabilities.values()) == model.predict_proba(query)[1][0].tolist()
    assert ax.get_legend().get_title().get_text() == "long"
    with pytest.raises(
        ValueError, match="one of the classes of fit, got 'fox'"
    ):  # of the other output
        NeighborsDisplay.from_estimator(model, query, "fox", output=output, ax=ax)


def test_classes_have_different_colours(all_fitted, animals, ax):
    _, y, X_test, _ = animals
    model = all_fitted["adjusted"]
    display = EmbeddingDisplay.from_estimator(model, ax=ax)
    assert display.targets.tolist() == y.tolist()
    assert legend_of(ax) == KINDS.tolist()
    assert ax.get_legend().get_title().get_text() == "kind"
    (dots,) = ax.collections
    drawn = {to_hex(color) for color in dots.get_facecolors()[(y == "fox").to_numpy()]}
    assert drawn == {to_hex(ax.lines[2].get_color())}
    again = Figure().subplots()
    labels = np.array(["elk", "cat", "cat", "ant", "fox", "fox", "fox"])
    EmbeddingDisplay.from_estimator(model, X_test, labels, ax=again)
    assert legend_of(again) == [*KINDS, "ant", "elk"]
    for one, other in zip(ax.lines, again.lines, strict=False):  # no class changes its colour
        assert to_hex(one.get_color()) == to_hex(other.get_color())


def test_many_classes_have_a_colour_each(ax):
    labels = np.arange(45) % 44
    EmbeddingDisplay(np.zeros((45, 2)), labels, "kind", np.arange(44)).plot(ax)
    assert len({to_hex(line.get_color()) for line in ax.lines}) == 44
    assert len(legend_of(ax)) == 44


class OwnLoss(ASSoftmax):
    """A loss of one's own."""


def test_steps(all_fitted, ax):
    assert StepDisplay.from_estimator(all_fitted["step"], ax=ax).steps.shape == (2, 1, 1001)


def test_displays_of_regressors_reject_classifiers(all_fitted, animals):
    X, y, *_ = animals
    for model in (all_fitted["knn"], make_pipeline(StandardScaler(), knn()).fit(X, y)):
        with pytest.raises(
            ValueError, match="must be a regressor; for classes there is predict_proba"
        ):
            IntervalDisplay.from_estimator(model, X, y)
    for wrong in (None, 2, "tail"):
        with pytest.raises(
            ValueError, match=r"output must be one of \[0, 1, 'kind', 'long'\], got"
        ):
            NeighborsDisplay.from_estimator(all_fitted["outputs"], X[:1], output=wrong)
    with pytest.raises(ValueError, match=r"one output, got targets \(48, 2\)"):
        EmbeddingDisplay.from_estimator(all_fitted["outputs"])


def test_methods_of_regressors_name_those_of_classifiers():
    for name in ("sample_y", "calibrate"):
        assert not hasattr(SoftStepKNeighborsClassifier(), name)
        with pytest.raises(AttributeError, match=f"{name}.*: predict_proba returns"):
            getattr(NONAClassifier(), name)
