"""Rows as a page shows them: columns of a table, the beginning of a text, or a small picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples

from .._data.columns import INEXACT
from .._data.names import free_name
from .._data.tables import is_frame
from .._estimators.feature_comparison import ComparedColumn, rows_and_queries, rows_of_bank
from .._utils.arrays import object_array
from .formatting import shortened, show

MOST_COLUMNS = 12  # of a table, and classes, that are shown at once
MORE = 3  # columns beyond these that are not folded either, if no further ones follow
LONGEST_BAR = 3.5  # em
#: Lengths of the picture of the rows behind a prediction, which an explorer draws as well.
SHAPE: dict[str, Any] = {
    "width": 720,
    "line": 24,
    "left": 170,
    "right": 20,
    "top": 8,
    "bottom": 26,
    "name": 22,  # characters
    "largest": 8.0,  # radii
    "smallest": 2.5,
    "margin": 0.04,  # of the range of the values, at both ends
}
MOST_CHARACTERS = 201  # of a text, with the mark of its cut end
MOST_PIXELS = 48  # of a picture's longer side
CHANNELS = 1, 3, 4  # grey, colours, colours with transparency
TABLE, TEXTS, IMAGES = "a table", "texts", "images"


@dataclass(frozen=True)
class Appearance:
    """The shown features of a bank's rows, by position, and of queries."""

    kind: str = TABLE  # or TEXTS, or IMAGES
    rows: Sequence[ComparedColumn] = ()  # the columns of a table
    queries: Sequence[ComparedColumn] = ()
    row_items: Any = ()  # the texts or images
    query_items: Any = ()

    @classmethod
    def of(cls, bank: Any, features: Any, X: Any, n_queries: int = 0) -> Appearance:
        """Read the shown features of the bank's rows and of the queries. Both may be None."""
        if features is None:
            return cls()
        kind = kind_of(features)
        if X is not None and kind_of(X) != kind:
            raise ValueError(
                "features and query_features, which are X by default, must be of one kind, got "
                f"{kind} and {kind_of(X)}"
            )
        if X is not None and _num_samples(X) != n_queries:
            raise ValueError(
                f"query_features must have a row for each of {n_queries} queries, got "
                f"{_num_samples(X)}"
            )
        if kind == TABLE:
            rows, queries = rows_and_queries(bank, X, features)
            if X is None:
                queries = [feature[np.arange(0)] for feature in rows]
            return cls(kind, rows, queries)
        items = _array(features)[rows_of_bank(bank, features)]
        return cls(kind, row_items=items, query_items=items[:0] if X is None else _array(X))

    def shown(self, positions: np.ndarray, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """Return the chosen columns, texts or pictures of bank rows, followed by all queries."""
        if self.kind == TABLE:
            columns: dict[str, np.ndarray] = {}
            for j in chosen:
                row, query = self.rows[j], self.queries[j]
                values = np.concatenate([row.shown[positions], query.shown])
                columns[free_name(row.name, columns)] = _plain(values)
            return columns
        items = [*self.row_items[positions], *self.query_items]
        if self.kind == TEXTS:
            return {"text": object_array([shortened(item, MOST_CHARACTERS) for item in items])}
        low, high = float(np.nanmin(self.row_items)), float(np.nanmax(self.row_items))
        return {"picture": object_array([_picture(item, low, high) for item in items])}

    def incomplete(self, positions: np.ndarray, n_rows: int) -> np.ndarray:
        """Return whether bank rows, then all queries, have more gaps than values, (n_rows,)."""
        gaps = np.zeros(n_rows)
        for row, query in zip(self.rows, self.queries, strict=True):
            values = np.concatenate([row.categories[positions], query.categories])
            gaps += [value is None for value in values]
        return gaps > len(self.rows) / 2


def kind_of(X: Any) -> str:
    """Return the kind of features: a table, texts or images."""
    if is_frame(X):
        return TABLE
    values = _array(X)
    if values.ndim == 1 and all(isinstance(value, str) for value in values):
        return TEXTS
    return IMAGES if values.ndim in (3, 4) else TABLE


def _array(X: Any) -> np.ndarray:
    """Return texts or images as an array."""
    try:
        return np.asarray(X)
    except ValueError as error:
        raise ValueError(f"features must be of one shape to be shown: {error!s:.200}") from error


def _plain(values: np.ndarray) -> np.ndarray:
    """Return numbers unchanged, and values of another type as texts."""
    if values.dtype.kind == "f" or (values.dtype.kind in "iu" and (abs(values) < INEXACT).all()):
        return values
    return object_array([shortened(show(value), MOST_CHARACTERS) for value in values])


def _picture(image: np.ndarray, low: float, high: float) -> str:
    """Return a small picture as a data URL. `low` is black and `high` is white."""
    from PIL import Image

    if image.ndim == 3 and image.shape[2] not in CHANNELS and image.shape[0] in CHANNELS:
        image = np.moveaxis(image, 0, 2)  # torch's channels come first
    if image.ndim == 3 and image.shape[2] not in CHANNELS:
        raise ValueError(f"features must be images of 1, 3 or 4 channels, got {image.shape}")
    levels = (np.nan_to_num(image.astype(float), nan=low) - low) * (255 / ((high - low) or 1))
    picture = Image.fromarray(levels.clip(0, 255).round().astype(np.uint8).squeeze())
    picture.thumbnail((MOST_PIXELS, MOST_PIXELS))
    file = io.BytesIO()
    picture.save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
