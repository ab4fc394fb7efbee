import copy

import torch
from inner.training import QuietAdamW
from torch import nn


def test_its_steps_are_adamw_s():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    theirs, x = copy.deepcopy(ours), torch.randn(20, 3)
    optimizers = []
    for network, kind in (ours, QuietAdamW), (theirs, torch.optim.AdamW):
        groups = [{"params": network[0].parameters(), "weight_decay": 0.0}]
        groups.append({"params": network[2].parameters(), "lr": 0.1})
        optimizers.append(kind(groups, lr=0.01, weight_decay=0.5, fused=True))
    for _ in range(3):
        for network, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            network(x).square().mean().backward()
            assert optimizer.step() is None
    for mine, torchs in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, torchs)
        assert mine.requires_grad


def test_its_state_goes_over_to_adamw_and_back():
    weight = nn.Parameter(torch.ones(2))
    optimizer = QuietAdamW([weight], lr=0.1)
    weight.square().sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    other = torch.optim.AdamW([weight], lr=0.3)
    other.load_state_dict(state)
    assert other.param_groups[0]["lr"] == 0.1
    back = QuietAdamW([weight], lr=0.2)
    back.load_state_dict(other.state_dict())
    assert back.param_groups[0]["lr"] == 0.1


def test_a_closure_may_compute_gradients():
    weight = nn.Parameter(torch.ones(2))
    optimizer = QuietAdamW([weight], lr=0.1)

    def loss():
        optimizer.zero_grad()
        value = weight.square().sum()
        value.backward()
        return value

    assert optimizer.step(loss) == 2
    assert (weight < 1).all()
