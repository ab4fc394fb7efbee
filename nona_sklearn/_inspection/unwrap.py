"""The estimator inside a model of scikit-learn, with the features and targets of the model."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from inspect import isfunction
from typing import Any, TypeVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .._data.embedded import Embedded
from .._data.names import Names
from .._estimators.attributions import Adjustments, adjustments_of
from .._estimators.base import NeighborEstimator
from .._estimators.classification import NeighborClassifier
from .._estimators.dense import DenseHeadEstimator
from .._estimators.explanations import explain, explanation_table
from .._estimators.queries import drop_isolated
from .._estimators.regression import NeighborRegressor
from .._inference.explanation import Explanation
from .._utils.snapshots import snapshot
from .transformed import TransformedTargets

THRESHOLDS = FixedThresholdClassifier, TunedThresholdClassifierCV
#: Where the estimators are in models that combine several, or change their predictions.
SEVERAL = "calibrated_classifiers_[0].estimator", "estimators_[0]"

Class = TypeVar("Class", bound=type)


def _documented_as(original: type) -> Callable[[Class], Class]:
    """Give the methods of a class the docstrings of another class's."""

    def document(cls: Class) -> Class:
        for name, method in [*vars(cls).items()]:
            if isfunction(method) and hasattr(original, name) and not name.startswith("_"):
                method.__doc__ = getattr(original, name).__doc__
        return cls

    return document


@_documented_as(NeighborEstimator)
@dataclass(frozen=True)
class Unwrapped:
    """A fitted neighbour estimator inside a model, with the features and targets of the model.

    The result of :func:`unwrap`. Its methods are those of the estimator. An edit of the bank is
    an edit of the model.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or its classifier
        The fitted estimator.
    steps : tuple of transformer
        The transformations of the features before it, first to last.
    transformers : tuple of transformer
        The transformations of the targets before it, first to last.
    """

    estimator: NeighborEstimator
    steps: tuple
    transformers: tuple

    def snapshot(self):
        """Copy it, so that a fit or an edit in another thread does not change its results."""
        return replace(self, estimator=snapshot(self.estimator))

    @property
    def target_names_(self) -> tuple[str, ...] | None:
        """Names of the targets, if the estimator has any."""
        return getattr(self.estimator, "target_names_", None)

    def neighbor_targets(self) -> np.ndarray:
        """Targets of the bank's rows, (n,) or (n, n_outputs)."""
        raise NotImplementedError

    # -- queries ---------------------------------------------------------------------------

    def explanation(self, X, n_neighbors=None) -> Explanation:
        """What predictions consist of: at most `n_neighbors` rows each, or all with weight."""
        return explain(self.estimator, self._embed(X), n_neighbors)

    def heaviest_neighbors(self, X=None, n_neighbors=5, *, return_names=False):
        return self.estimator.heaviest_neighbors(
            self._embed(X), n_neighbors, return_names=return_names
        )

    def kneighbors(self, X=None, n_neighbors=None, return_distance=True, *, return_names=False):
        return self.estimator.kneighbors(
            self._embed(X), n_neighbors, return_distance, return_names=return_names
        )

    def kneighbors_graph(self, X=None, n_neighbors=None, mode="connectivity"):
        return self.estimator.kneighbors_graph(self._embed(X), n_neighbors, mode)

    def neighbor_weights(self, X=None, *, tolerance=0.0):
        return self.estimator.neighbor_weights(self._embed(X), tolerance=tolerance)

    def effective_n_neighbors(self, X=None):
        return self.estimator.effective_n_neighbors(self._embed(X))

    def n_nonzero_weights(self, X=None):
        return self.estimator.n_nonzero_weights(self._embed(X))

    def soft_n_neighbors(self, X=None):
        return self.estimator.soft_n_neighbors(self._embed(X))

    def distance_to_bank(self, X=None):
        return self.estimator.distance_to_bank(self._embed(X))

    def influence(self, X=None, y=None):
        return self.estimator.influence(self._embed(X, y), self._transform_targets(y))

    def neighbor_stability(
        self, X=None, *, n_refits=10, subsample=0.9, n_neighbors=10, random_state=0
    ):
        options = {"n_refits": n_refits, "subsample": subsample, "random_state": random_state}
        return self.estimator.neighbor_stability(
            self._embed(X), n_neighbors=n_neighbors, **options
        )

    def attribute_distances(self, X=None, features=None, *, n_neighbors=None):
        return self.estimator.attribute_distances(
            self._transform(X), self._transform(features), n_neighbors=n_neighbors
        )

    def adjustments(self, X, features, n_neighbors=None) -> Adjustments:
        """How each column moves the neighbours of queries."""
        rows = self._transform(X), self._transform(features)
        return adjustments_of(self.estimator, *rows, n_neighbors)

    def embed(self, X):
        return self.estimator.embed(self._embed(X))

    def transform(self, X):
        return self.estimator.transform(self._transform(X))  # a table, if that is its output

    # -- edits -----------------------------------------------------------------------------

    def add_neighbors(
        self,
        X,
        y,
        sample_weight=None,
        *,
        times=None,
        groups=None,
        max_rows=None,
        max_age=None,
    ):
        rows, targets = self._embed(X, y), self._transform_targets(y)
        options = {"times": times, "groups": groups, "max_rows": max_rows, "max_age": max_age}
        return self.estimator.add_neighbors(rows, targets, sample_weight, **options)

    def remove_neighbors(self, *, ids=None, names=None, return_receipt=False):
        receipt = self.estimator.remove_neighbors(
            ids=ids, names=names, return_receipt=return_receipt
        )
        return receipt if return_receipt else self

    def set_neighbor_targets(self, y):
        self.estimator.set_neighbor_targets(self._transform_targets(y))
        return self

    def compress(self, n_neighbors, X=None):
        self.estimator.compress(n_neighbors, self._embed(X))
        return self

    # -- transformations -------------------------------------------------------------------

    def _embed(self, X, y=None) -> Embedded | None:
        """Transform and embed queries, and keep their names."""
        if X is None or isinstance(X, Embedded):
            return X
        return replace(self.estimator.embed(self._transform(X)), labels=Names.of(X, y).rows)

    def _transform(self, X):
        """Transform queries by the steps, unless they are embedded already, or the bank's."""
        if X is not None and not isinstance(X, Embedded):
            for step in self.steps:
                X = step.transform(X)
        return X

    def _transform_targets(self, y):
        if y is None or not self.transformers:
            return y
        return TransformedTargets(self.estimator, self.transformers).forward(y)


def _table(model: Unwrapped, X: Any, n_neighbors: int | None, features: Any) -> Any:
    """Table of an explanation, beside the features before all steps."""
    return explanation_table(model.estimator, model.explanation(X, n_neighbors), X, features)


@_documented_as(NeighborRegressor)
class UnwrappedRegressor(Unwrapped):
    """:class:`Unwrapped` for numbers."""

    @property
    def _predictor(self) -> Any:
        """What predicts in the units of `y`."""
        if not self.transformers:
            return self.estimator
        estimator: Any = self.estimator
        return TransformedTargets(estimator, self.transformers)

    def neighbor_targets(self) -> np.ndarray:
        targets = self.estimator.bank_.targets.cpu().numpy()
        return self._predictor.decode(targets) if self.transformers else targets

    def explanation(self, X, n_neighbors=None) -> Explanation:
        found = super().explanation(X, n_neighbors)
        return found.in_units(self._predictor.back) if self.transformers else found

    def explain(self, X=None, n_neighbors=None, *, features=None):
        return _table(self.snapshot(), X, n_neighbors, features)

    def attribute_adjustments(self, X=None, features=None, *, n_neighbors=None):
        if self.transformers:
            raise ValueError(
                "attribute_adjustments needs targets that are not transformed: adjustments are in "
                "the units in which they add up, those of unwrap(model).estimator"
            )
        return self.estimator.attribute_adjustments(
            self._transform(X), self._transform(features), n_neighbors=n_neighbors
        )

    def attribute_predictions(self, X=None):
        if self.transformers:
            raise ValueError(
                "attribute_predictions needs targets that are not transformed: parts are in the "
                "units in which they add up, those of unwrap(model).estimator"
            )
        return self.estimator.attribute_predictions(self._transform(X))

    def predict(self, X, return_std=False, quantiles=None):
        return self._predictor.predict(self._embed(X), return_std, quantiles)

    def score(self, X, y, sample_weight=None):
        return RegressorMixin.score(self, *drop_isolated(self.estimator, X, y, sample_weight))

    def predict_quantiles(self, X, quantiles=(0.1, 0.5, 0.9)):
        return self._predictor.predict_quantiles(self._embed(X), quantiles)

    def predict_cdf(self, X, y):
        return self._predictor.predict_cdf(self._embed(X), y)

    def sample_y(self, X, n_samples=1, random_state=0):
        return self._predictor.sample_y(self._embed(X), n_samples, random_state)

    def calibrate(self, X=None, y=None, *, times=None, n_latest=None):
        truth = self._transform_targets(y)
        self.estimator.calibrate(self._embed(X, y), truth, times=times, n_latest=n_latest)
        return self


@_documented_as(NeighborClassifier)
@dataclass(frozen=True)
class UnwrappedClassifier(Unwrapped):
    """:class:`Unwrapped` for classes.

    Parameters
    ----------
    threshold : FixedThresholdClassifier or TunedThresholdClassifierCV, optional
        What chooses the class, directly around the estimator. None: the most probable.
    """

    threshold: Any = None

    @property
    def classes_(self) -> np.ndarray | list[np.ndarray]:
        """The labels, sorted; of several outputs a list of such arrays."""
        return self.estimator.classes_

    def neighbor_targets(self) -> np.ndarray:
        return self.estimator.targets_.decode(self.estimator.bank_.targets)

    def explain(self, X=None, n_neighbors=None, *, features=None):
        return _table(self.snapshot(), X, n_neighbors, features)

    def predict(self, X):
        predictor = self.estimator if self.threshold is None else self.threshold
        return predictor.predict(self._embed(X))

    def score(self, X, y, sample_weight=None):
        return ClassifierMixin.score(self, *drop_isolated(self.estimator, X, y, sample_weight))

    def attribute_adjustments(self, X=None, features=None, *, n_neighbors=None):
        return self.estimator.attribute_adjustments(
            self._transform(X), self._transform(features), n_neighbors=n_neighbors
        )

    def attribute_predictions(self, X=None):
        return self.estimator.attribute_predictions(self._transform(X))

    def predict_proba(self, X):
        return self.estimator.predict_proba(self._embed(X))

    def predict_log_proba(self, X):
        return self.estimator.predict_log_proba(self._embed(X))


def unwrap(model: Any) -> Any:
    """Access the neighbour estimator inside a model, with the model's features and targets.

    The transformations of the rows before the estimator are applied to queries, too. Their
    names, in the index of their table, are kept. Targets, adjusted targets, predictions,
    quantiles, probabilities and draws are in the units of the `y` that the model was fitted to:
    for a model that learns logarithms of prices, in prices.

    Parameters
    ----------
    model : estimator
        Fitted: a NONARegressor, SoftStepKNeighborsRegressor, or one of their classifiers; or a
        model around such a model: a :class:`~sklearn.pipeline.Pipeline` that ends in it, a
        :class:`~sklearn.compose.TransformedTargetRegressor`, a search, such as
        :class:`~sklearn.model_selection.GridSearchCV`, a :class:`~sklearn.frozen.FrozenEstimator`,
        a :class:`~sklearn.model_selection.FixedThresholdClassifier` or a
        :class:`~sklearn.model_selection.TunedThresholdClassifierCV`, with its threshold.

    Returns
    -------
    Unwrapped
        With the estimator itself, as ``estimator``, and its methods: ``predict``, ``explain``,
        ``kneighbors``, ``add_neighbors`` and so on. Edits are edits of the model.

    Raises
    ------
    TypeError
        If the model contains none of our estimators, or several, or a classifier with transformed
        labels or calibrated probabilities: contributions would not add up. The message names one
        of ``calibrated_classifiers_`` or ``estimators_`` that can be unwrapped instead.
    NotFittedError
        If the model is not fitted.

    Notes
    -----
    With transformed targets

    - a contribution is the product of the weight and the adjusted target; the line
      "transformation" is the rest of the prediction, the difference between transforming a mean
      and averaging transformed values. Targets of "others" are their means, transformed back;
    - standard deviations are those of the distribution in the units of `y`, by quadrature over its
      quantiles;
    - quantiles and probabilities need a monotonic transformation, of each output by itself; draws
      do not;
    - ``change`` and ``error`` of ``influence`` are in the estimator's units;
    - a single output has no axis of its own in the results.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.compose import TransformedTargetRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, unwrap
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> logarithms = TransformedTargetRegressor(knn, func=np.log, inverse_func=np.exp)
    >>> model = make_pipeline(StandardScaler(), logarithms).fit(X, y)
    >>> unwrap(model).explain([[110]])[["neighbor", "target", "contribution"]].round(1)
             neighbor  target  contribution
    0               3   450.0         225.0
    1               4   600.0         300.0
    2  transformation     NaN          -5.4
    >>> model.predict([[110]]).round(1)
    array([519.6])
    """
    if isinstance(model, Unwrapped):
        return model
    inner, path = model, _Path()
    while not isinstance(inner, NeighborEstimator | DenseHeadEstimator):
        inner = _step_into(inner, path, model)
    check_is_fitted(inner)
    steps, transformers = tuple(path.steps), tuple(path.transformers)
    if not is_classifier(inner):
        return UnwrappedRegressor(inner, steps, transformers)
    if transformers:
        raise TypeError(f"model must leave a classifier's labels as they are, got {model!r}")
    threshold = copy(path.thresholds[0]) if path.thresholds else None
    if threshold is not None:
        threshold.estimator_ = inner  # without the steps between, which queries have passed
    return UnwrappedClassifier(inner, steps, (), threshold)


def unwrap_one_output(name: str, model: Any) -> Any:
    """A snapshot of what is inside a model of one output, for a function of this name."""
    model = unwrap(model).snapshot()
    several = isinstance(getattr(model, "classes_", None), list)
    if several or model.neighbor_targets().ndim > 1:
        raise ValueError(f"{name} needs a model of one output, got several: fit one for each")
    return model


@dataclass
class _Path:
    """What lies around an estimator, from the outside to the inside."""

    steps: list = field(default_factory=list)
    transformers: list = field(default_factory=list)
    thresholds: list = field(default_factory=list)


def _step_into(outer, path: _Path, model):
    """Return what a model is around, and add to the path what it does itself."""
    if isinstance(outer, Pipeline):
        path.steps += [step for _, step in outer.steps[:-1] if hasattr(step, "transform")]
        return outer.steps[-1][1]
    if isinstance(outer, TransformedTargetRegressor):
        check_is_fitted(outer)
        path.transformers.append(outer.transformer_)
        return outer.regressor_
    if isinstance(outer, FrozenEstimator):
        return outer.estimator
    if isinstance(outer, THRESHOLDS):
        if isinstance(outer, TunedThresholdClassifierCV):
            check_is_fitted(outer)  # a fixed threshold needs no fit around a fitted classifier
        path.thresholds.append(outer)
        return getattr(outer, "estimator_", outer.estimator)
    if _is_search(outer):
        check_is_fitted(outer, "best_estimator_")
        return outer.best_estimator_
    raise TypeError(
        "model must be a NONARegressor or SoftStepKNeighborsRegressor, one of their "
        "classifiers, or a Pipeline, TransformedTargetRegressor, search or threshold "
        f"around one, {_advice(outer)}got {model!r}"
    )


def _advice(model) -> str:
    """Where the estimators are in a model with predictions other than theirs."""
    for where in SEVERAL:
        if hasattr(model, where.partition("[")[0]):
            name = type(model).__name__
            return (
                f"and {name} changes the predictions of the estimators in it: unwrap its {where}; "
            )
    return ""


def _is_search(model) -> bool:
    """Whether it is a search, of scikit-learn or not: ``best_estimator_`` is set by its fit."""
    unfitted = hasattr(model, "estimator") and hasattr(model, "refit")
    return unfitted or hasattr(model, "best_estimator_")
