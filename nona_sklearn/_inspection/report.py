"""The report of one prediction: the rows behind it, their differences, and contrasts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from .._utils.threads import snapshot
from .._utils.validation import check_fraction, check_integer, is_missing, object_array
from ..embedding import WeightedFeatures
from ..explanation import Explanation, about_stored_row, largest_differences, table_of_rows
from ..pipelines import unwrap
from .answers import OutputAnswers
from .counterfactuals import (
    COUNTERFACTUAL,
    N_CANDIDATES,
    AllowedChanges,
    RowMixer,
    as_list,
    find_counterfactuals,
    make_outcome,
)
from .displays.base import check_one_of
from .page import (
    IMAGES,
    MORE,
    MOST_COLUMNS,
    SHAPE,
    TABLE,
    UNUSUAL,
    WORDS,
    Appearance,
    Cell,
    Report,
    Table,
    Unit,
    factor,
    footer,
    kind_of,
    odds,
    place,
    radii_of,
    share,
    show,
    show_value,
    signed_share,
)

MOST_ADJUSTMENTS = 6  # columns whose adjustments are shown at once
MOST_CHANGES = 4  # of a counterfactual that are named in a sentence
SMALL = 0.05  # share of the largest adjustment: columns below it are put together
LEAST_CLASS = 0.01  # least probability of a class with its own line
DIRECTIONS = "fixed", "increase", "decrease"
SUBSAMPLE = 0.9  # share of the rows in a refit
AGAIN = 0.9  # share of refits that counts as nearly all of them
#: A row is steady if more refits name it than not. Stability selection bounds the number of rows
#: that are selected in error only above one half.
STEADY = 0.5


class NeighborsReport(Report):
    """Report of one prediction and the rows behind it, as an HTML page or in a notebook.

    The page shows the prediction with its prediction interval or its probabilities, and how
    unusual the query is. The rows with the largest weights are beside the query, and the features
    in which they differ most are marked. Further tables contain the adjustment by every column,
    which is a factor of the odds for classes, and counterfactuals. Computed numbers are rounded to
    three digits of the interval's width. The page needs no further file and no network. Texts of
    the table are escaped.

    Parameters
    ----------
    estimator : estimator object
        Fitted, as :func:`unwrap` takes it.
    X : {DataFrame, array-like} of shape (1, n_features), optional
        The query.
    features : DataFrame, array or list, optional
        The rows given to fit, followed by the rows of `add_neighbors`. The bank does not store
        features. Images (n, height, width), optionally with channels, or texts are shown only.
        None: the report names rows without their features, and has no counterfactuals.
    query_features : DataFrame, array or list, optional
        The query in the form of `features`, if these are images or texts. None: `X`.
    row : label, optional
        Instead of `X`: a row of the bank, by its name, or by its id if rows have no names. The
        prediction leaves the row out. It needs `features`.
    y_true : float or label, optional
        The true target, if it is known, in the units of the targets. The target of a `row` is
        known.
    output : int or str, optional
        The output to report, by its number or its name in `y`. It is needed if there are several.
    n_neighbors : int, default=6
        Largest number of rows to show.
    confidence : float, default=0.9
        Probability of the prediction interval of a regressor.
    eligibility : Eligibility or bool array of shape (n_rows,), optional
        Rule or mask of the rows that may be neighbours, in place of the rule given to fit; see
        :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.
    n_refits : int, optional
        Number of refits to samples of the rows. They show how steady the neighbours are, as in
        :meth:`~NONARegressor.neighbor_stability`. If more refits name a row than not, the row is
        steady. If fewer than half of the rows are steady, the report says so, and weights are
        whole per cents. None: no refits.
    y, at_least, at_most, fixed, increase, decrease, limits : optional
        The desired outcome and the allowed changes, as for :func:`counterfactuals`. Regressors
        need a threshold.

    Raises
    ------
    ValueError
        If a parameter is invalid, both or neither of `X` and `row` are given, or `X` is not one
        row.

    See Also
    --------
    NONARegressor.explain : The rows behind predictions, as a table.
    counterfactuals : Small changes of a query that lead to another outcome.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from nona_sklearn import NeighborsReport, SoftStepKNeighborsRegressor
    >>> X = pd.DataFrame({"area": [50, 60, 80, 90, 120], "rooms": [1, 2, 2, 3, 4]})
    >>> y = pd.Series([250, 300, 400, 450, 600], name="price")
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", max_iter=1).fit(X, y)
    >>> query = pd.DataFrame({"area": [84], "rooms": [3]}, index=["mine"])
    >>> report = NeighborsReport(knn, query, features=X, at_least=500, fixed=["rooms"])
    >>> report.title
    'Prediction of price for mine'
    >>> report.save(Path(tempfile.mkdtemp(), "decision.html"))
    """

    def __init__(
        self,
        estimator: Any,
        X: Any = None,
        features: Any = None,
        *,
        row: Any = None,
        query_features: Any = None,
        output: Any = None,
        y_true: Any = None,
        n_neighbors: int = 6,
        confidence: float = 0.9,
        eligibility: Any = None,
        n_refits: int | None = None,
        y: Any = None,
        at_least: float | None = None,
        at_most: float | None = None,
        fixed: Any = (),
        increase: Any = (),
        decrease: Any = (),
        limits: Any = None,
    ) -> None:
        check_fraction("confidence", confidence)
        n_neighbors = check_integer("n_neighbors", n_neighbors)
        if n_refits is not None:
            check_integer("n_refits", n_refits, 2)
        model = unwrap(estimator).snapshot()
        check_one_of(X, y_true, row)
        if query_features is not None and (features is None or row is not None):
            needed = "features" if features is None else "X"
            raise ValueError(f"query_features needs {needed}, got it without")
        answers, name = OutputAnswers.of(model, output, eligibility), None
        if row is None:
            answers.check_target(y_true)
        else:
            answers, X, y_true, name = _without_row(answers, row, features)
        appearance = Appearance()
        if features is not None and kind_of(features) != TABLE:
            shown = X if query_features is None else query_features
            appearance, features = Appearance.of(answers.model.estimator, features, shown, 1), None
        prediction = _Prediction.of(answers, X, features, n_neighbors, confidence, name)
        stability = None
        if n_refits is not None:
            stability = Stability.of(prediction, n_refits, n_neighbors)
        wanted = {"y": y, "at_least": at_least, "at_most": at_most}
        allowed = {"fixed": fixed, "increase": increase, "decrease": decrease, "limits": limits}
        contrast = _contrast(prediction, wanted, allowed)
        worth = _find_worth(prediction)
        rows, further_rows = _tables_of_rows(prediction, appearance, stability, worth)
        self._write(
            f"Prediction of {answers.target_name} for {prediction.query_name}",
            "report.html",
            prediction=prediction,
            confidence=confidence,
            y_true=y_true,
            stored_row=_stored_row(prediction),
            neighborhood=answers.neighborhood(prediction.query),
            unusual=UNUSUAL,
            probabilities=_probabilities(prediction) if answers.is_of_classes else None,
            dots=None if answers.is_of_classes else _Dots(prediction, y_true),
            shape=SHAPE,
            stability=stability,
            rows=rows,
            further_rows=further_rows,
            adjustments=_adjustments(prediction, worth),
            contrast=contrast,
            n_candidates=N_CANDIDATES,
            footer=footer(answers.model.estimator, len(answers.bank)),
        )


# -- the prediction ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prediction:
    """The prediction of one query, and the rows behind it."""

    answers: OutputAnswers
    X: Any  # the query, a table of one row
    features: Any  # of the bank's rows, or None
    query: Any
    mixer: RowMixer | None  # features of the bank's rows and of the query, or None
    value: Any  # a number or a label
    explanation: Explanation
    unit: Unit  # the format of targets and predictions
    interval: np.ndarray | None  # (2,), or None for classes
    probabilities: np.ndarray | None  # (n_classes,), or None for numbers

    @classmethod
    def of(
        cls,
        answers: OutputAnswers,
        X: Any,
        features: Any,
        n_neighbors: int,
        confidence: float,
        name: Any,
    ) -> _Prediction:
        """Predict a query and explain its prediction. `name` replaces its name in `X`."""
        query = answers.model.embed(X)
        if len(query) != 1:
            raise ValueError(f"X must be one row, got {len(query)}")
        if name is not None:
            query = replace(query, row_labels=object_array([name]))
        explanation = answers.explanation(query, min(n_neighbors, len(answers.bank)))
        if not explanation.of_rows.any():
            by = "" if answers.rule is None else f" by {answers.rule!r}"
            raise ValueError(
                f"the query has no neighbors: no row of the bank is earlier, or eligible{by}"
            )
        (value,) = answers.predict(query)
        unit, interval, probabilities = Unit(), None, None
        if answers.is_of_classes:
            (probabilities,) = answers.predict_proba(query)
        else:
            (interval,) = answers.predict_interval(query, confidence)
            unit = Unit.of([value, *explanation.targets.ravel()], interval[1] - interval[0])
        mixer = None if features is None else RowMixer.of(answers, X, features)
        of_query = answers, X, features, query, mixer
        return cls(*of_query, value, explanation, unit, interval, probabilities)

    @property
    def query_name(self) -> str:
        """Return the query's name in a sentence."""
        return "the query" if self.query.row_labels is None else show(self.query.row_labels[0])

    @property
    def column_name(self) -> str:
        """Return the query's name in a table."""
        return "query" if self.query.row_labels is None else self.query_name

    @property
    def rows(self) -> Explanation:
        """Return the lines of single rows."""
        return self.explanation.of_single_rows()

    @property
    def mean_target(self) -> float:
        """Return the weighted mean of the targets."""
        lines = self.explanation.weights > 0
        return (self.explanation.weights[lines, None] * self.explanation.targets[lines]).sum()


def _without_row(
    answers: OutputAnswers, row: Any, features: Any
) -> tuple[OutputAnswers, Any, Any, Any]:
    """Return answers without a row of the bank, and the row's features, target and name."""
    bank, estimator = answers.bank, snapshot(answers.model.estimator)
    if features is None:
        raise ValueError(
            f"row needs features, the table given to fit, got row={row!r:.100} without them"
        )
    if bank.time is not None and bank.time.column is None:
        raise ValueError(f"row needs times that are a column of X, got row={row!r:.100}")
    if len(bank) < 2:
        raise ValueError(f"row needs another row in the bank, got row={row!r:.100} of one")
    positions = bank.positions(answers.model.stored_row(row).ids.cpu().numpy())
    X = _safe_indexing(table_of_rows(bank, features), positions)
    estimator.bank_ = bank.keep(np.delete(np.arange(len(bank)), positions))
    eligibility = answers.eligibility
    if eligibility is not None and not callable(eligibility):  # a mask
        eligibility = np.delete(np.ravel(eligibility), positions)
    model = replace(answers.model, estimator=estimator)
    without = replace(answers, model=model, eligibility=eligibility)
    (name,), (target,) = bank.names_of(positions), answers.targets[positions]
    return without, X, target, name


def _stored_row(prediction: _Prediction) -> str:
    """Return a warning if the query is a stored row, or an empty text."""
    positions = prediction.explanation.stored_positions
    if positions is None or positions[0] < 0:
        return ""
    (name,), labels = prediction.answers.bank.names_of(positions), prediction.query.row_labels
    query = "The query" if labels is None else repr(labels[0])
    return f"{about_stored_row(query, name)}. A report with row={name!r:.100} leaves it out."


# -- the rows behind it ------------------------------------------------------------------------


def _probabilities(prediction: _Prediction) -> Table:
    """Return the table of probable classes, with the votes of rows."""
    classes, explanation = prediction.answers.classes, prediction.explanation
    probabilities = prediction.probabilities
    assert probabilities is not None
    votes = explanation.contributions[explanation.weights > 0].sum(axis=0)
    order = np.argsort(-probabilities, kind="stable")
    n_shown = min(MOST_COLUMNS, max(2, int((probabilities >= LEAST_CLASS).sum())))
    n_shown = len(order) if len(order) <= n_shown + 1 else n_shown  # no rest of one
    amounts = [(show(classes[i]), probabilities[i], votes[i]) for i in order[:n_shown]]
    if len(rest := order[n_shown:]):
        name = f"{len(rest)} other classes"
        amounts.append((name, probabilities[rest].sum(), votes[rest].sum()))
    lines: list[list] = []
    for name, probability, vote in amounts:
        shares = [share(value) if value > 0 else "" for value in (probability, vote)]
        lines.append([name, *shares, signed_share(probability - vote)])
    added_by = " and ".join(map(str, explanation.names[explanation.weights == 0])) or "network"
    head = ["class", "probability", "votes of rows", f"added by the {added_by}"]
    return Table(f"Probabilities of {prediction.answers.target_name}", head, lines)


def _tables_of_rows(
    prediction: _Prediction,
    appearance: Appearance,
    stability: Stability | None,
    worth: _Worth | None,
) -> tuple[Table, Table | None]:
    """Return the table of the query and its rows, and a table of further columns or None."""
    explanation = prediction.explanation
    shown = np.flatnonzero(explanation.weights > 0)  # with a line of the rest, if any
    head = ["", prediction.column_name, *(show(explanation.names[i]) for i in shown)]
    is_rough = stability is not None and not stability.is_steady
    largest = explanation.weights[explanation.of_rows].max()
    weights: list[str | Cell] = ["weight", ""]
    for weight, is_row in zip(explanation.weights[shown], explanation.of_rows[shown], strict=True):
        text = f"{weight:.0%}" if is_rough else share(weight)
        weights.append(Cell.of_weight(text, weight / largest) if is_row else text)
    lines: list[list] = [weights]
    if explanation.metres is not None:
        metres = zip(explanation.metres[shown], explanation.of_rows[shown], strict=True)
        lines.append(["metres", "", *(f"{m:,.0f}" if is_row else "" for m, is_row in metres)])
    if stability is not None:
        lines.append(["again in", "", *stability.counts(len(shown))])
    lines += _target_lines(prediction, shown)
    most_important = [] if worth is None else [*worth.parts]
    features = _feature_lines(prediction, appearance, most_important, len(shown))
    features, folded = _split(features, MOST_COLUMNS)
    rows = Table(WORDS["beside"], head, lines + features, "beside")
    return rows, _further(head, folded, "beside")


def _split(lines: list, most: int) -> tuple[list, list]:
    """Return the first `most` lines and the rest, which is empty if it were at most MORE."""
    return (lines, []) if len(lines) <= most + MORE else (lines[:most], lines[most:])


def _further(head: list, lines: list[list], look: str = "plain") -> Table | None:
    """Return the table of further columns, or None if there are none."""
    return Table(WORDS["further"].format(n=len(lines)), head, lines, look) if lines else None


def _target_lines(prediction: _Prediction, shown: np.ndarray) -> list[list]:
    """Return lines with targets, adjusted targets and contributions."""
    explanation, unit = prediction.explanation, prediction.unit
    name, of_rows = prediction.answers.target_name, explanation.of_rows[shown]
    if prediction.interval is None:
        labels = prediction.answers.classes[explanation.targets[shown].argmax(axis=1)]
        texts = [show(label) if row else "" for label, row in zip(labels, of_rows, strict=True)]
        return [[name, "", *texts]]
    targets, adjusted = explanation.targets[shown, 0], explanation.adjusted[shown, 0]
    texts = [  # the target of the remaining rows is a mean
        unit.show(target) if row else unit.rounded(target)
        for target, row in zip(targets, of_rows, strict=True)
    ]
    lines = [[name, "", *texts]]
    if not np.array_equal(targets, adjusted):
        lines.append([WORDS["adjusted"], "", *map(unit.rounded, adjusted)])
    amounts = [prediction.value, *explanation.contributions[shown, 0]]
    return [*lines, [WORDS["contribution"], *map(unit.rounded, amounts)]]


def _feature_lines(
    prediction: _Prediction, appearance: Appearance, most_important: list[str], n_shown: int
) -> list[list]:
    """Return lines with features of the query and of the rows, the most important first."""
    rows, mixer = prediction.rows, prediction.mixer
    blank = [""] * (n_shown - len(rows.positions))
    if appearance.kind != TABLE:
        ((name, values),) = appearance.shown(rows.positions, np.arange(0)).items()
        if appearance.kind == IMAGES:
            *cells, query = [Cell(picture=address) for address in values]
        else:
            *cells, query = [Cell.of_feature(text) for text in values]
        return [[name, query, *cells, *blank]]
    if mixer is None:
        return []
    marked = largest_differences(rows, mixer.compared)
    n_marked = np.bincount(marked.ravel(), minlength=len(mixer.compared) + 1)
    rank = {name: i for i, name in enumerate(most_important)}
    ranks = np.array([rank.get(name, len(rank)) for name in mixer.names])
    order = np.lexsort((-n_marked[:-1], ranks))
    lines = []
    for j in order:
        column = mixer.compared[j]
        cells = [
            Cell.of_feature(column.rows[position], differs=j in columns)
            for position, columns in zip(rows.positions, marked, strict=True)
        ]
        lines.append([column.name, Cell.of_feature(column.queries[0]), *cells, *blank])
    return lines


class _Dots:
    """The picture of the rows behind a number: a dot is a target, a ring an adjusted target."""

    def __init__(self, prediction: _Prediction, y_true: Any) -> None:
        rows = prediction.rows
        self.names = rows.names
        self.targets = rows.targets[:, 0]
        self.adjusted = rows.adjusted[:, 0]
        self.are_adjusted = not np.array_equal(self.targets, self.adjusted)
        self.radii = radii_of(rows.weights)
        truth = [] if y_true is None else [float(y_true)]
        self.given = np.concatenate([self.targets, truth])
        assert prediction.interval is not None
        values = np.concatenate(
            [self.given, self.adjusted, prediction.interval, [prediction.value]]
        )
        self.low = values[np.isfinite(values)].min()
        self.high = values[np.isfinite(values)].max()
        legend = WORDS["dots"].format(target=prediction.answers.target_name)
        legend += WORDS["rings"] if self.are_adjusted else ""
        self.legend = legend + WORDS["line"] + (WORDS["dashed"] if truth else "")

    def x(self, value: float) -> float:
        """Return the position of a value."""
        ends = SHAPE["left"], SHAPE["width"] - SHAPE["right"]
        return round(place(value, self.low, self.high, *ends, SHAPE["margin"]), 1)


# -- worth of differences ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Worth:
    """The worth of the differences of rows from the query, (n_rows,)."""

    #: Amounts of columns, the largest first, then of the interaction, if known, and of the rest.
    parts: dict[str, np.ndarray]
    n_columns: int
    start: np.ndarray  # the row's amount, from which the parts lead to the query's
    end: np.ndarray
    #: Amounts are log odds of the first label against the second. None: amounts are numbers.
    classes: tuple[Any, Any] | None


def _find_worth(prediction: _Prediction) -> _Worth | None:
    """Return the worth of differences, or None if no column of a table adjusts the rows."""
    answers, rows = prediction.answers, prediction.rows
    estimator = answers.model.estimator
    has_columns = hasattr(getattr(estimator, "features_", None), "source_")
    if prediction.features is None or answers.model.transformers or not has_columns:
        return None
    if answers.is_of_classes:
        is_moved = answers.model.has_additive_part
    else:
        is_moved = (rows.targets != rows.adjusted).any()
    if not is_moved:
        return None
    moved = answers.adjustments(prediction.X, prediction.features, len(rows.positions))
    amounts = moved.parts, moved.start, moved.end
    if answers.is_of_classes:
        label = answers.classes.tolist().index(prediction.value)
        assert prediction.probabilities is not None
        first, second = np.argsort(-prediction.probabilities, kind="stable")[:2]
        second = first if second == label else second
        classes = answers.classes[label], answers.classes[second]
        parts, start, end = (values[..., label] - values[..., second] for values in amounts)
    else:
        classes = None
        parts, start, end = (values[..., 0] for values in amounts)
    by_name = dict(zip(moved.names, parts.T, strict=True))
    n_columns = estimator.n_features_in_
    columns = sorted(moved.names[:n_columns], key=lambda name: -abs(by_name[name]).sum())
    names = [*columns, *moved.names[n_columns:]]
    return _Worth({name: by_name[name] for name in names}, n_columns, start, end, classes)


def _adjustments(prediction: _Prediction, worth: _Worth | None) -> dict[str, Any] | None:
    """Return tables of the columns' adjustments of the rows, or factors of their odds, or None."""
    if worth is None:
        return None
    *names, last = worth.parts
    largest = max(abs(amounts).max() for amounts in worth.parts.values())
    columns = names[: worth.n_columns]
    small = [name for name in columns if abs(worth.parts[name]).max() < SMALL * largest]
    parts = {name: worth.parts[name] for name in names if name not in small}
    parts[last] = np.sum([worth.parts[last], *(worth.parts[name] for name in small)], axis=0)
    write = prediction.unit.signed if worth.classes is None else factor
    of_columns: list[list] = []
    of_rest: list[list] = []
    for name, amounts in parts.items():
        cells = [Cell(write(amount), look="up" if amount > 0 else "down") for amount in amounts]
        if any(cell.text for cell in cells):
            (of_columns if name in columns else of_rest).append([name, *cells])
    if not of_columns and not of_rest:
        return None
    of_columns, folded = _split(of_columns, MOST_ADJUSTMENTS)
    lines = [*of_columns, *of_rest]
    if worth.classes is not None:
        start = ["odds of the row", *map(odds, worth.start)]
        lines = [start, *lines, ["odds of the query", *map(odds, worth.end)]]
    head = ["", *map(show, prediction.rows.names)]
    return {
        "table": Table("Adjustments by column", head, lines),
        "further": _further(head, folded),
        "classes": worth.classes,
        "has_prices": prediction.answers.model.has_additive_part,
        "has_other": bool(of_rest),
    }


# -- contrast ----------------------------------------------------------------------------------


def _contrast(
    prediction: _Prediction, wanted: dict[str, Any], allowed: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the counterfactual of the query for another class or a threshold, or None."""
    answers, unit, mixer = prediction.answers, prediction.unit, prediction.mixer
    given = {name: value for name, value in wanted.items() if value is not None}
    restricted = {
        name: columns
        for name, columns in allowed.items()
        if columns is not None and np.size(np.asarray(columns, dtype=object)) > 0
    }
    if mixer is None or not (given or answers.is_of_classes):
        needed = "features" if mixer is None else "at_least or at_most"
        for name, value in (given | restricted).items():
            raise ValueError(f"{name} needs {needed}, got {value!r:.100} without them")
        return None
    changes = AllowedChanges.of(mixer, **allowed)
    outcome = make_outcome(answers, **wanted)
    found = find_counterfactuals(mixer, prediction.query, outcome, changes)
    kinds = list(found["row"])
    if COUNTERFACTUAL not in kinds:
        return {"table": None}
    before, after = (unit.rounded(found["prediction"][i]) for i in (0, 1))
    target, row = unit.show(found["target"][2]), show(kinds[2])
    features: list[list] = []
    for column in [*found][5:]:
        now, changed, of_row = (found[column][i] for i in range(3))
        if now != changed and not (is_missing(now) and is_missing(changed)):
            features.append([column, *map(Cell.of_feature, (now, changed, of_row))])
    head = ["", prediction.column_name, "changed", row]
    lines = [["prediction", before, after, ""], [answers.target_name, "", "", target], *features]
    write = show if answers.is_of_classes else show_value
    return {
        "table": Table("Now, changed, and the real row nearby", head, lines, "beside"),
        "wanted": {name: write(value) for name, value in given.items()},
        "directions": {name: as_list(allowed[name]) for name in DIRECTIONS},
        "bounds": {
            column: [None if end is None else show_value(end) for end in ends]
            for column, ends in (allowed["limits"] or {}).items()
        },
        "changes": features if len(features) <= MOST_CHANGES else [],
        "before": before,
        "after": after,
        "row": row,
    }


# -- stability of the rows ---------------------------------------------------------------------


@dataclass(frozen=True)
class Stability:
    """The stability of the rows behind a prediction."""

    n_neighbors: int  # number of heaviest rows that are compared
    trials: str  # the description of the compared refits
    n_containing: np.ndarray  # (n_rows,), number of refits that contain a row
    frequencies: np.ndarray  # (n_rows,), share of these refits that name the row again
    again: float = AGAIN

    @classmethod
    def of(cls, prediction: _Prediction, n_refits: int, n_neighbors: int) -> Stability:
        """Compare a query's heaviest rows in refits, or in networks for a learned space."""
        answers = prediction.answers
        n_neighbors = min(n_neighbors, len(answers.bank))
        table = answers.model.neighbor_stability(
            prediction.query, n_refits=n_refits, subsample=SUBSAMPLE, n_neighbors=n_neighbors
        )
        n_containing = np.asarray(table["n_refits"])
        trials = f"{n_containing.max()} networks"
        if isinstance(answers.model.estimator.network_.embedding, WeightedFeatures):
            units = "rows" if answers.bank.groups is None else "groups"
            trials = f"{n_refits} refits, each to {SUBSAMPLE:.0%} of the {units}"
        frequencies = np.asarray(table["selection_frequency"])
        return cls(n_neighbors, trials, n_containing, frequencies)

    @property
    def is_steady(self) -> bool:
        """Return whether at least half of the rows are steady."""
        return self.n_steady >= len(self.frequencies) / 2

    @property
    def n_steady(self) -> int:
        """Return the number of rows that more refits name than not."""
        return int(np.sum(self.frequencies > STEADY))

    @property
    def n_again(self) -> int:
        """Return the number of rows that nearly all refits name."""
        return int(np.sum(self.frequencies >= AGAIN))

    def counts(self, n_shown: int) -> list[str]:
        """Return texts with the numbers of refits that name a row again, one for every line."""
        n_named = np.nan_to_num(self.frequencies * self.n_containing).round().astype(int)
        cells = [f"{n} of {of}" for n, of in zip(n_named, self.n_containing, strict=True)]
        return cells + [""] * (n_shown - len(cells))
