"""Tables in partitions, which tasks of Dask read: Dask DataFrames, and datasets of pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

import narwhals as nw

from .._utils.validation import import_extra

NEEDED_BY, EXTRA = "fit_shards", "dask"
ANY = "values of any kind"  # in a column of objects, or without values

Tasks = dict[int, Any]  # by the number of the partition


@dataclass(frozen=True)
class Partitions:
    """The partitions of a table."""

    columns: list[Any]
    #: Return the tasks that read some columns, as DataFrames of pandas.
    read: Callable[[list[Any]], Tasks]

    @classmethod
    def of(cls, data: Any) -> Partitions:
        """Return the partitions of a Dask DataFrame, of a folder or of a pyarrow dataset."""
        frames = import_extra(NEEDED_BY, "dask.dataframe", "distributed", extra=EXTRA)
        datasets = import_extra(NEEDED_BY, "pyarrow.dataset", extra=EXTRA)
        delayed = import_extra(NEEDED_BY, "dask", extra=EXTRA).delayed
        if isinstance(data, frames.DataFrame):
            # Columns are selected in the tasks: Dask may join partitions of fewer columns.
            columns, parts = [*data.columns], enumerate(data.to_delayed())
            read = {i: delayed(_Frame)(part, columns) for i, part in parts}
        else:
            files, kinds = _files(data, datasets), {}
            for i, file in enumerate(files):
                with _naming(i):
                    kinds[i] = kinds_of(file.schema.empty_table())
            check_same(kinds)
            read = {i: delayed(file, pure=False, traverse=False) for i, file in enumerate(files)}
            columns = files[0].schema.names if files else []
        return cls(columns, lambda some: {i: part.read(some) for i, part in read.items()})


@dataclass(frozen=True)
class _Frame:
    """A partition of a Dask DataFrame."""

    frame: Any
    columns: list[Any]  # of the DataFrame

    def read(self, columns: list[Any]) -> Any:
        """Return columns, with numbered rows."""
        _check_columns(columns, self.frame.columns)
        if further := [name for name in self.frame.columns if name not in self.columns]:
            raise ValueError(f"there is a column {further[0]!r}, which the DataFrame has not")
        return self.frame[columns].reset_index(drop=True)


@dataclass(frozen=True)
class _File:
    """A file of a pyarrow dataset, or a row group of it."""

    fragment: Any
    schema: Any  # of its columns and those that its path states

    def read(self, columns: list[Any]) -> Any:
        """Return columns, with numbered rows."""
        _check_columns(columns, self.schema.names)
        table = self.fragment.to_table(columns=columns, schema=self.schema)
        return table.to_pandas(ignore_metadata=True)


def _check_columns(wanted: list[Any], columns: Any) -> None:
    if missing := [name for name in wanted if name not in columns]:
        raise ValueError(f"there is no column {missing[0]!r}")


def _files(data: Any, datasets: Any) -> list[_File]:
    """Return the files of a folder or of a dataset, those of Parquet by row groups, in order."""
    if isinstance(data, str | PathLike):
        dataset = datasets.dataset(data, partitioning="hive")
        natural = import_extra(NEEDED_BY, "dask.utils", extra=EXTRA).natural_sort_key
        fragments = sorted(dataset.get_fragments(), key=lambda file: natural(file.path))
    elif isinstance(data, datasets.Dataset):
        dataset, fragments = data, [*data.get_fragments()]
    else:
        raise TypeError(
            "data must be a Dask DataFrame, a folder of Parquet files or a pyarrow dataset, got "
            f"{data!r:.100}"
        )
    files = []
    for fragment in fragments:
        schema, stated = fragment.physical_schema, fragment.partition_expression
        for name in datasets.get_partition_keys(stated):
            schema = schema.append(dataset.schema.field(name))
        for name in (schema.pandas_metadata or {}).get("index_columns", ()):
            if name in schema.names:  # an index is no column
                schema = schema.remove(schema.get_field_index(name))
        by_group = hasattr(fragment, "split_by_row_group")
        groups = fragment.split_by_row_group() if by_group else [fragment]
        files += [_File(group, schema) for group in groups]
    return files


# -- columns of partitions -----------------------------------------------------------------------


def kinds_of(frame: Any) -> dict[Any, str]:
    """Return what the columns of a frame hold, in words, by name."""
    return {name: _kind(dtype) for name, dtype in nw.from_native(frame).schema.items()}


def _kind(dtype: Any) -> str:
    if dtype.is_numeric() or dtype == nw.Boolean:
        return "numbers"
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return "strings or categories"
    if dtype in (nw.Datetime, nw.Date):
        return "dates"
    return ANY if dtype in (nw.Object, nw.Unknown) else f"values of {dtype}"


def check_same(kinds: Mapping[int, Mapping[Any, str]]) -> None:
    """Raise unless partitions, by number, have the same columns, which hold the same."""
    first: dict[Any, tuple[int, str]] = {}
    start = min(kinds, default=0)
    for number, columns in sorted(kinds.items()):
        for one, other in ((number, start), (start, number)):
            if missing := kinds[other].keys() - kinds[one].keys():
                name = min(missing, key=str)
                raise ValueError(
                    f"partition {one} has no column {name!r}, which partition {other} has"
                )
        for name, kind in columns.items():
            earlier, expected = first.get(name, (number, kind))
            if ANY not in (kind, expected) and kind != expected:
                raise ValueError(
                    f"column {name!r} holds {kind} in partition {number}, and {expected} in "
                    f"partition {earlier}"
                )
            if expected == ANY or name not in first:
                first[name] = number, kind


# -- tasks -------------------------------------------------------------------------------------


def client_of_dask() -> Any:
    """Return the present client of a Dask cluster, or None."""
    try:
        return import_extra(NEEDED_BY, "distributed", extra=EXTRA).default_client()
    except ValueError:
        return None


def results_of(tasks: Tasks) -> Iterator[tuple[int, Any]]:
    """Yield the numbers of partitions and the results of their tasks, in any order.

    The workers of the present Dask client compute them, and repeat what a lost worker has not
    finished. Without a client, they are computed here, one after another. The first error ends the
    rest, and names its partition.
    """
    client = client_of_dask()
    if client is None:
        for number, task in tasks.items():
            with _naming(number):
                result = task.compute(scheduler="synchronous")
            yield number, result
        return
    futures = dict(zip(client.compute([*tasks.values()]), tasks, strict=True))
    completed = import_extra(NEEDED_BY, "distributed", extra=EXTRA).as_completed
    try:
        for future in completed([*futures]):
            with _naming(futures[future]):
                result = future.result()
            yield futures[future], result
    finally:
        client.cancel([*futures])


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """Name the partition in an error of the block."""
    try:
        yield
    except (OSError, TypeError, ValueError) as error:
        kind = next(k for k in (OSError, TypeError, ValueError) if isinstance(error, k))
        raise kind(f"partition {number}: {error}") from error
    except Exception as error:  # of a library, such as of a worker that is lost three times
        raise RuntimeError(f"partition {number}: {error!r}") from error
