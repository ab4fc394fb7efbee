"""Numbers as targets: weighted means of them are predictions."""

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
from ..attention import NONAHead
from .names import labels_of, target_names_of
from .row_values import row_numbers
from .scaler import refuse_tiny_spread
from .splits import Split, split_in_turns

OF_CLASSES = "y must hold numbers; NONAClassifier and SoftStepKNeighborsClassifier take classes"
LARGEST = 1e150  # whose square float64 still holds
#: Targets farther from the middle, in interdecile ranges, teach a network nothing.
FAR = 1000
NAMED_BOUNDS = {"positive": (0.0, math.inf), "count": (0.0, math.inf), "unit": (0.0, 1.0)}

Bounds = tuple[float, float]


def bounds_of(parameter: Any) -> Bounds | None:
    """Return the least and the largest target that a parameter `bounds` allows; None: any."""
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
    """Raise if there are no targets."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")


def check_targets(y: Any, rows: np.ndarray | None = None, largest: float = np.inf) -> np.ndarray:
    """Validate finite numbers up to the `largest`, float64 (n,) or (n, n_outputs).

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
    """Describe where the first wrong target is, by the names that `y` has for rows and outputs.

    `wrong` is (n, n_outputs). Rows are numbered by `rows`, (n,), or from 0.
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
    """Numbers: averaged as they are, and standardised where a network is to learn them.

    A new kind of target has these methods, and an estimator whose ``_make_targets`` returns it.

    Parameters
    ----------
    bounds : tuple of float, optional
        The least and the largest target, either may be infinite; None: any number.
    whole : bool, default=False
        Whether targets are whole numbers.

    Attributes
    ----------
    scaler : StandardScaler
        Standardises the columns of the values seen by :meth:`fit`.
    learned_range : tuple of ndarray, optional
        Targets are clipped to it where a network learns them, if some are beyond the rest by
        orders of magnitude.
    loss : type of Module
        What training minimises, of predictions and encoded targets. Takes ``reduction='none'``,
        so that rows may count differently.

    Examples
    --------
    >>> from nona_sklearn.targets import RegressionTargets
    >>> targets = RegressionTargets().fit([1.0, 3.0])
    >>> targets.encode(targets.values([5.0]))
    tensor([3.])
    """

    loss: Callable[..., nn.Module] = nn.MSELoss
    # Files of earlier versions and subclasses may lack these.
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
            Weights of the rows. None: all are equal.

        Returns
        -------
        self : object
            With the scale of these targets.

        Raises
        ------
        ValueError
            As :meth:`check`, or if the values of an output differ, but by less than float64 can
            square.
        """
        return self.fit_checked(self.check(y), sample_weight)

    def fit_checked(
        self, y: np.ndarray, sample_weight: np.ndarray | None = None, given: Any = None
    ) -> RegressionTargets:
        """Fit to targets that :meth:`check` returned; `given` are those of the user."""
        scaler = StandardScaler().set_output(transform="default")  # arrays, whatever is configured
        values = self.to_values(y)
        columns = as_columns(values)
        one_output = values.ndim == 1
        refuse_tiny_spread(columns, lambda i: "y" if one_output else f"output {i} of y")
        self.learned_range = range_without_outliers(columns)
        columns = self.without_outliers(columns)
        # A constant becomes 0 by this. Its variance in weighted rows might round below 0.
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
            Numbers of the rows in messages. None: from 0.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
            The targets.

        Raises
        ------
        ValueError
            If `y` is None, has another number of rows, or holds anything but finite numbers that
            float64 can square, one beyond the bounds, or one that has to be whole and is not.
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
        """Validate targets, and make of them what neighbours contribute.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)
            Targets.

        Returns
        -------
        Tensor of the same shape
            New, float64.

        Raises
        ------
        ValueError
            As :meth:`check`.
        """
        return self.to_values(self.check(y))

    def to_values(self, y: np.ndarray) -> Tensor:
        """Turn targets that :meth:`check` returned into what neighbours contribute."""
        return torch.tensor(y, dtype=torch.float64)

    def check_same(self, earlier: Any) -> None:
        """Refuse an earlier fit's targets from which training cannot go on."""

    def encode(self, values: Tensor) -> Tensor:
        """Make of values what a network learns.

        Parameters
        ----------
        values : Tensor of shape (n,) or (n, n_outputs)
            What :meth:`values` returned.

        Returns
        -------
        Tensor of the same shape
            Each output with mean 0 and standard deviation 1, float32. Values that are beyond the
            rest by orders of magnitude are at the end of `learned_range`.
        """
        scaled = self.scaler.transform(self.without_outliers(as_columns(values)))
        return torch.tensor(scaled, dtype=torch.float32).reshape(values.shape)

    def without_outliers(self, columns: np.ndarray) -> np.ndarray:
        """Targets (n, n_outputs) as a network learns them, in their units."""
        return columns if self.learned_range is None else columns.clip(*self.learned_range)

    @property
    def unit(self) -> Tensor:
        """What 1 of the encoded values is worth, (n_outputs,): nothing where all are the same."""
        return torch.from_numpy(self.scaler.scale_ * (self.scaler.var_ > 0))

    def restore(self, encoded: Tensor) -> Tensor:
        """Turn predictions of encoded values into values: the inverse of :meth:`encode`.

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
            Weighted means of the neighbours' values.

        Returns
        -------
        ndarray of the same shape
            Predictions in the units of `y`, within the bounds.
        """
        predictions = means.cpu().numpy()
        return predictions if self.bounds is None else predictions.clip(*self.bounds)

    @property
    def n_adjusted(self) -> int:
        """Number of values that a network itself predicts for a row."""
        return self.n_outputs or 1

    @property
    def balanced(self) -> bool:
        """Whether the mean of the outputs' losses is geometric; other losses may be negative."""
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
        """Split row numbers into training and validation rows, once for each network.

        Groups stay together. A quarter of the validation rows are also those of the next network.
        """
        units = np.arange(len(values)) if groups is None else groups
        order = random_state.permutation(np.max(units) + 1)
        return split_in_turns(
            order, groups, len(values), n_networks, validation_fraction, random_state
        )


def range_without_outliers(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ends, (n_outputs,), between which all targets but the farthest are; or None.

    The ends are multiples of the interdecile range, so that they are no targets of rows.
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
    """Reshape values (n,) or (n, n_outputs) to (n, n_outputs), as an array."""
    columns = values.reshape(len(values), -1)
    return columns.cpu().numpy() if isinstance(columns, Tensor) else columns
