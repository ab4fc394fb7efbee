"""What comes in place of the softmax: every weighting, side by side, on real data.

One network, so that the average of several hides nothing, on at most 2,000 training rows: nine
sets with numbers and four with classes, three splits. Then what they bear (nine sets, first
split): a twentieth of the training targets are outliers, every row stands there twice, or in the
bank alone, half of the columns are noise. Results are kept in ``results/weightings.csv``: a run
goes on where the last one stopped.
"""

import itertools

import numpy as np
import pandas as pd

from nona_sklearn import NONAClassifier, NONARegressor
from nona_sklearn.weighting import WEIGHTINGS, Preconditioned, SparseSoftmax

from . import real_data
from .ledger import SEEDS, complete
from .quick import shorten
from .scores import (
    critical_difference,
    is_complete,
    judge_classes,
    mean_over_splits,
    normalised_rmse,
    print_ranked,
    relative_error,
)
from .timing import timed

BASELINE = "softmax"
MAX_TRAIN = 2000
CLASSES = {name: real_data.CLASSES[name] for name in ("cells", "churn", "juice", "votes")}
LEVELS = np.linspace(0.025, 0.975, 39)
OUTLIERS = 0.05  # of the training targets

#: Label of each weighting: how it is given, and the step on top.
MODELS = (
    {name: (name, None) for name in WEIGHTINGS if name != "uniform"}
    | {"sparse_softmax, 6 nearest": (SparseSoftmax(6), None)}
    | {"sparse_softmax, 20 nearest": (SparseSoftmax(20), None)}
    | {"preconditioned, 16 nearest": (Preconditioned(16), None)}
    | {"preconditioned, 20 nearest": (Preconditioned(20), None)}
    | {f"{name} + S1": (name, "s1") for name in WEIGHTINGS}
)


def with_outliers(X, y, rng):
    """Replace some targets by numbers from five times their range."""
    y = y.copy()
    rows = rng.choice(len(y), int(OUTLIERS * len(y)), replace=False)
    low, high = y.min(), y.max()
    y[rows] = rng.uniform(low - 2 * (high - low), high + 2 * (high - low), len(rows))
    return X, y


def doubled(X, y, rng):
    """Let every row stand there twice."""
    return pd.concat([X, X]), np.concatenate([y, y])


#: What is done to the training rows; noise is added to those of the test as well.
CONDITIONS = {
    "as it is": None,
    "outliers": with_outliers,
    "doubled": doubled,
    "bank doubled": None,  # after the fit
    "noise": None,
}
#: Weightings that look at the whole row. The others give a row and its twin what they give the row
#: alone: a doubled bank cannot change their predictions.
OF_WHOLE_ROWS = (
    *("sparse_softmax", "sparse_softmax, 6 nearest", "sparsemax", "entmax"),
    *("preconditioned", "preconditioned, 16 nearest"),
)


def is_measured(set_name, label, condition, seed):
    """Return whether a cell of the table is measured."""
    if condition == "as it is":
        return True
    if seed > 0 or set_name not in real_data.DEVELOPMENT:
        return False
    if condition == "bank doubled":
        return label == BASELINE or label in OF_WHOLE_ROWS
    return label in WEIGHTINGS or label == f"{BASELINE} + S1"


def with_noise(X, rng):
    """Put as many columns of noise beside those that there are."""
    noise = rng.standard_normal(X.shape)
    names = [f"noise {j}" for j in range(X.shape[1])]
    return pd.concat([X, pd.DataFrame(noise, index=X.index, columns=names)], axis=1)


def measure(set_name, label, condition, seed, max_train=MAX_TRAIN, quick=False, sets=None):
    """Score one weighting on one split."""
    sets = sets or real_data.DEVELOPMENT | CLASSES
    X, X_test, y, y_test = real_data.split(set_name, seed, max_train=max_train, sets=sets)
    rng = np.random.default_rng(seed)
    if condition == "noise":
        X, X_test = with_noise(X, rng), with_noise(X_test, rng)
    elif CONDITIONS[condition]:
        X, y = CONDITIONS[condition](X, y, rng)
    weighting, step = MODELS[label]
    estimator = NONAClassifier if real_data.has_classes(y) else NONARegressor
    model = estimator(
        weighting=weighting,
        softstep=step,
        n_neighbors=None,  # each ends as it does by itself
        n_estimators=1,
        random_state=seed,
    )
    if quick:
        shorten(model)
    seconds = timed(lambda: model.fit(X, y))
    if condition == "bank doubled":
        unnamed = (
            part.reset_index(drop=True) if hasattr(part, "index") else part for part in (X, y)
        )
        model.add_neighbors(*unnamed)
    predict = timed(lambda: model.predict(X_test))
    weights = model.neighbor_weights(X_test)
    scores = {
        "neighbors": np.median(np.diff(weights.indptr)),
        "effective": np.median(model.neighborhood(X_test)["effective_n_neighbors"]),
        "seconds": seconds,
        "seconds_predict": predict,
    }
    if real_data.has_classes(y):
        judged = judge_classes(model, X_test, y_test)
        return {"error": judged["log_loss"], "spread": judged["calibration_error"]} | scores
    missed = y_test[:, None] - model.predict_quantiles(X_test, LEVELS)
    crps = 2 * np.mean(np.maximum(LEVELS * missed, (LEVELS - 1) * missed)) / y_test.std()
    return {"error": normalised_rmse(model, X_test, y_test), "spread": crps} | scores


def report(results, numbers, classes):
    """Print the tables; returns the mean errors as they are, weightings by sets."""
    plain = results[results.condition == "as it is"]
    print("\n== nRMSE and log loss, one network ==")
    sets = [*numbers, *classes]
    error = mean_over_splits(plain, "error", sets)
    print_ranked("Error", error, BASELINE)
    for title, column, names in (
        ("CRPS over the deviation", "spread", numbers),
        ("Calibration error of classes", "spread", classes),
        ("Neighbours with a weight, median", "neighbors", sets),
        ("Effective neighbours, median", "effective", sets),
        ("Seconds of a fit", "seconds", sets),
        ("Seconds of a prediction", "seconds_predict", sets),
    ):
        table = mean_over_splits(plain, column, names).reindex(error.index)
        print(f"\n{title}")
        print(table.assign(mean=table.mean(axis=1)).round(3).to_string())
    for condition in [name for name in CONDITIONS if name in set(results.condition)][1:]:
        table, worse = harm(results, condition, numbers)
        print(f"\nnRMSE: {condition}")
        print(table.assign(**{"over as it is": worse}).round(3).to_string())
    return error


def harm(results, condition, numbers):
    """Errors under a condition, weightings by sets; and in units of those without it."""
    first = results[results.seed == 0]
    table = mean_over_splits(first[first.condition == condition], "error", numbers)
    same = mean_over_splits(first[first.condition == "as it is"], "error", numbers)
    return table, np.exp(np.log(table / same.reindex(table.index)).mean(axis=1))


#: Where a label has room beside its dot, in points, and how it is aligned.
LABELS = {
    "softmax": ((8, -7), "left"),
    "softplus": ((8, 7), "left"),
    "entmax": ((8, -7), "left"),
    "preconditioned, 16 nearest": ((8, 7), "left"),
    "sparse_softmax": ((5, -12), "right"),
    "sparse_softmax, 20 nearest": ((8, 7), "left"),
    "uniform + S1": ((-8, 0), "right"),
    "softpick": ((-8, 5), "right"),
}


def draw(results, error, path):
    """Draw error against neighbours behind a prediction, and mean ranks with what is chance."""
    import matplotlib.pyplot as plt

    plain = results[results.condition == "as it is"]
    everywhere = error.dropna()
    relative = relative_error(everywhere, BASELINE)
    neighbors = plain.groupby("model")["neighbors"].median()[relative.index]
    ranks = everywhere.round(12).rank().mean(axis=1).sort_values()
    figure, (front, places) = plt.subplots(1, 2, figsize=(12, 7), layout="constrained")
    front.axhline(1, color="grey", linewidth=0.8)
    plain_names = [name for name in relative.index if not name.endswith("+ S1")]
    for name in relative.index.difference(plain_names):  # a line leads to it from the plain one
        both = [each for each in (name.removesuffix(" + S1"), name) if each in relative]
        front.plot(neighbors[both], relative[both], color="grey", linewidth=0.8)
        front.plot(neighbors[name], relative[name], "o", color="#0072B2", fillstyle="none")
    front.plot(neighbors[plain_names], relative[plain_names], "o", color="#0072B2")
    for name in [*plain_names, "uniform + S1"]:
        if name in relative:
            (x, y), align = LABELS.get(name, ((8, 0), "left"))
            at = (neighbors[name], relative[name])
            front.annotate(
                name, at, (x, y), textcoords="offset points", ha=align, va="center", fontsize=9
            )
    front.set(
        xscale="log",
        xlim=(3, 6000) if neighbors.max() > 100 else None,
        xlabel="rows with a weight, median",
        ylabel=f"error over {BASELINE}'s, geometric mean",
        title="Error and number of neighbours\n(open circles: with S1)",
    )
    places.barh(ranks.index, ranks, color="#56B4E9")
    distance = critical_difference(*everywhere.shape)
    places.axvspan(ranks.min(), ranks.min() + distance, color="#E69F00", alpha=0.25)
    places.invert_yaxis()
    places.tick_params(axis="y", labelsize=9)
    places.set(
        title="Mean rank\n(shaded: not significantly worse than the best)",
        xlabel="mean rank of the error",
    )
    figure.savefig(path, dpi=90)
    plt.close(figure)


def chance(results):
    """Measure how much geometric means over the sets differ from split to split."""
    wide = results[results.condition == "as it is"].pivot_table(
        index="model", columns=["seed", "set"], values="error"
    )
    ratio = np.log(wide / wide.loc[BASELINE]).T.groupby("seed").mean().T.dropna()
    return float(np.exp(ratio.std(axis=1, ddof=1).mean() / np.sqrt(ratio.shape[1])) - 1)


def check(results, error):
    """Assert what the documentation states."""
    relative = relative_error(error, BASELINE)
    neighbors = results[results.condition == "as it is"].groupby("model")["neighbors"].median()
    few = [name for name in relative.index if neighbors[name] <= 20]
    print("\nAt most 20 neighbours:", relative[few].sort_values().round(3).to_dict())
    assert relative[few].min() <= 1.01
    _, worse = harm(results, "bank doubled", list(real_data.DEVELOPMENT))
    assert worse["preconditioned"] <= 1.01


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=[*real_data.DEVELOPMENT, *CLASSES])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))


def run(args):
    """Run what is missing, print the tables, check the claims."""
    keys = ["set", "model", "condition", "seed"]
    if args.quick:
        from .classes import made_up_classes
        from .raw import made_up_table

        made_up = {"numbers": lambda: made_up_table(120), "classes": made_up_classes}
        cases = [("numbers", BASELINE, condition, 0) for condition in CONDITIONS]
        some = [BASELINE, "sparsemax", "uniform + S1"]
        cases += [("numbers", label, "as it is", 0) for label in some[1:]]
        cases += [("classes", label, "as it is", 0) for label in some]
        results = complete(
            args.results / "weightings.csv",
            keys,
            cases,
            lambda *cell: measure(*cell, quick=True, sets=made_up),
        )
        error = report(results, ["numbers"], ["classes"])
        draw(results, error[["numbers"]], args.images / "weighting_front.png")
        return
    cells = itertools.product(args.seeds, args.conditions, args.models, args.sets)
    cases = [
        (set_name, label, condition, seed)
        for seed, condition, label, set_name in cells
        if is_measured(set_name, label, condition, seed)
    ]
    results = complete(args.results / "weightings.csv", keys, cases, measure)
    error = report(results, real_data.DEVELOPMENT, CLASSES)
    draw(results, error, args.images / "weighting_front.png")
    ranks = critical_difference(len(error.dropna()), error.shape[1])
    print(f"\nChance of a geometric mean: {chance(results):.3f}; critical difference {ranks:.2f}")
    if is_complete(error.reindex(list(MODELS)), error.columns):
        check(results, error)
