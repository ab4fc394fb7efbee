"""A bank in four shards on four local Dask workers, beside one process with the same cores.

A million rows × 32 dimensions of embedding, 2,000 queries, one network. Workers have one thread
each. What a worker's memory grows by is beyond what it takes with the libraries loaded.
"""

import tempfile
import warnings
from pathlib import Path

import joblib
import numpy as np
from distributed import Client, LocalCluster

from nona_sklearn import NONARegressor, ShardedNeighbors, save_shards

from .memory import peak
from .predict import fit_quickly, make_rows
from .timing import timed

N_BANK, N_QUERIES, N_WORKERS = 1_000_000, 2_000, 4


def loaded_peak():
    """Peak memory of a worker with the libraries loaded, in MB."""
    NONARegressor()
    return peak()


def run(args):
    """Measure, print, check the claims."""
    n_bank, n_queries, repeats = (400, 20, 1) if args.quick else (N_BANK, N_QUERIES, 3)
    n_workers = 1 if args.quick else N_WORKERS
    model = fit_quickly(*make_rows(n_bank, 0), n_estimators=1)
    queries = make_rows(n_queries, 1)[0]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's, of busy ports and slow workers
        place = Path(folder, "bank")
        save_shards(model, place, n_workers)
        sharded = ShardedNeighbors(place, n_jobs=-1)
        with (
            LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
            ) as cluster,
            Client(cluster) as client,
        ):
            before = client.run(loaded_peak)
            with joblib.parallel_config("dask"):
                predicted = sharded.predict(queries)  # maps the shards
                expected = model.predict(queries)
                ratios = [
                    (
                        timed(lambda: sharded.predict(queries)),
                        timed(lambda: model.predict(queries)),
                    )
                    for _ in range(repeats)
                ]
            after = client.run(loaded_peak)
    distributed, alone = np.median(ratios, axis=0)
    difference = np.abs(predicted - expected).max() / np.abs(expected).max()
    share = model.bank_.embeddings.numel() * 4 / n_workers / 2**20
    grown = max(after[worker] - before[worker] for worker in before)
    print(f"{n_bank:,} rows in {n_workers} shards, {n_queries:,} queries")
    print(f"difference {difference:.1e} of the largest prediction")
    print(f"{distributed:.2f} s; one process {alone:.2f} s: {distributed / alone:.2f} ×")
    print(f"a worker grows by at most {grown:.0f} MB; its share is {share:.0f} MB")
    if not args.quick:
        assert difference <= 1e-6
        assert distributed <= 1.5 * alone
        assert grown <= share + 200
