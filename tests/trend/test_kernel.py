"""Kernel ridge regression and its errors of left-out rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from inner.data import TableRows
from inner.trend import CONSTANT, Kernel, KernelTrend, LeftOut, choose_kernel, kernel_trend
from scipy.spatial.distance import cdist

RNG = np.random.default_rng(0)
N = 40
X = RNG.normal(size=(N, 3))
Y = np.stack([np.sin(2 * X[:, 0]) + X[:, 1], X[:, 2] ** 2], axis=1)
Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
WEIGHTS = RNG.uniform(0.5, 2, size=N)
GROUPS = RNG.integers(0, 12, size=N)
TIMES = RNG.integers(0, 15, size=N).astype(float)
KERNEL = Kernel(np.array([0.5, 0.3, 0.1]), slope=0.2, peak=0.4, ridge=0.05)


def k(A, B):
    """The kernel, by its definition."""
    distances = cdist(A * KERNEL.weights, B * KERNEL.weights, "cityblock")
    laplace = np.exp(-distances) + KERNEL.peak * np.exp(-10 * distances)
    return laplace + KERNEL.slope * A @ B.T + CONSTANT


def predicted(rows, at, weights=WEIGHTS, y=Y, X=X):
    """What ridge regression on some rows predicts at others."""
    matrix = k(X[rows], X[rows]) + np.diag(KERNEL.ridge / weights[rows])
    return k(at, X[rows]) @ np.linalg.solve(matrix, y[rows])


def test_the_kernel_of_two_rows_on_paper():
    """|0.5 - 0| * 2 = 1 and |1 - 1| * 3 = 0, so e^-1; 0.1 * (0.5 * 0 + 1 * 1); the constant."""
    kernel = Kernel(np.array([2.0, 3.0]), slope=0.1)
    found = kernel(np.array([[0.5, 1.0]]), np.array([[0.0, 1.0]]))
    np.testing.assert_allclose(found, [[np.exp(-1) + 0.1 + CONSTANT]], rtol=1e-12)


@pytest.mark.parametrize("kind", ["rows", "groups", "times"])
def test_errors_without_a_row_are_those_of_a_fit_without_it(kind):
    parts = {"groups": GROUPS} if kind == "groups" else {}
    parts |= {"times": TIMES} if kind == "times" else {}
    a, errors = LeftOut(WEIGHTS, **parts).solve(KERNEL(X, X), Y, KERNEL.ridge)
    np.testing.assert_allclose(KERNEL(X, X) @ a, predicted(np.arange(N), X), atol=1e-9)
    for i in range(N):
        others = {
            "rows": np.arange(N) != i,
            "groups": GROUPS[i] != GROUPS,
            "times": TIMES[i] > TIMES,
        }[kind]
        expected = predicted(np.flatnonzero(others), X[[i]])[0] if others.any() else 0.0
        np.testing.assert_allclose(errors[i], Y[i] - expected, atol=1e-9)


def test_a_row_of_weight_2_is_two_rows():
    twice = np.append(np.arange(N), 7)
    heavy = np.where(np.arange(N) == 7, 2.0, 1.0)
    expected = predicted(twice, X, np.ones(N))
    a, _ = LeftOut(heavy).solve(KERNEL(X, X), Y, KERNEL.ridge)
    np.testing.assert_allclose(KERNEL(X, X) @ a, expected, atol=1e-9)


def test_features_are_weighted_by_what_they_have_to_do_with_the_targets():
    many = RNG.normal(size=(300, 4))
    y = np.sin(3 * many[:, [1]])
    kernel = choose_kernel(many, y / y.std(), LeftOut(np.ones(300)))
    assert kernel.weights[1] > 5 * np.delete(kernel.weights, 1).max()


def test_an_output_of_noise_does_not_smooth_another():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    clean, noise = np.sin(X[:, :1]) + X[:, 1:], rng.normal(size=(200, 3))
    rows = LeftOut(np.ones(200))
    of_clean, of_noise, of_both = (
        choose_kernel(X, y, rows).ridge for y in (clean, noise, np.hstack([clean, noise]))
    )
    assert 10 * of_clean <= of_noise
    assert of_both <= of_noise / 10


def test_twins_have_a_peak_in_common():
    """Rows come in pairs of one target, which is noise otherwise: the peak tells the twin's."""
    rows = np.repeat(RNG.normal(size=(100, 5)), 2, axis=0)
    y = np.repeat(RNG.normal(size=(100, 1)), 2, axis=0)
    kernel = choose_kernel(rows, y, LeftOut(np.ones(200)))
    assert kernel.peak > 0
    errors = LeftOut(np.ones(200)).solve(kernel(rows, rows), y, kernel.ridge)[1]
    assert errors.std() < 0.2


def test_a_linear_target_of_few_rows_has_a_linear_part():
    """Its error is a fraction of that of the Laplace kernel alone."""
    few = RNG.normal(size=(60, 20))
    y = few @ RNG.normal(size=(20, 1))
    kernel = choose_kernel(few, y / y.std(), LeftOut(np.ones(60)))
    assert kernel.slope > 0
    errors = [
        LeftOut(np.ones(60)).solve(each(few, few), y / y.std(), each.ridge)[1].std()
        for each in (kernel, replace(kernel, slope=0.0))
    ]
    assert errors[0] < 0.5 * errors[1]


CENTER, UNIT = np.array([5.0, -1.0]), np.array([2.0, 10.0])
IDS, X32 = np.arange(N) * 3, X.astype(np.float32)


def features(rows):
    return TableRows(torch.tensor(np.array(rows), dtype=torch.float32))


def trend(rows=slice(None), **parts):
    left_out = LeftOut(WEIGHTS, **parts)[np.arange(N)[rows]]
    of_rows = IDS[rows], X32[rows], Y[rows], left_out
    return KernelTrend.solve(*of_rows, KERNEL, CENTER, UNIT)


def at_rows(found, rows=slice(None), limits=None):
    return found.of_rows(IDS[rows], features(X32[rows]), limits)


def values(found, at):
    return found(features(at)).numpy()


def test_the_trend_is_ridge_regression_in_units_of_the_targets():
    rounded = X.astype(np.float32).astype(float)
    new = RNG.normal(size=(10, 3)).astype(np.float32).astype(float)
    expected = CENTER + UNIT * predicted(np.arange(N), new, X=rounded)
    np.testing.assert_allclose(values(trend(), new), expected, atol=1e-8)


def test_at_a_row_the_trend_is_that_of_the_others():
    found = trend()
    for i in (0, 5, N - 1):
        others = trend(np.arange(N) != i)
        expected = values(others, X[[i]])
        np.testing.assert_allclose(at_rows(found, [i]), expected, atol=1e-8)


def test_a_row_that_is_removed_was_never_there():
    gone = np.isin(np.arange(N), [3, 17])
    left, never = trend(times=TIMES).without(IDS[gone]), trend(~gone, times=TIMES)
    np.testing.assert_allclose(values(left, X), values(never, X), atol=1e-9)
    np.testing.assert_allclose(at_rows(left, ~gone), at_rows(never, ~gone), atol=1e-9)
    assert not np.isin(IDS[gone], left.ids).any()


def test_a_row_that_is_added_does_not_change_the_function():
    new, number = features(np.zeros((1, 3))), np.array([1000])
    found = trend()
    assert found.with_rows(number, new) is found
    np.testing.assert_allclose(found.of_rows(number, new), found(new).numpy())
    assert found.without(number) is found


def test_a_query_has_the_trend_of_earlier_rows():
    found = trend(times=TIMES)
    limits = np.array([0.0, 4.0, 4.5, 15.0])
    at = X[:4]
    got = found.from_earlier(features(at), torch.tensor(limits)).numpy()
    rounded = X.astype(np.float32).astype(float)
    for row, limit, value in zip(rounded[:4], limits, got, strict=True):
        rows = np.flatnonzero(float(limit) > TIMES)
        expected = predicted(rows, row[None], X=rounded)[0] if len(rows) else 0.0
        np.testing.assert_allclose(value, CENTER + UNIT * expected, atol=1e-8)


def test_a_row_with_a_limit_has_the_trend_of_rows_before_it():
    found, limits = trend(times=TIMES), torch.tensor([2.0, 4.0, 7.0])
    expected = found.from_earlier(features(X[:3]), limits).numpy()
    np.testing.assert_allclose(at_rows(found, slice(3), limits), expected)


def test_of_a_large_table_the_function_is_fitted_to_some_rows(monkeypatch):
    """The others have the values of the function, which does not know their targets."""
    monkeypatch.setattr(kernel_trend, "MAX_KERNEL_ROWS", 25)
    found = KernelTrend.fit(IDS, X32, Y, LeftOut(np.ones(N)), CENTER, UNIT)
    other = ~np.isin(IDS, found.ids)
    assert other.sum() == N - 25
    np.testing.assert_array_equal(found.y, Y[~other])
    np.testing.assert_allclose(at_rows(found, other), values(found, X32[other]))
    moved = found.moved(IDS[other], features(X32[::-1].copy()[other])).numpy()
    np.testing.assert_allclose(moved, values(found, X32[::-1].copy()[other]))


def test_values_move_with_features():
    """From those of other rows, as the function does, whose values there have a closed form."""
    found, other = trend(), X[::-1].astype(np.float32)
    moved = found.moved(IDS, features(other)).numpy() - at_rows(found)
    np.testing.assert_allclose(moved, values(found, other) - values(found, X), atol=1e-8)


@pytest.fixture
def few_landmarks(monkeypatch):
    monkeypatch.setattr(kernel_trend, "EXACT_ROWS", 10)
    monkeypatch.setattr(kernel_trend, "N_LANDMARKS", 15)


def predicted_by_landmarks(rows, at):
    """Ridge regression on the features of 15 landmarks among all rows, by normal equations."""
    rounded = X.astype(np.float32).astype(float)
    Z = rounded[np.random.RandomState(0).permutation(N)[:15]]
    roots, directions = np.linalg.eigh(k(Z, Z))
    F, at = (k(points, Z) @ directions / np.sqrt(roots) for points in (rounded[rows], at))
    weighted = F.T * WEIGHTS[rows]
    return at @ np.linalg.solve(weighted @ F + KERNEL.ridge * np.eye(15), weighted @ Y[rows])


@pytest.mark.parametrize("parts", [{}, {"groups": GROUPS}], ids=["rows", "groups"])
def test_of_many_rows_landmarks_alone_have_coefficients(few_landmarks, parts):
    """Values of left-out rows, landmarks or not, are those of a fit without them."""
    found, new = trend(**parts), RNG.normal(size=(10, 3)).astype(np.float32).astype(float)
    assert len(found.coefficients) == 15
    expected = CENTER + UNIT * predicted_by_landmarks(np.arange(N), new)
    np.testing.assert_allclose(values(found, new), expected, rtol=1e-4)  # by the jitter
    rounded, labels = X.astype(np.float32).astype(float), parts.get("groups", np.arange(N))
    for i in range(N):
        others = np.flatnonzero(labels != labels[i])
        expected = CENTER + UNIT * predicted_by_landmarks(others, rounded[[i]])
        np.testing.assert_allclose(at_rows(found, [i]), expected, rtol=1e-4)


def test_residuals_without_two_rows(few_landmarks):
    found, rounded = trend(), X.astype(np.float32).astype(float)
    ids, queries = IDS[5:9], IDS[[7, 20]]
    residuals = CENTER + UNIT * Y[5:9] - at_rows(found, slice(5, 9))
    got = found.residuals_without(queries, ids, residuals)
    for i, query in enumerate((7, 20)):
        for j, row in enumerate(range(5, 9)):
            others = np.setdiff1d(np.arange(N), [query, row])
            expected = UNIT * (Y[row] - predicted_by_landmarks(others, rounded[[row]])[0])
            np.testing.assert_allclose(got[i, j], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("parts", [{}, {"groups": GROUPS}], ids=["rows", "groups"])
def test_shifts_are_what_removing_a_row_does(parts):
    """Of queries, and of rows, each without itself or its group, in float64."""
    found, new = trend(**parts), RNG.normal(size=(10, 3)).astype(np.float32)
    removed = np.append(IDS[::-1], 1)  # in any order; the last is of no row
    at_new = found.shifts(removed, features(new))
    at_own = found.shifts_of_rows(removed, IDS, features(X32))
    assert at_new.shape == (10, N + 1, 2)
    assert not at_new[:, -1].any()
    assert not at_own[:, -1].any()
    for j in (0, 7, N - 1):
        kept, fewer = np.delete(np.arange(N), j), found.without(IDS[[j]])
        change = values(fewer, new) - values(found, new)
        np.testing.assert_allclose(at_new[:, N - 1 - j], change, rtol=1e-8, atol=1e-10)
        change = at_rows(fewer, kept) - at_rows(found, kept)
        np.testing.assert_allclose(at_own[kept, N - 1 - j], change, rtol=1e-8, atol=1e-10)
    few = found.without(IDS[:5])  # the others have no value of their own, but that of queries
    others = few.shifts_of_rows(removed, IDS[:5], features(X32[:5]))
    np.testing.assert_array_equal(others, few.shifts(removed, features(X32[:5])))


def test_shifts_of_landmarks_are_of_the_same_landmarks(few_landmarks):
    found, new = trend(), RNG.normal(size=(10, 3)).astype(np.float32)
    at_new = found.shifts(IDS, features(new))
    at_own = found.shifts_of_rows(IDS, IDS[:4], features(X32[:4]))
    rounded = X32.astype(float)
    for j in (5, 21):
        kept = np.delete(np.arange(N), j)
        expected = CENTER + UNIT * predicted_by_landmarks(kept, new.astype(float))
        np.testing.assert_allclose(values(found, new) + at_new[:, j], expected, rtol=1e-4)
        for i in range(4):
            others = np.delete(np.arange(N), [i, j])
            expected = CENTER + UNIT * predicted_by_landmarks(others, rounded[[i]])[0]
            shifted = at_rows(found, [i])[0] + at_own[i, j]
            np.testing.assert_allclose(shifted, expected, rtol=1e-4)  # by the jitter


def test_shifts_without_a_query_are_those_of_a_function_without_it():
    found, X_own = trend(), features(X32[5:9])
    at_own = found.shifts_of_rows(IDS, IDS[5:9], X_own, query=IDS[20])
    fewer = found.without(IDS[[20]])
    expected = fewer.shifts_of_rows(IDS, IDS[5:9], X_own)
    np.testing.assert_allclose(at_own, expected, rtol=1e-8, atol=1e-10)


def test_equal_landmarks_are_no_error(few_landmarks):
    twins = np.tile(X[:3], (20, 1)).astype(np.float32)
    rows, y = LeftOut(np.ones(60)), np.tile(Y[:3], (20, 1))
    of_rows = np.arange(60), twins, y, rows
    found = KernelTrend.solve(*of_rows, KERNEL, CENTER, UNIT)
    np.testing.assert_allclose(values(found, X[:3]), CENTER + UNIT * Y[:3], rtol=0.02)


@pytest.mark.parametrize("parts", [{}, {"groups": GROUPS}], ids=["rows", "groups"])
@pytest.mark.parametrize("n_exact", [10, N])
def test_rows_are_taken_out_in_closed_form(few_landmarks, monkeypatch, parts, n_exact):
    """Values, left-out values and shifts are those of a function solved anew, in float64."""
    monkeypatch.setattr(kernel_trend, "EXACT_ROWS", n_exact)
    found, new = trend(**parts), RNG.normal(size=(10, 3)).astype(np.float32)
    every = np.random.RandomState(0).permutation(N)  # 15 landmarks, then other rows
    monkeypatch.setattr(KernelTrend, "solve", None)
    left = found.without(IDS[[every[3]]]).without(np.sort(IDS[every[20:22]]))
    monkeypatch.undo()
    monkeypatch.setattr(kernel_trend, "EXACT_ROWS", n_exact)
    kept = np.isin(IDS, left.ids)
    assert kept.sum() == N - 3
    anew = KernelTrend.solve(
        *(left.ids, left.X, left.y, left.rows, left.kernel, CENTER, UNIT, left.landmarks)
    )
    exact = {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(values(left, new), values(anew, new), **exact)
    np.testing.assert_allclose(at_rows(left, kept), at_rows(anew, kept), **exact)
    at_new = (each.shifts(IDS[kept], features(new)) for each in (left, anew))
    np.testing.assert_allclose(*at_new, **exact)
    of_rows = IDS[kept][:5], IDS[kept], features(X32[kept])
    np.testing.assert_allclose(
        left.shifts_of_rows(*of_rows), anew.shifts_of_rows(*of_rows), **exact
    )
