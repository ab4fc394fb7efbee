"""Estimators with a bank in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._estimators.base import NeighborEstimator
from .._estimators.forgetting import without_levels
from .._estimators.queries import number_of_neighbors, query_blocks
from .._inference.bank import NeighborBank
from .._inference.distribution import Calibration, Distribution
from .._inference.neighbors import Neighbors
from .._persistence.file import decoding, read
from .._trend.model_trend import called
from .._trend.trend import Trend
from .._utils.chunks import spans
from .._utils.files import as_path, new_folder
from .._utils.snapshots import snapshot
from .._utils.validation import check_flag, check_ids, check_levels, check_n_neighbors, is_whole
from .shard_folder import Entry, Folder
from .shard_query import ShardQuery, ShardsLostError, nearest_of

QUERY_BLOCK = 4096  # queries that are evaluated at a time
BLOCK_PAIRS = 2**22  # the same, in pairs, where each row of the bank can have weight
OPEN_ROWS = 4096  # of the last shard, below which added rows join it


def save_shards(estimator: Any, folder: Any, n_shards: int) -> None:
    """Save a fitted estimator in a folder, with its bank in several files, the shards.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or \
            SoftStepKNeighborsClassifier
        Fitted. If `n_neighbors` limits the rows of a prediction, each shard returns few numbers
        for a query; otherwise one for each row.
    folder : str or path-like
        Where to write. It must not exist.
    n_shards : int
        Number of shards, of about the same number of rows each.

    Raises
    ------
    TypeError
        If it is no such estimator, or has a part that a file cannot contain.
    ValueError
        If it is not fitted, `n_shards` is not between 1 and the number of rows, or `trend` is a
        model, which a file cannot contain.
    OSError
        If `folder` exists (FileExistsError), or it cannot be written. No files remain then.

    See Also
    --------
    ShardedNeighbors : Predictions from it.

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
    _check_kind(estimator)
    check_is_fitted(estimator)
    bank = estimator.bank_
    if not is_whole(n_shards, 1, len(bank)):
        raise ValueError(
            f"n_shards must be an integer from 1 to the bank's {len(bank)} rows, got {n_shards!r}"
        )
    if bank.trend is not None and not bank.trend.is_data:
        raise ValueError(
            f"save_shards needs a trend that a file can contain, {called(estimator.trend)}"
        )
    bank, all_rows = replace(bank, groups=None, group_names=None), np.arange(len(bank))
    # A trend that is solved has its own rows, and another one a value at each of the bank's.
    solved = bank.trend is not None and bank.trend.is_solved
    empty = with_bank(estimator, (bank.in_order if solved else bank.keep)(all_rows[:0]))
    with new_folder(path) as beside:
        written = Folder.new(beside, empty, int(bank.next_id))
        for rows in np.array_split(all_rows, n_shards):
            written = written.put(indexed(bank.in_order(rows), estimator))
        written.write()


def _check_kind(estimator: Any) -> None:
    """Refuse what has no bank."""
    if not isinstance(estimator, NeighborEstimator):
        raise TypeError(
            f"estimator must be one of nona_sklearn with a bank, got {estimator!r:.100}"
        )


def with_bank(estimator: Any, bank: NeighborBank) -> Any:
    """An estimator that shares all with another but the bank."""
    made = snapshot(estimator)
    made.bank_ = bank
    return made


def indexed(bank: NeighborBank, estimator: Any) -> NeighborBank:
    """A shard as it is written: with its graphs, without a transformer, or the trend.

    The estimator holds these.
    """
    algorithm = estimator.bank_.neighbors.algorithm
    neighbors = bank.neighbors.searched_by(algorithm if isinstance(algorithm, str) else "auto")
    if algorithm == "hnsw":
        neighbors.indexes(estimator.network_.head)
    return replace(bank, neighbors=neighbors, trend=None)


def _does(method: str) -> Callable[[ShardedNeighbors], bool]:
    """Make a check that the estimator has a method, too."""

    def check(sharded: ShardedNeighbors) -> bool:
        if not hasattr(sharded.estimator_, method):
            raise AttributeError(f"{type(sharded.estimator_).__name__} has no {method}")
        return True

    return check


class ShardedNeighbors:
    """Predictions from a bank in several files, the shards.

    Results are those of the estimator with the whole bank, up to rounding. If a prediction depends
    on a number of nearest rows, each shard finds its nearest by the estimator's `algorithm`, and
    the nearest of all get weights. Rows are mapped from the files, so memory is bounded by the
    shards' results for some thousand queries, however large the bank is.

    Parameters
    ----------
    folder : str or path-like
        What :func:`save_shards` wrote.
    n_jobs : int, optional
        Number of shards that are read at a time, by joblib, in processes on this machine. None:
        one after another. Within ``joblib.parallel_config("dask")``, all workers of a Dask
        cluster are used, each of which needs access to the folder. The work of a worker that
        fails is repeated.
    allow_partial : bool, default=False
        Whether to ignore shards that are missing or damaged; ``missing_shards_`` then lists them.
        A trend, which the estimator's file holds, stays fitted to their rows.
    **external : object
        Parameters that a file cannot contain: see :func:`load`.

    Attributes
    ----------
    estimator_ : object
        The estimator with an empty bank: it encodes, scales and embeds queries.
    missing_shards_ : list of str
        Names of the shards that were left out of the last result.

    Raises
    ------
    FileNotFoundError
        If `folder` is not what :func:`save_shards` wrote; in a prediction, if a shard is missing.
    ValueError
        If a parameter is invalid, or the manifest or the estimator is damaged; in a prediction, if
        a shard is.

    Notes
    -----
    A result is consistent: if shards are edited or lost during its computation, it starts again.
    Edits wait for each other, in all processes.

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
        self.folder = as_path("folder", folder).absolute()  # workers may be elsewhere
        self.n_jobs = n_jobs
        self.allow_partial = allow_partial
        self._external = external
        self._read_estimator(Folder.read(self.folder))
        self.missing_shards_: list[str] = []

    def _read_estimator(self, listed: Folder) -> None:
        """Read the estimator of a manifest, unless it is the one that was read last."""
        if listed.estimator == getattr(self, "_checksum", None):
            return
        path = self.folder / listed.estimator_file
        self.estimator_ = read(path, self._external, checksum=listed.estimator)
        with decoding(path, "is damaged: it holds no fitted estimator"):
            _check_kind(self.estimator_)
            check_is_fitted(self.estimator_)
            if not isinstance(self.estimator_.bank_, NeighborBank):
                raise TypeError(f"its bank is a {type(self.estimator_.bank_).__name__}")
        self._checksum = listed.estimator

    def __len__(self) -> int:
        """Count the rows of all shards."""
        return len(Folder.read(self.folder))

    # -- predictions ---------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """Predict the targets of queries, as the estimator does.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries. None: the rows of all shards, each without itself (leave-one-out), in
            the order of their ids; those of shards that are missing are left out.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs)
            Predictions.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import ShardedNeighbors, SoftStepKNeighborsRegressor, save_shards
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> folder = Path(tempfile.mkdtemp(), "flats")
        >>> save_shards(knn.fit(X, y), folder, n_shards=2)
        >>> ShardedNeighbors(folder).predict([[84], [110]]).round()
        array([425., 525.])
        """
        return self.estimator_.targets_.decode(self._mean(X))

    @available_if(_does("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray | Any:
        """Predict the probability of each class, as the classifier does.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries; None as for :meth:`predict`.

        Returns
        -------
        ndarray of shape (n_queries, n_classes), or list of n_outputs such arrays
            Probabilities in the order of ``estimator_.classes_``.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import ShardedNeighbors, save_shards
        >>> from nona_sklearn import SoftStepKNeighborsClassifier
        >>> X, y = [[1], [2], [3], [6], [7], [8]], ["red", "red", "red", "white", "white", "white"]
        >>> options = dict(weighting="uniform", learn_feature_weights=False, smoothing=False)
        >>> knn = SoftStepKNeighborsClassifier(3, max_iter=1, **options).fit(X, y)
        >>> folder = Path(tempfile.mkdtemp(), "wines")
        >>> save_shards(knn, folder, n_shards=2)
        >>> ShardedNeighbors(folder).predict_proba([[4]]).round(2)
        array([[0.67, 0.33]])
        """
        targets = self.estimator_.targets_
        each = [p.numpy() for p in self._mean(X).split(targets.sizes, dim=1)]
        return each if targets.several else each[0]

    def heaviest_neighbors(
        self, X: Any = None, n_neighbors: int = 5
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the neighbours with the largest weights, in descending order.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries; None as for :meth:`predict`.
        n_neighbors : int, default=5
            Number of neighbours, from 1 to the number of rows in shards that are not missing.

        Returns
        -------
        weights : ndarray of shape (n_queries, n_neighbors)
            Their weights, largest first.
        ids : int ndarray of shape (n_queries, n_neighbors)
            Their ids; -1 where fewer rows are earlier than the query.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import ShardedNeighbors, SoftStepKNeighborsRegressor, save_shards
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> folder = Path(tempfile.mkdtemp(), "flats")
        >>> save_shards(knn.fit(X, y), folder, n_shards=2)
        >>> weights, ids = ShardedNeighbors(folder).heaviest_neighbors([[84]], n_neighbors=2)
        >>> weights.round(2), ids
        (array([[0.5, 0.5]]), array([[2, 3]]))
        """

        def of_all_shards(query):
            part = query.evaluate(n_neighbors)
            evaluation = query.of(part)
            weights, positions, _ = evaluation.heaviest(n_neighbors)
            positions = evaluation.only_earlier(positions)
            return weights.numpy(), np.where(positions < 0, -1, part.ids[positions])

        return self._of_neighbors(X, n_neighbors, of_all_shards)

    @overload
    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        return_distance: Literal[True] = True,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        *,
        return_distance: Literal[False],
    ) -> np.ndarray: ...

    @overload
    def kneighbors(
        self,
        X: Any,
        n_neighbors: int | None,
        return_distance: Literal[False],
    ) -> np.ndarray: ...

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Find the nearest rows in the learned space, in the order of their distances.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries; None as for :meth:`predict`.
        n_neighbors : int, default=None
            Number of neighbours, from 1 to the number of rows in shards that are not missing.
            None: the estimator's `n_neighbors`, or 5 if that is no number.
        return_distance : bool, default=True
            Whether to return the distances.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Distances between embeddings, smallest first. Only with ``return_distance=True``.
        ids : int ndarray of shape (n_queries, n_neighbors)
            Ids of the neighbours; -1 where fewer rows are earlier than the query.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import ShardedNeighbors, SoftStepKNeighborsRegressor, save_shards
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> folder = Path(tempfile.mkdtemp(), "flats")
        >>> save_shards(knn.fit(X, y), folder, n_shards=2)
        >>> ShardedNeighbors(folder).kneighbors([[84]], n_neighbors=2)
        (array([[4., 6.]]), array([[2, 3]]))
        """
        check_flag("return_distance", return_distance)
        k = number_of_neighbors(self.estimator_, n_neighbors)

        def of_all_shards(query):
            each = zip(*query.map(nearest_of, k), strict=True)
            distances, ids = (torch.cat(parts, dim=1).numpy() for parts in each)
            order = np.lexsort((ids, distances))[:, :k]  # of equally near rows the smallest id
            return np.take_along_axis(distances, order, 1), np.take_along_axis(ids, order, 1)

        distances, ids = self._of_neighbors(X, k, of_all_shards)
        return (distances, ids) if return_distance else ids

    def _of_neighbors(self, X, n_neighbors, function) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays of so many neighbours of each query, which all shards together can have."""

        def check(folder):
            check_n_neighbors(n_neighbors, len(folder) - (X is None))

        first, second = zip(*self._evaluate(X, function, check), strict=True)
        return np.concatenate(first), np.concatenate(second)

    @available_if(_does("predict_quantiles"))
    def predict_quantiles(self, X: Any, quantiles: Any = (0.1, 0.5, 0.9)) -> np.ndarray:
        """Predict quantiles of the targets, as the regressor does.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries; None as for :meth:`predict`.
        quantiles : float or array-like of shape (n_quantiles,), default=(0.1, 0.5, 0.9)
            Probabilities, from 0 to 1.

        Returns
        -------
        ndarray of shape (n_queries, n_quantiles) or (n_queries, n_quantiles, n_outputs)
            Quantiles in the units of `y`. Near 0 and 1 they depend on weights below rounding, and
            may differ from those of the whole bank.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import ShardedNeighbors, SoftStepKNeighborsRegressor, save_shards
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> folder = Path(tempfile.mkdtemp(), "flats")
        >>> save_shards(knn.fit(X, y), folder, n_shards=2)
        >>> ShardedNeighbors(folder).predict_quantiles([[84]]).round()
        array([[300., 420., 554.]])
        """
        levels = check_levels(quantiles)
        bank = self.estimator_.bank_
        calibration = bank.calibration or Calibration()

        def of_all_shards(query):
            return Distribution(query.of(query.evaluate()), calibration).quantiles(levels)

        found = np.concatenate(self._evaluate(X, of_all_shards))
        return found[:, 0] if np.ndim(quantiles) == 0 else found

    def _mean(self, X) -> Tensor:
        return torch.cat(self._evaluate(X, lambda query: query.of(query.evaluate()).mean()))

    def _evaluate(
        self,
        X,
        function: Callable[[ShardQuery], Any],
        check: Callable[[Folder], None] = lambda _: None,
    ) -> list[Any]:
        """Results for blocks of queries, all of the same shards.

        When shards are edited or lost meanwhile, it starts again.
        """
        whole = Folder.read(self.folder)
        self._read_estimator(whole)
        lost: dict[Entry, Exception] = {}
        while True:
            folder = whole.without(lost)
            if X is None and len(folder) < 2:
                raise ValueError(f"X=None needs at least 2 rows in the bank, it has {len(folder)}")
            check(folder)
            try:
                results = [function(query) for query in self._queries(X, folder)]
            except ShardsLostError as error:
                now = Folder.read(self.folder)
                lost = lost | error.errors if now == whole else {}
                whole = now
                self._read_estimator(whole)  # an edit may have fitted its trend anew
                if lost and not (self.allow_partial and len(lost) < len(whole.shards)):
                    raise next(iter(lost.values())) from error
                continue
            self.missing_shards_ = [entry.path.name for entry in whole.shards if entry in lost]
            return results

    def _queries(self, X, folder: Folder) -> Iterator[ShardQuery]:
        """Some embedded queries at a time; or rows of the bank, and their ids."""
        head = self.estimator_.network_.head
        no_rows = self.estimator_.bank_.neighbors
        parts = head.split_by_head(no_rows.embeddings, no_rows.embeddings)
        trend = self.estimator_.bank_.trend
        of_all = folder.shards, self.n_jobs, head, no_rows.algorithm, trend
        dense = any(own.most_weighed(len(folder)) is None for own, _, _ in parts)
        most = max(1, BLOCK_PAIRS // len(folder)) if dense else QUERY_BLOCK
        for each in self._embedded(X, folder):
            for rows in spans(len(each[0]), most):
                others = (v if v is None else v[rows] for v in each[1:])
                yield ShardQuery(*of_all, each[0][rows], *others)

    def _embedded(
        self, X, folder: Folder
    ) -> Iterator[tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]]:
        """Embeddings, ids and limits of queries, what unknown levels add, and the trend."""
        if X is not None:
            for queries in query_blocks(self.estimator_, X, with_added=True):
                offset = self.estimator_.bank_.trend_of(queries)
                yield queries.embeddings, None, queries.times, queries.added, offset
            return
        held: list[Neighbors] = []
        ids: list[Tensor] = []
        for entry in folder.shards:
            try:
                bank = entry.open()
            except (OSError, ValueError) as error:
                raise ShardsLostError({entry: error}) from error
            for rows in spans(len(bank), QUERY_BLOCK):
                held.append(bank.neighbors[rows])
                ids.append(bank.ids[rows])
                if entry == folder.shards[-1] or sum(map(len, held)) >= QUERY_BLOCK:
                    rows_held = reduce(Neighbors.join, held)
                    offset = None if rows_held.offset is None else rows_held.offset.values
                    yield rows_held.embeddings, torch.cat(ids), rows_held.times, None, offset
                    held, ids = [], []

    # -- edits ---------------------------------------------------------------------------

    def add_neighbors(
        self, X: Any, y: Any, sample_weight: Any = None, *, times: Any = None
    ) -> np.ndarray:
        """Add labelled rows to the last shard, or to a new one if it has 4,096 rows or more.

        Parameters
        ----------
        X, y, sample_weight, times : array-like
            As for the estimator's ``add_neighbors``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Their ids, which are never used for other rows.

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
                with suppress(OSError, ValueError):  # lost: it may come back as it was
                    bank, opened = last.open(), last
            trend = self.estimator_.bank_.trend
            bank = replace(bank, next_id=torch.tensor(folder.next_id), trend=trend)
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

    def _without_levels(
        self, before: Iterable[NeighborBank], removed: np.ndarray, folder: Folder
    ) -> Any:
        """The estimator without levels that were of removed rows alone."""
        encoder = getattr(self.estimator_, "features_", None)
        if self.estimator_.bank_.levels is None:
            return self.estimator_
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

    def _trend_without(self, removed: np.ndarray) -> Trend | None:
        """The trend that is solved anew without some rows; None: it stays as it is."""
        trend = self.estimator_.bank_.trend
        if trend is None or not trend.is_solved:
            return None
        left = trend.without(removed)
        return None if left is trend else left

    def remove_neighbors(self, *, ids: Any) -> Self:
        """Remove rows: the shards that contain them are rewritten without them.

        The estimator is rewritten as well, if they were the last rows of a level of a category. If
        ``trend='kernel'`` is fitted to them, it is fitted anew, and all shards are rewritten.

        Parameters
        ----------
        ids : int or array-like of int
            Ids of the rows. If one is unknown, or no row would be left, a ValueError is raised,
            and no row is removed.

        Returns
        -------
        self : object
            Without these rows.

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
        removed = np.unique(check_ids(ids))
        with Folder.editing(self.folder) as folder:
            self._read_estimator(folder)
            banks = {
                entry: entry.open()
                for entry in folder.shards
                if ((entry.first <= removed) & (removed <= entry.last)).any()
            }
            held = [np.arange(0), *(bank.ids.numpy() for bank in banks.values())]
            unknown = np.setdiff1d(removed, np.concatenate(held))
            if len(unknown):
                raise ValueError(f"ids must be in the bank, got unknown {unknown[:10].tolist()}")
            if len(removed) == len(folder):
                raise ValueError(f"ids must leave at least one row, got all {len(folder)}")
            trend = self._trend_without(removed)
            for entry in banks if trend is None else folder.shards:
                bank = banks[entry] if entry in banks else entry.open()
                kept = np.flatnonzero(~np.isin(bank.ids.numpy(), removed))
                if len(kept) == 0:
                    folder = folder.without([entry])
                    continue
                left = bank.in_order(kept)
                left = left if trend is None else left.with_trend(trend)
                folder = folder.put(indexed(left, self.estimator_), entry)
            estimator = self._without_levels(banks.values(), removed, folder)
            if trend is not None:
                estimator = with_bank(estimator, replace(estimator.bank_, trend=trend))
            if estimator is not self.estimator_:
                folder = folder.put_estimator(estimator)
            if len(removed):
                folder.write()
            self.estimator_, self._checksum = estimator, folder.estimator
        return self
