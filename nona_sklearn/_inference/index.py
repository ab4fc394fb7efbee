"""Indexes of a bank: they find the rows that are nearest to a query.

An index holds the compared columns of one network's embeddings. Exact indexes find the k nearest
by the similarity in float64, and of equally near rows those of the smallest positions. No other
file imports faiss.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any, Protocol, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.neighbors import KDTree
from torch import Tensor
from torch.nn import functional as F

from .._utils.precision import EXACT, STORED, exact, stored
from .._utils.threads import snapshot
from .._utils.validation import import_extra, in_blocks, spans
from ..attention.functional import Pairs, count_excluded
from ..ranking import largest, nearest_first
from ..similarity import SIMILARITIES
from .shared_rows import GrowingTensor, SharedRows, without_rows

KNOWN = "l2", "log_l2", "l1", "dot", "cosine"
#: Names of algorithms, each with the similarities whose nearest rows it finds. The first two also
#: find those by another similarity that is registered.
ALGORITHMS = {
    "auto": KNOWN,
    "brute": KNOWN,
    "kd_tree": ("l2", "log_l2", "l1"),
    "hnsw": ("l2", "log_l2", "cosine"),
}
#: scikit-learn's names of the distances that order rows as these similarities do.
METRICS = {"l2": "euclidean", "l1": "manhattan", "cosine": "cosine"}
MOST_DIMENSIONS_OF_TREE = 5  # for 'auto': with more, comparing all rows is as fast
MARGIN = 3  # candidates beyond the k-th: they show whether another row could be as near
COMPARED_PAIRS, LEAST_COMPARED = 2**21, 4  # queries times rows that are compared at a time
BLOCK = 2**16  # rows of which keys are made at a time
CANDIDATE_NUMBERS = 2**22  # numbers of gathered candidates at a time
FEW_MORE = 4  # times as many rows as are needed, of which enough are mostly admitted
SEARCHED = 64  # times as many rows as are found, or to find them takes longer than a mask
LEAST_KEY = torch.finfo(STORED).min  # of what is excluded: distances do not overflow
MOST_SCALES = 2  # times the scale, or the number, of rows: beyond, keys are made anew
#: Where it saves so many differences for a query, l1 compares all rows by the columns with so
#: large a share of the mean deviation, and by so many sums, unless these are rounded by so large a
#: share. So many candidates tell how near further rows must be.
LEAST_SAVED, SHARE_OF_COLUMNS, N_SUMS, MOST_SLACK, N_CANDIDATES = 2**22, 0.75, 8, 1e-3, 64
N_LINKS = 32  # of each row in a graph: faiss's usual choice
LEAST_BESIDE, BESIDE = 1024, 64  # rows beside a graph that it takes, one of so many
LEAST_IN_SIGHT = 64  # rows that the search of a graph keeps in sight


def make_index(
    algorithm: Any,
    similarity: str,
    embeddings: np.ndarray | Tensor | SharedRows,
    graph: np.ndarray | None = None,
    n_rows: int | None = None,
) -> Index:
    """Build an index of rows (n, d) by an algorithm's name or a KNeighborsTransformer.

    `graph` is :meth:`GraphIndex.serialized` of an earlier index of the first `n_rows` of these
    rows, by default of all.
    """
    rows = embeddings
    if not isinstance(rows, SharedRows):
        rows = SharedRows(torch.as_tensor(rows))
    if len(rows) == 0:
        return BruteIndex(similarity, rows)
    if not isinstance(algorithm, str):
        return TransformerIndex(algorithm, similarity, rows)
    check_algorithm(algorithm, similarity)
    if similarity not in KNOWN:
        return FunctionIndex(similarity, rows)
    if algorithm == "auto" and similarity in ALGORITHMS["kd_tree"]:
        few = rows.shape[1] <= MOST_DIMENSIONS_OF_TREE and rows.device.type == "cpu"
        algorithm = "kd_tree" if few else "brute"
    if algorithm == "hnsw":
        return GraphIndex(similarity, rows, graph, n_rows)
    return TreeIndex(similarity, rows) if algorithm == "kd_tree" else BruteIndex(similarity, rows)


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

    They are computed from differences, and do not depend on other queries.
    """
    query, rows = exact(query)[:, None], exact(rows)
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
        values = -keys.sqrt()
    elif similarity == "log_l2":  # equal rows are as similar as the queries' dtype allows
        values = -keys.sqrt().clamp_min(limits.tiny).log()
    elif similarity == "dot":
        values = -keys / like.shape[1]
    else:
        values = -keys
    return values.clamp(-limits.max, limits.max).to(like.dtype)


def exact_keys_of(similarity: str, values: Tensor, d: int) -> Tensor:
    """The largest keys of similarities, in float32, of rows with d columns."""
    values = exact(values) - 2.0**-22 * exact(values).abs()
    if similarity == "l2":
        return values.square()
    if similarity == "log_l2":
        return (-2 * values).exp()
    return -values * d if similarity == "dot" else -values


def _unit(z: Tensor) -> Tensor:
    """Rows at length one in float64; rows of zeros stay."""
    z = exact(z)
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z / torch.where(length > 0, length, 1.0)


# -- indexes -----------------------------------------------------------------------------------


class Admission(Protocol):
    """Which rows some queries may have, evaluated where a search needs it."""

    def __getitem__(self, queries: Tensor) -> Admission:
        """Return some of the queries."""

    def of(self, queries: slice | Tensor = slice(None)) -> Tensor:
        """Return which rows are excluded, bool (q, n)."""

    def at(self, positions: Tensor) -> Tensor:
        """Return which of some rows, (q, m) positions, are excluded, bool (q, m).

        Where too few of these rows are admitted for a required number, all are excluded.
        """


class Index(ABC):
    """Finds the nearest among rows (n, d) of one network's compared columns."""

    def __init__(self, similarity: str, rows: SharedRows):
        self.similarity, self.rows = similarity, rows

    def __len__(self) -> int:
        return len(self.rows)

    def after_edits(self, rows: SharedRows) -> Index | None:
        """The index of these rows after edits; None: it is to be built anew.

        The rows have the same origin as the index's.
        """
        return None

    def n_queries_at_once(self, k: int) -> int:
        """How many queries fit into memory at a time, for k rows of each."""
        return max(1, CANDIDATE_NUMBERS // ((k + MARGIN) * max(1, self.rows.shape[1])))

    @abstractmethod
    def query(
        self,
        query: np.ndarray | Tensor,
        k: int,
        excluded: Pairs | Admission | None = None,
        among: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Find the nearest admitted rows of some queries (q, d).

        If some rows are given, (m,) ascending positions, they are among these, and pairs with
        these are excluded. Returns similarities (q, k) in the dtype of the queries, largest
        first, and positions (q, k); all rows, if there are fewer than k. Of equally near rows the
        smallest position comes first. The similarity of an excluded row, or of none, is -inf.
        """

    def _in_order(self, query: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Exact keys of rows (q, m), the nearest first, and the rows in this order."""
        rows = rows.sort(dim=1).values
        keys, order = exact_keys(self.similarity, query, self.rows[rows]).sort(dim=1, stable=True)
        return keys, rows.gather(1, order)


class BruteIndex(Index):
    """Compares each query with all rows, by one matrix product in float32.

    Rounded keys, the largest of the nearest rows, choose k + MARGIN candidates, which exact keys
    put in order. A row that is no candidate has at most the smallest key of a candidate. If the
    k-th nearest candidate could have so small a key by rounding, the row may be as near: then all
    rows with keys that large are compared exactly. A rounded key may also be too large: then more
    rows are compared exactly.
    """

    def __init__(self, similarity: str, rows: SharedRows, keys: Any = None):
        super().__init__(similarity, rows)
        self._keys = keys  # of all places in memory; None: made for the first query

    def after_edits(self, rows: SharedRows) -> Index | None:
        if self._keys is None:
            return None
        memory = rows.memory.tensor
        removed, n_before = memory[rows.gaps_since(self.rows)], len(self.rows.memory)
        keys = self._keys.after_edits(memory, n_before, removed)
        return None if keys is None else BruteIndex(self.similarity, rows, keys)

    def _made_keys(self) -> Any:
        if self._keys is None:
            self._keys = KEYS[self.similarity](self.rows.memory.tensor)
        return self._keys

    def n_queries_at_once(self, k: int) -> int:
        fitting = max(LEAST_COMPARED, COMPARED_PAIRS // max(1, len(self)))
        return min(super().n_queries_at_once(k), fitting)

    def query(
        self,
        query: np.ndarray | Tensor,
        k: int,
        excluded: Pairs | Admission | None = None,
        among: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        query, k = torch.as_tensor(query), min(int(k), len(self))
        if k == 0 or len(query) == 0:
            none = query.new_zeros(len(query), k)
            return none, none.long()
        rows, compare = self.rows, self._made_keys()
        # The columns of the keys are the given rows, or else places in memory.
        rounded = compare(query, None if among is None else rows.places(among))
        n = len(rows) if among is None else len(among)
        m = min(k + max(MARGIN, compare.n_candidates), n)
        position_of = rows.positions if among is None else among.__getitem__
        if among is None and len(rows.gaps):
            rounded[:, rows.gaps] = -math.inf  # less than what is excluded
            if isinstance(excluded, tuple):
                excluded = excluded[0], rows.places(excluded[1])
            elif excluded is not None:
                excluded = _AtPlaces(excluded, rows)
        largest_keys, candidates = _largest_admitted(rounded, m, excluded)
        candidates, order = candidates.sort(dim=1)
        is_excluded = largest_keys.gather(1, order) <= LEAST_KEY
        candidates = position_of(candidates)
        keys = exact_keys(self.similarity, query, self.rows[candidates])
        if excluded is not None:
            keys.masked_fill_(is_excluded, math.inf)
        keys, order = keys.sort(dim=1, stable=True)
        keys, positions = keys[:, :k].clone(), candidates.gather(1, order)[:, :k]
        if m < n:
            needed = stored(compare.least(query, keys[:, -1]))
            doubtful = ~(largest_keys[:, -1] < needed) & (keys[:, -1] < math.inf)  # of NaN, too
            for i in doubtful.nonzero()[:, 0].tolist():
                may_be_near = ~(rounded[i] < needed[i])
                if not isinstance(excluded, tuple | None):
                    may_be_near &= ~excluded.of(slice(i, i + 1))[0]
                if among is None:
                    may_be_near[rows.gaps] = False
                near = position_of(may_be_near.nonzero().T)
                keys_of_near, near = self._in_order(query[i : i + 1], near)
                keys[i], positions[i] = keys_of_near[0, :k], near[0, :k]
        similarity = of_exact_keys(self.similarity, keys, query)
        return _filled(similarity.masked_fill(keys == math.inf, -math.inf), positions, k)

    def reaching(self, query: Tensor, similarity: Tensor) -> Tensor:
        """Positions of the rows to which a query is as similar as stated for each row, (n,).

        They are ascending. The similarities are in float32; that of a few rows may be less.
        """
        compare = self._made_keys()
        keys = exact_keys_of(self.similarity, similarity, query.shape[1])
        reached = torch.zeros(len(self), dtype=torch.bool, device=query.device)
        for one in query.split(1):
            rounded = without_rows(compare(one)[0], self.rows.gaps)
            rows = (~(rounded < stored(compare.least(one, keys)))).nonzero().T  # with NaN
            exact_of_rows = exact_keys(self.similarity, one, self.rows[rows])[0]
            reached[rows[0][~(exact_of_rows > keys[rows[0]])]] = True
        return reached.nonzero()[:, 0]


class _AtPlaces:
    """An admission of rows by their places in memory; gaps are excluded."""

    def __init__(self, admission: Admission, rows: SharedRows):
        self.admission, self.rows = admission, rows

    def __getitem__(self, queries: Tensor) -> _AtPlaces:
        return _AtPlaces(self.admission[queries], self.rows)

    def of(self, queries: slice | Tensor = slice(None)) -> Tensor:
        excluded = self.admission.of(queries)
        every = torch.arange(excluded.shape[1], device=excluded.device)
        at_places = excluded.new_ones(len(excluded), len(self.rows.memory))
        at_places[:, self.rows.places(every)] = excluded
        return at_places

    def at(self, places: Tensor) -> Tensor:
        # A gap has the position of the row behind it, if there is one.
        rows = self.rows.positions(places).clamp_max(len(self.rows) - 1)
        return self.admission.at(rows) | torch.isin(places, self.rows.gaps)


def _largest_admitted(
    keys: Tensor, m: int, excluded: Pairs | Admission | None
) -> tuple[Tensor, Tensor]:
    """The largest keys of admitted rows and their positions, (q, m); after them, LEAST_KEY.

    To tell of all rows which are excluded takes longer than to find the largest. So a few more
    are found, and further ones for queries of which fewer than m are admitted.
    """
    if excluded is None or isinstance(excluded, tuple):
        if excluded is not None:
            keys[excluded] = LEAST_KEY
        return largest(keys, m)
    result = keys.new_empty(len(keys), m), keys.new_empty(len(keys), m, dtype=torch.long)
    n_found, lacking = FEW_MORE * m, torch.arange(len(keys), device=keys.device)
    while len(lacking) and 0 < n_found * SEARCHED <= keys.shape[1]:
        found, positions = largest(keys if len(lacking) == len(keys) else keys[lacking], n_found)
        found = found.masked_fill(excluded[lacking].at(positions), LEAST_KEY)
        n_admitted = (found > LEAST_KEY).sum(dim=1)
        found, order = found.topk(m, dim=1)
        for part, values in zip(result, (found, positions.gather(1, order)), strict=True):
            part[lacking] = values
        lacking, n_admitted = (part[n_admitted < m] for part in (lacking, n_admitted))
        share = float(n_admitted.sum() + 1) / (n_found * max(1, len(lacking)))
        n_found = max(2 * n_found, int(2 * m / share))
    if len(lacking):
        rest = keys[lacking].add_(excluded[lacking].of(), alpha=LEAST_KEY)  # without a branch
        for part, values in zip(result, largest(rest, m), strict=True):
            part[lacking] = values
    return result


class ScaledKeys(ABC):
    """Keys by a product of coordinates over a scale, a power of two above those of the rows.

    The bounds of the rounding hold for rows of any scale; but by one that is too large, few rows
    are told apart.
    """

    n_candidates = 0  # beyond those that rounding needs

    def __init__(self, rows: Tensor, scale: Tensor):
        self.scale = scale
        #: Rows as columns (d', n), which a product with one query reads in half the time.
        self.side = GrowingTensor(self._columns(rows), axis=1)
        self.n_scaled = len(rows)
        self.n_far: float = _count_far(self.side.tensor[: rows.shape[1]])

    @abstractmethod
    def _coordinates(self, z: Tensor) -> Tensor:
        """Rows or queries over the scale, (n, d) in float32."""

    def _columns(self, rows: Tensor) -> Tensor:
        return in_blocks(lambda z: self._entries(self._coordinates(z)), rows, BLOCK, axis=1)

    def _entries(self, z: Tensor) -> Tensor:
        """What a product with queries takes of coordinates (n, d), as columns."""
        return z.T

    def _side(self, among: Tensor | None) -> Tensor:
        """The columns of all rows, or of some places."""
        side = self.side.tensor
        return side if among is None else side.index_select(1, among)

    def after_edits(self, memory: Tensor, n_before: int, removed: Tensor) -> Self | None:
        """Keys of rows in memory, of which the first have keys, and removed ones had.

        None where the scale is no longer that of the rows, or of less than half of them.
        """
        keys, d = snapshot(self), memory.shape[1]
        if n_before < len(memory):
            added = self._columns(memory[n_before:])
            is_near = bool(added[:d].abs().max() <= MOST_SCALES)
            if not is_near or len(memory) > MOST_SCALES * self.n_scaled:
                return None
            keys.side, keys.n_far = self.side.extended(added), self.n_far + _count_far(added[:d])
        if len(removed):
            keys.n_far -= _count_far(self._columns(removed)[:d])
        return keys if keys.n_far else None


def _count_far(coordinates: Tensor) -> int:
    """Number of rows, (d, n) over their scale, without which the scale would be smaller."""
    low, high = coordinates.aminmax(dim=0)
    return int((torch.maximum(high, -low) >= 0.5).sum())


class SquareKeys(ScaledKeys):
    """``q @ z - z @ z / 2``: half of ``q @ q`` minus the squared distance.

    Coordinates are around the rows' mean.
    """

    def __init__(self, rows: Tensor):
        # In blocks, since the sum of float32 as float64 copies what it adds up.
        sums = [rows[block].sum(dim=0, dtype=EXACT) for block in spans(len(rows), BLOCK)]
        self.center = torch.stack(sums).sum(dim=0) / len(rows)
        ends = torch.stack(rows.aminmax(dim=0))
        super().__init__(rows, _power_of_two((ends - self.center).abs().max()))

    def _coordinates(self, z: Tensor) -> Tensor:
        return stored((z - self.center) / self.scale)

    def _entries(self, z: Tensor) -> Tensor:
        return torch.cat([z.T, stored(-exact(z).square().sum(dim=1) / 2)[None]])

    def __call__(self, query: Tensor, among: Tensor | None = None) -> Tensor:
        query = self._coordinates(query)
        return torch.cat([query, query.new_ones(len(query), 1)], dim=1) @ self._side(among)

    def least(self, query: Tensor, key: Tensor) -> Tensor:
        """The least rounded key, (q,), of any row whose exact key is at most `key` (q,)."""
        square = ((query - self.center) / self.scale).square().sum(dim=1)
        key = key / self.scale.square()
        # A row as near has at most this length, plus the query's:
        length = 2 * square.sqrt() + key.sqrt()
        return (square - key) / 2 - _slack(query.shape[1], length.square())


class ProductKeys(ScaledKeys):
    """``q @ z``, of unit vectors for the cosine."""

    def __init__(self, rows: Tensor, unit: bool = False):
        self.unit = unit
        super().__init__(rows, _power_of_two(rows.abs().max()))
        self.length = _longest(self.side.tensor)
        if unit:
            self.n_far = math.inf  # lengths do not depend on the rows

    def after_edits(self, memory: Tensor, n_before: int, removed: Tensor) -> Self | None:
        keys = super().after_edits(memory, n_before, removed)
        if keys is not None and n_before < len(memory):
            keys.length = torch.maximum(self.length, _longest(keys.side.tensor[:, n_before:]))
        return keys

    def _coordinates(self, z: Tensor, scale: Tensor | None = None) -> Tensor:
        return stored(_unit(z) if self.unit else z / (self.scale if scale is None else scale))

    def __call__(self, query: Tensor, among: Tensor | None = None) -> Tensor:
        return self._coordinates(query, _scale_of_each(query)) @ self._side(among)

    def least(self, query: Tensor, key: Tensor) -> Tensor:
        """The least rounded key, (q,), of any row whose exact key is at most `key` (q,)."""
        scale = _scale_of_each(query)
        length = torch.linalg.vector_norm(exact(self._coordinates(query, scale)), dim=1)
        if not self.unit:
            key = key / (scale[:, 0] * self.scale)
        return -key - _slack(query.shape[1], length * self.length)


def _scale_of_each(query: Tensor) -> Tensor:
    return _power_of_two(query.abs().amax(dim=1, keepdim=True))


def _longest(columns: Tensor) -> Tensor:
    return torch.linalg.vector_norm(exact(columns), dim=0).max()


class ManhattanKeys:
    """The negative distance, a sum of differences, or of many rows a bound of it.

    Of the columns that vary least, sums are compared, in float32: the difference of two sums is at
    most the sum of the differences. Few rows are as near by the bound as the nearest.
    """

    def __init__(self, rows: Tensor):
        #: Columns of their own, and further ones, of which every N_SUMS-th joins a sum.
        self.columns: tuple[Tensor, Tensor] | None = None
        self.largest = exact(rows.new_zeros(()))  # of the sums
        n_rows, d = rows.shape
        self.n_rows = n_rows  # when the keys were made
        if n_rows * d > LEAST_SAVED:
            some = rows[:: max(1, n_rows // BLOCK)]
            deviation = (some - some.mean(dim=0)).abs().mean(dim=0).sort(descending=True)
            share = deviation.values.cumsum(0) / deviation.values.sum()
            n_columns = int((share < SHARE_OF_COLUMNS).sum()) + 1
            if n_rows * (d - n_columns - N_SUMS) > LEAST_SAVED:
                order = deviation.indices
                self.columns = order[:n_columns], order[n_columns:].sort().values
                self.largest = self._largest_sum(rows)
                if not _slack(d, self.largest) < MOST_SLACK * deviation.values.sum():
                    self.columns, self.largest = None, torch.zeros_like(self.largest)
        self.rows = GrowingTensor(self._compared(rows))
        self.n_candidates = 0 if self.columns is None else N_CANDIDATES

    def _sums(self, z: Tensor) -> Tensor:
        assert self.columns is not None
        others = exact(z[:, self.columns[1]])
        return torch.stack([others[:, i::N_SUMS].sum(dim=1) for i in range(N_SUMS)], dim=1)

    def _largest_sum(self, z: Tensor) -> Tensor:
        return torch.stack(
            [self._sums(some).abs().sum(1).amax() for some in z.split(BLOCK)]
        ).amax()

    def _compared(self, z: Tensor) -> Tensor:
        """What is compared of rows or queries, (n, d'), in float32."""
        if self.columns is None:
            return z
        most_varying = self.columns[0]
        return in_blocks(
            lambda z: torch.cat([z[:, most_varying], stored(self._sums(z))], dim=1), z, BLOCK
        )

    def after_edits(self, memory: Tensor, n_before: int, removed: Tensor) -> ManhattanKeys | None:
        """Keys of rows in memory, of which the first have keys; None: of much larger or more."""
        keys = snapshot(self)
        if self.columns is None:
            if len(memory) >= MOST_SCALES * self.n_rows:  # a bound by columns may save time
                return None
            keys.rows = GrowingTensor(memory)
        elif n_before < len(memory):
            added = memory[n_before:]
            largest = self._largest_sum(added)
            if not largest <= MOST_SCALES * self.largest:
                return None
            keys.largest = torch.maximum(self.largest, largest)
            keys.rows = self.rows.extended(self._compared(added))
        return keys

    def __call__(self, query: Tensor, among: Tensor | None = None) -> Tensor:
        rows = self.rows.tensor
        rows = rows if among is None else rows[among]
        return torch.cdist(self._compared(query), rows, p=1.0).neg_()

    def least(self, query: Tensor, key: Tensor) -> Tensor:
        """The least rounded key, (q,), of any row whose exact key is at most `key` (q,)."""
        rounded = (
            key if self.columns is None else key + self.largest + self._sums(query).abs().sum(1)
        )
        return -key - _slack(query.shape[1], rounded)


KEYS: dict[str, Any] = {
    "l2": SquareKeys,
    "log_l2": SquareKeys,
    "l1": ManhattanKeys,
    "dot": ProductKeys,
    "cosine": lambda rows: ProductKeys(rows, unit=True),
}


def _power_of_two(largest_number: Tensor) -> Tensor:
    """A power of two above a number, in float64: to divide by it rounds nothing."""
    return 2.0 ** exact(torch.frexp(largest_number).exponent)


def _slack(d: int, magnitude: Tensor) -> Tensor:
    """A bound of the rounding of a sum of d products of a magnitude in float32.

    torch may be told to round products more.
    """
    rounding = 2.0**-24 if torch.get_float32_matmul_precision() == "highest" else 2.0**-8
    return (d + 4) * (rounding * magnitude + torch.finfo(STORED).tiny)


def _filled(similarity: Tensor, positions: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Similarities and positions (q, k), of which fewer than k were found among some rows."""
    if similarity.shape[1] == k:
        return similarity, positions
    lacking = 0, k - similarity.shape[1]
    return F.pad(similarity, lacking, value=-math.inf), F.pad(positions, lacking)


class FunctionIndex(Index):
    """Compares each query with all rows, by a similarity of one's own that is registered."""

    def n_queries_at_once(self, k: int) -> int:
        return max(1, COMPARED_PAIRS // max(1, len(self)))

    def query(
        self,
        query: np.ndarray | Tensor,
        k: int,
        excluded: Pairs | Admission | None = None,
        among: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        query, k = torch.as_tensor(query), min(int(k), len(self))
        rows = self.rows.tensor if among is None else self.rows[among]
        similarity = SIMILARITIES[self.similarity](query, rows)
        if excluded is not None:
            similarity = similarity.clone()
            similarity[excluded if isinstance(excluded, tuple) else excluded.of()] = -math.inf
        rows = nearest_first(similarity, None, min(k, similarity.shape[1]))[:, :k]
        return _filled(similarity.gather(1, rows), rows if among is None else among[rows], k)


class SearchIndex(Index):
    """Searches rows without comparing all; excluded ones are left out of what it finds."""

    def query(
        self,
        query: np.ndarray | Tensor,
        k: int,
        excluded: Pairs | Admission | None = None,
        among: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        assert among is None  # to search some of the rows, these are compared
        n = len(self)
        query, k = torch.as_tensor(query), min(int(k), n)
        if excluded is None or not len(query):
            return self._nearest(query, k)
        # As many more rows are searched as are excluded for any query.
        assert isinstance(excluded, tuple)
        most = int(count_excluded(excluded, len(query)).max())
        similarity, rows = self._nearest(query, min(k + most, n))
        first = n * torch.arange(len(query), device=query.device)
        left_out = torch.isin(first[:, None] + rows, first[excluded[0]] + excluded[1])
        similarity = similarity.masked_fill(left_out, -math.inf)
        similarity, order = similarity.sort(dim=1, descending=True, stable=True)
        return similarity[:, :k], rows.gather(1, order)[:, :k]

    @abstractmethod
    def _nearest(self, query: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """:meth:`query` without excluded rows, for k of n rows."""

    def _similarities(self, query: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Similarities of rows (q, m), the nearest first, and the rows in this order."""
        keys, rows = self._in_order(query, rows)
        return of_exact_keys(self.similarity, keys, query), rows


class TreeIndex(SearchIndex):
    """A KD tree of scikit-learn: fast where rows have few dimensions."""

    def __init__(self, similarity: str, rows: SharedRows):
        super().__init__(similarity, rows)
        metric = "manhattan" if similarity == "l1" else "euclidean"
        self.tree = KDTree(exact(rows.tensor.cpu()).numpy(), metric=metric)

    def _nearest(self, query: Tensor, k: int) -> tuple[Tensor, Tensor]:
        if k == 0 or not len(query):
            return query.new_zeros(len(query), k), query.new_zeros(len(query), k).long()
        points, m = exact(query.cpu()).numpy(), min(k + MARGIN, len(self))
        distance, rows = self.tree.query(points, m)
        keys, positions = self._in_order(query, torch.from_numpy(rows).to(query.device))
        keys, positions = keys[:, :k].clone(), positions[:, :k].clone()
        # The tree's distances are rounded: rows as far as the k-th may be beyond the candidates.
        slack = 1 + 4 * (query.shape[1] + 4) * torch.finfo(EXACT).eps
        reach = (keys[:, -1] if self.similarity == "l1" else keys[:, -1].sqrt()) * slack
        if m < len(self):
            for i in np.flatnonzero(distance[:, -1] <= reach.cpu().numpy()):
                [near] = self.tree.query_radius(points[i : i + 1], float(reach[i]))
                near = torch.from_numpy(near)[None].to(query.device)
                keys_of_near, near = self._in_order(query[i : i + 1], near)
                keys[i], positions[i] = keys_of_near[0, :k], near[0, :k]
        return of_exact_keys(self.similarity, keys, query), positions


class GraphIndex(SearchIndex):
    """A graph (HNSW) by faiss, which leads to approximately nearest rows of large banks.

    Beside the rows it takes 256 bytes for each. It is of the first places in memory, gaps
    included, which are left out of what it leads to. Rows that were added since are compared one
    by one, until they are many: then a copy of the graph takes them. `graph` is one that was
    built before, of `n_rows` rows.
    """

    def __init__(
        self,
        similarity: str,
        rows: SharedRows,
        graph: np.ndarray | None = None,
        n_rows: int | None = None,
    ):
        super().__init__(similarity, rows)
        faiss = import_faiss()
        if graph is None:
            points = self._points(rows.memory.tensor, 1)
            self.graph = faiss.IndexHNSWFlat(points.shape[1], N_LINKS)
            self.graph.add(points)
        else:
            self.graph = faiss.deserialize_index(graph)
            n_rows = len(rows.memory) if n_rows is None else n_rows
            if self.graph.ntotal != n_rows:
                raise ValueError(
                    f"graph must be of the bank's {n_rows} rows, got one of {self.graph.ntotal}"
                )
        self.beside: Index = BruteIndex(similarity, rows.from_place(self.graph.ntotal))

    def after_edits(self, rows: SharedRows) -> GraphIndex | None:
        n_of_graph = self.graph.ntotal
        n_beside = len(rows.memory) - n_of_graph
        if n_beside > n_of_graph:
            return None
        index = snapshot(self)
        index.rows = rows
        if n_beside > max(LEAST_BESIDE, n_of_graph // BESIDE):
            index.graph = self._whole(rows)
        beside, followed = rows.from_place(index.graph.ntotal), None
        if index.graph is self.graph:
            followed = self.beside.after_edits(beside)
        index.beside = followed or BruteIndex(self.similarity, beside)
        return index

    def _whole(self, rows: SharedRows) -> Any:
        """A copy of the graph, with the rows beside it."""
        graph = import_faiss().clone_index(self.graph)
        graph.add(self._points(rows.memory.tensor[graph.ntotal :], 1))
        return graph

    def _points(self, z: Tensor, side: int) -> np.ndarray:
        """Rows (n, d) as points whose Euclidean distances sort as similarities do.

        The cosine with a row of zeros is 0. Such a row becomes a unit vector that is orthogonal
        to all rows: a query (side 0) along one further axis, a neighbour along another.
        """
        if self.similarity == "cosine":
            z = _unit(z)
            axes = z.new_zeros(len(z), 2)
            axes[:, side] = exact((z == 0).all(dim=1))
            z = torch.cat([z, axes], dim=1)
        return np.ascontiguousarray(stored(z.cpu()).numpy())

    def serialized(self) -> np.ndarray | None:
        """Give the graph of all rows as an array of bytes; None if it has removed rows."""
        if len(self.rows.gaps):
            return None
        graph = self._whole(self.rows) if len(self.beside) else self.graph
        return import_faiss().serialize_index(graph)

    def _nearest(self, query: Tensor, k: int) -> tuple[Tensor, Tensor]:
        n_in_graph = len(self) - len(self.beside)
        found = [self._nearest_in_graph(query, min(k, n_in_graph))]
        if len(self.beside):
            found.append(n_in_graph + self.beside.query(query, k)[1])
        similarity, rows = self._similarities(query, torch.cat(found, dim=1))
        return similarity[:, :k], rows[:, :k]

    def _nearest_in_graph(self, query: Tensor, k: int) -> Tensor:
        """Positions of the k nearest rows of the graph, (q, k), in any order.

        More are searched where some are gaps, and all where these are many, or where the graph
        leads to fewer than k of many duplicates.
        """
        faiss, points = import_faiss(), self._points(query, 0)
        found = np.empty((len(points), k), dtype=np.int64)
        gaps, lacking, n_searched = self.rows.gaps.cpu().numpy(), np.arange(len(points)), k
        while len(lacking) and n_searched <= max(k, self.graph.ntotal // SEARCHED):
            in_sight = faiss.SearchParametersHNSW(efSearch=max(2 * n_searched, LEAST_IN_SIGHT))
            _, places = self.graph.search(points[lacking], n_searched, params=in_sight)
            is_row = (places >= 0) & np.isin(places, gaps, invert=True)
            nearest = np.argsort(~is_row, axis=1, kind="stable")[:, :k]
            enough = is_row.sum(axis=1) >= k
            found[lacking[enough]] = np.take_along_axis(places, nearest, axis=1)[enough]
            lacking, n_searched = lacking[~enough], FEW_MORE * n_searched
        if len(lacking):
            removed = faiss.IDSelectorBatch(gaps)
            rows = faiss.SearchParameters(sel=faiss.IDSelectorNot(removed))
            every = faiss.downcast_index(self.graph.storage)
            found[lacking] = every.search(points[lacking], k, params=rows)[1]
        return self.rows.positions(torch.from_numpy(found).to(query.device))


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


def refuse_too_few(algorithm: Any, n_found: int, n_needed: int) -> None:
    """Refuse an algorithm that finds fewer rows than are needed."""
    if n_found < n_needed:
        raise ValueError(
            f"algorithm={algorithm!r} finds {n_found} neighbors of a query, {n_needed} are "
            "needed: set its n_neighbors higher"
        )


def _finds_one_more(transformer: Any) -> bool:
    return getattr(transformer, "mode", "distance") == "distance"


class TransformerIndex(SearchIndex):
    """Neighbours by a transformer that follows the convention of KNeighborsTransformer.

    It is cloned and fitted to the rows. ``transform`` of queries returns a sparse matrix with
    the distances of each query's neighbours. The number of neighbours, `n_neighbors` of the
    transformer, bounds k; in a small bank it is the number of rows, or one less where the
    transformer adds one to it (``mode='distance'``).
    """

    def __init__(self, transformer: Any, similarity: str, rows: SharedRows):
        super().__init__(similarity, rows)
        self.transformer = clone(transformer)
        n_neighbors = self.transformer.get_params(deep=False).get("n_neighbors")
        if isinstance(n_neighbors, Integral) and int(n_neighbors) >= len(rows):
            fitting = max(1, len(rows) - _finds_one_more(self.transformer))
            self.transformer.set_params(n_neighbors=fitting)
        self.transformer.fit(rows.tensor.cpu().numpy())

    def n_queries_at_once(self, k: int) -> int:
        return max(1, COMPARED_PAIRS // max(1, k))

    def _nearest(self, query: Tensor, k: int) -> tuple[Tensor, Tensor]:
        graph = self.transformer.transform(query.cpu().numpy()).tocsr()
        counts = np.diff(graph.indptr)
        refuse_too_few(self.transformer, counts.min(initial=k), k)
        by_distance = np.lexsort((graph.data, np.repeat(np.arange(len(counts)), counts)))
        places = by_distance[graph.indptr[:-1, None] + np.arange(k)]
        rows = torch.from_numpy(graph.indices[places].astype(np.int64))
        return self._similarities(query, rows.to(query.device))


def import_faiss() -> Any:
    """Import faiss, without its warnings."""
    with warnings.catch_warnings():
        # Of names in numpy and of SWIG's types: as errors they could even end the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_extra("algorithm='hnsw'", "faiss", extra="approximate")
