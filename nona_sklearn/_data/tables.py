"""Validated tables, and the names of their rows and columns.

A table is an array, a sparse matrix or a DataFrame of any library. Columns have the order of fit.
"""

from __future__ import annotations

from collections.abc import (
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MappingView,
    Sequence,
    Set,
)
from dataclasses import dataclass
from numbers import Number
from os import PathLike
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import validate_data

from .._utils.tables import (
    are_row_numbers,
    counts_rows,
    free_name,
    index_of,
    is_frame,
    names_of_columns,
    numbers_as_names,
    select_columns,
    target_names_of,
)
from .row import Row
from .row_values import as_array, refuse_fields
from .sample import Embedded


@dataclass(frozen=True)
class Names:
    """Hold the names of rows, and of the outputs of their targets."""

    row_labels: np.ndarray | None = None  # (n,), the labels of an index
    targets: tuple[str, ...] | None = None  # the name of a Series, or the columns of a DataFrame

    @classmethod
    def of(cls, X: Any, y: Any) -> Names:
        """Return the names in the data; row names come from `X`, or from `y` if `X` has none."""
        labels = labels_of(X)
        return cls(labels_of(y) if labels is None else labels, target_names_of(y))

    def __getitem__(self, rows: np.ndarray) -> Names:
        """Return the names of the given rows."""
        return Names(None if self.row_labels is None else self.row_labels[rows], self.targets)


# -- rows --------------------------------------------------------------------------------------


def labels_of(X: Any) -> np.ndarray | None:
    """Return the labels of a table's index, (n,), or None if the labels only count rows."""
    if isinstance(X, Embedded):
        return X.row_labels
    if counts_rows(X):
        return None
    labels = X.row_labels if isinstance(X, Row) else index_of(X)
    return None if labels is None or are_row_numbers(labels) else labels


def names_of_new(
    labels: np.ndarray | None, ids: np.ndarray, taken: Iterable[Hashable], numbered: bool
) -> np.ndarray:
    """Return names of rows that are added to a bank, (n,): labels, or else ids.

    In a `numbered` bank, names are ids, and numeric labels are ignored, since they count rows. New
    names may repeat only if stored names do.
    """
    names: Iterable = ids.tolist()
    if labels is None and not numbered:
        stored = {*taken}
        names = (free_name(f"added {row_id}", stored) for row_id in ids)
    elif labels is not None:
        pairs = zip(labels, names, strict=True)
        names = [i if numbered and isinstance(label, Number) else label for label, i in pairs]
        _refuse_taken(names, [*taken])
    return np.fromiter(names, dtype=object, count=len(ids))


def _refuse_taken(names: Iterable[Hashable], taken: Collection[Hashable]) -> None:
    """Raise if a name is taken or repeats, unless stored rows already share names."""
    seen = {*taken}
    if len(seen) < len(taken):
        return
    for row, name in enumerate(names):
        if name in seen:
            owner = "rows before it"
            remedy = "give each its own in the index, or leave out names by reset_index(drop=True)"
            if name in taken:
                owner = "a row of the bank"
                remedy += f", or first replace that row, by remove_neighbors(names={name!r:.80})"
            raise ValueError(
                f"added rows must have other names than stored ones, and {name!r:.80} in row "
                f"{row} is the name of {owner}: {remedy}"
            )
        seen.add(name)


# -- outputs -----------------------------------------------------------------------------------


def in_order_of(target_names: tuple[str, ...] | None, y: Any) -> Any:
    """Return targets with columns in the order of the names; unnamed columns are numbered."""
    y_names = target_names_of(y)
    n_columns = len(getattr(y, "columns", ()))
    names = y_names or numbers_as_names(n_columns)
    expected = target_names or numbers_as_names(n_columns)
    if n_columns > 1 and {*names} == {*expected}:
        return _safe_indexing(y, [names.index(name) for name in expected], axis=1)
    if y_names is None or target_names is None or len(y_names) == 1:
        return y
    raise ValueError(f"y must have the columns {[*expected]}, got {[*names]}")


def ends_of_outputs(names: Sequence[str] | None, n_outputs: int) -> list[str]:
    """Return the suffixes of the outputs' columns: empty for one output, else the names."""
    return [""] if n_outputs == 1 else [f"_{output}" for output in names or range(n_outputs)]


def check_table(
    estimator: BaseEstimator,
    X: Any,
    *,
    reset: bool,
    contents: Sequence[str] = (),
    ensure_min_samples: int = 1,
    accept_sparse: bool = False,
) -> Any:
    """Return a validated DataFrame with the columns of fit in order, array or CSR matrix.

    With ``reset=True``, in fit, the estimator stores the number and the labels of the columns;
    later columns are compared with them. `contents` describe the columns in fit, to refuse an
    array in place of a DataFrame.
    """
    refuse_no_table(X, reset)
    if issparse(X) and not accept_sparse:
        raise TypeError(
            "Sparse data was passed for X, but dense data is required: use X.toarray(), or "
            "sparse_output=False in a OneHotEncoder and the like"
        )
    if reset:
        vars(estimator).pop("_column_labels", None)
    if not issparse(X) and is_frame(X):
        return _check_frame(estimator, X, reset, ensure_min_samples)
    if not issparse(X):
        X = as_array(X)
        refuse_fields("X", X)
    if not reset:
        _refuse_unnamed(labels_of_fit(estimator), contents)
    numeric = issparse(X) or X.dtype.kind not in "OUSTmM"
    checked = validate_data(
        estimator,
        X.astype(object) if X.dtype.kind in "UST" else X,
        reset=reset,
        accept_sparse="csr",
        dtype=np.float64 if numeric else None,
        ensure_all_finite=False,  # the column is named where it is read
        ensure_min_samples=ensure_min_samples,
    )
    if issparse(checked) and not np.isfinite(checked.data).all():
        i = np.isfinite(checked.data).argmin()
        row = np.searchsorted(checked.indptr, i, side="right") - 1
        raise ValueError(
            f"a sparse X must hold finite numbers, got {checked.data[i]} in row {row} of column "
            f"{checked.indices[i]}"
        )
    return checked


def _check_frame(estimator: BaseEstimator, X: Any, reset: bool, ensure_min_samples: int) -> Any:
    if not reset:
        X = _in_order_of_fit(estimator, X)
    labels = names_of_columns(X)
    shape = nw.from_native(X, eager_only=True).shape
    if all(isinstance(label, str) for label in labels):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    else:  # scikit-learn ignores names that are not strings, as if X were an array
        array = np.broadcast_to(0.0, shape)
        validate_data(estimator, array, reset=reset, skip_check_array=True)
        if reset:
            vars(estimator)["_column_labels"] = labels
    least = (ensure_min_samples, 1)
    for what, n, minimum in zip(("sample", "feature"), shape, least, strict=True):
        if n < minimum:
            raise ValueError(
                f"Found a table with {n} {what}(s) (shape={shape}) while a minimum of "
                f"{minimum} is required by {type(estimator).__name__}."
            )
    return X


def read_again(estimator: BaseEstimator, X: Any) -> Any:
    """Return a table again as :func:`check_table` returned it after fit."""
    if issparse(X):
        return X.tocsr()
    if is_frame(X):
        return _in_order_of_fit(estimator, X)
    X = as_array(X)
    if X.dtype.kind in "mMO":
        return X
    return X.astype(object if X.dtype.kind in "UST" else np.float64)


def refuse_no_table(X: Any, in_fit: bool) -> None:
    """Raise if X is a Series, targets, a file, or an object that only pandas reads."""
    if nw.dependencies.is_into_series(X):
        remedy = "one row of a pandas DataFrame is X.loc[[label]] or X.iloc[[position]]"
        if in_fit:
            remedy = (
                f"one column of a DataFrame is X[[{X.name or 'name'!r}]]. If these are the "
                "targets, X and y are swapped: it is fit(X, y)"
            )
        raise ValueError(f"Expected 2D array, got a Series of {len(X)} values instead: {remedy}")
    if issparse(X):  # a DOK matrix is a dict
        return
    if in_fit and isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.names is None:
        raise ValueError(
            f"Expected 2D array, got 1D array of {len(X)} values instead: one feature is "
            "X.reshape(-1, 1). If these are the targets, X and y are swapped: it is fit(X, y)"
        )
    if isinstance(X, str | bytes | PathLike):
        raise ValueError(f"X must be a table, got {X!r:.100}: read a file by pandas.read_csv")
    of_mappings = isinstance(X, Sequence) and len(X) and isinstance(X[0], Mapping)
    if of_mappings or isinstance(X, Mapping | Iterator | Set | MappingView):
        kind = f"list of {type(X[0]).__name__}s" if of_mappings else type(X).__name__
        is_row = isinstance(X, Mapping) and not any(np.ndim(cell) for cell in X.values())
        remedy = "pandas.DataFrame([X])" if is_row else "pandas.DataFrame(X)"
        raise ValueError(f"X must be a table, got a {kind}: pass {remedy}")


def labels_of_fit(estimator: BaseEstimator) -> list | None:
    """Return the column labels of the DataFrame in fit, or None for an array."""
    names = getattr(estimator, "feature_names_in_", None)
    return getattr(estimator, "_column_labels", None) if names is None else [*names]


def _in_order_of_fit(estimator: BaseEstimator, X: Any) -> Any:
    """Return a frame with the columns in the order of fit; columns of an array have numbers."""
    labels = names_of_columns(X)
    seen = labels_of_fit(estimator)
    order = [*range(getattr(estimator, "n_features_in_", 0))] if seen is None else seen
    if {*order} == {*labels}:
        return X if labels == order else select_columns(X, order)
    if seen is not None and not all(isinstance(label, str) for label in (*seen, *labels)):
        unlike = {
            "unseen at fit time": [label for label in labels if label not in seen],
            "seen at fit time, yet now missing": [label for label in seen if label not in labels],
        }
        parts = [f"{what}: {str(names)[1:-1]:.300}" for what, names in unlike.items() if names]
        raise ValueError(
            "The feature names should match those that were passed during fit. Feature names "
            + "; ".join(parts)
        )
    return X


def _refuse_unnamed(labels: list | None, contents: Sequence[str]) -> None:
    """Raise for an array if the frame in fit had several columns, not all of numbers."""
    if labels is None or len(labels) == 1:
        return
    for label, holds in zip(labels, contents, strict=False):
        if holds not in ("numbers", "numbers as categories", "nothing"):
            raise ValueError(
                "X must be a DataFrame as in fit, since an array does not tell which column is "
                f"{label!r}, which held {holds}: pass "
                "pandas.DataFrame(X, columns=...) with the names of fit"
            )


def as_dense(X: Any) -> Any:
    """Return a sparse matrix as an array, and a table unchanged."""
    return X.toarray() if issparse(X) else X


def column_named(parameter: str, X: Any, name: str) -> Any:
    """Return the column that a parameter names, as a Series of the frame's library."""
    if not is_frame(X):
        raise ValueError(
            f"{parameter}={name!r} needs X to be a DataFrame with such a column, got "
            f"{type(X).__name__}"
        )
    if name not in names_of_columns(X):
        raise ValueError(f"{parameter} must name a column of X, got {name!r}")
    return nw.from_native(X, eager_only=True)[name].to_native()
