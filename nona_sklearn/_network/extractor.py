"""A feature extractor of the user's, and the embedding that follows it."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral, Real

import torch
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from .._data.rows import Rows
from .._utils.docs import Documented
from .._utils.storable import storable_parameters


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
    """Extract features of rows, then embed them.

    Parameters
    ----------
    extractor : Module
        Maps a batch to features (n, n_features); a dict's entries are passed by name.
    embedding : Module
        Maps features to embeddings (n, d).
    precision : {'float32', 'bfloat16'}
        'bfloat16' lets torch choose it for what the extractor computes (autocast).
    n_features : int, optional
        Number of features that the extractor puts out.
    """

    n_features: int | None = None  # of files of earlier versions

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
        batch = rows.batch()
        precision: AbstractContextManager = (
            nullcontext()
        )  # that of the surroundings, such as an accelerator's
        if self.precision == "bfloat16":
            precision = torch.autocast(torch.device(rows.device).type, torch.bfloat16)
        with failures_named(batch, len(rows)), precision:
            features = call(self.extractor, batch)
        check_shape(features, batch, len(rows), self.n_features)
        dtype = next(self.embedding.parameters(), features).dtype
        return self.embedding(features.to(dtype))


def call(extractor: nn.Module, batch):
    """Pass a batch through an extractor, as skorch does: a dict's entries by name."""
    return extractor(**batch) if isinstance(batch, Mapping) else extractor(batch)


def make_extractor(module_or_factory) -> nn.Module:
    """Build a new extractor, or copy the one given, so that every fit starts from the same.

    Raises
    ------
    ValueError
        If it is neither a module nor makes one.
    """
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
    """Find the number of features that an extractor puts out, by a batch of two rows.

    Raises
    ------
    ValueError
        If it fails, or what it returns are not finite features of shape (2, n_features).
    """
    batch = rows.extremes().batch()
    n_rows = min(2, len(rows))
    try:
        extractor.to(rows.device).eval()
    except NotImplementedError as error:
        raise ValueError(f"feature_extractor cannot be moved to {rows.device}: {error}") from error
    with failures_named(batch, n_rows):
        features = call(extractor, batch)
    wanted = check_shape(features, batch, n_rows)
    if features.device.type != torch.device(rows.device).type:
        raise ValueError(f"{wanted} on {rows.device}, got one on {features.device}")
    if not features.is_floating_point() or not features.isfinite().all():
        raise ValueError(f"{wanted} with finite numbers, got {features}")
    return features.shape[1]


@contextmanager
def failures_named(batch, n_rows: int) -> Iterator[None]:
    """Name the rows on which an extractor fails, unless the cause is a lack of memory."""
    try:
        yield
    except Exception as error:
        out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if out_of_memory or "allocate memory" in str(error):  # a RuntimeError on the CPU
            raise
        of = f"{n_rows} rows of X, {describe(batch)}"
        raise ValueError(f"feature_extractor failed on a batch of {of}: {error}") from error


def check_shape(features, batch, n_rows: int, n_features: int | None = None) -> str:
    """Refuse what are no features of a batch; return what an extractor must return."""
    columns = n_features or "n_features"
    wanted = f"feature_extractor must return a tensor of shape ({n_rows}, {columns})"
    if not isinstance(features, Tensor):
        raise ValueError(
            f"{wanted}, got {type(features).__name__}: wrap it in a module that returns one"
        )
    shape = tuple(features.shape)
    if len(shape) != 2 or shape != (n_rows, n_features or shape[1]):
        raise ValueError(f"{wanted}, got shape {shape} for {n_rows} rows of X, {describe(batch)}")
    return wanted


def describe(batch) -> str:
    """Describe the shape and type of a batch."""
    if isinstance(batch, Mapping):
        return ", ".join(f"{name}: {describe(values)}" for name, values in batch.items())
    return f"{tuple(batch.shape)} of {str(batch.dtype).removeprefix('torch.')}"
