"""Rivals of the neighbour head on the same embedding, trained by the same loop."""

import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ._neighbors import Neighbors
from ._question import Question
from ._regressor import NONANetworks
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

    def parts(self, query: Tensor, neighbors: Tensor) -> list[tuple[nn.Module, Tensor, Tensor]]:
        """List each head with what it looks at: this one, at all."""
        return [(self, query, neighbors)]

    def forward(
        self, query: Tensor, neighbors=None, targets=None, excluded=None, log_prior=None
    ) -> Tensor:
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

    def parts(self, query: Tensor, neighbors: Tensor) -> list[tuple[nn.Module, Tensor, Tensor]]:
        """List each head with what it looks at: this one, at all."""
        return [(self, query, neighbors)]

    def forward(self, query, neighbors, targets, excluded=None, log_prior=None) -> Tensor:
        left = targets - self.linear(neighbors)
        return self.linear(query) + self.neighbors(query, neighbors, left, excluded, log_prior)


class DenseHeadRegressor(RegressorMixin, NONANetworks):
    """What :class:`NONARegressor` would be without neighbours: for comparisons.

    Everything but the head is the same, parameters and the average of several networks included.
    Nobody can be named behind its predictions.
    """

    def _choose_pool(self):
        return "batch"  # the cheapest: nobody looks at it

    def _make_head(self, n_outputs):
        return DenseHead(self.embedding_dim, n_outputs)

    def _remember(self, X, values, groups, splits):
        embeddings = self._embed(X)
        self.neighbors_ = Neighbors(embeddings, self.targets_.encode(values).to(embeddings.device))

    def _training_embeddings(self):
        return self.neighbors_.embeddings

    def predict(self, X):
        """Predict targets of shape (n_queries,) or (n_queries, n_outputs)."""
        check_is_fitted(self)
        query = self._validate_and_embed(X)
        parts = self.network_.head.parts(query, self.neighbors_.embeddings)
        encoded = torch.stack([self._predict_part(*part) for part in parts]).mean(dim=0)
        return self.targets_.decode(self.targets_.restore(encoded))

    def _predict_part(self, head, query, embeddings):
        """Predict encoded targets by one of the networks."""
        return head(query)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class HybridHeadRegressor(DenseHeadRegressor):
    """A linear and a neighbour head in one network: for comparisons."""

    _choose_pool = NONANetworks._choose_pool

    def _make_head(self, n_outputs):
        neighbors = NONAHead(self.similarity, learn_temperature=self.learn_temperature)
        return HybridHead(super()._make_head(n_outputs), neighbors)

    def _predict_part(self, head, query, embeddings):
        left = Neighbors(embeddings, self.neighbors_.values - head.linear(embeddings))
        return head.linear(query) + Question(head.neighbors, left, query).mean()
