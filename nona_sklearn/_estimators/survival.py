"""Survival analysis: how long until an event, from neighbours of whom some are censored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import _num_samples, check_is_fitted

from .._data.durations import Durations, read_durations
from .._data.row_values import check_sample_weight
from .._trend.cox import cross_fit_cox, fit_cox
from .._utils.bases import BaseEstimator
from .._utils.storable import storable_estimator
from .._utils.validation import (
    check_lengths,
    check_levels,
    check_n_neighbors,
    check_numbers,
    spans,
    table,
)
from .nona import NONARegressor
from .queries import query_names
from .regression import NeighborRegressor

if TYPE_CHECKING:
    from .._utils.validation import Table

MAX_NEIGHBORS = 1000  # of half the rows: weights of more take too much memory
RIDGE = 0.1  # of the coefficients of the two log risks
BLOCK_PAIRS = 2**21  # of queries and rows that are held at a time


@storable_estimator()
@dataclass(eq=False, repr=False)
class NONASurvivalAnalysis(BaseEstimator):
    """Deep nearest neighbours survival analysis.

    The survival curve of a query is a Kaplan-Meier curve of its neighbours, weighted by how near
    they are, as Beran's [1]_. Neighbours have other risks than the query, so each factor of the
    curve has the ratio of the two risks as its exponent [2]_. The logarithm of a risk is a Cox
    regression on two scores: the prediction of a regressor of neighbours, and a linear function
    of the encoded features, which is a Cox regression itself.

    Read more in the :doc:`guide </survival>`.

    Parameters
    ----------
    regressor : NONARegressor, SoftStepKNeighborsRegressor or None, default=None
        Learns the neighbours, and the first score. It is cloned, and fitted to the number of
        events of a row over the number that its duration lets expect, ``(event + 1) / (H + 1)``,
        where H is the Nelson-Aalen estimate of the cumulative hazard at the row's duration. The
        weight of a row is ``H + 1``, so that a mean over neighbours is a ratio of sums. Where its
        `n_neighbors` is 'auto', they are half of the rows, and at most 1,000. With
        ``trend=None`` there is no linear score. None: ``NONARegressor()``.

    Attributes
    ----------
    regressor_ : NONARegressor or SoftStepKNeighborsRegressor
        The fitted regressor, whose bank holds the rows of positive weight. Its `kneighbors` and
        `neighborhood` are of the space of the neighbours; its targets are scores.

    durations_ : ndarray of shape (n_neighbors,)
        Durations of the rows of the bank.

    events_ : bool ndarray of shape (n_neighbors,)
        Whether the event ended them. False: censored.

    unique_times_ : ndarray of shape (n_times,)
        The distinct durations of events, ascending.

    log_risks_ : ndarray of shape (n_neighbors,)
        Logarithms of the risks of the rows of the bank, by fits without the row. Only their
        differences have a meaning.

    coef_ : ndarray of shape (n_scores,)
        Coefficients of the scores: the regressor's and, if there is one, the linear score.

    feature_coef_ : ndarray of shape (n_encoded_features,) or None
        Coefficients of the linear score.

    See Also
    --------
    NONARegressor : The regressor, with its parameters.

    Notes
    -----
    With weights w and risks r of the neighbours, ordered by their durations t, the curve of a
    query of risk r is ``S(t) = prod_i (1 - w_i r_i / sum_{j >= i} w_j r_j) ** (r / r_i)``, over
    the events i up to t. Events at one time have one factor, of the sum of their shares and the
    mean of their ratios, weighted by these shares. With equal weights and risks, it is the
    Kaplan-Meier estimate.

    References
    ----------
    .. [1] Beran, "Nonparametric Regression with Randomly Censored Survival Data", 1981.
    .. [2] Kalbfleisch and Prentice, "The Statistical Analysis of Failure Time Data", 2nd edition,
       2002, section 4.3.

    Examples
    --------
    The event comes the sooner, the larger the feature:

    >>> import numpy as np
    >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(200, 1))
    >>> due, end = rng.exponential(np.exp(-2 * X[:, 0])), rng.uniform(0, 5, size=200)
    >>> y = np.stack([np.minimum(due, end), due <= end], axis=1)
    >>> regressor = NONARegressor(n_estimators=1, max_iter=20, random_state=0)
    >>> model = NONASurvivalAnalysis(regressor).fit(X, y)
    >>> model.predict_survival_function([[-0.9], [0.9]], times=[0.5, 2]).round(1)
    array([[0.9, 0.7],
           [0. , 0. ]])
    """

    regressor: NeighborRegressor | None = field(default=None)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn's estimators do.

        A nested name, such as ``regressor__max_iter``, makes the regressor where it is None.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : object
            The estimator.

        Examples
        --------
        >>> from nona_sklearn import NONASurvivalAnalysis
        >>> NONASurvivalAnalysis().set_params(regressor__max_iter=20)
        NONASurvivalAnalysis(regressor=NONARegressor(max_iter=20))
        """
        is_nested = any(name.startswith("regressor__") for name in params)
        if is_nested and params.get("regressor", self.regressor) is None:
            params = {"regressor": NONARegressor()} | params
        return super().set_params(**params)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    # -- fit -------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        eligibility: Any = None,
    ) -> Self:
        """Fit the regressor, the risks, and store the durations of the training rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training features, as for the regressor.
        y : structured array of shape (n_samples,), or array-like of shape (n_samples, 2)
            Durations, and whether the event ended them: an array with a boolean field for the
            event and a field for the duration, as scikit-survival has it, or a DataFrame or
            array of the columns duration and event, in this order, as lifelines has it. An event
            is True or 1; False or 0 is a duration that was censored.
        groups : array-like of shape (n_samples,) or str, default=None
            Rows that belong together, as for the regressor.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None: all weights are equal.
        eligibility : Eligibility, default=None
            Rule for the rows that may be neighbours, as for the regressor.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If `regressor` is no regressor of neighbours, or `y` has another form, a missing
            value, a negative duration, an event that is neither 0 nor 1, or no event; or as
            raised by the regressor.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> model = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=5, random_state=0))
        >>> model.fit(X, y).events_.sum()
        np.int64(15)
        """
        duration, event = read_durations(y)
        check_lengths(_num_samples(X), len(event))
        rows = Durations(duration, event, check_sample_weight(sample_weight, len(event)))
        if not event[rows.weight > 0].any():
            raise ValueError(f"y must hold an event, got {len(event)} rows, all of them censored")
        if not isinstance(self.regressor, NeighborRegressor | None):
            raise ValueError(
                "regressor must be a NONARegressor, a SoftStepKNeighborsRegressor or None, got "
                f"{self.regressor!r:.100}"
            )
        regressor = NONARegressor() if self.regressor is None else clone(self.regressor)
        if regressor.n_neighbors == "auto":
            n_neighbors = np.count_nonzero(rows.weight) // 2
            regressor.set_params(n_neighbors=int(np.clip(n_neighbors, 1, MAX_NEIGHBORS)))
        exposure = 1 + rows.hazards(np.zeros(len(event)))[1]
        regressor.fit(
            X,
            (1 + event) / exposure,
            groups=groups,
            sample_weight=rows.weight * exposure,
            eligibility=eligibility,
        )
        bank = regressor.bank_
        kept = bank.ids.cpu().numpy()
        rows = rows[kept]
        scores, feature_coef = regressor.predict(None)[:, None], None
        if (isolated := np.isnan(scores)).any():  # nothing is known of a row without neighbours
            scores = np.where(isolated, np.nanmean(scores), scores)
        if bank.inputs is not None:
            feature_groups = None if bank.groups is None else bank.groups.cpu().numpy()
            features = bank.inputs.cpu().numpy().astype(float)
            feature_coef, linear = cross_fit_cox(features, rows, feature_groups)
            scores = np.column_stack([scores, linear])
        self.regressor_ = regressor
        for name in ("n_features_in_", "feature_names_in_"):  # of a table
            if hasattr(regressor, name):
                setattr(self, name, getattr(regressor, name))
        self.durations_, self.events_ = rows.duration, rows.event
        self.unique_times_ = np.unique(rows.duration[rows.event])
        # Left-out means are lower beside a large target, so that a slope may be negative.
        self.coef_ = fit_cox(scores, rows, RIDGE, positive=True)
        self.feature_coef_ = feature_coef
        self.log_risks_ = scores @ self.coef_
        self._exposures, self._ids = exposure[kept], kept
        return self

    # -- predictions -----------------------------------------------------------------------

    def predict(self, X: Any, *, eligibility: Any = None) -> np.ndarray:
        """Predict risk scores: the higher, the sooner the event.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the rows of the bank, by leave-one-out.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries,)
            Expected numbers of events: the sums of the cumulative hazards at `unique_times_`, as
            of scikit-survival's forest.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> model = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=5, random_state=0))
        >>> model.fit(X, y).predict([[10], [18], [2]]).argsort()
        array([2, 0, 1])
        """
        return self.predict_cumulative_hazard_function(X, eligibility=eligibility).sum(axis=1)

    def predict_survival_function(
        self, X: Any, times: Any = None, *, eligibility: Any = None
    ) -> np.ndarray:
        """Predict the probabilities that the event comes later than some times.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the rows of the bank, by leave-one-out.
        times : float or array-like of shape (n_times,), optional
            Times, in the unit of the durations. None: `unique_times_`.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries, n_times)
            Probabilities. Beyond the last duration of the neighbours they stay as they are. NaN of
            a query without an eligible row, as all predictions.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> model = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=5, random_state=0))
        >>> model.fit(X, y).predict_survival_function([[2], [18]], times=[10, 20]).round(1)
        array([[1., 1.],
               [1., 0.]])
        """
        sums = self._sum_until(
            X, times, eligibility, lambda shares, ratio: np.log1p(-shares) * ratio
        )
        return np.exp(sums)

    def predict_cumulative_hazard_function(
        self, X: Any, times: Any = None, *, eligibility: Any = None
    ) -> np.ndarray:
        """Predict cumulative hazards, by the estimate of Nelson and Aalen.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the rows of the bank, by leave-one-out.
        times : float or array-like of shape (n_times,), optional
            Times, in the unit of the durations. None: `unique_times_`.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries, n_times)
            Cumulative hazards. They are finite where the survival function is 0.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> model = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=5, random_state=0))
        >>> model.fit(X, y).predict_cumulative_hazard_function([[2], [18]], times=[10]).round(1)
        array([[0.],
               [0.]])
        """
        return self._sum_until(X, times, eligibility, lambda shares, ratio: shares * ratio)

    def predict_quantiles(
        self, X: Any, quantiles: Any = 0.5, *, eligibility: Any = None
    ) -> np.ndarray:
        """Predict quantiles of the times of the event, such as the median.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features) or None
            Queries. None: the rows of the bank, by leave-one-out.
        quantiles : float or array-like of shape (n_quantiles,), default=0.5
            Probabilities that the event has come, from 0 to 1.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_quantiles)
            The first of `unique_times_` at which the survival function is at most 1 less the
            probability, or infinity where it does not fall so far. If `quantiles` is one number,
            the second axis is left out.

        Raises
        ------
        ValueError
            If `quantiles` are not from 0 to 1.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> model = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=5, random_state=0))
        >>> model.fit(X, y).predict_quantiles([[2], [18]])
        array([28., 12.])
        """
        levels = check_levels(quantiles).numpy()
        curves = self.predict_survival_function(X, eligibility=eligibility)
        times = np.append(self.unique_times_, np.inf)
        # A curve falls, so that the times before a quantile are those at which it is above.
        result = np.stack([times[(curves > 1 - q).sum(axis=1)] for q in levels], axis=1)
        result[np.isnan(curves).any(axis=1)] = np.nan
        return result[:, 0] if np.ndim(quantiles) == 0 else result

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute Harrell's concordance index of the risk scores.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.
        y : structured array of shape (n_queries,), or array-like of shape (n_queries, 2)
            Durations and events of the queries, as for :meth:`fit`.
        sample_weight : array-like of shape (n_queries,), default=None
            Weights of the queries; a pair has the product of two. None: all weights are equal.

        Returns
        -------
        float
            Of the pairs of which one row has an event before the other's duration ends, the
            share in which its risk is higher. Equal risks count half. Queries without an eligible
            row are left out.

        Raises
        ------
        ValueError
            If no two queries can be compared, or none has an eligible row.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> model = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=5, random_state=0))
        >>> model.fit(X, y).score([[2], [7], [18]], [(28, 1), (23, 1), (25, 0)])
        0.5
        """
        risk, (duration, event) = self.predict(X), read_durations(y)
        check_lengths(len(risk), len(event))
        weight = check_sample_weight(sample_weight, len(event))
        connected = ~np.isnan(risk)
        if not connected.any():
            raise ValueError(f"X must have eligible rows, got {len(risk)} queries without any")
        risk, duration, event, weight = (
            part[connected] for part in (risk, duration, event, weight)
        )
        pairs = concordant = 0.0
        for i in np.flatnonzero(event):
            later = (duration > duration[i]) | ((duration == duration[i]) & ~event)
            counts = weight[i] * weight[later]
            pairs += counts.sum()
            concordant += counts @ (1 + np.sign(risk[i] - risk[later])) / 2
        if not pairs:
            raise ValueError(f"y must hold an event before the end of a duration, got {y!r:.100}")
        return float(concordant / pairs)

    # -- neighbours ------------------------------------------------------------------------

    def neighbor_weights(self, X: Any = None, *, eligibility: Any = None) -> Any:
        """Compute the weight of each row of the bank in the curve of each query.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. None: the rows of the bank, by leave-one-out.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        sparse CSR array of shape (n_queries, n_neighbors)
            Weights; a row sums to 1, or to 0 without an eligible neighbour.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> model = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=5, random_state=0))
        >>> model.fit(X, y).neighbor_weights([[2]]).toarray()[0, :6].round(1)
        array([0.1, 0.1, 0.2, 0.1, 0.1, 0.1])
        """
        check_is_fitted(self)
        if not np.array_equal(self.regressor_.bank_.ids.cpu().numpy(), self._ids):
            raise ValueError("regressor_ must have the rows of fit, got an edited bank: fit anew")
        weights = self.regressor_.neighbor_weights(X, eligibility=eligibility)
        weights.data /= self._exposures[weights.indices]  # they count in the regression alone
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def explain(self, X: Any = None, n_neighbors: int = 10, *, eligibility: Any = None) -> Table:
        """List the rows behind each curve, with their durations and risks.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. None: the rows of the bank, by leave-one-out.
        n_neighbors : int, default=10
            Largest number of neighbours to list for a query, heaviest first.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
            One line per query and neighbour, with the columns ``query`` and ``neighbor``, their
            names or numbers; ``weight``; ``duration`` and ``event``; and ``risk_ratio``, the risk
            of the query over that of the neighbour.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows of the bank.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> model = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=5, random_state=0))
        >>> model.fit(X, y).explain([[18]], 3)[["neighbor", "duration", "event"]]
           neighbor  duration  event
        0        18      12.0   True
        1        19      11.0   True
        2        17      13.0   True
        """
        weights = self.neighbor_weights(X, eligibility=eligibility)
        k = check_n_neighbors(n_neighbors, len(self.events_))
        log_risk = self._log_risk(X, eligibility)
        nearest = np.concatenate(
            [
                (-weights[some].toarray()).argsort(axis=1, kind="stable")[:, :k]
                for some in self._blocks(weights)
            ]
        )
        queries = np.arange(len(nearest)).repeat(k)
        rows = nearest.ravel()
        weight = np.asarray(weights[queries, rows])
        queries, rows, weight = (part[weight > 0] for part in (queries, rows, weight))
        return table(
            {
                "query": query_names(self.regressor_, X, len(nearest))[queries],
                "neighbor": self.regressor_.bank_.names_of(rows),
                "weight": weight,
                "duration": self.durations_[rows],
                "event": self.events_[rows],
                "risk_ratio": np.exp(log_risk[queries] - self.log_risks_[rows]),
            }
        )

    def _log_risk(self, X: Any, eligibility: Any) -> np.ndarray:
        """Return logarithms of the risks of queries, (q,)."""
        if X is None:
            return self.log_risks_
        queries = self.regressor_.embed(X)
        scores = self.regressor_.predict(queries, eligibility=eligibility)[:, None]
        if self.feature_coef_ is not None:
            inputs: Any = queries.inputs  # of a trend
            scores = np.column_stack([scores, inputs.encoded.cpu().numpy() @ self.feature_coef_])
        return scores @ self.coef_

    def _blocks(self, weights: Any) -> Iterator[slice]:
        return iter(spans(weights.shape[0], max(1, BLOCK_PAIRS // weights.shape[1])))

    def _sum_until(self, X: Any, times: Any, eligibility: Any, term: Any) -> np.ndarray:
        """Return sums over the events up to some times, (q, n_times).

        A term is a function of the share of the rows whose event comes at a time in the risk of
        all rows that are still at risk, and of their mean ratio of the risks of query and row.
        """
        weights = self.neighbor_weights(X, eligibility=eligibility)
        log_risk = self._log_risk(X, eligibility)
        at = self.unique_times_ if times is None else check_numbers(times, "times").numpy()
        order = self.durations_.argsort()
        first = np.searchsorted(self.durations_[order], self.unique_times_)
        ends = np.searchsorted(self.unique_times_, at, side="right")
        ordered, events = self.log_risks_[order], self.events_[order]
        result = np.empty((len(log_risk), len(at)))
        for some in self._blocks(weights):
            ratios = np.exp(log_risk[some, None] - ordered)
            risks = weights[some].toarray()[:, order] / ratios
            at_risk = risks[:, ::-1].cumsum(axis=1)[:, ::-1][:, first]
            ended = np.add.reduceat(risks * events, first, axis=1)  # at a time, together
            by_ratio = np.add.reduceat(risks * events * ratios, first, axis=1)
            shares, ratio = (
                np.divide(part, whole, out=np.zeros_like(ended), where=ended > 0)
                for part, whole in ((ended, at_risk), (by_ratio, ended))
            )
            with np.errstate(divide="ignore"):  # log 0 where no row is left
                terms = np.where(shares > 0, term(shares.clip(0, 1), ratio), 0.0)
            result[some] = np.pad(terms.cumsum(axis=1), [(0, 0), (1, 0)])[:, ends]
        result[np.diff(weights.indptr) == 0] = np.nan
        return result
