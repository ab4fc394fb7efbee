"""How steady reasons are: two fits that differ in something that should not matter.

Two fits differ in their seed, in their rows (two random 90 % of them), or in their initial weights
(by a millionth, as another processor's would after a few steps). Results are kept in
``benchmarks/results/stability.csv``: a run goes on where the last one stopped, so delete the rows
of whatever you changed, or the file, to start from scratch.
"""

from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.base import is_classifier
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import ShuffleSplit
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
)

from . import real_data
from .internals import perturbed_start
from .ledger import complete
from .rivals import make_encoder

MAX_TRAIN, MAX_TEST = 1500, 100
HEAVIEST = 10
CHANGES = ["seed", "rows", "start"]
NUMBERS = ["concrete", "california", "abalone"]
RAW = ["ames", "wage"]
CLASSES = ["breast cancer", "credit", "churn", "juice", "votes"]
REGRESSORS = {
    "NONARegressor": lambda seed: NONARegressor(random_state=seed),
    "SoftStepKNeighborsRegressor": lambda seed: SoftStepKNeighborsRegressor(random_state=seed),
}
CLASSIFIERS = {
    "NONAClassifier": lambda seed: NONAClassifier(random_state=seed),
    "SoftStepKNeighborsClassifier": lambda seed: SoftStepKNeighborsClassifier(random_state=seed),
}


class Peer:
    """A model behind the usual preparation of a table, and the weights of its rows.

    Parameters
    ----------
    model : estimator
        k-NN, or a forest: rows count as they share leaves with a query (proximities).
    """

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.prepare = make_pipeline(make_encoder(), StandardScaler()).fit(X)
        self.rows = self.prepare.transform(X)
        self.model.fit(self.rows, y)
        return self

    def predict(self, X):
        return predict(self.model, self.prepare.transform(X))

    def neighbor_weights(self, X):
        X = self.prepare.transform(X)
        if hasattr(self.model, "kneighbors_graph"):
            return self.model.kneighbors_graph(X) / self.model.n_neighbors
        queries, rows = self.model.apply(X), self.model.apply(self.rows)
        weights = np.zeros((len(X), len(rows)))
        for of_queries, of_rows in zip(queries.T, rows.T, strict=True):
            together = of_queries[:, None] == of_rows
            weights += together / together.sum(axis=1, keepdims=True)
        return weights / queries.shape[1]


PEERS_OF_NUMBERS = {
    "k-NN": lambda seed: Peer(KNeighborsRegressor(HEAVIEST)),
    "random forest": lambda seed: Peer(RandomForestRegressor(random_state=seed)),
}
PEERS_OF_CLASSES = {
    "k-NN": lambda seed: Peer(KNeighborsClassifier(HEAVIEST)),
    "random forest": lambda seed: Peer(RandomForestClassifier(random_state=seed)),
}
SETS = {
    **dict.fromkeys(NUMBERS, (real_data.DEVELOPMENT, REGRESSORS | PEERS_OF_NUMBERS)),
    **dict.fromkeys(RAW, (real_data.RAW, REGRESSORS | PEERS_OF_NUMBERS)),
    **dict.fromkeys(CLASSES, (real_data.CLASSES, CLASSIFIERS | PEERS_OF_CLASSES)),
}


def predict(model, X):
    """Numbers (q, 1), or probabilities (q, n_classes)."""
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)[:, None]


def fit(make, X, y, rows, seed=0):
    """Fit to some rows; returns the model and the rows."""
    return make(seed).fit(X.iloc[rows].reset_index(drop=True), y[rows]), rows


def pair_of_fits(make, change, X, y):
    """Two fits that differ in one thing: models, and the rows of each."""
    everything = np.arange(len(y))
    if change == "seed":
        return [fit(make, X, y, everything, seed) for seed in (0, 1)]
    if change == "rows":
        parts = ShuffleSplit(2, train_size=0.9, random_state=0).split(X)
        return [fit(make, X, y, np.sort(rows)) for rows, _ in parts]
    first = fit(make, X, y, everything)
    with perturbed_start():
        return [first, fit(make, X, y, everything)]


def weights_of(model, rows, X, n_rows):
    """Weights of all rows for queries, (q, n_rows); of rows that a fit did not have, 0."""
    found = model.neighbor_weights(X)
    weights = np.zeros((len(X), n_rows))
    weights[:, rows] = found.toarray() if hasattr(found, "toarray") else found
    return weights


def amounts_of(model, rows, X, features):
    """What each column adds to a prediction, (q, n_columns), and how often its sign changes.

    The latter is the share of the queries and numeric columns of whose differences of one
    direction some add, and others take away.
    """
    features = features.iloc[rows].reset_index(drop=True)
    table = model.attribute(X, features, n_neighbors=HEAVIEST)
    names = list(features)
    sums = table[names].mul(table["weight"], axis=0).groupby(table["query"]).sum()
    numbers = list(features.select_dtypes("number"))
    neighbor = features.loc[table["neighbor"], numbers]
    query = X.loc[table["query"], numbers]
    differences = np.sign(query.to_numpy(float) - neighbor.to_numpy(float))
    prices = table[numbers].to_numpy() * differences
    prices = pd.DataFrame(np.where(differences != 0, prices, np.nan)).groupby(table["query"])
    low, high = prices.min().to_numpy(), prices.max().to_numpy()
    both = np.minimum(-low, high) > 0.05 * np.maximum(-low, high)
    known = np.isfinite(low) & (np.maximum(-low, high) > 0)
    return sums.to_numpy(), both[known].mean()


def measure(set_name, model_name, change):
    """Compare two fits."""
    sets, models = SETS[set_name]
    limits = {"max_train": MAX_TRAIN, "max_test": MAX_TEST}
    X, X_test, y, y_test = real_data.split(set_name, 0, sets=sets, **limits)
    fits = pair_of_fits(models[model_name], change, X, y)
    return compare(fits, X, y, X_test, y_test)


def compare(fits, X, y, X_test, y_test):
    """Compare predictions, the heaviest rows and the amounts of two fits."""
    predictions = [
        model.predict(X_test) if isinstance(model, Peer) else predict(model, X_test)
        for model, _ in fits
    ]
    difference = np.square(predictions[0] - predictions[1]).sum(axis=1).mean() ** 0.5
    truth = y_test[:, None]
    if real_data.has_classes(y):
        truth = y_test[:, None] == np.unique(y)
    error = np.square(predictions[0] - truth).sum(axis=1).mean() ** 0.5
    weights = [weights_of(*each, X_test, len(y)) for each in fits]
    heaviest = [np.argsort(-each, axis=1, kind="stable")[:, :HEAVIEST] for each in weights]
    common = np.array([len(np.intersect1d(*pair)) for pair in zip(*heaviest, strict=True)])
    found = {
        "difference": difference / error,
        "heaviest": np.mean(common / (2 * HEAVIEST - common)),
        "shared_weight": np.minimum(*weights).sum(axis=1).mean(),
        "first_three": np.mean((heaviest[0][:, :3] == heaviest[1][:, :3]).all(axis=1)),
    }
    if hasattr(fits[0][0], "attribute") and not real_data.has_classes(y):
        amounts, opposite = zip(*(amounts_of(*each, X_test, X) for each in fits), strict=True)
        pairs = list(zip(*amounts, strict=True))
        found["amounts"] = np.nanmean([spearmanr(*pair).statistic for pair in pairs])
        same = (amounts[0] * amounts[1] > 0) * np.abs(amounts[0])
        found["same_sign"] = same.sum() / np.abs(amounts[0]).sum()
        found["opposite"] = np.mean(opposite)
    return found


COLUMNS = {
    "difference": "difference of predictions / error",
    "heaviest": "ten heaviest rows, overlap",
    "shared_weight": "shared weight",
    "first_three": "same first three",
    "amounts": "amounts, rank correlation",
    "same_sign": "amounts of the same sign",
    "opposite": "opposite signs in a report",
}


def report(results):
    """Print a table for each change, medians over the sets; returns the medians."""
    columns = [name for name in COLUMNS if name in results]  # classes have no amounts
    medians = results.groupby(["change", "model"])[columns].median()
    for change in CHANGES:
        print(f"\nFits that differ in: {change}. Medians over the tables")
        print(medians.loc[change].rename(columns=COLUMNS).round(3).to_string())
    print("\nTen heaviest rows, overlap")
    heaviest = results.pivot_table(index=["change", "model"], columns="set", values="heaviest")
    print(heaviest[[name for name in SETS if name in heaviest]].round(2).to_string())
    return medians


def run(args):
    """Run what is missing, print the tables, check the claims."""
    sets = ["breast cancer"] if args.quick else SETS
    cases = [
        (set_name, model, change)
        for set_name in sets
        for model, change in product(SETS[set_name][1], CHANGES)
    ]
    results = complete(args.results / "stability.csv", ["set", "model", "change"], cases, measure)
    medians = report(results)
    if args.quick:
        return
    for name in REGRESSORS | CLASSIFIERS:
        of_seeds, of_rows, of_starts = (medians.loc[(change, name)] for change in CHANGES)
        assert of_seeds["heaviest"] >= 0.8
        assert of_seeds["shared_weight"] >= 0.8
        assert of_rows["heaviest"] >= 0.65
        assert of_starts["first_three"] >= 0.95
        assert name in CLASSIFIERS or of_seeds["amounts"] >= 0.95
