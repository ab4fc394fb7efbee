"""Estimators that train an average of networks: fit as a template, and what it needs."""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from joblib import delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import (
    _safe_indexing,
    check_array,
    check_random_state,
)
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import Tensor

from .._data.embedded import Embedded
from .._data.names import Names, labels_of
from .._data.rows import Rows
from .._data.sample_weight import RowSelection
from .._data.scaler import SmoothClipScaler
from .._data.table_encoder import TableEncoder
from .._data.tables import check_table, rows_of
from .._data.targets import Split, Targets, check_lengths, refuse_tiny_spread
from .._network.network import NeighborNetwork, average
from .._network.state import from_data, to_data
from .._training.budget import Budget
from .._training.callbacks import ReportEpochs
from .._training.parallel import CountedParallel, train_in_threads
from .._training.pools import NEIGHBOR_POOLS
from .._training.progress import Progress
from .._training.trainer import train_network
from .._utils.chunks import EMBED_BLOCK, spans
from .._utils.docs import Documented
from .._utils.random import local_seed, plain_torch
from .._utils.snapshots import EDITING, replaced_when_done, snapshot
from .._utils.validation import is_missing, is_whole, unmasked
from ..embedding import ACTIVATIONS, MLPEmbedding
from ..similarity import SIMILARITIES
from ..weighting import WEIGHTINGS, Weighting

MOST = 2**62  # of a number that others keep in 64 bits


class NetworkEstimator(
    Documented,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
    metaclass=ABCMeta,
):
    """Train an average of networks on rows and targets; embed rows by it.

    What stands on it says what a network is (:meth:`_make_network`), what targets are
    (:meth:`_make_targets`), and what is kept of the training rows (:meth:`_remember`).
    """

    _parameter_constraints: dict = {
        "categorical_features": TableEncoder._parameter_constraints["categorical_features"],
        "similarity": [StrOptions(SIMILARITIES.keys())],
        "weighting": [StrOptions(WEIGHTINGS.keys()), Weighting],
        "softstep_params": [StrOptions({"global", "pointwise"})],
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(ACTIVATIONS.keys())],
        "neighbor_pool": [StrOptions(NEIGHBOR_POOLS.keys())],
        "pool_size": [Interval(Integral, 2, None, closed="left")],
        "batch_size": [Interval(Integral, 2, MOST, closed="both"), StrOptions({"auto"})],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_time": [Interval(Real, 0, MOST, closed="right"), None],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "device": [str, torch.device],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    # -- what stands on it says ----------------------------------------------------------

    @abstractmethod
    def _make_network(self, X: Any, targets: Targets) -> NeighborNetwork:
        """Build an untrained network for training rows `X` and what `y` is."""

    @abstractmethod
    def _make_targets(self) -> Targets:
        """Say what y is."""

    def _weigh(self, X, y, sample_weight):
        """Say how much each row counts, (n,); None: all alike."""
        return sample_weight

    def _make_scaler(self):
        """Build what scales the features before the embedding; None leaves them alone."""
        return SmoothClipScaler()

    @abstractmethod
    def _remember(
        self, X, values: Tensor, groups, splits: list[Split], names: Names, given: RowSelection
    ) -> None:
        """Keep what is asked later of the training rows, when the network is trained."""

    @abstractmethod
    def _training_embeddings(self) -> Tensor:
        """Give the embedded training rows, (n, d)."""

    def _count_networks(self, n_samples: int) -> int:
        """How many networks to train."""
        return 1

    def _setting(self, name: str) -> Any:
        """Look up a parameter, of which some may say 'auto'."""
        return getattr(self, name)

    def _choose_pool(self) -> str:
        """Who the neighbours of a training step are."""
        return self.neighbor_pool

    def _training_options(self) -> dict:
        """Further arguments of :func:`train_network`."""
        return {}

    def _make_mlp(self, n_features: int, n_outputs: int, **kwargs) -> MLPEmbedding:
        """Build the learned embedding from the parameters that all have."""
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object)).tolist()
        if not all(is_whole(size, 1) for size in sizes):
            raise ValueError(
                f"hidden_layer_sizes must be positive integers, got {self.hidden_layer_sizes!r}"
            )
        return MLPEmbedding(n_features, n_outputs, sizes, self.activation, **kwargs)

    # -- fitting -------------------------------------------------------------------------

    def fit(self, X, y, *, groups=None, sample_weight=None):
        """Train the network and store the embedded training rows as the bank.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training features.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        groups : array-like of shape (n_samples,), default=None
            Rows that belong together, such as moments of one simulation or sentences of one
            text, when predictions are for new groups. In training no row is a neighbour of its
            own group, and a group is all training or all validation. None: each row by itself.
        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts, in the losses and as a neighbour: a row of weight 2 as
            two. A row of weight 0 is as good as absent: it does not join the bank, and the
            others are still called by their numbers in `X`. The features' scale does not mind
            weights. None: all count alike, as they do if all weights are equal.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter, `X`, `y`, `groups` or `sample_weight` is invalid, or if training
            diverges.

        Notes
        -----
        A fit that fails or is interrupted leaves the estimator as it was before the call. Until it
        ends, other threads get the answers of the earlier fit.
        """
        with replaced_when_done(self, EDITING.held()) as fitted, plain_torch():
            fitted._fit(X, y, groups, sample_weight)
        return self

    def _fit(self, X, y, groups, sample_weight):
        self._validate_params()
        options = {"neighbor_pool": self._choose_pool(), **self._training_options()}
        device = self._find_device()
        names = Names.of(X, y)
        given = None
        sample_weight = self._weigh(X, y, sample_weight)
        if sample_weight is not None:
            X = self._as_rows(X)
            given = RowSelection.from_sample_weight(sample_weight, _num_samples(X))
            X, y = _select_rows(X, y, given)
            names = names[given.numbers]
        X, y, scaler = self._take_training_data(X, y)
        given = given or RowSelection(len(X), np.arange(len(X)))
        targets = self._make_targets()
        y = targets.check(y, given.numbers)
        targets.fit(y, given.weights)
        options["loss"] = targets.loss
        values = targets.values(y)
        encoded = targets.encode(values)
        random_state = check_random_state(self.random_state)
        n_networks = self._count_networks(len(X))
        groups = _check_groups(groups, given)
        splits: list[Split] = [(np.arange(len(X)), None)] * n_networks
        if self.early_stopping:
            splits = targets.split(
                values, groups, n_networks, self.validation_fraction, random_state
            )
        seeds = random_state.randint(2**31, size=n_networks)

        networks = self._initial_networks(X, targets, seeds)
        rows = (X, encoded, groups, given.log_prior)
        trained = self._train_all(networks, rows, splits, seeds, device=device, options=options)

        self.network_ = average([network for network, _ in trained]).freeze()
        self.scaler_ = scaler
        self.targets_ = targets
        self.validation_indices_ = [
            None if valid is None else given.numbers[valid] for _, valid in splits
        ]
        self._remember(X, values, groups, splits, names, given)
        self.history_ = [
            {"estimator": i, **epoch} for i, (_, epochs) in enumerate(trained) for epoch in epochs
        ]
        self.n_iter_ = len(self.history_)
        self._warn_unless_converged()

    @property
    def n_estimators_(self):
        """Number of networks."""
        return len({epoch["estimator"] for epoch in self.history_})

    @property
    def best_loss_(self):
        """Mean loss of the epochs whose weights were kept."""
        losses = [e.get("valid_loss", e["train_loss"]) for e in self.history_ if "kept" in e]
        return float(np.mean(losses)) if losses else float("nan")  # of a file of an early version

    def _take_training_data(self, X, y):
        """Validate training rows: (rows for the network, targets as given, features' scaler)."""
        X = check_table(self, X, reset=True, ensure_min_samples=2)
        encoder = TableEncoder(self.categorical_features)
        self.features_ = encoder.set_output(transform="default")  # arrays, whatever is configured
        X = self.features_.fit_transform(X)
        scaler = _fit_scaler(self._make_scaler(), X, self.features_.label_of)
        return _to_tensor(X, scaler), y, scaler

    def _as_rows(self, X):
        """Give training features a form whose rows can be counted and selected."""
        return X

    def _find_device(self):
        return _resolve_device(self.device)

    def _initial_networks(self, X, targets, seeds):
        """Build the networks that training starts from: new ones, or the earlier fit's."""
        networks = []
        for seed in seeds:
            with local_seed(int(seed)):
                networks.append(self._make_network(X, targets))
        if self.warm_start and hasattr(self, "network_"):
            self._go_on_from(self.network_, average(networks))
        return networks

    def _go_on_from(self, earlier, network):
        """Start from an earlier fit's weights, or say what has changed since."""
        found, needed = earlier.state_dict(), network.state_dict()
        shapes = {
            name: [
                tuple(state[name].shape) if name in state else None for state in (found, needed)
            ]
            for name in found | needed
        }
        if changed := {name: pair for name, pair in shapes.items() if pair[0] != pair[1]}:
            name, (before, now) = next(iter(changed.items()))
            raise ValueError(
                "warm_start=True needs the number of features (after encoding), of outputs and of "
                "networks, and the network's parameters of the earlier fit: "
                f"{name!r} had shape {before}, and has {now} now. A category's new levels and a "
                "column's first gaps are new features"
            )
        network.load_state_dict(found)

    def _train_all(self, networks, rows, splits, seeds, *, device, **kwargs):
        """Train networks, as many at a time as `n_jobs` says, or in threads: with histories."""
        n_jobs, n_threads = getattr(self, "n_jobs", None), torch.get_num_threads()
        n_workers = effective_n_jobs(n_jobs)
        # Tensors of a step are too small to share among torch's threads.
        in_threads = n_workers == 1 and n_threads > 1 and self._trains_in_threads(device)
        n_at_a_time = len(networks) if in_threads else n_workers
        if (
            n_workers > 1
            and getattr(get_active_backend()[0], "uses_threads", False)
            and self._trains_alone()
        ):
            n_at_a_time = 1
        budget = Budget.from_now(self.max_time, len(networks), n_at_a_time)
        with Progress(budget, self.max_iter, self._shows_progress()) as progress:
            trainings = [
                partial(
                    self._train,
                    *(network, *rows, split, i),
                    budget=budget,
                    report=ReportEpochs(progress, i),
                    seed=int(seed),
                    device=device,
                    **kwargs,
                )
                for i, (network, split, seed) in enumerate(
                    zip(networks, splits, seeds, strict=True)
                )
            ]
            if in_threads:
                return train_in_threads(
                    lambda train, turns: train(turns=turns), trainings, n_threads
                )
            return CountedParallel(n_jobs, progress)(delayed(train)() for train in trainings)

    def _trains_in_threads(self, device):
        """Whether networks may train at the same time in one process."""
        return device.type == "cpu" and self.verbose <= 1  # skorch's tables would mix

    def _trains_alone(self):
        """Whether networks of one process wait for each other."""
        return False

    def _shows_progress(self):
        """Whether a line says how far training is, in this process."""
        return self.verbose == 1

    def _warn_unless_converged(self):
        patience = self._setting("n_iter_no_change")
        reasons = [epoch["stopped"] for epoch in self.history_ if "stopped" in epoch]
        if n_unfinished := reasons.count("max_iter"):
            warnings.warn(
                f"Maximum iterations (max_iter={self.max_iter}) reached by {n_unfinished} of "
                f"{len(reasons)} networks, and the optimization hasn't converged yet: it has when "
                f"n_iter_no_change={patience} epochs bring no gain. Try a larger max_iter.",
                ConvergenceWarning,
                stacklevel=4,  # whoever called fit
            )

    def _train(
        self, network, X, encoded, groups, log_prior, split, number, *, budget, options, **kwargs
    ):
        """Train one network on encoded targets; returns it with its history."""
        train, valid = split
        rows = (X, encoded) if log_prior is None else (X, encoded, log_prior)
        return train_network(
            network,
            tuple(part[train] for part in rows),
            None if valid is None else tuple(part[valid] for part in rows),
            groups=None if groups is None else torch.as_tensor(groups[train]),
            pool_size=self.pool_size,
            batch_size=self.batch_size,
            learning_rate_init=self._setting("learning_rate_init"),
            weight_decay=self.weight_decay,
            max_iter=self.max_iter,
            n_iter_no_change=self._setting("n_iter_no_change"),
            verbose=self.verbose > 1,
            deadline=budget.deadline(number),
            **kwargs,
            **options,
        )

    # -- embedding -----------------------------------------------------------------------

    def embed(self, X):
        """Embed queries once, to ask several things about them.

        What it returns stands for `X` wherever this estimator asks for queries: in
        :meth:`predict`, :meth:`kneighbors`, :meth:`explain` and so on. It spares the
        time of a large feature extractor.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        Embedded
            The queries, for this estimator until it is fitted anew.
        """
        check_is_fitted(self)
        fitted = snapshot(self)
        return Embedded(fitted._validate_and_embed(X), fitted.network_, labels_of(X))

    def transform(self, X):
        """Embed rows in the space where neighbours are compared.

        In the given space (``SoftStepKNeighborsRegressor`` with ``hidden_layer_sizes=None``)
        these are the features, for l2 and l1 less their training means.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to embed.

        Returns
        -------
        ndarray of shape (n_samples, n_embedding_dimensions)
            Embeddings, float32.
        """
        check_is_fitted(self)
        fitted = snapshot(self)
        return fitted.network_.head.metric_part(fitted._validate_and_embed(X)).cpu().numpy()

    def _validate_and_embed(self, X) -> Tensor:
        if not isinstance(X, Embedded):
            return torch.cat([self._embed_queries(block) for block in self._take(X)])
        if X.network is not self.network_:
            raise ValueError("X must be embedded by this estimator as it is fitted now")
        return X.embeddings

    def _take(self, X) -> Iterator[Tensor | Rows]:
        """Validate queries: blocks of rows for the network."""
        X = check_table(self, X, reset=False)
        for rows in spans(_num_samples(X), EMBED_BLOCK):
            block = self.features_.transform_validated(rows_of(X, rows))
            yield _to_tensor(block, self.scaler_, rows.start)

    def _embed(self, X: Tensor | Rows) -> Tensor:
        """Embed scaled rows, shape (n, n_features) -> (n, d), as the bank stores them."""
        device = next(self.network_.parameters()).device
        blocks = (X[rows].to(device, torch.float64) for rows in spans(len(X), EMBED_BLOCK))
        return torch.cat([self.network_.embed(block).float() for block in blocks])

    def _embed_queries(self, X: Tensor | Rows) -> Tensor:
        """Embed scaled rows, as :meth:`_embed`, and refuse those too far out to be compared."""
        embeddings = self._embed(X)
        largest = embeddings.abs().amax() if len(embeddings) else 0.0
        if not largest <= _largest(embeddings):
            raise ValueError(
                "Input X contains a value too large for float32, or training diverged: distances "
                f"between embeddings with entries of {float(largest):g} overflow"
            )
        return embeddings

    # -- scikit-learn --------------------------------------------------------------------

    @property
    def _n_features_out(self):
        return self.network_.head.metric_part(self._training_embeddings()[:0]).shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.input_tags.allow_nan = True
        return tags

    def __getstate__(self):
        """Store the network as arrays on the CPU: what was fitted on a GPU loads without one."""
        state = super().__getstate__()
        if "network_" in state:
            state = state | {"network_": to_data(state["network_"])}
        return state

    def __setstate__(self, state):
        """Make the network of its arrays."""
        if "network_" in state:
            state = state | {"network_": from_data(state["network_"])}
        super().__setstate__(state)


def _select_rows(X, y, given: RowSelection):
    """Leave out the features and targets of rows that are as good as absent."""
    if len(given.numbers) == given.n_given:
        return X, y
    if y is not None:
        check_lengths(given.n_given, _num_samples(y))
        y = _safe_indexing(y, given.numbers)
    return _safe_indexing(X, given.numbers), y


def _check_groups(groups, given: RowSelection) -> np.ndarray | None:
    """Number the groups of the rows that count from 0, (n,); None if there are none."""
    if groups is None:
        return None
    groups, n_rows = np.asarray(unmasked(groups)), given.n_given
    if groups.ndim == 2 and groups.shape[1] == 1:
        groups = groups[:, 0]
    if groups.ndim != 1:
        raise ValueError(f"groups must have shape ({n_rows},), got {groups.shape}")
    if len(groups) != n_rows:
        raise ValueError(f"groups must have a value for each of {n_rows} rows, got {len(groups)}")
    missing = [row for row, group in enumerate(groups) if is_missing(group)]
    if missing:
        row = missing[0]
        raise ValueError(f"groups must not be missing, got {groups[row]} in row {row}")
    try:
        names, numbers = np.unique(groups[given.numbers], return_inverse=True)
    except TypeError:  # they cannot be sorted
        kinds = ", ".join(sorted({type(group).__name__ for group in groups}))
        raise ValueError(f"groups must be of one kind, got {kinds}") from None
    if len(names) < 2:
        raise ValueError(f"groups must hold at least 2 different ones, all rows are in {names[0]}")
    return numbers


@np.errstate(over="ignore", invalid="ignore")  # _to_tensor looks at what comes of it
def _fit_scaler(scaler, X, label_of):
    if isinstance(scaler, StandardScaler):  # the other one finds a unit for each column
        refuse_tiny_spread(X, label_of)
    return scaler if scaler is None else scaler.set_output(transform="default").fit(X)


@np.errstate(over="ignore", invalid="ignore")
def _to_tensor(X, scaler, first_row: int = 0) -> Tensor:
    """Scaled values as a new float32 tensor, shape (n, columns); an error if out of range.

    Distances between rows have to stay in float32's range as well.
    """
    scaled = X if scaler is None else scaler.transform(X)
    scaled = check_array(scaled, dtype=np.float32, ensure_min_samples=0, ensure_all_finite=False)
    scaled = torch.tensor(scaled)
    beyond = (~(scaled.abs() <= _largest(scaled))).nonzero()
    if len(beyond):
        values = np.abs(np.asarray(X)[:, int(beyond[0, 1])])  # a mean of them may be infinite
        row = int(np.nanargmax(values))
        raise ValueError(
            f"Input X contains infinity or a value too large for float32: {values[row]:g} in "
            f"row {first_row + row}"
        )
    return scaled


def _largest(rows: Tensor) -> float:
    """Entries up to which all distances between rows (n, d) are well within float32's range."""
    return torch.finfo(torch.float32).max / (4 * max(1, rows.shape[1]))


def _resolve_device(device):
    """Turn the parameter `device` into a torch.device that exists on this machine."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        one = torch.ones(1, device=device)
        one.item()  # fails on a device that only pretends to compute
        return one.device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device must be one that torch can use here, got {device!r}") from error
