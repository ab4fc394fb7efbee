"""The bank: embeddings and targets stored at fit, and every answer that comes out of them."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ._stream import mean_of, members, stream_weights
from .attention import AverageHead, NONAHead

GROUP = 16  # rows whose heaviest stands for them all, in a search for the heaviest of many


@dataclass(frozen=True)
class NeighborBank:
    """Labelled neighbours.

    Parameters
    ----------
    embeddings : Tensor of shape (n, d)
        Where the neighbours are.
    targets : Tensor of shape (n,) or (n, n_outputs)
        What they are worth.
    """

    embeddings: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getstate__(self) -> dict[str, np.ndarray]:
        """Pickle from the CPU, as arrays: joblib maps those from disk with ``mmap_mode``."""
        return {name: tensor.cpu().numpy() for name, tensor in vars(self).items()}

    def __setstate__(self, state: dict[str, np.ndarray]) -> None:
        with warnings.catch_warnings():
            # A mapped array may be read-only; nothing writes into a bank.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            vars(self).update({name: torch.from_numpy(array) for name, array in state.items()})

    @torch.no_grad()
    def predict(
        self, head: NONAHead | AverageHead, query: Tensor, leave_one_out: bool = False
    ) -> Tensor:
        """Weighted mean of the targets, shape (q,) or (q, n_outputs), in float64.

        Parameters
        ----------
        head : NONAHead or AverageHead
            Gives the weights.
        query : Tensor of shape (q, d)
            Embeddings of the queries.
        leave_one_out : bool, default=False
            Whether the queries are the bank's own rows, none of which may be its own
            neighbour.
        """
        values = self.targets.double().reshape(len(self), -1)
        predictions = query.new_empty(len(query), values.shape[1], dtype=torch.float64)
        for rows, parts in members(head, query, self.embeddings, leave_one_out):
            means = [mean_of(part, values)[0] for part in parts]
            predictions[rows] = torch.stack(means).mean(dim=0)
        return predictions.reshape(len(query), *self.targets.shape[1:])

    @torch.no_grad()
    def stream_weights(
        self, head: NONAHead | AverageHead, query: Tensor, leave_one_out: bool = False
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield (queries, rows of the bank, weights (q, b)), tile by tile, queries slowest.

        Parameters as for :meth:`predict`.
        """
        for queries, parts in members(head, query, self.embeddings, leave_one_out):
            for rows, weights in stream_weights(parts):
                yield queries, rows, weights

    def heaviest(
        self, head: NONAHead | AverageHead, query: Tensor, k: int, leave_one_out: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Weights and row numbers of the k heaviest neighbours, (q, k) each, heaviest first."""
        weights = query.new_full((len(query), k), -1.0)
        indices = torch.zeros_like(weights, dtype=torch.long)
        for queries, rows, tile in self.stream_weights(head, query, leave_one_out):
            if leave_one_out:  # so that itself comes last, even among neighbours of no weight
                tile.diagonal(queries.start - rows.start).fill_(-1.0)
            values, positions = heaviest(tile, min(k, tile.shape[1]))
            both = torch.cat([weights[queries], values], dim=1)
            numbers = torch.cat([indices[queries], positions + rows.start], dim=1)
            weights[queries], best = both.topk(k, dim=1)
            indices[queries] = numbers.gather(1, best)
        return weights.double(), indices


def heaviest(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k largest of each row and their positions, as `topk` does.

    The k largest lie in the k groups with the largest heads, so that few need comparing:
    several times as fast.
    """
    q, n = weights.shape
    if n % GROUP or k * GROUP >= n:
        return weights.topk(k, dim=1)
    groups = weights.reshape(q, -1, GROUP)
    best = groups.amax(dim=2).topk(k, dim=1).indices  # (q, k)
    candidates = groups.gather(1, best[..., None].expand(-1, -1, GROUP)).flatten(1)
    values, positions = candidates.topk(k, dim=1)
    return values, best.gather(1, positions // GROUP) * GROUP + positions % GROUP
