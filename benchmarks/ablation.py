"""What each part of NONARegressor's default recipe is worth: one change at a time, real data.

One network, so that the average of several does not hide the change, on the nine development
sets, first split. Results are kept in ``benchmarks/results/ablation.csv``: a run goes on where the
last one stopped.
"""

import itertools

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import NONARegressor, SoftStep
from nona_sklearn.weighting import Softmax

from . import real_data
from .internals import (
    Deeper,
    Dropped,
    OfEmbedding,
    OwnHidden,
    Standardized,
    WithBatchNorm,
    WithFallingEpochs,
    WithMuon,
    WithoutAverage,
    WithoutSkipConnection,
)
from .ledger import complete
from .quick import shorten
from .scores import score

SEEDS = range(1)
REFERENCES = ["default", "default, second time", "default, third time"]
OWN_CLASSES = [
    "average=False",
    "skip_connection=False",
    "batch_norm=True",
    "g with a hidden layer of its own",
    "g of the embedding",
    "g with two hidden layers",
    "dropout .1",
    "Muon",
    "average=False, falling epochs at the end",
    "StandardScaler",
    "no validation rows in the bank",
    "linear trend plus neighbours",
]


class TrainingBank(NONARegressor):
    """Validation rows stay out of the bank."""

    def fit(self, X, y):
        super().fit(X, y)
        [held_out] = self.validation_indices_
        return self.remove_neighbors(ids=held_out)


class Residual(BaseEstimator):
    """Neighbours of what a linear trend leaves."""

    def __init__(self, regressor):
        self.regressor = regressor

    def fit(self, X, y):
        self.trend_ = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 3, 11))).fit(X, y)
        self.regressor.fit(X, y - self.trend_.predict(X))
        return self

    def predict(self, X):
        return self.trend_.predict(X) + self.regressor.predict(X)


def make_variants(seed):
    """Name and build the default with one network, and its variants."""
    one = {"n_estimators": 1, "random_state": seed}
    changes = {
        REFERENCES[0]: {},
        REFERENCES[1]: {"random_state": seed + 100},  # how much is chance?
        REFERENCES[2]: {"random_state": seed + 200},
        "adjust=False": {"adjust": False},
        "numerical_embedding=None": {"numerical_embedding": None},
        "hidden_layer_sizes=(256,)": {"hidden_layer_sizes": (256,)},
        "embedding_dim=128": {"embedding_dim": 128},
        "learn_temperature=False": {"weighting": Softmax(learn_temperature=False)},
        "softstep='s1'": {"softstep": "s1"},
        "softstep='s1', pointwise": {"softstep": SoftStep("s1", "pointwise")},
        "softstep='s2'": {"softstep": "s2"},
        "pool_size=512": {"training__pool_size": 512},
        "pool_size=1024": {"training__pool_size": 1024},
        "neighbor_pool='memory'": {"training__neighbor_pool": "memory"},
        "neighbor_pool='batch'": {"training__neighbor_pool": "batch"},
        "batch_size=64": {"training__batch_size": 64},
        "batch_size=1024": {"training__batch_size": 1024},
        "learning_rate_init=0.01": {"training__learning_rate_init": 0.01},
        "learning_rate_init=0.04": {"training__learning_rate_init": 0.04},
        "weight_decay=0.1": {"training__weight_decay": 0.1},
        "n_iter_no_change=6": {"training__n_iter_no_change": 6},
        "n_iter_no_change=20": {"training__n_iter_no_change": 20},
        "n_estimators=3": {"n_estimators": 3},
        "n_estimators=6": {"n_estimators": 6},
    }
    variants = {
        name: NONARegressor(**one).set_params(**change) for name, change in changes.items()
    }
    variants |= {
        "average=False": WithoutAverage(**one),
        "skip_connection=False": WithoutSkipConnection(**one),
        "batch_norm=True": WithBatchNorm(**one),
        "g with a hidden layer of its own": OwnHidden(**one),
        "g of the embedding": OfEmbedding(**one),
        "g with two hidden layers": Deeper(**one),
        "dropout .1": Dropped(**one),
        "Muon": WithMuon(**one),
        "average=False, falling epochs at the end": WithFallingEpochs(**one),
        "StandardScaler": Standardized(**one),
        "no validation rows in the bank": TrainingBank(**one),
        "linear trend plus neighbours": Residual(NONARegressor(**one)),
    }
    return variants


def add_arguments(parser):
    parser.add_argument("--variants", nargs="+", default=list(make_variants(0)))
    parser.add_argument("--sets", nargs="+", default=list(real_data.DEVELOPMENT))


def measure(variant, name, seed):
    """Score one variant on one split."""
    return score(make_variants(seed)[variant], *real_data.encoded_split(name, seed))


def measure_quickly(variant, name, seed):
    """The same on few rows and epochs."""
    data = real_data.encoded_split(name, seed, max_train=100)
    return score(shorten(make_variants(seed)[variant]), *data)


def report(results):
    """Print and return nRMSE and time relative to the default's, the mean of three of its fits."""
    columns = [name for name in real_data.DEVELOPMENT if name in set(results.set)]
    ratios = {}
    for value in ("nrmse", "seconds"):
        logs = results.assign(log=np.log(results[value]))
        table = logs.pivot_table(index="variant", columns="set", values="log")[columns]
        ratios[value] = table - table.loc[REFERENCES].mean()
    table = np.exp(ratios["nrmse"])
    table["geo. mean"] = np.exp(ratios["nrmse"].mean(axis=1, skipna=False))
    table["time"] = np.exp(ratios["seconds"].mean(axis=1, skipna=False))
    print("\nnRMSE and time relative to the default, one network each")
    print(table.sort_values("geo. mean").round(3).to_string())
    return table


def run(args):
    """Run what is missing, print the table, check that no variant is clearly better."""
    torch.set_num_threads(1)
    quick = [*REFERENCES, *OWN_CLASSES], ["diabetes"]
    variants, sets = quick if args.quick else (args.variants, args.sets)
    results = complete(
        args.results / "ablation.csv",
        ["variant", "set", "seed"],
        itertools.product(variants, sets, SEEDS),
        measure_quickly if args.quick else measure,
    )
    table = report(results)
    if not args.quick:
        assert (table["geo. mean"].dropna() > 0.95).all(), "a variant is clearly better"
