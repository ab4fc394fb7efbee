"""Weightings that are a function of each similarity, over the sum."""

import math

import torch
from torch import Tensor, nn

from .base import Weighting

MAX_EXPONENT = 80.0  # its exponential is in float32's range
FAINT = 18.0  # below -FAINT, the square of the exponential is lost beside 1 even in float64
FARTHEST = 1e18  # in bandwidths: its square is in float32's range
NO_LEAD = 1e-6  # of a neighbour without weight over softpick's threshold
LEAST_LEAD = 0.1  # of the nearest neighbour over softpick's threshold


class Softmax(Weighting):
    """``phi(s) = exp(s)``: the weights of the NONA paper.

    See section 3 of [1]_.

    Parameters
    ----------
    learn_temperature : bool, default=True
        Whether similarities are divided by a temperature where the head learns one. False: they
        are used as they are, as in the papers.

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Softmax
    >>> Softmax().weigh(torch.tensor([[0.0, 1.0]]))  # [1, e] / (1 + e)
    tensor([[0.2689, 0.7311]])
    """

    def __init__(self, *, learn_temperature: bool = True):
        super().__init__(learn_temperature=learn_temperature)

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        return s


class Uniform(Weighting):
    """``phi(s) = 1``: weights are those of the step or of `n_neighbors`, as in unweighted k-NN.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Uniform
    >>> Uniform().weigh(torch.tensor([[0.0, 1.0]]))
    tensor([[0.5000, 0.5000]])
    """

    depends_on_similarity = False

    def __init__(self) -> None:
        super().__init__()

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        return torch.zeros_like(s)


class Gaussian(Weighting):
    """``phi(s) = exp(-s^2 / 2)`` of a distance over a bandwidth: Nadaraya and Watson's kernel.

    It is the weight of SOFT attention [1]_. The temperature is the bandwidth.

    Parameters
    ----------
    learn_temperature : bool, default=True
        As for :class:`Softmax`.

    References
    ----------
    .. [1] "SOFT", arXiv:2207.03341.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Gaussian
    >>> Gaussian().weigh(torch.tensor([[-1.0, -2.0]]))
    tensor([[0.8176, 0.1824]])
    """

    of_distances = True

    def __init__(self, *, learn_temperature: bool = True):
        super().__init__(learn_temperature=learn_temperature)

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        return s.clamp_min(-FARTHEST).square() / -2


class Sigmoid(Weighting):
    """``phi(s) = sigmoid(s + b)``, `b` learned: uniform for near neighbours, softmax for far ones.

    These are the weights of sigmoid attention [1]_, normalised.

    Parameters
    ----------
    learn_temperature : bool, default=True
        As for :class:`Softmax`.

    References
    ----------
    .. [1] Sigmoid attention, arXiv:2409.04431.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Sigmoid
    >>> Sigmoid().weigh(torch.tensor([[0.0, -torch.log(torch.tensor(3.0))]]))  # 1/2 and 1/4
    tensor([[0.6667, 0.3333]], grad_fn=<SoftmaxBackward0>)
    """

    def __init__(self, *, learn_temperature: bool = True):
        super().__init__(learn_temperature=learn_temperature)
        self.bias = nn.Parameter(torch.zeros(()))

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        return -log1p_exp(-self.bias - s)


class Softplus(Weighting):
    """``phi(s) = softplus(s + b)^p``, `b` and `p` learned.

    These are the weights of softplus attention with re-weighting [1]_: a larger power gives the
    nearest rows more weight.

    Parameters
    ----------
    learn_temperature : bool, default=True
        As for :class:`Softmax`.

    References
    ----------
    .. [1] Softplus attention, arXiv:2501.13428.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Softplus
    >>> Softplus().weigh(torch.tensor([[0.0, -1.0]]))  # log(1 + exp(s)): 0.6931 and 0.3133
    tensor([[0.6887, 0.3113]], grad_fn=<SoftmaxBackward0>)
    """

    def __init__(self, *, learn_temperature: bool = True):
        super().__init__(learn_temperature=learn_temperature)
        self.bias = nn.Parameter(torch.zeros(()))
        self.log_power = nn.Parameter(torch.zeros(()))

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        x = s + self.bias
        log_softplus = log1p_exp(x.clamp_min(-FAINT)).log()
        if x.detach().amin() < -FAINT:
            log_softplus = torch.where(x < -FAINT, faint_log_softplus(x), log_softplus)
        return self.log_power.exp() * log_softplus


def log1p_exp(x: Tensor) -> Tensor:
    """``log(1 + exp(x))``, by functions that give an entry the same digits at any position."""
    if x.detach().amax() <= MAX_EXPONENT:  # saves three passes
        return x.exp().log1p()
    return clamped_log1p_exp(x)


def clamped_log1p_exp(x: Tensor) -> Tensor:
    """:func:`log1p_exp` of numbers of any size."""
    return torch.where(x > MAX_EXPONENT, x, x.clamp_max(MAX_EXPONENT).exp().log1p())


def faint_log_softplus(x: Tensor) -> Tensor:
    """``log(log(1 + exp(x)))`` below -FAINT, where log(log1p(u)) = log(u) - u / 2."""
    return x - x.exp() / 2


class Softpick(Weighting):
    """``phi(s) = max(0, exp(s - b) - 1)``, `b` learned: weights end at a distance.

    The weights are those of Softpick [1]_. If even the nearest neighbour is beyond `b`, or just
    within, `b` is set 0.1 below it, so that the nearest neighbour always has weight.

    Parameters
    ----------
    learn_temperature : bool, default=True
        As for :class:`Softmax`.

    References
    ----------
    .. [1] "Softpick", arXiv:2504.20966.

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

    def __init__(self, *, learn_temperature: bool = True):
        super().__init__(learn_temperature=learn_temperature)
        self.threshold = nn.Parameter(torch.tensor(-5.0))

    @property
    def ends(self) -> bool:
        return True

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        assert nearest is not None
        # Below the least lead the logarithm's gradient would be infinite.
        lead = self._lead(s, nearest).clamp_min(NO_LEAD)
        return (s + lead.neg().exp().neg().log1p()).masked_fill(lead == NO_LEAD, -math.inf)

    def _lead(self, s: Tensor, nearest: Tensor) -> Tensor:
        """Similarities above the threshold."""
        # By way of the nearest, with a lead that no rounding removes, however far it is.
        return (s - nearest) + (nearest - self.threshold.to(s.dtype)).clamp_min(LEAST_LEAD)
