"""Counterfactuals: small changes of a query that lead to a wanted prediction."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._utils.tables import free_name, gather_cells, plain_values
from .._utils.threads import snapshot
from .._utils.validation import check_integer, is_real, is_whole, object_array, table
from ..explanation import ComparedColumn, compare_columns, table_of_rows
from ..pipelines import unwrap
from .answers import OutputAnswers

if TYPE_CHECKING:
    from .._utils.validation import Table

N_CANDIDATES = 1000  # rows with the outcome that are tried for a query, nearest first
BLOCKS = 10, 100, N_CANDIDATES  # numbers of nearest rows that are searched, one after another
N_STEPS = 32  # points on the line between a query and a row
COLUMNS = "query", "row", "target", "prediction", "changed"
QUERY, COUNTERFACTUAL = "query", "counterfactual"


def counterfactuals(
    estimator: Any,
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

    A counterfactual lies between the query and a real row with the desired outcome. The row is
    the nearest one in the learned space whose values lead to the outcome [1]_. As few columns as
    possible take the row's values. Numbers and dates in these columns are then moved back towards
    the query, as far as the outcome allows, to values of rows in the bank.

    Parameters
    ----------
    estimator : estimator object
        Fitted, as :func:`unwrap` takes it: one of our estimators, or a model around one.
    X : {DataFrame, array-like} of shape (n_queries, n_features)
        The queries.
    features : {DataFrame, array-like} of shape (n_samples, n_features)
        The rows given to fit, followed by the rows of `add_neighbors`. The bank does not store
        features.
    y : label, optional
        For classifiers: the desired class. None: any class but the predicted one.
    at_least, at_most : float, optional
        For regressors: the threshold that the prediction must reach, from below or from above,
        in the units of `y`. Exactly one of the two parameters is given.
    fixed : list of str or int, default=()
        Columns that do not change, by name or by number in `features`. If the estimator was
        fitted with a column of times, this column never changes.
    increase, decrease : list of str or int, default=()
        Columns of numbers or dates whose values may only rise, or only fall, such as an age.
    limits : dict, default=None
        The least and the largest value that columns of numbers may change to, by name or number,
        such as ``{"garage_area": (None, 600)}``. None: no such limit.
    n_counterfactuals : int, default=1
        Largest number of different counterfactuals of a query. They lead to different rows.

    Returns
    -------
    DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
        A query has a line "query". Every counterfactual has a line "counterfactual", followed by
        a line of the row that it leads to, with the row's name. The columns are

        - ``query``, ``row``: names of the query and of the line;
        - ``target``: the target of a row, in the units of `y`; missing for queries and
          counterfactuals;
        - ``prediction``: the prediction of a query or of a counterfactual, in the units of `y`;
          missing for a row;
        - ``changed``: the columns that a counterfactual changes; empty for queries and rows;
        - all columns of `features`.

        A query has no counterfactual if the allowed changes towards the 1,000 nearest rows with
        the wanted outcome do not lead to this outcome.

    Raises
    ------
    ValueError
        If a parameter is invalid, or two parameters contradict; if no row has the wanted outcome;
        if a query has this outcome already, may not change in any column, or has the name and the
        features of a row of the bank; or if the model has several outputs.

    References
    ----------
    .. [1] Brughmans et al., "NICE: An Algorithm for Nearest Instance Counterfactual Explanations",
       2023, arXiv:2104.07411. The method takes the values of the nearest row of another class,
       one column at a time.

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
    answers = OutputAnswers.of_only("counterfactuals", unwrap(estimator).snapshot())
    n_counterfactuals = check_integer("n_counterfactuals", n_counterfactuals)
    outcome = make_outcome(answers, y, at_least, at_most)
    mixer = RowMixer.of(answers, X, features)
    allowed = AllowedChanges.of(mixer, fixed, increase, decrease, limits)
    return find_counterfactuals(mixer, answers.model.embed(X), outcome, allowed, n_counterfactuals)


def find_counterfactuals(
    mixer: RowMixer,
    queries: Any,
    wanted: Outcome,
    allowed: AllowedChanges,
    n_counterfactuals: int = 1,
) -> Table:
    """Return the table of counterfactuals. The queries are rows of the mixer."""
    answers, labels = mixer.answers, queries.row_labels
    _refuse_rows_of_bank(mixer, labels)
    predictions, targets = answers.predict(queries), answers.targets
    outcomes = [wanted.for_prediction(prediction) for prediction in predictions]
    estimators = {outcome: _with_outcome(answers, outcome) for outcome in dict.fromkeys(outcomes)}
    names = answers.bank.names_of(slice(None))
    lines: list[tuple] = []  # query, row, target, prediction, changed columns and cells
    for i, (outcome, prediction) in enumerate(zip(outcomes, predictions, strict=True)):
        label, query = i if labels is None else labels[i], mixer.row(mixer.n_rows + i)
        allowed.check_movable(query, label)
        lines.append((label, QUERY, None, prediction, "", query))
        blocks = map(answers.bank.positions, _nearest(estimators[outcome], queries[np.array([i])]))
        changes = _Search(mixer, outcome, query, allowed).towards(blocks)
        for position, changed in islice(_different(mixer, changes), n_counterfactuals):
            which = ", ".join(mixer.names[j] for j in mixer.differing(query, changed))
            (now,) = answers.predict(mixer.make(changed[None]))
            lines.append((label, COUNTERFACTUAL, None, now, which, changed))
            row = mixer.row(position)
            lines.append((label, names[position], targets[position], None, "", row))
    *given, cells = zip(*lines, strict=True)
    columns = {}
    for name, column in zip(COLUMNS, given, strict=True):
        are_numbers = all(
            value is None or isinstance(value, float | np.floating) for value in column
        )
        columns[name] = np.array(column, dtype=float) if are_numbers else object_array(column)
    for name, values in zip(mixer.names, plain_values(mixer.make(np.stack(cells))), strict=True):
        columns[free_name(name, columns)] = values
    return table(columns)


def _refuse_rows_of_bank(mixer: RowMixer, labels: np.ndarray | None) -> None:
    """Raise if a query has the name and the features of a row of the bank."""
    if labels is None:
        return
    names = mixer.answers.bank.names_of(slice(None)).tolist()
    positions = {name: position for position, name in enumerate(names)}
    for i, label in enumerate(labels):
        query, position = mixer.row(mixer.n_rows + i), positions.get(label)
        if position is not None and not len(mixer.differing(query, mixer.row(position))):
            raise ValueError(
                f"X must hold queries that are not in the bank, got {label!r:.100}, whose own "
                "target is part of its prediction: remove it from a copy of the model first"
            )


def _with_outcome(answers: OutputAnswers, outcome: Outcome) -> Any:
    """Return the estimator with a bank of the rows that have the outcome."""
    kept = np.flatnonzero(outcome.holds(answers.targets))
    if not len(kept):
        raise ValueError(f"the bank must have a row with {outcome.text}")
    estimator = snapshot(answers.model.estimator)
    estimator.bank_ = estimator.bank_.keep(kept)
    return estimator


def _nearest(estimator: Any, query: Any) -> Iterator[np.ndarray]:
    """Yield blocks of ids of the rows nearest to a query, in growing numbers."""
    seen = np.arange(0)
    for most in BLOCKS:
        ids = estimator.heaviest_neighbors(query, min(most, len(estimator.bank_)))[1][0]
        ids = ids[(ids >= 0) & ~np.isin(ids, seen)]  # -1: too few rows are earlier than the query
        yield ids
        seen = np.append(seen, ids)


def _different(
    mixer: RowMixer, changes: Iterable[tuple[int, np.ndarray]]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the changes without duplicates."""
    seen = set()
    for position, changed in changes:
        codes = tuple(mixer.codes[changed, mixer.columns].tolist())
        if codes not in seen:
            seen.add(codes)
            yield position, changed


# -- outcomes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The wanted outcome of a prediction."""

    kind: Literal["at_least", "at_most", "y", "another class"]
    value: Any  # the threshold, the wanted class, or the class to leave

    @property
    def text(self) -> str:
        """Return the words for the outcome in a message."""
        if self.kind == "y":
            return f"the class {self.value!r:.100}"
        if self.kind == "another class":
            return f"another class than {self.value!s:.100}"
        return f"a target of {self.kind.replace('_', ' ')} {self.value:g}"

    def for_prediction(self, prediction: Any) -> Outcome:
        """Return the outcome for a query, or raise if its prediction has it already."""
        if self.kind == "another class":
            return Outcome(self.kind, prediction)
        if not self.holds(np.asarray(prediction)):
            return self
        if self.kind == "y":
            raise ValueError(f"y must be another class than those predicted, got {self.value!r}")
        raise ValueError(
            f"{self.kind} must be beyond the predictions of X, got {self.value!r} and a "
            f"prediction of {prediction:.6g}"
        )

    def holds(self, targets: np.ndarray) -> np.ndarray:
        """Return whether targets have the outcome, bool (n,)."""
        if self.kind == "at_least":
            return targets >= self.value
        if self.kind == "at_most":
            return targets <= self.value
        return targets == self.value if self.kind == "y" else targets != self.value

    def scores(self, answers: OutputAnswers, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return rows' scores, larger near the outcome, and whether they have it, both (m,)."""
        queries = answers.model.embed(X)
        predictions = answers.predict(queries)
        if answers.is_of_classes:
            scores = answers.predict_proba(queries) @ self.holds(answers.classes)
        else:
            scores = predictions if self.kind == "at_least" else -predictions
        return scores, self.holds(predictions)


def make_outcome(answers: OutputAnswers, y: Any, at_least: Any, at_most: Any) -> Outcome:
    """Return the outcome, given the parameters of :func:`counterfactuals`."""
    thresholds = {"at_least": at_least, "at_most": at_most}
    given: list[Any] = [name for name, value in thresholds.items() if value is not None]
    if answers.is_of_classes:
        for name in given:
            raise ValueError(
                f"{name} needs a regressor, got {thresholds[name]!r:.100} with a classifier: use y"
            )
        if y is not None and (np.ndim(y) or y not in answers.classes.tolist()):
            raise ValueError(f"y must be one of the classes of fit, got {y!r:.100}")
        return Outcome("another class" if y is None else "y", y)
    if y is not None:
        raise ValueError(f"y needs a classifier, got {y!r:.100}: use at_least or at_most")
    if len(given) != 1:
        both = "both" if given else "neither"
        raise ValueError(f"exactly one of at_least and at_most must be given, got {both}")
    value = thresholds[given[0]]
    if not is_real(value, -np.inf, np.inf) or not np.isfinite(float(value)):
        raise ValueError(f"{given[0]} must be a finite number, got {value!r:.100}")
    return Outcome(given[0], float(value))


# -- rows with the cells of several rows -------------------------------------------------------


@dataclass(frozen=True)
class RowMixer:
    """Makes rows whose cells come from rows of the bank and from queries.

    A cell is the number of the row whose value it has. The rows of the bank are numbered by their
    positions, and the queries follow.
    """

    answers: OutputAnswers
    table: Any  # (n + q, d), rows of the bank, followed by queries
    compared: list[ComparedColumn]  # the columns of the rows and the queries
    codes: np.ndarray  # (n + q, d), equal values of a column have equal codes
    #: (n + q,), the values of a column as numbers; None for a column without an order.
    numbers: list[np.ndarray | None]

    @classmethod
    def of(cls, answers: OutputAnswers, X: Any, features: Any) -> RowMixer:
        """Join the features of the bank's rows and the queries."""
        table = table_of_rows(answers.bank, features, X)
        compared = compare_columns(answers.model.estimator, X, features)
        codes: list[np.ndarray] = []
        numbers: list[np.ndarray | None] = []
        for column in compared:
            joined = np.concatenate(column.values)
            numbers.append(joined if column.is_ordered else None)
            if column.is_ordered:
                codes.append(np.unique(joined, return_inverse=True)[1])
            else:
                code_of: dict[Any, int] = {}
                codes.append(np.array([code_of.setdefault(v, len(code_of)) for v in joined]))
        return cls(answers, table, compared, np.stack(codes, axis=1), numbers)

    @property
    def n_rows(self) -> int:
        """Return the number of the bank's rows."""
        return len(self.compared[0].rows)

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return [column.name for column in self.compared]

    @property
    def given_names(self) -> list:
        """Return the names of the columns, or their numbers for an array."""
        return [column.label for column in self.compared]

    @property
    def columns(self) -> np.ndarray:
        """Return the numbers of the columns, (d,)."""
        return np.arange(len(self.compared))

    def row(self, number: int) -> np.ndarray:
        """Return the cells (d,) of a row of the bank, or of a query."""
        return np.full(len(self.compared), number)

    def differing(self, row: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the numbers of the columns in which two rows (d,) differ."""
        columns = self.columns
        return np.flatnonzero(self.codes[row, columns] != self.codes[other, columns])

    def make(self, cells: np.ndarray) -> Any:
        """Return the table of rows with the given cells (m, d)."""
        return gather_cells(self.table, cells)

    def between(self, column: int, start: int, end: int, shares: np.ndarray) -> np.ndarray:
        """Return cells of a column between two cells, for shares of the way, (s,).

        A cell has the bank's first value at or beyond its share. Without an order, it is `end`.
        """
        values = self.numbers[column]
        if values is None or np.isnan(values[[start, end]]).any():
            return np.full(len(shares), end)
        way = (values[: self.n_rows] - values[start]) / (values[end] - values[start])
        order = np.argsort(way)  # NaN comes last
        return order[np.searchsorted(way[order], np.minimum(shares, way[end]))]


# -- allowed changes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AllowedChanges:
    """The allowed changes of a query."""

    mixer: RowMixer
    free: np.ndarray  # (n_free,), numbers of the columns that may change, ascending
    rising: frozenset[int]  # numbers of columns whose values may not fall
    falling: frozenset[int]  # numbers of columns whose values may not rise
    #: The least and the largest value that a column may change to, by its number.
    ranges: Mapping[int, tuple[float, float]]

    @classmethod
    def of(
        cls, mixer: RowMixer, fixed: Any, increase: Any, decrease: Any, limits: Any
    ) -> AllowedChanges:
        """Return the changes that the parameters of :func:`counterfactuals` allow."""
        if limits is not None and not isinstance(limits, Mapping):
            raise ValueError(f"limits must be a dict of columns and pairs, got {limits!r:.100}")
        given = {"fixed": fixed, "increase": increase, "decrease": decrease}
        columns = {
            name: [_column(mixer, name, column) for column in as_list(value)]
            for name, value in given.items()
        }
        time = mixer.answers.bank.time
        if time is not None and time.column is not None:
            columns["fixed"].append(mixer.given_names.index(time.column))
        for name in ("increase", "decrease"):
            for j in columns[name]:
                _check_ordered(mixer, name, j, "numbers or dates")
        ranges = {}
        for column, pair in (limits or {}).items():
            j = _column(mixer, "limits", column)
            _check_ordered(mixer, "limits", j, "numbers")
            ranges[j] = _range(pair, mixer.names[j])
        columns["limits"] = [*ranges]
        for one, other in (
            *(("fixed", name) for name in ("increase", "decrease", "limits")),
            ("increase", "decrease"),
        ):
            if both := sorted({*columns[one]} & {*columns[other]}):
                raise ValueError(
                    f"{one} and {other} must name different columns, got {mixer.names[both[0]]!r} "
                    "in both"
                )
        if not len(free := np.setdiff1d(mixer.columns, columns["fixed"])):
            raise ValueError(
                f"fixed must leave a column that may change, got all {len(mixer.columns)}"
            )
        rising, falling = frozenset(columns["increase"]), frozenset(columns["decrease"])
        return cls(mixer, free, rising, falling, ranges)

    def towards(self, query: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the query (d,) with the cells of rows (m,) that it may change to, (m, d)."""
        ends = np.repeat(query[None], len(positions), axis=0)
        for j in self.free:
            allowed = self.allows(int(j), query, positions)
            ends[allowed, j] = positions[allowed]
        return ends

    def allows(self, j: int, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return which rows have a value that the query may change to in column j, bool (m,)."""
        numbers = self.mixer.numbers[j]
        is_bounded = j in self.rising or j in self.falling or j in self.ranges
        if numbers is None or not is_bounded:
            return np.ones(len(rows), dtype=bool)
        low, high = self.ranges.get(j, (-np.inf, np.inf))
        present = numbers[query[j]]  # a gap may not change in one direction
        low = np.maximum(low, present) if j in self.rising else low
        high = np.minimum(high, present) if j in self.falling else high
        return (numbers[rows] >= low) & (numbers[rows] <= high)

    def check_movable(self, query: np.ndarray, name: Any) -> None:
        """Raise if no column of the query may change to a value of a row of the bank."""
        if not (self.rising or self.falling or self.ranges):
            return
        rows = np.arange(self.mixer.n_rows)
        for j in self.free:
            codes = self.mixer.codes[:, j]
            if (codes[rows[self.allows(int(j), query, rows)]] != codes[query[j]]).any():
                return
        names = ", ".join(repr(self.mixer.names[j]) for j in self.free)
        raise ValueError(
            "increase, decrease and limits must allow a change to a value of a row of the bank, "
            f"got none for query {name!r:.100} in {names}"
        )


def as_list(given: Any) -> list:
    """Return one column, or several, as a list."""
    return [given] if isinstance(given, str) or not np.iterable(given) else list(given)


def _column(mixer: RowMixer, parameter: str, name: Any) -> int:
    """Return the number of a column that a parameter names."""
    names = mixer.given_names
    if isinstance(name, Hashable) and name in names:
        return names.index(name)
    if is_whole(name, 0, len(names) - 1):
        return int(name)
    raise ValueError(
        f"{parameter} must be names or numbers of columns of features, got {name!r:.100}"
    )


def _check_ordered(mixer: RowMixer, parameter: str, j: int, kinds: str) -> None:
    """Raise if a column is not of the kinds "numbers" or "numbers or dates"."""
    is_date = mixer.compared[j].is_of_dates
    if mixer.numbers[j] is None or (is_date and kinds == "numbers"):
        raise ValueError(
            f"{parameter} must name columns of {kinds}, got {mixer.names[j]!r}, a column of "
            f"{'dates' if is_date else 'categories'}"
        )


def _range(pair: Any, name: Any) -> tuple[float, float]:
    """Return the least and the largest value of a column, infinite if there is no limit."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(
            f"limits of {name!r} must be a pair of the least and the largest value, got "
            f"{pair!r:.100}"
        )
    low = -np.inf if pair[0] is None else pair[0]
    high = np.inf if pair[1] is None else pair[1]
    if not (is_real(low, -np.inf, np.inf) and is_real(high, -np.inf, np.inf) and low <= high):
        raise ValueError(
            f"limits of {name!r} must be numbers, the first no larger than the second, got "
            f"{pair!r:.100}"
        )
    return float(low), float(high)


# -- search ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Search:
    """The search for changes of a query, as cells (d,), that lead to an outcome."""

    mixer: RowMixer
    outcome: Outcome
    query: np.ndarray
    allowed: AllowedChanges

    def towards(self, blocks: Iterable[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the position of a row that gives a counterfactual, and the counterfactual (d,)."""
        for block in blocks:
            ends = self.allowed.towards(self.query, block)
            _, reached = self._judge(ends)
            for position, end in zip(block[reached], ends[reached], strict=True):
                yield (
                    position,
                    self._moved_back(self._without_needless(self._changed_towards(end))),
                )

    def _judge(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return scores of rows (m, d), (m,), and whether they have the outcome, bool (m,)."""
        if not len(rows):
            return np.zeros(0), np.zeros(0, dtype=bool)
        return self.outcome.scores(self.mixer.answers, self.mixer.make(rows))

    def _changed_towards(self, end: np.ndarray) -> np.ndarray:
        """Return the query with cells of `end`, the best first, until it has the outcome."""
        row, reached = self.query, False
        while not reached:
            row, reached = self._best_change(row, end)
        return row

    def _without_needless(self, row: np.ndarray) -> np.ndarray:
        """Return the row without changes that the outcome does not need."""
        reached = True
        while reached:
            before = row
            row, reached = self._best_change(row, self.query)
        return before

    def _best_change(self, row: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, bool]:
        """Return `row` with the best cell of `other`, and whether it then has the outcome."""
        columns = self.mixer.differing(row, other)
        if not len(columns):
            return row, False
        changed = np.repeat(row[None], len(columns), axis=0)
        changed[np.arange(len(columns)), columns] = other[columns]
        scores, reached = self._judge(changed)
        best = np.lexsort((scores, reached))[-1]
        return changed[best], bool(reached[best])

    def _moved_back(self, row: np.ndarray) -> np.ndarray:
        """Return the row with numbers as near to the query's as the outcome allows."""
        shares = np.arange(1, N_STEPS + 1) / N_STEPS
        line = np.repeat(row[None], N_STEPS, axis=0)
        for j in self.mixer.differing(self.query, row):
            between = self.mixer.between(j, self.query[j], row[j], shares)
            is_allowed = self.allowed.allows(j, self.query, between)
            line[:, j] = np.where(is_allowed, between, row[j])
        return line[self._judge(line)[1].argmax()]  # the last row has the outcome
