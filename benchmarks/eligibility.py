"""What rules of eligibility cost in a search, and how often intervals under rules cover.

The search is that of 2,000 queries among 100,000 rows × 20, for nearest rows and for predictions,
beside the same search of all rows: under rules that reach few rows, many, or nearly all. A
prediction by a step on ranks counts the eligible rows as well, which compares all pairs. Intervals
of 90 % are those of the houses of Ames that the fit has not seen, under rules of `fit` and under
rules of the call alone:
ten splits of half of the houses. A rule leaves some houses without a row; these have no interval.
"""

import time
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils._testing import ignore_warnings

from nona_sklearn import NONARegressor, SoftStepKNeighborsRegressor
from nona_sklearn.datasets import load_ames
from nona_sklearn.eligibility import any_row, differs, distance, same, within

from .timing import time_in_turns

N_BANK, N_QUERIES, N_COLUMNS, K = 100_000, 2_000, 20, 10
N_TRAIN, N_GROUPS = 2_000, 10
METHODS = "kneighbors", "predict"
MOST_TIMES = 2.0  # the search of all rows
LEVEL, LEAST_COVERED, MOST_COVERED = 0.9, 0.87, 0.93
SEARCHED = {
    "group, near values": same(0) & within(1, 1.0),
    "group": same(0),
    "near values": within(1, 1.0),
    "different group": differs(0),
    "group, or near values": same(0) | within(1, 0.5),
}
RULES = {
    "all rows": None,
    "one mile, two years": (distance("latitude", "longitude") < 1609) & within("sold", days=730),
    "neighbourhood, year before": same("neighborhood") & within("sold", days=365, before=True),
    "500 m, neighbourhood, year before": (distance("latitude", "longitude") < 500)
    & same("neighborhood")
    & within("sold", days=365, before=True),
}
COLUMNS = any_row("latitude", "longitude", "sold", "neighborhood")


@ignore_warnings(category=ConvergenceWarning)
def run(args):
    """Print both tables, and compare them with what the documentation promises."""
    n_bank, n_queries = (3_000, 100) if args.quick else (N_BANK, N_QUERIES)
    seconds = searches(n_bank, n_queries)
    print(f"| {n_queries:,} × {n_bank:,} | nearest rows, seconds | ratio | predictions | ratio |")
    print("|---|---|---|---|---|")
    ratios = {}
    for name in ("all rows", *SEARCHED):
        own = [seconds[method, name] for method in METHODS]
        ratios[name] = [
            value / seconds[method, "all rows"] for method, value in zip(METHODS, own, strict=True)
        ]
        pairs = zip(own, ratios[name], strict=True)
        cells = " | ".join(f"{value:.2f} | {ratio:.2f}" for value, ratio in pairs)
        print(f"| {name} | {cells} |")
    coverage = covered(1 if args.quick else 10, 5 if args.quick else 200)
    print(
        f"\n| rule | of | {LEVEL:.0%} intervals cover | houses without a row |\n|---|---|---|---|"
    )
    for (name, of), (share, error, isolated) in coverage.items():
        print(f"| {name} | {of} | {share:.3f} ± {error:.3f} | {isolated:.3f} |")
    if not args.quick:
        for name, of_rule in ratios.items():
            most = max(of_rule)
            assert most <= MOST_TIMES, f"{name}: {most:.2f} times the search of all rows"
        for name, (share, _, _) in coverage.items():
            assert LEAST_COVERED <= share <= MOST_COVERED, f"{name}: {share:.3f} are covered"


def searches(n_bank, n_queries):
    """Processor seconds of the k nearest rows and of predictions, by method and rule."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_bank + n_queries, N_COLUMNS))
    X[:, 0] = rng.integers(0, N_GROUPS, len(X))
    y = X[:, 1] + rng.normal(size=len(X))
    options = {"trend": None, "learn_feature_weights": False, "similarity": "l2"}
    tasks = {}
    for name, rule in ({"all rows": None} | SEARCHED).items():
        knn = SoftStepKNeighborsRegressor(K, max_iter=1, random_state=0, **options)
        knn.fit(X[:N_TRAIN], y[:N_TRAIN], eligibility=rule)
        knn.add_neighbors(X[N_TRAIN:n_bank], y[N_TRAIN:n_bank])
        for method in METHODS:
            tasks[method, name] = partial(getattr(knn, method), X[n_bank:])
    return time_in_turns(tasks, 5, clock=time.process_time)


@ignore_warnings(category=UserWarning)  # of houses without a row
def covered(n_splits, max_iter):
    """Shares of unseen houses in their interval, errors, and shares without a row.

    By rule, and by whether it is the rule of the fit or of the call.
    """
    X, y = load_ames(return_X_y=True)
    found = {(name, of): [] for name in RULES for of in ("fit", "call")}
    tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    for seed in range(n_splits):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=seed)

        def fit(rule, seed=seed, X=X_train, y=y_train):
            reg = NONARegressor(max_iter=max_iter, random_state=seed)
            return reg.fit(X, y, eligibility=rule)

        free = fit(COLUMNS)
        for name, rule in RULES.items():
            for of, reg in (("fit", fit(rule)), ("call", free)):
                low, high = reg.predict_quantiles(X_test, tails, eligibility=rule).T
                has_row = ~np.isnan(low)
                inside = ((low <= y_test) & (y_test <= high))[has_row]
                found[name, of].append((inside.mean(), 1 - has_row.mean()))
    result = {}
    for key, values in found.items():
        shares, isolated = np.transpose(values)
        error = np.std(shares) / max(1, n_splits - 1) ** 0.5
        result[key] = shares.mean(), error, isolated.mean()
    return result
