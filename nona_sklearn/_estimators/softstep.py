"""SoftStep k-NN: the neighbourhood is learned, for numbers and for classes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .._data.sparse_encoder import SparseEncoder
from .._network.trend import WithTrend
from .._utils.docstrings import with_parameters_of
from .._utils.storable import storable_estimator
from ..embedding import FeatureWeights
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
from .upgrades import upgrade_softstep, upgrade_softstep_regressor


def feature_importances(estimator: Any) -> np.ndarray:
    """Share of each feature in the mean squared distance between two rows, (n_features,).

    Of a category or a date, that of all columns that it became.
    """
    fitted = fitted_snapshot(estimator)
    embedding = fitted.network_.embedding
    if isinstance(embedding, WithTrend):
        embedding = embedding.embedding
    if not isinstance(embedding, FeatureWeights):
        raise AttributeError(
            "feature_importances_ needs a fit with learn_feature_weights=True and "
            "hidden_layer_sizes=None"
        )
    if isinstance(fitted.features_, SparseEncoder):
        raise AttributeError(
            "feature_importances_ needs a fit to a dense table, or to a sparse matrix of few "
            "columns: weights are of components, each of which has a part of every column"
        )
    squares = embedding.weight.square().cpu().numpy() * (fitted.scaler_.var_ > 0)
    source, n_columns = fitted.features_.source_, fitted.n_features_in_
    of_columns = np.bincount(source, squares, minlength=n_columns)
    return of_columns / (squares.sum() or 1.0)


@storable_estimator(upgrade=upgrade_softstep_regressor)
@with_parameters_of(NONARegressor)
@dataclass(eq=False, repr=False, kw_only=True)
class SoftStepKNeighborsRegressor(NeighborRegressor):
    """Nearest neighbours regression that learns its neighbourhood.

    SoftStep (arXiv 2506.08139v2) takes the place of k: a learned step on the similarities
    rejects the rows that are too far, softly and, with ``softstep_params='pointwise'``, for each
    query anew. The space is
    that of the features, each of which learns how much it counts; or the given one, of
    precomputed embeddings for example; or an embedding that is learned as well
    (`hidden_layer_sizes`). The neighbours' targets are adjusted by an additive trend of the
    features (`adjust`).

    Read more on :doc:`hyperparameters </tune>`.

    Parameters
    ----------
    n_neighbors : int, 'auto' or None, default='auto'
        Largest number of rows behind a prediction, the nearest to the query. 'auto': with 's1',
        the step's own; else the fewest, of some numbers from 10 to 100, whose validation loss is
        within chance of the best, or without validation rows the leave-one-out loss. None: all
        rows that the step keeps.

    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Which columns of `X` are categories. 'from_dtype': those that hold strings, and a
        DataFrame's categoricals. Otherwise their names, their numbers, or a mask of bool. None:
        no column; one that holds strings is refused then. What becomes of each kind of column,
        see :class:`TableEncoder`. A sparse `X` has none.

    text_features : str, int, list, dict or None, default=None
        Columns of texts in a table, by name or number, each with a vectoriser of scikit-learn or a
        function of a list of str in a dict; without one, by n-grams of characters. See
        :class:`TableEncoder`.

    max_categories : int, default=64
        Largest number of columns that one category becomes. One of more levels becomes the mean
        target of each level instead, computed from other rows for a training row, which therefore
        differs from an equal query. With `groups` or `times`, rare levels share a column instead.
        Unused with a `feature_extractor`.

    weighting : str or Weighting, default='softmax'
        'uniform' weighs neighbours by the step S alone, ``w = S / sum(S)``: k-NN with a soft
        k. 'softmax' also by similarity, ``w ~ S exp(similarity / temperature)``, with a
        learned temperature. Others as for :class:`NONARegressor`.

    similarity : {'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='log_l2'
        Similarity between rows. 'log_l2', the negative logarithm of the Euclidean distance,
        weighs by inverse distance, to a power that is learned; 'l2', the negative distance,
        is the papers'.

    softstep : {'s1', 's2'}, default='s1'
        Step function (see :class:`SoftStep`): 's1' rejects all rows beyond a learned
        threshold, 's2' only fades them.

    softstep_on : {'similarity', 'rank'}, default='rank'
        Whether the step acts on similarities, scaled to [0, 1] for each query, as in the
        paper, or on their scaled ranks, where a threshold means a share of the rows, be they
        near or far.

    softstep_params : {'global', 'pointwise'}, default='global'
        Whether the step's parameters are the same for all queries or depend on the query.

    learn_feature_weights : bool, default=True
        Whether to learn a positive weight of each feature, a diagonal metric, by the same
        leave-one-out loss, from equal weights of standardised features: no scaler is needed.
        False takes the space as it is given, for embeddings. Unused with
        `hidden_layer_sizes`. With ``weighting='uniform'`` and ``softstep_on='rank'`` the weights
        stay as they start, since ranks have no gradient.

    hidden_layer_sizes : int, array-like of int or None, default=None
        None compares rows in the space of their features. A sequence learns an embedding with
        these hidden layers, ``()`` a linear one, of standardised features.

    embedding_dim : int, default=32
        Number of dimensions of the learned embedding. Unused with
        ``hidden_layer_sizes=None``.

    adjust : bool, default=True
        Whether a neighbour's target is adjusted by the difference that an additive trend makes
        between it and the query, as an appraiser adjusts comparable sales: ``y_j + g(query) -
        g(j)``. The trend g is a ridge regression on the piecewise-linear encoding of each feature
        (Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", 2022,
        section 3.2), on features of two values or where more than 64 have more than two linear;
        there is none for fewer than 10 rows or of more than 1,024 encoded columns. Its penalty is
        that of the least leave-one-out error, with `groups` or `times` of whole groups or blocks
        of time. The g of a training row is fitted to other rows. Predictions may leave the range
        of the targets, but not `bounds`; far from all training rows the adjustment fades. False
        is the paper's form, ``weights @ targets``: a weighted mean of training targets, within
        their range.

    neighbor_pool : {'dataset', 'batch', 'memory'}, default='dataset'
        The neighbours of a training step, as for :class:`NONARegressor`.

    pool_size : int, default=1024
        Number of neighbours of each step, its batch among them; all training rows, if there
        are fewer. After training the step is narrowed to what suits the whole bank.

    batch_size : int, default=256
        Number of queries of each step.

    learning_rate_init : float, default=0.03
        Learning rate of AdamW.

    max_iter : int, default=200
        Maximum number of epochs. Where it ends training, fit warns
        (:class:`~sklearn.exceptions.ConvergenceWarning`).

    max_time : float or None, default=None
        Seconds for the fit: its preparation, training, and the embedding of the training rows.
        An epoch that would end later does not begin, but there is one at least. The best epoch
        so far is kept. None sets no limit.

    early_stopping : bool, default=False
        Whether to set aside `validation_fraction` of the rows and to keep the weights of the
        epoch that predicts them best. If False, the epoch with the lowest training loss is
        kept: a leave-one-out loss, which the few parameters of a step hardly overfit. Use True
        with `hidden_layer_sizes`.

    n_iter_no_change : int, default=10
        Stop after this many epochs without improvement.

    verbose : bool or int, default=False
        1: a line on the standard error stream, by tqdm, shows the epoch and the best loss, and how
        long training may take at most. 2: skorch's table, a line for each epoch. With either, a
        line shows how many of more than 4,096 predictions are done.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the validation split, the batches and the pools.

    Attributes
    ----------
    network_ : torch.nn.Module
        The trained network: ``network_.embedding`` (in float64) and ``network_.head``.

    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order.

    scaler_ : StandardScaler, SmoothClipScaler or None
        Standardises the features before they are weighted, without centring them for dot and
        cosine. In the given space it only centres them, for l2, log_l2 and l1, which leaves
        distances as they are. Before a learned embedding it is that of :class:`NONARegressor`.

    history_ : list of dict
        skorch's history of each epoch: ``train_loss`` and ``valid_loss`` (mean squared errors
        of standardised targets, of several outputs their geometric mean), ``dur`` (seconds),
        ``epoch``, and whether a loss is the best. The last one also holds ``stopped``, why there
        are no more: 'no change', 'max_iter' or 'max_time'; and the one whose weights were kept
        ``kept``, True.

    n_iter_ : int
        Number of epochs run.

    n_estimators_ : int
        Number of networks: 1.

    n_neighbors_ : int or None
        Largest number of rows that a prediction can have; None: all.

    best_loss_ : float
        Loss of the epoch whose weights were kept: of the validation rows, or without
        `early_stopping` in training.

    feature_importances_ : ndarray of shape (`n_features_in_`,)
        Share of each feature in the mean squared distance between two rows; sums to 1. With
        `adjust`, what the trend has of a feature is no part of it
        (:meth:`attribute_adjustments`). Only with learned feature weights, and not of a wide
        sparse matrix.

    See Also
    --------
    NONARegressor : Learns the space as well.
    sklearn.neighbors.KNeighborsRegressor : The same with a hard, given k.

    Notes
    -----
    With ``learn_feature_weights=False``, as for any nearest neighbours method, features of
    different units need scaling first: put a :class:`~sklearn.preprocessing.StandardScaler`
    before it.

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
    similarity: str = "log_l2"
    softstep: str = "s1"
    softstep_on: str = "rank"
    softstep_params: str = "global"
    algorithm: Any = "auto"
    learn_feature_weights: bool = True
    hidden_layer_sizes: Any = None
    embedding_dim: int = 32
    adjust: bool = True
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

    _parameter_constraints = SOFTSTEP_CONSTRAINTS | REGRESSOR_CONSTRAINTS | {"adjust": ["boolean"]}
    feature_importances_ = property(feature_importances)

    def _architecture(self):
        return SoftStepArchitecture(self)


@storable_estimator(upgrade=upgrade_softstep)
@with_parameters_of(NONAClassifier, SoftStepKNeighborsRegressor)
@dataclass(eq=False, repr=False, kw_only=True)
class SoftStepKNeighborsClassifier(NeighborClassifier):
    """Nearest neighbours classification that learns its neighbourhood.

    SoftStep (arXiv 2506.08139v2) plays the part of k: a learned step on the similarities
    rejects the rows that are too far, softly and, with ``softstep_params='pointwise'``, for each
    query anew. The space is
    that of the features, each of which learns how much it counts; or the given one, of
    precomputed embeddings for example; or an embedding that is learned as well
    (`hidden_layer_sizes`).

    Read more in the :doc:`user guide </classes>`.

    Parameters
    ----------
    class_weight : dict, list of dict, 'balanced' or None, default=None
        How much the rows of each class count, as for :class:`NONAClassifier`.

    smoothing : bool, default=True
        Whether the classes' frequencies have a learned share in each probability, so that none
        is 0. False is the papers' form: the rows are exactly behind each probability.

    early_stopping : bool, default=True
        Whether to set aside `validation_fraction` of the rows, to keep the weights of the epoch
        that predicts them best, and to choose temperature and smoothing by them. If False, the
        epoch with the lowest training loss is kept: a leave-one-out loss, which the weights
        of many features overfit where rows are few.

    Attributes
    ----------
    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order;
        targets are one-hot, those of several outputs side by side.

    targets_ : ClassTargets
        What `y` is: its classes, and how frequent they are.

    history_ : list of dict
        As for :class:`NONAClassifier`.

    See Also
    --------
    NONAClassifier : Learns the space as well.
    SoftStepKNeighborsRegressor : The same for numbers.
    sklearn.neighbors.KNeighborsClassifier : The same with a hard, given k.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nona_sklearn import SoftStepKNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> knn = SoftStepKNeighborsClassifier(max_iter=5, random_state=0).fit(X[::2], y[::2])
    >>> knn.predict(X[[1, 51, 149]])
    array([0, 1, 2])
    >>> round(knn.score(X[1::2], y[1::2]), 1)
    1.0
    """

    n_neighbors: int | str | None = field(default="auto", kw_only=False)
    loss: str | ASSoftmax = "log_loss"
    class_weight: Any = None
    smoothing: bool = True
    categorical_features: Any = "from_dtype"
    text_features: Any = None
    max_categories: int = 64
    weighting: str | Weighting = "softmax"
    similarity: str = "log_l2"
    softstep: str = "s1"
    softstep_on: str = "rank"
    softstep_params: str = "global"
    algorithm: Any = "auto"
    learn_feature_weights: bool = True
    hidden_layer_sizes: Any = None
    embedding_dim: int = 32
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

    _parameter_constraints = (
        SOFTSTEP_CONSTRAINTS | CLASSIFIER_CONSTRAINTS | {"smoothing": ["boolean"]}
    )
    feature_importances_ = property(feature_importances)

    def _architecture(self):
        return SoftStepArchitecture(self)
