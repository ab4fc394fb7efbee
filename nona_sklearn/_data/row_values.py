"""Values beside a table, such as targets and groups: one for each row, or one in each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import narwhals as nw
import numpy as np

from .._utils.arrays import object_array
from .._utils.validation import are_missing, unmasked


def as_array(values: Any) -> np.ndarray:
    """An array of an array-like, where gaps and numbers beside strings stay what they are."""
    values = unmasked(values)
    array = np.asarray(values)
    converted = not (hasattr(values, "__array__") or hasattr(values, "__array_interface__"))
    return np.asarray(values, dtype=object) if converted and array.dtype.kind in "US" else array


def row_values(name: str, values: Any) -> np.ndarray:
    """An array of what a parameter gives for each row, where gaps are gaps.

    Raises
    ------
    ValueError
        If it is a structured array, or a column of structs.
    """
    series = _as_series(values)
    if series is not None and isinstance(series.dtype, nw.Struct):
        _refuse_several(name, "a column of structs", [each.name for each in series.dtype.fields])
    if series is not None and series.dtype in (nw.Categorical, nw.Enum):
        array = object_array(series.to_list())
        array[series.is_null().to_numpy()] = None
        return array
    array = as_array(values)
    refuse_fields(name, array)
    if array.dtype.kind == "T":
        return array.astype(object)
    if array.dtype.kind == "O" and not hasattr(values, "__array__"):
        for kind in (str, bytes):  # of a list of strings numpy makes an array of them
            if array.size and all(isinstance(value, kind) for value in array.flat):
                return array.astype(kind)
    return array


def row_numbers(name: str, values: Any) -> np.ndarray:
    """The same of what has to be numbers: gaps among objects are NaN."""
    array = row_values(name, values)
    if array.dtype.kind in "OUS":
        array = array.astype(object)
        array[are_missing(array)] = np.nan
    return array


def refuse_fields(name: str, array: np.ndarray) -> None:
    """Refuse a structured array, each of whose entries are several values."""
    if array.dtype.names is not None:
        _refuse_several(name, "a structured array", array.dtype.names)


def _refuse_several(name: str, kind: str, fields: Sequence[str]) -> NoReturn:
    raise ValueError(
        f"{name} must not be {kind}, got one with the fields {', '.join(map(repr, fields))}: "
        f"select a field, such as {name}[{fields[-1]!r}], or make a column of each by "
        f"pandas.DataFrame({name})"
    )


def orders_of(y: Any) -> list[tuple | None]:
    """The categories of each output of targets, if these have an order."""
    frame = nw.from_native(y, pass_through=True, allow_series=True)
    if isinstance(frame, nw.DataFrame):
        return [_order_of(series) for series in frame.iter_columns()]
    if getattr(y, "ordered", False) and hasattr(y, "categories"):  # pandas.Categorical
        return [tuple(y.categories)]
    if getattr(getattr(y, "type", None), "ordered", False) and hasattr(y, "dictionary"):
        return [tuple(y.dictionary.to_pylist())]  # pyarrow.DictionaryArray
    return [_order_of(frame) if isinstance(frame, nw.Series) else None]


def _order_of(series: nw.Series) -> tuple | None:
    if isinstance(series.dtype, nw.Enum):
        return tuple(series.dtype.categories)
    native = series.to_native()
    arrow = getattr(getattr(native, "dtype", None), "pyarrow_dtype", getattr(native, "type", None))
    if not getattr(arrow, "ordered", False):
        return None
    chunks = native.array.__arrow_array__() if hasattr(native, "array") else native
    return tuple(chunks.unify_dictionaries().chunk(0).dictionary.to_pylist())


def _as_series(values: Any) -> nw.Series | None:
    series = nw.from_native(values, pass_through=True, allow_series=True)
    return series if isinstance(series, nw.Series) else None
