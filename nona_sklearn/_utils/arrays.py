"""NumPy's arrays: as tensors, and of objects."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
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
