"""A trend of networks: their predictions from a bank, beside which rows are found elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .._data.sample import Embedded, TableRows
from .._network.network import NeighborNetwork, embed
from .._network.state import from_data, to_data
from .._trend.additive_trend import AdditiveFunction, additive_part
from .._utils.arrays import sparse_rows
from .._utils.storable import storable
from .._utils.threads import cached_property
from ..attention import ClassHead, NONAHead
from ..losses import log
from .bank import NeighborBank
from .evaluation import Evaluation
from .influence import changes_without
from .neighbors import Neighbors
from .weighted_rows import WeightedRows

DENSE_ROWS = 3000  # with changes of each value without each row


@storable
@dataclass(frozen=True, eq=False)
class NetworkTrend:
    """What networks predict from a bank, as a function of rows in the forms that both take.

    Of classes, it is the logarithm of their probabilities. The value at a row of the bank is the
    prediction without this row, or without its group.

    Parameters
    ----------
    network : NeighborNetwork
        The trained networks.
    bank : NeighborBank
        The rows that they predict from, with the trend that they stand beside.
    left_out : float64 Tensor of shape (n, n_outputs)
        The values at these rows.
    """

    network: NeighborNetwork
    bank: NeighborBank
    left_out: Tensor

    is_solved: ClassVar[bool] = True

    @classmethod
    def of(cls, network: NeighborNetwork, bank: NeighborBank) -> NetworkTrend:
        """Predict the rows of a bank, each without itself or its group."""
        found = cls(network, bank, bank.targets.new_empty(0))
        return replace(found, left_out=found._left_out(np.arange(len(bank))))

    @property
    def takes_table(self) -> bool:
        """As the trend that the networks stand beside."""
        return self.bank.trend is not None and self.bank.trend.takes_table

    def inputs_of(self, rows: TableRows) -> TableRows:
        """Both forms: the networks take encoded features."""
        return rows

    @property
    def is_data(self) -> bool:
        """As the trend that the networks stand beside."""
        return self.bank.trend is None or self.bank.trend.is_data

    def __call__(self, X: TableRows) -> Tensor:
        """Values at queries, (q, n_outputs) in float64, without gradients."""
        return values_of(self.bank.evaluate(self.network.head, self._queries(X)))

    def from_earlier(self, X: TableRows, limits: Tensor) -> Tensor:
        """Values at queries, each predicted from rows before a limit, (q,)."""
        return values_of(self.bank.evaluate(self.network.head, self._queries(X, limits)))

    def _queries(self, X: TableRows, times: Tensor | None = None) -> Embedded:
        return Embedded(embed(self.network, X.encoded), self.network, times=times, inputs=X)

    def of_rows(self, ids: np.ndarray, X: Any, limits: Tensor | None = None) -> np.ndarray:
        """Values at rows, (len(ids), n_outputs), of rows before a limit if there are limits."""
        rows = self.bank.positions(ids)
        if limits is None:
            return self.left_out[rows].cpu().numpy()
        return values_of(self._of_rows(rows, limits.cpu().numpy())).cpu().numpy()

    def _of_rows(self, rows: np.ndarray, limits: np.ndarray | None = None) -> Evaluation:
        """Evaluate rows of the bank, each without itself or its group."""
        leave_out = "itself" if self.bank.groups is None else "group"
        found = self.bank.evaluate_rows(self.network.head, rows, limits, leave_out)
        return found if self._keeps_residuals else replace(found, left_out=None)  # 0 of them count

    @property
    def _keeps_residuals(self) -> bool:
        """Whether the networks' neighbours count by residuals of the trend beside them."""
        offset = self.bank.neighbors.offset
        return offset is not None and offset.kept > 0

    def _left_out(self, rows: np.ndarray) -> Tensor:
        """Values at rows of the bank, (len(rows), n_outputs).

        Of a row that no other is earlier than, it is the target: nothing is known of its residual.
        """
        found = values_of(self._of_rows(rows))
        return torch.where(found.isnan(), self.bank.neighbors.columns[rows], found)

    def moved(self, ids: np.ndarray, X: TableRows) -> Tensor:
        """Values at rows if they had these features instead of theirs, (len(ids), n_outputs)."""
        rows = self.bank.positions(ids)
        own = self._of_rows(rows)
        query, offset = embed(self.network, X.encoded), self.bank.trend_at(rows, X)
        return values_of(replace(own, query=query, offset=offset, shifts=None))

    @property
    def leaves_out_single_rows(self) -> bool:
        """Whether residuals without a row are known: of numbers, whose heads have no bounds.

        Those of many rows, each of which all others have weight for, would take too much memory.
        """
        trend, neighbors, n_rows = self.bank.trend, self.bank.neighbors, len(self.bank)
        alone = self.bank.groups is None and neighbors.times is None
        bounds = self.bank.evaluate(self.network.head).bounds(n_rows)
        few = bounds is not None or n_rows <= DENSE_ROWS
        known = trend is None or trend.leaves_out_single_rows or not trend.is_solved
        linear = self._one_head.bounds is None and not isinstance(self._one_head, ClassHead)
        return alone and few and linear and known

    @property
    def _one_head(self) -> NONAHead:
        return self.bank.evaluate(self.network.head).one_head

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Residuals of some rows without each query, too, (q, len(ids), n_outputs).

        The networks' part of a row's value changes by that of a left-out prediction, and that of
        the trend beside them by its own formula, at the row and, where its neighbours' residuals
        are kept, at these. One that is not solved anew does not change.
        """
        rows, own = self.bank.positions(queries), self.bank.positions(ids)
        changes = [of_output[:, rows].toarray()[own].T for of_output in self._network_changes]
        found = residuals[None] - np.stack(changes, axis=2)
        if self.bank.trend is not None and self.bank.trend.is_solved:
            offset = self.bank.neighbors.offset
            assert offset is not None
            every, beside = (
                each.cpu().numpy() for each in (self.bank.ids, self.bank.neighbors.residuals)
            )
            by_trend = self.bank.trend.residuals_without(queries, every, beside) - beside
            if self._keeps_residuals:
                means = np.stack([self._weights @ of_query for of_query in by_trend])
                by_trend = by_trend - offset.kept * means
            found += np.array(self._one_head.credibility) * offset.share * by_trend[:, own]
        return found

    @cached_property
    def _weights(self) -> sparse.csr_array:
        """Weights of the rows in the values at each other, (n, n)."""
        return self._of_rows(np.arange(len(self.bank))).sparse_weights()

    @cached_property
    def _network_changes(self) -> list[sparse.csc_array]:
        """Changes of the values at all rows without each, by the same trend; for each output."""
        evaluation = replace(self._of_rows(np.arange(len(self.bank))), shifts=None)

        def of_block(_: slice, rows: WeightedRows) -> list[sparse.csr_array]:
            every = np.arange(rows.n_rows)
            positions = every if rows.positions is None else rows.positions.cpu().numpy()
            changes = (change.cpu().numpy() for change in changes_without(rows))
            return [sparse_rows(each, positions, each != 0, rows.n_rows) for each in changes]

        blocks = zip(*evaluation.map_weighted_rows(of_block), strict=True)
        return [sparse.vstack(of_output, format="csc") for of_output in blocks]

    @property
    def has_shifts(self) -> bool:
        """Whether :meth:`shifts` are known: unless rows are predicted from earlier ones."""
        return self.bank.neighbors.times is None

    def shifts(self, removed: np.ndarray, X: TableRows) -> np.ndarray:
        """By how much values at queries change without each row, (q, len(removed), n_outputs)."""
        return self._changes(self.bank.evaluate(self.network.head, self._queries(X)), removed)

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, X: Any, query: int | None = None
    ) -> np.ndarray:
        """The same of the values at rows, (len(ids), len(removed), n_outputs)."""
        return self._changes(self._of_rows(self.bank.positions(ids)), removed)

    def _changes(self, evaluation: Evaluation, removed: np.ndarray) -> np.ndarray:
        """Changes of an evaluation's values without each of some rows, by their ids."""
        changes = evaluation.changes()
        if isinstance(evaluation.one_head, ClassHead):
            before = evaluation.mean()[:, None]
            changes = log((before + changes).clamp_min(0.0)) - log(before)
        return changes[:, self.bank.positions(removed)].cpu().numpy()

    @cached_property
    def additive_part(self) -> AdditiveFunction:
        """The sum of functions of one feature each that is nearest to it at its rows.

        Of classes, to the log odds: even if these are a sum, logarithms of probabilities are not.
        """
        assert self.bank.inputs is not None
        values, head = self.left_out, self._one_head
        values = head.centred(values) if isinstance(head, ClassHead) else values
        return additive_part(self.bank.inputs, values.cpu().numpy(), self.bank.row_weights)

    def with_rows(
        self, ids: np.ndarray, X: TableRows, rows: Neighbors, groups: np.ndarray | None
    ) -> NetworkTrend:
        """With further rows, from which the networks predict, too.

        The values at the others stay those without them.
        """
        own = replace(rows, embeddings=embed(self.network, X.encoded))
        numbered = replace(self.bank, next_id=torch.tensor(ids[0]))
        bank = numbered.add(own, groups=groups, inputs=X)
        found = replace(self, bank=bank)
        values = found._left_out(np.arange(len(self.bank), len(bank)))
        return replace(found, left_out=torch.cat([self.left_out, values]))

    def without(self, ids: np.ndarray) -> NetworkTrend:
        """With fewer rows, each predicted anew."""
        kept = np.flatnonzero(~np.isin(self.bank.ids.cpu().numpy(), ids))
        if len(kept) == len(self.bank):
            return self
        return NetworkTrend.of(self.network, self.bank.keep(kept))

    def __getstate__(self) -> dict[str, Any]:
        """Store the network and the values as arrays."""
        state = {field.name: vars(self)[field.name] for field in fields(self)}
        left_out = self.left_out.cpu().numpy()
        return state | {"network": to_data(self.network), "left_out": left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        network, left_out = from_data(state["network"]), torch.as_tensor(state["left_out"])
        vars(self).update(state | {"network": network, "left_out": left_out})


def values_of(evaluation: Evaluation) -> Tensor:
    """Predictions of numbers, or logarithms of those of classes, (q, n_outputs)."""
    means = evaluation.mean()
    means = means[:, None] if means.ndim == 1 else means
    return log(means) if isinstance(evaluation.one_head, ClassHead) else means
