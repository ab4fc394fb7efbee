"""Influence is the change of predictions from a bank without the row, whatever the weighting."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from inner.inference import Evaluation, LabelExclusion, Neighbors

from nona_sklearn import ClassHead, NONAHead, NONARegressor, SoftStep
from nona_sklearn.attention import AverageHead
from nona_sklearn.weighting import WEIGHTINGS, Entmax, Preconditioned, Softpick, SparseSoftmax

N = 40


def short_softpick():
    """One that often drops all but the nearest."""
    weighting = Softpick()
    weighting.threshold.data.fill_(-0.7)
    return weighting


CASES = {name: name for name in WEIGHTINGS} | {
    "three nearest": SparseSoftmax(3),
    "five preconditioned": Preconditioned(5),
    "nearly softmax": Entmax(1.05),
    "short softpick": short_softpick(),
}


def evaluation(weighting, classes=False, exclude=False, step=None, n_neighbors=None, n_heads=2):
    """A question with everything in it, in float64: adjustments, a prior, two networks."""
    torch.manual_seed(3)
    values = torch.randn(N, 2, dtype=torch.float64)
    if classes:
        values = torch.nn.functional.one_hot(torch.randint(2, (N,)), 2).double()
    heads = []
    for _ in range(n_heads):
        given = {"step": step and SoftStep(step), "weighting": weighting, "n_adjusted": 2}
        given["n_neighbors"] = 7 if weighting == "uniform" else n_neighbors
        heads.append(ClassHead(prior=values.mean(0), **given) if classes else NONAHead(**given))
    head = AverageHead(heads).double().eval()
    bank = torch.randn(N, 4 * n_heads, dtype=torch.float64)
    bank[7] = bank[8]  # twins
    query = bank if exclude else torch.randn(15, 4 * n_heads, dtype=torch.float64)
    unit, prior = torch.ones(2, dtype=torch.float64), torch.randn(N, dtype=torch.float64)
    labels = torch.arange(N)
    exclusion = LabelExclusion(labels, labels) if exclude else None
    return Evaluation(head, Neighbors(bank, values, prior, unit), query, exclusion)


def without(evaluated, row):
    """The same question of a bank without a row."""
    kept = torch.arange(N) != row
    exclusion = evaluated.exclusion
    if exclusion is not None:
        exclusion = LabelExclusion(exclusion.queries, exclusion.neighbors[kept])
    return Evaluation(evaluated.head, evaluated.neighbors[kept], evaluated.query, exclusion)


def check(evaluated, rows=(0, 7, 8, 13, 21, 34)):
    """Compare each row's influence with what happens if it is left out."""
    before = evaluated.mean()
    residual = torch.linspace(-1, 1, before.numel(), dtype=torch.float64).reshape(before.shape)
    weight, change, error = evaluated.influence(residual)
    np.testing.assert_allclose(
        weight, evaluated.sparse_weights().sum(axis=0), rtol=1e-5, atol=1e-9
    )
    for row in rows:
        moved = without(evaluated, row).mean() - before
        expected = moved.square().sum(dim=1).mean()
        torch.testing.assert_close(change[row], expected, rtol=1e-6, atol=1e-12)
        expected = ((residual + moved) ** 2 - residual**2).sum(dim=1).mean()
        torch.testing.assert_close(error[row], expected, rtol=1e-6, atol=1e-9)
    return change


@pytest.mark.parametrize(("classes", "exclude"), [(False, True), (True, False)])
@pytest.mark.parametrize("case", CASES)
def test_it_is_what_leaving_out_does(case, classes, exclude):
    change = check(evaluation(CASES[case], classes, exclude))
    assert (change > 0).any()


@pytest.mark.parametrize("weighting", ["softmax", "sparsemax", "preconditioned"])
def test_of_few_neighbours_the_next_one_takes_the_place(weighting):
    check(evaluation(weighting, n_neighbors=1))
    check(evaluation(weighting, n_neighbors=4, classes=True))


@pytest.mark.parametrize("step", ["s1", "s2"])
@pytest.mark.parametrize("case", ["softmax", "sparsemax", "three nearest", "nearly softmax"])
def test_a_step_is_evaluated_again(case, step):
    """Without the nearest and the farthest row, too, by which it is scaled."""
    check(evaluation(CASES[case], step=step), range(N))
    check(evaluation(CASES[case], classes=True, exclude=True, step=step))
    check(evaluation(CASES[case], step=step, n_neighbors=4), range(N))


def test_a_step_on_ranks_is_evaluated_again_without_a_row_of_weight():
    """The next row takes the place. Without a row that has no weight, ranks move by one place."""
    evaluated = evaluation("softmax", step="s1", n_heads=1)
    evaluated.head.heads[0].step.on = "rank"
    weights = evaluated.sparse_weights().toarray()[:1]
    one = replace(evaluated, query=evaluated.query[:1])
    before, changes = one.mean(), one.changes()[0]
    for row in np.flatnonzero(weights > 0):
        moved = without(one, row).mean() - before
        torch.testing.assert_close(changes[row], moved[0], rtol=1e-6, atol=1e-9)


def test_a_query_without_another_neighbour_keeps_its_own():
    evaluated = evaluation("sparsemax")
    group = torch.zeros(N, dtype=torch.long)
    group[3] = 1  # the only neighbour that is not excluded
    exclusion = LabelExclusion(torch.zeros(15, dtype=torch.long), group)
    _, change, _ = Evaluation(
        evaluated.head, evaluated.neighbors, evaluated.query, exclusion
    ).influence()
    torch.testing.assert_close(change, torch.zeros_like(change), rtol=0, atol=1e-12)


def test_blocks_of_pairs_have_the_same_result(monkeypatch):
    whole = evaluation("entmax").influence()
    monkeypatch.setattr("inner.inference.influence.LEAVE_ONE_OUT_PAIRS", 3 * N)
    for ours, theirs in zip(evaluation("entmax").influence(), whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=0)


@pytest.mark.parametrize("weighting", ["sparsemax", "sparse_softmax", "softmax"])
def test_number_of_nonzero_weights(weighting, plane):
    X, X_test, y, _ = plane
    params = {"n_neighbors": None, "n_estimators": 2, "max_iter": 2, "random_state": 0}
    reg = NONARegressor(weighting=weighting, **params).fit(X, y)
    for queries in (X_test, None):
        table = reg.neighborhood(queries)
        found = table["n_nonzero_weights"]
        np.testing.assert_array_equal(found, np.diff(reg.neighbor_weights(queries).indptr))
        assert (found >= table["effective_n_neighbors"] * (1 - 1e-5)).all()
    if weighting == "sparse_softmax":  # of two networks
        assert ((found >= 16) & (found <= 32)).all()
    assert (found.max() == len(y) - 1) == (weighting == "softmax")
    assert found.dtype.kind == "i"
