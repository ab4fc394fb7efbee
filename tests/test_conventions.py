"""The house rules that a newcomer relies on, read off the code."""

import ast
import inspect
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import torch
from inner.utils import SITE

import nona_sklearn
from nona_sklearn import (
    attention,
    datasets,
    embedding,
    explanation,
    losses,
    metrics,
    model_selection,
    ranking,
    similarity,
    softstep,
    targets,
    weighting,
)

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nona_sklearn"
#: What may import what: from the floors above its own. A room is a module or a package at the top.
FLOORS = [
    {"_version"},
    {"_utils"},
    {"eligibility"},
    {"ranking", "similarity"},
    {"datasets", "embedding", "losses", "softstep", "weighting"},
    {"attention"},
    {"_data"},
    {"_trend", "model_selection"},
    {"_network", "metrics", "targets"},
    {"_inference"},
    {"explanation"},
    {"_training"},
    {"_estimators"},
    {"pipelines"},
    {"_inspection", "_persistence"},
    {"_scaling"},
    {"__main__"},
]
MATHEMATICS = [
    *("similarity", "ranking", "weighting", "losses", "softstep", "attention", "embedding"),
]


def imports(path, folder=PACKAGE):
    """Names of the modules that a file imports, relative ones as from the folder, after a dot."""
    above = path.relative_to(folder).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            from_top = [*above[: len(above) + 1 - node.level], *(node.module or "").split(".")]
            yield "." + ".".join(from_top)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "import_extra":
            yield from (each.value for each in node.args[1:] if isinstance(each, ast.Constant))


def room_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def files():
    return [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def test_every_room_has_its_floor():
    assert {room_of(path) for path in files()} == set.union(*FLOORS)


def test_imports_between_rooms_go_down():
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    arrows = {
        (room_of(path), name.split(".")[1])
        for path in files()
        for name in imports(path)
        if name.startswith(".") and name != "."
    }
    between = {(room, other) for room, other in arrows if room != other}
    assert [pair for pair in between if floor[pair[0]] <= floor[pair[1]]] == []
    assert len(between) <= 93


def test_the_inspection_imports_no_private_modules():
    """It stands on top, as a report of one's own would."""
    allowed = {"_inspection", "_utils", "_version"}
    private = sorted(
        (path.name, name)
        for path in files()
        for name in {*imports(path)}
        if room_of(path) == "_inspection"
        and name.startswith("._")
        and name.split(".")[1] not in allowed
    )
    assert private == []


def test_tests_name_private_modules_in_one_place():
    """What a module is divided into may change without a change of tests, but of `inner`."""
    inner = Path(__file__).parent / "inner"
    outside = {
        (path.name, name)
        for path in inner.parent.rglob("*.py")
        for name in imports(path, inner.parent)
        if name.startswith("nona_sklearn._") and path.parent != inner
    }
    assert outside == set()


#: Types of floating-point numbers, and conversions to them.
PRECISIONS = re.compile(r"torch\.(float32|float64|double|float)\b|\.(double|float)\(\)")


def test_one_module_has_the_policy_of_precision():
    formats = {"_persistence/codec.py", "_persistence/onnx.py"}  # of files and graphs
    naming = {str(p.relative_to(PACKAGE)) for p in files() if PRECISIONS.search(p.read_text())}
    assert naming - formats == {"_utils/precision.py"}


ESTIMATORS = [
    nona_sklearn.NONARegressor,
    nona_sklearn.NONAClassifier,
    nona_sklearn.SoftStepKNeighborsRegressor,
    nona_sklearn.SoftStepKNeighborsClassifier,
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_are_composed(estimator):
    """Few classes stand above an estimator, and few of their methods replace each other."""
    assert len(estimator.__mro__) <= 11
    assert len(inspect.signature(estimator).parameters) <= 24
    own = [kind for kind in estimator.__mro__ if kind.__module__.startswith("nona_sklearn")]
    names = [name for kind in own for name in vars(kind) if re.fullmatch(r"_[a-z]\w*", name)]
    of_sklearn = {"_parameter_constraints", "_sklearn_auto_wrap_output_keys"}
    hooks = {name for name in names if names.count(name) > 1} - of_sklearn
    assert len(hooks) <= 5


def test_regressor_has_few_parameters():
    assert len(inspect.signature(nona_sklearn.NONARegressor).parameters) <= 32


def private_names(tree):
    """Names with an underscore that a file defines, and those that it reads of other objects."""
    defined, read = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            (defined if own or isinstance(node.ctx, ast.Store) else read).add(node.attr)
    return [{name for name in names if re.match("_[a-z]", name)} for names in (defined, read)]


def test_no_package_reads_private_names_of_another():
    rooms = {}
    for path in files():
        names = private_names(ast.parse(path.read_text()))
        for all_names, found in zip(
            rooms.setdefault(room_of(path), (set(), set())), names, strict=True
        ):
            all_names |= found
    of_torch = set(vars(torch.nn.Module()))
    for room, (own, read) in rooms.items():
        others = set().union(*(names for other, (names, _) in rooms.items() if other != room))
        assert not (read - own - of_torch) & others, room


@pytest.mark.parametrize(
    ("library", "rooms"),
    [
        ("skorch", {"_training"}),
        ("tqdm", {"_training"}),
        ("faiss", {"_inference"}),
        ("onnx", {"_persistence"}),
        ("safetensors", {"_persistence"}),
        ("matplotlib", {"_inspection"}),
        ("pandas", {"_persistence", "_utils", "datasets", "__main__"}),
    ],
)
def test_where_libraries_are_imported(library, rooms):
    using = {
        room_of(path)
        for path in files()
        for name in imports(path)
        if name.split(".")[0] == library
    }
    assert using == rooms


@pytest.mark.parametrize("layer", MATHEMATICS)
def test_mathematics_needs_torch_only(layer):
    modules = [path for path in files() if room_of(path) == layer]
    outside = {name.split(".")[0] for path in modules for name in imports(path)}
    assert outside <= {"", "torch"} | {
        *("__future__", "collections", "copy", "dataclasses", "functools", "itertools", "math"),
        "typing",
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
        explanation,
        metrics,
        model_selection,
        targets,
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


def test_reference_lists_every_public_object():
    listed = {
        line.split(".")[-1].strip()
        for line in (ROOT / "docs" / "reference.rst").read_text().splitlines()
        if re.fullmatch(r" {3}[\w.]+", line)
    }
    assert {name.split(".")[-1] for name, _ in public_objects()} <= listed | {"__version__"}


def test_changelog_has_this_version():
    assert (
        f"## {nona_sklearn.__version__.removesuffix('.dev0')}"
        in (ROOT / "CHANGELOG.md").read_text()
    )


def test_notebooks_link_to_the_site():
    """To the page of this version, once the site is published; the metadata name the same site."""
    page = nona_sklearn.NONARegressor()._get_doc_link()
    assert page == "" or page.startswith(f"{SITE}/v{nona_sklearn.__version__}/")
    assert bool(page) == bool(SITE)
    metadata = ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    urls = metadata["metadata"].get("project_urls", "").strip().splitlines()
    named = dict(line.split(" = ") for line in urls)
    if "Documentation" in named:
        assert f"{named['Documentation']}/en" == SITE
    if "Changelog" in named:
        page = ROOT / "docs" / named["Changelog"].split("/")[-1]
        assert page.with_suffix(".md").exists()


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
