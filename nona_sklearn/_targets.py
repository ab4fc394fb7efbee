"""Targets: what y is. How it is checked, averaged, learned and split."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array
from torch import Tensor, nn

from ._names import target_names_of
from ._validation import unmasked

SHARED = 0.25  # of a network's validation rows, with the next one
LARGEST = 1e150  # whose square float64 still holds

Split = tuple[np.ndarray, "np.ndarray | None"]  # numbers of training and of validation rows


class RegressionTargets:
    """Numbers: averaged as they are, and standardised where a network is to learn them.

    Another kind of target has these methods, and an estimator whose ``_make_targets`` returns
    it: see ``docs/extending.md``.

    Attributes
    ----------
    scaler : StandardScaler
        Standardises the columns of the values seen by :meth:`fit`.
    loss : type of Module
        What training minimises, of predictions and encoded targets. Takes ``reduction='none'``,
        so that rows may count differently.
    """

    loss: type[nn.Module] = nn.MSELoss

    def fit(self, y: Any, sample_weight: np.ndarray | None = None) -> RegressionTargets:
        """Look at the training targets, (n,) or (n, n_outputs), and how much each row counts."""
        scaler = StandardScaler().set_output(transform="default")  # arrays, whatever is configured
        self.scaler = scaler.fit(_columns(self.values(y)), sample_weight=sample_weight)
        return self

    def check(self, y: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """Validate targets: an array of them, (n,) or (n, n_outputs).

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)
            Targets.
        rows : int ndarray of shape (n,), optional
            How messages number their rows; None: from 0.

        Raises
        ------
        ValueError
            If `y` is None, has another number of rows, or holds anything but finite numbers that
            float64 can square.
        """
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None")
        if np.asarray(y).dtype.kind in "mM":
            raise ValueError(f"y must hold numbers, got {np.asarray(y).dtype}")
        return check_targets(y, rows, LARGEST)

    def values(self, y: Any) -> Tensor:
        """What a neighbour brings: targets as a new float64 tensor of their shape.

        Raises
        ------
        ValueError
            As :meth:`check`.
        """
        return torch.tensor(self.check(y), dtype=torch.float64)

    def encode(self, values: Tensor) -> Tensor:
        """What a network learns: values with mean 0 and deviation 1, float32 of their shape."""
        scaled = self.scaler.transform(_columns(values))
        return torch.tensor(scaled, dtype=torch.float32).reshape(values.shape)

    @property
    def unit(self) -> Tensor:
        """What 1 of the encoded values is worth, (n_outputs,): nothing where all are the same."""
        return torch.from_numpy(self.scaler.scale_ * (self.scaler.var_ > 0))

    def restore(self, encoded: Tensor) -> Tensor:
        """Turn what a network says of encoded values into values: :meth:`encode`'s inverse."""
        columns = self.scaler.inverse_transform(_columns(encoded.double()))
        return torch.from_numpy(columns).reshape(encoded.shape)

    def decode(self, means: Tensor) -> np.ndarray:
        """Turn weighted means of values into predictions."""
        return means.cpu().numpy()

    def split(
        self,
        values: Tensor,
        groups: np.ndarray | None,
        n_networks: int,
        validation_fraction: float,
        random_state: np.random.RandomState,
    ) -> list[Split]:
        """Split row numbers into training and validation rows, once for each network.

        Groups stay together. A quarter of a network's validation rows are the next one's too, so
        that there are rows on which two networks can be compared that trained on neither.

        Raises
        ------
        ValueError
            If fewer than two rows, or groups, would be left to train on.
        """
        n_samples = len(values)
        units = np.arange(n_samples) if groups is None else groups
        n_units = units.max() + 1
        n_valid = max(1, round(validation_fraction * n_units))
        if n_units - n_valid < 2:
            raise ValueError(
                f"validation_fraction={validation_fraction} of "
                f"{'n_samples' if groups is None else 'n_groups'}={n_units} leaves fewer than 2 "
                f"training {'rows' if groups is None else 'groups'}; "
                "use more samples or early_stopping=False"
            )
        order = random_state.permutation(n_units)
        splits: list[Split] = []
        for i in range(n_networks):
            turn = np.roll(order, -i * math.ceil((1 - SHARED) * n_valid))
            rows = turn if groups is None else random_state.permutation(n_samples)
            held_out = np.isin(units[rows], turn[:n_valid])
            splits.append((rows[~held_out], rows[held_out]))
        return splits


def check_targets(y: Any, rows: np.ndarray | None = None, largest: float = np.inf) -> np.ndarray:
    """Validate numbers of shape (n,) or (n, n_outputs).

    Raises
    ------
    ValueError
        If one is NaN, infinite or beyond the `largest`: it names row and output of the first.
    """
    values = check_array(
        unmasked(y), ensure_2d=False, dtype=np.float64, ensure_all_finite=False, input_name="y"
    )
    rows = np.arange(len(values)) if rows is None else rows
    check_lengths(len(rows), len(values))
    columns = values.reshape(len(values), -1)
    wrong = np.argwhere(~(np.isfinite(columns) & (np.abs(columns) <= largest)))
    if len(wrong):
        row, output = wrong[0]
        value, names = columns[row, output], target_names_of(y)
        where = f"row {rows[row]}"
        if names or columns.shape[1] > 1:
            where += f" of output {names[output] if names else int(output)!r}"
        raise ValueError(f"Input y contains {_fault(value, largest)}: {value:g} in {where}")
    return values


def _fault(value: float, largest: float) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "infinity"
    return f"a value too large to be squared, whose units must make it smaller than {largest:g}"


def check_lengths(n_rows: int, n_targets: int) -> None:
    """Refuse targets of another number of rows."""
    if n_rows != n_targets:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: X has {n_rows}, y has {n_targets}"
        )


def _columns(values: Tensor) -> np.ndarray:
    return values.reshape(len(values), -1).cpu().numpy()
