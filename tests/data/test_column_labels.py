"""Columns of a DataFrame are matched by their labels, of whatever kind these are."""

import datetime
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from nona_sklearn import (
    NONARegressor,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    load,
    save,
)

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

# Queries are training rows.
pytestmark = pytest.mark.filterwarnings("ignore:.* whose own target is part of the prediction")

N = 30
RNG = np.random.default_rng(0)
A = np.c_[RNG.normal(size=(N, 2)) * [1, 5], np.arange(N) % 3]
Y = A[:, 0] + A[:, 1] ** 2
KNN = SoftStepKNeighborsRegressor(
    3,
    weighting="uniform",
    learn_feature_weights=False,
    validation_fraction=None,
    max_iter=1,
    random_state=0,
)
LABELS = {
    "numbers of columns": [0, 1, 2],
    "numbers": [7, -3, 10**12],
    "floats": [0.5, -1.5, 2.0],
    "a gap": [0.5, np.nan, 2.0],
    "tuples": [("a", 1), ("a", 2), ("b", 1)],
    "moments": [*pd.date_range("2024-01-31", periods=3, tz="UTC")],
    "dates": [datetime.date(2024, 1, day) for day in (1, 2, 3)],
    "periods": [*pd.period_range("2024-01", periods=3, freq="M")],
    "intervals": [*pd.interval_range(0, 3)],
    "mixed": ["a", 1, None],
    "strings": ["a", "b", "c"],
}
OTHERS = ["x", "y", "z"]


def frame(labels, values=A):
    columns = pd.Index(labels)  # of tuples, a MultiIndex
    return pd.DataFrame(values).set_axis(columns, axis=1)


@pytest.fixture(scope="module", params=LABELS)
def case(request):
    X = frame(LABELS[request.param])
    return X, clone(KNN).fit(X, Y)


@pytest.mark.slow
@pytest.mark.parametrize("order", [[2, 1, 0], [1, 2, 0]])
def test_columns_in_another_order_are_the_same(case, order, tmp_path):
    X, reg = case
    other, expected = X.iloc[:, order], reg.predict(X)
    assert len({*expected}) > 3
    np.testing.assert_array_equal(reg.predict(other), expected)
    path = tmp_path / "reg.safetensors"
    save(reg, path)
    for again in (load(path), pickle.loads(pickle.dumps(reg))):
        np.testing.assert_array_equal(again.predict(other), expected)
        with pytest.raises(ValueError, match="feature names should match"):
            again.predict(X.set_axis(OTHERS, axis=1))
    np.testing.assert_array_equal(reg.transform(other), reg.transform(X))
    found, plain = (reg.explain(each, 2, features=X) for each in (other[:2], X[:2]))
    np.testing.assert_array_equal(found["weight"], plain["weight"])
    added = clone(reg).fit(X, Y)
    added.add_neighbors(other[:1] + 100, [1e6])
    assert added.predict(X[:1] + 100)[0] > 1e5


def test_other_labels_are_refused(case):
    X, reg = case
    model = clone(reg).set_params(validation_fraction=0.15)
    for labels in (OTHERS, [10, 11, 12], [*X.columns[:2], "new"]):
        columns = pd.Index([*labels], dtype=object, tupleize_cols=False)
        with pytest.raises(ValueError, match=r"(?s)feature names should match.*unseen.*missing"):
            reg.predict(X.set_axis(columns, axis=1))
        with pytest.raises(ValueError, match=r"(?s)X_val, y_val: .*feature names should match"):
            model.fit(X, Y, X_val=X.set_axis(columns, axis=1), y_val=Y)
    with pytest.raises(ValueError, match="feature names should match"):
        reg.predict(X.iloc[:, :2])
    strings = all(isinstance(label, str) for label in X.columns)
    assert hasattr(reg, "feature_names_in_") == strings  # as scikit-learn defines it
    if not strings:  # an array is read by position, as by scikit-learn
        np.testing.assert_array_equal(reg.predict(X.to_numpy()), reg.predict(X))


LABEL = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.tuples(st.text(max_size=2), st.integers(0, 3)),
    st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)),
    st.none(),
)


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LABEL, min_size=3, max_size=3, unique=True), st.permutations(range(3)))
def test_no_order_of_columns_changes_a_prediction(labels, order):
    columns = pd.Index(labels, dtype=object, tupleize_cols=False)
    X = pd.DataFrame(A).set_axis(columns, axis=1)
    encoder = TableEncoder().fit(X)
    np.testing.assert_array_equal(encoder.transform(X.iloc[:, order]), encoder.transform(X))
    other = columns[:2].append(pd.Index(["another"], dtype=object))
    with pytest.raises(ValueError, match="feature names should match"):
        encoder.transform(X.set_axis(other, axis=1))


def test_columns_of_an_array_are_called_by_their_numbers():
    reg = clone(KNN).fit(A, Y)
    expected = reg.predict(A)
    np.testing.assert_array_equal(reg.predict(pd.DataFrame(A)[[2, 0, 1]]), expected)
    np.testing.assert_array_equal(
        reg.predict(pd.DataFrame(A).add(0).set_axis([7, 8, 9], axis=1)), expected
    )


@pytest.mark.slow
def test_another_fit_forgets_the_labels():
    model = clone(KNN).fit(frame([5, 6, 7]), Y)
    model.fit(A, Y)
    model.predict(frame([8, 9, 10]))
    model.fit(frame(["a", "b", "c"]), Y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.fit(frame([5, 6, 7]), Y)
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(
        ValueError, match=r"unseen at fit time: 'a', 'b', 'c'; seen at .*: 5, 6, 7"
    ):
        model.predict(frame(["a", "b", "c"]))


def test_a_pickle_without_labels_goes_by_position():
    """As written before labels of other kinds than strings were stored."""
    reg = clone(KNN).fit(frame([5, 6, 7]), Y)
    expected = reg.predict(frame([5, 6, 7]))
    del reg._column_labels
    again = pickle.loads(pickle.dumps(reg))
    np.testing.assert_array_equal(again.predict(frame([8, 9, 10])), expected)


def test_libraries_share_names():
    X = frame(["a", "b", "c"])
    reg = clone(KNN).fit(X, Y)
    table = pl.from_pandas(X[["c", "a", "b"]])
    np.testing.assert_array_equal(reg.predict(table), reg.predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        reg.predict(table.rename({"a": "x"}))
    by_number = clone(KNN).fit(frame([0, 1, 2]), Y)
    with pytest.raises(ValueError, match="feature names should match"):
        by_number.predict(pl.DataFrame(A, schema=["0", "1", "2"]))


@pytest.mark.parametrize("library", [pd, pl])
def test_an_empty_string_is_a_name(library):
    X = library.DataFrame({"a": A[:, 0], "": A[:, 1]})
    reg = clone(KNN).fit(X, Y)
    np.testing.assert_array_equal(reg.predict(X[["", "a"]]), reg.predict(X))


def test_categories_and_times_are_found_by_label():
    X = pd.DataFrame({1: A[:, 0], ("a", 2): np.where(A[:, 2] > 0, "u", "v"), "day": np.arange(N)})
    nona = NONARegressor(n_estimators=1, max_iter=1, hidden_layer_sizes=(4,), random_state=0)
    reg = nona.fit(X, Y, times="day")
    other = X.iloc[:, [2, 1, 0]]
    np.testing.assert_array_equal(reg.predict(other), reg.predict(X))
    reg.add_neighbors(other[-1:], [1.0])
    assert reg.bank_.levels[-1].tolist() == reg.bank_.levels[N - 1].tolist()
    with pytest.raises(ValueError, match=r"which column is \('a', 2\), which held strings"):
        reg.predict(X.to_numpy())


# -- types of columns ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", ">u2", "longdouble", "f2"])
def test_numbers_of_any_bytes_are_numbers(dtype):
    plain, other = pd.DataFrame({"x": np.arange(6.0)}), np.arange(6).astype(dtype)
    encoder = TableEncoder().fit(pd.DataFrame({"x": other}))
    np.testing.assert_array_equal(encoder.transform(plain), plain)
    np.testing.assert_array_equal(
        TableEncoder().fit(plain).transform(pd.DataFrame({"x": other})), plain
    )


@pytest.mark.parametrize("freq", ["M", "Q", "D", "h"])
@pytest.mark.parametrize("kind", [None, object])
def test_periods_are_dates_of_their_start(freq, kind):
    periods = pd.Series(pd.period_range("2024-01-01", periods=8, freq=freq))
    gaps = periods.mask(np.arange(8) == 3)
    X, dates = (
        (gaps if kind is None else gaps.astype(kind)).to_frame("x"),
        gaps.dt.to_timestamp().to_frame("x"),
    )
    encoder = TableEncoder().fit(X)
    np.testing.assert_array_equal(encoder.transform(X), TableEncoder().fit_transform(dates))
    np.testing.assert_array_equal(encoder.transform(dates), encoder.transform(X))


def test_intervals_are_categories_as_those_of_cut():
    cut = pd.cut(pd.Series(np.arange(12.0)), [-1, 3, 7, 12])
    encoder = TableEncoder(min_frequency=1).fit(cut.astype(cut.cat.categories.dtype).to_frame("x"))
    assert encoder.features_[0].holds == "intervals"
    codes = encoder.transform(cut.cat.as_unordered().to_frame("x"))
    np.testing.assert_array_equal(codes.argmax(axis=1), cut.cat.codes)


@pytest.mark.parametrize("library", [pd, pl])
def test_times_of_day_are_refused_with_a_remedy(library):
    times = [datetime.time(hour) for hour in range(6)]
    with pytest.raises(TypeError, match=r"pandas.to_timedelta\(X\['x'\].astype\(str\)\) makes"):
        TableEncoder().fit(library.DataFrame({"x": times}))
    remedied = pd.to_timedelta(pd.DataFrame({"x": times})["x"].astype(str)).to_frame()
    expected = 3600.0 * np.arange(6)[:, None]
    np.testing.assert_array_equal(TableEncoder().fit_transform(remedied), expected)
