"""The trainable layer: attention over labelled neighbours."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from .._utils.precision import exact
from .._utils.validation import check_choice, check_flag, check_integer
from ..ranking import outside_nearest
from ..similarity import DISTANCES, SIMILARITIES, TRAINING_SIMILARITIES
from ..softstep import SoftStep
from ..weighting import Softmax, Weighting, make_weighting
from .functional import Excluded, L2Attention, count_excluded
from .prediction import CandidateRows, Candidates, ClassRows, compare_all, compare_nearest, rows_of

START_NUGGET = 0.3  # of the unit of distance
TRUST_FACTOR = 2.0  # with 1, the farthest of the test rows lost what trends gain
TEMPERATURE_MULTIPLES = (1.0, 0.6, 0.7, 0.8, 0.9, 1.1)  # tried after training
SHRINKAGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)  # tried after training

#: What may be refined after training: how to set it, and the values to try.
Refinement = tuple[Callable[[Any], object], Sequence[Any] | Tensor]


class NONAHead(nn.Module):
    """Prediction layer that replaces a dense head: attention over labelled neighbours.

    Without a step and adjustments, this is section 3 of [1]_; the step is that of [2]_.

    Parameters
    ----------
    similarity : {'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='l2'
        Similarity between embeddings.
    step : SoftStep, optional
        Learned mask on the similarities; None is plain NONA.
    weighting : str or Weighting, default='softmax'
        How a similarity becomes a weight, by a name in ``nona_sklearn.weighting.WEIGHTINGS``.
        With 'softmax' a weight is ``step * exp(similarity / temperature)``, normalised. With
        'uniform' it is the step alone, as k-NN with a soft k; this needs a `step` or
        `n_neighbors`.
    learn_temperature : bool, default=False
        Whether the temperature is learned, if the weighting's `learn_temperature` is true as
        well; otherwise it is 1, as in the papers. With 'log_l2', a nugget is learned too: a
        distance below which rows are equally similar. Without it, equal rows get all the weight.
    n_neighbors : int, optional
        Admit only this many nearest neighbours of each query; None admits all.
    n_adjusted : int, default=0
        Number of the embeddings' last columns, one for each output, that are not compared: they
        are the network's own estimate `g` of a row's targets. Each neighbour's target is
        adjusted by the difference to the query, ``y_j + g(q) - g(j)``. 0: no adjustment.

    Attributes
    ----------
    trust_radius : Tensor of shape ()
        With `n_adjusted` only. In evaluation, the adjustment of a query whose nearest neighbour
        is farther (in Euclidean distance of the compared columns) is multiplied by
        ``(trust_radius / distance) ** 2``. Infinite until a fit sets it.
    shrinkage : float
        Share of the neighbours' residuals ``y_j - g(j)``, from their mean over all rows, that
        predictions leave out in evaluation: a mean of few is noisy. 0 until it is refined, which
        needs `n_neighbors`.
    mean_residual : tuple of float
        That mean, of each output, in units of the targets.
    credibility : tuple of float
        Share of an adjusted target, of each output, from 0 to 1; the rest is `mean_target`. 1 in
        training, and until it is known how well rows are predicted that training does not have.
    mean_target : tuple of float
        Mean of each output over all rows.
    bounds : tuple of float or None
        The least and the largest target. In evaluation, an adjusted target beyond one of them is
        the bound. None in training, and of targets that may be any number.
    whole : bool
        Whether targets are whole numbers: adjusted ones are not, but draws and quantiles are.

    Notes
    -----
    Shape:

    - query: (q, d + n_adjusted); neighbors: (n, d + n_adjusted); targets: (n,) or
      (n, n_outputs)
    - excluded: bool (q, n), excluded pairs; or their positions, (p,) and (p,), which are faster
      for few pairs
    - log_prior: (n,), the logarithm of each neighbour's prior weight
    - adjustment_scale: float or (n_outputs,), one unit of `g` in units of the targets; None
      leaves targets as they are
    - output: (q,) or (q, n_outputs)

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1, section 3.
    .. [2] Susman, Lin, Suárez-Fariñas and Colonel, "SoftStep: Learning Sparse Similarity Powers
       Deep Neighbor-Based Regression", 2025, arXiv:2506.08139v2, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import NONAHead, SoftStep
    >>> head = NONAHead(step=SoftStep("s1"))
    >>> query, neighbors, targets = torch.zeros(1, 2), torch.eye(2), torch.tensor([1.0, 3.0])
    >>> head(query, neighbors, targets).detach()
    tensor([2.])
    """

    _rows_class: ClassVar[type[CandidateRows]] = CandidateRows
    temperature_multiples: ClassVar[tuple[float, ...]] = TEMPERATURE_MULTIPLES
    shrinkage: float = 0.0
    mean_residual: tuple[float, ...] = (0.0,)
    credibility: tuple[float, ...] = (1.0,)
    mean_target: tuple[float, ...] = (0.0,)
    bounds: tuple[float, float] | None = None
    whole: bool = False

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
            needed = f"similarity {' or '.join(map(repr, DISTANCES))}, a distance"
            raise ValueError(f"weighting={weighting!r} needs {needed}, got {similarity!r}")
        if not made.depends_on_similarity and step is None and n_neighbors is None:
            raise ValueError(f"weighting={weighting!r} needs a step or n_neighbors, got neither")
        if n_neighbors is not None:
            check_integer("n_neighbors", n_neighbors)
        check_integer("n_adjusted", n_adjusted, 0)
        if not (step is None or isinstance(step, SoftStep)):
            raise ValueError(f"step must be a SoftStep or None, got {step!r}")
        check_flag("learn_temperature", learn_temperature)
        self.similarity, self.n_neighbors, self.n_adjusted = similarity, n_neighbors, n_adjusted
        self.step: SoftStep | None = step
        self.weighting: Weighting = made
        if n_adjusted:
            self.trust_radius: Tensor
            self.register_buffer("trust_radius", torch.tensor(math.inf))
        if learn_temperature and made.depends_on_similarity and made.learn_temperature:
            self.log_temperature: Tensor = nn.Parameter(torch.zeros(()))
            if similarity == "log_l2":
                self.log_nugget: Tensor = nn.Parameter(torch.tensor(math.log(START_NUGGET)))

    @torch.no_grad()
    def initialize(self, embeddings: Tensor, n_neighbors: int = 10) -> None:
        """Start from a neighbourhood of `n_neighbors` rows, in the median over a sample (n, d).

        The step gives half weight to the last of them, and the temperature is the difference in
        similarity between the nearest and the last.
        """
        z = self.metric_part(embeddings)
        similarity = SIMILARITIES[self.similarity](z, z)
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        k = min(n_neighbors, len(z) - 1)
        if self.step is not None:
            self.step.initialize(similarity, itself, k)
        if not hasattr(self, "log_temperature"):
            return
        nearest = similarity.masked_fill(itself, -math.inf).topk(k, dim=1).values
        gap = (nearest[:, 0] - nearest[:, -1]).median()
        if hasattr(self, "log_nugget"):
            # A logarithm's natural temperature is the initial 1: weights of 1 / distance.
            self.log_nugget.sub_(nearest[:, -1].median())
        elif gap > 0:
            self.log_temperature.copy_(gap.log())

    def refinements(self) -> Iterator[Refinement]:
        """Yield what may be refined after training: how to set it, and the values to try.

        They were learned on pools, where rows are farther apart than in the whole bank, to which
        fewer neighbours and a lower temperature are suited.
        """
        if self.step is not None:
            yield from self.step.refinements()
        if hasattr(self, "log_temperature"):
            yield multiples_of(self.log_temperature, self.temperature_multiples)
        yield from self.noise_refinements()

    def noise_refinements(self) -> Iterator[Refinement]:
        """Yield those that make up for the noise in a mean of few neighbours."""
        if self.shrinks:
            yield partial(setattr, self, "shrinkage"), SHRINKAGES

    @torch.no_grad()
    def fit_mean_residual(
        self, targets: Tensor, embeddings: Tensor, log_prior: Tensor | None = None
    ) -> None:
        """Set `mean_residual` by all rows: targets (n, c), with their embeddings (n, d)."""
        residuals = targets - self.adjustments(embeddings).to(targets)
        self.mean_residual = tuple(prior_mean(residuals, log_prior).tolist())

    def admit_all(self) -> None:
        """Admit all neighbours, of whose residuals none is left out."""
        self.n_neighbors, self.shrinkage = None, 0.0

    @property
    def shrinks(self) -> bool:
        """Whether a share of the residuals may be left out: of few neighbours they are noisy."""
        return self.n_adjusted > 0 and self.n_neighbors is not None

    @torch.no_grad()
    def fit_trust_radius(self, distances: Tensor) -> None:
        """Trust adjustments up to a multiple of rows' distances to their nearest neighbour."""
        self.trust_radius.fill_(trust_radius_of(distances))

    @property
    def temperature(self) -> Tensor | float:
        """Divisor of the similarities: the larger, the flatter the weights."""
        return self.log_temperature.exp() if hasattr(self, "log_temperature") else 1.0

    @property
    def max_neighbors(self) -> int | None:
        """How many nearest neighbours can have weight; None: all."""
        caps = [k for k in (self.n_neighbors, self.weighting.n_neighbors) if k is not None]
        return min(caps, default=None)

    def most_weighed(self, n: int) -> int | None:
        """How many of n neighbours, the nearest, are all that weights are computed from.

        Of equally near ones the first rows are taken. None: there is no such number, as with a
        step on similarities, which needs the farthest neighbour as well.
        """
        on_similarity = self.step is not None and self.step.on == "similarity"
        return None if on_similarity else self._most(n, self.weighting.n_neighbors)

    def most_nonzero(self, n: int) -> int | None:
        """How many of n neighbours can have weight, for any query; None: all."""
        return self._most(n, self.weighting.most_nonzero)

    def _most(self, n: int, of_weighting: int | None) -> int | None:
        bounds = [
            self.n_neighbors,
            None if self.weighting.ties else of_weighting,
            None if self.step is None else self.step.most_kept(n),
        ]
        most = min((bound for bound in bounds if bound is not None), default=None)
        return None if most is None else min(most, n)

    @property
    def is_plain(self) -> bool:
        """Whether it is the softmax of distances over a temperature, and nothing else."""
        plain = self.similarity == "l2" and type(self.weighting) is Softmax
        return plain and self.step is None and self.n_neighbors is None

    @property
    def counts_admitted(self) -> bool:
        """Whether weights depend on the number of admitted neighbours: by a step on ranks."""
        return self.step is not None and self.step.on == "rank"

    @property
    def keeps_proportions(self) -> bool:
        """Whether the other weights keep their proportions when a neighbour is removed."""
        weighting = self.weighting
        each_alone = weighting.one_by_one and not weighting.needs_nearest
        return each_alone and self.step is None and self.max_neighbors is None

    def affects_other_weights(
        self, weights: Tensor, similarity: Tensor, excluded: Tensor
    ) -> Tensor:
        """Which neighbours' removal could change the proportions of the others, bool (q, n).

        They are not kept by all removals: see :attr:`keeps_proportions`. A step on ranks moves
        by one place in all without a row that has no weight, which is left out.
        """
        nearest = similarity.masked_fill(excluded, -math.inf).amax(dim=1, keepdim=True)
        farthest = similarity.masked_fill(excluded, math.inf).amin(dim=1, keepdim=True)
        if self.max_neighbors is not None:  # the next one takes the place
            affects = ~self._exclude_beyond_k(similarity, excluded)
        elif not self.weighting.one_by_one or self.counts_admitted:
            affects = weights > 0
        else:
            affects = similarity == nearest
        if self.step is not None and self.step.on == "similarity":  # it is scaled by both ends
            affects = affects | (similarity == nearest) | (similarity == farthest)
        return affects & ~excluded

    def _exclude_beyond_k(self, similarity: Tensor, excluded: Tensor | None) -> Tensor:
        """Exclude neighbours that are too far to have weight as well, bool (q, n)."""
        if self.n_neighbors is not None:
            excluded = outside_nearest(similarity, self.n_neighbors, excluded)
        k = self.weighting.n_neighbors
        if k is not None:
            excluded = outside_nearest(similarity, k, excluded, ties=self.weighting.ties)
        assert excluded is not None
        return excluded

    def split_by_head(
        self, query: Tensor, neighbors: Tensor
    ) -> list[tuple["NONAHead", Tensor, Tensor]]:
        """List each head with its slices of the embeddings: this one, with all."""
        return [(self, query, neighbors)]

    def metric_part(self, embeddings: Tensor) -> Tensor:
        """Columns in which rows are compared, (n, d): all but the adjustments."""
        return embeddings[..., : embeddings.shape[-1] - self.n_adjusted]

    def adjustments(self, embeddings: Tensor) -> Tensor:
        """The network's own estimate of rows' targets, `g`, (n, n_adjusted)."""
        return embeddings[..., embeddings.shape[-1] - self.n_adjusted :]

    def compare(self, query: Tensor, neighbors: Tensor) -> Tensor:
        """Similarities (q, n) of metric parts."""
        function = SIMILARITIES[self.similarity]
        if self.training:
            function = TRAINING_SIMILARITIES.get(self.similarity, function)
        return function(query, neighbors)

    def scale(self, similarity: Tensor) -> Tensor:
        """Similarities over the temperature; they level off at the nugget, if it is learned."""
        if hasattr(self, "log_nugget"):  # -log sqrt(distance^2 + s^2), an inverse multiquadric
            floor = 2 * self.log_nugget.to(similarity.dtype)
            similarity = -torch.logaddexp(-2 * similarity, floor) / 2
        return similarity / self.temperature

    def weigh(
        self,
        similarity: Tensor,
        query: Tensor,
        neighbors: Tensor,
        excluded: Tensor | None = None,
        log_prior: Tensor | None = None,
        n_admitted: Tensor | None = None,
    ) -> Tensor:
        """Weights from the similarities (q, n) of metric parts.

        `neighbors` are of shape (n, d), or (q, n, d) if each query has others; `log_prior` is of
        shape (n,) or (q, n). `n_admitted`, (q, 1), is the number of admitted neighbours of each
        query, of which the given ones are the nearest, nearest first; None: they are all. The
        :meth:`most_weighed` nearest have the same weights as among all.
        """
        log_measure = None
        if self.step is not None:
            log_measure = self.step(similarity, query, excluded, n_admitted)
        if log_prior is not None:
            log_measure = log_prior if log_measure is None else log_measure + log_prior
        # The cap comes after the step, which would otherwise reject the last of the k as the
        # farthest of its row.
        if self.max_neighbors is not None and self.max_neighbors < similarity.shape[1]:
            excluded = self._exclude_beyond_k(similarity, excluded)
        if excluded is not None:
            measured = similarity.new_zeros(()) if log_measure is None else log_measure
            log_measure = measured.expand_as(similarity).masked_fill(excluded, -math.inf)
        elif log_measure is not None:
            log_measure = log_measure.expand_as(similarity)

        def between(positions: Tensor) -> Tensor:
            if neighbors.ndim == 2:
                z = neighbors[positions]
            else:
                z = neighbors.take_along_dim(positions[..., None], dim=1)
            function = SIMILARITIES[self.similarity]
            return self.scale(function(exact(z), exact(z)).to(similarity))

        return self.weighting.weigh(self.scale(similarity), log_measure, between)

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
        query : Tensor of shape (q, d + n_adjusted)
            Embeddings of the queries.
        neighbors : Tensor of shape (n, d + n_adjusted)
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
        query, neighbors = self.metric_part(query), self.metric_part(neighbors)
        return self.weigh(self.compare(query, neighbors), query, neighbors, excluded, log_prior)

    def forward(
        self,
        query: Tensor,
        neighbors: Tensor,
        targets: Tensor,
        excluded: Excluded = None,
        log_prior: Tensor | None = None,
        adjustment_scale: Tensor | float | None = 1.0,
    ) -> Tensor:
        """Predict the targets of queries from labelled neighbours.

        Parameters
        ----------
        query : Tensor of shape (q, d + n_adjusted)
            Embeddings of the queries.
        neighbors : Tensor of shape (n, d + n_adjusted)
            Embeddings of the neighbours.
        targets : Tensor of shape (n,) or (n, n_outputs)
            The neighbours' targets.
        excluded : bool Tensor of shape (q, n), or tuple of two Tensors of shape (p,), optional
            Pairs that have no weight, such as a training row and itself: a mask, or the positions
            of their queries and neighbours.
        log_prior : Tensor of shape (n,), optional
            Logarithm of each neighbour's prior weight. None: all are equal.
        adjustment_scale : float or Tensor of shape (n_outputs,), default=1.0
            One unit of the adjustment `g`, in units of the targets. None: no adjustment.

        Returns
        -------
        Tensor of shape (q,) or (q, n_outputs)
            Weighted means of the targets, each adjusted to its query.
        """
        values = targets.reshape(len(targets), -1)
        make_rows = partial(
            rows_of,
            self,
            query,
            neighbors,
            values,
            log_prior=log_prior,
            adjustment_scale=adjustment_scale,
            training=self.training,
        )
        if self.training and self.is_plain:  # compares, weighs and averages in one pass
            rows = make_rows(Candidates(query.new_empty(len(query), 0)))
            means = L2Attention.apply(
                self.metric_part(query),
                self.metric_part(neighbors),
                rows.summands(slice(None)),
                torch.as_tensor(self.temperature, device=query.device),
                excluded,
                log_prior,
            )
            has_neighbors = count_excluded(excluded, len(query)) < len(neighbors)
            means = rows.adjust(means, total=has_neighbors[:, None].to(means))
        elif self.training and (k := self.most_weighed(len(neighbors))) is not None:
            means = make_rows(compare_nearest(self, query, neighbors, excluded, k)).mean()
        else:
            by_l2 = not self.training and self.n_adjusted > 0
            candidates = compare_all(self, query, neighbors, excluded, by_l2, self.compare)
            means = make_rows(candidates).mean()
        return means.to(targets.dtype).reshape(len(query), *targets.shape[1:])

    def credible(self, means: Tensor, total: Tensor | float = 1.0) -> Tensor:
        """Predictions (q, c) or adjusted targets, drawn to the mean target where not credible."""
        if min(self.credibility) == 1:
            return means
        credibility = means.new_tensor(self.credibility)
        return credibility * means + (1 - credibility) * total * means.new_tensor(self.mean_target)

    def within_bounds(self, values: Tensor) -> Tensor:
        """Values, those beyond a bound replaced by it."""
        return values if self.bounds is None else values.clamp(*self.bounds)

    def possible(self, values: Tensor) -> Tensor:
        """The nearest values that a target can have, of two equally near ones the lower."""
        values = self.within_bounds(values)
        return (values - 0.5).ceil() + 0.0 if self.whole else values  # 0, not -0

    def unknown(self, means: Tensor) -> Tensor | float:
        """What is predicted, in the form of `means`, for a query without neighbours."""
        return math.nan

    def extra_repr(self) -> str:
        counts = f"n_neighbors={self.n_neighbors}, n_adjusted={self.n_adjusted}"
        return f"similarity={self.similarity!r}, {counts}"


def trust_radius_of(distances: Tensor) -> float:
    """How far adjustments are trusted, by rows' distances to their nearest neighbour."""
    finite = distances[distances.isfinite()]
    return TRUST_FACTOR * float(finite.max()) if len(finite) else math.inf


def prior_mean(values: Tensor, log_prior: Tensor | None) -> Tensor:
    """Mean (c,) of all rows' values (n, c), by their prior weights alone."""
    logits = values.new_zeros(len(values)) if log_prior is None else log_prior.to(values)
    return logits.softmax(dim=0) @ values


def multiples_of(logarithm: Tensor, multiples: tuple[float, ...]) -> Refinement:
    """How to set a number's logarithm, and those of its multiples."""
    candidates = logarithm + logarithm.new_tensor([math.log(m) for m in multiples])
    return logarithm.fill_, candidates


START_SMOOTHING = 0.02  # of a probability
TRAINING_SMOOTHING = 1e-3  # without a learned one: keeps the loss of an absent class finite
#: A network that separates the classes in training is overconfident.
CLASS_TEMPERATURE_MULTIPLES = (*TEMPERATURE_MULTIPLES, 1.3, 1.6, 2.0, 2.5, 3.0)
SMOOTHING_MULTIPLES = (1.0, 0.3, 3.0, 10.0, 30.0)  # of its odds


class ClassHead(NONAHead):
    """:class:`NONAHead` of classes: their weights' sums become probabilities.

    ``P(c | q) ~ ((1 - smoothing) sum_j w_j 1[y_j = c] + smoothing prior_c) exp(h_c(q))``,
    normalised. Without `h` and smoothing, this is section 3 of [1]_ with one-hot targets: each
    neighbour votes for its class with its weight. With `h`, the votes for class c are multiplied
    by ``exp(h_c(q))``, so each probability is still a sum over rows. Smoothing keeps
    probabilities above 0 if all neighbours are of one class.

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
        columns of a query's embedding are `h`; those of its neighbours are ignored.

    Notes
    -----
    Shapes as for :class:`NONAHead`; targets are one-hot, (n, C), and the output is of
    probabilities, (q, C). ``adjustment_scale=None`` omits `h` and smoothing. Beyond
    ``trust_radius``, `h` is attenuated.

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1, section 3.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import ClassHead
    >>> head = ClassHead(prior=torch.tensor([0.5, 0.5]), smoothing=False).eval()
    >>> head(torch.zeros(1, 2), torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.eye(2))
    tensor([[0.8808, 0.1192]])
    """

    _rows_class = ClassRows
    temperature_multiples = CLASS_TEMPERATURE_MULTIPLES

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

    def noise_refinements(self) -> Iterator[Refinement]:
        if hasattr(self, "logit_smoothing"):
            yield multiples_of(self.logit_smoothing, SMOOTHING_MULTIPLES)

    @property
    def shrinks(self) -> bool:
        return False  # classes have no residuals

    @property
    def smoothing(self) -> Tensor | float:
        """Share of the classes' frequencies in each probability."""
        if hasattr(self, "logit_smoothing"):
            return self.logit_smoothing.sigmoid()
        return TRAINING_SMOOTHING if self.training else 0.0

    def odds(self, own: Tensor, attenuation: Tensor | float = 1.0) -> Tensor:
        """Factor of each class's votes for each query, (q, C), `exp(h)`.

        The largest of each output is 1, so that none overflows.
        """
        blocks = (attenuation * own).split(self.sizes, dim=1)
        return torch.cat([(h - h.amax(dim=1, keepdim=True)).exp() for h in blocks], dim=1)

    def totals(self, masses: Tensor) -> Tensor:
        """Sum over the classes of each output, (q, C): the same for all of an output."""
        blocks = masses.split(self.sizes, dim=1)
        return torch.cat([b.sum(dim=1, keepdim=True).expand_as(b) for b in blocks], dim=1)

    def centred(self, logarithms: Tensor) -> Tensor:
        """Logarithms of probabilities less their mean over the classes of each output, (q, C)."""
        return logarithms - self.totals(logarithms) / self.totals(torch.ones_like(logarithms))

    def votes(
        self, masses: Tensor, smoothing: Tensor | float, odds: Tensor | float = 1.0
    ) -> Tensor:
        """Turn the classes' weights into votes, (q, C), in proportion to their probabilities."""
        # In this form, they sum to 1 to the last digits for any rounding of the share.
        return (masses + smoothing * (self.prior.to(masses.dtype) - masses)) * odds

    def normalized(self, votes: Tensor) -> Tensor:
        """Turn votes into probabilities, (q, C); 0, not NaN, without votes."""
        return votes / self.totals(votes).clamp_min(torch.finfo(votes.dtype).tiny)

    def unknown(self, means: Tensor) -> Tensor:
        """Probabilities, (C,): all classes of an output are equally probable."""
        return torch.cat([means.new_full((n,), 1 / n) for n in self.sizes])


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
        return list(zip(heads_of(self), query.chunk(n, 1), neighbors.chunk(n, 1), strict=True))

    def metric_part(self, embeddings: Tensor) -> Tensor:
        """Columns in which each head compares rows, side by side: all but the adjustments."""
        split = self.split_by_head(embeddings, embeddings)
        return torch.cat([head.metric_part(z) for head, z, _ in split], dim=1)

    def most_nonzero(self, n: int) -> int | None:
        """How many of n neighbours can have weight, for any query; None: all."""
        bounds = [head.most_nonzero(n) for head in heads_of(self)]
        finite = [most for most in bounds if most is not None]
        return min(sum(finite), n) if len(finite) == len(bounds) else None

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


def heads_of(head: NONAHead | AverageHead) -> list[NONAHead]:
    """The heads of an average, or the head itself."""
    return cast("list[NONAHead]", [*head.heads] if isinstance(head, AverageHead) else [head])
