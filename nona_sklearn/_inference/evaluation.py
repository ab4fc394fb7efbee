"""Evaluation of a head for queries and neighbours: predictions, weights, influence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .._utils.chunks import spans
from .._utils.threads import WORKERS, cached_property
from ..attention import AverageHead, ClassHead, NONAHead
from .index import METRICS
from .left_out import LeftOutQueries, TrendShifts
from .nearest import Candidates, compare_all, find_nearest, nearest_by_l2
from .neighbors import Exclusion, Neighbors
from .network_rows import NetworkClassRows, NetworkRows
from .similarities import (
    CACHE_BYTES,
    SimilarityComputer,
    similarity_computer,
    tiles_of,
)
from .weighted_rows import WeightedRows

LEAST_QUERY_BLOCK = 32  # fewer queries make a matrix product inefficient
BLOCK_PAIRS = 2**21  # weights that are held at a time
SEARCHED_QUERIES = 512  # at a time; an index has blocks of its own
SELECTION_ROUNDS, LEAST_SHARE = 20, 0.01


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A head evaluated for some queries and neighbours.

    :meth:`attend` is the definition, with gradients and all pairs at once. The other methods
    evaluate the mean of the networks' weights: of the nearest rows, which are searched once, where
    weights end after some number of them, and else of all rows, block by block.

    Parameters
    ----------
    head : NONAHead or AverageHead
        Computes the weights.
    neighbors : Neighbors
        The labelled rows.
    query : Tensor of shape (q, d)
        Embeddings of the queries.
    exclusion : Exclusion, optional
        The excluded pairs; None: no pair is excluded.
    candidates : tuple of Candidates, optional
        The rows that can have weight, for each network; None: they are searched.
    added : Tensor of shape (q, n_outputs), optional
        What unknown levels add: variances to calibrated distributions or, for each class, a part
        of its probability, of which the others have the rest; None: nothing.
    offset : Tensor of shape (q, n_outputs), optional
        The trend at the queries, if the neighbours have one.
    left_out : LeftOutQueries, optional
        The queries, if they are rows that are to be left out of the trend at their neighbours.
    shifts : TrendShifts, optional
        By how much the trend changes without each neighbour, if that is known.
    """

    head: NONAHead | AverageHead
    neighbors: Neighbors
    query: Tensor
    exclusion: Exclusion | None = None
    candidates: tuple[Candidates, ...] | None = None
    added: Tensor | None = None
    offset: Tensor | None = None
    left_out: LeftOutQueries | None = None
    shifts: TrendShifts | None = None

    def __post_init__(self):
        assert (self.offset is None) == (self.neighbors.offset is None)

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: Tensor | np.ndarray) -> Evaluation:
        """Select some of the queries."""
        exclusion = None if self.exclusion is None else self.exclusion[rows]
        rows = torch.as_tensor(rows)
        candidates = self.candidates and tuple(each[rows] for each in self.candidates)
        added, offset = (None if t is None else t[rows] for t in (self.added, self.offset))
        some = replace(
            self,
            query=self.query[rows],
            exclusion=exclusion,
            candidates=candidates,
            added=added,
            offset=offset,
            left_out=None if self.left_out is None else self.left_out[rows],
            shifts=None if self.shifts is None else self.shifts[rows],
        )
        if self._found is not None:
            vars(some)["_found"] = tuple(each[rows] for each in self._found)
        return some

    # -- at once, with gradients -----------------------------------------------------------

    def attend(self) -> Tensor:
        """Weighted means of the neighbours' values, (q,) or (q, n_outputs), by definition."""
        neighbors = self.neighbors
        excluded = None if self.exclusion is None else self.exclusion.of()
        adjustment_scale = neighbors.adjustment_scale
        if isinstance(adjustment_scale, Tensor):
            adjustment_scale = adjustment_scale.to(self.query.dtype)
        return self.head(
            self.query,
            neighbors.embeddings,
            neighbors.values.to(self.query.dtype),
            excluded,
            neighbors.log_prior,
            adjustment_scale,
        )

    # -- means -----------------------------------------------------------------------------

    def mean(self) -> Tensor:
        """Predictions, (q,) or (q, c), in float64; of isolated queries as if nothing is known."""
        return self._with_unknown(self._average(NetworkRows.mean))

    def weigh(self) -> Callable[[], Tensor]:
        """Weigh the rows once; what is returned is :meth:`mean` by these weights.

        It may be called after each change of the head that changes no weight.
        """

        def keep(_: slice, networks: list[NetworkRows]) -> list[NetworkRows]:
            _mean_of(networks, NetworkRows.mean)  # what takes time is kept with them
            return networks

        blocks = self._map_blocks(keep)

        @torch.inference_mode()
        def mean() -> Tensor:
            means = [_mean_of(networks, NetworkRows.mean) for networks in blocks]
            return self._with_unknown(self._join(means))

        return mean

    def _with_unknown(self, means: Tensor) -> Tensor:
        """Means of queries, those of isolated ones as if nothing is known."""
        if (isolated := self.isolated) is not None:
            means[isolated] = self.one_head.unknown(means)
        return means

    @property
    def isolated(self) -> Tensor | None:
        """Queries without any earlier neighbour, bool (q,); None if there are none."""
        isolated = None if self.exclusion is None else self.exclusion.isolated()
        return None if isolated is None or not isolated.any() else isolated

    def without_isolated(self, *others: Any) -> tuple[Any, ...]:
        """The same without the queries that have no neighbour, and others without their entries.

        `others` are tensors or arrays of shape (q, ...), or None.
        """
        if (isolated := self.isolated) is None:
            return self, *others
        known = (~isolated).nonzero()[:, 0]
        numbers = known.cpu().numpy()
        kept = (
            each if each is None else each[numbers if isinstance(each, np.ndarray) else known]
            for each in others
        )
        return self[known], *kept

    def without_trend(self) -> Evaluation:
        """The same by the networks alone."""
        neighbors, found = self.neighbors.without_offset(), self.search()
        others = replace(self, neighbors=neighbors, candidates=found, offset=None)
        return replace(others, left_out=None, shifts=None)

    def plain_mean(self) -> Tensor:
        """Weighted means of the values, (q,) or (q, c), not adjusted, in float64."""
        return self._average(NetworkRows.plain_mean)

    def _average(self, function: Callable[[NetworkRows], Tensor]) -> Tensor:
        """The mean of a function of each network's rows, in the shape of the values."""
        return self._join(self._map_blocks(lambda _, networks: _mean_of(networks, function)))

    def _join(self, blocks: list[Tensor]) -> Tensor:
        """Join means of blocks, (q, c), in the shape of the values."""
        shape = len(self), *self.neighbors.values.shape[1:]
        return torch.cat([self.neighbors.columns[:0], *blocks]).reshape(shape)

    @property
    def one_head(self) -> NONAHead:
        """The first network's head; bounds, and means of nothing, are the same for all."""
        return self.split_by_head[0][0]

    @cached_property
    def split_by_head(self) -> list[tuple[NONAHead, Tensor, Tensor]]:
        """Each network's head, with the queries and the neighbours in its space."""
        return self.head.split_by_head(self.query, self.neighbors.embeddings)

    # -- all weights of a query ------------------------------------------------------------

    def map_weighted_rows(
        self,
        function: Callable[[slice, WeightedRows], Any],
        precise: bool = False,
        n_columns: int | None = None,
    ) -> list[Any]:
        """Apply a function to each block of queries: their slice, and their weighted rows."""
        return self._map_blocks(
            lambda queries, networks: function(queries, WeightedRows(networks)),
            precise,
            n_columns=n_columns,
        )

    def sparse_weights(self, tolerance: float = 0.0) -> sparse.csr_array:
        """Weights (q, n) above a tolerance, in float64, normalised to sum to 1."""
        blocks = self.map_weighted_rows(lambda _, rows: rows.sparse(tolerance))
        empty = sparse.csr_array((0, len(self.neighbors)))
        weights = sparse.vstack([empty, *blocks], format="csr")
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) and adjusted values (q, k, n_outputs) of k neighbours.

        These are the heaviest, heaviest first.
        """
        n_outputs = self.neighbors.columns.shape[1]
        zeros = self.query.new_zeros(0, k, n_outputs).double()
        empty = zeros[..., 0], zeros[..., 0].long(), zeros
        blocks = self.map_weighted_rows(lambda _, rows: rows.heaviest(k))
        weights, positions, values = map(torch.cat, zip(empty, *blocks, strict=True))
        return weights, positions, values

    def network_shares(self, k: int) -> Tensor:
        """Each network's share of the weights of the k heaviest neighbours, (q, k, K)."""
        shares = self.map_weighted_rows(lambda _, rows: rows.network_shares(k).movedim(0, 2))
        empty = self.query.new_zeros(0, k, len(self.split_by_head)).double()
        return torch.cat([empty, *shares])

    def sensitivities(self) -> Tensor:
        """By how much adjusted values change with each network's g, and with f, (q, K, 2, c)."""
        each = self._map_blocks(
            lambda _, networks: torch.stack([rows.sensitivity for rows in networks], dim=1)
        )
        empty = self.neighbors.columns.new_zeros(0, len(self.split_by_head), 2, 1)
        return torch.cat(each) if each else empty

    def only_earlier(self, positions: Tensor) -> Tensor:
        """Positions of neighbours, (q, k), -1 in place of rows that are excluded by their time."""
        exclusion = self.exclusion
        if exclusion is None or exclusion.limits is None or exclusion.times is None:
            return positions
        return positions.masked_fill(exclusion.times[positions] >= exclusion.limits[:, None], -1)

    def effective_sizes(self) -> Tensor:
        """One over the sum of squared weights, (q,); 0 without neighbours."""

        def size(weights):
            squares = weights.square().sum(dim=1)
            return torch.where(squares > 0, squares.reciprocal(), 0.0)

        return self._each_query(size)

    def support_sizes(self) -> Tensor:
        """Number of neighbours of positive weight, (q,)."""
        return self._each_query(lambda weights: (weights > 0).sum(dim=1)).long()

    def _each_query(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function (q,) of all weights of each query, (q, m), in float64."""
        blocks = self.map_weighted_rows(lambda _, rows: function(rows.weights()).double())
        return torch.cat([self.query.new_zeros(0).double(), *blocks])

    def distances(self) -> Tensor:
        """Euclidean distances to the nearest neighbour in each network's space, (q, K)."""
        blocks = self._map_blocks(
            lambda _, networks: torch.cat([rows.distance for rows in networks], dim=1),
        )
        empty = self.query.new_zeros(0, len(self.split_by_head)).double()
        return torch.cat([empty, *blocks])

    @property
    def similarity_of_distance(self) -> str:
        """The similarity that orders rows as their distance does: l2, if there is no other."""
        similarity = self.one_head.similarity
        return similarity if similarity in METRICS else "l2"

    def nearest(self, k: int) -> tuple[Tensor, Tensor]:
        """Distances, in float64, and positions (q, k) of the k nearest neighbours, nearest first.

        The networks' spaces are one space, side by side. Where a query has fewer than k
        neighbours, the distance is infinite and the position is -1.
        """
        similarity = self.similarity_of_distance
        algorithm = "brute" if self._has_times else self.neighbors.algorithm
        algorithm = algorithm if isinstance(algorithm, str) else "auto"
        index = self.neighbors.joint_index(self.head, similarity, algorithm)

        def find(queries):
            excluded = None if self.exclusion is None else self.exclusion.of(queries)
            query = self.head.metric_part(self.query[queries])
            return find_nearest(index, query, excluded, k)

        found = Candidates.concatenate(
            self._map_queries(find, SEARCHED_QUERIES) or [find(slice(0, 0))]
        )
        assert found.positions is not None
        missing = found.positions == len(self.neighbors)
        distances = float(similarity == "cosine") - found.similarity.double()
        return distances.clamp_min(0), found.positions.masked_fill(missing, -1)

    def step_sums(self) -> Tensor:
        """Each query's steps, summed over the neighbours, (q,); every head has a step."""

        def step_sum(_, networks):
            return torch.stack([rows.step_sum() for rows in networks]).mean(dim=0)

        blocks = self._map_blocks(step_sum, of_all=True)
        return torch.cat([self.query.new_zeros(0).double(), *blocks])

    def influence(self, residuals: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The influence of each neighbour on the predictions.

        If the others would share the weight of neighbour j in proportion to theirs, a network's
        prediction m changes by ``w_j (m - y_j) / (1 - w_j)`` without it, where y_j is adjusted.
        Otherwise it is evaluated without each neighbour that could change it more. The trend
        changes as well, if its shifts are known.

        Returns three tensors (n,): the sum of its weights over the queries; the mean over the
        queries and sum over the outputs of the squared change of a prediction without it; the
        same for the change of the squared error, given `residuals` (q, n_outputs), predictions
        minus truth (without them, the second again).
        """
        totals, adding = self.neighbors.columns.new_zeros(3, len(self.neighbors)), Lock()

        def add_influence(queries, rows):
            changed = error = 0.0
            shifts = None if self.shifts is None else self.shifts[queries]
            changes, by_row = rows.changes(), rows.sum_by_row
            if shifts is not None:
                changes, by_row = rows.changes_with(shifts), partial(torch.sum, dim=0)
            for j, change in enumerate(changes):
                residual = 0.0 if residuals is None else residuals[queries, j, None]
                changed = changed + change.square()
                error = error + change * (change + 2 * residual)
            sums = rows.sum_by_row(rows.weights()), by_row(changed), by_row(error)
            with adding:
                totals.add_(torch.stack(sums))

        n_columns = None if self.shifts is None else self.neighbors.columns.numel()
        self.map_weighted_rows(add_influence, n_columns=n_columns)
        weight, change, error = totals
        return weight, change / len(self), error / len(self)

    def changes(self) -> Tensor:
        """Changes of the predictions without each neighbour, (q, n, n_outputs), as above."""

        def of_all(queries, rows):
            if self.shifts is None:
                return rows.by_row(torch.stack([*rows.changes()], dim=2))
            return torch.stack([*rows.changes_with(self.shifts[queries])], dim=2)

        columns = self.neighbors.columns
        blocks = self.map_weighted_rows(of_all, n_columns=columns.numel())
        return torch.cat([columns.new_zeros(0, *columns.shape), *blocks])

    def representatives(self, n_rows: int) -> np.ndarray:
        """Positions of neighbours that together carry much of the queries' weights, (n_rows,).

        The objective is the sum over the queries of the square root of the weight of kept rows:
        the root gives diminishing returns for further rows of a query. It is maximised greedily,
        in SELECTION_ROUNDS rounds. Ties are broken at random.
        """
        weights = self.sparse_weights()
        shuffled = np.random.RandomState(0).permutation(len(self.neighbors))
        kept = np.zeros(len(self.neighbors), dtype=bool)
        for done in range(1, SELECTION_ROUNDS + 1):
            gain = weights.T @ (weights @ kept + LEAST_SHARE) ** -0.5
            gain[kept] = -1.0
            n_missing = n_rows * done // SELECTION_ROUNDS - kept.sum()
            first = np.argsort(-gain[shuffled], kind="stable")[:n_missing]
            kept[shuffled[first]] = True
        return np.flatnonzero(kept)

    # -- blocks of queries -----------------------------------------------------------------

    def _map_blocks(
        self,
        function: Callable[[slice, list[NetworkRows]], Any],
        precise: bool = False,
        of_all: bool = False,
        n_columns: int | None = None,
    ) -> list[Any]:
        """Apply a function to each block of queries: their slice, and each network's rows.

        Weights of few rows are in float64. Those of all rows are in the similarities' precision,
        unless they are to be `precise`, as a small power of a weight needs it to be. With
        `of_all`, all rows are taken even where only the nearest have weight. A function that holds
        more numbers for a query than weights states it as `n_columns`.
        """
        parts = self.split_by_head
        found = None if of_all else self.search()

        def apply(queries):
            of_queries = self.offset, self.left_out, self.added
            others = [None if each is None else each[queries] for each in of_queries]
            excluded = None if self.exclusion is None else self.exclusion.of(queries)
            candidates = self.compare_all(queries) if found is None else found
            networks = []
            for (head, query, z), own in zip(parts, candidates, strict=True):
                if found is not None:
                    own = own[queries]
                if (found is not None or precise) and not _resolves_similarity(head):
                    own = replace(own, similarity=own.similarity.double())
                neighbors = replace(self.neighbors, embeddings=z)
                rows = head, query[queries], neighbors, own, excluded
                networks.append(rows_of(head)(*rows, *others))
            return function(queries, networks)

        if n_columns is None:
            n_columns = len(self.neighbors)
            if found is not None and self.left_out is None:  # whose residuals are of all rows
                n_columns = sum(each.similarity.shape[1] for each in found)
        return self._map_queries(apply, max(1, BLOCK_PAIRS // max(1, n_columns)))

    def _map_queries(self, function: Callable[[slice], Any], most: int) -> list[Any]:
        """Apply a function to blocks of at most so many queries.

        Tiles are too small to share among threads, so on the CPU each thread has blocks of its
        own.
        """
        on_cpu = self.query.device.type == "cpu"
        n_threads = min(torch.get_num_threads(), most) if on_cpu else 1
        size = min(most, max(LEAST_QUERY_BLOCK, math.ceil(len(self) / n_threads)))
        blocks = spans(len(self), size)
        apply = torch.inference_mode()(function)  # each thread has a mode of its own
        if not on_cpu or torch.get_num_threads() == 1:
            return [apply(queries) for queries in blocks]
        return WORKERS.map(apply, blocks, n_threads)

    # -- search ----------------------------------------------------------------------------

    _found: ClassVar[tuple[Candidates, ...] | None] = None  # of a search, kept for further answers

    def bounds(self, n_rows: int) -> list[int] | None:
        """The most of n rows that each network can weigh; None where one has no such number."""
        bounds = [head.most_weighed(n_rows) for head, _, _ in self.split_by_head]
        finite = [k for k in bounds if k is not None]
        return finite if len(finite) == len(bounds) else None

    def search(self) -> tuple[Candidates, ...] | None:
        """The rows that can have weight, and for each query one more to take the place of another.

        They are searched once. None where these are all rows, which are compared block by block.
        """
        n_rows = len(self.neighbors)
        bounds = self.bounds(n_rows)
        if bounds is None or self.candidates is not None:
            return self.candidates
        wanted, found = [min(k + 1, n_rows) for k in bounds], self._found or ()
        if not found or any(
            each.similarity.shape[1] < k for each, k in zip(found, wanted, strict=True)
        ):
            found = vars(self)["_found"] = self.find_nearest(wanted)
        return tuple(each.first(k) for each, k in zip(found, wanted, strict=True))

    def with_nearest(self, k: int) -> Evaluation:
        """The same, with at least the k nearest rows of each network, if those weighed are few.

        Rows without weight are then in the order of their nearness.
        """
        bounds = self.bounds(len(self.neighbors))
        if bounds is None or k <= min(bounds) or self.candidates is not None:
            return self
        wanted = [min(max(bound + 1, k), len(self.neighbors)) for bound in bounds]
        return replace(self, candidates=self.find_nearest(wanted))

    def find_nearest(self, wanted: list[int]) -> tuple[Candidates, ...]:
        """The nearest rows, of each network so many."""
        neighbors = self.neighbors.searched_by("brute") if self._has_times else self.neighbors
        indexes = neighbors.indexes(self.head)

        def find(queries):
            return self._choose(
                queries,
                lambda i, query, excluded: find_nearest(indexes[i], query, excluded, wanted[i]),
            )

        blocks = self._map_queries(find, SEARCHED_QUERIES) or [find(slice(0, 0))]
        return tuple(Candidates.concatenate(list(each)) for each in zip(*blocks, strict=True))

    @property
    def _has_times(self) -> bool:
        """Whether times exclude neighbours: many of them, which only 'brute' can exclude."""
        return self.exclusion is not None and self.exclusion.times is not None

    def compare_all(self, queries: slice = slice(None)) -> list[Candidates]:
        """All rows as candidates of some queries, for each network."""
        computers, tiles = self._similarity_computers, self._tiles
        return self._choose(
            queries,
            lambda i, query, excluded: compare_all(computers[i].bind(query), tiles, excluded),
        )

    def _choose(self, queries: slice, choose: Callable[..., Candidates]) -> list[Candidates]:
        """Candidates for each network, chosen by its number, its queries and the exclusion."""
        excluded = None if self.exclusion is None else self.exclusion.of(queries)
        found, offset = [], self.neighbors.offset
        for i, (head, query, neighbors) in enumerate(self.split_by_head):
            query = head.metric_part(query[queries])
            own = choose(i, query, excluded)
            fades = bool(head.n_adjusted) or (offset is not None and offset.fades)
            if fades and head.similarity not in ("l2", "log_l2"):
                metric = head.metric_part(neighbors)
                own = replace(own, nearest=nearest_by_l2(query, metric, self._tiles, excluded))
            found.append(own)
        return found

    @property
    def _tiles(self) -> list[slice]:
        return tiles_of(self.query.device, len(self.neighbors))

    @property
    def _similarity_computers(self) -> list[SimilarityComputer]:
        """Each network's similarity computer, cached with the neighbours."""
        parts, cache = self.split_by_head, self.neighbors.cache
        similarities = tuple(head.similarity for head, _, _ in parts)
        if similarities not in cache:
            cache_bytes = CACHE_BYTES // len(parts)
            cache[similarities] = [
                similarity_computer(head.similarity, head.metric_part(embeddings), cache_bytes)
                for head, _, embeddings in parts
            ]
        return cache[similarities]


def _resolves_similarity(head: NONAHead) -> bool:
    """Whether weights depend on how finely similarities are rounded: on what is equally near."""
    return head.step is not None and head.step.on == "similarity"


def _mean_of(networks: list[NetworkRows], function: Callable[[NetworkRows], Tensor]) -> Tensor:
    """The mean over the networks of a function of each one's rows, (q, c)."""
    return torch.stack(list(map(function, networks))).mean(dim=0)


def rows_of(head: NONAHead) -> type[NetworkRows]:
    """The rows behind predictions of numbers, or of classes."""
    return NetworkClassRows if isinstance(head, ClassHead) else NetworkRows
