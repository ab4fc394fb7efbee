"""SoftStep k-NN, which learns the neighbourhood, for numbers and for classes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .._data.source import SparseEncoder
from .._data.table_encoder import TableEncoder
from .._network.network import WithTrend
from .._utils.storable import storable_estimator
from ..embedding import FeatureWeights, WeightedFeatures
from ..softstep import SoftStep
from ..weighting import Weighting
from .architectures import SoftStepArchitecture
from .classification import NeighborClassifier
from .parameters import (
    CLASSIFIER_CONSTRAINTS,
    REGRESSOR_CONSTRAINTS,
    SOFTSTEP_CONSTRAINTS,
    ASSoftmax,
    TrainingOptions,
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
@dataclass(eq=False, repr=False, kw_only=True)
class SoftStepKNeighborsRegressor(NeighborRegressor):
    """Nearest neighbours regression that learns its neighbourhood.

    SoftStep [1]_ replaces k by a learned step on the similarities, which reduces the weights of
    far rows to 0. A pointwise step depends on the query. Rows are
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
        15. Otherwise with 's1' the number that the step keeps; with 's2' the smallest number on a
        grid from 10 to 100 whose loss, on the validation rows or by leave-one-out, is within one
        standard error of the lowest. None: all rows that the step keeps.

    table_encoder : TableEncoder or None, default=None
        Encoder of the columns of a table, which names the categories and the texts. A fit uses a
        copy. None: ``TableEncoder()``. A sparse `X` has neither categories nor texts.

    weighting : str or Weighting, default='softmax'
        'uniform' weights neighbours by the step S alone, ``w = S / sum(S)``: k-NN with a soft k.
        'softmax' weights them also by similarity, ``w ~ S exp(similarity / temperature)``, with a
        learned temperature. The remaining values are 'gaussian', 'sigmoid', 'softplus',
        'softpick', 'sparse_softmax', 'sparsemax', 'entmax' and 'preconditioned', or an instance
        with options (see :mod:`nona_sklearn.weighting`).

    similarity : {'auto', 'features', 'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='auto'
        The similarity by which rows are compared. 'features' is the negative sum of the absolute
        differences of the encoded features (l1), which a kernel weights, whatever `trend` is. The
        neighbours then do not depend on `random_state`, and this k-NN with 'log_l2' and its
        `trend` predicts G, which adjusts the neighbours' targets: ``G(q) + c (y_j - G(j))``. Here
        G(j) neglects the effect of the row on residuals of the neighbours' neighbours: on four
        tables, from 0.1 to 4 % of the error.

        'log_l2', the negative logarithm of the Euclidean distance, gives weights of inverse
        distance to a learned power. 'l2', the negative distance, is used in the papers (see
        :mod:`nona_sklearn.similarity`). 'auto' is 'features' where `trend` is 'kernel', or a model
        where 'auto' would be 'kernel', `n_neighbors` is not None, `learn_feature_weights` is True,
        and `weighting` and `softstep` have their defaults; else 'log_l2'. ``similarity_`` is the
        choice.

    softstep : {'s1', 's2'} or SoftStep, default='s1'
        Learned mask on the similarities: 's1' rejects all rows beyond a learned threshold, 's2'
        only reduces their weights. Both act on scaled ranks, for which a threshold is a share of
        the rows. A :class:`SoftStep` sets its options: ``SoftStep("s1")`` acts on similarities, as
        in the paper, and ``SoftStep("s1", "pointwise")`` depends on the query.

    algorithm : {'auto', 'brute', 'kd_tree', 'hnsw'} or transformer, default='auto'
        Algorithm that finds the nearest rows of a query. 'brute' compares the query with all rows.
        'kd_tree' is scikit-learn's tree for few dimensions, with 'l2', 'log_l2' and 'l1'. 'hnsw'
        is an approximate search for millions of rows with 'l2', 'log_l2' and 'cosine'; it needs
        the extra ``approximate``. A transformer such as
        :class:`~sklearn.neighbors.KNeighborsTransformer` is cloned and fitted to the rows; its
        `n_neighbors` must be above the number of rows that have weight. 'auto': a tree for up to 5
        dimensions, else 'brute'. Weightings that give weight to all rows need 'auto' or 'brute'.

    learn_feature_weights : bool, default=True
        Whether to learn positive weights of the standardised features, by the leave-one-out loss,
        starting from equal weights. False compares the features as they are given, such as
        embeddings. Unused with `hidden_layer_sizes`. With ``weighting='uniform'`` and a step on
        ranks the weights stay equal, since ranks have no gradient.

    hidden_layer_sizes : int, array-like of int or None, default=None
        Widths of the hidden layers of a learned embedding of the standardised features; ``()``
        makes it linear. None: rows are compared by their features.

    embedding_dim : int, default=32
        Number of dimensions of the learned embedding. Unused with ``hidden_layer_sizes=None``.

    trend : {'auto', 'additive', 'kernel'}, regressor or None, default='auto'
        A model f of the table, by which the targets of neighbours are adjusted to the query, as an
        appraiser adjusts comparable sales: ``f(q) + kept (y_j - f(j))``, where f(j) comes from a
        fit without row j. The share of the residuals that is kept is chosen by the validation rows
        or, without them, by leave-one-out; it is near 0.7 if there are few rows. The neighbourhood
        is learned for the residuals. Predictions may leave the range of the training targets, but
        not `bounds`. Far from all training rows, f fades. Rows that are added do not change it.
        There is no trend for fewer than 10 rows. None is the paper's estimator,
        ``weights @ targets``.

        'additive' is a ridge regression on the piecewise-linear encoding of each feature [2]_. Its
        penalty has the smallest leave-one-out error; with `groups` or `times`, whole groups or
        blocks of time are left out. It is fitted to at most 8,192 rows, and needs at most 1,024
        encoded columns. It does not change when rows are removed. 'kernel' is kernel ridge
        regression, as for :class:`NONARegressor`. 'auto' is 'kernel' for up to 1,024 encoded
        columns, but 'additive' with `times` and for a sparse `X` of more than 300 columns.
        ``trend_`` is the choice.

        A regressor of scikit-learn's interface, such as ``CatBoostRegressor(verbose=0)``, is
        cloned, and fitted to the columns of `X` as they are given to fit. f(j) comes from the four
        fifths of the rows without row j, from `groups` without the group of row j, or from earlier
        blocks of `times`; so ``predict(None)`` is not exactly leave-one-out. A row that is removed
        stays known to f. :func:`save` and :func:`export_onnx` refuse such a model; pickle and
        skops hold it.

    bounds : {'positive', 'count', 'unit'}, tuple or None, default=None
        The least and the largest possible target, such as ``(0, 100)``; a bound may be None or
        infinite. 'positive' is ``(0, None)`` and 'unit' ``(0, 1)``. 'count' is 'positive' for
        whole numbers: quantiles and samples are whole, but predictions, which are means, are not.
        Predictions, adjusted targets, quantiles and samples are clipped to the bounds, and targets
        beyond them are an error. The bounds hold for all outputs. None: any number.

    half_life : float, timedelta or None, default=None
        Age after which the weight of a row is halved, in the unit of the `times` that fit is
        given; for dates a timedelta or seconds. None: weights do not depend on age.

    max_iter : int, default=200
        Maximum number of epochs. If it ends the training, fit issues a
        :class:`~sklearn.exceptions.ConvergenceWarning`.

    validation_fraction : float, splitter or None, default=None
        Share of the rows to set aside for early stopping: the weights of the epoch that predicts
        them best are kept. At least one row is set aside; the rows join the bank (the stored rows
        that serve as neighbours) after training. A splitter of scikit-learn, such as
        :class:`~sklearn.model_selection.PredefinedSplit`, chooses training and validation rows
        itself. None: no rows are set aside, and the epoch with the lowest training loss is kept: a
        leave-one-out loss, which the few parameters of a step rarely overfit; set a share with
        `hidden_layer_sizes`. Unused if fit is given `X_val`.

    training : TrainingOptions or None, default=None
        Further options of training: learning rate, batches, pool of neighbours, patience, time
        limit and callbacks (see :class:`TrainingOptions`). ``set_params(training__max_time=60)``
        sets one of them. None: ``TrainingOptions()``.

    device : str or torch.device, default='auto'
        Device that computes. 'auto' uses CUDA if it is available, else the CPU.

    warm_start : bool, default=False
        Whether a further call to fit starts from the present weights.

    verbose : bool or int, default=False
        1: a progress line on the standard error stream shows the epoch, the best loss, and an
        upper bound of the remaining time. 2: a table by skorch with a line per epoch. Both values
        show the progress of more than 4,096 predictions.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the validation split, the batches and the pools. An int makes
        fits repeatable on one machine. Torch's global generators are not changed.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during fit, if they are all strings.

    network_ : torch.nn.Module
        The trained network: ``network_.embedding`` (in float64) and ``network_.head``.

    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order.

    calibration_ : Calibration
        Calibration of the predictive distributions, in the units of `y`.

    target_names_ : tuple of str or None
        The name of the Series given as `y`, or the names of the DataFrame's columns; None if the
        names are not different strings.

    targets_ : RegressionTargets
        Validates `y`, standardises it for training, and decodes predictions.

    features_ : TableEncoder or SparseEncoder
        Encodes the columns of `X` as numbers, or a wide sparse matrix as components and scores.

    scaler_ : StandardScaler, SmoothClipScaler or None
        Standardises the features before they are weighted, without centring for 'dot' and
        'cosine'. In the given space it only centres them, for 'l2', 'log_l2' and 'l1', which does
        not change distances. Before a learned embedding it is the scaler of
        :class:`NONARegressor`.

    similarity_ : str
        The similarity by which rows are compared, with 'auto' resolved.

    trend_ : str, fitted model or None
        The trend of the training rows: 'kernel', 'additive', or a clone of the given model that is
        fitted to all training rows.

    feature_weights_ : ndarray of shape (`n_features_in_`,)
        Share of each feature in the mean distance between two rows, with learned feature weights
        in the squared distance; they sum to 1. The trend is not included (see :meth:`attribute`).
        Only with ``similarity='features'`` or learned feature weights, and not for a wide sparse
        matrix.

    validation_indices_ : list of ndarray or None
        Numbers of the rows that each network set aside for validation. An entry is None without
        validation rows, and where fit is given `X_val`.

    history_ : list of dict
        skorch's history, one dict per epoch and network, one network after another: ``estimator``
        (its number), ``train_loss`` and ``valid_loss`` (mean squared errors of standardised
        targets, for several outputs their geometric mean), ``dur`` (seconds), ``epoch``, and
        whether a loss is the best. The last epoch of a network also has ``stopped``, the reason
        for the end of training: 'no change', 'max_iter' or 'max_time'. The epoch whose weights
        were kept has ``kept``, True.

    n_iter_ : int
        Number of epochs run.

    n_estimators_ : int
        Number of networks: 1.

    n_neighbors_ : int or None
        Largest number of rows behind a prediction; None: all rows.

    best_loss_ : float
        Validation loss of the epoch whose weights were kept, or training loss without validation
        rows.

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
    table_encoder: TableEncoder | None = None
    weighting: str | Weighting = "softmax"
    similarity: str = "auto"
    softstep: str | SoftStep = "s1"
    algorithm: Any = "auto"
    learn_feature_weights: bool = True
    hidden_layer_sizes: Any = None
    embedding_dim: int = 32
    trend: Any = "auto"
    bounds: Any = None
    half_life: Any = None
    max_iter: int = 200
    validation_fraction: Any = None
    training: TrainingOptions | None = None
    device: str | torch.device = "auto"
    warm_start: bool = False
    verbose: bool | int = False
    random_state: Any = None

    trend_ = None  # before fit, and in files of earlier versions
    similarity_ = "log_l2"  # in files of earlier versions

    _parameter_constraints = SOFTSTEP_CONSTRAINTS | REGRESSOR_CONSTRAINTS
    feature_weights_ = property(feature_weights)

    _scale_of_step = "rank"

    def _architecture(self):
        return SoftStepArchitecture.from_params(self)


@storable_estimator(upgrade=upgrade_softstep)
@dataclass(eq=False, repr=False, kw_only=True)
class SoftStepKNeighborsClassifier(NeighborClassifier):
    """Nearest neighbours classification that learns its neighbourhood.

    SoftStep [1]_ replaces k by a learned step on the similarities, which reduces the weights of
    far rows to 0. A pointwise step depends on the query. Rows are
    compared by their features, whose weights are learned; by their features as they are, such as
    precomputed embeddings (`learn_feature_weights`); or by a learned embedding
    (`hidden_layer_sizes`). In most tables, kernel ridge regression has a share in the odds of the
    classes (`trend`), and such a k-NN is itself the trend of a bank whose rows are found without a
    seed (`similarity`).

    Read more on :doc:`classification </classes>`.

    Parameters
    ----------
    n_neighbors : int, 'auto' or None, default='auto'
        Largest number of nearest rows behind a prediction. 'auto': with ``similarity='features'``,
        20. Otherwise with 's1' the number that the step keeps; with 's2' the smallest number on a
        grid from 10 to 100 whose loss, on the validation rows or by leave-one-out, is within one
        standard error of the lowest. None: all rows that the step keeps.

    table_encoder : TableEncoder or None, default=None
        Encoder of the columns of a table, which names the categories and the texts. A fit uses a
        copy. None: ``TableEncoder()``. A sparse `X` has neither categories nor texts.

    weighting : str or Weighting, default='softmax'
        'uniform' weights neighbours by the step S alone, ``w = S / sum(S)``: k-NN with a soft k.
        'softmax' weights them also by similarity, ``w ~ S exp(similarity / temperature)``, with a
        learned temperature. The remaining values are 'gaussian', 'sigmoid', 'softplus',
        'softpick', 'sparse_softmax', 'sparsemax', 'entmax' and 'preconditioned', or an instance
        with options (see :mod:`nona_sklearn.weighting`).

    similarity : {'auto', 'features', 'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='auto'
        The similarity by which rows are compared. 'features' is the negative sum of the absolute
        differences of the encoded features (l1), which a kernel weights, whatever `trend` is. The
        neighbours then do not depend on `random_state`, and this k-NN with 'log_l2' and its
        `trend` predicts probabilities, which have a share in the odds.

        'log_l2', the negative logarithm of the Euclidean distance, gives weights of inverse
        distance to a learned power. 'l2', the negative distance, is used in the papers (see
        :mod:`nona_sklearn.similarity`). 'auto' is 'features' where `trend` is 'kernel', or a model
        where 'auto' would be 'kernel', `n_neighbors` is not None, `learn_feature_weights` is True,
        and `weighting` and `softstep` have their defaults; else 'log_l2'. ``similarity_`` is the
        choice.

    softstep : {'s1', 's2'} or SoftStep, default='s1'
        Learned mask on the similarities: 's1' rejects all rows beyond a learned threshold, 's2'
        only reduces their weights. Both act on scaled ranks, for which a threshold is a share of
        the rows. A :class:`SoftStep` sets its options: ``SoftStep("s1")`` acts on similarities, as
        in the paper, and ``SoftStep("s1", "pointwise")`` depends on the query.

    algorithm : {'auto', 'brute', 'kd_tree', 'hnsw'} or transformer, default='auto'
        Algorithm that finds the nearest rows of a query. 'brute' compares the query with all rows.
        'kd_tree' is scikit-learn's tree for few dimensions, with 'l2', 'log_l2' and 'l1'. 'hnsw'
        is an approximate search for millions of rows with 'l2', 'log_l2' and 'cosine'; it needs
        the extra ``approximate``. A transformer such as
        :class:`~sklearn.neighbors.KNeighborsTransformer` is cloned and fitted to the rows; its
        `n_neighbors` must be above the number of rows that have weight. 'auto': a tree for up to 5
        dimensions, else 'brute'. Weightings that give weight to all rows need 'auto' or 'brute'.

    learn_feature_weights : bool, default=True
        Whether to learn positive weights of the standardised features, by the leave-one-out loss,
        starting from equal weights. False compares the features as they are given, such as
        embeddings. Unused with `hidden_layer_sizes`. With ``weighting='uniform'`` and a step on
        ranks the weights stay equal, since ranks have no gradient.

    hidden_layer_sizes : int, array-like of int or None, default=None
        Widths of the hidden layers of a learned embedding of the standardised features; ``()``
        makes it linear. None: rows are compared by their features.

    embedding_dim : int, default=32
        Number of dimensions of the learned embedding. Unused with ``hidden_layer_sizes=None``.

    trend : {'auto', 'kernel', 'additive'}, classifier or None, default='auto'
        A second model of the table, whose probabilities F have a share b in the logarithms of the
        odds: ``P(c) ~ votes_c^(1 - b) F(c)^b``, where votes are sums of weights. The share is near
        0.7, unless many validation rows show otherwise. Without validation rows it is 0.7. There
        is no trend for fewer than 10 rows. None is the paper's estimator.

        'kernel' and 'additive' are regressions on one-hot rows, as of :class:`NONARegressor`. A
        logistic regression turns their values at the training rows, from fits without the row
        itself, into probabilities. A row that :meth:`remove_neighbors` removes leaves the kernel,
        but not the logistic regression; rows that are added change neither. 'auto' is 'kernel' for
        up to 1,024 encoded columns; None with `times`, and for a sparse `X` of more than 300
        columns. ``trend_`` is the choice.

        A classifier of scikit-learn's interface with ``predict_proba``, such as
        ``CatBoostClassifier(verbose=0)``, is cloned, and fitted to the columns of `X` as they are
        given to fit. The value at a training row comes from the four fifths of the rows without
        the row, from `groups` without its group, or from earlier blocks of `times`; so
        ``predict(None)`` is not exactly leave-one-out. A row that is removed stays known to it.
        :func:`save` and :func:`export_onnx` refuse such a model; pickle and skops hold it. Its
        probabilities are at least 0.001, and their logarithms have one factor, a temperature. For
        several outputs it has to predict a list of arrays, as a
        :class:`~sklearn.multioutput.MultiOutputClassifier` does.

    smoothing : bool, default=True
        Whether the classes' frequencies have a learned share in the probabilities, so that no
        probability is 0. False is the paper's form: with ``trend=None``, a probability is a sum of
        the rows' weights.

    loss : {'log_loss', 'as_softmax'} or ASSoftmax, default='log_loss'
        The training loss. 'as_softmax' ignores classes whose probability is below that of the true
        class by a margin, 0.1 unless an :class:`ASSoftmax` sets it (see
        :class:`~nona_sklearn.losses.ASSoftmaxLoss`). For an indicator matrix it is the form for
        several labels, which sums over them, while the log loss averages. The validation loss is
        always the log loss. Without validation rows the training loss chooses the epoch.

    class_weight : dict, list of dict, 'balanced' or None, default=None
        Weights of the classes, {label: weight}, in the loss and of the neighbours; they multiply
        `sample_weight`. For several outputs, a list of dicts. 'balanced': all classes have the
        same total weight. None: all rows are equal. The class weights, which are ``class_weight_``
        if 'balanced', hold for rows of :meth:`add_neighbors` as well.

    half_life : float, timedelta or None, default=None
        Age after which the weight of a row is halved, in the unit of the `times` that fit is
        given; for dates a timedelta or seconds. None: weights do not depend on age.

    max_iter : int, default=200
        Maximum number of epochs. If it ends the training, fit issues a
        :class:`~sklearn.exceptions.ConvergenceWarning`.

    validation_fraction : float, splitter or None, default=0.15
        Share of the rows to set aside for early stopping: the weights of the epoch that predicts
        them best are kept, and they determine temperature and smoothing. At least one row is set
        aside; the rows join the bank (the stored rows that serve as neighbours) after training. A
        splitter of scikit-learn, such as :class:`~sklearn.model_selection.PredefinedSplit`,
        chooses training and validation rows itself. None: no rows are set aside, and the epoch
        with the lowest training loss is kept: a leave-one-out loss, which the weights of many
        features overfit if there are few rows. Unused if fit is given `X_val`.

    training : TrainingOptions or None, default=None
        Further options of training: learning rate, batches, pool of neighbours, patience, time
        limit and callbacks (see :class:`TrainingOptions`). ``set_params(training__max_time=60)``
        sets one of them. None: ``TrainingOptions()``.

    device : str or torch.device, default='auto'
        Device that computes. 'auto' uses CUDA if it is available, else the CPU.

    warm_start : bool, default=False
        Whether a further call to fit starts from the present weights.

    verbose : bool or int, default=False
        1: a progress line on the standard error stream shows the epoch, the best loss, and an
        upper bound of the remaining time. 2: a table by skorch with a line per epoch. Both values
        show the progress of more than 4,096 predictions.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the validation split, the batches and the pools. An int makes
        fits repeatable on one machine. Torch's global generators are not changed.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during fit, if they are all strings.

    classes_ : ndarray of shape (n_classes,), or list of such arrays
        The labels, sorted; the labels of an ordered categorical have its order. With several
        outputs, a list with one array per output.

    class_weight_ : ndarray of shape (n_classes,), or list of such arrays
        Weights of the classes, by which the sample weights of their rows are multiplied; with
        several outputs, one array per output, and the weights of a row's classes multiply.

    network_ : torch.nn.Module
        The trained network: ``network_.embedding`` (in float64) and ``network_.head``.

    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order;
        targets are one-hot, and several outputs are side by side.

    target_names_ : tuple of str or None
        The name of the Series given as `y`, or the names of the DataFrame's columns; None if the
        names are not different strings.

    targets_ : ClassTargets
        The classes of `y` and their frequencies.

    features_ : TableEncoder or SparseEncoder
        Encodes the columns of `X` as numbers, or a wide sparse matrix as components and scores.

    scaler_ : StandardScaler, SmoothClipScaler or None
        Standardises the features before they are weighted, without centring for 'dot' and
        'cosine'. In the given space it only centres them, for 'l2', 'log_l2' and 'l1', which does
        not change distances. Before a learned embedding it is the scaler of
        :class:`NONARegressor`.

    similarity_ : str
        The similarity by which rows are compared, with 'auto' resolved.

    trend_ : str, fitted model or None
        The trend of the training rows: 'kernel', 'additive', or a clone of the given model that is
        fitted to all training rows.

    feature_weights_ : ndarray of shape (`n_features_in_`,)
        Share of each feature in the mean distance between two rows, with learned feature weights
        in the squared distance; they sum to 1. The trend is not included (see :meth:`attribute`).
        Only with ``similarity='features'`` or learned feature weights, and not for a wide sparse
        matrix.

    validation_indices_ : list of ndarray or None
        Numbers of the rows that each network set aside for validation. An entry is None without
        validation rows, and where fit is given `X_val`.

    history_ : list of dict
        skorch's history, one dict per epoch and network, one network after another: ``estimator``
        (its number), ``train_loss`` and ``valid_loss`` (of `loss`, and the log loss), ``dur``
        (seconds), ``epoch``, and whether a loss is the best. The last epoch of a network also has
        ``stopped``, the reason for the end of training: 'no change', 'max_iter' or 'max_time'. The
        epoch whose weights were kept has ``kept``, True.

    n_iter_ : int
        Number of epochs run.

    n_estimators_ : int
        Number of networks: 1.

    n_neighbors_ : int or None
        Largest number of rows behind a prediction; None: all rows.

    best_loss_ : float
        Validation loss of the epoch whose weights were kept, or training loss without validation
        rows.

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
    table_encoder: TableEncoder | None = None
    weighting: str | Weighting = "softmax"
    similarity: str = "auto"
    softstep: str | SoftStep = "s1"
    algorithm: Any = "auto"
    learn_feature_weights: bool = True
    hidden_layer_sizes: Any = None
    embedding_dim: int = 32
    trend: Any = "auto"
    smoothing: bool = True
    loss: str | ASSoftmax = "log_loss"
    class_weight: Any = None
    half_life: Any = None
    max_iter: int = 200
    validation_fraction: Any = 0.15
    training: TrainingOptions | None = None
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

    _scale_of_step = "rank"

    def _architecture(self):
        return SoftStepArchitecture.from_params(self)
