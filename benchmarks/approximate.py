"""What a graph of the bank gains and loses: diamonds, all rows.

Exact predictions from 20 rows of each query beside those from 20 rows that a graph leads to.
"""

import numpy as np
import torch
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from nona_sklearn import NONARegressor

from . import real_data
from .timing import timed

N_NEIGHBORS = 20
ALGORITHMS = ("brute", "kd_tree", "hnsw")


def second_call(function, X):
    """Seconds of a second call."""
    function(X[:10])
    return timed(lambda: function(X))


def load(name):
    """Split a set, categories one-hot encoded: (X_train, X_test, y_train, y_test)."""
    X, y = real_data.DEVELOPMENT[name]()
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    encoder = real_data.make_encoder().fit(X_train)
    return encoder.transform(X_train), encoder.transform(X_test), y_train, y_test


def report(parameters, X_train, X_test, y_train, y_test):
    """Print a line for each algorithm; returns the share that the graph finds, and the errors."""
    print(f"{len(X_train):,} rows, {len(X_test):,} queries, {torch.get_num_threads()} threads")
    print(f"{'algorithm':>12s}{'seconds':>9s}{'RMSE':>8s}{'recall':>8s}")
    errors, expected = {}, None
    for algorithm in ALGORITHMS:
        reg = NONARegressor(algorithm=algorithm, n_neighbors=N_NEIGHBORS, **parameters)
        reg.fit(X_train, y_train)
        seconds = second_call(reg.predict, X_test)
        errors[algorithm] = root_mean_squared_error(y_test, reg.predict(X_test))
        behind = reg.neighbor_weights(X_test[:500]) > 0
        expected = behind if expected is None else expected
        recall = (behind * expected).sum() / expected.sum()
        print(f"{algorithm:>12s}{seconds:9.2f}{errors[algorithm]:8.4f}{recall:8.3f}")
    return recall, errors


def run(args):
    """Fit once with each algorithm: the networks are the same."""
    data = load("diabetes" if args.quick else "diamonds")
    parameters = {"n_estimators": 1, "max_iter": 2 if args.quick else 10, "random_state": 0}
    recall, errors = report(parameters, *data)
    assert np.isclose(errors["kd_tree"], errors["brute"], rtol=1e-3)
    if not args.quick:
        assert recall > 0.95
        assert errors["hnsw"] < 1.005 * errors["brute"]
