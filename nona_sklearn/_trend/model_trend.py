"""A trend by a regressor of scikit-learn's interface, cross-fitted."""

from __future__ import annotations

import copy
from inspect import Parameter, signature
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import clone, is_regressor
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples, has_fit_parameter
from torch import Tensor

from .cross_fitted import CrossFittedTrend, parts_of


class ModelTrend(CrossFittedTrend):
    """A function of the rows of a table in units of the targets, by clones of a regressor."""

    takes_table: ClassVar[bool] = True
    is_data: ClassVar[bool] = False

    @classmethod
    def fit(
        cls,
        model: Any,
        ids: np.ndarray,
        X: Any,
        y: np.ndarray,
        weights: np.ndarray | None,
        groups: np.ndarray | None,
        times: np.ndarray | None,
        seed: int,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> ModelTrend:
        """Fit clones of a regressor to all rows of a table, and to parts of them.

        `y` is of shape (n, n_outputs). A `random_state` of the regressor that is None becomes the
        `seed`.
        """
        everything = np.arange(len(y))
        parts = [*parts_of(len(y), groups, times), (everything, everything)]
        fits = (delayed(_fit_and_predict)(model, seed, X, y, weights, *part) for part in parts)
        # From 11 on, joblib shows each of few parts; below, some versions show none.
        found = Parallel(n_jobs=n_jobs, verbose=11 if verbose else 0)(fits)
        return cls.joined(ids, parts, found, times)

    def evaluate(self, function: Any, inputs: Any) -> Tensor:
        return torch.from_numpy(predict(function, inputs, self.values.shape[1]))


def check_model(model: Any) -> None:
    """Refuse a trend that is no regressor of scikit-learn's interface."""
    if isinstance(model, type):
        raise ValueError(f"trend must be an object, such as {model.__name__}(), got the class")
    if isinstance(model, FrozenEstimator):
        raise ValueError(f"trend must be fitted to parts of the rows, {called(model)}")
    try:
        is_one = is_regressor(model)
    except AttributeError:  # without scikit-learn's tags
        is_one = False
    if not is_one:
        raise ValueError(
            "trend must be a name, None or a regressor of scikit-learn's interface, "
            f"{called(model)}"
        )


def called(model: Any) -> str:
    """What a model is, in a message, in one line."""
    return f"got {' '.join(repr(model).split()):.100}"


def parameter_of_weights(model: Any) -> str:
    """What the weights of the rows are called in a regressor's fit."""
    name, last = "sample_weight", model
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        name = f"{step}__{name}"
    named = signature(last.fit).parameters.values()
    passes_on = any(each.kind is Parameter.VAR_KEYWORD for each in named)
    if not (passes_on or has_fit_parameter(last, "sample_weight")):
        raise ValueError(
            "trend must accept sample_weight in its fit where rows have weights, by sample_weight "
            f"or half_life, {called(model)}"
        )
    return name


def with_seed(model: Any, seed: int) -> Any:
    """A clone each of whose parameters `random_state` that is None is the seed."""
    try:
        seeded = clone(model)
    except RuntimeError:  # it changes its parameters, as CatBoostRegressor copies a list
        seeded = type(model)(**copy.deepcopy(model.get_params(deep=False)))
    unset = {
        name: seed
        for name, value in seeded.get_params().items()
        if name.rsplit("__", 1)[-1] == "random_state" and value is None
    }
    return seeded.set_params(**unset)


def _fit_and_predict(
    model: Any,
    seed: int,
    X: Any,
    y: np.ndarray,
    weights: np.ndarray | None,
    fitted: np.ndarray,
    predicted: np.ndarray,
) -> tuple[Any, np.ndarray]:
    """A clone fitted to some rows of a table, and its values at others, (n_predicted, c).

    Without rows to fit, it is the mean of the others.
    """
    if not len(fitted):
        model, fitted = DummyRegressor(), predicted
    n_outputs, own = y.shape[1], with_seed(model, seed)
    params = {} if weights is None else {parameter_of_weights(model): weights[fitted]}
    targets = y[fitted, 0] if n_outputs == 1 else y[fitted]
    try:
        own.fit(_safe_indexing(X, fitted), targets, **params)
    except Exception as error:
        remedy = ""
        if n_outputs > 1:
            remedy = "; where it takes one output, wrap it in a MultiOutputRegressor"
        raise ValueError(
            f"trend cannot be fitted to {len(fitted)} rows, {called(model)}: {error}{remedy}"
        ) from error
    return own, predict(own, _safe_indexing(X, predicted), n_outputs)


def predict(model: Any, X: Any, n_outputs: int) -> np.ndarray:
    """What a fitted regressor predicts, (q, n_outputs) in float64."""
    try:
        found = np.array(model.predict(X), dtype=np.float64)  # that can be written
    except Exception as error:
        raise ValueError(f"trend cannot predict these rows, {called(model)}: {error}") from error
    shape = _num_samples(X), n_outputs
    if found.shape != shape and (n_outputs > 1 or found.shape != shape[:1]):
        raise ValueError(
            f"trend must predict an array of shape {shape}, {called(model)} with {found.shape}"
        )
    if not np.isfinite(found).all():
        raise ValueError(
            f"trend must predict finite numbers, {called(model)} with NaN or infinity"
        )
    return found.reshape(shape)
