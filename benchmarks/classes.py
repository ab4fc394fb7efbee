"""Classifiers on tables as people have them, with categories and gaps, at their defaults.

Needs pandas; CatBoost, and pytabkit's RealMLP, take part where they are installed. Results are
kept in ``benchmarks/results/classes.csv``: a run goes on where the last one stopped, so delete the
rows of whatever you changed, or the file, to start from scratch. The seconds hold the preparation
of the table; all run on one thread if ``OMP_NUM_THREADS=1``.
"""

from importlib.util import find_spec

import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from nona_sklearn import NONAClassifier, SoftStepKNeighborsClassifier

from . import real_data
from .internals import DenseHeadClassifier
from .ledger import complete_splits
from .quick import shorten
from .raw import made_up_table
from .rivals import (
    NUMBERS,
    FrequentCategories,
    boosted,
    catboosted,
    dates_to_numbers,
    make_encoder,
    tuned_neighbors,
)
from .scores import (
    ALL_ROWS,
    compare_with_all_rows,
    is_complete,
    judge_classes,
    mean_over_splits,
    print_ranked,
    print_seconds,
    print_weights,
    relative_error,
    score,
)

BASELINE = "HistGradientBoosting"
NEIGHBORS = "k-NN, tuned"


# -- models -----------------------------------------------------------------------------------


def make_models(seed, X):
    """Name and build the competitors for a table; all take it as it is."""
    knn = tuned_neighbors(KNeighborsClassifier(), scoring="neg_log_loss")
    mlp = MLPClassifier(early_stopping=True, max_iter=1000, random_state=seed)
    models = {
        BASELINE: boosted(
            HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)
        )
    }
    if find_spec("catboost"):
        from catboost import CatBoostClassifier

        models["CatBoost"] = catboosted(CatBoostClassifier, X, seed)
    models |= {
        "random forest": make_pipeline(make_encoder(), RandomForestClassifier(random_state=seed)),
        "logistic regression": make_pipeline(
            make_encoder(), StandardScaler(), LogisticRegression(max_iter=1000)
        ),
        NEIGHBORS: make_pipeline(make_encoder(), StandardScaler(), knn),
        "MLP": make_pipeline(make_encoder(), StandardScaler(), mlp),
        "dense head": DenseHeadClassifier(random_state=seed),
        "SoftStep k-NN": SoftStepKNeighborsClassifier(random_state=seed),
        "NONA": NONAClassifier(random_state=seed),
        ALL_ROWS: NONAClassifier(n_neighbors=None, random_state=seed),
        "NONA, adjust=False": NONAClassifier(adjust=False, random_state=seed),
    }
    if find_spec("pytabkit"):
        models["RealMLP"] = make_realmlp(seed)
    return models


def make_realmlp(seed):
    """Build RealMLP; it takes categories, but numbers without gaps."""
    from pytabkit import RealMLP_TD_Classifier

    medians = make_column_transformer(
        (
            SimpleImputer(strategy="median", add_indicator=True),
            make_column_selector(dtype_include=NUMBERS),
        ),
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    return make_pipeline(
        FunctionTransformer(dates_to_numbers),
        FrequentCategories(),
        medians.set_output(transform="pandas"),
        RealMLP_TD_Classifier(device="cpu", random_state=seed, n_threads=1),
    )


# -- measuring and reporting ------------------------------------------------------------------


def measure(set_name, model_name, seed):
    """Score one competitor on one split."""
    X, *rest = real_data.split(set_name, seed, sets=real_data.CLASSES)
    return score(make_models(seed, X)[model_name], X, *rest, judge=judge_classes)


def made_up_classes():
    """Make a small table of three classes, the last one rare.

    They are numbers: scikit-learn's MLPClassifier could not stop early on strings before 1.9.
    """
    X, y = made_up_table(150)
    return X, np.digitize(y, np.quantile(y, [0.5, 0.9]))


def measure_quickly(set_name, model_name, seed):
    """The same on few rows and epochs."""
    X, *rest = real_data.split(set_name, seed, sets={set_name: made_up_classes})
    return score(shorten(make_models(seed, X)[model_name]), X, *rest, judge=judge_classes)


def report(results, sets):
    """Print the tables; returns the mean log loss and error, models by sets."""
    loss, error, n_test = (
        mean_over_splits(results, name, sets) for name in ("log_loss", "error", "n_test")
    )
    print_ranked("Log loss", loss, BASELINE)
    # A model may make no error: means are of one more wrong row than there are.
    print_ranked("Error rate", error, BASELINE, added=1 / n_test.iloc[0])
    for title, name in ("AUC", "auc"), ("Calibration error", "calibration_error"):
        table = mean_over_splits(results, name, sets)
        table = table.assign(mean=table.mean(axis=1, skipna=False))
        print(f"\n{title}")
        print(table.sort_values("mean", ascending=name != "auc").round(3).to_string())
    print_weights(results, sets)
    print_seconds(results, sets)
    return loss, error


def check(results, loss, error):
    """Assert what the documentation states, on all sets."""
    n_test = mean_over_splits(results, "n_test", real_data.CLASSES).iloc[0]
    calibration = mean_over_splits(results, "calibration_error", real_data.CLASSES).mean(axis=1)
    loss, error = loss.dropna(), error.dropna() + 1 / n_test
    over_neighbors = loss.loc["NONA"] / loss.loc[NEIGHBORS]
    worst = f"{over_neighbors.max():.3f} ({over_neighbors.idxmax()})"
    print(f"\nNONA's log loss / that of {NEIGHBORS}, worst set: {worst}")
    for rival in loss.index.drop("NONA"):
        losses, errors = (relative_error(table, rival)["NONA"] for table in (loss, error))
        print(f"NONA / {rival}: log loss {losses:.3f}, errors + 1 {errors:.3f}")
    print(f"Calibration error: {calibration['NONA']:.4f}, {BASELINE} {calibration[BASELINE]:.4f}")
    assert relative_error(loss, BASELINE)["NONA"] <= 0.75
    assert calibration["NONA"] <= calibration[BASELINE]
    assert (over_neighbors < 1).all()
    if "CatBoost" in loss.index:
        assert relative_error(loss, "CatBoost")["NONA"] <= 0.92
        mean_error = error.mean(axis=1)
        assert mean_error["NONA"] <= 0.97 * mean_error["CatBoost"]
    ratio, _, n_rows = compare_with_all_rows(results, "log_loss", real_data.CLASSES)
    assert ratio <= 1.01
    assert n_rows <= 64


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=list(real_data.CLASSES))
    models = list(make_models(0, made_up_classes()[0]))
    parser.add_argument("--models", nargs="+", default=models)


def run(args):
    """Run what is missing, print the tables, check the claims."""
    sets, how = (["made up"], measure_quickly) if args.quick else (args.sets, measure)
    results = complete_splits("classes.csv", args, sets, how)
    loss, error = report(results, sets if args.quick else real_data.CLASSES)
    if not args.quick and is_complete(loss.reindex(["NONA", ALL_ROWS]), real_data.CLASSES):
        check(results, loss, error)
