"""Architectures: the input, the networks and the training that an estimator's parameters mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import torch
from sklearn.base import is_classifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from .._data.sample import Rows, Sample
from .._data.source import RowsSource, SmoothClipScaler, Source, SparseEncoder, TableSource
from .._data.table_encoder import TableEncoder
from .._inference.held_out import KEPT, SHARE, SHARE_IN_TREND, Blend
from .._inference.index import ALGORITHMS, check_algorithm, most_found, refuse_too_few
from .._network.extractor import (
    ExtractorEmbedding,
    FeatureExtractor,
    count_features,
    make_extractor,
    supervised_components,
)
from .._network.network import NeighborNetwork
from .._training.loop import EPOCH_ROWS, TrainingConfig, check_callbacks, count_networks
from .._training.net import LARGE, STEPS_OF_CLASSES
from .._trend.model_trend import check_model
from .._utils.threads import cached_property
from .._utils.validation import MAX_WIDENED, is_whole, real_valued
from ..embedding import FeatureWeights, MLPEmbedding, PeriodicEmbedding
from ..weighting import Weighting, make_weighting
from .parameters import (
    BESIDE_TREND,
    FEATURES,
    LEAST_EPOCHS_OF_LARGE,
    LEAST_ROWS,
    MOST_EPOCHS_OF_LARGE,
    N_NEIGHBORS,
    N_NETWORKS_BESIDE_TREND,
    N_PASSES_OF_LARGE,
    OF_CLASSES,
    OF_EXTRACTORS,
    OF_LARGE_TABLES,
    OF_SOFTSTEP,
    OF_TABLES,
    START_N_NEIGHBORS,
    START_N_NEIGHBORS_OF_CLASSES,
    ASSoftmax,
    TrainingOptions,
    check_layer_sizes,
    resolve_device,
    step_of,
)

if TYPE_CHECKING:
    from .._data.training_data import TrainingData
    from ..softstep import SoftStep

#: A table is wide with more features per row than this. Components of narrower tables lose more
#: than they gain.
WIDE = 0.25
N_COMPONENTS = 128
#: Limits of the number of components of a sparse matrix, and rows per component. Scores of a
#: linear model come in addition.
FEWEST_OF_SPARSE, MOST_OF_SPARSE, ROWS_PER_SPARSE = 16, 64, 32
N_FREQUENCIES = 8  # of a periodic embedding: 16 are no better, and take longer
#: Of the initial frequencies. Many rows can tell sharper functions, such as that of a holiday.
FREQUENCY_SCALE, FREQUENCY_SCALE_OF_LARGE = 0.1, 1.0
#: Rows that are searched beyond the rows with weight: the query itself, if it is a row of the
#: bank, and a spare row that replaces a removed row.
SPARE_ROWS = 2
LEAST_TREND_ROWS = 10  # with trend='auto' and in SoftStep k-NN
#: Most encoded columns with trend='auto'. Distances of wider tables take as long as training.
MAX_TREND_COLUMNS = 2**10
#: The similarity with which an algorithm must find rows, for values that are no similarity.
SEARCHED_BY = {"auto": "l2", FEATURES: "l1"}
START_SAMPLE = 1024  # rows from which initial values are estimated
#: Options of training that may be 'auto', with values of the architecture.
RESOLVED = "batch_size", "learning_rate_init", "n_iter_no_change", "pool_size"


@dataclass(frozen=True, kw_only=True, eq=False)
class Architecture:
    """The input, the networks and the training that an estimator's parameters mean."""

    params: Any  # the estimator, whose parameters are read
    classifies: bool
    embedding_similarity: str  # of the networks with similarity='auto'
    extractor: FeatureExtractor | None = None  # under the embedding
    automatic: Mapping[str, Any]  # values of the training options that are 'auto'
    automatic_of_large: Mapping[str, Any] = field(default_factory=dict)  # with many rows
    automatic_beside_trend: Mapping[str, Any] = field(default_factory=dict)
    averages: bool  # whether the weights of a network's last epochs are averaged
    adjusts: bool = False  # whether networks also predict the targets directly
    smoothing: bool = False  # whether the frequencies of classes take part in probabilities
    step: SoftStep | None = None  # masks the weights; untrained, without layers
    in_given_space: bool = False  # whether networks compare (weighted) features
    learns_residuals: bool = False  # whether networks learn residuals of an additive trend
    can_have_kernel: bool = True  # whether trend='auto' may be 'kernel'
    trend_without_kernel: str | None = None  # trend='auto' where it is not 'kernel'
    least_trend_rows: int = 0  # with fewer rows there is no trend, whatever the parameter
    has_plain_step: bool = True  # similarity='auto' may then be 'features'
    n_networks_set: int | None = 1  # by a parameter or an earlier fit
    may_fall_back: bool = False  # whether networks may predict the mean, with all rows
    retries: bool = True  # whether training in vain starts once more

    # Set by `for_rows`.
    trend: Any = None  # beside the networks: a name or a model
    among_features: bool = False  # whether neighbours are found among the features
    encoder: TableEncoder | SparseEncoder | None = None  # of a table

    # -- combinations of parameters -------------------------------------------------------------

    def validate(self) -> None:
        """Raise an error if parameters are invalid by themselves or in combination."""
        params, n_neighbors = self.params, self.params.n_neighbors
        check_algorithm(params.algorithm, SEARCHED_BY.get(params.similarity, params.similarity))
        if params.similarity == FEATURES and self.extractor is not None:
            raise ValueError(
                "feature_extractor must be None with similarity='features', got "
                f"{params.feature_extractor!r:.100}"
            )
        if params.similarity == FEATURES and n_neighbors is None:
            raise ValueError(
                "n_neighbors must be a number or 'auto' with similarity='features', got None"
            )
        if params.trend is not None and not isinstance(params.trend, str):
            check_model(params.trend, self.classifies)
        loss = ASSoftmax.of(params.loss) if self.classifies else None
        for component in (loss, self.extractor):
            if component is not None:
                component.validate()
        fixed = self.weighting.n_neighbors
        if fixed is not None and n_neighbors not in (None, "auto"):
            raise ValueError(
                f"n_neighbors must be None or 'auto' with weighting={params.weighting!r}, which "
                f"has a number of its own, {fixed}, got {n_neighbors}"
            )

    def for_rows(self, data: TrainingData, encoder: TableEncoder | SparseEncoder | None) -> Self:
        """Return a copy in which trend='auto' and similarity='auto' are resolved for the rows."""
        params, X = self.params, data.sample.X
        suits_kernel = (
            self.can_have_kernel
            and isinstance(X, Tensor)
            and data.sample.times is None
            and not isinstance(encoder, SparseEncoder)
            and len(X) >= LEAST_TREND_ROWS
            and X.shape[1] <= MAX_TREND_COLUMNS
        )
        trend = params.trend
        if trend == "auto":
            trend = "kernel" if suits_kernel else self.trend_without_kernel
        if len(data) < self.least_trend_rows:
            trend = None
        algorithm, n_neighbors = params.algorithm, params.n_neighbors
        # With a model as trend, a kernel of the same rows weights the features. The weighting and
        # the step have no effect among the features, so that they need their defaults.
        among_features = params.similarity == FEATURES or (
            params.similarity == "auto"
            and (suits_kernel if hasattr(trend, "fit") else trend == "kernel")
            and n_neighbors is not None
            and params.weighting == "softmax"
            and self.has_plain_step
            and isinstance(algorithm, str)
            and "l1" in ALGORITHMS[algorithm]
        )
        n_networks = getattr(params, "n_estimators", "auto")
        is_shared = not among_features and n_networks != "auto" and is_whole(n_neighbors, 1)
        if is_shared and n_networks > n_neighbors:
            raise ValueError(
                f"n_neighbors must be at least n_estimators={n_networks}, whose networks share "
                f"it, got {n_neighbors}: increase it, or set n_estimators={n_neighbors}"
            )
        return replace(self, trend=trend, among_features=among_features, encoder=encoder)

    @cached_property
    def weighting(self) -> Weighting:
        """The weighting of the parameter, checked."""
        return make_weighting(self.params.weighting)

    @property
    def similarity(self) -> str:
        """The similarity by which the networks compare rows."""
        named = self.params.similarity
        if self.among_features or named in SEARCHED_BY:
            return self.embedding_similarity
        return named

    @property
    def blend(self) -> Blend:
        """The blend of the trend with the networks."""
        if self.learns_residuals:
            return KEPT
        return SHARE_IN_TREND if self.among_features else SHARE

    # -- numbers of networks and of neighbours -------------------------------------------------

    def n_networks(self, n_rows: int) -> int:
        """Return the number of networks for `n_rows` training rows."""
        if self.n_networks_set is not None:
            return self.n_networks_set
        n_networks = count_networks(n_rows) if self.extractor is None else 1
        if self.trend is not None:
            n_networks = min(n_networks, N_NETWORKS_BESIDE_TREND)
        if isinstance(self.n_neighbors, Integral):
            n_networks = min(n_networks, int(self.n_neighbors))
        return n_networks

    @property
    def n_neighbors(self) -> int | str | None:
        """The parameter `n_neighbors`; 'auto' if rows are found among the features."""
        return "auto" if self.among_features else self.params.n_neighbors

    @property
    def chooses_n_neighbors(self) -> bool:
        """Whether n_neighbors='auto' is chosen after training, since no weighting or step ends."""
        if self.n_neighbors != "auto" or (self.step is not None and self.step.step == "s1"):
            return False
        return self.weighting.n_neighbors is None and not self.weighting.ends

    def candidates(self, n_networks: int, n_rows: int) -> list[int]:
        """Return the numbers of neighbours from which every network chooses after training."""
        if not self.chooses_n_neighbors:
            return []
        n_found = most_found(self.params.algorithm, n_rows)
        most = n_rows if n_found == n_rows else n_found - SPARE_ROWS
        return [k for k in N_NEIGHBORS if k * n_networks >= LEAST_ROWS and k <= most]

    def n_neighbors_of_networks(self, n_networks: int, n_rows: int) -> list[int | None]:
        """Return the number of neighbours in training of every network; None: all rows."""
        if self.chooses_n_neighbors:
            start = START_N_NEIGHBORS_OF_CLASSES if self.classifies else START_N_NEIGHBORS
            return [min(start, n_rows)] * n_networks
        most: Any = self.n_neighbors
        if not is_whole(most, 1):
            return [None] * n_networks
        share, rest = divmod(int(most), n_networks)
        return [share + (i < rest) for i in range(n_networks)]

    # -- training ------------------------------------------------------------------------------

    @property
    def options(self) -> TrainingOptions:
        """The parameter `training`, with its default resolved."""
        return self.params.training or TrainingOptions()

    @property
    def device(self) -> torch.device:
        """The device on which the networks are trained."""
        if self.extractor is None or self.extractor.accelerator is None:
            return resolve_device(self.params.device)
        accelerator = self.extractor.accelerator()
        if isinstance(device := getattr(accelerator, "device", None), torch.device):
            return device
        raise ValueError(
            f"accelerator must make an accelerate.Accelerator, got {accelerator!r:.100}"
        )

    def neighbor_pool(self, of_tables: str) -> str:
        """Return the pool of neighbours in a training step; 'auto' is that of tables."""
        pool = self.options.neighbor_pool
        if self.extractor is None:
            return of_tables if pool == "auto" else pool
        if pool == "near":
            raise ValueError("neighbor_pool='near' needs a table, got a feature_extractor")
        size = self.extractor.micro_batch_size
        if pool == "batch" and size == 1:
            raise ValueError(
                "micro_batch_size=1 leaves no neighbours with neighbor_pool='batch'; use 'memory'"
            )
        if pool == "auto":
            return "batch" if size is None else "memory"
        return pool

    def config(self, n_rows: int) -> TrainingConfig:
        """Return the configuration of training on `n_rows` rows, without the loss."""
        params, options, automatic = self.params, self.options, dict(self.automatic)
        if self.trend is not None:
            automatic |= self.automatic_beside_trend
        if n_rows > LARGE:
            automatic |= self.automatic_of_large
        settings = {name: getattr(options, name) for name in RESOLVED}
        settings |= {name: automatic[name] for name in RESOLVED if settings[name] == "auto"}
        schedule, n_scheduled = options.learning_rate, params.max_iter
        if schedule == "auto" and (schedule := automatic["learning_rate"]) == "cosine":
            n_epochs = math.ceil(N_PASSES_OF_LARGE * n_rows / EPOCH_ROWS)
            n_scheduled = min(max(n_epochs, LEAST_EPOCHS_OF_LARGE), MOST_EPOCHS_OF_LARGE)
        if schedule == "cosine":
            settings["n_scheduled"] = n_scheduled
            if options.n_iter_no_change == "auto":
                settings["n_iter_no_change"] = n_scheduled
        if self.classifies:
            # If classes are separable, the log loss decreases by a constant factor for ever, and
            # further training makes a network overconfident.
            settings |= {"threshold_mode": "abs", "n_steps": STEPS_OF_CLASSES}
        return TrainingConfig(
            neighbor_pool=self.neighbor_pool(automatic["neighbor_pool"]),
            weight_decay=options.weight_decay,
            max_iter=params.max_iter,
            device=self.device,
            verbose=int(params.verbose),
            extractor=self.extractor,
            average=self.averages,
            refine_on_training=self.in_given_space,
            retries=self.retries,
            falls_back=self.may_fall_back and self.n_neighbors in (None, "auto"),
            callbacks=check_callbacks(options.callbacks),
            **settings,
        )

    # -- networks ------------------------------------------------------------------------------

    def input(self) -> Source:
        """Return the source that reads the networks' input."""
        raise NotImplementedError

    def build(
        self, sample: Sample, targets: Any, n_neighbors: int | None, train: Any
    ) -> NeighborNetwork:
        """Return an untrained network for a sample, whose rows `train` are training rows."""
        raise NotImplementedError

    def make_head(
        self, targets: Any, n_adjusted: int, embedding_dim: int, n_neighbors: int | None
    ) -> Any:
        """Return an untrained head."""
        return targets.make_head(
            self.similarity,
            None if self.step is None else self.step.for_embedding(embedding_dim),
            self.params.weighting,
            learn_temperature=True,
            n_neighbors=n_neighbors,
            n_adjusted=n_adjusted,
        )

    def check_rows(self, head: Any, n_rows: int) -> None:
        """Raise if rows are fewer than neighbours, or the algorithm does not suit the head.

        An algorithm that finds nearest rows needs weights that depend on the nearest rows alone.
        """
        n_neighbors, weighting = self.params.n_neighbors, self.params.weighting
        if n_neighbors not in (None, "auto") and n_neighbors > n_rows:
            raise ValueError(
                f"n_neighbors must be at most the number of training rows, {n_rows}, got "
                f"{n_neighbors}"
            )
        most = None if isinstance(weighting, str) else weighting.n_neighbors
        if most is not None and most > n_rows:
            raise ValueError(f"weighting={weighting!r} needs as many training rows, got {n_rows}")
        algorithm = self.params.algorithm
        if algorithm in ("auto", "brute"):
            return
        n_weighed = head.most_weighed(n_rows)
        if n_weighed is None:
            names = ("n_neighbors", "softstep", "weighting")
            values = ", ".join(f"{name}={getattr(self.params, name)!r}" for name in names)
            ends = head.most_nonzero(n_rows) is not None  # although the step depends on all rows
            remedy = "set algorithm='brute'" if ends else "set n_neighbors, or algorithm='brute'"
            raise ValueError(
                f"algorithm={algorithm!r} needs weights that depend on the nearest "
                f"rows alone; those of {values} do not: {remedy}"
            )
        needed = min(n_weighed + SPARE_ROWS, n_rows)
        refuse_too_few(algorithm, most_found(algorithm, n_rows), needed)


def table_source(
    estimator: Any, scaler: Any, components: SparseEncoder, component_scaler: Any = None
) -> TableSource:
    """Return the source that encodes a table, or a wide sparse matrix as components."""
    given = estimator.table_encoder or TableEncoder()
    encoder = type(given)(**given.get_params(deep=False))  # a clone would copy text models
    encoder.set_output(transform="default")  # arrays, whatever the global configuration
    earlier = getattr(estimator, "features_", None)
    if estimator.warm_start and isinstance(earlier, SparseEncoder):
        components = earlier
    return TableSource(estimator, encoder, scaler, components, component_scaler)


class NONAArchitecture(Architecture):
    """A learned embedding of a table or of extracted features, with a NONA head."""

    @classmethod
    def from_params(cls, params: Any) -> Self:
        """Return the architecture that the parameters of an estimator mean."""
        extractor = FeatureExtractor.of(params.feature_extractor)
        classifies, extracts = is_classifier(params), extractor is not None
        automatic = OF_CLASSES if classifies else OF_TABLES
        adjusts = not extracts if params.adjust == "auto" else params.adjust
        step = step_of(params.softstep, params._scale_of_step)
        n_networks = None if params.n_estimators == "auto" else int(params.n_estimators)
        if n_networks is None and params.warm_start and hasattr(params, "network_"):
            n_networks = len(params.validation_indices_)  # the networks of the earlier fit
        weighting = make_weighting(params.weighting)
        return cls(
            params=params,
            classifies=classifies,
            embedding_similarity="l2",
            extractor=extractor,
            automatic=OF_EXTRACTORS if extracts else automatic,
            automatic_of_large={} if extracts else OF_LARGE_TABLES,
            automatic_beside_trend=BESIDE_TREND,
            averages=not extracts,
            adjusts=adjusts,
            smoothing=adjusts,
            step=step,
            can_have_kernel=adjusts and not extracts,
            has_plain_step=step is None,
            n_networks_set=n_networks,
            # After a warm start, the weights may come from a short training.
            may_fall_back=(
                params.hidden_layer_sizes is not None
                and weighting.one_by_one
                and weighting.n_neighbors is None
                and params.algorithm in ("auto", "brute")
                and not params.warm_start
                and step is None
            ),
            retries=not (extracts or params.warm_start),
        )

    def validate(self) -> None:
        super().validate()
        params = self.params
        if self.extractor is not None and params.trend not in (None, "auto"):
            raise ValueError(
                f"trend must be None with a feature_extractor, got {params.trend!r}: it is a "
                "function of the columns of a table"
            )
        if params.hidden_layer_sizes is None:
            if self.extractor is None:
                raise ValueError("hidden_layer_sizes must not be None without a feature_extractor")
            if self.adjusts:
                raise ValueError(
                    "adjust must be False with hidden_layer_sizes=None: there is no layer that "
                    "predicts the targets"
                )
        if not (self.weighting.depends_on_similarity or self.adjusts or self.step):
            raise ValueError(
                f"weighting={params.weighting!r} needs adjust=True or softstep, got "
                "neither: equal weights have no gradient to learn from"
            )

    def input(self) -> Source:
        if self.extractor is not None:
            return RowsSource(self.extractor.collate_fn)
        return table_source(self.params, SmoothClipScaler(), SparseEncoder.to_choose_from())

    def build(
        self, sample: Sample, targets: Any, n_neighbors: int | None, train: Any
    ) -> NeighborNetwork:
        embedding: Any
        if self.params.hidden_layer_sizes is None:  # the extracted features are the embedding
            embedding = self._extend_extractor(sample, None)
            head = self.make_head(targets, 0, embedding.n_features, n_neighbors)
        else:
            n_adjusted = targets.n_adjusted if self.adjusts else 0
            n_outputs = self.params.embedding_dim + n_adjusted
            head = self.make_head(targets, n_adjusted, self.params.embedding_dim, n_neighbors)
            embedding = self._make_embedding(sample[train], n_outputs)
        self.check_rows(head, len(sample))
        return NeighborNetwork(embedding, head)

    def _make_embedding(self, train: Sample, n_outputs: int) -> nn.Module:
        """Return dense layers on a table's or extracted features. Their last columns are g."""
        if self.extractor is not None:
            return self._extend_extractor(train, n_outputs)
        sizes = check_layer_sizes(self.params.hidden_layer_sizes)
        first, n_features = self.make_first_layer(train)
        layers = MLPEmbedding(n_features, n_outputs, sizes, skip_connection=True)
        return layers if first is None else nn.Sequential(first, layers)

    def _extend_extractor(self, train: Sample, n_outputs: int | None) -> ExtractorEmbedding:
        """Return the extractor, with dense layers if `n_outputs` is given."""
        assert self.extractor is not None  # as validated
        extractor, X = make_extractor(self.extractor.module), train.X
        assert isinstance(X, Rows)
        n_features = count_features(extractor, X.to(self.device))
        layers: nn.Module = nn.Identity()
        if n_outputs is not None:
            sizes = check_layer_sizes(self.params.hidden_layer_sizes)
            layers = MLPEmbedding(n_features, n_outputs, sizes, skip_connection=True)
        return ExtractorEmbedding(extractor, layers, self.extractor.precision, n_features)

    def make_first_layer(self, train: Sample) -> tuple[nn.Module | None, int]:
        """Return the layer before the dense layers, or None, and the number of its outputs."""
        X: Any = train.X
        n_rows, n_features = X.shape
        choice = self.params.numerical_embedding
        is_sparse = isinstance(self.encoder, SparseEncoder)
        is_wide = is_sparse or n_features > WIDE * n_rows
        if choice == "auto" and is_wide and n_features > MAX_WIDENED:
            n_components, n_scores = N_COMPONENTS, 0
            if isinstance(self.encoder, SparseEncoder):
                most = min(n_rows // ROWS_PER_SPARSE, MOST_OF_SPARSE)
                n_components = max(FEWEST_OF_SPARSE, most)
                n_scores = n_features - self.encoder.n_components
            components = supervised_components(X, train.y, n_components, n_scores)
            return components, components.out_features
        numbers = real_valued(X)
        widest = {"auto": MAX_WIDENED, "periodic": math.inf, None: -1}
        if len(numbers) > widest[choice]:
            return None, n_features
        scale = FREQUENCY_SCALE_OF_LARGE if n_rows > LARGE else FREQUENCY_SCALE
        periodic = PeriodicEmbedding(n_features, numbers, N_FREQUENCIES, scale)
        return periodic, periodic.out_features


class SoftStepArchitecture(Architecture):
    """SoftStep k-NN in the space of the features or in a learned space."""

    @classmethod
    def from_params(cls, params: Any) -> Self:
        """Return the architecture that the parameters of an estimator mean."""
        in_given_space, classifies = params.hidden_layer_sizes is None, is_classifier(params)
        step = step_of(params.softstep, params._scale_of_step)
        return cls(
            params=params,
            classifies=classifies,
            embedding_similarity="log_l2",
            automatic=OF_SOFTSTEP,
            averages=not in_given_space,
            smoothing=getattr(params, "smoothing", False),
            step=step,
            in_given_space=in_given_space,
            learns_residuals=not classifies,  # votes have no residuals
            trend_without_kernel=None if classifies else "additive",
            least_trend_rows=LEAST_TREND_ROWS,
            # The features may be weighted by a kernel.
            has_plain_step=(step.step, step.on, step.params) == ("s1", "rank", "global")
            and (params.learn_feature_weights or not in_given_space),
        )

    def validate(self) -> None:
        super().validate()
        weighs = self.params.learn_feature_weights or not self.in_given_space
        if self.params.similarity == FEATURES and not weighs:
            raise ValueError(
                "learn_feature_weights must be True with similarity='features', got False"
            )

    def input(self) -> Source:
        params = self.params
        if not self.in_given_space:
            return table_source(params, SmoothClipScaler(), SparseEncoder.to_learn_from())
        # Distances are invariant to a shift. Without one, float32 does not resolve timestamps.
        centers = params.similarity not in ("dot", "cosine")
        scaler = StandardScaler(with_mean=centers, with_std=params.learn_feature_weights)
        return table_source(params, scaler, SparseEncoder(), scaler)

    def build(
        self, sample: Sample, targets: Any, n_neighbors: int | None, train: Any
    ) -> NeighborNetwork:
        X: Any = sample.X
        params, n_features = self.params, X.shape[1]
        embedding_dim = n_features if self.in_given_space else params.embedding_dim
        head = self.make_head(targets, 0, embedding_dim, n_neighbors)
        assert self.step is not None
        on_ranks = self.step.on == "rank"
        if not self.in_given_space and on_ranks and not head.weighting.depends_on_similarity:
            raise ValueError(
                f"hidden_layer_sizes must be None with weighting={params.weighting!r} and "
                f"a step on ranks, got {params.hidden_layer_sizes!r}: ranks have no gradient to "
                f"learn from; use softstep=SoftStep({self.step.step!r}, on='similarity')"
            )
        self.check_rows(head, len(X))
        embedding: nn.Module = nn.Identity()
        if not self.in_given_space:
            sizes = check_layer_sizes(params.hidden_layer_sizes)
            embedding = MLPEmbedding(n_features, embedding_dim, sizes)
        elif params.learn_feature_weights:
            embedding = FeatureWeights(n_features)
        network = NeighborNetwork(embedding, head)
        if len(X) > START_SAMPLE:  # rows may be sorted
            X = X[torch.randperm(len(X))[:START_SAMPLE]]
        head.initialize(network.embed(X))
        return network
