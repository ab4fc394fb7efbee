"""A bank from a folder of Parquet files, on two Dask workers of one thread and 2 GB each.

A million rows × 20 in float32, or as many as `--rows`, one network, which a sample of 100,000 rows
trains for two epochs. What a row costs is processor time of the workers, with all that they do
before and after they embed it, less what they take when idle. It is relative to `transform` in the
same processes, and to `add_neighbors`, which evaluates the trend as well: by default, `transform`
only scales features. Shards evaluate the trend for rows that predictions depend on: what 1,000
predictions take is relative to the bank in memory.
Dask sets `MALLOC_TRIM_THRESHOLD_`, by which embedding takes 1.7 times as long: that is left out.
Last, a million rows are added to the shards, a frame at a time.
"""

import copy
import tempfile
import time
import warnings
from pathlib import Path

import dask
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from sklearn.base import clone

from nona_sklearn import NONARegressor, fit_shards

from .internals import samples_of_shards
from .shards import loaded_peak
from .timing import timed

N_ROWS, N_FEATURES, PART, N_WORKERS = 1_000_000, 20, 100_000, 2
N_SAMPLE, N_QUERIES, N_ADDED = 100_000, 1_000, 10
N_COMPARED = 2_000_000  # more rows are not put into a bank in memory
MEMORY = 2_000  # MB a worker
#: Parameters of the estimator, by name. By default, networks with a kernel are the trend.
ESTIMATORS = {
    "no trend": {"similarity": "l2", "trend": None},
    "kernel": {"similarity": "l2", "trend": "kernel"},
    "default": {},
}


def make_frame(n_rows, seed):
    """Make rows with targets."""
    X = np.random.default_rng(seed).standard_normal((n_rows, N_FEATURES), dtype=np.float32)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(N_FEATURES)])
    return frame.assign(y=frame.x0 + frame.x1**2)


def write_files(folder, n_rows, size):
    """Write Parquet files of so many rows each; returns their paths in order."""
    folder.mkdir()
    paths = []
    for i, start in enumerate(range(0, n_rows, size)):
        paths.append(folder / f"part.{i}.parquet")
        make_frame(min(size, n_rows - start), i).to_parquet(paths[-1])
    return paths


def cpu_seconds():
    """Processor time of a process, which a task of Dask measures, too."""
    return time.process_time()


def seconds_of_workers(client, function):
    """What a function returns, and the processor time of the workers less that when idle."""

    def total():
        return sum(client.run(cpu_seconds).values())

    idle, start = total(), time.perf_counter()
    time.sleep(2)
    idle = (total() - idle) / (time.perf_counter() - start)
    before, start = total(), time.perf_counter()
    result = function()
    elapsed = time.perf_counter() - start
    return result, total() - before - idle * elapsed, elapsed


def reference(path, estimator):
    """Seconds a row of `transform` and of `add_neighbors` for the rows of a file."""
    frame, estimator = pd.read_parquet(path), copy.copy(estimator)
    X = frame.drop(columns="y")
    functions = (lambda: estimator.transform(X)), (lambda: add(estimator, frame))
    return [timed(function, cpu_seconds) / len(X) for function in functions]


def in_memory(model, paths, rows):
    """Fit a model to the sample and add the remaining rows."""
    frames = [pd.read_parquet(path) for path in paths]
    ends = np.cumsum([len(frame) for frame in frames])
    is_sample = np.split(np.isin(np.arange(ends[-1]), rows), ends[:-1])
    sample = pd.concat([f[s] for f, s in zip(frames, is_sample, strict=True)], ignore_index=True)
    model.fit(sample.drop(columns="y"), sample.y)
    for frame, some in zip(frames, is_sample, strict=True):
        add(model, frame[~some].reset_index(drop=True))


def add(model, frame):
    """Add the rows of a frame."""
    model.add_neighbors(frame.drop(columns="y"), frame.y)


def measure(client, name, paths, n_rows, n_sample):
    """Fit shards, and compare them with the bank in memory; returns these and a line's numbers."""
    model = NONARegressor(max_iter=2, n_estimators=1, random_state=0, **ESTIMATORS[name])
    place = paths[0].parent
    few = place.with_name(f"few {name}")
    write_files(few, 400, 100)
    fit_shards(model, few, few.with_name(f"warm {name}"), y="y", n_training_rows=100)

    def fit():
        return fit_shards(
            model, place, place.with_name(f"bank {name}"), y="y", n_training_rows=n_sample
        )

    with samples_of_shards() as drawn:
        sharded, cpu, seconds = seconds_of_workers(client, fit)
    a_row = cpu / n_rows
    turns = [client.run(reference, path, sharded.estimator_).values() for path in paths[:3]]
    transform, adding = np.median([pair for turn in turns for pair in turn], axis=0)
    difference = of_memory = np.nan
    if n_rows <= N_COMPARED:
        whole = clone(model)
        in_memory(whole, paths, drawn[0])
        queries = make_frame(N_QUERIES, 10**6).drop(columns="y")
        expected = whole.predict(queries)
        difference = np.abs(sharded.predict(queries) - expected).max() / np.abs(expected).max()
        pairs = [
            [
                timed(lambda each=each: each.predict(queries), cpu_seconds)
                for each in (sharded, whole)
            ]
            for _ in range(3)
        ]
        of_memory = np.divide(*np.median(pairs, axis=0))
    ratios = a_row / transform, a_row / adding, of_memory
    return sharded, seconds, 1e6 * a_row, *ratios, difference


def add_arguments(parser):
    parser.add_argument("--rows", type=int, default=N_ROWS)


def run(args):
    """Measure, print, check the claims."""
    n_rows, size, n_sample, n_workers = args.rows, PART, N_SAMPLE, N_WORKERS
    if args.quick:
        n_rows, size, n_sample, n_workers = 400, 100, 100, 1
    print(f"{n_rows:,} rows in Parquet files of {size:,}")
    print(
        f"{'estimator':10}{'seconds':>9}{'a row, µs':>11}{'of transform':>14}{'of adding':>11}"
        f"{'predict, of memory':>20}{'peak, MB':>10}{'difference':>12}"
    )
    environment = {"distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1}}
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        dask.config.set(environment),
    ):
        warnings.simplefilter("ignore")  # Dask's, of busy ports; two epochs are for the clock
        paths, of_transforms = write_files(Path(folder, "table"), n_rows, size), []
        for name in ["kernel"] if args.quick else ESTIMATORS:
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
                sharded, *numbers, difference = measure(client, name, paths, n_rows, n_sample)
                peak = max(client.run(loaded_peak).values())
            seconds, a_row, of_transform, of_adding, of_memory = numbers
            of_transforms.append(of_transform)
            print(
                f"{name:10}{seconds:9.0f}{a_row:11.1f}{of_transform:14.2f}{of_adding:11.2f}"
                f"{of_memory:20.2f}{peak:10.0f}{difference:12.1e}",
                flush=True,
            )
            if not args.quick:
                assert peak <= MEMORY
                assert not difference > 1e-5
        frames = [make_frame(size, 10**7 + i) for i in range(N_ADDED)]
        added = [timed(lambda frame=frame: add(sharded, frame), cpu_seconds) for frame in frames]
        first, last = (sum(half) for half in (added[: N_ADDED // 2], added[N_ADDED // 2 :]))
        print(
            f"{N_ADDED} frames of {size:,} rows added: {1e6 * sum(added) / N_ADDED / size:.1f} µs "
            f"a row, the last half in {last / first:.2f} × the time of the first"
        )
        if not args.quick:
            assert last <= 1.5 * first
            assert max(of_transforms) <= 2
