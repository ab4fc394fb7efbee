"""Importances of an estimator, beside those of permutations of other rows.

Spearman's rank correlation with :func:`sklearn.inspection.permutation_importance` of the mean
squared error, on the nine tables with numbers, first split. The last column is that of two halves
of the test rows with each other: how far the reference itself can be relied on.
"""

import numpy as np
from scipy.stats import spearmanr
from sklearn.datasets import load_diabetes
from sklearn.inspection import permutation_importance

from nona_sklearn import NONARegressor

from . import real_data
from .quick import shorten


def correlate(model, X, y):
    """Rank correlations of a model's importances with the reference, and of this with itself."""

    def reference(rows):
        return permutation_importance(
            model, X[rows], y[rows], scoring="neg_mean_squared_error", random_state=0
        ).importances_mean

    halves = reference(slice(0, len(y) // 2)), reference(slice(len(y) // 2, None))
    own = model.feature_importances_
    return spearmanr(own, np.mean(halves, axis=0)).statistic, spearmanr(*halves).statistic


def run(args):
    """Print the correlations, and check them."""
    found = {}
    print(f"{'set':14s}{'columns':>8s}{'correlation':>13s}{'of halves':>11s}")
    for name in ["diabetes"] if args.quick else real_data.DEVELOPMENT:
        sets = {"diabetes": lambda: load_diabetes(return_X_y=True, as_frame=True)}
        split = real_data.split(name, 0, sets=sets if args.quick else real_data.DEVELOPMENT)
        X_train, X_test, y_train, y_test = split
        model = NONARegressor(random_state=0)
        model = (shorten(model) if args.quick else model).fit(X_train, y_train)
        found[name], halves = correlate(model, X_test, np.asarray(y_test))
        print(f"{name:14s}{X_test.shape[1]:8d}{found[name]:13.3f}{halves:11.3f}", flush=True)
    if not args.quick:
        print(f"median {np.median([*found.values()]):.3f}")
        assert np.median([*found.values()]) >= 0.9
        assert min(found.values()) >= 0.6  # we aim at .8, which the halves of ames do not reach
