"""Fits on rows that lie in files: a memory-mapped array, and a torch Dataset, of 10⁷ rows × 20.

Peak memory above that of the libraries, with the files' own pages, which the system takes back
when it needs them, and seconds. Two epochs of one network; the rows are synthetic.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._testing import ignore_warnings

from nona_sklearn import NONARegressor

from .memory import measure_apart, peak

N_ROWS, N_FEATURES, BLOCK = 10_000_000, 20, 100_000
KINDS = "array", "dataset"
LIMIT = {"array": 1_400, "dataset": 700}  # bytes a row


class Files(torch.utils.data.Dataset):
    """Rows and targets, read when they are indexed."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return torch.from_numpy(np.array(self.X[row])), float(self.y[row])


class Network(torch.nn.Sequential):
    """What the Dataset's rows are embedded by."""

    def __init__(self):
        super().__init__(torch.nn.Linear(N_FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))


def write_rows(folder, n_rows):
    """Write rows and targets, block by block."""
    shapes = {"X": (n_rows, N_FEATURES), "y": (n_rows,)}
    X, y = (
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, shape)
        for name, shape in shapes.items()
    )
    generator = np.random.default_rng(0)
    for start in range(0, n_rows, BLOCK):
        rows = X[start : start + BLOCK]
        rows[:] = generator.standard_normal(rows.shape, dtype=np.float32)
        y[start : start + BLOCK] = rows[:, 0] + rows[:, 1] ** 2


def measure(kind, n_rows):
    """Print how much memory a fit takes at its peak, in MB, and how many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_rows(folder, n_rows)
        X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "Xy")
        model = NONARegressor(max_iter=2, n_estimators=1, random_state=0)
        model.fit(X[:100], y[:100])  # libraries load on first use
        before, start = peak(), time.perf_counter()
        if kind == "array":
            model.fit(X, y)
        else:
            model.set_params(feature_extractor=Network).fit(Files(X, y), y)
        print(peak() - before, time.perf_counter() - start)


def add_arguments(parser):
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)


@ignore_warnings(category=ConvergenceWarning)  # two epochs are for the clock
def run(args):
    """Measure, print the table, check the claim."""
    if args.measure:
        measure(args.measure[0], int(args.measure[1]))
        return
    n_rows = 2_000 if args.quick else args.rows
    print(f"{'rows':8}{'number':>12}{'peak, MB':>10}{'a row, bytes':>14}{'seconds':>9}")
    for kind in KINDS[:1] if args.quick else KINDS:
        grown, seconds = measure_apart("large", kind, n_rows)
        a_row = grown * 2**20 / n_rows
        print(f"{kind:8}{n_rows:12,}{grown:10,.0f}{a_row:14,.0f}{seconds:9.0f}", flush=True)
        assert args.quick or a_row <= LIMIT[kind]
