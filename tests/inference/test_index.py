"""Exact indexes return the k nearest rows, whatever the numbers; graphs most of them."""

import sys

import numpy as np
import pytest
import torch
from inner.inference import (
    ALGORITHMS,
    BruteIndex,
    GraphIndex,
    TransformerIndex,
    TreeIndex,
    check_algorithm,
    index,
    make_index,
    searched,
)
from sklearn.neighbors import KNeighborsTransformer, RadiusNeighborsTransformer

from nona_sklearn.similarity import SIMILARITIES

EXACT = [
    (algorithm, similarity)
    for algorithm in ("auto", "brute", "kd_tree")
    for similarity in ALGORITHMS[algorithm]
]
exact_indexes = pytest.mark.parametrize(
    ("algorithm", "similarity"),
    [*EXACT, ("brute, by some columns", "l1")],
    indirect=["algorithm"],
)


@pytest.fixture(scope="module")
def algorithm(request):
    """The name of an algorithm, which compares some columns first of however few rows."""
    with searched(request.param) as name:
        yield name


def oracle(similarity, query, rows, k):
    """The k nearest rows of each query in float64, one pair at a time, ties by row number."""
    query, rows = (np.asarray(each, np.float64) for each in (query, rows))
    if similarity == "cosine":
        query, rows = (
            z / np.where((norm := np.linalg.norm(z, axis=1, keepdims=True)) > 0, norm, 1)
            for z in (query, rows)
        )
    keys = {
        "l2": lambda q: np.square(q - rows).sum(axis=1),
        "l1": lambda q: np.abs(q - rows).sum(axis=1),
        "dot": lambda q: -(q * rows).sum(axis=1),
    }
    keys |= {"log_l2": keys["l2"], "cosine": keys["dot"]}
    return np.array([np.argsort(keys[similarity](q), kind="stable")[:k] for q in query])


def assert_nearest(algorithm, similarity, query, rows, k):
    nearness, found = make_index(algorithm, similarity, rows).query(query, k)
    assert found.dtype == torch.int64
    expected = oracle(similarity, query, rows, k)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))
    torch.testing.assert_close(
        nearness, defined(similarity, query, rows[found]), rtol=1e-5, atol=0
    )


def defined(similarity, query, rows):
    """Similarities of each query to its own rows (q, m, d), in float64, within float32's range."""
    pairs = zip(torch.as_tensor(query).double(), torch.as_tensor(rows).double(), strict=True)
    found = torch.cat([SIMILARITIES[similarity](q[None], z) for q, z in pairs])
    limits = torch.finfo(torch.float32)
    most = -np.log(limits.tiny) if similarity == "log_l2" else limits.max
    return found.clamp(-limits.max, most).float()


def positions(index, query, k):
    """The rows that an index finds, nearest first."""
    return index.query(query, k)[1]


def normal(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


@exact_indexes
@pytest.mark.parametrize("d", [1, 2, 33])
def test_random_rows(algorithm, similarity, d):
    for n, k in [(1000, 10), (1000, 999), (17, 16), (1, 1)]:
        assert_nearest(algorithm, similarity, normal(50, d, seed=1), normal(n, d), k)


@exact_indexes
def test_ties_go_to_the_smaller_row_number(algorithm, similarity):
    """Small whole numbers, whose sums are exact: many distances are equal."""
    random = np.random.RandomState(0)
    if similarity == "cosine":  # multiples by powers of two have the same unit vector
        base = random.randint(-2, 3, (30, 3)).astype(np.float32)
        rows = base[random.randint(0, 30, 500)] * 2.0 ** random.randint(0, 3, (500, 1))
        rows = rows.astype(np.float32)
    else:
        rows = random.randint(0, 3, (500, 3)).astype(np.float32)
    for k in (1, 7, 100):
        assert_nearest(algorithm, similarity, rows[:60], rows, k)


@exact_indexes
def test_duplicates(algorithm, similarity):
    rows = normal(3, 4)[np.random.RandomState(0).randint(0, 3, 400)]
    assert_nearest(algorithm, similarity, normal(20, 4, seed=1), rows, 10)
    assert_nearest(algorithm, similarity, rows[:20], rows, 150)
    assert_nearest(algorithm, similarity, rows[:20], rows[:1].repeat(400, axis=0), 10)


@exact_indexes
@pytest.mark.parametrize("offset", [1e4, 1e7])
def test_rows_far_from_the_origin(algorithm, similarity, offset):
    """float32 products of such rows have no digits of their distances left."""
    if similarity == "cosine":
        offset = 1e4  # at 1e7, cosines differ by less than the rounding of float64
    rows, query = normal(800, 5) + np.float32(offset), normal(30, 5, seed=1) + np.float32(offset)
    assert_nearest(algorithm, similarity, query, rows, 10)


@exact_indexes
def test_clusters_that_are_small_beside_their_distance(algorithm, similarity):
    centers = 1e3 * normal(4, 6)
    rows = centers[np.arange(800) % 4] + 1e-3 * normal(800, 6, seed=1)
    query = centers[np.arange(40) % 4] + 1e-3 * normal(40, 6, seed=2)
    assert_nearest(algorithm, similarity, query, rows, 10)


@exact_indexes
@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e-15, 1e15, 1e30, 1e38])
def test_scales(algorithm, similarity, scale):
    rows, query = (
        np.float32(scale) * np.clip(each, -3, 3)
        for each in (normal(500, 4), normal(20, 4, seed=1))
    )
    assert_nearest(algorithm, similarity, query, rows, 10)


@exact_indexes
def test_queries_far_beyond_the_rows(algorithm, similarity):
    query = normal(20, 4, seed=1) * np.geomspace(1e-38, 1e37, 20, dtype=np.float32)[:, None]
    assert_nearest(algorithm, similarity, query, normal(500, 4), 10)


@exact_indexes
def test_one_far_row_does_not_blur_the_others(algorithm, similarity):
    rows = normal(500, 4)
    rows[7] *= 1e20
    assert_nearest(algorithm, similarity, normal(20, 4, seed=1), rows, 10)


@exact_indexes
def test_the_nearest_come_first_and_equally_near_ones_by_number(algorithm, similarity):
    """In float64 distances and products of small integers are exact, and many are equal."""
    rows, query = (np.round(normal(n, 3, seed=n)) for n in (300, 20))
    if similarity == "cosine":  # exact on a line only
        rows, query = rows[:, :1], query[:, :1]
    found = positions(make_index(algorithm, similarity, rows), query, 40)
    np.testing.assert_array_equal(found, oracle(similarity, query, rows, 40))


@exact_indexes
def test_more_neighbors_than_rows(algorithm, similarity):
    found = positions(make_index(algorithm, similarity, normal(5, 3)), normal(4, 3, seed=1), 9)
    assert np.sort(found, axis=1).tolist() == [list(range(5))] * 4


@exact_indexes
def test_no_queries(algorithm, similarity):
    for found in make_index(algorithm, similarity, normal(5, 3)).query(normal(0, 3), 2):
        assert found.shape == (0, 2)


@pytest.mark.parametrize("algorithm", ["brute"])
def test_cosine_with_a_vector_of_zeros_is_zero(algorithm):
    rows = np.float32([[-1, 0], [0, 0], [0, -3], [1, 1], [0, 0], [0.1, -0.1]])
    index = make_index(algorithm, "cosine", rows)
    opposite = np.float32([[-1, -1]])
    assert set(positions(index, -opposite, 5)[0].tolist()) == {3, 5, 1, 4, 0}  # 1, then 0 thrice
    assert set(positions(index, opposite, 2)[0].tolist()) == {0, 2}
    assert set(positions(index, opposite, 4)[0].tolist()) == {0, 2, 1, 4}  # 0.71 twice, then 0
    assert set(positions(index, 0 * opposite, 4)[0].tolist()) == {0, 1, 2, 3}  # all 0: by number


@exact_indexes
def test_a_result_does_not_depend_on_the_other_queries(algorithm, similarity):
    index = make_index(algorithm, similarity, normal(3000, 8).round(1))
    query = normal(100, 8, seed=1).round(1)
    together = index.query(query, 6)
    alone = zip(*(index.query(query[i : i + 1], 6) for i in range(100)), strict=True)
    for of_all, of_each in zip(together, alone, strict=True):
        torch.testing.assert_close(of_all, torch.cat(of_each), rtol=0, atol=0)


@pytest.mark.parametrize("similarity", ALGORITHMS["brute"])
def test_products_that_torch_rounds_more(similarity):
    """Where torch may multiply in bfloat16, results stay."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert_nearest("brute", similarity, normal(50, 33, seed=1), normal(3000, 33), 10)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("similarity", ALGORITHMS["brute"])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e15])
def test_similarities_are_the_definitions(similarity, scale):
    """Of equal rows, too: with 'log_l2' they are as near as float32 allows."""
    rows = torch.from_numpy(scale * normal(40, 5)).float()
    query = torch.cat([rows[:5], torch.from_numpy(scale * normal(20, 5, seed=1)).float()])
    found, order = make_index("brute", similarity, rows).query(query, 40)
    expected = SIMILARITIES[similarity](query, rows).gather(1, order)
    assert found.dtype == torch.float32
    atol = 1e-6 * expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=atol)
    assert torch.equal(found, found.sort(dim=1, descending=True).values)
    assert torch.equal(found[:5].argmax(dim=1), expected[:5].argmax(dim=1))


@pytest.mark.parametrize("similarity", ALGORITHMS["brute"])
def test_the_farthest_rows_of_all_are_not_infinitely_far(similarity):
    """-inf is a row that is excluded."""
    rows = np.float32([[3e38, 3e38], [-3e38, -3e38], [1.0, 2.0]])
    found, _ = make_index("brute", similarity, rows).query(rows, 3)
    assert found.isfinite().all()


@pytest.mark.parametrize("algorithm", ["auto", "brute"])
def test_a_registered_similarity_of_ones_own(algorithm, monkeypatch):
    def overlap(query, neighbors):
        return (query[:, None] == neighbors).sum(dim=2).to(query.dtype)

    monkeypatch.setitem(SIMILARITIES, "overlap", overlap)
    rows = torch.from_numpy(np.random.RandomState(0).randint(0, 3, (200, 4))).float()
    index = make_index(algorithm, "overlap", rows)
    similarity = overlap(rows[:9], rows)
    order = similarity.argsort(dim=1, descending=True, stable=True)[:, :7]
    found, nearest = index.query(rows[:9], 7)
    assert torch.equal(nearest, order)
    assert torch.equal(found, similarity.gather(1, order))
    with pytest.raises(ValueError, match=r"algorithm='kd_tree' .*similarity='overlap'"):
        check_algorithm("kd_tree", "overlap")


def test_no_rows():
    for algorithm in ("auto", "kd_tree"):
        for found in make_index(algorithm, "l2", normal(0, 3)).query(normal(4, 3), 2):
            assert found.shape == (4, 0)


def test_auto_takes_a_tree_in_few_dimensions_only():
    assert isinstance(make_index("auto", "l2", normal(9, 2)), TreeIndex)
    assert isinstance(make_index("auto", "dot", normal(9, 2)), BruteIndex)
    assert isinstance(make_index("auto", "l2", normal(9, 33)), BruteIndex)


# -- a graph -----------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ALGORITHMS["hnsw"])
def test_a_graph_finds_most_of_the_nearest(similarity):
    pytest.importorskip("faiss")
    rows, query = normal(2000, 8), normal(100, 8, seed=1)
    index = make_index("hnsw", similarity, rows)
    found, expected = positions(index, query, 20), oracle(similarity, query, rows, 20)
    shared = [len({*a} & {*b}) / 20 for a, b in zip(found.tolist(), expected, strict=True)]
    assert np.mean(shared) > 0.9
    again = GraphIndex(similarity, index.rows, index.serialized())
    assert torch.equal(positions(again, query, 20), found)


def test_a_graph_of_duplicates_leads_to_enough_rows():
    pytest.importorskip("faiss")
    rows = normal(3, 4)[np.arange(600) % 3]
    found = positions(make_index("hnsw", "l2", rows), rows[:9], 250)
    assert all(len({*each}) == 250 and min(each) >= 0 for each in found.tolist())


def test_a_graph_of_cosines_has_rows_of_zeros_aside():
    pytest.importorskip("faiss")
    rows = np.float32([[-1, 0], [0, 0], [0, -3], [1, 1]])
    found = positions(make_index("hnsw", "cosine", rows), np.float32([[1, 1]]), 2)
    assert set(found[0].tolist()) == {3, 1}


# -- a transformer -----------------------------------------------------------------------------


def test_a_transformer_is_cloned_and_finds_its_neighbors():
    transformer = KNeighborsTransformer(n_neighbors=10)
    rows, query = normal(300, 3), normal(20, 3, seed=1)
    index = make_index(transformer, "l2", rows)
    assert isinstance(index, TransformerIndex)
    assert not hasattr(transformer, "n_features_in_")
    for k in (4, 10, 11):  # one more than n_neighbors, as the convention has it
        expected = oracle("l2", query, rows, k)
        np.testing.assert_array_equal(positions(index, query, k), expected)
    with pytest.raises(ValueError, match=r"(?s)n_neighbors=10.* finds 11 .* 12 are needed"):
        index.query(query, 12)


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_a_transformer_of_more_neighbors_than_rows(mode):
    index = make_index(KNeighborsTransformer(mode=mode, n_neighbors=50), "l2", normal(5, 3))
    found = positions(index, normal(4, 3, seed=1), 5)
    assert np.sort(found, axis=1).tolist() == [list(range(5))] * 4


def test_a_transformer_with_numbers_of_neighbors_that_differ():
    rows, query = normal(300, 2), normal(20, 2, seed=1)
    index = make_index(RadiusNeighborsTransformer(radius=2.5), "l2", rows)
    expected = oracle("l2", query, rows, 6)
    np.testing.assert_array_equal(positions(index, query, 6), expected)


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "similarity"),
    [("kd_tree", "dot"), ("hnsw", "dot"), ("hnsw", "l1")],
)
def test_an_algorithm_that_cannot_do_the_similarity(algorithm, similarity):
    with pytest.raises(ValueError, match=f"algorithm='{algorithm}' .*similarity='{similarity}'"):
        check_algorithm(algorithm, similarity)


@pytest.mark.parametrize("algorithm", ["annoy", "", "Brute"])
def test_unknown_algorithms(algorithm):
    with pytest.raises(ValueError, match=f"algorithm must be one of .* got '{algorithm}'"):
        check_algorithm(algorithm, "l2")


@pytest.mark.parametrize("algorithm", [3, None, KNeighborsTransformer])
def test_objects_that_are_no_transformer(algorithm):
    with pytest.raises(TypeError, match=r"algorithm must be a name or .* transformer"):
        check_algorithm(algorithm, "l2")


def test_without_faiss_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match="extra 'approximate'"):
        check_algorithm("hnsw", "l2")


def test_keys_of_l1_are_made_anew_for_twice_as_many_rows():
    """Since a bound by some columns saves time with many rows."""
    rows, none = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(0)
    keys = index.KEYS["l1"](rows[:20])
    grown = keys.after_edits(rows[:39], 20, none)
    torch.testing.assert_close(grown(rows[:5]), -torch.cdist(rows[:5], rows[:39], p=1.0))
    assert keys.after_edits(rows, 20, none) is None


@pytest.mark.parametrize("offset", [3e4, -3e4])
def test_the_bound_of_l1_allows_for_the_rounding_of_sums(offset, monkeypatch):
    """Sums of columns far from 0, whose roundings are those of many rows' distances."""
    rows = np.full((2000, 40), offset, dtype=np.float32)
    rows[:, 0] = 100 * (np.arange(2000) % 2)  # compared by itself
    rows[:, 1] += np.random.RandomState(0).permutation(2000) * 0.004
    query = rows[::7] + 0.002 * np.eye(40, dtype=np.float32)[1]
    with searched("brute, by some columns") as name:
        monkeypatch.setattr(index, "MOST_SLACK", np.inf)
        nearness, _ = make_index(name, "l1", rows).query(query, 4)
    exact = np.abs(query[:, None].astype(float) - rows).sum(axis=2)
    np.testing.assert_allclose(-nearness, np.sort(exact, axis=1)[:, :4], rtol=1e-5)
