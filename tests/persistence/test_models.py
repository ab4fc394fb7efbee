"""Whole models of scikit-learn as files, without code."""

import io
import pickle
import re
import tracemalloc
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.pipeline import FunctionTransformer, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import nona_sklearn
from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsRegressor,
    __version__,
    unwrap,
)

QUICK = {"n_estimators": 1, "max_iter": 3, "random_state": 0}
RANDOM = np.random.RandomState(0)
X = pd.DataFrame(
    {
        "area": RANDOM.uniform(20, 120, 80),
        "district": RANDOM.choice(["north", "south"], 80),
        "built": pd.to_datetime("1990-01-01")
        + pd.to_timedelta(RANDOM.randint(9000, size=80), "D"),
    },
    index=[f"flat {i}" for i in range(80)],
)
Y = 10 * X["area"] + 100 * (X["district"] == "north")
COLUMNS = make_column_transformer((StandardScaler(), ["area"]), (OneHotEncoder(), ["district"]))


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(COLUMNS, NONARegressor(**QUICK)),
        make_pipeline("passthrough", NONARegressor(**QUICK)),
        TransformedTargetRegressor(
            SoftStepKNeighborsRegressor(max_iter=3, random_state=0),
            func=np.log,
            inverse_func=np.exp,
        ),
        FixedThresholdClassifier(NONAClassifier(**QUICK), threshold=0.3),
    ],
    ids=["columns", "raw", "logarithms", "threshold"],
)
def test_a_model_predicts_the_same(model, tmp_path):
    y = Y.mean() < Y if isinstance(model, FixedThresholdClassifier) else Y
    model.fit(X, y)
    nona_sklearn.save(model, tmp_path / "model.skops")
    again = nona_sklearn.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert type(again) is type(model)
    pair = [unwrap(each).heaviest_neighbors(X[:3], return_names=True) for each in (model, again)]
    for one, other in zip(*pair, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        nona_sklearn.save(model, tmp_path / "model.skops")
    with pytest.raises(TypeError, match="load was passed callbacks"):
        nona_sklearn.load(tmp_path / "model.skops", callbacks=[])


@pytest.mark.slow
def test_the_best_model_of_a_search(tmp_path):
    search = GridSearchCV(
        make_pipeline(COLUMNS, NONARegressor(**QUICK)), {"nonaregressor__max_iter": [1, 2]}, cv=2
    ).fit(X, Y)
    with pytest.raises(TypeError, match="save the best_estimator_ of a search"):
        nona_sklearn.save(search, tmp_path / "search")
    nona_sklearn.save(search.best_estimator_, tmp_path / "best")
    np.testing.assert_array_equal(
        nona_sklearn.load(tmp_path / "best").predict(X), search.predict(X)
    )


def halve(table):
    return table / 2


class KeptState(StandardScaler):
    def halve(self, table):
        return table / 2


def test_parts_of_others_are_refused(tmp_path):
    rows = X[["area"]].to_numpy(dtype=np.float32)
    of_others = [
        make_pipeline(FunctionTransformer(halve), NONARegressor(**QUICK)),
        make_pipeline(NONARegressor(torch.nn.Linear(1, 2), **QUICK)),
        make_pipeline(FunctionTransformer(StandardScaler().fit(rows).transform), Ridge()),
        make_pipeline(FunctionTransformer(KeptState().halve), Ridge()),
    ]
    for model in of_others:
        model.fit(rows, Y)
        with pytest.raises(TypeError, match="made of parts of scikit-learn and of this package"):
            nona_sklearn.save(model, tmp_path / "model")
        assert [*tmp_path.iterdir()] == []


def test_files_from_others_run_no_code(tmp_path):
    import skops.io

    path = tmp_path / "model.skops"
    skops.io.dump(make_pipeline(FunctionTransformer(halve), Ridge()), path)
    with pytest.raises(ValueError, match=r"holds .*halve, which is no part of scikit-learn"):
        nona_sklearn.load(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("schema.json", "{}")
    with pytest.raises(ValueError, match="is damaged, or not a file that save wrote"):
        nona_sklearn.load(path)
    path.write_bytes(pickle.dumps(make_pipeline(Ridge())))
    with pytest.raises(ValueError, match="looks like a pickle"):
        nona_sklearn.load(path)


def test_a_model_that_load_would_refuse_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match="made of parts of scikit-learn and of this package"):
        nona_sklearn.save(make_pipeline(FunctionTransformer(NONARegressor().fit)), tmp_path / "m")
    assert [*tmp_path.iterdir()] == []


def forge(path, change, name="schema.json", **compressed):
    """Change the content of a file in an archive."""
    with zipfile.ZipFile(path) as file:
        parts = {each: file.read(each) for each in file.namelist()}
    parts |= {each: change(parts[each]) for each in parts if each.endswith(name)}
    with zipfile.ZipFile(path, "w", **compressed) as file:
        for each, content in parts.items():
            file.writestr(each, content)


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return lambda _: file.getvalue()


def set_number(key, value):
    """Change a number of the schema, or the first one of a list."""

    def change(content):
        pattern = rf'("{key}": {{[^}}]*?"content": (\[\s*{{[^}}]*?"content": )?")-?\d+'
        new, n_changed = re.subn(pattern, rf"\g<1>{value}", content.decode())
        assert n_changed == 1
        return new.encode()

    return change


def drawn(bits):
    """A generator whose position is no number that another part of its state has, too."""
    rng = np.random.default_rng(bits)
    rng.random(3)
    return rng


@pytest.mark.parametrize(
    ("part", "change", "name"),
    [
        (np.random.RandomState(0), set_number("pos", 2**30), "schema.json"),
        (np.random.RandomState(0), set_number("pos", -1), "schema.json"),
        (np.random.Generator(np.random.MT19937(0)), set_number("pos", 2**30), "schema.json"),
        (drawn(np.random.Philox(0)), set_number("buffer_pos", -(2**30)), ".json"),
        (np.eye(3), lambda npy: npy.replace(b"(3, 3)", b"(9, 9)"), ".npy"),
        (np.eye(3), lambda npy: npy.replace(b"<f8", b"|O8"), ".npy"),
        (CountVectorizer().fit(["a word", "or more"]), set_number("word", 2**30), "schema.json"),
        (OneHotEncoder().fit([[1], [2], [3]]), set_number("_n_features_outs", 1), "schema.json"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_forged_positions_are_refused(part, change, name, tmp_path):
    """Compiled code reads there without a check."""
    path = tmp_path / "model.skops"
    model = make_pipeline(StandardScaler(), NONARegressor())
    model[0].mean_ = {"deep": [(part,)]}
    nona_sklearn.save(model, path)
    nona_sklearn.load(path)
    forge(path, change, name)
    with pytest.raises(ValueError, match="is damaged, or not a file that save wrote"):
        nona_sklearn.load(path)


@pytest.mark.parametrize("nested", [False, True])
def test_an_archive_that_needs_more_memory_than_it_may_is_refused_before(nested, tmp_path):
    path = tmp_path / "model.skops"
    model = make_pipeline(StandardScaler(), NONARegressor())
    model[0].mean_ = np.eye(3)
    nona_sklearn.save(model, path)
    if nested:
        forge(path, npz(data=np.zeros(2**21)), ".npy")
    else:
        forge(path, lambda npy: npy + bytes(2**24), ".npy", compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    with pytest.raises(ValueError, match="is damaged, or not a file that save wrote"):
        nona_sklearn.load(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_without_skops(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skops.io", None)
    with pytest.raises(ImportError, match="needs skops: install the extra 'skops'"):
        nona_sklearn.save(make_pipeline(StandardScaler(), NONARegressor()), tmp_path / "model")


def test_pickles_of_another_version_warn(monkeypatch):
    reg = NONARegressor(**QUICK).fit(X, Y)
    written = pickle.dumps(reg)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(written)
    monkeypatch.setattr("inner.estimators.base.__version__", "9.8.7")
    with pytest.warns(UserWarning, match=f"pickled by nona_sklearn {__version__}, .* by 9.8.7"):
        again = pickle.loads(written)
    np.testing.assert_array_equal(again.predict(X), reg.predict(X))
    pickle.loads(pickle.dumps(again))  # which this version has written


def test_files_of_another_version_do_not_warn(monkeypatch, tmp_path):
    reg = NONARegressor(**QUICK).fit(X, Y)
    nona_sklearn.save(reg, tmp_path / "model")
    monkeypatch.setattr("inner.estimators.base.__version__", "9.8.7")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = nona_sklearn.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), reg.predict(X))
