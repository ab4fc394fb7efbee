"""The weighting that looks at the similarities between neighbours, as kriging does."""

import math

import torch
from torch import Tensor, nn

from .._utils.validation import check_integer
from ..ranking import nearest_first
from .base import Between, Weighting, admitted

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
        total = votes.sum(dim=1, keepdim=True)
        weights = votes / torch.where(total > 0, total, 1.0)
        return torch.zeros_like(log_measure).scatter(1, positions, weights)

    def extra_repr(self, **options: object) -> str:
        return super().extra_repr(n_neighbors=self.n_neighbors, **options)
