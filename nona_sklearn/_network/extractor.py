"""What comes before an embedding's layers: a feature extractor, or components of a wide table."""

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from numbers import Integral, Real

import numpy as np
import torch
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from .._data.rows import Rows
from .._utils.docs import Documented
from .._utils.storable import storable_parameters
from .._utils.threads import one_blas_thread

LEAST = 0.25  # of what chance gives a column: targets may depend on it in another way


@storable_parameters()
class FeatureExtractor(Documented, BaseEstimator):
    """A feature extractor that an estimator fine-tunes, with its training parameters.

    They are searched by nested names, ``feature_extractor__learning_rate``.

    Parameters
    ----------
    module : torch.nn.Module or callable
        Maps a batch of rows to features, (n, n_features). A module is copied by each fit; a
        callable without arguments makes one, whose random weights follow `random_state`.

    collate_fn : callable or None, default=None
        Makes a batch, a tensor or a dict of tensors, of a list of rows, as that of
        :class:`torch.utils.data.DataLoader`: a tokenizer, for example. None: arrays are
        sliced, other rows collated by torch's default.

    learning_rate : float, default=1e-4
        Learning rate of the module: small for pretrained weights, that of the other layers
        for new ones.

    micro_batch_size : int or None, default=None
        Largest number of queries in a forward pass, to save memory: the gradients of a batch's
        parts are summed. None: the whole batch at once. With ``neighbor_pool='batch'`` the
        neighbours of a query are those in its part, of 2 or more rows.

    precision : {'float32', 'bfloat16'}, default='float32'
        'bfloat16' computes the module under torch's autocast, which is about twice as fast on
        hardware that supports it. Distances are always computed in full precision.

    accelerator : callable or None, default=None
        Makes an :class:`accelerate.Accelerator`, such as the class itself, to train on its
        devices: several GPUs under ``accelerate launch``, other mixed precisions. Each device
        takes a share of every batch, and with ``neighbor_pool='batch'`` its neighbours from that
        share. It replaces the estimator's `device`, and needs the extra ``accelerate``.

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
        """Make one of an estimator's parameter: a plain module has the defaults."""
        if feature_extractor is None or isinstance(feature_extractor, cls):
            return feature_extractor
        return cls(feature_extractor)

    def validate(self):
        """Raise an error that names the parameter unless all are valid."""
        self._validate_params()


class ExtractorEmbedding(nn.Module):
    """Extract features of rows, then embed them: rows -> (n, n_features) -> (n, d).

    'bfloat16' as `precision` lets torch choose it for what the extractor computes (autocast).
    """

    n_features: int | None = None  # that the extractor puts out; not in files of earlier versions

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
        # Otherwise the precision is that of the surroundings, such as an accelerator's.
        lowers = self.precision == "bfloat16"
        with torch.autocast(device, torch.bfloat16) if lowers else nullcontext():
            features, _ = extract(self.extractor, rows, self.n_features)
        dtype = next(self.embedding.parameters(), features).dtype
        return self.embedding(features.to(dtype))


def extract(extractor: nn.Module, rows: Rows, n_features: int | None = None) -> tuple[Tensor, str]:
    """Features of rows, (n, n_features), and a text that says what an extractor must return.

    As in skorch, the entries of a batch that is a dict are passed by name.

    Raises
    ------
    ValueError
        If the extractor fails, unless for lack of memory, or returns no features.
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
    """Describe the shape and type of a batch."""
    if isinstance(batch, Mapping):
        return ", ".join(f"{name}: {describe(values)}" for name, values in batch.items())
    return f"{tuple(batch.shape)} of {str(batch.dtype).removeprefix('torch.')}"


def make_extractor(module_or_factory) -> nn.Module:
    """Build a new extractor, or copy the one given, so that every fit starts from the same."""
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
    """Number of features that an extractor puts out, by two of the rows; they must be finite."""
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
    """Find principal components of a table's columns that count by their relevance to targets.

    Each column is weighted by the root of its relevance, so that the first components are of what
    relevant columns have in common. This is "Prediction by Supervised Principal Components" (Bair
    et al., 2006) with weights in place of a threshold. Returns a layer that is not trained, from
    X, (n, n_features), to at most `n_components`, whose mean square is 1, and the last `n_scores`
    columns as they are. `y` are the targets, (n,) or (n, n_outputs).
    """
    n_features = X.shape[1] - n_scores
    rows = X[:, :n_features].double().numpy()
    targets = y.double().reshape(len(y), -1).numpy()
    pca = PCA(min(n_components, *rows.shape), random_state=0).set_output(transform="default")
    with one_blas_thread():
        weights = np.sqrt(relevance(rows, targets))
        with np.errstate(invalid="ignore"):  # shares of a variance that is 0
            scores = pca.fit_transform(rows * weights)
    unit = np.sqrt(np.mean(scores**2)) or 1.0
    matrix = pca.components_ * weights / unit
    shift = np.append(-matrix @ rows.mean(axis=0), np.zeros(n_scores))
    matrix = block_diag(matrix, np.eye(n_scores))
    components = nn.Linear(*matrix.T.shape)
    components.weight.data = torch.tensor(matrix, dtype=torch.float32)
    components.bias.data = torch.tensor(shift, dtype=torch.float32)
    return components.requires_grad_(False)


def relevance(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Share of each column's variance that the targets explain beyond chance, (n_features,).

    It is the adjusted R^2 of a linear regression of the column on the targets, for classes that
    of an analysis of variance, and at least :data:`LEAST` of what chance explains.
    """
    X = X - X.mean(axis=0)
    y = y - y.mean(axis=0)
    directions, sizes, _ = np.linalg.svd(y, full_matrices=False)
    directions = directions[:, sizes > np.finfo(float).eps * len(y) * sizes.max()]
    variances = (X**2).sum(axis=0)
    explained = ((directions.T @ X) ** 2).sum(axis=0) / np.where(variances > 0, variances, 1)
    by_chance = max(1, directions.shape[1]) / max(1, len(y) - 1)
    return np.maximum(explained - by_chance * (1 - explained), 0) + LEAST * by_chance
