"""Fit from top to bottom: :func:`train` trains networks, :func:`fit_bank` makes the bank."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from .._data.row_values import normalize_mean
from .._data.sample import Embedded, Sample, TableRows
from .._data.source import largest_entry
from .._data.table_encoder import TableEncoder
from .._data.table_encoding import TableEncoding
from .._data.tables import Names, check_table, column_named, labels_of_fit, names_of_new
from .._data.targets import ClassTargets
from .._data.training_data import VALIDATION_SET, TrainingData, ValidationSet, values_of_new
from .._inference.bank import NeighborBank
from .._inference.calibration import calibrate_on_held_out
from .._inference.held_out import (
    KEPT_BESIDE_NETWORKS,
    SHARE_OF_NETWORKS,
    Blend,
    Unseen,
    ValidationRows,
    converged_networks,
    fit_credibility,
    fit_share,
)
from .._inference.neighbors import LabelExclusion, Neighbors, Offset, RuleExclusion, UnknownLevels
from .._inference.network_trend import NetworkTrend, count_sources, with_drawn_sources
from .._inference.relations import rows_for_levels, shares_of_unknown
from .._network.network import NeighborNetwork, average, embed
from .._training.loop import (
    TrainingConfig,
    check_convergence,
    most_are_in_vain,
    pace_of,
    train_networks,
    workers,
)
from .._training.progress import Budget, seconds_of
from .._trend.additive_trend import AdditiveTrend
from .._trend.kernel_trend import PEAKS, KernelTrend, LeftOut, tell_rows_apart, weigh_features
from .._trend.model_trend import Classes, ModelTrend, Numbers
from .._trend.trend import ClassTrend, Trend
from .._utils.precision import EXACT, exact
from .._utils.random import local_seed
from .._utils.validation import is_whole, naming
from ..attention.head import NONAHead
from ..embedding import WeightedFeatures
from ..weighting import Triangular
from .parameters import FEATURES, validate_parameters
from .queries import check_rule, embed_rows, embed_unknown, trained

if TYPE_CHECKING:
    from .._data.splits import Split
    from .architectures import Architecture

#: Rows behind a prediction among the features, for numbers and for classes.
N_ROWS, N_ROWS_OF_CLASSES = 15, 20
#: Parameters on which the shapes or the meaning of a network's weights depend.
OF_NETWORKS = (
    *("feature_extractor", "hidden_layer_sizes", "embedding_dim", "numerical_embedding", "adjust"),
    *("similarity", "weighting", "softstep", "learn_feature_weights", "smoothing"),
)
TIMED_ROWS = 256  # for timing an embedding; a feature extractor may take a second
CHECKED = 32  # predictions that are checked for NaN after training
ROWS_OF_RULE = 2**10  # for which a rule must admit a row


@dataclass(frozen=True, eq=False)
class Training:
    """Trained networks, with the data and the settings of their training."""

    architecture: Architecture  # as resolved for the rows
    config: TrainingConfig
    targets: Any
    data: TrainingData
    splits: list[Split]  # one per network
    splits_at_random: bool  # whether single rows were drawn
    validation: ValidationSet | None  # as given
    valid: Sample | None  # the validation set, encoded
    trend: Trend | None  # beside the networks
    feature_weights: Tensor | None  # (n_features,), to find rows among the features
    network: NeighborNetwork  # the average of the networks
    history: list[dict]  # epochs of all networks, with the network's number as ``estimator``


def train(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    times: Any = None,
    eligibility: Any = None,
    X_val: Any = None,
    y_val: Any = None,
    sample_weight_val: Any = None,
    add_validation: bool = False,
) -> Training:
    """Train the networks of an estimator. The table encoder is fitted and set on the estimator."""
    validate_parameters(estimator)
    architecture, targets = estimator._architecture(), estimator._make_targets()
    architecture.validate()
    budget = Budget.from_now(architecture.options.max_time)
    n_jobs = getattr(estimator, "n_jobs", None)

    # Read the rows.
    source = architecture.input()
    if isinstance(groups, str):
        groups = column_named("groups", X, groups)
    validation = ValidationSet.take(source, X_val, y_val, sample_weight_val, add_validation)
    data = TrainingData.take(
        source,
        targets,
        X,
        y,
        groups=groups,
        sample_weight=sample_weight,
        class_weight=getattr(estimator, "class_weight", None),
        times=times,
        half_life=estimator.half_life,
        eligibility=check_rule(eligibility),
    )
    _check_eligible(data)
    source.store(estimator)
    valid = None
    if validation is not None:
        _check_joining(validation, data)
        valid = validation.encode(source, targets, data, labels_of_fit(estimator) or ())
        earlier = data.sample.times
        if earlier is not None and valid.times is not None and valid.times.max() <= earlier.min():
            raise ValueError("X_val must have rows that a row of X is earlier than, got none")

    # Choose the space, the trend and the number of networks.
    architecture = architecture.for_rows(data, getattr(estimator, "features_", None))
    random_state = check_random_state(estimator.random_state)
    config = replace(
        architecture.config(len(data)),
        loss=targets.loss,
        balanced=getattr(targets, "balanced", False),
        window=data.window,
    )
    if data.rule is not None and not architecture.among_features:
        config = replace(config, rule=data.rule.in_training)
    n_networks, budget, config = _within(
        budget, architecture, data.sample, targets, config, n_jobs
    )
    config = replace(config, n_neighbors=architecture.candidates(n_networks, len(data)))

    # Split the rows.
    fraction: Any = None if validation is not None else estimator.validation_fraction
    if hasattr(fraction, "split"):
        fraction = fraction.split(*source.accept(X, y), groups)
    splits = data.splits(targets, n_networks, fraction, random_state)
    seeds = random_state.randint(2**31, size=n_networks)

    # Fit the trend.
    verbose = int(estimator.verbose)
    trend = fit_trend(architecture.trend, data, targets, random_state, n_jobs, verbose)
    weights = feature_weights(trend, data) if architecture.among_features else None
    if weights is not None:  # the networks will be a trend
        config = replace(config, n_sources=count_sources(len(data)))

    # Train the networks.
    sample, valid_sample = data.sample, valid
    if architecture.learns_residuals and trend is not None:
        sample, valid_sample = _beside_additive(trend, data, targets, valid)
    networks = _initial_networks(estimator, architecture, sample, targets, seeds, splits)
    if budget.ends:
        some, network = sample.X[:TIMED_ROWS], average(copy.deepcopy(networks)).freeze()
        seconds = seconds_of(embed, network, some) / len(some) * len(sample.X)
        budget = budget.reserve(seconds)  # after the networks, all rows are embedded
    trained_networks = train_networks(
        networks, sample, splits, seeds, config, budget, n_jobs, valid=valid_sample
    )
    networks, history = [], []
    for i, (network, epochs) in enumerate(trained_networks):
        in_units_of_targets(network.head, targets)
        networks.append(network)
        history += [{"estimator": i, **epoch} for epoch in epochs]
    return Training(
        architecture=replace(architecture, among_features=weights is not None),
        config=config,
        targets=targets,
        data=data,
        splits=splits,
        splits_at_random=isinstance(fraction, Real) and data.groups is None and times is None,
        validation=validation,
        valid=valid,
        trend=trend,
        feature_weights=weights,
        network=average(networks).freeze(),
        history=history,
    )


def fit_bank(estimator: Any, training: Training) -> tuple[NeighborNetwork, NeighborBank]:
    """Return the network that embeds queries, and the bank.

    Rows that the networks did not train on decide the trend's share, credibility and calibration.
    """
    architecture, data, targets = training.architecture, training.data, training.targets
    network, config = training.network, training.config
    bank = _make_bank(training, estimator.algorithm)
    if training.feature_weights is not None:
        bank = with_drawn_sources(bank, network.head)
    ends = torch.stack(bank.embeddings.aminmax())  # NaN, if any is
    too_far = ends.abs() > largest_entry(bank.embeddings)  # distances would overflow
    check_convergence([ends.masked_fill(too_far, math.inf)], config)
    (evaluation,) = bank.evaluate(network.head, leave_out="group").without_isolated()
    some = evaluation[np.arange(min(CHECKED, len(evaluation)))]
    check_convergence([some.mean()], config)
    unseen = _unseen_rows(estimator, training, network, bank)

    # Fit the trend's share on rows that the networks did not train on.
    deviation: dict[str, Any] = {}
    if config.falls_back and most_are_in_vain(training.history):
        # The networks predict the mean, so that the rows alone decide the share.
        deviation["deviation"] = math.inf
    if bank.trend is not None:
        blend = replace(architecture.blend, **deviation)
        bank = fit_share(blend, network.head, bank, unseen)
    if not architecture.classifies:
        judged = converged_networks(training.history, bank.trend is not None)
        columns = targets.without_outliers(bank.neighbors.columns.cpu().numpy())
        learned = torch.from_numpy(columns).to(bank.targets)
        fit_credibility(network.head, bank, unseen, judged, learned)

    # Find rows among the features; the networks become their trend.
    if training.feature_weights is not None:
        blend = SHARE_OF_NETWORKS if architecture.classifies else KEPT_BESIDE_NETWORKS
        blend = replace(blend, **deviation)
        network, bank = find_among_features(training, bank, estimator.n_neighbors, blend)
        unseen = _unseen_rows(estimator, training, network, bank)
        bank = fit_share(blend, network.head, bank, unseen)
    if not architecture.classifies:
        chosen = estimator.n_neighbors == "auto"
        calibration = calibrate_on_held_out(network.head, bank, unseen, chosen)
        bank = replace(bank, calibration=calibration)
    if data.levels is not None:
        bank = replace(bank, unknown_levels=_unknown_levels(training, bank))
    return network, bank


def set_fitted(estimator: Any, training: Training, network: NeighborNetwork) -> None:
    """Set the fitted attributes of an estimator except the bank."""
    architecture, trend, data = training.architecture, training.trend, training.data
    indices = data.selection.indices
    estimator.network_ = network
    estimator.targets_ = training.targets
    estimator.trend_ = None if trend is None else architecture.trend
    if trend is not None and not isinstance(architecture.trend, str):
        model_trend: Any = getattr(trend, "trend", trend)  # inside a trend of classes
        estimator.trend_ = model_trend.functions[-1]
    estimator.similarity_ = FEATURES if architecture.among_features else architecture.similarity
    estimator.validation_indices_ = [
        None if split.valid is None else indices[split.valid] for split in training.splits
    ]
    estimator.history_ = training.history
    estimator.n_iter_ = len(training.history)
    if hasattr(estimator, "class_weight"):
        estimator._class_factors = data.class_factors


# -- the rows ----------------------------------------------------------------------------------


def _check_joining(validation: ValidationSet, data: TrainingData) -> None:
    """Raise if the names or the times do not allow the validation rows to join the bank."""
    labels = Names.of(validation.X, validation.y).row_labels
    if validation.joins and labels is not None:
        taken, n_given = data.names.row_labels, data.selection.n_given
        ids = np.arange(n_given, n_given + len(labels))
        with naming(VALIDATION_SET):
            names_of_new(labels, ids, () if taken is None else taken, taken is None)
    if validation.joins and data.time is not None and data.time.column is None:
        raise ValueError(
            "add_validation=True needs the times of X_val, got an array, which is of X: name a "
            "column as times, or add the rows by add_neighbors after fit"
        )


def _check_eligible(data: TrainingData) -> None:
    """Raise if a rule leaves no row a neighbour."""
    if data.rule is None:
        return
    compared = data.sample.compared
    assert compared is not None
    numbers = torch.arange(len(data))
    some = torch.linspace(0, len(data) - 1, min(len(data), ROWS_OF_RULE)).long()
    itself = LabelExclusion(numbers[some], numbers)
    if RuleExclusion(data.rule, compared[some], compared, itself).isolated().all():
        raise ValueError(
            f"eligibility must admit a row for some rows of X, got {data.rule.rule!r}, which "
            f"admits none for {len(some)} rows"
        )


# -- the trend ---------------------------------------------------------------------------------


def fit_trend(
    choice: Any,
    data: TrainingData,
    targets: Any,
    random_state: np.random.RandomState,
    n_jobs: int | None,
    verbose: int,
) -> Trend | None:
    """Return a fitted trend, by its name or from a model, or None if it cannot be fitted."""
    ids, weights = np.asarray(data.selection.indices), data.log_prior
    trend: Trend | None = None
    if isinstance(choice, str):
        trend = _fit_named(choice, data, targets)
    elif choice is not None:
        y: Any = data.values.reshape(len(data), -1)
        answers: Numbers | Classes = Numbers(y.shape[1])
        if isinstance(targets, ClassTargets):
            y, answers = targets.decode(y), Classes(targets.classes)
        times = data.sample.times
        trend = ModelTrend.fit(
            choice,
            answers,
            ids,
            data.table,
            np.asarray(y).reshape(len(data), -1),
            None if weights is None else data.selection.unit * exact(weights).exp().numpy(),
            data.groups,
            None if times is None else times.numpy(),
            random_state.randint(2**31),
            n_jobs,
            verbose,
            data.ignored,
        )
    if trend is None or not isinstance(targets, ClassTargets):
        return trend
    X, y, left_out = _encoded(data)
    rows = TableRows(torch.from_numpy(X))
    return ClassTrend.fit(trend, ids, rows, y, left_out.weights, targets.sizes)


def _beside_additive(
    trend: Trend, data: TrainingData, targets: Any, valid: Sample | None
) -> tuple[Sample, Sample | None]:
    """Return training and validation rows whose residuals of an additive trend are learned.

    Residuals of a more flexible trend contradict one another at near rows.
    """
    additive: Trend | None = trend
    if not isinstance(trend, AdditiveTrend):
        additive = _fit_named("additive", data, targets)
    if additive is None:
        return data.sample, valid

    def with_offset(sample: Sample, values: Tensor) -> Sample:
        return replace(sample, offset=targets.encode(values.reshape(sample.y.shape)))

    ids = np.asarray(data.selection.indices)
    sample = with_offset(data.sample, torch.from_numpy(additive.of_rows(ids, None)))
    if valid is None:
        return sample, None
    rows: Any = TableRows(valid.X)  # type: ignore[arg-type]  # of a table
    if valid.times is None:
        return sample, with_offset(valid, additive(rows))
    return sample, with_offset(valid, additive.from_earlier(rows, valid.times))


def _fit_named(name: str, data: TrainingData, targets: Any) -> Trend | None:
    """Return the additive trend or the kernel, fitted to the encoded features."""
    X, y, rows = _encoded(data)
    center = targets.restore(torch.zeros(1, y.shape[1], dtype=EXACT))[0]
    center, unit = (exact(numbers.reshape(-1)).numpy() for numbers in (center, targets.unit))
    ids = np.asarray(data.selection.indices)
    if name == "additive":
        return AdditiveTrend.fit(ids, X, y, rows, center, unit)
    # For one-hot rows, a kernel with a peak has a higher log loss on most tables.
    peaks = (0.0,) if isinstance(targets, ClassTargets) else PEAKS
    return KernelTrend.fit(ids, X, y, rows, center, unit, peaks)


def _encoded(data: TrainingData) -> tuple[np.ndarray, np.ndarray, LeftOut]:
    """Return features (n, n_features), targets (n, n_outputs), and related rows with weights."""
    sample, prior = data.sample, data.log_prior
    assert isinstance(sample.X, Tensor)  # only a table has a trend
    rows = LeftOut(
        np.ones(len(data)) if prior is None else exact(normalize_mean(prior)).numpy(),
        data.groups,
        None if sample.times is None else sample.times.numpy(),
    )
    return sample.X.numpy(), exact(sample.y.reshape(len(data), -1)).numpy(), rows


def feature_weights(trend: Trend | None, data: TrainingData) -> Tensor | None:
    """Return a kernel's weights of the features, (n_features,), or None if all rows stay alike."""
    of_targets = trend.trend if isinstance(trend, ClassTrend) else trend
    X, y, rows = _encoded(data)
    if isinstance(of_targets, KernelTrend):
        weights = of_targets.kernel.mean_weights
    else:
        weights = weigh_features(X, y, rows).mean_weights
    assert weights is not None  # the kernel is fitted
    return torch.from_numpy(weights) if tell_rows_apart(weights, X) else None


# -- the networks ------------------------------------------------------------------------------


def _within(
    budget: Budget,
    architecture: Architecture,
    sample: Sample,
    targets: Any,
    config: TrainingConfig,
    n_jobs: int | None,
) -> tuple[int, Budget, TrainingConfig]:
    """Return the number of networks for the time limit, the time for training, and the epochs.

    A trial network is timed, except with a feature extractor, whose epochs are too long.
    """
    n_networks = architecture.n_networks(len(sample))
    if not budget.ends or config.extractor is not None:
        return n_networks, budget, config
    k = architecture.n_neighbors_of_networks(n_networks, len(sample))[0]
    with local_seed(0):
        network = architecture.build(sample, targets, k, slice(None))
    pace = pace_of(network, sample, config, n_jobs)
    budget = budget.reserve(pace.refinement, pace.refinement)
    if architecture.n_networks_set is None:
        _, n_at_a_time = workers(config, n_jobs)
        n_networks = budget.n_affordable(n_networks, pace.epoch, n_at_a_time)
    if config.n_scheduled is not None:  # so that the learning rate decreases within the time
        n_epochs = int(budget.left() / (n_networks * pace.epoch))
        config = replace(config, n_scheduled=min(max(n_epochs, 1), config.n_scheduled))
    return n_networks, budget, config


def _initial_networks(
    estimator: Any,
    architecture: Architecture,
    sample: Sample,
    targets: Any,
    seeds: Any,
    splits: list[Split],
) -> list[NeighborNetwork]:
    """Return the untrained networks, or networks with earlier weights after a warm start."""
    goes_on = estimator.warm_start and hasattr(estimator, "network_")
    if goes_on:
        targets.check_same(estimator.targets_)
    networks = []
    n_neighbors = architecture.n_neighbors_of_networks(len(seeds), len(sample))
    for seed, split, k in zip(seeds, splits, n_neighbors, strict=True):
        with local_seed(int(seed)):
            networks.append(architecture.build(sample, targets, k, split.train))
    if goes_on:
        _load_weights(average(networks), estimator)
    return networks


def _load_weights(network: NeighborNetwork, estimator: Any) -> None:
    """Load the weights of an earlier fit, or raise an error that names a difference."""
    shapes: list[dict] = []
    for one in (trained(estimator)[0], network):
        shapes.append({name: tuple(weight.shape) for name, weight in one.state_dict().items()})
        heads = [head for head in one.modules() if hasattr(head, "similarity")]
        for name in ("similarity", "weighting", "step"):  # on which the weights' meaning depends
            shapes[-1][name] = [str(getattr(head, name)) for head in heads]
    for name in shapes[1] | shapes[0]:  # of a new layer, the weights are named first
        before, now = (of_one.get(name, "missing") for of_one in shapes)
        if before != now:
            parameters = ", ".join(name for name in OF_NETWORKS if hasattr(estimator, name))
            raise ValueError(
                "warm_start=True needs the number of features (after encoding), of outputs and "
                f"of networks, and the parameters {parameters} as in the earlier fit: {name!r} "
                f"was {before}, and is {now} now. A category's new levels and a column's first "
                "gaps are new features"
            )
    network.load_state_dict(trained(estimator)[0].state_dict(), strict=False)


def in_units_of_targets(head: Any, targets: Any) -> None:
    """Set the bounds of a head, and convert its mean residual to the units of the targets."""
    if (bounds := getattr(targets, "bounds", None)) is not None:
        head.bounds, head.whole = bounds, getattr(targets, "whole", False)
    if getattr(head, "shrinkage", 0):
        encoded = torch.tensor(head.mean_residual, dtype=EXACT)
        center = targets.restore(torch.zeros_like(encoded)[None])[0]
        head.mean_residual = tuple((center + targets.unit * encoded).tolist())


# -- the bank ----------------------------------------------------------------------------------


def _make_bank(training: Training, algorithm: Any) -> NeighborBank:
    """Return the bank of all training rows in the space of the networks, with the trend."""
    data, trend, X = training.data, training.trend, training.data.sample.X
    embeddings = embed(training.network, X)
    device, selection, prior = embeddings.device, data.selection, data.log_prior
    groups, times = data.groups, data.sample.times
    compared = None if data.sample.compared is None else data.sample.compared.to(device)
    offset, inputs = None, None
    if trend is not None:
        assert isinstance(X, Tensor)  # a table
        values = trend.of_rows(np.asarray(selection.indices), TableRows(X))
        blend = training.architecture.blend
        offset = Offset(torch.from_numpy(values).to(device), blend.share, blend.kept)
        inputs = X if trend.is_solved else None
    neighbors = Neighbors(
        embeddings,
        data.values.to(device),
        log_prior=None if prior is None else prior.to(device),
        adjustment_scale=training.targets.unit.to(device),
        algorithm=algorithm,
        times=None if times is None else times.to(device),
        compared=compared,
        offset=offset,
    )
    return NeighborBank(
        neighbors,
        # In a trend, all rows are neighbours of a network.
        rule=None if training.feature_weights is not None else data.rule,
        trend=trend,
        input_rows=inputs,
        ids=torch.as_tensor(selection.indices, device=device),
        next_id=torch.tensor(selection.n_given),
        groups=None if groups is None else torch.from_numpy(groups).to(device),
        names=data.names.row_labels,
        numbered=data.names.row_labels is None,
        target_names=data.names.targets,
        weight_unit=selection.unit,
        time=data.time,
        group_names=data.group_names,
        levels=None if data.levels is None else torch.from_numpy(data.levels),
    )


def _unseen_rows(
    estimator: Any, training: Training, network: NeighborNetwork, bank: NeighborBank
) -> Unseen:
    """Return the embedded validation set or, without one, the splits."""
    validation, valid, data = training.validation, training.valid, training.data
    if validation is None or valid is None:
        return training.splits
    given = None
    if bank.trend is not None and bank.trend.takes_table:
        given = check_table(estimator, validation.X, reset=False, accept_sparse=True)
    queries = embed_rows(network, bank.trend, given, valid.X)
    if valid.times is not None:
        queries = replace(queries, times=valid.times.to(bank.device))
    if valid.compared is not None:
        assert data.rule is not None
        compared = valid.compared.to(bank.device)
        queries = replace(queries, compared=compared, columns=data.rule.columns)
    shape = data.values.shape[1:]
    truth = values_of_new(training.targets, validation.y, len(valid), data.names.targets, shape)
    truth = truth.to(bank.targets.device)
    weights = validation.weights(training.targets, truth, data.class_factors)
    return ValidationRows(queries, truth, weights)


def find_among_features(
    training: Training, bank: NeighborBank, n_neighbors: Any, blend: Blend
) -> tuple[NeighborNetwork, NeighborBank]:
    """Return the network that weights the features, and a bank in their l1 distance.

    The trained network and the given bank become the trend.
    """
    network, X, weights = training.network, training.data.sample.X, training.feature_weights
    assert isinstance(X, Tensor)  # a table
    assert weights is not None
    for module in network.head.modules():
        if isinstance(module, NONAHead):
            module.bounds = None  # bounds hold for adjusted targets, not for the trend
    inner_bank = replace(
        bank, names=None, numbered=True, target_names=None, levels=None, input_rows=X
    )
    trend = NetworkTrend.from_bank(network, inner_bank)
    assert trend.left_out is not None
    k = N_ROWS_OF_CLASSES if training.architecture.classifies else N_ROWS
    if is_whole(n_neighbors, 1):
        k = int(n_neighbors)
    head = training.targets.make_head("l1", None, Triangular(k + 1))
    in_units_of_targets(head, training.targets)
    device = bank.device
    weighted = NeighborNetwork(WeightedFeatures(weights), head).to(device).freeze()
    assert trend.left_out is not None
    neighbors = replace(
        bank.neighbors,
        rows=embed(weighted, X),
        offset=Offset(trend.left_out, blend.share, blend.kept),
    )
    rule = training.data.rule
    return weighted, replace(
        bank, neighbors=neighbors, trend=trend, input_rows=X, rule=rule, sources=None
    )


def _unknown_levels(training: Training, bank: NeighborBank) -> UnknownLevels | None:
    """Return the effect of unknown levels on distributions or probabilities, or None.

    The effect is measured in the space of the trained networks.
    """
    network, calibration, data = training.network, bank.calibration, training.data
    if bank.trend is not None and bank.trend.networks is not None:
        _, bank = bank.trend.networks
        bank = replace(bank, calibration=calibration, sources=None)
    X, levels, encoder = data.sample.X, data.levels, training.architecture.encoder
    assert isinstance(X, Tensor)
    assert levels is not None
    assert isinstance(encoder, TableEncoder)  # which has levels
    table = data.table if bank.trend is not None and bank.trend.takes_table else None
    rows = rows_for_levels(bank, training.splits)
    queries: list[Embedded | None] = []
    for column, of_rows in zip(TableEncoding.of(encoder).categories, levels.T, strict=True):
        if len(np.unique(of_rows)) < 2:
            queries.append(None)
            continue
        rare = np.flatnonzero(of_rows < 0)
        queries.append(embed_unknown(encoder, network, X, column, rows, rare, table))
    shares = shares_of_unknown(network.head, bank, rows, levels, queries)
    if not shares.any():
        return None
    return UnknownLevels.from_shares(shares, bank.neighbors, training.architecture.classifies)
