import subprocess
import sys
from pathlib import Path
from typing import TypeVar, get_args, get_type_hints

import pytest
from inner.utils import storable_estimator, storable_parameters

pytestmark = pytest.mark.first

ROOT = Path(__file__).parents[1]

#: A program without errors.
RIGHT = """
import numpy as np

from nona_sklearn import (
    EmbeddingDisplay,
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    TrainingOptions,
    load,
    save,
    unwrap,
)

X: np.ndarray = np.arange(60.0).reshape(30, 2)
y: np.ndarray = X[:, 0]
reg = NONARegressor(n_neighbors=5, n_estimators=1).fit(X, y)
mean: np.ndarray = reg.predict(X)
mean, std = reg.predict(X, return_std=True)
low, high = reg.predict_quantiles(X, [0.1, 0.9]).T
distances, ids = reg.kneighbors(X, 3)
rows: np.ndarray = reg.kneighbors(X, return_distance=False)
weights, ids = reg.heaviest_neighbors(X, 3)
graph = reg.neighbor_weights(None, tolerance=0.01)
print(reg.explain(X)["weight"], graph.shape, float(mean[0]), reg.score(X, y) + 1)
print(reg.neighborhood(X)["distance"], reg.attribute(X, X, of="distances", n_neighbors=3))
new: np.ndarray = reg.add_neighbors(X, y)
reg.remove_neighbors(ids=new).compress(10).calibrate()
classifier = NONAClassifier(loss="log_loss").fit(X, y > 3)
print(classifier.predict_proba(X)[:, 0].max(), classifier.classes_)
save(reg, "reg", overwrite=True)
print(load("reg").predict(X), unwrap(reg).predict(X))
EmbeddingDisplay.from_estimator(reg).plot().figure_.savefig("embedding.png")
NeighborsReport(reg, X[:1], X, n_neighbors=4).save("report.html")
knn: SoftStepKNeighborsRegressor = SoftStepKNeighborsRegressor(5, weighting="uniform").fit(X, y)
print(knn.get_params(), reg.set_params(max_iter=3, training__batch_size=16))
options = TrainingOptions(batch_size="auto", max_time=60)
NONARegressor(table_encoder=TableEncoder([0]), training=options, softstep=SoftStep("s2"))
reg.set_fit_request(groups=True).fit(X, y, groups=y)
"""
#: Lines with an error each, and what its message says.
WRONG = {
    "NONARegressor(n_neighbours=5)": 'did you mean "n_neighbors"?',
    'NONARegressor(max_iter="many")': 'expected "int"',
    "TrainingOptions(batchsize=3)": 'did you mean "batch_size"?',
    "TrainingOptions(32)": "Too many positional arguments",
    'NONARegressor(training={"batch_size": 32})': 'expected "TrainingOptions | None"',
    "reg.fit(X, y, sample_weights=y)": 'Unexpected keyword argument "sample_weights"',
    "reg.kneighbors(X, n_neighbours=5)": 'Unexpected keyword argument "n_neighbours"',
    "reg.predict(X, quantiles=[0.1, 0.9])": 'No overload variant of "predict"',
    "reg.predict(X, [0.1, 0.9])": 'No overload variant of "predict"',
    "reg.predict(X, return_std=True).mean()": 'has no attribute "mean"',
    "reg.score(X, y).shape": '"float" has no attribute "shape"',
    "reg.add_neighbors(X)": 'Missing positional argument "y"',
    "save(reg)": 'Missing positional argument "path"',
    "NeighborsReport(reg, X, n_neighbours=5)": 'Unexpected keyword argument "n_neighbours"',
    "EmbeddingDisplay.from_estimator(reg, scatter_kwarg={})": 'argument "scatter_kwarg"',
}
START = "\n".join(
    RIGHT.split("\n")[: RIGHT.split("\n").index("mean: np.ndarray = reg.predict(X)")]
)


def mypy(*arguments, **options):
    command = [sys.executable, "-m", "mypy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.slow
def test_mypy():
    done = mypy("nona_sklearn", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_programs_of_users(tmp_path, monkeypatch):
    """A right one has no errors in strict mode, and each error of a wrong one is found."""
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("\n".join([START, *WRONG]))
    options = ["--strict", "--follow-imports=silent", "--config-file", ROOT / "pyproject.toml"]
    cache = ["--cache-dir", ROOT / ".mypy_cache" / "users"]
    done = mypy(*options, *cache, "right.py", "wrong.py", cwd=tmp_path)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert not [error for error in errors if error.startswith("right.py")]
    first = len(START.split("\n")) + 1
    for number, (line, message) in enumerate(WRONG.items(), first):
        of_line = [each for each in errors if each.startswith(f"wrong.py:{number}: ")]
        assert any(message in each for each in of_line), (line, of_line)


@pytest.mark.parametrize("decorator", [storable_estimator, storable_parameters])
def test_decorators_of_classes(decorator):
    """They return the type that they are given: Pyright, unlike mypy, takes it for the class's."""
    (given,), returned = get_args(get_type_hints(decorator)["return"])
    assert isinstance(given, TypeVar)
    assert returned is given
