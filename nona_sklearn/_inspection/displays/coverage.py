"""The share of true targets in predictive intervals, over time or by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import binomtest
from sklearn.utils import check_array

from ..._data.columns import read_values
from ..._data.tables import is_frame, names_of_columns
from ..._data.times import KINDS
from ..._utils.validation import check_integer
from .base import Display, check_one_output
from .interval import check_confidence, ends_of, regressor_to_draw

CHANCE = 0.95  # confidence of the bars


@dataclass(eq=False, repr=False)
class CoverageDisplay(Display):
    """Coverage of predictive intervals over time, or by group.

    Parameters
    ----------
    covered : bool ndarray of shape (n_queries,)
        Whether each true target is in its interval.
    by : ndarray of shape (n_queries,)
        Times of the queries, as numbers, dates or durations, or their groups, as strings.
    confidence : float, default=0.9
        Nominal coverage: the share of targets that should be inside.
    n_bins : int, default=10
        Number of parts of the time, of about as many queries each.
    name : str, default="time"
        Name of the times or groups.

    Attributes
    ----------
    coverage_ : ndarray of shape (n_parts,)
        Share of the targets inside the intervals, for each part.
    parts_ : ndarray of shape (n_parts,)
        The middle time of each part, or the groups.

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
            Queries, and their true targets. Without both: the bank's rows, each without itself or,
            with times, from earlier rows.
        by : array-like of shape (n_queries,) or str, optional
            Times or groups of the queries, or the name of a column of `X`. None: the times of an
            estimator that was fitted with times, where they are a column of `X` or `X` is None.
        confidence : float, default=0.9
            Nominal coverage: the share of targets that should be inside.
        n_bins : int, default=10
            Number of parts of the time, of about as many queries each. Groups are drawn one by
            one.
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
        model = regressor_to_draw(estimator, X, y, confidence)
        bank, time = model.estimator.bank_, model.estimator.bank_.time
        column = None if time is None else time.column
        if X is None and (by is None or (isinstance(by, str) and by == column)):
            by = None if time is None else time.restore(bank.neighbors.times.cpu().numpy())
        elif by is None:
            by = column
        if by is None:
            raise ValueError("by must be given: the times, or groups, of the queries")
        intervals = model.predict_quantiles(X, ends_of(confidence))
        check_one_output(intervals.shape[:1] + intervals.shape[2:])
        return cls.from_predictions(
            model.neighbor_targets() if y is None else y,
            intervals,
            _column_of(X, by),
            name=by if isinstance(by, str) else column if X is None else None,
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
            Lower and upper end of each interval. Queries whose ends are NaN are left out.
        by : array-like of shape (n_queries,)
            Times or groups of the queries.
        name : str, optional
            Name of the times or groups; by default that of `by`, if it is a Series.
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
            If a parameter is invalid, `y_true` has other than finite numbers, or the shapes are
            others.

        Examples
        --------
        >>> from nona_sklearn import CoverageDisplay
        >>> y_true, intervals = [1, 2, 3, 4], [[0, 2], [0, 3], [4, 6], [3, 5]]
        >>> years = [2021, 2022, 2023, 2024]
        >>> CoverageDisplay.from_predictions(y_true, intervals, years, n_bins=2).coverage_
        array([1. , 0.5])
        """
        check_confidence(confidence)
        check_integer("n_bins", n_bins)
        y_true = check_array(y_true, ensure_2d=False, input_name="y_true")
        check_one_output(y_true.shape)
        intervals, n = np.asarray(intervals), len(y_true)
        if intervals.shape != (n, 2) or np.shape(by) != (n,):
            raise ValueError(
                f"intervals and by must be of shapes {(n, 2)} and {(n,)}, as y has {n} rows, got "
                f"{intervals.shape} and {np.shape(by)}"
            )
        name = name or getattr(by, "name", None) or "time"
        low, high = intervals.T
        known = ~np.isnan(intervals).any(axis=1)
        if not known.any():
            raise ValueError("intervals must be known of a query at least, got NaN alone")
        covered = (low <= y_true) & (y_true <= high)
        by = _values_of(by)
        return cls(covered[known], by[known], confidence, n_bins, str(name)).plot(
            ax, line_kwargs=line_kwargs, interval_kwargs=interval_kwargs
        )

    def plot(
        self,
        ax: Any = None,
        *,
        line_kwargs: dict[str, Any] | None = None,
        interval_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        ax, line, bars = self._start(ax, line_kwargs=line_kwargs, interval_kwargs=interval_kwargs)
        self.parts_, queries = self._parts()
        counts = [(int(self.covered[rows].sum()), len(rows)) for rows in queries]
        self.coverage_ = np.array([held / n for held, n in counts])
        chance = [binomtest(held, n).proportion_ci(CHANCE, method="wilson") for held, n in counts]
        ax.axhline(self.confidence, color="0.6", linestyle="--", label=f"{self.confidence:.0%}")
        ax.vlines(self.parts_, *np.array(chance).T, **{"colors": "0.7", **bars}, label="chance")
        of_groups = self.by.dtype.kind == "O"
        style = {"marker": "o", "linestyle": "none" if of_groups else "-", **line}
        ax.plot(self.parts_, self.coverage_, **style, label="coverage")
        ax.set_title(
            f"{self.confidence:.0%} intervals: {self.covered.mean():.0%} of "
            f"{len(self.covered):,} targets inside"
        )
        ax.set(xlabel=self.name, ylabel="share of targets inside", ylim=(None, 1.02))
        if not of_groups:
            ax.tick_params("x", rotation=30)
        ax.legend()
        return self

    def _parts(self):
        """Middles of the parts of the time, or the groups, and the numbers of their queries."""
        if self.by.dtype.kind == "O":
            groups = sorted({*self.by})
            return np.array(groups), [np.flatnonzero(self.by == group) for group in groups]
        order = self.by.argsort(kind="stable")
        parts = [part for part in np.array_split(order, self.n_bins) if len(part)]
        return self.by[[part[len(part) // 2] for part in parts]], parts


def _column_of(X, by):
    """The column of a table that is named, or what is given instead."""
    if not isinstance(by, str):
        return by
    if not is_frame(X) or by not in names_of_columns(X):
        raise ValueError(f"by must name a column of X, got {by!r}")
    return X[by]


def _values_of(by):
    """Numbers, dates, and durations in seconds; of groups, their names."""
    column = read_values("by", by, "UTC")
    if column.kind in KINDS:
        return column.values
    return np.array([str(value) for value in column.values], dtype=object)
