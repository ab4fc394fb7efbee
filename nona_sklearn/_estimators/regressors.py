"""The two regressors."""

from __future__ import annotations

from .._utils.storable import storable_estimator
from .families import NONANetworks, SoftStepNetworks
from .regression import NeighborRegressor


@storable_estimator
class NONARegressor(NONANetworks, NeighborRegressor):
    """Deep nearest neighbours regression.

    A neural network learns a space in which averaging over neighbours works well; a prediction
    is the softmax-weighted mean of the training targets there ("Nearness of Neighbors
    Attention", arXiv 2506.08139v1), each adjusted by the network's own estimate of the
    difference between its row and the query (`adjust`). Several such networks, trained on
    different validation splits, average their weights. Features and targets are scaled inside,
    so raw features are welcome. With a `feature_extractor` rows may be images, texts or
    anything else that a torch module takes, and the module is fine-tuned along.

    Read more in the :doc:`user guide </user_guide>` and on :doc:`fine-tuning </fine_tuning>`.

    Parameters
    ----------
    feature_extractor : torch.nn.Module, callable or None, default=None
        Maps a batch of rows to features, (n, n_features), on which the embedding stands. A
        module is copied by each fit; a callable without arguments makes one, and its random
        weights follow `random_state`. `X` may then be an array of any shape, a tensor, a dict
        of them (its entries are passed by name), a list, such as one of str, or a torch
        Dataset. Rows are passed as they are, unscaled.

    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Which columns of `X` are categories. 'from_dtype': those that hold strings, and a
        DataFrame's categoricals. Otherwise their names, their numbers, or a mask of bool. None:
        no column; one that holds strings is refused then. What becomes of each kind of column,
        see :class:`TableEncoder`.
        Unused with a `feature_extractor`.

    collate_fn : callable or None, default=None
        Makes a batch, a tensor or a dict of tensors, of a list of rows, as that of
        :class:`torch.utils.data.DataLoader`: a tokenizer, for example. None: arrays are
        sliced, other rows collated by torch's default. Unused, like the other parameters of an
        extractor, with ``feature_extractor=None``.

    extractor_learning_rate : float, default=1e-4
        Learning rate of the extractor: small for pretrained weights, that of the other layers
        for new ones.

    adjust : bool or 'auto', default='auto'
        Whether to move each neighbour's target by the difference that the network itself sees
        between it and the query, as an appraiser adjusts comparable sales:
        ``sum_j w_j (y_j + g(q) - g(j))``, where g is a further output of the network, learned
        along. :meth:`explain` says by how much. Predictions may leave the range of the
        targets; far from all training rows the shift fades. False is the papers' estimator,
        ``weights @ y``. 'auto': without a `feature_extractor`, under which g learns the few
        training rows by heart, which does not help with new ones.

    n_estimators : int or 'auto', default='auto'
        Number of networks, each with its own initial weights and validation rows. Time and
        memory grow with it; 1 is the plain method. 'auto': 5 for up to 2,000 training rows,
        whose fits differ most and cost least; 4 for up to 2,500; 3 for more; 1 with a
        `feature_extractor`.

    hidden_layer_sizes : int or array-like of int, default=(128,)
        Width of each hidden layer of the embedding; ``()`` makes it linear.

    embedding_dim : int, default=32
        Number of dimensions in which each network compares neighbours.

    activation : {'identity', 'logistic', 'tanh', 'relu'}, default='relu'
        Activation of the hidden layers.

    skip_connection : bool, default=True
        Whether to add a linear map of the embedding's input to its output. Changes nothing
        but the initial weights with ``hidden_layer_sizes=()``.

    batch_norm : bool, default=False
        Whether to normalise hidden layers over the batch, before the activation.

    numerical_embedding : {'auto', 'periodic'} or None, default='auto'
        'periodic' widens every feature of more than two values by waves of learned
        frequencies first (see :class:`PeriodicEmbedding`); binary features are kept. None leaves
        all features to the first layer, as does a `feature_extractor`. 'auto': 'periodic' for
        up to 64 such features. More are embeddings as a rule, with which None is as accurate,
        and several times as fast.

    similarity : {'l2', 'log_l2', 'l1', 'dot', 'cosine'}, default='l2'
        Similarity between embeddings; 'l2' is the negative Euclidean distance, as in the
        papers (see :mod:`nona_sklearn.similarity`).

    weighting : str or Weighting, default='softmax'
        How a similarity becomes a weight: 'softmax', 'uniform' (with a `softstep` only),
        'gaussian', 'sigmoid', 'softplus', 'softpick', 'sparse_softmax', 'sparsemax', 'entmax' or
        'preconditioned'; or one made with its own options, such as ``SparseSoftmax(8)`` (see
        :mod:`nona_sklearn.weighting`). 'softmax' is the papers'.

    softstep : {'s1', 's2'} or None, default=None
        Learned sparse mask on the similarities (see :class:`SoftStep`); None is plain NONA.

    softstep_params : {'global', 'pointwise'}, default='global'
        Whether the mask's parameters are the same for all queries or depend on the query's
        embedding. Unused with ``softstep=None``.

    learn_temperature : bool, default=True
        Whether to learn the number that similarities are divided by; it is 1 otherwise, as in
        the papers.

    neighbor_pool : {'auto', 'dataset', 'batch', 'memory'}, default='auto'
        The neighbours of a training step: 'dataset' draws other training rows to make
        `pool_size` with the batch, and embeds them anew; 'batch' takes the batch itself, as
        the NONA paper does; 'memory' draws like 'dataset' and takes the last known embedding
        of each, without gradient. A row is never its own neighbour. 'auto': 'dataset' or, with
        a `feature_extractor`, whose embeddings are costly, 'batch', or 'memory' if
        `micro_batch_size` takes the batch apart.

    pool_size : int, default=2048
        Number of neighbours of each step, its batch among them, and of the validation rows;
        all training rows, if there are fewer. With ``neighbor_pool='batch'``, of the
        validation rows only.

    batch_size : int or 'auto', default='auto'
        Number of queries of each step. 'auto' makes about 8 steps an epoch: a power of two from
        32 to 512; with a `feature_extractor` 16 steps, and up to 256. Of more than 32,768 rows of
        a table, an epoch takes as many, drawn anew.

    micro_batch_size : int or None, default=None
        Most queries of a batch to take through the network at a time, where memory is short:
        the gradients of a batch's parts add up. None takes all at once. With
        ``neighbor_pool='batch'`` the neighbours are those of the part, which needs 2 or more, as
        does `batch_norm`; a row that would be left alone joins another part.

    learning_rate_init : float or 'auto', default='auto'
        Learning rate of AdamW. 'auto': 0.02; of classes, and with a `feature_extractor`, 0.01.

    weight_decay : float, default=1e-4
        Decoupled weight decay of the embedding, per unit of learning rate.

    average : bool or 'auto', default='auto'
        Whether an epoch is kept, and its validation loss taken, by the running average of its
        steps' weights, about the last tenth of all, as
        :class:`~sklearn.linear_model.SGDRegressor`'s `average`. 'auto': without a
        `feature_extractor`, whose copy may be large, and whose learning rate is better lowered
        to an end by a callback. Callbacks see the average when an epoch ends. With
        ``neighbor_pool='memory'`` steps also meet what the average has embedded.

    max_iter : int, default=200
        Maximum number of epochs of each network. Where it ends the training of any, fit warns
        (:class:`~sklearn.exceptions.ConvergenceWarning`).

    max_time : float or None, default=None
        Seconds for training, all networks together: each gets an equal share of what is left
        when it begins. Checked at the end of each epoch, so every network has one at least, and
        training may take longer by the last one; what follows, calibration for instance, comes
        on top. The best epoch so far is kept. None sets no limit.

    early_stopping : bool, default=True
        Whether to set aside `validation_fraction` of the rows and to keep the weights of the
        epoch that predicts them best. These rows join the bank after training. If False, the
        epoch with the lowest training loss is kept.

    validation_fraction : float, default=0.15
        Share of the rows to set aside; at least one row. Unused with
        ``early_stopping=False``.

    n_iter_no_change : int or 'auto', default='auto'
        Stop after this many epochs without improvement. 'auto': 12, which are short; with a
        `feature_extractor` 10.

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

    precision : {'float32', 'bfloat16'}, default='float32'
        'bfloat16' lets the extractor compute in it where torch deems it safe (autocast): twice
        as fast on hardware that has it. Distances are taken in full precision all the same.

    accelerator : callable or None, default=None
        Makes an :class:`accelerate.Accelerator`, such as the class itself, to train on its
        devices: several GPUs under ``accelerate launch``, other mixed precisions. Each takes
        a share of every batch, and with ``neighbor_pool='batch'`` its neighbours from that
        share. Instead of `device`; needs the extra ``accelerate``.

    warm_start : bool, default=False
        Whether a further call to fit starts from the present weights.

    verbose : bool or int, default=False
        1: a line on the standard error stream, by tqdm, says which network is trained, its epoch
        and its best loss, and the longest time that the rest of training can take. Networks in
        separate processes are counted when they finish. 2: skorch's table of each
        network, a line for each epoch.

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
        What `y` is: how it is checked, standardised for training, and answered.

    features_ : TableEncoder
        Makes numbers of the columns of `X`.

    scaler_ : SmoothClipScaler
        Scales the features by their quartiles, and clips outliers smoothly to within 3.

    validation_indices_ : list of ndarray or None
        Numbers of the rows that each network set aside for validation; None without
        `early_stopping`.

    history_ : list of dict
        skorch's history of each epoch of each network, one network after another:
        ``estimator`` (its number), ``train_loss`` and ``valid_loss`` (mean squared errors of
        standardised targets), ``dur`` (seconds), ``epoch``, and whether a loss is the best. The
        last one of each network also holds ``stopped``, why there are no more: 'no change',
        'max_iter' or 'max_time'; and the one whose weights were kept ``kept``, True.

    n_iter_ : int
        Number of epochs run, for all networks together.

    n_estimators_ : int
        Number of networks.

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
    >>> X, y = load_diabetes(return_X_y=True, scaled=False)
    >>> reg = NONARegressor(random_state=0).fit(X[:400], y[:400])
    >>> reg.predict(X[400:402]).shape
    (2,)
    >>> weights, indices = reg.kneighbors(X[400:402], n_neighbors=3)
    >>> indices.shape
    (2, 3)
    >>> behind = reg.explain(X[400:402], n_neighbors=3)
    >>> bool(abs(behind["contribution"][:4].sum() - reg.predict(X[400:401])[0]) < 1e-6)
    True
    """


@storable_estimator
class SoftStepKNeighborsRegressor(SoftStepNetworks, NeighborRegressor):
    """Nearest neighbours regression that learns its neighbourhood.

    SoftStep (arXiv 2506.08139v2) takes the place of k: a learned step on the similarities
    rejects the rows that are too far, softly and, if asked, for each query anew. The space is
    that of the features, each of which learns how much it counts; or the given one, of
    precomputed embeddings for example; or an embedding that is learned as well
    (`hidden_layer_sizes`).

    Read more in the :doc:`user guide </user_guide>`.

    Parameters
    ----------
    n_neighbors : int or None, default=None
        Largest number of neighbours of a query; None lets the step see all rows.

    categorical_features : 'from_dtype', array-like or None, default='from_dtype'
        Which columns of `X` are categories. 'from_dtype': those that hold strings, and a
        DataFrame's categoricals. Otherwise their names, their numbers, or a mask of bool. None:
        no column; one that holds strings is refused then. What becomes of each kind of column,
        see :class:`TableEncoder`.

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
        Number of dimensions of the learned embedding. Unused, like `activation`, with
        ``hidden_layer_sizes=None``.

    activation : {'identity', 'logistic', 'tanh', 'relu'}, default='relu'
        Activation of the hidden layers.

    neighbor_pool : {'dataset', 'batch', 'memory'}, default='dataset'
        The neighbours of a training step, as for :class:`NONARegressor`.

    pool_size : int, default=1024
        Number of neighbours of each step, its batch among them; all training rows, if there
        are fewer. After training the step is narrowed to what suits the whole bank.

    batch_size : int, default=256
        Number of queries of each step.

    learning_rate_init : float, default=0.03
        Learning rate of AdamW.

    weight_decay : float, default=1e-4
        Decoupled weight decay of a learned embedding, per unit of learning rate.

    max_iter : int, default=200
        Maximum number of epochs. Where it ends training, fit warns
        (:class:`~sklearn.exceptions.ConvergenceWarning`).

    max_time : float or None, default=None
        Seconds for training. Checked at the end of each epoch, so there is at least one, and
        training may take longer by the last one; what follows, calibration for instance, comes
        on top. The best epoch so far is kept. None sets no limit.

    early_stopping : bool, default=False
        Whether to set aside `validation_fraction` of the rows and to keep the weights of the
        epoch that predicts them best. If False, the epoch with the lowest training loss is
        kept: a leave-one-out loss, which the few parameters of a step hardly overfit. Use True
        with `hidden_layer_sizes`.

    validation_fraction : float, default=0.15
        Share of the rows to set aside; at least one row. Unused with
        ``early_stopping=False``.

    n_iter_no_change : int, default=10
        Stop after this many epochs without improvement.

    device : str or torch.device, default='auto'
        Where to compute; 'auto' takes CUDA if it is available, else the CPU.

    warm_start : bool, default=False
        Whether a further call to fit starts from the present weights.

    verbose : bool or int, default=False
        1: a line on the standard error stream, by tqdm, says the epoch and the best loss, and how
        long training may take at most. 2: skorch's table, a line for each epoch.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the validation split, the batches and the pools.

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
        How the weighted targets become a predictive distribution.

    target_names_ : tuple of str or None
        The name of the Series given as `y`, or those of the DataFrame's columns; None if they are
        not different strings.

    targets_ : RegressionTargets
        What `y` is: how it is checked, standardised for training, and answered.

    features_ : TableEncoder
        Makes numbers of the columns of `X`.

    scaler_ : StandardScaler or SmoothClipScaler
        Standardises the features before they are weighted, without centring them for dot and
        cosine. In the given space it only centres them, for l2, log_l2 and l1, which leaves
        distances as they are. Before a learned embedding it is that of :class:`NONARegressor`.

    validation_indices_ : list of ndarray or None
        Numbers of the rows that each network set aside for validation; None without
        `early_stopping`.

    history_ : list of dict
        skorch's history of each epoch: ``train_loss`` and ``valid_loss`` (mean squared errors
        of standardised targets), ``dur`` (seconds), ``epoch``, and whether a loss is the best. The
        last one also holds ``stopped``, why there are no more: 'no change', 'max_iter' or
        'max_time'; and the one whose weights were kept ``kept``, True.

    n_iter_ : int
        Number of epochs run.

    n_estimators_ : int
        Number of networks: 1.

    best_loss_ : float
        Loss of the epoch whose weights were kept: of the validation rows, or without
        `early_stopping` in training.

    feature_importances_ : ndarray of shape (`n_features_in_`,)
        Share of each feature in the mean squared distance between two rows; sums to 1. Only
        with learned feature weights.

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
    >>> knn = SoftStepKNeighborsRegressor(random_state=0).fit(X[:400], y[:400])
    >>> knn.predict(X[400:402]).shape
    (2,)
    """
