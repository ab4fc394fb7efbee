"""Numbers as targets: weighted means of them are predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from .._utils.storable import storable
from ..attention import NONAHead
from .bounds import Bounds, refuse_fractions, refuse_outside
from .splits import Split, split_in_turns
from .target_checks import (
    LARGEST,
    check_targets,
    refuse_none,
    refuse_tiny_spread,
)

#: Interdecile ranges from the middle, beyond which a target teaches a network nothing.
FAR = 1000


@storable
class RegressionTargets:
    """Numbers: averaged as they are, and standardised where a network is to learn them.

    Another kind of target has these methods, and an estimator whose ``_make_targets`` returns
    it.

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
        To which targets are clipped where a network learns them, if some are beyond all others by
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
    # Of files of earlier versions, and of subclasses.
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
        """Fit to targets that :meth:`check` returned; as they were given, they may tell more."""
        scaler = StandardScaler().set_output(transform="default")  # arrays, whatever is configured
        values = self.to_values(y)
        columns = as_columns(values)
        one = values.ndim == 1
        refuse_tiny_spread(columns, lambda output: "y" if one else f"output {output} of y")
        self.learned_range = range_without_outliers(columns)
        columns = self.without_outliers(columns)
        # Of a constant this leaves 0, where the variance of weighted rows may round below 0.
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
            How messages number their rows; None: from 0.

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
        if self.bounds is not None:
            refuse_outside(self.bounds, values, y, rows)
        if self.whole:
            refuse_fractions(values, y, rows)
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
            Each output with mean 0 and standard deviation 1, float32. Values that are beyond all
            others by orders of magnitude are at the end of `learned_range`.
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
    """Ends, (n_outputs,) each, between which all targets are but the farthest; None: all are.

    They are multiples of the interdecile range, not targets of rows.
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
    columns = values.reshape(len(values), -1)
    return columns.cpu().numpy() if isinstance(columns, Tensor) else columns
