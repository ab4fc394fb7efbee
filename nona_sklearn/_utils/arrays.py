"""NumPy's arrays: as tensors, of objects, and as rows of a sparse array."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.utils import Bunch
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

    Table: TypeAlias = pd.DataFrame | Bunch


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor of an array's memory, which may be mapped and read-only: don't write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(array)


def object_array(values: Sequence[Any]) -> np.ndarray:
    """Values as objects, (n,), whatever they are: sequences too."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def sparse_rows(
    values: np.ndarray, columns: np.ndarray, kept: np.ndarray, n_columns: int
) -> csr_array:
    """A sparse array (q, n_columns) of those values (q, m) that are kept, in their order.

    `columns`, (q, m) or (m,), are their columns. The indices have 32 bits where these suffice,
    since most of scikit-learn accepts no others.
    """
    starts = np.concatenate([[0], kept.sum(axis=1).cumsum()])
    columns = np.broadcast_to(columns, kept.shape)[kept]
    index = np.int32 if max(starts[-1], n_columns) < 2**31 else np.int64
    parts = values[kept], columns.astype(index), starts.astype(index)
    return csr_array(parts, shape=(len(kept), n_columns))


EMBED_BLOCK = 4096  # rows embedded at a time: bounds the memory of wide hidden layers


def spans_of(sizes: Sequence[int]) -> list[slice]:
    """Consecutive slices of the given sizes."""
    return [slice(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]


def spans(n: int, size: int) -> list[slice]:
    """Consecutive slices of at most `size` rows that cover n rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def table(columns: dict[str, np.ndarray]) -> Any:
    """Make a table of named columns: a DataFrame or, without pandas, a Bunch of arrays.

    A column of objects gets their type, such as datetime64, unless it has gaps: integers would
    become floats, which do not represent all of them.
    """
    try:
        import pandas as pd
    except ImportError:
        return Bunch(**columns)
    frame = pd.DataFrame(columns)
    complete = frame.loc[:, frame.notna().all()]
    return frame.assign(**complete.infer_objects())


MAX_WIDENED = 64  # features: more are an embedding as a rule, whose axes have no meaning


def real_valued(X: Tensor) -> list[int]:
    """Positions of the features of more than two values, among those of rows (n, n_features)."""
    return [j for j, column in enumerate(X.T) if len(column.unique()) > 2]
