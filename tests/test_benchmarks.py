"""That every benchmark runs: quickly, on few rows. What they claim, only their full runs say."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
#: What the benchmarks share.
HELPERS = {"finetune_data", "internals", "ledger", "quick", "scores", "timing"}


def kept_files():
    """Content of all that a full run may write."""
    paths = [*command.RESULTS.iterdir(), *command.IMAGES.iterdir()]
    return {path: path.read_bytes() for path in paths}


@pytest.mark.parametrize("name", command.BENCHMARKS)
def test_quick_run_prints_a_table_and_keeps_nothing(name, capsys):
    if missing := command.missing_libraries(name, small=True):
        pytest.skip(f"needs {missing}")
    before = kept_files()
    assert command.main([name, "--quick"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 1
    assert kept_files() == before


def test_every_module_is_a_benchmark_or_helps_some():
    modules = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("__")}
    assert modules == HELPERS | set(command.BENCHMARKS)


def test_private_modules_are_used_in_one_place():
    for path in FOLDER.glob("*.py"):
        if path.stem != "internals":
            assert "nona_sklearn._" not in path.read_text(), path.name


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_lists_all_with_a_line_each(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in command.BENCHMARKS:
        assert f"\n  {name} " in done.stdout


def test_says_which_names_there_are(capsys):
    assert command.main(["speed"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: there is no benchmark 'speed'; there are ablation, accuracy,")
    assert error.count("\n") == 1


def test_says_what_it_lacks(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.main(["uncertainty"]) == 2
    assert capsys.readouterr().err == (
        "error: uncertainty needs pandas and pyarrow and quantile_forest: "
        "pip install 'nona_sklearn[benchmark]'\n"
    )
    assert command.missing_libraries("uncertainty", small=True) == ["pandas"]


def test_lists_the_options_of_one(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["accuracy", "--help"])
    out = capsys.readouterr().out
    assert "--quick" in out
    assert "--models" in out
