"""What editing a bank brings: rows added after training, and banks compressed.

A network is trained on a tenth of the rows; the other nine tenths join its bank without
training. Beside it, a fit to all rows, whose bank is then compressed, and, for comparison, cut to
random rows (a mean of three draws). Draws ``docs/images/compression.png``. Last, a window that
slides over rows in time: what an update costs, beside a fit.
"""

from time import perf_counter

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nona_sklearn import NONARegressor

from . import real_data
from .quick import shorten
from .scores import normalised_rmse

SETS = ["concrete", "power plant", "abalone", "diamonds"]
SHARES = [0.5, 0.2, 0.1, 0.05]
WINDOW, UPDATE, N_UPDATES = 10_000, 1000, 10
LARGEST_SHARE_OF_A_FIT = 0.005


def measure(set_name, reg):
    """Normalised RMSE of each bank of a regressor."""
    X, X_test, y, y_test = real_data.encoded_split(set_name, 0)
    rng = np.random.default_rng(0)
    tenth = rng.permutation(len(X))[: len(X) // 10]
    rest = np.setdiff1d(np.arange(len(X)), tenth)

    def score():
        return normalised_rmse(reg, X_test, y_test)

    reg.fit(X[tenth], y[tenth])
    row = {"a tenth": score()}
    reg.add_neighbors(X[rest], y[rest])
    row["a tenth, then all added"] = score()
    reg.fit(X, y)
    row["all"] = score()
    bank = reg.bank_
    for share in SHARES:
        size = int(share * len(X))
        reg.compress(size)
        row[f"{share:.0%} by compress"] = score()
        draws = []
        for _ in range(3):
            reg.bank_ = bank
            reg.remove_neighbors(ids=rng.permutation(len(X))[size:])
            draws.append(score())
        row[f"{share:.0%} at random"] = np.mean(draws)
        reg.bank_ = bank
    return row


def draw(table, path):
    """Draw the errors of compressed banks, in units of the whole bank's."""
    figure = Figure(figsize=(5.5, 3.3), layout="constrained")
    ax = figure.subplots()
    for i, name in enumerate(table.columns):
        for how, line in ("by compress", "-"), ("at random", ":"):
            errors = [table.loc[f"{share:.0%} {how}", name] for share in SHARES]
            label = name if how == "by compress" else None
            relative = np.array([table.loc["all", name], *errors]) / table.loc["all", name]
            style = {"color": f"C{i}", "marker": "o", "markersize": 3, "label": label}
            ax.plot([1, *SHARES], relative, line, **style)
    ax.plot([], [], ":", color="grey", label="random rows")
    ax.set(xscale="log", xlabel="share of the bank that is kept", ylabel="error / whole bank's")
    ax.set_xticks([1, *SHARES], [f"{share:.0%}" for share in [1, *SHARES]])
    ax.minorticks_off()
    ax.invert_xaxis()
    ax.legend()
    figure.savefig(path, dpi=90)


def slide(reg, window, update):
    """Seconds of a fit to a window of rows, and of an update by new ones, as old ones leave."""
    n_rows = window + N_UPDATES * update
    X = np.random.default_rng(0).normal(size=(n_rows, 10))
    y, times = X[:, 0] + X[:, 1] ** 2, np.arange(n_rows)
    start = perf_counter()
    reg.fit(X[:window], y[:window], times=times[:window])
    of_fit, of_updates = perf_counter() - start, []
    for first in range(window, n_rows, update):
        new = slice(first, first + update)
        start = perf_counter()
        reg.add_neighbors(X[new], y[new], times=times[new], max_rows=window)
        of_updates.append(perf_counter() - start)
    assert len(reg.bank_) == window
    return of_fit, np.median(of_updates)


def run(args):
    """Print the table, draw the picture, check the claims."""
    reg = NONARegressor(n_estimators=1, random_state=0)
    sets, reg = (["diabetes"], shorten(reg)) if args.quick else (SETS, reg)
    table = pd.DataFrame({name: measure(name, reg) for name in sets})
    print(table.round(3).to_string())
    draw(table, args.images / "compression.png")
    gain = table.loc["a tenth, then all added"] / table.loc["a tenth"]
    print(f"Adding the other rows: {gain.min():.2f} to {gain.max():.2f} of the error.")
    ratio = pd.DataFrame(
        {
            share: table.loc[f"{share:.0%} by compress"] / table.loc[f"{share:.0%} at random"]
            for share in SHARES
        }
    )
    print("By compress, in units of the error at random, by the share that is kept")
    print(np.exp(np.log(ratio).mean()).round(3).to_string())
    window, update = (200, 20) if args.quick else (WINDOW, UPDATE)
    of_fit, of_update = slide(reg, window, update)
    print(f"A window of {window:,} rows, a fit: {of_fit:.1f} s")
    share = of_update / of_fit
    print(f"An update by {update:,} rows: {of_update * 1000:.0f} ms, {share:.4f} of the fit")
    if not args.quick:
        assert share <= LARGEST_SHARE_OF_A_FIT
        assert (gain < 1).all()
        assert np.exp(np.log(ratio.to_numpy()).mean()) < 1
