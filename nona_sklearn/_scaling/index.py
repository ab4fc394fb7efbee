"""An approximate index of a bank, and its candidates. The only file that imports faiss."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._inference.bank import NeighborBank
from .._inference.neighbors import Neighbors
from .._utils.chunks import spans
from ..attention import AverageHead, NONAHead
from ..similarity import SIMILARITIES

N_LINKS = 32  # of each row in a graph: faiss's usual choice
QUERY_BLOCK = 256  # queries whose candidates are weighted at a time


@dataclass(frozen=True)
class Index:
    """A graph (HNSW) of a bank's rows for each network, in its own embedding."""

    head: NONAHead | AverageHead
    bank: NeighborBank  # as it was when the graphs were built
    graphs: list  # of faiss.IndexHNSWFlat

    @classmethod
    def of(cls, head: NONAHead | AverageHead, bank: NeighborBank) -> Index:
        """Build the graphs of a bank."""
        parts = head.split_by_head(bank.embeddings[:0], bank.embeddings)
        return cls(head, bank, [build_graph(own.metric_part(z).cpu()) for own, _, z in parts])

    def search(self, query: Tensor, n_candidates: int) -> Candidates:
        """Find approximately nearest rows of some queries (q, d), for each network."""
        k = min(int(n_candidates), len(self.bank))
        parts = self.head.split_by_head(query, self.bank.embeddings)
        found = [
            search_graph(graph, np.ascontiguousarray(head.metric_part(q).cpu()), k)
            for (head, q, _), graph in zip(parts, self.graphs, strict=True)
        ]
        squares, rows = (torch.from_numpy(np.stack(each)) for each in zip(*found, strict=True))
        return Candidates(self.bank.neighbors, rows, squares)

    def serialized(self) -> list[np.ndarray]:
        """Give the graphs as arrays of bytes, for :func:`read_graphs`."""
        return [import_faiss().serialize_index(graph) for graph in self.graphs]


@dataclass(frozen=True)
class Candidates:
    """Rows that are weighted for each query, nearest first, each network's by itself."""

    neighbors: Neighbors
    rows: Tensor  # numbers of neighbours, (networks, q, k)
    squares: Tensor  # their squared distances, (networks, q, k)

    def compact(self) -> Candidates:
        """Drop the neighbours that are no query's candidates."""
        kept, rows = self.rows.unique(return_inverse=True)
        return Candidates(self.neighbors[kept], rows, self.squares)

    def join(self, others: Candidates) -> Candidates:
        """Candidates of both, of different neighbours."""
        return Candidates(
            self.neighbors.join(others.neighbors),
            torch.cat([self.rows, others.rows + len(self.neighbors)], dim=2),
            torch.cat([self.squares, others.squares], dim=2),
        )

    def nearest(self, k: int) -> Candidates:
        """The k nearest of each query, or all, if there are fewer."""
        squares, places = self.squares.topk(min(k, self.squares.shape[2]), dim=2, largest=False)
        return Candidates(self.neighbors, self.rows.gather(2, places), squares)

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
        values, unit = self.neighbors.columns.cpu(), self.neighbors.adjustment_scale
        q, z = head.metric_part(query), head.metric_part(neighbors)
        blocks = [
            _weigh(head, q[block], z, rows[block].to(q.device), self.neighbors.log_prior)
            for block in spans(len(query), QUERY_BLOCK)
        ]
        weights = torch.cat([q.new_zeros(0, rows.shape[1]), *blocks]).double().cpu()
        mean = torch.einsum("qk,qkc->qc", weights, values[rows])
        if head.n_adjusted and unit is not None:
            own, theirs = (unit * head.adjustments(each).double() for each in (query, neighbors))
            expected = torch.einsum("qk,qkc->qc", weights, theirs.cpu()[rows])
            distance = torch.linalg.vector_norm(q.cpu() - z.cpu()[rows[:, 0]], dim=1)
            fade = head.attenuation(distance[:, None].to(own)).cpu()
            mean = head.adjusted_mean(mean, expected, 1.0, own.cpu(), fade)
        return mean


def _weigh(
    head: NONAHead, query: Tensor, neighbors: Tensor, rows: Tensor, log_prior: Tensor | None
) -> Tensor:
    """Weights (q, k) of each query's own candidates, rows (q, k) of the neighbours (n, d)."""
    candidates, prior = neighbors[rows], None if log_prior is None else log_prior[rows]
    similarity = SIMILARITIES[head.similarity](query[:, None].double(), candidates.double())
    return head.weigh(similarity[:, 0].float(), query, candidates, log_prior=prior)


# -- faiss -------------------------------------------------------------------------------------


def import_faiss():
    """Import faiss, or raise an error that names the extra with it."""
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


def read_graphs(arrays: list[np.ndarray]) -> list:
    """Make the graphs of an index from arrays of bytes."""
    return [import_faiss().deserialize_index(array) for array in arrays]


def build_graph(embeddings: Tensor):
    """Build a graph of some rows (n, d)."""
    graph = import_faiss().IndexHNSWFlat(embeddings.shape[1], N_LINKS)
    graph.add(np.ascontiguousarray(embeddings))
    return graph


def search_graph(graph, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances and row numbers, each (q, k), of approximately nearest rows.

    Among many duplicates a graph may lead to fewer than k rows: then the search is exact.
    """
    graph.hnsw.efSearch = 2 * k  # rows that the search keeps in sight
    squares, places = graph.search(query, k)
    short = (places < 0).any(axis=1)
    if short.any():
        rows = import_faiss().downcast_index(graph.storage)
        squares[short], places[short] = rows.search(query[short], k)
    return squares, places
