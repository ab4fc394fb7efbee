"""The NONA paper's experiment: which head to fine-tune a feature extractor under.

Seven tasks (``finetune_data.py``), five splits, the paper's protocol: a fifth of the rows for the
test, 15 % of the others for early stopping with a patience of 10 epochs. Heads differ in nothing
else. Results are kept in ``benchmarks/results/finetune.csv``: a run goes on where the last one
stopped. Draws ``docs/images/heads.png``.
"""

import time
from functools import cache

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import friedmanchisquare, rankdata, t
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.neighbors import KNeighborsRegressor
from skorch.callbacks import LRScheduler
from torch.optim.lr_scheduler import LambdaLR

from nona_sklearn import FeatureExtractor, NONARegressor, TrainingOptions

from . import finetune_data as data
from .internals import DenseHeadRegressor
from .ledger import complete
from .scores import critical_difference

TEXTS = ["tweets", "films", "products", "news"]
TEXT_EPOCHS = 10
SEEDS = range(5)
HEADS = {  # and what each changes of the parameters
    "dense": (DenseHeadRegressor, {}),
    "nona": (NONARegressor, {"adjust": False}),
    "adjusted": (NONARegressor, {"adjust": True}),
}
KNN = {"n_neighbors": [1, 3, 5, 10, 20, 40, 80], "weights": ["uniform", "distance"]}
COLUMNS = ["dense", "dense + k-NN", "nona", "nona + k-NN"]  # the paper's


def text_rate(epoch):
    """Share of the learning rates in an epoch: half of them to warm up, then linearly to zero."""
    return min(1, (epoch + 1) / 2) * (1 - epoch / TEXT_EPOCHS)


def make_regressor(task, seed, kind=NONARegressor, **changes):
    """Build an estimator: heads differ in nothing but kind and changes."""
    reg = kind(
        random_state=seed, training=TrainingOptions(batch_size=32, n_iter_no_change=10), **changes
    )
    if task in TEXTS:
        return reg.set_params(
            feature_extractor=FeatureExtractor(data.TopOfMiniLM, learning_rate=3e-4),
            training__learning_rate_init=3e-3,
            max_iter=TEXT_EPOCHS,
            training__callbacks=[LRScheduler(LambdaLR, lr_lambda=text_rate)],
        )
    return reg.set_params(
        feature_extractor=FeatureExtractor(data.SmallCNN, learning_rate=1e-3),
        training__learning_rate_init=1e-3,
        max_iter=2 if task == data.QUICK else 100,
    )


@cache
def load(task):
    """Load a task's inputs, as the extractor takes them, targets and groups; once."""
    X, y, groups = data.load(task)
    return data.lower_layers(X) if task in TEXTS else X, y, groups


def measure(task, seed, head):
    """Mean squared errors of a head and of k-NN on its embeddings, on one split."""
    X, y, groups = load(task)
    train, test = data.split(task, seed)
    X_train, X_test = select(X, train), select(X, test)
    groups = None if groups is None else np.asarray(groups)[train]
    start = time.perf_counter()
    kind, changes = HEADS[head]
    reg = make_regressor(task, seed, kind, **changes).fit(X_train, y[train], groups=groups)
    mse = mean_squared_error(y[test], reg.predict(X_test))
    knn = tune_knn(reg, reg.transform(X_train), y[train])
    of_knn = mean_squared_error(y[test], knn.predict(reg.transform(X_test)))
    return {"mse": mse, "knn": of_knn, "seconds": time.perf_counter() - start}


def select(X, rows):
    """Select rows of an array or of a dict of arrays."""
    return {name: part[rows] for name, part in X.items()} if isinstance(X, dict) else X[rows]


def tune_knn(reg, embeddings, y):
    """Fit k-NN to embeddings; its neighbours are chosen on the rows of early stopping."""
    folds = np.full(len(y), -1)
    for i, rows in enumerate(reg.validation_indices_):
        folds[rows] = i
    folds = PredefinedSplit(folds)
    fewest = min(len(train) for train, _ in folds.split())
    grid = KNN | {"n_neighbors": [k for k in KNN["n_neighbors"] if k <= fewest]}
    return GridSearchCV(KNeighborsRegressor(), grid, cv=folds).fit(embeddings, y)


def by_column(results):
    """Mean squared errors, (task, seed) by column."""
    wide = results.pivot(index=["task", "seed"], columns="head", values=["mse", "knn"])
    wide.columns = [head if part == "mse" else f"{head} + k-NN" for part, head in wide.columns]
    return wide


def paired_test(errors, rival, train_share=0.8):
    """P of a paired t-test over splits that share rows (Nadeau and Bengio, 2003)."""
    difference = (errors - rival).to_numpy()
    n = len(difference)
    variance = difference.var(ddof=1) * (1 / n + (1 - train_share) / train_share)
    return 2 * t.sf(abs(difference.mean()) / np.sqrt(variance), n - 1)


def compare_with_dense(errors):
    """Table of each column's reduction of the dense head's MSE, and whether it is significant."""
    rows = {}
    for task, group in errors.groupby(level="task", sort=False):
        dense = group["dense"]
        for column in group.columns.drop("dense"):
            reduction = 1 - group[column].mean() / dense.mean()
            rows[task, column] = {"reduction": reduction, "p": paired_test(group[column], dense)}
    return pd.DataFrame(rows).T.unstack()


def draw_ranks(ranks, difference, path):
    """Draw mean ranks on a line, and a bar as long as the critical difference."""
    figure = Figure(figsize=(6, 1.8), layout="constrained")
    ax = figure.subplots()
    ax.plot(ranks, np.zeros(len(ranks)), "o", color="tab:blue")
    for i, (name, rank) in enumerate(ranks.sort_values().items()):
        ax.annotate(
            f"{name} {rank:.2f}", (rank, 0), (0, 12 if i % 2 else -20), ha="center",
            textcoords="offset points",
        )  # fmt: skip
    ax.plot([1, 1 + difference], [0.9, 0.9], lw=3, color="black")
    ax.annotate(f"critical difference {difference:.2f}", (1 + difference, 0.82), (6, 0),
                textcoords="offset points")  # fmt: skip
    ax.set(xlim=(0.8, len(ranks) + 0.2), ylim=(-1, 1.2), yticks=[], xlabel="mean rank over tasks")
    ax.spines[["left", "right", "top"]].set_visible(False)
    figure.savefig(path, dpi=90)


def report(results, picture):
    """Print the tables and draw the picture; returns the comparison with the dense head."""
    errors = by_column(results)
    groups = errors.groupby(level="task", sort=False)
    mean, deviation = (part.map("{:.3g}".format) for part in (groups.mean(), groups.std()))
    print("\nMSE, mean ± standard deviation over splits")
    print((mean + " ± " + deviation).to_string())

    table = compare_with_dense(errors)
    print("\nReduction of the dense head's MSE, and p of the paired test")
    print(table.round(3).to_string())
    print("median reduction:", table["reduction"].median().round(3).to_dict())

    complete_errors = groups.mean()[COLUMNS].dropna()
    if len(complete_errors) > 2:
        ranks = pd.Series(rankdata(complete_errors, axis=1).mean(axis=0), index=COLUMNS)
        p = friedmanchisquare(*complete_errors.to_numpy().T).pvalue
        difference = critical_difference(len(COLUMNS), len(complete_errors))
        print(f"\nMean ranks {ranks.round(2).to_dict()}; Friedman p = {p:.2g}; ", end="")
        print(f"ranks that differ by {difference:.2f} differ significantly (5 %)")
        draw_ranks(ranks, difference, picture)
    print("\nSeconds for a fit")
    print(results.pivot_table(index="task", columns="head", values="seconds").round(0).to_string())
    return table


def report_partial(results):
    """Compare heads that were not run on all splits with the others, where they were."""
    errors = results.pivot(index=["task", "seed"], columns="head", values="mse").dropna()
    if len(errors) and errors.shape[1] > 2:
        n_splits = errors.groupby(level="task").size()
        means = errors.groupby(level="task").mean()
        reduction = 1 - means.drop(columns="dense").div(means["dense"], axis=0)
        print("\nReduction of the dense head's MSE on the splits where all heads were run")
        print(reduction.round(3).assign(splits=n_splits).to_string())
        print("median reduction:", reduction.median().round(3).to_dict())


def check(table):
    """Assert what the documentation states."""
    reduction, p = table["reduction"], table["p"]
    assert reduction["nona"].median() > 0.03
    assert (reduction["nona"] > 0).sum() >= 6
    assert not ((reduction["nona"] < 0) & (p["nona"] < 0.05)).any()


def add_arguments(parser):
    parser.add_argument("--tasks", nargs="+", default=list(data.TASKS))
    parser.add_argument("--heads", nargs="+", default=list(HEADS))


def run(args):
    """Run what is missing, print the tables, check the claims."""
    tasks, seeds = ([data.QUICK], range(2)) if args.quick else (args.tasks, SEEDS)
    cases = [(task, seed, head) for seed in seeds for task in tasks for head in args.heads]
    path = args.results / "finetune.csv"
    results = complete(path, ["task", "seed", "head"], cases, measure)
    report_partial(results)
    # A head joins the tables when it has all splits, a task when the paper's two heads have.
    results = results[results.groupby(["task", "head"])["mse"].transform("size") == len(seeds)]
    rivals = results[results["head"].isin(["dense", "nona"])]
    results = results[results["task"].map(rivals.groupby("task")["head"].nunique()) == 2]
    if len(results):
        table = report(results, args.images / "heads.png")
        if not args.quick and len(table) == len(data.TASKS):
            check(table)
