"""Sample weights: how much a row counts, beforehand in every prediction and in means over rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing, check_array, indexable
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .._utils.validation import check_lengths
from .row_values import row_numbers


@dataclass(frozen=True)
class RowSelection:
    """The rows of positive weight among those given to fit.

    Parameters
    ----------
    n_given : int
        Number of rows given.
    numbers : int ndarray of shape (n,)
        Numbers of the selected rows.
    unit : float, default=1.0
        Weight of a row whose log prior is 0.
    log_prior : Tensor of shape (n,), optional
        Logarithms of the rows' weights in this unit; None: all are equal.
    """

    n_given: int
    numbers: np.ndarray
    unit: float = 1.0
    log_prior: Tensor | None = None

    @classmethod
    def from_sample_weight(cls, sample_weight: Any, n_given: int) -> RowSelection:
        """Select the rows of positive weight.

        Raises
        ------
        ValueError
            As :func:`check_sample_weight`, or if fewer than two of several rows would be left.
        """
        sample_weight = check_sample_weight(sample_weight, n_given)
        numbers = sample_weight.nonzero()[0]
        if len(numbers) < min(2, n_given):  # a table of one row has its own message
            raise ValueError(
                "sample_weight must be above zero for at least 2 rows, got "
                f"{len(numbers)} of {n_given}"
            )
        largest = sample_weight.max()  # an extreme is of one row, which may be removed
        unit = float(largest * (sample_weight[numbers] / largest).mean())
        return cls(n_given, numbers, unit, log_prior(sample_weight[numbers], unit))

    def select(self, rows: Any) -> Any:
        """Select features or targets, if there are any."""
        if rows is None or len(self.numbers) == self.n_given:
            return rows
        check_lengths(self.n_given, _num_samples(rows))
        return _safe_indexing(*indexable(rows), self.numbers)

    @property
    def places(self) -> np.ndarray:
        """Number of each row given among those selected, (n_given,); -1 of the others."""
        places = np.full(self.n_given, -1)
        places[self.numbers] = np.arange(len(self.numbers))
        return places

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the selected rows, (n,), with a mean of 1; None: all are equal."""
        return None if self.log_prior is None else normalize_mean(self.log_prior).numpy()


def check_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Validate weights of rows: float64, (n_rows,); ones for None.

    Raises
    ------
    ValueError
        If there are not as many, or one is no number, negative or not finite.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, sample_weight)
    try:
        weights = check_array(
            row_numbers("sample_weight", sample_weight),
            ensure_2d=False,
            dtype=np.float64,
            order="C",
            ensure_all_finite=False,  # looked at below, where the row is named
            ensure_min_samples=0,
            input_name="sample_weight",
        )
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise ValueError(f"sample_weight must hold numbers: {error}") from error
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight must have shape ({n_rows},), got {weights.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise ValueError(
            "sample_weight must be finite and not negative, got "
            f"{float(weights[wrong[0]])!r} in row {wrong[0]}"
        )
    return weights


def log_prior(
    sample_weight: np.ndarray, unit: float, device: torch.device | str = "cpu"
) -> Tensor | None:
    """Logarithms of weights in some unit, float32, (n,); None, if each of them is 1 unit."""
    logarithms = torch.from_numpy(np.log(sample_weight) - np.log(unit)).float()
    return logarithms.to(device) if logarithms.any() else None


def multiply(log_prior: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Multiply weights, (n,), given by their logarithms; None: all are 1."""
    if log_prior is None or other is None:
        return other if log_prior is None else log_prior
    return log_prior + other


def normalize_mean(log_prior: Tensor) -> Tensor:
    """Turn log priors (n,) into weights whose mean is 1, in float64."""
    return log_prior.double().softmax(dim=0) * len(log_prior)


def apply_weights(each: Tensor, weights: Tensor | None) -> Tensor:
    """Multiply what is averaged, (n, c), by weights of mean 1, (n,), if there are any."""
    return each if weights is None else each * weights[:, None]


def weighted_quantiles(values: np.ndarray, weights: Tensor | None) -> np.ndarray:
    """As many values (n,) that count alike: equally spaced quantiles of weighted ones."""
    if weights is None:
        return values
    order = values.argsort()
    reached = weights.cpu().numpy()[order].cumsum()
    levels = (np.arange(len(values)) + 0.5) / len(values) * reached[-1]
    return values[order][reached.searchsorted(levels)]
