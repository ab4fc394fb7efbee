"""A trend of networks: their predictions from a bank, beside which rows are found elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .._data.embedded import Embedded
from .._data.sample_weight import normalize_mean
from .._network.network import NeighborNetwork, embed
from .._network.state import from_data, to_data
from .._trend.additive_trend import AdditiveFunction, additive_part
from .._utils.storable import storable
from .._utils.threads import cached_property
from ..attention import ClassHead
from ..losses import log
from .bank import NeighborBank
from .evaluation import Evaluation
from .neighbors import Neighbors


@storable
@dataclass(frozen=True, eq=False)
class NetworkTrend:
    """What networks predict from a bank, as a function of the encoded features.

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

    takes_table: ClassVar[bool] = False
    is_solved: ClassVar[bool] = True
    #: Residuals of a row's neighbours are those beside the row: to predict each neighbour again
    #: without it would take as many predictions as neighbours.
    leaves_out_single_rows: ClassVar[bool] = False

    @classmethod
    def of(cls, network: NeighborNetwork, bank: NeighborBank) -> NetworkTrend:
        """Predict the rows of a bank, each without itself or its group."""
        evaluation = bank.evaluate(network.head, leave_out="group")
        return cls(network, bank, values_of(evaluation))

    @property
    def is_data(self) -> bool:
        """As the trend that the networks stand beside."""
        return self.bank.trend is None or self.bank.trend.is_data

    def __call__(self, X: Tensor) -> Tensor:
        """Values at queries (q, n_features), (q, n_outputs) in float64, without gradients."""
        return values_of(self.bank.evaluate(self.network.head, self._queries(X)))

    def from_earlier(self, X: Tensor, limits: Tensor) -> Tensor:
        """Values at queries, each predicted from rows before a limit, (q,)."""
        return values_of(self.bank.evaluate(self.network.head, self._queries(X, limits)))

    def _queries(self, X: Tensor, times: Tensor | None = None) -> Embedded:
        return Embedded(embed(self.network, X), self.network, times=times, inputs=X)

    def of_rows(self, ids: np.ndarray, X: Tensor, limits: Tensor | None = None) -> np.ndarray:
        """Values at rows, (len(ids), n_outputs), of rows before a limit if there are limits."""
        rows = self.bank.positions(ids)
        if limits is None:
            return self.left_out[rows].cpu().numpy()
        found = self.bank.evaluate_rows(self.network.head, rows, limits.cpu().numpy())
        return values_of(found).cpu().numpy()

    def moved(self, ids: np.ndarray, X: Tensor) -> Tensor:
        """Values at rows if they had these features instead of theirs, (len(ids), n_outputs)."""
        rows = self.bank.positions(ids)
        own = self.bank.evaluate_rows(self.network.head, rows)
        query, offset = embed(self.network, X), self.bank.trend_at(rows, X)
        return values_of(replace(own, query=query, offset=offset, left_out=None, shifts=None))

    def residuals_without(
        self, queries: np.ndarray, ids: np.ndarray, residuals: np.ndarray
    ) -> np.ndarray:
        """Refuse what would need predictions for each pair of rows."""
        raise NotImplementedError("neighbours are not predicted again without each row")

    @property
    def has_shifts(self) -> bool:
        """Whether :meth:`shifts` are known: unless rows are predicted from earlier ones."""
        return self.bank.neighbors.times is None

    def shifts(self, removed: np.ndarray, X: Tensor) -> np.ndarray:
        """By how much values at queries change without each row, (q, len(removed), n_outputs)."""
        return self._changes(self.bank.evaluate(self.network.head, self._queries(X)), removed)

    def shifts_of_rows(
        self, removed: np.ndarray, ids: np.ndarray, X: Tensor, query: int | None = None
    ) -> np.ndarray:
        """The same of the values at rows, (len(ids), len(removed), n_outputs)."""
        rows = self.bank.positions(ids)
        own = self.bank.evaluate(self.network.head)[rows]
        return self._changes(own, removed)

    def _changes(self, evaluation: Evaluation, removed: np.ndarray) -> np.ndarray:
        """Changes of an evaluation's values without each of some rows, by their ids."""
        changes = evaluation.changes()
        if isinstance(evaluation.one_head, ClassHead):
            before = evaluation.mean()[:, None]
            changes = log((before + changes).clamp_min(0.0)) - log(before)
        return changes[:, self.bank.positions(removed)].cpu().numpy()

    @cached_property
    def additive_part(self) -> AdditiveFunction:
        """The sum of functions of one feature each that is nearest to it at its rows."""
        assert self.bank.inputs is not None
        prior = self.bank.neighbors.log_prior
        weights = torch.ones(len(self.bank)) if prior is None else normalize_mean(prior)
        values = self.left_out.cpu().numpy()
        return additive_part(self.bank.inputs, values, weights.double().cpu().numpy())

    def with_rows(
        self, ids: np.ndarray, X: Tensor, rows: Neighbors, groups: np.ndarray | None
    ) -> NetworkTrend:
        """With further rows, from which the networks predict, too.

        The values at the others stay those without them.
        """
        own = replace(rows, embeddings=embed(self.network, X))
        bank = self.bank.add(own, groups=groups, inputs=X)
        found = bank.evaluate_rows(self.network.head, np.arange(len(self.bank), len(bank)))
        return replace(self, bank=bank, left_out=torch.cat([self.left_out, values_of(found)]))

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
    means = evaluation.mean().reshape(len(evaluation), -1)
    return log(means) if isinstance(evaluation.one_head, ClassHead) else means
