"""Two ways to find neighbours: their parameters, and the networks that each builds from them."""

from __future__ import annotations

import math
from contextlib import nullcontext
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._data.rows import Rows
from .._data.targets import Targets
from .._network.extractor import ExtractorEmbedding, count_features, make_extractor
from .._network.network import NeighborNetwork
from .._training.pools import NEIGHBOR_POOLS
from .._training.trainer import check_callbacks, count_networks
from .._utils.chunks import EMBED_BLOCK, spans
from .._utils.settings import local_seed
from .._utils.validation import snapshot
from ..embedding import FeatureWeights, PeriodicEmbedding
from ..softstep import STEP_SCALES, STEPS, SoftStep
from ..weighting import Weighting
from .base import NetworkEstimator
from .parameters import CLASS_CONSTRAINTS

MAX_WIDENED = 64  # features: more are an embedding as a rule, whose axes mean nothing
N_FREQUENCIES = 8  # of each: 16 are no better, and take longer
#: What 'auto' means: steps of a table are large and quick, those of an extractor small and costly.
OF_TABLES = {"adjust": True, "average": True, "learning_rate_init": 0.02, "n_iter_no_change": 12}
OF_EXTRACTORS = {
    "adjust": False,
    "average": False,
    "learning_rate_init": 0.01,
    "n_iter_no_change": 10,
}
OF_CLASSES = OF_TABLES | {"learning_rate_init": 0.01}  # which are sooner known by heart
START_SAMPLE = 1024  # rows from which initial values are estimated


class NONANetworks(NetworkEstimator):
    """The parameters of a NONA estimator, and the networks that it builds from them."""

    _of_tables = OF_TABLES
    _parameter_constraints: dict = {
        **NetworkEstimator._parameter_constraints,
        "n_estimators": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "adjust": ["boolean", StrOptions({"auto"})],
        "average": ["boolean", StrOptions({"auto"})],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "skip_connection": ["boolean"],
        "batch_norm": ["boolean"],
        "learn_temperature": ["boolean"],
        "n_jobs": [
            Interval(Integral, None, -1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
        "feature_extractor": [callable, None],
        "collate_fn": [callable, None],
        "extractor_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "neighbor_pool": [StrOptions({*NEIGHBOR_POOLS, "auto"})],
        "micro_batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "precision": [StrOptions({"float32", "bfloat16"})],
        "callbacks": [list, tuple, None],
        "accelerator": [callable, None],
        "numerical_embedding": [StrOptions({"auto", "periodic"}), None],
        "softstep": [StrOptions(STEPS.keys()), None],
    }

    def __init__(
        self,
        feature_extractor=None,
        *,
        categorical_features="from_dtype",
        collate_fn=None,
        extractor_learning_rate=1e-4,
        adjust="auto",
        n_estimators="auto",
        hidden_layer_sizes=(128,),
        embedding_dim=32,
        activation="relu",
        skip_connection=True,
        batch_norm=False,
        numerical_embedding="auto",
        similarity="l2",
        weighting="softmax",
        softstep=None,
        softstep_params="global",
        learn_temperature=True,
        neighbor_pool="auto",
        pool_size=2048,
        batch_size="auto",
        micro_batch_size=None,
        learning_rate_init="auto",
        weight_decay=1e-4,
        average="auto",
        max_iter=200,
        max_time=None,
        early_stopping=True,
        validation_fraction=0.15,
        n_iter_no_change="auto",
        callbacks=None,
        n_jobs=None,
        device="auto",
        precision="float32",
        accelerator=None,
        warm_start=False,
        verbose=False,
        random_state=None,
    ):
        self.feature_extractor = feature_extractor
        self.categorical_features = categorical_features
        self.collate_fn = collate_fn
        self.extractor_learning_rate = extractor_learning_rate
        self.adjust = adjust
        self.n_estimators = n_estimators
        self.hidden_layer_sizes = hidden_layer_sizes
        self.embedding_dim = embedding_dim
        self.activation = activation
        self.skip_connection = skip_connection
        self.batch_norm = batch_norm
        self.numerical_embedding = numerical_embedding
        self.similarity = similarity
        self.weighting = weighting
        self.softstep = softstep
        self.softstep_params = softstep_params
        self.learn_temperature = learn_temperature
        self.neighbor_pool = neighbor_pool
        self.pool_size = pool_size
        self.batch_size = batch_size
        self.micro_batch_size = micro_batch_size
        self.learning_rate_init = learning_rate_init
        self.weight_decay = weight_decay
        self.average = average
        self.max_iter = max_iter
        self.max_time = max_time
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.callbacks = callbacks
        self.n_jobs = n_jobs
        self.device = device
        self.precision = precision
        self.accelerator = accelerator
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _take_training_data(self, X, y):
        if self.feature_extractor is None:
            return super()._take_training_data(X, y)
        rows = self._as_rows(X).to(self._find_device())
        y = rows.targets() if y is None else y
        if len(rows) < 2:
            raise ValueError("X must have at least 2 rows to fit, got 1")
        for name in ("n_features_in_", "feature_names_in_", "features_"):  # of an earlier fit
            vars(self).pop(name, None)
        return rows, y, None

    def _take(self, X):
        if self.feature_extractor is None:
            return super()._take(X)
        X = self._as_rows(X)
        return (X[rows] for rows in spans(len(X), EMBED_BLOCK))

    def _as_rows(self, X):
        if self.feature_extractor is None or isinstance(X, Rows):
            return X
        return Rows(X, self.collate_fn)

    def _find_device(self):
        return self.accelerator().device if self.accelerator else super()._find_device()

    def _count_networks(self, n_samples):
        if self.n_estimators != "auto":
            return int(self.n_estimators)
        if self.warm_start and hasattr(self, "network_"):
            return len(self.validation_indices_)  # go on with those that there are
        return 1 if self.feature_extractor is not None else count_networks(n_samples)

    def _choose_pool(self):
        if self.neighbor_pool == "batch" and self.micro_batch_size == 1:
            raise ValueError(
                "micro_batch_size=1 leaves no neighbours with neighbor_pool='batch'; use 'memory'"
            )
        if self.neighbor_pool != "auto":
            return self.neighbor_pool
        if self.feature_extractor is None:
            return "dataset"
        return "batch" if self.micro_batch_size is None else "memory"

    def _train(self, *arguments, seed, device, **kwargs):
        with local_seed(seed, device) if self._trains_alone() else nullcontext():
            return super()._train(*arguments, seed=seed, device=device, **kwargs)

    def _trains_alone(self):
        return self.feature_extractor is not None  # dropout draws from torch's global generator

    def _trains_in_threads(self, device):
        # An extractor may draw from torch's global generator, and its tensors are large; a
        # callback, or what it draws on, may not bear to be called from threads.
        alone = (self.feature_extractor, self.accelerator, self.callbacks or None)
        return super()._trains_in_threads(device) and all(each is None for each in alone)

    def _shows_progress(self):
        first = self.accelerator is None or self.accelerator().is_main_process
        return super()._shows_progress() and first

    def _training_options(self):
        if self.batch_norm and self.micro_batch_size == 1:
            raise ValueError(
                "micro_batch_size=1 leaves nothing to normalise over with batch_norm=True; "
                "use 2 or more"
            )
        extracts = self.feature_extractor is not None
        return super()._training_options() | {
            "average": self._setting("average"),
            "micro_batch_size": self.micro_batch_size,
            "callbacks": check_callbacks(self.callbacks),
            "accelerator": self.accelerator,
            "extractor_learning_rate": self.extractor_learning_rate if extracts else None,
        }

    def _make_embedding(self, X, n_adjusted):
        if self.feature_extractor is not None:
            extractor = make_extractor(self.feature_extractor)
            layers = self._make_layers(count_features(extractor, X), n_adjusted)
            return ExtractorEmbedding(extractor, layers, self.precision)
        real_valued = [j for j, column in enumerate(X.T) if len(column.unique()) > 2]
        widest = {"auto": MAX_WIDENED, "periodic": math.inf, None: -1}[self.numerical_embedding]
        if len(real_valued) > widest:
            return self._make_layers(X.shape[1], n_adjusted)
        periodic = PeriodicEmbedding(X.shape[1], real_valued, N_FREQUENCIES)
        return nn.Sequential(periodic, self._make_layers(periodic.out_features, n_adjusted))

    def _make_layers(self, n_features, n_adjusted):
        """Build what embeds rows; what it holds of their targets are its last columns."""
        return self._make_mlp(n_features, self.embedding_dim + n_adjusted)

    def _make_mlp(self, n_features, n_outputs):
        return super()._make_mlp(
            n_features,
            n_outputs,
            batch_norm=self.batch_norm,
            skip_connection=self.skip_connection,
        )

    def _make_network(self, X, targets):
        n_adjusted = targets.n_adjusted if self._adjusts else 0
        head = self._make_head(targets, n_adjusted)
        _check_most(self.weighting, len(X))
        return NeighborNetwork(self._make_embedding(X, n_adjusted), head)

    @property
    def _adjusts(self) -> bool:
        """Whether the network itself is to know something of the targets."""
        return self._setting("adjust")

    def _setting(self, name):
        value = getattr(self, name)
        if value != "auto":
            return value
        return (self._of_tables if self.feature_extractor is None else OF_EXTRACTORS)[name]

    def _make_head(self, targets: Targets, n_adjusted: int) -> nn.Module:
        step = None
        if self.softstep is not None:
            step = SoftStep(self.softstep, self.softstep_params, embedding_dim=self.embedding_dim)
        return targets.make_head(
            self.similarity,
            step,
            self.weighting,
            learn_temperature=self.learn_temperature,
            n_adjusted=n_adjusted,
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.feature_extractor is None  # only a table has gaps
        return tags


class NONAClassNetworks(NONANetworks):
    """The same for classes."""

    _of_tables = OF_CLASSES
    _parameter_constraints: dict = {**NONANetworks._parameter_constraints, **CLASS_CONSTRAINTS}

    def __init__(
        self,
        feature_extractor=None,
        *,
        loss="log_loss",
        margin=0.1,
        max_accumulation=1,
        class_weight=None,
        categorical_features="from_dtype",
        collate_fn=None,
        extractor_learning_rate=1e-4,
        adjust="auto",
        n_estimators="auto",
        hidden_layer_sizes=(128,),
        embedding_dim=32,
        activation="relu",
        skip_connection=True,
        batch_norm=False,
        numerical_embedding="auto",
        similarity="l2",
        weighting="softmax",
        softstep=None,
        softstep_params="global",
        learn_temperature=True,
        neighbor_pool="auto",
        pool_size=2048,
        batch_size="auto",
        micro_batch_size=None,
        learning_rate_init="auto",
        weight_decay=1e-4,
        average="auto",
        max_iter=200,
        max_time=None,
        early_stopping=True,
        validation_fraction=0.15,
        n_iter_no_change="auto",
        callbacks=None,
        n_jobs=None,
        device="auto",
        precision="float32",
        accelerator=None,
        warm_start=False,
        verbose=False,
        random_state=None,
    ):
        self.loss = loss
        self.margin = margin
        self.max_accumulation = max_accumulation
        self.class_weight = class_weight
        super().__init__(
            feature_extractor,
            categorical_features=categorical_features,
            collate_fn=collate_fn,
            extractor_learning_rate=extractor_learning_rate,
            adjust=adjust,
            n_estimators=n_estimators,
            hidden_layer_sizes=hidden_layer_sizes,
            embedding_dim=embedding_dim,
            activation=activation,
            skip_connection=skip_connection,
            batch_norm=batch_norm,
            numerical_embedding=numerical_embedding,
            similarity=similarity,
            weighting=weighting,
            softstep=softstep,
            softstep_params=softstep_params,
            learn_temperature=learn_temperature,
            neighbor_pool=neighbor_pool,
            pool_size=pool_size,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            learning_rate_init=learning_rate_init,
            weight_decay=weight_decay,
            average=average,
            max_iter=max_iter,
            max_time=max_time,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            callbacks=callbacks,
            n_jobs=n_jobs,
            device=device,
            precision=precision,
            accelerator=accelerator,
            warm_start=warm_start,
            verbose=verbose,
            random_state=random_state,
        )


class SoftStepNetworks(NetworkEstimator):
    """The parameters of a SoftStep k-NN estimator, and the network that it builds from them."""

    _parameter_constraints: dict = {
        **NetworkEstimator._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), None],
        "softstep": [StrOptions(STEPS.keys())],
        "softstep_on": [StrOptions(STEP_SCALES.keys())],
        "learn_feature_weights": ["boolean"],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        n_neighbors=None,
        *,
        categorical_features="from_dtype",
        weighting="softmax",
        similarity="log_l2",
        softstep="s1",
        softstep_on="rank",
        softstep_params="global",
        learn_feature_weights=True,
        hidden_layer_sizes=None,
        embedding_dim=32,
        activation="relu",
        neighbor_pool="dataset",
        pool_size=1024,
        batch_size=256,
        learning_rate_init=0.03,
        weight_decay=1e-4,
        max_iter=200,
        max_time=None,
        early_stopping=False,
        validation_fraction=0.15,
        n_iter_no_change=10,
        device="auto",
        warm_start=False,
        verbose=False,
        random_state=None,
    ):
        self.n_neighbors = n_neighbors
        self.categorical_features = categorical_features
        self.weighting = weighting
        self.similarity = similarity
        self.softstep = softstep
        self.softstep_on = softstep_on
        self.softstep_params = softstep_params
        self.learn_feature_weights = learn_feature_weights
        self.hidden_layer_sizes = hidden_layer_sizes
        self.embedding_dim = embedding_dim
        self.activation = activation
        self.neighbor_pool = neighbor_pool
        self.pool_size = pool_size
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.max_time = max_time
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.device = device
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @property
    def feature_importances_(self):
        """What each feature counts where rows are compared, (n_features,), summing to 1.

        Its share in the mean squared distance between two rows: of a category or a date, that of
        all that it became.
        """
        check_is_fitted(self)
        fitted = snapshot(self)
        embedding = fitted.network_.embedding
        if not isinstance(embedding, FeatureWeights):
            raise AttributeError(
                "feature_importances_ needs a fit with learn_feature_weights=True and "
                "hidden_layer_sizes=None"
            )
        squares = embedding.weight.square().cpu().numpy() * (fitted.scaler_.var_ > 0)
        source, n_columns = fitted.features_.source_, fitted.n_features_in_
        of_columns = np.bincount(source, squares, minlength=n_columns)
        return of_columns / (squares.sum() or 1.0)

    def _training_options(self):
        given = self.hidden_layer_sizes is None
        return super()._training_options() | {"refine_on_training": given, "average": not given}

    def _make_scaler(self):
        if self.hidden_layer_sizes is not None:
            return super()._make_scaler()
        # Distances do not mind a shift, and float32 does not hold one: think of timestamps.
        with_mean, with_std = self.similarity not in ("dot", "cosine"), self.learn_feature_weights
        return StandardScaler(with_mean=with_mean, with_std=with_std)

    def _make_network(self, X, targets):
        n_features = X.shape[1]
        given = self.hidden_layer_sizes is None
        embedding_dim = n_features if given else self.embedding_dim
        step = SoftStep(self.softstep, self.softstep_params, self.softstep_on, embedding_dim)
        head = targets.make_head(
            self.similarity,
            step,
            self.weighting,
            learn_temperature=True,
            n_neighbors=self.n_neighbors,
        )
        if not given and self.softstep_on == "rank" and not head.weighting.depends_on_similarity:
            raise ValueError(
                f"hidden_layer_sizes must be None with weighting={self.weighting!r} and "
                f"softstep_on='rank', got {self.hidden_layer_sizes!r}: ranks have no gradient to "
                "learn from; use softstep_on='similarity'"
            )
        _check_most(self.weighting, len(X))
        if not given:
            embedding = self._make_mlp(n_features, embedding_dim)
        else:
            embedding = FeatureWeights(n_features) if self.learn_feature_weights else nn.Identity()
        network = NeighborNetwork(embedding, head)
        sample = X
        if len(X) > START_SAMPLE:  # rows may come in order
            sample = X[torch.randperm(len(X))[:START_SAMPLE]]
        head.initialize(network.embed(sample))
        return network


class SoftStepClassNetworks(SoftStepNetworks):
    """The same for classes."""

    _parameter_constraints: dict = {
        **SoftStepNetworks._parameter_constraints,
        **CLASS_CONSTRAINTS,
        "smoothing": ["boolean"],
    }

    def __init__(
        self,
        n_neighbors=None,
        *,
        loss="log_loss",
        margin=0.1,
        max_accumulation=1,
        class_weight=None,
        smoothing=True,
        categorical_features="from_dtype",
        weighting="softmax",
        similarity="log_l2",
        softstep="s1",
        softstep_on="rank",
        softstep_params="global",
        learn_feature_weights=True,
        hidden_layer_sizes=None,
        embedding_dim=32,
        activation="relu",
        neighbor_pool="dataset",
        pool_size=1024,
        batch_size=256,
        learning_rate_init=0.03,
        weight_decay=1e-4,
        max_iter=200,
        max_time=None,
        early_stopping=True,
        validation_fraction=0.15,
        n_iter_no_change=10,
        device="auto",
        warm_start=False,
        verbose=False,
        random_state=None,
    ):
        self.loss = loss
        self.margin = margin
        self.max_accumulation = max_accumulation
        self.class_weight = class_weight
        self.smoothing = smoothing
        super().__init__(
            n_neighbors,
            categorical_features=categorical_features,
            weighting=weighting,
            similarity=similarity,
            softstep=softstep,
            softstep_on=softstep_on,
            softstep_params=softstep_params,
            learn_feature_weights=learn_feature_weights,
            hidden_layer_sizes=hidden_layer_sizes,
            embedding_dim=embedding_dim,
            activation=activation,
            neighbor_pool=neighbor_pool,
            pool_size=pool_size,
            batch_size=batch_size,
            learning_rate_init=learning_rate_init,
            weight_decay=weight_decay,
            max_iter=max_iter,
            max_time=max_time,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            device=device,
            warm_start=warm_start,
            verbose=verbose,
            random_state=random_state,
        )


def _check_most(weighting: str | Weighting, n_rows: int) -> None:
    """Refuse a number of neighbours, if somebody chose it, that there are not."""
    most = None if isinstance(weighting, str) else weighting.n_neighbors
    if most is not None and most > n_rows:
        raise ValueError(f"weighting={weighting!r} needs as many training rows, got {n_rows}")
