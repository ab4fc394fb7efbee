"""Conversion of a raw table to the inputs of a graph, and encoding of the inputs in the graph.

The fitted encoder encodes a gap and every level once. The graph stores the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from .._data.column_spec import DAY, MONDAY, TURN, ColumnSpec
from .._data.columns import LEVEL_CONTENTS, Column
from .._data.names import free_name
from .._data.scaler import BOUND, SmoothClipScaler
from .._data.sparse_encoder import SparseEncoder
from .._data.table_encoder import TableEncoder
from .._data.tables import check_table
from .._estimators.base import NeighborEstimator
from .._utils.arrays import object_array
from .._utils.snapshots import snapshot

TABLE = "X"  # the name of a table of numbers
GAP = ""  # of strings
NAT = int(np.datetime64("NaT", "us").astype(np.int64))  # a gap of dates
#: Names of outputs, which inputs must not have.
OUTPUTS = ("prediction", "probabilities", "weights", "neighbors", "quantiles")

# -- inputs ------------------------------------------------------------------------------------


def onnx_inputs(estimator, X):
    """Convert a raw table to the inputs of a graph of :func:`export_onnx`.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or \
            SoftStepKNeighborsClassifier
        The fitted estimator that was exported.
    X : DataFrame or array-like of shape (n_queries, n_features)
        Queries, as for `predict`.

    Returns
    -------
    dict of str to ndarray
        Arrays by the names of the graph's inputs, as for ``session.run(None, inputs)``.

    Raises
    ------
    ValueError, TypeError
        If the estimator cannot be exported for its columns, or `X` is invalid.

    See Also
    --------
    export_onnx : Write the graph. Its page describes the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import nona_sklearn
    >>> flats = pd.DataFrame({"area": np.arange(40.0), "garage": ["yes", None] * 20})
    >>> knn = nona_sklearn.SoftStepKNeighborsRegressor(max_iter=2).fit(flats, flats["area"] / 2)
    >>> nona_sklearn.onnx_inputs(knn, flats[:2])
    {'area': array([[0.],
           [1.]]), 'garage': array([['yes'],
           ['']], dtype=object)}
    """
    fitted = exportable_snapshot(estimator)
    encoder = fitted.features_
    X = check_table(fitted, X, reset=False, contents=encoder.contents, accept_sparse=True)
    return input_values(encoder, encoder.read_validated(X))


def exportable_snapshot(estimator: Any) -> Any:
    """Return a snapshot of a fitted estimator, or raise unless its columns are encoded singly."""
    if not isinstance(estimator, NeighborEstimator):
        needed = "estimator must be one of nona_sklearn with a bank"
        raise TypeError(f"{needed}, got {estimator!r:.100}")
    check_is_fitted(estimator)
    fitted: Any = snapshot(estimator)
    if not hasattr(fitted, "features_"):
        raise ValueError(
            "feature_extractor must be None for an ONNX graph: export it by itself, and an "
            "estimator of its features"
        )
    if isinstance(fitted.features_, SparseEncoder):
        raise ValueError(
            "X must be dense in fit, or of few columns, for an ONNX graph: put a TruncatedSVD and "
            "a Normalizer before the estimator, and export them by themselves"
        )
    return fitted


def input_values(encoder: TableEncoder, columns: list[Column]) -> dict[str, np.ndarray]:
    """Return the arrays of the inputs for the columns of a table, by the inputs' names."""
    values = [
        kind_of(feature).given(feature, column)
        for feature, column in zip(encoder.features_, columns, strict=True)
    ]
    if takes_one_table(encoder):
        values = [np.hstack(values)]
    return dict(zip(input_names(encoder), values, strict=True))


def input_names(encoder: TableEncoder) -> list[str]:
    """Return the names of the inputs: one for a table of numbers, or one per column."""
    if takes_one_table(encoder):
        return [TABLE]
    names: list[str] = []
    for j, feature in enumerate(encoder.features_):
        name = feature.column.name
        name = name if isinstance(name, str) and name else f"x{j}"
        names.append(free_name(name, {*OUTPUTS, *names}, mark="_"))
    return names


def takes_one_table(encoder: TableEncoder) -> bool:
    """Return whether all columns are of numbers."""
    return all(kind_of(feature) is Numbers for feature in encoder.features_)


def kind_of(feature: ColumnSpec) -> Any:
    """Return the class that encodes a column, or raise for texts."""
    if feature.is_text:
        raise ValueError(
            f"text_features must be None for an ONNX graph, which has no vectoriser, got "
            f"{feature.column.label}: make numbers of its texts before the estimator"
        )
    if feature.is_category:
        return NumberedLevels if feature.holds == LEVEL_CONTENTS["numbers"] else Levels
    return Moments if feature.column.kind == "date" else Numbers


def text_of(level: Any) -> str:
    """Return a level as a string. An empty level, or one of quotes only, is put in quotes."""
    if level is None:
        return GAP
    text = str(level)
    return text if text.strip('"') else f'"{text}"'


# -- encoding ----------------------------------------------------------------------------------


class Encoding(nn.Module):
    """A fitted encoder as a module, from the inputs of a graph to (n, n_features_out).

    `names` and `takes` are the inputs' names, and their types and numbers of columns. Strings are
    passed as the numbers of levels: `texts` are the strings in the order of these numbers, and an
    unknown string has the next number.
    """

    order: Tensor

    def __init__(self, encoder: TableEncoder):
        super().__init__()
        kinds = [kind_of(feature) for feature in encoder.features_]
        numbers = [j for j, kind in enumerate(kinds) if kind is Numbers]
        rest = [j for j, kind in enumerate(kinds) if kind is not Numbers]
        parts = [kinds[j](encoder, j) for j in rest]
        self.names = input_names(encoder)
        self.takes = [(kind.dtype, 1) for kind in kinds]
        self.texts = {j: part.texts for j, part in zip(rest, parts, strict=True) if part.texts}
        self.columns = [[j] for j in rest]
        if numbers:  # one part encodes all columns of numbers
            parts.append(Numbers(encoder, numbers))
            self.columns.append(numbers)
        if takes_one_table(encoder):
            self.takes, self.columns = [(Numbers.dtype, len(numbers))], [[0]]
        self.parts = nn.ModuleList(parts)
        outputs = np.concatenate([part.outputs for part in parts])
        self.register_buffer("order", torch.from_numpy(outputs.argsort()))

    def forward(self, *inputs: Tensor) -> Tensor:
        encoded = [
            part(torch.cat([inputs[j] for j in columns], dim=1))
            for part, columns in zip(self.parts, self.columns, strict=True)
        ]
        return torch.cat(encoded, dim=1).index_select(1, self.order)  # without transposes

    def unknown_levels(self, *inputs: Tensor) -> Tensor:
        """Return which categories have a level that fit did not learn, bool (n, n_categories)."""
        unknown = [
            part.unknown[part.number(inputs[columns[0]])]
            for part, columns in zip(self.parts, self.columns, strict=True)
            if isinstance(part, Levels)
        ]
        return torch.stack(unknown, dim=1)


def _levels(encoder: TableEncoder, j: int) -> list[Any]:
    """Return the levels of a category, ordered or not, without the gap."""
    categories = [i for i, feature in enumerate(encoder.features_) if feature.is_category]
    stored = dict(zip(categories, encoder.stored_levels(), strict=False))
    if j not in stored:
        raise ValueError(
            f"{encoder.features_[j].column.label} holds categories, whose levels an estimator of "
            "version 0.2.0 has in a form that is not exported to ONNX: fit it anew"
        )
    return [level for level in stored[j] if level is not None]


def _gaps(encoder: TableEncoder, n_rows: int) -> list[Column]:
    """Return columns that contain gaps only."""
    gaps = np.full(n_rows, np.nan)
    return [Column(feature.column.name, "empty", gaps) for feature in encoder.features_]


def _gap(encoder: TableEncoder) -> np.ndarray:
    """Return the encoding of a row of gaps, (n_features_out,)."""
    return encoder.transform_columns(_gaps(encoder, 1))[0]


def _with_another(levels: list[Any]) -> np.ndarray:
    """Return a gap, the levels of a category, and a level that fit did not see."""
    unseen = "".join(map(str, levels)) + "?"  # longer than any level
    return object_array([None, *levels, unseen])


def _with_levels(encoder: TableEncoder, j: int, values: np.ndarray) -> np.ndarray:
    """Return encoded rows with `values` in column j and gaps in all further columns."""
    columns = _gaps(encoder, len(values))
    columns[j] = Column(columns[j].name, "category", values)
    # Removed levels and the unseen level are strings, even if the category holds numbers.
    of_any_type = snapshot(encoder)
    of_any_type.features_ = [replace(feature, holds="nothing") for feature in encoder.features_]
    return of_any_type.transform_columns(columns)


class Numbers(nn.Module):
    """Columns of numbers, (n, n_columns). Gaps are filled, and marked if fit had gaps."""

    dtype = torch.float64
    filled: Tensor
    marked: Tensor
    empty: Tensor

    def __init__(self, encoder: TableEncoder, columns: list[int]):
        super().__init__()
        outputs = [np.flatnonzero(encoder.source_ == j) for j in columns]
        marked = [i for i, of_column in enumerate(outputs) if len(of_column) > 1]
        values = [of_column[0] for of_column in outputs]
        marks = [outputs[i][1] for i in marked]
        self.outputs = np.array([*values, *marks])
        self.register_buffer("filled", torch.from_numpy(_gap(encoder)[values]))
        self.register_buffer("marked", torch.tensor(marked, dtype=torch.long))
        empty = [encoder.features_[j].column.kind == "empty" for j in columns]
        self.register_buffer("empty", torch.tensor(empty))  # values after fit are ignored

    @staticmethod
    def given(feature: ColumnSpec, column: Column) -> np.ndarray:
        """Return numbers, truth values, or durations in seconds, (n, 1), NaN for gaps."""
        return feature.numbers(column)

    def forward(self, x: Tensor) -> Tensor:
        missing = x.isnan() | self.empty
        marks = missing.index_select(1, self.marked).double()
        return torch.cat([torch.where(missing, self.filled, x), marks], dim=1)


class Levels(nn.Module):
    """A category, passed as numbers of levels, (n, 1). `table` has the levels' encodings."""

    dtype = torch.int64
    table: Tensor
    unknown: Tensor

    def __init__(self, encoder: TableEncoder, j: int):
        super().__init__()
        levels = _levels(encoder, j)
        self.texts = [text_of(level) for level in (None, *levels)]
        self.outputs = np.flatnonzero(encoder.source_ == j)
        values = _with_another(levels)
        table = _with_levels(encoder, j, values)[:, self.outputs]
        self.register_buffer("table", torch.from_numpy(table))
        self.register_buffer("unknown", torch.from_numpy(encoder.are_unknown(j, values)))

    @staticmethod
    def given(feature: ColumnSpec, column: Column) -> np.ndarray:
        """Return levels as strings, (n, 1)."""
        return object_array([text_of(level) for level in feature.categories(column)])[:, None]

    def number(self, x: Tensor) -> Tensor:
        """Return the numbers of the levels, (n,)."""
        return x[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        return self.table[self.number(x)]


class NumberedLevels(Levels):
    """A category with numbers as levels, (n, 1)."""

    dtype = torch.float64
    levels: Tensor

    def __init__(self, encoder: TableEncoder, j: int):
        super().__init__(encoder, j)
        self.texts, levels = [], _levels(encoder, j)
        if inexact := [level for level in levels if _is_inexact(level)]:
            raise ValueError(
                f"{encoder.features_[j].column.label} holds the category {inexact[0]!r}, which "
                "float64 does not represent: convert it to strings for an ONNX graph"
            )
        # A removed level is a string, and equals no number.
        numbers = [np.nan if isinstance(level, str) else float(level) for level in levels]
        self.register_buffer("levels", torch.tensor(numbers, dtype=torch.float64))

    @staticmethod
    def given(feature: ColumnSpec, column: Column) -> np.ndarray:
        """Return levels as numbers, (n, 1), NaN for gaps."""
        return feature.categories(column).astype(np.float64)[:, None]

    def number(self, x: Tensor) -> Tensor:
        missing = x.isnan()
        matches = [missing, x == self.levels, torch.ones_like(missing)]  # last: unseen
        return torch.cat(matches, dim=1).int().argmax(dim=1)


def _is_inexact(level: Any) -> bool:
    return not isinstance(level, str) and float(level) != level


# -- dates: calendar.py in integers and float64 ------------------------------------------------

DAY_LENGTH = int(DAY / np.timedelta64(1, "us"))
FIRST_MONDAY = int(MONDAY.astype(np.int64))


class Moments(nn.Module):
    """A column of dates, (n, 1) in microseconds since 1970, encoded as parts of the calendar."""

    dtype = torch.int64
    gap: Tensor

    def __init__(self, encoder: TableEncoder, j: int):
        super().__init__()
        self.texts: list[str] = []
        self.calendar = encoder.features_[j].parts
        self.outputs = np.flatnonzero(encoder.source_ == j)
        self.register_buffer("gap", torch.from_numpy(_gap(encoder)[self.outputs]))

    @staticmethod
    def given(feature: ColumnSpec, column: Column) -> np.ndarray:
        """Return microseconds since 1970 in the local time of the column, (n, 1)."""
        moments = feature.as_in_fit(column).values.astype("datetime64[us]")
        return moments.astype(np.int64)[:, None]

    def forward(self, moment: Tensor) -> Tensor:
        missing = moment == NAT
        present = moment.masked_fill(missing, 0)
        parts = torch.cat(calendar_parts(self.calendar, present), dim=1)
        mark = F.pad(parts, (0, len(self.gap) - len(self.calendar)))  # 0: it is not missing
        return torch.where(missing, self.gap, mark)


def _days(moment: Tensor) -> Tensor:
    return (moment - FIRST_MONDAY).double() / DAY_LENGTH


def _year(moment: Tensor) -> Tensor:
    # A graph divides integers in float32. This quotient is whole, so that rounding is exact.
    day = ((moment - moment.remainder(DAY_LENGTH)).double() / DAY_LENGTH).round()
    year = 1970 + (day * 400 / 146_097).floor()  # a guess from years of equal length
    year = year - (_first_day(year) > day).double()
    return year + (_first_day(year + 1) <= day).double()


def _first_day(year: Tensor) -> Tensor:
    """Return the days from 1970 to the first of January of a year."""
    last = year - 1
    leap_days = (last / 4).floor() - (last / 100).floor() + (last / 400).floor()
    return 365 * (year - 1970) + leap_days - 477  # leap days until 1969


def _position_in_year(moment: Tensor) -> Tensor:
    year = _year(moment)
    start = _first_day(year).long() * DAY_LENGTH
    end = _first_day(year + 1).long() * DAY_LENGTH
    return (moment - start).double() / (end - start).double()


NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {"year": _year, "days": _days}
CIRCLES: dict[str, Callable[[Tensor], Tensor]] = {
    "year": _position_in_year,
    "week": lambda moment: _days(moment) / 7,
    "day": _days,
}


def calendar_parts(names: Sequence[str], moment: Tensor) -> list[Tensor]:
    """Return parts of the calendar with names of CALENDAR, of microseconds since 1970."""
    waves = [name.split("_") for name in names if name not in NUMBERS]
    angles = {circle: TURN * CIRCLES[circle](moment) for circle, _ in waves}
    numbers = [NUMBERS[name](moment) for name in names if name in NUMBERS]  # numbers come first
    return numbers + [getattr(torch, wave)(angles[circle]) for circle, wave in waves]


# -- scaling -----------------------------------------------------------------------------------


MAX_SCALED = 1e100  # the square of a scaled number is in float64's range


class NormalScores(nn.Module):
    """Normal scores of skewed columns, interpolated between quantiles. The rest is unchanged."""

    quantiles: Tensor
    widths: Tensor
    rises: Tensor
    first: Tensor
    skewed: Tensor

    def __init__(self, scaler: SmoothClipScaler):
        super().__init__()
        quantiles, scores = torch.as_tensor(scaler.quantiles_), torch.as_tensor(scaler.scores_)
        widths = quantiles.diff(dim=0)
        self.register_buffer("quantiles", quantiles[:-1])
        self.register_buffer("widths", torch.where(widths > 0, widths, 1.0))  # no rise there
        self.register_buffer("rises", scores.diff(dim=0))
        self.register_buffer("first", scores[0])
        self.register_buffer("skewed", torch.as_tensor(scaler.skewed_))

    def forward(self, X: Tensor) -> Tensor:
        skewed = X.index_select(1, self.skewed)[:, None]  # (n, 1, skewed)
        above = (skewed - self.quantiles) / self.widths  # (n, quantiles, skewed)
        scores = self.first + (above.clamp(0, 1) * self.rises).sum(dim=1)
        return X.index_copy(1, self.skewed, scores)


class Scaling(nn.Module):
    """A fitted scaler, with results rounded to float32 as for an embedding."""

    center: Tensor
    scale: Tensor
    bound: Tensor

    def __init__(self, scaler: SmoothClipScaler | StandardScaler, n_features: int):
        super().__init__()
        self.clips = isinstance(scaler, SmoothClipScaler)
        self.scores = NormalScores(scaler) if self.clips and len(scaler.skewed_) else None
        center = scaler.center_ if self.clips else scaler.mean_ if scaler.with_mean else None
        zeros, ones = torch.zeros(n_features).double(), torch.ones(n_features).double()
        self.register_buffer("center", zeros if center is None else torch.as_tensor(center))
        scale = scaler.scale_
        self.register_buffer("scale", ones if scale is None else torch.as_tensor(scale))
        # As a tensor: a plain number would overflow to infinity, as a float32 in the graph.
        self.register_buffer("bound", torch.tensor(MAX_SCALED, dtype=torch.float64))

    def forward(self, X: Tensor) -> Tensor:
        X = X if self.scores is None else self.scores(X)
        scaled = ((X - self.center) / self.scale).clamp(-self.bound, self.bound)
        if self.clips:  # a graph has no hypot
            scaled = scaled / (1 + (scaled / BOUND).square()).sqrt()
        return scaled.float().double()
