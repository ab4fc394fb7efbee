"""What skorch costs beside a bare torch loop, how an epoch grows with rows, and the import.

python benchmarks/speed_fit.py
"""

import subprocess
import sys
import time

import numpy as np
import torch
from sklearn.datasets import make_friedman1
from timing import time_in_turns
from torch import nn
from torch.utils.data import TensorDataset

from nona_sklearn import NONARegressor
from nona_sklearn._bank import NeighborBank
from nona_sklearn._base import _standardize, _to_tensor
from nona_sklearn._training import (
    MAX_GRADIENT_NORM,
    DatasetPool,
    RowBatches,
    predict_roughly,
    refine_temperature,
    train_network,
)

N_EPOCHS = 5
BATCH = 256


def prepare(n):
    """Scale n rows × 20 columns, and split off validation rows: two TensorDatasets."""
    X, y = make_friedman1(n, 20, noise=1.0, random_state=0)
    reg = NONARegressor()
    X, y = _to_tensor(X, reg._make_scaler().fit(X)), _standardize(y)
    [(train, valid)] = reg._split(n, 1, np.random.RandomState(0))
    return TensorDataset(X[train], y[train]), TensorDataset(X[valid], y[valid])


def make_network(X):
    """Build the default network."""
    torch.manual_seed(0)
    return NONARegressor()._make_network(X)


def fit_with_skorch(train, valid):
    """Train with the package: N_EPOCHS epochs."""
    train_network(
        make_network(train.tensors[0]),
        train,
        valid,
        neighbor_pool="dataset",
        pool_size=2048,
        batch_size=BATCH,
        learning_rate_init=0.01,
        weight_decay=1e-4,
        max_iter=N_EPOCHS,
        n_iter_no_change=N_EPOCHS,
        verbose=0,
        seed=0,
        device=torch.device("cpu"),
    )


def fit_with_a_bare_loop(train, valid):
    """Do the same steps, and nothing else."""
    network = make_network(train.tensors[0])
    X, y = train.tensors
    X_valid, y_valid = valid.tensors
    generator = torch.Generator().manual_seed(0)
    pool = DatasetPool(X, 2048, generator)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=1e-4, fused=True)
    for _ in range(N_EPOCHS):
        network.train()
        for rows, targets in RowBatches(train, BATCH, generator):
            optimizer.zero_grad()
            query, neighbors, neighbor_rows = pool.embed(network, rows)
            itself = torch.eye(len(query), len(neighbors), dtype=torch.bool)
            y_pred = network.head(query, neighbors, y[neighbor_rows], itself)
            nn.functional.mse_loss(y_pred, targets).backward()
            nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
        bank = NeighborBank(network.embed(X[:2048]), y[:2048])
        nn.functional.mse_loss(predict_roughly(network, bank, network.embed(X_valid)), y_valid)
    refine_temperature(network, NeighborBank(network.embed(X), y), X_valid, y_valid)


def epoch_seconds(n, n_epochs):
    """Seconds of an epoch of a default fit to n rows × 20, all costs of the fit included."""
    X, y = make_friedman1(n, 20, noise=1.0, random_state=0)
    reg = NONARegressor(
        n_estimators=1, max_iter=n_epochs, n_iter_no_change=n_epochs, random_state=0
    )
    start = time.perf_counter()
    reg.fit(X, y)
    return (time.perf_counter() - start) / n_epochs


def python(code):
    """Run code in a new interpreter."""
    subprocess.run([sys.executable, "-c", code], check=True)


def main():
    """Time, print the ratios, check the claims."""
    data = prepare(20_000)
    seconds = time_in_turns(
        {
            "skorch": lambda: fit_with_skorch(*data),
            "bare loop": lambda: fit_with_a_bare_loop(*data),
        },
        repeats=3,
    )
    overhead = seconds["skorch"] / seconds["bare loop"]
    print(f"An epoch of 20,000 × 20, batches of {BATCH}, {torch.get_num_threads()} threads")
    for name, value in seconds.items():
        print(f"  {name:12s}{value / N_EPOCHS:8.3f} s")
    print(f"  skorch is {overhead:.2f} × the bare loop")

    small, large = epoch_seconds(20_000, 10), epoch_seconds(200_000, 2)
    growth = large / (10 * small)
    print("An epoch of the default fit, one network")
    print(f"  ten of 20,000 rows  {10 * small:8.2f} s")
    print(f"  one of 200,000 rows {large:8.2f} s, {growth:.2f} ×")

    imports = time_in_turns(
        {
            "torch + scikit-learn + skorch": lambda: python("import torch, sklearn, skorch"),
            "nona_sklearn": lambda: python(
                "import nona_sklearn, sys; assert 'matplotlib' not in sys.modules"
            ),
        }
    )
    ratio = imports["nona_sklearn"] / imports["torch + scikit-learn + skorch"]
    print("Import")
    for name, value in imports.items():
        print(f"  {name:30s}{value:8.2f} s")
    print(f"  {ratio:.2f} ×")

    assert overhead <= 1.25
    assert growth <= 1.5
    assert ratio <= 1.3


if __name__ == "__main__":
    main()
