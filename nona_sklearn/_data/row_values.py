"""Row values beside a table: arrays, groups and sample weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn

import narwhals as nw
import numpy as np
import torch
from sklearn.utils import _safe_indexing, check_array, indexable
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .._utils.precision import exact, stored
from .._utils.validation import are_missing, check_lengths, object_array, unmasked


def as_array(values: Any) -> np.ndarray:
    """Return an array; a list that mixes strings with gaps or numbers becomes objects."""
    values = unmasked(values)
    array = np.asarray(values)
    converted = not (hasattr(values, "__array__") or hasattr(values, "__array_interface__"))
    return np.asarray(values, dtype=object) if converted and array.dtype.kind in "US" else array


def row_values(name: str, values: Any) -> np.ndarray:
    """Return the row values of the parameter `name` as an array; gaps stay gaps."""
    series = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(series, nw.Series):
        if isinstance(series.dtype, nw.Struct):
            fields = [field.name for field in series.dtype.fields]
            _refuse_structure(name, "a column of structs", fields)
        if series.dtype in (nw.Categorical, nw.Enum):
            array = object_array(series.to_list())
            array[series.is_null().to_numpy()] = None
            return array
    array = as_array(values)
    refuse_fields(name, array)
    if array.dtype.kind == "T":
        return array.astype(object)
    if array.dtype.kind == "O" and not hasattr(values, "__array__"):
        for kind in (str, bytes):  # NumPy converts a list of strings to an array of strings
            if array.size and all(isinstance(value, kind) for value in array.flat):
                return array.astype(kind)
    return array


def row_numbers(name: str, values: Any) -> np.ndarray:
    """Return the array of :func:`row_values`, with NaN for gaps among objects."""
    array = row_values(name, values)
    if array.dtype.kind in "OUS":
        array = array.astype(object)
        array[are_missing(array)] = np.nan
    return array


def refuse_fields(name: str, array: np.ndarray) -> None:
    """Raise if an array is structured."""
    if array.dtype.names is not None:
        _refuse_structure(name, "a structured array", array.dtype.names)


def _refuse_structure(name: str, kind: str, fields: Sequence[str]) -> NoReturn:
    raise ValueError(
        f"{name} must not be {kind}, got one with the fields {', '.join(map(repr, fields))}: "
        f"select a field, such as {name}[{fields[-1]!r}], or make a column of each by "
        f"pandas.DataFrame({name})"
    )


# -- sample weights ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RowSelection:
    """Select the rows of positive weight among the rows given to fit."""

    n_given: int
    indices: np.ndarray  # (n,), of the selected rows
    unit: float = 1.0  # weight of a row whose log prior is 0
    log_prior: Tensor | None = None  # (n,), log(weight / unit); None: all weights are equal

    @classmethod
    def of_positive(cls, sample_weight: np.ndarray) -> RowSelection:
        """Return a selection of the rows of positive weight, given checked weights (n_given,)."""
        n_given, indices = len(sample_weight), sample_weight.nonzero()[0]
        if len(indices) < min(2, n_given):  # a table of one row raises later
            raise ValueError(
                "sample_weight must be above zero for at least 2 rows, got "
                f"{len(indices)} of {n_given}"
            )
        largest = sample_weight.max()  # not the unit, since it is the weight of one row
        unit = float(largest * (sample_weight[indices] / largest).mean())
        return cls(n_given, indices, unit, log_prior(sample_weight[indices], unit))

    def select(self, rows: Any) -> Any:
        """Return the selected rows of features or targets, or None for None."""
        if rows is None or len(self.indices) == self.n_given:
            return rows
        check_lengths(self.n_given, _num_samples(rows))
        return _safe_indexing(*indexable(rows), self.indices)

    @property
    def weights(self) -> np.ndarray | None:
        """Return the weights of the selected rows, (n,), with mean 1, or None if all are equal."""
        return None if self.log_prior is None else normalize_mean(self.log_prior).numpy()


def check_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Return validated weights of rows, float64 (n_rows,); None gives ones."""
    if sample_weight is None:
        return np.ones(n_rows)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, sample_weight)
    try:
        weights = check_array(
            row_numbers("sample_weight", sample_weight),
            ensure_2d=False,
            dtype=np.float64,
            order="C",
            ensure_all_finite=False,  # the message below names the row
            ensure_min_samples=0,
            input_name="sample_weight",
        )
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise ValueError(f"sample_weight must hold numbers: {error}") from error
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight must have shape ({n_rows},), got {weights.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise ValueError(
            "sample_weight must be finite and not negative, got "
            f"{float(weights[wrong[0]])!r} in row {wrong[0]}"
        )
    return weights


def log_prior(
    sample_weight: np.ndarray, unit: float, device: torch.device | str = "cpu"
) -> Tensor | None:
    """Return log(sample_weight / unit), float32 (n,), or None if all are 0."""
    logarithms = stored(torch.from_numpy(np.log(sample_weight) - np.log(unit)))
    return logarithms.to(device) if logarithms.any() else None


def multiply(log_prior: Tensor | None, factor: Tensor | None) -> Tensor | None:
    """Return the log of a product of weights (n,), given their logs; None means weights of 1."""
    if log_prior is None or factor is None:
        return factor if log_prior is None else log_prior
    return log_prior + factor


def normalize_mean(log_prior: Tensor) -> Tensor:
    """Return weights (n,) with mean 1, float64, given log priors (n,)."""
    return exact(log_prior).softmax(dim=0) * len(log_prior)


def apply_weights(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return values (n, c) times weights (n,) of mean 1, or the values without weights."""
    return values if weights is None else values * weights[:, None]


def weighted_quantiles(values: np.ndarray, weights: Tensor | None) -> np.ndarray:
    """Return n equally spaced quantiles of weighted values (n,), which have equal weights."""
    if weights is None:
        return values
    order = values.argsort()
    cumulative = weights.cpu().numpy()[order].cumsum()
    levels = (np.arange(len(values)) + 0.5) / len(values) * cumulative[-1]
    return values[order][cumulative.searchsorted(levels)]


# -- groups ------------------------------------------------------------------------------------


def check_groups(groups: Any, n_rows: int) -> np.ndarray:
    """Return validated group names of rows, (n_rows,), of which none is missing."""
    groups = row_values("groups", groups)
    if groups.ndim == 2 and groups.shape[1] == 1:
        groups = groups[:, 0]
    if groups.ndim != 1:
        raise ValueError(f"groups must have shape ({n_rows},), got {groups.shape}")
    if len(groups) != n_rows:
        raise ValueError(f"groups must have a value for each of {n_rows} rows, got {len(groups)}")
    missing = np.flatnonzero(are_missing(groups))
    if len(missing):
        row = missing[0]
        raise ValueError(f"groups must not be missing, got {groups[row]} in row {row}")
    return groups


def number_groups(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted names of the groups (n,) of rows, and the rows' group codes, (n,)."""
    names, codes = _unique(groups)
    if len(names) < 2:
        raise ValueError(f"groups must hold at least 2 different ones, all rows are in {names[0]}")
    return names, codes


def number_new_groups(
    groups: np.ndarray | None, n_rows: int, names: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a bank's group names with appended new names, and the new rows' codes (n_rows,).

    Without groups, every new row is a separate group, whose name is None.
    """
    if groups is None:
        return np.append(names, np.full(n_rows, None)), len(names) + np.arange(n_rows)
    group_names, codes = _unique(groups)
    code_of = {name: code for code, name in enumerate(names.tolist())}
    new_names = [name for name in group_names.tolist() if name not in code_of]
    code_of |= {name: len(names) + i for i, name in enumerate(new_names)}
    all_names = object_array([*names.tolist(), *new_names])
    return all_names, np.array([code_of[name] for name in group_names.tolist()], dtype=int)[codes]


def _unique(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted group names, and the rows' group codes (n,)."""
    try:
        return np.unique(groups, return_inverse=True)
    except TypeError:  # names of several kinds have no order
        kinds = ", ".join(sorted({type(group).__name__ for group in groups}))
        raise ValueError(f"groups must be of one kind, got {kinds}") from None
