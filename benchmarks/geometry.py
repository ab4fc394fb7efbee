"""How the head shapes the embedding: distances and targets, similarity between heads, probes.

The SoftStep paper shows that a squared error through neighbours gives the embedding a structure,
and leaves open how the head shapes the extractor below. Four heads are trained on the same
extractor: two layers for tables and for MiniLM's embeddings of tweets, and convolutions for
pictures of digits, whose target is the number. Of the test rows, over the epochs: the rank
correlation of distances and differences of targets, how much targets differ among the nearest
rows, and in how many dimensions the rows lie. Of the network that is kept: how alike the
embeddings of two heads are, and how well linear regression and k-NN predict from each layer.
Results are kept in ``benchmarks/results/geometry.csv``: a run goes on where the last one
stopped. Draws ``docs/images/geometry.png``.
"""

import warnings
from functools import cache
from itertools import product

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback
from torch import nn

from nona_sklearn import FeatureExtractor, NONARegressor, TrainingOptions

from . import class_data, finetune_data, real_data
from .internals import DenseHeadRegressor
from .ledger import SEEDS, complete
from .timing import timed

HEADS = {
    "dense": (DenseHeadRegressor, {}),
    "NONA": (NONARegressor, {"adjust": False}),
    "adjusted": (NONARegressor, {"adjust": True}),
    "SoftStep": (NONARegressor, {"adjust": False, "softstep": "s1"}),
}
NAMES = {"adjusted": "NONA, adjusted neighbours"}  # in the picture
STYLES = {  # Okabe and Ito's colours
    "dense": ("#000000", "s", ":"),
    "NONA": ("#0072B2", "o", "-"),
    "adjusted": ("#D55E00", "^", "--"),
    "SoftStep": ("#009E73", "D", "-."),
}
NETWORK = {
    "n_estimators": 1,
    "hidden_layer_sizes": (),
    "embedding_dim": 32,
    "n_neighbors": None,  # all rows, as in the papers
}
TRAINING = {
    "neighbor_pool": "dataset",
    "pool_size": 512,
    "batch_size": 64,
    "learning_rate_init": 3e-3,
}
N_EPOCHS = 32
MOMENTS = [0, 1, 2, 4, 8, 16, 32]  # epochs that are measured
N_NEAREST = 10
MAX_ROWS = 2000
OTHER_SEED = 100  # added for the second network of a head
LAYERS = ["input", "layer 1", "layer 2", "embedding"]
PENALTIES = np.logspace(-2, 5, 15)
CURVES = {
    "spearman": "Rank correlation of distances and differences of targets",
    "spread": f"Variance of targets among the {N_NEAREST} nearest rows, over that of all",
    "dimensions": "Effective number of dimensions",
}
PROBES = {"linear": "linear probe, test R²", "knn": "k-NN probe, test R²"}


# -- data -------------------------------------------------------------------------------------


def table(name):
    """Take at most 2,000 rows of a table, with numbers for categories."""
    X, y = real_data.DEVELOPMENT[name]()
    rows = np.random.default_rng(0).permutation(len(y))[:MAX_ROWS]
    return real_data.make_encoder().fit_transform(X.iloc[rows]), y[rows]


def digits():
    """Take pictures of digits, (n, 1, 8, 8), and which number each is."""
    X, y = load_digits(return_X_y=True)
    return X.reshape(-1, 1, 8, 8) / 16, y.astype(float)


def tweets():
    """Take 2,000 tweets as MiniLM embeds them, (n, 384), and their mean sentiment."""
    texts, y, _ = finetune_data.load("tweets")
    path = real_data.CACHE / "tweets.npy"
    if not path.exists():
        np.save(path, class_data.embed(texts))
    return np.load(path), y


SETS = {
    "concrete": lambda: table("concrete"),
    "abalone": lambda: table("abalone"),
    "digits": digits,
    "tweets": tweets,
}
QUICK = {
    "few digits": lambda: tuple(part[:100] for part in digits()),
    "diabetes": lambda: tuple(part[:100] for part in load_diabetes(return_X_y=True)),
}


@cache
def split(name, seed):
    """Split the rows, a fifth for the test; columns of a table are standardised."""
    X, y = (SETS | QUICK)[name]()
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=real_data.TEST_SIZE, random_state=seed
    )
    if X.ndim == 2:
        scaler = StandardScaler().fit(X_train)
        X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    return X_train.astype(np.float32), X_test.astype(np.float32), y_train, y_test


class Extractor(nn.Module):
    """Two layers on rows (n, n_features), or on pictures (n, 1, 8, 8): (n, 64).

    Parameters
    ----------
    n_features : int or None
        None: pictures.
    """

    def __init__(self, n_features):
        super().__init__()
        if n_features is None:
            first = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            second = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.ReLU())
        else:
            first = nn.Sequential(nn.Linear(n_features, 128), nn.ReLU())
            second = nn.Sequential(nn.Linear(128, 64), nn.ReLU())
        self.layers = nn.Sequential(first, second)

    def forward(self, X):
        return self.layers(X)


# -- what is measured -------------------------------------------------------------------------


def rank_correlation(z, y):
    """Spearman's, over all pairs of rows (n, d), of distance and difference of targets (n,)."""
    return spearmanr(pdist(z), pdist(y[:, None])).statistic


def spread_of_nearest(z, y, n_nearest=N_NEAREST):
    """Mean variance of targets among the other rows nearest to each, over that of all targets."""
    nearest = NearestNeighbors(n_neighbors=min(n_nearest, len(y) - 1)).fit(z).kneighbors()[1]
    return y[nearest].var(axis=1).mean() / y.var()


def effective_dimensions(z):
    """Participation ratio of the variances along the principal axes of rows (n, d).

    It is d if these are equal, and 1 if the rows lie on a line.
    """
    variances = np.linalg.svd(z - z.mean(axis=0), compute_uv=False) ** 2
    return variances.sum() ** 2 / (variances**2).sum()


def linear_cka(a, b):
    """Linear centred kernel alignment of two embeddings of the same rows, (n, d) and (n, e).

    1 if they differ by a rotation and a scale only, 0 if their columns are uncorrelated.
    """
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    norms = np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b)
    return np.linalg.norm(a.T @ b) ** 2 / norms


def describe(z, y):
    """Measure all that is followed over the epochs."""
    z = np.asarray(z, dtype=float)
    values = rank_correlation(z, y), spread_of_nearest(z, y), effective_dimensions(z)
    return dict(zip(CURVES, values, strict=True))


def probe(layer_train, layer_test, y_train, y_test):
    """R² on test rows of linear regression and of k-NN on a layer, (n, d)."""
    linear = make_pipeline(StandardScaler(), RidgeCV(PENALTIES))
    probes = {"linear": linear, "knn": KNeighborsRegressor(N_NEAREST)}
    train, test = (
        np.asarray(part, dtype=float).reshape(len(part), -1) for part in (layer_train, layer_test)
    )
    return {name: each.fit(train, y_train).score(test, y_test) for name, each in probes.items()}


@torch.no_grad()
def layers_of(network, X):
    """Compute each layer of a network, the compared embedding last."""
    outputs = [torch.as_tensor(X)]
    for layer in network.embedding.extractor.layers:
        outputs.append(layer(outputs[-1]))
    embedding = network.embedding.embedding
    dtype = next(embedding.parameters()).dtype
    outputs.append(network.head.metric_part(embedding(outputs[-1].to(dtype))))
    return [output.numpy() for output in outputs]


class Follow(Callback):
    """Note in the history of some epochs how the test rows lie."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def on_epoch_begin(self, net, **kwargs):
        if len(net.history) == 1:
            self.note(net, 0)

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) in MOMENTS:
            self.note(net, len(net.history))

    def note(self, net, moment):
        z = layers_of(net.module, self.X)[-1]
        for name, value in describe(z, self.y).items():
            net.history.record(f"{name}_{moment}", value)


@cache
def train(set_name, seed, head, random_state, n_epochs):
    """Train a head on a split: the estimator, with seconds of the fit."""
    X_train, X_test, y_train, y_test = split(set_name, seed)
    n_features = X_train.shape[1] if X_train.ndim == 2 else None
    kind, params = HEADS[head]
    reg = kind(
        FeatureExtractor(lambda: Extractor(n_features), learning_rate=3e-3),
        max_iter=n_epochs,
        random_state=random_state,
        training=TrainingOptions(
            n_iter_no_change=n_epochs, callbacks=[Follow(X_test, y_test)], **TRAINING
        ),
        **NETWORK,
        **params,
    )
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return reg, timed(lambda: reg.fit(X_train, y_train))


def measure(set_name, seed, head, n_epochs=N_EPOCHS):
    """Measure one head's embedding on one split, and how like the other heads' it is."""
    X_train, X_test, y_train, y_test = split(set_name, seed)
    reg, seconds = train(set_name, seed, head, seed, n_epochs)
    history = {key: value for epoch in reg.history_ for key, value in epoch.items()}
    measured = {
        f"{name}_{moment}": history.get(f"{name}_{moment}", np.nan)
        for name, moment in product(CURVES, MOMENTS)
    }
    layers = [layers_of(reg.network_, X) for X in (X_train, X_test)]
    for name, *parts in zip(LAYERS, *layers, strict=True):
        judged = probe(*parts, y_train, y_test)
        measured |= {f"{kind}_{name}": value for kind, value in judged.items()}
    for other in HEADS:
        again, _ = train(set_name, seed, other, seed + OTHER_SEED, n_epochs)
        z = layers_of(again.network_, X_test)[-1]
        measured[f"cka_{other}"] = linear_cka(layers[1][-1].astype(float), z.astype(float))
    kept = 1 + next(i for i, epoch in enumerate(reg.history_) if epoch.get("kept"))
    measured |= {f"{name}_kept": v for name, v in describe(layers[1][-1], y_test).items()}
    return measured | {"r2": reg.score(X_test, y_test), "kept": kept, "seconds": seconds}


def measure_quickly(set_name, seed, head):
    """The same with two epochs."""
    return measure(set_name, seed, head, n_epochs=2)


# -- reporting --------------------------------------------------------------------------------


def curve(results, name):
    """Mean over splits of what was followed: (set, head) by epochs."""
    columns = {f"{name}_{moment}": moment for moment in MOMENTS}
    means = results.groupby(["set", "head"], sort=False)[list(columns)].mean()
    return means.rename(columns=columns)


def similarity(results):
    """Mean CKA of the embeddings of two heads, each trained from other initial weights."""
    means = results.groupby("head")[[f"cka_{head}" for head in HEADS]].mean().loc[list(HEADS)]
    means.columns = list(HEADS)
    return (means + means.T) / 2  # which of the two had which initial weights does not matter


def probes(results, kind):
    """Mean over sets and splits of a probe: heads by layers."""
    columns = {f"{kind}_{layer}": layer for layer in LAYERS}
    return results.groupby("head")[list(columns)].mean().rename(columns=columns).loc[list(HEADS)]


def report(results):
    """Print the tables."""
    for name, title in CURVES.items():
        print(f"\n{title}: means over splits, by epochs")
        print(curve(results, name).round(3).to_string())
        kept = results.pivot_table(index="head", columns="set", values=f"{name}_kept")
        print("of the network that is kept:")
        print(kept.loc[list(HEADS)].round(3).to_string())
    print("\nLinear CKA of two heads' embeddings of the test rows, mean over sets and splits")
    print(similarity(results).round(3).to_string())
    for set_name, some in results.groupby("set", sort=False):
        print(set_name)
        print(similarity(some).round(3).to_string())
    for kind, title in PROBES.items():
        print(f"\n{title}, mean over sets and splits")
        print(probes(results, kind).round(3).to_string())
        for set_name, some in results.groupby("set", sort=False):
            print(set_name)
            print(probes(some, kind).round(3).to_string())
    print("\nThe head itself: R² on test rows, the epoch that is kept, seconds of a fit")
    for column in ("r2", "kept", "seconds"):
        wide = results.pivot_table(index="head", columns="set", values=column)
        print(wide.loc[list(HEADS)].assign(mean=wide.mean(axis=1)).round(3).to_string())


def draw(results, path):
    """Draw the curves of each set; the similarity of heads, dimensions, and probes of layers."""
    sets = list(dict.fromkeys(results["set"]))
    figure = Figure(figsize=(11, 7.6), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=[1.7, 1])
    grid = upper.subplots(2, len(sets), sharex=True, sharey="row", squeeze=False)
    labels = {
        "spearman": "distance and difference\nof targets: rank correlation",
        "spread": f"variance of targets among\n{N_NEAREST} nearest rows / of all",
    }
    for row, (name, label) in zip(grid, labels.items(), strict=True):
        curves = curve(results, name)
        for ax, set_name in zip(row, sets, strict=True):
            draw_lines(ax, curves.loc[set_name])
        row[0].set_ylabel(label)
        row[0].set_ylim(bottom=0)
    for ax, set_name in zip(grid[0], sets, strict=True):
        ax.set_title(set_name)
    upper.supxlabel("epoch", fontsize="medium")
    handles, names = grid[0, 0].get_legend_handles_labels()
    upper.legend(handles, names, loc="outside upper center", ncols=len(HEADS), frameon=False)
    axes = lower.subplots(1, 4, width_ratios=[1.15, 1, 1, 1])
    draw_similarity(axes[0], similarity(results))
    dimensions = results.pivot_table(index="head", columns="set", values="dimensions_kept")
    draw_lines(axes[1], dimensions[sets], step=0.1, ls="")
    axes[1].set_title("effective dimensions", fontsize="medium")
    axes[1].set_ylim(bottom=0)
    for ax, (kind, title) in zip(axes[2:], PROBES.items(), strict=True):
        draw_lines(ax, probes(results, kind))
        ax.set_title(title, fontsize="medium")
    axes[2].sharey(axes[3])
    axes[2].autoscale(axis="y")
    for ax in axes[1:]:
        ax.tick_params(axis="x", rotation=30)
    figure.savefig(path, dpi=180)


def draw_lines(ax, table, step=0.0, **options):
    """Draw a line for each head, the rows of a table, each a step further to the right."""
    place = np.arange(table.shape[1])
    for i, (head, (color, marker, line)) in enumerate(STYLES.items()):
        style = {"color": color, "marker": marker, "ls": line, "ms": 4.5, "lw": 1.5} | options
        ax.plot(place + (i - 1.5) * step, table.loc[head], label=NAMES.get(head, head), **style)
    ax.set_xticks(place, table.columns)
    ax.grid(alpha=0.3)


def draw_similarity(ax, values):
    """Draw the similarity of each pair of heads as a square with its number."""
    heads = list(values)
    short = [name.replace("adjusted", "adj.") for name in heads]
    ax.imshow(values, vmin=0, vmax=1, cmap="Blues")
    ax.set_xticks(range(len(heads)), short, rotation=30)
    ax.set_yticks(range(len(heads)), short)
    for i, j in product(range(len(heads)), repeat=2):
        value = values.iloc[i, j]
        color = "white" if value > 0.6 else "black"
        ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=color)
    ax.set_title("linear CKA of embeddings", fontsize="medium")


def check(results):
    """Assert what the documentation states, of means over sets and splits."""
    means = results.groupby("head").mean(numeric_only=True)
    neighbors = means.drop(index="dense")
    # Rows with similar targets come to lie together, whatever the head.
    assert (means["spread_32"] < 0.55 * means["spread_0"]).all()
    # The order of neighbour heads is local; over all pairs it is less after the first epochs.
    assert means.loc["dense", "spearman_kept"] > neighbors["spearman_kept"].max() + 0.15
    plain = means.loc[["NONA", "adjusted"]]
    assert (plain["spearman_32"] < plain["spearman_2"] - 0.05).all()
    assert means.loc["dense", "spearman_32"] > means.loc["dense", "spearman_2"] + 0.1
    # What the network's own estimate holds, the compared embedding needs not.
    assert means["spread_kept"].idxmax() == "adjusted"
    # SoftStep keeps dimensions, where there are any.
    dimensions = results.pivot_table(index="head", columns="set", values="dimensions_kept")
    others = dimensions.drop(index="SoftStep").max()
    ratio = dimensions.loc["SoftStep"] / others
    assert (ratio[["concrete", "digits"]] > 2).all()
    # Two trainings of a head are more alike than trainings of two heads.
    alike = similarity(results).to_numpy()
    assert np.diag(alike).min() > alike[~np.eye(len(alike), dtype=bool)].max()
    # The first layer hardly depends on the head; the second is more linear under a dense head.
    assert np.ptp(probes(results, "linear")["layer 1"]) < 0.03
    linear, knn = (probes(results, kind)["layer 2"] for kind in PROBES)
    assert linear["dense"] > linear.drop("dense").max() + 0.03
    assert np.ptp(knn) < 0.02
    assert np.ptp(means["r2"]) < 0.02


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=list(SETS))


def run(args):
    """Run what is missing, print the tables, draw the picture, check the claims."""
    sets, seeds, how = args.sets, SEEDS, measure
    if args.quick:
        sets, seeds, how = list(QUICK), range(1), measure_quickly
    cases = list(product(sets, seeds, HEADS))
    results = complete(args.results / "geometry.csv", ["set", "seed", "head"], cases, how)
    report(results)
    draw(results, args.images / "geometry.png")
    if not args.quick and len(results) == len(SETS) * len(SEEDS) * len(HEADS):
        check(results)
