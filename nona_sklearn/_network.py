"""The one module that is trained: embedding, then head."""

import torch
from torch import Tensor, nn

from .attention import NONAHead

EMBED_BLOCK = 4096  # rows embedded at a time: bounds the memory of wide hidden layers


class NeighborNetwork(nn.Module):
    """An embedding shared by queries and neighbours, and the head that compares them.

    It has no ``forward`` of its own: who the neighbours are, and whether they are embedded
    anew, is up to the pool in training and to the bank afterwards.

    Parameters
    ----------
    embedding : Module
        Maps features (n, n_features) to embeddings (n, d).
    head : NONAHead
        Predicts from embedded queries and neighbours.
    """

    def __init__(self, embedding: nn.Module, head: NONAHead):
        super().__init__()
        self.embedding = embedding
        self.head = head

    @torch.no_grad()
    def embed(self, X: Tensor) -> Tensor:
        """Embed rows for good, shape (n, n_features) -> (n, d): eval mode, no gradient."""
        training = self.training
        self.eval()
        embeddings = torch.cat([self.embedding(block) for block in X.split(EMBED_BLOCK)])
        self.train(training)
        return embeddings
