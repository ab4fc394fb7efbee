"""Fit as a recipe: take the data, build the networks, train and join them."""

from __future__ import annotations

import copy
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from torch import Tensor

from .._data.names import Names, names_of_new
from .._data.rows import Rows
from .._data.sample import Embedded, Sample, TableRows
from .._data.source import largest_entry
from .._data.splits import Split
from .._data.tables import column_named, exchange_column, labels_of_fit
from .._data.training_data import TrainingData, ValidationSet, naming_validation_set
from .._inference.bank import NeighborBank
from .._inference.network_trend import NetworkTrend
from .._inference.relations import shares_of_unknown
from .._inference.unknown_levels import UnknownLevels
from .._network.network import NeighborNetwork, average, embed
from .._training.ensemble import count_at_a_time, pace_of, train_networks
from .._training.loop import TrainingConfig
from .._training.progress import Budget, seconds_of
from .._trend.trend import Trend, values_at
from .._utils.random import local_seed
from .parameters import validate_parameters

#: Parameters on which the shapes of a network depend, or what its weights mean.
OF_NETWORKS = (
    *("feature_extractor", "hidden_layer_sizes", "embedding_dim", "numerical_embedding", "adjust"),
    *("similarity", "weighting", "softstep", "softstep_params", "softstep_on"),
    *("learn_feature_weights", "smoothing"),
)


TIMED_ROWS = 256  # of a feature extractor, they may take a second


class Fitted(NamedTuple):
    """What a fit leaves to be stored: its rows, their splits, and the validation set if any.

    `at_random` is whether the splits were drawn row by row. With `feature_weights`,
    (n_features,), neighbours are found among the features.
    """

    data: TrainingData
    splits: list[Split]
    validation: ValidationSet | None
    trend: Trend | None
    at_random: bool
    feature_weights: Tensor | None


def fit_networks(
    estimator: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    sample_weight: Any = None,
    times: Any = None,
    half_life: Any = None,
    validation_set: tuple = (None, None, None, False),
) -> Fitted:
    """Train the networks of an estimator, and set all that is fitted but the training rows."""
    validate_parameters(estimator)
    budget = Budget.from_now(estimator.max_time)
    architecture, targets = estimator._architecture(), estimator._make_targets()
    architecture.validate()
    source = architecture.input()
    if isinstance(groups, str):
        groups = column_named("groups", X, groups)
    class_weight = getattr(estimator, "class_weight", None)
    validation, valid = ValidationSet.take(source, *validation_set), None
    weights = sample_weight, class_weight
    data = TrainingData.take(source, targets, X, y, groups, *weights, times, half_life)
    source.store(estimator)
    if validation is not None:
        _check_validation_set(estimator, validation, data)
        names = labels_of_fit(estimator) or ()
        valid = validation.encode(source, targets, data, names)
        _check_some_are_later(valid, data.sample)
    architecture.choose_space(data)
    random_state = check_random_state(estimator.random_state)
    of_data = {"loss": targets.loss, "window": data.window}
    config = replace(
        architecture.config(len(data)), **of_data, balanced=getattr(targets, "balanced", False)
    )
    n_jobs = getattr(estimator, "n_jobs", None)
    n_networks, budget = _within(budget, architecture, data.sample, targets, config, n_jobs)
    splits_itself = estimator.early_stopping and validation is None
    fraction: Any = estimator.validation_fraction if splits_itself else None
    if hasattr(fraction, "split"):
        fraction = fraction.split(*source.accept(X, y), groups)
    splits = data.splits(targets, n_networks, fraction, random_state)
    seeds = random_state.randint(2**31, size=n_networks)
    trend = architecture.fit_trend(data, targets, random_state)
    if trend is None:
        estimator.trend_ = None
    learned = architecture.trend_in_training(trend, data, targets)
    if learned is not None:
        ids = np.asarray(data.selection.indices)
        values = torch.from_numpy(learned.of_rows(ids, data.sample.X))
        data = replace(data, sample=_with_offset(data.sample, values, targets))
        if valid is not None:
            valid = _with_offset(valid, values_at(learned, valid.X, valid.times), targets)
    networks = _initial_networks(estimator, architecture, data.sample, targets, seeds, splits)
    if budget.ends:
        budget = budget.reserve(_seconds_to_embed(networks, data.sample.X))
    candidates = architecture.candidates(n_networks, len(data))
    trained = train_networks(
        *(networks, data.sample, splits, seeds, replace(config, n_neighbors=candidates)),
        *(budget, n_jobs),
        valid=valid,
    )
    networks = [network for network, _ in trained]
    for network in networks:
        in_units_of_targets(network.head, targets)
    estimator.network_ = average(networks).freeze()
    estimator.targets_ = targets
    numbers = data.selection.indices
    estimator.validation_indices_ = [
        None if split.valid is None else numbers[split.valid] for split in splits
    ]
    estimator.history_ = [
        {"estimator": i, **epoch} for i, (_, epochs) in enumerate(trained) for epoch in epochs
    ]
    estimator.n_iter_ = len(estimator.history_)
    if hasattr(estimator, "class_weight"):
        estimator._class_factors = data.class_factors
    at_random = isinstance(fraction, Real) and groups is None and times is None
    weights = architecture.feature_weights(trend, data, targets)
    return Fitted(data, splits, validation, trend, at_random, weights)


def _with_offset(sample: Sample, values: Tensor, targets: Any) -> Sample:
    """A sample with a trend, whose values at its rows are (n, n_outputs)."""
    return replace(sample, offset=targets.encode(values.reshape(sample.y.shape)))


def _within(
    budget: Budget,
    architecture: Any,
    sample: Sample,
    targets: Any,
    config: TrainingConfig,
    n_jobs: int | None,
) -> tuple[int, Budget]:
    """Number of networks that have enough time, and the time without what follows training.

    One network is tried for that; an extractor's epochs are too long to be tried.
    """
    n_networks = architecture.n_networks(len(sample))
    if not budget.ends or config.extractor is not None:
        return n_networks, budget
    k = architecture.n_neighbors_of_each(n_networks, len(sample))[0]
    with local_seed(0):
        network = architecture.build(sample, targets, k, slice(None))
    pace = pace_of(network, sample, config, n_jobs)
    budget = budget.reserve(pace.refinement, pace.refinement)
    if architecture.n_networks_set is None:
        n_at_a_time = count_at_a_time(config, n_jobs)
        n_networks = budget.n_affordable(n_networks, pace.epoch, n_at_a_time)
    return n_networks, budget


def _seconds_to_embed(networks: list[NeighborNetwork], X: Tensor | Rows) -> float:
    """How long the bank will take to embed after training, by some of its rows."""
    some, trained = X[:TIMED_ROWS], average(copy.deepcopy(networks)).freeze()
    return seconds_of(embed, trained, some) / len(some) * len(X)


def _check_some_are_later(valid: Sample, train: Sample) -> None:
    """Refuse validation rows none of which has an earlier training row."""
    if valid.times is None or train.times is None:
        return
    if not (valid.times > train.times.amin()).any():
        raise ValueError("X_val must have rows that a row of X is earlier than, got none")


def _check_validation_set(estimator: Any, validation: ValidationSet, data: TrainingData) -> None:
    """Refuse a validation set where the parameters have no use for it."""
    if not estimator.early_stopping:
        raise ValueError("X_val needs early_stopping=True, got early_stopping=False")
    labels = Names.of(validation.X, validation.y).rows
    if validation.joins and labels is not None:
        taken, n_given = data.names.rows, data.selection.n_given
        numbers = np.arange(n_given, n_given + len(labels))
        with naming_validation_set():
            names_of_new(labels, numbers, () if taken is None else taken, taken is None)
    if validation.joins and data.time is not None and data.time.column is None:
        raise ValueError(
            "add_validation=True needs the times of X_val, got an array, which is of X: name a "
            "column as times, or add the rows by add_neighbors after fit"
        )


def _initial_networks(
    estimator: Any,
    architecture: Any,
    sample: Sample,
    targets: Any,
    seeds: Any,
    splits: list[Split],
) -> list[NeighborNetwork]:
    """Build the networks that training starts from, with the weights of an earlier fit if any."""
    goes_on = estimator.warm_start and hasattr(estimator, "network_")
    if goes_on:
        targets.check_same(estimator.targets_)
    networks = []
    numbers = architecture.n_neighbors_of_each(len(seeds), len(sample))
    for seed, split, k in zip(seeds, splits, numbers, strict=True):
        with local_seed(int(seed)):
            networks.append(architecture.build(sample, targets, k, split.train))
    if goes_on:
        _load_weights(average(networks), estimator)
    return networks


def in_units_of_targets(head: Any, targets: Any) -> None:
    """Set the bounds of a head, and its mean residual in units of the targets of the bank."""
    if (bounds := getattr(targets, "bounds", None)) is not None:
        head.bounds, head.whole = bounds, getattr(targets, "whole", False)
    if getattr(head, "shrinkage", 0):
        encoded = torch.tensor(head.mean_residual, dtype=torch.float64)
        center = targets.restore(torch.zeros_like(encoded)[None])[0]
        head.mean_residual = tuple((center + targets.unit * encoded).tolist())


def trained(fitted: Any) -> tuple[NeighborNetwork, NeighborBank]:
    """The networks that were trained, and the bank in their space, wherever rows are found."""
    bank = fitted.bank_
    if isinstance(bank.trend, NetworkTrend):
        return bank.trend.network, bank.trend.bank
    return fitted.network_, bank


def _load_weights(network: NeighborNetwork, estimator: Any) -> None:
    """Start from an earlier fit's weights, or name what has changed since."""
    earlier, _ = trained(estimator)
    found, needed = earlier.state_dict(), network.state_dict()
    shapes: dict = {
        name: [tuple(s[name].shape) if name in s else "missing" for s in (found, needed)]
        for name in found | needed
    }
    shapes["similarity"] = [  # which has no weights
        [head.similarity for head in each.modules() if hasattr(head, "similarity")]
        for each in (earlier, network)
    ]
    if changed := {name: pair for name, pair in shapes.items() if pair[0] != pair[1]}:
        name, (before, now) = next(iter(changed.items()))
        parameters = ", ".join(each for each in OF_NETWORKS if hasattr(estimator, each))
        raise ValueError(
            "warm_start=True needs the number of features (after encoding), of outputs and of "
            f"networks, and the parameters {parameters} as in the earlier fit: {name!r} was "
            f"{before}, and is {now} now. A category's new levels and a column's first gaps are "
            "new features"
        )
    network.load_state_dict(found, strict=False)


def embed_unknown(
    estimator: Any,
    network: NeighborNetwork,
    X: Any,
    column: int,
    rows: slice | np.ndarray = slice(None),
    rare: np.ndarray | None = None,
    table: Any = None,
) -> Embedded:
    """Embed some rows of an encoded table, as if a column's levels were unknown.

    `rare` are the numbers of the rows with a rare level, which others are encoded as. In the
    `table`, they have the level of another row: a model may refuse one that it does not know.
    """
    unknown = torch.from_numpy(estimator.features_.source_ == column)
    typical = X.mean(dim=0) if rare is None or len(rare) == 0 else X[rare[0]]
    encoded, given = torch.where(unknown, typical, X[rows]), None
    if table is not None:
        others = np.random.RandomState(0).permutation(len(X))
        given = exchange_column(table, np.arange(len(X))[rows], column, others[rows])
    return Embedded(embed(network, encoded), network, inputs=TableRows(encoded, given))


def unknown_levels(
    estimator: Any,
    network: NeighborNetwork,
    bank: NeighborBank,
    data: TrainingData,
    splits: list[Split],
) -> UnknownLevels | None:
    """What unknown levels add to distributions or probabilities of a network; None: nothing."""
    if data.levels is None:
        return None
    assert isinstance(data.sample.X, Tensor)  # a table
    X, levels, columns = data.sample.X, data.levels, estimator.features_.categories
    trend = bank.trend
    table = data.table if trend is not None and trend.takes_table else None

    def embed_rows(j: int, rows: np.ndarray) -> Embedded:
        rare = np.flatnonzero(levels[:, j] < 0)
        return embed_unknown(estimator, network, X, columns[j], rows, rare, table)

    shares = shares_of_unknown(network.head, bank, splits, levels, embed_rows)
    if not shares.any():
        return None
    return UnknownLevels.of(shares, bank.neighbors, is_classifier(estimator))


def embed_queries(fitted: Any, given: Any, encoded: Tensor | Rows) -> Embedded:
    """Embed as :func:`embed`, and refuse rows too far away to be compared."""
    embeddings = embed(fitted.network_, encoded)
    largest = embeddings.abs().amax() if len(embeddings) else 0.0
    if not largest <= largest_entry(embeddings):
        raise ValueError(
            "Input X contains a value too large for float32, or training diverged: distances "
            f"between embeddings with entries of {float(largest):g} overflow"
        )
    trend, inputs = fitted.bank_.trend, None
    if trend is not None:
        assert isinstance(encoded, Tensor)  # of a table
        inputs = TableRows(encoded, given if trend.takes_table else None)
    return Embedded(embeddings, fitted.network_, inputs=inputs)
