"""Edits of the bank of a fitted estimator, each as one step."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._data.classes import weigh_values
from .._data.names import Names, target_names_of
from .._data.row_values import check_groups, check_sample_weight, log_prior, multiply
from .._data.tables import column_named
from .._data.times import TimeKind
from .._data.training_data import values_of_new
from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.neighbors import Neighbors
from .._utils.snapshots import EDITING, snapshot
from .._utils.validation import (
    check_ids,
    check_integer,
    check_n_neighbors,
    check_some_left,
)
from .queries import embedded, levels_of, times_given

#: Most pairs of queries and rows for a compression: that are searched, or whose weights are held.
SEARCHED_PAIRS, WEIGHED_PAIRS = 2**33, 2**25

MOST_ATTEMPTS = 20  # at an edit, during which other threads fit

Change = Callable[[NeighborBank], NeighborBank]


def edit(estimator: Any, prepare: Callable[[Any], Change]) -> tuple[NeighborBank, NeighborBank]:
    """Replace the bank, as one step; return the one before and the one after.

    Parameters
    ----------
    estimator : NeighborEstimator
        The fitted estimator.
    prepare : callable
        Takes a snapshot of the estimator, and returns what makes the new bank of the present
        one. What calls the caller's code or needs no lock is done here. It is called again
        where another thread has ended a fit, or set other targets, in the meantime.

    Raises
    ------
    RuntimeError
        If that happens again and again.
    """
    check_is_fitted(estimator)
    for _ in range(MOST_ATTEMPTS):
        fitted = snapshot(estimator)
        change = prepare(fitted)
        with EDITING.held():
            if _added_to(estimator) == _added_to(fitted):
                before = estimator.bank_
                estimator.bank_ = change(before)
                return before, estimator.bank_
    raise RuntimeError(
        f"The bank was not edited: in {MOST_ATTEMPTS} attempts, other threads fitted the "
        "estimator or replaced its targets meanwhile. Edit it when they are done"
    )


def _added_to(estimator: Any) -> tuple:
    """What the embeddings and targets of added rows depend on."""
    bank = estimator.bank_
    return estimator.network_, bank.target_names, bank.targets.shape[1:]


def addition(
    fitted: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    times: Any = None,
    groups: Any = None,
    max_rows: Any = None,
    max_age: Any = None,
) -> Change:
    """Add labelled rows; the oldest leave a bank that may hold so many, or of such an age."""
    queries, names = embedded(fitted, X), Names.of(X, y)
    embeddings = queries.embeddings
    moments = times_given(fitted, X, times, len(embeddings))
    if groups is not None:
        if fitted.bank_.groups is None:
            raise ValueError("groups need an estimator that was fitted with groups")
        if isinstance(groups, str):
            groups = column_named("groups", X, groups)
        groups = check_groups(groups, len(embeddings))
    limits = _bounds(fitted.bank_.time, max_rows, max_age)
    weights = check_sample_weight(sample_weight, len(embeddings))
    if not weights.all():  # an ignored row would have a name
        row = int(weights.argmin())
        raise ValueError(f"sample_weight must be above 0 for added rows, got 0.0 in row {row}")
    targets = checked_values(fitted, y, len(embeddings))
    if (factors := getattr(fitted, "_class_factors", None)) is not None:
        weights = weigh_values(factors, fitted.targets_, targets, weights)
    prior = log_prior(weights, fitted.bank_.weight_unit, embeddings.device)
    if fitted.bank_.time is not None:
        prior = multiply(prior, fitted.bank_.time.log_prior(moments))
    rows = Neighbors(embeddings, targets, prior, times=moments)
    levels = None if fitted.bank_.levels is None else levels_of(fitted, X)

    def add(bank: NeighborBank) -> NeighborBank:
        added = bank.add(rows, names.rows, groups, levels, queries.inputs)
        return added if limits is None else added.latest(*limits)

    return add


def _bounds(time: TimeKind | None, max_rows: Any, max_age: Any) -> tuple | None:
    """Validate how large and how old a bank may be; None: without bounds."""
    if max_rows is None and max_age is None:
        return None
    if time is None:
        name, value = ("max_rows", max_rows) if max_age is None else ("max_age", max_age)
        raise ValueError(f"{name} needs an estimator that was fitted with times, got {value!r}")
    n_rows = None if max_rows is None else check_integer("max_rows", max_rows)
    return n_rows, None if max_age is None else time.length("max_age", max_age)


def removal(ids: Any, names: Any) -> Change:
    """Leave out rows that are given by their ids or by their names."""
    if (ids is None) == (names is None):
        raise ValueError("exactly one of ids and names must be given")
    chosen: Any = check_ids(ids) if names is None else _list_names(names)

    def remove(bank: NeighborBank) -> NeighborBank:
        find = bank.positions if names is None else bank.positions_of_names
        kept = np.setdiff1d(np.arange(len(bank)), find(chosen))
        check_some_left("ids" if names is None else "names", len(kept), len(bank))
        return bank.keep(kept)

    return remove


def replacement_of_targets(fitted: Any, y: Any) -> Change:
    """Set other targets of the same rows."""
    values = fitted.targets_.values(y)

    def set_targets(bank: NeighborBank) -> NeighborBank:
        if len(values) != len(bank):
            raise ValueError(f"y must have the bank's {len(bank)} rows, got shape {np.shape(y)}")
        on_device = values.to(bank.targets.device)
        return fitted._calibrate(bank.with_targets(on_device, target_names_of(y)))

    return set_targets


def compression(fitted: Any, n_neighbors: int, X: Any) -> Change:
    """Keep rows that together carry the weight of the predictions of some queries."""
    queries = None if X is None else embedded(fitted, X)

    def compress(bank: NeighborBank) -> NeighborBank:
        check_n_neighbors(n_neighbors, len(bank))
        evaluation = bank.evaluate(fitted.network_.head, queries)
        # A row by itself is a query as well: queries that are like it need it.
        evaluation = replace(evaluation, exclusion=None)
        if queries is None:
            evaluation = evaluation[_sample(evaluation)]
        return bank.in_order(np.sort(evaluation.representatives(int(n_neighbors))))

    return compress


def checked_values(fitted: Any, y: Any, n_rows: int) -> Tensor:
    """Values of some rows' targets, with the outputs of the bank's, in their order."""
    bank = fitted.bank_
    values = values_of_new(fitted.targets_, y, n_rows, bank.target_names, bank.targets.shape[1:])
    return values.to(bank.targets.device)


def _sample(evaluation: Evaluation) -> np.ndarray:
    """Some of the queries at random, all unless they are many."""
    n_rows = len(evaluation.neighbors)
    pairs = WEIGHED_PAIRS if evaluation.bounds(n_rows) is None else SEARCHED_PAIRS
    return np.random.RandomState(0).permutation(len(evaluation))[: max(1, pairs // n_rows)]


def _list_names(names):
    """List one name or several: a string is one, and so is a tuple."""
    several = np.iterable(names) and not isinstance(names, str | bytes | tuple)
    names = list(names) if several else [names]
    for name in names:
        if not isinstance(name, Hashable):
            raise ValueError(f"names must be labels of an index, got {name!r}")
    return names
