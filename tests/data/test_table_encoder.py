"""A table as one matrix of numbers: by itself, and under the estimators."""

import datetime as dt
import pickle
import re
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inner.training import loop
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from nona_sklearn import NONARegressor, SoftStepKNeighborsRegressor, TableEncoder

DAY = 86400.0  # seconds
BERLIN = "Europe/Berlin"
UTC = dt.timezone.utc  # noqa: UP017 -- pandas 2 names it so, too
ESTIMATORS = [
    NONARegressor(n_estimators=1, max_iter=2, random_state=0),
    SoftStepKNeighborsRegressor(max_iter=2, random_state=0),
]
ON_ESTIMATORS = pytest.mark.parametrize("estimator", ESTIMATORS, ids=["nona", "softstep"])
ON_ALL = pytest.mark.parametrize(
    "estimator", [TableEncoder(), *ESTIMATORS], ids=["encoder", "nona", "softstep"]
)


def encode(X, **kwargs):
    """Fit an encoder without rare levels on a table: (encoder, columns of the output by name)."""
    encoder = TableEncoder(min_frequency=1, **kwargs)
    Z = encoder.fit_transform(X)
    check_output(encoder, Z)
    return encoder, dict(zip(encoder.get_feature_names_out(), Z.T.tolist(), strict=True))


def columns_of(X, **kwargs):
    return encode(X, **kwargs)[1]


def choice_of(estimator):
    """The name by which an encoder, or an estimator that has one, is given its categories."""
    name = "categorical_features"
    return name if isinstance(estimator, TableEncoder) else f"table_encoder__{name}"


def choosing(estimator, chosen):
    """A copy with chosen categories."""
    return clone(estimator).set_params(**{choice_of(estimator): chosen})


def check_output(encoder, Z):
    """What holds of whatever comes out."""
    assert Z.dtype == np.float64
    assert np.isfinite(Z).all()
    assert Z.shape[1] == len(encoder.get_feature_names_out()) == len(encoder.source_)
    assert len(encoder.features_) == encoder.n_features_in_
    assert set(encoder.source_) == set(range(encoder.n_features_in_))
    inputs = getattr(encoder, "feature_names_in_", [f"x{j}" for j in set(encoder.source_)])
    for name, j in zip(encoder.get_feature_names_out(), encoder.source_, strict=True):
        assert name.startswith(inputs[j])


def one(values, **kwargs):
    """A pandas frame of one column."""
    return pd.DataFrame({"x": pd.Series(values, **kwargs)})


def category(values, **kwargs):
    return one(pd.Categorical(values, **kwargs))


def polars(values, dtype=None):
    return pl.DataFrame({"x": pl.Series(values, dtype=dtype)})


def arrow(values, dtype):
    """A pandas frame of one column that Arrow holds."""
    return lambda: one(values, dtype=dtype)


def arrow_table(values, dtype=None):
    def make():
        pa = pytest.importorskip("pyarrow")
        array = pa.array(values)
        return pa.table({"x": array.dictionary_encode() if dtype == "dictionary" else array})

    return make


def made(frame):
    """A frame, or what makes one if pyarrow is there."""
    if callable(frame):
        pytest.importorskip("pyarrow")
        return frame()
    return frame


def mixed_frame(n=40, seed=0):
    """A table as people have it, and a target that depends on most of it."""
    rng = np.random.default_rng(seed)
    area = rng.normal(size=n)
    city = rng.choice(["Bonn", "Kiel", "Ulm"], n)
    sold = dt.datetime(2020, 1, 1) + rng.integers(0, 700, n) * dt.timedelta(days=1)
    X = pd.DataFrame(
        {
            "area": np.where(rng.random(n) < 0.2, np.nan, area),
            "city": pd.Series(city, dtype="category"),
            "size": pd.Categorical(rng.choice(["S", "L"], n), categories=["S", "L"], ordered=True),
            "sold": pd.Series(sold).dt.tz_localize(BERLIN),
            "garage": pd.Series(rng.choice([True, False], n)),
            "rooms": pd.Series(rng.integers(1, 6, n), dtype="Int64"),
        }
    )
    return X, area + (city == "Bonn")


# -- numbers -------------------------------------------------------------------------------


LENGTHS = [dt.timedelta(days=1), dt.timedelta(seconds=1.5), None]
NUMBERS = {
    "floats": (
        [[1.0, 2.5, 1.75], [0, 0, 1]],
        [
            [[1.0], [2.5], [None]],
            np.array([[1.0], [2.5], [np.nan]]),
            np.array([[1.0], [2.5], [np.nan]], dtype=np.float32),
            np.array([[1], [2.5], [None]], dtype=object),
            np.array([[np.float32(1)], [Decimal("2.5")], [Decimal("nan")]], dtype=object),
            one([1, 2.5, np.nan]),
            one([1, 2.5, None], dtype="float32"),
            one([1, 2.5, None], dtype="Float64"),
            one([1, 2.5, pd.NA], dtype=object),
            one([True, 2.5, None], dtype=object),
            one([Decimal(1), Decimal("2.5"), None]),
            one([Fraction(1), Fraction(5, 2), None]),
            polars([1.0, 2.5, None]),
            polars([1.0, 2.5, np.nan]),
            polars([Decimal("1.0"), Decimal("2.5"), None]),
            polars([1, 2.5, None], pl.Object),
            arrow([1, 2.5, None], "double[pyarrow]"),
            arrow_table([1, 2.5, None]),
            arrow_table([Decimal("1.0"), Decimal("2.5"), None]),
        ],
    ),
    "truth and integers": (
        [[1, 0, 0.5], [0, 0, 1]],
        [
            [[True], [False], [None]],
            one([True, False, None], dtype=object),
            one([True, False, pd.NA], dtype="boolean"),
            one([1, 0, pd.NA], dtype="Int64"),
            one([1, 0, pd.NA], dtype="UInt8"),
            polars([True, False, None]),
            polars([1, 0, None], pl.Int8),
            arrow([True, False, None], "bool[pyarrow]"),
            arrow([1, 0, None], "int64[pyarrow]"),
            arrow_table([True, False, None]),
        ],
    ),
    "truth without gaps": ([[1, 0]], [np.array([[True], [False]]), one([True, False])]),
    "durations": (
        [[DAY, 1.5, (DAY + 1.5) / 2], [0, 0, 1]],
        [
            one(LENGTHS),
            one(pd.to_timedelta(LENGTHS).astype("timedelta64[ms]")),
            one(LENGTHS, dtype=object),
            one([np.timedelta64(1, "D"), np.timedelta64(1500, "ms"), pd.NaT], dtype=object),
            [[length] for length in LENGTHS],
            np.array(LENGTHS, dtype="timedelta64[ms]")[:, None],
            polars(LENGTHS),
            polars(LENGTHS, pl.Duration("ms")),
            arrow(LENGTHS, "duration[us][pyarrow]"),
            arrow_table(LENGTHS),
        ],
    ),
}


@pytest.mark.parametrize(
    ("expected", "X"), [(expected, X) for expected, tables in NUMBERS.values() for X in tables]
)
def test_a_number_is_itself_and_a_gap_the_median(expected, X):
    """Truth values and integers are numbers, and durations are their seconds."""
    np.testing.assert_allclose(list(columns_of(made(X)).values()), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("X", "largest"),
    [
        (one([2**53 + 1, 0]), 2.0**53),
        (one([2**64 - 1, 0], dtype="uint64"), 2.0**64),
        (one([10**30, 0], dtype=object), 1e30),
        ([[10**30], [0]], 1e30),
        (polars([2**64 - 1, 0], pl.UInt64), 2.0**64),
    ],
)
def test_large_integers_are_taken_as_float64(X, largest):
    assert columns_of(X) == {next(iter(columns_of(X))): [largest, 0]}


def test_an_integer_too_large_for_float64_is_refused():
    with pytest.raises(ValueError, match=r"column 'x' holds a value out of range.*too large"):
        TableEncoder().fit(one([10**400, 0], dtype=object))


@pytest.mark.parametrize(
    "value", [Decimal("sNaN"), dt.datetime(9999, 12, 31, 23, 59, tzinfo=dt.UTC)]
)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_column(value):
    berlin = dt.datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    first = berlin if isinstance(value, dt.datetime) else Decimal(1)
    encoder = TableEncoder().fit(one([first, first], dtype=object))
    with pytest.raises(ValueError, match="column 'x' holds a value out of range"):
        encoder.transform(one([value, first], dtype=object))


def test_moments_of_one_time_zone_are_read_by_its_clock():
    zone = ZoneInfo("Europe/Berlin")
    moments = [dt.datetime(2020, month, 1, 9, tzinfo=zone) for month in (1, 7)]
    columns = columns_of(one(moments, dtype=object))
    assert "x_day_sin" not in columns  # nine o'clock in winter and in summer
    assert columns == columns_of(one(moments))


def test_durations_are_no_numbers_and_numbers_no_durations():
    days = one(pd.to_timedelta([1, 2], unit="D"))
    with pytest.raises(ValueError, match="'x' held durations in fit, and holds numbers now"):
        TableEncoder().fit(days).transform(one([1.0, 2.0]))
    with pytest.raises(ValueError, match="'x' held numbers in fit, and holds durations now"):
        TableEncoder().fit(one([1.0, 2.0])).transform(days)


def test_names_of_columns_differ():
    X = pd.DataFrame({"a": [1, None, 2, 3], "a_missing": range(4), "b": ["missing", None] * 2})
    names = TableEncoder(min_frequency=1).fit(X).get_feature_names_out()
    assert names.tolist() == ["a", "a_missing", "a_missing_", "b_missing", "b_missing_"]
    X = pd.DataFrame({"a": ["x", "x_", "y"], "a_x": ["", "_", None]})
    names = TableEncoder(min_frequency=1).fit(X).get_feature_names_out()
    assert names.tolist() == ["a_x", "a_x_", "a_y", "a_x__", "a_x___", "a_x_missing"]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("regressor", [NONARegressor, SoftStepKNeighborsRegressor])
def test_what_is_configured_for_transformers_does_not_matter(regressor, library):
    X = pd.DataFrame({"a": [1.0, None] * 10, "b": list("xy") * 10})
    reg = regressor(max_iter=1, random_state=0)
    expected = clone(reg).fit(X, np.arange(20.0)).predict(X)
    with config_context(transform_output=library):
        reg.fit(X, np.arange(20.0))
        inside = reg.predict(X)
    np.testing.assert_array_equal(inside, expected)
    np.testing.assert_array_equal(reg.predict(X), expected)


@pytest.mark.parametrize("y", [pd.date_range("2020", periods=9), pd.to_timedelta(range(9))])
def test_targets_are_numbers(y):
    with pytest.raises(ValueError, match=r"y must hold numbers, got (datetime|timedelta)64"):
        NONARegressor().fit(np.ones((9, 1)), pd.Series(y))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize(
    "make",
    [
        lambda v: one([1.0, v]),
        lambda v: one([1, v], dtype=object),
        lambda v: one([1, v], dtype="Float64"),
        lambda v: polars([1.0, v]),
        lambda v: one([Decimal(1), Decimal(str(v))]),
    ],
)
def test_infinity_is_refused_by_its_columns_name(make, value):
    for chosen in ("from_dtype", [0]):
        with pytest.raises(ValueError, match=rf"column 'x' holds {value}, .* replace it"):
            TableEncoder(chosen).fit(make(value))
        encoder = TableEncoder(chosen).fit(make(2.0))
        with pytest.raises(ValueError, match=rf"column 'x' holds {value}, .* replace it"):
            encoder.transform(make(value))


@ON_ALL
@pytest.mark.parametrize("chosen", ["from_dtype", [1]])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, object])
def test_infinity_in_arrays_is_refused_by_its_columns_number(estimator, chosen, dtype):
    estimator = choosing(estimator, chosen)
    X, y = np.tile([[1, 2], [3, 4]], (10, 1)).astype(dtype), np.arange(20.0)
    infinite = X.copy()
    infinite[7, 1] = -np.inf
    with pytest.raises(ValueError, match="column 1 holds -inf, which is near nothing"):
        estimator.fit(infinite, y)
    estimator.fit(X, y)
    with pytest.raises(ValueError, match="column 1 holds -inf, which is near nothing"):
        estimator.transform(infinite)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (np.array([1, 7, 3]), np.array([1, np.nan, 3])),
        (np.array([True, True, False]), np.array([1, np.nan, 0])),
        (np.array([1, np.inf, 3], np.float32), np.array([1, np.nan, 3])),
        (np.array(["a", "b", "c"]), np.array(["a", None, "c"])),
        (np.array(["a", 5, "c"], dtype=object), np.array(["a", None, "c"])),
        (np.array([20, 30, 40], "M8[D]"), np.array([20, "NaT", 40], "M8[D]")),
        (np.array([20, 30, 40], "M8[ns]"), np.array([20, "NaT", 40], "M8[ns]")),
        (np.array([20, 30, 40], "m8[s]"), np.array([20, "NaT", 40], "m8[s]")),
    ],
    ids=lambda column: str(column.dtype),
)
def test_masked_entries_are_gaps(column, expected):
    X, given = expected[:, None], column.copy()
    masked = np.ma.array(column[:, None], mask=[[0], [1], [0]])
    for chosen in ["from_dtype"] if column.dtype.kind in "mM" else ["from_dtype", [0]]:
        encoder, columns = encode(X, categorical_features=chosen)
        assert columns_of(masked, categorical_features=chosen) == columns
        np.testing.assert_array_equal(encoder.transform(masked), encoder.transform(X))
    np.testing.assert_array_equal(masked.data[:, 0], given)


def test_a_masked_array_may_hide_nothing():
    X = np.ma.array([[1], [7]])
    assert columns_of(X) == columns_of(X.data)


@ON_ESTIMATORS
def test_what_is_masked_in_targets_weights_and_groups_is_missing(estimator):
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.ma.arange(20)
    bad = y.copy()
    bad[7] = np.ma.masked
    for message, arguments in [
        ("Input y contains NaN: nan in row 7", {"y": bad}),
        ("sample_weight must be finite .*, got nan in row 7", {"y": y, "sample_weight": bad}),
        ("groups must not be missing, got .*nan.* in row 7", {"y": y, "groups": bad}),
    ]:
        with pytest.raises(ValueError, match=message):
            clone(estimator).fit(X, **arguments)
    reg = clone(estimator).fit(X, y, sample_weight=y + 1)
    np.testing.assert_array_equal(
        reg.predict(X), clone(estimator).fit(X, y.data, sample_weight=y.data + 1).predict(X)
    )
    with pytest.raises(ValueError, match="Input y contains NaN"):
        reg.predict_cdf(X, bad)


def test_a_level_of_a_categorical_may_be_infinite():
    """It is a label there, such as the last edge of some bins."""
    assert list(columns_of(category([1.0, np.inf]))) == ["x_1.0", "x_inf"]


# -- dates -----------------------------------------------------------------------------------

MOMENTS = [dt.datetime(2020, 1, 1, 6), dt.datetime(2021, 7, 4, 18, 30), None]
NAIVE = {
    "pandas": one(MOMENTS),
    "nanoseconds": one(pd.Series(MOMENTS).astype("datetime64[ns]")),
    "seconds": one(pd.Series(MOMENTS).astype("datetime64[s]")),
    "objects": one(MOMENTS, dtype=object),
    "numpy's objects": one([np.datetime64(MOMENTS[0]), MOMENTS[1], pd.NaT], dtype=object),
    "list": [[moment] for moment in MOMENTS],
    "array": np.array(MOMENTS, dtype="datetime64[s]")[:, None],
    "polars": polars(MOMENTS),
    "polars ns": polars(MOMENTS, pl.Datetime("ns")),
    "pandas of arrow": arrow(MOMENTS, "timestamp[us][pyarrow]"),
    "arrow": arrow_table(MOMENTS),
}


@pytest.mark.parametrize("source", NAIVE)
def test_moments_are_the_same_in_every_library(source):
    expected = list(columns_of(NAIVE["pandas"]).values())
    np.testing.assert_allclose(
        list(columns_of(made(NAIVE[source])).values()), expected, rtol=1e-12, atol=1e-12
    )


DAYS = [dt.date(2020, 1, 1), dt.date(2021, 7, 4), None]


@pytest.mark.parametrize(
    "X",
    [
        one(DAYS),
        one(pd.to_datetime(DAYS)),
        one([DAYS[0], dt.datetime(2021, 7, 4), pd.NaT], dtype=object),
        [[day] for day in DAYS],
        np.array(DAYS, dtype="datetime64[D]")[:, None],
        polars(DAYS),
        arrow(DAYS, "date32[pyarrow]"),
        arrow_table(DAYS),
    ],
)
def test_days_are_the_same_in_every_library(X):
    found = columns_of(made(X))
    assert not any("day_sin" in name or "day_cos" in name for name in found)  # all at midnight
    expected = list(columns_of(one(pd.to_datetime(DAYS))).values())
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-12, atol=1e-12)


def turn(columns, period):
    """Where on its circle a part of a date lies, from 0 to 1."""
    sine, cosine = (np.array(columns[f"x_{period}_{name}"]) for name in ("sin", "cos"))
    np.testing.assert_allclose(np.hypot(sine, cosine), np.hypot(sine, cosine)[0])
    return np.arctan2(sine, cosine) / (2 * np.pi)


# A date is at most 1e6 days away: its angle is good to 2 pi 1e6 eps = 1e-9.
def assert_turns(found, expected):
    apart = (found - expected + 0.5) % 1 - 0.5
    np.testing.assert_allclose(apart, 0, atol=1e-8)


@pytest.mark.slow
@given(
    st.lists(
        st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)), min_size=3, unique=True
    )
)
def test_the_parts_of_a_date_are_those_of_datetime(moments):
    # Beside two dates that differ in all parts, so that none is left out.
    moments = [dt.datetime(1999, 2, 2, 3), dt.datetime(2003, 8, 14, 8), *moments]
    columns = columns_of(one(pd.Series(moments, dtype="datetime64[us]")))
    midnights = [dt.datetime(t.year, t.month, t.day) for t in moments]
    day = np.array([(t - m) / dt.timedelta(1) for t, m in zip(moments, midnights, strict=True)])
    assert_turns(turn(columns, "day"), day)
    weekday = np.array([t.isocalendar().weekday for t in moments])
    assert_turns(turn(columns, "week"), (weekday - 1 + day) / 7)
    in_year = np.array([t.timetuple().tm_yday for t in moments])
    length = np.array([dt.date(t.year, 12, 31).timetuple().tm_yday for t in moments])
    assert_turns(turn(columns, "year"), (in_year - 1 + day) / length)
    for name, values in [
        ("x_year", [t.year for t in moments]),
        ("x_days", np.array([t.toordinal() for t in moments]) + day),
    ]:
        assert np.corrcoef(columns[name], values)[0, 1] == pytest.approx(1, abs=1e-9)


def test_the_last_moment_of_a_circle_is_next_to_the_first():
    ends = [dt.datetime(2023, 1, 1), dt.datetime(2023, 12, 31, 23, 59, 59)]  # both Sundays
    far = dt.datetime(2023, 7, 5, 12)
    encoder, _ = encode(one([*ends, far]))
    for part in ("year", "day"):
        found = dict(
            zip(encoder.get_feature_names_out(), encoder.transform(one(ends)).T, strict=True)
        )
        assert abs(np.diff(turn(found, part)))[0] % 1 == pytest.approx(0, abs=1e-4)


def test_parts_of_a_date_that_do_not_differ_are_left_out():
    monday = dt.datetime(2021, 3, 1, 12)
    same_weekday = [monday + dt.timedelta(weeks=i) for i in range(3)]
    names = set(columns_of(one(same_weekday)))
    assert names == {"x_days", "x_year_sin", "x_year_cos"}
    assert len(columns_of(one([monday] * 3))) == 1
    assert len(columns_of(one([monday, monday, None]))) == 2


def test_a_missing_date_is_the_median_of_every_part_with_an_indicator():
    columns = columns_of(one(MOMENTS))
    for name, (first, second, missing) in columns.items():
        if name != "x_missing":
            assert missing == pytest.approx((first + second) / 2)
    assert columns["x_missing"] == [0, 0, 1]


LOCAL = pd.Series(MOMENTS).dt.tz_localize(BERLIN)
UNIVERSAL = [*(moment.to_pydatetime().astimezone(UTC) for moment in LOCAL[:2]), None]


@pytest.mark.parametrize(
    "X",
    [
        one(LOCAL),
        one(LOCAL.dt.tz_convert("Asia/Tokyo")),
        one(LOCAL.dt.tz_convert("+05:30")),
        one(LOCAL.dt.tz_convert("America/New_York")),
        one(LOCAL.dt.tz_convert("Etc/GMT+5")),
        one(LOCAL.dt.tz_convert("dateutil/Asia/Tokyo")),
        one(LOCAL.astype(object)),
        LOCAL.dt.tz_convert("UTC").to_frame("x").to_numpy(),
        polars(MOMENTS, pl.Datetime("us")).with_columns(pl.col("x").dt.replace_time_zone(BERLIN)),
        polars(UNIVERSAL, pl.Datetime("us", "UTC")),
    ],
    ids=[
        *("same", "Tokyo", "offset", "underscore", "sign", "dateutil"),
        *("objects", "array", "polars", "polars UTC"),
    ],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
def test_the_clock_of_fit_reads_every_time_zone(X):
    encoder, columns = encode(one(LOCAL))
    expected = np.array(list(columns.values())).T
    np.testing.assert_allclose(encoder.transform(X), expected, rtol=1e-12, atol=1e-12)
    # The clock in Berlin shows what a date without a time zone does.
    naive = np.array(list(columns_of(one(MOMENTS)).values())).T
    np.testing.assert_allclose(expected, naive, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Hong_Kong", "Etc/GMT+5"])
def test_pandas_dates_are_read_by_the_clock_of_any_zone(zone):
    naive = np.array(list(columns_of(one(MOMENTS)).values()))
    local = np.array(list(columns_of(one(pd.Series(MOMENTS).dt.tz_localize(zone))).values()))
    np.testing.assert_allclose(local, naive, rtol=1e-12, atol=1e-12)


def test_summer_time_is_the_clocks():
    noon = pd.Series(["2021-01-10 12:00", "2021-07-10 12:00"], dtype="datetime64[ns]")
    local = noon.dt.tz_localize(BERLIN)
    assert not any("day_" in name for name in columns_of(one(local)))
    assert any("day_" in name for name in columns_of(one(local.dt.tz_convert("UTC"))))


@pytest.mark.parametrize(
    "zone",
    [
        *("+03:00", BERLIN, "UTC", "America/New_York", "America/Argentina/Buenos_Aires"),
        *("Etc/GMT+5", "dateutil/America/New_York"),
    ],
)
def test_dates_of_a_zone_in_pandas_are_understood_in_polars_and_as_objects(zone):
    X = one(LOCAL.dt.tz_convert(zone))
    encoder, columns = encode(X)
    expected = np.array(list(columns.values())).T
    for other in (polars(UNIVERSAL, pl.Datetime("us", "UTC")), one(UNIVERSAL, dtype=object)):
        np.testing.assert_allclose(encoder.transform(other), expected, rtol=1e-12, atol=1e-12)


# -- categories ----------------------------------------------------------------------------

WORDS = ["a", "b", None, "a"]
LEVELS = [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    "X",
    [
        one(WORDS, dtype="category"),
        one(WORDS, dtype=object),
        one(["a", "b", np.nan, "a"], dtype=object),
        one(["a", "b", pd.NA, "a"], dtype=object),
        one(["a", "b", pd.NaT, "a"], dtype=object),
        one(WORDS),
        one(WORDS, dtype="string"),
        one([None if word is None else np.str_(word) for word in WORDS], dtype=object),
        [[word] for word in WORDS],
        np.array(WORDS, dtype=object)[:, None],
        polars(WORDS),
        polars(WORDS, pl.Categorical),
        polars(WORDS, pl.Enum(["b", "z", "a"])),
        polars(WORDS, pl.Object),
        arrow(WORDS, "string[pyarrow]"),
        lambda: one(WORDS, dtype=pd.ArrowDtype(pytest.importorskip("pyarrow").string())),
        arrow_table(WORDS),
        arrow_table(WORDS, "dictionary"),
        np.array([["a"], ["b"]]),
        np.array([["a"], ["b"]], dtype=np.dtypes.StringDType()),
        [["a"], ["b"]],
        category(["a", "b"]),
    ],
)
def test_strings_are_a_column_for_each_level(X):
    table = made(X)
    expected = LEVELS if len(table) == 4 else [[1, 0], [0, 1]]
    assert list(columns_of(table).values()) == expected


def test_levels_that_no_row_has_are_no_columns():
    assert list(columns_of(category(["b"] * 3, categories=["a", "b"])).values()) == [[1, 1, 1]]


def test_an_empty_string_is_a_level():
    assert len(columns_of(one(["", "a", None], dtype=object))) == 3


@pytest.mark.parametrize(
    "levels", [[10, 5, None, 10], [1.5, 0.5, None, 1.5], [True, False, None, True]]
)
def test_categories_of_numbers(levels):
    X = category(levels)
    second, first, missing = LEVELS
    assert list(columns_of(X).values()) == [first, second, missing]
    encoder, _ = encode(X)
    # A file read again holds plain numbers.
    np.testing.assert_array_equal(
        encoder.transform(one([float(v) if v is not None else np.nan for v in levels])),
        encoder.transform(X),
    )


@pytest.mark.parametrize("levels", [["lo", "mid", "hi"], [3, 7, 5], [0.5, 2.5, 1.5]])
def test_an_ordered_category_is_its_place_and_its_level(levels):
    lo, _, hi = levels
    X = category([lo, hi, hi, None], categories=levels, ordered=True)
    encoder, columns = encode(X)
    assert columns.pop("x") == [0, 2, 2, 2]
    assert columns == {f"x_{lo}": [1, 0, 0, 0], f"x_{hi}": [0, 1, 1, 0], "x_missing": [0, 0, 0, 1]}
    again = one([lo, hi, hi, None], dtype=object)
    np.testing.assert_array_equal(encoder.transform(again), encoder.transform(X))
    # A level that it does not have is in the middle.
    unknown = "other" if isinstance(lo, str) else 99
    np.testing.assert_array_equal(
        np.sort(encoder.transform(one([unknown]))), [[0.25, 0.25, 0.5, 2]]
    )


@pytest.mark.parametrize("ordered", [True, False])
def test_what_is_cut_is_a_category_of_its_intervals(ordered):
    def cut(values):
        bins = pd.cut(pd.Series(values), [0, 3, 6, 10])
        return one(bins if ordered else bins.cat.as_unordered())

    encoder, columns = encode(cut([7.0, 1, 5, 2, 8]))
    levels = ["x_(0, 3]", "x_(3, 6]", "x_(6, 10]"]
    places = {"x": [2, 0, 1, 0, 2]} if ordered else {}
    assert columns == places | dict(
        zip(levels, [[0, 1, 0, 1, 0], [0, 0, 1, 0, 0], [1, 0, 0, 0, 1]], strict=True)
    )
    later = encoder.transform(cut([4, 99]))  # a gap makes its edges floats
    np.testing.assert_array_equal(later[0], np.array(list(columns.values()))[:, 2])
    other_bins = encoder.transform(one(pd.cut(pd.Series([4, 5]), [0, 4, 10])))
    np.testing.assert_array_equal(other_bins, [later[1]] * 2)  # no level of fit's
    for held, values in {"numbers": [4.0, 5.0], "strings": ["(3, 6]"]}.items():
        message = f"column 'x' held intervals in fit, and holds {held} now, such as {values[0]!r}"
        with pytest.raises(ValueError, match=re.escape(message)):
            encoder.transform(one(values))
    with pytest.raises(ValueError, match=r"'x' held strings in fit, and holds intervals now"):
        TableEncoder().fit(one(["(3, 6]"])).transform(cut([4]))


@ON_ESTIMATORS
def test_estimators_take_what_is_cut(estimator):
    values = np.arange(40) % 10 + 0.5
    X = pd.DataFrame({"bin": pd.cut(values, [0, 3, 6, 9.2]), "q": pd.qcut(values, 4)})
    reg = clone(estimator).fit(X, values)
    # Other queries change the rounding of products; a step magnifies float32's last digit.
    expected, rtol = reg.predict(X), 10 * np.finfo(np.float32).eps
    np.testing.assert_allclose(reg.predict(X[::-1]), expected[::-1], rtol=rtol)
    np.testing.assert_allclose(reg.predict(X[:1]), expected[:1], rtol=rtol)


def test_a_gap_and_a_level_called_none_are_two():
    X = one(["None", None, "None", None], dtype=object)
    assert list(encode(X)[1]) == ["x_None", "x_missing"]


@pytest.mark.parametrize("n", [1, 3])
def test_levels_are_those_of_a_one_hot_encoder(n):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.choice(list("abcdefg"), 50) for name in "xy"})
    limits = {"max_categories": 5, "min_frequency": n}
    oracle = OneHotEncoder(
        **limits, handle_unknown="infrequent_if_exist", sparse_output=False
    ).fit(X)
    encoder = TableEncoder(**limits)
    Z = encoder.fit_transform(X)
    check_output(encoder, Z)
    np.testing.assert_array_equal(Z, oracle.transform(X))
    assert list(encoder.get_feature_names_out()) == list(oracle.get_feature_names_out())
    other = X.replace("a", "unknown")
    np.testing.assert_array_equal(encoder.transform(other), oracle.transform(other))


def test_numbers_are_those_of_an_imputer_and_an_indicator():
    X = np.random.default_rng(0).normal(size=(30, 4))
    X[::3, 1] = X[1::4, 3] = np.nan
    expected = [SimpleImputer(strategy="median").fit_transform(X)]
    expected += [MissingIndicator().fit_transform(X)]
    np.testing.assert_array_equal(TableEncoder().fit_transform(X), np.hstack(expected))


@pytest.mark.slow
@given(st.lists(st.sampled_from("abcdefgh"), min_size=12, max_size=40), st.integers(2, 5))
def test_unknown_levels_look_like_rare_ones(levels, min_frequency):
    X = one([*levels, "rare"])
    encoder = TableEncoder(min_frequency=min_frequency).fit(X)
    rare, unknown = encoder.transform(one(["rare", "unknown"]))
    np.testing.assert_array_equal(rare, unknown)
    assert rare.sum() == 1
    for level in set(levels):
        alike = np.array_equal(encoder.transform(one([level]))[0], unknown)
        assert alike == (levels.count(level) < min_frequency)


def test_unknown_levels_are_the_mean_of_training_rows_where_none_is_rare():
    """No training row is 0 in all columns of a category."""
    encoder, _ = encode(one(["a", "b", "b", "b"]))
    np.testing.assert_array_equal(encoder.transform(one(["c", None])), [[0.25, 0.75]] * 2)


@pytest.mark.parametrize("max_categories", [1, 2, 4])
def test_a_category_becomes_at_most_max_categories_columns(max_categories):
    X = one([letter for i, letter in enumerate("abcdef") for _ in range(i + 1)])
    Z = TableEncoder(max_categories=max_categories, min_frequency=1).fit_transform(X)
    assert Z.shape[1] == max_categories
    assert (Z.sum(axis=1) == 1).all()


# -- gaps ------------------------------------------------------------------------------------


def test_a_column_has_an_indicator_of_gaps_only_if_fit_saw_some():
    X = pd.DataFrame({"full": [1.0, 2.0, 6.0], "gaps": [4.0, None, 8.0], "word": ["a", "b", "a"]})
    encoder, columns = encode(X)
    assert [name for name in columns if name.endswith("_missing")] == ["gaps_missing"]
    # Gaps at predict, where there were none in fit: the median, the mean of the levels.
    X_test = pd.DataFrame({"full": [None, 5.0], "gaps": [1.0, None], "word": [None, "b"]})
    found = dict(zip(columns, encoder.transform(X_test).T.tolist(), strict=True))
    assert found == {
        "full": [2.0, 5.0],
        "gaps": [1.0, 6.0],
        "gaps_missing": [0, 1],
        "word_a": [2 / 3, 0],
        "word_b": [1 / 3, 1],
    }


@pytest.mark.parametrize(
    "X",
    [
        one([None] * 3, dtype=object),
        one([np.nan] * 3),
        one([pd.NA] * 3, dtype="Int64"),
        one([pd.NA] * 3, dtype="string"),
        one([pd.NaT] * 3),
        one([pd.NaT] * 3, dtype="timedelta64[ns]"),
        category([None] * 3),
        category([None] * 3, categories=["a", "b"], ordered=True),
        [[None]] * 3,
        np.full((3, 1), np.nan),
        np.full((3, 1), "NaT", dtype="datetime64[s]"),
        np.full((3, 1), "NaT", dtype="timedelta64[s]"),
        polars([None] * 3),
        polars([None] * 3, pl.String),
        polars([None] * 3, pl.Float64),
        polars([None] * 3, pl.Datetime("us", "UTC")),
        polars([np.nan] * 3),
    ],
)
@pytest.mark.filterwarnings("ignore:X (does not have valid|has) feature names:UserWarning")
def test_a_column_of_gaps_only_is_constant_whatever_comes(X):
    encoder, columns = encode(X)
    assert all(len(set(values)) == 1 for values in columns.values())
    expected = encoder.transform(X)[:2]
    for other in (one([1.0, 7.0]), one(["a", "b"]), one(MOMENTS[:2]), one([None, None])):
        np.testing.assert_array_equal(encoder.transform(other), expected)


@pytest.mark.parametrize(
    "X",
    [
        one([1.0, 2.0, None]),
        one(WORDS),
        one(MOMENTS),
        one(LOCAL),
        one(LENGTHS),
        category(["a", "b"], ordered=True),
        category([1, 2]),
        one([True, False]),
    ],
    ids=["numbers", "words", "dates", "zone", "lengths", "ordered", "levels", "truth"],
)
@pytest.mark.parametrize(
    "gaps", [one([np.nan]), one([None], dtype=object), polars([None])], ids=["NaN", "None", "null"]
)
def test_a_batch_whose_values_are_all_missing_is_no_change_of_type(X, gaps):
    encoder, columns = encode(X)
    values = np.array(list(columns.values()))
    missing = pd.isna(X["x"]).to_numpy()
    found = encoder.transform(gaps)[0]
    assert np.isfinite(found).all()
    if missing.any():
        np.testing.assert_array_equal(found, values[:, missing][:, 0])


def test_constant_columns_stay():
    X = pd.DataFrame({"n": [2.0] * 3, "w": ["a"] * 3, "d": [dt.date(2020, 1, 1)] * 3})
    columns = columns_of(X)
    assert len(columns) == 3
    assert columns["n"] == [2.0] * 3
    assert columns["w_a"] == [1.0] * 3


# -- refused -----------------------------------------------------------------------------------

STRANGE = "column 'x' holds .*, which is no number, category, date or duration: convert it"
NEITHER = "column 'x': argument must be a string or a number, got "
REFUSED = {
    "complex": (one([1j, 2]), STRANGE),
    "complex objects": (one([1j, 2], dtype=object), NEITHER + "complex 1j"),
    "sparse": (
        one(pd.arrays.SparseArray([0.0, 1.0])),
        r"column 'x' holds Sparse.*: make X dense \(X.sparse.to_dense\(\)\) or one sparse",
    ),
    "period and string": (one([pd.Period("2020"), "2021"], dtype=object), NEITHER + "Period"),
    "interval and string": (
        one([pd.Interval(0, 2), "(2, 3]"], dtype=object),
        NEITHER + r"Interval Interval\(0, 2, closed='right'\)",
    ),
    "categories of dates": (category(pd.to_datetime(MOMENTS)), NEITHER + "Timestamp"),
    "categories of both": (category(["a", 1]), "column 'x' mixes strings and numbers"),
    "lists": (one([[1, 2], [3]]), NEITHER + r"list \[1, 2\]"),
    "empty lists": (one([[], []]), NEITHER + r"list \[\]"),
    "arrays": (one([np.ones(2), np.ones(2)]), NEITHER + "ndarray"),
    "dicts": (one([{"a": 1}, None]), NEITHER + r"dict \{'a': 1\}"),
    "tuples": (one([(1,), (2,)]), NEITHER + "tuple"),
    "bytes": (one([b"a", b"b"]), NEITHER + "bytes b'a'"),
    "times": (one([dt.time(1), None]), NEITHER + "time"),
    "string and number": (
        one(["a", 1, None], dtype=object),
        "column 'x' mixes strings and numbers, such as 'a' and 1: make all of one type",
    ),
    "truth and string": (
        one([True, "no"], dtype=object),
        "column 'x' mixes numbers and strings, such as True and 'no'",
    ),
    "date and string": (
        one([dt.date(2020, 1, 1), "2020-01-02"], dtype=object),
        r"mixes dates and strings, such as datetime.date\(2020, 1, 1\) and '2020-01-02': make",
    ),
    "date and number": (one([1, dt.date(2020, 1, 1)], dtype=object), "mixes numbers and dates"),
    "duration and number": (one([LENGTHS[0], 1], dtype=object), "mixes durations and numbers"),
    "naive and aware": (
        one([MOMENTS[0], MOMENTS[1].replace(tzinfo=UTC)], dtype=object),
        "column 'x' mixes dates and dates of a time zone, such as datetime.datetime",
    ),
    "string and bytes": (one(["a", b"b"], dtype=object), NEITHER + "bytes b'b'"),
    "polars time": (polars([dt.time(1), None]), NEITHER + "time"),
    "polars list": (polars([[1], [2]]), STRANGE),
    "polars struct": (polars([{"a": 1}, {"a": 2}]), STRANGE),
    "polars binary": (polars([b"a", b"b"]), STRANGE),
    "polars objects": (polars([1j, 2j], pl.Object), NEITHER + "complex"),
    "polars mixed objects": (
        polars(["a", 1], pl.Object),
        "column 'x' mixes strings and numbers, such as 'a' and 1",
    ),
}


@pytest.fixture
def untrained(monkeypatch):
    """Training that must not begin."""

    def train(*args, **kwargs):
        raise AssertionError("training began")

    monkeypatch.setattr(loop, "train_network", train)


@ON_ALL
@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_are_refused(estimator, case, untrained):
    X, message = REFUSED[case]
    with pytest.raises(TypeError, match=message):
        clone(estimator).fit(X, np.arange(len(X)))


@ON_ALL
def test_a_long_value_is_cut_in_messages(estimator):
    X = one(["a" * 10_000, 1], dtype=object)
    with pytest.raises(TypeError, match="mixes strings and numbers") as error:
        clone(estimator).fit(X, [0, 1])
    assert len(str(error.value)) < 400


@ON_ALL
@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (
            pd.DataFrame([[1, 2, 3]] * 2, columns=["a", "b", "a"]),
            ValueError,
            "X must have columns of different names, and several are called 'a': rename them",
        ),
        (one([], dtype=float), ValueError, r"0 sample\(s\) \(shape=\(0, 1\)\) while a minimum"),
        (pd.DataFrame(index=range(3)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\) while"),
        (pl.DataFrame(), ValueError, r"0 sample\(s\)"),
        (np.empty((0, 2)), ValueError, r"0 sample\(s\)"),
        (np.empty((3, 0)), ValueError, r"0 feature\(s\)"),
        (pl.LazyFrame({"a": [1, 2]}), TypeError, "in memory, got LazyFrame: collect it"),
        (
            pd.Series([1, 2]),
            ValueError,
            r"got a Series of 2 values .* X\[\['name'\]\]. .* X and y are swapped",
        ),
        (pl.Series("a", [1, 2]), ValueError, r"got a Series of 2 values .* X\[\['a'\]\]. If"),
        ({"a": [1, 2]}, ValueError, r"a table, got a dict: pass pandas.DataFrame\(X\)$"),
        ({"a": 1, "b": "x"}, ValueError, r"got a dict: pass pandas.DataFrame\(\[X\]\)$"),
        ([{"a": 1}, {"a": 2}], ValueError, r"got a list of dicts: pass pandas.DataFrame\(X\)$"),
        ((each for each in [[1], [2]]), ValueError, r"got a generator: pass pandas.DataFrame"),
        ({"a": 1, "b": 2}.items(), ValueError, r"got a dict_items: pass pandas.DataFrame\(X\)"),
        (["a", "b"], ValueError, "Expected 2D array, got 1D"),
        (
            np.ones(2),
            ValueError,
            r"1D array of 2 values .* X and y are swapped: it is fit\(X, y\)",
        ),
        ("houses.csv", ValueError, r"got 'houses.csv': read a file by pandas.read_csv"),
        (Path("houses.csv"), ValueError, r"got PosixPath\('houses.csv'\): read a file by"),
        (np.ones((2, 2, 2)), ValueError, "dim 3"),
        (np.array([[1j], [2]]), ValueError, "Complex data not supported"),
    ],
)
def test_tables_that_are_refused(estimator, X, error, message, untrained):
    with pytest.raises(error, match=message):
        clone(estimator).fit(X, [0, 1])


def test_the_encoder_by_itself_is_not_for_sparse_matrices():
    with pytest.raises(TypeError, match=r"Sparse data .* use X.toarray\(\)"):
        TableEncoder().fit(csr_array(np.eye(2)))
    with pytest.raises(TypeError, match="sparse_output=False"):
        TableEncoder().fit(np.eye(2)).transform(csr_array(np.eye(2)))


def test_no_table_of_arrow_with_a_name_twice():
    pa = pytest.importorskip("pyarrow")
    X = pa.table([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])
    with pytest.raises(ValueError, match=r"X must .*, and several are called 'a'"):
        TableEncoder().fit(X)


@pytest.mark.parametrize("names", [["a", "a"], [0, 0], [None, None]])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=["nona", "softstep"])
def test_targets_with_a_name_twice_are_refused(estimator, names, untrained):
    y = pd.DataFrame([[1.0, 2.0]] * 3, columns=names)
    with pytest.raises(ValueError, match=f"y must .* names, and several are called {names[0]!r}"):
        clone(estimator).fit(np.arange(3.0)[:, None], y)


# -- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [[10, 20], [(1, "a"), (1, "b")], pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])]
)
def test_columns_with_other_names_are_numbered_in_the_output(names):
    X = pd.DataFrame([[1, "u"], [2, "v"]], columns=names)
    encoder, columns = encode(X)
    assert list(columns) == ["x0", "x1_u", "x1_v"]
    assert not hasattr(encoder, "feature_names_in_")


def test_output_names_begin_with_the_source_column():
    X, _ = mixed_frame()
    encoder = TableEncoder()
    check_output(encoder, encoder.fit_transform(X))
    names = encoder.get_feature_names_out()
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="input_features"):
        encoder.get_feature_names_out(["a"] * X.shape[1])
    with pytest.raises(NotFittedError):
        TableEncoder().get_feature_names_out()


def test_names_of_an_array_may_be_given_later():
    encoder = TableEncoder(min_frequency=1).fit([[1, "u"], [None, "v"]])
    assert list(encoder.get_feature_names_out()) == ["x0", "x0_missing", "x1_u", "x1_v"]
    given = encoder.get_feature_names_out(["n", "w"])
    assert list(given) == ["n", "n_missing", "w_u", "w_v"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("as_polars", [False, True])
def test_set_output(library, as_polars):
    X, _ = mixed_frame()
    plain = TableEncoder().fit_transform(X)
    X = to_polars(X) if as_polars else X
    encoder = TableEncoder().set_output(transform=library)
    Z = encoder.fit_transform(X)
    assert type(Z) is {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library]
    assert list(Z.columns) == list(encoder.get_feature_names_out())
    if not as_polars:
        np.testing.assert_array_equal(Z.to_numpy(), plain)
        np.testing.assert_array_equal(encoder.transform(X).to_numpy(), plain)
    if library == "pandas" and not as_polars:
        assert list(Z.index) == list(X.index)


def test_the_index_of_rows_is_kept():
    X, _ = mixed_frame()
    X.index = [f"house {i}" for i in range(len(X))]
    Z = TableEncoder().set_output(transform="pandas").fit_transform(X)
    assert list(Z.index) == list(X.index)


# -- categorical_features ----------------------------------------------------------------------

CHOICE = pd.DataFrame({"n": [3, 1, 3, 1], "m": [0.0, 1.0, 2.0, 3.0]})


@pytest.mark.parametrize(
    "chosen",
    [
        ["n"],
        ("n",),
        [0],
        [-2],
        [True, False],
        np.array(["n"]),
        np.array([0]),
        np.array([True, False]),
        pd.Series(["n"]),
        pd.array([True, False], dtype="boolean"),
        pl.Series(["n"]),
    ],
)
def test_numbers_that_are_chosen_are_categories(chosen):
    encoder, columns = encode(CHOICE, categorical_features=chosen)
    values = list(columns.values())
    assert values == [[0, 1, 2, 3], [0, 1, 0, 1], [1, 0, 1, 0]]
    assert encoder.source_.tolist() == [1, 0, 0]
    # In fit as numbers, at predict as levels, and the other way round
    levels = CHOICE.astype({"n": "category"})
    np.testing.assert_array_equal(encoder.transform(levels), encoder.transform(CHOICE))
    with pytest.raises(ValueError, match="column 'n' held numbers as categories in fit, and "):
        encoder.transform(CHOICE.astype({"n": str}))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "make",
    [
        one,
        lambda values: one(values, dtype=object),
        lambda values: one(values, dtype="Int64"),
        polars,
        lambda values: np.array(values)[:, None],
        lambda values: np.array(values, dtype=object)[:, None],
        lambda values: np.array(values, dtype=float)[:, None],
    ],
    ids=["pandas", "objects", "Int64", "polars", "array", "array of objects", "array of floats"],
)
def test_large_integers_are_no_levels_that_float64_might_mix_up(make, sign):
    largest = sign * (2**53 - 1)
    twins = make([sign * 2**53, sign * (2**53 + 1)])
    message = rf"column ('x'|0) holds {sign * 2**53} as a category, and .* below 2\^53 only"
    with pytest.raises(ValueError, match=message):
        TableEncoder([0]).fit(twins)
    encoder, columns = encode(make([largest, largest - sign]), categorical_features=[0])
    assert sorted(columns.values()) == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match=message):
        encoder.transform(twins)


def test_large_integers_of_a_categorical_are_levels():
    X = category([2**53, 2**53 + 1])
    assert list(columns_of(X, categorical_features=["x"]).values()) == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="column 'x' holds 9007199254740992 as a category"):
        TableEncoder(min_frequency=1).fit(X).transform(X.astype("int64"))


def test_names_and_numbers_may_be_mixed():
    columns = columns_of(CHOICE, categorical_features=[1, "n"])
    assert len(columns) == 6


def test_a_gap_in_a_chosen_column_is_a_level():
    X = one([1.0, None, 2.0])
    assert list(columns_of(X, categorical_features=["x"]).values()) == [
        [1, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
    ]


def test_columns_of_an_array_are_chosen_by_number():
    X = [[3, 0.0], [1, 1.0], [3, 2.0]]
    for chosen in ([0], [True, False]):
        assert len(columns_of(X, categorical_features=chosen)) == 3


@pytest.mark.parametrize("chosen", [None, [], [False, False]])
def test_nothing_chosen(chosen):
    assert list(columns_of(CHOICE, categorical_features=chosen)) == ["n", "m"]


def test_columns_that_are_categories_already_may_be_chosen():
    X, _ = mixed_frame()
    found = TableEncoder(["city", "size"]).fit_transform(X)
    np.testing.assert_array_equal(found, TableEncoder().fit_transform(X))


@ON_ALL
@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        (["q"], ValueError, r"categorical_features must be columns of X, got 'q'; X has \['n',"),
        (["n", "q"], ValueError, "categorical_features must be columns of X, got 'q'"),
        ([2], ValueError, "categorical_features must be columns of X, got 2"),
        ([-3], ValueError, "categorical_features must be columns of X, got -3"),
        ([0.5], ValueError, "categorical_features must be columns of X, got 0.5"),
        ([None], ValueError, "categorical_features must be columns of X, got None"),
        ([True], ValueError, r"must mark each of 2 columns, got a mask of shape \(1,\)"),
        ([True] * 3, ValueError, r"must mark each of 2 columns, got a mask of shape \(3,\)"),
        ([["n"]], ValueError, r"categorical_features must be a list of columns, got \[\['n'\]\]"),
        ({"n"}, ValueError, "categorical_features must be a list of columns, got {'n'}"),
        ("n", ValueError, "The 'categorical_features' parameter .* Got 'n' instead"),
        (3, ValueError, "The 'categorical_features' parameter .* Got 3 instead"),
    ],
)
def test_wrong_choices(estimator, chosen, error, message, untrained):
    model = choosing(estimator, chosen)
    with pytest.raises(error, match=message):
        model.fit(CHOICE, [0, 1, 2, 3])


@ON_ALL
@pytest.mark.parametrize("chosen", [None, [], ["n"], [False, False]])
@pytest.mark.parametrize("dtype", [object, "category", "string"])
def test_strings_that_were_not_chosen_are_refused(estimator, chosen, dtype, untrained):
    X = pd.DataFrame({"n": [1.0, 2.0], "word": pd.Series(["u", "v"], dtype=dtype)})
    model = choosing(estimator, chosen)
    with pytest.raises(ValueError, match="column 'word' holds strings, such as 'u', and categ"):
        model.fit(X, [0, 1])


@ON_ALL
def test_dates_cannot_be_chosen(estimator, untrained):
    model = choosing(estimator, ["x"])
    with pytest.raises(TypeError, match="column 'x' holds dates, which are no categories"):
        model.fit(one(MOMENTS), [0, 1, 2])


@pytest.mark.parametrize(
    ("name", "value"), [("max_categories", 0), ("min_frequency", 0), ("max_categories", 2.5)]
)
def test_wrong_parameters(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter .* Got {value} instead"):
        TableEncoder(**{name: value}).fit(CHOICE)


# -- the same columns later -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    """Each estimator, fitted on the mixed frame."""
    X, y = mixed_frame()
    return {type(model): clone(model).fit(X, y) for model in (TableEncoder(), *ESTIMATORS)}


def to_polars(X):
    """The mixed frame without pandas' types, and by the clock of UTC."""
    X = X.assign(sold=X["sold"].dt.tz_convert(None))
    values = {name: [None if v is pd.NA else v for v in X[name].tolist()] for name in X.columns}
    return pl.DataFrame(values).with_columns(pl.col("sold").dt.replace_time_zone("UTC"))


def evaluate(model, X):
    return model.transform(X) if isinstance(model, TableEncoder) else model.predict(X)


@ON_ALL
def test_columns_come_in_any_order(estimator, fitted):
    X, _ = mixed_frame()
    model = fitted[type(estimator)]
    expected = evaluate(model, X)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(evaluate(model, X[X.columns[::-1]]), expected)
    np.testing.assert_allclose(evaluate(model, to_polars(X[sorted(X)])), expected, rtol=1e-6)


@ON_ALL
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.drop(columns="city"), "(?s)feature names should match.*now missing.*- city"),
        (lambda X: X.assign(new=1), "(?s)feature names should match.*unseen at fit.*- new"),
        (lambda X: X.rename(columns={"city": "town"}), "(?s)unseen.*- town.*missing.*- city"),
        (lambda X: to_polars(X).drop("city"), "(?s)now missing.*- city"),
        (lambda X: X.assign(area="x"), "column 'area' held numbers in fit, and holds strings now"),
        (
            lambda X: X.assign(city=7.0),
            "column 'city' held strings in fit, and holds numbers now, such as 7.0",
        ),
        (lambda X: X.assign(city=pd.Categorical([7] * len(X))), "'city' held strings in fit"),
        (lambda X: X.assign(size=1), "column 'size' held strings in fit, and holds numbers"),
        (
            lambda X: X.assign(sold=X["sold"].dt.tz_localize(None)),
            "column 'sold' held dates of a time zone in fit, and holds dates without a time zone",
        ),
        (
            lambda X: X.assign(sold="today"),
            "column 'sold' held dates in fit, and holds 'today' now: correct",
        ),
        (lambda X: X.assign(sold=3), "column 'sold' held dates of a time zone in fit, and holds"),
        (
            lambda X: X.assign(area=pd.Timestamp("2020-01-01")),
            "column 'area' held numbers in fit, and holds dates without a time zone now, such as",
        ),
        (lambda X: X.assign(city=pd.Timestamp("2020-01-01")), "column 'city' held strings in fit"),
        (lambda X: X.assign(area=np.inf), "column 'area' holds inf"),
        (lambda X: X[:0], r"0 sample\(s\)"),
    ],
)
def test_tables_that_differ_from_fits(estimator, change, message, fitted):
    X, _ = mixed_frame()
    with pytest.raises(ValueError, match=message):
        evaluate(fitted[type(estimator)], change(X))


def test_dates_without_a_zone_stay_so():
    encoder = TableEncoder().fit(one(MOMENTS))
    with pytest.raises(ValueError, match="'x' held dates without a time zone in fit, and holds d"):
        encoder.transform(one(LOCAL))


@ON_ALL
def test_columns_of_an_array_go_by_number(estimator):
    X, y = mixed_frame()
    objects = X.drop(columns="size").astype(object).to_numpy()
    model = clone(estimator).fit(objects, y)
    with pytest.raises(ValueError, match="column 1 held strings in fit, and holds numbers now"):
        evaluate(model, np.where(np.arange(5) == 1, 3, objects))
    with pytest.raises(ValueError, match=f"has 4 features, but {type(model).__name__} is expect"):
        evaluate(model, objects[:, :4])


@ON_ALL
def test_an_array_after_a_fit_on_a_frame_warns_once(estimator):
    X, y = mixed_frame()
    X = X.select_dtypes("number")
    model = clone(estimator).fit(X, y)
    name = type(model).__name__
    with pytest.warns(UserWarning, match=f"not have valid feature names, but {name}") as found:
        prediction = evaluate(model, X.to_numpy())
    assert len(found) == 1
    np.testing.assert_allclose(prediction, evaluate(model, X), rtol=1e-9)


@ON_ALL
def test_an_array_after_a_fit_on_a_frame_of_several_kinds_is_refused(estimator, fitted):
    """Where columns are of one kind by chance, another order of them would go unseen."""
    X, _ = mixed_frame()
    model = fitted[type(estimator)]
    for array in (X.astype(object).to_numpy(), X.astype(object).to_numpy().tolist()):
        with pytest.raises(
            ValueError, match=r"which column is 'city', which held strings: pass p"
        ):
            evaluate(model, array)


@ON_ALL
def test_a_frame_after_a_fit_on_an_array_warns_once(estimator):
    X, y = mixed_frame()
    X = X.drop(columns="size")  # an array does not hold its order
    model = clone(estimator).fit(X.astype(object).to_numpy(), y)
    expected = evaluate(model, X.astype(object).to_numpy())
    name = type(model).__name__
    with pytest.warns(UserWarning, match=f"X has feature names, but {name} was fitted w") as found:
        prediction = evaluate(model, X)
    assert len(found) == 1
    np.testing.assert_allclose(prediction, expected, rtol=1e-9)


@ON_ALL
def test_queries_before_fit_are_errors(estimator):
    with pytest.raises(NotFittedError):
        evaluate(clone(estimator), CHOICE)


@ON_ALL
@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.assign(area=np.inf),
        lambda X: X.assign(new=[[1]] * len(X)),
        lambda X: X[:0],
        lambda X: X[["area", "area"]],
        lambda X: X.to_numpy(dtype=object)[:, :0],
    ],
)
def test_a_failed_refit_changes_nothing(estimator, change, fitted, untrained):
    X, y = mixed_frame()
    model = pickle.loads(pickle.dumps(fitted[type(estimator)]))
    before = dict(vars(model))
    expected = evaluate(model, X)
    with pytest.raises((TypeError, ValueError)):
        model.fit(change(X), y)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(evaluate(model, X), expected)


# -- for any table -------------------------------------------------------------------------------

ROW = st.tuples(
    st.one_of(st.none(), st.floats(-1e6, 1e6)),
    st.one_of(st.none(), st.sampled_from(["a", "b", "c", ""])),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
    st.one_of(st.none(), st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000))),
    st.one_of(st.none(), st.integers(-3, 3)),
)
TABLES = st.lists(ROW, min_size=1, max_size=15)
NAMES = ["number", "word", "truth", "moment", "length", "count"]


def as_pandas(rows):
    dtypes = [float, object, "boolean", "datetime64[us]", "timedelta64[us]", "Int64"]
    return pd.DataFrame(
        {
            name: pd.Series(list(values), dtype=dtype)
            for name, dtype, values in zip(NAMES, dtypes, zip(*rows, strict=True), strict=True)
        }
    )


def as_polars(rows):
    dtypes = [pl.Float64, pl.String, pl.Boolean, pl.Datetime("us"), pl.Duration("us"), pl.Int64]
    return pl.DataFrame(rows, schema=dict(zip(NAMES, dtypes, strict=True)), orient="row")


def as_objects(rows):
    X = np.empty((len(rows), len(NAMES)), dtype=object)
    for i, row in enumerate(rows):
        X[i] = row
    return X


# Sines of many numbers at once and of few may differ in the last digits.
assert_same = np.testing.assert_allclose
SAME = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.slow
@given(TABLES, st.integers(1, 3))
def test_a_table_is_the_same_in_every_library(rows, min_frequency):
    encoder = TableEncoder(min_frequency=min_frequency)
    expected = encoder.fit_transform(as_pandas(rows))
    check_output(encoder, expected)
    other = clone(encoder)
    assert_same(other.fit_transform(as_polars(rows)), expected, **SAME)
    assert list(other.get_feature_names_out()) == list(encoder.get_feature_names_out())
    assert_same(other.fit_transform(as_objects(rows)), expected, **SAME)
    assert other.source_.tolist() == encoder.source_.tolist()
    assert_same(encoder.transform(as_polars(rows)), expected, **SAME)


@pytest.mark.slow
@given(TABLES, TABLES, st.data())
def test_rows_are_encoded_each_by_itself(rows, others, data):
    encoder = TableEncoder(min_frequency=2)
    check_output(encoder, encoder.fit_transform(as_pandas(rows)))
    Z = encoder.transform(as_pandas(others))
    check_output(encoder, Z)
    some = data.draw(st.lists(st.integers(0, len(others) - 1), min_size=1))
    for make in (as_pandas, as_polars):
        found = encoder.transform(make([others[i] for i in some]))
        assert_same(found, Z[some], **SAME)


@pytest.mark.slow
@given(TABLES, st.permutations(NAMES))
def test_the_order_of_columns_does_not_matter_later(rows, names):
    encoder = TableEncoder(min_frequency=1)
    Z = encoder.fit_transform(as_pandas(rows))
    np.testing.assert_array_equal(encoder.transform(as_pandas(rows)[names]), Z)
    assert_same(encoder.transform(as_polars(rows).select(names)), Z, **SAME)


@pytest.mark.slow
@given(TABLES, st.permutations(NAMES))
def test_each_column_is_encoded_by_itself(rows, names):
    expected = columns_of(as_pandas(rows))
    assert columns_of(as_pandas(rows)[names]) == expected
    alone = {}
    for name in NAMES:
        alone |= columns_of(as_pandas(rows)[[name]])
    assert alone == expected


@pytest.mark.slow
@given(TABLES)
def test_a_table_that_is_encoded_stays_as_it_is(rows):
    X = as_pandas(rows)
    encode(X)
    pd.testing.assert_frame_equal(X, as_pandas(rows))
    objects = as_objects(rows)
    encode(objects)
    assert objects.tolist() == as_objects(rows).tolist()
    encoder = TableEncoder().fit(X)
    state = pickle.dumps(encoder)
    encoder.transform(X)
    assert pickle.dumps(encoder) == state
    np.testing.assert_array_equal(pickle.loads(state).transform(X), encoder.transform(X))


@pytest.mark.slow
@given(TABLES)
def test_what_is_encoded_may_be_encoded_again(rows):
    Z = TableEncoder().fit_transform(as_pandas(rows))
    np.testing.assert_array_equal(TableEncoder().fit_transform(Z), Z)


# -- under the estimators ------------------------------------------------------------------------


def wide_frame(n=24):
    """A pandas frame with a column of each kind."""
    rng = np.random.default_rng(1)
    i = np.arange(n)
    moments = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(i * 31, unit="h"))
    words = pd.Series(rng.choice(["u", "v", "w"], n))
    gap = i % 5 == 0
    return pd.DataFrame(
        {
            "category": words.astype("category"),
            "object": words.astype(object).mask(gap, None),
            "string": words.astype("string").mask(gap, pd.NA),
            "levels": pd.Series(i % 3).astype("category"),
            "ordered": pd.Categorical(words, categories=["w", "u", "v"], ordered=True),
            "bool": i % 2 == 0,
            "boolean": pd.Series(i % 2 == 0, dtype="boolean").mask(gap, pd.NA),
            "Int64": pd.Series(i, dtype="Int64").mask(gap, pd.NA),
            "Float64": pd.Series(rng.normal(size=n), dtype="Float64").mask(gap, pd.NA),
            "float": rng.normal(size=n),
            "large": pd.Series([2**60 + int(j) for j in i], dtype=object),
            "decimal": [Decimal(int(j)) / 7 for j in i],
            "moment": moments,
            "zone": moments.dt.tz_localize("UTC").dt.tz_convert(BERLIN),
            "gaps in dates": moments.mask(gap),
            "date": list(moments.dt.date),
            "length": pd.to_timedelta(i, unit="h"),
            "empty": [None] * n,
            "NaN": [np.nan] * n,
            "constant": [1.0] * n,
            "same": ["a"] * n,
        }
    ), rng.normal(size=n)


@pytest.mark.slow
@ON_ESTIMATORS
def test_every_kind_of_column_of_pandas(estimator):
    X, y = wide_frame()
    model = clone(estimator).fit(X, y)
    expected = model.predict(X)
    assert np.isfinite(expected).all()
    assert model.features_.n_features_in_ == model.n_features_in_ == X.shape[1]
    # An estimator is a fit on the output of its encoder.
    columns = clone(estimator).fit(TableEncoder().fit_transform(X), y)
    np.testing.assert_array_equal(
        columns.predict(model.features_.transform(X)), clone(estimator).fit(X, y).predict(X)
    )
    # Another zone, other types for the same values: the same predictions
    again = X.assign(
        zone=X["zone"].dt.tz_convert("Asia/Tokyo"),
        category=X["category"].astype(str),
        levels=X["levels"].astype(int),
        decimal=X["decimal"].astype(float),
        date=pd.to_datetime(X["date"]),
    )
    np.testing.assert_allclose(model.predict(again), expected, rtol=1e-6)


@ON_ESTIMATORS
def test_unknown_levels_gaps_and_far_dates_are_predicted(estimator, fitted):
    X, _ = mixed_frame()
    strange = pd.DataFrame(
        {
            "area": [None, 1e6],
            "city": ["Rome", None],
            "size": ["XXL", None],
            "sold": pd.to_datetime(["1900-01-01", None]).tz_localize("UTC"),
            "garage": pd.Series([None, True], dtype="boolean"),
            "rooms": [np.nan, 2**40],
        }
    )
    assert np.isfinite(fitted[type(estimator)].predict(strange[X.columns])).all()


@ON_ESTIMATORS
def test_every_kind_of_column_of_polars(estimator):
    n = 24
    i = range(n)
    moments = [dt.datetime(2020, 1, 1) + j * dt.timedelta(hours=31) for j in i]
    words = [None if j % 5 == 0 else "uvw"[j % 3] for j in i]
    X = pl.DataFrame(
        {
            "string": words,
            "categorical": pl.Series(words, dtype=pl.Categorical),
            "enum": pl.Series(words, dtype=pl.Enum(["w", "v", "u"])),
            "date": [moment.date() for moment in moments],
            "moment": [None if j == 3 else moment for j, moment in zip(i, moments, strict=True)],
            "zone": pl.Series(moments).dt.replace_time_zone("UTC"),
            "length": [j * dt.timedelta(minutes=j) for j in i],
            "decimal": [Decimal(f"{j / 8:.3f}") for j in i],
            "truth": [None if j == 4 else j % 2 == 0 for j in i],
            "null": pl.Series([None] * n, dtype=pl.Null),
            "NaN": [np.nan if j == 5 else float(j) for j in i],
            "count": pl.Series([None if j == 6 else j for j in i], dtype=pl.Int8),
        }
    )
    y = np.sin(np.arange(n))
    model = clone(estimator).fit(X, y)
    expected = model.predict(X)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(model.predict(X.select(sorted(X.columns))), expected)
    other = X.with_columns(pl.col("zone").dt.convert_time_zone(BERLIN))
    np.testing.assert_allclose(model.predict(other), expected, rtol=1e-6)


@ON_ESTIMATORS
def test_tables_of_arrow(estimator):
    X, y = mixed_frame()
    X = X.astype({"size": str})
    table = pytest.importorskip("pyarrow").table(X)
    expected = clone(estimator).fit(X, y).predict(X)
    np.testing.assert_allclose(clone(estimator).fit(table, y).predict(table), expected, rtol=1e-6)


@ON_ESTIMATORS
def test_lists_of_rows(estimator):
    rows = [[("a", "b")[i % 2], float(i), None if i % 7 == 0 else i % 3 == 0] for i in range(21)]
    y = np.arange(21.0)
    expected = clone(estimator).fit(rows, y).predict(rows)
    frame = pd.DataFrame(rows, columns=["word", "number", "truth"])
    np.testing.assert_allclose(clone(estimator).fit(frame, y).predict(frame), expected, rtol=1e-6)


@ON_ESTIMATORS
def test_chosen_columns(estimator):
    X, y = mixed_frame()
    model = choosing(estimator, ["rooms", "city", "size"]).fit(X, y)
    rooms = model.features_.source_ == X.columns.get_loc("rooms")
    assert rooms.sum() > 1
    assert np.isfinite(model.predict(X)).all()


def test_importances_are_those_of_the_tables_columns():
    X, y = mixed_frame()
    model = SoftStepKNeighborsRegressor(max_iter=2, random_state=0).fit(X, y)
    found = model.feature_weights_
    assert found.shape == (X.shape[1],)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    # A constant column has importance 0, and the others are unchanged.
    model.fit(X.assign(constant=1.0, empty=None), y)
    np.testing.assert_allclose(model.feature_weights_, [*found, 0, 0], rtol=1e-4)


@ON_ALL
def test_clone_pickle_and_parameters(estimator, fitted):
    X, _ = mixed_frame()
    model = fitted[type(estimator)]
    chosen = choosing(model, ["city"])
    assert clone(chosen).get_params()[choice_of(model)] == ["city"]
    assert str(clone(chosen)) == str(chosen)
    assert not hasattr(clone(model), "features_")
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(evaluate(loaded, X), evaluate(model, X))
    assert str(clone(model)) == str(estimator)


@pytest.mark.slow
@ON_ESTIMATORS
def test_model_selection_on_a_mixed_frame(estimator):
    X, y = mixed_frame()
    scores = cross_val_score(estimator, X, y, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
    grid = {choice_of(estimator): ["from_dtype", ["city", "size", "rooms"]]}
    search = GridSearchCV(estimator, grid, cv=2, error_score="raise").fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert np.isfinite(search.predict(X)).all()


@ON_ESTIMATORS
def test_an_encoder_before_an_estimator(estimator):
    X, y = mixed_frame()
    model = make_pipeline(TableEncoder(), clone(estimator)).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), clone(estimator).fit(X, y).predict(X))


def test_a_fit_with_an_extractor_removes_the_table_encoder():
    from torch import nn

    X, y = mixed_frame()
    model = NONARegressor(n_estimators=1, max_iter=2).fit(X, y)
    images = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
    model.set_params(feature_extractor=nn.Linear(3, 2)).fit(images, y)
    assert not hasattr(model, "features_")


# -- dates that are written as strings ----------------------------------------------------------


def as_written(days, form="%Y-%m-%d"):
    return [day if day is None else day.strftime(form) for day in days]


WRITTEN = [*pd.date_range("2024-01-30", periods=12, freq="25h").to_pydatetime(), None]


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S.%f"])
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_strings_that_are_all_dates_are_dates(form, make):
    texts = as_written(WRITTEN, form)
    moments = [t if t is None else dt.datetime.fromisoformat(t) for t in texts]
    encoder, expected = encode(pd.DataFrame({"day": moments}))
    assert columns_of(make({"day": texts})) == expected
    assert columns_of(np.array([[t] for t in texts], dtype=object)) == {
        name.replace("day_", "x0_", 1): values for name, values in expected.items()
    }
    # What fit took for dates may come in either way.
    np.testing.assert_array_equal(
        encoder.transform(make({"day": texts[:3]})), encoder.transform(make({"day": moments[:3]}))
    )


def test_moments_of_a_zone_may_be_strings():
    moments = pd.date_range("2024-01-30", periods=9, freq="25h", tz="UTC")
    expected = columns_of(pd.DataFrame({"t": moments}))
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S+00:00", "%Y-%m-%d %H:%M+0000"):
        assert columns_of(pd.DataFrame({"t": moments.strftime(form)})) == expected


@pytest.mark.parametrize(
    "strange",
    [
        *("2024-13-01", "2024-02-30", "soon", "12.5.2020", "20240101", "2024", "2024-W01-1"),
        *("2024-01-01T10", "2024-01-01T10:00:00,5", "2024-01-01 10:00+01"),
    ],
)
def test_what_is_no_date_leaves_all_of_them_categories(strange):
    texts = ["2024-01-01", None, strange, "2024-01-01"]
    columns = columns_of(pd.DataFrame({"day": texts}))
    assert {*columns} == {"day_2024-01-01", "day_missing", f"day_{strange}"}


def test_dates_with_and_without_a_zone_are_no_dates():
    columns = columns_of(pd.DataFrame({"t": ["2024-01-01T00:00", "2024-01-01T00:00Z"]}))
    assert len(columns) == 2


@pytest.mark.parametrize("chosen", ["named", "categorical"])
def test_dates_that_are_chosen_are_categories(chosen):
    X = pd.DataFrame({"day": ["2024-01-01", "2024-01-02", "2024-01-01", None]})
    params = {"categorical_features": ["day"]} if chosen == "named" else {}
    encoder = TableEncoder(min_frequency=1, **params)
    Z = encoder.fit_transform(X if chosen == "named" else X.astype("category"))
    assert Z.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(encoder.transform(X[:2]), Z[:2])  # all of which are dates


def test_categories_stay_so_where_only_dates_come_later():
    X = pd.DataFrame({"day": ["2024-01-01", "never", "2024-01-01", "never"]})
    encoder = TableEncoder(min_frequency=1).fit(X)
    np.testing.assert_array_equal(encoder.transform(X[:1]), [[1, 0]])


def test_where_fit_saw_dates_other_strings_are_refused():
    encoder = TableEncoder().fit(pd.DataFrame({"day": ["2024-01-01", "2024-01-03"]}))
    message = (
        "column 'day' held dates in fit, and holds 'soon' now: correct it, or replace it by None"
    )
    with pytest.raises(ValueError, match=message):
        encoder.transform(pd.DataFrame({"day": ["2024-01-02", "soon"]}))


def test_a_mark_of_a_gap_among_dates_of_a_time_zone():
    days = pd.date_range("2024-01-01", periods=40, freq="7h", tz="Europe/Berlin")
    encoder = TableEncoder().fit(pd.DataFrame({"day": days}))
    rows = pd.DataFrame({"day": ["2024-01-02T23:30+00:00", "NA"]})
    expected = encoder.transform(rows.assign(day=["2024-01-02T23:30+00:00", None]))
    np.testing.assert_array_equal(encoder.transform(rows), expected)


@pytest.mark.parametrize("mark", ["", "NA", " n/a ", "NaT", "?"])
def test_a_mark_of_a_gap_among_dates_that_fit_did_not_see(mark):
    encoder = TableEncoder().fit(pd.DataFrame({"day": ["2024-01-01", None, "2024-01-03"]}))
    rows = pd.DataFrame({"day": ["2024-01-02", mark]})
    expected = encoder.transform(rows.assign(day=["2024-01-02", None]))
    np.testing.assert_array_equal(encoder.transform(rows), expected)


# -- columns of which nothing is learned ----------------------------------------------------------


@ON_ALL
def test_a_column_of_rare_levels_only_warns(estimator):
    """Numbers and dates that came as strings would else be lost without a warning."""
    X = pd.DataFrame({"area": np.arange(120.0), "paid": [f"1.{i:03} kg" for i in range(120)]})
    X["town"] = ["here", *["there"] * 119]  # of which one level is rare
    message = "column 'paid' holds 120 categories in 120 rows, none of them often enough.* "
    message += r"text_features; .*TableEncoder\(min_frequency=\.\.\., max_categories=\.\.\.\)"
    with pytest.warns(UserWarning, match=message):
        clone(estimator).fit(X, X["area"])
    clone(estimator).fit(X.assign(paid=["1", "2"] * 60), X["area"])  # and this warns of nothing


@pytest.mark.slow
@ON_ALL
def test_a_column_of_which_most_rows_have_a_level_of_their_own_warns(estimator):
    """Of 120 rows, 62 and then 60; the others share a few levels, or each one with another."""
    for n_others in (10, 29):
        for n_alone in (62, 60):
            numbers = np.append(np.arange(n_alone), 100 + np.arange(120 - n_alone) % n_others)
            X = pd.DataFrame({"area": np.arange(120.0), "paid": [f"{i} kg" for i in numbers]})
            n_single = np.count_nonzero(X["paid"].value_counts() == 1)
            message = "column 'paid' holds [0-9]+ categories in 120 rows, most of them once, too"
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                clone(estimator).fit(X, X["area"])
            warned = any(re.match(message, str(each.message)) for each in found)
            assert warned == (n_single > 60)


def test_what_was_written_is_not_kept():
    encoder = TableEncoder().fit(pd.DataFrame({"day": ["2024-01-01", "2024-01-03"]}))
    assert b"2024-01-03" not in pickle.dumps(encoder)


@pytest.mark.parametrize("text", ["9999-12-31T23:59-05:00", "0001-01-01T00:00+05:00"])
def test_a_moment_that_no_clock_shows_leaves_all_of_them_categories(text):
    X = pd.DataFrame({"t": ["2024-01-01T00:00Z", "2024-01-01T00:00+02:00", text]})
    assert columns_of(X).keys() == {f"t_{value}" for value in X["t"]}


def test_an_encoder_shows_methods_of_scikit_learn_alone():
    shown = {name for name in dir(TableEncoder) if not name.startswith("_")}
    assert shown == {
        *("fit", "transform", "fit_transform", "get_feature_names_out", "set_output"),
        *("get_params", "set_params", "get_metadata_routing"),
    }
