"""Approximate search, for banks of millions of rows. The only file that imports faiss."""

from numbers import Integral

import numpy as np
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from ._base import BaseNeighborRegressor
from ._stream import QUERY_BLOCK, heads_of, spans
from .attention import neighbor_weights
from .softstep import largest

N_LINKS = 32  # of each row in the index's graph: faiss's usual choice


class ApproximateNeighborsRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Predict from a few candidates of each query, found by an approximate index.

    An exact prediction weighs every row of the bank. This one weighs `n_candidates` rows, the
    nearest that a graph of the bank (HNSW, by faiss) leads to, for each of the regressor's
    networks. It pays for large banks, if the weights are concentrated: :meth:`compare` says what
    is lost. The index takes as much memory as the bank itself and 256 bytes a row.

    Parameters
    ----------
    regressor : NONARegressor
        With similarity 'l2' or 'log_l2' and without SoftStep, which looks at all rows. To keep
        a fitted one as it is, wrap it in :class:`sklearn.frozen.FrozenEstimator`.

    n_candidates : int, default=256
        Number of rows to weigh; all rows, if there are fewer.

    Attributes
    ----------
    regressor_ : NONARegressor
        The fitted regressor: exact answers.

    n_features_in_ : int
        Number of features seen during fit.

    See Also
    --------
    NONARegressor : Exact predictions.

    Notes
    -----
    Needs faiss: ``pip install nona_sklearn[approximate]``.

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

    def fit(self, X, y):
        """Fit the regressor, and build an index of each of its networks' embeddings.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training features.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ImportError
            If faiss is not installed.
        ValueError
            If a neighbour's weight in `regressor` depends on more than its distance.
        """
        _import_faiss()
        self._validate_params()
        regressor = clone(self.regressor)
        _check_indexable(regressor)
        regressor.fit(X, y)
        parts = _heads_of(regressor, regressor.bank_.embeddings)
        self.indexes_ = [_build_index(neighbors.cpu().numpy()) for _, _, neighbors in parts]
        self.regressor_ = regressor
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
        check_is_fitted(self)
        return self._mean(self._candidates(self.regressor_._query(X)[1]))

    def compare(self, X):
        """Measure on some queries what the approximation loses against the exact regressor.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Queries; a few hundred will do.

        Returns
        -------
        dict of str to float
            ``recall``, the mean share of the truly nearest rows among the candidates;
            ``weight``, the mean share of the exact weights on candidates; ``error``, the root
            mean squared difference of the predictions, in units of the target.
        """
        check_is_fitted(self)
        query = self.regressor_._query(X)[1]
        candidates = self._candidates(query)
        difference = self._mean(candidates) - self.regressor_.predict(X)
        recalls, shares = [], []
        parts = _heads_of(self.regressor_, query)
        for (head, q, neighbors), (_, rows) in zip(parts, candidates, strict=True):
            for block in spans(len(query), QUERY_BLOCK):
                weights = head.neighbor_weights(q[block], neighbors).cpu()
                nearest = torch.zeros_like(weights, dtype=torch.bool)
                nearest.scatter_(1, largest(weights, rows.shape[1])[1], True)
                recalls.append(nearest.gather(1, rows[block]).double().mean(dim=1))
                shares.append(weights.gather(1, rows[block]).double().sum(dim=1))
        return {
            "recall": float(torch.cat(recalls).mean()),
            "weight": float(torch.cat(shares).mean()),
            "error": float(np.sqrt(np.mean(difference**2))),
        }

    @torch.no_grad()
    def _candidates(self, query):
        """Find weights and row numbers, (q, k) each, of each network's candidates."""
        k = min(self.n_candidates, len(self.regressor_.bank_))
        found = []
        parts = _heads_of(self.regressor_, query)
        for (head, q, neighbors), index in zip(parts, self.indexes_, strict=True):
            index.hnsw.efSearch = 2 * k  # how many rows the search keeps in sight
            rows = torch.from_numpy(index.search(np.ascontiguousarray(q.cpu()), k)[1])
            weights = [
                _weigh(head, q[block], neighbors[rows[block].to(q.device)])
                for block in spans(len(query), QUERY_BLOCK)
            ]
            found.append((torch.cat(weights).double().cpu(), rows))
        return found

    def _mean(self, candidates):
        """Average the candidates' targets by their weights, then the networks."""
        targets = self.regressor_.bank_.targets.cpu()
        means = [
            torch.einsum("qk,qk...->q...", weights, targets[rows]) for weights, rows in candidates
        ]
        return torch.stack(means).mean(dim=0).numpy()

    @property
    def n_features_in_(self):
        """Number of features seen during fit."""
        return self.regressor_.n_features_in_

    def __getstate__(self):
        state = super().__getstate__()
        if "indexes_" in state:
            serialize = _import_faiss().serialize_index
            state = state | {"indexes_": [serialize(index) for index in self.indexes_]}
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if "indexes_" in state:
            deserialize = _import_faiss().deserialize_index
            self.indexes_ = [deserialize(index) for index in state["indexes_"]]


def _import_faiss():
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "approximate search needs faiss: pip install nona_sklearn[approximate]"
        ) from error
    return faiss


def _check_indexable(regressor):
    """Refuse weights that depend on more than a distance, before the fit."""
    inner = getattr(regressor, "estimator", regressor)  # of a FrozenEstimator
    if not isinstance(inner, BaseNeighborRegressor):
        raise ValueError(f"regressor must be a NONARegressor, got {regressor!r}")
    if inner.softstep is not None or inner.similarity not in ("l2", "log_l2"):
        raise ValueError(
            "regressor must have softstep=None and similarity='l2' or 'log_l2' for an index, got "
            f"softstep={inner.softstep!r} and similarity={inner.similarity!r}"
        )


def _heads_of(regressor, query):
    """List each head of a fitted regressor with its slices of queries and bank."""
    return heads_of(regressor.network_.head, query, regressor.bank_.embeddings)


def _build_index(embeddings):
    index = _import_faiss().IndexHNSWFlat(embeddings.shape[1], N_LINKS)
    index.add(np.ascontiguousarray(embeddings))
    return index


def _weigh(head, query, candidates):
    """Weights (q, k) of each query's own candidates (q, k, d)."""
    distance = torch.linalg.vector_norm(candidates - query[:, None], dim=2)
    if head.similarity == "log_l2":
        distance = distance.clamp_min(torch.finfo(distance.dtype).tiny).log()
    return neighbor_weights(-distance / head.temperature)
