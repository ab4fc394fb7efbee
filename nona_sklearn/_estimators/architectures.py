"""The architectures: which input, networks and training the parameters of an estimator mean."""

from __future__ import annotations

import math
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from .._data.classes import ClassTargets
from .._data.row_values import normalize_mean
from .._data.sample import Sample
from .._data.scaler import SmoothClipScaler
from .._data.source import RowsSource, Source, TableSource
from .._data.sparse_encoder import SparseEncoder
from .._data.table_encoder import TableEncoder
from .._data.training_data import TrainingData
from .._inference.index import ALGORITHMS, check_algorithm, most_found, refuse_too_few
from .._inference.trend_share import KEPT, SHARE, SHARE_IN_TREND, Blend
from .._network.extractor import (
    ExtractorEmbedding,
    FeatureExtractor,
    count_features,
    make_extractor,
    supervised_components,
)
from .._network.network import NeighborNetwork
from .._training.ensemble import count_networks
from .._training.loop import TrainingConfig, check_callbacks
from .._training.net import LARGE, STEPS_OF_CLASSES
from .._trend.additive_trend import AdditiveTrend
from .._trend.class_trend import ClassTrend
from .._trend.kernel import LeftOut
from .._trend.kernel_trend import KernelTrend, mean_weights_for
from .._trend.model_trend import Classes, ModelTrend, Numbers, check_model
from .._trend.trend import Trend
from .._utils.real_valued import MAX_WIDENED, real_valued
from .._utils.validation import is_whole
from ..embedding import FeatureWeights, MLPEmbedding, PeriodicEmbedding
from ..softstep import SoftStep
from ..weighting import make_weighting
from .parameters import (
    BESIDE_TREND,
    FEATURES,
    LEAST_ROWS,
    N_NEIGHBORS,
    N_NETWORKS_BESIDE_TREND,
    OF_CLASSES,
    OF_EXTRACTORS,
    OF_LARGE_TABLES,
    OF_TABLES,
    START_N_NEIGHBORS,
    START_N_NEIGHBORS_OF_CLASSES,
    ASSoftmax,
    check_layer_sizes,
    resolve_device,
)

#: Features of a wide table for each row; components of fewer lose more than they gain.
WIDE = 0.25
N_COMPONENTS = 128
#: Of a sparse matrix, beside scores of a linear model: one for so many rows.
FEWEST_OF_SPARSE, MOST_OF_SPARSE, ROWS_PER_SPARSE = 16, 64, 32
N_FREQUENCIES = 8  # of each: 16 are no better, and take longer
SOFTSTEP_OPTIONS = {"step", "params", "on"}
#: Searched beyond the rows with weight: the query itself, if it is a row of the bank, and a row
#: that takes the place of another.
FURTHER_ROWS = 2
#: Trends of the encoded features, by their names.
TRENDS: dict[str, Any] = {"additive": AdditiveTrend.fit, "kernel": KernelTrend.fit}
#: Of one-hot rows. A kernel with a peak has a higher log loss on most tables.
TRENDS_OF_CLASSES = TRENDS | {"kernel": partial(KernelTrend.fit, peaks=(0.0,))}
LEAST_OF_TREND = 10  # rows, with trend='auto' and in SoftStep k-NN
MOST_OF_TREND = 2**10  # encoded columns with trend='auto': distances take as long as training
#: By what rows are searched, at most, with values of `similarity` that are no similarity.
SEARCHED_BY = {"auto": "l2", FEATURES: "l1"}
START_SAMPLE = 1024  # rows from which initial values are estimated


class Architecture:
    """The training parameters that all estimators have.

    Parameters
    ----------
    estimator : BaseEstimator
        The estimator, whose parameters it reads.
    """

    extractor: FeatureExtractor | None = None

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def setting(self, name: str, n_rows: int = 0) -> Any:
        """Look up a parameter that may be 'auto', for so many training rows."""
        return getattr(self.estimator, name)

    def validate(self) -> None:
        """Validate the parameters of parameters, and what they mean together."""
        similarity = self.estimator.similarity
        check_algorithm(self.estimator.algorithm, SEARCHED_BY.get(similarity, similarity))
        self._validate_features()
        trend = getattr(self.estimator, "trend", None)
        if trend is not None and not isinstance(trend, str):
            check_model(trend, is_classifier(self.estimator))
        if is_classifier(self.estimator) and (loss := ASSoftmax.of(self.estimator.loss)):
            loss.validate()
        if self.extractor is not None:
            self.extractor.validate()
        n_neighbors, weighting = self.estimator.n_neighbors, self.estimator.weighting
        if n_neighbors in (None, "auto"):
            return
        if (own := make_weighting(weighting).n_neighbors) is not None:
            raise ValueError(
                f"n_neighbors must be None or 'auto' with weighting={weighting!r}, which has a "
                f"number of its own, {own}, got {n_neighbors}"
            )

    def _validate_features(self) -> None:
        """Refuse similarity='features' where there are none that a kernel can weight."""
        estimator = self.estimator
        if estimator.similarity != FEATURES:
            return
        extractor = getattr(estimator, "feature_extractor", None)
        values = {
            "feature_extractor": ("None", extractor, self.extractor is None),
            "n_neighbors": ("a number or 'auto'", None, estimator.n_neighbors is not None),
        }
        for name, (needed, value, is_given) in values.items():
            if not is_given:
                raise ValueError(
                    f"{name} must be {needed} with similarity='features', got {value!r:.100}"
                )

    @property
    def trend(self) -> Any:
        """The trend that was chosen for the rows of the present fit, or of the last one."""
        return getattr(self.estimator, "trend_", None)

    def choose_space(self, data: TrainingData) -> None:
        """Choose what trend='auto' and similarity='auto' mean for these rows.

        For most tables, they are 'kernel' and 'features'.
        """
        self.estimator.trend_ = self.chosen_trend(data)
        similarity = self.estimator.similarity
        if similarity == "auto":
            similarity = FEATURES if self.suits_features(data) else self.other_similarity
        self.estimator.similarity_ = similarity

    def chosen_trend(self, data: TrainingData) -> Any:
        """The trend beside networks of these rows."""
        trend = self.estimator.trend
        if trend != "auto":
            return trend
        return "kernel" if self.suits_kernel(data) else self.other_trend

    def suits_kernel(self, data: TrainingData) -> bool:
        """Whether trend='auto' is 'kernel' for these rows, which are no extractor's."""
        X: Any = data.sample.X
        is_table = data.sample.times is None and not isinstance(
            self.estimator.features_, SparseEncoder
        )
        return is_table and len(X) >= LEAST_OF_TREND and X.shape[1] <= MOST_OF_TREND

    def suits_features(self, data: TrainingData) -> bool:
        """Whether similarity='auto' is 'features': no parameter is of weights of embeddings.

        Beside a model, too, a kernel of these rows weights the features.
        """
        estimator = self.estimator
        algorithm = estimator.algorithm
        finds = isinstance(algorithm, str) and "l1" in ALGORITHMS[algorithm]
        limited = estimator.n_neighbors is not None and finds
        has_kernel = self.trend == "kernel"
        if hasattr(self.trend, "fit"):
            has_kernel = self.suits_kernel(data)
        return has_kernel and limited and estimator.weighting == "softmax"

    @property
    def among_features(self) -> bool:
        """Whether rows are found among the features, in the present fit or in the last one."""
        return self.estimator.similarity_ == FEATURES

    def feature_weights(
        self, trend: Trend | None, data: TrainingData, targets: Any
    ) -> Tensor | None:
        """Weights of the features among which neighbours are found, or None: embeddings."""
        if not self.among_features:
            return None
        of_targets = trend.trend if isinstance(trend, ClassTrend) else trend
        X, y, rows = _encoded(data)
        known = of_targets.kernel.mean_weights if isinstance(of_targets, KernelTrend) else None
        weights = mean_weights_for(X, y, rows) if known is None else known
        if tell_rows_apart(weights, X):
            return torch.from_numpy(weights)
        self.estimator.similarity_ = self.other_similarity
        return None

    @property
    def similarity(self) -> str:
        """By what the networks compare rows."""
        return self.other_similarity if self.among_features else self.estimator.similarity_

    @property
    def n_neighbors(self) -> int | str | None:
        """How many rows the networks predict from, as the parameter has it."""
        return "auto" if self.among_features else self.estimator.n_neighbors

    @property
    def other_similarity(self) -> str:
        """By what embeddings are compared."""
        raise NotImplementedError

    @property
    def other_trend(self) -> str | None:
        """What trend='auto' is where it is not 'kernel'."""
        return None

    @property
    def blend(self) -> Blend:
        """How much the trend counts beside the networks."""
        return SHARE_IN_TREND if self.among_features else SHARE

    @property
    def device(self) -> torch.device:
        """Where the networks are trained."""
        return resolve_device(self.estimator.device)

    @property
    def n_networks_set(self) -> int | None:
        """Number of networks, if a parameter or an earlier fit sets it."""
        return 1

    def n_networks(self, n_rows: int) -> int:
        """Number of networks for so many training rows."""
        return 1

    @property
    def step(self) -> str | None:
        """Which step function masks the weights, if one does."""
        raise NotImplementedError

    @property
    def chooses_n_neighbors(self) -> bool:
        """Whether 'auto' is a number to be chosen: the weights have no other end."""
        if self.n_neighbors != "auto" or self.step == "s1":
            return False
        weighting = make_weighting(self.estimator.weighting)
        return weighting.n_neighbors is None and not weighting.ends

    def candidates(self, n_networks: int, n_rows: int) -> list[int]:
        """Numbers of neighbours of which each network's is chosen after training."""
        if not self.chooses_n_neighbors:
            return []
        found = most_found(self.estimator.algorithm, n_rows)
        most = n_rows if found == n_rows else found - FURTHER_ROWS
        return [k for k in N_NEIGHBORS if k * n_networks >= LEAST_ROWS and k <= most]

    @property
    def falls_back(self) -> bool:
        """Whether a network may predict the mean of all rows: no parameter limits its rows."""
        return False

    def n_neighbors_of_each(self, n_networks: int, n_rows: int) -> list[int | None]:
        """The number of neighbours with which each network is trained; None: all."""
        most: Any = self.n_neighbors
        if self.chooses_n_neighbors:
            classes = is_classifier(self.estimator)
            start = START_N_NEIGHBORS_OF_CLASSES if classes else START_N_NEIGHBORS
            return [min(start, n_rows)] * n_networks
        if not is_whole(most, 1):
            return [None] * n_networks
        share, rest = divmod(int(most), n_networks)
        return [share + (i < rest) for i in range(n_networks)]

    def config(self, n_rows: int) -> TrainingConfig:
        """The configuration of training on so many rows, but for the loss."""
        estimator = self.estimator
        options: dict = {}
        if is_classifier(estimator):
            # Where classes are apart the log loss falls by shares of itself for ever: a network
            # that goes on only grows overconfident.
            options |= {"threshold_mode": "abs", "n_steps": STEPS_OF_CLASSES}
        return TrainingConfig(
            neighbor_pool=self.neighbor_pool,
            pool_size=self.setting("pool_size", n_rows),
            batch_size=estimator.batch_size,
            learning_rate_init=self.setting("learning_rate_init", n_rows),
            weight_decay=estimator.weight_decay,
            max_iter=estimator.max_iter,
            n_iter_no_change=self.setting("n_iter_no_change", n_rows),
            device=self.device,
            verbose=int(estimator.verbose),
            **options,
            **self.training_options,
        )

    @property
    def neighbor_pool(self) -> str:
        """The neighbours of a training step."""
        return self.estimator.neighbor_pool

    @property
    def training_options(self) -> dict[str, Any]:
        """Further arguments of the configuration."""
        return {}

    @property
    def smoothing(self) -> bool:
        """Whether the frequencies of classes take part in their probabilities."""
        return self.estimator.smoothing

    def fit_trend(
        self, data: TrainingData, targets: Any, random_state: np.random.RandomState
    ) -> Trend | None:
        """Fit the trend beside the networks, if the estimator has one."""
        if self.trend is None:
            return None
        if isinstance(self.trend, str):
            trend = self._fit_encoded(self.trend, data, targets)
        else:
            trend = self._fit_model(data, targets, random_state.randint(2**31))
            self.estimator.trend_ = trend.functions[-1]
        if trend is None or not isinstance(targets, ClassTargets):
            return trend
        rows = np.asarray(data.selection.indices), data.sample.X
        return ClassTrend.fit(trend, *rows, data.values.numpy(), _weights(data), targets.sizes)

    def trend_in_training(
        self, trend: Trend | None, data: TrainingData, targets: Any
    ) -> Trend | None:
        """The trend of encoded features whose residuals the networks learn; None: the targets."""
        return None

    def _fit_encoded(self, name: str, data: TrainingData, targets: Any) -> Trend | None:
        X, y, rows = _encoded(data)
        center = targets.restore(torch.zeros(1, y.shape[1], dtype=torch.float64))[0]
        of_targets = (each.reshape(-1).double().numpy() for each in (center, targets.unit))
        fits = TRENDS_OF_CLASSES if isinstance(targets, ClassTargets) else TRENDS
        return fits[name](np.asarray(data.selection.indices), X, y, rows, *of_targets)

    def _fit_model(self, data: TrainingData, targets: Any, seed: int) -> ModelTrend:
        prior, times = data.log_prior, data.sample.times
        y: Any = data.values.reshape(len(data), -1)
        answers: Any = Numbers(y.shape[1])
        if isinstance(targets, ClassTargets):
            y, answers = targets.decode(y), Classes(targets.classes)
        return ModelTrend.fit(
            self.trend,
            answers,
            np.asarray(data.selection.indices),
            data.table,
            np.asarray(y).reshape(len(data), -1),
            None if prior is None else data.selection.unit * prior.double().exp().numpy(),
            data.groups,
            None if times is None else times.numpy(),
            seed,
            getattr(self.estimator, "n_jobs", None),
            int(self.estimator.verbose),
        )

    def check_search(self, head: Any, n_rows: int) -> None:
        """Refuse an algorithm that finds nearest rows where others have weight, or too few."""
        algorithm = self.estimator.algorithm
        if algorithm in ("auto", "brute"):
            return
        most = head.most_weighed(n_rows)
        if most is None:
            raise self._needs_nearest_alone(head, n_rows)
        found, needed = most_found(algorithm, n_rows), min(most + FURTHER_ROWS, n_rows)
        refuse_too_few(algorithm, found, needed)

    def _needs_nearest_alone(self, head: Any, n_rows: int) -> ValueError:
        """An error of a search whose weights depend on other rows than the nearest."""
        names = ("n_neighbors", "softstep", "softstep_on", "softstep_params", "weighting")
        values = ", ".join(
            f"{name}={getattr(self.estimator, name)!r}"
            for name in names
            if hasattr(self.estimator, name)
        )
        ends = head.most_nonzero(n_rows) is not None  # but after a step that looks at all rows
        remedy = "set algorithm='brute'" if ends else "set n_neighbors, or algorithm='brute'"
        return ValueError(
            f"algorithm={self.estimator.algorithm!r} needs weights that depend on the nearest "
            f"rows alone; those of {values} do not: {remedy}"
        )

    def check_n_rows(self, n_rows: int) -> None:
        """Refuse more neighbours than there are training rows."""
        n_neighbors, weighting = self.estimator.n_neighbors, self.estimator.weighting
        if n_neighbors not in (None, "auto") and n_neighbors > n_rows:
            raise ValueError(
                f"n_neighbors must be at most the number of training rows, {n_rows}, got "
                f"{n_neighbors}"
            )
        most = None if isinstance(weighting, str) else weighting.n_neighbors
        if most is not None and most > n_rows:
            raise ValueError(f"weighting={weighting!r} needs as many training rows, got {n_rows}")


def _weights(data: TrainingData) -> np.ndarray:
    """Weights of the rows, of mean 1, (n,)."""
    prior = data.log_prior
    return np.ones(len(data)) if prior is None else normalize_mean(prior).double().numpy()


def tell_rows_apart(weights: np.ndarray, X: np.ndarray) -> bool:
    """Whether weighted features, (n_features,) and (n, n_features), say which rows are near."""
    largest = (weights * np.ptp(X, axis=0)).sum()  # distance
    return 0 < largest < np.finfo(np.float32).max


def _encoded(data: TrainingData) -> tuple[np.ndarray, np.ndarray, LeftOut]:
    """Encoded features, (n, n_features), targets, (n, n_outputs), and how rows are left out."""
    sample = data.sample
    assert isinstance(sample.X, Tensor)
    rows = LeftOut(
        _weights(data),
        None if sample.groups is None else sample.groups.numpy(),
        None if sample.times is None else sample.times.numpy(),
    )
    return sample.X.numpy(), sample.y.reshape(len(data), -1).double().numpy(), rows


def table_source(
    estimator: Any, scaler: Any, components: SparseEncoder, component_scaler: Any = None
) -> TableSource:
    """A table, or a wide sparse matrix's components, as the parameters of an estimator mean it."""
    encoder = TableEncoder(
        estimator.categorical_features,
        text_features=estimator.text_features,
        max_categories=estimator.max_categories,
    )
    encoder.set_output(transform="default")  # arrays, whatever is configured
    earlier = getattr(estimator, "features_", None)
    if estimator.warm_start and isinstance(earlier, SparseEncoder):
        components = earlier
    return TableSource(estimator, encoder, scaler, components, component_scaler)


class NONAArchitecture(Architecture):
    """A learned embedding, of a table or on a feature extractor, under a NONA head."""

    def __init__(self, estimator: Any):
        super().__init__(estimator)
        self.extractor = FeatureExtractor.of(estimator.feature_extractor)

    def suits_kernel(self, data):
        return self.extractor is None and self.adjusts and super().suits_kernel(data)

    other_similarity = "l2"

    def choose_space(self, data):
        super().choose_space(data)
        n_neighbors, n_networks = self.n_neighbors, self.estimator.n_estimators
        if n_networks != "auto" and is_whole(n_neighbors, 1) and n_networks > n_neighbors:
            raise ValueError(
                f"n_neighbors must be at least n_estimators={n_networks}, whose networks share "
                f"it, got {n_neighbors}: increase it, or set n_estimators={n_neighbors}"
            )

    def suits_features(self, data):
        return super().suits_features(data) and self.estimator.softstep is None

    def setting(self, name, n_rows=0):
        value = getattr(self.estimator, name, "auto")
        if value != "auto":
            return value
        many = n_rows > LARGE and self.extractor is None
        return (self.automatic | OF_LARGE_TABLES if many else self.automatic)[name]

    def validate(self):
        super().validate()
        trend = self.estimator.trend
        if self.extractor is not None and trend not in (None, "auto"):
            raise ValueError(
                f"trend must be None with a feature_extractor, got {trend!r}: it is a "
                "function of the columns of a table"
            )
        if self.estimator.hidden_layer_sizes is None:
            if self.extractor is None:
                raise ValueError("hidden_layer_sizes must not be None without a feature_extractor")
            if self.adjusts:
                raise ValueError(
                    "adjust must be False with hidden_layer_sizes=None: there is no layer that "
                    "predicts the targets"
                )
        weighting = make_weighting(self.estimator.weighting)
        if not (weighting.depends_on_similarity or self.adjusts or self.step):
            raise ValueError(
                f"weighting={self.estimator.weighting!r} needs adjust=True or softstep, got "
                "neither: equal weights have no gradient to learn from"
            )
        step = self.estimator.softstep
        if isinstance(step, dict) and not step.keys() <= SOFTSTEP_OPTIONS:
            raise ValueError(
                f"softstep must have no other keys than {sorted(SOFTSTEP_OPTIONS)}, got {step!r}"
            )

    @property
    def automatic(self) -> dict[str, Any]:
        """What 'auto' means."""
        if self.extractor is not None:
            return OF_EXTRACTORS
        automatic = OF_CLASSES if is_classifier(self.estimator) else OF_TABLES
        return automatic if self.trend is None else automatic | BESIDE_TREND

    @property
    def device(self):
        if self.extractor is not None and self.extractor.accelerator is not None:
            accelerator = self.extractor.accelerator()
            if isinstance(device := getattr(accelerator, "device", None), torch.device):
                return device
            raise ValueError(
                f"accelerator must make an accelerate.Accelerator, got {accelerator!r:.100}"
            )
        return super().device

    def input(self) -> Source:
        """The form of input that the networks take."""
        if self.extractor is not None:
            return RowsSource(self.extractor.collate_fn)
        return table_source(self.estimator, SmoothClipScaler(), SparseEncoder.to_choose_from())

    @property
    def n_networks_set(self):
        estimator = self.estimator
        if estimator.n_estimators != "auto":
            return int(estimator.n_estimators)
        if estimator.warm_start and hasattr(estimator, "network_"):
            return len(estimator.validation_indices_)  # those of the earlier fit
        return None

    def n_networks(self, n_rows):
        if self.n_networks_set is not None:
            return self.n_networks_set
        n_networks = count_networks(n_rows) if self.extractor is None else 1
        if self.trend is not None:
            n_networks = min(n_networks, N_NETWORKS_BESIDE_TREND)
        most = self.n_neighbors
        return n_networks if most in (None, "auto") else min(n_networks, int(most))

    @property
    def neighbor_pool(self):
        pool = self.estimator.neighbor_pool
        if self.extractor is None:
            return "dataset" if pool == "auto" else pool
        size = self.extractor.micro_batch_size
        if pool == "batch" and size == 1:
            raise ValueError(
                "micro_batch_size=1 leaves no neighbours with neighbor_pool='batch'; use 'memory'"
            )
        if pool == "auto":
            return "batch" if size is None else "memory"
        return pool

    @property
    def training_options(self):
        return {
            "extractor": self.extractor,
            "average": self.setting("average"),
            "retries": self.extractor is None and not self.estimator.warm_start,
            "falls_back": self.falls_back,
            "callbacks": check_callbacks(self.estimator.callbacks),
        }

    @property
    def falls_back(self):
        estimator, weighting = self.estimator, make_weighting(self.estimator.weighting)
        limited = self.n_neighbors not in (None, "auto") or weighting.n_neighbors is not None
        searched = estimator.algorithm not in ("auto", "brute")
        has_layers = estimator.hidden_layer_sizes is not None
        goes_on = estimator.warm_start  # from weights of a training that may have been short
        return (
            has_layers
            and weighting.one_by_one
            and not (limited or searched or goes_on or self.step is not None)
        )

    @property
    def adjusts(self) -> bool:
        """Whether the network itself predicts the targets, too."""
        return self.setting("adjust")

    @property
    def smoothing(self):
        return self.adjusts

    @property
    def step(self):
        step = self.estimator.softstep
        return step.get("step", "s1") if isinstance(step, dict) else step

    def build(
        self, sample: Sample, targets: Any, n_neighbors: int | None, train: Any
    ) -> NeighborNetwork:
        """Build an untrained network for a sample, of which it is trained on the rows `train`."""
        X = sample.X
        n_adjusted = targets.n_adjusted if self.adjusts else 0
        if self.estimator.hidden_layer_sizes is None:
            embedding, embedding_dim = self._features_as_embedding(X)
            head = self.make_head(targets, 0, embedding_dim, n_neighbors)
        else:
            dim = self.estimator.embedding_dim
            head = self.make_head(targets, n_adjusted, dim, n_neighbors)
            embedding = self.make_embedding(sample[train], n_adjusted)
        self.check_n_rows(len(X))
        self.check_search(head, len(X))
        return NeighborNetwork(embedding, head)

    def make_head(
        self, targets: Any, n_adjusted: int, embedding_dim: int, n_neighbors: int | None
    ) -> Any:
        """Build the head."""
        estimator, step = self.estimator, self.estimator.softstep
        if step is not None:
            options = {"step": step} if isinstance(step, str) else step
            try:
                step = SoftStep(**options, embedding_dim=embedding_dim)
            except ValueError as error:
                raise ValueError(f"softstep={estimator.softstep!r} is invalid: {error}") from error
        return targets.make_head(
            self.similarity,
            step,
            estimator.weighting,
            learn_temperature=True,
            n_neighbors=n_neighbors,
            n_adjusted=n_adjusted,
        )

    def _features_as_embedding(self, X: Any) -> tuple[nn.Module, int]:
        """Compare the features of the extractor as they are: (embedding, their number)."""
        assert self.extractor is not None  # as validated
        extractor = make_extractor(self.extractor.module)
        n_features = count_features(extractor, X.to(self.device))
        precision = self.extractor.precision
        embedding = ExtractorEmbedding(extractor, nn.Identity(), precision, n_features)
        return embedding, n_features

    def make_embedding(self, train: Sample, n_adjusted: int) -> nn.Module:
        """Build the embedding of a table's features, or of those that are extracted."""
        if self.extractor is None:
            first, n_features = self.make_first_layer(train)
            layers = self.make_layers(n_features, n_adjusted)
            return layers if first is None else nn.Sequential(first, layers)
        X: Any = train.X
        extractor = make_extractor(self.extractor.module)
        n_features = count_features(extractor, X.to(self.device))
        layers = self.make_layers(n_features, n_adjusted)
        return ExtractorEmbedding(extractor, layers, self.extractor.precision, n_features)

    def make_first_layer(self, train: Sample) -> tuple[nn.Module | None, int]:
        """Build what changes a table's features before the dense layers: (it, its width)."""
        X: Any = train.X
        n_rows, n_features = X.shape
        choice, encoder = self.estimator.numerical_embedding, self.estimator.features_
        is_sparse = isinstance(encoder, SparseEncoder)
        is_wide = is_sparse or n_features > WIDE * n_rows
        if choice == "auto" and is_wide and n_features > MAX_WIDENED:
            n_components, n_scores = N_COMPONENTS, 0
            if is_sparse:
                most = min(n_rows // ROWS_PER_SPARSE, MOST_OF_SPARSE)
                n_components = max(FEWEST_OF_SPARSE, most)
                n_scores = n_features - encoder.n_components
            components = supervised_components(X, train.y, n_components, n_scores)
            return components, components.out_features
        numbers = real_valued(X)
        widest = {"auto": MAX_WIDENED, "periodic": math.inf, None: -1}
        if len(numbers) > widest[choice]:
            return None, n_features
        periodic = PeriodicEmbedding(n_features, numbers, N_FREQUENCIES)
        return periodic, periodic.out_features

    def make_layers(self, n_features: int, n_adjusted: int) -> nn.Module:
        """Build the dense layers, whose last columns are the network's own predictions."""
        return self.make_mlp(n_features, self.estimator.embedding_dim + n_adjusted)

    def make_mlp(self, n_features: int, n_outputs: int) -> MLPEmbedding:
        """Build hidden layers with a skip connection."""
        sizes = check_layer_sizes(self.estimator.hidden_layer_sizes)
        return MLPEmbedding(n_features, n_outputs, sizes, skip_connection=True)


class SoftStepArchitecture(Architecture):
    """SoftStep k-NN in the space of the features, or in one that is learned."""

    @property
    def other_trend(self):
        return None if is_classifier(self.estimator) else "additive"

    other_similarity = "log_l2"

    @property
    def _scales(self) -> bool:
        """Whether features have a unit that a kernel can weight."""
        return self.estimator.learn_feature_weights or not self._in_given_space

    def suits_features(self, data):
        of_step = attrgetter("softstep", "softstep_on", "softstep_params")(self.estimator)
        default = of_step == ("s1", "rank", "global")
        return super().suits_features(data) and default and self._scales

    def validate(self):
        super().validate()
        if self.estimator.similarity == FEATURES and not self._scales:
            raise ValueError(
                "learn_feature_weights must be True with similarity='features', got False"
            )

    @property
    def blend(self):
        return super().blend if is_classifier(self.estimator) else KEPT

    @property
    def _in_given_space(self) -> bool:
        return self.estimator.hidden_layer_sizes is None

    def input(self) -> Source:
        """The form of input that the networks take."""
        estimator = self.estimator
        if not self._in_given_space:
            return table_source(estimator, SmoothClipScaler(), SparseEncoder.to_learn_from())
        # Distances are invariant to a shift, which float32 may not hold, such as timestamps'.
        centers = estimator.similarity not in ("dot", "cosine")
        scales = estimator.learn_feature_weights
        scaler = StandardScaler(with_mean=centers, with_std=scales)
        return table_source(estimator, scaler, SparseEncoder(), scaler)

    @property
    def training_options(self):
        given = self._in_given_space
        return {"refine_on_training": given, "average": not given}

    @property
    def step(self):
        return self.estimator.softstep

    def chosen_trend(self, data):
        return None if len(data) < LEAST_OF_TREND else super().chosen_trend(data)

    def trend_in_training(self, trend, data, targets):
        if isinstance(targets, ClassTargets):  # votes have no residuals
            return None
        if trend is None or isinstance(trend, AdditiveTrend):
            return trend
        # One that can follow single rows has residuals at near rows that contradict each other.
        return self._fit_encoded("additive", data, targets)

    def build(
        self, sample: Sample, targets: Any, n_neighbors: int | None, train: Any
    ) -> NeighborNetwork:
        """Build an untrained network, whose initial values are estimated from a whole sample."""
        X: Any = sample.X
        estimator, n_features = self.estimator, X.shape[1]
        embedding_dim = n_features if self._in_given_space else estimator.embedding_dim
        head = targets.make_head(
            self.similarity,
            SoftStep(
                *(estimator.softstep, estimator.softstep_params, estimator.softstep_on),
                embedding_dim,
            ),
            estimator.weighting,
            learn_temperature=True,
            n_neighbors=n_neighbors,
        )
        on_ranks = estimator.softstep_on == "rank"
        if not self._in_given_space and on_ranks and not head.weighting.depends_on_similarity:
            raise ValueError(
                f"hidden_layer_sizes must be None with weighting={estimator.weighting!r} and "
                f"softstep_on='rank', got {estimator.hidden_layer_sizes!r}: ranks have no "
                "gradient to learn from; use softstep_on='similarity'"
            )
        self.check_n_rows(len(X))
        self.check_search(head, len(X))
        embedding = self._make_embedding(n_features)
        network = NeighborNetwork(embedding, head)
        some = X
        if len(X) > START_SAMPLE:  # rows may come in order
            some = X[torch.randperm(len(X))[:START_SAMPLE]]
        head.initialize(network.embed(some))
        return network

    def _make_embedding(self, n_features: int) -> nn.Module:
        estimator = self.estimator
        if not self._in_given_space:
            sizes = check_layer_sizes(estimator.hidden_layer_sizes)
            return MLPEmbedding(n_features, estimator.embedding_dim, sizes)
        return FeatureWeights(n_features) if estimator.learn_feature_weights else nn.Identity()
