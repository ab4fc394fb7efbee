"""Displays of a learned space, of the effect of a column, and of the steps of SoftStep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state

from ..._utils.tables import plain_values, warn_of_other_order
from ..._utils.validation import are_missing, check_integer, check_lengths, is_whole
from ...pipelines import unwrap
from ...softstep import STEPS
from ..answers import OutputAnswers
from .base import Display, check_one_output, class_colors, legend_beside, target_name


@dataclass(eq=False, repr=False)
class EmbeddingDisplay(Display):
    """The learned space in two dimensions. Rows are dots in the colours of their targets.

    Parameters
    ----------
    embedding : ndarray of shape (n_rows, 2)
        Coordinates of the rows.
    targets : ndarray of shape (n_rows,)
        Targets of the rows.
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
            Rows to embed, and their targets. By default, the bank is drawn.
        reducer : transformer, optional
            Its `fit_transform` reduces the embeddings to at least two columns, and the first two
            are drawn. An example is ``umap.UMAP()``. Principal components by default.
        max_rows : int, default=2000
            Largest number of rows to draw. More rows are sampled at random.
        random_state : int, RandomState instance or None, default=None
            Seed of the choice of rows.
        ax, scatter_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : EmbeddingDisplay

        Raises
        ------
        ValueError
            If only one of `X` and `y` is given, there are several outputs or fewer than 2 rows, or
            `max_rows` is less than 2.

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
        embeddings = np.asarray(model.transform(model.stored_rows() if X is None else X))
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
        if is_classifier(model.estimator):  # the classes of fit come first and keep their colours
            classes = np.concatenate([model.classes_, np.setdiff1d(targets, model.classes_)])
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
            colors = class_colors(len(self.classes))
            codes = (self.targets[:, None] == self.classes).argmax(axis=1)
            ax.scatter(*self.embedding.T, **{"c": colors[codes], **styles})
            for label, color in zip(self.classes, colors, strict=True):
                ax.plot([], [], "o", color=color, markersize=4, label=str(label))
            legend_beside(ax, len(self.classes), title=self.target_name)
        title = f"Embeddings of {len(self.targets):,} rows"
        ax.set(title=title, xlabel="dimension 1", ylabel="dimension 2")
        ax.set_aspect("equal", adjustable="datalim")  # both axes have the same scale
        return self


@dataclass(eq=False, repr=False)
class EffectDisplay(Display):
    """The effect of one column on predictions, as a curve over numbers or dates, or as bars.

    Parameters
    ----------
    values : ndarray of shape (n_values,)
        Distinct values of the column, ascending. Categories are in the order of their effects.
    effects : ndarray of shape (n_values,)
        The amounts that values add to a prediction, beside the mean, in the units of the target.
        For classes, they are added to the log odds of one class.
    feature_name : str, default="feature"
        Name of the column.
    target_name : str, default="target"
        Name of the target, or "log odds of <target> = <class>".

    See Also
    --------
    NONARegressor.attribute : The effects of all columns, as a table.

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
        output: int | str = 0,
        class_of_interest: Any = None,
        ax: Any = None,
        line_kwargs: dict[str, Any] | None = None,
        bar_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the effect of a column on the predictions of rows.

        Parameters
        ----------
        estimator : NONARegressor or NONAClassifier, or a model around one
            Fitted with ``similarity="features"``, the default for tables.
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows with the values to draw, usually the training rows.
        feature : int or str, default=0
            The number of the column, or its name if `X` is a DataFrame.
        output : int or str, default=0
            Number or name of the output, if there are several.
        class_of_interest : label, optional
            The class whose log odds are drawn, as in `attribute`. None: the second of
            two classes. For more classes, it must be given.
        ax, line_kwargs, bar_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : EffectDisplay

        Raises
        ------
        ValueError
            If `feature` is no column of `X`, `output` is no output, `class_of_interest` is no
            class of the output, or neighbours are not found by ``similarity="features"``.

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
        j = names.index(feature) if feature in names else feature
        if not is_whole(j, 0, n_columns - 1):
            raise ValueError(f"feature must be a column of X, got {feature!r:.100}")
        number = OutputAnswers.of(model, output).output or 0
        block, sign, name = _block_of(model, number, class_of_interest)
        parts = model.attribute(X, of="predictions")
        # After "query", a block has the mean, the columns of X, and two further columns.
        column = list(parts)[2 + j + block * (n_columns + 3)]
        table = X if hasattr(X, "columns") else np.asarray(X)
        effects_of_rows = sign * np.asarray(parts[column], dtype=float)
        values, effects = by_value(list(plain_values(table))[j], effects_of_rows)
        feature_name = str(names[j]) if hasattr(X, "columns") else f"feature {j}"
        display = cls(values, effects, feature_name, name)
        return display.plot(ax, line_kwargs=line_kwargs, bar_kwargs=bar_kwargs)

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


def _block_of(model: Any, output: int, label: Any) -> tuple[int, int, str]:
    """Return the block of `attribute`, the sign of its amounts, and their name."""
    name = model.target_names_[output] if model.target_names_ else "target"
    if not is_classifier(model.estimator):
        if label is not None:
            raise ValueError(f"class_of_interest must be None for numbers, got {label!r:.100}")
        return output, 1, name
    labels = [classes.tolist() for classes in model.estimator.targets_.classes]
    before = sum(1 if len(classes) == 2 else len(classes) for classes in labels[:output])
    classes = labels[output]
    label = classes[1] if label is None and len(classes) == 2 else label
    if label not in classes:
        raise ValueError(f"class_of_interest must be one of {classes!r:.200}, got {label!r:.100}")
    i = classes.index(label)
    name = f"log odds of {name} = {label}"
    return (before, 2 * i - 1, name) if len(classes) == 2 else (before + i, 1, name)


def by_value(values: np.ndarray, effects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of a column and their effects, from rows (n,), without gaps.

    Numbers and dates ascend. Categories are texts in the order of their effects.
    """
    present = ~are_missing(values)
    values, effects = values[present], effects[present]
    if values.dtype.kind in "biufmM":
        values, first = np.unique(values, return_index=True)
        return values, effects[first]
    values, first = np.unique(values.astype(str), return_index=True)
    order = effects[first].argsort(kind="stable")
    return values[order].astype(object), effects[first][order]


@dataclass(eq=False, repr=False)
class StepDisplay(Display):
    """The learned steps of SoftStep: the share of its weight that a neighbour keeps.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        Scaled similarities (or ranks), from 0, the farthest neighbour, to 1, the nearest.
    steps : ndarray of shape (n_networks, n_curves, n_points)
        The steps of the networks at `x`. A network has one curve if its parameters are global,
        and one curve per query if they are pointwise.
    on : {'similarity', 'rank'}, default='similarity'
        The meaning of `x`.

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
            Queries. They are needed with a pointwise softstep only.
        n_points : int, default=1001
            Number of points between 0 and 1.
        ax, line_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : StepDisplay

        Raises
        ------
        ValueError
            If the weights have no step (no `softstep`, or ``similarity='features'``), or the step
            is pointwise and `X` is None.

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
        embeddings = np.asarray(model.transform(model.stored_rows() if X is None else X))
        query = torch.from_numpy(embeddings).to(model.estimator.bank_.device)
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
        networks = "1 network" if n_networks == 1 else f"{n_networks} networks, a colour each"
        title = f"Learned steps{queries}: {networks}"
        scaled = f"scaled {self.on} (0: farthest neighbour, 1: nearest)"
        ax.set(title=title, xlabel=scaled, ylabel="step", xlim=(-0.02, 1.02), ylim=(-0.03, 1.03))
        return self
