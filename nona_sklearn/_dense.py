"""Rivals of the neighbour head on the same embedding, trained by the same loop."""

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ._bank import NeighborBank
from ._network import NeighborNetwork
from ._regressor import NONARegressor
from ._stream import heads_of
from .attention import NONAHead


class DenseHead(nn.Module):
    """A linear layer, the usual head of a regression network, after a ReLU.

    Parameters
    ----------
    embedding_dim : int
        Number of dimensions of the embedding.
    n_outputs : int or None
        Number of outputs; None: targets have one axis.

    Notes
    -----
    It is called like a :class:`NONAHead`, so that the same loop trains it, and looks at the
    query alone.
    """

    def __init__(self, embedding_dim: int, n_outputs: int | None):
        super().__init__()
        self.n_outputs = n_outputs
        self.linear = nn.Linear(embedding_dim, n_outputs or 1)

    def forward(self, query: Tensor, neighbors=None, targets=None, excluded=None) -> Tensor:
        prediction = self.linear(query.relu())
        return prediction[:, 0] if self.n_outputs is None else prediction


class HybridHead(nn.Module):
    """A linear layer, and neighbours for what it leaves.

    ``linear(z) + sum_j w_j (y_j - linear(z_j))``: from the NONA paper's list of open questions.

    Parameters
    ----------
    linear : DenseHead
        The linear part.
    neighbors : NONAHead
        Weighs the neighbours' residuals.
    """

    def __init__(self, linear: DenseHead, neighbors: NONAHead):
        super().__init__()
        self.linear = linear
        self.neighbors = neighbors

    def forward(self, query, neighbors, targets, excluded=None) -> Tensor:
        residuals = targets - self.linear(neighbors)
        return self.linear(query) + self.neighbors(query, neighbors, residuals, excluded)


class DenseHeadRegressor(NONARegressor):
    """What :class:`NONARegressor` would be without neighbours: for comparisons.

    Everything but the head is the same, parameters and the average of several networks included.
    """

    __init__ = NONARegressor.__init__

    def _choose_pool(self):
        return "batch"  # the cheapest: nobody looks at it

    def _make_head(self):
        return DenseHead(self.embedding_dim, self._n_outputs)

    def _make_network(self, X):
        return NeighborNetwork(self._make_embedding(X), self._make_head())

    def _take_training_data(self, X, y):
        X, y, scaler = super()._take_training_data(X, y)
        y = np.asarray(y)
        self._n_outputs = y.shape[1] if y.ndim == 2 else None
        self.target_scaler_ = StandardScaler().fit(y.reshape(len(y), -1))
        return X, y, scaler

    def _calibrate(self, splits):
        return None  # says nothing of distributions

    def predict(self, X):
        """Predict targets of shape (n_queries,) or (n_queries, n_outputs)."""
        check_is_fitted(self)
        query = self._validate_and_embed(X)
        parts = heads_of(self.network_.head, query, self.bank_.embeddings)
        scaled = torch.stack([self._predict_part(*part) for part in parts]).mean(dim=0)
        columns = scaled.double().reshape(len(query), -1).cpu().numpy()
        return self.target_scaler_.inverse_transform(columns).reshape(scaled.shape)

    def _predict_part(self, head, query, neighbors):
        """Predict standardised targets by one of the networks."""
        return head(query)


class HybridHeadRegressor(DenseHeadRegressor):
    """A linear and a neighbour head in one network: for comparisons."""

    _choose_pool = NONARegressor._choose_pool

    def _make_head(self):
        neighbors = NONAHead(self.similarity, learn_temperature=self.learn_temperature)
        return HybridHead(super()._make_head(), neighbors)

    def _predict_part(self, head, query, neighbors):
        targets = self.bank_.targets
        columns = self.target_scaler_.transform(targets.reshape(len(targets), -1).cpu().numpy())
        scaled = torch.as_tensor(columns, device=query.device).reshape(targets.shape)
        residuals = scaled - head.linear(neighbors)
        return head.linear(query) + NeighborBank(neighbors, residuals).predict(
            head.neighbors, query
        )
