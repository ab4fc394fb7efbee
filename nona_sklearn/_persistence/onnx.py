"""Export of a fitted estimator as one ONNX graph. Only this file needs onnx.

:class:`Encoding` encodes the columns of a table. :class:`Graph` computes a prediction by formulas
in torch, over all rows of the bank and in float64, and torch translates them.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import is_regressor
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from .._data.column_spec import DAY, MONDAY, TURN, ColumnSpec
from .._data.columns import LEVEL_CONTENTS, Column
from .._data.source import BOUND, SmoothClipScaler, SparseEncoder
from .._data.table_encoding import FORGOTTEN, TableEncoding
from .._data.tables import check_table
from .._estimators.base import NeighborEstimator
from .._inference.distribution import Calibration, Distribution
from .._inference.evaluation import WeightedRows
from .._utils.files import as_path, destination, put_in_place
from .._utils.tables import free_name
from .._utils.threads import snapshot
from .._utils.validation import (
    check_choice,
    check_flag,
    check_levels,
    check_n_neighbors,
    import_extra,
    object_array,
)
from ..attention.functional import attenuation
from ..attention.head import ClassHead, NONAHead
from ..attention.prediction import ClassRows, compare_all, rows_of
from ..losses import log
from ..weighting import Sigmoid, Softplus, Triangular, Weighting
from ..weighting.base import FAINT, clamped_log1p_exp, faint_log_softplus, nearest_only
from .file import refuse_model_trend

if TYPE_CHECKING:
    from .._data.table_encoder import TableEncoder
    from .._inference.bank import NeighborBank
    from .._network.network import NeighborNetwork

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
    encoding = TableEncoding.of(fitted.features_)
    X = check_table(fitted, X, reset=False, contents=encoding.contents, accept_sparse=True)
    return input_values(fitted.features_, encoding.read(X))


def onnx_bank(estimator):
    """Return the bank as inputs of a graph that :func:`export_onnx` wrote with ``bank='input'``.

    A graph takes the bank after any number of `add_neighbors`, `remove_neighbors` and `compress`.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or \
            SoftStepKNeighborsClassifier
        The fitted estimator that was exported, perhaps edited since.

    Returns
    -------
    dict of str to ndarray
        Arrays by the names of the graph's inputs: embeddings, targets, weights and ids of the
        rows, what a trend has of them, and the encodings of the levels that rows have. The names
        begin with ``bank.``.

    Raises
    ------
    ValueError, TypeError
        If the estimator cannot be exported with its bank as an input, or its bank has fewer rows
        than can have weight at a time.

    See Also
    --------
    export_onnx : Write the graph.
    onnx_inputs : The remaining inputs, for a raw table.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import onnxruntime
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, export_onnx, onnx_bank, onnx_inputs
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> path = Path(tempfile.mkdtemp(), "price.onnx")
    >>> export_onnx(knn.fit(X, y), path, bank="input")
    >>> session = onnxruntime.InferenceSession(path)
    >>> ids = knn.add_neighbors([[85]], [430])
    >>> prediction, *_ = session.run(None, onnx_inputs(knn, [[84]]) | onnx_bank(knn))
    >>> prediction.round(), knn.predict([[84]]).round()
    (array([415.]), array([415.]))
    """
    fitted = exportable_snapshot(estimator)
    refuse_other_heads(fitted)
    graph, columns = Graph(fitted, 1, takes_bank=True), input_names(fitted.features_)
    least, n_rows = graph.networks.least_rows, len(fitted.bank_)
    if n_rows < least:
        raise ValueError(f"the bank must have {least} rows for an ONNX graph, got {n_rows}")
    names = bank_names(graph, columns)
    # Copies in the order of C, which files and other programs expect.
    buffers = (part.clone(memory_format=torch.contiguous_format) for part in graph.bank.values())
    return {name: buffer.numpy() for name, buffer in zip(names, buffers, strict=True)}


def bank_names(graph: Graph, columns: list[str]) -> list[str]:
    """Return the names of a graph's inputs for the bank, beside those of the columns."""
    names = ["bank." + name.removeprefix("networks.") for name in graph.bank]
    return [free_name(name, {*columns}, mark="_") for name in names]


def refuse_other_heads(fitted: Any) -> None:
    """Raise if weights or a trend are of a kind that no graph computes."""
    refuse_model_trend(fitted, "an ONNX graph", "use trend='kernel' or None")
    head = fitted.bank_.evaluate(fitted.network_.head).one_head
    if not (head.weighting.one_by_one or isinstance(head.weighting, Triangular)):
        raise ValueError(
            "weighting must look at one neighbour at a time for an ONNX graph, got "
            f"{fitted.weighting!r}"
        )
    is_on_ranks = head.step is not None and head.step.on == "rank"
    if is_on_ranks and head.most_weighed(len(fitted.bank_)) is None:
        raise ValueError(
            "softstep must act on similarities for an ONNX graph, or weights end after some "
            f"number of rows, set by n_neighbors, got {fitted.softstep!r}, which acts on ranks"
        )


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
    if TableEncoding.of(fitted.features_).pair is not None:
        raise ValueError(
            "places must be None for an ONNX graph: put a TableEncoder with places before the "
            f"estimator, and export an estimator of its columns, got {fitted.features_.places!r}"
        )
    if fitted.bank_.rule is not None:
        raise ValueError(
            "eligibility must be None in fit for an ONNX graph, where all rows are neighbours, "
            f"got {fitted.bank_.rule.rule!r}"
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
    if feature.is_ignored:
        raise ValueError(
            f"ignored_features must be None for an ONNX graph, got {feature.column.label}: drop "
            "the column before the estimator"
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
        self.order = torch.from_numpy(np.concatenate([part.outputs for part in parts]).argsort())

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
    stored = dict(zip(categories, TableEncoding.of(encoder).stored_levels(), strict=False))
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
    return TableEncoding.of(encoder).encode(_gaps(encoder, 1))[0]


class Numbers(nn.Module):
    """Columns of numbers, (n, n_columns). Gaps are filled, and marked if fit had gaps."""

    dtype = torch.float64

    def __init__(self, encoder: TableEncoder, columns: list[int]):
        super().__init__()
        outputs = [np.flatnonzero(encoder.source_ == j) for j in columns]
        marked = [i for i, of_column in enumerate(outputs) if len(of_column) > 1]
        values = [of_column[0] for of_column in outputs]
        marks = [outputs[i][1] for i in marked]
        self.outputs = np.array([*values, *marks])
        self.filled = torch.from_numpy(_gap(encoder)[values])
        self.marked = torch.tensor(marked, dtype=torch.long)
        empty = [encoder.features_[j].column.kind == "empty" for j in columns]
        self.empty = torch.tensor(empty)  # values after fit are ignored

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
    edited = "table", "unknown"
    table: Tensor
    unknown: Tensor

    def __init__(self, encoder: TableEncoder, j: int):
        super().__init__()
        levels = _levels(encoder, j)
        self.texts = [text_of(level) for level in (None, *levels)]
        self.outputs = np.flatnonzero(encoder.source_ == j)
        unseen = "".join(map(str, levels)) + "?"  # longer than any level
        values = object_array([None, *levels, unseen])
        columns = _gaps(encoder, len(values))
        columns[j] = Column(columns[j].name, "category", values)
        # Removed levels and the unseen level are strings, even if the category holds numbers.
        encoding = TableEncoding.of(encoder)
        of_any_type = [replace(spec, holds="nothing") for spec in encoding.specs]
        table = replace(encoding, specs=of_any_type).encode(columns)[:, self.outputs]
        unknown = encoding.are_unknown(j, values)
        codes = range(len(values))
        gone = np.isin(values.astype(str), [FORGOTTEN.format(code) for code in codes])
        table[gone], unknown[gone] = table[-1], True  # an earlier graph still numbers them
        self.register_buffer("table", torch.from_numpy(table))
        self.register_buffer("unknown", torch.from_numpy(unknown))

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

    def __init__(self, encoder: TableEncoder, j: int):
        super().__init__(encoder, j)
        self.texts, levels = [], _levels(encoder, j)
        for level in levels:
            if not isinstance(level, str) and float(level) != level:
                raise ValueError(
                    f"{encoder.features_[j].column.label} holds the category {level!r}, which "
                    "float64 does not represent: convert it to strings for an ONNX graph"
                )
        # A removed level is a string, and equals no number.
        numbers = [np.nan if isinstance(level, str) else float(level) for level in levels]
        self.levels = torch.tensor(numbers, dtype=torch.float64)

    @staticmethod
    def given(feature: ColumnSpec, column: Column) -> np.ndarray:
        """Return levels as numbers, (n, 1), NaN for gaps."""
        return feature.categories(column).astype(np.float64)[:, None]

    def number(self, x: Tensor) -> Tensor:
        missing = x.isnan()
        matches = [missing, x == self.levels, torch.ones_like(missing)]  # last: unseen
        return torch.cat(matches, dim=1).int().argmax(dim=1)


# -- dates: calendar.py in integers and float64 ------------------------------------------------

DAY_LENGTH = int(DAY / np.timedelta64(1, "us"))
FIRST_MONDAY = int(MONDAY.astype(np.int64))


class Moments(nn.Module):
    """A column of dates, (n, 1) in microseconds since 1970, encoded as parts of the calendar."""

    dtype = torch.int64

    def __init__(self, encoder: TableEncoder, j: int):
        super().__init__()
        self.texts: list[str] = []
        self.calendar = encoder.features_[j].parts
        self.outputs = np.flatnonzero(encoder.source_ == j)
        self.gap = torch.from_numpy(_gap(encoder)[self.outputs])

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


class Scaling(nn.Module):
    """A fitted scaler, with results rounded to float32 as for an embedding."""

    def __init__(self, scaler: SmoothClipScaler | StandardScaler, n_features: int):
        super().__init__()
        self.clips = isinstance(scaler, SmoothClipScaler)
        center = scaler.center_ if self.clips else scaler.mean_ if scaler.with_mean else None
        zeros, ones = torch.zeros(n_features).double(), torch.ones(n_features).double()
        self.center = zeros if center is None else torch.as_tensor(center)
        self.scale = ones if scaler.scale_ is None else torch.as_tensor(scaler.scale_)
        # As a tensor: a plain number would overflow to infinity, as a float32 in the graph.
        self.bound = torch.tensor(MAX_SCALED, dtype=torch.float64)
        self.skewed = torch.as_tensor(scaler.skewed_) if self.clips else torch.arange(0)
        if len(self.skewed):
            quantiles, scores = torch.as_tensor(scaler.quantiles_), torch.as_tensor(scaler.scores_)
            widths = quantiles.diff(dim=0)
            self.quantiles, self.first = quantiles[:-1], scores[0]
            self.widths = torch.where(widths > 0, widths, 1.0)  # no rise there
            self.rises = scores.diff(dim=0)

    def forward(self, X: Tensor) -> Tensor:
        if len(self.skewed):  # normal scores, interpolated between quantiles
            skewed = X.index_select(1, self.skewed)[:, None]  # (n, 1, skewed)
            above = (skewed - self.quantiles) / self.widths  # (n, quantiles, skewed)
            scores = self.first + (above.clamp(0, 1) * self.rises).sum(dim=1)
            X = X.index_copy(1, self.skewed, scores)
        scaled = ((X - self.center) / self.scale).clamp(-self.bound, self.bound)
        if self.clips:  # a graph has no hypot
            scaled = scaled / (1 + (scaled / BOUND).square()).sqrt()
        return scaled.float().double()


SAMPLE = 3  # rows with which the graph is traced; its input may have any number of rows
ALL = -1  # rows are ranked: those that can have weight are a share of them
EQUAL = 2.0**-23  # share of a query's length: rows at smaller distances are equal in float32


def export_onnx(
    estimator: Any,
    path: Any,
    *,
    n_neighbors: int = 5,
    quantiles: Any = None,
    bank: str = "constant",
    overwrite: bool = False,
) -> None:
    """Write a fitted estimator as an ONNX graph: encoder, embedding, bank, head and adjustment.

    The input is a raw table of any number of queries. After a fit to numbers only (booleans,
    durations and empty columns included), the graph has one input ``X``, (n_queries, n_features),
    float64 with NaN for missing values. Otherwise every column is an input, (n_queries, 1), with
    the column's name, or ``x0`` and so on for arrays. An underscore follows if an output has the
    same name. :func:`onnx_inputs` converts a table to the inputs.

    ==========================  ===================================  =========================
    column                      input                                missing value
    ==========================  ===================================  =========================
    number, boolean             float64                              NaN
    duration                    float64, seconds                     NaN
    category of strings         string                               ``""``
    category of numbers         float64                              NaN
    category of intervals       string, as ``str`` writes it         ``""``
    date                        int64, microseconds since 1970 in    the least int64, as NumPy's
                                the local time of the column         NaT
    strings read as numbers or  as these
    dates
    ==========================  ===================================  =========================

    A category that consists of quotes, or is the empty string, is passed in quotes.

    The first output is ``prediction``, (n_queries,) or (n_queries, n_outputs). For a classifier,
    it is ``probabilities``, (n_queries, n_classes), with several outputs side by side. The further
    outputs are ``weights``, the largest weights, (n_queries, n_neighbors); ``neighbors``, the ids
    of the rows with these weights; and ``quantiles``, if `quantiles` are given.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or \
            SoftStepKNeighborsClassifier
        A fitted estimator, without a feature extractor or `text_features`. Its weights depend on
        one neighbour at a time, or are 0 after a number of nearest rows (`n_neighbors`,
        'sparse_softmax', or 's1' on ranks with global parameters). The weightings 'sparsemax',
        'entmax' and 'preconditioned', and further steps on ranks, are not allowed.
    path : str or path-like
        The file to write. It is either complete or not written.
    n_neighbors : int, default=5
        Number of neighbours in the outputs ``weights`` and ``neighbors``.
    quantiles : float or array-like of shape (n_quantiles,), default=None
        For a regressor, probabilities from 0 to below 1. The graph then has an output
        ``quantiles``, (n_queries, n_quantiles) or (n_queries, n_quantiles, n_outputs), with the
        results of `predict_quantiles`. None: no such output.
    bank : {'constant', 'input'}, default='constant'
        Whether the bank is part of the graph, or given at each run as further inputs, which
        :func:`onnx_bank` returns. After an edit, the same graph then takes the new bank, of at
        least `n_neighbors` rows, and contains no row. It keeps the names of all levels of fit.
    overwrite : bool, default=False
        Whether to replace an existing file.

    Raises
    ------
    ImportError
        If onnx or onnxscript is not installed.
    ValueError, TypeError
        If the estimator or one of its columns cannot be exported, its bank has fewer rows than
        `n_neighbors`, or `quantiles` are not from 0 to below 1, or given with a classifier.
    FileExistsError, OSError
        If `path` exists and `overwrite` is False, or if the file cannot be written. An existing
        file is then not changed.

    See Also
    --------
    onnx_inputs : The inputs of the graph for a raw table.
    onnx_bank : The inputs of the graph for the bank.

    Notes
    -----
    The function needs the extra ``onnx``. The graph keeps queries × bank in memory. Therefore,
    pass a few thousand queries at a time, or a few hundred with quantiles. Results equal the
    estimator's up to float32. After a fit, new targets or a new calibration, export the estimator
    again; after an edit, too, unless the bank is an input. A quantile of level 1 of a distribution
    with noise depends on rounding, which differs. The graph treats all queries as later than the
    bank, even if a column contains their times.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import onnxruntime
    >>> from nona_sklearn import SoftStepKNeighborsRegressor, export_onnx
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> path = Path(tempfile.mkdtemp(), "price.onnx")
    >>> export_onnx(knn.fit(X, y), path)
    >>> session = onnxruntime.InferenceSession(path)
    >>> prediction, weights, neighbors = session.run(None, {"X": np.array([[84.0]])})
    >>> prediction.round(), neighbors[:, :2]
    (array([425.]...), array([[2, 3]]...))
    """
    path = as_path("path", path)
    check_flag("overwrite", overwrite)
    check_choice("bank", bank, ("constant", "input"))
    fitted = exportable_snapshot(estimator)
    check_n_neighbors(n_neighbors, len(fitted.bank_))
    levels = None if quantiles is None else check_levels(quantiles)
    if levels is not None and not is_regressor(fitted):
        raise ValueError(f"quantiles must be None for a classifier, got {quantiles!r:.100}")
    if levels is not None and bool((levels == 1).any()):
        raise ValueError(
            f"quantiles must be below 1 for an ONNX graph, got {quantiles!r:.100}: the largest "
            "value of a distribution depends on rounding"
        )
    refuse_other_heads(fitted)
    import_extra("export_onnx", "onnx", "onnxscript", extra="onnx")
    graph = Graph(fitted, int(n_neighbors), levels, bank == "input").eval()
    with put_in_place(destination(path, overwrite)) as beside:
        to_onnx(graph, graph.encoding, graph.output_names).save(beside)


def to_onnx(graph: nn.Module, encoding: Encoding, output_names: list[str]) -> Any:
    """Return the ONNX program of a module, for any number of queries in the encoding's form.

    The buffers in its `bank`, if it has any, are inputs after the columns, of any number of rows.
    """
    samples = tuple(torch.zeros(SAMPLE, width, dtype=dtype) for dtype, width in encoding.takes)
    names, n_queries = encoding.names, {0: torch.export.Dim("n_queries")}
    traced: list[Any] = [n_queries for _ in samples]
    named = [*traced]
    if isinstance(graph, Graph) and graph.bank:
        bank, names = graph.bank, names + bank_names(graph, names)
        graph = WithBank(graph)
        samples += tuple(buffer.clone() for buffer in bank.values())  # else they are the buffers
        for name in bank:
            owner, _, buffer = name.rpartition(".")
            traced.append({0: torch.export.Dim.DYNAMIC} if buffer in OF_ROWS else None)
            number = f"n_rows_of_bank{owner.removeprefix('networks')}"
            named.append({0: number} if buffer in OF_ROWS else None)
    with _quiet():
        program = torch.export.export(
            graph, samples, dynamic_shapes=(tuple(traced),), strict=False
        )
        translated = torch.onnx.export(
            program.run_decompositions(GRAPH_OPERATIONS),
            output_names=output_names,
            dynamic_shapes=(tuple(named),),
            custom_translation_table={torch.ops.aten.scalar_tensor.default: _exact_scalar},
            dynamo=True,
            verbose=False,
        )
    assert translated is not None
    _set_inputs(translated.model.graph, names, encoding.texts)
    return translated


# -- predictions ---------------------------------------------------------------------------------


class Graph(nn.Module):
    """A fitted estimator as a module, from columns of queries to predictions and neighbours.

    If it `takes_bank`, the buffers in `bank` are all that edits change.
    """

    def __init__(
        self,
        estimator: Any,
        n_neighbors: int,
        levels: Tensor | None = None,
        takes_bank: bool = False,
    ):
        super().__init__()
        bank = estimator.bank_
        self.encoding = Encoding(estimator.features_)
        self.scaler = Scaling(estimator.scaler_, len(estimator.features_.source_))
        self.networks = Networks(estimator.network_, bank, takes_bank)
        self.n_neighbors, self.levels = n_neighbors, levels
        self.output_names = [
            "probabilities" if hasattr(estimator, "classes_") else "prediction",
            *("weights", "neighbors"),
            *(() if levels is None else ("quantiles",)),
        ]
        self.networks.register_buffer("ids", bank.ids.cpu())
        self.unknown_levels = bank.unknown_levels
        self.has_one_output = bank.targets.ndim == 1
        evaluation = bank.evaluate(estimator.network_.head)
        self.distribution = Distribution(evaluation, bank.calibration or Calibration())
        self.bank: dict[str, Tensor] = {}
        for path, module in self.named_modules() if takes_bank else ():
            for name in getattr(module, "edited", ()):
                if (buffer := getattr(module, name, None)) is not None:
                    self.bank[f"{path}.{name}"] = buffer

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        features, added = self.scaler(self.encoding(*inputs)), None
        if self.unknown_levels is not None:
            added = self.unknown_levels.added(self.encoding.unknown_levels(*inputs))
        rows = self.networks(features, added)
        largest, positions = rows.weights().topk(self.n_neighbors, dim=1)
        outputs = [rows.mean(), largest, self.networks.ids[positions]]
        if self.levels is not None:
            distribution = snapshot(self.distribution)
            distribution.evaluation = replace(distribution.evaluation, added=added)
            quantiles = [output.ppf(self.levels) for output in distribution.of_outputs(rows)]
            outputs.append(distribution.head.possible(torch.stack(quantiles, dim=2)))
        if self.has_one_output and self.output_names[0] == "prediction":
            outputs[0] = outputs[0].squeeze(-1)
            outputs[3:] = [quantiles.squeeze(-1) for quantiles in outputs[3:]]
        return tuple(outputs)


class WithBank(nn.Module):
    """A graph as a module from columns of queries, and then the buffers in its bank."""

    def __init__(self, graph: Graph):
        super().__init__()
        self.model = graph  # torch reserves the name graph

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        n_columns = len(inputs) - len(self.model.bank)
        bank = dict(zip(self.model.bank, inputs[n_columns:], strict=True))
        columns = inputs[:n_columns]
        return torch.func.functional_call(self.model, bank, columns, tie_weights=False)


class Networks(nn.Module):
    """Networks and their bank as a module, from scaled features to the weighted rows.

    The formulas are those of :class:`CandidateRows` and of the heads. What would branch there on
    numbers is set beforehand: a graph takes all rows of the bank, none of which is excluded.
    """

    edited = "ids", "neighbors", "values", "log_prior", "trend_values", "adjustment_scale"
    ids: Tensor
    neighbors: Tensor
    values: Tensor
    log_prior: Tensor | None
    trend_values: Tensor
    adjustment_scale: Tensor | None

    def __init__(self, network: NeighborNetwork, bank: NeighborBank, takes_bank: bool = False):
        super().__init__()
        network, neighbors = copy.deepcopy(network).cpu(), bank.neighbors
        self.embedding, self.head = network.embedding, network.head.double()
        self.register_buffer("neighbors", bank.embeddings.cpu().double())
        self.steps = nn.ModuleList()  # on similarities, of which they need all
        self.most: list[int | None] = []  # nearest rows that are all that can have weight
        for head, _, _ in self.head.split_by_head(self.neighbors, self.neighbors):
            if head.step is not None:
                head.step.float()  # thresholds have the precision of the fit
                if head.step.on == "similarity":
                    self.steps.append(head.step)
                    head.step = None
            if not takes_bank:
                self.most.append(head.most_weighed(len(bank)))
            elif head.counts_admitted and head.max_neighbors is None:  # a share of all
                self.most.append(ALL)
            else:
                self.most.append(head.most_weighed(sys.maxsize))
            if head.weighting.one_by_one:
                vars(head.weighting)["weigh"] = partial(weigh, head.weighting)
        prior, scale, offset = neighbors.log_prior, neighbors.adjustment_scale, neighbors.offset
        self.offset = offset
        self.register_buffer("values", neighbors.columns.cpu())
        if prior is None and takes_bank:  # rows with weights may be added
            prior = torch.zeros(len(bank))
        self.register_buffer("log_prior", None if prior is None else prior.cpu().double())
        scale = None if scale is None else torch.as_tensor(scale).cpu()
        self.register_buffer("adjustment_scale", scale)
        self.register_buffer("trend_values", None if offset is None else offset.values[:].cpu())
        trend: Any = bank.trend
        if trend is None or offset is None:
            self.trend: nn.Module | None = None
        elif trend.networks is None:
            self.trend = copy.deepcopy(trend.function).cpu()
        else:
            networks, rows = trend.networks
            self.trend = Networks(networks, rows.sources or rows, takes_bank)

    @property
    def least_rows(self) -> int:
        """Return how many rows a bank must have that is an input."""
        of_trend = self.trend.least_rows if isinstance(self.trend, Networks) else 2
        return max(of_trend, *(most or 0 for most in self.most))

    def forward(self, features: Tensor, added: Tensor | None = None) -> WeightedRows:
        features = features.float()  # rounded like the bank's features
        query, trend = self.embedding(features.double()).float().double(), None
        if self.trend is not None:
            trend = self.trend(features)
            if isinstance(trend, WeightedRows):
                means = trend.mean()
                is_of_classes = isinstance(trend.networks[0].head, ClassHead)
                trend = log(means) if is_of_classes else means
        offset = self.offset and replace(self.offset, values=self.trend_values)
        networks = []
        for i, (head, z, neighbors) in enumerate(self.head.split_by_head(query, self.neighbors)):
            candidates = compare_all(head, z, neighbors, None, by_l2=True)
            options = self.log_prior, self.adjustment_scale, offset, trend
            rows = rows_of(head, z, neighbors, self.values, candidates, *options, added=added)
            rows.any_excluded = False
            step = self.steps[i] if self.steps else None
            rows.weights = self._weights(head, step, self.most[i], candidates.similarity, z)
            if rows.adjustment_scale is not None:
                rows.attenuation = attenuation(rows.distance, head.trust_radius)
            elif isinstance(rows, ClassRows):
                rows.odds = self.values.new_ones(1)  # one for each query would fix their number
            if offset is not None:
                rows.trend_share = offset.share_at(rows.distance)
            networks.append(rows)
        return WeightedRows(networks, slice(None))

    def _weights(
        self, head: NONAHead, step: Any, most: int | None, similarity: Tensor, query: Tensor
    ) -> Tensor:
        """Return the weights of all rows, (q, n), by those that can have weight."""
        query, log_prior = head.metric_part(query), self.log_prior
        n_rows = self.neighbors.shape[0]
        if step is not None:
            log_step = step(similarity, query)
            log_prior = log_step if log_prior is None else log_step + log_prior
        if most is None:
            return head.weigh(similarity, query, query, log_prior=log_prior)  # of single rows
        nearest, positions = similarity.topk(n_rows if most == ALL else most, dim=1)
        nearest = nearest.float().double()  # rounded as in an index: ranks depend on ties
        if log_prior is not None:
            log_prior = log_prior.expand_as(similarity).gather(1, positions)
        n_admitted = torch.full_like(positions[:, :1], n_rows)
        weights = head.weigh(nearest, query, query, None, log_prior, n_admitted)
        return torch.zeros_like(similarity).scatter(1, positions, weights)


#: Of the buffers that edits change, those of any length.
OF_ROWS = {"ids", "neighbors", "values", "log_prior", "trend_values", "rows", "a"}


def weigh(
    weighting: Weighting, s: Tensor, log_measure: Tensor | None = None, between: Any = None
) -> Tensor:
    """Return :meth:`Weighting.weigh`, where all rows are admitted, so that one has weight."""
    nearest = s.amax(dim=1, keepdim=True)
    logits = log_weight(weighting, s, nearest)
    if weighting.needs_nearest:
        lost = log_weight(weighting, nearest, nearest) == -torch.inf
        logits = torch.where(lost, nearest_only(s, nearest), logits)
    return (logits if log_measure is None else logits + log_measure).softmax(dim=1)


def log_weight(weighting: Weighting, s: Tensor, nearest: Tensor) -> Tensor:
    """Return logarithms of weights, (q, n), without the branches of two weightings."""
    if type(weighting) is Sigmoid:
        return -clamped_log1p_exp(-s - weighting.bias)
    if type(weighting) is Softplus:
        x = s + weighting.bias
        # A graph has log(1 + u) without log1p, which loses the digits of a small u.
        softplus = clamped_log1p_exp(x.clamp_min(-FAINT))
        log_softplus = torch.where(x < -FAINT, faint_log_softplus(x), softplus.log())
        return weighting.log_power.exp() * log_softplus
    return weighting.log_weight(s, nearest)


# -- operations that a graph lacks -------------------------------------------------------------


def graph_cdist(query: Tensor, neighbors: Tensor, p: float, compute_mode: int = 0) -> Tensor:
    """Return :func:`torch.cdist` of float64. Its expanded square gives equal rows distance 0."""
    if p != 2:
        return torch.linalg.vector_norm(query[:, None] - neighbors, ord=p, dim=2)
    squares = query.square().sum(dim=1, keepdim=True)  # (q, 1)
    squared = squares - 2 * query @ neighbors.mT + neighbors.square().sum(dim=1)  # (q, n)
    return squared.masked_fill(squared <= EQUAL**2 * squares, 0.0).sqrt()


def graph_matmul(left: Tensor, right: Tensor) -> Tensor:
    """Return :func:`torch.matmul` as a Gemm: onnxruntime 1.22 transposes float64 there alone."""
    if left.ndim == right.ndim == 2:
        return torch.addmm(torch.zeros((), dtype=left.dtype), left, right)
    return NotImplemented


def graph_searchsorted(ordered: Tensor, values: Tensor, **options: object) -> Tensor:
    """Return :func:`torch.searchsorted` from the left: the number of smaller ordered values."""
    return (ordered[:, None] < values[:, :, None]).sum(dim=2)


def graph_argsort(x: Tensor, *, dim: int, descending: bool, **options: object) -> Tensor:
    """Return :func:`torch.argsort`. A graph takes the largest of equal values in their order."""
    return x.topk(x.shape[dim], dim=dim, largest=descending).indices


def graph_cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return :func:`torch.cummax` of zeros between ascending numbers, without the positions."""
    step = (x > 0).cumsum(dim=1)
    best = torch.zeros_like(x).scatter_reduce(1, step, x, "amax").gather(1, step)
    return best, torch.zeros_like(best)


def graph_clamp_min(x: Tensor, least: float) -> Tensor:
    """Return :func:`torch.clamp_min`. Torch's translation rounds the bound to float32."""
    return torch.maximum(x, torch.scalar_tensor(least, dtype=x.dtype))


def graph_cos(x: Tensor) -> Tensor:
    """Return :func:`torch.cos`, which onnxruntime 1.22 has in float32 only. x / 2 is exact."""
    return 1 - 2 * (x / 2).sin().square()


def graph_asinh(x: Tensor) -> Tensor:
    """Return :func:`torch.asinh`, which onnxruntime has in float32 only."""
    size = x.abs()
    return x.sign() * (size + (size.square() + 1).sqrt()).log()


GRAPH_OPERATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.cdist.default: graph_cdist,
    torch.ops.aten.matmul.default: graph_matmul,
    torch.ops.aten.searchsorted.Tensor: graph_searchsorted,
    torch.ops.aten.argsort.stable: graph_argsort,
    torch.ops.aten.cummax.default: graph_cummax,
    torch.ops.aten.clamp_min.default: graph_clamp_min,
    torch.ops.aten.cos.default: graph_cos,
    torch.ops.aten.asinh.default: graph_asinh,
}


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's warnings, and messages about missing libraries and constants."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _exact_scalar(value: float, dtype: int, **options: object) -> Any:
    """Return a number as a constant of the graph, which torch would round to float32."""
    import onnx_ir
    from onnxscript import opset18

    constant: Any = onnx_ir.tensor(value, onnx_ir.DataType(dtype))
    return opset18.Constant(value=constant)


def _set_inputs(graph: Any, names: list[str], texts: dict[int, list[str]]) -> None:
    """Name the inputs of a graph of onnx_ir, and let new nodes number the levels in strings."""
    import onnx_ir

    inner = [*graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    numbered = [graph.inputs[j] for j in texts]
    taken = {*names, *(value.name for value in (*inner, *graph.inputs))}
    for value in (*inner, *numbered):
        if value.name in names:
            value.name = free_name(value.name, taken, mark="_")
            taken.add(value.name)
    of_strings = onnx_ir.TensorType(onnx_ir.DataType.STRING)
    for j, levels in texts.items():
        numbers = graph.inputs[j]
        graph.inputs[j] = onnx_ir.Value(type=of_strings, shape=numbers.shape)
        table: dict[str, Any] = {
            "keys_strings": levels,
            "values_int64s": [*range(len(levels))],
            "default_int64": len(levels),
        }
        node = onnx_ir.node("LabelEncoder", [graph.inputs[j]], table, domain="ai.onnx.ml")
        node.outputs[0].name = numbers.name
        numbers.replace_all_uses_with(node.outputs[0])
        graph.insert_before(graph[0], node)
    for value, name in zip(graph.inputs, names, strict=True):
        value.name = name
    graph.opset_imports["ai.onnx.ml"] = 3
