"""A trend of networks: their predictions from a bank, beside which rows are found elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .._data.sample import Embedded, TableRows
from .._network.network import NeighborNetwork, embed, from_data, to_data
from .._trend.additive_trend import AdditiveFunction, additive_part
from .._trend.trend import Trend
from .._utils.precision import stored
from .._utils.storable import storable
from .._utils.threads import cached_property
from .._utils.validation import some_of, spans, sparse_rows
from ..attention.head import AverageHead, ClassHead, NONAHead, heads_of
from ..losses import log
from .bank import NeighborBank
from .evaluation import Evaluation
from .index import BruteIndex
from .influence import changes_without
from .neighbors import Neighbors
from .shared_rows import without_rows
from .weighted_rows import WeightedRows

#: Of more rows with weights without end, changes of all values without every row take too much
#: memory.
DENSE_ROWS = 3000
ARRAYS = "left_out", "reach"  # in a file
#: Networks predict from all rows of a bank up to this size, and from a quarter of a larger one,
#: within a limit: to compare all rows with all takes too long.
MOST_ROWS, ROWS_A_SOURCE, MOST_SOURCES = 2**16, 4, 2**16
SOURCES_OF_ALL = 2**13  # of a larger bank, where all of them have weight: no search helps there
LEAST_SOURCES = 2**12  # if removed rows leave fewer, sources are drawn anew
PREDICTED_ROWS = 2**15  # rows at a time
MOST_CHANGED = 64  # if more than one of so many rows has come or left, all are predicted anew


def count_sources(n_rows: int) -> int:
    """Return from how many rows of a bank networks predict, as a trend."""
    return n_rows if n_rows <= MOST_ROWS else min(n_rows // ROWS_A_SOURCE, MOST_SOURCES)


def with_drawn_sources(bank: NeighborBank, head: NONAHead | AverageHead) -> NeighborBank:
    """Return a bank of many rows with random ones as sources, unless it has enough of them."""
    if bank.sources is not None and len(bank.sources) < LEAST_SOURCES:
        bank = replace(bank, sources=None)
    n_sources = count_sources(len(bank))
    if n_sources < len(bank) and head.most_nonzero(n_sources) is None:
        n_sources = min(n_sources, SOURCES_OF_ALL)
    if bank.sources is not None or n_sources == len(bank):
        return bank
    rows = np.sort(np.random.RandomState(0).permutation(len(bank))[:n_sources])
    return bank.with_sources(bank.ids[torch.from_numpy(rows)])


@storable
@dataclass(frozen=True, eq=False)
class NetworkTrend(Trend):
    """Predictions of networks from a bank, as a function of rows in both forms.

    For classes they are the logarithm of the probabilities. The value at a row of the bank is the
    prediction without this row, or without its group.
    """

    network: NeighborNetwork
    bank: NeighborBank  # the rows that it predicts from, with the trend beside it
    #: (n, n_outputs) in float64, the values at these rows. None: they are predicted where they are
    #: read, since the trend beside the networks has changed.
    left_out: Tensor | None
    #: (n, K), the similarity to each row from which rows matter for its value, of every network;
    #: None: all rows may matter.
    reach: Tensor | None = None
    #: The last sources, which the values at earlier rows do not have as neighbours.
    n_added: int = 0

    is_solved = True

    @classmethod
    def from_bank(cls, network: NeighborNetwork, bank: NeighborBank) -> NetworkTrend:
        """Predict the rows of a bank, each without itself or its group."""
        trend = cls(network, with_drawn_sources(bank, network.head), None)
        left_out, reach = trend._left_out(np.arange(len(bank)))
        return replace(trend, left_out=left_out, reach=reach)

    @property
    def takes_table(self) -> bool:
        """Whether the trend beside the networks reads rows of the table as they were given."""
        return self.bank.trend is not None and self.bank.trend.takes_table

    @property
    def networks(self) -> tuple[NeighborNetwork, NeighborBank]:
        """The networks and the bank that they predict from."""
        return self.network, self.bank

    def __call__(self, rows: TableRows) -> Tensor:
        """Values at queries, (q, n_outputs) in float64, without gradients."""
        if (values := self._known.get(rows)) is None:
            values = values_of(self.bank.evaluate(self.network.head, self._queries(rows)))
            self._known[rows] = values
        return values

    @cached_property
    def _known(self) -> WeakKeyDictionary[TableRows, Tensor]:
        """Values at the queries that are still in use, such as for a second answer about them."""
        return WeakKeyDictionary()

    def from_earlier(self, rows: TableRows, cutoff_times: Tensor) -> Tensor:
        queries = replace(self._queries(rows), times=cutoff_times)
        return values_of(self.bank.evaluate(self.network.head, queries))

    def _queries(self, rows: TableRows) -> Embedded:
        return Embedded(embed(self.network, rows.encoded), self.network, inputs=rows)

    def of_rows(
        self, ids: np.ndarray, rows: TableRows | None, cutoff_times: Tensor | None = None
    ) -> np.ndarray:
        positions = self.bank.positions(ids)
        if cutoff_times is None:
            return self._at_rows(positions).cpu().numpy()
        return values_of(self._evaluate_rows(positions, cutoff_times.cpu().numpy())).cpu().numpy()

    def _evaluate_rows(
        self, positions: np.ndarray, cutoff_times: np.ndarray | None = None
    ) -> Evaluation:
        """Evaluate rows of the bank, each without itself or its group."""
        leave_out = "itself" if self.bank.groups is None else "group"
        head = self.network.head
        evaluation = self.bank.evaluate_rows(head, positions, cutoff_times, leave_out)
        if self._keeps_residuals:
            return evaluation
        return replace(evaluation, left_out=None)  # residuals count 0

    @property
    def _keeps_residuals(self) -> bool:
        """Whether the networks' neighbours count by residuals of the trend beside them."""
        offset = self.bank.neighbors.offset
        return offset is not None and offset.kept > 0

    def _at_rows(self, positions: np.ndarray) -> Tensor:
        """Values at rows of the bank, (len(positions), n_outputs)."""
        return self._left_out(positions)[0] if self.left_out is None else self.left_out[positions]

    def _left_out(self, positions: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """Values at rows of the bank, (len(positions), n_outputs), and their reach.

        Where no row is earlier, the value is the target: nothing is known of the residual. What is
        found for all of many rows would take more memory than the bank.
        """
        values, reach = [], []
        for block in spans(len(positions), PREDICTED_ROWS) or [slice(0, 0)]:
            evaluation = self._evaluate_rows(positions[block])
            of_block, found = values_of(evaluation), evaluation.search()
            targets = self.bank.neighbors.columns[positions[block]]
            values.append(torch.where(of_block.isnan(), targets, of_block))
            if found is not None and not any(part.depends_on_all for part in found):
                similarities = torch.stack([part.similarity[:, -1] for part in found], dim=1)
                reach.append(stored(similarities))
        return torch.cat(values), torch.cat(reach) if len(reach) == len(values) else None

    def moved(self, ids: np.ndarray, rows: TableRows) -> Tensor:
        positions = self.bank.positions(ids)
        evaluation = self._evaluate_rows(positions)
        query, offset = embed(self.network, rows.encoded), self.bank.trend_at(positions, rows)
        return values_of(replace(evaluation, query=query, query_trend=offset, shifts=None))

    @property
    def leaves_out_single_rows(self) -> bool:
        """Whether residuals without a row are known: of numbers, whose heads have no bounds.

        Where all of many rows have weight, these residuals would take too much memory.
        """
        trend, neighbors, n_rows = self.bank.trend, self.bank.neighbors, len(self.bank)
        alone = self.bank.groups is None and neighbors.times is None
        evaluation = self.bank.evaluate(self.network.head)
        head, bounds = evaluation.one_head, evaluation.bounds(n_rows)
        fits_memory = bounds is not None or n_rows <= DENSE_ROWS
        is_trend_known = trend is None or trend.leaves_out_single_rows or not trend.is_solved
        is_linear = head.bounds is None and not isinstance(head, ClassHead)
        return alone and fits_memory and is_linear and is_trend_known

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Residuals of some rows without each query, too, (q, len(ids), n_outputs).

        The networks' part of a row's value changes by that of a left-out prediction, and that of
        the trend beside them by its own formula, at the row and, where its neighbours' residuals
        are kept, at these. One that is not solved anew does not change.
        """
        columns = self.bank.positions(ids)
        changes = [self._of_rows(output, queries)[columns].T for output in self._network_changes]
        result = residuals[None] - np.stack(changes, axis=2)
        if self.bank.trend is not None and self.bank.trend.is_solved:
            offset = self.bank.neighbors.offset
            assert offset is not None
            every = self.bank.ids.cpu().numpy()
            beside = self.bank.neighbors.residuals.cpu().numpy()
            by_trend = self.bank.trend.residuals_without(queries, every, beside) - beside
            if self._keeps_residuals:
                sources = self.bank.positions(self._sources.ids.cpu().numpy())
                means = np.stack([self._weights @ of_query[sources] for of_query in by_trend])
                by_trend = by_trend - offset.kept * means
            credibility = np.array(heads_of(self.network.head)[0].credibility)
            result += credibility * offset.share * by_trend[:, columns]
        return result

    @property
    def _sources(self) -> NeighborBank:
        """The rows from which the networks predict."""
        return self.bank.sources or self.bank

    def _of_rows(self, changes: Any, ids: np.ndarray) -> np.ndarray:
        """Columns of rows, of changes (..., n_sources) without each source: others change none."""
        sources = self._sources
        known = np.isin(ids, sources.ids.cpu().numpy())
        result = np.zeros((*changes.shape[:-1], len(ids)))
        some = changes[..., sources.positions(ids[known])]
        result[..., known] = some.toarray() if sparse.issparse(some) else some
        return result

    @cached_property
    def _weights(self) -> sparse.csr_array:
        """Weights of the sources in the values at all rows, (n, n_sources)."""
        return self._evaluate_rows(np.arange(len(self.bank))).sparse_weights()

    @cached_property
    def _network_changes(self) -> list[sparse.csc_array]:
        """Changes of all values without each source, (n, n_sources) for each output.

        The trend beside the networks stays the same.
        """
        evaluation = replace(self._evaluate_rows(np.arange(len(self.bank))), shifts=None)

        def of_block(rows: WeightedRows) -> list[sparse.csr_array]:
            every = np.arange(rows.n_rows)
            positions = every if rows.positions is None else rows.positions.cpu().numpy()
            changes = (change.cpu().numpy() for change in changes_without(rows))
            return [sparse_rows(change, positions, change != 0, rows.n_rows) for change in changes]

        blocks = zip(*evaluation.map_weighted_rows(of_block), strict=True)
        return [sparse.vstack(of_output, format="csc") for of_output in blocks]

    def shifts(self, removed: np.ndarray, rows: TableRows) -> np.ndarray:
        evaluation = self.bank.evaluate(self.network.head, self._queries(rows))
        return self._changes(evaluation, removed)

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, rows: TableRows, query: int | None = None
    ) -> np.ndarray:
        return self._changes(self._evaluate_rows(self.bank.positions(ids)), removed)

    def _changes(self, evaluation: Evaluation, removed: np.ndarray) -> np.ndarray:
        """Changes of an evaluation's values without rows, (q, len(removed), n_outputs)."""
        changes = evaluation.changes()
        if isinstance(evaluation.one_head, ClassHead):
            before = evaluation.mean()[:, None]
            changes = log((before + changes).clamp_min(0.0)) - log(before)
        by_output = changes.movedim(1, 2).cpu().numpy()
        return np.moveaxis(self._of_rows(by_output, removed), 2, 1)

    @cached_property
    def additive_part(self) -> AdditiveFunction:
        """The sum of functions of one feature each that is nearest to it at its rows.

        For classes it is nearest to the log odds: even if these are a sum, logarithms of
        probabilities are not.
        """
        assert self.bank.inputs is not None
        values, head = self._at_rows(np.arange(len(self.bank))), heads_of(self.network.head)[0]
        values = head.centred(values) if isinstance(head, ClassHead) else values
        return additive_part(self.bank.inputs, values.cpu().numpy(), self.bank.row_weights)

    def with_rows(
        self, ids: np.ndarray, rows: TableRows, neighbors: Neighbors, groups: np.ndarray | None
    ) -> NetworkTrend:
        """The trend with new rows, from which the networks predict as well, if they are few.

        The values at the earlier rows stay.
        """
        embedded = replace(neighbors, rows=embed(self.network, rows.encoded), offset=None)
        bank = self.bank.add(embedded, groups=groups, inputs=rows, ids=ids)
        if bank.sources is None and len(bank) > MOST_ROWS:
            bank = bank.with_sources(self.bank.ids)
        n_added = self.n_added + (len(ids) if bank.sources is None else 0)
        left_out, reach = replace(self, bank=bank)._left_out(np.arange(len(self.bank), len(bank)))
        known = self.reach is not None and reach is not None
        reach = torch.cat([self.reach, reach]) if known else None  # type: ignore[list-item]
        kept = self.left_out
        if kept is None and self.bank.sources is None:  # new rows would be neighbours
            kept = self._at_rows(np.arange(len(self.bank)))
        kept = None if kept is None else torch.cat([kept, left_out])
        if (np.diff(np.append(self.bank.ids[-1:].cpu().numpy(), ids)) < 0).any():
            order = bank.ids.argsort()
            bank = bank.in_order(order.cpu().numpy())
            kept, reach = some_of(kept, order), some_of(reach, order)
        return replace(self, bank=bank, left_out=kept, reach=reach, n_added=n_added)

    @property
    def grows(self) -> bool:
        return self.bank.sources is None

    def fixed(self) -> NetworkTrend:
        if not self.grows:
            return self
        return replace(self, bank=self.bank.with_sources(self.bank.ids), n_added=0)

    def covering(self, ids: np.ndarray, rows: TableRows, neighbors: Neighbors) -> NetworkTrend:
        lacking = torch.from_numpy(np.flatnonzero(~np.isin(ids, self.bank.ids.cpu().numpy())))
        if not len(lacking):
            return self
        some = ids[lacking.numpy()], rows[lacking], neighbors[lacking]
        return self.fixed().with_rows(*some, None)

    def renumbered(self, ids: np.ndarray) -> NetworkTrend:
        return replace(self, bank=self.bank.renumbered(ids, int(ids[-1]) + 1))

    def without(self, ids: np.ndarray) -> NetworkTrend:
        """The trend without some rows.

        The rows that these matter for are predicted anew, and those that added rows matter for;
        where the trend beside the networks is solved anew, all rows, as they are read.
        """
        before, sources = self.bank, self._sources.ids.cpu().numpy()
        removed = np.flatnonzero(np.isin(before.ids.cpu().numpy(), ids))
        if not len(removed):
            return self
        bank, positions = before.without(removed), torch.from_numpy(removed).to(before.device)
        gone = before.positions(sources[np.isin(sources, ids)])
        added = sources[len(sources) - self.n_added :]
        added = bank.positions(added[~np.isin(added, ids)])
        is_small = (len(gone) + len(added)) * MOST_CHANGED <= len(sources)
        beside = bank.trend
        is_solved_anew = beside is not None and beside.is_solved and beside is not before.trend
        is_small &= bank.sources is None or len(bank.sources) >= LEAST_SOURCES
        if self.reach is None or not is_small:
            return NetworkTrend.from_bank(self.network, bank)
        left_out = None
        if self.left_out is not None and not is_solved_anew:
            left_out = without_rows(self.left_out, positions)
        trend = replace(
            self,
            bank=bank,
            left_out=left_out,
            reach=without_rows(self.reach, positions),
            n_added=0,
        )
        if not len(gone) and not len(added):
            return trend
        embedded = (
            before.neighbors.rows[torch.from_numpy(gone).to(before.device)],
            bank.neighbors.rows[torch.from_numpy(added).to(bank.device)],
        )
        changed = trend._reached(torch.cat(embedded))
        values, reach = trend._left_out(changed.cpu().numpy())
        assert trend.reach is not None
        assert reach is not None
        trend.reach[changed] = reach
        if left_out is not None:
            left_out[changed] = values
        return trend

    def _reached(self, sources: Tensor) -> Tensor:
        """Ascending positions of the rows for whose values embedded rows may matter."""
        assert self.reach is not None
        head, reached = self.network.head, []
        indexes = self.bank.neighbors.searched_by("brute").indexes(head)
        parts = head.split_by_head(sources, sources)
        for (part, z, _), index, similarity in zip(parts, indexes, self.reach.T, strict=True):
            if not isinstance(index, BruteIndex):  # of a similarity of one's own
                return torch.arange(len(self.bank), device=sources.device)
            reached.append(index.reaching(part.metric_part(z), similarity))
        return torch.cat(reached).unique()

    def __getstate__(self) -> dict[str, Any]:
        """Store the network and the values as arrays."""
        state = {field.name: vars(self)[field.name] for field in fields(self)}
        arrays = {name: part.cpu().numpy() for name in ARRAYS if (part := state[name]) is not None}
        return state | {"network": to_data(self.network)} | arrays

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = {name: state[name] for name in ARRAYS if state.get(name) is not None}
        tensors = {name: torch.as_tensor(array) for name, array in arrays.items()}
        vars(self).update(state | {"network": from_data(state["network"])} | tensors)


def values_of(evaluation: Evaluation) -> Tensor:
    """Predictions of numbers, or logarithms of those of classes, (q, n_outputs)."""
    means = evaluation.mean()
    means = means[:, None] if means.ndim == 1 else means
    return log(means) if isinstance(evaluation.one_head, ClassHead) else means
