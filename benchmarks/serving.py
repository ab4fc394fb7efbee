"""One row over HTTP: the services of docs/serving.md, with this package and as a graph.

Milliseconds from request to answer, on the same machine, one request after another.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes

from nona_sklearn import NONARegressor, export_onnx, save

PAGE = Path(__file__).parents[1] / "docs" / "serving.md"
SERVICES = {"with the rows": "nona_sklearn.load", "as a graph": "InferenceSession"}
N_REQUESTS, MOST_MILLISECONDS = 500, 50


@contextmanager
def service(text, folder):
    """A connection to the service whose program contains a text."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [code for code in programs if text in code]
    Path(folder, "app.py").write_text(code)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": str(PAGE.parents[1]), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--log-level", "error"], cwd=folder, env=environment
    ) as process:
        try:
            with closing(connected(port)) as connection:
                yield connection
        finally:
            process.terminate()


def connected(port):
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


def measure(connection, patients):
    """Milliseconds of each request, and the last answer."""
    milliseconds = []
    for patient in patients:
        body = json.dumps(patient)
        start = time.perf_counter()
        connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        milliseconds.append(1000 * (time.perf_counter() - start))
    return milliseconds, answer


def run(args):
    """Measure both services, print, compare their answers."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X["sex"] = X["sex"].map({1.0: "female", 2.0: "male"})
    few = {"n_estimators": 1, "max_iter": 2} if args.quick else {}
    reg = NONARegressor(random_state=0, **few).fit(X[:400], y[:400])
    rows = X[400:].to_dict("records")
    patients = [rows[i % len(rows)] for i in range(5 if args.quick else N_REQUESTS)]
    answers = []
    print(f"{'service':16s}{'median':>10s}{'99 %':>10s}")
    with tempfile.TemporaryDirectory() as folder:
        save(reg, Path(folder, "diabetes.safetensors"))
        export_onnx(reg, Path(folder, "diabetes.onnx"), quantiles=[0.05, 0.95])
        for name, text in SERVICES.items():
            with service(text, folder) as connection:
                measure(connection, patients[:5])
                milliseconds, answer = measure(connection, patients)
            median, most = np.quantile(milliseconds, [0.5, 0.99])
            print(f"{name:16s}{median:10.1f}{most:10.1f}", flush=True)
            answers.append(answer["prediction"])
            assert args.quick or median <= MOST_MILLISECONDS
    np.testing.assert_allclose(*answers, rtol=1e-5)
