"""Estimators with a bank in shards, and the folder that holds the shards.

A prediction depends on few rows of a bank if the remaining rows have weight 0. A shard finds its
rows that can have weight for given queries. The rows of all shards are joined to a bank in
memory, on which methods for queries return the same results as on the whole bank.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial, reduce, wraps
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from filelock import FileLock
from joblib import Parallel, delayed
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._data.rule_columns import StoredRule
from .._data.sample import Embedded, TableRows
from .._estimators.base import NeighborEstimator
from .._estimators.editing import ids_and_names, without_levels
from .._estimators.queries import check_rule, eligibility_of, number_of_neighbors
from .._inference.bank import NeighborBank, positions_of_names
from .._inference.evaluation import Evaluation
from .._inference.neighbors import LabelExclusion, Neighbors
from .._persistence.file import MANIFEST, decoding, read, refuse_model_trend, write
from .._utils.files import as_path, new_folder, put_in_place
from .._utils.threads import ForkSafeLock, snapshot
from .._utils.validation import (
    check_all_known,
    check_flag,
    check_n_neighbors,
    check_some_left,
    is_whole,
    spans,
)
from ..attention.head import AverageHead, NONAHead
from ..attention.prediction import Candidates, Offset
from ..eligibility import Eligibility, Required

ESTIMATOR = "estimator.safetensors"
LOCK = "edits.lock"  # locked during an edit; released if the edit's process ends
MAPPED_BYTES = 2**26  # size of the shards' files that a process keeps mapped
VERIFIED = 2**14  # number of files that a process does not verify again
FURTHER = {"graphs", "origin"}  # in a shard of version 0.2.0, and of fit_shards
SHARD = r"shard-[0-9]{5,19}\.safetensors"
PLAN, FITTED = "unfinished.json", "unfinished.safetensors"  # until fit_shards has ended
#: A killed edit leaves unlisted shards, and a folder beside the file that it wrote. Version 0.2.0
#: left a file with the name of such a folder, or with a name by safetensors.
ESTIMATORS = r"estimator(-[0-9]{5,19})?\.safetensors"
OF_BUILDING = rf"{re.escape(PLAN)}|{re.escape(FITTED)}"
BESIDE = rf"\.({SHARD}|{ESTIMATORS}|{re.escape(MANIFEST)}|{OF_BUILDING})\.[0-9a-f]{{32}}"
LEFT = rf"{SHARD}|{ESTIMATORS}|{OF_BUILDING}|{BESIDE}|\.tmp[0-9A-Za-z]{{6}}"


@dataclass(frozen=True)
class Entry:
    """A shard in the manifest: its file, the file's checksum, and its rows' number and ids."""

    path: Path
    sha256: str
    n_rows: int
    first: int
    last: int

    @classmethod
    def of(cls, path: Path, sha256: str, bank: NeighborBank) -> Entry:
        """Return the entry of a shard in a file with this checksum."""
        return cls(path, sha256, len(bank), int(bank.ids[0]), int(bank.ids[-1]))

    def open(self) -> NeighborBank:
        """Return the mapped shard. Raise a FileNotFoundError (missing) or ValueError (damaged)."""
        return CACHE.read(self)

    def read(self, verify: bool) -> NeighborBank:
        """Return the mapped shard. `verify` compares the checksum of its content."""
        held = read(self.path, verify=verify, checksum=self.sha256)
        bank = held.get("bank") if isinstance(held, dict) else None
        if not isinstance(bank, NeighborBank) or held.keys() - FURTHER != {"bank"}:
            raise ValueError(f"{self.path} is damaged: it holds no shard")
        if (graphs := held.get("graphs")) is not None:  # of version 0.2.0
            bank.neighbors.cache.graphs = graphs
        ends = [*bank.ids[:1].tolist(), *bank.ids[-1:].tolist()]
        if len(bank) != self.n_rows or ends != [self.first, self.last]:
            raise ValueError(f"{self.path} is damaged: it holds other rows than are listed")
        return bank


class ShardCache:
    """The mapped shards that this process read last, and the files that it verified.

    A shard keeps its data for comparisons with queries. Memory is bounded, and a small bank is
    prepared once.
    """

    def __init__(self) -> None:
        self.mapped: dict[tuple[Entry, int], tuple[NeighborBank, int]] = {}
        self.verified: dict[tuple[Entry, int], None] = {}  # the last file comes last
        self.lock = ForkSafeLock()

    def read(self, entry: Entry) -> NeighborBank:
        """Return a mapped shard, verified when this process first reads its file."""
        path = entry.path
        try:
            about = os.stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"shard {path.name} is missing from {path.parent}") from None
        key = entry, about.st_mtime_ns
        with self.lock.held():
            shard, _ = self.mapped.pop(key, (None, 0))
            if shard is None:
                shard = entry.read(verify=key not in self.verified)
            self.mapped[key] = shard, about.st_size
            n_bytes = sum(size for _, size in self.mapped.values())
            while len(self.mapped) > 1 and n_bytes > MAPPED_BYTES:
                _, size = self.mapped.pop(next(iter(self.mapped)))
                n_bytes -= size
            self.verified.pop(key, None)
            self.verified[key] = None
            if len(self.verified) > VERIFIED:
                del self.verified[next(iter(self.verified))]
        return shard


CACHE = ShardCache()


@dataclass(frozen=True)
class Folder:
    """The content of a manifest. A change returns a new folder, which :meth:`write` writes."""

    path: Path
    estimator: str  # checksum of the estimator's file
    next_id: int  # of the next row that is added
    next_number: int = 0  # of the next file: numbers of files that were ever listed are not reused
    shards: tuple[Entry, ...] = ()  # in the order of the rows' ids
    estimator_file: str = ESTIMATOR

    @classmethod
    def read(cls, path: Path) -> Folder:
        """Return the manifest. Raise a FileNotFoundError (missing) or ValueError (damaged)."""
        manifest = path / MANIFEST
        if not manifest.is_file():
            unfinished = ": call fit_shards again, which has not finished it"
            raise FileNotFoundError(
                f"folder must be one that save_shards wrote, there is no {MANIFEST} in {path}"
                f"{unfinished * (path / PLAN).exists()}"
            )
        text = manifest.read_bytes()
        with decoding(manifest, "is damaged"):
            content = json.loads(text)
            if content.pop("sha256") != _sha256(content):
                raise ValueError("its checksum does not fit what it lists")
            shards = content.pop("shards")
            if not all(re.fullmatch(SHARD, shard["path"]) for shard in shards) or not shards:
                raise ValueError("it must list shards of its folder")
            entries = (Entry(**(shard | {"path": path / shard["path"]})) for shard in shards)
            folder = cls(path, shards=tuple(entries), **content)
            folder._check()
        return folder

    def _check(self) -> None:
        """Raise if a value is no number, or ids or files overlap, since no edit writes it."""
        low = 0
        _check_checksum("estimator", self.estimator)
        if not re.fullmatch(ESTIMATORS, self.estimator_file):
            raise ValueError(f"estimator_file must be of the folder, got {self.estimator_file!r}")
        for entry in self.shards:
            name = entry.path.name
            _check_checksum(f"sha256 of {name}", entry.sha256)
            _check_whole(f"first of {name}", entry.first, low)
            _check_whole(f"last of {name}", entry.last, entry.first)
            _check_whole(f"n_rows of {name}", entry.n_rows, 1, entry.last - entry.first + 1)
            low = entry.last + 1
        _check_whole("next_id", self.next_id, low)
        numbers = [int(entry.path.stem.removeprefix("shard-")) for entry in self.shards]
        _check_whole("next_number", self.next_number, max(numbers) + 1)

    @classmethod
    @contextmanager
    def editing(cls, path: Path) -> Iterator[Folder]:
        """Yield the manifest under a lock, and delete unlisted files in the end."""
        cls.read(path)  # FileLock would create a missing folder
        with lock_of(path):
            before = cls.read(path)
            try:
                yield before
            finally:
                cls.read(path).tidy()

    def put(self, bank: NeighborBank, replaced: Entry | None = None) -> Folder:
        """Write a shard and return the folder with it, in place of `replaced` or at the end."""
        path = self.path / f"shard-{self.next_number:05d}.safetensors"
        # An existing file with this name was never listed: its edit was interrupted.
        new = Entry.of(path, write({"bank": bank}, path), bank)
        shards = tuple(new if entry is replaced else entry for entry in self.shards)
        shards = shards if replaced else (*shards, new)
        return replace(self, shards=shards, next_number=self.next_number + 1)

    def put_estimator(self, estimator: Any) -> Folder:
        """Write a new estimator and return the folder with it."""
        name = f"estimator-{self.next_number:05d}.safetensors"
        checksum, number = write(estimator, self.path / name), self.next_number + 1
        return replace(self, estimator=checksum, estimator_file=name, next_number=number)

    def without(self, entries: Collection[Entry]) -> Folder:
        """Return the folder without the shards of `entries`."""
        left = tuple(entry for entry in self.shards if entry not in entries)
        return replace(self, shards=left)

    def write(self) -> None:
        """Write the manifest, or raise if it could not be read, as for too large numbers."""
        with decoding(self.path / MANIFEST, "cannot be written"):
            self._check()
        shards = [asdict(entry) | {"path": entry.path.name} for entry in self.shards]
        content = vars(self) | {"shards": shards}
        del content["path"]
        with put_in_place(self.path / MANIFEST) as beside:
            beside.write_text(json.dumps(content | {"sha256": _sha256(content)}, indent=1))

    def tidy(self) -> None:
        """Delete unlisted files of edits, and folders of interrupted edits, not links' targets."""
        listed = {self.estimator_file, *(entry.path.name for entry in self.shards)}
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                if re.fullmatch(BESIDE, path.name):
                    shutil.rmtree(path)
            elif re.fullmatch(LEFT, path.name) and path.name not in listed:
                path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return sum(entry.n_rows for entry in self.shards)


def lock_of(path: Path, timeout: float = -1) -> FileLock:
    """Return the lock of a folder, which waits for seconds, or without end."""
    lock = path / LOCK
    # Some versions of filelock empty the target of a link.
    if lock.is_symlink() or lock.is_dir():
        raise ValueError(f"{lock} must be a file of the folder's own, not a link or folder")
    return FileLock(lock, timeout)


def _check_whole(name: str, value: Any, low: int, high: int = 2**62) -> None:
    if not is_whole(value, low, high):
        raise ValueError(f"{name} must be an integer from {low} to {high}, got {value!r:.50}")


def _check_checksum(name: str, value: Any) -> None:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{name} must be a SHA-256 in hexadecimal, got {value!r:.50}")


def _sha256(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


QUERY_BLOCK = 4096  # number of queries in a search
DISTANCE_BLOCK = 512  # number of queries for kneighbors, which searches the found rows again
OPEN_ROWS = 4096  # added rows join the last shard if it has fewer rows
#: Methods that return arrays with one entry per query. Results of blocks are concatenated.
ARRAY_METHODS = (
    *("predict", "predict_proba", "predict_log_proba", "predict_quantiles", "predict_cdf"),
    *("kneighbors", "heaviest_neighbors"),
)
#: Methods that need all queries at once.
TABLE_METHODS = "explain", "attribute", "sample_y", "score"
#: Methods that need all rows at once, and methods that need none.
BANK_METHODS = "neighbor_weights", "neighborhood", "influence", "neighbor_stability"
NETWORK_METHODS = "embed", "transform"
METHODS = ARRAY_METHODS + TABLE_METHODS + BANK_METHODS + NETWORK_METHODS
EDITS = "set_neighbor_targets", "compress", "calibrate"  # which need all rows at once


def save_shards(estimator: Any, folder: Any, n_shards: int) -> None:
    """Save a fitted estimator in a folder, with its bank in several files, called shards.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or \
            SoftStepKNeighborsClassifier
        The fitted estimator. If `n_neighbors` limits the rows of a prediction, a shard returns few
        rows for a query. Otherwise it returns all of its rows.
    folder : str or path-like
        The folder to write. It must not exist.
    n_shards : int
        Number of shards. Their numbers of rows are about equal.

    Raises
    ------
    TypeError
        If `estimator` is of a different class, or has a part that a file cannot contain, such as
        a model as `trend`.
    ValueError
        If `estimator` is not fitted, or `n_shards` is not between 1 and the number of rows.
    OSError
        If `folder` exists (FileExistsError), or cannot be written. No files remain then.

    See Also
    --------
    fit_shards : Shards of a table beyond memory.
    ShardedNeighbors : Predictions from the folder.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from nona_sklearn import ShardedNeighbors, SoftStepKNeighborsRegressor, save_shards
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> folder = Path(tempfile.mkdtemp(), "flats")
    >>> save_shards(knn.fit(X, y), folder, n_shards=2)
    >>> ShardedNeighbors(folder).predict([[84]]).round()
    array([425.])
    """
    path = as_path("folder", folder)
    check_kind(estimator)
    check_is_fitted(estimator)
    bank = estimator.bank_
    if not is_whole(n_shards, 1, len(bank)):
        raise ValueError(
            f"n_shards must be an integer from 1 to the bank's {len(bank)} rows, got {n_shards!r}"
        )
    refuse_model_trend(estimator, "shards", "use trend='kernel'")
    bank = ungrouped(bank)
    with new_folder(path) as beside:
        empty = with_bank(estimator, emptied(bank))
        written = Folder(beside, write(empty, beside / ESTIMATOR), int(bank.next_id))
        for rows in np.array_split(np.arange(len(bank)), n_shards):
            written = written.put(indexed(bank.in_order(rows), estimator))
        written.write()


def check_kind(estimator: Any) -> None:
    """Raise if the estimator has no bank."""
    if not isinstance(estimator, NeighborEstimator):
        raise TypeError(
            f"estimator must be one of nona_sklearn with a bank, got {estimator!r:.100}"
        )


def with_bank(estimator: Any, bank: NeighborBank) -> Any:
    """Return a snapshot of an estimator with a different bank."""
    made = snapshot(estimator)
    made.bank_ = bank
    return made


def ungrouped(bank: NeighborBank) -> NeighborBank:
    """Return a bank without groups, which shards do not keep."""
    return replace(bank, groups=None, group_names=None)


def emptied(bank: NeighborBank) -> NeighborBank:
    """Return the empty bank of the estimator's file, with the trend."""
    # A solved trend has its own rows. Any further kind of trend has one value per row of the bank.
    return (bank.in_order if is_solved(bank) else bank.keep)(np.arange(0))


def is_solved(bank: NeighborBank) -> bool:
    """Return whether a bank has a trend whose values at rows follow from their features."""
    return bank.trend is not None and bank.trend.is_solved


def unvalued(bank: NeighborBank) -> NeighborBank:
    """Return a bank without the values of a solved trend, which few of its rows ever need."""
    if not is_solved(bank):
        return bank
    return replace(bank, neighbors=bank.neighbors.with_offset(None))


def indexed(bank: NeighborBank, estimator: Any) -> NeighborBank:
    """Return a shard to be written, with its graphs.

    The estimator holds a transformer and the trend instead.
    """
    algorithm = estimator.bank_.neighbors.algorithm
    neighbors = bank.neighbors.searched_by(algorithm if isinstance(algorithm, str) else "auto")
    if algorithm == "hnsw":
        neighbors.indexes(estimator.network_.head)
    return replace(unvalued(replace(bank, neighbors=neighbors)), trend=None)


# -- rows of all shards as one bank ------------------------------------------------------------


class ShardsLostError(Exception):
    """Shards could not be read. `errors` are by entry."""

    def __init__(self, errors: dict[Entry, Exception]):
        super().__init__(errors)
        self.errors = errors


@dataclass(frozen=True, eq=False)
class SelectedRows(NeighborBank):
    """The rows of all shards on which queries depend, as a bank in memory."""

    queries: Embedded | None = None  # None: the bank has all rows
    #: The rows that can have weight for the queries, by network. None: they are searched.
    candidates: tuple[Candidates, ...] | None = None

    def evaluate(
        self,
        head: NONAHead | AverageHead,
        queries: Embedded | None = None,
        leave_out: str = "itself",
        eligibility: StoredRule | Tensor | None = None,
    ) -> Evaluation:
        """Return the evaluation of a head, as :meth:`NeighborBank.evaluate` does."""
        evaluation = super().evaluate(head, queries, leave_out, eligibility)
        if self.queries is None or queries is None or len(queries) < len(self.queries):
            return evaluation  # among the rows, neighbours of some of the queries are searched
        assert torch.equal(queries.embeddings, self.queries.embeddings)
        return replace(evaluation, candidates=self.candidates)

    def evaluate_rows(
        self,
        head: NONAHead | AverageHead,
        rows: np.ndarray,
        limits: np.ndarray | None = None,
        leave_out: str = "group",
    ) -> Evaluation:
        """Return the evaluation of rows, as :meth:`NeighborBank.evaluate_rows` does."""
        evaluation = super().evaluate_rows(head, rows, limits, leave_out)
        if self.queries is None:
            return evaluation
        assert self.queries.ids is not None
        assert torch.equal(self.ids[rows], self.queries.ids)
        return replace(evaluation, candidates=self.candidates)


@dataclass(frozen=True)
class Search:
    """A search for the rows of shards on which queries depend."""

    head: NONAHead | AverageHead
    algorithm: Any  # str or transformer, for the search of nearest rows
    queries: Embedded  # with ids if they are rows of the bank, which are not their own neighbours
    n_rows: int  # of all shards
    n_neighbors: int  # number of neighbours that a query must have
    by_weight: bool  # whether the rows that can have weight are found, or else the nearest
    eligibility: Eligibility | None = None  # in place of the rule of fit
    offset: Offset | None = None  # of no row: a search reads none of a trend's values

    def wanted(self, evaluation: Evaluation) -> list[int]:
        """Return the numbers of nearest rows, by network, that are searched for a query."""
        bounds = evaluation.bounds(self.n_rows)
        assert bounds is not None  # without bounds, all rows are read
        return [max(bound, self.n_neighbors) + 1 for bound in bounds]


def search_shard(
    entry: Entry, search: Search
) -> tuple[NeighborBank, tuple[Candidates, ...]] | Exception:
    """Return the rows of a shard on which queries depend, and candidates, or the error.

    joblib calls it for one shard after another, or on the workers of its backend.
    """
    try:
        bank = entry.open()
    except (OSError, ValueError) as error:
        return error
    queries = search.queries
    neighbors, offset = bank.neighbors.searched_by(search.algorithm), search.offset
    if offset is not None:
        offset = replace(offset, values=torch.zeros_like(neighbors.columns))
    itself, of_queries = None, torch.zeros(len(queries), neighbors.columns.shape[1])
    # The first rows fill up if fewer than n_neighbors rows are admitted.
    positions = [torch.arange(min(search.n_neighbors + 1, len(bank)))]
    if queries.ids is not None:
        itself = LabelExclusion(queries.ids, bank.ids)
        positions.append(torch.isin(bank.ids, queries.ids).nonzero()[:, 0])
    rule = eligibility_of(bank, search.eligibility, len(queries))
    exclusion = bank.exclude(queries, rule, itself)
    evaluation = Evaluation(
        search.head,
        neighbors.with_offset(offset),
        queries.embeddings,
        exclusion,
        query_trend=None if offset is None else of_queries,
    )
    candidates: tuple[Candidates, ...] = ()
    if not search.by_weight:
        positions.append(evaluation.nearest(search.n_neighbors)[1].flatten())
    else:
        candidates = evaluation.search(search.wanted(evaluation)) or ()
        positions += [c.positions.flatten() for c in candidates if c.positions is not None]
    rows = torch.cat(positions).unique()
    rows = rows[(rows >= 0) & (rows < len(bank))]  # -1 and len(bank): no row
    renumbered = tuple(
        replace(c, positions=torch.searchsorted(rows, c.positions.contiguous()))
        for c in candidates
        if c.positions is not None
    )
    return bank.in_order(rows.numpy()), renumbered


def select_rows(
    estimator: Any,
    folder: Folder,
    queries: Embedded,
    n_neighbors: int = 1,
    by_weight: bool = True,
    eligibility: Eligibility | None = None,
    n_jobs: int | None = None,
) -> SelectedRows:
    """Return the rows on which results for queries depend, or raise a ShardsLostError.

    For the arguments, see :class:`Search` and :class:`ShardedNeighbors`.
    """
    empty = estimator.bank_
    search = Search(
        estimator.network_.head,
        empty.neighbors.algorithm,
        replace(queries, network=None, row_labels=None, added=None, inputs=None),
        len(folder),
        n_neighbors,
        by_weight,
        eligibility,
        empty.neighbors.offset,
    )
    find: Callable = delayed(search_shard)
    results = Parallel(n_jobs)(find(entry, search) for entry in folder.shards)
    pairs = list(zip(folder.shards, results, strict=True))
    if lost := {entry: found for entry, found in pairs if isinstance(found, Exception)}:
        raise ShardsLostError(lost)
    banks = [bank for bank, _ in results]
    if not by_weight:
        return join_shards(empty, banks, queries)
    starts = [0, *accumulate(map(len, banks))]
    wanted = search.wanted(empty.evaluate(search.head))
    candidates = [
        Candidates.merge(parts, starts).first(k)
        for k, *parts in zip(wanted, *(c for _, c in results), strict=True)
    ]

    # Of the rows that shards have found, those among the nearest of all shards are joined.
    positions = [torch.arange(min(n_neighbors + 1, starts[-1]))]
    positions += [c.positions.flatten() for c in candidates if c.positions is not None]
    if queries.ids is not None:
        ids = torch.cat([bank.ids for bank in banks])
        positions.append(torch.isin(ids, queries.ids).nonzero()[:, 0])
    rows = torch.cat(positions).unique()
    cuts = torch.searchsorted(rows, torch.tensor(starts)).tolist()
    kept = [
        bank.in_order((rows[low:high] - start).numpy())
        for bank, start, (low, high) in zip(banks, starts[:-1], pairwise(cuts), strict=True)
    ]
    rows = rows[: cuts[-1]]
    renumbered = tuple(
        replace(c, positions=torch.searchsorted(rows, c.positions.contiguous()))
        for c in candidates
        if c.positions is not None
    )
    return join_shards(empty, kept, queries, renumbered)


def as_queries(bank: NeighborBank, network: Any) -> Embedded:
    """Return the rows of a bank as queries with ids, which are no neighbours of themselves."""
    return Embedded(
        bank.embeddings,
        network,
        ids=bank.ids,
        times=bank.neighbors.times,
        compared=bank.neighbors.compared,
        columns=None if bank.rule is None else bank.rule.columns,
    )


def join_shards(
    empty: NeighborBank,
    banks: list[NeighborBank],
    queries: Embedded | None = None,
    candidates: tuple[Candidates, ...] | None = None,
) -> SelectedRows:
    """Return a bank with the rows of `banks`, in order, and the remaining fields of `empty`.

    The values of a solved trend at the rows are computed here.
    """
    parts, rule = [bank.neighbors for bank in banks], empty.rule
    if rule is not None:
        of_banks = [bank.rule.columns for bank in banks if bank.rule is not None]
        columns = reduce(lambda joined, own: joined.with_levels(own.levels), of_banks)
        rule = replace(rule, columns=columns)
        parts = [
            replace(part, compared=columns.renumbered(part.compared, own))
            for part, own in zip(parts, of_banks, strict=True)
            if part.compared is not None
        ]
    rows = reduce(Neighbors.join, parts).searched_by("brute")
    if is_solved(empty):
        rows = rows.with_offset(empty.neighbors.offset)

    def join(name: str) -> Any:
        parts = [getattr(bank, name) for bank in banks]
        return None if any(part is None for part in parts) else torch.cat(parts)

    are_named = any(bank.names is not None for bank in banks)
    of_rows = {
        "neighbors": rows,
        "rule": rule,
        "names": join_names(banks) if are_named else None,
        "ids": join("ids"),
        "levels": join("levels"),
        "input_rows": join("inputs"),
    }
    joined = SelectedRows(**(vars(empty) | of_rows), queries=queries, candidates=candidates)
    if empty.trend is None or not empty.trend.is_solved:
        return joined
    own = TableRows(joined.input_rows)
    trend = empty.trend.covering(joined.ids.numpy(), own, joined.neighbors.with_offset(None))
    return cast(SelectedRows, joined.with_trend(trend))


def join_names(banks: list[NeighborBank]) -> np.ndarray:
    """Return the names of the rows of `banks`, (n,)."""
    return np.concatenate([bank.names_of(slice(None)).astype(object) for bank in banks])


# -- the estimator -----------------------------------------------------------------------------


class ShardedNeighbors:
    """An estimator with a bank in several files, called shards.

    It has the methods of the estimator for queries, such as ``predict``, ``predict_quantiles``,
    ``kneighbors`` and ``explain``, with the same arguments and results, up to rounding. A shard
    finds its rows that can have weight, by the estimator's `algorithm`, and the method is called
    on the found rows of all shards. Rows are mapped from the files. Memory is therefore bounded by
    the rows of a few thousand queries, for banks of any size. If every row has weight, all rows
    are read into memory, as by ``neighbor_weights``, ``neighborhood``, ``influence``,
    ``neighbor_stability``, and the edits ``set_neighbor_targets``, ``compress`` and ``calibrate``.
    Groups are not kept: an `applicability` and a ``neighbor_stability`` leave out single rows. The
    values of a kernel at rows are computed for the rows on which a prediction depends.

    Parameters
    ----------
    folder : str or path-like
        The folder that :func:`save_shards` or :func:`fit_shards` wrote.
    n_jobs : int, optional
        Number of shards that joblib reads at a time, in processes on this machine. None: shards
        are read one after another. Within ``joblib.parallel_config("dask")``, all workers of a
        Dask cluster are used. All workers need access to the folder. The work of a worker that
        fails is repeated.
    allow_partial : bool, default=False
        Whether to ignore shards that are missing or damaged. ``missing_shards_`` then lists them.
        A trend, which the estimator's file contains, stays fitted to the rows of missing shards.
    **external : object
        Parameters that a file cannot contain, as for :func:`load`.

    Attributes
    ----------
    estimator_ : object
        The estimator with an empty bank. It encodes, scales and embeds queries.
    missing_shards_ : list of str
        Names of the shards that were left out of the last result.

    Raises
    ------
    FileNotFoundError
        If neither of them wrote `folder`. In a prediction, if a shard is missing.
    ValueError
        If a parameter is invalid, or the manifest or the estimator is damaged. In a prediction, if
        a shard is damaged.

    Notes
    -----
    A result is consistent: if shards are edited or lost during its computation, the computation
    starts again. Edits run one after another, in all processes. Quantiles near 0 and 1 depend on
    weights below rounding, and may differ from the quantiles of the whole bank.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from nona_sklearn import ShardedNeighbors, SoftStepKNeighborsRegressor, save_shards
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> folder = Path(tempfile.mkdtemp(), "flats")
    >>> save_shards(knn.fit(X, y), folder, n_shards=2)
    >>> sharded = ShardedNeighbors(folder)
    >>> len(sharded)
    5
    >>> sharded.predict([[84]]).round()
    array([425.])
    >>> sharded.kneighbors([[84]], n_neighbors=2)
    (array([[4., 6.]]), array([[2, 3]]))
    """

    def __init__(
        self,
        folder: Any,
        *,
        n_jobs: int | None = None,
        allow_partial: bool = False,
        **external: Any,
    ) -> None:
        check_flag("allow_partial", allow_partial)
        if n_jobs is not None and (n_jobs == 0 or not is_whole(n_jobs, -(2**31))):
            raise ValueError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}")
        self.folder = as_path("folder", folder).absolute()  # workers may have another one
        self.n_jobs = n_jobs
        self.allow_partial = allow_partial
        self._external = external
        self._read_estimator(Folder.read(self.folder))
        self.missing_shards_: list[str] = []

    def _read_estimator(self, listed: Folder) -> None:
        """Read the estimator of a manifest, unless it was read last."""
        if listed.estimator == getattr(self, "_checksum", None):
            return
        path = self.folder / listed.estimator_file
        self.estimator_ = read(path, self._external, checksum=listed.estimator)
        with decoding(path, "is damaged: it holds no fitted estimator"):
            check_kind(self.estimator_)
            check_is_fitted(self.estimator_)
            if not isinstance(self.estimator_.bank_, NeighborBank):
                raise TypeError(f"its bank is a {type(self.estimator_.bank_).__name__}")
        self._checksum = listed.estimator

    def __len__(self) -> int:
        """Return the number of rows of all shards."""
        return len(Folder.read(self.folder))

    # -- queries -------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of the estimator, on the rows of all shards."""
        if name.startswith("_") or name == "estimator_":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name not in METHODS + EDITS:
            raise AttributeError(
                f"{type(self).__name__} has no {name}: of the estimator, it has "
                f"{', '.join(METHODS + EDITS)}, and estimator_ has what needs no rows"
            )
        method = getattr(self.estimator_, name)  # or an error that names the estimator's class
        return wraps(method)(partial(self._edit if name in EDITS else self._answer, name))

    def __dir__(self) -> Iterable[str]:
        """Return all names, with the methods of the estimator."""
        of_estimator = (name for name in METHODS + EDITS if hasattr(self.estimator_, name))
        return [*super().__dir__(), *of_estimator]

    def _answer(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the result of a method for queries, from one state of the shards.

        The computation starts again if shards are edited or lost meanwhile.
        """
        call = inspect.signature(getattr(self.estimator_, name)).bind(*args, **kwargs)
        call.apply_defaults()
        whole = Folder.read(self.folder)
        self._read_estimator(whole)
        lost: dict[Entry, Exception] = {}
        while True:
            try:
                result = self._call(whole.without(lost), name, **call.arguments)
            except ShardsLostError as error:
                now = Folder.read(self.folder)
                lost = lost | error.errors if now == whole else {}
                whole = now
                self._read_estimator(whole)  # an edit may have fitted its trend anew
                if lost and not (self.allow_partial and len(lost) < len(whole.shards)):
                    raise next(iter(lost.values())) from error
                continue
            self.missing_shards_ = [entry.path.name for entry in whole.shards if entry in lost]
            return result

    def _call(self, folder: Folder, name: str, X: Any, **arguments: Any) -> Any:
        """Return the result of a method on the rows of the folder's shards."""
        estimator, n_rows = self.estimator_, len(folder)
        if name in NETWORK_METHODS:
            return getattr(estimator, name)(X)
        if X is None and n_rows < 2:
            raise ValueError(f"X=None needs at least 2 rows in the bank, it has {n_rows}")
        n_neighbors = arguments.get("n_neighbors")
        if name == "kneighbors":
            n_neighbors = number_of_neighbors(estimator, n_neighbors)
        if n_neighbors is not None or name == "heaviest_neighbors":
            check_n_neighbors(n_neighbors, n_rows - (X is None))
        eligibility = check_rule(arguments.get("eligibility"), ": shards take no mask")
        rule = eligibility
        if rule is None and estimator.bank_.rule is not None:
            rule = estimator.bank_.rule.rule
        evaluation = estimator.bank_.evaluate(estimator.network_.head)
        all_weigh = evaluation.bounds(n_rows) is None
        if (
            name in BANK_METHODS
            or (all_weigh and name != "kneighbors")
            or isinstance(rule, Required)  # it counts rows
            or (X is None and name in TABLE_METHODS)
            or arguments.get("features") is not None  # they are of all rows
        ):
            bank = join_shards(estimator.bank_, [_open(entry) for entry in folder.shards])
            return getattr(with_bank(estimator, bank), name)(X, **arguments)
        results = []
        for queries in self._query_blocks(folder, name, X):
            bank = select_rows(
                *(estimator, folder, queries, n_neighbors or 1),
                by_weight=name != "kneighbors",
                eligibility=eligibility,
                n_jobs=self.n_jobs,
            )
            results.append(getattr(with_bank(estimator, bank), name)(queries, **arguments))
        return results[0] if len(results) == 1 else _concatenate(results)

    def _query_blocks(self, folder: Folder, name: str, X: Any) -> Iterator[Embedded]:
        """Yield blocks of embedded queries, or of rows of the bank with their ids."""
        block = DISTANCE_BLOCK if name == "kneighbors" else QUERY_BLOCK
        if X is not None:
            queries = self.estimator_.embed(X)
            size = len(queries) if name in TABLE_METHODS else block
            yield from (queries[rows] for rows in spans(len(queries), size))
            return
        for entry in folder.shards:
            bank = _open(entry)
            own_rows = as_queries(bank, self.estimator_.network_)
            yield from (own_rows[rows] for rows in spans(len(bank), block))

    # -- edits ---------------------------------------------------------------------------

    def add_neighbors(
        self, X: Any, y: Any, sample_weight: Any = None, *, times: Any = None
    ) -> np.ndarray:
        """Add labelled rows to the last shard, or to a new one if it has 4,096 rows or more.

        Parameters
        ----------
        X, y, sample_weight, times : array-like
            The arguments of the estimator's ``add_neighbors``.

        Returns
        -------
        ndarray of shape (n_samples,)
            The ids of the rows. Ids are never used again.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import ShardedNeighbors, SoftStepKNeighborsRegressor, save_shards
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> folder = Path(tempfile.mkdtemp(), "flats")
        >>> save_shards(knn.fit(X, y), folder, n_shards=2)
        >>> sharded = ShardedNeighbors(folder)
        >>> sharded.add_neighbors([[84]], [430]), len(sharded)
        (array([5]), 6)
        """
        with Folder.editing(self.folder) as folder:
            self._read_estimator(folder)
            last, opened, bank = folder.shards[-1], None, self.estimator_.bank_
            if last.n_rows < OPEN_ROWS:
                with suppress(OSError, ValueError):  # a lost shard may come back
                    bank, opened = last.open(), last
            trend = self.estimator_.bank_.trend
            bank = unvalued(replace(bank, next_id=torch.tensor(folder.next_id), trend=trend))
            editor = with_bank(self.estimator_, bank)
            ids = editor.add_neighbors(X, y, sample_weight, times=times)
            folder = folder.put(indexed(editor.bank_, self.estimator_), opened)
            estimator, grown = self.estimator_, editor.bank_.trend
            if trend is not None and trend.is_solved and grown is not trend:
                estimator = with_bank(estimator, replace(estimator.bank_, trend=grown))
                folder = folder.put_estimator(estimator)
            replace(folder, next_id=folder.next_id + len(ids)).write()
            self.estimator_, self._checksum = estimator, folder.estimator
        return ids

    def _edit(self, name: str, *args: Any, **kwargs: Any) -> Self:
        """Edit the rows of all shards in memory, and write anew what the edit changes."""
        with Folder.editing(self.folder) as folder:
            self._read_estimator(folder)
            empty = self.estimator_.bank_
            joined = join_shards(empty, [entry.open() for entry in folder.shards])
            whole = {field.name: getattr(joined, field.name) for field in fields(NeighborBank)}
            bank = NeighborBank(**whole)
            before = bank.neighbors.searched_by(empty.neighbors.algorithm)
            editor = with_bank(self.estimator_, replace(bank, neighbors=before))
            getattr(editor, name)(*args, **kwargs)
            bank, ids = editor.bank_, editor.bank_.ids.numpy()
            for entry in folder.shards if bank.neighbors is not before else ():
                rows = np.flatnonzero((entry.first <= ids) & (ids <= entry.last))
                if len(rows):
                    folder = folder.put(indexed(bank.in_order(rows), editor), entry)
                else:
                    folder = folder.without([entry])
            estimator = with_bank(editor, emptied(bank))
            folder = folder.put_estimator(estimator)
            folder.write()
            self.estimator_, self._checksum = estimator, folder.estimator
        return self

    def _without_levels(
        self, before: Iterable[NeighborBank], removed: np.ndarray, folder: Folder
    ) -> Any:
        """Return the estimator without the levels that only removed rows had."""
        if self.estimator_.bank_.levels is None:
            return self.estimator_
        encoder = self.estimator_.features_
        gone = [
            bank.levels[torch.from_numpy(np.isin(bank.ids.numpy(), removed))]
            for bank in before
            if bank.levels is not None
        ]
        left = (
            bank.levels for entry in folder.shards if (bank := entry.open()).levels is not None
        )
        new_encoder = without_levels(encoder, gone, left)
        if new_encoder is encoder:
            return self.estimator_
        estimator = snapshot(self.estimator_)
        estimator.features_ = new_encoder
        return estimator

    def remove_neighbors(self, *, ids: Any = None, names: Any = None) -> Self:
        """Remove rows and rewrite the shards that contained them.

        The estimator is rewritten as well if a level of a category has no row left, or if its
        trend was fitted to removed rows, and is fitted again.

        Parameters
        ----------
        ids : int or array-like of int, optional
            Ids of the rows.
        names : label or list of labels, optional
            Names of the rows instead, as for the estimator's ``remove_neighbors``.

        Returns
        -------
        self : object
            The estimator without these rows.

        Raises
        ------
        ValueError
            If not exactly one of `ids` and `names` is given, an id or name is unknown, or no row
            would be left. No row is removed then.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import ShardedNeighbors, SoftStepKNeighborsRegressor, save_shards
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> folder = Path(tempfile.mkdtemp(), "flats")
        >>> save_shards(knn.fit(X, y), folder, n_shards=2)
        >>> sharded = ShardedNeighbors(folder)
        >>> len(sharded.remove_neighbors(ids=[0, 4]))
        3
        """
        ids, names = ids_and_names(ids, names)
        with Folder.editing(self.folder) as folder:
            self._read_estimator(folder)
            if names is not None:
                every = [entry.open() for entry in folder.shards]
                own = np.concatenate([bank.ids.numpy() for bank in every])
                ids = own[positions_of_names(join_names(every), names)]
            removed = np.unique(ids)
            banks = {
                entry: entry.open()
                for entry in folder.shards
                if ((entry.first <= removed) & (removed <= entry.last)).any()
            }
            held = [np.arange(0), *(bank.ids.numpy() for bank in banks.values())]
            check_all_known("ids", np.setdiff1d(removed, np.concatenate(held)).tolist())
            what = "ids" if names is None else "names"
            check_some_left(what, len(folder) - len(removed), len(folder))
            before, trend = self.estimator_.bank_.trend, None  # None: it is unchanged
            if before is not None and before.is_solved:
                left_trend = before.without(removed)
                trend = None if left_trend is before else left_trend
            for entry, bank in banks.items():
                kept = np.flatnonzero(~np.isin(bank.ids.numpy(), removed))
                if len(kept) == 0:
                    folder = folder.without([entry])
                    continue
                folder = folder.put(indexed(bank.in_order(kept), self.estimator_), entry)
            estimator = self._without_levels(banks.values(), removed, folder)
            if trend is not None:
                estimator = with_bank(estimator, replace(estimator.bank_, trend=trend))
            if estimator is not self.estimator_:
                folder = folder.put_estimator(estimator)
            if len(removed):
                folder.write()
            self.estimator_, self._checksum = estimator, folder.estimator
        return self


def _open(entry: Entry) -> NeighborBank:
    """Return a mapped shard, or raise a ShardsLostError."""
    try:
        return entry.open()
    except (OSError, ValueError) as error:
        raise ShardsLostError({entry: error}) from error


def _concatenate(results: list[Any]) -> Any:
    """Return the joined results of blocks: an array, or a tuple or list of arrays."""
    if isinstance(results[0], np.ndarray):
        return np.concatenate(results)
    return type(results[0])(map(np.concatenate, zip(*results, strict=True)))
