import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.first

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_mypy():
    command = [sys.executable, "-m", "mypy", "nona_sklearn"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
