"""NumPy's arrays: as tensors, of objects, and as rows of a sparse array."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor


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
