"""Weightings: how a similarity becomes a weight.

A weighting maps a query's similarities, over the temperature, to the logarithms of weights
that are not normalised yet. SoftStep's log step is added to them, and what comes of it is
divided by its sum. To offer another one, add it to :data:`WEIGHTINGS`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["WEIGHTINGS", "Weighting"]


@dataclass(frozen=True)
class Weighting:
    """How a similarity becomes a weight.

    Parameters
    ----------
    log_weight : callable
        Maps similarities over the temperature (q, n), one by one, to the logarithms of weights
        before they are normalised, (q, n).
    normalize : callable, optional
        Maps these logarithms (q, n), -inf where a neighbour is rejected, to weights (q, n) whose
        rows sum to 1. It looks at whole rows, which then must be held at once. None divides
        by the sum, which needs one tile of the neighbours at a time.
    tempered : bool, default=True
        Whether a temperature matters, and so may be learned.

    Examples
    --------
    Nadaraya and Watson's, on the similarity ``l2`` with the bandwidth as temperature:

    >>> import torch
    >>> from nona_sklearn import NONAHead
    >>> from nona_sklearn.weighting import WEIGHTINGS, Weighting
    >>> WEIGHTINGS["gaussian"] = Weighting(lambda s: -s.square() / 2)
    >>> head = NONAHead("l2", weights="gaussian")
    >>> head.neighbor_weights(torch.zeros(1, 1), torch.tensor([[1.0], [2.0]]))
    tensor([[0.8176, 0.1824]])
    >>> del WEIGHTINGS["gaussian"]
    """

    log_weight: Callable[[Tensor], Tensor]
    normalize: Callable[[Tensor], Tensor] | None = None
    tempered: bool = True


#: Every weighting by the name that the parameter `weights` accepts. 'distance' is the papers'
#: softmax; 'uniform' leaves all to the step, as k-NN with a soft k.
WEIGHTINGS: dict[str, Weighting] = {
    "distance": Weighting(lambda similarity: similarity),
    "uniform": Weighting(torch.zeros_like, tempered=False),
}
