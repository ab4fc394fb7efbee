"""The programs of the page about services."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fastapi import HTTPException
from sklearn.datasets import load_diabetes

from nona_sklearn import NONARegressor, export_onnx, save

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


def program(text):
    """The program of the page that contains a text."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [code for code in programs if text in code]
    return found


@pytest.fixture
def served(tmp_path, monkeypatch):
    """An estimator, in the folder of a service, and patients."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X["sex"] = X["sex"].map({1.0: "female", 2.0: "male"})
    reg = NONARegressor(n_estimators=1, max_iter=5, random_state=0).fit(X[:400], y[:400])
    monkeypatch.chdir(tmp_path)
    return reg, X[400:]


def answer(text, patient):
    """What a service answers, which must be JSON."""
    names = {}
    exec(program(text), names)
    return json.loads(json.dumps(names["predict"](patient)))


@pytest.mark.slow
def test_the_service_answers_with_the_rows_behind_a_prediction(served):
    reg, X = served
    save(reg, "diabetes.safetensors")
    found = answer("nona_sklearn.load", X.iloc[0].to_dict())
    assert found["prediction"] == pytest.approx(reg.predict(X[:1])[0])
    low, high = found["interval"]
    assert low < found["prediction"] < high
    assert len(found["rows"]) in (3, 4)  # and perhaps all others
    assert [row["neighbor"] for row in found["rows"][:3]] == reg.heaviest_neighbors(X[:1], 3)[1][
        0
    ].tolist()


@pytest.mark.slow
def test_the_service_names_what_is_wrong(served):
    reg, X = served
    save(reg, "diabetes.safetensors")
    patient = X.iloc[0].to_dict()
    without = {name: value for name, value in patient.items() if name != "age"}
    for wrong in (without, patient | {"age": "old"}):
        with pytest.raises(HTTPException, match="age") as caught:
            answer("nona_sklearn.load", wrong)
        assert caught.value.status_code == 422
    unknown = answer("nona_sklearn.load", patient | {"sex": None})
    assert np.isfinite(unknown["prediction"])


@pytest.mark.slow
def test_the_graph_answers_the_same(served):
    reg, X = served
    export_onnx(reg, "diabetes.onnx", quantiles=[0.05, 0.95])
    found = answer("onnxruntime", X.iloc[0].to_dict())
    np.testing.assert_allclose(found["prediction"], reg.predict(X[:1])[0], rtol=1e-5)
    ends = reg.predict_quantiles(X[:1], [0.05, 0.95])[0]
    np.testing.assert_allclose(found["interval"], ends, rtol=1e-5)
    assert found["rows"][:3] == reg.heaviest_neighbors(X[:1], 3)[1][0].tolist()


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
