"""What editing a bank brings: rows added after training, and banks compressed.

    python benchmarks/bank_edits.py

A network is trained on a tenth of the rows; the other nine tenths join its bank without
training. Beside it, a fit to all rows, whose bank is then compressed, and, for comparison, cut to
random rows (a mean of three draws).
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import real_data
from accuracy import make_encoder

from nona_sklearn import NONARegressor

SETS = ["concrete", "power plant", "abalone", "diamonds"]
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "compression.png"
SHARES = [0.5, 0.2, 0.1, 0.05]


def encoded(set_name):
    """Split one set, its categories one-hot encoded."""
    X_train, X_test, y_train, y_test = real_data.split(set_name, 0)
    encoder = make_encoder()
    return encoder.fit_transform(X_train), encoder.transform(X_test), y_train, y_test


def measure(set_name):
    """Normalised RMSE of each bank."""
    X, X_test, y, y_test = encoded(set_name)
    rng = np.random.default_rng(0)
    tenth = rng.permutation(len(X))[: len(X) // 10]
    rest = np.setdiff1d(np.arange(len(X)), tenth)

    def score(reg):
        return np.sqrt(np.mean((reg.predict(X_test) - y_test) ** 2)) / np.std(y_test)

    small = NONARegressor(n_estimators=1, random_state=0).fit(X[tenth], y[tenth])
    row = {"a tenth": score(small)}
    small.add_neighbors(X[rest], y[rest])
    row["a tenth, then all added"] = score(small)
    full = NONARegressor(n_estimators=1, random_state=0).fit(X, y)
    row["all"] = score(full)
    bank = full.bank_
    for share in SHARES:
        size = int(share * len(X))
        row[f"{share:.0%} by compress"] = score(full.compress(size))
        draws = []
        for _ in range(3):
            full.bank_ = bank.keep(rng.permutation(len(X))[:size])
            draws.append(score(full))
        row[f"{share:.0%} at random"] = np.mean(draws)
        full.bank_ = bank
    return row


def draw(table):
    """Draw the errors of compressed banks, in units of the whole bank's."""
    fig, ax = plt.subplots(figsize=(5.5, 3.3), layout="constrained")
    for color, name in zip(["C0", "C1", "C2", "C3"], table.columns, strict=True):
        for how, line in ("by compress", "-"), ("at random", ":"):
            errors = [table.loc[f"{share:.0%} {how}", name] for share in SHARES]
            label = name if how == "by compress" else None
            relative = np.array([table.loc["all", name], *errors]) / table.loc["all", name]
            ax.plot(
                [1, *SHARES], relative, line, color=color, marker="o", markersize=3, label=label
            )
    ax.plot([], [], ":", color="grey", label="random rows")
    ax.set(xscale="log", xlabel="share of the bank that is kept", ylabel="error / whole bank's")
    ax.set_xticks([1, *SHARES], [f"{share:.0%}" for share in [1, *SHARES]])
    ax.minorticks_off()
    ax.invert_xaxis()
    ax.legend()
    fig.savefig(IMAGE, dpi=90)


def main():
    """Print the table, check the claims."""
    table = pd.DataFrame({name: measure(name) for name in SETS})
    print(table.round(3).to_string())
    draw(table)
    gain = table.loc["a tenth, then all added"] / table.loc["a tenth"]
    print(f"Adding the other rows: {gain.min():.2f} to {gain.max():.2f} of the error.")
    assert (gain < 1).all()
    ratio = pd.DataFrame(
        {
            share: table.loc[f"{share:.0%} by compress"] / table.loc[f"{share:.0%} at random"]
            for share in SHARES
        }
    )
    print(f"By compress, in units of the error at random: {np.exp(np.log(ratio).mean()).round(3)}")
    assert np.exp(np.log(ratio.to_numpy()).mean()) < 1


if __name__ == "__main__":
    main()
