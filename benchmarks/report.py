"""The report of one prediction, and a page to look around in: seconds and sizes.

On a table of classes and on one of numbers, medians over queries. Seconds are processor time on
one thread. Of classes, a report always has a contrast. Then the explorer of many rows: seconds to
make it, its size and, where selenium and chromedriver are installed, seconds until a browser shows
it, with a map that a processor draws.
"""

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_wine

from nona_sklearn import (
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    counterfactuals,
    explore,
)

from . import real_data
from .predict import fit_quickly, make_rows
from .quick import shorten
from .timing import timed

N_QUERIES = 20
MOST_SECONDS, MOST_BYTES = 0.3, 300_000
N_ROWS, MOST_TO_SHOW = 50_000, 3.0  # rows of an explorer, and seconds until it is shown
SHOWN = "return window.Bokeh?.documents[0]?.is_idle && report.childElementCount > 0"


def measure(name, sets, model, n_queries):
    """Print the median seconds of reports, counterfactuals and predictions, and sizes."""
    X_train, X_test, y_train, _ = real_data.split(name, 0, sets=sets)
    model.fit(X_train, y_train)
    limits = [{}] * n_queries
    if isinstance(model, NONARegressor):
        spread = 0.25 * np.std(y_train)
        limits = [{"at_least": p + spread} for p in model.predict(X_test[:n_queries])]
    seconds, sizes = {"report": [], "with a contrast": [], "contrast": [], "predict": []}, []
    for i, limit in enumerate(limits):
        query = X_test[i : i + 1]
        jobs = {
            "report": partial(NeighborsReport, model, query, X_train),
            "with a contrast": partial(NeighborsReport, model, query, X_train, **limit),
            "contrast": partial(counterfactuals, model, query, X_train, **limit),
            "predict": partial(model.predict, query),
        }
        for job, function in jobs.items():
            seconds[job].append(timed(function, time.process_time))
        sizes.append(len(NeighborsReport(model, query, X_train, **limit)._repr_html_()))
    medians = {job: float(np.median(each)) for job, each in seconds.items()}
    shown = "".join(f"{each:>17.3f}" for each in medians.values())
    print(f"{name:12s}{X_test.shape[1]:8d}{shown}{max(sizes):10,d}", flush=True)
    return medians, max(sizes)


def measure_explorer(n_rows):
    """Print seconds to make the page of a bank, its size, and seconds until it is shown."""
    X, y = make_rows(n_rows, 0)
    model = fit_quickly(X, y)
    start = time.perf_counter()
    page = explore(model, features=X)
    made = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "explorer.html")
        page.save(path)
        shown = [_seconds_to_show(path) for _ in range(3)]
        megabytes = path.stat().st_size / 1e6
    print(f"Explorer of {n_rows:,} rows: made in {made:.1f} s, {megabytes:.1f} MB")
    if None in shown:
        print("No browser to be driven")
        return None
    print(f"Shown in {min(shown):.2f} s, the best of {len(shown)}")
    return min(shown)


def _seconds_to_show(path):
    """Seconds from the address to the map and the first report; None without a browser."""
    try:
        from selenium import webdriver
        from selenium.webdriver.support.wait import WebDriverWait
    except ImportError:
        return None
    if shutil.which("chromedriver") is None:
        return None
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1300,900"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options) as driver:
        start = time.perf_counter()
        driver.get(f"file://{path}")
        WebDriverWait(driver, 60, poll_frequency=0.02).until(
            lambda _: driver.execute_script(SHOWN)
        )
        return time.perf_counter() - start


def run(args):
    """Print the table and check it."""
    heads = "".join(f"{job:>17s}" for job in ("report", "with a contrast", "contrast", "predict"))
    print(f"{'set':12s}{'columns':>8s}{heads}{'bytes':>10s}")
    frames = {"return_X_y": True, "as_frame": True}
    small = [
        ("wine", {"wine": partial(load_wine, **frames)}, NONAClassifier(random_state=0)),
        (
            "diabetes",
            {"diabetes": partial(load_diabetes, **frames)},
            NONARegressor(random_state=0),
        ),
    ]
    if args.quick:
        for name, sets, model in small:
            measure(name, sets, shorten(model), 2)
        measure_explorer(200)
        return
    seconds = measure_explorer(N_ROWS)
    assert seconds is None or seconds <= MOST_TO_SHOW
    cases = [
        ("credit", real_data.CLASSES, NONAClassifier(random_state=0)),
        ("ames", real_data.RAW, NONARegressor(random_state=0)),
        small[1],
    ]
    for name, sets, model in cases:
        medians, size = measure(name, sets, model, N_QUERIES)
        assert size <= MOST_BYTES
        assert name == "ames" or medians["with a contrast"] <= MOST_SECONDS
