"""A trend by a regressor or classifier of scikit-learn's interface, cross-fitted."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples, has_fit_parameter
from torch import Tensor

from .._utils.tables import without_columns
from .trend import CrossFittedTrend, parts_of

if TYPE_CHECKING:
    from .._data.sample import TableRows

LARGEST_PREDICTION = 1e150  # the bound of targets: float64 still holds its square
LEAST_PROBABILITY = 1e-3  # of a class: few rows cannot distinguish less from 0


@dataclass(frozen=True)
class Numbers:
    """The predictions of a regressor, (q, n_outputs)."""

    n_outputs: int

    wrapper: ClassVar[str] = "MultiOutputRegressor"

    def stand_in(self, y: np.ndarray) -> Any:
        """Return a model that replaces the regressor where no row is fitted, or None."""
        return None if len(y) else DummyRegressor()

    def predict(self, model: Any, X: Any) -> np.ndarray:
        """Return the predictions of a fitted model, (q, n_outputs) in float64."""
        return _checked(_ask(model, "predict", X), (_num_samples(X), self.n_outputs), model)


@dataclass(frozen=True)
class Classes:
    """Logarithms of a classifier's probabilities, (q, C), with the outputs side by side."""

    classes: Sequence[np.ndarray]

    wrapper: ClassVar[str] = "MultiOutputClassifier"

    @property
    def n_outputs(self) -> int:
        """Return the number of columns of labels."""
        return len(self.classes)

    def stand_in(self, y: np.ndarray) -> Any:
        """Return a model of frequencies if an output has a single class, or None."""
        several = len(y) and all(len({*column.tolist()}) > 1 for column in y.T)
        return None if several else DummyClassifier()

    def predict(self, model: Any, X: Any) -> np.ndarray:
        """Return log probabilities, (q, C); classes that a model has not seen are rare."""
        predictions = _ask(model, "predict_proba", X)
        model_classes = getattr(model, "classes_", None)
        if model_classes is None:
            raise ValueError(f"trend must have classes_ once it is fitted, {called(model)}")
        if self.n_outputs == 1 and not isinstance(predictions, list):
            predictions, model_classes = [predictions], [model_classes]
        if not isinstance(predictions, list) or len(predictions) != self.n_outputs:
            raise ValueError(
                f"trend must predict the probabilities of {self.n_outputs} outputs as a list, "
                f"{called(model)}: wrap it in a {self.wrapper}"
            )
        blocks = []
        for block, labels, classes in zip(predictions, model_classes, self.classes, strict=True):
            same = np.asarray(labels, dtype=object)[:, None] == classes.astype(object)
            if not same.any(axis=1).all():
                raise ValueError(
                    f"trend must have labels of y as its classes_, {called(model)} with "
                    f"{np.asarray(labels).tolist()!r:.80}"
                )
            probabilities = _checked(block, (_num_samples(X), len(labels)), model)
            if (probabilities < 0).any() or not probabilities.any(axis=1).all():
                raise ValueError(
                    f"trend must predict probabilities, {called(model)} with a negative one or "
                    "with zeros alone"
                )
            blocks.append(probabilities @ same)
        return np.log(np.hstack(blocks).clip(LEAST_PROBABILITY))


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelTrend(CrossFittedTrend):
    """A function of the rows of a table, by clones of a model."""

    answers: Numbers | Classes  # turns predictions of the model into values
    ignored: Sequence[int] = ()  # numbers of the table's columns that the model does not get

    takes_table = True

    @classmethod
    def fit(
        cls,
        model: Any,
        answers: Numbers | Classes,
        ids: np.ndarray,
        X: Any,
        y: np.ndarray,
        weights: np.ndarray | None,
        groups: np.ndarray | None,
        times: np.ndarray | None,
        seed: int,
        n_jobs: int | None = None,
        verbose: int = 0,
        ignored: Sequence[int] = (),
    ) -> ModelTrend:
        """Fit clones of a model to all rows of a table, and to parts of the rows.

        `y`, (n, n_outputs), holds numbers or labels. A `random_state` of None becomes the `seed`.
        """
        X = without_columns(X, ignored)
        every = np.arange(len(y))
        parts = [*parts_of(len(y), groups, times), (every, every)]
        tasks = (
            delayed(_fit_and_predict)(model, answers, seed, X, y, weights, fitted, predicted)
            for fitted, predicted in parts
        )
        # From 11 on, joblib shows every part; below, several versions show none of few parts.
        fits = Parallel(n_jobs=n_jobs, verbose=11 if verbose else 0)(tasks)
        return cls.from_parts(ids, parts, fits, times, answers=answers, ignored=ignored)

    def evaluate(self, function: Any, rows: TableRows) -> Tensor:
        return self.of_table(rows.given, function)

    def of_table(self, table: Any, function: Any = None) -> Tensor:
        """Return values at rows of a table, (n, n_outputs), by default by the last model."""
        function = self.functions[-1] if function is None else function
        table = without_columns(table, self.ignored)
        return torch.from_numpy(self.answers.predict(function, table))


def check_model(model: Any, classifies: bool = False) -> None:
    """Raise if a trend is not a regressor, or classifier, of scikit-learn's interface."""
    if isinstance(model, type):
        raise ValueError(f"trend must be an object, such as {model.__name__}(), got the class")
    if isinstance(model, FrozenEstimator):
        raise ValueError(f"trend must be fitted to parts of the rows, {called(model)}")
    try:
        is_one = is_classifier(model) if classifies else is_regressor(model)
    except AttributeError:  # without scikit-learn's tags
        is_one = False
    if not is_one:
        kind = "classifier" if classifies else "regressor"
        raise ValueError(
            f"trend must be a name, None or a {kind} of scikit-learn's interface, {called(model)}"
        )
    if classifies and not hasattr(model, "predict_proba"):
        raise ValueError(f"trend must have predict_proba, {called(model)}")


def called(model: Any) -> str:
    """Return the representation of a model in one line, for a message."""
    return f"got {' '.join(repr(model).split()):.100}"


def parameter_of_weights(model: Any) -> str:
    """Return the name of the sample weights in a model's fit."""
    name, last = "sample_weight", model
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        name = f"{step}__{name}"
    named = signature(last.fit).parameters.values()
    passes_on = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in named)
    if not (passes_on or has_fit_parameter(last, "sample_weight")):
        raise ValueError(
            "trend must accept sample_weight in its fit where rows have weights, by sample_weight "
            f"or half_life{', or classes have' if is_classifier(last) else ''}, {called(model)}"
        )
    return name


def with_seed(model: Any, seed: int) -> Any:
    """Return a clone in which `random_state` parameters of None are the seed."""
    try:
        seeded = clone(model)
    except RuntimeError:  # the model changes its parameters, as CatBoostRegressor copies a list
        seeded = type(model)(**copy.deepcopy(model.get_params(deep=False)))
    unset = {
        name: seed
        for name, value in seeded.get_params().items()
        if name.rsplit("__", 1)[-1] == "random_state" and value is None
    }
    return seeded.set_params(**unset)


def _fit_and_predict(
    model: Any,
    answers: Numbers | Classes,
    seed: int,
    X: Any,
    y: np.ndarray,
    weights: np.ndarray | None,
    fitted: np.ndarray,
    predicted: np.ndarray,
) -> tuple[Any, np.ndarray]:
    """Return a clone that is fitted to rows of a table, and its predictions, (n, c).

    Without rows to fit, the clone predicts the mean of the rows to predict.
    """
    fitted_model = answers.stand_in(y[fitted]) or with_seed(model, seed)
    if not len(fitted):
        fitted = predicted
    params = {} if weights is None else {parameter_of_weights(fitted_model): weights[fitted]}
    targets = y[fitted, 0] if y.shape[1] == 1 else y[fitted]
    try:
        fitted_model.fit(_safe_indexing(X, fitted), targets, **params)
    except Exception as error:
        remedy = ""
        if answers.n_outputs > 1:
            remedy = f"; where it takes one output, wrap it in a {answers.wrapper}"
        raise ValueError(
            f"trend cannot be fitted to {len(fitted)} rows, {called(model)}: {error}{remedy}"
        ) from error
    return fitted_model, answers.predict(fitted_model, _safe_indexing(X, predicted))


def _ask(model: Any, method: str, X: Any) -> Any:
    """Return the predictions of a fitted model: a float64 array, or a list of arrays."""
    try:
        predictions = getattr(model, method)(X)
        if isinstance(predictions, list):
            return [np.array(output, dtype=np.float64) for output in predictions]
        return np.array(predictions, dtype=np.float64)
    except Exception as error:
        raise ValueError(f"trend cannot predict these rows, {called(model)}: {error}") from error


def _checked(predictions: Any, shape: tuple[int, int], model: Any) -> np.ndarray:
    """Return predictions in this shape, where a single column may have one axis."""
    predictions = np.asarray(predictions)
    if predictions.shape != shape and (shape[1] > 1 or predictions.shape != shape[:1]):
        raise ValueError(
            f"trend must predict an array of shape {shape}, {called(model)} with "
            f"{predictions.shape}"
        )
    if not (np.abs(predictions) <= LARGEST_PREDICTION).all():
        raise ValueError(
            f"trend must predict finite numbers of at most {LARGEST_PREDICTION:g}, "
            f"{called(model)} with NaN or a larger number"
        )
    return predictions.reshape(shape)
