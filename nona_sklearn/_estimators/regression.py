"""The base class of regressors: predictions of numbers, and their distributions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._data.targets import RegressionTargets, bounds_of
from .._inference.calibration import calibrate_on_bank, calibrate_on_rows
from .._inference.distribution import Calibration, Distribution
from .._utils.bases import RegressorMixin
from .._utils.tables import warn_of_other_order
from .._utils.validation import check_flag, check_integer, check_levels, check_numbers, is_whole
from .base import NeighborEstimator
from .editing import Change, edit, validate_targets
from .explanations import explain, explanation_table
from .queries import (
    drop_isolated,
    evaluate,
    evaluate_in_blocks,
    fitted_snapshot,
    query_names,
    read_queries,
    refuse_targets_alone,
    times_given,
    with_rows,
)

if TYPE_CHECKING:
    from .._inference.bank import NeighborBank
    from .._utils.validation import Table


class NeighborRegressor(RegressorMixin, NeighborEstimator):
    """A neighbour estimator whose targets are numbers."""

    def _make_targets(self):
        return RegressionTargets(bounds_of(self.bounds), self.bounds == "count")

    @overload
    def predict(
        self, X: Any, return_std: Literal[False] = False, *, eligibility: Any = None
    ) -> np.ndarray: ...

    @overload
    def predict(
        self, X: Any, return_std: Literal[True], *, eligibility: Any = None
    ) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(
        self, X: Any, return_std: bool = False, *, eligibility: Any = None
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the targets of queries, as weighted means of the bank's targets.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. A row of the bank is its own nearest neighbour. None: the bank's rows, by
            leave-one-out.
        return_std : bool, default=False
            Whether to return the standard deviations of the predictive distributions as well.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        y_mean : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            Predictions in the units of `y`.
        y_std : ndarray of the same shape
            Standard deviations of the calibrated distributions, in the units of `y`; only with
            ``return_std=True``.

        Raises
        ------
        ValueError
            If `return_std` is no bool.

        See Also
        --------
        predict_quantiles : Quantiles of the predictive distributions.

        Examples
        --------
        The rows are areas and prices of five flats. The prediction for 84 square metres is the
        mean price of the two nearest flats, of 80 and 90:

        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).predict([[84], [110]]).round()
        array([425., 525.])
        >>> mean, std = knn.predict([[84]], return_std=True)
        >>> std.round()
        array([95.])
        """
        check_flag("return_std", return_std)
        fitted, evaluations = evaluate_in_blocks(
            self, X, with_added=return_std, eligibility=eligibility
        )
        decode = fitted.targets_.decode
        if not return_std:
            values = bytearray()  # small arrays that are kept would split the heap
            for evaluation in evaluations:
                predictions = decode(evaluation.mean())
                values += predictions.tobytes()
            return np.frombuffer(values, predictions.dtype).reshape(-1, *predictions.shape[1:])
        calibration = fitted.bank_.calibration or Calibration()
        mean, std = zip(
            *((q.mean(), Distribution(q, calibration).std()[:, 0]) for q in evaluations),
            strict=True,
        )
        return decode(torch.cat(mean)), np.concatenate(std)

    def explain(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        *,
        features: Any = None,
        eligibility: Any = None,
    ) -> Table:
        """List the rows behind each prediction, with their targets and adjusted targets.

        The table is like an appraiser's table of comparable sales, with the price of every sale,
        and the price adjusted to the property in question. The contributions of a query sum to
        its prediction.

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
            - ``weight``, which sums to 1 for each query,
            - ``target`` and ``adjusted_target``, in the units of `y`,
            - ``contribution``, the product of weight and adjusted target, in the units of `y`,
            - with a rule that compares places, ``metres``, the distance on the earth,
            - with `features`, ``differs``, the names of up to three features in which the
              neighbour differs most from the query, and one column per feature. A line "query"
              then precedes the neighbours of every query.

            With several outputs, the names of the last three columns end in the name or number
            of the output, such as ``target_price``. If a row is itself named "others" or "query",
            the line is named "others'" or "query'"; a feature is renamed likewise if its name is
            already that of a column.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows of the bank (one less with
            ``X=None``), or `features` lacks a row of the bank or a column of `X`.

        Notes
        -----
        With `adjust` or `trend`, a neighbour's target is moved by an estimate of the difference
        between neighbour and query. With several networks, an adjusted target is the mean over
        the networks, weighted by the weights that the networks give to the row. The line "others"
        holds the weighted mean of all remaining rows.

        For ``differs``, differences of numbers are divided by their interquartile range in the
        bank, or by their standard deviation if that is 0. Two categories, or a value and a
        missing value, differ by 1.

        Examples
        --------
        >>> import pandas as pd
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X = pd.DataFrame({"area": [50, 60, 80, 90, 120]}, index=["A", "B", "C", "D", "E"])
        >>> y = pd.Series([250, 300, 400, 450, 600], X.index, name="price")
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).explain(pd.DataFrame({"area": [84]}, index=["mine"])).round(2)
          query neighbor  weight  target  adjusted_target  contribution
        0  mine        C     0.5   400.0            400.0         200.0
        1  mine        D     0.5   450.0            450.0         225.0
        """
        fitted = fitted_snapshot(self)
        return explanation_table(fitted, explain(fitted, X, n_neighbors, eligibility), X, features)

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.1, 0.5, 0.9), *, eligibility: Any = None
    ) -> np.ndarray:
        """Predict quantiles of the targets, such as the ends of prediction intervals.

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
        ndarray of shape (n_queries, n_quantiles) or (n_queries, n_quantiles, n_outputs)
            Quantiles of the predictive distributions, in the units of `y`. If `quantiles` is one
            number, the second axis is left out.

        Raises
        ------
        ValueError
            If `quantiles` are not from 0 to 1.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).predict_quantiles([[84]]).round()
        array([[300., 420., 554.]])
        """
        levels = check_levels(quantiles)
        result = self._distribution(X, eligibility).quantiles(levels)
        return result[:, 0] if np.ndim(quantiles) == 0 else result

    def predict_cdf(self, X: Any, y: Any, *, eligibility: Any = None) -> np.ndarray:
        """Predict the probability that a target is at most `y`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, by leave-one-out.
        y : float or array-like of shape (n_values,)
            Values, in the units of the targets, the same for every query and output.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries, n_values) or (n_queries, n_values, n_outputs)
            Probabilities. If `y` is one number, the second axis is left out.

        Raises
        ------
        ValueError
            If `y` holds NaN or infinity, or has more than one axis.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).predict_cdf([[84]], [300, 425, 600]).round(1)
        array([[0.1, 0.5, 1. ]])
        """
        values = check_numbers(y, "y")
        result = self._distribution(X, eligibility).cdf(values)
        return result[:, 0] if np.ndim(y) == 0 else result

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, eligibility: Any = None
    ) -> np.ndarray:
        """Draw samples from the predictive distributions.

        The outputs of a sample are as dependent as the errors of the rows that calibrated the
        distributions, so that sums and differences of outputs have distributions, too.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, by leave-one-out.
        n_samples : int, default=1
            Number of samples per query.
        random_state : int, RandomState instance or None, default=0
            Seed of the samples.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries, n_samples) or (n_queries, n_outputs, n_samples)
            Samples in the units of `y`, in the layout of scikit-learn's
            ``GaussianProcessRegressor.sample_y``.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> draws = knn.fit(X, y).sample_y([[84]], n_samples=1000)
        >>> round(float(draws.mean()), -2)
        400.0
        """
        if not is_whole(n_samples, 1):
            raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}")
        return self._distribution(X, eligibility).sample(
            n_samples, check_random_state(random_state)
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the coefficient of determination, R^2, of the predictions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, by leave-one-out or, with times, from earlier rows.
            Queries without an earlier or eligible row are left out.
        y : array-like of shape (n_queries,) or (n_queries, n_outputs)
            Targets of the queries.
        sample_weight : array-like of shape (n_queries,), default=None
            Weights of the queries.

        Returns
        -------
        float
            R^2 of ``predict(X)``, as for scikit-learn's regressors.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> round(knn.fit(X, y).score([[84], [110]], [420, 560]), 2)
        0.87
        """
        return super().score(*drop_isolated(self, X, y, sample_weight))

    def calibrate(
        self, X: Any = None, y: Any = None, *, times: Any = None, n_latest: int | None = None
    ) -> Self:
        """Calibrate the widths of the predictive distributions on new rows.

        Predictions do not change. Fit calibrates on its validation rows, weighted by their sample
        weights. A validation row is predicted by the networks that were not trained on it.
        Without validation rows, fit calibrates by leave-one-out. Rows that were not given to fit
        are better; they have equal weights.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), optional
            Rows that are not in the bank. None: the bank's rows, by leave-one-out.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            Targets of the rows; only with `X`.
        times : array-like of shape (n_samples,) or str, default=None
            Times of `X`, for an estimator that was fitted with times. A row is predicted from
            earlier rows, so that `X` may be in the bank. None: all rows are later than the bank.
        n_latest : int, default=None
            Number of rows to use, the latest ones. It needs times. None: all rows.

        Returns
        -------
        self : object
            The estimator with `calibration_` set.

        Raises
        ------
        ValueError
            If `X` or `y` is invalid, `y` is given without `X`, or ``X=None`` and the bank has
            only one row or group.

        Examples
        --------
        Errors on new rows are smaller than the errors of leave-one-out:

        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> round(knn.fit(X, y).calibration_.noise[0])
        92
        >>> round(knn.calibrate([[70], [100], [110]], [350, 500, 560]).calibration_.noise[0])
        48
        """
        check_is_fitted(self)
        refuse_targets_alone(X, y)
        warn_of_other_order(X=X, y=y, times=times)
        edit(self, lambda fitted: recalibration(fitted, X, y, times, n_latest))
        return self

    @property
    def calibration_(self) -> Calibration | None:
        """The calibration of predictive distributions, in the units of `y`."""
        return self.bank_.calibration

    @calibration_.setter
    def calibration_(self, calibration: Calibration) -> None:
        if not isinstance(calibration, Calibration):
            raise ValueError(f"calibration_ must be a Calibration, got {calibration!r}")
        edit(self, lambda _: partial(replace, calibration=calibration))

    def _calibrate(self, bank):
        if bank.n_units < 2:  # no error is known: the distribution of the targets is used
            return replace(bank, calibration=Calibration())
        return replace(bank, calibration=calibrate_on_bank(self.network_.head, bank))

    def _distribution(self, X, eligibility=None) -> Distribution:
        fitted, evaluation = evaluate(self, X, with_added=True, eligibility=eligibility)
        evaluation = with_rows(evaluation, query_names(fitted, X, len(evaluation)))
        return Distribution(evaluation, fitted.bank_.calibration or Calibration())


def recalibration(fitted: Any, X: Any, y: Any, times: Any, n_latest: Any) -> Change:
    """Return the change that calibrates a bank on queries `X`, or on its own rows."""
    head, time = fitted.network_.head, fitted.bank_.time
    if n_latest is not None:
        check_integer("n_latest", n_latest)
        if time is None:
            raise ValueError(
                f"n_latest needs an estimator that was fitted with times, got {n_latest!r}"
            )
    if X is None:
        if times is not None:
            raise ValueError("times must be None with X=None: those of the bank's rows are known")

        def calibrate_on_itself(bank: NeighborBank) -> NeighborBank:
            if bank.n_units < 2:
                raise ValueError("X=None needs at least 2 rows, or groups, in the bank, it has 1")
            return replace(bank, calibration=calibrate_on_bank(head, bank, n_latest))

        return calibrate_on_itself
    queries = read_queries(fitted, X)
    if times is not None:
        queries = replace(queries, times=times_given(fitted, queries, times))
    targets = validate_targets(fitted, y, len(queries))
    if n_latest is not None:
        if queries.times is None:
            raise ValueError(f"n_latest needs times of X, got n_latest={n_latest!r} without them")
        latest = queries.times.argsort(stable=True)[-n_latest:].cpu().numpy()
        queries, targets = queries[latest], targets[latest]

    def calibrate(bank: NeighborBank) -> NeighborBank:
        return replace(bank, calibration=calibrate_on_rows(head, bank, queries, targets))

    return calibrate
