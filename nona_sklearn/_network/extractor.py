"""A feature extractor of the user's, and the embedding that follows it."""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from .._data.rows import Rows


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
    """

    def __init__(self, extractor: nn.Module, embedding: nn.Module, precision: str = "float32"):
        super().__init__()
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
        with precision:
            features = call(self.extractor, batch)
        return self.embedding(features.to(next(self.embedding.parameters()).dtype))


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
    try:
        features = call(extractor, batch)
    except Exception as error:
        raise ValueError(
            f"feature_extractor failed on a batch of {n_rows} rows, {describe(batch)}: {error}"
        ) from error
    wanted = f"feature_extractor must return a tensor of shape ({n_rows}, n_features)"
    if not isinstance(features, Tensor):
        raise ValueError(
            f"{wanted}, got {type(features).__name__}: wrap it in a module that returns one"
        )
    if features.ndim != 2 or len(features) != n_rows:
        raise ValueError(f"{wanted}, got shape {tuple(features.shape)}")
    if features.device.type != torch.device(rows.device).type:
        raise ValueError(f"{wanted} on {rows.device}, got one on {features.device}")
    if not features.is_floating_point() or not features.isfinite().all():
        raise ValueError(f"{wanted} with finite numbers, got {features}")
    return features.shape[1]


def describe(batch) -> str:
    """Say the shape and type of a batch."""
    if isinstance(batch, Mapping):
        return ", ".join(f"{name}: {describe(values)}" for name, values in batch.items())
    return f"{tuple(batch.shape)} of {str(batch.dtype).removeprefix('torch.')}"
