"""All that the benchmarks use of the package beyond its public names.

A change of a private module concerns the benchmarks here, and nowhere else.
"""

import copy
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.optim import AdamW

from nona_sklearn import MLPEmbedding, NONAClassifier, NONARegressor
from nona_sklearn._data.sample import Embedded
from nona_sklearn._data.source import SparseEncoder
from nona_sklearn._estimators import fitting
from nona_sklearn._estimators.architectures import NONAArchitecture, table_source
from nona_sklearn._estimators.base import NeighborEstimator
from nona_sklearn._estimators.classification import NeighborClassifier
from nona_sklearn._estimators.queries import embeddings_of
from nona_sklearn._estimators.regression import NeighborRegressor
from nona_sklearn._inference.bank import NeighborBank
from nona_sklearn._inference.neighbors import Neighbors
from nona_sklearn._network.network import Concatenation, embed
from nona_sklearn._scaling import building
from nona_sklearn._training import loop
from nona_sklearn._training.loop import run_epochs
from nona_sklearn._training.net import NEIGHBOR_POOLS, BatchPool, DatasetPool, MemoryPool

__all__ = [
    "Embedded",
    "BatchPool",
    "DatasetPool",
    "Deeper",
    "DenseHeadClassifier",
    "DenseHeadRegressor",
    "Dropped",
    "FreshAndLeftAlone",
    "KeptApart",
    "LastBatches",
    "LeftAlone",
    "LikeThePapers",
    "MemoryPool",
    "NeighborEstimator",
    "OfEmbedding",
    "OwnHidden",
    "Standardized",
    "WithBatchNorm",
    "WithFallingEpochs",
    "WithFreshBatch",
    "WithMuon",
    "WithoutAverage",
    "WithoutSkipConnection",
    "make_bank",
    "perturbed_start",
    "pool_in_place_of_memory",
    "samples_of_shards",
]


@contextmanager
def perturbed_start(size=1e-6):
    """Perturb the initial weights of networks relative to their size."""
    train = fitting.train_networks

    def train_perturbed(networks, *args, **kwargs):
        generator = torch.Generator().manual_seed(0)
        for network in networks:
            for weight in network.parameters():
                noise = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
                weight.data *= 1 + size * noise.to(weight)
        return train(networks, *args, **kwargs)

    with patch.object(fitting, "train_networks", train_perturbed):
        yield


def make_bank(embeddings, targets):
    """Build a bank of embeddings (n, d) and targets (n,), for queries without an estimator."""
    return NeighborBank(Neighbors(embeddings, targets))


# -- a rival on the same embedding, trained by the same recipe ----------------------------------


class DenseHead(nn.Module):
    """A linear layer after a ReLU, called as a :class:`NONAHead` is.

    With `sizes`, the numbers of classes of each output, it predicts probabilities.
    """

    n_adjusted = 0

    def __init__(self, embedding_dim, n_outputs, sizes=None):
        super().__init__()
        self.n_outputs, self.sizes = n_outputs, sizes
        self.linear = nn.Linear(embedding_dim, n_outputs or 1)

    def split_by_head(self, query, neighbors):
        return [(self, query, neighbors)]

    def metric_part(self, embeddings):
        return embeddings

    def forward(self, query, *neighbors, **options):
        prediction = self.linear(query.relu())
        if self.sizes is None:
            return prediction[:, 0] if self.n_outputs is None else prediction
        if not self.training:  # probabilities sum to 1 in float64
            prediction = prediction.double()
        blocks = prediction.split(self.sizes, dim=1)
        return torch.cat([block.softmax(dim=1) for block in blocks], dim=1)


class DenseArchitecture(NONAArchitecture):
    """The embedding of a NONA estimator under a dense head."""

    def neighbor_pool(self, of_tables):
        return "batch"  # the cheapest: the head does not use it

    @classmethod
    def from_params(cls, params):
        plain = super().from_params(params)
        return replace(plain, adjusts=False, smoothing=False, can_have_kernel=False)

    def make_head(self, targets, n_adjusted, embedding_dim, n_neighbors):
        sizes = getattr(targets, "sizes", None)
        n_outputs = targets.n_outputs if sizes is None else sum(sizes)
        return DenseHead(embedding_dim, n_outputs, sizes)


class DenseHeadEstimator(TransformerMixin, BaseEstimator):
    """A NONA estimator whose embedding is under a dense head: all else is the same."""

    _scale_of_step = NeighborEstimator._scale_of_step

    embed = NeighborEstimator.embed
    transform = NeighborEstimator.transform
    n_estimators_ = NeighborEstimator.n_estimators_
    best_loss_ = NeighborEstimator.best_loss_

    def _architecture(self):
        return DenseArchitecture.from_params(self)

    def fit(self, X, y, groups=None):
        with patch.object(
            loop, "refine_on_bank", lambda *_, **__: 1.0
        ):  # it has nothing to refine
            training = fitting.train(self, X, y, groups=groups)
        fitting.set_fitted(self, training, training.network)
        sample = training.data.sample
        self.bank_ = make_bank(embed(self.network_, sample.X), sample.y)
        return self

    def _encoded_predictions(self, X):
        """Mean of the networks' predictions, in units of the targets."""
        z = embeddings_of(self, X)
        parts = self.network_.head.split_by_head(z, self.bank_.embeddings)
        return self.targets_.restore(torch.stack([head(part) for head, part, _ in parts]).mean(0))


class DenseHeadRegressor(RegressorMixin, DenseHeadEstimator):
    """A dense head for numbers."""

    __init__ = NONARegressor.__init__
    _parameter_constraints = NONARegressor._parameter_constraints
    _make_targets = NeighborRegressor._make_targets

    def predict(self, X):
        return self.targets_.decode(self._encoded_predictions(X))


class DenseHeadClassifier(ClassifierMixin, DenseHeadEstimator):
    """A dense head for the classes of one output."""

    __init__ = NONAClassifier.__init__
    _parameter_constraints = NONAClassifier._parameter_constraints
    _make_targets = NeighborClassifier._make_targets
    class_weight_ = NeighborClassifier.class_weight_

    @property
    def classes_(self):
        return self.targets_.classes[0]

    def predict(self, X):
        return self.targets_.decode(self._encoded_predictions(X))

    def predict_proba(self, X):
        return self._encoded_predictions(X).numpy()


# -- variants of the default regressor that no parameter reaches ------------------------------


class Layers(NONAArchitecture):
    """The default architecture, whose layers a variant makes."""

    def _make_embedding(self, train, n_outputs):
        first, n_features = self.make_first_layer(train)
        layers = self.make_layers(n_features, n_outputs - self.params.embedding_dim)
        return layers if first is None else nn.Sequential(first, layers)

    def make_layers(self, n_features, n_adjusted):
        return self.make_mlp(n_features, self.params.embedding_dim + n_adjusted)

    def make_mlp(self, n_features, n_outputs):
        sizes = self.params.hidden_layer_sizes
        return MLPEmbedding(n_features, n_outputs, sizes, skip_connection=True)


class Variant(NONARegressor):
    """The default regressor with another architecture."""

    architecture = Layers

    def _architecture(self):
        return self.architecture.from_params(self)


def with_options(name, average=True, **options):
    """A regressor whose networks have other options of :class:`MLPEmbedding`, or no average."""

    class Architecture(Layers):
        @classmethod
        def from_params(cls, params):
            return replace(super().from_params(params), averages=average)

        def make_mlp(self, n_features, n_outputs):
            sizes = self.params.hidden_layer_sizes
            return MLPEmbedding(
                n_features, n_outputs, sizes, **{"skip_connection": True, **options}
            )

    return type(name, (Variant,), {"architecture": Architecture, "__module__": __name__})


WithoutAverage = with_options("WithoutAverage", average=False)
WithoutSkipConnection = with_options("WithoutSkipConnection", skip_connection=False)
WithBatchNorm = with_options("WithBatchNorm", batch_norm=True)
LikeThePapers = with_options(
    "LikeThePapers", activation="tanh", batch_norm=True, skip_connection=False
)


class Standardized(Variant):
    """Means and deviations instead of quartiles and smooth clipping."""

    class architecture(Layers):
        def input(self):
            return table_source(self.params, StandardScaler(), SparseEncoder.to_choose_from())


class OwnHidden(Variant):
    """The network's own prediction has a hidden layer of its own."""

    class architecture(Layers):
        def make_layers(self, n_features, n_adjusted):
            sizes = self.params.embedding_dim, n_adjusted
            return Concatenation([self.make_mlp(n_features, size) for size in sizes])


class OfEmbedding(Variant):
    """The network's own prediction is a linear map of the compared embedding, rectified."""

    class architecture(Layers):
        def make_layers(self, n_features, n_adjusted):
            size = self.params.embedding_dim
            own = nn.Sequential(nn.ReLU(), nn.Linear(size, n_adjusted))
            return Beside(self.make_mlp(n_features, size), own)


class Beside(nn.Module):
    """An embedding, and a function of it."""

    def __init__(self, embedding, further):
        super().__init__()
        self.embedding, self.further = embedding, further

    def forward(self, x):
        z = self.embedding(x)
        return torch.cat([z, self.further(z)], dim=1)


class Deeper(Variant):
    """The network's own prediction has two hidden layers."""

    class architecture(Layers):
        def make_layers(self, n_features, n_adjusted):
            compared = self.make_mlp(n_features, self.params.embedding_dim)
            deeper = MLPEmbedding(n_features, n_adjusted, (128, 128), skip_connection=True)
            return Concatenation([compared, deeper])


class Dropped(Variant):
    """A tenth of the hidden units is left out of each step."""

    class architecture(Layers):
        def make_mlp(self, n_features, n_outputs):
            mlp = super().make_mlp(n_features, n_outputs)
            mlp.layers.insert(2, nn.Dropout(0.1))
            return mlp


class TrainedOtherwise(Variant):
    """A part of the training is another one."""

    def fit(self, X, y):
        owner, name, other = self.instead
        with patch.object(owner, name, other):
            return super().fit(X, y)


def run_falling_epochs(net, train, valid, config, slot, n_epochs=6):
    """After the patience some more epochs, from the best weights, at a rate that falls to 0."""
    history = run_epochs(net, train, valid, config, slot)
    groups = net.optimizer_.param_groups
    rates = [group["lr"] for group in groups]
    monitor = "train_loss" if valid is None else "valid_loss"
    (kept,) = (epoch for epoch in history if "kept" in epoch)
    least, weights = kept[monitor], copy.deepcopy(net.module.state_dict())
    for left in range(n_epochs, 0, -1):
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate * left / (n_epochs + 1)
        last = run_epochs(net, train, valid, replace(config, max_iter=1), slot)[-1]
        if last[monitor] < least:
            least, kept, weights = last[monitor], last, copy.deepcopy(net.module.state_dict())
    net.module.load_state_dict(weights)
    epochs = [{k: v for k, v in epoch.items() if k != "batches"} for epoch in net.history]
    epochs[kept["epoch"] - 1]["kept"] = True
    epochs[-1]["stopped"] = history[-1]["stopped"]
    return epochs


class WithFallingEpochs(TrainedOtherwise):
    """The training ends with epochs at a falling rate; in place of an average of weights."""

    architecture = WithoutAverage.architecture
    instead = loop, "run_epochs", run_falling_epochs


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for matrices between layers, AdamW for all else, at the same rates."""

    def __init__(self, params, lr, weight_decay, fused):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.parts = []
        for group in self.param_groups:
            matrices = [p for p in group["params"] if p.ndim == 2 and min(p.shape) >= 8]
            others = [p for p in group["params"] if all(p is not m for m in matrices)]
            decay = {"weight_decay": group["weight_decay"]}
            if matrices:
                muon = torch.optim.Muon(matrices, lr, adjust_lr_fn="match_rms_adamw", **decay)
                self.parts.append((group, muon))
            if others:
                self.parts.append((group, AdamW(others, lr, fused=fused, **decay)))

    def step(self, closure=None):
        with torch.enable_grad():
            loss = closure() if closure is not None else None
        for group, part in self.parts:
            for own in part.param_groups:
                own["lr"] = group["lr"]
            part.step()
        return loss


class WithMuon(TrainedOtherwise):
    """Hidden matrices are trained by Muon."""

    instead = loop, "QuietAdamW", MuonAndAdamW


# -- variants of the memory that a fine-tuned extractor trains with ---------------------------


class LeftAlone(MemoryPool):
    """Only a step refreshes, and validation uses what training left behind."""

    def neighbors(self, network):
        return Neighbors(self.memory[: self.size], self.values[: self.size])


class KeptApart(MemoryPool):
    """Validation embeds anew for itself; training goes on with its memory."""

    neighbors = DatasetPool.neighbors


class WithFreshBatch(MemoryPool):
    """Neighbours are the batch as it is now, with gradient, and the others as stored."""

    def embed(self, network, queries, rows):
        if self.memory is None:
            self.memory = network.embed(self.X)
        embeddings = network.embedding(self.X[queries])
        neighbors = torch.cat([embeddings, self.memory[rows[len(queries) :]]])
        self.memory[queries] = embeddings.detach()
        return embeddings, neighbors


class FreshAndLeftAlone(WithFreshBatch):
    """The same, and validation refreshes nothing."""

    neighbors = LeftAlone.neighbors


class LastBatches(DatasetPool):
    """The batch as it is now, with gradient, and the rows of the last batches, as they were."""

    n_stored = 224
    rows = memory = None

    def draw(self, queries):
        rows = queries[:0] if self.rows is None else self.rows
        self.others = ~torch.isin(rows, queries)
        return rows[self.others]

    def embed(self, network, queries, rows):
        embeddings = network.embedding(self.X[queries])
        memory = embeddings[:0].detach() if self.memory is None else self.memory
        neighbors = torch.cat([embeddings, memory[self.others]])
        self.rows = rows[: self.n_stored]
        self.memory = neighbors[: self.n_stored].detach()
        return embeddings, neighbors


@contextmanager
def pool_in_place_of_memory(pool):
    """Let ``neighbor_pool='memory'`` mean another pool for a while."""
    usual, NEIGHBOR_POOLS["memory"] = NEIGHBOR_POOLS["memory"], pool
    try:
        yield
    finally:
        NEIGHBOR_POOLS["memory"] = usual


@contextmanager
def samples_of_shards():
    """Yield a list, to which every call of fit_shards appends the row numbers of its sample."""
    drawn, draw = [], building.draw_sample

    def draw_and_note(*args):
        rows, sample = draw(*args)
        drawn.append(rows)
        return rows, sample

    with patch.object(building, "draw_sample", draw_and_note):
        yield drawn
