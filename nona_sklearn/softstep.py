"""SoftStep: a learned, per-query sparse mask on the similarities. A differentiable k.

In the order of this file: scale each query's similarities (or their ranks) to
[0, 1], pass them through a step function that falls from 1 to 0, and add the step's logarithm
to the similarities before the softmax. For a rejected neighbour, it is minus infinity.

Symbols as in the SoftStep paper (arXiv 2506.08139v2): `x` scaled similarity, `a` rejection
threshold (no weight at or below it), `b` full-keep threshold, `t` transition.
"""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ._utils.precision import EXACT, exact
from ._utils.validation import check_choice, check_integer
from .ranking import nearest_first

__all__ = [
    "STEPS",
    "STEP_SCALES",
    "SoftStep",
    "equally_near",
    "log_s1",
    "log_s2",
    "rank_similarity",
    "scale_similarity",
]

RESOLUTION = 8  # roundings of a similarity, below which differences are not significant
STEP_MULTIPLES = (1.0, 0.7, 0.5, 0.35, 0.25)  # of `narrowing`, tried after training


def scale_similarity(similarity: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Min-max scale each row over its admitted neighbours: farthest 0, nearest 1.

    These are the scaled similarities x on which the step of [1]_ acts.

    Parameters
    ----------
    similarity : Tensor of shape (q, n)
    excluded : bool Tensor of shape (q, n), optional
        True where a neighbour is excluded: it has no part in the scaling, and x = 0.

    Returns
    -------
    Tensor of shape (q, n)
        `x` in [0, 1]. Where all admitted neighbours are equally near, all have x = 1.

    References
    ----------
    .. [1] Susman, Lin, Suárez-Fariñas and Colonel, "SoftStep: Learning Sparse Similarity Powers
       Deep Neighbor-Based Regression", 2025, arXiv:2506.08139v2, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.softstep import scale_similarity
    >>> scale_similarity(torch.tensor([[-4.0, -1.0, -2.0, -3.0], [5.0, 5.0, 5.0, 5.0]]))
    tensor([[0.0000, 1.0000, 0.6667, 0.3333],
            [1.0000, 1.0000, 1.0000, 1.0000]])
    """
    low = high = similarity
    if excluded is not None:
        low = similarity.masked_fill(excluded, math.inf)
        high = similarity.masked_fill(excluded, -math.inf)
    farthest, nearest = low.amin(dim=1, keepdim=True), high.amax(dim=1, keepdim=True)  # (q, 1)
    tied = equally_near(nearest, farthest)
    gap = similarity - farthest
    if excluded is not None:
        gap = gap.masked_fill(excluded, 0.0)
    x = torch.where(tied, 1.0, gap / (nearest - farthest).masked_fill(tied, 1.0))
    return x if excluded is None else x.masked_fill(excluded, 0.0)


def equally_near(nearest: Tensor, farthest: Tensor) -> Tensor:
    """Find where the nearest and the farthest neighbour differ by rounding only.

    Scaled to [0, 1], such differences would decide which neighbours are rejected.

    Parameters
    ----------
    nearest, farthest : Tensor of shape (q, 1)
        Largest and smallest similarity of each query; -inf and inf without neighbours.

    Returns
    -------
    bool Tensor of shape (q, 1)
        True also without neighbours.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.softstep import equally_near
    >>> equally_near(torch.tensor([[-9.0], [-9.0]]), torch.tensor([[-9.1], [-9.000001]]))
    tensor([[False],
            [ True]])
    """
    limits = torch.finfo(nearest.dtype)
    rounding = RESOLUTION * limits.eps * torch.maximum(nearest.abs(), farthest.abs())
    # Below the floor the gradient of a quotient by the span would overflow.
    return nearest - farthest <= rounding.clamp_min(limits.tiny / limits.eps)


def rank_similarity(similarity: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Scaled ranks instead of scaled similarities: the j-th nearest of m gets (m-j)/(m-1).

    The step's thresholds are then shares of the admitted neighbours, whatever their distances,
    which [1]_ suggests for future work. Ranks are piecewise constant, so similarities get no
    gradient.

    Parameters and return value as for :func:`scale_similarity`; equally near neighbours share
    their best rank.

    References
    ----------
    .. [1] Susman, Lin, Suárez-Fariñas and Colonel, "SoftStep: Learning Sparse Similarity Powers
       Deep Neighbor-Based Regression", 2025, arXiv:2506.08139v2, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.softstep import rank_similarity
    >>> rank_similarity(torch.tensor([[-9.0, -1.0, -2.0]]))
    tensor([[0.0000, 1.0000, 0.5000]])
    """
    order, x, _ = _ranks_in_order(similarity, excluded)
    return torch.zeros_like(similarity).scatter(1, order, x)


def _ranks_in_order(
    similarity: Tensor,
    excluded: Tensor | None,
    k: int | None = None,
    n_admitted: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Positions of the k nearest neighbours, and their scaled ranks: (q, k) each.

    The third result are their ranks where those of equally near neighbours differ, in the order
    of the rows.
    """
    q, n = similarity.shape
    if n_admitted is None:
        n_admitted = torch.full((q, 1), n, device=similarity.device)
        if excluded is not None:
            n_admitted = (~excluded).sum(dim=1, keepdim=True)
    if excluded is not None:
        similarity = similarity.masked_fill(excluded, -math.inf)
    order = nearest_first(similarity, excluded, k)
    found = similarity.gather(1, order)
    place = torch.arange(order.shape[1], device=order.device).expand_as(order)
    tied = F.pad(found[:, 1:] == found[:, :-1], (1, 0))  # with the one before
    best = place.masked_fill(tied, 0).cummax(dim=1).values
    last = n_admitted - 1  # the place of the farthest

    def scaled(place: Tensor) -> Tensor:
        x = (last - place) / last.clamp(min=1).to(similarity.dtype)
        x = torch.where(last > 0, x, (last == place).to(x.dtype))
        return x.clamp_min(0.0)  # excluded ones come after the last

    return order, scaled(best), scaled(place)


def log_s1(x: Tensor, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
    """Logarithm of the sigmoidal step S1: 0 up to `a`, 1 from `b`, an S in between.

    ``S1 = u^(1/t) / (u^(1/t) + (1-u)^(1/t))`` with ``u = (x-a)/(b-a)``, computed as
    ``logsigmoid(logit(u) / t)``, which neither overflows nor divides by zero. With t -> 0 it
    tends to a hard threshold at (a+b)/2. The step is one of the two of [1]_.

    Parameters
    ----------
    x : Tensor of shape (q, n)
        Scaled similarities in [0, 1].
    a, b : Tensor of shape (q, 1) or ()
        Rejection and full-keep thresholds, a < b.
    t : Tensor of shape (q, 1) or ()
        Transition, in (0, 1).

    Returns
    -------
    Tensor of shape (q, n)
        Log step in [-inf, 0], with zero gradient where it is -inf or 0.

    References
    ----------
    .. [1] Susman, Lin, Suárez-Fariñas and Colonel, "SoftStep: Learning Sparse Similarity Powers
       Deep Neighbor-Based Regression", 2025, arXiv:2506.08139v2, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.softstep import log_s1
    >>> a, b, t = torch.tensor([0.2, 0.6, 0.5])
    >>> log_s1(torch.tensor([[0.1, 0.4, 0.7]]), a, b, t).exp()
    tensor([[0.0000, 0.5000, 1.0000]])
    """
    between = (x > a) & (x < b)
    # Both branches of a `where` are differentiated, so that the unused one must be finite too.
    u = torch.where(between, x - a, 0.5) / torch.where(between, b - a, 1.0)
    log_step = F.logsigmoid(torch.logit(u, eps=torch.finfo(u.dtype).eps) / t)
    return torch.where(between, log_step, 0.0).masked_fill(x <= a, -math.inf)


def log_s2(x: Tensor, b: Tensor, t: Tensor) -> Tensor:
    """Logarithm of the power step S2: rises from 0 at x = 0 to 1 at `b`.

    ``S2 = (x/b)^((b-x) t/(1-t))`` for x < b, else 1; so
    ``log S2 = t/(1-t) (b-x) ln(x/b)``. Only the farthest neighbour (x = 0) is rejected
    outright. This is equation 3 of [1]_.

    Parameters and return value as for :func:`log_s1`, with `b` in (0, 1]; the nearer `t` is to 1,
    the steeper the step.

    References
    ----------
    .. [1] Susman, Lin, Suárez-Fariñas and Colonel, "SoftStep: Learning Sparse Similarity Powers
       Deep Neighbor-Based Regression", 2025, arXiv:2506.08139v2, equation 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.softstep import log_s2
    >>> b, t = torch.tensor([0.5, 0.5])
    >>> log_s2(torch.tensor([[0.0, 0.25, 0.9]]), b, t).exp()
    tensor([[0.0000, 0.8409, 1.0000]])
    """
    # NOTE[DIFF]: the published code differentiates 0 * log(0) here, which is NaN.
    ratio = (x / b).clamp(torch.finfo(x.dtype).tiny, 1.0)  # 1 from b on, where the step is 1
    return torch.where(x > 0, t / (1 - t) * (b - x) * ratio.log(), -math.inf)


def _most_above(a: Tensor, n: int) -> int:
    """Number of places of n, from the nearest, whose scaled rank may exceed `a`.

    It is rounded up, so that rounding of a rank does not matter.
    """
    return min(n, 2 + int((1 - a.min()) * n))


#: Every step function by the name that the estimators' parameter `softstep` accepts.
STEPS: dict[str, Callable[..., Tensor]] = {"s1": log_s1, "s2": log_s2}

#: What a step can act on, by the name that :class:`SoftStep`'s `on` accepts.
STEP_SCALES = {"similarity": scale_similarity, "rank": rank_similarity}


class SoftStep(nn.Module):
    """Learned log mask (q, n), to be added to the similarities (q, n) before the softmax.

    Parameters
    ----------
    step : {'s1', 's2'}, default='s1'
        Step function: S1 has two thresholds and rejects everything below the first; S2 has
        one and rejects only the farthest neighbour.
    params : {'global', 'pointwise'}, default='global'
        One learned (a, b, t) for all queries, or one for each query, a linear map of its
        embedding. Both pass through a sigmoid.
    on : {'similarity', 'rank'}, default='similarity'
        Whether the step acts on scaled similarities or on scaled ranks.
    embedding_dim : int, optional
        Size `d` of the queries' embeddings, (q, d); needed with ``params='pointwise'``. The
        estimators, whose parameter `softstep` is a SoftStep, set it.

    Attributes
    ----------
    narrowing : Tensor of shape ()
        Factor of the thresholds' distance from the nearest neighbour, x = 1: 1, or less where a
        step that was learned on few neighbours is applied to many.

    Notes
    -----
    A step on similarities is that of the SoftStep paper, section 3 [1]_. A step on ranks is its
    suggestion for future work.

    References
    ----------
    .. [1] Susman, Lin, Suárez-Fariñas and Colonel, "SoftStep: Learning Sparse Similarity Powers
       Deep Neighbor-Based Regression", 2025, arXiv:2506.08139v2, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.softstep import SoftStep
    >>> similarity = torch.tensor([[-3.0, -1.0, -2.0]])
    >>> SoftStep("s2")(similarity).exp()
    tensor([[0., 1., 1.]], grad_fn=<ExpBackward0>)
    """

    def __init__(
        self,
        step: str = "s1",
        params: str = "global",
        on: str = "similarity",
        embedding_dim: int | None = None,
    ):
        super().__init__()
        check_choice("step", step, STEPS)
        check_choice("params", params, ("global", "pointwise"))
        check_choice("on", on, STEP_SCALES)
        if embedding_dim is not None:
            check_integer("embedding_dim", embedding_dim)
        self.step, self.params, self.on = step, params, on
        self.narrowing: Tensor
        self.register_buffer("narrowing", torch.ones(()))
        n_params = 3 if step == "s1" else 2  # (a, b, t) or (b, t)
        if params == "global":
            self.logits = nn.Parameter(torch.zeros(n_params))
        elif embedding_dim is not None:
            self.linear = nn.Linear(embedding_dim, n_params)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as scikit-learn's estimators do.

        Parameters
        ----------
        deep : bool, default=True
            Unused: no parameter has parameters of its own.

        Returns
        -------
        dict
            Values by name. `embedding_dim` is None with ``params='global'``, which needs none.

        Examples
        --------
        >>> from nona_sklearn.softstep import SoftStep
        >>> SoftStep("s2").get_params()["step"]
        's2'
        """
        embedding_dim = self.linear.in_features if hasattr(self, "linear") else None
        own = {"step": self.step, "params": self.params, "on": self.on}
        return own | {"embedding_dim": embedding_dim}

    def set_params(self, **params: Any) -> "SoftStep":
        """Set parameters, as scikit-learn's estimators do. A changed step is untrained.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        SoftStep
            The step.

        Examples
        --------
        >>> from nona_sklearn.softstep import SoftStep
        >>> SoftStep("s2").set_params(on="rank")
        SoftStep('s2', 'global', on='rank')
        """
        before = self.get_params()
        if unknown := params.keys() - before.keys():
            raise ValueError(
                f"Invalid parameter {min(unknown)!r} for {self!r}, which has {[*before]}"
            )
        if (now := before | params) != before:
            vars(self).update(vars(SoftStep(**now)))
        return self

    def __sklearn_clone__(self) -> "SoftStep":
        return copy.deepcopy(self)  # with its weights, as a module

    def for_embedding(self, embedding_dim: int) -> "SoftStep":
        """Return an untrained step of the same kind for embeddings of `embedding_dim` columns."""
        return SoftStep(self.step, self.params, self.on, embedding_dim)

    def thresholds(self, query: Tensor | None = None) -> tuple[Tensor, ...]:
        """The step's parameters, (a, b, t) for S1 and (b, t) for S2.

        All lie below 1, so that the nearest neighbour (x = 1) stays. For S1, ``a <- a - eps`` and
        ``b <- a + b (1 - a)``, which is above a.

        Parameters
        ----------
        query : Tensor of shape (q, d), optional
            Embeddings of the queries; needed with ``params='pointwise'``.

        Returns
        -------
        tuple of Tensor of shape () or (q, 1)
            One number each with global parameters, and one for each query with pointwise ones.

        Raises
        ------
        ValueError
            If the parameters are pointwise, and `query` or `embedding_dim` is None.
        """
        self._check_layer()
        if self.params == "pointwise" and query is None:
            raise ValueError("query must be given with params='pointwise', got None")
        if self.params == "global" or query is None:
            shares = self.logits.sigmoid()  # (n_params,)
        else:  # in float64: in float32, a row's result would depend on its batch
            weight, bias = exact(self.linear.weight), exact(self.linear.bias)
            shares = F.linear(exact(query), weight, bias).sigmoid().to(query.dtype).T[..., None]
        # Away from the ends, where 1/t and t/(1-t) would be infinite.
        eps = max(1e-12, torch.finfo(shares.dtype).eps)  # the published code's, if resolved
        params = shares.clamp(eps, 1 - eps)
        if self.step == "s2":
            b, t = params
            return self._narrowed(b), t
        a, b, t = params
        a = a - eps
        return self._narrowed(a), self._narrowed(a + b * (1 - a)), t

    def _check_layer(self) -> None:
        if self.params == "pointwise" and not hasattr(self, "linear"):
            raise ValueError("embedding_dim must be given with params='pointwise', got None")

    def _narrowed(self, threshold: Tensor) -> Tensor:
        narrowed = threshold + (1 - self.narrowing) * (1 - threshold)
        return narrowed.clamp_max(1 - torch.finfo(threshold.dtype).eps)  # the nearest stays

    def start_at(self, x: float) -> None:
        """Reset the parameters so that every query gives half weight at `x`, in (0, 1).

        A step learns to open more easily than to close: started far too wide, it averages
        rows that are unrelated to the query, and no gradient leads back.
        """
        if not 0 < x < 1:
            raise ValueError(f"x must lie between 0 and 1, got {x}")
        self._check_layer()
        if self.step == "s1":
            b, t = 0.5, 0.5
            a = max((x - b / 2) / (1 - b / 2), 0.01)
            params = torch.tensor([a, b, t], dtype=EXACT)
        else:
            b = (1 + x) / 2
            c = math.log(0.5) / ((b - x) * math.log(x / b))  # t / (1 - t)
            params = torch.tensor([b, c / (1 + c)], dtype=EXACT)
        with torch.no_grad():
            if self.params == "global":
                self.logits.copy_(torch.logit(params))
            else:
                self.linear.weight.zero_()
                self.linear.bias.copy_(torch.logit(params))

    def initialize(self, similarity: Tensor, excluded: Tensor, n_neighbors: int) -> None:
        """Start with half weight at the `n_neighbors`-th neighbour of the median row."""
        x = STEP_SCALES[self.on](similarity, excluded)
        last = x.topk(n_neighbors, dim=1).values[:, -1]
        self.start_at(last.median().clamp(0.01, 0.99).item())

    def refinements(self) -> Iterator[tuple[Callable[[Tensor], Tensor], Tensor]]:
        """Yield what may be refined after training: how to set it, and the values to try."""
        candidates = self.narrowing * self.narrowing.new_tensor(STEP_MULTIPLES)
        yield self.narrowing.fill_, candidates

    def most_kept(self, n: int) -> int | None:
        """How many of n neighbours, the nearest, are kept at most, for any query; None: all.

        Only S1 on ranks with global parameters has such a number.
        """
        if self.step != "s1" or self.on != "rank" or self.params == "pointwise":
            return None
        return _most_above(self.thresholds()[0], n)

    def forward(
        self,
        similarity: Tensor,
        query: Tensor | None = None,
        excluded: Tensor | None = None,
        n_admitted: Tensor | None = None,
    ) -> Tensor:
        """Log step of each neighbour, to be added to its similarity.

        Parameters
        ----------
        similarity : Tensor of shape (q, n)
            Similarities of queries and neighbours.
        query : Tensor of shape (q, d), optional
            Embeddings of the queries; needed with ``params='pointwise'``.
        excluded : bool Tensor of shape (q, n), optional
            Pairs that are excluded: they have no part in the scaling, and are rejected.
        n_admitted : Tensor of shape (q, 1), optional
            Number of admitted neighbours, for a step on ranks where only the nearest are given,
            nearest first. None: all are given.

        Returns
        -------
        Tensor of shape (q, n)
            Logarithms of the step, from -inf, a rejected neighbour, to 0.
        """
        thresholds = self.thresholds(query)
        if self.on == "similarity":
            return STEPS[self.step](scale_similarity(similarity, excluded), *thresholds)
        # A step on ranks is evaluated in their order.
        k = None
        if self.step == "s1" and n_admitted is None:
            k = _most_above(thresholds[0], similarity.shape[1])
        order, x, own = _ranks_in_order(similarity, excluded, k, n_admitted)
        log_step = STEPS[self.step](x, *thresholds)  # (q, k)
        if self.step == "s1":
            # Of equally near neighbours on both sides of the first threshold, the first rows are
            # kept: else there would be no number of neighbours after which weights end.
            log_step = log_step.masked_fill(own <= thresholds[0], -math.inf)
        rejected = log_step.new_full(similarity.shape, -math.inf)
        return rejected.scatter(1, order, log_step)

    def __repr__(self) -> str:
        on = "" if self.on == "similarity" else f", on={self.on!r}"
        of = f", embedding_dim={self.linear.in_features}" if hasattr(self, "linear") else ""
        return f"{type(self).__name__}({self.step!r}, {self.params!r}{on}{of})"
