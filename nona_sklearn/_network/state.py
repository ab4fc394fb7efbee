"""Conversion of networks to plain data and back, for storage.

A module of a class in MODULES becomes a dict of attributes and arrays. Feature extractors and
modules of the user's classes stay modules.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from .._trend.additive_trend import AdditiveFunction
from .._utils.arrays import as_tensor
from .._utils.storable import CODECS, MODULE_FACTORIES, Codec
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
from .network import Concatenation, NeighborNetwork


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
