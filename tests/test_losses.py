"""Losses of classifiers: oracles, the published code's numbers, special cases, invariants."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inner.data import normalize_mean
from sklearn.metrics import log_loss
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy, one_hot

from nona_sklearn.losses import ASSoftmaxLoss, LogLoss, MultilabelASSoftmaxLoss, WeightedLoss

EPS = torch.finfo(torch.float64).eps
REFERENCE = pytest.mark.parametrize(
    ("margin", "n_classes"), [(m, c) for m in (0.05, 0.1, 0.3, 1.0) for c in (2, 5, 40)]
)
MARGINS, SEEDS = st.floats(0, 1), st.integers(0, 2**16)
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def problem(sizes, seed=0, n=12):
    """Logits of outputs side by side, their probabilities, one-hot truths: float64."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, sum(sizes), generator=generator, dtype=torch.float64)
    truth = [one_hot(torch.randint(c, (n,), generator=generator), c).double() for c in sizes]
    p = [block.softmax(dim=1) for block in logits.split(sizes, dim=1)]
    return logits, torch.cat(p, dim=1), torch.cat(truth, dim=1)


def label_problem(n_labels, seed=0, n=12):
    """The same of labels: the logarithms of their odds, and which of them rows have."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_labels, generator=generator, dtype=torch.float64)
    has = torch.rand(n, n_labels, generator=generator) < 0.5
    return logits, of_labels(logits), truth_of(has)


def of_labels(logits):
    """Each label's absence and presence: both of them exact, however small."""
    return torch.stack([(-logits).sigmoid(), logits.sigmoid()], dim=2).flatten(1)


def truth_of(has):
    return torch.stack([~has, has], dim=2).flatten(1).double()


def assert_close(ours, expected, atol=1e-12):
    torch.testing.assert_close(ours, expected, rtol=0, atol=atol)


# Oracles


@settings(max_examples=20)
@given(SIZES, SEEDS)
def test_log_loss_is_that_of_scikit_learn(sizes, seed):
    _, p, truth = problem(sizes, seed)
    each = LogLoss(sizes, reduction="none")(p, truth)
    assert each.shape == (12, len(sizes))
    blocks = zip(each.T, p.split(sizes, dim=1), truth.split(sizes, dim=1), strict=True)
    for ours, block, true in blocks:
        classes = range(block.shape[1])
        if len(classes) == 1:  # an error in scikit-learn
            assert not ours.any()
        else:
            expected = log_loss(true.argmax(dim=1), block.numpy(), labels=classes)
            assert ours.mean().item() == pytest.approx(expected, rel=1e-12)
    assert_close(LogLoss(sizes)(p, truth), each.mean())


@given(SIZES, MARGINS, SEEDS)
def test_as_softmax_is_the_cross_entropy_of_the_classes_left(sizes, margin, seed):
    logits, p, truth = problem(sizes, seed)
    loss = ASSoftmaxLoss(sizes, margin, reduction="none")
    expected = []
    for logit, block, true in zip(
        *(t.split(sizes, dim=1) for t in (logits, p, truth)), strict=True
    ):
        label = true.argmax(dim=1)
        kept = block.gather(1, label[:, None]) - block <= margin
        masked = logit.masked_fill(~kept, -torch.inf)
        expected.append(cross_entropy(masked, label, reduction="none"))
    assert_close(loss(p, truth), torch.stack(expected, dim=1))


@given(st.integers(1, 5), MARGINS, SEEDS)
def test_multilabel_as_softmax_by_its_definition(n_labels, margin, seed):
    logits, p, truth = label_problem(n_labels, seed)
    loss = MultilabelASSoftmaxLoss(margin, reduction="none")
    expected = []
    for z, has in zip(logits, truth[:, 1::2].bool(), strict=True):
        among = z.softmax(dim=0)
        lacks = ~has
        if has.any() and lacks.any():
            lowest, highest = among[has].min(), among[lacks].max()
            lacks = lacks & (lowest - among <= margin)
            has = has & (among - highest <= margin)
        expected.append(z[lacks].exp().sum().log1p() + (-z[has]).exp().sum().log1p())
    assert_close(loss(p, truth), torch.stack(expected)[:, None])


@REFERENCE
def test_as_softmax_agrees_with_published_code(as_softmax_reference, margin, n_classes):
    expected = of_reference(as_softmax_reference, margin, n_classes)
    logits = expected["logits"].clone().requires_grad_()
    p, truth = logits.softmax(dim=1), one_hot(expected["labels"], n_classes).double()
    loss = ASSoftmaxLoss(margin=margin)
    value = loss(p, truth)
    assert_close(value, expected["loss"])
    assert_close(*torch.autograd.grad(value, logits), expected["grad"])
    left_out = loss.left_out(p, truth)
    assert torch.equal(left_out, expected["masked_logits"].isinf())
    assert left_out.sum() == expected["n_masked_classes"]
    losses = ASSoftmaxLoss(margin=margin, reduction="none")(p, truth)
    assert (losses == 0).sum() == expected["n_ignored_rows"]


@REFERENCE
def test_multilabel_as_softmax_agrees_with_published_code(as_softmax_reference, margin, n_classes):
    expected = of_reference(as_softmax_reference, margin, n_classes)
    logits = expected["logits"].clone().requires_grad_()
    truth = truth_of(expected["multilabel.targets"].bool())
    value = MultilabelASSoftmaxLoss(margin)(of_labels(logits), truth)
    assert_close(value, expected["multilabel.loss"])
    assert_close(*torch.autograd.grad(value, logits), expected["multilabel.grad"])


def of_reference(reference, margin, n_classes):
    start = f"delta{margin}.classes{n_classes}."
    return {key[len(start) :]: value for key, value in reference.items() if key.startswith(start)}


# Special cases


def test_on_paper():
    p = torch.tensor([[0.5, 0.25, 0.25, 0.25, 0.75]], dtype=torch.float64)
    truth = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    each = torch.tensor([[math.log(2), math.log(4 / 3)]], dtype=torch.float64)
    assert_close(LogLoss((3, 2), reduction="none")(p, truth), each)
    loss = ASSoftmaxLoss((3, 2), margin=0.25, reduction="none")
    each[0, 1] = 0  # 0.5 above its rival
    assert_close(loss(p, truth), each)  # 0.25 above is not more than the margin


@given(SIZES, SEEDS)
def test_a_margin_of_1_is_the_log_loss(sizes, seed):
    logits, _, truth = problem(sizes, seed)
    logits.requires_grad_()
    p = torch.cat([block.softmax(dim=1) for block in logits.split(sizes, dim=1)], dim=1)
    ours, expected = ASSoftmaxLoss(sizes, margin=1)(p, truth), LogLoss(sizes)(p, truth)
    assert_close(ours, expected)
    gradients = (torch.autograd.grad(loss, logits, retain_graph=True) for loss in (ours, expected))
    assert_close(*(gradient for (gradient,) in gradients))


@given(SEEDS)
def test_a_margin_of_0_ignores_rows_whose_class_is_first(seed):
    _, p, truth = problem([4], seed)
    loss = ASSoftmaxLoss(margin=0, reduction="none")
    first = p.argmax(dim=1) == truth.argmax(dim=1)
    assert torch.equal(loss(p, truth)[:, 0] == 0, first)


def test_ties_are_learned():
    p, truth = torch.full((1, 3), 1 / 3), torch.tensor([[1.0, 0.0, 0.0]])
    loss = ASSoftmaxLoss(margin=0)
    assert loss(p, truth).item() == pytest.approx(math.log(3))


@given(MARGINS, st.floats(0, 1))
def test_two_classes(margin, p_true):
    p = torch.tensor([[1 - p_true, p_true]], dtype=torch.float64)
    truth = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    right = p_true - (1 - p_true) > margin
    loss = ASSoftmaxLoss(margin=margin)
    assert_close(loss(p, truth), 0 * p[0, 0] if right else LogLoss()(p, truth))


def test_one_class():
    p = truth = torch.ones(5, 1)
    for loss in (LogLoss(), ASSoftmaxLoss()):
        assert loss(p, truth) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_without_rivals_teach_nothing(dtype):
    """To the last digit: no rounding is left of them, in the loss or in its gradient."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.rand(37, 5, dtype=dtype, generator=generator)
    truth = one_hot(torch.randint(5, (37,), generator=generator), 5).to(dtype)
    logits = (logits + 3 * truth).requires_grad_()
    p = logits.softmax(dim=1)
    loss = ASSoftmaxLoss(reduction="none")(p, truth)
    assert not loss.any()
    assert not torch.autograd.grad(loss.sum(), logits)[0].any()


def test_rows_with_all_labels_or_none_leave_nothing_out():
    logits = torch.tensor([[-3.0, -9.0], [3.0, 9.0]], dtype=torch.float64)  # right, and sure
    truth = truth_of(torch.tensor([[False, False], [True, True]]))
    loss = MultilabelASSoftmaxLoss(margin=0)
    assert loss(of_labels(logits), truth).item() == pytest.approx(
        math.log(1 + math.exp(-3) + math.exp(-9)), rel=1e-12
    )


@given(MARGINS, SEEDS)
def test_a_single_label_has_the_log_loss(margin, seed):
    _, p, truth = label_problem(1, seed)
    assert_close(MultilabelASSoftmaxLoss(margin)(p, truth), LogLoss()(p, truth))


@pytest.mark.parametrize("sizes", [(4,), (3, 2)])
def test_eval_mode_is_the_log_loss(sizes):
    _, p, truth = problem(sizes)
    for reduction in ("mean", "none"):
        ours = ASSoftmaxLoss(sizes, margin=0, reduction=reduction).eval()(p, truth)
        assert torch.equal(ours, LogLoss(sizes, reduction)(p, truth))
    _, p, truth = label_problem(3)
    ours = MultilabelASSoftmaxLoss(margin=0, reduction="none").eval()(p, truth)
    assert torch.equal(ours, LogLoss((2, 2, 2), reduction="none")(p, truth))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "loss", [LogLoss((2, 2)), ASSoftmaxLoss((2, 2)), MultilabelASSoftmaxLoss()], ids=repr
)
def test_impossible_truths_have_finite_losses(loss, training, dtype):
    """Probabilities of 0, and the smallest ones whose gradient is not 0."""
    tiny = torch.finfo(dtype).tiny
    p = torch.tensor([[0.0, 1.0, 1.0, 0.0], [tiny, 1.0, 1.0, tiny / 2]], dtype=dtype)
    truth = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]], dtype=dtype)
    value = loss.train(training)(p.requires_grad_(), truth)
    assert -math.log(tiny) * 0.5 < value < -math.log(tiny) * 4
    (gradient,) = torch.autograd.grad(value, p)
    assert gradient.isfinite().all()
    assert gradient[1, 0] < 0


# Invariants


@given(SIZES, MARGINS, SEEDS)
def test_between_0_and_the_log_loss(sizes, margin, seed):
    _, p, truth = problem(sizes, seed)
    ours, more, most = (
        loss(p, truth)
        for loss in (
            ASSoftmaxLoss(sizes, margin / 2, "none"),
            ASSoftmaxLoss(sizes, margin, "none"),
            LogLoss(sizes, "none"),
        )
    )
    rounding = 100 * EPS  # logarithms are below 20
    assert (ours >= 0).all()
    assert (ours <= more + rounding).all()
    assert (more <= most + rounding).all()


@given(st.permutations(range(5)), MARGINS, SEEDS)
def test_the_order_of_classes_does_not_matter(order, margin, seed):
    _, p, truth = problem([5], seed)
    for loss in (LogLoss(), ASSoftmaxLoss(margin=margin)):
        assert_close(loss(p[:, order], truth[:, order]), loss(p, truth))


@given(st.permutations(range(4)), MARGINS, SEEDS)
def test_the_order_of_labels_does_not_matter(order, margin, seed):
    _, p, truth = label_problem(4, seed)
    loss, columns = MultilabelASSoftmaxLoss(margin), [2 * i + k for i in order for k in (0, 1)]
    assert_close(loss(p[:, columns], truth[:, columns]), loss(p, truth))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "loss",
    [
        LogLoss((3, 2)),
        ASSoftmaxLoss((3, 2), margin=0.2),
        ASSoftmaxLoss((3, 2), margin=0.2, reduction="none"),
    ],
)
def test_gradients(loss, training):
    _, p, truth = problem((3, 2), n=6)
    assert gradcheck(loss.train(training), (p.requires_grad_(), truth))


@pytest.mark.parametrize("training", [True, False])
def test_gradients_of_labels(training):
    _, p, truth = label_problem(4, n=6)
    loss = MultilabelASSoftmaxLoss(margin=0.2).train(training)
    assert 0 < loss.left_out(p, truth).sum() < 24
    assert gradcheck(loss, (p.requires_grad_(), truth))


# What is given


def test_rows_may_count_differently():
    _, p, truth = problem([3])
    weights = torch.arange(1.0, 13.0, dtype=torch.float64)
    loss = WeightedLoss(ASSoftmaxLoss)
    expected = log_loss(
        truth.argmax(dim=1), p.numpy(), sample_weight=weights.numpy(), labels=range(3)
    )
    ours = loss.eval()(p, truth, normalize_mean(weights.log()))
    assert ours.item() == pytest.approx(expected, rel=1e-12)
    each = ASSoftmaxLoss(reduction="none")(p, truth)[:, 0]
    ours = loss.train()(p, truth, normalize_mean(weights.log()))
    assert_close(ours, (weights * each).sum() / weights.sum())


@pytest.mark.parametrize("loss", [ASSoftmaxLoss, MultilabelASSoftmaxLoss])
@pytest.mark.parametrize("margin", [-0.1, 1.5, math.nan])
def test_margins_out_of_range_are_named(loss, margin):
    with pytest.raises(ValueError, match=f"margin must be from 0 to 1, got {margin}"):
        loss(margin=margin)


@pytest.mark.parametrize("loss", [LogLoss, ASSoftmaxLoss, MultilabelASSoftmaxLoss])
def test_unknown_reductions_are_named(loss):
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'none', got 'sum'"):
        loss(reduction="sum")
