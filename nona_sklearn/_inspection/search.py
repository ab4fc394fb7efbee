"""What to search for: distributions and small grids of the parameters that moved accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scipy.stats import loguniform
from sklearn.base import BaseEstimator

from .._estimators.base import NeighborEstimator
from .._estimators.nona import NONAClassifier, NONARegressor
from .._network.extractor import FeatureExtractor


def param_distributions(estimator):
    """Distributions to draw parameters from, for a random search around an estimator.

    Those parameters that moved accuracy in our benchmarks, over ranges in which they did. A
    default is among the values of each. It tells nothing of `n_estimators`: more networks are
    nearly always a little better, so search with one, and fit the best with several.

    Parameters
    ----------
    estimator : estimator
        A `NONARegressor`, `NONAClassifier`, `SoftStepKNeighborsRegressor` or
        `SoftStepKNeighborsClassifier`; or what holds one, such as a
        :class:`~sklearn.pipeline.Pipeline`, whose names for its parameters are then given.

    Returns
    -------
    dict of str to list or scipy.stats distribution
        `param_distributions` of :class:`~sklearn.model_selection.RandomizedSearchCV` and
        :class:`~sklearn.model_selection.HalvingRandomSearchCV`. Yours to change.

    Raises
    ------
    TypeError
        If `estimator` is none of these, and holds none.

    Notes
    -----
    Drawn are

    - of NONA: `learning_rate_init`, `hidden_layer_sizes`, `embedding_dim`, `weighting`,
      `softstep`, `adjust`, and `numerical_embedding`; with a `feature_extractor`, instead of the
      last, `extractor_learning_rate`;
    - of SoftStep k-NN: `learning_rate_init`, `similarity`, `softstep`, and in the given space
      `weighting`, `softstep_on` and `learn_feature_weights`; in a learned one
      (`hidden_layer_sizes`) `embedding_dim`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import RandomizedSearchCV
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, param_distributions
    >>> X, y = load_diabetes(return_X_y=True)
    >>> knn = SoftStepKNeighborsRegressor(max_iter=5, random_state=0)
    >>> search = RandomizedSearchCV(
    ...     knn, param_distributions(knn), n_iter=2, cv=2, random_state=0
    ... ).fit(X, y)
    >>> search.best_params_["similarity"] in ("log_l2", "l2", "l1")
    True
    """
    return _of_each(estimator, _distributions)


def param_grid(estimator):
    """Give a small grid of parameters, for a search that tries them all.

    Eight combinations of what moved accuracy most; see :func:`param_distributions`.

    Parameters
    ----------
    estimator : estimator
        As for :func:`param_distributions`.

    Returns
    -------
    dict of str to list
        `param_grid` of :class:`~sklearn.model_selection.GridSearchCV` and
        :class:`~sklearn.model_selection.HalvingGridSearchCV`. Yours to change.

    Raises
    ------
    TypeError
        If `estimator` is none of these, and holds none.

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
    return _of_each(estimator, _grid)


def _of_each(estimator: Any, values: Callable[[BaseEstimator], dict]) -> dict[str, Any]:
    """Values for each of our estimators that this one holds, by its own names for them."""
    held = {"": estimator}
    if hasattr(estimator, "get_params") and not isinstance(estimator, type):
        parts = estimator.get_params().items()
        held |= {f"{name}__": part for name, part in parts}
    found = {
        f"{prefix}{name}": value
        for prefix, part in held.items()
        if isinstance(part, NeighborEstimator)
        for name, value in values(part).items()
    }
    if not found:
        raise TypeError(
            "estimator must be one of nona_sklearn, or hold one, such as a pipeline, got "
            f"{estimator!r:.100}"
        )
    return found


def _distributions(estimator: BaseEstimator) -> dict[str, Any]:
    if isinstance(estimator, (NONARegressor, NONAClassifier)):
        last: dict[str, Any] = {}
        if estimator.feature_extractor is None:
            last = {"numerical_embedding": ["auto", None]}
        elif isinstance(estimator.feature_extractor, FeatureExtractor):
            last = {"feature_extractor__learning_rate": loguniform(1e-5, 1e-3)}
        return {
            "learning_rate_init": loguniform(3e-3, 5e-2),
            "hidden_layer_sizes": [(64,), (128,), (256,), (128, 128)],
            "embedding_dim": [8, 16, 32, 64, 128],
            "weighting": ["softmax", "sigmoid", "preconditioned"],
            "softstep": [None, "s1"],
            "adjust": [True, False],
            **last,
        }
    always = {
        "learning_rate_init": loguniform(3e-3, 1e-1),
        "similarity": ["log_l2", "l2", "l1"],
        "softstep": ["s1", "s2"],
    }
    if estimator.hidden_layer_sizes is not None:
        return always | {"embedding_dim": [8, 16, 32, 64, 128]}
    return always | {
        "weighting": ["softmax", "uniform"],
        "softstep_on": ["rank", "similarity"],
        "learn_feature_weights": [True, False],
    }


def _grid(estimator: BaseEstimator) -> dict[str, list]:
    grid: dict[str, list]
    if isinstance(estimator, (NONARegressor, NONAClassifier)):
        grid = {"learning_rate_init": [0.007, 0.02], "adjust": [True, False]}
        if estimator.feature_extractor is None:
            return grid | {"weighting": ["softmax", "preconditioned"]}
        if isinstance(estimator.feature_extractor, FeatureExtractor):
            return grid | {"feature_extractor__learning_rate": [3e-5, 1e-4]}
        return grid
    grid = {"similarity": ["log_l2", "l2"], "learning_rate_init": [0.01, 0.03]}
    if estimator.hidden_layer_sizes is not None:
        return grid | {"embedding_dim": [8, 32]}
    return grid | {"weighting": ["softmax", "uniform"]}
