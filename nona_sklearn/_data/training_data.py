"""What fit is given, checked once: rows, targets, groups, weights and names."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .._utils.validation import check_lengths
from .class_targets import ClassTargets
from .class_weight import Factors, find_factors, weigh_classes
from .groups import number_groups
from .names import Names, in_order_of, target_names_of, warn_of_other_order
from .notices import warn_of_classes, warn_of_copies
from .regression_targets import RegressionTargets
from .rows import Rows
from .sample_weight import RowSelection, check_sample_weight, multiply, normalize_mean
from .splits import WINDOW, Split, split_as_given, split_by_time
from .times import TimeKind, read_times

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
    times : float64 Tensor of shape (n,), optional
        A row is a neighbour of later ones only.
    offset : Tensor of the shape of `y`, optional
        A trend at them, of other rows, encoded: the network learns what it leaves.
    """

    X: Tensor | Rows
    y: Tensor
    log_prior: Tensor | None = None
    groups: Tensor | None = None
    times: Tensor | None = None
    offset: Tensor | None = None

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
    def _further(self) -> tuple[Tensor | None, ...]:
        return self.log_prior, self.groups, self.times, self.offset

    @property
    def residuals(self) -> Tensor:
        """What a network learns: the targets, minus the trend if there is one."""
        return self.y if self.offset is None else self.y - self.offset

    @property
    def weights(self) -> list[Tensor]:
        """The weights of the rows in a mean over them, (n,), if they differ."""
        return [] if self.log_prior is None else [normalize_mean(self.log_prior).float()]


class Source(Protocol):
    """A form of input: a table, or rows for a feature extractor."""

    def accept(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Give features a form whose rows can be selected, and find the targets among them."""

    def check(self, X: Any) -> Any:
        """Validate training features."""

    def fit(self, X: Any, y: np.ndarray | None) -> Tensor | Rows:
        """Turn validated training features into the input of a network.

        By encoded targets `y`, (n,) or (n, c), if they may be used.
        """

    def encode(self, X: Any) -> Tensor | Rows:
        """Validate other features, and turn them into the input of a network."""

    def levels(self, X: Any) -> np.ndarray | None:
        """Which level of each category rows have, (n, n_categories); None without categories."""


def further_values(
    targets: Targets, y: Any, n_rows: int, names: tuple[str, ...] | None, shape: tuple[int, ...]
) -> Tensor:
    """Values of further rows' targets, with the outputs of those of fit, in their order.

    Raises
    ------
    ValueError
        If they have other outputs, another number of rows, or are invalid.
    """
    values = targets.values(in_order_of(names, y))
    check_lengths(n_rows, len(values))
    if values.shape[1:] != shape:
        outputs = "".join(f", {n}" for n in shape) or ","
        raise ValueError(f"y must have the bank's shape (n{outputs}), got {tuple(values.shape)}")
    return values


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
    time : TimeKind, optional
        What their times are.
    group_names : ndarray of shape (n_groups,), optional
        Names of the groups, by their numbers.
    levels : int32 ndarray of shape (n, n_categories), optional
        Which level of each category they have.
    table : array, sparse matrix, DataFrame or Rows
        Their features as they were given.
    """

    sample: Sample
    values: Tensor
    selection: RowSelection
    names: Names
    class_factors: list[Factors] | None = None
    time: TimeKind | None = None
    group_names: np.ndarray | None = None
    levels: np.ndarray | None = None
    table: Any = None

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def log_prior(self) -> Tensor | None:
        """Logarithms of the rows' weights as neighbours, (n,): sample weights and age."""
        prior = self.selection.log_prior
        if self.time is None or self.sample.times is None:
            return prior
        return multiply(prior, self.time.log_prior(self.sample.times))

    @property
    def groups(self) -> np.ndarray | None:
        """Group of each row, numbered from 0, (n,)."""
        return None if self.sample.groups is None else self.sample.groups.numpy()

    @property
    def window(self) -> float:
        """How near in time rows are no neighbours in training."""
        times = self.sample.times
        return 0.0 if times is None else WINDOW * float(times.amax() - times.amin())

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
        times: Any = None,
        half_life: Any = None,
    ) -> TrainingData:
        """Check what fit is given, and fit the source and the targets to it.

        Raises
        ------
        ValueError
            If anything of it is invalid.
        """
        names = Names.of(X, y)
        warn_of_other_order(5, X=X, y=y, groups=groups, sample_weight=sample_weight, times=times)
        X, y = source.accept(X, y)
        given = y
        moments, time = None, None
        if times is not None:
            moments, time = read_times(times, X, _num_samples(X))
        elif half_life is not None:
            raise ValueError(f"half_life needs times, got {half_life!r} without")
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
        X, n_rows = source.check(X), _num_samples(X)
        selection = selection or RowSelection(n_rows, np.arange(n_rows))
        y = targets.check(y, selection.numbers) if labels is None else y
        targets.fit_checked(y, selection.weights, given)
        values = targets.to_values(y)
        encoded = targets.encode(values)
        # Of a later row, or of one of its group, a level's mean target would be known.
        related = groups is not None or times is not None
        table, X = X, source.fit(X, None if related else encoded.numpy())
        warn_of_copies(table, y)
        if isinstance(targets, ClassTargets):
            warn_of_classes(targets.classes)
        if time is not None and moments is not None:
            moments = moments[selection.numbers]
            time = time.fading(half_life, moments)
        group_names, numbers = None, None
        if groups is not None:
            group_names, numbers = number_groups(groups, selection)
        sample = Sample(
            X,
            encoded,
            selection.log_prior,
            numbers,
            None if moments is None else torch.from_numpy(moments),
        )
        names = names[selection.numbers]
        levels = source.levels(table)
        return cls(sample, values, selection, names, factors, time, group_names, levels, table)

    def splits(
        self,
        targets: Targets,
        n_networks: int,
        validation_fraction: Any,
        random_state: np.random.RandomState,
    ) -> list[Split]:
        """Training and validation rows of each network.

        `validation_fraction` is a share, the splits of a splitter of scikit-learn, or None, to set
        no rows aside.
        """
        if validation_fraction is None:
            return [Split(np.arange(len(self)))] * n_networks
        times = None if self.sample.times is None else self.sample.times.numpy()
        if not isinstance(validation_fraction, Real):
            splits, place = validation_fraction, self.selection.places
            return split_as_given(splits, place, self.groups, times, n_networks, random_state)
        share = float(validation_fraction)
        if times is not None:
            return split_by_time(times, n_networks, share, random_state, self.groups)
        return targets.split(self.values, self.groups, n_networks, share, random_state)
