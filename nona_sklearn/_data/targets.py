"""Targets: what y is. How it is checked, averaged, learned and split."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, is_multilabel
from torch import Tensor, nn

from .._utils.chunks import spans_of
from .._utils.storable import storable
from .._utils.validation import is_missing, unmasked
from ..attention import ClassHead, NONAHead
from ..losses import ASSoftmaxLoss, LogLoss, MultilabelASSoftmaxLoss
from .names import labels_of, target_names_of

SHARED = 0.25  # of a network's validation rows, with the next one
OF_CLASSES = "y must hold numbers; NONAClassifier and SoftStepKNeighborsClassifier take classes"
OF_NUMBERS = "for numbers use NONARegressor or SoftStepKNeighborsRegressor"
LARGEST, SMALLEST = 1e150, 1e-150  # whose squares float64 still holds

Split = tuple[np.ndarray, "np.ndarray | None"]  # numbers of training and of validation rows


@storable
class RegressionTargets:
    """Numbers: averaged as they are, and standardised where a network is to learn them.

    Another kind of target has these methods, and an estimator whose ``_make_targets`` returns
    it: see :doc:`/extending`.

    Attributes
    ----------
    scaler : StandardScaler
        Standardises the columns of the values seen by :meth:`fit`.
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

    def fit(self, y: Any, sample_weight: np.ndarray | None = None) -> RegressionTargets:
        """Learn the scale of training targets, (n,) or (n, n_outputs), whose rows have weights.

        Raises
        ------
        ValueError
            If the values of an output differ, but by less than float64 can square.
        """
        scaler = StandardScaler().set_output(transform="default")  # arrays, whatever is configured
        values = self.values(y)
        columns = _columns(values)
        one = values.ndim == 1
        refuse_tiny_spread(columns, lambda output: "y" if one else f"output {output} of y")
        # Of a constant this leaves 0, where the variance of weighted rows may round below 0.
        first = columns[0]
        self.scaler = scaler.fit(columns - first, sample_weight=sample_weight)
        self.scaler.mean_ = self.scaler.mean_ + first
        self.n_outputs = values.shape[1] if values.ndim == 2 else None
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
        refuse_none(y)
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

    @property
    def n_adjusted(self) -> int:
        """How many numbers a network may know of each row itself."""
        return self.n_outputs or 1

    def make_head(self, *args, **kwargs) -> NONAHead:
        """Build the head that averages encoded values."""
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


@storable
class ClassTargets:
    """Classes: averaged as one-hot rows, the classes of several outputs side by side.

    Parameters
    ----------
    margin : float, optional
        By how much a class must be ahead for training to let it be (AS-Softmax). None: it never
        does, and minimises the log loss.
    smoothing : bool, default=True
        Whether the classes' frequencies take part in each probability (see
        :class:`~nona_sklearn.attention.ClassHead`).

    Attributes
    ----------
    classes : list of ndarray
        The labels of each output, sorted.
    several : bool
        Whether `y` has an axis of outputs.
    of_labels : bool
        Whether they say which labels a row has: an indicator matrix.
    frequencies : ndarray of shape (C,)
        How frequent each class is.
    """

    def __init__(self, margin: float | None = None, smoothing: bool = True):
        self.margin = margin
        self.smoothing = smoothing

    def fit(self, y: Any, sample_weight: np.ndarray | None = None) -> ClassTargets:
        """Look at the training labels, (n,) or (n, n_outputs), and how much each row counts.

        Raises
        ------
        ValueError
            If `y` holds no classes: numbers that are not whole, or missing labels.
        """
        labels = self.check(y)
        self.several = labels.ndim == 2
        self.classes = [np.unique(column) for column in label_columns(labels)]
        numbers = labels.dtype.kind in "biuf"
        self.of_labels = numbers and is_multilabel(labels) and {*self.sizes} == {2}
        self.frequencies = np.average(self.values(labels), axis=0, weights=sample_weight)
        return self

    def check(self, y: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """Validate labels: an array of them, (n,) or (n, n_outputs).

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)
            Labels. A single column is told off, as scikit-learn does, and taken for one output.
        rows : int ndarray of shape (n,), optional
            How messages number their rows; None: from 0.

        Raises
        ------
        ValueError
            If `y` is None or sparse, has another number of rows, or holds anything but classes:
            missing labels, labels of several kinds in an output, or numbers that are not whole.
        """
        refuse_none(y)
        if issparse(y):
            raise ValueError("y must be dense, got a sparse matrix; y.toarray() makes it so")
        labels = np.asarray(unmasked(y))
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
            gaps = np.vectorize(is_missing, otypes=[bool])(labels.reshape(len(labels), -1))
            if gaps.any():
                raise ValueError(f"Input y contains a missing label in {place_of(gaps, y, rows)}")
        columns = label_columns(labels)
        _refuse_others(columns, y, rows)
        return _side_by_side(columns) if labels.ndim == 2 else columns[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes of each output."""
        return tuple(len(classes) for classes in self.classes)

    @property
    def places(self) -> list[slice]:
        """Which columns of one-hot rows are each output's."""
        return spans_of(self.sizes)

    @property
    def loss(self) -> Callable[..., nn.Module]:
        """Make what training minimises, of probabilities and one-hot rows."""
        if self.margin is None:
            return partial(LogLoss, self.sizes)
        if self.of_labels:
            return partial(MultilabelASSoftmaxLoss, self.margin)
        return partial(ASSoftmaxLoss, self.sizes, self.margin)

    def values(self, y: Any) -> Tensor:
        """What a neighbour brings: one-hot rows in float64, (n, C).

        Raises
        ------
        ValueError
            If a label is none of those that fit saw, or `y` has other outputs.
        """
        columns = label_columns(self.check(y))
        if len(columns) != len(self.classes):
            raise ValueError(
                f"y must have {len(self.classes)} outputs as in fit, got {len(columns)}"
            )
        pairs = list(zip(columns, self.classes, strict=True))
        blocks = [column[:, None] == classes for column, classes in pairs]
        unseen = ~np.stack([block.any(axis=1) for block in blocks], axis=1)
        if unseen.any():
            raise ValueError(
                f"y must hold classes that fit saw, got {_first(unseen, columns)!r} in "
                f"{place_of(unseen, y)}; fit anew for a new class"
            )
        return torch.from_numpy(np.concatenate(blocks, axis=1)).double()

    def encode(self, values: Tensor) -> Tensor:
        """What a network learns: the same in float32."""
        return values.float()

    @property
    def unit(self) -> Tensor:
        """What 1 of a network's adjustments is worth: they are logarithms of odds."""
        return torch.ones(sum(self.sizes), dtype=torch.float64)

    def restore(self, encoded: Tensor) -> Tensor:
        """Turn what a network says into probabilities: it says them."""
        return encoded.double()

    def decode(self, means: Tensor) -> np.ndarray:
        """Turn probabilities, (q, C), into the most probable labels."""
        labels = [
            classes[block.argmax(dim=1).cpu().numpy()]
            for classes, block in zip(self.classes, means.split(self.sizes, dim=1), strict=True)
        ]
        return _side_by_side(labels) if self.several else labels[0]

    @property
    def n_adjusted(self) -> int:
        """How many numbers a network may know of each row itself."""
        return sum(self.sizes)

    def make_head(self, *args, **kwargs) -> ClassHead:
        """Build the head that adds up the classes' weights."""
        prior = torch.as_tensor(self.frequencies)
        kwargs |= {"prior": prior, "sizes": self.sizes, "smoothing": self.smoothing}
        return ClassHead(*args, **kwargs)

    def split(
        self,
        values: Tensor,
        groups: np.ndarray | None,
        n_networks: int,
        validation_fraction: float,
        random_state: np.random.RandomState,
    ) -> list[Split]:
        """Split row numbers as :meth:`RegressionTargets.split`, stratified by class.

        Of several outputs by all of them together; a group counts as its first row's class.
        """
        _, first = np.unique(
            np.arange(len(values)) if groups is None else groups, return_index=True
        )
        _, strata = np.unique(values[first].numpy(), axis=0, return_inverse=True)
        order = _interleaved(strata, random_state)
        return split_in_turns(
            order, groups, len(values), n_networks, validation_fraction, random_state
        )


Targets = RegressionTargets | ClassTargets


def split_in_turns(
    order: np.ndarray,
    groups: np.ndarray | None,
    n_samples: int,
    n_networks: int,
    validation_fraction: float,
    random_state: np.random.RandomState,
) -> list[Split]:
    """Take the rows, or groups, of an order to validate one network after the other.

    A quarter of a network's validation rows are the next one's too, so that there are rows on
    which two networks can be compared that trained on neither.

    Parameters
    ----------
    order : int ndarray of shape (n_units,)
        Numbers of the rows, or groups, shuffled.
    groups : int ndarray of shape (n,), optional
        Group of each row; None: each row by itself.
    n_samples : int
        Number of rows.
    n_networks : int
        Number of networks.
    validation_fraction : float
        Share of the units that each sets aside.
    random_state : RandomState
        Shuffles the rows of groups.

    Returns
    -------
    list of two int ndarray
        Training and validation rows of each network.

    Raises
    ------
    ValueError
        If fewer than two rows, or groups, would be left to train on.
    """
    n_units = len(order)
    units = np.arange(n_samples) if groups is None else groups
    n_valid = max(1, round(validation_fraction * n_units))
    if n_units - n_valid < 2:
        raise ValueError(
            f"validation_fraction={validation_fraction} of "
            f"{'n_samples' if groups is None else 'n_groups'}={n_units} leaves fewer than 2 "
            f"training {'rows' if groups is None else 'groups'}; "
            "use more samples or early_stopping=False"
        )
    splits: list[Split] = []
    for i in range(n_networks):
        turn = np.roll(order, -i * math.ceil((1 - SHARED) * n_valid))
        rows = turn if groups is None else random_state.permutation(n_samples)
        held_out = np.isin(units[rows], turn[:n_valid])
        splits.append((rows[~held_out], rows[held_out]))
    return splits


def _interleaved(strata: np.ndarray, random_state: np.random.RandomState) -> np.ndarray:
    """Shuffle units so that any run of them has about its share of each stratum."""
    place = np.empty(len(strata))
    for stratum in range(strata.max() + 1):
        members = random_state.permutation(np.flatnonzero(strata == stratum))
        place[members] = (np.arange(len(members)) + random_state.uniform()) / len(members)
    return place.argsort()


def refuse_none(y: Any) -> None:
    """Refuse no targets at all."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")


def check_targets(y: Any, rows: np.ndarray | None = None, largest: float = np.inf) -> np.ndarray:
    """Validate numbers of shape (n,) or (n, n_outputs).

    Raises
    ------
    ValueError
        If one is NaN, infinite or beyond the `largest`: it names row and output of the first.
    """
    try:
        values = check_array(
            unmasked(y),
            ensure_2d=False,
            dtype=np.float64,
            order="C",  # torch has no negative strides
            ensure_all_finite=False,
            input_name="y",
        )
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise ValueError(f"{error}; {OF_CLASSES}") from error
    check_lengths(len(values) if rows is None else len(rows), len(values))
    columns = values.reshape(len(values), -1)
    wrong = ~(np.isfinite(columns) & (np.abs(columns) <= largest))
    if wrong.any():
        value = columns[wrong][0]
        raise ValueError(
            f"Input y contains {_fault(value, largest)}: {value:g} in {place_of(wrong, y, rows)}"
        )
    return values


def place_of(wrong: np.ndarray, y: Any, rows: np.ndarray | None = None) -> str:
    """Say where the first wrong target is, as its row and its output are called.

    Parameters
    ----------
    wrong : bool ndarray of shape (n, n_outputs)
        Which targets are wrong.
    y : array-like of shape (n,) or (n, n_outputs)
        The targets as they were given: an index, and columns, have names.
    rows : int ndarray of shape (n,), optional
        What numbers the rows have; None: from 0.
    """
    row, output = np.argwhere(wrong)[0].tolist()
    labels, outputs = labels_of(y), target_names_of(y)
    number = row if rows is None else int(rows[row])
    place = f"row {number}"
    if labels is not None and not (isinstance(labels[row], Integral) and labels[row] == number):
        place += f" (index {labels[row]!r})"
    if outputs or wrong.shape[1] > 1:
        place += f" of output {outputs[output] if outputs else output!r}"
    return place


def _fault(value: float, largest: float) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "infinity"
    return f"a value too large to be squared, whose units must make it smaller than {largest:g}"


def refuse_tiny_spread(columns: np.ndarray, name: Callable[[int], str]) -> None:
    """Refuse columns (n, k) that are not constant, but whose variance would round to 0."""
    spread = np.ptp(columns, axis=0)
    tiny = ((spread > 0) & (spread < SMALLEST)).nonzero()[0]
    if len(tiny):
        raise ValueError(
            f"{name(tiny[0])} holds values that differ by {spread[tiny[0]]:g} at most, too little "
            f"to be squared: choose a unit in which they differ by more than {SMALLEST:g}"
        )


def check_lengths(n_rows: int, n_targets: int) -> None:
    """Refuse targets of another number of rows."""
    if n_rows != n_targets:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: X has {n_rows}, y has {n_targets}"
        )


def _columns(values: Tensor | np.ndarray) -> np.ndarray:
    columns = values.reshape(len(values), -1)
    return columns.cpu().numpy() if isinstance(columns, Tensor) else columns


def label_columns(labels: np.ndarray) -> list[np.ndarray]:
    """Labels of each output, (n,), of an array of them, (n,) or (n, n_outputs)."""
    return [_plain(column) for column in labels.reshape(len(labels), -1).T]


def _plain(labels: np.ndarray) -> np.ndarray:
    """Numbers and truth values among objects as the array that a list of them makes."""
    if labels.dtype == object and all(isinstance(label, Real | np.bool_) for label in labels):
        return np.array(labels.tolist())
    return labels


def _side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Labels of several outputs, (n, n_outputs): objects, if they are of several kinds."""
    alike = len({column.dtype.kind for column in columns}) == 1
    return np.stack(columns if alike else [c.astype(object) for c in columns], axis=1)


def _refuse_others(columns: Sequence[np.ndarray], y: Any, rows: np.ndarray | None) -> None:
    """Refuse what are no classes: numbers that are not whole, objects that are no labels."""
    wrong = np.stack([_is_other(column) for column in columns], axis=1)
    if wrong.any():
        label, place = _first(wrong, columns), place_of(wrong, y, rows)
        column = columns[np.argwhere(wrong)[0, 1]]
        if column.dtype.kind == "f":
            raise ValueError(
                "Unknown label type: continuous. y must hold classes, got "
                f"{label!r} in {place}; {OF_NUMBERS}"
            )
        kinds = ", ".join(sorted({type(each).__name__ for each in column}))
        raise ValueError(
            "y must hold labels of one kind, strings, whole numbers or truth values, got "
            f"{kinds}: {label!r:.80} in {place}; y.astype(str) makes strings of them"
        )
    for column in columns:
        if not _of_bytes(column):  # which can be told apart, though scikit-learn refuses them
            check_classification_targets(column)


def _is_other(labels: np.ndarray) -> np.ndarray:
    """Which of an output's labels, (n,), are no class."""
    if labels.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # beyond its range, and infinity
            return labels != labels.astype(np.int64)
    if labels.dtype == object and not _of_bytes(labels) and not _of_sequences(labels):
        return np.array([not isinstance(label, str) for label in labels], dtype=bool)
    return np.zeros(len(labels), dtype=bool)


def _of_bytes(labels: np.ndarray) -> bool:
    return all(isinstance(label, bytes) for label in labels)


def _of_sequences(labels: np.ndarray) -> bool:
    """Sets of labels in a form that scikit-learn once had, and has words for."""
    return all(isinstance(label, list | tuple) for label in labels)


def _first(wrong: np.ndarray, columns: Sequence[np.ndarray]) -> Any:
    """The first wrong label as Python has it."""
    row, output = np.argwhere(wrong)[0]
    return columns[output][[row]].tolist()[0]
