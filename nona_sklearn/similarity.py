"""Similarities: how near each query is to each neighbour. Larger is nearer.

Every function maps queries ``(q, d)`` and neighbours ``(n, d)`` to similarities ``(q, n)``.
To offer another one, write such a function and add it to :data:`SIMILARITIES`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = [
    "SIMILARITIES",
    "Tiles",
    "TRAINING_SIMILARITIES",
    "cosine",
    "dot",
    "l1",
    "l2",
    "log_l2",
    "rounded_l2",
    "tiles_of",
]


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
    # ||z||² - 2 z·z' + ||z'||² is five times faster than summing squared differences, but in
    # float32 it puts a row up to 0.01 from its twin. Like scikit-learn's euclidean_distances, we
    # do that one product in float64. In float64 itself there is no wider type to lose the
    # rounding in. Naming the mode keeps cdist from changing formula, and so results, with the
    # number of rows.
    if query.dtype == torch.float64:
        return -torch.cdist(query, neighbors, compute_mode="donot_use_mm_for_euclid_dist")
    if torch.is_grad_enabled() and (query.requires_grad or neighbors.requires_grad):
        mode = "use_mm_for_euclid_dist"
        return -torch.cdist(query.double(), neighbors.double(), compute_mode=mode).to(query.dtype)
    return L2Tiles(query, neighbors).similarity(slice(None))


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
    return -torch.cdist(query, neighbors, p=1.0)  # (q, n)


def dot(query: Tensor, neighbors: Tensor) -> Tensor:
    """Dot product divided by the number of dimensions, ``z . z' / d``.

    Parameters and return value as for :func:`l2`.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import dot
    >>> dot(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[5.5000]])
    """
    return _product(query, neighbors) / query.shape[1]  # (q, n)


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
    return (query.double() @ neighbors.double().T).clamp(-largest, largest).to(query.dtype)


def _unit(z: Tensor) -> Tensor:
    """Scale each row of `z`, shape (n, d), to length one; leave rows of zeros alone."""
    # Dividing by the largest entry first keeps the squares inside the dtype's range.
    largest = z.detach().abs().amax(dim=1, keepdim=True)  # (n, 1)
    z = z / torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)  # (n, 1)
    return z / torch.where(norm > 0, norm, 1.0)


class Tiles:
    """Similarities between queries and one slice of the neighbours after another.

    Parameters
    ----------
    similarity : callable
        One of this module's functions.
    query : Tensor of shape (q, d)
        Embeddings of the queries.
    neighbors : Tensor of shape (n, d)
        Embeddings of all neighbours.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import Tiles, dot
    >>> Tiles(dot, torch.ones(1, 2), torch.eye(2)).similarity(slice(1, 2))
    tensor([[0.5000]])
    """

    def __init__(self, similarity: Callable, query: Tensor, neighbors: Tensor):
        self._similarity, self._query, self._neighbors = similarity, query, neighbors

    def similarity(self, rows: slice) -> Tensor:
        """Similarities to some of the neighbours, (q, b)."""
        return self._similarity(self._query, self._neighbors[rows])

    def order(self, rows: slice) -> Tensor:
        """Stand-ins, (q, b), that order neighbours alike, where there are any at less cost."""
        return self.similarity(rows)

    def from_order(self, order: Tensor) -> Tensor:
        """Turn stand-ins into the similarities that they stand for."""
        return order


class L2Tiles(Tiles):
    """:class:`Tiles` of :func:`l2` in float32, by one matrix product in float64.

    What :meth:`order` returns lasts until the next tile only.
    """

    def __init__(self, query: Tensor, neighbors: Tensor):
        self._neighbors, self._dtype = neighbors, query.dtype
        # So that very long or short rows do not leave float32. A power of two rounds nothing.
        longest = torch.stack([*neighbors.aminmax(), query.double().norm()]).abs().max().double()
        self._scale = 2.0 ** longest.clamp_min(torch.finfo(query.dtype).tiny).log2().round()
        query = query.double() / self._scale
        square = query.square().sum(dim=1, keepdim=True)
        self._left = torch.cat([-2 * query, square, torch.ones_like(square)], dim=1)
        self._room: dict[int, Tensor] = {}  # new memory for each product would cost as much

    def similarity(self, rows: slice) -> Tensor:
        return self._negative_roots(self._product(self._left, rows))

    def order(self, rows: slice) -> Tensor:
        """Negative squared distances, over the squared scale, in float64."""
        return self._product(-self._left, rows)

    def from_order(self, order: Tensor) -> Tensor:
        return self._negative_roots(-order)

    def _product(self, left: Tensor, rows: slice) -> Tensor:
        # The whole formula as one product of longer rows: two passes over the pairs less.
        neighbors = self._neighbors[rows].double() / self._scale
        square = neighbors.square().sum(dim=1, keepdim=True)
        right = torch.cat([neighbors, torch.ones_like(square), square], dim=1)
        if len(right) not in self._room:
            self._room = {len(right): left.new_empty(len(left), len(right))}
        return torch.mm(left, right.T, out=self._room[len(right)])

    def _negative_roots(self, squares: Tensor) -> Tensor:
        roots = squares.to(self._dtype).clamp_min_(0).sqrt_()
        return roots.mul_(-self._scale.to(self._dtype))


#: Every similarity by the name that the estimators' parameter `similarity` accepts.
SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l2": l2,
    "log_l2": log_l2,
    "l1": l1,
    "dot": dot,
    "cosine": cosine,
}

#: What stands in for them in training, where speed counts for more than the last digits.
TRAINING_SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"l2": rounded_l2}


def tiles_of(similarity: str, query: Tensor, neighbors: Tensor) -> Tiles:
    """Give the :class:`Tiles` of a similarity.

    Parameters
    ----------
    similarity : str
        Its name in :data:`SIMILARITIES`.
    query : Tensor of shape (q, d)
        Embeddings of the queries.
    neighbors : Tensor of shape (n, d)
        Embeddings of all neighbours.

    Returns
    -------
    Tiles
        By the quickest way there is.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.similarity import tiles_of
    >>> tiles_of("l2", torch.zeros(1, 2), torch.eye(2)).similarity(slice(1, 2))
    tensor([[-1.]])
    """
    if similarity == "l2" and query.dtype == torch.float32:
        return L2Tiles(query, neighbors)
    return Tiles(SIMILARITIES[similarity], query, neighbors)
