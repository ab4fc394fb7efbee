"""Embeddings: the space in which rows are compared.

:class:`MLPEmbedding` maps features to it; before it, :class:`PeriodicEmbedding` may widen each
numerical feature. :class:`FeatureWeights` and :class:`WeightedFeatures` only scale the features.
"""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ._utils.validation import check_choice

__all__ = ["ACTIVATIONS", "FeatureWeights", "MLPEmbedding", "PeriodicEmbedding"]

#: Activations by the names that scikit-learn's MLPRegressor uses.
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
}

SMALL_START = 0.1  # of the last layer's usual initial weights, beside a skip connection


class FeatureWeights(nn.Module):
    """Each feature times a learned positive number: a diagonal metric on (n, n_features).

    Parameters
    ----------
    n_features : int
        Number of features; expected to be standardised, since all weights start at 1.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.embedding import FeatureWeights
    >>> FeatureWeights(3)(torch.ones(1, 3))
    tensor([[1., 1., 1.]], grad_fn=<MulBackward0>)
    """

    def __init__(self, n_features: int):
        super().__init__()
        self.log_weight = nn.Parameter(torch.zeros(n_features))

    @property
    def weight(self) -> Tensor:
        """The weights, (n_features,)."""
        return self.log_weight.exp()

    def forward(self, x: Tensor) -> Tensor:
        """Multiply each feature by its weight.

        Parameters
        ----------
        x : Tensor of shape (n, n_features)
            Standardised features.

        Returns
        -------
        Tensor of shape (n, n_features)
            Weighted features.
        """
        return x * self.weight


class WeightedFeatures(nn.Module):
    """Features times fixed numbers, without those of 0: (n, n_features) -> (n, n_selected).

    Parameters
    ----------
    weights : Tensor of shape (n_features,)
        The numbers, of which at least one is not 0.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.embedding import WeightedFeatures
    >>> WeightedFeatures(torch.tensor([2.0, 0.0, 0.5]))(torch.ones(1, 3))
    tensor([[2.0000, 0.5000]])
    """

    columns: Tensor
    weights: Tensor

    def __init__(self, weights: Tensor):
        super().__init__()
        columns = weights.nonzero()[:, 0]
        self.register_buffer("columns", columns)
        self.register_buffer("weights", weights[columns])

    def forward(self, x: Tensor) -> Tensor:
        """Select the features and multiply each by its number.

        Parameters
        ----------
        x : Tensor of shape (n, n_features)
            Standardised features.

        Returns
        -------
        Tensor of shape (n, n_selected)
            Weighted features.
        """
        return x.index_select(1, self.columns) * self.weights


class MLPEmbedding(nn.Module):
    """Multi-layer perceptron with a linear last layer: (n, n_features) -> (n, embedding_dim).

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
    batch_norm : bool, default=False
        Whether to normalise each hidden layer over the batch, before its activation.
    skip_connection : bool, default=False
        Whether to add a linear map of the input to the output. The hidden layers then start
        small, so that training begins near a linear embedding.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn import MLPEmbedding
    >>> embedding = MLPEmbedding(8, 2, hidden_layer_sizes=(16,))
    >>> sum(parameter.numel() for parameter in embedding.parameters())  # 9 * 16 + 17 * 2
    178
    >>> z = embedding(torch.zeros(5, 8))
    >>> f"{len(z)} rows in {z.shape[1]} dimensions"
    '5 rows in 2 dimensions'
    """

    def __init__(
        self,
        n_features: int,
        embedding_dim: int,
        hidden_layer_sizes: Sequence[int] = (),
        activation: str = "relu",
        batch_norm: bool = False,
        skip_connection: bool = False,
    ):
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        widths = [n_features, *hidden_layer_sizes]
        layers: list[nn.Module] = []
        for width_in, width_out in itertools.pairwise(widths):
            layers.append(nn.Linear(width_in, width_out))
            if batch_norm:
                layers.append(nn.BatchNorm1d(width_out))
            layers.append(ACTIVATIONS[activation]())
        last = nn.Linear(widths[-1], embedding_dim)
        self.layers = nn.Sequential(*layers, last)
        self.shortcut = nn.Linear(n_features, embedding_dim) if skip_connection else None
        if skip_connection:
            with torch.no_grad():
                last.weight *= SMALL_START

    def forward(self, x: Tensor) -> Tensor:
        """Embed rows.

        Parameters
        ----------
        x : Tensor of shape (n, n_features)
            Features.

        Returns
        -------
        Tensor of shape (n, embedding_dim)
            Embeddings.
        """
        return self.layers(x) if self.shortcut is None else self.layers(x) + self.shortcut(x)

    @torch.no_grad()
    def zero_(self) -> None:
        """Map all rows to 0 from now on."""
        for layer in (self.layers[-1], self.shortcut):
            for parameter in [] if layer is None else layer.parameters():
                parameter.zero_()


class PeriodicEmbedding(nn.Module):
    """Each feature, and a linear map of its sines with learned frequencies and phases.

    Known as PBLD: ``[x, Linear(sin(2 pi c x + b))]`` with a small linear layer for each feature
    [1]_, [2]_. It lets a shallow embedding fit functions that are not smooth in a feature. The
    papers use the cosine, which is equivalent, since the phases `b` cover the circle. The output,
    (n, out_features), holds the widened features, the linear maps, and the other features.

    Parameters
    ----------
    n_features : int
        Number of input features; expected to be standardised.
    columns : sequence of int, optional
        The features to widen; the others, such as binary ones, are not changed. None: all.
    n_frequencies : int, default=16
        Number of frequencies `c` per feature.
    frequency_scale : float, default=0.1
        Standard deviation of the initial frequencies, in periods per unit.
    width : int, default=8
        Number of outputs per widened feature, itself included.

    References
    ----------
    .. [1] Holzmüller et al., "Better by Default", 2024, arXiv:2407.04491, section 3.
    .. [2] Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", 2022,
       arXiv:2203.05556, section 3.3.

    Examples
    --------
    >>> from nona_sklearn import PeriodicEmbedding
    >>> PeriodicEmbedding(8, width=4).out_features  # 8 * 4
    32
    >>> PeriodicEmbedding(8, columns=[0, 1], width=4).out_features  # 2 * 4 + 6
    14
    """

    def __init__(
        self,
        n_features: int,
        columns: Sequence[int] | None = None,
        n_frequencies: int = 16,
        frequency_scale: float = 0.1,
        width: int = 8,
    ):
        super().__init__()
        self.widened: Tensor
        self.passing: Tensor
        widened = torch.zeros(n_features, dtype=torch.bool)
        widened[list(range(n_features) if columns is None else columns)] = True
        n_widened = int(widened.sum())
        # As positions: the number that a mask selects is unknown in an exported graph.
        self.register_buffer("widened", widened.nonzero()[:, 0])
        self.register_buffer("passing", (~widened).nonzero()[:, 0])
        self.out_features = n_widened * width + n_features - n_widened
        bound = 1 / math.sqrt(n_frequencies)  # nn.Linear's
        mixes = width - 1
        self.frequencies = nn.Parameter(frequency_scale * torch.randn(n_widened, n_frequencies, 1))
        self.phases = nn.Parameter(_uniform(math.pi, n_widened, n_frequencies, 1))
        self.weight = nn.Parameter(_uniform(bound, n_widened, mixes, n_frequencies))
        self.bias = nn.Parameter(_uniform(bound, n_widened, mixes, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Widen numerical features by their waves.

        Parameters
        ----------
        x : Tensor of shape (n, n_features)
            Standardised features.

        Returns
        -------
        Tensor of shape (n, out_features)
            The widened features, the mixes of their waves, and the other features, in this order.
        """
        # Features before rows: the products run along the rows, the longest dimension.
        columns = x.T.contiguous()
        numbers = columns[self.widened]  # (widened, n)
        angles = torch.baddbmm(self.phases, 2 * math.pi * self.frequencies, numbers[:, None])
        mixed = torch.baddbmm(self.bias, self.weight, angles.sin())  # (widened, width - 1, n)
        return torch.cat([numbers, mixed.flatten(0, 1), columns[self.passing]]).T


def _uniform(bound: float, *shape: int) -> Tensor:
    return bound * (2 * torch.rand(shape) - 1)
