"""The bank: the rows stored at fit, their ids and names, and edits that make another bank."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.names import names_of_new
from .._utils.arrays import as_tensor
from .._utils.storable import storable
from .._utils.validation import check_all_known
from ..attention import AverageHead, NONAHead
from .distribution import Calibration
from .evaluation import Evaluation
from .neighbors import Exclusion, Neighbors

AS_THEY_ARE = "names", "numbered", "target_names", "calibration", "weight_unit"  # in a pickle


@storable
@dataclass(frozen=True, eq=False)
class NeighborBank:
    """Labelled rows by id. An edit makes a new bank, so that whoever reads the old may go on.

    All that an answer depends on beside the network is here, to be read at once.

    Parameters
    ----------
    neighbors : Neighbors
        Where the rows are and what they are worth.
    ids : int Tensor of shape (n,), optional
        Their numbers, ascending; those of the rows given to fit by default.
    next_id : int Tensor of shape (), optional
        The number of the next row. None is given twice.
    groups : int Tensor of shape (n,), optional
        Which of them belong together.
    names : object ndarray of shape (n,), optional
        What they are called; None: all go by their ids.
    numbered : bool, default=True
        Whether rows whose table says no name go by their ids, as the first ones did; otherwise
        they are "added <id>", since the first ones may have numbers for names.
    target_names : tuple of str, optional
        What the columns of their targets are called.
    calibration : Calibration, optional
        How their weighted targets become a predictive distribution.
    weight_unit : float, default=1.0
        What a row weighs, as fit takes weights, whose log prior is 0.
    """

    neighbors: Neighbors
    ids: Tensor = None  # type: ignore[assignment]  # never None once it is made
    next_id: Tensor = None  # type: ignore[assignment]
    groups: Tensor | None = None
    names: np.ndarray | None = None
    numbered: bool = True
    target_names: tuple[str, ...] | None = None
    calibration: Calibration | None = None
    weight_unit: float = 1.0

    def __repr__(self):
        return f"NeighborBank(n_rows={len(self)})"

    def __post_init__(self):
        if self.ids is None:
            vars(self)["ids"] = torch.arange(len(self), device=self.embeddings.device)
        if self.next_id is None:
            vars(self)["next_id"] = torch.tensor(len(self))

    def __len__(self) -> int:
        return len(self.neighbors)

    @property
    def embeddings(self) -> Tensor:
        """Where the rows are, (n, d)."""
        return self.neighbors.embeddings

    @property
    def targets(self) -> Tensor:
        """What they are worth, (n,) or (n, n_outputs)."""
        return self.neighbors.values

    @property
    def n_units(self) -> int:
        """How many rows, or groups of rows, can be left out."""
        return len(self) if self.groups is None else len(self.groups.unique())

    # -- asking --------------------------------------------------------------------------

    def evaluate(
        self,
        head: NONAHead | AverageHead,
        query: Tensor | None = None,
        leave_out: str = "itself",
    ) -> Evaluation:
        """Ask about queries, or about the bank's own rows.

        Parameters
        ----------
        head : NONAHead or AverageHead
            Gives the weights.
        query : Tensor of shape (q, d), optional
            Embeddings of the queries, who meet everybody. None: the bank's own rows.
        leave_out : {'itself', 'group'}, default='itself'
            Whom the bank's own rows do not meet: themselves, or their group, if they have one.
        """
        if query is not None:
            return Evaluation(head, self.neighbors, query)
        labels = self.ids if leave_out == "itself" or self.groups is None else self.groups
        return Evaluation(head, self.neighbors, self.embeddings, Exclusion(labels, labels))

    # -- editing -------------------------------------------------------------------------

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Where the rows of these ids are in the bank, shape of `ids`.

        Raises
        ------
        ValueError
            If there is no such row, naming up to ten that are not.
        """
        known = self.ids.cpu().numpy()
        check_all_known("ids", np.setdiff1d(ids, known).tolist())
        return np.searchsorted(known, ids)

    def positions_of_names(self, names: Sequence[Hashable]) -> np.ndarray:
        """Where all rows that are called so are in the bank, ascending.

        Raises
        ------
        ValueError
            If there is no such row, naming up to ten that are not.
        """
        known, wanted = self.names_of(slice(None)).tolist(), dict.fromkeys(names)
        borne = {*known}
        check_all_known("names", [name for name in wanted if name not in borne])
        return np.flatnonzero([name in wanted for name in known])

    def names_of(self, positions: np.ndarray | slice) -> np.ndarray:
        """What the rows at these positions are called, shape of `positions`."""
        names = self.ids.cpu().numpy() if self.names is None else self.names
        return names[positions]

    def add(self, neighbors: Neighbors, labels: np.ndarray | None = None) -> NeighborBank:
        """Return a bank with more rows, after those it has; each is a group by itself.

        Labels are what their table calls them; a row keeps its name from then on.
        """
        new = self.next_id + torch.arange(len(neighbors))
        names = names_of_new(labels, new.numpy(), self.names_of(slice(None)), self.numbered)
        if self.names is None and names.tolist() == new.tolist():
            joined = None
        else:
            joined = np.concatenate([self.names_of(slice(None)).astype(object), names])
        groups = self.groups
        if groups is not None:
            alone = groups.max() + 1 + torch.arange(len(neighbors), device=groups.device)
            groups = torch.cat([groups, alone])
        return replace(
            self,
            neighbors=self.neighbors.join(neighbors),
            ids=torch.cat([self.ids, new.to(self.ids)]),
            next_id=self.next_id + len(neighbors),
            groups=groups,
            names=joined,
        )

    def keep(self, positions: np.ndarray) -> NeighborBank:
        """Return a bank of the rows at these positions, in the order they have now."""
        return self.in_order(np.sort(positions))

    def in_order(self, positions: np.ndarray) -> NeighborBank:
        """Return a bank of the rows at these positions, in this order."""
        rows = torch.as_tensor(positions, device=self.ids.device)
        return replace(
            self,
            neighbors=self.neighbors[rows],
            ids=self.ids[rows],
            groups=None if self.groups is None else self.groups[rows],
            names=None if self.names is None else self.names[positions],
        )

    def with_targets(
        self, targets: Tensor, target_names: tuple[str, ...] | None = None
    ) -> NeighborBank:
        """Return a bank of the same rows, worth something else.

        Neither their adjustments nor their calibration hold any more.
        """
        neighbors = self.neighbors.with_values(targets)
        return replace(self, neighbors=neighbors, target_names=target_names, calibration=None)

    # -- pickling ------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Pickle from the CPU, as arrays: joblib maps those from disk with ``mmap_mode``."""
        tensors = {
            "embeddings": self.embeddings,
            "values": self.targets,
            "log_prior": self.neighbors.log_prior,
            "unit": self.neighbors.unit,
            "groups": self.groups,
        }
        if len(self) != self.next_id:  # else no row was removed: ids are row numbers
            tensors |= {"ids": self.ids, "next_id": self.next_id}
        arrays = {
            name: torch.as_tensor(t).cpu().numpy() for name, t in tensors.items() if t is not None
        }
        others = {name: getattr(self, name) for name in AS_THEY_ARE}
        return {"arrays": arrays, **others}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tensors = {name: as_tensor(array) for name, array in state["arrays"].items()}
        neighbors = Neighbors(
            tensors.pop("embeddings"),
            tensors.pop("values"),
            tensors.pop("log_prior", None),
            tensors.pop("unit", None),
        )
        others: dict[str, Any] = {name: state[name] for name in AS_THEY_ARE}
        made = NeighborBank(neighbors, **(tensors | others))
        made._check_shapes()
        vars(self).update(vars(made))

    def _check_shapes(self) -> None:
        """Refuse arrays that do not fit together, as those of a forged file."""
        if self.embeddings.ndim != 2 or self.ids.dtype != torch.int64 or self.next_id.ndim != 0:
            raise ValueError(
                "a bank has embeddings of shape (n, d), integers as ids and a next_id"
            )
        each_row = {
            "values": self.targets,
            "log_prior": self.neighbors.log_prior,
            "ids": self.ids,
            "groups": self.groups,
            "names": self.names,
        }
        for name, of in each_row.items():
            n_axes = (1, 2) if name == "values" else (1,)
            if of is not None and (of.ndim not in n_axes or len(of) != len(self)):
                raise ValueError(
                    f"{name} of a bank of {len(self)} rows cannot have shape {tuple(of.shape)}"
                )
