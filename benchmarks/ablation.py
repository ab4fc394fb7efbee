"""What each part of NONARegressor's default recipe is worth: one change at a time, real data.

    python benchmarks/ablation.py [--variants NAME ...]

One network, so that the average of several does not hide the change, on the nine development
sets, first split. Results are kept in ``benchmarks/results/ablation.csv``: a run goes on where the
last one stopped.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import real_data
import torch
from accuracy import score, split
from ledger import complete
from sklearn.base import BaseEstimator
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from nona_sklearn import NONARegressor, PeriodicEmbedding
from nona_sklearn._bank import NeighborBank

RESULTS = Path(__file__).parent / "results" / "ablation.csv"
SEEDS = range(1)
REFERENCES = ["default", "default, second time", "default, third time"]


class Standardized(NONARegressor):
    """Means and deviations instead of quartiles and smooth clipping."""

    def _make_scaler(self):
        return StandardScaler()


class WideForAll(NONARegressor):
    """Binary columns are widened like the others."""

    def _make_embedding(self, X):
        periodic = PeriodicEmbedding(X.shape[1])
        mlp = self._make_mlp(periodic.out_features, skip_connection=True)
        return nn.Sequential(periodic, mlp)


class StartedOpen(NONARegressor):
    """SoftStep begins by keeping nearly all neighbours."""

    def _make_network(self, X):
        network = super()._make_network(X)
        network.head.step.start_at(0.01)
        return network


class TrainingBank(NONARegressor):
    """Validation rows stay out of the bank."""

    def fit(self, X, y):
        super().fit(X, y)
        [(rows, _)] = super()._split(len(X), 1, np.random.RandomState(self.random_state))
        self.bank_ = NeighborBank(self.bank_.embeddings[rows], self.bank_.targets[rows])
        return self


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
        "numerical_embedding=None": {"numerical_embedding": None},
        "hidden_layer_sizes=()": {"hidden_layer_sizes": (), "skip_connection": False},
        "hidden_layer_sizes=(256,)": {"hidden_layer_sizes": (256,)},
        "skip_connection=False": {"skip_connection": False},
        "batch_norm=True": {"batch_norm": True},
        "embedding_dim=128": {"embedding_dim": 128},
        "learn_temperature=False": {"learn_temperature": False},
        "softstep='s1'": {"softstep": "s1"},
        "softstep='s1', pointwise": {"softstep": "s1", "softstep_params": "pointwise"},
        "softstep='s2'": {"softstep": "s2"},
        "pool_size=512": {"pool_size": 512},
        "neighbor_pool='memory'": {"neighbor_pool": "memory"},
        "neighbor_pool='batch'": {"neighbor_pool": "batch"},
        "batch_size=256": {"batch_size": 256},
        "batch_size=512": {"batch_size": 512},
        "learning_rate_init=0.003": {"learning_rate_init": 0.003},
        "weight_decay=0.01": {"weight_decay": 0.01},
        "n_iter_no_change=10": {"n_iter_no_change": 10},
        "n_estimators=3": {"n_estimators": 3},
    }
    variants = {name: NONARegressor(**one | change) for name, change in changes.items()}
    variants |= {
        "StandardScaler": Standardized(**one),
        "binary columns widened": WideForAll(**one),
        "softstep='s1', started open": StartedOpen(softstep="s1", **one),
        "no validation rows in the bank": TrainingBank(**one),
        "linear trend plus neighbours": Residual(NONARegressor(**one)),
    }
    return variants


def main():
    """Run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", nargs="+", default=list(make_variants(0)))
    parser.add_argument("--sets", nargs="+", default=list(real_data.DEVELOPMENT))
    args = parser.parse_args()
    torch.set_num_threads(1)
    wanted = itertools.product(args.variants, args.sets, SEEDS)
    results = complete(
        RESULTS,
        ["variant", "set", "seed"],
        wanted,
        lambda variant, name, seed: score(make_variants(seed)[variant], *split(name, seed)),
    )
    report(results)


def report(results):
    """Print nRMSE and time relative to the default's, the mean of three of its fits."""
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
    assert (table["geo. mean"].dropna() > 0.95).all(), "a variant is clearly better"


if __name__ == "__main__":
    main()
