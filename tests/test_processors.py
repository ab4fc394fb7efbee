"""The numeric tests once more, under the other sets of instructions that the processor has.

torch has its kernels in several versions, and takes the fastest that the processor can run. They
round differently: a test that holds under one may fail under another.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.first

ROOT = Path(__file__).parents[1]
LADDER = ["default", "avx2", "avx512"]  # each processor has all up to its own highest


def highest():
    """Return the instruction set that torch takes by default.

    A given one is taken even if the processor lacks it, and the process is killed.
    """
    environment = {key: v for key, v in os.environ.items() if key != "ATEN_CPU_CAPABILITY"}
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().lower()


def supported():
    """Return what torch can be set to: on other than x86 processors, the first at least."""
    own = highest()
    return LADDER[: LADDER.index(own) + 1] if own in LADDER else LADDER[:1]


@pytest.mark.slow
@pytest.mark.parametrize("capability", LADDER)
def test_numeric_tests_pass_under_other_instructions(capability):
    if capability == torch.backends.cpu.get_cpu_capability().lower():
        pytest.skip("this run has tested it")
    if capability not in supported():
        pytest.skip("the processor lacks it")
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "1"}
    # Calibration takes long, and is of statistics, not of digits.
    options = ["-m", "numeric", "-k", "not calibrat", "-q", "-x", "-p", "no:cacheprovider"]
    options.append("--hypothesis-profile=few")
    command = [sys.executable, "-m", "pytest", *options, "tests"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 100
