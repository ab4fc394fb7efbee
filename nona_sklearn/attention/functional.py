"""Plain NONA as functions: weights from similarities, predictions from weights."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..similarity import l2
from ..weighting.base import LEAST_LOGIT, softmax

#: Positions of excluded pairs, (p,) queries and (p,) neighbours: faster than a mask for few.
Pairs = tuple[Tensor, Tensor]
#: Excluded pairs: their positions, or a mask (q, n); None: nothing is excluded.
Excluded = Pairs | Tensor | None
Similarity = Callable[[Tensor, Tensor], Tensor]


def neighbor_weights(logits: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Softmax over each query's admitted neighbours.

    Parameters
    ----------
    logits : Tensor of shape (q, n)
        Similarities, masked with SoftStep or not; -inf rejects a neighbour.
    excluded : bool Tensor of shape (q, n), optional
        True for excluded query-neighbour pairs, such as a training row and itself.

    Returns
    -------
    Tensor of shape (q, n)
        Weights, the paper's `w`. Each row sums to 1, or is all 0 where no neighbour is
        admitted; gradients are finite in both cases.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.attention import neighbor_weights
    >>> neighbor_weights(torch.tensor([[0.0, 1.0]]))  # [1, e] / (1 + e)
    tensor([[0.2689, 0.7311]])
    >>> neighbor_weights(torch.tensor([[0.0, 1.0]]), excluded=torch.tensor([[True, False]]))
    tensor([[0., 1.]])
    """
    return softmax(logits if excluded is None else logits.masked_fill(excluded, -math.inf))


def neighbor_attention(
    query: Tensor,
    neighbors: Tensor,
    targets: Tensor,
    *,
    similarity: Similarity = l2,
    weights: Callable[[Tensor, Tensor | None], Tensor] = neighbor_weights,
    excluded: Tensor | None = None,
) -> Tensor:
    """Plain NONA: the softmax-weighted mean of the neighbours' targets.

    ``y_hat = softmax(similarity(z, z_bank)) @ y_bank``, section 3 of [1]_.

    Parameters
    ----------
    query : Tensor of shape (q, d)
    neighbors : Tensor of shape (n, d)
        Their embeddings.
    targets : Tensor of shape (n,) or (n, n_outputs)
        The neighbours' targets.
    similarity : callable, default=l2
        One of :mod:`nona_sklearn.similarity`'s functions, or any (q, d), (n, d) -> (q, n).
    weights : callable, default=neighbor_weights
        Maps similarities and `excluded` to weights, (q, n).
    excluded : bool Tensor of shape (q, n), optional

    Returns
    -------
    Tensor of shape (q,) or (q, n_outputs)
        Predictions.

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.attention import neighbor_attention
    >>> neighbors, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([10.0, 20.0])
    >>> neighbor_attention(torch.tensor([[0.5]]), neighbors, targets)
    tensor([15.])
    """
    return weights(similarity(query, neighbors), excluded) @ targets


def attenuation(distance: Tensor, trust_radius: Tensor | float) -> Tensor:
    """Factor of an adjustment, at some distances of the nearest neighbour."""
    return torch.where(distance > trust_radius, trust_radius / distance, 1.0).square()


def adjusted_mean(
    plain: Tensor,
    expected: Tensor,
    total: Tensor | float,
    own: Tensor,
    attenuation: Tensor | float,
    shrinkage: float = 0.0,
    mean_residual: Tensor | float = 0.0,
) -> Tensor:
    """``sum_j w_j (y_j + attenuation (g(q) - g(j) - shrinkage (y_j - g(j) - mean_residual)))``.

    It is computed from sums over the neighbours: `plain` and `expected`, (q, c), are weighted
    means of the targets and of the neighbours' adjustments g(j); `own` are the queries' g(q).
    `total`, (q, 1), is the sum of the weights: 1, or 0 without neighbours.
    """
    difference = total * own - expected
    if shrinkage:  # further passes over what may be all pairs
        difference = difference - shrinkage * (plain - expected - total * mean_residual)
    return plain + attenuation * difference


def count_excluded(excluded: Excluded, n_queries: int) -> Tensor:
    """Number of each query's excluded neighbours, (q,)."""
    if excluded is None:
        return torch.zeros(n_queries, dtype=torch.long)
    if isinstance(excluded, Tensor):
        return excluded.sum(dim=1, dtype=torch.int32).long()  # faster than in int64
    return torch.bincount(excluded[0], minlength=n_queries)


class L2Attention(torch.autograd.Function):
    """:func:`neighbor_attention` with l2 and a temperature, in the fewest passes over the pairs.

    ``L2Attention.apply(query, neighbors, targets, temperature, excluded, log_prior)`` takes half
    the time of autograd's chain of functions, most of which is spent on new memory. For training:
    distances are rounded as in :func:`~nona_sklearn.similarity.rounded_l2`, and there is no
    second derivative. `excluded` is a mask, or :data:`Pairs`.
    """

    @staticmethod
    def forward(ctx, query, neighbors, targets, temperature, excluded=None, log_prior=None):
        center = neighbors.mean(dim=0)
        query, neighbors = query - center, neighbors - center
        squares = neighbors.square().sum(dim=1)
        floor = squares.mean() * torch.finfo(query.dtype).eps + torch.finfo(query.dtype).tiny
        distance = torch.addmm(squares, query, neighbors.T, alpha=-2)  # (q, n)
        distance.add_(query.square().sum(dim=1, keepdim=True))
        distance.clamp_min_(floor).sqrt_()  # below the floor, all is rounding
        weights = distance * (-1 / temperature)
        if log_prior is not None:
            weights.add_(log_prior)
        if excluded is not None:
            weights[excluded] = -math.inf
        weights.sub_(weights.amax(dim=1, keepdim=True)).clamp_min_(LEAST_LOGIT).exp_()
        if excluded is not None:
            weights[excluded] = 0
        weights.div_(weights.sum(dim=1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny))
        prediction = weights @ targets
        ctx.save_for_backward(
            query, neighbors, targets, temperature, distance, weights, prediction
        )
        return prediction

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        query, neighbors, targets, temperature, distance, weights, prediction = ctx.saved_tensors
        grad, prediction = grad.view(len(query), -1), prediction.view(len(query), -1)
        # dL/dlogit_ij = w_ij (grad_i . y_j - grad_i . prediction_i)
        mean = (grad * prediction).sum(dim=1, keepdim=True)
        pairs = torch.addmm(mean, grad, targets.view(len(neighbors), -1).T, beta=-1)
        pairs.mul_(weights)
        d_temperature = torch.dot(pairs.view(-1), distance.view(-1)) / temperature**2
        d_log_prior = pairs.sum(dim=0) if any(ctx.needs_input_grad[5:]) else None
        # dlogit_ij/dquery_i = (neighbor_j - query_i) / distance_ij / temperature
        pairs.div_(distance)
        d_query = pairs @ neighbors - pairs.sum(dim=1, keepdim=True) * query
        d_neighbors = (query.T @ pairs).T  # 0.6 of the time of pairs.T @ query
        d_neighbors = d_neighbors - pairs.sum(dim=0)[:, None] * neighbors
        d_targets = None
        if ctx.needs_input_grad[2]:
            d_targets = (weights.T @ grad).view_as(targets)
        d_query, d_neighbors = d_query / temperature, d_neighbors / temperature
        return d_query, d_neighbors, d_targets, d_temperature, None, d_log_prior
