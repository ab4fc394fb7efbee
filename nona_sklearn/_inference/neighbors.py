"""The table of neighbours, excluded pairs of query and neighbour, and unknown levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.rule_columns import StoredRule
from .._data.splits import have_earlier
from .._trend.trend import Trend
from .._utils.precision import EXACT, exact, rounding_of_difference
from .._utils.storable import storable
from .._utils.threads import cached_property
from .._utils.validation import some_of, spans
from ..attention.functional import Excluded, Pairs, count_excluded
from ..attention.head import AverageHead, NONAHead, prior_mean
from ..attention.prediction import Offset
from .index import Admission, GraphIndex, Index, make_index
from .shared_rows import SharedRows, without_rows

FEW_ROWS = 2**15  # a mask of all is as fast as a rule for each query's own rows
CACHED_PAIRS = 2**18  # of which a cache holds the columns and the mask
MOST_REACHED = 0.25  # of the rows, from which to compare all takes no longer than to select


@dataclass
class Cache:
    """Indexes of embedded rows: they are built for the first search, and stay with the rows."""

    rows: SharedRows
    indexes: dict[tuple, list[Index]] = field(default_factory=dict)
    #: Those of the rows before edits, from which an index is made where it can follow the edits.
    earlier: dict[tuple, list[Index]] = field(default_factory=dict)
    graphs: list[np.ndarray] | None = None  # of a file, until an index is made of them
    n_rows: int = -1  # of these graphs; by default of all rows

    def __post_init__(self):
        if self.n_rows < 0:
            self.n_rows = len(self.rows.memory)

    def after_edits(self, rows: SharedRows) -> Cache:
        """The cache of the rows after edits."""
        if rows.origin is not self.rows.origin:
            return Cache(rows)
        return Cache(rows, {}, self.earlier | self.indexes, self.graphs, self.n_rows)

    def find(
        self, key: tuple, columns: Callable[[], list[SharedRows]], make: Callable[..., Index]
    ) -> list[Index]:
        """Indexes of columns of the rows; those that no earlier one becomes are made."""
        if key not in self.indexes:
            parts = columns()
            earlier = self.earlier.get(key, [None] * len(parts))
            of_file: Sequence[Any] = [None] * len(parts)
            if key[0] == "hnsw" and self.graphs is not None:
                of_file, self.graphs = self.graphs, None
            self.indexes[key] = [
                (index and index.after_edits(part)) or make(i, part, graph, self.n_rows)
                for i, (index, part, graph) in enumerate(zip(earlier, parts, of_file, strict=True))
            ]
            self.earlier.pop(key, None)
        return self.indexes[key]


@dataclass(eq=False)
class Neighbors:
    """Labelled neighbours, as a pool passes them to a training step and a bank stores them."""

    rows: Any  # SharedRows, the embedded rows, (n, d), which may be given as a tensor
    values: Tensor  # (n,) or (n, n_outputs), their targets, of which weighted means are taken
    log_prior: Tensor | None = None  # (n,), of their sample weights; None: all are equal
    #: Of a head's adjustments g, in units of the values, for each output; 1 in training. None: g
    #: was learned for other values, and these are not adjusted.
    adjustment_scale: Tensor | float | None = 1.0
    algorithm: Any = "auto"  # how the nearest are found, as the estimators' parameter
    times: Tensor | None = None  # (n,) in float64
    compared: Tensor | None = None  # (n, n_columns), of the columns that rules compare
    offset: Offset | None = None  # the trend at them; None: there is none, as in training
    cache: Cache = field(default=None, repr=False)  # type: ignore[assignment]  # of the rows

    def __post_init__(self):
        if isinstance(self.rows, Tensor):
            self.rows = SharedRows(self.rows)
        if self.cache is None or self.cache.rows is not self.rows:
            self.cache = Cache(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def embeddings(self) -> Tensor:
        """Embeddings of the rows, (n, d)."""
        return self.rows.tensor

    def __getitem__(self, rows: Tensor | slice) -> Neighbors:
        """Select some of them."""
        return replace(
            self,
            rows=SharedRows(self.rows[rows]),
            values=self.values[rows],
            log_prior=some_of(self.log_prior, rows),
            times=some_of(self.times, rows),
            compared=some_of(self.compared, rows),
            offset=self.offset if self.evaluates_late else some_of(self.offset, rows),
        )

    def join(self, others: Neighbors) -> Neighbors:
        """Append others."""
        prior, times, compared, offset = None, None, None, None
        if self.log_prior is not None or others.log_prior is not None:
            prior = torch.cat([self._prior(), others._prior()])
        if self.times is not None and others.times is not None:
            times = torch.cat([self.times, others.times])
        if self.compared is not None and others.compared is not None:
            compared = torch.cat([self.compared, others.compared])
        if self.evaluates_late:
            offset = self.offset  # which the bank replaces
        elif self.offset is not None and others.offset is not None:
            values = torch.cat([self.offset.values, others.offset.values])
            offset = replace(self.offset, values=values)
        rows = self.rows.extended(others.embeddings)
        return replace(
            self,
            rows=rows,
            values=torch.cat([self.values, others.values]),
            log_prior=prior,
            times=times,
            compared=compared,
            offset=offset,
            cache=self.cache.after_edits(rows),
        )

    def without(self, positions: Tensor) -> Neighbors:
        """Remove those at some positions, (r,) ascending."""

        def left(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else without_rows(tensor, positions)

        rows, offset = self.rows.without(positions), self.offset
        if offset is not None and not self.evaluates_late:
            offset = replace(offset, values=without_rows(offset.values, positions))
        return replace(
            self,
            rows=rows,
            values=without_rows(self.values, positions),
            log_prior=left(self.log_prior),
            times=left(self.times),
            compared=left(self.compared),
            offset=offset,
            cache=self.cache.after_edits(rows),
        )

    def _prior(self) -> Tensor:
        if self.log_prior is not None:
            return self.log_prior
        return self.rows.memory.tensor.new_zeros(len(self))

    @cached_property
    def columns(self) -> Tensor:
        """Values in float64, a column for each output, (n, n_outputs)."""
        values = exact(self.values)
        return values[:, None] if values.ndim == 1 else values

    @property
    def evaluates_late(self) -> bool:
        """Whether a trend is evaluated at the neighbours where it is read.

        Selected neighbours and edited ones get its values from the bank.
        """
        return self.offset is not None and not isinstance(self.offset.values, Tensor)

    @property
    def residuals(self) -> Tensor:
        """Values minus the trend at the neighbours, (n, n_outputs)."""
        assert self.offset is not None
        return self.columns - self.offset.values[:]

    @property
    def variance(self) -> Tensor:
        """Variance of each output's values, (n_outputs,)."""
        return self.columns.var(dim=0, correction=0)

    @property
    def spread(self) -> Tensor:
        """Standard deviation of each output's values, (n_outputs,); 1 if they are all equal."""
        variance = self.variance
        return torch.where(variance > 0, variance.sqrt(), 1.0)

    def searched_by(self, algorithm: Any) -> Neighbors:
        """The same neighbours, found by another algorithm."""
        return self if algorithm is self.algorithm else replace(self, algorithm=algorithm)

    def with_offset(self, offset: Offset | None) -> Neighbors:
        """The same neighbours with another trend, or without one."""
        return replace(self, offset=offset)

    def with_numbers(self, **numbers: Any) -> Neighbors:
        """The same neighbours beside a trend with these numbers: see `Offset`."""
        assert self.offset is not None
        return self.with_offset(replace(self.offset, **numbers))

    def after(
        self, limits: Tensor | None, labels: LabelExclusion | None = None
    ) -> Exclusion | None:
        """Exclude labels, and all that are not before queries' limits (q,), if these are given."""
        if self.times is None or limits is None or len(limits) == 0:
            return labels
        if labels is None and self.times.amax() < limits.amin():
            return None
        return TimeExclusion(limits, self.times, labels=labels)

    def split_by_head(
        self, head: NONAHead | AverageHead, query: Tensor
    ) -> list[tuple[NONAHead, Tensor, Any]]:
        """Each network's head, with the queries and the rows in its space."""
        parts = head.split_by_head(query, self.rows.memory.tensor)
        return [(part, of_queries, self.rows.like(z)) for part, of_queries, z in parts]

    def indexes(self, head: NONAHead | AverageHead) -> list[Index]:
        """An index for each of a head's networks, built when it is first needed."""
        parts = self.split_by_head(head, self.rows.memory.tensor[:0])
        algorithm = self.algorithm if isinstance(self.algorithm, str) else id(self.algorithm)
        similarities = [part.similarity for part, _, _ in parts]

        def make(i: int, rows: SharedRows, *graph: Any) -> Index:
            return make_index(self.algorithm, similarities[i], rows, *graph)

        def compared() -> list[Any]:
            return [part.metric_part(z) for part, _, z in parts]

        return self.cache.find((algorithm, *similarities), compared, make)

    def joint_index(self, head: NONAHead | AverageHead, similarity: str, algorithm: str) -> Index:
        """An index of the rows in all networks' spaces side by side."""

        def make(_: int, rows: SharedRows, *graph: Any) -> Index:
            return make_index(algorithm, similarity, rows, *graph)

        def compared() -> list[SharedRows]:
            return [self.rows.like(head.metric_part(self.rows.memory.tensor))]

        return self.cache.find(("joint", algorithm, similarity), compared, make)[0]

    def graphs(self) -> list[np.ndarray] | None:
        """The graphs of the indexes as arrays of bytes; None if there are none of all rows."""
        for key, indexes in [*self.cache.indexes.items()]:
            if key[0] == "hnsw":
                graphs = [index.serialized() for index in indexes if isinstance(index, GraphIndex)]
                return [graph for graph in graphs if graph is not None] or None
        is_of_all = self.cache.n_rows == len(self.rows.memory) and not len(self.rows.gaps)
        return self.cache.graphs if is_of_all else None


@dataclass(frozen=True, eq=False)
class LabelExclusion:
    """Exclude the neighbours that have the query's label.

    Row numbers or ids, as labels, exclude each row from its own neighbours, but not its twins;
    groups exclude all rows of its group.
    """

    queries: Tensor  # (q,), labels
    neighbors: Tensor  # (n,), labels

    def __getitem__(self, rows: Tensor | np.ndarray | slice) -> LabelExclusion:
        return replace(self, queries=self.queries[rows])

    def among(self, rows: Tensor) -> LabelExclusion:
        return replace(self, neighbors=self.neighbors[rows])

    def of(self, queries: slice | Tensor = slice(None)) -> Pairs:
        """Positions (p,) of queries and of neighbours, which are found without all pairs."""
        labels, order = self._sorted
        wanted = self.queries[queries].contiguous()
        first = torch.searchsorted(labels, wanted)
        count = torch.searchsorted(labels, wanted, right=True) - first
        query = torch.arange(len(wanted), device=wanted.device).repeat_interleave(count)
        before = count.cumsum(0) - count  # pairs of previous queries
        rank = torch.arange(len(query), device=wanted.device) + (first - before)[query]
        return query, order[rank]

    def at(self, positions: Tensor) -> Tensor:
        return self.neighbors[positions] == self.queries[:, None]

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """Ascending labels of the neighbours, and their positions, for all blocks of queries."""
        labels = self.neighbors
        if bool((labels[1:] >= labels[:-1]).all()):  # as ids are
            return labels.contiguous(), torch.arange(len(labels), device=labels.device)
        return labels.sort()

    def isolated(self) -> None:
        return None


@dataclass(frozen=True, eq=False)
class TimeExclusion:
    """Exclude the neighbours that are not earlier than a query's limit, and equal labels."""

    limits: Tensor  # (q,) in float64: a neighbour's time must be before it
    times: Tensor  # (n,) in float64, of the neighbours
    ends: Tensor | None = None  # (q,) in float64: in training, or after it
    labels: LabelExclusion | None = None

    def __getitem__(self, rows: Tensor | np.ndarray | slice) -> TimeExclusion:
        ends, labels = some_of(self.ends, rows), some_of(self.labels, rows)
        return TimeExclusion(self.limits[rows], self.times, ends, labels)

    def among(self, rows: Tensor) -> TimeExclusion:
        labels = None if self.labels is None else self.labels.among(rows)
        return replace(self, times=self.times[rows], labels=labels)

    def before(self, limits: Tensor) -> TimeExclusion:
        """The same with other limits, (q,)."""
        return replace(self, limits=limits)

    def of(self, queries: slice | Tensor = slice(None)) -> Tensor:
        """A mask (q, n)."""
        mask = self.times >= self.limits[queries, None]
        if self.ends is not None:
            mask &= self.times <= self.ends[queries, None]
        if self.labels is not None:
            mask[self.labels.of(queries)] = True
        return mask

    def at(self, positions: Tensor) -> Tensor:
        times = self.times[positions]
        mask = times >= self.limits[:, None]
        if self.ends is not None:
            mask &= times <= self.ends[:, None]
        return mask if self.labels is None else mask | self.labels.at(positions)

    def isolated(self) -> Tensor | None:
        """Which queries have no earlier neighbour, bool (q,); None if it is not known."""
        if self.ends is not None:  # there are later ones
            return None
        labels = () if self.labels is None else (self.labels.queries, self.labels.neighbors)
        return ~have_earlier(self.limits, self.times, *labels)


def as_mask(excluded: Excluded, n_queries: int, n_rows: int) -> Tensor:
    """Excluded pairs as a mask (n_queries, n_rows)."""
    if isinstance(excluded, Tensor):
        return excluded
    assert excluded is not None
    mask = torch.zeros(n_queries, n_rows, dtype=torch.bool, device=excluded[0].device)
    mask[excluded] = True
    return mask


def count_admitted(excluded: Pairs | Admission | None, n_queries: int, n_rows: int) -> Tensor:
    """Number of each query's admitted neighbours, (n_queries,)."""
    if excluded is None or isinstance(excluded, tuple):
        return n_rows - count_excluded(excluded, n_queries)
    if isinstance(excluded, RuleExclusion):
        described = excluded.described()
        has_rule = np.array([rule is not None for rule in described["rule"]], dtype=bool)
        return torch.from_numpy(described["n_eligible"] * has_rule)
    return (~excluded.of()).sum(dim=1)


@dataclass(frozen=True, eq=False)
class RuleExclusion:
    """Exclude the neighbours that a rule does not admit, and those of a further exclusion."""

    rule: StoredRule
    queries: Tensor  # (q, n_columns), numbers of the compared columns
    neighbors: Tensor  # (n, n_columns)
    further: LabelExclusion | TimeExclusion | None = None

    def __getitem__(self, rows: Tensor | np.ndarray | slice) -> RuleExclusion:
        further = some_of(self.further, rows)
        return replace(self, queries=self.queries[rows], further=further)

    def among(self, rows: Tensor | None) -> RuleExclusion:
        if rows is None:
            return self
        further = None if self.further is None else self.further.among(rows)
        return replace(self, neighbors=self.neighbors[rows], further=further)

    @cached_property
    def _reach(self) -> list[tuple[int, float]]:
        """Columns in which admitted rows are near a query, and how near: the nearest first."""
        names, reach = self.rule.columns.names, self.rule.rule.reach
        return [(names.index(name), reach[name]) for name in sorted(reach, key=reach.__getitem__)]

    @cached_property
    def _sorted(self) -> list[tuple[Tensor, Tensor]]:
        """Ascending numbers of the rows in these columns, missing ones last, and the rows."""
        columns = (self.neighbors[:, column].sort() for column, _ in self._reach)
        return [(found.values, found.indices) for found in columns]

    @cached_property
    def order(self) -> Tensor | None:
        """Queries in an order in which consecutive ones reach the same rows; None: all do."""
        if not self._reach:
            return None
        columns = [self.queries[:, column].cpu().numpy() for column, _ in reversed(self._reach)]
        return torch.from_numpy(np.lexsort(columns)).to(self.queries.device)

    def reached(self, queries: Tensor) -> Tensor | None:
        """Positions of the rows that may be admitted for some queries, (m,), ascending.

        None: these are most rows, so that to compare all takes no longer.
        """
        limits, reached = [], []
        for (column, most), (numbers, rows) in zip(self._reach, self._sorted, strict=True):
            of_queries = self.queries[queries, column]
            missing = of_queries.isnan()  # such a query has no row
            width = most + rounding_of_difference(of_queries, most)
            low = (of_queries - width).masked_fill(missing, math.inf).amin()
            high = (of_queries + width).masked_fill(missing, -math.inf).amax()
            first = int(torch.searchsorted(numbers, low))
            last = int(torch.searchsorted(numbers, high, right=True))
            limits.append((column, low, high))
            reached.append(rows[first:last])
        rows = min(reached, key=len)
        if len(rows) > MOST_REACHED * len(self.neighbors):
            return None
        for column, low, high in limits:
            numbers = self.neighbors[rows, column]
            rows = rows[(numbers >= low) & (numbers <= high)]
        # Ascending positions by a mask take less time than a sort.
        near = torch.zeros(len(self.neighbors), dtype=torch.bool, device=rows.device)
        near[rows] = True
        return near.nonzero()[:, 0]

    def before(self, limits: Tensor) -> RuleExclusion:
        """The same with other limits of the times, (q,)."""
        assert isinstance(self.further, TimeExclusion)
        return replace(self, further=self.further.before(limits))

    def of(self, queries: slice | Tensor = slice(None)) -> Tensor:
        """A mask (q, n)."""
        return ~self.rule(*self._pairs(queries))

    def at(self, positions: Tensor) -> Tensor:
        if len(self.neighbors) <= FEW_ROWS:
            return self.of().gather(1, positions)
        further = torch.zeros_like(positions, dtype=torch.bool)
        if self.further is not None:
            further = self.further.at(positions)
        return ~self.rule.of_some(self.queries, self.neighbors[positions], further)

    def _pairs(self, queries: slice | Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The compared columns of some queries and of all neighbours, and the excluded pairs."""
        some, further = self.queries[queries], None
        if self.further is not None:
            further = as_mask(self.further.of(queries), len(some), len(self.neighbors))
        return some, self.neighbors, further

    def isolated(self) -> Tensor:
        """Which queries have no neighbour, bool (q,)."""
        return self._isolated

    @cached_property
    def _isolated(self) -> Tensor:
        none = self.queries.new_zeros(0, dtype=torch.bool)
        return torch.cat([none, *(self.of(block).all(dim=1) for block in self._blocks)])

    @property
    def _blocks(self) -> list[slice]:
        """Blocks of queries whose pairs fit into a cache."""
        n_queries = max(1, CACHED_PAIRS // max(1, len(self.neighbors)))
        return [*spans(len(self.queries), n_queries)]

    def described(self) -> dict[str, np.ndarray]:
        """The number of eligible neighbours of each query, and the rule that holds, (q,).

        None: too few are eligible by the last rule.
        """
        parts = [self.rule.choose(*self._pairs(block)) for block in self._blocks]
        n_eligible, rules = zip(*parts, strict=True)
        return {"n_eligible": np.concatenate(n_eligible), "rule": np.concatenate(rules)}

    def places(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Degrees of the queries and of the neighbours, (q, 2) and (n, 2), if compared."""
        if (names := self.rule.rule.places) is None:
            return None
        columns = [self.rule.columns.names.index(name) for name in names]
        return self.queries[:, columns].cpu().numpy(), self.neighbors[:, columns].cpu().numpy()


@dataclass(frozen=True, eq=False)
class MaskExclusion:
    """Exclude the neighbours that a mask does not admit, and those of a further exclusion."""

    admitted: Tensor  # bool (q, n)
    further: LabelExclusion | TimeExclusion | None = None

    def __getitem__(self, rows: Tensor | np.ndarray | slice) -> MaskExclusion:
        return MaskExclusion(self.admitted[rows], some_of(self.further, rows))

    def among(self, rows: Tensor) -> MaskExclusion:
        further = None if self.further is None else self.further.among(rows)
        return MaskExclusion(self.admitted[:, rows], further)

    def of(self, queries: slice | Tensor = slice(None)) -> Tensor:
        """A mask (q, n)."""
        mask = ~self.admitted[queries]
        if self.further is not None:
            mask |= as_mask(self.further.of(queries), *mask.shape)
        return mask

    def at(self, positions: Tensor) -> Tensor:
        mask = ~self.admitted.gather(1, positions)
        return mask if self.further is None else mask | self.further.at(positions)

    def isolated(self) -> Tensor:
        """Which queries have no neighbour, bool (q,)."""
        return self.of().all(dim=1)

    def described(self) -> dict[str, np.ndarray]:
        """The number of neighbours that each query may have, (q,)."""
        return {"n_eligible": (~self.of()).sum(dim=1).cpu().numpy()}


#: Excluded pairs of queries and neighbours: `of` a block of queries, all at once. `[rows]` selects
#: queries, `among` selects neighbours; `isolated` are queries without a neighbour, if it is known.
Exclusion = LabelExclusion | TimeExclusion | RuleExclusion | MaskExclusion


@dataclass(frozen=True, eq=False)
class LeftOutQueries:
    """Rows of a bank as queries."""

    trend: Trend  # fitted to them
    neighbors: Neighbors  # the bank's rows
    ids: Tensor  # (n,), theirs
    queries: Tensor  # (q,), ids of the queries

    def __getitem__(self, queries: Tensor | slice) -> LeftOutQueries:
        return replace(self, queries=self.queries[queries])

    @cached_property
    def residuals(self) -> Tensor:
        """Residuals of the bank's rows from the trend without each query, (q, n, n_outputs)."""
        of_all = self.neighbors.residuals
        parts = (each.cpu().numpy() for each in (self.queries, self.ids, of_all))
        return torch.from_numpy(self.trend.residuals_without(*parts)).to(of_all)


@storable
@dataclass(frozen=True)
class UnknownLevels:
    """How unknown levels widen distributions of numbers, or level probabilities of classes.

    An unknown level adds a share of the variance of the targets to a variance. Several add the sum
    of their shares, but no more than 1, or the largest of them. The frequency of a class has a
    share in its probability, and of several unknown levels the largest share counts: copies of a
    category tell the same.
    """

    shares: tuple[tuple[float, ...], ...]  # of a category for every output, or every class
    amounts: tuple[float, ...]  # variance of every output, or frequency of every class
    of_classes: bool

    @classmethod
    def from_shares(cls, shares: Tensor, neighbors: Neighbors, of_classes: bool) -> UnknownLevels:
        """Shares (n_categories, n_outputs) of the variance or frequencies of neighbours."""
        amounts = neighbors.variance
        if of_classes:
            amounts = prior_mean(neighbors.columns, neighbors.log_prior)
        return cls(tuple(map(tuple, shares.tolist())), tuple(amounts.tolist()), of_classes)

    def with_targets(self, neighbors: Neighbors) -> UnknownLevels:
        """The same shares of new targets; the mean share, if their number of outputs differs."""
        shares = torch.tensor(self.shares, dtype=EXACT)
        n_outputs = neighbors.columns.shape[1]
        if len(self.amounts) != n_outputs:
            varied = torch.tensor(self.amounts) > 0
            mean = shares[:, varied].mean(dim=1, keepdim=True).nan_to_num(0.0)
            shares = mean.expand(-1, n_outputs)
        return UnknownLevels.from_shares(shares, neighbors, self.of_classes)

    def added(self, unknown: Tensor) -> Tensor:
        """The amounts for queries, (n_queries, n_outputs), by which levels are unknown."""
        shares = exact(unknown)[..., None] * torch.tensor(self.shares, dtype=EXACT)
        share = shares.amax(dim=1)
        if not self.of_classes:
            share = shares.sum(dim=1).minimum(share.clamp_min(1.0))
        return share * torch.tensor(self.amounts, dtype=EXACT)
