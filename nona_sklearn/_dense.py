"""The rival: the same embedding under a dense head, trained with the same budget."""

import numpy as np
import skorch
import torch
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import EarlyStopping, GradientNormClipping
from skorch.dataset import ValidSplit
from torch import nn

from ._base import _local_seed, _to_tensor
from ._regressor import NONARegressor
from ._training import MAX_GRADIENT_NORM, resolve_batch_size, resolve_n_estimators


class DenseHeadRegressor(TransformerMixin, RegressorMixin, BaseEstimator):
    """What :class:`NONARegressor` would be without neighbours: for comparisons.

    Everything but the head is NONARegressor's default, the average of several networks included.

    Parameters
    ----------
    hidden_layer_sizes : array-like of int, default=(128,)
        Width of each hidden layer of the embedding.
    random_state : int, default=0
        Seed of the initial weights, the validation splits and the batches.
    """

    def __init__(self, hidden_layer_sizes=(128,), random_state=0):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.random_state = random_state

    def fit(self, X, y):
        """Train on `X` of shape (n_samples, n_features) and `y` of shape (n_samples,)."""
        like = NONARegressor(hidden_layer_sizes=self.hidden_layer_sizes)
        self.scaler_ = like._make_scaler().fit(X)
        column = y.reshape(-1, 1)
        self.target_scaler_ = StandardScaler().fit(column)
        X, y = _to_tensor(X, self.scaler_), _to_tensor(column, self.target_scaler_, "y")
        seeds = np.random.default_rng(self.random_state).integers(
            2**31, size=resolve_n_estimators(like.n_estimators, len(X))
        )
        self.nets_ = [self._train(like, X, y, int(seed)) for seed in seeds]
        return self

    def _train(self, like, X, y, seed):
        with _local_seed(seed):
            head = nn.Sequential(nn.ReLU(), nn.Linear(like.embedding_dim, 1))
            return skorch.NeuralNetRegressor(
                nn.Sequential(like._make_embedding(X), head),
                optimizer=torch.optim.AdamW,
                optimizer__fused=True,
                optimizer__lr=like.learning_rate_init,
                optimizer__weight_decay=like.weight_decay,
                max_epochs=like.max_iter,
                batch_size=resolve_batch_size(like.batch_size, len(X)),
                iterator_train__shuffle=True,
                train_split=ValidSplit(like.validation_fraction, random_state=seed),
                callbacks=[
                    GradientNormClipping(MAX_GRADIENT_NORM),
                    EarlyStopping(patience=like.n_iter_no_change, load_best=True),
                ],
                verbose=0,
            ).fit(X, y)

    def transform(self, X):
        """Embed rows as the dense heads see them, (n_samples, n_estimators * embedding_dim)."""
        X = _to_tensor(X, self.scaler_)
        with torch.no_grad():
            return torch.cat([net.module_[0](X) for net in self.nets_], dim=1).numpy()

    def predict(self, X):
        """Predict targets of shape (n_queries,)."""
        X = _to_tensor(X, self.scaler_)
        scaled = np.mean([net.predict(X) for net in self.nets_], axis=0)
        return self.target_scaler_.inverse_transform(scaled).ravel()
