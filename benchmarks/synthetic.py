"""Regressors on the synthetic targets and on diabetes, defaults only, means of three splits."""

import time

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import ShuffleSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import NONARegressor, SoftStepKNeighborsRegressor
from nona_sklearn.datasets import TARGETS, make_plane_regression

from .internals import DenseHeadRegressor
from .quick import shorten

REGRESSORS = {
    "5-NN": KNeighborsRegressor(),
    "dense head": DenseHeadRegressor(random_state=0),
    "NONA, default": NONARegressor(random_state=0),
    "NONA, one network": NONARegressor(n_estimators=1, random_state=0),
    "SoftStep k-NN, default": SoftStepKNeighborsRegressor(random_state=0),
    "SoftStep k-NN, uniform": SoftStepKNeighborsRegressor(weighting="uniform", random_state=0),
}


def problems(n_splits, n_train):
    """Yield the name and, for each split, (X_train, X_test, y_train, y_test)."""
    for target in TARGETS:
        data = [make_plane_regression(target, random_state=seed) for seed in range(n_splits)]
        yield target, [(X[:n_train], X[800:], y[:n_train], y[800:]) for X, y in data]
    X, y = load_diabetes(return_X_y=True)
    splits = ShuffleSplit(n_splits, test_size=0.2, random_state=0).split(X)
    splits = [(train[:n_train], test) for train, test in splits]
    yield "diabetes", [(X[train], X[test], y[train], y[test]) for train, test in splits]


def mean_score(regressor, splits):
    """Mean R² of a regressor over splits, on standardised features."""
    return np.mean(
        [
            make_pipeline(StandardScaler(), clone(regressor))
            .fit(X_train, y_train)
            .score(X_test, y_test)
            for X_train, X_test, y_train, y_test in splits
        ]
    )


def run(args):
    """Print the table and check the claims."""
    scores, seconds = {}, {}
    for problem, splits in problems(*((1, 100) if args.quick else (3, 800))):
        for name, regressor in REGRESSORS.items():
            regressor = shorten(clone(regressor)) if args.quick else regressor
            start = time.perf_counter()
            scores[name, problem] = mean_score(regressor, splits)
            seconds[name, problem] = (time.perf_counter() - start) / len(splits)

    columns = [*TARGETS, "diabetes"]
    print(f"{'R², and seconds for a fit':<32}" + "".join(f"{column:>20}" for column in columns))
    for name in REGRESSORS:
        cells = [f"{scores[name, c]:.3f} {seconds[name, c]:6.1f} s" for c in columns]
        print(f"{name:<32}" + "".join(f"{cell:>20}" for cell in cells))

    if not args.quick:
        assert scores["NONA, default", "spiral"] >= 0.85
        assert scores["NONA, default", "checkerboard"] >= 0.90
        assert scores["NONA, default", "diabetes"] > scores["5-NN", "diabetes"]
