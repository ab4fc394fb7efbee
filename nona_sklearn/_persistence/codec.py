"""Conversion of objects to JSON and tensors, and back.

An :class:`Encoder` writes values of JSON's types unchanged. Any further value becomes a dict with
one key, the tag by which a :class:`Decoder` chooses how to read it. Only registered classes can be
made. No class is called: an object is made empty and filled with data.
"""

from __future__ import annotations

import datetime
import inspect
import io
import math
import pickle
import re
import zoneinfo
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder, RobustScaler, StandardScaler, TargetEncoder
from torch import Tensor, nn

from .._utils.storable import (
    CHOICES,
    CLASSES,
    CODECS,
    ESTIMATORS,
    FUNCTIONS,
    MAX_CHARACTERS,
    MODULE_FACTORIES,
    RENAMED,
    UPGRADES,
    VERSION,
    Codec,
    name_of,
    storable,
)
from .._utils.validation import as_tensor, check_choice, is_whole

MAX_COLLISIONS = 100  # keys of a dict that may share a hash
#: Bytes that arrays of objects and texts may take: FREE_BYTES, and MAX_EXPANSION times the file.
#: A file that needs more is forged: it declares texts wider than any text in it.
FREE_BYTES, MAX_EXPANSION = 2**26, 256
DTYPE = re.compile(r"[<>=|][biufcOSUmMV][0-9]{0,10}(\[[0-9]{0,10}[A-Za-z]{1,2}\])?")
TORCH_DTYPES = torch.float32, torch.float64, torch.float16, torch.bfloat16
#: Largest values of the buffer positions in the state of NumPy's bit generators.
BUFFER_POSITIONS = {"pos": 624, "buffer_pos": 4}

for _kind in (
    *(RobustScaler, StandardScaler, SimpleImputer, MissingIndicator),
    *(OneHotEncoder, TargetEncoder, FrozenEstimator),
    *(CountVectorizer, TfidfVectorizer, TfidfTransformer, TruncatedSVD),  # of texts
):
    storable(_kind)


class UnknownError(TypeError):
    """An object that a file cannot hold."""


class MismatchError(ValueError):
    """A passed parameter does not fit the file. Its arguments are the name and the reason."""


# -- protection against forged files -----------------------------------------------------------


class MemoryBudget:
    """The memory that is left for arrays of objects and texts, in a file of `n_stored` bytes."""

    def __init__(self, n_stored: int = 0) -> None:
        self.left = FREE_BYTES + MAX_EXPANSION * n_stored

    def charge(self, n_values: int, width: int, n_bytes: int = 0, n_stored: int = 0) -> None:
        """Subtract an array of values of `width` bytes and texts of `n_bytes`, or raise.

        The array adds `n_stored` bytes to the file.
        """
        taken = n_values * (64 + width) + 4 * n_bytes  # with Python's objects, approximately
        left = self.left + MAX_EXPANSION * n_stored - taken
        if left < 0:
            raise ValueError(
                f"arrays of texts and objects need more than {MAX_EXPANSION} times the file"
            )
        self.left = left


def check_hashes(keys: Collection) -> None:
    """Raise if many keys share a hash, since a dict compares a key with all keys of its hash."""
    if max(Counter(map(hash, keys)).values(), default=0) > MAX_COLLISIONS:
        raise ValueError(f"more than {MAX_COLLISIONS} keys of a dict share a hash")


def check_buffer_positions(state: Any) -> None:
    """Raise if the next number of a bit generator's state is outside its buffer."""
    for entries in (state, state["state"]):
        for name in BUFFER_POSITIONS.keys() & entries.keys():
            if not is_whole(entries[name], 0, BUFFER_POSITIONS[name]):
                raise ValueError(
                    f"a random state has {BUFFER_POSITIONS[name]} words, and no position "
                    f"{entries[name]!r:.50}"
                )


def check_object(thing: Any) -> None:
    """Raise if an object's numbers would lead compiled code out of its arrays."""
    if isinstance(thing, np.random.RandomState):
        check_buffer_positions(thing.get_state(legacy=False))
    elif isinstance(thing, np.random.Generator):
        check_buffer_positions(thing.bit_generator.state)
    elif isinstance(thing, CountVectorizer) and hasattr(thing, "vocabulary_"):
        columns = thing.vocabulary_.values()
        if not all(is_whole(column, 0, len(columns) - 1) for column in columns):
            raise ValueError(f"a vocabulary of {len(columns)} words has a column beyond them")
    elif isinstance(thing, OneHotEncoder) and hasattr(thing, "categories_"):
        # Encode every category once, and compare its column with the number of columns.
        n_rows = max(map(len, thing.categories_))
        table = [np.resize(np.asarray(names, object), n_rows) for names in thing.categories_]
        plain = OneHotEncoder.__new__(OneHotEncoder)
        vars(plain).update(vars(thing) | {"sparse_output": True, "_sklearn_output_config": {}})
        vars(plain).pop("feature_names_in_", None)
        plain.transform(np.array(table, object).T).check_format(full_check=True)


class ObjectChecker(pickle.Pickler):
    """A pickler that checks every object of a model, and discards the pickle."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), protocol=5, buffer_callback=lambda _: None)

    def persistent_id(self, thing: Any) -> None:
        """Check an object, and return None, so that it is pickled."""
        check_object(thing)


# -- values that JSON lacks --------------------------------------------------------------------


def read_dtype(name: str) -> np.dtype:
    """Return the dtype of a name, or raise for a structure of several types."""
    if not DTYPE.fullmatch(name):
        raise ValueError(f"{name!r:.50} is no type of an array")
    return np.dtype(name)


def _is_plain(dtype: np.dtype) -> bool:
    """Return whether torch or Python has numbers, moments or texts of this type."""
    return dtype.kind in "biuSUmM" or (dtype.kind == "f" and dtype.itemsize <= 8)


def _read_scalar(written: list) -> np.generic:
    name, plain = written
    dtype = read_dtype(name)
    if dtype.kind not in "biufSUmM" or not isinstance(plain, bool | int | float | str | bytes):
        raise ValueError(f"{type(plain).__name__} is no scalar of {name}")
    if dtype.kind in "SU":  # as wide as the text, not as the file declares
        return dtype.type(plain)
    stored_as = np.int64 if dtype.kind in "mM" else dtype
    scalar: Any = np.array(plain, stored_as).view(dtype)  # numpy 2.0 types it as an array
    return scalar[()]


def _read_random_state(state: dict) -> np.random.RandomState:
    check_buffer_positions(state)
    random_state = np.random.RandomState()
    random_state.set_state(state)
    return random_state


def _pandas(name: str, arguments: list) -> Any:
    import pandas as pd  # only if a value needs pandas

    return getattr(pd, name)(*arguments)


@lru_cache(maxsize=64)
def _zone(name: str) -> datetime.tzinfo:
    """Return pandas' time zone of a name. A zone of dateutil is refused, since it opens a file."""
    if name.startswith("dateutil/"):
        raise ValueError(f"{name!r} is a path, and no time zone")
    return _pandas("Timestamp", ["1970-01-01"]).tz_localize("UTC").tz_convert(name).tz


def _write_timestamp(moment: Any) -> list:
    """Return the time of a Timestamp in UTC, its zone, and its unit."""
    if moment.tz is None:
        return [moment.isoformat(), None, moment.unit]
    name = str(moment.tz)
    if str(_zone(name)) != name:
        raise ValueError(f"{name!r:.{MAX_CHARACTERS}} is no name of its time zone")
    return [moment.tz_convert("UTC").tz_localize(None).isoformat(), name, moment.unit]


def _read_timestamp(written: list) -> Any:
    text, name, unit = written
    moment = _pandas("Timestamp", [text]).as_unit(unit)
    return moment if name is None else moment.tz_localize("UTC").tz_convert(_zone(name))


# A text may have any length if the time to read it is proportional to the length.
CODECS |= {
    "builtins.tuple": Codec(list, list, tuple),
    "builtins.bytes": Codec(bytes.hex, str, bytes.fromhex, math.inf),
    "datetime.date": Codec(datetime.date.isoformat, str, datetime.date.fromisoformat),
    "datetime.datetime": Codec(
        lambda t: [t.replace(tzinfo=None).isoformat(), t.tzinfo, t.fold],
        [str, (datetime.tzinfo, type(None)), int],
        lambda t: datetime.datetime.fromisoformat(t[0]).replace(tzinfo=t[1], fold=t[2]),
    ),
    "datetime.timedelta": Codec(
        lambda t: [t.days, t.seconds, t.microseconds],
        [int] * 3,
        lambda parts: datetime.timedelta(*parts),
    ),
    "datetime.timezone": Codec(
        lambda zone: zone.utcoffset(None), datetime.timedelta, datetime.timezone
    ),
    "numpy.RandomState": Codec(
        lambda state: state.get_state(legacy=False), dict, _read_random_state
    ),
    "pandas.Interval": Codec(
        lambda i: [i.left, i.right, i.closed], [object, object, str], partial(_pandas, "Interval")
    ),
    "pandas.Period": Codec(lambda p: [str(p), p.freqstr], [str, str], partial(_pandas, "Period")),
    "pandas.Timedelta": Codec(lambda t: [t.isoformat()], [str], partial(_pandas, "Timedelta")),
    "pandas.Timestamp": Codec(_write_timestamp, [str, (str, type(None)), str], _read_timestamp),
    "pandas.NaTType": Codec(lambda _: ["NaT"], [str], partial(_pandas, "Timestamp")),
    "torch.device": Codec(str, str, torch.device),
    "torch.dtype": Codec(str, str, {str(dtype): dtype for dtype in TORCH_DTYPES}.__getitem__),
    "zoneinfo.ZoneInfo": Codec(lambda z: str(zoneinfo.ZoneInfo(str(z))), str, zoneinfo.ZoneInfo),
    "scalar": Codec(
        lambda s: [s.dtype.str, (s.view(np.int64) if s.dtype.kind in "mM" else s).item()],
        [str, object],
        _read_scalar,
        math.inf,
        lambda value: isinstance(value, np.generic) and _is_plain(value.dtype),
    ),
    "dtype": Codec(
        lambda dtype: dtype.str,
        str,
        read_dtype,
        math.inf,
        lambda value: isinstance(value, np.dtype) and value.kind in "biufOUmM",
    ),
    "type": Codec(
        lambda kind: np.dtype(kind).str,
        str,
        lambda name: read_dtype(name).type,
        math.inf,
        lambda value: isinstance(value, type) and issubclass(value, np.generic),
    ),
    "function": Codec(
        name_of,
        str,
        FUNCTIONS.__getitem__,
        accepts=lambda value: (
            isinstance(value, FunctionType) and FUNCTIONS.get(name_of(value)) is value
        ),
    ),
}


# -- writing -----------------------------------------------------------------------------------


class Encoder:
    """Writes objects as JSON, and their numbers as tensors beside it."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}  # by the path of the first value with the tensor
        self.external: dict[str, str] = {}  # repr of the parameters that no file can hold
        self._external_names: dict[int, str] = {}  # names of these parameters, by object id
        self._keys: dict[tuple, str] = {}  # of tensors, by address, shape and dtype
        self._storages: set[int] = set()  # addresses of the tensors' memory
        self._memory = MemoryBudget()  # of the Decoder

    def encode(self, value: Any, path: str) -> Any:
        """Return a value as JSON, or raise an UnknownError that names its path."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is list:
            return [self.encode(entry, f"{path}.{i}") for i, entry in enumerate(value)]
        if kind is dict:
            with _refused(path):
                check_hashes(value)
            pairs = [
                [self.encode(k, path), self.encode(v, f"{path}.{k}")] for k, v in value.items()
            ]
            return {"dict": pairs}
        if kind is np.ndarray:
            return {"array": self._array(value, path)}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value, path)}
        if isinstance(value, nn.Module):  # fitted: a parameter makes it, and its weights follow
            name = path.rsplit(".", 1)[-1]
            if name not in MODULE_FACTORIES:
                raise _unknown(value, path)
            return {"module": [name, self.entries(value.state_dict(), path)]}
        if kind in UPGRADES:
            return {"estimator": self._estimator(value, path)}
        if CLASSES.get(name_of(kind)) is kind:
            return {"object": [name_of(kind), self.entries(value.__getstate__(), path)]}
        return self._by_codec(value, path)

    def entries(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Return the values as JSON by their keys."""
        return {key: self.encode(value, f"{path}.{key}") for key, value in values.items()}

    def _by_codec(self, value: Any, path: str) -> dict[str, Any]:
        """Return an external parameter's name, or the JSON of a value by its codec."""
        if id(value) in self._external_names:
            return {"handed": self._external_names[id(value)]}
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
        """Return the class, the parameters, possibly external, and the fitted state as JSON."""
        state = estimator.__getstate__()
        names = estimator.get_params(deep=False).keys()
        parameters = {
            name: self._parameter(state[name], prefix + name, f"{path}.{name}") for name in names
        }
        fitted = {key: value for key, value in state.items() if key not in {*names, VERSION}}
        return [name_of(type(estimator)), parameters, self.entries(fitted, path)]

    def _parameter(self, value: Any, name: str, path: str) -> Any:
        of_pandas = type(value).__module__.split(".")[0] == "pandas"
        if isinstance(value, range) or (of_pandas and hasattr(value, "tolist")):
            value = [*value]  # an Index or a Series means the same as a list
        try:
            if isinstance(value, nn.Module):
                return self._by_codec(value, path)
            if type(value) in UPGRADES and type(value) not in ESTIMATORS:
                return {"estimator": self._estimator(value, path, f"{name}__")}
            return self.encode(value, path)
        except UnknownError:
            self.external[name] = f"{' '.join(repr(value).split()):.100}"
            self._external_names[id(value)] = name
            return {"handed": name}

    def _array(self, array: np.ndarray, path: str) -> dict[str, Any]:
        """Write numbers as a tensor, texts as a tensor of bytes, and objects one by one."""
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
        written: dict[str, Any] = {"dtype": array.dtype.str, "shape": list(array.shape)}
        kind = array.dtype.kind
        if kind in "biuf" and _is_plain(array.dtype):
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
            content = bytearray(b"".join(texts)) or bytearray(1)
            joined = self._tensor(torch.frombuffer(content, dtype=torch.uint8), f"{path}.text")
            lengths = torch.tensor([len(text) for text in texts], dtype=torch.int32)
            return written | {"text": [joined, self._tensor(lengths, f"{path}.lengths")]}
        if kind == "S":
            self._charge_memory(array, values, path)
        return written | {"objects": self.encode(values, path)}

    def _charge_memory(self, array: np.ndarray, texts: list[bytes], path: str) -> None:
        n_bytes = sum(map(len, texts))
        try:
            self._memory.charge(array.size, array.itemsize, n_bytes, n_bytes + 4 * array.size)
        except ValueError:
            raise UnknownError(f"{path} is an array of texts that is nearly all padding") from None

    def _tensor(self, tensor: Tensor, path: str) -> str:
        """Store a tensor, unless it is stored already, and return its key."""
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
    """Add the path to the error of a value that a Decoder would refuse."""
    try:
        yield
    except (ValueError, LookupError, OSError) as error:  # time zones raise the last two
        raise UnknownError(f"{path} cannot be read again: {error}") from error


# -- reading -----------------------------------------------------------------------------------


class Decoder:
    """Makes the objects of an :class:`Encoder`, from its tensors and external parameters."""

    def __init__(self, tensors: Mapping[str, Tensor], external: Mapping[str, Any]):
        self.tensors = tensors
        self.external = external
        self.memory = MemoryBudget(sum(tensor.nbytes for tensor in tensors.values()))
        self._parameters: dict[str, Any] = {}  # of the estimator that is being read

    def decode(self, written: Any) -> Any:
        """Return the object that was encoded."""
        if isinstance(written, list):
            return [self.decode(entry) for entry in written]
        if not isinstance(written, dict):
            return written
        [(tag, content)] = written.items()
        if tag in CODECS:
            plain = self.decode(content)
            CODECS[tag].check(plain)
            return CODECS[tag].read(plain)
        match tag:
            case "tensor":
                return self.tensors[content]
            case "handed":
                return self.external[content]
            case "dict":
                pairs = [(self.decode(key), self.decode(value)) for key, value in content]
                check_hashes([key for key, _ in pairs])
                return dict(pairs)
            case "array":
                return self._array(content)
            case "object":
                return self._object(*content)
            case "estimator":
                return self._estimator(*content)
            case "module":
                return self._module(*content)
        raise ValueError(f"{tag!r:.50} is no tag")

    def _entries(self, written: Mapping[str, Any], class_name: str = "") -> dict[str, Any]:
        return {
            RENAMED.get(f"{class_name}.{key}", key): self.decode(value)
            for key, value in written.items()
        }

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
        """Return the list of texts, given their joined bytes and their lengths."""
        content = self.tensors[joined].numpy().tobytes()
        sizes = self.tensors[lengths].numpy()
        if not ((sizes >= 0) & (sizes <= len(content))).all() or sizes.sum() > len(content):
            raise ValueError(f"lengths of texts must be those of {len(content)} bytes")
        self.memory.charge(0, 0, len(content))
        ends = sizes.cumsum()
        return [
            content[end - length : end].decode("utf-8", "surrogatepass")
            for end, length in zip(ends.tolist(), sizes.tolist(), strict=True)
        ]

    def _object(self, name: str, entries: Mapping[str, Any]) -> Any:
        name = RENAMED.get(name, name)
        kind, state = CLASSES[name], self._entries(entries, name)
        if "__setstate__" not in vars(kind):
            _check_complete(kind, state)
        return _fill(kind, state)

    def _estimator(self, name: str, entries: Mapping, fitted: Mapping) -> BaseEstimator:
        name = RENAMED.get(name, name)
        kind = CLASSES[name]
        parameters = UPGRADES[kind](self._entries(entries))
        defaults = _defaults(kind)
        if unknown := parameters.keys() - defaults:
            raise ValueError(f"{name} has no parameter {min(unknown)}")
        _check_complete(kind, parameters)
        for chosen in CHOICES.keys() & parameters:
            check_choice(chosen, parameters[chosen], CHOICES[chosen])
        # A file of an older version lacks the newer parameters, which get their defaults.
        before, self._parameters = self._parameters, defaults | parameters
        estimator = _fill(kind, self._parameters | self._entries(fitted, name))
        self._parameters = before
        return estimator

    def _module(self, name: str, state: Mapping[str, Any]) -> nn.Module:
        """Return the module that the estimator's parameter makes, with the file's weights."""
        parameter, make = MODULE_FACTORIES[name]
        try:
            module = make(self._parameters[parameter])
            module.load_state_dict(self._entries(state))
        except (RuntimeError, ValueError) as error:
            raise MismatchError(parameter, error) from error
        return module.requires_grad_(False).eval()


def _defaults(kind: type) -> dict[str, Any]:
    """Return the defaults of a class's parameters, or ``inspect.Parameter.empty``."""
    return {name: p.default for name, p in inspect.signature(kind).parameters.items()}


def _check_complete(kind: type, state: Mapping[str, Any]) -> None:
    needed = {name for name, value in _defaults(kind).items() if value is inspect.Parameter.empty}
    if missing := needed - state.keys():
        raise ValueError(f"a {kind.__name__} needs {min(missing)}")


def _fill(kind: type, state: dict[str, Any]) -> Any:
    """Return an object with a state, as pickle makes it, without calling its class."""
    made: Any = object.__new__(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        vars(made).update(state)
    check_object(made)
    return made
