"""Evaluation: the weights of a bank of any size, one tile after another.

A tile is a block of queries by a block of the bank, small enough for the processor's cache, so
that memory does not grow with either. Two sums go over all tiles of a query: the normaliser of
its weights, kept relative to the largest logit so far, and any weighted sums of values. Whoever
wants the weights themselves walks over the tiles once more, knowing the normaliser.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .attention import LEAST_LOGIT, AverageHead, NONAHead
from .similarity import SIMILARITIES
from .softstep import EVALUATION_STEPS

QUERY_BLOCK = 256
BANK_BLOCK = {"cpu": 2**11, "cuda": 2**16}  # a tile of 2 MB fits a processor's cache
RANKED_ENTRIES = 2**21  # pairs at a time where a rank among all rows is asked for


class Member(NamedTuple):
    """One head and what it looks at: its slice of the embeddings."""

    head: NONAHead
    query: Tensor  # (q, d)
    neighbors: Tensor  # (n, d)
    itself: Tensor | None  # (q,): row of each query in the bank, which is left out


def members(
    head: NONAHead | AverageHead, query: Tensor, neighbors: Tensor, itself: Tensor | None
) -> list[Member]:
    """Split an average into its heads; a single head is an average of one."""
    heads = list(head.heads) if isinstance(head, AverageHead) else [head]
    slices = zip(
        heads, query.chunk(len(heads), dim=1), neighbors.chunk(len(heads), dim=1), strict=True
    )
    return [Member(*parts, itself) for parts in slices]


def query_blocks(head: NONAHead | AverageHead, n_queries: int, n_neighbors: int) -> list[slice]:
    """Blocks of queries; short ones, if each needs all the bank at once."""
    heads = head.heads if isinstance(head, AverageHead) else [head]
    ranks = any(head.ranks for head in heads)
    return spans(n_queries, max(1, RANKED_ENTRIES // n_neighbors) if ranks else QUERY_BLOCK)


def spans(n: int, size: int) -> list[slice]:
    """Slices of `size` that cover n rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def sum_weights(member: Member, values: Tensor) -> tuple[Tensor, Tensor]:
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
        ``exp(logit - log_normalizer)`` is a weight.
    """
    values = torch.cat([values.new_ones(len(values), 1), values], dim=1).T.contiguous()
    least = torch.finfo(member.query.dtype).min
    peak = member.query.new_full((len(member.query), 1), least)
    sums = values.new_zeros(len(values), len(member.query))  # (1 + c, q)
    for columns, logits in stream_logits(member):
        new_peak = torch.maximum(peak, logits.amax(dim=1, keepdim=True))
        sums *= (peak - new_peak).exp().T
        weights = logits.sub_(new_peak).clamp_min_(LEAST_LOGIT).exp_()
        sums += values[:, columns] @ weights.double().T
        peak = new_peak
    return (sums[1:] / sums[0]).T, peak + sums[:1].log().T


def stream_weights(parts: list[Member]) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows of the bank, their mean weights (q, b) over the parts), tile by tile."""
    no_values = parts[0].neighbors.new_zeros(len(parts[0].neighbors), 0, dtype=torch.float64)
    log_normalizers = [sum_weights(part, no_values)[1] for part in parts]
    for tiles in zip(*map(stream_logits, parts), strict=True):
        weights = sum(
            logits.sub_(log_normalizer).clamp_min_(LEAST_LOGIT).exp_()
            for (_, logits), log_normalizer in zip(tiles, log_normalizers, strict=True)
        )
        nothing = 2 * len(parts) * math.exp(LEAST_LOGIT)
        yield tiles[0][0], torch.threshold_(weights, nothing, 0.0).div_(len(parts))


def stream_logits(member: Member) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows of the bank, their logits (q, b)), tile by tile."""
    head, query, neighbors, itself = member
    if head.ranks:
        excluded = None
        if itself is not None:
            excluded = itself[:, None] == torch.arange(len(neighbors), device=itself.device)
        yield slice(0, len(neighbors)), head.neighbor_weights(query, neighbors, excluded).log_()
        return
    if head.step is not None:
        thresholds, (farthest, slope) = head.step.thresholds(query), step_scale(member)
    for columns, similarity in stream_similarities(member):
        log_step = None
        if head.step is not None:
            x = (similarity - farthest).mul_(slope).clamp_(0, 1)
            log_step = EVALUATION_STEPS[head.step.step](x, *thresholds)
        logits = log_step if head.weights == "uniform" else similarity.div_(head.temperature)
        if head.weights == "distance" and log_step is not None:
            logits += log_step
        logits[left_out(itself, columns)] = -math.inf
        yield columns, logits


def step_scale(member: Member) -> tuple[Tensor, Tensor]:
    """Find the farthest similarity and the reciprocal span, (q, 1) each, of each query."""
    farthest = member.query.new_full((len(member.query), 1), math.inf)
    nearest = -farthest
    for columns, similarity in stream_similarities(member):
        pairs = left_out(member.itself, columns)
        similarity[pairs] = math.inf
        farthest = torch.minimum(farthest, similarity.amin(dim=1, keepdim=True))
        similarity[pairs] = -math.inf
        nearest = torch.maximum(nearest, similarity.amax(dim=1, keepdim=True))
    span = nearest - farthest
    # Equally near neighbours are all nearest, x = 1, as in scale_similarity.
    tied = span < torch.finfo(span.dtype).tiny / torch.finfo(span.dtype).eps
    return farthest.masked_fill(tied, -math.inf), span.reciprocal().masked_fill(tied, 1.0)


def stream_similarities(member: Member) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows of the bank, their similarities (q, b)), tile by tile."""
    similarity = SIMILARITIES[member.head.similarity]
    block = BANK_BLOCK.get(member.query.device.type, BANK_BLOCK["cpu"])
    for columns in spans(len(member.neighbors), block):
        yield columns, similarity(member.query, member.neighbors[columns])


def left_out(itself: Tensor | None, columns: slice) -> tuple[Tensor, ...]:
    """Positions in a tile, (queries, rows), where a query meets itself."""
    if itself is None:
        return (torch.empty(0, dtype=torch.long),) * 2
    here = (itself >= columns.start) & (itself < columns.stop)
    [queries] = here.nonzero(as_tuple=True)
    return queries, itself[queries] - columns.start
