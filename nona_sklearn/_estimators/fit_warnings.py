"""Warnings of fit: training has not converged, or related rows predict one another too well."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from .._data.columns import Column, read_columns, read_strings
from .._data.sample import Rows
from .._data.source import is_wide
from .._data.table_encoder import TableEncoder
from .._data.tables import as_dense, check_table
from .._inference.held_out import outputs_by_chance
from .._inference.relations import Relation, related_factor
from .._training.loop import most_are_in_vain
from .._utils.globe import COORDINATES, LIMITS, N_BLOCKS, block_centers, blocks_of, on_globe
from .queries import embed_unknown, trained

if TYPE_CHECKING:
    from .._data.training_data import TrainingData
    from .fitting import Training

#: Least number of values of identifiers, such as numbers of persons, and bounds of the mean number
#: of rows per value.
LEAST_VALUES, ROWS_OF_A_VALUE = 30, (2, 20)
LEAST_TWINS = 0.01  # least share of rows with an equal row
FAR_BETTER = 2.0  # near places are alike in many tables, and new ones may be near known ones
MOST_COLUMNS, MOST_ROWS = 5, 100_000  # in which relations are searched
#: A column is a lag of the targets if this share of a sample of rows holds an earlier target.
LEAST_LAGGED, LEAST_LAG_ROWS, N_LAG_ROWS, LARGEST_LAG = 0.8, 30, 200, 1000
LEAST_LAG_VALUES = 10  # distinct values in the sample: fewer may agree by chance
#: Largest rounding error of a lag, relative to its size and to the targets' spread.
ROUNDED, ROUNDED_SPREAD = 1e-6, 1e-3
CALLER_OF_FIT = 3  # the level of the stack


def warn_unless_converged(training: Training) -> None:
    """Warn the caller of fit if `max_iter` has ended the training of a network."""
    config = training.config
    reasons = [epoch["stopped"] for epoch in training.history if "stopped" in epoch]
    if n_unfinished := reasons.count("max_iter"):
        warnings.warn(
            f"Maximum iterations (max_iter={config.max_iter}) reached by {n_unfinished} of "
            f"{len(reasons)} networks, and the optimization hasn't converged yet: it has when "
            f"n_iter_no_change={config.n_iter_no_change} epochs bring no gain. Try a larger "
            "max_iter.",
            ConvergenceWarning,
            stacklevel=CALLER_OF_FIT,
        )


def warn_if_in_vain(estimator: Any, training: Training) -> None:
    """Warn the caller of fit if predictions of validation rows are no better than the mean."""
    mean = "frequencies of the classes" if is_classifier(estimator) else "mean of y"
    instead = " All predict it instead."
    network, bank = trained(estimator)
    by_chance = outputs_by_chance(network.head)
    if most_are_in_vain(training.history):
        n_in_vain = sum("in_vain" in epoch for epoch in training.history)
        problem = (
            f"{n_in_vain} of {len(training.splits)} networks predict validation rows no better "
            f"than the {mean}."
        )
        if not training.config.falls_back:
            instead = ""
        elif (offset := bank.neighbors.offset) is not None:
            instead += f" The share of the trend in predictions is {offset.share:.2f}."
    elif by_chance:
        problem = f"The networks predict validation rows no better than the {mean}, within chance"
        n_outputs = bank.neighbors.columns.shape[1]
        if len(by_chance) < n_outputs:
            names = estimator.target_names_ or [f"output {i}" for i in range(n_outputs)]
            problem += f", for {', '.join(names[i] for i in by_chance)}"
        problem += "."
    else:
        return
    warnings.warn(
        f"{problem}{instead} X may hold little information about y: try other features, more rows "
        "or a lower learning_rate_init.",
        UserWarning,
        stacklevel=CALLER_OF_FIT,
    )


def warn_of_relations(estimator: Any, X: Any, training: Training) -> None:
    """Warn the caller of fit, once, if related rows predict one another far better.

    After a random split, early stopping and calibration assume that new rows are related, too.
    """
    data = training.data
    if len(data) > MOST_ROWS:
        return
    columns: list[Column] = []
    if not isinstance(data.sample.X, Rows):
        table = check_table(estimator, X, reset=False, accept_sparse=True)
        if not is_wide(table):
            read = map(read_strings, read_columns(as_dense(table), ignored=data.ignored))
            columns = [column[data.selection.indices] for column in read]
    messages = chain(_of_lags(columns, data.values), _of_errors(columns, estimator, training))
    if (message := next(messages, None)) is not None:
        warnings.warn(message, UserWarning, stacklevel=CALLER_OF_FIT)


def _of_lags(columns: list[Column], values: Tensor) -> Iterator[str]:
    """Yield messages about columns that are lags of the targets, (n,) or (n, n_outputs)."""
    for output in values.reshape(len(values), -1).T.cpu():
        if _is_sorted(output):
            continue
        y, in_order = output.numpy(), output.sort().values.numpy()
        for column in columns:
            if (lag := _lag_of(column, y, in_order)) is not None:
                rows = "row" if lag == 1 else f"{lag} rows"
                yield (
                    f"The target of the {rows} before is in {column.label}, so that X is a time "
                    "series. If predictions are for later rows, pass times to fit: validation "
                    "rows drawn at random lie between training rows, and are easier to predict."
                )


def _of_errors(columns: list[Column], estimator: Any, training: Training) -> Iterator[str]:
    """Yield messages about relations that reduce the errors of validation rows."""
    network, bank = trained(estimator)
    data, encoder = training.data, training.architecture.encoder
    for relation, rows, remedy, column, least_factor in _candidates(columns, data):
        unrelated = None
        if isinstance(encoder, TableEncoder) and column is not None:
            X = data.sample.X
            assert isinstance(X, Tensor)
            if encoder.features_[column].by_targets:
                unrelated = embed_unknown(encoder, network, X, column).embeddings
        factor = related_factor(network.head, bank, training.splits, relation, unrelated)
        if factor is not None and factor >= least_factor:
            yield (
                f"{rows} predict each other better than other rows do: without them, the squared "
                f"error of validation rows is {factor:,.1f} times as large, and so may be that of "
                f"new rows. {remedy}"
            )


class Candidate(NamedTuple):
    """A relation that rows may have."""

    relation: Relation
    rows: str  # the related rows, in words
    remedy: str
    column: int | None = None  # the column that shows the relation
    least_factor: float = 1.0  # of the squared error without related rows


def _candidates(columns: list[Column], data: TrainingData) -> Iterator[Candidate]:
    """Yield relations that rows may have, the most specific first."""
    if isinstance(data.sample.X, Tensor):
        twins = np.unique(data.sample.X.cpu().numpy(), axis=0, return_inverse=True)[1].ravel()
        if np.mean(np.bincount(twins)[twins] > 1) >= LEAST_TWINS:
            yield Candidate(
                Relation(labels=twins),
                "Rows with equal features",
                "If new rows are not copies of these, drop copies, or pass groups to fit, with a "
                "group for each set of copies.",
            )
    yield from _of_places(columns)
    yield from islice(_of_columns(columns), MOST_COLUMNS)
    if _is_sorted(data.values):  # adjacent rows are then similar anyway
        return
    yield Candidate(
        Relation(ranks=np.arange(len(data))),
        "Rows that are next to each other in X",
        "If predictions are for later rows, pass times to fit; if they are for new groups of "
        "rows, such as other persons or places, pass groups.",
    )


def _of_places(columns: list[Column]) -> Iterator[Candidate]:
    """Yield the relation of rows of one block, if two columns have the names of coordinates."""
    named = {str(column.name).lower(): column for column in columns if column.kind == "number"}
    pair = [next((named[n] for n in names if n in named), None) for names in COORDINATES]
    latitude, longitude = pair
    if latitude is None or longitude is None:
        return
    degrees = latitude.values, longitude.values
    if any((abs(values) > limit).any() for values, limit in zip(degrees, LIMITS, strict=True)):
        return
    vectors = on_globe(*degrees)
    blocks = blocks_of(vectors, block_centers(vectors, N_BLOCKS))
    yield Candidate(
        Relation(labels=blocks),
        "Rows of near places",
        "If predictions are for new places, set "
        f"table_encoder__places={(latitude.name, longitude.name)}, and cross-validate with "
        "nona_sklearn.model_selection.SpatialKFold.",
        least_factor=FAR_BETTER,
    )


def _of_columns(columns: list[Column]) -> Iterator[Candidate]:
    for j, column in enumerate(columns):
        if column.kind == "date":
            yield Candidate(
                Relation(ranks=column.values.argsort(kind="stable").argsort(kind="stable")),
                f"Rows whose dates in {column.label} are next to each other",
                f"If predictions are for later rows, pass times={column.name!r} to fit.",
            )
        elif (labels := _identifiers(column)) is not None:
            yield Candidate(
                Relation(labels=labels),
                f"Rows with the same value in {column.label}",
                f"If predictions are for new values, pass X[{column.name!r}] as groups to fit.",
                j,
            )


def _lag_of(column: Column, y: np.ndarray, in_order: np.ndarray) -> int | None:
    """Return by how many rows a column lags behind the targets, (n,), or None."""
    if column.kind != "number":
        return None
    rows = np.unique(np.linspace(0, len(y) - 1, N_LAG_ROWS).astype(int))
    rows = rows[np.isfinite(column.values[rows])]
    values = column.values[rows]
    if len(np.unique(values)) < LEAST_LAG_VALUES:
        return None
    # Whether enough values are among the targets is quick to test, and excludes most columns.
    after = np.searchsorted(in_order, values).clip(max=len(in_order) - 1)
    nearest = abs(values - in_order[[after, np.maximum(after - 1, 0)]]).min(axis=0)
    n_equal = np.count_nonzero(nearest <= 2 * ROUNDED * abs(values))
    if n_equal < LEAST_LAGGED * LEAST_LAG_ROWS:
        return None
    lags = np.arange(1, min(LARGEST_LAG, len(y) // 2) + 1)
    before = rows[:, None] - lags
    rounding = np.minimum(ROUNDED * abs(y[before]), ROUNDED_SPREAD * np.ptp(y))
    same = (abs(values[:, None] - y[before]) <= rounding) & (before >= 0)
    counts = (before >= 0).sum(axis=0)
    shares = np.where(counts >= LEAST_LAG_ROWS, same.sum(axis=0) / np.maximum(counts, 1), 0)
    if not len(lags) or shares.max() < LEAST_LAGGED or np.median(shares) > LEAST_LAGGED / 2:
        return None
    return int(lags[shares.argmax()])


def _identifiers(column: Column) -> np.ndarray | None:
    """Return the labels of a column's values, (n,), if they may be identifiers, else None."""
    values = column.values
    if column.kind == "number" and np.array_equal(values, np.round(values)):
        labels = np.unique(values, return_inverse=True)[1]
    elif column.kind == "category":
        labels = np.unique(values.astype(str), return_inverse=True)[1]
    else:
        return None
    n_values = labels.max() + 1
    least, most = ROWS_OF_A_VALUE
    is_identifier = n_values >= LEAST_VALUES and least <= len(values) / n_values <= most
    return labels if is_identifier else None


def _is_sorted(values: Tensor) -> bool:
    """Return whether rows are sorted by a target or by their classes, (n,) or (n, c)."""
    steps = values.reshape(len(values), -1).diff(dim=0)
    rises, falls = (steps >= 0).all(dim=0), (steps <= 0).all(dim=0)
    return bool((rises ^ falls).any())  # a constant rises and falls
