"""A bank in shards: files that any process answers from, and answers that add up.

What a shard says of a query, its :class:`~nona_sklearn._evaluation.Known`, merges in any order,
as tiles do. joblib asks the shards, one after another or wherever its backend has workers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ._approximate import ApproximateNeighborsRegressor, Candidates, Index, read_graphs
from ._bank import NeighborBank
from ._distribution import Calibration
from ._evaluation import Known, spans
from ._merged import MergedDistribution
from ._neighbors import Exclusion
from ._persistence import load, put_in_place, save, write
from ._question import Question
from ._regression import check_levels
from ._validation import is_whole
from ._verbs import NeighborEstimator, _check_ids, check_n_neighbors
from .attention import AverageHead, NONAHead

ESTIMATOR, MANIFEST = "estimator.safetensors", "shards.json"
QUERY_BLOCK = 4096  # queries that are asked about at a time
MAPPED_BYTES = 2**26  # of the shards' files that a process keeps mapped


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
    exact = exact_of(estimator)
    check_is_fitted(exact)
    bank, folder = exact.bank_, Path(folder)
    if not is_whole(n_shards, 1, len(bank)):
        raise ValueError(
            f"n_shards must be an integer from 1 to the bank's {len(bank)} rows, got {n_shards!r}"
        )
    check_streams(exact)
    folder.mkdir(parents=True)  # fails if it is there
    whole = Folder(folder)
    for rows in np.array_split(np.arange(len(bank)), n_shards):
        whole.put(Shard.of(bank.in_order(rows), estimator))
    state = vars(exact).copy()
    try:
        exact.bank_ = replace(bank.in_order(np.arange(0)), groups=None)
        save(estimator, folder / ESTIMATOR)
    finally:
        vars(exact).update(state)
    whole.write_manifest()


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


def check_streams(estimator: NeighborEstimator) -> None:
    """Refuse weights that depend on other neighbours than the nearest and the farthest."""
    question = estimator.bank_.ask(estimator.network_.head, estimator.bank_.embeddings[:0])
    if any(head.needs_whole_rows for head, _, _ in question.parts):
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

    @cached_property
    def _graphs(self) -> list:
        assert self.graphs is not None
        return read_graphs(self.graphs)

    def index(self, head: NONAHead | AverageHead) -> Index:
        """Give the index, for a head."""
        return Index(head, self.bank, self._graphs)


class Folder:
    """The files of a bank's shards, and the manifest that lists them.

    Parameters
    ----------
    path : pathlib.Path
        Where they are.
    """

    def __init__(self, path: Path):
        self.path = path
        self.shards: list[dict[str, Any]] = []
        self.next_number = 0

    @classmethod
    def read(cls, path: Path) -> Folder:
        """Read the manifest."""
        try:
            manifest = json.loads((path / MANIFEST).read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"folder must be one that save_shards wrote, there is no {MANIFEST} in {path}"
            ) from None
        except ValueError as error:
            raise ValueError(f"{path / MANIFEST} is damaged: {error}") from error
        folder = cls(path)
        try:
            folder.shards, folder.next_number = manifest["shards"], manifest["next_number"]
            folder.paths()
        except (TypeError, LookupError) as error:
            raise ValueError(f"{path / MANIFEST} is damaged: {error!r}") from error
        return folder

    def put(self, shard: Shard, place: int | None = None) -> None:
        """Write a shard, a new one or in the place of another; the manifest does not know yet."""
        name, bank = f"shard-{self.next_number:05d}.safetensors", shard.bank
        write({"bank": bank, "graphs": shard.graphs}, self.path / name)
        entry = {"name": name, "first": int(bank.ids[0]), "last": int(bank.ids[-1])}
        entry["n_rows"] = len(bank)
        self.next_number += 1
        if place is None:
            self.shards.append(entry)
        else:
            self.shards[place] = entry

    def write_manifest(self) -> None:
        """List the shards as they are now, and delete files that are no longer listed."""
        with put_in_place(self.path / MANIFEST, overwrite=True) as beside:
            beside.write_text(
                json.dumps({"shards": self.shards, "next_number": self.next_number}, indent=1)
            )
        listed = {shard["name"] for shard in self.shards}
        for path in self.path.glob("shard-*.safetensors"):
            if path.name not in listed:
                path.unlink()

    def paths(self) -> list[Path]:
        """Where the shards are."""
        return [self.path / shard["name"] for shard in self.shards]

    def __len__(self) -> int:
        return sum(shard["n_rows"] for shard in self.shards)


class Shards:
    """Shards as this process has mapped them, verified once: those that it asked last.

    What it prepared to compare them with queries goes with them, so that memory does not grow
    with the shards that a process is asked for, but a small bank is prepared once.
    """

    def __init__(self) -> None:
        self.mapped: dict[tuple[Path, int], tuple[Shard, int]] = {}
        self.verified: set[tuple[Path, int]] = set()
        self.lock = Lock()

    def read(self, path: Path) -> Shard:
        """Map a shard into memory."""
        try:
            about = os.stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"shard {path.name} is missing from {path.parent}") from None
        key = path, about.st_mtime_ns
        with self.lock:
            shard, _ = self.mapped.pop(key, (None, 0))
            if shard is None:
                shard = Shard(**load(path, verify=key not in self.verified))
                self.verified.add(key)
            self.mapped[key] = shard, about.st_size  # the last one
            total = sum(size for _, size in self.mapped.values())
            while total > MAPPED_BYTES and len(self.mapped) > 1:
                _, size = self.mapped.pop(next(iter(self.mapped)))
                total -= size
        return shard


SHARDS = Shards()


class ShardsLostError(Exception):
    """Some shards did not answer: `errors`, by their paths."""

    def __init__(self, errors: dict[Path, Exception]):
        super().__init__(errors)
        self.errors = errors


@dataclass
class Asked:
    """Some queries, put to shards, and what these said so far.

    Parameters
    ----------
    paths : list of Path
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

    paths: list[Path]
    n_jobs: int | None
    head: NONAHead | AverageHead
    query: Tensor
    ids: Tensor | None = None
    known: tuple[Known, ...] | None = None

    def __call__(self, function: Callable, *arguments: Any) -> list[Any]:
        """What a function says of each shard: of a :class:`Question`, or one of OF_SHARDS.

        Raises
        ------
        ShardsLostError
            If some did not answer.
        """
        ask: Callable = delayed(ask_shard)
        answers = Parallel(self.n_jobs)(
            ask(path, self, function, *arguments) for path in self.paths
        )
        pairs = zip(self.paths, answers, strict=True)
        lost = {path: answer for path, answer in pairs if isinstance(answer, Exception)}
        if lost:
            raise ShardsLostError(lost)
        return answers

    def of(self, shard: Shard) -> Question:
        """Ask a shard's rows."""
        exclusion = None if self.ids is None else Exclusion(self.ids, shard.bank.ids)
        return Question(self.head, shard.bank.neighbors, self.query, exclusion, self.known)

    def learn(self, function: Callable, *arguments: Any) -> None:
        """Add what all shards say to what is known."""
        each_network = zip(*self(function, *arguments), strict=True)
        more = [reduce(Known.merge, each) for each in each_network]
        old = self.known or [Known()] * len(more)
        self.known = tuple(known.updated(new) for known, new in zip(old, more, strict=True))


def ask_shard(path: Path, asked: Asked, function: Callable, *arguments: Any) -> Any:
    """Answer from one shard; or the error that kept it from answering."""
    try:
        shard = SHARDS.read(path)
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


class ShardedNeighbors:
    """Predictions from a bank that lies in files, one for each shard.

    Answers are those of the estimator with the whole bank, to rounding; what an approximate one
    predicts weighs the nearest candidates of all shards' indexes, and the rest is exact. Memory
    is that of what a shard says of some thousand queries, however large the bank: rows are
    mapped from the files.

    Parameters
    ----------
    folder : str or path-like
        What :func:`save_shards` wrote.
    n_jobs : int, optional
        How many shards are asked at a time, by joblib, in processes of this machine. None: one
        after another. Within ``joblib.parallel_config("dask")``, all workers of a Dask cluster
        are asked, each of which must see the folder; one that dies costs a retry.
    allow_partial : bool, default=False
        Whether to answer without shards that are missing or damaged, which
        ``missing_shards_`` then names.
    **handed : object
        Parameters that a file cannot hold: see :func:`load`.

    Attributes
    ----------
    estimator_ : object
        The estimator, its bank empty: it encodes, scales, embeds.
    missing_shards_ : list of str
        Names of the shards that the last answer did without.

    Raises
    ------
    FileNotFoundError
        If `folder` is not what :func:`save_shards` wrote; by an answer, if a shard is missing.
    ValueError
        By an answer, if a shard is damaged.

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
        self.folder = Path(folder)
        self.n_jobs = n_jobs
        self.allow_partial = allow_partial
        Folder.read(self.folder)
        self.estimator_ = load(self.folder / ESTIMATOR, **handed)
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
            the order of their ids.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs)
            Predictions.
        """
        indexed = X is not None and self._exact is not self.estimator_
        mean = self._approximate_mean(X) if indexed else self._mean(X)
        return self._exact.targets_.decode(mean)

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
        self._check_verb("predict_proba")
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
        """
        check_n_neighbors(n_neighbors, len(self) - (X is None))

        def answer(asked):
            each = asked(heaviest, n_neighbors)
            weights, rows = (torch.cat(parts, dim=1) for parts in zip(*each, strict=True))
            weights, places = weights.topk(n_neighbors, dim=1)
            return weights.numpy(), rows.gather(1, places).numpy()

        weights, rows = zip(*self._answers(X, answer), strict=True)
        return np.concatenate(weights), np.concatenate(rows)

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
            The quantiles. Of a regressor without calibration they may be larger by a
            thousand-millionth of the targets' range.

        Raises
        ------
        ValueError
            If `quantiles` are not from 0 to 1.
        """
        self._check_verb("predict_quantiles")
        levels = check_levels(quantiles)
        bank = self._exact.bank_
        calibration = bank.calibration or Calibration()

        def answer(asked):
            if calibration.power != 1:
                asked.learn(Question.powered, calibration.power)
            return MergedDistribution(asked, calibration).quantiles(levels)

        found = torch.cat(list(self._answers(X, answer))).numpy()
        found = found[..., 0] if bank.targets.ndim == 1 else found
        return found[:, 0] if np.ndim(quantiles) == 0 else found

    def _check_verb(self, verb: str) -> None:
        """Refuse what the estimator does not do either."""
        if not hasattr(self._exact, verb):
            raise AttributeError(f"{type(self._exact).__name__} has no {verb}")

    def _mean(self, X) -> Tensor:
        nobody = self._exact.bank_.neighbors

        def answer(asked):
            return Question(asked.head, nobody, asked.query, known=asked.known).mean()

        return torch.cat(list(self._answers(X, answer)))

    def _approximate_mean(self, X) -> Tensor:
        k = self.estimator_.n_candidates

        def answer(asked):
            found = reduce(Candidates.join, asked(candidates, k))
            return found.nearest(k).mean(asked.head, asked.query)

        return torch.cat(list(self._answers(X, answer, weigh=False)))

    def _answers(self, X, answer: Callable[[Asked], Any], weigh: bool = True) -> Iterator[Any]:
        """Answer for some queries at a time, of whose weights all is known by then."""
        paths = Folder.read(self.folder).paths()
        self.missing_shards_ = []
        for query, ids in self._queries(X, paths):
            while True:
                asked = Asked(paths, self.n_jobs, self._exact.network_.head, query, ids)
                try:
                    if weigh:
                        self._weigh(asked)
                    yield answer(asked)
                except ShardsLostError as lost:  # what they said may be in what is known
                    paths = self._without(paths, lost.errors)
                    continue
                break

    def _weigh(self, asked: Asked) -> None:
        """Learn from all shards what the weights depend on."""
        nobody = self._exact.bank_.neighbors
        if Question(asked.head, nobody, asked.query).needs_extremes:
            asked.learn(Question.extremes)
        asked.learn(Question.said)

    def _without(self, paths: list[Path], errors: dict[Path, Exception]) -> list[Path]:
        """Do without some shards, if that is allowed and others are left."""
        left = [path for path in paths if path not in errors]
        if not (self.allow_partial and left):
            raise next(iter(errors.values()))
        self.missing_shards_ += [path.name for path in errors]
        return left

    def _queries(self, X, paths: list[Path]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Give some queries at a time, and their ids, if they are rows of the bank."""
        if X is not None:
            for block in self._exact._take(X):
                yield self._exact._embed(block), None
            return
        for path in paths:
            try:
                bank = SHARDS.read(path).bank
            except (OSError, ValueError) as error:
                if path.name not in self.missing_shards_:
                    self._without(paths, {path: error})
                continue
            for rows in spans(len(bank), QUERY_BLOCK):
                yield bank.embeddings[rows], bank.ids[rows]

    # -- editing -------------------------------------------------------------------------

    def add_neighbors(self, X, y, sample_weight=None):
        """Let labelled rows take part in predictions: a new shard.

        Parameters
        ----------
        X, y, sample_weight : array-like
            As for the estimator's ``add_neighbors``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Their ids, which no other row had or will have.
        """
        folder, estimator = Folder.read(self.folder), self._exact
        empty = estimator.bank_
        try:
            ids = estimator.add_neighbors(X, y, sample_weight)
            folder.put(Shard.of(estimator.bank_, self.estimator_))
            estimator.bank_ = estimator.bank_.in_order(np.arange(0))
            write(self.estimator_, self.folder / ESTIMATOR, overwrite=True)
        except BaseException:
            estimator.bank_ = empty
            raise
        folder.write_manifest()
        return ids

    def remove_neighbors(self, ids):
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
        folder, asked = Folder.read(self.folder), np.unique(_check_ids(ids))
        found, rest = [], []
        for place, (shard, path) in enumerate(zip(folder.shards, folder.paths(), strict=True)):
            here = asked[(asked >= shard["first"]) & (asked <= shard["last"])]
            if len(here) == 0:
                continue
            bank = SHARDS.read(path).bank
            kept = np.flatnonzero(~np.isin(bank.ids.numpy(), here))
            if len(kept) < len(bank):
                found.append(bank.ids.numpy()[np.isin(bank.ids.numpy(), here)])
                rest.append((place, bank, kept))
        unknown = np.setdiff1d(asked, np.concatenate([asked[:0], *found]))
        if len(unknown):
            raise ValueError(f"ids must be in the bank, got unknown {unknown[:10].tolist()}")
        if len(asked) == len(folder):
            raise ValueError(f"ids must leave at least one row, got all {len(folder)}")
        emptied = [place for place, _, kept in rest if len(kept) == 0]
        for place, bank, kept in rest:
            if len(kept):
                folder.put(Shard.of(bank.in_order(kept), self.estimator_), place)
        folder.shards = [s for place, s in enumerate(folder.shards) if place not in emptied]
        folder.write_manifest()
        return self
