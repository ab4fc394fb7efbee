"""A bank in shards: files that any process answers from, and answers that add up.

What a shard says of a query, its :class:`~nona_sklearn._inference.tiles.Known`, merges in any
order, as tiles do. joblib asks the shards, one after another or wherever its backend has workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from joblib import Parallel, delayed
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._estimators.neighbors import NeighborEstimator
from .._inference.bank import NeighborBank
from .._inference.distribution import Calibration
from .._inference.evaluation import Evaluation
from .._inference.merged import MergedDistribution
from .._inference.neighbors import Exclusion
from .._inference.tiles import Known
from .._persistence.file import decoding, read, write
from .._utils.chunks import spans
from .._utils.files import as_path, put_in_place
from .._utils.snapshots import snapshot
from .._utils.threads import ForkSafeLock, cached_property
from .._utils.validation import (
    check_all_known,
    check_flag,
    check_ids,
    check_levels,
    check_n_neighbors,
    check_some_left,
    is_whole,
)
from ..attention import AverageHead, NONAHead
from .approximate import ApproximateNeighborsRegressor, Candidates, Index, read_graphs

ESTIMATOR, MANIFEST = "estimator.safetensors", "shards.json"
LOCK = "edits.lock"  # who edits holds it; a process that ends lets go of it
QUERY_BLOCK = 4096  # queries that are asked about at a time
OPEN_ROWS = 4096  # of the last shard, below which added rows join it
MAPPED_BYTES = 2**26  # of the shards' files that a process keeps mapped
VERIFIED = 2**14  # files that a process remembers to have verified
SHARD = r"shard-[0-9]{5,19}\.safetensors"
#: What an edit leaves if its process is killed, besides unlisted shards: a folder that it wrote
#: to. Version 0.2.0 left a file of that name, or one that safetensors named.
BESIDE = rf"\.({SHARD}|{re.escape(MANIFEST)})\.[0-9a-f]{{32}}"
LEFT = rf"{SHARD}|{BESIDE}|\.tmp[0-9A-Za-z]{{6}}"


def save_shards(estimator, folder, n_shards):
    """Write a fitted estimator into a folder, its bank in pieces.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, \
            SoftStepKNeighborsClassifier or ApproximateNeighborsRegressor
        Fitted, with weights that depend on each neighbour by itself, as for
        :func:`~nona_sklearn.export_onnx`.
    folder : str or path-like
        Where to write. It must not exist.
    n_shards : int
        Number of pieces, of about the same number of rows each.

    Raises
    ------
    TypeError
        If it is no such estimator, or holds an object that a file cannot.
    ValueError
        If it is not fitted, `n_shards` is not between 1 and the number of rows, or a neighbour's
        weight depends on others.
    FileExistsError
        If there is something at `folder`.
    OSError
        If it cannot be written. Nothing is left then.

    See Also
    --------
    ShardedNeighbors : Answers from it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import NONARegressor, ShardedNeighbors, save_shards
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NONARegressor(n_estimators=1, random_state=0).fit(X[:400], y[:400])
    >>> folder = Path(tempfile.mkdtemp(), "diabetes")
    >>> save_shards(reg, folder, 4)
    >>> sharded = ShardedNeighbors(folder)
    >>> bool(abs(sharded.predict(X[400:]) - reg.predict(X[400:])).max() < 1e-3)
    True
    """
    path = as_path("folder", folder)
    exact = exact_of(estimator)
    check_is_fitted(exact)
    bank = exact.bank_
    if not is_whole(n_shards, 1, len(bank)):
        raise ValueError(
            f"n_shards must be an integer from 1 to the bank's {len(bank)} rows, got {n_shards!r}"
        )
    check_streams(exact)
    with new_folder(path) as beside:
        checksum = write(with_bank(estimator, empty(bank)), beside / ESTIMATOR)
        whole = Folder(beside, checksum, int(bank.next_id))
        for rows in np.array_split(np.arange(len(bank)), n_shards):
            shard = Shard.of(replace(bank.in_order(rows), groups=None), estimator)
            whole = whole.put(shard)
        whole.write()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder beside a path to write to, which is moved there, or deleted on an error."""
    if os.path.lexists(path):
        raise FileExistsError(f"folder must be new, got {str(path)!r}, where something is")
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        beside.mkdir(parents=True)
        yield beside
        beside.rename(path)
    except OSError as error:
        raise OSError(f"folder {str(path)!r} could not be written: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def exact_of(estimator) -> NeighborEstimator:
    """The estimator whose bank it is: the fitted regressor of an approximate one."""
    if isinstance(estimator, ApproximateNeighborsRegressor):
        check_is_fitted(estimator)
        estimator = estimator.regressor_
    if not isinstance(estimator, NeighborEstimator):
        raise TypeError(
            f"estimator must be one of nona_sklearn with a bank, got {estimator!r:.100}"
        )
    return estimator


def empty(bank: NeighborBank) -> NeighborBank:
    """What is left of a bank without its rows."""
    return replace(bank.in_order(np.arange(0)), groups=None)


def with_bank(estimator: Any, bank: NeighborBank) -> Any:
    """An estimator that shares all with another but the bank."""
    if isinstance(estimator, ApproximateNeighborsRegressor):
        changed = {"regressor_": with_bank(estimator.regressor_, bank)}
    else:
        changed = {"bank_": bank}
    made = snapshot(estimator)
    vars(made).update(changed)
    return made


def check_streams(estimator: NeighborEstimator) -> None:
    """Refuse weights that depend on other neighbours than the nearest and the farthest."""
    evaluation = estimator.bank_.evaluate(estimator.network_.head, estimator.bank_.embeddings[:0])
    if any(head.needs_whole_rows for head, _, _ in evaluation.parts):
        raise ValueError(
            "a neighbour's weight must depend on its similarity alone, got "
            f"weighting={estimator.weighting!r}, and a step on ranks or a number of neighbours"
        )


@dataclass(frozen=True)
class Shard:
    """Some rows of a bank, and an index of them, if answers are to be approximate."""

    bank: NeighborBank
    graphs: list[np.ndarray] | None = None

    @classmethod
    def of(cls, bank: NeighborBank, estimator: Any) -> Shard:
        """Make what an estimator asks."""
        if not isinstance(estimator, ApproximateNeighborsRegressor):
            return cls(bank)
        return cls(bank, Index.of(estimator.regressor_.network_.head, bank).serialized())

    @classmethod
    def read(cls, entry: Entry, verify: bool) -> Shard:
        """Map the shard that a manifest lists; whether to compare its checksum."""
        held = read(entry.path, verify=verify, checksum=entry.sha256)
        bank = held.get("bank") if isinstance(held, dict) else None
        if not isinstance(bank, NeighborBank) or held.keys() != {"bank", "graphs"}:
            raise ValueError(f"{entry.path} is damaged: it holds no shard")
        ends = [*bank.ids[:1].tolist(), *bank.ids[-1:].tolist()]
        if len(bank) != entry.n_rows or ends != [entry.first, entry.last]:
            raise ValueError(f"{entry.path} is damaged: it holds other rows than are listed")
        return cls(**held)

    @cached_property
    def _graphs(self) -> list:
        assert self.graphs is not None
        return read_graphs(self.graphs)

    def index(self, head: NONAHead | AverageHead) -> Index:
        """Give the index, for a head."""
        return Index(head, self.bank, self._graphs)


@dataclass(frozen=True)
class Entry:
    """A shard as the manifest lists it: its file, that file's checksum, its rows and their ids."""

    path: Path
    sha256: str
    n_rows: int
    first: int
    last: int


@dataclass(frozen=True)
class Folder:
    """What a manifest lists. A change makes a new one, which :meth:`write` puts in force at once.

    Parameters
    ----------
    path : pathlib.Path
        Where the files are.
    estimator : str
        Checksum of the estimator's file.
    next_id : int
        Id of the next row that is added.
    next_number : int, default=0
        Number of the next file. None is given twice to files that were ever listed.
    shards : tuple of Entry
        The shards, in the order of their rows' ids.
    """

    path: Path
    estimator: str
    next_id: int
    next_number: int = 0
    shards: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Folder:
        """Read the manifest.

        Raises
        ------
        FileNotFoundError
            If there is none.
        ValueError
            If it is damaged.
        """
        manifest = path / MANIFEST
        if not manifest.is_file():
            raise FileNotFoundError(
                f"folder must be one that save_shards wrote, there is no {MANIFEST} in {path}"
            )
        text = manifest.read_bytes()
        with decoding(manifest, "is damaged"):
            return cls._of(path, json.loads(text))

    @classmethod
    def _of(cls, path: Path, content: dict[str, Any]) -> Folder:
        """Make what :meth:`write` wrote."""
        said = content.pop("sha256")
        if said != _sha256(content):
            raise ValueError("its checksum does not fit what it lists")
        shards = content.pop("shards")
        if not all(re.fullmatch(SHARD, shard["path"]) for shard in shards) or not shards:
            raise ValueError("it must list shards of its folder")
        entries = (Entry(**(shard | {"path": path / shard["path"]})) for shard in shards)
        folder = cls(path, shards=tuple(entries), **content)
        folder._check()
        return folder

    def _check(self) -> None:
        """Refuse what no edit writes: what is no number, or ids and files that overlap."""
        low = 0
        _check_checksum("estimator", self.estimator)
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

    def put(self, shard: Shard, place: int | None = None) -> Folder:
        """Write a shard, a new one or in the place of another."""
        path, bank = self.path / f"shard-{self.next_number:05d}.safetensors", shard.bank
        # What is there was never listed: an edit was interrupted.
        checksum = write({"bank": bank, "graphs": shard.graphs}, path)
        entry = Entry(path, checksum, len(bank), int(bank.ids[0]), int(bank.ids[-1]))
        shards = list(self.shards)
        shards[slice(len(shards), None) if place is None else slice(place, place + 1)] = [entry]
        return replace(self, shards=tuple(shards), next_number=self.next_number + 1)

    def without(self, entries: Collection[Entry]) -> Folder:
        """Leave out some shards."""
        left = tuple(entry for entry in self.shards if entry not in entries)
        return replace(self, shards=left)

    def write(self) -> None:
        """Write the manifest: from now on, this is what there is.

        Raises
        ------
        ValueError
            If it could not be read again: it has no more numbers for rows or files.
        """
        with decoding(self.path / MANIFEST, "cannot be written"):
            self._check()
        shards = [asdict(entry) | {"path": entry.path.name} for entry in self.shards]
        content = {
            "estimator": self.estimator,
            "next_id": self.next_id,
            "next_number": self.next_number,
            "shards": shards,
        }
        with put_in_place(self.path / MANIFEST) as beside:
            beside.write_text(json.dumps(content | {"sha256": _sha256(content)}, indent=1))

    def tidy(self) -> None:
        """Delete what edits left: files of forgotten rows, and of interrupted writing.

        Of a link, what it leads to stays.
        """
        listed = {entry.path.name for entry in self.shards}
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                if re.fullmatch(BESIDE, path.name):
                    shutil.rmtree(path)
            elif re.fullmatch(LEFT, path.name) and path.name not in listed:
                path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return sum(entry.n_rows for entry in self.shards)


def _check_whole(name: str, value: Any, low: int, high: int = 2**62) -> None:
    if not is_whole(value, low, high):
        raise ValueError(f"{name} must be an integer from {low} to {high}, got {value!r:.50}")


def _check_checksum(name: str, value: Any) -> None:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{name} must be a SHA-256 in hexadecimal, got {value!r:.50}")


def _sha256(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_estimator(folder: Path, handed: Mapping[str, Any]) -> Any:
    """Read the estimator whose bank lies in a folder; parameters that its file cannot hold."""
    path, checksum = folder / ESTIMATOR, Folder.read(folder).estimator
    estimator = read(path, handed, checksum=checksum)
    with decoding(path, "is damaged: it holds no fitted estimator"):
        exact = exact_of(estimator)
        check_is_fitted(exact)
        if not isinstance(exact.bank_, NeighborBank):
            raise TypeError(f"its bank is a {type(exact.bank_).__name__}")
    return estimator


class Shards:
    """Shards as this process has mapped them, verified once: those that it asked last.

    What it prepared to compare them with queries goes with them, so that memory does not grow
    with the shards that a process is asked for, but a small bank is prepared once.
    """

    def __init__(self) -> None:
        self.mapped: dict[tuple[Entry, int], tuple[Shard, int]] = {}
        self.verified: dict[tuple[Entry, int], None] = {}  # the last ones come last
        self.lock = ForkSafeLock()

    def read(self, entry: Entry) -> Shard:
        """Map a shard into memory.

        Raises
        ------
        FileNotFoundError
            If it is missing.
        ValueError
            If it is damaged, or not the one that the manifest lists.
        """
        path = entry.path
        try:
            about = os.stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"shard {path.name} is missing from {path.parent}") from None
        key = entry, about.st_mtime_ns
        with self.lock.held():
            shard, _ = self.mapped.pop(key, (None, 0))
            if shard is None:
                shard = Shard.read(entry, verify=key not in self.verified)
            self.verified.pop(key, None)
            self.verified[key] = None
            if len(self.verified) > VERIFIED:
                del self.verified[next(iter(self.verified))]
            self.mapped[key] = shard, about.st_size  # the last one
            total = sum(size for _, size in self.mapped.values())
            while total > MAPPED_BYTES and len(self.mapped) > 1:
                _, size = self.mapped.pop(next(iter(self.mapped)))
                total -= size
        return shard


SHARDS = Shards()


class ShardsLostError(Exception):
    """Some shards did not answer: `errors`, by their entries."""

    def __init__(self, errors: dict[Entry, Exception]):
        super().__init__(errors)
        self.errors = errors


@dataclass
class Asked:
    """Some queries, put to shards, and what these said so far.

    Parameters
    ----------
    shards : tuple of Entry
        The shards.
    n_jobs : int or None
        How many are asked at a time.
    head : NONAHead or AverageHead
        Gives the weights.
    query : Tensor of shape (q, d)
        Embeddings of the queries.
    ids : Tensor of shape (q,), optional
        Their ids, if they are rows of the bank, which do not meet themselves.
    known : tuple of Known, optional
        What all shards together say, for each network.
    """

    shards: tuple[Entry, ...]
    n_jobs: int | None
    head: NONAHead | AverageHead
    query: Tensor
    ids: Tensor | None = None
    known: tuple[Known, ...] | None = None

    def __call__(self, function: Callable, *arguments: Any) -> list[Any]:
        """What a function says of each shard: of a :class:`Evaluation`, or one of OF_SHARDS.

        Raises
        ------
        ShardsLostError
            If some did not answer.
        """
        evaluate: Callable = delayed(ask_shard)
        answers = Parallel(self.n_jobs)(
            evaluate(entry, self, function, *arguments) for entry in self.shards
        )
        pairs = zip(self.shards, answers, strict=True)
        lost = {entry: answer for entry, answer in pairs if isinstance(answer, Exception)}
        if lost:
            raise ShardsLostError(lost)
        return answers

    def of(self, shard: Shard) -> Evaluation:
        """Ask a shard's rows."""
        exclusion = None if self.ids is None else Exclusion(self.ids, shard.bank.ids)
        return Evaluation(self.head, shard.bank.neighbors, self.query, exclusion, self.known)

    def learn(self, function: Callable, *arguments: Any) -> None:
        """Add what all shards say to what is known."""
        each_network = zip(*self(function, *arguments), strict=True)
        more = [reduce(Known.merge, each) for each in each_network]
        old = self.known or [Known()] * len(more)
        self.known = tuple(known.updated(new) for known, new in zip(old, more, strict=True))


def ask_shard(entry: Entry, asked: Asked, function: Callable, *arguments: Any) -> Any:
    """Answer from one shard; or the error that kept it from answering."""
    try:
        shard = SHARDS.read(entry)
    except (OSError, ValueError) as error:
        return error
    if function in OF_SHARDS:
        return function(asked, shard, *arguments)
    return function(asked.of(shard), *arguments)


def heaviest(asked: Asked, shard: Shard, k: int) -> tuple[Tensor, Tensor]:
    """Find the k heaviest rows of a shard: their weights and ids."""
    weights, places, _ = asked.of(shard).heaviest(k)
    return weights, shard.bank.ids[places]


def candidates(asked: Asked, shard: Shard, k: int) -> Candidates:
    """Find the k rows of a shard that are nearest, by its index."""
    return shard.index(asked.head).search(asked.query, k).without_others()


OF_SHARDS = heaviest, candidates  # the others are of a question to a shard's rows


def _does(verb: str) -> Callable[[ShardedNeighbors], bool]:
    """Make a check that refuses what the estimator does not do either."""

    def check(sharded: ShardedNeighbors) -> bool:
        if not hasattr(sharded._exact, verb):
            raise AttributeError(f"{type(sharded._exact).__name__} has no {verb}")
        return True

    return check


class ShardedNeighbors:
    """Predictions from a bank that lies in files, one for each shard.

    Results are those of the estimator with the whole bank, up to rounding; what an approximate one
    predicts weighs the nearest candidates of all shards' indexes, and the rest is exact. Memory
    is that of what a shard says of some thousand queries, however large the bank: rows are
    mapped from the files.

    Parameters
    ----------
    folder : str or path-like
        What :func:`save_shards` wrote.
    n_jobs : int, optional
        How many shards are read at a time, by joblib, in processes on this machine. None: one
        after another. Within ``joblib.parallel_config("dask")``, all workers of a Dask cluster
        are used, each of which must see the folder; if one dies, its work is retried.
    allow_partial : bool, default=False
        Whether to leave out shards that are missing or damaged, which
        ``missing_shards_`` then names.
    **handed : object
        Parameters that a file cannot hold: see :func:`load`.

    Attributes
    ----------
    estimator_ : object
        The estimator with an empty bank: it encodes, scales and embeds queries.
    missing_shards_ : list of str
        Names of the shards that were left out of the last result.

    Raises
    ------
    FileNotFoundError
        If `folder` is not what :func:`save_shards` wrote; by an answer, if a shard is missing.
    ValueError
        If a parameter is invalid, or the manifest or the estimator is damaged; by an answer, if
        a shard is.

    Notes
    -----
    An answer is of the bank as it is at one moment. If shards go while it is made, by an edit
    or because they are lost, it starts again. Edits wait for each other, in all processes.

    Examples
    --------
    See :func:`save_shards`.

    >>> from nona_sklearn import ShardedNeighbors
    >>> ShardedNeighbors("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: folder must be one that save_shards wrote, there is no shards.json in ...
    """

    def __init__(self, folder, *, n_jobs=None, allow_partial=False, **handed):
        check_flag("allow_partial", allow_partial)
        if n_jobs is not None and (n_jobs == 0 or not is_whole(n_jobs, -(2**31))):
            raise ValueError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}")
        self.folder = as_path("folder", folder).absolute()  # workers may be elsewhere
        self.n_jobs = n_jobs
        self.allow_partial = allow_partial
        self.estimator_ = read_estimator(self.folder, handed)
        self._exact = exact_of(self.estimator_)
        self.missing_shards_: list[str] = []

    def __len__(self) -> int:
        """Count the rows of all shards."""
        return len(Folder.read(self.folder))

    # -- asking --------------------------------------------------------------------------

    def predict(self, X=None):
        """Predict as the estimator does.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the rows of all shards, each without itself (leave-one-out), in
            the order of their ids; those of shards that are missing are left out.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs)
            Predictions.
        """
        indexed = X is not None and self._exact is not self.estimator_
        mean = self._approximate_mean(X) if indexed else self._mean(X)
        return self._exact.targets_.decode(mean)

    @available_if(_does("predict_proba"))
    def predict_proba(self, X=None):
        """Predict how probable each class is, as the classifier does.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries; None as for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n_queries, n_classes), or list of n_outputs such arrays
            Probabilities in the order of ``estimator_.classes_``.
        """
        targets = self._exact.targets_
        each = [p.numpy() for p in self._mean(X).split(targets.sizes, dim=1)]
        return each if targets.several else each[0]

    def kneighbors(self, X=None, n_neighbors=5):
        """Find the rows that weigh most in the prediction of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries; None as for :meth:`predict`.
        n_neighbors : int, default=5
            How many.

        Returns
        -------
        weights : ndarray of shape (n_queries, n_neighbors)
            Their weights, largest first.
        ids : int ndarray of shape (n_queries, n_neighbors)
            Their ids.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows, of shards that are there.
        """

        def check(folder):
            check_n_neighbors(n_neighbors, len(folder) - (X is None))

        def answer(asked):
            each = asked(heaviest, n_neighbors)
            weights, rows = (torch.cat(parts, dim=1) for parts in zip(*each, strict=True))
            weights, places = weights.topk(n_neighbors, dim=1)
            return weights.numpy(), rows.gather(1, places).numpy()

        weights, rows = zip(*self._answers(X, answer, check), strict=True)
        return np.concatenate(weights), np.concatenate(rows)

    @available_if(_does("predict_quantiles"))
    def predict_quantiles(self, X=None, quantiles=(0.1, 0.5, 0.9)):
        """Quantiles of each query's predictive distribution, as the regressor's.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries; None as for :meth:`predict`.
        quantiles : float or array-like of shape (n_quantiles,), default=(0.1, 0.5, 0.9)
            Probabilities, from 0 to 1.

        Returns
        -------
        ndarray of shape (n_queries, n_quantiles) or (n_queries, n_quantiles, n_outputs)
            The quantiles. For a regressor without calibration they may be larger by a
            thousand-millionth of the targets' range. Near 0 and 1 they depend on weights that
            rounding hides, in one bank and in shards, and may differ.

        Raises
        ------
        ValueError
            If `quantiles` are not from 0 to 1.
        """
        levels = check_levels(quantiles)
        bank = self._exact.bank_
        calibration = bank.calibration or Calibration()

        def answer(asked):
            if calibration.power != 1:
                asked.learn(Evaluation.powered, calibration.power)
            return MergedDistribution(asked, calibration).quantiles(levels)

        found = torch.cat(self._answers(X, answer)).numpy()
        found = found[..., 0] if bank.targets.ndim == 1 else found
        return found[:, 0] if np.ndim(quantiles) == 0 else found

    def _mean(self, X) -> Tensor:
        nobody = self._exact.bank_.neighbors

        def answer(asked):
            return Evaluation(asked.head, nobody, asked.query, known=asked.known).mean()

        return torch.cat(self._answers(X, answer))

    def _approximate_mean(self, X) -> Tensor:
        k = self.estimator_.n_candidates

        def answer(asked):
            found = reduce(Candidates.join, asked(candidates, k))
            return found.nearest(k).mean(asked.head, asked.query)

        return torch.cat(self._answers(X, answer, weigh=False))

    def _answers(
        self,
        X,
        answer: Callable[[Asked], Any],
        check: Callable[[Folder], None] | None = None,
        weigh: bool = True,
    ) -> list[Any]:
        """Answer for some queries at a time, of whose weights all is known by then.

        All answers are of the same shards: when some are lost, or edited, it starts again.
        """
        whole = Folder.read(self.folder)
        lost: dict[Entry, Exception] = {}
        while True:
            folder = whole.without(lost)
            if X is None and len(folder) < 2:
                raise ValueError(f"X=None needs at least 2 rows in the bank, it has {len(folder)}")
            if check is not None:
                check(folder)
            try:
                answers = [
                    answer(self._asked(folder, query, ids, weigh))
                    for query, ids in self._queries(X, folder)
                ]
            except ShardsLostError as error:
                now = Folder.read(self.folder)
                lost = lost | error.errors if now == whole else {}
                whole = now
                self._check_partial(whole, lost)
                continue
            self.missing_shards_ = [entry.path.name for entry in whole.shards if entry in lost]
            return answers

    def _asked(self, folder: Folder, query: Tensor, ids: Tensor | None, weigh: bool) -> Asked:
        """Ask all shards what the weights of some queries depend on."""
        asked = Asked(folder.shards, self.n_jobs, self._exact.network_.head, query, ids)
        if weigh:
            nobody = self._exact.bank_.neighbors
            if Evaluation(asked.head, nobody, asked.query).needs_extremes:
                asked.learn(Evaluation.extremes)
            asked.learn(Evaluation.said)
        return asked

    def _check_partial(self, folder: Folder, lost: dict[Entry, Exception]) -> None:
        """Raise what happened to the first shard, unless the others may answer."""
        if lost and not (self.allow_partial and len(lost) < len(folder.shards)):
            raise next(iter(lost.values()))

    def _queries(self, X, folder: Folder) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Give some queries at a time, and their ids, if they are rows of the bank."""
        if X is not None:
            for block in self._exact._take(X):
                yield self._exact._embed_queries(block), None
            return
        held: list[tuple[Tensor, Tensor]] = []
        for entry in folder.shards:
            try:
                bank = SHARDS.read(entry).bank
            except (OSError, ValueError) as error:
                raise ShardsLostError({entry: error}) from error
            for rows in spans(len(bank), QUERY_BLOCK):
                held.append((bank.embeddings[rows], bank.ids[rows]))
                if sum(len(ids) for _, ids in held) >= QUERY_BLOCK:
                    yield _joined(held)
                    held = []
        if held:
            yield _joined(held)

    # -- editing -------------------------------------------------------------------------

    def add_neighbors(self, X, y, sample_weight=None):
        """Let labelled rows take part in predictions: they join the last shard, or are a new one.

        A shard takes rows until it holds some thousand.

        Parameters
        ----------
        X, y, sample_weight : array-like
            As for the estimator's ``add_neighbors``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Their ids, which no other row had or will have.
        """
        with self._editing() as folder:
            place, bank = self._open_shard(folder)
            editor = with_bank(self._exact, replace(bank, next_id=torch.tensor(folder.next_id)))
            ids = editor.add_neighbors(X, y, sample_weight)
            folder = folder.put(Shard.of(editor.bank_, self.estimator_), place)
            replace(folder, next_id=folder.next_id + len(ids)).write()
        return ids

    def remove_neighbors(self, *, ids):
        """Forget rows: the shards that hold them are written anew without them.

        Parameters
        ----------
        ids : int or array-like of int
            Which rows.

        Returns
        -------
        self : object
            Without these rows.

        Raises
        ------
        ValueError
            If an id is unknown, or no row would be left. Nothing is removed then.
        """
        asked = np.unique(check_ids(ids))
        with self._editing() as folder:
            banks = {}
            for place, entry in enumerate(folder.shards):
                if ((entry.first <= asked) & (asked <= entry.last)).any():
                    banks[place] = SHARDS.read(entry).bank
            held = [np.arange(0), *(bank.ids.numpy() for bank in banks.values())]
            check_all_known("ids", np.setdiff1d(asked, np.concatenate(held)).tolist())
            check_some_left("ids", len(folder) - len(asked), len(folder))
            emptied = []
            for place, bank in banks.items():
                kept = np.flatnonzero(~np.isin(bank.ids.numpy(), asked))
                if len(kept) == 0:
                    emptied.append(folder.shards[place])
                else:
                    folder = folder.put(Shard.of(bank.in_order(kept), self.estimator_), place)
            if len(asked):
                folder.without(emptied).write()
        return self

    @contextmanager
    def _editing(self) -> Iterator[Folder]:
        """Give what there is; what is not in force in the end is deleted, and so is what was."""
        Folder.read(self.folder)  # a lock would make the folder
        lock = self.folder / LOCK
        # Of a link, some versions of filelock empty what it leads to.
        if lock.is_symlink() or lock.is_dir():
            raise ValueError(f"{lock} must be a file of the folder's own, not a link or folder")
        with FileLock(lock):
            before = Folder.read(self.folder)
            try:
                yield before
            finally:
                Folder.read(self.folder).tidy()

    def _open_shard(self, folder: Folder) -> tuple[int | None, NeighborBank]:
        """Find where rows are added: place and bank of the last shard, if it is small enough."""
        last = len(folder.shards) - 1
        if folder.shards[last].n_rows < OPEN_ROWS:
            with suppress(OSError, ValueError):  # lost: it may come back as it was
                return last, SHARDS.read(folder.shards[last]).bank
        return None, self._exact.bank_


def _joined(blocks: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    embeddings, ids = zip(*blocks, strict=True)
    return torch.cat(embeddings), torch.cat(ids)
