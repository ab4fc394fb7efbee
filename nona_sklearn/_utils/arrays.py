"""Arrays of numpy as tensors, and the other way round."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor of an array's memory. A mapped one may be read-only: nobody may write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(array)
