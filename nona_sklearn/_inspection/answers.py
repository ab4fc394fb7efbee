"""Answers of a fitted model for one of its outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import _num_samples

if TYPE_CHECKING:
    from ..explanation import Explanation


@dataclass(frozen=True)
class OutputAnswers:
    """Predictions and explanations of an unwrapped model for one of its outputs."""

    model: Any
    output: int | None  # the number of the output; None: the model has one output
    target_name: str
    eligibility: Any = None  # the rule of the rows that may be neighbours, or a mask of one line

    @classmethod
    def of(cls, model: Any, output: Any, eligibility: Any = None) -> OutputAnswers:
        """Return the answers for the output with a number or name."""
        shape, names = model.neighbor_targets().shape[1:], model.target_names_ or ()
        n_outputs = int(np.prod(shape, dtype=int))
        choices = [*range(n_outputs), *names]
        if output is None and n_outputs == 1:
            output = 0
        if output not in choices:
            raise ValueError(f"output must be one of {choices}, got {output!r:.100}")
        number = names.index(output) if output in names else output
        plain = "target" if n_outputs == 1 else f"target_{number}"
        name = names[number] if names else plain
        return cls(model, number if shape else None, name, eligibility)

    @classmethod
    def of_only(cls, function: str, model: Any) -> OutputAnswers:
        """Return the answers of an unwrapped model of one output. An error names the function."""
        if model.neighbor_targets().ndim > 1:
            raise ValueError(
                f"{function} needs a model of one output, got several: fit one for each"
            )
        return cls.of(model, 0)

    @property
    def bank(self) -> Any:
        """Return the bank of stored rows."""
        return self.model.estimator.bank_

    @property
    def targets(self) -> np.ndarray:
        """Return the targets of the stored rows, (n,)."""
        return self._column(self.model.neighbor_targets())

    @property
    def is_of_classes(self) -> bool:
        """Return whether the targets are classes."""
        return is_classifier(self.model.estimator)

    @property
    def classes(self) -> np.ndarray:
        """Return the labels of a classifier, (n_classes,)."""
        classes = self.model.classes_
        return classes if self.output is None else classes[self.output]

    def embeddings(self, X: Any = None) -> np.ndarray:
        """Return queries, or the bank's rows, in the space in which rows are compared, (n, d)."""
        return np.asarray(self.model.transform(self.model.stored_rows() if X is None else X))

    def check_target(self, y_true: Any) -> None:
        """Raise if a true target is not None, one number, or a class given to fit."""
        if y_true is None:
            return
        if self.is_of_classes:
            if np.ndim(y_true) or y_true not in self.classes.tolist():
                raise ValueError(f"y_true must be one of the classes of fit, got {y_true!r}")
            return
        given = np.asarray(y_true)
        if given.size != 1 or given.dtype.kind not in "biuf" or not np.isfinite(given).all():
            raise ValueError(f"y_true must be a number, got {y_true!r:.100}")

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, (q,)."""
        return self._column(self.model.predict(X, eligibility=self._eligibility(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the labels, (q, n_classes)."""
        probabilities = self.model.predict_proba(X, eligibility=self._eligibility(X))
        return probabilities if self.output is None else probabilities[self.output]

    def predict_interval(self, X: Any, confidence: float) -> np.ndarray:
        """Return the ends of the prediction intervals, (q, 2)."""
        levels = [(1 - confidence) / 2, (1 + confidence) / 2]
        quantiles = self.model.predict_quantiles(X, levels, eligibility=self._eligibility(X))
        return self._column(quantiles)

    def explanation(self, X: Any, n_neighbors: int) -> Explanation:
        """Return the contributions of rows to the predictions."""
        explained = self.model.explanation(X, n_neighbors, self._eligibility(X))
        if self.output is None:
            return explained
        values = self._of_output(explained, "targets", "adjusted", "contributions")
        return replace(explained, **values, target_names=None)

    def adjustments(self, X: Any, features: Any, n_neighbors: int) -> Any:
        """Return the adjustment by every column of the neighbours of queries."""
        adjusted = self.model.adjustments(X, features, n_neighbors, self._eligibility(X))
        if self.output is None:
            return adjusted
        return replace(adjusted, **self._of_output(adjusted, "start", "end", "parts"))

    def neighborhood(self, X: Any) -> dict[str, Any]:
        """Return the columns of the neighbourhood of one query."""
        described = self.model.neighborhood(X, eligibility=self._eligibility(X))
        return {name: described[name][0] for name in described}

    @property
    def rule(self) -> Any:
        """Return the rule of eligibility that holds for queries, or None."""
        return rule_that_holds(self.bank, self.eligibility)

    def _eligibility(self, X: Any) -> Any:
        """Return the rule, or the line of the mask for each of the queries."""
        if self.eligibility is None or callable(self.eligibility):
            return self.eligibility
        return np.repeat(np.atleast_2d(self.eligibility), _num_samples(X), axis=0)

    def _column(self, values: np.ndarray) -> np.ndarray:
        """Return the output's part of values (..., n_outputs), or of one output (...)."""
        return values if self.output is None else values[..., self.output]

    def _of_output(self, answer: Any, *names: str) -> dict[str, np.ndarray]:
        """Return the output's part of the arrays with these names, (..., n_outputs)."""
        columns: Any = [self.output]
        if self.is_of_classes:
            columns = self.model.estimator.targets_.class_slices[self.output]
        return {name: getattr(answer, name)[..., columns] for name in names}


def rule_that_holds(bank: Any, eligibility: Any) -> Any:
    """Return the rule given for a call, or else the one of fit; None: a mask, or no rule."""
    if eligibility is None and bank.rule is not None:
        return bank.rule.rule
    return eligibility if callable(eligibility) else None
