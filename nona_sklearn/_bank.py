"""The bank: embeddings and targets stored at fit, and every answer that streams over them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .attention import NONAHead

BLOCK_ENTRIES = 2**21  # query-neighbour pairs weighed at a time: 16 MB in float64


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

    def to(self, device: str | torch.device) -> "NeighborBank":
        """Copy of the bank on another device."""
        return NeighborBank(self.embeddings.to(device), self.targets.to(device))

    @torch.no_grad()
    def stream_weights(
        self, head: NONAHead, query: Tensor, leave_one_out: bool = False
    ) -> Iterator[Tensor]:
        """Weigh the bank for one block of queries after another.

        Memory is bounded by the block; results do not depend on it, because a block holds
        some of the queries but always all of the bank, as SoftStep's scaling needs.

        Parameters
        ----------
        head : NONAHead
            Gives the weights.
        query : Tensor of shape (q, d)
            Embeddings of the queries.
        leave_one_out : bool, default=False
            Whether the queries are the bank's own rows, none of which may be its own
            neighbour.

        Yields
        ------
        Tensor of shape (block, n)
            Weights in float64; each row sums to 1 to float64's precision, whatever the
            targets' offset that they are to be multiplied with.
        """
        rows = torch.arange(len(self), device=query.device)
        block_size = max(1, BLOCK_ENTRIES // len(self))
        for start in range(0, len(query), block_size):
            block = slice(start, start + block_size)
            excluded = rows[block, None] == rows if leave_one_out else None  # (block, n)
            weights = head.neighbor_weights(query[block], self.embeddings, excluded).double()
            yield weights / weights.sum(dim=1, keepdim=True)

    def heaviest(
        self, head: NONAHead, query: Tensor, k: int, leave_one_out: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Weights and row numbers of the k heaviest neighbours, (q, k) each, heaviest first."""
        weights, rows, start = [], [], 0
        for block in self.stream_weights(head, query, leave_one_out):
            if leave_one_out:  # so that itself comes last, even among neighbours of no weight
                itself = torch.arange(start, start + len(block), device=block.device)
                block = block.scatter(1, itself[:, None], -1.0)
                start += len(block)
            top = block.topk(k, dim=1)
            weights.append(top.values)
            rows.append(top.indices)
        return torch.cat(weights), torch.cat(rows)

    def predict(self, head: NONAHead, query: Tensor, leave_one_out: bool = False) -> Tensor:
        """Weighted mean of the targets, shape (q,) or (q, n_outputs), in float64."""
        targets = self.targets.double()
        blocks = self.stream_weights(head, query, leave_one_out)
        return torch.cat([weights @ targets for weights in blocks])
