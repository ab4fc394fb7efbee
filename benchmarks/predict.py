"""Predictions of NONA beside the materialised formula and scikit-learn's k nearest neighbours.

A bank of 100,000 rows × 25 dimensions, 2,000 queries, normally distributed, in float32. The
materialised formula is the papers', written as one reads it: queries × bank in memory, one
operation after another. Then predictions of a default regressor, one network, by each weighting
beside the softmax.
"""

from functools import partial

import numpy as np
import torch
from sklearn.neighbors import KNeighborsRegressor

from nona_sklearn import NONAHead, NONARegressor, SoftStep
from nona_sklearn.weighting import WEIGHTINGS

from .internals import make_bank
from .timing import time_in_turns

N_BANK, N_QUERIES, N_DIMENSIONS = 100_000, 2_000, 25


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
    plain = NONAHead().eval()
    bank = make_bank(neighbors, targets.double())
    knn = KNeighborsRegressor(10, algorithm="brute", n_jobs=-1).fit(neighbors.numpy(), targets)
    expected = materialized(stepped, query, neighbors, targets)
    np.testing.assert_allclose(bank.ask(stepped, query).mean(), expected, rtol=0, atol=1e-5)
    rivals = {
        "k-NN, scikit-learn brute": lambda: knn.predict(query.numpy()),
        "k-NN's matrix product alone": lambda: query @ neighbors.T,
        "NONA, l2": lambda: bank.ask(plain, query).mean(),
        "NONA, l2 + S2 pointwise": lambda: bank.ask(stepped, query).mean(),
        "NONA, l2 + S2, 10 heaviest rows": lambda: bank.ask(stepped, query).heaviest(10),
        "materialised, l2 + S2 pointwise": lambda: materialized(
            stepped, query, neighbors, targets
        ),
    }
    return time_in_turns(rivals, repeats)


def measure_weightings(n_bank, n_queries, repeats):
    """Seconds of a prediction by each weighting, after one epoch of training."""
    rng = np.random.default_rng(0)
    X, queries = (rng.standard_normal((n, N_DIMENSIONS)) for n in (n_bank, n_queries))
    y = X[:, 0] + np.sin(2 * X[:, 1])
    short = {"n_estimators": 1, "max_iter": 1, "random_state": 0}
    models = {
        name: NONARegressor(weighting=name, **short).fit(X, y)
        for name in WEIGHTINGS
        if name != "uniform"  # weighs nothing without a step
    }
    rivals = {name: partial(model.predict, queries) for name, model in models.items()}
    return time_in_turns(rivals, repeats)


def run(args):
    """Time the rivals, print the ratios, check the claims."""
    n_bank, n_queries, repeats = (1000, 20, 1) if args.quick else (N_BANK, N_QUERIES, 5)
    seconds = measure(n_bank, n_queries, repeats)
    reference = seconds["k-NN, scikit-learn brute"]
    threads = torch.get_num_threads()
    print(f"{n_bank:,} rows × {N_DIMENSIONS}, {n_queries:,} queries, {threads} threads")
    print(f"{'':34s}{'seconds':>8s}{'× k-NN':>8s}")
    for name, value in sorted(seconds.items(), key=lambda item: item[1]):
        print(f"{name:34s}{value:8.3f}{value / reference:8.2f}")
    ours = seconds["NONA, l2 + S2 pointwise"]
    times_faster = seconds["materialised, l2 + S2 pointwise"] / ours
    print(f"NONA is {times_faster:.1f} times as fast as the materialised formula.")
    of_weightings = measure_weightings(n_bank // 5, n_queries, repeats)
    relative = {name: value / of_weightings["softmax"] for name, value in of_weightings.items()}
    print(f"\n{'weighting':34s}{'seconds':>8s}{'× softmax':>11s}")
    for name, value in of_weightings.items():
        print(f"{name:34s}{value:8.3f}{relative[name]:11.2f}")
    # We aim at 8 and 1.5: docs/performance.md says what was tried for the rest.
    if not args.quick:
        assert times_faster >= 5
        assert ours <= 3 * reference
        # We aim at 1.3 for all that look at one neighbour at a time.
        assert max(relative["gaussian"], relative["sigmoid"]) <= 1.3
        assert max(relative["softplus"], relative["softpick"]) <= 2.5
