import copy
import inspect
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from inner.inspection import class_colors, legend_beside
from inner.utils import page_template
from matplotlib import color_sequences
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

import nona_sklearn
from nona_sklearn import (
    CoverageDisplay,
    EffectDisplay,
    EmbeddingDisplay,
    IntervalDisplay,
    NeighborsDisplay,
    NONAClassifier,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    StepDisplay,
    TableEncoder,
)


@pytest.fixture(scope="module")
def reg(plane):
    return NONARegressor(max_iter=5, random_state=0).fit(plane[0], plane[2])


@pytest.fixture(scope="module")
def dense(plane):
    """Weights of all rows."""
    return NONARegressor(n_neighbors=None, max_iter=1, random_state=0).fit(plane[0], plane[2])


@pytest.fixture(scope="module")
def two_outputs(plane):
    return NONARegressor(max_iter=1).fit(plane[0], np.column_stack([plane[2]] * 2))


@pytest.fixture
def ax():
    return Figure().subplots()


LEGEND = ["target of a neighbour", "adjusted to the query", "prediction", "true target"]


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def labels_of(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


@pytest.mark.slow
def test_shows_the_heaviest_neighbours(reg, plane, ax):
    _, X_test, y, y_test = plane
    display = NeighborsDisplay.from_estimator(reg, X_test[:1], y_test[0], n_neighbors=4, ax=ax)
    weights, indices = reg.heaviest_neighbors(X_test[:1], 4)
    np.testing.assert_array_equal(display.weights, weights[0])
    np.testing.assert_array_equal(display.names, indices[0])
    np.testing.assert_array_equal(display.targets, y[indices[0]])
    assert display.prediction == reg.predict(X_test[:1])[0]
    assert display.ax_ is ax
    dots, lines, rings = ax.collections
    places = np.arange(4)
    np.testing.assert_array_equal(dots.get_offsets(), np.column_stack([y[indices[0]], places]))
    np.testing.assert_allclose(dots.get_sizes() / dots.get_sizes()[0], weights[0] / weights[0, 0])
    shares = [f"{i}   {weight:.1%}" for i, weight in zip(indices[0], weights[0], strict=True)]
    assert labels_of(ax) == shares
    assert ax.yaxis_inverted()  # the heaviest is on top
    assert legend_of(ax) == LEGEND
    table = reg.explain(X_test[:1], 4)
    np.testing.assert_array_equal(display.adjusted_targets, table["adjusted_target"][:4])
    ends = np.column_stack([display.adjusted_targets, places])
    np.testing.assert_array_equal(rings.get_offsets(), ends)
    np.testing.assert_array_equal([line[1] for line in lines.get_segments()], ends)
    assert [line.get_xdata()[0] for line in ax.lines] == [display.prediction, y_test[0]]


@pytest.mark.parametrize("height", [2.5, 3.6, 9])
def test_legend_lies_below_the_axis_label(reg, plane, height):
    figure = Figure(figsize=(6, height))
    ax = figure.subplots()
    NeighborsDisplay.from_estimator(reg, plane[1][:1], plane[3][0], ax=ax)
    figure.draw_without_rendering()
    label, legend = (each.get_window_extent() for each in (ax.xaxis.label, ax.get_legend()))
    assert 0 < label.y0 - legend.y1 < label.height


def test_the_legend_of_classes_covers_no_bar():
    figure = Figure(figsize=(6, 3), layout="constrained")
    ax = figure.subplots()
    PICTURES["votes"].plot(ax)
    figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1


def contributions_of(ax):
    (right,) = ax.child_axes
    return [float(label.get_text()) for label in right.get_yticklabels()], right.get_ylabel()


def test_writes_the_contributions_beside_the_rows(reg, plane, ax):
    _, X_test, _, _ = plane
    table, prediction = reg.explain(X_test[:1]), reg.predict(X_test[:1])[0]
    NeighborsDisplay.from_estimator(reg, X_test[:1], n_neighbors=5, ax=ax)
    written, _ = contributions_of(ax)
    rounding = 0.005 * table["contribution"].abs().max()  # three digits of the largest
    np.testing.assert_allclose(written, table["contribution"][:5], atol=rounding)
    assert f"({table['weight'][:5].sum():.0%} of the weight)" in ax.get_title()
    whole, axes = len(table), Figure().subplots()
    NeighborsDisplay.from_estimator(reg, X_test[:1], n_neighbors=whole, ax=axes)
    total = float(contributions_of(axes)[1].split()[1])
    assert axes.get_title() == f"all {whole} neighbours"
    np.testing.assert_allclose(total, prediction, atol=rounding)


def test_targets_as_they_are_are_drawn_once(reg, plane, ax):
    _, X_test, y, _ = plane
    plain = copy.deepcopy(reg).set_neighbor_targets(y)  # nothing is adjusted from then on
    display = NeighborsDisplay.from_estimator(plain, X_test[:1], n_neighbors=4, ax=ax)
    assert display.adjusted_targets is None
    assert legend_of(ax) == [LEGEND[0], "prediction"]
    (dots,) = ax.collections
    places = np.arange(4)
    np.testing.assert_array_equal(dots.get_offsets(), np.column_stack([display.targets, places]))


@pytest.mark.slow
def test_names_and_small_banks(dense, plane, ax):
    names = [f"house {i}" for i in range(120)]
    display = NeighborsDisplay.from_estimator(
        dense, plane[1][:1], n_neighbors=500, row_names=names, ax=ax
    )
    assert sorted(display.names) == sorted(names)
    assert ax.get_title() == "all 120 neighbours"
    labels = labels_of(ax)
    assert len(labels) == 40  # every third
    shares = [f"{n}   {w:.1%}" for n, w in zip(display.names, display.weights, strict=True)]
    assert labels == shares[::3]


def test_rows_of_a_frame_go_by_its_index(plane, ax):
    X, X_test, y, _ = plane
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"house {i}" for i in range(120)])
    reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0).fit(frame, y)
    query = pd.DataFrame(X_test[:1], columns=["a", "b"])
    display = NeighborsDisplay.from_estimator(reg, query, n_neighbors=3, ax=ax)
    ids = reg.heaviest_neighbors(query, 3)[1][0]
    assert display.names.tolist() == [f"house {i}" for i in ids]
    assert [label.split("   ")[0] for label in labels_of(ax)] == display.names.tolist()
    named = NeighborsDisplay.from_estimator(
        reg, query, n_neighbors=3, row_names=range(1000, 1120), ax=ax
    )
    np.testing.assert_array_equal(named.names, 1000 + ids)  # if passed, they take precedence


def test_names_survive_the_removal_of_rows(reg, plane, ax):
    edited = copy.deepcopy(reg)
    edited.remove_neighbors(ids=np.arange(50))
    display = NeighborsDisplay.from_estimator(edited, plane[1][:1], ax=ax)
    assert display.names.min() >= 50
    np.testing.assert_array_equal(display.targets, plane[2][display.names])


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
@pytest.mark.parametrize("n_named", [0, 120, 121, 122])
def test_added_rows_without_a_name_keep_theirs(dense, plane, ax, n_named):
    edited = copy.deepcopy(dense)
    edited.remove_neighbors(ids=np.arange(50))
    edited.add_neighbors(plane[1][:2], plane[3][:2])
    names = [f"house {i}" for i in range(n_named)]
    query = plane[1][:1]
    display = NeighborsDisplay.from_estimator(
        edited, query, n_neighbors=72, row_names=names, ax=ax
    )
    ids = edited.heaviest_neighbors(query, 72)[1][0]
    assert display.names.tolist() == [names[i] if i < n_named else i for i in ids]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_a_training_row_is_drawn_without_itself(reg, dense, plane, ax):
    X, _, y, _ = plane
    display = NeighborsDisplay.from_estimator(reg, row=5, n_neighbors=4, ax=ax)
    weights, ids = reg.heaviest_neighbors(None, 4)
    np.testing.assert_allclose(display.weights, weights[5], rtol=1e-5)
    np.testing.assert_array_equal(display.names, ids[5])
    np.testing.assert_allclose(display.prediction, reg.predict(None)[5], rtol=1e-6)
    assert display.y_true == y[5]
    assert legend_of(ax) == LEGEND
    assert 5 in NeighborsDisplay.from_estimator(reg, X[5:6], ax=ax).names
    edited = copy.deepcopy(dense).remove_neighbors(ids=[2, 3])
    without = NeighborsDisplay.from_estimator(edited, row=5, n_neighbors=500, ax=ax)
    assert {*without.names} == {*range(120)} - {2, 3, 5}  # an id, whatever its place


def test_a_training_row_goes_by_its_name(plane, ax):
    X, _, y, _ = plane
    frame = pd.DataFrame(X, columns=["a", "b"], index=["house", *range(2, 120), "house"])
    reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0).fit(frame, y)
    display = NeighborsDisplay.from_estimator(reg, row=7, ax=ax)
    assert display.y_true == y[6]
    assert 7 not in display.names
    wrong = [(row, "which names no row") for row in (120, [7], np.array([7]))]
    for row, which in [("house", "the name of 2 rows"), *wrong]:
        with pytest.raises(
            ValueError, match=f"row must be the name of one row .*, got .*, {which}"
        ):
            NeighborsDisplay.from_estimator(reg, row=row, ax=ax)


def test_all_rows_with_weight_are_drawn_if_they_are_few(plane, ax):
    X, X_test, y, _ = plane
    reg = NONARegressor(n_estimators=1, max_iter=1, weighting="sparsemax", random_state=0)
    reg.fit(X, y)
    sizes = reg.neighborhood(X_test)["n_nonzero_weights"]
    few = int(sizes.argmin())
    display = NeighborsDisplay.from_estimator(reg, X_test[few : few + 1], ax=ax)
    assert len(display.weights) == min(64, sizes[few])


def test_draws_on_a_new_figure_by_default(reg, plane, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt

    display = NeighborsDisplay.from_estimator(reg, plane[1][:1])
    assert display.figure_ is plt.gcf()
    plt.close("all")


@pytest.mark.slow
def test_one_of_several_outputs_is_drawn(two_outputs, plane, ax):
    query = plane[1][:1]
    display = NeighborsDisplay.from_estimator(two_outputs, query, n_neighbors=10, output=1, ax=ax)
    table = two_outputs.explain(query, 10)[:10]
    np.testing.assert_array_equal(display.targets, table["target_1"])
    np.testing.assert_array_equal(display.adjusted_targets, table["adjusted_target_1"])
    assert display.prediction == two_outputs.predict(query)[0, 1]
    assert ax.get_xlabel() == "target_1"


def test_one_query_and_one_output_only(reg, plane, two_outputs):
    with pytest.raises(ValueError, match=r"X must be one query, got predictions \(2,\)"):
        NeighborsDisplay.from_estimator(reg, plane[1][:2])
    with pytest.raises(ValueError, match=r"output must be one of \[0, 1\], got None"):
        NeighborsDisplay.from_estimator(two_outputs, plane[1][:1])
    y = np.zeros((120, 2))
    for draw in (
        lambda: EmbeddingDisplay.from_estimator(two_outputs),
        lambda: IntervalDisplay.from_estimator(two_outputs, plane[1], plane[3]),
        lambda: IntervalDisplay.from_estimator(reg, plane[0], y),
        lambda: CoverageDisplay.from_estimator(reg, plane[0], y, by=plane[2]),
    ):
        with pytest.raises(ValueError, match=r"y must be one output, got targets \(\d+, 2\)"):
            draw()


class TestEmbeddingDisplay:
    def test_shows_the_bank(self, reg, plane, ax):
        display = EmbeddingDisplay.from_estimator(reg, ax=ax)
        expected = PCA(2).fit_transform(reg.transform(plane[0]))
        np.testing.assert_allclose(display.embedding, expected, atol=1e-4)
        (dots,) = ax.collections
        np.testing.assert_array_equal(dots.get_offsets(), display.embedding)
        np.testing.assert_array_equal(dots.get_array(), plane[2])
        assert display.ax_ is ax
        assert display.figure_.axes[1].get_ylabel() == "target"  # the colour bar

    def test_other_rows_and_reducers(self, reg, plane, ax):
        display = EmbeddingDisplay.from_estimator(
            reg, plane[1], plane[3], reducer=FunctionTransformer(), ax=ax
        )
        np.testing.assert_array_equal(display.embedding, reg.transform(plane[1])[:, :2])
        np.testing.assert_array_equal(ax.collections[0].get_array(), plane[3])

    def test_draws_a_random_subset(self, reg, plane, ax):
        options = {"reducer": FunctionTransformer(), "max_rows": 7, "random_state": 0, "ax": ax}
        display = EmbeddingDisplay.from_estimator(reg, **options)
        again = EmbeddingDisplay.from_estimator(reg, **options)
        np.testing.assert_array_equal(display.targets, again.targets)
        rows = [plane[2].tolist().index(target) for target in display.targets]
        assert len(set(rows)) == 7
        assert rows != sorted(rows)
        np.testing.assert_array_equal(display.embedding, reg.transform(plane[0])[rows, :2])

    def test_pandas_output_is_welcome(self, reg, plane, ax):
        as_frame = copy.deepcopy(reg).set_output(transform="pandas")
        display = EmbeddingDisplay.from_estimator(as_frame, plane[1], plane[3], ax=ax)
        assert display.embedding.shape == (30, 2)

    def test_rows_come_with_their_targets(self, reg, plane):
        with pytest.raises(ValueError, match="X and y must be given together"):
            EmbeddingDisplay.from_estimator(reg, plane[1])
        with pytest.raises(ValueError, match="X and y must be given together"):
            EmbeddingDisplay.from_estimator(reg, y=plane[3])


class TestStepDisplay:
    def test_one_curve_for_each_network(self, plane, ax):
        reg = NONARegressor(n_estimators=2, softstep="s1", max_iter=2, random_state=0)
        reg.fit(plane[0], plane[2])
        display = StepDisplay.from_estimator(reg, n_points=11, ax=ax)
        for line, head in zip(ax.lines, reg.network_.head.heads, strict=True):
            a, b, t = (float(threshold) for threshold in head.step.thresholds())
            u = np.clip((np.linspace(0, 1, 11) - a) / (b - a), 0, 1)
            expected = u ** (1 / t) / (u ** (1 / t) + (1 - u) ** (1 / t))
            np.testing.assert_allclose(line.get_xydata()[:, 1], expected, atol=1e-5)
        np.testing.assert_allclose(ax.lines[0].get_xdata(), np.linspace(0, 1, 11), atol=1e-6)
        assert display.steps.shape == (2, 1, 11)
        assert ax.lines[0].get_color() != ax.lines[1].get_color()
        assert ax.get_title() == "Learned steps: 2 networks, a colour each"

    def test_one_curve_for_each_query(self, plane, ax):
        reg = NONARegressor(
            n_estimators=2,
            softstep=SoftStep(step="s2", params="pointwise"),
            max_iter=5,
            random_state=0,
        ).fit(plane[0], plane[2])
        StepDisplay.from_estimator(reg, plane[1], n_points=5, ax=ax)
        assert len(ax.lines) == 60
        assert {line.get_alpha() < 1 for line in ax.lines} == {True}
        assert ax.get_title() == "Learned steps for 30 queries: 2 networks, a colour each"
        query = torch.from_numpy(reg.transform(plane[1][3:4]))
        head = reg.network_.head.heads[1]
        b, t = (float(threshold) for threshold in head.step.thresholds(query[:, 32:]))
        x = np.array([0.25, 0.5])
        expected = np.where(x < b, (x / b) ** ((b - x) * t / (1 - t)), 1)
        np.testing.assert_allclose(ax.lines[33].get_ydata()[1:3], expected, rtol=1e-4)
        with pytest.raises(ValueError, match="X must be given with a pointwise softstep"):
            StepDisplay.from_estimator(reg)

    def test_a_single_step_on_ranks(self, plane, ax):
        options = {"similarity": "log_l2", "max_iter": 1, "random_state": 0}
        reg = SoftStepKNeighborsRegressor(**options).fit(plane[0], plane[2])
        StepDisplay.from_estimator(reg, ax=ax)
        assert "scaled rank" in ax.get_xlabel()
        assert ax.get_title() == "Learned steps: 1 network"
        assert len(ax.lines) == 1

    def test_needs_a_step(self, reg):
        with pytest.raises(ValueError, match="estimator must be fitted with softstep="):
            StepDisplay.from_estimator(reg)


class TestIntervalDisplay:
    def test_in_order_of_the_predictions(self, ax):
        predictions, y = np.array([3.0, 1.0, 2.0]), np.array([3.5, 9.0, -1.9])
        intervals = predictions[:, None] + [-4, 4]
        display = IntervalDisplay(intervals, predictions, y, confidence=0.8).plot(ax)
        bars = [path.vertices.tolist() for path in ax.collections[0].get_paths()]
        np.testing.assert_allclose(bars, [[[i, i - 3], [i, i + 5]] for i in range(3)])
        (prediction,) = (line.get_xydata().tolist() for line in ax.lines)
        inside, outside = (dots.get_offsets().tolist() for dots in ax.collections[1:])
        assert prediction == [[0, 1], [1, 2], [2, 3]]
        assert inside == [[1, -1.9], [2, 3.5]]
        assert outside == [[0, 9]]
        assert display.coverage_ == 2 / 3
        assert ax.get_title() == "80% intervals: 67% of 3 targets inside"
        assert legend_of(ax) == ["interval", "prediction", "target inside", "target outside"]

    def test_of_a_fitted_estimator(self, reg, plane, ax):
        display = IntervalDisplay.from_estimator(reg, plane[1], plane[3], ax=ax)
        expected = reg.predict_quantiles(plane[1], [0.05, 0.95])
        np.testing.assert_allclose(display.intervals, expected)
        assert display.intervals.shape == (30, 2)
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.sort(reg.predict(plane[1])))

    def test_of_training_rows_without_themselves(self, reg, plane, ax):
        display = IntervalDisplay.from_estimator(reg, ax=ax)
        expected = reg.predict_quantiles(None, [0.05, 0.95])
        np.testing.assert_allclose(display.intervals, expected)
        np.testing.assert_array_equal(display.predictions, reg.predict(None))
        np.testing.assert_array_equal(display.y_true, plane[2])

    @pytest.mark.parametrize("confidence", [0, 1, 90])
    def test_confidence_is_a_share(self, reg, plane, confidence):
        with pytest.raises(ValueError, match="confidence must lie between 0 and 1, got"):
            IntervalDisplay.from_estimator(reg, plane[1], plane[3], confidence=confidence)


class TestCoverageDisplay:
    def test_over_time(self, ax):
        times = np.array([4.0, 1.0, 3.0, 2.0, 6.0, 5.0])
        covered = np.array([False, True, True, True, False, True])
        display = CoverageDisplay(covered, times, 0.8, n_bins=3, name="year").plot(ax)
        np.testing.assert_array_equal(display.parts_, [2, 4, 6])
        np.testing.assert_array_equal(display.coverage_, [1, 0.5, 0.5])
        level, curve = ax.lines
        assert set(level.get_ydata()) == {0.8}
        np.testing.assert_array_equal(curve.get_xydata(), [[2, 1], [4, 0.5], [6, 0.5]])
        assert ax.get_title() == "80% intervals: 67% of 6 targets inside"
        assert ax.get_xlabel() == "year"
        assert legend_of(ax) == ["80%", "chance", "coverage"]

    def test_bars_are_wilson_intervals(self, ax):
        covered = np.repeat([True, False], [9, 1])
        CoverageDisplay(covered, np.arange(10), n_bins=1).plot(ax)
        (bar,) = ax.collections[0].get_paths()
        # Wilson (1927), z = 1.96: (p + z^2 / 2n +- z sqrt(p q / n + z^2 / 4n^2)) / (1 + z^2 / n)
        np.testing.assert_allclose(bar.vertices[:, 1], [0.5958, 0.9821], atol=1e-4)

    def test_of_groups(self, ax):
        groups = np.array(["b", "a", "b", "c"], dtype=object)
        display = CoverageDisplay(np.array([True, False, False, True]), groups).plot(ax)
        assert display.parts_.tolist() == ["a", "b", "c"]
        np.testing.assert_array_equal(display.coverage_, [0, 0.5, 1])
        assert ax.lines[1].get_linestyle() == "None"

    def test_of_a_fitted_estimator(self, reg, plane, ax):
        times = np.arange(30)[::-1]
        display = CoverageDisplay.from_estimator(
            reg, plane[1], plane[3], by=times, confidence=0.5, n_bins=2, ax=ax
        )
        low, high = reg.predict_quantiles(plane[1], [0.25, 0.75]).T
        inside = (low <= plane[3]) & (plane[3] <= high)
        np.testing.assert_allclose(display.coverage_, [inside[15:].mean(), inside[:15].mean()])

    def test_of_the_bank_and_of_queries_with_times(self, plane, ax):
        frame = pd.DataFrame(plane[0], columns=["a", "b"])
        frame["day"] = pd.date_range("2024-01-01", periods=len(frame))
        y = pd.Series(plane[2], name="price")
        timed = NONARegressor(n_estimators=1, max_iter=2, random_state=0)
        timed.fit(frame[:60], y[:60], times="day")
        own = CoverageDisplay.from_estimator(timed, by="day", n_bins=3, ax=ax)
        assert len(own.covered) == 59  # nothing is known of the first row
        assert own.parts_.dtype.kind == "M"
        assert own.parts_[0] < np.datetime64("2024-01-21") < own.parts_[1]
        later = CoverageDisplay.from_estimator(timed, frame[60:], y[60:], ax=Figure().subplots())
        assert later.ax_.get_xlabel() == "day"
        by_group = CoverageDisplay.from_estimator(
            timed,
            frame[60:],
            y[60:],
            by=np.where(frame.a[60:] > 0, "high", "low"),
            ax=Figure().subplots(),
        )
        assert by_group.parts_.tolist() == ["high", "low"]

    def test_ends_are_inside_and_may_be_infinite(self, ax):
        intervals = [[1, 2], [1, 2], [-np.inf, 5], [np.nan, 5], [3, np.nan]]
        display = CoverageDisplay.from_predictions(np.arange(1.0, 6), intervals, range(5), ax=ax)
        assert display.covered.tolist() == [True, True, True]
        assert ax.get_xlabel() == "time"

    def test_confidence_and_styles_are_passed_on(self, reg, plane, ax):
        times, line = np.arange(30), {"color": "red"}
        CoverageDisplay.from_estimator(
            reg, plane[1], plane[3], by=times, confidence=0.5, line_kwargs=line, ax=ax
        )
        assert set(ax.lines[0].get_ydata()) == {0.5}
        assert ax.lines[1].get_color() == "red"

    def test_of_other_models(self, ax):
        y = pd.Series([1.0, 2.0, 3.0])
        intervals = [[0, 2], [3, 4], [np.nan, np.nan]]
        store = pd.Series(["x", "x", "y"], name="store")
        display = CoverageDisplay.from_predictions(y, intervals, store, ax=ax)
        assert display.parts_.tolist() == ["x"]
        assert display.coverage_.tolist() == [0.5]
        assert ax.get_xlabel() == "store"

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"confidence": 1}, "confidence must lie between 0 and 1, got 1"),
            ({"n_bins": 0}, "n_bins must be"),
            ({"by": [1.0, 2.0]}, r"of shapes \(3, 2\) and \(3,\), .* got \(3, 2\) and \(2,\)"),
            ({"intervals": np.zeros((3, 3))}, "intervals and by must be of shapes"),
            ({"intervals": np.full((3, 2), np.nan)}, "got NaN alone"),
            ({"y_true": [1.0, np.nan, 2.0]}, "Input y_true contains NaN"),
        ],
    )
    def test_bad_predictions_are_named(self, changed, message, ax):
        given = {"y_true": np.zeros(3), "intervals": np.zeros((3, 2)), "by": np.arange(3.0)}
        with pytest.raises(ValueError, match=message):
            CoverageDisplay.from_predictions(**given | changed, ax=ax)

    def test_times_are_needed(self, reg, plane):
        with pytest.raises(ValueError, match="by must be given: the times, or groups"):
            CoverageDisplay.from_estimator(reg, plane[1], plane[3])
        with pytest.raises(ValueError, match="by must name a column of X, got 'day'"):
            CoverageDisplay.from_estimator(reg, plane[1], plane[3], by="day")


PREDICTED = np.array([1.0, 3.0, 2.0])
HELD = np.array([[0.0, 2.0], [2.0, 4.0], [1.0, 3.0]])


class TestIntervalsOfAnyModel:
    def test_they_are_drawn_as_those_of_an_estimator(self, reg, plane, ax):
        _, X_test, _, y_test = plane
        ours = IntervalDisplay.from_estimator(reg, X_test, y_test, confidence=0.5)
        intervals = reg.predict_quantiles(X_test, [0.25, 0.75])
        theirs = IntervalDisplay.from_predictions(
            y_test, reg.predict(X_test), intervals, confidence=0.5, ax=ax
        )
        assert theirs.coverage_ == ours.coverage_
        assert theirs.ax_.get_title() == ours.ax_.get_title()
        for mine, other in zip(ax.collections, ours.ax_.collections, strict=True):
            np.testing.assert_array_equal(mine.get_offsets(), other.get_offsets())

    def test_the_target_goes_by_its_name(self, ax):
        y = pd.Series([1.0, 9.0, 2.5], name="price")
        IntervalDisplay.from_predictions(y, PREDICTED, HELD, ax=ax)
        assert ax.get_ylabel() == "price"
        display = IntervalDisplay.from_predictions(y, PREDICTED, HELD, target_name="USD", ax=ax)
        assert display.target_name == "USD"

    def test_queries_without_an_interval_are_left_out(self, ax):
        intervals = np.array([[0.0, 2], [np.nan, 2], [2, 4]])
        display = IntervalDisplay.from_predictions([1, 9, 5], [1, np.nan, 3], intervals, ax=ax)
        assert display.coverage_ == 0.5

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"y_pred": PREDICTED[:2]}, r"of shapes \(3,\) and \(3, 2\), got \(2,\)"),
            ({"intervals": HELD.T}, r"of shapes \(3,\) and \(3, 2\), got .* and \(2, 3\)"),
            ({"y_true": HELD}, r"y must be one output"),
            ({"confidence": 90}, "confidence must lie between 0 and 1, got 90"),
        ],
    )
    def test_bad_input_is_named(self, changed, message, ax):
        given = {"y_true": PREDICTED, "y_pred": PREDICTED, "intervals": HELD, **changed}
        with pytest.raises(ValueError, match=message):
            IntervalDisplay.from_predictions(**given, ax=ax)
        assert not ax.has_data()


PICTURES = {
    "neighbours": NeighborsDisplay(np.array([0.7, 0.3]), np.array([1.0, 2.0]), ["a", "b"], 1.3),
    "votes": NeighborsDisplay(
        *(np.array([0.7, 0.3]), np.array(["x", "y"]), ["a", "b"], "x"),
        probabilities={"x": 0.65, "y": 0.35},
        added={"network": {"x": -0.05, "y": 0.05}},
    ),
    "embedding": EmbeddingDisplay(HELD, PREDICTED),
    "classes": EmbeddingDisplay(HELD, PREDICTED, classes=np.array([1.0, 2.0, 3.0])),
    "steps": StepDisplay(PREDICTED, np.ones((1, 1, 3))),
    "intervals": IntervalDisplay(HELD, PREDICTED, PREDICTED),
    "coverage": CoverageDisplay(np.array([True, False, True]), np.arange(3.0)),
}


class TestStyles:
    """Matplotlib's own arguments reach the parts of a picture."""

    @pytest.mark.parametrize("picture", ["neighbours", "embedding", "classes", "intervals"])
    @pytest.mark.parametrize("name", ["linewidths", "lw"])
    def test_of_dots(self, picture, name, ax):
        PICTURES[picture].plot(ax, scatter_kwargs={name: 3.0, "edgecolor": "red"})
        dots = [each for each in ax.collections if isinstance(each, PathCollection)]
        assert dots
        for each in dots:
            assert each.get_linewidths() == [3.0]
            assert [to_hex(color) for color in each.get_edgecolors()] == ["#ff0000"]

    @pytest.mark.parametrize("picture", ["steps", "intervals", "coverage"])
    @pytest.mark.parametrize("name", ["linewidth", "lw"])
    def test_of_curves(self, picture, name, ax):
        PICTURES[picture].plot(ax, line_kwargs={name: 7.0, "c": "red"})
        curves = [
            line for line in ax.lines if len(line.get_xdata()) > 1 and line.get_label() != "90%"
        ]
        assert curves
        assert {(line.get_linewidth(), line.get_color()) for line in curves} == {(7.0, "red")}

    def test_of_bars_and_intervals(self):
        bars, intervals = (Figure().subplots() for _ in range(2))
        PICTURES["votes"].plot(bars, bar_kwargs={"hatch": "//"})
        assert [bar.get_hatch() for bar in bars.patches[:2]] == ["//", "//"]
        PICTURES["intervals"].plot(intervals, interval_kwargs={"lw": 9})
        assert intervals.collections[0].get_linewidths() == [9]

    @pytest.mark.parametrize("picture", PICTURES)
    def test_of_parts_that_there_are_not_is_refused(self, picture, ax):
        display = PICTURES[picture]
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            display.plot(ax, colour={})
        parts = re.findall(r"\w+_kwargs", str(inspect.signature(display.plot)))
        for part in parts:
            with pytest.raises(TypeError, match=f"{part} must be a dict, got 'red'"):
                display.plot(ax, **{part: "red"})
        assert not ax.has_data()


def test_a_notebook_shows_size_loss_and_where_to_read_more(reg, monkeypatch):
    template = page_template("https://example.org/en")
    monkeypatch.setattr(type(reg), "_doc_link_template", template)
    page = reg._repr_html_()
    version = nona_sklearn.__version__
    assert f"/v{version}/generated/api/nona_sklearn.NONARegressor.html" in page
    assert repr(reg.bank_) == f"NeighborBank(n_rows={len(reg.bank_)})"
    if not hasattr(reg, "_get_fitted_attr_html"):
        pytest.skip("scikit-learn 1.8 shows parameters alone")
    assert repr(reg.bank_) in page
    assert f"{reg.best_loss_:.4g}" in page
    assert "n_estimators_" in page
    assert "bank_" not in NONARegressor()._repr_html_()


@pytest.mark.parametrize("kind", [TableEncoder, NONAClassifier, SoftStepKNeighborsClassifier])
def test_every_estimator_has_a_page(kind, monkeypatch):
    monkeypatch.setattr(kind, "_doc_link_template", page_template("https://example.org/en"))
    assert kind()._get_doc_link().endswith(f"nona_sklearn.{kind.__name__}.html")


@pytest.mark.parametrize("n_classes", [2, 10, 11, 20, 21, 60])
def test_each_class_has_a_colour_of_its_own(n_classes):
    colors = class_colors(n_classes)
    assert len({*map(tuple, colors)}) == len(colors) == n_classes
    if n_classes <= 10:
        expected = color_sequences["petroff10"][:n_classes]
        assert [*map(to_hex, colors)] == [*map(to_hex, expected)]


@pytest.mark.parametrize(("n_labels", "n_columns"), [(1, 1), (20, 1), (21, 2), (40, 2)])
def test_long_legends_take_several_columns(n_labels, n_columns, ax):
    for i in range(n_labels):
        ax.plot([], [], label=str(i))
    legend_beside(ax, n_labels)
    ax.figure.draw_without_rendering()
    lefts = {round(text.get_window_extent().x0) for text in ax.get_legend().get_texts()}
    assert len(lefts) == n_columns


@pytest.mark.parametrize("kind", [IntervalDisplay, EmbeddingDisplay, CoverageDisplay])
def test_what_is_no_estimator_is_refused(kind, plane):
    with pytest.raises(TypeError, match=r"must be a .*[rR]egressor.*, got 3"):
        kind.from_estimator(3, plane[0], plane[2])


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        (EmbeddingDisplay, {"y": [1.0]}, "inconsistent numbers of samples: X has 30, y has 1"),
        (EmbeddingDisplay, {"max_rows": 1}, "max_rows must be an integer of at least 2, got 1"),
        (IntervalDisplay, {"y": np.full(30, np.nan)}, "Input y_true contains NaN"),
        (IntervalDisplay, {"y": None}, "X and y must be given together, or neither, got y=None"),
        (IntervalDisplay, {"X": None}, "X and y must be given together, or neither, got X=None"),
        (IntervalDisplay, {"confidence": "a"}, "confidence must lie between 0 and 1, got 'a'"),
    ],
)
def test_bad_arguments_are_named(reg, plane, kind, changed, message):
    with pytest.raises(ValueError, match=message):
        kind.from_estimator(reg, **{"X": plane[1], "y": plane[3], **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y_true": [1.0, 2.0]}, r"y_true must be a number, got \[1.0, 2.0\]"),
        ({"y_true": "a"}, "y_true must be a number, got 'a'"),
        ({"n_neighbors": "a"}, "n_neighbors must be a positive integer, got 'a'"),
        ({"row_names": "abc"}, "row_names must be a list of names, got 'abc'"),
        ({"row": 3}, "exactly one of X and row must be given, got both"),
        ({"X": None}, "exactly one of X and row must be given, got neither"),
        ({"X": None, "row": 3, "y_true": 1.0}, r"y_true must be None with row, .* got 1\.0"),
    ],
)
def test_bad_arguments_of_neighbors_are_named(reg, plane, changed, message):
    with pytest.raises(ValueError, match=message):
        NeighborsDisplay.from_estimator(reg, **{"X": plane[1][:1], **changed})


def test_one_row_is_no_picture(reg, plane):
    with pytest.raises(ValueError, match="must have at least 2 rows to draw, got 1"):
        EmbeddingDisplay.from_estimator(reg, plane[1][:1], plane[3][:1])


@pytest.mark.parametrize("display", PICTURES.values(), ids=PICTURES)
def test_the_error_without_matplotlib_names_the_extra(display, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = f"{type(display).__name__} needs matplotlib: install the extra 'demo', by pip"
    with pytest.raises(ImportError, match=message):
        display.plot()


# -- the effect of a column ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def sales():
    random = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "area": random.uniform(40, 120, 150),
            "district": random.choice(["old", "new"], 150),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(150), "D"),
        }
    )
    y = 5 * X["area"] + 100 * (X["district"] == "new")
    X.loc[3, "area"], X.loc[4, "district"] = np.nan, None
    params = {"max_iter": 20, "n_estimators": 1, "random_state": 0}
    return X, y, NONARegressor(**params).fit(X, y.rename("price"))


class TestEffectDisplay:
    def test_numbers_and_dates_are_a_curve_of_ascending_values(self, sales, ax):
        X, _, reg = sales
        display = EffectDisplay.from_estimator(reg, X, "area", ax=ax)
        assert display.values.tolist() == sorted(X["area"].dropna())
        parts = reg.attribute(X, of="predictions")
        np.testing.assert_allclose(display.effects[0], parts["area"][X["area"].idxmin()])
        assert display.effects[-1] - display.effects[0] > 200  # about 5 a square metre
        assert ax.get_xlabel() == "area"
        assert ax.get_ylabel() == "effect on price"
        dates = EffectDisplay.from_estimator(reg, X, 2, ax=Figure().subplots())
        assert dates.values.dtype.kind == "M"

    def test_categories_are_bars_in_the_order_of_their_effects(self, sales, ax):
        X, _, reg = sales
        display = EffectDisplay.from_estimator(reg, X, "district", ax=ax)
        assert display.values.tolist() == ["old", "new"]
        assert len(ax.patches) == 2

    def test_classes_have_curves_of_their_log_odds(self, sales, ax):
        X, y, _ = sales
        params = {"max_iter": 5, "n_estimators": 1, "random_state": 0}
        dear = (y.fillna(400) > 450).map({True: "yes", False: "no"}).rename("dear")
        clf = NONAClassifier(**params).fit(X, dear)
        yes = EffectDisplay.from_estimator(clf, X, "area", ax=ax)
        assert yes.effects[-1] - yes.effects[0] > 1
        assert ax.get_ylabel() == "effect on log odds of dear = yes"
        new = {"ax": Figure().subplots()}
        no = EffectDisplay.from_estimator(clf, X, "area", class_of_interest="no", **new)
        np.testing.assert_array_equal(no.effects, -yes.effects)
        thirds = pd.qcut(y.fillna(400), 3, labels=["low", "middle", "high"])
        both = pd.DataFrame({"third": thirds.astype(str), "dear": dear})
        clf = NONAClassifier(**params).fit(X, both)
        parts = clf.attribute(X, of="predictions")
        options = new | {"output": 0, "class_of_interest": "low"}
        low = EffectDisplay.from_estimator(clf, X, "area", **options)
        effect = parts["area_third_low"]
        np.testing.assert_array_equal(low.effects[0], effect[X["area"].idxmin()])
        for output in (1, "dear"):
            display = EffectDisplay.from_estimator(clf, X, "area", output=output, **new)
            of_least = parts["area_dear"][X["area"].idxmin()]
            np.testing.assert_array_equal(display.effects[0], of_least)
        with pytest.raises(ValueError, match=r"one of \['high', 'low', 'middle'\], got None"):
            EffectDisplay.from_estimator(clf, X, "area", **new)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"class_of_interest": "yes"}, "class_of_interest must be None for numbers, got 'y"),
            ({"feature": "floor"}, "feature must be a column of X, got 'floor'"),
            ({"feature": 3}, "feature must be a column of X, got 3"),
            ({"output": 1}, r"output must be one of \[0, 'price'\], got 1"),
        ],
    )
    def test_bad_columns(self, sales, options, message):
        X, _, reg = sales
        with pytest.raises(ValueError, match=message):
            EffectDisplay.from_estimator(reg, X, **options)
