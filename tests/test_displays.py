import numpy as np
import pytest
from matplotlib.figure import Figure

from nona_sklearn import NeighborsDisplay, NONARegressor


@pytest.fixture(scope="module")
def reg(plane):
    return NONARegressor(max_iter=5, random_state=0).fit(plane[0], plane[2])


def test_shows_the_heaviest_neighbours(reg, plane):
    _, X_test, y, y_test = plane
    ax = Figure().subplots()
    display = NeighborsDisplay.from_estimator(reg, X_test[:1], y_test[0], n_neighbors=4, ax=ax)
    weights, indices = reg.kneighbors(X_test[:1], 4)
    np.testing.assert_array_equal(display.weights, weights[0])
    np.testing.assert_array_equal(display.names, indices[0])
    np.testing.assert_array_equal(display.targets, y[indices[0]])
    assert display.prediction == reg.predict(X_test[:1])[0]
    assert display.ax_ is ax
    drawn = ax.lines[0].get_xydata()
    np.testing.assert_array_equal(drawn, np.column_stack([y[indices[0]], weights[0]]))
    assert [text.get_text() for text in ax.texts] == [str(i) for i in indices[0]]
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["neighbour", "prediction", "true target"]


def test_names_and_small_banks(reg, plane):
    names = [f"house {i}" for i in range(120)]
    ax = Figure().subplots()
    display = NeighborsDisplay.from_estimator(
        reg, plane[1][:1], n_neighbors=500, row_names=names, ax=ax
    )
    assert sorted(display.names) == sorted(names)
    assert "100% of the weight" in ax.get_title()


def test_draws_on_a_new_figure_by_default(reg, plane, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt

    display = NeighborsDisplay.from_estimator(reg, plane[1][:1])
    assert display.figure_ is plt.gcf()
    plt.close("all")


def test_one_query_and_one_output_only(reg, plane):
    with pytest.raises(ValueError, match=r"X must be one query .*, got predictions \(2,\)"):
        NeighborsDisplay.from_estimator(reg, plane[1][:2])
    two = NONARegressor(max_iter=1).fit(plane[0], np.column_stack([plane[2]] * 2))
    with pytest.raises(ValueError, match=r"one output, got predictions \(1, 2\)"):
        NeighborsDisplay.from_estimator(two, plane[1][:1])
