"""Our estimator inside a model of scikit-learn, asked in the model's own features and targets."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.base import is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .._data.embedded import Embedded
from .._data.names import Names
from .._data.target_checks import check_targets
from .._estimators.base import NeighborEstimator
from .._estimators.classification import NeighborClassifier
from .._estimators.dense import DenseHeadEstimator
from .._estimators.queries import explanation
from .._estimators.regression import NeighborRegressor, check_instead_of_mean
from .._inference.explanation import Explanation
from .._utils.validation import check_levels, check_numbers

NODES = np.linspace(-5, 5, 101)  # normal scores at which a distribution is looked at
CHECKED = 65  # values at which a transformation of targets is looked at
LARGEST = 1e300  # stands for infinity, which no target reaches
THRESHOLDS = FixedThresholdClassifier, TunedThresholdClassifierCV
#: Where an estimator lies in models that join several, or change what it answers.
SEVERAL = "calibrated_classifiers_[0].estimator", "estimators_[0]"


@dataclass(frozen=True)
class TransformedTargets:
    """What an estimator says of targets that were transformed for it, in their own units.

    Its verbs are those of the estimator that answer in targets, and take queries that this one
    understands.

    Parameters
    ----------
    estimator : NeighborRegressor
        Fitted.
    transformers : tuple of transformer
        What was done to the targets, first to last.
    """

    estimator: NeighborRegressor
    transformers: tuple

    # -- targets ---------------------------------------------------------------------------

    def forward(self, y: Any) -> np.ndarray:
        """Transform targets (n,) or (n, n_outputs), as for a fit."""
        y = check_targets(y)
        columns = self._forward(y.reshape(len(y), -1))
        lost = np.flatnonzero(~np.isfinite(columns).all(axis=1))
        if len(lost):
            raise ValueError(
                "y must be what the model's transformer takes, got "
                f"{y[lost[0]].tolist()!r} in row {lost[0]}"
            )
        return _without_single(columns)

    @np.errstate(all="ignore")  # what comes of it is looked at
    def _forward(self, columns: np.ndarray) -> np.ndarray:
        for transformer in self.transformers:
            columns = np.asarray(transformer.transform(columns)).reshape(len(columns), -1)
        return columns

    def back(self, values: np.ndarray) -> np.ndarray:
        """Undo it for values of any shape (..., n_outputs). What is not known stays so."""
        rows = values.reshape(-1, values.shape[-1])
        known = np.isfinite(rows).all(axis=1)
        columns = rows[known]
        for transformer in reversed(self.transformers):
            undone = np.asarray(transformer.inverse_transform(columns))
            columns = undone.reshape(len(columns), -1)
        found = np.full((len(rows), columns.shape[1]), np.nan)
        found[known] = columns
        return found.reshape(*values.shape[:-1], -1)

    def _answer(self, values: np.ndarray, n_axes: int) -> np.ndarray:
        """Undo it for an answer of some axes and, if there are several outputs, one for them."""
        return _without_single(self.back(values.reshape(*values.shape[:n_axes], -1)))

    def _rising(self) -> np.ndarray:
        """Which outputs rise with what the estimator knows of them, bool (n_outputs,)."""
        columns = self.estimator.bank_.neighbors.columns.cpu().numpy()
        low, high = columns.min(axis=0), columns.max(axis=0)
        alone = np.eye(len(low), dtype=bool)  # in row j only output j is high
        lowest, changed = self.back(low[None]), self.back(np.where(alone, high, low))
        if changed.shape != alone.shape or not np.isclose(changed, lowest)[~alone].all():
            raise ValueError(
                "the distribution of a target that is transformed together with others is not "
                "known, only draws from it: use sample_y"
            )
        between = self.back(low + (high - low) * np.linspace(0, 1, CHECKED)[:, None])
        steps, rising = np.diff(between, axis=0), (changed >= lowest)[alone]
        if not (np.where(rising, steps, -steps) >= 0).all():
            raise ValueError(
                "the distribution of a target that rises and falls with what the estimator knows "
                "is not known, only draws from it: use sample_y"
            )
        return rising

    # -- verbs -----------------------------------------------------------------------------

    def predict(self, X, return_std, quantiles):
        if quantiles is not None:
            check_instead_of_mean(return_std)
            return self.predict_quantiles(X, quantiles)
        mean = self._answer(self.estimator.predict(X), 1)
        return (mean, self._std(X)) if return_std else mean

    def _std(self, X) -> np.ndarray:
        """Standard deviations by quadrature, over quantiles at equally spaced normal scores."""
        quantiles = self.predict_quantiles(X, ndtr(NODES))
        weights = np.exp(-(NODES**2) / 2)
        mean = np.average(quantiles, axis=1, weights=weights, keepdims=True)
        return np.sqrt(np.average((quantiles - mean) ** 2, axis=1, weights=weights))

    def score(self, X, y, sample_weight):
        return r2_score(y, self.predict(X, False, None), sample_weight=sample_weight)

    def explain(self, X, n_neighbors):
        return self._explain(X, n_neighbors).table()

    def _explain(self, X, n_neighbors) -> Explanation:
        return explanation(self.estimator, X, n_neighbors).in_units(self.back)

    def predict_quantiles(self, X, quantiles):
        levels, rising = check_levels(quantiles).numpy(), self._rising()
        both = self.estimator.predict_quantiles(X, np.concatenate([levels, 1 - levels]))
        both = self.back(both.reshape(*both.shape[:2], -1))
        up, down = np.split(both, 2, axis=1)
        answer = _without_single(np.where(rising, up, down))
        return answer[:, 0] if np.ndim(quantiles) == 0 else answer

    def predict_cdf(self, X, y):
        values, rising = check_numbers(y, "y").numpy(), self._rising()
        points = self._forward(np.repeat(values[:, None], len(rising), axis=1))  # (k, n_outputs)
        if np.isnan(points).any():
            raise ValueError(f"y must be what the target can be, got {y!r}")
        points = np.clip(points, -LARGEST, LARGEST)
        # The target is at most y where what it was transformed to is not below the point.
        points = np.where(rising, points, np.nextafter(points, -np.inf))
        reached = self.estimator.predict_cdf(X, points.ravel())
        reached = reached.reshape(len(reached), *points.shape, -1)
        reached = np.einsum("qkjj->qkj", reached)  # each output at its own points
        answer = _without_single(np.where(rising, reached, 1 - reached))
        return answer[:, 0] if np.ndim(y) == 0 else answer

    def sample_y(self, X, n_samples, random_state):
        drawn = self.estimator.sample_y(X, n_samples, random_state)  # (q, [n_outputs,] n_samples)
        drawn = self._answer(np.moveaxis(drawn, -1, 1), 2)
        return np.moveaxis(drawn, 1, -1)


def _without_single(answer: np.ndarray) -> np.ndarray:
    """Leave the last axis out if it is of one output."""
    return answer[..., 0] if answer.shape[-1] == 1 else answer


def _verb(original: Callable) -> Any:
    """Make a verb of the estimator one of the model that it is in.

    Queries pass through the steps before it. Targets are transformed, and so is what is
    answered in targets. The signature and the docstring are the estimator's.
    """
    parameters = signature(original)

    @wraps(original)
    def verb(self, *args, **kwargs):
        bound = parameters.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *given = bound.arguments
        asked = {name: bound.arguments[name] for name in given}
        if "X" in asked:
            asked["X"] = self._enter(asked["X"], asked.get("y"))
        speaker, targets = self.estimator, TransformedTargets(self.estimator, self.transformers)
        if self.transformers and hasattr(targets, original.__name__):
            speaker = targets
        elif self.transformers and asked.get("y") is not None:
            asked["y"] = targets.forward(asked["y"])
        answer = getattr(speaker, original.__name__)(**asked)
        return self if answer is self.estimator else answer

    return verb


@dataclass(frozen=True)
class Unwrapped:
    """A fitted neighbour estimator inside a model, which answers as if it were the model.

    It is what :func:`unwrap` returns. Its verbs are the estimator's own, and take the model's
    features and targets. An edit of the bank is one of the estimator in the model.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or its classifier
        The fitted estimator.
    steps : tuple of transformer
        What is done to the features before it, first to last.
    transformers : tuple of transformer
        What is done to the targets before it, first to last.
    """

    estimator: NeighborEstimator
    steps: tuple
    transformers: tuple

    _explain = _verb(explanation)
    kneighbors = _verb(NeighborEstimator.kneighbors)
    kneighbors_graph = _verb(NeighborEstimator.kneighbors_graph)
    neighbor_weights = _verb(NeighborEstimator.neighbor_weights)
    effective_n_neighbors = _verb(NeighborEstimator.effective_n_neighbors)
    n_nonzero_weights = _verb(NeighborEstimator.n_nonzero_weights)
    soft_n_neighbors = _verb(NeighborEstimator.soft_n_neighbors)
    distance_to_bank = _verb(NeighborEstimator.distance_to_bank)
    influence = _verb(NeighborEstimator.influence)
    add_neighbors = _verb(NeighborEstimator.add_neighbors)
    remove_neighbors = _verb(NeighborEstimator.remove_neighbors)
    set_neighbor_targets = _verb(NeighborEstimator.set_neighbor_targets)
    compress = _verb(NeighborEstimator.compress)
    embed = _verb(NeighborEstimator.embed)

    @wraps(NeighborEstimator.transform)
    def transform(self, X):
        return self.estimator.transform(self._pass(X))  # a table, if that is its output

    @property
    def target_names_(self) -> tuple[str, ...] | None:
        """What the targets are called, as far as the estimator knows."""
        return getattr(self.estimator, "target_names_", None)

    def _enter(self, X, y=None) -> Embedded | None:
        """Let queries pass through the steps and the embedding, and keep their names."""
        if X is None or isinstance(X, Embedded):
            return X
        return replace(self.estimator.embed(self._pass(X)), labels=Names.of(X, y).rows)

    def _pass(self, X):
        """Let queries pass through the steps; those that are embedded have."""
        if not isinstance(X, Embedded):
            for step in self.steps:
                X = step.transform(X)
        return X

    def _neighbor_targets(self) -> np.ndarray:
        """Targets of the bank's rows, (n,) or (n, n_outputs)."""
        raise NotImplementedError


class UnwrappedRegressor(Unwrapped):
    """:class:`Unwrapped` around numbers."""

    predict = _verb(NeighborRegressor.predict)
    score = _verb(NeighborRegressor.score)
    explain = _verb(NeighborRegressor.explain)
    predict_quantiles = _verb(NeighborRegressor.predict_quantiles)
    predict_cdf = _verb(NeighborRegressor.predict_cdf)
    sample_y = _verb(NeighborRegressor.sample_y)
    calibrate = _verb(NeighborRegressor.calibrate)

    def _neighbor_targets(self) -> np.ndarray:
        targets = self.estimator.bank_.targets.cpu().numpy()
        if not self.transformers:
            return targets
        return TransformedTargets(self.estimator, self.transformers)._answer(targets, 1)


@dataclass(frozen=True)
class UnwrappedClassifier(Unwrapped):
    """:class:`Unwrapped` around classes.

    Parameters
    ----------
    threshold : FixedThresholdClassifier or TunedThresholdClassifierCV, optional
        What says which class it is, right around the estimator. None: the most probable.
    """

    threshold: Any = None

    @wraps(NeighborClassifier.predict)
    def predict(self, X):
        decides = self.estimator if self.threshold is None else self.threshold
        return decides.predict(self._enter(X))

    score = NeighborClassifier.score  # of what is predicted here
    predict_proba = _verb(NeighborClassifier.predict_proba)
    predict_log_proba = _verb(NeighborClassifier.predict_log_proba)
    explain = _verb(NeighborClassifier.explain)

    @property
    def classes_(self) -> np.ndarray | list[np.ndarray]:
        """The labels, sorted; of several outputs a list of such arrays."""
        return self.estimator.classes_

    def _neighbor_targets(self) -> np.ndarray:
        return self.estimator.targets_.decode(self.estimator.bank_.targets)


def unwrap(model):
    """Ask the neighbour estimator inside a model, in the model's own features and targets.

    Whatever is done to rows before they come to the estimator is done to queries, too, and
    their names, those of their index, are kept. Targets, adjusted targets, predictions, quantiles,
    probabilities and draws are in the units of the `y` that the model was fitted to: of a model
    that learns logarithms of prices, in prices.

    Parameters
    ----------
    model : estimator
        Fitted: a NONARegressor, SoftStepKNeighborsRegressor, or one of their classifiers; a
        :class:`~sklearn.pipeline.Pipeline` whose last step is such a model; a
        :class:`~sklearn.compose.TransformedTargetRegressor` around a regressor; a search, such as
        :class:`~sklearn.model_selection.GridSearchCV`, whose best estimator is one; a
        :class:`~sklearn.frozen.FrozenEstimator` of one; a
        :class:`~sklearn.model_selection.FixedThresholdClassifier` or
        :class:`~sklearn.model_selection.TunedThresholdClassifierCV` around a classifier, whose
        threshold says what ``predict`` answers.

    Returns
    -------
    Unwrapped
        With the estimator itself, as ``estimator``, and its verbs: ``explain``, ``kneighbors``,
        ``add_neighbors``, of regressors ``predict_quantiles``, of classifiers ``predict_proba``
        and so on. Edits are edits of the model.

    Raises
    ------
    TypeError
        If there is none of our estimators inside, several are, or a classifier whose labels are
        transformed or whose probabilities are calibrated: contributions would not add up. Ask one
        of ``calibrated_classifiers_`` or ``estimators_``, as the message says.
    NotFittedError
        If the model is not fitted.

    Notes
    -----
    With transformed targets

    - a contribution is the product of the weight and the adjusted target; "others" take the rest
      of the prediction, also what comes of transforming a mean and not averaging what is
      transformed. Their own target is that of their mean, transformed back;
    - standard deviations are those of the distribution in the units of `y`, by quadrature over its
      quantiles;
    - quantiles and probabilities need a transformation that rises or falls, of each output by
      itself; draws do not;
    - ``change`` and ``error`` of ``influence`` are in the estimator's units;
    - a single output is answered without an axis of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.compose import TransformedTargetRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nona_sklearn import NONARegressor, unwrap
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    >>> reg = NONARegressor(n_estimators=1, max_iter=10, random_state=0)
    >>> logarithms = TransformedTargetRegressor(reg, func=np.log, inverse_func=np.exp)
    >>> model = make_pipeline(StandardScaler(), logarithms).fit(X[:400], y[:400])
    >>> table = unwrap(model).explain(X[400:401], n_neighbors=3)
    >>> list(table["query"])
    [400, 400, 400, 400]
    >>> bool(np.isclose(table["contribution"].sum(), model.predict(X[400:401])[0]))
    True
    """
    if isinstance(model, Unwrapped):
        return model
    inner, steps, transformers, thresholds = model, [], [], []
    while not isinstance(inner, NeighborEstimator | DenseHeadEstimator):
        if isinstance(inner, Pipeline):
            steps += [step for _, step in inner.steps[:-1] if hasattr(step, "transform")]
            inner = inner.steps[-1][1]
        elif isinstance(inner, TransformedTargetRegressor):
            check_is_fitted(inner)
            transformers.append(inner.transformer_)
            inner = inner.regressor_
        elif isinstance(inner, FrozenEstimator):
            inner = inner.estimator
        elif isinstance(inner, THRESHOLDS):
            if isinstance(inner, TunedThresholdClassifierCV):
                check_is_fitted(inner)  # a fixed one needs no fit around what is fitted
            thresholds.append(inner)
            inner = getattr(inner, "estimator_", inner.estimator)
        elif _is_search(inner):
            check_is_fitted(inner, "best_estimator_")
            inner = inner.best_estimator_
        else:
            raise TypeError(
                "model must be a NONARegressor or SoftStepKNeighborsRegressor, one of their "
                "classifiers, or a Pipeline, TransformedTargetRegressor, search or threshold "
                f"around one, {_advice(inner)}got {model!r}"
            )
    check_is_fitted(inner)
    classifies = is_classifier(inner)
    if classifies and transformers:
        raise TypeError(f"model must leave a classifier's labels as they are, got {model!r}")
    if not classifies:
        return UnwrappedRegressor(inner, tuple(steps), tuple(transformers))
    threshold = _around(thresholds[0], inner) if thresholds else None
    return UnwrappedClassifier(inner, tuple(steps), (), threshold)


def _around(threshold, estimator):
    """The same threshold, right around the estimator: asked of rows that have passed the steps."""
    direct = copy(threshold)
    direct.estimator_ = estimator
    return direct


def _advice(model) -> str:
    """Where the estimators lie in a model that answers otherwise than each of them."""
    for where in SEVERAL:
        if hasattr(model, where.partition("[")[0]):
            name = type(model).__name__
            return f"and {name} answers otherwise than what is in it: ask its {where}; "
    return ""


def _is_search(model) -> bool:
    """Whether it is a search, of scikit-learn or not: ``best_estimator_`` comes with its fit."""
    unfitted = hasattr(model, "estimator") and hasattr(model, "refit")
    return unfitted or hasattr(model, "best_estimator_")
