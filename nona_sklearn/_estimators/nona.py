"""NONA: the space in which neighbours are compared is learned, for numbers and for classes."""

from dataclasses import dataclass, field
from typing import Any

import torch

from .._utils.docstrings import with_parameters_of
from .._utils.storable import storable_estimator
from ..weighting import Weighting
from .architectures import NONAArchitecture
from .classification import NeighborClassifier
from .importances import measure_importances
from .parameters import (
    CLASSIFIER_CONSTRAINTS,
    NONA_CONSTRAINTS,
    REGRESSOR_CONSTRAINTS,
    ASSoftmax,
)
from .regression import NeighborRegressor
from .upgrades import upgrade_nona


@storable_estimator(upgrade=upgrade_nona)
@dataclass(eq=False, repr=False, kw_only=True)
class NONARegressor(NeighborRegressor):
    """Deep nearest neighbours regression.

    A neural network learns a space in which averaging over neighbours works well; a prediction
    is the softmax-weighted mean of the training targets there ("Nearness of Neighbors
    Attention", arXiv 2506.08139v1), each adjusted by the network's own estimate of the
    difference between its row and the query (`adjust`). Several such networks, trained on
    different validation splits, average their weights. Features and targets are scaled inside,
    so raw features are welcome. With a `feature_extractor` rows may be images, texts or
    anything else that a torch module takes, and the module is fine-tuned along.

    Read more on :doc:`hyperparameters </tune>` and on :doc:`texts and images </texts_images>`.

    Parameters come in groups: the input, the embedding (from `hidden_layer_sizes`), the
    neighbours and their weights (from `similarity`), training (from `n_estimators`), and the run
    (from `n_jobs`).

    Parameters
    ----------
    feature_extractor : torch.nn.Module, callable, FeatureExtractor or None, default=None
        Maps a batch of rows to features, (n, n_features), on which the embedding stands. A
        module is copied by each fit; a callable without arguments makes one, and its random
        weights follow `random_state`. A :class:`FeatureExtractor` has its learning rate and
        other training parameters, too. `X` may then be an array of any shape, a tensor, a dict
        of them (its entries are passed by name), a list, such as one of str, or a torch
        Dataset. Rows are passed as they are, unscaled.

    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Which columns of `X` are categories. 'from_dtype': those that hold strings, and a
        DataFrame's categoricals. Otherwise their names, their numbers, or a mask of bool. None:
        no column; one that holds strings is refused then. What becomes of each kind of column,
        see :class:`TableEncoder`. A sparse `X` has none.
        Unused with a `feature_extractor`.

    text_features : str, int, list, dict or None, default=None
        Columns of texts in a table, by name or number, each with a vectoriser of scikit-learn or a
        function of a list of str in a dict; without one, by n-grams of characters. See
        :class:`TableEncoder`. Unused with a `feature_extractor`.

    max_categories : int, default=64
        Largest number of columns that one category becomes. One of more levels becomes the mean
        target of each level instead, computed from other rows for a training row, which therefore
        differs from an equal query. With `groups` or `times`, rare levels share a column instead.
        Unused with a `feature_extractor`.

    hidden_layer_sizes : int, array-like of int or None, default=(128,)
        Width of each hidden layer of the embedding; ``()`` makes it linear. None: the features
        of a `feature_extractor` are the embedding, and nothing is adjusted.

    embedding_dim : int, default=32
        Number of dimensions in which each network compares neighbours.

    numerical_embedding : {'auto', 'periodic'} or None, default='auto'
        'periodic' widens every feature of more than two values by waves of learned
        frequencies first (see :class:`PeriodicEmbedding`); binary features are kept. None leaves
        all features to the first layer, as does a `feature_extractor`. 'auto': 'periodic' for
        up to 64 such features; for more None, which is as accurate for embeddings, and several
        times as fast. Of more than 64 features, and more than a quarter of the training rows,
        it takes 128 supervised principal components instead: principal components of features
        that are weighted by how much the targets explain of them (Bair et al., "Prediction by
        Supervised Principal Components", 2006).

    similarity : {'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='l2'
        Similarity between embeddings; 'l2' is the negative Euclidean distance, as in the
        papers (see :mod:`nona_sklearn.similarity`).

    weighting : str or Weighting, default='softmax'
        How a similarity becomes a weight: 'softmax', 'uniform' (with a `softstep` or
        `n_neighbors` only),
        'gaussian', 'sigmoid', 'softplus', 'softpick', 'sparse_softmax', 'sparsemax', 'entmax' or
        'preconditioned'; or one made with its own options, such as ``SparseSoftmax(8)`` (see
        :mod:`nona_sklearn.weighting`). 'softmax' is the papers'.

    softstep : {'s1', 's2'}, dict or None, default=None
        Learned sparse mask on the similarities (see :class:`SoftStep`); None is plain NONA. A
        dict has the parameters of :class:`SoftStep` but for `embedding_dim`, such as
        ``{'step': 's2', 'params': 'pointwise'}``.

    n_neighbors : int, 'auto' or None, default='auto'
        Largest number of rows behind a prediction, the nearest to the query, of all networks
        together: each has its share. 'auto': the fewest, of some numbers up to 100 for each
        network, whose validation loss is within chance of the best, but at least 10 in all;
        without validation rows, 10 for each, of classes 32. It leaves a `weighting` or
        `softstep` as it is that ends by itself: 'entmax', 'sparsemax', 'softpick', 's1' and
        those with a number of their own. None: all rows, as in the papers.

    algorithm : {'auto', 'brute', 'kd_tree', 'ball_tree', 'hnsw'} or transformer, default='auto'
        How a query's nearest rows are found, where weights end after some of them. 'brute'
        compares it with all rows. 'kd_tree' and 'ball_tree' are scikit-learn's trees, which are
        faster with few dimensions, and not for 'dot'. 'hnsw' is a graph that leads to nearly all
        of the nearest rows, for 'l2', 'log_l2' and 'cosine'; it pays for millions of rows, and
        needs the extra ``approximate``. A transformer such as
        :class:`~sklearn.neighbors.KNeighborsTransformer` is cloned and fitted to the embeddings;
        its metric should order rows as `similarity` does, and its `n_neighbors` be as many as
        have weight, and one more for leave-one-out. 'auto': a tree for up to 5 dimensions, else
        'brute'. Training, and weights that do not end, use all rows, and take 'auto' and 'brute'
        only.

    adjust : bool or 'auto', default='auto'
        Whether to move each neighbour's target by the network's own estimate of the
        difference between it and the query, as an appraiser adjusts comparable sales:
        ``sum_j w_j (y_j + g(q) - g(j))``, where g is a further output of the network, learned
        along. :meth:`explain` shows by how much. Predictions may leave the range of the
        targets, but not `bounds`; far from all training rows the shift fades. False is the papers'
        estimator, ``weights @ y``. 'auto': without a `feature_extractor`, under which g memorises
        the few training rows, which does not help with new ones.

    bounds : {'positive', 'count', 'unit'}, tuple or None, default=None
        The least and the largest target, such as ``(0, 100)``; one of them may be None or
        infinite. 'positive' is ``(0, None)`` and 'unit' ``(0, 1)``. 'count' is 'positive' of whole
        numbers: quantiles and draws are whole, too, but not predictions, which are means.
        Predictions, adjusted targets, quantiles and draws beyond a bound are the bound, and
        targets beyond it are refused. Of several outputs, all have these bounds. None: any number.

    neighbor_pool : {'auto', 'dataset', 'batch', 'memory'}, default='auto'
        The neighbours of a training step: 'dataset' draws other training rows to make
        `pool_size` with the batch, and embeds them anew; 'batch' takes the batch itself, as
        the NONA paper does; 'memory' draws like 'dataset' and takes the last known embedding
        of each, without gradient. A row is never its own neighbour. 'auto': 'dataset' or, with
        a `feature_extractor`, whose embeddings are costly, 'batch', or 'memory' if its
        `micro_batch_size` splits the batch.

    pool_size : int or 'auto', default='auto'
        Number of neighbours of each step, its batch among them, and of the validation rows;
        all training rows, if there are fewer. With ``neighbor_pool='batch'``, of the
        validation rows only. 'auto': 2,048, and 4,096 for a table with more than 65,536 rows.

    n_estimators : int or 'auto', default='auto'
        Number of networks, each with its own initial weights and validation rows. Time and
        memory grow with it; 1 is the plain method. 'auto': 5 for up to 2,000 training rows,
        whose fits differ most and cost least; 4 for up to 2,500; 3 for more; 1 for more than
        65,536, and with a `feature_extractor`; at most `n_neighbors`; and fewer if `max_time`
        is too short for 20 epochs of each.

    batch_size : int or 'auto', default='auto'
        Number of queries of each step. 'auto' makes about 4 steps an epoch, of classes 8: a power
        of two from 32 to 512, or 1,024 for more than 65,536 rows; with a `feature_extractor` 16
        steps, and up to 256. Of more than 65,536 rows of a table, an epoch takes as many, drawn
        anew.

    learning_rate_init : float or 'auto', default='auto'
        Learning rate of AdamW. 'auto': 0.02; of classes, with a `feature_extractor`, and for a
        table with more than 65,536 rows, 0.01.

    weight_decay : float, default=1e-4
        Decoupled weight decay of the embedding, per unit of learning rate.

    max_iter : int, default=200
        Maximum number of epochs of each network. Where it ends the training of any, fit warns
        (:class:`~sklearn.exceptions.ConvergenceWarning`).

    max_time : float or None, default=None
        Seconds for the fit: its preparation, all networks, of which each gets an equal share of
        what is left when it begins, and the embedding of the training rows. An epoch that would
        end later does not begin, but every network has one at least. The best epoch so far is
        kept. None sets no limit.

    early_stopping : bool, default=True
        Whether to set aside `validation_fraction` of the rows and to keep the weights of the
        epoch that predicts them best. These rows join the bank after training. If False, the
        epoch with the lowest training loss is kept.

    validation_fraction : float or splitter, default=0.15
        Share of the rows to set aside; at least one row. A splitter of scikit-learn, such as
        :class:`~sklearn.model_selection.PredefinedSplit`, chooses training and validation rows
        itself: each network takes one of its last splits in turn. Unused with
        ``early_stopping=False``, and where fit is given `X_val`.

    n_iter_no_change : int or 'auto', default='auto'
        Stop after this many epochs without improvement. 'auto': 9, which are short; 24 for a
        table with more than 65,536 rows; with a `feature_extractor` 10.

    callbacks : list of skorch callbacks or None, default=None
        What else happens in training: :class:`skorch.callbacks.LRScheduler`,
        :class:`~skorch.callbacks.Freezer`, :class:`~skorch.callbacks.ProgressBar` and so on,
        beside early stopping and the clipping of gradients to a norm of 1. Fits use copies. The
        extractor's parameters are called ``embedding.extractor.*``. A KeyboardInterrupt that one
        raises ends the fit as Ctrl-C does, without a model, unlike early stopping and `max_time`.

    n_jobs : int or None, default=None
        Number of processes that train networks. None means 1, unless in a
        :func:`joblib.parallel_config` context. In one process, networks on a table train at
        the same time, in as many threads as torch has (:func:`torch.set_num_threads`,
        ``OMP_NUM_THREADS``); with a `feature_extractor`, `callbacks` or an `accelerator` they
        train one after another. Nothing of this changes the result.

    device : str or torch.device, default='auto'
        Where to compute; 'auto' takes CUDA if it is available, else the CPU.

    warm_start : bool, default=False
        Whether a further call to fit starts from the present weights.

    verbose : bool or int, default=False
        1: a line on the standard error stream, by tqdm, shows which network is trained, its epoch
        and its best loss, and the longest time that the rest of training can take. Networks in
        separate processes are counted when they finish. 2: skorch's table of each
        network, a line for each epoch. With either, a line shows how many of more than 4,096
        predictions are done.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the validation splits, the batches and the pools. An int
        makes fits repeatable on one machine; torch's global generators are left as they were.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during fit, if they are all strings.

    network_ : torch.nn.Module
        The trained network: ``network_.embedding`` (in float64) and ``network_.head``. With
        several estimators, the embedding holds theirs side by side, and
        ``network_.head.heads`` one head for each.

    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order.
        Embeddings are of shape (n_samples, n_estimators * (embedding_dim + n_adjusted)). Where
        targets are adjusted, g of each output stands behind the dimensions that are compared,
        which :meth:`transform` gives alone.

    calibration_ : Calibration
        How the weighted targets become a predictive distribution.

    target_names_ : tuple of str or None
        The name of the Series given as `y`, or those of the DataFrame's columns; None if they are
        not different strings.

    targets_ : RegressionTargets
        What `y` is: how it is checked, standardised for training, and decoded.

    features_ : TableEncoder or SparseEncoder
        Makes numbers of the columns of `X`, or components and scores of a wide sparse matrix.

    scaler_ : SmoothClipScaler or None
        Scales the features by their quartiles, and clips outliers smoothly to within 3; None of
        components.

    feature_importances_ : ndarray of shape (`n_features_in_`,)
        How much predictions change when a column is permuted, as shares of the sum: the mean
        squared change over some training rows, each predicted without itself. Of a category, a
        date or a text, it is that of the whole column. Only of tables, not with a
        `feature_extractor` or a wide sparse matrix. It is measured in fit. See
        :func:`sklearn.inspection.permutation_importance` for scores on other rows.

    validation_indices_ : list of ndarray or None
        Numbers of the rows that each network set aside for validation; None without
        `early_stopping`, and where fit is given `X_val`.

    history_ : list of dict
        skorch's history of each epoch of each network, one network after another:
        ``estimator`` (its number), ``train_loss`` and ``valid_loss`` (mean squared errors of
        standardised targets, of several outputs their geometric mean), ``dur`` (seconds),
        ``epoch``, and whether a loss is the best. The last one of each network also holds
        ``stopped``, why there are no more: 'no change', 'max_iter' or 'max_time'; and the one
        whose weights were kept ``kept``, True.

    n_iter_ : int
        Number of epochs run, for all networks together.

    n_estimators_ : int
        Number of networks.

    n_neighbors_ : int or None
        Largest number of rows that a prediction can have; None: all.

    best_loss_ : float
        Loss of the epoch whose weights were kept, the mean of all networks: of the validation
        rows, or without `early_stopping` in training.

    See Also
    --------
    SoftStepKNeighborsRegressor : Learns the neighbourhood rather than the space.
    sklearn.neighbors.KNeighborsRegressor : Neighbours in the given space, k by hand.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import NONARegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    >>> reg = NONARegressor(n_estimators=1, n_neighbors=10, max_iter=5, random_state=0)
    >>> round(reg.fit(X[:400], y[:400]).score(X[400:], y[400:]), 1)
    0.6

    Each prediction is the sum of the contributions of ten rows:

    >>> table = reg.explain(X[400:401])
    >>> list(table)
    ['query', 'neighbor', 'weight', 'target', 'adjusted_target', 'contribution']
    >>> len(table), round(float(table["weight"].sum()), 3)
    (10, 1.0)
    """

    feature_extractor: Any = field(default=None, kw_only=False)
    categorical_features: Any = "from_dtype"
    text_features: Any = None
    max_categories: int = 64
    hidden_layer_sizes: Any = (128,)
    embedding_dim: int = 32
    numerical_embedding: str | None = "auto"
    similarity: str = "l2"
    weighting: str | Weighting = "softmax"
    softstep: str | dict | None = None
    n_neighbors: int | str | None = "auto"
    algorithm: Any = "auto"
    adjust: bool | str = "auto"
    bounds: Any = None
    neighbor_pool: str = "auto"
    pool_size: int | str = "auto"
    n_estimators: int | str = "auto"
    batch_size: int | str = "auto"
    learning_rate_init: float | str = "auto"
    weight_decay: float = 1e-4
    max_iter: int = 200
    max_time: float | None = None
    early_stopping: bool = True
    validation_fraction: Any = 0.15
    n_iter_no_change: int | str = "auto"
    callbacks: Any = None
    n_jobs: int | None = None
    device: str | torch.device = "auto"
    warm_start: bool = False
    verbose: bool | int = False
    random_state: Any = None

    _parameter_constraints = NONA_CONSTRAINTS | REGRESSOR_CONSTRAINTS

    _measure = measure_importances

    def _architecture(self):
        return NONAArchitecture(self)


@storable_estimator(upgrade=upgrade_nona)
@with_parameters_of(NONARegressor)
@dataclass(eq=False, repr=False, kw_only=True)
class NONAClassifier(NeighborClassifier):
    """Deep nearest neighbours classification.

    A neural network learns a space in which near rows have similar classes; the probability
    of a class is the weight of its neighbours there ("Nearness of Neighbors Attention", arXiv
    2506.08139v1, section 3), times the odds that the network itself gives the class for the
    query (`adjust`). Several such networks, trained on different validation splits, average
    their probabilities. Features are scaled, and categories, gaps and dates encoded, inside.
    With a `feature_extractor` rows may be images, texts or anything else that a torch
    module takes, and the module is fine-tuned along.

    Read more in the :doc:`user guide </classes>`.

    Parameters
    ----------
    loss : {'log_loss', 'as_softmax'} or ASSoftmax, default='log_loss'
        What training minimises. 'as_softmax' (arXiv 2508.03175) leaves out the classes that the
        true one is ahead of by a margin, 0.1 unless an :class:`ASSoftmax` sets it, and so pushes
        no row further that is safely right (see :class:`~nona_sklearn.losses.ASSoftmaxLoss`; of
        an indicator matrix, its form for several labels, which adds up where the log loss is a
        mean over them). Validation is judged by the log loss; without `early_stopping` epochs are
        judged by the training loss, in which 'as_softmax' counts rows that are right by the
        margin as 0, however sure they are.

    class_weight : dict, list of dict, 'balanced' or None, default=None
        How much the rows of each class count, beside `sample_weight`, in the loss and as
        neighbours: {label: weight}, of several outputs a list of such. 'balanced': each class as
        much as any other. None: all rows alike. Rows of :meth:`add_neighbors` count so, too; if
        'balanced', by what fit found (``class_weight_``).

    adjust : bool or 'auto', default='auto'
        Whether neighbours of a class count more or less by the odds that the network itself
        gives it for the query:
        ``P(c) ~ ((1 - s) sum_j w_j 1[y_j = c] + s frequency_c) exp(h_c(q))``, where h is a
        further output of the network and s, the share of the classes' frequencies, is learned: no
        probability is 0. False is the papers' form, ``weights @ one_hot``: the rows are exactly
        behind each probability, which may be 0.
        'auto': without a `feature_extractor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,), or list of such arrays
        The labels, sorted; with several outputs those of each.

    class_weight_ : ndarray of shape (n_classes,), or list of such arrays
        How much a row of each class counts, beside its sample weight; with several outputs
        those of each, which multiply.

    bank_ : NeighborBank
        ``bank_.embeddings`` and ``bank_.targets`` of all rows given to fit, in their order;
        targets are one-hot, those of several outputs side by side.

    targets_ : ClassTargets
        What `y` is: its classes, and how frequent they are.

    feature_importances_ : ndarray of shape (`n_features_in_`,)
        How much probabilities change when a column is permuted, as shares of the sum.

    history_ : list of dict
        skorch's history of each epoch of each network, one network after another:
        ``estimator`` (its number), ``train_loss`` (of `loss`), ``valid_loss`` (log loss),
        ``dur`` (seconds), ``epoch``, ``train_batch_count`` (steps), and whether a loss is the
        best. The last one of each network also holds ``stopped``, why there are no more: 'no
        change', 'max_iter' or 'max_time'; and the one whose weights were kept ``kept``, True.

    See Also
    --------
    NONARegressor : The same for numbers.
    SoftStepKNeighborsClassifier : Learns the neighbourhood rather than the space.
    sklearn.neighbors.KNeighborsClassifier : Neighbours in the given space, k by hand.

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
    loss: str | ASSoftmax = "log_loss"
    class_weight: Any = None
    categorical_features: Any = "from_dtype"
    text_features: Any = None
    max_categories: int = 64
    hidden_layer_sizes: Any = (128,)
    embedding_dim: int = 32
    numerical_embedding: str | None = "auto"
    similarity: str = "l2"
    weighting: str | Weighting = "softmax"
    softstep: str | dict | None = None
    n_neighbors: int | str | None = "auto"
    algorithm: Any = "auto"
    adjust: bool | str = "auto"
    neighbor_pool: str = "auto"
    pool_size: int | str = "auto"
    n_estimators: int | str = "auto"
    batch_size: int | str = "auto"
    learning_rate_init: float | str = "auto"
    weight_decay: float = 1e-4
    max_iter: int = 200
    max_time: float | None = None
    early_stopping: bool = True
    validation_fraction: Any = 0.15
    n_iter_no_change: int | str = "auto"
    callbacks: Any = None
    n_jobs: int | None = None
    device: str | torch.device = "auto"
    warm_start: bool = False
    verbose: bool | int = False
    random_state: Any = None

    _parameter_constraints = NONA_CONSTRAINTS | CLASSIFIER_CONSTRAINTS

    _measure = measure_importances

    def _architecture(self):
        return NONAArchitecture(self)
