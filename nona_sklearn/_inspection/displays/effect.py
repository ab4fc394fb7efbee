"""What one column adds to predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier

from ..._data.columns import plain_values
from ..._utils.validation import are_missing, is_whole
from ..unwrap import unwrap
from .base import Display


@dataclass(eq=False, repr=False)
class EffectDisplay(Display):
    """What one column adds to predictions: a curve over numbers and dates, or bars.

    Parameters
    ----------
    values : ndarray of shape (n_values,)
        Different values of the column, ascending; of categories in the order of their effects.
    effects : ndarray of shape (n_values,)
        What each adds to a prediction, beside the mean, in the units of the target; of classes to
        the log odds of one.
    feature_name : str, default="feature"
        Name of the column.
    target_name : str, default="target"
        Name of the target, or "log odds of <target> = <class>".

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
        class_of_interest: Any = None,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
        bar_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw what a column adds to the predictions of some rows.

        Parameters
        ----------
        estimator : NONARegressor or NONAClassifier, or a model around one
            Fitted with ``similarity="features"``, the default for tables.
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows with the values to draw, usually the training rows.
        feature : int or str, default=0
            The column: its number, or its name if `X` is a DataFrame.
        output : int, default=0
            Number of the output, if there are several.
        class_of_interest : label, optional
            The class whose log odds are drawn, as `attribute_predictions` has them. None: of two
            classes the second. Of more, it must be given.
        ax, line_kwargs, bar_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : EffectDisplay

        Raises
        ------
        ValueError
            If `feature` is no column of `X`, `output` is no output, `class_of_interest` none of
            its classes, or neighbours are not found by ``similarity="features"``.

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
        model = unwrap(estimator)
        n_columns = np.shape(X)[1]
        names = list(getattr(X, "columns", range(n_columns)))
        place = names.index(feature) if feature in names else feature
        if not is_whole(place, 0, n_columns - 1):
            raise ValueError(f"feature must be a column of X, got {feature!r:.100}")
        n_outputs = int(np.prod(model.neighbor_targets().shape[1:]))
        if not is_whole(output, 0, n_outputs - 1):
            raise ValueError(f"output must be from 0 to {n_outputs - 1}, got {output!r:.100}")
        number, sign, called = _amounts_of(model, output, class_of_interest)
        parts = model.attribute_predictions(X)
        column = list(parts)[2 + place + number * (n_columns + 3)]
        table = X if hasattr(X, "columns") else np.asarray(X)
        own = sign * np.asarray(parts[column], dtype=float)
        values, effects = by_value(list(plain_values(table))[place], own)
        named = names[place] if hasattr(X, "columns") else f"feature {place}"
        shown = cls(values, effects, str(named), called)
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


def _amounts_of(model: Any, output: int, label: Any) -> tuple[int, int, str]:
    """Which amounts of a table are of an output or class, their sign, and what they are of."""
    names = model.target_names_
    called = names[output] if names else "target"
    if not is_classifier(model.estimator):
        if label is not None:
            raise ValueError(f"class_of_interest must be None for numbers, got {label!r:.100}")
        return output, 1, called
    each = [own.tolist() for own in model.estimator.targets_.classes]
    own, before = each[output], sum(1 if len(c) == 2 else len(c) for c in each[:output])
    label = own[1] if label is None and len(own) == 2 else label
    if label not in own:
        raise ValueError(f"class_of_interest must be one of {own!r:.200}, got {label!r:.100}")
    place, called = own.index(label), f"log odds of {called} = {label}"
    return (before, 2 * place - 1, called) if len(own) == 2 else (before + place, 1, called)


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
