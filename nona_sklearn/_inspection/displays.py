"""Pictures. The only file that imports matplotlib, and only inside methods."""

import inspect
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state

from .._data.names import labels_of, target_names_of
from .._utils.validation import is_whole, snapshot
from ..attention import NONAHead
from ..similarity import l2
from ..softstep import STEPS
from ..weighting import WEIGHTINGS
from .unwrap import unwrap

SQUARED_ERROR = "squared error of standardised targets"
CLASS_LOSSES = {"log_loss": "log loss", "as_softmax": "log loss (in training AS-Softmax)"}
LEGEND_ROWS = 20
MOST_NAMES = 40  # of rows that have room side by side
LONGEST_NAME = 40  # of a row, in characters
LARGEST_DOT, LEAST_DOT = 120, 6  # the heaviest row's, and one's that can be seen; square points
UNDER_LABEL = 32  # points from the axes, however high they are, to a legend under their label
COLORS = "petroff10"  # matplotlib's, which the colour-blind tell apart
STYLES = ("-", "--", "-.", ":")
LEAST_SHARE = 1e-4  # of the largest weight that is drawn
WIDE = 50  # the largest loss over the smallest: ticks between powers of ten have no room


class Display:
    """What every picture shares: where it is drawn, and how it may look."""

    def plot(self, ax=None, **styles):
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            What matplotlib is told beside the data, by parts of the picture: `scatter_kwargs`
            of dots, `line_kwargs` of curves, `bar_kwargs`, `interval_kwargs` (vertical lines),
            `surface_kwargs` (filled contours). A picture takes those of its own parts.

        Returns
        -------
        self : Display
            With `ax_` and `figure_` set.

        Raises
        ------
        TypeError
            If the picture has no such part, or its style is not a dict.
        """
        _check_styles(self, styles)
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(layout="constrained")
        self._draw(ax, **styles)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _check_styles(display, styles):
    """Refuse styles of parts that a picture does not have, or that are no dicts."""
    parts = list(inspect.signature(display._draw).parameters)[1:]
    for part, style in styles.items():
        if part not in parts:
            raise TypeError(f"{type(display).__name__} takes {', '.join(parts)}, got {part!r}")
        if not isinstance(style, dict | None):
            raise TypeError(f"{part} must be a dict, got {style!r}")


def _styled(given, artist, **defaults):
    """Keyword arguments of an artist: those given, by any of their names, over the defaults."""
    from matplotlib.cbook import normalize_kwargs

    return defaults | normalize_kwargs(given or {}, artist)


def _unwrap_as_it_is(model):
    """Unwrap a model; a fit or an edit in another thread does not change what it returns."""
    unwrapped = unwrap(model)
    return replace(unwrapped, estimator=snapshot(unwrapped.estimator))


def _embeddings(unwrapped, X):
    """Where the rows of `X`, or of the bank, are compared, as a tensor where the network is."""
    estimator = unwrapped.estimator
    if X is None:
        return estimator.network_.head.metric_part(estimator.bank_.embeddings)
    device = next(estimator.network_.parameters()).device
    return torch.tensor(np.asarray(unwrapped.transform(X)), device=device)


def _check_one_output(shape):
    if len(shape) != 1:
        raise ValueError(f"y must be one output, got targets {tuple(shape)}")


def _choose_output(model, n_outputs, output):
    """Number and name of the output to draw, which may go by either."""
    names = model.target_names_ or ()
    choices = [*range(n_outputs), *names]
    if output is None and n_outputs == 1:
        output = 0
    if output not in choices:
        raise ValueError(f"output must be one of {choices}, got {output!r}")
    number = names.index(output) if output in names else output
    if names:
        return number, names[number]
    return number, "target" if n_outputs == 1 else f"target_{number}"


def _values(model, X, behind, number):
    """What :class:`NeighborsDisplay` draws of neighbours whose targets are numbers."""
    targets, adjusted = (of[0, :-1, number] for of in (behind.targets, behind.adjusted))
    moved = not np.array_equal(targets, adjusted)
    return {"targets": targets, "adjusted_targets": adjusted if moved else None}


def _votes(model, X, behind, number):
    """What it draws of those that are of classes."""
    known = model.estimator.targets_
    classes, place = known.classes[number], known.places[number]
    codes = behind.targets[0, :-1, place].argmax(axis=1)
    probabilities = model.predict_proba(X)
    own = probabilities[number] if known.several else probabilities
    return {
        "targets": classes[codes],
        "contributions": behind.contributions[0, :-1, place][np.arange(len(codes)), codes],
        "probabilities": dict(zip(classes.tolist(), own[0], strict=True)),
    }


def _check_confidence(confidence):
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")


def _check_class(label, known):
    """Refuse a label that is none, or several."""
    if np.ndim(label) or label not in known:
        raise ValueError(f"y_true must be a class that fit saw, got {label!r}")


def _check_numbers(estimator, instead):
    """Refuse a classifier, and say what there is for classes."""
    if is_classifier(estimator):
        raise ValueError(
            f"estimator must be a regressor; for classes there is {instead}; got {estimator!r}"
        )


def _target_name(model, y=None):
    """What the one target is called: by `y`, or by the targets that the model was fitted to."""
    names = target_names_of(y)
    if names is None:
        with suppress(TypeError):  # not one of ours
            names = unwrap(model).target_names_
    return names[0] if names else "target"


def _legend_beside(ax, n_labels, title=None):
    """Draw a legend on the right of the axes, in as many columns as the labels need."""
    n_columns = -(-n_labels // LEGEND_ROWS)
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    ax.legend(title=title, ncols=n_columns, fontsize="small", **place)


def _class_colors(n_classes):
    """A colour for each class, (n_classes, 4): the same in every picture."""
    from matplotlib import color_sequences, colormaps
    from matplotlib.colors import to_rgba_array

    for name in (COLORS, "tab20"):
        if n_classes <= len(color_sequences[name]):
            return to_rgba_array(color_sequences[name][:n_classes])
    return colormaps["turbo"](np.linspace(0, 1, n_classes))


class NeighborsDisplay(Display):
    """The neighbours behind one prediction, the heaviest on top, beside what it predicts.

    For numbers: a dot for each neighbour's target. A larger dot has more weight. A dotted line
    leads to an open dot, the target adjusted to the query. For classes: a bar for each
    neighbour, in the colour of its class. The frame is its weight, the filled part is what it
    adds to the probability of its class.

    It is recommended to use :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (n_neighbors,)
        Share of each neighbour in the prediction.
    targets : ndarray of shape (n_neighbors,)
        Target of each neighbour.
    names : ndarray of shape (n_neighbors,)
        Name of each neighbour.
    prediction : float or label
        The prediction, over all neighbours.
    y_true : float or label, optional
        The true target.
    adjusted_targets : ndarray of shape (n_neighbors,), optional
        The targets as they were moved for the query; None: not at all.
    target_name : str, default="target"
        What the target is called.
    contributions : ndarray of shape (n_neighbors,), optional
        For classes: what each neighbour adds to the probability of its own class.
    probabilities : dict, optional
        For classes: the probability of each label. None: targets are numbers.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import NeighborsDisplay, NONARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NONARegressor(random_state=0).fit(X[:400], y[:400])
    >>> display = NeighborsDisplay.from_estimator(reg, X[400:401], y[400])
    >>> len(display.weights)
    10
    """

    def __init__(
        self,
        weights,
        targets,
        names,
        prediction,
        y_true=None,
        adjusted_targets=None,
        target_name="target",
        contributions=None,
        probabilities=None,
    ):
        self.weights = weights
        self.targets = targets
        self.names = names
        self.prediction = prediction
        self.y_true = y_true
        self.adjusted_targets = adjusted_targets
        self.target_name = target_name
        self.contributions = contributions
        self.probabilities = probabilities

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y_true=None,
        *,
        output=None,
        n_neighbors=10,
        row_names=None,
        ax=None,
        **styles,
    ):
        """Ask a fitted estimator for one query's neighbours, and draw them.

        Parameters
        ----------
        estimator : NONARegressor, NONAClassifier, another of ours or a model around one
            Anything that :func:`unwrap` takes.
        X : array-like of shape (1, n_features)
            The query.
        y_true : float or label, optional
            Its true target; of classes one that fit saw.
        output : int or str, optional
            Which output to draw, by its number or its name in `y`. Needed where there are
            several.
        n_neighbors : int, default=10
            Number of neighbours to draw; all, if the bank holds fewer.
        row_names : array-like of shape (n_samples,), optional
            Names of the rows given to fit, and of added ones if it is longer. By default, and
            for rows behind its end, those that :meth:`~nona_sklearn.NONARegressor.explain`
            gives: of the index of their DataFrame, or their numbers.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : NeighborsDisplay
            With the data of the picture as attributes.

        Raises
        ------
        ValueError
            If `X` is not one row, `y_true` no class that fit saw, or there are several outputs
            and `output` is none of them.
        """
        model = _unwrap_as_it_is(estimator)
        predictions = model.predict(X)
        if len(predictions) != 1:
            raise ValueError(f"X must be one query, got predictions {predictions.shape}")
        number, name = _choose_output(model, predictions.size, output)
        bank = model.estimator.bank_
        behind = model._explain(X, min(n_neighbors, len(bank)))
        names = behind.names[0]
        if row_names is not None:
            given, ids = np.asarray(row_names), bank.ids.cpu().numpy()[behind.positions[0]]
            said = ids < len(given)
            names = names.astype(object)
            names[said] = given[ids[said]]
        shown = _votes if is_classifier(model.estimator) else _values
        drawn = shown(model, X, behind, number)
        if "probabilities" in drawn and y_true is not None:
            _check_class(y_true, drawn["probabilities"])
        weights, prediction = behind.weights[0, :-1], predictions.flat[number]
        return cls(
            weights, names=names, prediction=prediction, y_true=y_true, target_name=name, **drawn
        ).plot(ax, **styles)

    def _draw(self, ax, scatter_kwargs=None, bar_kwargs=None):
        if self.probabilities is None:
            self._draw_numbers(ax, scatter_kwargs)
        else:
            self._draw_classes(ax, bar_kwargs)
        n_rows, share = len(self.weights), self.weights.sum()
        named = np.arange(0, n_rows, -(-n_rows // MOST_NAMES))  # as many as have room
        ax.set_yticks(named, [self._row_label(i) for i in named], fontsize="small")
        ax.set_ylim(n_rows - 0.4, -0.6)  # the heaviest is on top
        ax.set_title(f"{n_rows} heaviest neighbours ({share:.0%} of the weight)")

    def _row_label(self, i):
        name = str(self.names[i])
        name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        return name if self.probabilities is not None else f"{name}   {self.weights[i]:.1%}"

    def _draw_classes(self, ax, bar_kwargs):
        from matplotlib.patches import Rectangle

        labels, place = list(self.probabilities), np.arange(len(self.weights))
        colors = dict(zip(labels, _class_colors(len(labels)), strict=True))
        own = [colors[label] for label in self.targets]
        ax.barh(place, self.contributions, **_styled(bar_kwargs, Rectangle, color=own))
        ax.barh(place, self.weights, color="none", edgecolor="0.2")
        notes = [("predicted", self.prediction), ("true", self.y_true)]
        for label in self._legend_labels():
            said = [f"{label}: {self.probabilities.get(label, 0):.0%}"]
            said += [note for note, which in notes if label == which]
            ax.barh(0, 0, color=colors.get(label, "white"), label=", ".join(said))
        ax.set(xlabel="weight (frame), contribution (filled)", ylabel="neighbour")
        ax.legend(title=self.target_name, fontsize="small", loc="lower right")

    def _legend_labels(self):
        """The classes that are drawn, predicted or true, the most probable first."""
        shown = dict.fromkeys([*self.targets, self.prediction])
        if self.y_true is not None:
            shown[self.y_true] = None
        return sorted(shown, key=lambda label: -self.probabilities.get(label, 0))

    def _draw_numbers(self, ax, scatter_kwargs):
        from matplotlib.collections import PathCollection
        from matplotlib.transforms import ScaledTranslation

        place = np.arange(len(self.weights))
        sizes = np.maximum(LARGEST_DOT * self.weights / self.weights.max(), LEAST_DOT)
        styles = _styled(scatter_kwargs, PathCollection, s=sizes, color="tab:blue")
        dots = ax.scatter(self.targets, place, **styles, label="target of a neighbour")
        if self.adjusted_targets is not None:
            color = dots.get_facecolor()
            ax.hlines(place, self.targets, self.adjusted_targets, color, linestyle=":")
            rings = {**styles, "facecolors": "none", "edgecolors": color, "color": None}
            ax.scatter(self.adjusted_targets, place, **rings, label="adjusted to the query")
        ax.axvline(self.prediction, color="tab:orange", zorder=0, label="prediction")
        if self.y_true is not None:
            true = {"color": "tab:green", "linestyle": "--", "zorder": 0}
            ax.axvline(self.y_true, **true, label="true target")
        ax.set(xlabel=self.target_name, ylabel="neighbour, share of the prediction")
        lower = ScaledTranslation(0, -UNDER_LABEL / 72, ax.figure.dpi_scale_trans)
        below = {"bbox_to_anchor": (0.5, 0), "bbox_transform": ax.transAxes + lower}
        legend = ax.legend(loc="upper center", **below, ncols=2, fontsize="small")
        for handle in legend.legend_handles[: 1 + (self.adjusted_targets is not None)]:
            handle.set_sizes([LARGEST_DOT / 2])


class EmbeddingDisplay(Display):
    """The learned space, in two dimensions: each row a dot in the colour of its target.

    It is recommended to use :meth:`from_estimator`.

    Parameters
    ----------
    embedding : ndarray of shape (n_rows, 2)
        Where the rows are.
    targets : ndarray of shape (n_rows,)
        Target of each row.
    target_name : str, default="target"
        What the target is called.
    classes : ndarray of shape (n_classes,), optional
        The labels that targets are, in the order of their colours. None: targets are numbers.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import EmbeddingDisplay, NONARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NONARegressor(n_estimators=1, max_iter=10, random_state=0).fit(X, y)
    >>> display = EmbeddingDisplay.from_estimator(reg)
    >>> display.embedding.shape
    (442, 2)
    """

    def __init__(self, embedding, targets, target_name="target", classes=None):
        self.embedding = embedding
        self.targets = targets
        self.target_name = target_name
        self.classes = classes

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X=None,
        y=None,
        *,
        reducer=None,
        max_rows=2000,
        random_state=None,
        ax=None,
        **styles,
    ):
        """Embed rows with a fitted estimator, reduce them to two dimensions, and draw them.

        Parameters
        ----------
        estimator : NONARegressor, NONAClassifier, another of ours or a model around one
            Anything that :func:`unwrap` takes, fitted to one output.
        X : array-like of shape (n_samples, n_features), optional
            Rows to embed; the bank by default.
        y : array-like of shape (n_samples,), optional
            Their targets.
        reducer : transformer, optional
            Reduces the embeddings by its `fit_transform`, to two columns or more, of which
            two are drawn: ``umap.UMAP()`` for example. Principal components by default.
        max_rows : int, default=2000
            Number of rows to draw, at random; all, if there are fewer.
        random_state : int, RandomState instance or None, default=None
            Seed of the choice of rows.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : EmbeddingDisplay
            With the data of the picture as attributes.

        Raises
        ------
        ValueError
            If `X` comes without `y` or the reverse, or there are several outputs.
        """
        model = _unwrap_as_it_is(estimator)
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither")
        embeddings = _embeddings(model, X).cpu().numpy()
        targets = model._neighbor_targets() if y is None else np.asarray(y)
        _check_one_output(targets.shape)
        rows = np.arange(len(embeddings))
        if len(rows) > max_rows:
            rows = check_random_state(random_state).choice(rows, max_rows, replace=False)
        reducer = PCA(n_components=2) if reducer is None else reducer
        embedding = np.asarray(reducer.fit_transform(embeddings[rows]))[:, :2]
        classes = None
        if is_classifier(model.estimator):  # known ones first: these keep their colours
            known = model.classes_
            classes = np.concatenate([known, np.setdiff1d(targets, known)])
        return cls(embedding, targets[rows], _target_name(model, y), classes).plot(ax, **styles)

    def _draw(self, ax, scatter_kwargs=None):
        from matplotlib.collections import PathCollection

        styles = _styled(scatter_kwargs, PathCollection, s=12, alpha=0.8)
        if self.classes is None:
            dots = ax.scatter(*self.embedding.T, **{"c": self.targets, **styles})
            ax.figure.colorbar(dots, ax=ax, label=self.target_name)
        else:
            self._draw_classes(ax, styles)
        ax.set(
            title=f"Embeddings of {len(self.targets):,} rows",
            xlabel="dimension 1",
            ylabel="dimension 2",
        )
        ax.set_aspect("equal", adjustable="datalim")  # a distance is one in all directions

    def _draw_classes(self, ax, styles):
        colors = _class_colors(len(self.classes))
        codes = (self.targets[:, None] == self.classes).argmax(axis=1)
        ax.scatter(*self.embedding.T, **{"c": colors[codes], **styles})
        for label, color in zip(self.classes, colors, strict=True):
            ax.plot([], [], "o", color=color, markersize=4, label=str(label))
        _legend_beside(ax, len(self.classes), title=self.target_name)


class StepDisplay(Display):
    """The learned steps of SoftStep: how much of its weight a neighbour keeps.

    It is recommended to use :meth:`from_estimator`.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        Scaled similarities (or ranks), from 0, the farthest neighbour, to 1, the nearest.
    steps : ndarray of shape (n_networks, n_curves, n_points)
        The step of each network at `x`: one curve if its parameters are global, one for each
        query if they are pointwise.
    on : {'similarity', 'rank'}, default='similarity'
        What `x` is.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, StepDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = SoftStepKNeighborsRegressor(max_iter=10, random_state=0).fit(X, y)
    >>> display = StepDisplay.from_estimator(reg)
    >>> display.steps.shape
    (1, 1, 1001)
    """

    def __init__(self, x, steps, on="similarity"):
        self.x = x
        self.steps = steps
        self.on = on

    @classmethod
    def from_estimator(cls, estimator, X=None, *, n_points=1001, ax=None, **styles):
        """Evaluate the steps of a fitted estimator, and draw them.

        Parameters
        ----------
        estimator : NONARegressor, NONAClassifier, another of ours or a model around one
            Anything that :func:`unwrap` takes, fitted with a `softstep`.
        X : array-like of shape (n_queries, n_features), optional
            Queries; needed with ``softstep_params='pointwise'`` only.
        n_points : int, default=1001
            Number of points between 0 and 1.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : StepDisplay
            With the data of the picture as attributes.

        Raises
        ------
        ValueError
            If the estimator has no `softstep`, or has a pointwise one and `X` is None.
        """
        model = _unwrap_as_it_is(estimator)
        query = _embeddings(model, X)
        parts = model.estimator.network_.head.split_by_head(query, query)
        step = parts[0][0].step
        if step is None:
            raise ValueError("estimator must be fitted with softstep='s1' or 's2', got None")
        if step.params == "pointwise" and X is None:
            raise ValueError("X must be given with softstep_params='pointwise', got None")
        x = torch.linspace(0, 1, n_points, device=query.device)[None]
        steps = torch.stack(
            [STEPS[step.step](x, *head.step.thresholds(part)).exp() for head, part, _ in parts]
        )
        return cls(x[0].cpu().numpy(), steps.cpu().numpy(), step.on).plot(ax, **styles)

    def _draw(self, ax, line_kwargs=None):
        from matplotlib.lines import Line2D

        n_networks, n_curves, _ = self.steps.shape
        faint = {} if n_curves == 1 else {"alpha": np.clip(8 / n_curves, 0.1, 0.8), "linewidth": 1}
        for i, curves in enumerate(self.steps):
            ax.plot(self.x, curves.T, **_styled(line_kwargs, Line2D, color=f"C{i}", **faint))
        whose = "" if n_curves == 1 else f" for {n_curves:,} queries"
        ax.set(
            title=f"Learned steps{whose}: {_colors(n_networks)}",
            xlabel=f"scaled {self.on} (0: farthest neighbour, 1: nearest)",
            ylabel="step",
            xlim=(-0.02, 1.02),
            ylim=(-0.03, 1.03),
        )


class WeightingDisplay(Display):
    """The weights of neighbours against their distances: how far neighbours count.

    Weights are on a logarithmic scale. Where they end, a dot is on the last neighbour that
    counts.

    It is recommended to use :meth:`from_estimator` or :meth:`from_weightings`.

    Parameters
    ----------
    distances : ndarray of shape (n_curves, n_neighbors)
        Distances of each curve's neighbours, nearest first.
    weights : ndarray of shape (n_curves, n_neighbors)
        What they weigh.
    names : sequence of str
        What the curves are called.
    title : str, default="Weights"
        What the curves are.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.

    Examples
    --------
    >>> from nona_sklearn import WeightingDisplay
    >>> display = WeightingDisplay.from_weightings(["softmax", "sparsemax"], [0.0, 0.5, 2.0])
    >>> display.weights.round(2)
    array([[0.57, 0.35, 0.08],
           [0.75, 0.25, 0.  ]], dtype=float32)
    """

    def __init__(self, distances, weights, names, title="Weights"):
        self.distances = distances
        self.weights = weights
        self.names = names
        self.title = title

    @classmethod
    def from_estimator(cls, estimator, X, *, n_neighbors=50, ax=None, **styles):
        """Ask the first network of a fitted estimator about a few queries, and draw its weights.

        Distances are Euclidean, where this network compares. Weights of other networks, at
        their own distances, are not drawn.

        Parameters
        ----------
        estimator : NONARegressor, NONAClassifier, another of ours or a model around one
            Anything that :func:`unwrap` takes, fitted.
        X : array-like of shape (n_queries, n_features)
            Queries: a curve for each.
        n_neighbors : int, default=50
            Number of nearest neighbours to draw; all, if the bank holds fewer.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : WeightingDisplay
            With the data of the picture as attributes.
        """
        if not is_whole(n_neighbors, 1):
            raise ValueError(f"n_neighbors must be a positive integer, got {n_neighbors!r}")
        model = _unwrap_as_it_is(estimator)
        bank, asked = model.estimator.bank_, model.embed(X)
        parts = model.estimator.network_.head.split_by_head(asked.embeddings, bank.embeddings)
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
        ).plot(ax, **styles)

    @classmethod
    def from_weightings(cls, weightings=None, distances=None, *, ax=None, **styles):
        """Draw what weightings make of the same neighbours of one made-up query.

        Each neighbour lies in a direction of its own. The temperature is 1, and what a
        weighting learns is as given or, of names, as it starts.

        Parameters
        ----------
        weightings : sequence of str or Weighting, optional
            Which, by name or as objects, such as a fitted estimator's
            ``network_.head.weighting``; all that there are by default.
        distances : array-like of shape (n_neighbors,), optional
            Distances of the neighbours; by default 40 of them, up to 6.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : WeightingDisplay
            With the data of the picture as attributes.

        Raises
        ------
        ValueError
            If a weighting is unknown, or a distance negative or not finite.
        """
        weightings = list(WEIGHTINGS) if weightings is None else list(weightings)
        given = np.linspace(0.15, 6, 40) if distances is None else np.asarray(distances)
        if given.ndim != 1 or not (np.isfinite(given) & (given >= 0)).all():
            raise ValueError(f"distances must be finite numbers from 0 on, got {distances!r}")
        distances = np.sort(given).astype(np.float32)
        neighbors = torch.from_numpy(distances).diag()
        with torch.no_grad():
            weights = [
                NONAHead("l2", weighting=weighting, n_neighbors=len(distances))
                .neighbor_weights(neighbors.new_zeros(1, len(distances)), neighbors)[0]
                .numpy()
                for weighting in weightings
            ]
        return cls(
            np.tile(distances, (len(weightings), 1)),
            np.stack(weights),
            [str(weighting) for weighting in weightings],
            f"Weights of {len(distances)} neighbours",
        ).plot(ax, **styles)

    def _draw(self, ax, line_kwargs=None):
        from matplotlib import color_sequences
        from matplotlib.lines import Line2D

        colors, curves = color_sequences[COLORS], zip(self.distances, self.weights, strict=True)
        for i, (distances, weights) in enumerate(curves):
            color, style, counts = colors[i % len(colors)], STYLES[i % len(STYLES)], weights > 0
            drawn = np.where(counts, weights, np.nan)
            styles = _styled(line_kwargs, Line2D, color=color, linestyle=style)
            ax.plot(distances, drawn, **styles, label=str(self.names[i]))
            if counts.any() and not counts[-1]:
                last = counts.nonzero()[0][-1]
                dot = {"color": styles["color"], "markersize": 5}
                ax.plot(distances[last], weights[last], "o", **dot)
        note = " (dot: the last that counts)" if (self.weights[:, -1] == 0).any() else ""
        ax.set(
            title=self.title,
            xlabel=f"distance of the neighbour{note}",
            ylabel="weight",
            yscale="log",
        )
        ax.set_xlim(left=0)
        least, largest = self.weights[self.weights > 0].min(), self.weights.max()
        ax.set_ylim(np.clip(least / 2, LEAST_SHARE * largest, largest / 100), 2 * largest)
        _legend_beside(ax, len(self.names))


class SurfaceDisplay(Display):
    """The predictions over two features, beside the rows they were learned from.

    It is recommended to use :meth:`from_estimator`.

    Parameters
    ----------
    x0 : ndarray of shape (n_columns,)
        Values of the first feature.
    x1 : ndarray of shape (n_rows,)
        Values of the second feature.
    predictions : ndarray of shape (n_rows, n_columns)
        Predictions at all pairs of these values.
    points : ndarray of shape (n_samples, 2), optional
        The two features of some rows.
    y : ndarray of shape (n_samples,), optional
        Targets of these rows; they are drawn on the colour scale of the predictions.
    feature_names : tuple of str, default=("feature 0", "feature 1")
        Names of the two features.
    target_name : str, default="target"
        What the target is called.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.

    Examples
    --------
    >>> from nona_sklearn import NONARegressor, SurfaceDisplay
    >>> from nona_sklearn.datasets import make_plane_regression
    >>> X, y = make_plane_regression("rings", 300, random_state=0)
    >>> reg = NONARegressor(n_estimators=1, max_iter=10, random_state=0).fit(X, y)
    >>> display = SurfaceDisplay.from_estimator(reg, X, y, grid_resolution=50)
    >>> display.predictions.shape
    (50, 50)
    """

    def __init__(
        self,
        x0,
        x1,
        predictions,
        points=None,
        y=None,
        feature_names=("feature 0", "feature 1"),
        target_name="target",
    ):
        self.x0 = x0
        self.x1 = x1
        self.predictions = predictions
        self.points = points
        self.y = y
        self.feature_names = feature_names
        self.target_name = target_name

    @classmethod
    def from_estimator(
        cls, estimator, X, y=None, *, features=(0, 1), grid_resolution=100, ax=None, **styles
    ):
        """Predict on a grid over two features, and draw the surface.

        Parameters
        ----------
        estimator : regressor
            Fitted to one output; a pipeline will do.
        X : {array-like, DataFrame} of shape (n_samples, n_features)
            Rows that define the range of the grid, usually the training rows. All features
            are numbers; the others stay at their medians.
        y : array-like of shape (n_samples,), optional
            Their targets, to draw the rows themselves.
        features : tuple of two int or str, default=(0, 1)
            The features: their numbers, or names if `X`, or the X given to fit, is a DataFrame.
        grid_resolution : int, default=100
            Number of values of each feature.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : SurfaceDisplay
            With the data of the picture as attributes.

        Raises
        ------
        ValueError
            If `X` holds other than numbers, `features` are not two columns of it, there are
            several outputs, or the estimator is a classifier: for these there is
            :class:`~sklearn.inspection.DecisionBoundaryDisplay`.
        """
        _check_numbers(estimator, "sklearn.inspection.DecisionBoundaryDisplay")
        framed = hasattr(X, "columns")
        names = list(X.columns if framed else getattr(estimator, "feature_names_in_", []))
        try:
            values = np.asarray(X, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"X must hold numbers only: {error}") from None
        pair = [names.index(f) if f in names else f for f in features]
        if len(pair) != 2 or len({*pair} & {*range(values.shape[1])}) != 2:
            raise ValueError(f"features must be two columns of X, got {features!r}")
        if y is not None:
            _check_one_output(np.shape(y))
        points = values[:, pair]
        x0, x1 = np.linspace(
            np.nanmin(points, axis=0), np.nanmax(points, axis=0), grid_resolution
        ).T
        grid = np.tile(np.nanmedian(values, axis=0), (grid_resolution**2, 1))
        grid[:, pair] = np.stack(np.meshgrid(x0, x1), axis=-1).reshape(-1, 2)
        predictions = estimator.predict(
            type(X)(dict(zip(names, grid.T, strict=True))) if framed else grid
        )
        _check_one_output(predictions.shape)
        return cls(
            x0,
            x1,
            predictions.reshape(grid_resolution, grid_resolution),
            None if y is None else points,
            None if y is None else np.asarray(y),
            tuple(str(names[f]) if names else f"feature {f}" for f in pair),
            _target_name(estimator, y),
        ).plot(ax, **styles)

    def _draw(self, ax, surface_kwargs=None, scatter_kwargs=None):
        from matplotlib.collections import PathCollection
        from matplotlib.ticker import MaxNLocator

        drawn = [self.predictions] if self.y is None else [self.predictions, self.y]
        low, high = min(values.min() for values in drawn), max(values.max() for values in drawn)
        levels = MaxNLocator(24).tick_values(low, high)
        styles = {"levels": levels, **(surface_kwargs or {})}
        surface = ax.contourf(self.x0, self.x1, self.predictions, **styles)
        if self.y is not None:
            white = {"s": 24, "edgecolors": "white", "linewidths": 0.6}
            scale = {"c": self.y, "norm": surface.norm, "cmap": surface.cmap}
            ax.scatter(*self.points.T, **_styled(scatter_kwargs, PathCollection, **white, **scale))
        label = "prediction" if self.target_name == "target" else f"predicted {self.target_name}"
        if self.y is not None:
            label += f"; {self.target_name} of a dot"
        ax.figure.colorbar(surface, ax=ax, label=label)
        ax.set(xlabel=self.feature_names[0], ylabel=self.feature_names[1], title="Predictions")


class IntervalDisplay(Display):
    """Predictive intervals against the true targets, in order of the predictions.

    It is recommended to use :meth:`from_estimator`.

    Parameters
    ----------
    intervals : ndarray of shape (n_queries, 2)
        Lower and upper end of each interval.
    predictions : ndarray of shape (n_queries,)
        The predictions.
    y_true : ndarray of shape (n_queries,)
        The true targets.
    confidence : float, default=0.9
        Share of the targets that the intervals should hold.
    target_name : str, default="target"
        What the target is called.

    Attributes
    ----------
    coverage_ : float
        Share of the targets that they do hold.
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn import IntervalDisplay
    >>> intervals = np.array([[0.0, 2.0], [1.0, 4.0]])
    >>> display = IntervalDisplay(intervals, np.array([1.0, 2.0]), np.array([1.5, 9.0])).plot()
    >>> display.coverage_
    0.5
    """

    def __init__(self, intervals, predictions, y_true, confidence=0.9, target_name="target"):
        self.intervals = intervals
        self.predictions = predictions
        self.y_true = y_true
        self.confidence = confidence
        self.target_name = target_name

    @classmethod
    def from_estimator(cls, estimator, X, y, *, confidence=0.9, ax=None, **styles):
        """Ask a fitted estimator for intervals, and draw them beside the true targets.

        Parameters
        ----------
        estimator : NONARegressor, SoftStepKNeighborsRegressor or a model around one
            Anything that :func:`unwrap` takes, fitted to one output.
        X : array-like of shape (n_queries, n_features)
            Queries.
        y : array-like of shape (n_queries,)
            Their true targets.
        confidence : float, default=0.9
            Share of the targets that the intervals should hold, with equal shares below and
            above.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : IntervalDisplay
            With the data of the picture as attributes.

        Raises
        ------
        ValueError
            If `confidence` is not between 0 and 1, there are several outputs, or the estimator
            is a classifier.
        """
        _check_numbers(estimator, "predict_proba")
        model = _unwrap_as_it_is(estimator)
        _check_confidence(confidence)
        predictions, outside = model.predict(X), (1 - confidence) / 2
        _check_one_output(predictions.shape)
        return cls.from_predictions(
            y,
            predictions,
            model.predict_quantiles(X, [outside, 1 - outside]),
            confidence=confidence,
            target_name=_target_name(model, y),
            ax=ax,
            **styles,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_pred,
        intervals,
        *,
        confidence=0.9,
        target_name=None,
        ax=None,
        **styles,
    ):
        """Draw intervals of any model beside the true targets.

        Parameters
        ----------
        y_true : array-like of shape (n_queries,)
            True targets.
        y_pred : array-like of shape (n_queries,)
            Predictions.
        intervals : array-like of shape (n_queries, 2)
            Lower and upper end of each interval.
        confidence : float, default=0.9
            Share of the targets that the intervals should hold.
        target_name : str, optional
            What the target is called; by default the name of `y_true`, if it is a Series.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : IntervalDisplay
            With the data of the picture as attributes.

        Raises
        ------
        ValueError
            If `confidence` is not between 0 and 1, or the shapes are others.
        """
        _check_confidence(confidence)
        names = target_names_of(y_true)
        if target_name is None:
            target_name = names[0] if names else "target"
        y_true, y_pred, intervals = map(np.asarray, (y_true, y_pred, intervals))
        _check_one_output(y_true.shape)
        if y_pred.shape != y_true.shape or intervals.shape != (*y_true.shape, 2):
            raise ValueError(
                f"y_pred and intervals must be of shapes {y_true.shape} and "
                f"{(*y_true.shape, 2)}, got {y_pred.shape} and {intervals.shape}"
            )
        return cls(intervals, y_pred, y_true, confidence, target_name).plot(ax, **styles)

    def _draw(self, ax, interval_kwargs=None, line_kwargs=None, scatter_kwargs=None):
        from matplotlib.collections import LineCollection, PathCollection
        from matplotlib.lines import Line2D

        order = np.argsort(self.predictions, kind="stable")
        (low, high), y = self.intervals[order].T, self.y_true[order]
        inside = (low <= y) & (y <= high)
        self.coverage_ = float(inside.mean())
        place = np.arange(len(order))
        width = np.clip(200 / len(order), 0.5, 4)
        thin = _styled(interval_kwargs, LineCollection, colors="0.8", linewidths=width)
        ax.vlines(place, low, high, **thin, label="interval")
        line = _styled(line_kwargs, Line2D, color="black")
        ax.plot(place, self.predictions[order], **line, label="prediction")
        for chosen, color, label in [
            (inside, "tab:blue", "target inside"),
            (~inside, "tab:orange", "target outside"),
        ]:
            dots = _styled(scatter_kwargs, PathCollection, s=16, color=color, zorder=2)
            ax.scatter(place[chosen], y[chosen], **dots, label=label)
        ax.set(
            title=f"{self.confidence:.0%} intervals: "
            f"{self.coverage_:.0%} of {len(order):,} targets inside",
            xlabel="query, in order of the predictions",
            ylabel=self.target_name,
        )
        ax.legend()


class HistoryDisplay(Display):
    """The losses of each epoch of each network, and the epoch whose weights were kept.

    It is recommended to use :meth:`from_estimator`.

    Parameters
    ----------
    history : list of dict
        One for each epoch: ``epoch``, ``train_loss``, and where there are several networks
        or validation rows, ``estimator`` and ``valid_loss``; ``kept`` of the one whose weights
        were kept.
    loss : str, default="squared error of standardised targets"
        What the loss is.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import HistoryDisplay, NONARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NONARegressor(n_estimators=2, max_iter=10, random_state=0).fit(X, y)
    >>> display = HistoryDisplay.from_estimator(reg)
    >>> len(display.history)
    20
    """

    def __init__(self, history, loss=SQUARED_ERROR):
        self.history = history
        self.loss = loss

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **styles):
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : NONARegressor, NONAClassifier, another of ours or a model around one
            Anything that :func:`unwrap` takes, fitted.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **styles : dict
            How it looks; see :meth:`plot`.

        Returns
        -------
        display : HistoryDisplay
            With the data of the picture as attributes.
        """
        fitted = unwrap(estimator).estimator
        loss = CLASS_LOSSES[fitted.loss] if is_classifier(fitted) else SQUARED_ERROR
        return cls(fitted.history_, loss).plot(ax, **styles)

    def _draw(self, ax, line_kwargs=None):
        from matplotlib.lines import Line2D
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

        networks = {}
        for epoch in self.history:
            networks.setdefault(epoch.get("estimator", 0), []).append(epoch)
        for i, epochs in enumerate(networks.values()):
            number = [epoch["epoch"] for epoch in epochs]
            losses = [epoch["train_loss"] for epoch in epochs]
            styles = _styled(line_kwargs, Line2D, color=f"C{i}")
            dashed = {"linestyle": "--", "linewidth": 1, **styles}
            ax.plot(number, losses, **dashed, label="training")
            if "valid_loss" in epochs[0]:
                losses = [epoch["valid_loss"] for epoch in epochs]
                ax.plot(number, losses, **styles, label="validation")
            for epoch, at, loss in zip(epochs, number, losses, strict=True):
                if "kept" in epoch:
                    ax.plot(at, loss, "o", color=styles["color"], label="kept")
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        subs = (1, 2, 3, 4, 5, 7) if high < WIDE * low else (1,)
        ax.yaxis.set_major_locator(LogLocator(subs=subs))
        ax.yaxis.set_major_formatter("{x:g}")  # 0.5 rather than 5 × 10⁻¹
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        ax.set(
            title=f"Training: {_colors(len(networks))}",
            xlabel="epoch",
            ylabel=self.loss,
        )
        handles, labels = ax.get_legend_handles_labels()
        n_styles = len(set(labels))
        legend = ax.legend(handles[:n_styles], labels[:n_styles])
        if len(networks) > 1:
            for handle in legend.legend_handles:
                handle.set_color("black")


def _colors(n_networks):
    return "1 network" if n_networks == 1 else f"{n_networks} networks, a colour each"
