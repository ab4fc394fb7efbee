"""Indexes of a bank: they find the rows that can be among a query's nearest.

An index holds the compared columns of one network's embeddings. The exact indexes find the k
nearest by the similarity in float64, and of equally near rows those with the smallest numbers.
The only file that imports faiss.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.neighbors import BallTree, KDTree
from torch import Tensor
from torch.nn import functional as F

from .._utils.chunks import spans
from .._utils.extras import import_extra
from .._utils.threads import cached_property
from ..ranking import largest, nearest_first
from ..similarity import SIMILARITIES

KNOWN = "l2", "log_l2", "l1", "dot", "cosine"
#: Names of algorithms, each with the similarities whose nearest rows it finds. The first two also
#: find those by another similarity that is registered.
ALGORITHMS = {
    "auto": KNOWN,
    "brute": KNOWN,
    "kd_tree": ("l2", "log_l2", "l1", "cosine"),
    "ball_tree": ("l2", "log_l2", "l1", "cosine"),
    "hnsw": ("l2", "log_l2", "cosine"),
}
#: scikit-learn's names of the distances that order rows as these similarities do.
METRICS = {"l2": "euclidean", "l1": "manhattan", "cosine": "cosine"}
MOST_DIMENSIONS_OF_TREE = 5  # for 'auto': with more, comparing all rows is as fast
TREES = {"kd_tree": KDTree, "ball_tree": BallTree}
MARGIN = 3  # candidates beyond the k-th: they show whether another row could be as near
BLOCK_PAIRS = 2**22  # pairs of queries and rows at a time
CANDIDATE_NUMBERS = 2**22  # numbers of gathered candidates at a time
N_LINKS = 32  # of each row in a graph: faiss's usual choice
LEAST_IN_SIGHT = 64  # rows that the search of a graph keeps in sight


def make_index(
    algorithm: Any,
    similarity: str,
    embeddings: np.ndarray | Tensor,
    graph: np.ndarray | None = None,
) -> Index:
    """Build an index of some rows' compared columns.

    Parameters
    ----------
    algorithm : str or transformer
        A name in :data:`ALGORITHMS`, or an object that follows the convention of
        :class:`sklearn.neighbors.KNeighborsTransformer`.
    similarity : str
        Name of the similarity by which rows are near.
    embeddings : float32 ndarray or Tensor of shape (n, d)
        The rows.
    graph : uint8 ndarray, optional
        With 'hnsw', :meth:`GraphIndex.serialized` of an earlier index of these rows.
    """
    rows = torch.as_tensor(embeddings)
    if len(rows) == 0:
        return TiledIndex(similarity, rows)
    if not isinstance(algorithm, str):
        return TransformerIndex(algorithm, similarity, rows)
    check_algorithm(algorithm, similarity)
    if similarity not in KNOWN:
        return FunctionIndex(similarity, rows)
    if algorithm == "auto" and similarity in ALGORITHMS["kd_tree"]:
        few = rows.shape[1] <= MOST_DIMENSIONS_OF_TREE and rows.device.type == "cpu"
        algorithm = "kd_tree" if few else "brute"
    if algorithm == "hnsw":
        return GraphIndex(similarity, rows, graph)
    if algorithm in TREES:
        return TreeIndex(algorithm, similarity, rows)
    return TiledIndex(similarity, rows)


def check_algorithm(algorithm: Any, similarity: str) -> None:
    """Refuse an algorithm that does not exist, lacks its library or cannot find nearest rows.

    Raises
    ------
    ValueError
        If it cannot do the similarity.
    TypeError
        If it is an object without ``fit`` and ``transform``.
    ImportError
        If it needs faiss, which is not installed.
    """
    if not isinstance(algorithm, str):
        lacking = [name for name in ("fit", "transform") if not hasattr(algorithm, name)]
        if lacking or isinstance(algorithm, type):
            raise TypeError(
                "algorithm must be a name or a fitted or unfitted transformer such as "
                f"KNeighborsTransformer, got {algorithm!r}"
            )
        return
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {[*ALGORITHMS]}, got {algorithm!r}")
    if algorithm not in ("auto", "brute") and similarity not in ALGORITHMS[algorithm]:
        able = ", ".join(map(repr, ALGORITHMS[algorithm]))
        raise ValueError(
            f"algorithm={algorithm!r} needs a similarity of {able}, got similarity={similarity!r}"
        )
    if algorithm == "hnsw":
        import_faiss()


# -- the order of a similarity -----------------------------------------------------------------


def exact_keys(similarity: str, query: Tensor, rows: Tensor) -> Tensor:
    """Keys (q, m) in float64 that sort rows (q, m, d) from the nearest, for queries (q, d).

    They are computed from the differences, and do not depend on other queries.
    """
    query, rows = query.double()[:, None], rows.double()
    if similarity in ("l2", "log_l2"):
        return (query - rows).square_().sum(dim=2)
    if similarity == "l1":
        return (query - rows).abs_().sum(dim=2)
    if similarity == "cosine":
        query, rows = _unit(query), _unit(rows)
    elif similarity != "dot":
        return -SIMILARITIES[similarity](query, rows)[:, 0]
    return -(query * rows).sum(dim=2)


def of_exact_keys(similarity: str, keys: Tensor, like: Tensor) -> Tensor:
    """Similarities by their exact keys, in the dtype of the queries, `like` (q, d)."""
    limits = torch.finfo(like.dtype)
    if similarity == "l2":
        found = -keys.sqrt()
    elif similarity == "log_l2":  # equal rows are as similar as the queries' dtype allows
        found = -keys.sqrt().clamp_min(limits.tiny).log()
    elif similarity == "dot":
        found = -keys / like.shape[1]
    else:
        found = -keys
    return found.clamp(-limits.max, limits.max).to(like.dtype)


def _unit(z: Tensor) -> Tensor:
    """Rows at length one in float64; rows of zeros stay."""
    z = z.double()
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z / torch.where(length > 0, length, 1.0)


def _on_sphere(z: Tensor, side: int) -> Tensor:
    """Rows (n, d) as points (n, d + 2) whose Euclidean distances sort as cosines do, in float64.

    The cosine with a row of zeros is 0. Such a row becomes a unit vector that is orthogonal to
    all others: of the queries (side 0) along one further axis, of the neighbours along another.
    """
    z = _unit(z)
    further = z.new_zeros(len(z), 2)
    further[:, side] = (z == 0).all(dim=1).double()
    return torch.cat([z, further], dim=1)


# -- indexes -----------------------------------------------------------------------------------


class Index(ABC):
    """Finds candidates among rows (n, d) of one network's compared columns.

    A query's own row, or its group, is excluded by the caller, who requests as many further
    candidates as there are rows to exclude.
    """

    def __init__(self, similarity: str, rows: Tensor):
        self.similarity, self.rows = similarity, rows

    def __len__(self) -> int:
        return len(self.rows)

    def query(
        self, query: np.ndarray | Tensor, k: int, excluded: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Find the nearest rows of some queries.

        Parameters
        ----------
        query : float32 ndarray or Tensor of shape (q, d)
            Compared columns of the queries.
        k : int
            Number of rows; all, if there are fewer.
        excluded : bool Tensor of shape (q, n), optional
            Rows that are left out, by an index that compares all rows. They come last, with a
            similarity of -inf.

        Returns
        -------
        similarity : Tensor of shape (q, min(k, n))
            Similarities of the rows, in the dtype of the queries, largest first.
        rows : int64 Tensor of shape (q, min(k, n))
            Their positions; of equally near ones the smallest comes first.
        """
        query, k = torch.as_tensor(query), min(int(k), len(self))
        if k == 0 or len(query) == 0:
            none = query.new_zeros(len(query), k)
            return none, none.long()
        found = [
            self._nearest(query[block], k, None if excluded is None else excluded[block])
            for block in spans(len(query), self._block(k))
        ]
        if len(found) == 1:
            return found[0]
        similarity, rows = map(torch.cat, zip(*found, strict=True))
        return similarity, rows

    def _block(self, k: int) -> int:
        """Number of queries at a time."""
        return max(1, CANDIDATE_NUMBERS // ((k + MARGIN) * max(1, self.rows.shape[1])))

    @abstractmethod
    def _nearest(self, query: Tensor, k: int, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        """:meth:`query` of a block of queries, for at least k rows."""

    def _in_order(self, query: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Similarities of rows (q, m), the nearest first, and the rows in this order."""
        keys, rows = self._sort(query, rows)
        return of_exact_keys(self.similarity, keys, query), rows

    def _sort(
        self, query: Tensor, rows: Tensor, excluded: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Exact keys of rows (q, m), the nearest first, and the rows in this order.

        The key of an excluded row is infinite.
        """
        rows = rows.sort(dim=1).values
        keys = exact_keys(self.similarity, query, self.rows[rows])
        if excluded is not None:
            keys = keys.masked_fill(excluded.gather(1, rows), math.inf)
        keys, order = keys.sort(dim=1, stable=True)
        return keys, rows.gather(1, order)


class ExactIndex(Index):
    """An index that finds candidates by inexact keys, the largest of the nearest rows.

    A row outside the candidates has at most the smallest key of a candidate. Where such a key
    leaves doubt that this row is farther than the k-th nearest candidate, all rows with keys
    that large are compared exactly.
    """

    def _nearest(self, query: Tensor, k: int, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        prepared = self._prepare(query, excluded)
        m = min(k + MARGIN, len(self))
        candidates, least = self._candidates(prepared, m)
        keys, rows = self._sort(query, candidates, excluded)
        keys, rows = keys[:, :k], rows[:, :k]
        if m < len(self):
            needed = self._least_key(query, keys[:, -1])
            doubtful = ~(least < needed) & (keys[:, -1] < math.inf)  # of NaN, too
            for i in doubtful.nonzero()[:, 0].tolist():
                near = self._reaching(prepared, i, needed[i])
                of_query = self._sort(query[i : i + 1], near)
                keys[i], rows[i] = of_query[0][0, :k], of_query[1][0, :k]
        similarity = of_exact_keys(self.similarity, keys, query)
        return similarity.masked_fill(keys == math.inf, -math.inf), rows

    @abstractmethod
    def _prepare(self, query: Tensor, excluded: Tensor | None) -> Any:
        """What the inexact keys of a block of queries are computed from."""

    @abstractmethod
    def _candidates(self, prepared: Any, m: int) -> tuple[Tensor, Tensor]:
        """Rows (q, m) with the largest inexact keys, and the smallest of these keys, (q,)."""

    @abstractmethod
    def _least_key(self, query: Tensor, exact: Tensor) -> Tensor:
        """The least inexact key, (q,), of any row whose exact key is at most `exact` (q,)."""

    @abstractmethod
    def _reaching(self, prepared: Any, i: int, least: Tensor) -> Tensor:
        """Rows (1, m) whose inexact key for the i-th query is at least `least`."""


class TiledIndex(ExactIndex):
    """Compares each query with all rows, by one matrix product in float32.

    The key of a row z for a query q is ``q @ z``, for distances ``q @ z - z @ z / 2`` in
    coordinates around the rows' mean, over a power of two that keeps it in float32's range. For
    l1 it is the negative distance.
    """

    @cached_property
    def keys_of(self) -> Any:
        """What computes the keys of a block of queries."""
        return _KEYS[self.similarity](self.rows)

    def _block(self, k: int) -> int:
        fitting = BLOCK_PAIRS // max(1, len(self))
        return min(super()._block(k), max(16, fitting))

    def _prepare(self, query: Tensor, excluded: Tensor | None) -> Tensor:
        keys = self.keys_of(query)
        return keys if excluded is None else keys.masked_fill_(excluded, -math.inf)

    def _candidates(self, prepared: Tensor, m: int) -> tuple[Tensor, Tensor]:
        keys, rows = largest(prepared, m)
        return rows, keys[:, -1]

    def _least_key(self, query: Tensor, exact: Tensor) -> Tensor:
        return self.keys_of.least(query, exact).float()

    def _reaching(self, prepared: Tensor, i: int, least: Tensor) -> Tensor:
        return (~(prepared[i] < least)).nonzero().T


def _rounding() -> float:
    """Relative rounding of a product in float32, in which torch may be told to round more."""
    return 2.0**-24 if torch.get_float32_matmul_precision() == "highest" else 2.0**-8


class _SquareKeys:
    """``q @ z - z @ z / 2``: half of ``q @ q`` minus the squared distance."""

    def __init__(self, rows: Tensor):
        n, d = rows.shape
        self.center = rows.mean(dim=0, dtype=torch.float64)
        self.scale = _power_of_two((torch.stack(rows.aminmax(dim=0)) - self.center).abs().max())
        # In columns, which a product with one query reads in half the time.
        self.side = rows.new_empty(d + 1, n, dtype=torch.float32)
        for block in spans(n, 2**16):
            z = self._around_center(rows[block])
            self.side[:d, block] = z.T
            self.side[d, block] = -z.double().square().sum(dim=1) / 2

    def _around_center(self, z: Tensor) -> Tensor:
        return ((z - self.center) / self.scale).float()

    def __call__(self, query: Tensor) -> Tensor:
        return F.pad(self._around_center(query), (0, 1), value=1.0) @ self.side

    def least(self, query: Tensor, exact: Tensor) -> Tensor:
        square = ((query - self.center) / self.scale).square().sum(dim=1)
        exact = exact / self.scale.square()
        # A row as near has at most this length, plus the query's:
        length = 2 * square.sqrt() + exact.sqrt()
        return (square - exact) / 2 - _slack(query.shape[1], length.square())


class _ProductKeys:
    """``q @ z``, of unit vectors for the cosine."""

    def __init__(self, rows: Tensor, unit: bool = False):
        self.unit = unit
        self.scale = _power_of_two(rows.abs().max())
        self.side = self._scaled(rows, self.scale)
        self.length = torch.linalg.vector_norm(self.side.double(), dim=1).max()

    def _scaled(self, z: Tensor, scale: Tensor) -> Tensor:
        return (_unit(z) if self.unit else z.double() / scale).float()

    def __call__(self, query: Tensor) -> Tensor:
        scale = _power_of_two(query.abs().amax(dim=1, keepdim=True))
        return self._scaled(query, scale) @ self.side.T

    def least(self, query: Tensor, exact: Tensor) -> Tensor:
        scale = _power_of_two(query.abs().amax(dim=1, keepdim=True))
        length = torch.linalg.vector_norm(self._scaled(query, scale).double(), dim=1)
        if not self.unit:
            exact = exact / (scale[:, 0] * self.scale)
        return -exact - _slack(query.shape[1], length * self.length)


class _ManhattanKeys:
    """The negative distance, a sum of differences."""

    def __init__(self, rows: Tensor):
        self.rows = rows

    def __call__(self, query: Tensor) -> Tensor:
        return -torch.cdist(query, self.rows, p=1.0)

    def least(self, query: Tensor, exact: Tensor) -> Tensor:
        return -exact - _slack(query.shape[1], exact)


def _power_of_two(largest_number: Tensor) -> Tensor:
    """A power of two above a number, in float64: to divide by it rounds nothing."""
    return 2.0 ** torch.frexp(largest_number).exponent.double()


def _slack(d: int, magnitude: Tensor) -> Tensor:
    """A bound of the rounding of a sum of d products of a magnitude in float32."""
    return (d + 4) * (_rounding() * magnitude + torch.finfo(torch.float32).tiny)


_KEYS: dict[str, Any] = {
    "l2": _SquareKeys,
    "log_l2": _SquareKeys,
    "l1": _ManhattanKeys,
    "dot": _ProductKeys,
    "cosine": lambda rows: _ProductKeys(rows, unit=True),
}


class FunctionIndex(Index):
    """Compares each query with all rows, by a similarity of one's own that is registered."""

    def _block(self, k: int) -> int:
        return max(1, BLOCK_PAIRS // max(1, len(self)))

    def _nearest(self, query: Tensor, k: int, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        similarity = SIMILARITIES[self.similarity](query, self.rows)
        if excluded is not None:
            similarity = similarity.masked_fill(excluded, -math.inf)
        rows = nearest_first(similarity, None, k)[:, :k]
        return similarity.gather(1, rows), rows


class TreeIndex(ExactIndex):
    """A tree of scikit-learn: fast where rows have few dimensions. Its keys are -distance."""

    def __init__(self, algorithm: str, similarity: str, rows: Tensor):
        super().__init__(similarity, rows)
        metric = "manhattan" if similarity == "l1" else "euclidean"
        self.tree = TREES[algorithm](self._points(rows, 1), metric=metric)

    def _points(self, z: Tensor, side: int) -> np.ndarray:
        z = z.cpu()
        return (_on_sphere(z, side) if self.similarity == "cosine" else z.double()).numpy()

    def _prepare(self, query: Tensor, excluded: Tensor | None) -> np.ndarray:
        return self._points(query, 0)

    def _candidates(self, prepared: np.ndarray, m: int) -> tuple[Tensor, Tensor]:
        distance, rows = self.tree.query(prepared, m)
        rows, distance = torch.from_numpy(rows), torch.from_numpy(distance)
        return rows.to(self.rows.device), -distance[:, -1].to(self.rows.device)

    def _least_key(self, query: Tensor, exact: Tensor) -> Tensor:
        slack = 4 * (query.shape[1] + 4) * torch.finfo(torch.float64).eps
        if self.similarity == "l1":
            return -exact * (1 + slack)
        squares = exact * (1 + slack)
        if self.similarity == "cosine":  # 2 - 2 cos, from the negative cosine
            squares = (2 + 2 * exact).clamp_min(0) + slack
        return -squares.sqrt()

    def _reaching(self, prepared: np.ndarray, i: int, least: Tensor) -> Tensor:
        [rows] = self.tree.query_radius(prepared[i : i + 1], -float(least))
        return torch.from_numpy(rows)[None].to(self.rows.device)


class GraphIndex(Index):
    """A graph (HNSW) by faiss, which leads to approximately nearest rows of large banks.

    Beside the rows it takes 256 bytes for each. `graph` is one that was built before.
    """

    def __init__(self, similarity: str, rows: Tensor, graph: np.ndarray | None = None):
        super().__init__(similarity, rows)
        faiss = import_faiss()
        if graph is None:
            points = self._points(rows, 1)
            self.graph = faiss.IndexHNSWFlat(points.shape[1], N_LINKS)
            self.graph.add(points)
        else:
            self.graph = faiss.deserialize_index(graph)
            if self.graph.ntotal != len(rows):
                raise ValueError(
                    f"graph must be of the bank's {len(rows)} rows, got one of {self.graph.ntotal}"
                )

    def _points(self, z: Tensor, side: int) -> np.ndarray:
        points = _on_sphere(z.cpu(), side) if self.similarity == "cosine" else z.cpu()
        return np.ascontiguousarray(points.float().numpy())

    def serialized(self) -> np.ndarray:
        """Give the graph as an array of bytes."""
        return import_faiss().serialize_index(self.graph)

    def _nearest(self, query: Tensor, k: int, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        """Among many duplicates a graph may lead to fewer than k rows: then search exactly."""
        points = self._points(query, 0)
        self.graph.hnsw.efSearch = max(2 * k, LEAST_IN_SIGHT)
        _, rows = self.graph.search(points, k)
        short = (rows < 0).any(axis=1)
        if short.any():
            every = import_faiss().downcast_index(self.graph.storage)
            rows[short] = every.search(points[short], k)[1]
        return self._in_order(query, torch.from_numpy(rows).to(query.device))


def most_found(algorithm: Any, n_rows: int) -> int:
    """How many of n rows an algorithm can find, as far as its parameters state it.

    In ``mode='distance'``, scikit-learn's transformers find one more than their `n_neighbors`.
    """
    stated = None
    if not isinstance(algorithm, str):
        stated = algorithm.get_params(deep=False).get("n_neighbors")
    if not isinstance(stated, Integral):
        return n_rows
    return min(int(stated) + _finds_one_more(algorithm), n_rows)


def refuse_too_few(algorithm: Any, found: int, needed: int) -> None:
    """Refuse an algorithm that finds fewer rows than are needed."""
    if found < needed:
        raise ValueError(
            f"algorithm={algorithm!r} finds {found} neighbors of a query, {needed} are needed: "
            "set its n_neighbors higher"
        )


def _finds_one_more(transformer: Any) -> bool:
    return getattr(transformer, "mode", "distance") == "distance"


class TransformerIndex(Index):
    """Neighbours by a transformer that follows the convention of KNeighborsTransformer.

    It is cloned and fitted to the rows. ``transform`` of queries returns a sparse matrix with
    the distances of each query's neighbours. The number of neighbours, `n_neighbors` of the
    transformer, bounds k; in a small bank it is the number of rows, or one less where the
    transformer adds one to it (``mode='distance'``).
    """

    def __init__(self, transformer: Any, similarity: str, rows: Tensor):
        super().__init__(similarity, rows)
        self.transformer = clone(transformer)
        n_neighbors = self.transformer.get_params(deep=False).get("n_neighbors")
        if isinstance(n_neighbors, Integral) and int(n_neighbors) >= len(rows):
            fitting = max(1, len(rows) - _finds_one_more(self.transformer))
            self.transformer.set_params(n_neighbors=fitting)
        self.transformer.fit(rows.cpu().numpy())

    def _block(self, k: int) -> int:
        return max(1, BLOCK_PAIRS // max(1, k))

    def _nearest(self, query: Tensor, k: int, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        graph = self.transformer.transform(query.cpu().numpy()).tocsr()
        counts = np.diff(graph.indptr)
        refuse_too_few(self.transformer, counts.min(initial=k), k)
        by_distance = np.lexsort((graph.data, np.repeat(np.arange(len(counts)), counts)))
        places = by_distance[graph.indptr[:-1, None] + np.arange(k)]
        rows = torch.from_numpy(graph.indices[places].astype(np.int64))
        return self._in_order(query, rows.to(query.device))


def import_faiss() -> Any:
    """Import faiss, without its warnings."""
    with warnings.catch_warnings():
        # Of names in numpy and of SWIG's types: as errors they could even end the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_extra("algorithm='hnsw'", "faiss", extra="approximate")
