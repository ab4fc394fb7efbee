"""Weightings that give most neighbours of a query no weight."""

import math

import torch
from torch import Tensor, nn

from .._utils.validation import check_integer, is_real
from ..ranking import largest, nearest_first
from .base import LEAST_LOGIT, Between, Softmax, Weighting, admitted, normalize, softmax

FIRST_SUPPORT = 64  # neighbours among which a support is sought first
NEWTON_STEPS = 8  # to a threshold: convergence is quadratic, and the start never far
RESOLVED = 16  # roundings by which the threshold is below the heaviest neighbour, at least
LEAST_ALPHA = 0.01  # above 1, of one that is learned: powers of 100 still leave digits


class SparseSoftmax(Softmax):
    """Softmax of the `n_neighbors` nearest, the neighbours of k-NN.

    It is known as sparse softmax [1]_.

    Parameters
    ----------
    n_neighbors : int, default=16
        Number of rows that have weight. Of equally near rows, the first have.
    learn_temperature : bool, default=True
        As for :class:`Softmax`.

    References
    ----------
    .. [1] Sparse softmax, arXiv:2112.12433.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import NONAHead
    >>> from nona_sklearn.weighting import SparseSoftmax
    >>> head = NONAHead("dot", weighting=SparseSoftmax(2))
    >>> head.neighbor_weights(torch.ones(1, 1), torch.tensor([[0.0], [1.0], [1.0]]))
    tensor([[0.0000, 0.5000, 0.5000]])
    """

    def __init__(self, n_neighbors: int = 16, *, learn_temperature: bool = True):
        super().__init__(learn_temperature=learn_temperature)
        self.n_neighbors = check_integer("n_neighbors", n_neighbors)

    def extra_repr(self, **options: object) -> str:
        return super().extra_repr(n_neighbors=self.n_neighbors, **options)


class Triangular(Weighting):
    """Weights that fall linearly from the query to the last of the `n_neighbors` nearest.

    ``w_j = max(0, d_k - d_j)`` for the distance ``d_k`` of the k-th nearest row, the triangular
    kernel of nearest neighbours [1]_. A row that comes to the nearest or leaves them has no weight
    then, so that weights change continuously with the query. Equally near rows have equal weights,
    of k such rows all but the last. Of fewer than k rows, ``d_k`` is twice the distance of the
    farthest.

    Parameters
    ----------
    n_neighbors : int, default=16
        The number k, at least 2. All but the last have weight.

    References
    ----------
    .. [1] Hechenbichler and Schliep, "Weighted k-Nearest-Neighbor Techniques and Ordinal
       Classification", 2004, Discussion Paper 399, SFB 386, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import NONAHead
    >>> from nona_sklearn.weighting import Triangular
    >>> head = NONAHead("l1", weighting=Triangular(3))
    >>> head.neighbor_weights(torch.zeros(1, 1), torch.tensor([[1.0], [2.0], [5.0], [9.0]]))
    tensor([[0.5714, 0.4286, 0.0000, 0.0000]])
    """

    of_distances = True

    def __init__(self, n_neighbors: int = 16):
        super().__init__(learn_temperature=False)  # weights do not depend on the unit
        self.n_neighbors = check_integer("n_neighbors", n_neighbors, 2)

    @property
    def most_nonzero(self) -> int | None:
        assert self.n_neighbors is not None
        return self.n_neighbors - 1

    def weigh(
        self, s: Tensor, log_measure: Tensor | None = None, between: Between | None = None
    ) -> Tensor:
        assert self.n_neighbors is not None
        if s.shape[1] > self.n_neighbors:  # of equally near rows, the first are taken
            nearest = nearest_first(admitted(s, log_measure), None, self.n_neighbors)
            measure = None if log_measure is None else log_measure.gather(1, nearest)
            weights = self.weigh(s.gather(1, nearest), measure)
            return torch.zeros_like(s).scatter(1, nearest, weights)
        is_row = admitted(s, log_measure) > -math.inf
        s = s.masked_fill(~is_row, 0.0)
        end = s.amin(dim=1, keepdim=True)
        full = is_row.sum(dim=1, keepdim=True) == self.n_neighbors
        gaps = (s - torch.where(full, end, 2 * end)).masked_fill(~is_row, 0.0)
        equal = (gaps == 0).all(dim=1, keepdim=True)
        is_last = torch.arange(s.shape[1], device=s.device) == self.n_neighbors - 1
        gaps = torch.where(equal, (is_row & ~is_last).to(gaps), gaps)
        if log_measure is not None:
            most = log_measure.amax(dim=1, keepdim=True)
            gaps = gaps * (log_measure - torch.where(most.isfinite(), most, 0.0)).exp()
        return normalize(gaps)

    def extra_repr(self, **options: object) -> str:
        return f"n_neighbors={self.n_neighbors}"


class Entmax(Weighting):
    """``w_j = m_j max(0, (alpha - 1) s_j - tau)^(1 / (alpha - 1))``, which sum to 1 for one `tau`.

    It lies between softmax (``alpha = 1``) and sparsemax (``alpha = 2``, [1]_). The larger alpha
    is, the fewer neighbours have weight [2]_. A row with a sample weight of 2 equals two rows.

    Parameters
    ----------
    alpha : float, default=1.5
        From 1 to 2.
    learn_alpha : bool, default=False
        Whether alpha is learned [3]_, strictly between 1 and 2, starting at `alpha`.
    learn_temperature : bool, default=True
        As for :class:`Softmax`.

    References
    ----------
    .. [1] Martins and Astudillo, 2016, arXiv:1602.02068.
    .. [2] Peters et al., 2019, arXiv:1905.05702.
    .. [3] Correia et al., 2019, arXiv:1909.00015.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.weighting import Entmax
    >>> Entmax(2.0).weigh(torch.tensor([[0.0, 0.5, -1.0]]))
    tensor([[0.2500, 0.7500, 0.0000]])
    """

    def __init__(
        self, alpha: float = 1.5, learn_alpha: bool = False, *, learn_temperature: bool = True
    ):
        super().__init__(learn_temperature=learn_temperature)
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
    def ends(self) -> bool:
        return self.start > 1  # else it is softmax

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
        while True:  # the neighbours of positive weight are the nearest
            last, positions = largest(nearness, min(k, n))
            weights = self._weigh_sorted(s.gather(1, positions), log_measure.gather(1, positions))
            complete = (weights[:, -1] == 0) | (last[:, -1] == -math.inf)
            if k >= n or complete.all():
                return torch.zeros_like(s).scatter(1, positions, weights)
            k *= 4

    def _weigh_sorted(self, s: Tensor, log_measure: Tensor) -> Tensor:
        """Weights of some neighbours, nearest first, as if there were no others."""
        excluded = log_measure == -math.inf
        empty = excluded.all(dim=1, keepdim=True)
        power = self.alpha - 1
        # Of a larger measure, the threshold would round to the similarity itself.
        most = -math.log(RESOLVED * torch.finfo(s.dtype).eps) / power
        beyond = (log_measure.amax(dim=1, keepdim=True) - most).clamp_min(0.0)
        log_measure = (log_measure - beyond).clamp_min(LEAST_LOGIT)
        log_measure = log_measure.masked_fill(excluded, -math.inf)
        # Of an empty row the first is not the nearest, and powers might overflow.
        x = (power * (s - s.detach()[:, :1])).masked_fill(empty, 0.0)
        x = x.masked_fill(excluded & ~empty, -math.inf)
        m = log_measure.exp()
        with torch.no_grad():  # no weight exceeds 1: (x - low)^(1 / power) <= 1 / m
            low = (x - (-power * log_measure).exp()).amax(dim=1, keepdim=True)
            low = torch.where(empty, -1.0, low)
            threshold = _solve_threshold(x, m, low, 1 / power)
            gap = (x - threshold).clamp_min(0)
            slope = (_positive_power(gap, 1 / power - 1) * m).sum(dim=1, keepdim=True) / power
        # The last Newton step; gradients pass through it.
        excess = (_positive_power(x - threshold, 1 / power) * m).sum(dim=1, keepdim=True) - 1
        excess = excess / slope.masked_fill(empty, 1.0)
        weights = _positive_power(x - threshold - excess, 1 / power) * m
        return weights / weights.sum(dim=1, keepdim=True).masked_fill(empty, 1.0)

    def extra_repr(self, **options: object) -> str:
        own = {"alpha": self.start, "learn_alpha": self.learn_alpha}
        return super().extra_repr(**own, **options)


def _positive_power(gap: Tensor, power: Tensor | float) -> Tensor:
    """``max(0, gap) ** power``, 0 where the gap is not positive, for any power."""
    above = gap > 0
    return torch.where(above, gap, 1.0) ** power * above


def _solve_threshold(x: Tensor, m: Tensor, low: Tensor, power: Tensor | float) -> Tensor:
    """Solve ``sum_j m_j max(0, x_j - tau)^power = 1`` for tau, from below; power >= 1.

    Newton's method on the sum's root of that power, a norm, which is convex and nearly linear.
    """
    for _ in range(NEWTON_STEPS):
        gap = x - low
        terms = _positive_power(gap, power - 1) * m
        total = (terms * gap.clamp_min(0)).sum(dim=1, keepdim=True)
        root = total ** (1 / power)
        slope = terms.sum(dim=1, keepdim=True) * root / total
        low = low + torch.where(total > 1, (root - 1) / slope, 0.0)
    return low


LEAST_RIDGE = 1e-3  # of a similarity to itself: with less, rounding would dominate


class Preconditioned(Weighting):
    """``w ~ max(0, (K + ridge / m)^-1 k)`` of the nearest: near-duplicates share a weight.

    `k` are exponentials of similarities to the query, `K` those between the neighbours, as in
    LUCID attention [1]_. Without the maximum, this is kriging. The ridge is learned. With
    softmax, ten copies of a row have ten times its weight; here, little more than one of it.

    Parameters
    ----------
    n_neighbors : int, default=32
        Number of nearest neighbours that may have weight. Equally near rows, such as copies,
        count as one.
    learn_temperature : bool, default=True
        As for :class:`Softmax`.

    References
    ----------
    .. [1] "LUCID", arXiv:2602.10410.

    Examples
    --------
    The two equal neighbours together have about the weight of the third:

    >>> import torch
    >>> from nona_sklearn import NONAHead
    >>> from nona_sklearn.weighting import Preconditioned, Softmax
    >>> query, neighbors = torch.zeros(1, 1), torch.tensor([[1.0], [-1.0], [-1.0]])
    >>> NONAHead("l2", weighting=Preconditioned()).neighbor_weights(query, neighbors).detach()
    tensor([[0.4..., 0.2..., 0.2...]])
    >>> NONAHead("l2", weighting=Softmax()).neighbor_weights(query, neighbors)
    tensor([[0.3333, 0.3333, 0.3333]])
    """

    ties = True

    def __init__(self, n_neighbors: int = 32, *, learn_temperature: bool = True):
        super().__init__(learn_temperature=learn_temperature)
        self.n_neighbors = check_integer("n_neighbors", n_neighbors)
        self.log_ridge = nn.Parameter(torch.zeros(()))

    @property
    def ridge(self) -> Tensor:
        """Summand of a similarity to itself, which is 1."""
        return self.log_ridge.exp().clamp_min(LEAST_RIDGE)

    def weigh(
        self, s: Tensor, log_measure: Tensor | None = None, between: Between | None = None
    ) -> Tensor:
        assert between is not None
        if log_measure is None:
            log_measure = torch.zeros_like(s)
        n_admitted = int((log_measure > -math.inf).sum(dim=1).max())  # by the head
        positions = nearest_first(admitted(s, log_measure), None, max(n_admitted, 1))
        log_m = log_measure.gather(1, positions)  # (q, k)
        s = s.gather(1, positions)
        k = (s - s.detach()[:, :1]).masked_fill(log_m == -math.inf, -math.inf).exp()
        logits = between(positions)  # (q, k, k)
        own = logits.diagonal(dim1=1, dim2=2)
        K = (logits - (own[:, :, None] + own[:, None]) / 2).exp().to(k.dtype)
        # (K + ridge / m)^-1 k as M (M K M + ridge)^-1 M k, M the root of m: no m is too small.
        peak = log_m.detach().amax(dim=1, keepdim=True).clamp_min(torch.finfo(log_m.dtype).min)
        root = ((log_m - peak) / 2).exp()
        system = peak.exp()[..., None] * root[:, :, None] * K * root[:, None]
        system = system + torch.diag_embed(self.ridge.to(k.dtype).expand_as(k))
        votes = (root * torch.linalg.solve(system, root * k)).clamp_min(0)
        return torch.zeros_like(log_measure).scatter(1, positions, normalize(votes))

    def extra_repr(self, **options: object) -> str:
        return super().extra_repr(n_neighbors=self.n_neighbors, **options)
