"""The reference: every listed method is documented with an example that shows something."""

import inspect
import re
import sys
from pathlib import Path

import pytest
from inner.estimators import PARAMETER_GROUPS
from test_conventions import ESTIMATORS, public_objects

import nona_sklearn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
from reference import group_parameters, is_listed, members_of  # noqa: E402

CLASSES = {thing: thing.__name__ for _, thing in public_objects() if inspect.isclass(thing)}
#: Classes whose every method has an example; parts of networks have one for the class.
WITH_EXAMPLES = {
    *("NONARegressor", "NONAClassifier", "SoftStepKNeighborsRegressor"),
    *("SoftStepKNeighborsClassifier", "TableEncoder", "NeighborsReport", "ShardedNeighbors"),
    *("Calibration", "NONASurvivalAnalysis"),
    *(name for name in CLASSES.values() if name.endswith("Display")),
}
#: Outputs that show a reader nothing: a boolean, or the shape of an array, by itself.
EMPTY_OUTPUT = re.compile(r"True|False|torch\.Size\(.*\)|\.\.\.")
TUPLE = re.compile(r"\((\d+, )*\d+,?\)")


def methods():
    """Each listed method or property, with its class."""
    for cls, name in CLASSES.items():
        for member in members_of(cls):
            yield pytest.param(name, cls, member, id=f"{name}.{member}")


def sections(doc):
    return re.findall(r"^(\w[\w ]*)\n-+$", doc, re.MULTILINE)


def returns_something(function):
    source = inspect.getsource(function)
    return re.search(r"^\s+return \S", source, re.MULTILINE) is not None


@pytest.mark.parametrize(("name", "cls", "member"), list(methods()))
def test_methods_are_documented(name, cls, member):
    raw = inspect.getattr_static(cls, member)
    doc = inspect.getdoc(getattr(cls, member))
    assert doc, "has no docstring"
    if isinstance(raw, property):
        return
    found = sections(doc)
    signature = inspect.signature(getattr(cls, member))
    arguments = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    if arguments:
        assert "Parameters" in found
    for argument in arguments:
        assert re.search(rf"\b{argument.name}\b.*( : |$)", doc, re.MULTILINE), argument.name
    function = inspect.unwrap(getattr(raw, "__func__", getattr(cls, member)))
    if returns_something(function):
        assert "Returns" in found
    if name in WITH_EXAMPLES:
        assert "Examples" in found
        assert ">>>" in doc


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_is_in_one_group(estimator):
    names = [name for group in PARAMETER_GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert {*inspect.signature(estimator).parameters} <= {*names}


def test_groups_hold_nothing_but_parameters():
    taken = {name for estimator in ESTIMATORS for name in inspect.signature(estimator).parameters}
    assert {name for group in PARAMETER_GROUPS.values() for name in group} == taken


def test_unlisted_members_are_those_of_torch_and_the_package_s_own():
    listed = {name: members_of(cls) for cls, name in CLASSES.items()}
    assert listed["NONAHead"] == ["forward", "neighbor_weights"]
    assert listed["Rows"] == []
    assert "get_params" not in listed["NONARegressor"]
    assert {"fit", "predict", "explain", "calibrate"} <= {*listed["NONARegressor"]}
    assert not is_listed("_private", CLASSES)


def test_parameters_are_grouped_as_numpydoc_writes_them():
    lines = [
        *("Text.", "", ":Parameters:", "", "    **max_iter** : int", "        Epochs.", ""),
        *(
            "    **adjust** : bool",
            "        Whether.",
            "",
            "    **n_jobs** : int",
            "        Jobs.",
        ),
        *("", ":Attributes:", "", "    **n_iter_** : int", "        Epochs."),
    ]
    grouped = group_parameters(lines)
    assert [line.strip() for line in grouped if "**" in line or "rubric" in line] == [
        *(".. rubric:: Accuracy and time", "**max_iter** : int", "**n_jobs** : int"),
        *(".. rubric:: Neighbours", "**adjust** : bool", "**n_iter_** : int"),
    ]
    assert group_parameters(lines[-4:]) == lines[-4:]


def outputs(text):
    """Number and text of each line of output of the examples in a text, and its source line."""
    source = before = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        continued = line == "..." and before == source  # an output does not start with this
        before = line
        if line.startswith((">>>", "... ", "Traceback")) or continued:
            source = line
        elif not line or line.startswith(('"""', "```")):
            source = None
        elif source is not None:
            yield number, line, source


def is_empty(line, source):
    """Whether an output is a boolean, an ellipsis or a shape."""
    return EMPTY_OUTPUT.fullmatch(line) or (TUPLE.fullmatch(line) and "shape" in source)


def empty_outputs(path):
    found = outputs(path.read_text())
    return [f"{path.name}:{i}: {line}" for i, line, source in found if is_empty(line, source)]


def test_outputs_are_found():
    text = (
        ">>> 1\n1\n\nText\n>>> X.shape\n(2, 3)\n```\n(1,)\n>>> len(X), 3\n(2, 3)\n>>> 1 > 0\nTrue"
    )
    found = [(line, bool(is_empty(line, source))) for _, line, source in outputs(text)]
    assert found == [("1", False), ("(2, 3)", True), ("(2, 3)", False), ("True", True)]


def test_examples_of_docstrings_show_something():
    package = (ROOT / "nona_sklearn").rglob("*.py")
    assert [line for path in package for line in empty_outputs(path)] == []


def test_examples_of_pages_show_something():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert [line for path in pages for line in empty_outputs(path)] == []


@pytest.mark.parametrize(
    ("name", "function"), [each for each in public_objects() if inspect.isfunction(each[1])]
)
def test_functions_document_what_they_return(name, function):
    doc = inspect.getdoc(function)
    if "as for :func:" not in doc and returns_something(function):
        assert "Returns" in sections(doc), name


def test_pages_list_what_is_public():
    assert members_of(nona_sklearn.TableEncoder) == [
        *("fit", "fit_transform", "get_feature_names_out", "transform"),
    ]
    assert "best_loss_" in members_of(nona_sklearn.NONARegressor)


def test_grouped_parameters_keep_their_lines():
    lines = [
        *(":Parameters:", "", "    **max_iter** : int", "        Epochs.", ""),
        *("    **adjust** : bool", "        Whether.", ""),
        *(":Attributes:", "", "    **n_iter_** : int"),
    ]
    grouped = group_parameters(lines)
    kept = [line for line in grouped if line and "rubric" not in line]
    assert sorted(kept) == sorted(filter(None, lines))
    assert grouped[grouped.index(":Attributes:") - 1] == ""
    unknown = [line.replace("adjust", "other") for line in lines]
    assert group_parameters(unknown) == unknown
