"""Banks in shards from tables in partitions: fit on a sample, then embed on workers.

The rows of the sample come from the fitted bank, and the remaining rows are added as by
``add_neighbors``, a partition at a time. So the shards hold the bank of the fitted estimator after
all remaining rows were added.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from filelock import Timeout
from sklearn.base import clone, is_classifier

from .._data.row_values import check_sample_weight
from .._data.table_encoding import TableEncoding
from .._data.targets import check_targets
from .._inference.bank import NeighborBank
from .._inference.calibration import calibrate_on_bank
from .._persistence.file import (
    MANIFEST,
    checksum_of,
    decoding,
    read,
    write,
)
from .._training.progress import with_progress
from .._utils.files import as_path, put_in_place
from .._utils.validation import check_integer, import_extra
from .partitions import (
    EXTRA,
    NEEDED_BY,
    Partitions,
    Tasks,
    check_same,
    client_of_dask,
    kinds_of,
    results_of,
)
from .sharded import (
    BESIDE,
    ESTIMATOR,
    FITTED,
    LOCK,
    PLAN,
    Entry,
    Folder,
    ShardedNeighbors,
    as_queries,
    check_kind,
    emptied,
    indexed,
    join_shards,
    lock_of,
    select_rows,
    ungrouped,
    unvalued,
    with_bank,
)

CALIBRATION_ROWS = 500  # outside the sample, by which intervals are calibrated
LEAST_CALIBRATION_ROWS = 100  # with fewer, the calibration of the sample stays
#: Parameters that may change before a run is resumed.
OF_RUN = "verbose", "n_jobs"


def fit_shards(
    estimator: Any,
    data: Any,
    folder: Any,
    *,
    y: Any,
    sample_weight: Any = None,
    groups: Any = None,
    times: Any = None,
    eligibility: Any = None,
    n_training_rows: int = 100_000,
    **external: Any,
) -> ShardedNeighbors:
    """Fit an estimator to a sample of a table in partitions, and embed all rows into shards.

    The workers of the present Dask client embed a partition at a time. Without a client, this
    process does. The shards hold the bank of the estimator that is fitted to the sample, after
    ``add_neighbors`` of the remaining rows. Ids are row numbers over all partitions. An
    interrupted call is resumed by the same call: complete shards are not written again. Columns
    and numbers of rows must be those of the first call; the cells are not compared.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or \
            SoftStepKNeighborsClassifier
        The estimator, of which a copy is fitted. With ``similarity="features"``, the networks
        predict from rows of the sample alone. `n_neighbors` should not be None: see
        :func:`save_shards`.
    data : dask.dataframe.DataFrame, str, path-like or pyarrow.dataset.Dataset
        The table, or the folder of its Parquet files. A partition is a row group of a Parquet
        file, and must fit into the memory of a worker. The index of pandas is ignored. Files are
        read twice, and their targets once more; a Dask DataFrame that is not persisted is computed
        three times.
    folder : str or path-like
        The folder to write, which all workers reach. It must be new, or of an interrupted call.
    y : str or list of str
        The column of the targets, or several columns.
    sample_weight : str, default=None
        The column of the rows' weights. Rows of weight 0 are left out.
    groups, times : str, default=None
        Columns that ``fit`` is given as its `groups` and `times`. They stay features. Times may
        have any order.
    eligibility : Eligibility, default=None
        The rule that ``fit`` is given.
    n_training_rows : int, default=100000
        Number of rows of the sample, to which encoder, networks and trend are fitted. Rows are
        equally spaced in the order of the (first) target of a partition, and the first row of
        every class is added. The sample is the same in every call.
    **external : object
        Parameters that a file cannot contain, as for :func:`load`.

    Returns
    -------
    ShardedNeighbors
        The estimator with all rows.

    Raises
    ------
    TypeError
        If `estimator` or `data` is of a different class, or `trend` is a model.
    ValueError
        If a parameter is invalid; if partitions differ in their columns; if a target is missing;
        or if `folder` holds an interrupted call with different arguments. Errors name the
        partition and the column.
    OSError
        If `folder` holds anything else (FileExistsError), a different process writes it
        (BlockingIOError), or it cannot be written. Complete shards stay, to be resumed.

    Warns
    -----
    UserWarning
        If rows have levels of a category that the sample lacks, and that are therefore encoded as
        unknown.

    See Also
    --------
    save_shards : Shards of an estimator in memory.

    Notes
    -----
    Medians, quantiles and shares of the encoder are those of the sample: the standard error of a
    quantile's level is at most 0.16 % with 100,000 rows. Intervals of regressors are calibrated by
    500 rows outside the sample, which the whole bank predicts without the row. With groups or
    times, and with weights of all rows, the calibration of the sample stays.

    Dask sets ``MALLOC_TRIM_THRESHOLD_`` for its workers, by which embedding takes 1.7 times as
    long, with less memory. Its option ``distributed.nanny.pre-spawn-environ`` changes that.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dask.dataframe
    >>> import pandas as pd
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, fit_shards
    >>> flats = pd.DataFrame({"area": [50, 60, 80, 90, 120], "price": [250, 300, 400, 450, 600]})
    >>> table = dask.dataframe.from_pandas(flats, npartitions=2)  # or read_parquet(...)
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> sharded = fit_shards(knn, table, Path(tempfile.mkdtemp(), "flats"), y="price")
    >>> sharded.predict(pd.DataFrame({"area": [84]})).round()
    array([425.])
    """
    path = as_path("folder", folder).absolute()  # workers may have another one
    check_kind(estimator)
    model = clone(estimator)
    if getattr(estimator, "feature_extractor", None) is not None:
        raise ValueError(
            "feature_extractor must be None, since fit_shards reads tables, got "
            f"{estimator.feature_extractor!r:.100}"
        )
    if hasattr(model.trend, "fit"):
        raise TypeError(
            f"trend must be no model for shards, got {model.trend!r:.100}: use trend='kernel'"
        )
    check_integer("n_training_rows", n_training_rows, 2)
    partitions = Partitions.of(data)
    roles = Roles.of(partitions.columns, y, sample_weight, times, is_classifier(estimator))
    given = {"groups": groups, "times": times, "eligibility": eligibility}
    for name in ("groups", "times"):
        value = given[name]
        if value is not None and not (isinstance(value, str) and value in roles.features):
            raise ValueError(f"{name} must name a feature of data, got {value!r:.100}")
    verbose = bool(estimator.verbose)
    with building(path) as plan_file:
        tasks = tasks_of(count, partitions.read(roles.without_features), roles)
        counts = _collected(tasks, "counted", verbose)
        n_rows = [counted.n_rows for counted in counts]
        params = {k: v for k, v in model.get_params().items() if k not in OF_RUN}
        settings = {
            "estimator": joblib.hash((type(model).__name__, params)),
            "data": [*map(str, partitions.columns)],
            "y": repr(roles.y),
            "sample_weight": repr(sample_weight),
            **{name: repr(value) for name, value in given.items()},
            "n_training_rows": int(n_training_rows),
            "number of rows": n_rows,
        }
        checksum = _resumed(plan_file, settings)
        if checksum is None:
            rows, sample = draw_sample(roles, partitions, counts, n_training_rows, verbose)
            X, targets, weights = roles.split(sample)
            model.fit(X, targets, sample_weight=weights, **given)
            _renumber(model, rows, sum(n_rows))
            checksum = write(model, path / FITTED)
            with put_in_place(plan_file) as beside:
                beside.write_text(json.dumps({"settings": settings, "fitted": checksum}))
        fitted = Fitted(path, checksum, external)
        model = fitted.read(verify=True)
        entries = _embedded(fitted, roles, partitions, n_rows, verbose)
        folder = Folder(path, checksum, sum(n_rows), len(n_rows), tuple(entries))
        _finish(model, folder)
    return ShardedNeighbors(path, **external)


# -- the folder ----------------------------------------------------------------------------------


@contextmanager
def building(path: Path) -> Iterator[Path]:
    """Lock a new folder, or that of an interrupted run, and yield the path of its plan.

    The folder stays if it has a plan, and is deleted otherwise.
    """
    plan_file, is_new = path / PLAN, not os.path.lexists(path)
    if not is_new:
        _check_content(path)
    path.mkdir(parents=True, exist_ok=True)
    try:
        with lock_of(path, timeout=0):
            _check_content(path)  # now that no other process changes it
            try:
                yield plan_file
            finally:
                if not (plan_file.exists() or (path / MANIFEST).exists()):
                    (path / FITTED).unlink(missing_ok=True)
                    (path / LOCK).unlink(missing_ok=True)
                    if is_new:
                        with suppress(OSError):  # what a worker writes may be left
                            path.rmdir()
    except Timeout:
        raise BlockingIOError(f"folder {str(path)!r} is written by another process") from None


def _check_content(path: Path) -> None:
    """Raise unless the folder is empty or of an interrupted run."""
    if not path.is_dir():
        raise FileExistsError(f"folder must be new, got {str(path)!r}, which is a file")
    names = {entry.name for entry in path.iterdir()}
    if MANIFEST in names:
        raise FileExistsError(
            f"folder must be new, got {str(path)!r}, which holds a bank: ShardedNeighbors reads it"
        )
    expected = rf"{re.escape(LOCK)}|{re.escape(FITTED)}|{BESIDE}"
    others = [name for name in sorted(names) if not re.fullmatch(expected, name)]
    if others and PLAN not in names:
        raise FileExistsError(f"folder must be new, got {str(path)!r}, which holds {others[0]!r}")


def _resumed(plan_file: Path, settings: dict[str, Any]) -> str | None:
    """Return the checksum of the estimator that an interrupted run has fitted, if there is one."""
    if not plan_file.exists():
        return None
    with decoding(plan_file, "is damaged"):
        content = json.loads(plan_file.read_bytes())
        before, checksum = content["settings"], str(content["fitted"])
        changed = [name for name, value in settings.items() if before.get(name) != value]
    if changed:
        raise ValueError(
            f"folder {str(plan_file.parent)!r} holds an interrupted fit_shards with different "
            f"arguments, and {changed[0]} differs: repeat the call, or delete the folder"
        )
    return checksum


# -- the columns, and the sample ---------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are."""

    features: list[Any]
    y: Any  # the name of a column, or a list of names
    sample_weight: Any
    are_classes: bool
    times: Any = None  # one of the features

    @classmethod
    def of(
        cls, columns: list[Any], y: Any, sample_weight: Any, times: Any, are_classes: bool
    ) -> Roles:
        """Return the roles, or raise if a name is not one of the columns."""
        targets = y if isinstance(y, list) else [y]
        for name in columns:
            if columns.count(name) > 1:
                raise ValueError(f"data must have distinct columns, got {name!r} twice")
        for name, given in (("y", targets), ("sample_weight", [sample_weight])):
            for column in given:
                is_column = isinstance(column, Hashable) and column in columns
                if not is_column and (column is not None or name == "y"):
                    raise ValueError(f"{name} must name columns of data, got {column!r:.100}")
        taken = [*targets, sample_weight]
        features = [name for name in columns if name not in taken]
        if not features or not targets:
            raise ValueError(f"y must leave features in data and name a target, got {y!r:.100}")
        return cls(features, y, sample_weight, are_classes, times)

    @property
    def targets(self) -> list[Any]:
        """Return the names of the targets."""
        return self.y if isinstance(self.y, list) else [self.y]

    def split(self, frame: Any) -> tuple[Any, Any, np.ndarray | None]:
        """Return features, targets and weights of rows."""
        weights = self.sample_weight
        weights = None if weights is None else check_sample_weight(frame[weights], len(frame))
        return frame[self.features], frame[self.y], weights

    def kept(self, frame: Any) -> np.ndarray:
        """Return the numbers of the rows of positive weight."""
        if self.sample_weight is None:
            return np.arange(len(frame))
        return np.flatnonzero(check_sample_weight(frame[self.sample_weight], len(frame)))

    @property
    def without_features(self) -> list[Any]:
        """Return the names of targets and weights."""
        return [*self.targets, *([] if self.sample_weight is None else [self.sample_weight])]

    @property
    def columns(self) -> list[Any]:
        """Return the names of all columns."""
        return [*self.features, *self.without_features]


@dataclass(frozen=True)
class Counted:
    """The rows of a partition."""

    n_rows: int
    n_kept: int  # rows of positive weight
    classes: dict[tuple[int, Hashable], int]  # a row of every class, by output and label


def count(frame: Any, roles: Roles) -> Counted:
    """Count the rows of a partition, and check its targets and weights."""
    kept = roles.kept(frame)
    classes: dict[tuple[int, Hashable], int] = {}
    for output, name in enumerate(roles.targets):
        column = frame[name].iloc[kept].reset_index(drop=True)
        try:
            if not roles.are_classes and len(kept):
                check_targets(column, kept)
            elif (missing := column.isna().to_numpy()).any():
                raise ValueError(f"a label is missing in row {kept[missing.argmax()]}")
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {name!r}: {error}") from error
        if roles.are_classes:
            first = np.flatnonzero(~column.duplicated().to_numpy())
            labels = ((output, label) for label in column.iloc[first].tolist())
            classes |= zip(labels, kept[first].tolist(), strict=True)
    return Counted(len(frame), len(kept), classes)


def tasks_of(
    function: Any, read: Tasks, roles: Roles, given: Mapping[int, tuple] | None = None
) -> Tasks:
    """Return the tasks that call a function with a partition, roles and what is given for it."""
    delayed = import_extra(NEEDED_BY, "dask", extra=EXTRA).delayed(function, pure=False)
    given = dict.fromkeys(read, ()) if given is None else given
    return {i: delayed(read[i], roles, *arguments) for i, arguments in given.items()}


def _collected(tasks: Tasks, done: str, verbose: bool) -> list[Any]:
    """Return the results of tasks, in the order of the partitions, and show the progress."""
    results: Any = results_of(tasks)
    if verbose:
        single = ([result] for result in results)
        results = (result for [result] in with_progress(single, len(tasks), f"partitions {done}"))
    by_number = dict(results)
    return [by_number[number] for number in sorted(by_number)]


def draw_sample(
    roles: Roles, partitions: Partitions, counts: list[Counted], n_rows: int, verbose: bool
) -> tuple[np.ndarray, Any]:
    """Return a stratified sample of the rows, by number over all partitions, and the rows."""
    n_kept = np.array([counted.n_kept for counted in counts])
    if n_kept.sum() < 2:
        raise ValueError(f"data must have at least 2 rows of positive weight, got {n_kept.sum()}")
    share = min(1.0, n_rows / n_kept.sum())
    sizes = np.diff(np.round(n_kept.cumsum() * share).astype(int), prepend=0)
    required: list[list[int]] = [[] for _ in counts]  # a row of every class
    seen: set[tuple[int, Hashable]] = set()
    for counted, of_classes in zip(counts, required, strict=True):
        new = {label: row for label, row in counted.classes.items() if label not in seen}
        seen |= {*new}
        of_classes += new.values()
    numbers = [number for number, counted in enumerate(counts) if counted.n_rows]
    given = {i: (i, int(sizes[i]), required[i]) for i in numbers}
    tasks = tasks_of(draw_rows, partitions.read(roles.columns), roles, given)
    drawn = _collected(tasks, "sampled", verbose)
    check_same({i: kinds for i, (kinds, *_) in zip(numbers, drawn, strict=True)})
    starts = np.cumsum([0, *(counted.n_rows for counted in counts)])
    rows = np.concatenate([starts[i] + own for i, (_, own, _) in zip(numbers, drawn, strict=True)])
    # It unites the categories of partitions.
    concat = import_extra(NEEDED_BY, "dask.dataframe.dispatch", extra=EXTRA).concat
    parts = [part for *_, part in drawn if len(part)]
    return rows, concat(parts).reset_index(drop=True)


def draw_rows(
    frame: Any, roles: Roles, number: int, size: int, required: list[int]
) -> tuple[dict[Any, str], np.ndarray, Any]:
    """Return what the columns hold, and rows that are equally spaced in the order of a target.

    Features must be finite or missing, and times must not be missing.
    """
    numbers = frame[roles.features].select_dtypes("float")
    is_infinite = np.isinf(numbers.to_numpy(dtype=float, na_value=np.nan))
    if is_infinite.any():
        row, column = np.argwhere(is_infinite)[0]
        raise ValueError(f"column {numbers.columns[column]!r} holds infinity in row {row}")
    if roles.times is not None and (missing := frame[roles.times].isna().to_numpy()).any():
        raise ValueError(f"column {roles.times!r}: a time is missing in row {missing.argmax()}")
    generator, kept = np.random.default_rng([0, number]), roles.kept(frame)
    target = frame[roles.targets[0]].iloc[kept]
    if roles.are_classes:
        values = target.factorize()[0]
    else:
        values = check_targets(target) if len(kept) else np.empty(0)
    order = np.lexsort((generator.random(len(kept)), values))
    spaced = ((np.arange(size) + generator.random()) * len(kept) / max(size, 1)).astype(int)
    rows = np.union1d(kept[order[spaced]], required).astype(int)
    return kinds_of(frame), rows, frame.iloc[rows]


def _renumber(model: Any, rows: np.ndarray, n_rows: int) -> None:
    """Set ids and numbers of an estimator's rows to those over all partitions.

    Rows that are added are no rows that its trend predicts from.
    """
    bank = model.bank_.renumbered(rows, n_rows)
    model.bank_ = replace(bank, trend=None if bank.trend is None else bank.trend.fixed())
    model.validation_indices_ = [
        None if valid is None else rows[valid] for valid in model.validation_indices_
    ]


# -- the shards ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """The file of the fitted estimator, whose bank is the sample."""

    path: Path  # the folder
    checksum: str
    external: dict[str, Any]

    def read(self, verify: bool = False) -> Any:
        """Return the estimator. `verify` compares the checksum of its content."""
        return read(self.path / FITTED, self.external, verify, self.checksum)


@dataclass(frozen=True)
class Part:
    """A shard to be written, of a partition."""

    file: Path
    start: int  # number of the first row
    n_rows: int
    origin: str  # what the file states

    @classmethod
    def of(cls, fitted: Fitted, number: int, start: int, n_rows: int) -> Part:
        """Return the shard of a partition, by number."""
        origin = f"rows {start} to {start + n_rows}, embedded by {fitted.checksum}"
        return cls(fitted.path / f"shard-{number:05d}.safetensors", start, n_rows, origin)

    def find(self) -> Entry | None:
        """Return the entry of the shard if it is whole and of this origin, or else None."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            held = read(self.file)
            if held["origin"] == self.origin:
                return Entry.of(self.file, checksum_of(self.file), held["bank"])
        return None


def embed_partition(frame: Any, roles: Roles, fitted: Fitted, part: Part) -> Entry | None:
    """Write a partition's shard, and return its entry; None if all weights are 0."""
    if len(frame) != part.n_rows:
        raise ValueError(f"it had {part.n_rows} rows, and has {len(frame)} now")
    model, start = fitted.read(), part.start
    bank = unvalued(ungrouped(model.bank_))
    ends = np.searchsorted(bank.ids.numpy(), [start, start + len(frame)])
    bank = bank.in_order(np.arange(*ends))
    is_added = np.zeros(len(frame), dtype=bool)
    is_added[roles.kept(frame)] = True
    is_added[bank.ids.numpy() - start] = False
    if is_added.any():
        rest = np.flatnonzero(is_added)
        editor = with_bank(model, bank)
        X, y, weights = roles.split(frame.iloc[rest].reset_index(drop=True))
        editor.add_neighbors(X, y, weights)
        ids = torch.cat([bank.ids, torch.from_numpy(start + rest)])
        bank = replace(editor.bank_, ids=ids).in_order(ids.argsort().numpy())
    if len(bank) == 0:
        return None
    content = {"bank": indexed(bank, model), "origin": part.origin}
    return Entry.of(part.file, write(content, part.file), bank)


def _embedded(
    fitted: Fitted, roles: Roles, partitions: Partitions, n_rows: list[int], verbose: bool
) -> list[Entry]:
    """Return the entries of all shards, in order. Those that are missing are written."""
    delayed = import_extra(NEEDED_BY, "dask", extra=EXTRA).delayed
    starts = np.cumsum([0, *n_rows]).tolist()
    parts = {i: Part.of(fitted, i, starts[i], n) for i, n in enumerate(n_rows) if n}
    written = {i: part for i, part in parts.items() if part.file.exists()}
    find = {i: delayed(Part.find, pure=False)(part) for i, part in written.items()}
    found = dict(zip(find, _collected(find, "verified", verbose and bool(find)), strict=True))
    missing = {i: (fitted, part) for i, part in parts.items() if found.get(i) is None}
    tasks = tasks_of(embed_partition, partitions.read(roles.columns), roles, missing)
    embedded = dict(zip(missing, _collected(tasks, "embedded", verbose), strict=True))
    entries = found | embedded
    return [entry for number in parts if (entry := entries[number]) is not None]


def _finish(model: Any, folder: Folder) -> None:
    """Write the estimator and the manifest, which make the shards a bank."""
    sample = model.bank_
    empty = with_bank(model, emptied(ungrouped(sample)))
    if sample.calibration is not None and sample.groups is None and sample.time is None:
        calibration = _calibration(empty, folder, sample.ids.numpy()) or sample.calibration
        empty = with_bank(empty, replace(empty.bank_, calibration=calibration))
    folder = replace(folder, estimator=write(empty, folder.path / ESTIMATOR))
    folder.write()
    folder.tidy()
    _warn_of_levels(model, folder)


def _warn_of_levels(model: Any, folder: Folder) -> None:
    """Warn about levels that the sample lacks, in categories of which it has no rare levels."""
    sample = model.bank_.levels
    if sample is None:
        return
    n_lacking = torch.zeros(sample.shape[1], dtype=torch.int64)
    for entry in folder.shards:
        levels = entry.open().levels
        assert levels is not None
        n_lacking += (levels < 0).sum(dim=0)
    n_lacking[(sample < 0).any(dim=0)] = 0  # rare levels are encoded alike
    encoding = TableEncoding.of(model.features_)
    for n_rows, column in zip(n_lacking.tolist(), encoding.categories, strict=True):
        if n_rows:
            warnings.warn(
                f"{encoding.specs[column].column.label}: {n_rows:,} rows have levels that the "
                f"{len(sample):,} rows of the sample lack, and that are encoded as unknown; a "
                "larger n_training_rows may have them",
                UserWarning,
                stacklevel=4,
            )


def _calibration(model: Any, folder: Folder, sample: np.ndarray) -> Any:
    """Return the calibration on rows outside the sample, which all rows predict, or None.

    None: such rows are few, or every row has weight.
    """
    head, empty, n_rows = model.network_.head, model.bank_, folder.next_id
    if empty.evaluate(head).bounds(len(folder)) is None:
        return None
    generator = np.random.default_rng(0)
    drawn = generator.choice(n_rows, min(n_rows, len(sample) + CALIBRATION_ROWS), replace=False)
    chosen = generator.permutation(np.setdiff1d(drawn, sample))[:CALIBRATION_ROWS]
    banks = []
    for entry in folder.shards:
        some = np.flatnonzero(np.isin((shard := entry.open()).ids.numpy(), chosen))
        banks += [shard.in_order(some)] if len(some) else []
    if sum(map(len, banks)) < LEAST_CALIBRATION_ROWS:
        return None
    queries = as_queries(join_shards(empty, banks), model.network_)
    on_workers = nullcontext() if client_of_dask() is None else joblib.parallel_config("dask")
    with on_workers:
        bank: NeighborBank = select_rows(model, folder, queries)
    assert queries.ids is not None
    return calibrate_on_bank(head, bank, rows=bank.positions(queries.ids.numpy()))
