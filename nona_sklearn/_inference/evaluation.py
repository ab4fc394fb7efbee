"""Evaluation of a head for a block of queries: every answer about them comes from here.

:meth:`Evaluation.map_weighted_rows` cuts the queries into blocks, and weighs the rows of each
block, for each network, as :mod:`~nona_sklearn.attention.prediction` states. The answers are
means over these rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .._utils.precision import exact
from .._utils.threads import WORKERS, cached_property
from .._utils.validation import some_of, spans
from ..attention.prediction import Candidates, compare_all, nearest_by_l2, rows_of
from .index import METRICS, Admission
from .influence import TrendShifts, by_row, changes_with, changes_without, influence_of_block
from .neighbors import (
    Exclusion,
    LabelExclusion,
    LeftOutQueries,
    MaskExclusion,
    Neighbors,
    RuleExclusion,
    count_admitted,
)
from .weighted_rows import WeightedRows

if TYPE_CHECKING:
    from ..attention.functional import Pairs
    from ..attention.head import AverageHead, NONAHead

Some = slice | Tensor  # of the queries
LEAST_QUERY_BLOCK = 32  # fewer queries make a matrix product inefficient
BLOCK_PAIRS = 2**21  # weights that are held at a time
SEARCHED_QUERIES = 512  # at a time
SELECTION_ROUNDS, LEAST_SHARE = 20, 0.01


@dataclass(eq=False)
class Evaluation:
    """A head evaluated for some queries and neighbours.

    :meth:`attend` is the definition, with gradients and all pairs at once. The other methods
    evaluate the mean of the networks' weights: of the nearest rows, which are searched once, where
    weights end after some number of them, and else of all rows, block by block.
    """

    head: NONAHead | AverageHead
    neighbors: Neighbors
    query: Tensor  # (q, d), embeddings of the queries
    exclusion: Exclusion | None = None  # the excluded pairs
    #: The rows that can have weight, for each network; None: they are searched.
    candidates: tuple[Candidates, ...] | None = None
    #: What unknown levels add, (q, n_outputs): variances to calibrated distributions or, for each
    #: class, a part of its probability, of which the others have the rest; None: nothing.
    added: Tensor | None = None
    query_trend: Tensor | None = None  # (q, n_outputs), if the neighbours have one
    #: The queries, if they are rows that are to be left out of the trend at their neighbours.
    left_out: LeftOutQueries | None = None
    shifts: TrendShifts | None = None  # of the trend without each neighbour, if they are known
    #: What :meth:`search` has found, for further answers.
    nearest_rows: tuple[Candidates, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self):
        assert (self.query_trend is None) == (self.neighbors.offset is None)

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: Tensor | np.ndarray) -> Evaluation:
        """Select some of the queries."""
        rows = torch.as_tensor(rows)
        names = "query", "exclusion", "added", "query_trend", "left_out", "shifts"
        parts = {name: some_of(getattr(self, name), rows) for name in names}
        candidates = self.candidates and tuple(part[rows] for part in self.candidates)
        some = replace(self, candidates=candidates, **parts)
        some.nearest_rows = self.nearest_rows and tuple(part[rows] for part in self.nearest_rows)
        return some

    def attend(self) -> Tensor:
        """Weighted means of the neighbours' values, (q,) or (q, n_outputs), by definition."""
        neighbors, scale = self.neighbors, self.neighbors.adjustment_scale
        if isinstance(scale, Tensor):
            scale = scale.to(self.query.dtype)
        return self.head(
            self.query,
            neighbors.embeddings,
            neighbors.values.to(self.query.dtype),
            None if self.exclusion is None else self.exclusion.of(),
            neighbors.log_prior,
            scale,
        )

    # -- means -----------------------------------------------------------------------------

    def mean(self) -> Tensor:
        """Predictions, (q,) or (q, c), in float64; of isolated queries as if nothing is known."""
        return self._with_unknown(self.map_weighted_rows(WeightedRows.mean))

    def weigh(self) -> Callable[[], Tensor]:
        """Weigh the rows once; what is returned is :meth:`mean` by these weights.

        It may be called after each change of the head that changes no weight.
        """

        def keep(rows: WeightedRows) -> WeightedRows:
            for network in rows.networks:
                network.mean()  # what takes time is kept with the rows
            return rows

        blocks = self.map_weighted_rows(keep)

        @torch.inference_mode()
        def mean() -> Tensor:
            return self._with_unknown([rows.mean() for rows in blocks])

        return mean

    def _with_unknown(self, blocks: list[Tensor]) -> Tensor:
        """Predictions of blocks, those of isolated queries as if nothing is known."""
        means = torch.cat([self.neighbors.columns[:0], *blocks])
        means = means.reshape(len(self), *self.neighbors.values.shape[1:])
        if (isolated := self.isolated) is not None:
            means[isolated] = self.one_head.unknown(means)
        return means

    def plain_mean(self) -> Tensor:
        """Weighted means of the values, (q,) or (q, c), not adjusted, in float64."""
        means = self._of_queries(WeightedRows.plain_mean, self.neighbors.columns.shape[1])
        return means.reshape(len(self), *self.neighbors.values.shape[1:])

    @property
    def isolated(self) -> Tensor | None:
        """Queries without any earlier neighbour, bool (q,); None if there are none."""
        if self.exclusion is None:
            return None
        if self.nearest_rows and isinstance(self.exclusion, RuleExclusion | MaskExclusion):
            similarity = self.nearest_rows[0].similarity  # by which the rule need not be repeated
            isolated: Tensor | None = (similarity == -math.inf).all(dim=1)
        else:
            isolated = self.exclusion.isolated()
        return None if isolated is None or not isolated.any() else isolated

    def without_isolated(self, *others: Any) -> tuple[Any, ...]:
        """The same without the queries that have no neighbour, and others without their entries.

        `others` are tensors or arrays of shape (q, ...), or None.
        """
        if (isolated := self.isolated) is None:
            return self, *others
        connected = (~isolated).nonzero()[:, 0]
        indices = connected.cpu().numpy()
        kept = (
            values
            if values is None
            else values[indices if isinstance(values, np.ndarray) else connected]
            for values in others
        )
        return self[connected], *kept

    def without_trend(self) -> Evaluation:
        """The same by the networks alone."""
        candidates = self.search()
        neighbors = self.neighbors.with_offset(None)
        networks = replace(self, neighbors=neighbors, candidates=candidates, query_trend=None)
        return replace(networks, left_out=None, shifts=None)

    @property
    def one_head(self) -> NONAHead:
        """The first network's head; bounds, and means of nothing, are the same for all."""
        return self.split_by_head[0][0]

    @cached_property
    def split_by_head(self) -> list[tuple[NONAHead, Tensor, Any]]:
        """Each network's head, with the queries and the neighbours in its space."""
        return self.neighbors.split_by_head(self.head, self.query)

    # -- all weights of a query ------------------------------------------------------------

    def sparse_weights(self, tolerance: float = 0.0) -> sparse.csr_array:
        """Weights (q, n) above a tolerance, in float64, normalised to sum to 1."""
        blocks = self.map_weighted_rows(lambda rows: rows.sparse(tolerance))
        empty = sparse.csr_array((0, len(self.neighbors)))
        weights = sparse.vstack([empty, *blocks], format="csr")
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and positions (q, k) and adjusted values (q, k, n_outputs) of k neighbours.

        These are the heaviest, heaviest first.
        """
        values = exact(self.query.new_zeros(0, k, self.neighbors.columns.shape[1]))
        blocks = self.map_weighted_rows(lambda rows: rows.heaviest(k))
        empty = values[..., 0], values[..., 0].long(), values
        weights, positions, values = map(torch.cat, zip(empty, *blocks, strict=True))
        return weights, positions, values

    def network_shares(self, k: int) -> Tensor:
        """Each network's share of the weights of the k heaviest neighbours, (q, k, K)."""
        n_networks = len(self.split_by_head)
        return self._of_queries(lambda rows: rows.network_shares(k).movedim(0, 2), k, n_networks)

    def sensitivities(self) -> Tensor:
        """By how much adjusted values change with each network's g, and with f, (q, K, 2, c)."""
        return self._of_queries(
            lambda rows: torch.stack([part.sensitivity for part in rows.networks], dim=1),
            *(len(self.split_by_head), 2, self.neighbors.columns.shape[1]),
        )

    def only_admitted(self, positions: Tensor) -> Tensor:
        """Positions of neighbours, (q, k), -1 in place of rows excluded by a time or a rule."""
        if (exclusion := self.exclusion) is None or isinstance(exclusion, LabelExclusion):
            return positions
        blocks = [positions[:0]]
        for queries in spans(len(self), max(1, BLOCK_PAIRS // len(self.neighbors))):
            some = positions[queries]
            blocks.append(some.masked_fill(exclusion.of(queries).gather(1, some), -1))
        return torch.cat(blocks)

    def effective_sizes(self) -> Tensor:
        """One over the sum of squared weights, (q,); 0 without neighbours."""

        def size(rows: WeightedRows) -> Tensor:
            squares = rows.weights().square().sum(dim=1)
            return torch.where(squares > 0, squares.reciprocal(), 0.0)

        return self._of_queries(size)

    def support_sizes(self) -> Tensor:
        """Number of neighbours of positive weight, (q,)."""
        return self._of_queries(lambda rows: (rows.weights() > 0).sum(dim=1)).long()

    def step_sums(self) -> Tensor:
        """Each query's steps, summed over the neighbours, (q,); every head has a step."""
        return self._of_queries(
            lambda rows: torch.stack([part.step_sum() for part in rows.networks]).mean(dim=0),
            of_all=True,
        )

    def distances(self) -> Tensor:
        """Euclidean distances to the nearest neighbour in each network's space, (q, K)."""
        return self._of_queries(
            lambda rows: torch.cat([part.distance for part in rows.networks], dim=1),
            len(self.split_by_head),
        )

    def _of_queries(
        self, function: Callable[[WeightedRows], Tensor], *shape: int, **options: Any
    ) -> Tensor:
        """What a function makes of the rows of all queries, (q, *shape), in float64."""
        empty = self.neighbors.columns.new_zeros(0, *shape)
        return torch.cat([empty, *self.map_weighted_rows(function, **options)])

    # -- without single rows ---------------------------------------------------------------

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

        def add_influence(rows: WeightedRows) -> None:
            shifts, errors = (some_of(part, rows.queries) for part in (self.shifts, residuals))
            sums = influence_of_block(rows, shifts, errors)
            with adding:
                totals.add_(sums)

        n_columns = None if self.shifts is None else self.neighbors.columns.numel()
        self.map_weighted_rows(add_influence, n_columns=n_columns)
        weight, change, error = totals
        return weight, change / len(self), error / len(self)

    def changes(self) -> Tensor:
        """Changes of the predictions without each neighbour, (q, n, n_outputs), as above."""

        def of_block(rows: WeightedRows) -> Tensor:
            if self.shifts is not None:
                return changes_with(rows, self.shifts[rows.queries])
            changes = torch.stack([*changes_without(rows)], dim=2)
            return by_row(changes, rows.positions, rows.n_rows)

        columns = self.neighbors.columns
        return self._of_queries(of_block, *columns.shape, n_columns=columns.numel())

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

    def map_weighted_rows(
        self,
        function: Callable[[WeightedRows], Any],
        precise: bool = False,
        of_all: bool = False,
        n_columns: int | None = None,
    ) -> list[Any]:
        """Apply a function to the weighted rows of every block of queries.

        Similarities of few rows are in float64. Similarities of all rows are in their own
        precision, unless they are to be `precise`, as a small power of a weight needs them to be.
        With `of_all`, all rows are taken even where only the nearest have weight. A function that
        holds more numbers for a query than weights states it as `n_columns`.
        """
        nearest_rows = None if of_all else self.search()
        if n_columns is None:
            n_columns = len(self.neighbors)
            if nearest_rows is not None and self.left_out is None:  # its residuals are of all rows
                n_columns = sum(part.similarity.shape[1] for part in nearest_rows)

        def of_block(queries: slice) -> Any:
            excluded = None
            if nearest_rows is None and self.exclusion is not None:
                excluded = self.exclusion.of(queries)
            networks = []
            for i, (head, query, z) in enumerate(self.split_by_head):
                if nearest_rows is not None:
                    candidates = nearest_rows[i][queries]
                else:
                    z = z.tensor
                    candidates = compare_all(head, query[queries], z, excluded, self._fades(head))
                # Weights depend on how finely similarities are rounded where a step is on them.
                steps_on_similarity = head.step is not None and head.step.on == "similarity"
                if (nearest_rows is not None or precise) and not steps_on_similarity:
                    candidates = replace(candidates, similarity=exact(candidates.similarity))
                rows = rows_of(
                    head,
                    query[queries],
                    z,
                    self.neighbors.columns,
                    candidates,
                    self.neighbors.log_prior,
                    self.neighbors.adjustment_scale,
                    self.neighbors.offset,
                    some_of(self.query_trend, queries),
                    some_of(self.left_out, queries),
                    some_of(self.added, queries),
                )
                networks.append(rows)
            return function(WeightedRows(networks, queries, self.exclusion))

        return self._in_blocks(of_block, max(1, BLOCK_PAIRS // max(1, n_columns)))

    def _in_blocks(self, function: Callable[[slice], Any], most: int) -> list[Any]:
        """Apply a function to blocks of at most so many queries, in threads.

        A block is too small to share among threads, so on the CPU every thread has its own.
        """
        on_cpu = self.query.device.type == "cpu"
        n_threads = min(torch.get_num_threads(), most) if on_cpu else 1
        size = min(most, max(LEAST_QUERY_BLOCK, math.ceil(len(self) / n_threads)))
        blocks = spans(len(self), size)
        apply = torch.inference_mode()(function)  # a thread has a mode of its own
        if not on_cpu or torch.get_num_threads() == 1:
            return [apply(queries) for queries in blocks]
        return WORKERS.map(apply, blocks, n_threads)

    # -- search ----------------------------------------------------------------------------

    def bounds(self, n_rows: int) -> list[int] | None:
        """The most of n rows that each network can weigh; None where one has no such number."""
        bounds = [head.most_weighed(n_rows) for head, _, _ in self.split_by_head]
        finite = [k for k in bounds if k is not None]
        return finite if len(finite) == len(bounds) else None

    def search(self, wanted: Sequence[int] | None = None) -> tuple[Candidates, ...] | None:
        """Find each query's candidate rows in each network: so many of the nearest.

        By default these are all that can have weight, and one to take the place of another; None
        where these are all rows, which are compared block by block. They are searched once.
        """
        n_rows, bounds = len(self.neighbors), None
        if wanted is None:
            bounds = self.bounds(n_rows)
            if bounds is None or self.candidates is not None:
                return self.candidates
            wanted = [min(k + 1, n_rows) for k in bounds]
            if kept := self.nearest_rows:
                pairs = [*zip(kept, wanted, strict=True)]
                if all(part.similarity.shape[1] >= k for part, k in pairs):
                    return tuple(part.first(k) for part, k in pairs)
        indexes = self._searched.indexes(self.head)

        def find(block: slice) -> list[Candidates]:
            queries, among, excluded = self._compared(block)
            networks = []
            for (head, query, z), index, k in zip(
                self.split_by_head, indexes, wanted, strict=True
            ):
                compared = head.metric_part(query)[queries]
                nearest = index.query(compared, k, excluded, among)
                n_compared, n_admitted = n_rows if among is None else len(among), None
                if head.counts_admitted:
                    n_admitted = count_admitted(excluded, len(compared), n_compared)
                by_l2 = None
                if self._fades(head):
                    rows = z if among is None else z[among]
                    masked = excluded if isinstance(excluded, tuple | None) else excluded.of()
                    by_l2 = nearest_by_l2(head, compared, head.metric_part(rows), masked)
                networks.append(Candidates.of_search(*nearest, n_rows, n_admitted, by_l2))
            return networks

        at_once = [index.n_queries_at_once(k) for index, k in zip(indexes, wanted, strict=True)]
        size = min(SEARCHED_QUERIES, *at_once)
        networks = self._joined(self._in_blocks(find, size) or [find(slice(0, 0))])
        if bounds is not None:
            self.nearest_rows = networks
        return networks

    def with_nearest(self, k: int) -> Evaluation:
        """The same, with at least the k nearest rows of each network, if those weighed are few.

        Rows without weight are then in the order of their nearness.
        """
        bounds = self.bounds(len(self.neighbors))
        if bounds is None or k <= min(bounds) or self.candidates is not None:
            return self
        wanted = [min(max(bound + 1, k), len(self.neighbors)) for bound in bounds]
        return replace(self, candidates=self.search(wanted))

    def nearest(self, k: int) -> tuple[Tensor, Tensor]:
        """Distances, in float64, and positions (q, k) of the k nearest neighbours, nearest first.

        The networks' spaces are one space, side by side. Where a query has fewer than k
        neighbours, the distance is infinite and the position is -1.
        """
        similarity, algorithm = self.similarity_of_distance, self._searched.algorithm
        algorithm = algorithm if isinstance(algorithm, str) else "auto"
        index = self.neighbors.joint_index(self.head, similarity, algorithm)
        query = self.head.metric_part(self.query)

        def find(block: slice) -> list[Candidates]:
            queries, among, excluded = self._compared(block)
            return [Candidates(*index.query(query[queries], k, excluded, among))]

        size = min(SEARCHED_QUERIES, index.n_queries_at_once(k))
        (found,) = self._joined(self._in_blocks(find, size) or [find(slice(0, 0))])
        assert found.positions is not None
        distances = (float(similarity == "cosine") - exact(found.similarity)).clamp_min(0)
        return distances, found.positions.masked_fill(found.similarity == -math.inf, -1)

    @property
    def _order(self) -> Tensor | None:
        """Queries in the order of a search. By a rule, those of a block reach the same rows."""
        order = self.exclusion.order if isinstance(self.exclusion, RuleExclusion) else None
        return order if order is not None and len(order) else None

    def _compared(self, block: slice) -> tuple[Some, Tensor | None, Pairs | Admission | None]:
        """Queries of a block, the rows to compare, if not all, and the excluded pairs of both."""
        exclusion, order = self.exclusion, self._order
        if exclusion is None:
            return block, None, None
        if isinstance(exclusion, LabelExclusion):
            return block, None, exclusion.of(block)
        if order is None:
            return block, None, exclusion[block]
        assert isinstance(exclusion, RuleExclusion)
        queries = order[block]
        rows = exclusion.reached(queries)
        return queries, rows, exclusion[queries].among(rows)

    def _joined(self, blocks: list[list[Candidates]]) -> tuple[Candidates, ...]:
        """What the blocks of a search have found in each network, in the order of the queries."""
        networks = (Candidates.concatenate(list(of)) for of in zip(*blocks, strict=True))
        if self._order is None:
            return tuple(networks)
        back = self._order.argsort()
        return tuple(found[back] for found in networks)

    @property
    def similarity_of_distance(self) -> str:
        """The similarity that orders rows as their distance does: l2, if there is no other."""
        similarity = self.one_head.similarity
        return similarity if similarity in METRICS else "l2"

    @property
    def _searched(self) -> Neighbors:
        """The neighbours; where many are excluded, 'brute' leaves these out itself."""
        excludes_many = not isinstance(self.exclusion, LabelExclusion | None)
        return self.neighbors.searched_by("brute") if excludes_many else self.neighbors

    def _fades(self, head: NONAHead) -> bool:
        """Whether a head needs the Euclidean distance of the nearest row."""
        offset = self.neighbors.offset
        return head.n_adjusted > 0 or (offset is not None and offset.fades)
