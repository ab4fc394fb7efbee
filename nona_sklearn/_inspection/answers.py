"""Predictions and explanations of a fitted model for one of its outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from .._data.sample import Embedded, TableRows
from .._estimators.attributions import Adjustments, additive_trend
from .._inference.explanation import Explanation
from .displays.base import choose_output
from .unwrap import Unwrapped, unwrap_one_output


@dataclass(frozen=True)
class OutputAnswers:
    """Predictions and explanations of a fitted model for one of its outputs."""

    model: Any
    output: int | None  # the number of the output; None: the model has one output
    target_name: str

    @classmethod
    def of(cls, model: Unwrapped, output: Any) -> OutputAnswers:
        """Return the answers for the output with a number or name."""
        targets = model.neighbor_targets()
        n_outputs = int(np.prod(targets.shape[1:], dtype=int))
        number, name = choose_output(model, n_outputs, output)
        return cls(model, None if targets.ndim == 1 else number, name)

    @classmethod
    def of_only(cls, function: str, model: Any) -> OutputAnswers:
        """Return the answers of a model of one output. An error names the function."""
        model = unwrap_one_output(function, model)
        return cls(model, None, (model.target_names_ or ("target",))[0])

    @property
    def bank(self) -> Any:
        """Return the bank of stored rows."""
        return self.model.estimator.bank_

    @property
    def targets(self) -> np.ndarray:
        """Return the targets of the stored rows, (n,)."""
        targets = self.model.neighbor_targets()
        return targets if self.output is None else targets[:, self.output]

    @property
    def is_of_classes(self) -> bool:
        """Return whether the targets are classes."""
        return is_classifier(self.model.estimator)

    @property
    def classes(self) -> np.ndarray:
        """Return the labels of a classifier, (n_classes,)."""
        classes = self.model.classes_
        return classes if self.output is None else classes[self.output]

    @property
    def has_additive_part(self) -> bool:
        """Return whether predictions have a part that is a sum over columns."""
        return additive_trend(self.model.estimator) is not None

    def metric_embeddings(self, embeddings: Any) -> np.ndarray:
        """Return the part of the embeddings in which rows are compared, (n, d)."""
        return self.model.estimator.network_.head.metric_part(embeddings).cpu().numpy()

    # -- queries ---------------------------------------------------------------------------

    def embed(self, X: Any) -> Embedded:
        """Return embedded queries."""
        return self.model.embed(X)

    def stored_rows(self, positions: np.ndarray) -> Embedded:
        """Return rows of the bank as queries. A row is left out of its own prediction."""
        bank, network = self.bank, self.model.estimator.network_
        inputs = None if bank.inputs is None else TableRows(bank.inputs)[positions]
        names, ids = bank.names_of(positions), bank.ids[positions]
        return Embedded(bank.embeddings[positions], network, names, ids, inputs=inputs)

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, (q,)."""
        predictions = self.model.predict(X)
        return predictions if self.output is None else predictions[:, self.output]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the labels, (q, n_classes)."""
        probabilities = self.model.predict_proba(X)
        return probabilities if self.output is None else probabilities[self.output]

    def predict_interval(self, X: Any, coverage: float) -> np.ndarray:
        """Return the ends of the prediction intervals, (q, 2)."""
        ends = self.model.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])
        return ends if self.output is None else ends[..., self.output]

    def explanation(self, X: Any, n_neighbors: int) -> Explanation:
        """Return the contributions of rows to the predictions."""
        explained = self.model.explanation(X, n_neighbors)
        if self.output is None:
            return explained
        values = self._of_output(explained, "targets", "adjusted", "contributions")
        return replace(explained, **values, target_names=None)

    def adjustments(self, X: Any, features: Any, n_neighbors: int) -> Adjustments:
        """Return the adjustment by every column of the neighbours of queries."""
        adjusted = self.model.adjustments(X, features, n_neighbors)
        if self.output is None:
            return adjusted
        return replace(adjusted, **self._of_output(adjusted, "start", "end", "parts"))

    def _of_output(self, answer: Any, *names: str) -> dict[str, np.ndarray]:
        """Return the output's part of the arrays with these names, (..., n_outputs)."""
        columns: Any = [self.output]
        if self.is_of_classes:
            columns = self.model.estimator.targets_.class_slices[self.output]
        return {name: getattr(answer, name)[..., columns] for name in names}
