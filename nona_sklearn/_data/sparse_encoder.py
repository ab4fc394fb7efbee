"""Encoder of a wide sparse matrix as dense components and scores of a linear model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.sparse.linalg import norm
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import Ridge
from sklearn.preprocessing import normalize
from sklearn.utils import check_array

from .._utils.storable import storable
from .levels import cross_fit

MOST_COMPONENTS = 300
#: Number of candidate components if networks choose by the targets. Rare words need many.
MOST_TO_CHOOSE_FROM = 1000
LARGEST = 2**25  # entries of an encoded matrix of more than 300 components, 256 MB
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
        predictions = [cross_fit(partial(_fit_ridge, alpha), X, targets) for alpha in ALPHAS]
        errors = [np.square(predicted - targets).sum(axis=0) for predicted in predictions]
        best = np.argmin(errors, axis=0)
        ridge = Ridge(ALPHAS[best]).fit(X, targets)
        self.coef_ = np.reshape(ridge.coef_, (-1, X.shape[1])).T * scale / unit
        self.intercept_ = (ridge.intercept_ - mean) * scale
        return (np.choose(best, predictions) - mean) * scale

    def transform(self, X: csr_array) -> np.ndarray:
        """Return the scores (n, n_targets) of new rows (n, n_features)."""
        return X @ self.coef_ + self.intercept_


def _fit_ridge(
    alpha: float, X: csr_array, targets: np.ndarray
) -> Callable[[csr_array], np.ndarray]:
    return Ridge(alpha).fit(X, targets).predict


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
        """Return encoded training rows, (n, n_components [+ n_targets]), and learn the encoding.

        Scores of the targets, (n, n_targets), follow the components if targets are given.
        """
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
        most = min(self.max_components, max(MOST_COMPONENTS, LARGEST // n_rows), n_features)
        return min(most, max(1, n_rows // self.rows_per_component))

    def transform_validated(self, X: Any) -> np.ndarray:
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
