import bz2
import gzip
import io
import lzma
import re
import subprocess
import sys
import zipfile
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn import dummy as dummies
from sklearn import tree as trees
from sklearn.pipeline import Pipeline

from nona_sklearn import __main__ as demo
from nona_sklearn.datasets import load_ames


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=80), "town": rng.choice(["A", "B"], 80)})
    frame["price"] = 3 * frame["size"] + (frame["town"] == "A") + 0.1 * rng.normal(size=80)
    frame.loc[3, "size"] = np.nan
    return frame


@pytest.mark.first
@pytest.mark.slow
def test_on_the_users_own_file(table, tmp_path, capsys, monkeypatch):
    short = partial(demo.NONARegressor, n_estimators=2, max_iter=10)
    monkeypatch.setattr(demo, "NONARegressor", short)
    monkeypatch.setattr(demo, "N_SPLITS", 2)
    table.to_csv(tmp_path / "houses.csv", index=False)
    page = tmp_path / "demo.html"
    arguments = [str(tmp_path / "houses.csv"), "price"]
    assert demo.main([*arguments, "--output", str(page)]) == 0
    out = capsys.readouterr().out
    assert "80 rows, 2 features, target 'price'" in out
    for name in demo.contestants():
        assert name in out
    for word in ("weight", "adjusted_target", "size", "town", "query"):
        assert word in out
    assert "Prediction of price for" in page.read_text()


@pytest.mark.slow
def test_a_file_with_all_that_people_have(table, tmp_path, capsys, monkeypatch):
    """Categories, rare ones too, gaps, dates, truth values, a constant, an empty column."""
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-31") + pd.to_timedelta(rng.integers(900, size=80), unit="D")
    raw = table.assign(
        sold=days.strftime("%Y-%m-%d"),
        garden=rng.random(80) < 0.5,
        street=[None if i % 9 == 0 else f"street {i % 30}" for i in range(80)],
        country="here",
        remarks=None,
    )
    short = partial(demo.NONARegressor, n_estimators=1, max_iter=2)
    monkeypatch.setattr(demo, "NONARegressor", short)
    monkeypatch.setattr(demo, "N_SPLITS", 2)
    raw.to_csv(tmp_path / "raw.csv", index=False)
    arguments = [str(tmp_path / "raw.csv"), "price"]
    assert demo.main([*arguments, "--output", str(tmp_path / "demo.html")]) == 0
    assert "80 rows, 7 features" in capsys.readouterr().out
    X, _ = demo.load_csv(str(tmp_path / "raw.csv"), "price")
    assert [X[name].dtype.kind for name in ("size", "garden")] == ["f", "b"]


@pytest.mark.parametrize("between", [";", "\t", "|"])
def test_columns_apart_by_other_marks(table, tmp_path, between):
    table.to_csv(tmp_path / "t.csv", index=False)
    expected = demo.load_csv(str(tmp_path / "t.csv"), "price")
    table.to_csv(tmp_path / "t.csv", index=False, sep=between)
    X, y = demo.load_csv(str(tmp_path / "t.csv"), "price")
    pd.testing.assert_frame_equal(X, expected[0])
    pd.testing.assert_series_equal(y, expected[1])


@pytest.mark.parametrize(
    ("change", "target", "message"),
    [
        (lambda t: t, "cost", r"no column 'cost' in .*; it has \['size', 'town', 'price'\]"),
        (lambda t: t.assign(size=t["size"].where(t.index < 9)), "size", "has 8 rows with a value"),
        (lambda t: t[:20], "price", "has 20 rows with a value in 'price'; at least 30 are needed"),
        (lambda t: t[:0], "price", "has 0 rows with a value in 'price'; at least 30 are needed"),
    ],
)
def test_the_error_names_what_is_wrong_with_a_file(
    table, tmp_path, capsys, change, target, message
):
    change(table).to_csv(tmp_path / "t.csv", index=False)
    assert demo.main([str(tmp_path / "t.csv"), target]) == 2
    assert re.match(f"error: .*{message}", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"", "cannot be read as CSV"),
        (b'a,b\n1,2\n"3', "cannot be read as CSV"),
        (b"a,b\n\x81\x8d,1\n", "as CSV: UnicodeDecodeError: 'utf-8' codec can't decode"),
    ],
)
def test_the_error_names_what_is_wrong_with_an_unreadable_file(tmp_path, content, message):
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        demo.load_csv(str(path), "price")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda t: t, ["--task", "numbers"], "column 'town' is not numeric"),
        (
            lambda t: t.assign(town=t["price"]),
            ["--task", "classes"],
            "fractions: no classes",
        ),
        (lambda t: t.assign(town="A"), [], "column 'town' has no two classes of 3 rows each"),
        (lambda t: t.assign(town=[f"{i} $" for i in range(80)]), [], "write them without units"),
        (lambda t: t.assign(town=t["town"].where(t.index < 9)), [], "rows with a value in 'town'"),
    ],
)
def test_the_error_names_why_a_target_is_no_classes_or_no_numbers(
    table, tmp_path, capsys, change, options, message
):
    change(table).to_csv(tmp_path / "t.csv", index=False)
    assert demo.main([str(tmp_path / "t.csv"), "town", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "task", "expected"),
    [
        (["a", "b"], "auto", True),
        ([True, False], "auto", True),
        ([True, False], "classes", True),
        ([0, 1], "auto", True),
        ([0, 1, 2], "auto", False),
        ([0.0, 0.5], "auto", False),
        ([0.5, 1], "auto", False),
        ([0, 1], "classes", True),
        ([0.0, 1.0], "classes", True),
        ([0, 1], "numbers", False),
    ],
)
def test_strings_booleans_and_two_whole_numbers_are_classes(values, task, expected):
    assert demo.are_classes(pd.Series(values), task) == expected


@pytest.mark.slow
def test_classes(table, tmp_path, capsys, monkeypatch):
    """Strings, with one that is too rare for every fold."""
    for name, short in [
        ("NONAClassifier", {"n_estimators": 1, "max_iter": 3}),
        ("SoftStepKNeighborsClassifier", {"max_iter": 3}),
    ]:
        monkeypatch.setattr(demo, name, partial(getattr(demo, name), **short))
    monkeypatch.setattr(demo, "N_SPLITS", 2)
    table["kind"] = np.where(table["price"] > 0, "dear", "cheap")
    table.loc[7, "kind"] = "unknown"
    table.drop(columns="price").to_csv(tmp_path / "t.csv", index=False)
    page = tmp_path / "demo.html"
    arguments = [str(tmp_path / "t.csv"), "kind", "--output", str(page)]
    assert demo.main(arguments) == 0
    out = capsys.readouterr().out
    assert "left out: 1 rows, of classes with fewer than 2" in out
    assert "79 rows, 2 features, target 'kind': 2 classes" in out
    for name in ("log loss", "accuracy", "weight", *demo.contestants(True)):
        assert name in out
    assert "Prediction of kind for" in page.read_text()


def archive(ending, content):
    """Bytes of an archive with a table in it."""
    if ending == "zip":
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as opened:
            opened.writestr("t.csv", content)
        return file.getvalue()
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    return compress[ending](content)


@pytest.mark.parametrize("ending", ["zip", "gz", "bz2", "xz"])
@pytest.mark.parametrize("damage", ["cut", "changed", "none at all"])
def test_the_error_names_what_is_wrong_with_a_damaged_archive(tmp_path, capsys, ending, damage):
    table = b"a,price\n" + b"".join(b"%d,%d\n" % (i, 7 * i % 31) for i in range(400))
    whole = archive(ending, table)
    path = tmp_path / f"t.csv.{ending}"
    path.write_bytes(whole)
    assert len(demo.load_csv(str(path), "price")[1]) == 400
    middle = len(whole) // 2
    damaged = {
        "cut": whole[:middle],
        "changed": whole[: middle - 20] + bytes(40) + whole[middle + 20 :],
        "none at all": b"neither",
    }[damage]
    path.write_bytes(damaged)
    assert demo.main([str(path), "price"]) == 2
    assert "cannot be read as CSV: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/demo.html", "--output must be in a folder that exists"),
        ("kept.html", "exists: choose another name, or --force"),
        ("demo.doc", "--output must end in .html"),
    ],
)
def test_the_error_names_where_it_cannot_write(name, message, tmp_path, capsys):
    (tmp_path / "kept.html").write_text("kept")
    assert demo.main(["--output", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "kept.html").read_text() == "kept"


@pytest.mark.parametrize("existing", [None, "earlier"])
def test_an_interrupted_demo_leaves_the_file_as_it_was(existing, tmp_path, monkeypatch, capsys):
    def interrupt(X, y, classes):
        raise KeyboardInterrupt

    page = tmp_path / "demo.html"
    if existing:
        page.write_text(existing)
    monkeypatch.setattr(demo, "compare", interrupt)
    assert demo.main(["--output", str(page), "--force"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert [each.read_text() for each in tmp_path.iterdir()] == [existing] * bool(existing)


def test_classes_of_few_rows_each(tmp_path, capsys, monkeypatch):
    """More classes than a fifth of the rows, if the user asks for them."""
    monkeypatch.setattr(demo, "compare", lambda X, y, classes: "")
    short = partial(demo.NONAClassifier, n_estimators=1, max_iter=2)
    monkeypatch.setattr(demo, "NONAClassifier", short)
    raw = pd.DataFrame({"a": range(69), "kind": [f"kind {i // 3}" for i in range(69)]})
    raw.to_csv(tmp_path / "t.csv", index=False)
    page = tmp_path / "t.html"
    arguments = [str(tmp_path / "t.csv"), "kind", "--task", "classes", "--output", str(page)]
    assert demo.main(arguments) == 0
    assert "69 rows, 1 features, target 'kind': 23 classes" in capsys.readouterr().out
    assert "Prediction of kind for" in page.read_text()


@pytest.mark.parametrize(("classes", "best"), [(False, "Highest R²: sure"), (True, "Lowest log")])
def test_the_comparison_ends_with_the_best(classes, best, monkeypatch, capsys):
    kind = "Classifier" if classes else "Regressor"
    tree, dummy = f"DecisionTree{kind}", f"Dummy{kind}"
    models = {"poor": getattr(dummies, dummy)(), "sure": getattr(trees, tree)()}
    monkeypatch.setattr(demo, "contestants", lambda classes: models)
    X = pd.DataFrame({"a": [*range(30), *range(100, 130)]})
    found = demo.compare(X, X["a"] >= 100 if classes else X["a"], classes)
    assert found.startswith(best)
    assert "sure" in found
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [*models]


def test_file_and_column_go_together(capsys):
    with pytest.raises(SystemExit):
        demo.main(["t.csv"])
    assert "FILE and COLUMN go together" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "nona_sklearn", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "--output HTML" in done.stdout


def test_the_error_names_missing_libraries(monkeypatch, capsys):
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert demo.main([]) == 2
    assert "the demo needs pandas: install the extra 'demo'" in capsys.readouterr().err


@pytest.mark.slow
def test_without_a_file_it_has_houses(tmp_path, capsys, monkeypatch):
    """Three rows behind the prediction stand beside the query, with values of their columns."""
    monkeypatch.setattr(demo, "compare", lambda X, y, classes: "")
    short = partial(demo.NONARegressor, n_estimators=1, max_iter=2)
    monkeypatch.setattr(demo, "NONARegressor", short)
    assert demo.main(["--output", str(tmp_path / "demo.html")]) == 0
    out = capsys.readouterr().out
    assert "2413 rows, 25 features, target 'price'" in out
    rows = re.findall(r"house \d+", out[out.index("largest weights:\n") :].splitlines()[2])
    assert len(rows) == demo.N_SHOWN
    X, y = load_ames(return_X_y=True)
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert lines["target"][: len(rows)] == [f"{price:,.0f}" for price in y[rows]]
    query = re.search(r"Row (house \d+): price predicted as", out)[1]
    assert f", true {y[query]:,.0f}." in out
    assert f"True value: <bdi>{y[query]:,.0f}</bdi>" in (tmp_path / "demo.html").read_text()
    for name in X.select_dtypes("int"):
        assert lines[name] == [str(value) for value in X.loc[[query, *rows], name]]


@pytest.mark.slow
def test_rows_without_a_target_are_left_out_and_each_warning_is_printed_once(
    table, tmp_path, capsys, monkeypatch
):
    short = partial(demo.NONARegressor, n_estimators=1, max_iter=2)
    monkeypatch.setattr(demo, "NONARegressor", short)
    monkeypatch.setattr(demo, "N_SPLITS", 2)
    table = table.assign(customer=[f"customer {i}" for i in range(80)])
    table.loc[5, "price"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    arguments = [str(tmp_path / "t.csv"), "price"]
    assert demo.main([*arguments, "--output", str(tmp_path / "demo.html")]) == 0
    out = capsys.readouterr().out
    assert "left out: 1 rows, without a value in 'price'" in out
    assert "79 rows, 3 features" in out
    assert out.count("'customer'") == 1
    assert "Warning: " in out


@pytest.mark.parametrize("classes", [False, True])
def test_contestants_are_what_their_names_say(classes):
    kinds = {"k-NN (k=5)": "KNeighbors", "logistic regression": "LogisticRegression"}
    for name, model in demo.contestants(classes).items():
        last = model[-1] if isinstance(model, Pipeline) else model
        assert type(last).__name__.startswith(kinds.get(name, name))
        if name in kinds:
            assert "standardscaler" in model.named_steps
        elif "random_state" in last.get_params():
            assert last.random_state == 0
    assert demo.contestants()["k-NN (k=5)"][-1].n_neighbors == 5
    assert demo.contestants()["NONARegressor"].n_neighbors == 10
