import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import RobustScaler, StandardScaler

from nona_sklearn._scaler import SmoothClipScaler


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


@given(hnp.arrays(float, st.tuples(st.integers(2, 9), st.just(2)), elements=st.floats(-1e9, 1e9)))
def test_values_are_bounded_and_keep_their_order(X):
    scaler = SmoothClipScaler().fit(X)
    assert (np.abs(scaler.transform(1e200 * X)) <= 3).all()
    scaled = scaler.transform(X)
    for column, image in zip(X.T, scaled.T, strict=True):
        assert (np.diff(image[np.argsort(column)]) >= 0).all()


def test_constant_columns_stay_finite():
    assert np.isfinite(SmoothClipScaler().fit_transform(np.full((5, 1), 7.0))).all()
