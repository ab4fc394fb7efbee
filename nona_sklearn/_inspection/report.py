"""The report of one prediction: the rows behind it, their differences, and contrasts."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import _safe_indexing

from .._data.embedded import Embedded
from .._data.table_encoder import TableEncoder
from .._estimators.attributions import additive_trend
from .._estimators.explanations import about_stored_row
from .._estimators.feature_comparison import (
    ComparedColumn,
    checked_table,
    differences_of,
    largest_differences,
    rows_of_bank,
)
from .._estimators.queries import bank_row_as_query
from .._inference.explanation import Explanation
from .._utils.arrays import object_array
from .._utils.snapshots import snapshot
from .._utils.validation import check_fraction, check_integer, is_missing
from .._version import __version__
from .appearance import IMAGES, TABLE, Appearance, kind_of
from .cells import Cells
from .counterfactuals import COUNTERFACTUAL, N_CANDIDATES, find
from .displays.neighbors import check_class, check_number
from .dots import dots
from .formatting import MINUS, Unit, factor, odds, share, show, show_value, signed_share
from .moves import Moves, listed
from .one_output import OneOutput, one_output
from .outcomes import make_outcome
from .page import (
    Child,
    Element,
    as_html,
    details,
    element,
    own_text,
    style,
    table,
    whole_page,
    write_page,
)
from .stability import Stability
from .unwrap import Unwrapped, unwrap
from .wording import (
    ADDS,
    ADJUSTED,
    BESIDE,
    CONTRIBUTION,
    DIFFERS,
    FURTHER,
    MARKED,
    ONE_ROW,
    SOME_ROWS,
    TAKES,
)

MOST_COLUMNS = 12  # of a table, and classes, that are shown at once
MORE = 3  # columns beyond these that are not hidden either, if there are no others
MOST_ADJUSTMENTS = 6  # columns whose adjustments are
MOST_CHANGES = 4  # of a counterfactual that are named in a sentence
N_USUAL = 256  # rows of the bank whose distances to their nearest are compared with the query's
LONGEST_BAR = 3.5  # em
UNUSUAL = 0.95  # share of these rows that have a nearer one
SHEET = "report.css"
SMALL = 0.05  # of the largest adjustment by a column: columns below it are put together
LEAST_CLASS = 0.01  # probability of a class that has a line of its own
LONG, LONGEST = 40, 150  # characters of a text: it is set as a text, and its rest is hidden
REQUESTS = {"y": "To become ", "at_least": "To reach at least ", "at_most": "To be at most "}
DIRECTIONS = {"fixed": "fixed", "increase": "only rising", "decrease": "only falling"}
ADJUSTMENTS = (
    "By how much each column adjusts the target of a row to the query. The split depends on the "
    "other differences of the two rows."
)
OTHER = (
    ' "other" is the sum of small parts, and of what no column explains: an unusual target counts '
    "only in part."
)
PRICES = (
    "By how much each difference changes the target of a row. The same difference counts the same "
    'for each row, and in each report. "interplay" is what several columns do together.'
)
ODDS = (
    ": those of a row, predicted without itself, times the factors of all differences, are those "
    'of the query. The same difference has the same factor for each row. "interplay" is what '
    "several columns do together."
)
OTHER_ODDS = ' "other" is the product of small factors, and of that of the votes of rows.'


class NeighborsReport:
    """Report of one prediction and the rows behind it, as an HTML page or in a notebook.

    The page shows the prediction with its prediction interval or its probabilities, how unusual
    the query is, the rows with the largest weights side by side with it, the features in which
    they differ most, the adjustment by each column, or of classes its factor of the odds, and
    counterfactuals. Computed numbers are rounded to three digits of the interval's width. The file
    needs no other file and no network. Texts of the table are escaped.

    Parameters
    ----------
    model : estimator
        Fitted, as :func:`unwrap` takes it.
    X : {DataFrame, array-like} of shape (1, n_features), optional
        The query.
    features : DataFrame, array or list, optional
        The rows given to fit, followed by those of `add_neighbors`: the bank does not store
        features. They may also be images (n, height, width), optionally with channels, or texts,
        which are shown only. None: the report names rows without their features, and has no
        counterfactuals.
    query_features : DataFrame, array or list, optional
        The query in the form of `features`, if they are images or texts. None: `X`.
    row : label, optional
        Instead of `X`: a row of the bank, which is predicted without itself, by its name, or by
        its id if rows have no names. It needs `features`.
    y_true : float or label, optional
        The true target, if it is known, in the units of the targets; that of a `row` is known.
    output : int or str, optional
        The output to report, by its number or its name in `y`; needed if there are several.
    n_neighbors : int, default=6
        Largest number of rows to show.
    coverage : float, default=0.9
        Probability of the prediction interval of a regressor.
    n_refits : int, optional
        Number of refits to other rows, which show how steady the rows are, as in
        :meth:`~NONARegressor.neighbor_stability`. Where most refits name fewer than half of the
        rows, the report calls them not steady, and weights are whole per cents. None: no refits.
    y, at_least, at_most, fixed, increase, decrease, limits : optional
        Desired outcome and what may change, as for :func:`counterfactuals`. Regressors need a
        threshold.

    Raises
    ------
    ValueError
        If a parameter is invalid, not exactly one of `X` and `row` is given, or `X` is not one
        row.

    See Also
    --------
    NONARegressor.explain : The rows behind predictions, as a table.
    counterfactuals : Small changes that lead to another outcome.

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
        model: Any,
        X: Any = None,
        features: Any = None,
        *,
        row: Any = None,
        query_features: Any = None,
        output: Any = None,
        y_true: Any = None,
        n_neighbors: int = 6,
        coverage: float = 0.9,
        n_refits: int | None = None,
        y: Any = None,
        at_least: float | None = None,
        at_most: float | None = None,
        fixed: Any = (),
        increase: Any = (),
        decrease: Any = (),
        limits: Any = None,
    ) -> None:
        check_fraction("coverage", coverage)
        n_neighbors = check_integer("n_neighbors", n_neighbors)
        if n_refits is not None:
            check_integer("n_refits", n_refits, 2)
        model = unwrap(model).snapshot()
        if (X is None) == (row is None):
            both = "neither" if X is None else "both"
            raise ValueError(f"exactly one of X and row must be given, got {both}")
        if query_features is not None and (features is None or row is not None):
            needed = "features" if features is None else "X"
            raise ValueError(f"query_features needs {needed}, got it without")
        called = None
        if row is not None:
            model, X, y_true, called = _without(model, row, features, y_true)
        model, target = one_output(model, output)
        if row is not None:
            y_true = np.ravel(y_true)[model.number if isinstance(model, OneOutput) else 0]
        elif y_true is not None:
            _check_truth(model, y_true)
        look = Appearance()
        if features is not None and kind_of(features) != TABLE:
            of_query = X if query_features is None else query_features
            look, features = Appearance.of(model.estimator.bank_, features, of_query, 1), None
        wanted = {"y": y, "at_least": at_least, "at_most": at_most}
        allowed = {"fixed": fixed, "increase": increase, "decrease": decrease, "limits": limits}
        case = _Case.of(
            *(model, X, features, n_neighbors, coverage, n_refits),
            y_true=y_true,
            called=called,
            target_name=target,
            look=look,
        )
        self.title = f"Prediction of {case.target_name} for {case.called}"
        self._heading: list[Child] = [
            "Prediction of ",
            own_text(case.target_name),
            " for ",
            own_text(case.called),
        ]
        contrasts, worth = _find_contrasts(case, wanted, allowed), _find_worth(case)
        self._parts = [
            _headline(case, coverage),
            _rows_section(case, worth),
            _adjustments_section(case, worth),
            _contrasts_section(case, contrasts, wanted, allowed),
            footer(case.model),
        ]

    def __repr__(self) -> str:
        return f"<NeighborsReport: {self.title}>"

    def _repr_html_(self) -> str:
        """The report in a notebook."""
        return as_html(style(SHEET), self._article())

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Write the report as one file of HTML.

        Parameters
        ----------
        path : str or path-like
            The file, such as "decision.html". A name without an ending gets ".html".
        overwrite : bool, default=False
            Whether to replace an existing file.

        Raises
        ------
        FileExistsError
            If the file exists and `overwrite` is False.
        ValueError
            If the name has the ending of another format, such as ".pdf".

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import NeighborsReport
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> report = NeighborsReport(knn.fit(X, y), [[84]], features=X)
        >>> report
        <NeighborsReport: Prediction of target for the query>
        >>> report.save(Path(tempfile.mkdtemp(), "decision.html"))
        """
        write_page(whole_page(self.title, self._article(), head=[style(SHEET)]), path, overwrite)

    def _article(self) -> Element:
        return element("article", element("h1", self._heading), self._parts, class_="nona-report")


# -- what is shown -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """A query, its prediction and the rows behind it.

    Parameters
    ----------
    model : Unwrapped
        The fitted model.
    X : table of one row
        The query.
    features : table, optional
        Features of the bank's rows.
    query : Embedded
        The query.
    cells : Cells, optional
        Those of the bank's rows and of the query, if there are features.
    prediction, y_true : float or label
        The prediction, and the true target or None.
    found : Explanation
        Of the prediction.
    unit : Unit
        How targets and predictions are written.
    target_name : str
        Name of the target.
    look : Appearance
        Texts or images of the bank's rows and of the query, if they are given.
    interval : ndarray of shape (2,), optional
        The ends of the prediction interval of a number.
    stability : Stability, optional
        How steady the rows are.
    """

    model: Any
    X: Any
    features: Any
    query: Embedded
    cells: Cells | None
    prediction: Any
    y_true: Any
    found: Explanation
    unit: Unit
    target_name: str
    look: Appearance
    interval: np.ndarray | None = None
    stability: Stability | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        X: Any,
        features: Any,
        n_neighbors: int,
        coverage: float,
        n_refits: int | None,
        called: Any,
        **known: Any,
    ) -> _Case:
        """Predict a query, which may be called otherwise, and explain the prediction."""
        query = model.embed(X)
        if called is not None and len(query) == 1:
            query = replace(query, labels=object_array([called]))
        prediction = model.predict(query)
        if len(prediction) != 1:
            raise ValueError(f"X must be one row, got {len(prediction)}")
        n_neighbors = min(n_neighbors, len(model.estimator.bank_))
        found = model.explanation(query, n_neighbors)
        if not found.of_rows.any():
            raise ValueError("the query has no neighbors: no row of the bank is earlier than it")
        cells = None if features is None else Cells.of(model, X, features)
        known |= {"query": query, "cells": cells, "prediction": prediction[0], "found": found}
        if n_refits is not None:
            known["stability"] = Stability.of(model, query, n_refits, n_neighbors)
        if is_classifier(model.estimator):
            return cls(model, X, features, unit=Unit(), **known)
        ends = model.predict_quantiles(query, [(1 - coverage) / 2, (1 + coverage) / 2])[0]
        unit = Unit.of([prediction[0], *found.targets.ravel()], ends[1] - ends[0])
        return cls(model, X, features, unit=unit, interval=ends, **known)

    @property
    def called(self) -> str:
        """What the query is called in a sentence."""
        return "the query" if self.query.labels is None else show(self.query.labels[0])

    @property
    def name(self) -> str:
        """What its column is called."""
        return self.called.removeprefix("the ") if self.query.labels is None else self.called

    @property
    def of_classes(self) -> bool:
        """Whether targets are classes."""
        return is_classifier(self.model.estimator)


def _without(model: Unwrapped, row: Any, features: Any, y_true: Any) -> tuple:
    """A model without a row of its bank, the row as a query, its target and its name."""
    if y_true is not None:
        raise ValueError(f"y_true must be None with row, whose target is known, got {y_true!r}")
    if features is None:
        raise ValueError(
            f"row needs features, the table given to fit, got row={row!r:.100} without them"
        )
    bank = model.estimator.bank_
    if bank.time is not None and bank.time.column is None:
        raise ValueError(f"row needs times that are a column of X, got row={row!r:.100}")
    if len(bank) < 2:
        raise ValueError(f"row needs another row in the bank, got row={row!r:.100} of one")
    own = bank_row_as_query(model.estimator, row)
    assert own.labels is not None
    (position,) = bank.positions_of_names(own.labels.tolist())
    places = rows_of_bank(bank, checked_table("features", features))
    others = snapshot(model.estimator)
    others.bank_ = bank.keep(np.delete(np.arange(len(bank)), position))
    query = _safe_indexing(features, places[[position]])
    name = bank.names_of(position)
    return replace(model, estimator=others), query, model.neighbor_targets()[position], name


def _check_truth(model: Any, y_true: Any) -> None:
    """Refuse a true target that is no number, or no class of fit."""
    if is_classifier(model.estimator):
        check_class(y_true, np.ravel(model.classes_).tolist())
    else:
        check_number(y_true)


def _find_contrasts(case: _Case, limits: dict[str, Any], allowed: dict[str, Any]) -> Any:
    """The table of a counterfactual, of classes or if there is a threshold; or None."""
    given = {name: value for name, value in limits.items() if value is not None}
    wanted = bool(given) or case.of_classes
    given |= {name: each for name, each in allowed.items() if _is_given(each)}
    if wanted and case.cells is not None:
        moves = Moves.of(case.cells, **allowed)
        return find(case.cells, case.query, make_outcome(case.model, **limits), moves)
    needed = "features" if case.cells is None else "at_least or at_most"
    for name, value in given.items():
        raise ValueError(f"{name} needs {needed}, got {value!r:.100} without them")
    return None


def _is_given(columns: Any) -> bool:
    """Whether a parameter names a column."""
    return columns is not None and np.size(np.asarray(columns, dtype=object)) > 0


@dataclass(frozen=True)
class _Worth:
    """What the differences of rows from the query are worth.

    Parameters
    ----------
    parts : dict of str to ndarray of shape (n_rows,)
        Amounts of columns, the largest first, then of interplay, if it is known, and the rest.
    n_columns : int
        How many are of columns.
    start, end : ndarray of shape (n_rows,)
        From where they lead, and to where.
    classes : tuple of two labels, optional
        Amounts are of the log odds of the first against the second; None: of a number.
    """

    parts: dict[str, np.ndarray]
    n_columns: int
    start: np.ndarray
    end: np.ndarray
    classes: tuple[Any, Any] | None = None


def _find_worth(case: _Case) -> _Worth | None:
    """What the differences are worth, if that is known."""
    if case.features is None or case.model.transformers:
        return None
    rows, estimator = case.found.of_single_rows(), case.model.estimator
    moved = _has_prices(case) if case.of_classes else (rows.targets != rows.adjusted).any()
    if not moved or not isinstance(getattr(estimator, "features_", None), TableEncoder):
        return None
    found = case.model.adjustments(case.X, case.features, len(rows.positions))
    values, classes = (found.parts, found.start, found.end), None
    if case.of_classes:
        labels, others = case.model.classes_, case.model.predict_proba(case.query)[0]
        own = labels.tolist().index(case.prediction)
        others[own] = -1
        other = others.argmax()
        classes = labels[own], labels[other]
        values = tuple(each[..., [own]] - each[..., [other]] for each in values)
    parts, start, end = (each[..., 0] for each in values)
    n_columns, by_name = estimator.n_features_in_, dict(zip(found.names, parts.T, strict=True))
    columns = sorted(found.names[:n_columns], key=lambda name: -abs(by_name[name]).sum())
    names = [*columns, *found.names[n_columns:]]
    return _Worth({name: by_name[name] for name in names}, n_columns, start, end, classes)


def _has_prices(case: _Case) -> bool:
    """Whether a difference of two rows has one price."""
    return additive_trend(case.model.estimator) is not None


# -- sections ----------------------------------------------------------------------------------


def _headline(case: _Case, coverage: float) -> Element:
    """The prediction, its interval or probabilities, and how unusual the query is."""
    truth = None
    if case.y_true is not None:
        truth = element("p", "True value: ", own_text(case.unit.show(case.y_true)))
    return element(
        "section",
        element("p", own_text(case.unit.rounded(case.prediction)), class_="value"),
        _probabilities(case) if case.of_classes else _interval(case, coverage),
        truth,
        _stored_row(case),
        element("p", _usualness(case)),
    )


def _stored_row(case: _Case) -> Element | None:
    """That the query is a stored row, if it is one."""
    own = case.found.stored_positions
    if own is None or own[0] < 0:
        return None
    name = case.model.estimator.bank_.names_of(own)[0]
    query = "The query" if case.query.labels is None else repr(case.query.labels[0])
    text = f"{about_stored_row(query, name)}. A report with row={name!r:.100} leaves it out."
    return element("p", own_text(text), class_="warning")


def _interval(case: _Case, coverage: float) -> Element:
    """The interval that has a probability."""
    assert case.interval is not None
    low, high = map(case.unit.rounded, case.interval)
    return element("p", f"{coverage:.0%} interval: {low} to {high}")


def _probabilities(case: _Case) -> Element:
    """The probable classes, and how much of each are votes of rows."""
    classes, probabilities = case.model.classes_, case.model.predict_proba(case.query)[0]
    votes = case.found.contributions[case.found.weights > 0].sum(axis=0)
    order = np.argsort(-probabilities, kind="stable")
    n_shown = min(MOST_COLUMNS, max(2, int((probabilities >= LEAST_CLASS).sum())))
    n_shown = len(order) if len(order) <= n_shown + 1 else n_shown  # one more has the same line
    lines = [_class_line(show(classes[i]), probabilities[i], votes[i]) for i in order[:n_shown]]
    if len(rest := order[n_shown:]):
        name = f"{len(rest)} other classes"
        lines.append(_class_line(name, probabilities[rest].sum(), votes[rest].sum()))
    beside = " and ".join(map(str, case.found.names[case.found.weights == 0])) or "network"
    head = ["class", "probability", "votes of rows", f"added by the {beside}"]
    return table(f"Probabilities of {case.target_name}", head, lines)


def _class_line(name: str, probability: float, votes: float) -> list[str]:
    """Name, probability, votes and what the network adds; nothing in place of 0."""
    shares = [share(value) if value > 0 else "" for value in (probability, votes)]
    return [name, *shares, signed_share(probability - votes)]


def _usualness(case: _Case) -> str:
    """How far the nearest row is, compared with what is usual for rows of the bank."""
    estimator = case.model.estimator
    if len(estimator.bank_) < 2:
        return "One row is stored."
    embeddings = estimator.bank_.embeddings, case.query.embeddings
    stored, query = (estimator.network_.head.metric_part(z).cpu().numpy() for z in embeddings)
    nearest = NearestNeighbors(n_neighbors=2).fit(stored)
    some = np.random.RandomState(0).permutation(len(stored))[:N_USUAL]
    usual = nearest.kneighbors(stored[some])[0][:, 1]  # the first is the row itself
    nearer = np.mean(usual < nearest.kneighbors(query, 1)[0][0, 0])
    if nearer > UNUSUAL:
        return (
            f"An unusual case: {nearer:.0%} of the stored rows are nearer to their nearest row. "
            "The prediction is less certain."
        )
    return (
        f"A typical case: {1 - nearer:.0%} of the stored rows are farther from their nearest row."
    )


def _rows_section(case: _Case, worth: _Worth | None) -> Element:
    """The rows with the largest weights, side by side with the query."""
    found = case.found
    shown = np.flatnonzero(found.weights > 0)  # rows, and perhaps all others together
    head = ["", case.name, *(show(found.names[i]) for i in shown)]
    lines: list[list] = [["weight", "", *(_weight(case, int(i)) for i in shown)]]
    if (stability := case.stability) is not None:
        lines.append(["again in", "", *stability.cells(len(shown))])
    lines += _target_lines(case, shown)
    ordered = [] if worth is None else [*worth.parts]
    features, rest = _split(_feature_lines(case, ordered, len(shown)), MOST_COLUMNS)
    n_rows, carried = found.of_rows.sum(), share(found.weights[found.of_rows].sum())
    rows = (ONE_ROW if n_rows == 1 else SOME_ROWS).format(n=n_rows, share=carried)
    return element(
        "section",
        element("h2", "The rows behind it"),
        element("p", f"{rows}{MARKED if case.cells else ''}"),
        _own_targets(case, shown),
        None if stability is None else element("p", stability.sentence),
        _picture(case),
        table(BESIDE, head, lines + features, query=True),
        _further(head, rest, query=True),
    )


def _own_targets(case: _Case, shown: np.ndarray) -> Element | None:
    """How much of a predicted number are the targets of rows, and how much their adjustment."""
    if case.of_classes:
        return None
    mean = (case.found.weights[shown, None] * case.found.targets[shown]).sum()
    if not (added := case.unit.signed(case.prediction - mean)):
        return None
    text = TAKES if added.startswith(MINUS) else ADDS
    return element("p", text.format(mean=case.unit.rounded(mean), amount=added[1:]))


def _picture(case: _Case) -> Element | None:
    """Targets and adjusted targets as dots, of numbers."""
    if case.interval is None:
        return None
    truth = None if case.y_true is None else float(case.y_true)
    own = case.prediction, case.interval, truth
    return dots(case.found, *own, case.unit, case.target_name)


def _split(lines: list, most: int) -> tuple[list, list]:
    """The first lines, and the rest of them if it is more than a few."""
    return (lines, []) if len(lines) <= most + MORE else (lines[:most], lines[most:])


def _further(head: list, lines: list[list], *, query: bool = False) -> Element | None:
    """Further columns, which are shown on demand."""
    name = FURTHER.format(n=len(lines))
    return details(name, table(name, head, lines, query=query)) if lines else None


def _weight(case: _Case, i: int) -> Element:
    """A cell with the weight of a line, and a bar beside those of other rows."""
    found, stability = case.found, case.stability
    is_rough = stability is not None and not stability.is_steady
    text = f"{found.weights[i]:.0%}" if is_rough else share(found.weights[i])
    if not found.of_rows[i]:
        return element("td", text)
    largest = found.weights[found.of_rows].max()
    width = f"width: {LONGEST_BAR * found.weights[i] / largest:.1f}em"
    return element("td", text, element("span", class_="bar", style=width))


def _target_lines(case: _Case, shown: np.ndarray) -> list[list]:
    """Targets, adjusted targets and contributions of lines of the explanation."""
    found, unit = case.found, case.unit
    single = found.of_rows[shown]
    if case.of_classes:
        labels = case.model.classes_[found.targets[shown].argmax(axis=1)]
        own = [show(label) if row else "" for label, row in zip(labels, single, strict=True)]
        return [[case.target_name, "", *own]]
    targets, adjusted, added = (
        values[shown, 0] for values in (found.targets, found.adjusted, found.contributions)
    )
    own = [  # others have a mean
        unit.show(target) if row else unit.rounded(target)
        for target, row in zip(targets, single, strict=True)
    ]
    lines = [[case.target_name, "", *own]]
    if not np.array_equal(targets, adjusted):
        lines.append([ADJUSTED, "", *map(unit.rounded, adjusted)])
    return [*lines, [CONTRIBUTION, *map(unit.rounded, [case.prediction, *added])]]


def _feature_lines(case: _Case, first: list[str], n_shown: int) -> list[list]:
    """The features of the query and of the rows, those first that matter most."""
    if case.cells is None:
        return _thing_lines(case, n_shown)
    rows, queries, found = case.cells.rows, case.cells.queries, case.found.of_single_rows()
    differences = [differences_of(found, *pair) for pair in zip(rows, queries, strict=True)]
    marked = largest_differences(differences)
    often = np.bincount(marked.ravel(), minlength=len(rows) + 1)
    places = {name: place for place, name in enumerate(first)}
    order = sorted(
        range(len(rows)), key=lambda j: (places.get(rows[j].name, len(places)), -often[j])
    )
    return [
        [rows[j].name, _feature(queries[j].shown[0])]
        + [_beside(rows[j], found.positions[i], j in marked[i]) for i in range(len(marked))]
        + [""] * (n_shown - len(marked))
        for j in order
    ]


def _thing_lines(case: _Case, n_shown: int) -> list[list]:
    """A line of texts or pictures of the query and of the rows, if there are any."""
    if case.look.kind == TABLE:
        return []
    positions = case.found.of_single_rows().positions
    ((name, values),) = case.look.shown(positions, np.arange(0)).items()
    cells = [_picture_cell(v) if case.look.kind == IMAGES else _feature(v) for v in values]
    return [[name, cells[-1], *cells[:-1], *[""] * (n_shown - len(positions))]]


def _picture_cell(address: str) -> Element:
    """A cell with a picture."""
    return element("td", element("img", src=address, alt=""))


def _beside(feature: ComparedColumn, position: int, differs: bool) -> Element:
    """A cell with a feature of a row, marked where it differs most from the query's."""
    cell = _feature(feature.shown[position])
    if differs:
        cell.append(element("span", DIFFERS, class_="unseen"))
        cell.set("class", f"{cell.get('class', '')} differs".strip())
    return cell


def _feature(value: Any) -> Element:
    """A cell with a feature; of a long text, the end is shown on demand."""
    text = show_value(value)
    if len(text) <= LONG:
        return element("td", own_text(text))
    if len(text) <= LONGEST:
        return element("td", own_text(text), class_="text")
    whole = details(own_text(f"{text[:LONGEST]}…"), own_text(f"…{text[LONGEST:]}"))
    return element("td", whole, class_="text")


def _adjustments_section(case: _Case, worth: _Worth | None) -> Element | None:
    """How much each column adjusts the rows of the report, or multiplies their odds."""
    if worth is None:
        return None
    *names, last = worth.parts
    columns = names[: worth.n_columns]
    largest = max(abs(own).max() for own in worth.parts.values())
    small = [name for name in columns if abs(worth.parts[name]).max() < SMALL * largest]
    parts = {name: worth.parts[name] for name in names if name not in small}
    parts[last] = np.sum([worth.parts[last], *(worth.parts[name] for name in small)], axis=0)
    write = case.unit.signed if worth.classes is None else factor
    lines = {name: [_move(write(each), each) for each in own] for name, own in parts.items()}
    shown = [[name, *own] for name, own in lines.items() if any(cell.text for cell in own)]
    if not shown:
        return None
    of_columns = [line for line in shown if line[0] in columns]
    others, start, end = shown[len(of_columns) :], [], []
    text: list[Child] = [PRICES if _has_prices(case) else ADJUSTMENTS, OTHER if others else ""]
    if worth.classes is not None:
        one, other = (own_text(show(label)) for label in worth.classes)
        text = ["Odds of ", one, " against ", other, ODDS, OTHER_ODDS if others else ""]
        start = [["odds of the row", *map(odds, worth.start)]]
        end = [["odds of the query", *map(odds, worth.end)]]
    head = ["", *map(show, case.found.of_single_rows().names)]
    of_columns, rest = _split(of_columns, MOST_ADJUSTMENTS)
    return element(
        "section",
        element("h2", "What the differences are worth"),
        element("p", text),
        table("Adjustments by column", head, [*start, *of_columns, *others, *end]),
        _further(head, rest),
    )


def _move(text: str, amount: float) -> Element:
    """A cell with a signed amount, or a factor."""
    return element("td", text, class_="up" if amount > 0 else "down")


def _contrasts_section(
    case: _Case, found: Any, limits: dict[str, Any], allowed: dict[str, Any]
) -> Element | None:
    """What would have to be different for another outcome."""
    if found is None:
        return None
    title, kinds = element("h2", "What would have to be different"), list(found["row"])
    if COUNTERFACTUAL not in kinds:
        text = (
            f"The values of none of the {N_CANDIDATES:,} nearest rows with the wanted outcome "
            "lead to it by the columns that may change."
        )
        return element("section", title, element("p", text))
    name = show(kinds[2])
    before, after = (case.unit.rounded(found["prediction"][i]) for i in (0, 1))
    target = case.unit.show(found["target"][2])
    lines: list[list] = [["prediction", before, after, ""], [case.target_name, "", "", target]]
    for column in [*found][5:]:  # features
        cells = [found[column][i] for i in range(3)]
        if cells[0] != cells[1] and not (is_missing(cells[0]) and is_missing(cells[1])):
            lines.append([column, *map(_feature, cells)])
    given = [name for name, value in limits.items() if value is not None]
    request: list = [REQUESTS[name] for name in given] or ["For another class"]
    request += [own_text(_wanted(case, limits[name])) for name in given]
    request.append(_conditions(allowed))
    changes: list = [": the changes below"]
    if len(lines) <= 2 + MOST_CHANGES:
        parts = [[", " if i else ": ", *_change(line)] for i, line in enumerate(lines[2:])]
        changes = [each for part in parts for each in part]
    sentences = element(
        "p",
        request,
        changes,
        ". Then the prediction is ",
        own_text(after),
        " instead of ",
        own_text(before),
        ". ",
        own_text(name),
        ", a real row, showed the way. This describes the model, not the effect of a real change.",
    )
    head = ["", case.name, "changed", name]
    caption = "Now, changed, and the real row nearby"
    return element("section", title, sentences, table(caption, head, lines, query=True))


def _conditions(allowed: dict[str, Any]) -> str:
    """What may change, in brackets; nothing if all may."""
    named = {name: listed(allowed[name]) for name in DIRECTIONS}
    parts = [
        f"{DIRECTIONS[name]}: {', '.join(map(str, own))}" for name, own in named.items() if own
    ]
    for column, ends in (allowed["limits"] or {}).items():
        each = zip(("at least", "at most"), ends, strict=True)
        given = [f"{which} {show_value(end)}" for which, end in each if end is not None]
        parts += [f"{column} {' and '.join(given)}"] if given else []
    return f" ({'; '.join(parts)})" if parts else ""


def _wanted(case: _Case, value: Any) -> str:
    """A wanted outcome: a threshold as it was given, or a class."""
    return show(value) if case.of_classes else show_value(value)


def _change(line: list) -> list:
    """A column of a counterfactual, its value and the present one, in a sentence."""
    now, then = (own_text("".join(cell.itertext())) for cell in line[1:3])
    return [own_text(line[0]), " ", then, " instead of ", now]


def footer(model: Unwrapped) -> Element:
    """The estimator of a model, the version and the date."""
    estimator = model.estimator
    text = (
        f"{type(estimator).__name__} of nona_sklearn {__version__}, "
        f"{len(estimator.bank_):,} stored rows, {datetime.date.today().isoformat()}"
    )
    return element("footer", element("p", text))
