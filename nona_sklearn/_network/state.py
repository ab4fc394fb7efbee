"""Networks as plain data and back, for whatever stores them.

A module of a class below becomes a dict of its attributes and arrays. The user's own stay what
they are: feature extractors, and what is of any other class. Back, a module is made without a
call of its class.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from .._utils.arrays import as_tensor
from ..attention import AverageHead, ClassHead, NONAHead
from ..embedding import ACTIVATIONS, FeatureWeights, MLPEmbedding, PeriodicEmbedding
from ..softstep import SoftStep
from ..weighting import (
    Entmax,
    Gaussian,
    Preconditioned,
    Sigmoid,
    Softmax,
    Softpick,
    Softplus,
    SparseSoftmax,
    Uniform,
)
from .extractor import ExtractorEmbedding
from .network import Concatenation, NeighborNetwork

MODULES: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        *(NeighborNetwork, Concatenation, ExtractorEmbedding),
        *(PeriodicEmbedding, MLPEmbedding, FeatureWeights),
        *(NONAHead, ClassHead, AverageHead, SoftStep),
        *(Softmax, Uniform, Gaussian, Sigmoid, Softplus, Softpick),
        *(SparseSoftmax, Entmax, Preconditioned),
        *(nn.Sequential, nn.ModuleList, nn.Linear, nn.BatchNorm1d),
        *ACTIVATIONS.values(),
    )
}
MACHINERY = vars(nn.Module()).keys()  # torch's own attributes of a module
STORED_AS = {"trust_radius": "reach"}  # names of version 0.2.0 in files
LOADED_AS = {stored: name for name, stored in STORED_AS.items()}


def is_known(module: nn.Module) -> bool:
    """Whether all of a module can become data."""
    return all(_is_of_known_class(each) for each in module.modules())


def _is_of_known_class(module: nn.Module) -> bool:
    return MODULES.get(type(module).__name__) is type(module)


def to_data(module: nn.Module | None) -> Any:
    """Write a module as dicts, numbers and arrays; the user's own as copies on the CPU.

    Arrays are the module's own memory, where that is the processor's.
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
    """Make the module that :func:`to_data` wrote, in eval mode and without gradients."""
    if not isinstance(data, dict):
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
