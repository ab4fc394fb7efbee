"""A validation set that fit is given: rows that validate each network, and train none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .class_targets import ClassTargets
from .class_weight import Factors, weigh_values
from .names import warn_of_other_order
from .sample_weight import RowSelection, check_sample_weight, log_prior
from .times import read_query_times
from .training_data import Sample, Source, Targets, TrainingData, further_values


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Features and targets as they are given, without rows of weight 0.

    Parameters
    ----------
    X, y : object
        Features and targets.
    sample_weight : ndarray of shape (n_valid,), optional
        Weights of the rows; None: all are equal.
    joins : bool, default=False
        Whether the rows join the bank.
    """

    X: Any
    y: Any
    sample_weight: np.ndarray | None = None
    joins: bool = False

    @classmethod
    def take(
        cls, source: Source, X: Any, y: Any, sample_weight: Any, joins: bool
    ) -> ValidationSet | None:
        """Take what fit is given; None if that is nothing.

        Raises
        ------
        ValueError
            If a part is missing, or the weights are invalid.
        """
        if X is None:
            others = {"y_val": y, "sample_weight_val": sample_weight, "add_validation": joins}
            for name, value in others.items():
                if value is not None and value is not False:
                    raise ValueError(f"X_val must be given with {name}, got None")
            return None
        warn_of_other_order(5, X_val=X, y_val=y, sample_weight_val=sample_weight)
        with of_validation_set():
            _, truth = source.accept(X, y)  # which may be those of a torch Dataset
            if truth is None:
                raise ValueError("y_val must be given with X_val, got None")
            if sample_weight is None:
                return cls(X, truth, None, joins)
            weights = check_sample_weight(sample_weight, _num_samples(X))
            if not weights.any():
                raise ValueError("sample_weight must be above 0 for at least 1 row, got none")
            selection = RowSelection(len(weights), weights.nonzero()[0])
            kept = weights[selection.numbers]
            return cls(selection.select(X), selection.select(truth), kept, joins)

    def weights(
        self, targets: Targets, values: Tensor, factors: list[Factors] | None
    ) -> Tensor | None:
        """Weights of the rows with a mean of 1, (n_valid,); None: all are equal.

        With `factors` of their classes.
        """
        if self.sample_weight is None and factors is None:
            return None
        weights = self._weigh(targets, values, factors)
        return torch.from_numpy(weights / weights.mean()).to(values.device)

    def encode(
        self, source: Source, targets: Targets, data: TrainingData, feature_names: Sequence[str]
    ) -> Sample:
        """Encode the rows as those of training were, to which source and targets are fitted.

        Raises
        ------
        ValueError
            If features, targets or times are invalid, or have other columns than those of
            training.
        """
        with of_validation_set():
            X = source.encode(self.X)
            names, shape = data.names.targets, data.values.shape[1:]
            values = further_values(targets, self.y, len(X), names, shape)
            times = None
            if data.time is not None and data.time.column is not None:
                times = torch.from_numpy(read_query_times(data.time, self.X, feature_names))
        weights = self._weigh(targets, values, data.class_factors)
        prior = log_prior(weights, float(weights.max()))
        return Sample(X, targets.encode(values), prior, times=times)

    def _weigh(
        self, targets: Targets, values: Tensor, factors: list[Factors] | None
    ) -> np.ndarray:
        """Weights of the rows, with factors of their classes, as they are given."""
        weights = check_sample_weight(self.sample_weight, len(values))
        if factors is None or not isinstance(targets, ClassTargets):
            return weights
        return weigh_values(factors, targets, values, weights)


@contextmanager
def of_validation_set() -> Iterator[None]:
    """Name the validation set in errors about X, y or their weights."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"X_val, y_val: {error}") from error
