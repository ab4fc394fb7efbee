"""Graphs that other programs run predict as the estimators do."""

import copy
import logging
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inner.data import CALENDAR, TableEncoding, check_table, fit_encoder
from inner.persistence import (
    Encoding,
    Graph,
    WithBank,
    calendar_parts,
    exportable_snapshot,
    input_values,
    text_of,
    to_onnx,
)
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import OneHotEncoder
from torch import nn

from nona_sklearn import (
    Calibration,
    NONAClassifier,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    export_onnx,
    onnx_bank,
    onnx_inputs,
)
from nona_sklearn.similarity import SIMILARITIES, l2

X, Y = load_diabetes(return_X_y=True)
X, QUERIES, Y = X[:80], X[80:100], Y[:80]
QUICK = {"n_estimators": 1, "max_iter": 2, "random_state": 0}
SOFT = {"max_iter": 2, "random_state": 0, "softstep": SoftStep("s1")}
WEIGHTINGS = ("softmax", "gaussian", "sigmoid", "softplus", "softpick", "uniform")
STEPS = (None, ("s1", "global"), ("s1", "pointwise"), ("s2", "global"), ("s2", "pointwise"))


def exported(estimator, tmp_path, **params):
    """An estimator's graph: a function of queries that returns its outputs."""
    path = tmp_path / "model.onnx"
    export_onnx(estimator, path, overwrite=True, **params)
    session = onnxruntime.InferenceSession(path)
    return lambda X: session.run(None, {"X": X})


def in_torch(estimator, n_neighbors=5, quantiles=None):
    """The same by torch, which runs the graph's formulas: their translation takes seconds."""
    levels = None if quantiles is None else torch.tensor(np.atleast_1d(quantiles))
    graph = Graph(exportable_snapshot(estimator), n_neighbors, levels)

    @torch.inference_mode()
    def run(X):
        return [output.numpy() for output in graph.eval()(torch.from_numpy(X))]

    return run


def assert_agrees(estimator, tmp_path, *queries, k=5, unsure=0.0):
    """Without `tmp_path` no file is written: the graph is run by torch.

    `unsure`: by how much rounding may move the logarithm of a weight.
    """
    if tmp_path is None:
        run = in_torch(estimator, k)
    else:
        run = exported(estimator, tmp_path, n_neighbors=k)
    for X in queries:
        assert_outputs_agree(estimator, X, run(X), k, unsure)


def assert_outputs_agree(estimator, X, outputs, k, unsure):
    predictions, weights, neighbors = outputs
    if hasattr(estimator, "classes_"):
        probabilities = estimator.predict_proba(X)
        several = isinstance(probabilities, list)
        expected = np.hstack(probabilities) if several else probabilities
    else:
        expected = estimator.predict(X)
    assert predictions.shape == expected.shape
    # Embeddings and similarities are rounded to float32, by both in another order.
    about = 1e-5 + 2 * unsure * np.ptp(expected)
    np.testing.assert_allclose(predictions, expected, rtol=1e-5, atol=about)
    atol = 1e-5 + 2 * unsure
    table = estimator.neighbor_weights(X).toarray()
    np.testing.assert_allclose(weights, -np.sort(-table)[:, :k], rtol=0, atol=atol)
    places = np.searchsorted(estimator.bank_.ids.numpy(), neighbors)
    np.testing.assert_allclose(np.take_along_axis(table, places, 1), weights, rtol=0, atol=atol)


def rounding(estimator, X):
    """What float32 similarities err by, times the steepest slope of a weight's logarithm."""
    head = estimator.network_.head
    similarity = SIMILARITIES[estimator.similarity]
    neighbors = head.metric_part(estimator.bank_.embeddings)
    query = torch.as_tensor(estimator.transform(X))
    exact = head.scale(similarity(query.double(), neighbors.double()))
    error = (head.scale(similarity(query, neighbors)) - exact).abs().max()
    # exp(-s^2 / 2) falls by s; softpick's nearest is at least a tenth nearer than where it ends
    slope = {"gaussian": exact.abs().max(), "softpick": 10}.get(estimator.weighting, 1)
    if head.step is not None:  # it rises within a tenth of the range of a query's similarities
        slope = slope + 10 / (exact.amax(dim=1) - exact.amin(dim=1)).min()
    return float(slope * error)


ON_RANKS = SoftStep("s1", on="rank")
EACH = {
    "classes": (NONAClassifier(**QUICK), Y > 100),
    "average": (NONARegressor(n_estimators=2, max_iter=2, random_state=0), Y),
    "several": (
        NONAClassifier(**QUICK),
        np.stack([Y > 100, Y // 100], axis=1).astype(int),
    ),
    "soft": (SoftStepKNeighborsRegressor(**SOFT), Y),
    "outputs": (NONARegressor(**QUICK), np.stack([Y, -Y], axis=1)),
    "as in the papers": (NONARegressor(adjust=False, **QUICK), Y),
    "trend": (NONARegressor(trend="kernel", **QUICK), np.stack([Y, -Y], axis=1)),
    "trend of classes": (
        NONAClassifier(trend="kernel", n_estimators=2, max_iter=2, random_state=0),
        np.stack([Y > 100, Y // 100], axis=1).astype(int),
    ),
    "soft classes": (SoftStepKNeighborsClassifier(**SOFT), Y > 100),
    "additive": (SoftStepKNeighborsClassifier(trend="additive", **SOFT), Y > 100),
    # of weights that end
    "k": (NONARegressor(n_neighbors=7, **QUICK), Y),
    "k of two": (NONARegressor(n_neighbors=7, n_estimators=2, max_iter=2, random_state=0), Y),
    "soft that ends": (SoftStepKNeighborsRegressor(max_iter=2, random_state=0), Y),
    "soft k": (SoftStepKNeighborsRegressor(8, **SOFT), Y),
    "classes of k": (NONAClassifier(n_neighbors=12, **QUICK), Y > 100),
    "sparse": (NONARegressor(weighting="sparse_softmax", similarity="cosine", **QUICK), Y),
    "ranks": (NONARegressor(n_neighbors=5, softstep=ON_RANKS, **QUICK), Y),
    "all": (NONARegressor(n_neighbors=80, weighting="softpick", **QUICK), Y),
    "s2": (NONARegressor(n_neighbors=9, softstep="s2", **QUICK), Y),
    "soft s2 classes": (SoftStepKNeighborsClassifier(9, softstep="s2", max_iter=2), Y > 100),
}


def fitted(estimator, y):
    return clone(estimator).fit(X, y, sample_weight=1 + np.arange(80) % 3)


@pytest.mark.parametrize(("estimator", "y"), EACH.values(), ids=EACH)
def test_the_graph_of_each_estimator_agrees(estimator, y):
    assert_agrees(fitted(estimator, y), None, QUERIES[:1], QUERIES)


@pytest.mark.slow  # five seconds each
@pytest.mark.parametrize(
    "name",
    [
        *("several", "soft", "as in the papers", "classes", "trend", "trend of classes"),
        *("k of two", "soft k", "sparse", "ranks"),
    ],
)
def test_each_file_agrees(name, tmp_path):
    assert_agrees(fitted(*EACH[name]), tmp_path, QUERIES[:1], QUERIES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [NONARegressor(n_neighbors=3, **QUICK), SoftStepKNeighborsRegressor(5, max_iter=2)],
    ids=lambda thing: type(thing).__name__,
)
def test_of_equally_near_rows_the_first_have_weight(estimator, tmp_path):
    rows = np.tile(X[:20], (4, 1))
    estimator = clone(estimator).fit(rows, Y)
    assert_agrees(estimator, tmp_path, X[:20], k=3)


@pytest.mark.slow
@pytest.mark.parametrize("n_estimators", [1, 2])
def test_edited_banks_and_far_and_known_rows_agree(n_estimators, tmp_path):
    estimator = NONARegressor(n_estimators=n_estimators, max_iter=2, random_state=0).fit(X, Y)
    estimator.add_neighbors(QUERIES[:5], Y[:5])
    estimator.remove_neighbors(ids=range(0, 40, 2))
    assert_agrees(estimator, tmp_path, np.vstack([QUERIES, 1e6 * QUERIES, X[:3]]))
    estimator.set_neighbor_targets(np.arange(65.0))
    assert_agrees(estimator, tmp_path, QUERIES)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e154, 1e155])  # below and above what a scaled number may be
def test_numbers_of_any_size_agree(size, tmp_path):
    estimator = NONARegressor(**QUICK).fit(X, Y)
    assert_agrees(estimator, tmp_path, size * np.sign(QUERIES))


@pytest.mark.slow
def test_skewed_columns_agree(tmp_path):
    """Beyond the seen values, too, and at the quantiles, some of which are equal."""
    skewed = np.exp(100 * X[:, [0, 2]])
    skewed[:15] = skewed.min(axis=0)
    table = np.c_[skewed, X[:, 3:]]
    reg = NONARegressor(**QUICK).fit(table, Y)
    assert reg.scaler_.skewed_.tolist() == [0, 1]
    queries = np.r_[table[:5], -table[:5], 1e6 * table[:5]]
    queries[:5, :2] = reg.scaler_.quantiles_[[0, 5, 30, 60, 100]]
    assert_agrees(reg, tmp_path, queries)


@pytest.mark.slow
def test_bounds_are_kept(tmp_path):
    bounds = float(np.quantile(Y, 0.3)), float(np.quantile(Y, 0.7))
    narrow = NONARegressor(bounds=bounds, **QUICK).fit(X, Y.clip(*bounds))
    assert_agrees(narrow, tmp_path, QUERIES)
    wide = NONARegressor(**QUICK).fit(X, Y.clip(*bounds))
    assert abs(wide.predict(QUERIES) - narrow.predict(QUERIES)).max() > 1  # they have an effect


@pytest.mark.slow
def test_an_export_changes_nothing(tmp_path):
    estimator = NONARegressor(**QUICK).fit(X, Y)
    before, level = estimator.predict(QUERIES), logging.getLogger("torch.onnx").level
    dtypes = [each.dtype for each in estimator.network_.state_dict().values()]
    export_onnx(estimator, tmp_path / "model.onnx")
    np.testing.assert_array_equal(estimator.predict(QUERIES), before)
    assert [each.dtype for each in estimator.network_.state_dict().values()] == dtypes
    assert logging.getLogger("torch.onnx").level == level


def streaming_cases():
    """Weightings with each step, and the similarities in turn."""
    for i, weighting in enumerate(WEIGHTINGS):
        similarities = ["l2", "l1"] if weighting == "gaussian" else list(SIMILARITIES)
        for j, step in enumerate(STEPS):
            if weighting != "uniform" or step is not None:  # without a step, it weighs nothing
                yield similarities[(i + j) % len(similarities)], step, weighting


@pytest.mark.parametrize(("similarity", "step", "weighting"), list(streaming_cases()), ids=str)
def test_every_graph_that_streams_agrees(similarity, step, weighting):
    assert_streams(similarity, step, weighting, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("similarity", "step", "weighting"),
    [
        *[("l2", ("s1", "global"), "softmax"), ("l1", ("s2", "pointwise"), "gaussian")],
        *[("cosine", ("s1", "pointwise"), "sigmoid"), ("dot", None, "softplus")],
        *[("log_l2", None, "softpick"), ("dot", ("s2", "global"), "uniform")],
    ],
    ids=str,
)
def test_files_of_each_similarity_step_and_weighting_agree(similarity, step, weighting, tmp_path):
    assert_streams(similarity, step, weighting, tmp_path)


def assert_streams(similarity, step, weighting, tmp_path):
    name, of = step or (None, "global")
    estimator = NONARegressor(
        similarity=similarity,
        softstep=name and SoftStep(name, of),
        weighting=weighting,
        **QUICK,
    )
    estimator.fit(X, Y)
    queries = np.vstack([QUERIES, 1e6 * QUERIES])
    assert_agrees(estimator, tmp_path, queries, unsure=rounding(estimator, queries))


@pytest.mark.slow
def test_a_similarity_of_ones_own_agrees(tmp_path, monkeypatch):
    """Made of the package's, or of torch's distances."""

    def mixed(query, neighbors):
        return -(l2(query, neighbors) ** 2) - torch.cdist(query, neighbors, p=3.0)

    monkeypatch.setitem(SIMILARITIES, "mixed", mixed)
    estimator = NONARegressor(similarity="mixed", **QUICK).fit(X, Y)
    assert_agrees(estimator, tmp_path, QUERIES, unsure=rounding(estimator, QUERIES))


# -- raw tables --------------------------------------------------------------------------------


def graph_of(encoder):
    """The graph of an encoder alone, of onnx."""
    encoding = Encoding(encoder).eval()
    return to_onnx(encoding, encoding, ["encoded"]).model_proto


def inputs_of(encoder, table):
    columns = TableEncoding.of(encoder).read(check_table(encoder, table, reset=False))
    return input_values(encoder, columns)


def assert_encoded(encoder, *tables):
    """That onnxruntime encodes tables as the encoder does; returns the bytes of the graph."""
    content = graph_of(encoder).SerializeToString()
    session = onnxruntime.InferenceSession(content)
    for table in tables:
        (found,) = session.run(None, inputs_of(encoder, table))
        np.testing.assert_allclose(found, encoder.transform(table), **ROUNDING)
    return content


N_ROWS = 60
ROUNDING = {"rtol": 0, "atol": 4e-15}  # of sines, which libraries round otherwise; else exact
DATES = pd.to_datetime("1969-12-30") + pd.to_timedelta(np.arange(N_ROWS) * 7.3, unit="h")


def raw_table():
    """A table with a column of each kind, most with gaps."""
    row = np.arange(N_ROWS)
    third, half = row % 3 == 0, row % 2 == 0
    return pd.DataFrame(
        {
            "number": row / 7,
            "gaps": np.where(third, np.nan, row**2),
            "truth": half,
            "duration": pd.to_timedelta(np.where(third, np.nan, row), unit="min"),
            "empty": np.nan,
            "prediction": np.where(third, None, np.where(half, "a", "b")),
            "quotes": np.where(third, "", np.where(half, '"', None)),
            "rare": np.where(row < 2, [f"r{i}" for i in row], "often"),
            "ordered": pd.Categorical(
                np.where(third, None, np.where(half, "low", "high")), ["low", "mid", "high"], True
            ),
            "numbered": pd.Categorical(np.where(third, np.nan, row % 5)),
            "bins": pd.cut(np.where(third, np.nan, row), 4),
            "date": DATES.where(~third),
            "abroad": DATES.tz_localize("UTC").tz_convert("America/New_York"),
            "iso": DATES.strftime("%Y-%m-%d"),
            "share": [f"{i / 10}%" for i in row],
            "many": [f"make{i % 25}" for i in row],
        }
    )


def further_rows(table):
    """Rows with gaps elsewhere, levels that are not in fit, and dates in other centuries."""
    table = table.iloc[::-1].reset_index(drop=True).astype({"bins": object})
    dates = np.array(["NaT", "1900-03-01", "2000-02-29", "1700-12-31T23:59:59.999999"], "M8[us]")
    new = {
        "number": [np.nan, 1e6, -1.5, 0],
        "prediction": ["?", "a", "", None],
        "quotes": ['""', "x", "", '"'],
        "rare": ["r1", "new", None, "often"],
        "numbered": [7.5, np.nan, 0, 4],
        "date": dates,
        "iso": [None, "1600-02-29", "2400-12-31", "1969-12-31"],
        "many": ["make3", "make99", None, "make24"],
    }
    for name, values in new.items():
        column = table[name].astype(object if name == "numbered" else table[name].dtype)
        table[name] = column.where(table.index > 3, pd.Series(values, dtype=column.dtype))
    table["ordered"] = table["ordered"].where(table.index != 5)
    return table


def fitted_encoder(table):
    """An encoder, of many levels by two targets."""
    targets = np.c_[np.arange(60.0) ** 2, np.sin(np.arange(60))]
    encoder = TableEncoder(min_frequency=2, max_categories=20)
    fit_encoder(encoder, table, targets)
    return encoder


@pytest.mark.filterwarnings("ignore:Strings were read")
@pytest.mark.parametrize(
    "names",
    [
        ["share", "many", "numbered", "gaps", "prediction", "empty", "rare"],
        ["quotes", "bins", "number", "ordered", "duration"],
        *(
            pytest.param(names, marks=pytest.mark.slow)  # the calendar takes seconds to trace
            for names in (["date", "truth", "iso"], ["abroad"])
        ),
    ],
    ids=", ".join,
)
def test_each_kind_of_column_is_encoded_as_by_the_estimator(names):
    table, further = raw_table()[names], further_rows(raw_table())[names]
    assert_encoded(fitted_encoder(table), table, further, table[:1])


@pytest.mark.filterwarnings("ignore:Strings were read")
def test_inputs_are_named_by_columns():
    table = raw_table()
    encoder = fitted_encoder(table)
    inputs = inputs_of(encoder, table[:2])
    assert [*inputs] == [name + "_" * (name == "prediction") for name in table]
    assert {values.shape for values in inputs.values()} == {(2, 1)}
    kinds = {name: values.dtype for name, values in inputs.items()}
    assert {name for name, kind in kinds.items() if kind.kind == "O"} == {
        *("prediction_", "quotes", "rare", "ordered", "bins", "many")
    }
    assert {name for name, kind in kinds.items() if kind == "int64"} == {"date", "abroad", "iso"}
    assert inputs["prediction_"].ravel().tolist() == ["", "b"]
    assert inputs["quotes"].ravel().tolist() == ['""', ""]
    assert inputs["duration"].ravel()[1] == 60
    assert inputs["date"].ravel().tolist() == [-(2**63), DATES[1].value // 1000]
    assert inputs["abroad"].ravel()[0] == (DATES[0].value // 10**9 - 5 * 3600) * 10**6


def test_strings_are_told_from_gaps():
    levels = [None, "", '"', '""', "x", '"x"']
    assert [text_of(level) for level in levels] == ["", '""', '"""', '""""', "x", '"x"']


@given(st.lists(st.integers(-(2**60), 2**60), min_size=1), st.integers(-3000, 5000))
def test_the_calendar_is_that_of_the_encoder(numbers, year):
    first = int(np.datetime64(year - 1970, "Y").astype("datetime64[us]").astype(np.int64))
    moments = np.array([*numbers, first, first - 1, first + 1])
    parts = calendar_parts([*CALENDAR], torch.from_numpy(moments))
    for found, part in zip(parts, CALENDAR.values(), strict=True):
        np.testing.assert_allclose(found, part(moments.view("datetime64[us]")), **ROUNDING)


@pytest.mark.slow
def test_the_calendar_is_exact_in_the_graph():
    years = np.arange(-500, 4500, 7).view("datetime64[Y]").astype("datetime64[us]")
    dates = np.concatenate([years, years - np.timedelta64(1, "us"), years[:1]])[:, None]
    dates[-1] = np.datetime64("NaT", "us")
    assert_encoded(TableEncoder().fit(dates), dates)


COLUMNS = {
    "numbers": lambda rng, n: np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
    "truths": lambda rng, n: rng.random(n) < 0.5,
    "words": lambda rng, n: rng.choice(np.array(["a", "b", "", '"', None], dtype=object), n),
    "codes": lambda rng, n: pd.Categorical(rng.integers(4, size=n)),
    "ranks": lambda rng, n: pd.Categorical(rng.choice([*"xyz"], n), [*"zyxw"], ordered=True),
    "dates": lambda rng, n: pd.to_datetime(rng.integers(-(10**9), 10**9, n), unit="s"),
    "lengths": lambda rng, n: pd.to_timedelta(rng.integers(99, size=n), unit="s"),
    "nothing": lambda rng, n: np.full(n, None),
}


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([*COLUMNS]), min_size=1, max_size=6),
    st.integers(2, 30),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 2**31),
)
@settings(max_examples=40)
def test_random_tables_are_encoded_as_by_the_estimator(kinds, n, most, least, seed):
    rng = np.random.default_rng(seed)
    table, others = (
        pd.DataFrame({f"c{j}": COLUMNS[kind](rng, size) for j, kind in enumerate(kinds)})
        for size in (n, 20)
    )
    encoder = TableEncoder(max_categories=most, min_frequency=least)
    fit_encoder(encoder, table, rng.normal(size=(n, 1)))
    encoding = Encoding(encoder)
    given = [*inputs_of(encoder, others).values()]
    for j, texts in encoding.texts.items():
        numbers = {text: number for number, text in enumerate(texts)}
        given[j] = np.array([[numbers.get(text, len(texts))] for (text,) in given[j]])
    found = encoding(*map(torch.from_numpy, given))
    np.testing.assert_allclose(found, encoder.transform(others), **ROUNDING)


@pytest.mark.slow
def test_polars_and_columns_in_another_order():
    table = raw_table()[["number", "gaps", "rare", "date", "truth"]]
    encoder = TableEncoder(min_frequency=2).fit(table)
    assert_encoded(
        encoder, pl.from_pandas(table), table[["truth", "date", "rare", "gaps", "number"]]
    )


@pytest.mark.slow
def test_columns_of_arrays_are_numbered():
    table = raw_table()[["number", "rare", "numbered"]].to_numpy(dtype=object)
    encoder = TableEncoder(categorical_features=[1, 2]).fit(table)
    assert [*inputs_of(encoder, table)] == ["x0", "x1", "x2"]
    assert_encoded(encoder, table)


@pytest.mark.slow
def test_no_name_of_a_column_is_one_inside_the_graph():
    graph = graph_of(TableEncoder().fit(raw_table()[["rare"]])).graph
    inside = [name for node in graph.node for name in node.output if name != "encoded"]
    inside += [each.name for each in graph.initializer]
    table = pd.DataFrame({name: raw_table()["rare"] for name in [*inside, "inputs_0", "inputs_1"]})
    assert_encoded(TableEncoder().fit(table), table)


MIXED = ["number", "gaps", "rare", "ordered", "numbered", "many"]


@pytest.fixture(scope="module")
def mixed():
    """A regressor of a raw table, and the table."""
    table = raw_table()[MIXED]
    reg = NONARegressor(table_encoder=TableEncoder(max_categories=20), **QUICK)
    return reg.fit(table, np.arange(60.0)), table


def without_added(reg, X, level):
    """Quantiles as if no level were unknown."""
    query = replace(reg.embed(X), added=None)
    return reg.predict_quantiles(query, level)


@pytest.mark.slow
def test_a_raw_table_goes_in(mixed, tmp_path):
    reg, table = mixed
    path = tmp_path / "model.onnx"
    export_onnx(reg, path, quantiles=(0.9, 0.1))
    session = onnxruntime.InferenceSession(path)
    queries = further_rows(raw_table())[MIXED]
    assert (reg.predict_quantiles(queries, 0.9) != without_added(reg, queries, 0.9)).any()
    for X in (table, queries, queries[:1]):
        outputs = session.run(None, onnx_inputs(reg, X))
        assert_outputs_agree(reg, X, outputs[:3], 5, 0.0)
        quantiles = reg.predict_quantiles(X, [0.9, 0.1])
        np.testing.assert_allclose(outputs[3], quantiles, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("trend", [None, "kernel"])
def test_classes_of_unknown_levels_are_those_of_the_estimator(trend, tmp_path):
    table, queries = raw_table()[MIXED], further_rows(raw_table())[MIXED]
    labels = np.c_[np.arange(60) % 5 == 0, np.arange(60) % 2].astype(int)
    encoder = TableEncoder(max_categories=20)
    clf = NONAClassifier(table_encoder=encoder, trend=trend, **QUICK).fit(table, labels)
    alone = clf.predict_proba(replace(clf.embed(queries), added=None))
    assert np.abs(np.subtract(clf.predict_proba(queries), alone)).max() > 0.05
    path = tmp_path / "model.onnx"
    export_onnx(clf, path)
    session = onnxruntime.InferenceSession(path)
    for X in (table, queries, queries[:1]):
        assert_outputs_agree(clf, X, session.run(None, onnx_inputs(clf, X)), 5, 0.0)


@pytest.mark.slow
def test_removed_levels_are_in_no_graph(mixed):
    reg, table = mixed
    reg = copy.deepcopy(reg)
    gone = (table["many"] == "make3") | (table["numbered"] == 1) | (table["ordered"] == "high")
    reg.remove_neighbors(ids=np.flatnonzero(gone))
    content = assert_encoded(reg.features_, table)
    assert b"make4" in content
    assert b"make3" not in content


@pytest.mark.slow
def test_a_table_of_numbers_goes_in_as_it_is():
    table = raw_table()[["number", "gaps", "truth", "duration", "empty"]]
    encoder = TableEncoder().fit(table)
    assert [*inputs_of(encoder, table)] == ["X"]
    np.testing.assert_array_equal(
        inputs_of(encoder, table)["X"],
        table.assign(duration=table["duration"].dt.total_seconds()).to_numpy(dtype=float),
    )
    assert_encoded(encoder, table, table.assign(number=np.nan, empty=1.0))


# -- quantiles ---------------------------------------------------------------------------------

LEVELS = [0.95, 0.05, 0.5, 0.3]


def assert_quantiles_agree(reg, tmp_path, X, levels=LEVELS, **tolerance):
    run = in_torch(reg, quantiles=levels)
    if tmp_path is not None:
        run = exported(reg, tmp_path, quantiles=levels)
    *_, found = run(X)
    expected = reg.predict_quantiles(X, np.atleast_1d(levels))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, **({"rtol": 1e-5, "atol": 1e-5} | tolerance))


WITH_QUANTILES = {
    "counts": ({"bounds": "count"}, (Y // 20).astype(int), None),
    "weights": ({"n_estimators": 3}, Y, 1 + np.arange(80) % 3),
    "bounds": ({"bounds": (60, 200)}, Y.clip(60, 200), None),
    "outputs": ({"bounds": "unit", "n_estimators": 2}, np.c_[Y, Y[::-1]] / Y.max(), None),
    "all rows": ({"n_neighbors": None, "adjust": False}, Y, 1 + np.arange(80) % 3),
}


def assert_quantiles_of_case_agree(name, tmp_path):
    params, y, weight = WITH_QUANTILES[name]
    reg = NONARegressor(**QUICK | params).fit(X, y, sample_weight=weight)
    assert_quantiles_agree(reg, tmp_path, np.vstack([QUERIES, 1e6 * QUERIES, X[:3]]))


@pytest.mark.parametrize("name", WITH_QUANTILES)
def test_quantiles_of_graphs_agree(name):
    assert_quantiles_of_case_agree(name, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counts", "outputs", "all rows"])
def test_quantiles_of_files_agree(name, tmp_path):
    assert_quantiles_of_case_agree(name, tmp_path)


@pytest.mark.parametrize(
    ("power", "noise", "n_estimators"),
    [(0.25, (), 2), (0.25, (30.0,), 1), (1.0, (), 1), (4.0, (30.0,), 2)],
)
def test_quantiles_agree_for_any_calibration(power, noise, n_estimators):
    reg = NONARegressor(n_estimators=n_estimators, max_iter=2, random_state=0)
    reg.fit(X, Y, sample_weight=1 + np.arange(80) % 3)
    reg.calibration_ = Calibration(power, noise)
    assert_quantiles_agree(reg, None, QUERIES, [0.0, 0.999, 0.37, 0.5])


@pytest.mark.slow
def test_quantiles_of_softstep_agree(tmp_path):
    knn = SoftStepKNeighborsRegressor(max_iter=2, random_state=0).fit(X, Y)
    assert_quantiles_agree(knn, tmp_path, QUERIES, 0.5)


def test_quantiles_are_of_regressors_and_probabilities(tmp_path):
    path = tmp_path / "model.onnx"
    reg, clf = NONARegressor(**QUICK).fit(X, Y), NONAClassifier(**QUICK).fit(X, Y > 100)
    with pytest.raises(ValueError, match=r"quantiles must be None for a classifier, got \[0.5\]"):
        export_onnx(clf, path, quantiles=[0.5])
    with pytest.raises(ValueError, match="quantiles must be below 1 for an ONNX graph, got"):
        export_onnx(reg, path, quantiles=[0, 1])
    for wrong in ([0.5, 1.5], -0.1, [], "half", [[0.5]], [np.nan]):
        with pytest.raises(ValueError) as of_graph:
            export_onnx(reg, path, quantiles=wrong)
        with pytest.raises(ValueError) as of_predict:
            reg.predict_quantiles(QUERIES, wrong)
        assert str(of_graph.value) == str(of_predict.value)
    assert not list(tmp_path.iterdir())


# -- the bank as an input -----------------------------------------------------------------------

EDITED = {name: case for name, case in EACH.items() if name != "all"} | {  # of 80 rows at least
    "default": (NONARegressor(n_estimators=2, max_iter=2, random_state=0), Y),
    "few of k": (NONAClassifier(n_neighbors=3, **QUICK), Y // 50),
    "additive of numbers": (SoftStepKNeighborsRegressor(trend="additive", **SOFT), Y),
    "without a trend": (NONARegressor(trend=None, n_estimators=2, max_iter=2), Y),
}
GONE = [*range(0, 40, 2)]


def edit(estimator, y):
    """Remove rows, and add some with weights, of which one is removed again."""
    estimator.remove_neighbors(ids=GONE)
    estimator.add_neighbors(QUERIES[:7] + 0.001, y[:7], sample_weight=np.arange(1.0, 8.0))
    return estimator.remove_neighbors(ids=[81])


@pytest.mark.parametrize(("estimator", "y"), EDITED.values(), ids=EDITED)
def test_an_earlier_graph_takes_the_bank_after_edits(estimator, y):
    estimator = clone(estimator).fit(X, y)
    graph = WithBank(Graph(exportable_snapshot(estimator), 5, takes_bank=True).eval())
    for bank_of in (estimator, edit(estimator, y)):
        bank = map(torch.from_numpy, onnx_bank(bank_of).values())
        with torch.inference_mode():
            outputs = [out.numpy() for out in graph(torch.from_numpy(QUERIES), *bank)]
        assert_outputs_agree(estimator, QUERIES, outputs, 5, 1e-5)


def assert_file_takes_banks(estimator, table, queries, edits, tmp_path):
    """Export once, and run the file by the bank before edits and after each of them."""
    path, levels = tmp_path / "model.onnx", None if hasattr(estimator, "classes_") else LEVELS
    export_onnx(estimator, path, quantiles=levels, bank="input")
    session = onnxruntime.InferenceSession(path)
    before = estimator.predict(queries)
    for change in (None, *edits):
        if change is not None:
            change(estimator)
        for X in (queries, queries[:1]):
            outputs = session.run(None, onnx_inputs(estimator, X) | onnx_bank(estimator))
            assert_outputs_agree(estimator, X, outputs[:3], 5, 1e-5)
            if levels is not None:
                expected = estimator.predict_quantiles(X, levels)
                np.testing.assert_allclose(outputs[3], expected, rtol=1e-5, atol=1e-4)
    assert (before != estimator.predict(queries)).any()


@pytest.mark.slow  # ten seconds each
@pytest.mark.parametrize(
    "name", ["default", "soft that ends", "ranks", "sparse", "trend of classes", "soft k", "s2"]
)
def test_files_take_the_bank_after_edits(name, tmp_path):
    estimator, y = EDITED[name]
    estimator = clone(estimator).fit(X, y)
    edits = [lambda each: edit(each, y), lambda each: each.compress(30)]
    assert_file_takes_banks(estimator, X, QUERIES, edits, tmp_path)


@pytest.mark.slow
def test_a_file_encodes_levels_without_rows_as_unknown(mixed, tmp_path):
    reg, table = mixed
    reg, queries = copy.deepcopy(reg), further_rows(raw_table())[MIXED]
    gone = (table["many"] == "make3") | (table["numbered"] == 1) | (table["ordered"] == "high")
    encoded = reg.features_.transform(table[gone])
    queries = pd.concat([table[gone], queries])
    edits = [lambda each: each.remove_neighbors(ids=np.flatnonzero(gone))]
    assert_file_takes_banks(reg, table, queries, edits, tmp_path)
    assert (reg.features_.transform(table[gone]) != encoded).any()


@pytest.mark.slow
def test_a_graph_holds_no_bank_that_it_takes(tmp_path):
    estimator, paths = NONARegressor(trend=None, **QUICK).fit(X, Y), []
    bank = onnx_bank(estimator)
    for kind in ("constant", "input"):
        paths.append(tmp_path / f"{kind}.onnx")
        export_onnx(estimator, paths[-1], bank=kind)
    constant, content = (path.read_bytes() for path in paths)
    assert bank["bank.ids"].tobytes() in constant
    assert bank["bank.ids"].tobytes() not in content
    session = onnxruntime.InferenceSession(paths[-1])
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert [*shapes] == ["X", *bank]
    assert shapes["bank.neighbors"][0] == shapes["bank.ids"][0] == "n_rows_of_bank"
    new_targets = onnx_bank(estimator.set_neighbor_targets(-Y))
    with pytest.raises(ValueError, match=r"Required inputs \(\['bank.adjustment_scale'\]\)"):
        session.run(None, onnx_inputs(estimator, QUERIES) | new_targets)


def test_a_bank_has_names_beside_the_columns():
    table = pd.DataFrame({"bank.ids": np.arange(40.0), "x": ["a", "b"] * 20})
    reg = NONARegressor(**QUICK).fit(table, np.arange(40.0))
    assert [*onnx_inputs(reg, table)] == ["bank.ids", "x"]
    bank = onnx_bank(reg)
    np.testing.assert_array_equal(bank["bank.ids_"], np.arange(40))
    assert "bank.ids" not in bank
    assert all(array.flags.c_contiguous for array in bank.values())


def test_a_bank_of_too_few_rows_is_refused(tmp_path):
    estimator = NONARegressor(n_neighbors=20, **QUICK).fit(X, Y)
    with pytest.raises(ValueError, match=r"bank must be one of .'constant', 'input'., got 'file'"):
        export_onnx(estimator, tmp_path / "model.onnx", bank="file")
    with pytest.raises(ValueError, match="the bank must have 21 rows for an ONNX graph, got 19"):
        onnx_bank(estimator.compress(19))
    with pytest.raises(ValueError, match="weighting must look at one neighbour at a time"):
        onnx_bank(NONARegressor(weighting="sparsemax", **QUICK).fit(X, Y))
    with pytest.raises(TypeError, match="estimator must be one of nona_sklearn with a bank"):
        onnx_bank(TableEncoder())


# -- defaults, and what is refused --------------------------------------------------------------


def wide():
    """A dense table of more columns than a sparse one may have without components."""
    return np.random.default_rng(0).normal(size=(80, 330))


def quick(estimator):
    """A clone that trains for a moment: an average of two networks is as one of five."""
    several = {"n_estimators": 2} if "n_estimators" in estimator.get_params() else {}
    return clone(estimator).set_params(random_state=0, max_iter=4, **several)


DEFAULTS = {
    "wide": (NONARegressor(), wide(), Y, {}),
    "wide classes": (NONAClassifier(), wide(), Y > 100, {}),
    "times": (NONARegressor(), X, Y, {"times": np.arange(80)}),
    "weights": (NONAClassifier(), X, Y > 100, {"sample_weight": 1 + np.arange(80) % 2}),
    "soft times": (SoftStepKNeighborsRegressor(), X, np.c_[Y, -Y], {"times": np.arange(80)}),
    "soft wide": (SoftStepKNeighborsClassifier(), wide(), Y > 100, {}),
    "sparse": (NONARegressor(), csr_array(X), np.c_[Y, -Y], {}),
}


def assert_defaults_agree(name, tmp_path):
    estimator, table, y, options = DEFAULTS[name]
    estimator = quick(estimator).fit(table, y, **options)
    dense = table.toarray() if issparse(table) else table
    levels = None if hasattr(estimator, "classes_") else LEVELS
    run = in_torch(estimator, quantiles=levels)
    if tmp_path is not None:
        run = exported(estimator, tmp_path, quantiles=levels)
    outputs = run(dense[:20] + 0.01)
    assert_outputs_agree(estimator, dense[:20] + 0.01, outputs[:3], 5, 1e-5)
    if levels is not None:
        expected = estimator.predict_quantiles(dense[:20] + 0.01, LEVELS)
        np.testing.assert_allclose(outputs[3], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", DEFAULTS)
def test_graphs_of_defaults_agree(name):
    assert_defaults_agree(name, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide", "soft times", "soft wide", "sparse"])
def test_files_of_defaults_agree(name, tmp_path):
    assert_defaults_agree(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [SoftStepKNeighborsRegressor(), NONAClassifier()],
    ids=lambda each: type(each).__name__,
)
def test_defaults_are_exported_for_raw_tables(estimator, tmp_path):
    table = raw_table().drop(columns=["share", "bins"])
    y = np.arange(60) // 20 if hasattr(estimator, "class_weight") else np.arange(60.0)
    estimator = quick(estimator).fit(table, y)
    path = tmp_path / "model.onnx"
    export_onnx(estimator, path)
    queries = further_rows(raw_table()).drop(columns=["share", "bins"])
    outputs = onnxruntime.InferenceSession(path).run(None, onnx_inputs(estimator, queries))
    assert_outputs_agree(estimator, queries, outputs, 5, 0.0)


@pytest.mark.slow
def test_times_in_a_column_agree(tmp_path):
    """All queries of a graph are later than the bank."""
    table = pd.DataFrame({"when": DATES, "x": np.sin(np.arange(60))})
    reg = NONARegressor(**QUICK).fit(table, np.arange(60.0), times="when")
    path = tmp_path / "model.onnx"
    export_onnx(reg, path)
    queries = table.assign(when=table["when"] + pd.Timedelta(days=400))
    outputs = onnxruntime.InferenceSession(path).run(None, onnx_inputs(reg, queries))
    assert_outputs_agree(reg, queries, outputs, 5, 0.0)


@pytest.mark.parametrize(
    ("values", "encoder", "message"),
    [
        (
            [f"some words {i}" for i in range(40)],
            TableEncoder(text_features="c"),
            "text_features must be None for an ONNX graph, .* got column 'c'",
        ),
        (
            pd.Categorical([2**53 + 1, 2] * 20),
            None,
            "column 'c' holds the category 9007199254740993, which float64 does not represent",
        ),
    ],
    ids=["texts", "large numbers"],
)
def test_a_column_that_cannot_be_exported_is_named(values, encoder, message, tmp_path):
    table = pd.DataFrame({"n": np.arange(40.0), "c": values})
    reg = NONARegressor(table_encoder=encoder, **QUICK).fit(table, np.arange(40.0))
    with pytest.raises(ValueError, match=message):
        export_onnx(reg, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_levels_as_in_version_0_2_0_are_refused(mixed, tmp_path):
    reg, _ = copy.deepcopy(mixed)
    reg.features_.encoders_["categories"] = OneHotEncoder()  # which that version had
    with pytest.raises(ValueError, match=r"column .* holds categories, .* version 0\.2\.0"):
        export_onnx(reg, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_inputs_are_checked_as_queries_are(mixed):
    reg, table = mixed
    with pytest.raises(ValueError, match="column 'number' held numbers in fit, and holds strings"):
        onnx_inputs(reg, table.assign(number="many"))
    with pytest.raises(ValueError, match="feature names"):
        onnx_inputs(reg, table.drop(columns="number"))
    with pytest.raises(TypeError, match="estimator must be one of nona_sklearn with a bank"):
        onnx_inputs(TableEncoder(), table)


class Extractor(nn.Linear):
    """A module of one's own."""


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        *(
            (
                SoftStepKNeighborsRegressor(None, max_iter=2, softstep=step),
                "for an ONNX graph, or weights end after some number of rows, set by n_neighbors",
            )
            for step in ("s2", SoftStep("s1", "pointwise", on="rank"))
        ),
        *(
            (NONARegressor(weighting=name, **QUICK), f"weighting must look at one .* got '{name}'")
            for name in ("sparsemax", "entmax", "preconditioned")
        ),
    ],
    ids=str,
)
def test_what_cannot_be_exported_is_named(estimator, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_onnx(clone(estimator).fit(X, Y), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_bad_arguments_are_refused(tmp_path):
    path = tmp_path / "model.onnx"
    for other in (TableEncoder(), FrozenEstimator(NONARegressor()), 3):
        with pytest.raises(TypeError, match="estimator must be one of nona_sklearn with a bank"):
            export_onnx(other, path)
    with pytest.raises(ValueError, match="is not fitted"):
        export_onnx(NONARegressor(), path)
    estimator = NONARegressor(**QUICK).fit(X, Y)
    for k in (0, 81, 2.5, None):
        with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 80, got"):
            export_onnx(estimator, path, n_neighbors=k)
    of_extractor = NONARegressor(Extractor(10, 4), **QUICK).fit(X.astype("f"), Y)
    for other in (None, 3):
        with pytest.raises(TypeError, match=f"path must be a str or path-like, got {other}"):
            export_onnx(estimator, other)
    with pytest.raises(ValueError, match="overwrite must be True or False, got 'yes'"):
        export_onnx(estimator, path, overwrite="yes")
    with pytest.raises(ValueError, match="feature_extractor must be None for an ONNX graph"):
        export_onnx(of_extractor, path)
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="path must be new"):
        export_onnx(estimator, path)
    assert path.read_text() == "mine"
