import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inner.data import SmoothClipScaler, source
from inner.utils import tables
from scipy.special import ndtri
from scipy.stats import rankdata, spearmanr
from sklearn.preprocessing import RobustScaler, StandardScaler

from nona_sklearn import NONARegressor, TableEncoder


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
    X = np.c_[X, np.exp(np.arange(40.0) / 4)]  # a skewed column
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


@given(
    hnp.arrays(float, st.tuples(st.integers(2, 9), st.just(2)), elements=st.floats(-1e9, 1e9)),
    st.booleans(),
)
def test_values_are_bounded_and_keep_their_order(X, long):
    X = np.r_[X, np.exp(np.arange(80.0) / 4).reshape(40, 2)] if long else X
    scaler = SmoothClipScaler().fit(X)
    assert (np.abs(scaler.transform(1e200 * X)) <= 3).all()
    scaled = scaler.transform(X)
    for column, image in zip(X.T, scaled.T, strict=True):
        assert (np.diff(image[np.argsort(column)]) >= 0).all()


def test_constant_columns_stay_finite():
    assert np.isfinite(SmoothClipScaler().fit_transform(np.full((5, 1), 7.0))).all()


# -- skewed columns --------------------------------------------------------------------------


def skewed(n_rows=1000):
    return np.exp(8 * np.random.default_rng(0).uniform(size=n_rows))


def test_a_skewed_column_becomes_its_normal_scores():
    """Scaled by their interquartile range and clipped, as a column of normal numbers is."""
    X, n_rows = skewed()[:, None], 1000
    scaler = SmoothClipScaler().fit(X)
    assert scaler.skewed_.tolist() == [0]
    scores = ndtri((rankdata(X) - 0.5) / n_rows) / np.subtract(*ndtri([0.75, 0.25]))
    bulk = abs(scores) < 1.2  # where lines between the percentiles follow the curve
    scores /= np.hypot(1, scores / 3)
    np.testing.assert_allclose(scaler.transform(X)[bulk, 0], scores[bulk], atol=0.02)


def test_a_few_outliers_make_no_column_skewed():
    bulk = np.random.default_rng(0).normal(size=40)
    column = np.r_[bulk, 20, 30, 40, 50][:, None]  # four are more than a twentieth
    assert SmoothClipScaler().fit(column).skewed_.size == 0
    assert SmoothClipScaler().fit(np.tile(column, (4, 1))).skewed_.size == 1


def test_no_row_of_a_skewed_column_is_far_from_all_others():
    """Scaled by quartiles, the largest tenth would be beyond the bound, and about equal."""
    X = skewed()[:, None]
    scaled = SmoothClipScaler().fit_transform(X)
    assert abs(scaled).max() < 2
    top = X[:, 0] > np.quantile(X, 0.9)
    assert np.ptp(scaled[top]) > 0.5
    assert spearmanr(scaled[top], X[top]).statistic > 0.98


@pytest.mark.parametrize(
    "column",
    [
        np.random.default_rng(0).normal(size=1000),
        np.random.default_rng(0).exponential(size=1000),
        np.r_[np.random.default_rng(0).normal(size=960), np.full(40, 1e6)],  # 4 % are far
        np.r_[np.arange(12.0), [1e3] * 9],  # too few rows
        np.r_[np.repeat(np.arange(8.0), 100), np.full(100, 1e3)],  # too few values
        np.r_[np.zeros(900), np.arange(100.0)],  # equal quartiles
        np.r_[np.zeros(300), skewed(700)],  # many at an end
        -np.r_[np.zeros(300), skewed(700)],
    ],
)
def test_other_columns_stay_as_they_are(column):
    scaler = SmoothClipScaler().fit(np.c_[skewed(len(column)), column])
    assert 1 not in scaler.skewed_
    expected = SmoothClipScaler().fit_transform(column[:, None])
    np.testing.assert_allclose(
        scaler.transform(np.c_[column, column])[:, 1:], expected, rtol=1e-12
    )


def test_equal_values_of_a_skewed_column_are_equal():
    """Also where they are many of its quantiles: the score is that of their mean level."""
    X = np.r_[np.zeros(200), skewed(800)][:, None]
    scaler = SmoothClipScaler().fit(X)
    zeros = scaler.quantiles_[:, 0] == 0
    assert zeros.sum() > 10
    levels = np.linspace(0, 1, 101)
    np.testing.assert_allclose(scaler.scores_[zeros], ndtri(levels[zeros].mean()))
    assert np.unique(scaler.transform(X)[:200]).size == 1


def test_beyond_the_seen_values_a_skewed_column_ends():
    scaler = SmoothClipScaler().fit(skewed()[:, None])
    ends = scaler.transform([[-1e300], [0.0], [np.exp(4)], [np.exp(8)], [1e300]])
    assert ends[0] == ends[1]
    assert ends[3] == pytest.approx(ends[4])
    assert (np.diff(ends[1:4, 0]) > 0).all()


def test_large_tables_are_fitted_and_scaled_in_parts_with_the_same_result(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(5_000, 3)), rng.lognormal(sigma=3, size=(5_000, 2))]
    with_gaps = np.where(rng.random(X.shape) < 0.1, np.nan, X)

    def encoded():
        reg = NONARegressor(n_estimators=1, max_iter=1, trend=None, random_state=0)
        reg.fit(X[:2_000], X[:2_000, 0])
        scaler = SmoothClipScaler().fit(X)
        attributes = [scaler.center_, scaler.scale_, scaler.skewed_, scaler.quantiles_]
        table = TableEncoder().fit_transform(with_gaps)
        embeddings = reg.embed(X).embeddings.numpy()
        return [*attributes, scaler.scores_, embeddings, table, scaler.n_features_in_]

    whole = encoded()
    assert whole[2].tolist() == [3, 4]
    monkeypatch.setattr(source, "COPIED", 2_000)
    monkeypatch.setattr(source, "EMBED_BLOCK", 700)
    monkeypatch.setattr(tables, "COPIED", 2_000)
    for expected, in_parts in zip(whole, encoded(), strict=True):
        np.testing.assert_array_equal(in_parts, expected)
