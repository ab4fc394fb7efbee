"""Weights against distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from ..._data.names import labels_of
from ..._utils.validation import is_whole
from ...attention import NONAHead
from ...similarity import l2
from ...weighting import WEIGHTINGS
from ..unwrap import unwrap
from .base import COLORS, Display, legend_beside

STYLES = ("-", "--", "-.", ":")
LEAST_SHARE = 1e-4  # of the largest weight that is drawn


@dataclass(eq=False, repr=False)
class WeightingDisplay(Display):
    """The weights of neighbours against their distances: how far away neighbours have weight.

    Weights are on a logarithmic scale. Where they fall to 0, a dot marks the last neighbour
    with a weight.

    Parameters
    ----------
    distances, weights : ndarray of shape (n_curves, n_neighbors)
        Distances and weights of each curve's neighbours, nearest first.
    names : sequence of str
        Names of the curves.
    title : str, default="Weights"
        Title of the picture.

    Examples
    --------
    >>> from nona_sklearn import WeightingDisplay
    >>> display = WeightingDisplay.from_weightings(["softmax", "sparsemax"], [0.0, 0.5, 2.0])
    >>> display.weights.round(2)
    array([[0.57, 0.35, 0.08],
           [0.75, 0.25, 0.  ]], dtype=float32)
    """

    distances: np.ndarray
    weights: np.ndarray
    names: Sequence[str]
    title: str = "Weights"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        n_neighbors: int = 50,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the weights of a few queries in the first network of a fitted estimator.

        Distances are Euclidean, in the space where this network compares. Weights of other
        networks, at their own distances, are not drawn.

        Parameters
        ----------
        estimator : fitted estimator or model around one, as :func:`unwrap` takes it
        X : array-like of shape (n_queries, n_features)
            Queries: a curve for each.
        n_neighbors : int, default=50
            Number of nearest neighbours to draw; all, if the bank has fewer.
        ax, line_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : WeightingDisplay

        Examples
        --------
        >>> from nona_sklearn import WeightingDisplay
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> WeightingDisplay.from_estimator(knn.fit(X, y), [[84]], n_neighbors=3).weights.round(2)
        array([[0.5, 0.5, 0. ]], dtype=float32)
        """
        if not is_whole(n_neighbors, 1):
            raise ValueError(f"n_neighbors must be a positive integer, got {n_neighbors!r}")
        model = unwrap(estimator).snapshot()
        bank, embedded = model.estimator.bank_, model.embed(X)
        parts = model.estimator.network_.head.split_by_head(embedded.embeddings, bank.embeddings)
        head, query, neighbors = parts[0]
        with torch.no_grad():
            weights = head.neighbor_weights(query, neighbors, None, bank.neighbors.log_prior)
            distances = -l2(head.metric_part(query), head.metric_part(neighbors))
        nearest = distances.argsort(dim=1, stable=True)[:, :n_neighbors]
        names = labels_of(X)
        return cls(
            distances.gather(1, nearest).cpu().numpy(),
            weights.gather(1, nearest).cpu().numpy(),
            [f"query {name}" for name in (range(len(query)) if names is None else names)],
            f"Weights of the {nearest.shape[1]} nearest rows, first network",
        ).plot(ax, line_kwargs=line_kwargs)

    @classmethod
    def from_weightings(
        cls,
        weightings: Any = None,
        distances: Any = None,
        *,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the weights by different weightings of the same neighbours of an invented query.

        Each neighbour lies in a direction of its own. The temperature is 1. A weighting given
        by name has the initial values of its parameters.

        Parameters
        ----------
        weightings : sequence of str or Weighting, optional
            Weightings by name or as objects, such as a fitted estimator's
            ``network_.head.weighting``; all that exist by default.
        distances : array-like of shape (n_neighbors,), optional
            Distances of the neighbours; by default 40 of them, up to 6.
        ax, line_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : WeightingDisplay

        Raises
        ------
        ValueError
            If a weighting is unknown, or a distance negative or not finite.

        Examples
        --------
        >>> from nona_sklearn import WeightingDisplay
        >>> display = WeightingDisplay.from_weightings(["gaussian", "sparsemax"], [0.0, 0.5, 2.0])
        >>> display.weights.round(2)
        array([[0.5 , 0.44, 0.07],
               [0.75, 0.25, 0.  ]], dtype=float32)
        """
        weightings = list(WEIGHTINGS) if weightings is None else list(weightings)
        given = np.linspace(0.15, 6, 40) if distances is None else np.asarray(distances)
        if given.ndim != 1 or not (np.isfinite(given) & (given >= 0)).all():
            raise ValueError(f"distances must be finite numbers from 0 on, got {distances!r}")
        distances = np.sort(given).astype(np.float32)
        neighbors = torch.from_numpy(distances).diag()
        query = neighbors.new_zeros(1, len(distances))
        with torch.no_grad():
            weights = [
                NONAHead("l2", weighting=weighting, n_neighbors=len(distances))
                .neighbor_weights(query, neighbors)[0]
                .numpy()
                for weighting in weightings
            ]
        return cls(
            np.tile(distances, (len(weightings), 1)),
            np.stack(weights),
            [str(weighting) for weighting in weightings],
            f"Weights of {len(distances)} neighbours",
        ).plot(ax, line_kwargs=line_kwargs)

    def plot(self, ax: Any = None, *, line_kwargs: dict[str, Any] | None = None) -> Self:
        ax, lines = self._start(ax, line_kwargs=line_kwargs)
        from matplotlib import color_sequences

        colors, curves = color_sequences[COLORS], zip(self.distances, self.weights, strict=True)
        for i, (distances, weights) in enumerate(curves):
            color, style, positive = colors[i % len(colors)], STYLES[i % len(STYLES)], weights > 0
            drawn = np.where(positive, weights, np.nan)
            styles = {"color": color, "linestyle": style, **lines}
            ax.plot(distances, drawn, **styles, label=str(self.names[i]))
            if positive.any() and not positive[-1]:
                last = positive.nonzero()[0][-1]
                dot = {"color": styles["color"], "markersize": 5}
                ax.plot(distances[last], weights[last], "o", **dot)
        note = " (dot: the last that counts)" if (self.weights[:, -1] == 0).any() else ""
        distance = f"distance of the neighbour{note}"
        ax.set(title=self.title, xlabel=distance, ylabel="weight", yscale="log")
        ax.set_xlim(left=0)
        least, largest = self.weights[self.weights > 0].min(), self.weights.max()
        ax.set_ylim(np.clip(least / 2, LEAST_SHARE * largest, largest / 100), 2 * largest)
        legend_beside(ax, len(self.names))
        return self
