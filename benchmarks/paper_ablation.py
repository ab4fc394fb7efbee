"""The paper's Appendix B on real tables: similarity, step, batch size, embedding dimension.

Every combination around the papers' recipe, on three small development sets, first split. Prints
each factor's mean effect and where the papers' own choice stands. Results are kept in
``benchmarks/results/paper_ablation.csv``: a run goes on where the last one stopped.
"""

import itertools

import numpy as np
import torch

from nona_sklearn import SoftStep, TrainingOptions
from nona_sklearn.weighting import Softmax

from . import real_data
from .internals import LikeThePapers
from .ledger import complete
from .quick import shorten
from .scores import score

SETS = ("diabetes", "concrete", "energy")
FACTORS = {
    "similarity": ("l2", "l1", "dot", "cosine"),
    "step": ("none", "s1", "s2"),
    "batch_size": (32, 128),
    "embedding_dim": (5, 25, 100),
}
CHOICE = ("l2", "s2", 32, 25)  # the papers'
QUICK = {
    "similarity": ("l2", "cosine"),
    "step": ("none", "s2"),
    "batch_size": (32,),
    "embedding_dim": (25,),
}


def make_model(similarity, step, batch_size, embedding_dim, seed):
    """Build the papers' recipe (docs/appendix.md) with the four factors replaced."""
    return LikeThePapers(
        n_estimators=1,
        hidden_layer_sizes=(200,),
        embedding_dim=embedding_dim,
        numerical_embedding=None,
        similarity=similarity,
        softstep=None if step == "none" else SoftStep(step, "pointwise"),
        weighting=Softmax(learn_temperature=False),
        n_neighbors=None,
        training=TrainingOptions(
            neighbor_pool="batch",
            batch_size=batch_size,
            learning_rate_init=0.001,
            n_iter_no_change=10,
        ),
        random_state=seed,
    )


def measure(set_name, seed, *levels):
    """Score one combination on one split."""
    return score(make_model(*levels, seed), *real_data.encoded_split(set_name, seed))


def measure_quickly(set_name, seed, *levels):
    """The same on few rows and epochs."""
    data = real_data.encoded_split(set_name, seed, max_train=100)
    return score(shorten(make_model(*levels, seed)), *data)


def report(results, factors):
    """Print each factor's effect and the best combinations; returns the ranked combinations."""
    logs = results.assign(nrmse=np.log(results.nrmse))
    logs.nrmse -= logs.groupby(["set", "seed"]).nrmse.transform("mean")
    for factor in factors:
        effect = np.exp(logs.groupby(factor).nrmse.mean()).sort_values()
        print(f"\nnRMSE by {factor}, relative to the mean of all combinations")
        print(effect.round(3).to_string())
    ranked = np.exp(logs.groupby(list(factors)).nrmse.mean()).sort_values()
    place = list(ranked.index).index(CHOICE) + 1
    print("\nBest combinations")
    print(ranked.head(5).round(3).to_string())
    print(f"The papers' choice, {CHOICE}: {ranked[CHOICE]:.3f}, place {place} of {len(ranked)}")
    return ranked


def run(args):
    """Run what is missing, print the effects."""
    torch.set_num_threads(1)
    sets, factors = (["diabetes"], QUICK) if args.quick else (SETS, FACTORS)
    results = complete(
        args.results / "paper_ablation.csv",
        ["set", "seed", *factors],
        itertools.product(sets, range(1), *factors.values()),
        measure_quickly if args.quick else measure,
    )
    ranked = report(results, factors)
    assert len(ranked) == np.prod([len(levels) for levels in factors.values()])
