"""The warning where related rows predict each other far better than others do."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from inner.data import Column, Split
from inner.estimators import _identifiers, _is_sorted, _lag_of, _of_columns
from inner.inference import WINDOW, Evaluation, Neighbors, Relation, related_factor, relations
from sklearn.model_selection import KFold

from nona_sklearn import NONAClassifier, NONAHead, NONARegressor

N_PERSONS, N_VISITS = 80, 5
PERSON = np.repeat(np.arange(N_PERSONS), N_VISITS)


@pytest.fixture(scope="module")
def persons():
    """Visits of persons, of whom each has a level of his own, and features that name him."""
    rng = np.random.RandomState(0)
    features = rng.normal(size=(N_PERSONS, 3))[PERSON] + 0.01 * rng.normal(size=(len(PERSON), 3))
    level = rng.choice([-1.0, 1.0], size=N_PERSONS)  # errors are alike, so that chance is small
    return features, level[PERSON] + 0.1 * rng.normal(size=len(PERSON))


def advice(X, y, kind=NONARegressor, options=None, **fit):
    """What fit warns of, but for convergence."""
    params = {"n_estimators": 2, "max_iter": 8, "hidden_layer_sizes": (16,), "random_state": 0}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind(**params | (options or {})).fit(X, y, **fit)
    found = [each for each in caught if each.category is UserWarning]
    assert all(each.filename == __file__ for each in found)  # where fit is called
    return [str(each.message) for each in found]


def lag_of(column, y):
    """By how many rows a column lags behind the targets."""
    if _is_sorted(torch.from_numpy(y)):
        return None
    return _lag_of(Column("x", "number", column), y, np.sort(y))


def shuffled(X, y):
    order = np.random.RandomState(1).permutation(len(y))
    return X[order], y[order]


@pytest.mark.slow
def test_rows_of_a_person_are_next_to_each_other(persons):
    (message,) = advice(*persons)
    assert message.startswith("Rows that are next to each other in X predict each other better")
    assert "pass times" in message
    assert "pass groups" in message
    factor = float(re.search(r"is ([\d.,]+) times as large", message)[1].replace(",", ""))
    assert factor > 1.5  # a new person's level is unknown: much more than a known one's


@pytest.mark.slow
def test_of_classes(persons):
    X, y = persons
    (message,) = advice(X, np.where(y > 0, "high", "low"), NONAClassifier)
    assert message.startswith("Rows that are next to each other in X")


@pytest.mark.slow
def test_no_order_no_warning(persons):
    assert advice(*shuffled(*persons)) == []


@pytest.mark.slow
def test_independent_rows_are_not_related():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(400, 3))
    y = X[:, 0] + rng.normal(size=400)
    assert advice(X, y) == []
    order = y.argsort()  # a table that is sorted by its target
    assert advice(X[order], y[order]) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [int, str])
def test_a_column_names_the_person(persons, kind):
    X, y = persons
    names = np.char.add("p", PERSON.astype(str)) if kind is str else PERSON
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(person=names)
    order = np.random.RandomState(1).permutation(len(y))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*categories in.*")
        found = advice(frame.iloc[order], y[order])
    (message,) = [each for each in found if "predict each other" in each]
    assert message.startswith("Rows with the same value in column 'person' predict each other")
    assert "pass X['person'] as groups" in message
    assert not [
        each
        for each in advice(frame.iloc[order], y[order], groups=PERSON[order])
        if "predict each other" in each
    ]


@pytest.mark.slow
def test_a_column_of_dates_has_an_order():
    rng = np.random.RandomState(0)
    level = np.cumsum(rng.normal(size=400))  # a walk: hours that are near are alike
    frame = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=400, freq="h")})
    order = rng.permutation(400)
    frame, y = frame.iloc[order], level[order]
    (message,) = advice(frame, y)
    assert message.startswith("Rows whose dates in column 'day' are next to each other")
    assert "pass times='day'" in message
    assert advice(frame, y, times="day") == []


@pytest.mark.parametrize(
    ("without", "others", "expected"),
    [
        ([0.0] * 240 + [50.0] * 10, [0.5] * 250, 4.0),  # few large errors, 3 standard errors
        ([0.0] * 245 + [50.0] * 5, [0.5] * 250, None),  # fewer, 2 of them
        ([1.2, 1.0, 1.4] * 80, [1.0] * 240, 1.2),  # a little larger, of nearly all rows
        ([0.0] * 240 + [17.0] * 10, [0.5] * 250, None),  # a little larger, of few
        ([1.05] * 240, [1.0] * 240, None),
    ],
)
def test_related_rows_have_far_larger_errors_or_surely_larger_ones(
    without, others, expected, monkeypatch
):
    order = np.random.RandomState(0).permutation(len(without))
    errors = iter([np.array(without)[order], np.array(others)])
    monkeypatch.setattr(relations, "_squared_errors", lambda *_: next(errors))
    relation = Relation(ranks=np.arange(3))
    found = relations.related_factor(None, None, None, relation)
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.mark.slow
def test_copies():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(130, 3))
    y = X[:, 0] + rng.normal(size=130)
    (message,) = advice(*shuffled(np.tile(X, (3, 1)), np.tile(y, 3)))
    assert message.startswith("Rows with equal features predict each other better")
    assert "drop copies, or pass groups" in message
    # Rows that are equal by chance have targets of their own.
    discrete = rng.randint(3, size=(400, 3)).astype(float)
    assert advice(discrete, discrete[:, 0] + rng.normal(size=400)) == []


@pytest.mark.slow
def test_no_warning_where_validation_rows_are_chosen(persons):
    X, y = persons
    # Beside a trend networks train to the end, and fit warns that they know nothing of others.
    alone = {"trend": None}
    assert advice(X, y, groups=PERSON, options=alone) == []
    assert advice(X, y, times=PERSON, options=alone) == []
    assert advice(X, y, X_val=X[:50], y_val=y[:50]) == []
    assert advice(X, y, options={"validation_fraction": None}) == []


@pytest.mark.slow
def test_rows_without_weight_are_not_looked_at(persons):
    X, y = persons
    weights = np.zeros(len(y))
    weights[::N_VISITS] = 1  # one visit of each
    assert advice(X, y, sample_weight=weights) == []


def excluded(relation, n_rows):
    neighbors = Neighbors(torch.zeros(n_rows, 1), torch.zeros(n_rows))
    evaluation = Evaluation(NONAHead(), neighbors, neighbors.embeddings)
    return relation.exclude(evaluation, np.arange(n_rows)).exclusion


def test_exclusions_are_of_related_rows_and_as_many_others():
    labels = np.repeat(np.arange(10), 3)
    for relation in (Relation(labels=labels), Relation(labels=labels).shuffled()):
        mask = np.zeros((30, 30), dtype=bool)
        mask[tuple(excluded(relation, 30).of())] = True
        assert (mask.sum(axis=1) == 3).all()
        assert mask.diagonal().all()
    order = Relation(ranks=np.arange(50))
    near = excluded(order, 50).of().numpy()
    distance = np.abs(np.subtract.outer(np.arange(50), np.arange(50)))
    np.testing.assert_array_equal(near, distance <= WINDOW)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(100) // 3, True),
        (np.arange(100), False),  # each row has its own
        (np.arange(400) % 25, False),  # few values
        (np.arange(900) % 30, False),  # many rows of each
        (np.arange(400) % 40, True),
        (np.arange(100) // 3 + 0.5, False),
        (np.append(np.arange(99) // 3, np.nan), False),
    ],
)
def test_what_an_identifier_is(values, expected):
    column = Column("id", "number", values.astype(float))
    assert (_identifiers(column) is not None) == expected


def walk(n=200):
    return np.cumsum(np.random.RandomState(0).normal(size=n))


@pytest.mark.slow
@pytest.mark.parametrize("lag", [1, 7])
def test_a_column_that_holds_earlier_targets(lag):
    level, named = walk(), "row" if lag == 1 else f"{lag} rows"
    frame = pd.DataFrame({"noise": np.random.RandomState(1).normal(size=200)})
    frame["before"] = pd.Series(level).shift(lag)  # the first are missing
    (message,) = advice(frame, level)
    assert message.startswith(f"The target of the {named} before is in column 'before', so that")
    assert "pass times to fit" in message
    assert advice(frame, level, times=np.arange(200)) == []


@pytest.mark.parametrize(
    "column",
    [
        walk(),  # the target itself
        np.append(walk()[1:], 0.0),  # later targets
        np.random.RandomState(1).permutation(walk()),
        np.full(200, np.nan),
        np.where(np.arange(200) % 2, np.append(0.0, walk()[:-1]), 0.5),  # half of the rows
    ],
)
def test_other_columns_are_no_lags(column):
    assert lag_of(column, walk()) is None


@pytest.mark.parametrize("size", [0.0, 1e9, -1e12])
def test_nearness_is_relative_to_the_spread(size):
    """All values are about the same where they are large, but not equal."""
    y, other = size + np.random.default_rng(0).normal(size=(2, 200))
    assert lag_of(other, y) is None
    lag = np.append(np.nan, y[:-1]).astype(np.float32 if size == 0 else float)
    assert lag_of(lag, y) == 1


def test_few_values_are_no_lag():
    same = np.repeat([0.0, 1.0], [5, 195])
    assert lag_of(same, same) is None


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, -1])
def test_the_order_of_the_targets_is_no_relation(step):
    """Neighbours in such an order are alike, so that without them all rows are poorly known."""
    rng = np.random.RandomState(0)
    X = rng.randint(4, size=(300, 3)).astype(float)
    y = X[:, 0] + 0.3 * rng.normal(size=300)
    order = y.argsort()[::step]
    assert advice(X[order], y[order]) == []
    classes = (y > 1).astype(int) + (y > 2)
    order = classes.argsort(kind="stable")[::step]
    assert advice(X[order], classes[order], NONAClassifier) == []


def test_targets_with_ties_in_their_order_are_no_lag():
    y = np.repeat(np.arange(60.0), 5)
    assert lag_of(y, y) is None


@pytest.mark.slow
def test_a_lag_of_one_of_several_outputs():
    level = walk()
    frame = pd.DataFrame({"before": pd.Series(level).shift(2)})
    targets = np.c_[np.random.RandomState(1).normal(size=200), level]
    (message,) = advice(frame, targets, options={"trend": None})  # with one, noise is told, too
    assert "2 rows before" in message


@pytest.mark.parametrize(
    ("without", "others", "expected"),
    [
        (np.full(500, 2.0), np.ones(500), 2),
        (np.full(500, 1.05), np.ones(500), None),  # hardly
        (np.append(1000.0, np.ones(500)), np.ones(501), None),  # one row alone
        (np.full(60, 2.0), np.ones(60), 2),
        (np.full(59, 2.0), np.ones(59), None),  # few rows
        (np.full(500, 0.5), np.ones(500), None),
        (np.full(500, 2e-6), np.zeros(500), 2),  # errors of rounding
    ],
)
def test_what_is_far_better(without, others, expected, monkeypatch):
    errors = iter([without, others])
    monkeypatch.setattr(relations, "_squared_errors", lambda *_: next(errors))
    found = related_factor(None, None, [], Relation(labels=np.arange(3)))
    assert found == (expected and pytest.approx(expected))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_errors_are_those_of_rows_that_a_network_was_not_trained_on(persons):
    reg = NONARegressor(n_estimators=2, max_iter=2, random_state=0, similarity="l2").fit(*persons)
    rows = [np.sort(valid) for valid in reg.validation_indices_]
    splits = [Split(np.setdiff1d(np.arange(len(PERSON)), valid), valid) for valid in rows]
    none = Relation(labels=np.arange(len(PERSON)))
    found = relations._squared_errors(reg.network_.head, reg.bank_, splits, none)
    alone = replace(reg.bank_, neighbors=reg.bank_.neighbors.with_offset(None), trend=None)
    expected = [
        ((bank.targets[own] - bank.evaluate_rows(head, own).mean()) ** 2).numpy()
        for (head, bank), own in zip(
            relations.split_networks(reg.network_.head, alone), rows, strict=True
        )
    ]
    variance = reg.bank_.targets.var(correction=0).item()
    np.testing.assert_allclose(found, np.concatenate(expected) / variance, rtol=1e-5)


@pytest.mark.slow
def test_outputs_count_alike_whatever_their_units(persons):
    X, y = persons
    noise = np.random.RandomState(0).normal(size=len(y))
    found = [advice(X, np.c_[y, unit * noise]) for unit in (1, 1000)]
    message, scaled = ([m for m in each if m.startswith("Rows")] for each in found)
    assert len(message) == 1
    assert message == scaled
    assert len(advice(X, np.c_[y, np.ones(len(y))])) == 1  # a constant is no noise


@pytest.mark.slow
def test_one_warning_is_enough(persons):
    X, y = persons
    frame = pd.DataFrame(X, columns=list("abc")).assign(person=PERSON)
    assert len(advice(frame, y)) == 1
    before = pd.Series(walk()).shift(1)
    assert len(advice(pd.DataFrame({"before": before, "again": before}), walk())) == 1


@pytest.mark.slow
def test_a_lag_among_rows_of_weight():
    frame = pd.DataFrame({"before": pd.Series(walk(400)).shift(2)})
    (message,) = advice(frame, walk(400), sample_weight=np.arange(400) % 2)
    assert message.startswith("The target of the row before is in column 'before'")


@pytest.mark.slow
def test_rows_for_a_feature_extractor(persons):
    X, y = persons
    options = {"feature_extractor": lambda: torch.nn.Linear(3, 16), "hidden_layer_sizes": None}
    (message,) = advice(X.astype("float32"), y, options=options)
    assert message.startswith("Rows that are next to each other")


@pytest.mark.slow
def test_no_warning_with_a_splitter(persons):
    splitter = KFold(5, shuffle=True, random_state=0)
    assert advice(*persons, options={"validation_fraction": splitter}) == []


def test_places_of_dates():
    dates = np.array(["2024-01-03", "2024-01-01", "2024-01-04"], dtype="datetime64[us]")
    (found,) = _of_columns([Column("day", "date", dates)])
    assert found.relation.ranks.tolist() == [1, 0, 2]


def test_lags_with_gaps_and_of_short_tables():
    column = np.append(np.nan, walk()[:-1])
    column[np.random.RandomState(0).rand(200) < 0.5] = np.nan
    assert lag_of(column, walk()) == 1
    few = walk(20)
    assert lag_of(np.append(np.nan, few[:-1]), few) is None


def test_the_first_rows_have_no_rows_before():
    y = np.random.RandomState(0).normal(size=200)
    column = np.append(y[100:], np.random.RandomState(1).normal(size=100))
    assert lag_of(column, y) is None


def test_few_values_agree_by_chance():
    classes = np.random.RandomState(0).randint(5, size=31)
    for labels in np.eye(5)[classes].T:
        assert lag_of(np.zeros(31), labels) is None
    (message,) = advice(np.zeros((31, 2)), classes, NONAClassifier)
    assert "no better than the frequencies of the classes" in message


def test_zeros_that_agree_at_most_lags_are_no_lag():
    """Nine tenths of both are 0, and what differs does not agree."""
    rng = np.random.RandomState(0)
    y, column = (np.where(rng.rand(400) < 0.05, rng.rand(400), 0.0) for _ in range(2))
    looked_at = np.unique(np.linspace(0, 399, 200).astype(int))[::14]
    column[looked_at] = rng.rand(len(looked_at))
    assert lag_of(column, y) is None
