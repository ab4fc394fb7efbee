"""Counterfactuals: what would have to be different for another prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.columns import plain_values
from .._data.names import free_name
from .._data.sample import Embedded
from .._utils.arrays import object_array, table
from .._utils.snapshots import snapshot
from .._utils.validation import check_integer
from .cells import Cells
from .moves import Moves
from .outcomes import Outcome, make_outcome
from .unwrap import unwrap

if TYPE_CHECKING:
    from .._utils.arrays import Table

N_CANDIDATES = 1000  # rows with the outcome that are tried for a query, nearest first
BLOCKS = 10, 100, N_CANDIDATES  # of which so many are tried first
N_STEPS = 32  # points on the line between a query and a row
QUERY, COUNTERFACTUAL = "query", "counterfactual"


def counterfactuals(
    model: Any,
    X: Any,
    features: Any,
    *,
    y: Any = None,
    at_least: Any = None,
    at_most: Any = None,
    fixed: Any = (),
    increase: Any = (),
    decrease: Any = (),
    limits: Any = None,
    n_counterfactuals: int = 1,
) -> Table:
    """Find small changes of a query that lead to another class, or across a threshold.

    A counterfactual lies between the query and a real row with the desired outcome: the nearest
    one in the learned space whose values lead to it [1]_. As few columns as possible take the
    row's values. Numbers and dates among them are then moved back towards the query as far as
    the outcome allows, to values that other rows have.

    Parameters
    ----------
    model : estimator
        Fitted, as :func:`unwrap` takes it: one of our estimators, or a model around one.
    X : {DataFrame, array-like} of shape (n_queries, n_features)
        The queries.
    features : {DataFrame, array-like} of shape (n_samples, n_features)
        The rows given to fit, and then those of `add_neighbors`: the bank does not store features.
    y : label, optional
        For classifiers: the desired class. None: any class but the predicted one.
    at_least, at_most : float, optional
        For regressors: the threshold that the prediction shall reach, from below or from above,
        in the units of `y`; exactly one of them.
    fixed : list of str or int, default=()
        Columns that do not change, by name or by number in `features`. The column of times, if
        the estimator was fitted with one, never changes.
    increase, decrease : list of str or int, default=()
        Columns of numbers or dates whose values may only rise, or only fall, such as an age.
    limits : dict, default=None
        The least and the largest value that columns of numbers may change to, by name or number,
        such as ``{"garage_area": (None, 600)}``; None: no such limit.
    n_counterfactuals : int, default=1
        Largest number of different counterfactuals of a query, each towards another row.

    Returns
    -------
    DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
        Lines "query", and for each counterfactual "counterfactual" and the row that it leads to,
        by its name, with the columns

        - ``query``, ``row``: names of the query and of the line;
        - ``target``: the target of a row, in the units of `y`; missing in other lines;
        - ``prediction``: that of the query and of the counterfactual, in the units of `y`; missing
          for a row;
        - ``changed``: the columns that a counterfactual changes, empty in other lines;
        - one for each feature.

        A query has its first line only if the values of none of the 1,000 nearest rows with the
        wanted outcome lead to it by the changes that are allowed.

    Raises
    ------
    ValueError
        If a parameter is invalid or contradicts another; if no row has the wanted outcome, a query
        has it already, may not change in any column, or is a row of the bank, with its name and
        features; or if the model has several outputs.

    References
    ----------
    .. [1] Brughmans et al., "NICE: An Algorithm for Nearest Instance Counterfactual Explanations",
       2023, arXiv:2104.07411: the nearest row of another class, and its values one column at a
       time.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nona_sklearn import NONAClassifier, counterfactuals
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> X.columns = ["sepal length", "sepal width", "petal length", "petal width"]
    >>> query, X_train, y_train = X.loc[[112]], X.drop(112), y.drop(112)
    >>> clf = NONAClassifier(n_estimators=1, random_state=0).fit(X_train, y_train)
    >>> fixed = ["sepal length", "sepal width"]
    >>> found = counterfactuals(clf, query, X_train, y=1, fixed=fixed)
    >>> found[["row", "prediction", "petal length", "petal width"]]
                  row prediction  petal length  petal width
    0           query          2           5.5          2.1
    1  counterfactual          1           5.0          1.7
    2              77       None           5.0          1.7
    """
    model = unwrap(model).snapshot()
    n_counterfactuals = check_integer("n_counterfactuals", n_counterfactuals)
    wanted = make_outcome(model, y, at_least, at_most)
    cells = Cells.of(model, X, features)
    moves = Moves.of(cells, fixed, increase, decrease, limits)
    return find(cells, model.embed(X), wanted, moves, n_counterfactuals)


def find(
    cells: Cells, queries: Embedded, wanted: Outcome, moves: Moves, n_counterfactuals: int = 1
) -> Any:
    """The table of counterfactuals of queries, whose cells are these."""
    model, labels = cells.model, queries.labels
    _refuse_rows_of_bank(cells, labels)
    predictions = model.predict(queries)
    outcomes = [wanted.of(prediction) for prediction in predictions]
    those = {outcome: _with_outcome(model, outcome) for outcome in dict.fromkeys(outcomes)}
    bank, targets = model.estimator.bank_, model.neighbor_targets()
    names = bank.names_of(slice(None))
    lines = []
    for i, (outcome, prediction) in enumerate(zip(outcomes, predictions, strict=True)):
        label, query = i if labels is None else labels[i], cells.row(cells.n_rows + i)
        moves.check_movable(query, label)
        lines.append(_Line(label, QUERY, query, prediction))
        blocks = map(bank.positions, _nearest(those[outcome], queries[np.array([i])]))
        found = _different(cells, _Search(cells, outcome, query, moves).towards(blocks))
        for row, changed in islice(found, n_counterfactuals):
            columns = ", ".join(cells.names[j] for j in cells.differ(query, changed))
            lines += [
                _Line(label, COUNTERFACTUAL, changed, cells.predict(changed), changed=columns),
                _Line(label, names[row], cells.row(row), target=targets[row]),
            ]
    return _table_of(lines, cells)


def _different(
    cells: Cells, found: Iterator[tuple[int, np.ndarray]]
) -> Iterator[tuple[int, np.ndarray]]:
    """Those counterfactuals that are not equal to one before."""
    seen = set()
    for row, changed in found:
        codes = tuple(cells.codes[changed, cells.columns].tolist())
        if codes not in seen:
            seen.add(codes)
            yield row, changed


# -- rows --------------------------------------------------------------------------------------


def _refuse_rows_of_bank(cells: Cells, labels: np.ndarray | None) -> None:
    """Refuse a query with the name and the features of a row of the bank: it is that row."""
    bank = cells.model.estimator.bank_
    if labels is None:
        return
    names = bank.names_of(slice(None)).tolist()
    places = {name: position for position, name in enumerate(names)}
    for i, label in enumerate(labels):
        own, place = cells.row(cells.n_rows + i), places.get(label)
        if place is not None and not len(cells.differ(own, cells.row(place))):
            raise ValueError(
                f"X must hold queries that are not in the bank, got {label!r:.100}, whose own "
                "target is part of its prediction: remove it from a copy of the model first"
            )


def _with_outcome(model: Any, outcome: Outcome) -> Any:
    """The estimator with a bank of those rows that have an outcome."""
    kept = np.flatnonzero(outcome.holds(model.neighbor_targets()))
    if not len(kept):
        raise ValueError(f"the bank must have a row with {outcome.text}")
    those = snapshot(model.estimator)
    those.bank_ = those.bank_.keep(kept)
    return those


def _nearest(estimator: Any, query: Embedded) -> Iterator[np.ndarray]:
    """Ids of the rows of a bank that are nearest to a query: a few, and then more of them."""
    seen = np.arange(0)
    for most in BLOCKS:
        k = min(most, len(estimator.bank_))
        ids = estimator.heaviest_neighbors(query, k)[1][0]
        ids = ids[(ids >= 0) & ~np.isin(ids, seen)]  # -1: no further row is earlier
        yield ids
        seen = np.append(seen, ids)


# -- search ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Search:
    """The search for changes of a query, as cells (d,), that lead to an outcome."""

    cells: Cells
    outcome: Outcome
    query: np.ndarray
    moves: Moves

    def towards(self, blocks: Iterable[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
        """Each row that gives a counterfactual, of blocks of positions, with its cells (d,)."""
        for block in blocks:
            ends = self.moves.towards(self.query, block)
            _, reached = self._judge(ends)
            for position, end in zip(block[reached], ends[reached], strict=True):
                yield position, self._back(self._without_needless(self._towards(end)))

    def _judge(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores of rows (m, d), (m,), and whether they have the outcome, bool (m,)."""
        if not len(rows):
            return np.zeros(0), np.zeros(0, dtype=bool)
        return self.outcome.scores(self.cells.model, self.cells.make(rows))

    def _towards(self, end: np.ndarray) -> np.ndarray:
        """The query with cells of a row that has the outcome, those first that lead furthest."""
        row, reached = self.query, False
        while not reached:
            row, reached = self._best_change(row, end)
        return row

    def _without_needless(self, row: np.ndarray) -> np.ndarray:
        """The same without changes that the outcome does not need."""
        reached = True
        while reached:
            before = row
            row, reached = self._best_change(row, self.query)
        return before

    def _best_change(self, row: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, bool]:
        """A row with one cell of another, and whether it has the outcome; the best if any does."""
        columns = self.cells.differ(row, other)
        if not len(columns):
            return row, False
        changed = np.repeat(row[None], len(columns), axis=0)
        changed[np.arange(len(columns)), columns] = other[columns]
        scores, reached = self._judge(changed)
        best = np.lexsort((scores, reached))[-1]
        return changed[best], bool(reached[best])

    def _back(self, row: np.ndarray) -> np.ndarray:
        """The same with numbers as near to the query's as the outcome allows."""
        shares = np.arange(1, N_STEPS + 1) / N_STEPS
        line = np.repeat(row[None], N_STEPS, axis=0)
        for j in self.cells.differ(self.query, row):
            between = self.cells.between(j, self.query[j], row[j], shares)
            allowed = self.moves.allowed(j, self.query, between)
            line[:, j] = np.where(allowed, between, row[j])
        return line[self._judge(line)[1].argmax()]  # the last one has it


# -- lines -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """A line of the table: a query, a counterfactual or a row of the bank."""

    query: Any
    row: Any
    cells: np.ndarray
    prediction: Any = None
    target: Any = None
    changed: str = ""


def _table_of(lines: list[_Line], cells: Cells) -> Any:
    """The table of some lines."""
    columns = {
        name: _joined([getattr(line, name) for line in lines])
        for name in ("query", "row", "target", "prediction", "changed")
    }
    shown = cells.make(np.stack([line.cells for line in lines]))
    for name, values in zip(cells.names, plain_values(shown), strict=True):
        columns[free_name(name, columns)] = values
    return table(columns)


def _joined(values: list) -> np.ndarray:
    """A column of numbers, NaN where they are missing, or of objects."""
    if all(value is None or isinstance(value, float | np.floating) for value in values):
        return np.array(values, dtype=float)
    return object_array(values)
