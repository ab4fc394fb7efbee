import numpy as np
import pytest
import sklearn
from inner.data import MOST_COMPONENTS, LinearScores, SparseEncoder
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist

WIDE = MOST_COMPONENTS + 100


def sparse_rows(n_rows, n_columns=WIDE, seed=0):
    rng = np.random.default_rng(seed)
    shape = n_rows, n_columns
    return csr_array(rng.random(shape) * (rng.random(shape) < 0.05))


def test_distances_stay_where_the_rank_is_low():
    """With as many components as the rank, encoding is a rotation."""
    X = sparse_rows(40)
    encoded = SparseEncoder().fit_transform(X)
    assert encoded.shape == (40, 40)
    np.testing.assert_allclose(pdist(encoded), pdist(X.toarray()), rtol=1e-9)


@pytest.mark.slow
def test_of_more_rows_the_leading_components_are_kept():
    """Without its last singular values, a matrix loses their squares, Eckart and Young."""
    X = sparse_rows(350)
    values = np.linalg.svd(X.toarray(), compute_uv=False)
    encoder = SparseEncoder()
    assert encoder.fit_transform(X).shape == (350, MOST_COMPONENTS)
    restored = encoder.svd_.inverse_transform(encoder.svd_.transform(X))
    lost, least = ((restored - X.toarray()) ** 2).sum(), (values[MOST_COMPONENTS:] ** 2).sum()
    assert least <= lost < 2 * least


def test_few_rows_have_fewer_components():
    for n_rows, n_components in ((40, 8), (4, 1)):
        encoder = SparseEncoder(rows_per_component=5)
        assert encoder.fit_transform(sparse_rows(n_rows)).shape == (n_rows, n_components)


@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_components"),
    [
        (900, 5000, 450),
        (3000, 5000, 1000),
        (3000, 500, 500),
        (100_000, 5000, 335),
        (1_000_000, 5000, 300),
    ],
)
def test_more_components_are_chosen_from_unless_the_matrix_is_large(
    n_rows, n_features, n_components
):
    assert SparseEncoder.to_choose_from().count_components(n_rows, n_features) == n_components


def test_rows_keep_their_lengths():
    X = sparse_rows(50)
    encoder = SparseEncoder(rows_per_component=5)
    lengths = np.linalg.norm(X.toarray(), axis=1)
    for rows in encoder.fit_transform(X), encoder.transform(X):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), lengths)


def test_a_row_of_columns_that_were_empty_in_fit_is_zero():
    """Not a direction of rounding errors."""
    X = sparse_rows(50).tolil()
    X[:, :10] = 0
    query = csr_array((np.ones(10), (np.zeros(10, int), np.arange(10))), shape=(1, WIDE))
    encoder = SparseEncoder()
    encoder.fit_transform(X.tocsr())
    assert not encoder.transform(query).any()


def test_new_rows_are_encoded_as_those_of_fit_be_they_sparse_or_dense():
    X = sparse_rows(20)
    encoder = SparseEncoder()
    encoded = encoder.fit_transform(X)
    for rows in X, X.toarray(), X.tocsc():
        np.testing.assert_allclose(encoder.transform(rows), encoded, atol=1e-12)
    np.testing.assert_array_equal(encoder.transform(X.toarray()), encoder.transform(X))


@pytest.mark.slow
def test_the_random_state_is_local():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (SparseEncoder().fit_transform(sparse_rows(350)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_a_matrix_of_zeros():
    """Of which scikit-learn divides a variance of 0."""
    encoder = SparseEncoder()
    assert not encoder.fit_transform(csr_array((20, WIDE))).any()
    assert not encoder.transform(csr_array((2, WIDE))).any()


def test_arrays_whatever_is_configured():
    with sklearn.config_context(transform_output="pandas"):
        encoder = SparseEncoder()
        assert isinstance(encoder.fit_transform(sparse_rows(5)), np.ndarray)
        assert isinstance(encoder.transform(sparse_rows(5)), np.ndarray)


# -- for networks --------------------------------------------------------------------------


def test_rows_have_a_mean_square_of_one():
    X = sparse_rows(50).toarray()
    X[:2] *= [[0], [1e-9]]
    X = csr_array(X)
    encoder = SparseEncoder.to_choose_from()
    for rows in encoder.fit_transform(X), encoder.transform(X):
        assert not rows[0].any()
        np.testing.assert_allclose(np.mean(rows[1:] ** 2, axis=1), 1)


def test_scores_follow_the_components():
    X = sparse_rows(60)
    targets = np.column_stack([X[:, :20].sum(axis=1), np.arange(60) % 2])
    encoder = SparseEncoder.to_choose_from()
    encoded = encoder.fit_transform(X, targets)
    components = SparseEncoder.to_choose_from().fit_transform(X)
    assert encoded.shape == (60, encoder.n_components + 2)
    np.testing.assert_array_equal(encoded[:, :-2], components)
    np.testing.assert_array_equal(encoded[:, -2:], LinearScores().fit_transform(X, targets))
    new = encoder.transform(X)
    np.testing.assert_allclose(new[:, -2:], encoder.scores_.transform(X), atol=1e-9)


def test_the_given_space_has_no_scores():
    X = sparse_rows(20)
    encoder = SparseEncoder()
    np.testing.assert_array_equal(
        encoder.fit_transform(X, np.arange(20.0)[:, None]), SparseEncoder().fit_transform(X)
    )
    assert encoder.scores_ is None
