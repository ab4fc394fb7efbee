"""Several outputs: noise in some leaves what is learned of another."""

import numpy as np
import pytest
import torch
from inner.inference import Evaluation, LabelExclusion, Neighbors
from inner.training import refine
from torch import nn

from nona_sklearn import NONAHead, NONARegressor
from nona_sklearn.losses import NEGLIGIBLE_LOSS, WeightedLoss
from nona_sklearn.targets import RegressionTargets

BALANCED = WeightedLoss(nn.MSELoss, balanced=True)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_on_paper():
    """Squared errors of 4 and 9 count as 6."""
    found = BALANCED(torch.tensor([[2.0, 3.0], [-2.0, 3.0]]), torch.zeros(2, 2))
    assert found.item() == pytest.approx(6, rel=1e-3)


def test_the_loss_of_equal_outputs_is_theirs():
    errors = random(8, 1).expand(-1, 3)
    ours, each = BALANCED(errors, torch.zeros(8, 3)), nn.MSELoss()(errors, torch.zeros(8, 3))
    torch.testing.assert_close(ours, each)
    assert BALANCED(torch.zeros(8, 3), torch.zeros(8, 3)) == 0


def test_outputs_pull_by_shares_of_their_losses():
    """A tenth less of a small loss is worth as much as a tenth less of a large one."""
    scale = torch.tensor([0.5, 5.0], dtype=torch.float64, requires_grad=True)
    errors = random(6, 1) / random(6, 1).square().mean().sqrt()
    BALANCED(scale * errors, torch.zeros(6, 2)).backward()
    small, large = scale.grad * scale.detach()
    assert small / large == pytest.approx(1, abs=5 * NEGLIGIBLE_LOSS)


def test_a_row_of_weight_2_is_two_rows():
    prediction, truth = random(5, 3), random(5, 3).flip(0)
    counts = torch.tensor([1, 2, 1, 3, 1])
    ours = BALANCED(prediction, truth, counts / counts.double().mean())
    rows = torch.arange(5).repeat_interleave(counts)
    torch.testing.assert_close(ours, BALANCED(prediction[rows], truth[rows]))


class Absolute(RegressionTargets):
    loss = nn.L1Loss


@pytest.mark.parametrize(
    ("kind", "y", "expected"),
    [
        (RegressionTargets, [1.0, 2.0], False),
        (RegressionTargets, [[1.0], [2.0]], False),
        (RegressionTargets, [[1.0, 2.0], [3.0, 4.0]], True),
        (Absolute, [[1.0, 2.0], [3.0, 4.0]], False),
    ],
)
def test_squared_errors_of_several_outputs_are_balanced(kind, y, expected):
    assert kind().fit(y).balanced is expected


def test_refinements_compare_outputs_in_units_of_their_errors():
    """An output with ten times the errors counts alike, also of weighted rows."""
    values, embeddings = random(30, 1) * torch.tensor([1.0, 10.0]), random(30, 2).float()
    neighbors, weights = Neighbors(embeddings, values), torch.linspace(0.5, 1.5, 30).double()
    itself = LabelExclusion(torch.arange(30), torch.arange(30))
    evaluation = Evaluation(NONAHead(learn_temperature=True).eval(), neighbors, embeddings, itself)
    seen = []

    def loss(prediction, truth, weights):
        seen.append((weights[:, None] * (prediction - truth).square()).mean(dim=0))
        return seen[-1].mean()

    refine(evaluation, loss, values, weights, balanced=True)
    assert seen[0].tolist() == pytest.approx([1, 1], rel=0.01)
    assert all(each[0].item() == pytest.approx(each[1].item(), rel=0.01) for each in seen)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, np.arange(300) % 2 + 1.0])
def test_noise_in_other_outputs_leaves_a_clean_one(weights):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(400, 5))
    clean, noise = np.sin(X[:, 0]) + X[:, 1], rng.normal(size=(400, 3))
    params = {"n_estimators": 1, "max_iter": 20, "random_state": 0, "n_neighbors": 5}
    reg = NONARegressor(**params)
    reg.fit(X[:300], np.column_stack([clean, noise])[:300], sample_weight=weights)
    error = (reg.predict(X[300:])[:, 0] - clean[300:]).std() / clean.std()
    assert error < 0.1  # alone 0.02, beside noise whose losses are added 0.23
