"""The predictions over two features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..._data.names import warn_of_other_order
from ..._utils.validation import check_integer, check_lengths
from .base import Display, check_one_output, check_regressor, target_name


@dataclass(eq=False, repr=False)
class SurfaceDisplay(Display):
    """The predictions over two features, with the training rows.

    Parameters
    ----------
    x0, x1 : ndarray of shapes (n_columns,) and (n_rows,)
        Values of the two features.
    predictions : ndarray of shape (n_rows, n_columns)
        Predictions at all pairs of these values.
    points, y : ndarray of shapes (n_samples, 2) and (n_samples,), optional
        The two features of some rows, and their targets, on the colour scale of the predictions.
    feature_names : tuple of str, default=("feature 0", "feature 1")
        Names of the two features.
    target_name : str, default="target"
        Name of the target.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn import SurfaceDisplay
    >>> areas, rooms = np.array([50, 80, 110]), np.array([1, 2])
    >>> prices = np.array([[250, 400, 550], [270, 420, 570]])
    >>> display = SurfaceDisplay(areas, rooms, prices, feature_names=("area", "rooms")).plot()
    >>> display.ax_.get_xlabel(), display.ax_.get_ylabel()
    ('area', 'rooms')
    """

    x0: np.ndarray
    x1: np.ndarray
    predictions: np.ndarray
    points: np.ndarray | None = None
    y: np.ndarray | None = None
    feature_names: tuple[str, ...] = ("feature 0", "feature 1")
    target_name: str = "target"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        features: Any = (0, 1),
        grid_resolution: int = 100,
        ax: Any = None,
        surface_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Predict on a grid over two features, and draw the surface.

        Parameters
        ----------
        estimator : regressor
            Any, fitted to one output, such as a pipeline.
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows that define the range of the grid, usually the training rows. All features
            are numbers; the others stay at their medians.
        y : array-like of shape (n_samples,), optional
            Their targets, to draw the rows themselves.
        features : tuple of two int or str, default=(0, 1)
            The features: their numbers, or names if `X`, or the X given to fit, is a DataFrame.
        grid_resolution : int, default=100
            Number of values of each feature.
        ax, surface_kwargs, scatter_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : SurfaceDisplay

        Raises
        ------
        ValueError
            If `X` contains anything but numbers, `features` are not two columns of it, there are
            several outputs, or the estimator is a classifier: for these there is
            :class:`~sklearn.inspection.DecisionBoundaryDisplay`.

        Examples
        --------
        Prices over areas, in columns, and numbers of rooms, in rows:

        >>> from sklearn.neighbors import KNeighborsRegressor
        >>> from nona_sklearn import SurfaceDisplay
        >>> X, y = [[50, 1], [60, 2], [80, 2], [90, 3], [120, 3]], [250, 300, 400, 450, 600]
        >>> knn = KNeighborsRegressor(2).fit(X, y)
        >>> SurfaceDisplay.from_estimator(knn, X, y, grid_resolution=3).predictions
        array([[275., 425., 525.],
               [275., 425., 525.],
               [275., 425., 525.]])
        """
        check_regressor(estimator, "sklearn.inspection.DecisionBoundaryDisplay")
        framed = hasattr(X, "columns")
        names = list(X.columns if framed else getattr(estimator, "feature_names_in_", []))
        values, pair = _check_features(X, features, names)
        check_integer("grid_resolution", grid_resolution, 2)
        if y is not None:
            warn_of_other_order(X=X, y=y)
            check_one_output(np.shape(y))
            check_lengths(len(values), len(y))
        points = values[:, pair]
        x0, x1, grid = _make_grid(values, pair, grid_resolution)
        queries = type(X)(dict(zip(names, grid.T, strict=True))) if framed else grid
        predictions = estimator.predict(queries)
        check_one_output(predictions.shape)
        return cls(
            x0,
            x1,
            predictions.reshape(grid_resolution, grid_resolution),
            None if y is None else points,
            None if y is None else np.asarray(y),
            tuple(str(names[f]) if names else f"feature {f}" for f in pair),
            target_name(estimator, y),
        ).plot(ax, surface_kwargs=surface_kwargs, scatter_kwargs=scatter_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        surface_kwargs: dict[str, Any] | None = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        from matplotlib.ticker import MaxNLocator

        ax, filled, dots = self._start(
            ax, surface_kwargs=surface_kwargs, scatter_kwargs=scatter_kwargs
        )
        drawn = [self.predictions] if self.y is None else [self.predictions, self.y]
        low, high = min(values.min() for values in drawn), max(values.max() for values in drawn)
        styles = {"levels": MaxNLocator(24).tick_values(low, high), **filled}
        surface = ax.contourf(self.x0, self.x1, self.predictions, **styles)
        label = "prediction" if self.target_name == "target" else f"predicted {self.target_name}"
        if self.y is not None and self.points is not None:
            white = {"s": 24, "edgecolors": "white", "linewidths": 0.6}
            scale = {"c": self.y, "norm": surface.norm, "cmap": surface.cmap}
            ax.scatter(*self.points.T, **white | scale | dots)
            label += f"; {self.target_name} of a dot"
        ax.figure.colorbar(surface, ax=ax, label=label)
        ax.set(xlabel=self.feature_names[0], ylabel=self.feature_names[1], title="Predictions")
        return self


def _check_features(X, features, names):
    """The values of a table, (n, n_features), and the numbers of two features."""
    try:
        values = np.asarray(X, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must hold numbers only: {error}") from None
    if values.ndim != 2:
        raise ValueError(f"X must be a table of shape (n_samples, n_features), got {X!r:.100}")
    given = features if np.iterable(features) else ()
    pair = [names.index(f) if f in names else f for f in given]
    if len(pair) != 2 or len({*pair} & {*range(values.shape[1])}) != 2:
        raise ValueError(f"features must be two columns of X, got {features!r}")
    return values, pair


def _make_grid(values, pair, n):
    """Values of two features, (n,) each, and rows of their grid, (n * n, n_features)."""
    points = values[:, pair]
    x0, x1 = np.linspace(np.nanmin(points, axis=0), np.nanmax(points, axis=0), n).T
    grid = np.tile(np.nanmedian(values, axis=0), (n**2, 1))
    grid[:, pair] = np.stack(np.meshgrid(x0, x1), axis=-1).reshape(-1, 2)
    return x0, x1, grid
