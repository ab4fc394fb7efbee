"""Values that JSON lacks, written as values that it has."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import zoneinfo
from collections import Counter
from collections.abc import Collection
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder, RobustScaler, StandardScaler, TargetEncoder

from .._utils.storable import CODECS, FUNCTIONS, MAX_CHARACTERS, Codec, name_of, storable
from .compiled import check_positions

MAX_COLLISIONS = 100  # keys of a dict, or entries of a set, that may share a hash
DTYPE = re.compile(r"[<>=|][biufcOSUmMV][0-9]{0,10}(\[[0-9]{0,10}[A-Za-z]{1,2}\])?")
TORCH_DTYPES = torch.float32, torch.float64, torch.float16, torch.bfloat16

for _kind in (
    *(RobustScaler, StandardScaler, SimpleImputer, MissingIndicator),
    *(OneHotEncoder, TargetEncoder),
    *(CountVectorizer, TfidfVectorizer, TfidfTransformer, TruncatedSVD),  # of texts
):
    storable(_kind)
storable(FrozenEstimator)


def check_hashes(values: Collection) -> Collection:
    """Refuse values that were chosen to share a hash: a dict compares each with all before it."""
    if max(Counter(map(hash, values)).values(), default=0) > MAX_COLLISIONS:
        raise ValueError(
            f"more than {MAX_COLLISIONS} keys of a dict, or entries of a set, share a hash"
        )
    return values


# -- numpy -------------------------------------------------------------------------------------


def read_dtype(name: str) -> np.dtype:
    """Make a dtype of its name: one type, not a structure of several."""
    if not DTYPE.fullmatch(name):
        raise ValueError(f"{name!r:.50} is no type of an array")
    return np.dtype(name)


def is_plain(dtype: np.dtype) -> bool:
    """Whether torch, or Python, has numbers, moments or texts of this type."""
    return dtype.kind in "biuSUmM" or (dtype.kind == "f" and dtype.itemsize <= 8)


def _read_scalar(written: list) -> np.generic:
    name, plain = written
    dtype = read_dtype(name)
    if dtype.kind not in "biufSUmM" or not isinstance(plain, bool | int | float | str | bytes):
        raise ValueError(f"{type(plain).__name__} is no scalar of {name}")
    if dtype.kind in "SU":  # as wide as the text, whatever the file declares
        return dtype.type(plain)
    stored_as = np.int64 if dtype.kind in "mM" else dtype
    scalar: Any = np.array(plain, stored_as).view(dtype)  # numpy 2.0 types it as an array
    return scalar[()]


def _read_random_state(state: dict) -> np.random.RandomState:
    check_positions(state)
    random_state = np.random.RandomState()
    random_state.set_state(state)
    return random_state


# -- pandas ------------------------------------------------------------------------------------


def _pandas(name: str, arguments: list) -> Any:
    import pandas as pd  # only where a value is one of pandas's

    return getattr(pd, name)(*arguments)


@lru_cache(maxsize=64)
def _zone(name: str) -> datetime.tzinfo:
    """The time zone that pandas has by a name; dateutil's are paths of files, which it opens."""
    if name.startswith("dateutil/"):
        raise ValueError(f"{name!r} is a path, and no time zone")
    return _pandas("Timestamp", ["1970-01-01"]).tz_localize("UTC").tz_convert(name).tz


def _write_moment(moment: Any) -> list:
    """A Timestamp as the time in UTC, its zone, and the unit that it counts in."""
    if moment.tz is None:
        return [moment.isoformat(), None, moment.unit]
    name = str(moment.tz)
    if str(_zone(name)) != name:
        raise ValueError(f"{name!r:.{MAX_CHARACTERS}} is no name of its time zone")
    return [moment.tz_convert("UTC").tz_localize(None).isoformat(), name, moment.unit]


def _read_moment(written: list) -> Any:
    text, name, unit = written
    moment = _pandas("Timestamp", [text]).as_unit(unit)
    return moment if name is None else moment.tz_localize("UTC").tz_convert(_zone(name))


# -- all: those above, and what takes a line ---------------------------------------------------

# A text may have any length where reading it takes time in proportion.
CODECS |= {
    "builtins.tuple": Codec(list, list, tuple),
    "builtins.set": Codec(lambda s: [*check_hashes(s)], list, lambda s: {*check_hashes(s)}),
    "builtins.bytes": Codec(bytes.hex, str, bytes.fromhex, math.inf),
    "builtins.slice": Codec(
        lambda s: [s.start, s.stop, s.step], [object] * 3, lambda ends: slice(*ends), math.inf
    ),
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
    "decimal.Decimal": Codec(str, str, decimal.Decimal, math.inf),
    "numpy.RandomState": Codec(
        lambda state: state.get_state(legacy=False), dict, _read_random_state
    ),
    "pandas.Interval": Codec(
        lambda i: [i.left, i.right, i.closed], [object, object, str], partial(_pandas, "Interval")
    ),
    "pandas.Period": Codec(lambda p: [str(p), p.freqstr], [str, str], partial(_pandas, "Period")),
    "pandas.Timedelta": Codec(lambda t: [t.isoformat()], [str], partial(_pandas, "Timedelta")),
    "pandas.Timestamp": Codec(_write_moment, [str, (str, type(None)), str], _read_moment),
    "pandas.NaTType": Codec(lambda _: ["NaT"], [str], partial(_pandas, "Timestamp")),
    "torch.device": Codec(str, str, torch.device),
    "torch.dtype": Codec(str, str, {str(dtype): dtype for dtype in TORCH_DTYPES}.__getitem__),
    "zoneinfo.ZoneInfo": Codec(lambda z: str(zoneinfo.ZoneInfo(str(z))), str, zoneinfo.ZoneInfo),
    "scalar": Codec(
        lambda s: [s.dtype.str, (s.view(np.int64) if s.dtype.kind in "mM" else s).item()],
        [str, object],
        _read_scalar,
        math.inf,
        lambda value: isinstance(value, np.generic) and is_plain(value.dtype),
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
