"""Ranking: the largest of many values, neighbours in order, and which are not among the nearest.

All ranks and all k nearest neighbours come from here, so that ties are broken alike everywhere.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["largest", "nearest_first", "outside_nearest"]

GROUP = 16  # values that are represented by their largest in a first search
FEW_VALUES = 2**14  # of which `topk` is as fast


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k largest values of each row and their positions, as `topk` does, but faster.

    The k largest lie in the k groups with the largest maxima, so that few values are compared.

    Parameters
    ----------
    values : Tensor of shape (q, n)
    k : int
        At most n.

    Returns
    -------
    tuple of Tensor of shape (q, k)
        Values, largest first, and their positions in the row.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.ranking import largest
    >>> largest(torch.arange(64.0)[None], 2)
    (tensor([[63., 62.]]), tensor([[63, 62]]))
    """
    q, n = values.shape
    if k * GROUP >= n or q * n <= FEW_VALUES:
        found, positions = values.topk(k, dim=1)
        return found, positions
    n_groups = n // GROUP
    whole = n_groups * GROUP  # the rest, less than a group, is searched with the best groups
    groups = values[:, :whole].reshape(q, GROUP, n_groups)  # of every n_groups-th value
    best = groups.amax(dim=1).topk(k, dim=1, sorted=False).indices[..., None]  # (q, k, 1)
    first = n_groups * torch.arange(GROUP, device=values.device)
    positions = (best + first).flatten(1)
    rest = torch.arange(whole, n, device=values.device).expand(q, -1)
    positions = torch.cat([positions, rest], dim=1)
    found, chosen = values.gather(1, positions).topk(k, dim=1)
    return found, positions.gather(1, chosen)


def nearest_first(similarity: Tensor, excluded: Tensor | None, k: int | None = None) -> Tensor:
    """Order each query's neighbours: nearest first, ties by position, excluded ones last.

    Parameters
    ----------
    similarity : Tensor of shape (q, n)
    excluded : bool Tensor of shape (q, n), optional
    k : int, optional
        Order the k nearest only, which is faster; None orders all.

    Returns
    -------
    int Tensor of shape (q, n) or (q, k)
        Positions in the row.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.ranking import nearest_first
    >>> nearest_first(torch.tensor([[-9.0, -1.0, -1.0]]), None)
    tensor([[1, 2, 0]])
    """
    admitted = similarity.detach()
    if excluded is not None:
        admitted = admitted.masked_fill(excluded, -math.inf)
    if k is None or k >= admitted.shape[1]:
        return admitted.argsort(dim=1, descending=True, stable=True)
    last = largest(admitted, k)[0][:, -1:]
    with_ties = int((admitted >= last).sum(dim=1).max())  # the last place may be shared
    nearest = largest(admitted, with_ties)[1].sort(dim=1).values
    order = admitted.gather(1, nearest).argsort(dim=1, descending=True, stable=True)
    return nearest.gather(1, order)[:, :k]


def outside_nearest(
    similarity: Tensor, n_neighbors: int, excluded: Tensor | None = None, *, ties: bool = False
) -> Tensor:
    """Extend an exclusion to all but each query's `n_neighbors` nearest admitted neighbours.

    Parameters
    ----------
    similarity : Tensor of shape (q, n)
    n_neighbors : int
        How many to keep; all admitted ones if there are fewer.
    excluded : bool Tensor of shape (q, n), optional
        Pairs that are excluded already.
    ties : bool, default=False
        Whether equally near neighbours count as one, so that all of them are kept.

    Returns
    -------
    bool Tensor of shape (q, n)
        True for all pairs but the nearest admitted ones.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.ranking import outside_nearest
    >>> outside_nearest(torch.tensor([[-3.0, -1.0, -2.0]]), 2)
    tensor([[ True, False, False]])
    >>> outside_nearest(torch.tensor([[-3.0, -1.0, -1.0, -2.0]]), 2, ties=True)
    tensor([[ True, False, False, False]])
    """
    k, n = n_neighbors + ties, similarity.shape[1]  # with the first that is too far
    if n_neighbors >= n:
        none = torch.zeros_like(similarity, dtype=torch.bool)
        return none if excluded is None else excluded
    while True:
        nearest = nearest_first(similarity, excluded, k)[:, :k]  # (q, k)
        far = torch.zeros_like(nearest, dtype=torch.bool)
        if ties:
            found = similarity.gather(1, nearest)
            place = F.pad(found[:, 1:] != found[:, :-1], (1, 0)).cumsum(dim=1)
            far = place >= n_neighbors
        if not ties or k >= n or far[:, -1].all():
            break
        k *= 2
    outside = torch.ones_like(similarity, dtype=torch.bool).scatter(1, nearest, far)
    return outside if excluded is None else outside | excluded
