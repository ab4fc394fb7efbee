"""The two classifiers."""

from __future__ import annotations

from .._data.targets import ClassTargets
from .._utils.docstrings import with_parameters_of
from .._utils.storable import storable_estimator
from .classification import NeighborClassifier
from .families import NONAClassNetworks, SoftStepClassNetworks
from .regressors import NONARegressor, SoftStepKNeighborsRegressor


@storable_estimator
@with_parameters_of(NONARegressor)
class NONAClassifier(NONAClassNetworks, NeighborClassifier):
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
    loss : {'log_loss', 'as_softmax'}, default='log_loss'
        What training minimises. 'as_softmax' (arXiv 2508.03175) leaves out the classes that the
        true one is ahead of by `margin`, and so pushes no row further that is safely right (see
        :class:`~nona_sklearn.losses.ASSoftmaxLoss`; of an indicator matrix, its form for several
        labels, which adds up where the log loss is a mean over them). Validation is judged by the
        log loss; without `early_stopping` epochs are judged by the training loss, in which
        'as_softmax' counts rows that are right by the margin as 0, however sure they are.

    margin : float, default=0.1
        By how much a probability must be ahead; 1 is the log loss. Unused with
        ``loss='log_loss'``.

    max_accumulation : int, default=1
        Most batches whose gradients a step adds up where many rows have a loss of 0; 2 is the
        paper's AS-Speed. Unused with ``loss='log_loss'``.

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

    history_ : list of dict
        skorch's history of each epoch of each network, one network after another:
        ``estimator`` (its number), ``train_loss`` (what `loss` says), ``valid_loss`` (log loss),
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
    >>> clf = NONAClassifier(n_estimators=2, max_iter=30, random_state=0).fit(X[::2], y[::2])
    >>> clf.predict_proba(X[1:3]).shape
    (2, 3)
    >>> clf.score(X[1::2], y[1::2]) > 0.9
    True
    """

    def _make_targets(self):
        return ClassTargets(self._margin, smoothing=self._adjusts)


@storable_estimator
@with_parameters_of(SoftStepKNeighborsRegressor)
class SoftStepKNeighborsClassifier(SoftStepClassNetworks, NeighborClassifier):
    """Nearest neighbours classification that learns its neighbourhood.

    SoftStep (arXiv 2506.08139v2) plays the part of k: a learned step on the similarities
    rejects the rows that are too far, softly and, if asked, for each query anew. The space is
    that of the features, each of which learns how much it counts; or the given one, of
    precomputed embeddings for example; or an embedding that is learned as well
    (`hidden_layer_sizes`).

    Read more in the :doc:`user guide </classes>`.

    Parameters
    ----------
    loss : {'log_loss', 'as_softmax'}, default='log_loss'
        What training minimises. 'as_softmax' (arXiv 2508.03175) leaves out the classes that the
        true one is ahead of by `margin`, and so pushes no row further that is safely right (see
        :class:`~nona_sklearn.losses.ASSoftmaxLoss`; of an indicator matrix, its form for several
        labels, which adds up where the log loss is a mean over them). Validation is judged by the
        log loss; without `early_stopping` epochs are judged by the training loss, in which
        'as_softmax' counts rows that are right by the margin as 0, however sure they are.

    margin : float, default=0.1
        By how much a probability must be ahead; 1 is the log loss. Unused with
        ``loss='log_loss'``.

    max_accumulation : int, default=1
        Most batches whose gradients a step adds up where many rows have a loss of 0; 2 is the
        paper's AS-Speed. Unused with ``loss='log_loss'``.

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

    history_ : list of dict
        skorch's history of each epoch of each network, one network after another:
        ``estimator`` (its number), ``train_loss`` (what `loss` says), ``valid_loss`` (log loss),
        ``dur`` (seconds), ``epoch``, ``train_batch_count`` (steps), and whether a loss is the
        best. The last one of each network also holds ``stopped``, why there are no more: 'no
        change', 'max_iter' or 'max_time'; and the one whose weights were kept ``kept``, True.

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
    >>> knn = SoftStepKNeighborsClassifier(random_state=0).fit(X[::2], y[::2])
    >>> knn.predict(X[1:3])
    array([0, 0])
    """

    def _make_targets(self):
        return ClassTargets(self._margin, smoothing=self.smoothing)
