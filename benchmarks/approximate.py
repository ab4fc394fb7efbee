"""What an approximate index gains and loses: diamonds, all rows.

An exact prediction beside those from 32, 128 and 512 candidates of each query.
"""

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from nona_sklearn import ApproximateNeighborsRegressor, NONARegressor

from . import real_data
from .timing import timed

CANDIDATES = (32, 128, 512)


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


def report(exact, X_train, X_test, y_train, y_test):
    """Print a line for each number of candidates; returns the last's losses, and both errors."""
    seconds = second_call(exact.predict, X_test)
    rmse = root_mean_squared_error(y_test, exact.predict(X_test))
    n_effective = np.mean(1 / exact.neighbor_weights(X_test[:500]).power(2).sum(axis=1))
    print(f"{len(X_train):,} rows, {len(X_test):,} queries, {torch.get_num_threads()} threads")
    print(f"a prediction has {n_effective:.0f} effective neighbours on average")
    print(
        f"{'candidates':>12s}{'seconds':>9s}{'RMSE':>8s}{'error':>8s}{'recall':>8s}{'weight':>8s}"
    )
    print(f"{'all':>12s}{seconds:9.2f}{rmse:8.4f}")
    for n_candidates in CANDIDATES:
        fast = ApproximateNeighborsRegressor(FrozenEstimator(exact), n_candidates)
        fast.fit(X_train, y_train)
        seconds = second_call(fast.predict, X_test)
        loss = fast.compare(X_test[:500])
        error_of = root_mean_squared_error(y_test, fast.predict(X_test))
        print(
            f"{n_candidates:12d}{seconds:9.2f}{error_of:8.4f}"
            f"{loss['error']:8.4f}{loss['recall']:8.3f}{loss['weight']:8.3f}"
        )
    return loss, error_of, rmse


def run(args):
    """Fit once, then compare numbers of candidates."""
    data = load("diabetes" if args.quick else "diamonds")
    exact = NONARegressor(n_estimators=1, max_iter=2 if args.quick else 10, random_state=0)
    loss, error_of, rmse = report(exact.fit(data[0], data[2]), *data)
    if not args.quick:
        assert loss["recall"] > 0.95
        assert error_of < 1.02 * rmse
