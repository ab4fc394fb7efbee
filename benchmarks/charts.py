"""Draw the pictures of docs/benchmarks.md from the ledgers in ``benchmarks/results``.

Errors are relative to those of a baseline, in per cent, on a logarithmic axis: the small dots are
tables, the large one is their geometric mean, an arrow is beyond the axis. Ours are blue.
"""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .hard import LEAST
from .published import SETS, TOGETHER, TUNED

LEDGERS = Path(__file__).parent / "results"
TREES = "HistGradientBoosting"
#: Names in the ledgers, and in the pictures.
NAMES = {
    "NONA": "NONARegressor",
    "NONA, times": "NONARegressor",
    "NONA, random validation": "NONARegressor\nwithout times",
    "NONA, ColumnTransformer": "NONARegressor behind\na ColumnTransformer",
    "dense head": "same network,\ndense head",
    "k-NN, tuned": "tuned k-NN",
    "linear, tuned": "tuned linear model",
    "skrub": "skrub tabular_pipeline",
    "seasonal naive": "value one season ago",
    "quantile forest, leaves of 10": "quantile forest,\nleaves of 10",
}
OF_CLASSES = {"NONA": "NONAClassifier", "dense head": "same network, dense head"}
#: Models whose reasons are compared, and what they are called.
STEADY = {
    "NONARegressor": "NONARegressor",
    "NONAClassifier": "NONAClassifier",
    "SoftStepKNeighborsRegressor": "SoftStep k-NN, numbers",
    "SoftStepKNeighborsClassifier": "SoftStep k-NN, classes",
    "random forest": "random forest,\nproximities",
    "k-NN": "k-NN",
}
#: What the tables are called, where the ledger abbreviates.
TABLES = {"california": "California", "power plant": "power\nplant", "red wine": "red\nwine"}
NINE = "diabetes concrete energy power_plant abalone red_wine california ames diamonds"
NINE = [name.replace("_", " ") for name in NINE.split()]
OURS, SOFT, OTHER, FAINT, INK = "#00589B", "#2A8CC9", "#767676", "#D8D8D8", "#222222"
WARM = "#D55E00"
HEAT = LinearSegmentedColormap.from_list("heat", ["#6FAEDB", "#FFFFFF", "#F2A65A"])
WIDTH = 8.3  # inches, of 100 pixels on a page
STYLE = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.edgecolor": "#BBBBBB",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def means(ledger, value, model="model", case="set"):
    """Read a ledger: means over splits, models by tables."""
    results = pd.read_csv(LEDGERS / f"{ledger}.csv")
    return results.pivot_table(index=model, columns=case, values=value)


def relative(errors, models, baseline=TREES):
    """Divide errors by the baseline's: the named models by tables, the best in the mean first."""
    ratios = (errors / errors.loc[baseline]).loc[models]
    return ratios.loc[overall(ratios).sort_values().index]


def overall(ratios):
    """Geometric means over tables."""
    return np.exp(np.log(ratios).mean(axis=1))


def percent(ratio, _=None):
    """Write a ratio as a difference in per cent, with a sign."""
    difference = round(100 * (ratio - 1))
    return f"{difference:+d}".replace("-", "−") if difference else "0"


def colour(name):
    """Colour of a model."""
    return OURS if name.startswith("NONA") else SOFT if name.startswith("SoftStep") else OTHER


def name_rows(ax, models, names):
    """Write the models beside the rows, ours in bold colours; the first is at the top."""
    ax.set_yticks(range(len(models)), [names.get(name, name) for name in models])
    ax.set_ylim(len(models) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for label, name in zip(ax.get_yticklabels(), models, strict=True):
        if colour(name) != OTHER:
            label.set(color=colour(name), weight="bold")


def draw_ratios(ax, ratios, title, ticks, names=NAMES):
    """Draw a row of dots for each model, and the mean in words at the end of the row."""
    low, high = ticks[0], ticks[-1]
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(percent))
    ax.axvline(1, color="#BBBBBB", lw=1, zorder=0)
    for i, (name, mean) in enumerate(overall(ratios).items()):
        of_tables = ratios.loc[name]
        ax.plot([low, high], [i, i], color="#F0F0F0", lw=1, zorder=-1)
        for within, x, marker in (
            (of_tables <= high, of_tables, "o"),
            (of_tables > high, of_tables.clip(upper=high), ">"),
        ):
            dots = {"s": 22, "color": colour(name), "alpha": 0.4, "lw": 0, "clip_on": False}
            ax.scatter(x[within], [i] * within.sum(), marker=marker, **dots)
        ax.scatter(mean, i, s=95, color=colour(name), edgecolor="white", lw=1.2, zorder=3)
        text = f"{percent(mean)} %"
        bold = "bold" if colour(name) != OTHER else "normal"
        ax.text(*(1.02, i, text), transform=ax.get_yaxis_transform(), va="center", weight=bold)
    ax.text(1.02, -0.75, "mean", transform=ax.get_yaxis_transform(), va="bottom", fontsize=9)
    name_rows(ax, list(ratios.index), names)
    ax.set_title(title)


def draw_coverage(ax, shares, models, level):
    """Draw between which shares of targets the intervals of each model cover."""
    ax.axvline(level, color="#BBBBBB", lw=1, zorder=0)
    for i, name in enumerate(models):
        if name not in shares.index:
            continue
        found = 100 * shares.loc[name].dropna()
        ax.plot([found.min(), found.max()], [i, i], color=colour(name), lw=2.5, alpha=0.4)
        ax.scatter(found, [i] * len(found), s=22, color=colour(name), alpha=0.8, lw=0)
    ax.set_yticks([])
    ax.set_ylim(len(models) - 0.4, -0.6)
    ax.spines["left"].set_visible(False)
    ax.set_title(f"Coverage of {level} % intervals")
    ax.xaxis.set_major_formatter("{x:.0f} %")


def accuracy_time():
    """Draw errors against the seconds of a fit, the models of the nine tables."""
    errors, seconds = (means("accuracy", value)[NINE] for value in ("nrmse", "seconds"))
    ratios = overall(errors / errors.loc[TREES]).drop(
        ["TabM", "NONA, adjust=False", "NONA, n_neighbors=None"]
    )
    figure, ax = plt.subplots(figsize=(WIDTH, 4.3), layout="constrained")
    beside = {"dense head": (9, 4), "random forest": (-8, 7), "CatBoost": (-112, -4)}
    beside[TREES] = (9, -14)
    for name, ratio in ratios.items():
        x, y = seconds.loc[name].median(), 100 * (ratio - 1)
        ours = colour(name) != OTHER
        ax.scatter(x, y, s=130 if ours else 60, color=colour(name), zorder=3)
        words = NAMES.get(name, name).replace("\n", " ")
        ax.annotate(
            f"{words} ({percent(ratio)} %)" if ours or name == "CatBoost" else words,
            (x, y),
            beside.get(name, (9, -4)),
            textcoords="offset points",
            color=colour(name) if ours else INK,
            weight="bold" if ours else "normal",
        )
    ax.axhline(0, color="#BBBBBB", lw=1, zorder=0)
    ax.set_xscale("log")
    ax.set_xlim(0.06, 400)
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    ax.set_xticks(ticks, [f"{each:g}" for each in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda y, _: percent(1 + y / 100))
    ax.set_xlabel("seconds of a fit on one core, median over nine tables")
    ax.set_ylabel("RMSE relative to\nHistGradientBoosting, %")
    ax.set_title("Further down is more accurate, further left is faster")
    ax.grid(axis="y", color="#F0F0F0")
    ax.set_axisbelow(True)
    return figure


def accuracy_table():
    """Draw the nine tables by models, with numbers in coloured cells."""
    models = ["NONA", "CatBoost", "SoftStep k-NN", "dense head", TREES]
    models += ["random forest", "RealMLP", "MLP", "k-NN, tuned"]
    ratios = relative(means("accuracy", "nrmse")[NINE], models)
    cells = ratios.assign(mean=overall(ratios))[["mean", *NINE]]
    figure, ax = plt.subplots(figsize=(WIDTH, 4.2), layout="constrained")
    x = np.r_[-0.25, 1 : len(NINE) + 1]
    for i, row in enumerate(cells.to_numpy()):
        for column, ratio in zip(x, row, strict=True):
            shade = HEAT(0.5 + np.clip(np.log(ratio) / np.log(1.5), -1, 1) / 2)
            ax.add_patch(plt.Rectangle((column - 0.47, i - 0.45), 0.94, 0.9, color=shade, lw=0))
        best = np.isclose(row, cells.min())
        for j, (column, ratio) in enumerate(zip(x, row, strict=True)):
            weight = "bold" if j == 0 or best[j] else "normal"
            ax.text(column, i, percent(ratio), ha="center", va="center", weight=weight)
    name_rows(ax, list(cells.index), {**NAMES, "dense head": "same network, dense head"})
    ax.set_xlim(-0.8, len(NINE) + 0.5)
    heads = ["mean of\nnine", *(TABLES.get(name, name) for name in NINE)]
    ax.set_xticks(x, heads, fontsize=9)
    ax.xaxis.tick_top()
    ax.tick_params(axis="x", length=0)
    ax.get_xticklabels()[0].set_weight("bold")
    ax.spines[:].set_visible(False)
    figure.suptitle(
        "RMSE relative to HistGradientBoosting, %: lower is better (bold: best)",
        **{"x": 0.01, "ha": "left", "weight": "bold", "fontsize": 11},
    )
    return figure


def raw():
    """Draw the errors on ten raw tables."""
    models = ["NONA", "NONA, ColumnTransformer", "CatBoost", "SoftStep k-NN", TREES, "skrub"]
    ratios = relative(means("raw", "nrmse"), [*models, "random forest", "k-NN, tuned"])
    figure, ax = plt.subplots(figsize=(WIDTH, 3.9), layout="constrained")
    title = "RMSE relative to HistGradientBoosting, %"
    draw_ratios(ax, ratios, title, [0.8, 0.9, 1, 1.1, 1.25, 1.5])
    return figure


def classes():
    """Draw log loss and calibration on thirteen tables with classes."""
    models = ["NONA", "CatBoost", "dense head", "SoftStep k-NN", "logistic regression", TREES]
    models += ["random forest", "k-NN, tuned", "MLP"]
    ratios = relative(means("classes", "log_loss"), models)
    calibration = means("classes", "calibration_error").loc[ratios.index].mean(axis=1)
    figure, (ax, beside) = plt.subplots(
        *(1, 2), figsize=(WIDTH, 4.1), width_ratios=[2.2, 1], layout="constrained"
    )
    title = "Log loss relative to HistGradientBoosting, %"
    names = NAMES | OF_CLASSES | {"dense head": NAMES["dense head"]}
    draw_ratios(ax, ratios, title, [0.3, 0.5, 0.7, 1, 1.5, 2, 3], names)
    for i, (name, error) in enumerate(calibration.items()):
        beside.plot([0, error], [i, i], color=colour(name), lw=2.5, alpha=0.4)
        beside.scatter(error, i, s=60, color=colour(name), zorder=3)
        beside.text(error + 0.007, i, f"{error:.3f}", va="center")
    beside.set_yticks([])
    beside.set_ylim(len(calibration) - 0.4, -0.6)
    beside.set_xlim(0, 0.16)
    beside.set_xticks([0, 0.05, 0.1])
    beside.set_title("Calibration error")
    return figure


def published():
    """Draw the figures of papers on two splits, beside ours."""
    results = pd.read_csv(LEDGERS / "published.csv")
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 5), layout="constrained")
    for ax, name in zip(axes, ("California", "diamond"), strict=True):
        found = results[results.set == name].groupby("model").rmse.mean()
        errors = {model: error for model, (error, _) in SETS[name].figures.items()}
        errors = pd.Series({**errors, **found}).sort_values()
        span = errors.max() - errors.min()
        for i, (model, error) in enumerate(errors.items()):
            trees = any(each in model for each in ("Boost", "GBM"))
            shade = OURS if model.startswith("NONA") else WARM if trees else OTHER
            ours = shade == OURS
            ax.plot([errors.min() - 0.05 * span, error], [i, i], color=FAINT, lw=1, zorder=0)
            ax.scatter(error, i, s=70 if ours else 40, color=shade, zorder=3)
            weight = "bold" if ours else "normal"
            ax.text(
                error + (0.055 if ours else 0.04) * span,
                i,
                f"{error:.4f}",
                va="center",
                fontsize=9,
                weight=weight,
            )
        endings = {"NONA": "", TOGETHER: ", 5 seeds", TUNED: ", tuned"}
        names = {model: f"NONARegressor{words}" for model, words in endings.items()}
        name_rows(ax, list(errors.index), names)
        ax.tick_params(axis="y", labelsize=9)
        ax.set_xlim(errors.min() - 0.05 * span, errors.max() + 0.25 * span)
        ax.set_xticks([])
        ax.spines["bottom"].set_visible(False)
        ax.set_title(f"{name[0].upper()}{name[1:]}, RMSE")
    for shade, words in ((OURS, "ours"), (WARM, "boosted trees"), (OTHER, "other networks")):
        axes[0].scatter([], [], color=shade, label=words)
    axes[0].legend(loc="upper right", frameon=False, fontsize=9)
    return figure


def time():
    """Draw the errors and the coverage of forecasts."""
    models = ["NONA, times", "NONA, random validation", "CatBoost", TREES, "seasonal naive"]
    ratios = relative(means("time", "rmse").drop(columns="airports"), models)
    shares = means("time", "cover_80").drop(columns="airports")
    return with_coverage(ratios, shares, "RMSE", TREES, [0.75, 0.85, 1, 1.25, 1.5, 2])


def uncertainty():
    """Draw the errors of distributions, and the coverage of their intervals."""
    models = ["NONA", "SoftStep k-NN", TREES, "quantile forest, leaves of 10"]
    errors = means("uncertainty", "crps", "method")
    ratios = relative(errors, [*models, "quantile forest", "k-NN, tuned"], "quantile forest")
    shares = means("uncertainty", "shared_80", "method")
    return with_coverage(ratios, shares, "CRPS", "a quantile forest", [0.7, 0.8, 0.9, 1, 1.2, 1.5])


def with_coverage(ratios, shares, error, baseline, ticks):
    """Draw errors, and coverage beside them."""
    height = 1.1 + 0.36 * len(ratios)
    figure, (ax, beside) = plt.subplots(
        *(1, 2), figsize=(WIDTH, height), width_ratios=[1.4, 1], layout="constrained"
    )
    draw_ratios(ax, ratios, f"{error} relative to {baseline}, %", ticks)
    draw_coverage(beside, shares, list(ratios.index), 80)
    return figure


def hard():
    """Draw the errors on tables that are wide, repeated or hard."""
    errors = means("hard", "error").clip(lower=LEAST)
    ratios = relative(errors, ["NONA", "CatBoost", "linear, tuned", TREES, "k-NN, tuned"])
    figure, ax = plt.subplots(figsize=(WIDTH, 2.9), layout="constrained")
    title = "Error relative to HistGradientBoosting, %"
    draw_ratios(ax, ratios, title, [0.15, 0.25, 0.5, 1, 2, 4], {**NAMES, "NONA": "NONA"})
    return figure


def stability():
    """Draw how many of the ten heaviest rows two fits have in common."""
    results = pd.read_csv(LEDGERS / "stability.csv")
    titles = {"seed": "Another seed", "rows": "Other rows", "start": "Last digits"}
    figure, axes = plt.subplots(1, 3, figsize=(WIDTH, 2.9), layout="constrained")
    for ax, (change, title) in zip(axes, titles.items(), strict=True):
        shares = results[results["change"] == change].pivot(
            index="model", columns="set", values="heaviest"
        )
        shares = shares.loc[list(STEADY)]
        for i, (name, median) in enumerate(shares.median(axis=1).items()):
            of_tables = shares.loc[name].dropna()
            ax.plot([0, 1], [i, i], color="#F0F0F0", lw=1, zorder=-1)
            dots = {"s": 22, "color": colour(name), "alpha": 0.4, "lw": 0, "clip_on": False}
            ax.scatter(of_tables, [i] * len(of_tables), **dots)
            ax.scatter(median, i, s=95, color=colour(name), edgecolor="white", lw=1.2, zorder=3)
        names = STEADY if change == "seed" else dict.fromkeys(STEADY, "")
        name_rows(ax, list(shares.index), names)
        ax.set_xlim(-0.03, 1.03)
        ax.set_xticks([0, 0.5, 1], ["0", "50", "100"])
        ax.set_title(f"{title}, %")
    return figure


PICTURES = {
    "accuracy_time": accuracy_time,
    "accuracy_table": accuracy_table,
    **{f"benchmark_{draw.__name__}": draw for draw in (raw, classes, published, time)},
    **{f"benchmark_{draw.__name__}": draw for draw in (uncertainty, hard, stability)},
}


def run(args):
    """Draw all pictures, coarsely if quick; print their sizes."""
    matplotlib.use("agg")
    for name, draw in PICTURES.items():
        path = args.images / f"{name}.png"
        with plt.rc_context(STYLE):
            draw().savefig(path, dpi=30 if args.quick else 200)
        plt.close("all")
        print(f"{path.name:30s}{path.stat().st_size / 1024:6.0f} kB")
