"""Refinement after training: numbers of neighbours, and shrinkage."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inner.estimators import N_NEIGHBORS
from inner.inference import Evaluation, LabelExclusion, Neighbors
from inner.training import (
    TOLERANCE,
    TOLERANCE_OF_CLASSES,
    fit_n_neighbors,
    refine,
)

from nona_sklearn import ClassHead, NONAHead, SoftStep
from nona_sklearn.attention.head import SHRINKAGES


def chosen(head, losses_of):
    """The number that is chosen from losses of each number on parts of the rows."""

    def losses():
        return torch.tensor(losses_of[head.n_neighbors])

    fit_n_neighbors(head, list(losses_of), lambda: losses, torch.mean, torch.clone)
    return head.n_neighbors


@pytest.mark.parametrize("head", [NONAHead(), ClassHead(prior=torch.ones(2) / 2)])
def test_the_smallest_number_within_chance_is_chosen(head):
    tolerance = TOLERANCE_OF_CLASSES if isinstance(head, ClassHead) else TOLERANCE
    within, beyond = 1 + 0.9 * tolerance, 1 + 1.1 * tolerance
    assert chosen(head, {3: [2.0] * 9, 5: [beyond] * 9, 7: [within] * 9, 10: [1.0] * 9}) == 7
    assert chosen(head, {3: [1.0] * 9, 5: [1.0] * 9, 7: [2.0] * 9}) == 3
    assert chosen(head, {3: [2.0] * 9, 5: [1.0] * 9, 7: [2.0] * 9}) == 5
    assert chosen(head, {3: [2.0], 5: [1.0]}) == 5  # of one row


def test_chance_is_one_standard_error_of_the_paired_difference():
    """Losses of parts differ a lot, but alike for all numbers."""
    parts = 1e-3 * torch.logspace(-3, 3, 50)
    spread = (
        torch.tensor([-1.0, 1.0]).repeat(25) * parts.mean()
    )  # error: parts.mean() / root of 50
    error = parts.mean() / math.sqrt(50)
    for excess, expected in ((0.9 * error, 3), (1.1 * error, 5)):
        noisy = parts + spread + excess
        assert chosen(NONAHead(), {3: noisy.tolist(), 5: parts.tolist()}) == expected


def test_each_number_is_tried_with_the_shrinkage_that_suits_it():
    """Three neighbours are as good as five, but only if residuals are halved."""
    head = NONAHead(n_adjusted=1, n_neighbors=3)

    def losses():
        noise = abs(head.shrinkage - 0.5) if head.n_neighbors == 3 else head.shrinkage
        return torch.full((5,), 1.0 + noise)

    fit_n_neighbors(head, [3, 5], lambda: losses, torch.mean, torch.clone)
    assert (head.n_neighbors, head.shrinkage) == (3, 0.5)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    of_classes=st.booleans(),
    similarity=st.sampled_from(["l2", "log_l2", "cosine"]),
    weighting=st.sampled_from(["softmax", "entmax", "preconditioned", "softpick"]),
    step=st.none()
    | st.builds(SoftStep, st.sampled_from(["s1", "s2"]), st.just("global"), st.just("rank")),
    n_neighbors=st.integers(1, 12),
    shrinkage=st.sampled_from([0.0, 0.4]),
    leaves_out=st.booleans(),
    prior=st.booleans(),
)
def test_the_nearest_are_searched_once_for_all_numbers(
    seed, of_classes, similarity, weighting, step, n_neighbors, shrinkage, leaves_out, prior
):
    """Also after the number has been lowered."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(30, 5, generator=generator)
    values = torch.randn(30, 2, generator=generator)
    options = (similarity, step, weighting, True, n_neighbors, 2)
    head = NONAHead(*options)
    if of_classes:
        head = ClassHead(*options, prior=torch.tensor([0.3, 0.7]))
        values = torch.eye(2)[torch.randint(2, (30,), generator=generator)]
    head.shrinkage, head.mean_residual = shrinkage, (0.5, -1.0)
    log_prior = torch.randn(30, generator=generator) if prior else None
    neighbors, query = Neighbors(embeddings, values, log_prior), embeddings[:9] + 0.1
    labels = torch.arange(30)
    exclusion = LabelExclusion(labels[:9], labels) if leaves_out else None
    evaluation = Evaluation(head, neighbors, query, exclusion)
    head.eval()
    evaluation.mean()
    for k in (n_neighbors, (n_neighbors + 1) // 2):  # found already
        head.n_neighbors = k
        with torch.no_grad():
            expected = evaluation.attend().double()
        torch.testing.assert_close(evaluation.mean(), expected, rtol=1e-4, atol=1e-5)


def test_noise_is_averaged_over_more_neighbours_than_a_trend():
    generator = torch.Generator().manual_seed(0)
    z = torch.rand(600, 1, generator=generator)
    noise = torch.randn(600, generator=generator)
    numbers = []
    for y in (3 * z[:, 0], noise):
        head = NONAHead(weighting="uniform", n_neighbors=10)
        bank = Neighbors(z[:500], y[:500])
        evaluation = Evaluation(head, bank, z[500:])
        refine(evaluation, torch.nn.MSELoss(), y[500:], n_neighbors=N_NEIGHBORS)
        numbers.append(head.n_neighbors)
    assert numbers[0] == 3
    assert numbers[1] > 3


def test_as_many_neighbours_as_there_are_rows_may_be_chosen():
    """Targets of ten rows cancel out, those of fewer do not; twenty there are not."""
    z = torch.arange(10.0)[:, None]
    head = NONAHead(weighting="uniform", n_neighbors=3)
    bank = Neighbors(z, (-1.0) ** torch.arange(10))
    evaluation = Evaluation(head, bank, z)
    refine(evaluation, torch.nn.MSELoss(), torch.zeros(10), n_neighbors=[3, 10, 20])
    assert head.n_neighbors == 10


def test_residuals_are_shrunk_where_they_are_noise():
    """The truth is g, and targets are noisy: all that neighbours add is noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(600, 1, generator=generator)
    g = 3 * x + 7  # with any constant
    y = 3 * x[:, 0] + torch.randn(600, generator=generator)
    head = NONAHead(n_neighbors=3, n_adjusted=1)
    z = torch.cat([x, g], dim=1)
    evaluation = Evaluation(head, Neighbors(z[:500], y[:500]), z[500:])
    before = (evaluation.mean() - y[500:]).square().mean()
    refine(evaluation, torch.nn.MSELoss(), y[500:])
    assert head.shrinkage == max(SHRINKAGES)
    assert math.isclose(head.mean_residual[0], (y - g[:, 0])[:500].mean(), rel_tol=1e-5)
    assert (evaluation.mean() - y[500:]).square().mean() < before
