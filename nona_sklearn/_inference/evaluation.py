"""Questions: a head, neighbours, queries, and who must not meet whom. Every answer starts here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .._utils.chunks import spans
from .._utils.settings import WORKERS, cached_property
from ..attention import AverageHead, NONAHead
from ..ranking import largest
from .neighbors import Exclusion, Neighbors
from .tiles import (
    KEPT_BYTES,
    Comparison,
    Known,
    Tiles,
    compare,
    in_one_piece,
    mask_pairs_,
    tile_shape,
    tiles_of,
)

LEAST_QUERY_BLOCK = 32  # with less, a matrix product wastes time
WHOLE_ENTRIES = 2**20  # pairs at a time where a query must see the whole bank at once
SELECTION_ROUNDS, LEAST_SHARE = 20, 0.01


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Some queries, asked of a head and its neighbours.

    :meth:`attend` is the definition, with gradients and all pairs at once. The other answers
    stream over tiles, and evaluate the mean of the networks' weights.

    Parameters
    ----------
    head : NONAHead or AverageHead
        Gives the weights.
    neighbors : Neighbors
        What is weighted.
    query : Tensor of shape (q, d)
        Embeddings of the queries.
    exclusion : Exclusion, optional
        Who must not meet whom; None: everybody may meet.
    known : tuple of Known, optional
        What a larger bank says of the queries to each network, of which the neighbours are a part.
    """

    head: NONAHead | AverageHead
    neighbors: Neighbors
    query: Tensor
    exclusion: Exclusion | None = None
    known: tuple[Known, ...] | None = None

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, rows: Tensor | np.ndarray) -> Evaluation:
        """Ask about some of the queries."""
        exclusion = self.exclusion
        if exclusion is not None:
            exclusion = replace(exclusion, queries=exclusion.queries[rows])
        rows = torch.as_tensor(rows)
        known = None if self.known is None else tuple(each[rows] for each in self.known)
        return replace(self, query=self.query[rows], exclusion=exclusion, known=known)

    # -- at once, with gradients -----------------------------------------------------------

    def attend(self) -> Tensor:
        """Weighted means of the neighbours' values, (q,) or (q, n_outputs), by definition."""
        neighbors = self.neighbors
        excluded = None if self.exclusion is None else self.exclusion.pairs()
        unit = neighbors.unit
        if isinstance(unit, Tensor):
            unit = unit.to(self.query.dtype)
        return self.head(
            self.query,
            neighbors.embeddings,
            neighbors.values.to(self.query.dtype),
            excluded,
            neighbors.log_prior,
            unit,
        )

    # -- tile by tile ----------------------------------------------------------------------

    def mean(self) -> Tensor:
        """What the head makes of weighted means of the values, (q,) or (q, c), in float64."""
        values = self.neighbors.summands
        return self._average(lambda tiles: tiles.mean(values))

    @property
    def needs_extremes(self) -> bool:
        """Whether a weight depends on the nearest and the farthest of all neighbours."""
        return any(
            head.step is not None or head.weighting.needs_nearest for head, _, _ in self.parts
        )

    @property
    def parts(self) -> list[tuple[NONAHead, Tensor, Tensor]]:
        """Each network's head, with the queries and the neighbours where it looks."""
        return self.head.split_by_head(self.query, self.neighbors.embeddings)

    def extremes(self) -> tuple[Known, ...]:
        """The nearest and the farthest similarities, for each network."""
        return self._join(lambda tiles: Known(tiles.extremes))

    def said(self) -> tuple[Known, ...]:
        """What the neighbours say to whoever merges it with what others say, for each network."""
        values = self.neighbors.summands
        return self._join(lambda tiles: tiles.known(values))

    def powered(self, power: float) -> tuple[Known, ...]:
        """What the neighbours say of the sum of weights to a power, for each network."""
        return self._join(lambda tiles: tiles.known_powered(power), whole_rows=True)

    def _join(self, say: Callable[[Tiles], Known], whole_rows: bool = False) -> tuple[Known, ...]:
        blocks = self._blocks(lambda _, parts: [say(tiles) for tiles in parts], whole_rows)
        return tuple(map(Known.join, zip(*blocks, strict=True)))

    def plain_mean(self) -> Tensor:
        """Weighted means of the values as they are, (q,) or (q, c), in float64."""
        values = self.neighbors.summands
        return self._average(lambda tiles: tiles.plain_mean(values))

    def _average(self, say: Callable[[Tiles], Tensor]) -> Tensor:
        """The mean of what each network's tiles say, in the shape of the values."""

        def answer(_, parts):
            return torch.stack([say(tiles) for tiles in parts]).mean(dim=0)

        shape = len(self), *self.neighbors.values.shape[1:]
        return self._rows(answer, self.neighbors.columns[:0]).reshape(shape)

    def sparse_weights(self, tolerance: float = 0.0) -> sparse.csr_array:
        """Weights (q, n) above a tolerance, in float64, made to sum to 1."""

        def answer(_, parts):
            tiles = [
                sparse.csr_array(torch.threshold_(tile, tolerance, 0.0).cpu().numpy())
                for _, tile in _mean_weights(parts)
            ]
            return sparse.hstack(tiles, format="csr", dtype=np.float64)

        nobody = sparse.csr_array((0, len(self.neighbors)))
        weights = sparse.vstack([nobody, *self._blocks(answer)], format="csr")
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def heaviest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Find the k heaviest neighbours, heaviest first.

        Returns
        -------
        weights : Tensor of shape (q, k)
            Their weights.
        positions : int Tensor of shape (q, k)
            Where they are.
        values : Tensor of shape (q, k, n_outputs)
            Their values, adjusted to the query.
        """
        columns = self.neighbors.columns

        def answer(queries, parts):
            n_queries = queries.stop - queries.start
            weights = self.query.new_full((n_queries, k), -1.0)
            positions = torch.zeros_like(weights, dtype=torch.long)
            each = weights.new_zeros(len(parts), n_queries, k)
            for rows, tiles in _each_network(parts):
                mean = mask_pairs_(_mean(tiles), parts[0].excluded(rows), -1.0)  # last, even of 0
                found, places = largest(mean, min(k, mean.shape[1]))
                weights, best = torch.cat([weights, found], dim=1).topk(k, dim=1)
                positions = torch.cat([positions, places + rows.start], dim=1).gather(1, best)
                here = torch.stack([tile.gather(1, places) for tile in tiles])
                each = torch.cat([each, here], dim=2).gather(2, best.expand(len(parts), -1, -1))
            values = _mean_adjusted(parts, positions, each)
            return torch.cat([weights[:, None], positions[:, None], values.mT], dim=1)

        empty = self.query.new_zeros(0, 2 + columns.shape[1], k)
        weights, positions, values = self._rows(answer, empty).tensor_split([1, 2], dim=1)
        return weights[:, 0], positions[:, 0].long(), values.mT

    def extents(self) -> Tensor:
        """Least and largest values, (2, k, n_outputs): as they are, and less each network's `g`.

        However far a shift fades, the adjusted values of a network lie no farther apart than one
        of these.
        """
        values, unit = self.neighbors.columns, self.neighbors.unit
        each = [values]
        if unit is not None:
            each += [
                values - unit * head.adjustments(z).double()
                for head, _, z in self.parts
                if head.n_adjusted
            ]
        return torch.stack([torch.stack([v.amin(dim=0), v.amax(dim=0)]) for v in each], dim=1)

    def effective_sizes(self) -> Tensor:
        """One over the sum of squared weights, (q,)."""

        def answer(_, parts):
            squares = [tile.double().square().sum(dim=1) for _, tile in _mean_weights(parts)]
            return sum(squares).reciprocal()

        return self._rows(answer, self.query.new_zeros(0))

    def support_sizes(self) -> Tensor:
        """How many neighbours weigh more than 0, (q,)."""

        def answer(_, parts):
            return sum((tile > 0).sum(dim=1) for _, tile in _mean_weights(parts))

        return self._rows(answer, self.query.new_zeros(0)).long()

    def distances(self) -> Tensor:
        """Euclidean distances to the nearest neighbour where each network compares, (q, K)."""

        def answer(_, parts):
            return torch.cat([-tiles.nearest for tiles in parts], dim=1).double()

        n_networks = len(self.head.split_by_head(self.query, self.neighbors.embeddings))
        return self._rows(answer, self.query.new_zeros(0, n_networks))

    def step_sums(self) -> Tensor:
        """Each query's steps, summed over the neighbours, (q,); every head has a step."""

        def answer(_, parts):
            return torch.stack([tiles.step_sum() for tiles in parts]).mean(dim=0)

        return self._rows(answer, self.query.new_zeros(0), whole_rows=True)

    def influence(self, residuals: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """What each neighbour does to the predictions.

        Where without neighbour j the others share its weight in proportion, a network's
        prediction m changes by ``w_j (m - y_j) / (1 - w_j)``, where y_j is adjusted. Elsewhere
        it is asked again without each neighbour that could change more.

        Parameters
        ----------
        residuals : Tensor of shape (q, n_outputs), optional
            Prediction minus truth of each query.

        Returns
        -------
        weight : Tensor of shape (n,)
            Sum of its weights over the queries.
        change : Tensor of shape (n,)
            Mean over the queries, and sum over the outputs, of the squared change of a
            prediction without it.
        error : Tensor of shape (n,)
            The same of the change of the squared error; that of `change` without `residuals`.
        """
        values = self.neighbors.columns
        sums = self.neighbors.summands
        totals, adding = values.new_zeros(len(values), 3), Lock()

        def answer(queries, parts):
            means = [tiles.mean(sums) for tiles in parts]
            for rows, each in told(parts):
                weight = sum(each).double().sum(dim=0) / len(parts)
                said = torch.stack([weight, 0 * weight, 0 * weight], dim=1)
                changes = (
                    tiles.changes(rows, weights, mean)
                    for tiles, weights, mean in zip(parts, each, means, strict=True)
                )
                for j, of_networks in enumerate(zip(*changes, strict=True)):
                    change = sum(of_networks) / len(parts)
                    residual = 0.0 if residuals is None else residuals[queries, j, None]
                    said[:, 1] += change.square().sum(dim=0)
                    said[:, 2] += (change * (change + 2 * residual)).sum(dim=0)
                with adding:
                    totals[rows] += said

        parts = self.head.split_by_head(self.query, self.neighbors.embeddings)
        again = not all(head.keeps_proportions for head, _, _ in parts)
        told = _whole_rows if again else _each_network
        self._blocks(answer, whole_rows=again)
        weight, change, error = totals.unbind(dim=1)
        return weight, change / len(self), error / len(self)

    def received(self, importance: Tensor) -> Tensor:
        """Each neighbour's weight, summed over queries of some importance (q,), (n,)."""
        totals, adding = importance.new_zeros(len(self.neighbors)), Lock()

        def answer(queries, parts):
            for rows, tile in _mean_weights(parts):
                said = importance[queries] @ tile.double()
                with adding:
                    totals[rows] += said

        self._blocks(answer)
        return totals

    def representatives(self, n_rows: int) -> np.ndarray:
        """Positions of neighbours that carry the queries' weights together, (n_rows,).

        Greedily, SELECTION_ROUNDS times a share of them, those with the largest gain in the sum
        over the queries of the square root of the weight on rows that are kept. The root makes
        returns diminish: a query that has a row needs the next one less. Of rows that gain the
        same, such as those that predict nobody but themselves, any may be kept.
        """
        shuffled = torch.from_numpy(np.random.RandomState(0).permutation(len(self.neighbors)))
        shuffled = shuffled.to(self.query.device)
        kept = torch.zeros(len(self.neighbors), dtype=torch.float64, device=self.query.device)
        for done in range(1, SELECTION_ROUNDS + 1):
            share = replace(self, neighbors=self.neighbors.with_values(kept)).plain_mean()
            gain = self.received((share + LEAST_SHARE).rsqrt())
            gain.masked_fill_(kept > 0, -1.0)
            missing = n_rows * done // SELECTION_ROUNDS - int(kept.sum())
            kept[shuffled[gain[shuffled].topk(missing).indices]] = 1.0
        return kept.nonzero()[:, 0].cpu().numpy()

    def behind(self, answer: Callable[[slice, WeightedValues], Any]) -> list[Any]:
        """Answer from what is behind each prediction: all weights, and all adjusted values.

        Parameters
        ----------
        answer : callable
            Takes a slice of the queries, and what is behind their predictions.

        Returns
        -------
        list
            What `answer` returned, block by block.
        """
        return self._blocks(
            lambda queries, parts: answer(queries, WeightedValues(parts)), whole_rows=True
        )

    # -- blocks of queries -----------------------------------------------------------------

    def _blocks(
        self, answer: Callable[[slice, list[Tiles]], Any], whole_rows: bool = False
    ) -> list[Any]:
        """Answer for one block of queries after another; on the CPU, for several at a time.

        Tiles are too small to share among threads, so each thread has blocks of its own.

        Parameters
        ----------
        answer : callable
            Takes a slice of the queries, and their tiles for each network.
        whole_rows : bool, default=False
            Whether `answer` holds each query's weights for the whole bank at once, so that it
            needs small blocks of queries.
        """
        neighbors = self.neighbors
        parts = self.head.split_by_head(self.query, neighbors.embeddings)
        comparisons = self._comparisons(parts)
        n_threads = torch.get_num_threads() if self.query.device.type == "cpu" else 1
        alone = n_threads == 1

        inference = torch.is_inference_mode_enabled()  # of the caller's thread

        @torch.inference_mode(inference)
        @torch.no_grad()
        def answer_alone(queries):
            excluded = None if self.exclusion is None else self.exclusion.pairs(queries)
            known = self.known or [None] * len(parts)
            tiles = [
                tiles_of(
                    *(
                        head,
                        query[queries],
                        replace(neighbors, embeddings=z),
                        comparison,
                        excluded,
                    ),
                    None if whole is None else whole[queries],
                )
                for (head, query, z), comparison, whole in zip(
                    parts, comparisons, known, strict=True
                )
            ]
            return answer(queries, tiles)

        most, _ = tile_shape(self.query.device, len(neighbors))
        size = min(most, max(LEAST_QUERY_BLOCK, math.ceil(len(self) / n_threads)))
        if whole_rows or any(head.needs_whole_rows for head, _, _ in parts):
            at_once = max(1, WHOLE_ENTRIES // max(1, len(neighbors)))
            size, n_threads = min(size, at_once), min(n_threads, at_once)
        blocks = spans(len(self), size)
        if alone:
            return [answer_alone(queries) for queries in blocks]
        return WORKERS.map(answer_alone, blocks, n_threads)

    def _comparisons(self, parts: list[tuple[NONAHead, Tensor, Tensor]]) -> list[Comparison]:
        """How each network's head compares: prepared once for all questions to neighbours."""
        similarities = tuple(head.similarity for head, _, _ in parts)
        kept = self.neighbors.kept
        if similarities not in kept:
            kept_bytes = KEPT_BYTES // len(parts)
            kept[similarities] = [
                compare(head.similarity, head.metric_part(embeddings), kept_bytes)
                for head, _, embeddings in parts
            ]
        return kept[similarities]

    def _rows(self, answer: Callable, empty: Tensor, whole_rows: bool = False) -> Tensor:
        """Join blocks of float64 rows, of which there may be none."""
        return torch.cat([empty.double(), *self._blocks(answer, whole_rows)])


class WeightedValues:
    """What is behind the predictions of a block of queries, in the whole bank, in float64."""

    def __init__(self, parts: list[Tiles]):
        self.parts = parts
        self.logits = [tiles.whole_logits() for tiles in parts]

    def __len__(self) -> int:
        return len(self.logits[0])

    def weights(self, power: float = 1.0) -> Tensor:
        """The mean of the networks' weights, each taken to a power, (q, n)."""
        return _mean(self._of_networks(power))

    def _of_networks(self, power: float = 1.0) -> list[Tensor]:
        pairs = zip(self.parts, self.logits, strict=True)
        return [tiles.normalized(logits, power) for tiles, logits in pairs]

    @cached_property
    def values(self) -> Tensor:
        """Adjusted values, (q, n, n_outputs), or (1, n, n_outputs) where nothing is adjusted."""
        values = self.parts[0].neighbors.columns[None]
        if not self.parts[0].adjusts:
            return values
        everyone = slice(0, values.shape[1])
        return _mean_adjusted(self.parts, everyone, torch.stack(self._of_networks()))


def _mean_adjusted(parts: list[Tiles], rows: slice | Tensor, weights: Tensor) -> Tensor:
    """Rows' values as they count for each query, (q, b, c): a mean over networks, by weight.

    `weights` are of shape (networks, q, b). Where all are 0, the networks count alike.
    """
    total = weights.sum(dim=0)
    share = torch.where(total > 0, weights / total, 1 / len(parts))
    values = parts[0].neighbors.columns[rows]
    return values + sum(  # so that rounded shares leave values alone that nothing moves
        s[..., None] * (tiles.adjusted(rows) - values)
        for s, tiles in zip(share.double(), parts, strict=True)
    )


def _mean(each: list[Tensor]) -> Tensor:
    """The mean of the networks' tiles; a single one is returned as it is."""
    return sum(each[1:], each[0]).div_(len(each))


def _mean_weights(parts: list[Tiles]) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows of the bank, the networks' mean weights (q, b)), tile by tile."""
    for rows, each in _each_network(parts):
        yield rows, _mean(each)


def _each_network(parts: list[Tiles]) -> Iterator[tuple[slice, list[Tensor]]]:
    """Yield (rows of the bank, the weights (q, b) of each network), tile by tile."""
    for tiles in zip(*(part.weights() for part in parts), strict=True):
        yield tiles[0][0], [weights for _, weights in tiles]


def _whole_rows(parts: list[Tiles]) -> Iterator[tuple[slice, list[Tensor]]]:
    """:func:`_each_network` of all rows in one piece."""
    weights = [in_one_piece(part.weights()) for part in parts]
    yield slice(0, weights[0].shape[1]), weights
