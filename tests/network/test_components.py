"""Components of wide tables: what they are of, and what they are for."""

import numpy as np
import pytest
import torch
from inner.network import LEAST, relevance, supervised_components
from sklearn.feature_selection import f_classif, r_regression
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.preprocessing import OneHotEncoder

from nona_sklearn import NONAClassifier, NONARegressor

N_ROWS, N_FEATURES = 40, 60
EXACT = 1e-10  # of float64, after sums over some tens of rows


def noise(n_columns=N_FEATURES, n_rows=N_ROWS):
    return np.random.default_rng(0).normal(size=(n_rows, n_columns))


def components_of(X, y, n_components=8):
    tensors = (torch.tensor(each, dtype=torch.float32) for each in (X, y))
    return supervised_components(*tensors, n_components)


def adjusted(explained, n_directions, n_rows=N_ROWS):
    """The usual formula of the adjusted R^2, with a denominator of n - 1 for both variances."""
    return explained - n_directions / (n_rows - 1) * (1 - explained)


def test_relevance_is_the_adjusted_r2():
    X = noise()
    y = X[:, 0] + X[:, 1] + noise(1)[:, 0]
    expected = np.maximum(adjusted(r_regression(X, y) ** 2, 1), 0) + LEAST / (N_ROWS - 1)
    np.testing.assert_allclose(relevance(X, y[:, None]), expected, rtol=EXACT)


def test_relevance_does_not_depend_on_the_units_of_the_columns():
    X, y = noise(), noise(1)
    units = 10.0 ** np.arange(-5, X.shape[1] - 5)
    np.testing.assert_allclose(relevance(X * units, y), relevance(X, y), rtol=EXACT)


def test_relevance_of_several_outputs_is_that_of_a_regression_on_all_of_them():
    X, y = noise(), noise(3) ** 2
    explained = [LinearRegression().fit(y, column).score(y, column) for column in X.T]
    expected = np.maximum(adjusted(np.array(explained), 3), 0) + LEAST * 3 / (N_ROWS - 1)
    np.testing.assert_allclose(relevance(X, y), expected, rtol=EXACT)


def test_relevance_to_classes_is_that_of_an_analysis_of_variance():
    X, labels = noise(), np.arange(N_ROWS) % 3
    y = OneHotEncoder(sparse_output=False).fit_transform(labels[:, None])
    ratio = f_classif(X, labels)[0] * 2 / (N_ROWS - 3)  # between and within groups
    explained = ratio / (1 + ratio)
    expected = np.maximum(adjusted(explained, 2), 0) + LEAST * 2 / (N_ROWS - 1)
    np.testing.assert_allclose(relevance(X, y), expected, rtol=EXACT)


@pytest.mark.parametrize("constant", ["targets", "columns"])
def test_constants_have_no_relevance_of_their_own(constant):
    X, y = noise(), noise(1)
    (y if constant == "targets" else X)[:] = 3
    np.testing.assert_array_equal(relevance(X, y), LEAST / (N_ROWS - 1))


def test_components_are_centred_uncorrelated_and_of_one_scale():
    X = noise() + 5
    Z = components_of(X, X[:, 0])(torch.tensor(X, dtype=torch.float32)).double().numpy()
    rounding = np.finfo(np.float32).eps * N_FEATURES * 5  # of sums over columns near 5
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=rounding)
    np.testing.assert_allclose(np.mean(Z**2), 1, rtol=rounding)
    products = Z.T @ Z / N_ROWS
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=20 * rounding)


def test_further_columns_stay_behind_the_components():
    X = noise()
    tensors = [torch.tensor(each, dtype=torch.float32) for each in (X, X[:, 0])]
    Z = supervised_components(*tensors, 8, n_scores=2)(tensors[0])
    alone = components_of(X[:, :-2], X[:, 0])(tensors[0][:, :-2])
    torch.testing.assert_close(Z, torch.hstack([alone, tensors[0][:, -2:]]))


def test_the_first_component_is_of_relevant_columns():
    X = noise(N_FEATURES, 400)
    weights = components_of(X, X[:, 3] + X[:, 5]).weight[0].abs()
    assert {*weights.argsort(descending=True)[:2].tolist()} == {3, 5}


def test_components_do_not_depend_on_the_unit_of_the_targets():
    X = noise()
    weights = [components_of(X, unit * X[:, 0]).weight for unit in (1, 1024)]
    torch.testing.assert_close(weights[0].abs(), weights[1].abs())


def test_there_are_no_more_components_than_rows():
    assert components_of(noise(60, 5), noise(1, 5)[:, 0], 64).out_features == 5


def few_of_many(n_rows=160, n_columns=300):
    """Targets of four columns of many."""
    X = noise(n_columns, n_rows)
    return X, X[:, :4].sum(axis=1) + 0.3 * noise(1, n_rows)[:, 0]


@pytest.mark.slow
def test_few_columns_of_many_are_found():
    X, y = few_of_many()
    reg = NONARegressor(n_estimators=2, max_iter=40, random_state=0).fit(X[:120], y[:120])
    ridge = RidgeCV(np.logspace(-2, 5, 15)).fit(X[:120], y[:120])
    assert reg.score(X[120:], y[120:]) > ridge.score(X[120:], y[120:]) + 0.2


@pytest.mark.slow
def test_few_columns_of_many_are_found_for_classes():
    X, y = few_of_many()
    classes = np.where(y > 0, "high", "low")
    clf = NONAClassifier(n_estimators=2, max_iter=40, random_state=0)
    assert clf.fit(X[:120], classes[:120]).score(X[120:], classes[120:]) > 0.75


@pytest.mark.parametrize(
    ("shape", "numerical_embedding", "expected"),
    [
        ((80, 65), "auto", 65),
        ((80, 140), "auto", 80),
        ((160, 140), "auto", 128),
        ((80, 64), "auto", None),  # few columns
        ((264, 66), "auto", None),  # a quarter of the rows
        ((80, 65), None, None),
        ((80, 65), "periodic", None),
    ],
)
def test_which_tables_are_wide(shape, numerical_embedding, expected):
    n_rows, n_columns = shape
    X = noise(n_columns, n_rows)
    options = {"similarity": "l2", "numerical_embedding": numerical_embedding}
    reg = NONARegressor(n_estimators=1, max_iter=1, validation_fraction=None, **options)
    reg.fit(X, X[:, 0])
    first = next(reg.network_.embedding.children())
    found = first.out_features if isinstance(first, torch.nn.Linear) else None
    assert found == expected


@pytest.mark.slow
def test_components_are_of_training_rows_alone():
    """Validation rows choose neither the columns nor the directions."""
    X, y = few_of_many(80, 100)
    reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0, similarity="l2")
    components = reg.fit(X, y).network_.embedding[0].weight.clone()
    valid = reg.validation_indices_[0]
    X[valid] = X[valid][::-1]  # the scale of each column stays
    assert torch.equal(reg.fit(X, y).network_.embedding[0].weight, components)


@pytest.mark.slow
def test_components_are_not_trained():
    X, y = few_of_many(80, 100)
    weights = [
        NONARegressor(
            similarity="l2", n_estimators=1, max_iter=n, validation_fraction=None, random_state=0
        )
        .fit(X, y)
        .network_.embedding[0]
        .weight
        for n in (1, 5)
    ]
    assert torch.equal(*weights)
