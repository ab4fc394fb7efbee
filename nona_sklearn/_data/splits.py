"""The rows that each network sets aside for validation."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from .times import have_earlier

SHARED = 0.25  # of a network's validation rows, with the next one
N_BLOCKS = 20  # of time, of which some validate
#: How near in time rows are no neighbours in training, as a share of the time of all rows.
WINDOW = 0.05


class Split(NamedTuple):
    """Numbers of a network's training and validation rows.

    With times, `limits`, (n_valid,), are those before which the neighbours of validation rows
    are, where they are calibrated.
    """

    train: np.ndarray
    valid: np.ndarray | None = None
    limits: np.ndarray | None = None


def split_in_turns(
    order: np.ndarray,
    groups: np.ndarray | None,
    n_samples: int,
    n_networks: int,
    validation_fraction: float,
    random_state: np.random.RandomState,
) -> list[Split]:
    """Take the rows, or groups, of an order to validate one network after the other.

    A quarter of a network's validation rows are the next one's too, so that there are rows on
    which two networks can be compared that trained on neither.

    Parameters
    ----------
    order : int ndarray of shape (n_units,)
        Numbers of the rows, or groups, shuffled.
    groups : int ndarray of shape (n,), optional
        Group of each row; None: each row by itself.
    n_samples : int
        Number of rows.
    n_networks : int
        Number of networks.
    validation_fraction : float
        Share of the units that each sets aside.
    random_state : RandomState
        Shuffles the rows of groups.

    Returns
    -------
    list of two int ndarray
        Training and validation rows of each network.

    Raises
    ------
    ValueError
        If fewer than two rows, or groups, would be left to train on.
    """
    n_units = len(order)
    units = np.arange(n_samples) if groups is None else groups
    n_valid = max(1, round(validation_fraction * n_units))
    if n_units - n_valid < 2:
        raise ValueError(
            f"validation_fraction={validation_fraction} of "
            f"{'n_samples' if groups is None else 'n_groups'}={n_units} leaves fewer than 2 "
            f"training {'rows' if groups is None else 'groups'}; "
            "use more samples or early_stopping=False"
        )
    splits: list[Split] = []
    for i in range(n_networks):
        turn = np.roll(order, -i * math.ceil((1 - SHARED) * n_valid))
        rows = turn if groups is None else random_state.permutation(n_samples)
        held_out = np.isin(units[rows], turn[:n_valid])
        splits.append(Split(rows[~held_out], rows[held_out]))
    return splits


def interleave(strata: np.ndarray, random_state: np.random.RandomState) -> np.ndarray:
    """Shuffle units so that any run of them has about its share of each stratum."""
    place = np.empty(len(strata))
    for stratum in range(strata.max() + 1):
        members = random_state.permutation(np.flatnonzero(strata == stratum))
        place[members] = (np.arange(len(members)) + random_state.uniform()) / len(members)
    return place.argsort()


def split_by_time(
    times: np.ndarray,
    n_networks: int,
    validation_fraction: float,
    random_state: np.random.RandomState,
    groups: np.ndarray | None = None,
) -> list[Split]:
    """Take blocks of time to validate one network after the other.

    Blocks in which no row has an earlier one, of another group, validate none: the first block is
    one of them. A quarter of a network's validation blocks are the next one's too.

    Parameters
    ----------
    times : ndarray of shape (n,)
        Time of each row.
    n_networks : int
        Number of networks.
    validation_fraction : float
        Share of the blocks that each sets aside.
    random_state : RandomState
        Shuffles blocks and rows.
    groups : int ndarray of shape (n,), optional
        Group of each row; None: each row by itself.

    Returns
    -------
    list of Split
        Rows of each network. Validation rows are compared with what is before their block.

    Raises
    ------
    ValueError
        If there are fewer than three different times, or no block can validate.
    """
    moments, place = np.unique(times, return_inverse=True)
    if len(moments) < 3:
        raise ValueError(
            f"times must hold at least 3 different ones, got {len(moments)}; "
            "or use early_stopping=False"
        )
    n_blocks = min(N_BLOCKS, len(moments))
    block_of_moment = np.arange(len(moments)) * n_blocks // len(moments)
    starts = moments[np.searchsorted(block_of_moment, np.arange(n_blocks))]
    order = random_state.permutation(len(times))
    blocks = block_of_moment[place[order]]
    moment, label = torch.from_numpy(times), None if groups is None else torch.from_numpy(groups)
    known = np.unique(block_of_moment[place[have_earlier(moment, moment, label, label).numpy()]])
    known = known[known > 0]
    if len(known) == 0:
        raise ValueError(
            "times must leave rows that a row of another group is earlier than, got none; or use "
            "early_stopping=False"
        )
    n_valid = min(max(1, round(validation_fraction * n_blocks)), n_blocks - 2, len(known))
    turn = known[random_state.permutation(len(known))]
    splits = []
    for i in range(n_networks):
        own = np.roll(turn, -i * math.ceil((1 - SHARED) * n_valid))[:n_valid]
        held_out = np.isin(blocks, own)
        splits.append(Split(order[~held_out], order[held_out], starts[blocks[held_out]]))
    return splits


def split_as_given(
    splits: Iterable[tuple[np.ndarray, np.ndarray]],
    place: np.ndarray,
    groups: np.ndarray | None,
    times: np.ndarray | None,
    n_networks: int,
    random_state: np.random.RandomState,
) -> list[Split]:
    """Take the last splits of a splitter of scikit-learn, one network after the other.

    The last are those with the most rows, of a splitter of time series.

    Parameters
    ----------
    splits : iterable of two int ndarray
        Training and validation rows of each, among those given to fit.
    place : int ndarray of shape (n_given,)
        Numbers of the rows given to fit among those of positive weight; -1 of the others.
    groups, times : ndarray of shape (n,), optional
        Groups and times of the rows of positive weight.
    n_networks : int
        Number of networks. If there are fewer splits, several take the same.
    random_state : RandomState
        Shuffles the rows.

    Returns
    -------
    list of Split
        Rows of each network. With times, validation rows are compared with those up to the last
        training row before them; rows without such do not validate, nor splits of such alone.

    Raises
    ------
    ValueError
        If there is no split, or one is no pair of arrays of row numbers, has fewer than 2 training
        rows, no validation row, a row that is both, or a group in both; or if times leave none.
    """
    found = []
    for split in deque(splits, maxlen=n_networks):
        train, valid = (place[rows] for rows in _pair_of_rows(split, len(place)))
        train, valid = train[train >= 0], valid[valid >= 0]
        _check_split(train, valid, groups)
        train, valid, limits = *map(random_state.permutation, (train, valid)), None
        if times is not None:
            limits = _after_last(times[train], times[valid])
            valid, limits = valid[np.isfinite(limits)], limits[np.isfinite(limits)]
        if len(valid):
            found.append(Split(train, valid, limits))
    if not found:
        later = "" if times is None else " with a validation row later than a training row"
        raise ValueError(f"validation_fraction must have a split{later}, got none")
    return [found[i % len(found)] for i in range(n_networks)]


def _pair_of_rows(split: Any, n_rows: int) -> list[np.ndarray]:
    """Check what a splitter yields: numbers of training and validation rows."""
    pair = [np.asarray(rows) for rows in split] if isinstance(split, tuple | list) else []
    if len(pair) != 2 or any(rows.ndim != 1 or rows.dtype.kind not in "iu" for rows in pair):
        raise ValueError(
            "validation_fraction must have splits into arrays of training and validation rows, "
            f"got {split!r:.100}"
        )
    numbers = np.concatenate(pair)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n_rows:
        wrong = int(numbers.min() if numbers.min() < 0 else numbers.max())
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


def _after_last(train: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The first moments after the last training times before some others, (n_valid,).

    Of those that no training time is before, -inf.
    """
    moments = np.append(-np.inf, np.unique(train))
    last = moments[np.searchsorted(moments, valid) - 1]
    return np.where(np.isfinite(last), np.nextafter(last, np.inf), -np.inf)
