"""Networks of an embedding and a head, and averages of networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .._data.rows import Rows
from .._utils.arrays import EMBED_BLOCK, spans
from ..attention.head import AverageHead, NONAHead
from ..embedding import MLPEmbedding
from .extractor import ExtractorEmbedding


class NeighborNetwork(nn.Module):
    """Join an embedding, shared by queries and neighbours, and the head that compares them.

    The embedding maps features (n, n_features) to (n, d). Neighbours come from a pool in training,
    and from the bank afterwards.
    """

    def __init__(self, embedding: nn.Module, head: NONAHead | AverageHead):
        super().__init__()
        self.embedding = embedding
        self.head = head

    def forward(self, rows: Tensor, pool: Any) -> Tensor:
        """Return predictions of training rows, (q,), from their pool.

        One call computes a whole step, as wrappers such as for several GPUs require.
        """
        evaluation = pool.evaluate(self, rows)
        with torch.autocast(rows.device.type, enabled=False):  # distances need every digit
            return evaluation.attend()

    @torch.no_grad()
    def embed(self, X: Tensor | Rows) -> Tensor:
        """Return embeddings (n, d) of X, (n, n_features), in eval mode and without gradient."""
        training = self.training
        if training:  # changing the mode takes as long as embedding a row
            self.eval()
        embeddings = torch.cat([self.embedding(block) for block in X.split(EMBED_BLOCK)])
        if training:
            self.train()
        return embeddings

    @torch.no_grad()
    def predict_mean(self) -> None:
        """Make all rows equally near, so that predictions are the mean of the targets."""
        for module in self.embedding.modules():
            if isinstance(module, MLPEmbedding):
                module.zero_()
        assert isinstance(self.head, NONAHead)  # networks are averaged later
        self.head.admit_all()

    def freeze(self) -> NeighborNetwork:
        """Return the network in eval mode, without gradients, with the embedding in float64.

        float32 matrix products would make predictions depend on the batch. A feature extractor
        keeps its type, since it may be too large.
        """
        embedding = self.embedding
        parts = embedding.embeddings if isinstance(embedding, Concatenation) else [embedding]
        for part in parts:
            (part.embedding if isinstance(part, ExtractorEmbedding) else part).double()
        return self.requires_grad_(False).eval()


class Concatenation(nn.Module):
    """Concatenate the networks' embeddings of X, (n, n_features), to (n, n_networks * d)."""

    def __init__(self, embeddings: Sequence[nn.Module]):
        super().__init__()
        self.embeddings = nn.ModuleList(embeddings)

    def forward(self, X: Tensor) -> Tensor:
        return torch.cat([embedding(X) for embedding in self.embeddings], dim=1)


def average(networks: Sequence[NeighborNetwork]) -> NeighborNetwork:
    """Return one network that averages the neighbours' weights and shares the modules."""
    if len(networks) == 1:
        return networks[0]
    return NeighborNetwork(
        Concatenation([network.embedding for network in networks]),
        AverageHead([network.head for network in networks]),
    )


def embed(network: NeighborNetwork, X: Tensor | Rows) -> Tensor:
    """Return embeddings (n, d) of X, (n, n_features), in the float32 form of the bank."""
    device = next(chain(network.parameters(), network.buffers())).device
    blocks = (X[rows].to(device, torch.float64) for rows in spans(len(X), EMBED_BLOCK))
    return torch.cat([network.embed(block).float() for block in blocks])
