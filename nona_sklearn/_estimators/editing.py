"""Atomic edits of the bank of a fitted estimator, with the levels that they forget."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._data.row_values import check_groups, check_sample_weight, log_prior, multiply
from .._data.sample import Embedded
from .._data.table_encoder import TableEncoder
from .._data.table_encoding import TableEncoding
from .._data.tables import Names, column_named
from .._data.targets import weigh_values
from .._data.training_data import values_of_new
from .._inference.bank import NeighborBank, positions_of_names
from .._inference.neighbors import Neighbors
from .._utils.tables import target_names_of
from .._utils.threads import EDITING, snapshot
from .._utils.validation import (
    check_ids,
    check_integer,
    check_n_neighbors,
    check_some_left,
)
from .queries import fitted_input, read_queries, times_given

#: Limits on pairs of queries and rows in a compression: if rows are searched, and if all weights
#: are held.
SEARCHED_PAIRS, WEIGHED_PAIRS = 2**33, 2**25

MOST_ATTEMPTS = 20  # of an edit while concurrent threads fit

Change = Callable[[NeighborBank], NeighborBank]


def forget_levels(estimator: Any, before: NeighborBank) -> None:
    """Remove a level from the estimator's encoder if all its rows in the bank `before` have left.

    A level without rows in the bank `before`, such as after a compression, stays.
    """
    with EDITING.held():
        bank = estimator.bank_
        if before.levels is None or bank.levels is None or not hasattr(estimator, "features_"):
            return
        removed = torch.isin(before.ids.cpu(), bank.ids.cpu(), invert=True)
        encoder = estimator.features_
        estimator.features_ = without_levels(encoder, [before.levels[removed]], [bank.levels])


def without_levels(encoder: Any, removed: Iterable[Tensor], left: Iterable[Tensor]) -> Any:
    """Return the encoder without the levels that removed rows have, but no rows that are left.

    `removed` and `left` hold the levels of rows by bank, (n, n_categories).
    """
    if not isinstance(encoder, TableEncoder):
        return encoder
    gone = _distinct_levels(removed)
    if any(gone):
        gone = [a - b for a, b in zip(gone, _distinct_levels(left), strict=True)]
    if not any(gone):
        return encoder
    left_encoding, copied = TableEncoding.of(encoder).without_levels(gone), snapshot(encoder)
    copied.features_, copied.encoders_ = left_encoding.specs, left_encoding.encoders
    return copied


def _distinct_levels(banks: Iterable[Tensor]) -> list[set[int]]:
    """Return the codes of the levels in all banks, one set per category."""
    columns = [[set(column.unique().tolist()) - {-1} for column in codes.T] for codes in banks]
    return [set().union(*category) for category in zip(*columns, strict=True)]


def edit(estimator: Any, prepare: Callable[[Any], Change]) -> tuple[NeighborBank, NeighborBank]:
    """Replace the bank atomically; return the bank before and the bank after.

    `prepare` maps a snapshot of the estimator to the change, without a lock.
    """
    # It is called again if a concurrent thread has ended a fit or set new targets in the meantime.
    check_is_fitted(estimator)
    for _ in range(MOST_ATTEMPTS):
        fitted = snapshot(estimator)
        change = prepare(fitted)
        with EDITING.held():
            if _edit_context(estimator) == _edit_context(fitted):
                before = estimator.bank_
                estimator.bank_ = change(before)
                return before, estimator.bank_
    raise RuntimeError(
        f"The bank was not edited: in {MOST_ATTEMPTS} attempts, other threads fitted the "
        "estimator or replaced its targets meanwhile. Edit it when they are done"
    )


def _edit_context(estimator: Any) -> tuple:
    """State that must not change while rows are added."""
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
    """Return the change that adds labelled rows, and removes rows beyond the limits."""
    bank, queries, names = fitted.bank_, read_queries(fitted, X), Names.of(X, y)
    times = times_given(fitted, queries, times)
    if groups is not None:
        if bank.groups is None:
            raise ValueError("groups need an estimator that was fitted with groups")
        if isinstance(groups, str):
            groups = column_named("groups", X, groups)
        groups = check_groups(groups, len(queries))
    elif not isinstance(X, Embedded):
        groups = fitted_input(fitted).blocks_of(X)
    if bank.time is None and (max_rows is not None or max_age is not None):
        name, value = ("max_rows", max_rows) if max_age is None else ("max_age", max_age)
        raise ValueError(f"{name} needs an estimator that was fitted with times, got {value!r}")
    if max_rows is not None:
        max_rows = check_integer("max_rows", max_rows)
    if max_age is not None:
        max_age = bank.time.length("max_age", max_age)
    weights = check_sample_weight(sample_weight, len(queries))
    if not weights.all():  # an ignored row would have a name
        row = int(weights.argmin())
        raise ValueError(f"sample_weight must be above 0 for added rows, got 0.0 in row {row}")
    targets = validate_targets(fitted, y, len(queries))
    if (factors := getattr(fitted, "_class_factors", None)) is not None:
        weights = weigh_values(factors, fitted.targets_, targets, weights)
    prior = log_prior(weights, bank.weight_unit, queries.embeddings.device)
    if bank.time is not None:
        prior = multiply(prior, bank.time.log_prior(times))
    rows, levels = Neighbors(queries.embeddings, targets, prior, times=times), None
    if bank.levels is not None and not isinstance(X, Embedded):
        levels = fitted_input(fitted).levels(X)
    read = None
    if bank.rule is not None:
        if isinstance(X, Embedded):
            raise ValueError("X must be a table where fit was given a rule, got embedded rows")
        read = bank.rule.read(X)

    def add(bank: NeighborBank) -> NeighborBank:
        if read is not None and bank.rule is not None:
            columns, compared = bank.rule.columns.with_rows(read)
            bank = replace(bank, rule=replace(bank.rule, columns=columns))
            rows.compared = compared.to(bank.device)
        added = bank.add(rows, names.row_labels, groups, levels, queries.inputs)
        is_bounded = max_rows is not None or max_age is not None
        return added.latest(max_rows, max_age) if is_bounded else added

    return add


def ids_and_names(ids: Any, names: Any) -> tuple[np.ndarray | None, list[Hashable] | None]:
    """Return the checked ids or names of rows, and None for what is not given."""
    if (ids is None) == (names is None):
        raise ValueError("exactly one of ids and names must be given")
    if ids is not None:
        return check_ids(ids), None
    # A string or a tuple is one name.
    several = np.iterable(names) and not isinstance(names, str | bytes | tuple)
    names = list(names) if several else [names]
    for name in names:
        if not isinstance(name, Hashable):
            raise ValueError(f"names must be labels of an index, got {name!r}")
    return None, names


def removal(ids: Any, names: Any) -> Change:
    """Return the change that removes rows, given by their ids or by their names."""
    ids, names = ids_and_names(ids, names)

    def remove(bank: NeighborBank) -> NeighborBank:
        own = bank.names_of(slice(None))
        removed = bank.positions(ids) if names is None else positions_of_names(own, names)
        removed = np.unique(removed)
        n_left = len(bank) - len(removed)
        check_some_left("ids" if names is None else "names", n_left, len(bank))
        return bank.without(removed)

    return remove


def replacement_of_targets(fitted: Any, y: Any) -> Change:
    """Return the change that sets new targets for the rows of the bank."""
    values = fitted.targets_.values(y)

    def set_targets(bank: NeighborBank) -> NeighborBank:
        if len(values) != len(bank):
            raise ValueError(f"y must have the bank's {len(bank)} rows, got shape {np.shape(y)}")
        targets = values.to(bank.targets.device)
        return fitted._calibrate(bank.with_targets(targets, target_names_of(y)))

    return set_targets


def compression(fitted: Any, n_neighbors: int, X: Any) -> Change:
    """Return the change that keeps the rows with most weight in the predictions of `X`."""
    queries = None if X is None else read_queries(fitted, X)

    def compress(bank: NeighborBank) -> NeighborBank:
        check_n_neighbors(n_neighbors, len(bank))
        # A row is its own neighbour here: queries similar to the row need it.
        evaluation = replace(bank.evaluate(fitted.network_.head, queries), exclusion=None)
        if queries is None:
            max_weights = evaluation.bounds(len(bank))
            n_pairs = WEIGHED_PAIRS if max_weights is None else SEARCHED_PAIRS
            order = np.random.RandomState(0).permutation(len(bank))
            evaluation = evaluation[order[: max(1, n_pairs // len(bank))]]
        return bank.in_order(np.sort(evaluation.representatives(int(n_neighbors))))

    return compress


def validate_targets(fitted: Any, y: Any, n_rows: int) -> Tensor:
    """Return the values of new rows' targets, with outputs in the order of the bank's."""
    bank = fitted.bank_
    values = values_of_new(fitted.targets_, y, n_rows, bank.target_names, bank.targets.shape[1:])
    return values.to(bank.targets.device)
