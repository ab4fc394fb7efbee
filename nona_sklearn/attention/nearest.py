"""Similarities to the nearest neighbours alone: all that training needs where weights are bounded.

They are found without gradient: ranked with gradient, all pairs would take several times as long.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ranking import largest
from ..similarity import l2, log_l2
from .functional import Pairs, Similarity


@dataclass(frozen=True)
class Nearest:
    """The k nearest neighbours of each query, nearest first, (q, k) each.

    Excluded ones are among them where fewer than k are admitted.
    """

    similarity: Tensor  # with gradient
    positions: Tensor
    excluded: Tensor  # bool

    def of(self, rows: Tensor) -> Tensor:
        """Rows (n, ...) of the neighbours, (q, k, ...)."""
        return gather_rows(rows, self.positions)


def find_nearest(
    function: Similarity, query: Tensor, neighbors: Tensor, excluded: Tensor | Pairs | None, k: int
) -> Nearest:
    """Find the k nearest neighbours without gradient, and compare them with gradient.

    Parameters
    ----------
    function : callable
        One of :mod:`nona_sklearn.similarity`'s functions, or any (q, d), (n, d) -> (q, n).
    query, neighbors : Tensor of shape (q, d) and (n, d)
        Their embeddings.
    excluded : bool Tensor of shape (q, n), Pairs or None
        The excluded pairs.
    k : int
        At most n.

    Returns
    -------
    Nearest
        The gradient at distance zero is zero.
    """
    if function not in (l2, log_l2):  # another one may compare all with all only
        similarity = function(query, neighbors)
        found, positions = _largest_admitted(similarity.detach().clone(), excluded, k)
        return Nearest(similarity.gather(1, positions), positions, found == -math.inf)
    nearness = _negative_squares(query.detach(), neighbors.detach())
    found, positions = _largest_admitted(nearness, excluded, k)
    squares = (query[:, None] - gather_rows(neighbors, positions)).square().sum(dim=2)
    squares = squares.clamp_min(torch.finfo(squares.dtype).tiny)  # where the gradient is zero
    similarity = -squares.sqrt() if function is l2 else squares.log() / -2
    return Nearest(similarity, positions, found == -math.inf)


def _negative_squares(query: Tensor, neighbors: Tensor) -> Tensor:
    """Negative squared distances (q, n), but for a summand of each query, by one product."""
    center = neighbors.mean(dim=0)  # as in rounded_l2
    query, neighbors = 2 * (query - center), neighbors - center
    return torch.addmm(-neighbors.square().sum(dim=1), query, neighbors.T)


def _largest_admitted(
    nearness: Tensor, excluded: Tensor | Pairs | None, k: int
) -> tuple[Tensor, Tensor]:
    """The k largest of each row, (q, n), and their positions; those excluded are -inf."""
    if excluded is not None:
        nearness[excluded] = -math.inf
    return largest(nearness, k)


def gather_rows(rows: Tensor, positions: Tensor) -> Tensor:
    """Rows (n, ...) at positions (q, k): (q, k, ...)."""
    found = rows.index_select(0, positions.flatten())  # its gradient is faster than that of []
    return found.view(*positions.shape, *rows.shape[1:])
