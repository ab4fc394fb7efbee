"""What surrounds the package: hooks, CI, the site's build."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import tomllib
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


def test_the_workflow_calls_ci_and_the_readme_s_test_command():
    jobs = read(".github/workflows/ci.yml")["jobs"]
    run, test = ([s["run"] for s in jobs[name]["steps"] if "run" in s] for name in ("run", "test"))
    assert run == [".ci/run"]
    command = (ROOT / "README.md").read_text().partition("<!-- command: test -->")[2]
    steps = command.splitlines()[2].replace(".venv/bin/pip", "python -m pip")
    assert test == steps.replace(".venv/bin/", "").split(" && ")[1:]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_pythons_and_torch_are_everywhere_the_tested_ones():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    pythons = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    oldest, newest = pythons[0], pythons[-1]
    assert setup["options"]["python_requires"] == f">={oldest}"
    jobs = read(".github/workflows/ci.yml")["jobs"]
    steps = jobs["run"]["steps"]
    (prepare,) = [step["with"] for step in steps if "setup-python" in step.get("uses", "")]
    assert prepare["python-version"].split() == [newest, oldest]  # the last is python3
    assert jobs["test"]["strategy"]["matrix"]["python"] == pythons
    assert jobs["test"]["env"]["PIP_EXTRA_INDEX_URL"] == CPU_BUILDS
    assert runpy.run_path(ROOT / ".ci" / "release.py")["PYTHONS"] == tuple(pythons)
    assert f"\nNEWEST_PYTHON={newest}\nCPU_BUILDS={CPU_BUILDS}\n" in (ROOT / ".ci/run").read_text()
    site = read(".readthedocs.yaml")["build"]
    assert site["tools"]["python"] == oldest
    (install,) = site["jobs"]["install"]
    options = shlex.split(install)
    assert options[options.index("--extra-index-url") + 1] == CPU_BUILDS
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["mypy"]["python_version"] == oldest
    assert tools["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    for page in ("README.md", "docs/install.md"):
        assert f"Python {oldest} or newer" in (ROOT / page).read_text()
        assert f"tests run on {oldest} and {newest}" in (ROOT / page).read_text()
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"PIP_EXTRA_INDEX_URL={CPU_BUILDS}`" in (ROOT / page).read_text()


def test_conda_installs_what_pip_installs():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")

    def bounds(requirements):
        pairs = (text.replace(" ", "").partition(">=")[::2] for text in requirements)
        names = {"torch": "pytorch", "pytorch-cpu": "pytorch", "matplotlib-base": "matplotlib"}
        return {names.get(name, name): bound for name, bound in pairs}

    python = f"python{setup['options']['python_requires']}"
    needed = [*setup["options"]["install_requires"].split("\n")[1:], python]
    demo = setup["options.extras_require"]["demo"].split("\n")[1:]
    recipe = read("conda/recipe.yaml")["requirements"]["run"]
    *environment, pip, package = read("conda/environment.yml")["dependencies"]
    assert bounds(recipe) == bounds(needed)
    assert bounds(environment) == bounds(needed + demo)
    assert (pip, package) == ("pip", {"pip": [".."]})


def test_the_package_holds_all_files_that_are_no_modules():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    patterns = setup["options.package_data"]["nona_sklearn"].split(", ")
    package = ROOT / "nona_sklearn"
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    there = {path for path in package.rglob("*.*") if path.is_file() and path.suffix != ".py"}
    assert {path for path in there if "__pycache__" not in path.parts} == packed


@pytest.fixture
def ci(tmp_path):
    """Run commands after CI's functions are read, where no command is but those in a folder."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")

    def run(commands, **environment):
        script = f"source {shlex.quote(str(ROOT / '.ci' / 'run'))}\n{commands}"
        environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)} | environment
        return subprocess.run(
            [bash, "-c", script], env=environment, capture_output=True, text=True, check=False
        )

    return run


def put_command(path, status):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_ci_finds_the_python_that_runs(ci, tmp_path):
    put_command(tmp_path / "python3.99", 127)  # as pyenv's, if another version is active
    assert ci("find_python 3.99").returncode == 1
    of_pyenv = put_command(tmp_path / ".pyenv/versions/3.99.1/bin/python", 0)
    assert ci("find_python 3.99").stdout == f"{of_pyenv}\n"
    put_command(tmp_path / "python3.99", 0)
    assert ci("find_python 3.99").stdout == "python3.99\n"


def test_ci_prints_that_it_skips_a_python_that_is_not_there(ci):
    done = ci("NEWEST_PYTHON=3.99\ntimed with_the_newest")
    assert done.returncode == 0
    assert "SKIPPED: there is no Python 3.99" in done.stdout
    assert re.search(r"^== with_the_newest: \d+ seconds$", done.stdout, re.MULTILINE)


def test_ci_ends_with_the_first_part_that_fails(ci):
    done = ci("part() {\nfalse\necho later\n}\ntimed part\necho next")
    assert done.returncode == 1
    assert done.stdout == "== part\n"


@pytest.mark.parametrize(
    ("status", "given", "taken"),
    [(0, "", CPU_BUILDS), (6, "", ""), (0, "https://own.example", "https://own.example")],
)
def test_ci_prefers_builds_for_cpus_where_they_can_be_had(ci, tmp_path, status, given, taken):
    put_command(tmp_path / "curl", status)
    done = ci('prefer_cpu_builds\necho "$PIP_EXTRA_INDEX_URL"', PIP_EXTRA_INDEX_URL=given)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == taken


PARTS = "as_in_the_readme", "other_environments", "slow_tests", "at_the_lower_bounds"


@pytest.mark.parametrize("failing", [None, *PARTS, "with_the_newest"])
def test_ci_succeeds_if_every_part_does_and_leaves_no_copies(ci, tmp_path, failing):
    parts = "prefer_cpu_builds", *PARTS, "with_the_newest"
    status = {part: "false" if part == failing else "true" for part in parts}
    functions = "\n".join(f"{part}() {{ {command}; }}" for part, command in status.items())
    done = ci(f"{functions}\nmain", PATH=os.environ["PATH"], TMPDIR=str(tmp_path))
    assert done.returncode == (failing is not None), done.stderr
    assert list(tmp_path.iterdir()) == []
