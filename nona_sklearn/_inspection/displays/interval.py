"""Displays of predictive intervals with true targets, and of their coverage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import binomtest
from sklearn.base import is_classifier
from sklearn.utils import check_array

from ..._utils.tables import is_frame, names_of_columns, target_names_of, warn_of_other_order
from ..._utils.validation import check_integer, is_real
from ...explanation import ordered_values
from ...pipelines import unwrap
from .base import Display, check_one_output, target_name

CHANCE = 0.95  # confidence of the bars of a coverage


@dataclass(eq=False, repr=False)
class IntervalDisplay(Display):
    """Predictive intervals against the true targets, in order of the predictions.

    Parameters
    ----------
    intervals : ndarray of shape (n_queries, 2)
        Lower and upper ends of the intervals.
    predictions, y_true : ndarray of shape (n_queries,)
        The predictions and the true targets.
    confidence : float, default=0.9
        Nominal coverage: the share of targets that should be inside.
    target_name : str, default="target"
        Name of the target.

    Attributes
    ----------
    coverage_ : float
        Share of the targets inside.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn import IntervalDisplay
    >>> intervals = np.array([[0.0, 2.0], [1.0, 4.0]])
    >>> display = IntervalDisplay(intervals, np.array([1.0, 2.0]), np.array([1.5, 9.0])).plot()
    >>> display.coverage_
    0.5
    """

    intervals: np.ndarray
    predictions: np.ndarray
    y_true: np.ndarray
    confidence: float = 0.9
    target_name: str = "target"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        confidence: float = 0.9,
        ax: Any = None,
        interval_kwargs: dict[str, Any] | None = None,
        line_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Predict intervals with a fitted estimator, and draw them with the true targets.

        Parameters
        ----------
        estimator : fitted regressor or model around one, as :func:`unwrap` takes it
        X, y : array-like of shapes (n_queries, n_features) and (n_queries,), optional
            Queries and their true targets. If neither is given, the bank's rows are predicted by
            leave-one-out.
        confidence : float, default=0.9
            Nominal coverage: the share of targets that should be inside. The same share of
            targets should be below an interval as above it.
        ax, interval_kwargs, line_kwargs, scatter_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : IntervalDisplay

        Raises
        ------
        ValueError
            If `confidence` is not between 0 and 1, only one of `X` and `y` is given, there are
            several outputs, or the estimator is a classifier.

        Examples
        --------
        >>> from nona_sklearn import IntervalDisplay
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> X_test, y_test = [[84], [100]], [420, 200]
        >>> IntervalDisplay.from_estimator(knn.fit(X, y), X_test, y_test, confidence=0.8).coverage_
        0.5
        """
        model = _regressor_to_draw(estimator, X, y, confidence)
        predictions = model.predict(X)
        check_one_output(predictions.shape)
        return cls.from_predictions(
            model.neighbor_targets() if y is None else y,
            predictions,
            model.predict_quantiles(X, _ends_of(confidence)),
            confidence=confidence,
            target_name=target_name(model, y),
            ax=ax,
            interval_kwargs=interval_kwargs,
            line_kwargs=line_kwargs,
            scatter_kwargs=scatter_kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        intervals: Any,
        *,
        confidence: float = 0.9,
        target_name: Any = None,
        ax: Any = None,
        interval_kwargs: dict[str, Any] | None = None,
        line_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw intervals of any model with the true targets.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n_queries,)
            True targets and predictions.
        intervals : array-like of shape (n_queries, 2)
            Lower and upper ends of the intervals. Queries with NaN as an end are left out.
        confidence : float, default=0.9
            Nominal coverage: the share of targets that should be inside.
        target_name : str, optional
            Name of the target. By default, it is the name of `y_true`, if `y_true` is a Series.
        ax, interval_kwargs, line_kwargs, scatter_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : IntervalDisplay

        Raises
        ------
        ValueError
            If `confidence` is not between 0 and 1, `y_true` has a value that is no finite
            number, or shapes do not match.

        Examples
        --------
        >>> from nona_sklearn import IntervalDisplay
        >>> y_true, y_pred = [1, 9, 3, 4], [1, 2, 3, 4]
        >>> intervals = [[0, 2], [1, 4], [2, 4], [3, 5]]
        >>> IntervalDisplay.from_predictions(y_true, y_pred, intervals).coverage_
        0.75
        """
        _check_confidence(confidence)
        names = target_names_of(y_true)
        if target_name is None:
            target_name = names[0] if names else "target"
        y_true = check_array(y_true, ensure_2d=False, input_name="y_true")
        y_pred = np.asarray(y_pred)
        intervals = np.asarray(intervals)
        check_one_output(y_true.shape)
        if y_pred.shape != y_true.shape or intervals.shape != (*y_true.shape, 2):
            raise ValueError(
                f"y_pred and intervals must be of shapes {y_true.shape} and "
                f"{(*y_true.shape, 2)}, got {y_pred.shape} and {intervals.shape}"
            )
        has_interval = ~np.isnan(intervals).any(axis=1)
        intervals, y_pred, y_true = (
            values[has_interval] for values in (intervals, y_pred, y_true)
        )
        return cls(intervals, y_pred, y_true, confidence, target_name).plot(
            ax,
            interval_kwargs=interval_kwargs,
            line_kwargs=line_kwargs,
            scatter_kwargs=scatter_kwargs,
        )

    def plot(
        self,
        ax: Any = None,
        *,
        interval_kwargs: dict[str, Any] | None = None,
        line_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        ax, intervals, line, dots = self._start(
            ax,
            interval_kwargs=interval_kwargs,
            line_kwargs=line_kwargs,
            scatter_kwargs=scatter_kwargs,
        )
        order = np.argsort(self.predictions, kind="stable")
        low, high = self.intervals[order].T
        y = self.y_true[order]
        inside = (low <= y) & (y <= high)
        self.coverage_ = float(inside.mean())
        rank = np.arange(len(order))
        thin = {"colors": "0.8", "linewidths": np.clip(200 / len(order), 0.5, 4), **intervals}
        ax.vlines(rank, low, high, **thin, label="interval")
        ax.plot(rank, self.predictions[order], **{"color": "black", **line}, label="prediction")
        for chosen, color, label in [
            (inside, "tab:blue", "target inside"),
            (~inside, "tab:orange", "target outside"),
        ]:
            styles = {"s": 16, "color": color, "zorder": 2, **dots}
            ax.scatter(rank[chosen], y[chosen], **styles, label=label)
        ax.set_title(_interval_title(self.confidence, self.coverage_, len(order)))
        ax.set(xlabel="query, in order of the predictions", ylabel=self.target_name)
        ax.legend()
        return self


@dataclass(eq=False, repr=False)
class CoverageDisplay(Display):
    """Coverage of predictive intervals over time, or by group.

    Parameters
    ----------
    covered : bool ndarray of shape (n_queries,)
        Whether the true targets are in their intervals.
    by : ndarray of shape (n_queries,)
        Times of the queries, as numbers, dates or durations, or their groups, as strings.
    confidence : float, default=0.9
        Nominal coverage: the share of targets that should be inside.
    n_bins : int, default=10
        Number of parts of the time. Their numbers of queries are about equal.
    name : str, default="time"
        Name of the times or groups.

    Attributes
    ----------
    coverage_ : ndarray of shape (n_parts,)
        Share of the targets inside the intervals, by part.
    parts_ : ndarray of shape (n_parts,)
        The middle times of the parts, or the groups.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn import CoverageDisplay
    >>> covered, years = np.array([True, True, False, True]), np.array([2021, 2022, 2023, 2024])
    >>> CoverageDisplay(covered, years, n_bins=2).plot().coverage_
    array([1. , 0.5])
    """

    covered: np.ndarray
    by: np.ndarray
    confidence: float = 0.9
    n_bins: int = 10
    name: str = "time"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        by: Any = None,
        confidence: float = 0.9,
        n_bins: int = 10,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
        interval_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Predict intervals with a fitted estimator, and draw their coverage.

        Parameters
        ----------
        estimator : fitted regressor or model around one, as :func:`unwrap` takes it
        X, y : array-like of shapes (n_queries, n_features) and (n_queries,), optional
            Queries and their true targets. If neither is given, the bank's rows are predicted by
            leave-one-out or, with times, from earlier rows.
        by : array-like of shape (n_queries,) or str, optional
            Times or groups of the queries, or the name of a column of `X`. None: the times are
            used if the estimator was fitted with times, and they are a column of `X` or `X` is
            None.
        confidence : float, default=0.9
            Nominal coverage: the share of targets that should be inside.
        n_bins : int, default=10
            Number of parts of the time. Their numbers of queries are about equal. Groups are
            drawn one by one.
        ax, line_kwargs, interval_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : CoverageDisplay

        Raises
        ------
        ValueError
            If `confidence` is not between 0 and 1, only one of `X` and `y` is given, `by` is
            missing, or there are several outputs.

        Examples
        --------
        >>> from nona_sklearn import CoverageDisplay
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> X_test, y_test = [[84], [100], [55], [70]], [420, 200, 280, 340]
        >>> district = ["north", "north", "south", "south"]
        >>> display = CoverageDisplay.from_estimator(knn.fit(X, y), X_test, y_test, by=district)
        >>> display.parts_, display.coverage_
        (array(['north', 'south'], dtype='<U5'), array([0.5, 1. ]))
        """
        model = _regressor_to_draw(estimator, X, y, confidence)
        bank = model.estimator.bank_
        time = bank.time
        column = None if time is None else time.column
        if X is None and (by is None or (isinstance(by, str) and by == column)):
            by = None if time is None else time.restore(bank.neighbors.times.cpu().numpy())
        elif by is None:
            by = column
        if by is None:
            raise ValueError("by must be given: the times, or groups, of the queries")
        intervals = model.predict_quantiles(X, _ends_of(confidence))
        check_one_output(intervals.shape[:1] + intervals.shape[2:])
        name = column if X is None else None
        if isinstance(by, str):
            name = by
            if not is_frame(X) or by not in names_of_columns(X):
                raise ValueError(f"by must name a column of X, got {by!r}")
            by = X[by]
        return cls.from_predictions(
            model.neighbor_targets() if y is None else y,
            intervals,
            by,
            name=name,
            confidence=confidence,
            n_bins=n_bins,
            ax=ax,
            line_kwargs=line_kwargs,
            interval_kwargs=interval_kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        intervals: Any,
        by: Any,
        *,
        name: Any = None,
        confidence: float = 0.9,
        n_bins: int = 10,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
        interval_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the coverage of the intervals of any model.

        Parameters
        ----------
        y_true : array-like of shape (n_queries,)
            True targets.
        intervals : array-like of shape (n_queries, 2)
            Lower and upper ends of the intervals. Queries with NaN as an end are left out.
        by : array-like of shape (n_queries,)
            Times or groups of the queries.
        name : str, optional
            Name of the times or groups. By default, it is the name of `by`, if `by` is a Series.
        confidence : float, default=0.9
            Nominal coverage: the share of targets that should be inside.
        n_bins : int, default=10
            Number of parts of the time.
        ax, line_kwargs, interval_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : CoverageDisplay

        Raises
        ------
        ValueError
            If a parameter is invalid, `y_true` has a value that is no finite number, or shapes
            do not match.

        Examples
        --------
        >>> from nona_sklearn import CoverageDisplay
        >>> y_true, intervals = [1, 2, 3, 4], [[0, 2], [0, 3], [4, 6], [3, 5]]
        >>> years = [2021, 2022, 2023, 2024]
        >>> CoverageDisplay.from_predictions(y_true, intervals, years, n_bins=2).coverage_
        array([1. , 0.5])
        """
        _check_confidence(confidence)
        check_integer("n_bins", n_bins)
        y_true = check_array(y_true, ensure_2d=False, input_name="y_true")
        check_one_output(y_true.shape)
        intervals = np.asarray(intervals)
        n = len(y_true)
        if intervals.shape != (n, 2) or np.shape(by) != (n,):
            raise ValueError(
                f"intervals and by must be of shapes {(n, 2)} and {(n,)}, as y has {n} rows, got "
                f"{intervals.shape} and {np.shape(by)}"
            )
        name = name or getattr(by, "name", None) or "time"
        low, high = intervals.T
        has_interval = ~np.isnan(intervals).any(axis=1)
        if not has_interval.any():
            raise ValueError("intervals must be known of a query at least, got NaN alone")
        covered = (low <= y_true) & (y_true <= high)
        places = ordered_values("by", by)  # times, or the names of groups
        return cls(
            covered[has_interval], places[has_interval], confidence, n_bins, str(name)
        ).plot(ax, line_kwargs=line_kwargs, interval_kwargs=interval_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        line_kwargs: dict[str, Any] | None = None,
        interval_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        ax, line, bars = self._start(ax, line_kwargs=line_kwargs, interval_kwargs=interval_kwargs)
        self.parts_, queries = self._parts()
        self.coverage_ = np.array([self.covered[rows].mean() for rows in queries])
        chance = [
            binomtest(int(self.covered[rows].sum()), len(rows)).proportion_ci(CHANCE, "wilson")
            for rows in queries
        ]
        ax.axhline(self.confidence, color="0.6", linestyle="--", label=f"{self.confidence:.0%}")
        ax.vlines(self.parts_, *np.array(chance).T, **{"colors": "0.7", **bars}, label="chance")
        has_groups = self.by.dtype.kind == "O"
        style = {"marker": "o", "linestyle": "none" if has_groups else "-", **line}
        ax.plot(self.parts_, self.coverage_, **style, label="coverage")
        ax.set_title(_interval_title(self.confidence, self.covered.mean(), len(self.covered)))
        ax.set(xlabel=self.name, ylabel="share of targets inside", ylim=(None, 1.02))
        if not has_groups:
            ax.tick_params("x", rotation=30)
        ax.legend()
        return self

    def _parts(self):
        """Return the middles of the parts of the time, or the groups, and the parts' queries."""
        if self.by.dtype.kind == "O":
            groups = sorted({*self.by})
            return np.array(groups), [np.flatnonzero(self.by == group) for group in groups]
        order = self.by.argsort(kind="stable")
        parts = [part for part in np.array_split(order, self.n_bins) if len(part)]
        return self.by[[part[len(part) // 2] for part in parts]], parts


def _regressor_to_draw(estimator, X, y, confidence):
    """Return the unwrapped model, after a check of the parameters."""
    if not hasattr(estimator, "predict"):
        raise TypeError(f"estimator must be a regressor, got {estimator!r}")
    if is_classifier(estimator):
        raise ValueError(
            f"estimator must be a regressor; for classes there is predict_proba; got {estimator!r}"
        )
    model = unwrap(estimator).snapshot()
    _check_confidence(confidence)
    if (X is None) != (y is None):
        missing = "X" if X is None else "y"
        raise ValueError(f"X and y must be given together, or neither, got {missing}=None")
    warn_of_other_order(X=X, y=y)
    return model


def _check_confidence(confidence):
    if not (is_real(confidence, 0, 1) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}")


def _ends_of(confidence):
    """Return the levels of the quantiles that are the ends of an interval."""
    outside = (1 - confidence) / 2
    return [outside, 1 - outside]


def _interval_title(confidence, coverage, n_targets):
    return f"{confidence:.0%} intervals: {coverage:.0%} of {n_targets:,} targets inside"
