"""Sources of network inputs: a table, or rows for a feature extractor.

A source selects training rows, learns how to encode them, and encodes queries in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .._utils.arrays import EMBED_BLOCK, spans
from .levels import columns_of_targets
from .rows import Rows
from .scaler import SmoothClipScaler, refuse_tiny_spread
from .sparse_encoder import SparseEncoder, is_wide
from .table_encoder import TableEncoder
from .tables import as_dense, check_table, read_again, refuse_no_table, rows_of

#: Fitted attributes that exist for tables only, not for rows of a feature extractor.
OF_TABLES = "n_features_in_", "feature_names_in_", "features_", "_column_labels"


@dataclass
class TableSource:
    """Encode and scale the columns of a table or a sparse matrix to float32."""

    #: scikit-learn's checks store the number and the names of the columns on it.
    estimator: BaseEstimator
    encoder: TableEncoder | SparseEncoder
    scaler: BaseEstimator | None  # None: encoded columns are not scaled
    #: Encoder and scaler of a wide sparse matrix. If an earlier fit is continued, the fitted
    #: encoder is kept, since the networks have weights for its components.
    component_encoder: SparseEncoder | None = None
    component_scaler: BaseEstimator | None = None

    @classmethod
    def of_fitted(cls, estimator: Any) -> TableSource:
        """Return the source of a fitted estimator, from its fitted attributes."""
        return cls(estimator, estimator.features_, estimator.scaler_)

    def store(self, estimator: Any) -> None:
        """Set the fitted attributes of an estimator."""
        estimator.features_ = self.encoder
        estimator.scaler_ = self.scaler

    def accept(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return a table whose rows can be selected, and unchanged targets."""
        refuse_no_table(X, in_fit=True)
        return X.tocsr() if issparse(X) else X, y

    def check(self, X: Any) -> Any:
        """Return validated training rows."""
        X = check_table(self.estimator, X, reset=True, ensure_min_samples=2, accept_sparse=True)
        if issparse(X) and isinstance(self.encoder, TableEncoder):
            categories = self.encoder.categorical_features
            texts = self.encoder.text_features
            if categories is not None and not isinstance(categories, str):
                raise ValueError(
                    "categorical_features must be 'from_dtype' or None where X is sparse, got "
                    f"{categories!r:.80}: encode the categories first, such as by a OneHotEncoder"
                )
            if texts is not None:
                raise ValueError(
                    f"text_features must be None where X is sparse, got {texts!r:.80}: X holds "
                    "numbers only"
                )
        return X

    def fit(self, X: Any, y: np.ndarray | None) -> Tensor:
        """Fit encoder and scaler, and return the encoded training rows, (n, n_features).

        Encoded targets `y`, (n,) or (n, c), allow target encoding of columns.
        """
        targets = None if y is None else columns_of_targets(y)
        if is_wide(X) and self.component_encoder is not None:
            self.encoder, self.scaler = self.component_encoder, self.component_scaler
        if isinstance(self.encoder, TableEncoder):
            encoded = self.encoder.fit_transform_by(as_dense(X), targets)
        elif not hasattr(self.encoder, "svd_"):
            encoded = self.encoder.fit_transform(X, targets)
        elif X.shape[1] == self.encoder.n_features:
            encoded = self.encoder.transform_validated(X)
        else:
            raise ValueError(
                "warm_start=True needs the columns of the earlier fit: X had "
                f"{self.encoder.n_features}, and has {X.shape[1]} now"
            )
        if isinstance(self.scaler, StandardScaler):  # SmoothClipScaler chooses units by itself
            with np.errstate(over="ignore", invalid="ignore"):
                refuse_tiny_spread(encoded, self.encoder.label_of)
        if self.scaler is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # _scale checks the result
                self.scaler = self.scaler.set_output(transform="default").fit(encoded)
        return self._scale(encoded, 0)

    def blocks(self, X: Any) -> Iterator[tuple[Any, Tensor]]:
        """Yield blocks of validated queries, as given and encoded, (n_block, n_features)."""
        contents = self.encoder.contents if isinstance(self.encoder, TableEncoder) else ()
        X = check_table(self.estimator, X, reset=False, contents=contents, accept_sparse=True)
        for rows in spans(_num_samples(X), EMBED_BLOCK):
            given = rows_of(X, rows)
            yield given, self._scale(self.encoder.transform_validated(given), rows.start)

    def encode(self, X: Any) -> Tensor:
        """Return encoded queries, (n, n_features), after validation."""
        return torch.cat([encoded for _, encoded in self.blocks(X)])

    def levels(self, X: Any) -> np.ndarray | None:
        """Return codes of the levels of valid rows, int32 (n, n_categories), or None."""
        if not isinstance(self.encoder, TableEncoder):
            return None
        return self.encoder.level_codes(read_again(self.estimator, X))

    def unknown_levels(self, X: Any) -> np.ndarray | None:
        """Return whether levels of valid rows are unknown, bool (n, n_categories), or None."""
        if not isinstance(self.encoder, TableEncoder):
            return None
        return self.encoder.unknown_levels(read_again(self.estimator, X))

    @np.errstate(over="ignore", invalid="ignore")  # the result is checked
    def _scale(self, encoded: np.ndarray, first_row: int) -> Tensor:
        """Return scaled rows as a new float32 tensor; raise if distances would overflow."""
        if isinstance(self.scaler, SmoothClipScaler):
            scaled = self.scaler.scale(encoded)
        else:
            scaled = encoded if self.scaler is None else self.scaler.transform(encoded)
            scaled = check_array(
                scaled, dtype=np.float32, ensure_min_samples=0, ensure_all_finite=False
            )
        tensor = torch.tensor(scaled, dtype=torch.float32)
        beyond = (~(tensor.abs() <= largest_entry(tensor))).nonzero()
        if len(beyond):
            values = np.abs(encoded[:, int(beyond[0, 1])])  # the mean may be infinite
            row = int(np.nanargmax(values))
            raise ValueError(
                f"Input X contains infinity or a value too large for float32: {values[row]:g} in "
                f"row {first_row + row}"
            )
        return tensor


@dataclass
class RowsSource:
    """Pass rows of any kind, such as images or texts, to a feature extractor in batches."""

    collate_fn: Any = None  # function that makes a batch from a list of rows

    def store(self, estimator: Any) -> None:
        """Set the fitted attributes of an estimator, and remove attributes of tables."""
        for name in OF_TABLES:
            vars(estimator).pop(name, None)
        estimator.scaler_ = None

    def accept(self, X: Any, y: Any) -> tuple[Rows, Any]:
        """Return selectable rows, and the targets, which may come from a torch Dataset."""
        rows = self.encode(X)
        return rows, rows.targets() if y is None else y

    def check(self, X: Rows) -> Rows:
        """Return training rows; raise if they are too few."""
        if len(X) < 2:
            raise ValueError("X must have at least 2 rows to fit, got 1")
        return X

    def fit(self, X: Rows, y: np.ndarray | None) -> Rows:
        """Return the rows unchanged."""
        return X

    def encode(self, X: Any) -> Rows:
        """Return new rows as :class:`Rows`."""
        return X if isinstance(X, Rows) else Rows(X, self.collate_fn)

    def blocks(self, X: Any) -> Iterator[tuple[Rows, Rows]]:
        """Yield blocks of queries twice, as given and as input, since rows are not encoded."""
        X = self.encode(X)
        for rows in spans(len(X), EMBED_BLOCK):
            block = X[rows]
            yield block, block

    def levels(self, X: Any) -> None:
        """Return None: there are no categorical columns."""
        return

    def unknown_levels(self, X: Any) -> None:
        """Return None: there are no categorical columns."""
        return


Source = TableSource | RowsSource


def largest_entry(rows: Tensor) -> float:
    """Return the largest entry of rows (n, d) whose distances are within float32's range."""
    return torch.finfo(torch.float32).max / (4 * max(1, rows.shape[1]))
