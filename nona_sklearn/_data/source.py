"""Sources of network inputs: a table, or rows for a feature extractor.

A source selects training rows, learns how to encode and scale them, and encodes queries in the
same way. A wide sparse matrix is encoded as components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from scipy.sparse.linalg import norm
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import Ridge
from sklearn.preprocessing import RobustScaler, StandardScaler, normalize
from sklearn.utils import check_array
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data
from torch import Tensor

from .._utils.globe import N_BLOCKS, block_centers, blocks_of
from .._utils.precision import STORED
from .._utils.storable import storable
from .._utils.tables import COPIED, fit_in_columns, rows_of
from .._utils.validation import EMBED_BLOCK, spans
from .column_spec import columns_of_targets, cross_fit
from .row import Row, row_of_frame
from .sample import Rows
from .table_encoder import TableEncoder, fit_encoder
from .table_encoding import TableEncoding
from .tables import as_dense, check_table, labels_of_fit, read_again, refuse_no_table

LARGEST = 1e300  # largest scaled value before clipping, so that no square is infinite
SMALLEST = 1e-150  # smallest spread whose square float64 holds
BOUND = 3.0  # bound of clipped values
LEAST_BULK = 2.0**-900  # least scale relative to the largest number, so that none is infinite

#: A column is skewed if more than SKEWED_SHARE of its rows and more than SKEWED_ROWS rows are
#: outliers, and if it has more than SKEWED_VALUES distinct values.
SKEWED_SHARE, SKEWED_ROWS, SKEWED_VALUES = 0.05, 10, 10
QUANTILE_LEVELS = np.linspace(0, 1, 101)  # levels of the stored quantiles of a skewed column
LEAST_LEVEL = 0.005  # the least value has the normal score of this level


@storable
class SmoothClipScaler(RobustScaler):
    """Centre by the median, scale by the interquartile range, and clip outliers smoothly.

    ``x / sqrt(1 + (x / 3)^2)`` leaves the bulk nearly unchanged and bounds outliers by 3, so that
    no row is far from the rest (Holzmueller et al., "Better by Default", section 3). The result is
    independent of the unit.
    """

    # A column with equal quartiles, such as a rare category, is scaled by its standard deviation.
    # A skewed column, with more than a twentieth of the rows beyond the bound, becomes normal
    # scores before clipping: otherwise, the outliers would have almost equal values. A column of
    # few values, or with a quarter of the rows at an end, does not become normal scores.

    center_: np.ndarray
    scale_: np.ndarray
    # The defaults are for files of earlier versions, in which no column is skewed.
    skewed_: np.ndarray = np.empty(0, dtype=np.intp)  # (n_skewed,), numbers of skewed columns
    # (101, n_skewed): quantiles, which are means of two rows' values, and their normal scores.
    quantiles_: np.ndarray = np.empty((len(QUANTILE_LEVELS), 0))
    scores_: np.ndarray = np.empty((len(QUANTILE_LEVELS), 0))

    def fit(self, X: np.ndarray, y: Any = None) -> SmoothClipScaler:
        """Learn medians, scales and skewed columns of `X`, (n_samples, n_features)."""
        if X.size > COPIED and X.shape[1] > 1:
            columns, parts = fit_in_columns(self, X)
            self.n_features_in_ = X.shape[1]
            for name in ("center_", "scale_", "quantiles_", "scores_"):
                of_parts = [getattr(part, name) for part in parts]
                setattr(self, name, np.concatenate(of_parts, axis=-1))
            skewed = [part.skewed_ + some.start for some, part in zip(columns, parts, strict=True)]
            self.skewed_ = np.concatenate(skewed)
            return self
        # Dividing a column by a power of two is exact. Without the division, the unit would decide
        # which columns scikit-learn treats as constant, and which squares overflow.
        largest = abs(X).max(axis=0)
        bulk = abs(np.percentile(X, self.quantile_range, axis=0)).max(axis=0)
        unit = _next_power_of_two(np.where(bulk > LEAST_BULK * largest, bulk, largest))
        largest = _next_power_of_two(largest)
        super().fit(X / unit)
        lower, upper = np.percentile(X / unit, self.quantile_range, axis=0)
        deviation = StandardScaler().fit(X / largest).scale_ * (largest / unit)
        outliers = (abs(X / unit - self.center_) > BOUND * self.scale_).sum(axis=0)
        self.scale_ = np.where(upper > lower, self.scale_, deviation) * unit
        self.center_ = self.center_ * unit
        skewed = (upper > lower) & (outliers > max(SKEWED_ROWS, SKEWED_SHARE * len(X)))
        # If a quarter of the rows are at an end, such as zeros among counts, their score would be
        # far from the next score.
        skewed &= (lower > X.min(axis=0) / unit) & (upper < X.max(axis=0) / unit)
        self._fit_scores(X, unit, np.flatnonzero(skewed))
        return self

    def _fit_scores(self, X: np.ndarray, unit: np.ndarray, skewed: np.ndarray) -> None:
        """Store quantiles of skewed columns with enough values, and scale their normal scores."""
        many = [len(np.unique(column)) > SKEWED_VALUES for column in X[:, skewed].T]
        self.skewed_ = skewed = skewed[many]
        # A quantile is a mean of two rows, since the stored scaler must not hold one row's value.
        ordered = np.sort(X[:, skewed] / unit[skewed], axis=0)
        quantiles = np.quantile(
            (ordered[:-1] + ordered[1:]) / 2, QUANTILE_LEVELS, axis=0, method="lower"
        )
        self.quantiles_ = quantiles * unit[self.skewed_]
        self.scores_ = np.empty(quantiles.shape)
        for j, column in enumerate(quantiles.T):  # equal quantiles have one score
            _, which, counts = np.unique(column, return_inverse=True, return_counts=True)
            levels = (np.bincount(which, QUANTILE_LEVELS) / counts)[which]
            self.scores_[:, j] = ndtri(levels.clip(LEAST_LEVEL, 1 - LEAST_LEVEL))
        self.center_[self.skewed_] = 0.0
        self.scale_[self.skewed_] = np.subtract(*ndtri([0.75, 0.25]))

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return `X`, (n_samples, n_features), checked and scaled to (-3, 3)."""
        check_is_fitted(self)
        checked = validate_data(
            self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
        )
        return self.scale(checked)

    def scale(self, X: np.ndarray) -> np.ndarray:
        """Return a checked array scaled; for one row, checks would double the time."""
        if len(self.skewed_):
            X = X.copy()
            for j, *line in zip(self.skewed_, self.quantiles_.T, self.scores_.T, strict=True):
                X[:, j] = np.interp(X[:, j], *line)
        with np.errstate(over="ignore"):
            scaled = (X - self.center_) / self.scale_
        scaled = scaled.clip(-LARGEST, LARGEST)
        return scaled / np.hypot(1, scaled / BOUND)


def _next_power_of_two(numbers: np.ndarray) -> np.ndarray:
    """Return the next powers of two above numbers, or 1 for 0."""
    exponent = np.frexp(numbers)[1]
    return np.where(numbers > 0, np.ldexp(1.0, np.minimum(exponent, 1023)), 1.0)


def refuse_tiny_spread(columns: np.ndarray, name: Callable[[int], str]) -> None:
    """Raise if a column of (n, k) is not constant but its variance rounds to 0."""
    spread = np.ptp(columns, axis=0)
    tiny = ((spread > 0) & (spread < SMALLEST)).nonzero()[0]
    if len(tiny):
        raise ValueError(
            f"{name(tiny[0])} holds values that differ by {spread[tiny[0]]:g} at most, too little "
            f"to be squared: choose a unit in which they differ by more than {SMALLEST:g}"
        )


MOST_COMPONENTS = 300
#: Number of candidate components if networks choose by the targets. Rare words need many.
MOST_TO_CHOOSE_FROM = 1000
MOST_ENTRIES = 2**25  # entries of an encoded matrix of more than 300 components, 256 MB
#: Least number of training rows per component before a learned embedding. An embedding that has as
#: many directions as rows memorises the rows.
ROWS_PER_COMPONENT = 5
ROWS_PER_CHOICE = 2
ROUNDING = 1e-8  # as a share of a row's length
ALPHAS = np.logspace(-2, 3, 11)  # for rows whose mean square length is 1
#: Target standard deviation of a perfect model's scores. The scores then vary about as much as the
#: largest components, whose mean square is 1 on average.
DEVIATION = 4.0


def is_wide(X: Any) -> bool:
    """Return whether a validated table is a sparse matrix of more than 300 columns."""
    return issparse(X) and X.shape[1] > MOST_COMPONENTS


@storable
class LinearScores:
    """Predict targets by ridge regression, centred and in units of the targets' spread.

    A network would find the linear direction of many columns slowly, and memorise rows meanwhile.
    Scores of training rows are cross-fitted, so that they are near 0 without a linear effect.
    """

    coef_: np.ndarray  # (n_features, n_targets)
    intercept_: np.ndarray  # (n_targets,)

    def fit_transform(self, X: csr_array, targets: np.ndarray) -> np.ndarray:
        """Return cross-fitted scores (n, n_targets) of training rows (n, n_features).

        The regularisation for a target minimises the cross-fitted error.
        """
        mean = targets.mean(axis=0)
        deviation = targets.std(axis=0)
        scale = np.divide(DEVIATION, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        unit = np.sqrt(np.mean(norm(X, axis=1) ** 2)) or 1.0
        X = X / unit

        def cross_fitted(alpha: float) -> np.ndarray:
            return cross_fit(lambda *train: Ridge(alpha).fit(*train).predict, X, targets)

        predictions = [cross_fitted(alpha) for alpha in ALPHAS]
        errors = [np.square(predicted - targets).sum(axis=0) for predicted in predictions]
        best = np.argmin(errors, axis=0)
        ridge = Ridge(ALPHAS[best]).fit(X, targets)
        self.coef_ = np.reshape(ridge.coef_, (-1, X.shape[1])).T * scale / unit
        self.intercept_ = (ridge.intercept_ - mean) * scale
        return (np.choose(best, predictions) - mean) * scale

    def transform(self, X: csr_array) -> np.ndarray:
        """Return the scores (n, n_targets) of new rows (n, n_features)."""
        return X @ self.coef_ + self.intercept_


@storable
class SparseEncoder:
    """Encode a sparse matrix of many columns as coordinates along its leading singular vectors.

    Rows keep their lengths or, `for_network`, have one length, at which the mean square of the
    coordinates is 1. Components are not scaled, since their variances are informative.
    """

    svd_: TruncatedSVD  # as many singular vectors as the training rows allow
    scores_: LinearScores | None  # follow the components; None without targets

    def __init__(
        self,
        rows_per_component: int = 1,
        max_components: int = MOST_COMPONENTS,
        for_network: bool = False,
    ):
        self.rows_per_component = rows_per_component  # least number of training rows
        self.max_components = max_components  # 300 with many rows
        self.for_network = for_network  # whether rows have one length, and scores are appended

    @classmethod
    def to_choose_from(cls) -> SparseEncoder:
        """Return an encoder with more components, from which networks choose by the targets."""
        return cls(ROWS_PER_CHOICE, MOST_TO_CHOOSE_FROM, for_network=True)

    @classmethod
    def to_learn_from(cls) -> SparseEncoder:
        """Return an encoder with as many components as a network can learn from."""
        return cls(ROWS_PER_COMPONENT, for_network=True)

    @property
    def n_components(self) -> int:
        """Return the number of components, which come before the scores."""
        return len(self.svd_.components_)

    @property
    def n_features(self) -> int:
        """Return the number of columns of the sparse matrix."""
        return self.svd_.components_.shape[1]

    def fit_transform(self, X: csr_array, targets: np.ndarray | None = None) -> np.ndarray:
        """Return encoded training rows, components before scores of targets (n, n_targets)."""
        _refuse_large(X)
        svd = TruncatedSVD(self.count_components(*X.shape), random_state=0)
        self.svd_ = svd.set_output(transform="default")  # arrays, despite sklearn.set_config
        with np.errstate(invalid="ignore", divide="ignore"):  # shares of a variance that is 0
            components = self._scaled(svd.fit_transform(X), X)
        self.scores_ = None
        if targets is None or not self.for_network:
            return components
        self.scores_ = LinearScores()
        return np.hstack([components, self.scores_.fit_transform(X, targets)])

    def count_components(self, n_rows: int, n_features: int) -> int:
        """Return the number of components for a matrix of this shape."""
        most = min(self.max_components, max(MOST_COMPONENTS, MOST_ENTRIES // n_rows), n_features)
        return min(most, max(1, n_rows // self.rows_per_component))

    def transform(self, X: Any) -> np.ndarray:
        """Return an encoded sparse matrix or table, whose columns are already validated."""
        if not issparse(X):
            X = csr_array(check_array(X, dtype=np.float64, input_name="X"))
        _refuse_large(X)
        components = self._scaled(self.svd_.transform(X), X)
        if self.scores_ is None:
            return components
        return np.hstack([components, self.scores_.transform(X)])

    def _scaled(self, components: np.ndarray, X: csr_array) -> np.ndarray:
        """Return coordinates (n, k), scaled to the lengths of X's rows, or to a common length.

        Without scaling, rows of rare words, which the singular vectors miss, would be near zero.
        """
        lengths = norm(X, axis=1)
        component_lengths = np.linalg.norm(components, axis=1)
        seen = component_lengths > ROUNDING * lengths  # smaller lengths are rounding errors
        factors = np.divide(
            lengths, component_lengths, out=np.zeros_like(component_lengths), where=seen
        )
        components = components * factors[:, None]
        if not self.for_network:
            return components
        return np.sqrt(components.shape[1]) * normalize(components)

    def label_of(self, output: int) -> str:
        """Return the name of an encoded column in messages."""
        return f"component {output}"


def _refuse_large(X: csr_array) -> None:
    """Raise if an entry is beyond float32, so that squares do not overflow."""
    largest = abs(X.data).max(initial=0.0)
    if largest > np.finfo(np.float32).max:
        raise ValueError(
            f"Input X contains infinity or a value too large for float32: {largest:g}"
        )


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

    @property
    def encoding(self) -> TableEncoding | SparseEncoder:
        """Return what encodes validated rows; the encoder is fitted."""
        if isinstance(self.encoder, TableEncoder):
            return TableEncoding.of(self.encoder)
        return self.encoder

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
            if self.encoder.places is not None:
                raise ValueError(
                    f"places must be None where X is sparse, got {self.encoder.places!r:.80}"
                )
            texts, ignored = self.encoder.text_features, self.encoder.ignored_features
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
            if ignored is not None:
                raise ValueError(
                    f"ignored_features must be None where X is sparse, got {ignored!r:.80}: drop "
                    "the columns"
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
            encoded = fit_encoder(self.encoder, as_dense(X), targets)
        elif not hasattr(self.encoder, "svd_"):
            encoded = self.encoder.fit_transform(X, targets)
        elif X.shape[1] == self.encoder.n_features:
            encoded = self.encoder.transform(X)
        else:
            raise ValueError(
                "warm_start=True needs the columns of the earlier fit: X had "
                f"{self.encoder.n_features}, and has {X.shape[1]} now"
            )
        if self.scaler is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # _scale checks the result
                if isinstance(self.scaler, StandardScaler):  # others choose units by themselves
                    refuse_tiny_spread(encoded, self.encoding.label_of)
                self.scaler = self.scaler.set_output(transform="default").fit(encoded)
        return self._scale(encoded, 0)

    def blocks(self, X: Any) -> Iterator[tuple[Any, Tensor]]:
        """Yield blocks of validated queries, as given and encoded, (n_block, n_features)."""
        encoding = self.encoding
        if (row := self._row(X)) is not None:
            yield row, self._scale(encoding.transform(row), 0)
            return
        contents = encoding.contents if isinstance(encoding, TableEncoding) else ()
        X = check_table(self.estimator, X, reset=False, contents=contents, accept_sparse=True)
        for rows in spans(_num_samples(X), EMBED_BLOCK):
            given = rows_of(X, rows)
            yield given, self._scale(encoding.transform(given), rows.start)

    def _row(self, X: Any) -> Row | None:
        """Return a row, or a frame of one row that is read by cells; None for any other table."""
        return X if isinstance(X, Row) else row_of_frame(X, labels_of_fit(self.estimator))

    def encode(self, X: Any) -> Tensor:
        """Return encoded queries, (n, n_features), after validation."""
        return torch.cat([encoded for _, encoded in self.blocks(X)])

    @property
    def ignored(self) -> Sequence[int]:
        """Return the numbers of the columns that are no features."""
        return self.encoding.ignored if isinstance(self.encoding, TableEncoding) else ()

    @property
    def has_places(self) -> bool:
        """Return whether two columns of the table are coordinates."""
        return isinstance(self.encoder, TableEncoder) and self.encoder.places is not None

    def fit_blocks(self, X: Any) -> np.ndarray | None:
        """Return spatial blocks (n,) of valid training rows, or None without places."""
        if not isinstance(self.encoder, TableEncoder) or (places := self._places(X)) is None:
            return None
        self.encoder.block_centers_ = block_centers(places, N_BLOCKS)
        return self.blocks_of(X)

    def blocks_of(self, X: Any) -> np.ndarray | None:
        """Return spatial blocks (n,) of valid rows, or None if fit has made none."""
        centers = getattr(self.encoder, "block_centers_", None)
        if centers is None or (places := self._places(X)) is None:
            return None
        return blocks_of(places, centers)

    def _places(self, X: Any) -> np.ndarray | None:
        """Return the places of valid rows, (n, 3), or None without places."""
        if not isinstance(self.encoder, TableEncoder):
            return None
        return TableEncoding.of(self.encoder).places(read_again(self.estimator, X))

    def levels(self, X: Any) -> np.ndarray | None:
        """Return codes of the levels of valid rows, int32 (n, n_categories), or None."""
        if not isinstance(self.encoder, TableEncoder):
            return None
        return TableEncoding.of(self.encoder).level_codes(read_again(self.estimator, X))

    def unknown_levels(self, X: Any) -> np.ndarray | None:
        """Return whether levels of valid rows are unknown, bool (n, n_categories), or None."""
        if not isinstance(self.encoder, TableEncoder):
            return None
        X = self._row(X) or read_again(self.estimator, X)
        return TableEncoding.of(self.encoder).unknown_levels(X)

    @np.errstate(over="ignore", invalid="ignore")  # the result is checked
    def _scale(self, encoded: np.ndarray, first_row: int) -> Tensor:
        """Return scaled rows as a new float32 tensor; raise if distances would overflow."""
        if encoded.size > COPIED and len(encoded) > EMBED_BLOCK:
            tensor = torch.empty(encoded.shape, dtype=STORED)
            for rows in spans(len(encoded), EMBED_BLOCK):
                tensor[rows] = self._scale(encoded[rows], first_row + rows.start)
            return tensor
        if isinstance(self.scaler, SmoothClipScaler):
            scaled = self.scaler.scale(encoded)
        else:
            scaled = encoded if self.scaler is None else self.scaler.transform(encoded)
            scaled = check_array(
                scaled, dtype=np.float32, ensure_min_samples=0, ensure_all_finite=False
            )
        tensor = torch.tensor(scaled, dtype=STORED)
        is_near = tensor.abs() <= largest_entry(tensor)
        if not is_near.all():
            beyond = (~is_near).nonzero()
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
    has_places = False

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

    ignored = ()  # rows have no columns

    def levels(self, X: Any) -> None:
        """Return None: there are no categorical columns."""
        return

    unknown_levels = fit_blocks = blocks_of = levels


Source = TableSource | RowsSource


def largest_entry(rows: Tensor) -> float:
    """Return the largest entry of rows (n, d) whose distances are within float32's range."""
    return torch.finfo(STORED).max / (4 * max(1, rows.shape[1]))
