"""The demo: ``python -m nona_sklearn [--csv FILE --target COLUMN]``.

Compares both estimators with k-NN, an MLP and a dense head by cross-validation, shows the
neighbours behind one prediction, and writes a picture.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.metrics import PredictionErrorDisplay
from sklearn.model_selection import KFold, cross_validate, train_test_split
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from . import NeighborsDisplay, NONARegressor, SoftStepKNeighborsRegressor, TableEncoder
from ._heads import DenseHeadRegressor

MIN_ROWS = 30
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
        check_output(args.output)
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(y)} rows, {X.shape[1]} features, target {y.name!r}\n")
    y = y.to_numpy(dtype=float)
    compare(X, y)
    show_one_prediction(X, y, args.output)
    return 0


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="python -m nona_sklearn", description=__doc__)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="your own table")
    parser.add_argument("--target", metavar="COLUMN", help="numeric column to predict")
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
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise DemoError(f"there is no file {str(path)!r}") from None
    except Exception as e:  # pandas opens archives of six kinds, each with errors of its own
        raise DemoError(f"{str(path)!r} cannot be read as CSV: {e or type(e).__name__}") from e
    if target not in table:
        raise DemoError(f"no column {target!r} in {str(path)!r}; it has {list(table.columns)}")
    if not isinstance(table.index, pd.RangeIndex):
        raise DemoError(f"{str(path)!r} has rows with more fields than its header")
    names = pd.read_csv(path, header=None, nrows=1).iloc[0]
    if names.duplicated().any():
        raise DemoError(
            f"{str(path)!r} has columns of one name: {names[names.duplicated()].iloc[0]!r}"
        )
    if len(table) < MIN_ROWS:
        raise DemoError(f"{str(path)!r} has {len(table)} rows; at least {MIN_ROWS} are needed")
    X, y = table.drop(columns=target), table[target]
    if not pd.api.types.is_numeric_dtype(y):
        raise DemoError(f"column {target!r} is not numeric, but {y.dtype}")
    if not np.isfinite(y).all():
        raise DemoError(f"column {target!r} lacks {(~np.isfinite(y)).sum()} of {len(y)} values")
    X = X.replace([np.inf, -np.inf], np.nan).apply(find_dates)
    X = X.loc[:, X.nunique() > 1]  # a constant, or no value at all, tells nothing
    if X.shape[1] == 0:
        raise DemoError(f"{str(path)!r} has no column beside {target!r} with values that differ")
    for name, column in X.assign(**{target: y}).select_dtypes("number").items():
        if (column.abs() > MAX_NUMBER).any():
            raise DemoError(f"column {name!r} has numbers beyond {MAX_NUMBER:g}")
    return X, y


def find_dates(column):
    """Read a column of a CSV file as dates, if all of it are such as ISO 8601 writes them."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) or column.isna().all():
        return column
    dates = pd.to_datetime(column, format="ISO8601", errors="coerce")
    return dates if dates.notna().equals(column.notna()) else column


def check_output(path):
    """Refuse a picture that could not be written before any work is done for it."""
    if path.suffix.lower() != ".png":
        raise DemoError(f"--output must end in .png, got {str(path)!r}")
    try:
        path.open("ab").close()
    except OSError as error:
        raise DemoError(f"--output {str(path)!r} cannot be written: {error}") from error


def contestants():
    """Name and build the regressors to compare, all at their defaults."""
    mlp = MLPRegressor(early_stopping=True, max_iter=1000, random_state=0)
    scaled_mlp = TransformedTargetRegressor(mlp, transformer=StandardScaler())
    return {
        "k-NN (k=5)": make_pipeline(TableEncoder(), StandardScaler(), KNeighborsRegressor()),
        "MLP": make_pipeline(TableEncoder(), StandardScaler(), scaled_mlp),
        "dense head": DenseHeadRegressor(random_state=0),
        "SoftStepKNeighborsRegressor": SoftStepKNeighborsRegressor(random_state=0),
        "NONARegressor": NONARegressor(random_state=0),
    }


def compare(X, y):
    """Print a table of cross-validated scores and times."""
    folds = KFold(N_SPLITS, shuffle=True, random_state=0)
    print(f"{f'{N_SPLITS}-fold cross-validation':<28} {'R²':>6} {'± sd':>6} {'fit, s':>7}")
    for name, regressor in contestants().items():
        result = cross_validate(regressor, X, y, cv=folds)
        scores, seconds = result["test_score"], result["fit_time"]
        print(f"{name:<28} {scores.mean():6.3f} {scores.std():6.3f} {seconds.mean():7.2f}")


def show_one_prediction(X, y, output):
    """Print the neighbours behind the first held-out prediction, and draw them."""
    from matplotlib.figure import Figure

    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    reg = NONARegressor(random_state=0).fit(X_train, y_train)
    query, predictions = X_test[:1], reg.predict(X_test)
    print(
        f"\nRow {query.index[0]}: predicted {predictions[0]:.4g}, true {y_test[0]:.4g}, because of"
    )
    table = reg.explain(query, n_neighbors=min(5, len(X_train))).drop(columns="query")
    print(table.to_string(index=False, float_format="{:.4g}".format))

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    PredictionErrorDisplay.from_predictions(
        y_test, predictions, kind="actual_vs_predicted", ax=left
    )
    left.set_title(f"Held-out rows, R² = {reg.score(X_test, y_test):.2f}")
    NeighborsDisplay.from_estimator(reg, query, y_test[0], ax=right)
    right.set_title(f"Row {query.index[0]}: " + right.get_title())
    figure.savefig(output, dpi=120)
    print(f"\nPicture written to {output}")


if __name__ == "__main__":
    sys.exit(main())
