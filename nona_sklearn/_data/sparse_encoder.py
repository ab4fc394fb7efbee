"""A wide sparse matrix as a dense one: its leading components, and what is linear in them."""

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
#: If networks choose components by the targets: rare words show in many components only.
MOST_TO_CHOOSE_FROM = 1000
LARGEST = 2**25  # entries of an encoded matrix of more than 300 components, 256 MB
#: Least number of training rows per component before a learned embedding. One that has as many
#: directions as rows memorises them.
ROWS_PER_COMPONENT = 5
ROWS_PER_CHOICE = 2
ROUNDING = 1e-8  # as a share of a row's length
ALPHAS = np.logspace(-2, 3, 11)  # of rows whose mean square length is 1
#: Target standard deviation of a perfect model's scores. Beside components whose mean square is 1,
#: scores then vary about as much as the largest.
DEVIATION = 4.0


def is_wide(X: Any) -> bool:
    """Whether a validated table is a sparse matrix of more columns than components."""
    return issparse(X) and X.shape[1] > MOST_COMPONENTS


@storable
class LinearScores:
    """Predictions of each target by a ridge regression, centred, in units of the target's spread.

    A network takes long to find the direction of many columns that a linear model finds at once,
    and memorises rows on the way. Scores of training rows are cross-fitted. Where nothing is
    linear, they are near zero.
    """

    coef_: np.ndarray  # (n_features, n_targets)
    intercept_: np.ndarray  # (n_targets,)

    def fit_transform(self, X: csr_array, targets: np.ndarray) -> np.ndarray:
        """Fit to training rows (n, n_features), and return their scores, (n, n_targets).

        The model of each of the targets, (n, n_targets), has the regularisation of the lowest
        cross-fitted error.
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
    """A sparse matrix of many columns, as coordinates along its leading singular vectors.

    Each row keeps its length, or has the one at which the mean square of its coordinates is 1:
    the length of a text carries little, and variances of components are information, which scaling
    each of them would lose. The estimators encode a sparse `X` of more than 300 columns with it,
    and keep it as ``features_``.

    Parameters
    ----------
    rows_per_component : int, default=1
        Least number of training rows per component.
    max_components : int, default=300
        Largest number of components; 300 with many rows.
    for_network : bool, default=False
        Whether rows have one length, and scores of a linear model (:class:`.LinearScores`) follow
        the components, where the targets are known.

    Attributes
    ----------
    svd_ : TruncatedSVD
        The singular vectors: as many as the training rows allow.
    scores_ : LinearScores or None
        Scores of the components; None without targets.
    """

    svd_: TruncatedSVD
    scores_: LinearScores | None

    def __init__(
        self,
        rows_per_component: int = 1,
        max_components: int = MOST_COMPONENTS,
        for_network: bool = False,
    ):
        self.rows_per_component = rows_per_component
        self.max_components = max_components
        self.for_network = for_network

    @classmethod
    def to_choose_from(cls) -> SparseEncoder:
        """Make one with more components, of which each network chooses some by the targets."""
        return cls(ROWS_PER_CHOICE, MOST_TO_CHOOSE_FROM, for_network=True)

    @classmethod
    def to_learn_from(cls) -> SparseEncoder:
        """Make one with as many components as a network can take."""
        return cls(ROWS_PER_COMPONENT, for_network=True)

    @property
    def n_components(self) -> int:
        """Number of components, which come before the scores."""
        return len(self.svd_.components_)

    @property
    def n_features(self) -> int:
        """Number of columns of the matrix."""
        return self.svd_.components_.shape[1]

    def fit_transform(self, X: csr_array, targets: np.ndarray | None = None) -> np.ndarray:
        """Find the singular vectors of training rows, (n, n_features), and encode them.

        Returns
        -------
        ndarray of shape (n, n_components) or (n, n_components + n_targets)
            Components, followed by the scores of targets (n, n_targets).
        """
        _refuse_large(X)
        svd = TruncatedSVD(self.count_components(*X.shape), random_state=0)
        self.svd_ = svd.set_output(transform="default")  # arrays, whatever is configured
        with np.errstate(invalid="ignore", divide="ignore"):  # shares of a variance that is 0
            components = self._scaled(svd.fit_transform(X), X)
        self.scores_ = None
        if targets is None or not self.for_network:
            return components
        self.scores_ = LinearScores()
        return np.hstack([components, self.scores_.fit_transform(X, targets)])

    def count_components(self, n_rows: int, n_features: int) -> int:
        """Return how many components a matrix of this shape has."""
        most = min(self.max_components, max(MOST_COMPONENTS, LARGEST // n_rows), n_features)
        return min(most, max(1, n_rows // self.rows_per_component))

    def transform_validated(self, X: Any) -> np.ndarray:
        """Encode a table, sparse or not, whose columns an estimator has validated."""
        if not issparse(X):
            X = csr_array(check_array(X, dtype=np.float64, input_name="X"))
        _refuse_large(X)
        components = self._scaled(self.svd_.transform(X), X)
        if self.scores_ is None:
            return components
        return np.hstack([components, self.scores_.transform(X)])

    def _scaled(self, components: np.ndarray, X: csr_array) -> np.ndarray:
        """Give coordinates (n, k) the lengths of the rows (n, n_features), or one length.

        Otherwise rows of rare words, most of which is outside of the vectors, would all be near
        zero, and near to each other.
        """
        lengths = norm(X, axis=1)
        component_lengths = np.linalg.norm(components, axis=1)
        seen = component_lengths > ROUNDING * lengths  # the rest is zero but for rounding
        factors = np.divide(
            lengths, component_lengths, out=np.zeros_like(component_lengths), where=seen
        )
        components = components * factors[:, None]
        if not self.for_network:
            return components
        return np.sqrt(components.shape[1]) * normalize(components)

    def label_of(self, output: int) -> str:
        """Name in messages of a column of the encoded matrix."""
        return f"component {output}"


def _refuse_large(X: csr_array) -> None:
    """Raise if float32 does not hold a number, before it is squared."""
    largest = abs(X.data).max(initial=0.0)
    if largest > np.finfo(np.float32).max:
        raise ValueError(
            f"Input X contains infinity or a value too large for float32: {largest:g}"
        )
