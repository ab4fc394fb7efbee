"""Weightings: how a similarity becomes a weight.

Neighbour j of a query weighs ``w_j ~ m_j phi(s_j)``: `s` is its similarity over the temperature,
`phi` the weighting, and `m` the neighbour's measure, which is its sample weight times SoftStep's
step, 0 where the two must not meet. Most weightings look at one neighbour after the other and
divide by the sum; :class:`Entmax` and :class:`Preconditioned` look at a query's nearest together.
"""

import copy
import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from ._utils.validation import check_choice, check_integer, is_real
from .ranking import largest, nearest_first
from .similarity import eager_all

__all__ = [
    "WEIGHTINGS",
    "Entmax",
    "Gaussian",
    "Preconditioned",
    "Sigmoid",
    "Softmax",
    "Softpick",
    "Softplus",
    "SparseSoftmax",
    "Uniform",
    "Weighting",
    "make_weighting",
]

Between = Callable[[Tensor], Tensor]

FIRST_SUPPORT = 64  # neighbours among whom a support is sought first
CLIMBS = 8  # of Newton's steps to a threshold: quadratic, from a place that is never far
LEAST_ALPHA = 0.01  # above 1, of one that is learned: powers of 100 still leave digits
LEAST_RIDGE = 1e-3  # of a similarity to itself: less would leave nothing but rounding
LEAST_LOGIT = -60.0  # below the largest: nothing to float32, yet far from denormal numbers, where
# a processor takes ten times as long
HUGE = 80.0  # of a number whose exponential float32 can hold
FAINT = 18.0  # of a number u = exp(-FAINT) of which u^2 is nothing to float64 beside 1
FARTHEST = 1e18  # of bandwidths, whose square float32 can hold
NO_LEAD = 1e-6  # of a neighbour that is dropped over where softpick drops
LEAST_LEAD = 0.1  # of the nearest neighbour over what softpick drops
FAR = -1e4  # who has no weight here is beyond where weights end
AS_NEAR = 1e-6  # of a similarity: what rounding may take from the nearest
EXACT = 1e-4  # to which a weighting from outside must sum to 1


class Weighting(nn.Module):
    """How a similarity becomes a weight; by itself, one that looks at one neighbour at a time.

    Parameters
    ----------
    function : callable, optional
        Maps similarities over the temperature (q, n), one by one, to the logarithms of weights
        before they are normalised, (q, n); -inf is no weight. Subclasses override
        :meth:`log_weight` instead, and may learn parameters; they override :meth:`weigh` where
        weights depend on the whole row.

    Raises
    ------
    ValueError
        If there is no `function`, and nothing is overridden.

    Attributes
    ----------
    tempered : bool
        Whether a temperature matters, and so may be learned.
    of_distances : bool
        Whether similarities must be negative distances.
    needs_nearest : bool
        Whether :meth:`log_weight` is to know each query's nearest neighbour.
    ties : bool
        Whether equally near neighbours, such as twins, count as one among those.
    n_neighbors : int or None
        How many nearest neighbours can weigh anything; None: all.

    Examples
    --------
    Student's t, as t-SNE has it:

    >>> import torch
    >>> from nona_sklearn import NONAHead
    >>> from nona_sklearn.weighting import Weighting
    >>> head = NONAHead("l2", weighting=Weighting(lambda s: -s.square().log1p()))
    >>> head.neighbor_weights(torch.zeros(1, 1), torch.tensor([[1.0], [2.0]]))
    tensor([[0.7143, 0.2857]])
    """

    tempered: ClassVar[bool] = True
    of_distances: ClassVar[bool] = False
    needs_nearest: bool = False
    ties: ClassVar[bool] = False
    n_neighbors: int | None = None

    def __init__(self, function: Callable[[Tensor], Tensor] | None = None):
        super().__init__()
        overridden = type(self).log_weight is not Weighting.log_weight or not self.one_by_one
        if not callable(function) and not (function is None and overridden):
            raise ValueError(f"function must be callable, got {function!r}")
        self.function = function

    @property
    def one_by_one(self) -> bool:
        """Whether weights are a function of each similarity, over their sum."""
        return type(self).weigh is Weighting.weigh

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        """Logarithm of what a neighbour weighs before all are normalised.

        Parameters
        ----------
        s : Tensor of shape (q, n)
            Similarities over the temperature.
        nearest : Tensor of shape (q, 1), optional
            The largest of the admitted ones, where ``needs_nearest`` asks for it.

        Returns
        -------
        Tensor of shape (q, n)
            Logarithms, -inf where a neighbour weighs nothing.
        """
        assert self.function is not None
        return self.function(s)

    def logits(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        """:meth:`log_weight`, by which the nearest weighs all where even it is beyond the end."""
        logits = self.log_weight(s, nearest)
        if nearest is None:
            return logits
        lost = self.log_weight(nearest, nearest) == -math.inf  # (q, 1)
        if eager_all(~lost.any()):
            return logits
        farther = s < nearest - AS_NEAR * nearest.abs()
        return torch.where(lost, torch.zeros_like(s).masked_fill(farther, -math.inf), logits)

    def relative_(self, s: Tensor, top: Tensor, nearest: Tensor | None = None) -> Tensor:
        """``phi(s) / phi(top)``, in place of similarities (q, n): what prediction evaluates.

        `top`, (q, 1), is the largest of each row. Subclasses override it where this takes fewer
        passes over the pairs. Small numbers need not be exact; of -inf anything that is small.
        """
        peak = self.logits(top, nearest)
        nobody = peak == -math.inf  # all of this tile are beyond the weights' end
        logits = self.logits(s, nearest).sub_(peak.masked_fill(nobody, 0.0))
        weights = logits.clamp_min_(LEAST_LOGIT).exp_()
        return weights.masked_fill_(nobody, 0.0) if nobody.any() else weights

    def weigh(
        self, s: Tensor, log_measure: Tensor | None = None, between: Between | None = None
    ) -> Tensor:
        """Weights of all neighbours of each query.

        Parameters
        ----------
        s : Tensor of shape (q, n)
            Similarities over the temperature.
        log_measure : Tensor of shape (q, n), optional
            Logarithm of what each neighbour counts; -inf: not at all. None: all the same, 1.
        between : callable, optional
            Maps positions of k neighbours of each query, (q, k), to their similarities to each
            other over the temperature, (q, k, k).

        Returns
        -------
        Tensor of shape (q, n)
            Weights; each row sums to 1, or is all 0 where no neighbour is admitted.
        """
        nearest = None
        if self.needs_nearest:
            nearest = admitted(s, log_measure).amax(dim=1, keepdim=True)
        logits = self.logits(s, nearest)
        return softmax(logits if log_measure is None else logits + log_measure)


def softmax(logits: Tensor) -> Tensor:
    """Softmax of each row, (q, n), of which rows of nothing but -inf are all 0.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import softmax
    >>> softmax(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]))
    tensor([[0.5000, 0.5000],
            [0.0000, 0.0000]])
    """
    alone = logits.amax(dim=1, keepdim=True) == -math.inf  # (q, 1): nobody to attend to
    if eager_all(~alone.any()):  # spares two passes over the pairs
        return logits.softmax(dim=1)
    return logits.masked_fill(alone, 0.0).softmax(dim=1).masked_fill(alone, 0.0)


def exp_below_(logits: Tensor, peak: Tensor) -> Tensor:
    """``exp(logits - peak)``, in place of logits (q, n) whose largest are the peaks (q, 1).

    Small numbers are not exact. By torch's softmax, which takes half the time of its exponential,
    and gives equal entries of a row equal digits wherever they lie.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import exp_below_
    >>> exp_below_(torch.tensor([[5.0, 4.0]]), torch.tensor([[5.0]]))
    tensor([[1.0000, 0.3679]])
    """
    limits = torch.finfo(logits.dtype)
    # Clearly less than the peak, also of one so large that LEAST_LOGIT is lost beside it.
    least = peak + LEAST_LOGIT - 4 * limits.eps * peak.abs()
    logits = logits.clamp_min_(least.clamp_min_(limits.min))
    weights = torch.softmax(logits, dim=1, out=logits)
    return weights.div_(weights.amax(dim=1, keepdim=True))


def admitted(s: Tensor, log_measure: Tensor | None) -> Tensor:
    """Similarities without gradient, (q, n), -inf of those that count nothing."""
    s = s.detach()
    return s if log_measure is None else s.masked_fill(log_measure == -math.inf, -math.inf)


class Softmax(Weighting):
    """``phi(s) = exp(s)``: the NONA paper's weights.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Softmax
    >>> Softmax().weigh(torch.tensor([[0.0, 1.0]]))  # [1, e] / (1 + e)
    tensor([[0.2689, 0.7311]])
    """

    def __init__(self):
        super().__init__()

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        return s

    def relative_(self, s: Tensor, top: Tensor, nearest: Tensor | None = None) -> Tensor:
        return exp_below_(s, top)


class Uniform(Weighting):
    """``phi(s) = 1``: all is left to the step or to `n_neighbors`, as in unweighted k-NN.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Uniform
    >>> Uniform().weigh(torch.tensor([[0.0, 1.0]]))
    tensor([[0.5000, 0.5000]])
    """

    tempered = False

    def __init__(self):
        super().__init__()

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        return torch.zeros_like(s)


class Gaussian(Weighting):
    """``phi(s) = exp(-s^2 / 2)`` of a distance over a bandwidth: Nadaraya and Watson's kernel.

    SOFT (arXiv 2207.03341) attends so. The temperature is the bandwidth.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Gaussian
    >>> Gaussian().weigh(torch.tensor([[-1.0, -2.0]]))
    tensor([[0.8176, 0.1824]])
    """

    of_distances = True

    def __init__(self):
        super().__init__()

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        return s.clamp_min(-FARTHEST).square() / -2

    def relative_(self, s: Tensor, top: Tensor, nearest: Tensor | None = None) -> Tensor:
        return exp_below_(self.log_weight(s), self.log_weight(top))


class Sigmoid(Weighting):
    """``phi(s) = sigmoid(s + b)``, `b` learned: near neighbours count alike, far ones as softmax.

    Sigmoid attention (arXiv 2409.04431), normalised.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Sigmoid
    >>> Sigmoid().weigh(torch.tensor([[0.0, -torch.log(torch.tensor(3.0))]]))  # 1/2 and 1/4
    tensor([[0.6667, 0.3333]], grad_fn=<SoftmaxBackward0>)
    """

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        return -log1p_exp(-s - self.bias)

    def relative_(self, s: Tensor, top: Tensor, nearest: Tensor | None = None) -> Tensor:
        # 1 / (1 + exp(-x)), both times exp(top + b) where that is below 1, so that none grows
        x = top + self.bias
        least = x.clamp_max(0.0)
        level = least.exp()
        inverse = s.neg_().add_(least - self.bias).clamp_max_(-LEAST_LOGIT).exp_().add_(level)
        return inverse.reciprocal_().mul_(level + (least - x).exp())


class Softplus(Weighting):
    """``phi(s) = softplus(s + b)^p``, `b` and `p` learned.

    Softplus attention with re-weighting (arXiv 2501.13428): the power sharpens.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Softplus
    >>> Softplus().weigh(torch.tensor([[0.0, -1.0]]))  # log(1 + exp(s)): 0.6931 and 0.3133
    tensor([[0.6887, 0.3113]], grad_fn=<SoftmaxBackward0>)
    """

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))
        self.log_power = nn.Parameter(torch.zeros(()))

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        x = s + self.bias
        log_softplus = log1p_exp(x.clamp_min(-FAINT)).log()
        if not eager_all(x.detach().amin() >= -FAINT):
            # log(log1p(u)) = log(u) - u / 2: log(1 + u), which a graph has, would lose u's digits
            log_softplus = torch.where(x < -FAINT, x - x.exp() / 2, log_softplus)
        return self.log_power.exp() * log_softplus

    def relative_(self, s: Tensor, top: Tensor, nearest: Tensor | None = None) -> Tensor:
        power, x = self.log_power.exp(), top + self.bias
        # Clamped, since the logarithm of nothing is none: such a row must weigh nothing beside
        # the nearest.
        if power * (x.amin() + HUGE) < -LEAST_LOGIT or x.amax() > HUGE:
            return super().relative_(s, top, nearest)
        logits = s.add_(self.bias).clamp_min_(-HUGE).exp_().log1p_().log_()
        logits = logits.sub_(x.exp().log1p().log()).mul_(power)
        return logits.clamp_min_(LEAST_LOGIT).exp_()


def log1p_exp(x: Tensor) -> Tensor:
    """``log(1 + exp(x))``, of functions that give an entry the same digits wherever it lies."""
    if eager_all(x.detach().amax() <= HUGE):  # spares three passes
        return x.exp().log1p()
    return torch.where(x > HUGE, x, x.clamp_max(HUGE).exp().log1p())


class Softpick(Weighting):
    """``phi(s) = max(0, exp(s - b) - 1)``, `b` learned: weights end at a distance.

    Softpick (arXiv 2504.20966). Where even the nearest neighbour is beyond, or hardly within,
    `b` is taken a tenth below it: the nearest, and those as near, are never lost.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Softpick
    >>> weighting = Softpick()
    >>> _ = weighting.threshold.data.fill_(-1)
    >>> weighting.weigh(torch.tensor([[0.0, -0.5, -1.0], [-7.0, -9.0, -9.0]]))
    tensor([[0.7259, 0.2741, 0.0000],
            [1.0000, 0.0000, 0.0000]], grad_fn=<SoftmaxBackward0>)
    """

    needs_nearest = True

    def __init__(self):
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(-5.0))

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        assert nearest is not None
        # Below the least lead the logarithm's gradient would be infinite.
        lead = self._lead(s, nearest).clamp_min(NO_LEAD)
        return (s + lead.neg().exp().neg().log1p()).masked_fill(lead == NO_LEAD, -math.inf)

    def relative_(self, s: Tensor, top: Tensor, nearest: Tensor | None = None) -> Tensor:
        assert nearest is not None
        dropped = self._lead(top, nearest).neg_().exp_()
        weights = s.sub_(top).clamp_min_(LEAST_LOGIT).exp_().sub_(dropped).clamp_min_(0)
        return weights.div_((1 - dropped).clamp_min(torch.finfo(s.dtype).tiny))

    def _lead(self, s: Tensor, nearest: Tensor) -> Tensor:
        """By how much neighbours are nearer than where they are dropped."""
        # By way of the nearest, whose own lead no rounding takes, however far it is.
        return (s - nearest) + (nearest - self.threshold.to(s.dtype)).clamp_min(LEAST_LEAD)


class SparseSoftmax(Softmax):
    """Softmax of the `n_neighbors` nearest (arXiv 2112.12433), as k-NN takes them.

    Parameters
    ----------
    n_neighbors : int, default=16
        How many. Of equally near ones the first rows are taken.

    Raises
    ------
    ValueError
        If `n_neighbors` is not a positive integer.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import NONAHead
    >>> from nona_sklearn.weighting import SparseSoftmax
    >>> head = NONAHead("dot", weighting=SparseSoftmax(2))
    >>> head.neighbor_weights(torch.ones(1, 1), torch.tensor([[0.0], [1.0], [1.0]]))
    tensor([[0.0000, 0.5000, 0.5000]])
    """

    def __init__(self, n_neighbors: int = 16):
        super().__init__()
        self.n_neighbors = check_integer("n_neighbors", n_neighbors)

    def extra_repr(self) -> str:
        return f"n_neighbors={self.n_neighbors}"


class Entmax(Weighting):
    """``w_j = m_j max(0, (alpha - 1) s_j - tau)^(1 / (alpha - 1))``, which sum to 1 for one `tau`.

    Between softmax (``alpha = 1``) and sparsemax (``alpha = 2``); the larger, the fewer
    neighbours count (Peters et al. 2019). A neighbour of measure 2 is two neighbours.

    Parameters
    ----------
    alpha : float, default=1.5
        From 1 to 2.
    learn_alpha : bool, default=False
        Whether it is learned, between 1 and 2 (Correia et al. 2019), from `alpha` on.

    Raises
    ------
    ValueError
        If `alpha` is not between 1 and 2, or at one of them and to be learned.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Entmax
    >>> Entmax(2.0).weigh(torch.tensor([[0.0, 0.5, -1.0]]))
    tensor([[0.2500, 0.7500, 0.0000]])
    """

    def __init__(self, alpha: float = 1.5, learn_alpha: bool = False):
        super().__init__()
        if not is_real(alpha, 1, 2):
            raise ValueError(f"alpha must lie between 1 and 2, got {alpha!r}")
        if 0 < alpha - 1 < LEAST_ALPHA:
            least = f"{1 + LEAST_ALPHA:.2f}"
            raise ValueError(f"alpha must be 1, or at least {least}, got {alpha!r}")
        if not isinstance(learn_alpha, bool):
            raise ValueError(f"learn_alpha must be a bool, got {learn_alpha!r}")
        if learn_alpha and not 1 < alpha < 2:
            raise ValueError(f"alpha must lie between 1 and 2 to be learned, got {alpha!r}")
        self.start, self.learn_alpha = float(alpha), learn_alpha
        if learn_alpha:
            self.logit_alpha = nn.Parameter(torch.tensor(alpha - 1.0).logit())

    @property
    def alpha(self) -> Tensor | float:
        """Between softmax, 1, and sparsemax, 2."""
        if not self.learn_alpha:
            return self.start
        return 1 + self.logit_alpha.sigmoid().clamp_min(LEAST_ALPHA)

    def weigh(
        self, s: Tensor, log_measure: Tensor | None = None, between: Between | None = None
    ) -> Tensor:
        if log_measure is None:
            log_measure = torch.zeros_like(s)
        if self.alpha == 1:
            return softmax(s + log_measure)
        n, k, nearness = s.shape[1], FIRST_SUPPORT, admitted(s, log_measure)
        while True:  # whoever counts is nearer than whoever does not
            last, positions = largest(nearness, min(k, n))
            weights = self._share(s.gather(1, positions), log_measure.gather(1, positions))
            beyond = (weights[:, -1] == 0) | (last[:, -1] == -math.inf)
            if k >= n or beyond.all():
                return torch.zeros_like(s).scatter(1, positions, weights)
            k *= 4

    def _share(self, s: Tensor, log_measure: Tensor) -> Tensor:
        """Weights of some neighbours, nearest first, as if there were no others."""
        alone = (log_measure == -math.inf).all(dim=1, keepdim=True)
        out = log_measure == -math.inf
        here = ~out | alone
        log_measure = log_measure.clamp_min(LEAST_LOGIT).masked_fill(out, -math.inf)
        power = self.alpha - 1
        # Of a row without anybody the first is not the nearest, and powers could have no room.
        x = (power * (s - s.detach()[:, :1])).masked_fill(alone, 0.0).masked_fill(~here, -math.inf)
        m = log_measure.exp()
        with torch.no_grad():  # none can have more than all: (x - low)^(1 / power) <= 1 / m
            low = (x - (-power * log_measure).exp()).amax(dim=1, keepdim=True)
            low = torch.where(alone, -1.0, low)
            threshold = _climb(x, m, low, 1 / power)
            gap = (x - threshold).clamp_min(0)
            slope = (_powered(gap, 1 / power - 1) * m).sum(dim=1, keepdim=True) / power
        # One of Newton's steps: it ends the search, and is what gradients pass through.
        excess = (_powered(x - threshold, 1 / power) * m).sum(dim=1, keepdim=True) - 1
        excess = excess / slope.masked_fill(alone, 1.0)
        each = _powered(x - threshold - excess, 1 / power) * m
        return each / each.sum(dim=1, keepdim=True).masked_fill(alone, 1.0)

    def extra_repr(self) -> str:
        return f"alpha={self.start}, learn_alpha={self.learn_alpha}"


def _powered(gap: Tensor, power: Tensor | float) -> Tensor:
    """``max(0, gap) ** power``, 0 of what is not above 0, whatever the power."""
    above = gap > 0
    return torch.where(above, gap, 1.0) ** power * above


def _climb(x: Tensor, m: Tensor, low: Tensor, power: Tensor | float) -> Tensor:
    """Where ``sum_j m_j max(0, x_j - tau)^power`` is 1, from below; a power of 1 or more.

    Newton's method on its root of that power, a norm, which is convex and nearly straight.
    """
    for _ in range(CLIMBS):
        gap = x - low
        each = _powered(gap, power - 1) * m
        total = (each * gap.clamp_min(0)).sum(dim=1, keepdim=True)
        root = total ** (1 / power)
        slope = each.sum(dim=1, keepdim=True) * root / total
        low = low + torch.where(total > 1, (root - 1) / slope, 0.0)
    return low


class Preconditioned(Weighting):
    """``w ~ max(0, (K + ridge / m)^-1 k)`` of the nearest: near-duplicates share a weight.

    `k` are the similarities' exponentials, `K` the same between the neighbours, as LUCID
    attention divides by them; without the maximum this is kriging. The ridge is learned. Softmax
    counts a row that stands in the bank ten times ten times; here it counts little more than once.

    Parameters
    ----------
    n_neighbors : int, default=32
        Among how many nearest neighbours; equally near ones, such as twins, count as one.

    Raises
    ------
    ValueError
        If `n_neighbors` is not a positive integer.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import NONAHead
    >>> from nona_sklearn.weighting import Preconditioned
    >>> head = NONAHead("l2", weighting=Preconditioned())
    >>> weights = head.neighbor_weights(torch.zeros(1, 1), torch.tensor([[1.0], [-1.0], [-1.0]]))
    >>> bool(weights[0, 0] > 0.4)
    True
    """

    ties = True

    def __init__(self, n_neighbors: int = 32):
        super().__init__()
        self.n_neighbors = check_integer("n_neighbors", n_neighbors)
        self.log_ridge = nn.Parameter(torch.zeros(()))

    @property
    def ridge(self) -> Tensor:
        """What is added to a similarity to itself, which is 1."""
        return self.log_ridge.exp().clamp_min(LEAST_RIDGE)

    def weigh(
        self, s: Tensor, log_measure: Tensor | None = None, between: Between | None = None
    ) -> Tensor:
        assert between is not None
        if log_measure is None:
            log_measure = torch.zeros_like(s)
        n_let_in = int((log_measure > -math.inf).sum(dim=1).max())  # by the head
        positions = nearest_first(admitted(s, log_measure), None, max(n_let_in, 1))
        here = log_measure.gather(1, positions)  # (q, k)
        out = here == -math.inf
        s = s.gather(1, positions)
        k = (s - s.detach()[:, :1]).masked_fill(out, -math.inf).exp()
        each_other = between(positions)
        own = each_other.diagonal(dim1=1, dim2=2)
        each_other = (each_other - (own[:, :, None] + own[:, None]) / 2).exp().to(k.dtype)
        # (K + ridge / m)^-1 k as M (M K M + ridge)^-1 M k, M the root of m: no m is too small.
        most = here.detach().amax(dim=1, keepdim=True).clamp_min(torch.finfo(here.dtype).min)
        root = ((here - most) / 2).exp()
        system = most.exp()[..., None] * root[:, :, None] * each_other * root[:, None]
        system = system + torch.diag_embed(self.ridge.to(k.dtype).expand_as(k))
        votes = (root * torch.linalg.solve(system, root * k)).clamp_min(0)
        total = votes.sum(dim=1, keepdim=True)
        weights = votes / torch.where(total > 0, total, 1.0)
        return torch.zeros_like(log_measure).scatter(1, positions, weights)

    def extra_repr(self) -> str:
        return f"n_neighbors={self.n_neighbors}"


def _learned_entmax() -> Entmax:
    return Entmax(learn_alpha=True)


def _sparsemax() -> Entmax:
    return Entmax(2.0)


#: What makes each weighting, by the name that the parameter `weighting` accepts.
WEIGHTINGS: dict[str, Callable[[], Weighting]] = {
    "softmax": Softmax,
    "uniform": Uniform,
    "gaussian": Gaussian,
    "sigmoid": Sigmoid,
    "softplus": Softplus,
    "softpick": Softpick,
    "sparse_softmax": SparseSoftmax,
    "sparsemax": _sparsemax,
    "entmax": _learned_entmax,
    "preconditioned": Preconditioned,
}


def make_weighting(weighting: str | Weighting) -> Weighting:
    """Make a weighting by its name, or copy one, and see that it gives weights.

    Parameters
    ----------
    weighting : str or Weighting
        A name in ``WEIGHTINGS``, or what is to be copied.

    Returns
    -------
    Weighting
        A new one, which may learn.

    Raises
    ------
    ValueError
        If the name is unknown, or what comes of it are no weights: of another shape or type than
        the similarities, NaN, negative, not summing to 1, or of neighbours that must not meet; or
        if a function that should look at one neighbour at a time looks at others.
    TypeError
        If what is registered by the name makes no weighting.

    Examples
    --------
    >>> from nona_sklearn.weighting import make_weighting
    >>> make_weighting("sparse_softmax")
    SparseSoftmax(n_neighbors=16)
    """
    if isinstance(weighting, Weighting):
        made = copy.deepcopy(weighting)
    else:
        check_choice("weighting", weighting, WEIGHTINGS)
        made = _registered(weighting)
    _try(made, weighting)
    return made


def _registered(name: str) -> Weighting:
    entry = WEIGHTINGS[name]
    try:
        made = copy.deepcopy(entry) if isinstance(entry, Weighting) else entry()
    except TypeError as error:
        raise TypeError(f"WEIGHTINGS[{name!r}] must make a Weighting without arguments") from error
    if not isinstance(made, Weighting):
        raise TypeError(f"WEIGHTINGS[{name!r}] must make a Weighting, got {made!r:.100}")
    return made


@torch.no_grad()
def _try(made: Weighting, given: str | Weighting) -> None:
    places = torch.tensor([[0.1, 0.5, 1.0, 4.0], [20.0, 2.0, 3.0, 2.5]])
    s, between = -places, _between(places)
    if made.one_by_one:
        nearest = s.amax(dim=1, keepdim=True)
        logits = made.log_weight(s, nearest)
        _check_tensor(logits, s, given)
        some = made.log_weight(s[:, 1:], nearest)
        ends = made.log_weight(torch.full_like(s, FAR), torch.full_like(nearest, FAR)) == -math.inf
        if ends.any():
            made.needs_nearest = True  # who answers where all are beyond
        if not torch.allclose(some, logits[:, 1:], EXACT, EXACT, equal_nan=True):
            raise ValueError(
                f"weighting={given!r} must look at one neighbour at a time; a subclass of "
                "Weighting that overrides weigh may look at all"
            )
    weights = made.weigh(s, None, between)
    _check_tensor(weights, s, given)
    fine = _are_shares(weights) & (weights > 0).any()
    if not fine.all():
        row = int(fine.long().argmin())
        raise ValueError(
            f"weighting={given!r} must give weights that are not negative and sum to 1, "
            f"got {weights[row].tolist()} of {s[row].tolist()}"
        )
    out = torch.tensor([[True, False, False, True], [True] * 4])
    log_measure = torch.zeros_like(s).masked_fill(out, -math.inf)
    weights = made.weigh(s, log_measure, between)
    if not (weights[out] == 0).all() or not _are_shares(weights).all():
        raise ValueError(
            f"weighting={given!r} must give nothing to neighbours of log_measure=-inf, and the "
            f"others what sums to 1, got {weights.tolist()} of {log_measure.tolist()}"
        )
    for distances in ([0.0, 2.0, 100.0, -FAR], [1.0]):  # a twin and far rows; one neighbour
        z = torch.tensor([distances])
        weights = made.weigh(-z, None, _between(z))
        if not _are_shares(weights).all():
            raise ValueError(
                f"weighting={given!r} must give weights that are not negative and sum to 1, "
                f"got {weights[0].tolist()} of {(-z)[0].tolist()}"
            )


def _between(places: Tensor) -> Between:
    """What similarities neighbours on a line, at these distances (q, n), have to each other."""

    def between(positions: Tensor) -> Tensor:
        z = places.gather(1, positions)
        return -(z[:, :, None] - z[:, None]).abs()

    return between


def _check_tensor(answer: Tensor, s: Tensor, given: str | Weighting) -> None:
    if not isinstance(answer, Tensor) or answer.dtype != s.dtype:
        got = answer.dtype if isinstance(answer, Tensor) else type(answer).__name__
        raise ValueError(
            f"weighting={given!r} must give a tensor of the similarities' type, "
            f"got {got} of {s.dtype}"
        )
    if answer.shape != s.shape:
        raise ValueError(
            f"weighting={given!r} must give weights of the similarities' shape, "
            f"got {tuple(answer.shape)} of {tuple(s.shape)}"
        )


def _are_shares(weights: Tensor) -> Tensor:
    """Whether each row's weights sum to 1, or are 0 where all are beyond their end, (q,)."""
    sums = weights.sum(dim=1)
    return (weights >= 0).all(dim=1) & (((sums - 1).abs() <= EXACT) | (sums == 0))
