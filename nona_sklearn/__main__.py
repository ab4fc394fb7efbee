"""The demo: ``python -m nona_sklearn [--csv FILE --target COLUMN]``.

Compares both regressors or, where the target is classes, both classifiers with k-NN, an MLP or
logistic regression, and a dense head by cross-validation, shows the neighbours behind one
prediction, and writes a picture.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay, PredictionErrorDisplay
from sklearn.model_selection import KFold, StratifiedKFold, cross_validate, train_test_split
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from . import (
    NeighborsDisplay,
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
)
from ._estimators.dense import DenseHeadClassifier, DenseHeadRegressor

MIN_ROWS = 30
FEW_VALUES = 10  # whole numbers that may be meant for classes
N_NAMED = 3  # classes whose contributions are printed
MAX_NUMBER = 1e30
PICTURE = Path("nona_sklearn_demo.png")
N_SPLITS = 5


class DemoError(Exception):
    """Something that the user can mend; its message says what."""


def main(argv=None):
    """Run the demo; returns the exit status."""
    args = parse_arguments(argv)
    try:
        check_extras()
        X, y = load_csv(args.csv, args.target) if args.csv else load_diabetes_frame()
        classes = are_classes(y, args.task)
        if classes:
            X, y = leave_out_rare(X, y)
        check_output(args.output)
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    what = describe(y, classes)
    print(f"{len(y)} rows, {X.shape[1]} features, target {y.name!r}: {what}\n")
    if not classes:
        y = y.astype(float)
    compare(X, y, classes)
    show = show_one_class if classes else show_one_number
    show(X, y, args.output)
    print(f"\nPicture written to {args.output}")
    return 0


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="python -m nona_sklearn", description=__doc__)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="your own table")
    parser.add_argument("--target", metavar="COLUMN", help="column to predict")
    parser.add_argument(
        "--task",
        choices=("auto", "classes", "numbers"),
        default="auto",
        help="what the target is; auto: strings and truth values are classes, numbers are numbers",
    )
    parser.add_argument("--output", type=Path, metavar="PNG", default=PICTURE)
    args = parser.parse_args(argv)
    if (args.csv is None) != (args.target is None):
        parser.error("--csv and --target go together")
    return args


def check_extras():
    """Refuse to start without what the demo alone needs."""
    missing = [name for name in ("matplotlib", "pandas") if find_spec(name) is None]
    if missing:
        raise DemoError(f"{' and '.join(missing)} missing: pip install 'nona_sklearn[demo]'")


def load_diabetes_frame():
    """Read scikit-learn's diabetes data in its original units."""
    return load_diabetes(as_frame=True, return_X_y=True, scaled=False)


def load_csv(path, target):
    """Read the user's own table, or say what is wrong with it."""
    import pandas as pd

    try:
        table = read_table(path)
    except FileNotFoundError:
        raise DemoError(f"there is no file {str(path)!r}") from None
    except Exception as e:  # pandas opens archives of six kinds, each with errors of its own
        raise DemoError(f"{str(path)!r} cannot be read as CSV: {e or type(e).__name__}") from e
    if target not in table:
        raise DemoError(f"no column {target!r} in {str(path)!r}; it has {list(table.columns)}")
    if not isinstance(table.index, pd.RangeIndex):
        raise DemoError(f"{str(path)!r} has rows with more fields than its header")
    names = read_table(path, header=None, nrows=1).iloc[0]
    if names.duplicated().any():
        raise DemoError(
            f"{str(path)!r} has columns of one name: {names[names.duplicated()].iloc[0]!r}"
        )
    if len(table) < MIN_ROWS:
        raise DemoError(f"{str(path)!r} has {len(table)} rows; at least {MIN_ROWS} are needed")
    X, y = table.drop(columns=target), table[target]
    missing = y.replace([np.inf, -np.inf], np.nan).isna()
    if missing.any():
        raise DemoError(f"column {target!r} lacks {missing.sum()} of {len(y)} values")
    X = X.replace([np.inf, -np.inf], np.nan)
    X = X.loc[:, X.nunique() > 1]  # a constant, or no value at all, tells nothing
    if X.shape[1] == 0:
        raise DemoError(f"{str(path)!r} has no column beside {target!r} with values that differ")
    for name, column in X.assign(**{target: y}).select_dtypes("number").items():
        if (column.abs() > MAX_NUMBER).any():
            raise DemoError(f"column {name!r} has numbers beyond {MAX_NUMBER:g}")
    return X, y


def read_table(path, **kwargs):
    """Read a CSV file, also one of semicolons or tabs, and of numbers with a decimal comma."""
    import pandas as pd

    table = pd.read_csv(path, **kwargs)
    header = str([*table.columns, *table.iloc[:1].to_numpy().ravel()])
    between = next(
        (mark for mark in (";", "\t") if mark in header or repr(mark)[1:-1] in header), ","
    )
    if table.shape[1] > 1 or between == ",":
        return table
    tables = [pd.read_csv(path, sep=between, decimal=mark, **kwargs) for mark in ".,"]
    return max(tables, key=lambda each: each.select_dtypes("number").shape[1])


def are_classes(y, task):
    """Whether a target is to be predicted as classes, as asked or by what it holds."""
    import pandas as pd

    numbers = pd.api.types.is_numeric_dtype(y) and not pd.api.types.is_bool_dtype(y)
    if task == "numbers" and not numbers:
        raise DemoError(f"column {y.name!r} is not numeric, but {y.dtype}")
    if task == "classes" and numbers and (y % 1 != 0).any():
        raise DemoError(f"column {y.name!r} holds numbers that are not whole: no classes")
    return task == "classes" or (task == "auto" and not numbers)


def leave_out_rare(X, y):
    """Leave out rows of classes that cannot be in every fold, and say so."""
    counts = y.value_counts()
    rare = counts[counts < N_SPLITS]
    if len(counts) - len(rare) < 2:
        raise DemoError(
            f"column {y.name!r} has {len(counts)} values in {len(y)} rows: "
            f"no two classes of at least {N_SPLITS} rows"
        )
    if len(rare):
        print(f"left out: {rare.sum()} of {len(y)} rows, of classes with fewer than {N_SPLITS}")
    kept = ~y.isin(rare.index)
    return X[kept], y[kept]


def describe(y, classes):
    """Say what a target is taken for, and how to have it otherwise."""
    n_values = y.nunique()
    if classes:
        return f"{n_values} classes"
    if n_values <= FEW_VALUES and (y % 1 == 0).all():
        return f"numbers ({n_values} different ones; as classes: --task classes)"
    return "numbers"


def check_output(path):
    """Refuse a picture that could not be written before any work is done for it."""
    if path.suffix.lower() != ".png":
        raise DemoError(f"--output must end in .png, got {str(path)!r}")
    try:
        path.open("ab").close()
    except OSError as error:
        raise DemoError(f"--output {str(path)!r} cannot be written: {error}") from error


def contestants(classes=False):
    """Name and build the estimators to compare, all at their defaults."""
    if classes:
        linear = LogisticRegression(max_iter=1000)
        return {
            "k-NN (k=5)": make_pipeline(TableEncoder(), StandardScaler(), KNeighborsClassifier()),
            "logistic regression": make_pipeline(TableEncoder(), StandardScaler(), linear),
            "dense head": DenseHeadClassifier(random_state=0),
            "SoftStepKNeighborsClassifier": SoftStepKNeighborsClassifier(random_state=0),
            "NONAClassifier": NONAClassifier(random_state=0),
        }
    mlp = MLPRegressor(early_stopping=True, max_iter=1000, random_state=0)
    scaled_mlp = TransformedTargetRegressor(mlp, transformer=StandardScaler())
    return {
        "k-NN (k=5)": make_pipeline(TableEncoder(), StandardScaler(), KNeighborsRegressor()),
        "MLP": make_pipeline(TableEncoder(), StandardScaler(), scaled_mlp),
        "dense head": DenseHeadRegressor(random_state=0),
        "SoftStepKNeighborsRegressor": SoftStepKNeighborsRegressor(random_state=0),
        "NONARegressor": NONARegressor(random_state=0),
    }


def compare(X, y, classes=False):
    """Print a table of cross-validated scores and times."""
    kind = StratifiedKFold if classes else KFold
    folds = kind(N_SPLITS, shuffle=True, random_state=0)
    measures = {"log loss": "neg_log_loss", "accuracy": "accuracy"} if classes else {"R²": "r2"}
    heads = "".join(f" {name:>8} {'± sd':>6}" for name in measures)
    print(f"{f'{N_SPLITS}-fold cross-validation':<28}{heads} {'fit, s':>7}")
    for name, estimator in contestants(classes).items():
        result = cross_validate(estimator, X, y, cv=folds, scoring=list(measures.values()))
        line = f"{name:<28}"
        for measure in measures.values():
            scores = result[f"test_{measure}"]
            line += f" {abs(scores.mean()) if classes else scores.mean():8.3f} {scores.std():6.3f}"
        print(f"{line} {result['fit_time'].mean():7.2f}")


def show_one_class(X, y, output):
    """Print the neighbours behind the first held-out prediction of a class, and draw them."""
    from matplotlib.figure import Figure

    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.2, random_state=0, stratify=y
    )
    clf = NONAClassifier(random_state=0).fit(X_train, y_train)
    query, predictions = X_test[:1], clf.predict(X_test)
    probabilities = clf.predict_proba(query)[0]
    print(
        f"\nRow {query.index[0]}: predicted {predictions[0]} ({probabilities.max():.0%}), "
        f"true {y_test.iloc[0]}, because of"
    )
    named = clf.classes_[probabilities.argsort()[::-1][:N_NAMED]]
    columns = ["neighbor", "weight", "target", *(f"contribution_{label}" for label in named)]
    print_table(clf.explain(query, n_neighbors=min(5, len(X_train)))[columns])

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    ConfusionMatrixDisplay.from_predictions(
        y_test, predictions, ax=left, colorbar=False, xticks_rotation=45
    )
    left.set_title(f"Held-out rows, accuracy = {(predictions == y_test).mean():.2f}")
    NeighborsDisplay.from_estimator(clf, query, y_test.iloc[0], ax=right)
    right.set_title(f"Row {query.index[0]}: " + right.get_title())
    figure.savefig(output, dpi=120)


def show_one_number(X, y, output):
    """Print the neighbours behind the first held-out prediction of a number, and draw them."""
    from matplotlib.figure import Figure

    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    reg = NONARegressor(random_state=0).fit(X_train, y_train)
    query, predictions = X_test[:1], reg.predict(X_test)
    number, truth = query.index[0], y_test.iloc[0]
    print(f"\nRow {number}: predicted {predictions[0]:.4g}, true {truth:.4g}, because of")
    print_table(reg.explain(query, n_neighbors=min(5, len(X_train))).drop(columns="query"))

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    PredictionErrorDisplay.from_predictions(
        y_test, predictions, kind="actual_vs_predicted", ax=left
    )
    left.set_title(f"Held-out rows, R² = {reg.score(X_test, y_test):.2f}")
    NeighborsDisplay.from_estimator(reg, query, y_test.iloc[0], ax=right)
    right.set_title(f"Row {query.index[0]}: " + right.get_title())
    figure.savefig(output, dpi=120)


def print_table(table):
    print(table.to_string(index=False, float_format="{:.4g}".format, na_rep=""))


if __name__ == "__main__":
    sys.exit(main())
