"""A fitted estimator as one graph that other programs run. The only file that needs onnx."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .._data.scaler import BOUND, SmoothClipScaler
from .._estimators.base import NeighborEstimator
from .._utils.files import as_path, destination, put_in_place
from .._utils.snapshots import snapshot
from .._utils.validation import check_flag, check_n_neighbors
from ..attention import NONAHead

HUGE = 1e100  # a scaled number whose square has room
SAMPLE = 3  # rows that the graph is made with; it takes any number


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
        Fitted, with weights that depend on each neighbour by itself: no steps on ranks
        (``softstep_on='similarity'``), no number of neighbours, none of the weightings
        'sparse_softmax', 'sparsemax', 'entmax' and 'preconditioned', and no feature extractor.
    path : str or path-like
        Where to write. The file is complete or not there.
    n_neighbors : int, default=5
        How many rows to name.
    overwrite : bool, default=False
        Whether to take the place of a file that is there.

    Raises
    ------
    ImportError
        If onnx or onnxscript is not installed.
    ValueError
        If the estimator cannot be exported, or `n_neighbors` is not between 1 and the number
        of rows of its bank.
    TypeError
        If it is no such estimator.
    FileExistsError
        If there is something at `path`, and `overwrite` is False.
    OSError
        If the file cannot be written. What was at `path` stays.

    Notes
    -----
    Needs the extra ``onnx``. The graph holds queries × bank in memory: ask for some thousand at
    a time. Numbers agree with the estimator's to float32. The bank is that of the moment; edits
    need another export.

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
        raise TypeError(
            f"estimator must be one of nona_sklearn with a bank, got {estimator!r:.100}"
        )
    check_is_fitted(estimator)
    estimator = snapshot(estimator)
    check_n_neighbors(n_neighbors, len(estimator.bank_))
    _check_exportable(estimator)
    _import_onnx()
    graph = Graph(estimator, int(n_neighbors)).eval()
    width = len(estimator.features_.source_)
    sample = torch.zeros(SAMPLE, width, dtype=torch.float64)
    with put_in_place(destination(path, overwrite)) as beside, _quiet():
        program = torch.onnx.export(
            graph,
            (sample,),
            input_names=["X"],
            output_names=[graph.says, "weights", "neighbors"],
            dynamic_shapes=({0: torch.export.Dim("n_queries")},),
            dynamo=True,
            verbose=False,
        )
        program.save(beside)


class Graph(nn.Module):
    """What a query goes through, from its features to its answer, in one piece.

    Parameters
    ----------
    estimator : NeighborEstimator
        Fitted.
    n_neighbors : int
        How many of the heaviest rows to name.
    """

    ids: Tensor
    embeddings: Tensor
    values: Tensor

    def __init__(self, estimator: NeighborEstimator, n_neighbors: int):
        super().__init__()
        bank, network = estimator.bank_, copy.deepcopy(estimator.network_).cpu()
        neighbors = bank.neighbors
        self.scaler = Scaling(estimator.scaler_, len(estimator.features_.source_))
        self.embedding, self.head = network.embedding, network.head.double()
        self.n_neighbors = n_neighbors
        self.says = "probabilities" if hasattr(estimator, "classes_") else "prediction"
        prior = neighbors.log_prior
        self.register_buffer("log_prior", None if prior is None else prior.cpu().double())
        self.register_buffer(
            "unit",
            None if neighbors.adjustment_scale is None else neighbors.adjustment_scale.cpu(),
        )
        self.register_buffer("ids", bank.ids.cpu())
        self.register_buffer("embeddings", bank.embeddings.cpu().double())
        self.register_buffer("values", bank.targets.cpu().double())

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = self.embedding(self.scaler(X)).float().double()  # rounded as the bank's are
        answer = self.head(query, self.embeddings, self.values, None, self.log_prior, self.unit)
        weights = self.head.neighbor_weights(query, self.embeddings, None, self.log_prior)
        heaviest, places = weights.topk(self.n_neighbors, dim=1)
        return answer, heaviest, self.ids[places]


class Scaling(nn.Module):
    """What a fitted scaler does, rounded to float32 as it is before an embedding."""

    center: Tensor
    scale: Tensor
    huge: Tensor

    def __init__(self, scaler: SmoothClipScaler | StandardScaler, n_features: int):
        super().__init__()
        self.bends = isinstance(scaler, SmoothClipScaler)
        center = scaler.center_ if self.bends else scaler.mean_ if scaler.with_mean else None
        zeros, ones = torch.zeros(n_features).double(), torch.ones(n_features).double()
        self.register_buffer("center", zeros if center is None else torch.as_tensor(center))
        scale = scaler.scale_
        self.register_buffer("scale", ones if scale is None else torch.as_tensor(scale))
        # A tensor: a plain number would be a float32 in the graph, which does not hold it.
        self.register_buffer("huge", torch.tensor(HUGE, dtype=torch.float64))

    def forward(self, X: Tensor) -> Tensor:
        scaled = ((X - self.center) / self.scale).clamp(-self.huge, self.huge)
        if self.bends:  # a graph has no hypot
            scaled = scaled / (1 + (scaled / BOUND).square()).sqrt()
        return scaled.float().double()


@contextmanager
def _quiet() -> Iterator[None]:
    """Neither warnings of torch's own parts, nor a line for each library that it lacks."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    """Refuse what needs more of a query's row of pairs than a sum."""
    if getattr(estimator, "feature_extractor", None) is not None:
        raise ValueError(
            "feature_extractor must be None for an ONNX graph: export it by itself, and an "
            "estimator of its features"
        )
    embeddings = estimator.bank_.embeddings[:0]
    heads: list[NONAHead] = [
        h for h, _, _ in estimator.network_.head.parts(embeddings, embeddings)
    ]
    head = heads[0]
    if head.step is not None and head.step.on == "rank":
        raise ValueError("softstep_on must be 'similarity' for an ONNX graph, got 'rank'")
    if head.n_neighbors is not None:
        raise ValueError(f"n_neighbors must be None for an ONNX graph, got {head.n_neighbors}")
    if head.needs_whole_rows:
        raise ValueError(
            "weighting must look at one neighbour at a time for an ONNX graph, got "
            f"{estimator.weighting!r}"
        )
