"""The policy of precision: which numbers are in float32, and which in float64.

======================================================  =======================================
encoded table; NumPy's arrays                           float64
scaled features, steps of training                      float32, `stored`
embedding by a fitted network (`freeze`)                float64; an extractor float32
stored embeddings, those of queries, logs of weights    float32, `stored`
keys that choose candidates (`KEYS` of an index)        float32, with a bound of their rounding
`exact_keys` that sort them, similarities of all rows   float64, `exact`, rounded to float32
targets, weights, means, trends                         float64, `exact`
======================================================  =======================================

What is stored for every row is in float32. What adds up numbers or decides an order is in float64,
so that no result depends on the batch, the threads or the order of the rows. This module alone
names the two types, beside the formats of files and graphs.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

STORED, EXACT = torch.float32, torch.float64


def stored(numbers: Tensor) -> Tensor:
    """Return numbers in the type in which rows are stored and compared."""
    return numbers.to(STORED)


def exact(numbers: Tensor) -> Tensor:
    """Return numbers in the type in which they are added up and sorted."""
    return numbers.to(EXACT)


def rounding_of_difference(numbers: Any, most: float) -> Any:
    """Return by how much differences from float64 numbers, of up to `most`, may be rounded."""
    return 4 * sys.float_info.epsilon * (abs(numbers) + most)
