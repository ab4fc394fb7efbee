"""What a tile computes, how tiles add up, and that the fast versions equal the definitions."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nona_sklearn._inference.neighbors import Exclusion, with_ones
from nona_sklearn._inference.tiles import (
    EuclideanComputer,
    Extremes,
    Partial,
    SimilarityComputer,
    relative_to_peak_,
    similarity_computer,
)
from nona_sklearn.similarity import SIMILARITIES
from nona_sklearn.softstep import EVALUATION_STEPS, STEPS, equally_near, scale_similarity

pytestmark = pytest.mark.numeric

EPS = torch.finfo(torch.float32).eps


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# -- sums of tiles merge ---------------------------------------------------------------------


@st.composite
def orders_of_tiles(draw):
    """Cut 12 columns into tiles, and merge their sums in some order and grouping."""
    cuts = draw(st.sets(st.integers(1, 11), max_size=6))
    edges = [0, *sorted(cuts), 12]
    tiles = [slice(a, b) for a, b in pairwise(edges)]
    tiles = draw(st.permutations(tiles))
    merges = [draw(st.integers(0, i - 1)) for i in range(len(tiles) - 1, 0, -1)]
    return tiles, merges


def merge_all(partials, merges):
    """Merge a neighbouring pair at a time, at the places in `merges`."""
    partials = list(partials)
    for i in merges:
        partials[i : i + 2] = [partials[i].merge(partials[i + 1])]
    return partials[0]


def partial_of(logits, values, excluded=None):
    return Partial.from_weights(*relative_to_peak_(logits, excluded), values)


def pairs_of(excluded):
    return tuple(excluded.nonzero().unbind(dim=1))


@given(
    order=orders_of_tiles(),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.0, 1.0, 1e4, 1e18]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_tiles_merge_in_any_order_and_grouping(order, seed, scale, share):
    """Of any numbers: far ones, ties, rows of which some or all are excluded."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(3, 12, generator=generator)
    values = torch.randn(12, 2, generator=generator).double()
    excluded = torch.rand(3, 12, generator=generator) < share
    logits[excluded] = -math.inf
    tiles, merges = order

    whole = partial_of(logits.clone(), with_ones(values), pairs_of(excluded))
    ours = merge_all(
        (
            partial_of(logits[:, t].clone(), with_ones(values[t]), pairs_of(excluded[:, t]))
            for t in tiles
        ),
        merges,
    )
    assert torch.equal(ours.peak, whole.peak)
    # A tile's weights are rounded to float32 relative to its own peak.
    torch.testing.assert_close(ours.sums, whole.sums, rtol=4 * EPS, atol=12 * EPS)
    admitted = (~excluded).any(dim=1)
    alone = torch.where(excluded, 0.0, logits.masked_fill(~admitted[:, None], 0).softmax(dim=1))
    expected = alone.double() @ values
    torch.testing.assert_close(ours.mean, expected, rtol=0, atol=60 * EPS)

    whole = Extremes.from_tile(logits.clone(), pairs_of(excluded))
    ours = merge_all(
        (Extremes.from_tile(logits[:, t].clone(), pairs_of(excluded[:, t])) for t in tiles), merges
    )
    assert torch.equal(ours.nearest, whole.nearest)
    assert torch.equal(ours.farthest, whole.farthest)


def test_partial_on_paper():
    ten, two = (with_ones(torch.tensor([[value]]).double()) for value in (10.0, 2.0))
    one = partial_of(torch.tensor([[math.log(3.0)]]), ten)
    other = partial_of(torch.tensor([[0.0]]), two)
    merged = one.merge(other)
    assert merged.mean.item() == pytest.approx(8.0)  # (3 * 10 + 1 * 2) / 4
    assert merged.total.item() == pytest.approx(4 / 3)  # relative to the peak, 3


@given(st.lists(st.integers(0, 4), max_size=9), st.lists(st.integers(0, 4), max_size=9))
def test_pairs_of_an_exclusion_are_its_mask(queries, neighbors):
    exclusion = Exclusion(
        torch.tensor(queries, dtype=torch.long), torch.tensor(neighbors, dtype=torch.long)
    )
    found = torch.zeros(len(queries), len(neighbors), dtype=torch.bool)
    for start in range(0, len(queries), 4):
        block = found[start : start + 4]
        block[exclusion.pairs(slice(start, start + 4))] = True
    assert torch.equal(found, exclusion.queries[:, None] == exclusion.neighbors)


# -- quick ways are the definitions ------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["l2", "log_l2"])
@pytest.mark.parametrize("kept_bytes", [0, 2**20])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_one_product_is_the_distance(similarity, kept_bytes, scale, offset):
    """Also of twins, of rows nearly the same, and whatever the unit."""
    query, neighbors = scale * (numbers(9, 5) + offset), scale * (numbers(30, 5, seed=1) + offset)
    neighbors[3], neighbors[4] = query[2], query[2] * (1 + 4 * EPS)
    computer = similarity_computer(similarity, neighbors, kept_bytes)
    assert (computer.cache is None) == (kept_bytes == 0)
    exact = SIMILARITIES[similarity](query.double(), neighbors.double())
    if similarity == "log_l2":  # float64 has smaller distances
        exact = exact.clamp_max(-math.log(torch.finfo(torch.float32).tiny))
    ours = computer.bind(query).compute(slice(0, 30)).double()
    torch.testing.assert_close(ours, exact, rtol=4 * EPS, atol=4 * EPS * scale)
    order = computer.bind(query).sort_keys(slice(0, 30))
    assert torch.equal(order.argsort(dim=1, stable=True)[:, -1], exact.argmax(dim=1))
    torch.testing.assert_close(computer.bind(query).from_sort_keys(order).double(), ours)


def test_the_neighbours_side_is_kept_where_there_is_room_for_it():
    neighbors = numbers(10, 3)
    assert similarity_computer("l2", neighbors, 8 * 10 * 5).cache is not None
    assert similarity_computer("l2", neighbors, 8 * 10 * 5 - 1).cache is None


@pytest.mark.parametrize(("of_query", "of_neighbors"), [(1e25, 1.0), (1.0, 1e25), (1e-25, 1e25)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lengths_far_apart_stay_in_range(of_query, of_neighbors, sign):
    query = of_query * numbers(9, 5)
    neighbors = sign * of_neighbors * (1 + numbers(30, 5, seed=1).abs())
    ours = similarity_computer("l2", neighbors).bind(query).compute(slice(0, 30)).double()
    exact = SIMILARITIES["l2"](query.double(), neighbors.double())
    torch.testing.assert_close(ours, exact, rtol=4 * EPS, atol=0)


def test_memory_of_one_tile_serves_the_next():
    similarities = similarity_computer("l2", numbers(20, 3)).bind(numbers(4, 3, seed=1))
    first, second = (similarities.compute(slice(i, i + 10)) for i in (0, 10))
    assert first.data_ptr() == second.data_ptr()


@pytest.mark.parametrize("n", [1, 2, 4, 5, 6])
def test_as_many_queries_as_rows_as_columns(n):
    """Pieces of memory of one shape are still several."""
    query, neighbors = numbers(n, 3), numbers(n, 3, seed=1)
    ours = similarity_computer("l2", neighbors).bind(query).compute(slice(0, n))
    torch.testing.assert_close(ours, SIMILARITIES["l2"](query, neighbors))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_similarities_do_not_depend_on_the_other_queries(similarity):
    """To the rounding of float64 beside float32: hardly ever another last digit."""
    query, neighbors = numbers(40, 7), numbers(61, 7, seed=1)
    neighbors[5:9] = query[3]
    computer = similarity_computer(similarity, neighbors)
    whole = computer.bind(query).compute(slice(0, 61))
    for i in range(40):
        alone = computer.bind(query[i : i + 1]).compute(slice(0, 61))
        torch.testing.assert_close(alone, whole[i : i + 1], rtol=2 * EPS, atol=2 * EPS)
    parts = [computer.bind(query).compute(slice(a, a + 7)).clone() for a in range(0, 61, 7)]
    torch.testing.assert_close(torch.cat(parts, dim=1)[:, :61], whole, rtol=2 * EPS, atol=2 * EPS)


def test_other_types_take_the_definition():
    assert type(similarity_computer("l2", numbers(3, 2).double())) is SimilarityComputer
    assert type(similarity_computer("l1", numbers(3, 2))) is SimilarityComputer
    assert type(similarity_computer("l2", numbers(3, 2))) is EuclideanComputer


ENDS = st.sampled_from([0.0, 1e-7, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-3, 1 - 1e-7, 1.0])


@given(a=ENDS, b=ENDS, t=ENDS, seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("step", STEPS)
def test_steps_without_gradient_are_the_steps(step, a, b, t, seed):
    """At both ends of every threshold: b - a rounds to 0 in float32 where b or 1 - a is small."""
    x = torch.rand(3, 50, generator=torch.Generator().manual_seed(seed))
    x[:, :2] = torch.tensor([0.0, 1.0])
    a, b, t = (torch.tensor(v).clamp(EPS, 1 - EPS) for v in (a, b, t))  # as SoftStep holds them
    a = a - EPS
    thresholds = (a, a + b * (1 - a), t) if step == "s1" else (b, t)
    quick = EVALUATION_STEPS[step](3 * x, torch.tensor(1 / 3), *thresholds).exp()
    assert not quick.isnan().any()
    assert ((quick >= 0) & (quick <= 1)).all()
    assert (quick[:, 1] > 0.999).all()  # the nearest stays
    # x is rounded: the step may be off by no more than that moves it.
    double = [value.double() for value in thresholds]
    moved = [
        STEPS[step]((x.double() + shift).clamp(0, 1), *double).exp()
        for shift in (-8 * EPS, 8 * EPS)
    ]
    assert (quick >= torch.minimum(*moved) - 1e-4).all()
    assert (quick <= torch.maximum(*moved) + 1e-4).all()


@pytest.mark.parametrize(
    "function",
    [torch.exp, torch.log, torch.log1p, torch.sqrt, torch.reciprocal],
    ids=lambda function: function.__name__,
)
def test_functions_of_the_evaluation_do_not_depend_on_position(function):
    """Unlike exp2, sigmoid, logit and pow, in a SIMD register's body and in its tail."""
    x = torch.linspace(1e-3, 20, 4096)
    whole = function(x)
    for n in (1, 3, 7, 13, 31):
        assert torch.equal(torch.cat([function(part) for part in x.split(n)]), whole)


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
