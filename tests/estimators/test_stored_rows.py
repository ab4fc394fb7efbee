"""Queries that are rows of the bank are told: their own targets are part of their predictions."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    NeighborsDisplay,
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    unwrap,
)

QUICK = {"n_estimators": 1, "max_iter": 2, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    """Rows with names, of a category of many levels."""
    random = np.random.RandomState(0)
    X = pd.DataFrame(random.randn(90, 3), columns=["a", "b", "c"])
    X["level"] = random.choice(list("abcdefgh"), 90)
    X.index = [f"row {i}" for i in range(90)]
    return X, pd.Series(X["a"] + random.randn(90), index=X.index)


@pytest.fixture(scope="module")
def model(rows):
    X, y = rows
    return NONARegressor(**QUICK).fit(X[:60], y[:60])


def told(function, *arguments, **options):
    """What a call tells of stored rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments, **options)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("row", [0, 37])
def test_a_stored_row_is_told_by_its_name(rows, model, row):
    X, _ = rows
    query = X[row : row + 1]
    for function, options in [
        (model.explain, {}),
        (model.explain, {"n_neighbors": 1, "features": X[:60]}),
        (unwrap(model).explain, {}),
        (lambda X, **_: NeighborsReport(model, X), {}),
    ]:
        (text,) = told(function, query, **options)
        assert text.startswith(f"'row {row}' is a stored row, whose own target is part")
        assert "explain(None)" in text
        assert f"row='row {row}'" in text
    (text,) = told(model.explain, X[50:])
    assert "and 9 further queries are like it" in text


@pytest.mark.slow
def test_a_display_and_a_page_tell_it(rows, model):
    X, _ = rows
    pytest.importorskip("matplotlib").use("agg")
    assert len(told(NeighborsDisplay.from_estimator, model, X[:1])) == 1
    assert told(NeighborsDisplay.from_estimator, model, row="row 0") == []
    with pytest.warns(UserWarning, match="is a stored row"):
        html = NeighborsReport(model, X[:1], X[:60])._repr_html_()
    assert "is a stored row, whose own target is part of the prediction" in html
    assert (
        "is a stored row" not in NeighborsReport(model, row="row 0", features=X[:60])._repr_html_()
    )


@pytest.mark.slow
def test_rows_without_names_are_told_by_their_features(rows, model):
    X, y = rows
    expected = "X[0] has the features of the stored row 'row 4', whose own target"
    assert told(model.explain, X[4:5].reset_index(drop=True))[0].startswith(expected)
    numbered = X[4:5].set_axis([12])  # a number counts rows, where rows have other names
    assert "the stored row 'row 4'" in told(model.explain, numbered)[0]
    array = X[["a", "b", "c"]].to_numpy()
    for estimator in (
        NONARegressor(**QUICK),
        SoftStepKNeighborsRegressor(3, weighting="uniform", learn_feature_weights=False),
        make_pipeline(StandardScaler(), NONARegressor(**QUICK)),
    ):
        fitted = unwrap(estimator.fit(array[:60], y[:60].to_numpy()))
        assert (
            "X[1] has the features of the stored row 5" in told(fitted.explain, array[[70, 5]])[0]
        )
        assert told(fitted.explain, array[60:]) == []
        named = pd.DataFrame(array[5:6], index=["house"])  # where the bank's rows have no names
        if not hasattr(fitted, "feature_names_in_"):
            assert "'house' has the features of the stored row 5" in told(fitted.explain, named)[0]


def test_other_rows_are_not_told(rows, model):
    X, y = rows
    assert told(model.explain, X[60:]) == []
    assert told(model.explain, X[:1].set_axis(["twin"])) == []  # equal, of another name
    assert told(model.explain, X[:1].assign(a=X["a"].iloc[0] + 0.1)) == []  # what if
    assert told(model.explain) == []
    assert told(model.predict, X[:9]) == []  # as scores on training rows do
    added = NONARegressor(**QUICK).fit(X[:60], y[:60])
    added.add_neighbors(X[60:61], y[60:61])
    assert "'row 60' is a stored row" in told(added.explain, X[60:61])[0]


def test_a_row_whose_encoding_is_made_of_targets_is_told_by_its_name(rows):
    X, y = rows
    clf = NONAClassifier(table_encoder=TableEncoder(max_categories=2), **QUICK).fit(
        X[:60], y[:60] > 0
    )
    assert len(told(clf.explain, X[3:4])) == 1
    assert told(clf.explain, X[60:]) == []


def test_a_row_that_is_not_earlier_than_itself_is_not_behind_it(rows):
    X, y = rows
    timed = X.assign(day=np.arange(90.0))
    reg = NONARegressor(**QUICK).fit(timed[:60], y[:60], times="day")
    assert told(reg.explain, timed[30:31]) == []


def test_many_queries_are_one_message(rows, model):
    X, _ = rows
    with pytest.warns(UserWarning, match=re.escape("and 59 further queries are like it")):
        model.explain(X[:60], n_neighbors=1)
