import numpy as np
import pytest
import torch

from nona_sklearn import NONAHead, SoftStep, _bank
from nona_sklearn._bank import NeighborBank


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
def test_block_size_does_not_change_predictions(bank, head, monkeypatch, leave_one_out):
    query = bank.embeddings if leave_one_out else queries(25)
    whole = bank.predict(head, query, leave_one_out)
    for entries in (1, 120, 281):
        monkeypatch.setattr(_bank, "BLOCK_ENTRIES", entries)
        blocks = bank.predict(head, query, leave_one_out)
        torch.testing.assert_close(blocks, whole, rtol=0, atol=1e-6)


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
