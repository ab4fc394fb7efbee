"""All that the benchmarks use of the package beyond its public names.

Whoever changes a private module mends the benchmarks here, and nowhere else.
"""

from contextlib import contextmanager

import torch
from sklearn.preprocessing import StandardScaler
from torch import nn

from nona_sklearn import NONARegressor, PeriodicEmbedding
from nona_sklearn import __main__ as demo
from nona_sklearn._bank import NeighborBank
from nona_sklearn._heads import DenseHeadRegressor
from nona_sklearn._neighbors import Neighbors
from nona_sklearn._pools import NEIGHBOR_POOLS, BatchPool, DatasetPool, MemoryPool

__all__ = [
    "BatchPool",
    "DatasetPool",
    "DenseHeadRegressor",
    "FreshAndLeftAlone",
    "KeptApart",
    "LastBatches",
    "LeftAlone",
    "MemoryPool",
    "Standardized",
    "StartedOpen",
    "WideForAll",
    "WithFreshBatch",
    "make_bank",
    "make_encoder",
    "pool_in_place_of_memory",
]


def make_bank(embeddings, targets):
    """Build a bank of embeddings (n, d) and targets (n,), to ask without an estimator."""
    return NeighborBank(Neighbors(embeddings, targets))


def make_encoder():
    """Build the demo's encoder, categories first: the order that the results come from."""
    encoder = demo.make_encoder()
    return encoder.set_params(transformers=encoder.transformers[::-1])


# -- variants of the default regressor that no parameter reaches ------------------------------


class Standardized(NONARegressor):
    """Means and deviations instead of quartiles and smooth clipping."""

    def _make_scaler(self):
        return StandardScaler()


class WideForAll(NONARegressor):
    """Binary columns are widened like the others."""

    def _make_embedding(self, X, n_adjusted):
        periodic = PeriodicEmbedding(X.shape[1])
        return nn.Sequential(periodic, self._make_layers(periodic.out_features, n_adjusted))


class StartedOpen(NONARegressor):
    """SoftStep begins by keeping nearly all neighbours."""

    def _make_network(self, X, n_outputs):
        network = super()._make_network(X, n_outputs)
        network.head.step.start_at(0.01)
        return network


# -- variants of the memory that a fine-tuned extractor trains with ---------------------------


class LeftAlone(MemoryPool):
    """Only a step refreshes, and validation asks what training left behind."""

    def neighbors(self, network):
        return Neighbors(self.memory[: self.size], self.values[: self.size])


class KeptApart(MemoryPool):
    """Validation embeds anew for itself; training goes on with what it remembers."""

    neighbors = DatasetPool.neighbors


class WithFreshBatch(MemoryPool):
    """The batch meets itself as it is now, with gradient, and the others as remembered."""

    def ask(self, network, queries):
        if self.memory is None:
            self.memory = network.embed(self.X)
        others = self.draw(queries)
        rows = torch.cat([queries, others])
        embeddings = network.embedding(self.X[queries])
        neighbors = torch.cat([embeddings, self.memory[others]])
        self.memory[queries] = embeddings.detach()
        return self._question(network, embeddings, neighbors, queries, rows)


class FreshAndLeftAlone(WithFreshBatch):
    """The same, and validation refreshes nothing."""

    neighbors = LeftAlone.neighbors


class LastBatches(DatasetPool):
    """The batch as it is now, with gradient, and the rows of the last batches, as they were."""

    n_remembered = 224
    rows = None

    def ask(self, network, queries):
        embeddings = network.embedding(self.X[queries])
        if self.rows is None:
            self.rows, self.memory = queries[:0], embeddings[:0].detach()
        others = ~torch.isin(self.rows, queries)
        rows = torch.cat([queries, self.rows[others]])
        neighbors = torch.cat([embeddings, self.memory[others]])
        self.rows = rows[: self.n_remembered]
        self.memory = neighbors[: self.n_remembered].detach()
        return self._question(network, embeddings, neighbors, queries, rows)


@contextmanager
def pool_in_place_of_memory(pool):
    """Let ``neighbor_pool='memory'`` mean another pool for a while."""
    usual, NEIGHBOR_POOLS["memory"] = NEIGHBOR_POOLS["memory"], pool
    try:
        yield
    finally:
        NEIGHBOR_POOLS["memory"] = usual
