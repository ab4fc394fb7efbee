"""A rival of the neighbour head on the same embedding, trained by the same recipe."""

import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from torch import Tensor, nn

from .._inference.neighbors import Neighbors
from .._network.network import embed
from .._utils.docs import Documented
from .architectures import NONAArchitecture
from .base import NeighborEstimator
from .classification import NeighborClassifier
from .nona import NONAClassifier, NONARegressor
from .queries import embeddings_of, fitted_snapshot
from .regression import NeighborRegressor


class DenseHead(nn.Module):
    """A linear layer, the usual head of a network, after a ReLU.

    Parameters
    ----------
    embedding_dim : int
        Number of dimensions of the embedding.
    n_outputs : int or None
        Number of outputs; None: targets have one axis.
    sizes : sequence of int, optional
        Number of classes of each output: it predicts their probabilities, by a softmax.

    Notes
    -----
    It is called like a :class:`NONAHead`, so that the same loop trains it, and depends on the
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
        """List each head with its columns: this one, with all."""
        return [(self, query, neighbors)]

    def metric_part(self, embeddings: Tensor) -> Tensor:
        """The embedding itself: all of it."""
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


class DenseArchitecture(NONAArchitecture):
    """The embedding of a NONA estimator under a dense head."""

    adjusts = False
    neighbor_pool = "batch"  # the cheapest: the head does not use it

    def make_head(self, targets, n_adjusted, embedding_dim, n_neighbors):
        sizes = getattr(targets, "sizes", None)
        n_outputs = targets.n_outputs if sizes is None else sum(sizes)
        return DenseHead(embedding_dim, n_outputs, sizes)


class DenseHeadEstimator(Documented, TransformerMixin, BaseEstimator):
    """A NONA estimator without neighbours: for comparisons.

    All but the head is the same, parameters and the average of several networks included.
    """

    fit = NeighborEstimator.fit
    embed = NeighborEstimator.embed
    transform = NeighborEstimator.transform
    n_estimators_ = NeighborEstimator.n_estimators_
    best_loss_ = NeighborEstimator.best_loss_
    get_feature_names_out = NeighborEstimator.get_feature_names_out

    def _architecture(self):
        return DenseArchitecture(self)

    def _keep(self, found):
        data = found.data
        embeddings = embed(self.network_, data.sample.X)
        self.neighbors_ = Neighbors(embeddings, data.sample.y.to(embeddings.device))

    @property
    def _n_features_out(self):
        return self.neighbors_.embeddings.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        is_table = self.feature_extractor is None
        tags.input_tags.allow_nan = tags.input_tags.sparse = is_table
        return tags


def predictions_of(estimator, X):
    """Mean of the networks' predictions, in units of the targets, and the snapshot it is of."""
    fitted = fitted_snapshot(estimator)
    parts = fitted.network_.head.split_by_head(
        embeddings_of(fitted, X), fitted.neighbors_.embeddings
    )
    encoded = torch.stack([head(own) for head, own, _ in parts]).mean(dim=0)
    return fitted, fitted.targets_.restore(encoded)


class DenseHeadRegressor(RegressorMixin, DenseHeadEstimator):
    """What :class:`NONARegressor` would be without neighbours."""

    __init__ = NONARegressor.__init__
    _parameter_constraints = NONARegressor._parameter_constraints
    _make_targets = NeighborRegressor._make_targets

    def predict(self, X):
        """Predict targets of shape (n_queries,) or (n_queries, n_outputs)."""
        fitted, predictions = predictions_of(self, X)
        return fitted.targets_.decode(predictions)


class DenseHeadClassifier(ClassifierMixin, DenseHeadEstimator):
    """What :class:`NONAClassifier` would be without neighbours."""

    __init__ = NONAClassifier.__init__
    _parameter_constraints = NONAClassifier._parameter_constraints
    _make_targets = NeighborClassifier._make_targets
    classes_ = NeighborClassifier.classes_
    class_weight_ = NeighborClassifier.class_weight_
    predict = NeighborClassifier.predict
    predict_proba = NeighborClassifier.predict_proba
    predict_log_proba = NeighborClassifier.predict_log_proba
    _probabilities = staticmethod(predictions_of)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
