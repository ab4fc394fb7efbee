"""Objects as JSON and tensors, and back.

Only what is named here can come back: of the classes below an object is made without a call of
anything that a file says, and filled with data.
"""

from __future__ import annotations

import datetime
import decimal
import inspect
import math
import re
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder, RobustScaler, StandardScaler
from torch import Tensor, nn

from .._inference.bank import NeighborBank
from .._network.extractor import make_extractor
from .._network.state import from_data, is_known, to_data
from .._utils.arrays import as_tensor
from .._utils.storable import CLASSES, ESTIMATORS, FUNCTIONS, name_of, storable
from .._utils.validation import check_choice, is_whole
from ..similarity import SIMILARITIES
from ..weighting import make_weighting

for _kind in (
    *(RobustScaler, StandardScaler),
    *(SimpleImputer, MissingIndicator, OneHotEncoder, FrozenEstimator),
):
    storable(_kind)
DTYPES = torch.float32, torch.float64, torch.float16, torch.bfloat16
#: Who makes the modules that are a parameter's: their names in a network, and the parameter.
MODULE_FACTORIES: dict[str, tuple[str, Callable[[Any], nn.Module]]] = {
    "extractor": ("feature_extractor", make_extractor),
    "weighting": ("weighting", make_weighting),
}


#: Bytes of memory that arrays of objects and texts may take: so many, and so many times what is
#: in the file. A file that needs more is forged: it says that a text is wider than any in it.
ROOM, TIMES = 2**26, 256
#: Characters of a date, a duration or a time zone, whose reading takes the square of their number.
LONGEST = 100
#: Keys of a dict, or entries of a set, that may share a hash.
ALIKE = 100
DTYPE = re.compile(r"[<>=|][biufcOSUmMV][0-9]{0,10}(\[[0-9]{0,10}[A-Za-z]{1,2}\])?")


class UnknownError(TypeError):
    """An object of a class that is not named here."""


# -- values that JSON does not have ------------------------------------------------------------


def _pandas(name: str) -> Callable:
    def make(arguments: list) -> Any:
        import pandas as pd  # only who was given its objects has them

        return getattr(pd, name)(*arguments)

    return make


@lru_cache(maxsize=64)
def _zone(name: str) -> datetime.tzinfo:
    """The time zone that pandas has by a name; dateutil's are paths of files, which it opens."""
    if name.startswith("dateutil/"):
        raise ValueError(f"{name!r} is a path, and no time zone")
    return _pandas("Timestamp")(["1970-01-01"]).tz_localize("UTC").tz_convert(name).tz


def _write_moment(moment: Any) -> list:
    """A Timestamp as the time in UTC, its zone, and the unit that it counts in."""
    if moment.tz is None:
        return [moment.isoformat(), None, moment.unit]
    name = str(moment.tz)
    if str(_zone(name)) != name:
        raise ValueError(f"{name!r:.{LONGEST}} is no name of its time zone")
    return [moment.tz_convert("UTC").tz_localize(None).isoformat(), name, moment.unit]


def _read_moment(written: list) -> Any:
    text, name, unit = written
    moment = _pandas("Timestamp")([text]).as_unit(unit)
    return moment if name is None else moment.tz_localize("UTC").tz_convert(_zone(name))


def _read_random_state(state: dict) -> np.random.RandomState:
    position = state["state"]["pos"]
    if not is_whole(position, 0, 624):  # numpy reads there, whatever it is
        raise ValueError(f"a RandomState has 624 words, and no position {position!r:.50}")
    random_state = np.random.RandomState()
    random_state.set_state(state)
    return random_state


def _read_set(values: list) -> set:
    _check_hashes(values)
    return set(values)


def _write_set(values: set) -> list:
    _check_hashes(values)
    return list(values)


def _check_hashes(values: Iterable) -> None:
    """Refuse values that were chosen to share a hash: a dict compares each with all before it."""
    if max(Counter(map(hash, values)).values(), default=0) > ALIKE:
        raise ValueError(f"more than {ALIKE} keys of a dict, or entries of a set, share a hash")


@dataclass(frozen=True)
class Plain:
    """How values of a type are written in plainer ones, and read again.

    Parameters
    ----------
    write, read : callable
        Makes the plainer of a value, and the other way round.
    kinds : type, tuple of type, or list of them
        What the plainer is: of one of these types, or a list with a part of each.
    longest : float, default=LONGEST
        Most characters of a text.
    """

    write: Callable[[Any], Any]
    kinds: Any
    read: Callable[[Any], Any]
    longest: float = LONGEST

    def check(self, plain: Any) -> None:
        """Refuse what `write` does not make, before `read` takes it."""
        parts, kinds = (plain, self.kinds) if type(self.kinds) is list else ([plain], [self.kinds])
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise ValueError(f"{type(plain).__name__} is not of {len(kinds)} parts")
        for part, kind in zip(parts, kinds, strict=True):
            if not isinstance(part, kind):
                raise ValueError(f"a part is a {type(part).__name__}")
            if isinstance(part, str) and len(part) > self.longest:
                raise ValueError(f"a text has {len(part)} characters, more than {self.longest}")


#: By the name of a type. What takes time in proportion to a text's length takes any.
PLAIN: dict[str, Plain] = {
    "builtins.tuple": Plain(list, list, tuple),
    "builtins.set": Plain(_write_set, list, _read_set),
    "builtins.bytes": Plain(bytes.hex, str, bytes.fromhex, math.inf),
    "builtins.slice": Plain(
        lambda s: [s.start, s.stop, s.step],
        [object] * 3,
        lambda ends: slice(*ends),
        math.inf,
    ),
    "datetime.date": Plain(datetime.date.isoformat, str, datetime.date.fromisoformat),
    "datetime.datetime": Plain(
        lambda t: [t.replace(tzinfo=None).isoformat(), t.tzinfo, t.fold],
        [str, (datetime.tzinfo, type(None)), int],
        lambda t: datetime.datetime.fromisoformat(t[0]).replace(tzinfo=t[1], fold=t[2]),
    ),
    "datetime.timedelta": Plain(
        lambda t: [t.days, t.seconds, t.microseconds],
        [int] * 3,
        lambda parts: datetime.timedelta(*parts),
    ),
    "datetime.timezone": Plain(
        lambda zone: zone.utcoffset(None), datetime.timedelta, datetime.timezone
    ),
    "decimal.Decimal": Plain(str, str, decimal.Decimal, math.inf),
    "numpy.RandomState": Plain(
        lambda state: state.get_state(legacy=False), dict, _read_random_state
    ),
    "pandas.Interval": Plain(
        lambda i: [i.left, i.right, i.closed], [object, object, str], _pandas("Interval")
    ),
    "pandas.Period": Plain(lambda p: [str(p), p.freqstr], [str, str], _pandas("Period")),
    "pandas.Timedelta": Plain(lambda t: [t.isoformat()], [str], _pandas("Timedelta")),
    "pandas.Timestamp": Plain(_write_moment, [str, (str, type(None)), str], _read_moment),
    "pandas.NaTType": Plain(lambda _: ["NaT"], [str], _pandas("Timestamp")),
    "torch.device": Plain(str, str, torch.device),
    "torch.dtype": Plain(str, str, {str(dtype): dtype for dtype in DTYPES}.__getitem__),
    "zoneinfo.ZoneInfo": Plain(lambda z: str(zoneinfo.ZoneInfo(str(z))), str, zoneinfo.ZoneInfo),
}


# -- writing -----------------------------------------------------------------------------------


class Encoder:
    """Write objects as JSON, and their numbers as tensors beside it.

    What JSON has is written as itself; all else as a dict of one key, which says what it is.

    Attributes
    ----------
    tensors : dict of str to Tensor
        The tensors, by where they were found.
    handed : dict of str to str
        Parameters that nobody but the user can bring again, and what they were.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.handed: dict[str, str] = {}
        self._keys: dict[tuple, str] = {}
        self._memory: set[int] = set()  # where the tensors' lies
        self._room = ROOM  # for arrays of texts, as a Decoder will count it

    def encode(self, value: Any, path: str) -> Any:
        """Write a value that was found at a path.

        Raises
        ------
        UnknownError
            If it, or what it holds, is of a class that is not known here.
        """
        kind = type(value)
        name = name_of(kind)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is list:
            return [self.encode(each, f"{path}.{i}") for i, each in enumerate(value)]
        if kind is dict:
            with _refused(path):
                _check_hashes(value)
            return {
                "dict": [
                    [self.encode(key, path), self.encode(each, f"{path}.{key}")]
                    for key, each in value.items()
                ]
            }
        if kind is np.ndarray:
            return {"array": self._array(value, path)}
        if isinstance(value, np.generic) and _is_plain(value.dtype):
            plain = value.view(np.int64) if value.dtype.kind in "mM" else value
            return {"scalar": [value.dtype.str, self.encode(plain.item(), path)]}
        if isinstance(value, np.dtype) and value.kind in "biufOUmM":
            return {"dtype": value.str}
        if isinstance(value, type) and issubclass(value, np.generic):
            return {"type": np.dtype(value).str}
        if isinstance(value, nn.Module):
            return {"module": self._module(value, path)}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value, path)}
        if name in PLAIN:
            with _refused(path):
                plain = PLAIN[name].write(value)
                PLAIN[name].check(plain)
            return {name: self.encode(plain, path)}
        if kind in ESTIMATORS:
            return {"estimator": [name, *self._estimator(value, path)]}
        if CLASSES.get(name) is kind:
            return {"object": [name, self._entries(value.__getstate__(), path)]}
        if value in FUNCTIONS.values():
            return {"function": name_of(value)}
        raise UnknownError(f"{path} is a {kind.__module__}.{kind.__qualname__}")

    def _entries(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        return {key: self.encode(value, f"{path}.{key}") for key, value in values.items()}

    def _estimator(self, estimator: BaseEstimator, path: str) -> tuple[dict, dict]:
        """Parameters, of which some are the user's own, and what fit found."""
        state = estimator.__getstate__()
        names = estimator.get_params(deep=False).keys()
        parameters = {name: self._parameter(state[name], name, path) for name in names}
        rest = {key: value for key, value in state.items() if key not in names}
        return parameters, self._entries(rest, path)

    def _parameter(self, value: Any, name: str, path: str) -> Any:
        value = [*value] if _is_foreign_list(value) else value
        try:
            if isinstance(value, nn.Module):
                if not is_known(value):
                    raise UnknownError
                return {"known": self.encode(to_data(value), f"{path}.{name}")}
            return self.encode(value, f"{path}.{name}")
        except UnknownError:
            self.handed[name] = f"{' '.join(repr(value).split()):.100}"
            return {"handed": name}

    def _module(self, module: nn.Module, path: str) -> Any:
        """The weights of a module of the user's, who brings the rest again."""
        own_name = path.rsplit(".", 1)[-1]
        if own_name not in MODULE_FACTORIES:
            raise UnknownError(
                f"{path} is a {type(module).__module__}.{type(module).__qualname__}"
            )
        return [own_name, self._entries(module.state_dict(), path)]

    def _array(self, array: np.ndarray, path: str) -> dict[str, Any]:
        """Numbers as a tensor; strings as theirs; any other objects one by one."""
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
            self._charge_memory(array, sum(map(len, texts)), path)
            joined = torch.frombuffer(
                bytearray(b"".join(texts)) or bytearray(1), dtype=torch.uint8
            )
            lengths = torch.tensor([len(text) for text in texts], dtype=torch.int32)
            keys = self._tensor(joined, f"{path}.text"), self._tensor(lengths, f"{path}.lengths")
            return written | {"text": list(keys)}
        if kind == "S":
            self._charge_memory(array, sum(map(len, values)), path)
        return written | {"objects": self.encode(values, path)}

    def _charge_memory(self, array: np.ndarray, n_bytes: int, path: str) -> None:
        """Refuse texts, of so many bytes by themselves, that no Decoder would have room for."""
        stored, taken = n_bytes + 4 * array.size, _memory_of(array.size, array.itemsize, n_bytes)
        if self._room + TIMES * stored < taken:
            raise UnknownError(f"{path} is an array of texts that is nearly all padding")
        self._room += TIMES * stored - taken

    def _tensor(self, tensor: Tensor, path: str) -> str:
        """Keep a tensor, one that is met twice once: its key."""
        tensor = tensor.detach().cpu().contiguous()
        same = tensor.data_ptr(), tensor.shape, tensor.dtype
        if same not in self._keys:
            key = path if path not in self.tensors else f"{path} {len(self.tensors)}"
            memory = tensor.untyped_storage().data_ptr()
            tensor = tensor.clone() if memory in self._memory else tensor  # files hold no views
            self._memory.add(memory)
            self.tensors[key], self._keys[same] = tensor, key
        return self._keys[same]


@contextmanager
def _refused(path: str) -> Iterator[None]:
    """Name the place of a value that a Decoder would refuse."""
    try:
        yield
    except (ValueError, LookupError, OSError) as error:  # the last two: of time zones
        raise UnknownError(f"{path} cannot be read again: {error}") from error


def _memory_of(n_values: int, width: int, n_bytes: int = 0) -> int:
    """About how much an array takes, with Python's objects of which it is made."""
    return n_values * (64 + width) + 4 * n_bytes


def _is_foreign_list(value: Any) -> bool:
    """Whether a value is a range, or pandas's Index or Series: as a list it means the same."""
    of_pandas = type(value).__module__.split(".")[0] == "pandas"
    return isinstance(value, range) or (of_pandas and hasattr(value, "tolist"))


def _is_plain(dtype: np.dtype) -> bool:
    """Whether torch, or Python, has numbers, moments or texts of this type."""
    return dtype.kind in "biuSUmM" or (dtype.kind == "f" and dtype.itemsize <= 8)


# -- reading -----------------------------------------------------------------------------------


class Decoder:
    """Make objects of what an :class:`Encoder` wrote.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Its tensors.
    handed : mapping of str to object
        The parameters that the user brings.
    """

    def __init__(self, tensors: Mapping[str, Tensor], handed: Mapping[str, Any]):
        self.tensors, self.handed = tensors, handed
        self._parameters: dict[str, Any] = {}  # of the estimator that is being read
        self._room = ROOM + TIMES * sum(tensor.nbytes for tensor in tensors.values())

    def decode(self, written: Any) -> Any:
        """Make the value that was written."""
        if isinstance(written, list):
            return [self.decode(each) for each in written]
        if not isinstance(written, dict):
            return written
        [(what, of)] = written.items()
        if what in PLAIN:
            plain = self.decode(of)
            PLAIN[what].check(plain)
            return PLAIN[what].read(plain)
        return getattr(self, READERS[what])(of)

    def _entries(self, written: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.decode(value) for key, value in written.items()}

    def _dict(self, pairs: list) -> dict:
        decoded = [(self.decode(key), self.decode(value)) for key, value in pairs]
        _check_hashes(key for key, _ in decoded)
        return dict(decoded)

    def _scalar(self, written: list) -> np.generic:
        name, of = written
        dtype, plain = _dtype(name), self.decode(of)
        if dtype.kind not in "biufSUmM" or not isinstance(plain, bool | int | float | str | bytes):
            raise ValueError(f"{type(plain).__name__} is no scalar of {name}")
        if dtype.kind in "SU":  # as wide as they are, whatever the file says
            return dtype.type(plain)
        stored_as = np.int64 if dtype.kind in "mM" else dtype
        scalar: Any = np.array(plain, stored_as).view(dtype)  # numpy 2.0 says it is an array
        return scalar[()]

    def _array(self, written: dict[str, Any]) -> np.ndarray:
        dtype, shape = _dtype(written["dtype"]), written["shape"]
        if "numbers" in written:
            array = self.tensors[written["numbers"]].numpy().reshape(shape)
            if dtype.kind != "O":
                return array.view(dtype)
            self._charge_memory(array.size, 8)
            return array.astype(object)
        values = self._texts(*written["text"]) if "text" in written else written["objects"]
        if not isinstance(values, list) or (values and dtype.kind not in "OSU"):
            raise ValueError(f"{type(values).__name__} is no array of {dtype}")
        self._charge_memory(len(values), dtype.itemsize)
        array = np.empty(len(values), dtype)
        array[:] = values if "text" in written else self.decode(values)
        return array.reshape(shape)

    def _texts(self, joined: str, lengths: str) -> list[str]:
        """Cut the texts out of one, by their lengths."""
        whole, sizes = self.tensors[joined].numpy().tobytes(), self.tensors[lengths].numpy()
        if not ((sizes >= 0) & (sizes <= len(whole))).all() or sizes.sum() > len(whole):
            raise ValueError(f"lengths of texts must be those of {len(whole)} bytes")
        self._charge_memory(0, 0, len(whole))
        ends = sizes.cumsum()
        return [
            whole[end - length : end].decode("utf-8", "surrogatepass")
            for end, length in zip(ends.tolist(), sizes.tolist(), strict=True)
        ]

    def _charge_memory(self, n_values: int, width: int, n_bytes: int = 0) -> None:
        """Refuse an array before it takes more memory than any that was written."""
        self._room -= _memory_of(n_values, width, n_bytes)
        if self._room < 0:
            raise ValueError(f"arrays of texts and objects need more than {TIMES} times the file")

    def _dtype(self, written: str) -> np.dtype:
        return _dtype(written)

    def _type(self, written: str) -> type:
        return _dtype(written).type

    def _tensor(self, key: str) -> Tensor:
        return self.tensors[key]

    def _function(self, name: str) -> Callable:
        return FUNCTIONS[name]

    def _object(self, written: list) -> Any:
        name, entries = written
        kind, state = CLASSES[name], self._entries(entries)
        if kind is not NeighborBank:  # which has a state of its own, and checks it
            _check_complete(kind, state)
        return _fill(kind, state)

    def _estimator(self, written: list) -> BaseEstimator:
        name, parameters, fitted = written
        kind = CLASSES[name]
        defaults = _defaults(kind)
        if unknown := parameters.keys() - defaults:
            raise ValueError(f"{name} has no parameter {min(unknown)}")
        _check_complete(kind, parameters)
        # Of a file of an older version, which lacks what has come since.
        before, self._parameters = self._parameters, defaults | self._entries(parameters)
        if "similarity" in parameters:
            check_choice("similarity", self._parameters["similarity"], SIMILARITIES)
        estimator = _fill(kind, self._parameters | self._entries(fitted))
        self._parameters = before
        return estimator

    def _known(self, written: dict) -> nn.Module:
        return from_data(self.decode(written))

    def _handed(self, name: str) -> Any:
        return self.handed[name]

    def _module(self, written: list) -> nn.Module:
        own_name, state = written
        parameter, make = MODULE_FACTORIES[own_name]
        try:
            module = make(self._parameters[parameter])
            module.load_state_dict(self._entries(state))
        except (RuntimeError, ValueError) as error:
            raise MismatchError(parameter, error) from error
        return module.requires_grad_(False).eval()


class MismatchError(ValueError):
    """A parameter that the user brings is not what the file needs: its name, and the reason."""


READERS = {
    what: f"_{what}"
    for what in (
        *("dict", "scalar", "array", "dtype", "type", "tensor", "function"),
        *("object", "estimator", "known", "module", "handed"),
    )
}


def _dtype(name: str) -> np.dtype:
    if not DTYPE.fullmatch(name):
        raise ValueError(f"{name!r:.50} is no type of an array")
    return np.dtype(name)


def _defaults(kind: type) -> dict[str, Any]:
    """What a class takes for its parameters, ``inspect.Parameter.empty`` for those it needs."""
    return {name: p.default for name, p in inspect.signature(kind).parameters.items()}


def _check_complete(kind: type, state: Mapping[str, Any]) -> None:
    needed = {name for name, value in _defaults(kind).items() if value is inspect.Parameter.empty}
    if lacking := needed - state.keys():
        raise ValueError(f"a {kind.__name__} needs {min(lacking)}")


def _fill(kind: type, state: dict[str, Any]) -> Any:
    """An object with a state, as pickle makes it: its class is not called."""
    new: Any = kind.__new__
    made = new(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        vars(made).update(state)
    return made
