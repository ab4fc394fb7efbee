import torch
from hypothesis import given
from hypothesis import strategies as st

from nona_sklearn.ranking import largest, outside_nearest


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 8]), st.sampled_from([16, 160, 161, 320]))
def test_largest_is_topk(seed, k, n):
    """Random weights, most of them tied."""
    weights = torch.randint(0, n, (3, n), generator=torch.Generator().manual_seed(seed)).float()
    values, positions = largest(weights, k)
    assert torch.equal(values, weights.topk(k, dim=1).values)
    assert torch.equal(weights.gather(1, positions), values)
    assert all(len(row.unique()) == k for row in positions)


def test_outside_nearest_keeps_k_admitted():
    similarity = torch.tensor([[5.0, 4.0, 3.0, 2.0]])
    excluded = torch.tensor([[True, False, False, False]])
    assert outside_nearest(similarity, 2, excluded).tolist() == [[True, False, False, True]]
    assert outside_nearest(similarity, 9, excluded).tolist() == excluded.tolist()


def test_equally_near_ones_count_as_one():
    similarity = torch.tensor([[-1.0, -1.0, -2.0, -3.0, -2.0], [-1.0, -2.0, -3.0, -4.0, -5.0]])
    expected = [[False, False, False, True, False], [False, False, True, True, True]]
    assert outside_nearest(similarity, 2, ties=True).tolist() == expected
    assert not outside_nearest(torch.zeros(1, 40), 1, ties=True).any()  # all of them are one
    excluded = torch.zeros(2, 5, dtype=torch.bool).index_fill(1, torch.tensor([0, 1]), True)
    expected = [[True, True, False, False, False], [True, True, False, False, True]]
    assert outside_nearest(similarity, 2, excluded, ties=True).tolist() == expected
