"""Approximate search, for banks of millions of rows. The only file that imports faiss."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
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

from .._estimators.regression import NeighborRegressor
from .._inference.bank import NeighborBank
from .._inference.neighbors import Neighbors
from .._utils.chunks import spans
from .._utils.docs import Documented
from .._utils.storable import storable_estimator
from .._utils.validation import is_whole, snapshot
from ..attention import AverageHead, NONAHead
from ..attention.functional import adjusted_mean
from ..ranking import largest
from ..similarity import SIMILARITIES

N_LINKS = 32  # of each row in the index's graph: faiss's usual choice
QUERY_BLOCK = 256  # queries whose candidates are weighed at a time


@storable_estimator
class ApproximateNeighborsRegressor(
    Documented, MetaEstimatorMixin, MultiOutputMixin, RegressorMixin, BaseEstimator
):
    """Predict from a few candidates of each query, found by an approximate index.

    An exact prediction weighs every row of the bank. This one weighs `n_candidates` rows, the
    nearest that a graph of the bank (HNSW, by faiss) leads to, for each of the regressor's
    networks. It pays for large banks, if the weights are concentrated: :meth:`compare` says what
    is lost. The index takes as much memory as the bank, plus 256 bytes a row. After an edit
    of the regressor's bank it is rebuilt by the next prediction. Candidates are the nearest rows,
    whatever their sample weights, which count where they are weighed. Weightings that end
    ('sparse_softmax', 'sparsemax', 'entmax', 'softpick', 'preconditioned') lose nothing where all
    rows that they look at are among the candidates.

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
            Rows that belong together, as for the regressor's ``fit``.
        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts, as for the regressor's ``fit``.

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
        _import_faiss()  # before a fit that may take long
        if regressor is self.regressor:
            regressor = clone(regressor).fit(X, y, groups=groups, sample_weight=sample_weight)
        else:
            _check_fitted_for(regressor, X, groups=groups, sample_weight=sample_weight)
        self.regressor_, self._index = regressor, Index.of(*_head_and_bank(regressor))
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
            ``recall``, the mean share of the truly heaviest rows of any weight, which are the
            nearest where rows weigh alike beforehand, among the candidates;
            ``weight``, the mean share of the exact weights on candidates; ``error``, the root
            mean squared difference of the predictions, in units of the target.
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
                found = heaviest.gather(1, rows[block]).double().sum(dim=1)
                recalls.append(found / heaviest.sum(dim=1))
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
        query = regressor._validate_and_embed(X)
        index = self._index
        if index is None or index.bank is not regressor.bank_:
            index = self._index = Index.of(*_head_and_bank(regressor))
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
        """Pickle the index as bytes, or none where an edit has left it behind."""
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
            self._index = Index(*_head_and_bank(self.regressor_), graphs)


def _head_and_bank(regressor) -> tuple[NONAHead | AverageHead, NeighborBank]:
    return regressor.network_.head, regressor.bank_


@dataclass(frozen=True)
class Index:
    """A graph of a bank's rows for each network, where that one looks.

    Parameters
    ----------
    head : NONAHead or AverageHead
        Gives the weights.
    bank : NeighborBank
        The bank, as it was when the graphs were built.
    graphs : list of faiss.IndexHNSWFlat
        One for each network.
    """

    head: NONAHead | AverageHead
    bank: NeighborBank
    graphs: list

    @classmethod
    def of(cls, head: NONAHead | AverageHead, bank: NeighborBank) -> Index:
        """Build the graphs of a bank."""
        parts = head.split_by_head(bank.embeddings[:0], bank.embeddings)
        return cls(head, bank, [_build_graph(own.metric_part(z).cpu()) for own, _, z in parts])

    def search(self, query: Tensor, n_candidates: int) -> Candidates:
        """Find the rows that each network's graph leads to from some queries (q, d)."""
        k, rows, squares = min(int(n_candidates), len(self.bank)), [], []
        parts = self.head.split_by_head(query, self.bank.embeddings)
        for (head, q, _), graph in zip(parts, self.graphs, strict=True):
            found = _search_graph(graph, np.ascontiguousarray(head.metric_part(q).cpu()), k)
            squares.append(torch.from_numpy(found[0]))
            rows.append(torch.from_numpy(found[1]))
        return Candidates(self.bank.neighbors, rows, squares)

    def serialized(self) -> list[np.ndarray]:
        """Give the graphs as arrays of bytes, for :func:`read_graphs`."""
        return [_import_faiss().serialize_index(graph) for graph in self.graphs]


@dataclass(frozen=True)
class Candidates:
    """Rows that queries are to weigh, for each network.

    Parameters
    ----------
    neighbors : Neighbors
        Rows, among which these are.
    rows : list of int Tensor of shape (q, k)
        Which they are, for each network, nearest first.
    squares : list of Tensor of shape (q, k)
        Their squared distances.
    """

    neighbors: Neighbors
    rows: list[Tensor]
    squares: list[Tensor]

    def without_others(self) -> Candidates:
        """Leave out the rows that are no query's."""
        kept, places = torch.cat([rows.flatten() for rows in self.rows]).unique(
            return_inverse=True
        )
        places = places.split([rows.numel() for rows in self.rows])
        rows = [place.reshape(each.shape) for place, each in zip(places, self.rows, strict=True)]
        return Candidates(self.neighbors[kept], rows, self.squares)

    def join(self, others: Candidates) -> Candidates:
        """The candidates of both, of different rows."""
        behind = [rows + len(self.neighbors) for rows in others.rows]
        each = zip(self.rows + self.squares, behind + others.squares, strict=True)
        joined = [torch.cat(pair, dim=1) for pair in each]
        n_networks = len(self.rows)
        neighbors = self.neighbors.join(others.neighbors)
        return Candidates(neighbors, joined[:n_networks], joined[n_networks:])

    def nearest(self, k: int) -> Candidates:
        """The k nearest of each query's, or all, if there are fewer."""
        squares, places = zip(
            *(each.topk(min(k, each.shape[1]), dim=1, largest=False) for each in self.squares),
            strict=True,
        )
        rows = [each.gather(1, place) for each, place in zip(self.rows, places, strict=True)]
        return Candidates(self.neighbors, rows, list(squares))

    @torch.no_grad()
    def mean(self, head: NONAHead | AverageHead, query: Tensor) -> Tensor:
        """Average the candidates' adjusted values by their weights, then the networks."""
        parts = head.split_by_head(query, self.neighbors.embeddings)
        means = [
            self._mean_of_network(*part, rows) for part, rows in zip(parts, self.rows, strict=True)
        ]
        shape = len(query), *self.neighbors.values.shape[1:]
        return torch.stack(means).mean(dim=0).reshape(shape)

    def _mean_of_network(
        self, head: NONAHead, query: Tensor, neighbors: Tensor, rows: Tensor
    ) -> Tensor:
        values, unit = self.neighbors.columns.cpu(), self.neighbors.unit
        q, z = head.metric_part(query), head.metric_part(neighbors)
        weights = torch.cat(
            [
                q.new_zeros(0, rows.shape[1]),
                *(
                    _weigh(head, q[block], z, rows[block].to(q.device), self.neighbors.log_prior)
                    for block in spans(len(query), QUERY_BLOCK)
                ),
            ]
        )
        weights = weights.double().cpu()
        mean = torch.einsum("qk,qkc->qc", weights, values[rows])
        if head.n_adjusted and unit is not None:
            own, theirs = (unit * head.adjustments(each).double() for each in (query, neighbors))
            expected = torch.einsum("qk,qkc->qc", weights, theirs.cpu()[rows])
            distance = torch.linalg.vector_norm(q.cpu() - z.cpu()[rows[:, 0]], dim=1)
            fade = head.attenuation(distance[:, None].to(own)).cpu()
            mean = adjusted_mean(mean, expected, 1.0, own.cpu(), fade)
        return mean


def _import_faiss():
    try:
        with warnings.catch_warnings():
            # Of names in numpy and of SWIG's types: as errors they could even end the process.
            warnings.simplefilter("ignore", DeprecationWarning)
            import faiss
    except ImportError as error:
        raise ImportError(
            "approximate search needs faiss: install nona_sklearn with the extra 'approximate'"
        ) from error
    return faiss


def _unfrozen(regressor):
    """What a FrozenEstimator holds; of any other regressor itself."""
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
    """Refuse a frozen regressor that is not fitted, was to other columns, or is to be anew."""
    check_is_fitted(regressor)
    for name, value in of_rows.items():
        if value is not None:
            raise ValueError(
                f"{name} must be None for a FrozenEstimator, which is not fitted anew, got "
                f"{value!r:.100}"
            )
    next(iter(regressor._take(X)), None)  # which checks the columns


def read_graphs(arrays: list[np.ndarray]) -> list:
    """Take an index's graphs from arrays of bytes."""
    return [_import_faiss().deserialize_index(array) for array in arrays]


def _build_graph(embeddings: Tensor):
    graph = _import_faiss().IndexHNSWFlat(embeddings.shape[1], N_LINKS)
    graph.add(np.ascontiguousarray(embeddings))
    return graph


def _search_graph(graph, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances and places, each (q, k), of the rows that a graph leads to.

    Among many duplicates a graph may lead to fewer than k rows: such a query meets all rows.
    """
    graph.hnsw.efSearch = 2 * k  # how many rows the search keeps in sight
    squares, places = graph.search(query, k)
    short = (places < 0).any(axis=1)
    if short.any():
        rows = _import_faiss().downcast_index(graph.storage)
        squares[short], places[short] = rows.search(query[short], k)
    return squares, places


def _weigh(
    head: NONAHead, query: Tensor, neighbors: Tensor, rows: Tensor, log_prior: Tensor | None
) -> Tensor:
    """Weights (q, k) of each query's own candidates: neighbours (n, d), by their rows (q, k)."""
    candidates, prior = neighbors[rows], None if log_prior is None else log_prior[rows]
    similarity = SIMILARITIES[head.similarity](query[:, None].double(), candidates.double())
    return head.weigh(similarity[:, 0].float(), query, candidates, log_prior=prior)
