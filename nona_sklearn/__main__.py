"""The demo: ``python -m nona_sklearn [FILE COLUMN]``.

The demo compares both regressors with k-NN and boosted trees by cross-validation. For a target of
classes, it compares both classifiers, and logistic regression as well. It prints the rows behind
one prediction beside the query, and writes the report of this prediction as a page for the
browser. Without a file, the table contains houses sold in Ames, Iowa.
"""

import argparse
import re
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, cross_validate, train_test_split
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from . import (
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
)
from ._utils.validation import lacks
from .datasets import load_ames

MIN_ROWS = 30
PAGE = Path("nona_sklearn_demo.html")
N_SHOWN = 3  # rows behind the prediction
N_SPLITS = 3


def main(argv=None):
    """Run the demo and return the exit status."""
    description = __doc__.partition("\n\n")[2]
    parser = argparse.ArgumentParser(prog="python -m nona_sklearn", description=description)
    parser.add_argument("file", nargs="?", metavar="FILE", help="your own table, a CSV")
    parser.add_argument("column", nargs="?", metavar="COLUMN", help="column to predict")
    kinds = "kind of the target; auto: strings, booleans and two whole numbers are classes"
    tasks = ("auto", "classes", "numbers")
    parser.add_argument("--task", choices=tasks, default="auto", help=kinds)
    report = f"where to write the report, by default {PAGE}"
    parser.add_argument("--output", type=Path, metavar="HTML", default=PAGE, help=report)
    parser.add_argument("--force", action="store_true", help="replace an existing HTML")
    args = parser.parse_args(argv)
    if (args.file is None) != (args.column is None):
        parser.error("FILE and COLUMN go together")
    try:
        run(args)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def run(args):
    page = args.output
    require(find_spec("pandas"), lacks("the demo", "pandas", "demo"))
    require(page.suffix == ".html", f"--output must end in .html, got {str(page)!r}")
    require(page.parent.is_dir(), f"--output must be in a folder that exists, got {str(page)!r}")
    kept = page.exists() and page != PAGE and not args.force
    require(not kept, f"--output {str(page)!r} exists: choose another name, or --force")
    X, y = load_ames(return_X_y=True) if args.file is None else load_csv(args.file, args.column)
    classes = are_classes(y, args.task)
    if classes:  # every fold must contain all classes
        counts = y.map(y.value_counts())
        X, y = X[counts >= N_SPLITS], y[counts >= N_SPLITS]
        print(f"left out: {len(counts) - len(y)} rows, of classes with fewer than {N_SPLITS}")
        few = f"column {y.name!r} has no two classes of {N_SPLITS} rows each"
        require(y.nunique() > 1, f"{few}: if it holds numbers, write them without units")
    kind = f"{y.nunique()} classes" if classes else f"numbers ({y.nunique()} different ones)"
    print(f"{len(y)} rows, {X.shape[1]} features, target {y.name!r}: {kind}\n")
    y = y if classes else y.astype(float)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        best = compare(X, y, classes)
        show_one_prediction(X, y, classes, page)
    print(f"\n{best}\nReport written to {page}: open it in a browser")
    messages = [str(warning.message) for warning in caught]
    for message in {re.sub(r"\d", "", text): text for text in messages}.values():
        print(f"\nWarning: {message}")  # once for all fits, which differ in numbers of rows


def require(condition, message):
    if not condition:
        raise ValueError(message)


def load_csv(path, target):
    """Return the features and the target of a table in a CSV file."""
    import pandas as pd

    try:
        table = pd.read_csv(path, sep=None, engine="python")
    except Exception as error:  # pandas opens six kinds of archives, with different errors
        raise ValueError(
            f"{path!r} cannot be read as CSV: {type(error).__name__}: {error}"
        ) from error
    require(target in table, f"no column {target!r} in {path!r}; it has {[*table]}")
    labelled = table[table[target].notna()]
    print(f"left out: {len(table) - len(labelled)} rows, without a value in {target!r}")
    n_rows = f"{path!r} has {len(labelled)} rows with a value in {target!r}"
    require(len(labelled) >= MIN_ROWS, f"{n_rows}; at least {MIN_ROWS} are needed")
    require(table.shape[1] > 1, f"{path!r} has no column beside {target!r}")
    return labelled.drop(columns=target), labelled[target]


def are_classes(y, task):
    """Return whether the target has classes, by the task or by its values."""
    is_number = y.dtype.kind in "iuf"
    is_whole = not is_number or (y % 1 == 0).all()
    require(is_number or task != "numbers", f"column {y.name!r} is not numeric, but {y.dtype}")
    require(is_whole or task != "classes", f"column {y.name!r} holds fractions: no classes")
    if task != "auto":
        return task == "classes"
    return not is_number or (is_whole and y.nunique() == 2)


def contestants(classes=False):
    """Return the estimators to compare, by name. Only `n_neighbors` differs from its default."""
    knn = KNeighborsClassifier() if classes else KNeighborsRegressor()
    trees = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    models = {
        "k-NN (k=5)": make_pipeline(TableEncoder(), StandardScaler(), knn),
        "HistGradientBoosting": make_pipeline(TableEncoder(), trees(random_state=0)),
    }
    if not classes:
        return models | {
            "SoftStepKNeighborsRegressor": SoftStepKNeighborsRegressor(random_state=0),
            "NONARegressor": NONARegressor(n_neighbors=10, random_state=0),
        }
    logistic = LogisticRegression(max_iter=1000)
    return models | {
        "logistic regression": make_pipeline(TableEncoder(), StandardScaler(), logistic),
        "SoftStepKNeighborsClassifier": SoftStepKNeighborsClassifier(random_state=0),
        "NONAClassifier": NONAClassifier(random_state=0),
    }


def compare(X, y, classes):
    """Print cross-validated scores and times, and return a line about the best estimator."""
    folds = (StratifiedKFold if classes else KFold)(N_SPLITS, shuffle=True, random_state=0)
    scoring = {"log loss": "neg_log_loss", "accuracy": "accuracy"} if classes else {"R²": "r2"}
    heads = "".join(f" {name:>8} {'± sd':>6}" for name in scoring)
    print(f"{f'{N_SPLITS}-fold cross-validation':<28}{heads} {'fit, s':>7}")
    first = next(iter(scoring))
    means = {}
    for name, estimator in contestants(classes).items():
        print(f"{name:<28}", end="", flush=True)  # before the fit
        result = cross_validate(estimator, X, y, cv=folds, scoring=scoring)
        means[name] = result[f"test_{first}"].mean()
        for measure in scoring:
            scores = result[f"test_{measure}"] * (-1 if measure == "log loss" else 1)
            print(f" {scores.mean():8.3f} {scores.std():6.3f}", end="")
        print(f" {result['fit_time'].mean():7.2f}", flush=True)
    best = max(means, key=means.get)
    return f"{'Lowest' if classes else 'Highest'} {first}: {best}, {abs(means[best]):.3f}"


def show_one_prediction(X, y, classes, output):
    """Print the first held-out query with the rows behind its prediction, and write the report."""
    n_test = max(round(0.2 * len(y)), y.nunique() if classes else 0)  # a stratified split needs it
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=n_test, random_state=0, stratify=y if classes else None
    )
    name = "NONAClassifier" if classes else "NONARegressor"
    print(f"\n{name} is fitted to {len(y_train)} rows", flush=True)
    model = contestants(classes)[name].fit(X_train, y_train)
    query, true = X_test[:1], y_test.iloc[0]
    print(f"\nRow {query.index[0]}: {y.name} predicted as", end=" ")
    print(f"{text_of(model.predict(query)[0])}, true {text_of(true)}.")
    print(f"Beside it the {N_SHOWN} rows with the largest weights:\n")
    table = model.explain(query, n_neighbors=N_SHOWN, features=X_train)
    table = table.drop(columns="query").set_index("neighbor").round({"weight": 2})
    print(table.map(text_of).T.to_string())
    NeighborsReport(model, query, X_train, y_true=true).save(output, overwrite=True)


def text_of(value):
    """Return the printed text of a value. It is empty for a missing value."""
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        text = f"{value:,.{0 if abs(value) >= 1000 else 4}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value).removesuffix(" 00:00:00")


if __name__ == "__main__":
    sys.exit(main())
