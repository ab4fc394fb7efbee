"""How easily the code can be read: size, imports, interface, what a fit and a prediction run.

Lines are all lines of Python. Floors are the longest chain of imports between files. Functions
are counted that one fit of :class:`NONARegressor` at its defaults runs, by their definitions, and
how deeply their calls are nested; comprehensions are no calls. Frames are those of this package
between `predict` and the product that compares queries with the bank, where neighbours are found
in an embedding and there is no trend. Parameters and methods are those of the estimator that has
most; the methods that scikit-learn's estimators share are not counted.
"""

import ast
import io
import re
import sys
import threading
import tokenize
from functools import cache
from inspect import signature
from pathlib import Path

import torch
from sklearn.base import BaseEstimator
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._testing import ignore_warnings
from torch.overrides import TorchFunctionMode

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
)

ROOT = Path(sys.modules["nona_sklearn"].__path__[0])
TESTS = ROOT.parent / "tests"
ON_TOP = "_inspection/", "_persistence/onnx", "__main__.py"
#: Words of the review that name nothing, as local names and in sentences.
LOCALS, WORDS = ("found", "each", "own"), ("each", "other", "others", "those")
N_ROWS = 300
ESTIMATORS = (
    *(NONARegressor, NONAClassifier),
    *(SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier),
)
#: Methods that scikit-learn's estimators share, beyond those of its base class.
SHARED = "fit", "fit_transform", "get_feature_names_out", "predict", "score", "set_output"
#: They are no calls; from Python 3.12 on, they have no frames.
COMPREHENSIONS = "<listcomp>", "<setcomp>", "<dictcomp>"

#: The most that each figure may be; those of tests are a share of the lines of code.
LIMITS = {
    "lines": 20_000,
    "lines on top": 4_500,
    "floors of files": 18,
    "arrows between files": 420,
    "functions of a fit": 300,
    "files of a fit": 40,
    "depth of a fit": 18,
    "frames from predict to the product": 8,
    "parameters of an estimator": 24,
    "methods of an estimator": 18,
    "locals named found": 42,
    "locals named each": 40,
    "locals named own": 36,
    "sentences with each": 272,
    "sentences with other, others": 111,
    "sentences with those": 80,
    "lines of tests for a line of code": 1.4,
}


def run(args):
    """Print the figures, and compare them with their limits."""
    figures = sizes() | imports() | interface() | words() | runs()
    print(f"| {'figure':36} | limit | now |\n|---|---|---|")
    for name, most in LIMITS.items():
        print(f"| {name:36} | {most:,} | {figures[name]:,} |")
    if not args.quick:
        missed = [name for name, most in LIMITS.items() if figures[name] > most]
        assert not missed, f"above their limits: {', '.join(missed)}"


def files(folder=ROOT):
    """The modules of a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}


@cache
def modules():
    return files()


def sizes():
    lines = {name: text.count("\n") for name, text in modules().items()}
    code = sum(map(lines_of_code, modules().values()))
    tests = sum(map(lines_of_code, files(TESTS).values()))
    return {
        "lines": sum(lines.values()),
        "lines on top": sum(n for name, n in lines.items() if name.startswith(ON_TOP)),
        "lines of tests for a line of code": round(tests / code, 2),
    }


def lines_of_code(text):
    """Lines that are neither blank, nor a comment, nor part of a docstring."""
    kinds = tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*kinds, tokenize.ENDMARKER):
            lines |= {*range(token.start[0], token.end[0] + 1)}
    for _, node in docstrings(text):
        lines -= {*range(node.lineno, node.end_lineno + 1)}
    return len(lines)


def docstrings(text):
    """Pairs of the text of a docstring and its node."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and (shown := ast.get_docstring(node)):
            yield shown, node.body[0]


def imports():
    """Floors and arrows of the graph of imports, without those for annotations alone."""
    names = {name.removesuffix(".py").removesuffix("/__init__"): name for name in modules()}
    arrows = {name: targets_of(name, text, names) for name, text in modules().items()}

    @cache
    def floor(name):
        return 1 + max((floor(each) for each in arrows[name]), default=0)

    return {
        "floors of files": max(map(floor, arrows)),
        "arrows between files": sum(map(len, arrows.values())),
    }


def targets_of(name, text, names):
    """The modules that a module imports, once each."""
    found = set()
    for node in ast.walk(without_annotations(ast.parse(text))):
        if not (isinstance(node, ast.ImportFrom) and node.level):
            continue
        place = [*Path(name).parts][: -node.level]
        base = "/".join([*place, *(node.module or "").split(".")]).strip("/")
        for alias in node.names:
            target = names.get(f"{base}/{alias.name}".strip("/")) or names.get(base or "__init__")
            if target not in (None, name):
                found.add(target)
    return found


def without_annotations(tree):
    """Remove what only type checkers import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return tree


def interface():
    """Largest numbers of constructor parameters and of own public methods of an estimator."""
    return {
        "parameters of an estimator": max(len(signature(kind).parameters) for kind in ESTIMATORS),
        "methods of an estimator": max(len(own_methods(kind)) for kind in ESTIMATORS),
    }


def own_methods(kind):
    """Names of an estimator's public methods, without those of scikit-learn's estimators."""
    names = {name for name in dir(kind) if callable(getattr(kind, name))}
    return {
        name
        for name in names.difference(dir(BaseEstimator), SHARED)
        if not name.startswith("_") and not re.fullmatch("set_.*_request", name)
    }


def words():
    """How often filler names are local variables, and how many lines of prose have fillers."""
    stored, prose = dict.fromkeys(LOCALS, 0), dict.fromkeys(WORDS, 0)
    for text in modules().values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                stored[node.id] = stored.get(node.id, 0) + 1
        comments = [
            token.string
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
        sentences = "\n".join([*comments, *(shown for shown, _ in docstrings(text))])
        for word in WORDS:
            prose[word] += len(re.findall(rf"\b{word}\b", sentences, re.IGNORECASE))
    return {f"locals named {name}": stored[name] for name in LOCALS} | {
        "sentences with each": prose["each"],
        "sentences with other, others": prose["other"] + prose["others"],
        "sentences with those": prose["those"],
    }


class Calls:
    """Functions of this package that are called, in all threads, and the deepest nesting."""

    def __enter__(self):
        self.functions, self.depth, self.depths = set(), 0, threading.local()
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        threading.setprofile(None)

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if event not in ("call", "return") or not is_ours(code):
            return
        depth = getattr(self.depths, "now", 0) + (1 if event == "call" else -1)
        self.depths.now = depth
        self.depth = max(self.depth, depth)
        if not code.co_name.startswith("<"):  # comprehensions and lambdas
            self.functions.add((code.co_filename, code.co_qualname))


def is_ours(code):
    ours = code.co_filename.startswith(str(ROOT))
    return ours and code.co_name not in ("<module>", *COMPREHENSIONS)


class FramesOfProducts(TorchFunctionMode):
    """The most frames of this package above a product with all rows of a bank."""

    NAMES = ("matmul", "__matmul__", "__rmatmul__", "mm", "addmm", "addmm_", "baddbmm", "cdist")

    def __init__(self, n_rows):
        super().__init__()
        self.n_rows, self.most = n_rows, 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if name in self.NAMES and any(self.n_rows in t.shape for t in tensors[-2:]):
            frame, n_frames = sys._getframe(1), 0
            while frame is not None:
                n_frames += is_ours(frame.f_code)
                frame = frame.f_back
            self.most = max(self.most, n_frames)
        return function(*args, **(kwargs or {}))


@ignore_warnings(category=ConvergenceWarning)
def runs():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:N_ROWS], y[:N_ROWS]
    reg = NONARegressor(max_iter=3, random_state=0)
    reg.fit(X, y)  # what is imported at first is not counted
    with Calls() as calls:
        reg.fit(X, y)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # then queries are compared in this thread
    try:
        embedding = NONARegressor(similarity="l2", trend=None, max_iter=3).fit(X, y)
        with FramesOfProducts(N_ROWS) as products:
            embedding.predict(X[:5])
    finally:
        torch.set_num_threads(n_threads)
    return {
        "functions of a fit": len(calls.functions),
        "files of a fit": len({file for file, _ in calls.functions}),
        "depth of a fit": calls.depth,
        "frames from predict to the product": products.most,
    }
