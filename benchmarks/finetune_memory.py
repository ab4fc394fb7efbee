"""Who the neighbours of a step are while an extractor is fine-tuned, and how fresh.

    python benchmarks/finetune_memory.py

The batch alone, the default; 256 rows embedded anew, the pool "dataset"; or a memory.
A step refreshes its batch's in any case. Beyond that: nothing; all of them whenever an epoch is
validated; the batch meets itself as it is, with gradient, and the others, or only those of the
last seven batches, as remembered. Three image tasks, four splits.
Results are kept in ``benchmarks/results/finetune_memory.csv``.
"""

import argparse
from pathlib import Path

import finetune_data as data
import numpy as np
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


class LastBatches(_training.DatasetPool):
    """The batch as it is now, with gradient, and the rows of the last batches, as they were."""

    n_remembered = 224
    rows = None

    def embed(self, network, queries):
        embeddings = network.embedding(self.X[queries])
        if self.rows is None:
            self.rows, self.memory = queries[:0], embeddings[:0].detach()
        others = ~torch.isin(self.rows, queries)
        rows = torch.cat([queries, self.rows[others]])
        neighbors = torch.cat([embeddings, self.memory[others]])
        self.rows = rows[: self.n_remembered]
        self.memory = neighbors[: self.n_remembered].detach()
        return embeddings, neighbors, self.y[rows], self.excluded(queries, rows)


DEFAULT = "batch"
RULES = {
    "fresh batch, refreshed by validation": (WithFreshBatch, {}),
    "fresh batch, left alone": (FreshAndLeftAlone, {}),
    "fresh batch and the last seven": (LastBatches, {}),
    "memory, refreshed by validation": (_training.MemoryPool, {}),
    "memory, apart from validation": (KeptApart, {}),
    "memory, left alone": (LeftAlone, {}),
    "dataset, 256 rows": (_training.DatasetPool, {"pool_size": 256}),
    DEFAULT: (_training.BatchPool, {}),
}


def measure(task, seed, rule):
    """Test MSE and seconds an epoch of NONA under a rule."""
    (X, y, groups), (train, test) = load(task), data.split(task, seed)
    pool, params = RULES[rule]
    _training.NEIGHBOR_POOLS["memory"] = pool
    reg = make_regressor(task, seed).set_params(neighbor_pool="memory", **params)
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
    if len(table.dropna()) == len(RULES):
        ours, redrawn = table.loc[DEFAULT], table.loc["dataset, 256 rows"]
        assert (ours["seconds"] < redrawn["seconds"]).all()
        geometric_means = np.exp(np.log(table["mse"]).mean(axis=1))
        assert geometric_means[DEFAULT] < 1.1 * geometric_means.min()


if __name__ == "__main__":
    main()
