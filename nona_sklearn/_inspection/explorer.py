"""An interactive map of the learned space, with the report of every prediction.

:func:`collect_map_data` computes what the page shows, :class:`Explorer` writes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state, column_or_1d

from .._utils.tables import warn_of_other_order
from .._utils.threads import cached_property
from .._utils.validation import (
    check_fraction,
    check_integer,
    check_lengths,
    import_extra,
    is_missing,
    object_array,
)
from ..explanation import ComparedColumn, Explanation, largest_differences
from ..pipelines import unwrap
from .answers import OutputAnswers
from .displays.learned import EffectDisplay, by_value
from .page import (
    DIGITS,
    IMAGES,
    LEAST_DECIMALS,
    LEAST_SHARE,
    LONG,
    LONGEST_BAR,
    MORE,
    MOST_COLUMNS,
    MOST_DECIMALS,
    SEPARATED,
    SHAPE,
    WORDS,
    Appearance,
    Page,
    Unit,
    footer,
    place,
    render,
    share,
    show,
    source,
    whole_page,
)

MOST_MAP_COLUMNS = 30  # a page shows the columns in which rows differ most often
MOST_CHARTS = 6  # of effects
ROUNDING = 1e-6  # of predictions, relative to their size: embeddings are float32
TINY = np.finfo(float).tiny
LEAST_DISTANCE = 3.0  # of a surprising number, in standard deviations
MOST_BY_CHANCE = 0.1  # share of the listed numbers that may be listed by chance
LEAST_ODDS = 100.0  # of the predicted label against a surprising label
MIDDLE, UPPER = 0.5, 0.9  # quantiles of usual distances, which few errors hardly change


@dataclass(frozen=True)
class MapData:
    """Rows on a map, (n,): stored rows, followed by queries."""

    targets: np.ndarray  # (n,); NaN or None where a target is not known
    n_stored: int
    #: Positions of neighbours are on the map. A stored row is left out of its own prediction.
    predictions: NeighborPredictions
    xy: np.ndarray  # (n, 2), on the map
    groups_of_equals: list[np.ndarray]  # groups of rows that are equal in the learned space
    columns: dict[str, np.ndarray]  # (n,), the shown features of the rows
    #: (n, n_columns), the order of the columns in a row's table, the most important first.
    column_order: np.ndarray
    #: Effects of columns on predictions of numbers that have an additive part, or None.
    effects: Effects | None
    incomplete: np.ndarray  # (n,), whether a row has more gaps than values
    has_pictures: bool  # whether the columns are data URLs of pictures
    target_name: str
    classes: np.ndarray | None  # labels of fit, then new labels; None: targets are numbers

    @property
    def names(self) -> np.ndarray:
        """Return the names of the rows, (n,)."""
        return self.predictions.names

    @property
    def first_in_order(self) -> int:
        """Return the first row of the slider: the first query, or 0 without queries."""
        return self.n_stored if self.n_stored < len(self.names) else 0

    @cached_property
    def unit(self) -> Unit:
        """Return the unit of targets and of results for all rows, by the median interval."""
        if self.classes is not None:
            return Unit()
        return Unit.of(self.targets, float(np.nanmedian(self._widths)))

    @property
    def decimals(self) -> np.ndarray:
        """Return the decimals (n,) of a row's computed numbers, as in its report."""
        largest = np.nanmax(abs(self.targets))
        return np.array([Unit.of([largest], width).place for width in self._widths])

    @property
    def _widths(self) -> np.ndarray:
        """Return the widths (n,) of the intervals."""
        return np.diff(self.predictions.details, axis=1)[:, 0]

    @property
    def surprises(self) -> Surprises:
        """Return the rows whose target contradicts the prediction more than chance explains."""
        distances = self.predictions.surprises
        if self.classes is None:
            surprises = surprising_numbers(distances)
        else:
            surprises = surprising_labels(distances, self.predictions.details)
        return surprises.without(self.incomplete)


def collect_map_data(
    answers: OutputAnswers,
    queries: Any,
    query_targets: np.ndarray,
    appearance: Appearance,
    *,
    n_neighbors: int,
    confidence: float,
    max_rows: int,
    reducer: Any = None,
    random_state: Any = None,
) -> MapData:
    """Return the map of queries and stored rows, which are left out of their own predictions."""
    bank, columns = answers.bank, appearance.columns
    random_state = check_random_state(random_state)

    def predict(queries: Any, targets: np.ndarray, compared: Any) -> NeighborPredictions:
        options = n_neighbors, confidence
        return NeighborPredictions.of(answers, queries, targets, [*compared], *options)

    def predict_stored(rows: np.ndarray) -> NeighborPredictions:
        compared = (column.among_rows(rows) for column in columns)
        return predict(answers.model.stored_rows(rows), answers.targets[rows], compared)

    of_queries = [] if queries is None else [predict(queries, query_targets, columns)]
    n_drawn = max_rows - len(query_targets)
    stored = _choose_rows(_rows_behind(of_queries), len(bank), n_drawn, random_state)
    of_stored = [predict_stored(stored)]
    # The rows behind the drawn rows are added. Rows behind the added rows may be missing.
    if len(behind := np.setdiff1d(_rows_behind(of_stored), stored)):
        of_stored.append(predict_stored(behind))
        stored = np.concatenate([stored, behind])
    predictions = NeighborPredictions.joined([*of_stored, *of_queries]).among(stored)

    parts = _parts_by_column(answers, columns, stored, queries)
    effects = None
    if parts is not None:
        shown = [(column.name, column.rows[stored]) for column in columns]
        effects = Effects.of(shown, parts[: len(stored)], answers.target_name)
    n_differing = np.bincount(predictions.differs.ravel(), minlength=len(columns) + 1)[:-1]
    chosen = np.sort(np.argsort(-n_differing, kind="stable")[:MOST_MAP_COLUMNS])
    predictions = predictions.of_columns(chosen, len(columns))
    shown_columns = appearance.shown(stored, chosen)
    amounts = None if parts is None else parts[:, chosen]

    sets = [answers.model.stored_rows(stored), *([] if queries is None else [queries])]
    embeddings = np.concatenate([answers.embeddings(rows) for rows in sets])
    reducer = PCA(min(2, *embeddings.shape)) if reducer is None else reducer
    xy = np.asarray(reducer.fit_transform(embeddings), dtype=float)[:, :2]
    targets = np.concatenate([answers.targets[stored], query_targets])
    classes = _classes(answers, targets)
    groups = _groups_of_equals(embeddings)
    return MapData(
        targets=targets,
        n_stored=len(stored),
        predictions=predictions,
        xy=np.pad(xy, [(0, 0), (0, 2 - xy.shape[1])]),  # of one column: on a line
        groups_of_equals=sorted(groups, key=lambda rows: -_disagreement(targets[rows], classes)),
        columns=shown_columns,
        column_order=predictions.order_of_columns(len(shown_columns), amounts),
        effects=effects,
        incomplete=appearance.incomplete(stored, len(targets)),
        has_pictures=appearance.kind == IMAGES,
        target_name=answers.target_name,
        classes=classes,
    )


# -- predictions and the rows behind them ------------------------------------------------------


@dataclass(frozen=True)
class NeighborPredictions:
    """Predictions of queries, (q,), and their k rows with the largest weights, (q, k)."""

    names: np.ndarray  # (q,), of the queries
    predictions: np.ndarray  # (q,), labels, or numbers that are NaN without neighbours
    details: np.ndarray  # (q, d), the ends of the interval, or the probabilities of classes
    #: (q,), prediction minus target or, for classes, one minus the probability of the true class;
    #: NaN where the target is not known.
    errors: np.ndarray
    #: (q,), the target's distance from the prediction in standard deviations, ``abs(y - mean) /
    #: std``. For classes, the odds of the predicted class against the true class. NaN where the
    #: target is not known.
    surprises: np.ndarray
    positions: np.ndarray  # (q, k), positions of rows in the bank by descending weight; -1: no row
    weights: np.ndarray  # (q, k), 0 without a row
    #: (q, k), adjusted targets of the rows; NaN without a row.
    adjusted: np.ndarray
    #: (q, 4), weight, target, adjusted target and contribution of the remaining rows together;
    #: NaN where a value is not known, or no remaining row has weight.
    remainder: np.ndarray
    #: (q, k, 3), the columns in which a row differs most; `n_columns` means no column.
    differs: np.ndarray

    @classmethod
    def of(
        cls,
        answers: OutputAnswers,
        queries: Any,
        targets: np.ndarray,
        columns: list[ComparedColumn],
        n_neighbors: int,
        confidence: float,
    ) -> NeighborPredictions:
        """Predict queries and list the rows behind the predictions."""
        n_rows = len(answers.bank) - (queries.ids is not None)
        explanation = answers.explanation(queries, min(n_neighbors, n_rows))
        if answers.is_of_classes:
            predicted = _predict_classes(answers, queries, targets)
        else:
            predicted = _predict_numbers(answers, queries, targets, explanation, confidence)
        lines = explanation.of_single_rows()
        rank = np.arange(len(lines.of_query)) - lines.first_lines[lines.of_query]
        shape = len(queries), n_neighbors

        def by_rank(values: np.ndarray, blank: float) -> np.ndarray:
            """Return values of lines (m, ...) by query and rank, (q, k, ...)."""
            ranked = np.full((*shape, *values.shape[1:]), blank, dtype=values.dtype)
            ranked[lines.of_query, rank] = values
            return ranked

        differs = np.empty((len(rank), 0), dtype=int)
        if columns:
            differs = largest_differences(lines, columns)
        return cls(
            explanation.queries.astype(object),
            *predicted,
            positions=by_rank(lines.positions, -1),
            weights=by_rank(lines.weights, 0),
            adjusted=by_rank(lines.adjusted[:, 0], np.nan),
            remainder=_remainder(explanation),
            differs=by_rank(differs, len(columns)),
        )

    @classmethod
    def joined(cls, parts: list[NeighborPredictions]) -> NeighborPredictions:
        """Concatenate the predictions of several lots of queries."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def among(self, stored: np.ndarray) -> NeighborPredictions:
        """Return the predictions with positions in `stored` (m,) instead of the bank.

        A row that is not in `stored` becomes a part of the remainder.
        """
        order = np.argsort(stored)
        nearest = np.searchsorted(stored, self.positions, sorter=order).clip(max=len(stored) - 1)
        is_stored = stored[order[nearest]] == self.positions
        positions = np.where(is_stored, order[nearest], -1)
        weights = np.where(is_stored, self.weights, 0)
        left_out = (~is_stored & (self.weights > 0)).any(axis=1)
        remainder = self.remainder.copy()
        remainder[left_out] = np.nan
        remainder[left_out, 0] = 1 - weights[left_out].sum(axis=1)
        return replace(self, positions=positions, weights=weights, remainder=remainder)

    def of_columns(self, chosen: np.ndarray, n_columns: int) -> NeighborPredictions:
        """Return the predictions with chosen columns only. `len(chosen)` means no column."""
        renumbered = np.full(n_columns + 1, len(chosen))
        renumbered[chosen] = np.arange(len(chosen))
        return replace(self, differs=renumbered[self.differs])

    def order_of_columns(self, n_columns: int, parts: np.ndarray | None) -> np.ndarray:
        """Return the columns (q, n_columns) by descending importance, as in a report.

        The importance is the differences of `parts` (q, n_columns), which columns add to the
        predictions. Without parts, it is the number of rows that differ most in the column.
        """
        if parts is None:
            matter = np.zeros((len(self.differs), n_columns + 1))
            for columns in np.moveaxis(self.differs, 2, 0):
                np.add.at(matter, (np.arange(len(matter))[:, None], columns), 1)
            matter = matter[:, :-1]  # the last column counts rows that differ in no column
        else:
            moves = abs(parts[:, None] - parts[self.positions])
            matter = (moves * (self.positions >= 0)[..., None]).sum(axis=1)
        return np.argsort(-matter, axis=1, kind="stable")


def _predict_numbers(
    answers: OutputAnswers,
    queries: Any,
    targets: np.ndarray,
    explanation: Explanation,
    confidence: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions, ends of intervals, errors and surprises of numbers."""
    predictions = explanation.totals(explanation.contributions)[:, 0]
    predictions[np.setdiff1d(np.arange(len(queries)), explanation.of_query)] = np.nan
    ends = answers.predict_interval(queries, confidence)
    spread = np.ravel(answers.model.predict(queries, return_std=True)[1])
    spread = np.maximum(spread, ROUNDING * abs(predictions))
    errors = predictions - targets
    return predictions, ends, errors, abs(errors) / np.maximum(spread, TINY)


def _predict_classes(
    answers: OutputAnswers, queries: Any, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions, probabilities, errors and surprises of classes."""
    probabilities = answers.predict_proba(queries)
    is_true = targets[:, None] == answers.classes  # all False if the target is not known
    of_target = np.where(is_true, probabilities, 0).sum(axis=1)
    of_target[[target is None for target in targets]] = np.nan
    odds = probabilities.max(axis=1) / np.maximum(of_target, TINY)
    return answers.predict(queries), probabilities, 1 - of_target, odds


def _remainder(explanation: Explanation) -> np.ndarray:
    """Return weight, target, adjusted target and contribution of remaining rows, (q, 4)."""
    lines = ~explanation.of_rows & (explanation.weights > 0)
    columns = explanation.targets, explanation.adjusted, explanation.contributions
    values = np.stack([explanation.weights, *(column[:, 0] for column in columns)], axis=1)
    remainder = np.full((len(explanation.queries), values.shape[1]), np.nan)
    remainder[explanation.of_query[lines]] = values[lines]
    return remainder


def _rows_behind(predictions: list[NeighborPredictions]) -> np.ndarray:
    """Return the positions of the rows behind the predictions."""
    positions = [part.positions[part.weights > 0] for part in predictions]
    return np.unique(np.concatenate([np.arange(0), *positions]))


def _choose_rows(
    first: np.ndarray, n_rows: int, n_chosen: int, random_state: np.random.RandomState
) -> np.ndarray:
    """Return positions of all rows or, if these are too many, `first` and a random sample."""
    if n_rows <= n_chosen:
        return np.arange(n_rows)
    choices = np.setdiff1d(np.arange(n_rows), first)
    n_random = min(max(0, n_chosen - len(first)), len(choices))
    return np.sort(np.concatenate([first, random_state.choice(choices, n_random, replace=False)]))


def _classes(answers: OutputAnswers, targets: np.ndarray) -> np.ndarray | None:
    """Return the labels of fit, then the targets' new labels. Return None for numbers."""
    if not answers.is_of_classes:
        return None
    labels = {*answers.classes, None}
    new_labels = [label for label in dict.fromkeys(targets) if label not in labels]
    return object_array([*answers.classes, *new_labels])


def _groups_of_equals(embeddings: np.ndarray) -> list[np.ndarray]:
    """Return groups of rows with equal embeddings."""
    _, group, sizes = np.unique(embeddings, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    rows = np.flatnonzero(sizes[group] > 1)
    rows = rows[np.argsort(group[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(group[rows])) + 1
    return np.split(rows, starts) if len(rows) else []


def _disagreement(targets: np.ndarray, classes: np.ndarray | None) -> float:
    """Return the range of the targets of equal rows, or their number of labels minus one."""
    if classes is not None:
        return len({*targets} - {None}) - 1
    targets = targets[~np.isnan(targets)]
    return float(np.ptp(targets)) if len(targets) else 0.0


# -- effects of columns ------------------------------------------------------------------------


@dataclass(frozen=True)
class Effects:
    """The effects of columns on the predictions of rows."""

    #: The columns with the largest mean absolute effects, the largest first.
    displays: list[EffectDisplay]
    n_columns: int
    #: The variance of the interaction of columns, as a share of the predictions' variance.
    together: float

    @classmethod
    def of(
        cls, columns: list[tuple[str, np.ndarray]], parts: np.ndarray, target_name: str
    ) -> Effects | None:
        """Return effects from named columns and parts of rows, or None if all effects are 0."""
        of_columns, together = parts[:, :-1], parts[:, -1]
        sizes = abs(of_columns).mean(axis=0)
        order = np.argsort(-sizes, kind="stable")[:MOST_CHARTS]
        displays = [
            EffectDisplay(*by_value(columns[j][1], of_columns[:, j]), columns[j][0], target_name)
            for j in order[sizes[order] > 0]
        ]
        share = together.var() / (parts.sum(axis=1).var() or 1.0)
        return cls(displays, of_columns.shape[1], float(share)) if displays else None


def _parts_by_column(
    answers: OutputAnswers,
    features: Sequence[ComparedColumn],
    stored: np.ndarray,
    queries: Any,
) -> np.ndarray | None:
    """Return the effects of columns and, last, of their interaction on predictions of numbers.

    The shape is (n_stored + n_queries, n_columns + 1). Return None without an additive part, or if
    the features are not the model's columns.
    """
    if answers.is_of_classes or not answers.model.has_additive_part:
        return None
    estimator, names = answers.model.estimator, [feature.name for feature in features]
    fitted = [*getattr(estimator, "feature_names_in_", names)]
    is_same = len(names) == estimator.n_features_in_ and fitted == names
    if not is_same or answers.model.steps or answers.model.transformers:
        return None
    rows = [answers.model.stored_rows(stored)]
    rows += [] if queries is None else [queries]
    tables = [answers.model.attribute(X, of="predictions") for X in rows]
    arrays = [np.stack([*map(np.asarray, dict(table).values())][2:-1], axis=1) for table in tables]
    return np.concatenate(arrays).astype(float)  # after the mean, and before the prediction


# -- surprises ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surprises:
    """Rows whose targets contradict their predictions, the most surprising first."""

    rows: np.ndarray  # (m,)
    #: The expected number of rows without errors in targets. For labels, it assumes calibrated
    #: probabilities, which include the frequency of errors.
    by_chance: float

    def without(self, left_out: np.ndarray) -> Surprises:
        """Return the surprises without the rows of a mask, bool (n,)."""
        return Surprises(self.rows[~left_out[self.rows]], self.by_chance)


def surprising_numbers(distances: np.ndarray) -> Surprises:
    """Choose rows by their distances ``abs(y - mean) / std``, (n,), NaN where not known.

    Chances follow a Weibull distribution through the median and the upper quantile of the
    distances, and Benjamini and Hochberg's procedure limits the number of rows.
    """
    order = _descending(distances)
    ranked = distances[order]
    middle, upper = np.quantile(ranked, [MIDDLE, UPPER]) if len(order) else (0.0, 0.0)
    steepness = np.log(upper / middle) if middle > 0 else 0.0
    if steepness <= 0:  # most predictions are exact: no tail is known
        return Surprises(order[ranked > LEAST_DISTANCE], 0.0)
    exponents = np.log(-np.log1p([-MIDDLE, -UPPER]))
    power = (exponents[1] - exponents[0]) / steepness
    with np.errstate(over="ignore"):  # an overflow gives a chance of 0
        chances = np.exp(np.log1p(-MIDDLE) * (ranked / middle) ** power)
    ranks = np.arange(1, len(order) + 1)
    allowed = np.flatnonzero(chances * len(order) <= MOST_BY_CHANCE * ranks)
    n_allowed = allowed[-1] + 1 if len(allowed) else 0
    n_listed = min(n_allowed, (ranked > LEAST_DISTANCE).sum())
    expected = len(order) * chances[n_listed - 1] if n_listed else 0.0
    return Surprises(order[:n_listed], float(expected))


def surprising_labels(odds: np.ndarray, probabilities: np.ndarray) -> Surprises:
    """Choose rows by the odds (n,) of the predicted class against the target's class.

    Odds are NaN where the target is not known. `probabilities` are (n, n_classes).
    """
    order = _descending(odds)
    probabilities = probabilities[np.sort(order)]
    is_unlikely = probabilities * LEAST_ODDS <= probabilities.max(axis=1, keepdims=True)
    return Surprises(order[odds[order] >= LEAST_ODDS], float(probabilities[is_unlikely].sum()))


def _descending(values: np.ndarray) -> np.ndarray:
    """Return the positions of the values (n,) that are not NaN, the largest first."""
    order = np.flatnonzero(~np.isnan(values))
    return order[np.argsort(-values[order], kind="stable")]


HEIGHT = 760  # pixels of the frame in a notebook
MAP = "map"  # the element in which Bokeh draws
MOST_CLASSES, NEGLIGIBLE = 3, 0.005  # shown classes of a prediction, above this probability
UNKNOWN = "#8a8f98"  # colour of rows without a value
LINK = "#d6006c"  # colour of the lines to the rows behind a prediction
FEW, LARGE, SMALL = 5_000, 7, 4  # dots are LARGE up to FEW rows, and SMALL for more rows
QUERY_LINE = "#111111"  # outline of queries
IMPROBABILITY = "1 \N{MINUS SIGN} probability of the label"  # the error of a class
MOST_SHOWN = 6  # features of a group of equal rows
MOST_LISTED = 50  # rows to check, and groups of equal rows
MOST_EQUAL = 20  # rows of a group in the list
#: The format of texts and numbers, and the number of shown columns. A report has the same.
LIMITS = {
    "digits": DIGITS,
    "leastDecimals": LEAST_DECIMALS,
    "mostDecimals": MOST_DECIMALS,
    "separated": SEPARATED,
    "leastShare": LEAST_SHARE,
    "long": LONG,
    "columns": MOST_COLUMNS,
    "more": MORE,
    "bar": LONGEST_BAR,
}
REMAINDER = "othersWeight", "othersTarget", "othersAdjusted", "othersContribution"
RING: dict[str, Any] = {"fill_color": None, "line_color": LINK}
FRAME: dict[str, Any] = {
    "toolbar_location": "above",
    "match_aspect": True,  # both axes have the same scale
    "output_backend": "webgl",
    "sizing_mode": "stretch_both",
    "background_fill_alpha": 0,
    "border_fill_alpha": 0,
    "outline_line_color": None,
}
MOST_BARS = 8  # of a column of categories: the lowest and the highest effects
MARGIN = 0.03  # of the range of the effects, at both ends
#: Lengths of a chart of effects.
CHART = {
    "width": 320,
    "height": 190,  # of a curve
    "left": 66,
    "right": 10,
    "top": 8,
    "bottom": 22,
    "names": 120,  # width of the names of bars
    "name": 16,  # characters
    "bar": 18,  # height of a bar with its gap
    "apart": 55,  # least distance of labels
    "points": 12,  # a curve of at most so many has dots
}


class Explorer(Page):
    """An interactive page, as :func:`explore` makes it.

    Attributes
    ----------
    title : str
        Title of the page.
    """

    def __init__(self, title: str, page: str):
        self.title, self._page = title, page

    def _repr_html_(self):
        """Return the HTML of the page in a frame, for a notebook."""
        return render("frame.html", page=self._page, height=HEIGHT, title=self.title)


def explore(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    *,
    features: Any = None,
    query_features: Any = None,
    n_neighbors: int = 6,
    confidence: float = 0.9,
    max_rows: int = 50000,
    reducer: Any = None,
    random_state: Any = None,
) -> Explorer:
    """Make an interactive map of the learned space, with the rows behind every prediction.

    The page shows queries and stored rows. A stored row is left out of its own prediction. A
    click on a row draws lines to the rows behind its prediction. The picture and the table of its
    report, as in :class:`NeighborsReport`, are next to the map. A slider goes through the
    predictions from the largest error to the smallest. Colours show targets, predictions or
    errors. Charts show the effects of columns on predictions. One list contains rows whose targets
    are far from their predictions. A second list contains rows that are equal in the learned
    space.

    Parameters
    ----------
    estimator : estimator object
        Fitted, of one output, as :func:`unwrap` takes it.
    X : {DataFrame, array-like} of shape (n_queries, n_features), optional
        Queries. None: the page shows stored rows only.
    y : array-like of shape (n_queries,), optional
        Targets of the queries, if they are known, in the units of the targets of fit.
    features : DataFrame, array or list, optional
        Features of the stored rows to show: the rows given to fit, followed by the rows of
        `add_neighbors`, as a table, images (n, height, width), optionally with channels, or texts.
        None: the page shows names and targets only, since the bank does not store features.
    query_features : DataFrame, array or list, optional
        Features of the queries to show. None: `X`.
    n_neighbors : int, default=6
        Largest number of rows behind a prediction to show.
    confidence : float, default=0.9
        Probability of the prediction intervals of a regressor.
    max_rows : int, default=50_000
        Number of rows to draw. If there are more stored rows, the rows behind the predictions of
        queries and a random sample are drawn. The rows behind the predictions of drawn rows are
        added.
    reducer : transformer, optional
        Its `fit_transform` reduces embeddings to at least two columns, and the first two are
        drawn. An example is ``umap.UMAP()``. Principal components by default.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of rows.

    Returns
    -------
    Explorer
        The page. A notebook shows it, and ``save(path)`` writes it as a file.

    Raises
    ------
    ImportError
        If Bokeh is not installed.
    ValueError
        If a parameter is invalid, `y` or `query_features` is given without `X`, the features of
        the stored rows and of the queries are not of one kind, or the model has several outputs.

    See Also
    --------
    NeighborsReport : The report of one prediction.
    EmbeddingDisplay : The same map as a picture.
    EffectDisplay : The effect of one column on predictions.

    Notes
    -----
    The function needs the extra ``explore``. The page takes about 1.5 MB for the drawing program,
    0.2 kB per row, and 12 bytes per number of a row. A page of 10,000 rows takes about 40 seconds.
    The time grows with the square of the number of rows.

    The charts need a regressor with ``similarity_="features"``, fitted to the columns of
    `features`, without steps before it and without transformed targets. They have the values of
    :class:`EffectDisplay`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from nona_sklearn import NONARegressor, explore
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0).fit(X, y)
    >>> explorer = explore(reg, [[84]], [420], features=X)
    >>> explorer.title
    'Predictions of target: 5 stored rows and 1 query'
    >>> explorer.save(Path(tempfile.mkdtemp(), "explorer.html"))
    """
    import_extra("explore", "bokeh", extra="explore")
    check_fraction("confidence", confidence)
    n_neighbors = check_integer("n_neighbors", n_neighbors)
    max_rows = check_integer("max_rows", max_rows, 2)
    for name, value, needed in [
        ("y", y, X),
        ("query_features", query_features, X),
        ("query_features", query_features, features),
    ]:
        if value is not None and needed is None:
            raise ValueError(f"{name} needs {'X' if needed is X else 'features'}, got it alone")
    if reducer is not None and (
        isinstance(reducer, type) or not hasattr(reducer, "fit_transform")
    ):
        raise TypeError(f"reducer must be a transformer, such as PCA(2), got {reducer!r:.100}")
    warn_of_other_order(X=X, y=y)
    answers = OutputAnswers.of_only("explore", unwrap(estimator).snapshot())
    if len(answers.bank) < 2:
        raise ValueError("the bank must have at least 2 rows to explore, it has 1")
    queries = None if X is None else answers.model.embed(X)
    n_queries = 0 if queries is None else len(queries)
    shown = X if query_features is None else query_features
    data = collect_map_data(
        answers,
        queries,
        _query_targets(answers, y, n_queries),
        Appearance.of(answers.model.estimator, features, shown, n_queries),
        n_neighbors=min(n_neighbors, len(answers.bank)),
        confidence=confidence,
        max_rows=max_rows,
        reducer=reducer,
        random_state=random_state,
    )
    title = f"Predictions of {data.target_name}: {data.n_stored:,} stored row"
    title += "" if data.n_stored == 1 else "s"
    if n_queries:
        title += f" and {n_queries:,} {'query' if n_queries == 1 else 'queries'}"
    return Explorer(
        title, _page(data, title, confidence, footer(answers.model.estimator, len(answers.bank)))
    )


def _query_targets(answers: OutputAnswers, y: Any, n_queries: int) -> np.ndarray:
    """Return targets of queries, (q,), as numbers or labels; NaN or None if not known."""
    of_classes = answers.is_of_classes
    if y is None:
        return np.full(n_queries, None if of_classes else np.nan)
    values = column_or_1d(y, dtype=object if of_classes else np.float64)
    check_lengths(n_queries, len(values))
    if of_classes:
        return object_array([None if is_missing(value) else value for value in values])
    if np.isinf(values).any():
        raise ValueError(f"y must be finite, or NaN where it is not known, got {values.max()}")
    return values


def _page(data: MapData, title: str, confidence: float, footer_text: str) -> str:
    """Return the HTML of the page."""
    from bokeh.core.types import ID
    from bokeh.document import Document
    from bokeh.embed import json_item
    from bokeh.events import DocumentReady
    from bokeh.models import ColumnDataSource, CustomJS
    from bokeh.resources import Resources

    sources = {
        "rows": ColumnDataSource(_rows(data), name="rows"),
        "behind": ColumnDataSource(_lines(data)),
        "links": ColumnDataSource({name: [] for name in ("x0", "y0", "x1", "y1", "width")}),
    }
    error = "absolute error" if data.classes is None else IMPROBABILITY
    modes = {"target": data.target_name, "prediction": "prediction", "error": error}
    colors = {mode: _color(data, mode) for mode in modes}
    plot, dots = _draw(data, sources, colors["target"])
    arguments = dots | {"colors": colors, "about": _about(data, confidence)}
    document = Document()
    document.add_root(plot)
    program = CustomJS(args=sources | arguments, code=source("explorer.mjs"), module=True)
    document.js_on_event(DocumentReady, program)
    errors = data.predictions.errors[data.first_in_order :]
    body = render(
        "explorer.html",
        title=title,
        data=data,
        modes=modes,
        n_ordered=len(errors),
        has_errors=bool(np.isfinite(errors).any()),
        most_listed=MOST_LISTED,
        most_equal=MOST_EQUAL,
        most_shown=MOST_SHOWN,
        least_odds=LEAST_ODDS,
        target_name=data.target_name,
        unit=data.unit,
        **_effects(data.effects),
        footer=footer_text,
        map_id=MAP,
        map_json=json.dumps(json_item(plot, ID(MAP))).replace("<", "\\u003c"),
    )
    library = Resources(mode="inline", components=["bokeh", "bokeh-gl"]).js_raw
    sheets = [source("report.css"), source("explorer.css")]
    return whole_page(title, body, sheets=sheets, programs=library)


# -- data of the map and the program ----------------------------------------------------------


def _rows(data: MapData) -> dict[str, Any]:
    """Return the columns of the rows that the program reads, by name, (n,)."""
    predictions = data.predictions
    is_query = np.arange(len(data.names)) >= data.n_stored
    size = LARGE if len(data.names) <= FEW else SMALL
    columns = dict(zip("xy", data.xy.T, strict=True)) | {
        "size": np.where(is_query, LARGE + 3, size).astype(np.uint8),
        "marker": np.where(is_query, "diamond", "circle").tolist(),
        "name": [show(name) for name in data.names],
        "target": _coded(data, data.targets),
        "prediction": _coded(data, predictions.predictions),
        "error": abs(predictions.errors),
    }
    columns |= dict(zip(REMAINDER, predictions.remainder.T.astype(np.float32), strict=True))
    if data.classes is None:
        columns |= dict(zip(("low", "high"), predictions.details.T, strict=True))
        columns["place"] = data.decimals.astype(np.int16)
    else:
        columns["chances"] = [_chances(data, row) for row in predictions.details]
    return columns | {f"f{j}": values for j, values in enumerate(data.columns.values())}


def _coded(data: MapData, values: np.ndarray) -> np.ndarray:
    """Return numbers unchanged, or labels as their numbers, NaN for an unknown label, (n,)."""
    if data.classes is None:
        return values.astype(float)
    codes = {label: float(i) for i, label in enumerate(data.classes)}
    return np.array([codes.get(value, np.nan) for value in values])


def _chances(data: MapData, probabilities: np.ndarray) -> str:
    """Return the most probable classes of a prediction as a text."""
    assert data.classes is not None
    likely = np.argsort(-probabilities, kind="stable")[:MOST_CLASSES]
    likely = likely[probabilities[likely] > NEGLIGIBLE]
    return ", ".join(f"{show(data.classes[i])}: {share(probabilities[i])}" for i in likely)


def _lines(data: MapData) -> dict[str, np.ndarray]:
    """Return columns of the rows behind all predictions, (n * k,), in the order of the map."""
    predictions = data.predictions
    columns = {
        "row": predictions.positions.astype(np.int32),
        "weight": predictions.weights.astype(np.float32),
        "adjusted": predictions.adjusted.astype(np.float32),
    }
    differs = np.moveaxis(predictions.differs.astype(np.uint8), 2, 0)
    columns |= {f"differs{rank}": columns_of_rank for rank, columns_of_rank in enumerate(differs)}
    return {name: values.ravel() for name, values in columns.items()}


def _about(data: MapData, confidence: float) -> dict[str, Any]:
    """Return the values that the program needs besides the rows."""
    first = data.first_in_order
    order = np.argsort(-abs(data.predictions.errors[first:]), kind="stable") + first
    classes = data.classes
    return {
        "target": data.target_name,
        "labels": None if classes is None else [show(label) for label in classes],
        "decimals": data.unit.decimals,
        "place": data.unit.place,
        "columns": [*data.columns],
        "pictures": data.has_pictures,
        "columnOrder": data.column_order.astype(np.uint8).ravel(),
        "confidence": f"{confidence:.0%}",
        "nStored": data.n_stored,
        "nNeighbors": data.predictions.positions.shape[1],
        "order": order.astype(np.int32),
        "words": WORDS,
        "shape": SHAPE,
        "limits": LIMITS,
    }


def _color(data: MapData, mode: str) -> Any:
    """Return Bokeh's colour mapper for targets, predictions or errors."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Viridis256

    if data.classes is not None and mode != "error":
        n_classes = len(data.classes)
        palette, low, high = _palette(n_classes), -0.5, n_classes - 0.5
        return LinearColorMapper(palette=palette, low=low, high=high, nan_color=UNKNOWN)
    values = abs(data.predictions.errors) if mode == "error" else data.targets
    values = values[np.isfinite(values.astype(float))].astype(float)
    low, high = np.quantile(values, [0.01, 0.99]) if len(values) else (0.0, 1.0)
    return LinearColorMapper(palette=Viridis256, low=low, high=high, nan_color=UNKNOWN)


def _palette(n_classes: int) -> list[str]:
    """Return one colour per class."""
    from bokeh.palettes import Category10, Category20, Colorblind, Turbo256, interp_palette

    for palette in (Colorblind[8], Category10[10], Category20[20]):
        if n_classes <= len(palette):
            return list(palette[:n_classes])
    return list(interp_palette(Turbo256, n_classes))


def _draw(data: MapData, sources: dict[str, Any], color: Any) -> tuple[Any, dict[str, Any]]:
    """Return the map and its dots of stored rows and of queries."""
    from bokeh.models import BooleanFilter, CDSView, HoverTool, TapTool
    from bokeh.plotting import figure

    plot = figure(tools="pan,wheel_zoom,box_zoom,reset", active_scroll="wheel_zoom", **FRAME)
    plot.axis.visible = plot.grid.visible = False  # the directions have no meaning
    plot.toolbar.logo = None
    links = sources["links"]
    plot.segment("x0", "y0", "x1", "y1", source=links, line_width="width", line_color=LINK)
    is_stored = np.arange(len(data.names)) < data.n_stored
    looks = {"stored": (UNKNOWN, is_stored), "queries": (QUERY_LINE, ~is_stored)}
    dots = {  # queries are drawn last
        name: plot.scatter(
            "x",
            "y",
            source=sources["rows"],
            view=CDSView(filter=BooleanFilter(which.tolist())),
            size="size",
            marker="marker",
            fill_color={"field": "target", "transform": color},
            line_color=line,
            line_width=0.5 if name == "stored" else 1.5,
            nonselection_alpha=0.6 if name == "stored" else 1,
            selection_line_color=LINK,
        )
        for name, (line, which) in looks.items()
    }
    plot.scatter("x1", "y1", source=links, size=14, line_width=2, **RING)
    plot.scatter("x0", "y0", source=links, size=18, line_width=3, **RING)
    for drawn in dots.values():  # a common tool would announce the queries alone
        plot.add_tools(
            HoverTool(renderers=[drawn], tooltips=None, visible=False, callback=_announce("hover"))
        )
    plot.add_tools(TapTool(renderers=[*dots.values()]))
    sources["rows"].selected.js_on_change("indices", _announce("tap"))
    return plot, dots


def _announce(name: str) -> Any:
    """Return Bokeh's callback that dispatches an event to the program."""
    from bokeh.models import CustomJS

    code = f"dispatchEvent(new CustomEvent('nona-{name}', {{detail: [cb_obj, cb_data]}}))"
    return CustomJS(code=code)


# -- charts of effects -------------------------------------------------------------------------


def _effects(effects: Effects | None) -> dict[str, Any]:
    """Return values for the template: charts of the effects of columns, on one scale."""
    if effects is None:
        return {"effects": None}
    scale = _Scale(np.concatenate([display.effects for display in effects.displays]))
    charts = [_chart(display, scale) for display in effects.displays]
    return {"effects": effects, "charts": charts, "scale": scale, "lengths": CHART}


class _Scale:
    """The common scale of all charts: effects from `low` to `high`, which contain 0."""

    def __init__(self, effects: np.ndarray) -> None:
        self.low = min(0.0, effects.min())
        self.high = max(0.0, effects.max())
        largest = max(self.high, -self.low)
        power = 10.0 ** math.floor(math.log10(largest))
        # The distance of two lines is the largest round number that is on the scale.
        self.step = power * next(digit for digit in (5, 2, 1) if digit * power <= largest)

    @property
    def marks(self) -> list[float]:
        """Return the effects that have lines."""
        first, last = math.ceil(self.low / self.step), math.floor(self.high / self.step)
        return [i * self.step for i in range(first, last + 1)]

    def write(self, mark: float) -> str:
        """Return the text at a line. The step, which the mark is a multiple of, has one digit."""
        return Unit(place=-math.floor(math.log10(self.step))).signed(mark) or "0"

    def between(self, start: float, end: float, effects: Any) -> Any:
        """Return positions of effects on a scale that is drawn from `start` to `end`."""
        return place(effects, self.low, self.high, start, end, MARGIN)


def _chart(display: EffectDisplay, scale: _Scale) -> dict[str, Any]:
    """Return the effects of a column as a curve over numbers or dates, or a bar per category."""
    values, effects = display.values, display.effects
    chart: dict[str, Any] = {
        "display": display,
        "ends": (effects.argmin(), effects.argmax()),
        "is_curve": values.dtype.kind in "iufmM",
    }
    if chart["is_curve"]:  # of at most one point per unit of the width
        right, bottom = CHART["width"] - CHART["right"], CHART["height"] - CHART["bottom"]
        numbers = values.astype(float if values.dtype.kind in "iuf" else np.int64)
        share = (numbers - numbers[0]) / ((numbers[-1] - numbers[0]) or 1)
        x = CHART["left"] + (right - CHART["left"]) * share
        y = scale.between(bottom, CHART["top"], effects)
        drawn = np.unique(x.round(), return_index=True)[1]
        return chart | {"points": [(f"{x[i]:.1f}", f"{y[i]:.1f}") for i in drawn]}
    bars = [*zip(map(str, values), effects, strict=True)][::-1]  # the highest first
    if (n_left_out := len(bars) - MOST_BARS) > 1:
        half = MOST_BARS // 2
        bars = [*bars[:half], (f"{n_left_out} others", None), *bars[-half:]]
    return chart | {"bars": bars}
