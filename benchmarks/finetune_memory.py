"""Which rows are the neighbours of a step while an extractor is fine-tuned, and how fresh.

The batch alone, the default; 256 rows embedded anew, the pool "dataset"; or a memory.
A step refreshes its batch's in any case. Beyond that: nothing; all of them whenever an epoch is
validated; the batch's own rows as they are, with gradient, and the others, or only those of the
last seven batches, as stored. Three image tasks, four splits.
Results are kept in ``benchmarks/results/finetune_memory.csv``.
"""

import numpy as np
import torch
from sklearn.metrics import mean_squared_error

from . import finetune_data as data
from . import internals
from .finetune_heads import load, make_regressor
from .ledger import complete

TASKS = ["rotated MNIST", "Cahn-Hilliard", "Ising"]
SEEDS = range(4)
DEFAULT = "batch"
RULES = {
    "fresh batch, refreshed by validation": (internals.WithFreshBatch, {}),
    "fresh batch, left alone": (internals.FreshAndLeftAlone, {}),
    "fresh batch and the last seven": (internals.LastBatches, {}),
    "memory, refreshed by validation": (internals.MemoryPool, {}),
    "memory, apart from validation": (internals.KeptApart, {}),
    "memory, left alone": (internals.LeftAlone, {}),
    "dataset, 256 rows": (internals.DatasetPool, {"training__pool_size": 256}),
    DEFAULT: (internals.BatchPool, {}),
}


def measure(task, seed, rule):
    """Test MSE and seconds an epoch of NONA under a rule."""
    (X, y, groups), (train, test) = load(task), data.split(task, seed)
    pool, params = RULES[rule]
    reg = make_regressor(task, seed).set_params(training__neighbor_pool="memory", **params)
    with internals.pool_in_place_of_memory(pool):
        reg.fit(X[train], y[train], groups=None if groups is None else groups[train])
    seconds = sum(epoch["dur"] for epoch in reg.history_) / reg.n_iter_
    mse = mean_squared_error(y[test], reg.predict(X[test])) / y[train].var()
    return {"mse": mse, "epochs": reg.n_iter_, "seconds": seconds}


def add_arguments(parser):
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--rules", nargs="+", default=list(RULES))


def run(args):
    """Run what is missing, print the table, check the claim."""
    torch.set_num_threads(1)
    tasks, seeds = ([data.QUICK], [0]) if args.quick else (args.tasks, SEEDS)
    cases = [(task, seed, rule) for seed in seeds for task in tasks for rule in args.rules]
    path = args.results / "finetune_memory.csv"
    results = complete(path, ["task", "seed", "rule"], cases, measure)
    table = results.groupby(["rule", "task"], sort=False).mean(numeric_only=True).unstack()
    print("\nMSE in variances of the target, epochs, seconds an epoch")
    print(table.drop(columns="seed").round(4).to_string())
    if not args.quick and len(table.dropna()) == len(RULES):
        ours, redrawn = table.loc[DEFAULT], table.loc["dataset, 256 rows"]
        assert (ours["seconds"] < redrawn["seconds"]).all()
        geometric_means = np.exp(np.log(table["mse"]).mean(axis=1))
        assert geometric_means[DEFAULT] < 1.1 * geometric_means.min()
