"""What a linear model makes of many columns, as further columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import norm
from sklearn.linear_model import Ridge

from .._utils.storable import storable
from .cross_fitting import encode_by_others

ALPHAS = np.logspace(-2, 3, 11)  # of rows whose mean square length is 1
#: Of the scores of a model that is always right. Beside components whose mean square is 1, scores
#: then vary about as much as the largest.
DEVIATION = 4.0


@storable
class LinearScores:
    """Predictions of each target by a ridge regression, centred, in units of the target's spread.

    A network takes long to find the direction of many columns that a linear model finds at once,
    and memorises rows on the way. Of training rows, the scores are of models of other rows
    (:mod:`.cross_fitting`). Where nothing is linear, they are near zero.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features, n_targets)
    intercept_ : ndarray of shape (n_targets,)
        Of the ridge regressions, each with the regularisation of the lowest error on other rows.
    """

    coef_: np.ndarray
    intercept_: np.ndarray

    def fit_transform(self, X: csr_array, targets: np.ndarray) -> np.ndarray:
        """Fit to training rows (n, n_features) and targets (n, n_targets); returns their scores.

        Returns
        -------
        ndarray of shape (n, n_targets)
        """
        mean, deviation = targets.mean(axis=0), targets.std(axis=0)
        scale = np.divide(DEVIATION, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        unit = np.sqrt(np.mean(norm(X, axis=1) ** 2)) or 1.0
        X = X / unit
        found = [encode_by_others(partial(_fit, alpha), X, targets) for alpha in ALPHAS]
        errors = [np.square(each - targets).sum(axis=0) for each in found]
        best = np.argmin(errors, axis=0)
        ridge = Ridge(ALPHAS[best]).fit(X, targets)
        self.coef_ = np.reshape(ridge.coef_, (-1, X.shape[1])).T * scale / unit
        self.intercept_ = (ridge.intercept_ - mean) * scale
        return (np.choose(best, found) - mean) * scale

    def transform(self, X: csr_array) -> np.ndarray:
        """Scores (n, n_targets) of other rows (n, n_features)."""
        return X @ self.coef_ + self.intercept_


def _fit(alpha: float, X: csr_array, targets: np.ndarray) -> Callable[[csr_array], np.ndarray]:
    return Ridge(alpha).fit(X, targets).predict
