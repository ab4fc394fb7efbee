"""The rows that each network sets aside for validation."""

from __future__ import annotations

import math

import numpy as np

SHARED = 0.25  # of a network's validation rows, with the next one


Split = tuple[np.ndarray, "np.ndarray | None"]  # numbers of training and of validation rows


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
        splits.append((rows[~held_out], rows[held_out]))
    return splits


def interleave(strata: np.ndarray, random_state: np.random.RandomState) -> np.ndarray:
    """Shuffle units so that any run of them has about its share of each stratum."""
    place = np.empty(len(strata))
    for stratum in range(strata.max() + 1):
        members = random_state.permutation(np.flatnonzero(strata == stratum))
        place[members] = (np.arange(len(members)) + random_state.uniform()) / len(members)
    return place.argsort()
