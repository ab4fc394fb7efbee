"""What files cost beside pickles, and what a graph in onnxruntime takes for one query.

A default regressor with one network whose bank holds a million rows: the size of its file, seconds
to write it and to read it, mapped into memory, with and without its checksum. Then one query as in
a service, of the estimator and of its ONNX graph, side by side on one thread; processor
time, which a busy machine changes least.
"""

import pickle
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime

import nona_sklearn

from .predict import N_SMALL, fit_quickly, in_turns, make_rows, show
from .timing import threads, timed

N_BANK = 1_000_000


def measure_files(n_bank, repeats):
    """Print sizes and seconds; returns the file's size over the pickle's, and seconds to load."""
    model = fit_quickly(*make_rows(n_bank, 0), n_estimators=1)
    with tempfile.TemporaryDirectory() as folder:
        path, pickled = Path(folder, "file"), Path(folder, "pickle")
        saving = timed(lambda: nona_sklearn.save(model, path))
        pickling = timed(lambda: pickled.write_bytes(pickle.dumps(model)))
        seconds = in_turns(
            {
                "load": partial(nona_sklearn.load, path),
                "load, verify=False": partial(nona_sklearn.load, path, verify=False),
                "unpickle": lambda: pickle.loads(pickled.read_bytes()),
            },
            repeats,
        )
        size = path.stat().st_size / pickled.stat().st_size
        megabytes = path.stat().st_size / 2**20
    print(f"A bank of {n_bank:,} rows: {megabytes:.1f} MB, {size:.4f} × the pickle")
    print(f"Written in {saving:.2f} s; the pickle in {pickling:.2f} s")
    show("Read, its bank not touched but for the checksum", seconds, "unpickle")
    return size, seconds["load"]


def measure_one(n_bank, repeats):
    """Milliseconds of one query, of estimators and of their graphs; returns graph over ours."""
    X, y = make_rows(n_bank, 0)
    query = make_rows(1, 1)[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    ratios = []
    for n_estimators in (1, 3):
        model = fit_quickly(X, y, n_estimators=n_estimators)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "graph")
            nona_sklearn.export_onnx(model, path)
            session = onnxruntime.InferenceSession(path, options)
        rivals = {
            "predict": partial(model.predict, query),
            "onnxruntime": partial(session.run, None, {"X": query}),
        }
        prediction = session.run(None, {"X": query})[0]
        np.testing.assert_allclose(prediction, model.predict(query), rtol=1e-5, atol=1e-5)
        title = f"One query, {n_bank:,} rows, {n_estimators} network(s)"
        ratios.append(show(title, in_turns(rivals, 10 * repeats), "predict")["onnxruntime"])
    return ratios


def run(args):
    """Measure, print, check the claims."""
    n_bank, n_small, repeats = (200, 100, 1) if args.quick else (N_BANK, N_SMALL, 5)
    with threads(1):
        size, seconds = measure_files(n_bank, repeats)
        ratios = measure_one(n_small, repeats)
    if not args.quick:
        assert size <= 1.02
        assert seconds <= 1
        assert max(ratios) <= 1
