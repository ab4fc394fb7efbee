"""Display of the neighbours behind one prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..._utils.validation import check_integer
from ...pipelines import unwrap
from ..answers import OutputAnswers
from ..page import shortened
from .base import Display, check_one_of, class_colors, legend_beside

MOST_ROWS = 64  # drawn rows if `n_neighbors` is not given
MOST_NAMES = 40  # names that have room
LONGEST_NAME = 40  # characters in the name of a row
LEAST_SHOWN = 0.01  # least share of the longest bar with which an added class is in the legend
LARGEST_DOT, LEAST_DOT = 120, 6  # areas of the heaviest row's and of the smallest dot, in points²
ROUNDING = 1e-5  # of weights in float32 that sum to 1
UNDER_LABEL = 32  # points from the axes, of any height, to a legend under their label


@dataclass(eq=False, repr=False)
class NeighborsDisplay(Display):
    """The neighbours behind one prediction, in descending order of weight.

    For numbers, a dot shows the target of a neighbour. A larger dot has more weight. A dotted line
    leads to an open dot, the target adjusted to the query. The neighbour's contribution to the
    prediction, weight times adjusted target, is on the right. For classes, a bar shows the weight
    of a neighbour, which is added to the probability of its class, in the colour of the class. A
    last bar shows the amounts that the network adds to probabilities, to the right, and
    subtracts, to the left.

    Parameters
    ----------
    weights, targets, names : ndarray of shape (n_neighbors,)
        Shares in the prediction, targets and names of the neighbours.
    prediction, y_true : float or label
        The prediction, over all neighbours, and the true target, if it is known.
    adjusted_targets : ndarray of shape (n_neighbors,), optional
        The targets adjusted to the query. None: targets are not adjusted.
    target_name : str, default="target"
        Name of the target.
    probabilities : dict, optional
        For classes: the probabilities by label. None: targets are numbers.
    added : dict, optional
        For classes: the amounts that the network, and a trend beside it, add to probabilities. The
        keys are the names of the lines in :meth:`~nona_sklearn.NONAClassifier.explain`, and the
        values are dicts by label. None: nothing is added.

    Examples
    --------
    >>> from nona_sklearn import NeighborsDisplay
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> display = NeighborsDisplay.from_estimator(knn.fit(X, y), [[84]], y_true=420)
    >>> display.names.tolist(), display.targets.tolist()
    ([2, 3], [400.0, 450.0])

    A stored row is left out of its own prediction, which is here from rows 1 and 2:

    >>> NeighborsDisplay.from_estimator(knn, row=3).names.tolist()
    [1, 2]
    """

    weights: np.ndarray
    targets: np.ndarray
    names: np.ndarray
    prediction: Any
    y_true: Any = None
    adjusted_targets: np.ndarray | None = None
    target_name: str = "target"
    probabilities: dict | None = None
    added: dict[str, dict] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y_true: Any = None,
        *,
        row: Any = None,
        output: Any = None,
        n_neighbors: int | None = None,
        row_names: Any = None,
        ax: Any = None,
        scatter_kwargs: dict[str, Any] | None = None,
        bar_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Find the neighbours of a query, or of a training row, and draw them.

        Parameters
        ----------
        estimator : fitted estimator or model around one, as :func:`unwrap` takes it
        X : array-like of shape (1, n_features), optional
            The query. A row of the bank is its own nearest neighbour, and leads to a warning: use
            `row` instead.
        y_true : float or label, optional
            The true target of the query. For classes, it must be a label of the `y` given to fit.
        row : int or label, optional
            Instead of `X`: a row of the bank, by its name in the index of its DataFrame, or by its
            id if rows have no names. The prediction leaves the row out, and its target is drawn.
        output : int or str, optional
            The output to draw, by its number or its name in `y`. It is needed if there are
            several.
        n_neighbors : int, optional
            Largest number of neighbours to draw. None: all neighbours with weight, but at most 64,
            with the largest weights.
        row_names : array-like of shape (n_samples,), optional
            Names of the rows given to fit, followed by names of added rows if it is longer. The
            remaining rows have the names of :meth:`~nona_sklearn.NONARegressor.explain`, from the
            index of their DataFrame, or their numbers.
        ax, scatter_kwargs, bar_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : NeighborsDisplay

        Raises
        ------
        ValueError
            If `X` is not one row, `row` is not the name of one row, both or neither are given,
            `y_true` is no number or no class given to fit, or is given with `row`, or `output` is
            not an output of several.

        Examples
        --------
        >>> from nona_sklearn import NeighborsDisplay
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> display = NeighborsDisplay.from_estimator(knn.fit(X, y), [[84]], y_true=420)
        >>> display.names.tolist(), display.weights.round(2)
        ([2, 3], array([0.5, 0.5]))
        """
        model = unwrap(estimator).snapshot()
        check_one_of(X, y_true, row)
        X = model.embed(X) if row is None else model.stored_row(row)
        answers = OutputAnswers.of(model, output)
        predictions = answers.predict(X)
        if len(predictions) != 1:
            raise ValueError(f"X must be one query, got predictions {predictions.shape}")
        bank = answers.bank
        most = MOST_ROWS if n_neighbors is None else check_integer("n_neighbors", n_neighbors)
        explanation = answers.explanation(X, min(most, len(bank) - (row is not None)))
        lines = explanation.of_rows
        if not lines.any():
            raise ValueError(
                "the query has no neighbors: no row of the bank is earlier, or eligible"
            )
        if row is not None:
            (y_true,) = answers.targets[bank.positions(X.ids.cpu().numpy())]
        answers.check_target(y_true)
        if answers.is_of_classes:
            data = _class_data(answers, X, explanation)
        else:
            targets = explanation.targets[lines, 0]
            adjusted = explanation.adjusted[lines, 0]
            is_moved = not np.array_equal(targets, adjusted)
            data = {"targets": targets, "adjusted_targets": adjusted if is_moved else None}
        display = cls(
            explanation.weights[lines],
            names=_names_of(bank, explanation.positions[lines], row_names),
            prediction=predictions[0],
            y_true=y_true,
            target_name=answers.target_name,
            **data,
        )
        return display.plot(ax, scatter_kwargs=scatter_kwargs, bar_kwargs=bar_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        scatter_kwargs: dict[str, Any] | None = None,
        bar_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        ax, dots, bars = self._start(ax, scatter_kwargs=scatter_kwargs, bar_kwargs=bar_kwargs)
        if self.probabilities is None:
            self._draw_numbers(ax, dots)
        else:
            self._draw_classes(ax, bars)
        n_rows = len(self.weights)
        named = np.arange(0, n_rows, -(-n_rows // MOST_NAMES))  # up to MOST_NAMES
        labels = [shortened(str(self.names[i]), LONGEST_NAME) for i in named]
        if self.probabilities is None:
            labels = [f"{labels[j]}   {self.weights[i]:.1%}" for j, i in enumerate(named)]
        ax.set_yticks(named, labels, fontsize="small")
        ax.set_ylim(n_rows - 0.4, -0.6)  # the heaviest row is on top
        if self.added:
            below = range(n_rows, n_rows + len(self.added))
            labels = [*ax.get_yticklabels(), *self.added]
            ax.set_yticks([*named, *below], labels, fontsize="small")
            ax.set_ylim(below[-1] + 0.6, -0.6)
        if self.probabilities is None:
            self._write_contributions(ax, named)
        share = self.weights.sum()
        several = f"{n_rows} neighbours ({share:.0%} of the weight)"
        ax.set_title(several if share <= 1 - ROUNDING else f"all {n_rows} neighbours")
        return self

    def _write_contributions(self, ax, named):
        """Write the contributions of rows, weight times adjusted target, on the right."""
        adjusted = self.targets if self.adjusted_targets is None else self.adjusted_targets
        contributions = self.weights * adjusted
        largest = np.abs(contributions).max()  # with at least three digits
        decimals = max(0, 2 - int(np.floor(np.log10(largest)))) if largest else 0
        texts = [f"{c:.{decimals}f}" for c in (*contributions[named], contributions.sum())]
        right = ax.secondary_yaxis("right")
        right.set_yticks(named, texts[:-1], fontsize="small")
        right.set_ylabel(f"contribution, {texts[-1]} in all")

    def _draw_classes(self, ax, bars):
        labels = list(self.probabilities)
        colors = dict(zip(labels, class_colors(len(labels)), strict=True))
        styles = {"color": [colors[label] for label in self.targets], **bars}
        ax.barh(np.arange(len(self.weights)), self.weights, **styles)
        if self.added:
            self._draw_added(ax, [*colors.values()], bars)
        notes = [("predicted", self.prediction), ("true", self.y_true)]
        drawn = self._legend_labels()
        for label in drawn:
            texts = [f"{label}: {self.probabilities.get(label, 0):.0%}"]
            texts += [note for note, which in notes if label == which]
            ax.barh(0, 0, color=colors.get(label, "white"), label=", ".join(texts))
        beside = " and ".join(self.added or ["network"])
        verb = "add" if " and " in beside else "adds"
        ax.set(xlabel=f"weight, or what the {beside} {verb}", ylabel="neighbour")
        legend_beside(ax, len(drawn), self.target_name)  # inside, it would cover bars

    def _draw_added(self, ax, colors, bars):
        """Draw the bars of classes below the neighbours. Losses are to the left of 0."""
        for line, added in enumerate(self.added.values(), len(self.weights)):
            for sign in (1, -1):
                lengths = np.maximum(sign * np.array([*added.values()]), 0)
                starts = np.where(lengths > 0, lengths.cumsum() - lengths, 0)
                styles = {"left": sign * starts, "color": colors, **bars}
                ax.barh(np.full(len(colors), line), sign * lengths, **styles)
        ax.axvline(0, color="0.2", linewidth=0.8)

    def _legend_labels(self):
        """Return the drawn, predicted and true classes, the most probable first."""
        shown = dict.fromkeys([*self.targets, self.prediction])
        added = [pair for amounts in (self.added or {}).values() for pair in amounts.items()]
        longest = max(self.weights.max(), *(abs(amount) for _, amount in added), 0)
        shown |= dict.fromkeys(c for c, amount in added if abs(amount) > LEAST_SHOWN * longest)
        if self.y_true is not None:
            shown[self.y_true] = None
        return sorted(shown, key=lambda label: -self.probabilities.get(label, 0))

    def _draw_numbers(self, ax, dots):
        from matplotlib.transforms import ScaledTranslation

        lines = np.arange(len(self.weights))
        sizes = np.maximum(LARGEST_DOT * self.weights / self.weights.max(), LEAST_DOT)
        styles = {"s": sizes, "color": "tab:blue", **dots}
        drawn = ax.scatter(self.targets, lines, **styles, label="target of a neighbour")
        if self.adjusted_targets is not None:
            color = drawn.get_facecolor()
            ax.hlines(lines, self.targets, self.adjusted_targets, color, linestyle=":")
            rings = {**styles, "facecolors": "none", "edgecolors": color, "color": None}
            ax.scatter(self.adjusted_targets, lines, **rings, label="adjusted to the query")
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


def _names_of(bank, positions, row_names):
    """Return names of rows of the bank, (k,), from `row_names` if a row's id has one."""
    names = bank.names_of(positions)
    if row_names is None:
        return names
    given = np.asarray(row_names)
    if given.ndim != 1:
        raise ValueError(f"row_names must be a list of names, got {row_names!r:.100}")
    ids = bank.ids.cpu().numpy()[positions]
    has_name = ids < len(given)
    names = names.astype(object)
    names[has_name] = given[ids[has_name]]
    return names


def _class_data(answers, X, explanation):
    """Return the fields of a display for classes."""
    classes, beside = answers.classes, explanation.weights == 0
    labels = classes.tolist()
    lines = zip(explanation.names[beside], explanation.contributions[beside], strict=True)
    return {
        "targets": classes[explanation.targets[explanation.of_rows].argmax(axis=1)],
        "probabilities": dict(zip(labels, answers.predict_proba(X)[0], strict=True)),
        "added": {
            str(name): dict(zip(labels, of_classes, strict=True)) for name, of_classes in lines
        },
    }
