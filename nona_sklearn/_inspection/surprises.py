"""Targets that contradict their predictions by more than chance explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST = 3.0  # distance of a number that surprises at all, in standard deviations
BY_CHANCE = 0.1  # most of the listed numbers that may be there by chance, as a share
ODDS = 100.0  # by which a surprising label is less probable than the predicted one
MIDDLE, UPPER = 0.5, 0.9  # quantiles of usual distances, which few errors hardly change


@dataclass(frozen=True)
class Surprises:
    """Rows whose targets surprise, the most surprising first.

    Parameters
    ----------
    rows : int ndarray of shape (m,)
        Their numbers.
    by_chance : float
        About how many there would be without any error; of labels, if the probabilities are
        right, which know how frequent errors are.
    """

    rows: np.ndarray
    by_chance: float

    def without(self, left_out: np.ndarray) -> Surprises:
        """The same without the rows that a mask, bool (n,), leaves out."""
        return Surprises(self.rows[~left_out[self.rows]], self.by_chance)


def surprising_numbers(distances: np.ndarray) -> Surprises:
    """Choose among distances ``abs(y - mean) / std``, (n,); NaN is not known.

    Chances are those of a Weibull distribution through the median and the upper quantile of the
    distances: errors of a normal, or a longer, tail. The rows are as many as Benjamini and
    Hochberg's procedure allows.
    """
    known = np.flatnonzero(~np.isnan(distances))
    order = known[np.argsort(-distances[known], kind="stable")]
    ranked = distances[order]
    middle, upper = np.quantile(ranked, [MIDDLE, UPPER]) if len(order) else (0.0, 0.0)
    steepness = np.log(upper / middle) if middle > 0 else 0.0
    if steepness <= 0:  # most are exact: no tail is known
        return Surprises(order[ranked > LEAST], 0.0)
    exponents = np.log(-np.log1p([-MIDDLE, -UPPER]))
    power = (exponents[1] - exponents[0]) / steepness
    with np.errstate(over="ignore"):  # no chance at all
        chances = np.exp(np.log1p(-MIDDLE) * (ranked / middle) ** power)
    ranks = np.arange(1, len(order) + 1)
    allowed = np.flatnonzero(chances * len(order) <= BY_CHANCE * ranks)
    n_listed = min(allowed[-1] + 1 if len(allowed) else 0, (ranked > LEAST).sum())
    expected = len(order) * chances[n_listed - 1] if n_listed else 0.0
    return Surprises(order[:n_listed], float(expected))


def surprising_labels(odds: np.ndarray, probabilities: np.ndarray) -> Surprises:
    """Choose among the odds (n,) of the predicted class against the target's; NaN is not known.

    `probabilities` (n, n_classes) are those of all classes.
    """
    known = np.flatnonzero(~np.isnan(odds))
    order = known[np.argsort(-odds[known], kind="stable")]
    own = probabilities[known]
    unlikely = own * ODDS <= own.max(axis=1, keepdims=True)
    return Surprises(order[odds[order] >= ODDS], float(own[unlikely].sum()))
