"""What predictions consist of, and the features in which rows differ from queries.

Reports of your own read these arrays. :func:`nona_sklearn.unwrap` returns what explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing
from torch import Tensor

from ._data.columns import Column, read_as, read_columns, read_strings, read_values
from ._data.row_values import as_array
from ._data.sample import Embedded
from ._data.table_encoder import TableEncoder
from ._data.table_encoding import TableEncoding
from ._data.tables import ends_of_outputs
from ._utils.globe import great_circle
from ._utils.tables import (
    are_row_numbers,
    free_name,
    index_of,
    is_frame,
    names_of_columns,
    plain_values,
    select_columns,
    stack_rows,
)
from ._utils.threads import cached_property
from ._utils.validation import is_missing

if TYPE_CHECKING:
    from ._inference.evaluation import Evaluation

__all__ = [
    "ComparedColumn",
    "Explanation",
    "compare_columns",
    "largest_differences",
    "ordered_values",
    "rows_of_bank",
    "table_of_rows",
]

OTHERS, NETWORK, TREND = "others", "network", "trend"  # names of lines that are no single row
TRANSFORMATION, QUERY = "transformation", "query"
LINE_FIELDS = "of_query", "positions", "names", "weights", "targets", "adjusted", "contributions"
NEGLIGIBLE = 1e-6  # share of a prediction that is only rounding
N_NAMED_COLUMNS = 3  # named as differing most
UNEQUAL = 1.0  # difference of two categories, in units of a number's spread
ORDERED = "number", "duration", "date"  # kinds of columns with differences
N_LISTED = 5  # rows or columns in a message


@dataclass(frozen=True)
class Explanation:
    """What predictions consist of, in lines: query by query, the heaviest neighbours first.

    After its neighbours, a query has a line for all remaining rows together, if they have any
    weight, and lines for the rest of its prediction, if there is any. The weights of a query sum
    to 1, and the contributions to its prediction. ``unwrap(model).explanation(X)`` returns it.

    Parameters
    ----------
    of_query : int ndarray of shape (n_lines,)
        The number of the query of each line, ascending.
    positions : int ndarray of shape (n_lines,)
        The positions of neighbours in the bank; -1 in a line that is no single row.
    names : ndarray of shape (n_lines,)
        The names of the lines.
    weights : ndarray of shape (n_lines,)
        The weights.
    targets, adjusted, contributions : ndarray of shape (n_lines, n_outputs)
        Targets, targets as they are adjusted to the query, and the amounts of the prediction.
        Targets are NaN in a line without weight. Those of classes are one-hot.
    queries : ndarray of shape (n_queries,)
        The names of the queries.
    taken : collection of label, default=()
        Names of the bank's rows, which no additional line may have.
    target_names : tuple of str, optional
        Names of the outputs. None: they have no names.
    stored_positions : int ndarray of shape (n_queries,), optional
        The positions of queries in the bank, and -1 for new ones. None: they are not known.
    places : tuple of ndarray of shape (n_queries, 2) and (n_rows, 2), optional
        Latitudes and longitudes, in degrees, of the queries and of the bank's rows. None: no rule
        compares places.

    Examples
    --------
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, unwrap
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> explanation = unwrap(knn.fit(X, y)).explanation([[84]])
    >>> explanation.names.tolist(), explanation.contributions.tolist()
    ([2, 3], [[200.0], [225.0]])
    """

    of_query: np.ndarray
    positions: np.ndarray
    names: np.ndarray
    weights: np.ndarray
    targets: np.ndarray
    adjusted: np.ndarray
    contributions: np.ndarray
    _: KW_ONLY
    queries: np.ndarray
    taken: Collection[Hashable] = ()
    target_names: tuple[str, ...] | None = None
    stored_positions: np.ndarray | None = None
    places: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def from_evaluation(
        cls,
        evaluation: Evaluation,
        k: int | None = None,
        *,
        votes: bool = False,
        names: np.ndarray | None = None,
        queries: np.ndarray | None = None,
        taken: Collection[Hashable] = (),
        target_names: tuple[str, ...] | None = None,
    ) -> Explanation:
        """Explain predictions by at most k neighbours each; None: by all that have weight.

        With `votes`, a neighbour contributes its weight to its class, the line "network" is the
        difference between the networks' prediction and all votes, and the line "trend" that
        between the prediction and the networks'. `names` are the names of all rows.
        """
        if k is None:
            k = max(evaluation.support_sizes().tolist(), default=1)
        weights, positions, adjusted = evaluation.heaviest(k)
        total = weights.sum(dim=1, keepdim=True)
        left = torch.where((total > 0) & (1 - total > NEGLIGIBLE), 1 - total, 0.0)
        # What is left by rounding to float32 belongs to the neighbours themselves.
        weights = torch.where(left > 0, weights, weights / total)
        targets = evaluation.neighbors.columns[positions]
        adjusted = targets if votes else adjusted
        listed = weights > 0
        of_query, rows = _array(listed.nonzero()[:, 0]), _array(positions[listed])
        explanation = cls(
            of_query,
            rows,
            (rows if names is None else names[rows]).astype(object),
            _array(weights[listed]),
            _array(targets[listed]),
            _array(adjusted[listed]),
            _array((weights[..., None] * adjusted)[listed]),
            queries=np.arange(len(evaluation)) if queries is None else queries,
            taken=taken,
            target_names=target_names,
        )
        explanation = explanation._with_others(evaluation, _array(left[:, 0]), votes)
        if not votes:
            return explanation
        if evaluation.query_trend is not None:
            networks = evaluation.without_trend()
            explanation = explanation._with_rest(NETWORK, _array(networks.mean()))
        name = NETWORK if evaluation.query_trend is None else TREND
        return explanation._with_rest(name, _array(evaluation.mean()))

    def _with_others(self, evaluation: Evaluation, left: np.ndarray, votes: bool) -> Explanation:
        """Add a line for all remaining rows of each query that leaves them some weight, (q,)."""
        queries = np.flatnonzero(left)
        if not len(queries):
            return self
        left = left[queries, None]
        plain = _array(evaluation[queries].plain_mean()).reshape(len(queries), -1)
        mean = plain if votes else _array(evaluation[queries].mean()).reshape(len(queries), -1)
        contributions = mean - self.totals(self.contributions)[queries]
        targets = plain - self.totals(self.weights[:, None] * self.targets)[queries]
        adjusted = evaluation.one_head.within_bounds(torch.from_numpy(contributions / left))
        return self._with_lines(
            OTHERS,
            queries,
            contributions,
            weights=left[:, 0],
            targets=targets / left,
            adjusted=adjusted.numpy(),
        )

    def _with_rest(
        self, name: str, predictions: np.ndarray, negligible: float | np.ndarray = NEGLIGIBLE
    ) -> Explanation:
        """Add a line for what is left of predictions (q, n_outputs), unless it is negligible."""
        rest = predictions - self.totals(self.contributions)
        queries = np.flatnonzero((abs(rest) > negligible).any(axis=1))
        return self._with_lines(name, queries, rest[queries])

    def of_single_rows(self) -> Explanation:
        """Leave out the lines that are no single row.

        Returns
        -------
        explanation : Explanation
        """
        return replace(self, **{name: getattr(self, name)[self.of_rows] for name in LINE_FIELDS})

    def in_units(self, inverse: Callable[[np.ndarray], np.ndarray]) -> Explanation:
        """Transform values of shape (m, n_outputs) to other units by `inverse`.

        Contributions remain weights times adjusted targets. The difference between the
        prediction, which is transformed as a whole, and their sum is a line "transformation".
        """
        adjusted = inverse(self.adjusted)
        contributions = self.weights[:, None] * adjusted
        targets = inverse(self.targets)
        made = replace(self, targets=targets, adjusted=adjusted, contributions=contributions)
        rounding = NEGLIGIBLE * made.totals(abs(contributions))
        predictions = inverse(self.totals(self.contributions))
        return made._with_rest(TRANSFORMATION, predictions, rounding)

    def with_queries(self) -> Explanation:
        """Add a first line for each query itself, which contributes nothing."""
        of_query = np.arange(len(self.queries))
        nothing = np.zeros((len(of_query), self.targets.shape[1]))
        return self._with_lines(QUERY, of_query, nothing, first=True)

    def _with_lines(
        self,
        name: str,
        of_query: np.ndarray,
        contributions: np.ndarray,
        *,
        first: bool = False,
        **values: np.ndarray,
    ) -> Explanation:
        """Add a line to some queries, before or after the lines that they have."""
        n_lines = len(of_query)
        gaps = np.full((n_lines, self.targets.shape[1]), np.nan)
        lines: dict[str, Any] = {
            "of_query": of_query,
            "positions": np.full(n_lines, -1),
            "names": np.full(n_lines, free_name(name, self.taken), dtype=object),
            "weights": np.zeros(n_lines),
            "targets": gaps,
            "adjusted": gaps,
            "contributions": contributions,
        } | values
        parts = [lines, vars(self)] if first else [vars(self), lines]
        order = np.argsort(np.concatenate([part["of_query"] for part in parts]), kind="stable")
        joined: dict[str, Any] = {
            field: np.concatenate([part[field] for part in parts])[order] for field in LINE_FIELDS
        }
        return replace(self, **joined)

    @property
    def of_rows(self) -> np.ndarray:
        """Whether lines are single rows of the bank, bool (n_lines,)."""
        return self.positions >= 0

    @property
    def first_lines(self) -> np.ndarray:
        """The first line of each query, int (n_queries,)."""
        return np.searchsorted(self.of_query, np.arange(len(self.queries)))

    @property
    def metres(self) -> np.ndarray | None:
        """Distances of rows from their queries on the earth, (n_lines,), or None without places.

        They are NaN in a line that is no single row.
        """
        if self.places is None:
            return None
        queries, rows = self.places
        distances = great_circle(queries[self.of_query], rows[self.positions])
        return np.where(self.of_rows, distances, np.nan)

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sum values over the lines of a query.

        Parameters
        ----------
        values : ndarray of shape (n_lines, n_columns)

        Returns
        -------
        sums : ndarray of shape (n_queries, n_columns)
        """
        sums = np.zeros((len(self.queries), values.shape[1]))
        np.add.at(sums, self.of_query, values)
        return sums

    def columns(self) -> dict[str, np.ndarray]:
        """Columns query, neighbor and weight of a table, (m,) each."""
        return {
            "query": self.queries[self.of_query],
            "neighbor": self.names,
            "weight": self.weights,
        }

    def target_columns(self) -> dict[str, np.ndarray]:
        """Columns target, adjusted_target and contribution of a table, (m,) each.

        With several outputs, they end in the outputs' names or numbers.
        """
        ends = ends_of_outputs(self.target_names, self.targets.shape[1])
        kinds = {
            "target": self.targets,
            "adjusted_target": self.adjusted,
            "contribution": self.contributions,
        }
        return {
            name + end: column
            for name, values in kinds.items()
            for end, column in zip(ends, values.T, strict=True)
        }


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().numpy()


# -- features of rows and queries --------------------------------------------------------------


@dataclass(frozen=True)
class ComparedColumn:
    """A column of the features, of the bank's rows and of queries.

    :func:`compare_columns` makes it.

    Parameters
    ----------
    name : str
        The name of the column, "x0" for the first column of an array.
    rows : ndarray of shape (n_rows,)
        The values of the bank's rows, as given.
    queries : ndarray of shape (n_queries,)
        The values of the queries, as given.
    read : tuple
        Both, as the estimators read them.
    is_feature : bool, default=True
        Whether the estimator learns from the column. The remaining ones do not differ.

    Examples
    --------
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> from nona_sklearn.explanation import compare_columns
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, max_iter=1).fit(X, y)
    >>> (column,) = compare_columns(knn, [[84]], X)
    >>> column.rows.tolist(), column.queries.tolist()
    ([50, 60, 80, 90, 120], [84])
    """

    name: str
    rows: np.ndarray
    queries: np.ndarray
    read: tuple[Column, Column]
    is_feature: bool = True

    @property
    def label(self) -> Any:
        """The name in the table, or the number of a column of an array."""
        return self.read[0].name

    @property
    def is_of_dates(self) -> bool:
        """Whether the values of the rows are dates."""
        return self.read[0].kind == "date"

    @property
    def is_ordered(self) -> bool:
        """Whether the values have differences: numbers, dates or durations."""
        return self.values[0].dtype.kind == "f"

    @cached_property
    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of rows and of queries as they are compared, (n_rows,) and (n_queries,).

        They are float64, with NaN for gaps, or objects, with None for gaps.
        """
        rows, queries = map(_numbers_in, self.read)
        if rows is not None and self.read[1].kind == "empty":  # the kind of the rows holds
            return rows, np.full(len(self.queries), np.nan)
        if rows is None or queries is None or self.read[0].kind != self.read[1].kind:
            return _categories_in(self.read[0]), _categories_in(self.read[1])
        return rows, queries

    def among_rows(self, positions: np.ndarray) -> ComparedColumn:
        """Compare rows of the bank with the bank.

        Parameters
        ----------
        positions : int ndarray of shape (n_queries,)
            The positions of the rows that become queries.

        Returns
        -------
        column : ComparedColumn
        """
        read = self.read[0]
        return replace(self, queries=self.rows[positions], read=(read, read[positions]))

    def differences(self, explanation: Explanation) -> np.ndarray:
        """Compare neighbours with their queries.

        Parameters
        ----------
        explanation : Explanation
            Lines of queries and neighbours.

        Returns
        -------
        differences : ndarray of shape (n_single_rows,)
            Absolute differences in units of the interquartile range of the bank's rows; 1 for
            different categories, and for a value beside a gap.
        """
        lines = explanation.of_rows
        if not self.is_feature:
            return np.zeros(np.count_nonzero(lines))
        of_rows, of_queries = self.values
        neighbor = of_rows[explanation.positions[lines]]
        query = of_queries[explanation.of_query[lines]]
        if not self.is_ordered:
            return UNEQUAL * np.not_equal(neighbor, query, dtype=object).astype(bool)
        n_gaps, known = np.isnan(neighbor).astype(int) + np.isnan(query), ~np.isnan(of_rows)
        differences = UNEQUAL * (neighbor != query)
        if known.any():
            numbers = of_rows[known]
            spread = np.subtract(*np.quantile(numbers, [0.75, 0.25])) or numbers.std()
            differences = abs(neighbor - query) / spread if spread else differences
        return np.select([n_gaps == 1, n_gaps == 2], [UNEQUAL, 0.0], differences)


def _numbers_in(column: Column) -> np.ndarray | None:
    """Return values of an ordered column as float64, with NaN for gaps; else None."""
    if column.kind not in ORDERED:
        return None
    if column.kind != "date":
        return column.values
    moments = column.values.astype(np.int64).astype(np.float64)
    return np.where(np.isnat(column.values), np.nan, moments)


def _categories_in(column: Column) -> np.ndarray:
    """Return the values of a column as objects, with None for gaps."""
    values = column.values.astype(object)
    if column.kind != "category":  # gaps of categories are None
        values[[is_missing(value) for value in values]] = None
    return values


def compare_columns(estimator: Any, X: Any, features: Any) -> list[ComparedColumn]:
    """Read the columns of the bank's rows and of queries in the same way.

    Parameters
    ----------
    estimator : estimator object
        A fitted estimator of this package.
    X : {DataFrame, array-like} of shape (n_queries, n_features), optional
        The queries. None: the bank's rows.
    features : {DataFrame, array-like} of shape (n_samples, n_features)
        The rows given to fit, followed by the rows of `add_neighbors`.

    Returns
    -------
    columns : list of ComparedColumn

    Examples
    --------
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, unwrap
    >>> from nona_sklearn.explanation import compare_columns
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> (column,) = compare_columns(knn.fit(X, y), [[84]], X)
    >>> column.differences(unwrap(knn).explanation([[84]])).round(2).tolist()
    [0.13, 0.2]
    """
    features = checked_table("features", features)
    positions = rows_of_bank(estimator.bank_, features)
    if X is not None:
        X = as_ordered(checked_table("X", X), features)
    read = [read_strings(column) for column in read_columns(features)]
    rows = [column[positions] for column in read]
    shown = [values[positions] for values in plain_values(features)]
    if X is None:
        queries, of_queries = rows, shown
    else:
        columns = read_columns(X, [column.time_zone for column in rows])
        queries = [read_as(*pair) for pair in zip(columns, rows, strict=True)]
        of_queries = [*plain_values(X)]
    named, ignored = is_frame(features), _ignored_columns(estimator, features)
    names = [str(row.name) if named else f"x{row.name}" for row in rows]
    parts = zip(names, shown, of_queries, zip(rows, queries, strict=True), strict=True)
    return [ComparedColumn(*part, j not in ignored) for j, part in enumerate(parts)]


def _ignored_columns(estimator: Any, features: Any) -> list[int]:
    """Numbers of the columns that are no features, if the estimator was fitted to this table.

    A pipeline may have made another one of it.
    """
    encoder, names = estimator.features_, getattr(estimator, "feature_names_in_", None)
    if names is not None and not (is_frame(features) and names_of_columns(features) == [*names]):
        return []
    return TableEncoding.of(encoder).ignored if isinstance(encoder, TableEncoder) else []


def largest_differences(explanation: Explanation, columns: list[ComparedColumn]) -> np.ndarray:
    """Find the columns in which rows differ most from their queries.

    Parameters
    ----------
    explanation : Explanation
        Lines of queries and neighbours.
    columns : list of ComparedColumn
        The columns of the bank's rows and of the queries.

    Returns
    -------
    numbers : int ndarray of shape (n_single_rows, 3)
        Numbers of columns, the largest difference first. If a row differs in fewer columns, the
        number of columns fills the places.

    Examples
    --------
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, unwrap
    >>> from nona_sklearn.explanation import compare_columns, largest_differences
    >>> X, y = [[50, 1], [60, 2], [80, 2], [90, 3]], [250, 300, 400, 450]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> columns = compare_columns(knn.fit(X, y), [[84, 2]], X)
    >>> largest_differences(unwrap(knn).explanation([[84, 2]]), columns).tolist()
    [[0, 2], [1, 0]]
    """
    by_column = np.stack([column.differences(explanation) for column in columns], axis=1)
    order = np.argsort(-by_column, axis=1, kind="stable")[:, :N_NAMED_COLUMNS]
    differs = np.take_along_axis(by_column, order, axis=1) > 0
    return np.where(differs, order, by_column.shape[1])


def ordered_values(name: str, values: Any) -> np.ndarray:
    """Read values of rows as numbers, dates or durations, which have an order, or else as texts.

    Parameters
    ----------
    name : str
        The name of the values in messages.
    values : array-like of shape (n_rows,)
        Numbers, dates, durations, or groups.

    Returns
    -------
    values : ndarray of shape (n_rows,)
        Numbers as float64, dates as datetime64 in UTC, durations as seconds, or texts as objects.

    Examples
    --------
    >>> from nona_sklearn.explanation import ordered_values
    >>> ordered_values("day", ["2024-02-01", "2024-01-01"]).astype("datetime64[D]").min()
    np.datetime64('2024-01-01')
    """
    column = read_values(name, values, "UTC")
    if column.kind in ORDERED:
        return column.values
    return np.array([str(value) for value in column.values], dtype=object)


# -- tables of features ------------------------------------------------------------------------


def checked_table(parameter: str, X: Any) -> Any:
    """Return a frame or an array of two axes, or raise an error."""
    wanted = f"{parameter} must be a table where features are given"
    if parameter == "features":
        wanted = "features must be the table given to fit, which the bank does not store"
    if X is None:
        raise ValueError(f"{wanted}, got None")
    if isinstance(X, Embedded):
        raise ValueError(f"{wanted}, got embeddings")
    if issparse(X):
        raise TypeError(
            f"{parameter} must be dense where features are given, got a sparse matrix: explain a "
            "pipeline by its own X, such as texts in a column of a DataFrame, see unwrap"
        )
    if is_frame(X, parameter):
        return X
    try:
        array = as_array(X)
    except ValueError as error:  # rows of several lengths, or images of several sizes
        raise ValueError(f"{wanted}, got {X!r:.100}") from error
    if array.ndim != 2:
        what = f"{X!r:.100}" if array.ndim == 0 else f"shape {array.shape}"
        raise ValueError(f"{wanted}, of shape (n_samples, n_features), got {what}")
    return array.astype(object) if array.dtype.kind in "UST" else array


def as_ordered(X: Any, features: Any) -> Any:
    """Return the queries, with their columns in the order of the features."""
    if is_frame(X) and is_frame(features):
        names, query_names = names_of_columns(features), names_of_columns(X)
        if {*names} == {*query_names}:
            return select_columns(X, names)
        missing = [name for name in query_names if name not in names]
        unknown = [name for name in names if name not in query_names]
        lists = {"it lacks": missing, "not in X are": unknown}
        which = ", and ".join(f"{what} {_listed(names)}" for what, names in lists.items() if names)
        raise ValueError(f"features must have the columns of X: {which}")
    if X.shape[1] != features.shape[1]:
        raise ValueError(
            f"features must have the columns of X, {X.shape[1]}, got {features.shape[1]}"
        )
    return X


def table_of_rows(bank: Any, features: Any, X: Any = None) -> Any:
    """Return the features of the bank's rows as a table.

    Parameters
    ----------
    bank : NeighborBank
        The attribute `bank_` of a fitted estimator.
    features : {DataFrame, array-like} of shape (n_samples, n_features)
        The rows given to fit, followed by the rows of `add_neighbors`.
    X : {DataFrame, array-like} of shape (n_queries, n_features), optional
        Queries that follow the rows.

    Returns
    -------
    table : {DataFrame, ndarray} of shape (n_rows + n_queries, n_features)

    Examples
    --------
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> from nona_sklearn.explanation import table_of_rows
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, max_iter=1).fit(X, y).remove_neighbors(ids=[1])
    >>> table_of_rows(knn.bank_, X, [[84]]).ravel().tolist()
    [50, 80, 90, 120, 84]
    """
    features = checked_table("features", features)
    rows = _safe_indexing(features, rows_of_bank(bank, features))
    return rows if X is None else stack_rows(rows, as_ordered(checked_table("X", X), features))


def rows_of_bank(bank: Any, features: Any) -> np.ndarray:
    """Find the rows of a bank among the rows given to fit, by their names or their ids.

    Parameters
    ----------
    bank : NeighborBank
        The attribute `bank_` of a fitted estimator.
    features : DataFrame, array or list
        The rows given to fit, followed by the rows of `add_neighbors`.

    Returns
    -------
    positions : int ndarray of shape (n_rows,)
        The positions of the bank's rows in `features`.

    Examples
    --------
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> from nona_sklearn.explanation import rows_of_bank
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, max_iter=1).fit(X, y).remove_neighbors(ids=[1])
    >>> rows_of_bank(knn.bank_, X).tolist()
    [0, 2, 3, 4]
    """
    ids, labels, n_rows = bank.ids.cpu().numpy(), index_of(features), len(features)
    if bank.names is not None and labels is not None:
        names = bank.names.tolist()
        if ids.max() < n_rows and labels[ids].tolist() == names:
            return ids
        positions = {label: i for i, label in enumerate(labels.tolist())}
        lacking = [name for name in names if name not in positions]
        if lacking and not are_row_numbers(labels):
            raise ValueError(
                f"features must have a row for each name in the bank, it lacks {_listed(lacking)}"
            )
        if not lacking and len(positions) < n_rows:
            repeated = [label for i, label in enumerate(labels) if positions[label] != i]
            raise ValueError(
                "features must have the rows given to fit in their order, or a different name "
                f"for each row, got several rows called {_listed(repeated)}"
            )
        if not lacking:
            return np.array([positions[name] for name in names])
    if lacking := ids[ids >= n_rows].tolist():  # ids are positions in a table of all given rows
        raise ValueError(
            "features must have the rows given to fit and then the added ones: it has "
            f"{n_rows} rows, and lacks those of the ids {_listed(lacking)}"
        )
    if n_rows > bank.next_id:
        raise ValueError(
            "features must have the rows given to fit and then the added ones, "
            f"{int(bank.next_id)} in all, got {n_rows}"
        )
    return ids


def about_stored_row(query: str, name: Any) -> str:
    """The sentence that tells readers that a query is the stored row `name`."""
    which = "is a stored row" if query == repr(name) else "has the features of the stored row"
    row = "" if query == repr(name) else f" {name!r:.100}"
    return f"{query:.100} {which}{row}, whose own target is part of the prediction"


def _listed(values: list) -> str:
    """Return the first values as text for a message."""
    shown = ", ".join(map(repr, values[:N_LISTED]))
    return shown if len(values) <= N_LISTED else f"{shown} and {len(values) - N_LISTED} more"
