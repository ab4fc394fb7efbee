"""What is given beside a table: read without loss, or refused with its row and a remedy."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inner.data import (
    ClassTargets,
    RegressionTargets,
    check_groups,
    check_sample_weight,
    read_times,
)
from inner.utils import warn_of_other_order
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import cross_val_score

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    load,
    save,
)

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

N = 30
X = np.random.default_rng(0).normal(size=(N, 2))
ROWS = [f"row {i}" for i in range(N)]
TABLE = pd.DataFrame(X, ROWS, ["a", "b"])
ORDER = ["low", "mid", "high"]
LEVELS = np.array(ORDER)[np.digitize(X[:, 0], [-0.5, 0.5])]
PLAIN = {"weighting": "uniform", "learn_feature_weights": False, "validation_fraction": None}
CLASSIFIER = SoftStepKNeighborsClassifier(3, smoothing=False, max_iter=1, random_state=0, **PLAIN)
REGRESSOR = SoftStepKNeighborsRegressor(3, max_iter=1, random_state=0, **PLAIN)


def dictionary(values, ordered=False):
    values = list(values)
    levels = list(dict.fromkeys(ORDER if ordered else values))
    codes = pa.array([levels.index(value) for value in values])
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(codes, pa.array(levels), ordered=ordered)]
    )


def arrow_series(values, ordered=False):
    return pd.Series(pd.arrays.ArrowExtensionArray(dictionary(values, ordered)))


# -- missing and mixed ----------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT, float("nan")], ids=repr)
@pytest.mark.parametrize("make", [list, tuple, lambda y: np.array(y, dtype=object), pd.Series])
def test_a_missing_label_is_no_class_in_any_container(make, gap):
    for labels in (["a", "b", gap, "a"], [1, 2, gap, 1], [True, False, gap, True]):
        with pytest.raises(ValueError, match=r"(missing label|NaN: nan) in row 2"):
            ClassTargets().fit(make(labels))
    with pytest.raises(ValueError, match=r"groups must not be missing, got .* in row 0"):
        check_groups(make([gap, "g0", "g1"]), 3)


@pytest.mark.parametrize("gap", [None, np.nan])
@pytest.mark.parametrize("make", [list, pd.DataFrame, lambda y: [tuple(row) for row in y]])
def test_a_missing_label_of_several_outputs(make, gap):
    with pytest.raises(ValueError, match="missing label in row 1 of output 1"):
        ClassTargets().fit(make([["a", "x"], ["b", gap], ["a", "y"]]))


@pytest.mark.parametrize(
    "labels", [[1, "a", 1], [True, "b", True], [1.5, "a", 1.5], [b"a", "a", b"a"]], ids=repr
)
def test_mixed_labels_are_refused_in_lists_as_in_series(labels):
    messages = []
    for y in (labels, tuple(labels), pd.Series(labels, dtype=object)):
        with pytest.raises(ValueError, match=r"labels of one kind.* in row \d") as found:
            ClassTargets().fit(y)
        messages.append(str(found.value))
    assert len({*messages}) == 1


LABELS = st.sampled_from(["a", "b", "nan", "None", 1, 2.0, True, None, np.nan])


@given(st.lists(LABELS, min_size=2, max_size=5))
def test_a_list_is_read_as_a_series_of_objects(labels):
    """Whatever it holds, the classes are the same, or both are refused."""
    found = []
    for y in (labels, pd.Series(labels, dtype=object)):
        try:
            found.append(ClassTargets().fit(y).classes[0].tolist())
        except ValueError:
            found.append("refused")
    assert found[0] == found[1]


def test_numbers_beside_strings_in_rows_of_several_outputs_stay_numbers():
    targets = ClassTargets().fit([["a", 2], ["b", 1]])
    assert [classes.tolist() for classes in targets.classes] == [["a", "b"], [1, 2]]


def test_all_that_take_labels_refuse_a_missing_one():
    clf, y = clone(CLASSIFIER).fit(X, LEVELS), [*LEVELS[:-1], np.nan]
    calls = [
        lambda: clf.score(X, y),
        lambda: clf.add_neighbors(X, y),
        lambda: clf.set_neighbor_targets(y),
        lambda: clf.influence(X, y),
        lambda: (
            clone(CLASSIFIER).set_params(validation_fraction=0.15).fit(X, LEVELS, X_val=X, y_val=y)
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"missing label in row {N - 1}"):
            call()
    weighted = NONAClassifier(class_weight={"low": 1, "mid": 1, "high": 1, np.nan: 2})
    with pytest.raises(ValueError, match="class_weight must be for classes, got a missing label"):
        weighted.fit(X, LEVELS)


# -- types of other libraries ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "y",
    [
        arrow_series("abab"),
        dictionary("abab"),
        pd.Series(list("abab"), dtype=pd.ArrowDtype(pa.large_string())),
        pd.Series(list("abab"), dtype="string"),
        pd.Categorical(list("abab")),
        pl.Series(list("abab"), dtype=pl.Categorical),
        np.array(list("abab"), dtype=np.dtypes.StringDType()),
    ],
    ids=lambda y: f"{type(y).__name__} {getattr(y, 'dtype', '')}"[:40],
)
def test_strings_of_every_type_are_classes_and_groups(y):
    assert ClassTargets().fit(y).classes[0].tolist() == ["a", "b"]
    assert check_groups(y, 4).tolist() == list("abab")


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, 2, 1], dtype="Int64"),
        pd.Series([1, 2, 1], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        np.array([1, 2, 1], dtype=">i4"),
        pd.Series(np.array([1, 2, 1], dtype=">f8")),
        arrow_series([1, 2, 1]),
    ],
    ids=lambda y: str(y.dtype)[:30],
)
def test_numbers_of_every_type_are_targets_and_weights(values):
    assert RegressionTargets().values(values).tolist() == [1.0, 2.0, 1.0]
    assert check_sample_weight(values, 3).tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "string", "Float64"])
def test_a_gap_of_a_nullable_type_is_named(dtype):
    y = pd.Series(["1", "0", pd.NA] if dtype == "string" else [1, 0, pd.NA], dtype=dtype)
    with pytest.raises(ValueError, match=r"(missing label|NaN: nan) in row 2"):
        ClassTargets().fit(y)
    if dtype != "string":
        with pytest.raises(ValueError, match=r"NaN: nan in row 2"):
            RegressionTargets().values(y)
        with pytest.raises(ValueError, match=r"got nan in row 2"):
            check_sample_weight(y, 3)


def test_a_gap_in_a_list_of_dates_is_no_word():
    with pytest.raises(ValueError, match="times must be finite, got NaT in row 1"):
        read_times(["2020-01-01", np.nan, "2020-01-03"], None, 3)


SURVIVAL = np.array([(True, 1.0), (False, 2.0)] * 15, dtype=[("event", "?"), ("time", "f8")])


@pytest.mark.parametrize("array", [SURVIVAL, SURVIVAL[["time"]], SURVIVAL.view(np.recarray)])
@pytest.mark.parametrize("estimator", [CLASSIFIER, REGRESSOR], ids=lambda e: type(e).__name__)
def test_structured_arrays_are_refused(estimator, array):
    model = clone(estimator)
    with pytest.raises(ValueError, match=r"y must not be a structured .* such as y\['time'\]"):
        model.fit(X, array)
    with pytest.raises(ValueError, match=r"X must not be a structured .* pandas.DataFrame\(X\)"):
        model.fit(array, np.arange(30) % 2)


@pytest.mark.parametrize("estimator", [CLASSIFIER, REGRESSOR], ids=lambda e: type(e).__name__)
def test_columns_of_structs_are_refused(estimator):
    structs = pl.Series([{"event": i % 2, "time": float(i)} for i in range(30)])
    with pytest.raises(ValueError, match=r"y must not be a column of structs, .* y\['time'\]"):
        clone(estimator).fit(X, structs)


@pytest.mark.parametrize(
    "y", [{1, 2}, (each for each in (1, 2)), {"a": [1]}, "ab"], ids=lambda y: type(y).__name__
)
def test_what_holds_no_row_is_no_target(y):
    for targets in (ClassTargets(), RegressionTargets()):
        with pytest.raises(ValueError, match=r"y must hold a (label|number) for each row, got"):
            targets.fit(y)


# -- objects as classes ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bool, int, np.int8, np.bool_])
def test_objects_that_hold_numbers_are_scored_as_they_are_fitted(kind):
    y = np.array([kind(label) for label in X[:, 0] > 0], dtype=object)
    clf = clone(CLASSIFIER).fit(X, y)
    expected = np.mean(clf.predict(X) == y.astype(int))
    for truth in (y, pd.Series(y), y.tolist(), y.astype(int)):
        assert clf.score(X, truth) == pytest.approx(expected)
    assert np.isfinite(cross_val_score(CLASSIFIER, X, y, cv=2)).all()


def test_a_score_matches_outputs_by_name():
    Y = pd.DataFrame({"u": X[:, 0], "v": X[:, 1] - X[:, 0]})
    reg = clone(REGRESSOR).fit(X, Y)
    assert reg.score(X, Y[["v", "u"]]) == reg.score(X, Y)
    with pytest.raises(ValueError, match="y must have the columns"):
        reg.score(X, Y.rename(columns={"v": "w"}))


# -- ordered categories ---------------------------------------------------------------------------


ORDERED = {
    "pandas": pd.Series(pd.Categorical(LEVELS, [*ORDER, "never"], ordered=True)),
    "no Series": pd.Categorical(LEVELS, ORDER, ordered=True),
    "one column": pd.DataFrame({"y": pd.Categorical(LEVELS, ORDER, ordered=True)})["y"],
    "polars": pl.Series(LEVELS.tolist(), dtype=pl.Enum(ORDER)),
    "Arrow": dictionary(LEVELS, ordered=True),
    "Arrow, not chunked": dictionary(LEVELS, ordered=True).combine_chunks(),
    "Arrow in pandas": arrow_series(LEVELS, ordered=True),
}


@pytest.mark.filterwarnings("ignore:.* whose own target is part of the prediction")
@pytest.mark.parametrize("y", ORDERED.values(), ids=ORDERED)
def test_ordered_categories_keep_their_order(y, tmp_path):
    """Sorted, "high" would be first; all that is said of a class stays with it."""
    ordered, plain = clone(CLASSIFIER).fit(X, y), clone(CLASSIFIER).fit(X, LEVELS)
    assert ordered.classes_.tolist() == ORDER
    assert plain.classes_.tolist() == sorted(ORDER)
    order = [plain.classes_.tolist().index(label) for label in ORDER]
    proba = ordered.predict_proba(X)
    np.testing.assert_allclose(proba, plain.predict_proba(X)[:, order], atol=1e-6)
    assert ordered.score(X, y) == accuracy_score(LEVELS, ordered.predict(X))
    assert (ordered.predict(X) == np.array(ORDER)[proba.argmax(axis=1)]).all()
    columns = ordered.explain(X[:2]).columns
    assert [name for name in columns if name.startswith("contribution")] == [
        f"contribution_{label}" for label in ORDER
    ]
    save(ordered, tmp_path / "clf.safetensors")
    for again in (load(tmp_path / "clf.safetensors"), pickle.loads(pickle.dumps(ordered))):
        assert again.classes_.tolist() == ORDER
        np.testing.assert_array_equal(again.predict_proba(X), proba)


def test_only_categories_that_occur_are_classes_in_each_output():
    weights = np.where(LEVELS == "mid", 0.0, 1.0)
    y = pd.DataFrame(
        {
            "size": pd.Categorical(LEVELS, ORDER, ordered=True),
            "sign": np.where(X[:, 1] > 0, "plus", "minus"),
            "grade": pd.Categorical((X[:, 1] > 0).astype(int), [1, 0], ordered=True),
        }
    )
    clf = clone(CLASSIFIER).fit(X, y, sample_weight=weights)
    expected = [["low", "high"], ["minus", "plus"], [1, 0]]
    assert [classes.tolist() for classes in clf.classes_] == expected


def test_class_weights_and_the_log_loss_follow_the_order():
    y = ORDERED["pandas"]
    weight = {"low": 1.0, "mid": 2.0, "high": 3.0}
    clf = clone(CLASSIFIER).set_params(class_weight=weight).fit(X, y)
    assert clf.class_weight_.tolist() == [1.0, 2.0, 3.0]
    plain = clone(CLASSIFIER).set_params(class_weight=weight).fit(X, LEVELS)
    sorted_columns = clf.predict_proba(X)[:, clf.classes_.argsort()]
    expected = log_loss(LEVELS, plain.predict_proba(X))
    np.testing.assert_allclose(log_loss(LEVELS, sorted_columns), expected, rtol=1e-5)


@pytest.mark.filterwarnings("always:y is an ordered categorical")
def test_metrics_that_take_sorted_columns_are_told_of():
    """With sorted labels in fit and metric they are right; without an order, nothing is said."""
    with pytest.warns(UserWarning, match=r"its order, \['low', 'mid', 'high'\].* y.astype\(str\)"):
        clone(CLASSIFIER).fit(X, ORDERED["pandas"])
    remedied = cross_val_score(CLASSIFIER, X, ORDERED["pandas"].astype(str), scoring="roc_auc_ovr")
    assert remedied.mean() > 0.8
    sorted_order = pd.Categorical(LEVELS, sorted(ORDER), ordered=True)
    for y in (LEVELS, pd.Categorical(LEVELS, ORDER), sorted_order):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ConvergenceWarning)
            assert clone(CLASSIFIER).fit(X, y).classes_.tolist() == sorted(ORDER)


# -- labels in another order ----------------------------------------------------------------------

Y = pd.Series(X[:, 0], ROWS)
REVERSED = Y[::-1]
QUICK = NONARegressor(n_estimators=1, max_iter=1, hidden_layer_sizes=(4,), random_state=0)


@pytest.fixture(scope="module")
def reg():
    return clone(REGRESSOR).fit(TABLE, Y)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("y", lambda reg: clone(reg).fit(TABLE, REVERSED)),
        ("y", lambda reg: clone(reg).fit(TABLE.sample(frac=1, random_state=0), Y)),
        ("sample_weight", lambda reg: clone(reg).fit(TABLE, Y, sample_weight=abs(REVERSED))),
        ("groups", lambda reg: clone(reg).fit(TABLE, Y, groups=REVERSED.round())),
        ("times", lambda reg: clone(QUICK).fit(TABLE, Y, times=REVERSED)),
        ("y_val", lambda reg: clone(QUICK).fit(TABLE, Y, X_val=TABLE[:9], y_val=Y[:9][::-1])),
        ("y", lambda reg: reg.score(TABLE, REVERSED)),
        ("sample_weight", lambda reg: reg.score(TABLE, Y, abs(REVERSED))),
        ("y", lambda reg: reg.influence(TABLE, REVERSED)),
        ("y", lambda reg: clone(reg).fit(TABLE, Y).calibrate(TABLE, REVERSED)),
        ("y", lambda reg: clone(reg).fit(TABLE, Y).set_neighbor_targets(REVERSED)),
        (
            "y",
            lambda reg: (
                clone(reg)
                .fit(TABLE, Y)
                .add_neighbors(
                    TABLE[:2].add_suffix("", axis=0).set_axis(["p", "q"]),
                    REVERSED[:2].set_axis(["q", "p"]),
                )
            ),
        ),
    ],
)
def test_the_same_labels_in_another_order_are_told(reg, name, call):
    pattern = rf"^{name} has the labels of .* in another order.* row 0 is '.*' in .*{name}"
    with pytest.warns(UserWarning, match=pattern) as found:
        call(reg)
    assert len([each for each in found if "another order" in str(each.message)]) == 1


def test_a_remedy_is_one():
    """What the warning says to do pairs the rows by their labels, and warns no more."""
    index = pd.MultiIndex.from_product([["x", "y"], range(3)])
    X, y = pd.DataFrame({"a": range(6)}, index), pd.Series(range(6), index)
    with pytest.warns(UserWarning, match=r"pass y.loc\[X.index\]; otherwise pass y.to_numpy\(\)"):
        warn_of_other_order(X=X, y=y[::-1])
    warn_of_other_order(X=X, y=y[::-1].loc[X.index])
    warn_of_other_order(X=X, y=y[::-1].to_numpy())


@pytest.mark.parametrize(
    ("index", "other"),
    [
        (range(3), ["a", "b", "c"]),
        (["a", "b", "c"], ["a", "b", "d"]),
        (["a", "a", "b"], ["a", "b", "b"]),
        (["a", None, pd.NA], ["a", np.nan, None]),
        ([1, 2, 3], [1.0, 2.0, 3.0]),
        (["a", "b", "c"], ["a", "b"]),
    ],
)
def test_other_labels_are_no_other_order(index, other):
    warn_of_other_order(X=pd.DataFrame({"a": range(3)}, index), y=pd.Series(0, other))


def test_labels_that_repeat_have_no_loc():
    X, y = pd.DataFrame({"a": range(3)}, list("aab")), pd.Series(range(3), list("aba"))
    with pytest.warns(UserWarning, match="bring both into one order"):
        warn_of_other_order(X=X, y=y)


# -- what nothing can be learned from -------------------------------------------------------------


@pytest.mark.filterwarnings("always:column .* of X equals y")
@pytest.mark.parametrize(
    ("table", "y", "column"),
    [
        (TABLE.assign(price=2 * X[:, 0]), 2 * X[:, 0], "'price'"),
        (np.c_[X, X[:, 0] ** 2], X[:, 0] ** 2, "2"),
        (TABLE.assign(size=LEVELS), LEVELS, "'size'"),
        (TABLE.assign(size=pd.Categorical(LEVELS)), pd.Series(LEVELS, ROWS), "'size'"),
        (pl.DataFrame({"a": X[:, 0], "sure": X[:, 1] > 0}), X[:, 1] > 0, "'sure'"),
    ],
)
def test_a_copy_of_the_targets_is_named(table, y, column):
    model = clone(REGRESSOR if np.asarray(y).dtype.kind == "f" else CLASSIFIER)
    with pytest.warns(UserWarning, match=f"column {column} of X equals y"):
        model.fit(table, y)


@pytest.mark.filterwarnings("error:column .* of X equals y")
def test_what_differs_in_one_row_is_no_copy():
    y = X[:, 0].copy()
    y[-1] += 1
    clone(REGRESSOR).fit(TABLE, y)
    clone(REGRESSOR).fit(TABLE.assign(c=1.0), np.ones(N))


def test_one_class_is_told():
    with pytest.warns(UserWarning, match="y holds one class only, 'a'"):
        clf = clone(CLASSIFIER).fit(X, ["a"] * N)
    assert (clf.predict_proba(X) == 1).all()


# -- what else ------------------------------------------------------------------------------------


def test_one_row_is_refused_as_one_row_whatever_the_weights():
    for model in (CLASSIFIER, clone(CLASSIFIER).set_params(class_weight="balanced")):
        with pytest.raises(ValueError, match=r"1 sample\(s\).* minimum of 2 is required"):
            clone(model).fit(X[:1], [1])


def test_groups_may_name_a_column():
    table = TABLE.assign(site=(np.arange(N) // 3).astype(str))
    by_name = clone(REGRESSOR).fit(table, Y, groups="site")
    by_values = clone(REGRESSOR).fit(table, Y, groups=table["site"])
    np.testing.assert_array_equal(by_name.predict(table), by_values.predict(table))
    assert by_name.bank_.groups.tolist() == by_values.bank_.groups.tolist()
    by_name.add_neighbors(table[:1].set_axis(["new"]), [0.0], groups="site")
    assert by_name.bank_.groups[-1] == by_name.bank_.groups[0]
    with pytest.raises(ValueError, match="groups must name a column of X, got 'place'"):
        clone(REGRESSOR).fit(table, Y, groups="place")
    with pytest.raises(ValueError, match="groups='site' needs X to be a DataFrame with such"):
        clone(REGRESSOR).fit(X, Y, groups="site")


def test_arrays_that_must_not_be_written_are_read_without_a_warning():
    values = [X.copy(), X[:, 0] + 1, np.ones(N), np.arange(N), np.arange(N) // 5]
    for each in values:
        each.flags.writeable = False
    data, y, weights, times, groups = values
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        reg = clone(REGRESSOR).fit(data, y, groups=groups, sample_weight=weights)
        clone(REGRESSOR).fit(data, y, times=times)
        for points in (y[:3], pd.Series(y[:3]), pl.Series(y[:3])):
            assert reg.predict_cdf(data, points).shape == (N, 3)
        reg.predict_quantiles(data, pd.Series([0.1, 0.9]))
        reg.add_neighbors(data, y, weights)
        reg.influence(data, y)
