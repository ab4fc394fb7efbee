"""Several heads on one bank."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .functional import Excluded
from .head import NONAHead


class AverageHead(nn.Module):
    """Average of several heads, each on its own equal slice of the embeddings.

    The mean of predictions from the same targets is the prediction of the mean weights, so that
    an average of networks still has the rows behind its predictions. Shapes are as for
    :class:`~nona_sklearn.NONAHead`, but for embeddings: (q, h d) and (n, h d).

    Parameters
    ----------
    heads : sequence of NONAHead
        The heads; the first is applied to the first slice of the embeddings.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.attention import AverageHead, NONAHead
    >>> head = AverageHead([NONAHead("l2"), NONAHead("dot")])
    >>> neighbors, targets = torch.eye(4)[:2], torch.tensor([1.0, 3.0])
    >>> head(torch.zeros(1, 4), neighbors, targets)
    tensor([2.])
    """

    def __init__(self, heads: Sequence[nn.Module]):
        super().__init__()
        self.heads = nn.ModuleList(heads)

    def split_by_head(
        self, query: Tensor, neighbors: Tensor
    ) -> list[tuple[NONAHead, Tensor, Tensor]]:
        """List each head with its slices (q, d) and (n, d) of the embeddings."""
        n = len(self.heads)
        heads = cast("list[NONAHead]", list(self.heads))
        return list(zip(heads, query.chunk(n, 1), neighbors.chunk(n, 1), strict=True))

    def metric_part(self, embeddings: Tensor) -> Tensor:
        """Columns in which each head compares rows, side by side: all but the adjustments."""
        split = self.split_by_head(embeddings, embeddings)
        return torch.cat([head.metric_part(z) for head, z, _ in split], dim=1)

    def most_weighed(self, n: int) -> int | None:
        """How many of n neighbours are all that the heads' weights are computed from."""
        return self._sum(NONAHead.most_weighed, n)

    def most_nonzero(self, n: int) -> int | None:
        """How many of n neighbours can have weight, for any query; None: all."""
        return self._sum(NONAHead.most_nonzero, n)

    def _sum(self, bound: Callable[[NONAHead, int], int | None], n: int) -> int | None:
        each = [bound(head, n) for head in cast("list[NONAHead]", list(self.heads))]
        bounds = [most for most in each if most is not None]
        return min(sum(bounds), n) if len(bounds) == len(each) else None

    def neighbor_weights(
        self,
        query: Tensor,
        neighbors: Tensor,
        excluded: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """Weight of each neighbour for each query.

        Parameters
        ----------
        query : Tensor of shape (q, h d)
            Embeddings of the queries.
        neighbors : Tensor of shape (n, h d)
            Embeddings of the neighbours.
        excluded : bool Tensor of shape (q, n), optional
            Pairs that have no weight, such as a training row and itself.
        log_prior : Tensor of shape (n,), optional
            Logarithm of each neighbour's prior weight. None: all are equal.

        Returns
        -------
        Tensor of shape (q, n)
            Weights. Each row sums to 1, or is all 0 where no neighbour is admitted.
        """
        split = self.split_by_head(query, neighbors)
        weights = [head.neighbor_weights(q, z, excluded, log_prior) for head, q, z in split]
        return torch.stack(weights).mean(dim=0)

    def forward(
        self,
        query: Tensor,
        neighbors: Tensor,
        targets: Tensor,
        excluded: Excluded = None,
        log_prior: Tensor | None = None,
        adjustment_scale: Tensor | float | None = 1.0,
    ) -> Tensor:
        """Average the predictions of the heads.

        Parameters
        ----------
        query : Tensor of shape (q, h d)
            Embeddings of the queries.
        neighbors : Tensor of shape (n, h d)
            Embeddings of the neighbours.
        targets : Tensor of shape (n,) or (n, n_outputs)
            The neighbours' targets.
        excluded : bool Tensor of shape (q, n), or tuple of two Tensors of shape (p,), optional
            Pairs that have no weight, such as a training row and itself: a mask, or the positions
            of their queries and neighbours.
        log_prior : Tensor of shape (n,), optional
            Logarithm of each neighbour's prior weight. None: all are equal.
        adjustment_scale : float or Tensor of shape (n_outputs,), default=1.0
            As for :class:`~nona_sklearn.NONAHead`.

        Returns
        -------
        Tensor of shape (q,) or (q, n_outputs)
            Means over the heads.
        """
        split = self.split_by_head(query, neighbors)
        options = excluded, log_prior, adjustment_scale
        means = [head(q, z, targets, *options) for head, q, z in split]
        return torch.stack(means).mean(dim=0)
