"""Two forms of input, a table or rows for a feature extractor, as the input of networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array
from sklearn.utils.validation import _num_samples
from torch import Tensor

from .._data.cross_fitting import columns_of_targets
from .._data.rows import Rows
from .._data.scaler import SmoothClipScaler
from .._data.sparse_encoder import SparseEncoder, is_wide
from .._data.table_encoder import TableEncoder
from .._data.tables import as_dense, check_table, read_again, refuse_no_table, rows_of
from .._data.target_checks import refuse_tiny_spread
from .._utils.chunks import EMBED_BLOCK, spans
from .._utils.validation import is_whole


class TableInput:
    """Rows of a table, or of a sparse matrix: columns are encoded, then scaled, to float32.

    Parameters
    ----------
    estimator : BaseEstimator
        Its attributes hold what is fitted: ``features_``, ``scaler_``, ``n_features_in_`` and
        ``feature_names_in_``.
    scaler : transformer, optional
        Scales the features; only for :meth:`fit`.
    component_scaler : transformer, optional
        Scales the components of a wide sparse matrix; None: they stay. Only for :meth:`fit`.
    component_encoder : SparseEncoder, optional
        Finds these components; only for :meth:`fit`.
    """

    def __init__(
        self,
        estimator: Any,
        scaler: BaseEstimator | None = None,
        component_scaler: BaseEstimator | None = None,
        component_encoder: SparseEncoder | None = None,
    ):
        self.estimator = estimator
        self.scaler = scaler
        self.component_scaler = component_scaler
        self.component_encoder = component_encoder

    def accept(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Leave a table, and targets, as they are, but in a form whose rows can be selected."""
        refuse_no_table(X, in_fit=True)
        return X.tocsr() if issparse(X) else X, y

    def check(self, X: Any) -> Any:
        """Validate training rows."""
        X = check_table(self.estimator, X, reset=True, ensure_min_samples=2, accept_sparse=True)
        if issparse(X):
            self._refuse_other_columns()
        return X

    def fit(self, X: Any, y: np.ndarray | None) -> Tensor:
        """Fit encoder and scaler to validated training rows, and encode them: (n, n_features).

        `y`, (n,) or (n, c), are encoded targets, by which columns may be encoded; or None.
        """
        encoder, X = self._encode_first(X, y)
        scaler = self.component_scaler if isinstance(encoder, SparseEncoder) else self.scaler
        scaler = fit_scaler(scaler, X, encoder.label_of)
        self.estimator.features_, self.estimator.scaler_ = encoder, scaler
        return to_tensor(X, scaler)

    def _refuse_other_columns(self) -> None:
        """Refuse categories and texts of a sparse matrix, which holds numbers."""
        chosen, texts = self.estimator.categorical_features, self.estimator.text_features
        if chosen is not None and not isinstance(chosen, str):
            raise ValueError(
                "categorical_features must be 'from_dtype' or None where X is sparse, got "
                f"{chosen!r:.80}: encode the categories first, such as by a OneHotEncoder"
            )
        if texts is not None:
            raise ValueError(
                f"text_features must be None where X is sparse, got {texts!r:.80}: X holds "
                "numbers only"
            )

    def _encode_first(
        self, X: Any, y: np.ndarray | None
    ) -> tuple[TableEncoder | SparseEncoder, np.ndarray]:
        """Fit the encoder that suits training rows, and encode them: (n, n_encoded)."""
        targets = None if y is None else columns_of_targets(y)
        if not is_wide(X):
            names = ("categorical_features", "text_features", "max_categories")
            table = TableEncoder(**{name: getattr(self.estimator, name) for name in names})
            table.set_output(transform="default")  # arrays, whatever is configured
            return table, table.fit_transform_by(as_dense(X), targets)
        earlier = getattr(self.estimator, "features_", None)
        if self.estimator.warm_start and isinstance(earlier, SparseEncoder):
            if X.shape[1] != earlier.n_features:
                raise ValueError(
                    "warm_start=True needs the columns of the earlier fit: X had "
                    f"{earlier.n_features}, and has {X.shape[1]} now"
                )
            return earlier, earlier.transform_validated(X)  # its weights are those of its axes
        encoder = self.component_encoder or SparseEncoder()
        return encoder, encoder.fit_transform(X, targets)

    def encode(self, X: Any) -> Tensor:
        """Validate other rows, and encode and scale them: (n, n_features)."""
        return torch.cat([encoded for _, encoded in self.blocks(X)])

    def levels(self, X: Any) -> np.ndarray | None:
        """Which level of each category valid rows have, int32 (n, n_categories); or None."""
        encoder = self.estimator.features_
        if not isinstance(encoder, TableEncoder):
            return None
        return encoder.level_codes(read_again(self.estimator, X))

    def unknown_levels(self, X: Any) -> np.ndarray | None:
        """Which categories of valid rows have an unknown level, bool (n, n_categories)."""
        encoder = self.estimator.features_
        if not isinstance(encoder, TableEncoder):
            return None
        return encoder.unknown_levels(read_again(self.estimator, X))

    def blocks(self, X: Any) -> Iterator[tuple[Any, Tensor]]:
        """Validate queries; yield some of them at a time, as given, and encoded and scaled."""
        X = check_table(self.estimator, X, reset=False, accept_sparse=True)
        for rows in spans(_num_samples(X), EMBED_BLOCK):
            given = rows_of(X, rows)
            encoded = self.estimator.features_.transform_validated(given)
            yield given, to_tensor(encoded, self.estimator.scaler_, rows.start)


class RowsInput:
    """Rows of any kind, such as images or texts, which a feature extractor takes in batches.

    Parameters
    ----------
    estimator : BaseEstimator
        Attributes of the table of an earlier fit are removed from it.
    collate_fn : callable, optional
        Makes a batch of a list of rows.
    """

    def __init__(self, estimator: Any, collate_fn: Any):
        self.estimator = estimator
        self.collate_fn = collate_fn

    def accept(self, X: Any, y: Any) -> tuple[Rows, Any]:
        """Make rows that can be selected; the targets may be those of a torch Dataset."""
        rows = self._as_rows(X)
        return rows, rows.targets() if y is None else y

    def check(self, X: Rows) -> Rows:
        """Check the number of training rows."""
        if len(X) < 2:
            raise ValueError("X must have at least 2 rows to fit, got 1")
        return X

    def fit(self, X: Rows, y: np.ndarray | None) -> Rows:
        """Leave rows as they are."""
        for name in ("n_features_in_", "feature_names_in_", "features_", "_column_labels"):
            vars(self.estimator).pop(name, None)  # of an earlier fit
        self.estimator.scaler_ = None
        return X

    def encode(self, X: Any) -> Rows:
        """Take other rows."""
        return self._as_rows(X)

    def levels(self, X: Any) -> None:
        """Rows of no table have no categories."""
        return

    def unknown_levels(self, X: Any) -> None:
        """Rows of no table have no categories."""
        return

    def blocks(self, X: Any) -> Iterator[tuple[Rows, Rows]]:
        """Yield some queries at a time, twice: they are not encoded."""
        X = self.encode(X)
        blocks = (X[rows] for rows in spans(len(X), EMBED_BLOCK))
        return ((block, block) for block in blocks)

    def _as_rows(self, X: Any) -> Rows:
        return X if isinstance(X, Rows) else Rows(X, self.collate_fn)


@np.errstate(over="ignore", invalid="ignore")  # to_tensor checks the result
def fit_scaler(scaler, X, label_of):
    if isinstance(scaler, StandardScaler):  # the other one finds a unit for each column
        refuse_tiny_spread(X, label_of)
    return scaler if scaler is None else scaler.set_output(transform="default").fit(X)


@np.errstate(over="ignore", invalid="ignore")
def to_tensor(X, scaler, first_row: int = 0) -> Tensor:
    """Scaled values as a new float32 tensor, shape (n, columns); an error if out of range.

    Distances between rows have to stay in float32's range as well.
    """
    scaled = torch.tensor(_scale(X, scaler), dtype=torch.float32)
    beyond = (~(scaled.abs() <= largest_entry(scaled))).nonzero()
    if len(beyond):
        values = np.abs(np.asarray(X)[:, int(beyond[0, 1])])  # a mean of them may be infinite
        row = int(np.nanargmax(values))
        raise ValueError(
            f"Input X contains infinity or a value too large for float32: {values[row]:g} in "
            f"row {first_row + row}"
        )
    return scaled


def _scale(X: np.ndarray, scaler) -> np.ndarray:
    """Scale encoded columns; what another scaler than ours makes of them is checked."""
    if isinstance(scaler, SmoothClipScaler):
        return scaler.scale(X)
    scaled = X if scaler is None else scaler.transform(X)
    return check_array(scaled, dtype=np.float32, ensure_min_samples=0, ensure_all_finite=False)


def largest_entry(rows: Tensor) -> float:
    """Entries up to which all distances between rows (n, d) are well within float32's range."""
    return torch.finfo(torch.float32).max / (4 * max(1, rows.shape[1]))


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn the parameter `device` into a torch.device that exists on this machine."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        one = torch.ones(1, device=device)
        one.item()  # fails on a device that has no values, such as 'meta'
        return one.device
    except (RuntimeError, AssertionError) as error:
        usable = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        usable += ["mps"] if torch.backends.mps.is_available() else []
        lacks = "" if torch.version.cuda else "; this build of torch is without CUDA"
        raise ValueError(
            f"device must be one that torch can use here, of {usable}{lacks}, got {device!r}"
        ) from error


def check_layer_sizes(hidden_layer_sizes: Any) -> list[int]:
    """List the widths of hidden layers."""
    sizes = np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)).tolist()
    if not all(is_whole(size, 1) for size in sizes):
        raise ValueError(
            f"hidden_layer_sizes must be positive integers, got {hidden_layer_sizes!r}"
        )
    return sizes
