"""What an edit of one row costs in a bank of 200,000 rows, and the first prediction after it.

One network is trained on 5,000 rows × 20 columns, and the other rows are added. Then a row is
added, a query is predicted twice, a row is removed, and a query is predicted twice, again and
again. Rows that the kernel is fitted to have lines of their own: for the first that leaves, the
kernel's matrix is inverted; later ones are taken out in closed form. Times are milliseconds of
processor time, medians. The first prediction is relative to the second, which is warm.
"""

import time
from functools import partial

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._testing import ignore_warnings

from nona_sklearn import NONARegressor

from .timing import threads, timed

N_ROWS, N_COLUMNS, N_TRAIN, N_EPOCHS = 200_000, 20, 5_000, 3
N_EDITS, N_OF_KERNEL = 31, 11
#: The most milliseconds of an edit, and the most of a first prediction.
MOST_MS, MOST_RATIO = 5.0, 1.5
RIVALS = {
    "l2, brute": {"similarity": "l2", "algorithm": "brute"},
    "l2, brute, frame": {"similarity": "l2", "algorithm": "brute"},
    "l2, hnsw": {"similarity": "l2", "algorithm": "hnsw"},
    "features, brute": {"similarity": "features", "algorithm": "brute"},
}

milliseconds = partial(timed, clock=time.process_time)


def edit_one_by_one(model, make_row, removed):
    """Add a row and remove one again and again, with predictions after each edit.

    Parameters
    ----------
    model : NONARegressor
        The fitted regressor.
    make_row : callable
        Returns a new row, as a table.
    removed : iterable of int
        Ids of the rows to remove.

    Returns
    -------
    dict of str to float
        Medians, of processor time in ms, and of ratios of two predictions.
    """
    columns = "add, ms", "add, ratio", "remove, ms", "remove, ratio", "predict, ms"
    found = {name: [] for name in columns}
    for row_id in removed:
        query, row = make_row(), make_row()
        edits = {
            "add": partial(model.add_neighbors, row, [0.0]),
            "remove": partial(model.remove_neighbors, ids=row_id),
        }
        for name, edit in edits.items():
            found[f"{name}, ms"].append(1000 * milliseconds(edit))
            first, second = (milliseconds(partial(model.predict, query)) for _ in range(2))
            found[f"{name}, ratio"].append(first / second)
            found["predict, ms"].append(1000 * second)
    return {name: float(np.median(values)) for name, values in found.items()}


def measure(n_rows, n_train, n_edits):
    """A table of all rivals."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n_rows, N_COLUMNS))
    y = X[:, 0] + X[:, 1] ** 2 + 0.1 * random.standard_normal(n_rows)
    table = {}
    for name, params in RIVALS.items():
        as_table = pd.DataFrame if "frame" in name else np.asarray

        def make_row(as_table=as_table):
            return as_table(random.standard_normal((1, N_COLUMNS)))

        model = NONARegressor(n_estimators=1, max_iter=N_EPOCHS, random_state=0, **params)
        with ignore_warnings(category=ConvergenceWarning):
            model.fit(as_table(X[:n_train]), y[:n_train])
        model.add_neighbors(as_table(X[n_train:]), y[n_train:])
        # An edit makes room for later ones, and the indexes are built.
        edit_one_by_one(model, make_row, [n_train])
        ids = n_train + 1 + random.permutation(n_rows - n_train - 1)
        table[name] = edit_one_by_one(model, make_row, ids[:n_edits])
        if "hnsw" not in name:
            table[f"{name}, kernel, first"] = edit_one_by_one(model, make_row, [0])
            of_kernel = range(1, 1 + min(n_edits, N_OF_KERNEL))
            table[f"{name}, kernel"] = edit_one_by_one(model, make_row, of_kernel)
        print(pd.DataFrame(table).T.round(2).to_string(), flush=True)
    return pd.DataFrame(table).T


def run(args):
    """Print the table, check the claims."""
    sizes = (2_000, 500, 2) if args.quick else (N_ROWS, N_TRAIN, N_EDITS)
    with threads(1):
        table = measure(*sizes)
    print(table.round(2).to_string())
    if args.quick:
        return
    assert (table[["add, ratio", "remove, ratio"]] <= MOST_RATIO).all(axis=None)
    assert (table[["add, ms", "remove, ms"]] <= MOST_MS).all(axis=None)
