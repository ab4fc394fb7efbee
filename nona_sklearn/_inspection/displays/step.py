"""The learned steps of SoftStep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from ...softstep import STEPS
from ..unwrap import unwrap
from .base import Display, count_networks, metric_embeddings


@dataclass(eq=False, repr=False)
class StepDisplay(Display):
    """The learned steps of SoftStep: how much of its weight a neighbour keeps.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        Scaled similarities (or ranks), from 0, the farthest neighbour, to 1, the nearest.
    steps : ndarray of shape (n_networks, n_curves, n_points)
        The step of each network at `x`: one curve if its parameters are global, one for each
        query if they are pointwise.
    on : {'similarity', 'rank'}, default='similarity'
        What `x` is.

    Examples
    --------
    >>> from nona_sklearn import StepDisplay
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> display = StepDisplay.from_estimator(knn.fit(X, y), n_points=5)
    >>> display.x, display.steps[0].round(1)
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32),
     array([[0. , 0.5, 1. , 1. , 1. ]], dtype=float32))
    """

    x: np.ndarray
    steps: np.ndarray
    on: str = "similarity"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        n_points: int = 1001,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Evaluate the steps of a fitted estimator, and draw them.

        Parameters
        ----------
        estimator : fitted estimator or model around one, as :func:`unwrap` takes it
        X : array-like of shape (n_queries, n_features), optional
            Queries; needed with a pointwise softstep only.
        n_points : int, default=1001
            Number of points between 0 and 1.
        ax, line_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : StepDisplay

        Raises
        ------
        ValueError
            If the weights have no step (no `softstep`, or ``similarity='features'``), or a
            pointwise one and `X` is None.

        Examples
        --------
        >>> from nona_sklearn import StepDisplay
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> StepDisplay.from_estimator(knn.fit(X, y), n_points=3).steps.round(1)
        array([[[0., 1., 1.]]], dtype=float32)
        """
        model = unwrap(estimator).snapshot()
        query = metric_embeddings(model, X)
        parts = model.estimator.network_.head.split_by_head(query, query)
        step = parts[0][0].step
        if step is None:
            fitted = model.estimator
            raise ValueError(
                "estimator must be fitted with softstep='s1' or 's2' and a similarity with a "
                f"step, such as 'l2', got softstep={fitted.softstep!r} and "
                f"similarity_={fitted.similarity_!r}"
            )
        if step.params == "pointwise" and X is None:
            raise ValueError("X must be given with a pointwise softstep, got None")
        x = torch.linspace(0, 1, n_points, device=query.device)[None]
        steps = torch.stack(
            [STEPS[step.step](x, *head.step.thresholds(part)).exp() for head, part, _ in parts]
        )
        return cls(x[0].cpu().numpy(), steps.cpu().numpy(), step.on).plot(
            ax, line_kwargs=line_kwargs
        )

    def plot(self, ax: Any = None, *, line_kwargs: dict[str, Any] | None = None) -> Self:
        ax, lines = self._start(ax, line_kwargs=line_kwargs)
        n_networks, n_curves, _ = self.steps.shape
        faint = {} if n_curves == 1 else {"alpha": np.clip(8 / n_curves, 0.1, 0.8), "linewidth": 1}
        for i, curves in enumerate(self.steps):
            ax.plot(self.x, curves.T, **{"color": f"C{i}", **faint, **lines})
        queries = "" if n_curves == 1 else f" for {n_curves:,} queries"
        title = f"Learned steps{queries}: {count_networks(n_networks)}"
        scaled = f"scaled {self.on} (0: farthest neighbour, 1: nearest)"
        ax.set(title=title, xlabel=scaled, ylabel="step", xlim=(-0.02, 1.02), ylim=(-0.03, 1.03))
        return self
