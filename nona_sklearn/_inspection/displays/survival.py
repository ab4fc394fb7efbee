"""Display of survival curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..._utils.validation import check_n_neighbors
from .base import Display

MOST_CURVES = 10
LARGEST_MARK = 80  # area in points of the mark of the heaviest neighbour


@dataclass(eq=False, repr=False)
class SurvivalDisplay(Display):
    """Survival curves of queries, and the times of the neighbours behind them.

    Below each curve, a line marks the event of a neighbour, and a dot the end of an observation
    that was censored. Larger marks have more weight.

    Parameters
    ----------
    times : ndarray of shape (n_times,)
        Times, ascending.
    curves : ndarray of shape (n_queries, n_times)
        Probabilities that the event comes later.
    durations, events, weights : ndarray of shape (n_queries, n_neighbors)
        Durations of neighbours, whether the event ended them, and the neighbours' weights.
    names : sequence of label
        Names of the queries, (n_queries,).

    See Also
    --------
    NONASurvivalAnalysis : The estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn import SurvivalDisplay
    >>> times, curve = np.array([0.0, 1.0, 2.0]), np.array([[1.0, 0.5, 0.5]])
    >>> behind = np.array([[1.0, 3.0]]), np.array([[True, False]]), np.array([[0.5, 0.5]])
    >>> SurvivalDisplay(times, curve, *behind, ["new"]).plot().ax_.get_ylabel()
    'probability of a later event'
    """

    times: np.ndarray
    curves: np.ndarray
    durations: np.ndarray
    events: np.ndarray
    weights: np.ndarray
    names: Any

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        n_neighbors: int = 20,
        eligibility: Any = None,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Predict survival curves with a fitted estimator, and draw them.

        Parameters
        ----------
        estimator : NONASurvivalAnalysis
            The fitted estimator.
        X : array-like of shape (n_queries, n_features)
            Queries, at most 10.
        n_neighbors : int, default=20
            Number of neighbours of each query whose times are marked, the heaviest ones.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.
        ax, line_kwargs, scatter_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : SurvivalDisplay

        Raises
        ------
        ValueError
            If there are more than 10 queries, one of them has no eligible row, or `n_neighbors` is
            not between 1 and the number of rows.

        Examples
        --------
        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis, SurvivalDisplay
        >>> X = np.arange(20.0)[:, None]
        >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
        >>> regressor = NONARegressor(n_estimators=1, max_iter=5, random_state=0)
        >>> model = NONASurvivalAnalysis(regressor).fit(X, y)
        >>> SurvivalDisplay.from_estimator(model, [[2], [18]], n_neighbors=3).names
        ['0', '1']
        """
        times = np.append(0.0, estimator.unique_times_)
        curves = estimator.predict_survival_function(X, times, eligibility=eligibility)
        if len(curves) > MOST_CURVES:
            raise ValueError(f"X must have at most {MOST_CURVES} rows, got {len(curves)}")
        if (isolated := np.isnan(curves).any(axis=1)).any():
            raise ValueError(
                f"X must have eligible rows, got {isolated.sum()} queries without any"
            )
        k = check_n_neighbors(n_neighbors, len(estimator.events_))
        weights = estimator.neighbor_weights(X, eligibility=eligibility).toarray()
        rows = (-weights).argsort(axis=1, kind="stable")[:, :k]
        behind = estimator.durations_[rows], estimator.events_[rows]
        labels = estimator.regressor_.embed(X).row_labels
        names = [str(name) for name in (range(len(curves)) if labels is None else labels)]
        display = cls(times, curves, *behind, np.take_along_axis(weights, rows, axis=1), names)
        return display.plot(ax, line_kwargs=line_kwargs, scatter_kwargs=scatter_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        line_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        ax, curve, marks = self._start(ax, line_kwargs=line_kwargs, scatter_kwargs=scatter_kwargs)
        for i, name in enumerate(self.names):
            style = {"drawstyle": "steps-post", "label": name, **curve}
            (line,) = ax.plot(self.times, self.curves[i], **style)
            size = LARGEST_MARK * self.weights[i] / self.weights[i].max()
            for marker, chosen in (("|", self.events[i]), (".", ~self.events[i])):
                style = {"color": line.get_color(), "marker": marker, "s": size[chosen], **marks}
                heights = np.full(chosen.sum(), -0.05 * (1 + i))
                ax.scatter(self.durations[i][chosen], heights, **style)
        ax.set(xlabel="duration", ylabel="probability of a later event")
        ax.set_yticks(np.linspace(0, 1, 6))
        ax.legend(title="query")
        return self
