"""Training rows and validation set, checked once in fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .._utils.tables import columns_at, is_frame, rows_of, target_names_of, warn_of_other_order
from .._utils.validation import check_lengths, naming
from .columns import Column, read_columns
from .row_values import (
    RowSelection,
    check_groups,
    check_sample_weight,
    log_prior,
    multiply,
    number_groups,
)
from .rule_columns import RuleColumns, StoredRule
from .sample import Rows, Sample
from .splits import WINDOW, Split, split_as_given, split_by_time
from .tables import Names, in_order_of
from .targets import (
    ClassTargets,
    Factors,
    RegressionTargets,
    find_factors,
    warn_of_classes,
    weigh_classes,
    weigh_values,
)
from .times import TimeKind, read_query_times, read_times

if TYPE_CHECKING:
    from .source import Source

Targets = RegressionTargets | ClassTargets

VALIDATION_SET = "X_val, y_val"  # in errors
CALLER_OF_FIT = 5  # stack level of warnings in take()
N_FIRST = 20  # rows compared with y first; only columns equal to y are compared in full


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Hold the rows of positive weight among the rows given to fit."""

    sample: Sample  # the input of the networks
    values: Tensor  # (n,) or (n, n_outputs), float64, targets as the bank stores them
    selection: RowSelection  # indices of the rows among the given rows, and weights
    names: Names  # names of rows and outputs
    class_factors: list[Factors] | None = None  # class factors of the weights, by output
    time: TimeKind | None = None  # kind of the times
    group_names: np.ndarray | None = None  # (n_groups,), ordered by group code
    levels: np.ndarray | None = None  # int32 (n, n_categories), codes of the levels
    table: Any = None  # features as given: array, sparse matrix, DataFrame or Rows
    rule: StoredRule | None = None  # of rows that may be neighbours; None: all may
    ignored: Sequence[int] = ()  # numbers of the columns of the table that are no features
    #: Codes (n,) of spatial blocks, if fit was given no groups. A block is held out together, but
    #: its rows are neighbours in training, which new places need as well.
    blocks: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def log_prior(self) -> Tensor | None:
        """Return log weights of the rows as neighbours, (n,), from sample weights and age."""
        prior = self.selection.log_prior
        if self.time is None or self.sample.times is None:
            return prior
        return multiply(prior, self.time.log_prior(self.sample.times))

    @property
    def groups(self) -> np.ndarray | None:
        """Return codes of the groups, or spatial blocks, that are held out together, (n,)."""
        return self.blocks if self.sample.groups is None else self.sample.groups.numpy()

    @property
    def window(self) -> float:
        """Return the difference in time within which rows are no neighbours in training."""
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
        eligibility: Any = None,
    ) -> TrainingData:
        """Return the checked training rows, to which source and targets are fitted."""
        names = Names.of(X, y)
        warn_of_other_order(
            CALLER_OF_FIT, X=X, y=y, groups=groups, sample_weight=sample_weight, times=times
        )
        X, y = source.accept(X, y)
        given_y = y

        given_times, time = None, None
        if times is not None:
            given_times, time = read_times(times, X, _num_samples(X))
        elif half_life is not None:
            raise ValueError(f"half_life needs times, got {half_life!r} without")

        class_factors = None
        if class_weight is not None:
            y = targets.check(y)
            check_lengths(_num_samples(X), len(y))
            weights = check_sample_weight(sample_weight, len(y))
            class_factors = find_factors(class_weight, y, weights, target_names_of(given_y))
            sample_weight = weigh_classes(class_factors, y, weights)

        selection = None
        if sample_weight is not None:
            weights = check_sample_weight(sample_weight, _num_samples(X))
            selection = RowSelection.of_positive(weights)
            X, y = selection.select(X), selection.select(y)
        table = source.check(X)
        if selection is None:
            n_rows = _num_samples(table)
            selection = RowSelection(n_rows, np.arange(n_rows))

        if class_weight is None:  # otherwise y is checked already
            y = targets.check(y, selection.indices)
        targets.fit_checked(y, selection.weights, given_y)
        values = targets.to_values(y)
        encoded_y = targets.encode(values)

        # With groups or times, target encoding would leak targets of related rows, so it is off.
        related = groups is not None or times is not None or source.has_places
        encoded_X = source.fit(table, None if related else encoded_y.numpy())
        levels = source.levels(table)
        _warn_of_copies(table, y, source.ignored)
        if isinstance(targets, ClassTargets):
            warn_of_classes(targets.classes, CALLER_OF_FIT)

        group_names, group_codes, block_codes = None, None, None
        if groups is not None:
            groups = check_groups(groups, selection.n_given)[selection.indices]
            group_names, codes = number_groups(groups)
            group_codes = torch.from_numpy(codes)
        elif (blocks := source.fit_blocks(table)) is not None:
            group_names, block_codes = np.unique(blocks, return_inverse=True)
            if len(group_names) < 2:
                raise ValueError(
                    "places must hold at least 2 different ones, all rows have the same or none"
                )
        row_times = None
        if given_times is not None and time is not None:
            selected_times = given_times[selection.indices]
            time = time.fading(half_life, selected_times)
            row_times = torch.from_numpy(selected_times)

        rule, compared = None, None
        if eligibility is not None:
            if isinstance(table, Rows):
                raise ValueError(
                    "eligibility must be None with a feature_extractor, since a rule compares "
                    f"columns of a table, got {eligibility!r:.100}: predict takes a mask"
                )
            columns, compared = RuleColumns.fit(eligibility, table)
            rule = StoredRule(eligibility, columns)

        sample = Sample(
            encoded_X,
            encoded_y,
            selection.log_prior,
            group_codes,
            row_times,
            compared=compared,
        )
        names = names[selection.indices]
        return cls(
            *(sample, values, selection, names, class_factors, time),
            *(group_names, levels, table, rule, source.ignored, block_codes),
        )

    def splits(
        self,
        targets: Targets,
        n_networks: int,
        validation_fraction: Any,
        random_state: np.random.RandomState,
    ) -> list[Split]:
        """Return splits into training and validation rows, one for every network.

        `validation_fraction` is a share, the splits of a scikit-learn splitter, or None for no
        validation rows.
        """
        if validation_fraction is None:
            return [Split(np.arange(len(self)))] * n_networks
        times = None if self.sample.times is None else self.sample.times.numpy()
        if not isinstance(validation_fraction, Real):
            positions = np.full(self.selection.n_given, -1)
            positions[self.selection.indices] = np.arange(len(self))
            groups = None if self.sample.groups is None else self.groups
            return split_as_given(
                validation_fraction, positions, groups, times, n_networks, random_state
            )
        share = float(validation_fraction)
        if times is not None:
            return split_by_time(times, n_networks, share, random_state, self.groups)
        return targets.split(self.values, self.groups, n_networks, share, random_state)


def values_of_new(
    targets: Targets, y: Any, n_rows: int, names: tuple[str, ...] | None, shape: tuple[int, ...]
) -> Tensor:
    """Return the values of new rows' targets; raise if the outputs differ from fit."""
    values = targets.values(in_order_of(names, y))
    check_lengths(n_rows, len(values))
    if values.shape[1:] != shape:
        outputs = "".join(f", {n}" for n in shape) or ","
        raise ValueError(f"y must have the bank's shape (n{outputs}), got {tuple(values.shape)}")
    return values


def _warn_of_copies(X: Any, y: np.ndarray, ignored: Sequence[int]) -> None:
    """Warn about a feature in a validated table that equals an output of the targets."""
    if issparse(X) or not (isinstance(X, np.ndarray) or is_frame(X)):
        return
    outputs = [output for output in y.reshape(len(y), -1).T if (output != output[0]).any()]
    for j, column in enumerate(read_columns(rows_of(X, slice(0, N_FIRST)), ignored=ignored)):
        alike = [output for output in outputs if _are_equal(column, output[:N_FIRST])]
        if not alike:
            continue
        (whole,) = read_columns(columns_at(X, [j]))
        if any(_are_equal(whole, output) for output in alike):
            warnings.warn(
                f"{column.label} of X equals y. Predictions from it are no predictions: drop the "
                "column, unless it is known before the targets are",
                UserWarning,
                stacklevel=CALLER_OF_FIT,
            )


def _are_equal(column: Column, y: np.ndarray) -> bool:
    if column.kind not in ("number", "category"):
        return False
    numeric = column.kind == "number"
    values = column.values if numeric else column.values.astype(object)
    expected = y.astype(np.float64 if numeric and y.dtype.kind in "biuf" else object)
    return bool(np.all(values == expected))


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Hold rows of positive weight that validate all networks and train none."""

    X: Any  # features as given
    y: Any  # targets as given
    sample_weight: np.ndarray | None = None  # (n_valid,); None: all are equal
    joins: bool = False  # whether the rows join the bank

    @classmethod
    def take(
        cls, source: Source, X: Any, y: Any, sample_weight: Any, joins: bool
    ) -> ValidationSet | None:
        """Return the checked validation set, or None if `X` is None."""
        if X is None:
            values = {"y_val": y, "sample_weight_val": sample_weight, "add_validation": joins}
            for name, value in values.items():
                if value is not None and value is not False:
                    raise ValueError(f"X_val must be given with {name}, got None")
            return None
        warn_of_other_order(CALLER_OF_FIT, X_val=X, y_val=y, sample_weight_val=sample_weight)
        with naming(VALIDATION_SET):
            _, y = source.accept(X, y)  # y may come from a torch Dataset
            if y is None:
                raise ValueError("y_val must be given with X_val, got None")
            if sample_weight is None:
                return cls(X, y, None, joins)
            weights = check_sample_weight(sample_weight, _num_samples(X))
            if not weights.any():
                raise ValueError("sample_weight must be above 0 for at least 1 row, got none")
            selection = RowSelection(len(weights), weights.nonzero()[0])
            positive = weights[selection.indices]
            return cls(selection.select(X), selection.select(y), positive, joins)

    def encode(
        self, source: Source, targets: Targets, data: TrainingData, feature_names: Sequence[str]
    ) -> Sample:
        """Return the rows, encoded by the fitted source and targets, as a sample."""
        with naming(VALIDATION_SET):
            X = source.encode(self.X)
            values = values_of_new(
                targets, self.y, len(X), data.names.targets, data.values.shape[1:]
            )
            times = None
            if data.time is not None and data.time.column is not None:
                times = torch.from_numpy(read_query_times(data.time, self.X, feature_names))
            compared = None
            if data.rule is not None:
                compared = data.rule.columns.number(data.rule.read(self.X))
        weights = self._row_weights(targets, values, data.class_factors)
        prior = log_prior(weights, float(weights.max()))
        return Sample(X, targets.encode(values), prior, times=times, compared=compared)

    def weights(
        self, targets: Targets, values: Tensor, class_factors: list[Factors] | None
    ) -> Tensor | None:
        """Return the rows' weights with mean 1, (n_valid,), or None if all are equal."""
        if self.sample_weight is None and class_factors is None:
            return None
        weights = self._row_weights(targets, values, class_factors)
        return torch.from_numpy(weights / weights.mean()).to(values.device)

    def _row_weights(
        self, targets: Targets, values: Tensor, class_factors: list[Factors] | None
    ) -> np.ndarray:
        """Return the sample weights times the class factors of the rows, (n_valid,)."""
        weights = check_sample_weight(self.sample_weight, len(values))
        if class_factors is None or not isinstance(targets, ClassTargets):
            return weights
        return weigh_values(class_factors, targets, values, weights)
