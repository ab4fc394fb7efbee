import sys

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor

from nona_sklearn.datasets import TARGETS, load_ames, make_plane_regression


@pytest.mark.parametrize("target", TARGETS)
def test_shape_seed_and_noise(target):
    X, y = make_plane_regression(target, 500, noise=0.0, random_state=3)
    X_noisy, noisy = make_plane_regression(target, 500, noise=0.2, random_state=3)
    assert X.shape == (500, 2)
    assert np.abs(X).max() <= 1
    np.testing.assert_array_equal(X, X_noisy)
    np.testing.assert_array_equal(y, TARGETS[target](X))
    np.testing.assert_allclose((noisy - y).std(), 0.2, rtol=0.1)


def test_targets_on_paper():
    X = np.array([[0.0, 0.5], [0.25, 0.25], [0.25, -0.25]])
    np.testing.assert_allclose(TARGETS["spiral"](X[:1]), 1.0)  # sin(pi/2 + 2 pi)
    np.testing.assert_allclose(TARGETS["rings"](X[:1]), 1.0)  # cos(2 pi)
    np.testing.assert_allclose(TARGETS["checkerboard"](X[1:]), [1.0, -1.0])
    np.testing.assert_array_equal(TARGETS["stairs"](X), [0.0, 0.0, 0.0])


@pytest.mark.parametrize(("target", "expected"), [("spiral", 0.86), ("checkerboard", 0.90)])
def test_as_hard_as_documented(target, expected):
    scores = []
    for seed in range(5):
        X, y = make_plane_regression(target, random_state=seed)
        scores.append(KNeighborsRegressor().fit(X[:800], y[:800]).score(X[800:], y[800:]))
    assert abs(np.mean(scores) - expected) < 0.02


def test_unknown_target():
    with pytest.raises(ValueError, match=r"target must be one of .*, got 'moons'"):
        make_plane_regression("moons")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        *(({"n_samples": n}, "n_samples must be a positive integer") for n in (-1, 0, 1.5, "a")),
        *(({"noise": noise}, "noise must be a number of at least 0") for noise in (-1, "a")),
    ],
)
def test_bad_arguments(changed, message):
    with pytest.raises(ValueError, match=f"{message}, got {next(iter(changed.values()))!r}"):
        make_plane_regression("rings", **changed)


def test_houses_have_what_tables_of_users_have():
    """Names, categories, missing values, a boolean, dates in order, coordinates in one town."""
    X, y = load_ames(return_X_y=True)
    assert X.index.is_unique
    assert (X.index == y.index).all()
    assert y.between(30_000, 800_000).all()
    assert {name for name in X if X[name].isna().any()} == {"lot_frontage"}
    assert X["lot_frontage"].isna().mean() == pytest.approx(0.19, abs=0.005)
    assert X["neighborhood"].nunique() == 28
    assert X["central_air"].dtype == bool
    assert X["sold"].is_monotonic_increasing
    assert {2006, 2010} == {X["sold"].min().year, X["sold"].max().year}
    assert X["longitude"].between(-93.7, -93.57).all()
    assert X["latitude"].between(41.98, 42.07).all()


def test_houses_as_a_bunch():
    X, y = load_ames(return_X_y=True)
    houses = load_ames()
    assert houses.data.equals(X)
    assert houses.target.equals(y)
    assert houses.frame.equals(X.assign(price=y))
    assert houses.feature_names == list(X)
    assert houses.target_names == ["price"]
    for name in X:
        assert f"\n{name} " in houses.DESCR
    assert "MIT licence" in houses.DESCR


def test_houses_need_a_boolean():
    with pytest.raises(ValueError, match="return_X_y must be True or False, got 'yes'"):
        load_ames(return_X_y="yes")


def test_columns_of_the_houses_hold_what_their_names_say():
    X, y = load_ames(return_X_y=True)
    assert (X["remodeled"] < X["year_built"]).sum() <= 1  # one of the source's own
    assert y.corr(X["living_area"]) > 0.65
    areas = ["lot_area", "living_area", "basement_area", "garage_area"]
    assert X[areas].median().tolist() == [9360, 1431, 970, 472]
    assert f"{len(X):,} ordinary" in load_ames().DESCR
    assert f"DataFrame of shape {X.shape}" in load_ames.__doc__
    share = (X["building"] != "single family").mean()
    assert share == pytest.approx(1 / 6, abs=0.01)  # "a sixth"


def test_the_error_without_pandas_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ImportError, match="load_ames needs pandas: install the extra 'demo', by pip"
    ):
        load_ames()
