"""A fitted estimator as one graph that other programs run. The only file that needs onnx.

The table's columns are encoded by :mod:`.onnx_table`.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any

import torch
from sklearn.base import is_regressor
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn import functional as F

from .._data.names import free_name
from .._data.scaler import BOUND, SmoothClipScaler
from .._inference.bank import NeighborBank
from .._inference.distribution import Calibration, Distribution
from .._inference.evaluation import Evaluation, rows_of
from .._inference.nearest import Candidates
from .._inference.neighbors import Neighbors
from .._inference.network_rows import NetworkRows
from .._inference.network_trend import NetworkTrend
from .._inference.weighted_rows import WeightedRows
from .._network.network import NeighborNetwork
from .._utils.extras import import_extra
from .._utils.files import as_path, destination, put_in_place
from .._utils.validation import check_flag, check_levels, check_n_neighbors
from ..attention import ClassHead, NONAHead
from ..losses import log
from ..similarity import l2
from ..softstep import STEPS, SoftStep
from ..weighting import Sigmoid, Softplus, Triangular, Weighting
from ..weighting.base import nearest_only
from ..weighting.elementwise import FAINT, clamped_log1p_exp, faint_log_softplus
from .file import refuse_model_trend
from .onnx_table import Encoding, exportable_snapshot

MAX_SCALED = 1e100  # the square of a scaled number is in float64's range
SAMPLE = 3  # rows that the graph is traced with; its input may have any number
EQUAL = 2.0**-23  # of a query's length: at smaller distances, rows are equal in float32


def export_onnx(
    estimator: Any,
    path: Any,
    *,
    n_neighbors: int = 5,
    quantiles: Any = None,
    overwrite: bool = False,
) -> None:
    """Write a fitted estimator as an ONNX graph: encoder, embedding, bank, head and adjustment.

    The input is a raw table of any number of queries. After a fit to numbers alone (booleans,
    durations and empty columns included) it is one input ``X``, (n_queries, n_features), float64
    with NaN for missing values. Otherwise it is one input for each column, (n_queries, 1), with
    the column's name, or ``x0`` and so on for arrays; an underscore follows if an output has that
    name. :func:`onnx_inputs` converts a table to these inputs.

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

    Outputs are ``prediction``, (n_queries,) or (n_queries, n_outputs), or, for a classifier,
    ``probabilities``, (n_queries, n_classes), those of several outputs side by side;
    ``weights``, (n_queries, n_neighbors), the largest ones; ``neighbors``, the ids of their rows;
    and `quantiles`, if they are given.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or \
            SoftStepKNeighborsClassifier
        Fitted, without a feature extractor or `text_features`, and with weights that depend on
        each neighbour by itself, or end after some number of nearest rows (`n_neighbors`,
        'sparse_softmax', or 's1' on ranks with global parameters): none of the weightings
        'sparsemax', 'entmax' and 'preconditioned', and no other steps on ranks.
    path : str or path-like
        Where to write. The file is either complete or not written.
    n_neighbors : int, default=5
        Number of neighbours in the outputs ``weights`` and ``neighbors``.
    quantiles : float or array-like of shape (n_quantiles,), default=None
        For a regressor, probabilities from 0 to below 1. The graph then has a further output
        ``quantiles``, (n_queries, n_quantiles) or (n_queries, n_quantiles, n_outputs), the
        results of `predict_quantiles`. None: no such output.
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
        If there is something at `path`, and `overwrite` is False; or if the file cannot be
        written. What was at `path` stays.

    See Also
    --------
    onnx_inputs : The inputs of the graph for a raw table.

    Notes
    -----
    Needs the extra ``onnx``. The graph keeps queries × bank in memory: pass some thousand at a
    time, or some hundred with quantiles. Numbers are equal to the estimator's up to float32. Edits
    of the bank, and another calibration, need another export. A quantile of level 1 of a
    distribution with noise depends on rounding, which differs. All queries of the graph are later
    than the bank, also where their times are a column.

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
    _check_exportable(fitted)
    import_extra("export_onnx", "onnx", "onnxscript", extra="onnx")
    graph = Graph(fitted, int(n_neighbors), levels).eval()
    with put_in_place(destination(path, overwrite)) as beside:
        to_onnx(graph, graph.encoding, graph.output_names).save(beside)


def to_onnx(graph: nn.Module, encoding: Encoding, output_names: list[str]) -> Any:
    """A module as torch's program of ONNX, for any number of queries as an encoding takes them."""
    samples = tuple(torch.zeros(SAMPLE, width, dtype=dtype) for dtype, width in encoding.takes)
    rows = {0: torch.export.Dim("n_queries")}
    shapes = (tuple(rows for _ in samples),)
    with _quiet():
        program = torch.export.export(graph, samples, dynamic_shapes=shapes, strict=False)
        translated = torch.onnx.export(
            program.run_decompositions(GRAPH_OPERATIONS),
            output_names=output_names,
            dynamic_shapes=shapes,
            custom_translation_table={torch.ops.aten.scalar_tensor.default: _exact_scalar},
            dynamo=True,
            verbose=False,
        )
    assert translated is not None
    _set_inputs(translated.model.graph, encoding.names, encoding.texts)
    return translated


class RowsGraph(nn.Module):
    """A bank under a network as a module: scaled features of queries to the rows behind them."""

    embeddings: Tensor
    values: Tensor
    log_prior: Tensor | None
    adjustment_scale: Tensor | None
    offsets: Tensor | None

    def __init__(self, network: NeighborNetwork, bank: NeighborBank):
        super().__init__()
        network, neighbors = copy.deepcopy(network).cpu(), bank.neighbors
        _use_graph_methods(network.head, len(bank))
        self.embedding, self.head = network.embedding, network.head.double()
        prior, scale = neighbors.log_prior, neighbors.adjustment_scale
        self.register_buffer("log_prior", None if prior is None else prior.cpu().double())
        scale = None if scale is None else torch.as_tensor(scale).cpu()
        self.register_buffer("adjustment_scale", scale)
        self.register_buffer("embeddings", bank.embeddings.cpu().double())
        self.register_buffer("values", bank.targets.cpu().double())
        offset = self.offset = neighbors.offset  # its values are a buffer
        self.register_buffer("offsets", None if offset is None else offset.values.cpu())
        trend: Any = bank.trend
        if isinstance(trend, NetworkTrend):
            trend = ValuesGraph(RowsGraph(trend.network, trend.bank))
        elif trend is not None:
            trend = copy.deepcopy(trend.function).cpu()
        self.trend = None if offset is None else trend

    def forward(self, features: Tensor, added: Tensor | None = None) -> list[NetworkRows]:
        features = features.float()  # rounded as the bank's are
        query = self.embedding(features.double()).float().double()
        offset = None if self.trend is None else self.trend(features)
        parts = self.head.split_by_head(query, self.embeddings)
        return [self._rows(head, own, rows, offset, added) for head, own, rows in parts]

    def _rows(
        self,
        head: NONAHead,
        query: Tensor,
        embeddings: Tensor,
        offset: Tensor | None,
        added: Tensor | None,
    ) -> NetworkRows:
        """All rows of the bank, without the shortcuts that depend on numbers."""
        compared = head.metric_part(query), head.metric_part(embeddings)
        nearest = l2(*compared).amax(dim=1, keepdim=True)
        candidates = Candidates(head.compare(*compared), nearest=nearest)
        neighbors = replace(self.neighbors(), embeddings=embeddings)
        rows = rows_of(head)(head, query, neighbors, candidates, offset=offset, added=added)
        vars(rows)["any_excluded"] = False
        if head.n_adjusted:
            vars(rows)["attenuation"] = head.attenuation(rows.distance)
        return rows

    def neighbors(self) -> Neighbors:
        """The rows of the bank."""
        offset = None
        if self.offset is not None and self.offsets is not None:
            offset = replace(self.offset, values=self.offsets)
        of_rows = self.embeddings, self.values, self.log_prior, self.adjustment_scale
        return Neighbors(*of_rows, offset=offset)


class ValuesGraph(nn.Module):
    """A :class:`NetworkTrend` as a module."""

    def __init__(self, rows: RowsGraph):
        super().__init__()
        self.rows = rows

    def forward(self, features: Tensor) -> Tensor:
        networks = self.rows(features)
        means = _mean_of(networks)
        return log(means) if isinstance(networks[0].head, ClassHead) else means


def _mean_of(networks: list[NetworkRows]) -> Tensor:
    return torch.stack([network.mean() for network in networks]).mean(dim=0)


class Graph(nn.Module):
    """A fitted estimator as one module: the columns of queries to predictions and neighbours."""

    ids: Tensor
    levels: Tensor

    def __init__(self, estimator: Any, n_neighbors: int, levels: Tensor | None = None):
        super().__init__()
        bank = estimator.bank_
        self.encoding = Encoding(estimator.features_)
        self.scaler = Scaling(estimator.scaler_, len(estimator.features_.source_))
        self.rows = RowsGraph(estimator.network_, bank)
        self.n_neighbors = n_neighbors
        self.output_names = [
            "probabilities" if hasattr(estimator, "classes_") else "prediction",
            *("weights", "neighbors"),
            *(() if levels is None else ("quantiles",)),
        ]
        self.register_buffer("ids", bank.ids.cpu())
        self.register_buffer("levels", levels)
        self.unknown_levels = bank.unknown_levels
        self.distribution = None
        if levels is not None:
            none = None if self.rows.offset is None else self.rows.offset.values[:0].cpu()
            head, rows = self.rows.head, self.rows.neighbors()
            nothing = Evaluation(head, rows, self.rows.embeddings[:0], offset=none)
            self.distribution = Distribution(nothing, bank.calibration or Calibration())

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        features, added = self.scaler(self.encoding(*inputs)), None
        if self.unknown_levels is not None:
            added = self.unknown_levels.added(self.encoding.unknown_levels(*inputs))
        networks = self.rows(features, added)
        rows = WeightedRows(networks)
        heaviest, positions = rows.weights().topk(self.n_neighbors, dim=1)
        outputs = self._in_shape_of_values(_mean_of(networks)), heaviest, self.ids[positions]
        if self.distribution is None:
            return outputs
        quantiles = self.distribution.quantiles_of(rows, added, self.levels)
        return *outputs, self._in_shape_of_values(quantiles)

    def _in_shape_of_values(self, results: Tensor) -> Tensor:
        """Results (..., n_outputs), without the last axis if values have no such axis."""
        return results.squeeze(-1) if self.rows.values.ndim == 1 else results


# -- a graph has no cdist, and no branches: shortcuts are replaced by the general way ----------


def graph_cdist(query: Tensor, neighbors: Tensor, p: float, compute_mode: int = 0) -> Tensor:
    """:func:`torch.cdist` of float64; by the expanded square, equal rows are at 0."""
    if p != 2:
        return torch.linalg.vector_norm(query[:, None] - neighbors, ord=p, dim=2)
    squares = query.square().sum(dim=1, keepdim=True)  # (q, 1)
    squared = squares - 2 * query @ neighbors.mT + neighbors.square().sum(dim=1)  # (q, n)
    return squared.masked_fill(squared <= EQUAL**2 * squares, 0.0).sqrt()


def _weigh_nearest(
    head: NONAHead,
    similarity: Tensor,
    query: Tensor,
    neighbors: Tensor,
    excluded: None,
    log_prior: Tensor | None,
    n_admitted: None,
) -> Tensor:
    """Where weights end, those of the nearest rows alone, of equally near ones the first."""
    n_rows = similarity.shape[1]
    of_all = head.step is not None and head.step.on == "similarity"  # it needs the farthest, too
    most = head.max_neighbors if of_all else head.most_weighed(n_rows)
    if most is None:
        return NONAHead.weigh(head, similarity, query, neighbors, None, log_prior)
    nearest, positions = similarity.topk(min(most, n_rows), dim=1)
    prior = None if log_prior is None else log_prior[positions]
    if of_all:
        assert head.step is not None
        log_step = head.step(similarity, query).gather(1, positions)
        measure = log_step if prior is None else log_step + prior
        weights = head.weighting.weigh(head.scale(nearest), measure)
    else:
        nearest = nearest.float().double()  # as an index rounds them: ranks depend on ties
        all_rows = torch.full_like(positions[:, :1], n_rows)
        weights = NONAHead.weigh(head, nearest, query, neighbors, None, prior, all_rows)
    return torch.zeros_like(similarity).scatter(1, positions, weights)


def _step(
    step: SoftStep,
    similarity: Tensor,
    query: Tensor | None = None,
    excluded: None = None,
    n_admitted: Tensor | None = None,
) -> Tensor:
    """On ranks, those of the nearest rows, which come nearest first; equally near ones share."""
    if step.on != "rank" or n_admitted is None:
        return SoftStep.forward(step, similarity, query)
    k = similarity.shape[1]
    place = torch.arange(k, device=similarity.device).expand_as(similarity)
    tied = F.pad(similarity[:, 1:] == similarity[:, :-1], (1, 0))  # with the one before
    best, distance = place.masked_fill(tied, 0), 1
    while distance < k:  # a graph has no cumulative maximum
        best = torch.maximum(best, F.pad(best, (distance, 0))[:, :k])
        distance *= 2
    last = (n_admitted - 1).clamp_min(1).to(similarity.dtype)
    x, own = (1 - each / last for each in (best, place))
    thresholds = step.thresholds(query)
    log_step = STEPS[step.step](x, *thresholds)
    return (
        log_step.masked_fill(own <= thresholds[0], -torch.inf) if step.step == "s1" else log_step
    )


def _constant(value: Any, *_: object) -> Any:
    return value


def _weigh(
    weighting: Weighting, s: Tensor, log_measure: Tensor | None, between: object = None
) -> Tensor:
    """Without exclusions, the nearest neighbour always has weight: no row is empty."""
    nearest = s.amax(dim=1, keepdim=True)
    logits = weighting.log_weight(s, nearest)
    if weighting.needs_nearest:
        lost = weighting.log_weight(nearest, nearest) == -torch.inf
        logits = torch.where(lost, nearest_only(s, nearest), logits)
    return (logits if log_measure is None else logits + log_measure).softmax(dim=1)


def _log_sigmoid(weighting: Sigmoid, s: Tensor, nearest: Tensor | None = None) -> Tensor:
    return -clamped_log1p_exp(-s - weighting.bias)


def _log_softplus(weighting: Softplus, s: Tensor, nearest: Tensor | None = None) -> Tensor:
    x = s + weighting.bias
    # log(1 + u), which is all that a graph has, would lose the digits of a small u.
    log_softplus = clamped_log1p_exp(x.clamp_min(-FAINT)).log()
    return weighting.log_power.exp() * torch.where(x < -FAINT, faint_log_softplus(x), log_softplus)


def graph_searchsorted(ordered: Tensor, values: Tensor, **options: object) -> Tensor:
    """:func:`torch.searchsorted` from the left: how many of the ordered ones are less."""
    return (ordered[:, None] < values[:, :, None]).sum(dim=2)


def graph_clamp_min(x: Tensor, least: float) -> Tensor:
    """:func:`torch.clamp_min`, whose bound torch's translation rounds to float32."""
    return torch.maximum(x, torch.scalar_tensor(least, dtype=x.dtype))


def graph_cos(x: Tensor) -> Tensor:
    """:func:`torch.cos`, which onnxruntime 1.22 has in float32 only; halves are exact."""
    return 1 - 2 * (x / 2).sin().square()


def graph_asinh(x: Tensor) -> Tensor:
    """:func:`torch.asinh`, which onnxruntime has in float32 only."""
    size = x.abs()
    return x.sign() * (size + (size.square() + 1).sqrt()).log()


#: The graph's versions of torch's operations, and of methods by class and name.
GRAPH_OPERATIONS: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.cdist.default: graph_cdist,
    torch.ops.aten.searchsorted.Tensor: graph_searchsorted,
    torch.ops.aten.clamp_min.default: graph_clamp_min,
    torch.ops.aten.cos.default: graph_cos,
    torch.ops.aten.asinh.default: graph_asinh,
}
GRAPH_METHODS: dict[tuple[type[nn.Module], str], Callable[..., Tensor]] = {
    (NONAHead, "weigh"): _weigh_nearest,
    (SoftStep, "forward"): _step,
    (Weighting, "weigh"): _weigh,
    (Sigmoid, "log_weight"): _log_sigmoid,
    (Softplus, "log_weight"): _log_softplus,
}


def _use_graph_methods(head: nn.Module, n_rows: int) -> None:
    """Replace methods of the modules of a head that is the graph's own, for a bank's rows."""
    for module in head.modules():
        if isinstance(module, NONAHead):  # a graph has no numbers that depend on tensors
            vars(module)["most_weighed"] = partial(_constant, module.most_weighed(n_rows))
        if isinstance(module, SoftStep) and module.params == "global":  # in its own precision
            thresholds = tuple(each.detach().double() for each in module.thresholds())
            vars(module)["thresholds"] = partial(_constant, thresholds)
        for (kind, name), method in GRAPH_METHODS.items():
            if getattr(type(module), name, None) is getattr(kind, name):  # not overridden
                setattr(module, name, MethodType(method, module))


class NormalScores(nn.Module):
    """Skewed columns as normal scores, on lines between their quantiles; others as they are."""

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
    """A fitted scaler, its result rounded to float32 as it is before an embedding."""

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


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings of torch's own parts, and a line for each library that it lacks."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(before)


def _exact_scalar(value: float, dtype: int, **options: object) -> Any:
    """A number of torch's program as a constant: torch's own translation rounds it to float32."""
    import onnx_ir
    from onnxscript import opset18

    constant: Any = onnx_ir.tensor(value, onnx_ir.DataType(dtype))
    return opset18.Constant(value=constant)


def _set_inputs(graph: Any, names: list[str], texts: dict[int, list[str]]) -> None:
    """Name the inputs of a graph of onnx_ir; those of numbered strings take the strings."""
    inner = [*graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    numbered = [graph.inputs[j] for j in texts]
    taken = {*names, *(value.name for value in (*inner, *graph.inputs))}
    for value in (*inner, *numbered):
        if value.name in names:
            value.name = free_name(value.name, taken, mark="_")
            taken.add(value.name)
    for j, name in enumerate(names):
        if j in texts:
            graph.inputs[j] = _strings_before(graph, graph.inputs[j], texts[j])
        graph.inputs[j].name = name
    graph.opset_imports["ai.onnx.ml"] = 3


def _strings_before(graph: Any, numbers: Any, texts: list[str]) -> Any:
    """A value of strings, from which a node makes the numbers of a graph."""
    import onnx_ir

    strings = onnx_ir.Value(type=onnx_ir.TensorType(onnx_ir.DataType.STRING), shape=numbers.shape)
    table: dict[str, Any] = {
        "keys_strings": texts,
        "values_int64s": [*range(len(texts))],
        "default_int64": len(texts),
    }
    node = onnx_ir.node("LabelEncoder", [strings], table, domain="ai.onnx.ml")
    node.outputs[0].name = numbers.name
    numbers.replace_all_uses_with(node.outputs[0])
    graph.insert_before(graph[0], node)
    return strings


def _check_exportable(estimator: Any) -> None:
    """Refuse what needs more of a query's row of pairs than sums, and models of others."""
    refuse_model_trend(estimator, "an ONNX graph", "use trend='kernel' or None")
    z, n_rows = estimator.bank_.embeddings[:0], len(estimator.bank_)
    heads = [head for head, _, _ in estimator.network_.head.split_by_head(z, z)]
    if not all(
        head.weighting.one_by_one or isinstance(head.weighting, Triangular) for head in heads
    ):
        needed = "weighting must look at one neighbour at a time for an ONNX graph"
        raise ValueError(f"{needed}, got {estimator.weighting!r}")
    if all(head.most_weighed(n_rows) is not None for head in heads):
        return
    if any(head.step is not None and head.step.on == "rank" for head in heads):
        raise ValueError(
            "softstep_on must be 'similarity' for an ONNX graph, or weights end after some number "
            "of rows, set by n_neighbors, got 'rank'"
        )
