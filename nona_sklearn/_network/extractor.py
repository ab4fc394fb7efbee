"""Feature extractors and supervised components, which precede the layers of an embedding."""

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from numbers import Integral, Real

import numpy as np
import torch
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.utils._param_validation import StrOptions
from torch import Tensor, nn

from .._data.sample import Rows
from .._utils.docs import Documented
from .._utils.precision import STORED, exact
from .._utils.storable import storable_parameters
from .._utils.threads import one_blas_thread
from .._utils.validation import Interval

LEAST = 0.25  # least relevance relative to chance, since a dependence may be nonlinear


@storable_parameters()
class FeatureExtractor(Documented, BaseEstimator):
    """A feature extractor that an estimator fine-tunes, with its training parameters.

    The parameters can be searched by nested names, such as ``feature_extractor__learning_rate``.

    Parameters
    ----------
    module : torch.nn.Module or callable
        Module that maps a batch of rows to features of shape (n, n_features). Every fit copies a
        module. A callable without arguments returns a new module, whose random weights follow
        `random_state`.

    collate_fn : callable or None, default=None
        Function that makes a batch, a tensor or a dict of tensors, from a list of rows, as in
        :class:`torch.utils.data.DataLoader`. An example is a tokenizer. If None, arrays are
        sliced, and rows of different kinds are collated by torch's default.

    learning_rate : float, default=1e-4
        Learning rate of the module. Pretrained weights need a small rate; new weights need the
        rate of the remaining layers.

    micro_batch_size : int or None, default=None
        Largest number of queries in a forward pass. A small number saves memory, since the
        gradients of a batch's parts are summed. If None, the whole batch is one part. With
        ``neighbor_pool='batch'``, the neighbours of a query come from its part, which has 2 or
        more rows.

    precision : {'float32', 'bfloat16'}, default='float32'
        Precision of the module. 'bfloat16' computes the module under torch's autocast, which is
        about twice as fast on hardware that supports it. Distances are always computed in full
        precision.

    accelerator : callable or None, default=None
        Function that returns an :class:`accelerate.Accelerator`, such as the class itself, whose
        devices train: several GPUs under ``accelerate launch``, or further mixed precisions. A
        device takes a share of every batch and, with ``neighbor_pool='batch'``, the neighbours
        from its share. The accelerator replaces the estimator's `device`, and requires the extra
        ``accelerate``.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import FeatureExtractor, NONARegressor
    >>> reg = NONARegressor(FeatureExtractor(torch.nn.Linear(8, 4), learning_rate=1e-3))
    >>> reg.get_params()["feature_extractor__learning_rate"]
    0.001
    """

    _parameter_constraints: dict = {
        "module": [callable],
        "collate_fn": [callable, None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "micro_batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "precision": [StrOptions({"float32", "bfloat16"})],
        "accelerator": [callable, None],
    }

    def __init__(
        self,
        module,
        *,
        collate_fn=None,
        learning_rate=1e-4,
        micro_batch_size=None,
        precision="float32",
        accelerator=None,
    ):
        self.module = module
        self.collate_fn = collate_fn
        self.learning_rate = learning_rate
        self.micro_batch_size = micro_batch_size
        self.precision = precision
        self.accelerator = accelerator

    @classmethod
    def of(cls, feature_extractor):
        """Return an estimator's parameter as a FeatureExtractor; a plain module has defaults."""
        if feature_extractor is None or isinstance(feature_extractor, cls):
            return feature_extractor
        return cls(feature_extractor)

    def validate(self):
        """Raise an error that names an invalid parameter."""
        self._validate_params()


class ExtractorEmbedding(nn.Module):
    """Return embeddings (n, d) of the features (n, n_features) that an extractor returns.

    With `precision` 'bfloat16', the extractor runs under torch's autocast.
    """

    n_features: int | None = None  # output features of the extractor; None in old files

    def __init__(
        self,
        extractor: nn.Module,
        embedding: nn.Module,
        precision: str = "float32",
        n_features: int | None = None,
    ):
        super().__init__()
        self.n_features = n_features
        self.extractor = extractor
        self.embedding = embedding
        self.precision = precision

    def forward(self, rows: Rows) -> Tensor:
        device = torch.device(rows.device).type
        # With 'float32', the surrounding autocast applies, such as an accelerator's.
        lowers = self.precision == "bfloat16"
        with torch.autocast(device, torch.bfloat16) if lowers else nullcontext():
            features, _ = extract(self.extractor, rows, self.n_features)
        dtype = next(self.embedding.parameters(), features).dtype
        return self.embedding(features.to(dtype))


def extract(extractor: nn.Module, rows: Rows, n_features: int | None = None) -> tuple[Tensor, str]:
    """Return features of rows, (n, n_features), and a text about the required output.

    Entries of a dict are passed by name, as in skorch. Errors of the extractor, except for a lack
    of memory, become a ValueError.
    """
    batch = rows.batch()
    shape_of_batch = f"{len(rows)} rows of X, {describe(batch)}"
    try:
        features = extractor(**batch) if isinstance(batch, Mapping) else extractor(batch)
    except Exception as error:
        out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if out_of_memory or "allocate memory" in str(error):  # a RuntimeError on the CPU
            raise
        raise ValueError(
            f"feature_extractor failed on a batch of {shape_of_batch}: {error}"
        ) from error
    columns = n_features or "n_features"
    wanted = f"feature_extractor must return a tensor of shape ({len(rows)}, {columns})"
    if not isinstance(features, Tensor):
        raise ValueError(
            f"{wanted}, got {type(features).__name__}: wrap it in a module that returns one"
        )
    shape = tuple(features.shape)
    if len(shape) != 2 or shape != (len(rows), n_features or shape[1]):
        raise ValueError(f"{wanted}, got shape {shape} for {shape_of_batch}")
    return features, wanted


def describe(batch) -> str:
    """Return a description of the shape and type of a batch."""
    if isinstance(batch, Mapping):
        return ", ".join(f"{name}: {describe(values)}" for name, values in batch.items())
    return f"{tuple(batch.shape)} of {str(batch.dtype).removeprefix('torch.')}"


def make_extractor(module_or_factory) -> nn.Module:
    """Return a new extractor, or a copy of a module, so that all fits have the same start."""
    if isinstance(module_or_factory, nn.Module):
        return copy.deepcopy(module_or_factory)
    try:
        extractor = module_or_factory()
    except TypeError as error:
        raise ValueError(
            f"feature_extractor, called without arguments, failed: {error}"
        ) from error
    if not isinstance(extractor, nn.Module):
        raise ValueError(
            f"feature_extractor must be a torch.nn.Module or make one, it made {extractor!r:.100}"
        )
    return extractor


@torch.no_grad()
def count_features(extractor: nn.Module, rows: Rows) -> int:
    """Return the number of features of an extractor, whose output for two rows must be finite."""
    try:
        extractor.to(rows.device).eval()
    except NotImplementedError as error:
        raise ValueError(f"feature_extractor cannot be moved to {rows.device}: {error}") from error
    features, wanted = extract(extractor, rows.extremes())
    if features.device.type != torch.device(rows.device).type:
        raise ValueError(f"{wanted} on {rows.device}, got one on {features.device}")
    if not features.is_floating_point() or not features.isfinite().all():
        raise ValueError(f"{wanted} with finite numbers, got {features}")
    return features.shape[1]


def supervised_components(X: Tensor, y: Tensor, n_components: int, n_scores: int = 0) -> nn.Linear:
    """Return a fixed layer from X, (n, n_features), to at most `n_components` components.

    Principal components of mean square 1 are fitted to columns weighted by the root of their
    relevance to `y`, (n,) or (n, n_outputs): "Prediction by Supervised Principal Components" (Bair
    et al., 2006) with weights in place of a threshold. The last `n_scores` columns are copied.
    """
    n_features = X.shape[1] - n_scores
    rows = exact(X[:, :n_features]).numpy()
    targets = exact(y).reshape(len(y), -1).numpy()
    pca = PCA(min(n_components, *rows.shape), random_state=0).set_output(transform="default")
    with one_blas_thread():
        weights = np.sqrt(relevance(rows, targets))
        with np.errstate(invalid="ignore"):  # PCA's variance shares if the variance is 0
            scores = pca.fit_transform(rows * weights)
    unit = np.sqrt(np.mean(scores**2)) or 1.0
    matrix = pca.components_ * weights / unit
    shift = np.append(-matrix @ rows.mean(axis=0), np.zeros(n_scores))
    matrix = block_diag(matrix, np.eye(n_scores))
    components = nn.Linear(*matrix.T.shape)
    components.weight.data = torch.tensor(matrix, dtype=STORED)
    components.bias.data = torch.tensor(shift, dtype=STORED)
    return components.requires_grad_(False)


def relevance(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return shares (n_features,) of the columns' variances that targets explain beyond chance.

    They are adjusted R^2 of linear regressions of the columns on the targets, an analysis of
    variance for classes, and at least :data:`LEAST` of the share that chance explains.
    """
    X = X - X.mean(axis=0)
    y = y - y.mean(axis=0)
    directions, sizes, _ = np.linalg.svd(y, full_matrices=False)
    directions = directions[:, sizes > np.finfo(float).eps * len(y) * sizes.max()]
    variances = (X**2).sum(axis=0)
    explained = ((directions.T @ X) ** 2).sum(axis=0) / np.where(variances > 0, variances, 1)
    by_chance = max(1, directions.shape[1]) / max(1, len(y) - 1)
    return np.maximum(explained - by_chance * (1 - explained), 0) + LEAST * by_chance
