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

    def logits(self, s: Tensor, nearest: Tensor | None = None) -> Tensor:
        """:meth:`log_weight`; where even the nearest has no weight, it gets all."""
        logits = self.log_weight(s, nearest)
        if nearest is None:
            return logits
        lost = self.log_weight(nearest, nearest) == -math.inf  # (q, 1)
        return torch.where(lost, nearest_only(s, nearest), logits) if lost.any() else logits

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
        nearest = None
        if self.needs_nearest:
            nearest = admitted(s, log_measure).amax(dim=1, keepdim=True)
        logits = self.logits(s, nearest)
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


def admitted(s: Tensor, log_measure: Tensor | None) -> Tensor:
    """Similarities without gradient, (q, n), -inf for neighbours of no measure."""
    s = s.detach()
    return s if log_measure is None else s.masked_fill(log_measure == -math.inf, -math.inf)


def nearest_only(s: Tensor, nearest: Tensor) -> Tensor:
    """Logits, (q, n), that give all weight to the nearest neighbour and those as near."""
    return torch.zeros_like(s).masked_fill(s < nearest - AS_NEAR * nearest.abs(), -math.inf)
