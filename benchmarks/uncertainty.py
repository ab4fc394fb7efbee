"""Predictive distributions on real data, models at their defaults, on the same rows.

Results are kept in ``benchmarks/results/uncertainty.csv``: a run goes on where the last one
stopped, so delete the rows of whatever you changed, or the file, to start from scratch.
"""

import time
from functools import partial

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import NONARegressor, SoftStepKNeighborsRegressor

from . import real_data
from .ledger import complete
from .quick import N_EPOCHS
from .scores import crps, relative_error

SETS = ["diabetes", "concrete", "abalone", *real_data.SPREAD]
FOLDED = ["diabetes", "concrete"]  # one test set of a hundred rows is too small for a coverage
BASELINE = "quantile forest"
NEIGHBORS = "k-NN, tuned"
LEVELS = np.arange(1, 20) / 20
OF_ALL_RATINGS = ["cover_80", "shared_80", "cover_90", "shared_90", "crps"]


def nona(X, y, queries, **params):
    """Predict the quantiles of our regressor."""
    return NONARegressor(random_state=0, **params).fit(X, y).predict_quantiles(queries, LEVELS)


def soft_neighbors(X, y, queries, **params):
    """Predict the quantiles of soft k-NN."""
    knn = SoftStepKNeighborsRegressor(random_state=0, **params).fit(X, y)
    return knn.predict_quantiles(queries, LEVELS)


def forest(X, y, queries, **params):
    """Predict the quantiles of a quantile regression forest."""
    from quantile_forest import RandomForestQuantileRegressor  # a quick run does without

    model = RandomForestQuantileRegressor(random_state=0, **params).fit(X, y)
    return model.predict(queries, quantiles=LEVELS.tolist())


def boosting(X, y, queries):
    """Predict each quantile by trees of its own; sorted, as they may cross."""
    models = [
        HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0)
        for level in LEVELS
    ]
    return np.sort([model.fit(X, y).predict(queries) for model in models], axis=0).T


def neighbors(X, y, queries):
    """Take the quantiles of the nearest rows' targets, their number found by cross-validation."""
    search = GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [5, 10, 20, 50, 100]})
    model = make_pipeline(StandardScaler(), search).fit(X, y)
    _, indices = search.best_estimator_.kneighbors(model[:-1].transform(queries))
    return np.quantile(y[indices], LEVELS, axis=1).T


METHODS = {
    "NONA": nona,
    "SoftStep k-NN": soft_neighbors,
    BASELINE: forest,
    # The usual remedy for noise, which is no default.
    "quantile forest, leaves of 10": partial(forest, min_samples_leaf=10),
    "HistGradientBoosting": boosting,
    NEIGHBORS: neighbors,
}
QUICK_METHODS = {
    "NONA": partial(nona, n_estimators=1, max_iter=N_EPOCHS),
    "SoftStep k-NN": partial(soft_neighbors, max_iter=N_EPOCHS),
    NEIGHBORS: neighbors,
}


def splits(set_name):
    """Yield (X_train, X_test, y_train, y_test, test rows) of one set: one split, or five folds.

    Categories are one-hot encoded, texts become 32 latent dimensions of their words.
    """
    encoder = real_data.make_encoder()
    if set_name in FOLDED:
        X, y = real_data.DEVELOPMENT[set_name]()
        for train, test in KFold(5, shuffle=True, random_state=0).split(X):
            encoded = encoder.fit_transform(X.iloc[train]), encoder.transform(X.iloc[test])
            yield *encoded, y[train], y[test], test
        return
    X_train, X_test, y_train, y_test = real_data.split(set_name, 0, max_train=4000, max_test=1000)
    if "text" in X_train:
        words = make_pipeline(TfidfVectorizer(), TruncatedSVD(32, random_state=0))
        encoder = make_column_transformer((words, "text"))
    encoded = encoder.fit_transform(X_train), encoder.transform(X_test)
    yield *encoded, y_train, y_test, X_test.index


def levels_of(quantiles, y):
    """Between which levels the targets are; one that equals quantiles has their levels."""
    edges = np.concatenate([[0], LEVELS, [1]])
    first = (quantiles < y[:, None]).sum(axis=1)
    last = (quantiles <= y[:, None]).sum(axis=1)
    middle = (edges[:-1] + edges[1:]) / 2  # where, between two levels, a tie begins is not known
    tied = first < last
    return np.where(tied, middle[first], edges[first]), np.where(
        tied, middle[last], edges[last + 1]
    )


def score(quantiles, y):
    """Coverage, the shares outside, and CRPS as twice the mean pinball loss.

    "cover" counts targets at an interval's very end. Of integers there are many, so the truth
    itself would cover more than it should: "shared" counts the part of such a target's levels
    that is within the interval's, which is close to nominal for the truth, integers or not.
    """
    low, high = levels_of(quantiles, y)
    scores = {}
    for nominal, i in (80, 1), (90, 0):
        within = np.minimum(high, LEVELS[-1 - i]) - np.maximum(low, LEVELS[i])
        below, above = y < quantiles[:, i], y > quantiles[:, -1 - i]
        scores[f"cover_{nominal}"] = np.mean(~below & ~above)
        scores[f"shared_{nominal}"] = np.mean(np.maximum(within, 0) / (high - low))
        scores[f"below_{nominal}"] = np.mean(below)
        scores[f"above_{nominal}"] = np.mean(above)
    return scores | {"crps": crps(quantiles, y, LEVELS)}


def score_all_ratings(quantiles, rows):
    """Score the tweets' quantiles against each of the ratings, not just the one drawn."""
    ratings = real_data.tweets().loc[rows, "ratings"]
    repeated = np.repeat(quantiles, ratings.map(len), axis=0)
    scores = score(repeated, np.concatenate(ratings.to_list()))
    return {name: scores[name] for name in OF_ALL_RATINGS}


def measure(set_name, method, methods=METHODS):
    """Score one method on one set."""
    start = time.perf_counter()
    folds = [
        (methods[method](X_train, y_train, X_test), y_test, rows, len(y_train))
        for X_train, X_test, y_train, y_test, rows in splits(set_name)
    ]
    seconds = (time.perf_counter() - start) / len(folds)
    quantiles, y_test, rows = (
        np.concatenate(parts) for parts in list(zip(*folds, strict=True))[:3]
    )
    all_ratings = dict.fromkeys(OF_ALL_RATINGS, np.nan)
    if set_name == "tweets":
        all_ratings = score_all_ratings(quantiles, rows)
    return {
        "n_train": folds[0][-1],
        "n_test": len(y_test),
        **score(quantiles, y_test),
        **{f"all_{name}": value for name, value in all_ratings.items()},
        "seconds": seconds,
    }


def table(results, column):
    """Arrange one column of the results, methods by sets."""
    return results.pivot(index="method", columns="set", values=column).reindex(columns=SETS)


def report(results, baseline):
    """Print the tables; returns the CRPS relative to a method's, the baseline's."""
    for nominal in 80, 90:
        for name in f"cover_{nominal}", f"shared_{nominal}":
            print(f"\n{name}")
            print(table(results, name).round(3).to_string())
    deviation = np.sqrt(0.8 * 0.2 / table(results, "n_test").iloc[0])
    print("\nStandard error of a coverage of 80 %")
    print(deviation.round(3).to_frame().T.to_string(index=False))
    crps = table(results, "crps")
    relative = crps / crps.loc[baseline]
    mean = relative_error(crps, baseline)
    print(f"\nMean pinball loss, and so CRPS, relative to {baseline}")
    print(relative.assign(**{"geo. mean": mean}).sort_values("geo. mean").round(3).to_string())
    all_ratings = results[results.set == "tweets"].set_index("method").filter(like="all_")
    print("\nTweets, against each of their ratings")
    print(all_ratings.round(3).to_string())
    print("\nSeconds for fit and prediction")
    print(table(results, "seconds").round(1).to_string())
    return mean


def check(results, relative):
    """Assert what the documentation states."""
    excess = {
        name: table(results, name).loc["NONA"] - int(name[-2:]) / 100
        for name in ("cover_80", "shared_80", "cover_90", "shared_90")
    }
    print("\nNONA's coverage, too much or too little, in points")
    print(pd.DataFrame(excess).mul(100).round(1).T.to_string())
    # Where targets are integers, an interval of the true distribution covers too much, so ties
    # are shared.
    assert (excess["shared_80"].abs() <= 0.04).all()
    assert (excess["shared_90"].abs() <= 0.04).all()
    assert relative["NONA"] <= 1


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))


def run(args):
    """Run what is missing, print the tables, check the claims."""
    sets, methods = (
        (["diabetes"], list(QUICK_METHODS)) if args.quick else (args.sets, args.methods)
    )
    results = complete(
        args.results / "uncertainty.csv",
        ["set", "method"],
        [(name, method) for name in sets for method in methods],
        partial(measure, methods=QUICK_METHODS) if args.quick else measure,
    )
    relative = report(results, NEIGHBORS if args.quick else BASELINE)
    if not args.quick and len(results) == len(SETS) * len(METHODS):
        check(results, relative)
