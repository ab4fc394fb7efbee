"""Similarities: how near each query is to each neighbour. Larger is nearer.

Every function maps queries ``(q, d)`` and neighbours ``(n, d)`` to similarities ``(q, n)``.
To offer another one, write such a function and add it to :data:`SIMILARITIES`.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._utils.precision import EXACT, exact

__all__ = [
    "DISTANCES",
    "SIMILARITIES",
    "TRAINING_SIMILARITIES",
    "cosine",
    "dot",
    "l1",
    "l2",
    "log_l2",
    "rounded_l2",
]

NEAR = 2.0**-13  # of a query's length: below that, a product in float64 loses digits of float32


def l2(query: Tensor, neighbors: Tensor) -> Tensor:
    """Negative Euclidean distance, ``-||z - z'||_2``.

    It was the best similarity in the NONA paper [1]_. The distance is not squared, so that a far
    neighbour keeps a small weight.

    Parameters
    ----------
    query : Tensor of shape (q, d)
        Embeddings of the queries, the paper's `z`.
    neighbors : Tensor of shape (n, d)
        Embeddings of the neighbours, the paper's `z_i`.

    Returns
    -------
    Tensor of shape (q, n)
        Similarities in `query`'s dtype; the gradient at distance zero is zero.

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import l2
    >>> l2(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[-5., -0.]])
    """
    if query.dtype == EXACT:
        # Naming the mode keeps cdist from changing formula, and so results, with the rows.
        return -torch.cdist(query, neighbors, compute_mode="donot_use_mm_for_euclid_dist")
    # ||z||² - 2 z·z' + ||z'||² is five times faster than summing squared differences, but in
    # float32 it places a row up to 0.01 from an equal one. Like scikit-learn's
    # euclidean_distances, we compute that product in float64; pairs for which even that is too
    # inexact are summed: none of a query of zeros, whose product is exact.
    z, neighbors = exact(query), exact(neighbors)
    distance = torch.cdist(z, neighbors, compute_mode="use_mm_for_euclid_dist")  # (q, n)
    length = torch.linalg.vector_norm(z.detach(), dim=1, keepdim=True)  # (q, 1)
    for i, j in near_pairs(distance.detach(), NEAR * length):
        summed = torch.linalg.vector_norm(z[i] - neighbors[j], dim=1)
        distance = distance.index_put((i, j), summed)
    return -distance.to(query.dtype)


def near_pairs(values: Tensor, bound: Tensor, at_once: int = 2**16) -> Iterator[list[Tensor]]:
    """Yield queries and neighbours, (n_pairs,) each, of the values (q, n) below a bound (q, 1).

    The values are distances, or their squares. Rounding of the expanded square leaves noise that
    depends on the batch; at distance zero it is all that there is, and a logarithm or a scaling
    of near neighbours magnifies it to the whole range of the targets. At most `at_once` pairs are
    yielded at a time, so that their differences take little memory.
    """
    if values.numel() == 0 or not (values.amin(dim=1, keepdim=True) < bound).any():
        return  # the usual case, a small part of the cost of comparing all pairs
    for positions in (values < bound).flatten().nonzero()[:, 0].split(at_once):
        yield [positions // values.shape[1], positions % values.shape[1]]


def rounded_l2(query: Tensor, neighbors: Tensor) -> Tensor:
    """Negative Euclidean distance in the inputs' own precision: twice as fast, for training.

    In float32 its error near zero is about 0.001 of the neighbours' spread, which is small
    compared with the effect of the random choice of neighbours in a training step.

    Parameters and return value as for :func:`l2`.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import rounded_l2
    >>> rounded_l2(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [3.0, 4.0]]))
    tensor([[-5., -5.]])
    """
    center = neighbors.detach().mean(
        dim=0
    )  # rounding errors grow with the distance from the origin
    mode = "use_mm_for_euclid_dist"
    return -torch.cdist(query - center, neighbors - center, compute_mode=mode)  # (q, n)


def log_l2(query: Tensor, neighbors: Tensor) -> Tensor:
    """Negative logarithm of the Euclidean distance, ``-log ||z - z'||_2``.

    A softmax of it gives weights of inverse distance, as k-NN's ``weights='distance'``; at
    temperature `t` they are ``distance ** (-1 / t)`` (Shepard's interpolation). The similarity of
    equal rows is the largest that the dtype allows.

    Parameters and return value as for :func:`l2`.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import log_l2
    >>> log_l2(torch.tensor([[0.0]]), torch.tensor([[1.0], [3.0]])).softmax(dim=1)
    tensor([[0.7500, 0.2500]])
    """
    distance = -l2(query, neighbors)
    return -distance.clamp_min(torch.finfo(distance.dtype).tiny).log()  # (q, n)


def l1(query: Tensor, neighbors: Tensor) -> Tensor:
    """Negative Manhattan distance, ``-||z - z'||_1``.

    Parameters and return value as for :func:`l2`.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import l1
    >>> l1(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[-7.]])
    """
    return -torch.cdist(query, neighbors, p=1.0)  # (q, n)


def dot(query: Tensor, neighbors: Tensor) -> Tensor:
    """Dot product divided by the number of dimensions, ``z · z' / d``.

    Parameters and return value as for :func:`l2`.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import dot
    >>> dot(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[5.5000]])
    """
    return _product(query, neighbors) / query.shape[-1]  # (q, n)


def cosine(query: Tensor, neighbors: Tensor) -> Tensor:
    """Cosine of the angle between two embeddings, in [-1, 1]; 0 where one of them is zero.

    Parameters and return value as for :func:`l2`.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import cosine
    >>> cosine(torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 5.0], [0.0, 0.0]]))
    tensor([[1., 0., 0.]])
    """
    return _product(_normalize(query), _normalize(neighbors))  # (q, n)


def _product(query: Tensor, neighbors: Tensor) -> Tensor:
    """Matrix product in float64: in float32, results would depend on the batch."""
    largest = torch.finfo(query.dtype).max / 4  # keeps differences in range as well
    return (exact(query) @ exact(neighbors).mT).clamp(-largest, largest).to(query.dtype)


def _normalize(z: Tensor) -> Tensor:
    """Scale each row of `z`, shape (n, d), to length one; rows of zeros stay."""
    # Dividing by the largest entry first keeps the squares inside the dtype's range.
    largest = z.detach().abs().amax(dim=-1, keepdim=True)  # (n, 1)
    z = z / torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)  # (n, 1)
    return z / torch.where(norm > 0, norm, 1.0)


#: Every similarity by the name that the estimators' parameter `similarity` accepts.
SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    function.__name__: function for function in (l2, log_l2, l1, dot, cosine)
}

#: Those that are negative distances.
DISTANCES = ("l2", "l1")

#: Replacements in training, where speed matters more than the last digits.
TRAINING_SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"l2": rounded_l2}
