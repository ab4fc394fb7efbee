import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import RobustScaler, StandardScaler

from nona_sklearn._data.scaler import SmoothClipScaler

pytestmark = pytest.mark.numeric


def test_the_formula():
    X = np.array([[0.0], [1.0], [2.0], [3.0], [104.0]])  # median 2, quartiles 1 and 3
    expected = np.array([-1, -0.5, 0, 0.5, 51])
    expected = expected / np.sqrt(1 + (expected / 3) ** 2)
    np.testing.assert_allclose(SmoothClipScaler().fit_transform(X).ravel(), expected)


def test_the_bulk_is_scaled_by_quartiles():
    X = np.random.default_rng(0).normal(size=(500, 2))
    bulk = np.abs(X).max(axis=1) < 0.5
    np.testing.assert_allclose(
        SmoothClipScaler().fit(X).transform(X)[bulk],
        RobustScaler().fit(X).transform(X)[bulk],
        atol=0.02,
    )


def test_a_rare_category_is_scaled_by_its_deviation():
    X = np.zeros((100, 1))
    X[:4] = 1
    scaler = SmoothClipScaler().fit(X)
    np.testing.assert_allclose(scaler.scale_, StandardScaler().fit(X).scale_)
    assert (scaler.transform(X[5:]) == 0).all()


@given(
    hnp.arrays(float, (40, 1), elements=st.floats(-1e3, 1e3).map(lambda x: round(x, 3))),
    st.sampled_from([-900, -200, -90, 90, 900]),
)
def test_the_unit_does_not_matter(X, exponent):
    """Nor does it for a rare category, whose quartiles are equal, or one far value."""
    X = np.c_[X, np.arange(40.0) < 5, np.r_[np.arange(39.0), 1e15]]
    expected = SmoothClipScaler().fit_transform(X)
    scale = 2.0**exponent
    np.testing.assert_array_equal(SmoothClipScaler().fit_transform(scale * X), expected)


def test_rounding_is_no_spread():
    """What is left when tenths are added up is not a feature; 1e-9 of the size is one."""
    noise = 7 * (1 + np.finfo(float).eps * (np.arange(40.0) % 2))
    assert abs(SmoothClipScaler().fit_transform(noise[:, None])).max() < 1e-12
    small = 7 * (1 + 1e-9 * np.arange(40.0))
    expected = SmoothClipScaler().fit_transform(np.arange(40.0)[:, None])
    np.testing.assert_allclose(
        SmoothClipScaler().fit_transform(small[:, None]), expected, atol=1e-4
    )


def test_parameters_are_those_of_the_robust_scaler():
    X = np.arange(41.0)[:, None]
    wide = SmoothClipScaler(quantile_range=(0, 100)).fit(X)
    assert wide.scale_.tolist() == [40.0]
    assert wide.center_.tolist() == [20.0]


@given(hnp.arrays(float, st.tuples(st.integers(2, 9), st.just(2)), elements=st.floats(-1e9, 1e9)))
def test_values_are_bounded_and_keep_their_order(X):
    scaler = SmoothClipScaler().fit(X)
    assert (np.abs(scaler.transform(1e200 * X)) <= 3).all()
    scaled = scaler.transform(X)
    for column, image in zip(X.T, scaled.T, strict=True):
        assert (np.diff(image[np.argsort(column)]) >= 0).all()


def test_constant_columns_stay_finite():
    assert np.isfinite(SmoothClipScaler().fit_transform(np.full((5, 1), 7.0))).all()
