from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from nona_sklearn import NONAHead, SoftStep, _stream
from nona_sklearn._bank import NeighborBank
from nona_sklearn.similarity import SIMILARITIES


@pytest.fixture
def bank():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(40, generator=generator, dtype=torch.float64)
    return NeighborBank(torch.randn(40, 3, generator=generator), targets)


@pytest.fixture(params=[None, "s1", "s2"])
def head(request):
    step = request.param and SoftStep(request.param, "pointwise", embedding_dim=3)
    return NONAHead(step=step, learn_temperature=True)


def queries(n):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("blocks", [(1, 1), (7, 16), (256, 39), (3, 2048)])
def test_blocks_do_not_change_results(bank, head, monkeypatch, leave_one_out, blocks):
    query = bank.embeddings if leave_one_out else queries(25)
    whole = bank.predict(head, query, leave_one_out)
    heaviest, rows = bank.heaviest(head, query, 5, leave_one_out)
    monkeypatch.setattr(_stream, "QUERY_BLOCK", blocks[0])
    monkeypatch.setitem(_stream.BANK_BLOCK, "cpu", blocks[1])
    ours = bank.predict(head, query, leave_one_out)
    torch.testing.assert_close(ours, whole, rtol=0, atol=1e-6)
    ours, our_rows = bank.heaviest(head, query, 5, leave_one_out)
    torch.testing.assert_close(ours, heaviest, rtol=0, atol=1e-6)
    assert torch.equal(our_rows[heaviest > 0], rows[heaviest > 0])


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("weights", ["distance", "uniform"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_streamed_weights_are_the_head_s(bank, head, similarity, weights, leave_one_out):
    """The head, which holds all pairs at once, is the oracle."""
    if head.step is None and weights == "uniform":
        head = NONAHead(similarity, weights=weights, n_neighbors=7)
    else:
        head = NONAHead(similarity, head.step, weights, learn_temperature=True)
    head.eval()
    query = bank.embeddings if leave_one_out else queries(9)
    excluded = torch.eye(40, dtype=torch.bool) if leave_one_out else None
    expected = head.neighbor_weights(query, bank.embeddings, excluded)
    ours = torch.from_numpy(bank.sparse_weights(head, query, leave_one_out).toarray()).float()
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        bank.predict(head, query, leave_one_out),
        expected.double() @ bank.targets,
        rtol=0,
        atol=1e-5,
    )


def test_equally_near_neighbours_all_count(head):
    """Where the span of the similarities is nothing, all are nearest."""
    bank = NeighborBank(torch.ones(5, 3), torch.arange(5.0))
    assert bank.predict(head, torch.zeros(2, 3)).tolist() == [2.0, 2.0]


def test_leave_one_out_is_a_bank_without_the_row(bank, head):
    ours = bank.predict(head, bank.embeddings, leave_one_out=True)
    for row in range(len(bank)):
        others = torch.arange(len(bank)) != row
        smaller = NeighborBank(bank.embeddings[others], bank.targets[others])
        expected = smaller.predict(head, bank.embeddings[row : row + 1])
        torch.testing.assert_close(ours[row : row + 1], expected, rtol=0, atol=1e-6)


def test_leave_one_out_lets_a_twin_stay(bank):
    """A row is left out by identity: another row with the same features still counts."""
    twins = NeighborBank(bank.embeddings[[0, 0, 1]], torch.tensor([1.0, 2.0, 3.0]))
    sharp = NONAHead(learn_temperature=True)
    sharp.log_temperature.data.fill_(-6.0)
    predictions = twins.predict(sharp, twins.embeddings, leave_one_out=True)
    torch.testing.assert_close(predictions[:2], torch.tensor([2.0, 1.0], dtype=torch.float64))


def test_predictions_are_exact_whatever_the_offset(bank, head):
    """Float32 weights do not quite sum to 1, which a large offset would reveal."""
    shifted = NeighborBank(bank.embeddings, bank.targets + 1e9)
    expected = bank.predict(head, queries(9)) + 1e9
    np.testing.assert_allclose(shifted.predict(head, queries(9)), expected, rtol=0, atol=1e-5)


def test_multi_output(bank, head):
    both = NeighborBank(bank.embeddings, torch.stack([bank.targets, 1 - bank.targets], dim=1))
    predictions = both.predict(head, queries(5))
    assert predictions.shape == (5, 2)
    torch.testing.assert_close(predictions.sum(dim=1), torch.ones(5, dtype=torch.float64))


def test_threads_change_neither_results_nor_their_number(bank, head, monkeypatch):
    monkeypatch.setattr(_stream, "QUERY_BLOCK", 5)
    alone = bank.predict(head, queries(25))
    torch.set_num_threads(3)
    together = bank.predict(head, queries(25))
    assert torch.get_num_threads() == 3
    with ThreadPoolExecutor(1) as pool:  # a new thread asks what the process is set to
        assert pool.submit(torch.get_num_threads).result() == 3
    torch.testing.assert_close(together, alone, rtol=0, atol=0)


def test_an_error_in_a_thread_is_raised_and_thread_counts_are_restored(bank):
    torch.set_num_threads(2)
    with pytest.raises(RuntimeError):
        bank.predict(NONAHead(), torch.zeros(3, 7))  # embeddings have 3 dimensions
    assert torch.get_num_threads() == 2
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2


def test_a_prediction_does_not_depend_on_its_company(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    neighbors = torch.randn(5000, 8, generator=generator)  # more than one tile
    bank = NeighborBank(neighbors, torch.randn(5000, generator=generator).double())
    query = torch.randn(300, 8, generator=generator)
    for head in (NONAHead(), NONAHead(step=SoftStep("s1")), NONAHead("cosine")):
        whole = bank.predict(head, query)
        for some in (query[:1], query[7:60], query[200:]):
            start = int((query == some[0]).all(dim=1).nonzero())
            expected = whole[start : start + len(some)]
            torch.testing.assert_close(bank.predict(head, some), expected, rtol=0, atol=1e-9)
