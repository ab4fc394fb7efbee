"""Metrics that scikit-learn lacks, with the arguments of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from ._data.targets import orders_of

__all__ = ["ranked_probability_loss"]

ROUNDING = 1e-3  # of the sum of probabilities


def ranked_probability_loss(
    y_true: Any, y_proba: Any, *, sample_weight: Any = None, labels: Any = None
) -> float:
    """Compute the ranked probability score of ordered classes [1]_, of which less is better.

    It is the squared difference between predicted and true cumulative probabilities, summed over
    the classes. The loss of a prediction that is certain is the number of classes from the
    predicted class to the true one, and the loss of two classes is the Brier score.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities of the classes, in their order. Of two classes, the probability of
        the second is enough.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples.
    labels : array-like of shape (n_classes,), default=None
        Labels in the order of the columns, as in ``classes_``. The order of the classes is that of
        an ordered categorical `y_true`, or else of the labels. None: the sorted labels of
        `y_true`, which must be numbers, or categories in sorted order: scikit-learn's classifiers
        sort their columns, and the estimators here have the order of the categories.

    Returns
    -------
    float
        Mean over the samples, from 0 to ``n_classes - 1``.

    Raises
    ------
    ValueError
        If `labels` are not given for strings without a sorted order, or repeat, `y_true` has a
        label that is not among them, or the rows of `y_proba` are not their probabilities.

    References
    ----------
    .. [1] Epstein, "A Scoring System for Probability Forecasts of Ranked Categories", 1969.

    Examples
    --------
    >>> from nona_sklearn.metrics import ranked_probability_loss
    >>> ranked_probability_loss(["low"], [[0.5, 0.5, 0]], labels=["low", "mid", "top"])
    0.25
    >>> ranked_probability_loss(["low"], [[0, 0, 1]], labels=["low", "mid", "top"])
    2.0

    As a scorer of a cross-validation:

    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.metrics import make_scorer
    >>> from sklearn.model_selection import cross_val_score
    >>> options = {"response_method": "predict_proba", "greater_is_better": False}
    >>> scorer = make_scorer(ranked_probability_loss, **options)
    >>> X, y = [[1], [2], [3], [4], [5], [6]], [0, 1, 2, 0, 1, 2]
    >>> cross_val_score(DummyClassifier(), X, y, cv=2, scoring=scorer).round(2)
    array([-0.44, -0.44])
    """
    (order, *_), y_true = orders_of(y_true), column_or_1d(np.asarray(y_true))
    if labels is None:
        labels = np.unique(y_true) if order is None else order
        is_sorted = list(labels) == sorted(labels)
        if not is_sorted or (order is None and y_true.dtype.kind not in "biuf"):
            raise ValueError(
                "labels must be given for labels without a sorted order, in the order of the "
                f"columns of y_proba, got None for {list(labels)!r:.200}"
            )
    labels = column_or_1d(np.asarray(labels))
    if len({*labels.tolist()}) < len(labels):
        raise ValueError(f"labels must hold each label once, got {labels.tolist()!r:.200}")
    is_class = y_true[:, None] == labels
    if not is_class.any(axis=1).all():
        unknown = y_true[~is_class.any(axis=1)].tolist()[0]
        raise ValueError(
            f"labels must hold all of y_true, got {labels.tolist()!r} without {unknown!r}"
        )
    proba = check_array(y_proba, ensure_2d=False, dtype=np.float64, input_name="y_proba")
    if proba.ndim == 1:
        proba = np.stack([1 - proba, proba], axis=1)
    check_consistent_length(y_true, proba, sample_weight)
    if proba.shape[1] != len(labels):
        raise ValueError(
            f"y_proba must have a column for each of the labels {labels.tolist()!r:.200}, got "
            f"{proba.shape[1]}"
        )
    if (proba < 0).any() or (abs(proba.sum(axis=1) - 1) > ROUNDING).any():
        raise ValueError("y_proba must hold probabilities, of which every row sums to 1")
    if order is not None:
        rank = [order.index(label) for label in labels.tolist()]
        in_order = np.argsort(rank)
        proba, is_class = proba[:, in_order], is_class[:, in_order]
    differences = proba.cumsum(axis=1) - is_class.cumsum(axis=1)
    return float(np.average((differences[:, :-1] ** 2).sum(axis=1), weights=sample_weight))
