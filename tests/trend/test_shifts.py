"""Influence beside a kernel trend is what removing the row does, to the trend as well."""

import copy

import numpy as np
import pandas as pd
import pytest

from nona_sklearn import NONAClassifier, NONARegressor, SoftStepKNeighborsRegressor

RNG = np.random.default_rng(3)
N = 90
X, NEW = RNG.normal(size=(N, 3)), RNG.normal(size=(15, 3))
GROUPS = np.arange(N) // 2
SMALL = {"hidden_layer_sizes": (16,), "max_iter": 3, "random_state": 0, "trend": "kernel"}
SMALL |= {"similarity": "l2"}


def signal(rows):
    return np.sin(2 * rows[:, 0]) + rows[:, 1]


Y, TRUE = signal(X) + 0.1 * RNG.normal(size=N), signal(NEW)
TWO, TWO_TRUE = np.c_[Y, -3 * Y**2], np.c_[TRUE, -3 * TRUE**2]
LABELS, LABELS_TRUE = (np.digitize(each, [-0.5, 0.5]) for each in (Y, TRUE))
WEIGHTS = 1.0 + np.arange(N) % 3


def nona(**params):
    return NONARegressor(**SMALL | {"n_estimators": 2} | params)


def clf(**params):
    return NONAClassifier(**SMALL | {"n_estimators": 2} | params)


CASES = {
    "one output": (nona(), Y, TRUE, {}),
    "two outputs with weights": (nona(), TWO, TWO_TRUE, {"sample_weight": WEIGHTS}),
    "groups": (nona(), TWO, TWO_TRUE, {"groups": GROUPS}),
    "all rows": (nona(n_neighbors=None), Y, TRUE, {}),
    "sparsemax": (nona(n_neighbors=None, weighting="sparsemax"), Y, TRUE, {}),
    "bounds": (nona(bounds=(-1.0, 1.0)), Y.clip(-1, 1), TRUE.clip(-1, 1), {}),
    "classes": (clf(), LABELS, LABELS_TRUE, {}),
    "classes in groups": (clf(), LABELS, LABELS_TRUE, {"groups": GROUPS}),
}


def outputs(model, queries, one_hot=False):
    found = model.predict_proba(queries) if one_hot else model.predict(queries)
    return found.reshape(len(found), -1)


def check(model, queries, truth, rows=(0, 33, N - 1), rtol=1e-4):
    """Compare `change` and `error` with predictions of the bank without the row.

    What is compared are small differences of predictions, whose weights are of float32.
    """
    one_hot = isinstance(model, NONAClassifier)
    table = model.influence(queries, None if queries is None else truth)
    truth = np.eye(3)[truth] if one_hot else truth.reshape(len(truth), -1)
    before = outputs(model, queries, one_hot)
    for j in rows:
        # A row is not among its own queries.
        kept = np.delete(np.arange(N), j) if queries is None else np.arange(len(before))
        removed = copy.deepcopy(model).remove_neighbors(ids=j)
        after, n = outputs(removed, queries, one_hot), len(before)
        change = np.square(after - before[kept]).sum() / n
        np.testing.assert_allclose(table["change"][j], np.sqrt(change), rtol=rtol, atol=1e-7)
        errors = np.square(after - truth[kept]) - np.square(before[kept] - truth[kept])
        np.testing.assert_allclose(table["error"][j], errors.sum() / n, rtol=10 * rtol, atol=1e-6)
    return table


@pytest.mark.parametrize("case", CASES)
def test_it_is_removing_the_row(case):
    model, y, truth, params = CASES[case]
    model.fit(X, y, **params)
    assert model.bank_.neighbors.offset.share > 0.1
    check(model, NEW, truth)
    check(model, None, y)


def test_rows_without_weight_have_influence():
    """By the trend, which is fitted to them."""
    model = nona(n_neighbors=3).fit(X, Y)
    table = check(model, NEW[:1], TRUE[:1])
    assert (table["weight"] == 0).sum() >= N - 6
    assert (table["change"] > 0).all()


def test_of_rows_that_are_added_the_weight_alone_has_influence():
    """The function is not fitted to them, and its values there change without others."""
    model = nona().fit(X[:80], Y[:80])
    model.add_neighbors(X[80:], Y[80:])
    table = check(model, NEW, TRUE)
    check(model, None, Y)
    alone = table["weight"][80:] == 0
    assert (table["change"][80:][alone] == 0).all()


def test_of_few_rows_of_many_it_is_of_these():
    model = nona().fit(X, Y)
    some = model.embed(NEW)[np.array([4, 2])]
    found, expected = model.influence(some), model.influence(NEW[[4, 2]])
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6)


def test_in_softstep_where_the_trend_has_all_of_the_share():
    knn = SoftStepKNeighborsRegressor(8, weighting="uniform", max_iter=3, trend="kernel")
    near = X[:15] + 1e-3  # where the share does not fade
    # The scale of the step is kept, which is of one row less than before.
    check(knn.fit(X, Y), near, signal(near), rows=(33, N - 1), rtol=0.01)


def test_with_times_the_trend_is_kept():
    """There is no closed form of predictions from earlier rows."""
    model = nona(n_neighbors=3).fit(X, Y, times=np.arange(N))
    table = model.influence(NEW[:1], TRUE[:1])
    assert (table["change"][table["weight"] == 0] == 0).all()
