"""Files that hold data and no code: what comes back, and what is refused."""

import dataclasses
import datetime
import errno
import io
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import tracemalloc
import zoneinfo
from functools import partial
from pathlib import Path
from unittest.mock import patch

import dateutil.tz
import joblib
import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import skops.io
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from inner.inference import NeighborBank, Neighbors
from inner.network import from_data, to_data
from inner.persistence import Decoder, Encoder, UnknownError, codec
from inner.persistence import file as file_module
from inner.utils import storable
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_diabetes
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neighbors import KNeighborsTransformer
from torch import nn

import nona_sklearn
from conftest import STORED_FILES
from nona_sklearn import (
    FeatureExtractor,
    NONAClassifier,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    TrainingOptions,
)
from nona_sklearn.similarity import SIMILARITIES
from nona_sklearn.weighting import (
    WEIGHTINGS,
    Preconditioned,
    Softmax,
    SparseSoftmax,
    Weighting,
)

# Predictions of stored rows are explained on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.* whose own target")

STORED = STORED_FILES / "format_1.safetensors"
QUICK = {"max_iter": 2, "random_state": 0}
ONE = {"n_estimators": 1, **QUICK}


def make_table(n=60):
    """A table with a column of each kind, some with gaps, and names for its rows."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2025-01-01", periods=n)
    return pd.DataFrame(
        {
            "area": np.where(rng.random(n) < 0.1, np.nan, rng.standard_normal(n)),
            "district": rng.choice(["Altona", "Höfe", None], n),
            "grade": pd.Categorical(rng.choice(["b", "a"], n), ["b", "a"], ordered=True),
            "let": days,
            "seen": days.tz_localize("Europe/Berlin"),
            "took": pd.to_timedelta(rng.integers(1, 9, n), unit="h"),
            "new": rng.random(n) < 0.5,
            "decade": pd.cut(rng.integers(1950, 2020, n), [1900, 1960, 2000, 2100]),
        },
        index=[f"flat {i}" for i in range(n)],
    )


TABLE = make_table()
RENT = pd.Series(np.random.default_rng(1).standard_normal(60), name="rent", index=TABLE.index)
KIND = np.where(RENT > 0, "above", "below")
X, Y = load_diabetes(return_X_y=True)
X, Y = X[:60], Y[:60]


def again(estimator, tmp_path, **passed):
    """What comes back from a file."""
    path = tmp_path / "model.safetensors"
    nona_sklearn.save(estimator, path, overwrite=True)
    return nona_sklearn.load(path, **passed)


def assert_alike(loaded, estimator, X):
    """All results are the same to the last bit."""
    assert type(loaded) is type(estimator)
    texts = [re.sub("at 0x[0-9A-F]+", "", repr(each)) for each in (loaded, estimator)]
    assert texts[0] == texts[1]
    np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))
    if hasattr(estimator, "explain"):
        pd.testing.assert_frame_equal(loaded.explain(X[:5]), estimator.explain(X[:5]))
        assert loaded.history_ == estimator.history_
    if hasattr(estimator, "predict_proba"):
        for ours, theirs in zip(
            *(np.atleast_3d(e.predict_proba(X)) for e in (loaded, estimator)), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
    if hasattr(estimator, "calibration_"):
        levels = [0.1, 0.9]
        np.testing.assert_array_equal(
            loaded.predict_quantiles(X, levels), estimator.predict_quantiles(X, levels)
        )


# -- what comes back ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (NONARegressor(n_estimators=2, **QUICK), RENT),
        (NONAClassifier(n_estimators=2, **QUICK), KIND),
        (SoftStepKNeighborsRegressor(**QUICK), RENT),
        (SoftStepKNeighborsClassifier(**QUICK), KIND),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_estimators_of_raw_tables_come_back(estimator, y, tmp_path):
    estimator = clone(estimator).fit(TABLE, y, sample_weight=1 + np.arange(60) % 3)
    loaded = again(estimator, tmp_path)
    assert_alike(loaded, estimator, TABLE)
    assert loaded.explain(TABLE[:1])["neighbor"][0].startswith("flat")
    with pytest.raises(ValueError, match="column 'let' held dates in fit, and holds 'today' now"):
        loaded.predict(TABLE.assign(let="today"))


@pytest.mark.slow
@pytest.mark.parametrize("weighting", sorted(WEIGHTINGS))
def test_each_weighting_comes_back(weighting, tmp_path):
    estimator = NONARegressor(weighting=weighting, softstep="s1", **ONE).fit(X, Y)
    assert_alike(again(estimator, tmp_path), estimator, X)


@pytest.mark.slow
@pytest.mark.parametrize(
    "params",
    [
        *({"similarity": name} for name in ("log_l2", "l1", "dot", "cosine")),
        *({"softstep": SoftStep(step, "pointwise")} for step in ("s1", "s2")),
        {"adjust": False, "hidden_layer_sizes": ()},
        {"hidden_layer_sizes": [9, 8]},
        {"numerical_embedding": "periodic", "weighting": Softmax(learn_temperature=False)},
        {"weighting": SparseSoftmax(3)},
        {"weighting": Softmax(learn_temperature=False)},
        {"weighting": Preconditioned(4), "random_state": np.random.RandomState(3)},
        {"validation_fraction": None, "device": torch.device("cpu")},
        {"training": TrainingOptions(batch_size=16, max_time=9.0)},
        {"table_encoder": TableEncoder([1], min_frequency=0.1)},
        {"hidden_layer_sizes": np.array([8]), "embedding_dim": np.int64(3)},
    ],
    ids=", ".join,
)
def test_parameters_come_back(params, tmp_path):
    estimator = NONARegressor(**(ONE | params)).fit(X, Y)
    assert_alike(again(estimator, tmp_path), estimator, X)


@pytest.mark.parametrize(
    "estimator",
    [
        NONARegressor(hidden_layer_sizes=np.array([8, 9])),
        NONARegressor(hidden_layer_sizes=range(8, 10)),
        NONARegressor(hidden_layer_sizes=pd.Index([8, 9])),
        NONARegressor(hidden_layer_sizes=pd.Series([8, 9])),
        NONARegressor(table_encoder=TableEncoder(categorical_features=np.arange(10) == 1)),
        TableEncoder(np.array([1, 2])),
        TableEncoder(np.array(["a", "b"], dtype=object)),
    ],
    ids=lambda estimator: " ".join(repr(estimator).split()),
)
def test_parameters_of_several_entries_come_back(estimator, tmp_path):
    """They need not be passed again, and their entries are the same."""
    parameters = again(estimator, tmp_path).get_params()
    for name, value in estimator.get_params().items():
        if hasattr(value, "__len__") and not isinstance(value, str):
            kinds = np.ndarray if isinstance(value, np.ndarray) else (list, tuple)
            assert isinstance(parameters[name], kinds)
            assert list(parameters[name]) == list(value)
        elif isinstance(value, BaseEstimator):  # whose parameters are listed, too
            assert type(parameters[name]) is type(value)
        else:
            assert parameters[name] == value


def test_an_estimator_of_parameters_that_are_arrays_predicts_as_it_did(tmp_path):
    encoder = TableEncoder(np.arange(10) == 1)
    sizes = np.array([8, 8])
    estimator = NONARegressor(table_encoder=encoder, hidden_layer_sizes=sizes, **ONE).fit(X, Y)
    loaded = again(estimator, tmp_path)
    assert_alike(loaded, estimator, X)
    np.testing.assert_array_equal(loaded.fit(X, Y).predict(X), estimator.predict(X))


@pytest.mark.parametrize(
    "y",
    [
        np.arange(60) % 3,
        np.array([b"a", b"b"])[np.arange(60) % 2],
        np.arange(60) % 2 == 0,
        np.array([1, "one", 2.5], dtype=object)[np.arange(60) % 2],
        np.stack([np.arange(60) % 2, np.arange(60) % 3], axis=1),
    ],
    ids=["int", "bytes", "bool", "object", "two outputs"],
)
def test_labels_come_back(y, tmp_path):
    if y.dtype == object:
        y = y.astype(str).astype(object)
    estimator = NONAClassifier(class_weight="balanced" if y.ndim == 1 else None, **ONE).fit(X, y)
    loaded = again(estimator, tmp_path)
    ours, theirs = (e.classes_ if y.ndim == 2 else [e.classes_] for e in (loaded, estimator))
    for classes, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(classes, expected)
        assert classes.dtype == expected.dtype
    np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))


NAMES = {
    "numbers": np.arange(60)[::-1],
    "days": pd.date_range("2025-01-01", periods=60),
    "hours of a zone": pd.date_range("2025-03-30", periods=60, freq="h", tz="Europe/Berlin"),
    "tuples": pd.MultiIndex.from_product([["a", "b"], range(30)]),
    "periods": pd.period_range("2025-01", periods=60, freq="M"),
    "intervals": pd.interval_range(0.0, 6.0, 60),
    "python's": [datetime.date(2025, 1, 1) + datetime.timedelta(i) for i in range(60)],
    "mixed": [None, 2.5, True, "ä\ud800", pd.NaT, pd.Timedelta("1s"), *range(54)],
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_of_rows_come_back(kind, tmp_path):
    index = pd.Index(NAMES[kind], dtype=object) if kind == "mixed" else NAMES[kind]
    table = pd.DataFrame(X, index=index)
    estimator = NONARegressor(**ONE).fit(table, Y)
    names = again(estimator, tmp_path).bank_.names
    for ours, theirs in zip(names, estimator.bank_.names, strict=True):
        assert type(ours) is type(theirs)
        assert ours == theirs or (ours is theirs is pd.NaT)


@pytest.mark.slow
def test_edited_banks_come_back_and_can_be_edited_on(tmp_path):
    estimator = NONARegressor(**ONE).fit(TABLE[:40], RENT[:40], groups=np.arange(40) // 2)
    estimator.add_neighbors(TABLE[40:50], RENT[40:50])
    estimator.remove_neighbors(names=["flat 3", "flat 41"])
    estimator.compress(30)
    loaded = again(estimator, tmp_path)
    assert_alike(loaded, estimator, TABLE)
    for each in (loaded, estimator):
        each.add_neighbors(TABLE[50:], RENT[50:])
        each.set_neighbor_targets(np.arange(40.0))
    np.testing.assert_array_equal(loaded.bank_.ids, estimator.bank_.ids)
    np.testing.assert_array_equal(loaded.predict(TABLE), estimator.predict(TABLE))


@pytest.mark.slow
def test_what_is_loaded_trains_on(tmp_path):
    estimator = NONARegressor(warm_start=True, **ONE).fit(X, Y)
    loaded = again(estimator, tmp_path)
    np.testing.assert_array_equal(loaded.fit(X, Y).predict(X), estimator.fit(X, Y).predict(X))


def test_arrays_of_any_strides_come_back(tmp_path):
    estimator = NONARegressor()
    estimator.note_ = [np.broadcast_to(np.int64(3), n) for n in (0, 1, 2)]
    for ours, theirs in zip(again(estimator, tmp_path).note_, estimator.note_, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_estimator_that_is_not_fitted_comes_back(tmp_path):
    loaded = again(NONARegressor(embedding_dim=7), tmp_path)
    assert loaded.get_params() == NONARegressor(embedding_dim=7).get_params()
    assert not hasattr(loaded, "bank_")


def test_the_encoder_of_tables_comes_back(tmp_path):
    encoder = TableEncoder().fit(TABLE)
    loaded = again(encoder, tmp_path)
    np.testing.assert_array_equal(loaded.transform(TABLE), encoder.transform(TABLE))
    assert list(loaded.get_feature_names_out()) == list(encoder.get_feature_names_out())


def test_graphs_come_back_unless_an_edit_left_them_behind(tmp_path):
    faiss = pytest.importorskip("faiss")
    estimator = NONARegressor(algorithm="hnsw", n_neighbors=5, **ONE).fit(X, Y)
    graphs = estimator.bank_.neighbors.graphs()
    for copied in (again(estimator, tmp_path), pickle.loads(pickle.dumps(estimator))):
        np.testing.assert_array_equal(copied.bank_.neighbors.graphs(), graphs)
        with patch.object(faiss, "IndexHNSWFlat", side_effect=AssertionError("built anew")):
            assert_alike(copied, estimator, X)
    secret = estimator.bank_.embeddings[17].numpy().tobytes()[:64]
    assert secret in pickle.dumps(estimator)
    estimator.remove_neighbors(ids=[17])
    assert secret not in pickle.dumps(estimator)
    loaded = again(estimator, tmp_path)
    assert loaded.bank_.neighbors.graphs() is None
    assert_alike(loaded, estimator, X)


@pytest.mark.slow
def test_a_transformer_is_passed_again(tmp_path):
    transformer = KNeighborsTransformer(n_neighbors=9)
    estimator = NONARegressor(algorithm=transformer, n_neighbors=5, **ONE).fit(X, Y)
    path = tmp_path / "model.safetensors"
    nona_sklearn.save(estimator, path)
    with pytest.raises(TypeError, match=r"needs algorithm, .* it was KNeighborsTransformer"):
        nona_sklearn.load(path)
    passed = clone(transformer)
    loaded = nona_sklearn.load(path, algorithm=passed)
    assert loaded.algorithm is loaded.bank_.neighbors.algorithm is passed
    assert_alike(loaded, estimator, X)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux lists what is mapped")
def test_a_loaded_bank_is_mapped(tmp_path):
    loaded = again(NONARegressor(**ONE).fit(X, Y), tmp_path)
    path = str(tmp_path / "model.safetensors")
    address = loaded.bank_.embeddings.data_ptr()
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    places = [line[0].split("-") for line in maps if line[-1] == path]
    assert any(int(start, 16) <= address < int(end, 16) for start, end in places)
    before = Path(path).read_bytes()
    loaded.bank_.embeddings.zero_()  # a page of one's own, from then on
    assert Path(path).read_bytes() == before


@pytest.mark.slow
def test_a_large_file_is_no_larger_than_a_pickle(tmp_path):
    estimator = NONARegressor(**ONE).fit(X, Y)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((50_000, 10)), [f"row {i}" for i in range(50_000)])
    estimator.add_neighbors(rows, rng.standard_normal(50_000))
    again(estimator, tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert size <= 1.02 * len(pickle.dumps(estimator))


# -- what the user brings again ----------------------------------------------------------------


class Extractor(nn.Module):
    """A module of one's own."""

    def __init__(self, width=5):
        super().__init__()
        self.layer = nn.Linear(10, width)
        self.register_buffer("seen", torch.ones((), dtype=torch.int64))

    def forward(self, batch):
        return self.layer(batch.float()).tanh()


def collate(rows):
    return torch.as_tensor(np.asarray(rows))


def half(s):
    return s / 2


def test_a_feature_extractor_is_passed_to_load_again(tmp_path):
    estimator = NONARegressor(FeatureExtractor(Extractor(), collate_fn=collate), **ONE)
    estimator.fit(X, Y)
    module, function = "feature_extractor__module", "feature_extractor__collate_fn"
    with pytest.raises(TypeError, match=f"needs {function}, which a file cannot hold; it was <fu"):
        again(estimator, tmp_path, **{module: Extractor})
    with pytest.raises(TypeError, match=rf"needs {module}.* it was Extractor\( \(layer"):
        again(estimator, tmp_path, **{function: collate})
    loaded = again(estimator, tmp_path, **{module: Extractor, function: collate})
    np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))
    assert loaded.feature_extractor.module is Extractor
    weights = [*loaded.network_.parameters()]
    assert len(weights) == len([*estimator.network_.parameters()])
    assert not any(weight.requires_grad for weight in weights)
    with pytest.raises(TypeError, match=r"passed callbacks, which .* does not need"):
        again(
            *(estimator, tmp_path),
            **{module: Extractor, function: collate, "callbacks": None},
        )


def test_an_extractor_that_does_not_fit_is_refused(tmp_path):
    estimator = NONARegressor(Extractor, **ONE).fit(X, Y)
    message = r"^feature_extractor does not fit the file .*model\.safetensors: "
    with pytest.raises(ValueError, match=rf"(?s){message}.*layer\.weight"):
        again(estimator, tmp_path, feature_extractor=Extractor(6))
    with pytest.raises(ValueError, match=message):
        again(estimator, tmp_path, feature_extractor=nn.Linear(10, 5))
    with pytest.raises(ValueError, match=message):
        again(estimator, tmp_path, feature_extractor=3)


def test_an_extractor_of_plain_layers_is_in_the_file(tmp_path):
    extractor = nn.Sequential(nn.Linear(10, 4), nn.ReLU())
    estimator = NONARegressor(extractor, n_estimators=2, **QUICK).fit(X.astype(np.float32), Y)
    loaded = again(estimator, tmp_path)
    np.testing.assert_array_equal(
        loaded.predict(X.astype(np.float32)), estimator.predict(X.astype(np.float32))
    )


def test_a_weighting_of_ones_own_is_passed_or_registered(tmp_path, monkeypatch):
    estimator = NONARegressor(weighting=Weighting(half), **ONE).fit(X, Y)
    with pytest.raises(TypeError, match="needs weighting, which a file cannot hold"):
        again(estimator, tmp_path)
    loaded = again(estimator, tmp_path, weighting=Weighting(half))
    np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))

    monkeypatch.setitem(WEIGHTINGS, "half", lambda: Weighting(half))
    by_name = NONARegressor(weighting="half", **ONE).fit(X, Y)
    np.testing.assert_array_equal(again(by_name, tmp_path).predict(X), estimator.predict(X))
    monkeypatch.delitem(WEIGHTINGS, "half")
    message = r"weighting does not fit the file .*model\.safetensors: weighting must be one"
    with pytest.raises(ValueError, match=message):
        nona_sklearn.load(tmp_path / "model.safetensors")


def test_a_weighting_of_an_older_file_learns_its_temperature():
    """Version 0.2.0 had no option of that."""
    stored = to_data(SparseSoftmax(3, learn_temperature=False))
    assert not from_data(stored).learn_temperature
    del stored["attributes"]["learn_temperature"]
    assert from_data(stored).learn_temperature
    assert repr(from_data(stored)) == "SparseSoftmax(n_neighbors=3)"


def test_a_similarity_that_is_not_registered_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(SIMILARITIES, "mine", SIMILARITIES["l1"])
    estimator = NONARegressor(similarity="mine", **ONE).fit(X, Y)
    assert_alike(again(estimator, tmp_path), estimator, X)
    monkeypatch.delitem(SIMILARITIES, "mine")
    with pytest.raises(ValueError, match=r"similarity must be one of .* got 'mine'"):
        nona_sklearn.load(tmp_path / "model.safetensors")


# -- parameters that change ----------------------------------------------------------------------


@storable.storable_parameters()
class Reading(BaseEstimator):
    """A parameter that has parameters."""

    def __init__(self, module, collate_fn=None, rate=0.1):
        self.module = module
        self.collate_fn = collate_fn
        self.rate = rate


@storable.storable_estimator()
class Before(BaseEstimator):
    """An estimator of an earlier version."""

    def __init__(self, feature_extractor=None, collate_fn=None, rate=0.1, depth=1):
        self.feature_extractor = feature_extractor
        self.collate_fn = collate_fn
        self.rate = rate
        self.depth = depth


def gather(parameters):
    """Parameters of that version as those of this one."""
    if "collate_fn" in parameters:
        names = {"feature_extractor": "module", "collate_fn": "collate_fn", "rate": "rate"}
        of_reading = {new: parameters.pop(old) for old, new in names.items()}
        parameters["feature_extractor"] = Reading(**of_reading)
    return parameters


@storable.storable_estimator(upgrade=gather)
class After(BaseEstimator):
    """The estimator of this version."""

    def __init__(self, feature_extractor=None, depth=2, width=3):
        self.feature_extractor = feature_extractor
        self.depth = depth
        self.width = width


def test_parameters_of_an_earlier_version_are_upgraded(tmp_path, monkeypatch):
    """Also those that are passed to load; and classes and keys that have another name now."""
    extractor = Extractor()
    before = Before(extractor, collate, rate=0.2, depth=5)
    before.network_ = {"extractor": extractor}
    before.note_ = "kept"
    path = tmp_path / "model.safetensors"
    nona_sklearn.save(before, path)
    after = storable.name_of(After)
    monkeypatch.setitem(storable.RENAMED, storable.name_of(Before), after)
    monkeypatch.setitem(storable.RENAMED, f"{after}.note_", "remark_")
    mine = Extractor()
    loaded = nona_sklearn.load(path, feature_extractor=mine, collate_fn=collate)
    assert type(loaded) is After
    assert loaded.get_params(deep=False) == {
        "feature_extractor": loaded.feature_extractor,
        "depth": 5,
        "width": 3,
    }
    reading = loaded.feature_extractor
    assert (reading.module, reading.collate_fn, reading.rate) == (mine, collate, 0.2)
    assert loaded.remark_ == "kept"
    made = loaded.network_["extractor"]
    torch.testing.assert_close(made.state_dict(), extractor.state_dict(), rtol=0, atol=0)
    assert clone(loaded).feature_extractor.rate == 0.2


def test_parameters_that_no_version_has_are_refused_after_the_upgrade(tmp_path):
    path = tmp_path / "model.safetensors"
    nona_sklearn.save(After(), path)
    rewrite(path, lambda _: {"estimator": [storable.name_of(After), {"no_such": 1}, {}]})
    with pytest.raises(ValueError, match="After has no parameter no_such"):
        nona_sklearn.load(path)


def test_what_a_file_cannot_hold_of_a_nested_parameter_is_passed_by_its_long_name(tmp_path):
    estimator = After(Reading(Extractor(), collate, rate=0.3), depth=7)
    estimator.network_ = {"extractor": estimator.feature_extractor.module}
    with pytest.raises(TypeError, match="needs feature_extractor__collate_fn, which a file"):
        again(estimator, tmp_path, feature_extractor__module=Extractor)
    passed = {"feature_extractor__module": Extractor, "feature_extractor__collate_fn": collate}
    loaded = again(estimator, tmp_path, **passed)
    reading = loaded.feature_extractor
    assert (reading.module, reading.collate_fn, reading.rate) == (Extractor, collate, 0.3)
    expected = estimator.network_["extractor"].state_dict()
    made = loaded.network_["extractor"]
    torch.testing.assert_close(made.state_dict(), expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match="feature_extractor does not fit the file"):
        again(estimator, tmp_path, **(passed | {"feature_extractor__module": Extractor(6)}))
    plain = again(After(Reading(nn.Linear(2, 3))), tmp_path)
    assert plain.feature_extractor.module.out_features == 3


# -- what is refused ---------------------------------------------------------------------------


class Mine(NONARegressor):
    """A class of one's own."""


@pytest.mark.parametrize("thing", [Mine(), BaseEstimator(), 3, NONARegressor])
def test_other_things_are_not_saved(thing, tmp_path):
    with pytest.raises(TypeError, match=r"estimator must be (one of NONARegressor|made of)"):
        nona_sklearn.save(thing, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_a_file_cannot_hold_is_named(tmp_path):
    estimator = NONARegressor(**ONE).fit(X, Y)
    estimator.note_ = [1, {"by": print}]
    with pytest.raises(TypeError, match=r"NONARegressor\.note_\.1\.by is a builtins\.builtin"):
        nona_sklearn.save(estimator, tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a small file, and what its estimator predicts."""
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    estimator = SoftStepKNeighborsRegressor(**QUICK).fit(TABLE[["area", "let"]], RENT)
    nona_sklearn.save(estimator, path)
    return path.read_bytes()


@pytest.fixture
def path(saved, tmp_path):
    """A small file, which a test may change."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved)
    return path


@pytest.mark.slow
def test_every_flipped_bit_is_found(saved, tmp_path):
    path = tmp_path / "model.safetensors"
    header = 8 + int.from_bytes(saved[:8], "little")
    rng = np.random.default_rng(0)
    places = [*range(0, header, 5), *rng.integers(header, len(saved), 150)]
    for place in places:
        flipped = bytearray(saved)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            nona_sklearn.load(path)


@pytest.mark.parametrize("kept", [0, 7, 8, 100, 2000, -1000, -1])
def test_truncated_files_are_refused(saved, kept, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved[:kept])
    with pytest.raises(ValueError, match="is damaged, or not a file that save wrote"):
        nona_sklearn.load(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other"
    with pytest.raises(FileNotFoundError, match="path must be a file that save wrote"):
        nona_sklearn.load(path)
    with pytest.raises(IsADirectoryError, match=r"and .* is a folder$"):
        nona_sklearn.load(tmp_path)
    with pytest.raises(IsADirectoryError, match=r"is a folder: ShardedNeighbors\(path\) reads"):
        nona_sklearn.load(STORED.parent / "version_0_2_0" / "shards")
    path.write_bytes(b"neither of the formats")
    with pytest.raises(ValueError, match="is damaged, or not a file that save wrote"):
        nona_sklearn.load(path)
    safetensors.torch.save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="is not a file that save wrote: it has no "):
        nona_sklearn.load(path)


def rewrite(path, change=lambda content: content, more=(), **metadata):
    """Change a file, add tensors, and compute its checksum anew."""
    stored, tensors = file_module._read(path)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()} | dict(more)
    content = json.dumps(change(json.loads(tensors["estimator"].numpy().tobytes())))
    tensors["estimator"] = torch.frombuffer(bytearray(content.encode()), dtype=torch.uint8)
    stored = {key: value for key, value in stored.items() if key != "sha256"} | metadata
    safetensors.torch.save_file(
        tensors,
        path,
        stored | {"sha256": file_module._checksum(stored, tensors)},
    )


@pytest.mark.parametrize(
    "write",
    [
        *(partial(pickle.dump, protocol=protocol) for protocol in (2, 3, 4, 5)),
        joblib.dump,
        *(partial(joblib.dump, compress=level) for level in (1, 3, 6, 9)),
        *(partial(joblib.dump, compress=(name, 3)) for name in ("gzip", "bz2", "xz", "lzma")),
    ],
    ids=lambda write: str(getattr(write, "keywords", "joblib")),
)
def test_a_pickle_is_called_one(write, tmp_path):
    with open(tmp_path / "model", "wb") as file:
        write(NONARegressor(), file)
    with pytest.raises(ValueError, match=r"looks like a pickle: joblib\.load reads it"):
        nona_sklearn.load(tmp_path / "model")


@pytest.mark.parametrize("n_bytes", [0x280, 0x480, 0x178])
def test_a_cut_file_whose_length_looks_like_a_pickle_is_damaged(n_bytes, tmp_path):
    """A file of safetensors starts with the length of its header."""
    (tmp_path / "model").write_bytes(n_bytes.to_bytes(8, "little") + b'{"a":')
    with pytest.raises(ValueError, match="is damaged, or not a file that save wrote"):
        nona_sklearn.load(tmp_path / "model")


def test_newer_formats_are_refused(path):
    rewrite(path)
    nona_sklearn.load(path)
    rewrite(path, format="2")
    with pytest.raises(
        ValueError, match=r"is of format 2, and this version .* up to 1: it was wri"
    ):
        nona_sklearn.load(path)


PARTS = ("attributes", "parameters", "buffers", "modules")
INCOMPLETE = {"known": {"dict": [["class", "Linear"], *([part, {"dict": []}] for part in PARTS)]}}


@pytest.mark.parametrize(
    "content",
    [
        {"object": ["builtins.eval", {}]},
        {"object": ["os.system", {"command": "true"}]},
        {"function": "os.system"},
        {"known": {"dict": [["class", "Module"], ["attributes", {"dict": []}]]}},
        {"torch.dtype": "torch.load"},
        {"numpy.RandomState": 3},
        {"no such thing": 1},
        {"estimator": ["nona_sklearn.NONARegressor", {"similarity": "mine"}, {}]},
        {"one": 1, "two": 2},
        {},
        {"estimator": ["nona_sklearn.NONARegressor", {"no_such": 1}, {}]},
        {"estimator": ["nona_sklearn.ApproximateNeighborsRegressor", {}, {}]},
        {"array": {"dtype": "f8", "shape": [2, 3], "numbers": "estimator"}},
        {"object": ["nona_sklearn.NeighborBank", {}]},
        {"estimator": ["nona_sklearn.NONARegressor", {}, {"network_": {"dict": []}}]},
        {"zoneinfo.ZoneInfo": "America"},  # a folder
        {"zoneinfo.ZoneInfo": "nowhere"},
        {"datetime.timedelta": [10**30, 0, 0]},
        {"scalar": ["|V400000000", "a"]},
        {"scalar": ["<f8", [1.0, 2.0]]},
        {"array": {"dtype": "<i8", "shape": [1], "objects": ["1"]}},
        {"array": {"dtype": "|O", "shape": [5], "objects": {"builtins.tuple": [1]}}},
        {"array": {"dtype": "(2,)i4", "shape": [1], "numbers": "estimator"}},
        {"array": {"dtype": "i4,i4", "shape": [1], "numbers": "estimator"}},
        {"dtype": "|V8, |V8"},
        {"object": ["sklearn.FrozenEstimator", {}]},
        {"object": ["nona_sklearn.Column", {"name": "a", "kind": "number"}]},
        {"known": {"dict": [["class", INCOMPLETE]]}},  # which no message can show
        {"known": {"dict": [["class", {"dict": []}]]}},
    ],
    ids=str,
)
def test_a_file_names_no_other_class_or_function(path, content):
    rewrite(path, lambda _: content)
    with pytest.raises(ValueError, match="holds what this version cannot read"):
        nona_sklearn.load(path)


@pytest.mark.parametrize(
    "state",
    [
        *({"state": {"key": np.zeros(624, np.uint32), "pos": p}} for p in (-1, 625, 2**30, 2**70)),
        {"state": {"key": np.zeros(624, np.uint32), "pos": 1.5}},
        {"state": {"key": np.zeros(623, np.uint32), "pos": 0}},
        {"state": {"key": np.zeros((624, 2), np.uint32), "pos": 0}},
        {"state": {"key": np.zeros(624, np.float64) + np.nan, "pos": 0}},
        {"state": {"key": None, "pos": 0}},
        {"bit_generator": "PCG64"},
        {"has_gauss": 2**70},
        {"gauss": "x"},
    ],
    ids=lambda state: re.sub(r"array\(.*?\)", "", " ".join(repr(state).split())),
)
def test_a_forged_random_state_is_refused(path, state):
    """Numpy reads words from the position on, also beyond the last one."""
    encoder = Encoder()
    forged = encoder.encode(np.random.RandomState(0).get_state(legacy=False) | state, "state")
    rewrite(path, lambda _: [{"numpy.RandomState": forged}], encoder.tensors)
    with pytest.raises(ValueError, match=r"model\.safetensors .* cannot read"):
        nona_sklearn.load(path)


def test_a_forged_vocabulary_is_refused(tmp_path):
    """Compiled code reads the component of a word wherever its place is."""
    texts = [f"word{i % 7} and{i % 5} more{i}" for i in range(40)]
    encoder = TableEncoder(text_features={"text": CountVectorizer()})
    encoder.fit(pd.DataFrame({"text": texts}))
    nona_sklearn.save(encoder, tmp_path / "encoder")
    assert nona_sklearn.load(tmp_path / "encoder").transform(pd.DataFrame({"text": texts})).any()
    for place in (2**30, -1, 0.5):
        rewrite(tmp_path / "encoder", partial(replace_value, "more3", place))
        with pytest.raises(ValueError, match="holds what this version cannot read"):
            nona_sklearn.load(tmp_path / "encoder")


def replace_value(name, value, content):
    """Replace the value of a key in every dict that is written."""
    if isinstance(content, dict):
        return {key: replace_value(name, value, each) for key, each in content.items()}
    if isinstance(content, list) and len(content) == 2 and content[0] == name:
        return [name, value]
    if isinstance(content, list):
        return [replace_value(name, value, each) for each in content]
    return content


@pytest.mark.parametrize("n_draws", [0, 1, 3, 1247, 1248])
def test_random_states_come_back_wherever_they_are(n_draws):
    state = np.random.RandomState(0)
    state.standard_normal(n_draws)
    np.testing.assert_array_equal(
        through(state).standard_normal(2000), state.standard_normal(2000)
    )


MODULUS = 2**61 - 1  # Python's hash of its multiples is 0
COLLIDING = [i * MODULUS for i in range(1, 5000)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *(
            ({name: of}, "has 100000 characters")
            for name, of in [
                ("pandas.Timestamp", ["1" * 10**5, None, "ns"]),
                ("pandas.Timestamp", ["2025", "a" * 10**5, "ns"]),
                ("pandas.Timestamp", ["2025", None, "n" * 10**5]),
                ("pandas.Period", ["1" * 10**5, "D"]),
                ("pandas.Period", ["2025", "D" * 10**5]),
                ("pandas.Timedelta", ["1" * 10**5]),
                ("datetime.date", "1" * 10**5),
                ("datetime.datetime", ["1" * 10**5, None, 0]),
                ("torch.device", "c" * 10**5),
                ("zoneinfo.ZoneInfo", "a" * 10**5),
            ]
        ),
        # The same, but not where a text is looked for:
        ({"pandas.Timedelta": [["1" * 10**5]]}, "a part is a list"),
        ({"pandas.Timestamp": {"builtins.tuple": ["1" * 10**5, None, "ns"]}}, "not of 3 parts"),
        ({"pandas.Timestamp": {"dict": [["1" * 10**5, 0], ["a", 0], ["b", 0]]}}, "not of 3 parts"),
        ({"pandas.Timestamp": ["2025", None]}, "not of 3 parts"),
        ({"pandas.Timestamp": ["2025", "dateutil//dev/zero", "ns"]}, "is a path"),
        ({"dict": [[key, 0] for key in COLLIDING]}, "share a hash"),
        ({"dict": [[{"builtins.tuple": [key]}, 0] for key in COLLIDING]}, "share a hash"),
        ({"dtype": "i4," * 10**5}, "no type of an array"),
    ],
    ids=lambda thing: str(thing)[:50],
)
def test_a_forged_file_is_refused_before_it_takes_much_time(path, content, why):
    rewrite(path, lambda _: content)
    with pytest.raises(ValueError, match=rf"model\.safetensors .* cannot read: .*{why}"):
        nona_sklearn.load(path)


def test_lengths_of_texts_are_those_of_their_bytes():
    tensors = {"text": torch.tensor([*b"abc"], dtype=torch.uint8)}
    written = {"array": {"dtype": "|O", "shape": [2], "text": ["text", "lengths"]}}
    for lengths, texts in (([1, 2], ["a", "bc"]), ([3, 0], ["abc", ""]), ([1, 1], ["a", "b"])):
        tensors["lengths"] = torch.tensor(lengths, dtype=torch.int32)
        assert Decoder(tensors, {}).decode(written).tolist() == texts
    for lengths in ([3, 1], [2, 2], [3, 3], [4, 0], [-1, 2], [2, -1]):
        tensors["lengths"] = torch.tensor(lengths, dtype=torch.int32)
        with pytest.raises(ValueError, match="lengths of texts must be those of 3 bytes"):
            Decoder(tensors, {}).decode(written)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(1000, 1100),
        np.arange(1000, 1100).astype(object),
        np.array([f"text {i}" for i in range(100)]),
        np.array([f"text {i}" for i in range(100)], dtype=object),
        np.array([b"%d" % i for i in range(100)]),
        np.array([None, 2.5] * 50, dtype=object),
    ],
    ids=lambda array: f"{array.dtype} of {type(array.item(0)).__name__}",
)
def test_arrays_of_objects_take_as_much_as_is_counted(array):
    """Numbers are mapped, and take none."""
    encoder = Encoder()
    written = encoder.encode(array, "array")
    decoder = Decoder(encoder.tensors, {})
    before = decoder.memory.left
    back = decoder.decode(written)
    takes = back.nbytes + sum(map(sys.getsizeof, back.tolist()))
    counted = before - decoder.memory.left
    assert counted == 0 if back.dtype.kind == "i" else takes <= counted <= 4 * takes


MILLION = 10**6
FORGED = {
    "bytes": torch.full((MILLION,), ord("a"), dtype=torch.uint8),
    "one": torch.tensor([MILLION], dtype=torch.int32),
    "there and back": torch.tensor([MILLION, -MILLION] * 500, dtype=torch.int32),
    "round": torch.tensor([2**62] * 4),  # whose sum is 0 in 64 bits
    "beyond": torch.tensor([MILLION, 1], dtype=torch.int32),
}


@pytest.mark.parametrize(
    "content",
    [
        {"scalar": ["<U400000000", "a"]},
        {"scalar": ["|S400000000", {"builtins.bytes": "61"}]},
        {"scalar": ["<f8", {"tensor": "bytes"}]},
        {"array": {"dtype": "<U20000000", "shape": [20], "objects": ["a"] * 20}},
        {
            "array": {
                "dtype": "|S80000000",
                "shape": [9],
                "objects": [{"builtins.bytes": "61"}] * 9,
            }
        },
        {"array": {"dtype": "<U80000000", "shape": [1], "text": ["bytes", "one"]}},
        *(
            {"array": {"dtype": "|O", "shape": [len(FORGED[name])], "text": ["bytes", name]}}
            for name in ("there and back", "round", "beyond")
        ),
        # One tensor, again and again:
        [{"array": {"dtype": "|O", "shape": [1], "text": ["bytes", "one"]}}] * 2000,
        [{"array": {"dtype": "|O", "shape": [MILLION], "numbers": "bytes"}}] * 50,
        [{"builtins.tuple": {"tensor": "bytes"}}] * 9,
        [{"array": {"dtype": "|O", "shape": [MILLION], "objects": {"tensor": "bytes"}}}] * 9,
    ],
    ids=lambda content: str(content)[:70],
)
def test_a_forged_file_is_refused_before_it_takes_much_memory(path, content):
    rewrite(path, lambda _: content, FORGED)
    most = codec.FREE_BYTES + codec.MAX_EXPANSION * path.stat().st_size
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            nona_sklearn.load(path)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content", [[1, 2], "hello", None, {"object": ["nona_sklearn.Calibration", {}]}]
)
def test_what_is_no_estimator_is_not_loaded(path, content):
    rewrite(path, lambda _: content)
    with pytest.raises(ValueError, match=r"model\.safetensors holds no estimator, but a"):
        nona_sklearn.load(path)


UNWRITTEN = r"model\.safetensors holds what no version wrote"
NEWER = r"is of format .{1,20}, and this version"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        *(("handed", text, UNWRITTEN) for text in ("[", "3", '["a"]', '{"a": 1}')),
        ("handed", '[["a", "b"], [1, "c"]]', UNWRITTEN),
        *(("versions", text, UNWRITTEN) for text in ("{}", "[", "[" * 100_000)),
        *(("format", text, NEWER) for text in ("x", "1.5", "-1", "9" * 5000)),
    ],
    ids=lambda value: value[:30],
)
def test_forged_metadata_are_refused(path, name, text, message):
    rewrite(path, **{name: text})
    with pytest.raises(ValueError, match=message):
        nona_sklearn.load(path)


@pytest.mark.parametrize("name", ["format", "handed", "versions", "sha256", "estimator"])
def test_what_a_file_lacks_is_named(path, name):
    """Also if there is something of the name where it does not belong."""
    stored, tensors = file_module._read(path)
    tensors = {key: tensor.clone() for key, tensor in tensors.items()}
    for more in (False, True):
        metadata = {key: value for key, value in stored.items() if key != name}
        others = {key: value for key, value in tensors.items() if key != name}
        if more:
            metadata |= {name: "1"} if name in tensors else {}
            others |= {name: torch.ones(1)} if name in stored else {}
        safetensors.torch.save_file(others, path, metadata)
        with pytest.raises(ValueError, match=rf"model\.safetensors is not a .* has no {name}"):
            nona_sklearn.load(path)


@pytest.mark.parametrize("text", [b"[" * 5000 + b"]" * 5000, b"\xff\xfe", b"{"])
def test_content_that_is_no_json_is_refused(path, text):
    metadata, tensors = file_module._read(path)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    tensors["estimator"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    del metadata["sha256"]
    metadata["sha256"] = file_module._checksum(metadata, tensors)
    safetensors.torch.save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match=r"model\.safetensors.* holds what"):
        nona_sklearn.load(path)


def test_parameters_that_have_come_since_are_as_by_default(tmp_path):
    path = tmp_path / "model.safetensors"
    nona_sklearn.save(NONARegressor(max_iter=7, training=TrainingOptions(max_time=3)), path)

    def older(content):
        del content["estimator"][1]["training"]["estimator"][1]["max_time"]
        return content

    def much_older(content):
        del content["estimator"][1]["training"]
        return content

    rewrite(path, older)
    loaded = nona_sklearn.load(path)
    assert repr(loaded) == "NONARegressor(max_iter=7, training=TrainingOptions())"
    rewrite(path, much_older)
    assert repr(nona_sklearn.load(path)) == "NONARegressor(max_iter=7)"


def test_bad_arguments_are_named(saved, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(saved)
    for wrong in (None, 3, [1], b"x"):
        for call in (partial(nona_sklearn.save, NONARegressor()), nona_sklearn.load):
            with pytest.raises(TypeError, match="path must be a str or path-like, got"):
                call(wrong)
    for wrong in ("", "a\0b"):
        for call in (partial(nona_sklearn.save, NONARegressor()), nona_sklearn.load):
            with pytest.raises(ValueError, match="path must name a place on disk, got"):
                call(wrong)
    with pytest.raises(ValueError, match="overwrite must be True or False, got 'no'"):
        nona_sklearn.save(NONARegressor(), path, overwrite="no")
    with pytest.raises(ValueError, match="verify must be True or False, got 'x'"):
        nona_sklearn.load(path, verify="x")
    assert path.read_bytes() == saved


def test_the_checksum_can_be_left_out(saved, tmp_path):
    path = tmp_path / "model.safetensors"
    start = 8 + int.from_bytes(saved[:8], "little")  # numbers of 8 bytes come first
    path.write_bytes(saved[:start] + bytes([saved[start] ^ 1]) + saved[start + 1 :])
    with pytest.raises(ValueError, match="is damaged: its checksum does not fit"):
        nona_sklearn.load(path)
    assert nona_sklearn.load(path, verify=False).predict(TABLE[["area", "let"]]).shape == (60,)


# -- what was there stays ----------------------------------------------------------------------


def test_a_path_that_exists_is_refused_unless_it_may_be_overwritten(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"path must be new.*or set overwrite=True"):
        nona_sklearn.save(NONARegressor(), path)
    assert path.read_text() == "mine"
    nona_sklearn.save(NONARegressor(), path, overwrite=True)
    assert isinstance(nona_sklearn.load(path), NONARegressor)
    with pytest.raises(OSError, match="path must be a file, got the directory"):
        nona_sklearn.save(NONARegressor(), tmp_path, overwrite=True)
    assert [each.name for each in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_file_may_be_read_by_whom_other_new_files_may(tmp_path):
    (tmp_path / "other").touch()
    nona_sklearn.save(NONARegressor(), tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_is_overwritten_keeps_its_mode_and_links_lead_where_they_did(tmp_path):
    path, link = tmp_path / "model", tmp_path / "link"
    nona_sklearn.save(NONARegressor(), path)
    path.chmod(0o600)
    link.symlink_to(path)
    nona_sklearn.save(NONARegressor(max_iter=3), link, overwrite=True)
    assert link.is_symlink()
    assert nona_sklearn.load(path).max_iter == 3
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    with pytest.raises(FileExistsError, match="path must be new"):
        nona_sklearn.save(NONARegressor(), link)


def test_an_interrupted_save_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    nona_sklearn.save(NONARegressor(embedding_dim=3), path)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        nona_sklearn.save(NONARegressor(), path, overwrite=True)
    assert nona_sklearn.load(path).embedding_dim == 3
    assert list(tmp_path.iterdir()) == [path]


FULL = """
import resource, signal, sys, numpy, nona_sklearn
reg = nona_sklearn.NONARegressor(n_estimators=1, max_iter=1).fit(numpy.eye(9), numpy.arange(9.0))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    nona_sklearn.save(reg, sys.argv[1], overwrite=True)
except OSError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
def test_a_full_disk_leaves_the_file_that_was_there(tmp_path):
    path = tmp_path / "model.safetensors"
    nona_sklearn.save(NONARegressor(embedding_dim=3), path)
    command = [sys.executable, "-W", "ignore", "-c", FULL, path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith(f"OSError {path} could not be written: "), done
    assert nona_sklearn.load(path).embedding_dim == 3
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import resource, signal, sys, numpy, nona_sklearn
reg = nona_sklearn.NONARegressor(n_estimators=1, max_iter=1).fit(numpy.eye(9), numpy.arange(9.0))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the signal that ends a process
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
nona_sklearn.save(reg, sys.argv[1], overwrite=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
def test_a_killed_save_leaves_one_folder_and_the_file_that_was_there(tmp_path):
    path = tmp_path / "model.safetensors"
    nona_sklearn.save(NONARegressor(embedding_dim=3), path)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", KILLED, path])
    assert done.returncode < 0  # by a signal, amid the writing
    assert nona_sklearn.load(path).embedding_dim == 3
    [left] = {*tmp_path.iterdir()} - {path}
    assert re.fullmatch(r"\.model\.safetensors\.[0-9a-f]{32}", left.name)
    assert left.stat().st_mode & 0o077 == 0  # others do not read what is half there
    shutil.rmtree(left)


def test_what_is_written_beside_a_file_comes_with_it(tmp_path):
    """As the numbers of a graph that is too large for one file."""
    path = tmp_path / "model.onnx"
    with file_module.put_in_place(path) as place:
        place.write_text("graph")
        place.with_name("model.onnx.data").write_text("numbers")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "model.onnx": "graph",
        "model.onnx.data": "numbers",
    }


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_or_a_device_is_no_file_to_overwrite(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"path must be a file, got .*pipe', a device or a pipe"):
        nona_sklearn.save(NONARegressor(), path, overwrite=True)
    assert path.is_fifo()


def test_the_error_of_a_folder_that_cannot_be_changed_names_the_path(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("replace", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises(OSError, match=r"model could not be written: .*Read-only file system"):
        nona_sklearn.save(NONARegressor(), tmp_path / "model")


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(OSError, match="could not be written"):
        nona_sklearn.save(NONARegressor(), tmp_path / "none" / "model")


# -- values ------------------------------------------------------------------------------------


def through(value):
    """Write and read a value, as JSON in between."""
    encoder = Encoder()
    written = json.loads(json.dumps(encoder.encode(value, "value")))
    return Decoder(encoder.tensors, {}).decode(written)


def test_arrays_that_share_memory_come_back_each_by_itself(tmp_path):
    tensor, array = torch.arange(6.0), np.arange(8.0)
    views = [tensor, tensor[:2], tensor[2:], tensor.view(2, 3), tensor, tensor[:0], tensor[:0]]
    views += [array, array[:3], array[2:], array[::2], array.reshape(2, 4), array]
    file_module.write(views, tmp_path / "views.safetensors")
    for read, view in zip(file_module.read(tmp_path / "views.safetensors"), views, strict=True):
        assert type(read) is type(view)
        assert read.dtype == view.dtype
        np.testing.assert_array_equal(read, view)
    held = safetensors.torch.load_file(tmp_path / "views.safetensors")
    assert len(held) == len(views) - 3 + 1  # what comes twice is held once; and the JSON


ZONES = st.sampled_from(
    [
        None,
        datetime.UTC,
        zoneinfo.ZoneInfo("Europe/Berlin"),
        datetime.timezone(datetime.timedelta(hours=-3)),
    ]
)
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()),
    *(st.dates(), st.datetimes(timezones=ZONES), st.timedeltas()),
    st.builds(np.float32, st.floats(width=32, allow_nan=False)),
    st.builds(np.int8, st.integers(-128, 127)),
    st.builds(np.datetime64, st.datetimes(), st.sampled_from(["s", "us", "ns"])),
)
VALUES = st.recursive(
    SCALARS,
    lambda each: st.one_of(
        *(st.lists(each), st.lists(each).map(tuple)),
        st.dictionaries(st.one_of(st.text(), st.integers()), each),
    ),
    max_leaves=10,
)


@pytest.mark.slow
@given(VALUES)
def test_values_come_back(value):
    back = through(value)
    assert type(back) is type(value)
    assert back == value


def test_what_has_more_than_equality_comes_back():
    late = datetime.datetime(
        2025, 10, 26, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")
    )
    assert through(late).fold == 1
    for unit in ("s", "ns"):
        assert through(pd.Timestamp("2025-01-01").as_unit(unit)).unit == unit
    bits = torch.ones(3)
    both = through([bits, bits.view(torch.int32)])  # of the same memory
    assert [each.dtype for each in both] == [torch.float32, torch.int32]
    alike = through({1: np.ones(2), "1": np.zeros(2)})
    assert (alike[1] == 1).all()
    assert (alike["1"] == 0).all()


@given(
    st.lists(
        st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.none()), max_size=9
    )
)
def test_arrays_of_objects_come_back(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    back = through(array)
    assert back.dtype == object
    assert [*map(type, back)] == [*map(type, values)]
    assert back.tolist() == values


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.arange(3, dtype=">i4"),
        np.array(2.5),
        np.empty((0, 3), dtype=np.float32),
        np.array([True, False]),
        np.array(["a", "", "äß"]),
        np.array([b"a", b"bc"]),
        np.array(["2025-01-01", "NaT"], dtype="datetime64[D]"),
        np.array([[1, 2]], dtype="timedelta64[s]"),
        np.array([["a", None]], dtype=object),
        np.array([2**70, 1], dtype=object),
        np.array([2**63, 1], dtype=object),
        np.array([2**63 - 1, -(2**63)], dtype=object),
        np.array([], dtype=object),
    ],
    ids=repr,
)
def test_arrays_come_back(array):
    back = through(array)
    np.testing.assert_array_equal(back, array)
    assert back.shape == array.shape
    assert back.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize("value", [np.str_("äß"), np.str_(""), np.bytes_(b"ab"), np.uint64(2**63)])
def test_scalars_come_back(value):
    back = through(value)
    assert type(back) is type(value)
    assert back == value


@example(["a"] * 10, 400)  # nearly all padding
@given(st.lists(st.text(max_size=9), min_size=1, max_size=200), st.integers(1, 3000))
def test_what_is_written_is_read_or_refused_at_once(texts, width):
    """Also with no room but what is in the file; and as wide as it was."""
    array = np.array(texts, dtype=f"U{max(width, *map(len, texts))}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codec, "FREE_BYTES", 0)
        try:
            back = through(array)
        except UnknownError:
            back = None
    if back is None:
        assert array.nbytes > 100 * sum(len(text.encode()) + 4 for text in texts)
    else:
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype


def test_texts_that_are_nearly_all_padding_are_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(codec, "FREE_BYTES", 0)
    estimator = NONARegressor()
    estimator.note_ = np.array(["a"] * 100, dtype="U5000")
    with pytest.raises(
        TypeError, match=r"NONARegressor\.note_ is an array of texts that is nearly"
    ):
        nona_sklearn.save(estimator, tmp_path / "model")
    estimator.note_ = estimator.note_.astype(object)
    assert again(estimator, tmp_path).note_.tolist() == ["a"] * 100


def test_what_is_too_long_to_be_read_is_not_written(monkeypatch):
    day = datetime.date(2025, 1, 1)
    for longest in (10, 9):
        short = dataclasses.replace(storable.CODECS["datetime.date"], max_characters=longest)
        monkeypatch.setitem(storable.CODECS, "datetime.date", short)
        if longest == 10:
            assert through(day) == day
    with pytest.raises(UnknownError, match="value cannot be read again: a text has 10 char"):
        Encoder().encode(day, "value")


def test_bounds_are_those_that_are_documented():
    text = " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text().split())
    assert (
        f"at most {codec.FREE_BYTES >> 20} MiB and {codec.MAX_EXPANSION} times the file's size"
        in text
    )
    longest, most = storable.MAX_CHARACTERS, codec.MAX_COLLISIONS
    assert f"have at most {longest} characters, and at most {most} keys" in text


def test_texts_are_written_as_long_as_there_is_room_to_read_them_all(monkeypatch):
    padded = np.array(["a"] * 10, dtype="U5000")
    monkeypatch.setattr(codec, "FREE_BYTES", padded.nbytes)
    np.testing.assert_array_equal(through(padded), padded)
    with pytest.raises(UnknownError, match=r"value\.1 is an array of texts that is nearly all"):
        Encoder().encode([padded, padded.copy()], "value")


@pytest.mark.parametrize(
    "value", [object(), print, 1j, np.longdouble(1), np.array([1j]), {1: iter([])}]
)
def test_other_values_are_refused(value):
    with pytest.raises(UnknownError):
        Encoder().encode(value, "value")


def read_zone(key):
    """A time zone of a file, that no other process finds by its name."""
    utc = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + bytes(6) + b"UTC\0"
    return zoneinfo.ZoneInfo.from_file(io.BytesIO(utc), key)


@pytest.mark.parametrize(
    "value",
    [
        dict.fromkeys(COLLIDING),
        pd.Timestamp("2025", tz=dateutil.tz.gettz("Europe/Berlin")),
        pd.Timestamp("2025", tz=datetime.timezone(datetime.timedelta(0), "mine")),
        read_zone("Mine"),
        pd.Timestamp("2025", tz=read_zone("Mine")),
        read_zone("A" * 101),
    ],
    ids=["dict", "path", "unknown zone", "own zone", "own zone of pandas", "a long name"],
)
def test_what_could_not_be_read_again_is_not_written(value):
    with pytest.raises(UnknownError, match=r"value\.1 cannot be read again: "):
        Encoder().encode([0, value], "value")


@pytest.mark.parametrize("zone", ["UTC", "UTC+01:00", "-03:30", "Europe/Berlin"])
def test_time_zones_of_pandas_come_back(zone):
    moment = pd.Timestamp("2025-10-26 02:30", tz="UTC").tz_convert(zone)
    back = through(moment)
    assert (back, str(back), str(back.tz)) == (moment, str(moment), str(moment.tz))


def test_a_few_keys_may_share_a_hash():
    few = COLLIDING[:50]
    assert through(dict.fromkeys(few, 1)) == dict.fromkeys(few, 1)


@pytest.mark.parametrize(
    "arrays",
    [
        {"embeddings": np.zeros(9, np.float32)},
        {"embeddings": np.zeros((8, 2), np.float32)},
        {"embeddings": np.array(0.0)},
        {"values": np.zeros(8)},
        {"values": np.zeros((9, 1, 1))},
        {"log_prior": np.zeros((9, 1))},
        {"groups": np.zeros(8, np.int64)},
        {"ids": np.arange(10), "next_id": np.array(10)},
        {"ids": np.arange(9.0), "next_id": np.array(10)},
        {"ids": np.arange(9), "next_id": np.arange(2)},
        {"ids": np.arange(9).reshape(9, 1), "next_id": np.array(10)},
    ],
    ids=lambda arrays: " ".join(f"{k} {v.dtype} {v.shape}" for k, v in arrays.items()),
)
def test_a_bank_of_arrays_that_do_not_fit_is_refused(arrays, tmp_path):
    path = tmp_path / "bank.safetensors"
    bank = NeighborBank(Neighbors(torch.zeros(9, 2), torch.zeros(9)))
    file_module.write(bank, path)
    assert len(file_module.read(path)) == 9
    encoder = Encoder()
    state = bank.__getstate__()
    forged = encoder.entries(state | {"arrays": state["arrays"] | arrays}, "forged")
    rewrite(path, lambda _: {"object": ["nona_sklearn.NeighborBank", forged]}, encoder.tensors)
    with pytest.raises(ValueError, match=r"bank\.safetensors .* cannot read: "):
        file_module.read(path)


def test_names_of_a_bank_are_one_for_each_row():
    bank = NeighborBank(Neighbors(torch.zeros(9, 2), torch.zeros(9)))
    state = bank.__getstate__() | {"names": np.array(["a"] * 8, dtype=object)}
    with pytest.raises(ValueError, match=r"names of a bank of 9 rows cannot have shape \(8,\)"):
        bank.__setstate__(state)


# -- other ways --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")
def test_a_stored_file_of_an_earlier_version_loads():
    """It was written by the first version that could, with the code below."""
    loaded = nona_sklearn.load(STORED)
    assert np.isnan(loaded.best_loss_)  # its history does not hold which epoch was kept
    expected = np.load(STORED.with_suffix(".npz"))
    # Embeddings and weights are of float32, in which another processor rounds otherwise.
    np.testing.assert_allclose(loaded.predict(TABLE), expected["predict"], rtol=0, atol=1e-5)
    assert loaded.bank_.names.tolist() == TABLE.index[:40].tolist()
    np.testing.assert_allclose(
        loaded.predict_quantiles(TABLE, [0.25, 0.75]), expected["quantiles"], rtol=0, atol=1e-4
    )


class Twice(torch.nn.Module):
    """An extractor that a file cannot hold."""

    def forward(self, X):
        return 2 * X


def stack(rows):
    return torch.stack([torch.as_tensor(row) for row in rows])


# They hold objects of scikit-learn 1.9, which an older one warns about.
OF_ANOTHER_SKLEARN = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.InconsistentVersionWarning"
)


@OF_ANOTHER_SKLEARN
@pytest.mark.parametrize(
    "name",
    [
        *("NONARegressor", "NONARegressor_options", "NONARegressor_extractor"),
        *("NONARegressor_handed", "NONAClassifier"),
        *("SoftStepKNeighborsRegressor", "SoftStepKNeighborsClassifier"),
        "ApproximateNeighborsRegressor",
    ],
)
def test_files_of_version_0_2_0_predict_as_they_did(name):
    """The version wrote these files, and their predictions of five rows."""
    if name.startswith("Approximate"):
        pytest.importorskip("faiss")
    folder = STORED.parent / "version_0_2_0"
    passed = {"feature_extractor": Twice(), "collate_fn": stack} if "handed" in name else {}
    loaded = nona_sklearn.load(folder / f"{name}.safetensors", **passed)
    method = loaded.predict_proba if "Classifier" in name else loaded.predict
    with np.load(folder / "expected.npz") as expected:
        queries = list(expected["X"]) if passed else expected["X"]
        # Embeddings and weights are of float32, in which another processor rounds otherwise.
        np.testing.assert_allclose(method(queries), expected[name], rtol=0, atol=1e-5)
    clone(loaded)  # its parameters are those of this version
    assert not hasattr(loaded, "feature_importances_")  # which that version did not measure
    if name == "SoftStepKNeighborsRegressor":
        assert loaded.trend is None  # so that a fit of the clone does what it did


@OF_ANOTHER_SKLEARN
def test_shards_of_version_0_2_0_predict_as_they_did():
    folder = STORED.parent / "version_0_2_0"
    with np.load(folder / "expected.npz") as expected:
        found = nona_sklearn.ShardedNeighbors(folder / "shards").predict(expected["X"])
        np.testing.assert_allclose(found, expected["NONARegressor"], rtol=0, atol=1e-5)


FLAT = STORED.parent / "flat_parameters"
NESTED = {
    "NONARegressor": NONARegressor(
        table_encoder=TableEncoder([2], max_categories=8),
        hidden_layer_sizes=(4,),
        embedding_dim=3,
        softstep=SoftStep("s2", "pointwise"),
        n_neighbors=9,
        trend=None,
        validation_fraction=None,
        training=TrainingOptions(
            batch_size=32, learning_rate_init=0.01, weight_decay=1e-3, max_time=60.0
        ),
        **ONE,
    ),
    "SoftStepKNeighborsClassifier": SoftStepKNeighborsClassifier(
        table_encoder=TableEncoder([2]),
        softstep=SoftStep("s2", "pointwise"),
        trend=None,
        training=TrainingOptions(batch_size=16, pool_size=24, n_iter_no_change=5),
        **QUICK,
    ),
}


@OF_ANOTHER_SKLEARN
@pytest.mark.parametrize("name", NESTED)
def test_files_whose_parameters_are_not_nested_predict_as_they_did(name, tmp_path):
    """Options of training, of the encoder and of the step were parameters of the estimators."""
    loaded = nona_sklearn.load(FLAT / f"{name}.safetensors")
    for each in loaded, again(loaded, tmp_path):
        assert repr(each) == repr(NESTED[name])
        method = each.predict_proba if "Classifier" in name else each.predict
        with np.load(FLAT / "expected.npz") as expected:
            np.testing.assert_allclose(method(expected["X"]), expected[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "parameters"),
    [
        (NONARegressor(validation_fraction=None), {"early_stopping": False}),
        (
            SoftStepKNeighborsRegressor(),
            {"early_stopping": False, "validation_fraction": 0.15, "pool_size": 1024},
        ),
        (
            SoftStepKNeighborsRegressor(validation_fraction=0.2),
            {"early_stopping": True, "validation_fraction": 0.2, "softstep_on": "rank"},
        ),
        (
            SoftStepKNeighborsRegressor(softstep=SoftStep("s1")),
            {"softstep": "s1", "softstep_on": "similarity"},
        ),
        (
            SoftStepKNeighborsClassifier(softstep=SoftStep("s2", "pointwise", on="rank")),
            {"softstep": "s2", "softstep_on": "rank", "softstep_params": "pointwise"},
        ),
        (
            NONAClassifier(softstep=SoftStep("s1", on="rank")),
            {"softstep": {"step": "s1", "on": "rank"}},
        ),
        (
            NONARegressor(training=TrainingOptions(pool_size=1024)),
            {"pool_size": 1024, "neighbor_pool": "auto", "max_time": None, "callbacks": None},
        ),
        (
            NONARegressor(table_encoder=TableEncoder(np.array([True, False]))),
            {"categorical_features": np.array([True, False]), "max_categories": 64},
        ),
        (
            NONARegressor(table_encoder=TableEncoder(text_features={"note": CountVectorizer()})),
            {"text_features": {"note": CountVectorizer()}, "categorical_features": "from_dtype"},
        ),
    ],
    ids=str,
)
def test_parameters_that_are_not_nested_are_upgraded(estimator, parameters):
    """In the state of a pickle, as in a file; parameters that have come since are defaults."""
    upgraded = object.__new__(type(estimator))
    upgraded.__setstate__({"trend": "auto", "n_neighbors": "auto", **parameters})
    assert repr(upgraded) == repr(estimator)
    assert vars(upgraded).keys() == vars(estimator).keys()


ADDITIVE = STORED.parent / "additive_trend"


@OF_ANOTHER_SKLEARN
@pytest.mark.parametrize(("name", "trend"), [("adjusted", "additive"), ("plain", None)])
def test_files_whose_embedding_has_a_trend_predict_as_they_did(name, trend, tmp_path):
    """With the parameter `adjust`, and g of SoftStep k-NN in the columns of the embeddings."""
    loaded = nona_sklearn.load(ADDITIVE / f"{name}.safetensors")
    assert loaded.trend == trend  # so that a fit of the clone does what it did
    clone(loaded)
    nona_sklearn.save(loaded, tmp_path / "again.safetensors")
    again = nona_sklearn.load(tmp_path / "again.safetensors")
    with np.load(ADDITIVE / "expected.npz") as expected:
        for each in loaded, again:
            for method, queries, key in (
                (each.predict, expected["X"], "predictions"),
                (each.predict_quantiles, expected["X"], "quantiles"),
                (each.predict, None, "left_out"),
            ):
                found = method(queries)
                np.testing.assert_allclose(found, expected[f"{name}_{key}"], rtol=0, atol=1e-5)
        if trend is not None:
            table = loaded.attribute(expected["X"][1:3], expected["features"], n_neighbors=2)
            amounts = np.stack([table[each] for each in ("x0", "x1", "x2", "other")], axis=1)
            np.testing.assert_allclose(amounts, expected["adjusted_amounts"], rtol=0, atol=1e-5)
            weights = expected["adjusted_feature_weights"]
            np.testing.assert_allclose(loaded.feature_weights_, weights, rtol=1e-5)


@OF_ANOTHER_SKLEARN
def test_shards_whose_embedding_has_a_trend_predict_as_they_did():
    with np.load(ADDITIVE / "expected.npz") as expected:
        sharded = nona_sklearn.ShardedNeighbors(ADDITIVE / "shards")
        for queries, key in ((expected["X"], "predictions"), (None, "left_out")):
            found = sharded.predict(queries)
            np.testing.assert_allclose(found, expected[f"adjusted_{key}"], rtol=0, atol=1e-5)


def write_stored_file():
    """Write the file that later versions must load: ``PYTHONPATH=. python`` this file."""
    reg = NONARegressor(n_estimators=2, embedding_dim=4, hidden_layer_sizes=(8,), **QUICK)
    reg.fit(TABLE[:40], RENT[:40], groups=np.arange(40) // 2, sample_weight=1 + np.arange(40) % 3)
    nona_sklearn.save(reg, STORED)
    np.savez(
        STORED.with_suffix(".npz"),
        predict=reg.predict(TABLE),
        quantiles=reg.predict_quantiles(TABLE, [0.25, 0.75]),
    )


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (NONARegressor(n_estimators=2, **QUICK), RENT),
        (NONAClassifier(**ONE), KIND),
        (SoftStepKNeighborsClassifier(**QUICK), KIND),
        (NONARegressor(weighting=SparseSoftmax(3, learn_temperature=False), **ONE), RENT),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_skops_dumps_and_loads(estimator, y):
    estimator = clone(estimator).fit(TABLE, y)
    dumped = skops.io.dumps(estimator)
    loaded = skops.io.loads(dumped, trusted=skops.io.get_untrusted_types(data=dumped))
    assert_alike(loaded, estimator, TABLE)


def test_pickles_share_no_memory_with_what_is_fitted():
    estimator = NONARegressor(**ONE).fit(X, Y)
    before = estimator.predict(X)
    other = pickle.loads(pickle.dumps(estimator))
    for weight in other.network_.parameters():
        weight.zero_()
    np.testing.assert_array_equal(estimator.predict(X), before)


if __name__ == "__main__":
    write_stored_file()
