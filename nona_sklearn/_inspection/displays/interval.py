"""Predictive intervals against true targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array

from ..._data.names import target_names_of, warn_of_other_order
from ..._utils.validation import is_real
from ..unwrap import unwrap
from .base import Display, check_one_output, check_regressor, target_name


@dataclass(eq=False, repr=False)
class IntervalDisplay(Display):
    """Predictive intervals against the true targets, in order of the predictions.

    Parameters
    ----------
    intervals : ndarray of shape (n_queries, 2)
        Lower and upper end of each interval.
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
            Queries, and their true targets. Without both: the bank's rows, each without itself
            (leave-one-out).
        confidence : float, default=0.9
            Nominal coverage: the share of targets that should be inside. Those outside are, in
            equal shares, below and above.
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
        model = regressor_to_draw(estimator, X, y, confidence)
        predictions = model.predict(X)
        check_one_output(predictions.shape)
        return cls.from_predictions(
            model.neighbor_targets() if y is None else y,
            predictions,
            model.predict_quantiles(X, ends_of(confidence)),
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
            Lower and upper end of each interval.
        confidence : float, default=0.9
            Nominal coverage: the share of targets that should be inside.
        target_name : str, optional
            Name of the target; by default that of `y_true`, if it is a Series.
        ax, interval_kwargs, line_kwargs, scatter_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : IntervalDisplay

        Raises
        ------
        ValueError
            If `confidence` is not between 0 and 1, `y_true` has other than finite numbers, or
            the shapes are others.

        Examples
        --------
        >>> from nona_sklearn import IntervalDisplay
        >>> y_true, y_pred = [1, 9, 3, 4], [1, 2, 3, 4]
        >>> intervals = [[0, 2], [1, 4], [2, 4], [3, 5]]
        >>> IntervalDisplay.from_predictions(y_true, y_pred, intervals).coverage_
        0.75
        """
        check_confidence(confidence)
        names = target_names_of(y_true)
        if target_name is None:
            target_name = names[0] if names else "target"
        y_true = check_array(y_true, ensure_2d=False, input_name="y_true")
        y_pred, intervals = map(np.asarray, (y_pred, intervals))
        check_one_output(y_true.shape)
        if y_pred.shape != y_true.shape or intervals.shape != (*y_true.shape, 2):
            raise ValueError(
                f"y_pred and intervals must be of shapes {y_true.shape} and "
                f"{(*y_true.shape, 2)}, got {y_pred.shape} and {intervals.shape}"
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
        (low, high), y = self.intervals[order].T, self.y_true[order]
        inside = (low <= y) & (y <= high)
        self.coverage_ = float(inside.mean())
        place = np.arange(len(order))
        thin = {"colors": "0.8", "linewidths": np.clip(200 / len(order), 0.5, 4), **intervals}
        ax.vlines(place, low, high, **thin, label="interval")
        ax.plot(place, self.predictions[order], **{"color": "black", **line}, label="prediction")
        for chosen, color, label in [
            (inside, "tab:blue", "target inside"),
            (~inside, "tab:orange", "target outside"),
        ]:
            styles = {"s": 16, "color": color, "zorder": 2, **dots}
            ax.scatter(place[chosen], y[chosen], **styles, label=label)
        found = f"{self.coverage_:.0%} of {len(order):,} targets inside"
        ax.set_title(f"{self.confidence:.0%} intervals: {found}")
        ax.set(xlabel="query, in order of the predictions", ylabel=self.target_name)
        ax.legend()
        return self


def regressor_to_draw(estimator, X, y, confidence):
    """Check what pictures of intervals are given: the model whose intervals are drawn."""
    check_regressor(estimator, "predict_proba")
    model = unwrap(estimator).snapshot()
    check_confidence(confidence)
    if (X is None) != (y is None):
        missing = "X" if X is None else "y"
        raise ValueError(f"X and y must be given together, or neither, got {missing}=None")
    warn_of_other_order(X=X, y=y)
    return model


def ends_of(confidence):
    """Levels of the quantiles between which an interval lies."""
    outside = (1 - confidence) / 2
    return [outside, 1 - outside]


def check_confidence(confidence):
    if not (is_real(confidence, 0, 1) and 0 < confidence < 1):
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}")
