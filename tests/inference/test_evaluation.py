import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from inner.data import Embedded
from inner.inference import Evaluation, LabelExclusion, NeighborBank, Neighbors

from nona_sklearn import NONAHead, SoftStep
from nona_sklearn.attention import AverageHead
from nona_sklearn.similarity import SIMILARITIES


def make_bank(embeddings, targets):
    return NeighborBank(Neighbors(embeddings, targets))


def evaluate(bank, head, query, leave_one_out=False):
    return bank.evaluate(head, None if leave_one_out else Embedded(query))


@pytest.fixture
def bank():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(40, generator=generator, dtype=torch.float64)
    return make_bank(torch.randn(40, 3, generator=generator), targets)


@pytest.fixture(params=[None, "s1", "s2"])
def head(request):
    step = request.param and SoftStep(request.param, "pointwise", embedding_dim=3)
    return NONAHead(step=step, learn_temperature=True)


def queries(n):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("blocks", [1, 112, 9984, 6144])
def test_blocks_do_not_change_results(bank, head, monkeypatch, leave_one_out, blocks):
    query = bank.embeddings if leave_one_out else queries(25)
    whole = evaluate(bank, head, query, leave_one_out).mean()
    heaviest, rows, _ = evaluate(bank, head, query, leave_one_out).heaviest(5)
    monkeypatch.setattr("inner.inference.evaluation.BLOCK_PAIRS", blocks)
    ours = evaluate(bank, head, query, leave_one_out).mean()
    torch.testing.assert_close(ours, whole, rtol=0, atol=1e-6)
    ours, our_rows, values = evaluate(bank, head, query, leave_one_out).heaviest(5)
    torch.testing.assert_close(ours, heaviest, rtol=0, atol=1e-6)
    assert torch.equal(our_rows[heaviest > 0], rows[heaviest > 0])
    assert torch.equal(values, bank.targets[our_rows][..., None])  # nothing is adjusted


@pytest.mark.parametrize("n_neighbors", [None, 4])
@pytest.mark.parametrize("bounds", [None, (-0.5, 0.5)])
def test_rows_are_weighed_once_for_all_shrinkages(bank, n_neighbors, bounds):
    head = NONAHead(n_adjusted=1, n_neighbors=n_neighbors)
    head.bounds = bounds
    evaluation = evaluate(bank, head, queries(25))
    mean, found = evaluation.weigh(), []
    for head.shrinkage in (0.0, 0.4, 0.7):
        found.append(mean())
        torch.testing.assert_close(found[-1], evaluation.mean(), rtol=0, atol=1e-12)
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("weighting", ["softmax", "uniform"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_streamed_weights_are_the_head_s(bank, head, similarity, weighting, leave_one_out):
    """The head, which holds all pairs at once, is the oracle."""
    if head.step is None and weighting == "uniform":
        head = NONAHead(similarity, weighting=weighting, n_neighbors=7)
    else:
        head = NONAHead(similarity, head.step, weighting, learn_temperature=True)
    head.eval()
    query = bank.embeddings if leave_one_out else queries(9)
    excluded = torch.eye(40, dtype=torch.bool) if leave_one_out else None
    expected = head.neighbor_weights(query, bank.embeddings, excluded)
    ours = torch.from_numpy(
        evaluate(bank, head, query, leave_one_out).sparse_weights().toarray()
    ).float()
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        evaluate(bank, head, query, leave_one_out).mean(),
        expected.double() @ bank.targets,
        rtol=0,
        atol=1e-5,
    )


def test_equally_near_neighbours_all_count(head):
    """Where the span of the similarities is nothing, all are nearest."""
    bank = make_bank(torch.ones(5, 3), torch.arange(5.0))
    assert evaluate(bank, head, torch.zeros(2, 3)).mean().tolist() == [2.0, 2.0]


def test_leave_one_out_is_a_bank_without_the_row(bank, head):
    ours = evaluate(bank, head, bank.embeddings, leave_one_out=True).mean()
    for row in range(len(bank)):
        others = torch.arange(len(bank)) != row
        smaller = make_bank(bank.embeddings[others], bank.targets[others])
        expected = evaluate(smaller, head, bank.embeddings[row : row + 1]).mean()
        torch.testing.assert_close(ours[row : row + 1], expected, rtol=0, atol=1e-6)


def test_leave_one_out_lets_a_twin_stay(bank):
    """A row is left out by identity: another row with the same features still counts."""
    twins = make_bank(bank.embeddings[[0, 0, 1]], torch.tensor([1.0, 2.0, 3.0]))
    sharp = NONAHead(learn_temperature=True)
    sharp.log_temperature.data.fill_(-6.0)
    predictions = evaluate(twins, sharp, twins.embeddings, leave_one_out=True).mean()
    torch.testing.assert_close(predictions[:2], torch.tensor([2.0, 1.0], dtype=torch.float64))


def test_predictions_are_exact_whatever_the_offset(bank, head):
    """Float32 weights do not quite sum to 1, which a large offset would reveal."""
    shifted = make_bank(bank.embeddings, bank.targets + 1e9)
    expected = evaluate(bank, head, queries(9)).mean() + 1e9
    np.testing.assert_allclose(
        evaluate(shifted, head, queries(9)).mean(), expected, rtol=0, atol=1e-5
    )


def test_multi_output(bank, head):
    both = make_bank(bank.embeddings, torch.stack([bank.targets, 1 - bank.targets], dim=1))
    predictions = evaluate(both, head, queries(5)).mean()
    assert predictions.shape == (5, 2)
    torch.testing.assert_close(predictions.sum(dim=1), torch.ones(5, dtype=torch.float64))


def test_threads_change_neither_results_nor_their_number(bank, head, monkeypatch):
    monkeypatch.setattr("inner.inference.evaluation.BLOCK_PAIRS", 5 * 40)
    alone = evaluate(bank, head, queries(25)).mean()
    torch.set_num_threads(3)
    together = evaluate(bank, head, queries(25)).mean()
    assert torch.get_num_threads() == 3
    with ThreadPoolExecutor(1) as pool:  # a new thread has the number that the process is set to
        assert pool.submit(torch.get_num_threads).result() == 3
    torch.testing.assert_close(together, alone, rtol=0, atol=0)


def test_an_error_in_a_thread_is_raised_and_thread_counts_are_restored(bank):
    torch.set_num_threads(2)
    with pytest.raises(RuntimeError):
        evaluate(bank, NONAHead(), torch.zeros(3, 7)).mean()  # embeddings have 3 dimensions
    assert torch.get_num_threads() == 2
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2


def test_a_prediction_does_not_depend_on_the_other_queries(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    neighbors = torch.randn(5000, 8, generator=generator)  # more than one block
    bank = make_bank(neighbors, torch.randn(5000, generator=generator).double())
    query = torch.randn(300, 8, generator=generator)
    for head in (NONAHead(), NONAHead(step=SoftStep("s1")), NONAHead("cosine")):
        whole = evaluate(bank, head, query).mean()
        for some in (query[:1], query[7:60], query[200:]):
            start = int((query == some[0]).all(dim=1).nonzero())
            expected = whole[start : start + len(some)]
            torch.testing.assert_close(
                evaluate(bank, head, some).mean(), expected, rtol=0, atol=1e-9
            )


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("exclusion", [None, "itself", "group"])
@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("n_neighbors", [None, 9])
def test_predictions_at_once_and_block_by_block_are_the_same(
    bank, head, average, exclusion, prior, n_neighbors
):
    """What training differentiates is what is evaluated afterwards; also of whole rows."""
    neighbors = bank.neighbors
    head.n_neighbors = n_neighbors
    if average:
        head = AverageHead([head, NONAHead("log_l2")])
        neighbors = Neighbors(neighbors.embeddings.repeat(1, 2), neighbors.values)
    if prior:
        neighbors = replace(neighbors, log_prior=torch.linspace(-1, 1, 40))
    labels = torch.arange(40) if exclusion == "itself" else torch.arange(40) // 4
    excluded = exclusion and LabelExclusion(labels[:12], labels)
    evaluation = Evaluation(head.eval(), neighbors, neighbors.embeddings[:12], excluded)
    with torch.no_grad():
        expected = evaluation.attend().double()
    torch.testing.assert_close(evaluation.mean(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("weighting", ["softmax", "uniform"])
def test_a_prior_of_two_is_the_row_twice(bank, head, weighting):
    if head.step is None:
        weighting = "softmax"
    head = NONAHead("l2", head.step, weighting)
    twice = torch.cat([torch.arange(40), torch.tensor([3, 7])])
    log_prior = torch.zeros(40)
    log_prior[[3, 7]] = np.log(2.0)
    heavier = replace(bank.neighbors, log_prior=log_prior)
    ours, expected = (
        Evaluation(head, neighbors, queries(9)).mean()
        for neighbors in (heavier, bank.neighbors[twice])
    )
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
    joined = heavier[:20].join(bank.neighbors[20:])
    assert torch.equal(joined.log_prior, log_prior)


def test_a_query_without_neighbours_is_predicted_as_0(bank, head):
    alone = LabelExclusion(torch.zeros(9, dtype=torch.long), torch.zeros(40, dtype=torch.long))
    evaluation = Evaluation(head, bank.neighbors, queries(9), alone)
    assert (evaluation.mean() == 0).all()
    assert (evaluation.attend() == 0).all()


def test_a_bank_keeps_what_belongs_to_its_rows():
    """Through a pickle, and edits: groups, prior, names."""
    neighbors = Neighbors(torch.randn(6, 2), torch.arange(6.0), torch.arange(6.0))
    bank = NeighborBank(neighbors, groups=torch.tensor([0, 0, 1, 1, 2, 2]))
    assert bank.n_units == 3
    smaller = pickle.loads(pickle.dumps(bank.keep(np.array([1, 2, 3, 5]))))
    assert smaller.groups.tolist() == [0, 1, 1, 2]
    assert smaller.neighbors.log_prior.tolist() == [1.0, 2.0, 3.0, 5.0]
    assert smaller.ids.tolist() == [1, 2, 3, 5]
    larger = smaller.add(Neighbors(torch.randn(2, 2), torch.zeros(2)))
    assert larger.groups.tolist() == [0, 1, 1, 2, 3, 4]  # groups of their own
    assert larger.neighbors.log_prior.tolist() == [1.0, 2.0, 3.0, 5.0, 0.0, 0.0]
    assert larger.ids.tolist() == [1, 2, 3, 5, 6, 7]


def test_a_similarity_put_in_place_of_another_is_the_one_that_counts(bank, monkeypatch):
    monkeypatch.setitem(SIMILARITIES, "l2", SIMILARITIES["l1"])
    ours = bank.evaluate(NONAHead("l2"), Embedded(queries(5))).mean()
    torch.testing.assert_close(ours, bank.evaluate(NONAHead("l1"), Embedded(queries(5))).mean())


# -- whole rows, and what is kept --------------------------------------------------------------


def test_whole_rows_are_those_of_all_blocks(bank, head, monkeypatch):
    head, query = head.eval(), queries(6)
    expected = head.neighbor_weights(query, bank.embeddings).double()
    changes = bank.evaluate(head, Embedded(query)).influence()
    monkeypatch.setattr("inner.inference.evaluation.BLOCK_PAIRS", 4 * 40)
    evaluation = bank.evaluate(head, Embedded(query))
    behind = torch.cat(evaluation.map_weighted_rows(lambda behind: behind.weights()))
    torch.testing.assert_close(behind, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(evaluation.influence(), changes, rtol=0, atol=1e-6)


def test_blocks_hold_a_number_of_weights(bank, monkeypatch):
    monkeypatch.setattr("inner.inference.evaluation.BLOCK_PAIRS", 2 * len(bank))
    for head, most in [(NONAHead(), 2), (NONAHead(n_neighbors=19), 4)]:  # one more is searched
        sizes = bank.evaluate(head, Embedded(queries(9))).map_weighted_rows(
            lambda rows: rows.queries.stop - rows.queries.start
        )
        assert max(sizes) == most


def test_so_few_queries_are_not_divided_among_threads(bank, monkeypatch):
    monkeypatch.setattr("inner.inference.evaluation.BLOCK_PAIRS", len(bank))
    seen = []
    monkeypatch.setattr(
        "inner.inference.evaluation.WORKERS",
        SimpleNamespace(map=lambda f, blocks, n: seen.append(n) or []),
    )
    torch.set_num_threads(2)
    head = NONAHead(step=SoftStep("s2", on="rank"))
    bank.evaluate(head, Embedded(queries(9))).map_weighted_rows(lambda *_: None)
    assert seen == [1]


def test_another_head_of_as_many_networks_compares_by_itself(bank):
    fresh = make_bank(bank.embeddings, bank.targets)
    bank.evaluate(NONAHead("l2"), Embedded(queries(5))).mean()
    torch.testing.assert_close(
        bank.evaluate(NONAHead("log_l2"), Embedded(queries(5))).mean(),
        fresh.evaluate(NONAHead("log_l2"), Embedded(queries(5))).mean(),
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("n_threads", [1, 2])
def test_predictions_may_take_part_in_training(bank, n_threads):
    """They are no tensors of inference mode, unless the caller is in it."""
    torch.set_num_threads(n_threads)
    assert not bank.evaluate(NONAHead(), Embedded(queries(80))).mean().is_inference()


@pytest.mark.parametrize("n_neighbors", [None, 5])
def test_where_memory_begins_does_not_matter(bank, n_neighbors):
    """A mapped file's values may begin anywhere."""
    head = NONAHead(n_neighbors=n_neighbors)
    shifted = torch.cat([bank.targets[:1], bank.targets])[1:]
    assert shifted.data_ptr() % 16 != bank.targets.data_ptr() % 16
    found = make_bank(bank.embeddings, shifted).evaluate(head, Embedded(queries(25))).mean()
    assert torch.equal(found, bank.evaluate(head, Embedded(queries(25))).mean())
