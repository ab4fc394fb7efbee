"""A trend by a regressor of scikit-learn's interface, cross-fitted."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import clone, is_regressor
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples, has_fit_parameter
from torch import Tensor

N_FOLDS = 5


@dataclass(frozen=True, eq=False)
class ModelTrend:
    """A function of the rows of a table in units of the targets, by a regressor.

    The value at one of its rows is that of a clone which is fitted to other folds. The function
    itself is fitted to all rows, and is not fitted again where some are removed.

    Parameters
    ----------
    ids : int ndarray of shape (n,)
        Ids of its rows, ascending.
    values : ndarray of shape (n, n_outputs)
        Its values at them, each from rows of other folds.
    own : ndarray of shape (n, n_outputs)
        The values there of the function that is fitted to all rows.
    models : tuple of regressors
        The function; with times, after those that are fitted to the earlier rows alone.
    ends : ndarray of shape (n_models,)
        The latest time of the rows to which each is fitted, ascending; -inf of the first.
    """

    ids: np.ndarray
    values: np.ndarray
    own: np.ndarray
    models: tuple[Any, ...]
    ends: np.ndarray

    takes_table: ClassVar[bool] = True
    is_data: ClassVar[bool] = False
    leaves_out_single_rows: ClassVar[bool] = False

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
        found = Parallel(n_jobs=n_jobs, verbose=verbose)(fits)
        *others, (function, own) = found
        values = np.empty_like(own)
        for (_, predicted), (_, of_part) in zip(parts[:-1], others, strict=True):
            values[predicted] = of_part
        if times is None:
            return cls(ids, values, own, (function,), np.array([-np.inf]))
        ends = [times[fitted].max(initial=-np.inf) for fitted, _ in parts]
        return cls(ids, values, own, tuple(each for each, _ in found), np.array(ends))

    def __call__(self, inputs: Any) -> Tensor:
        """Values at rows of a table, (q, n_outputs) in float64, without gradients."""
        return torch.from_numpy(predict(self.models[-1], inputs, self.values.shape[1]))

    def from_earlier(self, inputs: Any, limits: Tensor) -> Tensor:
        """Values at queries, each of the last model that is fitted to rows before its limit.

        Where there is none, it is the mean of the earliest rows.
        """
        chosen = np.searchsorted(self.ends, limits.cpu().numpy()).clip(1) - 1
        values = np.empty((len(chosen), self.values.shape[1]))
        for number in np.unique(chosen):
            rows = np.flatnonzero(chosen == number)
            some = inputs if len(rows) == len(chosen) else _safe_indexing(inputs, rows)
            values[rows] = predict(self.models[number], some, values.shape[1])
        return torch.from_numpy(values).to(limits.device)

    def of_rows(self, ids: np.ndarray, limits: Tensor | None = None) -> np.ndarray:
        """Values at some of its rows, each from rows of other folds, (len(ids), n_outputs).

        With times they are from earlier blocks, and no limits are as exact.
        """
        return self.values[np.searchsorted(self.ids, ids)]

    def moved(self, ids: np.ndarray, inputs: Any) -> Tensor:
        """Values at some of its rows if they had other features, (len(ids), n_outputs).

        They change as the function that is fitted to all rows does.
        """
        positions = np.searchsorted(self.ids, ids)
        apart = self.values[positions] - self.own[positions]
        return self(inputs) + torch.from_numpy(apart)

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Refuse what would need a fit for each row."""
        raise NotImplementedError("a regressor is not fitted again without each row")

    def with_rows(self, ids: np.ndarray, inputs: Any) -> ModelTrend:
        """With further rows, to which the function is not fitted."""
        values = self(inputs).numpy()
        return replace(
            self,
            ids=np.concatenate([self.ids, ids]),
            values=np.concatenate([self.values, values]),
            own=np.concatenate([self.own, values]),
        )

    def without(self, ids: np.ndarray) -> ModelTrend:
        """With fewer rows, and the same models, which were fitted to those that are removed."""
        kept = ~np.isin(self.ids, ids)
        return replace(self, ids=self.ids[kept], values=self.values[kept], own=self.own[kept])


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
            "trend must be 'kernel', None or a regressor of scikit-learn's interface, "
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


def parts_of(
    n_rows: int, groups: np.ndarray | None, times: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit and rows to predict: of other folds, of other groups, or earlier and later ones.

    There are none to fit before the earliest block of times, nor beside a single group.
    """
    if times is not None:
        order = times.argsort(kind="stable")
        first = times[order[np.arange(N_FOLDS + 1) * n_rows // (N_FOLDS + 1)]]
        starts = np.unique(np.searchsorted(times[order], first))  # rows of one time stay together
        for start, end in pairwise([*starts, n_rows]):
            yield np.sort(order[:start]), order[start:end]
        return
    rows, units = np.arange(n_rows), n_rows if groups is None else len(np.unique(groups))
    if units == 1:
        yield rows[:0], rows
        return
    # The folds are the same for every random_state: others would only add chance.
    n_folds = min(N_FOLDS, units)
    folds = KFold(n_folds, shuffle=True, random_state=0) if groups is None else GroupKFold(n_folds)
    yield from folds.split(rows, groups=groups)


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
