"""The report of one survival curve, and the rows behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples, check_is_fitted

from .._utils.validation import check_integer, check_numbers
from ..explanation import compare_columns
from .answers import rule_that_holds
from .page import SHAPE, UNUSUAL, Cell, Report, Table, Unit, footer, place, radii_of, share, show

HEIGHT = 180  # of the curve's picture
BELOW = 24  # the picture, where the marks of the neighbours are
LEGEND = (
    "The probability that the event comes later. Below, a line is the event of a row, and a ring "
    "the end of an observation that was censored. Larger marks have more weight."
)


class SurvivalReport(Report):
    """Report of one survival curve and the rows behind it, as an HTML page or in a notebook.

    The page shows the median time, the probabilities that the event comes later than some times,
    and the curve. Below the curve are the durations of the rows with the largest weights. A table
    has these rows beside the query. The page needs no further file and no network. Texts of the
    table are escaped.

    Parameters
    ----------
    estimator : NONASurvivalAnalysis
        Fitted.
    X : {DataFrame, array-like} of shape (1, n_features)
        The query.
    features : {DataFrame, array-like} of shape (n_samples, n_features), optional
        The rows given to fit, which the estimator does not store. None: the report names rows
        without their features.
    n_neighbors : int, default=6
        Largest number of rows to show.
    times : array-like of shape (n_times,), optional
        Times whose probabilities are shown. None: the quartiles of the times of events.
    eligibility : Eligibility or bool array of shape (1, n_rows), optional
        Rule or mask of the rows that may be neighbours, in place of the rule given to fit; see
        :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

    Raises
    ------
    ValueError
        If a parameter is invalid, `X` is not one row, or it has no eligible row.

    See Also
    --------
    SurvivalDisplay : Curves of several queries in one picture.
    NeighborsReport : The report of a number or of classes.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn import NONARegressor, NONASurvivalAnalysis, SurvivalReport
    >>> X = np.arange(20.0)[:, None]
    >>> y = [(30 - x, x % 4 > 0) for x in range(20)]
    >>> regressor = NONARegressor(n_estimators=1, max_iter=5, random_state=0)
    >>> model = NONASurvivalAnalysis(regressor).fit(X, y)
    >>> SurvivalReport(model, [[18]], X, times=[10, 20])
    <SurvivalReport: Time until the event for the query>
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        features: Any = None,
        *,
        n_neighbors: int = 6,
        times: Any = None,
        eligibility: Any = None,
    ) -> None:
        check_is_fitted(estimator)
        if (n_queries := _num_samples(X)) != 1:
            raise ValueError(f"X must be one row, got {n_queries}")
        if times is None:
            times = np.quantile(estimator.unique_times_, [0.25, 0.5, 0.75], method="nearest")
        times = check_numbers(times, "times").numpy().ravel()
        weights = estimator.neighbor_weights(X, eligibility=eligibility).toarray()[0]
        regressor = estimator.regressor_
        rule = rule_that_holds(regressor.bank_, eligibility)
        if not weights.any():
            by = "" if rule is None else f" by {rule!r}"
            raise ValueError(f"the query has no neighbors: no row of the bank is eligible{by}")
        labels = regressor.embed(X).row_labels
        name = "the query" if labels is None else show(labels[0])
        n_shown = min(check_integer("n_neighbors", n_neighbors), np.count_nonzero(weights))
        rows = (-weights).argsort(kind="stable")[:n_shown]
        given = {"eligibility": eligibility}
        found = estimator.explain(X, n_shown, **given)
        drawn = np.append(0.0, estimator.unique_times_)
        (curve,) = estimator.predict_survival_function(X, [*drawn, *times], **given)
        curve, at_times = np.split(curve, [len(drawn)])
        # Beyond the longest duration behind it, a curve is level whatever happens.
        last = estimator.durations_[weights > 0].max()
        texts = [
            share(p) if time <= last else "unknown"
            for p, time in zip(at_times, times, strict=True)
        ]
        head = ["", "query" if labels is None else name, *map(show, found["neighbor"])]
        durations, events = estimator.durations_[rows], estimator.events_[rows]
        unit, shares = Unit(), weights[rows] / weights.max()
        bars = map(Cell.of_weight, map(share, weights[rows]), shares)
        lines: list[list] = [
            ["weight", "", *bars],
            ["duration", "", *map(unit.show, durations)],
            ["ended by", "", *np.where(events, "the event", "censoring")],
            ["risk of the query over its own", "", *(f"{r:.2f}" for r in found["risk_ratio"])],
        ]
        if features is not None:
            for column in compare_columns(regressor, X, features):
                values = [column.queries[0], *(column.rows[row] for row in rows)]
                lines.append([column.name, *map(Cell.of_feature, values)])
        self._write(
            f"Time until the event for {name}",
            "survival.html",
            median=estimator.predict_quantiles(X, **given)[0],
            last=last,
            unit=unit,
            probabilities=Table(
                "Probabilities of a later event",
                ["time", *map(unit.show, times)],
                [["probability", *texts]],
            ),
            neighborhood=regressor.neighborhood(X, **given),
            rule=rule,
            n_rows=len(weights),
            unusual=UNUSUAL,
            infinity=np.inf,
            legend=LEGEND,
            curve=_Curve(drawn, curve, durations, events, weights[rows]),
            shape=SHAPE,
            share_of_rows=share(weights[rows].sum()),
            rows=Table("The query and the rows behind its curve", head, lines, "beside"),
            footer=footer(estimator, len(weights)),
        )


class _Curve:
    """The picture of a curve: steps, and below them the durations of rows."""

    height, below = HEIGHT, BELOW

    def __init__(
        self,
        times: np.ndarray,
        curve: np.ndarray,
        durations: np.ndarray,
        events: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        self.last = max(times[-1], durations.max())
        # A step is level until the next time.
        x = np.append(times[1:], self.last).repeat(2)[:-1]
        self.points = [(self.x(0.0), self.y(1.0))]
        self.points += zip(map(self.x, x), map(self.y, curve.repeat(2)[1:]), strict=True)
        self.marks = [*zip(map(self.x, durations), events, radii_of(weights), strict=True)]

    def x(self, time: float) -> float:
        """Return the position of a time."""
        ends = SHAPE["left"] / 2, SHAPE["width"] - SHAPE["right"]
        return round(place(time, 0.0, self.last, *ends, 0.0), 1)

    def y(self, probability: float) -> float:
        """Return the position of a probability."""
        return round(SHAPE["top"] + (1 - probability) * HEIGHT, 1)
