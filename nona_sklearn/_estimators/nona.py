"""NONA, which learns the space in which neighbours are compared, for numbers and for classes."""

from dataclasses import dataclass, field
from typing import Any

import torch

from .._data.table_encoder import TableEncoder
from .._utils.storable import storable_estimator
from ..softstep import SoftStep
from ..weighting import Weighting
from .architectures import NONAArchitecture
from .classification import NeighborClassifier
from .parameters import (
    CLASSIFIER_CONSTRAINTS,
    NONA_CONSTRAINTS,
    REGRESSOR_CONSTRAINTS,
    ASSoftmax,
    TrainingOptions,
)
from .regression import NeighborRegressor
from .stability import FeatureImportances, measure_in_fit
from .upgrades import upgrade_nona


@storable_estimator(upgrade=upgrade_nona)
@dataclass(eq=False, repr=False, kw_only=True)
class NONARegressor(NeighborRegressor):
    """Deep nearest neighbours regression.

    A neural network learns an embedding. A prediction is a weighted mean of the targets of the
    nearest training rows in it, with a softmax of negative distances as weights [1]_. Targets are
    first adjusted by the network's own estimate of the difference between neighbour and query
    (`adjust`). Several such networks are averaged, and in most tables kernel ridge regression has
    a share in the adjusted targets (`trend`). The estimator scales features and targets, and
    encodes categories, missing values and dates. With a `feature_extractor`, rows may be images,
    texts or anything else that a torch module takes, and the module is fine-tuned.

    Read more on :doc:`hyperparameters </tune>` and on :doc:`texts and images </texts_images>`.

    Parameters
    ----------
    feature_extractor : torch.nn.Module, callable, FeatureExtractor or None, default=None
        Maps a batch of rows to features, (n, n_features), which are the input of the embedding. A
        module is copied by every fit. A callable without arguments makes a module, whose random
        weights follow `random_state`. A :class:`FeatureExtractor` adds the learning rate and other
        training parameters. `X` may then be an array of any shape, a tensor, a dict of them (its
        entries are passed by name), a list, such as one of str, or a torch Dataset. Rows are
        passed as they are, unscaled. None: `X` is a table.

    table_encoder : TableEncoder or None, default=None
        Encoder of the columns of a table, which names the categories and the texts. A fit uses a
        copy. None: ``TableEncoder()``. Unused with a `feature_extractor`. A sparse `X` has neither
        categories nor texts.

    hidden_layer_sizes : int, array-like of int or None, default=(128,)
        Width of each hidden layer of the embedding; ``()`` makes it linear. None: the features of
        a `feature_extractor` are the embedding, and nothing is adjusted.

    embedding_dim : int, default=32
        Number of dimensions of a network's embedding.

    numerical_embedding : {'auto', 'periodic'} or None, default='auto'
        'periodic' adds sines with learned frequencies to every feature of more than two values
        (see :class:`PeriodicEmbedding`), which begin ten times as high for a table with more than
        65,536 rows. None does not. 'auto' is 'periodic' for up to 64 such features. Of more than
        64 features, and more than a quarter of the number of training rows, 'auto' makes 128
        supervised principal components [2]_. Unused with a `feature_extractor`.

    similarity : {'auto', 'features', 'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='auto'
        The similarity by which rows are compared. 'features' is the negative sum of the absolute
        differences of the encoded features (l1), which a kernel weights, whatever `trend` is. The
        neighbours then do not depend on `random_state`: the 15 nearest rows, or `n_neighbors`,
        have weights that fall linearly with their distance, and the networks and the `trend`
        together predict G, which adjusts their targets: ``G(q) + c (y_j - G(j))``, where G(j) is
        predicted without row j, and c is near 0.2. The remaining values compare the embeddings
        that the networks learn (see :mod:`nona_sklearn.similarity`); the papers use 'l2', the
        negative Euclidean distance.

        'auto' is 'features' where `trend` is 'kernel', or a model where 'auto' would be 'kernel',
        `n_neighbors` is not None, and `weighting` and `softstep` have their defaults; else 'l2'.
        ``similarity_`` is the choice.

    weighting : str or Weighting, default='softmax'
        Function that turns similarities into weights: 'softmax', 'uniform' (only with `softstep`
        or `n_neighbors`), 'gaussian', 'sigmoid', 'softplus', 'softpick', 'sparse_softmax',
        'sparsemax', 'entmax' or 'preconditioned'; or an instance with options, such as
        ``SparseSoftmax(8)`` (see :mod:`nona_sklearn.weighting`). The papers use 'softmax'.

    softstep : {'s1', 's2'}, SoftStep or None, default=None
        Learned sparse mask. A name stands for a step on similarities, ``SoftStep("s1")``. A
        :class:`SoftStep` sets further options, such as ``SoftStep("s2", "pointwise")``. None: no
        mask.

    n_neighbors : int, 'auto' or None, default='auto'
        Largest number of nearest rows behind a prediction, over all networks. 'auto' chooses the
        number after training: for every network, the smallest number on a grid up to 100 whose
        validation loss is within one standard error of the lowest, and at least 10 in all. Without
        validation rows it is 10 per network, and 32 for classes. 'auto' does not limit a
        `weighting` or `softstep` that ends by itself: 'entmax', 'sparsemax', 'softpick', 's1' and
        weightings with an `n_neighbors` of their own. None: all rows, as in the papers.

    algorithm : {'auto', 'brute', 'kd_tree', 'hnsw'} or transformer, default='auto'
        Algorithm that finds the nearest rows of a query. 'brute' compares the query with all rows.
        'kd_tree' is scikit-learn's tree for few dimensions, with 'l2', 'log_l2' and 'l1'. 'hnsw'
        is an approximate search for millions of rows with 'l2', 'log_l2' and 'cosine'; it needs
        the extra ``approximate``. A transformer such as
        :class:`~sklearn.neighbors.KNeighborsTransformer` is cloned and fitted to the embeddings;
        its `n_neighbors` must be above the number of rows that have weight. 'auto': a tree for up
        to 5 dimensions, else 'brute'. Weightings that give weight to all rows need 'auto' or
        'brute'.

    adjust : bool or 'auto', default='auto'
        Whether to adjust the targets of neighbours to the query, as an appraiser adjusts
        comparable sales: ``sum_j w_j (y_j + g(q) - g(j))``, where g is a further output of the
        network, trained with it. :meth:`explain` lists the adjusted targets. Predictions may leave
        the range of the training targets, but not `bounds`. Far from all training rows, the
        adjustment fades. False is the papers' estimator, ``weights @ y``. 'auto': True, unless a
        `feature_extractor` is given (g would overfit its few training rows).

    trend : {'auto', 'kernel', 'additive'}, regressor or None, default='auto'
        A second model f of the table, whose share in predictions is a: a neighbour's adjusted
        target is ``(1 - a) (y_j + g(q) - g(j)) + a (f(q) + 0.2 (y_j - f(j)))``, where f(j) comes
        from a fit without row j. The share is near 0.7, unless many validation rows show
        otherwise. Rows that are added do not change f. None: no such model, and always with a
        `feature_extractor`.

        'kernel' is kernel ridge regression with a Laplace kernel of weighted features (a recursive
        feature machine [4]_) and a linear one. It is fitted to at most 10,000 rows, of more than
        3,000 by 1,000 landmarks; to 6,000 rows with times. It has no seed. A row that
        :meth:`remove_neighbors` removes leaves f as well. 'additive' is a sum of functions of
        single columns, as for :class:`SoftStepKNeighborsRegressor`.

        'auto' is 'kernel' for a table of at least 10 rows and up to 1,024 encoded columns; None
        with ``adjust=False`` or `times`, and for a sparse `X` of more than 300 columns. ``trend_``
        is the choice.

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

    n_estimators : int or 'auto', default='auto'
        Number of networks, which have different initial weights and validation rows. Time and
        memory grow with it. 'auto': 2 with a `trend`, as most tables have by default; without one
        5 for up to 2,000 training rows, 4 for up to 2,500, and 3 for more; 1 for more than 65,536
        rows and with a `feature_extractor`; at most `n_neighbors`; and fewer if `max_time` of
        `training` is too short for 20 epochs per network.

    max_iter : int, default=200
        Maximum number of epochs of a network. If it ends the training, fit issues a
        :class:`~sklearn.exceptions.ConvergenceWarning`.

    validation_fraction : float, splitter or None, default=0.15
        Share of the rows to set aside for early stopping: the weights of the epoch that predicts
        them best are kept. At least one row is set aside; the rows join the bank (the stored rows
        that serve as neighbours) after training. A splitter of scikit-learn, such as
        :class:`~sklearn.model_selection.PredefinedSplit`, chooses training and validation rows:
        the networks take its last splits in turn. None: no rows are set aside, and the epoch with
        the lowest training loss is kept. Unused if fit is given `X_val`.

    training : TrainingOptions or None, default=None
        Further options of training: learning rate, batches, pool of neighbours, patience, time
        limit and callbacks (see :class:`TrainingOptions`). ``set_params(training__max_time=60)``
        sets one of them. None: ``TrainingOptions()``.

    n_jobs : int or None, default=None
        Number of processes that train networks. None means 1, unless in a
        :func:`joblib.parallel_config` context. In one process, networks on a table train in
        parallel threads, as many as torch has (:func:`torch.set_num_threads`,
        ``OMP_NUM_THREADS``). With a `feature_extractor` or callbacks they train one after another.
        The result does not depend on it.

    device : str or torch.device, default='auto'
        Device that computes. 'auto' uses CUDA if it is available, else the CPU.

    warm_start : bool, default=False
        Whether a further call to fit starts from the present weights.

    verbose : bool or int, default=False
        1: a progress line on the standard error stream shows the network in training, its epoch,
        its best loss, and an upper bound of the remaining time. Networks in separate processes are
        counted when they finish. 2: a table by skorch with a line per epoch. Both values show the
        progress of more than 4,096 predictions, and joblib's of a model as `trend`.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the validation splits, the batches and the pools. An int makes
        fits repeatable on one machine. Torch's global generators are not changed.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during fit, if they are all strings.

    network_ : torch.nn.Module
        The trained network: ``network_.embedding`` (in float64) and ``network_.head``. With
        several networks, the embedding concatenates their embeddings, and ``network_.head.heads``
        holds one head per network.

    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order. If
        targets are adjusted, the last columns of a network's embeddings are its g, one column per
        output. :meth:`transform` returns the remaining columns.

    calibration_ : Calibration
        Calibration of the predictive distributions, in the units of `y`.

    target_names_ : tuple of str or None
        The name of the Series given as `y`, or the names of the DataFrame's columns; None if the
        names are not different strings.

    targets_ : RegressionTargets
        Validates `y`, standardises it for training, and decodes predictions.

    features_ : TableEncoder or SparseEncoder
        Encodes the columns of `X` as numbers, or a wide sparse matrix as components and scores.

    scaler_ : SmoothClipScaler or None
        Scales the features by their quartiles, and clips outliers smoothly to [-3, 3]; None for
        components of a wide sparse matrix.

    similarity_ : str
        The similarity by which rows are compared, with 'auto' resolved.

    trend_ : str, fitted model or None
        The trend of the training rows: 'kernel', 'additive', or a clone of the given model that is
        fitted to all training rows.

    feature_importances_ : ndarray of shape (`n_features_in_`,)
        Permutation importance of each column, as shares of the sum: the mean squared change of the
        leave-one-out predictions of a sample of training rows when the column is permuted.
        Measured when it is first read, and anew after an edit of the bank; if `trend` is no
        kernel, in fit. For tables only: not with a `feature_extractor` or a wide sparse matrix.
        See :func:`sklearn.inspection.permutation_importance` for new rows.

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
        Number of epochs run, for all networks together.

    n_estimators_ : int
        Number of networks.

    n_neighbors_ : int or None
        Largest number of rows behind a prediction; None: all rows.

    best_loss_ : float
        Validation loss of the epoch whose weights were kept, or training loss without validation
        rows; the mean over networks.

    See Also
    --------
    SoftStepKNeighborsRegressor : Learns the number of neighbours rather than an embedding.
    sklearn.neighbors.KNeighborsRegressor : Neighbours in the given space, with a given k.

    Notes
    -----
    The formula ``weights @ y`` comes from section 3 of [1]_. The adjustment of neighbours is
    known as bias-corrected matching in statistics [3]_.

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1, section 3.
    .. [2] Bair et al., "Prediction by Supervised Principal Components", 2006.
    .. [3] Abadie and Imbens, 2011, on bias-corrected matching.
    .. [4] Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism for Feature Learning in Neural
       Networks and Backpropagation-Free Machine Learning Models", 2024, Science 383.

    Examples
    --------
    The targets are prices of houses, whose table has categories, gaps and dates:

    >>> from nona_sklearn import NONARegressor
    >>> from nona_sklearn.datasets import load_ames
    >>> X, y = load_ames(return_X_y=True)
    >>> reg = NONARegressor(n_estimators=2, n_neighbors=10, max_iter=10, random_state=0)
    >>> round(reg.fit(X[:600], y[:600]).score(X[600:1200], y[600:1200]), 1)
    0.9

    A prediction is the sum of the contributions of ten rows or fewer, whose weights sum to 1:

    >>> table = reg.explain(X[600:601])
    >>> list(table)
    ['query', 'neighbor', 'weight', 'target', 'adjusted_target', 'contribution']
    >>> round(float(table["weight"].sum()), 3)
    1.0

    With an existing model as trend, predictions still have such rows:

    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from nona_sklearn import TableEncoder
    >>> reg = reg.set_params(trend=make_pipeline(TableEncoder(), Ridge()))
    >>> round(reg.fit(X[:600], y[:600]).score(X[600:1200], y[600:1200]), 1)
    0.9
    """

    feature_extractor: Any = field(default=None, kw_only=False)
    table_encoder: TableEncoder | None = None
    hidden_layer_sizes: Any = (128,)
    embedding_dim: int = 32
    numerical_embedding: str | None = "auto"
    similarity: str = "auto"
    weighting: str | Weighting = "softmax"
    softstep: str | SoftStep | None = None
    n_neighbors: int | str | None = "auto"
    algorithm: Any = "auto"
    adjust: bool | str = "auto"
    trend: Any = "auto"
    bounds: Any = None
    half_life: Any = None
    n_estimators: int | str = "auto"
    max_iter: int = 200
    validation_fraction: Any = 0.15
    training: TrainingOptions | None = None
    n_jobs: int | None = None
    device: str | torch.device = "auto"
    warm_start: bool = False
    verbose: bool | int = False
    random_state: Any = None

    trend_ = None  # before fit, and in files of earlier versions
    similarity_ = "l2"  # in files of earlier versions

    _parameter_constraints = NONA_CONSTRAINTS | REGRESSOR_CONSTRAINTS

    _measure = measure_in_fit
    feature_importances_ = FeatureImportances()

    def _architecture(self):
        return NONAArchitecture.from_params(self)


@storable_estimator(upgrade=upgrade_nona)
@dataclass(eq=False, repr=False, kw_only=True)
class NONAClassifier(NeighborClassifier):
    """Deep nearest neighbours classification.

    A neural network learns an embedding in which near rows have similar classes. The probability
    of a class is the sum of the weights of its rows among the nearest neighbours [1]_, times the
    odds that the network itself predicts for the class (`adjust`). The probabilities of several
    such networks are averaged, and in most tables kernel ridge regression has a share in their
    odds (`trend`). The estimator scales features, and encodes categories, missing values and
    dates. With a `feature_extractor`, rows may be images, texts or anything else that a torch
    module takes, and the module is fine-tuned.

    Read more on :doc:`classification </classes>`.

    Parameters
    ----------
    feature_extractor : torch.nn.Module, callable, FeatureExtractor or None, default=None
        Maps a batch of rows to features, (n, n_features), which are the input of the embedding. A
        module is copied by every fit. A callable without arguments makes a module, whose random
        weights follow `random_state`. A :class:`FeatureExtractor` adds the learning rate and other
        training parameters. `X` may then be an array of any shape, a tensor, a dict of them (its
        entries are passed by name), a list, such as one of str, or a torch Dataset. Rows are
        passed as they are, unscaled. None: `X` is a table.

    table_encoder : TableEncoder or None, default=None
        Encoder of the columns of a table, which names the categories and the texts. A fit uses a
        copy. None: ``TableEncoder()``. Unused with a `feature_extractor`. A sparse `X` has neither
        categories nor texts.

    hidden_layer_sizes : int, array-like of int or None, default=(128,)
        Width of each hidden layer of the embedding; ``()`` makes it linear. None: the features of
        a `feature_extractor` are the embedding, and nothing is adjusted.

    embedding_dim : int, default=32
        Number of dimensions of a network's embedding.

    numerical_embedding : {'auto', 'periodic'} or None, default='auto'
        'periodic' adds sines with learned frequencies to every feature of more than two values
        (see :class:`PeriodicEmbedding`), which begin ten times as high for a table with more than
        65,536 rows. None does not. 'auto' is 'periodic' for up to 64 such features. Of more than
        64 features, and more than a quarter of the number of training rows, 'auto' makes 128
        supervised principal components [2]_. Unused with a `feature_extractor`.

    similarity : {'auto', 'features', 'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='auto'
        The similarity by which rows are compared. 'features' is the negative sum of the absolute
        differences of the encoded features (l1), which a kernel weights, whatever `trend` is. The
        neighbours then do not depend on `random_state`: the 20 nearest rows, or `n_neighbors`,
        have weights that fall linearly with their distance, and the networks and the `trend`
        together predict probabilities, which have a share in the odds. The remaining values
        compare the embeddings that the networks learn (see :mod:`nona_sklearn.similarity`); the
        papers use 'l2', the negative Euclidean distance.

        'auto' is 'features' where `trend` is 'kernel', or a model where 'auto' would be 'kernel',
        `n_neighbors` is not None, and `weighting` and `softstep` have their defaults; else 'l2'.
        ``similarity_`` is the choice.

    weighting : str or Weighting, default='softmax'
        Function that turns similarities into weights: 'softmax', 'uniform' (only with `softstep`
        or `n_neighbors`), 'gaussian', 'sigmoid', 'softplus', 'softpick', 'sparse_softmax',
        'sparsemax', 'entmax' or 'preconditioned'; or an instance with options, such as
        ``SparseSoftmax(8)`` (see :mod:`nona_sklearn.weighting`). The papers use 'softmax'.

    softstep : {'s1', 's2'}, SoftStep or None, default=None
        Learned sparse mask. A name stands for a step on similarities, ``SoftStep("s1")``. A
        :class:`SoftStep` sets further options, such as ``SoftStep("s2", "pointwise")``. None: no
        mask.

    n_neighbors : int, 'auto' or None, default='auto'
        Largest number of nearest rows behind a prediction, over all networks. 'auto' chooses the
        number after training: for every network, the smallest number on a grid up to 100 whose
        validation loss is within one standard error of the lowest, and at least 10 in all. Without
        validation rows it is 10 per network, and 32 for classes. 'auto' does not limit a
        `weighting` or `softstep` that ends by itself: 'entmax', 'sparsemax', 'softpick', 's1' and
        weightings with an `n_neighbors` of their own. None: all rows, as in the papers.

    algorithm : {'auto', 'brute', 'kd_tree', 'hnsw'} or transformer, default='auto'
        Algorithm that finds the nearest rows of a query. 'brute' compares the query with all rows.
        'kd_tree' is scikit-learn's tree for few dimensions, with 'l2', 'log_l2' and 'l1'. 'hnsw'
        is an approximate search for millions of rows with 'l2', 'log_l2' and 'cosine'; it needs
        the extra ``approximate``. A transformer such as
        :class:`~sklearn.neighbors.KNeighborsTransformer` is cloned and fitted to the embeddings;
        its `n_neighbors` must be above the number of rows that have weight. 'auto': a tree for up
        to 5 dimensions, else 'brute'. Weightings that give weight to all rows need 'auto' or
        'brute'.

    adjust : bool or 'auto', default='auto'
        Whether to multiply the votes for a class by the odds that the network itself predicts:
        ``P(c) ~ ((1 - s) sum_j w_j 1[y_j = c] + s frequency_c) exp(h_c(q))``, where h is a further
        output of the network, and s, the share of the classes' frequencies, is learned, so that no
        probability is 0. False is the paper's form, ``weights @ one_hot``: a probability is a sum
        of the rows' weights, and may be 0. 'auto': True, unless a `feature_extractor` is given.

    trend : {'auto', 'kernel', 'additive'}, classifier or None, default='auto'
        A second model of the table, whose probabilities F have a share b in the logarithms of the
        odds: ``P(c) ~ votes_c^(1 - b) F(c)^b``, where `adjust` defines the votes. The share is
        near 0.7, unless many validation rows show otherwise. None: no such model, and always with
        a `feature_extractor`.

        'kernel' and 'additive' are regressions on one-hot rows, as of :class:`NONARegressor`. A
        logistic regression turns their values at the training rows, from fits without the row
        itself, into probabilities. A row that :meth:`remove_neighbors` removes leaves the kernel,
        but not the logistic regression; rows that are added change neither. 'auto' is 'kernel' for
        a table of at least 10 rows and up to 1,024 encoded columns; None with ``adjust=False`` or
        `times`, and for a sparse `X` of more than 300 columns. ``trend_`` is the choice.

        A classifier of scikit-learn's interface with ``predict_proba``, such as
        ``CatBoostClassifier(verbose=0)``, is cloned, and fitted to the columns of `X` as they are
        given to fit. The value at a training row comes from the four fifths of the rows without
        the row, from `groups` without its group, or from earlier blocks of `times`; so
        ``predict(None)`` is not exactly leave-one-out. A row that is removed stays known to it.
        :func:`save` and :func:`export_onnx` refuse such a model; pickle and skops hold it. Its
        probabilities are at least 0.001, and their logarithms have one factor, a temperature. For
        several outputs it has to predict a list of arrays, as a
        :class:`~sklearn.multioutput.MultiOutputClassifier` does.

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

    n_estimators : int or 'auto', default='auto'
        Number of networks, which have different initial weights and validation rows. Time and
        memory grow with it. 'auto': 2 with a `trend`, as most tables have by default; without one
        5 for up to 2,000 training rows, 4 for up to 2,500, and 3 for more; 1 for more than 65,536
        rows and with a `feature_extractor`; at most `n_neighbors`; and fewer if `max_time` of
        `training` is too short for 20 epochs per network.

    max_iter : int, default=200
        Maximum number of epochs of a network. If it ends the training, fit issues a
        :class:`~sklearn.exceptions.ConvergenceWarning`.

    validation_fraction : float, splitter or None, default=0.15
        Share of the rows to set aside for early stopping: the weights of the epoch that predicts
        them best are kept. At least one row is set aside; the rows join the bank (the stored rows
        that serve as neighbours) after training. A splitter of scikit-learn, such as
        :class:`~sklearn.model_selection.PredefinedSplit`, chooses training and validation rows:
        the networks take its last splits in turn. None: no rows are set aside, and the epoch with
        the lowest training loss is kept. Unused if fit is given `X_val`.

    training : TrainingOptions or None, default=None
        Further options of training: learning rate, batches, pool of neighbours, patience, time
        limit and callbacks (see :class:`TrainingOptions`). ``set_params(training__max_time=60)``
        sets one of them. None: ``TrainingOptions()``.

    n_jobs : int or None, default=None
        Number of processes that train networks. None means 1, unless in a
        :func:`joblib.parallel_config` context. In one process, networks on a table train in
        parallel threads, as many as torch has (:func:`torch.set_num_threads`,
        ``OMP_NUM_THREADS``). With a `feature_extractor` or callbacks they train one after another.
        The result does not depend on it.

    device : str or torch.device, default='auto'
        Device that computes. 'auto' uses CUDA if it is available, else the CPU.

    warm_start : bool, default=False
        Whether a further call to fit starts from the present weights.

    verbose : bool or int, default=False
        1: a progress line on the standard error stream shows the network in training, its epoch,
        its best loss, and an upper bound of the remaining time. Networks in separate processes are
        counted when they finish. 2: a table by skorch with a line per epoch. Both values show the
        progress of more than 4,096 predictions, and joblib's of a model as `trend`.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the validation splits, the batches and the pools. An int makes
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
        The trained network: ``network_.embedding`` (in float64) and ``network_.head``. With
        several networks, the embedding concatenates their embeddings, and ``network_.head.heads``
        holds one head per network.

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

    scaler_ : SmoothClipScaler or None
        Scales the features by their quartiles, and clips outliers smoothly to [-3, 3]; None for
        components of a wide sparse matrix.

    similarity_ : str
        The similarity by which rows are compared, with 'auto' resolved.

    trend_ : str, fitted model or None
        The trend of the training rows: 'kernel', 'additive', or a clone of the given model that is
        fitted to all training rows.

    feature_importances_ : ndarray of shape (`n_features_in_`,)
        Permutation importance of each column, as shares of the sum: the mean squared change of the
        leave-one-out predictions of a sample of training rows when the column is permuted.
        Measured when it is first read, and anew after an edit of the bank; if `trend` is no
        kernel, in fit. For tables only: not with a `feature_extractor` or a wide sparse matrix.
        See :func:`sklearn.inspection.permutation_importance` for new rows.

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
        Number of epochs run, for all networks together.

    n_estimators_ : int
        Number of networks.

    n_neighbors_ : int or None
        Largest number of rows behind a prediction; None: all rows.

    best_loss_ : float
        Validation loss of the epoch whose weights were kept, or training loss without validation
        rows; the mean over networks.

    See Also
    --------
    NONARegressor : The regressor.
    SoftStepKNeighborsClassifier : Learns the number of neighbours rather than an embedding.
    sklearn.neighbors.KNeighborsClassifier : Neighbours in the given space, with a given k.

    Notes
    -----
    The loss 'as_softmax' is defined in [3]_.

    References
    ----------
    .. [1] Susman, Suárez-Fariñas and Colonel, "Nearness of Neighbors Attention for Regression in
       Supervised Fine-Tuning", 2025, arXiv:2506.08139v1, section 3.
    .. [2] Bair et al., "Prediction by Supervised Principal Components", 2006.
    .. [3] Lv et al., "AS-Softmax", 2025, arXiv:2508.03175.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nona_sklearn import NONAClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = NONAClassifier(n_estimators=1, max_iter=5, random_state=0).fit(X[::2], y[::2])
    >>> clf.predict_proba(X[1:2]).round(1)
    array([[1., 0., 0.]])
    >>> clf.predict(X[[1, 51, 149]])
    array([0, 1, 2])
    """

    feature_extractor: Any = field(default=None, kw_only=False)
    table_encoder: TableEncoder | None = None
    hidden_layer_sizes: Any = (128,)
    embedding_dim: int = 32
    numerical_embedding: str | None = "auto"
    similarity: str = "auto"
    weighting: str | Weighting = "softmax"
    softstep: str | SoftStep | None = None
    n_neighbors: int | str | None = "auto"
    algorithm: Any = "auto"
    adjust: bool | str = "auto"
    trend: Any = "auto"
    loss: str | ASSoftmax = "log_loss"
    class_weight: Any = None
    half_life: Any = None
    n_estimators: int | str = "auto"
    max_iter: int = 200
    validation_fraction: Any = 0.15
    training: TrainingOptions | None = None
    n_jobs: int | None = None
    device: str | torch.device = "auto"
    warm_start: bool = False
    verbose: bool | int = False
    random_state: Any = None

    trend_ = None  # before fit, and in files of earlier versions
    similarity_ = "l2"  # in files of earlier versions

    _parameter_constraints = NONA_CONSTRAINTS | CLASSIFIER_CONSTRAINTS

    _measure = measure_in_fit
    feature_importances_ = FeatureImportances()

    def _architecture(self):
        return NONAArchitecture.from_params(self)
