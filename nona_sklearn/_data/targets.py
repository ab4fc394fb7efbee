"""Targets: numbers, whose weighted means are predictions, and classes as one-hot rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any

import narwhals as nw
import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, is_multilabel
from torch import Tensor, nn

from .._utils.precision import EXACT, STORED, exact, stored
from .._utils.storable import storable
from .._utils.tables import target_names_of
from .._utils.validation import are_missing, check_lengths, is_missing, is_real, spans_of
from ..attention.head import ClassHead, NONAHead
from ..losses import ASSoftmaxLoss, LogLoss, MultilabelASSoftmaxLoss
from .row_values import row_numbers, row_values
from .source import refuse_tiny_spread
from .splits import Split, interleave, split_in_turns
from .tables import ends_of_outputs, labels_of

OF_CLASSES = "y must hold numbers; NONAClassifier and SoftStepKNeighborsClassifier take classes"
OF_OUTPUTS = "fit an estimator for each output to the rows that have it"
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


def check_targets(
    y: Any,
    rows: np.ndarray | None = None,
    largest: float = np.inf,
    *,
    for_texts: str = OF_CLASSES,
    for_gaps: str = OF_OUTPUTS,
) -> np.ndarray:
    """Return validated finite numbers up to `largest`, float64 (n,) or (n, n_outputs).

    Messages number the rows by `rows`, (n,), or from 0, and give advice for texts, and for gaps
    in some of several outputs.
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
        raise ValueError(f"{error}; {for_texts}") from error
    check_lengths(len(values) if rows is None else len(rows), len(values))
    columns = values.reshape(len(values), -1)
    wrong = ~(np.isfinite(columns) & (np.abs(columns) <= largest))
    if wrong.any():
        value = columns[wrong][0]
        fault = "NaN" if np.isnan(value) else "infinity"
        if np.isfinite(value):
            fault = "a value too large to be squared, whose units must make it smaller than "
            fault += f"{largest:g}"
        remedy = ""
        if np.isnan(value) and columns.shape[1] > 1:
            remedy = f"; {for_gaps}"
        place = place_of(wrong, y, rows)
        raise ValueError(f"Input y contains {fault}: {value:g} in {place}{remedy}")
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
        values = self.to_values(y)
        columns = as_columns(values)
        refuse_tiny_spread(columns, lambda i: "y" if values.ndim == 1 else f"output {i} of y")
        self.learned_range = range_without_outliers(columns)
        columns = self.without_outliers(columns)
        # A constant output becomes 0. Its weighted variance might round below 0.
        first = columns[0]
        scaler = StandardScaler().set_output(transform="default")  # not DataFrames
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
        return torch.tensor(y, dtype=EXACT)

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
        return torch.tensor(scaled, dtype=STORED).reshape(values.shape)

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
        columns = self.scaler.inverse_transform(as_columns(exact(encoded)))
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


def as_columns(values: Tensor) -> np.ndarray:
    """Return values (n,) or (n, n_outputs) as an array (n, n_outputs)."""
    return values.reshape(len(values), -1).cpu().numpy()


OF_NUMBERS = "for numbers use NONARegressor or SoftStepKNeighborsRegressor"

#: Factors of the sample weight for the classes of an output.
Factors = dict[Hashable, float]


@storable
class ClassTargets:
    """Encode classes as one-hot rows, whose weighted means are probabilities.

    The one-hot columns of several outputs are side by side; C is the number of columns.
    """

    bounds = None
    whole = False
    balanced = False

    # Set by fit: `classes`, the labels of every output, sorted or in the order of the categories;
    # `several`, whether `y` has an axis of outputs; `of_labels`, whether `y` is an indicator
    # matrix; `frequencies`, the class frequencies, (C,); and `ordered`, which outputs are ordered
    # categoricals, which files of earlier versions lack.
    ordered: tuple[bool, ...] = ()

    def __init__(self, margin: float | None = None, smoothing: bool = True):
        self.margin = margin  # lead of a class at which AS-Softmax ignores it; None: log loss
        self.smoothing = smoothing  # whether probabilities are smoothed by the class frequencies

    # -- labels --------------------------------------------------------------------------------

    def check(self, y: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """Return validated labels, (n,) or (n, n_outputs); messages number the rows by `rows`.

        A single column becomes (n,), with a warning.
        """
        refuse_none(y)
        if issparse(y):
            raise ValueError("y must be dense, got a sparse matrix; y.toarray() makes it so")
        labels = row_values("y", y)
        if labels.ndim == 0:
            raise ValueError(f"y must hold a label for each row, got {labels.tolist()!r:.80}")
        if labels.ndim > 2 or 0 in labels.shape[1:]:
            raise ValueError(f"y must have shape (n,) or (n, n_outputs), got {labels.shape}")
        check_lengths(len(labels) if rows is None else len(rows), len(labels))
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = column_or_1d(labels, warn=True)
        if labels.dtype.kind == "f":
            check_targets(y, rows)
        elif labels.dtype.kind in "OmM":
            gaps = are_missing(labels.reshape(len(labels), -1))
            if gaps.any():
                raise ValueError(f"Input y contains a missing label in {place_of(gaps, y, rows)}")
        columns = label_columns(labels)
        _check_labels(columns, y, rows)
        return _side_by_side(columns) if labels.ndim == 2 else columns[0]

    def fit(self, y: Any, sample_weight: np.ndarray | None = None) -> ClassTargets:
        """Learn the classes of labels, (n,) or (n, n_outputs), and their frequencies."""
        return self.fit_checked(self.check(y), sample_weight, y)

    def fit_checked(
        self, labels: np.ndarray, sample_weight: np.ndarray | None = None, given: Any = None
    ) -> ClassTargets:
        """Learn the classes of validated labels; `given` is the user's `y`."""
        self.several = labels.ndim == 2
        columns = label_columns(labels)
        orders = [None] * len(columns) if given is None else orders_of(given)
        if len(orders) != len(columns):  # an array is one object, even with several outputs
            orders = [None] * len(columns)
        self.classes = []
        for column, order in zip(columns, orders, strict=True):
            classes = np.unique(column)
            if order is not None:
                rank = {category: i for i, category in enumerate(order)}
                classes = classes[np.argsort([rank[label] for label in classes.tolist()])]
            self.classes.append(classes)
        self.ordered = tuple(order is not None for order in orders)
        numeric = labels.dtype.kind in "biuf"
        self.of_labels = numeric and is_multilabel(labels) and {*self.sizes} == {2}
        self.frequencies = np.average(self.to_values(labels), axis=0, weights=sample_weight)
        return self

    def values(self, y: Any) -> Tensor:
        """Validate labels, and return them as one-hot rows, float64 (n, C)."""
        return self.to_values(self.check(y), y)

    def to_values(self, labels: np.ndarray, given: Any = None) -> Tensor:
        """Return validated labels as one-hot rows, float64 (n, C); `given` names the rows."""
        columns = label_columns(labels)
        if len(columns) != len(self.classes):
            raise ValueError(
                f"y must have {len(self.classes)} outputs as in fit, got {len(columns)}"
            )
        pairs = zip(columns, self.classes, strict=True)
        blocks = [column[:, None] == classes for column, classes in pairs]
        unseen = ~np.stack([block.any(axis=1) for block in blocks], axis=1)
        if unseen.any():
            raise ValueError(
                f"y must hold classes of fit, got {_first_label(unseen, columns)!r} in "
                f"{place_of(unseen, given)}; fit anew for a new class"
            )
        return exact(torch.from_numpy(np.concatenate(blocks, axis=1)))

    def check_same(self, earlier: ClassTargets) -> None:
        """Raise if the classes differ from the classes of the earlier fit."""
        before = earlier.listed()
        now = self.listed()
        if before != now:
            raise ValueError(
                f"warm_start=True needs the classes of the earlier fit, {before!r:.200}, "
                f"got {now!r:.200}"
            )

    def check_ordered(self) -> None:
        """Raise if the classes have no order, or there are several outputs."""
        if self.several:
            raise ValueError(
                f"quantiles and cumulative probabilities are of one output, got "
                f"{len(self.classes)}: fit a classifier for each"
            )
        if self.classes[0].dtype.kind not in "biuf" and True not in self.ordered:
            raise ValueError(
                "quantiles and cumulative probabilities need classes with an order, got the "
                f"labels {self.listed()!r:.200}: fit numbers, or an ordered categorical, such as "
                "pd.Categorical(y, categories, ordered=True)"
            )

    def listed(self) -> list:
        """Return the classes as a list, or as a list of lists for several outputs."""
        lists = [classes.tolist() for classes in self.classes]
        return lists if self.several else lists[0]

    # -- networks ------------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the numbers of classes of the outputs."""
        return tuple(len(classes) for classes in self.classes)

    @property
    def class_slices(self) -> list[slice]:
        """Return the slices of one-hot columns that belong to the outputs."""
        return spans_of(self.sizes)

    @property
    def n_adjusted(self) -> int:
        """Return the number of values that a network adjusts for a row."""
        return sum(self.sizes)

    @property
    def unit(self) -> Tensor:
        """Return the units of a network's adjustments, (C,): 1, since they are log odds."""
        return torch.ones(self.n_adjusted, dtype=EXACT)

    @property
    def loss(self) -> Callable[..., nn.Module]:
        """Return a factory of the loss that compares probabilities with one-hot rows."""
        if self.margin is None:
            return partial(LogLoss, self.sizes)
        if self.of_labels:
            return partial(MultilabelASSoftmaxLoss, self.margin)
        return partial(ASSoftmaxLoss, self.sizes, self.margin)

    def make_head(self, *args, **kwargs) -> ClassHead:
        """Return a head that adds up the weights of the classes."""
        prior = torch.as_tensor(self.frequencies)
        kwargs |= {"prior": prior, "sizes": self.sizes, "smoothing": self.smoothing}
        return ClassHead(*args, **kwargs)

    def encode(self, values: Tensor) -> Tensor:
        """Return one-hot rows as float32, which a network learns."""
        return stored(values)

    def restore(self, encoded: Tensor) -> Tensor:
        """Return a network's predictions, which are probabilities, as float64."""
        return exact(encoded)

    def decode(self, means: Tensor) -> np.ndarray:
        """Return the most probable labels, given probabilities (q, C)."""
        labels = [
            classes[block.argmax(dim=1).cpu().numpy()]
            for classes, block in zip(self.classes, means.split(self.sizes, dim=1), strict=True)
        ]
        return _side_by_side(labels) if self.several else labels[0]

    def log_odds(self, logarithms: np.ndarray) -> np.ndarray:
        """Return log odds, given logarithms of probabilities or their differences, (..., C).

        Two classes have the log odds of the second. More classes have centred log-ratios: the
        logarithms less their mean over the classes.
        """
        ratios = []
        for columns in self.class_slices:
            block = logarithms[..., columns]
            if block.shape[-1] == 2:
                ratios.append(block[..., 1:] - block[..., :1])
            else:
                ratios.append(block - block.mean(axis=-1, keepdims=True))
        return np.concatenate(ratios, axis=-1)

    def ends_of_log_odds(self, target_names: Sequence[str] | None) -> list[str]:
        """Return the suffixes of log odds: the output if several, and the class if over 2."""
        ends = []
        outputs = ends_of_outputs(target_names, len(self.classes))
        for output, classes in zip(outputs, self.classes, strict=True):
            ends += [output] if len(classes) == 2 else [f"{output}_{c}" for c in classes]
        return ends

    def split(
        self,
        values: Tensor,
        groups: np.ndarray | None,
        n_networks: int,
        validation_fraction: float,
        random_state: np.random.RandomState,
    ) -> list[Split]:
        """Return splits that are stratified by the classes of all outputs, one for every network.

        A group has the class of its first row.
        """
        units = np.arange(len(values)) if groups is None else groups
        _, first = np.unique(units, return_index=True)
        _, strata = np.unique(values[first].numpy(), axis=0, return_inverse=True)
        order = interleave(strata, random_state)
        return split_in_turns(
            order, groups, len(values), n_networks, validation_fraction, random_state
        )


def label_columns(labels: np.ndarray) -> list[np.ndarray]:
    """Return the outputs' labels, (n,), given labels (n,) or (n, n_outputs)."""
    return [_plain(column) for column in labels.reshape(len(labels), -1).T]


def _plain(labels: np.ndarray) -> np.ndarray:
    """Return objects that are all numbers or booleans as an array of numbers or booleans."""
    if labels.dtype == object and all(isinstance(label, Real | np.bool_) for label in labels):
        return np.array(labels.tolist())
    return labels


def _side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return stacked labels (n, n_outputs), as objects if the outputs have different kinds."""
    alike = len({column.dtype.kind for column in columns}) == 1
    return np.stack(columns if alike else [c.astype(object) for c in columns], axis=1)


def _check_labels(columns: Sequence[np.ndarray], y: Any, rows: np.ndarray | None) -> None:
    """Raise if a label is a fractional number or an unsupported object."""
    wrong = np.stack([_are_unsupported(column) for column in columns], axis=1)
    if wrong.any():
        label = _first_label(wrong, columns)
        place = place_of(wrong, y, rows)
        column = columns[np.argwhere(wrong)[0, 1]]
        if column.dtype.kind == "f":
            raise ValueError(
                "Unknown label type: continuous. y must hold classes, got "
                f"{label!r} in {place}; {OF_NUMBERS}"
            )
        kinds = ", ".join(sorted({type(value).__name__ for value in column}))
        raise ValueError(
            "y must hold labels of one kind, strings, whole numbers or booleans, got "
            f"{kinds}: {label!r:.80} in {place}; y.astype(str) makes strings of them"
        )
    for column in columns:
        # scikit-learn refuses bytes, although bytes are valid labels here.
        if not all(isinstance(label, bytes) for label in column):
            check_classification_targets(column)


def _are_unsupported(labels: np.ndarray) -> np.ndarray:
    """Return whether labels (n,) are unsupported as classes, bool (n,)."""
    if labels.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # infinity, and numbers beyond int64
            return labels != labels.astype(np.int64)
    # Sequences pass, since scikit-learn has a message for them (its former multilabel format).
    allowed: tuple[Any, ...] = (bytes, list | tuple)
    if labels.dtype != object or any(all(isinstance(x, kind) for x in labels) for kind in allowed):
        return np.zeros(len(labels), dtype=bool)
    return np.array([not isinstance(label, str) for label in labels], dtype=bool)


def _first_label(wrong: np.ndarray, columns: Sequence[np.ndarray]) -> Any:
    """Return the first wrong label as a Python object."""
    row, output = np.argwhere(wrong)[0]
    return columns[output][[row]].tolist()[0]


def orders_of(y: Any) -> list[tuple | None]:
    """Return the ordered categories of the outputs, or None for an output without an order."""
    frame = nw.from_native(y, pass_through=True, allow_series=True)
    if isinstance(frame, nw.DataFrame):
        return [_order_of(series) for series in frame.iter_columns()]
    if getattr(y, "ordered", False) and hasattr(y, "categories"):  # pandas.Categorical
        return [tuple(y.categories)]
    if getattr(getattr(y, "type", None), "ordered", False) and hasattr(y, "dictionary"):
        return [tuple(y.dictionary.to_pylist())]  # pyarrow.DictionaryArray
    return [_order_of(frame) if isinstance(frame, nw.Series) else None]


def _order_of(series: nw.Series) -> tuple | None:
    if isinstance(series.dtype, nw.Enum):
        return tuple(series.dtype.categories)
    native = series.to_native()
    arrow = getattr(getattr(native, "dtype", None), "pyarrow_dtype", getattr(native, "type", None))
    if not getattr(arrow, "ordered", False):
        return None
    chunks = native.array.__arrow_array__() if hasattr(native, "array") else native
    return tuple(chunks.unify_dictionaries().chunk(0).dictionary.to_pylist())


def warn_of_classes(classes: Sequence[np.ndarray], stacklevel: int) -> None:
    """Warn about an output with one class, and about classes that are not sorted."""
    for output, labels in enumerate(classes):
        where = f" in output {output}" if len(classes) > 1 else ""
        if len(labels) == 1:
            warnings.warn(
                f"y holds one class only{where}, {labels.tolist()[0]!r:.80}: it is predicted for "
                "every row, with probability 1",
                UserWarning,
                stacklevel=stacklevel,
            )
        if (labels[1:] < labels[:-1]).any():
            warnings.warn(
                f"y is an ordered categorical{where}, so that classes_ and the columns of "
                f"predict_proba are in its order, {labels.tolist()!r:.200}. Metrics that take the "
                "columns of sorted classes, such as scikit-learn's 'neg_log_loss' and 'roc_auc', "
                "are wrong then: give them y.astype(str), in fit as well",
                UserWarning,
                stacklevel=stacklevel,
            )


# -- class weights -----------------------------------------------------------------------------


def find_factors(
    class_weight: Any, y: np.ndarray, weights: np.ndarray, names: Sequence[str] | None
) -> list[Factors]:
    """Return the class factors of the outputs, according to `class_weight`.

    `y` has shape (n,) or (n, n_outputs), `weights` are sample weights (n,), and `names` are names
    of the outputs.
    """
    columns = label_columns(y)
    if isinstance(class_weight, str):
        return [balancing(column, weights) for column in columns]
    n_outputs = len(columns)
    dicts = class_weight if n_outputs > 1 else [class_weight]
    mappings = isinstance(dicts, list) and all(isinstance(item, Mapping) for item in dicts)
    if not mappings or len(dicts) != n_outputs:
        wanted = f"a list of {n_outputs} dicts, one for each output" if n_outputs > 1 else "a dict"
        raise ValueError(
            f"class_weight must be None, 'balanced' as a whole or {wanted}, "
            f"got {class_weight!r:.100}"
        )
    ends = [""]
    if n_outputs > 1:
        ends = [f" of output {name!r}" for name in names or range(n_outputs)]
    return [
        _check_factors(weight_of, np.unique(labels), end)
        for weight_of, labels, end in zip(dicts, columns, ends, strict=True)
    ]


def balancing(labels: np.ndarray, weights: np.ndarray) -> Factors:
    """Return factors that give the classes of an output equal total weight.

    Unlike scikit-learn's factors, they are independent of rows of weight 0.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    # Weights are divided by the largest weight, so that sums do not overflow.
    weight = np.bincount(codes, weights / (weights.max() or 1.0), len(classes))
    mean = weight.sum() / max(1, np.count_nonzero(weight))
    factors = np.divide(mean, weight, out=np.zeros_like(weight), where=weight > 0)
    return dict(zip(classes, factors.tolist(), strict=True))


def _check_factors(weight_of: Mapping, classes: np.ndarray, end: str) -> Factors:
    """Return validated weights of an output's classes; a class without a weight has 1."""
    for label, weight in weight_of.items():
        if is_missing(label):
            raise ValueError(f"class_weight must be for classes, got a missing label{end}")
        if not (isinstance(weight, Real) and 0 <= float(weight) < np.inf):
            raise ValueError(
                "class_weight must be finite and not negative, got "
                f"{_as_python(weight)!r} for class {_as_python(label)!r}{end}"
            )
    factors = {label: float(weight_of.get(label, 1.0)) for label in classes}
    unknown = [label for label in weight_of if label not in factors]
    # As in scikit-learn, a class that y lacks may have a weight if all classes of y have one.
    if unknown and any(label not in weight_of for label in classes):
        raise ValueError(
            f"class_weight must be for the classes of y, {classes.tolist()!r:.200}, got "
            f"{_as_python(unknown[0])!r}{end}"
        )
    return factors


def _as_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def weigh_classes(factors: list[Factors], y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weights (n,) times the factors of the labels; raise if fewer than 2 are positive."""
    pairs = zip(factors, label_columns(y), strict=True)
    row_factors = [np.array([factor_of[x] for x in labels]) for factor_of, labels in pairs]
    weighed = _multiply_weights(weights, row_factors)
    n_left = np.count_nonzero(weighed)
    if n_left < 2 <= np.count_nonzero(weights):
        raise ValueError(
            f"class_weight must be above zero for at least 2 rows, got {n_left} of {len(y)}"
        )
    return weighed


def weigh_values(
    factors: list[Factors], targets: ClassTargets, values: Tensor, weights: np.ndarray
) -> np.ndarray:
    """Return weights (n,) times the factors of the classes, given one-hot rows (n, C)."""
    blocks = values.cpu().split(targets.sizes, dim=1)
    pairs = zip(blocks, weights_of_classes(factors, targets.classes), strict=True)
    return _multiply_weights(weights, [block.numpy() @ factor for block, factor in pairs])


def weights_of_classes(factors: list[Factors] | None, classes: Sequence) -> list[np.ndarray]:
    """Return the outputs' class factors, (n_classes,); they are 1 without class weights."""
    return [
        np.array([factor_of.get(label, 1.0) for label in labels])
        for factor_of, labels in zip(factors or [{}] * len(classes), classes, strict=True)
    ]


def _multiply_weights(sample_weight: np.ndarray, factors: Sequence[np.ndarray]) -> np.ndarray:
    """Return weights (n,) times the outputs' factors (n,); raise if a product overflows."""
    with np.errstate(all="ignore"):  # the check below finds overflows
        factor = np.prod(factors, axis=0)
        product = sample_weight * factor
    lost = (product == 0) != ((sample_weight == 0) | (factor == 0))
    wrong = np.flatnonzero(lost | ~np.isfinite(product))
    if len(wrong):
        row = wrong[0]
        raise ValueError(
            "sample_weight times class_weight must be a number that float64 holds, got "
            f"{sample_weight[row]:g} times {factor[row]:g} in row {row}"
        )
    return product
