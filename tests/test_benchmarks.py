"""That every benchmark runs: quickly, on few rows. Only their full runs check the claims."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.stats import entropy
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.datasets import load_diabetes
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils._testing import ignore_warnings

from benchmarks import __main__ as command
from benchmarks import scores, structure
from benchmarks.internals import DenseHead

#: Warnings of pytabkit and its libraries, where it is installed.
pytestmark = [
    # Tables of quick runs are made up, of words among others.
    pytest.mark.filterwarnings("ignore:column .* categories in .* rows:UserWarning"),
    pytest.mark.filterwarnings("default:::pytabkit"),
    pytest.mark.filterwarnings("default:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("default:.isinstance.treespec, LeafSpec.. is deprecated"),
]

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
#: What the benchmarks share.
HELPERS = {
    "class_data",
    "finetune_data",
    "hard_data",
    "internals",
    "ledger",
    "quick",
    "rivals",
    "scores",
    "time_data",
    "timing",
}


def kept_files():
    """Content of all that a full run may write."""
    paths = [*command.RESULTS.iterdir(), *command.IMAGES.iterdir()]
    return {path: path.read_bytes() for path in paths}


LONG = (  # two seconds and more
    *(
        "predict",
        "shards",
        "fit_shards",
        "large",
        "saving",
        "memory",
        "synthetic",
        "pictures",
        "classes",
    ),
    *("uncertainty", "search", "fit", "onnx", "serving", "geometry", "report", "charts"),
    *("accuracy", "faster", "ablation", "collapse", "as_softmax", "weightings", "raw"),
    *(
        "eligibility",
        "stability",
        "structure",
        "places",
        "bank_edits",
        "recursion",
        "edits",
        "costs",
    ),
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
        for name in command.BENCHMARKS
    ],
)
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


@pytest.mark.slow
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


def test_the_error_lists_the_names(capsys):
    assert command.main(["speed"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: there is no benchmark 'speed'; there are ablation, accuracy,")
    assert error.count("\n") == 1


def test_the_error_names_missing_libraries(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.main(["uncertainty"]) == 2
    assert capsys.readouterr().err == (
        "error: uncertainty needs pandas and pyarrow and quantile_forest: "
        "install the extra 'benchmark', by pip install \".[benchmark]\" in a copy of the "
        "repository of nona_sklearn\n"
    )
    assert command.missing_libraries("uncertainty", small=True) == ["pandas"]


def test_lists_the_options_of_one(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["accuracy", "--help"])
    out = capsys.readouterr().out
    assert "--quick" in out
    assert "--models" in out


def test_calibration_error_on_paper():
    """In one bin 0.9 is predicted twice and right once, in another 0.6 is right."""
    is_class = np.array([[True, False], [False, True], [False, True]])
    proba = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
    expected = (abs(0.9 - 1 + 0.9) + abs(0.6 - 1)) / 3
    assert scores.calibration_error(is_class, proba) == pytest.approx(expected)


def test_shares_of_classes_are_calibrated_and_rank_nothing():
    y = np.repeat(["a", "b", "c"], [5, 3, 2])
    X = np.zeros((10, 1))
    judged = scores.judge_classes(DummyClassifier().fit(X, y), X, y)
    assert judged == pytest.approx(
        {
            "n_test": 10,
            "log_loss": entropy([0.5, 0.3, 0.2]),
            "error": 0.5,
            "auc": 0.5,
            "calibration_error": 0,
        }
    )


def test_the_perplexity_of_equal_weights_is_their_number():
    weights = sparse.csr_array([[0.25] * 4, [0, 0.5, 0.5, 0], [1, 0, 0, 0]])
    np.testing.assert_allclose(scores.perplexity(weights), [4, 2, 1])


def test_weights_are_described_by_medians_behind_a_pipeline_too():
    class Halves(BaseEstimator):
        bank_ = None

        def fit(self, X, y):
            return self

        def neighbor_weights(self, X):
            assert np.array_equal(X, [[0.0], [1.0], [1.0]])
            return sparse.csr_array([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]])

    X = np.array([[2.0], [4.0], [4.0]])
    model = make_pipeline(MinMaxScaler(), Halves()).fit(X, X[:, 0])
    assert scores.describe_weights(model, X) == pytest.approx(dict.fromkeys(scores.WEIGHTS, 2))
    assert scores.describe_weights(DummyClassifier().fit(X, [0, 1, 1]), X) == {}


def test_a_ratio_of_errors_on_paper():
    """Logarithms of the ratios: 0 and 2 on one set, 1 and 1 on another."""
    pd = pytest.importorskip("pandas")
    one, few = np.ones(4), np.exp([0, 2, 1, 1])
    results = pd.DataFrame(
        {
            "set": list("aabb") * 2,
            "seed": [0, 1] * 4,
            "model": ["other"] * 4 + ["NONA"] * 4,
            "error": np.concatenate([one, few]),
        }
    )
    ratio, chance = scores.paired_ratio(results, "error", "NONA", "other")
    assert ratio == pytest.approx(np.e)
    # The mean of the first set has variance 2 / 2, that of the second 0; theirs a quarter of both.
    assert chance == pytest.approx(np.e / 2)


def test_results_of_earlier_versions_get_new_columns(tmp_path):
    pd = pytest.importorskip("pandas")
    from benchmarks import ledger

    path = tmp_path / "results.csv"
    path.write_text('model,nrmse\n"k-NN, tuned",0.10\n')
    ledger.append(path, pd.DataFrame([{"model": "NONA", "nrmse": 0.5, "n_rows": 3}]))
    ledger.append(path, pd.DataFrame([{"model": "MLP", "nrmse": 0.25}]))
    assert path.read_text() == ('model,nrmse,n_rows\n"k-NN, tuned",0.10,\nNONA,0.5,3\nMLP,0.25,\n')


def test_a_split_has_a_fifth_of_each_class():
    pd = pytest.importorskip("pandas")
    from benchmarks import real_data

    counts = np.array([1000, 100, 10])
    y = np.repeat([0, 1, 2], counts)
    sets = {"rare": lambda: (pd.DataFrame({"row": range(len(y))}), y)}
    X_train, X_test, y_train, y_test = real_data.split("rare", 0, sets=sets)
    assert np.array_equal(np.bincount(y_test), counts / 5)
    assert sorted([*X_train["row"], *X_test["row"]]) == list(range(len(y)))
    assert np.array_equal(y[X_train["row"]], y_train)
    again, *_ = real_data.split("rare", 0, sets=sets)
    other, *_ = real_data.split("rare", 1, sets=sets)
    assert again.equals(X_train)
    assert not other.equals(X_train)


@pytest.mark.slow
def test_variants_that_no_parameter_reaches_predict_otherwise():
    pytest.importorskip("pandas")
    from benchmarks import ablation

    errors = {
        variant: ablation.measure_quickly(variant, "diabetes", 0)["nrmse"]
        for variant in ("default", *ablation.OWN_CLASSES)
        if variant != "average=False, falling epochs at the end"  # which may bring no gain
    }
    assert len({*errors.values()}) == len(errors)


@ignore_warnings(category=ConvergenceWarning)
def test_epochs_at_a_falling_rate_follow_the_training():
    from benchmarks.internals import WithFallingEpochs

    reg = WithFallingEpochs(n_estimators=1, max_iter=2, random_state=0, trend=None)
    reg.fit(*load_diabetes(return_X_y=True))
    assert len(reg.history_) == 2 + 6


def test_scatter_on_paper():
    """Rows at 0 and 2, and at 10 and 12: within 4 * 1, between 4 * 25."""
    from benchmarks import collapse

    z, labels = np.array([[0.0], [2.0], [10.0], [12.0]]), np.array(list("aabb"))
    assert collapse.scatter_within(z, labels) == 4
    assert collapse.within_over_between(z, labels) == pytest.approx(0.04)
    assert collapse.within_over_between(z[[0, 0, 2, 2]], labels) == 0


def test_what_the_way_to_the_best_epoch_cost():
    pytest.importorskip("pandas")
    from benchmarks import as_softmax

    losses, own, accuracies = [0.5, 0.2, 0.4], [0.3, 0.2, 0.1], [0.7, 0.8, 0.9]
    history = [
        {
            "valid_loss": loss,
            "valid_as_softmax": of_margin,
            "valid_accuracy": accuracy,
            "cpu": 2.0,
            "train_batch_count": 5,
        }
        for loss, of_margin, accuracy in zip(losses, own, accuracies, strict=True)
    ]
    summary = as_softmax.sum_up(history)
    assert summary == pytest.approx(
        {
            "epochs": 3,
            "seconds_per_epoch": 2,
            "epochs_to_best": 2,
            "steps_to_best": 10,
            "seconds_to_best": 4,
            "rho_valid_loss": -0.5,
            "missed_valid_loss": 0.1,
            "rho_valid_as_softmax": -1,
            "missed_valid_as_softmax": 0,
        }
    )


def test_the_geometry_of_an_embedding_on_paper():
    """Targets 0, 1, 2 and 3 on a line, and the same rows with two of them exchanged."""
    pytest.importorskip("pandas")
    from benchmarks import geometry

    y = np.arange(4.0)
    line = np.stack([2 * y, np.zeros(4)], axis=1)
    assert geometry.rank_correlation(line, y) == pytest.approx(1)
    assert geometry.rank_correlation(line[[0, 2, 1, 3]], y) < 0.5
    # The two others that are nearest: variances 1/4, 1, 1 and 1/4; that of all is 5/4.
    assert geometry.spread_of_nearest(line, y, n_nearest=2) == pytest.approx(0.625 / 1.25)
    assert geometry.effective_dimensions(line) == pytest.approx(1)
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    assert geometry.effective_dimensions(corners + 5) == pytest.approx(2)
    assert geometry.effective_dimensions(corners * [2, 1]) == pytest.approx(5**2 / (4**2 + 1))


def test_the_similarity_of_embeddings_on_paper():
    pytest.importorskip("pandas")
    from benchmarks import geometry

    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    turned = 3 * corners @ np.array([[0.6, 0.8], [-0.8, 0.6]]) + 7
    assert geometry.linear_cka(corners, turned) == pytest.approx(1)
    assert geometry.linear_cka(corners[:, :1], corners[:, 1:]) == pytest.approx(0)
    # One of two equal dimensions.
    assert geometry.linear_cka(corners, corners[:, :1]) == pytest.approx(1 / np.sqrt(2))


def test_the_claims_about_geometry_hold_in_the_ledger():
    pd = pytest.importorskip("pandas")
    from benchmarks import geometry

    results = pd.read_csv(command.RESULTS / "geometry.csv")
    assert len(results) == len(geometry.SETS) * len(geometry.SEEDS) * len(geometry.HEADS)
    geometry.check(results)


def test_the_ratios_of_a_chart_on_paper():
    pd = pytest.importorskip("pandas")
    from benchmarks import charts

    errors = pd.DataFrame({"s": [1.0, 2.0, 4.0], "t": [2.0, 1.0, 2.0]}, index=["a", "b", "c"])
    ratios = charts.relative(errors, ["a", "c"], baseline="b")
    assert list(ratios.index) == ["a", "c"]
    assert charts.overall(ratios).tolist() == pytest.approx([1, 2])  # geometric means
    texts = [charts.percent(ratio) for ratio in (1.25, 0.8, 1.001)]
    assert texts == ["+25", "\N{MINUS SIGN}20", "0"]


def test_a_dense_head_on_paper():
    """A linear layer after a ReLU: 2 max(0, -3) + 5 max(0, 1) + 0.5 = 5.5."""
    head = DenseHead(2, None)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[2.0, 5.0]]))
        head.linear.bias.fill_(0.5)
    assert head(torch.tensor([[-3.0, 1.0]])).tolist() == [5.5]


def test_methods_that_scikit_learn_defines_are_not_own_methods():
    class Estimator(TransformerMixin, RegressorMixin, BaseEstimator):
        coef_ = None

        def fit(self, X, y, sample_weight=None):
            return self

        def predict(self, X):
            return self._predict(X)

        def _predict(self, X):
            return X[:, 0]

        def transform(self, X):
            return X

        def explain(self, X):
            return X

    assert hasattr(Estimator, "set_fit_request")
    assert structure.own_methods(Estimator) == {"transform", "explain"}
    figures = structure.interface()
    assert all(figures[name] <= structure.LIMITS[name] for name in figures)
