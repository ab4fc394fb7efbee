"""When to refresh the memory of neighbours' embeddings while an extractor is fine-tuned.

    python benchmarks/finetune_memory.py

A step refreshes its batch's embeddings in any case. Beyond that: nothing; all of them whenever an
epoch is validated; the batch meets itself as it is, with gradient; the neighbours of each step do,
which is the pool 'dataset' of 256 rows; or no memory, the batch alone. Three image tasks, four
splits.
Results are kept in ``benchmarks/results/finetune_memory.csv``.
"""

import argparse
from pathlib import Path

import finetune_data as data
import torch
from finetune_heads import load, make_regressor
from ledger import complete
from sklearn.metrics import mean_squared_error

from nona_sklearn import _training
from nona_sklearn._bank import NeighborBank

RESULTS = Path(__file__).parent / "results" / "finetune_memory.csv"
TASKS = ["rotated MNIST", "Cahn-Hilliard", "Ising"]
SEEDS = range(4)


class LeftAlone(_training.MemoryPool):
    """Only a step refreshes, and validation asks what training left behind."""

    def bank(self, network):
        return NeighborBank(self.memory[: self.size], self.y[: self.size])


class KeptApart(_training.MemoryPool):
    """Validation embeds anew for itself; training goes on with what it remembers."""

    bank = _training.DatasetPool.bank


class WithFreshBatch(_training.MemoryPool):
    """The batch meets itself as it is now, with gradient, and the others as remembered."""

    def embed(self, network, queries):
        if self.memory is None:
            self.memory = network.embed(self.X)
        others = self.draw(queries)
        rows = torch.cat([queries, others])
        embeddings = network.embedding(self.X[queries])
        neighbors = torch.cat([embeddings, self.memory[others]])
        self.memory[queries] = embeddings.detach()
        return embeddings, neighbors, self.y[rows], self.excluded(queries, rows)


class FreshAndLeftAlone(WithFreshBatch):
    """The same, and validation refreshes nothing."""

    bank = LeftAlone.bank


DEFAULT = "memory, refreshed by validation"
RULES = {
    "fresh batch, refreshed by validation": (WithFreshBatch, {}),
    "fresh batch, left alone": (FreshAndLeftAlone, {}),
    DEFAULT: (_training.MemoryPool, {}),
    "memory, apart from validation": (KeptApart, {}),
    "memory, left alone": (LeftAlone, {}),
    "dataset, 256 rows": (_training.DatasetPool, {"pool_size": 256}),
    "batch": (_training.BatchPool, {}),
}


def measure(task, seed, rule):
    """Test MSE and seconds an epoch of NONA under a rule."""
    (X, y, groups), (train, test) = load(task), data.split(task, seed)
    pool, params = RULES[rule]
    _training.NEIGHBOR_POOLS["memory"] = pool
    reg = make_regressor(task, seed).set_params(**params)
    reg.fit(X[train], y[train], None if groups is None else groups[train])
    _training.NEIGHBOR_POOLS["memory"] = _training.MemoryPool
    seconds = sum(epoch["dur"] for epoch in reg.history_) / reg.n_iter_
    mse = mean_squared_error(y[test], reg.predict(X[test])) / y[train].var()
    return {"mse": mse, "epochs": reg.n_iter_, "seconds": seconds}


def main():
    """Run what is missing, print the table, check the claim."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--rules", nargs="+", default=list(RULES))
    args = parser.parse_args()
    wanted = [(task, seed, rule) for seed in SEEDS for task in args.tasks for rule in args.rules]
    results = complete(RESULTS, ["task", "seed", "rule"], wanted, measure)
    table = results.groupby(["rule", "task"], sort=False).mean(numeric_only=True).unstack()
    print("\nMSE in variances of the target, epochs, seconds an epoch")
    print(table.drop(columns="seed").round(4).to_string())
    if not table.isna().any(axis=None):
        ours, redrawn = table.loc[DEFAULT], table.loc["dataset, 256 rows"]
        assert (ours["seconds"] < redrawn["seconds"]).all()
        assert ours["mse"].mean() < 1.1 * table["mse"].mean(axis=1).min()


if __name__ == "__main__":
    main()
