"""Objects of what an encoder wrote.

Only registered classes can be made. None is called: an object is made empty and filled with data.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from .._utils.storable import CHOICES, CLASSES, CODECS, MODULE_FACTORIES, RENAMED, UPGRADES
from .._utils.validation import check_choice
from .compiled import check_object
from .memory import MemoryBudget
from .values import check_hashes, read_dtype

TAGS = {"dict", "array", "object", "estimator", "module"}


class MismatchError(ValueError):
    """A parameter that was passed does not fit the file: the parameter's name, and the reason."""


class Decoder:
    """Make what an :class:`~.encoder.Encoder` wrote, of its tensors and external parameters."""

    def __init__(self, tensors: Mapping[str, Tensor], external: Mapping[str, Any]):
        self.tensors, self.external = tensors, external
        self.memory = MemoryBudget(sum(tensor.nbytes for tensor in tensors.values()))
        self._parameters: dict[str, Any] = {}  # of the estimator that is being read

    def decode(self, written: Any) -> Any:
        """Make the value that was written."""
        if isinstance(written, list):
            return [self.decode(each) for each in written]
        if not isinstance(written, dict):
            return written
        [(tag, content)] = written.items()
        if tag in CODECS:
            plain = self.decode(content)
            CODECS[tag].check(plain)
            return CODECS[tag].read(plain)
        if tag == "tensor":
            return self.tensors[content]
        if tag == "handed":
            return self.external[content]
        if tag not in TAGS:
            raise ValueError(f"{tag!r:.50} is no tag")
        return getattr(self, f"_{tag}")(content)

    def _entries(self, written: Mapping[str, Any], class_name: str = "") -> dict[str, Any]:
        return {
            RENAMED.get(f"{class_name}.{key}", key): self.decode(value)
            for key, value in written.items()
        }

    def _dict(self, pairs: list) -> dict:
        decoded = [(self.decode(key), self.decode(value)) for key, value in pairs]
        check_hashes([key for key, _ in decoded])
        return dict(decoded)

    def _array(self, written: dict[str, Any]) -> np.ndarray:
        dtype, shape = read_dtype(written["dtype"]), written["shape"]
        if "numbers" in written:
            array = self.tensors[written["numbers"]].numpy().reshape(shape)
            if dtype.kind != "O":
                return array.view(dtype)
            self.memory.charge(array.size, 8)
            return array.astype(object)
        values = self._texts(*written["text"]) if "text" in written else written["objects"]
        if not isinstance(values, list) or (values and dtype.kind not in "OSU"):
            raise ValueError(f"{type(values).__name__} is no array of {dtype}")
        self.memory.charge(len(values), dtype.itemsize)
        array = np.empty(len(values), dtype)
        array[:] = values if "text" in written else self.decode(values)
        return array.reshape(shape)

    def _texts(self, joined: str, lengths: str) -> list[str]:
        """Split joined texts by their lengths."""
        whole, sizes = self.tensors[joined].numpy().tobytes(), self.tensors[lengths].numpy()
        if not ((sizes >= 0) & (sizes <= len(whole))).all() or sizes.sum() > len(whole):
            raise ValueError(f"lengths of texts must be those of {len(whole)} bytes")
        self.memory.charge(0, 0, len(whole))
        ends = sizes.cumsum()
        return [
            whole[end - length : end].decode("utf-8", "surrogatepass")
            for end, length in zip(ends.tolist(), sizes.tolist(), strict=True)
        ]

    def _object(self, written: list) -> Any:
        name, entries = written
        name = RENAMED.get(name, name)
        kind, state = CLASSES[name], self._entries(entries, name)
        if "__setstate__" not in vars(kind):
            _check_complete(kind, state)
        return _fill(kind, state)

    def _estimator(self, written: list) -> BaseEstimator:
        name, entries, fitted = written
        name = RENAMED.get(name, name)
        kind = CLASSES[name]
        parameters, defaults = UPGRADES[kind](self._entries(entries)), _defaults(kind)
        if unknown := parameters.keys() - defaults:
            raise ValueError(f"{name} has no parameter {min(unknown)}")
        _check_complete(kind, parameters)
        for chosen in CHOICES.keys() & parameters:
            check_choice(chosen, parameters[chosen], CHOICES[chosen])
        # A file of an older version lacks the parameters that were added since.
        before, self._parameters = self._parameters, defaults | parameters
        estimator = _fill(kind, self._parameters | self._entries(fitted, name))
        self._parameters = before
        return estimator

    def _module(self, written: list) -> nn.Module:
        """Make a module from a parameter of the estimator, and load its weights."""
        own_name, state = written
        parameter, make = MODULE_FACTORIES[own_name]
        try:
            module = make(self._parameters[parameter])
            module.load_state_dict(self._entries(state))
        except (RuntimeError, ValueError) as error:
            raise MismatchError(parameter, error) from error
        return module.requires_grad_(False).eval()


def _defaults(kind: type) -> dict[str, Any]:
    """Defaults of a class's parameters, ``inspect.Parameter.empty`` where there is none."""
    return {name: p.default for name, p in inspect.signature(kind).parameters.items()}


def _check_complete(kind: type, state: Mapping[str, Any]) -> None:
    needed = {name for name, value in _defaults(kind).items() if value is inspect.Parameter.empty}
    if lacking := needed - state.keys():
        raise ValueError(f"a {kind.__name__} needs {min(lacking)}")


def _fill(kind: type, state: dict[str, Any]) -> Any:
    """An object with a state, as pickle makes it: its class is not called."""
    made: Any = object.__new__(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        vars(made).update(state)
    check_object(made)
    return made
