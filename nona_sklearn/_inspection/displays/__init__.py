"""Pictures: the only package that imports matplotlib, and only inside functions."""

from .embedding import EmbeddingDisplay
from .history import HistoryDisplay
from .interval import IntervalDisplay
from .neighbors import NeighborsDisplay
from .step import StepDisplay
from .surface import SurfaceDisplay
from .weighting import WeightingDisplay

__all__ = [
    "EmbeddingDisplay",
    "HistoryDisplay",
    "IntervalDisplay",
    "NeighborsDisplay",
    "StepDisplay",
    "SurfaceDisplay",
    "WeightingDisplay",
]
