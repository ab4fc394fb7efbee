"""What a fit costs: beside other libraries, in a search, at the start.

Each table is side by side in one run: ``--tables`` chooses. Fits are the defaults, on one core
unless stated. The bare loop takes the same steps on the same rows as skorch, and nothing else: no
history, no early stopping, no copies of the best weights. ``--against`` names a commit whose
package fits the development sets beside this one.
"""

import copy
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from skorch.callbacks import Callback
from torch import nn

from nona_sklearn import NONARegressor, TrainingOptions

from . import real_data
from .timing import median_in_turns, threads, time_in_turns, timed

BATCH, POOL = 512, 2048
LIBRARIES = "torch + scikit-learn + skorch"
IMPORTS = {
    LIBRARIES: "import torch, sklearn, skorch",
    "nona_sklearn": "import nona_sklearn, sys; assert 'matplotlib' not in sys.modules",
}


class Stopwatch(Callback):
    """Time trainings, from the first epoch's begin to the last one's end."""

    seconds: ClassVar[list] = []  # a fit copies its callbacks, so the class keeps them

    def on_train_begin(self, net, **_):
        self.start = time.perf_counter()

    def on_train_end(self, net, **_):
        Stopwatch.seconds.append(time.perf_counter() - self.start)


def make_data(n):
    """Make n rows × 20 columns."""
    return make_friedman1(n, 20, noise=1.0, random_state=0)


def make_regressor(n_epochs, **options):
    """Build the default with one network, to be trained for so many epochs."""
    return NONARegressor(
        n_estimators=1,
        max_iter=n_epochs,
        random_state=0,
        similarity="l2",
        training=TrainingOptions(n_iter_no_change=n_epochs, **options),
    )


def fit_with_skorch(X, y, n_epochs):
    """Train with the package; returns the regressor and the seconds of its epochs."""
    reg = make_regressor(n_epochs, batch_size=BATCH, pool_size=POOL, callbacks=[Stopwatch()])
    return reg.fit(X, y), Stopwatch.seconds[-1]


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
    itself = torch.arange(n_queries)
    y_pred = network.head(embeddings[:n_queries], embeddings, y[rows], (itself, itself))
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


def in_new_process(code, folder=None, **environment):
    """Make a function that runs code in a new interpreter; it returns what is printed.

    What lies in the folder, if one is given, is imported before all else.
    """

    def start():
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            cwd=folder,
            env=os.environ | environment,
        )
        return done.stdout

    return start


def compare_imports(imports, repeats):
    """Print seconds of imports in new interpreters; returns ours in units of the libraries'."""
    seconds = time_in_turns(
        {name: in_new_process(code) for name, code in imports.items()}, repeats
    )
    ratio = seconds["nona_sklearn"] / seconds[LIBRARIES]
    print("Import")
    for name, value in seconds.items():
        print(f"  {name:30s}{value:8.2f} s")
    print(f"  {ratio:.2f} ×")
    return ratio


def first_fit(repeats):
    """Print, and return, the seconds of the first fit after the import, to 60 rows."""
    start = in_new_process(FIRST_FIT)
    seconds = float(np.median([float(start()) for _ in range(repeats)]))
    print(f"The first fit in a process, 60 rows, one network, two epochs: {seconds:.2f} s")
    return seconds


def print_ratios(title, seconds, baseline):
    """Print seconds by name, and as times those of one; returns the ratios."""
    print(title)
    for name, value in seconds.items():
        print(f"  {name:30s}{value:9.2f} s {value / seconds[baseline]:8.2f} ×")
    return {name: value / seconds[baseline] for name, value in seconds.items()}


def time_once(rivals):
    """Seconds of one call of each, in turn: for what takes minutes."""
    return {name: timed(function) for name, function in rivals.items()}


def compare_with_realmlp(n):
    """Default fits to n rows × 20, on one core."""
    from pytabkit import RealMLP_TD_Regressor

    X, y = make_data(n)
    with threads(1):
        seconds = time_once(
            {
                "RealMLP": lambda: RealMLP_TD_Regressor(
                    device="cpu", random_state=0, n_threads=1
                ).fit(X, y),
                "NONA": lambda: NONARegressor(random_state=0).fit(X, y),
            }
        )
    return print_ratios(f"Default fits to {n:,} × 20, one core", seconds, "RealMLP")["NONA"]


def compare_threads(n, **params):
    """Fits to n rows × 20 on one and on two threads, alone and beside a busy process."""
    X, y = make_data(n)

    def fit(n_threads):
        with threads(n_threads):
            NONARegressor(random_state=0, **params).fit(X, y)

    rivals = {"one thread": lambda: fit(1), "two threads": lambda: fit(2)}
    alone = print_ratios(f"A fit to {n:,} × 20", time_once(rivals), "one thread")
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            seconds = time_once(rivals)
        finally:
            busy.kill()
    beside = print_ratios("The same beside a process that is always busy", seconds, "one thread")
    return alone["two threads"], beside["two threads"]


GRID = {
    "embedding_dim": [16, 32],
    "hidden_layer_sizes": [(64,), (128,)],
    "training__weight_decay": [0, 0.1],
}
MLP_GRID = {
    "hidden_layer_sizes": [(64,), (128,)],
    "alpha": [1e-4, 1e-2],
    "learning_rate_init": [1e-3, 1e-2],
}


def compare_searches(n, **params):
    """Eight candidates × 3 folds, two jobs, beside scikit-learn's perceptron."""
    X, y = make_data(n)
    y = (y - y.mean()) / y.std()
    perceptron = MLPRegressor(max_iter=params.get("max_iter", 200), random_state=0)
    searches = {
        "MLPRegressor": GridSearchCV(perceptron, MLP_GRID, cv=3, n_jobs=2),
        "NONARegressor": GridSearchCV(
            NONARegressor(random_state=0, **params), GRID, cv=3, n_jobs=2
        ),
    }
    seconds = time_once({name: lambda s=s: s.fit(X, y) for name, s in searches.items()})
    title = f"A search of 8 candidates × 3 folds, {n:,} rows × 20, two jobs"
    return print_ratios(title, seconds, "MLPRegressor")["NONARegressor"]


def compare_with_all_rows(n, n_seeds, **params):
    """Default fits to n rows × 20, of weights that end and of all rows, on one core.

    Returns
    -------
    ratio : float
        Geometric mean over the seeds of the first's processor time over the second's.
    chance : float
        Its standard error: two fits end after different numbers of epochs.
    """
    seconds, epochs = np.empty((2, n_seeds, 2))
    for seed in range(n_seeds):
        X, y = make_friedman1(n, 20, noise=1.0, random_state=seed)
        for i, n_neighbors in enumerate(("auto", None)):
            reg = NONARegressor(n_neighbors=n_neighbors, random_state=seed, **params)
            with threads(1):
                seconds[seed, i] = timed(partial(reg.fit, X, y), time.process_time)
            epochs[seed, i] = reg.n_iter_
    ratio, chance = geometric_mean(seconds[:, 0] / seconds[:, 1])
    of_epoch, _ = geometric_mean(seconds[:, 0] / seconds[:, 1] * epochs[:, 1] / epochs[:, 0])
    print(
        f"Default fits to {n:,} × 20, over fits with n_neighbors=None, {n_seeds} seeds, one core"
    )
    print(f"  seconds {ratio:.2f} ×, standard error {chance:.2f}; of an epoch {of_epoch:.2f} ×")
    return ratio, chance


def geometric_mean(ratios):
    """The geometric mean of ratios, and its standard error."""
    logs = np.log(ratios)
    mean = np.exp(logs.mean())
    return mean, mean * logs.std(ddof=1) / np.sqrt(len(logs))


def compare_commits(commit, names, **limits):
    """Default fits to tables, one core: this package beside a commit's; returns the ratios."""
    root = Path(__file__).parents[1]
    table = []
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit, "nona_sklearn"], cwd=root, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        for name in names:
            X, X_test, y, y_test = real_data.encoded_split(name, 0, **limits)
            np.savez(Path(folder, "data.npz"), X=X, X_test=X_test, y=y, y_test=y_test)
            found = {}
            for version, package in (("before", folder), ("now", root)):
                one = {"OMP_NUM_THREADS": "1", "DATA": str(Path(folder, "data.npz"))}
                found[version] = [float(x) for x in in_new_process(FIT, package, **one)().split()]
            row = {
                f"{what}, {version}": found[version][i]
                for version in found
                for i, what in enumerate(WHAT)
            }
            table.append({"set": name} | row)
            print(pd.DataFrame(table[-1:]).round(3).to_string(index=False, header=len(table) == 1))
    table = pd.DataFrame(table).set_index("set")
    return [table[f"{what}, now"] / table[f"{what}, before"] for what in WHAT]


WHAT = ("seconds", "nRMSE")
#: Prints seconds of processor time of a default fit, and its error.
FIT = """
import os, time
import numpy as np
from nona_sklearn import NONARegressor
data = np.load(os.environ["DATA"])
NONARegressor(n_estimators=1, max_iter=1).fit(data["X"][:50], data["y"][:50])
start = time.process_time()  # a busy machine changes it least
model = NONARegressor(random_state=0).fit(data["X"], data["y"])
print(time.process_time() - start)
error = model.predict(data["X_test"]) - data["y_test"]
print(np.sqrt(np.mean(error**2)) / data["y_test"].std())
"""
#: Prints seconds of a process's first fit.
FIRST_FIT = """
import time
from functools import partial
import numpy as np
from nona_sklearn import NONARegressor
X = np.random.default_rng(0).standard_normal((60, 4))
start = time.perf_counter()
NONARegressor(n_estimators=1, max_iter=2).fit(X, X[:, 0])
print(time.perf_counter() - start)
"""

TABLES = ("start", "loop", "rows", "neighbors", "realmlp", "threads", "search")


def add_arguments(parser):
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--against", help="a commit to fit the development sets side by side with")
    parser.add_argument("--sets", nargs="+", default=list(real_data.DEVELOPMENT))


def run_quickly():
    """Try that the tables print, in seconds."""
    short = {"n_estimators": 1, "max_iter": 2}
    compare_imports(dict.fromkeys(IMPORTS, "import sys"), repeats=1)
    compare_with_bare_loop(300, n_epochs=2, repeats=1)
    compare_sizes(100)
    compare_with_all_rows(100, n_seeds=2, **short)
    compare_threads(100, **short)
    print_ratios("Ratios", {"one": 1.0, "two": 2.0}, "one")


def run(args):
    """Time, print the ratios, check the claims."""
    if args.quick:
        run_quickly()
        return
    if args.against:
        seconds, error = compare_commits(args.against, args.sets)
        print(
            f"median seconds {seconds.median():.2f} ×, error {np.exp(np.log(error).mean()):.3f} ×"
        )
        return
    if "start" in args.tables:
        assert compare_imports(IMPORTS, repeats=5) <= 1.3
        assert first_fit(repeats=5) <= 0.5
    if "loop" in args.tables:
        assert compare_with_bare_loop(20_000, n_epochs=5, repeats=3) <= 1.25
    if "rows" in args.tables:
        assert compare_sizes(20_000) <= 1.5
    if "neighbors" in args.tables:
        ratio, chance = compare_with_all_rows(6_000, n_seeds=5)
        assert ratio <= 1 + chance
    if "threads" in args.tables:
        alone, beside = compare_threads(6_000)
        assert alone <= 0.65  # we aim at .6
        assert beside <= 1.05
    if "realmlp" in args.tables:
        assert compare_with_realmlp(6_000) <= 0.35
    if "search" in args.tables:
        assert compare_searches(1_000) <= 10  # we aim at 8
