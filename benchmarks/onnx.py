"""Graphs of raw tables beside the estimators: predictions, quantiles, size and time of a query.

Needs pandas, onnxruntime and onnxscript. The default regressor is fitted to a split of each raw
table and exported. onnxruntime then predicts the test rows from the raw table. Differences are
relative to the standard deviation of the targets, times those of one query on one thread.
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd

import nona_sklearn

from . import real_data
from .quick import shorten
from .raw import made_up_table
from .timing import threads, time_in_turns

LEVELS = (0.05, 0.5, 0.95)
AT_ONCE = 500  # queries × bank are in memory
LARGEST_DIFFERENCE = 1e-5


def session_of(model, path):
    """Export a model, and open its graph on one thread."""
    nona_sklearn.export_onnx(model, path, quantiles=LEVELS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def run_graph(session, inputs):
    """Predictions and quantiles of some queries at a time."""
    n_queries = len(next(iter(inputs.values())))
    parts = [
        session.run(
            ["prediction", "quantiles"],
            {name: values[first : first + AT_ONCE] for name, values in inputs.items()},
        )
        for first in range(0, n_queries, AT_ONCE)
    ]
    return map(np.concatenate, zip(*parts, strict=True))


def measure(model, X, X_test, y, repeats):
    """Fit a model, and compare it with its graph."""
    model.fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.onnx")
        session = session_of(model, path)
        size = path.stat().st_size
    prediction, quantiles = run_graph(session, nona_sklearn.onnx_inputs(model, X_test))
    differences = {
        "prediction": prediction - model.predict(X_test),
        "quantiles": quantiles - model.predict_quantiles(X_test, LEVELS),
    }
    query = nona_sklearn.onnx_inputs(model, X_test[:1])
    seconds = time_in_turns(
        {
            "ms, onnxruntime": partial(session.run, ["prediction"], query),
            "ms, predict": partial(model.predict, X_test[:1]),
        },
        repeats,
    )
    return {
        **{name: abs(each).max() / y.std() for name, each in differences.items()},
        "MB": size / 2**20,
        **{name: 1000 * each for name, each in seconds.items()},
    }


def add_arguments(parser):
    parser.add_argument("--sets", nargs="+", default=list(real_data.RAW))


def run(args):
    """Measure, print, check the claim."""
    sets = {name: real_data.RAW[name] for name in args.sets}
    if args.quick:
        sets = {"made up": lambda: made_up_table(150)}
    results = {}
    with threads(1):
        for name in sets:
            X, X_test, y, _ = real_data.split(name, 0, sets=sets)
            model = nona_sklearn.NONARegressor(random_state=0)
            model = shorten(model) if args.quick else model
            results[name] = measure(model, X, X_test, y, 1 if args.quick else 20)
    table = pd.DataFrame(results).T
    print(table.to_string(float_format="{:.2g}".format))
    assert (table[["prediction", "quantiles"]] <= LARGEST_DIFFERENCE).all(axis=None)
