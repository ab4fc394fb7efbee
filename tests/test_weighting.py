"""Weightings: each on paper, their common laws, special cases of some, and one's own.

Their use in the estimators: inference/test_each_weighting.py.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from torch.autograd import gradcheck

from nona_sklearn import NONAHead, NONARegressor, SoftStep
from nona_sklearn.similarity import SIMILARITIES, l2
from nona_sklearn.weighting import (
    WEIGHTINGS,
    Entmax,
    Gaussian,
    Preconditioned,
    Sigmoid,
    Softmax,
    Softpick,
    Softplus,
    SparseSoftmax,
    Triangular,
    Uniform,
    Weighting,
    make_weighting,
    sparse,
)
from nona_sklearn.weighting import base as elementwise
from nona_sklearn.weighting.base import softmax

EACH = pytest.mark.parametrize("name", WEIGHTINGS)
OF_K = "sparse_softmax", "triangular"  # weights of k rows
MANY = 1000  # more than there are neighbours in any test


def learned(made, **values):
    """Let a weighting have learned these numbers."""
    for name, value in values.items():
        getattr(made, name).data.fill_(value)
    return made


def head_of(weighting, **kwargs):
    """A head in evaluation, with all neighbours for those that look at a few."""
    if isinstance(weighting, str):
        weighting = {
            "uniform": Uniform(),
            "sparse_softmax": SparseSoftmax(4),
            "preconditioned": Preconditioned(MANY),
        }.get(weighting, weighting)
    kwargs = {"n_neighbors": MANY if isinstance(weighting, Uniform) else None, **kwargs}
    return NONAHead("l2", weighting=weighting, **kwargs).eval()


def rows(n, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator, dtype=dtype)


# -- on paper ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "distances", "expected"),
    [
        (Softmax(), [0, math.log(3)], [3 / 4, 1 / 4]),
        (Uniform(), [0, 7], [1 / 2, 1 / 2]),
        (Gaussian(), [0, math.sqrt(2 * math.log(3))], [3 / 4, 1 / 4]),
        # 1/2 and 1/4
        (learned(Sigmoid(), bias=0), [0, math.log(3)], [2 / 3, 1 / 3]),
        (learned(Sigmoid(), bias=math.log(3)), [0, math.log(3)], [3 / 5, 2 / 5]),
        # log 2 and half of it; then their squares
        (
            learned(Softplus(), bias=0, log_power=0),
            [0, -math.log(math.sqrt(2) - 1)],
            [2 / 3, 1 / 3],
        ),
        (
            learned(Softplus(), bias=0, log_power=math.log(2)),
            [0, -math.log(math.sqrt(2) - 1)],
            [4 / 5, 1 / 5],
        ),
        # 4 - 1, 2 - 1, 1 - 1
        (
            learned(Softpick(), threshold=-math.log(4)),
            [0, math.log(2), math.log(4)],
            [3 / 4, 1 / 4, 0],
        ),
        (SparseSoftmax(2), [math.log(3), 9, 0], [1 / 4, 0, 3 / 4]),
        (Entmax(1.0), [0, math.log(3)], [3 / 4, 1 / 4]),
        # what is above -0.8 of half the similarities, squared: 0.8 and 0.6
        (Entmax(1.5), [0, 0.4, 2], [0.64, 0.36, 0]),
        # what is above -3/4
        (Entmax(2.0), [0, 1 / 2, 2], [3 / 4, 1 / 4, 0]),
        # k = [1, 1/2], and the rows are as near to each other: [[2, 1/2], [1/2, 2]] v = k
        (learned(Preconditioned(), log_ridge=0), [0, math.log(2)], [7 / 9, 2 / 9]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Weighting) else "",
)
def test_on_paper(made, distances, expected):
    places = torch.tensor(distances, dtype=torch.float64)[:, None]
    weights = head_of(made).neighbor_weights(torch.zeros(1, 1).double(), places)
    # The numbers that are learned are float32.
    np.testing.assert_allclose(weights.detach(), [expected], rtol=0, atol=2e-7)


def test_softmax_of_rows_on_paper():
    rows = torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]])
    torch.testing.assert_close(softmax(rows), torch.tensor([[0.5, 0.5], [0.0, 0.0]]))


def test_every_name_is_on_paper():
    made = {
        "softmax": Softmax,
        "uniform": Uniform,
        "gaussian": Gaussian,
        "sigmoid": Sigmoid,
        "softplus": Softplus,
        "softpick": Softpick,
        "sparse_softmax": SparseSoftmax,
        "sparsemax": Entmax,
        "entmax": Entmax,
        "preconditioned": Preconditioned,
        "triangular": Triangular,
    }
    assert {name: type(make_weighting(name)) for name in WEIGHTINGS} == made
    assert make_weighting("sparsemax").alpha == 2
    assert 1 < make_weighting("entmax").alpha < 2
    assert make_weighting("entmax").learn_alpha


@EACH
def test_a_weighting_may_do_without_a_temperature(name):
    """As in the papers: nothing is learned, and nothing divides the similarities."""
    make = WEIGHTINGS[name]
    z, options = rows(12, dtype=torch.float32), {"n_neighbors": 5 if name == "uniform" else None}
    without = name in ("uniform", "triangular")  # no temperature changes their weights
    fixed, learning = make() if without else make(learn_temperature=False), make()
    plain = NONAHead("l2", weighting=learning, **options)
    head = NONAHead("l2", weighting=fixed, learn_temperature=True, **options)
    assert head.temperature == 1
    assert head.state_dict().keys() == plain.state_dict().keys()
    expected = plain.neighbor_weights(z[:2], z)
    torch.testing.assert_close(head.neighbor_weights(z[:2], z), expected, rtol=0, atol=0)
    if not without:
        assert "learn_temperature=False" in repr(head.weighting)
        both = NONAHead("l2", weighting=learning, learn_temperature=True, **options)
        assert "log_temperature" in both.state_dict()
        assert "log_temperature" not in head.state_dict()
        assert not make(learn_temperature=np.bool_(False)).learn_temperature


def test_without_a_temperature_there_is_no_nugget():
    head = NONAHead("log_l2", weighting=Softmax(learn_temperature=False), learn_temperature=True)
    assert list(head.parameters()) == []
    head.initialize(rows(20))  # of which nothing is left to set
    assert repr(head.weighting) == "Softmax(learn_temperature=False)"


# -- what all of them do -----------------------------------------------------------------------

DISTANCES = st.lists(
    st.sampled_from([0.0, 1e-3, 0.5, 0.6, 1.0, 1.0, 3.0, 50.0, 1e4]), min_size=1, max_size=12
)


@EACH
@given(
    distances=DISTANCES,
    log_measures=st.lists(
        st.sampled_from([0.0, 0.0, math.log(2), 5.0, -20.0, -300.0]), min_size=12, max_size=12
    ),
    excluded=st.lists(st.booleans(), min_size=12, max_size=12),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_weights_are_weights(name, distances, log_measures, excluded, dtype):
    n = len(distances)
    excluded = torch.tensor([excluded[:n], [False] * n, [True] * n])
    weights = head_of(name).neighbor_weights(
        torch.zeros(3, 1, dtype=dtype),
        torch.tensor(distances, dtype=dtype)[:, None],
        excluded,
        torch.tensor(log_measures[:n], dtype=dtype),
    )
    assert weights.dtype == dtype
    assert (weights >= 0).all()
    assert (weights[excluded] == 0).all()
    has_neighbors = (~excluded).any(dim=1)
    torch.testing.assert_close(weights.sum(dim=1), has_neighbors.to(dtype), rtol=0, atol=1e-5)
    assert (weights[~has_neighbors] == 0).all()


@pytest.mark.parametrize("name", [name for name in WEIGHTINGS if name != "preconditioned"])
@given(distances=DISTANCES)
def test_nearer_never_weighs_less(name, distances):
    """But preconditioned, where rows share a weight with those that they are near to."""
    distances = torch.tensor(distances).sort().values
    weights = head_of(name).neighbor_weights(torch.zeros(1, 1), distances[:, None])
    assert (weights.diff() <= 1e-6).all()


@EACH
@pytest.mark.parametrize("place", [0.0, 1.0, 100.0, 1e10, 1e25])
def test_an_only_neighbour_has_it_all(name, place):
    neighbors, others = torch.full((1, 2), place), torch.full((3, 2), 2 * place)
    head = head_of(name)
    assert head.neighbor_weights(torch.zeros(1, 2), neighbors).tolist() == [[1.0]]
    excluded = torch.tensor([[False, True, True, True]])
    weights = head.neighbor_weights(torch.zeros(1, 2), torch.cat([neighbors, others]), excluded)
    assert weights.tolist() == [[1.0, 0.0, 0.0, 0.0]]


@EACH
def test_all_excluded_is_no_weight_and_no_gradient(name):
    query, neighbors = rows(4).requires_grad_(), rows(9, seed=1)
    head = head_of(name, learn_temperature=True).double()
    excluded = torch.zeros(4, 9, dtype=torch.bool)
    excluded[1] = True
    weights = head.neighbor_weights(query, neighbors, excluded)
    assert (weights[1] == 0).all()
    if name == "uniform":
        assert not weights.requires_grad
        return
    gradients = torch.autograd.grad((weights @ rows(9)).sum(), [query, *head.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][1] == 0).all()


@EACH
def test_an_exclusion_is_a_bank_without_the_row(name):
    query, neighbors = rows(6), rows(12, seed=1)
    head, prior = head_of(name).double(), rows(12, seed=2)[:, 0]
    itself = torch.zeros(6, 12, dtype=torch.bool)
    itself[:, [2, 5, 7]] = True
    kept = ~itself[0]
    with torch.no_grad():
        ours = head.neighbor_weights(query, neighbors, itself, prior)
        theirs = head.neighbor_weights(query, neighbors[kept], None, prior[kept])
    torch.testing.assert_close(ours[:, kept], theirs)
    assert (ours[:, ~kept] == 0).all()


@pytest.mark.parametrize("name", [name for name in WEIGHTINGS if name not in OF_K])
def test_a_measure_of_2_is_the_row_twice(name):
    """Those of k rows count them, as k-NN does, whatever they weigh."""
    query, neighbors = rows(6), rows(12, seed=1)
    counts = torch.tensor([1, 2, 1, 3, 1, 1, 1, 2, 1, 1, 1, 1])
    head = head_of(name).double()
    with torch.no_grad():
        heavy = head.neighbor_weights(query, neighbors, log_prior=counts.double().log())
        repeated = head.neighbor_weights(query, neighbors.repeat_interleave(counts, dim=0))
    which = torch.arange(12).repeat_interleave(counts).expand(6, -1)
    torch.testing.assert_close(heavy, torch.zeros_like(heavy).scatter_add(1, which, repeated))


@EACH
def test_equally_near_ones_share(name):
    """Sparse softmax takes the first rows of them."""
    axes = torch.cat([torch.eye(3), -torch.eye(3)])  # no two lie otherwise than another two
    weights = head_of(name).neighbor_weights(torch.zeros(1, 3), axes)[0]
    expected = torch.full((6,), 1 / 6)
    if name == "sparse_softmax":
        expected = torch.tensor([1 / 4, 1 / 4, 1 / 4, 1 / 4, 0, 0])
    torch.testing.assert_close(weights, expected)


@EACH
def test_gradients_match_finite_differences(name):
    query, neighbors, prior = rows(4), rows(7, seed=1), rows(7, seed=2)[:, 0] / 2
    head = head_of(name, learn_temperature=True).double()
    if name == "uniform":  # nothing that could be learned
        assert not list(head.parameters())
        return
    excluded = torch.rand(4, 7, generator=torch.Generator().manual_seed(3)) < 0.2
    inputs = [x.requires_grad_() for x in (query, neighbors, prior)] + list(head.parameters())
    assert gradcheck(
        lambda query, neighbors, prior, *_: head.neighbor_weights(
            query, neighbors, excluded, prior
        ),
        inputs,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("sigmoid", "bias"),
        ("softplus", "bias"),
        ("softplus", "log_power"),
        ("softpick", "threshold"),
        ("entmax", "logit_alpha"),
        ("preconditioned", "log_ridge"),
    ],
)
def test_what_is_learned_has_a_gradient(name, parameter):
    head = head_of(name).double()
    assert set(dict(head.named_parameters())) >= {f"weighting.{parameter}"}
    weights = head.neighbor_weights(rows(6), rows(12, seed=1))
    (weights @ rows(12)[:, 0]).square().sum().backward()
    assert getattr(head.weighting, parameter).grad.abs() > 1e-6


@EACH
@pytest.mark.parametrize("step", ["s1", "s2"])
@pytest.mark.parametrize("on", ["similarity", "rank"])
def test_a_step_on_top_rejects(name, step, on):
    step = SoftStep(step, on=on)
    head = head_of(name, step=step)
    query, neighbors = rows(5, dtype=torch.float32), rows(15, seed=1, dtype=torch.float32)
    with torch.no_grad():
        weights = head.neighbor_weights(query, neighbors)
        rejected = step(l2(query, neighbors), query, None) == -math.inf
    assert rejected.any()
    assert (weights[rejected] == 0).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(5))


@EACH
def test_a_step_is_a_measure(name):
    """What a row half kept weighs is what it weighs with half a measure."""
    step = SoftStep("s1")
    query, neighbors = rows(5), rows(15, seed=1)
    log_step = step(l2(query, neighbors), query, None)
    with torch.no_grad():
        ours = head_of(name, step=step).neighbor_weights(query, neighbors)
        for i in range(5):
            kept = log_step[i] > -math.inf
            theirs = head_of(name).neighbor_weights(
                query[i : i + 1], neighbors[kept], log_prior=log_step[i, kept]
            )
            torch.testing.assert_close(ours[i : i + 1, kept], theirs)


# -- what is known of some ---------------------------------------------------------------------


@pytest.mark.parametrize("made", [Sigmoid(), learned(Softplus(), log_power=0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_from_all_rows_they_are_softmax(made, dtype):
    s = -rows(8, dtype=dtype).abs()
    for far in (30, 1e3):
        torch.testing.assert_close(
            made.to(dtype).weigh(s - far), softmax(s - far), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_near_all_rows_sigmoid_is_uniform_and_softplus_linear(dtype):
    s = 100 + rows(8, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(
            learned(Sigmoid(), bias=0).weigh(s), torch.full_like(s, 1 / 3), rtol=1e-5, atol=0
        )
        torch.testing.assert_close(
            learned(Softplus(), bias=0, log_power=0).weigh(s), s / s.sum(dim=1, keepdim=True)
        )


def test_softpick_falls_back_to_the_nearest():
    made = learned(Softpick(), threshold=-1)
    s = torch.tensor([[-7.0, -9.0, -7.0], [-7.0, -7.0 - 1.01 * elementwise.LEAST_LEAD, -8.0]])
    assert made.weigh(s).tolist() == [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]
    nearer = torch.tensor([[-7.0, -7.0 - elementwise.LEAST_LEAD / 2, -8.0]])
    near, also_near, far = made.weigh(nearer)[0].tolist()
    assert near > also_near > 0 == far
    lost = torch.tensor([[-0.2, -1.0, -2.0]])  # of those within, the nearest are never alone
    assert (made.weigh(lost)[0, 0], made.weigh(lost)[0, 2]) == (1.0, 0.0)


def test_softpick_ends_a_tenth_below_a_nearest_that_is_beyond():
    made, s = learned(Softpick(), threshold=-1), torch.tensor([[-7.0, -7.05, -7.15]])
    near, also_near = 1 - np.exp(-0.1), np.exp(-0.05) - np.exp(-0.1)
    expected = torch.tensor([[near, also_near, 0.0]]) / (near + also_near)
    torch.testing.assert_close(made.weigh(s).detach(), expected.float(), rtol=1e-5, atol=0)


def test_softpick_does_not_jump_where_the_threshold_passes_the_nearest():
    made = learned(Softpick(), threshold=-1)
    places = torch.linspace(-1.5, -0.5, 1001)[:, None]
    weights = made.weigh(places + torch.tensor([[0.0, -0.05, -0.3]])).detach()
    assert weights.diff(dim=0).abs().max() < 0.01


@pytest.mark.parametrize("k", [1, 4, 20])
def test_sparse_softmax_is_softmax_of_the_nearest(k):
    query, neighbors = rows(6), rows(12, seed=1)
    sparse = head_of(SparseSoftmax(k)).neighbor_weights(query, neighbors)
    s = l2(query, neighbors)
    kept = s >= s.topk(min(k, 12), dim=1).values[:, -1:]
    expected = s.masked_fill(~kept, -math.inf).softmax(dim=1)
    torch.testing.assert_close(sparse, expected)
    assert ((sparse > 0).sum(dim=1) == min(k, 12)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gaussian_is_a_number_however_far(dtype):
    places = torch.tensor([[1e19], [2e19], [1e25]], dtype=dtype)
    weights = head_of("gaussian").neighbor_weights(torch.zeros(1, 1, dtype=dtype), places)
    torch.testing.assert_close(weights.sum(), torch.ones((), dtype=dtype))


def projected(s):
    """The nearest point of the simplex to each row, by Martins and Astudillo's algorithm 1."""
    ordered = np.sort(s, axis=1)[:, ::-1]
    sums = np.cumsum(ordered, axis=1)
    k = (1 + np.arange(1, s.shape[1] + 1) * ordered > sums).sum(axis=1)
    threshold = (sums[np.arange(len(s)), k - 1] - 1) / k
    return np.maximum(s - threshold[:, None], 0)


@pytest.mark.parametrize("scale", [0.01, 1, 100])
def test_entmax_ends_in_softmax_and_sparsemax(scale):
    s = scale * torch.randn(20, 90, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(Entmax(1.0).weigh(s), s.softmax(dim=1))
    alphas = np.array([1.08, 1.04, 1.02, 1.01])  # the difference is of the order of alpha - 1
    gaps = [(Entmax(alpha).weigh(s) - s.softmax(dim=1)).abs().max() for alpha in alphas]
    assert (np.diff(np.log2(gaps)) < -0.6).all()
    np.testing.assert_allclose(Entmax(2.0).weigh(s), projected(s.numpy()), atol=1e-9)


@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize("scale", [0.003, 1, 30])
@pytest.mark.parametrize("alpha", [1.1, 1.25, 1.5, 1.9, 2.0])
def test_entmax_agrees_with_its_authors_package(alpha, scale, n):
    """Numbers and gradients, also where more than a first look's neighbours count."""
    theirs = pytest.importorskip("entmax")
    s = scale * torch.randn(6, n, generator=torch.Generator().manual_seed(0)).double()
    direction = torch.randn(6, n, generator=torch.Generator().manual_seed(1)).double()
    learns = alpha < 2
    made = Entmax(alpha, learn_alpha=learns).double()
    inputs = [s.requires_grad_(), *made.parameters()]
    functions = [lambda s: theirs.entmax_bisect(s, made.alpha, n_iter=100)]
    if alpha == 1.5:
        functions.append(theirs.entmax15)
    if alpha == 2:
        functions = [theirs.sparsemax]
    weights = made.weigh(s)
    if scale < 0.01 and n == 300:
        assert ((weights > 0).sum(dim=1) > sparse.FIRST_SUPPORT).all()
    ours = torch.autograd.grad((weights * direction).sum(), inputs)
    for function in functions:
        expected = function(s)
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-7)
        known = torch.autograd.grad((expected * direction).sum(), inputs, allow_unused=True)
        for mine, other in zip(ours, known, strict=True):
            if other is not None:  # entmax15 has no alpha
                torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1.01, 1.2, 1.5, 2.0])
@pytest.mark.parametrize("scale", [1e-3, 0.1, 1, 100])
def test_entmax_finds_the_support(monkeypatch, dtype, alpha, scale):
    """A first search of few neighbours goes on until it has found all of the support."""
    s = scale * torch.randn(10, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    log_measure = rows(300, dtype=dtype)[:, 0].expand(10, -1).clone()
    log_measure[:, ::3] = -math.inf
    found = []
    for first in (1, 64, 300):
        monkeypatch.setattr(sparse, "FIRST_SUPPORT", first)
        found.append(Entmax(alpha).weigh(s, log_measure))
    close = {"rtol": 0, "atol": 100 * torch.finfo(dtype).eps}
    for some in found[:2]:
        torch.testing.assert_close(some, found[2], **close)
    assert (found[2][:, ::3] == 0).all()


def test_the_larger_alpha_the_fewer_count():
    s = 2 * rows(20) @ rows(40, seed=1).T
    counts = [(Entmax(alpha).weigh(s) > 0).sum() for alpha in (1.1, 1.3, 1.6, 2.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_learned_alpha_stays_between_softmax_and_sparsemax():
    made = Entmax(1.5, learn_alpha=True)
    assert float(made.alpha.detach()) == pytest.approx(1.5)
    s = rows(5, dtype=torch.float32)
    for logit in (-1e4, 1e4):
        learned(made, logit_alpha=logit)
        weights = made.weigh(s)
        weights.square().sum().backward()
        assert 1 < made.alpha <= 2
        torch.testing.assert_close(weights.sum(dim=1), torch.ones(5))
        assert made.logit_alpha.grad.isfinite()
    torch.testing.assert_close(made.weigh(s), Entmax(2.0).weigh(s))


def test_preconditioned_weights_solve_their_system():
    query, neighbors, measure = rows(6), rows(12, seed=1), rows(12, seed=2)[:, 0].exp()
    k, each_other = l2(query, neighbors).exp().numpy(), l2(neighbors, neighbors).exp().numpy()
    for ridge in (0.01, 1.0, 50.0):
        made = learned(Preconditioned(), log_ridge=math.log(ridge))
        votes = k @ np.linalg.inv(each_other + np.diag(ridge / measure.numpy()))
        votes = votes.clip(min=0)
        weights = head_of(made).neighbor_weights(query, neighbors, log_prior=measure.log())
        expected = votes / votes.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(weights.detach(), expected, rtol=1e-5, atol=1e-8)


def test_preconditioned_is_kriging_where_no_weight_is_cut_off():
    """scikit-learn's Gaussian process, with targets over that of ones."""
    line = torch.linspace(0, 5, 9).double()[:, None]
    query, y = torch.linspace(0.1, 4.9, 20).double()[:, None], rows(9)[:, 0]
    ridge = 0.3
    process = GaussianProcessRegressor(Matern(1.0, nu=0.5), alpha=ridge, optimizer=None)
    means = [process.fit(line, target).predict(query) for target in (y, torch.ones(9))]
    made = learned(Preconditioned(), log_ridge=math.log(ridge))
    weights = head_of(made).neighbor_weights(query, line).detach()
    assert (weights > 0).all()
    np.testing.assert_allclose(weights @ y, means[0] / means[1], rtol=1e-6)


def test_preconditioned_twins_count_about_once():
    made = learned(Preconditioned(), log_ridge=math.log(0.01))
    for copies in (1, 2, 20):
        places = torch.tensor([[1.0], *[[-1.0]] * copies])
        weights = head_of(made).neighbor_weights(torch.zeros(1, 1), places)[0].detach()
        # Softmax has 1/2, 1/3, 1/21.
        assert weights[0] == pytest.approx(0.5, abs=0.01)
        torch.testing.assert_close(weights[1:], weights[1].expand(copies))


def test_preconditioned_with_a_large_ridge_is_softmax():
    query, neighbors = rows(6), rows(12, seed=1)
    made = learned(Preconditioned(), log_ridge=20)
    weights = head_of(made).neighbor_weights(query, neighbors)
    torch.testing.assert_close(weights, l2(query, neighbors).softmax(dim=1))


def test_preconditioned_looks_at_the_nearest_only():
    query, neighbors = rows(6), rows(12, seed=1)
    weights = head_of(Preconditioned(3)).neighbor_weights(query, neighbors)
    nearest = l2(query, neighbors).topk(3, dim=1).indices
    alone = torch.zeros_like(weights)
    for i in range(6):
        some = head_of(Preconditioned(3)).neighbor_weights(query[i : i + 1], neighbors[nearest[i]])
        alone[i, nearest[i]] = some[0]
    torch.testing.assert_close(weights, alone)


@pytest.mark.parametrize("n_neighbors", [1, 2, 3])
def test_preconditioned_admits_all_rows_as_near_as_the_last(n_neighbors):
    """Three rows at a distance of 1, two at 2 and one at 3: equally near ones count as one."""
    places = torch.tensor([[3.0], [-1.0], [1.0], [-2.0], [1.0], [2.0]])
    admitted = places.abs().squeeze() <= n_neighbors
    query = torch.zeros(1, 1)
    weights = head_of(Preconditioned(n_neighbors)).neighbor_weights(query, places)[0]
    alone = head_of(Preconditioned(MANY)).neighbor_weights(query, places[admitted])[0]
    assert torch.equal(weights > 0, admitted)
    torch.testing.assert_close(weights[admitted], alone)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
@EACH
def test_the_temperature_divides_the_similarities(name, temperature):
    query, neighbors = rows(6), rows(12, seed=1)
    head = head_of(name, learn_temperature=True).double()
    if hasattr(head, "log_temperature"):
        head.log_temperature.data.fill_(math.log(temperature))
    else:
        assert name in ("uniform", "triangular")
    with torch.no_grad():
        ours = head.neighbor_weights(query, neighbors)
        theirs = (
            head_of(name).double().neighbor_weights(query / temperature, neighbors / temperature)
        )
    torch.testing.assert_close(ours, theirs)


# -- one's own ---------------------------------------------------------------------------------


def log_student(s):
    return -s.square().log1p()


class Sharpened(Weighting):
    """Row by row, and yet a softmax: its square, normalised."""

    def weigh(self, s, log_measure=None, between=None):
        weights = softmax(s if log_measure is None else s + log_measure / 2).square()
        total = weights.sum(dim=1, keepdim=True)
        return weights / torch.where(total > 0, total, 1.0)


def test_ones_own_on_paper(monkeypatch):
    monkeypatch.setitem(WEIGHTINGS, "student", lambda: Weighting(log_student))
    places = torch.tensor([[1.0], [2.0]])
    for given_as in ("student", Weighting(log_student)):
        # 1/2 and 1/5, over their sum
        weights = head_of(given_as).neighbor_weights(torch.zeros(1, 1), places)
        torch.testing.assert_close(weights, torch.tensor([[5 / 7, 2 / 7]]))
    weights = head_of(Sharpened()).neighbor_weights(torch.zeros(1, 1), places)
    torch.testing.assert_close(weights, (-2 * places.T).softmax(dim=1))
    assert Weighting(log_student).one_by_one
    assert not Sharpened().one_by_one


def test_what_is_given_is_copied():
    """Two heads of one weighting learn each their own."""
    given = Sigmoid()
    heads = [NONAHead(weighting=given) for _ in range(2)]
    learned(heads[0].weighting, bias=3)
    assert float(given.bias.detach()) == float(heads[1].weighting.bias.detach()) != 3


class Odd(Weighting):
    """Ignores which pairs are excluded."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def weigh(self, s, log_measure=None, between=None):
        return self.function(s)


class Standardised(Weighting):
    """Looks at a whole row, of which a single neighbour has no deviation."""

    def weigh(self, s, log_measure=None, between=None):
        apart = s - s.mean(dim=1, keepdim=True)
        x = apart / apart.abs().sum(dim=1, keepdim=True)
        return softmax(x if log_measure is None else x + log_measure)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nearest", r"weighting must be one of \['entmax', .*\], got 'nearest'"),
        (
            Weighting(lambda s: s.sqrt()),
            r"weighting=.* must give weights that are not negative and sum to 1, got \[nan",
        ),
        (Odd(lambda s: -s.softmax(dim=1)), "must give weights that are not negative and sum"),
        (
            Odd(lambda s: s.softmax(dim=1)),
            r"weighting=Odd\(\) must give nothing to neighbours of log_measure=-inf, .* got \[\[0",
        ),
        (Odd(lambda s: s.exp()), r"must give weights .* sum to 1, got \[.*\] of \[-0\.1"),
        (
            Weighting(lambda s: 0.0),
            "of the similarities' type, got float of torch.float32",
        ),
        (Weighting(lambda s: s.double()), r"type, got torch.float64 of torch.float32"),
        (Odd(lambda s: s.softmax(dim=1).double()), r"type, got torch.float64 of torch.float32"),
        (
            Odd(lambda s: s.softmax(dim=1)[:, :2]),
            r"weighting=.* the similarities' shape, got \(2, 2\) of \(2, 4\)",
        ),
        (Weighting(lambda s: s.mean(dim=1)), r"the similarities' shape, got \(2,\) of \(2, 4\)"),
        (Weighting(lambda s: s.log_softmax(dim=1)), "must look at one neighbour at a time"),
        (
            Weighting(lambda s: -(-s).log()),
            r"got \[nan, .* of \[-0\.0, -2\.0, -100",
        ),  # inf of a twin
        (Weighting(lambda s: s.masked_fill(s < -30, math.nan)), r"got \[nan, .* of \[-0\.0, -2"),
        (Standardised(), r"sum to 1, got \[nan\] of \[-1\.0\]"),
    ],
)
def test_what_gives_no_weights_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        NONAHead(weighting=given)


@pytest.mark.parametrize("entry", [lambda: None, lambda s: s, Weighting(lambda s: s)])
def test_what_is_registered_makes_a_weighting(entry, monkeypatch):
    monkeypatch.setitem(WEIGHTINGS, "mine", entry)
    if isinstance(entry, Weighting):  # it is copied
        made = NONAHead(weighting="mine").weighting
        assert isinstance(made, Weighting)
        assert made is not entry
    else:
        with pytest.raises(TypeError, match=r"WEIGHTINGS\['mine'\] must make a Weighting"):
            NONAHead(weighting="mine")


@pytest.mark.parametrize("n_neighbors", ["auto", 5])
def test_equal_weights_alone_are_refused_before_training(n_neighbors, monkeypatch):
    monkeypatch.setattr("inner.estimators.fitting.train_networks", None)
    X = np.random.default_rng(0).standard_normal((30, 2))
    reg = NONARegressor(weighting="uniform", adjust=False, n_neighbors=n_neighbors)
    with pytest.raises(ValueError, match="'uniform' needs adjust=True or softstep, got neither"):
        reg.fit(X, X[:, 0])


def test_weights_without_gradient_are_nothing_to_learn():
    X = np.random.default_rng(0).standard_normal((30, 2))
    flat = Weighting(torch.zeros_like)
    reg = NONARegressor(weighting=flat, adjust=False, n_estimators=1, max_iter=2)
    with pytest.raises(ValueError, match=r"nothing to learn: .* must have a gradient"):
        reg.fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Entmax(0.5), r"alpha must lie between 1 and 2, got 0\.5"),
        (lambda: Entmax(2.5), r"alpha must lie between 1 and 2, got 2\.5"),
        (lambda: Entmax(1.005), r"alpha must be 1, or at least 1\.01, got 1\.005"),
        (lambda: Entmax(1.5, learn_alpha="no"), "learn_alpha must be a bool, got 'no'"),
        (lambda: Entmax(math.nan), "alpha must lie between 1 and 2, got nan"),
        (lambda: Entmax(math.inf), "alpha must lie between 1 and 2, got inf"),
        (lambda: Entmax(True), "alpha must lie between 1 and 2, got True"),
        (lambda: Entmax("1.5"), "alpha must lie between 1 and 2, got '1.5'"),
        (lambda: Entmax(1, learn_alpha=True), "alpha must .* to be learned, got 1"),
        (lambda: Entmax(2.0, learn_alpha=True), r"alpha must .* to be learned, got 2\.0"),
        (
            lambda: Softmax(learn_temperature="no"),
            "learn_temperature must be True or False, got 'no'",
        ),
        (lambda: SparseSoftmax(0), "n_neighbors must be a positive integer, got 0"),
        (lambda: SparseSoftmax(2.5), r"n_neighbors must be a positive integer, got 2\.5"),
        (lambda: SparseSoftmax(True), "n_neighbors must be a positive integer, got True"),
        (lambda: Preconditioned(-1), "n_neighbors must be a positive integer, got -1"),
        (lambda: Weighting(), "function must be callable, got None"),
        (lambda: Weighting("student"), "function must be callable, got 'student'"),
        (
            lambda: NONAHead("cosine", weighting="gaussian"),
            "weighting='gaussian' needs similarity 'l2' or 'l1', a distance, got 'cosine'",
        ),
        (
            lambda: NONAHead("log_l2", weighting=Gaussian()),
            r"weighting=Gaussian\(\) needs similarity .*, got 'log_l2'",
        ),
        (
            lambda: NONAHead(weighting="uniform"),
            "weighting='uniform' needs a step or n_neighbors, got neither",
        ),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("similarity", ["l2", "dot", "cosine"])
def test_preconditioned_is_kriging_whatever_the_similarity(similarity):
    """A neighbour's similarity to itself is 1 in its units, also where a dot product is not."""
    generator = torch.Generator().manual_seed(3)
    query, bank = (torch.randn(n, 2, generator=generator).double() for n in (4, 6))
    head = NONAHead(similarity, weighting=Preconditioned(6)).double()
    to_query = SIMILARITIES[similarity](query, bank).numpy()
    each_other = SIMILARITIES[similarity](bank, bank).numpy()
    own = np.diag(each_other)
    kernel = np.exp(each_other - (own[:, None] + own) / 2)
    votes = np.linalg.solve(kernel + np.eye(6), np.exp(to_query).T).T.clip(0)
    expected = votes / votes.sum(axis=1, keepdims=True)
    with torch.no_grad():
        np.testing.assert_allclose(head.neighbor_weights(query, bank), expected, atol=1e-9)


@pytest.mark.parametrize("alpha", [1.01, 1.02, 1.5, 2.0])
def test_a_query_without_neighbours_has_no_gradient_however_far_all_are(alpha):
    bank = torch.linspace(-1, 1, 20)[:, None] * 1e5
    query = torch.tensor([[-1e5], [5.0]], requires_grad=True)
    excluded = torch.ones(2, 20, dtype=torch.bool)
    NONAHead(weighting=Entmax(alpha)).neighbor_weights(query, bank, excluded).sum().backward()
    assert (query.grad == 0).all()


def test_rows_as_near_as_the_nearest_within_rounding_share_the_weight():
    ends = Weighting(lambda s: torch.where(s > -5, 0.0, -math.inf))
    s = torch.tensor([[-1e6, -1e6 - 0.5, -1e6 - 100], [-6.0, -6.001, -7.0]])
    expected = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(NONAHead(weighting=ends).weighting.weigh(s), expected)


def test_sigmoid_of_large_similarities_is_one():
    weights = Sigmoid().weigh(torch.tensor([[200.0, 150.0, -300.0]]))
    torch.testing.assert_close(weights, torch.tensor([[0.5, 0.5, 0.0]]))


@pytest.mark.parametrize("power", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("top", [5.0, -17.5, -40.0, -59.0, -79.0, -500.0])
def test_softplus_of_far_rows_keeps_its_digits(top, power):
    weighting = Softplus()
    weighting.log_power.data.fill_(math.log(power))
    s = top - torch.tensor([[0.0, 0.5, 3.0, 15.0, 30.0]])
    exact = s.double()
    far = exact < -30  # where log(1 + u) = u to float64, and u may be too small for it
    log_softplus = torch.where(far, exact, exact.clamp_min(-30).exp().log1p().log())
    expected = ((log_softplus - log_softplus[:, :1]) * power).exp().float()
    torch.testing.assert_close(
        weighting.weigh(s).detach(), expected / expected.sum(), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("log_measure", [35.0, 60.0, 300.0])
def test_entmax_of_rows_of_any_measure_weighs_the_nearest_of_the_heavy(alpha, log_measure):
    s = torch.tensor([[5.0, 1.0, 1.0, 0.0]])
    measures = torch.tensor([[-398.0, log_measure, log_measure, log_measure]])
    weights = Entmax(alpha).weigh(s, measures)
    torch.testing.assert_close(weights, torch.tensor([[0.0, 0.5, 0.5, 0.0]]))


# -- triangular ---------------------------------------------------------------------------------


def test_triangular_on_paper():
    """Distances 1, 2, 4 and 5 with k = 4: gaps 4, 3, 1 and 0 to the fourth."""
    s = -torch.tensor([[2.0, 1.0, 9.0, 5.0, 4.0]])
    expected = torch.tensor([[3.0, 4.0, 0.0, 0.0, 1.0]]) / 8
    torch.testing.assert_close(Triangular(4).weigh(s), expected)
    few = Triangular(9).weigh(s[:, :2])  # down to twice the farthest: gaps 2 and 3
    torch.testing.assert_close(few, torch.tensor([[0.4, 0.6]]))


def test_triangular_of_equally_near_rows():
    s = -torch.tensor([[3.0, 3.0, 3.0, 3.0], [0.0, 0.0, 0.0, 7.0]])
    for k in (2, 3):  # of which the last has no weight, as if it were a little farther
        expected = torch.tensor([[1.0, 1.0, 0.0, 0.0]]) / 2 if k == 3 else torch.eye(4)[:1]
        torch.testing.assert_close(Triangular(k).weigh(s[:1]), expected)
        torch.testing.assert_close(Triangular(k).weigh(s[1:]), expected)
    assert Triangular(3).most_nonzero == 2


@given(place=st.floats(0.1, 4.0))
def test_triangular_weights_change_continuously(place):
    """A row that comes to the nearest has no weight yet."""
    z = torch.arange(12.0, dtype=torch.float64)[:, None]
    query = torch.tensor([[place], [place + 1e-6]], dtype=torch.float64)
    before, after = NONAHead("l1", weighting=Triangular(5)).neighbor_weights(query, z)
    assert (after - before).abs().max() < 1e-5


def test_triangular_needs_two_rows():
    with pytest.raises(ValueError, match="n_neighbors must be an integer of at least 2, got 1"):
        Triangular(1)
