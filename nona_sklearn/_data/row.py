"""One row of a table with named columns: a dict, a Series, or a frame that is read by cells.

To read every column of a frame as a Series takes longer than a prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

from .._utils.tables import select_columns
from .._utils.validation import object_array, table

#: pandas' types, beside NumPy's, of columns whose cells are Python objects or NumPy's numbers.
PLAIN_TYPES = {"str", "string", "boolean", "Float32", "Float64"} | {
    f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)
}
CATEGORY = "category"


@dataclass(frozen=True)
class Level:
    """Hold the cell of a categorical column, whose strings are no numbers nor dates."""

    value: Any


@dataclass(frozen=True, eq=False)
class Row:
    """Hold one row of a table, in the order of the columns of fit."""

    names: list[str]
    cells: list[Any]
    label: Any = None  # the row's name, if it has one
    given: Any = None  # the frame that holds it

    def __len__(self) -> int:
        return 1

    @property
    def row_labels(self) -> np.ndarray | None:
        """Return the name of the row in an array, or None."""
        return None if self.label is None else object_array([self.label])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return object_array(self.cells)[None]

    def at(self, numbers: Sequence[int]) -> Row:
        """Return the row of the columns that have these numbers."""
        return Row([self.names[j] for j in numbers], [self.cells[j] for j in numbers], self.label)

    @property
    def frame(self) -> Any:
        """Return the row as a frame, of pandas unless it was given."""
        if self.given is not None:
            return self.given
        arrays = (
            np.array([cell]) if isinstance(cell, Number | np.generic) else object_array([cell])
            for cell in self.cells
        )
        frame = table(dict(zip(self.names, arrays, strict=True)))
        return frame if self.label is None else frame.set_axis(self.row_labels)


def row_of_frame(X: Any, names: list[str] | None) -> Row | None:
    """Return the row of a pandas DataFrame of one row with the columns of fit, in any order.

    Return None for any other table, also with a column of a rare type: it is read as a frame,
    which also raises the errors.
    """
    if names is None or not nw.dependencies.is_pandas_dataframe(X) or len(X) != 1:
        return None
    given = X.columns.tolist()
    if given != names:
        if len(given) != len(names) or {*given} != {*names}:
            return None
        X = select_columns(X, names)
    cells, cell_at = [], X.iat
    for j, dtype in enumerate(X.dtypes.tolist()):
        cell = cell_at[0, j]
        if isinstance(dtype, np.dtype):
            if not dtype.isnative or dtype.kind not in "fiubOMm" or dtype.itemsize > 8:
                return None
            if dtype.kind in "Mm":  # with the precision of the column
                cell = cell.to_numpy()
        elif dtype.name == CATEGORY:
            cell = Level(cell.item() if isinstance(cell, np.generic) else cell)
        elif dtype.name not in PLAIN_TYPES:
            return None
        cells.append(cell)
    return Row(names, cells, given=X)


def row_of_mapping(X: Any, names: list[str]) -> Row | None:
    """Return the row that a mapping or a Series is, or None for what is no row.

    Raise a ValueError if columns are missing or unknown.
    """
    given: Mapping[Any, Any]
    label = None
    if nw.dependencies.is_pandas_series(X):
        label, given = X.name, dict(zip(X.index.tolist(), X.tolist(), strict=True))
        if len(given) < len(X) or given.keys().isdisjoint(names):  # it is a column
            return None
    elif isinstance(X, Mapping) and not issparse(X):  # a DOK matrix is a dict
        given = X
        if any(hasattr(v, "__len__") and not isinstance(v, str | bytes) for v in X.values()):
            return None  # it holds columns
    else:
        return None
    unlike = {
        "unseen at fit time": [name for name in given if name not in names],
        "seen at fit time, yet now missing": [name for name in names if name not in given],
    }
    parts = [f"{what}: {str(columns)[1:-1]:.300}" for what, columns in unlike.items() if columns]
    if parts:
        raise ValueError(
            "The feature names should match those that were passed during fit. Feature names "
            + "; ".join(parts)
        )
    return Row(names, [given[name] for name in names], label)
