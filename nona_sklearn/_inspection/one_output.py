"""One output of a model of several, as a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from .._estimators.attributions import Adjustments
from .._inference.explanation import Explanation
from .displays.base import target_name
from .displays.neighbors import choose_output


@dataclass(frozen=True)
class OneOutput:
    """A model of several outputs, of which one is looked at. All else is that of the model.

    Parameters
    ----------
    model : Unwrapped
        The fitted model.
    number : int
        Which output.
    name : str
        Its name.
    """

    model: Any
    number: int
    name: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def classes_(self) -> np.ndarray:
        """The labels of the output."""
        return self.model.classes_[self.number]

    def neighbor_targets(self) -> np.ndarray:
        """Targets of the bank's rows, (n,)."""
        return self.model.neighbor_targets()[:, self.number]

    def predict(self, X: Any) -> np.ndarray:
        """Predictions, (q,)."""
        return self.model.predict(X)[:, self.number]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the labels, (q, n_classes)."""
        return self.model.predict_proba(X)[self.number]

    def predict_quantiles(self, X: Any, quantiles: Any) -> np.ndarray:
        """Quantiles, (q, n_quantiles)."""
        return self.model.predict_quantiles(X, quantiles)[..., self.number]

    def explanation(self, X: Any, n_neighbors: int | None = None) -> Explanation:
        """What predictions consist of."""
        found = self.model.explanation(X, n_neighbors)
        return self._select(found, "targets", "adjusted", "contributions", target_names=None)

    def adjustments(self, X: Any, features: Any, n_neighbors: int | None = None) -> Adjustments:
        """How each column moves the neighbours of queries."""
        found = self.model.adjustments(X, features, n_neighbors)
        return self._select(found, "start", "end", "parts")

    def _select(self, found: Any, *names: str, **others: Any) -> Any:
        """Select from arrays of these names (..., n_outputs) what is the output's."""
        own: Any = [self.number]
        if is_classifier(self.model.estimator):
            own = self.model.estimator.targets_.class_slices[self.number]
        return replace(found, **{name: getattr(found, name)[..., own] for name in names}, **others)


def one_output(model: Any, output: Any) -> tuple[Any, str]:
    """A model of the chosen output, by its number or name, of an unwrapped one; and its name."""
    n_outputs = np.prod(model.neighbor_targets().shape[1:], dtype=int)
    number, name = choose_output(model, int(n_outputs), output)
    if model.neighbor_targets().ndim == 1:
        return model, target_name(model)
    return OneOutput(model, number, name), name
