"""Errors of regressors, and how to compare them over several sets."""

import numpy as np
from scipy.stats import studentized_range

from .timing import timed


def score(model, X_train, X_test, y_train, y_test):
    """Fit on one split: test RMSE over the test targets' deviation, and seconds for the fit."""
    seconds = timed(lambda: model.fit(X_train, y_train))
    return {
        "n_train": len(y_train),
        "nrmse": normalised_rmse(model, X_test, y_test),
        "seconds": seconds,
    }


def normalised_rmse(model, X, y):
    """Root mean squared error in units of the targets' deviation."""
    return np.sqrt(np.mean((np.ravel(model.predict(X)) - y) ** 2)) / y.std()


def relative_rmse(scores, baseline):
    """Geometric mean over the sets of each model's nRMSE, divided by the baseline's."""
    return np.exp(np.log(scores / scores.loc[baseline]).mean(axis=1))


def critical_difference(n_models, n_sets, alpha=0.05):
    """Smallest difference of mean ranks that the Nemenyi test calls significant."""
    q = studentized_range.ppf(1 - alpha, n_models, np.inf) / np.sqrt(2)
    return q * np.sqrt(n_models * (n_models + 1) / (6 * n_sets))
