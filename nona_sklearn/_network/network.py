"""Networks of an embedding and a head, averages of networks, and networks as plain data."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from .._trend.additive_trend import AdditiveFunction
from .._utils.precision import EXACT, stored
from .._utils.storable import CODECS, MODULE_FACTORIES, Codec
from .._utils.validation import EMBED_BLOCK, as_tensor, in_blocks
from ..attention.head import AverageHead, ClassHead, NONAHead
from ..embedding import (
    ACTIVATIONS,
    FeatureWeights,
    MLPEmbedding,
    PeriodicEmbedding,
    WeightedFeatures,
)
from ..softstep import SoftStep
from ..weighting import WEIGHTINGS, make_weighting
from .extractor import ExtractorEmbedding, make_extractor

if TYPE_CHECKING:
    from .._data.sample import Rows


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
        embeddings = in_blocks(self.embedding, X, EMBED_BLOCK)
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
            (part.embedding if isinstance(part, ExtractorEmbedding) else part).to(EXACT)
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
    return in_blocks(lambda rows: stored(network.embed(rows.to(device, EXACT))), X, EMBED_BLOCK)


class WithTrend(nn.Module):
    """Concatenate an embedding and an additive trend of X, (n, n_features), to (n, d + n_outputs).

    Files of earlier versions contain this module, with a trend in units of the encoded targets. In
    newer files, the trend is a field of the bank.
    """

    embedding: nn.Module
    trend: AdditiveFunction

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.embedding(x), self.trend.sum(x)], dim=1)


MODULES: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        *(NeighborNetwork, Concatenation, ExtractorEmbedding),
        *(PeriodicEmbedding, MLPEmbedding, FeatureWeights, WeightedFeatures, WithTrend),
        AdditiveFunction,
        *(NONAHead, ClassHead, AverageHead, SoftStep),
        *(type(make()) for make in WEIGHTINGS.values()),
        *(nn.Sequential, nn.ModuleList, nn.Linear, nn.BatchNorm1d),
        *ACTIVATIONS.values(),
    )
}
MODULES["AdditiveTrend"] = AdditiveFunction  # in files whose embedding has a trend
MACHINERY = vars(nn.Module()).keys()  # internal attributes of a torch module
STORED_AS = {"trust_radius": "reach"}  # names of version 0.2.0 in files
LOADED_AS = {stored: name for name, stored in STORED_AS.items()}


def is_known(module: Any) -> bool:
    """Return whether an object is a module that can be converted to data completely."""
    return isinstance(module, nn.Module) and all(map(_is_of_known_class, module.modules()))


def _is_of_known_class(module: nn.Module) -> bool:
    return MODULES.get(type(module).__name__) is type(module)


def to_data(module: nn.Module | None) -> Any:
    """Return a module as dicts, numbers and arrays, with CPU copies of the user's modules.

    Arrays share the memory of tensors on the CPU.
    """
    if module is None:
        return None
    if not _is_of_known_class(module):
        return copy.deepcopy(module).cpu()
    return {
        "class": type(module).__name__,
        "attributes": {k: v for k, v in vars(module).items() if k not in MACHINERY},
        "parameters": _arrays(module._parameters),
        "buffers": _arrays(module._buffers),
        "modules": {
            name: copy.deepcopy(child).cpu()
            if name == "extractor" and child is not None
            else to_data(child)
            for name, child in module._modules.items()
        },
    }


def _arrays(tensors: Mapping[str, Tensor | None]) -> dict[str, np.ndarray | None]:
    return {
        STORED_AS.get(name, name): None if tensor is None else tensor.detach().cpu().numpy()
        for name, tensor in tensors.items()
    }


def from_data(data: Any) -> Any:
    """Return the module that :func:`to_data` converted, in eval mode and without gradients."""
    if not isinstance(data, dict):  # None, or the user's module
        return data
    kind = MODULES[data["class"]]
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    for name, value in data["attributes"].items():
        setattr(module, name, value)
    for name, array in data["parameters"].items():
        tensor = None if array is None else nn.Parameter(as_tensor(array), requires_grad=False)
        module.register_parameter(name, tensor)
    for name, array in data["buffers"].items():
        buffer = None if array is None else as_tensor(array)
        module.register_buffer(LOADED_AS.get(name, name), buffer)
    for name, child in data["modules"].items():
        module.register_module(name, from_data(child))
    return module.eval()


def remake_extractor(parameter: Any) -> nn.Module:
    """Return an extractor for stored weights, from a module, a factory, or an object with one."""
    return make_extractor(parameter.module if isinstance(parameter, BaseEstimator) else parameter)


CODECS["known"] = Codec(to_data, dict, from_data, accepts=is_known)
MODULE_FACTORIES |= {
    "extractor": ("feature_extractor", remake_extractor),
    "weighting": ("weighting", make_weighting),
}
