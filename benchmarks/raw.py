"""Regressors on tables as people have them, with categories, gaps and dates, at their defaults.

Needs pandas and skrub; CatBoost takes part where it is installed. Results are kept in
``benchmarks/results/raw.csv``: a run goes on where the last one stopped, so delete the rows of
whatever you changed, or the file, to start from scratch. The seconds hold the preparation of the
table; all run on one thread if ``OMP_NUM_THREADS=1``.
"""

from importlib.util import find_spec

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import NONARegressor, SoftStepKNeighborsRegressor, TableEncoder

from . import real_data
from .ledger import complete_splits
from .quick import shorten
from .rivals import boosted, catboosted, make_encoder, tuned_neighbors
from .scores import (
    ALL_ROWS,
    compare_with_all_rows,
    is_complete,
    print_tables,
    print_weights,
    relative_error,
    score,
)
from .timing import timed

BASELINE = "HistGradientBoosting"
PREPARED = "NONA, ColumnTransformer"


# -- models -----------------------------------------------------------------------------------


def make_models(seed, X):
    """Name and build the competitors for a table; all take it as it is."""
    knn = tuned_neighbors(KNeighborsRegressor())
    models = {
        BASELINE: boosted(
            HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=seed)
        ),
        "random forest": make_pipeline(make_encoder(), RandomForestRegressor(random_state=seed)),
        "k-NN, tuned": make_pipeline(make_encoder(), StandardScaler(), knn),
    }
    if find_spec("catboost"):
        from catboost import CatBoostRegressor

        models["CatBoost"] = catboosted(CatBoostRegressor, X, seed)
    if find_spec("skrub"):
        from skrub import tabular_pipeline

        models["skrub"] = tabular_pipeline("regressor")
    return models | {
        PREPARED: make_pipeline(make_encoder(), NONARegressor(random_state=seed)),
        "SoftStep k-NN": SoftStepKNeighborsRegressor(random_state=seed),
        "NONA": NONARegressor(random_state=seed),
        ALL_ROWS: NONARegressor(n_neighbors=None, random_state=seed),
    }


def made_up_table(n_rows, n_repeats=1):
    """Make a table: two columns of numbers, two of words, one of dates, `n_repeats` times."""
    rng = np.random.default_rng(0)
    columns, y = {}, rng.normal(size=n_rows)
    for i in range(n_repeats):
        number, holey = rng.normal(size=(2, n_rows))
        level, word = rng.integers([[4], [300]], size=(2, n_rows))
        day = rng.integers(3650, size=n_rows)
        y += number + np.where(holey > 1, 1, holey) + (level == 2) + word % 3 + np.sin(day / 58)
        columns |= {
            f"number {i}": number,
            f"with gaps {i}": np.where(holey > 1, np.nan, holey),
            f"category {i}": pd.Categorical.from_codes(level, list("abcd")),
            f"word {i}": np.where(word < 30, None, np.char.add("w", word.astype(str))),
            f"date {i}": pd.Timestamp("2015-01-01") + pd.to_timedelta(day, unit="D"),
        }
    return pd.DataFrame(columns), y


# -- measuring and reporting ------------------------------------------------------------------


def measure(set_name, model_name, seed):
    """Score one competitor on one split."""
    X, *rest = real_data.split(set_name, seed, sets=real_data.RAW)
    return score(make_models(seed, X)[model_name], X, *rest)


def measure_quickly(set_name, model_name, seed):
    """The same on few rows and epochs."""
    sets = {set_name: lambda: made_up_table(150)}
    X, *rest = real_data.split(set_name, seed, sets=sets)
    return score(shorten(make_models(seed, X)[model_name]), X, *rest)


def report(results):
    """Print the tables; returns the mean normalised RMSE, models by sets."""
    scores = print_tables(results, results.set.unique(), BASELINE)
    print_weights(results, results.set.unique())
    return scores


def preparation_share():
    """Seconds that preparing a table of 100,000 x 30 takes, over those of a fit on it."""
    X, y = made_up_table(100_000, n_repeats=6)
    preparing = timed(lambda: TableEncoder().fit_transform(X))
    return preparing / timed(lambda: NONARegressor(random_state=0).fit(X, y))


def check(results, scores):
    """Assert what the documentation states: ahead of others, and as good as prepared columns."""
    nona = scores.loc["NONA"]
    relative = relative_error(scores.dropna(), BASELINE)
    prepared = nona / scores.loc[PREPARED]
    print(f"NONA / {PREPARED}, worst set: {prepared.max():.3f} ({prepared.idxmax()})")
    assert relative["NONA"] <= 0.96  # we aim at .94
    if "CatBoost" in relative:
        assert relative["NONA"] <= 0.995 * relative["CatBoost"]
    assert np.exp(np.log(prepared).mean()) <= 1.005
    assert (prepared <= 1.02).all()  # chance: two fits differ by up to 5 % on one split
    ratio, chance, n_rows = compare_with_all_rows(results, "nrmse", real_data.RAW)
    assert ratio <= 1.01 + chance  # we aim at 1.003
    assert n_rows <= 22  # and at 20
    share = preparation_share()
    print(f"Preparing 100,000 x 30: {share:.1%} of a fit")
    assert share < 0.05


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=list(real_data.RAW))
    models = list(make_models(0, made_up_table(1)[0]))
    parser.add_argument("--models", nargs="+", default=models)


def run(args):
    """Run what is missing, print the tables, check the claims."""
    sets, how = (["made up"], measure_quickly) if args.quick else (args.sets, measure)
    results = complete_splits("raw.csv", args, sets, how)
    scores = report(results)
    if not args.quick and is_complete(scores.reindex(["NONA", ALL_ROWS]), real_data.RAW):
        check(results, scores)
