"""The programs of the page about services."""

import copy
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from safetensors.numpy import save_file
from sklearn.datasets import load_diabetes

from nona_sklearn import NONARegressor, export_onnx, load, onnx_bank, save

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
FILE, BANK = Path("diabetes.safetensors"), Path("bank.safetensors")
WITH_ROWS, GRAPH = "nona_sklearn.load", "onnxruntime"


def program(text):
    """The program of the page that contains a text."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [code for code in programs if text in code]
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a service, with the module that its programs import."""
    Path(tmp_path, "latest.py").write_text(program("class Latest"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("latest", None)


@pytest.fixture
def served(folder):
    """An estimator, and patients."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X["sex"] = X["sex"].map({1.0: "female", 2.0: "male"})
    reg = NONARegressor(n_estimators=1, max_iter=5, random_state=0).fit(X[:400], y[:400])
    return reg, X[400:]


@contextmanager
def running(text):
    """A service in a thread: its port, and the names of its program."""
    names = {}
    exec(program(text), names)
    server = uvicorn.Server(uvicorn.Config(names["app"], port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1], names
    finally:
        server.should_exit = True
        thread.join()


def post(port, path, content):
    """The status and the answer of a request."""
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@contextmanager
def asked(port, patient):
    """Four threads that ask for a patient while the block runs: what they are answered."""
    answers, ended = [], threading.Event()

    def ask(_):
        while not ended.is_set():
            answers.append(post(port, "/predict", patient))

    with ThreadPoolExecutor(4) as pool:
        done = pool.map(ask, range(4))
        try:
            yield answers
        finally:
            ended.set()
    list(done)  # raises what they raised


def replace_file(path, write):
    """Let a function write a file beside, and put it in place."""
    write(Path(f"new {path}"))
    os.replace(f"new {path}", path)


def damage(path):
    """Put a part of a file in its place."""
    content = path.read_bytes()
    replace_file(path, lambda beside: beside.write_bytes(content[: len(content) // 2]))


def numbers_of(reg, X):
    """What a service answers for the first patient: the prediction and the interval."""
    return [reg.predict(X[:1])[0], *reg.predict_quantiles(X[:1], [0.05, 0.95])[0]]


def assert_answered(answers, *models):
    """That each answer, as a whole, is that of a model, and each model has answered."""
    assert {status for status, _ in answers} == {200}
    found = np.array([[each["prediction"], *each["interval"]] for _, each in answers])
    close = [np.isclose(found, model, rtol=1e-5).all(axis=1) for model in models]
    assert np.any(close, axis=0).all()
    assert np.any(close, axis=1).all()


def test_a_file_is_read_again_when_it_has_been_replaced(folder, caplog):
    from latest import Latest

    path = Path("number")
    with pytest.raises(FileNotFoundError):
        Latest(path, str)()
    path.write_text("1")
    latest, reads = Latest(path, lambda path: reads.append(1) or int(path.read_text())), []
    assert [latest() for _ in range(3)] == [1, 1, 1]
    assert len(reads) == 1
    replace_file(path, lambda beside: beside.write_text("2"))
    assert latest() == 2
    replace_file(path, lambda beside: beside.write_text("damaged"))
    with caplog.at_level(logging.ERROR):
        assert [latest(), latest()] == [2, 2]
    assert len(caplog.records) == 1
    replace_file(path, lambda beside: beside.write_text("3"))
    assert latest() == 3
    assert len(reads) == 4


@pytest.mark.slow
def test_the_service_answers_with_the_rows_behind_a_prediction(served):
    reg, X = served
    save(reg, FILE)
    with running(WITH_ROWS) as (port, _):
        status, found = post(port, "/predict", X.iloc[0].to_dict())
    assert_answered([(status, found)], numbers_of(reg, X))
    low, high = found["interval"]
    assert low < found["prediction"] < high
    assert len(found["rows"]) in (3, 4)  # and perhaps all others
    assert [row["neighbor"] for row in found["rows"][:3]] == reg.heaviest_neighbors(X[:1], 3)[1][
        0
    ].tolist()


@pytest.mark.slow
def test_the_service_names_what_is_wrong_while_it_answers(served):
    reg, X = served
    save(reg, FILE)
    patient = X.iloc[0].to_dict()
    without = {name: value for name, value in patient.items() if name != "age"}
    with running(WITH_ROWS) as (port, _), asked(port, patient) as answers:
        for wrong in (without, patient | {"age": "old"}) * 3:
            status, answer = post(port, "/predict", wrong)
            assert status == 422
            assert "age" in answer["detail"]
        status, answer = post(port, "/predict", patient | {"sex": None})
        assert status == 200
        assert np.isfinite(answer["prediction"])
    assert_answered(answers, numbers_of(reg, X))


@pytest.mark.slow
def test_all_workers_answer_by_an_edit(served):
    reg, X = served
    save(reg, FILE)
    patient, *patients = X.to_dict("records")
    targets, edited = [300.0] * len(patients), copy.copy(reg)
    edited.add_neighbors(X[1:].reset_index(drop=True), targets)
    before, after = numbers_of(reg, X), numbers_of(edited, X)
    with running(WITH_ROWS) as (port, _), running(WITH_ROWS) as (other, _):
        with asked(other, patient) as answers:
            while not answers:
                time.sleep(0.01)
            content = {"patients": patients, "targets": targets}
            status, ids = post(port, "/add", content)
            assert (status, ids) == (200, [*range(400, 441)])
            for each in (port, other):
                assert_answered([post(each, "/predict", patient)], after)
            for wrong in ({"patients": patients, "targets": [1.0]}, content | {"targets": []}):
                assert post(port, "/add", wrong)[0] == 422
            status, answer = post(other, "/remove", [*ids, 1000])
            assert status == 422
            assert answer["detail"] == "ids must be in the bank, got unknown [1000]"
            assert len(load(FILE).bank_) == 441
            assert post(other, "/remove", ids)[0] == 200
            assert_answered([post(port, "/predict", patient)], before)
        assert_answered(answers, before, after)
    assert len(load(FILE).bank_) == 400


@pytest.mark.slow
def test_new_files_drop_no_request_and_damaged_ones_leave_the_model(served):
    reg, X = served
    edited = copy.copy(reg).remove_neighbors(ids=range(0, 400, 2))
    save(reg, FILE)
    with running(WITH_ROWS) as (port, names):
        read = names["model"].read
        names["model"].read = lambda path: time.sleep(0.05) or read(path)  # requests wait
        patient = X.iloc[0].to_dict()
        with asked(port, patient) as answers:
            for model in (edited, reg, edited):
                replace_file(FILE, lambda beside, model=model: save(model, beside))
                assert_answered([post(port, "/predict", patient)], numbers_of(model, X))
            damage(FILE)
            for _ in range(2):
                assert_answered([post(port, "/predict", patient)], numbers_of(edited, X))
            assert post(port, "/remove", [1])[0] == 200  # which writes the model
            answers.append(post(port, "/predict", patient))
        smaller = copy.copy(edited).remove_neighbors(ids=[1])
        assert_answered(answers, *(numbers_of(model, X) for model in (reg, edited, smaller)))
    assert 1 not in load(FILE).bank_.ids


@pytest.mark.slow
def test_the_graph_answers_the_same_by_each_bank(served):
    reg, X = served
    edited = copy.copy(reg).remove_neighbors(ids=range(0, 400, 2))
    export_onnx(reg, "diabetes.onnx", quantiles=[0.05, 0.95], bank="input")
    save_file(onnx_bank(reg), BANK)
    patient = X.iloc[0].to_dict()
    with running(GRAPH) as (port, _):
        with asked(port, patient) as answers:
            for model in (reg, edited):
                replace_file(BANK, lambda beside, model=model: save_file(onnx_bank(model), beside))
                status, found = post(port, "/predict", patient)
                assert_answered([(status, found)], numbers_of(model, X))
                heaviest = model.heaviest_neighbors(X[:1], 3)[1][0]
                assert found["rows"][:3] == heaviest.tolist()
            damage(BANK)
            assert_answered([post(port, "/predict", patient)], numbers_of(edited, X))
        assert_answered(answers, numbers_of(reg, X), numbers_of(edited, X))


@pytest.mark.slow
def test_mlflow(served):
    """In a process of its own, since MLflow warns, and changes global settings."""
    reg, X = served
    save(reg, "diabetes.safetensors")
    X.to_pickle("patients.pkl")
    lines = [
        "import nona_sklearn, numpy, pandas",
        "reg = nona_sklearn.load('diabetes.safetensors')",
        program("mlflow"),
        "numpy.save('predictions.npy', again.predict(pandas.read_pickle('patients.pkl')))",
    ]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load("predictions.npy"), reg.predict(X))
