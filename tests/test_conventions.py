"""The house rules that a newcomer relies on, read off the code."""

import ast
import inspect
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

import nona_sklearn
from nona_sklearn import (
    attention,
    datasets,
    embedding,
    losses,
    ranking,
    similarity,
    softstep,
    weighting,
)

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nona_sklearn"
MATHEMATICS = [
    "similarity",
    "ranking",
    "weighting",
    "losses",
    "softstep",
    "attention",
    "embedding",
]
LAYERS = [
    "_validation",
    "_docs",
    "_table",
    *MATHEMATICS,
    "losses",
    "_inputs",
    "_extractor",
    "_settings",
    "_neighbors",
    "_sample_weight",
    "_network",
    "_optimizer",
    "_names",
    "_evaluation",
    "_question",
    "_distribution",
    "_explanation",
    "_bank",
    "_modules",
    "_calibration",
    "_columns",
    "_features",
    "_targets",
    "_class_weight",
    "_scaler",
    "_pools",
    "_refine",
    "_averaging",
    "_budget",
    "_progress",
    "_training",
    "_turns",
    "_base",
    "_verbs",
    "_regression",
    "_classification",
    "_estimators",
    "_regressor",
    "_classifier",
    "_heads",
    "_compare",
    "_search",
    "_approximate",
    "_codec",
    "_persistence",
    "_onnx",
    "_merged",
    "_shards",
    "_unwrap",
    "_displays",
    "datasets",
    "__main__",
]


def imports(path):
    """Names of the modules that a file imports, with a dot for our own; and where."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.col_offset) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), node.col_offset


def test_every_file_has_its_layer():
    assert {p.stem for p in PACKAGE.glob("*.py")} == {*LAYERS, "__init__"}


@pytest.mark.parametrize("layer", LAYERS[:-1])
def test_imports_go_one_way(layer):
    for name, _ in imports(PACKAGE / f"{layer}.py"):
        if name.startswith("."):
            assert LAYERS.index(name[1:]) < LAYERS.index(layer), f"{layer} imports {name}"


@pytest.mark.parametrize(
    ("library", "files"),
    [
        ("skorch", {"_averaging", "_budget", "_progress", "_training", "_turns"}),
        ("tqdm", {"_progress"}),
        ("faiss", {"_approximate"}),
        ("onnx", {"_onnx"}),
        ("safetensors", {"_persistence"}),
        ("matplotlib", {"_displays", "__main__"}),
        ("pandas", {"_codec", "_table", "__main__"}),
    ],
)
def test_where_libraries_are_imported(library, files):
    using = {
        path.stem
        for path in PACKAGE.glob("*.py")
        for name, _ in imports(path)
        if name.split(".")[0] == library
    }
    assert using == files


@pytest.mark.parametrize("layer", MATHEMATICS)
def test_mathematics_needs_torch_only(layer):
    outside = {name.split(".")[0] for name, _ in imports(PACKAGE / f"{layer}.py")}
    assert outside <= {"", "torch"} | {
        *("collections", "copy", "dataclasses", "itertools", "math", "typing")
    }


FIRST_FIT = """
import sys, numpy, nona_sklearn
print("matplotlib" in sys.modules)
nona_sklearn.NONARegressor(n_estimators=1, max_iter=1).fit(numpy.eye(9), numpy.arange(9.0))
print("torch._dynamo" in sys.modules)
"""


def test_neither_matplotlib_nor_the_compiler_is_imported_unasked():
    command = [sys.executable, "-W", "ignore:Maximum", "-c", FIRST_FIT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["False", "False"], "")


def public_objects():
    for name in nona_sklearn.__all__:
        yield name, getattr(nona_sklearn, name)
    for module in (
        similarity,
        ranking,
        weighting,
        losses,
        softstep,
        attention,
        embedding,
        datasets,
    ):
        for name in module.__all__:
            if callable(getattr(module, name)):
                yield f"{module.__name__}.{name}", getattr(module, name)


@pytest.mark.parametrize(("name", "thing"), list(public_objects()))
def test_docstrings(name, thing):
    """Every public object explains all its parameters and shows an example that runs."""
    doc = inspect.getdoc(thing)
    assert ">>>" in doc
    if "as for :func:" in doc:
        return
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            assert re.search(rf"\b{parameter.name}\b.* : ", doc), f"{name} hides {parameter.name}"


@pytest.mark.parametrize(
    "estimator",
    [nona_sklearn.NONARegressor, nona_sklearn.SoftStepKNeighborsRegressor],
)
def test_documented_defaults_are_the_defaults(estimator):
    doc = inspect.getdoc(estimator)
    for parameter in inspect.signature(estimator).parameters.values():
        entry = re.search(rf"^{parameter.name} : .*?default=(.*?)$", doc, re.MULTILINE)
        assert ast.literal_eval(entry[1]) == parameter.default, parameter.name


def test_api_page_lists_every_public_object():
    page = (ROOT / "docs" / "api.md").read_text()
    for name, _ in public_objects():
        assert f"`{name.split('.')[-1]}`" in page, name


def test_changelog_has_this_version():
    assert f"## {nona_sklearn.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_notebooks_link_to_the_site_that_the_metadata_names():
    metadata = ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    named = dict(
        line.split(" = ") for line in metadata["metadata"]["project_urls"].strip().splitlines()
    )
    page = nona_sklearn.NONARegressor()._get_doc_link()
    assert page.startswith(f"{named['Documentation']}/en/v{nona_sklearn.__version__}/")
    assert (ROOT / "docs" / named["Changelog"].split("/")[-1]).with_suffix(".md").exists()


def test_spelling():
    command = [sys.executable, "-m", "codespell_lib", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_ruff():
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "."], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
