"""What a feature extractor eats: rows of any kind, taken by number and made into batches."""

from collections.abc import Mapping

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import assert_all_finite
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from .._utils.validation import unmasked

ONE_SHAPE = "X must hold rows of one shape, or collate_fn make a batch of them"
LARGEST_BLOCK = 64  # rows that pass an extractor at a time, where no gradient is wanted


class Rows:
    """Rows of any input, by number. A selection holds numbers, not copies.

    It can be indexed, split and moved like a tensor of rows, so that cross-validation,
    training and banks need not know what a row is.

    Parameters
    ----------
    source : ndarray, Tensor, mapping of these, or sequence
        Where the rows are. A sequence, such as a list of str or a torch Dataset, is asked for
        one row at a time; a tuple's first element is the row.
    collate_fn : callable, optional
        Makes a batch of a list of rows, as for :class:`torch.utils.data.DataLoader`. None:
        arrays are sliced, and sequences collated by torch's default.
    numbers : int ndarray of shape (n,), optional
        The rows that are selected; all by default.
    device : torch.device, default='cpu'
        Where batches go.

    Raises
    ------
    ValueError
        If `source` holds no rows, or rows that no network can take.

    Examples
    --------
    Estimators take sources as they are. ``Rows`` lets scikit-learn split a dict, whose length
    is not its number of rows, or something too large to copy:

    >>> import numpy as np
    >>> from sklearn.model_selection import train_test_split
    >>> from nona_sklearn import Rows
    >>> tokens = {"input_ids": np.ones((8, 5), int), "attention_mask": np.ones((8, 5), int)}
    >>> train, test = train_test_split(Rows(tokens), test_size=3, random_state=0)
    >>> len(train), len(test)
    (5, 3)
    >>> test.batch()["input_ids"].shape
    torch.Size([3, 5])
    """

    def __init__(self, source, collate_fn=None, numbers=None, device="cpu"):
        if numbers is None:
            source = _check_source(source, collate_fn)
            numbers = np.arange(_length(source))
        self.source = source
        self.collate_fn = collate_fn
        self.numbers = numbers
        self.device = device

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows) -> "Rows":
        rows = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        numbers = np.atleast_1d(self.numbers[rows])
        return Rows(self.source, self.collate_fn, numbers, self.device)

    @property
    def shape(self) -> tuple[int]:
        """The number of rows: what scikit-learn asks of all that it splits."""
        return (len(self),)

    def to(self, device, dtype=None) -> "Rows":
        """Let batches go to a device. A batch keeps its type: `dtype` is for tensors."""
        return Rows(self.source, self.collate_fn, self.numbers, device)

    def split(self, size) -> list["Rows"]:
        """Split into blocks of at most `size` rows, and at most LARGEST_BLOCK."""
        size = min(size, LARGEST_BLOCK)
        return [self[i : i + size] for i in range(0, len(self), size)]

    def targets(self) -> list | None:
        """Targets that a torch Dataset holds beside its rows, or None."""
        if isinstance(self.source, Dataset) and isinstance(self.source[0], tuple):
            return [self.source[int(i)][1] for i in self.numbers]
        return None

    def extremes(self) -> "Rows":
        """Two rows to try a network on: of texts, the shortest and the longest."""
        if _is_text(self.source):
            lengths = [len(self.source[number]) for number in self.numbers]
            return self[[int(np.argmin(lengths)), int(np.argmax(lengths))]]
        return self[:2]

    def batch(self):
        """Take the rows out of their source: a tensor or a dict of tensors on the device."""
        return _to_device(self._collate(), self.device)

    def _collate(self):
        if self.collate_fn is None and isinstance(self.source, Mapping):
            return {name: values[self.numbers] for name, values in self.source.items()}
        if self.collate_fn is None and isinstance(self.source, np.ndarray | Tensor):
            return self.source[self.numbers]
        if isinstance(self.source, Mapping):
            rows = [{k: v[i] for k, v in self.source.items()} for i in self.numbers]
        else:
            rows = [_without_target(self.source[int(i)]) for i in self.numbers]
        return (self.collate_fn or _collate_equal)(rows)


def _check_source(source, collate_fn):
    """Turn what was given as X into a source of rows; an error if it cannot be one."""
    if hasattr(source, "iloc"):  # a pandas object
        source = source.to_numpy()
    source = unmasked(source)
    if isinstance(source, np.ndarray) and source.dtype.kind in "OUT" and source.ndim == 1:
        source = source.tolist()
    if isinstance(source, str) or not hasattr(source, "__getitem__") or issparse(source):
        raise ValueError(
            "X must be an array, a tensor, a dict of them, a list or a torch Dataset, got "
            f"{source!r:.100}"
        )
    if isinstance(source, Mapping):
        source = _check_dict(source)
    if _length(source) == 0:
        raise ValueError("X must hold rows, got none")
    if _is_text(source):
        return _check_texts(source, collate_fn)
    if isinstance(source, list) and collate_fn is None and not isinstance(source[0], Mapping):
        source = _stack(source)
    if isinstance(source, np.ndarray | Tensor):
        _check_numbers(source, "X")
    return source


def _check_dict(source):
    source = {name: _as_array(name, values) for name, values in source.items()}
    lengths = {name: len(values) for name, values in source.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"X must hold arrays of one length, got {lengths}")
    return source


def _stack(rows):
    """Make an array, or a tensor, of a list of rows of one shape."""
    try:
        return torch.stack(rows) if isinstance(rows[0], Tensor) else np.asarray(rows)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{ONE_SHAPE}: {error!s:.200}") from error


def _as_array(name, values):
    values = unmasked(values)
    if not hasattr(values, "shape"):
        try:
            values = np.asarray(values)
        except ValueError as error:
            raise ValueError(f"X[{name!r}] must be an array, got ragged rows") from error
    if values.ndim == 0:
        raise ValueError(f"X[{name!r}] must have a row for each sample, got {values!r}")
    _check_numbers(values, f"X[{name!r}]")
    return values


def _check_numbers(array, name):
    if isinstance(array, Tensor):
        if not array.isfinite().all():
            raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
        return
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers or texts, got an array of {array.dtype}")
    assert_all_finite(array, input_name=name)


def _check_texts(texts, collate_fn):
    if collate_fn is None:
        raise ValueError(
            "collate_fn must turn a list of texts into a batch, such as a tokenizer with "
            "padding=True, truncation=True and return_tensors='pt', got None"
        )
    for i, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"X must hold texts that are not empty, got X[{i}]={text!r:.100}")
    return texts


def _is_text(source):
    return isinstance(source, list | tuple) and isinstance(source[0], str)


def _length(source):
    return len(next(iter(source.values()), ())) if isinstance(source, Mapping) else len(source)


def _without_target(row):
    return row[0] if isinstance(row, tuple) else row


def _collate_equal(rows):
    try:
        return default_collate(rows)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{ONE_SHAPE}: {error!s:.200}") from error


def _to_device(batch, device):
    if isinstance(batch, Mapping):
        return {name: _to_device(values, device) for name, values in batch.items()}
    try:
        batch = torch.as_tensor(batch)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(
            "collate_fn must return a tensor or a dict of tensors, padded to one length, got "
            f"{batch!r:.100}"
        ) from error
    return batch.to(device, torch.float32 if batch.is_floating_point() else batch.dtype)
