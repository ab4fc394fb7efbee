"""The learned space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state

from ..._data.names import warn_of_other_order
from ..._utils.validation import check_integer, check_lengths
from ..unwrap import unwrap
from .base import (
    Display,
    check_one_output,
    class_colors,
    legend_beside,
    metric_embeddings,
    target_name,
)


@dataclass(eq=False, repr=False)
class EmbeddingDisplay(Display):
    """The learned space, in two dimensions: each row a dot in the colour of its target.

    Parameters
    ----------
    embedding : ndarray of shape (n_rows, 2)
        Coordinates of the rows.
    targets : ndarray of shape (n_rows,)
        Target of each row.
    target_name : str, default="target"
        Name of the target.
    classes : ndarray of shape (n_classes,), optional
        The labels among the targets, in the order of their colours. None: targets are numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn import EmbeddingDisplay
    >>> embedding = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    >>> display = EmbeddingDisplay(embedding, np.array([250, 300, 600]), "price").plot()
    >>> display.ax_.get_title()
    'Embeddings of 3 rows'
    """

    embedding: np.ndarray
    targets: np.ndarray
    target_name: str = "target"
    classes: np.ndarray | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        reducer: Any = None,
        max_rows: int = 2000,
        random_state: Any = None,
        ax: Any = None,
        scatter_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Embed rows with a fitted estimator, reduce them to two dimensions, and draw them.

        Parameters
        ----------
        estimator : fitted estimator or model around one, as :func:`unwrap` takes it
        X, y : array-like of shapes (n_samples, n_features) and (n_samples,), optional
            Rows to embed, and their targets; the bank by default.
        reducer : transformer, optional
            Its `fit_transform` reduces the embeddings to two columns or more, of which two are
            drawn: ``umap.UMAP()`` for example. Principal components by default.
        max_rows : int, default=2000
            Number of rows to draw, at random; all, if there are fewer.
        random_state : int, RandomState instance or None, default=None
            Seed of the choice of rows.
        ax, scatter_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : EmbeddingDisplay

        Raises
        ------
        ValueError
            If `X` is given without `y` or the reverse, there are several outputs or fewer than 2
            rows, or `max_rows` is less than 2.

        Examples
        --------
        >>> from nona_sklearn import EmbeddingDisplay, NONARegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0).fit(X, y)
        >>> EmbeddingDisplay.from_estimator(reg).ax_.get_title()
        'Embeddings of 5 rows'
        """
        check_integer("max_rows", max_rows, 2)
        model = unwrap(estimator).snapshot()
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither")
        warn_of_other_order(X=X, y=y)
        embeddings = metric_embeddings(model, X).cpu().numpy()
        targets = model.neighbor_targets() if y is None else np.asarray(y)
        check_one_output(targets.shape)
        check_lengths(len(embeddings), len(targets))
        if len(embeddings) < 2:
            raise ValueError("X, or the bank, must have at least 2 rows to draw, got 1")
        rows = np.arange(len(embeddings))
        if len(rows) > max_rows:
            rows = check_random_state(random_state).choice(rows, max_rows, replace=False)
        reducer = PCA(n_components=2) if reducer is None else reducer
        embedding = np.asarray(reducer.fit_transform(embeddings[rows]))[:, :2]
        classes = None
        if is_classifier(model.estimator):  # known classes first: these keep their colours
            known = model.classes_
            classes = np.concatenate([known, np.setdiff1d(targets, known)])
        return cls(embedding, targets[rows], target_name(model, y), classes).plot(
            ax, scatter_kwargs=scatter_kwargs
        )

    def plot(self, ax: Any = None, *, scatter_kwargs: dict[str, Any] | None = None) -> Self:
        ax, dots = self._start(ax, scatter_kwargs=scatter_kwargs)
        styles = {"s": 12, "alpha": 0.8, **dots}
        if self.classes is None:
            drawn = ax.scatter(*self.embedding.T, **{"c": self.targets, **styles})
            ax.figure.colorbar(drawn, ax=ax, label=self.target_name)
        else:
            self._draw_classes(ax, styles)
        title = f"Embeddings of {len(self.targets):,} rows"
        ax.set(title=title, xlabel="dimension 1", ylabel="dimension 2")
        ax.set_aspect("equal", adjustable="datalim")  # distances are the same in all directions
        return self

    def _draw_classes(self, ax, styles):
        colors = class_colors(len(self.classes))
        codes = (self.targets[:, None] == self.classes).argmax(axis=1)
        ax.scatter(*self.embedding.T, **{"c": colors[codes], **styles})
        for label, color in zip(self.classes, colors, strict=True):
            ax.plot([], [], "o", color=color, markersize=4, label=str(label))
        legend_beside(ax, len(self.classes), title=self.target_name)
