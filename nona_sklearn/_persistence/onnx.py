"""A fitted estimator as one graph that other programs run. The only file that needs onnx."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any

import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from .._data.scaler import BOUND, SmoothClipScaler
from .._data.sparse_encoder import SparseEncoder
from .._estimators.base import NeighborEstimator
from .._utils.files import as_path, destination, put_in_place
from .._utils.snapshots import snapshot
from .._utils.validation import check_flag, check_n_neighbors
from ..attention import NONAHead
from ..similarity import l2
from ..softstep import STEPS, SoftStep
from ..weighting import Sigmoid, Softplus, Weighting
from ..weighting.base import nearest_only
from ..weighting.elementwise import FAINT, clamped_log1p_exp, faint_log_softplus

MAX_SCALED = 1e100  # the square of a scaled number is in float64's range
SAMPLE = 3  # rows that the graph is traced with; its input may have any number
EQUAL = 2.0**-23  # of a query's length: at smaller distances, rows are equal in float32


def export_onnx(estimator, path, *, n_neighbors=5, overwrite=False):
    """Write a fitted estimator as an ONNX graph: scaler, embedding, bank, head and adjustment.

    Its input ``X`` is of shape (n_queries, n_features) in float64, for any number of queries:
    the table as the estimator's ``features_.transform`` returns it, which of numbers without
    gaps is the table itself. Its outputs are ``prediction``, (n_queries,) or (n_queries,
    n_outputs), of a classifier ``probabilities``, (n_queries, n_classes), those of several
    outputs side by side; ``weights``, (n_queries, n_neighbors), of the heaviest rows; and
    ``neighbors``, their ids.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor or \
            SoftStepKNeighborsClassifier
        Fitted, without a feature extractor, and with weights that depend on each neighbour by
        itself, or end after some number of nearest rows (`n_neighbors`, 'sparse_softmax', or 's1'
        on ranks with global parameters): none of the weightings 'sparsemax', 'entmax' and
        'preconditioned', and no other steps on ranks.
    path : str or path-like
        Where to write. The file is complete or not there.
    n_neighbors : int, default=5
        How many rows to name.
    overwrite : bool, default=False
        Whether to replace an existing file.

    Raises
    ------
    ImportError
        If onnx or onnxscript is not installed.
    ValueError, TypeError
        If the estimator cannot be exported, or its bank has fewer rows than `n_neighbors`.
    FileExistsError, OSError
        If there is something at `path`, and `overwrite` is False; or if the file cannot be
        written. What was at `path` stays.

    Notes
    -----
    Needs the extra ``onnx``. The graph holds queries × bank in memory: pass some thousand at a
    time. Numbers agree with the estimator's to float32. Edits of the bank need another export.
    All queries of the graph are later than the bank, also where their times are a column.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import onnxruntime
    >>> from sklearn.datasets import load_diabetes
    >>> import nona_sklearn
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = nona_sklearn.NONARegressor(n_estimators=1, random_state=0).fit(X[:400], y[:400])
    >>> path = Path(tempfile.mkdtemp(), "diabetes.onnx")
    >>> nona_sklearn.export_onnx(reg, path)
    >>> session = onnxruntime.InferenceSession(path)
    >>> prediction, weights, neighbors = session.run(None, {"X": X[400:]})
    >>> bool(abs(prediction - reg.predict(X[400:])).max() < 1e-3)
    True
    """
    path = as_path("path", path)
    check_flag("overwrite", overwrite)
    if not isinstance(estimator, NeighborEstimator):
        needed = "estimator must be one of nona_sklearn with a bank"
        raise TypeError(f"{needed}, got {estimator!r:.100}")
    check_is_fitted(estimator)
    estimator = snapshot(estimator)
    check_n_neighbors(n_neighbors, len(estimator.bank_))
    _check_exportable(estimator)
    _import_onnx()
    graph = Graph(estimator, int(n_neighbors)).eval()
    width = len(estimator.features_.source_)
    sample = torch.zeros(SAMPLE, width, dtype=torch.float64)
    with put_in_place(destination(path, overwrite)) as beside, _quiet():
        shapes = ({0: torch.export.Dim("n_queries")},)
        program = torch.export.export(graph, (sample,), dynamic_shapes=shapes, strict=False)
        names = [graph.output_name, "weights", "neighbors"]
        torch.onnx.export(
            program.run_decompositions(GRAPH_OPERATIONS),
            input_names=["X"],
            output_names=names,
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
        ).save(beside)


class Graph(nn.Module):
    """A fitted estimator as one module: a query's features to its prediction and neighbours."""

    ids: Tensor
    embeddings: Tensor
    values: Tensor

    def __init__(self, estimator: NeighborEstimator, n_neighbors: int):
        super().__init__()
        bank, network = estimator.bank_, copy.deepcopy(estimator.network_).cpu()
        neighbors = bank.neighbors
        self.scaler = Scaling(estimator.scaler_, len(estimator.features_.source_))
        self.embedding, self.head = network.embedding, network.head.double()
        _use_graph_methods(self.head, len(bank))
        self.n_neighbors = n_neighbors
        self.output_name = "probabilities" if hasattr(estimator, "classes_") else "prediction"
        prior, scale = neighbors.log_prior, neighbors.adjustment_scale
        self.register_buffer("log_prior", None if prior is None else prior.cpu().double())
        self.register_buffer("adjustment_scale", None if scale is None else scale.cpu())
        self.register_buffer("ids", bank.ids.cpu())
        self.register_buffer("embeddings", bank.embeddings.cpu().double())
        self.register_buffer("values", bank.targets.cpu().double())

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = self.embedding(self.scaler(X)).float().double()  # rounded as the bank's are
        bank = query, self.embeddings
        prediction = self.head(*bank, self.values, None, self.log_prior, self.adjustment_scale)
        weights = self.head.neighbor_weights(*bank, None, self.log_prior)
        heaviest, positions = weights.topk(self.n_neighbors, dim=1)
        return prediction, heaviest, self.ids[positions]


# -- a graph has no cdist, and no branches: shortcuts are replaced by the general way ----------


def graph_cdist(query: Tensor, neighbors: Tensor, p: float, compute_mode: int = 0) -> Tensor:
    """:func:`torch.cdist` of float64; by the expanded square, equal rows are at 0."""
    if p != 2:
        return torch.linalg.vector_norm(query[:, None] - neighbors, ord=p, dim=2)
    squares = query.square().sum(dim=1, keepdim=True)  # (q, 1)
    squared = squares - 2 * query @ neighbors.mT + neighbors.square().sum(dim=1)  # (q, n)
    return squared.masked_fill(squared <= EQUAL**2 * squares, 0.0).sqrt()


def _attenuation_of(head: NONAHead, query: Tensor, neighbors: Tensor, excluded: None) -> Tensor:
    distance = -l2(head.metric_part(query), head.metric_part(neighbors))
    return head.attenuation(distance.amin(dim=1, keepdim=True))


def _weigh_nearest(
    head: NONAHead,
    similarity: Tensor,
    query: Tensor,
    neighbors: Tensor,
    excluded: None,
    log_prior: Tensor | None,
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
        n_admitted = torch.full_like(positions[:, :1], n_rows)
        weights = NONAHead.weigh(head, nearest, query, neighbors, None, prior, n_admitted)
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


def _constant(value: int | None, _: int) -> int | None:
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


#: The graph's versions of torch's operations, and of methods by class and name.
GRAPH_OPERATIONS: dict[Any, Callable[..., Tensor]] = {torch.ops.aten.cdist.default: graph_cdist}
GRAPH_METHODS: dict[tuple[type[nn.Module], str], Callable[..., Tensor]] = {
    (NONAHead, "attenuation_of"): _attenuation_of,
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
        above = (X[:, None, self.skewed] - self.quantiles) / self.widths  # (n, quantiles, skewed)
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


def _import_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "export_onnx needs onnx and onnxscript: install nona_sklearn with the extra 'onnx'"
        ) from error


def _check_exportable(estimator: NeighborEstimator) -> None:
    """Refuse what needs more of a query's row of pairs than sums."""
    if not hasattr(estimator, "features_"):
        raise ValueError(
            "feature_extractor must be None for an ONNX graph: export it by itself, and an "
            "estimator of its features"
        )
    if isinstance(estimator.features_, SparseEncoder):
        raise ValueError(
            "X must be dense in fit, or of few columns, for an ONNX graph: put a TruncatedSVD and "
            "a Normalizer before the estimator, and export them by themselves"
        )
    z, n_rows = estimator.bank_.embeddings[:0], len(estimator.bank_)
    heads = [head for head, _, _ in estimator.network_.head.split_by_head(z, z)]
    if not all(head.weighting.one_by_one for head in heads):
        needed = "weighting must look at one neighbour at a time for an ONNX graph"
        raise ValueError(f"{needed}, got {estimator.weighting!r}")
    if all(head.most_weighed(n_rows) is not None for head in heads):
        return
    if any(head.step is not None and head.step.on == "rank" for head in heads):
        raise ValueError(
            "softstep_on must be 'similarity' for an ONNX graph, or weights end after some number "
            "of rows, set by n_neighbors, got 'rank'"
        )
