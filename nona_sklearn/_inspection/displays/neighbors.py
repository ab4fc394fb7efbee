"""The neighbours behind one prediction."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from ..._utils.validation import check_integer
from ..unwrap import unwrap
from .base import Display, class_colors

MOST_NAMES = 40  # of rows that have room side by side
LONGEST_NAME = 40  # of a row, in characters
LARGEST_DOT, LEAST_DOT = 120, 6  # areas, in square points: the heaviest row's, a visible one's
UNDER_LABEL = 32  # points from the axes, of any height, to a legend under their label


@dataclass(eq=False, repr=False)
class NeighborsDisplay(Display):
    """The neighbours behind one prediction, the heaviest on top, beside the prediction.

    For numbers: a dot for each neighbour's target. A larger dot has more weight. A dotted line
    leads to an open dot, the target adjusted to the query. For classes: a bar for each
    neighbour, in the colour of its class. The frame is its weight, the filled part is what it
    adds to the probability of its class.

    Parameters
    ----------
    weights, targets, names : ndarray of shape (n_neighbors,)
        Share in the prediction, target and name of each neighbour.
    prediction, y_true : float or label
        The prediction, over all neighbours, and the true target, if it is known.
    adjusted_targets : ndarray of shape (n_neighbors,), optional
        The targets adjusted to the query; None: they are not adjusted.
    target_name : str, default="target"
        Name of the target.
    contributions : ndarray of shape (n_neighbors,), optional
        For classes: what each neighbour adds to the probability of its own class.
    probabilities : dict, optional
        For classes: the probability of each label. None: targets are numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import NeighborsDisplay, NONARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NONARegressor(random_state=0).fit(X[:400], y[:400])
    >>> len(NeighborsDisplay.from_estimator(reg, X[400:401], y[400]).weights)
    10
    """

    weights: np.ndarray
    targets: np.ndarray
    names: np.ndarray
    prediction: Any
    y_true: Any = None
    adjusted_targets: np.ndarray | None = None
    target_name: str = "target"
    contributions: np.ndarray | None = None
    probabilities: dict | None = None

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
        scatter_kwargs=None,
        bar_kwargs=None,
    ):
        """Find the neighbours of one query with a fitted estimator, and draw them.

        Parameters
        ----------
        estimator : fitted estimator or model around one, as :func:`unwrap` takes it
        X : array-like of shape (1, n_features)
            The query.
        y_true : float or label, optional
            Its true target; of classes, one that was in the `y` given to fit.
        output : int or str, optional
            The output to draw, by its number or its name in `y`; needed if there are several.
        n_neighbors : int, default=10
            Number of neighbours to draw; all, if the bank holds fewer.
        row_names : array-like of shape (n_samples,), optional
            Names of the rows given to fit, and of added ones if it is longer. Other rows have
            the names of :meth:`~nona_sklearn.NONARegressor.explain`: from the index of their
            DataFrame, or their numbers.
        ax, scatter_kwargs, bar_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : NeighborsDisplay

        Raises
        ------
        ValueError
            If `X` is not one row, `y_true` is no number or not a class given to fit, or there are
            several outputs and `output` is none of them.
        """
        model = unwrap(estimator).snapshot()
        predictions = model.predict(X)
        if len(predictions) != 1:
            raise ValueError(f"X must be one query, got predictions {predictions.shape}")
        number, name = _choose_output(model, predictions.size, output)
        bank = model.estimator.bank_
        n_neighbors = min(check_integer("n_neighbors", n_neighbors), len(bank))
        explanation = model.explanation(X, n_neighbors)
        names = explanation.names[0]
        if row_names is not None:
            given = np.asarray(row_names)
            if given.ndim != 1:
                raise ValueError(f"row_names must be a list of names, got {row_names!r:.100}")
            ids = bank.ids.cpu().numpy()[explanation.positions[0]]
            renamed = ids < len(given)
            names = names.astype(object)
            names[renamed] = given[ids[renamed]]
        if is_classifier(model.estimator):
            data = _class_data(model, X, explanation, number)
            _check_class(y_true, data["probabilities"])
        else:
            data = _number_data(explanation, number)
            _check_number(y_true)
        data |= {"names": names, "prediction": predictions.flat[number], "target_name": name}
        display = cls(explanation.weights[0, :-1], y_true=y_true, **data)
        return display.plot(ax, scatter_kwargs=scatter_kwargs, bar_kwargs=bar_kwargs)

    def plot(self, ax=None, *, scatter_kwargs=None, bar_kwargs=None):
        ax, dots, bars = self._start(ax, scatter_kwargs=scatter_kwargs, bar_kwargs=bar_kwargs)
        if self.probabilities is None:
            self._draw_numbers(ax, dots)
        else:
            self._draw_classes(ax, bars)
        n_rows, share = len(self.weights), self.weights.sum()
        named = np.arange(0, n_rows, -(-n_rows // MOST_NAMES))  # as many as have room
        ax.set_yticks(named, [self._row_label(i) for i in named], fontsize="small")
        ax.set_ylim(n_rows - 0.4, -0.6)  # the heaviest is on top
        ax.set_title(f"{n_rows} heaviest neighbours ({share:.0%} of the weight)")
        return self

    def _row_label(self, i):
        name = str(self.names[i])
        name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        return name if self.probabilities is not None else f"{name}   {self.weights[i]:.1%}"

    def _draw_classes(self, ax, bars):
        labels, place = list(self.probabilities), np.arange(len(self.weights))
        colors = dict(zip(labels, class_colors(len(labels)), strict=True))
        own = [colors[label] for label in self.targets]
        ax.barh(place, self.contributions, **{"color": own, **bars})
        ax.barh(place, self.weights, color="none", edgecolor="0.2")
        notes = [("predicted", self.prediction), ("true", self.y_true)]
        for label in self._legend_labels():
            texts = [f"{label}: {self.probabilities.get(label, 0):.0%}"]
            texts += [note for note, which in notes if label == which]
            ax.barh(0, 0, color=colors.get(label, "white"), label=", ".join(texts))
        ax.set(xlabel="weight (frame), contribution (filled)", ylabel="neighbour")
        ax.legend(title=self.target_name, fontsize="small", loc="lower right")

    def _legend_labels(self):
        """The classes that are drawn, predicted or true, the most probable first."""
        shown = dict.fromkeys([*self.targets, self.prediction])
        if self.y_true is not None:
            shown[self.y_true] = None
        return sorted(shown, key=lambda label: -self.probabilities.get(label, 0))

    def _draw_numbers(self, ax, dots):
        from matplotlib.transforms import ScaledTranslation

        place = np.arange(len(self.weights))
        sizes = np.maximum(LARGEST_DOT * self.weights / self.weights.max(), LEAST_DOT)
        styles = {"s": sizes, "color": "tab:blue", **dots}
        drawn = ax.scatter(self.targets, place, **styles, label="target of a neighbour")
        if self.adjusted_targets is not None:
            color = drawn.get_facecolor()
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


def _choose_output(model, n_outputs, output):
    """Number and name of the output to draw, given by either of them."""
    names = model.target_names_ or ()
    choices = [*range(n_outputs), *names]
    if output is None and n_outputs == 1:
        output = 0
    if output not in choices:
        raise ValueError(f"output must be one of {choices}, got {output!r}")
    number = names.index(output) if output in names else output
    plain = "target" if n_outputs == 1 else f"target_{number}"
    return number, names[number] if names else plain


def _number_data(explanation, number):
    """What is drawn of neighbours with numbers as targets."""
    targets = explanation.targets[0, :-1, number]
    adjusted = explanation.adjusted[0, :-1, number]
    moved = not np.array_equal(targets, adjusted)
    return {"targets": targets, "adjusted_targets": adjusted if moved else None}


def _class_data(model, X, explanation, number):
    """What is drawn of neighbours with classes as targets."""
    targets = model.estimator.targets_
    classes, columns = targets.classes[number], targets.places[number]
    codes = explanation.targets[0, :-1, columns].argmax(axis=1)
    probabilities = model.predict_proba(X)
    own = probabilities[number] if targets.several else probabilities
    return {
        "targets": classes[codes],
        "contributions": explanation.contributions[0, :-1, columns][np.arange(len(codes)), codes],
        "probabilities": dict(zip(classes.tolist(), own[0], strict=True)),
    }


def _check_number(y_true):
    """Refuse a true target that is not one number."""
    given = np.asarray(0 if y_true is None else y_true)
    if given.size != 1 or given.dtype.kind not in "biuf":
        raise ValueError(f"y_true must be a number, got {y_true!r:.100}")


def _check_class(label, classes):
    """Refuse a label that is no class given to fit, or several labels."""
    if label is not None and (np.ndim(label) or label not in classes):
        raise ValueError(f"y_true must be one of the classes of fit, got {label!r}")
