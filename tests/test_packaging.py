"""What surrounds the package: hooks."""

import runpy
import shlex
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]


def read(path):
    return yaml.safe_load((ROOT / path).read_text())


def test_hooks_run_pinned_tools_whether_or_not_the_environment_is_activated():
    pins = runpy.run_path(ROOT / ".ci" / "lower_bounds.py")["pins"]()
    (local,) = read(".pre-commit-config.yaml")["repos"]
    tools = {shlex.split(hook["entry"])[0] for hook in local["hooks"]}
    assert {tool.removeprefix(".venv/bin/") for tool in tools} <= set(pins)
    assert all(tool.startswith(".venv/bin/") for tool in tools)
