"""What an approximate index gains and loses: diamonds, all rows.

    python benchmarks/approximate.py

Needs pandas and faiss.
"""

import time

import numpy as np
import real_data
import torch
from accuracy import make_encoder
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from nona_sklearn import ApproximateNeighborsRegressor, NONARegressor


def time_of(function, X):
    """Seconds of a second call."""
    function(X[:10])
    start = time.perf_counter()
    function(X)
    return time.perf_counter() - start


def main():
    """Fit once, then compare numbers of candidates."""
    X, y = real_data.DEVELOPMENT["diamonds"]()
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    encoder = make_encoder().fit(X_train)
    X_train, X_test = encoder.transform(X_train), encoder.transform(X_test)
    exact = NONARegressor(n_estimators=1, max_iter=10, random_state=0).fit(X_train, y_train)
    seconds = time_of(exact.predict, X_test)
    rmse = root_mean_squared_error(y_test, exact.predict(X_test))
    n_effective = np.mean(1 / exact.neighbor_weights(X_test[:500]).power(2).sum(axis=1))
    print(f"{len(X_train):,} rows, {len(X_test):,} queries, {torch.get_num_threads()} threads")
    print(f"a prediction has {n_effective:.0f} effective neighbours on average")
    print(
        f"{'candidates':>12s}{'seconds':>9s}{'RMSE':>8s}{'error':>8s}{'recall':>8s}{'weight':>8s}"
    )
    print(f"{'all':>12s}{seconds:9.2f}{rmse:8.4f}")
    for n_candidates in (32, 128, 512):
        fast = ApproximateNeighborsRegressor(FrozenEstimator(exact), n_candidates)
        fast.fit(X_train, y_train)
        seconds = time_of(fast.predict, X_test)
        loss = fast.compare(X_test[:500])
        error_of = root_mean_squared_error(y_test, fast.predict(X_test))
        print(
            f"{n_candidates:12d}{seconds:9.2f}{error_of:8.4f}"
            f"{loss['error']:8.4f}{loss['recall']:8.3f}{loss['weight']:8.3f}"
        )
    assert loss["recall"] > 0.95
    assert error_of < 1.02 * rmse


if __name__ == "__main__":
    main()
