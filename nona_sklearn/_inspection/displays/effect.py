"""What one column adds to predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..._data.columns import plain_values
from ..._utils.validation import are_missing, is_whole
from ..unwrap import unwrap
from .base import Display, check_regressor, target_name


@dataclass(eq=False, repr=False)
class EffectDisplay(Display):
    """What one column adds to predictions: a curve over numbers and dates, or bars.

    Parameters
    ----------
    values : ndarray of shape (n_values,)
        Different values of the column, ascending; of categories in the order of their effects.
    effects : ndarray of shape (n_values,)
        What each adds to a prediction, beside the mean, in the units of the target.
    feature_name : str, default="feature"
        Name of the column.
    target_name : str, default="target"
        Name of the target.

    See Also
    --------
    NONARegressor.attribute_predictions : The same for all columns of some rows, as a table.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn import EffectDisplay
    >>> display = EffectDisplay(np.array([50, 80, 110]), np.array([-90.0, 0.0, 90.0]), "area")
    >>> display.plot().ax_.get_xlabel()
    'area'
    """

    values: np.ndarray
    effects: np.ndarray
    feature_name: str = "feature"
    target_name: str = "target"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        feature: Any = 0,
        *,
        output: int = 0,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
        bar_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw what a column adds to the predictions of some rows.

        Parameters
        ----------
        estimator : NONARegressor, or a model around one
            Fitted with ``similarity="features"``, the default for tables.
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows with the values to draw, usually the training rows.
        feature : int or str, default=0
            The column: its number, or its name if `X` is a DataFrame.
        output : int, default=0
            Number of the output, if there are several.
        ax, line_kwargs, bar_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : EffectDisplay

        Raises
        ------
        ValueError
            If `feature` is no column of `X`, `output` is no output, or neighbours are not found
            by ``similarity="features"``.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from nona_sklearn import EffectDisplay, NONARegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
        >>> reg = NONARegressor(n_estimators=1, random_state=0).fit(X, y)
        >>> display = EffectDisplay.from_estimator(reg, X, "bmi")
        >>> display.values[[0, -1]].tolist()
        [18.0, 42.2]
        """
        check_regressor(estimator, "sklearn.inspection.PartialDependenceDisplay")
        n_columns = np.shape(X)[1]
        names = list(getattr(X, "columns", range(n_columns)))
        place = names.index(feature) if feature in names else feature
        if not is_whole(place, 0, n_columns - 1):
            raise ValueError(f"feature must be a column of X, got {feature!r:.100}")
        parts = unwrap(estimator).attribute_predictions(X)
        n_outputs = (len(parts.keys()) - 1) // (n_columns + 3)
        if not is_whole(output, 0, n_outputs - 1):
            raise ValueError(f"output must be from 0 to {n_outputs - 1}, got {output!r:.100}")
        column = list(parts)[2 + place + output * (n_columns + 3)]
        table = X if hasattr(X, "columns") else np.asarray(X)
        own = np.asarray(parts[column], dtype=float)
        values, effects = by_value(list(plain_values(table))[place], own)
        called = names[place] if hasattr(X, "columns") else f"feature {place}"
        shown = cls(values, effects, str(called), target_name(estimator))
        return shown.plot(ax, line_kwargs=line_kwargs, bar_kwargs=bar_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        line_kwargs: dict[str, Any] | None = None,
        bar_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        ax, line, bar = self._start(ax, line_kwargs=line_kwargs, bar_kwargs=bar_kwargs)
        label = f"effect on {self.target_name}"
        if self.values.dtype == object:
            ax.barh(list(map(str, self.values)), self.effects, **bar)
            ax.axvline(0, color="0.6", lw=1)
            ax.set(xlabel=label, ylabel=self.feature_name)
        else:
            ax.axhline(0, color="0.6", lw=1)
            ax.plot(self.values, self.effects, **line)
            ax.set(xlabel=self.feature_name, ylabel=label)
        ax.set(title=f"What {self.feature_name} adds to predictions")
        return self


def by_value(values: np.ndarray, effects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values of a column and their effects, of rows (n,) each, without gaps.

    Numbers and dates ascend, other values are texts in the order of their effects.
    """
    known = np.flatnonzero(~are_missing(values))
    if values.dtype.kind in "biufmM":
        own, first = np.unique(values[known], return_index=True)
        return own, effects[known[first]]
    own, first = np.unique(values[known].astype(str), return_index=True)
    found = effects[known[first]]
    order = found.argsort(kind="stable")
    return own[order].astype(object), found[order]
