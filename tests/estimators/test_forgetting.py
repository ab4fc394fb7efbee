"""Rows that are forgotten leave nothing of their own in estimator, pickle, file and shards."""

import pickle
import struct
import zipfile
from copy import deepcopy

import joblib
import numpy as np
import pandas as pd
import pytest
from inner.data import TableEncoding
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline

import nona_sklearn
from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    ShardedNeighbors,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    save_shards,
)

N = 500
QUICK = {"n_estimators": 1, "max_iter": 2, "random_state": 0}


def people():
    """Rows with a name, a note and an address of their own, and the street of a few."""
    random = np.random.RandomState(0)
    streets = [f"{name} street" for name in ("Linden", "Birch", "Maple", "Cedar")]
    X = pd.DataFrame(
        {
            "age": random.randint(20, 80, N),
            "note": [f"note {i:04d} of somebody" for i in range(N)],
            "street": random.choice(streets, N),
            "family": [f"family {i // 2:04d}" for i in range(N)],
            "rank": pd.Categorical(
                random.choice(["low", "mid"], N), ["low", "mid", "high"], ordered=True
            ),
        },
        index=[f"person {i:04d}" for i in range(N)],
    )
    X.iloc[:6, 2] = "Hidden lane"  # frequent enough to have a column of its own
    X.iloc[:2, 4] = "high"
    return X, random.rand(N) + X.age


@pytest.fixture(scope="module")
def fitted():
    X, y = people()
    with pytest.warns(UserWarning, match="to learn from"):
        return NONARegressor(**QUICK).fit(X, y)


def everything(estimator, folder):
    """All bytes of an estimator: its pickle, its file and its shards."""
    path, shards = folder / "model.safetensors", folder / "shards"
    nona_sklearn.save(estimator, path)
    save_shards(estimator, shards, 3)
    files = [path, *(each for each in shards.iterdir() if each.is_file())]
    return b"\0".join([pickle.dumps(estimator), *(file.read_bytes() for file in files)])


def measurements():
    """Columns of each kind, in whose first row each value is a distinctive one of its own."""
    random, n = np.random.RandomState(0), 201  # percentiles of 201 numbers are some of them
    X = pd.DataFrame(
        {
            "skewed": np.exp(3 * random.randn(n)),
            "gaps": np.where(np.arange(n) % 9 == 4, np.nan, random.randn(n)),
            "plain": random.randn(n),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(random.randint(10**8, size=n), "s"),
            "lane": [f"lane {i // 4}" for i in range(n)],
        },
        index=[f"plot {i}" for i in range(n)],
    )
    y, times, weights = random.randn(n) + X.plain, 1.37 * np.arange(n), np.ones(n)
    groups = np.array([f"farm {i // 3}" for i in range(n)], dtype=object)
    X = X.rename(index={"plot 0": "secret plot"})
    X.iloc[0] = (
        98765.4321,
        7654.321,
        -8.7654321,
        pd.Timestamp("2031-03-04 05:06:07"),
        "secret lane",
    )
    y.iloc[0], times[0], weights[0], groups[0] = 4321.1234, 12345.6789, 1.2345678, "secret farm"
    return X, y, times, groups, weights


def traces_of(numbers):
    """Bytes in which numbers may be stored: both precisions and orders, and decimals."""
    for number in map(float, numbers):
        yield number, [struct.pack(form, number) for form in ("<d", ">d", "<f", ">f")]
        yield number, [repr(number).encode(), repr(float(np.float32(number))).encode()]


@pytest.mark.slow
@pytest.mark.parametrize("by_time", [True, False], ids=["times", "groups"])
@pytest.mark.parametrize(
    "estimator",
    [
        NONARegressor(**QUICK),
        NONAClassifier(**QUICK),
        SoftStepKNeighborsRegressor(max_iter=1, random_state=0),
        SoftStepKNeighborsClassifier(max_iter=1, random_state=0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_numbers_and_names_of_a_forgotten_row_are_nowhere(estimator, by_time, tmp_path):
    X, y, times, groups, weights = measurements()
    numbers = [*X.iloc[0, :3], weights[0], (X.day.iloc[0] - pd.Timestamp(0)).total_seconds()]
    numbers += [(X.day.iloc[0] - pd.Timestamp("1970-01-05")) / pd.Timedelta("1D")]
    if is_classifier(estimator):
        y = y > y.median()
    else:
        numbers.append(y.iloc[0])
    if by_time:
        numbers.append(times[0])
    options = {"times": times} if by_time else {"groups": groups}
    model = clone(estimator).set_params(half_life=250.0 if by_time else None)
    model.fit(X, y, sample_weight=weights, **options)
    model.remove_neighbors(names="secret plot")
    joblib.dump(model, tmp_path / "model.joblib")
    nona_sklearn.save(make_pipeline(model), tmp_path / "pipeline")
    with zipfile.ZipFile(tmp_path / "pipeline") as archive:
        members = b"\0".join(map(archive.read, archive.namelist()))
    held = everything(model, tmp_path) + members + (tmp_path / "model.joblib").read_bytes()
    assert b"secret" not in held
    for number, traces in traces_of(numbers):
        assert not any(trace in held for trace in traces), number


@pytest.mark.slow
def test_what_is_forgotten_was_there(fitted, tmp_path):
    held = everything(fitted, tmp_path)
    for text in (b"person 0001", b"family 0001", b"Hidden lane", b"high"):
        assert text in held
    assert b"of somebody" not in held  # a level that is rare is not stored at all


@pytest.mark.parametrize("place", [0, 250])
def test_strings_of_a_forgotten_row_are_nowhere(fitted, tmp_path, place):
    X, _ = people()
    rows = [*range(place, place + 6)]
    model = deepcopy(fitted).remove_neighbors(ids=rows)
    held = everything(model, tmp_path)
    alone = {*X.iloc[rows].select_dtypes(exclude="number").to_numpy().ravel(), *X.index[rows]}
    alone -= {*X.drop(X.index[rows]).to_numpy().ravel()}
    assert len(alone) >= 15
    for text in alone:
        assert text.encode() not in held
    assert b"Birch street" in held


@pytest.mark.slow
def test_each_of_500_rows_is_forgotten_and_a_family_with_its_last_one(fitted):
    X, y = people()
    model = deepcopy(fitted)
    model.add_neighbors(
        X.iloc[:1].assign(family="new").set_axis(["new"]), y[:1]
    )  # one has to be left
    for i in range(0, N, 2):
        family = f"family {i // 2:04d}".encode()
        model.remove_neighbors(ids=i)
        assert family in pickle.dumps(model.features_)
        model.remove_neighbors(ids=i + 1)
        held = pickle.dumps(model)
        assert family not in held
        assert f"person {i:04d}".encode() not in held


def test_rows_with_a_forgotten_level_are_as_with_a_new_one(fitted):
    X, _ = people()
    model = deepcopy(fitted).remove_neighbors(ids=[*range(6)])
    query = X.iloc[:1].assign(street="Hidden lane", family="family 0001")
    new = query.assign(street="nowhere", family="nobody")
    np.testing.assert_array_equal(model.predict(query), model.predict(new))
    others = X.iloc[6:]
    np.testing.assert_array_equal(model.transform(others), fitted.transform(others))
    assert (fitted.predict(query) != fitted.predict(new)).all()  # the original is as it was


def test_a_forgotten_level_has_the_mean_of_all(fitted):
    """The mean of its own targets would be that of the row that is to be forgotten."""
    model = deepcopy(fitted).remove_neighbors(ids=[*range(6)])
    for before, after in zip(
        fitted.features_.encoders_["levels"].encoders_,
        model.features_.encoders_["levels"].encoders_,
        strict=True,
    ):
        assert (before.encodings_[0][:3] != before.target_mean_).all()
        assert (after.encodings_[0][:3] == after.target_mean_).all()
        np.testing.assert_array_equal(after.encodings_[0][3:], before.encodings_[0][3:])


def test_a_row_with_an_unseen_level_forgets_no_other(fitted):
    X, y = people()
    model = deepcopy(fitted)
    unseen = X.iloc[:1].assign(street="nowhere", family="nobody").set_axis(["new"])
    model.remove_neighbors(ids=model.add_neighbors(unseen, y[:1]))
    left, before = (TableEncoding.of(each.features_) for each in (model, fitted))
    assert left.stored_levels() == before.stored_levels()


def test_rows_that_are_too_old_are_forgotten():
    X, y = people()
    X["more"] = np.random.RandomState(1).randn(N)
    model = NONARegressor(**QUICK).fit(X[["more", "street"]], y, times=np.arange(N))
    assert b"Hidden lane" in pickle.dumps(model)
    new = X.iloc[6:8][["more", "street"]].set_axis(["new", "newer"])
    model.add_neighbors(new, y[:2], times=[N, N + 1], max_rows=N - 6)
    assert b"Hidden lane" not in pickle.dumps(model)


def test_a_level_that_an_added_row_has_stays(fitted):
    X, y = people()
    model = deepcopy(fitted)
    (new,) = model.add_neighbors(X.iloc[:1].rename(index={"person 0000": "copy"}), y[:1])
    model.remove_neighbors(ids=[*range(6)])
    assert b"Hidden lane" in pickle.dumps(model)
    model.remove_neighbors(ids=new)
    assert b"Hidden lane" not in pickle.dumps(model)


def test_levels_stay_after_a_compression(fitted):
    model = deepcopy(fitted).compress(20)
    assert b"Hidden lane" in pickle.dumps(model)


def test_a_loaded_model_forgets_as_well(fitted, tmp_path):
    nona_sklearn.save(fitted, tmp_path / "model")
    model = nona_sklearn.load(tmp_path / "model").remove_neighbors(ids=[*range(6)])
    again = deepcopy(fitted).remove_neighbors(ids=[*range(6)])
    assert b"Hidden lane" not in pickle.dumps(model)
    X, _ = people()
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_shards_forget(fitted, tmp_path):
    X, _ = people()
    save_shards(fitted, tmp_path / "bank", 4)
    sharded = ShardedNeighbors(tmp_path / "bank")
    sharded.remove_neighbors(ids=[*range(5)])

    def held():
        return b"\0".join(file.read_bytes() for file in (tmp_path / "bank").iterdir())

    assert b"Hidden lane" in held()
    sharded.remove_neighbors(ids=5)
    for text in (b"Hidden lane", b"family 0001", b"person 0005", b"high"):
        assert text not in held()
    assert b"Birch street" in held()
    expected = deepcopy(fitted).remove_neighbors(ids=[*range(6)]).predict(X)
    for each in (sharded, ShardedNeighbors(tmp_path / "bank")):
        np.testing.assert_allclose(each.predict(X), expected, rtol=1e-5)


def test_other_readers_of_shards_do_not_write_forgotten_levels(fitted, tmp_path):
    save_shards(fitted, tmp_path / "bank", 4)
    one, other = ShardedNeighbors(tmp_path / "bank"), ShardedNeighbors(tmp_path / "bank")
    one.remove_neighbors(ids=[*range(6)])
    other.remove_neighbors(ids=[10, 11])
    held = b"\0".join(file.read_bytes() for file in (tmp_path / "bank").iterdir())
    for text in (b"Hidden lane", b"family 0001", b"family 0005"):
        assert text not in held
    X, _ = people()
    np.testing.assert_array_equal(one.predict(X.iloc[:12]), other.predict(X.iloc[:12]))


@pytest.mark.slow
def test_classes_and_arrays():
    X, y = people()
    X["more"] = np.random.RandomState(1).randn(N)
    numbers = X[["age", "more"]].to_numpy()
    model = NONARegressor(**QUICK).fit(numbers, y)
    assert len(model.remove_neighbors(ids=3).bank_) == N - 1
    table = X[["more", "street"]].to_numpy(dtype=object)
    model = NONAClassifier(**QUICK).fit(table, y > y.mean())
    assert b"Hidden lane" in pickle.dumps(model)
    model.remove_neighbors(ids=[*range(6)])
    assert b"Hidden lane" not in pickle.dumps(model)


def test_an_error_forgets_nothing(fitted):
    model = deepcopy(fitted)
    with pytest.raises(ValueError, match="unknown"):
        model.remove_neighbors(ids=[0, 1, 2, 3, 4, 5, 9999])
    assert b"Hidden lane" in pickle.dumps(model)
