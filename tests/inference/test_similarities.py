"""Similarities are the definitions, and the nearest rows those of all parts."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inner.inference import Evaluation, LabelExclusion, Neighbors

from nona_sklearn.attention import NONAHead
from nona_sklearn.attention.prediction import Candidates
from nona_sklearn.similarity import SIMILARITIES
from nona_sklearn.softstep import SoftStep, equally_near, scale_similarity

EPS = torch.finfo(torch.float32).eps


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# -- candidates ------------------------------------------------------------------------------


def parts_of(draw, n):
    cuts = draw(st.sets(st.integers(1, n - 1), max_size=6))
    return [slice(a, b) for a, b in pairwise([0, *sorted(cuts), n])]


@pytest.mark.slow
@given(st.data(), st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]))
def test_the_nearest_are_the_first_in_order_whatever_the_parts(data, k, share):
    """On a grid of whole numbers, where many rows are equally near."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    query, bank = (torch.randint(3, (n, 2), generator=generator).float() for n in (4, 12))
    labels = torch.arange(4)
    excluded = torch.rand(12, generator=generator)[None] < share  # one label for a row
    of_rows = torch.randint(4, (12,), generator=generator).masked_fill(~excluded[0], -1)
    excluded = labels[:, None] == of_rows

    def found(rows):
        algorithm = data.draw(st.sampled_from(["brute", "kd_tree"]))
        part = bank[rows]
        neighbors = Neighbors(part, part[:, 0], algorithm=algorithm)
        head = NONAHead(step=SoftStep(on="rank"))  # which counts the admitted rows
        evaluation = Evaluation(head, neighbors, query, LabelExclusion(labels, of_rows[rows]))
        return evaluation.search([k])[0]

    whole = found(slice(0, 12))
    admitted = SIMILARITIES["l2"](query, bank).masked_fill(excluded, -math.inf)
    order = admitted.argsort(dim=1, descending=True, stable=True)[:, :k]
    expected = order.masked_fill(admitted.gather(1, order) == -math.inf, 12)
    assert torch.equal(whole.positions, expected)
    assert torch.equal(whole.similarity, admitted.gather(1, order))
    assert torch.equal(whole.n_admitted, (~excluded).sum(dim=1, keepdim=True))

    parts = parts_of(data.draw, 12)
    starts = [*(rows.start for rows in parts), 12]
    merged = Candidates.merge([found(rows) for rows in parts], starts)
    merged = merged.first(k)
    for name in ("positions", "similarity", "n_admitted"):
        assert torch.equal(getattr(merged, name), getattr(whole, name)), name


@given(st.lists(st.integers(0, 4), max_size=9), st.lists(st.integers(0, 4), max_size=9))
def test_pairs_of_an_exclusion_are_its_mask(queries, neighbors):
    exclusion = LabelExclusion(
        torch.tensor(queries, dtype=torch.long), torch.tensor(neighbors, dtype=torch.long)
    )
    found = torch.zeros(len(queries), len(neighbors), dtype=torch.bool)
    for start in range(0, len(queries), 4):
        block = found[start : start + 4]
        block[exclusion.of(slice(start, start + 4))] = True
    assert torch.equal(found, exclusion.queries[:, None] == exclusion.neighbors)


# -- quick ways are the definitions ------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["l2", "log_l2"])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_one_product_is_the_distance(similarity, scale, offset):
    """Also of twins, of rows nearly the same, and whatever the unit."""
    query, neighbors = scale * (numbers(9, 5) + offset), scale * (numbers(30, 5, seed=1) + offset)
    neighbors[3], neighbors[4] = query[2], query[2] * (1 + 4 * EPS)
    exact = SIMILARITIES[similarity](query.double(), neighbors.double())
    if similarity == "log_l2":  # float64 has smaller distances
        exact = exact.clamp_max(-math.log(torch.finfo(torch.float32).tiny))
    ours = SIMILARITIES[similarity](query, neighbors).double()
    torch.testing.assert_close(ours, exact, rtol=4 * EPS, atol=4 * EPS * scale)


@pytest.mark.parametrize(("of_query", "of_neighbors"), [(1e25, 1.0), (1.0, 1e25), (1e-25, 1e25)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lengths_far_apart_stay_in_range(of_query, of_neighbors, sign):
    query = of_query * numbers(9, 5)
    neighbors = sign * of_neighbors * (1 + numbers(30, 5, seed=1).abs())
    ours = SIMILARITIES["l2"](query, neighbors).double()
    exact = SIMILARITIES["l2"](query.double(), neighbors.double())
    torch.testing.assert_close(ours, exact, rtol=4 * EPS, atol=0)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_similarities_do_not_depend_on_the_other_queries(similarity):
    """To the rounding of float64 beside float32: hardly ever another last digit."""
    query, neighbors = numbers(40, 7), numbers(61, 7, seed=1)
    neighbors[5:9] = query[3]
    whole = SIMILARITIES[similarity](query, neighbors)
    for i in range(40):
        alone = SIMILARITIES[similarity](query[i : i + 1], neighbors)
        torch.testing.assert_close(alone, whole[i : i + 1], rtol=2 * EPS, atol=2 * EPS)
    parts = [SIMILARITIES[similarity](query, neighbors[a : a + 7]) for a in range(0, 61, 7)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=2 * EPS, atol=2 * EPS)


# -- equally near --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [1.0, 1e3, 1e6])
def test_rounding_is_not_stretched_to_the_whole_scale(offset):
    """Equal distances but for their last digits: all are nearest, and none is rejected."""
    similarity = -offset * (1 + EPS * torch.tensor([[0.0, 1.0, -1.0, 2.0]]))
    assert (scale_similarity(similarity) == 1).all()
    spread = -offset * (1 + 1e-3 * torch.tensor([[0.0, 1.0, -1.0, 2.0]]))
    assert scale_similarity(spread).min() == 0


def test_without_admitted_neighbours_all_are_equally_near():
    empty = torch.tensor([[-math.inf]]), torch.tensor([[math.inf]])
    assert equally_near(*empty).all()
    assert (scale_similarity(torch.ones(1, 2), torch.ones(1, 2) > 0) == 0).all()
