"""What classifiers add: labels, and their probabilities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, MultiOutputMixin
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import Tensor

from .._data.class_weight import find_factors, times, weigh_classes
from .._data.names import target_names_of
from .._data.rows import Rows
from .._data.sample_weight import check_sample_weight
from .._data.targets import ClassTargets, check_lengths
from .._inference.explanation import Explanation
from .._utils.frames import table
from .._utils.snapshots import snapshot
from .neighbors import NeighborEstimator


class ClassPredictor(MultiOutputMixin, ClassifierMixin):
    """What answers with classes, whoever says how probable they are."""

    def _probabilities(self, X) -> Tensor:
        """Say how probable each class of each output is, (q, C)."""
        raise NotImplementedError

    def _make_targets(self):
        return ClassTargets(self._margin)

    @property
    def _margin(self) -> float | None:
        """By how much a class must be ahead for training to let it be; None: it never does."""
        return None if self.loss == "log_loss" else self.margin

    def _training_options(self):
        # Where classes are apart the log loss falls by shares of itself for ever: a network that
        # goes on only grows too sure.
        options = super()._training_options() | {"threshold_mode": "abs"}
        if self._margin is not None:
            options["max_accumulation"] = int(self.max_accumulation)
        return options

    def _weigh(self, X, y, sample_weight):
        self._class_factors = None
        if self.class_weight is None:
            return sample_weight
        rows = self._as_rows(X)
        y = rows.targets() if y is None and isinstance(rows, Rows) else y
        labels = self._make_targets().check(y)
        check_lengths(_num_samples(rows), len(labels))
        weights = check_sample_weight(sample_weight, len(labels))
        self._class_factors = find_factors(self.class_weight, labels, weights, target_names_of(y))
        return weigh_classes(self._class_factors, labels, weights)

    def _initial_networks(self, X, targets, seeds):
        if self.warm_start and hasattr(self, "targets_"):
            earlier, now = _listed(self.targets_), _listed(targets)
            if earlier != now:
                raise ValueError(
                    f"warm_start=True needs the classes of the earlier fit, {earlier!r:.200}, "
                    f"got {now!r:.200}"
                )
        return super()._initial_networks(X, targets, seeds)

    @property
    def class_weight_(self) -> np.ndarray | list[np.ndarray]:
        """How much a row of each class counts, (n_classes,); of several outputs a list of such."""
        check_is_fitted(self)
        fitted = snapshot(self)
        classes = fitted.targets_.classes
        factors = fitted._class_factors or [{}] * len(classes)
        each = [
            np.array([of.get(label, 1.0) for label in labels])
            for of, labels in zip(factors, classes, strict=True)
        ]
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
        fitted = snapshot(self)
        probabilities = fitted._probabilities(X)
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
        fitted = snapshot(self)
        probabilities = fitted._probabilities(X)
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


class NeighborClassifier(ClassPredictor, NeighborEstimator):
    """A neighbour estimator whose targets are classes."""

    def _probabilities(self, X):
        return torch.cat([evaluation.mean() for evaluation in self._evaluate_in_blocks(X)[1]])

    def _weigh_added(self, values, sample_weight):
        if self._class_factors is None:
            return sample_weight
        weights = self.class_weight_ if self.targets_.several else [self.class_weight_]
        blocks = values.cpu().split(self.targets_.sizes, dim=1)
        pairs = zip(blocks, weights, strict=True)
        return times(sample_weight, [block.numpy() @ each for block, each in pairs])

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
        fitted = snapshot(self)
        explanation = fitted._explain(X, n_neighbors)
        return table(explanation.columns() | _class_columns(explanation, fitted.targets_))


def _listed(targets: ClassTargets) -> list:
    """The labels, as a list; of several outputs a list of such."""
    each = [classes.tolist() for classes in targets.classes]
    return each if targets.several else each[0]


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
    which say where they end.
    """
    pairs = [
        (output, label) for output, own in zip(outputs, classes, strict=True) for label in own
    ]
    names = [f"{output}_{label}" for output, label in pairs]
    if len({*names}) < len(names):
        names = [f"{output!r}_{label}" for output, label in pairs]
    return names
