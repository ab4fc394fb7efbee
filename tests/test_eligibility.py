"""Rules of eligibility: what they admit, by hand, and how they join."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inner.data import RuleColumns, StoredRule
from sklearn.metrics.pairwise import haversine_distances

from nona_sklearn.eligibility import differs, distance, pairs, same, within

EARTH_RADIUS = 6_371_008.8  # metres, the mean radius
STORED = pd.DataFrame(
    {
        "district": ["a", "b", "a", None],
        "age": [30.0, 36.0, np.nan, 41.0],
        "sold": pd.to_datetime(["2024-01-01", "2024-03-01", "2023-01-01", None]),
        "latitude": [48.0, 48.0, 90.0, -90.0],
        "longitude": [179.999, -179.999, 10.0, 0.0],
    }
)
QUERIES = pd.DataFrame(
    {
        "district": ["a", "c", None],
        "age": [35.0, np.nan, 36.0],
        "sold": pd.to_datetime(["2024-03-01", "2024-03-01", None]),
        "latitude": [48.0, 90.0, np.nan],
        "longitude": [-179.999, 170.0, 0.0],
    }
)


def admitted(rule, queries=QUERIES, stored=STORED):
    columns, rows = RuleColumns.fit(rule, stored)
    return StoredRule(rule, columns)(columns.number(columns.read(queries)), rows).int().tolist()


def test_same_and_differs():
    """An unknown category equals no row's; a missing one neither equals a row's nor differs."""
    assert admitted(same("district")) == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert admitted(differs("district")) == [[0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


def test_within_a_width():
    assert admitted(within("age", 5)) == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]
    assert admitted(~within("age", 5)) == [[0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]


def test_within_a_time_before():
    """A row of the query's own day is not before it."""
    rule = within("sold", days=60, before=True)
    assert admitted(rule) == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert admitted(~rule) == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    assert admitted(within("sold", days=60)) == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_distances_cross_the_date_line_and_meet_at_the_poles():
    near = distance("latitude", "longitude") < 1000
    assert admitted(near) == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert admitted(~near) == admitted(distance("latitude", "longitude") >= 1000)
    far = distance("latitude", "longitude") > 20_000_000
    assert admitted(far) == [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    turned = STORED.assign(longitude=[-180.0, 180.0, 55.0, 55.0])
    same_place = admitted(
        distance("latitude", "longitude") <= 0, STORED.assign(longitude=180.0), turned
    )
    assert same_place == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@given(st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180)), min_size=2, max_size=2))
def test_a_distance_is_that_of_a_great_circle(places):
    X = np.array(places)
    metres = EARTH_RADIUS * haversine_distances(np.deg2rad(X))[0, 1]
    slack = 0.001 + 1e-6 * metres  # of rounding
    for limit, expected in ((metres + slack, 1), (metres - slack, 0)):
        if 0 <= limit < np.pi * EARTH_RADIUS:
            assert admitted(distance(0, 1) <= limit, X[:1], X[1:]) == [[expected]]


def test_a_function_of_values():
    def no_older_and_other(queries, rows):
        assert rows["district"].tolist() == ["a", "b", "a", None]
        assert queries["sold"].dtype.kind == "M"
        return rows["age"] <= queries["age"][:, None]

    rule = pairs(no_older_and_other, ["age", "district", "sold"])
    assert admitted(rule) == [[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]
    with pytest.raises(ValueError, match=r"must return bool of shape \(3, 4\).*got bool.*\(4,\)"):
        admitted(pairs(lambda queries, rows: rows["age"] > 0, ["age"]))


def test_a_function_keeps_what_it_returns():
    """Rules that are joined write into masks, and not into those of a function."""
    kept = np.ones((3, 4), dtype=bool)
    rule = pairs(lambda queries, rows: kept, ["age"])
    assert admitted(rule & same("district")) == admitted(same("district"))
    assert admitted(same("district") & rule.at_least(1).rule) == admitted(same("district"))
    assert kept.all()
    shared = pairs(lambda queries, rows: np.broadcast_to(rows["age"] > 35, (3, 4)), ["age"])
    assert admitted(shared | same("district")) == [[1, 1, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1]]


def test_what_is_printed_can_be_pasted():
    near = distance("latitude", "longitude") < 1609
    rule = same("district") & near & (differs("age") | ~within("age", 5))
    assert eval(repr(rule)) == rule
    assert eval(repr(near)) == near
    assert same(np.int64(3)) == same(3)
    assert pairs(len, np.array(["a", "b"])).columns == ("a", "b")


def test_rules_join():
    both = same("district") & within("age", 5)
    assert admitted(both) == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    either = same("district") | within("age", 5)
    assert admitted(either) == [[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]]
    assert admitted(~either) == admitted(differs("district") & ~within("age", 5))
    assert ~~either == either
    assert both.columns == ("district", "age")
    assert pickle.loads(pickle.dumps(both)) == both


def test_decimals_are_within_a_width_that_they_differ_by():
    """0.14 - 0.04 and 0.1 differ by rounding, as do prices in steps of five cents."""
    steps = np.arange(60)
    apart = abs(steps[:, None] - steps)
    for first, step in ((0.04, 0.05), (0.1, 0.1), (7.3, 0.01), (-1.0, 0.2)):
        prices = pd.DataFrame({"price": first + step * steps})
        for n in (1, 2, 3, 7):
            found = np.array(admitted(within("price", step * n), prices, prices))
            np.testing.assert_array_equal(found, apart <= n)
            before = np.array(admitted(within("price", step * n, before=True), prices, prices))
            np.testing.assert_array_equal(before, (apart <= n) & (steps < steps[:, None]))


def test_times_between_dates_are_those_of_utc():
    """A local clock shows an hour twice in autumn."""
    utc = pd.to_datetime(["2021-10-31 00:30Z", "2021-10-31 01:30Z", "2021-10-30 00:30Z"])
    local = pd.DataFrame({"when": utc.tz_convert("Europe/Berlin")})
    assert admitted(within("when", minutes=59), local, local) == np.eye(3).tolist()
    day = within("when", days=1, before=True)
    assert admitted(day, local, local) == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    assert admitted(day, pd.DataFrame({"when": utc}), local) == admitted(day, local, local)


def test_a_gap_satisfies_neither_a_function_nor_its_opposite():
    older = pairs(lambda queries, rows: rows["age"] > queries["age"][:, None], ["age"])
    either = np.array(admitted(older)) + admitted(~older)
    known = np.outer(QUERIES["age"].notna(), STORED["age"].notna())
    np.testing.assert_array_equal(either, known)
    both = pairs(lambda queries, rows: np.zeros((3, 4), dtype=bool), ["age", "district"])
    known &= np.outer(QUERIES["district"].notna(), STORED["district"].notna())
    np.testing.assert_array_equal(admitted(~both), known)


def test_strings_are_levels_of_the_order_of_fit():
    bands = pd.Categorical(["low", "mid", "high"], ["low", "mid", "high"], ordered=True)
    stored = pd.DataFrame({"band": bands})
    assert admitted(within("band", 1), stored.astype(str), stored) == [
        [1, 1, 0],
        [1, 1, 1],
        [0, 1, 1],
    ]


def test_names_of_columns_may_be_tuples():
    table = STORED.set_axis(pd.MultiIndex.from_product([["v"], STORED.columns]), axis=1)
    assert admitted(same(("v", "district")), table, table)[0] == [1, 0, 1, 0]


def test_a_number_of_rows_or_wider_rules():
    rule = same("district").at_least(2, relax=[within("age", 5), within("age", 100)])
    # The first query has two rows of its district; the third has two within five years.
    assert admitted(rule) == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]]
    assert admitted(same("district").at_least(3)) == [[0] * 4] * 3


WRONG = {
    "no width": (lambda: within("age"), ValueError, "needs one width"),
    "two widths": (lambda: within("age", 5, days=1), ValueError, "needs one width"),
    "negative": (lambda: within("age", -1), ValueError, "at least 0, got -1"),
    "metres": (lambda: distance("a", "b") < -1, ValueError, "at least 0, got -1"),
    "order": (lambda: distance("Long", "lat"), ValueError, "the latitude comes first.*'Long'"),
    "equal": (lambda: distance("a", "b") == 3, TypeError, "compared by <, <=, > or >="),
    "unequal": (lambda: distance("a", "b") != 3, TypeError, "compared by <, <=, > or >="),
    "column": (lambda: same(1.5), TypeError, "named by a str, an int or a tuple, got 1.5"),
    "and": (lambda: same("a") and same("b"), TypeError, "join rules by & and"),
    "no rule": (lambda: same("a") & "b", TypeError, "a rule can be joined with a rule only"),
    "parentheses": (
        lambda: same("a") & distance("b", "c") < 5,
        TypeError,
        "put its comparison in parentheses",
    ),
    "no columns": (lambda: pairs(len, []), ValueError, "at least one column"),
    "least": (lambda: same("a").at_least(0), ValueError, "min_neighbors must be an int"),
    "late join": (lambda: same("a").at_least(1) & same("b"), TypeError, "before at_least"),
    "kind": (lambda: admitted(within("district", 5)), ValueError, "needs a column of numbers"),
    "no time": (lambda: admitted(within("sold", 5)), ValueError, r"such as within\('sold', days"),
    "time": (lambda: admitted(within("age", days=5)), ValueError, "number as its width"),
    "degrees": (
        lambda: admitted(distance("age", "latitude") < 5, stored=STORED.assign(age=95.0)),
        ValueError,
        "degrees from -90 to 90 in column 'age', got 95",
    ),
    "missing": (lambda: admitted(same("street")), ValueError, "columns of X, such.*got 'street'"),
    "reversed": (lambda: 3 & same("a"), TypeError, "put a comparison of a distance in paren"),
    "relax": (lambda: same("a").at_least(3, relax=same("b")), TypeError, "a list of rules"),
    "no relax": (lambda: same("a").at_least(3, relax=None), TypeError, "a list of rules"),
    "twice": (lambda: same("a").at_least(3).at_least(2), TypeError, "one required number"),
    "years": (lambda: within("sold", years=1), ValueError, "takes weeks, days, hours"),
    "too long": (lambda: within("sold", days=1e12), ValueError, "takes weeks, days, hours"),
    "no duration": (lambda: within("sold", np.timedelta64("NaT")), ValueError, "NaT"),
    "before": (lambda: within("age", 3, before="no"), (TypeError, ValueError), "before"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_what_is_wrong(name):
    call, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        call()
