"""Classes as targets: one-hot rows, whose weighted means are probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import is_multilabel
from torch import Tensor, nn

from .._utils.chunks import spans_of
from .._utils.storable import storable
from .._utils.validation import are_missing, check_lengths
from ..attention import ClassHead
from ..losses import ASSoftmaxLoss, LogLoss, MultilabelASSoftmaxLoss
from .names import ends_of_outputs
from .row_values import orders_of, row_values
from .splits import Split, interleave, split_in_turns
from .target_checks import check_targets, first_of, place_of, refuse_none, refuse_other_labels


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
        The labels of each output: of ordered categories in their order, else sorted.
    several : bool
        Whether `y` has an axis of outputs.
    of_labels : bool
        Whether they are an indicator matrix of labels.
    frequencies : ndarray of shape (C,)
        How frequent each class is.
    """

    def __init__(self, margin: float | None = None, smoothing: bool = True):
        self.margin = margin
        self.smoothing = smoothing

    def fit(self, y: Any, sample_weight: np.ndarray | None = None) -> ClassTargets:
        """Learn the classes of labels, (n,) or (n, n_outputs), and their frequencies.

        Raises
        ------
        ValueError
            As :meth:`check`.
        """
        return self.fit_checked(self.check(y), sample_weight, y)

    def fit_checked(
        self, labels: np.ndarray, sample_weight: np.ndarray | None = None, given: Any = None
    ) -> ClassTargets:
        """Fit to labels that :meth:`check` returned, of targets as they were given."""
        self.several = labels.ndim == 2
        columns = label_columns(labels)
        orders = [None] * len(columns) if given is None else orders_of(given)
        if len(orders) != len(columns):  # of an array of several outputs
            orders = [None] * len(columns)
        self.classes = [
            _in_order(np.unique(column), order)
            for column, order in zip(columns, orders, strict=True)
        ]
        numbers = labels.dtype.kind in "biuf"
        self.of_labels = numbers and is_multilabel(labels) and {*self.sizes} == {2}
        self.frequencies = np.average(self.to_values(labels), axis=0, weights=sample_weight)
        return self

    def check(self, y: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """Validate labels: an array of them, (n,) or (n, n_outputs).

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)
            Labels. A single column causes scikit-learn's warning, and is one output.
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
        refuse_other_labels(columns, y, rows)
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
        """Labels as neighbours contribute them: one-hot rows in float64, (n, C).

        Raises
        ------
        ValueError
            As :meth:`check`, or if a label is none of the classes of fit, or `y` has other
            outputs.
        """
        return self._one_hot(self.check(y), y)

    def to_values(self, labels: np.ndarray) -> Tensor:
        """Turn labels that :meth:`check` returned into one-hot rows."""
        return self._one_hot(labels, labels)

    def _one_hot(self, labels: np.ndarray, y: Any) -> Tensor:
        columns = label_columns(labels)
        if len(columns) != len(self.classes):
            raise ValueError(
                f"y must have {len(self.classes)} outputs as in fit, got {len(columns)}"
            )
        pairs = list(zip(columns, self.classes, strict=True))
        blocks = [column[:, None] == classes for column, classes in pairs]
        unseen = ~np.stack([block.any(axis=1) for block in blocks], axis=1)
        if unseen.any():
            raise ValueError(
                f"y must hold classes of fit, got {first_of(unseen, columns)!r} in "
                f"{place_of(unseen, y)}; fit anew for a new class"
            )
        return torch.from_numpy(np.concatenate(blocks, axis=1)).double()

    def check_same(self, earlier: ClassTargets) -> None:
        """Refuse an earlier fit's classes from which training cannot go on."""
        before, now = earlier.listed(), self.listed()
        if before != now:
            raise ValueError(
                f"warm_start=True needs the classes of the earlier fit, {before!r:.200}, "
                f"got {now!r:.200}"
            )

    def listed(self) -> list:
        """The labels, as a list; of several outputs a list of such."""
        each = [classes.tolist() for classes in self.classes]
        return each if self.several else each[0]

    def encode(self, values: Tensor) -> Tensor:
        """What a network learns: the same in float32."""
        return values.float()

    @property
    def unit(self) -> Tensor:
        """What 1 of a network's adjustments is worth: they are logarithms of odds."""
        return torch.ones(sum(self.sizes), dtype=torch.float64)

    def restore(self, encoded: Tensor) -> Tensor:
        """Turn predictions of a network into probabilities, which they are."""
        return encoded.double()

    def decode(self, means: Tensor) -> np.ndarray:
        """Turn probabilities, (q, C), into the most probable labels."""
        labels = [
            classes[block.argmax(dim=1).cpu().numpy()]
            for classes, block in zip(self.classes, means.split(self.sizes, dim=1), strict=True)
        ]
        return _side_by_side(labels) if self.several else labels[0]

    def log_odds(self, logarithms: np.ndarray) -> np.ndarray:
        """Turn logarithms of probabilities, or differences of them, (..., C), into log odds.

        Of two classes, those of the second; of more, a centred log-ratio for each: the logarithm
        less the mean over the classes.
        """
        return np.concatenate(
            [
                own[..., 1:] - own[..., :1]
                if own.shape[-1] == 2
                else own - own.mean(axis=-1, keepdims=True)
                for own in (logarithms[..., place] for place in self.places)
            ],
            axis=-1,
        )

    def ends_of_log_odds(self, target_names: Sequence[str] | None) -> list[str]:
        """Ends of their names: the output, of several, and the class, of more than two."""
        outputs = zip(ends_of_outputs(target_names, len(self.classes)), self.classes, strict=True)
        each = ([end] if len(own) == 2 else [f"{end}_{c}" for c in own] for end, own in outputs)
        return [end for ends in each for end in ends]

    @property
    def n_adjusted(self) -> int:
        """Number of values that a network itself predicts for a row."""
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
        order = interleave(strata, random_state)
        return split_in_turns(
            order, groups, len(values), n_networks, validation_fraction, random_state
        )


def label_columns(labels: np.ndarray) -> list[np.ndarray]:
    """Labels of each output, (n,), of an array of them, (n,) or (n, n_outputs)."""
    return [_plain(column) for column in labels.reshape(len(labels), -1).T]


def _in_order(classes: np.ndarray, order: tuple | None) -> np.ndarray:
    """Sorted classes in the order of their categories, if these have one."""
    if order is None:
        return classes
    places = {category: place for place, category in enumerate(order)}
    return classes[np.argsort([places[label] for label in classes.tolist()])]


def _plain(labels: np.ndarray) -> np.ndarray:
    """Numbers and truth values among objects as the array that a list of them makes."""
    if labels.dtype == object and all(isinstance(label, Real | np.bool_) for label in labels):
        return np.array(labels.tolist())
    return labels


def _side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Labels of several outputs, (n, n_outputs): objects, if they are of several kinds."""
    alike = len({column.dtype.kind for column in columns}) == 1
    return np.stack(columns if alike else [c.astype(object) for c in columns], axis=1)
