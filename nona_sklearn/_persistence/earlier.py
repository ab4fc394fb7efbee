"""Estimators of earlier versions that are read as estimators of this one."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

from .._utils.storable import storable_parameters


@storable_parameters()
class ApproximateNeighborsRegressor(BaseEstimator):
    """Version 0.2.0's predictions from `n_candidates` rows, found by a graph."""

    def __init__(self, regressor, n_candidates=256):
        self.regressor = regressor
        self.n_candidates = n_candidates

    def now(self) -> Any:
        """The regressor that weighs as many nearest rows of each network, found alike."""
        regressor = getattr(self, "regressor_", self.regressor)
        while isinstance(regressor, FrozenEstimator):
            regressor = regressor.estimator
        if not hasattr(regressor, "bank_"):
            return regressor.set_params(algorithm="hnsw", n_neighbors=int(self.n_candidates))
        neighbors = regressor.bank_.neighbors
        vars(neighbors)["algorithm"] = "hnsw"
        neighbors.cache.graphs = getattr(self, "_index", None)
        z = neighbors.embeddings[:0]
        parts = regressor.network_.head.split_by_head(z, z)
        for head, _, _ in parts:
            head.n_neighbors = int(self.n_candidates)
        n_neighbors = len(parts) * int(self.n_candidates)
        return regressor.set_params(algorithm="hnsw", n_neighbors=n_neighbors)


def of_this_version(thing: Any) -> Any:
    """What a file holds, as this version has it."""
    return thing.now() if isinstance(thing, ApproximateNeighborsRegressor) else thing
