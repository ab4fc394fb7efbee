"""Objects as JSON and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._utils.arrays import as_tensor
from .._utils.storable import (
    CLASSES,
    CODECS,
    ESTIMATORS,
    MODULE_FACTORIES,
    UPGRADES,
    VERSION,
    name_of,
)
from .memory import MemoryBudget
from .values import check_hashes, is_plain


class UnknownError(TypeError):
    """An object that a file cannot hold."""


class Encoder:
    """Write objects as JSON, and their numbers as tensors beside it.

    What JSON has is written as itself; all else as a dict with one key, the tag by which a
    :class:`~.decoder.Decoder` chooses how to read it.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}  # by the path of the first value that has them
        self.external: dict[str, str] = {}  # parameters that no file can hold, and their repr
        self._handed: dict[int, str] = {}  # names of external parameters by the object's id
        self._keys: dict[tuple, str] = {}
        self._storages: set[int] = set()  # addresses of the tensors' memory
        self._memory = MemoryBudget()  # the Decoder's

    def encode(self, value: Any, path: str) -> Any:
        """Write a value that is at a path, or raise an UnknownError that names the path."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is list:
            return [self.encode(each, f"{path}.{i}") for i, each in enumerate(value)]
        if kind is dict:
            return {"dict": self._dict(value, path)}
        if kind is np.ndarray:
            return {"array": self._array(value, path)}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value, path)}
        if isinstance(value, nn.Module):
            return {"module": self._module(value, path)}
        if kind in UPGRADES:
            return {"estimator": self._estimator(value, path)}
        if CLASSES.get(name_of(kind)) is kind:
            return {"object": [name_of(kind), self.entries(value.__getstate__(), path)]}
        return self._plainer(value, path)

    def entries(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Write each value under its key."""
        return {key: self.encode(value, f"{path}.{key}") for key, value in values.items()}

    def _dict(self, values: dict, path: str) -> list:
        with _refused(path):
            check_hashes(values)
        return [
            [self.encode(key, path), self.encode(value, f"{path}.{key}")]
            for key, value in values.items()
        ]

    def _plainer(self, value: Any, path: str) -> dict[str, Any]:
        """Write a value by the codec of its type, or by the one that accepts it.

        An external parameter may also be a part of what is fitted.
        """
        if id(value) in self._handed:
            return {"handed": self._handed[id(value)]}
        tag: str | None = name_of(type(value))
        if tag not in CODECS:
            tag = next((t for t, codec in CODECS.items() if codec.accepts(value)), None)
        if tag is None:
            raise _unknown(value, path)
        with _refused(path):
            plain = CODECS[tag].write(value)
            CODECS[tag].check(plain)
        return {tag: self.encode(plain, path)}

    def _estimator(self, estimator: Any, path: str, prefix: str = "") -> list:
        """Write the parameters, some of which may be external, and the fitted state."""
        state = estimator.__getstate__()
        names = estimator.get_params(deep=False).keys()
        parameters = {
            name: self._parameter(state[name], prefix + name, f"{path}.{name}") for name in names
        }
        fitted = {key: value for key, value in state.items() if key not in {*names, VERSION}}
        return [name_of(type(estimator)), parameters, self.entries(fitted, path)]

    def _parameter(self, value: Any, name: str, path: str) -> Any:
        value = [*value] if _is_foreign_list(value) else value
        try:
            if isinstance(value, nn.Module):
                return self._plainer(value, path)
            if type(value) in UPGRADES and type(value) not in ESTIMATORS:
                return {"estimator": self._estimator(value, path, f"{name}__")}
            return self.encode(value, path)
        except UnknownError:
            self.external[name] = f"{' '.join(repr(value).split()):.100}"
            self._handed[id(value)] = name
            return {"handed": name}

    def _module(self, module: nn.Module, path: str) -> list:
        """Write the weights of a module that is made from a parameter."""
        own_name = path.rsplit(".", 1)[-1]
        if own_name not in MODULE_FACTORIES:
            raise _unknown(module, path)
        return [own_name, self.entries(module.state_dict(), path)]

    def _array(self, array: np.ndarray, path: str) -> dict[str, Any]:
        """Write numbers as a tensor; texts as one of their bytes; other objects one by one."""
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
        written: dict[str, Any] = {"dtype": array.dtype.str, "shape": list(array.shape)}
        kind = array.dtype.kind
        if kind in "biuf" and is_plain(array.dtype):
            return written | {"numbers": self._tensor(as_tensor(array), path)}
        if kind in "mM":
            return written | {"numbers": self._tensor(as_tensor(array.view(np.int64)), path)}
        values = array.ravel().tolist()
        kinds = {type(value) for value in values}
        if kinds == {int} and min(values) >= -(2**63) and max(values) < 2**63:
            numbers = torch.tensor(values, dtype=torch.int64)
            return written | {"numbers": self._tensor(numbers, path)}
        if kind in "UO" and kinds <= {str}:
            texts = [text.encode("utf-8", "surrogatepass") for text in values]
            self._charge_memory(array, texts, path)
            return written | {"text": self._texts(texts, path)}
        if kind == "S":
            self._charge_memory(array, values, path)
        return written | {"objects": self.encode(values, path)}

    def _texts(self, texts: list[bytes], path: str) -> list[str]:
        content = bytearray(b"".join(texts)) or bytearray(1)
        joined = torch.frombuffer(content, dtype=torch.uint8)
        lengths = torch.tensor([len(text) for text in texts], dtype=torch.int32)
        return [self._tensor(joined, f"{path}.text"), self._tensor(lengths, f"{path}.lengths")]

    def _charge_memory(self, array: np.ndarray, texts: list[bytes], path: str) -> None:
        n_bytes = sum(map(len, texts))
        try:
            self._memory.charge(array.size, array.itemsize, n_bytes, n_bytes + 4 * array.size)
        except ValueError:
            raise UnknownError(f"{path} is an array of texts that is nearly all padding") from None

    def _tensor(self, tensor: Tensor, path: str) -> str:
        """Keep a tensor once, however often it occurs, and return its key."""
        tensor = tensor.detach().cpu().contiguous()
        same = tensor.data_ptr(), tensor.shape, tensor.dtype
        if same not in self._keys:
            key = path if path not in self.tensors else f"{path} {len(self.tensors)}"
            storage = tensor.untyped_storage().data_ptr()
            tensor = tensor.clone() if storage in self._storages else tensor  # files hold no views
            self._storages.add(storage)
            self.tensors[key], self._keys[same] = tensor, key
        return self._keys[same]


def _unknown(value: Any, path: str) -> UnknownError:
    return UnknownError(f"{path} is a {type(value).__module__}.{type(value).__qualname__}")


@contextmanager
def _refused(path: str) -> Iterator[None]:
    """Name the path of a value that a Decoder would refuse."""
    try:
        yield
    except (ValueError, LookupError, OSError) as error:  # the last two: of time zones
        raise UnknownError(f"{path} cannot be read again: {error}") from error


def _is_foreign_list(value: Any) -> bool:
    """Whether a value is a range, or an Index or Series of pandas: a list means the same."""
    of_pandas = type(value).__module__.split(".")[0] == "pandas"
    return isinstance(value, range) or (of_pandas and hasattr(value, "tolist"))
