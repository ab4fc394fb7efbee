"""Settings and fixtures of all tests and of the examples in the documentation."""

import signal
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from nona_sklearn.datasets import make_plane_regression

pytest_plugins = ["pytester"]

#: Files of earlier versions, and numbers of published code.
STORED_FILES = Path(__file__).parent / "tests" / "stored"

# -- what cannot carry a marker: Markdown pages and docstrings ---------------------------------

# Pages whose examples are slow.
SLOW_PAGES = {
    *("check_data.md", "classes.md", "decision.md", "neighbors.md"),
    *("saving.md", "scaling.md", "serving.md", "tables.md"),
    *("texts_images.md", "time.md", "tune.md"),
}
# Examples that start right after the tests that are marked `first`, in this order.
FIRST_PAGES = ["/displays", "regressors.py", ".md"]

SLOW_LIMIT = 1200  # seconds; the limit of the others is in pyproject.toml

# The same examples on every machine, and no deadline, so that a slow CI is not flaky.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
# Under other instructions digits differ everywhere or nowhere: a few examples suffice.
hypothesis.settings.register_profile("few", deadline=None, derandomize=True, max_examples=12)
# Other examples each time, or from --hypothesis-seed.
hypothesis.settings.register_profile("search", deadline=None, max_examples=60)
hypothesis.settings.load_profile("suite")


def is_named(item, config):
    """Whether the command line names this test."""
    for argument in config.args:
        file, _, name = argument.partition("::")
        here = config.invocation_params.dir / file
        own = item.nodeid.partition("::")[2]
        if name and here.resolve() == item.path and (own == name or own.startswith(name + "[")):
            return True
    return False


def start_order(item):
    """Return a sort key: the longest tests first, since all processes wait for the last one."""
    if item.get_closest_marker("first"):
        return -1
    file = item.nodeid.partition("::")[0]
    return next((i for i, page in enumerate(FIRST_PAGES) if page in file), len(FIRST_PAGES))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Skip slow tests unless they are selected, and sort those that start first."""
    selected = "slow" in config.getoption("markexpr")
    for item in items:
        if item.path.name in SLOW_PAGES:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))
            if not selected and not is_named(item, config):
                item.add_marker(pytest.mark.skip(reason="slow: ask for it with -m slow"))
    items.sort(key=start_order)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Run torch on one thread, since the tests' tensors are too small to share."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def torch_settings():
    """Seed torch, and put its number of threads back."""
    torch.manual_seed(0)
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_figures_left():
    """Close the figures of a test: pyplot keeps them, and warns about more than twenty."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


@pytest.fixture(autouse=True)
def no_workers_left():
    """End loky's worker processes with the test that started them, without starting any."""
    yield
    loky = sys.modules.get("joblib.externals.loky.reusable_executor")
    if loky is not None and loky._executor is not None:
        loky._executor.shutdown(wait=True, kill_workers=True)


@pytest.fixture(scope="session")
def reference():
    """Numbers of the NONA paper's published code on random inputs, in float64."""
    return load_reference("nona_reference.npz")


@pytest.fixture(scope="session")
def as_softmax_reference():
    """Numbers of the AS-Softmax paper's published code on random inputs, in float64."""
    return load_reference("as_softmax_reference.npz")


def load_reference(name):
    with np.load(STORED_FILES / name) as data:
        return {key: torch.from_numpy(data[key]) for key in data.files}


@pytest.fixture(scope="session")
def plane():
    """A small regression problem: 120 training points, 30 test points."""
    X, y = make_plane_regression("rings", 150, random_state=0)
    return X[:120], X[120:], y[:120], y[120:]


@pytest.fixture
def listening():
    """Let Ctrl-C raise KeyboardInterrupt, which background jobs of a shell ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
