"""What classifiers add: labels, and their probabilities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._data.class_targets import ClassTargets
from .._data.class_weight import weights_of_classes
from .._inference.explanation import Explanation
from .._utils.frames import table
from .base import NeighborEstimator
from .parameters import ASSoftmax
from .queries import evaluate_in_blocks, explanation, fitted_snapshot


def probabilities_of(estimator: Any, X: Any) -> tuple[Any, Tensor]:
    """Probability of each class of each output, (q, C), and the snapshot that it is of."""
    fitted, evaluations = evaluate_in_blocks(estimator, X)
    return fitted, torch.cat([evaluation.mean() for evaluation in evaluations])


class NeighborClassifier(ClassifierMixin, NeighborEstimator):
    """A neighbour estimator whose targets are classes."""

    _probabilities = staticmethod(probabilities_of)

    def _make_targets(self):
        loss = ASSoftmax.of(self.loss)
        smoothing = self._architecture().smoothing
        return ClassTargets(None if loss is None else loss.margin, smoothing)

    @property
    def class_weight_(self) -> np.ndarray | list[np.ndarray]:
        """How much a row of each class counts, (n_classes,); of several outputs a list of such."""
        fitted = fitted_snapshot(self)
        each = weights_of_classes(fitted._class_factors, fitted.targets_.classes)
        return each if fitted.targets_.several else each[0]

    @property
    def classes_(self) -> np.ndarray | list[np.ndarray]:
        """The labels, sorted, (n_classes,); of several outputs a list of such arrays."""
        check_is_fitted(self)
        targets = self.targets_
        return targets.classes if targets.several else targets.classes[0]

    def predict(self, X):
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, each without itself (leave-one-out).

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs)
            Labels. Of classes that are equally probable, the first.
        """
        fitted, probabilities = self._probabilities(self, X)
        return fitted.targets_.decode(probabilities)

    def predict_proba(self, X):
        """Predict how probable each class is.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, each without itself (leave-one-out).

        Returns
        -------
        ndarray of shape (n_queries, n_classes), or list of n_outputs such arrays
            Probabilities in the order of ``classes_``; each row sums to 1.
        """
        fitted, probabilities = self._probabilities(self, X)
        each = [p.cpu().numpy() for p in probabilities.split(fitted.targets_.sizes, dim=1)]
        return each if fitted.targets_.several else each[0]

    def predict_log_proba(self, X):
        """Predict the logarithms of :meth:`predict_proba`'s probabilities.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, each without itself (leave-one-out).

        Returns
        -------
        ndarray of shape (n_queries, n_classes), or list of n_outputs such arrays
            Logarithms, -inf where a probability is 0.
        """
        probabilities = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            if isinstance(probabilities, list):  # of several outputs
                return [np.log(p) for p in probabilities]
            return np.log(probabilities)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def explain(self, X=None, n_neighbors=5):
        """Table of the rows behind each prediction: their classes, and what they add to each.

        Contributions of a query to a class sum to the class's probability.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).
        n_neighbors : int, default=5
            Number of neighbours to name, heaviest first; one more row stands for all others.

        Returns
        -------
        DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
            ``n_neighbors + 1`` rows for each query, with the columns ``query`` and ``neighbor``
            (their names in the index of a DataFrame, else their numbers, of added rows their
            ids; last of each query "others", or "others'" where a row is called so),
            ``weight``, ``target``, the neighbour's class (missing of the others), and for each
            class ``contribution_<class>``, what the row adds to its
            probability. With several outputs ``target_<output>`` and
            ``contribution_<output>_<class>``, where outputs go by the names of the columns of the
            `y` given to fit, or by numbers. Where these would make one name of two, outputs
            are in quotes: ``contribution_'<output>'_<class>``.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows that are admitted.

        Notes
        -----
        If it adjusts (`adjust`), a neighbour adds its weight times what the network holds of
        its class's odds for the query. What smoothing adds is the others'.
        """
        fitted = fitted_snapshot(self)
        found = explanation(fitted, X, n_neighbors)
        return table(found.columns() | _class_columns(found, fitted.targets_))


def _class_columns(explanation: Explanation, targets: ClassTargets) -> dict[str, Any]:
    """Columns of the neighbours' classes, and of what they add to each, (q * (k + 1),) each."""
    outputs = explanation.target_names or range(len(targets.classes))
    ends = [f"_{output}" for output in outputs] if targets.several else [""]
    labels = {}
    for end, classes, place in zip(ends, targets.classes, targets.places, strict=True):
        behind = classes[explanation.targets[..., place].argmax(axis=2)].astype(object)
        behind[:, -1] = None
        labels[f"target{end}"] = behind.ravel()
    names = _class_names(outputs, targets.classes) if targets.several else targets.classes[0]
    added = explanation.contributions.reshape(-1, len(names)).T
    return labels | {
        f"contribution_{name}": column for name, column in zip(names, added, strict=True)
    }


def _class_names(outputs: Iterable, classes: Iterable) -> list[str]:
    """Name the classes of all outputs, each as "<output>_<class>".

    Where two would be called the same, as "b_x" of "a" and "x" of "a_b", outputs are in quotes,
    which mark their ends.
    """
    pairs = [
        (output, label) for output, own in zip(outputs, classes, strict=True) for label in own
    ]
    names = [f"{output}_{label}" for output, label in pairs]
    if len({*names}) < len(names):
        names = [f"{output!r}_{label}" for output, label in pairs]
    return names
