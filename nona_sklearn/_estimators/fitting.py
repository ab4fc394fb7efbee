"""Fit as a recipe: take the data, build the networks, train and join them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from .._data.rows import Rows
from .._data.splits import Split
from .._data.training_data import TrainingData
from .._network.network import NeighborNetwork, average
from .._training.ensemble import train_networks
from .._utils.chunks import EMBED_BLOCK, spans
from .._utils.random import local_seed
from .inputs import largest_entry

#: Parameters on which the shapes of a network depend, or what its weights mean.
OF_NETWORKS = (
    *("feature_extractor", "hidden_layer_sizes", "embedding_dim", "numerical_embedding", "adjust"),
    *("similarity", "weighting", "softstep", "softstep_params", "softstep_on"),
    *("learn_feature_weights", "smoothing"),
)


def fit_networks(
    estimator: Any, X: Any, y: Any, groups: Any, sample_weight: Any
) -> tuple[TrainingData, list[Split]]:
    """Train the networks of an estimator, and set all that is fitted but the training rows."""
    estimator._validate_params()
    architecture, targets = estimator._architecture(), estimator._make_targets()
    architecture.validate()
    config = architecture.config()
    class_weight = getattr(estimator, "class_weight", None)
    data = TrainingData.take(
        architecture.input(), targets, X, y, groups, sample_weight, class_weight
    )
    random_state = check_random_state(estimator.random_state)
    n_networks = architecture.n_networks(len(data))
    fraction = estimator.validation_fraction if estimator.early_stopping else None
    splits = data.splits(targets, n_networks, fraction, random_state)
    seeds = random_state.randint(2**31, size=n_networks)
    candidates = architecture.candidates(n_networks, len(data))
    of_data = {"loss": targets.loss, "n_neighbors": candidates}
    trained = train_networks(
        _initial_networks(estimator, architecture, data.sample.X, targets, seeds),
        *(data.sample, splits, seeds, replace(config, **of_data)),
        *(estimator.max_time, getattr(estimator, "n_jobs", None)),
    )
    networks = [network for network, _ in trained]
    for network in networks:
        _in_units_of_targets(network.head, targets)
    estimator.network_ = average(networks).freeze()
    estimator.targets_ = targets
    numbers = data.selection.numbers
    estimator.validation_indices_ = [
        None if valid is None else numbers[valid] for _, valid in splits
    ]
    estimator.history_ = [
        {"estimator": i, **epoch} for i, (_, epochs) in enumerate(trained) for epoch in epochs
    ]
    estimator.n_iter_ = len(estimator.history_)
    if hasattr(estimator, "class_weight"):
        estimator._class_factors = data.class_factors
    return data, splits


def _initial_networks(
    estimator: Any, architecture: Any, X: Tensor | Rows, targets: Any, seeds: Any
) -> list[NeighborNetwork]:
    """Build the networks that training starts from, with the weights of an earlier fit if any."""
    goes_on = estimator.warm_start and hasattr(estimator, "network_")
    if goes_on:
        targets.check_same(estimator.targets_)
    networks = []
    for seed, k in zip(seeds, architecture.n_neighbors_of_each(len(seeds), len(X)), strict=True):
        with local_seed(int(seed)):
            networks.append(architecture.build(X, targets, k))
    if goes_on:
        _load_weights(average(networks), estimator)
    return networks


def _in_units_of_targets(head: Any, targets: Any) -> None:
    """State a head's mean residual in units of the bank's targets, not of what it learned."""
    if getattr(head, "shrinkage", 0):
        encoded = torch.tensor(head.mean_residual, dtype=torch.float64)
        center = targets.restore(torch.zeros_like(encoded)[None])[0]
        head.mean_residual = tuple((center + targets.unit * encoded).tolist())


def _load_weights(network: NeighborNetwork, estimator: Any) -> None:
    """Start from an earlier fit's weights, or name what has changed since."""
    earlier = estimator.network_
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
    network.load_state_dict(found)


def warn_unless_converged(estimator: Any) -> None:
    """Warn the caller of fit where `max_iter` has ended the training of a network."""
    reasons = [epoch["stopped"] for epoch in estimator.history_ if "stopped" in epoch]
    if n_unfinished := reasons.count("max_iter"):
        patience = estimator._architecture().setting("n_iter_no_change")
        warnings.warn(
            f"Maximum iterations (max_iter={estimator.max_iter}) reached by {n_unfinished} of "
            f"{len(reasons)} networks, and the optimization hasn't converged yet: it has when "
            f"n_iter_no_change={patience} epochs bring no gain. Try a larger max_iter.",
            ConvergenceWarning,
            stacklevel=3,  # the caller of fit
        )


def embed(network: NeighborNetwork, X: Tensor | Rows) -> Tensor:
    """Embed the input of a network, shape (n, n_features) -> (n, d), as the bank stores it."""
    device = next(network.parameters()).device
    blocks = (X[rows].to(device, torch.float64) for rows in spans(len(X), EMBED_BLOCK))
    return torch.cat([network.embed(block).float() for block in blocks])


def embed_queries(network: NeighborNetwork, X: Tensor | Rows) -> Tensor:
    """Embed as :func:`embed`, and refuse rows too far away to be compared."""
    embeddings = embed(network, X)
    largest = embeddings.abs().amax() if len(embeddings) else 0.0
    if not largest <= largest_entry(embeddings):
        raise ValueError(
            "Input X contains a value too large for float32, or training diverged: distances "
            f"between embeddings with entries of {float(largest):g} overflow"
        )
    return embeddings
