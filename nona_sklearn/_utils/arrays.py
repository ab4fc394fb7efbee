"""NumPy's arrays as tensors."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor of an array's memory, which may be mapped and read-only: don't write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(array)
