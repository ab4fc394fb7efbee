"""Tables that are hard for neighbours, models at their defaults, three splits of each.

Results are kept in ``benchmarks/results/hard.csv``: a run goes on where the last one stopped, so
delete the rows of whatever you changed, or the file, to start from scratch. Errors are relative to
those of the simplest prediction: the root mean squared error to that of the mean, the log loss to
that of the classes' frequencies.
"""

from functools import partial

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from . import classes, raw
from .classes import BASELINE, NEIGHBORS
from .hard_data import HARD, few_of_many
from .ledger import complete_splits
from .quick import shorten
from .rivals import make_encoder
from .scores import mean_over_splits, paired_ratio, print_seconds, probabilities
from .timing import timed

LINEAR = "linear, tuned"
LEAST = 0.01  # of a relative error: below it, all are right
CHANCE = 2.0  # standard errors


def make_models(seed, table):
    """Name and build the competitors for a table: those of other benchmarks, and a linear one."""
    if table.is_classes:
        linear = LogisticRegressionCV(
            Cs=np.logspace(-4, 2, 7),
            cv=3,
            l1_ratios=(0,),
            scoring="neg_log_loss",
            use_legacy_attributes=False,
        )
    else:
        linear = RidgeCV(np.logspace(-2, 5, 15))
    of_kind = classes if table.is_classes else raw
    if table.is_texts:
        return of_texts(of_kind.make_models(seed, pd.DataFrame()) | {LINEAR: linear})
    models = of_kind.make_models(seed, table.X) | {LINEAR: prepared(linear)}
    if table.y.ndim == 2:  # which trees do not take
        models |= {name: MultiOutputRegressor(models[name]) for name in TREES if name in models}
    return models


def of_texts(models):
    """Put models behind TF-IDF: trees take 100 components of it, and others all terms."""
    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True)
    components = make_pipeline(vectorizer, TruncatedSVD(100, random_state=0))
    return {
        name: make_pipeline(components if name in TREES else vectorizer, model[-1])
        if name in (*TREES, NEIGHBORS)  # the last step: without the preparation of a table
        else make_pipeline(vectorizer, model)
        for name, model in models.items()
    }


def prepared(model):
    """Put a model behind the usual preparation of a table."""
    return make_pipeline(make_encoder(), StandardScaler(), model)


TREES = [BASELINE, "CatBoost"]
MODELS = [*TREES, NEIGHBORS, LINEAR, "NONA"]
QUICK_MODELS = [BASELINE, "NONA"]


def measure(set_name, model_name, seed, sets=HARD, prepare=lambda model: model):
    """Score one model on one split of a table."""
    table = sets[set_name]()
    X, X_test, y, y_test = table.split(seed)
    model = prepare(make_models(seed, table)[model_name])
    seconds = timed(lambda: model.fit(X, y))
    judge = relative_log_loss if table.is_classes else relative_rmse
    error = judge(model, X, X_test, y, y_test)
    return {"n_train": len(y), "error": error, "seconds": seconds}


def relative_rmse(model, X, X_test, y, y_test):
    """Compute the error of a regressor, relative to that of the mean.

    Of several outputs it is the geometric mean.
    """
    mean = DummyRegressor().fit(X, y)
    errors = (
        root_mean_squared_error(y_test, each.predict(X_test), multioutput="raw_values")
        for each in (model, mean)
    )
    return np.exp(np.log(np.divide(*errors)).mean())


def relative_log_loss(model, X, X_test, y, y_test):
    """Compute the log loss of a classifier, relative to that of the classes' frequencies."""
    frequencies = DummyClassifier(strategy="prior").fit(X, y)
    losses = (
        log_loss(y_test, probabilities(each, X_test), labels=each.classes_)
        for each in (model, frequencies)
    )
    return np.divide(*losses)


def report(results, sets):
    """Print errors and seconds; returns the errors, models by sets."""
    errors = mean_over_splits(results, "error", sets)
    relative = errors.clip(lower=LEAST)
    relative = relative / relative.loc[BASELINE]
    mean = np.exp(np.log(relative).mean(axis=1))
    print("\nError relative to the simplest prediction; geometric mean relative to", BASELINE)
    print(errors.assign(**{"geo. mean": mean}).round(3).T.to_string())
    print_seconds(results, sets)
    return errors


def check(results):
    """Assert the aims: ahead of trees, and level with the best of the simple models."""
    results = results.assign(error=results.error.clip(lower=LEAST))
    ratio, chance = paired_ratio(results, "error", "NONA", BASELINE)
    print(f"NONA / {BASELINE}: {ratio:.3f}, standard error {chance:.3f}")
    assert ratio < 1
    for name, rows in results.groupby("set"):
        best = mean_over_splits(rows, "error", [name]).loc[[NEIGHBORS, LINEAR], name].idxmin()
        ratio, chance = paired_ratio(rows, "error", "NONA", best)
        print(f"{name}: NONA / {best} {ratio:.3f}, standard error {chance:.3f}")
        assert ratio <= 1 + CHANCE * chance


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=list(HARD))
    parser.add_argument("--models", nargs="+", default=MODELS)


def run(args):
    """Run what is missing, print the tables, check the claims."""
    sets, how = args.sets, measure
    if args.quick:
        args.models, sets = QUICK_MODELS, ["few of many"]
        how = partial(measure, sets={"few of many": partial(few_of_many, 60, 90)}, prepare=shorten)
    results = complete_splits("hard.csv", args, sets, how)
    report(results, sets)
    if {*args.sets} == {*HARD} and {*args.models} == {*MODELS}:
        check(results)
