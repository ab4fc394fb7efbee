"""Draw the pictures of docs/method.md, "How it works"."""

from functools import partial

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsRegressor

from nona_sklearn import NONARegressor
from nona_sklearn.attention import neighbor_weights
from nona_sklearn.datasets import load_ames
from nona_sklearn.softstep import log_s1

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito's
N_BANK = 400  # houses in the first picture
SHOWN = ["living_area", "year_built", "basement_area", "neighborhood"]
HOUSE = 39  # in the order of the draw


def run(args):
    """Draw the pictures, and print their sizes."""
    pictures = {
        "how_curve.png": partial(draw_curve, quick=args.quick),
        "how_rows.png": partial(draw_rows, quick=args.quick),
        "how_adjusted.png": draw_adjusted,
        "how_trend.png": draw_trend,
        "how_softstep.png": draw_softstep,
    }
    for name, drawn in pictures.items():
        path = args.images / name
        drawn().savefig(path, dpi=180)
        print(f"images/{name:23s}{path.stat().st_size / 1024:6.0f} kB")


def draw_curve(quick=False):
    """Draw prices against one feature, by k-NN and by a network, and the rows behind a price."""
    X, y = load_ames(return_X_y=True)
    some = X["neighborhood"] == "Sawyer West"
    area, price = X.loc[some, ["living_area"]].to_numpy(float), y[some].to_numpy() / 1000
    reg = NONARegressor(n_neighbors=5, random_state=0, **{"max_iter": 2} if quick else {})
    knn, query = KNeighborsRegressor(5).fit(area, price), np.array([[1900.0]])
    weights, rows = reg.fit(area, price).heaviest_neighbors(query, 5)
    grid = np.linspace(area.min(), area.max(), 500)[:, None]
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot(grid, knn.predict(grid), color=ORANGE, lw=1.4, label="5-NN")
    low, high = reg.predict_quantiles(grid, [0.05, 0.95]).T
    right.fill_between(grid[:, 0], low, high, color=BLUE, alpha=0.12, lw=0, label="90 % interval")
    right.plot(grid, reg.predict(grid), color=BLUE, lw=2, label="NONARegressor")
    right.scatter(area[rows[0]], price[rows[0]], 250 * weights[0], color="black", zorder=3,
                  label="five rows, sized by their weights")  # fmt: skip
    right.plot(query, reg.predict(query), "*", ms=12, mfc="white", mec="black", zorder=4,
               ls="", label="their prediction")  # fmt: skip
    left.set_ylabel("price, 1000 dollars")
    for ax in (left, right):
        ax.plot(area, price, "o", ms=4, color="0.6", zorder=1)
        ax.set_xlabel("living area, square feet")
        ax.legend(frameon=False, loc="upper left", fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def draw_rows(quick=False):
    """Draw a house and its nearest rows in a table, their distances by column, and weights."""
    X, y = load_ames(return_X_y=True)
    rows = np.random.default_rng(2).permutation(len(X))
    X, y = X[SHOWN].iloc[rows], y.iloc[rows] / 1000
    X_train, y_train = X[100 : 100 + N_BANK], y[100 : 100 + N_BANK]
    house, price = X[HOUSE : HOUSE + 1], y.iloc[HOUSE]
    reg = NONARegressor(n_neighbors=5, random_state=0, **{"max_iter": 2} if quick else {})
    found = reg.fit(X_train, y_train).explain(house)
    weights, adjusted = (found[name].to_numpy(float) for name in ("weight", "adjusted_target"))
    distances = reg.kneighbors(house, 5)[0][0]
    parts = reg.attribute(house, X_train, of="distances")[SHOWN].to_numpy() * distances[:, None]
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.35, 1, 0.8])
    neighbors = X_train.loc[found["neighbor"]]
    _draw_table(left, pd.concat([house, neighbors]), found["target"].to_numpy(float))
    place, start = np.arange(len(weights)), np.zeros(len(weights))
    for column, colour, part in zip(SHOWN, (BLUE, ORANGE, GREEN, "0.6"), parts.T, strict=True):
        name = column.replace("_", " ")
        middle.barh(place, part, left=start, color=colour, height=0.6, label=name)
        start += part
    middle.legend(frameon=False, fontsize=8, loc="upper right")
    middle.set_title("2. distances: weighted differences")
    right.barh(place, weights, color=ORANGE, height=0.6)
    for i, (weight, target) in enumerate(zip(weights, adjusted, strict=True)):
        right.text(weight, i, f" {weight:.0%} × {target:.0f}", va="center")
    right.set_title("3. weights × adjusted prices")
    right.set_xlabel(f"sum: {weights @ adjusted:.0f}; true price: {price:.0f}")
    right.set(xlim=(0, 1.7 * weights.max()))
    for ax in (middle, right):
        ax.set_yticks(place, place + 1)
        ax.invert_yaxis()
        ax.set(xticks=[], ylabel="neighbour")
        ax.spines[["top", "right", "bottom"]].set_visible(False)
    return figure


def _draw_table(ax, houses, targets):
    """Draw the query and its neighbours as a table with prices."""
    prices = ["?", *map("{:.0f}".format, targets)]
    cells = [
        [f"{row.living_area:,.0f}", row.year_built, f"{row.basement_area:,.0f}", row.neighborhood]
        for row in houses.itertuples()
    ]
    table = ax.table(
        [[*cell, price] for cell, price in zip(cells, prices, strict=True)],
        rowLabels=["★", *map(str, range(1, len(cells)))],
        colLabels=["area", "built", "basement", "neighbourhood", "price"],
        colWidths=[0.16, 0.14, 0.21, 0.34, 0.15],
        loc="center",
        cellLoc="center",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    table.scale(1, 1.8)
    for (row, column), cell in table.get_celld().items():
        cell.set_edgecolor("0.8")
        if row == 1:
            cell.set_facecolor("#FDE9DC")
        if row == 0 or column == -1:
            cell.set_text_props(weight="bold", family="DejaVu Sans")
    ax.set_axis_off()
    ax.set_title("1. a house (★) and rows of the table")


def draw_adjusted():
    """Draw what adjusting does to the target of one neighbour, and to the mean of some."""
    area, price = np.array([62.0, 68.0, 73.0, 79.0]), np.array([256.0, 300.0, 289.0, 318.0])
    query, grid = 90.0, np.linspace(55, 96, 100)

    def g(x):
        return 60 * np.sqrt(x - 40)

    similarity = torch.tensor(-np.abs(area - query)[None] / 10)
    weights = neighbor_weights(similarity)[0].numpy()
    adjusted = price + g(query) - g(area)
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax in axes:
        ax.plot(grid, g(grid) - 5, color=BLUE, lw=2, label="$g$, the network's own estimate")
        ax.axvline(query, color="0.6", lw=1, ls="--")
        ax.set_xlabel("area, m²")
        ax.set_xlim(55, 99)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("price, 1000 euros")
    j = 1
    ax = axes[0]
    ax.plot(area[j], price[j], "o", ms=9, color="black")
    ax.annotate("neighbour $j$,\n$y_j$ = 300", (area[j], price[j]), (-75, 14),
                textcoords="offset points")  # fmt: skip
    ax.plot([area[j], query], [price[j]] * 2, ":", color="black")
    ax.annotate("", (query, adjusted[j]), (query, price[j]),
                arrowprops={"arrowstyle": "-|>", "color": ORANGE, "lw": 2})  # fmt: skip
    shift = adjusted[j] - price[j]
    ax.text(query + 0.6, price[j] + shift / 2, f"$g(q) - g(j)$\n= {shift:+.0f}", color=ORANGE,
            va="center")  # fmt: skip
    ax.plot(query, adjusted[j], "o", ms=9, mfc="white", mec=ORANGE, mew=2)
    ax.annotate(f"adjusted target\n{adjusted[j]:.0f}", (query, adjusted[j]), (-92, -2),
                textcoords="offset points", color=ORANGE)  # fmt: skip
    follow = np.linspace(area[j], query, 50)
    ax.plot(follow, g(follow) + price[j] - g(area[j]), "--", color=ORANGE, lw=1)
    ax.set_title("one neighbour")
    ax = axes[1]
    ax.scatter(area, price, s=300 * weights, color="black", label="target, sized by its weight")
    for x, y, to in zip(area, price, adjusted, strict=True):
        line = np.linspace(x, query, 50)
        ax.plot(line, g(line) + y - g(x), "--", color=ORANGE, lw=1)
        ax.plot(query, to, "o", ms=6, mfc="white", mec=ORANGE)
    ax.plot([], [], "o", mfc="white", mec=ORANGE, label="adjusted target")
    means = {"mean of the targets": (weights @ price, "s", "black"),
             "mean of the adjusted targets": (weights @ adjusted, "D", GREEN)}  # fmt: skip
    for label, (mean, marker, color) in means.items():
        ax.plot(query + 2.2, mean, marker, ms=8, color=color, label=f"{label}: {mean:.0f}")
    ax.set_title("all neighbours")
    ax.legend(frameon=False, loc="upper left", fontsize=9)
    return figure


def draw_trend():
    """Draw a prediction by a network and a trend, and the trend at a row without that row."""
    hour = np.array([0.5, 2, 4, 6.5, 8, 9.5, 11, 12.5, 14, 16, 18, 19, 21.5, 23])
    degrees = np.array([9, 7.5, 7.2, 6.0, 9.1, 12, 13.6, 20.5, 17.8, 18.6, 16.4, 16.2, 12.2, 10.5])
    grid, share, j = np.linspace(0, 24, 400), 0.7, 7

    def fit(rows):
        kernel = KernelRidge(kernel="laplacian", gamma=0.1, alpha=0.1)
        kernel.fit(hour[rows, None], degrees[rows] - degrees.mean())
        return lambda x: kernel.predict(np.atleast_1d(x)[:, None]) + degrees.mean()

    def of_networks(x):
        similarity = torch.from_numpy(-np.abs(hour - np.atleast_1d(x)[:, None]) / 0.6)
        return neighbor_weights(similarity).numpy() @ degrees

    f, without_j = fit(slice(None)), fit(np.delete(np.arange(14), j))
    both = (1 - share) * of_networks(grid) + share * f(grid)
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot(grid, of_networks(grid), color=BLUE, lw=1.2, label="networks: neighbours")
    left.plot(grid, f(grid), "--", color=ORANGE, lw=1.6, label="$f$: kernel ridge regression")
    left.plot(grid, both, color="black", lw=2, label="prediction: a share $a$ = 0.7 is $f$")
    left.set_title("two kinds of model")
    left.set_ylabel("temperature, °C")
    right.plot(grid, f(grid), "--", color=ORANGE, lw=1.6, label="$f$, fitted to all rows")
    right.plot(grid, without_j(grid), color=GREEN, lw=1.6, label="$f_{-j}$, fitted to the others")
    at = without_j(hour[j]).item()
    right.annotate("", (hour[j], degrees[j]), (hour[j], at),
                   arrowprops={"arrowstyle": "-|>", "color": "black", "lw": 1.6})  # fmt: skip
    right.text(hour[j] + 0.5, degrees[j], "$y_j - f_{-j}(j)$: residual of row $j$", va="center")
    right.set_title("what row $j$ tells beyond the trend")
    for ax in (left, right):
        ax.plot(hour, degrees, "o", ms=5, color="0.45", zorder=3)
        ax.set_xlabel("hour of the day")
        ax.legend(frameon=False, loc="lower right", fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def draw_softstep():
    """Draw k-NN's mask and SoftStep's, and the number of neighbours that each keeps."""
    x = torch.linspace(0, 1, 401)[None]
    neighbors = torch.linspace(0, 1, 21)[None]  # scaled similarities
    width = torch.tensor(0.3)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    styles = [(0.1, GREEN, "-."), (0.5, BLUE, "-"), (0.9, ORANGE, "--")]
    a = torch.tensor(0.55)
    middle = a + width / 2
    left.step([0, middle, middle, 1], [0, 0, 1, 1], color="black", lw=1.5, ls=":",
              label="k-NN: $k$ neighbours")  # fmt: skip
    for t, color, line in styles:
        mask = [log_s1(each, a, a + width, torch.tensor(t)).exp()[0] for each in (x, neighbors)]
        left.plot(x[0], mask[0], color=color, ls=line, lw=1.8, label=f"SoftStep, $t$ = {t}")
        if t == 0.5:
            left.plot(neighbors[0], mask[1], "o", ms=5, color=color)
    for at, name in ((a, "$a$"), (a + width, "$b$")):
        left.axvline(at, color="0.75", lw=1, zorder=0)
        left.text(at, 1.05, name, ha="center")
    left.set(xlabel="scaled similarity of a neighbour (right: nearest)", ylabel="mask $S$",
             xlim=(1.02, -0.02), ylim=(-0.05, 1.15))  # fmt: skip
    left.invert_xaxis()
    left.legend(frameon=False, loc="upper left")
    thresholds = torch.linspace(0.4, 0.65, 300)
    kept = [
        log_s1(neighbors, low, low + width, torch.tensor(0.5)).exp().sum() for low in thresholds
    ]
    hard = [(neighbors > low + width / 2).sum() for low in thresholds]
    right.plot(thresholds, hard, ":", color="black", lw=1.5, label="k-NN: whole numbers")
    right.plot(thresholds, kept, color=BLUE, lw=1.8, label="SoftStep, $t$ = 0.5: has a gradient")
    right.plot(a, kept[int((thresholds < a).sum())], "o", color=BLUE)
    right.legend(frameon=False)
    right.set(xlabel="threshold $a$", ylabel="number of neighbours, sum of the mask")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure
