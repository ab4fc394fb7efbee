"""Features of neighbours and queries side by side."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    unwrap,
)

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

N, Q = 40, 3
NAMES = [f"flat {i}" for i in range(N + Q)]
QUICK = {"max_iter": 1, "random_state": 0}
MODELS = [
    NONARegressor(n_estimators=1, **QUICK),
    NONAClassifier(n_estimators=1, **QUICK),
    SoftStepKNeighborsRegressor(**QUICK),
    SoftStepKNeighborsClassifier(**QUICK),
]


def flats(names=True):
    """A table with every kind of column, and gaps, and whether the flats are dear."""
    generator = np.random.RandomState(0)
    n = N + Q
    table = pd.DataFrame(
        {
            "area": generator.uniform(20, 200, n).round(1),
            "rooms": generator.randint(1, 6, n),
            "quarter": generator.choice(["north", "south"], n),
            "built": pd.Timestamp("1950-01-01")
            + pd.to_timedelta(generator.randint(0, 9999, n), "D"),
            "lift": generator.rand(n) < 0.5,
        },
        NAMES if names else None,
    )
    table.loc[table.index[1], "area"] = np.nan
    table.loc[table.index[2], "quarter"] = None
    table.loc[table.index[3], "built"] = pd.NaT
    return table, (table["area"].fillna(50) > 100).astype(int).to_numpy()


@pytest.fixture(scope="module")
def reg():
    X, y = flats()
    return NONARegressor(n_estimators=1, **QUICK).fit(X[:N], y[:N])


def check_features(table, features, X):
    """Each cell of a row or query is that of its table, all others are gaps."""
    columns = [*features.columns]
    rows = table[table["neighbor"].isin(features.index)]
    pd.testing.assert_frame_equal(
        rows[columns].reset_index(drop=True),
        features.loc[rows["neighbor"]].reset_index(drop=True),
        check_dtype=False,
    )
    queries = table[table["neighbor"] == "query"]
    pd.testing.assert_frame_equal(
        queries[columns].reset_index(drop=True),
        X.loc[queries["query"]].reset_index(drop=True),
        check_dtype=False,
    )
    assert queries["query"].tolist() == [*X.index]
    others = table[table["neighbor"].isin(["others", "network"])]
    assert others[[*columns, "differs"]].isna().all(axis=None)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("own", [False, True])
def test_the_features_are_those_of_the_tables(model, own):
    X, y = flats()
    model.fit(X[:N], y[:N])
    queries = None if own else X[N:]
    table = model.explain(queries, 3, features=X[:N])
    check_features(table, X[:N], X[:N] if own else X[N:])
    # Beside them, it is the same table.
    plain = model.explain(queries, 3)
    without = table[table["neighbor"] != "query"][[*plain.columns]].reset_index(drop=True)
    pd.testing.assert_frame_equal(without, plain, check_dtype=False)
    of_queries = table[table["neighbor"] == "query"]
    assert (of_queries.filter(regex="^(weight|contribution)") == 0).all(axis=None)
    assert of_queries.filter(like="target").isna().all(axis=None)
    first = table.groupby("query", sort=False)["neighbor"].first()
    assert (first == "query").all()


def test_columns_that_differ_most():
    """On paper: the quartiles of the area are 10 apart, those of the price 1."""
    X = pd.DataFrame(
        {
            "area": [0.0, 10.0, 20.0, 30.0, 40.0],
            "price": [0.0, 0.5, 1.0, 1.5, 2.0],
            "same": [7.0] * 5,
            "rare": [0.0, 0, 0, 0, 5.0],  # quartiles of 0: its standard deviation is 2
            "quarter": ["north", "north", "south", "south", None],
        }
    )
    reg = NONARegressor(n_estimators=1, validation_fraction=None, **QUICK).fit(X, X["area"])
    query = pd.DataFrame(
        {"area": [4.0], "price": [0.0], "same": [7.0], "rare": [0.0], "quarter": ["north"]}
    )
    table = reg.explain(query, features=X).set_index("neighbor")["differs"]
    assert table.drop("query").to_dict() == {
        0: "area",  # 4 / 20
        1: "price, area",  # 0.5 / 1, 6 / 20
        2: "price, quarter, area",  # 1 / 1, 1, 16 / 20
        3: "price, area, quarter",  # 1.5, 26 / 20, 1
        4: "rare, price, area",  # 2.5, 2, 36 / 20, and then a gap: 1
    }


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_gaps_and_dates():
    X = pd.DataFrame(
        {
            "when": pd.to_datetime(["2020-01-01", "2020-01-11", "2020-01-21", None, "2020-01-31"]),
            "size": [1.0, np.nan, 2.0, np.nan, 3.0],
            "kind": ["a", None, "a", None, "b"],
        }
    )
    reg = NONARegressor(n_estimators=1, validation_fraction=None, **QUICK).fit(X, np.arange(5.0))
    table = reg.explain(X[1:2], features=X).set_index("neighbor")
    # Days between the quartiles: 15. Two gaps do not differ.
    assert table["differs"].drop("query").to_dict() == {
        0: "size, kind, when",
        1: "",
        2: "size, kind, when",
        3: "when",
        4: "when, size, kind",
    }
    assert table["when"].dtype.kind == "M"


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_names_of_columns_that_the_table_has():
    X = pd.DataFrame(
        np.random.RandomState(0).rand(N, 3), columns=["weight", "differs", "differs'"]
    )
    reg = NONARegressor(n_estimators=1, **QUICK).fit(X, X["weight"])
    table = reg.explain(X[:1], 2, features=X)
    assert [*table.columns][-4:] == ["differs", "weight'", "differs'", "differs''"]
    assert table["weight'"][0] == X["weight"][0]
    assert {*table["differs"].dropna().str.split(", ").sum()} - {""} <= {
        "weight'",
        "differs''",
        "differs'",
    }


def test_names_of_lines_that_rows_have():
    X, y = flats()
    names = "query", "network", "network'", "trend"
    X = X.rename(index={f"flat {i}": name for i, name in enumerate(names)})
    clf = NONAClassifier(n_estimators=1, **QUICK).fit(X[:N], y[:N])
    table = clf.explain(X[N:], 1, features=X[:N])
    assert table["neighbor"][0] == "query'"
    assert table["neighbor"][3] == "network''"
    assert table["neighbor"][4] == "trend'"
    lines = {*clf.explain(None)["neighbor"]}
    assert lines - {*X.index[:N]} == {"network''", "trend'"}


@pytest.mark.slow
def test_arrays_and_polars():
    X, y = flats(names=False)
    numbers = X[["area", "rooms"]].fillna(0)
    expected = NONARegressor(n_estimators=1, **QUICK).fit(numbers[:N], y[:N])
    expected = expected.explain(numbers[N:], 2, features=numbers[:N])
    array = numbers.to_numpy()
    reg = NONARegressor(n_estimators=1, **QUICK).fit(array[:N], y[:N])
    for queries, features in ((array, array), (array, numbers), (array, pl.from_pandas(numbers))):
        table = reg.explain(queries[N:], 2, features=features[:N])
        names = ["x0", "x1"] if features is array else ["area", "rooms"]
        np.testing.assert_array_equal(
            table[names].to_numpy(float), expected[["area", "rooms"]].to_numpy(float)
        )
    frame = pl.from_pandas(X)
    reg = NONARegressor(n_estimators=1, **QUICK).fit(frame[:N], y[:N])
    turned = frame[N:].select(frame.columns[::-1])
    table = reg.explain(turned, 2, features=frame[:N])
    assert table["quarter"][0] == X["quarter"][N]
    assert table["quarter"][1] == X["quarter"][table["neighbor"][1]]


@pytest.mark.slow
def test_rows_are_found_by_name_or_by_id(reg):
    X, y = flats()
    expected = reg.explain(X[N:], 3, features=X[:N])
    for features in (X, X[::-1], X[:N].reset_index(drop=True)):
        pd.testing.assert_frame_equal(reg.explain(X[N:], 3, features=features), expected)
    # The rows of a random split have the row numbers of the whole table as names.
    whole, _ = flats(names=False)
    kept = np.random.RandomState(0).permutation(N)[:30]
    split = NONARegressor(n_estimators=1, **QUICK).fit(whole.iloc[kept], y[kept])
    for features in (whole, whole.iloc[kept]):
        check_features(split.explain(whole[N:], 3, features=features), whole, whole[N:])


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_rows_that_came_and_went():
    X, y = flats(names=False)
    reg = NONARegressor(n_estimators=1, **QUICK).fit(X[:N], y[:N])
    reg.remove_neighbors(ids=[0, 7])
    check_features(reg.explain(X[N:], 3, features=X[:N]), X, X[N:])
    reg.add_neighbors(X[N:], y[N:])
    table = reg.explain(X[N:], 1, features=X)
    added = table[table["neighbor"] == N]
    assert added["differs"].tolist() == [""]
    with pytest.raises(
        ValueError, match=r"it has 40 rows, and lacks those of the ids 40, 41, 42$"
    ):
        reg.explain(X[N:], 1, features=X[:N])


def test_inside_a_pipeline_they_are_those_before_the_steps():
    X, y = flats()
    model = make_pipeline(FunctionTransformer(lambda X: X[["area", "rooms"]]), MODELS[0])
    model.fit(X[:N], y[:N])
    check_features(unwrap(model).explain(X[N:], 2, features=X[:N]), X[:N], X[N:])


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros(3), r"features must be the table given to fit.*, got shape \(3,\)"),
        (
            flats()[0][1:N],
            "features must have a row for each name in the bank, it lacks 'flat 0'$",
        ),
        (
            flats()[0].drop(columns="area").assign(size=1),
            "features must have the columns of X: it lacks 'area', and not in X are 'size'$",
        ),
        (
            flats()[0].assign(size=1),
            "features must have the columns of X: not in X are 'size'$",
        ),
        (np.zeros((N, 4)), "features must have the columns of X, 5, got 4"),
        (np.zeros((N + 1, 5)), "features must have the rows given to fit .*, 40 in all, got 41"),
        (np.zeros((N - 6, 5)), "lacks those of the ids 34, 35, 36, 37, 38 and 1 more"),
        (
            pd.concat([flats()[0][1:2], flats()[0]]),
            "a different name for each row, got several rows called 'flat 1'",
        ),
        (pl.LazyFrame({"a": [1]}), "features must be a table in memory, got LazyFrame"),
    ],
)
def test_bad_features_are_named(reg, features, message):
    X, _ = flats()
    with pytest.raises((ValueError, TypeError), match=message):
        reg.explain(X[N:], 1, features=features)


def test_embedded_queries_have_no_features(reg):
    X, _ = flats()
    with pytest.raises(ValueError, match="X must be a table where features are given"):
        reg.explain(reg.embed(X[N:]), 1, features=X[:N])
