"""Constraints of parameters that several estimators share, and values of 'auto'."""

from __future__ import annotations

from collections import ChainMap
from datetime import timedelta
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import HasMethods, InvalidParameterError, StrOptions

from .._data.table_encoder import TableEncoder
from .._data.targets import NAMED_BOUNDS
from .._inference.index import ALGORITHMS
from .._network.extractor import FeatureExtractor
from .._training.net import NEIGHBOR_POOLS
from .._utils.bases import BaseEstimator
from .._utils.docs import Documented
from .._utils.storable import CHOICES, storable_parameters
from .._utils.validation import Interval, is_whole
from ..similarity import SIMILARITIES
from ..softstep import STEPS, SoftStep
from ..weighting import WEIGHTINGS, Weighting

MOST = 2**62  # of a number that libraries keep in 64 bits
POSITIVE = Interval(Integral, 1, None, closed="left")
AUTO = StrOptions({"auto"})
FEATURES = "features"  # the similarity of weighted features
CHOICES["similarity"] = ChainMap[str, Any]({"auto": None, FEATURES: None}, SIMILARITIES)

#: Groups of the estimators' parameters, in the order in which a user may need them. The site's
#: reference lists parameters by group; signatures do not have this order.
PARAMETER_GROUPS: dict[str, tuple[str, ...]] = {
    "Accuracy and time": (
        *("n_estimators", "max_iter", "hidden_layer_sizes", "embedding_dim"),
        *("n_jobs", "device", "random_state"),
    ),
    "Target": ("loss", "class_weight", "bounds"),
    "Neighbours": (
        *("n_neighbors", "adjust", "trend", "smoothing", "weighting", "similarity"),
        *("softstep", "learn_feature_weights", "algorithm", "half_life"),
    ),
    "Input": ("table_encoder", "numerical_embedding", "feature_extractor"),
    "Training": ("validation_fraction", "training", "warm_start", "verbose"),
}


@storable_parameters()
class TrainingOptions(Documented, BaseEstimator):
    """Options of training, a value of the parameter `training` of the estimators.

    The defaults suit most tables. 'auto' depends on the number of rows, and on whether the
    estimator has a trend or a feature extractor.

    Parameters
    ----------
    batch_size : int or 'auto', default='auto'
        Number of queries in a step. 'auto': about 4 steps an epoch, and 8 for classes, of a power
        of two from 32 to 512, or 1,024 for more than 65,536 rows; 16 steps of up to 256 with a
        feature extractor; 256 for SoftStep k-NN. An epoch of a table with more than 65,536 rows
        takes a new random sample of 65,536.

    neighbor_pool : {'auto', 'dataset', 'batch', 'near', 'memory'}, default='auto'
        The neighbours in a step. 'dataset': the batch and random training rows, which are all
        embedded. 'batch': the batch itself, as in the NONA paper. 'near': the batch itself, which
        consists of rows that are near one another in the embedding. 'memory': as 'dataset', but
        rows outside the batch have their last known embedding, without gradient. A row is never
        its own neighbour. 'auto': 'dataset', and 'near' for a table with more than 65,536 rows;
        with a feature extractor, whose embeddings take long, 'batch', or 'memory' if its
        `micro_batch_size` splits the batch.

    pool_size : int or 'auto', default='auto'
        Number of neighbours in a step, including its batch, and for the validation rows; all
        training rows if there are fewer. With ``neighbor_pool='batch'`` and 'near' it applies to
        the validation rows only. 'auto': 2,048, and 4,096 for a table with more than 65,536 rows;
        1,024 for SoftStep k-NN.

    learning_rate : {'auto', 'constant', 'cosine'}, default='auto'
        How the learning rate changes. 'cosine': it decreases to 0 over `max_iter` epochs, by half
        a cosine, and training stops early only if `n_iter_no_change` is set. 'auto': 'constant';
        for a table with more than 65,536 rows 'cosine', over ten passes, within 16 to 200 epochs.

    learning_rate_init : float or 'auto', default='auto'
        Learning rate of AdamW. 'auto': 0.02; for classes, with a feature extractor and for a
        table with more than 65,536 rows, 0.01; for SoftStep k-NN 0.03.

    weight_decay : float, default=1e-4
        Decoupled weight decay of the embedding, per unit of learning rate.

    n_iter_no_change : int or 'auto', default='auto'
        Training stops after this many epochs without improvement of the validation loss or,
        without validation rows, of the training loss. 'auto': 3 with a trend, else 9; 24 for a
        table with more than 65,536 rows and a constant learning rate; 10 with a feature
        extractor and for SoftStep k-NN.

    max_time : float or None, default=None
        Time limit of fit in seconds, for preparation, training and the embedding of the training
        rows. A network gets an equal share of the time that is left when it starts. An epoch
        that would exceed the limit is not started, but every network trains for at least one
        epoch. A trend is not limited. None: no limit.

    callbacks : list of skorch callbacks or None, default=None
        Further callbacks for training, such as :class:`skorch.callbacks.LRScheduler`,
        :class:`~skorch.callbacks.Freezer` and :class:`~skorch.callbacks.ProgressBar`. Early
        stopping, and the clipping of gradients to a norm of 1, stay. Fits use copies. The
        extractor's parameters are named ``embedding.extractor.*``. If a callback raises
        KeyboardInterrupt, fit ends without a model, as with Ctrl-C.

    Examples
    --------
    A search sets an option by its nested name:

    >>> from nona_sklearn import NONARegressor, TrainingOptions
    >>> reg = NONARegressor(training=TrainingOptions(batch_size=64))
    >>> reg.set_params(training__pool_size=512).training
    TrainingOptions(batch_size=64, pool_size=512)
    """

    _parameter_constraints: dict = {
        "batch_size": [Interval(Integral, 2, MOST, closed="both"), AUTO],
        "neighbor_pool": [StrOptions({*NEIGHBOR_POOLS, "auto"})],
        "pool_size": [Interval(Integral, 2, None, closed="left"), AUTO],
        "learning_rate": [StrOptions({"auto", "constant", "cosine"})],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither"), AUTO],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [POSITIVE, AUTO],
        "max_time": [Interval(Real, 0, MOST, closed="right"), None],
        "callbacks": [list, tuple, None],
    }

    def __init__(
        self,
        *,
        batch_size: int | str = "auto",
        neighbor_pool: str = "auto",
        pool_size: int | str = "auto",
        learning_rate: str = "auto",
        learning_rate_init: float | str = "auto",
        weight_decay: float = 1e-4,
        n_iter_no_change: int | str = "auto",
        max_time: float | None = None,
        callbacks: Any = None,
    ):
        self.batch_size = batch_size
        self.neighbor_pool = neighbor_pool
        self.pool_size = pool_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.weight_decay = weight_decay
        self.n_iter_no_change = n_iter_no_change
        self.max_time = max_time
        self.callbacks = callbacks


#: Parameters that are objects with parameters of their own, and have the defaults where None.
COMPONENTS: dict[str, type] = {"table_encoder": TableEncoder, "training": TrainingOptions}


def step_of(softstep: Any, scale: str) -> Any:
    """Return the step that a value stands for; the step of a name acts on the scale."""
    return SoftStep(softstep, on=scale) if isinstance(softstep, str) else softstep


def component_of(name: str, value: Any, scale_of_step: str) -> Any:
    """Return the object whose parameters nested names set, or the value if it has none."""
    if name in COMPONENTS and value is None:
        return COMPONENTS[name]()
    if name == "softstep":
        return step_of("s1" if value is None else value, scale_of_step)
    return ASSoftmax.of(value) if name == "loss" else value


COMMON_CONSTRAINTS: dict = {
    "table_encoder": [TableEncoder, None],
    "hidden_layer_sizes": ["array-like", POSITIVE, None],
    "embedding_dim": [POSITIVE],
    "similarity": [StrOptions({"auto", FEATURES}), StrOptions(SIMILARITIES.keys())],
    "weighting": [StrOptions(WEIGHTINGS.keys()), Weighting],
    "n_neighbors": [POSITIVE, AUTO, None],
    "algorithm": [StrOptions(ALGORITHMS.keys()), HasMethods(["fit", "transform"])],
    "trend": [
        StrOptions({"auto", "additive", "kernel"}),
        HasMethods(["fit", "predict", "get_params"]),
        None,
    ],
    "half_life": [Real, timedelta, np.timedelta64, None],
    "max_iter": [POSITIVE],
    "validation_fraction": [
        Interval(Real, 0, 1, closed="neither"),
        HasMethods(["split", "get_n_splits"]),
        None,
    ],
    "training": [TrainingOptions, None],
    "device": [str, torch.device],
    "warm_start": ["boolean"],
    "verbose": ["verbose"],
    "random_state": ["random_state"],
}
NONA_CONSTRAINTS: dict = {
    **COMMON_CONSTRAINTS,
    "feature_extractor": [callable, FeatureExtractor, None],
    "numerical_embedding": [StrOptions({"auto", "periodic"}), None],
    "softstep": [StrOptions(STEPS.keys()), SoftStep, None],
    "adjust": ["boolean", AUTO],
    "n_estimators": [POSITIVE, AUTO],
    "n_jobs": [
        Interval(Integral, None, -1, closed="right"),
        Interval(Integral, 1, None, closed="left"),
        None,
    ],
}
SOFTSTEP_CONSTRAINTS: dict = {
    **COMMON_CONSTRAINTS,
    "softstep": [StrOptions(STEPS.keys()), SoftStep],
    "learn_feature_weights": ["boolean"],
}


#: Hints for scikit-learn's names of values.
NAMES_HERE: dict[str, dict[str, str]] = {
    "similarity": {
        "euclidean": "'l2' is the Euclidean distance",
        "minkowski": "'l2' is the Euclidean distance",
        "manhattan": "'l1' is the Manhattan distance",
        "cityblock": "'l1' is the Manhattan distance",
    },
    "weighting": {"distance": "similarity='log_l2' makes weights of inverse distances"},
}


def validate_parameters(estimator: Any) -> None:
    """Validate parameters and their components, with hints for scikit-learn's names of values."""
    try:
        estimator._validate_params()
    except InvalidParameterError as error:
        for name, values in NAMES_HERE.items():
            value = getattr(estimator, name, None)
            if isinstance(value, str) and value in values and f"'{name}'" in str(error):
                raise InvalidParameterError(f"{error} {values[value]}") from None
        raise
    for name in COMPONENTS:
        if (component := getattr(estimator, name)) is not None:
            component._validate_params()
    for method in ("fit", "fit_transform", "transform"):
        kind = type(estimator.table_encoder or TableEncoder())
        if getattr(kind, method) is not getattr(TableEncoder, method):
            raise InvalidParameterError(
                f"table_encoder must be a TableEncoder with the methods of TableEncoder, got a "
                f"{kind.__name__} with its own {method}, which fit would not call: put it before "
                "the estimator, in a pipeline"
            )


# Files of 0.2.0 have a parameter `max_accumulation`.
@storable_parameters(upgrade=lambda old: {k: v for k, v in old.items() if k != "max_accumulation"})
class ASSoftmax(Documented, BaseEstimator):
    """AS-Softmax [1]_ with its margin, a value of the parameter `loss` of classifiers.

    Parameters
    ----------
    margin : float, default=0.1
        A class is ignored if its probability is below the probability of the true class by more
        than the margin. A margin of 1 is the log loss.

    See Also
    --------
    nona_sklearn.losses.ASSoftmaxLoss : The loss.

    References
    ----------
    .. [1] Lv et al., "AS-Softmax", 2025, arXiv:2508.03175.

    Examples
    --------
    >>> from nona_sklearn import ASSoftmax, NONAClassifier
    >>> NONAClassifier(loss=ASSoftmax(margin=0.2)).get_params()["loss__margin"]
    0.2
    """

    _parameter_constraints: dict = {
        "margin": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(self, margin=0.1):
        self.margin = margin

    @classmethod
    def of(cls, loss):
        """Return an instance for a classifier's parameter `loss`, or None for the log loss."""
        if isinstance(loss, str):
            return cls() if loss == "as_softmax" else None
        return loss

    def validate(self):
        """Raise an error that names an invalid parameter."""
        self._validate_params()


#: Constraints of parameters that only regressors have.
REGRESSOR_CONSTRAINTS: dict = {"bounds": [StrOptions(NAMED_BOUNDS.keys()), tuple, list, None]}
#: Constraints of parameters that only classifiers have.
CLASSIFIER_CONSTRAINTS: dict = {
    "loss": [StrOptions({"log_loss", "as_softmax"}), ASSoftmax],
    "class_weight": [StrOptions({"balanced"}), dict, list, None],
}

#: Neighbours of a network in training with n_neighbors='auto', for numbers and for classes. With
#: fewer neighbours, gradients come from few rows; for classes, few votes are noisy probabilities.
START_N_NEIGHBORS, START_N_NEIGHBORS_OF_CLASSES = 10, 32
N_NEIGHBORS = 3, 5, 7, 10, 14, 20, 30, 50, 70, 100  # tried after training
#: Least number of neighbours of all networks together. On diabetes, where 45 rows choose, one
#: network had 2 % more error than with all rows, and 4 % with a lower limit.
LEAST_ROWS = 10

#: Values of 'auto'. Steps are large and quick on a table, small and costly with an extractor. The
#: size of a batch is resolved with the number of rows of a split.
OF_TABLES = {
    "batch_size": "auto",
    "learning_rate_init": 0.02,
    "n_iter_no_change": 9,
    "pool_size": 2048,
    "neighbor_pool": "dataset",
    "learning_rate": "constant",
}
#: Values with more rows than `LARGE`: few random rows of so many are near.
OF_LARGE_TABLES = {
    "learning_rate_init": 0.01,
    "n_iter_no_change": 24,
    "pool_size": 4096,
    "neighbor_pool": "near",
    "learning_rate": "cosine",
}
#: Passes over so many rows, and limits of the epochs, of 65,536 rows, that they make.
N_PASSES_OF_LARGE, LEAST_EPOCHS_OF_LARGE, MOST_EPOCHS_OF_LARGE = 10, 16, 200
OF_CLASSES = OF_TABLES | {"learning_rate_init": 0.01}  # classes are memorised sooner
#: Values with a trend: its share of predictions needs neither many networks nor late epochs.
BESIDE_TREND, N_NETWORKS_BESIDE_TREND = {"n_iter_no_change": 3}, 2
OF_EXTRACTORS = OF_TABLES | {"learning_rate_init": 0.01, "n_iter_no_change": 10}
OF_SOFTSTEP = {
    "batch_size": 256,
    "learning_rate_init": 0.03,
    "n_iter_no_change": 10,
    "pool_size": 1024,
    "neighbor_pool": "dataset",
    "learning_rate": "constant",
}


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the torch.device of the parameter `device`, or raise if the machine lacks it."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        one = torch.ones(1, device=device)
        one.item()  # fails on a device that has no values, such as 'meta'
        return one.device
    except (RuntimeError, AssertionError) as error:
        usable = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        usable += ["mps"] if torch.backends.mps.is_available() else []
        lacks = "" if torch.version.cuda else "; this build of torch is without CUDA"
        raise ValueError(
            f"device must be one that torch can use here, of {usable}{lacks}, got {device!r}"
        ) from error


def check_layer_sizes(hidden_layer_sizes: Any) -> list[int]:
    """Return the widths of hidden layers."""
    sizes = np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)).tolist()
    if not all(is_whole(size, 1) for size in sizes):
        raise ValueError(
            f"hidden_layer_sizes must be positive integers, got {hidden_layer_sizes!r}"
        )
    return sizes
