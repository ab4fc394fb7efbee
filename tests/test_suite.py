"""The suite's own settings: no test hangs, slow ones are run only if selected."""

import copy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from inner.estimators import fitting

from conftest import N_QUICK_CASES, PERTURBATION, perturb_starts

ROOT = Path(__file__).parents[1]

# loky's workers stop after their second job, as they do on a memory leak: jobs are left over.
WORKERS_STOP = """
from joblib import Parallel, delayed

def work(i):
    from joblib.externals.loky import process_executor
    process_executor._MEMORY_LEAK_CHECK_DELAY = 0.0
    process_executor._MAX_MEMORY_LEAK_SIZE = -(2**60)
    return i

def test_every_job_is_done():
    assert Parallel(2, batch_size=1)(delayed(work)(i) for i in range(8)) == list(range(8))
"""

WORKERS_STAY = """
import multiprocessing
from joblib import Parallel, delayed

def test_workers_start():
    assert Parallel(2)(delayed(abs)(i) for i in range(2)) == [0, 1]
    assert len(loky_workers()) == 2

def test_and_are_gone():
    assert not loky_workers()

def loky_workers():
    from joblib.externals.loky import reusable_executor
    return dict(reusable_executor._executor._processes or {})
"""

# A signal's exception would end the wait of the main thread, and not that of the other.
HANGS = """
import threading

def test_hangs():
    never = threading.Event()
    thread = threading.Thread(target=never.wait)
    thread.start()
    thread.join()

def test_passes():
    pass
"""

SLOW = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("i", [1, 2])
def test_takes_long(i):
    pass

def test_takes_no_time():
    pass
"""


CONFIGURATION = ["-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", "-rs"]


@pytest.fixture
def run(tmp_path):
    """Run a file of tests under our configuration, and return the exit code and the output."""

    def run(content, *options):
        (tmp_path / "test_it.py").write_text(content)
        command = [sys.executable, "-m", "pytest", *CONFIGURATION, "--rootdir", tmp_path]
        done = subprocess.run(
            [*command, *options, tmp_path], capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_workers_that_stop_early_do_not_hang_a_test(run):
    """As an error, loky's warning would end the thread that the test waits for."""
    code, output = run(WORKERS_STOP, "--timeout=60")
    assert "A worker stopped while some jobs were given" in output
    assert code == 0, output


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="alone"),
        pytest.param(["-n", "2"], id="in processes", marks=pytest.mark.slow),
    ],
)
def test_a_test_that_hangs_is_ended(run, options):
    code, output = run(HANGS, "--timeout=3", "-o", "faulthandler_timeout=2", *options)
    assert code != 0
    assert "in test_hangs" in output  # the stacks, to see where it hung
    if options:  # another process goes on
        assert "1 failed, 1 passed" in output


@pytest.mark.slow
def test_workers_end_with_the_test_that_started_them(pytester):
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makepyfile(test_it=WORKERS_STAY)
    done = pytester.runpytest_inprocess(*CONFIGURATION, "--rootdir=.", "test_it.py")
    done.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("arguments", "passed", "skipped"),
    [
        (["."], 1, 2),
        (["test_it.py"], 1, 2),
        (["test_it.py::test_takes_long"], 2, 0),
        (["test_it.py::test_takes_long[2]"], 1, 0),
        (["test_it.py", "-m", "slow"], 2, 0),
        (["test_it.py", "-m", "slow or not slow"], 3, 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_slow_tests_are_run_only_if_selected(pytester, arguments, passed, skipped):
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makepyfile(test_it=SLOW)
    done = pytester.runpytest_inprocess(*CONFIGURATION, "--rootdir=.", *arguments)
    done.assert_outcomes(passed=passed, skipped=skipped)
    if skipped:
        done.stdout.fnmatch_lines(["*slow: ask for it with -m slow*"])


CASES = """
import pytest

@pytest.mark.parametrize("i", range(20))
def test_cases(i):
    pass

@pytest.mark.every_case
@pytest.mark.parametrize("i", range(5))
def test_cases_of_a_library(i):
    pass

def test_alone():
    pass
"""


def test_some_cases_of_each_test_depend_on_the_seed_alone(pytester, monkeypatch):
    monkeypatch.setattr(fitting, "train_networks", fitting.train_networks)  # which --perturb sets
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makepyfile(test_it=CASES)

    def names(*options):
        """Return which of the twenty cases run, and how many tests."""
        done = pytester.runpytest_inprocess(
            *CONFIGURATION, "--rootdir=.", "--collect-only", "-q", *options, "test_it.py"
        )
        found = [line for line in done.outlines if "::" in line]
        return {line for line in found if "::test_cases[" in line}, len(found)

    assert names("-m", "slow or not slow") == (mock.ANY, 26)
    quick, n_tests = names("-m", "not slow")
    assert (len(quick), n_tests) == (N_QUICK_CASES, N_QUICK_CASES + 6)
    further, n_tests = names("-m", "slow", "--perturb=1")
    assert (len(further), n_tests) == (20 - N_QUICK_CASES, 20 - N_QUICK_CASES)
    assert not quick & further
    some, n_tests = names("--cases=3")
    assert (len(some), n_tests) == (3, 9)
    assert names("--cases=3") == (some, n_tests)
    assert names("--cases=3", "--perturb=1")[0] != some


def test_perturbed_starts_differ_in_their_last_digits(monkeypatch):
    start = torch.nn.Linear(50, 20)
    monkeypatch.setattr(fitting, "train_networks", lambda networks: networks)
    perturb_starts(1)
    one, same = (fitting.train_networks([copy.deepcopy(start)])[0].weight for _ in range(2))
    changes = (one.double() / start.weight - 1).abs()
    assert torch.equal(one, same)
    assert 0.5 * PERTURBATION < changes.median() < PERTURBATION
    assert changes.amax() < 10 * PERTURBATION
