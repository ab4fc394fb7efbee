"""Components of a wide table: what many columns have in common, and with the targets."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import block_diag
from sklearn.decomposition import PCA
from torch import Tensor, nn

from .._utils.threads import one_blas_thread

LEAST = 0.25  # of what chance gives a column: targets may depend on it in another way


def supervised_components(
    X: Tensor, y: Tensor, n_components: int, n_further: int = 0
) -> nn.Linear:
    """Find principal components of columns that count by their relevance to the targets.

    Each column is weighted by the root of its relevance, so that the first components are of what
    relevant columns have in common. This is "Prediction by Supervised Principal Components" (Bair
    et al., 2006) with weights in place of a threshold.

    Parameters
    ----------
    X : Tensor of shape (n, n_features)
        Scaled features of training rows.
    y : Tensor of shape (n,) or (n, n_outputs)
        Their targets.
    n_components : int
        Largest number of components.
    n_further : int, default=0
        Number of last columns of `X` that are no part of components, and follow them.

    Returns
    -------
    Linear
        Maps X to components whose mean square is 1, (n, n_components + n_further). It is not
        trained.
    """
    n_features = X.shape[1] - n_further
    rows, targets = X[:, :n_features].double().numpy(), y.double().reshape(len(y), -1).numpy()
    pca = PCA(min(n_components, *rows.shape), random_state=0).set_output(transform="default")
    with one_blas_thread():
        weights = np.sqrt(relevance(rows, targets))
        with np.errstate(invalid="ignore"):  # shares of a variance that is 0
            scores = pca.fit_transform(rows * weights)
    unit = np.sqrt(np.mean(scores**2)) or 1.0
    matrix = pca.components_ * weights / unit
    shift = np.append(-matrix @ rows.mean(axis=0), np.zeros(n_further))
    matrix = block_diag(matrix, np.eye(n_further))
    components = nn.Linear(*matrix.T.shape)
    components.weight.data = torch.tensor(matrix, dtype=torch.float32)
    components.bias.data = torch.tensor(shift, dtype=torch.float32)
    return components.requires_grad_(False)


def relevance(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Share of each column's variance that the targets explain beyond chance, (n_features,).

    It is the adjusted R^2 of a linear regression of the column on the targets, for classes that
    of an analysis of variance, and at least :data:`LEAST` of what chance explains.
    """
    X, y = X - X.mean(axis=0), y - y.mean(axis=0)
    directions, sizes, _ = np.linalg.svd(y, full_matrices=False)
    directions = directions[:, sizes > np.finfo(float).eps * len(y) * sizes.max()]
    variances = (X**2).sum(axis=0)
    explained = ((directions.T @ X) ** 2).sum(axis=0) / np.where(variances > 0, variances, 1)
    by_chance = max(1, directions.shape[1]) / max(1, len(y) - 1)
    return np.maximum(explained - by_chance * (1 - explained), 0) + LEAST * by_chance
