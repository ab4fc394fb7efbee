"""Neighbour attention: weights from similarities, predictions from weights.

Rungs, each standing on the one before: :func:`neighbor_weights` (a masked softmax),
:func:`neighbor_attention` (plain NONA), :class:`NONAHead` (the trainable layer) and
:class:`AverageHead` (several of them on one bank).
"""

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ._validation import check_choice
from .ranking import outside_nearest
from .similarity import SIMILARITIES, TRAINING_SIMILARITIES, l2
from .softstep import SoftStep
from .weighting import WEIGHTINGS, Weighting

__all__ = [
    "AverageHead",
    "NONAHead",
    "neighbor_attention",
    "neighbor_weights",
]

LEAST_LOGIT = -60.0  # below the largest: nothing to float32, yet far from denormal numbers, where
# a processor takes ten times as long


def neighbor_weights(
    logits: Tensor,
    excluded: Tensor | None = None,
    normalize: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Softmax over each query's admitted neighbours.

    Parameters
    ----------
    logits : Tensor of shape (q, n)
        Similarities, masked with SoftStep or not; -inf rejects a neighbour.
    excluded : bool Tensor of shape (q, n), optional
        True for query-neighbour pairs that must not meet, such as a training row and itself.
    normalize : callable, optional
        What comes in place of the softmax (see :class:`nona_sklearn.weighting.Weighting`).

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
    normalize = normalize or _softmax
    if excluded is not None:
        logits = logits.masked_fill(excluded, -math.inf)
    alone = logits.amax(dim=1, keepdim=True) == -math.inf  # (q, 1): nobody to attend to
    if not alone.any():  # spares two passes over the pairs
        return normalize(logits)
    return normalize(logits.masked_fill(alone, 0.0)).masked_fill(alone, 0.0)


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=1)


def neighbor_attention(
    query: Tensor,
    neighbors: Tensor,
    targets: Tensor,
    *,
    similarity=l2,
    excluded: Tensor | None = None,
) -> Tensor:
    """Plain NONA: the softmax-weighted mean of the neighbours' targets.

    ``y_hat = softmax(similarity(z, z_bank)) @ y_bank``, the NONA paper's section 3.

    Parameters
    ----------
    query : Tensor of shape (q, d)
        Embeddings of the queries.
    neighbors : Tensor of shape (n, d)
        Embeddings of the neighbours.
    targets : Tensor of shape (n,) or (n, n_outputs)
        The neighbours' targets.
    similarity : callable, default=l2
        One of :mod:`nona_sklearn.similarity`'s functions, or any (q, d), (n, d) -> (q, n).
    excluded : bool Tensor of shape (q, n), optional
        True for query-neighbour pairs that must not meet.

    Returns
    -------
    Tensor of shape (q,) or (q, n_outputs)
        Predictions.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.attention import neighbor_attention
    >>> neighbors, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([10.0, 20.0])
    >>> neighbor_attention(torch.tensor([[0.5]]), neighbors, targets)
    tensor([15.])
    """
    return neighbor_weights(similarity(query, neighbors), excluded) @ targets


class L2Attention(torch.autograd.Function):
    """:func:`neighbor_attention` with l2 and a temperature, in the fewest passes over the pairs.

    ``L2Attention.apply(query, neighbors, targets, temperature, excluded)`` takes half the time
    of autograd's chain of functions, most of which goes into new memory. For training: the
    distances are rounded as :func:`~nona_sklearn.similarity.rounded_l2`'s are, and there is
    neither a second derivative nor one for `targets`.
    """

    @staticmethod
    def forward(ctx, query, neighbors, targets, temperature, excluded=None):
        center = neighbors.mean(dim=0)
        query, neighbors = query - center, neighbors - center
        squares = neighbors.square().sum(dim=1)
        floor = squares.mean() * torch.finfo(query.dtype).eps + torch.finfo(query.dtype).tiny
        distance = torch.addmm(squares, query, neighbors.T, alpha=-2)  # (q, n)
        distance.add_(query.square().sum(dim=1, keepdim=True))
        distance.clamp_min_(floor).sqrt_()  # below the floor is nothing but rounding
        weights = distance * (-1 / temperature)
        if excluded is not None:
            excluded = excluded.nonzero(as_tuple=True)  # few pairs: faster than a mask
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
        # dlogit_ij/dquery_i = (neighbor_j - query_i) / distance_ij / temperature
        pairs.div_(distance)
        d_query = pairs @ neighbors - pairs.sum(dim=1, keepdim=True) * query
        d_neighbors = pairs.T @ query - pairs.sum(dim=0)[:, None] * neighbors
        return d_query / temperature, d_neighbors / temperature, None, d_temperature, None


class NONAHead(nn.Module):
    """Prediction layer that replaces a dense head: attention over labelled neighbours.

    Parameters
    ----------
    similarity : {'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='l2'
        Similarity between embeddings.
    step : SoftStep, optional
        Learned mask on the similarities; None is plain NONA.
    weights : {'distance', 'uniform'}, default='distance'
        'distance' weighs a neighbour by ``step * exp(similarity / temperature)``, 'uniform'
        by the step alone, as k-NN with a soft k (see :mod:`nona_sklearn.weighting`).
    learn_temperature : bool, default=False
        Whether the temperature is learned; otherwise it is 1, as in the papers.
    n_neighbors : int, optional
        Admit only this many nearest neighbours of each query; None admits all.

    Raises
    ------
    ValueError
        If `similarity` or `weights` is unknown, `n_neighbors` is below 1, or nothing would
        weigh the neighbours: ``weights='uniform'`` without a `step` and without `n_neighbors`.

    Notes
    -----
    Shape:

    - query: (q, d); neighbors: (n, d); targets: (n,) or (n, n_outputs); excluded: bool (q, n);
      log_prior: (n,), the logarithm of what each neighbour weighs beforehand
    - output: (q,) or (q, n_outputs)

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import NONAHead, SoftStep
    >>> head = NONAHead(step=SoftStep("s1"))
    >>> query, neighbors, targets = torch.zeros(1, 2), torch.eye(2), torch.tensor([1.0, 3.0])
    >>> head(query, neighbors, targets)
    tensor([2.], grad_fn=<MvBackward0>)
    """

    def __init__(
        self,
        similarity: str = "l2",
        step: SoftStep | None = None,
        weights: str = "distance",
        learn_temperature: bool = False,
        n_neighbors: int | None = None,
    ):
        super().__init__()
        check_choice("similarity", similarity, SIMILARITIES)
        check_choice("weights", weights, WEIGHTINGS)
        if weights == "uniform" and step is None and n_neighbors is None:
            raise ValueError("weights='uniform' needs a step or n_neighbors, got neither")
        if n_neighbors is not None and n_neighbors < 1:
            raise ValueError(f"n_neighbors must be at least 1, got {n_neighbors}")
        self.similarity = similarity
        self.step: SoftStep | None = step
        self.weights = weights
        self.n_neighbors = n_neighbors
        if learn_temperature and self.weighting.tempered:
            self.log_temperature: Tensor = nn.Parameter(torch.zeros(()))

    @property
    def weighting(self) -> Weighting:
        """How a similarity becomes a weight."""
        return WEIGHTINGS[self.weights]

    @property
    def temperature(self) -> Tensor | float:
        """Divisor of the similarities: the larger, the flatter the weights."""
        return self.log_temperature.exp() if hasattr(self, "log_temperature") else 1.0

    @property
    def needs_whole_rows(self) -> bool:
        """Whether a weight depends on more of its row than the extremes and the sum."""
        ranks = self.n_neighbors is not None or (self.step is not None and self.step.on == "rank")
        return ranks or self.weighting.normalize is not None

    def parts(self, query: Tensor, neighbors: Tensor) -> list[tuple["NONAHead", Tensor, Tensor]]:
        """List each head with what it looks at: this one, at all."""
        return [(self, query, neighbors)]

    def neighbor_weights(
        self,
        query: Tensor,
        neighbors: Tensor,
        excluded: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """Weight of each neighbour for each query, shape (q, n); each row sums to 1."""
        function = SIMILARITIES[self.similarity]
        if self.training:
            function = TRAINING_SIMILARITIES.get(self.similarity, function)
        return self.weigh(function(query, neighbors), query, excluded, log_prior)

    def weigh(
        self,
        similarity: Tensor,
        query: Tensor,
        excluded: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """Weights from the similarities (q, n) of the queries."""
        logits = self.weighting.log_weight(similarity / self.temperature)
        if self.step is not None:
            logits = logits + self.step(similarity, query, excluded)
        if log_prior is not None:
            logits = logits + log_prior
        # The cap comes after the step, which would else reject the last of the k as the
        # farthest of its row.
        if self.n_neighbors is not None:
            excluded = outside_nearest(similarity, self.n_neighbors, excluded)
        return neighbor_weights(logits, excluded, self.weighting.normalize)

    def forward(
        self,
        query: Tensor,
        neighbors: Tensor,
        targets: Tensor,
        excluded: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        plain_l2 = (self.similarity, self.weights) == ("l2", "distance")
        plain_l2 = plain_l2 and self.step is None and self.n_neighbors is None
        if self.training and plain_l2 and log_prior is None and not targets.requires_grad:
            temperature = torch.as_tensor(self.temperature, device=query.device)
            return L2Attention.apply(query, neighbors, targets, temperature, excluded)
        return self.neighbor_weights(query, neighbors, excluded, log_prior) @ targets

    def extra_repr(self) -> str:
        return (
            f"similarity={self.similarity!r}, weights={self.weights!r}, "
            f"n_neighbors={self.n_neighbors}"
        )


class AverageHead(nn.Module):
    """Average of several heads, each on its own equal slice of the embeddings.

    The mean of predictions from the same targets is the prediction of the mean weights, so an
    average of networks still names the rows behind its predictions.

    Parameters
    ----------
    heads : sequence of NONAHead
        The heads; the first looks at the first slice of the embeddings.

    Notes
    -----
    Shape:

    - query: (q, h d); neighbors: (n, h d); targets: (n,) or (n, n_outputs); excluded: bool (q, n);
      log_prior: (n,)
    - output: (q,) or (q, n_outputs)

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.attention import AverageHead, NONAHead
    >>> head = AverageHead([NONAHead("l2"), NONAHead("dot")])
    >>> query, neighbors, targets = torch.zeros(1, 4), torch.eye(4), torch.arange(4.0)
    >>> head(query, neighbors, targets).shape
    torch.Size([1])
    """

    def __init__(self, heads: Sequence[nn.Module]):
        super().__init__()
        self.heads = nn.ModuleList(heads)

    def parts(self, query: Tensor, neighbors: Tensor) -> list[tuple[NONAHead, Tensor, Tensor]]:
        """List each head with the slices (q, d) and (n, d) that it looks at."""
        n = len(self.heads)
        heads = cast("list[NONAHead]", list(self.heads))
        return list(zip(heads, query.chunk(n, 1), neighbors.chunk(n, 1), strict=True))

    def neighbor_weights(
        self,
        query: Tensor,
        neighbors: Tensor,
        excluded: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """Weight of each neighbour for each query, shape (q, n); each row sums to 1."""
        weights = [
            head.neighbor_weights(q, n, excluded, log_prior)
            for head, q, n in self.parts(query, neighbors)
        ]
        return torch.stack(weights).mean(dim=0)

    def forward(
        self,
        query: Tensor,
        neighbors: Tensor,
        targets: Tensor,
        excluded: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        return self.neighbor_weights(query, neighbors, excluded, log_prior) @ targets
