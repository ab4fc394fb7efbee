"""Predictions of many queries, and the rows behind each, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from .._data.embedded import Embedded
from .._estimators.feature_comparison import ComparedColumn, differences_of, largest_differences
from .._inference.explanation import Explanation

ROUNDING = 1e-6  # of predictions, relative to their size: embeddings are float32
Predicted = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Pair = tuple[ComparedColumn, ComparedColumn]  # a column of the bank's rows, and of the queries


@dataclass(frozen=True)
class Answers:
    """Predictions of queries, (q,), and the k rows with the largest weights of each, (q, k).

    Parameters
    ----------
    predictions : ndarray of shape (q,)
        Numbers, NaN without neighbours; or labels.
    details : ndarray of shape (q, d)
        The ends of the interval or, of classes, the probabilities.
    errors : ndarray of shape (q,)
        Prediction minus target or, of classes, one minus the probability of the true one; NaN
        where the target is not known.
    surprises : ndarray of shape (q,)
        How far a target is from its prediction, in standard deviations: ``abs(y - mean) / std``.
        Of classes, the probability of the predicted one, over that of the true one. NaN where the
        target is not known.
    positions : int ndarray of shape (q, k)
        Positions of rows in the bank, those with the largest weights first; -1: no row.
    weights, adjusted : ndarray of shape (q, k)
        Their weights, 0 without a row; and adjusted targets, of classes of no use.
    others : ndarray of shape (q, 4)
        The weight of all other rows together, their target, adjusted target and contribution; NaN
        where that is not known, or there are no others.
    differs : int ndarray of shape (q, k, 3)
        Numbers of the columns in which a row differs most; the number of columns: none.
    """

    predictions: np.ndarray
    details: np.ndarray
    errors: np.ndarray
    surprises: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    adjusted: np.ndarray
    others: np.ndarray
    differs: np.ndarray

    @classmethod
    def of(
        cls,
        model: Any,
        query: Embedded,
        targets: np.ndarray,
        columns: list[Pair],
        *,
        n_neighbors: int,
        coverage: float,
    ) -> Answers:
        """Predict queries with these targets, and find the rows behind the predictions."""
        others = len(model.estimator.bank_) - (query.ids is not None)
        found = model.explanation(query, min(n_neighbors, others))
        if is_classifier(model.estimator):
            predicted = _classes(model, query, targets)
        else:
            predicted = _numbers(model, query, targets, found, coverage)
        rows = found.of_single_rows()
        place = rows.of_query, np.arange(len(rows.of_query)) - rows.first_lines[rows.of_query]
        shape = len(query), n_neighbors
        return cls(
            *predicted,
            positions=_filled(place, rows.positions, np.full(shape, -1)),
            weights=_filled(place, rows.weights, np.zeros(shape)),
            adjusted=_filled(place, rows.adjusted[:, 0], np.full(shape, np.nan)),
            others=_others(found),
            differs=_differing(place, rows, columns, shape),
        )

    @classmethod
    def joined(cls, *parts: Answers) -> Answers:
        """Some, one after another."""
        names = [each.name for each in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def among(self, stored: np.ndarray) -> Answers:
        """The same with numbers of rows among the stored ones in place of positions.

        A row that is not among them is left out, as if it were one of the others.
        """
        order = np.argsort(stored)
        places = np.searchsorted(stored, self.positions, sorter=order).clip(max=len(stored) - 1)
        found = stored[order[places]] == self.positions
        positions, weights = np.where(found, order[places], -1), np.where(found, self.weights, 0)
        left_out = (~found & (self.weights > 0)).any(axis=1)
        others = self.others.copy()
        others[left_out] = np.nan
        others[left_out, 0] = 1 - weights[left_out].sum(axis=1)
        return replace(self, positions=positions, weights=weights, others=others)

    def order_of_columns(self, n_columns: int, parts: np.ndarray | None) -> np.ndarray:
        """Numbers of the columns (q, n_columns), those first that matter most, as in a report.

        These have the largest differences of `parts` (q, n_columns), what columns add to the
        predictions of these rows; without parts, they are marked most often.
        """
        if parts is None:
            matter = np.zeros((len(self.differs), n_columns + 1))
            for each in np.moveaxis(self.differs, 2, 0):
                np.add.at(matter, (np.arange(len(matter))[:, None], each), 1)
            matter = matter[:, :-1]  # without those that are no column
        else:
            moves = abs(parts[:, None] - parts[self.positions])
            matter = (moves * (self.positions >= 0)[..., None]).sum(axis=1)
        return np.argsort(-matter, axis=1, kind="stable")

    def of_columns(self, chosen: np.ndarray, n_columns: int) -> Answers:
        """The same with numbers of columns among the chosen ones; the number of these: none."""
        numbers = np.full(n_columns + 1, len(chosen))
        numbers[chosen] = np.arange(len(chosen))
        return replace(self, differs=numbers[self.differs])


def _numbers(
    model: Any, query: Embedded, targets: np.ndarray, found: Explanation, coverage: float
) -> Predicted:
    """Predictions, ends of intervals, errors and surprises of numbers."""
    predictions = found.totals(found.contributions)[:, 0]
    predictions[np.setdiff1d(np.arange(len(query)), found.of_query)] = np.nan
    ends = model.predict_quantiles(query, [(1 - coverage) / 2, (1 + coverage) / 2])
    spread = np.ravel(model.predict(query, return_std=True)[1])
    spread = np.maximum(spread, ROUNDING * abs(predictions))
    errors = predictions - targets
    return predictions, ends, errors, abs(errors) / np.maximum(spread, np.finfo(float).tiny)


def _classes(model: Any, query: Embedded, targets: np.ndarray) -> Predicted:
    """Predictions, probabilities, errors and surprises of classes."""
    predictions, probabilities = model.predict(query), model.predict_proba(query)
    true = targets[:, None] == model.classes_  # nowhere, if the target is not known
    own = np.where(true, probabilities, 0).sum(axis=1)
    own[[target is None for target in targets]] = np.nan
    odds = probabilities.max(axis=1) / np.maximum(own, np.finfo(float).tiny)
    return predictions, probabilities, 1 - own, odds


def _others(found: Explanation) -> np.ndarray:
    """Weight, target, adjusted target and contribution of the others of each query, (q, 4)."""
    lines = ~found.of_rows & (found.weights > 0)
    columns = found.targets, found.adjusted, found.contributions
    values = np.stack([found.weights, *(each[:, 0] for each in columns)], axis=1)
    unknown = np.full((len(found.queries), values.shape[1]), np.nan)
    return _filled(found.of_query[lines], values[lines], unknown)


def _filled(place: Any, values: np.ndarray, array: np.ndarray) -> np.ndarray:
    """An array (q, k, ...) with the values of lines at their places."""
    array[place] = values
    return array


def _differing(
    place: tuple, rows: Explanation, columns: list[Pair], shape: tuple[int, int]
) -> np.ndarray:
    """Numbers of the columns in which each row differs most from its query, (q, k, 0 to 3)."""
    if not columns:
        return np.empty((*shape, 0), dtype=int)
    largest = largest_differences([differences_of(rows, *pair) for pair in columns])
    return _filled(place, largest, np.full((*shape, largest.shape[1]), len(columns)))
