import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from inner.inference import Evaluation, Neighbors
from metric_learn import MLKR
from sklearn.neighbors import KNeighborsRegressor
from torch.autograd import gradcheck

from nona_sklearn import NONAHead, SoftStep, neighbor_attention, neighbor_weights
from nona_sklearn.attention import AverageHead
from nona_sklearn.attention.functional import L2Attention
from nona_sklearn.ranking import nearest_first
from nona_sklearn.similarity import DISTANCES, SIMILARITIES, l2
from nona_sklearn.weighting import WEIGHTINGS, SparseSoftmax


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(0)
    query, neighbors = (
        torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (6, 15)
    )
    return query, neighbors, torch.randn(15, generator=generator, dtype=torch.float64)


def test_weights_on_paper():
    e = math.e
    weights = neighbor_weights(torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    np.testing.assert_allclose(weights, [[1 / (1 + e), e / (1 + e)]], rtol=1e-15)


@pytest.mark.parametrize("space", ["d3", "d25"])
@pytest.mark.parametrize("sim", ["l2", "l1", "dot", "cos"])
def test_plain_nona_agrees_with_published_code(reference, space, sim):
    query, neighbors, y = (reference[f"{space}.{name}"] for name in ("query", "neighbors", "y"))
    similarity = SIMILARITIES[sim.replace("cos", "cosine")]
    for z, excluded, form in (
        (query, None, "predict"),
        (neighbors, torch.eye(len(y), dtype=torch.bool), "fit"),
    ):
        ours = neighbor_attention(z, neighbors, y, similarity=similarity, excluded=excluded)
        expected = reference[f"{space}.{sim}.nona.{form}"]
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


def test_linear_nona_is_mlkr_up_to_the_squared_distance():
    """Both its loss and its gradient."""
    rng = np.random.default_rng(0)
    X, y, A = rng.normal(size=(30, 4)), rng.normal(size=30), rng.normal(size=(2, 4))
    mlkr = MLKR()
    mlkr.n_iter_ = 0
    loss, gradient = mlkr._loss(A.ravel(), X, y)

    A = torch.tensor(A, requires_grad=True)
    z, y = torch.tensor(X) @ A.T, torch.tensor(y)
    itself = torch.eye(30, dtype=torch.bool)
    predicted = neighbor_attention(
        z, z, y, similarity=lambda a, b: -(l2(a, b) ** 2), excluded=itself
    )
    ours = (predicted - y).square().sum()
    ours.backward()
    np.testing.assert_allclose(ours.item(), loss, rtol=1e-12)
    np.testing.assert_allclose(A.grad.ravel(), gradient, rtol=1e-9)


def test_head_without_step_is_plain_nona(problem):
    torch.testing.assert_close(NONAHead()(*problem), neighbor_attention(*problem))


@pytest.mark.parametrize("step", [None, SoftStep("s1"), SoftStep("s2")])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_rows_of_weights_sum_to_1(problem, similarity, step):
    query, neighbors, _ = problem
    weights = NONAHead(similarity, step).neighbor_weights(query, neighbors)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(6, dtype=torch.float64))


def test_excluding_is_removing(problem):
    query, neighbors, y = problem
    excluded = torch.zeros(6, 15, dtype=torch.bool)
    excluded[:, [2, 7]] = True
    kept = ~excluded[0]
    for step in (None, SoftStep("s1"), SoftStep("s2"), SoftStep("s1", on="rank")):
        head = NONAHead(step=step, learn_temperature=True)
        torch.testing.assert_close(
            head(query, neighbors, y, excluded), head(query, neighbors[kept], y[kept])
        )


def test_one_admitted_neighbour_copies_its_target(problem):
    query, neighbors, y = problem
    only = torch.arange(6)
    excluded = torch.arange(15)[None] != only[:, None]
    for step in (None, SoftStep("s1"), SoftStep("s2")):
        assert torch.equal(NONAHead(step=step)(query, neighbors, y, excluded), y[only])


def test_no_admitted_neighbour_gives_zero_and_no_gradient(problem):
    query, neighbors, y = problem
    excluded = torch.zeros(6, 15, dtype=torch.bool)
    excluded[3] = True
    query.requires_grad_()
    for step in (None, SoftStep("s1"), SoftStep("s2")):
        prediction = NONAHead(step=step)(query, neighbors, y, excluded)
        (gradient,) = torch.autograd.grad(prediction.sum(), query)
        assert prediction[3] == 0
        assert gradient.isfinite().all()
        assert (gradient[3] == 0).all()


def test_multi_output_is_one_output_after_another(problem):
    query, neighbors, y = problem
    both = NONAHead()(query, neighbors, torch.stack([y, -2 * y], dim=1))
    single = NONAHead()(query, neighbors, y)
    torch.testing.assert_close(both, torch.stack([single, -2 * single], dim=1))


@pytest.mark.parametrize("k", [1, 4, 15])
def test_uniform_weights_of_the_nearest_are_k_nn(problem, k):
    query, neighbors, y = problem
    knn = KNeighborsRegressor(k).fit(neighbors, y)
    ours = NONAHead(weighting="uniform", n_neighbors=k)(query, neighbors, y)
    np.testing.assert_allclose(ours, knn.predict(query), rtol=1e-12)


@pytest.mark.parametrize("k", [4, 15])
def test_log_l2_of_the_nearest_is_k_nn_weighted_by_inverse_distance(problem, k):
    query, neighbors, y = problem
    neighbors = torch.cat([neighbors[:-1], query[:1]])  # one query has a twin
    knn = KNeighborsRegressor(k, weights="distance").fit(neighbors, y)
    ours = NONAHead("log_l2", n_neighbors=k)(query, neighbors, y)
    np.testing.assert_allclose(ours, knn.predict(query), rtol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_a_learned_logarithm_levels_off_at_its_nugget(problem, training):
    query, neighbors, y = problem
    neighbors = torch.cat([neighbors[:-2], query[:1], query[:1]])  # two twins of one query
    head = NONAHead("log_l2", learn_temperature=True).double().train(training)
    with torch.no_grad():
        head.log_nugget.fill_(math.log(0.7))
        head.log_temperature.fill_(math.log(0.4))
    query.requires_grad_()
    squares = torch.cdist(query, neighbors).square()
    expected = (squares + 0.7**2) ** (-1 / (2 * 0.4))
    weights = head.neighbor_weights(query, neighbors)
    torch.testing.assert_close(weights, expected / expected.sum(dim=1, keepdim=True))
    assert weights[0, -1] == weights[0, -2] < 0.5

    prediction = Evaluation(head, Neighbors(neighbors, y), query.detach()).mean()
    # The bank's embeddings and weights are float32.
    torch.testing.assert_close(prediction, weights.detach() @ y, rtol=0, atol=1e-6 * y.abs().max())
    gradients = torch.autograd.grad((weights @ y).sum(), [query, *head.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("n", [5, 20, 300])
def test_cap_and_ranks_agree_on_ties(n):
    """Else the step keeps one of the equally near, and the cap another: no row is left."""
    head = NONAHead(step=SoftStep("s1", on="rank"), weighting="uniform", n_neighbors=1)
    head.step.start_at(0.995)
    weights = head.neighbor_weights(torch.zeros(1, 2), torch.zeros(n, 2))
    assert weights.sum() == 1


WEIGHTING_OF_THE_NEAREST = st.sampled_from(sorted(WEIGHTINGS)).map(
    lambda name: WEIGHTINGS[name]()
) | st.builds(SparseSoftmax, st.integers(1, 30))
STEPS_ON_RANKS = st.none() | st.builds(
    SoftStep,
    st.sampled_from(["s1", "s2"]),
    st.sampled_from(["global", "pointwise"]),
    st.just("rank"),
    st.just(3),
)


@given(
    seed=st.integers(0, 2**32 - 1),
    similarity=st.sampled_from(["l2", "l1"]),
    weighting=WEIGHTING_OF_THE_NEAREST,
    step=STEPS_ON_RANKS,
    start=st.floats(0.01, 0.99),
    n_neighbors=st.none() | st.integers(1, 30),
    n_rows=st.integers(1, 25),
    n_places=st.integers(1, 9),
    prior=st.booleans(),
    share_excluded=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
)
def test_weights_of_the_nearest_are_those_among_all(
    seed, similarity, weighting, step, start, n_neighbors, n_rows, n_places, prior, share_excluded
):
    """With ties, and queries with fewer neighbours than can have weight, or none."""
    assume(weighting.depends_on_similarity or step or n_neighbors)
    generator = torch.Generator().manual_seed(seed)
    if step is not None:
        step.start_at(start)
    head = NONAHead(similarity, step, weighting, True, n_neighbors).double()
    most = head.most_weighed(n_rows)
    assume(most is not None)
    places = torch.randn(n_places, 3, generator=generator, dtype=torch.float64)
    query = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    neighbors = places[torch.randint(n_places, (n_rows,), generator=generator)]
    excluded = torch.rand(6, n_rows, generator=generator) < share_excluded
    log_prior = torch.randn(n_rows, generator=generator).double() if prior else None

    similarities = head.compare(query, neighbors)
    weights = head.weigh(similarities, query, neighbors, excluded, log_prior)
    nearest = nearest_first(similarities, excluded, most)
    ours = head.weigh(
        similarities.gather(1, nearest),
        query,
        neighbors[nearest],
        excluded.gather(1, nearest),
        None if log_prior is None else log_prior[nearest],
        n_admitted=(~excluded).sum(dim=1, keepdim=True),
    )
    torch.testing.assert_close(torch.zeros_like(weights).scatter(1, nearest, ours), weights)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    similarity=st.sampled_from(sorted(SIMILARITIES)),
    weighting=st.sampled_from(sorted(WEIGHTINGS)),
    step=STEPS_ON_RANKS,
    n_neighbors=st.none() | st.integers(1, 20),
    n_adjusted=st.sampled_from([0, 2]),
    prior=st.booleans(),
    share_excluded=st.sampled_from([0.0, 0.3, 0.9]),
    as_pairs=st.booleans(),
)
def test_training_on_the_nearest_has_the_gradient_of_the_definition(
    seed, similarity, weighting, step, n_neighbors, n_adjusted, prior, share_excluded, as_pairs
):
    """Also of queries with fewer neighbours than can have weight, or with none."""
    assume(WEIGHTINGS[weighting]().depends_on_similarity or step or n_neighbors)
    assume(not WEIGHTINGS[weighting]().of_distances or similarity in DISTANCES)
    generator = torch.Generator().manual_seed(seed)
    head = NONAHead(similarity, step, weighting, True, n_neighbors, n_adjusted).double()
    assume(head.most_weighed(15) is not None)
    query, neighbors, y = (
        torch.randn(n, d, generator=generator, dtype=torch.float64, requires_grad=True)
        for n, d in ((6, 3 + n_adjusted), (15, 3 + n_adjusted), (15, 2))
    )
    excluded = torch.rand(6, 15, generator=generator) < share_excluded
    excluded[2] = True
    log_prior = torch.randn(15, generator=generator).double() if prior else None
    scale = torch.tensor([1.0, 2.0], dtype=torch.float64)

    given = excluded.nonzero(as_tuple=True) if as_pairs else excluded
    ours = head(query, neighbors, y, given, log_prior, scale)

    weights = head.neighbor_weights(query, neighbors, excluded, log_prior)
    expected = weights @ y
    if n_adjusted:
        own, theirs = (scale * head.adjustments(z) for z in (query, neighbors))
        expected = expected + weights.sum(dim=1, keepdim=True) * own - weights @ theirs
    inputs = query, neighbors, y, *head.parameters()
    direction = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(
        *(
            torch.autograd.grad((each * direction).sum(), inputs, materialize_grads=True)
            for each in (ours, expected)
        )
    )


@pytest.mark.parametrize("similarity", ["l2", "log_l2"])
def test_training_on_the_nearest_has_finite_gradients_of_twins(problem, similarity):
    query, neighbors, y = problem
    neighbors = torch.cat([neighbors, query[:1], query[:1]]).requires_grad_()
    head = NONAHead(similarity, learn_temperature=True, n_neighbors=3).double()
    prediction = head(query, neighbors, torch.cat([y, y[:2]]))
    inputs = neighbors, *head.parameters()
    assert all(each.isfinite().all() for each in torch.autograd.grad(prediction.sum(), inputs))


def test_the_nearest_in_training_are_found_far_from_the_origin():
    """There, squared lengths in float32 are rounded by more than distances differ."""
    generator = torch.Generator().manual_seed(0)
    query, neighbors = (1e4 + torch.randn(n, 3, generator=generator) for n in (20, 100))
    y = torch.arange(100.0)
    nearest = torch.cdist(query.double(), neighbors.double()).argmin(dim=1)
    assert NONAHead(n_neighbors=1)(query, neighbors, y).tolist() == y[nearest].tolist()


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, None),
        ({"n_neighbors": 5}, 5),
        ({"n_neighbors": 500}, 100),  # all
        ({"weighting": "sparse_softmax"}, 16),
        ({"weighting": "sparse_softmax", "n_neighbors": 20}, 16),
        ({"weighting": "preconditioned"}, None),  # equally near ones count as one
        ({"weighting": "preconditioned", "n_neighbors": 20}, 20),
        ({"weighting": "sparsemax"}, None),  # no number for all queries
        ({"step": SoftStep("s2", on="rank"), "n_neighbors": 5}, 5),
        ({"step": SoftStep("s1", on="rank")}, 52),  # above a = 0.5, and two for rounding
        ({"step": SoftStep("s1"), "n_neighbors": 5}, None),  # scaled by the farthest
    ],
)
def test_most_weighed_is_the_least_bound(options, most):
    assert NONAHead(**options).most_weighed(100) == most


def test_uniform_weights_are_the_step_normalised(problem):
    query, neighbors, _ = problem
    step = SoftStep("s1")
    values = step(l2(query, neighbors)).exp()
    weights = NONAHead(step=step, weighting="uniform").neighbor_weights(query, neighbors)
    torch.testing.assert_close(weights, values / values.sum(dim=1, keepdim=True))


def test_temperature_flattens(problem):
    query, neighbors, _ = problem
    head = NONAHead(learn_temperature=True)
    heaviest = []
    for log_temperature in (-3.0, 0.0, 3.0):
        head.log_temperature.data.fill_(log_temperature)
        heaviest.append(head.neighbor_weights(query, neighbors).max(dim=1).values)
    assert (heaviest[0] > heaviest[1]).all()
    assert (heaviest[1] > heaviest[2]).all()


@pytest.mark.parametrize("weighting", ["softmax", "uniform"])
@pytest.mark.parametrize("params", ["global", "pointwise"])
@pytest.mark.parametrize("step", ["s1", "s2"])
def test_gradients_match_finite_differences(problem, step, params, weighting):
    query, neighbors, y = problem
    head = NONAHead(
        step=SoftStep(step, params, embedding_dim=3), weighting=weighting, learn_temperature=True
    ).double()
    query.requires_grad_()
    assert gradcheck(
        lambda query, *_: head(query, neighbors, y), (query, *head.parameters()), atol=1e-4
    )


@given(
    entries=st.lists(st.sampled_from([0.0, 1.0, 1e-20, 1e20, -1e20]), min_size=4, max_size=12),
    step=st.sampled_from([None, "s1", "s2"]),
    params=st.sampled_from(["global", "pointwise"]),
    similarity=st.sampled_from(sorted(SIMILARITIES)),
    weighting=st.sampled_from(sorted(WEIGHTINGS)),
)
def test_leave_one_out_is_finite_on_any_table(entries, step, params, similarity, weighting):
    """Ties, duplicates, constant columns, two rows, values of 1e20 and 1e-20."""
    z = torch.tensor(entries[: len(entries) // 2 * 2], dtype=torch.float64).reshape(-1, 2)
    z.requires_grad_()
    step = step and SoftStep(step, params, embedding_dim=2).double()
    if WEIGHTINGS[weighting]().of_distances and similarity not in DISTANCES:
        similarity = "l2"
    if weighting == "uniform" and step is None:
        weighting = "softmax"
    head = NONAHead(similarity, step, weighting, learn_temperature=True)
    y = torch.arange(1.0, len(z) + 1, dtype=torch.float64)
    prediction = head(z, z, y, torch.eye(len(z), dtype=torch.bool))
    prediction.sum().backward()
    assert (prediction > 0.999).all()
    assert (prediction < len(z) + 0.001).all()
    for tensor in (z, *head.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"similarity": "l3"}, r"similarity must be one of \['cosine', .*\], got 'l3'"),
        ({"weighting": "even"}, r"weighting must be one of .*, got 'even'"),
        ({"n_neighbors": 0}, "n_neighbors must be a positive integer, got 0"),
        ({"n_neighbors": 1.5}, r"n_neighbors must be a positive integer, got 1\.5"),
        ({"n_neighbors": "3"}, "n_neighbors must be a positive integer, got .3."),
        ({"weighting": None}, "weighting must be one of .*, got None"),
        ({"weighting": SparseSoftmax}, "weighting must be one of .*, got <class"),
        ({"weighting": "uniform"}, "weighting='uniform' needs a step or n_neighbors, got neither"),
        ({"learn_temperature": "no"}, "learn_temperature must be True or False, got 'no'"),
        ({"step": "s1"}, "step must be a SoftStep or None, got 's1'"),
        ({"n_adjusted": 1.5}, r"n_adjusted must be an integer of at least 0, got 1\.5"),
    ],
)
def test_bad_parameters(kwargs, message):
    with pytest.raises(ValueError, match=message):
        NONAHead(**kwargs)


def test_average_head_averages_predictions_on_slices():
    query, neighbors, targets = torch.randn(3, 4), torch.randn(6, 4), torch.randn(6)
    excluded = torch.zeros(3, 6, dtype=torch.bool)
    excluded[0, 2] = True
    heads = [NONAHead("l2", SoftStep("s1")), NONAHead("cosine")]
    one = heads[0](query[:, :2], neighbors[:, :2], targets, excluded)
    other = heads[1](query[:, 2:], neighbors[:, 2:], targets, excluded)
    head = AverageHead(heads)
    torch.testing.assert_close(head(query, neighbors, targets, excluded), (one + other) / 2)
    assert head.neighbor_weights(query, neighbors, excluded)[0, 2] == 0


def test_an_average_of_heads_has_the_mean_of_their_weights_with_the_prior(problem):
    query, neighbors, _ = problem
    log_prior = torch.linspace(-2, 1, 15, dtype=torch.float64)
    head = AverageHead([NONAHead("l2"), NONAHead("cosine")])
    twice = query.repeat(1, 2), neighbors.repeat(1, 2)  # both heads are in the same space
    one, other = (
        (SIMILARITIES[name](query, neighbors) + log_prior).softmax(dim=1)
        for name in ("l2", "cosine")
    )
    weights = head.neighbor_weights(*twice, log_prior=log_prior)
    torch.testing.assert_close(weights, (one + other) / 2)


def test_training_rounds_distances_and_evaluation_does_not():
    head = NONAHead()
    neighbors, targets = 100 + torch.randn(50, 8), torch.randn(50)
    exact = head.eval()(neighbors, neighbors, targets)
    rounded = head.train()(neighbors, neighbors, targets)
    torch.testing.assert_close(rounded, exact, rtol=0, atol=5e-3)
    double = neighbors.double()
    expected = neighbor_attention(double, double, targets.double())
    torch.testing.assert_close(exact.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_outputs", [None, 2])
@pytest.mark.parametrize("some_excluded", [False, True])
def test_l2_attention_is_neighbor_attention(problem, n_outputs, some_excluded):
    """Predictions and every gradient, with a twin of a query and a query all by itself."""
    query, neighbors, y = problem
    neighbors = torch.cat([neighbors, query[:1]])
    y = torch.cat([y, torch.ones(1)])
    targets = y if n_outputs is None else torch.stack([y, -(y**2)], dim=1)
    excluded = None
    if some_excluded:
        excluded = torch.rand(6, 16, generator=torch.Generator().manual_seed(1)) < 0.5
        excluded[2] = True
    temperature = torch.tensor(0.7, dtype=torch.float64)
    inputs = [tensor.clone().requires_grad_() for tensor in (query, neighbors, temperature)]

    def gradients(prediction):
        return torch.autograd.grad((prediction**3).sum(), inputs)

    fast = L2Attention.apply(*inputs[:2], targets, inputs[2], excluded)
    plain = neighbor_attention(
        *inputs[:2], targets, similarity=lambda q, n: l2(q, n) / inputs[2], excluded=excluded
    )
    torch.testing.assert_close(fast, plain)
    for ours, theirs in zip(gradients(fast), gradients(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [None, SoftStep("s1")])
@pytest.mark.parametrize("n_adjusted", [0, 1])
@pytest.mark.parametrize("training", [False, True])
def test_places_of_excluded_pairs_are_as_good_as_a_mask(problem, training, n_adjusted, step):
    query, neighbors, y = problem
    head = NONAHead(step=step, learn_temperature=True, n_adjusted=n_adjusted).double()
    head.train(training)
    if n_adjusted:
        head.trust_radius.fill_(0.5)
    mask = torch.rand(6, 15, generator=torch.Generator().manual_seed(1)) < 0.2
    mask[2] = True  # no neighbours
    results = []
    for excluded in (mask, mask.nonzero(as_tuple=True)):
        z = query.clone().requires_grad_()
        mean = head(z, neighbors, y, excluded)
        results.append([mean, *torch.autograd.grad(mean.square().sum(), z)])
    for by_mask, by_place in zip(*results, strict=True):
        torch.testing.assert_close(by_place, by_mask, rtol=0, atol=0)
    assert results[0][0][2] == 0


def test_targets_keep_their_gradient_in_training(problem):
    query, neighbors, y = problem
    NONAHead()(query, neighbors, y.requires_grad_()).sum().backward()
    weights = NONAHead().neighbor_weights(query, neighbors)
    torch.testing.assert_close(y.grad, weights.sum(dim=0))
