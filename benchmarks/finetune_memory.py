"""When to refresh the memory of neighbours' embeddings while an extractor is fine-tuned.

    python benchmarks/finetune_memory.py

A step refreshes its batch's embeddings in any case. Beyond that: nothing; all of them whenever an
epoch is validated (the default), or a quarter; the neighbours of each step, with gradient, which
is the pool 'dataset' of 256 rows; or no memory, the batch alone. Two image tasks, two splits.
Results are kept in ``benchmarks/results/finetune_memory.csv``.
"""

from pathlib import Path

import finetune_data as data
import torch
from finetune_heads import load, make_regressor
from ledger import complete
from sklearn.metrics import mean_squared_error

from nona_sklearn import _training
from nona_sklearn._bank import NeighborBank

RESULTS = Path(__file__).parent / "results" / "finetune_memory.csv"
TASKS = ["rotated MNIST", "Cahn-Hilliard"]
SEEDS = range(2)


class LeftAlone(_training.MemoryPool):
    """Only a step refreshes, and validation asks what training left behind."""

    def bank(self, network):
        return NeighborBank(self.memory[: self.size], self.y[: self.size])


class KeptApart(_training.MemoryPool):
    """Validation embeds anew for itself; training goes on with what it remembers."""

    bank = _training.DatasetPool.bank


class PartlyRefreshed(_training.MemoryPool):
    """Validation refreshes a quarter of the rows, the next one another quarter."""

    turn = 0

    def bank(self, network):
        rows = torch.arange(self.turn % 4, len(self.X), 4)
        self.memory[rows] = network.embed(self.X[rows])
        self.turn += 1
        return NeighborBank(self.memory[: self.size], self.y[: self.size])


RULES = {
    "memory, refreshed by validation": (_training.MemoryPool, {}),
    "memory, a quarter by validation": (PartlyRefreshed, {}),
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
    wanted = [(task, seed, rule) for task in TASKS for seed in SEEDS for rule in RULES]
    results = complete(RESULTS, ["task", "seed", "rule"], wanted, measure)
    table = results.groupby(["rule", "task"], sort=False).mean(numeric_only=True).unstack()
    print("\nMSE in variances of the target, epochs, seconds an epoch")
    print(table.drop(columns="seed").round(4).to_string())
    fresh = table.loc["memory, refreshed by validation"]
    assert (fresh["seconds"] < table.loc["dataset, 256 rows"]["seconds"]).all()


if __name__ == "__main__":
    main()
