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
from .._estimators.queries import own_row
from .._estimators.side_by_side import (
    Feature,
    checked_table,
    differences_of,
    largest_differences,
    rows_of_bank,
)
from .._inference.explanation import Explanation
from .._utils.snapshots import snapshot
from .._utils.validation import check_coverage, check_integer, is_missing
from .._version import __version__
from .cells import Cells
from .counterfactuals import COUNTERFACTUAL, N_CANDIDATES, find
from .displays.base import target_name
from .displays.neighbors import check_class, check_number
from .formatting import Unit, share, show, signed_share
from .outcomes import make_outcome
from .page import Element, as_html, details, element, style, table, whole_page, write_page
from .unwrap import Unwrapped, unwrap_one_output

MOST_COLUMNS = 12  # of a table, and classes, that are shown at once
MOST_ADJUSTMENTS = 6  # columns whose adjustments are
N_USUAL = 256  # rows of the bank whose distances to their nearest are compared with the query's
UNUSUAL = 0.95  # share of these rows that have a nearer one
SHEET = "report.css"
ADJUSTMENTS = "By how much each column adjusts the target of a row to the query."
OTHER = (
    " The last line is the part that no column explains: a target that is unusual for its "
    "features counts in part."
)


class NeighborsReport:
    """Report of one prediction and the rows behind it, as an HTML page or in a notebook.

    The page shows the prediction with its prediction interval or its probabilities, how unusual
    the query is, the rows with the largest weights side by side with it, the features in which
    they differ most, the adjustment by each column, and counterfactuals. The file needs no other
    file and no network. Texts of the table are escaped.

    Parameters
    ----------
    model : estimator
        Fitted, of one output, as :func:`unwrap` takes it.
    X : {DataFrame, array-like} of shape (1, n_features), optional
        The query.
    features : {DataFrame, array-like} of shape (n_samples, n_features), optional
        The rows given to fit, followed by those of `add_neighbors`: the bank does not store
        features. None: the report names rows without their features, and has no counterfactuals.
    row : label, optional
        Instead of `X`: a row of the bank, which is predicted without itself, by its name, or by
        its id if rows have no names. It needs `features`.
    y_true : float or label, optional
        The true target, if it is known, in the units of the targets; that of a `row` is known.
    n_neighbors : int, default=6
        Largest number of rows to show.
    coverage : float, default=0.9
        Probability of the prediction interval of a regressor.
    y, at_least, at_most, fixed : optional
        Desired outcome and fixed columns, as for :func:`counterfactuals`. Regressors need a
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
        y_true: Any = None,
        n_neighbors: int = 6,
        coverage: float = 0.9,
        y: Any = None,
        at_least: float | None = None,
        at_most: float | None = None,
        fixed: Any = (),
    ) -> None:
        check_coverage(coverage)
        n_neighbors = check_integer("n_neighbors", n_neighbors)
        model = unwrap_one_output("NeighborsReport", model)
        if (X is None) == (row is None):
            both = "neither" if X is None else "both"
            raise ValueError(f"exactly one of X and row must be given, got {both}")
        if row is not None:
            model, X, y_true = _without(model, row, features, y_true)
        elif y_true is not None:
            _check_truth(model, y_true)
        limits = {"y": y, "at_least": at_least, "at_most": at_most}
        case = _Case.of(model, X, features, n_neighbors, y_true)
        self.title = f"Prediction of {case.target_name} for {show(case.name)}"
        contrasts, moves = _find_contrasts(case, limits, fixed), _find_moves(case)
        self._parts = [
            _headline(case, coverage),
            _rows_section(case, moves),
            _adjustments_section(case, moves),
            _contrasts_section(case, contrasts),
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
            The file, such as "decision.html".
        overwrite : bool, default=False
            Whether to replace an existing file.

        Raises
        ------
        FileExistsError
            If the file exists and `overwrite` is False.

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
        <NeighborsReport: Prediction of target for 0>
        >>> report.save(Path(tempfile.mkdtemp(), "decision.html"))
        """
        write_page(whole_page(self.title, self._article(), head=[style(SHEET)]), path, overwrite)

    def _article(self) -> Element:
        return element("article", element("h1", self.title), self._parts, class_="nona-report")


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
    query : Embedded
        The same.
    features : table, optional
        Features of the bank's rows.
    cells : Cells, optional
        Those of the bank's rows and of the query, if there are features.
    prediction, y_true : float or label
        The prediction, and the true target or None.
    found : Explanation
        Of the prediction.
    unit : Unit
        How targets are written.
    """

    model: Any
    X: Any
    query: Embedded
    features: Any
    cells: Cells | None
    prediction: Any
    y_true: Any
    found: Explanation
    unit: Unit

    @classmethod
    def of(cls, model: Any, X: Any, features: Any, n_neighbors: int, y_true: Any) -> _Case:
        """Predict a query, and explain the prediction."""
        query = model.embed(X)
        prediction = model.predict(query)
        if len(prediction) != 1:
            raise ValueError(f"X must be one row, got {len(prediction)}")
        found = model.explanation(query, min(n_neighbors, len(model.estimator.bank_)))
        if not found.of_rows.any():
            raise ValueError("the query has no neighbors: no row of the bank is earlier than it")
        cells = None if features is None else Cells.of(model, X, features)
        of_numbers = not is_classifier(model.estimator)
        unit = Unit.of([prediction[0], *found.targets.ravel()]) if of_numbers else Unit()
        return cls(model, X, query, features, cells, prediction[0], y_true, found, unit)

    @property
    def name(self) -> Any:
        """Name of the query."""
        return self.found.queries[0]

    @property
    def target_name(self) -> str:
        """Name of the target."""
        return target_name(self.model)

    @property
    def of_classes(self) -> bool:
        """Whether targets are classes."""
        return is_classifier(self.model.estimator)


def _without(model: Unwrapped, row: Any, features: Any, y_true: Any) -> tuple[Any, Any, Any]:
    """A model without a row of its bank, the row as a query, and its target."""
    if y_true is not None:
        raise ValueError(f"y_true must be None with row, whose target is known, got {y_true!r}")
    if features is None:
        raise ValueError(f"row needs features, got row={row!r:.100} without them")
    bank = model.estimator.bank_
    if bank.time is not None and bank.time.column is None:
        raise ValueError(f"row needs times that are a column of X, got row={row!r:.100}")
    if len(bank) < 2:
        raise ValueError(f"row needs another row in the bank, got row={row!r:.100} of one")
    ids = own_row(model.estimator, row).ids
    assert ids is not None
    (position,) = bank.positions(ids.cpu().numpy())
    places = rows_of_bank(bank, checked_table("features", features))
    others = snapshot(model.estimator)
    others.bank_ = bank.keep(np.delete(np.arange(len(bank)), position))
    query = _safe_indexing(features, places[[position]])
    return replace(model, estimator=others), query, model.neighbor_targets()[position]


def _check_truth(model: Any, y_true: Any) -> None:
    """Refuse a true target that is no number, or no class of fit."""
    if is_classifier(model.estimator):
        check_class(y_true, np.ravel(model.classes_).tolist())
    else:
        check_number(y_true)


def _find_contrasts(case: _Case, limits: dict[str, Any], fixed: Any) -> Any:
    """The table of a counterfactual, of classes or if there is a threshold; or None."""
    given = {name: value for name, value in limits.items() if value is not None}
    wanted = bool(given) or case.of_classes
    given |= {"fixed": fixed} if np.size(np.asarray(fixed, dtype=object)) else {}
    if wanted and case.cells is not None:
        return find(case.cells, case.query, make_outcome(case.model, **limits), fixed)
    needed = "features" if case.cells is None else "at_least or at_most"
    for name, value in given.items():
        raise ValueError(f"{name} needs {needed}, got {value!r:.100} without them")
    return None


def _find_moves(case: _Case) -> dict[str, np.ndarray]:
    """How much each column adjusts the rows, (n_rows,) each, the largest first; or nothing."""
    if case.of_classes or case.features is None or case.model.transformers:
        return {}
    rows, estimator = case.found.of_single_rows(), case.model.estimator
    of_table = isinstance(getattr(estimator, "features_", None), TableEncoder)
    if not of_table or np.array_equal(rows.targets, rows.adjusted):
        return {}
    found = case.model.attribute_adjustments(
        case.X, case.features, n_neighbors=len(rows.positions)
    )
    *names, other = [*found][4:-1]  # after the target, and before the adjusted target
    moves = {name: np.asarray(found[name], dtype=float) for name in names}
    moves = dict(sorted(moves.items(), key=lambda each: -abs(each[1]).sum()))
    return moves | {other: np.asarray(found[other], dtype=float)}


# -- sections ----------------------------------------------------------------------------------


def _headline(case: _Case, coverage: float) -> Element:
    """The prediction, its interval or probabilities, and how unusual the query is."""
    truth = None
    if case.y_true is not None:
        truth = element("p", f"True value: {case.unit.show(case.y_true)}")
    return element(
        "section",
        element("p", case.unit.show(case.prediction), class_="value"),
        _probabilities(case) if case.of_classes else _interval(case, coverage),
        truth,
        element("p", _usualness(case)),
    )


def _interval(case: _Case, coverage: float) -> Element:
    """The interval that has a probability."""
    ends = case.model.predict_quantiles(case.query, [(1 - coverage) / 2, (1 + coverage) / 2])[0]
    low, high = map(case.unit.show, ends)
    return element("p", f"{coverage:.0%} interval: {low} to {high}")


def _probabilities(case: _Case) -> Element:
    """The probable classes, and how much of each are votes of rows."""
    classes, probabilities = case.model.classes_, case.model.predict_proba(case.query)[0]
    votes = case.found.contributions[case.found.weights > 0].sum(axis=0)
    lines = [
        [
            show(classes[i]),
            share(probabilities[i]),
            share(votes[i]),
            signed_share(probabilities[i] - votes[i]),
        ]
        for i in np.argsort(-probabilities, kind="stable")[:MOST_COLUMNS]
    ]
    head = ["class", "probability", "votes of rows", "added by the network"]
    return table(f"Probabilities of {case.target_name}", head, lines)


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
    text = f"Its distance to the nearest row is larger than for {nearer:.0%} of the stored rows"
    if nearer > UNUSUAL:
        return f"{text}: the query is unlike them, and its prediction is less certain."
    return f"{text}, within the usual range."


def _rows_section(case: _Case, moves: dict[str, np.ndarray]) -> Element:
    """The rows with the largest weights, side by side with the query."""
    found = case.found
    shown = np.flatnonzero(found.weights > 0)  # rows, and perhaps all others together
    head = ["", show(case.name), *(show(found.names[i]) for i in shown)]
    lines = [["weight", "", *(_weight(found, int(i)) for i in shown)], *_target_lines(case, shown)]
    features, rest = _split(_feature_lines(case, [*moves], len(shown)), MOST_COLUMNS)
    n_rows, carried = found.of_rows.sum(), share(found.weights[found.of_rows].sum())
    rows = (
        "One row carries" if n_rows == 1 else f"The {n_rows} rows with the largest weights carry"
    )
    marked = " Values in which a row differs most from the query are marked." if features else ""
    return element(
        "section",
        element("h2", "The rows behind it"),
        element("p", f"{rows} {carried} of the weight.{marked}"),
        table("The query and the rows behind its prediction", head, lines + features, query=True),
        _further(head, rest, query=True),
    )


def _split(lines: list, most: int) -> tuple[list, list]:
    """The first lines, and the rest of them if it is more than a few."""
    return (lines, []) if len(lines) <= most + 3 else (lines[:most], lines[most:])


def _further(head: list, lines: list[list], *, query: bool = False) -> Element | None:
    """Further columns, which are shown on demand."""
    name = f"{len(lines)} further columns"
    return details(name, table(name, head, lines, query=query)) if lines else None


def _weight(found: Explanation, i: int) -> Element:
    """A cell with the weight of a line, and a bar."""
    largest = found.weights[found.of_rows].max()  # others may weigh more
    width = f"width: {100 * min(1, found.weights[i] / largest):.0f}%"
    return element("td", share(found.weights[i]), element("span", class_="bar", style=width))


def _target_lines(case: _Case, shown: np.ndarray) -> list[list]:
    """Targets, adjusted targets and contributions of lines of the explanation."""
    found, write = case.found, case.unit.show
    if case.of_classes:
        labels = case.model.classes_[found.targets[shown].argmax(axis=1)]
        single = found.of_rows[shown]
        own = [show(label) if row else "" for label, row in zip(labels, single, strict=True)]
        return [[case.target_name, "", *own]]
    targets, adjusted, added = (
        values[shown, 0] for values in (found.targets, found.adjusted, found.contributions)
    )
    lines = [[case.target_name, "", *map(write, targets)]]
    if not np.array_equal(targets, adjusted):
        lines.append(["adjusted to the query", "", *map(write, adjusted)])
    return [*lines, ["contribution", write(case.prediction), *map(write, added)]]


def _feature_lines(case: _Case, first: list[str], n_shown: int) -> list[list]:
    """The features of the query and of the rows, those first that matter most."""
    if case.cells is None:
        return []
    rows, queries, found = case.cells.rows, case.cells.queries, case.found.of_single_rows()
    differences = [differences_of(found, *pair) for pair in zip(rows, queries, strict=True)]
    marked = largest_differences(differences)
    often = np.bincount(marked.ravel(), minlength=len(rows) + 1)
    places = {name: place for place, name in enumerate(first)}
    order = sorted(
        range(len(rows)), key=lambda j: (places.get(rows[j].name, len(places)), -often[j])
    )
    return [
        [rows[j].name, show(queries[j].shown[0])]
        + [_beside(rows[j], found.positions[i], j in marked[i]) for i in range(len(marked))]
        + [""] * (n_shown - len(marked))
        for j in order
    ]


def _beside(feature: Feature, position: int, differs: bool) -> Element:
    """A cell with a feature of a row, marked where it differs most from the query's."""
    text = show(feature.shown[position])
    if not differs:
        return element("td", text)
    return element("td", text, element("span", " (differs)", class_="unseen"), class_="differs")


def _adjustments_section(case: _Case, moves: dict[str, np.ndarray]) -> Element | None:
    """How much each column adjusts the rows of the report."""
    written = {name: [case.unit.signed(move) for move in own] for name, own in moves.items()}
    lines = [[name, *map(_move, own)] for name, own in written.items() if any(own)]
    if not lines:
        return None
    other = [lines.pop()] if any([*written.values()][-1]) else []
    head = ["", *map(show, case.found.of_single_rows().names)]
    lines, rest = _split(lines, MOST_ADJUSTMENTS)
    return element(
        "section",
        element("h2", "What the differences are worth"),
        element("p", f"{ADJUSTMENTS}{OTHER if other else ''}"),
        table("Adjustments by column", head, lines + other),
        _further(head, rest),
    )


def _move(text: str) -> Element:
    """A cell with a signed amount."""
    return element("td", text, class_="up" if text.startswith("+") else "down")


def _contrasts_section(case: _Case, found: Any) -> Element | None:
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
    before, after = (case.unit.show(found["prediction"][i]) for i in (0, 1))
    target = case.unit.show(found["target"][2])
    lines: list[list] = [["prediction", before, after, ""], [case.target_name, "", "", target]]
    for column in [*found][5:]:  # features
        cells = [found[column][i] for i in range(3)]
        if cells[0] != cells[1] and not (is_missing(cells[0]) and is_missing(cells[1])):
            lines.append([column, *map(show, cells)])
    text = (
        f"With these values, between the query and the stored row {name}, the prediction is "
        f"{after} instead of {before}. This describes the model, not the effect of a real change."
    )
    head = ["", show(case.name), "changed", name]
    caption = "The query, the query with changes, and the row that they lead to"
    return element("section", title, element("p", text), table(caption, head, lines, query=True))


def footer(model: Unwrapped) -> Element:
    """The estimator of a model, the version and the date."""
    estimator = model.estimator
    text = (
        f"{type(estimator).__name__} of nona_sklearn {__version__}, "
        f"{len(estimator.bank_):,} stored rows, {datetime.date.today().isoformat()}"
    )
    return element("footer", element("p", text))
