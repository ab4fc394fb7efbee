"""Constraints of parameters that several estimators share, and values of 'auto'."""

from __future__ import annotations

from collections import ChainMap
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
)

from .._data.table_encoder import TableEncoder
from .._data.targets import NAMED_BOUNDS
from .._inference.index import ALGORITHMS
from .._network.extractor import FeatureExtractor
from .._training.pools import NEIGHBOR_POOLS
from .._utils.bases import BaseEstimator
from .._utils.docs import Documented
from .._utils.storable import CHOICES, storable_parameters
from .._utils.validation import is_whole
from ..similarity import SIMILARITIES
from ..softstep import STEP_SCALES, STEPS
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
        *("n_estimators", "max_iter", "max_time", "hidden_layer_sizes", "embedding_dim"),
        *("n_jobs", "device", "random_state"),
    ),
    "Target": ("loss", "class_weight", "bounds"),
    "Neighbours": (
        *("n_neighbors", "adjust", "trend", "smoothing", "weighting", "similarity"),
        *("softstep", "softstep_on", "softstep_params", "learn_feature_weights", "algorithm"),
    ),
    "Table input": (
        *("categorical_features", "text_features", "max_categories", "numerical_embedding"),
    ),
    "Fine-tuning": ("feature_extractor", "callbacks"),
    "Training details": (
        *("early_stopping", "validation_fraction", "n_iter_no_change", "batch_size"),
        *("learning_rate_init", "weight_decay", "neighbor_pool", "pool_size"),
        *("warm_start", "verbose"),
    ),
}

COMMON_CONSTRAINTS: dict = {
    "categorical_features": TableEncoder._parameter_constraints["categorical_features"],
    "text_features": TableEncoder._parameter_constraints["text_features"],
    "max_categories": TableEncoder._parameter_constraints["max_categories"],
    "similarity": [StrOptions({"auto", FEATURES}), StrOptions(SIMILARITIES.keys())],
    "trend": [
        StrOptions({"auto", "additive", "kernel"}),
        HasMethods(["fit", "predict", "get_params"]),
        None,
    ],
    "n_neighbors": [POSITIVE, AUTO, None],
    "weighting": [StrOptions(WEIGHTINGS.keys()), Weighting],
    "algorithm": [StrOptions(ALGORITHMS.keys()), HasMethods(["fit", "transform"])],
    "embedding_dim": [POSITIVE],
    "neighbor_pool": [StrOptions(NEIGHBOR_POOLS.keys())],
    "pool_size": [Interval(Integral, 2, None, closed="left")],
    "batch_size": [Interval(Integral, 2, MOST, closed="both"), AUTO],
    "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
    "weight_decay": [Interval(Real, 0, None, closed="left")],
    "max_iter": [POSITIVE],
    "max_time": [Interval(Real, 0, MOST, closed="right"), None],
    "early_stopping": ["boolean"],
    "validation_fraction": [
        Interval(Real, 0, 1, closed="neither"),
        HasMethods(["split", "get_n_splits"]),
    ],
    "n_iter_no_change": [POSITIVE],
    "device": [str, torch.device],
    "warm_start": ["boolean"],
    "verbose": ["verbose"],
    "random_state": ["random_state"],
}
NONA_CONSTRAINTS: dict = {
    **COMMON_CONSTRAINTS,
    "feature_extractor": [callable, FeatureExtractor, None],
    "n_estimators": [POSITIVE, AUTO],
    "adjust": ["boolean", AUTO],
    "pool_size": [*COMMON_CONSTRAINTS["pool_size"], AUTO],
    "learning_rate_init": [*COMMON_CONSTRAINTS["learning_rate_init"], AUTO],
    "n_iter_no_change": [POSITIVE, AUTO],
    "hidden_layer_sizes": ["array-like", POSITIVE, None],
    "n_jobs": [
        Interval(Integral, None, -1, closed="right"),
        Interval(Integral, 1, None, closed="left"),
        None,
    ],
    "neighbor_pool": [StrOptions({*NEIGHBOR_POOLS, "auto"})],
    "callbacks": [list, tuple, None],
    "numerical_embedding": [StrOptions({"auto", "periodic"}), None],
    "softstep": [StrOptions(STEPS.keys()), dict, None],
}
SOFTSTEP_CONSTRAINTS: dict = {
    **COMMON_CONSTRAINTS,
    "softstep": [StrOptions(STEPS.keys())],
    "softstep_on": [StrOptions(STEP_SCALES.keys())],
    "softstep_params": [StrOptions({"global", "pointwise"})],
    "learn_feature_weights": ["boolean"],
    "hidden_layer_sizes": ["array-like", POSITIVE, None],
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
    """Validate an estimator's parameters, with hints for scikit-learn's names of values."""
    try:
        estimator._validate_params()
    except InvalidParameterError as error:
        for name, values in NAMES_HERE.items():
            value = getattr(estimator, name, None)
            if isinstance(value, str) and value in values and f"'{name}'" in str(error):
                raise InvalidParameterError(f"{error} {values[value]}") from None
        raise


def without_accumulation(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of AS-Softmax without `max_accumulation` of files before 0.3.0."""
    return {name: value for name, value in parameters.items() if name != "max_accumulation"}


@storable_parameters(upgrade=without_accumulation)
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

#: Values of 'auto'. Steps are large and quick on a table, small and costly with an extractor.
OF_TABLES = {
    "adjust": True,
    "average": True,
    "learning_rate_init": 0.02,
    "n_iter_no_change": 9,
    "pool_size": 2048,
}
#: Values with more rows than `LARGE`: only a large pool contains near neighbours, and losses
#: stay the same for many epochs before they fall.
OF_LARGE_TABLES = {"learning_rate_init": 0.01, "n_iter_no_change": 24, "pool_size": 4096}
OF_CLASSES = OF_TABLES | {"learning_rate_init": 0.01}  # classes are memorised sooner
#: Values with a trend: its share of predictions needs neither many networks nor late epochs.
BESIDE_TREND, N_NETWORKS_BESIDE_TREND = {"n_iter_no_change": 3}, 2
OF_EXTRACTORS = {
    "adjust": False,
    "average": False,
    "learning_rate_init": 0.01,
    "n_iter_no_change": 10,
    "pool_size": 2048,
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
