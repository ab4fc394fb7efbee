"""Rules for the rows that may be neighbours of a query.

A rule compares columns of the table between a query and a stored row. Rules are joined by ``&``
and ``|``, and turned by ``~``:

>>> from nona_sklearn.eligibility import distance, same, within
>>> comparable = (
...     same("district")
...     & within("sold", days=365, before=True)
...     & (distance("latitude", "longitude") < 1609)
... )
>>> comparable.columns
('district', 'sold', 'latitude', 'longitude')

A missing value satisfies no comparison, nor its opposite: a row of unknown age is neither within
five years of a query nor outside of them.
"""

from __future__ import annotations

import math
import operator
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from numbers import Integral
from typing import Any, Protocol

import numpy as np
from scipy.spatial.distance import cdist

from ._utils.globe import EARTH_RADIUS, LIMITS, check_degrees, check_order, chord, on_globe
from ._utils.precision import rounding_of_difference
from ._utils.storable import storable
from ._utils.tables import INEXACT
from ._utils.validation import are_missing, check_choice, check_flag, is_real, is_whole

__all__ = ["Eligibility", "any_row", "differs", "distance", "pairs", "same", "within"]

ROUNDED_LENGTH = 1e-12  # of a chord: a hundredth of a millimetre
ROUNDED_DEGREES = 1e-5  # a metre, by which no rounding of a distance is as large
TIMES = "date", "duration"  # kinds of columns that are in seconds
ORDERED = "ordered category"  # a kind of columns, which are numbered in their order
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "&": "|", "|": "&"}


class Compared(Protocol):
    """The columns of some queries and of stored rows, side by side."""

    def numbers(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return a column as float64, (q,) of the queries and (n,) of the rows.

        Missing values are NaN. Categories are numbered, and times are in seconds.
        """

    def values(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return a column as given, (q,) of the queries and (n,) of the rows."""

    @property
    def excluded(self) -> np.ndarray | None:
        """Pairs (q, n) that are excluded by every rule, such as a row and itself."""

    def __getitem__(self, queries: np.ndarray) -> Compared:
        """Return some of the queries."""


class Eligibility(ABC):
    """Base class of the rules that a pair of a query and a stored row satisfies or not.

    ``rule & other``, ``rule | other`` and ``~rule`` are rules. :func:`same`, :func:`differs`,
    :func:`within`, :func:`distance` and :func:`pairs` make the rules that compare columns.
    """

    @property
    @abstractmethod
    def columns(self) -> tuple[Any, ...]:
        """Names of the columns that are compared, in the order of their first use."""

    @property
    def places(self) -> tuple[Any, Any] | None:
        """Names of the columns of latitudes and longitudes, if places are compared."""
        return None

    @property
    def reach(self) -> dict[Any, float]:
        """The most by which the numbers of an eligible row and of the query differ, by column.

        Rounding of the difference is added. Columns in which they may differ by any amount are
        left out.
        """
        return {}

    @abstractmethod
    def __call__(self, compared: Compared) -> np.ndarray:
        """Return which pairs satisfy the rule, bool (q, n)."""

    @property
    def alternatives(self) -> tuple[Eligibility, ...]:
        """The rules of which the first that enough rows satisfy holds."""
        return (self,)

    def choose(self, compared: Compared) -> tuple[np.ndarray, np.ndarray]:
        """Return which pairs satisfy a rule, bool (q, n), and the number of the rule, (q,).

        It is the first of the alternatives that enough rows satisfy. -1: these are too few rows by
        the last one, and none is admitted.
        """
        satisfied = self(compared)
        return satisfied, np.where(satisfied.any(axis=1), 0, -1)

    @abstractmethod
    def __invert__(self) -> Eligibility:
        """Return the opposite rule."""

    @abstractmethod
    def check(self, column: Any, kind: str, values: np.ndarray) -> None:
        """Raise a ValueError if the rule cannot compare a column.

        Parameters
        ----------
        column : str or int
            Name of the column.
        kind : {'number', 'duration', 'date', 'category', 'ordered category', 'text', 'empty'}
            Kind of its values.
        values : ndarray of shape (n,)
            The values, with missing ones.
        """

    def __and__(self, other: Eligibility) -> Eligibility:
        """Return the rule that is satisfied if both are."""
        return _join("&", self, other)

    def __or__(self, other: Eligibility) -> Eligibility:
        """Return the rule that is satisfied if at least one of both is."""
        return _join("|", self, other)

    def __rand__(self, other: Any) -> Eligibility:
        """Raise a TypeError: only rules are joined."""
        raise TypeError(
            f"a rule can be joined with a rule only, got {other!r:.100}: put a comparison of a "
            "distance in parentheses"
        )

    __ror__ = __rand__

    def at_least(
        self, min_neighbors: int, relax: Sequence[Eligibility] = (), on_fewer: str = "warn"
    ) -> Required:
        """Require a number of rows that satisfy the rule, or else a wider one.

        Parameters
        ----------
        min_neighbors : int
            Least number of eligible rows of a query.
        relax : sequence of Eligibility, default=()
            Rules for queries with fewer rows, in the order in which they are tried. A query that
            has too few rows by the last rule has no neighbour: a regressor predicts NaN.
        on_fewer : {'warn', 'raise'}, default='warn'
            Whether a prediction of such a query is a warning or a ValueError.

        Returns
        -------
        Required
            The rule with its requirement, which can no longer be joined.

        Examples
        --------
        >>> from nona_sklearn.eligibility import within
        >>> within("age", 5).at_least(3, relax=[within("age", 10)])
        within('age', 5).at_least(3, relax=[within('age', 10)])
        """
        if not is_whole(min_neighbors, 1):
            raise ValueError(f"min_neighbors must be an int of at least 1, got {min_neighbors!r}")
        rules = [relax] if isinstance(relax, Eligibility) or relax is None else relax
        if (
            rules is not relax
            or isinstance(relax, str)
            or any(type(rule) is Required for rule in rules)
        ):
            raise TypeError(f"relax must be a list of rules without at_least, got {relax!r:.100}")
        for rule in rules:
            if not isinstance(rule, Eligibility):
                raise TypeError(f"relax must hold rules, such as same('district'), got {rule!r}")
        check_choice("on_fewer", on_fewer, ("warn", "raise"))
        return Required(self, int(min_neighbors), tuple(relax), on_fewer)

    def __bool__(self) -> bool:
        raise TypeError(
            "join rules by & and |, and turn them by ~: and, or, not, and comparisons in a chain, "
            "such as 1 < distance(...) < 2, join no rules"
        )


# -- rules that consist of rules ---------------------------------------------------------------


class Composed(Eligibility):
    """A rule that consists of rules."""

    rules: Sequence[Eligibility]

    @property
    def columns(self) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(column for rule in self.rules for column in rule.columns))

    @property
    def places(self) -> tuple[Any, Any] | None:
        return next((rule.places for rule in self.rules if rule.places is not None), None)

    @property
    def reach(self) -> dict[Any, float]:
        reaches = [rule.reach for rule in self.rules]  # one of the rules is satisfied
        shared = (column for column in reaches[0] if all(column in part for part in reaches))
        return {column: max(part[column] for part in reaches) for column in shared}

    def check(self, column: Any, kind: str, values: np.ndarray) -> None:
        for rule in self.rules:
            if column in rule.columns:
                rule.check(column, kind, values)


@storable
@dataclass(frozen=True, repr=False)
class Joined(Composed):
    """Rules that are all satisfied, or at least one of which is."""

    sign: str  # "&": all; "|": at least one
    rules: tuple[Eligibility, ...]

    @property
    def reach(self) -> dict[Any, float]:
        if self.sign == "|":
            return super().reach
        reach: dict[Any, float] = {}
        for rule in self.rules:
            for column, most in rule.reach.items():
                reach[column] = min(most, reach.get(column, most))
        return reach

    def __call__(self, compared: Compared) -> np.ndarray:
        join = np.logical_and if self.sign == "&" else np.logical_or
        satisfied = self.rules[0](compared)
        for rule in self.rules[1:]:
            join(satisfied, rule(compared), out=satisfied)
        return satisfied

    def __invert__(self) -> Eligibility:
        return Joined(OPPOSITE[self.sign], tuple(~rule for rule in self.rules))

    def __repr__(self) -> str:
        return f" {self.sign} ".join(
            f"({rule!r})" if isinstance(rule, Joined | Near) else repr(rule) for rule in self.rules
        )


@storable
@dataclass(frozen=True, repr=False)
class Required(Composed):
    """A rule that enough rows satisfy, or else the first of wider rules that they do."""

    rule: Eligibility
    min_neighbors: int
    relax: tuple[Eligibility, ...] = ()
    on_fewer: str = "warn"

    @property
    def rules(self) -> tuple[Eligibility, ...]:  # type: ignore[override]
        return self.rule, *self.relax

    def __call__(self, compared: Compared) -> np.ndarray:
        satisfied, numbers = self.choose(compared)
        satisfied[numbers < 0] = False
        return satisfied

    @property
    def alternatives(self) -> tuple[Eligibility, ...]:
        return self.rules

    def choose(self, compared: Compared) -> tuple[np.ndarray, np.ndarray]:
        satisfied = self._admit(self.rule, compared)
        numbers = np.where(self._lack(satisfied), -1, 0)
        for number, rule in enumerate(self.relax, start=1):
            lacking = numbers < 0
            if lacking.any():
                satisfied[lacking] = self._admit(rule, compared[lacking])
                numbers[lacking & ~self._lack(satisfied)] = number
        return satisfied, numbers

    def _admit(self, rule: Eligibility, compared: Compared) -> np.ndarray:
        satisfied = rule(compared)
        if compared.excluded is not None:
            satisfied[compared.excluded] = False
        return satisfied

    def _lack(self, satisfied: np.ndarray) -> np.ndarray:
        return np.count_nonzero(satisfied, axis=1) < self.min_neighbors

    def __and__(self, other: Eligibility) -> Eligibility:
        raise TypeError(f"join rules before at_least, got {self!r}")

    __or__ = __and__

    def at_least(
        self, min_neighbors: int, relax: Sequence[Eligibility] = (), on_fewer: str = "warn"
    ) -> Required:
        raise TypeError(f"a rule has one required number of rows, got {self!r}")

    def __invert__(self) -> Eligibility:
        raise TypeError(f"{self!r} has no opposite: turn rules before at_least")

    def __repr__(self) -> str:
        rule = f"({self.rule!r})" if isinstance(self.rule, Joined) else repr(self.rule)
        relax = f", relax=[{', '.join(map(repr, self.relax))}]" if self.relax else ""
        on_fewer = "" if self.on_fewer == "warn" else f", on_fewer={self.on_fewer!r}"
        return f"{rule}.at_least({self.min_neighbors}{relax}{on_fewer})"


def _join(sign: str, first: Eligibility, second: Any) -> Eligibility:
    if isinstance(second, Required):
        raise TypeError(f"join rules before at_least, got {second!r}")
    if not isinstance(second, Eligibility):
        remedy = ": put its comparison in parentheses" if isinstance(second, Distance) else ""
        raise TypeError(f"a rule can be joined with a rule only, got {second!r:.100}{remedy}")
    rules: list[Eligibility] = []
    for rule in (first, second):
        rules += rule.rules if isinstance(rule, Joined) and rule.sign == sign else [rule]
    return Joined(sign, tuple(rules))


# -- rules that compare columns ----------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Comparison(Eligibility):
    """A rule that compares columns, or its opposite."""

    opposite: bool = field(default=False, kw_only=True)

    def __invert__(self) -> Eligibility:
        return replace(self, opposite=not self.opposite)


@storable
@dataclass(frozen=True, repr=False)
class AnyRow(Comparison):
    """Any row may be a neighbour, whatever the values of the columns."""

    names: tuple[Any, ...]

    @property
    def columns(self) -> tuple[Any, ...]:
        return self.names

    def check(self, column: Any, kind: str, values: np.ndarray) -> None:
        pass

    def __call__(self, compared: Compared) -> np.ndarray:
        query, row = _against(*compared.numbers(self.names[0]))
        return np.full(np.broadcast_shapes(query.shape, row.shape), not self.opposite)

    def __repr__(self) -> str:
        return f"{'~' if self.opposite else ''}any_row({', '.join(map(repr, self.names))})"


@storable
@dataclass(frozen=True, repr=False)
class Same(Comparison):
    """The values of a column are equal."""

    column: Any

    @property
    def columns(self) -> tuple[Any, ...]:
        return (self.column,)

    def check(self, column: Any, kind: str, values: np.ndarray) -> None:
        if kind == "text":
            raise ValueError(f"same({column!r}) needs a column of values that repeat, got texts")
        if kind == "number" and len(large := values[abs(values) >= INEXACT]):
            raise ValueError(
                f"same({column!r}) compares integers below 2^53, which float64 holds, got "
                f"{large[0]:.0f}: convert them to strings"
            )

    @property
    def reach(self) -> dict[Any, float]:
        return {} if self.opposite else {self.column: 0.0}

    def __call__(self, compared: Compared) -> np.ndarray:
        query, row = _against(*compared.numbers(self.column))
        if not self.opposite:
            return query == row
        return (query < row) | (query > row)  # NaN is neither

    def __repr__(self) -> str:
        return f"{'differs' if self.opposite else 'same'}({self.column!r})"


@storable
@dataclass(frozen=True, repr=False)
class Within(Comparison):
    """The values of a column differ by at most a width."""

    column: Any
    width: float  # in units of the column, or in seconds
    of_times: bool = False
    before: bool = False

    @property
    def columns(self) -> tuple[Any, ...]:
        return (self.column,)

    def check(self, column: Any, kind: str, values: np.ndarray) -> None:
        if kind not in ("number", *TIMES, ORDERED, "empty"):
            raise ValueError(
                f"{self!r} needs a column of numbers, dates, durations or an ordered category, "
                f"got one of kind {kind!r}"
            )
        if kind in TIMES and not self.of_times:
            raise ValueError(
                f"{self!r} must have its width as a time, such as "
                f"within({column!r}, days={self.width:g}), since column {column!r} holds {kind}s"
            )
        if kind in ("number", ORDERED) and self.of_times:
            raise ValueError(
                f"{self!r} must have a number as its width, since column {column!r} is of kind "
                f"{kind!r}"
            )

    @property
    def reach(self) -> dict[Any, float]:
        return {} if self.opposite else {self.column: self.width}

    def __call__(self, compared: Compared) -> np.ndarray:
        query, row = _against(*compared.numbers(self.column))
        # Decimals such as 0.14 - 0.04 and 0.1 differ by rounding.
        width = self.width + rounding_of_difference(query, self.width)
        low, high, sign = query - width, query + width, "<="
        if self.before:
            high, sign = query, "<"
        if self.opposite:
            return (row < low) | SIGNS[OPPOSITE[sign]](row, high)
        return (row >= low) & SIGNS[sign](row, high)

    def __repr__(self) -> str:
        width = f"{self.width:g}"
        if self.of_times:
            days, seconds = divmod(self.width, timedelta(days=1).total_seconds())
            width = f"seconds={self.width:g}" if seconds else f"days={days:g}"
        before = ", before=True" if self.before else ""
        return f"{'~' if self.opposite else ''}within({self.column!r}, {width}{before})"


@storable
@dataclass(frozen=True, repr=False)
class Near(Eligibility):
    """The distance of two places on the earth compares with a number of metres."""

    latitude: Any
    longitude: Any
    sign: str  # of SIGNS
    metres: float

    @property
    def columns(self) -> tuple[Any, ...]:
        return self.latitude, self.longitude

    @property
    def places(self) -> tuple[Any, Any]:
        return self.latitude, self.longitude

    def check(self, column: Any, kind: str, values: np.ndarray) -> None:
        if kind not in ("number", "empty"):
            raise ValueError(f"{self!r} needs numbers in column {column!r}, got {kind!r}")
        check_degrees(column, values, LIMITS[self.columns.index(column)], repr(self))

    @property
    def reach(self) -> dict[Any, float]:
        if self.sign in (">", ">="):
            return {}
        return {self.latitude: math.degrees(self.metres / EARTH_RADIUS) + ROUNDED_DEGREES}

    def __call__(self, compared: Compared) -> np.ndarray:
        places = zip(*map(compared.numbers, self.columns), strict=True)
        lengths = cdist(*(on_globe(*place) for place in places))
        lengths[lengths < ROUNDED_LENGTH] = 0.0  # one place, such as on both sides of 180 degrees
        return SIGNS[self.sign](lengths, chord(self.metres))

    def __invert__(self) -> Eligibility:
        return replace(self, sign=OPPOSITE[self.sign])

    def __repr__(self) -> str:
        return f"distance({self.latitude!r}, {self.longitude!r}) {self.sign} {self.metres:g}"


@storable
@dataclass(frozen=True, repr=False)
class Pairs(Comparison):
    """A function returns True for the pair."""

    function: Callable[[dict[Any, np.ndarray], dict[Any, np.ndarray]], Any]
    names: tuple[Any, ...]

    @property
    def columns(self) -> tuple[Any, ...]:
        return self.names

    def check(self, column: Any, kind: str, values: np.ndarray) -> None:
        pass

    def __call__(self, compared: Compared) -> np.ndarray:
        values = {name: compared.values(name) for name in self.names}
        queries, rows = ({name: part[i] for name, part in values.items()} for i in (0, 1))
        try:
            result = np.array(
                self.function(queries, rows)
            )  # a copy: rules that join write into it
        except KeyError as error:
            raise ValueError(f"{self!r} must name the column {error} that it reads") from error
        shape = tuple(len(values[self.names[0]][i]) for i in (0, 1))
        if result.dtype != bool or result.shape != shape:
            raise ValueError(
                f"{self!r} must return bool of shape {shape}, for the queries and the rows, got "
                f"{result.dtype} of shape {result.shape}"
            )
        if self.opposite:  # a missing value satisfies neither
            parts = ([are_missing(part[name]) for name in self.names] for part in (queries, rows))
            missing = (np.any(of_columns, axis=0) for of_columns in parts)
            return ~result & ~np.logical_or.outer(*missing)
        return result

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        return f"{'~' if self.opposite else ''}pairs({name}, {', '.join(map(repr, self.names))})"


def _against(query: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers (q,) and (n,) as (q, 1) and (1, n)."""
    return query[:, None], row[None]


# -- what users call ---------------------------------------------------------------------------


def any_row(*columns: Any) -> Eligibility:
    """Admit all rows, and store the columns, so that the rule of a call can compare them.

    Parameters
    ----------
    *columns : str or int
        Names of the columns, or their numbers in an array.

    Returns
    -------
    Eligibility
        The rule.

    Examples
    --------
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> from nona_sklearn.eligibility import any_row, within
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> knn.fit(X, y, eligibility=any_row(0)).predict([[84]]).round()
    array([425.])
    >>> knn.predict([[84]], eligibility=within(0, 5)).round()
    array([400.])
    """
    if not columns:
        raise ValueError("any_row needs at least one column")
    return AnyRow(tuple(map(_check_column, columns)))


def same(column: Any) -> Eligibility:
    """Admit rows that have the query's value of a column.

    Parameters
    ----------
    column : str or int
        Name of the column, or its number in an array.

    Returns
    -------
    Eligibility
        The rule.

    Examples
    --------
    >>> from nona_sklearn.eligibility import same
    >>> same("district") & ~same("owner")
    same('district') & differs('owner')
    """
    return Same(_check_column(column))


def differs(column: Any) -> Eligibility:
    """Admit rows whose value of a column is not the query's, as ``~same(column)``.

    Parameters
    ----------
    column : str or int
        Name of the column, or its number in an array.

    Returns
    -------
    Eligibility
        The rule.

    Examples
    --------
    >>> from nona_sklearn.eligibility import differs
    >>> differs("hospital")
    differs('hospital')
    """
    return ~same(column)


def within(
    column: Any, width: float | timedelta | None = None, *, before: bool = False, **duration: float
) -> Eligibility:
    """Admit rows whose value of a column differs from the query's by at most a width.

    Parameters
    ----------
    column : str or int
        Name of the column, or its number in an array.
    width : float or timedelta, default=None
        Largest difference, in units of the column: of an ordered category, in levels. For dates
        and durations, a timedelta, or keywords of one.
    before : bool, default=False
        Whether the row's value must be below the query's: an earlier date.
    **duration : float
        The width of dates or durations, as in ``timedelta(days=365)``.

    Returns
    -------
    Eligibility
        The rule.

    Raises
    ------
    ValueError
        If there is no width, more than one, or a negative one.

    Examples
    --------
    >>> from nona_sklearn.eligibility import within
    >>> within("age", 5) & within("sold", days=365, before=True)
    within('age', 5) & within('sold', days=365, before=True)
    """
    if (width is None) == (not duration):
        raise ValueError(
            f"within({column!r}) needs one width: a number, a timedelta, or keywords such as "
            f"days=365, got width={width!r} and {duration}"
        )
    check_flag("before", before)
    given: Any = width
    if width is None:
        try:
            given = timedelta(**duration)
        except (TypeError, OverflowError) as error:
            raise ValueError(
                f"within({column!r}) takes weeks, days, hours, minutes or seconds, as a timedelta "
                f"does, got {duration}"
            ) from error
    elif isinstance(width, np.timedelta64):
        given = width.astype("timedelta64[us]").item()
    of_times = isinstance(given, timedelta)
    length = given.total_seconds() if of_times else given
    if not is_real(length, 0, sys.float_info.max):
        raise ValueError(f"width must be a number or a time of at least 0, got {width or given!r}")
    return Within(_check_column(column), float(length), of_times, before)


@dataclass(frozen=True, eq=False)
class Distance:
    """The distance of two places on the earth, in metres, which a comparison makes a rule."""

    latitude: Any
    longitude: Any

    def __lt__(self, metres: float) -> Eligibility:
        return self._compare("<", metres)

    def __le__(self, metres: float) -> Eligibility:
        return self._compare("<=", metres)

    def __gt__(self, metres: float) -> Eligibility:
        return self._compare(">", metres)

    def __ge__(self, metres: float) -> Eligibility:
        return self._compare(">=", metres)

    def __eq__(self, metres: object) -> bool:
        """Raise a TypeError: computed distances are hardly ever equal."""
        raise TypeError(f"a distance is compared by <, <=, > or >=, got {self} and {metres!r}")

    __hash__ = None  # type: ignore[assignment]

    def _compare(self, sign: str, metres: float) -> Eligibility:
        if not is_real(metres, 0, sys.float_info.max):
            raise ValueError(f"a distance is compared with metres of at least 0, got {metres!r}")
        return Near(self.latitude, self.longitude, sign, float(metres))


def distance(latitude: Any, longitude: Any) -> Distance:
    """Compare the distance of a row from the query with a number of metres.

    The distance is that of a great circle on a globe of radius 6,371 km, which is within 0.6 % of
    the distance on the earth.

    Parameters
    ----------
    latitude, longitude : str or int
        Names of the columns, or their numbers in an array, of degrees.

    Returns
    -------
    Distance
        ``<``, ``<=``, ``>`` and ``>=`` with a number of metres return a rule.

    Examples
    --------
    >>> from nona_sklearn.eligibility import distance
    >>> distance("latitude", "longitude") < 1609
    distance('latitude', 'longitude') < 1609
    """
    check_order(latitude, longitude)
    return Distance(_check_column(latitude), _check_column(longitude))


def pairs(function: Callable[[dict, dict], Any], columns: Sequence[Any]) -> Eligibility:
    """Admit rows for which a function of the queries' and the rows' values returns True.

    Parameters
    ----------
    function : callable
        Takes two dicts, of arrays (n_queries,) and of arrays (n_rows,) by column, and returns
        bool of shape (n_queries, n_rows). Booleans are 0.0 and 1.0, and dates with a time zone are
        in UTC. A saved file cannot hold a function.
    columns : sequence of str or int
        Names of the columns that the function reads, at least one.

    Returns
    -------
    Eligibility
        The rule.

    Examples
    --------
    >>> from nona_sklearn.eligibility import pairs
    >>> def no_more_rooms(queries, rows):
    ...     return rows["rooms"] <= queries["rooms"][:, None]
    >>> pairs(no_more_rooms, columns=["rooms"])
    pairs(no_more_rooms, 'rooms')
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {function!r:.100}")
    if isinstance(columns, str) or len(columns) == 0:
        raise ValueError(f"columns must be a list of at least one column, got {columns!r}")
    return Pairs(function, tuple(map(_check_column, columns)))


def _check_column(column: Any) -> Any:
    if isinstance(column, tuple) and column:
        return tuple(map(_check_column, column))
    if not isinstance(column, str | Integral) or isinstance(column, bool):
        raise TypeError(f"a column must be named by a str, an int or a tuple, got {column!r:.100}")
    return str(column) if isinstance(column, str) else int(column)
