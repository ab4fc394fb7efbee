import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import pairwise
from torch.autograd import gradcheck

from nona_sklearn.similarity import SIMILARITIES, cosine, dot, l1, l2, near_pairs, rounded_l2

ALL = pytest.mark.parametrize("similarity", SIMILARITIES.values(), ids=list(SIMILARITIES))


def rows(n, d=3, dtype=torch.float64, seed=0):
    return torch.randn(n, d, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_on_paper():
    z, neighbors = torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0], [0.0, 6.0]])
    assert l2(z, neighbors).tolist() == [[-5.0, -3.0]]
    assert l1(z, neighbors).tolist() == [[-7.0, -3.0]]
    assert dot(z, neighbors).tolist() == [[0.0, 9.0]]
    assert cosine(z, neighbors).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("l2", lambda a, b: -pairwise.euclidean_distances(a, b)),
        ("log_l2", lambda a, b: -np.log(pairwise.euclidean_distances(a, b))),
        ("l1", lambda a, b: -pairwise.manhattan_distances(a, b)),
        ("dot", lambda a, b: pairwise.linear_kernel(a, b) / a.shape[1]),
        ("cosine", pairwise.cosine_similarity),
    ],
)
def test_agrees_with_scikit_learn(name, oracle):
    query, neighbors = rows(40, 6), rows(30, 6, seed=1)
    ours = SIMILARITIES[name](query, neighbors).numpy()
    np.testing.assert_allclose(ours, oracle(query.numpy(), neighbors.numpy()), atol=1e-12)


@pytest.mark.parametrize("space", ["d3", "d25"])
@pytest.mark.parametrize(
    ("name", "key"), [("l2",) * 2, ("l1",) * 2, ("dot",) * 2, ("cosine", "cos")]
)
def test_agrees_with_published_code(reference, space, name, key):
    ours = SIMILARITIES[name](reference[f"{space}.query"], reference[f"{space}.neighbors"])
    expected = reference[f"{space}.{key}.similarity"]
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


@ALL
def test_gradients_match_finite_differences(similarity):
    query, neighbors = rows(4).requires_grad_(), rows(5, seed=1).requires_grad_()
    assert gradcheck(similarity, (query, neighbors))


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_dtype(similarity, dtype):
    assert similarity(rows(2, dtype=dtype), rows(3, dtype=dtype)).dtype == dtype


def test_l2_finds_a_twin_far_from_the_origin_in_float32():
    z = rows(200, 16, torch.float32) + 100  # the matmul formula in float32 errs by 0.1 here
    assert l2(z, z).diagonal().abs().max() < 1e-5


@ALL
def test_does_not_depend_on_the_number_of_queries(similarity):
    query, neighbors = rows(60, 8, torch.float32), rows(70, 8, torch.float32, seed=1)
    whole = similarity(query, neighbors)
    pieces = torch.cat([similarity(block, neighbors) for block in query.split(7)])
    torch.testing.assert_close(pieces, whole, rtol=2e-6, atol=2e-6)


@given(
    exponent=st.sampled_from([-20, -8, 0, 8, 20]),
    entries=st.lists(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0]), min_size=8, max_size=8),
    name=st.sampled_from(sorted(SIMILARITIES)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_finite_with_finite_gradients(exponent, entries, name, dtype):
    z = (torch.tensor(entries, dtype=dtype).reshape(4, 2) * 10.0**exponent).requires_grad_()
    similarity = SIMILARITIES[name](z, z)
    similarity.sum().backward()
    assert similarity.isfinite().all()
    assert z.grad.isfinite().all()


def test_cosine_ignores_length():
    query, neighbors = rows(4), rows(5, seed=1)
    torch.testing.assert_close(cosine(1e-20 * query, 1e20 * neighbors), cosine(query, neighbors))


@pytest.mark.parametrize("length", [1e-30, 1e30])  # whose squares float32 does not hold
def test_cosine_of_any_length_in_float32(length):
    query, neighbors = torch.tensor([[length, 0.0]]), torch.tensor([[0.6 * length, 0.8 * length]])
    torch.testing.assert_close(cosine(query, neighbors), torch.tensor([[0.6]]))


def test_near_pairs_on_paper():
    (pairs,) = near_pairs(torch.tensor([[3.0, 0.0], [3.5, 5.0]]), torch.tensor([[1.0], [4.0]]))
    assert [positions.tolist() for positions in pairs] == [[0, 1], [1, 0]]
    # Distances from a query of zeros are exact, and may all be 0.
    assert not [*near_pairs(torch.zeros(2, 3), torch.zeros(2, 1))]


@pytest.mark.parametrize("exponent", range(-24, -8, 2))
def test_l2_of_near_rows_keeps_the_digits_of_float32(exponent):
    """An expanded square loses them, the nearer two rows are beside their distance from 0."""
    query = 1 + rows(20, 8, torch.float32)
    neighbors = query * (1 + 2.0**exponent)
    exact = -(query.double() - neighbors.double()).square().sum(dim=1).sqrt().float()
    torch.testing.assert_close(l2(query, neighbors).diagonal(), exact, rtol=1e-6, atol=0)


def test_rounded_l2_is_l2_up_to_rounding():
    query, neighbors = 1000 + torch.randn(5, 8), 1000 + torch.randn(7, 8)
    torch.testing.assert_close(
        rounded_l2(query, neighbors), l2(query, neighbors), rtol=0, atol=3e-3
    )
    double = query.double().requires_grad_()
    assert gradcheck(lambda q: rounded_l2(q, neighbors.double()), double)
