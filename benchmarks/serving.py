"""One row over HTTP: the services of docs/serving.md, with this package and as a graph.

Milliseconds from request to answer on the same machine: of one client, and of CLIENTS at a time,
while nothing else happens, while rows come and go, and while the file of the model, or of the
graph's bank, is replaced. Every answer is compared with the estimator's: it must be that of one
of the two banks, as a whole. With 20 clients a request waits for 19 others. Run it on an idle
machine. One worker: with two, uvicorn leaves out TCP_NODELAY, and answers wait for 40 ms.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from copy import copy
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import load_diabetes

from nona_sklearn import NONARegressor, export_onnx, onnx_bank, save

PAGE = Path(__file__).parents[1] / "docs" / "serving.md"
SERVICES = {"with the rows": "nona_sklearn.load", "as a graph": "InferenceSession"}
LEVELS = [0.05, 0.95]
CLIENTS, WORKERS = 20, 1
N_ALONE, N_TOGETHER = 200, 1000  # requests
PAUSE = 0.5  # seconds between two edits, or two files
MOST_ALONE = 50  # milliseconds, median
#: Requests of several clients take as long as one after another, and no longer.
MOST_WAITING = 1.5
MOST_BESIDE_EDITS = 2.0  # times the 99 % of the clients alone


@contextmanager
def service(text, folder):
    """The port of the service whose program contains a text."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for path, part in (("latest.py", "class Latest"), ("app.py", text)):
        (code,) = [code for code in programs if part in code]
        Path(folder, path).write_text(code)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--workers", str(WORKERS), "--log-level", "critical"]
    environment = os.environ | {"PYTHONPATH": str(PAGE.parents[1]), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app:app", *options], cwd=folder, env=environment
    ) as process:
        try:
            yield port
        finally:
            process.terminate()


def connect(port):
    """A connection to a port, as soon as a service listens there."""
    for _ in range(600):
        connection = HTTPConnection("127.0.0.1", port)
        try:
            connection.connect()
        except ConnectionRefusedError:
            connection.close()
            time.sleep(0.1)
        else:
            return connection
    raise TimeoutError("the service did not start within a minute")


def post(connection, path, content):
    """The status and the answer of a request."""
    connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def ask(port, patients, numbers):
    """Ask for patients one after another: milliseconds, and statuses with answers."""
    milliseconds, answers = [], []
    with closing(connect(port)) as connection:
        for i in numbers:
            start = time.perf_counter()
            answers.append((i, *post(connection, "/predict", patients[i])))
            milliseconds.append(1000 * (time.perf_counter() - start))
    return milliseconds, answers


def ask_together(port, patients, n_requests):
    """The same by CLIENTS threads, and requests per second."""
    numbers = np.arange(n_requests) % len(patients)
    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        parts = [*pool.map(lambda some: ask(port, patients, some), np.split(numbers, CLIENTS))]
    per_second = n_requests / (time.perf_counter() - start)
    milliseconds, answers = ([*chain(*part)] for part in zip(*parts, strict=True))
    return milliseconds, answers, per_second


@contextmanager
def beside(change):
    """Call a function in turns, with 0, 1, 0, ..., while the block runs; at the end with 0."""
    ended, failures, n_calls = threading.Event(), [], []

    def run():
        try:
            while not (ended.wait(PAUSE) and len(n_calls) % 2 == 0):
                change(1 - len(n_calls) % 2)
                n_calls.append(1)
        except Exception as error:  # the block must know
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield n_calls
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


def truth(reg, X):
    """What an estimator answers for all patients: the prediction, the interval, the weights."""
    ends = reg.predict_quantiles(X, LEVELS)
    return np.c_[reg.predict(X), ends, reg.heaviest_neighbors(X, 3)[0]]


def count_wrong(answers, banks):
    """The number of answers that are not those of one of the banks, as a whole."""
    wrong = 0
    for i, status, answer in answers:
        if status != 200:
            wrong += 1
            continue
        weights = answer.get("weights") or [row["weight"] for row in answer["rows"]]
        found = [answer["prediction"], *answer["interval"], *weights[:3]]
        wrong += not any(np.allclose(found, bank[i], rtol=1e-5, atol=1e-5) for bank in banks)
    return wrong


def replace_file(path, write):
    """Let a function write a file beside, and put it in place at once."""
    write(Path(path.parent, f"new {path.name}"))
    os.replace(Path(path.parent, f"new {path.name}"), path)


def run(args):
    """Measure both services, print, check answers and limits."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X["sex"] = X["sex"].map({1.0: "female", 2.0: "male"})
    few = {"n_estimators": 1, "max_iter": 2} if args.quick else {}
    regs = [NONARegressor(random_state=0, **few).fit(X[:400], y[:400])]
    regs.append(copy(regs[0]).remove_neighbors(ids=range(0, 400, 2)))
    with_new = copy(regs[0])
    added, targets = X[400:].assign(bmi=X["bmi"] + 1).reset_index(drop=True), 2 * y[400:]
    with_new.add_neighbors(added, targets.to_numpy())
    patients, added = X[400:].to_dict("records"), added.to_dict("records")
    known = {name: truth(reg, X[400:]) for name, reg in (("0", regs[0]), ("1", regs[1]))}
    known["new"] = truth(with_new, X[400:])
    n_alone, n_together = (5, 2 * CLIENTS) if args.quick else (N_ALONE, N_TOGETHER)
    print(f"load average {os.getloadavg()[0]:.1f}, {WORKERS} workers, {CLIENTS} clients")
    print(
        f"{'service':16s}{'load':16s}{'median':>9s}{'99 %':>9s}{'per second':>12s}{'changes':>9s}"
    )
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        files = {
            "with the rows": (
                Path(folder, "diabetes.safetensors"),
                [lambda path, reg=reg: save(reg, path) for reg in regs],
            ),
            "as a graph": (
                Path(folder, "bank.safetensors"),
                [lambda path, reg=reg: save_file(onnx_bank(reg), path) for reg in regs],
            ),
        }
        export_onnx(regs[0], Path(folder, "diabetes.onnx"), quantiles=LEVELS, bank="input")
        for name, text in SERVICES.items():
            path, writers = files[name]
            replace_file(path, writers[0])
            with service(text, folder) as port:
                ids = []

                def edit(more, port=port, ids=ids):
                    with closing(connect(port)) as connection:
                        if more:
                            content = {"patients": added, "targets": targets.tolist()}
                            status, ids[:] = post(connection, "/add", content)
                        else:
                            status, _ = post(connection, "/remove", ids)
                    assert status == 200

                def reload(other, path=path, writers=writers):
                    replace_file(path, writers[other])

                loads = {"20 clients": (None, "0"), "and new files": (reload, "01")}
                if name == "with the rows":
                    loads["and edits"] = edit, ("0", "new")
                ask(port, patients, [*range(5)] * 4)
                if name == "with the rows":  # the first edits are slower, too
                    edit(1), edit(0)
                times, answers = ask(port, patients, np.arange(n_alone) % len(patients))
                alone = float(np.median(times))
                rows = {"1 client": (times, answers, n_alone / sum(times) * 1000, "0", 0)}
                for load, (change, banks) in loads.items():
                    if change is None:
                        rows[load] = *ask_together(port, patients, n_together), banks, 0
                        continue
                    with beside(change) as changes:
                        found = ask_together(port, patients, n_together)
                    rows[load] = *found, banks, len(changes)
            most = {}
            for load, (times, answers, per_second, banks, n_changes) in rows.items():
                median, most[load] = np.quantile(times, [0.5, 0.99])
                print(
                    f"{name:16s}{load:16s}{median:9.1f}{most[load]:9.1f}{per_second:12.0f}"
                    f"{n_changes:9d}",
                    flush=True,
                )
                wrong = count_wrong(answers, [known[bank] for bank in banks])
                assert wrong == 0, f"{wrong} of {len(answers)} answers are wrong: {name}, {load}"
            if args.quick:
                continue
            if alone > MOST_ALONE:
                failed.append(f"{name}: one client waits for {alone:.1f} ms")
            if rows["20 clients"][2] * alone / 1000 * MOST_WAITING < 1:
                failed.append(f"{name}: 20 clients slow each other")
            for load in [*rows][2:]:
                if most[load] > MOST_BESIDE_EDITS * most["20 clients"]:
                    failed.append(f"{name}: 20 clients {load} wait for {most[load]:.1f} ms")
    assert not failed, failed
