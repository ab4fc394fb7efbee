"""The bank: the rows stored at fit, their ids and names, and edits that make another bank."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.row_values import normalize_mean, number_new_groups
from .._data.rule_columns import StoredRule
from .._data.sample import Embedded, TableRows
from .._data.tables import names_of_new
from .._data.times import TimeKind
from .._trend.trend import Trend
from .._utils.precision import EXACT
from .._utils.storable import storable
from .._utils.threads import cached_property
from .._utils.validation import as_tensor, check_all_known, some_of
from ..attention.head import AverageHead, NONAHead
from ..attention.prediction import Offset
from .distribution import Calibration
from .evaluation import Evaluation
from .influence import TrendShifts
from .neighbors import (
    Cache,
    Exclusion,
    LabelExclusion,
    LeftOutQueries,
    MaskExclusion,
    Neighbors,
    RuleExclusion,
    TimeExclusion,
    UnknownLevels,
)
from .shared_rows import SharedRows, without_rows

#: In a pickle; version 0.2.0 had none of the last four.
PLAIN_FIELDS = (
    *("names", "numbered", "target_names", "calibration", "weight_unit"),
    *("time", "group_names", "unknown_levels", "trend", "rule"),
)
#: Numbers of axes; of the remaining arrays, 1.
N_AXES = {"values": (1, 2)} | dict.fromkeys(("levels", "inputs", "offset", "compared"), (2,))
FEW_READ = 8  # one of so many rows, of which a trend is evaluated at these alone
N_USUAL = 1000  # rows at most whose nearest neighbours are searched
ROUNDING = 1e-5  # of distances between embeddings in float32
#: Numbers of its trend.
OF_OFFSET = "share", "kept", "trust_radius"


def positions_of_names(own: np.ndarray, names: Sequence[Hashable]) -> np.ndarray:
    """Return the ascending positions of `names` in `own`; a ValueError lists unknown names."""
    wanted, distinct = dict.fromkeys(names), {*own.tolist()}
    check_all_known("names", [name for name in wanted if name not in distinct])
    return np.flatnonzero([name in wanted for name in own.tolist()])


@dataclass(eq=False)
class TrendValues:
    """A trend at the rows of a bank, (n, n_outputs), which is evaluated where it is read.

    So an edit that changes the trend takes no time for the rows that no query has as neighbours.
    """

    trend: Trend
    ids: Tensor  # (n,)
    inputs: SharedRows | None  # (n, n_features), for a trend that reads them
    like: Tensor  # (0, n_outputs), of their dtype and device

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.ids), self.like.shape[1]

    @cached_property
    def tensor(self) -> Tensor:
        """The values at all rows."""
        return self._evaluate(self.ids, self.inputs)

    def _evaluate(self, ids: Tensor, inputs: Any) -> Tensor:
        rows = None if inputs is None else TableRows(inputs)
        return torch.from_numpy(self.trend.of_rows(ids.cpu().numpy(), rows)).to(self.like)

    def __getitem__(self, rows: Tensor | np.ndarray | slice) -> Tensor:
        rows = rows if isinstance(rows, slice) else torch.as_tensor(rows)
        if isinstance(rows, slice) or rows.dtype == torch.bool:
            return self.tensor[rows]
        return self.index_select(0, rows.flatten()).view(*rows.shape, self.like.shape[1])

    def index_select(self, dim: int, positions: Tensor) -> Tensor:
        """Values at some positions, (m,), of dimension 0; of many rows, all are evaluated."""
        if "tensor" in vars(self) or len(positions) * FEW_READ > len(self.ids):
            return self.tensor.index_select(dim, positions)
        some, back = positions.unique(return_inverse=True)
        inputs = None if self.inputs is None else self.inputs[some.to(self.inputs.device)]
        return self._evaluate(self.ids[some], inputs).index_select(dim, back)


@storable
@dataclass(frozen=True, eq=False)
class NeighborBank:
    """Labelled rows by id: all that a prediction depends on beside the network.

    Edits return a new bank, so that threads may still read the old one.
    """

    neighbors: Neighbors  # embeddings, targets and priors of the rows
    #: (n,), ascending; by default the row numbers of fit.
    ids: Tensor = None  # type: ignore[assignment]  # set after init
    next_id: Tensor = None  # type: ignore[assignment]  # of the next row: no id is used twice
    groups: Tensor | None = None  # (n,), numbers
    names: np.ndarray | None = None  # (n,), objects; None: they are named by their ids
    #: Whether added rows without a name are named by their ids, as the rows of fit; otherwise they
    #: are named "added <id>", since the rows of fit may have numbers as names.
    numbered: bool = True
    target_names: tuple[str, ...] | None = None
    calibration: Calibration | None = None  # how weighted targets become a distribution
    weight_unit: float = 1.0  # the sample weight of fit that has a log prior of 0
    time: TimeKind | None = None  # what the rows' times are; None: they have none
    group_names: np.ndarray | None = None  # by number; None of a row that is a group by itself
    levels: Tensor | None = None  # (n, n_categories), of the table; -1: none that is stored
    unknown_levels: UnknownLevels | None = None  # what unseen levels do to predictions
    trend: Trend | None = None  # its values at the rows are their offsets
    #: SharedRows (n, n_features), which may be given as a tensor: encoded, for a trend that is
    #: solved anew.
    input_rows: Any = None
    rule: StoredRule | None = None  # of rows that may be neighbours; None: all may
    #: The rows that are neighbours, of many that are rows of the bank; None: all rows are.
    sources: NeighborBank | None = None

    def __repr__(self):
        return f"NeighborBank(n_rows={len(self)})"

    def __post_init__(self):
        if isinstance(self.input_rows, Tensor):
            vars(self)["input_rows"] = SharedRows(self.input_rows)
        if self.ids is None:
            vars(self)["ids"] = torch.arange(len(self), device=self.neighbors.rows.device)
        if self.next_id is None:
            vars(self)["next_id"] = torch.tensor(len(self))
        if self.groups is not None and self.group_names is None:
            n_groups = int(self.groups.max()) + 1 if len(self) else 0
            vars(self)["group_names"] = np.full(n_groups, None, dtype=object)

    def __len__(self) -> int:
        return len(self.neighbors)

    @property
    def embeddings(self) -> Tensor:
        """Embeddings of the rows, (n, d)."""
        return self.neighbors.embeddings

    @property
    def targets(self) -> Tensor:
        """Their targets, (n,) or (n, n_outputs)."""
        return self.neighbors.values

    @property
    def inputs(self) -> Tensor | None:
        """Encoded features of the rows, (n, n_features), for a trend that is solved anew."""
        return None if self.input_rows is None else self.input_rows.tensor

    @property
    def device(self) -> torch.device:
        """Device of the rows."""
        return self.ids.device

    @property
    def n_units(self) -> int:
        """Number of rows, or of groups, that can be left out."""
        return len(self) if self.groups is None else len(self.groups.unique())

    @property
    def row_weights(self) -> np.ndarray:
        """Sample weights of the rows, of mean 1, (n,) in float64."""
        prior = self.neighbors.log_prior
        return np.ones(len(self)) if prior is None else normalize_mean(prior).cpu().numpy()

    # -- evaluation ----------------------------------------------------------------------

    def evaluate(
        self,
        head: NONAHead | AverageHead,
        queries: Embedded | None = None,
        leave_out: str = "itself",
        eligibility: StoredRule | Tensor | None = None,
    ) -> Evaluation:
        """Evaluate a head for queries, or for the bank's own rows by default.

        `leave_out` ("itself" or "group") determines which neighbours are excluded for the bank's
        own rows: themselves, or their group, if they have one. With times, all are excluded that
        are not earlier. Queries without times are later than the bank. `eligibility` is a rule, or
        a mask (q, n) of admitted pairs, in place of the bank's own rule.
        """
        if self.sources is not None and queries is not None:
            return self.sources.evaluate(head, queries, leave_out, eligibility)
        if queries is not None:
            return Evaluation(
                head,
                self.neighbors,
                queries.embeddings,
                self.exclude(queries, eligibility),
                added=queries.added,
                query_trend=self.trend_of(queries),
                shifts=self.shifts_at(queries),
            )
        return self._evaluate_own(head, slice(None), leave_out, eligibility)

    def _evaluate_own(
        self,
        head: NONAHead | AverageHead,
        rows: Tensor | slice,
        leave_out: str,
        eligibility: StoredRule | Tensor | None = None,
    ) -> Evaluation:
        """Evaluate a head for some of the bank's rows."""
        own, sources = self.neighbors, self.sources or self
        queries, ids = self.ids[rows], sources.ids
        labels: tuple[Tensor, Tensor] = queries, ids
        if leave_out == "group" and self.groups is not None and sources.groups is not None:
            labels = self.groups[rows], sources.groups
        itself = sources.neighbors.after(some_of(own.times, rows), LabelExclusion(*labels))
        left_out, shifts, offset = None, None, own.offset
        if self.trend is not None and leave_out == "itself":
            shifts = self.shifts_at(None, rows)
            if self.trend.leaves_out_single_rows:
                left_out = LeftOutQueries(self.trend, sources.neighbors, ids, queries)
        return Evaluation(
            head,
            sources.neighbors,
            own.rows[rows],
            sources._admit(eligibility, some_of(own.compared, rows), itself),
            query_trend=None if offset is None else offset.values[rows],
            left_out=left_out,
            shifts=shifts,
        )

    def evaluate_rows(
        self,
        head: NONAHead | AverageHead,
        rows: np.ndarray,
        limits: np.ndarray | None = None,
        leave_out: str = "group",
    ) -> Evaluation:
        """Evaluate some of the bank's rows, each without itself or its group.

        With times, neighbours are before the limits, (len(rows),), or else before the row.
        """
        found = self._evaluate_own(head, torch.as_tensor(rows, device=self.device), leave_out)
        if limits is None:
            return found
        before, exclusion, trend = torch.as_tensor(limits), found.exclusion, found.query_trend
        before = before.to(self.device)
        assert isinstance(exclusion, TimeExclusion | RuleExclusion)
        exclusion = exclusion.before(before)
        if self.trend is not None and trend is not None:
            ids, own = self.ids[rows].cpu().numpy(), None
            if self.input_rows is not None:
                own = TableRows(self.input_rows[torch.from_numpy(rows)])
            trend = torch.from_numpy(self.trend.of_rows(ids, own, before)).to(trend)
        return replace(found, exclusion=exclusion, query_trend=trend)

    def share_as_far(
        self,
        head: NONAHead | AverageHead,
        distances: Tensor,
        eligibility: StoredRule | None = None,
    ) -> Tensor:
        """Share of the rows as far from their nearest neighbour as queries, by distances (q,).

        A query counts as one of them, so that the share is a p-value. Rows are a sample, each
        without itself or its group; those without a neighbour are left out.
        """
        rows = np.random.RandomState(0).permutation(len(self))[:N_USUAL]
        evaluation = self.restrict(self.evaluate_rows(head, rows), eligibility, rows)
        usual = evaluation.nearest(1)[0][:, 0].sort().values
        usual = usual[usual.isfinite()]
        n_nearer = torch.searchsorted(usual, (1 - ROUNDING) * distances)
        return (1 + len(usual) - n_nearer).to(distances) / (1 + len(usual))

    def exclude(
        self,
        queries: Embedded,
        eligibility: StoredRule | Tensor | None = None,
        labels: LabelExclusion | None = None,
    ) -> Exclusion | None:
        """Exclude what is not earlier than queries, and what a rule or a mask does not admit."""
        compared = queries.compared
        if self.rule is not None and compared is not None:
            assert queries.columns is not None
            compared = self.rule.columns.renumbered(compared, queries.columns)
        return self._admit(eligibility, compared, self.neighbors.after(queries.times, labels))

    def _admit(
        self, eligibility: StoredRule | Tensor | None, compared: Tensor | None, further: Any
    ) -> Exclusion | None:
        """Exclude what a rule or a mask does not admit, or else the bank's own rule."""
        if isinstance(eligibility, Tensor):
            return MaskExclusion(eligibility, further)
        rule = self.rule if eligibility is None else eligibility
        if rule is None:
            return further
        assert compared is not None
        assert self.neighbors.compared is not None
        by_column = self.neighbors.compared.T.contiguous().T  # so that a column is contiguous
        return RuleExclusion(rule, compared, by_column, further)

    def restrict(
        self, evaluation: Evaluation, eligibility: StoredRule | Tensor | None, rows: np.ndarray
    ) -> Evaluation:
        """An evaluation of some of the bank's rows, by a rule or mask in place of the bank's."""
        if eligibility is None:
            return evaluation
        further = evaluation.exclusion
        if isinstance(further, RuleExclusion):
            further = further.further
        compared = some_of(self.neighbors.compared, torch.from_numpy(rows))
        return replace(evaluation, exclusion=self._admit(eligibility, compared, further))

    def shifts_at(
        self, queries: Embedded | None, own: Tensor | slice = slice(None)
    ) -> TrendShifts | None:
        """By how much the trend at queries changes without each row, if that is known.

        None: at some of its own rows.
        """
        if self.trend is None or not self.trend.is_solved or self.neighbors.times is not None:
            return None
        rows, sources = self.input_rows, self.sources or self
        assert rows is not None
        assert sources.input_rows is not None
        shifts = partial(TrendShifts, self.trend, sources.ids, sources.input_rows)
        if queries is None:
            return shifts(TableRows(rows[own]), self.ids[own])
        assert queries.inputs is not None
        return shifts(queries.inputs)

    def trend_at(self, rows: np.ndarray, inputs: TableRows | None) -> Tensor | None:
        """The trend at some rows if they had other features, (len(rows), n_outputs)."""
        if self.trend is None:
            return None
        assert inputs is not None
        moved = self.trend.moved(self.ids[rows].cpu().numpy(), inputs)
        return moved.to(self.neighbors.columns)

    def trend_of(self, queries: Embedded) -> Tensor | None:
        """The trend at queries, (q, n_outputs), of earlier rows if they have times."""
        if self.trend is None:
            return None
        assert queries.inputs is not None
        if queries.times is None:
            found = self.trend(queries.inputs)
        else:
            found = self.trend.from_earlier(queries.inputs, queries.times)
        return found.to(self.neighbors.columns)

    # -- editing -------------------------------------------------------------------------

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Positions of ids in the bank, shape of `ids`; a ValueError names unknown ids."""
        own = self.ids.cpu().numpy()
        if np.array_equal(ids, own):  # of all rows, which a search would take long to find
            return np.arange(len(own))
        positions = np.searchsorted(own, ids)
        known = positions < len(own)
        known[known] = own[positions[known]] == ids[known]
        check_all_known("ids", np.unique(ids[~known]).tolist())
        return positions

    def names_of(self, positions: np.ndarray | slice) -> np.ndarray:
        """Names of the rows at these positions, shape of `positions`."""
        names = self.ids.cpu().numpy() if self.names is None else self.names
        return names[positions]

    def add(
        self,
        neighbors: Neighbors,
        labels: np.ndarray | None = None,
        groups: np.ndarray | None = None,
        levels: np.ndarray | None = None,
        inputs: TableRows | None = None,
        ids: np.ndarray | None = None,
    ) -> NeighborBank:
        """Return a bank with further rows, named by `labels` if any.

        Each is a group by itself, unless it is in one of `groups`, (n,). Without `levels`,
        (n, n_categories), theirs are not known. A trend needs their `inputs`; it is not fitted to
        them. Their ids are the next ones, unless they have `ids`.
        """
        new = self.next_id + torch.arange(len(neighbors))
        new = new if ids is None else torch.from_numpy(ids)
        names = names_of_new(labels, new.numpy(), self.names_of(slice(None)), self.numbered)
        if self.names is None and names.tolist() == new.tolist():
            joined = None
        else:
            joined = np.concatenate([self.names_of(slice(None)).astype(object), names])
        group_names, numbers = self.group_names, self.groups
        if numbers is not None and group_names is not None:
            group_names, further = number_new_groups(groups, len(neighbors), group_names)
            numbers = torch.cat([numbers, torch.from_numpy(further).to(numbers)])
        codes = self.levels
        if codes is not None:
            unknown = np.full((len(neighbors), codes.shape[1]), -1, dtype=np.int32)
            codes = torch.cat([codes, torch.as_tensor(unknown if levels is None else levels)])
        trend, offset, kept = self.trend, self.neighbors.offset, self.input_rows
        if trend is not None:
            assert inputs is not None
            if offset is not None or trend.grows:
                trend = trend.with_rows(new.numpy(), inputs, neighbors, groups)
            # In a shard there are no values: see `join_shards`.
            if offset is not None and not self.neighbors.evaluates_late:
                values = torch.from_numpy(trend.of_rows(new.numpy(), inputs)).to(offset.values)
                neighbors = replace(neighbors, offset=replace(offset, values=values))
            if kept is not None:
                kept = kept.extended(inputs.encoded.to(kept.memory.tensor))
        grown = replace(
            self,
            neighbors=self.neighbors.join(neighbors),
            trend=trend,
            input_rows=kept,
            levels=codes,
            ids=torch.cat([self.ids, new.to(self.ids)]),
            next_id=self.next_id + len(neighbors),
            groups=numbers,
            group_names=group_names,
            names=joined,
        )
        return grown._read_late(self)

    def keep(self, positions: np.ndarray) -> NeighborBank:
        """Return a bank of the rows at these positions, in their present order.

        A trend in closed form is fitted anew without the others.
        """
        return self.without(np.delete(np.arange(len(self)), positions))

    def without(self, positions: np.ndarray) -> NeighborBank:
        """Return a bank without the rows at these positions, ascending.

        A trend in closed form is fitted anew without them.
        """
        left = self._without(positions)
        if self.trend is None:
            return left
        trend = self.trend.without(self.ids[torch.from_numpy(positions)].cpu().numpy())
        if trend.is_solved and trend is not self.trend:
            return left.with_trend(trend)
        return replace(left, trend=trend)

    def _without(self, positions: np.ndarray) -> NeighborBank:
        """Return a bank without the rows at these positions, ascending, with the same trend."""
        removed, inputs = torch.from_numpy(positions).to(self.device), self.input_rows
        left = self._select(
            lambda part: without_rows(part, removed.to(part.device)),
            self.neighbors.without(removed),
            None if inputs is None else inputs.without(removed.to(inputs.device)),
        )._read_late(self)
        if (sources := self.sources) is None:
            return left
        if self.groups is not None:  # they have new numbers
            return left.with_sources(sources)
        gone = np.flatnonzero(np.isin(sources.ids.cpu().numpy(), self.ids[removed].cpu().numpy()))
        return replace(left, sources=sources._without(gone) if len(gone) else sources)

    def _read_late(self, before: NeighborBank) -> NeighborBank:
        """Return a bank that evaluates the trend where it is read, if the one before does."""
        late = before.neighbors.evaluates_late
        return self if self.trend is None or not late else self.with_trend(self.trend)

    def with_trend(self, trend: Trend) -> NeighborBank:
        """Return a bank with another trend of the same rows, or of some of them."""
        offset = self.neighbors.offset
        assert offset is not None
        n_outputs = offset.values.shape[1]
        none = self.neighbors.values.new_empty(0, n_outputs, dtype=EXACT)
        values: Any = TrendValues(trend, self.ids, self.input_rows, none)
        neighbors = self.neighbors.with_offset(replace(offset, values=values))
        sources = None if self.sources is None else self.sources.with_trend(trend)
        return replace(self, neighbors=neighbors, trend=trend, sources=sources)

    def with_sources(self, sources: NeighborBank | Tensor | None) -> NeighborBank:
        """Return the bank with some rows, those of a bank or ascending ids, as the neighbours."""
        if sources is None:
            return self
        ids = sources if isinstance(sources, Tensor) else sources.ids
        rows, inputs = torch.isin(self.ids, ids).nonzero()[:, 0], self.input_rows
        few = replace(
            self,
            neighbors=self.neighbors[rows],
            ids=self.ids[rows],
            groups=some_of(self.groups, rows),
            input_rows=None if inputs is None else SharedRows(inputs[rows.to(inputs.device)]),
            names=None,
            levels=None,
            sources=None,
        )
        # The index of all rows, which is not needed any more, takes as much memory as these.
        neighbors = replace(self.neighbors, cache=Cache(self.neighbors.rows))
        return replace(self, sources=few._read_late(self), neighbors=neighbors)

    def in_order(self, positions: np.ndarray) -> NeighborBank:
        """Return a bank of the rows at these positions, in this order, with the same trend."""
        rows, inputs = torch.as_tensor(positions, device=self.device), self.input_rows
        return (
            self._select(
                lambda part: part[rows.to(part.device)],
                self.neighbors[rows],
                None if inputs is None else SharedRows(inputs[rows.to(inputs.device)]),
            )
            ._read_late(self)
            .with_sources(self.sources)
        )

    def _select(
        self,
        some: Callable[[Tensor], Tensor],
        neighbors: Neighbors,
        input_rows: SharedRows | None,
    ) -> NeighborBank:
        """Return a bank of some rows, by a function that selects them from a tensor of all."""
        groups, group_names, names, rule = self.groups, self.group_names, self.names, self.rule
        if groups is not None and group_names is not None:
            kept, groups = some(groups).unique(return_inverse=True)
            group_names = group_names[kept.cpu().numpy()]  # no others are remembered
        if rule is not None and neighbors.compared is not None:
            columns, compared = rule.columns.of_rows(neighbors.compared)
            neighbors, rule = replace(neighbors, compared=compared), replace(rule, columns=columns)
        if names is not None:
            names = names[some(torch.arange(len(self))).numpy()]
        return replace(
            self,
            neighbors=neighbors,
            rule=rule,
            ids=some(self.ids),
            levels=None if self.levels is None else some(self.levels),
            input_rows=input_rows,
            groups=groups,
            group_names=group_names,
            names=names,
        )

    def renumbered(self, ids: np.ndarray, next_id: int) -> NeighborBank:
        """Return a bank whose row with the id i has the id ``ids[i]``; these are ascending."""
        trend = None if self.trend is None else self.trend.renumbered(ids)
        new = torch.from_numpy(ids).to(self.ids)[self.ids]
        sources = None if self.sources is None else self.sources.renumbered(ids, next_id)
        following = torch.tensor(next_id)
        return replace(self, ids=new, next_id=following, trend=trend, sources=sources)

    def latest(self, n_rows: int | None = None, max_age: float | None = None) -> NeighborBank:
        """Return a bank of the latest rows: so many, and up to an age before the latest."""
        assert self.neighbors.times is not None
        times = self.neighbors.times.cpu().numpy()
        kept = every = np.arange(len(self))
        if max_age is not None:
            kept = kept[times >= times.max() - max_age]
        if n_rows is not None and len(kept) > n_rows:
            kept = kept[np.argsort(times[kept], kind="stable")[-n_rows:]]
        return self if len(kept) == len(self) else self._without(np.delete(every, kept))

    def with_targets(
        self, targets: Tensor, target_names: tuple[str, ...] | None = None
    ) -> NeighborBank:
        """Return a bank with other targets, whose adjustments and calibration are invalid."""
        unknown = self.unknown_levels
        neighbors = replace(self.neighbors, values=targets, adjustment_scale=None, offset=None)
        return replace(
            self,
            neighbors=neighbors,
            target_names=target_names,
            calibration=None,
            trend=None,
            input_rows=None,
            unknown_levels=None if unknown is None else unknown.with_targets(neighbors),
        )

    # -- pickling ------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Store tensors as arrays, which joblib maps from disk with ``mmap_mode``."""
        tensors = {
            "embeddings": self.embeddings,
            "values": self.targets,
            "log_prior": self.neighbors.log_prior,
            "unit": self.neighbors.adjustment_scale,
            "groups": self.groups,
            "times": self.neighbors.times,
            "compared": self.neighbors.compared,
            "levels": self.levels,
            "inputs": self.inputs,
        }
        shares: dict[str, float] = {}
        if (offset := self.neighbors.offset) is not None:
            tensors |= {"offset": offset.values[:]}
            shares = {name: getattr(offset, name) for name in OF_OFFSET}
        if self.sources is not None:
            tensors |= {"sources": self.sources.ids}
        if len(self) != self.next_id:  # otherwise ids are row numbers
            tensors |= {"ids": self.ids, "next_id": self.next_id}
        arrays = {
            name: torch.as_tensor(t).cpu().numpy() for name, t in tensors.items() if t is not None
        }
        others = {name: getattr(self, name) for name in PLAIN_FIELDS}
        search = {"algorithm": self.neighbors.algorithm, "graphs": self.neighbors.graphs()}
        return {"arrays": arrays, **others, **search, **shares}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tensors = {name: as_tensor(array) for name, array in state["arrays"].items()}
        offset = None
        if (values := tensors.pop("offset", None)) is not None:
            offset = Offset(values, *(state[name] for name in OF_OFFSET if name in state))
        neighbors = Neighbors(
            tensors.pop("embeddings"),
            tensors.pop("values"),
            tensors.pop("log_prior", None),
            tensors.pop("unit", None),
            state.get("algorithm", "auto"),  # version 0.2.0 had none
            tensors.pop("times", None),
            tensors.pop("compared", None),
            offset,
        )
        neighbors.cache.graphs = state.get("graphs")
        if "inputs" in tensors:
            tensors["input_rows"] = tensors.pop("inputs")
        sources = tensors.pop("sources", None)
        others: dict[str, Any] = {name: state[name] for name in PLAIN_FIELDS if name in state}
        made = NeighborBank(neighbors, **(tensors | others))
        made._check_shapes()
        made = made.with_sources(sources)
        vars(self).update(vars(made))

    def _check_shapes(self) -> None:
        """Reject arrays of inconsistent shapes, as in a forged file."""
        if self.embeddings.ndim != 2 or self.ids.dtype != torch.int64 or self.next_id.ndim != 0:
            raise ValueError(
                "a bank has embeddings of shape (n, d), integers as ids and a next_id"
            )
        each_row = {
            "values": self.targets,
            "log_prior": self.neighbors.log_prior,
            "ids": self.ids,
            "groups": self.groups,
            "times": self.neighbors.times,
            "compared": self.neighbors.compared,
            "names": self.names,
            "levels": self.levels,
            "inputs": self.inputs,
            "offset": None if self.neighbors.offset is None else self.neighbors.offset.values,
        }
        for name, array in each_row.items():
            n_axes = N_AXES.get(name, (1,))
            if array is not None and (array.ndim not in n_axes or len(array) != len(self)):
                raise ValueError(
                    f"{name} of a bank of {len(self)} rows cannot have shape {tuple(array.shape)}"
                )
