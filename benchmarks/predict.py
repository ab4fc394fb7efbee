"""What predictions cost: many queries, one at a time, quantiles, each weighting; their memory.

A bank of 100,000 rows × 25 dimensions, normally distributed. First the parts, in float32, beside
scikit-learn's k nearest neighbours and the materialised formula: that is the papers', written as
one reads it, queries × bank in memory, one operation after another. Then default regressors as a
user calls them, from a matrix in float64: 2,000 queries beside scikit-learn's k-NN, one query
beside its boosted trees, quantiles beside the mean, and what memory grows by with a million
queries. Last each weighting of all rows, beside the softmax. Seconds are processor time, of all
threads together, which a busy machine changes least; for one query they are wall-clock time,
since threads that wait for further work of so short a call count as busy.
"""

import argparse
import time
from functools import partial

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils._testing import ignore_warnings

from nona_sklearn import NONAHead, NONARegressor, SoftStep
from nona_sklearn.weighting import WEIGHTINGS

from .internals import Embedded, make_bank
from .memory import measure_apart, peak
from .timing import time_in_turns

N_BANK, N_QUERIES, N_DIMENSIONS = 100_000, 2_000, 25
N_SMALL, N_MANY = 5_000, 1_000_000  # rows of a smaller bank; queries whose memory is measured
DEFAULT, TREES = "NONARegressor", "HistGradientBoosting"
ONE_NETWORK = f"{DEFAULT}, one network"
N_LARGE, N_QUANTILES = 300_000, 500  # rows of a larger bank, and queries of its quantiles
N_TRAIN, N_EPOCHS = 2_500, 5  # rows that train a regressor, and epochs
K = 10  # nearest neighbours

in_turns = partial(time_in_turns, clock=time.process_time)


def materialized(head, query, neighbors, targets):
    """Attention over all pairs at once: l2, min-max scaling, log of S2, softmax."""
    similarity = -torch.cdist(query, neighbors)
    log_step = 0.0
    if head.step is not None:
        b, t = head.step.thresholds(query)
        low = similarity.amin(dim=1, keepdim=True)
        high = similarity.amax(dim=1, keepdim=True)
        x = (similarity - low) / (high - low)
        step = torch.where(x < b, (x / b) ** ((b - x) * t / (1 - t)), 1.0)
        log_step = torch.log(step)
    return torch.softmax(similarity + log_step, dim=1) @ targets


@torch.no_grad()
def measure(n_bank, n_queries, repeats):
    """Seconds of each rival, by name."""
    generator = torch.Generator().manual_seed(0)
    neighbors = torch.randn(n_bank, N_DIMENSIONS, generator=generator)
    query = torch.randn(n_queries, N_DIMENSIONS, generator=generator)
    targets = torch.randn(n_bank, generator=generator)
    torch.manual_seed(0)  # the step's initial weights
    stepped = NONAHead(step=SoftStep("s2", "pointwise", embedding_dim=N_DIMENSIONS)).eval()
    plain, nearest = NONAHead().eval(), NONAHead(n_neighbors=K).eval()
    bank = make_bank(neighbors, targets.double())
    knn = make_knn().fit(neighbors.numpy(), targets)
    expected = materialized(stepped, query, neighbors, targets)
    np.testing.assert_allclose(
        bank.evaluate(stepped, Embedded(query)).mean(), expected, rtol=0, atol=1e-5
    )
    rivals = {
        "k-NN, scikit-learn brute": lambda: knn.predict(query.numpy()),
        "k-NN's matrix product alone": lambda: query @ neighbors.T,
        "NONA, l2, 10 nearest rows": lambda: bank.evaluate(nearest, Embedded(query)).mean(),
        "NONA, l2": lambda: bank.evaluate(plain, Embedded(query)).mean(),
        "NONA, l2 + S2 pointwise": lambda: bank.evaluate(stepped, Embedded(query)).mean(),
        "NONA, l2 + S2, 10 heaviest rows": lambda: bank.evaluate(
            stepped, Embedded(query)
        ).heaviest(10),
        "materialised, l2 + S2 pointwise": lambda: materialized(
            stepped, query, neighbors, targets
        ),
    }
    return in_turns(rivals, repeats)


def make_rows(n, seed):
    """Make n rows and targets."""
    X = np.random.default_rng(seed).standard_normal((n, N_DIMENSIONS))
    return X, X[:, 0] + np.sin(2 * X[:, 1])


def make_knn():
    """Build scikit-learn's k nearest neighbours, which compares each query with all rows."""
    return KNeighborsRegressor(K, algorithm="brute", n_jobs=-1)


def fit_regressors(n_bank):
    """Fit the default, two networks and a trend, one network with it, and all rows, by name."""
    X, y = make_rows(n_bank, 0)
    models = {
        DEFAULT: fit_quickly(X, y),
        ONE_NETWORK: fit_quickly(X, y, n_estimators=1),
        "NONARegressor, all rows": fit_quickly(X, y, n_neighbors=None),
    }
    chosen = ", ".join(str(model.n_neighbors_) for model in models.values())
    print(f"\nn_neighbors_: {chosen}")
    return models


@ignore_warnings(category=ConvergenceWarning)  # few epochs are for the clock
def fit_quickly(X, y, **params):
    """Fit a regressor whose bank holds all rows; few of them train it."""
    model = NONARegressor(max_iter=N_EPOCHS, random_state=0, **params)
    model.fit(X[:N_TRAIN], y[:N_TRAIN])
    if len(X) > N_TRAIN:
        model.add_neighbors(X[N_TRAIN:], y[N_TRAIN:])
    return model


def measure_many(n_bank, n_queries, repeats):
    """Seconds of all queries at once, by name."""
    X, y = make_rows(n_bank, 0)
    queries, _ = make_rows(n_queries, 1)
    knn = make_knn().fit(X, y)
    single = make_knn().fit(X.astype(np.float32), y)
    rivals = {
        "k-NN, scikit-learn brute": partial(knn.predict, queries),
        "the same in float32": partial(single.predict, queries.astype(np.float32)),
        **{
            name: partial(model.predict, queries) for name, model in fit_regressors(n_bank).items()
        },
    }
    return in_turns(rivals, repeats)


def measure_one(n_bank, repeats):
    """Wall-clock seconds of a query by itself, the median of many, by name."""
    X, y = make_rows(n_bank, 0)
    [query], _ = make_rows(1, 1)
    models = {TREES: HistGradientBoostingRegressor().fit(X, y)}
    models |= fit_regressors(n_bank)
    rivals = {name: partial(model.predict, query[None]) for name, model in models.items()}
    return time_in_turns(rivals, 40 * repeats)


def measure_quantiles(n_bank, n_queries, repeats):
    """Seconds of the mean and of quantiles, by name."""
    model = fit_quickly(*make_rows(n_bank, 0))
    queries, _ = make_rows(n_queries, 1)
    rivals = {
        "predict": partial(model.predict, queries),
        "predict_quantiles": partial(model.predict_quantiles, queries),
    }
    return in_turns(rivals, repeats)


def measure_memory(n_bank, n_queries):
    """Print what the peak grows by when so many queries are predicted, in MB."""
    model = fit_quickly(*make_rows(n_bank, 0))
    queries, _ = make_rows(n_queries, 1)
    model.predict(queries[:1])  # libraries load on first use
    before = peak()
    model.predict(queries)
    print(peak() - before)


def measure_weightings(n_bank, n_queries, repeats):
    """Seconds of a prediction by each weighting of all rows, after few epochs of training."""
    X, y = make_rows(n_bank, 0)
    queries, _ = make_rows(n_queries, 1)
    models = {
        name: fit_quickly(X, y, weighting=name, n_neighbors=None, n_estimators=1)
        for name in WEIGHTINGS
        if name != "uniform"  # weighs nothing without a step
    }
    rivals = {name: partial(model.predict, queries) for name, model in models.items()}
    return in_turns(rivals, repeats)


def show(title, seconds, reference):
    """Print seconds, and multiples of the reference's; returns these, by name."""
    relative = {name: value / seconds[reference] for name, value in seconds.items()}
    print(f"\n{title}\n{'':34s}{'ms':>10s}{'×':>8s} {reference}")
    for name, value in sorted(seconds.items(), key=lambda item: item[1]):
        print(f"{name:34s}{1000 * value:10.1f}{relative[name]:8.2f}", flush=True)
    return relative


def show_memory(n_bank, numbers):
    """Print what memory grows by with some numbers of queries; returns the last one's, in MB."""
    print(f"\nPeak above the queries, {n_bank:,} rows")
    for n_queries in numbers:
        grown = measure_apart("predict", n_bank, n_queries)
        predictions = 8 * n_queries / 2**20
        print(
            f"{n_queries:10,} queries{grown:8.0f} MB, the predictions {predictions:.1f} MB",
            flush=True,
        )
    return grown - predictions


def add_arguments(parser):
    parser.add_argument("--measure", nargs=2, type=int, help=argparse.SUPPRESS)


def run(args):
    """Time the rivals, print the ratios, check the claims."""
    if args.measure:
        measure_memory(*args.measure)
        return
    n_bank, n_queries, repeats = (200, 20, 1) if args.quick else (N_BANK, N_QUERIES, 5)
    n_small, n_many = (100, 100) if args.quick else (N_SMALL, N_MANY)
    n_large, n_quantiles = (200, 20) if args.quick else (N_LARGE, N_QUANTILES)
    size = f"{n_bank:,} rows × {N_DIMENSIONS}"
    print(f"Processor time on {torch.get_num_threads()} threads")
    knn = "k-NN, scikit-learn brute"
    parts = measure(n_bank, n_queries, repeats)
    of_parts = show(f"Parts: {size}, {n_queries:,} queries", parts, knn)
    ours = of_parts["NONA, l2 + S2 pointwise"]
    times_faster = of_parts["materialised, l2 + S2 pointwise"] / ours
    print(f"NONA is {times_faster:.1f} times as fast as the materialised formula.")
    of_many = show(f"{size}, {n_queries:,} queries", measure_many(n_bank, n_queries, repeats), knn)
    of_one = {
        n: show(f"{n:,} rows × {N_DIMENSIONS}, one query", measure_one(n, repeats), TREES)
        for n in (n_small, n_bank)
    }
    of_quantiles = show(
        f"{n_large:,} rows × {N_DIMENSIONS}, {n_quantiles:,} queries",
        measure_quantiles(n_large, n_quantiles, repeats),
        "predict",
    )
    weightings = measure_weightings(n_bank // 5, n_queries, repeats)
    of_weighting = show(f"{n_bank // 5:,} rows, {n_queries:,} queries", weightings, "softmax")
    grown = show_memory(1000, (n_many,) if args.quick else (n_many // 10, n_many))
    if not args.quick:
        check(times_faster, ours, of_many, of_one, of_quantiles, of_weighting, grown)


def check(times_faster, parts, many, one, quantiles, weightings, grown):
    """Assert what is reached; docs/measurements.md lists what was tried for the rest."""
    # We aim at 8 times, and at 1.5 times scikit-learn's time. New memory for the materialised
    # formula costs much on one machine and little on another: from 3.4 to 9.5 times were seen.
    assert times_faster >= 3
    assert parts <= 5  # 3.4 in 0.2.0, which merged sums tile by tile
    assert many[DEFAULT] <= 3
    assert many[ONE_NETWORK] <= 1.3
    small, large = one.values()
    assert small[DEFAULT] <= 3.5  # we aim at 2.5
    assert large[DEFAULT] <= 6  # of two networks' rows, 20 MB have to be read
    assert quantiles["predict_quantiles"] <= 3
    # We aim at 1.3 for all that look at one neighbour at a time.
    assert weightings["gaussian"] <= 1.3
    assert weightings["sigmoid"] <= 1.6  # 1.3, when the softmax took 1.5 times as long
    assert max(weightings["softplus"], weightings["softpick"]) <= 2.5
    assert grown <= 150  # MB, however many the queries
