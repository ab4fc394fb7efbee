"""Predictions of many rows, some at a time: the same results, whatever the blocks."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from inner.data import TableSource, source
from inner.network import NeighborNetwork, network
from torch import nn

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsRegressor,
)
from nona_sklearn.attention import NONAHead

BLOCK = 7  # rows, instead of thousands
QUICK = {"max_iter": 2, "random_state": 0}


def make_table(n, seed=0):
    """Numbers with gaps, categories, and dates of a time zone among Python's objects."""
    rng = np.random.default_rng(seed)
    dates = [
        dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")) + dt.timedelta(days=int(day))
        for day in rng.integers(0, 900, n)
    ]
    return pd.DataFrame(
        {
            "area": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "rooms": rng.integers(1, 5, n),
            "district": rng.choice(["Altona", "Horn", None], n),
            "state": pd.Categorical(rng.choice(["old", "new"], n), ["old", "new"], ordered=True),
            "let": np.array(dates, dtype=object),
        },
        index=[f"flat {i}" for i in range(n)],
    )


@pytest.fixture
def small_blocks(monkeypatch):
    """Embed few rows at a time; returns how many they were, call by call."""
    lengths, embed = [], NeighborNetwork.embed
    for module in (network, source):
        monkeypatch.setattr(module, "EMBED_BLOCK", BLOCK)
    monkeypatch.setattr(
        NeighborNetwork, "embed", lambda self, X: lengths.append(len(X)) or embed(self, X)
    )
    return lengths


def predict_whole_and_by_blocks(model, X, small_blocks, evaluate):
    with pytest.MonkeyPatch.context() as patch:
        for module in (network, source):
            patch.setattr(module, "EMBED_BLOCK", 4096)
        whole = evaluate(model, X)
    small_blocks.clear()
    ours = evaluate(model, X)
    assert max(small_blocks) == BLOCK
    assert sum(small_blocks) % len(X) == 0  # by the networks, and among the features
    return whole, ours


def as_polars(X):
    whole = X.astype(object).where(X.notna(), None)
    return pl.DataFrame({name: column.tolist() for name, column in whole.items()})


@pytest.mark.parametrize("convert", [lambda X: X, as_polars], ids=["pandas", "polars"])
@pytest.mark.parametrize(
    "evaluate",
    [
        lambda model, X: model.predict(X),
        lambda model, X: np.stack(model.predict(X, return_std=True)),
        lambda model, X: model.transform(X),
        lambda model, X: model.neighbor_weights(X).toarray(),
    ],
    ids=["predict", "std", "transform", "weights"],
)
def test_predictions_of_a_table_in_blocks_and_at_once_are_the_same(
    convert, evaluate, small_blocks
):
    X = convert(make_table(60))
    if convert is as_polars:
        X = X.drop("let")  # a list of aware dates is a column of UTC there
    model = NONARegressor(n_estimators=2, **QUICK).fit(X[:40], np.arange(40.0))
    whole, ours = predict_whole_and_by_blocks(model, X[35:], small_blocks, evaluate)
    # Embeddings are rounded to float32 from float64 products of other lengths.
    np.testing.assert_allclose(ours, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_classes_are_predicted_in_blocks(several, small_blocks):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    y = np.stack([y, np.where(X[:, 1] > 0, "a", "b")], axis=1) if several else y
    model = NONAClassifier(n_estimators=1, **QUICK).fit(X[:40], y[:40])

    def evaluate(model, X):
        return np.hstack(model.predict_proba(X)) if several else model.predict_proba(X)

    whole, ours = predict_whole_and_by_blocks(model, X[40:], small_blocks, evaluate)
    np.testing.assert_allclose(ours, whole, rtol=1e-5, atol=1e-6)
    assert model.predict(X[40:]).shape == y[40:].shape


def test_rows_of_an_extractor_are_predicted_in_blocks(small_blocks):
    X = np.random.default_rng(0).normal(size=(40, 2, 3)).astype(np.float32)
    model = NONARegressor(nn.Flatten(), n_estimators=1, **QUICK).fit(X[:25], X[:25, 0, 0])
    whole, ours = predict_whole_and_by_blocks(
        model, X[25:], small_blocks, lambda model, X: model.predict(X)
    )
    np.testing.assert_allclose(ours, whole, rtol=1e-4, atol=1e-5)  # extractors stay in float32


def test_a_block_without_a_value_is_no_other_column(small_blocks):
    """All gaps in some blocks, and in fit none: medians, and the level of what is unknown."""
    X = make_table(40)
    X["area"], X["district"] = np.arange(40.0), "Horn"
    model = NONARegressor(n_estimators=1, **QUICK).fit(X, np.arange(40.0))
    gaps = X.copy()
    gaps.loc[gaps.index[BLOCK : 3 * BLOCK], ["area", "district"]] = None
    median = X.copy()
    median["area"] = gaps["area"].fillna(X["area"].median())
    rows = [*range(BLOCK, 2 * BLOCK)]
    alone = model.predict(gaps.iloc[rows])
    np.testing.assert_allclose(model.predict(gaps)[rows], alone, rtol=1e-6)
    known = median.assign(district=gaps["district"])
    np.testing.assert_allclose(model.predict(gaps), model.predict(known), rtol=1e-6)


@pytest.mark.parametrize("row", [0, 39])
def test_an_invalid_value_in_any_block_is_named(row, small_blocks):
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = SoftStepKNeighborsRegressor(**QUICK).fit(X, X[:, 0])
    X[row, 1] = np.inf
    with pytest.raises(ValueError, match="column 1 holds inf"):
        model.predict(X)


def test_all_blocks_are_predicted_from_one_bank(small_blocks, monkeypatch):
    """Another thread may edit the bank while a long prediction runs."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = NONARegressor(n_estimators=1, **QUICK).fit(X, X[:, 0])
    expected, fitted = model.predict(X), model.bank_
    blocks = TableSource.blocks

    def edited(self, X):
        for block in blocks(self, X):
            yield block
            model.bank_ = fitted.keep(np.arange(5))

    monkeypatch.setattr(TableSource, "blocks", edited)
    np.testing.assert_array_equal(model.predict(X), expected)


@pytest.mark.parametrize("training", [False, True])
def test_embedding_leaves_the_mode_as_it_is(training):
    network = NeighborNetwork(nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2)), NONAHead())
    network.train(training)
    X = torch.ones(5, 3)
    assert torch.equal(network.embed(X), network.embed(X))  # nothing is dropped
    assert {module.training for module in network.modules()} == {training}
