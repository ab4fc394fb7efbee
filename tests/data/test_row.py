"""One row of a table is read by its cells, with the results of a frame that is read by columns."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inner.data import read_by_cells, read_by_columns

from nona_sklearn import SoftStepKNeighborsRegressor, TableEncoder

pd = pytest.importorskip("pandas")

# Queries are training rows.
pytestmark = pytest.mark.filterwarnings("ignore:.* whose own target is part of the prediction")

N = 120
RNG = np.random.default_rng(0)
MOMENT = pd.Timestamp("2021-03-04 05:06:07.123456789")


def table(n=N):
    """A table with a column of each kind."""
    numbers = np.where(np.arange(n) % 7 == 3, np.nan, np.arange(n) % 11 + 0.5)
    return pd.DataFrame(
        {
            "number": numbers,
            "whole": np.arange(n) % 5,
            "flag": np.arange(n) % 2 == 0,
            "level": np.array(["a", "b", None], dtype=object)[np.arange(n) % 3],
            "many": [f"m{i % 70}" for i in range(n)],
            "size": pd.Categorical.from_codes(np.arange(n) % 3, ["S", "M", "L"], ordered=True),
            "code": pd.Categorical.from_codes(np.arange(n) % 2, [3, 7]),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n) * 30.5, "h"),
            "length": pd.to_timedelta(np.arange(n) % 9 * 1.25, "s"),
            "written": [f"{i % 8}.5" for i in range(n)],
            "iso": [f"2022-01-{i % 28 + 1:02}" for i in range(n)],
            "text": ["some words", "other words", "nothing"] * (n // 3),
            "ignored": [*"xyz"] * (n // 3),
            "latitude": 50 + np.arange(n) % 10 / 10,
            "longitude": 7 + np.arange(n) % 9 / 10,
        }
    )


X = table()
Y = np.nan_to_num(X["number"].to_numpy()) + X["whole"]
ENCODER = TableEncoder(
    text_features="text", ignored_features="ignored", places=("latitude", "longitude")
)


def fit(**params):
    """A regressor of the table, by few steps."""
    options = {"n_neighbors": 5, "max_iter": 1, "random_state": 0} | params
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # strings are read as numbers; training is short
        return SoftStepKNeighborsRegressor(table_encoder=ENCODER, **options).fit(X, Y)


@pytest.fixture(scope="module")
def knn():
    return fit()


def outcome(function, *args):
    """What a function returns, as bytes, or its error, with the warnings of both."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = np.asarray(function(*args)).tobytes()
        except Exception as error:
            result = type(error), str(error)
    return result, [(each.category, str(each.message)) for each in caught]


def is_as_by_columns(function, frame):
    """Whether a row gives what it gives where it is read by columns."""
    with read_by_columns():
        expected = outcome(function, frame)
    assert outcome(function, frame) == expected
    return expected


VALUES = [
    *(1, 0, -3, 2**60 + 1, 2.5, -0.0, np.nan, np.inf, True, None, pd.NA, pd.NaT, "", "a", "b"),
    *("m3", "new", "S", "L", "7", "2.5", "NA", "2022-01-05", "2022-01-05T10:00+02:00", "words"),
    *(np.float32(0.1), np.float64(1.5), np.int8(3), np.uint64(2**63), np.bool_(True)),
    *(np.str_("a"), np.datetime64("2021-01-01", "ns"), np.timedelta64(1500, "ms"), MOMENT),
    *(MOMENT.tz_localize("Europe/Berlin"), pd.Timedelta("1.25s"), pd.Timedelta(-1, "ns")),
    *(datetime.date(2021, 5, 6), datetime.datetime(2021, 5, 6, 7), datetime.time(3)),
    *(datetime.timedelta(seconds=2), Decimal("1.5"), Decimal("NaN"), 1j, [1], b"a", 10**400),
    *(pd.Interval(0, 1), pd.Period("2021-01"), pd.Timestamp("1960-01-01 00:00:00.000000001")),
]
TYPES = [
    *(None, object, "str", "category", "float32", "float64", "int64", "Int64", "Float64"),
    *("boolean", "bool", "datetime64[ns]", "datetime64[s]", "timedelta64[ns]", ">f8"),
    *("datetime64[ns, UTC]", "Sparse[float64]", "complex128", "period[D]", "string"),
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    row=st.integers(0, N - 1),
    changes=st.dictionaries(
        st.sampled_from([*X]),
        st.tuples(st.sampled_from(VALUES), st.sampled_from(TYPES)),
        max_size=3,
    ),
    order=st.permutations([*X]),
    reorders=st.booleans(),
)
def test_every_cell_and_type_is_read_as_by_columns(knn, row, changes, order, reorders):
    frame = X.iloc[[row]].copy()
    for name, (value, dtype) in changes.items():
        column = pd.Series([value], frame.index, dtype=object)
        try:
            column = column.infer_objects() if dtype is None else column.astype(dtype)
        except Exception:  # pandas has no such value of this type
            continue
        frame[name] = column
    is_as_by_columns(knn.transform, frame[order] if reorders else frame)


@pytest.mark.parametrize("name", [*X])
def test_a_dict_is_read_as_a_column_of_objects(knn, name):
    for value in VALUES:
        frame = X.iloc[[4]].astype(object)
        row = frame.iloc[0].to_dict() | {name: value}
        frame[name] = np.array([None], dtype=object)
        frame.iat[0, [*X].index(name)] = value
        if hasattr(value, "__len__") and not isinstance(value, str | bytes):
            with pytest.raises(ValueError, match=r"^X must be a table, got a dict"):
                knn.transform(row)
            continue
        with read_by_columns():
            expected = outcome(knn.transform, frame)
        assert outcome(knn.transform, row) == expected, value


def test_a_row_of_usual_types_is_read_by_cells(knn):
    expected = knn.transform(X.iloc[:3])
    with read_by_cells():
        for row in range(3):
            (found,) = knn.transform(X.iloc[[row]])
            np.testing.assert_array_equal(found, expected[row])
            (found,) = knn.transform(X.iloc[row].to_dict())
            np.testing.assert_array_equal(found, expected[row])
            (found,) = knn.transform(X.iloc[row, ::-1])
            np.testing.assert_array_equal(found, expected[row])
        with pytest.raises(NameError):
            knn.transform(X.iloc[:2])
