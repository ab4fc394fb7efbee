"""Rows of a bank in memory that the banks before and after an edit share.

What a bank reads is never changed: added rows are written behind its end, and removed rows stay
where they are, in a gap that later banks leave out. So an edit takes no time for the other rows,
and threads read the bank before an edit without a lock.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .._utils.threads import cached_property

SPARE = 8  # of the entries of a tensor that grows, one of so many is spare memory
LEAST_SPARE = 256  # entries
MOST_GAPS = 8  # one of so many rows in memory may be a gap, or the rows are copied
FEW = 64  # gaps between which to copy slices takes less time than to copy row by row


class GrowingTensor:
    """A tensor that is extended at the end of an axis, in memory that the longer one shares.

    Only its first extension is written behind its end; any further one is a copy.
    """

    def __init__(self, tensor: Tensor, axis: int = 0, memory: Tensor | None = None):
        self.tensor, self.axis = tensor, axis
        self._memory = [] if memory is None else [memory]  # until an extension takes it

    def __len__(self) -> int:
        return self.tensor.shape[self.axis]

    @torch.inference_mode(False)
    def extended(self, further: Tensor) -> GrowingTensor:
        """The tensor with further entries."""
        n, axis, memory = len(self), self.axis, None
        end = n + further.shape[axis]
        with suppress(IndexError):
            memory = self._memory.pop()  # of two threads, one takes it
        if memory is None or memory.shape[axis] < end:
            shape = [*self.tensor.shape]
            shape[axis] = end + max(LEAST_SPARE, end // SPARE)
            memory = self.tensor.new_empty(shape)
            memory.narrow(axis, 0, n).copy_(self.tensor)
        memory.narrow(axis, n, end - n).copy_(further)
        return GrowingTensor(memory.narrow(axis, 0, end), axis, memory)


class SharedRows:
    """Rows (n, d) that read like a tensor, in memory that later ones share.

    A row has a place in memory, and a position among the rows: without gaps, these are equal.
    """

    def __init__(
        self, memory: Tensor | GrowingTensor, gaps: Tensor | None = None, origin: Any = None
    ):
        self.memory = memory if isinstance(memory, GrowingTensor) else GrowingTensor(memory)
        #: Ascending places of removed rows, (r,).
        self.gaps = torch.arange(0, device=self.device) if gaps is None else gaps
        #: Rows of the same origin have equal rows in equal places.
        self.origin = object() if origin is None else origin

    def __len__(self) -> int:
        return len(self.memory) - len(self.gaps)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.memory.tensor.shape[1]

    @property
    def device(self) -> torch.device:
        return self.memory.tensor.device

    @cached_property
    def tensor(self) -> Tensor:
        """All rows, (n, d); copied on the first use, if there are gaps."""
        return without_rows(self.memory.tensor, self.gaps)

    def __getitem__(self, rows: Any) -> Any:
        """Some rows as a tensor; or all rows with some columns, by ``rows[..., columns]``."""
        if isinstance(rows, tuple):
            return self.like(self.memory.tensor[rows])
        if isinstance(rows, Tensor) and rows.dtype != torch.bool and len(self.gaps):
            return self.memory.tensor[self.places(rows)]
        return self.tensor[rows]

    def index_select(self, dim: int, positions: Tensor) -> Tensor:
        """Rows at some positions, (m,), of dimension 0."""
        return self.memory.tensor.index_select(dim, self.places(positions))

    def like(self, memory: Tensor) -> SharedRows:
        """Other columns of the same rows, given in all places, (n_places, d')."""
        return SharedRows(memory, self.gaps, self.origin)

    # -- places and positions --------------------------------------------------------------

    def places(self, positions: Tensor) -> Tensor:
        """Places of rows at some positions."""
        if not len(self.gaps):
            return positions
        return positions + torch.searchsorted(
            self._gaps_before, positions.contiguous(), right=True
        )

    @cached_property
    def _gaps_before(self) -> Tensor:
        """Positions of the rows behind the gaps, (r,)."""
        return self.gaps - torch.arange(len(self.gaps), device=self.gaps.device)

    def positions(self, places: Tensor) -> Tensor:
        """Positions of the rows at some places, none of which is a gap."""
        if not len(self.gaps):
            return places
        return places - torch.searchsorted(self.gaps, places.contiguous())

    def gaps_since(self, earlier: SharedRows) -> Tensor:
        """Places that are gaps now, and were rows of an earlier one of the same origin."""
        of_earlier = self.gaps[self.gaps < len(earlier.memory)]
        return of_earlier[torch.isin(of_earlier, earlier.gaps, invert=True)]

    def from_place(self, first: int) -> SharedRows:
        """The rows from a place in memory on."""
        gaps = self.gaps[self.gaps >= first] - first
        return SharedRows(GrowingTensor(self.memory.tensor[first:]), gaps, self.origin)

    # -- edits -----------------------------------------------------------------------------

    def extended(self, rows: Tensor) -> SharedRows:
        """These rows and further ones."""
        return SharedRows(self.memory.extended(rows), self.gaps, self.origin)

    def without(self, positions: Tensor) -> SharedRows:
        """The rows without those at some positions, ascending; a copy, if too many are gaps."""
        gaps = torch.cat([self.gaps, self.places(positions)]).sort().values
        if len(gaps) * MOST_GAPS > len(self.memory):
            return SharedRows(without_rows(self.memory.tensor, gaps))
        return SharedRows(self.memory, gaps, self.origin)


def without_rows(tensor: Tensor, positions: Tensor) -> Tensor:
    """A tensor without the rows at some positions, (r,) ascending; itself, if there are none."""
    if not len(positions):
        return tensor
    if len(positions) > FEW:
        kept = torch.ones(len(tensor), dtype=torch.bool, device=tensor.device)
        kept[positions] = False
        return tensor[kept]
    ends = [-1, *positions.tolist(), len(tensor)]
    return torch.cat([tensor[before + 1 : end] for before, end in pairwise(ends)])
