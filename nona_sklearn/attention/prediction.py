"""How a prediction is made, from embeddings to a mean of adjusted targets.

Whoever has read the papers begins here. For a query q, and the rows j that can have weight:

    s_j = similarity(z_q, z_j)                               compare
    w_j = S_j omega_j kappa(s_j / tau), normalised           weigh
    y~_j = y_j + eta (g(q) - g(j) - lambda r_j)              adjust, by the network's estimate g
    y~_j = (1 - a) y~_j + a (f(q) + c (y_j - f_-j(j)))       adjust, by a trend f
    y^   = sum_j w_j y~_j                                    average
    y^   = gamma y^ + (1 - gamma) ybar                       draw to the mean target

``docs/formulas.md`` defines the symbols. In the code S is `head.step`, omega `log_prior`, kappa
`head.weighting`, tau `head.temperature`, eta `attenuation`, lambda `head.shrinkage`, a
`trend_share`, c `offset.kept`, f(q) `query_trend` and gamma `head.credibility`. The rows come
from :func:`compare_all`, or from an index that finds the nearest ones. :class:`NONAHead` has the
numbers that training learns. Both adjustments are affine, so that they also turn means of targets
into the mean of adjusted ones, unless the targets have bounds: then each adjusted target is
clipped to them (`adjusted`). For classes, :class:`ClassRows` turns the mean of one-hot targets
into probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from .._utils.precision import exact
from .._utils.threads import cached_property
from ..ranking import largest
from ..similarity import SIMILARITIES, l2, log_l2
from ..weighting.base import normalize
from .functional import Excluded, Similarity, adjusted_mean, attenuation, count_excluded

if TYPE_CHECKING:
    from .head import ClassHead, NONAHead


# -- compare -----------------------------------------------------------------------------------


def compare_all(
    head: NONAHead,
    query: Tensor,
    neighbors: Tensor,
    excluded: Excluded,
    by_l2: bool = False,
    compare: Similarity | None = None,
) -> Candidates:
    """Compare queries (q, d) with all rows (n, d) of one network's embeddings.

    With `by_l2`, the Euclidean distance of the nearest row is added where similarities lack it.
    Another function than the head's similarity may compare them, as in training.
    """
    query, neighbors = head.metric_part(query), head.metric_part(neighbors)
    compare = compare or SIMILARITIES[head.similarity]
    similarity = compare(query, neighbors)
    nearest = nearest_by_l2(head, query, neighbors, excluded) if by_l2 else None
    if excluded is not None:
        similarity = similarity.clone()
        similarity[excluded] = -math.inf
    return Candidates(similarity, nearest=nearest)


def compare_nearest(
    head: NONAHead, query: Tensor, neighbors: Tensor, excluded: Excluded, k: int
) -> Candidates:
    """Compare queries (q, d) with the k nearest rows of (n, d), as training does.

    They are found without gradient: ranked with gradient, all pairs would take several times as
    long. Where fewer than k are admitted, excluded ones follow. The gradient at distance zero is
    zero.
    """
    query, neighbors = head.metric_part(query), head.metric_part(neighbors)
    function = SIMILARITIES[head.similarity]
    if function in (l2, log_l2):  # negative squared distances, but for a summand of each query
        center = neighbors.detach().mean(dim=0)  # as in rounded_l2
        z = neighbors.detach() - center
        nearness = torch.addmm(-z.square().sum(dim=1), 2 * (query.detach() - center), z.T)
    else:  # a function that compares all with all
        similarity = function(query, neighbors)
        nearness = similarity.detach().clone()
    if excluded is not None:
        nearness[excluded] = -math.inf
    nearness, positions = largest(nearness, k)
    if function in (l2, log_l2):
        # The gradient of index_select is faster than that of an index.
        z = neighbors.index_select(0, positions.flatten()).view(*positions.shape, -1)
        squares = (query[:, None] - z).square().sum(dim=2)
        squares = squares.clamp_min(torch.finfo(squares.dtype).tiny)  # where the gradient is zero
        similarity = -squares.sqrt() if function is l2 else squares.log() / -2
    else:
        similarity = similarity.gather(1, positions)
    similarity = similarity.masked_fill(nearness == -math.inf, -math.inf)
    n_admitted = None
    if head.counts_admitted:
        n_admitted = len(neighbors) - count_excluded(excluded, len(query))
    return Candidates.of_search(similarity, positions, len(neighbors), n_admitted)


def nearest_by_l2(
    head: NONAHead, query: Tensor, neighbors: Tensor, excluded: Excluded
) -> Tensor | None:
    """Similarity l2 of the nearest neighbour, (q, 1); None if the similarities hold it."""
    if head.similarity in ("l2", "log_l2"):
        return None
    similarity = l2(query, neighbors[:])  # what a bank shares is copied here, if it has gaps
    if excluded is not None:
        similarity[excluded] = -math.inf
    if not similarity.shape[1]:
        return similarity.new_full((len(query), 1), -math.inf)
    return similarity.amax(dim=1, keepdim=True)


class LeftOutResiduals(Protocol):
    """Queries that are rows of the bank, and are left out of the trend at their neighbours."""

    @property
    def residuals(self) -> Tensor:
        """Residuals of the bank's rows from the trend without each query, (q, n, c)."""


@dataclass(eq=False)
class CandidateRows:
    """The candidate rows of a block of queries in one network: weights and adjusted targets.

    In a step of `training`, in its own precision, eta is 1 and lambda 0.
    """

    head: NONAHead
    query: Tensor  # (q, d), embeddings of the queries
    neighbors: Tensor  # (n, d), embeddings of the bank's rows
    targets: Tensor  # (n, c), theirs
    candidates: Candidates  # the rows that can have weight: m for each query
    log_prior: Tensor | None = None  # (n,), of the rows' sample weights; None: all are equal
    adjustment_scale: Tensor | float | None = 1.0  # of g in units of the targets; None: no g
    offset: Offset | None = None  # the trend at the rows
    query_trend: Tensor | None = None  # (q, c), the trend at the queries
    #: None: residuals from the trend are those of `offset`.
    left_out: LeftOutResiduals | None = None
    added: Tensor | None = None  # (q, c), what unknown levels add to probabilities
    training: bool = False
    _mean_of_summands: Tensor | None = field(default=None, init=False)

    def __post_init__(self):
        self.are_new_targets = self.adjustment_scale is None
        if not self.head.n_adjusted:
            self.adjustment_scale = None

    def __len__(self) -> int:
        return len(self.query)

    # -- weigh -----------------------------------------------------------------------------

    @property
    def positions(self) -> Tensor | None:
        """The candidates' rows, (q, m); None: all rows."""
        return self.candidates.positions

    @cached_property
    def rows(self) -> Tensor | slice:
        """What selects the candidates from tensors of the bank's rows: (q, m), or all."""
        positions = self.candidates.positions
        if positions is None:
            return slice(None)
        return positions.clamp_max(max(len(self.targets) - 1, 0))

    @cached_property
    def excluded(self) -> Tensor:
        """Candidates that are excluded, or no rows, (q, m)."""
        return self.candidates.similarity == -math.inf

    @cached_property
    def any_excluded(self) -> bool:
        """Whether any candidate is excluded, or there is none: without a tensor of all."""
        similarity = self.candidates.similarity
        return similarity.numel() == 0 or bool(similarity.amin() == -math.inf)

    def weigh(
        self, queries: Tensor | slice = slice(None), leaving: Tensor | None = None
    ) -> Tensor:
        """Weights (q, m) in float64 that sum to 1, or to 0 without neighbours.

        One candidate of every query, (q, 1), may be left out.
        """
        similarity, excluded = self.candidates.similarity[queries], None
        n_columns, most = similarity.shape[1], self.head.max_neighbors
        n_admitted = self.candidates.n_admitted
        if n_admitted is not None:
            n_admitted = n_admitted[queries] - int(leaving is not None)
        rows = self.rows if isinstance(self.rows, slice) else self.rows[queries]
        if self.any_excluded or leaving is not None:
            excluded = self.excluded[queries]
            if leaving is not None:
                excluded = excluded.scatter(1, leaving, True)
            similarity = similarity.masked_fill(excluded, 0.0)  # no NaN
        if self.head.weighting.ties:  # of equally near rows, more may have weight
            most = self.head.n_neighbors
        if not isinstance(rows, slice) and leaving is None and most is not None:
            # Nearest first, so that the rows beyond need not be ranked to have no weight.
            similarity, rows = similarity[:, :most], rows[:, :most]
            excluded = None if excluded is None else excluded[:, :most]
        neighbors = self.head.metric_part(self.neighbors)
        if not self.head.weighting.one_by_one:  # it may compare them with each other
            neighbors = neighbors[rows]
        weights = self.head.weigh(
            similarity,
            self.head.metric_part(self.query)[queries],
            neighbors,
            excluded,
            None if self.log_prior is None else self.log_prior[rows].to(similarity),
            n_admitted,
        )
        if not self.training:  # sums of weights are 1 in the precision of the targets
            weights = normalize(weights.to(self.targets.dtype))
        if weights.shape[1] == n_columns:
            return weights
        return F.pad(weights, (0, n_columns - weights.shape[1]))

    weights = cached_property(weigh)  # of all candidates

    def shares(self, power: float = 1.0) -> Tensor:
        """Weights to a power, (q, m), as shares of their sum.

        The prior is not taken to the power: a row of weight 2 stays two rows.
        """
        if power == 1:
            return self.weights
        if self.log_prior is None:
            weights = self.weights**power
        else:  # as logarithms: priors may be of any size
            priors = exact(self.log_prior[self.rows])
            logits = power * self.weights.log() + (1 - power) * priors
            most = logits.amax(dim=1, keepdim=True)
            weights = (logits - torch.where(most.isfinite(), most, 0.0)).exp()
        return normalize(weights)

    def step_sum(self) -> Tensor:
        """Sum of each query's steps over all rows, (q,): its learned number of neighbours."""
        assert self.head.step is not None
        similarity = self.candidates.similarity.masked_fill(self.excluded, 0.0)
        query = self.head.metric_part(self.query)
        return exact(self.head.step(similarity, query, self.excluded)).exp().sum(dim=1)

    # -- adjust ----------------------------------------------------------------------------

    @property
    def adjusts(self) -> bool:
        """Whether targets are adjusted."""
        return self.adjustment_scale is not None or self.offset is not None

    def summands(self, rows: Tensor | slice, queries: Tensor | slice = slice(None)) -> Tensor:
        """Targets y of rows, then their g and residuals of the trend, if any, (..., c').

        :meth:`adjust` takes them of rows, or their weighted mean.
        """
        targets = select(self.targets, rows)
        if not self.adjusts:
            return targets
        if self.training:  # y - g is all that is needed
            return targets - self._adjustments(self.neighbors, rows)
        parts = [targets]
        if self.adjustment_scale is not None:
            parts.append(self._adjustments(self.neighbors, rows))
        if self.left_out is not None:
            residuals = self.left_out.residuals[queries]
            if not isinstance(rows, slice):
                residuals = residuals.take_along_dim(rows[..., None], dim=1)
            parts = [*(part.expand(*residuals.shape[:-1], -1) for part in parts), residuals]
        elif self.offset is not None:
            parts.append(targets - select(self.offset.values, rows))
        return torch.cat(parts, dim=-1)

    def adjust(
        self,
        summands: Tensor,
        queries: Tensor | slice = slice(None),
        total: Tensor | float = 1.0,
        attenuation: Tensor | None = None,
    ) -> Tensor:
        """Adjust targets (q, b, c'), or means (q, c'), of neighbours to some queries.

        `total`, (q, 1), is the sum of the weights of a mean. `attenuation`, (q, 1), replaces
        that of the queries.
        """
        if not self.adjusts:
            return summands
        if self.training:
            return summands + total * self.query_adjustments
        axes = (slice(None), None)[: summands.ndim - 1]  # of the queries, before the outputs
        adjusted, *summands_of_models = summands.split(self.targets.shape[1], dim=-1)
        if self.adjustment_scale is not None:
            eta = self.attenuation[queries] if attenuation is None else attenuation
            shrinkage = self.head.shrinkage
            adjusted = adjusted_mean(
                adjusted,
                summands_of_models[0],
                total,
                self.query_adjustments[queries][axes],
                eta[axes],
                shrinkage,
                adjusted.new_tensor(self.head.mean_residual) if shrinkage else 0.0,
            )
        if self.offset is not None:
            assert self.query_trend is not None
            trend, share = self.query_trend[queries][axes], self.trend_share[queries][axes]
            adjusted = self.offset.mix(adjusted, summands_of_models[-1], trend, share, total)
        return self.head.credible(adjusted, total)

    def adjusted(self, rows: Tensor | slice, queries: Tensor | slice = slice(None)) -> Tensor:
        """Adjusted targets of rows (q, b), or of all, for some queries, (q, b, c)."""
        summands = self.summands(rows, queries)
        summands = summands if summands.ndim == 3 else summands[None]
        adjusted = self.adjust(summands, queries)
        return self.head.within_bounds(adjusted) if self.adjusts else adjusted

    def residuals_not_kept(self, rows: Tensor | slice) -> Tensor:
        """What adjusted targets of rows (q, b), or of all, lack of their rows' residuals."""
        assert self.offset is not None
        residuals = self.summands(rows)[..., -self.targets.shape[1] :]
        return (1 - self.offset.kept) * self.sensitivity[:, 1, None] * residuals

    def _adjustments(self, embeddings: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Adjustments g of rows, (..., c), in units of the targets."""
        assert self.adjustment_scale is not None
        g = select(self.head.adjustments(embeddings), rows)
        return self.adjustment_scale * (g if self.training else g.to(self.targets.dtype))

    @cached_property
    def query_adjustments(self) -> Tensor:
        """Adjustments g of the queries, (q, c)."""
        return self._adjustments(self.query)

    @cached_property
    def attenuation(self) -> Tensor:
        """Factor of each query's adjustments, (q, 1), less than 1 far from the bank."""
        if self.training or not self.head.trust_radius.isfinite():
            return self.query_adjustments.new_ones(len(self.query_adjustments), 1)
        return attenuation(self.distance, self.head.trust_radius)

    @cached_property
    def trend_share(self) -> Tensor:
        """The trend's share in each query's prediction, (q, 1); 0 without one."""
        if self.offset is not None and self.offset.fades:
            return self.offset.share_at(self.distance)
        share = 0.0 if self.offset is None else self.offset.share
        return self.targets.new_full((len(self), 1), share)

    @property
    def sensitivity(self) -> Tensor:
        """By how much adjusted targets change with the query's g, and with f, (q, 2, c)."""
        share = self.trend_share.expand(-1, self.targets.shape[1])
        of_network = torch.zeros_like(share)
        if self.adjustment_scale is not None:
            of_network = (1 - share) * self.attenuation * self.adjustment_scale
        return share.new_tensor(self.head.credibility) * torch.stack([of_network, share], dim=1)

    @property
    def distance(self) -> Tensor:
        """Euclidean distance to the nearest row, (q, 1); infinite without one."""
        if self.candidates.nearest is not None:
            distance = -exact(self.candidates.nearest)
        else:
            nearest = exact(self.candidates.similarity.amax(dim=1, keepdim=True))
            distance = (-nearest).exp() if self.head.similarity == "log_l2" else -nearest
        return distance.to(self.targets.dtype)

    # -- average ---------------------------------------------------------------------------

    def mean(self) -> Tensor:
        """Weighted means of the adjusted targets, (q, c)."""
        if self.adjusts and self.head.bounds is not None:
            return self.mean_by(self.weights)
        if self._mean_of_summands is None:  # it stays where what adjusts it is refined
            self._mean_of_summands = average(self.weights, self.summands(self.rows))
        return self.adjust(self._mean_of_summands, total=self.total())

    def mean_by(
        self,
        weights: Tensor,
        queries: Tensor | slice = slice(None),
        attenuation: Tensor | None = None,
    ) -> Tensor:
        """Predictions of some queries by other weights of their candidates, (q, c)."""
        rows = self.rows if isinstance(self.rows, slice) else self.rows[queries]
        if self.adjusts and self.head.bounds is not None:  # not affine
            return average(weights, self.adjusted(rows, queries))
        means = average(weights, self.summands(rows, queries))
        return self.adjust(means, queries, self.total(queries), attenuation)

    def plain_mean(self) -> Tensor:
        """Weighted means of the targets, (q, c), not adjusted."""
        return average(self.weights, self.targets[self.rows])

    def total(self, queries: Tensor | slice = slice(None)) -> Tensor | float:
        """Sums of the weights of some queries, (q, 1): 1, or 0 without neighbours."""
        if not self.any_excluded:
            return 1.0
        return (~self.excluded[queries]).any(dim=1, keepdim=True).to(self.targets.dtype)


class ClassRows(CandidateRows):
    """Candidates of a :class:`~nona_sklearn.attention.ClassHead`: targets are one-hot."""

    head: ClassHead
    adjusts = True  # a vote is not a target

    @property
    def smoothing(self) -> Tensor | float:
        """Share of the classes' frequencies in each probability; 0 for other labels than fit's."""
        return 0.0 if self.are_new_targets else self.head.smoothing

    def summands(self, rows: Tensor | slice, queries: Tensor | slice = slice(None)) -> Tensor:
        return self.targets[rows]  # `h` depends on the query alone

    @cached_property
    def masses(self) -> Tensor:
        """Weight of each class, (q, C)."""
        return self.plain_mean()

    @cached_property
    def odds(self) -> Tensor:
        """Factor of the weight of each class, (q, C)."""
        if self.adjustment_scale is None:
            return self.targets.new_ones(len(self), self.targets.shape[1])
        return self.head.odds(self.query_adjustments, self.attenuation)

    @cached_property
    def votes(self) -> Tensor:
        """Votes for each class, (q, C)."""
        return self.head.votes(self.masses, self.smoothing, self.odds)

    def pooled(self, votes: Tensor, place: Any = slice(None)) -> Tensor:
        """Votes pooled with the trend, if there is one: with what `place` selects of it."""
        if self.offset is None:
            return votes
        assert self.query_trend is not None
        return self.offset.pool(votes, self.query_trend[place])

    def adjust(
        self,
        summands: Tensor,
        queries: Tensor | slice = slice(None),
        total: Tensor | float = 1.0,
        attenuation: Tensor | None = None,
    ) -> Tensor:
        """Probabilities, (q, C), by the weights of the classes."""
        odds = self.odds[queries]
        if attenuation is not None:
            odds = self.head.odds(self.query_adjustments[queries], attenuation)
        votes = self.head.votes(summands, self.smoothing, odds)
        return self.mixed(self.head.normalized(self.pooled(votes, queries)), queries)

    @cached_property
    def kept(self) -> Tensor:
        """Share of each probability that unknown levels leave to the rows, (q, C)."""
        if self.added is None:
            return self.targets.new_ones(len(self), self.targets.shape[1])
        return 1 - self.head.totals(self.added)

    def mixed(self, probabilities: Tensor, place: Any) -> Tensor:
        """Probabilities with what unknown levels add: with what `place` selects of it."""
        if self.added is None:
            return probabilities
        return self.added[place] + self.kept[place] * probabilities

    def adjusted(self, rows: Tensor | slice, queries: Tensor | slice = slice(None)) -> Tensor:
        """What a unit of weight of some rows adds to each probability, (q, b, C)."""
        pooled = self.pooled(self.votes)
        factor = torch.where(self.votes > 0, pooled / self.votes, 1.0)
        scale = (1 - self.smoothing) * self.odds * factor / self.head.totals(pooled)
        return self.targets[rows] * (self.kept * scale)[queries, None]


def rows_of(head: NONAHead, *columns: Any, **options: Any) -> CandidateRows:
    """Return the candidates of a head, whose targets are numbers or classes."""
    return head._rows_class(head, *columns, **options)


def select(values: Tensor, rows: Tensor | slice) -> Tensor:
    """Values (n, c) of rows, (m, c) or (q, m, c), in less time than by an index."""
    if isinstance(rows, slice):
        return values[rows]
    return values.index_select(0, rows.flatten()).view(*rows.shape, values.shape[1])


def average(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted means (q, c) of each query's values (q, m, c), or of all values (m, c)."""
    if values.ndim == 2:
        # A product's last digit may depend on where memory begins, which a mapped file shifts.
        return weights @ values.clone()
    return (weights[:, None] @ values)[:, 0]


# -- what rows are, and what a trend makes of them ------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """The rows of the bank that can have weight for some queries, in one network's space.

    Found rows are nearest first, equally near ones in the order of the bank.
    """

    similarity: Tensor  # (q, m); -inf of an excluded row, and where there is no row
    positions: Tensor | None = None  # (q, m); the bank's length is no row. None: all, in order
    n_admitted: Tensor | None = None  # (q, 1), of all rows, if weights depend on their number
    nearest: Tensor | None = None  # (q, 1), the largest l2, if similarities do not hold it

    def __getitem__(self, queries: slice | Tensor) -> Candidates:
        """Select some of the queries."""
        tensors = {name: tensor for name, tensor in vars(self).items() if tensor is not None}
        return Candidates(**{name: tensor[queries] for name, tensor in tensors.items()})

    @classmethod
    def of_search(
        cls,
        similarity: Tensor,
        positions: Tensor,
        n_rows: int,
        n_admitted: Tensor | None,
        nearest: Tensor | None = None,
    ) -> Candidates:
        """What an index finds among so many rows, some of which, (q,), are admitted."""
        positions = positions.masked_fill(similarity == -math.inf, n_rows)
        if n_admitted is not None:
            n_admitted = n_admitted[:, None].to(positions.device)
        return cls(similarity, positions, n_admitted, nearest)

    @property
    def depends_on_all(self) -> bool:
        """Whether weights or adjustments depend on rows beyond them."""
        return self.n_admitted is not None or self.nearest is not None

    def first(self, k: int) -> Candidates:
        """The k nearest of them."""
        assert self.positions is not None
        return replace(self, similarity=self.similarity[:, :k], positions=self.positions[:, :k])

    @classmethod
    def concatenate(cls, blocks: list[Candidates]) -> Candidates:
        """Concatenate blocks of queries."""
        if len(blocks) == 1:
            return blocks[0]
        names = [name for name, tensor in vars(blocks[0]).items() if tensor is not None]
        return cls(**{name: torch.cat([getattr(b, name) for b in blocks]) for name in names})

    @classmethod
    def merge(cls, parts: Sequence[Candidates], starts: Sequence[int]) -> Candidates:
        """Candidates of a bank in parts, whose first rows are at positions; last, its length."""
        nearest = None
        if parts[0].nearest is not None:
            nearest = torch.stack([p.nearest for p in parts if p.nearest is not None]).amax(dim=0)
        similarity = torch.cat([part.similarity for part in parts], dim=1)
        if parts[0].positions is None:
            return cls(similarity, nearest=nearest)
        shifted = [
            part.positions + first
            for part, first in zip(parts, starts[:-1], strict=True)
            if part.positions is not None
        ]
        positions = torch.cat(shifted, dim=1).masked_fill(similarity == -math.inf, starts[-1])
        # The rows of a part are in order, so that a stable order breaks ties by row.
        similarity, order = similarity.sort(dim=1, descending=True, stable=True)
        n_of_all = None
        if parts[0].n_admitted is not None:
            n_admitted = [part.n_admitted for part in parts if part.n_admitted is not None]
            n_of_all = torch.stack(n_admitted).sum(dim=0)
        return cls(similarity, positions.gather(1, order), n_of_all, nearest)


@dataclass(frozen=True, eq=False)
class Offset:
    """What a trend f makes of neighbours and of a prediction.

    A neighbour's target, as a network has adjusted it, becomes ``(1 - share) target + share
    (f(q) + kept (y_j - f(j)))``, and so does their weighted mean. For classes, f is the logarithm
    of their probabilities, and their votes become ``votes^(1 - share) exp(f(q))^share``.
    """

    values: Tensor  # (n, n_outputs) in float64: f(j), each fitted to other rows; of classes logs
    share: float  # of the trend in a prediction, up to 1: a blend states or fits it
    kept: float  # the share of the neighbours' residuals in it; classes have none
    trust_radius: float = math.inf  # distance to the nearest row from which the share fades

    def __getitem__(self, rows: Tensor | slice) -> Offset:
        return replace(self, values=self.values[rows])

    @property
    def fades(self) -> bool:
        """Whether the trend's share depends on the query."""
        return self.trust_radius < math.inf

    def share_at(self, distance: Tensor) -> Tensor:
        """The trend's share at queries, by the distances of their nearest neighbours, (q, 1)."""
        return self.share * attenuation(distance, self.trust_radius)

    def mix(
        self,
        of_network: Tensor,
        residuals: Tensor,
        of_query: Tensor,
        share: Tensor | float,
        total: Tensor | float = 1.0,
    ) -> Tensor:
        """Adjusted targets or means of them, with residuals or means of these, and f(q).

        `total` is the sum of the weights: 1, or 0 without neighbours.
        """
        of_trend = total * of_query + self.kept * residuals
        return (1 - share) * of_network + share * of_trend

    def pool(self, votes: Tensor, of_query: Tensor) -> Tensor:
        """Votes for classes, multiplied by the trend's odds: a share of both logarithms."""
        return self.shifted(votes ** (1 - self.share), of_query)

    def shifted(self, pooled: Tensor, change: Tensor) -> Tensor:
        """Votes that are pooled with the trend, where it changes."""
        return pooled * (self.share * change).exp()
