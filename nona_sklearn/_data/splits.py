"""Splits of the rows into training and validation rows, one for every network."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

SHARED = 0.25  # share of a network's validation rows that also validate the next network
N_BLOCKS = 20  # number of blocks of time
#: Rows nearer in time are no neighbours in training, as a share of the time of all rows.
WINDOW = 0.05


class Split(NamedTuple):
    """Hold the positions of a network's training and validation rows.

    With times, calibration takes neighbours before the cutoff time of a validation row.
    """

    train: np.ndarray
    valid: np.ndarray | None = None
    cutoff_times: np.ndarray | None = None  # (n_valid,)


def split_in_turns(
    order: np.ndarray,
    groups: np.ndarray | None,
    n_samples: int,
    n_networks: int,
    validation_fraction: float,
    random_state: np.random.RandomState,
) -> list[Split]:
    """Return splits of rows, or groups, that take turns in a shuffled `order` to validate.

    Consecutive networks share a quarter of their validation rows, on which they can be compared.
    `groups` are codes (n_samples,).
    """
    n_units = len(order)
    units = np.arange(n_samples) if groups is None else groups
    n_valid = max(1, round(validation_fraction * n_units))
    if n_units - n_valid < 2:
        raise ValueError(
            f"validation_fraction={validation_fraction} of "
            f"{'n_samples' if groups is None else 'n_groups'}={n_units} leaves fewer than 2 "
            f"training {'rows' if groups is None else 'groups'}; "
            "use more samples or validation_fraction=None"
        )
    splits: list[Split] = []
    for i in range(n_networks):
        turn = _turn(order, i, n_valid)
        rows = turn if groups is None else random_state.permutation(n_samples)
        held_out = np.isin(units[rows], turn[:n_valid])
        splits.append(Split(rows[~held_out], rows[held_out]))
    return splits


def interleave(strata: np.ndarray, random_state: np.random.RandomState) -> np.ndarray:
    """Return an order of units, (n_units,), of which any run is approximately stratified."""
    rank = np.empty(len(strata))
    for stratum in range(strata.max() + 1):
        members = random_state.permutation(np.flatnonzero(strata == stratum))
        rank[members] = (np.arange(len(members)) + random_state.uniform()) / len(members)
    return rank.argsort()


def split_by_time(
    times: np.ndarray,
    n_networks: int,
    validation_fraction: float,
    random_state: np.random.RandomState,
    groups: np.ndarray | None = None,
) -> list[Split]:
    """Return splits by blocks of time, which take turns to validate.

    A block, such as the first, validates no network if no row of the block has an earlier row of a
    different group. The cutoff time of a validation row is the start of its block.
    """
    distinct, rank = np.unique(times, return_inverse=True)
    if len(distinct) < 3:
        raise ValueError(
            f"times must hold at least 3 different ones, got {len(distinct)}; "
            "or use validation_fraction=None"
        )
    n_blocks = min(N_BLOCKS, len(distinct))
    block_of_rank = np.arange(len(distinct)) * n_blocks // len(distinct)
    starts = distinct[np.searchsorted(block_of_rank, np.arange(n_blocks))]
    order = random_state.permutation(len(times))
    blocks = block_of_rank[rank[order]]
    row_times = torch.from_numpy(times)
    codes = None if groups is None else torch.from_numpy(groups)
    predictable = have_earlier(row_times, row_times, codes, codes).numpy()
    candidates = np.unique(block_of_rank[rank[predictable]])
    candidates = candidates[candidates > 0]
    if len(candidates) == 0:
        raise ValueError(
            "times must leave rows that a row of another group is earlier than, got none; or use "
            "validation_fraction=None"
        )
    n_valid = min(max(1, round(validation_fraction * n_blocks)), n_blocks - 2, len(candidates))
    shuffled = candidates[random_state.permutation(len(candidates))]
    splits = []
    for i in range(n_networks):
        held_out = np.isin(blocks, _turn(shuffled, i, n_valid)[:n_valid])
        splits.append(Split(order[~held_out], order[held_out], starts[blocks[held_out]]))
    return splits


def split_as_given(
    splits: Iterable[tuple[np.ndarray, np.ndarray]],
    positions: np.ndarray,
    groups: np.ndarray | None,
    times: np.ndarray | None,
    n_networks: int,
    random_state: np.random.RandomState,
) -> list[Split]:
    """Return the last splits of a scikit-learn splitter, shuffled, one for every network.

    For time series, the last splits have the most rows. Splits repeat if there are fewer splits
    than networks. `positions`, (n_given,), map given rows to rows of positive weight, or to -1.
    With times, the cutoff time of a validation row is just after the last training row before it;
    validation rows without an earlier training row are left out.
    """
    kept = []
    for split in deque(splits, maxlen=n_networks):
        train, valid = (positions[rows] for rows in _check_pair(split, len(positions)))
        train, valid = train[train >= 0], valid[valid >= 0]
        _check_split(train, valid, groups)
        train = random_state.permutation(train)
        valid = random_state.permutation(valid)
        cutoff_times = None
        if times is not None:
            train_times = np.unique(times[train])
            n_earlier = np.searchsorted(train_times, times[valid])
            valid = valid[n_earlier > 0]
            cutoff_times = np.nextafter(train_times[n_earlier[n_earlier > 0] - 1], np.inf)
        if len(valid):
            kept.append(Split(train, valid, cutoff_times))
    if not kept:
        later = "" if times is None else " with a validation row later than a training row"
        raise ValueError(f"validation_fraction must have a split{later}, got none")
    return [kept[i % len(kept)] for i in range(n_networks)]


def have_earlier(
    cutoff_times: Tensor,
    times: Tensor,
    codes: Tensor | None = None,
    codes_of_times: Tensor | None = None,
) -> Tensor:
    """Return whether cutoff times (q,) have an earlier time among rows (n,), bool (q,).

    With codes, (q,) and (n,), rows of the same code are ignored.
    """
    first = times.argmin()
    earliest = times[first].expand_as(cutoff_times)
    if codes is not None and codes_of_times is not None:
        unlike_first = times[codes_of_times != codes_of_times[first]]
        second = unlike_first.amin() if len(unlike_first) else times.new_tensor(math.inf)
        earliest = torch.where(codes == codes_of_times[first], second, earliest)
    return cutoff_times > earliest


def _turn(units: np.ndarray, i: int, n_valid: int) -> np.ndarray:
    """Return units, rolled so that the first `n_valid` validate network number `i`."""
    return np.roll(units, -i * math.ceil((1 - SHARED) * n_valid))


def _check_pair(split: Any, n_rows: int) -> list[np.ndarray]:
    """Return validated indices of training and validation rows that a splitter yields."""
    pair = [np.asarray(rows) for rows in split] if isinstance(split, tuple | list) else []
    if len(pair) != 2 or any(rows.ndim != 1 or rows.dtype.kind not in "iu" for rows in pair):
        raise ValueError(
            "validation_fraction must have splits into arrays of training and validation rows, "
            f"got {split!r:.100}"
        )
    indices = np.concatenate(pair)
    if len(indices) and not 0 <= indices.min() <= indices.max() < n_rows:
        wrong = int(indices.min() if indices.min() < 0 else indices.max())
        raise ValueError(f"validation_fraction must have splits of {n_rows} rows, got row {wrong}")
    return pair


def _check_split(train: np.ndarray, valid: np.ndarray, groups: np.ndarray | None) -> None:
    if len(train) < 2 or len(valid) < 1:
        raise ValueError(
            "validation_fraction must have splits of at least 2 training rows and 1 validation "
            f"row, got {len(train)} and {len(valid)}"
        )
    kind = "row" if groups is None else "group"
    sides = (train, valid) if groups is None else (groups[train], groups[valid])
    if len(np.intersect1d(*sides)):
        raise ValueError(
            f"validation_fraction must not have a {kind} in training and validation at once"
        )
