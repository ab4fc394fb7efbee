"""The demo: ``python -m nona_sklearn [FILE COLUMN]``.

Compares both regressors or, for a target of classes, both classifiers with k-NN, boosted trees and
logistic regression by cross-validation, prints the rows behind one prediction beside the query,
and writes the report of it as a page for the browser. Without a file, the table is houses sold in
Ames, Iowa.
"""

import argparse
import re
import signal
import sys
import tempfile
import warnings
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

import numpy as np
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
from ._data.columns import read_columns
from ._data.forms import describe_reading, read_strings, unreadable_in
from ._inspection.formatting import Unit, share, show
from ._utils.extras import lacks
from .datasets import load_ames

MIN_ROWS = 30
FEW_VALUES = 10  # whole numbers that may be meant as classes
MANY_CLASSES, ROWS_OF_A_CLASS = 10, 10  # more values, of fewer rows each, are no classes
PAGE = Path("nona_sklearn_demo.html")
ENCODINGS = "utf-8", "utf-16", "cp1252"
N_SHOWN = 3  # rows behind the prediction
N_FEATURES = 8  # that are printed of them
MAX_NUMBER = 1e30
N_SPLITS = 3


class DemoError(Exception):
    """An error that the user can correct, as its message explains."""


def main(argv=None):
    """Run the demo; returns the exit status."""
    args = parse_arguments(argv)
    try:
        run(args)
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def run(args):
    require(find_spec("pandas"), lacks("the demo", "pandas", "demo"))
    if args.csv is None:
        X, y = load_ames(return_X_y=True)
    else:
        X, y = load_csv(args.csv, args.target, args.task, args.encoding)
    classes = are_classes(y, args.task)
    if classes:
        X, y = leave_out_rare(X, y)
    check_output(args.output, args.force)
    kind = describe(y, classes)
    print(f"{len(y)} rows, {X.shape[1]} features, target {y.name!r}: {kind}\n")
    y = y if classes else y.astype(float)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        best = compare(X, y, classes)
        show_one_prediction(X, y, classes, args.output)
    print(f"\n{best}\nReport written to {args.output}: open it in a browser")
    messages = [str(each.message) for each in caught]
    for message in {re.sub(r"\d", "", text): text for text in messages}.values():
        print(f"\nWarning: {message}")  # once for all fits, which differ in numbers of rows


def require(condition, message):
    if not condition:
        raise DemoError(message)


def parse_arguments(argv):
    description = __doc__.partition("\n\n")[2]
    parser = argparse.ArgumentParser(prog="python -m nona_sklearn", description=description)
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="your own table, a CSV")
    parser.add_argument("column", nargs="?", metavar="COLUMN", help="column to predict")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="the same as FILE")
    parser.add_argument("--target", metavar="COLUMN", help="the same as COLUMN")
    kinds = "kind of the target; auto: strings, booleans and two whole numbers are classes"
    parser.add_argument(
        "--task", choices=("auto", "classes", "numbers"), default="auto", help=kinds
    )
    encoding = f"of the file, by default the first of {', '.join(ENCODINGS)} that can be read"
    parser.add_argument("--encoding", metavar="NAME", help=encoding)
    report = f"where to write the report, by default {PAGE}"
    parser.add_argument("--output", type=Path, metavar="HTML", default=PAGE, help=report)
    parser.add_argument("--force", action="store_true", help="replace an existing HTML")
    args = parser.parse_args(argv)
    args.csv, args.target = args.csv or args.file, args.target or args.column
    if (args.csv is None) != (args.target is None):
        parser.error("FILE and COLUMN go together")
    return args


def load_csv(path, target, task="auto", encoding=None):
    """Features and target of the user's own table; a DemoError names what is wrong with it."""
    import pandas as pd

    file = repr(str(path))
    try:
        names, table = read_table(path, encoding)
    except FileNotFoundError:
        raise DemoError(f"there is no file {file}") from None
    except UnicodeError as e:
        tried = encoding or ", ".join(ENCODINGS)
        remedy = "save it as UTF-8, or name its --encoding"
        raise DemoError(f"{file} cannot be read as CSV in {tried}: {remedy}") from e
    except Exception as e:  # pandas opens archives of six kinds, each with errors of its own
        raise DemoError(f"{file} cannot be read as CSV: {e or type(e).__name__}") from e
    require(target in table, f"no column {target!r} in {file}{similar(target, [*table])}")
    whole, n_rows = isinstance(table.index, pd.RangeIndex), len(table)
    require(whole, f"{file} has rows with more fields than its header")
    require(names.is_unique, f"{file} has columns of one name: {[*names[names.duplicated()]]}")
    require(n_rows >= MIN_ROWS, f"{file} has {n_rows} rows; at least {MIN_ROWS} are needed")
    table = table.replace([np.inf, -np.inf], np.nan)
    table[target] = read_target(table[target], task)
    if n_missing := table[target].isna().sum():
        print(f"left out: {n_missing} of {n_rows} rows, without a value in {target!r}")
        table = table[table[target].notna()]
    n_left = f"{file} has {len(table)} rows with a value in {target!r}"
    require(len(table) >= MIN_ROWS, f"{n_left}; at least {MIN_ROWS} are needed")
    X, y = table.drop(columns=target), table[target]
    X = X.loc[:, X.nunique() > 1]  # a constant column, or an empty one, has no information
    require(X.shape[1], f"{file} has no column beside {target!r} with values that differ")
    for name, column in X.assign(**{target: y}).select_dtypes("number").items():
        large = (column.abs() > MAX_NUMBER).any()
        require(not large, f"column {name!r} has numbers beyond {MAX_NUMBER:g}")
    return X, y


def similar(target, columns):
    """The rest of a message about a column that is not there."""
    lower = {str(name).lower(): name for name in columns}
    if near := get_close_matches(target.lower(), lower, n=1):
        return f": did you mean {lower[near[0]]!r}?"
    return f"; it has {columns}"


def read_table(path, encoding=None):
    """Column names and table of a CSV file, of commas, semicolons, tabs or bars."""
    if encoding is not None:
        return read_encoded(path, encoding)
    *others, last = ENCODINGS
    for each in others:
        try:
            return read_encoded(path, each)
        except UnicodeError:
            continue
    found = read_encoded(path, last)
    print(f"{path} is not UTF-8, and was read as {last}; --encoding names another")
    return found


def read_encoded(path, encoding):
    """Column names and table of a CSV file in an encoding."""
    import pandas as pd

    first = {"header": None, "nrows": 1, "encoding": encoding}
    line = pd.read_csv(path, dtype=str, keep_default_na=False, **first).iloc[0]
    between = next((mark for mark in ";\t|" if len(line) == 1 and mark in line[0]), ",")
    names = pd.read_csv(path, sep=between, **first).iloc[0]
    decimals = "." if between == "," else ".,"
    tables = [
        pd.read_csv(path, sep=between, decimal=decimal, encoding=encoding) for decimal in decimals
    ]
    return names, max(tables, key=lambda table: table.select_dtypes("number").shape[1])


def read_target(y, task):
    """A target of strings as the numbers that they are, as TableEncoder reads features."""
    import pandas as pd

    if task == "classes":
        return y
    column = next(read_columns(y.to_frame()))
    read = read_strings(column)
    remedy = "or --task classes"
    require(read.kind != "date", f"column {y.name!r} holds dates: convert it to numbers, {remedy}")
    wrong = unreadable_in(column)
    another = f"column {y.name!r} holds {wrong!r:.80} among numbers or dates: correct it, {remedy}"
    require(wrong is None, another)
    if read.form is None:
        return y
    print(f"column {y.name!r} was read {describe_reading(read)}")
    return pd.Series(read.values, y.index, name=y.name)


def are_classes(y, task):
    """Whether a target is predicted as classes, by the task or by its values."""
    numbers = y.dtype.kind in "iuf"
    if task == "numbers":
        require(numbers, f"column {y.name!r} is not numeric, but {y.dtype}")
    if task == "classes":
        whole = not numbers or (y % 1 == 0).all()
        require(whole, f"column {y.name!r} holds numbers that are not whole: no classes")
    two = numbers and y.nunique() == 2 and (y % 1 == 0).all()
    if task == "auto" and not numbers:
        many = y.nunique() > MANY_CLASSES and len(y) < ROWS_OF_A_CLASS * y.nunique()
        values = f"{y.nunique()} values in {len(y)} rows, such as {y.iloc[0]!r:.80}"
        remedy = "convert it to numbers, or --task classes"
        require(not many, f"column {y.name!r} has {values}: {remedy}")
    return task == "classes" or (task == "auto" and (two or not numbers))


def leave_out_rare(X, y):
    """Leave out rows of classes that cannot be in every fold, and report them."""
    counts = y.value_counts()
    rare = counts[counts < N_SPLITS]
    found = f"column {y.name!r} has {len(counts)} values in {len(y)} rows"
    enough = len(counts) - len(rare) >= 2
    require(enough, f"{found}: no two classes of at least {N_SPLITS} rows")
    if len(rare):
        print(f"left out: {rare.sum()} of {len(y)} rows, of classes with fewer than {N_SPLITS}")
    kept = ~y.isin(rare.index)
    return X[kept], y[kept]


def describe(y, classes):
    """Kind of the target and, if it could be meant otherwise, the option for that."""
    if classes:
        return f"{y.nunique()} classes"
    few = y.nunique() <= FEW_VALUES and (y % 1 == 0).all()
    return (
        f"numbers ({y.nunique()} different ones; as classes: --task classes)" if few else "numbers"
    )


def check_output(path, force=False):
    """Refuse a report that cannot be written, before any work is done for it."""
    file, folder = f"--output {str(path)!r}", path.parent
    require(path.suffix.lower() == ".html", f"--output must end in .html, got {str(path)!r}")
    require(folder.is_dir(), f"{file} cannot be written: there is no folder {str(folder)!r}")
    try:
        tempfile.TemporaryFile(dir=folder).close()
        require(not path.is_dir(), f"{file} cannot be written: it is a folder")
        kept = path.exists() and path != PAGE and not force
    except OSError as error:
        raise DemoError(f"{file} cannot be written: {error.strerror}") from error
    require(not kept, f"{file} exists: choose another name, or --force")


def contestants(classes=False):
    """Name and build the estimators to compare, all at their defaults but for ten neighbours."""
    scaled = (TableEncoder(), StandardScaler())
    if classes:
        trees = HistGradientBoostingClassifier(random_state=0)
        return {
            "k-NN (k=5)": make_pipeline(*scaled, KNeighborsClassifier()),
            "logistic regression": make_pipeline(*scaled, LogisticRegression(max_iter=1000)),
            "HistGradientBoosting": make_pipeline(TableEncoder(), trees),
            "SoftStepKNeighborsClassifier": SoftStepKNeighborsClassifier(random_state=0),
            "NONAClassifier": NONAClassifier(random_state=0),
        }
    trees = HistGradientBoostingRegressor(random_state=0)
    return {
        "k-NN (k=5)": make_pipeline(*scaled, KNeighborsRegressor()),
        "HistGradientBoosting": make_pipeline(TableEncoder(), trees),
        "SoftStepKNeighborsRegressor": SoftStepKNeighborsRegressor(random_state=0),
        "NONARegressor": NONARegressor(n_neighbors=10, random_state=0),
    }


def compare(X, y, classes):
    """Print a table of cross-validated scores and times, and return a line about the best."""
    folds = (StratifiedKFold if classes else KFold)(N_SPLITS, shuffle=True, random_state=0)
    scoring = {"log loss": "neg_log_loss", "accuracy": "accuracy"} if classes else {"R²": "r2"}
    first, means = next(iter(scoring)), {}
    heads = "".join(f" {name:>8} {'± sd':>6}" for name in scoring)
    print(f"{f'{N_SPLITS}-fold cross-validation':<28}{heads} {'fit, s':>7}")
    for name, estimator in contestants(classes).items():
        print(f"{name:<28}", end="", flush=True)  # while it is fitted
        result = cross_validate(estimator, X, y, cv=folds, scoring=scoring)
        means[name] = result[f"test_{first}"].mean()
        for measure in scoring:
            scores = result[f"test_{measure}"] * (-1 if measure == "log loss" else 1)
            print(f" {scores.mean():8.3f} {scores.std():6.3f}", end="")
        print(f" {result['fit_time'].mean():7.2f}", flush=True)
    best = max(means, key=means.get)
    return f"{'Lowest' if classes else 'Highest'} {first}: {best}, {abs(means[best]):.3f}"


def show_one_prediction(X, y, classes, output):
    """Print the rows behind the first held-out prediction beside it, and write its report."""
    n_test = max(round(0.2 * len(y)), y.nunique() if classes else 0)  # as a stratified split needs
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=n_test, random_state=0, stratify=y if classes else None
    )
    name = "NONAClassifier" if classes else "NONARegressor"
    print(f"\n{name} is fitted to {len(y_train)} rows", flush=True)
    model = contestants(classes)[name].fit(X_train, y_train)
    query, true = X_test[:1], y_test.iloc[0]
    predicted = model.predict(query)[0]
    values = Unit() if classes else Unit.of([predicted, true, *y])
    table, carried = beside_the_query(model, query, X_train, values, y.name)
    shown = f"predicted as {values.show(predicted)}, true {values.show(true)}"
    print(f"\nRow {query.index[0]}: {y.name} {shown}.")
    print(f"The rows with the largest weights ({share(carried)} of the weight):\n")
    print(table.to_string())
    report = NeighborsReport(model, query, X_train, y_true=true)
    report.save(output, overwrite=True)


def beside_the_query(model, query, X, values, target):
    """The rows with the largest weights, and the query, as columns of a table; their weight."""
    import pandas as pd

    rows = model.explain(query, n_neighbors=N_SHOWN)
    rows = rows[rows["neighbor"].isin(X.index)]  # neither "others" nor the network
    important = np.argsort(model.feature_importances_)[::-1][:N_FEATURES]
    features = pd.concat([X.loc[rows["neighbor"]], query]).iloc[:, important]
    table = features.map(show).T
    table.columns = [*map(str, rows["neighbor"]), "the query"]
    heads = {"weight": share, "target": values.show, "adjusted_target": values.show}
    lines = {name: [*map(form, rows[name]), ""] for name, form in heads.items() if name in rows}
    head = pd.DataFrame(lines, index=table.columns).T
    head = head.rename({"target": target, "adjusted_target": f"{target}, adjusted"})
    return pd.concat([head, table]), rows["weight"].sum()


if __name__ == "__main__":
    sys.exit(main())
