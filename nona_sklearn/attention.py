"""Neighbour attention: weights from similarities, predictions from weights.

Rungs, each standing on the one before: :func:`neighbor_weights` (a masked softmax),
:func:`neighbor_attention` (plain NONA), :class:`NONAHead` (the trainable layer),
:class:`ClassHead` (the same for classes) and :class:`AverageHead` (several of them on one bank).
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ._utils.validation import check_choice, check_flag, check_integer
from .ranking import outside_nearest
from .similarity import DISTANCES, SIMILARITIES, TRAINING_SIMILARITIES, eager_all, l2
from .softstep import SoftStep
from .weighting import LEAST_LOGIT, Softmax, Weighting, make_weighting, softmax

__all__ = [
    "AverageHead",
    "ClassHead",
    "NONAHead",
    "neighbor_attention",
    "neighbor_weights",
]

Pairs = tuple[Tensor, Tensor]  # positions of queries, and of neighbours that they do not meet

START_NUGGET = 0.3  # of the unit of distance
START_SMOOTHING = 0.02  # of a probability
TRAINING_SMOOTHING = 1e-3  # where none is asked for: keeps the loss of an absent class finite


def neighbor_weights(logits: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Softmax over each query's admitted neighbours.

    Parameters
    ----------
    logits : Tensor of shape (q, n)
        Similarities, masked with SoftStep or not; -inf rejects a neighbour.
    excluded : bool Tensor of shape (q, n), optional
        True for query-neighbour pairs that must not meet, such as a training row and itself.

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


def adjusted_mean(
    plain: Tensor, expected: Tensor, total: Tensor | float, own: Tensor, fade: Tensor | float
) -> Tensor:
    """``sum_j w_j (y_j + fade (g(q) - g(j)))``, from sums over the neighbours.

    Parameters
    ----------
    plain, expected : Tensor of shape (q, c)
        Weighted means of the targets, and of the neighbours' adjustments g(j).
    total : Tensor of shape (q, 1) or float
        Sum of the weights: 1, or 0 where nobody is admitted.
    own : Tensor of shape (q, c)
        The queries' adjustments g(q).
    fade : Tensor of shape (q, 1) or float
        How much of a shift is left.

    Returns
    -------
    Tensor of shape (q, c)
        Predictions.
    """
    return plain + fade * (total * own - expected)


class L2Attention(torch.autograd.Function):
    """:func:`neighbor_attention` with l2 and a temperature, in the fewest passes over the pairs.

    ``L2Attention.apply(query, neighbors, targets, temperature, excluded, log_prior)`` takes half
    the time of autograd's chain of functions, most of which goes into new memory. For training:
    the distances are rounded as :func:`~nona_sklearn.similarity.rounded_l2`'s are, and there is
    no second derivative. Few excluded pairs are better given by their places than by a mask.
    """

    @staticmethod
    def forward(ctx, query, neighbors, targets, temperature, excluded=None, log_prior=None):
        center = neighbors.mean(dim=0)
        query, neighbors = query - center, neighbors - center
        squares = neighbors.square().sum(dim=1)
        floor = squares.mean() * torch.finfo(query.dtype).eps + torch.finfo(query.dtype).tiny
        distance = torch.addmm(squares, query, neighbors.T, alpha=-2)  # (q, n)
        distance.add_(query.square().sum(dim=1, keepdim=True))
        distance.clamp_min_(floor).sqrt_()  # below the floor is nothing but rounding
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
        d_neighbors = (query.T @ pairs).T  # .6 of the time of pairs.T @ query
        d_neighbors = d_neighbors - pairs.sum(dim=0)[:, None] * neighbors
        d_targets = None
        if ctx.needs_input_grad[2]:
            d_targets = (weights.T @ grad).view_as(targets)
        d_query, d_neighbors = d_query / temperature, d_neighbors / temperature
        return d_query, d_neighbors, d_targets, d_temperature, None, d_log_prior


def _count(excluded: Tensor | Pairs, n_queries: int) -> Tensor:
    """How many neighbours each query must not meet, (q,)."""
    if isinstance(excluded, Tensor):
        return excluded.sum(dim=1)
    return torch.bincount(excluded[0], minlength=n_queries)


class NONAHead(nn.Module):
    """Prediction layer that replaces a dense head: attention over labelled neighbours.

    Parameters
    ----------
    similarity : {'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='l2'
        Similarity between embeddings.
    step : SoftStep, optional
        Learned mask on the similarities; None is plain NONA.
    weighting : str or Weighting, default='softmax'
        How a similarity becomes a weight, by a name in ``nona_sklearn.weighting.WEIGHTINGS``:
        'softmax' weighs a neighbour by ``step * exp(similarity / temperature)``, 'uniform'
        by the step alone, as k-NN with a soft k.
    learn_temperature : bool, default=False
        Whether the temperature is learned; otherwise it is 1, as in the papers. Under 'log_l2' a
        nugget is learned with it, a distance below which nearer does not mean more alike: equal
        rows would else take all the weight, however much their targets differ.
    n_neighbors : int, optional
        Admit only this many nearest neighbours of each query; None admits all.
    n_adjusted : int, default=0
        The last columns of the embeddings, as many as there are outputs, are not compared:
        they are what the network itself holds of a row's targets, `g`. Each neighbour's target
        is moved by the difference to the query, ``y_j + g(q) - g(j)``. 0: targets as they are.

    Attributes
    ----------
    reach : Tensor of shape ()
        Only if it adjusts. In evaluation, a query whose nearest neighbour is farther than this
        (Euclidean, where they are compared) has its shift multiplied by
        ``(reach / distance) ** 2``. Infinite until it is set.

    Raises
    ------
    ValueError
        If `similarity` or `weighting` is unknown, they do not go together, `n_neighbors` is below
        1, `n_adjusted` below 0, or nothing would weigh the neighbours: ``weighting='uniform'``
        without a `step` and without `n_neighbors`.

    Notes
    -----
    Shape:

    - query: (q, d + n_adjusted); neighbors: (n, d + n_adjusted); targets: (n,) or
      (n, n_outputs)
    - excluded: bool (q, n), pairs that must not meet; or their positions, (p,) and (p,), which
      are faster where they are few
    - log_prior: (n,), the logarithm of what each neighbour weighs beforehand
    - unit: float or (n_outputs,), what one of `g` is worth in units of the targets; None leaves
      targets as they are
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
        weighting: str | Weighting = "softmax",
        learn_temperature: bool = False,
        n_neighbors: int | None = None,
        n_adjusted: int = 0,
    ):
        super().__init__()
        check_choice("similarity", similarity, SIMILARITIES)
        made = make_weighting(weighting)
        if made.of_distances and similarity not in DISTANCES:
            raise ValueError(
                f"weighting={weighting!r} needs similarity {' or '.join(map(repr, DISTANCES))}, "
                f"a distance, got {similarity!r}"
            )
        if not made.tempered and step is None and n_neighbors is None:
            raise ValueError(f"weighting={weighting!r} needs a step or n_neighbors, got neither")
        if n_neighbors is not None:
            check_integer("n_neighbors", n_neighbors)
        check_integer("n_adjusted", n_adjusted, 0)
        if not (step is None or isinstance(step, SoftStep)):
            raise ValueError(f"step must be a SoftStep or None, got {step!r}")
        check_flag("learn_temperature", learn_temperature)
        self.similarity = similarity
        self.step: SoftStep | None = step
        self.weighting: Weighting = made
        self.n_neighbors = n_neighbors
        self.n_adjusted = n_adjusted
        if n_adjusted:
            self.reach: Tensor
            self.register_buffer("reach", torch.tensor(math.inf))
        if learn_temperature and self.weighting.tempered:
            self.log_temperature: Tensor = nn.Parameter(torch.zeros(()))
            if similarity == "log_l2":
                self.log_nugget: Tensor = nn.Parameter(torch.tensor(math.log(START_NUGGET)))

    @property
    def temperature(self) -> Tensor | float:
        """Divisor of the similarities: the larger, the flatter the weights."""
        return self.log_temperature.exp() if hasattr(self, "log_temperature") else 1.0

    def apply_nugget(self, similarity: Tensor) -> Tensor:
        """Similarities of which a learned logarithm levels off at the nugget `s`.

        ``-log sqrt(distance ** 2 + s ** 2)``: an inverse multiquadric.
        """
        if not hasattr(self, "log_nugget"):
            return similarity
        floor = 2 * self.log_nugget.to(similarity.dtype)
        return -torch.logaddexp(-2 * similarity, floor) / 2

    @property
    def needs_whole_rows(self) -> bool:
        """Whether a weight depends on more of its row than the extremes and the sum."""
        ranks = self.most is not None or (self.step is not None and self.step.on == "rank")
        return ranks or not self.weighting.one_by_one

    @property
    def keeps_proportions(self) -> bool:
        """Whether the others weigh as before in proportion when a neighbour leaves."""
        weighting = self.weighting
        return weighting.one_by_one and not weighting.needs_nearest and self.most is None

    def affects_other_weights(
        self, weights: Tensor, similarity: Tensor, excluded: Tensor | None = None
    ) -> Tensor:
        """Who could change the others' proportions by leaving, bool (q, n).

        Parameters
        ----------
        weights, similarity : Tensor of shape (q, n)
            Of each query and each neighbour.
        excluded : bool Tensor of shape (q, n), optional
            True for pairs that must not meet.
        """
        if self.keeps_proportions:
            return torch.zeros_like(weights, dtype=torch.bool)
        if self.most is not None:  # the next one takes the place
            return ~self._exclude_beyond_k(similarity, excluded)
        if not self.weighting.one_by_one:
            return weights > 0
        admitted = similarity if excluded is None else similarity.masked_fill(excluded, -math.inf)
        return admitted == admitted.amax(dim=1, keepdim=True)

    def _exclude_beyond_k(self, similarity: Tensor, excluded: Tensor | None) -> Tensor:
        """Extend an exclusion to those who are too far to weigh anything, bool (q, n)."""
        if self.n_neighbors is not None:
            excluded = outside_nearest(similarity, self.n_neighbors, excluded)
        k = self.weighting.n_neighbors
        if k is not None:
            excluded = outside_nearest(similarity, k, excluded, ties=self.weighting.ties)
        assert excluded is not None
        return excluded

    @property
    def most(self) -> int | None:
        """How many nearest neighbours can weigh anything; None: all."""
        caps = [k for k in (self.n_neighbors, self.weighting.n_neighbors) if k is not None]
        return min(caps, default=None)

    @property
    def is_plain(self) -> bool:
        """Whether it is the softmax of distances over a temperature, and nothing else."""
        plain = self.similarity == "l2" and type(self.weighting) is Softmax
        return plain and self.step is None and self.n_neighbors is None

    def parts(self, query: Tensor, neighbors: Tensor) -> list[tuple["NONAHead", Tensor, Tensor]]:
        """List each head with what it looks at: this one, at all."""
        return [(self, query, neighbors)]

    def metric_part(self, embeddings: Tensor) -> Tensor:
        """Where rows are compared, (n, d): all but the last columns."""
        return embeddings[:, : embeddings.shape[1] - self.n_adjusted]

    def adjustments(self, embeddings: Tensor) -> Tensor:
        """What the network itself holds of rows' targets, `g`, (n, n_adjusted)."""
        return embeddings[:, embeddings.shape[1] - self.n_adjusted :]

    def fade(self, distance: Tensor) -> Tensor:
        """How much of a shift is left, at some distances of the nearest neighbour."""
        return torch.where(distance > self.reach, self.reach / distance, 1.0).square()

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
        query, neighbors = self.metric_part(query), self.metric_part(neighbors)
        return self.weigh(function(query, neighbors), query, neighbors, excluded, log_prior)

    def weigh(
        self,
        similarity: Tensor,
        query: Tensor,
        neighbors: Tensor,
        excluded: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """Weights from the similarities (q, n) of the queries, all where they are compared.

        `neighbors` are of shape (n, d), or (q, n, d) where each query has others.
        """
        log_measure = None if self.step is None else self.step(similarity, query, excluded)
        if log_prior is not None:
            log_measure = log_prior if log_measure is None else log_measure + log_prior
        # The cap comes after the step, which would else reject the last of the k as the
        # farthest of its row.
        if self.most is not None:
            excluded = self._exclude_beyond_k(similarity, excluded)
        if excluded is not None:
            counts = similarity.new_zeros(()) if log_measure is None else log_measure
            log_measure = counts.expand_as(similarity).masked_fill(excluded, -math.inf)
        elif log_measure is not None:
            log_measure = log_measure.expand_as(similarity)

        def between(positions: Tensor) -> Tensor:
            each = (
                neighbors[positions]
                if neighbors.ndim == 2
                else (neighbors.take_along_dim(positions[..., None], dim=1))
            )
            function = SIMILARITIES[self.similarity]
            return self.tempered(function(each.double(), each.double()).to(similarity))

        return self.weighting.weigh(self.tempered(similarity), log_measure, between)

    def tempered(self, similarity: Tensor) -> Tensor:
        """Similarities over the temperature."""
        return self.apply_nugget(similarity) / self.temperature

    def forward(
        self,
        query: Tensor,
        neighbors: Tensor,
        targets: Tensor,
        excluded: Tensor | Pairs | None = None,
        log_prior: Tensor | None = None,
        unit: Tensor | float | None = 1.0,
    ) -> Tensor:
        if not self.n_adjusted or unit is None:
            return self._attend(query, neighbors, targets, excluded, log_prior)
        ours, theirs = unit * self.adjustments(query), unit * self.adjustments(neighbors)
        values = targets.reshape(len(targets), -1)
        if self.training:  # nothing fades, so that a column for each output will do
            said = self._attend(query, neighbors, values - theirs, excluded, log_prior)
            if excluded is not None:
                alone = _count(excluded, len(query)) == len(neighbors)
                ours = ours.masked_fill(alone[:, None], 0.0)
            return (said + ours).reshape(len(query), *targets.shape[1:])
        ones = values.new_ones(len(values), 1)  # sum to 1, or to 0 where nobody is admitted
        sums = torch.cat([values, theirs, ones], dim=1)
        said = self._attend(query, neighbors, sums, excluded, log_prior)
        plain, expected, total = said.tensor_split([values.shape[1], -1], dim=1)
        mean = adjusted_mean(plain, expected, total, ours, self._fade(query, neighbors, excluded))
        return mean.reshape(query.shape[0], *targets.shape[1:])

    def _fade(
        self, query: Tensor, neighbors: Tensor, excluded: Tensor | Pairs | None
    ) -> Tensor | float:
        """How much of each query's shift is left, (q, 1)."""
        if eager_all(~self.reach.isfinite()):
            return 1.0
        distance = -l2(self.metric_part(query), self.metric_part(neighbors))
        if excluded is not None:
            distance[excluded] = math.inf
        return self.fade(distance.amin(dim=1, keepdim=True))

    def _attend(
        self,
        query: Tensor,
        neighbors: Tensor,
        targets: Tensor,
        excluded: Tensor | Pairs | None,
        log_prior: Tensor | None,
    ) -> Tensor:
        """Weighted means of the targets."""
        if self.training and self.is_plain:
            query, neighbors = self.metric_part(query), self.metric_part(neighbors)
            temperature = torch.as_tensor(self.temperature, device=query.device)
            return L2Attention.apply(query, neighbors, targets, temperature, excluded, log_prior)
        if isinstance(excluded, tuple):
            pairs, shape = excluded, (len(query), len(neighbors))
            excluded = torch.zeros(shape, dtype=torch.bool, device=query.device)
            excluded[pairs] = True
        return self.neighbor_weights(query, neighbors, excluded, log_prior) @ targets

    def extra_repr(self) -> str:
        return (
            f"similarity={self.similarity!r}, "
            f"n_neighbors={self.n_neighbors}, n_adjusted={self.n_adjusted}"
        )


class ClassHead(NONAHead):
    """:class:`NONAHead` of classes: their weights' sums become probabilities.

    ``P(c | q) ~ ((1 - smoothing) sum_j w_j 1[y_j = c] + smoothing prior_c) exp(h_c(q))``,
    normalised. Plain, without `h` and smoothing, this is the NONA paper's section 3 with
    one-hot targets: each neighbour votes for its class with its weight. With `h`, neighbours of
    class c count ``exp(h_c(q))`` times, so that rows still add up to each probability. Smoothing
    bounds what neighbours of one mind can say against `h`.

    Parameters
    ----------
    prior : Tensor of shape (C,)
        Frequency of each class; those of several outputs side by side.
    sizes : sequence of int, optional
        Number of classes of each output; None: one output.
    smoothing : bool, default=True
        Whether to learn the share that the classes' frequencies have in each probability, so
        that none is 0. False: none in evaluation, and a thousandth in training.
    **kwargs
        Parameters of :class:`NONAHead`. With ``n_adjusted``, the number of all classes, the last
        columns of a query's embedding are `h`; those of its neighbours are not looked at.

    Notes
    -----
    Shapes as for :class:`NONAHead`; targets are one-hot, (n, C), and so is what it returns:
    probabilities, (q, C). ``unit=None`` leaves out `h` and smoothing. Beyond `reach` `h` fades.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import ClassHead
    >>> head = ClassHead(prior=torch.tensor([0.5, 0.5]), smoothing=False).eval()
    >>> head(torch.zeros(1, 2), torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.eye(2))
    tensor([[0.8808, 0.1192]])
    """

    def __init__(
        self,
        *args,
        prior: Tensor,
        sizes: Sequence[int] | None = None,
        smoothing: bool = True,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        check_flag("smoothing", smoothing)
        self.sizes = (len(prior),) if sizes is None else tuple(sizes)
        self.prior: Tensor
        self.register_buffer("prior", prior, persistent=False)  # of the data, not learned
        if smoothing:
            start = torch.tensor(START_SMOOTHING).logit()
            self.logit_smoothing: Tensor = nn.Parameter(start)

    @property
    def smoothing(self) -> Tensor | float:
        """Share of the classes' frequencies in each probability."""
        if hasattr(self, "logit_smoothing"):
            return self.logit_smoothing.sigmoid()
        return TRAINING_SMOOTHING if self.training else 0.0

    def odds(self, own: Tensor, fade: Tensor | float = 1.0) -> Tensor:
        """How many times a neighbour of each class counts for each query, (q, C), `exp(h)`.

        Of each output the largest is 1, so that none leaves the range of numbers.
        """
        blocks = (fade * own).split(self.sizes, dim=1)
        return torch.cat([(h - h.amax(dim=1, keepdim=True)).exp() for h in blocks], dim=1)

    def totals(self, masses: Tensor) -> Tensor:
        """Sum over the classes of each output, (q, C): the same for all of an output."""
        blocks = masses.split(self.sizes, dim=1)
        return torch.cat([b.sum(dim=1, keepdim=True).expand_as(b) for b in blocks], dim=1)

    def share_of_prior(self, unit: Tensor | float | None) -> Tensor | float:
        """:attr:`smoothing`; none where labels are not those that the frequencies are of."""
        return 0.0 if unit is None else self.smoothing

    def smoothed(self, masses: Tensor, smoothing: Tensor | float) -> Tensor:
        """Mix the classes' weights, (q, C), with a share of their frequencies."""
        # So that they still sum to 1 to the last digits, however the share is rounded.
        return masses + smoothing * (self.prior.to(masses.dtype) - masses)

    def probabilities(
        self, masses: Tensor, smoothing: Tensor | float, odds: Tensor | float = 1.0
    ) -> Tensor:
        """Turn the classes' weights into probabilities, (q, C)."""
        votes = self.smoothed(masses, smoothing) * odds
        # Where nobody votes all are 0, no NaN.
        return votes / self.totals(votes).clamp_min(torch.finfo(votes.dtype).tiny)

    def forward(
        self,
        query: Tensor,
        neighbors: Tensor,
        targets: Tensor,
        excluded: Tensor | Pairs | None = None,
        log_prior: Tensor | None = None,
        unit: Tensor | float | None = 1.0,
    ) -> Tensor:
        masses = self._attend(query, neighbors, targets, excluded, log_prior)
        smoothing = self.share_of_prior(unit)
        if not self.n_adjusted or unit is None:
            return self.probabilities(masses, smoothing)
        fade = 1.0 if self.training else self._fade(query, neighbors, excluded)
        return self.probabilities(masses, smoothing, self.odds(self.adjustments(query), fade))


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

    def metric_part(self, embeddings: Tensor) -> Tensor:
        """Where rows are compared by each head, side by side: all but the adjustments."""
        return torch.cat(
            [head.metric_part(z) for head, z, _ in self.parts(embeddings, embeddings)], 1
        )

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
        excluded: Tensor | Pairs | None = None,
        log_prior: Tensor | None = None,
        unit: Tensor | float | None = 1.0,
    ) -> Tensor:
        means = [
            head(q, n, targets, excluded, log_prior, unit)
            for head, q, n in self.parts(query, neighbors)
        ]
        return torch.stack(means).mean(dim=0)
