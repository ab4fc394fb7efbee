from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from inner.data import RegressionTargets, TrainingData

TABLES = st.tuples(st.integers(2, 8), st.sampled_from([None, 1, 3])).flatmap(
    lambda shape: arrays(
        float,
        shape[:1] if shape[1] is None else shape,
        elements=st.floats(-1e6, 1e6).map(lambda v: round(v, 3)),
    )
)


def test_on_paper():
    targets = RegressionTargets().fit([1.0, 3.0])
    values = targets.values([1.0, 3.0, 5.0])
    assert values.dtype == torch.float64
    assert targets.encode(values).tolist() == [-1.0, 1.0, 3.0]
    assert targets.decode(values).tolist() == [1.0, 3.0, 5.0]
    assert targets.loss()(torch.tensor([1.0]), torch.tensor([3.0])) == 4


@given(TABLES)
def test_restoring_undoes_encoding(y):
    targets = RegressionTargets().fit(y)
    values = targets.values(y)
    encoded = targets.encode(values)
    assert encoded.shape == y.shape
    assert encoded.dtype == torch.float32
    scale = np.ptp(y, axis=0).max() + 1e-9
    np.testing.assert_allclose(targets.restore(encoded), y, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_a_network_learns_targets_without_those_beyond_all_others(n_outputs):
    """Clipped to twice what the others span at most; without such targets, nothing changes."""
    rng = np.random.default_rng(0)
    y = rng.standard_t(3, size=(500, n_outputs))
    assert RegressionTargets().fit(y).learned_range is None
    far = y.copy()
    far[7, 0] = -1e9
    targets = RegressionTargets().fit(far)
    clean = RegressionTargets().fit(np.delete(y, 7, axis=0))
    assert targets.unit[0] < 2 * clean.unit[0]
    encoded = targets.encode(targets.values(far)).numpy()
    assert encoded[7, 0] == encoded[:, 0].min()
    assert abs(encoded[7, 0]) < 4 * abs(np.delete(encoded[:, 0], 7)).max()
    kept = np.arange(500) != 7
    restored = targets.restore(torch.from_numpy(encoded))
    np.testing.assert_allclose(restored[kept], y[kept], atol=1e-5)
    assert targets.decode(targets.values(far))[7, 0] == -1e9
    if n_outputs == 2:
        assert targets.unit[1] == RegressionTargets().fit(y).unit[1]


@pytest.mark.parametrize(
    "y", [np.r_[np.zeros(95), np.arange(1, 6)], np.exp(3 * np.random.RandomState(0).randn(1000))]
)
def test_skewed_targets_are_learned_as_they_are(y):
    assert RegressionTargets().fit(y).learned_range is None


def test_values_are_a_copy():
    y = np.arange(3.0)
    values = RegressionTargets().values(y)
    y += 1
    assert values.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.nan], "Input y contains NaN: nan in row 1$"),
        ([-np.inf, np.inf], "Input y contains infinity: -inf in row 0$"),
        ([1.0, 1e155], r"too large to be squared, .*: 1e\+155 in row 1$"),  # 1e310, if it could
        ([1.0, -1e200], r"contains a value too large to be squared, .*: -1e\+200 in row 1$"),
        ([[1.0, 2.0], [3.0, None]], "Input y contains NaN: nan in row 1 of output 1; fit an est"),
        ([[1.0], [None]], "Input y contains NaN: nan in row 1$"),
        (pd.Series([1, pd.NA], name="price", dtype="Int64"), "nan in row 1 of output 'price'$"),
        (
            pd.DataFrame({"a": [1.0, np.inf], "b": [np.nan] * 2}),
            "nan in row 0 of output 'b'; fit an est",
        ),
        (pd.DataFrame({0: [1.0, 2.0], 1: [np.inf, 2.0]}), "inf in row 0 of output 1$"),
        (
            pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, None]}),
            "nan in row 1 of output 'b'; fit an estimator for each",
        ),
        (
            pd.Series([1, np.nan], ["cat", "dog"], name="a"),
            r"row 1 \(index 'dog'\) of output 'a'$",
        ),
        (pd.Series([np.nan, 1], [7, 8]), r"nan in row 0 \(index 7\)$"),
        (pd.Series([1, np.nan], [7, 1]), "nan in row 1$"),
        (None, "requires y to be passed"),
        (np.ones((2, 2, 2)), "dim 3"),
        (["a", "b"], "could not convert string to float: 'a'"),
    ],
)
def test_bad_values(y, message):
    with pytest.raises(ValueError, match=message):
        RegressionTargets().values(y)


def test_rows_go_by_the_numbers_they_are_given():
    with pytest.raises(ValueError, match=r"NaN: nan in row 9$"):
        RegressionTargets().check([1.0, np.nan], rows=np.array([4, 9]))
    series = pd.Series([1.0, np.nan], [4, 9])
    with pytest.raises(ValueError, match=r"NaN: nan in row 9$"):
        RegressionTargets().check(series, rows=np.array([4, 9]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples: X has 3, y has 2"):
        RegressionTargets().check([1.0, np.nan], rows=np.arange(3))


@given(
    n_units=st.integers(3, 30),
    size=st.integers(1, 3),
    n_networks=st.integers(1, 6),
    fraction=st.floats(0.01, 0.3),
    seed=st.integers(0, 2**31),
)
def test_splits_cover_all_rows_and_share_the_turns(n_units, size, n_networks, fraction, seed):
    """Each network trains on what it does not validate, and groups stay together.

    A quarter of the validation rows, or groups, are those of the next network as well, so that two
    can be compared on rows that neither has seen.
    """
    for groups in (None, np.repeat(np.arange(n_units), size)):
        n = n_units if groups is None else n_units * size
        splits = RegressionTargets().split(
            torch.zeros(n), groups, n_networks, fraction, np.random.RandomState(seed)
        )
        units = np.arange(n) if groups is None else groups
        turns = np.zeros(n_units)
        for train, valid, _ in splits:
            assert sorted([*train, *valid]) == list(range(n))
            assert not np.isin(units[valid], units[train]).any()
            turns[np.unique(units[valid])] += 1
        held_out = [set(units[valid]) for _, valid, _ in splits]
        n_valid = len(held_out[0])
        n_shared = n_valid // 4
        for ours, next_ones in pairwise(held_out):
            assert len(next_ones) == n_valid
            assert len(ours & next_ones) >= n_shared
        if n_networks * (n_valid - n_shared) + n_shared <= n_units:  # once around at most
            assert turns.sum() == n_networks * n_valid
            assert turns.max() <= 2
            assert (turns == 2).sum() == (n_networks - 1) * n_shared


class Tensors:
    """A source of features that are given as a network takes them."""

    ignored = ()

    def accept(self, X, y):
        return X, y

    def check(self, X):
        return X

    def fit(self, X, y):
        return torch.tensor(X)

    def levels(self, X):
        return None


def test_training_data_are_split_by_the_groups_given():
    """A row of weight 0 is in no group, and in neither part."""
    groups, weights = np.tile(list("cabdefghij"), 4), np.ones(40)
    weights[3] = 0
    targets = RegressionTargets()
    data = TrainingData.take(
        Tensors(), targets, np.zeros((40, 2)), np.arange(40.0), groups, weights
    )
    kept = np.delete(groups, 3)
    splits = data.splits(targets, 3, 0.2, np.random.RandomState(0))
    assert len(splits) == 3
    for train, valid, _ in splits:
        assert sorted([*train, *valid]) == list(range(39))
        assert len({*kept[valid]}) == 2
        assert not {*kept[valid]} & {*kept[train]}
