"""Access to the estimator inside a model, with the features and targets of the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.special import ndtr
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._data.sample import Embedded, TableRows
from ._data.tables import Names
from ._data.targets import check_targets
from ._estimators.base import NeighborEstimator
from ._estimators.classification import NeighborClassifier
from ._estimators.explanations import (
    ATTRIBUTIONS,
    Adjustments,
    additive_trend,
    adjustments_of,
    explain,
    explanation_table,
)
from ._estimators.queries import drop_isolated
from ._estimators.regression import NeighborRegressor
from ._utils.threads import snapshot
from ._utils.validation import check_choice, check_flag, check_levels, check_numbers

if TYPE_CHECKING:
    from .explanation import Explanation

#: Attributes with the estimators of models that combine several, or change predictions.
SEVERAL = "calibrated_classifiers_[0].estimator", "estimators_[0]"
#: Methods that read features. For all further methods, queries are embedded first.
OF_FEATURES = "transform", "attribute"
NORMAL_SCORES = np.linspace(-5, 5, 101)  # of the quantiles for standard deviations
N_CHECKED = 65  # values at which a transformation is checked to be monotonic
LARGEST_TARGET = 1e300  # replaces infinity; no target reaches it

Class = TypeVar("Class", bound=type)


def _with_methods_of(kind: type) -> Callable[[Class], Class]:
    """Return a decorator that adds the methods of an estimator that take rows, and docstrings."""

    def complete(cls: Class) -> Class:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            takes_rows = {"X", "y", "ids"} & {*inspect.signature(method).parameters}
            if name in vars(cls):
                vars(cls)[name].__doc__ = method.__doc__
            elif takes_rows and not name.startswith(("_", "fit")) and not hasattr(cls, name):
                setattr(cls, name, _for_rows_of_the_model(method))
        return cls

    return complete


def _for_rows_of_the_model(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return an estimator's method for the features and targets of the model."""
    signature, name = inspect.signature(original), original.__name__

    @wraps(original)
    def method(self: Unwrapped, *args: Any, **kwargs: Any) -> Any:
        given = dict(signature.bind(self, *args, **kwargs).arguments)
        del given["self"]
        if "X" in given and name in OF_FEATURES:
            given["X"] = self._transform(given["X"])
        elif "X" in given:
            given["X"] = self._embed(given["X"], given.get("y"))
        if "features" in given:
            given["features"] = self._transform(given["features"])
        if "y" in given:
            given["y"] = self._transform_targets(given["y"])
        result = getattr(self.estimator, name)(**given)
        return self if result is self.estimator else result

    return method


@dataclass(frozen=True)
class Unwrapped:
    """A fitted neighbour estimator inside a model, with the features and targets of the model.

    :func:`unwrap` returns it. It has the methods of the estimator. An edit of the bank is an edit
    of the model.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or its classifier
        The fitted estimator.
    steps : tuple of transformer
        The transformations of the features before the estimator, first to last.
    transformers : tuple of transformer
        The transformations of the targets before the estimator, first to last.
    """

    estimator: Any
    steps: tuple = ()
    transformers: tuple = ()

    def snapshot(self):
        """Return a copy that a fit or an edit in another thread does not change."""
        return replace(self, estimator=snapshot(self.estimator))

    @property
    def target_names_(self) -> tuple[str, ...] | None:
        """Return the names of the targets, or None."""
        return self.estimator.target_names_

    def neighbor_targets(self) -> np.ndarray:
        """Return the targets of the bank's rows, (n,) or (n, n_outputs)."""
        raise NotImplementedError

    def explanation(self, X, n_neighbors=None, eligibility=None) -> Explanation:
        """Return the contributions of `n_neighbors` rows, or of all rows with weight."""
        return explain(self.estimator, self._embed(X), n_neighbors, eligibility)

    def explain(self, X=None, n_neighbors=None, *, features=None, eligibility=None):
        model = self.snapshot()  # `features` are not transformed by steps
        explanation = model.explanation(X, n_neighbors, eligibility)
        return explanation_table(model.estimator, explanation, X, features)

    @property
    def has_additive_part(self) -> bool:
        """Return whether predictions have a part that is a sum over columns."""
        return additive_trend(self.estimator) is not None

    def stored_rows(self, positions: Any = slice(None)) -> Embedded:
        """Return rows of the bank as queries. A row is left out of its own prediction."""
        bank, network = self.estimator.bank_, self.estimator.network_
        inputs = None if bank.inputs is None else TableRows(bank.inputs)[positions]
        names, ids = bank.names_of(positions), bank.ids[positions]
        return Embedded(bank.embeddings[positions], network, names, ids, inputs=inputs)

    def stored_row(self, name: Any) -> Embedded:
        """Return the row of the bank with this name, or this id without names, as a query."""
        names = self.estimator.bank_.names_of(slice(None)).tolist()
        positions = [i for i, n in enumerate(names) if isinstance(name, Hashable) and n == name]
        if len(positions) != 1:
            n_rows = len(positions)
            how_many = f"the name of {n_rows} rows" if n_rows else "which names no row"
            raise ValueError(
                "row must be the name of one row of the bank, or its id if rows have no names, "
                f"got {name!r:.100}, {how_many}"
            )
        return self.stored_rows(np.array(positions))

    def adjustments(self, X, features, n_neighbors=None, eligibility=None) -> Adjustments:
        """Return the adjustment by every column of the neighbours of queries."""
        rows = self._transform(X), self._transform(features)
        return adjustments_of(self.estimator, *rows, n_neighbors, eligibility)

    def _transform(self, X):
        """Return queries transformed by the steps. Embedded queries and None are unchanged."""
        if X is not None and not isinstance(X, Embedded):
            for step in self.steps:
                X = step.transform(X)
        return X

    def _embed(self, X, y=None) -> Embedded | None:
        """Return transformed, embedded queries with their names, which a step may lose."""
        if X is None or isinstance(X, Embedded):
            return X
        return replace(
            self.estimator.embed(self._transform(X)), row_labels=Names.of(X, y).row_labels
        )

    def _transform_targets(self, y):
        return y


@_with_methods_of(NeighborRegressor)
class UnwrappedRegressor(Unwrapped):
    """Unwrapped regressor."""

    def neighbor_targets(self) -> np.ndarray:
        return self.estimator.bank_.targets.cpu().numpy()

    def explain(self, X=None, n_neighbors=None, *, features=None, eligibility=None):
        return super().explain(X, n_neighbors, features=features, eligibility=eligibility)

    def predict_cdf(self, X, y, *, eligibility=None):
        return self.estimator.predict_cdf(self._embed(X), y, eligibility=eligibility)

    def score(self, X, y, sample_weight=None):
        return RegressorMixin.score(self, *drop_isolated(self.estimator, X, y, sample_weight))


class TransformedRegressor(UnwrappedRegressor):
    """Unwrapped regressor with transformed targets. Results are in the units of `y`."""

    def neighbor_targets(self) -> np.ndarray:
        return self._decode(super().neighbor_targets())

    def explanation(self, X, n_neighbors=None, eligibility=None) -> Explanation:
        return super().explanation(X, n_neighbors, eligibility).in_units(self.back)

    def attribute(
        self, X=None, features=None, *, of="adjustments", n_neighbors=None, eligibility=None
    ):
        check_choice("of", of, ATTRIBUTIONS)
        if of == "distances":
            return super().attribute(
                X, features, of=of, n_neighbors=n_neighbors, eligibility=eligibility
            )
        raise ValueError(
            f"of={of!r} needs targets that are not transformed: parts are in the units in which "
            "they add up, those of unwrap(model).estimator"
        )

    def predict(self, X, return_std=False, *, eligibility=None):
        check_flag("return_std", return_std)
        X = self._embed(X)
        predictions = self._decode(self.estimator.predict(X, eligibility=eligibility))
        if not return_std:
            return predictions
        # By quadrature over quantiles at equally spaced scores.
        quantiles = self.predict_quantiles(X, ndtr(NORMAL_SCORES), eligibility=eligibility)
        weights = np.exp(-(NORMAL_SCORES**2) / 2)
        mean = np.average(quantiles, axis=1, weights=weights, keepdims=True)
        variances = np.average((quantiles - mean) ** 2, axis=1, weights=weights)
        return predictions, np.sqrt(variances)

    def predict_quantiles(self, X, quantiles=(0.1, 0.5, 0.9), *, eligibility=None):
        levels, increasing = check_levels(quantiles).numpy(), self._is_increasing()
        both = self.estimator.predict_quantiles(
            self._embed(X), np.concatenate([levels, 1 - levels]), eligibility=eligibility
        )
        both = self.back(both.reshape(*both.shape[:2], -1))
        of_levels, of_complements = np.split(both, 2, axis=1)
        values = _without_single(np.where(increasing, of_levels, of_complements))
        return values[:, 0] if np.ndim(quantiles) == 0 else values

    def predict_cdf(self, X, y, *, eligibility=None):
        values, increasing = check_numbers(y, "y").numpy(), self._is_increasing()
        points = self._forward(np.repeat(values[:, None], len(increasing), axis=1))
        if np.isnan(points).any():
            raise ValueError(f"y must be what the target can be, got {y!r}")
        points = np.clip(points, -LARGEST_TARGET, LARGEST_TARGET)  # (k, n_outputs)
        # If the transformation decreases, y <= t if the transformed target is at least the point.
        points = np.where(increasing, points, np.nextafter(points, -np.inf))
        cdf = self.estimator.predict_cdf(self._embed(X), points.ravel(), eligibility=eligibility)
        cdf = cdf.reshape(len(cdf), *points.shape, -1)
        cdf = np.einsum("qkjj->qkj", cdf)  # an output at its own points
        cdf = _without_single(np.where(increasing, cdf, 1 - cdf))
        return cdf[:, 0] if np.ndim(y) == 0 else cdf

    def sample_y(self, X, n_samples=1, random_state=0, *, eligibility=None):
        queries = self._embed(X)
        drawn = self.estimator.sample_y(queries, n_samples, random_state, eligibility=eligibility)
        drawn = np.moveaxis(drawn, -1, 1)  # from (q, [n_outputs,] n_samples)
        return np.moveaxis(self._decode(drawn, 2), 1, -1)

    def back(self, values: np.ndarray) -> np.ndarray:
        """Return values (..., n_outputs) transformed back. A row with NaN becomes NaN."""
        rows = values.reshape(-1, values.shape[-1])
        finite = np.isfinite(rows).all(axis=1)
        columns = rows[finite]
        for transformer in reversed(self.transformers):
            columns = np.asarray(transformer.inverse_transform(columns))
            columns = columns.reshape(finite.sum(), -1)
        results = np.full((len(rows), columns.shape[1]), np.nan)
        results[finite] = columns
        return results.reshape(*values.shape[:-1], -1)

    def _decode(self, values: np.ndarray, n_axes: int = 1) -> np.ndarray:
        """Return values (*axes,) or (*axes, n_outputs) transformed back, in the same form."""
        return _without_single(self.back(values.reshape(*values.shape[:n_axes], -1)))

    def _transform_targets(self, y):
        if y is None:
            return y
        y = check_targets(y)
        columns = self._forward(y.reshape(len(y), -1))
        lost = np.flatnonzero(~np.isfinite(columns).all(axis=1))
        if len(lost):
            raise ValueError(
                "y must be what the model's transformer takes, got "
                f"{y[lost[0]].tolist()!r} in row {lost[0]}"
            )
        return _without_single(columns)

    @np.errstate(all="ignore")  # the callers check the result
    def _forward(self, columns: np.ndarray) -> np.ndarray:
        for transformer in self.transformers:
            columns = np.asarray(transformer.transform(columns)).reshape(len(columns), -1)
        return columns

    def _is_increasing(self) -> np.ndarray:
        """Return whether outputs increase with the transformed outputs, bool (n_outputs,)."""
        columns = super().neighbor_targets().reshape(len(self.estimator.bank_), -1)
        low, high = columns.min(axis=0), columns.max(axis=0)
        alone = np.eye(len(low), dtype=bool)  # in row j only output j is high
        lowest, changed = self.back(low[None]), self.back(np.where(alone, high, low))
        if changed.shape != alone.shape or not np.isclose(changed, lowest)[~alone].all():
            raise ValueError(
                "the distribution of a target that is transformed together with others is not "
                "known, only draws from it: use sample_y"
            )
        between = self.back(low + (high - low) * np.linspace(0, 1, N_CHECKED)[:, None])
        steps, increasing = np.diff(between, axis=0), (changed >= lowest)[alone]
        if not (np.where(increasing, steps, -steps) >= 0).all():
            raise ValueError(
                "the distribution of a target that rises and falls with the transformed target "
                "is not known, only draws from it: use sample_y"
            )
        return increasing


def _without_single(values: np.ndarray) -> np.ndarray:
    """Return values without the last axis if there is one output."""
    return values[..., 0] if values.shape[-1] == 1 else values


@_with_methods_of(NeighborClassifier)
@dataclass(frozen=True)
class UnwrappedClassifier(Unwrapped):
    """Unwrapped classifier.

    Parameters
    ----------
    threshold : FixedThresholdClassifier or TunedThresholdClassifierCV, optional
        The model directly around the estimator that chooses the class. None: the most probable
        class is chosen.
    """

    threshold: Any = None

    @property
    def classes_(self) -> np.ndarray | list[np.ndarray]:
        """Return the sorted labels, or a list of such arrays for several outputs."""
        return self.estimator.classes_

    def neighbor_targets(self) -> np.ndarray:
        return self.estimator.targets_.decode(self.estimator.bank_.targets)

    def explain(self, X=None, n_neighbors=None, *, features=None, eligibility=None):
        return super().explain(X, n_neighbors, features=features, eligibility=eligibility)

    def predict(self, X, *, eligibility=None):
        if self.threshold is None:
            return self.estimator.predict(self._embed(X), eligibility=eligibility)
        if eligibility is not None:
            raise ValueError(
                "eligibility must be None with the threshold of a model: compare predict_proba "
                f"with it, got {eligibility!r:.100}"
            )
        return self.threshold.predict(self._embed(X))

    def predict_cdf(self, X, y=None, *, eligibility=None):
        return self.estimator.predict_cdf(self._embed(X), y, eligibility=eligibility)

    def score(self, X, y, sample_weight=None):
        return ClassifierMixin.score(self, *drop_isolated(self.estimator, X, y, sample_weight))


def unwrap(estimator: Any) -> Any:
    """Access the neighbour estimator inside a model, with the model's features and targets.

    The transformations before the estimator are applied to queries, too. The names of queries, in
    the index of their table, are kept. Targets, adjusted targets, predictions, quantiles,
    probabilities and draws are in the units of the `y` that the model was fitted to. If a model
    learns logarithms of prices, they are prices.

    Parameters
    ----------
    estimator : estimator object
        A fitted NONARegressor, SoftStepKNeighborsRegressor, or one of their classifiers; or a
        model around such a model: a :class:`~sklearn.pipeline.Pipeline` that ends in it, a
        :class:`~sklearn.compose.TransformedTargetRegressor`, a search, such as
        :class:`~sklearn.model_selection.GridSearchCV`, a :class:`~sklearn.frozen.FrozenEstimator`,
        a :class:`~sklearn.model_selection.FixedThresholdClassifier` or a
        :class:`~sklearn.model_selection.TunedThresholdClassifierCV`, with its threshold.

    Returns
    -------
    Unwrapped
        The estimator, as ``estimator``, with its methods: ``predict``, ``explain``,
        ``kneighbors``, ``add_neighbors`` and so on. Edits are edits of the model. Reports also
        read ``explanation(X, n_neighbors)``, an :class:`~nona_sklearn.explanation.Explanation`;
        ``neighbor_targets()``; and ``stored_rows(positions)``, rows of the bank as queries without
        themselves.

    Raises
    ------
    TypeError
        If the model contains no estimator of this package, or several, or a classifier with
        transformed labels or calibrated probabilities, whose contributions would not add up. The
        message names one of ``calibrated_classifiers_`` or ``estimators_`` that can be unwrapped
        instead.
    NotFittedError
        If the model is not fitted.

    Notes
    -----
    With transformed targets

    - a contribution is the product of the weight and the adjusted target. The line
      "transformation" is the rest of the prediction, the difference between transforming a mean
      and averaging transformed values. The target of "others" is a mean that is transformed back;
    - standard deviations are computed from the distribution in the units of `y`, by quadrature
      over its quantiles;
    - quantiles and probabilities need a monotonic transformation that treats outputs separately.
      Draws do not need it;
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
    if isinstance(estimator, Unwrapped):
        return estimator
    inner, threshold = estimator, None
    steps: list[Any] = []
    transformers: list[Any] = []
    while not isinstance(inner, NeighborEstimator):
        if isinstance(inner, Pipeline):
            steps += [step for _, step in inner.steps[:-1] if hasattr(step, "transform")]
            inner = inner.steps[-1][1]
        elif isinstance(inner, TransformedTargetRegressor):
            check_is_fitted(inner)
            transformers.append(inner.transformer_)
            inner = inner.regressor_
        elif isinstance(inner, FrozenEstimator):
            inner = inner.estimator
        elif isinstance(inner, FixedThresholdClassifier | TunedThresholdClassifierCV):
            if isinstance(inner, TunedThresholdClassifierCV):
                check_is_fitted(inner)  # FixedThresholdClassifier needs no fit around a fitted one
            threshold = copy(inner) if threshold is None else threshold
            inner = getattr(inner, "estimator_", inner.estimator)
        elif hasattr(inner, "best_estimator_") or (
            hasattr(inner, "estimator") and hasattr(inner, "refit")
        ):  # a search of scikit-learn or of another library
            check_is_fitted(inner, "best_estimator_")
            inner = inner.best_estimator_
        else:
            raise _not_to_be_unwrapped(inner, estimator)
    check_is_fitted(inner)
    if is_classifier(inner):
        if transformers:
            raise TypeError(
                f"estimator must leave a classifier's labels as they are, got {estimator!r}"
            )
        if threshold is not None:
            threshold.estimator_ = inner  # without the steps in between: queries are transformed
        return UnwrappedClassifier(inner, tuple(steps), (), threshold)
    kind = TransformedRegressor if transformers else UnwrappedRegressor
    return kind(inner, tuple(steps), tuple(transformers))


def _not_to_be_unwrapped(inner: Any, model: Any) -> TypeError:
    """Return the error for a model without an estimator of this package, or with several."""
    advice = ""
    for place in SEVERAL:
        if hasattr(inner, place.partition("[")[0]):
            name = type(inner).__name__
            advice = (
                f"and {name} changes the predictions of the estimators in it: unwrap its {place}; "
            )
            break
    return TypeError(
        "estimator must be a NONARegressor or SoftStepKNeighborsRegressor, one of their "
        "classifiers, or a Pipeline, TransformedTargetRegressor, search or threshold "
        f"around one, {advice}got {model!r}"
    )
