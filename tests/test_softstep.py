import copy
import re

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from inner.network import from_data, to_data
from scipy.stats import rankdata
from sklearn.base import clone
from torch.autograd import gradcheck

from nona_sklearn import SoftStep, neighbor_weights
from nona_sklearn.similarity import SIMILARITIES
from nona_sklearn.softstep import (
    STEPS,
    log_s1,
    log_s2,
    rank_similarity,
    scale_similarity,
)

INF = float("inf")
GRID = torch.linspace(0, 1, 101, dtype=torch.float64)[None]


def scalar(value):
    return torch.tensor(value, dtype=torch.float64)


# -- scaling -----------------------------------------------------------------------------


def test_scale_on_paper():
    similarity = torch.tensor([[-4.0, 0.0, -1.0]])
    assert scale_similarity(similarity).tolist() == [[0.0, 1.0, 0.75]]


def test_scale_looks_at_admitted_neighbours_only():
    similarity = torch.tensor([[9.0, -4.0, 0.0, -1.0, -99.0]])
    excluded = torch.tensor([[True, False, False, False, True]])
    assert scale_similarity(similarity, excluded).tolist() == [[0.0, 0.0, 1.0, 0.75, 0.0]]
    assert rank_similarity(similarity, excluded).tolist() == [[0.0, 0.0, 1.0, 0.5, 0.0]]


@pytest.mark.parametrize("scale", [scale_similarity, rank_similarity])
def test_scale_of_a_single_neighbour_and_of_none(scale):
    similarity = torch.tensor([[3.0, 1.0], [3.0, 1.0]])
    excluded = torch.tensor([[True, False], [True, True]])
    assert scale(similarity, excluded).tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert scale(torch.tensor([[3.0]])).tolist() == [[1.0]]


def test_equal_similarities_are_all_nearest():
    assert scale_similarity(torch.full((1, 4), -2.5)).tolist() == [[1.0] * 4]


@given(seed=st.integers(0, 2**32 - 1), n_values=st.integers(1, 1000))
def test_ranks_agree_with_scipy(seed, n_values):
    """Equally near neighbours share their best place."""
    generator = torch.Generator().manual_seed(seed)
    similarity = torch.randint(0, n_values, (5, 20), generator=generator).double()
    expected = (rankdata(similarity, axis=1, method="max") - 1) / 19
    torch.testing.assert_close(rank_similarity(similarity), torch.from_numpy(expected))


@given(seed=st.integers(0, 2**32 - 1), a=st.floats(0.01, 0.98), step=st.sampled_from(["s1", "s2"]))
def test_the_order_of_the_neighbours_does_not_matter(seed, a, step):
    """But for which of some equally near ones S1 keeps."""
    generator = torch.Generator().manual_seed(seed)
    similarity = torch.randint(0, 9, (5, 60), generator=generator).double()
    order = torch.randperm(60, generator=generator)
    module = SoftStep(step, on="rank").double()
    module.start_at(a)
    ours, expected = module(similarity[:, order]).exp(), module(similarity).exp()
    for value in range(9):
        found, wanted = ours * (similarity[:, order] == value), expected * (similarity == value)
        torch.testing.assert_close(found.sort(dim=1).values, wanted.sort(dim=1).values)


@pytest.mark.parametrize("n_excluded", [0, 7])
def test_of_equally_near_neighbours_s1_keeps_the_first_rows(n_excluded):
    step = SoftStep("s1", on="rank").double()
    step.start_at(0.9)
    excluded = (torch.arange(60) < n_excluded)[None]
    kept = step(torch.zeros(1, 60), excluded=excluded)[0] == 0
    n_kept = int(kept.sum())
    assert kept.nonzero()[:, 0].tolist() == list(range(n_excluded, n_excluded + n_kept))
    x = torch.linspace(1, 0, 60 - n_excluded, dtype=torch.float64)
    assert n_kept == (x > step.thresholds()[0]).sum()


@given(n=st.integers(1, 3000), logits=st.lists(st.floats(-12, 12), min_size=3, max_size=3))
def test_most_kept_bounds_the_neighbours_that_s1_keeps(n, logits):
    step = SoftStep("s1", on="rank")
    with torch.no_grad():
        step.logits.copy_(torch.tensor(logits))
    n_kept = step(torch.rand(2, n)).isfinite().sum(dim=1)
    assert (n_kept <= step.most_kept(n)).all()
    assert step.most_kept(n) <= n_kept.min() + 2


def test_only_s1_on_ranks_with_global_parameters_keeps_a_number():
    others = [SoftStep("s1"), SoftStep("s2", on="rank"), SoftStep("s1", "pointwise", "rank", 2)]
    assert [step.most_kept(9) for step in others] == [None] * 3


# -- step functions ----------------------------------------------------------------------


def test_s1_on_paper():
    x = torch.tensor([[0.2, 0.3, 0.4, 0.6]], dtype=torch.float64)
    # u = 1/4, t = 1/2: (1/4)² / ((1/4)² + (3/4)²) = 1/10
    step = log_s1(x, scalar(0.2), scalar(0.6), scalar(0.5)).exp()
    torch.testing.assert_close(step, torch.tensor([[0.0, 0.1, 0.5, 1.0]], dtype=torch.float64))


def test_s2_on_paper():
    x = torch.tensor([[0.0, 0.25, 0.5, 1.0]], dtype=torch.float64)
    # x/b = 1/2, (b-x) t/(1-t) = 1/4 at t = 1/2
    step = log_s2(x, scalar(0.5), scalar(0.5)).exp()
    expected = torch.tensor([[0.0, 0.5**0.25, 1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(step, expected)


@given(a=st.floats(0.01, 0.9), b0=st.floats(0.01, 0.99), t=st.floats(0.01, 0.99))
def test_steps_rise_from_0_to_1(a, b0, t):
    b = a + b0 * (1 - a)
    for step in (
        log_s1(GRID, scalar(a), scalar(b), scalar(t)).exp(),
        log_s2(GRID, scalar(b), scalar(t)).exp(),
    ):
        assert step[0, 0] == 0
        assert step[0, -1] == 1
        assert (step.diff() >= 0).all()


def test_s1_tends_to_a_hard_threshold():
    a, b = scalar(0.2), scalar(0.6)
    off_the_edge = GRID[(GRID - 0.4).abs() > 1e-3][None]
    hard = (off_the_edge > 0.4).double()
    distance = [
        (log_s1(off_the_edge, a, b, scalar(t)).exp() - hard).abs().max() for t in (0.3, 0.03, 1e-3)
    ]
    assert distance[0] > distance[1] > distance[2]
    assert distance[2] < 1e-12


def test_step_functions_match_finite_differences():
    x = torch.tensor([[0.15, 0.35, 0.55, 0.85]], dtype=torch.float64, requires_grad=True)
    a, b, t = (scalar(v).requires_grad_() for v in (0.1, 0.9, 0.4))
    assert gradcheck(log_s1, (x, a, b, t))
    assert gradcheck(log_s2, (x, b, t))


# -- the module --------------------------------------------------------------------------


def load_step(reference, key, step, params):
    """SoftStep with the reference's parameters (a0, b0, t); S2 has no use for a0."""
    rows = slice(None) if step == "s1" else slice(1, None)
    if params == "global":
        module = SoftStep(step).double()
        module.logits.data = reference[f"{key}.params"][rows]
    else:
        weight = reference[f"{key}.weight"][rows]
        module = SoftStep(step, "pointwise", embedding_dim=weight.shape[1]).double()
        module.linear.weight.data = weight
        module.linear.bias.data = reference[f"{key}.bias"][rows]
    return module


def published_fit_step(module, similarity, query, itself):
    """Compute the mask as the published code does in training.

    Each row scales its similarities with itself among them, so that its nearest neighbour lies
    anywhere below 1, and `a` must be kept below that one. It then lies 1e-12 above `a`, where
    the published code keeps S1's numerator, u^(1/t) (b-a)^(1/t), from falling below 1e-12.
    """
    x = scale_similarity(similarity)
    if module.step == "s2":
        return log_s2(x, *module.thresholds(query))
    logits = module.logits if module.params == "global" else module.linear(query).T[..., None]
    a, b, t = logits.sigmoid()
    nearest = x.masked_fill(itself, 0).amax(dim=1, keepdim=True)
    a = torch.minimum(a, nearest) - 1e-12
    b = a + b * (1 - a)
    log_step = log_s1(x, a, b, t)
    floor = -torch.log1p((b - x).clamp(min=0) ** (1 / t) / 1e-12)
    return torch.where((x > a) & (x < b), torch.maximum(log_step, floor), log_step)


@pytest.mark.parametrize("space", ["d3", "d25"])
@pytest.mark.parametrize("sim", ["l2", "l1", "dot", "cos"])
@pytest.mark.parametrize("params", ["global", "pointwise"])
@pytest.mark.parametrize("step", ["s1", "s2"])
class TestAgreesWithPublishedCode:
    def assert_agrees(self, reference, key, form, similarity, log_step, y, excluded=None):
        masked = similarity + log_step
        expected = reference[f"{key}.masked_similarity.{form}"]
        torch.testing.assert_close(masked, expected, rtol=0, atol=1e-10)
        predicted = neighbor_weights(masked, excluded) @ y
        torch.testing.assert_close(predicted, reference[f"{key}.{form}"], rtol=0, atol=1e-10)

    def test_predict(self, reference, space, sim, step, params):
        key = f"{space}.{sim}.{step}.{params}"
        module = load_step(reference, key, step, params)
        query, neighbors, y = (reference[f"{space}.{n}"] for n in ("query", "neighbors", "y"))
        similarity = SIMILARITIES[sim.replace("cos", "cosine")](query, neighbors)
        log_step = module(similarity, query)
        self.assert_agrees(reference, key, "predict", similarity, log_step, y)

    def test_fit(self, reference, space, sim, step, params):
        key = f"{space}.{sim}.{step}.{params}"
        module = load_step(reference, key, step, params)
        z, y = reference[f"{space}.neighbors"], reference[f"{space}.y"]
        similarity = SIMILARITIES[sim.replace("cos", "cosine")](z, z)
        itself = torch.eye(len(z), dtype=torch.bool)
        if sim == "l2":
            # Theirs finds a row up to 1e-7 from itself, by a processor's rounding. There the step
            # is 1, so that the masked similarity is the similarity.
            theirs = reference[f"{key}.masked_similarity.fit"]
            similarity = torch.where(itself, theirs, similarity)
        log_step = published_fit_step(module, similarity, z, itself)
        self.assert_agrees(reference, key, "fit", similarity, log_step, y, excluded=itself)


@pytest.mark.parametrize("step", ["s1", "s2"])
@pytest.mark.parametrize("on", ["similarity", "rank"])
def test_pointwise_with_zero_weights_is_global(step, on):
    similarity = torch.randn(4, 9)
    pointwise = SoftStep(step, "pointwise", on, embedding_dim=2)
    torch.nn.init.zeros_(pointwise.linear.weight)
    torch.nn.init.zeros_(pointwise.linear.bias)
    plain = SoftStep(step, on=on)
    torch.testing.assert_close(pointwise(similarity, torch.randn(4, 2)), plain(similarity))


def test_pointwise_step_differs_from_query_to_query():
    step = SoftStep("s1", "pointwise", embedding_dim=2)
    a, b, t = step.thresholds(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    assert a.shape == b.shape == t.shape == (3, 1)
    assert a[0] != a[1]
    assert a[0] == a[2]


@pytest.mark.parametrize("params", ["global", "pointwise"])
@pytest.mark.parametrize("step", ["s1", "s2"])
def test_gradients_match_finite_differences(step, params):
    query = torch.randn(3, 2, dtype=torch.float64).requires_grad_()
    neighbors = torch.randn(7, 2, dtype=torch.float64)
    module = SoftStep(step, params, embedding_dim=2).double()

    def masked_weights(query, *_):
        similarity = -torch.cdist(query, neighbors)
        return neighbor_weights(similarity + module(similarity, query))

    assert gradcheck(masked_weights, (query, *module.parameters()))


@pytest.mark.parametrize("params", ["global", "pointwise"])
@pytest.mark.parametrize(
    ("step", "x"),
    [("s1", 0.3), ("s1", 0.9), ("s1", 0.99), ("s2", 0.02), ("s2", 0.9), ("s2", 0.99)],
)
def test_start_at_gives_half_weight_there(step, params, x):
    module = SoftStep(step, params, embedding_dim=2).double()
    module.start_at(x)
    similarity = torch.tensor([[0.0, x, 1.0]], dtype=torch.float64)
    half = module(similarity, torch.randn(1, 2, dtype=torch.float64)).exp()[0, 1]
    torch.testing.assert_close(half, scalar(0.5), rtol=0, atol=1e-4)


@pytest.mark.parametrize("params", ["global", "pointwise"])
@pytest.mark.parametrize("step", ["s1", "s2"])
def test_narrowing_is_what_is_left_of_the_distance_from_the_nearest(step, params):
    """The transition stays, and half a narrowing narrows by half."""
    module, query = SoftStep(step, params, embedding_dim=2).double(), torch.randn(4, 2).double()
    *learned, transition = module.thresholds(query)
    similarity = torch.linspace(0, 1, 50, dtype=torch.float64).expand(4, -1)
    before = module(similarity, query).exp()
    module.narrowing.fill_(0.25)
    *narrowed, same = module.thresholds(query)
    assert torch.equal(same, transition)
    for wide, narrow in zip(learned, narrowed, strict=True):
        torch.testing.assert_close(1 - narrow, 0.25 * (1 - wide))
    after = module(similarity, query).exp()
    assert (after <= before).all()
    assert (after[:, -1] == 1).all()
    assert (after.sum(dim=1) < before.sum(dim=1)).all()
    if step == "s1":  # the same S, drawn together
        x = 1 - (1 - similarity) / 0.25
        expected = log_s1(x, *learned, transition).exp()
        torch.testing.assert_close(after, expected)


def test_narrowing_is_a_part_of_the_state_and_not_trained():
    module = SoftStep("s1")
    assert module.narrowing == 1
    module.narrowing.fill_(0.5)
    again = SoftStep("s1")
    again.load_state_dict(module.state_dict())
    assert again.narrowing == 0.5
    assert "narrowing" not in dict(module.named_parameters())


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (SoftStep(), "SoftStep('s1', 'global')"),
        (SoftStep("s2", on="rank"), "SoftStep('s2', 'global', on='rank')"),
        (
            SoftStep("s1", "pointwise", embedding_dim=32),
            "SoftStep('s1', 'pointwise', embedding_dim=32)",
        ),
        (SoftStep("s2", "pointwise", on="rank"), "SoftStep('s2', 'pointwise', on='rank')"),
    ],
    ids=str,
)
def test_a_step_is_copied_and_stored_whole(module, expected):
    """As a parameter of an estimator, it is cloned, shown, and written to files."""
    module.narrowing.fill_(0.5)
    stored = from_data(to_data(module))
    for copied in (clone(module, safe=False), copy.deepcopy(module), stored, eval(expected)):
        assert copied is not module
        assert repr(copied) == expected
    for copied in (clone(module, safe=False), stored):
        torch.testing.assert_close(copied.state_dict(), module.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("params", ["global", "pointwise"])
def test_a_step_for_embeddings_is_of_the_same_kind_and_untrained(params):
    given = SoftStep("s2", params, on="rank")
    given.narrowing.fill_(0.5)
    made = given.for_embedding(5)
    assert (made.step, made.params, made.on, made.narrowing) == ("s2", params, "rank", 1)
    assert made(torch.randn(4, 9), torch.randn(4, 5)).shape == (4, 9)


LOGITS = st.sampled_from([-1000.0, -80.0, -5.0, 0.0, 5.0, 80.0, 1000.0])


@given(
    step=st.sampled_from(["s1", "s2"]),
    on=st.sampled_from(["similarity", "rank"]),
    logits=st.tuples(LOGITS, LOGITS, LOGITS),
    narrowing=st.sampled_from([1.0, 0.5, 0.125, 0.01]),
    similarities=st.lists(
        st.sampled_from([-1e20, -3.0, -1.0, -1e-20, 0.0, 1e-20, 1.0, 1e20]), min_size=1, max_size=6
    ),
    n_excluded=st.integers(0, 6),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
# A threshold next to 1, narrowed: rounding must not let it reach the nearest.
@example(
    step="s1",
    on="similarity",
    logits=(80.0, 0.0, 0.0),
    narrowing=0.125,
    similarities=[1.0, 0.0],
    n_excluded=0,
    dtype=torch.float32,
)
def test_always_finite_and_keeps_the_nearest(
    step, on, logits, narrowing, similarities, n_excluded, dtype
):
    """Ties, one neighbour, no neighbour, extremes of a, b, t and of the similarities."""
    module = SoftStep(step, on=on).to(dtype)
    module.narrowing.fill_(narrowing)
    module.logits.data = torch.tensor(logits[: len(module.logits)], dtype=dtype)
    similarity = torch.tensor([similarities], dtype=dtype).requires_grad_()
    excluded = torch.arange(len(similarities))[None] < n_excluded

    log_step = module(similarity, excluded=excluded)
    weights = neighbor_weights(similarity + log_step, excluded)
    (weights * torch.arange(1.0, 1 + len(similarities), dtype=dtype)).sum().backward()

    assert not log_step.isnan().any()
    assert (log_step <= 0).all()
    assert weights.isfinite().all()
    assert similarity.grad.isfinite().all()
    assert module.logits.grad is None or module.logits.grad.isfinite().all()
    admitted = ~excluded[0]
    torch.testing.assert_close(weights.sum(), torch.tensor(float(admitted.any()), dtype=dtype))
    if admitted.any():
        nearest = similarity[0].masked_fill(excluded[0], -INF).argmax()
        assert log_step[0, nearest] == 0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"step": "s3"}, r"step must be one of \['s1', 's2'\], got 's3'"),
        ({"params": "local"}, r"params must be one of .*, got 'local'"),
        ({"on": "distance"}, r"on must be one of .*, got 'distance'"),
    ],
)
def test_bad_parameters(kwargs, message):
    with pytest.raises(ValueError, match=message):
        SoftStep(**kwargs)


def test_bad_arguments():
    with pytest.raises(ValueError, match="query must be given with params='pointwise', got None"):
        SoftStep(params="pointwise", embedding_dim=2)(torch.zeros(1, 3))
    message = "embedding_dim must be given with params='pointwise', got None"
    with pytest.raises(ValueError, match=message):
        SoftStep(params="pointwise")(torch.zeros(1, 3), torch.zeros(1, 2))
    with pytest.raises(ValueError, match=message):
        SoftStep(params="pointwise").start_at(0.5)
    for x in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"x must lie between 0 and 1, got {x}"):
            SoftStep("s2").start_at(x)


@given(
    seed=st.integers(0, 2**32 - 1),
    a=st.floats(0.01, 0.98),
    step=st.sampled_from(["s1", "s2"]),
    some_excluded=st.booleans(),
    pointwise=st.booleans(),
)
def test_a_step_on_ranks_is_the_step_of_the_ranks(seed, a, step, some_excluded, pointwise):
    """Ties, exclusion, and rows with one neighbour or none."""
    generator = torch.Generator().manual_seed(seed)
    similarity = torch.randint(0, 30, (5, 60), generator=generator).double()
    excluded = None
    if some_excluded:
        excluded = torch.rand(5, 60, generator=generator) < 0.5
        excluded[0], excluded[1] = True, torch.arange(60) != 7
    module = SoftStep(step, "pointwise" if pointwise else "global", "rank", 3).double()
    module.start_at(a)
    query = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    if pointwise:
        module.linear.weight.data = torch.randn(
            module.linear.weight.shape, generator=generator, dtype=torch.float64
        )
    ours = module(similarity, query, excluded)
    thresholds = module.thresholds(query)
    expected = STEPS[step](rank_similarity(similarity, excluded), *thresholds)
    if step == "s1":  # which keeps the first of equally near rows only
        one_by_one = rank_similarity(similarity - 1e-3 * torch.arange(60), excluded)
        expected = expected.masked_fill(one_by_one <= thresholds[0], -torch.inf)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("step", ["s1", "s2"])
def test_pointwise_thresholds_do_not_depend_on_the_other_queries(step):
    """To the last bit: what float64 rounds otherwise, float32 does once in 10⁸ times."""
    module = SoftStep(step, "pointwise", embedding_dim=5)
    generator = torch.Generator().manual_seed(0)
    torch.nn.init.normal_(module.linear.weight, generator=generator)
    query = torch.randn(37, 5, generator=generator)
    whole = module.thresholds(query)
    for rows in (torch.randperm(37, generator=generator), torch.arange(36, 37), torch.arange(9)):
        for ours, expected in zip(module.thresholds(query[rows]), whole, strict=True):
            assert torch.equal(ours, expected[rows])


@pytest.mark.parametrize("params", ["global", "pointwise"])
@pytest.mark.parametrize("embedding_dim", [0, -1, 2.5, "a", True])
def test_the_size_of_the_embedding_is_a_positive_integer(params, embedding_dim):
    message = f"embedding_dim must be a positive integer, got {embedding_dim!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        SoftStep(params=params, embedding_dim=embedding_dim)


def test_parameters_as_of_an_estimator_of_scikit_learn():
    step = SoftStep("s1", "pointwise", embedding_dim=3)
    given = {"step": "s1", "params": "pointwise", "on": "similarity", "embedding_dim": 3}
    assert step.get_params() == given
    assert step.set_params(step="s2", params="global") is step
    assert step.get_params() == given | {"step": "s2", "params": "global", "embedding_dim": None}
    assert [name for name, _ in step.named_parameters()] == ["logits"]
