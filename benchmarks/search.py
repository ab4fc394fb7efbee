"""What an index gains and loses among a million rows, and what compression does instead.

One network, whose bank is searched exactly and by a graph, and the root mean squared errors of
both. Then the default with 300,000 rows: a bank of 20,000 of them by ``compress``, beside banks of
as many random rows. Rows are made up, without noise, which would hide what is lost. Seconds are
processor time, of all threads together.
"""

import time
from functools import partial

import numpy as np
import torch
from sklearn.metrics import root_mean_squared_error

from .predict import fit_quickly, make_rows
from .timing import time_in_turns, timed

N_ROWS, N_LARGE, N_KEPT = 1_000_000, 300_000, 20_000
N_QUERIES = 1_000
N_DRAWS = 5  # of random rows
EXACT, GRAPH = "brute", "hnsw"


def compare_algorithms(n_rows, n_queries, repeats):
    """Print seconds and errors of exact and approximate search; returns both as ratios.

    Returns
    -------
    times_faster : float
        Seconds of the exact search over those of the graph.
    rmse : float
        Error by the graph over that of the exact search.
    """
    X, y = make_rows(n_rows, 0)
    queries, truth = make_rows(n_queries, 1)
    models, building = {}, {}
    for algorithm in (EXACT, GRAPH):  # of the same random state, and so with the same network
        models[algorithm] = fit_quickly(X, y, n_estimators=1, algorithm=algorithm)
        first = partial(models[algorithm].predict, queries[:1])  # builds what searches
        building[algorithm] = timed(first, time.process_time)
    seconds = time_in_turns(
        {name: partial(model.predict, queries) for name, model in models.items()},
        repeats,
        time.process_time,
    )
    rmse = {
        name: root_mean_squared_error(truth, model.predict(queries))
        for name, model in models.items()
    }
    print(
        f"{n_rows:,} rows, {n_queries:,} queries, {torch.get_num_threads()} threads, one network"
    )
    print(f"n_neighbors_: {models[EXACT].n_neighbors_}")
    print(f"{'algorithm':12s}{'first, s':>10s}{'seconds':>10s}{'RMSE':>10s}")
    for name in models:
        print(f"{name:12s}{building[name]:10.1f}{seconds[name]:10.3f}{rmse[name]:10.5f}")
    times_faster, ratio = seconds[EXACT] / seconds[GRAPH], rmse[GRAPH] / rmse[EXACT]
    print(f"{GRAPH}: {times_faster:.1f} times as fast, RMSE {ratio:.4f} ×", flush=True)
    return times_faster, ratio


def compare_compression(n_rows, n_kept, n_queries):
    """Print seconds of a compression, and errors of its bank and of banks of random rows.

    Returns
    -------
    seconds : float
        Processor time of the compression.
    surplus : float
        Error of its bank minus the mean error of random rows, in standard deviations of these.
    """
    model = fit_quickly(*make_rows(n_rows, 0), n_estimators=3)
    queries, truth = make_rows(n_queries, 1)
    bank, rng = model.bank_, np.random.default_rng(0)

    def rmse():
        return root_mean_squared_error(truth, model.predict(queries))

    of_all = rmse()
    seconds = timed(lambda: model.compress(n_kept), time.process_time)
    compressed, draws = rmse(), []
    for _ in range(N_DRAWS):
        model.bank_ = bank
        model.remove_neighbors(ids=rng.permutation(n_rows)[n_kept:])
        draws.append(rmse())
    mean, deviation = np.mean(draws), np.std(draws, ddof=1)
    print(f"\n{n_kept:,} of {n_rows:,} rows, three networks: compressed in {seconds:.1f} s")
    print(f"RMSE: all rows {of_all:.5f}, compressed {compressed:.5f}, ", end="")
    print(f"random rows {mean:.5f} ± {deviation:.5f}", flush=True)
    return seconds, (compressed - mean) / deviation


def run(args):
    """Compare, print, check the claims."""
    if args.quick:
        compare_algorithms(2_000, 20, repeats=1)
        compare_compression(500, 100, 50)
        return
    times_faster, ratio = compare_algorithms(N_ROWS, N_QUERIES, repeats=3)
    seconds, surplus = compare_compression(N_LARGE, N_KEPT, N_QUERIES)
    assert times_faster >= 10
    assert ratio <= 1.005
    assert seconds <= 60
    assert surplus <= 1  # no worse than random rows by more than chance
