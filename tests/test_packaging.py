"""What surrounds the package: hooks, CI, the site's build."""

import re
import runpy
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"


def read(path):
    return yaml.safe_load((ROOT / path).read_text())


def test_hooks_run_pinned_tools_whether_or_not_the_environment_is_activated():
    pins = runpy.run_path(ROOT / ".ci" / "lower_bounds.py")["pins"]()
    (local,) = read(".pre-commit-config.yaml")["repos"]
    tools = {shlex.split(hook["entry"])[0] for hook in local["hooks"]}
    assert {tool.removeprefix(".venv/bin/") for tool in tools} <= set(pins)
    assert all(tool.startswith(".venv/bin/") for tool in tools)


def test_the_workflow_only_calls_ci():
    (job,) = read(".github/workflows/ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_elsewhere_python_and_torch_are_the_tested_ones():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    tested = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    (job,) = read(".github/workflows/ci.yml")["jobs"].values()
    site = read(".readthedocs.yaml")["build"]
    (prepare,) = [step["with"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert [prepare["python-version"]] == [site["tools"]["python"]] == tested
    assert job["env"]["PIP_EXTRA_INDEX_URL"] == CPU_BUILDS
    (install,) = site["jobs"]["install"]
    options = shlex.split(install)
    assert options[options.index("--extra-index-url") + 1] == CPU_BUILDS
    assert f"PIP_EXTRA_INDEX_URL={CPU_BUILDS}`" in (ROOT / "CONTRIBUTING.md").read_text()
