"""After edits, indexes find what fresh indexes of the same rows find, and no bank changes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inner.inference import (
    ALGORITHMS,
    GrowingTensor,
    MaskExclusion,
    SharedRows,
    exact_keys,
    make_index,
    searched,
)

D = 3
SEEDS = st.integers(0, 2**16)
#: What may be added: rows like the first, copies, ties, zeros, rows of another scale or place.
ADDED = {
    "alike": lambda random, rows, m: random.normal(size=(m, D)),
    "copies": lambda random, rows, m: rows[random.integers(len(rows), size=m)],
    "ties": lambda random, rows, m: random.integers(-1, 2, size=(m, D)),
    "zeros": lambda random, rows, m: np.zeros((m, D)),
    "far": lambda random, rows, m: 1e4 + random.normal(size=(m, D)),
    "very far": lambda random, rows, m: 1e25 * random.normal(size=(m, D)),
    "tiny": lambda random, rows, m: 1e-30 * random.normal(size=(m, D)),
    "twice as far": lambda random, rows, m: 2 * rows[random.integers(len(rows), size=m)],
}
ADDITIONS = st.tuples(st.sampled_from([*ADDED]), st.integers(0, 12), SEEDS)
REMOVALS = st.tuples(st.just("remove"), st.sampled_from([0.02, 0.1, 0.5, 0.95]), SEEDS)
EDITS = st.lists(st.one_of(ADDITIONS, REMOVALS), min_size=1, max_size=6)
brute = pytest.mark.parametrize(
    "similarity", [*ALGORITHMS["brute"], "l1, by some columns"], indirect=True
)
graphs = pytest.mark.parametrize("similarity", ALGORITHMS["hnsw"])


@pytest.fixture(scope="module")
def similarity(request):
    """A similarity, whose index compares some columns first of however few rows."""
    with searched(request.param) as name:
        yield name


def stored(rows):
    return torch.from_numpy(np.float32(rows))


def normal(*shape, seed=0):
    return stored(np.random.default_rng(seed).normal(size=shape))


def after(rows, edit):
    """Rows after an edit."""
    kind, size, seed = edit
    random = np.random.default_rng(seed)
    if kind != "remove":
        return rows.extended(stored(ADDED[kind](random, rows.tensor.double().numpy(), size)))
    removed = random.permutation(len(rows))[: int(size * len(rows))]
    return rows.without(torch.from_numpy(np.sort(removed)))


def index_after(index, rows):
    """An index that follows an edit if it can, and else is built anew, as a bank does."""
    followed = index.after_edits(rows) if rows.origin is index.rows.origin else None
    return followed or make_index("brute", index.similarity, rows)


def answers(index, seed):
    """What an index finds for queries, some of them rows: of all, without some, among some."""
    random, n = np.random.default_rng(seed), len(index)
    near = index.rows.tensor[random.integers(n, size=3)]
    query = torch.cat([near, 1.01 * near, 1e3 * near])
    q, k = len(query), min(5, n)
    pairs = torch.arange(q), torch.from_numpy(random.integers(n, size=q))
    among = torch.from_numpy(np.sort(random.permutation(n)[: 1 + n // 2]))
    admitted = torch.from_numpy(random.random((q, n)) < 0.7)
    for some in ((), (pairs,), (MaskExclusion(admitted),), (None, among)):
        similarity, positions = index.query(query, k, *some)
        yield similarity
        yield positions.masked_fill(similarity == -np.inf, -1)  # any row where none is admitted


@brute
@settings(max_examples=12)
@given(edits=EDITS, seed=SEEDS)
def test_edited_indexes_find_what_fresh_ones_find(similarity, edits, seed):
    """To the last bit, whichever rows come and leave. Banks before the edits still answer."""
    rows = SharedRows(normal(40, D, seed=seed))
    index = make_index("brute", similarity, rows)
    history = []
    for edit in edits:
        expected = [part.clone() for part in answers(index, seed)]
        history.append((index, index.rows.tensor.clone(), expected))
        rows = after(rows, edit)
        index = index_after(index, rows)
        fresh = make_index("brute", similarity, rows.tensor.clone())
        for found, of_fresh in zip(answers(index, seed), answers(fresh, seed), strict=True):
            assert torch.equal(found, of_fresh)
    for earlier, tensor, expected in history:
        assert torch.equal(earlier.rows.tensor, tensor)
        for found, before in zip(answers(earlier, seed), expected, strict=True):
            assert torch.equal(found, before)


@brute
def test_rows_of_the_same_scale_are_added_in_place(similarity):
    rows = SharedRows(normal(300, D)).extended(normal(1, D, seed=1))
    index = make_index("brute", similarity, rows)
    index.query(rows.tensor[:1], 1)
    side = index._keys.side if hasattr(index._keys, "side") else None
    for seed in range(2, 9):
        longer = rows.extended(normal(2, D, seed=seed) / 2)
        assert longer.tensor.data_ptr() == rows.tensor.data_ptr()
        index = index.after_edits(longer)
        assert index is not None
        if side is not None and seed > 2:  # the first addition takes spare memory
            assert index._keys.side.tensor.data_ptr() == side.tensor.data_ptr()
        side, rows = getattr(index._keys, "side", None), longer
    without = rows.without(torch.tensor([3, 7]))
    assert without.memory is rows.memory
    assert index.after_edits(without) is not None


@pytest.mark.parametrize("similarity", ["l2", "log_l2", "dot"])
def test_keys_are_made_anew_for_another_scale(similarity):
    """By the scale of rows that have left, or are few, rows would be told apart slowly."""
    rows = SharedRows(torch.cat([normal(300, D), torch.full((1, D), 1e6)]))
    index = make_index("brute", similarity, rows)
    index.query(rows.tensor[:1], 1)
    assert index.after_edits(rows.without(torch.tensor([4]))) is not None
    assert index.after_edits(rows.without(torch.tensor([300]))) is None
    assert index.after_edits(rows.extended(torch.full((1, D), 1e7))) is None
    assert index.after_edits(rows.extended(normal(400, D))) is None


@brute
def test_bounds_hold_for_added_rows(similarity):
    """The rounded key of no row is below the least that its exact key allows."""
    rows = SharedRows(normal(300, D))
    index = make_index("brute", similarity, rows)
    index.query(rows.tensor[:1], 1)
    longer = rows.extended(1.9 * rows.tensor[:200])
    index = index.after_edits(longer)
    for query in (*normal(5, D, seed=1).split(1), *longer.tensor[200:230].split(1)):
        exact = exact_keys(similarity, query, longer.tensor[None])[0]
        least = index._keys.least(query.expand(500, D), exact)
        assert (index._keys(query)[0] >= least.float()).all()
    if similarity == "dot":
        assert index._keys.length >= index._keys.side.tensor.double().norm(dim=0).max()


def test_a_tensor_is_extended_in_place_once():
    """Threads that extend the same tensor do not write into one another's entries."""
    start = GrowingTensor(torch.zeros(5, 2)).extended(torch.ones(1, 2))
    with ThreadPoolExecutor(8) as pool:
        longer = [*pool.map(lambda i: start.extended(torch.full((3, 2), float(i))), range(40))]
    for i, each in enumerate(longer):
        expected = torch.cat([torch.zeros(5, 2), torch.ones(1, 2), torch.full((3, 2), float(i))])
        assert torch.equal(each.tensor, expected)
    in_place = [each.tensor.data_ptr() == start.tensor.data_ptr() for each in longer]
    assert sum(in_place) == 1


@given(edits=EDITS, seed=SEEDS)
def test_places_and_positions(edits, seed):
    rows = SharedRows(normal(40, D, seed=seed))
    expected = rows.tensor.numpy()
    for kind, size, of_edit in edits:
        random = np.random.default_rng(of_edit)
        if kind == "remove":
            removed = np.sort(random.permutation(len(rows))[: int(size * len(rows))])
            expected = np.delete(expected, removed, axis=0)
        else:
            added = np.float32(ADDED[kind](random, np.float64(expected), size))
            expected = np.concatenate([expected, added])
        rows = after(rows, (kind, size, of_edit))
        every = torch.arange(len(rows))
        assert rows.shape == expected.shape
        np.testing.assert_array_equal(rows[every], expected)
        np.testing.assert_array_equal(rows[..., 1:][every], expected[:, 1:])
        np.testing.assert_array_equal(rows[:], expected)
        assert torch.equal(rows.positions(rows.places(every)), every)
        assert len(rows.memory) <= 8 / 7 * max(len(rows), 1) + 1


# -- graphs --------------------------------------------------------------------------------------


def recall(index, query, k):
    """Share of the k nearest rows that an index finds."""
    expected = make_index("brute", index.similarity, index.rows.tensor).query(query, k)[1]
    pairs = zip(index.query(query, k)[1].tolist(), expected.tolist(), strict=True)
    return np.mean([len({*found} & {*nearest}) / k for found, nearest in pairs])


@graphs
def test_an_edited_graph_finds_as_many_as_a_fresh_one(similarity):
    """Added rows are compared with all queries, and rows that have left are not found."""
    pytest.importorskip("faiss")
    rows, query = SharedRows(normal(1500, 12)), normal(150, 12, seed=1)
    index = make_index("hnsw", similarity, rows)
    for seed in range(2, 8):
        rows = rows.extended(normal(40, 12, seed=seed))
        removed = np.random.default_rng(seed).permutation(len(rows))[:30]
        rows = rows.without(torch.from_numpy(np.sort(removed)))
        index = index.after_edits(rows)
        assert index is not None
        fresh = make_index("hnsw", similarity, rows.tensor.clone())
        assert recall(index, query, 10) >= recall(fresh, query, 10) - 0.02


@graphs
def test_a_graph_whose_nearest_rows_have_left(similarity):
    """All rows of a cluster leave: a graph leads queries there first."""
    pytest.importorskip("faiss")
    cluster = 0.01 * normal(200, 12, seed=1) + 3
    rows = SharedRows(torch.cat([normal(2000, 12), cluster]))
    index = make_index("hnsw", similarity, rows)
    left = rows.without(torch.arange(2000, 2200))
    found = index.after_edits(left)
    assert found is not None
    assert recall(found, cluster[:20] + 0.01, 10) == 1
    assert int(found.query(cluster, 10)[1].max()) < 2000


def test_a_graph_takes_many_added_rows():
    faiss = pytest.importorskip("faiss")
    rows, query = SharedRows(normal(1500, 6)), normal(50, 6, seed=1)
    index = make_index("hnsw", "l2", rows)
    assert index.after_edits(rows.extended(normal(1600, 6, seed=2))) is None
    rows = rows.extended(normal(1000, 6, seed=2))
    few = index.after_edits(rows)
    assert few.graph is index.graph
    rows = rows.extended(normal(100, 6, seed=3))
    many = few.after_edits(rows)
    assert many.graph is not index.graph
    assert index.graph.ntotal == 1500  # of the bank before
    assert len(many.beside) == 0
    for each in (few, many):
        again = faiss.deserialize_index(each.serialized())
        assert again.ntotal == len(each)
    assert recall(many, query, 10) > 0.9
    assert many.after_edits(rows.without(torch.tensor([5]))).serialized() is None


@pytest.mark.parametrize("algorithm", ["kd_tree"])
def test_trees_are_built_anew(algorithm):
    rows = SharedRows(normal(50, 2))
    index = make_index(algorithm, "l2", rows)
    assert index.after_edits(rows.extended(normal(1, 2, seed=1))) is None
