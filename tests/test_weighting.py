"""Another weighting, from outside: all answers follow its definition."""

import math

import numpy as np
import pytest
import torch

from nona_sklearn import NONAHead, NONARegressor, SoftStep, SoftStepKNeighborsRegressor
from nona_sklearn._bank import NeighborBank
from nona_sklearn._neighbors import Neighbors
from nona_sklearn.weighting import WEIGHTINGS, Weighting


def sharpened(logits):
    """A row-wise weighting whose definition is a softmax all the same."""
    return (2 * logits).softmax(dim=1)


@pytest.fixture(params=["gaussian", "sigmoid", "sharpened"])
def weights(request, monkeypatch):
    weighting = {
        "gaussian": Weighting(lambda s: -s.square() / 2),
        "sigmoid": Weighting(torch.nn.functional.logsigmoid),
        "sharpened": Weighting(lambda s: s, normalize=sharpened),
    }[request.param]
    monkeypatch.setitem(WEIGHTINGS, request.param, weighting)
    return request.param


def test_on_paper(monkeypatch):
    monkeypatch.setitem(WEIGHTINGS, "sigmoid", Weighting(torch.nn.functional.logsigmoid))
    query, neighbors = torch.zeros(1, 1), torch.tensor([[0.0], [math.log(3.0)]])
    ours = NONAHead("l2", weights="sigmoid").neighbor_weights(query, neighbors)
    # 1/2 and 1/4, over their sum
    torch.testing.assert_close(ours, torch.tensor([[2 / 3, 1 / 3]]))


@pytest.mark.parametrize("step", [None, "s1"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_all_answers_follow_the_definition(weights, step, leave_one_out):
    head = NONAHead("l2", step and SoftStep(step), weights, learn_temperature=True).eval()
    head.log_temperature.data.fill_(-0.5)
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(40, 3, generator=generator)
    bank = NeighborBank(Neighbors(embeddings, torch.randn(40, generator=generator).double()))
    query = None if leave_one_out else torch.randn(7, 3, generator=generator)
    question = bank.ask(head, query)
    excluded = None if query is not None else torch.eye(40, dtype=torch.bool)
    with torch.no_grad():
        expected = head.neighbor_weights(question.query, embeddings, excluded).double()
    np.testing.assert_allclose(question.sparse_weights().toarray(), expected, atol=1e-6)
    torch.testing.assert_close(question.mean(), expected @ bank.targets, rtol=0, atol=1e-5)
    heaviest, rows, values = question.heaviest(3)
    torch.testing.assert_close(heaviest, expected.topk(3, dim=1).values, rtol=0, atol=1e-6)
    torch.testing.assert_close(expected.gather(1, rows), heaviest, rtol=0, atol=1e-6)
    assert torch.equal(values, bank.targets[rows][..., None])  # nothing is adjusted
    sizes = 1 / expected.square().sum(dim=1)
    torch.testing.assert_close(question.effective_sizes(), sizes, rtol=1e-4, atol=0)
    assert head.needs_whole_rows == (weights == "sharpened")


def test_estimators_know_it(weights, plane):
    X, X_test, y, _ = plane
    knn = SoftStepKNeighborsRegressor(
        weights=weights, similarity="l2", softstep_on="similarity", max_iter=3, random_state=0
    ).fit(X, y)
    found = knn.neighbor_weights(X_test)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found @ y, knn.predict(X_test), atol=1e-5)


def test_unknown_ones_are_named(plane):
    with pytest.raises(ValueError, match=r"The 'weights' parameter .* Got 'gaussian' instead"):
        SoftStepKNeighborsRegressor(weights="gaussian").fit(plane[0], plane[2])
    with pytest.raises(ValueError, match=r"weights must be one of .*, got 'gaussian'"):
        NONAHead(weights="gaussian")


def test_a_similarity_from_outside_needs_no_subclass(plane, monkeypatch):
    from nona_sklearn.similarity import SIMILARITIES, l2

    X, X_test, y, _ = plane
    monkeypatch.setitem(SIMILARITIES, "half_l2", lambda q, n: l2(q, n) / 2)
    reg = NONARegressor(similarity="half_l2", n_estimators=1, max_iter=2, adjust=False).fit(X, y)
    np.testing.assert_allclose(reg.neighbor_weights(X_test) @ y, reg.predict(X_test), atol=1e-6)
    adjusted = NONARegressor(similarity="half_l2", n_estimators=1, max_iter=2).fit(X, y)
    sums = adjusted.explain(X_test, 4)["contribution"].to_numpy().reshape(30, 5).sum(axis=1)
    np.testing.assert_allclose(sums, adjusted.predict(X_test), atol=1e-6)
