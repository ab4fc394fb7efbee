"""Similarities of queries to the rows of a bank, tile by tile.

A tile fits the processor's cache. The formulas are those of :mod:`~nona_sklearn.similarity`, in
the fewest passes over the pairs and without gradients; tests compare each with its definition.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .._utils.chunks import spans
from ..similarity import NEAR, SIMILARITIES, l2, log_l2, near_pairs

#: Queries by rows of the bank in a tile: 4 MB in float32.
TILE = {"cpu": (2**7, 2**13), "cuda": (2**8, 2**16)}
CACHE_BYTES = 2**27  # for the bank's side of the product, of all networks together

Similarity = Callable[[Tensor, Tensor], Tensor]


class BufferPool:
    """Memory reused from tile to tile: to allocate it would take as long as a product."""

    def __init__(self) -> None:
        self.cache: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}

    def get(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Uninitialised memory of a shape, of a tensor's dtype and device."""
        key = shape, like.dtype
        if key not in self.cache:
            self.cache[key] = like.new_empty(shape)
        return self.cache[key]


class SimilarityComputer:
    """Similarities of queries to all neighbours (n, d), by a function of their embeddings."""

    def __init__(self, similarity: Similarity, neighbors: Tensor):
        self.similarity, self.neighbors = similarity, neighbors

    def bind(self, query: Tensor) -> Similarities:
        """Bind a block of queries (q, d)."""
        return Similarities(self.similarity, query, self.neighbors)


class Similarities:
    """Similarities of one block of queries to slices of the neighbours.

    A result is valid until the next slice, which reuses its memory.
    """

    def __init__(self, function: Similarity, query: Tensor, neighbors: Tensor):
        self.function, self.query, self.neighbors = function, query, neighbors
        self.buffers = BufferPool()

    def compute(self, rows: slice) -> Tensor:
        """Similarities to some of the neighbours, (q, b)."""
        return self.function(self.query, self.neighbors[rows])


class EuclideanComputer(SimilarityComputer):
    """:class:`SimilarityComputer` of l2 and log_l2 in float32, by one matrix product in float64.

    The neighbours' side of the product is computed once, if it takes at most `cache_bytes`.
    """

    def __init__(self, similarity: Similarity, neighbors: Tensor, cache_bytes: int = CACHE_BYTES):
        super().__init__(similarity, neighbors)
        # Keeps very long or short rows in float32's range. A power of two rounds nothing.
        self.scale = _power_of_two(torch.stack(neighbors.aminmax()).abs().max().double())
        n, d = neighbors.shape
        self.cache: Tensor | None = None
        if 8 * n * (d + 2) <= cache_bytes:
            cache = neighbors.new_empty(n, d + 2, dtype=torch.float64)
            for rows in spans(n, TILE["cpu"][1]):  # at once, it would take three times the memory
                cache[rows] = self._prepare(rows)
            self.cache = cache

    def bind(self, query: Tensor) -> EuclideanSimilarities:
        return EuclideanSimilarities(self, query)

    def side(self, rows: slice) -> Tensor:
        """The neighbours' side of the product, (b, d + 2)."""
        return self._prepare(rows) if self.cache is None else self.cache[rows]

    def _prepare(self, rows: slice) -> Tensor:
        # The whole formula as one product of longer rows saves two passes over the pairs.
        neighbors = self.neighbors[rows].double() / self.scale
        square = neighbors.square().sum(dim=1, keepdim=True)
        return torch.cat([neighbors, torch.ones_like(square), square], dim=1)


class EuclideanSimilarities(Similarities):
    """:class:`Similarities` of :class:`EuclideanComputer`."""

    def __init__(self, computer: EuclideanComputer, query: Tensor):
        super().__init__(computer.similarity, query, computer.neighbors)
        self.computer = computer
        length = torch.linalg.vector_norm(query.double(), dim=1, keepdim=True)
        self.scale = torch.maximum(_power_of_two(length), computer.scale)  # (q, 1)
        self.near = (NEAR * length / self.scale).square()
        query = query.double() / computer.scale
        square = query.square().sum(dim=1, keepdim=True)
        left = torch.cat([-2 * query, square, torch.ones_like(square)], dim=1)
        self.left = left * (computer.scale / self.scale).square()

    def compute(self, rows: slice) -> Tensor:
        squares = self._squares(rows)
        squares = self.buffers.get(squares.shape, self.query).copy_(squares)
        return self._to_similarity_(self._recompute_near_pairs_(squares, rows))

    def _squares(self, rows: slice) -> Tensor:
        side = self.computer.side(rows)
        out = self.buffers.get((len(self.left), len(side)), self.left)
        return torch.mm(self.left, side.T, out=out)

    def _recompute_near_pairs_(self, squares: Tensor, rows: slice) -> Tensor:
        """Recompute from differences the distances that the product's rounding would decide."""
        for i, j in near_pairs(squares, self.near):
            difference = self.query[i].double() - self.neighbors[rows][j].double()
            distance = torch.linalg.vector_norm(difference, dim=1) / self.scale[i, 0]
            squares[i, j] = distance.square().to(squares.dtype)
        return squares

    def _to_similarity_(self, squares: Tensor) -> Tensor:
        distance = squares.clamp_min_(0).sqrt_()
        if self.function is l2:
            return distance.mul_(-self.scale.to(distance.dtype))
        distance.mul_(self.scale.to(distance.dtype))
        return distance.clamp_min_(torch.finfo(distance.dtype).tiny).log_().neg_()


def similarity_computer(
    similarity: str, neighbors: Tensor, cache_bytes: int = CACHE_BYTES
) -> SimilarityComputer:
    """The fastest computer of a registered similarity to these neighbours (n, d)."""
    function = SIMILARITIES[similarity]
    if function in (l2, log_l2) and neighbors.dtype == torch.float32 and len(neighbors):
        return EuclideanComputer(function, neighbors, cache_bytes)
    return SimilarityComputer(function, neighbors)


def _power_of_two(length: Tensor) -> Tensor:
    """The next power of two, to the last bit."""
    length = length.clamp_min(torch.finfo(torch.float32).tiny)
    return length / torch.frexp(length).mantissa


def tile_shape(device: torch.device, n_neighbors: int) -> tuple[int, int]:
    """Numbers of queries and of rows of the bank in a tile: more queries if rows are few."""
    n_queries, width = TILE.get(device.type, TILE["cpu"])
    few = min(4, max(1, width // max(1, n_neighbors)))
    return n_queries * few, width


def tiles_of(device: torch.device, n_neighbors: int) -> list[slice]:
    """Rows of the bank, tile by tile."""
    return spans(n_neighbors, tile_shape(device, n_neighbors)[1]) or [slice(0, 0)]
