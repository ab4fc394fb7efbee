"""Outcomes that a query may be wanted to have: another class, or a prediction beyond a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from .._utils.validation import is_real
from .unwrap import Unwrapped


@dataclass(frozen=True)
class Threshold:
    """The outcome that a prediction is beyond a value.

    Parameters
    ----------
    value : float
        The threshold.
    sign : int
        1, if it is to be reached from below, or -1.
    """

    value: float
    sign: int

    @property
    def text(self) -> str:
        """What is wanted, in a message."""
        return f"a target of at {'least' if self.sign > 0 else 'most'} {self.value:g}"

    def of(self, prediction: Any) -> Threshold:
        """The outcome for a query with this prediction."""
        if self.sign * (prediction - self.value) >= 0:
            which = "at_least" if self.sign > 0 else "at_most"
            raise ValueError(
                f"{which} must be beyond the predictions of X, got {self.value!r} and a "
                f"prediction of {prediction:.6g}"
            )
        return self

    def holds(self, targets: np.ndarray) -> np.ndarray:
        """Whether targets have the outcome, bool (n,)."""
        return self.sign * (targets - self.value) >= 0

    def scores(self, model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """How near rows are to the outcome, (m,), and whether they have it, bool (m,)."""
        predictions = model.predict(X)
        return self.sign * predictions, self.holds(predictions)


@dataclass(frozen=True)
class OtherClass:
    """The outcome that a class is predicted, or one that is not the query's.

    Parameters
    ----------
    label : label, optional
        The class.
    instead_of : label, optional
        The class of the query, if any other will do.
    """

    label: Any = None
    instead_of: Any = None

    @property
    def text(self) -> str:
        """What is wanted, in a message."""
        if self.label is None:
            return f"another class than {self.instead_of!s:.100}"
        return f"the class {self.label!r:.100}"

    def of(self, prediction: Any) -> OtherClass:
        """The outcome for a query with this prediction."""
        if self.label is None:
            return OtherClass(instead_of=prediction)
        if prediction == self.label:
            raise ValueError(f"y must be another class than those predicted, got {self.label!r}")
        return self

    def holds(self, labels: np.ndarray) -> np.ndarray:
        """Whether labels have the outcome, bool (n,)."""
        return labels != self.instead_of if self.label is None else labels == self.label

    def scores(self, model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """How near rows are to the outcome, (m,), and whether they have it, bool (m,)."""
        query = model.embed(X)
        probabilities = model.predict_proba(query) @ self.holds(model.classes_)
        return probabilities, self.holds(model.predict(query))


Outcome = Threshold | OtherClass


def make_outcome(model: Unwrapped, y: Any, at_least: Any, at_most: Any) -> Outcome:
    """The wanted outcome that the parameters of :func:`counterfactuals` mean."""
    limits = {"at_least": (at_least, 1), "at_most": (at_most, -1)}
    given = [name for name, (value, _) in limits.items() if value is not None]
    if is_classifier(model.estimator):
        return _class(model, y, {name: limits[name][0] for name in given})
    if model.neighbor_targets().ndim > 1:
        raise ValueError(
            "counterfactuals needs a model of one output, got several: fit one for each"
        )
    if y is not None:
        raise ValueError(f"y needs a classifier, got {y!r:.100}: use at_least or at_most")
    if len(given) != 1:
        both = "both" if given else "neither"
        raise ValueError(f"exactly one of at_least and at_most must be given, got {both}")
    value, sign = limits[given[0]]
    if not is_real(value, -np.inf, np.inf) or not np.isfinite(float(value)):
        raise ValueError(f"{given[0]} must be a finite number, got {value!r:.100}")
    return Threshold(float(value), sign)


def _class(model: Any, y: Any, limits: dict[str, Any]) -> OtherClass:
    """The class `y`, or any other than the predicted one, of a classifier."""
    if isinstance(model.classes_, list):
        raise ValueError(
            "counterfactuals needs a model of one output, got several: fit one for each"
        )
    for name, value in limits.items():
        raise ValueError(f"{name} needs a regressor, got {value!r:.100} with a classifier: use y")
    if y is not None and (np.ndim(y) or y not in model.classes_.tolist()):
        raise ValueError(f"y must be one of the classes of fit, got {y!r:.100}")
    return OtherClass(y)
