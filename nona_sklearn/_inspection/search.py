"""Search spaces: distributions and small grids of the parameters that changed accuracy."""

from __future__ import annotations

from copy import copy
from typing import Any

from scipy.stats import loguniform

from .._estimators.nona import NONAClassifier, NONARegressor
from .._estimators.softstep import SoftStepKNeighborsClassifier, SoftStepKNeighborsRegressor
from .._network.extractor import FeatureExtractor

DIMENSIONS = [8, 16, 32, 64, 128]
DISTRIBUTIONS: dict[str, dict] = {
    "nona": {
        "learning_rate_init": loguniform(3e-3, 5e-2),
        "hidden_layer_sizes": [(64,), (128,), (256,), (128, 128)],
        "embedding_dim": DIMENSIONS,
        "weighting": ["softmax", "sigmoid", "preconditioned"],
        "softstep": [None, "s1"],
        "adjust": [True, False],
    },
    "table": {"numerical_embedding": ["auto", None]},
    "extractor": {"feature_extractor__learning_rate": loguniform(1e-5, 1e-3)},
    "softstep": {
        "learning_rate_init": loguniform(3e-3, 1e-1),
        "similarity": ["auto", "log_l2", "l2", "l1"],
        "softstep": ["s1", "s2"],
    },
    "given": {
        "weighting": ["softmax", "uniform"],
        "softstep_on": ["rank", "similarity"],
        "learn_feature_weights": [True, False],
    },
    "learned": {"embedding_dim": DIMENSIONS},
}
GRIDS: dict[str, dict] = {
    "nona": {"learning_rate_init": [0.007, 0.02], "adjust": [True, False]},
    "table": {"weighting": ["softmax", "preconditioned"]},
    "extractor": {"feature_extractor__learning_rate": [3e-5, 1e-4]},
    "softstep": {"similarity": ["auto", "log_l2"], "learning_rate_init": [0.01, 0.03]},
    "given": {"weighting": ["softmax", "uniform"]},
    "learned": {"embedding_dim": [8, 32]},
}


def param_distributions(estimator: Any) -> dict[str, Any]:
    """Distributions of parameters for a random search around an estimator.

    They contain the parameters that changed accuracy in our benchmarks, over the ranges in which
    they did, including the defaults. `n_estimators` is not among them, since more networks are
    nearly always slightly better: search with one, and fit the best with several.

    Parameters
    ----------
    estimator : estimator
        A `NONARegressor`, `NONAClassifier`, `SoftStepKNeighborsRegressor` or
        `SoftStepKNeighborsClassifier`; or a model that contains one, such as a
        :class:`~sklearn.pipeline.Pipeline`: then parameters have the names of this model.

    Returns
    -------
    dict of str to list or scipy.stats distribution
        `param_distributions` of :class:`~sklearn.model_selection.RandomizedSearchCV` and
        :class:`~sklearn.model_selection.HalvingRandomSearchCV`; a new dict that may be changed.

    Raises
    ------
    TypeError
        If `estimator` is none of these, and contains none.

    Notes
    -----
    Of NONA: `learning_rate_init`, `hidden_layer_sizes`, `embedding_dim`, `weighting`, `softstep`,
    `adjust`, and `numerical_embedding` or, with a `feature_extractor`,
    `feature_extractor__learning_rate`.
    Of SoftStep k-NN: `learning_rate_init`, `similarity`, `softstep`, and `embedding_dim` in a
    learned space (`hidden_layer_sizes`), else `weighting`, `softstep_on`, `learn_feature_weights`.

    Examples
    --------
    >>> from sklearn.model_selection import RandomizedSearchCV
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, param_distributions
    >>> knn = SoftStepKNeighborsRegressor()
    >>> distributions = param_distributions(knn)
    >>> sorted(distributions)
    ['learn_feature_weights', 'learning_rate_init', 'similarity', 'softstep', 'softstep_on',
     'weighting']
    >>> distributions["similarity"]
    ['auto', 'log_l2', 'l2', 'l1']
    >>> search = RandomizedSearchCV(knn, distributions, n_iter=20, random_state=0)
    """
    return _of_each(estimator, DISTRIBUTIONS)


def param_grid(estimator: Any) -> dict[str, list]:
    """Small grid of parameters for an exhaustive search: eight combinations.

    It contains the parameters that changed accuracy most; see :func:`param_distributions`.

    Parameters
    ----------
    estimator : estimator, as for :func:`param_distributions`

    Returns
    -------
    dict of str to list
        `param_grid` of :class:`~sklearn.model_selection.GridSearchCV` and
        :class:`~sklearn.model_selection.HalvingGridSearchCV`; a new dict that may be changed.

    Examples
    --------
    >>> from sklearn.model_selection import ParameterGrid
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nona_sklearn import NONARegressor, param_grid
    >>> grid = param_grid(make_pipeline(StandardScaler(), NONARegressor(n_estimators=1)))
    >>> sorted(grid)[0]
    'nonaregressor__adjust'
    >>> len(ParameterGrid(grid))
    8
    """
    return _of_each(estimator, GRIDS)


def _of_each(estimator, spaces):
    """Spaces of all our estimators in a model, with its names for their parameters."""
    parts = {"": estimator}
    if hasattr(estimator, "get_params") and not isinstance(estimator, type):
        parts |= {f"{name}__": part for name, part in estimator.get_params().items()}
    found = {
        f"{prefix}{name}": copy(values)
        for prefix, part in parts.items()
        for kind in _kinds(part)
        for name, values in spaces[kind].items()
    }
    if not found:
        raise TypeError(
            "estimator must be one of nona_sklearn, or hold one, such as a pipeline, got "
            f"{estimator!r:.100}"
        )
    return found


def _kinds(estimator):
    """Keys of the spaces of an estimator: its family, and where it compares rows."""
    if isinstance(estimator, NONARegressor | NONAClassifier):
        if estimator.feature_extractor is None:
            return "nona", "table"
        nested = isinstance(estimator.feature_extractor, FeatureExtractor)
        return ("nona", "extractor") if nested else ("nona",)
    if isinstance(estimator, SoftStepKNeighborsRegressor | SoftStepKNeighborsClassifier):
        return "softstep", "given" if estimator.hidden_layer_sizes is None else "learned"
    return ()
