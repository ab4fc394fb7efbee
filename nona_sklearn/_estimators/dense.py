"""A rival of the neighbour head on the same embedding, trained by the same loop."""

import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .._data.targets import RegressionTargets
from .._inference.neighbors import Neighbors
from .._utils.validation import snapshot
from .classification import ClassPredictor
from .families import NONAClassNetworks, NONANetworks


class DenseHead(nn.Module):
    """A linear layer, the usual head of a network, after a ReLU.

    Parameters
    ----------
    embedding_dim : int
        Number of dimensions of the embedding.
    n_outputs : int or None
        Number of outputs; None: targets have one axis.
    sizes : sequence of int, optional
        Of classes, how many each output has: it answers their probabilities, by a softmax.

    Notes
    -----
    It is called like a :class:`NONAHead`, so that the same loop trains it, and looks at the
    query alone.
    """

    n_adjusted = 0

    def __init__(self, embedding_dim: int, n_outputs: int | None, sizes=None):
        super().__init__()
        self.n_outputs, self.sizes = n_outputs, sizes
        self.linear = nn.Linear(embedding_dim, n_outputs or 1)

    def split_by_head(
        self, query: Tensor, neighbors: Tensor
    ) -> list[tuple[nn.Module, Tensor, Tensor]]:
        """List each head with what it looks at: this one, at all."""
        return [(self, query, neighbors)]

    def metric_part(self, embeddings: Tensor) -> Tensor:
        """Where rows would be compared: all of the embedding."""
        return embeddings

    def forward(
        self,
        query: Tensor,
        neighbors=None,
        targets=None,
        excluded=None,
        log_prior=None,
        adjustment_scale=None,
    ) -> Tensor:
        prediction = self.linear(query.relu())
        if self.sizes is not None:
            if not self.training:  # probabilities sum to 1, as their users check in float64
                prediction = prediction.double()
            blocks = prediction.split(self.sizes, dim=1)
            return torch.cat([block.softmax(dim=1) for block in blocks], dim=1)
        return prediction[:, 0] if self.n_outputs is None else prediction


class DenseHeadNetworks(NONANetworks):
    """A NONA estimator without neighbours: for comparisons.

    Everything but the head is the same, parameters and the average of several networks included.
    Nobody can be named behind its predictions.
    """

    _adjusts = False

    def _choose_pool(self):
        return "batch"  # the cheapest: nobody looks at it

    def _remember(self, X, values, groups, splits, names, given):
        embeddings = self._embed(X)
        self.neighbors_ = Neighbors(embeddings, self.targets_.encode(values).to(embeddings.device))

    def _training_embeddings(self):
        return self.neighbors_.embeddings

    def _answer(self, X) -> Tensor:
        """What the networks say of queries in the mean, in units of the targets."""
        check_is_fitted(self)
        query = self._validate_and_embed(X)
        parts = self.network_.head.split_by_head(query, self.neighbors_.embeddings)
        encoded = torch.stack([head(own) for head, own, _ in parts]).mean(dim=0)
        return self.targets_.restore(encoded)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class DenseHeadRegressor(RegressorMixin, DenseHeadNetworks):
    """What :class:`NONARegressor` would be without neighbours."""

    def predict(self, X):
        """Predict targets of shape (n_queries,) or (n_queries, n_outputs)."""
        fitted = snapshot(self)
        answer = fitted._answer(X)
        return fitted.targets_.decode(answer)

    def _make_targets(self):
        return RegressionTargets()

    def _make_head(self, targets, n_adjusted):
        return DenseHead(self.embedding_dim, targets.n_outputs)


class DenseHeadClassifier(ClassPredictor, NONAClassNetworks, DenseHeadNetworks):
    """What :class:`NONAClassifier` would be without neighbours."""

    def _probabilities(self, X):
        return self._answer(X)

    def _make_head(self, targets, n_adjusted):
        return DenseHead(self.embedding_dim, sum(targets.sizes), targets.sizes)
