"""What fit is given, checked once: rows, targets, groups, weights and names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .._utils.validation import check_lengths, is_missing, unmasked
from .class_targets import ClassTargets
from .class_weight import Factors, find_factors, weigh_classes
from .names import Names, target_names_of
from .regression_targets import RegressionTargets
from .rows import Rows
from .sample_weight import RowSelection, check_sample_weight, normalize_mean
from .splits import Split

Targets = RegressionTargets | ClassTargets


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows that a network trains on, or is validated by.

    Parameters
    ----------
    X : Tensor of shape (n, n_features), or Rows
        Their features.
    y : Tensor of shape (n,) or (n, n_outputs)
        Their encoded targets.
    log_prior : Tensor of shape (n,), optional
        Logarithms of their sample weights; None: all are equal.
    groups : int Tensor of shape (n,), optional
        Rows of a group are no neighbours of each other in training.
    """

    X: Tensor | Rows
    y: Tensor
    log_prior: Tensor | None = None
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Sample:
        """Select some of the rows."""
        further = (None if each is None else each[rows] for each in self._further)
        return Sample(self.X[rows], self.y[rows], *further)

    def to(self, device: torch.device) -> Sample:
        """Move the rows to a device."""
        further = (None if each is None else each.to(device) for each in self._further)
        return Sample(self.X.to(device), self.y.to(device), *further)

    @property
    def _further(self) -> tuple[Tensor | None, Tensor | None]:
        return self.log_prior, self.groups

    @property
    def weights(self) -> list[Tensor]:
        """The weights of the rows in a mean over them, (n,), if they differ."""
        return [] if self.log_prior is None else [normalize_mean(self.log_prior).float()]


class Source(Protocol):
    """A form of input: a table, or rows for a feature extractor."""

    def accept(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Give features a form whose rows can be selected, and find the targets among them."""

    def fit(self, X: Any) -> Tensor | Rows:
        """Validate training features, and turn them into the input of a network."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The rows given to fit whose weight is positive.

    Parameters
    ----------
    sample : Sample
        The input of the networks.
    values : Tensor of shape (n,) or (n, n_outputs)
        Targets as the bank stores them, float64.
    selection : RowSelection
        Which of the rows given these are, and their weights.
    names : Names
        Names of rows and outputs.
    class_factors : list of dict, optional
        The factor of each class of each output in the weights.
    """

    sample: Sample
    values: Tensor
    selection: RowSelection
    names: Names
    class_factors: list[Factors] | None = None

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def groups(self) -> np.ndarray | None:
        """Group of each row, numbered from 0, (n,)."""
        return None if self.sample.groups is None else self.sample.groups.numpy()

    @classmethod
    def take(
        cls,
        source: Source,
        targets: Targets,
        X: Any,
        y: Any,
        groups: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
    ) -> TrainingData:
        """Check what fit is given, and fit the source and the targets to it.

        Raises
        ------
        ValueError
            If anything of it is invalid.
        """
        names = Names.of(X, y)
        X, y = source.accept(X, y)
        labels, factors, selection = None, None, None
        if class_weight is not None:
            labels = targets.check(y)
            check_lengths(_num_samples(X), len(labels))
            weights = check_sample_weight(sample_weight, len(labels))
            factors = find_factors(class_weight, labels, weights, target_names_of(y))
            sample_weight = weigh_classes(factors, labels, weights)
        if sample_weight is not None:
            selection = RowSelection.from_sample_weight(sample_weight, _num_samples(X))
            X, y = selection.select(X), selection.select(y if labels is None else labels)
        X = source.fit(X)
        selection = selection or RowSelection(len(X), np.arange(len(X)))
        y = targets.check(y, selection.numbers) if labels is None else y
        targets.fit_checked(y, selection.weights)
        values = targets.to_values(y)
        sample = Sample(
            X, targets.encode(values), selection.log_prior, check_groups(groups, selection)
        )
        return cls(sample, values, selection, names[selection.numbers], factors)

    def splits(
        self,
        targets: Targets,
        n_networks: int,
        validation_fraction: float | None,
        random_state: np.random.RandomState,
    ) -> list[Split]:
        """Training and validation rows of each network; None sets no rows aside."""
        if validation_fraction is None:
            return [(np.arange(len(self)), None)] * n_networks
        return targets.split(
            self.values, self.groups, n_networks, validation_fraction, random_state
        )


def check_groups(groups: Any, selection: RowSelection) -> Tensor | None:
    """Number the groups of the selected rows from 0, (n,); None without groups."""
    if groups is None:
        return None
    groups, n_rows = np.asarray(unmasked(groups)), selection.n_given
    if groups.ndim == 2 and groups.shape[1] == 1:
        groups = groups[:, 0]
    if groups.ndim != 1:
        raise ValueError(f"groups must have shape ({n_rows},), got {groups.shape}")
    if len(groups) != n_rows:
        raise ValueError(f"groups must have a value for each of {n_rows} rows, got {len(groups)}")
    missing = [row for row, group in enumerate(groups) if is_missing(group)]
    if missing:
        row = missing[0]
        raise ValueError(f"groups must not be missing, got {groups[row]} in row {row}")
    try:
        names, numbers = np.unique(groups[selection.numbers], return_inverse=True)
    except TypeError:  # they cannot be sorted
        kinds = ", ".join(sorted({type(group).__name__ for group in groups}))
        raise ValueError(f"groups must be of one kind, got {kinds}") from None
    if len(names) < 2:
        raise ValueError(f"groups must hold at least 2 different ones, all rows are in {names[0]}")
    return torch.from_numpy(numbers)
