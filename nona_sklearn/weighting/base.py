"""The protocol of a weighting, and the softmax that normalises weights."""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from .._utils.validation import check_flag

Between = Callable[[Tensor], Tensor]

#: Logits below the largest by more than this are clamped: in float32 their weights vanish beside
#: it, and they stay far from denormal numbers, for which a processor takes ten times as long.
LEAST_LOGIT = -60.0
AS_NEAR = 1e-6  # of a similarity: rounding may change the nearest by so much


class Weighting(nn.Module):
    """How a similarity becomes a weight; by itself, a function of one neighbour at a time.

    Parameters
    ----------
    function : callable, optional
        Maps similarities over the temperature (q, n), one by one, to the logarithms of weights
        before they are normalised, (q, n); -inf is no weight. Subclasses override
        :meth:`log_weight` instead, and may learn parameters; they override :meth:`weigh` where
        weights depend on the whole row.
    learn_temperature : bool, default=True
        Whether a head that learns a temperature learns one for this weighting. False: 1.

    Attributes
    ----------
    depends_on_similarity : bool
        Whether weights depend on similarities at all, so that a temperature matters.
    of_distances : bool
        Whether similarities must be negative distances.
    needs_nearest : bool
        Whether :meth:`log_weight` needs the similarity of each query's nearest neighbour.
    ties : bool
        Whether equally near neighbours, such as equal rows, count as one of `n_neighbors`.
    n_neighbors : int or None
        From how many nearest neighbours weights are computed; None: all.

    Examples
    --------
    Student's t, as in t-SNE:

    >>> import torch
    >>> from nona_sklearn import NONAHead
    >>> from nona_sklearn.weighting import Weighting
    >>> head = NONAHead("l2", weighting=Weighting(lambda s: -s.square().log1p()))
    >>> head.neighbor_weights(torch.zeros(1, 1), torch.tensor([[1.0], [2.0]]))
    tensor([[0.7143, 0.2857]])
    """

    depends_on_similarity: ClassVar[bool] = True
    of_distances: ClassVar[bool] = False
    ties: ClassVar[bool] = False
    learn_temperature: bool = True  # also of files that were written before the option
    needs_nearest: bool = False
    n_neighbors: int | None = None

    @property
    def most_nonzero(self) -> int | None:
        """How many nearest neighbours can have weight; None: all."""
        return self.n_neighbors

    @property
    def ends(self) -> bool:
        """Whether weights end at a distance of their own, which differs between queries."""
        return False

    def __init__(
        self, function: Callable[[Tensor], Tensor] | None = None, *, learn_temperature: bool = True
    ):
        super().__init__()
        overridden = type(self).log_weight is not Weighting.log_weight or not self.one_by_one
        if not callable(function) and not (function is None and overridden):
            raise ValueError(f"function must be callable, got {function!r}")
        check_flag("learn_temperature", learn_temperature)
        self.function = function
        self.learn_temperature = bool(learn_temperature)

    @property
    def one_by_one(self) -> bool:
        """Whether weights are a function of each similarity, over their sum."""
        return type(self).weigh is Weighting.weigh

    def log_weight(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        """Logarithms of weights before normalisation, -inf for no weight.

        Parameters
        ----------
        s : Tensor of shape (q, n)
            Similarities over the temperature.
        nearest : Tensor of shape (q, 1), optional
            The largest similarities of the admitted neighbours, if ``needs_nearest``.

        Returns
        -------
        Tensor of shape (q, n)
            Logarithms of weights, each of its similarity alone.
        """
        assert self.function is not None
        return self.function(s)

    def weigh(
        self, s: Tensor, log_measure: Tensor | None = None, between: Between | None = None
    ) -> Tensor:
        """Weights of all neighbours of each query.

        Parameters
        ----------
        s : Tensor of shape (q, n)
            Similarities over the temperature.
        log_measure : Tensor of shape (q, n), optional
            Logarithm of each neighbour's prior weight: its sample weight times the step; -inf
            excludes it. None: all are 1.
        between : callable, optional
            Maps positions of k neighbours of each query, (q, k), to their similarities to each
            other over the temperature, (q, k, k).

        Returns
        -------
        Tensor of shape (q, n)
            Weights; each row sums to 1, or is all 0 where no neighbour is admitted.
        """
        if self.needs_nearest:
            nearest = admitted(s, log_measure).amax(dim=1, keepdim=True)
            logits = self.log_weight(s, nearest)
            lost = self.log_weight(nearest, nearest) == -math.inf  # (q, 1)
            if lost.any():  # where even the nearest has no weight, it gets all
                logits = torch.where(lost, nearest_only(s, nearest), logits)
        else:
            logits = self.log_weight(s)
        return softmax(logits if log_measure is None else logits + log_measure)

    def extra_repr(self, **options: object) -> str:
        """Options, as the representation lists them."""
        if not self.learn_temperature:
            options["learn_temperature"] = False
        return ", ".join(f"{name}={value!r}" for name, value in options.items())


def softmax(logits: Tensor) -> Tensor:
    """Softmax of each row, (q, n); rows of nothing but -inf are all 0."""
    empty = logits.amax(dim=1, keepdim=True) == -math.inf  # (q, 1): no neighbour is admitted
    if not empty.any():  # saves two passes over the pairs
        return logits.softmax(dim=1)
    return logits.masked_fill(empty, 0.0).softmax(dim=1).masked_fill(empty, 0.0)


def normalize(weights: Tensor) -> Tensor:
    """Weights over the sum of their row, (q, n); rows of nothing but 0 stay."""
    total = weights.sum(dim=1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0)


def admitted(s: Tensor, log_measure: Tensor | None) -> Tensor:
    """Similarities without gradient, (q, n), -inf for neighbours of no measure."""
    s = s.detach()
    return s if log_measure is None else s.masked_fill(log_measure == -math.inf, -math.inf)


def nearest_only(s: Tensor, nearest: Tensor) -> Tensor:
    """Logits, (q, n), that give all weight to the nearest neighbour and those as near."""
    return torch.zeros_like(s).masked_fill(s < nearest - AS_NEAR * nearest.abs(), -math.inf)


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
        # Over the threshold, by way of the nearest, whose lead no rounding removes.
        lead = (s - nearest) + (nearest - self.threshold.to(s.dtype)).clamp_min(LEAST_LEAD)
        lead = lead.clamp_min(NO_LEAD)  # below, the logarithm's gradient would be infinite
        return (s + lead.neg().exp().neg().log1p()).masked_fill(lead == NO_LEAD, -math.inf)


FAR = -1e4  # a similarity without weight here is beyond the end of a weighting
TOLERANCE = 1e-4  # of sums of weights, and of logarithms


@torch.no_grad()
def check_weighting(weighting: Weighting, given: str | Weighting) -> None:
    """Refuse what gives no weights, and set ``needs_nearest`` if weights end at a distance.

    `given` is the user's parameter, for the message.
    """
    name = f"weighting={given!r}"
    distances = torch.tensor([[0.1, 0.5, 1.0, 4.0], [20.0, 2.0, 3.0, 2.5]])
    s, between = -distances, _between(distances)
    if weighting.one_by_one:
        nearest = s.amax(dim=1, keepdim=True)
        logits = weighting.log_weight(s, nearest)
        _check_tensor(logits, s, name)
        far = weighting.log_weight(torch.full_like(s, FAR), torch.full_like(nearest, FAR))
        if (far == -math.inf).any():
            weighting.needs_nearest = True  # which gets all weight where all are beyond the end
        some = weighting.log_weight(s[:, 1:], nearest)
        if not torch.allclose(some, logits[:, 1:], TOLERANCE, TOLERANCE, equal_nan=True):
            raise ValueError(
                f"{name} must look at one neighbour at a time; a subclass of Weighting that "
                "overrides weigh may look at all"
            )
    _check_tensor(weighting.weigh(s, None, between), s, name)
    _check_weights(weighting, distances, name)
    excluded = torch.tensor([[True, False, False, True], [True] * 4])
    log_measure = torch.zeros_like(s).masked_fill(excluded, -math.inf)
    weights = weighting.weigh(s, log_measure, between)
    if not (weights[excluded] == 0).all() or not _are_shares(weights).all():
        raise ValueError(
            f"{name} must give nothing to neighbours of log_measure=-inf, and the others what "
            f"sums to 1, got {weights.tolist()} of {log_measure.tolist()}"
        )
    _check_weights(weighting, torch.tensor([[0.0, 2.0, 100.0, -FAR]]), name)  # an equal row
    _check_weights(weighting, torch.tensor([[1.0]]), name)  # a single neighbour


def _check_weights(weighting: Weighting, distances: Tensor, name: str) -> None:
    weights = weighting.weigh(-distances, None, _between(distances))
    fine = _are_shares(weights)
    if len(distances) > 1:  # near and far: some have weight
        fine &= (weights > 0).any()
    if not fine.all():
        row = int(fine.long().argmin())
        raise ValueError(
            f"{name} must give weights that are not negative and sum to 1, "
            f"got {weights[row].tolist()} of {(-distances)[row].tolist()}"
        )


def _between(distances: Tensor) -> Between:
    """Similarities of neighbours on a line, at these distances (q, n), to each other."""

    def between(positions: Tensor) -> Tensor:
        z = distances.gather(1, positions)
        return -(z[:, :, None] - z[:, None]).abs()

    return between


def _check_tensor(result: Tensor, s: Tensor, name: str) -> None:
    got = result.dtype if isinstance(result, Tensor) else type(result).__name__
    if got != s.dtype:
        what = f"a tensor of the similarities' type, got {got} of {s.dtype}"
        raise ValueError(f"{name} must give {what}")
    if result.shape != s.shape:
        what = f"the similarities' shape, got {tuple(result.shape)} of {tuple(s.shape)}"
        raise ValueError(f"{name} must give weights of {what}")


def _are_shares(weights: Tensor) -> Tensor:
    """Whether each row's weights sum to 1, or are 0 where all are beyond the end, (q,)."""
    sums = weights.sum(dim=1)
    return (weights >= 0).all(dim=1) & (((sums - 1).abs() <= TOLERANCE) | (sums == 0))
