"""Conversions of arrays to tensors, objects, sparse rows and tables."""

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
    """Return a tensor that shares an array's memory, which may be read-only: never write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(array)


def object_array(values: Sequence[Any]) -> np.ndarray:
    """Return values as an array of objects, (n,), even if the values are sequences."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def sparse_rows(
    values: np.ndarray, columns: np.ndarray, kept: np.ndarray, n_columns: int
) -> csr_array:
    """Return the kept values (q, m) as a sparse array (q, n_columns), in their order.

    `columns` has shape (q, m) or (m,). Indices have 32 bits if possible, as most of scikit-learn
    requires.
    """
    starts = np.concatenate([[0], kept.sum(axis=1).cumsum()])
    columns = np.broadcast_to(columns, kept.shape)[kept]
    index = np.int32 if max(starts[-1], n_columns) < 2**31 else np.int64
    parts = values[kept], columns.astype(index), starts.astype(index)
    return csr_array(parts, shape=(len(kept), n_columns))


EMBED_BLOCK = 4096  # rows embedded at a time, to bound the memory of wide hidden layers


def spans_of(sizes: Sequence[int]) -> list[slice]:
    """Return consecutive slices of the given sizes."""
    return [slice(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]


def spans(n: int, size: int) -> list[slice]:
    """Return consecutive slices of at most `size` rows that cover n rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def table(columns: dict[str, np.ndarray]) -> Any:
    """Return named columns as a DataFrame or, without pandas, as a Bunch of arrays.

    Columns of objects are converted to a type, such as datetime64, unless they have gaps: integers
    with gaps would become floats, which do not represent all integers.
    """
    try:
        import pandas as pd
    except ImportError:
        return Bunch(**columns)
    frame = pd.DataFrame(columns)
    complete = frame.loc[:, frame.notna().all()]
    return frame.assign(**complete.infer_objects())


MAX_WIDENED = 64  # most features; more are usually an embedding, whose axes have no meaning


def real_valued(X: Tensor) -> list[int]:
    """Return positions of the features of X, (n, n_features), with more than two values."""
    return [j for j, column in enumerate(X.T) if len(column.unique()) > 2]
