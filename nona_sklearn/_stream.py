"""Evaluation: the weights of a bank of any size, one tile after another.

A tile is a block of queries by a block of the bank, small enough for the processor's cache, so
that memory does not grow with either. The weights' normaliser, and any weighted mean of values,
are sums over all tiles of a query, kept relative to the largest logit so far. Whoever wants the
weights themselves walks over the tiles once more, knowing the normaliser.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .attention import LEAST_LOGIT, AverageHead, NONAHead
from .similarity import Tiles, tiles_of
from .softstep import EVALUATION_STEPS

QUERY_BLOCK, LEAST_QUERY_BLOCK = 256, 32  # with less, a matrix product wastes time
BANK_BLOCK = {"cpu": 2**11, "cuda": 2**16}  # a tile of 2 MB fits a processor's cache
WHOLE_ENTRIES = 2**20  # pairs at a time where a query must see the whole bank at once
LOG2E = math.log2(math.e)
LEAST_LOGIT_2 = LEAST_LOGIT * LOG2E


@dataclass
class Member:
    """One head, and what it looks at.

    Parameters
    ----------
    head : NONAHead
        Gives the weights.
    query : Tensor of shape (q, d)
        A block of queries.
    neighbors : Tensor of shape (n, d)
        The whole bank.
    first : int, optional
        The queries are the bank's own rows from here on, and none meets itself.
    """

    head: NONAHead
    query: Tensor
    neighbors: Tensor
    first: int | None = None

    @cached_property
    def tiles(self) -> Tiles:
        return tiles_of(self.head.similarity, self.query, self.neighbors)

    @cached_property
    def spans(self) -> list[slice]:
        """Rows of the bank, tile by tile."""
        device = self.query.device.type
        return spans(len(self.neighbors), BANK_BLOCK.get(device, BANK_BLOCK["cpu"]))

    @cached_property
    def step_scale(self) -> tuple[Tensor, Tensor]:
        """The farthest similarity of each query, and one over the span to the nearest, (q, 1)."""
        farthest = self.query.new_full((len(self.query), 1), math.inf, dtype=torch.float64)
        nearest = -farthest
        for rows in self.spans:
            order = self.tiles.order(rows)
            self.leave_out(order, rows, math.inf)
            farthest = torch.minimum(farthest, order.amin(dim=1, keepdim=True))
            self.leave_out(order, rows, -math.inf)
            nearest = torch.maximum(nearest, order.amax(dim=1, keepdim=True))
            del order  # the next tile takes its place in the cache
        farthest = self.tiles.from_order(farthest).to(self.query)
        nearest = self.tiles.from_order(nearest).to(self.query)
        span = nearest - farthest
        # Equally near neighbours are all nearest, x = 1, as in scale_similarity.
        tied = span < torch.finfo(span.dtype).tiny / torch.finfo(span.dtype).eps
        return farthest.masked_fill(tied, -math.inf), span.reciprocal().masked_fill(tied, 1.0)

    def logits(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield (rows of the bank, their logits (q, b)), tile by tile.

        Logits are to base 2, whose powers and logarithms are the quicker ones.
        """
        if self.head.ranks:
            yield slice(0, len(self.neighbors)), self.ranked_logits()
            return
        step = self.head.step
        thresholds = () if step is None else step.thresholds(self.query)
        sharpness = LOG2E / float(self.head.temperature)
        for rows in self.spans:
            similarity = self.tiles.similarity(rows)
            if step is None:
                logits = similarity.mul_(sharpness)
            else:
                farthest, slope = self.step_scale
                gap = similarity - farthest
                logits = EVALUATION_STEPS[step.step](gap, slope, *thresholds)
                if self.head.weights == "distance":
                    logits.add_(similarity, alpha=sharpness)
            self.leave_out(logits, rows, -math.inf)
            yield rows, logits

    def ranked_logits(self) -> Tensor:
        """Logits (q, n) that depend on ranks, which are known among all rows only."""
        similarity, excluded = self.whole()
        return self.head.weigh(similarity, self.query, excluded).log2_()

    def step_sum(self) -> Tensor:
        """Sum of each query's steps over the bank, (q,): how many neighbours it learned."""
        similarity, excluded = self.whole()
        return self.head.step(similarity, self.query, excluded).double().exp().sum(dim=1)

    def whole(self) -> tuple[Tensor, Tensor | None]:
        """Similarities to all neighbours, (q, n), and where a query meets itself, if it does."""
        similarity = torch.cat([self.tiles.similarity(rows) for rows in self.spans], dim=1)
        if self.first is None:
            return similarity, None
        excluded = torch.zeros_like(similarity, dtype=torch.bool)
        excluded.diagonal(self.first).fill_(True)
        return similarity, excluded

    def leave_out(self, tile: Tensor, rows: slice, value: float) -> None:
        """Write a value into a tile (q, b) wherever a query meets itself."""
        if self.first is not None:
            tile.diagonal(self.first - rows.start).fill_(value)


def heads_of(
    head: NONAHead | AverageHead, query: Tensor, neighbors: Tensor
) -> list[tuple[NONAHead, Tensor, Tensor]]:
    """Split an average into its heads, and the embeddings into the slices they look at.

    A single head is an average of one.
    """
    heads = list(head.heads) if isinstance(head, AverageHead) else [head]
    return list(
        zip(heads, query.chunk(len(heads), 1), neighbors.chunk(len(heads), 1), strict=True)
    )


def map_blocks(
    answer: Callable[[slice, list[Member]], Any],
    head: NONAHead | AverageHead,
    query: Tensor,
    neighbors: Tensor,
    leave_one_out: bool = False,
    whole_rows: bool = False,
) -> list[Any]:
    """Answer for one block of queries after another; on the CPU, for several at a time.

    Tiles are too small to share among threads, so each thread has blocks of its own.

    Parameters
    ----------
    answer : callable
        Takes a slice of the queries and each head with what it looks at.
    head : NONAHead or AverageHead
        Gives the weights.
    query : Tensor of shape (q, d)
        Embeddings of the queries.
    neighbors : Tensor of shape (n, d)
        Embeddings of the bank.
    leave_one_out : bool, default=False
        Whether the queries are the bank's own rows, none of which may be its own neighbour.
    whole_rows : bool, default=False
        Whether `answer` holds each query's weights for the whole bank at once, so that it needs
        small blocks of queries.

    Returns
    -------
    list
        What `answer` returned, block by block.
    """
    before = torch.get_num_threads()
    n_threads = before if query.device.type == "cpu" else 1
    parts = heads_of(head, query, neighbors)

    @torch.no_grad()
    def answer_alone(rows):
        first = rows.start if leave_one_out else None
        members = [Member(part, q[rows], n, first) for part, q, n in parts]
        torch.set_num_threads(1)  # of this thread, and of threads yet to start
        try:
            return answer(rows, members)
        finally:
            torch.set_num_threads(before)

    share = max(LEAST_QUERY_BLOCK, math.ceil(len(query) / n_threads))
    size = min(QUERY_BLOCK, share)
    if whole_rows or any(part.ranks for part, _, _ in parts):
        at_once = max(1, WHOLE_ENTRIES // len(neighbors))
        size, n_threads = min(size, at_once), min(n_threads, at_once)
    # joblib's threads look for answers every 10 ms, in which a small prediction is long done.
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(answer_alone, spans(len(query), size)))


def mean_of(member: Member, values: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted means of values, and the logarithm of the weights' normaliser.

    Parameters
    ----------
    member : Member
        A head with q queries and n neighbours.
    values : Tensor of shape (n, c)
        In float64.

    Returns
    -------
    means : Tensor of shape (q, c)
        In float64.
    log_normalizer : Tensor of shape (q, 1)
        ``2 ** (logit - log_normalizer)`` is a weight.
    """
    values = torch.cat([values.new_ones(len(values), 1), values], dim=1).T.contiguous()
    peak = member.query.new_full((len(member.query), 1), torch.finfo(member.query.dtype).min)
    sums = values.new_zeros(len(values), len(member.query))  # (1 + c, q)
    for rows, logits in member.logits():
        new_peak = torch.maximum(peak, logits.amax(dim=1, keepdim=True))
        sums *= (peak - new_peak).exp2().T
        weights = logits.sub_(new_peak).clamp_min_(LEAST_LOGIT_2).exp2_()
        member.leave_out(weights, rows, 0.0)
        sums += values[:, rows] @ weights.double().T
        peak = new_peak
        del logits, weights  # the next tile takes their place in the cache
    return (sums[1:] / sums[0]).T, peak + sums[:1].log2().T


def stream_weights(parts: list[Member]) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows of the bank, their mean weights (q, b) over the parts), tile by tile."""
    for rows, tiles in stream_each(parts):
        yield rows, sum(tiles[1:], tiles[0]).div_(len(parts))


def stream_each(parts: list[Member]) -> Iterator[tuple[slice, list[Tensor]]]:
    """Yield (rows of the bank, the weights (q, b) of each part), tile by tile."""
    no_values = parts[0].neighbors.new_zeros(len(parts[0].neighbors), 0, dtype=torch.float64)
    log_normalizers = [mean_of(part, no_values)[1] for part in parts]
    for tiles in zip(*(part.logits() for part in parts), strict=True):
        yield (
            tiles[0][0],
            [
                _powers_of_two(logits.sub_(log_normalizer))
                for (_, logits), log_normalizer in zip(tiles, log_normalizers, strict=True)
            ],
        )


def whole_weights(parts: list[Member], powers: Sequence[float] = (1.0,)) -> Iterator[Tensor]:
    """Yield the mean weights (q, n) over the parts, in float64, once for each power of them."""
    whole = [torch.cat([tile for _, tile in part.logits()], dim=1) for part in parts]
    for logits in whole:
        logits.sub_(logits.amax(dim=1, keepdim=True))
    for power in powers:
        weights = [_powers_of_two(logits * power).double() for logits in whole]
        yield sum(w / w.sum(dim=1, keepdim=True) for w in weights) / len(parts)


def _powers_of_two(logits: Tensor) -> Tensor:
    """Weights, in place of their logits; zero below what counts."""
    weights = logits.clamp_min_(LEAST_LOGIT_2).exp2_()
    return torch.threshold_(weights, 2 * 2.0**LEAST_LOGIT_2, 0.0)


def spans(n: int, size: int) -> list[slice]:
    """Slices of at most `size` that cover n rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
