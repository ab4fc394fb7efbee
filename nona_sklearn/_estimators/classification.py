"""The base class of classifiers: predictions of labels and of probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._data.targets import ClassTargets, weights_of_classes
from .._inference.distribution import Discrete
from .._utils.bases import ClassifierMixin
from .._utils.validation import check_levels
from .base import NeighborEstimator
from .explanations import explain, explanation_table
from .parameters import ASSoftmax
from .queries import drop_isolated, evaluate_in_blocks, fitted_snapshot

if TYPE_CHECKING:
    from .._utils.validation import Table

OF_REGRESSORS = "sample_y", "calibrate", "calibration_"


class NeighborClassifier(ClassifierMixin, NeighborEstimator):
    """A neighbour estimator whose targets are classes."""

    def _probabilities(self, X: Any, eligibility: Any) -> tuple[Any, Tensor]:
        """Return a snapshot and the probabilities of all classes, (q, C)."""
        fitted, evaluations = evaluate_in_blocks(self, X, eligibility=eligibility)
        return fitted, torch.cat([evaluation.mean() for evaluation in evaluations])

    def _ranks(self, X: Any, eligibility: Any) -> tuple[ClassTargets, Discrete]:
        """Return the targets of ordered classes, and distributions of the classes' numbers."""
        fitted = fitted_snapshot(self)
        fitted.targets_.check_ordered()
        _, probabilities = fitted._probabilities(X, eligibility)
        numbers = torch.arange(probabilities.shape[1]).to(probabilities)[None]
        return fitted.targets_, Discrete(
            numbers, probabilities, probabilities.new_zeros(len(probabilities), 1)
        )

    if not TYPE_CHECKING:  # a type checker would accept every name as a method

        def __getattr__(self, name):
            if name in OF_REGRESSORS:
                raise AttributeError(
                    f"{type(self).__name__} has no {name}, which is of regressors: predict_proba "
                    "returns the probabilities of the classes"
                )
            return self.__getattribute__(name)  # raises the error for this name

    def _make_targets(self):
        loss = ASSoftmax.of(self.loss)
        smoothing = self._architecture().smoothing
        return ClassTargets(None if loss is None else loss.margin, smoothing)

    @property
    def class_weight_(self) -> np.ndarray | list[np.ndarray]:
        """Weight of each class, (n_classes,); a list of such arrays for several outputs."""
        fitted = fitted_snapshot(self)
        weights = weights_of_classes(fitted._class_factors, fitted.targets_.classes)
        return weights if fitted.targets_.several else weights[0]

    @property
    def classes_(self) -> np.ndarray | list[np.ndarray]:
        """The labels, (n_classes,); a list of such arrays for several outputs.

        Labels are sorted. The labels of an ordered categorical have the order of its categories.
        """
        check_is_fitted(self)
        targets = self.targets_
        return targets.classes if targets.several else targets.classes[0]

    def predict(self, X: Any, *, eligibility: Any = None) -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. A row of the bank is its own nearest neighbour. None: the bank's rows, by
            leave-one-out.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs)
            Labels; the first one if several labels are equally probable.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsClassifier
        >>> X, y = [[1], [2], [3], [6], [7], [8]], ["red", "red", "red", "white", "white", "white"]
        >>> options = dict(weighting="uniform", learn_feature_weights=False, smoothing=False)
        >>> knn = SoftStepKNeighborsClassifier(3, max_iter=1, **options).fit(X, y)
        >>> knn.predict([[2], [6]])
        array(['red', 'white'], dtype='<U5')
        """
        fitted, probabilities = self._probabilities(X, eligibility)
        return fitted.targets_.decode(probabilities)

    def predict_proba(self, X: Any, *, eligibility: Any = None) -> np.ndarray | Any:
        """Predict the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. A row of the bank is its own nearest neighbour. None: the bank's rows, by
            leave-one-out.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries, n_classes), or list of n_outputs such arrays
            Probabilities in the order of ``classes_``; every row sums to 1. Where a category has
            a level that training has not seen, the probabilities are nearer to the frequencies of
            the classes.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsClassifier
        >>> X, y = [[1], [2], [3], [6], [7], [8]], ["red", "red", "red", "white", "white", "white"]
        >>> options = dict(weighting="uniform", learn_feature_weights=False, smoothing=False)
        >>> knn = SoftStepKNeighborsClassifier(3, max_iter=1, **options).fit(X, y)
        >>> knn.predict_proba([[2], [4]]).round(2)
        array([[1.  , 0.  ],
               [0.67, 0.33]])
        """
        fitted, probabilities = self._probabilities(X, eligibility)
        arrays = [p.cpu().numpy() for p in probabilities.split(fitted.targets_.sizes, dim=1)]
        return arrays if fitted.targets_.several else arrays[0]

    def predict_log_proba(self, X: Any, *, eligibility: Any = None) -> np.ndarray | Any:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, by leave-one-out.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries, n_classes), or list of n_outputs such arrays
            Logarithms of :meth:`predict_proba`; -inf for a probability of 0.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsClassifier
        >>> X, y = [[1], [2], [3], [6], [7], [8]], ["red", "red", "red", "white", "white", "white"]
        >>> options = dict(weighting="uniform", learn_feature_weights=False, smoothing=False)
        >>> knn = SoftStepKNeighborsClassifier(3, max_iter=1, **options).fit(X, y)
        >>> knn.predict_log_proba([[2], [4]]).round(2)
        array([[ 0.  ,  -inf],
               [-0.41, -1.1 ]])
        """
        probabilities = self.predict_proba(X, eligibility=eligibility)
        with np.errstate(divide="ignore"):
            if isinstance(probabilities, list):  # several outputs
                return [np.log(p) for p in probabilities]
            return np.log(probabilities)

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.1, 0.5, 0.9), *, eligibility: Any = None
    ) -> np.ndarray:
        """Predict quantiles of ordered classes, such as the median.

        Numbers have an order, and the labels of an ordered categorical have that of its
        categories.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, by leave-one-out.
        quantiles : float or array-like of shape (n_quantiles,), default=(0.1, 0.5, 0.9)
            Probabilities, from 0 to 1.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries, n_quantiles)
            Labels: the first one in ``classes_`` whose cumulative probability reaches the
            quantile. If `quantiles` is one number, the shape is (n_queries,).

        Raises
        ------
        ValueError
            If `quantiles` are not from 0 to 1, the classes have no order, or there are several
            outputs.

        See Also
        --------
        predict : The most probable class.

        Examples
        --------
        >>> import pandas as pd
        >>> from nona_sklearn import SoftStepKNeighborsClassifier
        >>> X, grades = [[1], [2], [3], [6], [7], [8]], ["low", "mid", "mid", "top", "mid", "top"]
        >>> y = pd.Categorical(grades, categories=["low", "mid", "top"], ordered=True)
        >>> options = dict(weighting="uniform", learn_feature_weights=False, smoothing=False)
        >>> knn = SoftStepKNeighborsClassifier(3, validation_fraction=None, max_iter=1, **options)
        >>> knn.fit(X, y).predict_quantiles([[2], [7]], [0.1, 0.5])
        array([['low', 'mid'],
               ['mid', 'top']], dtype=object)
        """
        levels = check_levels(quantiles)
        targets, ranks = self._ranks(X, eligibility)
        labels = targets.classes[0][ranks.ppf(levels.to(ranks.weights)).long().cpu().numpy()]
        return labels[:, 0] if np.ndim(quantiles) == 0 else labels

    def predict_cdf(self, X: Any, y: Any = None, *, eligibility: Any = None) -> np.ndarray:
        """Predict the probability that an ordered class is at most `y`.

        Numbers have an order, and the labels of an ordered categorical have that of its
        categories.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, by leave-one-out.
        y : label or array-like of shape (n_values,), default=None
            Labels, the same for every query. None: all of ``classes_``.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries, n_values) or (n_queries, n_classes)
            Cumulative probabilities. If `y` is one label, the shape is (n_queries,).

        Raises
        ------
        ValueError
            If `y` holds no label of fit, the classes have no order, or there are several outputs.

        Examples
        --------
        >>> import pandas as pd
        >>> from nona_sklearn import SoftStepKNeighborsClassifier
        >>> X, grades = [[1], [2], [3], [6], [7], [8]], ["low", "mid", "mid", "top", "mid", "top"]
        >>> y = pd.Categorical(grades, categories=["low", "mid", "top"], ordered=True)
        >>> options = dict(weighting="uniform", learn_feature_weights=False, smoothing=False)
        >>> knn = SoftStepKNeighborsClassifier(3, validation_fraction=None, max_iter=1, **options)
        >>> knn.fit(X, y).predict_cdf([[2], [7]]).round(2)
        array([[0.33, 1.  , 1.  ],
               [0.  , 0.33, 1.  ]])
        >>> knn.predict_cdf([[2], [7]], "mid").round(2)
        array([1.  , 0.33])
        """
        targets, ranks = self._ranks(X, eligibility)
        values = ranks.values
        if y is not None:
            one_hot = targets.values(np.atleast_1d(y))
            values = one_hot.argmax(dim=1).to(values)[None]
        cdf = ranks.cdf(values.expand(len(ranks.weights), -1)).cpu().numpy()
        return cdf if y is None or np.ndim(y) else cdf[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy of the predictions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, by leave-one-out or, with times, from earlier rows.
            Queries without an earlier or eligible row are left out.
        y : array-like of shape (n_queries,) or (n_queries, n_outputs)
            Labels of the queries.
        sample_weight : array-like of shape (n_queries,), default=None
            Weights of the queries.

        Returns
        -------
        float
            Share of correct labels in ``predict(X)``, as for scikit-learn's classifiers.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsClassifier
        >>> X, y = [[1], [2], [3], [6], [7], [8]], ["red", "red", "red", "white", "white", "white"]
        >>> options = dict(weighting="uniform", learn_feature_weights=False, smoothing=False)
        >>> knn = SoftStepKNeighborsClassifier(3, max_iter=1, **options).fit(X, y)
        >>> round(knn.score([[2], [4], [7]], ["red", "white", "white"]), 2)
        0.67
        """
        X, y, sample_weight = drop_isolated(self, X, y, sample_weight)
        return super().score(X, self.targets_.check(y), sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def explain(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        *,
        features: Any = None,
        eligibility: Any = None,
    ) -> Table:
        """List the rows behind each prediction, with their contributions to each class.

        A row votes for its class with its weight. The line "network" is the contribution of the
        network itself, which may be negative. The line "trend" is the contribution of a trend.
        The contributions of a query to a class sum to the probability of the class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. If a query is a row of the bank, its own target is part of the prediction,
            and a warning names the row. None: the bank's rows, by leave-one-out.
        n_neighbors : int, optional
            Largest number of neighbours to list for a query, in the order of their weights. One
            more line, "others", is the sum of the remaining rows, if they have weight. None: all
            rows that have weight.
        features : array-like of shape (n_samples, n_features), optional
            The rows given to fit, in the form of `X`, followed by the rows of `add_neighbors`.
            The table then shows the features of neighbours and query side by side. The rows of a
            DataFrame are matched by their names.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
            One line per query and neighbour, with the columns

            - ``query`` and ``neighbor``: their names in the index of a DataFrame, else their
              numbers, or the ids of added rows,
            - ``weight``, and ``target``, the neighbour's class,
            - ``contribution_<class>`` for every class: the weight, if the row is of this class,
              or 0,
            - with a rule that compares places, ``metres``, the distance on the earth,
            - with `features`, ``differs``, the names of up to three features in which the
              neighbour differs most from the query, and one column per feature. A line "query"
              then precedes the neighbours of every query.

            The last line of a query is "network", if the probabilities are not the votes alone,
            or "trend", if there is one.
            With several outputs, columns are ``target_<output>`` and
            ``contribution_<output>_<class>``, with the names of the columns of `y` or their
            numbers. If two such names are equal, outputs are in quotes:
            ``contribution_'<output>'_<class>``. If a row is itself named "others", "network",
            "trend" or "query", an apostrophe follows the line's name; a feature is renamed
            likewise if its name is already that of a column.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows of the bank (one less with
            ``X=None``), or `features` lacks a row of the bank or a column of `X`.

        Notes
        -----
        The network contributes smoothing and, with `adjust`, its odds for the classes. Where a
        category has a level that training has not seen, the line "network" holds the share of
        the classes' frequencies, too. With several networks, the line is the mean over the
        networks. The line "trend" is the difference between the probabilities with and without
        the trend.

        For ``differs``, differences of numbers are divided by their interquartile range in the
        bank, or by their standard deviation if that is 0. Two categories, or a value and a
        missing value, differ by 1.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsClassifier
        >>> X, y = [[1], [2], [3], [6], [7], [8]], ["red", "red", "red", "white", "white", "white"]
        >>> options = dict(weighting="uniform", learn_feature_weights=False, smoothing=False)
        >>> knn = SoftStepKNeighborsClassifier(3, max_iter=1, **options).fit(X, y)
        >>> knn.explain([[4]]).drop(columns="query").round(2)
           neighbor  weight target  contribution_red  contribution_white
        0         1    0.33    red              0.33                0.00
        1         2    0.33    red              0.33                0.00
        2         3    0.33  white              0.00                0.33
        """
        fitted = fitted_snapshot(self)
        return explanation_table(fitted, explain(fitted, X, n_neighbors, eligibility), X, features)
