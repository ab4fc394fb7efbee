"""The paper's experiment on anyone's extractor and data: four columns, one for each predictor."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    PredefinedSplit,
    StratifiedGroupKFold,
    check_cv,
)
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.utils import Bunch, _safe_indexing
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .._data.names import warn_of_other_order
from .._estimators.dense import DenseHeadClassifier, DenseHeadRegressor
from .._estimators.nona import NONAClassifier, NONARegressor
from .._estimators.queries import selectable
from .._utils.validation import check_choice, check_lengths

#: What each head changes, and whether it has neighbours.
HEADS: dict = {
    "dense": ({}, False),
    "nona": ({"adjust": False}, True),
    "adjusted": ({"adjust": True}, True),
}
N_NEIGHBORS = [1, 3, 5, 10, 20, 40, 80]


def compare_heads(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    heads: Any = ("dense", "nona", "adjusted"),
    cv: Any = None,
    groups: Any = None,
    scoring: Any = None,
    n_jobs: int | None = None,
) -> Bunch:
    """Cross-validate an estimator with several heads, and k-NN on the embedding of each.

    This is the experiment of section 4 of [1]_: the same extractor and embedding, trained by the
    same loop with the same parameters, under each head.

    Parameters
    ----------
    estimator : NONARegressor or NONAClassifier
        Not fitted: its parameters are those of every fit.
    X : array-like, or whatever the estimator's `feature_extractor` takes
        Rows.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    heads : sequence of {'dense', 'nona', 'adjusted'}, default=('dense', 'nona', 'adjusted')
        'dense' is a ReLU and a linear layer; 'nona' is the papers' weighted mean of targets
        (``adjust=False``); 'adjusted' is that of targets adjusted to the query
        (``adjust=True``), whatever the parameter of `estimator`.
    cv : int, cross-validation generator or iterable, default=None
        Determines the splits, as for :func:`sklearn.model_selection.cross_validate`. None:
        five folds. An int makes folds of whole groups, if there are groups. Classes are
        stratified.
    groups : array-like of shape (n_samples,), default=None
        Rows of a group stay together in training, as for :meth:`NONARegressor.fit`, and in
        `cv`, if it takes groups.
    scoring : str or callable, default=None
        Score of the test rows, of which larger values are better. None: minus the mean squared
        error ('neg_mean_squared_error'), and of classes minus the log loss ('neg_log_loss'), of
        several outputs their mean.
    n_jobs : int or None, default=None
        Number of splits and heads at a time. None means 1, unless in a
        :func:`joblib.parallel_config` context.

    Returns
    -------
    :class:`~sklearn.utils.Bunch`
        For each head two arrays of shape (n_splits,): the scores of the estimator under its
        name, and of k-NN on its embeddings under the name with ' + k-NN'. Number and weighting
        of the neighbours are chosen on the rows that training set aside for validation; with
        ``early_stopping=False``, by cross-validation; of classes by the log loss.

    Raises
    ------
    TypeError
        If `estimator` is another than these: only they can change the head.
    ValueError
        If a head is unknown, or as :meth:`NONARegressor.fit`.

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1, section 4.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import NONARegressor, compare_heads
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0)
    >>> scores = compare_heads(reg, X[:100], y[:100], cv=2)
    >>> list(scores)
    ['dense', 'dense + k-NN', 'nona', 'nona + k-NN', 'adjusted', 'adjusted + k-NN']
    >>> len(scores["nona"])
    2
    """
    for head in heads:
        check_choice("heads", head, HEADS)
    if not isinstance(estimator, NONARegressor | NONAClassifier):
        raise TypeError(
            f"estimator must be a NONARegressor or NONAClassifier, which can change their head, "
            f"got {estimator!r}"
        )
    classifies = is_classifier(estimator)
    default = neg_log_loss if classifies else "neg_mean_squared_error"
    scorer = check_scoring(estimator, default if scoring is None else scoring)
    if X is None or y is None:
        raise ValueError(f"{'y' if y is None else 'X'} must be an array-like, got None")
    warn_of_other_order(X=X, y=y, groups=groups)
    X, y = selectable(estimator, X), np.asarray(y)
    check_lengths(_num_samples(X), len(y))
    splits = _make_splits(cv, np.arange(_num_samples(X)), y, groups, classifies)
    scores = Parallel(n_jobs=n_jobs)(
        delayed(_score_head)(head, estimator, X, y, groups, split, scorer)
        for head in heads
        for split in splits
    )
    table = np.reshape(scores, (len(heads), len(splits), 2))
    columns: dict[str, np.ndarray] = {}
    for head, rows in zip(heads, table, strict=True):
        columns |= {head: rows[:, 0], f"{head} + k-NN": rows[:, 1]}
    return Bunch(**columns)


def _make_splits(cv, rows, y, groups, classifies):
    """Training and test rows of each fold; an int makes folds of whole groups."""
    if groups is not None and (cv is None or isinstance(cv, Integral)):
        stratified = classifies and y.ndim == 1
        cv = (StratifiedGroupKFold if stratified else GroupKFold)(cv or 5)
    return list(check_cv(cv, y, classifier=classifies).split(rows, y, groups))


def _score_head(head, estimator, X, y, groups, split, scorer):
    """Fit on one split: the scores of the head, and of k-NN on its embeddings."""
    trained = _with_head(estimator, head)
    (X_train, X_test), (y_train, y_test) = (
        [_safe_indexing(part, rows) for rows in split] for part in (X, y)
    )
    groups = None if groups is None else np.asarray(groups)[split[0]]
    trained.fit(X_train, y_train, groups=groups)
    embeddings = trained.network_.head.metric_part(_stored_embeddings(trained))
    classifies = is_classifier(trained)
    folds = check_cv(_folds(trained), y_train, classifier=classifies)
    knn = tune_knn(embeddings.cpu().numpy(), y_train, folds, classifies)
    return (
        scorer(trained, X_test, y_test),
        scorer(knn, trained.transform(X_test), y_test),
    )


def _with_head(estimator, head):
    """Make a new estimator of the same parameters with this head."""
    changes, has_neighbors = HEADS[head]
    kinds = (DenseHeadRegressor, NONARegressor)
    if is_classifier(estimator):
        kinds = (DenseHeadClassifier, NONAClassifier)
    return clone(kinds[has_neighbors](**estimator.get_params(deep=False) | changes))


def tune_knn(X, y, folds, classifies=False):
    """Fit k-NN, its number of neighbours and weighting chosen on the folds."""
    fewest = min(len(train) for train, _ in folds.split(X, y))
    grid = {
        "n_neighbors": [k for k in N_NEIGHBORS if k <= fewest],
        "weights": ["uniform", "distance"],
    }
    knn = KNeighborsClassifier() if classifies else KNeighborsRegressor()
    return GridSearchCV(knn, grid, cv=folds, scoring=neg_log_loss if classifies else None).fit(
        X, y
    )


def neg_log_loss(classifier, X, y):
    """scikit-learn's 'neg_log_loss', which also takes rows that lack a class, and outputs."""
    probabilities, classes = classifier.predict_proba(X), classifier.classes_
    if not isinstance(classes, list):
        probabilities, classes = [probabilities], [classes]
    losses = []
    for labels, proba, known in zip(y.reshape(len(y), -1).T, probabilities, classes, strict=True):
        order = known.argsort()  # log_loss takes columns of sorted labels
        losses.append(log_loss(labels, proba[:, order], labels=known[order]))
    return -np.mean(losses)


def _folds(estimator):
    """The rows that each network has not trained on, as folds; five if there are none."""
    if not estimator.early_stopping:
        return 5
    folds = np.full(len(_stored_embeddings(estimator)), -1)
    for i, rows in enumerate(estimator.validation_indices_):
        folds[rows] = i
    return PredefinedSplit(folds)


def _stored_embeddings(fitted: Any) -> Tensor:
    """Embeddings of the training rows, (n, d), with a bank or with a dense head."""
    stored = fitted.bank_ if hasattr(fitted, "bank_") else fitted.neighbors_
    return stored.embeddings
