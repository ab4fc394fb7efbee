"""What rows and targets are called, from the tables that they come in to the results."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inner.data import Names, labels_of, names_of_new
from inner.utils import target_names_of
from matplotlib.figure import Figure

from nona_sklearn import (
    EmbeddingDisplay,
    IntervalDisplay,
    NeighborsDisplay,
    NONARegressor,
)

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

N = 60
INDEXES = {
    "strings": [f"house {i}" for i in range(N)],
    "numbers": list(range(1000, 1000 + N)),
    "row numbers of another order": list(range(N))[::-1],
    "twice the same": ["same", *(f"house {i // 2}" for i in range(1, N))],
    "dates": pd.date_range("2020-01-01", periods=N),
    "several levels": pd.MultiIndex.from_product([["a", "b"], range(N // 2)]),
}


def nona(**params):
    params = {"n_estimators": 1, "max_iter": 2, "hidden_layer_sizes": (8,), **params}
    return NONARegressor(random_state=0, **params)


def frame(X, index=None, columns=None):
    """A table; its columns have no names that scikit-learn compares, unless they are given."""
    return pd.DataFrame(X, index, columns)


@pytest.fixture(scope="module")
def data(plane):
    X, X_test, y, _ = plane
    return X[:N], y[:N], X_test[:7]


@pytest.fixture(scope="module")
def by_number(data):
    X, y, _ = data
    return nona().fit(X, y)


@pytest.fixture(scope="module")
def named(data):
    X, y, _ = data
    return nona().fit(frame(X, INDEXES["strings"]), y)


@pytest.fixture
def reg(named):
    return copy.deepcopy(named)


# -- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_every_kind_of_index_names_rows(data, by_number, index):
    """The same fit, the same numbers: all methods return names instead of ids."""
    X, y, queries = data
    reg = nona().fit(frame(X, index), y)
    names = list(frame(X, index).index)
    X_test = frame(queries, index[: len(queries)])
    ids = by_number.heaviest_neighbors(queries, 3)[1]
    found = reg.heaviest_neighbors(X_test, 3, return_names=True)[1]
    assert found.tolist() == [[names[i] for i in row] for row in ids]
    table = reg.explain(X_test, 3)
    expected = by_number.explain(queries, 3)
    others = expected["neighbor"] == "others"
    expected_names = [
        name if other else names[name]
        for name, other in zip(expected["neighbor"], others, strict=True)
    ]
    assert table["neighbor"].tolist() == expected_names
    assert table["query"].tolist() == [name for name in X_test.index for _ in range(4)]
    influence = reg.influence(X_test)
    assert influence["neighbor"].tolist() == names
    assert influence["id"].tolist() == list(range(N))
    assert pickle.loads(pickle.dumps(reg)).influence(X_test).equals(influence)


def test_no_row_is_called_as_all_others_are(data):
    X, y, queries = data
    index = ["others", "others'", *range(2, N)]
    reg = nona().fit(frame(X, index), y)
    for X_test in (queries, None):
        table = reg.explain(X_test, 3)
        assert set(table["neighbor"][3::4]) == {"others''"}
        assert not table["neighbor"].drop(index=range(3, len(table), 4)).eq("others''").any()
    assert {"others", "others'"} <= set(reg.explain(None, N - 1)["neighbor"])
    reg.remove_neighbors(names="others")
    assert reg.explain(queries, 3)["neighbor"][3] == "others"


def test_plain_row_numbers_are_no_names(data, by_number):
    X, y, queries = data
    reset = nona().fit(frame(X, INDEXES["strings"]).reset_index(drop=True), y)
    assert reset.bank_.names is None
    assert reset.explain(queries, 2).equals(by_number.explain(queries, 2))
    assert by_number.heaviest_neighbors(queries, 2, return_names=True)[1].dtype.kind == "i"


def test_the_index_of_y_names_rows_that_have_none(data, named):
    """An array that a pipeline made of a frame lies beside its targets still."""
    X, y, queries = data
    reg = nona().fit(X, pd.Series(y, index=INDEXES["strings"]))
    assert reg.explain(queries).equals(named.explain(frame(queries)))
    both = Names.of(frame(X, INDEXES["numbers"]), pd.Series(y, index=INDEXES["strings"]))
    assert both.row_labels.tolist() == INDEXES["numbers"]  # the index of X takes precedence


def test_queries_keep_their_names_when_they_are_embedded(reg, data):
    X_test = frame(data[2], list("abcdefg"))
    assert reg.explain(reg.embed(X_test)).equals(reg.explain(X_test))


def test_added_rows_bring_their_names(reg, data):
    X, _, queries = data
    ids = reg.add_neighbors(frame(queries, list("abcdefg")), np.zeros(7))
    assert ids.tolist() == list(range(N, N + 7))
    plain = reg.add_neighbors(queries[:2], np.zeros(2))
    by_their_y = reg.add_neighbors(queries[:1], pd.Series([0.0], index=["z"]))
    reset = reg.add_neighbors(frame(queries[:1]), [0.0])
    names = [
        *INDEXES["strings"],
        *"abcdefg",
        *(f"added {i}" for i in plain),
        "z",
        f"added {reset[0]}",
    ]
    assert reg.influence(X)["neighbor"].tolist() == names
    assert by_their_y.tolist() == [N + 9]
    again = pickle.loads(pickle.dumps(reg))
    again.remove_neighbors(names=["a", "house 7"])
    assert again.add_neighbors(queries[:1], [0.0]).tolist() == [N + 11]
    names = [name for name in names if name not in ("a", "house 7")] + [f"added {N + 11}"]
    assert again.influence(X)["neighbor"].tolist() == names


def test_numbers_that_name_rows_are_not_mixed_up_with_ids(data):
    """House number 60 is in the bank; the row that is added later has id 60, and no such name."""
    X, y, queries = data
    reg = nona().fit(frame(X, range(1, N + 1)), y)
    assert reg.add_neighbors(queries[:1], [0.0]).tolist() == [N]
    assert reg.influence(queries)["neighbor"].tolist() == [*range(1, N + 1), f"added {N}"]
    reg.remove_neighbors(names=N)
    assert reg.bank_.ids.tolist() == [*range(N - 1), N]


def test_a_bank_named_by_row_numbers_takes_no_other_numbers(by_number, data):
    """They count the rows of another table: what is 3 there is not our row 3."""
    reg, queries = copy.deepcopy(by_number), data[2]
    reg.add_neighbors(frame(queries[:2], [3, 7]), np.zeros(2))
    assert reg.bank_.names is None
    reg.add_neighbors(frame(queries[:3], ["a", 3, "b"]), np.zeros(3))
    reg.add_neighbors(queries[:1], [0.0])
    reg.add_neighbors(frame(queries[:1], [4.0]), [0.0])
    names = [*range(N + 2), "a", N + 3, "b", N + 5, N + 6]
    assert reg.influence(queries)["neighbor"].tolist() == names


LABELS = st.one_of(st.integers(-1, 12), st.floats(0, 12), st.sampled_from(["a", "b", "added 5"]))


@given(st.data())
def test_names_are_shared_only_if_the_indexes_share_them(data):
    """Whatever is put together: a row's own name, given by its table or by us, is never lost.

    Only where the first rows share names, others may share theirs.
    """
    first = data.draw(st.none() | st.lists(LABELS, min_size=1, max_size=5))
    numbered = first is None
    names = np.arange(5) if numbered else np.array(first, dtype=object)
    given_by_tables = [] if numbered else list(first)
    next_id = len(names)
    for _ in range(data.draw(st.integers(0, 4))):
        labels = data.draw(st.none() | st.lists(LABELS, min_size=1, max_size=4))
        n = 2 if labels is None else len(labels)
        ids = np.arange(next_id, next_id + n)
        labels = None if labels is None else np.array(labels, dtype=object)
        try:
            new = names_of_new(labels, ids, names, numbered)
        except ValueError:
            came = [label for label in labels if isinstance(label, str) or not numbered]
            assert len({*names, *came}) < len(names) + len(came)
            continue
        if labels is None:  # generated: no other row has it yet
            assert not {*new} & {*names}
            assert len({*new}) == n
        else:
            given_by_tables += [
                label for label in labels if isinstance(label, str) or not numbered
            ]
        names, next_id = np.concatenate([names.astype(object), new]), next_id + n
    shared = {name for name in names if list(names).count(name) > 1}
    assert shared <= {*given_by_tables}
    if len({*(first or [])}) == len(first or []):
        assert not shared
    if numbered:
        assert all(name == i for i, name in enumerate(names) if not isinstance(name, str))


def test_labels_on_paper():
    assert labels_of(np.zeros((2, 1))) is None
    assert labels_of(pl.DataFrame({"a": [1, 2]})) is None
    assert labels_of(pd.DataFrame({"a": [1, 2]})) is None
    assert labels_of(pd.DataFrame({"a": [1, 2]}, index=[1, 0])).tolist() == [1, 0]
    assert labels_of(pd.Series(["x", "y"], index=[("a", 1), ("b", 2)])).tolist() == [
        ("a", 1),
        ("b", 2),
    ]


# -- removal by name ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", INDEXES)
def test_rows_go_by_name(data, kind):
    X, y, queries = data
    reg = nona().fit(frame(X, INDEXES[kind]), y)
    other = copy.deepcopy(reg)
    index = frame(X, INDEXES[kind]).index
    for several in (index[[3]], list(index[[5, 9]])):
        gone = np.flatnonzero(index.isin(several) & np.isin(np.arange(N), other.bank_.ids))
        reg.remove_neighbors(names=several)
        other.remove_neighbors(ids=gone)  # of a name that two bear, both
        np.testing.assert_array_equal(reg.predict(queries), other.predict(queries))
    reg.remove_neighbors(names=index[20])  # one, which may be a tuple
    assert not index.isin([index[20]])[reg.bank_.ids.numpy()].any()
    kept = index[reg.bank_.ids.numpy()].tolist()
    assert reg.heaviest_neighbors(queries, 1, return_names=True)[1][0, 0] in kept
    assert reg.influence(queries)["neighbor"].tolist() == kept


def test_names_of_a_bank_without_names_are_its_ids(by_number):
    reg = copy.deepcopy(by_number)
    assert reg.remove_neighbors(names=[3, np.int64(5)]).bank_.ids[:4].tolist() == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["house 1", "nowhere", 1]}, r"got unknown \['nowhere', 1\]$"),
        (
            {"names": [str(i) for i in range(30)]},
            r"names must be in the bank, got unknown \['0', .*, '9'\]$",
        ),
        ({"names": INDEXES["strings"]}, "names must leave at least one row, got all 60"),
        ({"names": [["house 1"]]}, r"names must be labels of an index, got \['house 1'\]"),
        ({}, "exactly one of ids and names must be given"),
        ({"ids": 1, "names": "house 1"}, "exactly one of ids and names must be given"),
    ],
)
def test_a_bad_name_removes_nothing(reg, data, arguments, message):
    before = reg.predict(data[2])
    with pytest.raises(ValueError, match=message):
        reg.remove_neighbors(**arguments)
    np.testing.assert_array_equal(reg.predict(data[2]), before)


# -- targets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [pd, pl])
def test_names_of_targets(data, library):
    X, y, queries = data
    one = nona().fit(X, library.Series(name="price", **series(library, y)))
    assert one.target_names_ == ("price",)
    assert "target" in one.explain(queries)
    both = library.DataFrame({"price": y, "rent": -y})
    reg = pickle.loads(pickle.dumps(nona().fit(X, both)))
    assert reg.target_names_ == ("price", "rent")
    table = reg.explain(queries, 2)
    assert list(table.columns[3:]) == [
        *("target_price", "target_rent"),
        *("adjusted_target_price", "adjusted_target_rent"),
        *("contribution_price", "contribution_rent"),
    ]
    sums = table.groupby("query")[["contribution_price", "contribution_rent"]].sum()
    np.testing.assert_allclose(sums, reg.predict(queries), atol=1e-9)
    own = reg.explain(None, 1)  # the rows' own targets are those of their names
    first = own["neighbor"][0]
    assert (own["target_price"][0], own["target_rent"][0]) == (y[first], -y[first])
    assert reg.set_neighbor_targets(library.DataFrame({"size": y})).target_names_ == ("size",)
    assert reg.set_neighbor_targets(y).target_names_ is None


def series(library, values):
    return {"data" if library is pd else "values": values}


@pytest.mark.parametrize(
    "y",
    [
        np.zeros((3, 2)),
        [1, 2],
        pd.Series([1.0]),
        pd.Series([1.0], name=7),
        pd.DataFrame([[1.0, 2.0]]),
        pl.Series([1.0]),
        None,
    ],
    ids=repr,
)
def test_targets_that_have_no_names_of_their_own(y):
    assert target_names_of(y) is None
    assert Names.of(np.zeros((1, 1)), y) == Names(None, None)


@pytest.mark.parametrize(
    "columns",
    [
        [0, 1],
        [1, 0],
        [7, 8],
        [0.5, 1.5],
        pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]),
        pd.to_datetime(["2020-01-01", "2020-01-02"]),
    ],
    ids=str,
)
def test_targets_in_another_order_are_the_same_whatever_their_labels(data, columns):
    X, y, queries = data
    both = pd.DataFrame(np.stack([y, -y], axis=1), columns=columns)
    reg = nona().fit(X, both)
    assert reg.score(X, both.iloc[:, ::-1]) == reg.score(X, both) == reg.score(X, both.to_numpy())
    reg.add_neighbors(queries[:1], both.iloc[:1, ::-1])
    np.testing.assert_array_equal(reg.bank_.targets[-1], [y[0], -y[0]])
    alike = nona().fit(X, both, X_val=X[:9], y_val=both.iloc[:9, ::-1])
    expected = nona().fit(X, both, X_val=X[:9], y_val=both.iloc[:9])
    np.testing.assert_array_equal(alike.predict(queries), expected.predict(queries))
    if columns is not None and list(both.columns) != [0, 1]:
        with pytest.raises(ValueError, match="y must have the columns"):
            reg.score(X, both.set_axis(["price", "rent"], axis=1))


def test_displays_are_labelled_with_the_names_of_rows_and_the_target(data):
    X, y, queries = data
    price = pd.Series(y, name="price")
    columns = ["width", "height"]
    train, X_test = frame(X, INDEXES["strings"], columns), frame(queries, None, columns)
    reg, axes = nona().fit(train, price), lambda: Figure().subplots()
    display = NeighborsDisplay.from_estimator(reg, X_test[:1], n_neighbors=10, ax=axes())
    assert display.ax_.get_xlabel() == "price"
    labels = [label.get_text().split("   ")[0] for label in display.ax_.get_yticklabels()]
    assert labels == display.names.tolist()
    assert display.names[0] == reg.heaviest_neighbors(X_test[:1], 1, return_names=True)[1][0, 0]
    embedding = EmbeddingDisplay.from_estimator(reg, ax=axes())
    assert embedding.figure_.axes[1].get_ylabel() == "price"
    rent = price.rename("rent")
    other = EmbeddingDisplay.from_estimator(reg, train, rent, ax=axes())
    assert other.figure_.axes[1].get_ylabel() == "rent"
    assert (
        IntervalDisplay.from_estimator(reg, X_test, y[:7], ax=axes()).ax_.get_ylabel() == "price"
    )


# -- as in scikit-learn ---------------------------------------------------------------------------


def test_kneighbors_return_names(reg, data):
    for method in (reg.kneighbors, reg.heaviest_neighbors):
        _, ids = method(data[2], 4)
        _, names = method(data[2], 4, return_names=True)
        assert names.tolist() == [[f"house {i}" for i in row] for row in ids]


def test_numbers_that_are_no_integers_are_names():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": range(3)}, index=[0.0, 1.0, 2.0])
    assert labels_of(frame).tolist() == [0.0, 1.0, 2.0]
    assert labels_of(frame.reset_index(drop=True)) is None


def test_a_name_is_not_given_twice_however_many_are_taken():
    taken = ["added 60", "added 60'", "added 60''"]
    assert names_of_new(None, np.array([60]), taken, numbered=False).tolist() == ["added 60'''"]


def test_numbers_are_names_of_rows_that_come_to_others_with_names():
    """And none of those that come to numbered rows: they count those of another table."""
    labels, ids = np.array([7, 2.5, "b"], dtype=object), np.array([60, 61, 62])
    given = names_of_new(labels, ids, ["a"], numbered=False)
    assert given.tolist() == [7, 2.5, "b"]
    assert names_of_new(labels, ids, [0, 1], numbered=True).tolist() == [60, 61, "b"]
