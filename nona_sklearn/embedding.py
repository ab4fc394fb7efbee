"""Embeddings: where neighbours are worth averaging.

:class:`MLPEmbedding` maps features to the space of the neighbours; before it,
:class:`PeriodicEmbedding` may widen each numerical feature.
"""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ._validation import check_choice

__all__ = ["ACTIVATIONS", "MLPEmbedding", "PeriodicEmbedding"]

#: Activations by the names that scikit-learn's MLPRegressor uses.
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
}


class MLPEmbedding(nn.Module):
    """Multi-layer perceptron whose last layer is linear.

    Parameters
    ----------
    n_features : int
        Number of input features.
    embedding_dim : int
        Number of output dimensions `d`.
    hidden_layer_sizes : sequence of int, default=()
        Width of each hidden layer; none is a linear embedding.
    activation : {'identity', 'logistic', 'relu', 'tanh'}, default='relu'
        Activation after each hidden layer.

    Raises
    ------
    ValueError
        If `activation` is unknown.

    Notes
    -----
    Shape:

    - input: (n, n_features)
    - output: (n, embedding_dim)

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import MLPEmbedding
    >>> MLPEmbedding(8, 2, hidden_layer_sizes=(16,))(torch.zeros(5, 8)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        n_features: int,
        embedding_dim: int,
        hidden_layer_sizes: Sequence[int] = (),
        activation: str = "relu",
    ):
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        widths = [n_features, *hidden_layer_sizes]
        layers: list[nn.Module] = []
        for width_in, width_out in itertools.pairwise(widths):
            layers += [nn.Linear(width_in, width_out), ACTIVATIONS[activation]()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], embedding_dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class PeriodicEmbedding(nn.Module):
    """Sines and cosines of each feature at learned frequencies, mixed by one small layer.

    Known as PLR-lite: ``relu(Linear([cos(2 pi c x), sin(2 pi c x)]))`` with one Linear for
    all features (Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep
    Learning", section 3.3; ModernNCA puts one linear layer on top). It lets a
    shallow embedding follow functions that are not smooth in a feature.

    Parameters
    ----------
    n_features : int
        Number of input features; expected to be standardised.
    n_frequencies : int, default=16
        Number of frequencies `c` per feature.
    frequency_scale : float, default=0.05
        Standard deviation of the initial frequencies, in periods per unit.
    width : int, default=16
        Number of outputs per feature.

    Notes
    -----
    Shape:

    - input: (n, n_features)
    - output: (n, n_features * width)

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import PeriodicEmbedding
    >>> PeriodicEmbedding(8, width=4)(torch.zeros(5, 8)).shape
    torch.Size([5, 32])
    """

    def __init__(
        self,
        n_features: int,
        n_frequencies: int = 16,
        frequency_scale: float = 0.05,
        width: int = 16,
    ):
        super().__init__()
        self.out_features = n_features * width
        self.frequencies = nn.Parameter(frequency_scale * torch.randn(n_features, n_frequencies))
        self.linear = nn.Linear(2 * n_frequencies, width)

    def forward(self, x: Tensor) -> Tensor:
        angle = 2 * math.pi * self.frequencies * x[..., None]  # (n, n_features, n_frequencies)
        waves = torch.cat([angle.cos(), angle.sin()], dim=-1)  # (n, n_features, 2 n_frequencies)
        return self.linear(waves).relu().flatten(1)  # (n, n_features * width)
