"""Banks from tables in partitions: equal to the bank in memory, also after faults."""

import errno
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from inner.scaling import building, sharded
from sklearn.base import clone

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    ShardedNeighbors,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    fit_shards,
    save_shards,
)
from nona_sklearn.eligibility import same

dd = pytest.importorskip("dask.dataframe")
datasets = pytest.importorskip("pyarrow.dataset")

N, N_SAMPLE, N_PARTS = 400, 150, 4
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.standard_normal((N, 3)), columns=list("abc"))
TABLE["kind"] = RNG.choice(list("uvw"), N)
TABLE["price"] = TABLE.a + TABLE.b**2
TABLE["size"] = 2 * TABLE.c
TABLE["level"] = np.where(TABLE.price > 1, "high", "low")
TABLE["weight"] = RNG.integers(0, 3, N)
TABLE["day"] = RNG.permutation(N)  # later partitions have earlier rows
TABLE["patient"] = np.arange(N) // 2
FEATURES = ["a", "b", "c", "kind"]
QUERIES = TABLE[FEATURES][:9].assign(a=lambda table: table.a + 0.1)
QUICK = {"max_iter": 2, "random_state": 0}
ONE = {"n_estimators": 1, **QUICK}


def in_parts(table, n_parts=N_PARTS):
    return dd.from_pandas(table, npartitions=n_parts, sort=False)


def fit(folder, estimator=None, table=TABLE, y="price", columns=FEATURES, **options):
    """Fit shards, and return them with the rows of the sample."""
    taken = [*columns, *([y] if isinstance(y, str) else y)]
    data = in_parts(table[taken]) if isinstance(table, pd.DataFrame) else table
    options = {"n_training_rows": N_SAMPLE} | options
    with patch.object(building, "draw_sample", wraps=building.draw_sample) as drawn:
        sharded = fit_shards(estimator or NONARegressor(**ONE), data, folder, y=y, **options)
        assert drawn.call_count <= 1
    return sharded


def sample_of(run):
    """Return what a call returns, and the numbers of the rows of its sample."""
    rows = []

    def kept(*args):
        rows.append(building_draw(*args))
        return rows[-1]

    building_draw = building.draw_sample
    with patch.object(building, "draw_sample", kept):
        result = run()
    return result, rows[0][0]


def in_memory(estimator, table, rows, y, columns, **given):
    """Fit the sample in memory, and add the remaining rows; return ids by position."""
    similarity = "log_l2" if "SoftStep" in type(estimator).__name__ else "l2"
    weight = given.pop("sample_weight", None)
    kept = np.arange(len(table)) if weight is None else np.flatnonzero(table[weight])
    rest = np.setdiff1d(kept, rows)
    model = clone(estimator).set_params(similarity=similarity)

    def of(rows):
        part = table.iloc[rows].reset_index(drop=True)
        return part[columns], part[y], None if weight is None else part[weight]

    X, targets, weights = of(rows)
    model.fit(X, targets, sample_weight=weights, **given)
    model.add_neighbors(*of(rest))
    return model, np.concatenate([rows, rest])


CASES = {
    "kernel": (NONARegressor(n_estimators=2, **QUICK), "price", FEATURES, {}),
    "outputs": (NONARegressor(trend="additive", **ONE), ["price", "size"], FEATURES, {}),
    "classes": (NONAClassifier(**ONE), "level", FEATURES, {}),
    "steps": (SoftStepKNeighborsRegressor(**QUICK), "price", FEATURES, {}),
    "steps, classes": (SoftStepKNeighborsClassifier(**QUICK), "level", FEATURES, {}),
    "weights": (NONARegressor(**ONE), "price", FEATURES, {"sample_weight": "weight"}),
    "times": (NONARegressor(**ONE), "price", [*FEATURES, "day"], {"times": "day"}),
    "groups": (NONARegressor(**ONE), "price", [*FEATURES, "patient"], {"groups": "patient"}),
    "rule": (NONARegressor(**ONE), "price", FEATURES, {"eligibility": same("kind")}),
}


@pytest.mark.parametrize("name", CASES)
def test_shards_hold_the_bank_to_which_the_remaining_rows_are_added(name, tmp_path):
    estimator, y, columns, given = CASES[name]
    table = TABLE[[*columns, *([y] if isinstance(y, str) else y)]]
    if "sample_weight" in given:
        table = table.assign(weight=TABLE.weight)
    sharded, rows = sample_of(
        lambda: fit_shards(
            estimator,
            in_parts(table),
            tmp_path / "bank",
            y=y,
            n_training_rows=N_SAMPLE,
            **given,
        )
    )
    expected, ids = in_memory(estimator, table, rows, y, columns, **given)
    assert len(rows) == N_SAMPLE
    assert len(sharded) == len(expected.bank_)
    queries = table[columns][:9].assign(a=lambda queries: queries.a + 0.1)
    found, wanted = sharded.predict(queries), expected.predict(queries)
    if "classes" in name:
        found, wanted = sharded.predict_proba(queries), expected.predict_proba(queries)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    distances, near = sharded.kneighbors(queries, 3)
    expected_distances, positions = expected.kneighbors(queries, 3)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(near, np.where(positions < 0, -1, ids[positions]))
