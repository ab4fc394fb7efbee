"""Labelled neighbours, and who must not meet whom."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .._utils.threads import cached_property


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Labelled neighbours: what a pool hands to a training step, and what a bank holds.

    Parameters
    ----------
    embeddings : Tensor of shape (n, d)
        Where they are.
    values : Tensor of shape (n,) or (n, n_outputs)
        What is averaged.
    log_prior : Tensor of shape (n,), optional
        Logarithm of what each weighs before its similarity is looked at; None: all the same.
    unit : Tensor of shape () or (n_outputs,), or None
        What one of a head's adjustments is worth in units of the values; 1 in training. None:
        they were learned for other values, and leave these alone.
    """

    embeddings: Tensor
    values: Tensor
    log_prior: Tensor | None = None
    unit: Tensor | float | None = 1.0
    # What others prepare of the embeddings, from call to call; of no other embeddings.
    kept: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: Tensor | slice) -> Neighbors:
        """Select some of them."""
        prior = None if self.log_prior is None else self.log_prior[rows]
        return Neighbors(self.embeddings[rows], self.values[rows], prior, self.unit)

    def join(self, others: Neighbors) -> Neighbors:
        """Put others behind these."""
        prior = None
        if self.log_prior is not None or others.log_prior is not None:
            prior = torch.cat([self._prior, others._prior])
        return Neighbors(
            torch.cat([self.embeddings, others.embeddings]),
            torch.cat([self.values, others.values]),
            prior,
            self.unit,
        )

    @property
    def _prior(self) -> Tensor:
        """Logarithms of what they weigh beforehand: 0 where nobody says."""
        if self.log_prior is None:
            return self.embeddings.new_zeros(len(self))
        return self.log_prior

    @property
    def columns(self) -> Tensor:
        """Values in float64, a column for each output, (n, n_outputs)."""
        values = self.values.double()
        return values[:, None] if values.ndim == 1 else values

    @cached_property
    def summands(self) -> Tensor:
        """What predictions sum, :func:`with_ones` of the columns, (1 + n_outputs, n)."""
        return with_ones(self.columns)

    def with_values(self, values: Tensor) -> Neighbors:
        """Give them other values, not to be adjusted. What was kept of where they are holds."""
        others = replace(self, values=values, unit=None)
        others.kept.update(self.kept)
        return others


def with_ones(values: Tensor) -> Tensor:
    """Ones, whose weighted sum is that of the weights, and columns of values: (1 + c, n)."""
    return torch.cat([values.new_ones(1, len(values)), values.T])


@dataclass(frozen=True, eq=False)
class Exclusion:
    """Who must not meet whom: a query, no neighbour that bears its label.

    With row numbers or ids as labels nobody is its own neighbour, twins of it may be; with
    groups nobody meets its own group.

    Parameters
    ----------
    queries : int Tensor of shape (q,)
        Labels of the queries.
    neighbors : int Tensor of shape (n,)
        Labels of the neighbours.
    """

    queries: Tensor
    neighbors: Tensor

    @cached_property
    def _in_order(self) -> tuple[Tensor, Tensor]:
        return self.neighbors.sort()

    def pairs(self, queries: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Positions (p,) of a block's queries, and of the neighbours that each must not meet.

        Few as a rule, and found without a look at all pairs.
        """
        labels, order = self._in_order
        asked = self.queries[queries].contiguous()
        first = torch.searchsorted(labels, asked)
        count = torch.searchsorted(labels, asked, right=True) - first
        query = torch.arange(len(asked), device=asked.device).repeat_interleave(count)
        before = count.cumsum(0) - count  # pairs of the queries before
        place = torch.arange(len(query), device=asked.device) + (first - before)[query]
        return query, order[place]
