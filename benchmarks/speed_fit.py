"""What skorch costs beside a bare torch loop, how an epoch grows with rows, and the import.

The bare loop takes the same steps on the same rows, and nothing else: no history, no early
stopping, no copies of the best weights.
"""

import copy
import subprocess
import sys
import time

import numpy as np
import torch
from sklearn.datasets import make_friedman1
from skorch.callbacks import Callback
from torch import nn

from nona_sklearn import NONARegressor

from .timing import median_in_turns, time_in_turns, timed

BATCH, POOL = 256, 2048
LIBRARIES = "torch + scikit-learn + skorch"
IMPORTS = {
    LIBRARIES: "import torch, sklearn, skorch",
    "nona_sklearn": "import nona_sklearn, sys; assert 'matplotlib' not in sys.modules",
}


class Stopwatch(Callback):
    """Time a training, from the first epoch's begin to the last one's end."""

    seconds = None  # of the latest training; a fit copies its callbacks, so the class keeps them

    def on_train_begin(self, net, **_):
        self.start = time.perf_counter()

    def on_train_end(self, net, **_):
        Stopwatch.seconds = time.perf_counter() - self.start


def make_data(n):
    """Make n rows × 20 columns."""
    return make_friedman1(n, 20, noise=1.0, random_state=0)


def make_regressor(n_epochs, **params):
    """Build the default with one network, to be trained for so many epochs."""
    return NONARegressor(
        n_estimators=1, max_iter=n_epochs, n_iter_no_change=n_epochs, random_state=0, **params
    )


def fit_with_skorch(X, y, n_epochs):
    """Train with the package; returns the regressor and the seconds of its epochs."""
    reg = make_regressor(n_epochs, batch_size=BATCH, pool_size=POOL, callbacks=[Stopwatch()])
    return reg.fit(X, y), Stopwatch.seconds


def prepare(reg, X, y):
    """Scale and split as the fit did: training rows and targets, validation rows and targets."""
    X = torch.as_tensor(reg.scaler_.transform(X), dtype=torch.float32)
    y = torch.as_tensor((y - y.mean()) / y.std(), dtype=torch.float32)
    [valid] = reg.validation_indices_
    train = np.setdiff1d(np.arange(len(X)), valid)
    return X[train], y[train], X[valid], y[valid]


def train_bare(network, X, y, X_valid, y_valid, n_epochs):
    """Take the steps of skorch's epochs; returns seconds."""
    generator = torch.Generator().manual_seed(0)
    start = time.perf_counter()
    network = copy.deepcopy(network).float().requires_grad_(True).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=1e-4, fused=True)
    for _ in range(n_epochs):
        order = torch.randperm(len(X), generator=generator)
        for i in range(0, len(X), BATCH):
            step(network, optimizer, X, y, order.roll(-i)[:POOL], min(BATCH, len(X) - i))
        validate(network, X[:POOL], y[:POOL], X_valid, y_valid)
    return time.perf_counter() - start


def step(network, optimizer, X, y, rows, n_queries):
    """Predict the first of some rows from all of them, and descend."""
    optimizer.zero_grad()
    embeddings = network.embedding(X[rows])
    itself = torch.eye(n_queries, len(rows), dtype=torch.bool)
    y_pred = network.head(embeddings[:n_queries], embeddings, y[rows], itself)
    nn.functional.mse_loss(y_pred, y[rows[:n_queries]]).backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()


@torch.no_grad()
def validate(network, X, y, X_valid, y_valid):
    """Score the validation rows against the first rows of the training set."""
    neighbors = network.embedding(X)
    blocks = network.embedding(X_valid).split(BATCH)
    y_pred = torch.cat([network.head(block, neighbors, y) for block in blocks])
    return nn.functional.mse_loss(y_pred, y_valid)


def compare_with_bare_loop(n, n_epochs, repeats):
    """Print seconds of an epoch both ways; returns their ratio."""
    X, y = make_data(n)
    reg, _ = fit_with_skorch(X, y, n_epochs)
    data = prepare(reg, X, y)
    seconds = median_in_turns(
        {
            "skorch": lambda: fit_with_skorch(X, y, n_epochs)[1],
            "bare loop": lambda: train_bare(reg.network_, *data, n_epochs),
        },
        repeats,
    )
    print(f"An epoch of {n:,} × 20, batches of {BATCH}, {torch.get_num_threads()} threads")
    for name, value in seconds.items():
        print(f"  {name:12s}{value / n_epochs:8.3f} s")
    overhead = seconds["skorch"] / seconds["bare loop"]
    print(f"  skorch is {overhead:.2f} × the bare loop")
    return overhead


def epoch_seconds(n, n_epochs):
    """Seconds of an epoch of a default fit to n rows × 20, all costs of the fit included."""
    X, y = make_data(n)
    return timed(lambda: make_regressor(n_epochs).fit(X, y)) / n_epochs


def compare_sizes(n):
    """Print seconds of the default fit to n rows and to ten times as many; returns the growth."""
    small, large = epoch_seconds(n, 10), epoch_seconds(10 * n, 2)
    growth = large / (10 * small)
    print("An epoch of the default fit, one network")
    print(f"  ten of {n:,} rows  {10 * small:8.2f} s")
    print(f"  one of {10 * n:,} rows {large:8.2f} s, {growth:.2f} ×")
    return growth


def compare_imports(imports, repeats):
    """Print seconds of imports in new interpreters; returns ours in units of the libraries'."""

    def start(code):
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    seconds = time_in_turns({name: start(code) for name, code in imports.items()}, repeats)
    ratio = seconds["nona_sklearn"] / seconds[LIBRARIES]
    print("Import")
    for name, value in seconds.items():
        print(f"  {name:30s}{value:8.2f} s")
    print(f"  {ratio:.2f} ×")
    return ratio


def run(args):
    """Time, print the ratios, check the claims."""
    if args.quick:
        compare_with_bare_loop(300, n_epochs=2, repeats=1)
        compare_sizes(100)
        compare_imports(dict.fromkeys(IMPORTS, "import sys"), repeats=1)
        return
    overhead = compare_with_bare_loop(20_000, n_epochs=5, repeats=3)
    growth = compare_sizes(20_000)
    ratio = compare_imports(IMPORTS, repeats=5)
    assert overhead <= 1.25
    assert growth <= 1.5
    assert ratio <= 1.3
