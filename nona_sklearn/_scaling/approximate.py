"""Predictions from approximately nearest neighbours, for banks of millions of rows."""

from __future__ import annotations

from numbers import Integral

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    MetaEstimatorMixin,
    MultiOutputMixin,
    RegressorMixin,
    clone,
)
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._estimators.queries import input_blocks
from .._estimators.regression import NeighborRegressor
from .._utils.chunks import spans
from .._utils.docs import Documented
from .._utils.snapshots import snapshot
from .._utils.storable import storable_estimator
from .._utils.validation import is_whole
from ..ranking import largest
from .index import QUERY_BLOCK, Index, import_faiss, read_graphs


@storable_estimator
class ApproximateNeighborsRegressor(
    Documented, MetaEstimatorMixin, MultiOutputMixin, RegressorMixin, BaseEstimator
):
    """Predict from a few candidates of each query, found by an approximate index.

    An exact prediction weights every row of the bank. This one weights `n_candidates` rows, the
    nearest that a graph of the bank (HNSW, by faiss) leads to, for each of the regressor's
    networks. It pays for large banks, if the weights are concentrated: :meth:`compare` measures
    the loss. The index takes as much memory as the bank, plus 256 bytes a row. After an edit
    of the regressor's bank it is rebuilt by the next prediction. Sample weights take part in the
    candidates' weights, not in their choice. Sparse weightings ('sparse_softmax', 'sparsemax',
    'entmax', 'softpick', 'preconditioned') lose nothing where all rows that they depend on are
    among the candidates.

    Parameters
    ----------
    regressor : NONARegressor
        With similarity 'l2' or 'log_l2' and without SoftStep, which depends on all rows. To keep
        a fitted one as it is, wrap it in :class:`sklearn.frozen.FrozenEstimator`.

    n_candidates : int, default=256
        Number of rows to weight; all rows, if there are fewer.

    Attributes
    ----------
    regressor_ : NONARegressor
        The fitted regressor: exact predictions.

    n_features_in_ : int
        Number of features seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if `X` has names that are all strings.

    See Also
    --------
    NONARegressor : Exact predictions.

    Notes
    -----
    Needs faiss: install the extra ``approximate``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import ApproximateNeighborsRegressor, NONARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NONARegressor(n_estimators=1, random_state=0)
    >>> fast = ApproximateNeighborsRegressor(reg).fit(X[:400], y[:400])
    >>> fast.compare(X[400:])["recall"] > 0.9
    True
    """

    _parameter_constraints: dict = {
        "regressor": [BaseEstimator],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, regressor, n_candidates=256):
        self.regressor = regressor
        self.n_candidates = n_candidates

    def fit(self, X, y, *, groups=None, sample_weight=None):
        """Fit the regressor, and build an index of each of its networks' embeddings.

        A regressor in a :class:`~sklearn.frozen.FrozenEstimator` is taken as it is fitted, with
        its bank: of `X` only the columns are checked.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training features.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        groups : array-like of shape (n_samples,), default=None
            Groups of rows, as for the regressor's ``fit``.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as for the regressor's ``fit``.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ImportError
            If faiss is not installed.
        ValueError
            If a parameter or what is passed is invalid, or a neighbour's weight in `regressor`
            depends on more than its distance.
        """
        self._validate_params()
        if not is_whole(self.n_candidates, 1):  # True passes for 1
            raise ValueError(f"n_candidates must be an integer, got {self.n_candidates!r}")
        regressor = _unfrozen(self.regressor)
        _check_indexable(regressor)
        import_faiss()  # before a fit that may take long
        if regressor is self.regressor:
            regressor = clone(regressor).fit(X, y, groups=groups, sample_weight=sample_weight)
        else:
            _check_fitted_for(regressor, X, groups=groups, sample_weight=sample_weight)
        self.regressor_, self._index = regressor, _index_of(regressor)
        return self

    def predict(self, X):
        """Predict the weighted mean of the candidates' targets.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        ndarray of shape (n_queries,) or (n_queries, n_outputs)
            Predictions.
        """
        regressor, index, query = self._evaluate(X)
        found = index.search(query, self.n_candidates)
        return regressor.targets_.decode(found.mean(index.head, query))

    def compare(self, X):
        """Measure on some queries what the approximation loses against the exact regressor.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Queries; a few hundred will do.

        Returns
        -------
        dict of str to float
            ``recall``, the mean share of the truly heaviest rows of positive weight (without
            sample weights, the nearest) that are candidates; ``weight``, the mean sum of the exact
            weights of the candidates; ``error``, the root mean squared difference of the
            predictions, in units of the target.
        """
        regressor, index, query = self._evaluate(X)
        candidates = index.search(query, self.n_candidates)
        exact = index.bank.evaluate(index.head, query).mean()
        decode = regressor.targets_.decode
        difference = decode(candidates.mean(index.head, query)) - decode(exact)
        recalls, shares, prior = [], [], index.bank.neighbors.log_prior
        parts = index.head.split_by_head(query, index.bank.embeddings)
        for (head, q, neighbors), rows in zip(parts, candidates.rows, strict=True):
            for block in spans(len(query), QUERY_BLOCK):
                weights = head.neighbor_weights(q[block], neighbors, log_prior=prior).cpu()
                heaviest = torch.zeros_like(weights, dtype=torch.bool)
                heaviest.scatter_(1, largest(weights, rows.shape[1])[1], True)
                heaviest &= weights > 0
                n_found = heaviest.gather(1, rows[block]).double().sum(dim=1)
                recalls.append(n_found / heaviest.sum(dim=1))
                shares.append(weights.gather(1, rows[block]).double().sum(dim=1))
        return {
            "recall": float(torch.cat(recalls).mean()),
            "weight": float(torch.cat(shares).mean()),
            "error": float(np.sqrt(np.mean(difference**2))),
        }

    def _evaluate(self, X) -> tuple[NeighborRegressor, Index, Tensor]:
        """The regressor as it is now, the index of its bank, and the embedded queries."""
        check_is_fitted(self)
        regressor = snapshot(self.regressor_)
        query = regressor.embed(X).embeddings
        index = self._index
        if index is None or index.bank is not regressor.bank_:
            index = self._index = _index_of(regressor)
        return regressor, index, query

    @property
    def n_features_in_(self):
        """Number of features seen during fit."""
        return self.regressor_.n_features_in_

    @property
    def feature_names_in_(self):
        """Names of the features seen during fit."""
        return self.regressor_.feature_names_in_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.regressor).input_tags
        return tags

    def __getstate__(self):
        """Pickle the index as bytes, or none where it is of an earlier bank."""
        state = super().__getstate__()
        index = state.get("_index")
        if index is not None:
            current = index.bank is state["regressor_"].bank_
            state = state | {"_index": index.serialized() if current else None}
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if "regressor_" in state:  # version 0.2.0 kept it frozen
            self.regressor_ = _unfrozen(self.regressor_)
        if state.get("_index") is not None:
            graphs = read_graphs(state["_index"])
            self._index = Index(self.regressor_.network_.head, self.regressor_.bank_, graphs)


def _index_of(regressor) -> Index:
    return Index.of(regressor.network_.head, regressor.bank_)


def _unfrozen(regressor):
    """The estimator in a FrozenEstimator; any other as it is."""
    while isinstance(regressor, FrozenEstimator):
        regressor = regressor.estimator
    return regressor


def _check_indexable(regressor):
    """Refuse weights that depend on more than a distance, before the fit."""
    if not isinstance(regressor, NeighborRegressor):
        raise ValueError(f"regressor must be a NONARegressor, got {regressor!r}")
    if regressor.softstep is not None or regressor.similarity not in ("l2", "log_l2"):
        raise ValueError(
            "regressor must have softstep=None and similarity='l2' or 'log_l2' for an index, got "
            f"softstep={regressor.softstep!r} and similarity={regressor.similarity!r}"
        )


def _check_fitted_for(regressor, X, **of_rows):
    """Refuse a frozen regressor that is not fitted to such columns, and arguments of a fit."""
    check_is_fitted(regressor)
    for name, value in of_rows.items():
        if value is not None:
            raise ValueError(
                f"{name} must be None for a FrozenEstimator, which is not fitted anew, got "
                f"{value!r:.100}"
            )
    next(iter(input_blocks(regressor, X)), None)  # checks the columns
