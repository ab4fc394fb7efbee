"""What a default estimator takes: seconds and memory of fit, time of predictions, size of a file.

The rows are made up, the defaults those of a table of that size, on one thread. A fit is measured
in a process of its own; its memory is the peak above that of the libraries and of the table.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from nona_sklearn import NONARegressor, save

from .memory import measure_apart, peak

SHAPES = [(1_000, 20), (10_000, 20), (10_000, 100), (100_000, 20), (100_000, 100), (1_000_000, 20)]
N_QUERIES = 1_000
MOST_SECONDS, MOST_BYTES = 900, 600  # of a fit of the largest table; bytes a row


def make_rows(n_rows, n_features):
    """Make a table and targets, which depend on five features."""
    rng = np.random.default_rng(0)
    X = rng.random((n_rows, n_features))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    return X, y + 10 * X[:, 3] + 5 * X[:, 4] + rng.standard_normal(n_rows)


def measure(n_rows, n_features):
    """Print seconds and MB of a fit, milliseconds of predictions, and MB of the file."""
    torch.set_num_threads(1)
    X, y = make_rows(n_rows, n_features)
    NONARegressor(n_estimators=1, max_iter=2).fit(X[:100], y[:100])  # libraries load on first use
    before, start = peak(), time.perf_counter()
    reg = NONARegressor(random_state=0).fit(X, y)
    fitted, grown = time.perf_counter() - start, peak() - before
    queries = make_rows(N_QUERIES, n_features)[0]
    one = queries[:1]
    reg.predict(one)
    alone = []
    for _ in range(20):
        start = time.perf_counter()
        reg.predict(one)
        alone.append(time.perf_counter() - start)
    start = time.perf_counter()
    reg.predict(queries)
    many = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        save(reg, path)
        print(fitted, grown, 1e3 * np.median(alone), 1e3 * many, path.stat().st_size / 2**20)


def add_arguments(parser):
    parser.add_argument("--measure", nargs=2, type=int, help=argparse.SUPPRESS)


def run(args):
    """Measure, print the table, check the claims."""
    if args.measure:
        measure(*args.measure)
        return
    print(
        f"{'rows':>10}{'columns':>9}{'fit, s':>9}{'peak, MB':>10}{'one row, ms':>13}"
        f"{f'{N_QUERIES:,} rows, ms':>16}{'file, MB':>10}"
    )
    for n_rows, n_features in [(300, 5)] if args.quick else SHAPES:
        seconds, grown, one, many, stored = measure_apart("costs", n_rows, n_features)
        print(
            f"{n_rows:10,}{n_features:9}{seconds:9.1f}{grown:10,.0f}{one:13.1f}{many:16.0f}"
            f"{stored:10.1f}",
            flush=True,
        )
    if not args.quick:
        assert seconds <= MOST_SECONDS
        assert grown * 2**20 / n_rows <= MOST_BYTES
