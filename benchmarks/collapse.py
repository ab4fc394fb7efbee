"""Class collapse: what is left of the rows within a class, when a head has learned the classes.

A dense head's embeddings of a class fall to a point. Do those of a neighbour head, and do sparse
neighbourhoods (SoftStep) keep more? Each head is trained on coarse classes. Over the epochs: the
scatter within the classes over that between them, and the gradients that arrive at the
embeddings. At the end: how well the embedding's neighbours predict the finer classes, which were
not in training. The network has one hidden layer on the scaled features; a step's neighbours
are 512. References are the features themselves, and a network that was trained on the finer
classes. Training goes on for 60 epochs without early stopping ("long"), or stops early, as by
default. Results are kept in ``benchmarks/results/collapse.csv``: a run goes on where the last
one stopped.
"""

from itertools import product

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback

from nona_sklearn import NONAClassifier, TrainingOptions

from . import class_data
from .internals import DenseHeadClassifier
from .ledger import SEEDS, complete
from .quick import shorten
from .timing import timed

FEATURES, FINE = "features", "NONA of fine classes"
NETWORK = {"n_estimators": 1, "numerical_embedding": None}
PLAIN = NETWORK | {"adjust": False}
HEADS = {
    "dense": (DenseHeadClassifier, NETWORK),
    "NONA": (NONAClassifier, PLAIN),
    "SoftStep s1": (NONAClassifier, PLAIN | {"softstep": "s1"}),
    "SoftStep s2": (NONAClassifier, PLAIN | {"softstep": "s2"}),
    FINE: (NONAClassifier, PLAIN),
}
N_EPOCHS = 60
TRAININGS = {
    "long": {
        "validation_fraction": None,
        "max_iter": N_EPOCHS,
        "training__n_iter_no_change": N_EPOCHS,
    },
    "early": {},
}
NONE = "none"
MOMENTS = [1, 2, 5, 10, 20, 40, 60]  # epochs of the curves
TITLES = {
    "fine_accuracy": "Accuracy of 5-NN on the finer classes, in the embedding",
    "voted_accuracy": "Accuracy of the head's weights on the finer classes",
    "coarse_accuracy": "Accuracy of 5-NN on the coarse classes, in the embedding",
    "head_log_loss": "Log loss of the head",
    "test_scatter": "Test rows, scatter within the coarse classes over that between them",
    "fine_share": "Share of the scatter within the coarse classes that is between finer ones",
    "neighbors": "Effective neighbours of a test row, median",
    "share_of_bank": "Share of the bank with a weight above 0",
}
COLUMNS = [  # of each line of the ledger, known or not
    *TITLES,
    "head_accuracy",
    *(f"{name}_{moment}" for name in ("scatter", "pull") for moment in MOMENTS),
    "epochs",
    "seconds",
]
QUICK = {"even or odd": class_data.few(class_data.even_or_odd, 150)}


class Watch(Callback):
    """Note in the history of each epoch how the training rows lie, and how hard they are pulled.

    A pull is the norm of the loss's gradient at a step's embeddings times that of the embeddings,
    less their mean: it is invariant to units.
    """

    def on_train_begin(self, net, **kwargs):
        self.hook_ = net.module.embedding.register_forward_hook(self.wait)
        self.pulls_ = []

    def wait(self, module, inputs, embeddings):
        """See the gradient of what was embedded, when it comes."""
        if embeddings.requires_grad:
            size = (embeddings - embeddings.mean(dim=0)).detach().norm()
            embeddings.register_hook(lambda g: self.pulls_.append((g.norm() * size).item()))

    def on_epoch_end(self, net, **kwargs):
        network, pool = net.module, net.pool
        z = network.head.metric_part(network.embed(pool.X)).numpy()
        net.history.record("scatter", within_over_between(z, pool.values.argmax(dim=1).numpy()))
        net.history.record("pull", float(np.mean(self.pulls_)))
        self.pulls_ = []

    def on_train_end(self, net, **kwargs):
        self.hook_.remove()


def scatter_within(z, labels):
    """Sum of squared distances of rows (n, d) to their class's mean."""
    _, codes = np.unique(labels, return_inverse=True)
    groups = (z[codes == code] for code in range(codes.max() + 1))
    return sum(np.sum((group - group.mean(axis=0)) ** 2) for group in groups)


def within_over_between(z, labels):
    """Scatter of rows (n, d) within their classes over that of the classes' means.

    0 if each class is a point.
    """
    z = z.astype(float)
    within = float(scatter_within(z, labels))
    return within / (np.sum((z - z.mean(axis=0)) ** 2) - within)


# -- measuring --------------------------------------------------------------------------------


def judge_embedding(z, coarse, fine):
    """Measure how well 5-NN predicts classes in an embedding, and how the test rows lie.

    `z` and the classes are pairs, of training and of test rows.
    """
    knn, z_test = KNeighborsClassifier(), z[1].astype(float)
    within = scatter_within(z_test, coarse[1])
    return {
        "coarse_accuracy": knn.fit(z[0], coarse[0]).score(z[1], coarse[1]),
        "fine_accuracy": knn.fit(z[0], fine[0]).score(z[1], fine[1]),
        "test_scatter": within_over_between(z_test, coarse[1]),
        # Of the scatter within the coarse classes, what is between the finer ones.
        "fine_share": 1 - scatter_within(z_test, fine[1]) / within,
    }


def judge_head(clf, X_test, y_test):
    """Measure how good a head is on the classes that it was trained on."""
    proba = clf.predict_proba(X_test)
    return {
        "head_accuracy": np.mean(clf.classes_[proba.argmax(axis=1)] == y_test),
        "head_log_loss": log_loss(y_test, proba, labels=clf.classes_),
    }


def judge_weights(clf, X_test, fine):
    """Measure how well a head's weights predict the finer classes, and how few rows have any."""
    weights = clf.neighbor_weights(X_test)
    classes, codes = np.unique(fine[0], return_inverse=True)
    votes = weights @ np.eye(len(classes))[codes]
    return {
        "voted_accuracy": np.mean(classes[votes.argmax(axis=1)] == fine[1]),
        "neighbors": np.median(clf.neighborhood(X_test)["effective_n_neighbors"]),
        "share_of_bank": weights.nnz / np.prod(weights.shape),
    }


def curves(history):
    """Pick out what was watched at some moments; NaN of what early stopping spared."""
    watched = pd.DataFrame(history, index=range(1, len(history) + 1)).reindex(MOMENTS)
    return {
        f"{name}_{moment}": watched[name][moment]
        for name, moment in product(("scatter", "pull"), MOMENTS)
    }


def judge(data, head, training, seed, change=lambda clf: clf):
    """Train a head, perhaps a changed one, on one split, and measure what its embedding keeps."""
    X_train, X_test, *labels = class_data.split(data, seed)
    coarse, fine = labels[:2], labels[2:]
    judged = dict.fromkeys(COLUMNS, np.nan)
    if head == FEATURES:
        scaler = StandardScaler().fit(X_train)
        z = scaler.transform(X_train), scaler.transform(X_test)
        return judged | judge_embedding(z, coarse, fine)
    kind, params = HEADS[head]
    clf = kind(
        random_state=seed,
        training=TrainingOptions(pool_size=512, callbacks=[Watch()]),
        **params,
    ).set_params(**TRAININGS[training])
    learned = fine if head == FINE else coarse
    seconds = timed(lambda: change(clf).fit(X_train, learned[0]))
    judged |= judge_embedding((clf.transform(X_train), clf.transform(X_test)), coarse, fine)
    judged |= judge_head(clf, X_test, learned[1]) | curves(clf.history_)
    if head != "dense":
        judged |= judge_weights(clf, X_test, fine)
    return judged | {"epochs": len(clf.history_), "seconds": seconds}


def measure(set_name, head, training, seed):
    """Judge one head on one split."""
    return judge(class_data.HIERARCHIES[set_name](), head, training, seed)


def measure_quickly(set_name, head, training, seed):
    """The same on few rows and epochs."""
    return judge(QUICK[set_name](), head, training, seed, shorten)


# -- reporting --------------------------------------------------------------------------------


def by_head(results, training, column, sets):
    """Mean over splits: heads by sets. The features are there whatever the training."""
    some = results[results["training"].isin([training, NONE])]
    table = some.pivot_table(index="head", columns="set", values=column)
    heads = [FEATURES, *HEADS]
    return table.reindex(index=heads, columns=[name for name in sets if name in table]).dropna(
        how="all"
    )


def curve(results, name, sets):
    """Geometric means over sets and splits of what was watched: heads by epochs, if long."""
    some = results[(results["training"] == "long") & results["set"].isin(list(sets))]
    columns = {f"{name}_{moment}": moment for moment in MOMENTS}
    logs = np.log(some.set_index("head")[list(columns)].rename(columns=columns))
    return np.exp(logs.groupby(level="head").mean()).reindex(HEADS).dropna(how="all")


def gains(results, column, rival):
    """Points more than a rival's on the same split: (set, training, seed) by head."""
    wide = results[results["training"] != NONE].pivot(
        index=["set", "training", "seed"], columns="head", values=column
    )
    return 100 * wide.sub(wide[rival], axis=0)[[name for name in HEADS if name in wide]]


def report(results, sets):
    """Print the tables."""
    for training, (column, title) in product(TRAININGS, TITLES.items()):
        print(f"\n{title} ({training} training)")
        print(by_head(results, training, column, sets).round(3).to_string())
    for rival in ("dense", "NONA"):
        points = gains(results, "fine_accuracy", rival).drop(columns=rival)
        points = points.groupby(level="training").agg(["mean", "sem"])
        print(f"\nAccuracy of 5-NN on the finer classes, points more than under {rival} on the")
        print("same split: mean over sets and splits, and its standard error")
        print(points.round(1).to_string())
    for name in ("scatter", "pull"):
        print(f"\nTraining rows, {name} after so many epochs, of the classes that are trained:")
        print("geometric means over sets and splits (long training)")
        print(curve(results, name, sets).map("{:.3g}".format).to_string())
    print(f"\nTraining rows, scatter after {MOMENTS[-1]} epochs, geometric mean over splits")
    last = results.assign(log=np.log(results[f"scatter_{MOMENTS[-1]}"]))
    print(np.exp(by_head(last, "long", "log", sets)).round(2).to_string())


def check(results):
    """Assert what was measured, on all sets."""
    over_dense, over_nona = (
        gains(results, "fine_accuracy", rival).groupby(level="training").mean()
        for rival in ("dense", "NONA")
    )
    scatter = curve(results, "scatter", class_data.HIERARCHIES)[N_EPOCHS]
    kept = by_head(results, "early", "fine_accuracy", class_data.HIERARCHIES)
    share = by_head(results, "early", "share_of_bank", class_data.HIERARCHIES)
    sparse = share.columns[share.loc["SoftStep s1"] < 0.1]
    # A neighbour head leaves a class in several heaps, but not the finer classes in them.
    assert scatter["dense"] < 0.6 * scatter["NONA"]
    assert (over_dense["NONA"] < 0).all()
    # Sparsity helps where it is: on the digits.
    assert over_nona.loc["early", "SoftStep s1"] > 2
    assert len(sparse) == 2
    assert (kept.loc["SoftStep s1", sparse] > kept.loc["dense", sparse] + 0.02).all()
    # No head keeps all.
    trained = kept.drop(index=[FEATURES, FINE])
    assert (trained.mean(axis=1) < kept.loc[FEATURES].mean()).all()


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=list(class_data.HIERARCHIES))
    parser.add_argument("--heads", nargs="+", default=[FEATURES, *HEADS])
    parser.add_argument("--trainings", nargs="+", default=list(TRAININGS))


def run(args):
    """Run what is missing, print the tables, check the claims."""
    sets, seeds, how = args.sets, SEEDS, measure
    if args.quick:
        sets, seeds, how = list(QUICK), range(1), measure_quickly
    cases = [
        (set_name, head, training, seed)
        for set_name, seed, head in product(sets, seeds, args.heads)
        for training in ([NONE] if head == FEATURES else args.trainings)
    ]
    path = args.results / "collapse.csv"
    results = complete(path, ["set", "head", "training", "seed"], cases, how)
    report(results, QUICK if args.quick else class_data.HIERARCHIES)
    n_cases = len(class_data.HIERARCHIES) * len(SEEDS) * (1 + len(HEADS) * len(TRAININGS))
    if not args.quick and len(results) == n_cases:
        check(results)
