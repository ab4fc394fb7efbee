"""The bank: embeddings and targets stored at fit, and every answer that comes out of them."""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ._stream import map_blocks, mean_of, stream_weights
from .attention import AverageHead, NONAHead
from .softstep import largest


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

        def predict_block(_, members):
            return torch.stack([mean_of(member, values)[0] for member in members]).mean(dim=0)

        blocks = map_blocks(predict_block, head, query, self.embeddings, leave_one_out)
        return _join(blocks, values[:0]).reshape(len(query), *self.targets.shape[1:])

    def sparse_weights(
        self, head: NONAHead | AverageHead, query: Tensor, leave_one_out: bool = False
    ) -> sparse.csr_array:
        """Weights (q, n), without the zeros, in float64. Parameters as for :meth:`predict`."""

        def weigh_block(_, members):
            tiles = [sparse.csr_array(tile.cpu().numpy()) for _, tile in stream_weights(members)]
            return sparse.hstack(tiles, format="csr", dtype=np.float64)

        blocks = map_blocks(weigh_block, head, query, self.embeddings, leave_one_out)
        weights = sparse.vstack([sparse.csr_array((0, len(self))), *blocks], format="csr")
        weights.data /= np.repeat(weights.sum(axis=1), np.diff(weights.indptr))
        return weights

    def heaviest(
        self, head: NONAHead | AverageHead, query: Tensor, k: int, leave_one_out: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Weights and row numbers of the k heaviest neighbours, (q, k) each, heaviest first.

        Parameters as for :meth:`predict`.
        """

        def search_block(queries, members):
            weights = query.new_full((queries.stop - queries.start, k), -1.0)
            indices = torch.zeros_like(weights, dtype=torch.long)
            for rows, tile in stream_weights(members):
                if leave_one_out:  # itself comes last, even among neighbours of no weight
                    tile.diagonal(queries.start - rows.start).fill_(-1.0)
                values, positions = largest(tile, min(k, tile.shape[1]))
                weights, best = torch.cat([weights, values], dim=1).topk(k, dim=1)
                indices = torch.cat([indices, positions + rows.start], dim=1).gather(1, best)
            return torch.cat([weights.double(), indices.double()], dim=1)

        blocks = map_blocks(search_block, head, query, self.embeddings, leave_one_out)
        weights, indices = _join(blocks, query.new_zeros(0, 2 * k).double()).split(k, dim=1)
        return weights, indices.long()


def _join(blocks: list[Tensor], empty: Tensor) -> Tensor:
    return torch.cat([empty, *blocks])
