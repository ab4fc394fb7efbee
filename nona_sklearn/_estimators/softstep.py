"""SoftStep k-NN, which learns the neighbourhood, for numbers and for classes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .._data.sparse_encoder import SparseEncoder
from .._network.state import WithTrend
from .._utils.docs import with_parameters_of
from .._utils.storable import storable_estimator
from ..embedding import FeatureWeights, WeightedFeatures
from ..weighting import Weighting
from .architectures import SoftStepArchitecture
from .classification import NeighborClassifier
from .nona import NONAClassifier, NONARegressor
from .parameters import (
    CLASSIFIER_CONSTRAINTS,
    REGRESSOR_CONSTRAINTS,
    SOFTSTEP_CONSTRAINTS,
    ASSoftmax,
)
from .queries import fitted_snapshot
from .regression import NeighborRegressor
from .upgrades import upgrade_softstep


def feature_weights(estimator: Any) -> np.ndarray:
    """Share of each feature in the mean distance between two rows, (n_features,).

    Learned weights have shares in the squared distance. The share of a category or a date is the
    sum over its encoded columns.
    """
    fitted = fitted_snapshot(estimator)
    embedding = fitted.network_.embedding
    if isinstance(embedding, WithTrend):
        embedding = embedding.embedding
    if not isinstance(embedding, FeatureWeights | WeightedFeatures):
        raise AttributeError(
            "feature_weights_ needs a fit with similarity='features', or with "
            "learn_feature_weights=True and hidden_layer_sizes=None"
        )
    if isinstance(fitted.features_, SparseEncoder):
        raise AttributeError(
            "feature_weights_ needs a fit to a dense table, or to a sparse matrix of few "
            "columns: weights are of components, each of which has a part of every column"
        )
    source, n_columns = fitted.features_.source_, fitted.n_features_in_
    if isinstance(embedding, WeightedFeatures):
        source = source[embedding.columns.cpu()]
        ordered = np.sort(fitted.bank_.embeddings.cpu().numpy(), axis=0).astype(np.float64)
        ranks = np.arange(len(ordered))
        parts = (2 * ranks - ranks[-1]) @ ordered  # in proportion to mean absolute differences
    else:
        parts = embedding.weight.square().cpu().numpy() * (fitted.scaler_.var_ > 0)
    return np.bincount(source, parts, minlength=n_columns) / (parts.sum() or 1.0)


@storable_estimator(upgrade=upgrade_softstep)
@with_parameters_of(NONARegressor)
@dataclass(eq=False, repr=False, kw_only=True)
class SoftStepKNeighborsRegressor(NeighborRegressor):
    """Nearest neighbours regression that learns its neighbourhood.

    SoftStep [1]_ replaces k by a learned step on the similarities, which reduces the weights of
    far rows to 0. With ``softstep_params='pointwise'`` the step depends on the query. Rows are
    compared by their features, whose weights are learned; by their features as they are, such as
    precomputed embeddings (`learn_feature_weights`); or by a learned embedding
    (`hidden_layer_sizes`). The neighbours' targets are adjusted by a trend of the features
    (`trend`). In most tables, such a k-NN is itself the trend of a bank whose rows are found
    without a seed (`similarity`).

    Read more on :doc:`hyperparameters </tune>`.

    Parameters
    ----------
    n_neighbors : int, 'auto' or None, default='auto'
        Largest number of nearest rows behind a prediction. 'auto': with ``similarity='features'``,
        15, and 20 for classes. Otherwise with 's1' the number that the step keeps; with 's2' the
        smallest number on a grid from 10 to 100 whose loss, on the validation rows or by
        leave-one-out, is within one standard error of the lowest. None: all rows that the step
        keeps.

    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Columns of `X` that are categories. 'from_dtype': columns of strings, and a DataFrame's
        categoricals. An array holds names or numbers of columns, or is a boolean mask. None: no
        column; columns of strings are then an error. See :class:`TableEncoder` for the encoding of
        all kinds of columns. A sparse `X` has no categories.

    text_features : str, int, list, dict or None, default=None
        Columns of texts in a table, by name or number. A dict maps a column to a vectoriser of
        scikit-learn, or to a function of a list of str; otherwise texts are encoded by n-grams of
        characters. See :class:`TableEncoder`.

    max_categories : int, default=64
        Largest number of columns that a category is encoded as. A category of more levels is
        encoded by the mean targets of its levels. For a training row, the mean leaves out the
        row's own fold, so its encoding differs from the encoding of an equal query. With `groups`
        or `times`, rare levels share a column instead.

    weighting : str or Weighting, default='softmax'
        'uniform' weights neighbours by the step S alone, ``w = S / sum(S)``: k-NN with a soft k.
        'softmax' weights them also by similarity, ``w ~ S exp(similarity / temperature)``, with a
        learned temperature. The remaining values are as for :class:`NONARegressor`.

    similarity : {'auto', 'features', 'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='auto'
        The similarity by which rows are compared. 'features' is as for :class:`NONARegressor`: the
        l1 distance of the encoded features, which a kernel weights, without a seed. G is the
        prediction of this k-NN with 'log_l2' and its `trend`, from rows and with weights that it
        learns. Leave-one-out predictions of numbers neglect the effect of the row on residuals of
        the neighbours' neighbours: on four tables, from 0.1 to 4 % of the error.

        'log_l2', the negative logarithm of the Euclidean distance, gives weights of inverse
        distance to a learned power. 'l2', the negative distance, is used in the papers. 'auto' is
        'features' where `trend` is 'kernel', or a model where 'auto' would be 'kernel',
        `n_neighbors` is not None, `learn_feature_weights` is True, and `weighting` and the
        parameters of the step have their defaults; else 'log_l2'. ``similarity_`` is the choice.

    softstep : {'s1', 's2'}, default='s1'
        Step function (see :class:`SoftStep`): 's1' rejects all rows beyond a learned
        threshold, 's2' only reduces their weights.

    softstep_on : {'similarity', 'rank'}, default='rank'
        Input of the step: similarities, scaled to [0, 1] for each query, as in the paper; or
        scaled ranks, for which a threshold is a share of the rows.

    softstep_params : {'global', 'pointwise'}, default='global'
        Whether the step's parameters are the same for all queries or depend on the query.

    learn_feature_weights : bool, default=True
        Whether to learn positive weights of the standardised features, by the leave-one-out loss,
        starting from equal weights. False compares the features as they are given, such as
        embeddings. Unused with `hidden_layer_sizes`. With ``weighting='uniform'`` and
        ``softstep_on='rank'`` the weights stay equal, since ranks have no gradient.

    hidden_layer_sizes : int, array-like of int or None, default=None
        Widths of the hidden layers of a learned embedding of the standardised features; ``()``
        makes it linear. None: rows are compared by their features.

    embedding_dim : int, default=32
        Number of dimensions of the learned embedding. Unused with
        ``hidden_layer_sizes=None``.

    trend : {'auto', 'additive', 'kernel'}, regressor or None, default='auto'
        A model f of the table, by which the targets of neighbours are adjusted to the query, as an
        appraiser adjusts comparable sales. An adjusted target is ``f(query) + kept (y_j - f(j))``,
        where f(j) comes from a fit without row j. The share of the residuals that is kept is
        chosen by the validation rows or, without them, by leave-one-out; it is near 0.7 if there
        are few rows. The neighbourhood is learned for the residuals. Predictions may leave the
        range of the training targets, but not `bounds`. Far from all training rows, f fades. Rows
        that are added do not change it. There is no trend for fewer than 10 rows. None is the
        paper's estimator, ``weights @ targets``.

        'additive' is a ridge regression on the piecewise-linear encoding of each feature [2]_. Its
        penalty has the smallest leave-one-out error; with `groups` or `times`, whole groups or
        blocks of time are left out. f(j) is fitted to the four fifths of the rows without row j,
        to the groups without the group of row j, or to earlier rows. The trend is fitted to at
        most 8,192 rows; there is no trend for more than 1,024 encoded columns. The trend does not
        change when rows are removed.

        'kernel' and a regressor of scikit-learn's interface are as for :class:`NONARegressor`.
        'auto' is 'kernel' for up to 1,024 encoded columns, but 'additive' with `times` and for a
        sparse `X` of more than 300 columns. ``trend_`` is the choice.

    neighbor_pool : {'dataset', 'batch', 'memory'}, default='dataset'
        The neighbours in a training step, as for :class:`NONARegressor`.

    pool_size : int, default=1024
        Number of neighbours in a training step, including its batch; all training rows, if
        there are fewer. After training the step is narrowed for the whole bank.

    batch_size : int, default=256
        Number of queries in a step.

    learning_rate_init : float, default=0.03
        Learning rate of AdamW.

    max_iter : int, default=200
        Maximum number of epochs. If it ends training, fit issues a
        :class:`~sklearn.exceptions.ConvergenceWarning`.

    max_time : float or None, default=None
        Time limit of fit in seconds, for preparation, training and the embedding of the training
        rows. An epoch that would exceed the limit is not started, but there is at least one epoch.
        The weights of the best epoch are kept. None: no limit.

    early_stopping : bool, default=False
        Whether to set aside `validation_fraction` of the rows and to keep the weights of the
        epoch that predicts them best. If False, the epoch with the lowest training loss is
        kept: a leave-one-out loss, which the few parameters of a step rarely overfit. Use True
        with `hidden_layer_sizes`.

    n_iter_no_change : int, default=10
        Stop after this many epochs without improvement.

    verbose : bool or int, default=False
        1: a progress line on the standard error stream shows the epoch, the best loss, and an
        upper bound of the remaining time. 2: a table by skorch with a line per epoch. Both values
        show the progress of more than 4,096 predictions.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the validation split, the batches and the pools.

    Attributes
    ----------
    network_ : torch.nn.Module
        The trained network: ``network_.embedding`` (in float64) and ``network_.head``.

    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order.

    scaler_ : StandardScaler, SmoothClipScaler or None
        Standardises the features before they are weighted, without centring for 'dot' and
        'cosine'. In the given space it only centres them, for 'l2', 'log_l2' and 'l1', which does
        not change distances. Before a learned embedding it is the scaler of
        :class:`NONARegressor`.

    history_ : list of dict
        skorch's history, one dict per epoch: ``train_loss`` and ``valid_loss`` (mean squared
        errors of standardised targets, for several outputs their geometric mean), ``dur``
        (seconds), ``epoch``, and whether a loss is the best. The last epoch also has ``stopped``,
        the reason for the end of training: 'no change', 'max_iter' or 'max_time'. The epoch whose
        weights were kept has ``kept``, True.

    n_iter_ : int
        Number of epochs run.

    n_estimators_ : int
        Number of networks: 1.

    n_neighbors_ : int or None
        Largest number of rows behind a prediction; None: all rows.

    best_loss_ : float
        Validation loss of the epoch whose weights were kept, or training loss without
        `early_stopping`.

    feature_weights_ : ndarray of shape (`n_features_in_`,)
        Share of each feature in the mean distance between two rows, with learned feature weights
        in the squared distance; they sum to 1. The trend is not included (see
        :meth:`attribute_adjustments`). Only with ``similarity='features'`` or learned feature
        weights, and not for a wide sparse matrix.

    See Also
    --------
    NONARegressor : Learns an embedding, with several networks.
    sklearn.neighbors.KNeighborsRegressor : Neighbours in the given space, with a given k.

    Notes
    -----
    With ``learn_feature_weights=False``, as for any nearest neighbours method, features of
    different units need scaling first: put a :class:`~sklearn.preprocessing.StandardScaler`
    before it.

    References
    ----------
    .. [1] Susman, Lin, Suárez-Fariñas and Colonel, "SoftStep: Learning Sparse Similarity Powers
       Deep Neighbor-Based Regression", 2025, arXiv:2506.08139v2, section 3.
    .. [2] Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning",
       2022, section 3.2. Features of two values are linear. If more than 64 features have more
       than two values, all features are linear.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> knn = SoftStepKNeighborsRegressor(max_iter=2, random_state=0).fit(X[:400], y[:400])
    >>> round(knn.score(X[400:], y[400:]), 1)
    0.6
    """

    n_neighbors: int | str | None = field(default="auto", kw_only=False)
    categorical_features: Any = "from_dtype"
    text_features: Any = None
    max_categories: int = 64
    weighting: str | Weighting = "softmax"
    similarity: str = "auto"
    softstep: str = "s1"
    softstep_on: str = "rank"
    softstep_params: str = "global"
    algorithm: Any = "auto"
    learn_feature_weights: bool = True
    hidden_layer_sizes: Any = None
    embedding_dim: int = 32
    trend: Any = "auto"
    bounds: Any = None
    neighbor_pool: str = "dataset"
    pool_size: int = 1024
    batch_size: int | str = 256
    learning_rate_init: float = 0.03
    weight_decay: float = 1e-4
    max_iter: int = 200
    max_time: float | None = None
    early_stopping: bool = False
    validation_fraction: Any = 0.15
    n_iter_no_change: int = 10
    device: str | torch.device = "auto"
    warm_start: bool = False
    verbose: bool | int = False
    random_state: Any = None

    trend_ = None  # before fit, and in files of earlier versions
    similarity_ = "log_l2"  # in files of earlier versions

    _parameter_constraints = SOFTSTEP_CONSTRAINTS | REGRESSOR_CONSTRAINTS
    feature_weights_ = property(feature_weights)

    def _architecture(self):
        return SoftStepArchitecture.from_params(self)


@storable_estimator(upgrade=upgrade_softstep)
@with_parameters_of(NONAClassifier, SoftStepKNeighborsRegressor)
@dataclass(eq=False, repr=False, kw_only=True)
class SoftStepKNeighborsClassifier(NeighborClassifier):
    """Nearest neighbours classification that learns its neighbourhood.

    SoftStep [1]_ replaces k by a learned step on the similarities, which reduces the weights of
    far rows to 0. With ``softstep_params='pointwise'`` the step depends on the query. Rows are
    compared by their features, whose weights are learned; by their features as they are, such as
    precomputed embeddings (`learn_feature_weights`); or by a learned embedding
    (`hidden_layer_sizes`). In most tables, kernel ridge regression has a share in the odds of the
    classes (`trend`), and such a k-NN is itself the trend of a bank whose rows are found without a
    seed (`similarity`).

    Read more on :doc:`classification </classes>`.

    Parameters
    ----------
    class_weight : dict, list of dict, 'balanced' or None, default=None
        Weights of the classes, as for :class:`NONAClassifier`.

    smoothing : bool, default=True
        Whether the classes' frequencies have a learned share in the probabilities, so that no
        probability is 0. False is the paper's form: with ``trend=None``, a probability is a sum of
        the rows' weights.

    trend : {'auto', 'kernel', 'additive'}, classifier or None, default='auto'
        A second model of the table, whose probabilities F have a share b in the logarithms of
        the odds, ``P(c) ~ votes_c^(1 - b) F(c)^b``, as for :class:`NONAClassifier`. Without
        `early_stopping`, b is 0.7. There is no trend for fewer than 10 rows. None is the paper's
        estimator. 'auto' is 'kernel' for up to 1,024 encoded columns; None with `times` and for a
        sparse `X` of more than 300 columns.

    early_stopping : bool, default=True
        Whether to set aside `validation_fraction` of the rows, to keep the weights of the epoch
        that predicts them best, and to choose temperature and smoothing by them. If False, the
        epoch with the lowest training loss is kept: a leave-one-out loss, which the weights
        of many features overfit if there are few rows.

    Attributes
    ----------
    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order;
        targets are one-hot, and several outputs are side by side.

    targets_ : ClassTargets
        The classes of `y` and their frequencies.

    history_ : list of dict
        As for :class:`NONAClassifier`.

    See Also
    --------
    NONAClassifier : Learns an embedding, with several networks.
    SoftStepKNeighborsRegressor : The regressor.
    sklearn.neighbors.KNeighborsClassifier : Neighbours in the given space, with a given k.

    References
    ----------
    .. [1] Susman, Lin, Suárez-Fariñas and Colonel, "SoftStep: Learning Sparse Similarity Powers
       Deep Neighbor-Based Regression", 2025, arXiv:2506.08139v2, section 3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nona_sklearn import SoftStepKNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> knn = SoftStepKNeighborsClassifier(max_iter=5, random_state=0).fit(X[::2], y[::2])
    >>> knn.predict(X[[1, 51, 149]])
    array([0, 1, 2])
    >>> knn.predict_proba(X[1:2]).round(1)
    array([[1., 0., 0.]])
    """

    n_neighbors: int | str | None = field(default="auto", kw_only=False)
    loss: str | ASSoftmax = "log_loss"
    class_weight: Any = None
    smoothing: bool = True
    categorical_features: Any = "from_dtype"
    text_features: Any = None
    max_categories: int = 64
    weighting: str | Weighting = "softmax"
    similarity: str = "auto"
    softstep: str = "s1"
    softstep_on: str = "rank"
    softstep_params: str = "global"
    algorithm: Any = "auto"
    learn_feature_weights: bool = True
    hidden_layer_sizes: Any = None
    embedding_dim: int = 32
    trend: Any = "auto"
    neighbor_pool: str = "dataset"
    pool_size: int = 1024
    batch_size: int | str = 256
    learning_rate_init: float = 0.03
    weight_decay: float = 1e-4
    max_iter: int = 200
    max_time: float | None = None
    early_stopping: bool = True
    validation_fraction: Any = 0.15
    n_iter_no_change: int = 10
    device: str | torch.device = "auto"
    warm_start: bool = False
    verbose: bool | int = False
    random_state: Any = None

    trend_ = None  # before fit, and in files of earlier versions
    similarity_ = "log_l2"  # in files of earlier versions

    _parameter_constraints = (
        SOFTSTEP_CONSTRAINTS | CLASSIFIER_CONSTRAINTS | {"smoothing": ["boolean"]}
    )
    feature_weights_ = property(feature_weights)

    def _architecture(self):
        return SoftStepArchitecture.from_params(self)
