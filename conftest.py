"""Settings and fixtures of all tests and of the examples in the documentation."""

import os
import random
import signal
import sys
from collections import defaultdict
from pathlib import Path

# Each process computes in one thread, and so do those that tests start: tensors are small, and the
# processes share the cores. NumPy and torch read it when they are imported. CI also sets two.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest
import torch

from nona_sklearn._estimators import fitting
from nona_sklearn.datasets import make_plane_regression

pytest_plugins = ["pytester"]

#: Files of earlier versions, and numbers of published code.
STORED_FILES = Path(__file__).parent / "tests" / "stored"

# -- what cannot carry a marker: Markdown pages and docstrings ---------------------------------

# Pages whose examples are slow.
SLOW_PAGES = {
    *("check_data.md", "coming.md", "saving.md", "scaling.md", "serving.md", "tables.md"),
    *("texts_images.md", "time.md", "tune.md"),
}
# Examples that start right after the tests that are marked `first`, in this order.
FIRST_PAGES = ["/displays", "regressors.py", ".md"]

N_QUICK_CASES = 2  # of each parametrised test; the further ones are slow
SLOW_LIMIT = 1200  # seconds; the limit of the others is in pyproject.toml
N_THREADS = int(os.environ["OMP_NUM_THREADS"])

# The same examples on every machine, and no deadline, so that a slow CI is not flaky.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
# Other examples each time, or from --hypothesis-seed.
hypothesis.settings.register_profile("search", deadline=None, max_examples=60)
hypothesis.settings.load_profile("suite")


# -- starts that differ in their last digits ------------------------------------------------------

PERTURBATION = 1e-6  # of each initial weight: some roundings of float32, as another processor has
TRAIN_NETWORKS = fitting.train_networks


def pytest_addoption(parser):
    parser.addoption(
        "--perturb",
        type=int,
        metavar="SEED",
        help=f"multiply every initial weight by 1 + {PERTURBATION:g} * normal noise. A verdict "
        "that this changes depends on the processor, too",
    )
    parser.addoption(
        "--cases",
        type=int,
        metavar="N",
        help="run N cases at most of each parametrised test, others with another --perturb; all "
        "cases of a test that is marked every_case",
    )


def pytest_configure(config):
    seed = config.getoption("--perturb")
    if seed is not None:
        perturb_starts(seed)


def perturb_starts(seed):
    """Perturb the initial weights of all later fits of this process: equal fits stay equal."""
    train = fitting.train_networks

    def train_perturbed(networks, *args, **kwargs):
        for network in networks:
            generator = torch.Generator().manual_seed(seed)
            for weight in network.parameters():
                noise = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
                weight.data *= 1 + PERTURBATION * noise.to(weight)
        return train(networks, *args, **kwargs)

    fitting.train_networks = train_perturbed


@pytest.fixture
def unperturbed(monkeypatch):
    """Train as other processes do, which --perturb does not reach."""
    monkeypatch.setattr(fitting, "train_networks", TRAIN_NETWORKS)


# -- which tests run, and when --------------------------------------------------------------------


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
    if item.path.name == "test_site.py":  # by one process alone, which builds the site once
        return -2
    if item.get_closest_marker("first"):
        return -1
    file = item.nodeid.partition("::")[0]
    return next((i for i, page in enumerate(FIRST_PAGES) if page in file), len(FIRST_PAGES))


def further_cases(items, n_cases, seed):
    """The cases of each parametrised test beyond some random ones, the same in each process."""
    tests = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("every_case"):
            tests[item.nodeid.partition("[")[0]].append(item)
    further = set()
    for name, cases in tests.items():
        random.Random(f"{name} {seed}").shuffle(cases)
        cases.sort(key=is_slow)
        further.update(cases[n_cases:])
    return further


def is_slow(item):
    return item.get_closest_marker("slow") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark pages, docstrings and slow cases, skip what is slow unless it is selected, and sort."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker(pytest.mark.example)
        if item.path.name in SLOW_PAGES:
            item.add_marker(pytest.mark.slow)
    n_cases = config.getoption("--cases")
    if n_cases is None:
        for item in further_cases(items, N_QUICK_CASES, None):
            item.add_marker(pytest.mark.slow)
    else:
        left_out = further_cases(items, n_cases, config.getoption("--perturb"))
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    selected = "slow" in config.getoption("markexpr")
    for item in filter(is_slow, items):
        item.add_marker(pytest.mark.timeout(SLOW_LIMIT))
        if not selected and not is_named(item, config):
            item.add_marker(pytest.mark.skip(reason="slow: ask for it with -m slow"))
    items.sort(key=start_order)


@pytest.fixture(autouse=True, scope="session")
def number_of_threads():
    """Run torch on one thread, unless the environment has another number."""
    torch.set_num_threads(N_THREADS)


@pytest.fixture(autouse=True)
def torch_settings():
    """Seed torch, and put its number of threads back."""
    torch.manual_seed(0)
    yield
    torch.set_num_threads(N_THREADS)


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
