"""Similarities: how near each query is to each neighbour. Larger is nearer.

Every function maps queries ``(q, d)`` and neighbours ``(n, d)`` to similarities ``(q, n)``.
To offer another one, write such a function and add it to :data:`SIMILARITIES`.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

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

TWINS = 2.0**-23  # of a query's length: below that, float32 does not tell two rows apart
NEAR = 2.0**-13  # of a query's length: below that, a product in float64 loses digits of float32


def l2(query: Tensor, neighbors: Tensor) -> Tensor:
    """Negative Euclidean distance, ``-||z - z'||_2``: the NONA paper's best similarity.

    The distance is not squared, so a far neighbour still counts a little.

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

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import l2
    >>> l2(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[-5., -0.]])
    """
    if torch.compiler.is_exporting():
        return _graph_of_l2(query, neighbors)
    if query.dtype == torch.float64:
        # Naming the mode keeps cdist from changing formula, and so results, with the rows.
        return -torch.cdist(query, neighbors, compute_mode="donot_use_mm_for_euclid_dist")
    # ||z||² - 2 z·z' + ||z'||² is five times faster than summing squared differences, but in
    # float32 it puts a row up to 0.01 from its twin. Like scikit-learn's euclidean_distances, we
    # do that one product in float64; and where even that is too rough, we sum after all.
    z, neighbors = query.double(), neighbors.double()
    distance = torch.cdist(z, neighbors, compute_mode="use_mm_for_euclid_dist")  # (q, n)
    length = torch.linalg.vector_norm(z.detach(), dim=1, keepdim=True)  # (q, 1)
    for i, j in near_pairs(distance.detach(), NEAR * length):
        exact = torch.linalg.vector_norm(z[i] - neighbors[j], dim=1)
        distance = distance.index_put((i, j), exact)
    return -distance.to(query.dtype)


def _graph_of_l2(query: Tensor, neighbors: Tensor) -> Tensor:
    """:func:`l2` without a look at single pairs: twins are at distance 0."""
    z, neighbors = query.double(), neighbors.double()
    squares = z.square().sum(dim=1, keepdim=True)  # (q, 1)
    distances = squares - 2 * z @ neighbors.mT + neighbors.square().sum(dim=1)  # squared, (q, n)
    twins = distances <= TWINS**2 * squares
    return -distances.masked_fill(twins, 0.0).sqrt().to(query.dtype)


def eager_all(condition: Tensor) -> bool:
    """Whether a condition () is true, so that a shortcut may be taken; never in a graph.

    A graph that is exported has no branches: it takes the general way.
    """
    return not torch.compiler.is_exporting() and bool(condition)


def near_pairs(values: Tensor, bound: Tensor, at_once: int = 2**16) -> Iterator[list[Tensor]]:
    """Yield the positions of the pairs whose value is at most a query's bound.

    The expanded square leaves noise of the rounding of a query's own squared length. At distance
    zero that is all there is, and it depends on who else is asked for; a logarithm, or a scaling
    of near neighbours, magnifies it to the whole range of the targets.

    Parameters
    ----------
    values : Tensor of shape (q, n)
        Distances, or squares of them.
    bound : Tensor of shape (q, 1)
        What is near, for each query.
    at_once : int, default=2**16
        Most pairs to yield at a time, so that their differences take little memory.

    Yields
    ------
    list of two int Tensor of shape (n_pairs,)
        Queries and neighbours.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import near_pairs
    >>> list(near_pairs(torch.tensor([[3.0, 0.0], [4.0, 5.0]]), torch.tensor([[1.0], [4.0]])))
    [[tensor([0, 1]), tensor([1, 0])]]
    """
    if values.numel() == 0 or not (values.amin(dim=1, keepdim=True) <= bound).any():
        return  # as a rule, and a small part of the cost of a comparison of all pairs
    for places in (values <= bound).flatten().nonzero()[:, 0].split(at_once):
        yield [places // values.shape[1], places % values.shape[1]]


def rounded_l2(query: Tensor, neighbors: Tensor) -> Tensor:
    """Negative Euclidean distance in the inputs' own precision: twice as fast, for training.

    In float32 it errs near zero by about 0.001 of the neighbours' spread, which is nothing
    beside the draw of a step's neighbours.

    Parameters and return value as for :func:`l2`.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import rounded_l2
    >>> rounded_l2(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [3.0, 4.0]]))
    tensor([[-5., -5.]])
    """
    center = neighbors.detach().mean(dim=0)  # far from the origin, more is lost to rounding
    mode = "use_mm_for_euclid_dist"
    return -torch.cdist(query - center, neighbors - center, compute_mode=mode)  # (q, n)


def log_l2(query: Tensor, neighbors: Tensor) -> Tensor:
    """Negative logarithm of the Euclidean distance, ``-log ||z - z'||_2``.

    A softmax of it weighs by inverse distance, as k-NN's ``weights='distance'`` does, and a
    softmax at temperature `t` by ``distance ** (-1 / t)`` (Shepard's interpolation), which
    follows the local density of neighbours. Equal rows are as similar as the dtype allows.

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
    if torch.compiler.is_exporting():  # which does not know cdist
        return -(query[:, None] - neighbors).abs().sum(dim=2)
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
    return _product(_unit(query), _unit(neighbors))  # (q, n)


def _product(query: Tensor, neighbors: Tensor) -> Tensor:
    """Matrix product in float64: in float32, rows would depend on how many are asked for."""
    largest = torch.finfo(query.dtype).max / 4  # so that differences stay in range as well
    return (query.double() @ neighbors.double().mT).clamp(-largest, largest).to(query.dtype)


def _unit(z: Tensor) -> Tensor:
    """Scale each row of `z`, shape (n, d), to length one; leave rows of zeros alone."""
    # Dividing by the largest entry first keeps the squares inside the dtype's range.
    largest = z.detach().abs().amax(dim=-1, keepdim=True)  # (n, 1)
    z = z / torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)  # (n, 1)
    return z / torch.where(norm > 0, norm, 1.0)


#: Every similarity by the name that the estimators' parameter `similarity` accepts.
SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l2": l2,
    "log_l2": log_l2,
    "l1": l1,
    "dot": dot,
    "cosine": cosine,
}

#: Those that are negative distances.
DISTANCES = ("l2", "l1")

#: What stands in for them in training, where speed counts for more than the last digits.
TRAINING_SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"l2": rounded_l2}
