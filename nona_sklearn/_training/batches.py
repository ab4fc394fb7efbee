"""Batches of row numbers, sliced on the device, and how large they are."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Generator, Tensor
from torch.utils.data import TensorDataset

LARGE = 2**16  # rows of a table: of more, one network is trained, in larger steps

# Of batch_size='auto': steps an epoch, and the largest batch. Those of a feature extractor, whose
# rows are costly, are more and smaller; classes are sooner memorised in large batches.
STEPS, STEPS_OF_CLASSES, EXTRACTOR_STEPS = 4, 8, 16
MIN_BATCH, MAX_BATCH, MAX_LARGE_BATCH, MAX_EXTRACTOR_BATCH = 32, 512, 1024, 256


class AdaptiveAccumulation:
    """The number of batches of the next step: more, the fewer rows of the last one had a loss.

    So many that about one batch of their rows has a loss above 0, but one more than last time at
    most: AS-Speed, of the paper on :class:`~nona_sklearn.losses.ASSoftmaxLoss`.
    """

    def __init__(self, max_batches: int):
        self.max_batches = max_batches
        self.n_batches = 1

    def update(self, n_rows: int, n_ignored: float) -> None:
        """Choose the next number by how many rows of the last step the loss ignored."""
        wanted = round(n_rows / max(1, n_rows - n_ignored))
        self.n_batches = min(wanted, self.n_batches + 1, self.max_batches)


class RowBatches:
    """Iterate over shuffled batches of ``(row numbers, targets)``.

    Tensors are sliced where they lie; skorch's default path takes every row out of the dataset
    by itself and collates them again. A single row left at the end joins the batch before it,
    since in a batch by itself it might have no neighbour. Of several processes, each takes an
    equal share of every batch; what is left over has its turn in another epoch. So have all rows
    beyond `n_rows`, if that is given: of a large table, training is judged more often than once a
    pass. An accumulation sets how many batches are joined for the next step; the last step of an
    epoch takes those that are left.
    """

    def __init__(
        self,
        dataset: TensorDataset,
        batch_size: int,
        generator: Generator,
        process: int = 0,
        n_processes: int = 1,
        accumulation: AdaptiveAccumulation | None = None,
        n_rows: int | None = None,
    ):
        self.y = dataset.tensors[1]
        self.n_rows = n_rows
        self.batch_size = batch_size
        self.generator = generator
        self.process = process
        self.n_processes = n_processes
        self.accumulation = accumulation

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.y), generator=self.generator).to(self.y.device)
        batches = list(order[: self.n_rows].split(self.batch_size))
        if len(batches) > 1 and len(batches[-1]) < max(2, self.n_processes):
            batches[-2:] = [torch.cat(batches[-2:])]
        while batches:
            n_batches = 1 if self.accumulation is None else self.accumulation.n_batches
            batch = torch.cat(batches[:n_batches])
            del batches[:n_batches]
            share = len(batch) // self.n_processes * self.n_processes
            rows = batch[self.process : share : self.n_processes]
            yield rows, self.y[rows]


class WholeBatch:
    """Iterate over the validation rows at once: the bank streams them."""

    def __init__(self, dataset: TensorDataset, batch_size: int):
        self.tensors = dataset.tensors

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        yield self.tensors


def count_parts(n_rows: int, micro_batch_size: int | None) -> int:
    """Number of parts of a batch, none of a single row unless all are to be."""
    if micro_batch_size is None:
        return 1
    n_parts = math.ceil(n_rows / micro_batch_size)
    return n_parts if micro_batch_size == 1 else max(1, min(n_parts, n_rows // 2))


def resolve_batch_size(
    batch_size: int | str, n: int, n_steps: int = STEPS, extracts: bool = False
) -> int:
    """Turn 'auto' into the power of two that makes about so many steps an epoch, within bounds."""
    if batch_size != "auto":
        return int(batch_size)
    largest = MAX_LARGE_BATCH if n > LARGE else MAX_BATCH
    if extracts:
        n_steps, largest = EXTRACTOR_STEPS, MAX_EXTRACTOR_BATCH
    return min(max(2 ** round(math.log2(n / n_steps)), MIN_BATCH), largest)


def numbered(y: Tensor) -> TensorDataset:
    """All that skorch needs of a data set: row numbers, and targets."""
    return TensorDataset(torch.arange(len(y), device=y.device), y)
