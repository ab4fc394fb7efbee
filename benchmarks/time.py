"""Forecasts of tables with a time, models at their defaults, on five expanding splits.

Results are kept in ``benchmarks/results/time.csv``: a run goes on where the last one stopped, so
delete the rows of whatever you changed, or the file, to start from scratch.
"""

import re
import warnings
from functools import partial
from time import perf_counter

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from nona_sklearn import NONARegressor

from .ledger import complete
from .quick import N_EPOCHS
from .rivals import boosted, catboosted
from .scores import mean_over_splits, paired_ratio, print_seconds
from .time_data import DEVELOPMENT, KEPT_ASIDE, N_FOLDS, random_walk
from .uncertainty import LEVELS, score

SETS = DEVELOPMENT | KEPT_ASIDE
BASELINE, NAIVE = "HistGradientBoosting", "seasonal naive"
COVERAGES = {"cover_80": 0.8, "cover_90": 0.9}
MOST_MISSED = 0.04  # of a coverage
MOST_LOST = 1.05  # RMSE without times, relative to that with them, unless fit warns
WARNING = re.compile("Rows .* predict each other|The target of .* before is in column")


def nona(series, train, test, timed=True, **params):
    """Predict by our regressor, with times or without."""
    options = {"times": series.times[train]} if timed else {}
    reg = NONARegressor(random_state=0, **params)
    reg.fit(series.X.iloc[train], series.y[train], **options)
    queries = reg.embed(series.X.iloc[test])
    return reg.predict(queries), reg.predict_quantiles(queries, LEVELS)


def trees(series, train, test):
    """Predict by HistGradientBoosting, each quantile by trees of its own, sorted."""
    make = partial(
        HistGradientBoostingRegressor, random_state=0, categorical_features="from_dtype"
    )
    models = [make(), *(make(loss="quantile", quantile=level) for level in LEVELS)]
    X, y, queries = series.X.iloc[train], series.y[train], series.X.iloc[test]
    mean, *quantiles = (boosted(model).fit(X, y).predict(queries) for model in models)
    return mean, np.sort(quantiles, axis=0).T


def catboost(series, train, test):
    """Predict by CatBoost, the quantiles by one model of all."""
    from catboost import CatBoostRegressor  # a quick run does without

    X, y, queries = series.X.iloc[train], series.y[train], series.X.iloc[test]
    of_quantiles = "MultiQuantile:alpha=" + ",".join(f"{level:.2f}" for level in LEVELS)
    losses = "RMSE", of_quantiles
    models = [
        catboosted(partial(CatBoostRegressor, loss_function=loss), X, seed=0) for loss in losses
    ]
    mean, quantiles = (model.fit(X, y).predict(queries) for model in models)
    return mean, np.sort(quantiles, axis=1)


def naive(series, train, test):
    """Repeat the target one season ago, with the quantiles of its errors so far."""
    errors = np.quantile(series.y[train] - series.naive[train], LEVELS)
    return series.naive[test], series.naive[test, None] + errors


MODELS = {
    "NONA, times": nona,
    "NONA, random validation": partial(nona, timed=False),
    BASELINE: trees,
    "CatBoost": catboost,
    NAIVE: naive,
}
QUICK_MODELS = {
    "NONA, times": partial(nona, n_estimators=1, max_iter=N_EPOCHS),
    NAIVE: naive,
}


def measure(set_name, model, fold, sets=SETS, models=MODELS):
    """Score one model on one split of a table."""
    series = sets[set_name]()
    train, test = list(series.folds())[fold]
    start = perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mean, quantiles = models[model](series, train, test)
    seconds = perf_counter() - start
    scores = score(quantiles, series.y[test])
    return {
        "n_train": len(train),
        "n_test": len(test),
        "rmse": np.sqrt(np.mean((mean - series.y[test]) ** 2)),
        "crps": scores["crps"],
        **{name: scores[name] for name in COVERAGES},
        "seconds": seconds,
        "warns": sum(bool(WARNING.match(str(each.message))) for each in caught),
    }


def report(results, sets, baseline):
    """Print errors relative to a model's, the baseline's, and coverages."""
    for column in "rmse", "crps":
        errors = mean_over_splits(results, column, sets)
        relative = errors / errors.loc[baseline]
        mean = np.exp(np.log(relative).mean(axis=1))
        print(f"\n{column.upper()} relative to {baseline}")
        print(relative.assign(**{"geo. mean": mean}).round(3).to_string())
    for column in COVERAGES:
        print(f"\n{column}")
        print(mean_over_splits(results, column, sets).round(3).to_string())
    print_seconds(results, sets)


def check(results, sets):
    """Assert the aims."""
    for other in (BASELINE, "CatBoost", "NONA, random validation"):
        ratio, chance = paired_ratio(results, "rmse", "NONA, times", other)
        print(f"NONA with times / {other}: {ratio:.3f}, standard error {chance:.3f}")
        assert ratio <= 1 + (other == "CatBoost") * chance
    errors = mean_over_splits(results, "rmse", sets)
    assert (errors.loc["NONA, times"] <= errors.loc[NAIVE]).all()
    check_without_times(results, errors)
    for column, nominal in COVERAGES.items():
        missed = mean_over_splits(results, column, sets).loc["NONA, times"] - nominal
        assert (missed.abs() <= MOST_MISSED).all()


def check_without_times(results, errors):
    """Assert that a fit without times is hardly worse than one with them, or warns."""
    plain = "NONA, random validation"
    table = pd.DataFrame({"RMSE, relative": errors.loc[plain] / errors.loc["NONA, times"]})
    table["splits that warn"] = mean_over_splits(results, "warns", errors.columns).loc[plain]
    print("\nWithout times, beside with them")
    print(table.round(3).to_string())
    assert ((table.iloc[:, 0] <= MOST_LOST) | (table.iloc[:, 1] > 0.5)).all()


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--models", nargs="+", default=list(MODELS))


def run(args):
    """Run what is missing, print the tables, check the claims."""
    keys, path = ["set", "model", "seed"], args.results / "time.csv"
    if args.quick:
        sets = {"random walk": random_walk}
        cases = [("random walk", model, 0) for model in QUICK_MODELS]
        few = partial(measure, sets=sets, models=QUICK_MODELS)
        report(complete(path, keys, cases, few), sets, NAIVE)
        return
    n_folds = {name: len(list(SETS[name]().folds())) for name in args.sets}
    cases = [
        (name, model, fold)
        for fold in range(N_FOLDS)
        for name in args.sets
        for model in args.models
        if fold < n_folds[name]
    ]
    results = complete(path, keys, cases, measure)
    for sets in DEVELOPMENT, KEPT_ASIDE:
        report(results, [name for name in sets if name in args.sets], BASELINE)
    if {*args.sets} == {*SETS} and {*args.models} == {*MODELS}:
        check(results[results.set.isin(DEVELOPMENT)], DEVELOPMENT)
