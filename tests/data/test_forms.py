"""Numbers and dates that are written as strings."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import nona_sklearn
from nona_sklearn import NONARegressor, SoftStepKNeighborsRegressor, TableEncoder

READ = "Strings were read: "
ON_ALL = pytest.mark.parametrize(
    "estimator",
    [
        TableEncoder(),
        NONARegressor(n_estimators=1, max_iter=1, random_state=0),
        SoftStepKNeighborsRegressor(max_iter=1, random_state=0),
    ],
    ids=["encoder", "nona", "softstep"],
)


def one(values, **kwargs):
    """A pandas frame of one column."""
    return pd.DataFrame({"x": pd.Series(values, **kwargs)})


def read(texts):
    """Fit an encoder to a column of strings that it reads: (encoder, numbers)."""
    encoder = TableEncoder(min_frequency=1)
    with pytest.warns(UserWarning, match=READ):
        Z = encoder.fit_transform(one(texts, dtype=object))
    return encoder, Z[:, 0].tolist()


# -- dates -------------------------------------------------------------------------------------

DAYS = pd.to_datetime(["2024-12-31", "2023-02-05", "2024-05-09", None])
MOMENTS = DAYS + pd.to_timedelta([3661, 7200, 86340, 0], unit="s")
CLOCKS = {"": DAYS, " %H:%M": MOMENTS.floor("min"), " %H:%M:%S": MOMENTS}


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    "form",
    [
        *("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%b %d, %Y", "%d %b %Y"),
        *("%B %d, %Y", "%d %B %Y"),
    ],
)
def test_dates_of_a_form_are_these_dates(form, clock):
    moments = CLOCKS[clock]
    texts = one(moments.strftime(form + clock), dtype=object)
    message = re.escape(f"column 'x' as dates of the form {form}{clock}, such as '")
    encoder = TableEncoder()
    with pytest.warns(UserWarning, match=message):
        found = encoder.fit_transform(texts)
    np.testing.assert_array_equal(found, TableEncoder().fit_transform(one(moments)))
    # The form is kept for rows that might be read otherwise, and dates are dates.
    for later in (texts[2:3], one(moments)[2:3]):
        np.testing.assert_array_equal(encoder.transform(later), found[2:3])


@pytest.mark.parametrize("value", ["2024-13-01", "30.02.2024", "soon", "1.1.2024 12:00"])
def test_a_later_value_that_is_no_such_date_is_named(value):
    with pytest.warns(UserWarning, match=READ):
        encoder = TableEncoder().fit(one(["31.12.2024", "01.02.2023"]))
    message = f"column 'x' held dates of the form %d.%m.%Y as strings in fit, and holds {value!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        encoder.transform(one(["01.02.2023", value]))


def test_times_as_such_strings_are_refused_with_the_remedy():
    X = pd.DataFrame({"day": ["31.12.2024", "30.11.2024", "01.05.2024"], "n": range(3)})
    with pytest.raises(
        ValueError, match=r"times must .*'31.12.2024': convert them by pandas.to_d"
    ):
        NONARegressor().fit(X, X["n"], times="day")


def test_dates_whose_day_and_month_may_be_either_stay_categories_with_a_warning():
    X = one(["03/04/2024", "12/11/2024"] * 3)
    with pytest.warns(UserWarning, match=r"column 'x', such as '03/04/2024'.* dayfirst=True"):
        encoder = TableEncoder().fit(X)
    assert encoder.features_[0].is_category
    assert TableEncoder(["x"]).fit(X).features_[0].is_category  # without a warning


def test_digits_of_days_are_dates_and_other_digits_numbers():
    days = ["20240131", "20231105", "19991231"]
    with pytest.warns(UserWarning, match="as dates of the form %Y%m%d"):
        found = TableEncoder().fit_transform(one(days))
    expected = TableEncoder().fit_transform(one(pd.to_datetime(days, format="%Y%m%d")))
    np.testing.assert_array_equal(found, expected)
    for numbers in (["20240131", "20231305"], ["2024131", "20231105"], ["12340131", "20231105"]):
        assert read(numbers)[1] == [float(number) for number in numbers]


def test_points_that_may_separate_thousands_are_mentioned():
    for texts, mentions in [
        (["543", "1.309", "12.100"], True),
        (["0.543", "1.309"], False),
        (["543", "1.30"], False),
        (["1,309", "12,100"], False),
    ]:
        with pytest.warns(UserWarning, match=READ) as found:
            TableEncoder().fit(one(texts))
        assert ("remove points if they separate thousands" in str(found[0].message)) == mentions


@pytest.mark.parametrize("mark", ["NA", "", " "])
@pytest.mark.parametrize("days", ["2024-01-01", "31.12.2024", pd.Timestamp("2024-01-01")])
def test_later_rows_may_all_be_marks_of_gaps(mark, days):
    with warnings.catch_warnings(action="ignore"):
        encoder = TableEncoder().fit(one([days, None, days]))
    expected = encoder.transform(one([None], dtype=object))
    np.testing.assert_array_equal(encoder.transform(one([mark])), expected)


def test_marks_of_gaps_beside_dates_are_gaps():
    texts = ["2024-12-31", "n/a", "2023-01-01"]
    with pytest.warns(UserWarning, match="and 'n/a' as missing"):
        found = TableEncoder().fit_transform(one(texts))
    expected = TableEncoder().fit_transform(one([texts[0], None, texts[2]]))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "texts",
    [
        ["31.12.2024", "2024/12/31"],
        ["31.12.2024", "01.01.2024 12:00"],
        ["31/12/2024", "12/31/2024"],
        ["31.12.24", "30.11.24"],
        ["30.02.2024", "31.12.2024"],
    ],
)
def test_dates_of_several_forms_stay_categories(texts):
    assert TableEncoder(min_frequency=1).fit(one(texts)).features_[0].is_category


# -- columns that are nearly numbers or dates -------------------------------------------------


def many(*others, start=0):
    return [f"{i / 4}" for i in range(start, 60)] + [*others]


PADDED = [str(7 * i) for i in range(40)]
NEARLY = {
    "a leading zero": ([*PADDED, "0301"], "0301"),
    "few rows": (["x", *(f"{i}.5" for i in range(12))], "x"),
    "words first": ([f"w{i}" for i in range(100)] + [f"{i}.5" for i in range(1900)], "w0"),
    "a word": (many("abc"), "abc"),
    "infinity": (["inf", *many("NA")], "inf"),
    "another unit": ([f"{text}%" for text in many()] + ["1 EUR"], "1 EUR"),
    "two of 22": (many("low", "high", start=40), "low"),
    "a date": ([f"{i:02d}.05.2024" for i in range(1, 32)] + ["soon"], "soon"),
    "a day that is none": (
        [f"2024-01-{i:02d}" for i in range(1, 32)] + ["2024-02-30"],
        "2024-02-30",
    ),
}


@pytest.mark.parametrize("case", NEARLY)
def test_a_value_that_keeps_a_column_from_being_read_is_named(case):
    texts, unreadable = NEARLY[case]
    message = re.escape(
        f"nearly all strings are numbers or dates: column 'x' holds {unreadable!r}."
    )
    with pytest.warns(UserWarning, match=message):
        encoder = TableEncoder(min_frequency=1).fit(one(texts))
    assert encoder.features_[0].is_category


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "texts",
    [
        [str(i % 7) for i in range(100)] + ["7+"],
        [str(i % 15 / 2) for i in range(100)] + ["more"],
        [f"{i:05d}" for i in range(60)] + ["K1A"],
        [f"{i:05d}" for i in range(9_000, 13_000, 50)],
        [str(year) for year in range(1900, 1990)] + ["before"],
        [f"house {i}" for i in range(60)],
        many(*(f"about {i}" for i in range(20))),
    ],
    ids=["few whole ones", "few levels", "codes", "of one length", "years", "names", "a quarter"],
)
def test_categories_that_hold_some_numbers_stay_so_silently(texts):
    assert TableEncoder(min_frequency=1).fit(one(texts)).features_[0].is_category


@pytest.mark.filterwarnings("error")
def test_a_chosen_category_may_hold_nearly_numbers():
    TableEncoder(["x"], min_frequency=1).fit(one(many("abc")))
    TableEncoder(min_frequency=1).fit(one(many("abc"), dtype="category"))


# -- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["25.3", "-4", " 1,234.50 "], [25.3, -4, 1234.5]),
        (["-4e3", "+.5", "2E-2"], [-4000, 0.5, 0.02]),
        (["12%", "-0.5 %", "100%"], [12, -0.5, 100]),
        (["$3.20", "-$1,000", "$-2", "+$5"], [3.2, -1000, -2, 5]),
        (["123456789012345", "3"], [123456789012345, 3]),
        (["1", "2", "3", "4", "3", "2", "1"], [1, 2, 3, 4, 3, 2, 1]),
        (["€ 1,299", "€0.5", "€ 3"], [1299, 0.5, 3]),
        (["12 EUR", "7.5 EUR", "-1EUR"], [12, 7.5, -1]),
        (["3,20", "4", "1.234,5"], [3.2, 4, 1234.5]),
        (["1.234.567", "2"], [1234567, 2]),
        (["3,20 €", "1.000 €"], [3.2, 1000]),
        (["0.5", "1"], [0.5, 1]),
        ([str(i) for i in range(30)], [*range(30)]),
    ],
)
def test_strings_of_numbers_are_these_numbers(texts, numbers):
    encoder, found = read(texts)
    assert found == numbers
    later = encoder.transform(one(texts[::-1]))
    assert later[:, 0].tolist() == numbers[::-1]
    assert encoder.transform(one([0.25]))[0, 0] == 0.25  # a number is one


@given(st.lists(st.floats(-1e307, 1e307), min_size=1))  # the median adds two of them
def test_numbers_come_back_from_their_strings(numbers):
    numbers = [*numbers, 0.5]  # no whole number, which might be a code
    _, found = read([repr(number) for number in numbers])
    assert found == numbers


@pytest.mark.parametrize(
    "mark",
    [
        *("", "-", "--", ".", "?", "NA", "n/a", "#N/A", "<NA>", " NaN ", "NaT", "nil", "None"),
        "null",
    ],
)
def test_marks_of_gaps_beside_numbers_are_gaps(mark):
    encoder = TableEncoder()
    message = re.escape(f"'2.25' as 2.25, and {mark!r} as missing")
    with pytest.warns(UserWarning, match=message):
        Z = encoder.fit_transform(one(["1.5", "2.25", mark]))
    assert Z.tolist() == [[1.5, 0], [2.25, 0], [1.875, 1]]
    assert encoder.transform(one([mark, None])).tolist() == [[1.875, 1]] * 2


CODES = {
    "16 digits": ["1234567890123456", "3"],
    "a sign before a leading zero": ["-01.5", "2.5"],
    "two rows of each": ["1", "2", "3"] * 2,
    "leading zeros": ["01234", "10115", "80331"] * 2,
    "007": ["007", "123.5"],
    "years": [str(year) for year in range(1900, 2025)],
    "few levels": ["1", "2", "3"] * 4,
    "few levels as floats": ["1.0", "2.0", "3.0"] * 4,
    "many digits": ["12345678901234567", "3"],
    "units": ["12%", "0.5"],
    "two units": ["$3", "€4.5"],
    "unit between digits": ["1$50", "2$50"],
    "products": ["A12", "A13.5"],
    "versions": ["1.2.3", "1.2.4"],
    "both signs for decimals": ["1.5", "1,5"],
    "infinity": ["1e999", "1.5"],
    "gaps only": ["NA", "?"],
    "words": ["inf", "1.5"],
    "digits of another script": ["٣.٥", "1.5"],
}


@pytest.mark.parametrize("name", CODES)
def test_other_strings_stay_categories(name):
    encoder = TableEncoder(min_frequency=1).fit(one(CODES[name]))
    assert encoder.features_[0].is_category
    Z = encoder.transform(one(CODES[name]))
    assert (Z.sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    "X",
    [
        one(["1.5", "2.5"] * 5, dtype="category"),
        pl.DataFrame({"x": pl.Series(["1.5", "2.5"] * 5, dtype=pl.Categorical)}),
    ],
)
def test_a_categorical_of_numbers_as_strings_stays_one(X):
    assert TableEncoder().fit(X).features_[0].is_category


@ON_ALL
@pytest.mark.parametrize("make", [one, lambda texts: pl.DataFrame({"x": texts}), np.c_])
def test_numbers_as_strings_are_as_the_numbers(estimator, make):
    numbers = np.random.default_rng(0).normal(size=30).round(3)
    texts, y = [f"{number} %" for number in numbers], numbers**2
    if make is np.c_:
        table, oracle = np.array(texts)[:, None], numbers[:, None]
    else:
        table, oracle = make(texts), make(numbers)
    as_numbers = clone(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        as_numbers.fit(oracle, y)
        with pytest.warns(UserWarning, match=READ):
            as_strings = clone(estimator).fit(table, y)
    np.testing.assert_array_equal(as_strings.transform(table), as_numbers.transform(oracle))


@ON_ALL
def test_a_later_value_that_is_no_such_number_is_named(estimator):
    X, y = one([f"${i}.5" for i in range(20)]), np.arange(20.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = clone(estimator).fit(X, y)
    for value in ("soon", "5.5", "€5.5", "$1e999"):
        message = f"column 'x' held numbers with '$' as strings in fit, and holds {value!r} now"
        with pytest.raises(ValueError, match=re.escape(message)):
            fitted.transform(one(["$1", value]))


def test_the_warning_names_columns_once_and_what_to_do():
    X = pd.DataFrame({"a": ["1.5", "20.25"], "b": ["€ 3,20", "€ 1,10"], "c": ["u", "v"]})
    with pytest.warns(UserWarning, match=READ) as warned:
        TableEncoder().fit(X)
    (message,) = {str(w.message) for w in warned if READ in str(w.message)}
    assert "column 'a' as numbers, such as '20.25' as 20.25; column 'b'" in message
    assert "'b' as numbers with '€' and decimal commas, such as '€ 3,20' as 3.2" in message
    assert "pandas.to_numeric" in message
    assert "categorical_features" in message
    wide = pd.DataFrame({f"c{j}": ["1.5", "2.5"] for j in range(30)})
    with pytest.warns(UserWarning, match="and 25 more columns"):
        TableEncoder().fit(wide)


def test_a_chosen_category_is_none_of_numbers_and_does_not_warn():
    X = pd.DataFrame({"x": ["1.5", "2.5", "NA"] * 5, "n": range(15)})
    encoder = TableEncoder(["x"]).fit(X)
    names = encoder.get_feature_names_out().tolist()
    assert names == ["n", "x_1.5", "x_2.5", "x_NA"]
    np.testing.assert_array_equal(encoder.transform(X[:1])[:, 1:], [[1, 0, 0]])


def test_columns_that_are_numbers_need_no_choice():
    X = pd.DataFrame({"x": ["1.5", "2.5"] * 5, "n": range(10)})
    with pytest.warns(UserWarning, match=READ):
        assert TableEncoder(None).fit_transform(X).shape == (10, 2)


def test_a_fitted_reading_is_stored(tmp_path):
    texts = {"x": ["3,20 €", "1.000 €"], "day": ["31/12/2024", "01/02/2023"]}
    with pytest.warns(UserWarning, match=READ):
        encoder = TableEncoder().fit(pd.DataFrame(texts))
    nona_sklearn.save(encoder, tmp_path / "encoder.safetensors")
    X = pd.DataFrame({"x": ["2.000,5 €", "?"], "day": ["03/04/2023", None]})
    for again in (
        pickle.loads(pickle.dumps(encoder)),
        nona_sklearn.load(tmp_path / "encoder.safetensors"),
    ):
        np.testing.assert_array_equal(again.transform(X), encoder.transform(X))


def test_an_explanation_compares_numbers_that_are_strings():
    numbers = np.random.default_rng(0).normal(size=(30, 2)).round(3)
    X = pd.DataFrame(numbers, columns=["a", "b"])
    reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = clone(reg).fit(X, numbers[:, 0]).explain(X[:3], features=X)["differs"]
        found = reg.fit(X.astype(str), numbers[:, 0])
        found = found.explain(X[:3].astype(str), features=X.astype(str))["differs"]
    assert found.tolist() == expected.tolist()
