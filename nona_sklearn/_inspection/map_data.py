"""Data of an explorer: rows on a map, their predictions, and the rows behind the predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state

from .._data.sample import Embedded
from .._estimators.feature_comparison import ComparedColumn, differences_of, largest_differences
from .._inference.explanation import Explanation
from .._utils.arrays import object_array
from .._utils.threads import cached_property
from .answers import OutputAnswers
from .appearance import IMAGES, Appearance
from .displays.learned import EffectDisplay, by_value
from .formatting import Unit

MOST_COLUMNS = 30  # a page shows the columns in which rows differ most often
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

    names: np.ndarray  # (n,)
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
    queries: Embedded | None,
    query_targets: np.ndarray,
    appearance: Appearance,
    *,
    n_neighbors: int,
    coverage: float,
    max_rows: int,
    reducer: Any = None,
    random_state: Any = None,
) -> MapData:
    """Return the map of queries and stored rows, which are left out of their own predictions."""
    bank, features = answers.bank, appearance.rows
    random_state = check_random_state(random_state)

    def predict_stored(rows: np.ndarray) -> NeighborPredictions:
        pairs = [(column, column[rows]) for column in features]
        stored = answers.stored_rows(rows)
        return NeighborPredictions.of(
            answers, stored, answers.targets[rows], pairs, n_neighbors, coverage
        )

    of_queries = []
    if queries is not None:
        pairs = [*zip(features, appearance.queries, strict=True)]
        of_queries = [
            NeighborPredictions.of(answers, queries, query_targets, pairs, n_neighbors, coverage)
        ]
    n_drawn = max_rows - len(query_targets)
    stored = _choose_rows(_rows_behind(of_queries), len(bank), n_drawn, random_state)
    of_stored = [predict_stored(stored)]
    # The rows behind the drawn rows are added. Rows behind the added rows may be missing.
    if len(behind := np.setdiff1d(_rows_behind(of_stored), stored)):
        of_stored.append(predict_stored(behind))
        stored = np.concatenate([stored, behind])
    predictions = NeighborPredictions.joined([*of_stored, *of_queries]).among(stored)

    parts = _parts_by_column(answers, features, stored, queries)
    effects = None
    if parts is not None:
        shown = [feature[stored] for feature in features]
        effects = Effects.of(shown, parts[: len(stored)], answers.target_name)
    n_differing = np.bincount(predictions.differs.ravel(), minlength=len(features) + 1)[:-1]
    chosen = np.sort(np.argsort(-n_differing, kind="stable")[:MOST_COLUMNS])
    predictions = predictions.of_columns(chosen, len(features))
    columns = appearance.shown(stored, chosen)
    amounts = None if parts is None else parts[:, chosen]

    vectors = bank.embeddings[stored]
    if queries is not None:
        vectors = torch.cat([vectors, queries.embeddings])
    embeddings = answers.metric_embeddings(vectors)
    targets = np.concatenate([answers.targets[stored], query_targets])
    classes = _classes(answers, targets)
    groups = _groups_of_equals(embeddings)
    return MapData(
        names=np.concatenate([bank.names_of(stored), _query_names(queries)]),
        targets=targets,
        n_stored=len(stored),
        predictions=predictions,
        xy=_reduced(embeddings, reducer),
        groups_of_equals=sorted(groups, key=lambda rows: -_disagreement(targets[rows], classes)),
        columns=columns,
        column_order=predictions.order_of_columns(len(columns), amounts),
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
        queries: Embedded,
        targets: np.ndarray,
        columns: list[tuple[ComparedColumn, ComparedColumn]],
        n_neighbors: int,
        coverage: float,
    ) -> NeighborPredictions:
        """Predict queries and list the rows behind the predictions.

        `columns` are pairs: a column of the bank's rows, and the same column of the queries.
        """
        n_rows = len(answers.bank) - (queries.ids is not None)
        explanation = answers.explanation(queries, min(n_neighbors, n_rows))
        if answers.is_of_classes:
            predicted = _predict_classes(answers, queries, targets)
        else:
            predicted = _predict_numbers(answers, queries, targets, explanation, coverage)
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
            differs = largest_differences([differences_of(lines, *pair) for pair in columns])
        return cls(
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
    queries: Embedded,
    targets: np.ndarray,
    explanation: Explanation,
    coverage: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions, ends of intervals, errors and surprises of numbers."""
    predictions = explanation.totals(explanation.contributions)[:, 0]
    predictions[np.setdiff1d(np.arange(len(queries)), explanation.of_query)] = np.nan
    ends = answers.predict_interval(queries, coverage)
    spread = np.ravel(answers.model.predict(queries, return_std=True)[1])
    spread = np.maximum(spread, ROUNDING * abs(predictions))
    errors = predictions - targets
    return predictions, ends, errors, abs(errors) / np.maximum(spread, TINY)


def _predict_classes(
    answers: OutputAnswers, queries: Embedded, targets: np.ndarray
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


def _query_names(queries: Embedded | None) -> np.ndarray:
    """Return the names of queries, or their numbers."""
    if queries is None:
        return np.empty(0, dtype=object)
    return np.arange(len(queries)).astype(object) if queries.labels is None else queries.labels


def _classes(answers: OutputAnswers, targets: np.ndarray) -> np.ndarray | None:
    """Return the labels of fit, then the targets' new labels. Return None for numbers."""
    if not answers.is_of_classes:
        return None
    labels = {*answers.classes, None}
    new_labels = [label for label in dict.fromkeys(targets) if label not in labels]
    return object_array([*answers.classes, *new_labels])


def _reduced(embeddings: np.ndarray, reducer: Any) -> np.ndarray:
    """Return embeddings (n, d) in two dimensions, (n, 2)."""
    reducer = PCA(min(2, *embeddings.shape)) if reducer is None else reducer
    xy = np.asarray(reducer.fit_transform(embeddings), dtype=float)[:, :2]
    return np.pad(xy, [(0, 0), (0, 2 - xy.shape[1])])


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
        cls, features: list[ComparedColumn], parts: np.ndarray, target_name: str
    ) -> Effects | None:
        """Return effects from the columns and parts of rows, or None if all effects are 0."""
        of_columns, together = parts[:, :-1], parts[:, -1]
        sizes = abs(of_columns).mean(axis=0)
        order = np.argsort(-sizes, kind="stable")[:MOST_CHARTS]
        displays = [
            EffectDisplay(
                *by_value(features[j].shown, of_columns[:, j]), features[j].name, target_name
            )
            for j in order[sizes[order] > 0]
        ]
        share = together.var() / (parts.sum(axis=1).var() or 1.0)
        return cls(displays, of_columns.shape[1], float(share)) if displays else None


def _parts_by_column(
    answers: OutputAnswers,
    features: Sequence[ComparedColumn],
    stored: np.ndarray,
    queries: Embedded | None,
) -> np.ndarray | None:
    """Return the effects of columns and, last, of their interaction on predictions of numbers.

    The shape is (n_stored + n_queries, n_columns + 1). Return None without an additive part, or if
    the features are not the model's columns.
    """
    if answers.is_of_classes or not answers.has_additive_part:
        return None
    estimator, names = answers.model.estimator, [feature.name for feature in features]
    fitted = [*getattr(estimator, "feature_names_in_", names)]
    is_same = len(names) == estimator.n_features_in_ and fitted == names
    if not is_same or answers.model.steps or answers.model.transformers:
        return None
    rows = [answers.stored_rows(stored)]
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
