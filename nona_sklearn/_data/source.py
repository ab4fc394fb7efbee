"""The two forms of input, a table or rows for a feature extractor, as the input of networks.

A source selects rows of what `fit` is given, learns how to encode it, and encodes queries alike.
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

#: Fitted attributes that an estimator of rows for an extractor lacks.
OF_TABLES = "n_features_in_", "feature_names_in_", "features_", "_column_labels"


@dataclass
class TableSource:
    """Rows of a table, or of a sparse matrix: columns are encoded, then scaled, to float32."""

    #: On which scikit-learn's checks record the number and names of columns, to compare later.
    estimator: BaseEstimator
    encoder: TableEncoder | SparseEncoder
    scaler: BaseEstimator | None  # None: encoded columns stay as they are
    #: In place of these, for a wide sparse matrix. One that is fitted, by an earlier fit whose
    #: training goes on, stays: networks have weights for its components.
    component_encoder: SparseEncoder | None = None
    component_scaler: BaseEstimator | None = None

    @classmethod
    def of_fitted(cls, estimator: Any) -> TableSource:
        """Return the source that an estimator was fitted with, from its fitted attributes."""
        return cls(estimator, estimator.features_, estimator.scaler_)

    def store(self, estimator: Any) -> None:
        """Set the fitted attributes of an estimator."""
        estimator.features_ = self.encoder
        estimator.scaler_ = self.scaler

    def accept(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Give a table a form whose rows can be selected; targets stay as they are."""
        refuse_no_table(X, in_fit=True)
        return X.tocsr() if issparse(X) else X, y

    def check(self, X: Any) -> Any:
        """Validate training rows."""
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
        """Fit encoder and scaler to validated training rows, and encode these: (n, n_features).

        Columns may be encoded by encoded targets `y`, (n,) or (n, c), if they are given.
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
        if isinstance(self.scaler, StandardScaler):  # SmoothClipScaler has a unit for each column
            with np.errstate(over="ignore", invalid="ignore"):
                refuse_tiny_spread(encoded, self.encoder.label_of)
        if self.scaler is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # _scale checks the result
                self.scaler = self.scaler.set_output(transform="default").fit(encoded)
        return self._scale(encoded, 0)

    def blocks(self, X: Any) -> Iterator[tuple[Any, Tensor]]:
        """Validate queries; yield blocks of them as given, and encoded: (n_block, n_features)."""
        contents = self.encoder.contents if isinstance(self.encoder, TableEncoder) else ()
        X = check_table(self.estimator, X, reset=False, contents=contents, accept_sparse=True)
        for rows in spans(_num_samples(X), EMBED_BLOCK):
            given = rows_of(X, rows)
            yield given, self._scale(self.encoder.transform_validated(given), rows.start)

    def encode(self, X: Any) -> Tensor:
        """Validate queries, and encode them: (n, n_features)."""
        return torch.cat([encoded for _, encoded in self.blocks(X)])

    def levels(self, X: Any) -> np.ndarray | None:
        """Return the codes of valid rows' levels, int32 (n, n_categories), or None."""
        if not isinstance(self.encoder, TableEncoder):
            return None
        return self.encoder.level_codes(read_again(self.estimator, X))

    def unknown_levels(self, X: Any) -> np.ndarray | None:
        """Return which levels of valid rows are unknown, bool (n, n_categories), or None."""
        if not isinstance(self.encoder, TableEncoder):
            return None
        return self.encoder.unknown_levels(read_again(self.estimator, X))

    @np.errstate(over="ignore", invalid="ignore")  # the result is checked
    def _scale(self, encoded: np.ndarray, first_row: int) -> Tensor:
        """Scale encoded rows to a new float32 tensor, within whose range distances stay."""
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
            values = np.abs(encoded[:, int(beyond[0, 1])])  # a mean of them may be infinite
            row = int(np.nanargmax(values))
            raise ValueError(
                f"Input X contains infinity or a value too large for float32: {values[row]:g} in "
                f"row {first_row + row}"
            )
        return tensor


@dataclass
class RowsSource:
    """Rows of any kind, such as images or texts, which a feature extractor takes in batches."""

    collate_fn: Any = None  # makes a batch of a list of rows

    def store(self, estimator: Any) -> None:
        """Set the fitted attributes of an estimator, and remove those of an earlier fit."""
        for name in OF_TABLES:
            vars(estimator).pop(name, None)
        estimator.scaler_ = None

    def accept(self, X: Any, y: Any) -> tuple[Rows, Any]:
        """Make rows that can be selected; the targets may be those of a torch Dataset."""
        rows = self.encode(X)
        return rows, rows.targets() if y is None else y

    def check(self, X: Rows) -> Rows:
        """Check the number of training rows."""
        if len(X) < 2:
            raise ValueError("X must have at least 2 rows to fit, got 1")
        return X

    def fit(self, X: Rows, y: np.ndarray | None) -> Rows:
        """Return rows as they are."""
        return X

    def encode(self, X: Any) -> Rows:
        """Take new rows."""
        return X if isinstance(X, Rows) else Rows(X, self.collate_fn)

    def blocks(self, X: Any) -> Iterator[tuple[Rows, Rows]]:
        """Yield blocks of queries, twice: they are not encoded."""
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
