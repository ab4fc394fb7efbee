"""What travels: rows of a feature extractor, training samples and embedded queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, assert_all_finite
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from .._utils.precision import STORED, stored
from .._utils.validation import spans, unmasked
from .row_values import normalize_mean

if TYPE_CHECKING:
    from .rule_columns import RuleColumns

COLLATED = "collate_fn must return a tensor or a dict of tensors, padded to one length"
LARGEST_BLOCK = 64  # rows that pass through an extractor at a time without gradient


class Rows:
    """Rows of any input, selected by number without copies.

    ``Rows`` can be indexed like an array, so that cross-validation works for images, texts, dicts
    and data sets that are too large to copy.

    Parameters
    ----------
    source : ndarray, Tensor, mapping of arrays or tensors, or sequence
        Data that contain the rows. A sequence, such as a list of str or a torch Dataset, is
        indexed by one row at a time. If an element is a tuple, its first entry is the row.
    collate_fn : callable, optional
        Function that makes a batch from a list of rows, as for
        :class:`torch.utils.data.DataLoader`. If None, arrays are sliced, and sequences are
        collated by torch's default.
    numbers : int ndarray of shape (n,), optional
        Numbers of the selected rows. If None, all rows are selected.
    device : torch.device, default='cpu'
        Device of the batches.

    Raises
    ------
    ValueError
        If `source` contains no rows, or rows that cannot be the input of a network.

    Examples
    --------
    Estimators accept sources directly. ``Rows`` lets scikit-learn split a dict, whose length is
    not its number of rows, or data that are too large to copy:

    >>> import numpy as np
    >>> from sklearn.model_selection import train_test_split
    >>> from nona_sklearn import Rows
    >>> tokens = {"input_ids": np.ones((8, 5), int), "attention_mask": np.ones((8, 5), int)}
    >>> train, test = train_test_split(Rows(tokens), test_size=3, random_state=0)
    >>> [len(rows) for rows in (train, test)]
    [5, 3]
    >>> test.numbers
    array([6, 2, 1])
    """

    def __init__(
        self,
        source: Any,
        collate_fn: Callable[[list], Any] | None = None,
        numbers: np.ndarray | None = None,
        device: torch.device | str = "cpu",
    ):
        if numbers is None:
            source = _check_source(source, collate_fn)
            numbers = np.arange(_length(source))
        self.source = source
        self.collate_fn = collate_fn
        self.numbers = numbers
        self.device = device

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Rows:
        rows = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        numbers = np.atleast_1d(self.numbers[rows])
        return Rows(self.source, self.collate_fn, numbers, self.device)

    @property
    def shape(self) -> tuple[int]:
        """Return the number of rows as a shape, which scikit-learn requires to split rows."""
        return (len(self),)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Rows:
        """Return rows whose batches are on a device; `dtype` is ignored, so types stay."""
        return Rows(self.source, self.collate_fn, self.numbers, device)

    def split(self, size: int) -> list[Rows]:
        """Return blocks of at most `size` and at most LARGEST_BLOCK rows."""
        return [self[rows] for rows in spans(len(self), min(size, LARGEST_BLOCK))]

    def targets(self) -> list | None:
        """Return the targets of a torch Dataset of pairs, or else None."""
        if isinstance(self.source, Dataset) and isinstance(self.source[0], tuple):
            return [self.source[int(i)][1] for i in self.numbers]
        return None

    def extremes(self) -> Rows:
        """Return two rows to test a network with, the shortest and the longest of texts."""
        if _is_text(self.source):
            lengths = [len(self.source[number]) for number in self.numbers]
            return self[[int(np.argmin(lengths)), int(np.argmax(lengths))]]
        return self[:2]

    def batch(self) -> Any:
        """Return the rows as a batch, a tensor or a dict of tensors on the device."""
        if self.collate_fn is not None:
            batch = self.collate_fn(self._listed())
        elif isinstance(self.source, Mapping):
            batch = {name: values[self.numbers] for name, values in self.source.items()}
        elif isinstance(self.source, np.ndarray | Tensor):
            batch = self.source[self.numbers]
        else:
            with _of_one_shape():
                batch = default_collate(self._listed())
        batch = _to_device(batch, self.device)
        if isinstance(batch, Tensor) and batch.ndim == 0:
            raise ValueError(f"{COLLATED}, got {batch.item()!r}")
        return batch

    def _listed(self) -> list:
        if isinstance(self.source, Mapping):
            return [{k: v[i] for k, v in self.source.items()} for i in self.numbers]
        elements = (self.source[int(i)] for i in self.numbers)
        return [row[0] if isinstance(row, tuple) else row for row in elements]


def _check_source(source: Any, collate_fn: Callable | None) -> Any:
    """Return the user's X as a source of rows; raise if it is invalid."""
    source = unmasked(source.to_numpy() if hasattr(source, "iloc") else source)
    if isinstance(source, str) or not hasattr(source, "__getitem__") or issparse(source):
        raise ValueError(
            "X must be an array, a tensor, a dict of them, a list or a torch Dataset, got "
            f"{source!r:.100}"
        )
    if isinstance(source, Mapping):
        source = {name: _check_entry(name, values) for name, values in source.items()}
        lengths = {name: len(values) for name, values in source.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"X must hold arrays of one length, got {lengths}")
    elif isinstance(source, np.ndarray) and source.dtype.kind in "OUT" and source.ndim == 1:
        source = source.tolist()  # an array of objects or texts is read as a list
    if _length(source) == 0:
        raise ValueError("X must hold rows, got none")
    if _is_text(source):
        if collate_fn is None:
            raise ValueError(
                "collate_fn must turn a list of texts into a batch, such as a tokenizer with "
                "padding=True, truncation=True and return_tensors='pt', got None"
            )
        for i, text in enumerate(source):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"X must hold texts that are not empty, got X[{i}]={text!r:.100}")
    elif isinstance(source, list) and collate_fn is None and not isinstance(source[0], Mapping):
        with _of_one_shape():
            is_tensor = isinstance(source[0], Tensor)
            source = torch.stack(source) if is_tensor else np.asarray(source)
    if isinstance(source, np.ndarray | Tensor):
        _check_numbers(source, "X")
    return source


@contextmanager
def _of_one_shape() -> Iterator[None]:
    """Add the remedy to errors about rows that cannot be batched."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"X must hold rows of one shape, or collate_fn make a batch of them: {error!s:.200}"
        ) from error


def _check_entry(name: str, values: Any) -> np.ndarray | Tensor:
    """Return a mapping's validated array or tensor of the given name."""
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


def _check_numbers(array: np.ndarray | Tensor, name: str) -> None:
    if isinstance(array, Tensor):
        if not array.isfinite().all():
            raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
        return
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers or texts, got an array of {array.dtype}")
    assert_all_finite(array, input_name=name)


def _is_text(source: Any) -> bool:
    return isinstance(source, list | tuple) and isinstance(source[0], str)


def _length(source: Any) -> int:
    return len(next(iter(source.values()), ())) if isinstance(source, Mapping) else len(source)


def _to_device(batch: Any, device: torch.device | str) -> Any:
    if isinstance(batch, Mapping):
        return {name: _to_device(values, device) for name, values in batch.items()}
    try:
        batch = torch.as_tensor(batch)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{COLLATED}, got {batch!r:.100}") from error
    return batch.to(device, STORED if batch.is_floating_point() else batch.dtype)


@dataclass(frozen=True, eq=False)
class Sample:
    """Hold training or validation rows of a network."""

    X: Tensor | Rows  # (n, n_features)
    y: Tensor  # (n,) or (n, n_outputs), encoded targets
    log_prior: Tensor | None = None  # (n,), logarithms of sample weights; None: all are equal
    groups: Tensor | None = None  # (n,), codes; rows of a group are no neighbours in training
    times: Tensor | None = None  # (n,), float64; a row is a neighbour of later rows only
    offset: Tensor | None = None  # shape of y, an encoded, cross-fitted trend
    compared: Tensor | None = None  # (n, n_columns), of the columns that a rule compares

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Sample:
        """Return the sample of the given rows."""
        return replace(self, **{name: part[rows] for name, part in self._parts().items()})

    def to(self, device: torch.device) -> Sample:
        """Return the sample on a device."""
        return replace(self, **{name: part.to(device) for name, part in self._parts().items()})

    def _parts(self) -> dict[str, Any]:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def residuals(self) -> Tensor:
        """Return the targets minus the trend, or the targets without a trend."""
        return self.y if self.offset is None else self.y - self.offset

    @property
    def weights(self) -> list[Tensor]:
        """Return the rows' weights (n,) in a list, which is empty if they are equal."""
        return [] if self.log_prior is None else [stored(normalize_mean(self.log_prior))]


@dataclass(frozen=True, eq=False)
class TableRows:
    """Hold rows of a table as encoded features and, if the trend needs them, as given."""

    encoded: Tensor  # (n_rows, n_features)
    given: Any = None  # the same rows of the table as given

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, rows: Any) -> TableRows:
        """Return the given rows."""
        if self.given is None:
            return TableRows(self.encoded[rows])
        given = _safe_indexing(self.given, np.arange(len(self))[rows])
        return TableRows(self.encoded[rows], given)


@dataclass(frozen=True, eq=False)
class Embedded:
    """Hold embedded queries, which methods accept in place of `X`."""

    embeddings: Tensor  # (n_queries, d)
    network: nn.Module | None = None  # the network that embedded the queries
    row_labels: np.ndarray | None = None  # (n_queries,), index labels of the queries' table
    ids: Tensor | None = None  # (n_queries,), ids if queries are bank rows, left out
    times: Tensor | None = None  # (n_queries,); neighbours are earlier
    added: Tensor | None = None  # (n_queries, n_outputs), effect of unknown levels
    inputs: TableRows | None = None  # inputs of the trend, if there is one
    compared: Tensor | None = None  # (n_queries, n_columns), of the columns that rules compare
    columns: RuleColumns | None = None  # these, by whose levels they are numbered

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: np.ndarray | slice) -> Embedded:
        """Return the given queries."""
        names = "embeddings", "row_labels", "ids", "times", "added", "inputs", "compared"
        parts = {name: getattr(self, name) for name in names}
        return replace(self, **{n: part[rows] for n, part in parts.items() if part is not None})
