"""What a setting spares of a fit, and what it costs; searches, and the share of preparation.

Friedman's first function of 10 features, 1,000 training rows, 1,000 others to be judged by; one
network unless stated, all fits in turns, in processor time, relative to the default. Before it
what a table with categories takes to prepare, and a grid search beside one that halves its
candidates by epochs.
"""

import time

import numpy as np
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV

from nona_sklearn import NONARegressor, TableEncoder

from .timing import timed

N_TEST = 1000
#: Parameters and options of training, by what a user writes.
SETTINGS = {
    "default": {},
    "n_estimators=5": {"n_estimators": 5},
    "max_iter=10": {"max_iter": 10},
    "n_iter_no_change=5": {"training__n_iter_no_change": 5},
    "pool_size=512": {"training__pool_size": 512},
    "batch_size=256": {"training__batch_size": 256},
    "numerical_embedding=None": {"numerical_embedding": None},
    "weighting='sparse_softmax'": {"weighting": "sparse_softmax"},
    "weighting='sigmoid'": {"weighting": "sigmoid"},
    "weighting='preconditioned'": {"weighting": "preconditioned"},
    "softstep='s1'": {"softstep": "s1"},
}
HALVED = {"resource": "max_iter", "min_resources": 8, "max_resources": 72, "factor": 3}


def processor_time(function):
    """Seconds of processor time of a call."""
    return timed(function, time.process_time)


def compare_settings(n_train, n_seeds, **params):
    """Print seconds and errors of each setting, relative to the default: means over seeds."""
    X, y = make_friedman1(n_train + N_TEST, 10, noise=1.0, random_state=0)
    (X, X_test), (y, y_test) = np.split(X, [n_train]), np.split(y, [n_train])
    found = {name: [] for name in SETTINGS}
    for seed in range(n_seeds):
        for name, setting in SETTINGS.items():
            model = NONARegressor(n_estimators=1, random_state=seed, **params)
            model.set_params(**setting)
            seconds = processor_time(lambda model=model: model.fit(X, y))
            error = root_mean_squared_error(y_test, model.predict(X_test))
            found[name].append([seconds, error, model.n_iter_])
    default = np.mean(found["default"], axis=0)
    print(f"{n_train:,} rows × 10, {n_seeds} seeds; the default: {default[0]:.1f} s")
    print(f"{'':28s}{'time':>8s}{'RMSE':>8s}{'epochs':>8s}")
    for name, runs in found.items():
        time_, error, n_epochs = np.mean(runs, axis=0)
        ratios = f"{time_ / default[0]:8.2f}{error / default[1]:8.3f}"
        print(f"{name:28s}{ratios}{n_epochs:8.0f}", flush=True)
    known = n_train * 9 // 10
    model = NONARegressor(n_estimators=1, random_state=0, **params).fit(X[:known], y[:known])
    model.set_params(warm_start=True)
    seconds = processor_time(lambda: model.fit(X, y))
    error = root_mean_squared_error(y_test, model.predict(X_test))
    ratios = f"{seconds / default[0]:8.2f}{error / default[1]:8.3f}"
    print(f"{'a tenth new, warm_start':28s}{ratios}{model.n_iter_:8d}", flush=True)


def compare_searches(n_train, grid, **params):
    """Print what a grid search and one that halves by epochs take and find."""
    X, y = make_friedman1(n_train, 10, noise=1.0, random_state=0)
    model = NONARegressor(n_estimators=1, random_state=0, **params)
    whole = GridSearchCV(model, grid, cv=2, refit=False)
    halved = HalvingGridSearchCV(model, grid, cv=2, refit=False, random_state=0, **HALVED)
    seconds = [processor_time(lambda s=s: s.fit(X, y)) for s in (whole, halved)]
    params, scores = (whole.cv_results_[name] for name in ("params", "mean_test_score"))
    [found] = [
        score
        for chosen, score in zip(params, scores, strict=True)
        if chosen.items() <= halved.best_params_.items()
    ]
    print(f"\n{len(scores)} candidates, {n_train:,} rows, one network, two folds")
    print(f"  GridSearchCV         {seconds[0]:8.1f} s, R² of the best {max(scores):.4f}")
    print(f"  HalvingGridSearchCV  {seconds[1]:8.1f} s, R² of what it chose {found:.4f}")
    print(f"  candidates {halved.n_candidates_} of {halved.n_resources_} epochs")


def compare_preparation(n_rows, **params):
    """Print which share of a fit is the preparation of a table with categories."""
    import pandas as pd

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((n_rows, 6)), columns=[*"abcdef"])
    for name, n_levels in zip("ghij", (2, 5, 10, 40), strict=True):
        X[name] = np.char.add("level ", rng.integers(0, n_levels, n_rows).astype(str))
    y = X["a"] + (X["g"] == "level 1") + rng.standard_normal(n_rows)
    fit = processor_time(lambda: NONARegressor(n_estimators=1, random_state=0, **params).fit(X, y))
    encode = np.median(
        [processor_time(lambda: clone(TableEncoder()).fit_transform(X)) for _ in range(5)]
    )
    print(f"\nPreparation of {n_rows:,} rows × 10, 4 of them categories")
    print(f"  {1000 * encode:.1f} ms of a fit of {fit:.1f} s by one network: {encode / fit:.2%}")
    return encode / fit


def run(args):
    """Print the tables, check the claim."""
    if args.quick:
        compare_settings(60, 1, max_iter=2)
        compare_searches(60, {"embedding_dim": [2, 4]}, max_iter=2)
        compare_preparation(60, max_iter=2)
        return
    share = compare_preparation(1000)
    rates = [0.003, 0.01, 0.03]
    compare_searches(1000, {"training__learning_rate_init": rates, "embedding_dim": [2, 8, 32]})
    compare_settings(1000, 2)
    assert share <= 0.03
