"""Numerical targets, whose weighted means are predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array
from torch import Tensor, nn

from .._utils.storable import storable
from .._utils.validation import check_lengths, is_real
from ..attention.head import NONAHead
from .names import labels_of, target_names_of
from .row_values import row_numbers
from .scaler import refuse_tiny_spread
from .splits import Split, split_in_turns

OF_CLASSES = "y must hold numbers; NONAClassifier and SoftStepKNeighborsClassifier take classes"
LARGEST = 1e150  # largest target whose square float64 holds
#: Targets farther from the middle than this number of interdecile ranges are clipped.
FAR = 1000
NAMED_BOUNDS = {"positive": (0.0, math.inf), "count": (0.0, math.inf), "unit": (0.0, 1.0)}

Bounds = tuple[float, float]


def bounds_of(parameter: Any) -> Bounds | None:
    """Return the least and the largest target according to `bounds`, or None for any target."""
    if parameter is None:
        return None
    pair = NAMED_BOUNDS.get(parameter) if isinstance(parameter, str) else parameter
    if isinstance(pair, tuple | list) and len(pair) == 2:
        low = -math.inf if pair[0] is None else pair[0]
        high = math.inf if pair[1] is None else pair[1]
        if all(is_real(end, -math.inf, math.inf) for end in (low, high)) and low < high:
            return None if (low, high) == (-math.inf, math.inf) else (float(low), float(high))
    raise ValueError(
        f"bounds must be {', '.join(map(repr, NAMED_BOUNDS))}, None or a pair (low, high) of "
        f"numbers or None, the first one less, got {parameter!r:.100}"
    )


# -- checks, whose messages name row and output ------------------------------------------------


def refuse_none(y: Any) -> None:
    """Raise if targets are None."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")


def check_targets(y: Any, rows: np.ndarray | None = None, largest: float = np.inf) -> np.ndarray:
    """Return validated finite numbers up to `largest`, float64 (n,) or (n, n_outputs).

    Messages number the rows by `rows`, (n,), or from 0.
    """
    given = row_numbers("y", y)
    if given.ndim == 0:
        raise ValueError(f"y must hold a number for each row, got {given.tolist()!r:.80}")
    if given.dtype.kind in "mM":
        raise ValueError(f"y must hold numbers, got {given.dtype}")
    try:
        values = check_array(
            given,
            ensure_2d=False,
            dtype=np.float64,
            order="C",  # torch has no negative strides
            ensure_all_finite=False,
            input_name="y",
        )
    except (ValueError, TypeError) as error:
        if isinstance(error, ValueError) and "could not convert string" not in str(error):
            raise
        raise ValueError(f"{error}; {OF_CLASSES}") from error
    check_lengths(len(values) if rows is None else len(rows), len(values))
    columns = values.reshape(len(values), -1)
    wrong = ~(np.isfinite(columns) & (np.abs(columns) <= largest))
    if wrong.any():
        value = columns[wrong][0]
        fault = "NaN" if np.isnan(value) else "infinity"
        if np.isfinite(value):
            fault = "a value too large to be squared, whose units must make it smaller than "
            fault += f"{largest:g}"
        raise ValueError(f"Input y contains {fault}: {value:g} in {place_of(wrong, y, rows)}")
    return values


def place_of(wrong: np.ndarray, y: Any, rows: np.ndarray | None = None) -> str:
    """Return the row and output of the first wrong target, (n, n_outputs), in words.

    The names come from `y`. Rows are numbered by `rows`, (n,), or from 0.
    """
    row, output = np.argwhere(wrong)[0].tolist()
    labels = labels_of(y)
    outputs = target_names_of(y)
    index = row if rows is None else int(rows[row])
    place = f"row {index}"
    if labels is not None and not (isinstance(labels[row], Integral) and labels[row] == index):
        place += f" (index {labels[row]!r})"
    if outputs or wrong.shape[1] > 1:
        place += f" of output {outputs[output] if outputs else output!r}"
    return place


# -- targets -----------------------------------------------------------------------------------


@storable
class RegressionTargets:
    """Numerical targets, which predictions average and networks learn standardised.

    A new kind of target implements the methods of this class, and is returned by the
    ``_make_targets`` of an estimator.

    Parameters
    ----------
    bounds : tuple of float, optional
        The least and the largest target, of which either may be infinite. If None, targets are
        unbounded.
    whole : bool, default=False
        Whether targets are whole numbers.

    Attributes
    ----------
    scaler : StandardScaler
        Scaler that standardises the columns of the values seen by :meth:`fit`.
    learned_range : tuple of ndarray, optional
        Range to which targets are clipped for networks, if outliers are beyond the remaining
        targets by orders of magnitude.
    loss : type of Module
        Loss of predictions and encoded targets that training minimises. It accepts
        ``reduction='none'``, so that rows may have different weights.

    Examples
    --------
    >>> from nona_sklearn.targets import RegressionTargets
    >>> targets = RegressionTargets().fit([1.0, 3.0])
    >>> targets.encode(targets.values([5.0]))
    tensor([3.])
    """

    loss: Callable[..., nn.Module] = nn.MSELoss
    # These are defaults for files of earlier versions, and for subclasses.
    bounds: Bounds | None = None
    whole: bool = False
    learned_range: tuple[np.ndarray, np.ndarray] | None = None

    def __init__(self, bounds: Bounds | None = None, whole: bool = False):
        self.bounds = bounds
        self.whole = whole

    def fit(self, y: Any, sample_weight: np.ndarray | None = None) -> RegressionTargets:
        """Learn the scale of targets.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)
            Targets.
        sample_weight : ndarray of shape (n,), optional
            Weights of the rows. If None, all weights are equal.

        Returns
        -------
        self : object
            The fitted targets.

        Raises
        ------
        ValueError
            As raised by :meth:`check`, or if the values of an output differ, but by less than
            float64 can square.
        """
        return self.fit_checked(self.check(y), sample_weight)

    def fit_checked(
        self, y: np.ndarray, sample_weight: np.ndarray | None = None, given: Any = None
    ) -> RegressionTargets:
        """Learn the scale of validated targets; `given` is the user's `y`."""
        scaler = StandardScaler().set_output(transform="default")  # not DataFrames
        values = self.to_values(y)
        columns = as_columns(values)
        one_output = values.ndim == 1
        refuse_tiny_spread(columns, lambda i: "y" if one_output else f"output {i} of y")
        self.learned_range = range_without_outliers(columns)
        columns = self.without_outliers(columns)
        # A constant output becomes 0. Its weighted variance might round below 0.
        first = columns[0]
        self.scaler = scaler.fit(columns - first, sample_weight=sample_weight)
        self.scaler.mean_ = self.scaler.mean_ + first
        self.n_outputs = values.shape[1] if values.ndim == 2 else None
        return self

    def check(self, y: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """Validate targets.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)
            Targets.
        rows : int ndarray of shape (n,), optional
            Numbers of the rows in messages. If None, rows are numbered from 0.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
            The validated targets.

        Raises
        ------
        ValueError
            If `y` is None or has a wrong number of rows, if a target is not a finite number that
            float64 can square, if a target is beyond the bounds, or if a target is not whole but
            has to be.
        """
        refuse_none(y)
        values = check_targets(y, rows, LARGEST)
        columns = values.reshape(len(values), -1)
        if self.bounds is not None:
            low, high = self.bounds
            wrong = (columns < low) | (columns > high)
            if wrong.any():
                raise ValueError(
                    f"y must be within bounds=({low:g}, {high:g}), got {columns[wrong][0]:g} in "
                    f"{place_of(wrong, y, rows)}"
                )
        wrong = columns != np.floor(columns)
        if self.whole and wrong.any():
            raise ValueError(
                f"y must hold whole numbers with bounds='count', got {columns[wrong][0]} in "
                f"{place_of(wrong, y, rows)}"
            )
        return values

    def values(self, y: Any) -> Tensor:
        """Validate targets, and return the values that neighbours contribute.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)
            Targets.

        Returns
        -------
        Tensor of the same shape
            The values, a new float64 tensor.

        Raises
        ------
        ValueError
            As raised by :meth:`check`.
        """
        return self.to_values(self.check(y))

    def to_values(self, y: np.ndarray) -> Tensor:
        """Return validated targets as the values that neighbours contribute, float64."""
        return torch.tensor(y, dtype=torch.float64)

    def check_same(self, earlier: Any) -> None:
        """Raise if training cannot continue from the targets of an earlier fit."""

    def encode(self, values: Tensor) -> Tensor:
        """Encode values for a network to learn.

        Parameters
        ----------
        values : Tensor of shape (n,) or (n, n_outputs)
            Values that :meth:`values` returned.

        Returns
        -------
        Tensor of the same shape
            Encoded values, float32, whose outputs have mean 0 and standard deviation 1. Values
            that are beyond the rest by orders of magnitude are at the end of `learned_range`.
        """
        scaled = self.scaler.transform(self.without_outliers(as_columns(values)))
        return torch.tensor(scaled, dtype=torch.float32).reshape(values.shape)

    def without_outliers(self, columns: np.ndarray) -> np.ndarray:
        """Return targets (n, n_outputs), clipped to `learned_range`, in their units."""
        return columns if self.learned_range is None else columns.clip(*self.learned_range)

    @property
    def unit(self) -> Tensor:
        """Return the scales of the encoded values, (n_outputs,), 0 for a constant output."""
        return torch.from_numpy(self.scaler.scale_ * (self.scaler.var_ > 0))

    def restore(self, encoded: Tensor) -> Tensor:
        """Restore values from predictions of encoded values, as the inverse of :meth:`encode`.

        Parameters
        ----------
        encoded : Tensor of shape (n,) or (n, n_outputs)
            Predictions of a network.

        Returns
        -------
        Tensor of the same shape
            Values in the units of `y`, float64.
        """
        columns = self.scaler.inverse_transform(as_columns(encoded.double()))
        return torch.from_numpy(columns).reshape(encoded.shape)

    def decode(self, means: Tensor) -> np.ndarray:
        """Turn weighted means of values into predictions.

        Parameters
        ----------
        means : Tensor of shape (q,) or (q, n_outputs)
            Weighted means of neighbours' values.

        Returns
        -------
        ndarray of the same shape
            Predictions in the units of `y`, within the bounds.
        """
        predictions = means.cpu().numpy()
        return predictions if self.bounds is None else predictions.clip(*self.bounds)

    @property
    def n_adjusted(self) -> int:
        """Return the number of values that a network adjusts for a row."""
        return self.n_outputs or 1

    @property
    def balanced(self) -> bool:
        """Return whether the mean of outputs' losses is geometric, which needs positive losses."""
        return self.n_adjusted > 1 and self.loss is nn.MSELoss

    def make_head(self, *args, **kwargs) -> NONAHead:
        """Build the head that averages encoded values.

        Parameters
        ----------
        *args, **kwargs
            Parameters of :class:`~nona_sklearn.NONAHead`.

        Returns
        -------
        NONAHead
            The head of one network.
        """
        return NONAHead(*args, **kwargs)

    def split(
        self,
        values: Tensor,
        groups: np.ndarray | None,
        n_networks: int,
        validation_fraction: float,
        random_state: np.random.RandomState,
    ) -> list[Split]:
        """Return splits into training and validation rows, one for every network.

        Groups stay together. Consecutive networks share a quarter of their validation rows.
        """
        units = np.arange(len(values)) if groups is None else groups
        order = random_state.permutation(np.max(units) + 1)
        return split_in_turns(
            order, groups, len(values), n_networks, validation_fraction, random_state
        )


def range_without_outliers(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the least and the largest target without outliers, (n_outputs,), or None.

    The limits are multiples of the interdecile range, so that they are not targets of rows.
    """
    low, high = np.quantile(columns, [0.1, 0.9], axis=0)
    center, spread = (low + high) / 2, high - low
    sizes = abs(columns - center) / np.where(spread > 0, spread, np.inf)
    far = sizes > FAR
    if not far.any():
        return None
    reach = 2 ** np.ceil(np.log2(np.where(far, 0.5, sizes).max(axis=0).clip(0.5)))
    reach = np.where(far.any(axis=0), reach * spread, np.inf)
    return center - reach, center + reach


def as_columns(values: Tensor | np.ndarray) -> np.ndarray:
    """Return values (n,) or (n, n_outputs) as an array (n, n_outputs)."""
    columns = values.reshape(len(values), -1)
    return columns.cpu().numpy() if isinstance(columns, Tensor) else columns
