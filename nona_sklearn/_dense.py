"""The rival: the same embedding under a dense head, trained with the same budget."""

import skorch
import torch
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import EarlyStopping, GradientNormClipping
from skorch.dataset import ValidSplit
from torch import nn

from ._base import _local_seed, _to_tensor
from ._regressor import NONARegressor
from ._training import MAX_GRADIENT_NORM
from .embedding import MLPEmbedding


class DenseHeadRegressor(TransformerMixin, RegressorMixin, BaseEstimator):
    """What :class:`NONARegressor` would be without neighbours: for comparisons.

    Everything but the head is NONARegressor's default.

    Parameters
    ----------
    random_state : int, default=0
        Seed of the initial weights, the validation split and the batches.
    """

    def __init__(self, random_state=0):
        self.random_state = random_state

    def fit(self, X, y):
        """Train on `X` of shape (n_samples, n_features) and `y` of shape (n_samples,)."""
        defaults = NONARegressor()
        self.scaler_ = StandardScaler().fit(X)
        column = y.reshape(-1, 1)
        self.target_scaler_ = StandardScaler().fit(column)
        with _local_seed(self.random_state):
            embedding = MLPEmbedding(
                X.shape[1],
                defaults.embedding_dim,
                defaults.hidden_layer_sizes,
                defaults.activation,
            )
            self.net_ = skorch.NeuralNetRegressor(
                nn.Sequential(embedding, nn.Linear(defaults.embedding_dim, 1)),
                optimizer=torch.optim.AdamW,
                optimizer__lr=defaults.learning_rate_init,
                optimizer__weight_decay=defaults.weight_decay,
                max_epochs=defaults.max_iter,
                batch_size=defaults.batch_size,
                iterator_train__shuffle=True,
                train_split=ValidSplit(
                    defaults.validation_fraction, random_state=self.random_state
                ),
                callbacks=[
                    GradientNormClipping(MAX_GRADIENT_NORM),
                    EarlyStopping(patience=defaults.n_iter_no_change, load_best=True),
                ],
                verbose=0,
            ).fit(_to_tensor(X, self.scaler_), _to_tensor(column, self.target_scaler_, "y"))
        return self

    def transform(self, X):
        """Embed rows as the dense head sees them, shape (n_samples, embedding_dim)."""
        with torch.no_grad():
            return self.net_.module_[0](_to_tensor(X, self.scaler_)).numpy()

    def predict(self, X):
        """Predict targets of shape (n_queries,)."""
        scaled = self.net_.predict(_to_tensor(X, self.scaler_))
        return self.target_scaler_.inverse_transform(scaled).ravel()
