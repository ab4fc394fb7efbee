"""Validated tables: DataFrames with the columns of fit in their order, or arrays."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from .._utils.validation import unmasked


def is_frame(X: Any, parameter: str = "X") -> bool:
    """Whether X is a DataFrame of any library that narwhals reads; refuses LazyFrames."""
    if isinstance(X, np.ndarray):  # the usual case: narwhals takes as long as a layer of a network
        return False
    try:
        table = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"{parameter} must have columns of different names: {error}") from error
    if isinstance(table, nw.LazyFrame):
        kind = type(X).__name__
        raise TypeError(f"{parameter} must be a table in memory, got {kind}: collect it first")
    return isinstance(table, nw.DataFrame)


def check_table(
    estimator: BaseEstimator, X: Any, *, reset: bool, ensure_min_samples: int = 1
) -> Any:
    """Validate a table: a frame with the columns of fit in their order, or an array.

    With ``reset=True``, in fit, the estimator stores the columns' names and number; later, they
    are compared with these.
    """
    if issparse(X):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required: use X.toarray(), or "
            "sparse_output=False in a OneHotEncoder and the like"
        )
    if not is_frame(X):
        X = as_array(X)
        numbers = X.dtype.kind not in "OUSTmM"
        return validate_data(
            estimator,
            X.astype(object) if X.dtype.kind in "UST" else X,
            reset=reset,
            dtype=np.float64 if numbers else None,
            ensure_all_finite=False,  # the column is named where it is read
            ensure_min_samples=ensure_min_samples,
        )
    frame = nw.from_native(X, eager_only=True)
    seen = getattr(estimator, "feature_names_in_", ())
    if not reset and set(seen) == set(frame.columns):
        X = select_columns(X, list(seen))
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    least = (ensure_min_samples, 1)
    for what, n, minimum in zip(("sample", "feature"), frame.shape, least, strict=True):
        if n < minimum:
            raise ValueError(
                f"Found a table with {n} {what}(s) (shape={frame.shape}) while a minimum of "
                f"{minimum} is required by {type(estimator).__name__}."
            )
    return X


def as_array(X: Any) -> np.ndarray:
    """An array of an array-like, where numbers beside strings stay numbers."""
    X = unmasked(X)
    array = np.asarray(X)
    converted = not (hasattr(X, "__array__") or hasattr(X, "__array_interface__"))
    return np.asarray(X, dtype=object) if converted and array.dtype.kind in "US" else array


def rows_of(X: Any, rows: slice) -> Any:
    """Select rows of a validated table."""
    if isinstance(X, np.ndarray):
        return X[rows]
    return nw.from_native(X, eager_only=True)[rows].to_native()


def names_of_columns(X: Any) -> list:
    """Names of the columns of a frame."""
    return nw.from_native(X, eager_only=True).columns


def select_columns(X: Any, names: list) -> Any:
    """Select columns of a frame, in this order."""
    return nw.from_native(X, eager_only=True).select(names).to_native()
