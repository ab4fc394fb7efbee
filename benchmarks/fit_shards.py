"""A bank from a folder of Parquet files, on two Dask workers of one thread and 2 GB each.

A million rows × 20 in float32, or as many as `--rows`, one network, which a sample of 100,000 rows
trains for two epochs. What a row costs is processor time of the workers, with all that they do
before and after they embed it, relative to `transform` of the same rows in this process. With the
kernel, which `transform` does not evaluate, it is relative to `add_neighbors` in memory as well.
Last, a million rows are added to the shards, a frame at a time.
"""

import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from nona_sklearn import NONARegressor, fit_shards

from .internals import samples_of_shards
from .shards import loaded_peak
from .timing import timed

N_ROWS, N_FEATURES, PART, N_WORKERS = 1_000_000, 20, 100_000, 2
N_SAMPLE, N_QUERIES, N_COMPARED, N_ADDED = 100_000, 1_000, 2_000_000, 10
MEMORY = 2_000  # MB a worker
TRENDS = None, "kernel"


def make_frame(n_rows, seed):
    """Make rows with targets."""
    X = np.random.default_rng(seed).standard_normal((n_rows, N_FEATURES), dtype=np.float32)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(N_FEATURES)])
    return frame.assign(y=frame.x0 + frame.x1**2)


def write_files(folder, n_rows, size):
    """Write Parquet files of so many rows each; returns their paths in order."""
    paths = []
    for i, start in enumerate(range(0, n_rows, size)):
        paths.append(folder / f"part.{i}.parquet")
        make_frame(min(size, n_rows - start), i).to_parquet(paths[-1])
    return paths


def cpu_seconds():
    """Processor time of a worker."""
    return time.process_time()


def in_memory(model, paths, rows):
    """Fit a model to the sample and add the remaining rows, in memory; returns seconds a row."""
    sample, start, seconds, n_added = [], 0, 0.0, 0
    frames = [pd.read_parquet(path) for path in paths]
    rest = []
    for frame in frames:
        is_sample = np.isin(np.arange(start, start + len(frame)), rows)
        sample.append(frame[is_sample])
        rest.append(frame[~is_sample].reset_index(drop=True))
        start += len(frame)
    sample = pd.concat(sample, ignore_index=True)
    model.fit(sample.drop(columns="y"), sample.y)
    for frame in rest:
        X = frame.drop(columns="y")
        seconds += timed(lambda X=X, y=frame.y: model.add_neighbors(X, y), cpu_seconds)
        n_added += len(frame)
    return seconds / max(n_added, 1)


def measure(client, model, place, paths, n_rows, n_sample):
    """Fit shards, and compare them with the bank in memory; returns the numbers of a line."""
    before, start = client.run(cpu_seconds), time.perf_counter()
    with samples_of_shards() as drawn:
        sharded = fit_shards(
            model, place, place.with_name(f"bank {model.trend}"), y="y", n_training_rows=n_sample
        )
    seconds = time.perf_counter() - start
    after = client.run(cpu_seconds)
    a_row = sum(after[worker] - before[worker] for worker in after) / n_rows
    some = [pd.read_parquet(path).drop(columns="y") for path in paths[:3]]
    embedding = min(
        timed(lambda X=X: sharded.estimator_.transform(X), cpu_seconds) / len(X) for X in some
    )
    difference, adding = np.nan, np.nan
    if n_rows <= N_COMPARED:
        whole = clone(model).set_params(similarity="l2")
        adding = in_memory(whole, paths, drawn[0])
        queries = make_frame(N_QUERIES, 10**6).drop(columns="y")
        expected = whole.predict(queries)
        difference = np.abs(sharded.predict(queries) - expected).max() / np.abs(expected).max()
    return sharded, seconds, a_row, a_row / embedding, a_row / adding, difference


def add(sharded, frame):
    """Add the rows of a frame."""
    sharded.add_neighbors(frame.drop(columns="y"), frame.y)


def add_arguments(parser):
    parser.add_argument("--rows", type=int, default=N_ROWS)


def run(args):
    """Measure, print, check the claims."""
    n_rows, size, n_sample = args.rows, PART, N_SAMPLE
    if args.quick:
        n_rows, size, n_sample = 400, 100, 100
    n_workers = 1 if args.quick else N_WORKERS
    print(
        f"{'trend':8}{'rows':>12}{'seconds':>9}{'a row, µs':>11}{'of transform':>14}"
        f"{'of adding':>11}{'peak, MB':>10}{'difference':>12}"
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's, of busy ports and slow workers
        warnings.simplefilter("ignore", ConvergenceWarning)  # two epochs are for the clock
        place = Path(folder, "table")
        place.mkdir()
        paths = write_files(place, n_rows, size)
        for trend in TRENDS[-1:] if args.quick else TRENDS:
            model = NONARegressor(max_iter=2, n_estimators=1, random_state=0, trend=trend)
            with (
                LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=1,
                    memory_limit=f"{MEMORY}MB",
                    dashboard_address=":0",
                ) as cluster,
                Client(cluster) as client,
            ):
                client.run(loaded_peak)
                sharded, *numbers, difference = measure(
                    client, model, place, paths, n_rows, n_sample
                )
                peak = max(client.run(loaded_peak).values())
            seconds, a_row, of_transform, of_adding = numbers
            print(
                f"{trend!s:8}{n_rows:12,}{seconds:9.0f}{1e6 * a_row:11.1f}{of_transform:14.2f}"
                f"{of_adding:11.2f}{peak:10.0f}{difference:12.1e}",
                flush=True,
            )
            if not args.quick:
                assert peak <= MEMORY
                assert (of_adding if trend else of_transform) <= 2
                assert not difference > 1e-5
        frames = [make_frame(size, 10**7 + i) for i in range(N_ADDED)]
        added = [timed(lambda frame=frame: add(sharded, frame)) for frame in frames]
        first, last = (sum(half) for half in (added[: N_ADDED // 2], added[N_ADDED // 2 :]))
        a_row = 1e6 * sum(added) / N_ADDED / size
        print(
            f"{N_ADDED} frames of {size:,} rows added: {a_row:.1f} µs a row, the last half in "
            f"{last / first:.2f} of the time of the first"
        )
        if not args.quick:
            assert last <= 1.5 * first
